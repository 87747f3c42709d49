//! Transactions between prepare and decision: everything but the decision is durable. A session decides, or whoever has the
//! XID.
//!
//! A session that has prepared decides by [`Decisions`](crate::txn::decisions::Decisions), which fixes the order and does nothing
//! else; whoever opens a view after that carries it out, or whose decision it is. Order of carrying out: its record into the log's
//! memory, the status word, visibility, all under the commit lock; all else is left to whoever has it then ([`Decided`]): what it
//! made is settled, its locks are released. Of a rollback: its record, the status word, locks; files go once the record is durable.
//! Invariants: one that is committed leaves the list under the commit lock: a checkpoint logs it again, or finds the decision in the
//! log. A view that is opened after a decision sees it; locks are released, and anybody is answered, only after it shows.

use crate::catalog::table::{with_tree, Table, Trees};
use crate::core::Core;
use crate::tree::stored::Stored;
use crate::tree::{RunHandle, Tree};
use crate::txn::commit;
use crate::txn::open::TableTxn;
use crate::txn::state::TxnState;
use crate::txn::views::ViewSlot;
use crate::upkeep::discard;
use crate::version::ABORTED;
use crate::Result;
use esker_base::counters::{count, Counter};
use esker_base::lock::MutexGuard;
use esker_base::phase::{CommitPhase, Moment};
use esker_base::WaitEvent;
use esker_format::{CommitSeq, Record, TxnId};
use esker_wal::Committer;
use std::sync::{Arc, OnceLock};

/// A transaction between prepare and decision.
pub(crate) struct Prepared {
    pub(crate) state: Arc<TxnState>,
    /// Its redo with the prepare record, to be logged again when the log moves on.
    pub(crate) redo: Vec<u8>,
    pub(crate) tables: Vec<PreparedTable>,
    /// Space in the log for the decision.
    pub(crate) credit: esker_wal::Credit,
    /// No session holds it.
    pub(crate) detached: bool,
    /// As what it waited for the log.
    pub(crate) who: Committer,
}

impl Prepared {
    /// Is it of this identity, if one is wanted? Once others have decided a session's, another one may be prepared under its XID.
    pub(crate) fn is(&self, of: Option<TxnId>) -> bool {
        of.is_none_or(|txn| self.state.id == txn)
    }
}

/// A table that a prepared transaction has written in.
pub(crate) struct PreparedTable {
    pub(crate) table: Arc<Table>,
    /// As they were then.
    pub(crate) trees: Arc<Trees>,
}

impl PreparedTable {
    pub(crate) fn of(t: &TableTxn) -> Self {
        PreparedTable { table: t.table.clone(), trees: t.trees.clone() }
    }
}

/// What `commit_ordered` decides: that this transaction is committed.
pub(crate) struct Ordered {
    txn: TxnId,
    pub(crate) xid: Vec<u8>,
    /// Once it is carried out; not if others have decided before.
    pub(crate) done: OnceLock<Decided>,
}

impl Ordered {
    pub(crate) fn new(txn: TxnId, xid: Vec<u8>) -> Self {
        Ordered { txn, xid, done: OnceLock::new() }
    }
}

/// One that is committed and visible. What is left of it is [let go](Decided::let_go) where nobody waits for it.
pub(crate) struct Decided {
    pub(crate) state: Arc<TxnState>,
    tables: Vec<PreparedTable>,
    /// Freed with it.
    _redo: Vec<u8>,
    seq: CommitSeq,
}

impl Decided {
    /// Settles what it made, and releases its locks.
    pub(crate) fn let_go(&self, core: &Core) {
        for t in &self.tables {
            t.table.touched(core.host.unix().as_secs());
            let trees = t.trees.all();
            trees.for_each(|tree| with_tree!(tree, tree => commit::settle(core, &tree, &self.state, self.seq)));
        }
        let_go(core, &self.state);
        count(Counter::Commits, 1);
    }
}

/// Opens a view: what was decided before shows in it.
pub(crate) fn open_view(core: &Core, slot: &ViewSlot) -> CommitSeq {
    carry_out(core);
    core.views.open(slot)
}

/// Returns when all that was decided before is visible.
pub(crate) fn carry_out(core: &Core) {
    if core.decisions.any_open() {
        drop(lock_commits(core));
    }
}

/// Takes the commit lock. What was decided before is carried out by then: it stands in the log before whatever is appended under
/// the lock, is visible, and prepared no more.
pub(crate) fn lock_commits(core: &Core) -> MutexGuard<'_, ()> {
    let lock = core.commit_lock.lock_told(WaitEvent::CommitLock);
    if core.decisions.any_open() {
        let stop = StopOnPanic(core);
        core.decisions.carry_out(|ordered| {
            #[cfg(test)]
            crate::tests::hooks::reached("a decision is carried out");
            if let Some(decided) = decide(core, &ordered.xid, Some(ordered.txn)) {
                let is_first = ordered.done.set(decided).is_ok();
                debug_assert!(is_first, "a decision was carried out twice");
            }
        });
        std::mem::forget(stop);
    }
    lock
}

/// Stops writing, the commit lock still held, if decisions are lost by a panic: what the log then has decides no request. Whoever is
/// done forgets it: the thread may be in another panic already, that of a program whose session goes with it.
struct StopOnPanic<'a>(&'a Core);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        self.0.writable.poison("a panic while a decision was carried out");
    }
}

/// What is prepared under this XID is taken away, if it is [`of`](Prepared::is) this identity.
fn take(core: &Core, xid: &[u8], of: Option<TxnId>) -> Option<Prepared> {
    let mut prepared = core.prepared.lock();
    let is_meant = prepared.get(xid).is_some_and(|p| p.is(of));
    is_meant.then(|| prepared.remove(xid)).flatten()
}

/// Commits what was prepared, under the commit lock; `of`: see [`take`].
fn decide(core: &Core, xid: &[u8], of: Option<TxnId>) -> Option<Decided> {
    let mut record = Vec::with_capacity(commit::DECISION_BYTES);
    // Taken away only under the commit lock: a checkpoint logs it again, or finds the decision in the log.
    let Prepared { state, tables, credit, redo, who, .. } = take(core, xid, of)?;
    Record::CommitPrepared { txn: state.id }.encode(&mut record);
    let appended = core.wal.append_reserved(credit, &record);
    let seq = CommitSeq(appended.lsn.0);
    state.end(seq.0);
    core.views.publish(seq, state.status());
    core.wal.ended(who);
    Some(Decided { state, tables, _redo: redo, seq })
}

/// Commits a prepared transaction by its XID, and `of` this identity, if one is wanted; false if there is none. Durable on return, as
/// configured.
pub(crate) fn commit(core: &Core, xid: &[u8], of: Option<TxnId>) -> Result<bool> {
    // Once writing has stopped no decision becomes durable, also where nobody waits for that.
    core.writable.check()?;
    let turn = Moment::now();
    let decided = {
        let _commit = lock_commits(core);
        decide(core, xid, of)
    };
    let Some(decided) = decided else { return Ok(false) };
    let visible = turn.until_now(CommitPhase::Visible);
    decided.let_go(core);
    visible.until_now(CommitPhase::Settle);
    let end = core.wal.end_lsn();
    commit::make_durable(core, Committer::No, end)?;
    Ok(true)
}

/// Rolls a prepared transaction back by its XID, and `of` this identity, if one is wanted; false if there is none. Durable on return.
pub(crate) fn rollback(core: &Core, xid: &[u8], of: Option<TxnId>) -> Result<bool> {
    match of {
        // Its locks go whether that can be durable or not.
        Some(_) => core.writable.check_open()?,
        None => core.writable.check()?,
    }
    let commit = lock_commits(core);
    let Some(prepared) = take(core, xid, of) else { return Ok(false) };
    let mut record = Vec::with_capacity(16);
    Record::Rollback { txn: prepared.state.id }.encode(&mut record);
    // Before another one is prepared under its XID, which a crash would take for this one.
    let appended = core.wal.append_reserved(prepared.credit, &record);
    drop(commit);
    prepared.state.end(ABORTED);
    core.wal.ended(prepared.who);
    let_go(core, &prepared.state);
    count(Counter::Rollbacks, 1);
    // Durable whatever the configuration, before its files go.
    core.wal.wait_durable(appended.end)?;
    for tree in prepared.tables.iter().flat_map(|t| t.trees.all()) {
        with_tree!(tree, tree => drop_runs_of(core, &tree, &prepared.state));
    }
    Ok(true)
}

/// Takes the runs of a transaction that was rolled back out of a tree.
fn drop_runs_of<K: Stored>(core: &Core, tree: &Tree<K>, owner: &Arc<TxnState>) {
    let state = tree.snapshot();
    let own = |r: &&RunHandle<K>| r.owner.as_ref().is_some_and(|o| Arc::ptr_eq(o, owner));
    let runs: Vec<_> = state.runs.iter().filter(own).map(|r| r.run.clone()).collect();
    discard::private_runs(core, tree, runs);
}

/// It has ended: locks and its place among the writers go.
fn let_go(core: &Core, state: &Arc<TxnState>) {
    core.writers.remove(state);
    core.locks.release_all(&state.locks);
}

/// Is a prepared transaction bound to this table? Then it must stay.
pub(crate) fn is_in(core: &Core, table: &Table) -> bool {
    let (prepared, tree) = (core.prepared.lock(), table.tree_id());
    prepared.values().any(|p| p.tables.iter().any(|t| t.trees.rows.id == tree))
}
