// SPDX-License-Identifier: MIT OR Apache-2.0
//! Status codes: the one map from the engine's errors to numbers that C knows, and texts in buffers of C.

use esker::Error;
use std::ffi::{c_char, CStr};

/// `es_status`: `OK` or one of the constants below, as in the header.
pub type Status = i32;

pub(crate) const OK: Status = 0;
const IO: Status = 1;
const DISK_FULL: Status = 2;
const DAMAGE: Status = 3;
const NEWER_FORMAT: Status = 4;
const LOCKED: Status = 5;
const NO_SUCH_TABLE: Status = 6;
const TABLE_EXISTS: Status = 7;
const TABLE_CHANGED: Status = 8;
const LOCK_TIMEOUT: Status = 9;
const WOULD_BLOCK: Status = 10;
const DEADLOCK: Status = 11;
const INTERRUPTED: Status = 12;
const RECORD_CHANGED: Status = 13;
const ROW_NOT_FOUND: Status = 14;
const ROW_TOO_LONG: Status = 15;
const READ_ONLY: Status = 16;
const POISONED: Status = 17;
const OUT_OF_MEMORY: Status = 18;
const UNSUPPORTED: Status = 19;
const INVALID: Status = 20;
const LAYOUT: Status = 21;
const PANIC: Status = 22;
const OTHER: Status = 23;

/// A failure on its way to C.
#[derive(Debug, Clone, Default)]
pub(crate) struct Failure {
    pub(crate) status: Status,
    pub(crate) text: String,
}

impl Failure {
    /// The table lies otherwise than the caller says.
    pub(crate) fn layout(table: &str) -> Failure {
        Failure { status: LAYOUT, text: format!("table '{table}' was created with another column layout") }
    }

    /// An argument that makes no sense.
    pub(crate) fn invalid(what: impl Into<String>) -> Failure {
        Failure { status: INVALID, text: what.into() }
    }

    /// The caller stopped it.
    pub(crate) fn interrupted() -> Failure {
        Error::Interrupted.into()
    }

    /// A bug.
    pub(crate) fn panic(text: String) -> Failure {
        Failure { status: PANIC, text }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let status = match &error {
            Error::Io(_) => IO,
            Error::DiskFull(_) => DISK_FULL,
            Error::Damage { .. } => DAMAGE,
            Error::NewerFormat { .. } => NEWER_FORMAT,
            Error::Locked(_) => LOCKED,
            Error::NoSuchTable(_) => NO_SUCH_TABLE,
            Error::TableExists(_) => TABLE_EXISTS,
            Error::TableChanged(_) => TABLE_CHANGED,
            Error::LockTimeout => LOCK_TIMEOUT,
            Error::WouldBlock => WOULD_BLOCK,
            Error::Deadlock => DEADLOCK,
            Error::Interrupted => INTERRUPTED,
            Error::RecordChanged => RECORD_CHANGED,
            Error::RowNotFound => ROW_NOT_FOUND,
            Error::RowTooLong { .. } => ROW_TOO_LONG,
            Error::ReadOnly(_) => READ_ONLY,
            Error::Poisoned(_) => POISONED,
            Error::OutOfMemory(_) => OUT_OF_MEMORY,
            Error::Unsupported(_) => UNSUPPORTED,
            Error::InvalidArgument(_) => INVALID,
            _ => OTHER,
        };
        Failure { status, text: error.to_string() }
    }
}

const TEXT_BYTES: usize = 1020;

/// `es_error`.
#[repr(C)]
pub struct EsError {
    code: Status,
    text: [c_char; TEXT_BYTES],
}

/// Copies `text` with a final NUL, cut to `capacity` at a character's end.
///
/// # Safety
/// `to` is null or points to `capacity` writable bytes.
pub(crate) unsafe fn copy_text(text: &str, to: *mut c_char, capacity: usize) {
    if to.is_null() || capacity == 0 {
        return;
    }
    let mut length = text.len().min(capacity - 1);
    while !text.is_char_boundary(length) {
        length -= 1;
    }
    // SAFETY: length < capacity, and the caller's promise.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr().cast::<c_char>(), to, length);
        *to.add(length) = 0;
    }
}

/// Fills in what the caller gave for it and returns the status.
///
/// # Safety
/// `error` is null or valid.
pub(crate) unsafe fn report(result: Result<(), Failure>, error: *mut EsError) -> Status {
    let failure = match result {
        Ok(()) => return OK,
        Err(failure) => failure,
    };
    if !error.is_null() {
        // SAFETY: the caller's promise.
        unsafe {
            (*error).code = failure.status;
            copy_text(&failure.text, (&raw mut (*error).text).cast(), TEXT_BYTES);
        }
    }
    failure.status
}

/// A string argument.
///
/// # Safety
/// `text` is null or NUL-terminated.
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

    #[test]
    fn texts_are_cut_at_characters() {
        let mut buffer = [1 as c_char; 4];
        // SAFETY: the buffer has 4 bytes.
        unsafe { copy_text("aéé", buffer.as_mut_ptr(), 4) };
        // SAFETY: copy_text ends it with NUL.
        assert_eq!(unsafe { CStr::from_ptr(buffer.as_ptr()) }.to_str(), Ok("aé"));
        // SAFETY: nothing is written.
        unsafe { copy_text("a", std::ptr::null_mut(), 0) };
    }
}
