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

/// The same for the byte that lies so far on, if there is one.
#[inline]
pub(crate) fn prefetch_byte(bytes: &[u8], at: usize) {
    if let Some(byte) = bytes.get(at) {
        prefetch(byte);
    }
}
