// SPDX-License-Identifier: MIT OR Apache-2.0
//! Indexes: definitions, and what strings weigh.

use crate::boundary::{slice, FromC, Unchecked};
use crate::status::{str_of, Failure};
use esker::{Collations, IndexDef, KeyPart};
use esker_format::key_bytes::key_encoding;
use esker_format::{grow, FormatError};
use std::collections::HashMap;
use std::ffi::{c_char, c_void};
use std::sync::{Mutex, PoisonError};

/// How a column's value becomes bytes of a key.
#[repr(i32)]
#[derive(Debug, Clone, Copy)]
pub enum EsKeyEncoding {
    /// A little-endian number without sign; the column is Fixed.
    Unsigned = 1,
    /// A little-endian number in two's complement; the column is Fixed.
    Signed = 2,
    /// A little-endian IEEE 754 number; the column is Fixed.
    Float = 3,
    /// The bytes as they are, all of the same length; the column is Fixed or Padded.
    Fixed = 4,
    /// The bytes as they are.
    Bytes = 5,
    /// What the string weighs.
    Weights = 6,
    /// What the string weighs; one that goes on with spaces is the same.
    PaddedWeights = 7,
}

// SAFETY: all members.
unsafe impl FromC for EsKeyEncoding {
    const NAME: &'static str = "key encoding";
    const ALL: &'static [EsKeyEncoding] = &[
        EsKeyEncoding::Unsigned,
        EsKeyEncoding::Signed,
        EsKeyEncoding::Float,
        EsKeyEncoding::Fixed,
        EsKeyEncoding::Bytes,
        EsKeyEncoding::Weights,
        EsKeyEncoding::PaddedWeights,
    ];
}

/// One part of an index's key.
#[repr(C)]
pub struct EsKeyPart {
    /// The column's place in the layout.
    pub(crate) column: u32,
    /// Only so many bytes of the value count; 0: all.
    pub(crate) prefix_bytes: u32,
    pub(crate) encoding: Unchecked<EsKeyEncoding>,
    /// For weights: the number that `EsOptions::weights` is called with.
    pub(crate) collation: u32,
    /// Greater values come first.
    pub(crate) descending: bool,
}

/// An index.
#[repr(C)]
pub struct EsIndex {
    pub(crate) name: *const c_char,
    pub(crate) parts: *const EsKeyPart,
    pub(crate) part_count: u32,
    /// No two rows have the same key; a key with a NULL is like no other.
    pub(crate) unique: bool,
}

/// The collation is not known: see `EsWeightsFn`.
pub const ES_NO_WEIGHTS: usize = !0;

/// Writes what a string weighs: comparing weights as bytes is comparing strings, where neither is the beginning of the
/// other. Of the value only the first `prefix_bytes` count, or as many characters as are as long at most; 0: all. The
/// one byte 0x20 is a space in every character set. Returns
/// how many bytes there are, if that is less than `room`; anything else says that there may be more than `room`, which is
/// written to as it likes, and is called again with more; or ES_NO_WEIGHTS. Depends on its arguments alone, for ever, and
/// is called from any thread.
pub type EsWeightsFn = Option<
    unsafe extern "C" fn(
        context: *mut c_void,
        collation: u32,
        value: *const u8,
        value_bytes: usize,
        prefix_bytes: u32,
        weights: *mut u8,
        room: usize,
    ) -> usize,
>;

/// A number that tells one version of a collation from another: the same as long as all strings weigh the same. 0: unknown.
/// May be slow; is called from any thread.
pub type EsWeightsVersionFn = Option<unsafe extern "C" fn(context: *mut c_void, collation: u32) -> u64>;

/// Writes a string of a collation in UTF-8, for people, at most `room` bytes of it; returns how many. Called from any thread.
pub type EsCollationTextFn = Option<
    unsafe extern "C" fn(
        context: *mut c_void,
        collation: u32,
        value: *const u8,
        value_bytes: usize,
        text: *mut u8,
        room: usize,
    ) -> usize,
>;

/// The longest text that is asked for.
const TEXT_BYTES: usize = 2048;

/// Weights that come from C.
#[derive(Debug)]
pub(crate) struct Weights {
    function: EsWeightsFn,
    version: EsWeightsVersionFn,
    text: EsCollationTextFn,
    context: *mut c_void,
    /// Of collations that were asked about.
    versions: Mutex<HashMap<u32, u64>>,
}

// SAFETY: the rules allow the function to be called from any thread with its context.
unsafe impl Send for Weights {}
// SAFETY: the same.
unsafe impl Sync for Weights {}

impl Weights {
    pub(crate) fn new(
        function: EsWeightsFn,
        version: EsWeightsVersionFn,
        text: EsCollationTextFn,
        context: *mut c_void,
    ) -> Weights {
        Weights { function, version, text, context, versions: Mutex::default() }
    }
}

impl Collations for Weights {
    fn weights(
        &self,
        collation: u32,
        value: &[u8],
        prefix_bytes: u32,
        weights: &mut Vec<u8>,
    ) -> Result<(), FormatError> {
        let unknown = FormatError::Unknown { what: "collation", found: u64::from(collation) };
        let function = self.function.ok_or(unknown.clone())?;
        // For most strings the first time.
        let counted = if prefix_bytes == 0 { value.len() } else { value.len().min(prefix_bytes as usize) };
        let mut room = counted.saturating_mul(4).saturating_add(16);
        loop {
            grow(weights, room)?;
            let spare = weights.spare_capacity_mut();
            let (text, out) = (value.as_ptr(), spare.as_mut_ptr().cast());
            // SAFETY: so much room there is; for the rest see es_engine_open.
            let bytes = unsafe { function(self.context, collation, text, value.len(), prefix_bytes, out, spare.len()) };
            if bytes == ES_NO_WEIGHTS {
                return Err(unknown);
            }
            if bytes < spare.len() {
                // SAFETY: so many were written, within the room.
                unsafe { weights.set_len(weights.len() + bytes) };
                return Ok(());
            }
            room = spare.len().saturating_mul(2);
        }
    }

    fn text(&self, collation: u32, value: &[u8]) -> String {
        let mut text = vec![0; TEXT_BYTES];
        let bytes = match self.text {
            // SAFETY: so much room there is; for the rest see es_engine_open.
            Some(function) => unsafe {
                function(self.context, collation, value.as_ptr(), value.len(), text.as_mut_ptr(), text.len())
            },
            None => 0,
        };
        String::from_utf8_lossy(&text[..bytes.min(TEXT_BYTES)]).into_owned()
    }

    fn version(&self, collation: u32) -> u64 {
        let Some(function) = self.version else { return 0 };
        let mut versions = self.versions.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: see es_engine_open.
        *versions.entry(collation).or_insert_with(|| unsafe { function(self.context, collation) })
    }
}

fn part(c: &EsKeyPart) -> Result<KeyPart, Failure> {
    Ok(KeyPart {
        column: c.column,
        prefix_bytes: c.prefix_bytes,
        descending: c.descending,
        encoding: match c.encoding.checked()? {
            EsKeyEncoding::Unsigned => key_encoding::UNSIGNED,
            EsKeyEncoding::Signed => key_encoding::SIGNED,
            EsKeyEncoding::Float => key_encoding::FLOAT,
            EsKeyEncoding::Fixed => key_encoding::FIXED,
            EsKeyEncoding::Bytes => key_encoding::BYTES,
            EsKeyEncoding::Weights => key_encoding::WEIGHTS,
            EsKeyEncoding::PaddedWeights => key_encoding::PADDED_WEIGHTS,
        },
        collation: c.collation,
    })
}

/// # Safety
/// `c.parts` are `part_count` parts, and the name is one or null.
pub(crate) unsafe fn index(c: &EsIndex) -> Result<IndexDef, Failure> {
    // SAFETY: the caller's promise.
    let (name, parts) = unsafe { (str_of(c.name)?, slice(c.parts, c.part_count as usize)) };
    Ok(IndexDef { name: name.to_owned(), unique: c.unique, parts: parts.iter().map(part).collect::<Result<_, _>>()? })
}

/// The definitions of indexes.
///
/// # Safety
/// As for [`index`], for each.
pub(crate) unsafe fn indexes(given: &[EsIndex]) -> Result<Vec<IndexDef>, Failure> {
    // SAFETY: the caller's promise.
    given.iter().map(|c| unsafe { index(c) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a front end: the bytes of the prefix.
    unsafe extern "C" fn prefix(
        _: *mut c_void,
        _: u32,
        value: *const u8,
        bytes: usize,
        prefix_bytes: u32,
        weights: *mut u8,
        room: usize,
    ) -> usize {
        let bytes = bytes.min(prefix_bytes as usize).min(room);
        // SAFETY: the rules of the call.
        unsafe { std::ptr::copy_nonoverlapping(value, weights, bytes) };
        bytes
    }

    #[test]
    fn what_a_key_takes_of_a_long_value_takes_little_memory() {
        let weights = Weights::new(Some(prefix), None, None, std::ptr::null_mut());
        let (value, mut key) = (vec![b'a'; 1 << 20], Vec::new());
        weights.weights(8, &value, 100, &mut key).unwrap();
        assert_eq!(key, value[..100]);
        assert!(key.capacity() < 1 << 10, "{} bytes for a key of 100", key.capacity());
    }
}
