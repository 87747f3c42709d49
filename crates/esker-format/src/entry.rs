//! Owns the outer form of all that may grow: log records, and what catalog and manifest list. An entry is a kind with a
//! bit that says whether a reader may skip it, the length of its body, and the body.
//! Invariants: a reader takes from a body the fields that it knows and ignores what follows them, so that fields can be
//! appended; an unknown kind is skipped only if its bit allows it, else it is an error; a length is bounded by the bytes
//! that are there.

use crate::codec::{put_varint, Reader};
use crate::error::FormatError;

/// The bit of an entry's first byte that lets those skip it who do not know its kind. The other bits are the kind.
pub const SKIPPABLE: u8 = 0x80;

/// Appends what `body` appends, behind its length.
pub(crate) fn put_sized(out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    body(out);
    let end = out.len();
    put_varint(out, (end - start) as u64);
    let length_bytes = out.len() - end;
    out[start..].rotate_right(length_bytes);
}

/// Appends an entry whose body is what `body` appends.
pub(crate) fn put_entry(out: &mut Vec<u8>, kind: u8, body: impl FnOnce(&mut Vec<u8>)) {
    out.push(kind);
    put_sized(out, body);
}

/// Appends a count and each of `items` behind its length.
pub(crate) fn put_list<T>(out: &mut Vec<u8>, items: &[T], one: impl Fn(&T, &mut Vec<u8>)) {
    put_varint(out, items.len() as u64);
    for item in items {
        put_sized(out, |out| one(item, out));
    }
}

/// An entry whose body was not read yet.
pub(crate) struct Entry<'a> {
    /// What it is.
    pub(crate) kind: u8,
    skippable: bool,
    /// Its body.
    pub(crate) body: Reader<'a>,
}

impl Entry<'_> {
    /// Its kind is not known: fine if it may be skipped, else only a newer version can read this.
    pub(crate) fn skip(&self, what: &'static str) -> Result<(), FormatError> {
        match self.skippable {
            true => Ok(()),
            false => Err(FormatError::Unknown { what, found: u64::from(self.kind) }),
        }
    }
}

impl<'a> Reader<'a> {
    /// What [`put_sized`] wrote.
    pub(crate) fn sized(&mut self) -> Result<Reader<'a>, FormatError> {
        let bytes = self.bytes()?;
        Ok(self.over(bytes))
    }

    /// What [`put_entry`] wrote.
    pub(crate) fn entry(&mut self) -> Result<Entry<'a>, FormatError> {
        let first = self.u8()?;
        let body = self.sized()?;
        Ok(Entry { kind: first & !SKIPPABLE, skippable: first & SKIPPABLE != 0, body })
    }

    /// What [`put_list`] wrote, of elements that take at least `min_bytes` each.
    pub(crate) fn list<T>(
        &mut self,
        min_bytes: usize,
        one: impl Fn(&mut Reader<'a>) -> Result<T, FormatError>,
    ) -> Result<Vec<T>, FormatError> {
        let n = self.count(1 + min_bytes)?;
        (0..n).map(|_| one(&mut self.sized()?)).collect()
    }
}
