//! A region that is handed out in parts, each to an owner of its own; it goes when the last of them does.
//!
//! Invariant: no two parts have a byte in common.

use crate::region::{Account, OutOfMemory, Region};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

/// A region of which any thread may take parts. What was taken is not taken again.
#[derive(Debug)]
pub struct Parts {
    /// Its bytes are reached through its parts alone.
    whole: Arc<Region>,
    bytes: usize,
    /// Everything before it is taken, and behind it too if it is beyond the end.
    next: AtomicUsize,
}

impl Parts {
    /// With `bytes` bytes, or some more: to the end of what a region of this length takes.
    pub fn new(account: Account, bytes: usize) -> Result<Parts, OutOfMemory> {
        let whole = Arc::new(Region::new(account, bytes)?);
        Ok(Parts { bytes: whole.capacity(), whole, next: AtomicUsize::new(0) })
    }

    /// The next `bytes` bytes, of unspecified content; none when fewer are left.
    pub fn take(&self, bytes: usize) -> Option<Part> {
        let fits = |next: usize| next.checked_add(bytes).filter(|end| *end <= self.bytes);
        let start = self.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).ok()?;
        // SAFETY: it lies in the region, as was just checked.
        let place = unsafe { self.whole.base().add(start) };
        Some(Part { place, bytes, _whole: Arc::clone(&self.whole) })
    }
}

/// A part of a region, and its only owner.
#[derive(Debug)]
pub struct Part {
    place: NonNull<u8>,
    bytes: usize,
    /// So that it stays.
    _whole: Arc<Region>,
}

// SAFETY: a part owns its bytes alone, like a Box<[u8]>.
unsafe impl Send for Part {}
// SAFETY: shared access only reads.
unsafe impl Sync for Part {}

impl Deref for Part {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: initialised bytes of a region that is alive, and in no other part; nobody reads or writes the region itself.
        unsafe { std::slice::from_raw_parts(self.place.as_ptr(), self.bytes) }
    }
}

impl DerefMut for Part {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and the part is borrowed for writing.
        unsafe { std::slice::from_raw_parts_mut(self.place.as_ptr(), self.bytes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::region::charged;

    #[test]
    fn parts_are_apart_and_the_region_stays_as_long_as_one_does() {
        let before = charged(Account::Cursor);
        let parts = Parts::new(Account::Cursor, 6000).unwrap();
        let all = charged(Account::Cursor) - before;
        assert!(all >= 6000);
        let mut taken: Vec<Part> = std::iter::from_fn(|| parts.take(100)).collect();
        assert_eq!(taken.len() as u64, all / 100);
        assert!(parts.take(usize::MAX).is_none() && parts.take(all as usize % 100 + 1).is_none());
        for (part, i) in taken.iter_mut().zip(0u8..) {
            part.fill(i);
        }
        assert!(taken.iter().zip(0u8..).all(|(part, i)| part.iter().all(|b| *b == i)));
        drop(parts);
        let last = taken.pop();
        drop(taken);
        assert_eq!(charged(Account::Cursor) - before, all);
        drop(last);
        assert_eq!(charged(Account::Cursor), before);
    }

    #[test]
    fn threads_take_what_no_other_took() {
        let parts = Parts::new(Account::Other, 64 << 10).unwrap();
        let taken: Vec<Part> = std::thread::scope(|s| {
            let take = || s.spawn(|| std::iter::from_fn(|| parts.take(64)).collect::<Vec<Part>>());
            [take(), take()].map(|t| t.join().unwrap()).into_iter().flatten().collect()
        });
        let places: std::collections::BTreeSet<usize> = taken.iter().map(|p| p.as_ptr() as usize).collect();
        assert_eq!((taken.len(), places.len()), ((64 << 10) / 64, (64 << 10) / 64));
    }
}
