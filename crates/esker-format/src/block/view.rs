//! Owns access to a segment of values: where row `i`'s value is, found by arithmetic. Invariants: anchors exist for a
//! column with lengths before it is read, and the lengths were checked when they were made; a place outside the
//! content gives an empty value.

use super::columns::SHORT;
use super::encoding;
use crate::codec::grow;
use crate::error::FormatError;
use crate::image;
use crate::layout::{ColumnKind, Layout};
use crate::prefetch::{prefetch, prefetch_byte, prefetch_bytes};
use std::ops::Range;

/// Rows from one anchor to the next.
pub(crate) const ANCHOR_ROWS: usize = 64;

/// A segment's content, ready to be read.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    /// How it is encoded.
    pub encoding: u8,
    /// Bytes of a value, or of a length.
    pub unit: usize,
    /// Rows of the block.
    pub rows: usize,
    /// The content, and whatever follows it in memory and may be read.
    pub bytes: &'a [u8],
    /// Length of the content.
    pub raw: usize,
    /// For `VAR`, see [`View::make_anchors`].
    pub anchors: &'a [u32],
}

/// 0xff for lengths that count, 0 for others: a window into it, moved by how many count.
static COUNTED: [u8; 2 * ANCHOR_ROWS] = {
    let mut table = [0; 2 * ANCHOR_ROWS];
    let mut i = 0;
    while i < ANCHOR_ROWS {
        table[i] = 0xff;
        i += 1;
    }
    table
};

/// The sum of the first `n` (less than [`ANCHOR_ROWS`]) of lengths of one byte. All are looked at: a loop that ends early
/// costs more in wrong guesses than it saves.
#[inline(always)]
fn sum_of_first(lens: &[u8; ANCHOR_ROWS], n: usize) -> usize {
    let counted = &COUNTED[ANCHOR_ROWS - n..][..ANCHOR_ROWS];
    let sum: u16 = lens.iter().zip(counted).map(|(&len, &mask)| u16::from(len & mask)).sum();
    usize::from(sum)
}

/// The sum and the maximum of lengths of `unit` bytes.
fn sum_and_max(lens: &[u8], unit: usize) -> (u64, u32) {
    match unit {
        1 => {
            let sum: u32 = lens.iter().map(|&n| u32::from(n)).sum();
            (u64::from(sum), u32::from(lens.iter().copied().max().unwrap_or(0)))
        }
        2 => lens.chunks_exact(2).fold((0, 0), |(sum, max), b| {
            let n = u32::from(u16::from_le_bytes([b[0], b[1]]));
            (sum + u64::from(n), max.max(n))
        }),
        _ => lens.chunks_exact(4).fold((0, 0), |(sum, max), b| {
            let n = u32::from_le_bytes([b[0], b[1], b[2], b[3]]);
            (sum + u64::from(n), max.max(n))
        }),
    }
}

impl<'a> View<'a> {
    /// The content, without what follows.
    pub(crate) fn content(&self) -> &'a [u8] {
        self.bytes.get(..self.raw).unwrap_or(&[])
    }

    /// For `VAR`: where every [`ANCHOR_ROWS`]th row's value begins, counted from the first value. Checks that no length
    /// exceeds `max` and that all add up to the content's length.
    pub(crate) fn make_anchors(&self, max: u32) -> Result<Vec<u32>, FormatError> {
        let lens = self.bytes.get(..self.rows * self.unit).unwrap_or(&[]);
        let values = (self.raw - lens.len().min(self.raw)) as u64;
        let mut anchors = Vec::with_capacity(self.rows.div_ceil(ANCHOR_ROWS));
        let mut at = 0u64;
        for some in lens.chunks(ANCHOR_ROWS * self.unit) {
            anchors.push(at as u32);
            let (sum, longest) = sum_and_max(some, self.unit);
            if longest > max {
                let (found, max) = (u64::from(longest), u64::from(max));
                return Err(FormatError::TooLong { what: "value in a block", found, max });
            }
            at += sum;
            if at > values {
                break;
            }
        }
        if at != values {
            return Err(FormatError::Invalid { what: "lengths in a block", found: at });
        }
        Ok(anchors)
    }

    /// For `VAR`: where the value of row `i` begins in `bytes`.
    #[inline]
    fn start_of(&self, i: usize) -> usize {
        let anchor = self.anchors.get(i / ANCHOR_ROWS).map_or(0, |&at| at as usize);
        let first = i / ANCHOR_ROWS * ANCHOR_ROWS;
        let window = self.bytes.get(first..first + ANCHOR_ROWS).and_then(|w| w.first_chunk());
        let skipped = match (self.unit, window) {
            (1, Some(window)) => sum_of_first(window, i - first),
            _ => {
                let before = self.bytes.get(first * self.unit..i * self.unit).unwrap_or(&[]);
                sum_and_max(before, self.unit).0 as usize
            }
        };
        self.rows * self.unit + anchor + skipped
    }

    /// The value of row `i` is asked for soon; of a `VAR` column what tells where it is.
    #[inline]
    pub(crate) fn prefetch(&self, i: usize) {
        match self.encoding {
            encoding::UNIFORM => prefetch_bytes(self.bytes, i * self.unit, self.unit),
            encoding::VAR => {
                prefetch_byte(self.bytes, i / ANCHOR_ROWS * ANCHOR_ROWS * self.unit);
                prefetch_byte(self.bytes, i * self.unit);
                if let Some(anchor) = self.anchors.get(i / ANCHOR_ROWS) {
                    prefetch(anchor);
                }
            }
            _ => {}
        }
    }

    /// The value of row `i` of a `VAR` column is asked for soon, and it is known by now where it is.
    #[inline]
    pub(crate) fn prefetch_value(&self, i: usize) {
        if self.encoding == encoding::VAR {
            let (start, len) = self.place(i);
            prefetch_bytes(self.bytes, start, len);
        }
    }

    /// For `VAR`: the lengths of `rows`, and where the first one's value begins in `bytes`.
    pub(crate) fn lengths<const W: usize>(&self, rows: Range<usize>) -> (&'a [[u8; W]], usize) {
        let lens = self.bytes.get(rows.start * W..rows.end * W).unwrap_or(&[]);
        // SAFETY: arrays of bytes have no alignment, and the slice is as long as the arrays together.
        let lens = unsafe { std::slice::from_raw_parts(lens.as_ptr().cast::<[u8; W]>(), lens.len() / W) };
        (lens, self.start_of(rows.start))
    }

    /// The value of row `i`; empty if it lies outside the content.
    #[inline]
    pub(crate) fn value(&self, i: usize) -> &'a [u8] {
        let (start, len) = self.place(i);
        self.content().get(start..start + len).unwrap_or(&[])
    }

    /// Appends the value of row `i` after its length of `len_bytes` (at most 4) bytes.
    #[inline]
    pub(crate) fn append(&self, i: usize, len_bytes: usize, out: &mut Vec<u8>) -> Result<(), FormatError> {
        let (start, len) = self.place(i);
        if len > SHORT || start + SHORT > self.bytes.len() || start + len > self.raw {
            let value = self.value(i);
            grow(out, 4 + value.len())?;
            out.extend_from_slice(&(value.len() as u32).to_le_bytes()[..len_bytes]);
            out.extend_from_slice(value);
            return Ok(());
        }
        out.reserve(4 + SHORT);
        // SAFETY: there is room for 4 + SHORT bytes, of which len_bytes + len are kept; SHORT bytes are readable.
        unsafe {
            let at = out.len();
            let to = out.as_mut_ptr().add(at);
            to.cast::<[u8; 4]>().write_unaligned((len as u32).to_le_bytes());
            std::ptr::copy_nonoverlapping(self.bytes.as_ptr().add(start), to.add(len_bytes), SHORT);
            out.set_len(at + len_bytes + len);
        }
        Ok(())
    }

    /// Where the value of row `i` begins, and its length.
    #[inline]
    fn place(&self, i: usize) -> (usize, usize) {
        match self.encoding {
            encoding::CONSTANT => (0, self.unit),
            encoding::UNIFORM => (i * self.unit, self.unit),
            encoding::VAR => self.var_place(i),
            _ => (0, 0),
        }
    }

    /// For `VAR`: where the value of row `i` begins, and its length.
    #[inline]
    fn var_place(&self, i: usize) -> (usize, usize) {
        let len = match (self.unit, self.bytes.get(i * self.unit..)) {
            (1, Some(&[n, ..])) => usize::from(n),
            (2, Some(&[a, b, ..])) => usize::from(u16::from_le_bytes([a, b])),
            (4, Some(&[a, b, c, d, ..])) => u32::from_le_bytes([a, b, c, d]) as usize,
            _ => 0,
        };
        (self.start_of(i), len)
    }
}

/// Checks the lengths in images of the fixed format, which a front end will believe.
pub(crate) fn check_images(layout: &Layout, images: &[u8]) -> Result<(), FormatError> {
    let width = (layout.image_bytes as usize).max(1);
    for column in &layout.columns {
        let ColumnKind::Var { len_bytes, max } = column.kind else {
            continue;
        };
        for image in images.chunks_exact(width) {
            // SAFETY: a validated column's slot lies in the image.
            let len = unsafe { image::load_len(image.as_ptr().add(column.offset as usize), len_bytes) };
            if len > max as usize {
                let (found, max) = (len as u64, u64::from(max));
                return Err(FormatError::TooLong { what: "value in a block", found, max });
            }
        }
    }
    Ok(())
}
