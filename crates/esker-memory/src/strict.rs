//! Regions for tests, with the feature `strict-memory`: each is a mapping of its own, which nobody can read or write once it is
//! free. So whoever uses what was given back ends the process there and then, and reads no other's bytes; where regions are slots
//! of slabs it mostly finds what was there before.
//!
//! Invariant: an address is not used again before [`KEPT_FREE`] other regions have been freed.

use crate::region::PAGE_BYTES;
use crate::slab::Place;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::ptr::NonNull;

/// The operating system allows some 65,000 mappings.
const KEPT_FREE: usize = 16 << 10;
const FLAGS: libc::c_int = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;

/// Addresses and lengths of those that are free, the oldest first.
static FREE: Mutex<VecDeque<(usize, usize)>> = Mutex::new(VecDeque::new());

pub(crate) fn allocate(bytes: usize) -> Option<(NonNull<u8>, Place)> {
    let bytes = bytes.max(1).checked_next_multiple_of(PAGE_BYTES)?;
    // SAFETY: a new anonymous mapping touches nothing that exists.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, FLAGS, -1, 0) };
    let start = NonNull::new(start.cast()).filter(|_| start != libc::MAP_FAILED)?;
    Some((start, Place::of_its_own(bytes)))
}

pub(crate) fn free(start: NonNull<u8>, place: Place) {
    let (at, bytes) = (start.as_ptr().cast(), place.bytes());
    // SAFETY: a mapping of `allocate`'s that nobody should use any more.
    let out_of_reach = unsafe { libc::mmap(at, bytes, libc::PROT_NONE, FLAGS | libc::MAP_FIXED, -1, 0) };
    assert!(out_of_reach == at, "free memory is put out of reach");
    let mut free = FREE.lock();
    free.push_back((at as usize, bytes));
    if free.len() > KEPT_FREE {
        if let Some((oldest, bytes)) = free.pop_front() {
            // SAFETY: as above; nobody has it.
            unsafe { libc::munmap(oldest as *mut libc::c_void, bytes) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the mapping at an address allows, as `/proc/self/maps` says it: "rw-p".
    fn allowed(at: usize) -> Option<String> {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        maps.lines().find_map(|line| {
            let (range, rest) = line.split_once(' ')?;
            let (from, to) = range.split_once('-')?;
            let [from, to] = [from, to].map(|n| usize::from_str_radix(n, 16).unwrap_or(0));
            (from..to).contains(&at).then(|| rest[..4].to_owned())
        })
    }

    #[test]
    #[cfg_attr(miri, ignore = "makes mappings")]
    fn what_was_given_back_is_out_of_reach_and_not_given_out_again() {
        let (start, place) = allocate(5000).unwrap();
        let at = start.as_ptr() as usize;
        // SAFETY: in the region.
        unsafe { start.as_ptr().write_bytes(7, 5000) };
        assert_eq!((place.bytes(), allowed(at).as_deref()), (8192, Some("rw-p")));
        free(start, place);
        assert_eq!(allowed(at).as_deref(), Some("---p"));
        for _ in 0..100 {
            let (start, place) = allocate(5000).unwrap();
            assert!(start.as_ptr() as usize != at);
            free(start, place);
        }
    }
}
