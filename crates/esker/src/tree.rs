//! A tree: memtables above runs, under one atomically replaced state.
//!
//! Invariants: a reader's state holds all versions committed up to any sequence that was visible when it was taken;
//! a writer puts versions only into the active memtable, while it holds the state's read guard, so that freezing (under
//! the write guard) knows that nothing more comes; a run with an owner is seen as its owner's status word says; runs and
//! marks change only in [`Tree::edit`], which keeps what is derived from them.

pub(crate) mod arena;
pub(crate) mod backward;
pub(crate) mod dead;
pub(crate) mod fences;
mod find;
mod handle;
pub(crate) mod key;
pub(crate) mod levels;
pub(crate) mod looks;
pub(crate) mod marks;
pub(crate) mod memtable;
pub(crate) mod merge_read;
pub(crate) mod near;
pub(crate) mod node;
pub(crate) mod own_keys;
pub(crate) mod private;
pub(crate) mod run;
pub(crate) mod search;
pub(crate) mod standing;
mod state;
pub(crate) mod stored;
pub(crate) mod together;
pub(crate) mod undisputed;
mod walk;

pub(crate) use crate::tree::find::{find, find_in_memory, find_in_run, order_in_block, Found, Place, Seen};
use crate::tree::find::{find_but, LeftOut};
pub(crate) use crate::tree::handle::{RunHandle, RunSeen};
use crate::tree::key::ByRow;
pub(crate) use crate::tree::marks::{RangeMark, SeenMark};
use crate::tree::memtable::Memtable;
use crate::tree::run::health::Health;
pub(crate) use crate::tree::state::{InMemory, InRuns, Stamp, TreeState};
use crate::tree::stored::Stored;
use crate::upkeep::due::Places;
use esker_base::lock::{order, Mutex, RwLock};
use esker_format::{Lsn, RowId, TreeId};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

/// Since when nobody writes to a tree, as far as those have seen who looked.
#[derive(Default)]
pub(crate) struct Rest {
    /// What [`TreeState::written`] was at the last look.
    written: AtomicU64,
    /// By the host's clock, in microseconds.
    since_us: AtomicU64,
}

impl Rest {
    /// Has nobody written for so long? Looks at the tree's `state`.
    pub(crate) fn lasts<K: Stored>(&self, state: &TreeState<K>, time: Duration, now: Duration) -> bool {
        let (written, now_us) = (state.written(), now.as_micros() as u64);
        if self.written.swap(written, Ordering::Relaxed) != written {
            self.since_us.store(now_us, Ordering::Relaxed);
            return false;
        }
        now_us.saturating_sub(self.since_us.load(Ordering::Relaxed)) >= time.as_micros() as u64
    }

    /// The state was changed by who has written nothing.
    pub(crate) fn pass<K: Stored>(&self, state: &TreeState<K>) {
        self.written.store(state.written(), Ordering::Relaxed);
    }
}

/// One tree.
pub(crate) struct Tree<K: Stored = ByRow> {
    pub(crate) id: TreeId,
    /// What its blocks are made and read with.
    pub(crate) shape: K::Shape,
    pub(crate) state: RwLock<Arc<TreeState<K>>>,
    next_row: AtomicU64,
    /// Held by whoever flushes this tree.
    pub(crate) flushing: Mutex<()>,
    /// Held by whoever merges this tree's runs.
    pub(crate) merging: Mutex<()>,
    /// How merges get on with writing what they make.
    pub(crate) merge_health: Health,
    /// How far merging was behind at the last look, in bytes.
    pub(crate) merge_debt_bytes: AtomicU64,
    /// In the state that this edit made there is nothing to merge, whatever the horizon.
    pub(crate) nothing_to_merge: AtomicU64,
    /// Since when nobody writes to it.
    pub(crate) rest: Rest,
    /// Where background rounds find it.
    pub(crate) places: Places,
}

impl<K: Stored> Tree<K> {
    /// An empty tree that begins at `lsn`, with a memtable that nobody else has.
    pub(crate) fn new(id: TreeId, shape: K::Shape, mut memtable: Arc<Memtable<K>>, lsn: Lsn) -> Arc<Self> {
        if let Some(memtable) = Arc::get_mut(&mut memtable) {
            memtable.begin_at(lsn);
        }
        Self::with_state(id, shape, RowId(1), TreeState::new(memtable, lsn))
    }

    pub(crate) fn with_state(id: TreeId, shape: K::Shape, next_row: RowId, mut state: TreeState<K>) -> Arc<Self> {
        state.settle();
        let told = state.told.clone();
        let tree = Arc::new(Tree {
            id,
            shape,
            state: RwLock::new(&order::TREE_STATE, Arc::new(state)),
            next_row: AtomicU64::new(next_row.0.max(1)),
            flushing: Mutex::new(&order::TREE_FLUSHING, ()),
            merging: Mutex::new(&order::TREE_MERGING, ()),
            merge_health: Health::default(),
            merge_debt_bytes: AtomicU64::new(0),
            nothing_to_merge: AtomicU64::new(0),
            rest: Rest::default(),
            places: Places::default(),
        });
        let _ = told.tree.set(Arc::downgrade(&tree));
        tree
    }

    pub(crate) fn snapshot(&self) -> Arc<TreeState<K>> {
        self.state.read().clone()
    }

    /// Has it a newer state than this one, which is one of it?
    pub(crate) fn has_newer_than(&self, state: &Arc<TreeState<K>>) -> bool {
        let now = self.state.read();
        !Arc::ptr_eq(&now, state) && Arc::ptr_eq(&now.told, &state.told)
    }

    /// Replaces the state by what `change` makes of it.
    pub(crate) fn edit<R>(&self, change: impl FnOnce(&mut TreeState<K>) -> R) -> R {
        let mut guard = self.state.write();
        let mut state = TreeState::clone(&guard);
        let result = change(&mut state);
        state.settle();
        *guard = Arc::new(state);
        // Whoever sees this state finds it told.
        self.mark_to_save();
        drop(guard);
        self.has_changed();
        result
    }

    /// Is there nothing to merge until its state changes?
    pub(crate) fn is_settled(&self) -> bool {
        let state = self.snapshot();
        let nothing = state.runs.is_empty() && state.marks.is_empty();
        let at_rest = self.nothing_to_merge.load(Ordering::Relaxed) == state.edits();
        nothing || (at_rest && state.dead_in_runs().is_none() && !state.has_news_of_looks())
    }

    /// Takes `rows` row ids that nobody else gets.
    pub(crate) fn reserve_rows(&self, rows: u64) -> RowId {
        let first = self.next_row.fetch_add(rows, Ordering::SeqCst);
        self.mark_to_save();
        RowId(first)
    }

    pub(crate) fn next_row(&self) -> RowId {
        RowId(self.next_row.load(Ordering::SeqCst))
    }

    /// Row ids up to `row` are taken.
    pub(crate) fn row_seen(&self, row: RowId) {
        self.next_row.fetch_max(row.0.saturating_add(1), Ordering::SeqCst);
        self.mark_to_save();
    }
}
