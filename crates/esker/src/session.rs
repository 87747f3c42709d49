//! A session: one caller's transaction, its view, its statements and savepoints.
//!
//! Invariants: a session is used by one thread at a time; a transaction that has written stands in the engine's
//! registry until its status word is stored; rolling back to a point aborts every ordinal from there on, in every
//! memtable and run, without touching a row.

use crate::catalog::table::Table;
use crate::core::Core;
use crate::lock::{LockOwner, Parker, WaitHooks, WaitPolicy};
use crate::tree::memtable::{Memtable, TxnSlot};
use crate::tree::run::Run;
use crate::tree::Tree;
use crate::txn::activity::Presence;
use crate::txn::redo::{Redo, RedoPoint};
use crate::txn::state::TxnState;
use crate::txn::views::ViewSlot;
use crate::version::View;
use crate::write::bulk::BulkWriter;
use crate::write::large::{LargeWriter, Share};
use crate::{Error, Result};
use esker_base::counters::{count, Counter, SessionCounters};
use esker_format::{CommitSeq, RowId, TableId, TreeId, TxnId};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;

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
#[derive(Debug, Clone, Default)]
pub struct Savepoint {
    ordinal: u64,
    small_bytes: usize,
    marks_redo: usize,
    trees: Vec<SavedTree>,
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

/// An open transaction.
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
    pub(crate) places: HashMap<TableId, usize>,
    pub(crate) last_tree: usize,
    pub(crate) registered: bool,
    pub(crate) prepared: Option<Vec<u8>>,
    /// Gathered rows were lost to this error: the transaction can only be rolled back.
    pub(crate) broken: Option<(u64, Error)>,
    /// `commit_ordered` has run: commit only waits.
    pub(crate) committed: Option<CommitSeq>,
}

/// One caller of the engine.
pub struct Session {
    pub(crate) core: Arc<Core>,
    pub(crate) txn: Option<Box<Txn>>,
    pub(crate) view_slot: Arc<ViewSlot>,
    pub(crate) presence: Arc<Presence>,
    pub(crate) statement_view: Option<CommitSeq>,
    statement: Savepoint,
    pub(crate) parker: Arc<Parker>,
    pub(crate) wait: WaitPolicy,
    /// The lock that was granted last, if it was not held before.
    fresh_lock: Option<(TreeId, RowId)>,
    pub(crate) hooks: Box<dyn WaitHooks + Send>,
    counters: Arc<SessionCounters>,
    pub(crate) scratch: Vec<u8>,
    /// The tree of the transaction for which there is a stage.
    pub(crate) staged: Option<usize>,
}

// SAFETY: the raw pointers of a transaction are into memtables that the transaction's state keeps alive, and a session
// is used by one thread at a time.
unsafe impl Send for Session {}

/// Ends what a session is doing, from any thread: its wait for a lock, its reading of many rows.
#[derive(Clone)]
pub struct Killer(Arc<Parker>);

impl Killer {
    /// The session's lock waits and reads, now and until [`Session::clear_kill`], end with [`Error::Interrupted`].
    pub fn kill(&self) {
        self.0.kill();
    }
}

impl Session {
    pub(crate) fn new(core: Arc<Core>) -> Session {
        let view_slot = core.views.register();
        Session {
            presence: core.sessions.register(&view_slot),
            view_slot,
            core,
            txn: None,
            statement_view: None,
            statement: Savepoint::default(),
            parker: Parker::new(),
            fresh_lock: None,
            wait: WaitPolicy { timeout: Duration::from_secs(50), nowait: false },
            hooks: Box::new(crate::lock::NoHooks),
            counters: Arc::new(SessionCounters::new()),
            scratch: Vec::new(),
            staged: None,
        }
    }

    /// This session's counters; bind them to the thread that works for it (see `esker_base::counters::bind`).
    pub fn counters(&self) -> Arc<SessionCounters> {
        self.counters.clone()
    }

    /// A handle to end this session's lock waits and long reads.
    pub fn killer(&self) -> Killer {
        Killer(self.parker.clone())
    }

    /// Forgets a kill that came while nothing waited: call at the start of a statement.
    pub fn clear_kill(&self) {
        self.parker.clear_kill();
    }

    /// How long row lock requests wait.
    pub fn set_lock_wait(&mut self, timeout: Duration, nowait: bool) {
        self.wait = WaitPolicy { timeout, nowait };
    }

    /// What is called around a wait for a row lock.
    pub fn set_wait_hooks(&mut self, hooks: Box<dyn WaitHooks + Send>) {
        self.hooks = hooks;
    }

    /// Begins a transaction, unless one is open.
    pub fn begin(&mut self, isolation: Isolation, options: BeginOptions) {
        if self.txn.is_some() {
            return;
        }
        let state = TxnState::new(TxnId(self.core.next_txn.fetch_add(1, Ordering::Relaxed)));
        self.presence.began(&state.locks, isolation);
        self.txn = Some(Box::new(Txn {
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
            prepared: None,
            broken: None,
            committed: None,
        }));
        self.statement = Savepoint { ordinal: 1, ..Savepoint::default() };
    }

    /// Is a transaction open?
    pub fn in_transaction(&self) -> bool {
        self.txn.is_some()
    }

    /// Has the open transaction written anything?
    pub fn has_written(&self) -> bool {
        self.txn.as_ref().is_some_and(|t| t.registered)
    }

    /// Has the open transaction locked or written rows, those rolled back to a savepoint included?
    pub fn holds_locks(&self) -> bool {
        self.txn.as_ref().is_some_and(|t| t.registered || t.state.locks.holds_any())
    }

    /// The open transaction's identity.
    pub fn txn_id(&self) -> Option<TxnId> {
        self.txn.as_ref().map(|t| t.state.id)
    }

    pub(crate) fn txn_mut(&mut self) -> Result<&mut Txn> {
        if self.txn.is_none() {
            self.begin(Isolation::ReadCommitted, BeginOptions::default());
        }
        self.txn.as_deref_mut().ok_or_else(|| Error::InvalidArgument("no transaction".into()))
    }

    /// Opens the transaction's view now: START TRANSACTION WITH CONSISTENT SNAPSHOT.
    pub fn take_view(&mut self) {
        let seq = self.core.views.open(&self.view_slot);
        count(Counter::Views, 1);
        if let Some(txn) = self.txn.as_deref_mut() {
            if txn.isolation == Isolation::RepeatableRead && txn.view.is_none() {
                txn.view = Some(seq);
                txn.view_by_read = true;
            }
        }
    }

    /// The view of a plain read.
    pub(crate) fn read_view(&mut self) -> Result<View> {
        let me = self.txn_mut()?.state.id;
        let txn = self.txn_mut()?;
        let kept = match txn.isolation {
            Isolation::RepeatableRead => txn.view,
            Isolation::ReadCommitted => self.statement_view,
        };
        if let Some(seq) = kept {
            return Ok(View { seq, me });
        }
        let seq = self.core.views.open(&self.view_slot);
        count(Counter::Views, 1);
        let txn = self.txn_mut()?;
        match txn.isolation {
            Isolation::RepeatableRead => {
                txn.view = Some(seq);
                txn.view_by_read = true;
            }
            Isolation::ReadCommitted => self.statement_view = Some(seq),
        }
        Ok(View { seq, me })
    }

    /// The view of a read that locks: everything committed by now. The session's slot keeps it from being purged.
    pub(crate) fn latest_view(&mut self) -> Result<View> {
        let me = self.txn_mut()?.state.id;
        Ok(View { seq: self.core.views.open(&self.view_slot), me })
    }

    /// Begins a statement: what [`rollback_statement`](Self::rollback_statement) goes back to.
    pub fn begin_statement(&mut self) {
        self.statement_view = None;
        self.statement = self.savepoint();
        self.tell_activity(true);
    }

    /// Ends a statement: a READ COMMITTED view is let go, and, where memory is short, what a large write has gathered.
    pub fn end_statement(&mut self) {
        self.yield_large();
        self.statement_view = None;
        self.tell_activity(false);
        if self.txn.as_ref().is_none_or(|t| t.isolation == Isolation::ReadCommitted || t.view.is_none()) {
            self.view_slot.clear();
        }
    }

    /// Undoes the statement that began last.
    pub fn rollback_statement(&mut self) {
        let point = std::mem::take(&mut self.statement);
        if self.txn.as_ref().is_some_and(|t| t.next_ordinal > point.ordinal) {
            count(Counter::StatementRollbacks, 1);
        }
        self.rollback_to(&point);
        self.statement = point;
    }

    /// Marks this point of the transaction.
    pub fn savepoint(&mut self) -> Savepoint {
        match self.txn.as_deref() {
            Some(t) => Savepoint {
                ordinal: t.next_ordinal,
                small_bytes: t.small_bytes,
                marks_redo: t.marks_redo.len(),
                trees: t
                    .trees
                    .iter()
                    .map(|t| SavedTree { live_delta: t.live_delta, redo: t.redo.point(), rebuilt: t.rebuilt })
                    .collect(),
            },
            None => Savepoint { ordinal: 1, ..Savepoint::default() },
        }
    }

    /// Undoes everything since `point`. Row locks stay until the transaction ends, as is usual.
    pub fn rollback_to(&mut self, point: &Savepoint) {
        self.adopt_moved(false);
        let Some(txn) = self.txn.as_deref_mut() else {
            return;
        };
        if txn.next_ordinal <= point.ordinal {
            return;
        }
        txn.state.abort_ordinals(point.ordinal, txn.next_ordinal);
        if txn.broken.as_ref().is_some_and(|(first, _)| *first >= point.ordinal) {
            // What was lost is undone.
            txn.broken = None;
        }
        txn.small_bytes = point.small_bytes;
        txn.marks_redo.truncate(point.marks_redo);
        let aborted = txn.state.aborted();
        for (i, tree) in txn.trees.iter_mut().enumerate() {
            let saved = point.trees.get(i).copied().filter(|s| s.rebuilt == tree.rebuilt).unwrap_or_default();
            tree.live_delta = saved.live_delta;
            tree.redo.truncate(saved.redo, point.ordinal);
            tree.bulk.take_if(|b| b.first_ordinal >= point.ordinal);
            let gone = |r: &Arc<Run>| aborted.covers(r.stats.min_ordinal, r.stats.max_ordinal + 1);
            let (gone, left): (Vec<_>, Vec<_>) = std::mem::take(&mut tree.runs).into_iter().partition(gone);
            tree.runs = left;
            if !gone.is_empty() {
                self.core.drop_runs(&tree.tree, gone);
            }
        }
        if txn.trees.iter().all(|t| t.bulk.is_none() && t.private.is_none()) {
            txn.large = None;
        }
    }

    /// Takes over what flushes have moved to private runs: the runs are attached or dropped with the others, the redo of
    /// what they hold goes. `close`: nothing moves from now on.
    pub(crate) fn adopt_moved(&mut self, close: bool) {
        let Some(txn) = self.txn.as_deref_mut().filter(|t| t.registered) else { return };
        let moved = {
            let mut moves = txn.state.moves.lock();
            moves.closed |= close;
            std::mem::take(&mut moves.list)
        };
        for m in moved {
            if let Some(tree) = txn.trees.iter_mut().find(|t| t.tree.id == m.tree) {
                tree.redo.forget(m.mem);
                tree.runs.push(m.run);
            }
        }
    }

    /// Takes a lock on a row, waiting as set by [`set_lock_wait`](Self::set_lock_wait).
    pub(crate) fn lock_row(
        &mut self,
        tree: TreeId,
        row: RowId,
        mode: crate::LockMode,
        wait: WaitPolicy,
    ) -> Result<crate::lock::LockOutcome> {
        let owner = self.txn_mut()?.state.locks.clone();
        let outcome = self.core.locks.lock(&owner, &self.parker, tree, row, mode, wait, &*self.hooks)?;
        self.fresh_lock = (outcome == crate::lock::LockOutcome::Granted).then_some((tree, row));
        Ok(outcome)
    }

    /// Waits until a transaction that inserts into `tree` has ended, for as long as for a row.
    pub(crate) fn wait_for_inserter(&mut self, tree: TreeId, inserter: &Arc<LockOwner>) -> Result<()> {
        let owner = self.txn_mut()?.state.locks.clone();
        Ok(self.core.locks.wait_for_end(&owner, &self.parker, inserter, tree, self.wait, &*self.hooks)?)
    }

    /// Lets go of the lock on a row that did not match.
    /// Does nothing if the transaction had that lock before: it may have written the row.
    pub fn unlock_row(&mut self, table: &Table, row: RowId) {
        let tree = table.tree_id();
        if self.fresh_lock.take_if(|lock| *lock == (tree, row)).is_none() {
            return;
        }
        if let Some(txn) = self.txn.as_deref() {
            self.core.locks.unlock_row(&txn.state.locks, tree, row);
        }
    }

    /// Number of rows that a plain read would see.
    pub fn count_rows(&mut self, table: &Arc<Table>) -> Result<u64> {
        let options = crate::ScanOptions {
            mask: esker_format::ColumnMask::none(table.layout.columns.len()),
            ..Default::default()
        };
        let mut cursor = self.scan(table, options)?;
        cursor.count_rest()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // A session that goes with an open transaction rolls it back; a prepared one stays for its coordinator.
        if self.txn.as_ref().is_some_and(|t| t.prepared.is_some() && t.committed.is_none()) {
            self.detach_prepared();
        } else {
            let _ = self.rollback();
        }
        self.view_slot.clear();
    }
}
