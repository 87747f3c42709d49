//! What a transaction has written in one tree: versions in the shared memtable with their redo, and private runs.
//!
//! Invariant: a private run stands in its tree under the transaction's status word for as long as it is here.

use crate::core::Core;
use crate::tree::memtable::{Change, TxnSlot};
use crate::tree::run::Run;
use crate::tree::stored::Stored;
use crate::tree::{RunHandle, Tree};
use crate::txn::redo::{Redo, RedoPoint};
use crate::txn::state::TxnState;
use crate::upkeep::flush::run_entry;
use crate::version::OrdinalRanges;
use crate::Result;
use esker_base::counters::{count, Counter};
use esker_format::{CommitSeq, RunRef};
use std::sync::Arc;

/// See the module.
pub(crate) struct Written<K: Stored> {
    pub(crate) tree: Arc<Tree<K>>,
    /// Memtable (by id) and the transaction's place in it.
    slot: (u64, *const TxnSlot),
    pub(crate) runs: Vec<Arc<Run<K>>>,
    pub(crate) redo: Redo,
}

impl<K: Stored> Written<K> {
    /// Nothing yet.
    pub(crate) fn new(tree: Arc<Tree<K>>) -> Self {
        Written { tree, slot: (0, std::ptr::null()), runs: Vec::new(), redo: Redo::default() }
    }

    /// Puts a version into the shared memtable, and tells which that is. The key is fresh, or the caller has the lock of
    /// the row.
    pub(crate) fn put(&mut self, state: &TxnState, key: K::Ref<'_>, change: Change<'_>) -> Result<u64> {
        // Held while writing: freezing waits for it.
        let guard = self.tree.state.read();
        let mem = &guard.active;
        if self.slot.0 != mem.id {
            self.slot = (mem.id, state.slot_in(mem)?);
        }
        // SAFETY: the slot is of this memtable, which is the tree's as long as the guard is held; the caller's promise.
        unsafe { mem.put(key, self.slot.1, change)? };
        self.tree.has_something();
        Ok(mem.id)
    }

    /// Lets a sealed private run join the tree under the transaction's status word.
    pub(crate) fn join(&mut self, state: &Arc<TxnState>, run: Arc<Run<K>>) {
        let handle = RunHandle::private(run.clone(), state.clone());
        self.tree.edit(|state| state.add_run(handle));
        self.runs.push(run);
        count(Counter::RunsAttached, 1);
    }

    /// Takes over what a flush moved from a memtable to a private run, which is in the tree already.
    pub(crate) fn adopt(&mut self, mem: u64, run: Arc<Run<K>>) {
        self.redo.forget(mem);
        self.runs.push(run);
    }

    /// Undoes everything since `point`, at which `ordinal` was the next one; `aborted`: all that was rolled back.
    pub(crate) fn rollback_to(&mut self, core: &Core, point: RedoPoint, ordinal: u64, aborted: &OrdinalRanges) {
        self.redo.truncate(point, ordinal);
        let is_gone = |r: &Arc<Run<K>>| aborted.covers(r.stats.min_ordinal, r.stats.max_ordinal + 1);
        let (gone, left): (Vec<_>, Vec<_>) = std::mem::take(&mut self.runs).into_iter().partition(is_gone);
        self.runs = left;
        if !gone.is_empty() {
            core.drop_runs(&self.tree, gone);
        }
    }

    /// The transaction was rolled back: what it has here goes, range marks too if it has any.
    pub(crate) fn give_up(&mut self, core: &Core, has_marks: bool) {
        let runs = std::mem::take(&mut self.runs);
        if !runs.is_empty() || has_marks {
            core.drop_runs(&self.tree, runs);
        }
    }

    /// The runs that join the tree for good when the transaction commits.
    pub(crate) fn attach(&self) -> impl Iterator<Item = RunRef> + '_ {
        let entry = |run: &Arc<Run<K>>| run_entry(&RunHandle::committed(run.clone()), CommitSeq::ZERO);
        self.runs.iter().map(move |run| RunRef { tree: self.tree.id, run: entry(run) })
    }
}
