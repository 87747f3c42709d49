//! Hints to the processor.

/// Asks the processor to bring the cache line at this address in before it is read. Any address is good; a hint, and nothing where
/// the processor is not an x86-64.
#[inline]
pub fn prefetch<T>(at: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a hint, good for any address; every such processor knows it.
    unsafe {
        use std::arch::x86_64::{_mm_prefetch, _MM_HINT_T0};
        _mm_prefetch::<_MM_HINT_T0>(at.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = at;
}

/// What one cache line holds, in bytes.
const LINE: usize = 64;
/// Of more lines the processor brings those behind by itself.
const MOST_LINES: usize = 4;

/// Asks the processor to bring in every cache line of a value before it is read: [`prefetch`] for each of them.
#[inline]
pub fn prefetch_all<T: ?Sized>(what: &T) {
    lines(std::ptr::from_ref(what).cast(), size_of_val(what));
}

/// The same for the byte that lies so far on, if there is one.
#[inline]
pub(crate) fn prefetch_byte(bytes: &[u8], at: usize) {
    if let Some(byte) = bytes.get(at) {
        prefetch(byte);
    }
}

/// The same for so many bytes from there on, or the first of them.
#[inline]
pub(crate) fn prefetch_bytes(bytes: &[u8], at: usize, len: usize) {
    if let Some(byte) = bytes.get(at) {
        lines(byte, len.min(bytes.len() - at).min(MOST_LINES * LINE));
    }
}

#[inline]
fn lines(first: *const u8, bytes: usize) {
    (0..bytes + first.addr() % LINE).step_by(LINE).for_each(|line| prefetch(first.wrapping_add(line)));
}
