//! The end of a transaction.
//!
//! Order of commit: private runs synced, their folder synced, then, under the commit lock, redo and commit record
//! appended to the log in one frame, whose LSN is the commit sequence, the status word stored and `visible_seq` raised;
//! then locks released; then the log synced as configured, and only then the caller told. A crash before the frame is
//! durable leaves orphaned run files, which the next start removes; after it, everything is there.
//!
//! Two-phase: `prepare` makes redo, runs and XID durable; `commit_ordered` appends the commit record to memory and
//! stores the status word: no system call, no wait, no failure.

use crate::core::{Core, Prepared};
use crate::session::{Session, Txn};
use crate::tree::RunHandle;
use crate::txn::state::TxnState;
use crate::version::ABORTED;
use crate::{Error, Result};
use esker_base::counters::{count, Counter};
use esker_format::{CommitSeq, Lsn, Record, RunRef, TreeId, TxnId};
use std::sync::atomic::Ordering;
use std::sync::Arc;

/// Longest decision record, in bytes.
pub(crate) const DECISION_BYTES: usize = 32;

impl Session {
    /// Ends the private writing of the transaction: runs are synced and joined, nothing of it moves any more; what each
    /// tree attaches.
    fn seal_all(&mut self) -> Result<Vec<RunRef>> {
        if let Some((_, e)) = self.txn.as_deref().and_then(|t| t.broken.clone()) {
            return Err(e);
        }
        let rebuilt = |t: &&crate::session::TreeTxn| !t.table.temporary && !Arc::ptr_eq(&t.table.tree(), &t.tree);
        if let Some(t) = self.txn.as_deref().and_then(|t| t.trees.iter().find(rebuilt)) {
            // Emptied under an open writer; a front end's own locks keep that from happening.
            return Err(Error::TableChanged(t.table.name()));
        }
        self.let_go_of_dropped();
        let trees = self.txn.as_deref().map_or(0, |t| t.trees.len());
        for at in 0..trees {
            self.seal_bulk(at)?;
            self.seal_private(at)?;
        }
        self.adopt_moved(true);
        let Some(txn) = self.txn.as_deref() else {
            return Ok(Vec::new());
        };
        let attach: Vec<RunRef> = txn
            .trees
            .iter()
            .flat_map(|t| t.runs.iter().map(|r| RunRef { tree: t.tree.id, file: r.file_id, stats: r.stats }))
            .collect();
        if !attach.is_empty() {
            self.core.sync_runs()?;
        }
        Ok(attach)
    }

    /// Temporary tables that were dropped or emptied meanwhile: what is gathered for them goes to no file.
    fn let_go_of_dropped(&mut self) {
        let Some(txn) = self.txn.as_deref_mut() else { return };
        let gone = |t: &crate::session::TreeTxn| {
            t.table.temporary && (t.table.is_dropped() || !Arc::ptr_eq(&t.table.tree(), &t.tree))
        };
        for tree in txn.trees.iter_mut().filter(|t| gone(t)) {
            tree.bulk = None;
            tree.drop_private();
            self.core.discard(std::mem::take(&mut tree.runs));
        }
    }

    /// First phase of a two-phase commit: everything but the decision is durable on return.
    pub fn prepare(&mut self, xid: &[u8]) -> Result<()> {
        if !self.has_written() {
            return Ok(());
        }
        self.core.check_writable()?;
        self.core.wait_for_log(|| self.parker.is_killed());
        let attach = self.seal_all()?;
        let core = self.core.clone();
        let Some(txn) = self.txn.as_deref_mut() else {
            return Ok(());
        };
        let id = txn.state.id;
        let aborted = txn.state.aborted().0.clone();
        let redo = txn.frame(&Record::Prepare { txn: id, xid, attach, aborted });
        // Space first: nothing under the commit lock waits for a disk.
        let space = core.wal.reserve_commit(redo.len())?;
        let credit = core.wal.reserve_commit(DECISION_BYTES)?;
        let appended = {
            let _commit = core.commit_lock.lock();
            if core.prepared.lock().contains_key(xid) {
                return Err(Error::InvalidArgument("a prepared transaction has this XID already".into()));
            }
            let appended = core.wal.append_reserved(space, &redo);
            txn.state.set_logged_at(appended.lsn);
            core.prepared.lock().insert(
                xid.to_vec(),
                Prepared {
                    state: txn.state.clone(),
                    redo,
                    trees: txn.trees.iter().map(|t| (t.tree.clone(), t.table.clone(), t.live_delta)).collect(),
                    credit,
                    detached: false,
                },
            );
            appended
        };
        core.signals.logged_to(appended.end);
        txn.prepared = Some(xid.to_vec());
        count(Counter::Prepares, 1);
        core.make_durable(appended.end)
    }

    /// The decision, after [`prepare`](Self::prepare): in memory, in the order of calls. Never waits, never fails.
    pub fn commit_ordered(&mut self) {
        let Some(txn) = self.txn.as_deref_mut() else {
            return;
        };
        let Some(xid) = txn.prepared.as_deref() else {
            return;
        };
        if txn.committed.is_some() {
            return;
        }
        txn.committed = self.core.decide(xid);
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
        let Some(txn) = self.txn.as_deref_mut() else {
            return Ok(None);
        };
        if !txn.registered {
            self.end_txn();
            return Ok(None);
        }
        if txn.committed.is_some() {
            self.end_txn();
            return Ok(None);
        }
        if let Some(xid) = txn.prepared.clone() {
            let result = self.core.commit_xid(&xid);
            self.end_txn();
            return match result? {
                true => Ok(None),
                false => Err(Error::InvalidArgument("the prepared transaction was decided elsewhere".into())),
            };
        }
        self.core.check_writable()?;
        self.core.wait_for_log(|| self.parker.is_killed());
        let attach = self.seal_all()?;
        let core = self.core.clone();
        let Some(txn) = self.txn.as_deref_mut() else {
            return Ok(None);
        };
        let id = txn.state.id;
        if txn.redo_bytes() == 0 && attach.is_empty() {
            // Everything was rolled back to a savepoint, or nothing changed.
            return self.rollback().map(|()| None);
        }
        let redo = txn.frame(&Record::Commit { txn: id, attach, aborted: txn.state.aborted().0.clone() });
        let space = core.wal.reserve_commit(redo.len())?;
        let end = {
            let _commit = core.commit_lock.lock();
            let appended = core.wal.append_reserved(space, &redo);
            let seq = CommitSeq(appended.lsn.0);
            #[cfg(test)]
            crate::tests::hooks::reached("commit has its record");
            txn.state.end(seq.0);
            core.views.publish(seq, txn.state.status());
            appended.end
        };
        core.signals.logged_to(end);
        core.after_commit(txn);
        // Temporary tables do not survive a restart: nobody waits for them.
        let lasting = txn.trees.iter().any(|t| !t.table.temporary);
        self.end_txn();
        Ok(Some(if lasting { end } else { Lsn::default() }))
    }

    /// Rolls the transaction back: one store, whatever its size.
    pub fn rollback(&mut self) -> Result<()> {
        let Some(txn) = self.txn.as_deref_mut() else {
            return Ok(());
        };
        if let Some(xid) = txn.prepared.clone().filter(|_| txn.committed.is_none()) {
            let result = self.core.rollback_xid(&xid);
            self.end_txn();
            return result.map(|_| ());
        }
        if txn.registered && txn.committed.is_none() {
            txn.state.end(ABORTED);
            self.adopt_moved(true);
            let Some(txn) = self.txn.as_deref_mut() else { return Ok(()) };
            for tree in &mut txn.trees {
                tree.bulk = None;
                let runs = std::mem::take(&mut tree.runs);
                if !runs.is_empty() || tree.marks > 0 {
                    self.core.drop_runs(&tree.tree, runs);
                }
            }
            self.core.unregister(&txn.state);
            count(Counter::Rollbacks, 1);
        }
        self.end_txn();
        Ok(())
    }

    /// Lets go of a prepared transaction: its coordinator decides by XID.
    pub fn detach_prepared(&mut self) {
        let Some(txn) = self.txn.take() else { return };
        if let Some(xid) = &txn.prepared {
            if let Some(p) = self.core.prepared.lock().get_mut(xid) {
                p.detached = true;
            }
        }
        self.presence.ended();
        self.view_slot.clear();
        self.statement_view = None;
    }

    fn end_txn(&mut self) {
        if let Some(txn) = self.txn.take() {
            self.core.locks.release_all(&txn.state.locks);
            self.presence.ended();
        }
        self.view_slot.clear();
        self.statement_view = None;
    }
}

impl Txn {
    /// All redo of the transaction, with `last` at its end: one frame of the log.
    fn frame(&self, last: &Record<'_>) -> Vec<u8> {
        let mut frame = Vec::with_capacity(self.redo_bytes() + 64);
        self.trees.iter().for_each(|t| t.redo.append_to(&mut frame));
        frame.extend_from_slice(&self.marks_redo);
        last.encode(&mut frame);
        frame
    }
}

impl Core {
    /// Commits what was prepared: record into the log's memory, status word, visibility.
    fn decide(&self, xid: &[u8]) -> Option<CommitSeq> {
        let (state, trees, seq) = {
            let _commit = self.commit_lock.lock();
            // Taken away only under the commit lock: a checkpoint logs it again, or finds the decision in the log.
            let Prepared { state, trees, credit, .. } = self.prepared.lock().remove(xid)?;
            let mut record = Vec::with_capacity(16);
            Record::CommitPrepared { txn: state.id }.encode(&mut record);
            let appended = self.wal.append_reserved(credit, &record);
            let seq = CommitSeq(appended.lsn.0);
            state.end(seq.0);
            self.views.publish(seq, state.status());
            (state, trees, seq)
        };
        for (tree, table, delta) in &trees {
            tree.live_rows.fetch_add(*delta, Ordering::Relaxed);
            table.touched();
            self.settle(tree, &state, seq);
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
        for (tree, _, _) in &prepared.trees {
            let state = tree.snapshot();
            let own = |r: &&RunHandle| r.owner.as_ref().is_some_and(|o| Arc::ptr_eq(o, &prepared.state));
            let runs: Vec<_> = state.runs.iter().filter(own).map(|r| r.run.clone()).collect();
            self.drop_runs(tree, runs);
        }
        Ok(true)
    }

    fn finish_state(&self, state: &Arc<TxnState>) {
        self.unregister(state);
        self.locks.release_all(&state.locks);
    }

    /// What is left to do for a committed transaction, none of it needed for correctness.
    fn after_commit(&self, txn: &mut Txn) {
        let seq = CommitSeq(txn.state.status());
        for tree in &mut txn.trees {
            tree.tree.live_rows.fetch_add(tree.live_delta, Ordering::Relaxed);
            tree.table.touched();
            self.settle(&tree.tree, &txn.state, seq);
        }
        self.unregister(&txn.state);
        count(Counter::Commits, 1);
    }

    /// Replaces an ended owner by its commit sequence in a tree's runs and marks.
    fn settle(&self, tree: &crate::tree::Tree, state: &Arc<TxnState>, seq: CommitSeq) {
        let is_own = |owner: &Option<Arc<TxnState>>| owner.as_ref().is_some_and(|o| Arc::ptr_eq(o, state));
        let now = tree.snapshot();
        if !now.runs.iter().any(|r| is_own(&r.owner)) && !now.marks.iter().any(|m| is_own(&m.owner)) {
            return;
        }
        let aborted = state.aborted();
        tree.edit(|s| {
            for handle in &mut s.runs {
                if handle.owner.as_ref().is_some_and(|o| Arc::ptr_eq(o, state)) {
                    *handle = RunHandle { run: handle.run.clone(), owner: None, seq, aborted: aborted.clone() };
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

    /// Is a prepared transaction bound to this tree? Then its table must stay.
    pub(crate) fn is_prepared_in(&self, tree: TreeId) -> Option<TxnId> {
        let prepared = self.prepared.lock();
        prepared.values().find(|p| p.trees.iter().any(|t| t.0.id == tree)).map(|p| p.state.id)
    }
}
