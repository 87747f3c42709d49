//! The end of a transaction.
//!
//! Order of commit: private runs synced, their folder synced, then, under the commit lock, redo and commit record
//! appended to the log in one frame, whose LSN is the commit sequence, the status word stored and `visible_seq` raised;
//! then locks released; then the log synced as configured, and only then the caller told. A crash before the frame is
//! durable leaves orphaned run files, which the next start removes; after it, everything is there.
//!
//! Two-phase: `prepare` makes redo, runs and XID durable; `commit_ordered` fixes the order (`decisions.rs`): no lock, no system
//! call, no wait, no failure. Whoever opens a view then, or `commit`, appends the commit record to memory, stores the status word
//! and raises `visible_seq` (`prepared.rs`).

use crate::core::Core;
use crate::session::{Current, Session};
use crate::tally::tally;
use crate::tree::stored::Stored;
use crate::tree::{RunHandle, Tree};
use crate::txn::decisions::Decision;
use crate::txn::open::{TableTxn, Txn};
use crate::txn::prepared::{self, Ordered, Prepared, PreparedTable};
use crate::txn::state::TxnState;
use crate::txn::written::TreeWrites;
use crate::upkeep::{background, discard, pressure};
use crate::version::ABORTED;
use crate::{Error, Result};
use esker_base::counters::{count, Counter};
use esker_base::phase::{self, CommitPhase, Moment};
use esker_format::{CommitSeq, Lsn, Record, RunRef};
use esker_wal::Committer;
use std::sync::atomic::Ordering;
use std::sync::Arc;

/// Longest decision record, in bytes.
pub(crate) const DECISION_BYTES: usize = 32;

impl Txn {
    /// Ends its private writing: runs are synced and joined, nothing of it moves any more; what each tree attaches.
    fn seal_all(&mut self, core: &Core) -> Result<Vec<RunRef>> {
        if let Some(lost) = &self.broken {
            return Err(lost.why.clone());
        }
        let rebuilt = |t: &&TableTxn| !t.table.temporary && t.table.tree_id() != t.rows.tree.id;
        if let Some(t) = self.tables.iter().find(rebuilt) {
            // Emptied under an open writer; a front end's own locks keep that from happening.
            return Err(Error::TableChanged(t.table.name()));
        }
        self.let_go_of_dropped(core);
        self.seal_gathered(core, true)?;
        self.adopt_moved(true);
        let keys = |t: &TableTxn| t.keys.iter().flat_map(TreeWrites::attach).collect::<Vec<_>>();
        let attach: Vec<RunRef> = self.tables.iter().flat_map(|t| t.rows.attach().chain(keys(t))).collect();
        if !attach.is_empty() {
            core.runs.sync(&core.writable)?;
        }
        Ok(attach)
    }

    /// Temporary tables that were dropped or emptied meanwhile: what is gathered for them goes to no file.
    fn let_go_of_dropped(&mut self, core: &Core) {
        let gone = |t: &TableTxn| t.table.temporary && (t.table.is_dropped() || t.table.tree_id() != t.rows.tree.id);
        for (at, table) in self.tables.iter_mut().enumerate().filter(|(_, t)| gone(t)) {
            self.deferred.forget_table(at);
            table.let_go(core);
        }
    }

    /// Under the commit lock: its tables have still the indexes whose entries it wrote, and whoever builds one learns that they
    /// have changed.
    fn count_writes(&self) -> Result<()> {
        let altered = |t: &&TableTxn| !t.table.temporary && t.changed != t.table.changed_seq();
        if let Some(t) = self.tables.iter().find(altered) {
            return Err(Error::TableChanged(t.table.name()));
        }
        for t in &self.tables {
            t.table.writes.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Everything but the decision into the log; the end of its frame.
    fn prepare(&mut self, core: &Core, xid: &[u8], who: Committer) -> Result<Lsn> {
        let attach = self.seal_all(core)?;
        let aborted = self.state.aborted().0.clone();
        let deltas = self.row_changes();
        let redo = self.frame(&Record::Prepare { txn: self.state.id, xid, attach, aborted, deltas })?;
        // Space first: nothing under the commit lock waits for a disk.
        let space = core.wal.reserve_commit(redo.len())?;
        let credit = core.wal.reserve_commit(DECISION_BYTES)?;
        self.enter_row_changes(core);
        // Others carry out decisions under this lock: what can be made before is.
        let key = xid.to_vec();
        let tables = self.tables.iter().map(PreparedTable::of).collect();
        let _commit = prepared::lock_commits(core);
        self.count_writes()?;
        if core.prepared.lock().contains_key(xid) {
            return Err(Error::InvalidArgument("a prepared transaction has this XID already".into()));
        }
        let appended = core.wal.append_reserved(space, &redo);
        self.state.set_logged_at(appended.lsn);
        let prepared = Prepared { state: self.state.clone(), redo, tables, credit, detached: false, who };
        core.prepared.lock().insert(key, prepared);
        Ok(appended.end)
    }

    /// Redo and commit record into the log, then visible; the end of its frame, and when it was. `None`: it changed nothing.
    fn commit(&mut self, core: &Core) -> Result<Option<(Lsn, Moment)>> {
        let attach = self.seal_all(core)?;
        if self.redo_bytes() == 0 && attach.is_empty() {
            // Everything was rolled back to a savepoint, or nothing changed.
            return Ok(None);
        }
        let aborted = self.state.aborted().0.clone();
        let deltas = self.row_changes();
        let redo = self.frame(&Record::Commit { txn: self.state.id, attach, aborted, deltas })?;
        let space = core.wal.reserve_commit(redo.len())?;
        self.enter_row_changes(core);
        let turn = Moment::now();
        let end = {
            let _commit = prepared::lock_commits(core);
            self.count_writes()?;
            let appended = core.wal.append_reserved(space, &redo);
            let seq = CommitSeq(appended.lsn.0);
            #[cfg(test)]
            crate::tests::hooks::reached("commit has its record");
            self.state.end(seq.0);
            core.views.publish(seq, self.state.status());
            appended.end
        };
        let visible = turn.until_now(CommitPhase::Visible);
        core.signals.logged_to(end);
        #[cfg(test)]
        crate::tests::hooks::reached("commit shows");
        self.committed(core);
        // Temporary tables do not survive a restart: nobody waits for them.
        let lasting = self.tables.iter().any(|t| !t.table.temporary);
        Ok(Some((if lasting { end } else { Lsn::default() }, visible)))
    }

    /// What is left to do once it is committed, none of it needed for correctness.
    fn committed(&mut self, core: &Core) {
        let seq = CommitSeq(self.state.status());
        for t in &mut self.tables {
            t.table.touched(core.host.unix().as_secs());
            settle(core, &t.rows.tree, &self.state, seq);
            t.keys.iter().for_each(|k| settle(core, &k.tree, &self.state, seq));
        }
        core.writers.remove(&self.state);
        count(Counter::Commits, 1);
    }

    /// One store, whatever its size; then what it made goes.
    fn rollback(&mut self, core: &Core) {
        self.state.end(ABORTED);
        self.adopt_moved(true);
        for tree in &mut self.tables {
            tree.bulk = None;
            let has_marks = tree.marks > 0;
            tree.rows.give_up(core, has_marks);
            tree.keys.iter_mut().for_each(|k| k.give_up(core, has_marks));
        }
        core.writers.remove(&self.state);
        count(Counter::Rollbacks, 1);
    }
}

/// The longest XID, in bytes: those of MariaDB have 138 at most.
const MAX_XID_BYTES: usize = 4096;

/// Can this be an XID? It stands in the log, again and again for as long as its transaction is prepared.
fn check_xid(xid: &[u8]) -> Result<()> {
    match xid.len() {
        1..=MAX_XID_BYTES => Ok(()),
        bytes => Err(Error::InvalidArgument(format!("the XID has {bytes} bytes, 1 to {MAX_XID_BYTES} are possible"))),
    }
}

impl Session {
    /// First phase of a two-phase commit: everything but the decision is durable on return. Nothing happens if nothing was
    /// written. An XID has 1 to 4,096 bytes.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for an XID of another length, or one that a prepared transaction has; the transaction stays open.
    pub fn prepare(&mut self, xid: &[u8]) -> Result<()> {
        self.prepare_as(Committer::Prepares, xid)
    }

    /// [`prepare`](Self::prepare) for a transaction whose end waits for others or for people: nobody puts a sync off for it.
    ///
    /// # Errors
    /// As for [`prepare`](Self::prepare).
    pub fn prepare_in_turn(&mut self, xid: &[u8]) -> Result<()> {
        self.prepare_as(Committer::No, xid)
    }

    fn prepare_as(&mut self, who: Committer, xid: &[u8]) -> Result<()> {
        check_xid(xid)?;
        if !self.has_written() {
            return Ok(());
        }
        let Current::Open(txn) = &mut self.current else {
            return Err(Error::InvalidArgument("the transaction is prepared already".into()));
        };
        let began = Moment::now();
        self.core.writable.check()?;
        pressure::wait_for_log(&self.core, || self.parker.is_killed());
        pressure::wait_for_merges(&self.core, txn.redo_bytes());
        let end = txn.prepare(&self.core, xid, who)?;
        let state = txn.state.clone();
        let decision = Decision::new(Ordered::new(state.id, xid.to_vec()));
        self.current = Current::Prepared { state, decision };
        self.core.signals.logged_to(end);
        self.unlock_counters();
        count(Counter::Prepares, 1);
        phase::timed(CommitPhase::PrepareWait, || make_durable(&self.core, who, end))?;
        began.until_now(CommitPhase::Prepare);
        // The end of others waits for people, or for others still.
        self.commit_began = (who == Committer::Prepares).then_some(began);
        Ok(())
    }

    /// The decision, after [`prepare`](Self::prepare): in memory, in the order of calls. Every view that is opened after it sees
    /// it. No lock, no system call, no wait, no failure. What the transaction holds it holds up to [`commit`](Self::commit).
    ///
    /// Neither this nor the [`commit`](Self::commit) behind it makes the decision durable: whoever calls it has a log of its own
    /// that says so, and commits after a crash what is still prepared ([`Engine::prepared`](crate::Engine::prepared),
    /// [`Engine::commit_xid`](crate::Engine::commit_xid)). What that log may forget tells
    /// [`Engine::request_checkpoint`](crate::Engine::request_checkpoint).
    pub fn commit_ordered(&mut self) {
        let began = Moment::now();
        let Current::Prepared { state, decision } = &self.current else { return };
        self.core.decisions.make(decision.clone());
        self.current = Current::Ordered { state: state.clone(), decision: decision.clone() };
        began.until_now(CommitPhase::Ordered);
    }

    /// Commits. On return the transaction is visible and durable as configured; after [`commit_ordered`](Self::commit_ordered) it
    /// is visible, and as durable as the log of whoever has decided.
    ///
    /// After an error it may be open still ([`in_transaction`](Self::in_transaction)): then nobody sees anything of it, and it is to be
    /// committed again or rolled back, as a whole: a savepoint of before the error may be none any more. Where some of what it wrote was
    /// lost to the error it can only be rolled back; committing it again says so.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] where nothing may be written, [`Error::Poisoned`] once writing has stopped, [`Error::DiskFull`], the error to which
    /// something of it was lost; [`Error::InvalidArgument`] if it was prepared and is decided elsewhere.
    pub fn commit(&mut self) -> Result<()> {
        let core = self.core.clone();
        if let Some(end) = self.commit_visibly()? {
            phase::timed(CommitPhase::Wait, || make_durable(&core, Committer::Commits, end))?;
            background::after_write(&core);
        }
        self.acknowledged();
        Ok(())
    }

    /// Commits without waiting for the log: visible on return. Durable is it when [`await_log`](Self::await_log), of any
    /// session, has returned for the position given.
    ///
    /// # Errors
    /// As for [`commit`](Self::commit).
    pub fn commit_unsynced(&mut self) -> Result<Lsn> {
        let end = self.commit_visibly()?;
        background::after_write(&self.core);
        self.acknowledged();
        Ok(end.unwrap_or_default())
    }

    /// The commit that was under way, if any, is told of.
    fn acknowledged(&mut self) {
        if let Some(began) = self.commit_began.take() {
            began.until_now(CommitPhase::Whole);
        }
    }

    /// Returns when the log is durable up to `end`, as far as the configuration asks for it.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a position that the log has not come to: it is another engine's.
    pub fn await_log(&self, end: Lsn) -> Result<()> {
        let wal = &self.core.wal;
        if end > wal.durable_lsn() && end > wal.end_lsn() {
            let reached = wal.end_lsn();
            return Err(Error::InvalidArgument(format!(
                "the log ends at {reached}: no commit of this engine ends at {end}"
            )));
        }
        make_durable(&self.core, Committer::No, end)
    }

    /// The same of all that was committed so far, what was decided by [`commit_ordered`](Self::commit_ordered) too: for who has no log
    /// of its own that says so after a crash.
    ///
    /// # Errors
    /// [`Error::Poisoned`] if the log stops before.
    pub fn await_whole_log(&self) -> Result<()> {
        prepared::carry_out(&self.core);
        self.await_log(self.core.wal.end_lsn())
    }

    /// Commits; the position up to which the log must become durable, if anything was written.
    fn commit_visibly(&mut self) -> Result<Option<Lsn>> {
        match &mut self.current {
            Current::Open(txn) if txn.registered => {
                self.commit_began = Some(Moment::now());
                self.core.writable.check()?;
                pressure::wait_for_log(&self.core, || self.parker.is_killed());
                pressure::wait_for_merges(&self.core, txn.redo_bytes());
                match txn.commit(&self.core)? {
                    Some((end, visible)) => {
                        self.end_txn();
                        visible.until_now(CommitPhase::Settle);
                        Ok(Some(end))
                    }
                    None => self.rollback().map(|()| None),
                }
            }
            Current::Prepared { state, decision } => {
                let result = prepared::commit(&self.core, &decision.what.xid, Some(state.id));
                self.end_txn();
                match result? {
                    true => Ok(None),
                    false => Err(decided_elsewhere()),
                }
            }
            Current::Ordered { decision, .. } => {
                let (decision, turn) = (decision.clone(), Moment::now());
                count(Counter::DecisionsByOthers, u64::from(decision.what.done.get().is_some()));
                prepared::carry_out(&self.core);
                let visible = turn.until_now(CommitPhase::Visible);
                self.end_txn();
                visible.until_now(CommitPhase::Settle);
                decision.what.done.get().map(|_| None).ok_or_else(decided_elsewhere)
            }
            Current::None | Current::Open(_) => {
                // What began before it was rolled back, or is decided by others.
                self.commit_began = None;
                self.end_txn();
                Ok(None)
            }
        }
    }

    /// Rolls the transaction back: one store, whatever its size.
    ///
    /// # Errors
    /// None but for a prepared transaction: [`Error::ReadOnly`] where nothing may be written, [`Error::Poisoned`] if that it was rolled back
    /// is not durable.
    pub fn rollback(&mut self) -> Result<()> {
        let result = match &mut self.current {
            Current::Open(txn) if txn.registered => {
                txn.rollback(&self.core);
                Ok(())
            }
            Current::Prepared { state, decision } => {
                prepared::rollback(&self.core, &decision.what.xid, Some(state.id)).map(|_| ())
            }
            // Too late.
            Current::Ordered { .. } => {
                prepared::carry_out(&self.core);
                Ok(())
            }
            Current::None | Current::Open(_) => Ok(()),
        };
        self.end_txn();
        result
    }

    /// Lets go of a prepared transaction: its coordinator decides by XID. Any other stays.
    pub fn detach_prepared(&mut self) {
        let Current::Prepared { state, decision } = &self.current else { return };
        let mut prepared = self.core.prepared.lock();
        if let Some(p) = prepared.get_mut(&decision.what.xid).filter(|p| p.is(Some(state.id))) {
            p.detached = true;
        }
        drop(prepared);
        self.current = Current::None;
        self.presence.ended();
        self.view_slot.clear();
        self.statement_view = None;
    }

    fn end_txn(&mut self) {
        self.in_statement = false;
        self.tell_work();
        if let Current::Ordered { decision, .. } = &self.current {
            decision.what.done.get().into_iter().for_each(|decided| decided.let_go(&self.core));
        }
        self.found_locked = None;
        self.unlock_counters();
        if let Some(state) = self.current.state() {
            self.core.locks.release_all(&state.locks);
            self.presence.ended();
        }
        if let Current::Open(txn) = std::mem::replace(&mut self.current, Current::None) {
            self.unused = txn.is_unused().then_some(txn);
        }
        self.view_slot.clear();
        self.statement_view = None;
    }
}

fn decided_elsewhere() -> Error {
    Error::InvalidArgument("the prepared transaction was decided elsewhere".into())
}

/// Replaces an ended owner by its commit sequence in a tree's runs and marks.
pub(crate) fn settle<K: Stored>(core: &Core, tree: &Tree<K>, state: &Arc<TxnState>, seq: CommitSeq) {
    let is_own = |owner: &Option<Arc<TxnState>>| owner.as_ref().is_some_and(|o| Arc::ptr_eq(o, state));
    let now = tree.snapshot();
    if now.is_discarded {
        // What joined it since its table was dropped goes the same way.
        return discard::tree(core, tree);
    }
    // Most have nothing but versions in memory, and there may be very many runs.
    if !state.owns_parts() {
        debug_assert!(!now.runs.iter().any(|r| is_own(&r.owner)) && !now.marks.iter().any(|m| is_own(&m.owner)));
        return;
    }
    #[cfg(test)]
    settled::count();
    if !now.runs.iter().any(|r| is_own(&r.owner)) && !now.marks.iter().any(|m| is_own(&m.owner)) {
        return;
    }
    let aborted = state.aborted();
    tree.edit(|s| {
        for handle in &mut s.runs {
            if handle.owner.as_ref().is_some_and(|o| Arc::ptr_eq(o, state)) {
                *handle = RunHandle { owner: None, seq, aborted: aborted.clone(), ..handle.clone() };
            }
        }
        s.marks.retain_mut(|m| match &m.owner {
            Some(o) if Arc::ptr_eq(o, state) => {
                let live = !aborted.contains(m.ordinal);
                (m.owner, m.seq) = (None, seq);
                live
            }
            _ => true,
        });
    });
    background::maintenance_wanted(core);
}

/// Makes the log durable up to `end`, as far as the configuration asks for it.
pub(crate) fn make_durable(core: &Core, who: Committer, end: Lsn) -> Result<()> {
    let result = core.wal.finish(core.settings.flush_mode(), who, end).map_err(Error::from);
    if let Err(Error::Poisoned(why)) = &result {
        core.writable.poison(why);
    }
    result
}

tally! {
    /// Counts the trees whose runs and marks this thread's commits looked at.
    settled
}
