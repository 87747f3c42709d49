//! Owns the decode loops: from a column's stored values to the slots of many row images. Invariants: nothing outside
//! the column's slots is written; a place in the stored bytes is checked before it is read, once a row, so that wrong
//! content gives wrong values and never a wrong access; where whole chunks can be read, they are, and only the last
//! rows of a column take the exact way.

use super::columns::{copy_at_least_short, copy_chunks, SHORT};
use super::encoding;
use super::view::View;
use crate::image::{self, store_len};
use crate::layout::{Column, ColumnKind, Layout};
use crate::mask::ColumnMask;
use std::ops::Range;

/// Where images go.
#[derive(Clone, Copy)]
pub(super) struct Target {
    /// The first one.
    pub out: *mut u8,
    /// From one to the next; negative where they lie the other way round.
    pub stride: isize,
}

impl Target {
    /// The `i`th image.
    ///
    /// # Safety
    /// There are more than `i`, in one piece of memory.
    #[inline(always)]
    unsafe fn image(self, i: usize) -> *mut u8 {
        // SAFETY: the caller's promise.
        unsafe { self.out.offset(i as isize * self.stride) }
    }
}

/// Where the lengths of consecutive values come from.
trait Lengths {
    /// The length of the `i`th value.
    fn at(&self, i: usize) -> usize;
}

/// All values have one length.
struct Same(usize);

impl Lengths for Same {
    #[inline(always)]
    fn at(&self, _: usize) -> usize {
        self.0
    }
}

/// Lengths of one type, little-endian, one after the other.
struct Stored<'a, const W: usize>(&'a [[u8; W]]);

impl<const W: usize> Lengths for Stored<'_, W> {
    #[inline(always)]
    fn at(&self, i: usize) -> usize {
        let raw = &self.0[i];
        let mut le = [0; 8];
        le[..W].copy_from_slice(raw);
        u64::from_le_bytes(le) as usize
    }
}

/// Calls `fast(source, length, slot)` for every row whose value can be read in chunks of `reach` bytes (or its length, if
/// that is more), and writes the others' exactly. Lengths are at most `max`.
///
/// # Safety
/// The column's slots are writable in every image.
#[inline(always)]
unsafe fn each(
    column: &Column,
    source: (&[u8], usize),
    lengths: &impl Lengths,
    rows: usize,
    reach: usize,
    to: Target,
    fast: impl Fn(*const u8, usize, *mut u8),
) {
    let (bytes, mut at) = source;
    let max = column.kind.max_bytes() as usize;
    let offset = column.offset as usize;
    let mut image = to.out;
    for i in 0..rows {
        let stored = lengths.at(i);
        let len = stored.min(max);
        // SAFETY: the place in `bytes` is checked; slots are writable by the caller's promise. The pointer steps past
        // the last image only when it is not used again.
        unsafe {
            if at + reach.max(len) <= bytes.len() {
                fast(bytes.as_ptr().add(at), len, image.add(offset));
            } else {
                image::put_value(column, image, bytes.get(at..at + len).unwrap_or(&[]));
            }
            image = image.wrapping_offset(to.stride);
        }
        at += stored;
    }
}

/// 0xff for bytes of a value, 0 for those behind it: a window into it, moved by the length.
static BYTES_OF_VALUE: [u8; 2 * SHORT] = {
    let mut table = [0; 2 * SHORT];
    let mut i = 0;
    while i < SHORT {
        table[i] = 0xff;
        i += 1;
    }
    table
};

/// Declares a function that writes one chunk of a slot: the value's bytes, and pad bytes from `len` on.
macro_rules! blend {
    ($name:ident, $int:ty) => {
        /// One chunk of a padded slot, at `k` of it.
        ///
        /// # Safety
        /// `src` is readable and `dst` writable at `k` for the chunk; `len` and `k` plus the chunk are at most [`SHORT`].
        #[inline(always)]
        unsafe fn $name(src: *const u8, dst: *mut u8, k: usize, len: usize, pad: u8) {
            let pads = <$int>::from_ne_bytes([pad; size_of::<$int>()]);
            // SAFETY: the caller's promise; the table's window begins at SHORT - len + k, at most SHORT - chunk + SHORT.
            unsafe {
                let keep = BYTES_OF_VALUE.as_ptr().add(SHORT - len + k).cast::<$int>().read_unaligned();
                let value = src.add(k).cast::<$int>().read_unaligned();
                dst.add(k).cast::<$int>().write_unaligned(value & keep | pads & !keep);
            }
        }
    };
}

blend!(blend2, u16);
blend!(blend4, u32);
blend!(blend8, u64);
blend!(blend16, u128);

/// Decodes a padded column.
///
/// # Safety
/// As [`column`].
#[inline(always)]
unsafe fn padded(
    column: &Column,
    (width, pad): (usize, u8),
    source: (&[u8], usize),
    lengths: &impl Lengths,
    rows: usize,
    to: Target,
) {
    // SAFETY: `each` gives places that are readable for `width` (or SHORT) bytes and writable for `width`.
    unsafe {
        match width {
            16..=SHORT => each(column, source, lengths, rows, width, to, |src, len, dst| {
                blend16(src, dst, 0, len, pad);
                blend16(src, dst, width - 16, len, pad);
            }),
            8..16 => each(column, source, lengths, rows, width, to, |src, len, dst| {
                blend8(src, dst, 0, len, pad);
                blend8(src, dst, width - 8, len, pad);
            }),
            4..8 => each(column, source, lengths, rows, width, to, |src, len, dst| {
                blend4(src, dst, 0, len, pad);
                blend4(src, dst, width - 4, len, pad);
            }),
            2..4 => each(column, source, lengths, rows, width, to, |src, len, dst| {
                blend2(src, dst, 0, len, pad);
                blend2(src, dst, width - 2, len, pad);
            }),
            0..2 => each(column, source, lengths, rows, width, to, |src, len, dst| {
                if width == 1 {
                    *dst = if len == 1 { *src } else { pad };
                }
            }),
            _ => each(column, source, lengths, rows, SHORT, to, |src, len, dst| {
                blend16(src, dst, 0, len.min(SHORT), pad);
                blend16(src, dst, 16, len.min(SHORT), pad);
                let done = len.max(SHORT);
                std::ptr::copy_nonoverlapping(src.add(SHORT), dst.add(SHORT), done - SHORT);
                std::ptr::write_bytes(dst.add(done), pad, width - done);
            }),
        }
    }
}

/// Decodes a var column.
///
/// # Safety
/// As [`column`].
#[inline(always)]
unsafe fn var(
    column: &Column,
    (len_bytes, max): (u8, usize),
    source: (&[u8], usize),
    lengths: &impl Lengths,
    rows: usize,
    to: Target,
) {
    let value_at = usize::from(len_bytes);
    // SAFETY: `each` gives places that are readable for `max` (or SHORT) bytes and writable for the slot.
    unsafe {
        macro_rules! short {
            ($chunk:expr) => {
                each(column, source, lengths, rows, max, to, |src, len, dst| {
                    store_len(dst, len_bytes, len);
                    let dst = dst.add(value_at);
                    std::ptr::copy_nonoverlapping(src, dst, $chunk);
                    std::ptr::copy_nonoverlapping(src.add(max - $chunk), dst.add(max - $chunk), $chunk);
                })
            };
        }
        match max {
            16..=SHORT => short!(16),
            8..16 => short!(8),
            4..8 => short!(4),
            2..4 => short!(2),
            0..2 => each(column, source, lengths, rows, max, to, |src, len, dst| {
                store_len(dst, len_bytes, len);
                copy_chunks(src, dst.add(value_at), len);
            }),
            _ => each(column, source, lengths, rows, SHORT, to, |src, len, dst| {
                store_len(dst, len_bytes, len);
                copy_at_least_short(src, dst.add(value_at), len);
            }),
        }
    }
}

/// Decodes a column whose values do not all have the same content.
///
/// # Safety
/// As [`column`].
#[inline(always)]
unsafe fn values(column: &Column, source: (&[u8], usize), lengths: &impl Lengths, rows: usize, to: Target) {
    // SAFETY: the caller's promise.
    unsafe {
        match column.kind {
            ColumnKind::Fixed { width } => {
                let width = width as usize;
                each(column, source, lengths, rows, width, to, |src, _, dst| copy_chunks(src, dst, width));
            }
            ColumnKind::Padded { width, pad } => {
                padded(column, (width as usize, pad), source, lengths, rows, to);
            }
            ColumnKind::Var { len_bytes, max } => {
                var(column, (len_bytes, max as usize), source, lengths, rows, to);
            }
            ColumnKind::Blob { len_bytes } => each(column, source, lengths, rows, 0, to, |src, len, dst| {
                store_len(dst, len_bytes, len);
                dst.add(usize::from(len_bytes)).cast::<*const u8>().write_unaligned(src);
            }),
        }
    }
}

/// Decodes a column of the dynamic format.
///
/// # Safety
/// The images of all rows are writable; the column is of their layout, which is validated.
pub(super) unsafe fn column(column: &Column, view: &View<'_>, rows: Range<usize>, to: Target) {
    let n = rows.len();
    // SAFETY: the caller's promise.
    unsafe {
        match (view.encoding, view.unit) {
            (encoding::VAR, 1) => {
                let (lens, at) = view.lengths::<1>(rows);
                values(column, (view.bytes, at), &Stored(lens), lens.len(), to);
            }
            (encoding::VAR, 2) => {
                let (lens, at) = view.lengths::<2>(rows);
                values(column, (view.bytes, at), &Stored(lens), lens.len(), to);
            }
            (encoding::VAR, _) => {
                let (lens, at) = view.lengths::<4>(rows);
                values(column, (view.bytes, at), &Stored(lens), lens.len(), to);
            }
            (encoding::UNIFORM, unit) => {
                values(column, (view.bytes, rows.start * unit), &Same(unit), n, to);
            }
            _ => repeat(column, view.value(0), n, to),
        }
    }
}

/// Writes one value to the slots of `rows` images.
///
/// # Safety
/// As [`column`].
unsafe fn repeat(column: &Column, value: &[u8], rows: usize, to: Target) {
    let offset = column.offset as usize;
    let used = match column.kind {
        ColumnKind::Var { len_bytes, .. } => usize::from(len_bytes) + value.len(),
        kind => kind.slot_bytes() as usize,
    };
    // SAFETY: the caller's promise; open() bounds the value. The first image serves as pattern for the others.
    unsafe {
        image::put_value(column, to.out, value);
        for i in 1..rows {
            copy_chunks(to.out.add(offset), to.image(i).add(offset), used);
        }
    }
}

/// Writes the heads of `width` bytes.
///
/// # Safety
/// The images of all rows are writable for `width` bytes.
pub(super) unsafe fn heads(view: &View<'_>, rows: Range<usize>, width: usize, to: Target) {
    let step = if view.encoding == encoding::UNIFORM { width } else { 0 };
    for (i, row) in rows.enumerate() {
        let Some(head) = view.bytes.get(row * step..row * step + width) else {
            return;
        };
        // SAFETY: the caller's promise.
        unsafe { copy_chunks(head.as_ptr(), to.image(i), width) };
    }
}

/// Copies images of the fixed format: all of them, or the head and the slots of the columns in `mask`.
///
/// # Safety
/// The images of all rows are writable; the layout is validated.
pub(super) unsafe fn images(layout: &Layout, view: &View<'_>, rows: Range<usize>, mask: &ColumnMask, to: Target) {
    let width = layout.image_bytes as usize;
    let Some(source) = view.content().get(rows.start * width..rows.end * width) else {
        return;
    };
    // SAFETY: source and images have `width` bytes for every row, in which the head and all slots lie.
    unsafe {
        let copy = |offset: usize, n: usize| {
            for i in 0..rows.len() {
                let src = source.as_ptr().add(i * width + offset);
                copy_chunks(src, to.image(i).add(offset), n);
            }
        };
        if mask.is_all() {
            if to.stride == width as isize {
                return std::ptr::copy_nonoverlapping(source.as_ptr(), to.out, source.len());
            }
            return copy(0, width);
        }
        copy(0, layout.head_bytes as usize);
        for (i, column) in layout.columns.iter().enumerate().take(mask.end()) {
            if mask.get(i) {
                copy(column.offset as usize, column.kind.slot_bytes() as usize);
            }
        }
    }
}
