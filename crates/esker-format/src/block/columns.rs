//! Owns the gathering of values into columns: the inner loop of a bulk load. Invariants: a column has one end offset
//! (or one fixed-width value) for each row; between rows its buffer has room for the widest value of the image and a
//! chunk more, so that values are copied in whole chunks and the length alone says where the next one begins.

use super::encoding;
use crate::codec::grow;
use crate::error::FormatError;
use crate::image::{load_len, trimmed_len};
use crate::layout::{Column, ColumnKind};

/// Values up to this width are copied as two overlapping chunks, whatever their length.
pub(crate) const SHORT: usize = 32;

/// Copies exactly `n` bytes; `n` up to [`SHORT`] takes two overlapping chunks, which the same `n` each time makes cheap.
///
/// # Safety
/// `src` is readable and `dst` writable for `n` bytes; they do not overlap.
#[inline(always)]
pub(crate) unsafe fn copy_chunks(src: *const u8, dst: *mut u8, n: usize) {
    use std::ptr::copy_nonoverlapping as copy;
    // SAFETY: every chunk lies in the first n bytes.
    unsafe {
        match n {
            16..=SHORT => {
                copy(src, dst, 16);
                copy(src.add(n - 16), dst.add(n - 16), 16);
            }
            8..16 => {
                copy(src, dst, 8);
                copy(src.add(n - 8), dst.add(n - 8), 8);
            }
            4..8 => {
                copy(src, dst, 4);
                copy(src.add(n - 4), dst.add(n - 4), 4);
            }
            2..4 => {
                copy(src, dst, 2);
                copy(src.add(n - 2), dst.add(n - 2), 2);
            }
            1 => copy(src, dst, 1),
            0 => {}
            _ => copy(src, dst, n),
        }
    }
}

/// The values of one column, one after the other.
pub(crate) struct ColumnBuffer {
    /// What is gathered.
    pub column: Column,
    /// The values.
    data: Vec<u8>,
    /// Where each row's value ends in `data`; empty for fixed columns.
    ends: Vec<u32>,
    /// Room that a row may need: the widest value of the image, and a chunk.
    room: usize,
    /// Null bit, flattened: mask 0 when there is none.
    null_byte: usize,
    null_mask: u8,
}

impl ColumnBuffer {
    /// An empty column.
    pub(crate) fn new(column: Column) -> Self {
        let widest = match column.kind {
            ColumnKind::Blob { .. } => 0,
            kind => kind.max_bytes() as usize,
        };
        ColumnBuffer {
            column,
            data: Vec::new(),
            ends: Vec::new(),
            room: widest + SHORT,
            null_byte: column.null.map_or(0, |n| n.byte as usize),
            null_mask: column.null.map_or(0, |n| n.mask),
        }
    }

    /// Makes room for `rows` more rows' ends.
    pub(crate) fn reserve_rows(&mut self, rows: usize) {
        if !matches!(self.column.kind, ColumnKind::Fixed { .. }) {
            self.ends.reserve(rows);
        }
    }

    /// Makes room for `extra` more bytes.
    #[cold]
    #[inline(never)]
    fn grow(&mut self, extra: usize) {
        self.data.reserve(extra.max(4096));
    }

    /// Appends the column's value of an image and returns its stored length.
    ///
    /// # Safety
    /// `image` points to an image of the layout; there is room in `ends` for one more row.
    #[inline(always)]
    pub(crate) unsafe fn push_image(&mut self, image: *const u8) -> usize {
        if self.data.capacity() - self.data.len() < self.room {
            self.grow(self.room);
        }
        // SAFETY: slot and null byte lie in the image of a validated layout; `room` covers what chunks write; the
        // caller made room in `ends`.
        unsafe {
            if self.null_mask != 0 && *image.add(self.null_byte) & self.null_mask != 0 {
                return self.push_null();
            }
            let slot = image.add(self.column.offset as usize);
            let at = self.data.len();
            let dst = self.data.as_mut_ptr().add(at);
            let len = match self.column.kind {
                ColumnKind::Fixed { width } => {
                    let width = width as usize;
                    copy_chunks(slot, dst, width);
                    self.data.set_len(at + width);
                    return width;
                }
                ColumnKind::Padded { width, pad } => {
                    let width = width as usize;
                    if width <= SHORT {
                        copy_chunks(slot, dst, width);
                        if width >= 8 {
                            trimmed_short(slot, width, pad)
                        } else {
                            trimmed_len(slot, width, pad)
                        }
                    } else {
                        let len = trimmed_len(slot, width, pad);
                        copy_at_least_short(slot, dst, len);
                        len
                    }
                }
                ColumnKind::Var { len_bytes, max } => {
                    let max = max as usize;
                    let value = slot.add(usize::from(len_bytes));
                    let len = load_len(slot, len_bytes);
                    debug_assert!(len <= max, "a var value is longer than its column");
                    let len = len.min(max);
                    if max <= SHORT {
                        copy_chunks(value, dst, max);
                    } else {
                        copy_at_least_short(value, dst, len);
                    }
                    len
                }
                ColumnKind::Blob { len_bytes } => {
                    let len = load_len(slot, len_bytes);
                    if len > 0 {
                        let from = slot.add(usize::from(len_bytes)).cast::<*const u8>().read_unaligned();
                        self.data.extend_from_slice(std::slice::from_raw_parts(from, len));
                    }
                    self.push_end();
                    return len;
                }
            };
            self.data.set_len(at + len);
            self.push_end();
            len
        }
    }

    /// Appends a NULL: zeros for fixed columns, nothing for others.
    #[inline]
    fn push_null(&mut self) -> usize {
        if let ColumnKind::Fixed { width } = self.column.kind {
            self.data.resize(self.data.len() + width as usize, 0);
            return width as usize;
        }
        self.push_end();
        0
    }

    /// Notes where the row just appended ends.
    #[inline(always)]
    fn push_end(&mut self) {
        debug_assert!(self.data.len() <= u32::MAX as usize);
        self.ends.push(self.data.len() as u32);
    }

    /// Appends a value, `None` for NULL and for tombstones, and returns its stored length.
    pub(crate) fn push_value(&mut self, value: Option<&[u8]>) -> usize {
        let Some(value) = value else {
            return self.push_null();
        };
        self.data.extend_from_slice(value);
        if !matches!(self.column.kind, ColumnKind::Fixed { .. }) {
            self.push_end();
        }
        value.len()
    }

    /// Makes room for a long value, so that [`push_value`](Self::push_value) finds it.
    pub(crate) fn make_room(&mut self, value_bytes: usize) -> Result<(), FormatError> {
        grow(&mut self.data, value_bytes)
    }

    /// Forgets the rows, keeps the memory (unless a few large values made it very large).
    pub(crate) fn clear(&mut self) {
        self.data.clear();
        self.ends.clear();
        if self.data.capacity() > 8 << 20 {
            self.data = Vec::new();
        }
    }

    /// Chooses the encoding of the `rows` gathered rows: encoding and unit.
    pub(crate) fn plan(&self, rows: usize) -> (u8, u32) {
        if self.data.is_empty() {
            return (encoding::EMPTY, 0);
        }
        if let ColumnKind::Fixed { width } = self.column.kind {
            return (same_values(&self.data, width as usize), width);
        }
        let (mut start, mut max, mut min) = (0, 0, u32::MAX);
        for &end in &self.ends {
            let len = end - start;
            max = max.max(len);
            min = min.min(len);
            start = end;
        }
        debug_assert_eq!(self.ends.len(), rows);
        match max {
            _ if max == min => (same_values(&self.data, max as usize), max),
            0..=0xff => (encoding::VAR, 1),
            0x100..=0xffff => (encoding::VAR, 2),
            _ => (encoding::VAR, 4),
        }
    }

    /// The values of an encoding without lengths.
    pub(crate) fn plain(&self, (encoding, unit): (u8, u32)) -> &[u8] {
        if encoding == encoding::CONSTANT {
            return &self.data[..unit as usize];
        }
        &self.data
    }

    /// Appends lengths of `width` bytes and the values.
    pub(crate) fn append_var(&self, width: u32, out: &mut Vec<u8>) -> Result<(), FormatError> {
        let mut start = 0;
        let lens = self.ends.iter().map(|&end| {
            let len = end - start;
            start = end;
            len
        });
        grow(out, self.ends.len() * width as usize + self.data.len())?;
        match width {
            1 => out.extend(lens.map(|n| n as u8)),
            2 => lens.for_each(|n| out.extend_from_slice(&(n as u16).to_le_bytes())),
            _ => lens.for_each(|n| out.extend_from_slice(&n.to_le_bytes())),
        }
        out.extend_from_slice(&self.data);
        Ok(())
    }
}

/// `CONSTANT` if all values of `unit` bytes in `data` are the same, else `UNIFORM`.
pub(crate) fn same_values(data: &[u8], unit: usize) -> u8 {
    if data[unit..] == data[..data.len() - unit] {
        encoding::CONSTANT
    } else {
        encoding::UNIFORM
    }
}

/// [`trimmed_len`] for widths of 8 to 32, without a branch that depends on the length: lengths are not predictable.
///
/// # Safety
/// `p` points to `width` readable, initialised bytes.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn trimmed_short(p: *const u8, width: usize, pad: u8) -> usize {
    use std::arch::x86_64::{
        _mm_cmpeq_epi8, _mm_loadl_epi64, _mm_loadu_si128, _mm_movemask_epi8, _mm_set1_epi8, _mm_unpacklo_epi64,
    };
    // SAFETY: SSE2 is part of x86_64; every load lies in the first `width` bytes.
    unsafe {
        let pads = _mm_set1_epi8(pad as i8);
        // A bit for every byte that is not a pad byte.
        let bits = if width >= 16 {
            let low = _mm_cmpeq_epi8(_mm_loadu_si128(p.cast()), pads);
            let high = _mm_cmpeq_epi8(_mm_loadu_si128(p.add(width - 16).cast()), pads);
            let bits = |eq| u64::from(!(_mm_movemask_epi8(eq) as u32) & 0xffff);
            bits(low) | bits(high) << (width - 16)
        } else {
            let both = _mm_unpacklo_epi64(_mm_loadl_epi64(p.cast()), _mm_loadl_epi64(p.add(width - 8).cast()));
            let bits = u64::from(!(_mm_movemask_epi8(_mm_cmpeq_epi8(both, pads)) as u32));
            (bits & 0xff) | (bits >> 8 & 0xff) << (width - 8)
        };
        64 - bits.leading_zeros() as usize
    }
}

/// [`trimmed_len`], where there is no faster way.
///
/// # Safety
/// `p` points to `width` readable, initialised bytes.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
unsafe fn trimmed_short(p: *const u8, width: usize, pad: u8) -> usize {
    // SAFETY: the caller's promise.
    unsafe { trimmed_len(p, width, pad) }
}

/// Copies `len` bytes of a slot that is longer than [`SHORT`]: always that many, more only if there are more.
///
/// # Safety
/// `src` is readable and `dst` writable for `max(len, SHORT)` bytes; they do not overlap.
#[inline(always)]
pub(crate) unsafe fn copy_at_least_short(src: *const u8, dst: *mut u8, len: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        std::ptr::copy_nonoverlapping(src, dst, SHORT);
        if len > SHORT {
            std::ptr::copy_nonoverlapping(src.add(SHORT), dst.add(SHORT), len - SHORT);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_trim_agrees() {
        for width in 8..=SHORT {
            for len in 0..=width {
                let mut slot = vec![0u8; width];
                slot[..len].fill(1);
                slot[..len / 2].fill(0);
                let got = unsafe { (trimmed_short(slot.as_ptr(), width, 0), trimmed_len(slot.as_ptr(), width, 0)) };
                assert_eq!(got, (len, len));
            }
        }
    }

    #[test]
    fn copies_every_length() {
        let src: Vec<u8> = (0..80).collect();
        for n in 0..80 {
            let mut dst = vec![0xee; 81];
            unsafe { copy_chunks(src.as_ptr(), dst.as_mut_ptr(), n) };
            assert_eq!(dst[..n], src[..n]);
            assert!(dst[n..].iter().all(|&b| b == 0xee));
        }
    }
}
