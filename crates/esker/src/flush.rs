//! Memtable to run.
//!
//! Order: freeze (nothing more is written to the memtable), write the run, sync it, sync the folder, append the tree
//! edit to the log, then replace the memtable by the run in the tree. A crash before the edit is durable leaves an
//! orphan file and the log that made the memtable; after it, the run. Versions of transactions that had not ended when
//! the run was written move to the new memtable, so that a long transaction pins nothing.

use crate::core::Core;
use crate::memtable::{Memtable, Version};
use crate::run::Run;
use crate::table::Table;
use crate::tree::{RunHandle, Tree, TreeState};
use crate::txn::{ABORTED, ACTIVE};
use crate::Result;
use esker_format::{CommitSeq, Lsn, Record, RowId, RunEntry, VersionTag};
use esker_trace::counters::{count, Counter};
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

    /// Puts a new memtable in place; false if the old one is empty.
    fn freeze(&self, tree: &Tree) -> Result<bool> {
        // With the commit lock: every commit before this LSN has stored its status word, every later one is logged
        // after it.
        let _commit = self.commit_lock.lock();
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
        // Commits before the next memtable's first LSN have all their versions here or below.
        let flushed_to = match state.frozen.len() {
            1 => state.active.first_lsn,
            n => state.frozen[n - 2].first_lsn,
        };
        let mut unfinished = Vec::new();
        let run = self.write_run(table, tree, &state, &mem, &mut unfinished)?;
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
        for (row, version) in unfinished {
            // SAFETY: the version is in `mem`, which the caller holds.
            self.carry(mem, active, *row, unsafe { &**version })?;
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

    /// Writes the committed versions of `mem` that somebody may still see; collects those of unended transactions.
    fn write_run(
        &self,
        table: &Table,
        tree: &Tree,
        state: &TreeState,
        mem: &Memtable,
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
                    ACTIVE => unfinished.push((n.row, std::ptr::from_ref(v))),
                    ABORTED => {}
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
                        let tag = VersionTag { seq: CommitSeq(seq), ordinal: v.ordinal, tombstone: v.tombstone };
                        writer.push(n.row, tag, v.packed())?;
                    }
                }
            }
        }
        writer.map(|w| w.finish()).transpose()
    }

    /// Moves a version to a newer memtable, with the status that its transaction has by now.
    fn carry(&self, from: &Memtable, to: &Arc<Memtable>, row: RowId, version: &Version) -> Result<()> {
        if !from.is_live(version) {
            return Ok(());
        }
        let slot = version.slot();
        let packed = (!version.tombstone).then(|| version.packed());
        let at = match self.writer(slot.txn) {
            Some(writer) => writer.slot_in(to)?,
            None => {
                // It has ended meanwhile, and its status stands in its old slot.
                if from.needs_from() < from.first_lsn {
                    to.also_needs(from.needs_from());
                }
                let at = to.new_slot(slot.txn)?;
                // SAFETY: just made.
                unsafe { (*at).end(slot.status()) };
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
