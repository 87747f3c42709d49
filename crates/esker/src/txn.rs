//! A transaction's shared face: its identity, its one status word and its aborted ranges of ordinals.
//!
//! Invariants: the status word leaves `ACTIVE` once and never changes again; a version whose ordinal lies in an
//! aborted range is never visible to anyone, its owner included.

use crate::lock::LockOwner;
use crate::memtable::{Memtable, TxnSlot};
use crate::Result;
use esker_format::{CommitSeq, Lsn, TxnId};
use esker_trace::lock::{Mutex, RwLock};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;

/// Status word: not ended.
pub(crate) const ACTIVE: u64 = 0;
/// Status word: rolled back.
pub(crate) const ABORTED: u64 = u64::MAX;

/// Half-open ranges of ordinals, sorted, disjoint.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct OrdinalRanges(pub(crate) Vec<(u64, u64)>);

impl OrdinalRanges {
    /// Adds `[from, to)`; ranges come with rising ends, a later one may swallow earlier ones.
    pub(crate) fn add(&mut self, from: u64, to: u64) {
        if from >= to {
            return;
        }
        while self.0.last().is_some_and(|l| l.0 >= from) {
            self.0.pop();
        }
        match self.0.last_mut() {
            Some(l) if l.1 >= from => l.1 = to,
            _ => self.0.push((from, to)),
        }
    }

    pub(crate) fn contains(&self, ordinal: u64) -> bool {
        let i = self.0.partition_point(|r| r.1 <= ordinal);
        self.0.get(i).is_some_and(|r| r.0 <= ordinal)
    }

    /// Is all of `[from, to)` aborted?
    pub(crate) fn covers(&self, from: u64, to: u64) -> bool {
        self.0.iter().any(|r| r.0 <= from && to <= r.1)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// What others know of a transaction.
pub(crate) struct TxnState {
    pub(crate) id: TxnId,
    status: AtomicU64,
    has_aborted: AtomicBool,
    aborted: RwLock<Arc<OrdinalRanges>>,
    slots: Mutex<Vec<Slot>>,
    /// Where its redo lies in the log once it is prepared; the largest value before.
    logged_at: AtomicU64,
    pub(crate) locks: Arc<LockOwner>,
}

/// The status word's copy in a memtable that has versions of the transaction.
struct Slot {
    mem: Arc<Memtable>,
    at: *const TxnSlot,
}

// SAFETY: the pointer is into the memtable's arena, which `mem` keeps; what it points to is atomics.
unsafe impl Send for Slot {}

impl TxnState {
    pub(crate) fn new(id: TxnId) -> Arc<Self> {
        Arc::new(TxnState {
            id,
            status: AtomicU64::new(ACTIVE),
            has_aborted: AtomicBool::new(false),
            aborted: RwLock::new("txn.aborted", Arc::default()),
            slots: Mutex::new("txn.slots", Vec::new()),
            logged_at: AtomicU64::new(u64::MAX),
            locks: LockOwner::new(id),
        })
    }

    pub(crate) fn status(&self) -> u64 {
        self.status.load(Ordering::Acquire)
    }

    /// The one store that commits or aborts all that the transaction wrote.
    pub(crate) fn end(&self, status: u64) {
        let old = self.status.swap(status, Ordering::AcqRel);
        assert_eq!(old, ACTIVE, "transaction {} ended twice", self.id);
        for slot in self.slots.lock().drain(..) {
            // SAFETY: see `Slot`.
            let at = unsafe { &*slot.at };
            self.keep_redo(&slot.mem, at, status);
            at.end(status);
        }
    }

    /// The place of this transaction's status in `mem`, made if there is none. An ended transaction's new place gets
    /// the final status at once.
    pub(crate) fn slot_in(&self, mem: &Arc<Memtable>) -> Result<*const TxnSlot> {
        let mut slots = self.slots.lock();
        if let Some(slot) = slots.iter().find(|s| Arc::ptr_eq(&s.mem, mem)) {
            return Ok(slot.at);
        }
        let at = mem.new_slot(self.id)?;
        let aborted = self.aborted();
        // SAFETY: just made in `mem`'s arena.
        let slot = unsafe { &*at };
        if !aborted.is_empty() {
            mem.set_aborted(slot, aborted);
        }
        match self.status() {
            ACTIVE => slots.push(Slot { mem: mem.clone(), at }),
            ended => {
                self.keep_redo(mem, slot, ended);
                slot.end(ended);
            }
        }
        Ok(at)
    }

    /// The transaction is prepared, its redo lies at `lsn`.
    pub(crate) fn set_logged_at(&self, lsn: Lsn) {
        self.logged_at.store(lsn.0, Ordering::Release);
    }

    /// A decision is replayed from the redo that was logged with the preparation: until `mem` is flushed, the log is
    /// needed from there.
    fn keep_redo(&self, mem: &Memtable, slot: &TxnSlot, status: u64) {
        if status != ABORTED {
            let at = Lsn(self.logged_at.load(Ordering::Acquire));
            mem.also_needs(at);
            slot.set_redo_at(at);
        }
    }

    /// The transaction's versions have left `mem`.
    pub(crate) fn forget(&self, mem: &Arc<Memtable>) {
        self.slots.lock().retain(|s| !Arc::ptr_eq(&s.mem, mem));
    }

    pub(crate) fn abort_ordinals(&self, from: u64, to: u64) {
        let mut guard = self.aborted.write();
        let mut ranges = OrdinalRanges::clone(&guard);
        ranges.add(from, to);
        let ranges = Arc::new(ranges);
        *guard = ranges.clone();
        drop(guard);
        self.has_aborted.store(true, Ordering::Release);
        for slot in self.slots.lock().iter() {
            // SAFETY: see `Slot`.
            slot.mem.set_aborted(unsafe { &*slot.at }, ranges.clone());
        }
    }

    pub(crate) fn aborted(&self) -> Arc<OrdinalRanges> {
        if self.has_aborted.load(Ordering::Acquire) {
            self.aborted.read().clone()
        } else {
            Arc::default()
        }
    }
}

/// Who looks, and how far: everything committed up to `seq`, and what `me` wrote.
#[derive(Debug, Clone, Copy)]
pub(crate) struct View {
    pub(crate) seq: CommitSeq,
    pub(crate) me: TxnId,
}

/// Order among versions of one row: own uncommitted ones are newest.
pub(crate) type VersionOrder = (u64, u64);

/// Order of a version under `view` if it can be seen, given its transaction's status word.
pub(crate) fn order_if_visible(view: View, txn: TxnId, status: u64, ordinal: u64) -> Option<VersionOrder> {
    match status {
        ABORTED => None,
        ACTIVE if txn == view.me && view.me != TxnId::ZERO => Some((u64::MAX, ordinal)),
        ACTIVE => None,
        // An own transaction that committed is no longer "me"; compare by sequence.
        seq if seq <= view.seq.0 => Some((seq, ordinal)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_merge_and_swallow() {
        let mut r = OrdinalRanges::default();
        r.add(5, 8);
        r.add(10, 12);
        r.add(11, 15);
        assert_eq!(r.0, vec![(5, 8), (10, 15)]);
        assert!(r.contains(7) && !r.contains(8) && r.contains(14) && !r.contains(15));
        r.add(3, 20);
        assert_eq!(r.0, vec![(3, 20)]);
        assert!(r.covers(4, 20) && !r.covers(2, 5));
    }

    #[test]
    fn visibility_follows_status() {
        let view = View { seq: CommitSeq(10), me: TxnId(7) };
        assert_eq!(order_if_visible(view, TxnId(7), ACTIVE, 3), Some((u64::MAX, 3)));
        assert_eq!(order_if_visible(view, TxnId(8), ACTIVE, 3), None);
        assert_eq!(order_if_visible(view, TxnId(8), 10, 3), Some((10, 3)));
        assert_eq!(order_if_visible(view, TxnId(8), 11, 3), None);
        assert_eq!(order_if_visible(view, TxnId(8), ABORTED, 3), None);
    }
}
