//! Owns the description of a row image: the flat record of a front end, with fixed places for its columns.
//! Invariant of a validated layout: every column lies between the head and the end of the image, no two overlap, and
//! null bits lie in the head. All code that touches images relies on it.

use crate::codec::{put_varint, Reader};
use crate::error::FormatError;
use xxhash_rust::xxh3::xxh3_64;

/// The longest row image. (Blobs lie outside it.)
pub const MAX_IMAGE_BYTES: u32 = 16 << 20;
/// The most columns of a table.
pub const MAX_COLUMNS: usize = 16384;

/// How a column lies in the image and how it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ColumnKind {
    /// Always `width` bytes.
    Fixed {
        /// Bytes in the image.
        width: u32,
    },
    /// `width` bytes, filled up with `pad` at the end; trailing pad bytes are not stored.
    Padded {
        /// Bytes in the image.
        width: u32,
        /// The byte that fills up.
        pad: u8,
    },
    /// A little-endian length of `len_bytes` (1 or 2), then up to `max` bytes.
    Var {
        /// Bytes of the length.
        len_bytes: u8,
        /// The longest value.
        max: u32,
    },
    /// A little-endian length of `len_bytes` (1 to 4), then an 8-byte native pointer to the bytes.
    Blob {
        /// Bytes of the length.
        len_bytes: u8,
    },
}

impl ColumnKind {
    /// Bytes that the column takes in the image.
    #[must_use]
    pub fn slot_bytes(&self) -> u32 {
        match *self {
            ColumnKind::Fixed { width } | ColumnKind::Padded { width, .. } => width,
            ColumnKind::Var { len_bytes, max } => max.saturating_add(u32::from(len_bytes)),
            ColumnKind::Blob { len_bytes } => u32::from(len_bytes) + 8,
        }
    }

    /// The longest value that can be stored.
    #[must_use]
    pub fn max_bytes(&self) -> u32 {
        match *self {
            ColumnKind::Fixed { width } | ColumnKind::Padded { width, .. } => width,
            ColumnKind::Var { max, .. } => max,
            ColumnKind::Blob { len_bytes } => max_of(len_bytes),
        }
    }

    /// Bytes of the length before the column's value in a packed row.
    #[inline]
    #[must_use]
    pub fn packed_len_bytes(&self) -> usize {
        match *self {
            ColumnKind::Fixed { .. } => 0,
            ColumnKind::Padded { width, .. } if width <= 0xff => 1,
            ColumnKind::Padded { width, .. } if width <= 0xffff => 2,
            ColumnKind::Padded { .. } => 4,
            ColumnKind::Var { len_bytes, .. } | ColumnKind::Blob { len_bytes } => usize::from(len_bytes),
        }
    }
}

/// The largest length that `len_bytes` bytes can say.
fn max_of(len_bytes: u8) -> u32 {
    match len_bytes {
        0 => 0,
        n @ 1..=3 => (1 << (8 * n)) - 1,
        _ => u32::MAX,
    }
}

/// Where the bit is that says a column is NULL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NullBit {
    /// Which byte of the head.
    pub byte: u32,
    /// The bit in it.
    pub mask: u8,
}

/// One column of a layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Column {
    /// Its kind.
    pub kind: ColumnKind,
    /// Where its slot begins in the image.
    pub offset: u32,
    /// Its null bit, when it can be NULL.
    pub null: Option<NullBit>,
}

/// How a row image is laid out.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Layout {
    /// Length of the image.
    pub image_bytes: u32,
    /// Bytes at the start of the image that are always stored as they are: null bits and the like.
    pub head_bytes: u32,
    /// The columns.
    pub columns: Vec<Column>,
}

/// How a table's blocks keep rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
pub enum RowFormat {
    /// Packed, a column at a time.
    #[default]
    Dynamic = 0,
    /// Whole images at full width; no blobs.
    Fixed = 1,
}

impl RowFormat {
    /// From its stored number.
    pub fn from_u8(value: u8) -> Result<Self, FormatError> {
        match value {
            0 => Ok(RowFormat::Dynamic),
            1 => Ok(RowFormat::Fixed),
            other => Err(FormatError::Unknown { what: "row format", found: u64::from(other) }),
        }
    }
}

impl Layout {
    /// Checks everything that the code relies on. Every other function of this crate takes validated layouts.
    pub fn validate(&self) -> Result<(), FormatError> {
        let bad = |what, found: u64| Err(FormatError::Invalid { what, found });
        if self.image_bytes > MAX_IMAGE_BYTES {
            let (found, max) = (u64::from(self.image_bytes), u64::from(MAX_IMAGE_BYTES));
            return Err(FormatError::TooLong { what: "row image", found, max });
        }
        if self.head_bytes > self.image_bytes {
            return bad("layout head", u64::from(self.head_bytes));
        }
        if self.columns.len() > MAX_COLUMNS {
            let (found, max) = (self.columns.len() as u64, MAX_COLUMNS as u64);
            return Err(FormatError::TooLong { what: "layout columns", found, max });
        }
        let mut slots = Vec::with_capacity(self.columns.len());
        for column in &self.columns {
            match column.kind {
                ColumnKind::Var { len_bytes, max } if !(1..=2).contains(&len_bytes) || max > max_of(len_bytes) => {
                    return bad("length bytes of a var column", u64::from(len_bytes));
                }
                ColumnKind::Blob { len_bytes } if !(1..=4).contains(&len_bytes) => {
                    return bad("length bytes of a blob column", u64::from(len_bytes));
                }
                _ => {}
            }
            if let Some(null) = column.null {
                if null.byte >= self.head_bytes || null.mask.count_ones() != 1 {
                    return bad("null bit", u64::from(null.byte));
                }
            }
            let start = u64::from(column.offset);
            slots.push((start, start + u64::from(column.kind.slot_bytes())));
        }
        slots.sort_unstable();
        let mut end = u64::from(self.head_bytes);
        for (start, stop) in slots {
            if start < end {
                return bad("column offset", start);
            }
            end = stop;
        }
        if end > u64::from(self.image_bytes) {
            return bad("column end", end);
        }
        Ok(())
    }

    /// Has it columns whose values lie outside the image?
    #[must_use]
    pub fn has_blobs(&self) -> bool {
        self.columns.iter().any(|c| matches!(c.kind, ColumnKind::Blob { .. }))
    }

    /// Appends the stored form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, u64::from(self.image_bytes));
        put_varint(out, u64::from(self.head_bytes));
        put_varint(out, self.columns.len() as u64);
        for column in &self.columns {
            let (kind, a, b) = match column.kind {
                ColumnKind::Fixed { width } => (1, width, 0),
                ColumnKind::Padded { width, pad } => (2, width, pad),
                ColumnKind::Var { len_bytes, max } => (3, max, len_bytes),
                ColumnKind::Blob { len_bytes } => (4, 0, len_bytes),
            };
            let null = column.null.unwrap_or(NullBit { byte: 0, mask: 0 });
            out.push(kind);
            put_varint(out, u64::from(a));
            out.push(b);
            put_varint(out, u64::from(column.offset));
            out.push(null.mask);
            put_varint(out, u64::from(null.byte));
        }
    }

    /// Reads and validates the stored form, all of `bytes`.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut r = Reader::new("layout", bytes);
        let image_bytes = r.varint32()?;
        let head_bytes = r.varint32()?;
        let n = r.count(6)?;
        let mut columns = Vec::with_capacity(n);
        for _ in 0..n {
            let kind = r.u8()?;
            let (a, b) = (r.varint32()?, r.u8()?);
            let kind = match kind {
                1 => ColumnKind::Fixed { width: a },
                2 => ColumnKind::Padded { width: a, pad: b },
                3 => ColumnKind::Var { len_bytes: b, max: a },
                4 => ColumnKind::Blob { len_bytes: b },
                other => return Err(FormatError::Unknown { what: "kind of a column", found: u64::from(other) }),
            };
            let offset = r.varint32()?;
            let (mask, byte) = (r.u8()?, r.varint32()?);
            // A layout has one stored form: its fingerprint is taken of it.
            let unused = match kind {
                ColumnKind::Fixed { .. } => u32::from(b),
                ColumnKind::Blob { .. } => a,
                _ => 0,
            };
            if unused != 0 || (mask == 0 && byte != 0) {
                return Err(FormatError::Invalid { what: "unused number of a column", found: unused.max(byte).into() });
            }
            let null = (mask != 0).then_some(NullBit { byte, mask });
            columns.push(Column { kind, offset, null });
        }
        r.finish()?;
        let layout = Layout { image_bytes, head_bytes, columns };
        layout.validate()?;
        Ok(layout)
    }

    /// A hash of the stored form: runs carry it, so that a run is never read with another table's layout.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        let mut bytes = Vec::new();
        self.encode(&mut bytes);
        xxh3_64(&bytes)
    }
}
