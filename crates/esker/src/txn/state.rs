//! A transaction's shared face: its identity, its one status word and what flushes moved for it.
//!
//! Invariant: the status word leaves `ACTIVE` once and never changes again.

use crate::lock::LockOwner;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{order, Mutex};
use crate::tree::key::Key;
use crate::tree::memtable::{AnyMemtable, Memtable, TxnSlot};
use crate::tree::run::MovedRun;
use crate::version::{Aborted, OrdinalRanges, ABORTED, ACTIVE};
use crate::Result;
use esker_format::{Lsn, TreeId, TxnId};
use std::sync::{Arc, OnceLock, Weak};

/// What others know of a transaction.
pub(crate) struct TxnState {
    pub(crate) id: TxnId,
    status: AtomicU64,
    /// Set once something was rolled back.
    aborted: OnceLock<Arc<Aborted>>,
    slots: Mutex<Vec<Slot>>,
    /// Where its redo lies in the log once it is prepared; the largest value before.
    logged_at: AtomicU64,
    /// Runs or marks of trees have it as their owner, or had.
    owns_parts: AtomicBool,
    /// What flushes have moved; locked before the state of a tree.
    pub(crate) moves: Mutex<Moves>,
    pub(crate) locks: Arc<LockOwner>,
}

/// The status word's copy in a memtable that has versions of the transaction. Readers may keep a memtable that a flush
/// has taken out of its tree; the transaction does not.
struct Slot {
    /// The memtable's id.
    id: u64,
    mem: Weak<dyn AnyMemtable>,
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
    pub(crate) list: Vec<MovedVersions>,
}

/// All versions that a transaction had in one memtable, in a run of its own.
pub(crate) struct MovedVersions {
    pub(crate) tree: TreeId,
    pub(crate) mem: u64,
    pub(crate) run: MovedRun,
}

impl TxnState {
    pub(crate) fn new(id: TxnId) -> Arc<Self> {
        Arc::new(TxnState {
            id,
            status: AtomicU64::new(ACTIVE),
            aborted: OnceLock::new(),
            slots: Mutex::new(&order::TXN_SLOTS, Vec::new()),
            logged_at: AtomicU64::new(u64::MAX),
            owns_parts: AtomicBool::new(false),
            moves: Mutex::new(&order::TXN_MOVES, Moves::default()),
            locks: LockOwner::new(id),
        })
    }

    /// One that has written nothing becomes another one's, unless somebody knows what it has locked. False: it was not touched.
    pub(crate) fn begins_anew(&mut self, id: TxnId) -> bool {
        let Some(locks) = Arc::get_mut(&mut self.locks) else { return false };
        locks.begins_anew(id);
        self.id = id;
        true
    }

    /// A run or a mark that is its own is about to join a tree: by its session, or under the lock of [`moves`](Self::moves).
    pub(crate) fn joins_a_tree(&self) {
        self.owns_parts.store(true, Ordering::Relaxed);
    }

    /// Has any run or mark of a tree it as its owner? For who comes when nothing joins any more.
    pub(crate) fn owns_parts(&self) -> bool {
        self.owns_parts.load(Ordering::Relaxed)
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
            self.keep_redo(&*mem, at, status);
            at.end(status);
        }
    }

    /// The place of this transaction's status in `mem`, made if there is none. An ended transaction's new place gets
    /// the final status at once.
    pub(crate) fn slot_in<K: Key>(&self, mem: &Arc<Memtable<K>>) -> Result<*const TxnSlot> {
        let mut slots = self.slots.lock();
        if let Some(slot) = slots.iter().find(|s| s.id == mem.id) {
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
                // Now and then: there may be a slot for each of thousands of trees.
                if slots.len().is_power_of_two() {
                    slots.retain(|s| s.mem.strong_count() > 0);
                }
                let id = mem.id;
                let mem: Weak<dyn AnyMemtable> = Arc::downgrade(mem) as _;
                slots.push(Slot { id, mem, at });
            }
            ended => {
                self.keep_redo(&**mem, slot, ended);
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
    fn keep_redo(&self, mem: &dyn AnyMemtable, slot: &TxnSlot, status: u64) {
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
