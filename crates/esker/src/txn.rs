//! A transaction's shared face: its identity, its one status word and its aborted ranges of ordinals.
//!
//! Invariants: the status word leaves `ACTIVE` once and never changes again; a version whose ordinal lies in an
//! aborted range is never visible to anyone, its owner included.

use crate::lock::LockOwner;
use crate::memtable::{Memtable, TxnSlot};
use crate::run::Run;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Mutex, RwLock};
use crate::Result;
use esker_format::{CommitSeq, Lsn, TreeId, TxnId};
use std::sync::{Arc, OnceLock, Weak};

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

    /// Is any ordinal from `least` to `greatest` aborted?
    pub(crate) fn meets(&self, least: u64, greatest: u64) -> bool {
        let i = self.0.partition_point(|r| r.1 <= least);
        self.0.get(i).is_some_and(|r| r.0 <= greatest)
    }

    /// Is all of `[from, to)` aborted?
    pub(crate) fn covers(&self, from: u64, to: u64) -> bool {
        let i = self.0.partition_point(|r| r.1 < to);
        self.0.get(i).is_some_and(|r| r.0 <= from)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The ordinals that a transaction has rolled back: one set, which the transaction and its places in memtables share.
#[derive(Debug)]
pub(crate) struct Aborted(RwLock<Arc<OrdinalRanges>>);

impl Aborted {
    fn new() -> Arc<Aborted> {
        Arc::new(Aborted(RwLock::new("txn.aborted", Arc::default())))
    }

    #[cfg(test)]
    pub(crate) fn of(from: u64, to: u64) -> Arc<Aborted> {
        let aborted = Aborted::new();
        aborted.add(from, to);
        aborted
    }

    pub(crate) fn contains(&self, ordinal: u64) -> bool {
        self.0.read().contains(ordinal)
    }

    /// In place, unless somebody holds what [`ranges`](Self::ranges) gave.
    fn add(&self, from: u64, to: u64) {
        Arc::make_mut(&mut self.0.write()).add(from, to);
    }

    fn ranges(&self) -> Arc<OrdinalRanges> {
        self.0.read().clone()
    }
}

/// What others know of a transaction.
pub(crate) struct TxnState {
    pub(crate) id: TxnId,
    status: AtomicU64,
    /// Set once something was rolled back.
    aborted: OnceLock<Arc<Aborted>>,
    slots: Mutex<Vec<Slot>>,
    /// Where its redo lies in the log once it is prepared; the largest value before.
    logged_at: AtomicU64,
    /// What flushes have moved; locked before the state of a tree.
    pub(crate) moves: Mutex<Moves>,
    pub(crate) locks: Arc<LockOwner>,
}

/// The status word's copy in a memtable that has versions of the transaction. Readers may keep a memtable that a flush
/// has taken out of its tree; the transaction does not.
struct Slot {
    mem: Weak<Memtable>,
    at: *const TxnSlot,
}

// SAFETY: the pointer is into the memtable's arena and used only while `mem` lives; what it points to is atomics.
unsafe impl Send for Slot {}

/// Versions that flushes moved out of memtables into private runs of a transaction that had not ended.
///
/// A move is decided, and shows in the tree, under this lock; so does the session close it: whoever comes second knows.
#[derive(Default)]
pub(crate) struct Moves {
    /// The transaction prepares or ends: nothing moves any more.
    pub(crate) closed: bool,
    /// What its session has not yet taken over.
    pub(crate) list: Vec<Moved>,
}

/// All versions that a transaction had in one memtable, in a run of its own.
pub(crate) struct Moved {
    pub(crate) tree: TreeId,
    pub(crate) mem: u64,
    pub(crate) run: Arc<Run>,
}

impl TxnState {
    pub(crate) fn new(id: TxnId) -> Arc<Self> {
        Arc::new(TxnState {
            id,
            status: AtomicU64::new(ACTIVE),
            aborted: OnceLock::new(),
            slots: Mutex::new("txn.slots", Vec::new()),
            logged_at: AtomicU64::new(u64::MAX),
            moves: Mutex::new("txn.moves", Moves::default()),
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
            let Some(mem) = slot.mem.upgrade() else { continue };
            // SAFETY: see `Slot`.
            let at = unsafe { &*slot.at };
            self.keep_redo(&mem, at, status);
            at.end(status);
        }
    }

    /// The place of this transaction's status in `mem`, made if there is none. An ended transaction's new place gets
    /// the final status at once.
    pub(crate) fn slot_in(&self, mem: &Arc<Memtable>) -> Result<*const TxnSlot> {
        let mut slots = self.slots.lock();
        // The weak handles keep the addresses from being used again.
        if let Some(slot) = slots.iter().find(|s| s.mem.as_ptr() == Arc::as_ptr(mem)) {
            return Ok(slot.at);
        }
        let at = mem.new_slot(self.id)?;
        // SAFETY: just made in `mem`'s arena.
        let slot = unsafe { &*at };
        if let Some(aborted) = self.aborted.get() {
            mem.set_aborted(slot, aborted);
        }
        match self.status() {
            ACTIVE => {
                slots.retain(|s| s.mem.strong_count() > 0);
                slots.push(Slot { mem: Arc::downgrade(mem), at });
            }
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

    /// Where the redo of a prepared transaction lies.
    pub(crate) fn logged_at(&self) -> Lsn {
        Lsn(self.logged_at.load(Ordering::Acquire))
    }

    /// A decision is replayed from the redo that was logged with the preparation: until `mem` is flushed, the log is
    /// needed from there.
    fn keep_redo(&self, mem: &Memtable, slot: &TxnSlot, status: u64) {
        if status != ABORTED {
            mem.also_needs(self.logged_at());
            slot.set_redo_at(self.logged_at());
        }
    }

    pub(crate) fn abort_ordinals(&self, from: u64, to: u64) {
        let aborted = self.aborted.get_or_init(Aborted::new);
        aborted.add(from, to);
        for slot in self.slots.lock().iter() {
            if let Some(mem) = slot.mem.upgrade() {
                // SAFETY: see `Slot`.
                mem.set_aborted(unsafe { &*slot.at }, aborted);
            }
        }
    }

    pub(crate) fn aborted(&self) -> Arc<OrdinalRanges> {
        self.aborted.get().map_or_else(Arc::default, |a| a.ranges())
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
        assert!(r.meets(1, 5) && r.meets(7, 7) && r.meets(8, 10) && r.meets(1, 99));
        assert!(!r.meets(1, 4) && !r.meets(8, 9) && !r.meets(15, 99));
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
