//! Memtable to run.
//!
//! Order: freeze (nothing more is written to the memtable), write the run, sync it, sync the folder, append the tree
//! edit to the log, then replace the memtable by the run in the tree. A crash before the edit is durable leaves an
//! orphan file and the log that made the memtable; after it, the run.
//!
//! The boundary: the edit says `flushed_to`, the log's end at the freeze, and replay leaves out what was committed before
//! it. So the run holds commits below the boundary and nothing else (asserted), and every commit below it is in the run:
//! the memtable is read only after those have stored their status words. What was committed at the boundary or later, or
//! has not ended, is carried to the next memtable, which then needs the log from the boundary on, or from where a prepared
//! transaction has its redo. (In a run it would be there twice after a crash, and a merge may have purged one of the two.)

use crate::core::Core;
use crate::memtable::{Memtable, TxnSlot, Version};
use crate::run::Run;
use crate::table::Table;
use crate::tree::{RunHandle, Tree, TreeState};
use crate::txn::{ABORTED, ACTIVE};
use crate::Result;
use esker_format::{CommitSeq, Lsn, Record, RowId, RunEntry, TxnId, VersionTag};
use esker_trace::counters::{count, Counter};
use std::collections::HashMap;
use std::sync::Arc;

impl Core {
    /// Writes a tree's memtable out. Nothing happens if it is empty.
    pub(crate) fn flush(&self, table: &Table, tree: &Arc<Tree>) -> Result<()> {
        let _flushing = tree.flushing.lock();
        self.check_writable()?;
        while tree.snapshot().frozen.last().is_some() {
            // Left by a flush that failed.
            self.flush_oldest(table, tree)?;
        }
        if !self.freeze(tree)? {
            return Ok(());
        }
        self.flush_oldest(table, tree)
    }

    /// Puts a new memtable in place; false if the old one is empty. The new one's first LSN is the boundary.
    fn freeze(&self, tree: &Tree) -> Result<bool> {
        // Under the guard nobody writes: whatever the old memtable gets has it now, and what comes commits later.
        let mut guard = tree.state.write();
        if guard.active.is_empty() {
            return Ok(false);
        }
        let mut state = TreeState::clone(&guard);
        let fresh = Memtable::new(self.wal.end_lsn())?;
        state.frozen.insert(0, std::mem::replace(&mut state.active, fresh));
        *guard = Arc::new(state);
        Ok(true)
    }

    fn flush_oldest(&self, table: &Table, tree: &Arc<Tree>) -> Result<()> {
        let state = tree.snapshot();
        let Some(mem) = state.frozen.last().cloned() else {
            return Ok(());
        };
        assert_eq!(state.frozen.len(), 1, "a memtable was frozen before the one below was flushed");
        let flushed_to = state.active.first_lsn;
        // Records and status words go together under this lock: from here on every commit below the boundary shows.
        drop(self.commit_lock.lock());
        let mut unfinished = Vec::new();
        let run = self.write_run(table, tree, &state, &mem, flushed_to, &mut unfinished)?;
        if let Err(e) = self.announce(tree, run.as_ref(), &mem, &state.active, &unfinished, flushed_to) {
            // Nothing names the run: it goes, and the memtable stays for the next try.
            self.discard(run.into_iter().collect());
            return Err(e);
        }
        tree.edit(|next| {
            next.frozen.retain(|m| !Arc::ptr_eq(m, &mem));
            next.flushed_to = next.flushed_to.max(flushed_to);
            if let Some(run) = run {
                next.add_run(RunHandle { run, owner: None, seq: CommitSeq::ZERO, aborted: Arc::default() });
            }
        });
        for (_, version) in unfinished {
            // SAFETY: the version is in `mem`, which is held.
            if let Some(writer) = self.writer(unsafe { (*version).slot().txn }) {
                writer.forget(&mem);
            }
        }
        count(Counter::Flushes, 1);
        if !self.tree_exists(tree.id) {
            self.empty(tree);
        }
        Ok(())
    }

    /// All that can fail between the run's last byte and its place in the tree; the log's append comes last. What is
    /// carried over stands in both memtables for a while, in the same order: no reader minds.
    fn announce(
        &self,
        tree: &Tree,
        run: Option<&Arc<Run>>,
        mem: &Memtable,
        active: &Arc<Memtable>,
        unfinished: &[(RowId, *const Version)],
        flushed_to: Lsn,
    ) -> Result<()> {
        if !unfinished.is_empty() {
            // First: a checkpoint that still finds the memtable empty must not pass the boundary.
            active.also_needs(active.first_lsn);
        }
        let mut ended = HashMap::new();
        for (row, version) in unfinished {
            // SAFETY: the version is in `mem`, which the caller holds.
            self.carry(mem, active, *row, unsafe { &**version }, &mut ended)?;
        }
        if run.is_some() {
            self.disk.sync_dir(&self.runs_dir).map_err(|e| self.poison_by(e))?;
        }
        if !self.tree_exists(tree.id) {
            return Ok(());
        }
        let add = run.iter().map(|r| run_entry(r, CommitSeq::ZERO, &[])).collect();
        let mut bytes = Vec::new();
        Record::TreeEdit { tree: tree.id, add, remove: Vec::new(), flushed_to }.encode(&mut bytes);
        self.wal.append(&bytes)?;
        Ok(())
    }

    /// Writes the versions of `mem` that were committed before `flushed_to` and that somebody may still see; collects those
    /// of transactions that have not ended, or only since.
    fn write_run(
        &self,
        table: &Table,
        tree: &Tree,
        state: &TreeState,
        mem: &Memtable,
        flushed_to: Lsn,
        unfinished: &mut Vec<(RowId, *const Version)>,
    ) -> Result<Option<Arc<Run>>> {
        let horizon = self.views.horizon();
        let marks: Vec<_> = state.marks.iter().filter(|m| m.owner.is_none() && m.seq <= horizon).collect();
        let mut writer = None;
        let mut node = mem.seek(RowId::ZERO);
        while let Some(n) = node {
            node = mem.after(n);
            let (mut settled, mut last_seq) = (false, ACTIVE);
            for v in n.versions() {
                let status = v.slot().status();
                match status {
                    ABORTED => {}
                    // Not ended, or behind the boundary.
                    seq if seq == ACTIVE || seq >= flushed_to.0 => unfinished.push((n.row, std::ptr::from_ref(v))),
                    // Of one transaction's versions only the newest counts.
                    seq if settled || seq == last_seq || !mem.is_live(v) => count(Counter::RowsPurged, 1),
                    seq if marks.iter().any(|m| m.deletes(n.row, (seq, v.ordinal))) => count(Counter::RowsPurged, 1),
                    seq => {
                        last_seq = seq;
                        settled = seq <= horizon.0;
                        if settled && v.tombstone && !lies_below(state, mem, n.row) {
                            count(Counter::RowsPurged, 1);
                            continue;
                        }
                        let writer = match &mut writer {
                            Some(w) => w,
                            None => writer.insert(self.run_writer(table, tree)?),
                        };
                        assert!(seq < flushed_to.0, "a flushed run must hold only commits below its boundary");
                        let tag = VersionTag { seq: CommitSeq(seq), ordinal: v.ordinal, tombstone: v.tombstone };
                        writer.push(n.row, tag, v.packed())?;
                    }
                }
            }
        }
        writer.map(|w| w.finish()).transpose()
    }

    /// Moves a version to a newer memtable, with the status that its transaction has by now. `ended`: places made there
    /// for transactions that have ended.
    fn carry(
        &self,
        from: &Memtable,
        to: &Arc<Memtable>,
        row: RowId,
        version: &Version,
        ended: &mut HashMap<TxnId, *const TxnSlot>,
    ) -> Result<()> {
        if !from.is_live(version) {
            return Ok(());
        }
        let slot = version.slot();
        let packed = (!version.tombstone).then(|| version.packed());
        let at = match (ended.get(&slot.txn), self.writer(slot.txn)) {
            (Some(at), _) => *at,
            (None, Some(writer)) => writer.slot_in(to)?,
            (None, None) => {
                // It has ended meanwhile, and its status stands in its old slot.
                let status = slot.status();
                assert!(status >= to.first_lsn.0, "a commit below a flush's boundary was not seen");
                let at = to.new_slot(slot.txn)?;
                to.also_needs(slot.redo_at());
                // SAFETY: just made.
                unsafe {
                    (*at).set_redo_at(slot.redo_at());
                    (*at).end(status);
                }
                ended.insert(slot.txn, at);
                at
            }
        };
        // SAFETY: the slot is of `to`; only one flush of a tree goes on at a time.
        unsafe { to.carry(row, at, version.ordinal, packed) }
    }
}

/// May an older version of `row` lie in a run or an older memtable?
fn lies_below(state: &TreeState, mem: &Memtable, row: RowId) -> bool {
    let in_run = state.runs.iter().any(|r| r.run.stats.min_id <= row && row <= r.run.stats.max_id);
    in_run || state.frozen.iter().rev().any(|m| m.id < mem.id && m.seek(row).is_some_and(|n| n.row == row))
}

/// A run as log and manifest describe it.
pub(crate) fn run_entry(run: &Run, seq: CommitSeq, aborted: &[(u64, u64)]) -> RunEntry {
    RunEntry { file: run.file_id, seq, stats: run.stats, aborted: aborted.to_vec() }
}
