//! One part of a key: how a column's value becomes bytes, and bytes the value.

use super::{key_encoding, Collations};
use crate::error::FormatError;
use crate::image;
use crate::index::KeyPart;
use crate::layout::{Column, ColumnKind};
use std::cmp::Ordering;

/// Before a value; where the column may be NULL.
const NOT_NULL: u8 = 1;
/// Instead of a value.
const NULL: u8 = 0;
/// Stands behind a zero byte that belongs to the value.
const ZERO: u8 = 0xff;
/// The end of bytes of any length; less than whatever could go on there.
const END: [u8; 2] = [0, 0];
/// Weights of strings that are compared as if spaces followed lie in groups of about this length.
const GROUP_BYTES: usize = 8;
/// What follows a group is less than spaces, is spaces (so it is the last one), is greater.
const LESS: u8 = 1;
const SPACES: u8 = 2;
const GREATER: u8 = 3;
/// The longest weight of a space.
const MAX_SPACE_BYTES: usize = 8;

/// How a value becomes bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    /// A little-endian number without sign: big-endian.
    Unsigned,
    /// A little-endian number in two's complement: big-endian, the sign inverted.
    Signed,
    /// IEEE 754, little-endian: big-endian, the sign inverted, negative numbers wholly. Zero has no sign.
    Float,
    /// All bytes of the slot as they are.
    Fixed,
    /// Bytes of any length: a zero byte is followed by ff, the end is two zero bytes.
    Bytes,
    /// Weights, in place of the bytes.
    Weights,
    /// Weights as if spaces followed without end, in groups of as many whole spaces' weights as fit 8 bytes, behind each a
    /// byte: 1, 2, 3: what follows is less than spaces, is nothing but spaces, is greater.
    PaddedWeights,
}

/// A part of a key, with the column that it is of.
#[derive(Debug, Clone)]
pub(super) struct Part {
    /// Its place in the layout.
    pub(super) place: usize,
    pub(super) column: Column,
    pub(super) encoding: Encoding,
    /// 0: all of the value counts.
    pub(super) prefix_bytes: u32,
    pub(super) collation: u32,
    /// Of a space, where the encoding is of padded weights.
    pub(super) space: Vec<u8>,
    pub(super) descending: bool,
}

impl Part {
    pub(super) fn new(
        part: &KeyPart,
        place: usize,
        column: Column,
        collations: &dyn Collations,
    ) -> Result<Self, FormatError> {
        let encoding = match part.encoding {
            key_encoding::UNSIGNED => Encoding::Unsigned,
            key_encoding::SIGNED => Encoding::Signed,
            key_encoding::FLOAT => Encoding::Float,
            key_encoding::FIXED => Encoding::Fixed,
            key_encoding::BYTES => Encoding::Bytes,
            key_encoding::WEIGHTS => Encoding::Weights,
            key_encoding::PADDED_WEIGHTS => Encoding::PaddedWeights,
            found => return Err(FormatError::Unknown { what: "encoding of a key part", found: u64::from(found) }),
        };
        let has_weights = matches!(encoding, Encoding::Weights | Encoding::PaddedWeights);
        let fits = match (encoding, column.kind) {
            (Encoding::Unsigned | Encoding::Signed, ColumnKind::Fixed { width }) => (1..=8).contains(&width),
            (Encoding::Float, ColumnKind::Fixed { width }) => width == 4 || width == 8,
            (Encoding::Unsigned | Encoding::Signed | Encoding::Float, _) => false,
            (Encoding::Fixed, kind) => matches!(kind, ColumnKind::Fixed { .. } | ColumnKind::Padded { .. }),
            _ => true,
        };
        let may_be_cut = !matches!(encoding, Encoding::Unsigned | Encoding::Signed | Encoding::Float);
        if !fits || has_weights != (part.collation != 0) || (part.prefix_bytes != 0 && !may_be_cut) {
            return Err(FormatError::Invalid {
                what: "encoding of a key part, for its column",
                found: part.encoding.into(),
            });
        }
        let mut space = Vec::new();
        if encoding == Encoding::PaddedWeights {
            collations.weights(part.collation, b" ", 0, &mut space)?;
            if space.is_empty() || space.len() > MAX_SPACE_BYTES {
                return Err(FormatError::Invalid { what: "weight of a space", found: space.len() as u64 });
            }
        }
        let (prefix_bytes, collation, descending) = (part.prefix_bytes, part.collation, part.descending);
        Ok(Part { place, column, encoding, prefix_bytes, collation, space, descending })
    }

    /// Can a value of the column be so long?
    pub(super) fn takes(&self, bytes: usize) -> bool {
        match self.column.kind {
            ColumnKind::Fixed { width } => bytes == width as usize,
            kind => bytes <= kind.max_bytes() as usize,
        }
    }

    /// Do the key's bytes tell the value?
    pub(super) fn is_in_key(&self) -> bool {
        self.is_covered()
            && matches!(self.encoding, Encoding::Unsigned | Encoding::Signed | Encoding::Fixed | Encoding::Bytes)
    }

    /// Does an entry tell the value? A beginning of it does not.
    pub(super) fn is_covered(&self) -> bool {
        self.prefix_bytes == 0 && !matches!(self.column.kind, ColumnKind::Blob { .. })
    }

    /// Its column's value in an image; none is NULL.
    ///
    /// # Safety
    /// As for [`KeyCodec::key_of_image`].
    pub(super) unsafe fn value<'a>(&self, image: *const u8) -> Option<&'a [u8]> {
        // SAFETY: the caller's promise.
        unsafe {
            if image::is_null(&self.column, image) {
                return None;
            }
            let (at, len) = image::value_of(&self.column, image);
            // An empty blob may have no place.
            Some(if len == 0 { &[] } else { std::slice::from_raw_parts(at, len) })
        }
    }

    pub(super) fn put(
        &self,
        value: Option<&[u8]>,
        collations: &dyn Collations,
        key: &mut Vec<u8>,
    ) -> Result<(), FormatError> {
        let start = key.len();
        match value {
            None => key.push(NULL),
            Some(value) => {
                if self.column.null.is_some() {
                    key.push(NOT_NULL);
                }
                self.put_value(value, collations, key)?;
            }
        }
        if self.descending {
            key[start..].iter_mut().for_each(|b| *b = !*b);
        }
        Ok(())
    }

    pub(super) fn put_value(
        &self,
        value: &[u8],
        collations: &dyn Collations,
        key: &mut Vec<u8>,
    ) -> Result<(), FormatError> {
        let cut = match self.prefix_bytes as usize {
            0 => value,
            n => &value[..value.len().min(n)],
        };
        match self.encoding {
            Encoding::Unsigned => key.extend(value.iter().rev()),
            Encoding::Signed => {
                let start = key.len();
                key.extend(value.iter().rev());
                key[start] ^= 0x80;
            }
            Encoding::Float => put_float(value, key),
            Encoding::Fixed => {
                let end = key.len() + self.fixed_bytes();
                key.extend_from_slice(cut);
                if let ColumnKind::Padded { pad, .. } = self.column.kind {
                    key.resize(end, pad);
                }
            }
            Encoding::Bytes => {
                let start = key.len();
                key.extend_from_slice(cut);
                end_bytes(key, start);
            }
            Encoding::Weights | Encoding::PaddedWeights => {
                let start = key.len();
                collations.weights(self.collation, value, self.prefix_bytes, key)?;
                match self.encoding {
                    Encoding::Weights => end_bytes(key, start),
                    _ => self.group_weights(key, start),
                }
            }
        }
        Ok(())
    }

    /// Bytes of a value that all count.
    pub(super) fn fixed_bytes(&self) -> usize {
        let width = self.column.kind.max_bytes();
        if self.prefix_bytes == 0 {
            width as usize
        } else {
            width.min(self.prefix_bytes) as usize
        }
    }

    /// Bytes of a group of padded weights.
    pub(super) fn group_bytes(&self) -> usize {
        (GROUP_BYTES / self.space.len()).max(1) * self.space.len()
    }

    /// Brings the weights from `start` on into groups.
    pub(super) fn group_weights(&self, key: &mut Vec<u8>, start: usize) {
        let (group, spaces) = (self.group_bytes(), self.space.len());
        let space = |at: usize| self.space[at % spaces];
        let weights = &key[start..];
        // Trailing spaces are as good as none.
        let bytes = (0..weights.len()).rposition(|at| weights[at] != space(at)).map_or(0, |at| at + 1);
        key.truncate(start + bytes);
        let groups = bytes.div_ceil(group).max(1);
        key.extend((bytes..groups * group).map(space));
        key.resize(start + groups * (group + 1), 0);
        let mut behind = SPACES;
        for i in (0..groups).rev() {
            let to = start + i * (group + 1);
            key.copy_within(start + i * group..start + (i + 1) * group, to);
            key[to + group] = behind;
            behind = match key[to..to + group].iter().copied().cmp((0..group).map(space)) {
                Ordering::Less => LESS,
                Ordering::Equal => behind,
                Ordering::Greater => GREATER,
            };
        }
    }

    /// Takes this part from the front of `key`: the bytes of its value as they stand there, without their end, which only
    /// [`decoded`](Self::decoded) makes a value of. None is NULL.
    pub(super) fn take<'k>(&self, key: &mut &'k [u8]) -> Result<Option<&'k [u8]>, FormatError> {
        let flip = self.flip();
        if self.column.null.is_some() {
            match flip ^ next(key)? {
                NULL => return Ok(None),
                NOT_NULL => {}
                found => return Err(FormatError::Invalid { what: "null byte of a key part", found: found.into() }),
            }
        }
        let whole = *key;
        match self.encoding {
            Encoding::Unsigned | Encoding::Signed | Encoding::Float | Encoding::Fixed => {
                take(key, self.fixed_bytes()).map(Some)
            }
            Encoding::Bytes | Encoding::Weights => loop {
                let zero = key.iter().position(|b| *b == flip).ok_or(CUT)?;
                *key = &key[zero + 1..];
                match flip ^ next(key)? {
                    ZERO => {}
                    0 => return Ok(Some(&whole[..whole.len() - key.len() - END.len()])),
                    byte => {
                        return Err(FormatError::Invalid { what: "byte behind a zero in a key", found: byte.into() })
                    }
                }
            },
            Encoding::PaddedWeights => loop {
                take(key, self.group_bytes())?;
                match flip ^ next(key)? {
                    LESS | GREATER => {}
                    SPACES => return Ok(Some(&whole[..whole.len() - key.len()])),
                    found => {
                        return Err(FormatError::Invalid { what: "byte behind weights in a key", found: found.into() })
                    }
                }
            },
        }
    }

    /// The value that the bytes of this part tell; the bytes themselves where they are it.
    pub(super) fn decoded<'v>(&self, bytes: &'v [u8], scratch: &'v mut Vec<u8>) -> &'v [u8] {
        let flip = self.flip();
        let has_zeros = || self.encoding == Encoding::Bytes && bytes.contains(&0);
        let is_number = matches!(self.encoding, Encoding::Unsigned | Encoding::Signed);
        if flip == 0 && !is_number && !has_zeros() {
            return if self.encoding == Encoding::Fixed { self.trimmed(bytes) } else { bytes };
        }
        scratch.clear();
        match self.encoding {
            Encoding::Bytes => {
                let mut behind_zero = false;
                // Behind each zero stands what marks it.
                scratch.extend(bytes.iter().map(|b| b ^ flip).filter(|b| {
                    let is_mark = behind_zero;
                    behind_zero = *b == 0 && !is_mark;
                    !is_mark
                }));
            }
            Encoding::Fixed => {
                scratch.extend(bytes.iter().map(|b| b ^ flip));
                scratch.truncate(self.trimmed(scratch).len());
            }
            _ => {
                scratch.extend(bytes.iter().rev().map(|b| b ^ flip));
                if let (Encoding::Signed, Some(sign)) = (self.encoding, scratch.last_mut()) {
                    *sign ^= 0x80;
                }
            }
        }
        scratch
    }

    /// What inverts the bytes of a part that is descending.
    pub(super) fn flip(&self) -> u8 {
        if self.descending {
            0xff
        } else {
            0
        }
    }

    /// A padded value is known without its pad bytes.
    pub(super) fn trimmed<'a>(&self, value: &'a [u8]) -> &'a [u8] {
        let ColumnKind::Padded { pad, .. } = self.column.kind else { return value };
        &value[..value.iter().rposition(|b| *b != pad).map_or(0, |at| at + 1)]
    }

    /// None is NULL; its slot is as that of an empty value.
    pub(super) fn fill(&self, image: &mut [u8], value: Option<&[u8]>) {
        assert!(image.len() >= (self.column.offset + self.column.kind.slot_bytes()) as usize, "the image is too short");
        if let Some(null) = self.column.null {
            let head = &mut image[null.byte as usize];
            *head = if value.is_none() { *head | null.mask } else { *head & !null.mask };
        }
        // SAFETY: the slot lies in the image, as was asserted; `takes` has seen the value's length.
        unsafe { image::put_value(&self.column, image.as_mut_ptr(), value.unwrap_or_default()) };
    }
}

const CUT: FormatError = FormatError::Invalid { what: "end of a key", found: 0 };

fn take<'a>(key: &mut &'a [u8], bytes: usize) -> Result<&'a [u8], FormatError> {
    let (taken, rest) = key.split_at_checked(bytes).ok_or(CUT)?;
    *key = rest;
    Ok(taken)
}

fn next(key: &mut &[u8]) -> Result<u8, FormatError> {
    Ok(take(key, 1)?[0])
}

/// Makes of the bytes from `start` on what tells where it ends.
fn end_bytes(key: &mut Vec<u8>, start: usize) {
    let zeros = key[start..].iter().filter(|b| **b == 0).count();
    let (mut from, mut to) = (key.len(), key.len() + zeros);
    key.resize(to, 0);
    while from < to {
        (from, to) = (from - 1, to - 1);
        key[to] = key[from];
        if key[to] == 0 {
            // The zero goes before what marks it.
            key[to] = ZERO;
            to -= 1;
            key[to] = 0;
        }
    }
    key.extend_from_slice(&END);
}

fn put_float(value: &[u8], key: &mut Vec<u8>) {
    let start = key.len();
    key.extend(value.iter().rev());
    let bytes = &mut key[start..];
    if bytes[0] == 0x80 && bytes[1..].iter().all(|b| *b == 0) {
        bytes[0] = 0;
    }
    match bytes[0] & 0x80 {
        0 => bytes[0] ^= 0x80,
        _ => bytes.iter_mut().for_each(|b| *b = !*b),
    }
}
