//! A region that is handed out in shares, each to an owner of its own; it goes when the last of them does.
//!
//! Invariant: no two shares have a byte in common.

use crate::region::{Account, OutOfMemory, Region};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

/// A region of which any thread may take shares. What was taken is not taken again.
#[derive(Debug)]
pub struct Shares {
    /// Its bytes are reached through its shares alone.
    whole: Arc<Region>,
    /// Everything before it is taken.
    next: AtomicUsize,
}

impl Shares {
    /// With `bytes` bytes, or some more: to the end of what a region of this length takes.
    pub fn new(account: Account, bytes: usize) -> Result<Shares, OutOfMemory> {
        Ok(Shares { whole: Arc::new(Region::new(account, bytes)?), next: AtomicUsize::new(0) })
    }

    /// Bytes of memory that all of it takes.
    pub fn capacity(&self) -> usize {
        self.whole.capacity()
    }

    /// The next `bytes` bytes, of unspecified content; none when fewer are left.
    pub fn take(&self, bytes: usize) -> Option<Share> {
        let fits = |next: usize| next.checked_add(bytes).filter(|end| *end <= self.whole.capacity());
        let start = self.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).ok()?;
        // SAFETY: it lies in the region, as was just checked.
        let place = unsafe { self.whole.base().add(start) };
        Some(Share { place, bytes, _whole: Arc::clone(&self.whole) })
    }
}

/// A share of a region, and its only owner.
#[derive(Debug)]
pub struct Share {
    place: NonNull<u8>,
    bytes: usize,
    /// So that it stays.
    _whole: Arc<Region>,
}

// SAFETY: a share owns its bytes alone, like a Box<[u8]>.
unsafe impl Send for Share {}
// SAFETY: shared access only reads.
unsafe impl Sync for Share {}

impl Deref for Share {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: initialised bytes of a region that is alive, and in no other share; nobody reads or writes the region itself.
        unsafe { std::slice::from_raw_parts(self.place.as_ptr(), self.bytes) }
    }
}

impl DerefMut for Share {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and the share is borrowed for writing.
        unsafe { std::slice::from_raw_parts_mut(self.place.as_ptr(), self.bytes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::region::charged;

    #[test]
    fn shares_are_apart_and_the_region_stays_as_long_as_one_does() {
        // No other test of this process uses it.
        const ACCOUNT: Account = Account::BulkBuffer;
        let before = charged(ACCOUNT);
        let shares = Shares::new(ACCOUNT, 6000).unwrap();
        let all = charged(ACCOUNT) - before;
        assert!(all >= 6000);
        let mut taken: Vec<Share> = std::iter::from_fn(|| shares.take(100)).collect();
        assert_eq!(taken.len() as u64, all / 100);
        assert!(shares.take(usize::MAX).is_none() && shares.take(all as usize % 100 + 1).is_none());
        for (share, i) in taken.iter_mut().zip(0u8..) {
            share.fill(i);
        }
        assert!(taken.iter().zip(0u8..).all(|(share, i)| share.iter().all(|b| *b == i)));
        drop(shares);
        let last = taken.pop();
        drop(taken);
        assert_eq!(charged(ACCOUNT) - before, all);
        drop(last);
        assert_eq!(charged(ACCOUNT), before);
    }

    #[test]
    fn threads_take_what_no_other_took() {
        let shares = Shares::new(Account::Other, 64 << 10).unwrap();
        let taken: Vec<Share> = std::thread::scope(|s| {
            let take = || s.spawn(|| std::iter::from_fn(|| shares.take(64)).collect::<Vec<Share>>());
            [take(), take()].map(|t| t.join().unwrap()).into_iter().flatten().collect()
        });
        let places: std::collections::BTreeSet<usize> = taken.iter().map(|p| p.as_ptr() as usize).collect();
        assert_eq!((taken.len(), places.len()), ((64 << 10) / 64, (64 << 10) / 64));
    }
}
