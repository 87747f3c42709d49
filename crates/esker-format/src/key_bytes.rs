//! Owns key bytes: how the values of an index's columns become bytes that lie in the index's order when they are compared
//! as bytes.
//!
//! Invariants: values that are equal in the index have the same bytes; in one index no part's bytes are the beginning of
//! another value's bytes of that part, so that the first parts of a key are where all keys with these values begin; NULL
//! stands before all values, or behind them where the part is descending.

mod part;
mod shown;
mod text;

pub use shown::{LocalTime, Shown, TimeForm};
pub use text::Telling;

use self::part::Part;
use crate::codec::{put_bytes, Reader};
use crate::error::FormatError;
use crate::ids::RowId;
use crate::index::{IndexEntry, KeyPart};
use crate::layout::Layout;
use crate::mask::ColumnMask;

/// The numbers of the encodings of key parts.
pub mod key_encoding {
    #![allow(missing_docs)]
    pub const UNSIGNED: u32 = 1;
    pub const SIGNED: u32 = 2;
    pub const FLOAT: u32 = 3;
    pub const FIXED: u32 = 4;
    pub const BYTES: u32 = 5;
    pub const WEIGHTS: u32 = 6;
    pub const PADDED_WEIGHTS: u32 = 7;
}

/// The front end's collations: what a string weighs.
pub trait Collations: std::fmt::Debug + Send + Sync {
    /// Appends the weights of a string: comparing them as bytes is comparing the strings, where neither is the beginning of
    /// the other. Of the value only the first `prefix_bytes` count, or as many characters as are as long at most; 0: all.
    ///
    /// # Errors
    /// The collation is not known.
    fn weights(
        &self,
        collation: u32,
        value: &[u8],
        prefix_bytes: u32,
        weights: &mut Vec<u8>,
    ) -> Result<(), FormatError>;

    /// The string for people.
    fn text(&self, _collation: u32, value: &[u8]) -> String {
        String::from_utf8_lossy(value).into_owned()
    }

    /// Another number than before says that strings weigh otherwise than before; 0: they never do.
    fn version(&self, _collation: u32) -> u64 {
        0
    }
}

/// No collations: strings compare as bytes.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoCollations;

impl Collations for NoCollations {
    fn weights(&self, collation: u32, _: &[u8], _: u32, _: &mut Vec<u8>) -> Result<(), FormatError> {
        Err(FormatError::Unknown { what: "collation", found: u64::from(collation) })
    }
}

/// How the keys of one index are made of row images, and columns of keys.
#[derive(Debug, Clone)]
pub struct KeyCodec {
    parts: Vec<Part>,
}

impl KeyCodec {
    /// Of an index; `place_of` says where a column (by its id) stands in the layout.
    ///
    /// # Errors
    /// A column that is not there, an encoding or a collation that is not known or does not fit its column.
    pub fn new(
        index: &IndexEntry,
        layout: &Layout,
        place_of: impl Fn(u32) -> Option<usize>,
        collations: &dyn Collations,
    ) -> Result<Self, FormatError> {
        if index.parts.is_empty() {
            return Err(FormatError::Invalid { what: "count of key parts", found: 0 });
        }
        let part = |part: &KeyPart| {
            let unknown = FormatError::Invalid { what: "column of a key part", found: u64::from(part.column) };
            let place = place_of(part.column).filter(|place| *place < layout.columns.len()).ok_or(unknown)?;
            Part::new(part, place, layout.columns[place], collations)
        };
        Ok(KeyCodec { parts: index.parts.iter().map(part).collect::<Result<_, _>>()? })
    }

    /// How many parts its keys have.
    #[must_use]
    pub fn parts(&self) -> usize {
        self.parts.len()
    }

    /// The places in the layout of the columns that its keys are made of.
    pub fn columns(&self) -> impl Iterator<Item = usize> + '_ {
        self.parts.iter().map(|p| p.place)
    }

    /// Appends the key of a row image; is a part of it NULL?
    ///
    /// # Errors
    /// Those of the collations.
    ///
    /// # Safety
    /// `image` points to an initialised image of the layout that this was made with; blob slots point to readable bytes.
    pub unsafe fn key_of_image(
        &self,
        image: *const u8,
        collations: &dyn Collations,
        key: &mut Vec<u8>,
    ) -> Result<bool, FormatError> {
        // SAFETY: the caller's promise.
        unsafe { self.parts_of_image(image, self.parts.len(), collations, key) }
    }

    /// The same of the first `parts` parts: where all keys begin that are like the image's there.
    ///
    /// # Errors
    /// Those of the collations.
    ///
    /// # Safety
    /// As for [`key_of_image`](Self::key_of_image); the columns of other parts may be anything.
    pub unsafe fn parts_of_image(
        &self,
        image: *const u8,
        parts: usize,
        collations: &dyn Collations,
        key: &mut Vec<u8>,
    ) -> Result<bool, FormatError> {
        let mut has_null = false;
        for part in self.parts.iter().take(parts) {
            // SAFETY: the caller's promise; the head is the image's beginning.
            let value = unsafe { part.value(image) };
            has_null |= value.is_none();
            part.put(value, collations, key)?;
        }
        Ok(has_null)
    }

    /// Have two row images the same values in all columns of the key? No may mean that they only look different.
    ///
    /// # Safety
    /// As for [`key_of_image`](Self::key_of_image), for both.
    #[must_use]
    pub unsafe fn has_same_values(&self, a: *const u8, b: *const u8) -> bool {
        // SAFETY: the caller's promise.
        self.parts.iter().all(|part| unsafe { part.value(a) == part.value(b) })
    }

    /// Appends what restores the columns of a row image that the key's bytes do not.
    ///
    /// # Safety
    /// As for [`key_of_image`](Self::key_of_image).
    pub unsafe fn payload_of_image(&self, image: *const u8, payload: &mut Vec<u8>) {
        for part in self.parts.iter().filter(|p| p.is_covered() && !p.is_in_key()) {
            // SAFETY: the caller's promise.
            if let Some(value) = unsafe { part.value(image) } {
                put_bytes(payload, value);
            }
        }
    }

    /// Appends the part at place `at` of a key, from its column's value; `None` is NULL.
    ///
    /// # Errors
    /// A value that the column cannot have; those of the collations.
    pub fn put_part(
        &self,
        at: usize,
        value: Option<&[u8]>,
        collations: &dyn Collations,
        key: &mut Vec<u8>,
    ) -> Result<(), FormatError> {
        let part = self.parts.get(at).ok_or(FormatError::Invalid { what: "key part", found: at as u64 })?;
        let bad = |what, found: usize| Err(FormatError::Invalid { what, found: found as u64 });
        match value {
            None if part.column.null.is_none() => bad("NULL in a key part", at),
            Some(value) if !part.takes(value.len()) => bad("length of a value in a key part", value.len()),
            value => part.put(value.map(|v| part.trimmed(v)), collations, key),
        }
    }

    /// How many bytes of a key are its first `parts` parts.
    ///
    /// # Errors
    /// Bytes that are no key of this index.
    pub fn prefix_bytes(&self, key: &[u8], parts: usize) -> Result<usize, FormatError> {
        let mut rest = key;
        for part in self.parts.iter().take(parts) {
            part.take(&mut rest)?;
        }
        Ok(key.len() - rest.len())
    }

    /// Can a part of its keys be NULL?
    #[must_use]
    pub fn has_nullable(&self) -> bool {
        self.parts.iter().any(|p| p.column.null.is_some())
    }

    /// Does an entry tell the column at this place of the layout?
    #[must_use]
    pub fn covers(&self, place: usize) -> bool {
        self.parts.iter().any(|p| p.place == place && p.is_covered())
    }

    /// Writes the columns that an entry tells, of those that are wanted, to a row image: their slots and null bits. What
    /// lies behind the last of them is not looked at. `scratch` is memory for values, kept from entry to entry.
    ///
    /// # Errors
    /// Bytes that are no key of this index, or no payload of it.
    ///
    /// # Panics
    /// The image is shorter than the layout's.
    pub fn fill_image(
        &self,
        key: &[u8],
        payload: &[u8],
        wanted: &ColumnMask,
        image: &mut [u8],
        scratch: &mut Vec<u8>,
    ) -> Result<(), FormatError> {
        let mut rest = key;
        let mut payload = Reader::new("payload of an index entry", payload);
        let is_wanted = |part: &Part| part.is_covered() && wanted.get(part.place);
        let parts = self.parts.iter().rposition(is_wanted).map_or(0, |last| last + 1);
        for part in &self.parts[..parts] {
            let in_key = part.take(&mut rest)?;
            let in_payload = match in_key {
                Some(_) if part.is_covered() && !part.is_in_key() => Some(payload.bytes()?),
                _ => None,
            };
            if !is_wanted(part) {
                continue;
            }
            let value = match (in_payload, in_key) {
                (None, Some(bytes)) => Some(part.decoded(bytes, scratch)),
                (value, _) => value,
            };
            let bad = |what, value: &[u8]| Err(FormatError::Invalid { what, found: value.len() as u64 });
            match value {
                Some(v) if !part.takes(v.len()) => return bad("length of a value in a key part", v),
                Some(v) if part.trimmed(v).len() < v.len() => {
                    return bad("length of a value with pad bytes in a key part", v)
                }
                value => part.fill(image, value),
            }
        }
        if parts < self.parts.len() {
            return Ok(());
        }
        payload.finish()
    }
}

/// Appends the row to a key that is not unique by itself.
pub fn append_row(key: &mut Vec<u8>, row: RowId) {
    key.extend_from_slice(&row.0.to_be_bytes());
}

/// Makes of the beginning of keys the least bytes behind all of them; false: nothing is behind.
#[must_use]
pub fn pass_prefix(key: &mut Vec<u8>) -> bool {
    while let Some(last) = key.pop() {
        if last != 0xff {
            key.push(last + 1);
            return true;
        }
    }
    false
}
