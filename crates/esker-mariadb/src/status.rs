// SPDX-License-Identifier: MIT OR Apache-2.0
//! Status codes: the one map from the engine's errors to what C knows, and words in buffers of C.

use esker::Error;
use esker_format::{FormatError, RowId};
use std::ffi::{c_char, CStr};
use std::mem::MaybeUninit;

/// How a call ended.
#[repr(i32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[must_use]
pub enum EsStatus {
    /// It did what it was asked for.
    #[default]
    Ok = 0,
    /// A file operation failed.
    Io = 1,
    /// No space is left.
    DiskFull = 2,
    /// Bytes on disk are not what was written.
    Damage = 3,
    /// Another release wrote it, and this one does not read what is in it.
    NewerFormat = 4,
    /// Another process uses the data folder.
    Locked = 5,
    /// There is no table of that name.
    NoSuchTable = 6,
    /// There is a table of that name already.
    TableExists = 7,
    /// The read view is older than the table's rebuild.
    TableChanged = 8,
    /// Waited for a row lock as long as was allowed.
    LockTimeout = 9,
    /// The row is locked, and waiting is not allowed.
    WouldBlock = 10,
    /// Waiting would never end.
    Deadlock = 11,
    /// Killed while waiting, or stopped by its caller.
    Interrupted = 12,
    /// Snapshot isolation: a newer version was committed.
    RecordChanged = 13,
    /// No such row for this session.
    RowNotFound = 14,
    /// The row is longer than a row may be.
    RowTooLong = 15,
    /// It may not be written.
    ReadOnly = 16,
    /// An earlier write or sync failed: a restart recovers.
    Poisoned = 17,
    /// Memory is missing.
    OutOfMemory = 18,
    /// The engine cannot do that.
    Unsupported = 19,
    /// An argument that makes no sense.
    Invalid = 20,
    /// The caller's column layout is not the table's.
    Layout = 21,
    /// A bug in Esker; the engine is poisoned.
    Panic = 22,
    /// Another row has the key of a unique index: see `es_duplicate`.
    DuplicateKey = 23,
    /// What this version of the boundary has no code for.
    Other = 24,
}

/// A failure on its way to C.
#[derive(Debug, Clone, Default)]
pub(crate) struct Failure {
    pub(crate) status: EsStatus,
    pub(crate) text: String,
    /// The index's place, and the row that has the key.
    pub(crate) duplicate: Option<(usize, RowId)>,
}

impl Failure {
    /// The table lies otherwise than the caller says.
    pub(crate) fn layout(table: &str) -> Failure {
        let text = format!("table '{table}' was created with other columns or keys");
        Failure { status: EsStatus::Layout, text, ..Failure::default() }
    }

    /// The table's definition has another type for the column at this place.
    pub(crate) fn column_type(table: &str, place: usize) -> Failure {
        let column = place + 1;
        let text = format!("table '{table}' was created with another type of stored column {column}: the .frm file is another table's, put back its own");
        Failure { status: EsStatus::Layout, text, ..Failure::default() }
    }

    /// What types the columns have cannot be read.
    pub(crate) fn column_types(table: &str, why: &FormatError) -> Failure {
        Failure { status: EsStatus::Layout, text: format!("table '{table}': {why}"), ..Failure::default() }
    }

    /// An argument that makes no sense.
    pub(crate) fn invalid(what: impl Into<String>) -> Failure {
        Failure { status: EsStatus::Invalid, text: what.into(), ..Failure::default() }
    }

    /// The caller stopped it.
    pub(crate) fn interrupted() -> Failure {
        Error::Interrupted.into()
    }

    /// A bug.
    pub(crate) fn panic(text: String) -> Failure {
        Failure { status: EsStatus::Panic, text, ..Failure::default() }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let status = match &error {
            Error::Io(_) => EsStatus::Io,
            Error::DiskFull(_) => EsStatus::DiskFull,
            Error::Damage { .. }
            | Error::EntryWithoutRow { .. }
            | Error::IndexMismatch { .. }
            | Error::CountMismatch { .. } => EsStatus::Damage,
            Error::NewerFormat { .. } | Error::OlderFormat { .. } | Error::UnknownContent { .. } => {
                EsStatus::NewerFormat
            }
            Error::Locked(_) => EsStatus::Locked,
            Error::NoSuchTable(_) => EsStatus::NoSuchTable,
            Error::TableExists(_) => EsStatus::TableExists,
            Error::TableChanged(_) => EsStatus::TableChanged,
            Error::LockTimeout => EsStatus::LockTimeout,
            Error::WouldBlock => EsStatus::WouldBlock,
            Error::Deadlock => EsStatus::Deadlock,
            Error::Interrupted => EsStatus::Interrupted,
            Error::RecordChanged => EsStatus::RecordChanged,
            Error::RowNotFound => EsStatus::RowNotFound,
            Error::RowTooLong { .. } => EsStatus::RowTooLong,
            Error::ReadOnly(_) => EsStatus::ReadOnly,
            Error::Poisoned(_) => EsStatus::Poisoned,
            Error::OutOfMemory(_) => EsStatus::OutOfMemory,
            Error::Unsupported(_) => EsStatus::Unsupported,
            Error::InvalidArgument(_) => EsStatus::Invalid,
            Error::DuplicateKey { .. } => EsStatus::DuplicateKey,
            _ => EsStatus::Other,
        };
        let duplicate = match error {
            Error::DuplicateKey { index, row } => Some((index, row)),
            _ => None,
        };
        Failure { status, text: error.to_string(), duplicate }
    }
}

/// Bytes of an error's words, the final NUL included.
pub const ES_ERROR_BYTES: usize = 1024;

/// The words of a failure; filled in only by a call that fails.
#[repr(C)]
pub struct EsError {
    /// NUL-terminated, cut if longer.
    pub(crate) text: [c_char; ES_ERROR_BYTES],
}

impl EsError {
    /// Ends with NUL, cut at a character's end.
    pub(crate) fn new(words: &str) -> EsError {
        let mut length = words.len().min(ES_ERROR_BYTES - 1);
        while !words.is_char_boundary(length) {
            length -= 1;
        }
        let mut text = [0; ES_ERROR_BYTES];
        for (to, from) in text.iter_mut().zip(&words.as_bytes()[..length]) {
            *to = *from as c_char;
        }
        EsError { text }
    }
}

/// Fills in what the caller gave for it and returns the status.
///
/// # Safety
/// `error` is null, or room for an error that nobody else uses.
pub(crate) unsafe fn report(result: Result<(), Failure>, error: *mut EsError) -> EsStatus {
    let Err(failure) = result else { return EsStatus::Ok };
    // SAFETY: the caller's promise; a MaybeUninit needs no value.
    if let Some(error) = unsafe { error.cast::<MaybeUninit<EsError>>().as_mut() } {
        error.write(EsError::new(&failure.text));
    }
    failure.status
}

/// A string argument.
///
/// # Safety
/// `text` is null or NUL-terminated, and nobody writes it for `'a`.
pub(crate) unsafe fn str_of<'a>(text: *const c_char) -> Result<&'a str, Failure> {
    if text.is_null() {
        return Err(Failure::invalid("a name is missing"));
    }
    // SAFETY: the caller's promise.
    let bytes = unsafe { CStr::from_ptr(text) };
    bytes.to_str().map_err(|_| Failure::invalid("a name is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boundary::slice;

    fn words(error: &EsError) -> &str {
        // SAFETY: bytes may be read as such.
        let bytes = unsafe { slice(error.text.as_ptr().cast::<u8>(), ES_ERROR_BYTES) };
        CStr::from_bytes_until_nul(bytes).unwrap().to_str().unwrap()
    }

    #[test]
    fn words_are_cut_at_characters() {
        assert_eq!(words(&EsError::new("so what")), "so what");
        let long = format!("{}é", "a".repeat(ES_ERROR_BYTES - 2));
        assert_eq!(words(&EsError::new(&long)), "a".repeat(ES_ERROR_BYTES - 2));
    }

    #[test]
    fn only_a_failure_is_reported() {
        let mut error = EsError::new("before");
        // SAFETY: the error is ours.
        let statuses =
            unsafe { (report(Ok(()), &mut error), report(Err(Failure::invalid("after")), std::ptr::null_mut())) };
        assert_eq!((statuses, words(&error)), ((EsStatus::Ok, EsStatus::Invalid), "before"));
        // SAFETY: the error is ours.
        let status = unsafe { report(Err(Failure::layout("t")), &mut error) };
        assert_eq!((status, words(&error)), (EsStatus::Layout, "table 't' was created with other columns or keys"));
    }
}
