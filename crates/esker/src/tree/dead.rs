//! What readers tell of dead keys that they passed in a row, so that upkeep looks there first: of those that a memtable has,
//! for a flush, which leaves them out; of those that only runs have, for a merge of just their range.
//!
//! Invariants: only keys count that are dead to all who see as far as the reader, so that a flush or a merge rids the tree
//! of them once no view is older; of a range that was told one key at least is in the run that is named, as long as a handle
//! of that run reaches over it, so merging it changes something.

use crate::tree::key::Key;
use crate::tree::looks::Looks;
use crate::tree::stored::Stored;
use crate::tree::{Tree, TreeState};
use esker_base::lock::{order, Mutex};
use esker_format::{CommitSeq, FileId};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

/// Who passes so many dead keys in a row says so.
const MANY_DEAD: u32 = 1000;

/// Keys from `first` to `last` that were dead to a reader, and lay in runs only.
pub(crate) struct DeadRange<K: Key> {
    pub(crate) first: K::Own,
    pub(crate) last: K::Own,
    /// A file in which the first of them is deleted.
    file: FileId,
    /// How far the reader saw.
    pub(crate) seq: CommitSeq,
}

/// See the module. The states of a tree share it.
pub(crate) struct DeadKeys<K: Stored> {
    /// How far the first reader saw who told of dead keys of memtables, or zero.
    in_memory: AtomicU64,
    in_runs: Mutex<Option<Arc<DeadRange<K>>>>,
    pub(super) looks: Looks<K>,
    /// The number of the edit that made the newest state.
    pub(super) newest_edit: AtomicU64,
    /// Whose states these are.
    pub(super) tree: OnceLock<Weak<Tree<K>>>,
}

impl<K: Stored> Default for DeadKeys<K> {
    fn default() -> Self {
        DeadKeys {
            in_memory: AtomicU64::new(0),
            in_runs: Mutex::new(&order::TREE_DEAD_IN_RUNS, None),
            looks: Looks::default(),
            newest_edit: AtomicU64::new(0),
            tree: OnceLock::new(),
        }
    }
}

impl<K: Stored> TreeState<K> {
    /// A reader that saw so far passed many dead keys of memtables in a row.
    fn tell_dead_in_memory(&self, seq: CommitSeq) {
        let _ = self.told.in_memory.compare_exchange(0, seq.0, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Did readers pass many dead keys of memtables that nobody needs under this horizon?
    pub(crate) fn dead_wants_flush(&self, horizon: CommitSeq) -> bool {
        let told = self.told.in_memory.load(Ordering::Relaxed);
        (1..=horizon.0).contains(&told) && self.memtables().any(|m| !m.is_empty())
    }

    /// The memtable of which readers told is about to be flushed.
    pub(crate) fn forget_dead_in_memory(&self) {
        self.told.in_memory.store(0, Ordering::Relaxed);
    }

    /// A reader passed many dead keys of runs in a row. What was told before comes first.
    fn tell_dead_in_runs(&self, range: DeadRange<K>) {
        let mut told = self.told.in_runs.lock();
        if told.is_none() {
            *told = Some(Arc::new(range));
            drop(told);
            if let Some(tree) = self.told.tree.get().and_then(Weak::upgrade) {
                tree.has_changed();
            }
        }
    }

    /// The range of dead keys that a reader told of. Forgets one that a merge has taken since.
    pub(crate) fn dead_in_runs(&self) -> Option<Arc<DeadRange<K>>> {
        let told = self.told.in_runs.lock().clone()?;
        if self.runs_at(K::lend(&told.first)).any(|h| h.run.file_id == told.file) {
            return Some(told);
        }
        self.forget_dead_in_runs(&told);
        None
    }

    /// Nothing is to be done for this range now: a reader that passes it again tells of it again.
    pub(crate) fn forget_dead_in_runs(&self, range: &Arc<DeadRange<K>>) {
        self.told.in_runs.lock().take_if(|told| Arc::ptr_eq(told, range));
    }
}

/// The dead keys that a reader has passed since the last one that it gave out.
pub(super) struct Passed<K: Key> {
    in_memory: u32,
    in_runs: u32,
    /// The least of those of runs, with a file in which it is deleted.
    first: Option<(K::Own, FileId)>,
    /// The greatest of them.
    last: K::Room,
}

impl<K: Stored> Passed<K> {
    pub(super) fn new() -> Self {
        Passed { in_memory: 0, in_runs: 0, first: None, last: K::Room::default() }
    }

    /// A dead key that a memtable has.
    pub(super) fn in_memory(&mut self, state: &TreeState<K>, seq: CommitSeq) {
        self.in_memory += 1;
        if self.in_memory == MANY_DEAD {
            state.tell_dead_in_memory(seq);
        }
    }

    /// A dead key that only runs have.
    pub(super) fn in_runs(&mut self, key: K::Ref<'_>, file: FileId) {
        self.in_runs += 1;
        // Who reads backward passes them in pieces, each of which is read forward.
        if self.first.is_none() || K::cmp(key, K::in_room(&self.last)).is_gt() {
            K::put(&mut self.last, key);
        }
        if self.first.as_ref().is_none_or(|(first, _)| K::cmp(key, K::lend(first)).is_lt()) {
            self.first = Some((K::own(key), file));
        }
    }

    /// There come no more, or one that is not.
    pub(super) fn end(&mut self, state: &TreeState<K>, seq: CommitSeq) {
        let many = std::mem::take(&mut self.in_runs) >= MANY_DEAD;
        self.in_memory = 0;
        if let Some((first, file)) = self.first.take().filter(|_| many) {
            let last = K::own(K::in_room(&self.last));
            state.tell_dead_in_runs(DeadRange { first, last, file, seq });
        }
    }
}
