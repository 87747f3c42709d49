//! Joins runs and purges versions that no view needs.
//!
//! Any set of committed runs may be merged at any time: which version is visible is decided by commit sequence, not by
//! where a version lies. Order: new runs synced, folder synced, tree edit durable, tree state replaced, old files
//! unlinked when their last reader lets go. A crash before the edit is durable leaves orphans.

use crate::core::Core;
use crate::flush::run_entry;
use crate::run::{Block, Run};
use crate::run_writer::RunWriter;
use crate::table::Table;
use crate::tree::{RangeMark, RunHandle, Tree, TreeState};
use crate::{Error, Result};
use esker_format::{CommitSeq, Record, RowId, VersionTag};
use esker_trace::counters::{count, Counter};
use std::sync::Arc;
use std::time::Duration;

/// More small runs than this beside each other are joined.
const MOST_SMALL_RUNS: usize = 8;
/// A run below this is small, in bytes.
const SMALL_RUN_BYTES: u64 = 32 << 20;
/// Overlying versions beyond this share of the rows below them are merged down: one in ...
const OVERLAY_SHARE: u64 = 5;
/// More runs than this over one row are merged.
const MOST_LAYERS: usize = 6;
/// A merge's output run is closed at this size, in bytes.
const RUN_BYTES: u64 = 1 << 30;
/// Whoever waits for another merge looks this often whether it is still wanted.
const POLL: Duration = Duration::from_millis(20);

impl Core {
    /// Merges what most needs it in one tree; false if nothing does. `all`: everything into one sequence of runs.
    pub(crate) fn merge_once(&self, table: &Table, tree: &Arc<Tree>, all: bool) -> Result<bool> {
        self.merge_step(table, tree, all, &mut |_, _| true)
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
        let horizon = self.views.horizon();
        let inputs = if all { choose_all(&state, horizon) } else { choose(&state, horizon) };
        if inputs.is_empty() {
            return Ok(false);
        }
        self.merge(table, tree, &state, &inputs, progress)?;
        Ok(true)
    }

    /// Drops runs that range deletes cover entirely, and marks that cover nothing any more.
    fn drop_deleted(&self, tree: &Tree) -> Result<bool> {
        let horizon = self.views.horizon();
        let state = tree.snapshot();
        let marks: Vec<_> = state.marks.iter().filter(|m| m.owner.is_none() && m.seq <= horizon).cloned().collect();
        if marks.is_empty() {
            return Ok(false);
        }
        let dead: Vec<RunHandle> = state
            .runs
            .iter()
            .filter(|h| {
                h.seq_bounds().is_some_and(|(_, greatest)| {
                    marks.iter().any(|m| h.run.stats.max_id < m.up_to && greatest <= m.as_of)
                })
            })
            .cloned()
            .collect();
        if !dead.is_empty() {
            self.replace(tree, &dead, Vec::new())?;
            return Ok(true);
        }
        tree.edit(|s| {
            let oldest_memtable = s.memtables().filter(|m| !m.is_empty()).map(|m| m.first_lsn).min();
            let runs = &s.runs;
            s.marks.retain(|m| {
                let covers_run = runs
                    .iter()
                    .any(|h| h.run.stats.min_id < m.up_to && h.seq_bounds().is_none_or(|(least, _)| least <= m.seq));
                let covers_memory = oldest_memtable.is_some_and(|l| l.0 <= m.seq.0);
                m.owner.is_some() || m.seq > horizon || covers_run || covers_memory
            });
        });
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
        let mut merge = Merge::new(self, table, tree, state, inputs);
        let runs = match merge.run(progress) {
            Ok(()) => merge.done,
            Err(e) => {
                self.discard(std::mem::take(&mut merge.done));
                if let Error::Damage { file, .. } = &e {
                    // Left as it is: its rows are readable or not, but nothing is merged with them.
                    inputs.iter().filter(|h| h.run.path() == file).for_each(|h| h.run.set_damaged());
                }
                return Err(e);
            }
        };
        if !runs.is_empty() {
            self.sync_runs()?;
        }
        count(Counter::Merges, 1);
        count(Counter::MergedBytes, runs.iter().map(|r| r.size_bytes).sum());
        self.replace(tree, inputs, runs)
    }

    /// Puts `fresh` in the place of `old`, durably, and lets the old files go.
    fn replace(&self, tree: &Tree, old: &[RunHandle], fresh: Vec<Arc<Run>>) -> Result<()> {
        // No checkpoint between record and state: its manifest would name the old runs and its position pass the record.
        let _no_checkpoint = self.manifest_generation.lock();
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

fn choose_all(state: &TreeState, horizon: CommitSeq) -> Vec<RunHandle> {
    let all: Vec<RunHandle> = state.runs.iter().filter(|h| mergeable(h)).cloned().collect();
    let tidy = |h: &RunHandle| h.run.stats.tombstones == 0 && h.aborted.is_empty();
    let apart = all.windows(2).all(|w| w[0].run.stats.max_id < w[1].run.stats.min_id);
    if all.iter().all(tidy)
        && apart
        && all.len() <= 1 + (total_bytes(&all) / RUN_BYTES) as usize
        && state.marks.is_empty()
    {
        return Vec::new();
    }
    if apart && !may_shrink(&all.iter().collect::<Vec<_>>(), &state.marks, horizon) {
        return Vec::new();
    }
    all
}

/// Would merging these runs purge anything? Not if merges made them all and the horizon has not passed what they kept.
fn may_shrink(group: &[&RunHandle], marks: &[RangeMark], horizon: CommitSeq) -> bool {
    // Versions that a view may still need are not purged: less than two layers below the horizon have nothing to lose.
    let below = |h: &&&RunHandle| h.seq_bounds().is_some_and(|(least, _)| least <= horizon);
    let many = || total_layers(group) > 4 * MOST_LAYERS;
    if group.len() > 1 && marks.is_empty() && group.iter().filter(below).count() < 2 && !many() {
        return false;
    }
    let newest = group.iter().filter_map(|h| h.seq_bounds()).map(|(_, greatest)| greatest);
    let newest = newest.chain(marks.iter().filter(|m| m.owner.is_none()).map(|m| m.seq)).max().unwrap_or_default();
    group.iter().any(|h| {
        let made = h.run.merged_at();
        made == CommitSeq::ZERO || (made < newest && newest <= horizon)
    })
}

/// Does a mark that every view sees delete some of the run's rows?
fn partly_deleted(handle: &RunHandle, marks: &[RangeMark], horizon: CommitSeq) -> bool {
    let Some((least, _)) = handle.seq_bounds() else { return false };
    // A run that was merged since has lost them.
    let new = |m: &&RangeMark| m.owner.is_none() && m.seq <= horizon && handle.run.merged_at() < m.seq;
    marks.iter().filter(new).any(|m| handle.run.stats.min_id < m.up_to && least <= m.as_of)
}

/// Committed, and as far as is known whole.
fn mergeable(handle: &RunHandle) -> bool {
    handle.owner.is_none() && handle.run.unreadable().is_none() && !handle.run.is_damaged()
}

fn total_bytes(runs: &[RunHandle]) -> u64 {
    runs.iter().map(|h| h.run.size_bytes).sum()
}

/// The runs to merge next: those that overlap too much, or small ones beside each other.
fn choose(state: &TreeState, horizon: CommitSeq) -> Vec<RunHandle> {
    let worth = |group: &[&RunHandle]| worth_merging(group) && may_shrink(group, &[], horizon);
    let runs: Vec<&RunHandle> = state.runs.iter().filter(|h| mergeable(h)).collect();
    if let Some(handle) = runs.iter().find(|h| partly_deleted(h, &state.marks, horizon)) {
        return vec![(*handle).clone()];
    }
    let mut group: Vec<&RunHandle> = Vec::new();
    let mut end = RowId::ZERO;
    for (i, handle) in runs.iter().enumerate() {
        if group.is_empty() || handle.run.stats.min_id <= end {
            group.push(handle);
        } else {
            if worth(&group) {
                return group.into_iter().cloned().collect();
            }
            group = vec![runs[i]];
            end = RowId::ZERO;
        }
        end = end.max(handle.run.stats.max_id);
    }
    if worth(&group) {
        return group.into_iter().cloned().collect();
    }
    let small: Vec<RunHandle> =
        runs.iter().filter(|h| h.run.size_bytes < SMALL_RUN_BYTES).map(|h| (*h).clone()).collect();
    if small.len() > MOST_SMALL_RUNS {
        return small;
    }
    Vec::new()
}

/// Does a group of overlapping runs hold enough superseded rows, or too many layers?
fn worth_merging(group: &[&RunHandle]) -> bool {
    let rows: u64 = group.iter().map(|h| h.run.stats.rows).sum();
    let tombstones: u64 = group.iter().map(|h| h.run.stats.tombstones).sum();
    if tombstones * OVERLAY_SHARE > rows && rows > 0 {
        return true;
    }
    if group.len() < 2 {
        return false;
    }
    // Rows of a group beyond its span of ids are newer versions; loads that ran beside each other interleave only.
    let first = group.iter().map(|h| h.run.stats.min_id.0).min().unwrap_or(0);
    let last = group.iter().map(|h| h.run.stats.max_id.0).max().unwrap_or(0);
    let over = rows.saturating_sub(last - first + 1) + tombstones;
    over * OVERLAY_SHARE > rows || (group.len() > MOST_LAYERS && total_layers(group) > MOST_LAYERS)
}

/// The most runs that lie over one row.
fn total_layers(group: &[&RunHandle]) -> usize {
    group
        .iter()
        .map(|h| {
            let at = h.run.stats.min_id;
            group.iter().filter(|o| o.run.stats.min_id <= at && at <= o.run.stats.max_id).count()
        })
        .max()
        .unwrap_or(0)
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
    ids: Vec<esker_format::FileId>,
    horizon: CommitSeq,
    writer: Option<RunWriter>,
    done: Vec<Arc<Run>>,
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
}

impl<'a> Merge<'a> {
    fn new(core: &'a Core, table: &'a Table, tree: &'a Arc<Tree>, state: &'a TreeState, inputs: &[RunHandle]) -> Self {
        Merge {
            core,
            table,
            tree,
            state,
            ids: inputs.iter().map(|h| h.run.file_id).collect(),
            inputs: inputs.iter().map(|h| Input { handle: h.clone(), index: 0, block: None, at: 0 }).collect(),
            horizon: core.views.horizon(),
            writer: None,
            done: Vec::new(),
            blocks: (0, inputs.iter().map(|h| h.run.entries.len() as u64).sum()),
        }
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
        for v in versions {
            let mut marks = self.state.marks.iter().filter(|m| m.owner.is_none() && m.seq <= self.horizon);
            // Of one transaction's versions only the newest counts.
            if settled || v.order.0 == last_seq || marks.any(|m| m.deletes(row, v.order)) {
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
            self.push(row, v, packed)?;
        }
        Ok(())
    }

    fn push(&mut self, row: RowId, v: &Candidate, packed: &[u8]) -> Result<()> {
        if self.writer.as_ref().is_some_and(|w| w.size_bytes() >= RUN_BYTES) {
            if let Some(full) = self.writer.take() {
                self.done.push(full.finish()?);
            }
        }
        let writer = match &mut self.writer {
            Some(w) => w,
            None => self.writer.insert(self.core.run_writer(self.table, self.tree)?),
        };
        let tag = VersionTag { seq: CommitSeq(v.order.0), ordinal: v.order.1, tombstone: v.tombstone };
        writer.push(row, tag, packed)
    }

    /// May an older version of `row` lie in a run that is not merged now?
    fn lies_elsewhere(&self, row: RowId) -> bool {
        self.state.runs.iter().any(|h| {
            let stats = &h.run.stats;
            stats.min_id <= row && row <= stats.max_id && !self.ids.contains(&h.run.file_id)
        }) || self.state.memtables().any(|m| m.seek(row).is_some_and(|n| n.row == row))
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
            self.done.push(writer.finish()?);
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
            if self.index >= self.handle.run.entries.len() {
                return Ok(None);
            }
            self.block = Some(Arc::new(self.handle.run.read_block(self.index)?));
            *blocks += 1;
        }
    }
}

impl Core {
    /// Does anything in the tree want merging, under a horizon of this round?
    pub(crate) fn wants_merge(&self, tree: &Tree, horizon: CommitSeq) -> bool {
        let state = tree.snapshot();
        state.marks.iter().any(|m| m.owner.is_none()) || !choose(&state, horizon).is_empty()
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
            if choose_all(&state, self.views.horizon()).is_empty() || state.runs.iter().any(|h| h.owner.is_some()) {
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
