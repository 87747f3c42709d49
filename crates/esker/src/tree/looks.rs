//! What readers tell of keys for which they looked into more than one run, or into a memtable beside others. Who looks into one
//! run alone looks once; what is at hand from the key before, and what open transactions have, does not count; a row whose places
//! were searched beforehand counts as one that is not at hand. A flush, or a merge, costs bytes once and saves a look each time: so
//! it is made once looks have paid for it, however little there is to flush or to merge. Else a few rows that somebody changed and
//! everybody reads would be looked for everywhere for as long as nothing else is changed.
//!
//! Invariant: looks that something was paid with are forgotten, so that flushing and merging for readers end when they do.

use crate::tree::key::Key;
use crate::tree::stored::Stored;
use crate::tree::TreeState;
use esker_base::lock::{order, Mutex};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Weak;
use std::time::Duration;

/// What a look pays for, in bytes that upkeep writes, if the tree is at rest: about as much as is written in the time that it
/// took. So reading and upkeep together cost at most twice as much as if it were known beforehand what is read.
pub(crate) const LOOK_BYTES: u64 = 256;
/// The same while others write to it, since what is merged then will not be the last.
pub(crate) const BUSY_LOOK_BYTES: u64 = 32;
/// A tree to which nothing was written for so long is at rest, as far as readers wait for it.
pub(crate) const READ_REST: Duration = Duration::from_secs(1);
/// Upkeep is told of so many looks into runs, and whenever they have doubled since.
pub(crate) const TOLD_FIRST: u64 = 256;

/// Those of all readers of a tree.
pub(crate) struct Looks<K: Key> {
    /// Looks into more runs than one of each key.
    in_runs: AtomicU64,
    /// Looks into memtables.
    in_memory: AtomicU64,
    /// Upkeep was told since it looked last.
    news: AtomicBool,
    /// One of the keys.
    at: Mutex<Option<K::Own>>,
}

impl<K: Key> Default for Looks<K> {
    fn default() -> Self {
        let at = Mutex::new(&order::TREE_LOOKS, None);
        Looks { in_runs: AtomicU64::new(0), in_memory: AtomicU64::new(0), news: AtomicBool::new(false), at }
    }
}

/// Those of one reading.
pub(super) struct OwnLooks<K: Key> {
    in_runs: u64,
    in_memory: u64,
    /// The first key that was looked for in several runs.
    at: Option<K::Own>,
}

impl<K: Key> Default for OwnLooks<K> {
    fn default() -> Self {
        OwnLooks { in_runs: 0, in_memory: 0, at: None }
    }
}

impl<K: Stored> OwnLooks<K> {
    /// A key was looked for in so many runs and memtables.
    #[inline]
    pub(super) fn add(&mut self, runs: u64, memtables: u64, key: K::Ref<'_>) {
        // One is enough, and a memtable alone is as good.
        self.in_memory += memtables.min((runs + memtables).saturating_sub(1));
        if runs > 1 {
            self.in_runs += runs - 1;
            if self.at.is_none() {
                self.at = Some(K::own(key));
            }
        }
    }

    /// The reading is over, for now.
    pub(super) fn tell(&mut self, state: &TreeState<K>) {
        if self.in_memory > 0 {
            state.told.looks.in_memory.fetch_add(std::mem::take(&mut self.in_memory), Ordering::Relaxed);
        }
        if let Some(at) = self.at.take() {
            state.tell_looks_in_runs(std::mem::take(&mut self.in_runs), at);
        }
    }
}

impl<K: Stored> TreeState<K> {
    fn tell_looks_in_runs(&self, looks: u64, at: K::Own) {
        let told = &self.told.looks;
        let before = told.in_runs.fetch_add(looks, Ordering::Relaxed);
        let after = before + looks;
        if after < TOLD_FIRST || (before >= TOLD_FIRST && before.ilog2() == after.ilog2()) {
            return;
        }
        *told.at.lock() = Some(at);
        told.news.store(true, Ordering::SeqCst);
        if let Some(tree) = self.told.tree.get().and_then(Weak::upgrade) {
            tree.has_changed();
        }
    }

    /// Were there many more looks into runs since this was asked last?
    pub(crate) fn take_news_of_looks(&self) -> bool {
        self.told.looks.news.swap(false, Ordering::SeqCst)
    }

    /// The same, which will be asked again.
    pub(crate) fn has_news_of_looks(&self) -> bool {
        self.told.looks.news.load(Ordering::SeqCst)
    }

    /// How many bytes readers of a tree at rest have paid a flush for.
    pub(crate) fn flush_paid_by_looks(&self) -> u64 {
        self.told.looks.in_memory.load(Ordering::Relaxed).saturating_mul(LOOK_BYTES)
    }

    /// How many bytes readers have paid a merge for, and around which key.
    pub(crate) fn merge_paid_by_looks(&self, at_rest: bool) -> Option<(u64, K::Own)> {
        let at = self.told.looks.at.lock().clone()?;
        let look_bytes = if at_rest { LOOK_BYTES } else { BUSY_LOOK_BYTES };
        Some((self.told.looks.in_runs.load(Ordering::Relaxed).saturating_mul(look_bytes), at))
    }

    /// They get what they have paid a flush for.
    pub(crate) fn forget_looks_in_memory(&self) {
        self.told.looks.in_memory.store(0, Ordering::Relaxed);
    }

    /// They have got what they paid a merge for, or there is nothing to be had.
    pub(crate) fn forget_looks_in_runs(&self) {
        let told = &self.told.looks;
        told.in_runs.store(0, Ordering::Relaxed);
        *told.at.lock() = None;
    }
}
