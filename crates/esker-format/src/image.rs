//! Owns access to the slots of a row image through raw pointers. Invariant: nothing outside a column's own slot is read
//! or written, so that any memory of `image_bytes` bytes will do.

use crate::layout::{Column, ColumnKind};

/// Reads 8 bytes, little-endian.
///
/// # Safety
/// `p` points to 8 readable, initialised bytes.
#[inline(always)]
pub(crate) unsafe fn load8(p: *const u8) -> u64 {
    // SAFETY: the caller's promise.
    u64::from_le(unsafe { p.cast::<u64>().read_unaligned() })
}

/// Is the column NULL in the row whose head is at `head`?
///
/// # Safety
/// `head` points to the head bytes of the validated layout that `column` is of.
#[inline(always)]
pub(crate) unsafe fn is_null(column: &Column, head: *const u8) -> bool {
    match column.null {
        // SAFETY: a validated null bit lies in the head.
        Some(null) => unsafe { *head.add(null.byte as usize) & null.mask != 0 },
        None => false,
    }
}

/// Is the column NULL in the row with this head?
pub(crate) fn is_null_in(column: &Column, head: &[u8]) -> bool {
    column.null.is_some_and(|null| head[null.byte as usize] & null.mask != 0)
}

/// Length of a padded value without its trailing pad bytes.
///
/// # Safety
/// `p` points to `width` readable, initialised bytes.
#[inline(always)]
pub(crate) unsafe fn trimmed_len(p: *const u8, width: usize, pad: u8) -> usize {
    let pattern = u64::from_ne_bytes([pad; 8]);
    let mut n = width;
    while n >= 8 {
        // SAFETY: 8 <= n <= width.
        let diff = unsafe { load8(p.add(n - 8)) } ^ pattern;
        if diff != 0 {
            return n - diff.leading_zeros() as usize / 8;
        }
        n -= 8;
    }
    if width >= 8 {
        // Bytes 0..8; those from n on are known to be pad bytes.
        // SAFETY: width >= 8.
        let diff = unsafe { load8(p) } ^ pattern;
        return 8 - diff.leading_zeros() as usize / 8;
    }
    // SAFETY: n <= width.
    while n > 0 && unsafe { *p.add(n - 1) } == pad {
        n -= 1;
    }
    n
}

/// A little-endian number of `bytes` (at most 4) bytes.
///
/// # Safety
/// `p` points to that many readable, initialised bytes.
#[inline(always)]
pub(crate) unsafe fn load_len(p: *const u8, bytes: u8) -> usize {
    // SAFETY: the caller's promise.
    unsafe {
        match bytes {
            1 => usize::from(*p),
            2 => usize::from(u16::from_le_bytes([*p, *p.add(1)])),
            3 => usize::from(*p) | usize::from(*p.add(1)) << 8 | usize::from(*p.add(2)) << 16,
            _ => u32::from_le_bytes([*p, *p.add(1), *p.add(2), *p.add(3)]) as usize,
        }
    }
}

/// Writes a little-endian number of `bytes` (at most 4) bytes.
///
/// # Safety
/// `p` points to that many writable bytes.
#[inline(always)]
pub(crate) unsafe fn store_len(p: *mut u8, bytes: u8, len: usize) {
    let raw = (len as u32).to_le_bytes();
    // SAFETY: the caller's promise.
    unsafe {
        match bytes {
            1 => *p = raw[0],
            2 => p.cast::<[u8; 2]>().write_unaligned([raw[0], raw[1]]),
            3 => p.cast::<[u8; 3]>().write_unaligned([raw[0], raw[1], raw[2]]),
            _ => p.cast::<[u8; 4]>().write_unaligned(raw),
        }
    }
}

/// The stored bytes of a column that is not NULL: pointer and length.
///
/// # Safety
/// `image` points to an initialised image of the validated layout that `column` is of; a blob's pointer is valid for
/// its length.
#[inline(always)]
pub(crate) unsafe fn value_of(column: &Column, image: *const u8) -> (*const u8, usize) {
    // SAFETY: a validated column's slot lies in the image.
    unsafe {
        let slot = image.add(column.offset as usize);
        match column.kind {
            ColumnKind::Fixed { width } => (slot, width as usize),
            ColumnKind::Padded { width, pad } => (slot, trimmed_len(slot, width as usize, pad)),
            ColumnKind::Var { len_bytes, max } => {
                let len = load_len(slot, len_bytes);
                debug_assert!(len <= max as usize, "a var value is longer than its column");
                (slot.add(usize::from(len_bytes)), len.min(max as usize))
            }
            ColumnKind::Blob { len_bytes } => {
                let len = load_len(slot, len_bytes);
                let at = slot.add(usize::from(len_bytes));
                (at.cast::<*const u8>().read_unaligned(), len)
            }
        }
    }
}

/// Writes a value (empty for NULL) to the column's slot. Fixed columns take values of their width, or empty for zeros.
///
/// # Safety
/// `image` points to a writable image of the validated layout that `column` is of; `value` is no longer than the
/// column allows.
pub(crate) unsafe fn put_value(column: &Column, image: *mut u8, value: &[u8]) {
    debug_assert!(value.len() <= column.kind.max_bytes() as usize);
    // SAFETY: a validated column's slot lies in the image, and the value fits it.
    unsafe {
        let slot = image.add(column.offset as usize);
        match column.kind {
            ColumnKind::Fixed { width } => fill_up(slot, width as usize, 0, value),
            ColumnKind::Padded { width, pad } => fill_up(slot, width as usize, pad, value),
            ColumnKind::Var { len_bytes, .. } => {
                store_len(slot, len_bytes, value.len());
                std::ptr::copy_nonoverlapping(value.as_ptr(), slot.add(usize::from(len_bytes)), value.len());
            }
            ColumnKind::Blob { len_bytes } => {
                store_len(slot, len_bytes, value.len());
                let at = slot.add(usize::from(len_bytes)).cast::<*const u8>();
                at.write_unaligned(value.as_ptr());
            }
        }
    }
}

/// Writes a value and fills the rest of `width` bytes with `pad`.
///
/// # Safety
/// `slot` points to `width` writable bytes; the value is no longer.
unsafe fn fill_up(slot: *mut u8, width: usize, pad: u8, value: &[u8]) {
    // SAFETY: the caller's promise.
    unsafe {
        std::ptr::copy_nonoverlapping(value.as_ptr(), slot, value.len());
        std::ptr::write_bytes(slot.add(value.len()), pad, width - value.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trims_every_length_at_every_width() {
        for width in 0..40usize {
            for len in 0..=width {
                let mut slot = vec![b' '; width];
                slot[..len].fill(b'x');
                if len > 2 {
                    slot[1] = b' ';
                }
                assert_eq!(unsafe { trimmed_len(slot.as_ptr(), width, b' ') }, len, "width {width}");
            }
        }
    }
}
