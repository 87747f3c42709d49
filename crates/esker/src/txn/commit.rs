//! The end of a transaction.
//!
//! Order of commit: private runs synced, their folder synced, then, under the commit lock, redo and commit record
//! appended to the log in one frame, whose LSN is the commit sequence, the status word stored and `visible_seq` raised;
//! then locks released; then the log synced as configured, and only then the caller told. A crash before the frame is
//! durable leaves orphaned run files, which the next start removes; after it, everything is there.
//!
//! Two-phase: `prepare` makes redo, runs and XID durable; `commit_ordered` appends the commit record to memory and
//! stores the status word: no system call, no wait, no failure.

use crate::catalog::table::{with_tree, Table};
use crate::core::{Core, Prepared, PreparedTable};
use crate::session::{Current, Session};
use crate::tree::stored::Stored;
use crate::tree::{RunHandle, Tree};
use crate::txn::open::{TableTxn, Txn};
use crate::txn::state::TxnState;
use crate::txn::written::Written;
use crate::version::ABORTED;
use crate::{Error, Result};
use esker_base::counters::{count, Counter};
use esker_format::{CommitSeq, Lsn, Record, RunRef, TxnId};
use std::sync::atomic::Ordering;
use std::sync::Arc;

/// Longest decision record, in bytes.
pub(crate) const DECISION_BYTES: usize = 32;

impl Txn {
    /// Ends its private writing: runs are synced and joined, nothing of it moves any more; what each tree attaches.
    fn seal_all(&mut self, core: &Core) -> Result<Vec<RunRef>> {
        if let Some((_, e)) = &self.broken {
            return Err(e.clone());
        }
        let rebuilt = |t: &&TableTxn| !t.table.temporary && t.table.tree_id() != t.rows.tree.id;
        if let Some(t) = self.tables.iter().find(rebuilt) {
            // Emptied under an open writer; a front end's own locks keep that from happening.
            return Err(Error::TableChanged(t.table.name()));
        }
        self.let_go_of_dropped(core);
        self.seal_gathered(core, true)?;
        self.adopt_moved(true);
        let keys = |t: &TableTxn| t.keys.iter().flat_map(Written::attach).collect::<Vec<_>>();
        let attach: Vec<RunRef> = self.tables.iter().flat_map(|t| t.rows.attach().chain(keys(t))).collect();
        if !attach.is_empty() {
            core.sync_runs()?;
        }
        Ok(attach)
    }

    /// Temporary tables that were dropped or emptied meanwhile: what is gathered for them goes to no file.
    fn let_go_of_dropped(&mut self, core: &Core) {
        let gone = |t: &TableTxn| t.table.temporary && (t.table.is_dropped() || t.table.tree_id() != t.rows.tree.id);
        for tree in self.tables.iter_mut().filter(|t| gone(t)) {
            tree.bulk = None;
            tree.drop_private();
            core.discard(std::mem::take(&mut tree.rows.runs));
            tree.keys.iter_mut().for_each(|k| core.discard(std::mem::take(&mut k.runs)));
        }
    }

    /// Everything but the decision into the log; the end of its frame.
    fn prepare(&mut self, core: &Core, xid: &[u8]) -> Result<Lsn> {
        let attach = self.seal_all(core)?;
        let aborted = self.state.aborted().0.clone();
        let redo = self.frame(&Record::Prepare { txn: self.state.id, xid, attach, aborted, deltas: Vec::new() });
        // Space first: nothing under the commit lock waits for a disk.
        let space = core.wal.reserve_commit(redo.len())?;
        let credit = core.wal.reserve_commit(DECISION_BYTES)?;
        let _commit = core.commit_lock.lock();
        if core.prepared.lock().contains_key(xid) {
            return Err(Error::InvalidArgument("a prepared transaction has this XID already".into()));
        }
        let appended = core.wal.append_reserved(space, &redo);
        self.state.set_logged_at(appended.lsn);
        let tables = self.tables.iter().map(PreparedTable::of).collect();
        let prepared = Prepared { state: self.state.clone(), redo, tables, credit, detached: false };
        core.prepared.lock().insert(xid.to_vec(), prepared);
        Ok(appended.end)
    }

    /// Redo and commit record into the log, then visible; the end of its frame. `None`: it changed nothing.
    fn commit(&mut self, core: &Core) -> Result<Option<Lsn>> {
        let attach = self.seal_all(core)?;
        if self.redo_bytes() == 0 && attach.is_empty() {
            // Everything was rolled back to a savepoint, or nothing changed.
            return Ok(None);
        }
        let aborted = self.state.aborted().0.clone();
        let redo = self.frame(&Record::Commit { txn: self.state.id, attach, aborted, deltas: Vec::new() });
        let space = core.wal.reserve_commit(redo.len())?;
        let end = {
            let _commit = core.commit_lock.lock();
            let appended = core.wal.append_reserved(space, &redo);
            let seq = CommitSeq(appended.lsn.0);
            #[cfg(test)]
            crate::tests::hooks::reached("commit has its record");
            self.state.end(seq.0);
            core.views.publish(seq, self.state.status());
            appended.end
        };
        core.signals.logged_to(end);
        core.after_commit(self);
        // Temporary tables do not survive a restart: nobody waits for them.
        let lasting = self.tables.iter().any(|t| !t.table.temporary);
        Ok(Some(if lasting { end } else { Lsn::default() }))
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
        core.unregister(&self.state);
        count(Counter::Rollbacks, 1);
    }
}

impl Session {
    /// First phase of a two-phase commit: everything but the decision is durable on return. Nothing happens if nothing was
    /// written.
    pub fn prepare(&mut self, xid: &[u8]) -> Result<()> {
        if !self.has_written() {
            return Ok(());
        }
        let Current::Open(txn) = &mut self.current else {
            return Err(Error::InvalidArgument("the transaction is prepared already".into()));
        };
        self.core.check_writable()?;
        self.core.wait_for_log(|| self.parker.is_killed());
        self.core.wait_for_merges(txn.redo_bytes());
        let end = txn.prepare(&self.core, xid)?;
        let state = txn.state.clone();
        self.current = Current::Prepared { state, xid: xid.to_vec() };
        self.core.signals.logged_to(end);
        count(Counter::Prepares, 1);
        self.core.make_durable(end)
    }

    /// The decision, after [`prepare`](Self::prepare): in memory, in the order of calls. Never waits, never fails.
    pub fn commit_ordered(&mut self) {
        let Current::Prepared { state, xid } = &self.current else { return };
        if self.core.decide(xid).is_some() {
            self.current = Current::Committed(state.clone());
        }
    }

    /// Commits. On return the transaction is visible and durable as configured.
    pub fn commit(&mut self) -> Result<()> {
        let core = self.core.clone();
        if let Some(end) = self.commit_visibly()? {
            core.make_durable(end)?;
            core.after_write();
        }
        Ok(())
    }

    /// Commits without waiting for the log: visible on return. Durable is it when [`await_log`](Self::await_log), of any
    /// session, has returned for the position given.
    pub fn commit_unsynced(&mut self) -> Result<Lsn> {
        let end = self.commit_visibly()?;
        self.core.after_write();
        Ok(end.unwrap_or_default())
    }

    /// Returns when the log is durable up to `end`, as far as the configuration asks for it.
    pub fn await_log(&self, end: Lsn) -> Result<()> {
        self.core.make_durable(end)
    }

    /// Commits; the position up to which the log must become durable, if anything was written.
    fn commit_visibly(&mut self) -> Result<Option<Lsn>> {
        match &mut self.current {
            Current::Open(txn) if txn.registered => {
                self.core.check_writable()?;
                self.core.wait_for_log(|| self.parker.is_killed());
                self.core.wait_for_merges(txn.redo_bytes());
                let end = txn.commit(&self.core)?;
                match end {
                    Some(_) => self.end_txn(),
                    None => self.rollback()?,
                }
                Ok(end)
            }
            Current::Prepared { xid, .. } => {
                let result = self.core.commit_xid(xid);
                self.end_txn();
                match result? {
                    true => Ok(None),
                    false => Err(Error::InvalidArgument("the prepared transaction was decided elsewhere".into())),
                }
            }
            Current::None | Current::Open(_) | Current::Committed(_) => {
                self.end_txn();
                Ok(None)
            }
        }
    }

    /// Rolls the transaction back: one store, whatever its size.
    pub fn rollback(&mut self) -> Result<()> {
        let result = match &mut self.current {
            Current::Open(txn) if txn.registered => {
                txn.rollback(&self.core);
                Ok(())
            }
            Current::Prepared { xid, .. } => self.core.rollback_xid(xid).map(|_| ()),
            Current::None | Current::Open(_) | Current::Committed(_) => Ok(()),
        };
        self.end_txn();
        result
    }

    /// Lets go of a prepared transaction: its coordinator decides by XID. Any other stays.
    pub fn detach_prepared(&mut self) {
        let Current::Prepared { xid, .. } = &self.current else { return };
        if let Some(p) = self.core.prepared.lock().get_mut(xid) {
            p.detached = true;
        }
        self.current = Current::None;
        self.presence.ended();
        self.view_slot.clear();
        self.statement_view = None;
    }

    fn end_txn(&mut self) {
        if let Some(state) = self.current.state() {
            self.core.locks.release_all(&state.locks);
            self.presence.ended();
        }
        self.current = Current::None;
        self.view_slot.clear();
        self.statement_view = None;
    }
}

impl Core {
    /// Commits what was prepared: record into the log's memory, status word, visibility.
    fn decide(&self, xid: &[u8]) -> Option<CommitSeq> {
        let (state, tables, seq) = {
            let _commit = self.commit_lock.lock();
            // Taken away only under the commit lock: a checkpoint logs it again, or finds the decision in the log.
            let Prepared { state, tables, credit, .. } = self.prepared.lock().remove(xid)?;
            let mut record = Vec::with_capacity(16);
            Record::CommitPrepared { txn: state.id }.encode(&mut record);
            let appended = self.wal.append_reserved(credit, &record);
            let seq = CommitSeq(appended.lsn.0);
            state.end(seq.0);
            self.views.publish(seq, state.status());
            (state, tables, seq)
        };
        for t in &tables {
            t.trees.rows.live_rows.fetch_add(t.live_delta, Ordering::Relaxed);
            t.table.touched();
            t.trees.all().for_each(|tree| with_tree!(tree, tree => self.settle(&tree, &state, seq)));
        }
        self.finish_state(&state);
        count(Counter::Commits, 1);
        Some(seq)
    }

    /// Commits a prepared transaction by its XID; false if there is none. Durable on return.
    pub(crate) fn commit_xid(&self, xid: &[u8]) -> Result<bool> {
        if self.decide(xid).is_none() {
            return Ok(false);
        }
        let end = self.wal.end_lsn();
        self.make_durable(end)?;
        Ok(true)
    }

    /// Rolls a prepared transaction back by its XID; false if there is none. Durable on return.
    pub(crate) fn rollback_xid(&self, xid: &[u8]) -> Result<bool> {
        let Some(prepared) = self.prepared.lock().remove(xid) else {
            return Ok(false);
        };
        let mut record = Vec::with_capacity(16);
        Record::Rollback { txn: prepared.state.id }.encode(&mut record);
        let appended = self.wal.append_reserved(prepared.credit, &record);
        prepared.state.end(ABORTED);
        self.finish_state(&prepared.state);
        count(Counter::Rollbacks, 1);
        // Durable whatever the configuration, before its files go.
        self.wal.wait_durable(appended.end)?;
        for tree in prepared.tables.iter().flat_map(|t| t.trees.all()) {
            with_tree!(tree, tree => self.drop_runs_of(&tree, &prepared.state));
        }
        Ok(true)
    }

    /// Takes the runs of a transaction that was rolled back out of a tree.
    fn drop_runs_of<K: Stored>(&self, tree: &Tree<K>, owner: &Arc<TxnState>) {
        let state = tree.snapshot();
        let own = |r: &&RunHandle<K>| r.owner.as_ref().is_some_and(|o| Arc::ptr_eq(o, owner));
        let runs: Vec<_> = state.runs.iter().filter(own).map(|r| r.run.clone()).collect();
        self.drop_runs(tree, runs);
    }

    fn finish_state(&self, state: &Arc<TxnState>) {
        self.unregister(state);
        self.locks.release_all(&state.locks);
    }

    /// What is left to do for a committed transaction, none of it needed for correctness.
    fn after_commit(&self, txn: &mut Txn) {
        let seq = CommitSeq(txn.state.status());
        for t in &mut txn.tables {
            t.rows.tree.live_rows.fetch_add(t.live_delta, Ordering::Relaxed);
            t.table.touched();
            self.settle(&t.rows.tree, &txn.state, seq);
            t.keys.iter().for_each(|k| self.settle(&k.tree, &txn.state, seq));
        }
        self.unregister(&txn.state);
        count(Counter::Commits, 1);
    }

    /// Replaces an ended owner by its commit sequence in a tree's runs and marks.
    fn settle<K: Stored>(&self, tree: &Tree<K>, state: &Arc<TxnState>, seq: CommitSeq) {
        let is_own = |owner: &Option<Arc<TxnState>>| owner.as_ref().is_some_and(|o| Arc::ptr_eq(o, state));
        let now = tree.snapshot();
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
        self.maintenance_wanted();
    }

    /// Makes the log durable up to `end`, as far as the configuration asks for it.
    pub(crate) fn make_durable(&self, end: Lsn) -> Result<()> {
        let result = self.wal.finish(self.flush_mode(), end).map_err(Error::from);
        if let Err(Error::Poisoned(why)) = &result {
            self.poison(why);
        }
        result
    }

    /// Is a prepared transaction bound to this table? Then it must stay.
    pub(crate) fn is_prepared_in(&self, table: &Table) -> Option<TxnId> {
        let (prepared, tree) = (self.prepared.lock(), table.tree_id());
        prepared.values().find(|p| p.tables.iter().any(|t| t.trees.rows.id == tree)).map(|p| p.state.id)
    }
}
