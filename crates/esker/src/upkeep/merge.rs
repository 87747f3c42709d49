//! Joins runs and purges versions that no view needs.
//!
//! Any set of committed runs may be merged at any time: which version is visible is decided by commit sequence, not by
//! where a version lies. Order: new runs synced, folder synced, tree edit durable, tree state replaced, old files
//! unlinked when their last reader lets go. A crash before the edit is durable leaves orphans.

use crate::catalog::table::Table;
use crate::core::Core;
use crate::tree::run::health::State;
use crate::tree::run::writer::RunWriter;
use crate::tree::run::{Block, Run};
use crate::tree::{RangeMark, RunHandle, Tree, TreeState};
use crate::upkeep::choose::{any_unsound, Choice};
use crate::upkeep::flush::run_entry;
use crate::{Error, Result};
use esker_base::counters::{count, Counter};
use esker_format::{CommitSeq, FileId, Record, RowId, VersionTag};
use esker_io::{IoError, IoKind};
use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;

/// Whoever waits for another merge looks this often whether it is still wanted.
const POLL: Duration = Duration::from_millis(20);

impl Core {
    /// Merges what most needs it in one tree; false if nothing does. `all`: everything into one sequence of runs.
    ///
    /// What it fails with leaves the tree as it was, and can be tried again, unless the engine stops by it: a run that
    /// cannot be read is set aside and the next call leaves it alone; what could not be written is discarded, and the
    /// tree left alone for a while.
    pub(crate) fn merge_once(&self, table: &Table, tree: &Arc<Tree>, all: bool) -> Result<bool> {
        self.merge_step(table, tree, all, &mut |_, _| true)
    }

    /// The same, unless somebody merges the tree already.
    pub(crate) fn merge_unless_busy(&self, table: &Table, tree: &Arc<Tree>) -> Result<bool> {
        // Told of no blocks while it waits for the tree.
        match self.merge_step(table, tree, false, &mut |_, blocks| blocks > 0) {
            Err(Error::Interrupted) => Ok(false),
            merged => merged,
        }
    }

    /// As [`merge_once`](Self::merge_once), telling `progress` blocks done and blocks there are; false stops it.
    fn merge_step(
        &self,
        table: &Table,
        tree: &Arc<Tree>,
        all: bool,
        progress: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<bool> {
        let _merging = loop {
            // A merge in the background may hold it for long.
            match tree.merging.try_lock() {
                Some(guard) => break guard,
                None if !progress(0, 0) => return Err(Error::Interrupted),
                None => std::thread::sleep(POLL),
            }
        };
        self.check_writable()?;
        if self.drop_deleted(tree)? {
            return Ok(true);
        }
        let state = tree.snapshot();
        let choice = self.choice(&state, self.views.horizon());
        let inputs = if all { choice.all() } else { choice.next() };
        if inputs.is_empty() {
            return Ok(false);
        }
        self.merge(table, tree, &state, &inputs, progress)?;
        Ok(true)
    }

    fn choice<'a>(&self, state: &'a TreeState, horizon: CommitSeq) -> Choice<'a> {
        Choice { state, horizon, run_bytes: self.options.run_bytes }
    }

    /// Drops runs that range deletes cover entirely, and marks that cover nothing any more.
    fn drop_deleted(&self, tree: &Tree) -> Result<bool> {
        let horizon = self.views.horizon();
        let state = tree.snapshot();
        let dead = deleted_runs(&state, horizon);
        if !dead.is_empty() {
            self.replace(tree, &dead, Vec::new())?;
            return Ok(true);
        }
        if state.has_needless_marks(horizon) {
            tree.edit(|s| s.drop_needless_marks(horizon));
        }
        Ok(false)
    }

    fn merge(
        &self,
        table: &Table,
        tree: &Arc<Tree>,
        state: &TreeState,
        inputs: &[RunHandle],
        progress: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<()> {
        let now_ms = self.cache.files.clock.now_ms();
        self.check_space(inputs).inspect_err(|_| tree.merge_health.failed(0, State::SetAside, now_ms))?;
        let mut merge = Merge::new(self, table, tree, state, inputs)?;
        let runs = match merge.run(progress) {
            Ok(()) => merge.done,
            Err(e) => {
                self.discard(std::mem::take(&mut merge.done));
                // A run that could not be read is set aside alone.
                if merge.cannot_write || e.is_want_of_resources() {
                    tree.merge_health.failed(0, State::SetAside, now_ms);
                }
                return Err(e);
            }
        };
        tree.merge_health.succeeded(0);
        if !runs.is_empty() {
            if let Err(e) = self.sync_runs() {
                // Nothing names the new runs.
                self.discard(runs);
                return Err(e);
            }
        }
        count(Counter::Merges, 1);
        count(Counter::MergedBytes, runs.iter().map(|r| r.size_bytes()).sum());
        self.replace(tree, inputs, runs)
    }

    /// Refuses a merge for which the disk has no room, before it fills what is left.
    fn check_space(&self, inputs: &[RunHandle]) -> Result<()> {
        let bytes: u64 = inputs.iter().map(|h| h.run.size_bytes()).sum();
        // A disk that cannot tell says so when it is full.
        let free = self.disk.free_bytes(&self.runs_dir).unwrap_or(u64::MAX);
        if free < bytes {
            let why = format!("{bytes} bytes may be needed, {free} are free");
            return Err(Error::DiskFull(IoError::new("merge in", &self.runs_dir, None, IoKind::DiskFull, why)));
        }
        Ok(())
    }

    /// Puts `fresh` in the place of `old`, durably, and lets the old files go.
    fn replace(&self, tree: &Tree, old: &[RunHandle], fresh: Vec<Arc<Run>>) -> Result<()> {
        // No checkpoint between record and state: its manifest would name the old runs and its position pass the record.
        let _no_checkpoint = self.manifest.lock();
        if self.tree_exists(tree.id) {
            let edit = Record::TreeEdit {
                tree: tree.id,
                add: fresh.iter().map(|r| run_entry(r, CommitSeq::ZERO, &[])).collect(),
                remove: old.iter().map(|h| h.run.file_id).collect(),
                flushed_to: tree.snapshot().flushed_to,
            };
            let mut bytes = Vec::new();
            edit.encode(&mut bytes);
            let appended = match self.wal.append(&bytes) {
                Ok(appended) => appended,
                Err(e) => {
                    // Nothing names the new runs.
                    self.discard(fresh);
                    return Err(e.into());
                }
            };
            // Durable before the old files go.
            self.wal.wait_durable(appended.end)?;
        }
        #[cfg(test)]
        tests::before_the_state_changes();
        tree.edit(|s| {
            s.runs.retain(|h| !old.iter().any(|o| Arc::ptr_eq(&o.run, &h.run)));
            for run in fresh {
                s.add_run(RunHandle { run, owner: None, seq: CommitSeq::ZERO, aborted: Arc::default() });
            }
        });
        self.discard(old.iter().map(|h| h.run.clone()).collect());
        // After the edit: a DROP TABLE that came before it has not met the new runs.
        if !self.tree_exists(tree.id) {
            self.empty(tree);
        }
        Ok(())
    }
}

/// Runs of which a mark that every view sees leaves nothing.
fn deleted_runs(state: &TreeState, horizon: CommitSeq) -> Vec<RunHandle> {
    let marks = state.marks_at(horizon);
    let dead = |h: &&RunHandle| marks.iter().any(|m| m.deletes_all_of(h));
    if marks.is_empty() {
        Vec::new()
    } else {
        state.runs.iter().filter(dead).cloned().collect()
    }
}

struct Input {
    handle: RunHandle,
    index: usize,
    block: Option<Arc<Block>>,
    at: u32,
}

struct Merge<'a> {
    core: &'a Core,
    table: &'a Table,
    tree: &'a Arc<Tree>,
    state: &'a TreeState,
    inputs: Vec<Input>,
    ids: HashSet<FileId>,
    horizon: CommitSeq,
    /// The marks that every view sees and that count.
    marks: &'a [RangeMark],
    writer: Option<RunWriter>,
    done: Vec<Arc<Run>>,
    /// What it failed with is about its output.
    cannot_write: bool,
    /// Blocks of the inputs: read so far, and in all.
    blocks: (u64, u64),
}

struct Candidate {
    order: (u64, u64),
    input: usize,
    index: usize,
    block: Arc<Block>,
    at: u32,
    tombstone: bool,
    supersedes: bool,
}

impl<'a> Merge<'a> {
    fn new(
        core: &'a Core,
        table: &'a Table,
        tree: &'a Arc<Tree>,
        state: &'a TreeState,
        inputs: &[RunHandle],
    ) -> Result<Self> {
        inputs.iter().try_for_each(|h| h.run.load())?;
        let horizon = core.views.horizon();
        Ok(Merge {
            core,
            table,
            tree,
            state,
            ids: inputs.iter().map(|h| h.run.file_id).collect(),
            inputs: inputs.iter().map(|h| Input { handle: h.clone(), index: 0, block: None, at: 0 }).collect(),
            horizon,
            marks: state.marks_at(horizon),
            writer: None,
            done: Vec::new(),
            cannot_write: false,
            blocks: (0, inputs.iter().map(|h| h.run.entries().len() as u64).sum()),
        })
    }

    fn run(&mut self, progress: &mut dyn FnMut(u64, u64) -> bool) -> Result<()> {
        let (mut versions, mut packed) = (Vec::new(), Vec::new());
        let mut told = 0;
        while let Some(row) = self.least()? {
            if self.blocks.0 != told {
                told = self.blocks.0;
                let (done, total) = self.blocks;
                if self.is_unwanted() || !progress(done, total) {
                    return Err(Error::Interrupted);
                }
            }
            self.collect(row, &mut versions)?;
            versions.sort_by_key(|v: &Candidate| std::cmp::Reverse(v.order));
            versions.dedup_by_key(|v| v.order);
            self.keep(row, &versions, &mut packed)?;
            versions.clear();
        }
        self.finish()
    }

    /// Is the engine being closed, or the table dropped or emptied?
    fn is_unwanted(&self) -> bool {
        self.core.signals.stopping() || self.table.is_dropped() || !Arc::ptr_eq(&self.table.tree(), self.tree)
    }

    /// Writes the versions of a row that somebody may still see.
    fn keep(&mut self, row: RowId, versions: &[Candidate], packed: &mut Vec<u8>) -> Result<()> {
        let (mut settled, mut last_seq) = (false, 0);
        // All versions of a row go to one run.
        self.close_full()?;
        for (i, v) in versions.iter().enumerate() {
            // Of one transaction's versions only the newest counts.
            if settled || v.order.0 == last_seq || self.marks.iter().any(|m| m.deletes(row, v.order)) {
                count(Counter::RowsPurged, 1);
                continue;
            }
            last_seq = v.order.0;
            settled = v.order.0 <= self.horizon.0;
            if settled && v.tombstone && !self.lies_elsewhere(row) {
                count(Counter::RowsPurged, 1);
                continue;
            }
            packed.clear();
            if !v.tombstone {
                let run = &self.inputs[v.input].handle.run;
                v.block.packed(v.at, packed).map_err(|e| run.damage(v.index, e))?;
            }
            // Whatever was older is purged with this merge, if it was all among its inputs.
            let is_last = settled && i + 1 < versions.len();
            let supersedes = v.supersedes && (v.tombstone || !is_last || self.lies_elsewhere(row));
            let tag = VersionTag { seq: CommitSeq(v.order.0), ordinal: v.order.1, tombstone: v.tombstone, supersedes };
            self.push(row, tag, packed)?;
        }
        Ok(())
    }

    fn push(&mut self, row: RowId, tag: VersionTag, packed: &[u8]) -> Result<()> {
        let pushed = match &mut self.writer {
            Some(w) => w.push(row, tag, packed),
            None => {
                self.core.run_writer(self.table, self.tree).and_then(|w| self.writer.insert(w).push(row, tag, packed))
            }
        };
        self.written(pushed)
    }

    /// An error of what is being written: it is given up, nothing needs it, and the message says so.
    fn written<T>(&mut self, result: Result<T>) -> Result<T> {
        self.cannot_write |= result.is_err();
        result.map_err(|e| match e {
            Error::Io(mut e) => {
                e.message.push_str("; what was merged is discarded, nothing is lost");
                Error::Io(e)
            }
            e => e,
        })
    }

    /// Ends the run that is written if it is full.
    fn close_full(&mut self) -> Result<()> {
        match self.writer.take_if(|w| w.size_bytes() >= self.core.options.run_bytes) {
            Some(full) => self.close(full),
            None => Ok(()),
        }
    }

    fn close(&mut self, writer: RunWriter) -> Result<()> {
        let run = self.written(writer.finish())?;
        self.done.push(run);
        Ok(())
    }

    /// May an older version of `row` lie in a run that is not merged now?
    fn lies_elsewhere(&self, row: RowId) -> bool {
        self.state.runs_at(row).any(|h| !self.ids.contains(&h.run.file_id))
            || self.state.memtables().any(|m| m.get(row).is_some())
    }

    /// The least row that any input stands on.
    fn least(&mut self) -> Result<Option<RowId>> {
        let mut least = None;
        for input in &mut self.inputs {
            if let Some(row) = input.row(&mut self.blocks.0)? {
                if least.is_none_or(|l| row < l) {
                    least = Some(row);
                }
            }
        }
        Ok(least)
    }

    fn collect(&mut self, row: RowId, versions: &mut Vec<Candidate>) -> Result<()> {
        for (i, input) in self.inputs.iter_mut().enumerate() {
            while input.row(&mut self.blocks.0)? == Some(row) {
                let Some(block) = input.block.clone() else {
                    break;
                };
                let tag = block.tag(input.at);
                let seq = if input.handle.seq == CommitSeq::ZERO { tag.seq } else { input.handle.seq };
                if !input.handle.aborted.contains(tag.ordinal) {
                    versions.push(Candidate {
                        order: (seq.0, tag.ordinal),
                        input: i,
                        index: input.index,
                        block,
                        at: input.at,
                        tombstone: tag.tombstone,
                        supersedes: tag.supersedes,
                    });
                }
                input.at += 1;
            }
        }
        Ok(())
    }

    /// Closes the last run.
    fn finish(&mut self) -> Result<()> {
        if let Some(writer) = self.writer.take() {
            self.close(writer)?;
        }
        self.done.iter().for_each(|run| run.set_merged_at(self.horizon));
        Ok(())
    }
}

impl Input {
    /// The row it stands on; `None` at the end. Blocks are read past the cache, and counted.
    fn row(&mut self, blocks: &mut u64) -> Result<Option<RowId>> {
        loop {
            if let Some(block) = &self.block {
                if self.at < block.rows() {
                    return Ok(Some(block.row_id(self.at)));
                }
                self.block = None;
                self.index += 1;
                self.at = 0;
            }
            if self.index >= self.handle.run.entries().len() {
                return Ok(None);
            }
            self.block = Some(Arc::new(self.handle.run.read_block(self.index)?));
            *blocks += 1;
        }
    }
}

impl Core {
    /// Does anything in the tree want merging, under a horizon of this round? Cheap where nothing changed since the last
    /// no.
    pub(crate) fn wants_merge(&self, tree: &Tree, horizon: CommitSeq) -> bool {
        let state = tree.snapshot();
        let nothing = state.runs.is_empty() && state.marks.is_empty();
        if nothing || tree.nothing_to_merge.load(Ordering::Relaxed) == state.edits() {
            return false;
        }
        if tree.merge_health.left_alone(self.cache.files.clock.now_ms()) {
            return false;
        }
        let wants = |horizon| {
            state.has_needless_marks(horizon)
                || !deleted_runs(&state, horizon).is_empty()
                || !self.choice(&state, horizon).next().is_empty()
        };
        if wants(horizon) {
            return true;
        }
        // Time brings nothing but a higher horizon, and runs back that were set aside.
        if !any_unsound(&state) && state.marks.is_empty() && !wants(CommitSeq(u64::MAX)) {
            tree.nothing_to_merge.store(state.edits(), Ordering::Relaxed);
        }
        false
    }

    /// Merges everything in a table, and gives the space of what nobody sees back. `progress` gets blocks done and
    /// blocks there are in the merge under way; false stops it, and what was merged until then stays so.
    pub(crate) fn optimize(&self, table: &Table, progress: &mut dyn FnMut(u64, u64) -> bool) -> Result<()> {
        let tree = table.tree();
        self.flush(table, &tree)?;
        loop {
            let merged = match self.merge_step(table, &tree, true, progress) {
                Err(Error::Interrupted) if !self.tree_exists(tree.id) => false,
                merged => merged?,
            };
            if !self.tree_exists(tree.id) {
                return Err(Error::NoSuchTable(table.name()));
            }
            if !merged {
                return Ok(());
            }
            let state = tree.snapshot();
            if self.choice(&state, self.views.horizon()).all().is_empty()
                || state.runs.iter().any(|h| h.owner.is_some())
            {
                return Ok(());
            }
            // Views that keep old versions would make this go round for ever.
            if self.views.horizon() < self.views.visible_seq() {
                return Ok(());
            }
            if !progress(0, 0) {
                return Err(Error::Interrupted);
            }
        }
    }
}

#[cfg(test)]
mod tests;
