//! An open transaction: what it has written in each tree, and going back to a point of it.
//!
//! Invariants: rolling back to a point aborts every ordinal from there on, in every memtable and run, without touching a
//! row; a transaction that has written stands in the engine's registry until its status word is stored.

use crate::catalog::table::Table;
use crate::core::Core;
use crate::tree::memtable::{Memtable, TxnSlot};
use crate::tree::run::Run;
use crate::tree::Tree;
use crate::txn::redo::{Redo, RedoPoint};
use crate::txn::state::TxnState;
use crate::write::bulk::BulkWriter;
use crate::write::large::{LargeWriter, Share};
use crate::{Error, Result};
use esker_format::{CommitSeq, Record, TableId};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// A transaction with more trees than this finds them by a map.
const FEW_TREES: usize = 8;

/// How a transaction isolates its reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isolation {
    /// A view per statement.
    ReadCommitted,
    /// A view per transaction, opened by its first read.
    RepeatableRead,
}

/// Further properties of a transaction.
#[derive(Debug, Clone, Copy, Default)]
pub struct BeginOptions {
    /// A row that was changed after the view was opened by a plain read is an error to a writer.
    pub snapshot_isolation: bool,
}

/// A point of a transaction to which it can be rolled back.
#[derive(Debug, Clone)]
pub struct Savepoint {
    ordinal: u64,
    small_bytes: usize,
    marks_redo: usize,
    trees: Vec<SavedTree>,
}

impl Default for Savepoint {
    /// Before anything was written.
    fn default() -> Self {
        Savepoint { ordinal: 1, small_bytes: 0, marks_redo: 0, trees: Vec::new() }
    }
}

/// What a transaction had in one tree at a savepoint.
#[derive(Debug, Clone, Copy, Default)]
struct SavedTree {
    live_delta: i64,
    redo: RedoPoint,
    rebuilt: CommitSeq,
}

/// What a transaction has in one tree.
pub(crate) struct TreeTxn {
    pub(crate) table: Arc<Table>,
    pub(crate) tree: Arc<Tree>,
    /// Memtable (by id) and the transaction's place in it.
    pub(crate) slot: (u64, *const TxnSlot),
    pub(crate) ids: Range<u64>,
    pub(crate) reserve: u64,
    pub(crate) bulk: Option<BulkWriter>,
    pub(crate) private: Option<Private>,
    /// What the private memtable takes of the budget of large writes.
    pub(crate) private_share: Share,
    pub(crate) runs: Vec<Arc<Run>>,
    pub(crate) live_delta: i64,
    pub(crate) marks: usize,
    pub(crate) redo: Redo,
    /// The table's, when this was made: it was not emptied since.
    pub(crate) rebuilt: CommitSeq,
}

/// A memtable of one transaction alone: its large updates and deletes, before they become runs.
#[derive(Clone)]
pub(crate) struct Private {
    pub(crate) mem: Arc<Memtable>,
    pub(crate) slot: *const TxnSlot,
}

/// An open transaction: neither prepared nor ended.
pub(crate) struct Txn {
    pub(crate) state: Arc<TxnState>,
    pub(crate) isolation: Isolation,
    pub(crate) options: BeginOptions,
    pub(crate) view: Option<CommitSeq>,
    /// The view was opened by a plain read.
    pub(crate) view_by_read: bool,
    pub(crate) next_ordinal: u64,
    /// Redo of range marks.
    pub(crate) marks_redo: Vec<u8>,
    /// Bytes of small writes.
    pub(crate) small_bytes: usize,
    /// It has become too large for memtable and log: what it writes now goes to private runs, in all its trees.
    pub(crate) large: Option<LargeWriter>,
    pub(crate) trees: Vec<TreeTxn>,
    /// Where they stand, once they are many.
    places: HashMap<TableId, usize>,
    last_tree: usize,
    pub(crate) registered: bool,
    /// Gathered rows were lost to this error: the transaction can only be rolled back.
    pub(crate) broken: Option<(u64, Error)>,
}

// SAFETY: the raw pointers are into memtables that the transaction's state, or `Private`, keeps alive, and a transaction is
// used by one thread at a time.
unsafe impl Send for Txn {}

impl Txn {
    pub(crate) fn new(state: Arc<TxnState>, isolation: Isolation, options: BeginOptions) -> Txn {
        Txn {
            state,
            isolation,
            options,
            view: None,
            view_by_read: false,
            next_ordinal: 1,
            marks_redo: Vec::new(),
            small_bytes: 0,
            large: None,
            trees: Vec::new(),
            places: HashMap::new(),
            last_tree: 0,
            registered: false,
            broken: None,
        }
    }

    /// A plain read has opened its view.
    pub(crate) fn view_opened(&mut self, seq: CommitSeq) {
        self.view = Some(seq);
        self.view_by_read = true;
    }

    /// Takes the next ordinal.
    #[inline]
    pub(crate) fn take_ordinal(&mut self) -> u64 {
        self.next_ordinal += 1;
        self.next_ordinal - 1
    }

    /// The place of a table's tree, made if there is none.
    #[inline]
    pub(crate) fn tree_of(&mut self, core: &Core, table: &Arc<Table>) -> Result<usize> {
        let is = |t: &TreeTxn| Arc::ptr_eq(&t.table, table) && t.rebuilt == table.rebuilt_seq();
        if self.trees.get(self.last_tree).is_some_and(is) {
            return Ok(self.last_tree);
        }
        self.tree_of_slow(core, table)
    }

    #[cold]
    fn tree_of_slow(&mut self, core: &Core, table: &Arc<Table>) -> Result<usize> {
        core.check_writable()?;
        if !self.registered {
            core.register(&self.state);
            self.registered = true;
        }
        let rebuilt = table.rebuilt_seq();
        let tree = table.tree();
        let at = match self.place_of(table) {
            Some(at) if self.trees[at].rebuilt == rebuilt => at,
            // Emptied since. Nobody else sees a temporary table: what was in it is gone, the transaction goes on.
            Some(at) if table.temporary => {
                self.trees[at] = TreeTxn::new(core, table, tree, rebuilt);
                at
            }
            Some(_) => return Err(Error::TableChanged(table.name())),
            None => {
                self.trees.push(TreeTxn::new(core, table, tree, rebuilt));
                self.note_places();
                self.trees.len() - 1
            }
        };
        self.last_tree = at;
        Ok(at)
    }

    /// Where a table's tree stands, if the transaction has written there.
    #[inline]
    pub(crate) fn place_of(&self, table: &Arc<Table>) -> Option<usize> {
        let is = |t: &TreeTxn| Arc::ptr_eq(&t.table, table);
        if self.trees.get(self.last_tree).is_some_and(is) {
            return Some(self.last_tree);
        }
        match self.places.is_empty() {
            true => self.trees.iter().position(is),
            false => self.places.get(&table.id).copied(),
        }
    }

    fn note_places(&mut self) {
        match self.trees.len() {
            n if n <= FEW_TREES => {}
            n if self.places.is_empty() => {
                self.places = (0..n).map(|at| (self.trees[at].table.id, at)).collect();
            }
            n => drop(self.places.insert(self.trees[n - 1].table.id, n - 1)),
        }
    }

    /// Its private memtable of a table.
    pub(crate) fn private_of(&self, table: &Arc<Table>) -> Option<Arc<Memtable>> {
        self.trees[self.place_of(table)?].private.as_ref().map(|p| p.mem.clone())
    }

    /// Bytes of redo.
    pub(crate) fn redo_bytes(&self) -> usize {
        self.marks_redo.len() + self.trees.iter().map(|t| t.redo.len_bytes()).sum::<usize>()
    }

    /// All redo, with `last` at its end: one frame of the log.
    pub(crate) fn frame(&self, last: &Record<'_>) -> Vec<u8> {
        let mut frame = Vec::with_capacity(self.redo_bytes() + 64);
        self.trees.iter().for_each(|t| t.redo.append_to(&mut frame));
        frame.extend_from_slice(&self.marks_redo);
        last.encode(&mut frame);
        frame
    }

    /// This point of it.
    pub(crate) fn savepoint(&self) -> Savepoint {
        let saved = |t: &TreeTxn| SavedTree { live_delta: t.live_delta, redo: t.redo.point(), rebuilt: t.rebuilt };
        Savepoint {
            ordinal: self.next_ordinal,
            small_bytes: self.small_bytes,
            marks_redo: self.marks_redo.len(),
            trees: self.trees.iter().map(saved).collect(),
        }
    }

    /// Has anything changed since `point`?
    pub(crate) fn is_beyond(&self, point: &Savepoint) -> bool {
        self.next_ordinal > point.ordinal
    }

    /// Undoes everything since `point`.
    pub(crate) fn rollback_to(&mut self, core: &Core, point: &Savepoint) {
        self.adopt_moved(false);
        if !self.is_beyond(point) {
            return;
        }
        self.state.abort_ordinals(point.ordinal, self.next_ordinal);
        if self.broken.as_ref().is_some_and(|(first, _)| *first >= point.ordinal) {
            // What was lost is undone.
            self.broken = None;
        }
        self.small_bytes = point.small_bytes;
        self.marks_redo.truncate(point.marks_redo);
        let aborted = self.state.aborted();
        for (i, tree) in self.trees.iter_mut().enumerate() {
            let saved = point.trees.get(i).copied().filter(|s| s.rebuilt == tree.rebuilt).unwrap_or_default();
            tree.live_delta = saved.live_delta;
            tree.redo.truncate(saved.redo, point.ordinal);
            tree.bulk.take_if(|b| b.first_ordinal >= point.ordinal);
            let gone = |r: &Arc<Run>| aborted.covers(r.stats.min_ordinal, r.stats.max_ordinal + 1);
            let (gone, left): (Vec<_>, Vec<_>) = std::mem::take(&mut tree.runs).into_iter().partition(gone);
            tree.runs = left;
            if !gone.is_empty() {
                core.drop_runs(&tree.tree, gone);
            }
        }
        if self.trees.iter().all(|t| t.bulk.is_none() && t.private.is_none()) {
            self.large = None;
        }
    }

    /// Takes over what flushes have moved to private runs: the runs are attached or dropped with the others, the redo of
    /// what they hold goes. `close`: nothing moves from now on.
    pub(crate) fn adopt_moved(&mut self, close: bool) {
        if !self.registered {
            return;
        }
        let moved = {
            let mut moves = self.state.moves.lock();
            moves.closed |= close;
            std::mem::take(&mut moves.list)
        };
        for m in moved {
            if let Some(tree) = self.trees.iter_mut().find(|t| t.tree.id == m.tree) {
                tree.redo.forget(m.mem);
                tree.runs.push(m.run);
            }
        }
    }
}

impl TreeTxn {
    fn new(core: &Core, table: &Arc<Table>, tree: Arc<Tree>, rebuilt: CommitSeq) -> TreeTxn {
        TreeTxn {
            table: table.clone(),
            tree,
            slot: (0, std::ptr::null()),
            ids: 0..0,
            reserve: 1,
            bulk: None,
            private: None,
            private_share: Share::new(&core.large),
            runs: Vec::new(),
            live_delta: 0,
            marks: 0,
            redo: Redo::default(),
            rebuilt,
        }
    }

    pub(crate) fn drop_private(&mut self) {
        self.private = None;
        self.private_share.resize(0);
    }
}
