//! A session: one caller's transaction, its view, its statements and savepoints.
//!
//! Invariant: a session is used by one thread at a time.

use crate::catalog::auto_increment::AutoIncrement;
use crate::catalog::table::Table;
use crate::core::Core;
use crate::engine::Threads;
use crate::lock::{Parker, WaitHooks, WaitPolicy};
use crate::read::buffer::SpareBuffer;
use crate::tree::stored::Stored;
use crate::tree::{Found, Tree, TreeState};
use crate::txn::activity::Presence;
use crate::txn::decisions::Decision;
use crate::txn::open::{BeginOptions, Isolation, Savepoint, Txn};
use crate::txn::prepared::{self, Ordered};
use crate::txn::state::TxnState;
use crate::txn::views::ViewSlot;
use crate::txn::writers::Inserter;
use crate::version::{VersionOrder, View, ACTIVE};
use crate::work::Working;
use crate::write::AllLocked;
use crate::{Error, Result};
use esker_base::counters::{count, Counter, SessionCounters};
use esker_base::phase::Moment;
use esker_format::{CommitSeq, RowId, TreeId, TxnId};
use esker_memory::{Account, Charge};
use std::sync::Arc;
use std::time::Duration;

/// How far a session's transaction has come.
pub(crate) enum Current {
    /// There is none.
    None,
    /// It reads and writes.
    Open(Box<Txn>),
    /// Everything but the decision is durable.
    Prepared { state: Arc<TxnState>, decision: Arc<Decision<Ordered>> },
    /// `commit_ordered` has decided: commit sees to it that it is carried out, and cleans up.
    Ordered { state: Arc<TxnState>, decision: Arc<Decision<Ordered>> },
}

impl Current {
    pub(crate) fn open(&self) -> Option<&Txn> {
        match self {
            Current::Open(txn) => Some(txn),
            _ => None,
        }
    }

    pub(crate) fn open_mut(&mut self) -> Option<&mut Txn> {
        match self {
            Current::Open(txn) => Some(txn),
            _ => None,
        }
    }

    pub(crate) fn state(&self) -> Option<&Arc<TxnState>> {
        match self {
            Current::None => None,
            Current::Open(txn) => Some(&txn.state),
            Current::Prepared { state, .. } | Current::Ordered { state, .. } => Some(state),
        }
    }
}

/// A row that was read under its lock.
pub(crate) struct FoundLocked {
    pub(crate) tree: TreeId,
    pub(crate) row: RowId,
    /// Its newest version, if that is at hand.
    pub(crate) version: Option<(VersionOrder, Found)>,
}

impl FoundLocked {
    /// One whose version is not at hand.
    pub(crate) fn of(tree: TreeId, row: RowId) -> Self {
        FoundLocked { tree, row, version: None }
    }

    pub(crate) fn is(&self, tree: TreeId, row: RowId) -> bool {
        (self.tree, self.row) == (tree, row)
    }
}

/// A session's open transaction, and what it needs besides.
pub(crate) struct SessionParts<'a> {
    pub(crate) core: &'a Arc<Core>,
    pub(crate) parker: &'a Arc<Parker>,
    pub(crate) scratch: &'a mut Vec<u8>,
    view_slot: &'a Arc<ViewSlot>,
    statement_view: &'a mut Option<CommitSeq>,
    pub(crate) txn: &'a mut Txn,
}

/// One caller of the engine. Its first call begins a transaction at READ COMMITTED, unless [`begin`](Session::begin) has begun one;
/// it ends with [`commit`](Session::commit), [`rollback`](Session::rollback), or with the session, which rolls it back.
///
/// At READ COMMITTED a statement reads what was committed when it began. Whoever does not say where statements begin
/// ([`begin_statement`](Session::begin_statement)) has one that lasts as long as the transaction: he goes on reading what he saw first.
pub struct Session {
    pub(crate) core: Arc<Core>,
    pub(crate) current: Current,
    /// One that has only read: the next one is made of it.
    pub(crate) unused: Option<Box<Txn>>,
    pub(crate) view_slot: Arc<ViewSlot>,
    pub(crate) presence: Arc<Presence>,
    pub(crate) statement_view: Option<CommitSeq>,
    /// When the commit that is under way began, prepare included.
    pub(crate) commit_began: Option<Moment>,
    statement: Savepoint,
    /// It has begun, and neither it nor its transaction was ended.
    pub(crate) in_statement: bool,
    /// It has inserted a row into a table with indexes.
    has_inserted: bool,
    pub(crate) parker: Arc<Parker>,
    pub(crate) wait: WaitPolicy,
    /// Of each tree the lock that was granted last in this statement, if it was not held before: a server may come back to a row after it
    /// has read others of other partitions or tables. In the order of the trees.
    fresh_locks: Vec<(TreeId, RowId)>,
    /// The row that was read last in this statement, under its lock: it is there, as long as nothing was written since.
    pub(crate) found_locked: Option<FoundLocked>,
    /// The rows that the statement is about to delete.
    pub(crate) all_locked: Option<AllLocked>,
    /// Counters of which the statement has the lock.
    pub(crate) counts_alone: Vec<(Arc<Table>, Arc<AutoIncrement>)>,
    pub(crate) hooks: Box<dyn WaitHooks + Send>,
    pub(crate) own_counters: Arc<SessionCounters>,
    /// Its part in the work of tables.
    pub(crate) working: Working,
    pub(crate) scratch: Vec<u8>,
    /// The buffer of its next cursor.
    pub(crate) kept: Arc<SpareBuffer>,
    /// An image of the row that is being changed.
    pub(crate) old_image: Vec<u8>,
    /// The tree of the transaction for which there is a stage.
    pub(crate) staged: Option<usize>,
    /// Of its counters and waits.
    _figures: Charge,
    /// Who writes needs background work, whatever became of the engine's handles. None of a session within a call on one.
    _threads: Option<Arc<Threads>>,
    /// Behind `presence`, and the last that has the core.
    _leaving: Leaving,
}

/// The last session of an engine that is closed lets the folder go.
struct Leaving(Arc<Core>);

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.sessions.leave();
        if self.0.writable.is_closed() {
            self.0.let_go_of_folder();
        }
    }
}

/// Ends what a session is doing, from any thread: its wait for a lock or for a worker, its reading of many rows.
#[derive(Clone)]
pub struct Killer(Arc<Parker>);

impl Killer {
    /// The session's waits for locks and for workers, and its reads, now and until [`Session::clear_kill`], end with [`Error::Interrupted`].
    pub fn kill(&self) {
        self.0.kill();
    }
}

impl Session {
    pub(crate) fn new(core: Arc<Core>, threads: Option<Arc<Threads>>) -> Session {
        let view_slot = core.views.register();
        let counters = Arc::new(SessionCounters::new());
        Session {
            presence: core.sessions.register(&view_slot, &counters),
            view_slot,
            _threads: threads,
            _leaving: Leaving(core.clone()),
            core,
            current: Current::None,
            unused: None,
            statement_view: None,
            commit_began: None,
            statement: Savepoint::default(),
            in_statement: false,
            has_inserted: false,
            parker: Parker::new(),
            fresh_locks: Vec::new(),
            found_locked: None,
            all_locked: None,
            counts_alone: Vec::new(),
            wait: WaitPolicy { timeout: Duration::from_secs(50), nowait: false },
            hooks: Box::new(crate::lock::NoHooks),
            own_counters: counters,
            working: Working::default(),
            scratch: Vec::new(),
            kept: Arc::default(),
            old_image: Vec::new(),
            staged: None,
            _figures: Charge::new(Account::Other, SessionCounters::BYTES),
        }
    }

    /// This session's counters; bind them to the thread that works for it (see `esker_base::counters::bind`).
    pub fn counters(&self) -> Arc<SessionCounters> {
        self.own_counters.clone()
    }

    /// A handle to end this session's waits for locks and workers, and its long reads.
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

    /// Who reads a table or an index from block to block has so many blocks that lie beside each other read by one call, at
    /// most, and no more than the cache has room for. 1: each by itself.
    pub fn set_read_blocks(&mut self, most: u32) {
        self.parker.set_read_blocks(most);
    }

    /// What is called around a wait for a row lock.
    pub fn set_wait_hooks(&mut self, hooks: Box<dyn WaitHooks + Send>) {
        self.hooks = hooks;
    }

    /// Begins a transaction, unless there is one.
    pub fn begin(&mut self, isolation: Isolation, options: BeginOptions) {
        if self.in_transaction() {
            return;
        }
        let id = self.core.ids.new_txn();
        let again = self.unused.take().and_then(|mut txn| txn.begins_anew(id, isolation, options).then_some(txn));
        let txn = again.unwrap_or_else(|| Box::new(Txn::new(TxnState::new(id), isolation, options)));
        self.presence.began(&txn.state.locks, isolation, &*self.core.host);
        self.current = Current::Open(txn);
        self.statement.clear();
        self.fresh_locks.clear();
    }

    /// Is there a transaction, prepared ones included?
    pub fn in_transaction(&self) -> bool {
        !matches!(self.current, Current::None)
    }

    /// Has the transaction written anything?
    pub fn has_written(&self) -> bool {
        match &self.current {
            Current::None => false,
            Current::Open(txn) => txn.registered,
            Current::Prepared { .. } | Current::Ordered { .. } => true,
        }
    }

    /// Has the transaction locked or written rows, those rolled back to a savepoint included?
    pub fn holds_locks(&self) -> bool {
        self.has_written() || self.current.state().is_some_and(|s| s.locks.holds_any())
    }

    /// The transaction's identity.
    pub fn txn_id(&self) -> Option<TxnId> {
        self.current.state().map(|s| s.id)
    }

    /// The open transaction, begun if there is none. Fails for one that is prepared.
    pub(crate) fn txn_mut(&mut self) -> Result<&mut Txn> {
        self.parts().map(|p| p.txn)
    }

    /// The same, with what it needs of the session.
    #[inline]
    pub(crate) fn parts(&mut self) -> Result<SessionParts<'_>> {
        if matches!(self.current, Current::None) {
            self.begin(Isolation::ReadCommitted, BeginOptions::default());
        }
        let Session { core, parker, scratch, view_slot, statement_view, current, .. } = self;
        match current {
            Current::Open(txn) => Ok(SessionParts { core, parker, scratch, view_slot, statement_view, txn }),
            _ => Err(Error::InvalidArgument("a prepared transaction can only be committed or rolled back".into())),
        }
    }

    /// Opens the transaction's view now: START TRANSACTION WITH CONSISTENT SNAPSHOT.
    pub fn take_view(&mut self) {
        let seq = prepared::open_view(&self.core, &self.view_slot);
        count(Counter::Views, 1);
        if let Some(txn) = self.current.open_mut() {
            if txn.isolation == Isolation::RepeatableRead && txn.view.is_none() {
                txn.view_opened(seq);
            }
        }
    }

    /// The view of a plain read.
    pub(crate) fn read_view(&mut self) -> Result<View> {
        let SessionParts { core, view_slot, statement_view, txn, .. } = self.parts()?;
        let me = txn.state.id;
        let kept = match txn.isolation {
            Isolation::RepeatableRead => txn.view,
            Isolation::ReadCommitted => *statement_view,
        };
        if let Some(seq) = kept {
            return Ok(View { seq, me });
        }
        let seq = prepared::open_view(core, view_slot);
        count(Counter::Views, 1);
        match txn.isolation {
            Isolation::RepeatableRead => txn.view_opened(seq),
            Isolation::ReadCommitted => *statement_view = Some(seq),
        }
        Ok(View { seq, me })
    }

    /// Fails for a view that nothing keeps any more: what it sees may be purged. It was one of a statement or transaction that has
    /// ended.
    pub(crate) fn check_kept(&self, view: View) -> Result<()> {
        if self.view_slot.oldest().is_some_and(|oldest| oldest <= view.seq) {
            return Ok(());
        }
        Err(Error::InvalidArgument(
            "the cursor is of a statement or transaction that has ended: open another one".into(),
        ))
    }

    /// Can who reads a state of a tree of this table go on in a newer one, under this view? Not where the own transaction has written in
    /// the table: its changes would show in another order.
    pub(crate) fn can_follow<K: Stored>(
        &self,
        table: &Arc<Table>,
        tree: &Tree<K>,
        state: &Arc<TreeState<K>>,
        view: View,
    ) -> bool {
        let has_written = self.current.open().is_some_and(|txn| txn.in_table(table).is_some());
        tree.has_newer_than(state) && !has_written && self.check_kept(view).is_ok()
    }

    /// The view of a read that locks: everything committed by now. The session's slot keeps it from being purged.
    pub(crate) fn latest_view(&mut self) -> Result<View> {
        let SessionParts { core, view_slot, txn, .. } = self.parts()?;
        Ok(View { seq: prepared::open_view(core, view_slot), me: txn.state.id })
    }

    /// Begins a statement: what [`rollback_statement`](Self::rollback_statement) goes back to. As long as
    /// it goes on, a locking read of another session by an index need not wait for rows that it has just inserted; reads that do not
    /// lock see none of them before they are committed.
    pub fn begin_statement(&mut self) {
        (self.statement_view, self.all_locked) = (None, None);
        self.fresh_locks.clear();
        self.put_deferred();
        match self.current.open() {
            Some(txn) => txn.point_in(&mut self.statement),
            None => self.statement.clear(),
        }
        self.tell_work();
        self.tell_activity(true);
        (self.in_statement, self.has_inserted) = (true, false);
    }

    /// Ends a statement: a READ COMMITTED view is let go, and, where memory is short, what a large write has gathered.
    pub fn end_statement(&mut self) {
        self.in_statement = false;
        self.put_deferred();
        if let Current::Open(txn) = &mut self.current {
            txn.yield_large(&self.core);
        }
        self.found_locked = None;
        self.unlock_counters();
        self.statement_view = None;
        self.tell_work();
        self.tell_activity(false);
        // Rows that were gathered in bulk have redo only once they are read.
        if self.current.open().is_some_and(|txn| txn.large.is_some() || !txn.is_at(&self.statement)) {
            self.tell_redo();
        }
        if self.current.open().is_none_or(|t| t.isolation == Isolation::ReadCommitted || t.view.is_none()) {
            self.view_slot.clear();
        }
    }

    /// Undoes the statement that began last.
    pub fn rollback_statement(&mut self) {
        let point = std::mem::take(&mut self.statement);
        if self.current.open().is_some_and(|t| t.is_beyond(&point)) {
            count(Counter::StatementRollbacks, 1);
        }
        self.rollback_to(&point);
        self.unlock_counters();
        self.statement = point;
    }

    /// Marks this point of the transaction.
    pub fn savepoint(&mut self) -> Savepoint {
        self.put_deferred();
        self.current.open().map_or_else(Savepoint::default, Txn::savepoint)
    }

    /// A row is about to be inserted: may its entries wait for others? Those of a statement's first row do not, as it is mostly the
    /// only one.
    pub(crate) fn may_defer(&mut self) -> bool {
        std::mem::replace(&mut self.has_inserted, true) && self.in_statement
    }

    /// No entries are kept back any more. If that fails the transaction knows, and cannot be committed.
    fn put_deferred(&mut self) {
        if let Current::Open(txn) = &mut self.current {
            let _ = txn.put_deferred();
        }
    }

    /// Undoes everything since `point`. Row locks stay until the transaction ends, as is usual.
    ///
    /// A point of another transaction is none of this one's, and one that was undone itself, by going back to one before it, is none any
    /// more: nothing is undone then, and the transaction cannot be committed.
    pub fn rollback_to(&mut self, point: &Savepoint) {
        self.found_locked = None;
        if let Current::Open(txn) = &mut self.current {
            txn.rollback_to(&self.core, point);
        }
        self.tell_redo();
    }

    /// Takes a lock on a row, waiting as set by [`set_lock_wait`](Self::set_lock_wait).
    pub(crate) fn lock_row(
        &mut self,
        tree: TreeId,
        row: RowId,
        mode: crate::LockMode,
        wait: WaitPolicy,
    ) -> Result<crate::lock::LockOutcome> {
        let owner = self.locker()?;
        self.found_locked = None;
        let outcome = self.core.locks.lock(&owner, &self.parker, tree, row, mode, wait, &*self.hooks);
        let outcome = outcome.map_err(|e| self.lock_failed(e))?;
        let is_fresh = outcome == crate::lock::LockOutcome::Granted;
        match self.fresh_locks.binary_search_by_key(&tree, |lock| lock.0) {
            Ok(at) if is_fresh => self.fresh_locks[at].1 = row,
            Ok(at) => drop(self.fresh_locks.remove(at)),
            Err(at) if is_fresh => self.fresh_locks.insert(at, (tree, row)),
            Err(_) => {}
        }
        Ok(outcome)
    }

    /// Waits until a transaction that inserts into `tree` has ended, for as long as for a row.
    pub(crate) fn wait_for_inserter(&mut self, tree: TreeId, inserter: &Inserter) -> Result<()> {
        let owner = self.locker()?;
        prepared::carry_out(&self.core);
        let ended = self.core.locks.wait_for_end(&owner, &self.parker, &inserter.owner, tree, self.wait, &*self.hooks);
        ended.map_err(|e| self.lock_failed(e))
    }

    /// Waits until a transaction has ended, or has rolled back its change `ordinal` of an entry in the tree, which is of that
    /// row, for as long as for a row.
    pub(crate) fn wait_for_change(&mut self, entry: (TreeId, RowId), txn: TxnId, ordinal: u64) -> Result<()> {
        prepared::carry_out(&self.core);
        let Some(of) = self.core.writers.get(txn) else { return Ok(()) };
        let owner = self.locker()?;
        let stands = || of.status() == ACTIVE && !of.aborted().contains(ordinal);
        let (locks, hooks) = (&self.core.locks, &*self.hooks);
        let gone = locks.wait_for_change(&owner, &self.parker, &of.locks, entry, self.wait, hooks, stands);
        gone.map_err(|e| self.lock_failed(e))
    }

    /// Lets go of the lock on a row that did not match.
    /// Does nothing if the transaction had that lock before: it may have written the row.
    pub fn unlock_row(&mut self, table: &Table, row: RowId) {
        let tree = table.tree_id();
        let Ok(at) = self.fresh_locks.binary_search(&(tree, row)) else { return };
        self.fresh_locks.remove(at);
        if let Some(state) = self.current.state() {
            self.core.locks.unlock_row(&state.locks, tree, row);
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // A session that goes with an open transaction rolls it back; a prepared one stays for its coordinator.
        match self.current {
            Current::Prepared { .. } => self.detach_prepared(),
            _ => drop(self.rollback()),
        }
        self.view_slot.clear();
    }
}
