//! Joins runs and purges versions that no view needs.
//!
//! Any set of committed runs may be merged at any time: which version is visible is decided by commit sequence, not by
//! where a version lies. Order: new runs synced, folder synced, tree edit durable, tree state replaced, old files
//! unlinked when their last reader lets go. A crash before the edit is durable leaves orphans.

use crate::catalog::table::{with_tree, Table};
use crate::core::Core;
use crate::tree::run::health::State;
use crate::tree::run::Run;
use crate::tree::stored::Stored;
use crate::tree::{RunHandle, Tree, TreeState};
use crate::upkeep::choose::{any_unsound, Choice, Step};
use crate::upkeep::flush::run_entry;
use crate::{Error, Result};
use esker_base::counters::{count, Counter};
use esker_format::{CommitSeq, FileId, Record};
use esker_io::{IoError, IoKind};
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;
use step::{Merge, Outcome};

mod step;

/// Whoever waits for another merge looks this often whether it is still wanted.
const POLL: Duration = Duration::from_millis(20);

impl Core {
    /// Merges what most needs it in one tree; false if nothing does. `all`: everything into one sequence of runs.
    ///
    /// What it fails with leaves the tree as it was, and can be tried again, unless the engine stops by it: a run that
    /// cannot be read is set aside and the next call leaves it alone; what could not be written is discarded, and the
    /// tree left alone for a while.
    pub(crate) fn merge_once<K: Stored>(&self, table: &Table, tree: &Arc<Tree<K>>, all: bool) -> Result<bool> {
        self.merge_step(table, tree, all, &mut |_, _| true)
    }

    /// The same, unless somebody merges the tree already.
    pub(crate) fn merge_unless_busy<K: Stored>(&self, table: &Table, tree: &Arc<Tree<K>>) -> Result<bool> {
        // Told of no blocks while it waits for the tree.
        match self.merge_step(table, tree, false, &mut |_, blocks| blocks > 0) {
            Err(Error::Interrupted) => Ok(false),
            merged => merged,
        }
    }

    /// As [`merge_once`](Self::merge_once), telling `progress` blocks done and blocks there are; false stops it.
    fn merge_step<K: Stored>(
        &self,
        table: &Table,
        tree: &Arc<Tree<K>>,
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
        let Some(step) = (if all { choice.all() } else { choice.next().0 }) else { return Ok(false) };
        self.merge(table, tree, &state, &step, progress)?;
        Ok(true)
    }

    fn choice<'a, K: Stored>(&self, state: &'a TreeState<K>, horizon: CommitSeq) -> Choice<'a, K> {
        Choice { state, horizon, run_bytes: self.options.run_bytes }
    }

    /// Drops runs that range deletes cover entirely, and marks that cover nothing any more.
    fn drop_deleted<K: Stored>(&self, tree: &Tree<K>) -> Result<bool> {
        let horizon = self.views.horizon();
        let state = tree.snapshot();
        let dead = deleted_runs(&state, horizon);
        if !dead.is_empty() {
            self.replace(tree, &dead, Outcome { runs: Vec::new(), left: Vec::new() })?;
            return Ok(true);
        }
        if state.has_needless_marks(horizon) {
            tree.edit(|s| s.drop_needless_marks(horizon));
        }
        Ok(false)
    }

    fn merge<K: Stored>(
        &self,
        table: &Table,
        tree: &Arc<Tree<K>>,
        state: &TreeState<K>,
        step: &Step<K>,
        progress: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<()> {
        let now_ms = self.cache.files.clock.now_ms();
        self.check_space(step).inspect_err(|_| tree.merge_health.failed(0, State::SetAside, now_ms))?;
        let mut merge = Merge::new(self, table, tree, state, step)?;
        let outcome = match merge.run(progress) {
            Ok(outcome) => outcome,
            Err(e) => {
                self.discard(merge.take_done());
                // A run that could not be read is set aside alone.
                if merge.cannot_write || e.is_want_of_resources() {
                    tree.merge_health.failed(0, State::SetAside, now_ms);
                }
                return Err(e);
            }
        };
        let runs = &outcome.runs;
        if !runs.is_empty() {
            if let Err(e) = self.sync_runs() {
                // Nothing names the new runs.
                self.discard(outcome.runs);
                return Err(e);
            }
        }
        count(Counter::Merges, 1);
        count(Counter::MergedBytes, runs.iter().map(|r| r.size_bytes()).sum());
        // A step that cannot be logged would be made again and again.
        self.replace(tree, &step.inputs, outcome)
            .inspect_err(|_| tree.merge_health.failed(0, State::SetAside, now_ms))?;
        tree.merge_health.succeeded(0);
        Ok(())
    }

    /// Refuses a merge for which the disk has no room, before it fills what is left.
    fn check_space<K: Stored>(&self, step: &Step<K>) -> Result<()> {
        let share = |h: &RunHandle<K>| h.share(K::lend(&step.first), K::lend(&step.last));
        let part = |h: &RunHandle<K>| (h.run.size_bytes() as f64 * share(h)) as u64;
        let bytes: u64 = step.inputs.iter().map(part).sum();
        let bytes = if step.bounded { bytes.min(3 * self.options.run_bytes) } else { bytes };
        // A disk that cannot tell says so when it is full.
        let free = self.disk.free_bytes(&self.runs_dir).unwrap_or(u64::MAX);
        if free < bytes {
            let why = format!("{bytes} bytes may be needed, {free} are free");
            return Err(Error::DiskFull(IoError::new("merge in", &self.runs_dir, None, IoKind::DiskFull, why)));
        }
        Ok(())
    }

    /// Puts what a merge made in the place of `old`, durably, and lets the files go of which nothing is left.
    fn replace<K: Stored>(&self, tree: &Tree<K>, old: &[RunHandle<K>], made: Outcome<K>) -> Result<()> {
        let fresh: Vec<RunHandle<K>> = made.runs.into_iter().map(RunHandle::committed).chain(made.left).collect();
        let is_old = |h: &RunHandle<K>| old.iter().any(|o| o.is(h));
        let is_new = |run: &Arc<Run<K>>| !old.iter().any(|o| Arc::ptr_eq(&o.run, run));
        // No checkpoint between record and state: its manifest would name the old runs and its position pass the record.
        let _no_checkpoint = self.manifest.lock();
        if self.tree_exists(tree.id) {
            let state = tree.snapshot();
            // A file that leaves takes all its parts: those that stay join again.
            let stay = state.runs.iter().filter(|h| !is_new(&h.run) && !is_old(h));
            let files: BTreeSet<FileId> = old.iter().map(|h| h.run.file_id).collect();
            let edit = Record::TreeEdit {
                tree: tree.id,
                add: fresh.iter().chain(stay).map(|h| run_entry(h, h.seq)).collect(),
                remove: files.into_iter().collect(),
                flushed_to: state.flushed_to,
            };
            let mut bytes = Vec::new();
            edit.encode(&mut bytes);
            let appended = match self.wal.append(&bytes) {
                Ok(appended) => appended,
                Err(e) => {
                    // Nothing names the new runs.
                    self.discard(fresh.into_iter().map(|h| h.run).filter(is_new).collect());
                    return Err(e.into());
                }
            };
            // Durable before the old files go.
            self.wal.wait_durable(appended.end)?;
        }
        #[cfg(test)]
        tests::before_the_state_changes();
        let parts = fresh.iter().filter(|h| !is_new(&h.run)).count();
        count(Counter::RunsNarrowed, parts as u64);
        let gone = tree.edit(|s| {
            s.runs.retain(|h| !is_old(h));
            fresh.into_iter().for_each(|h| s.add_run(h));
            let mut gone: Vec<Arc<Run<K>>> = old.iter().map(|h| h.run.clone()).collect();
            gone.retain(|run| !s.runs.iter().any(|h| Arc::ptr_eq(&h.run, run)));
            gone
        });
        self.discard(gone);
        // After the edit: a DROP TABLE that came before it has not met the new runs.
        if !self.tree_exists(tree.id) {
            self.empty(tree);
        }
        Ok(())
    }
}

/// Runs of which a mark that every view sees leaves nothing.
fn deleted_runs<K: Stored>(state: &TreeState<K>, horizon: CommitSeq) -> Vec<RunHandle<K>> {
    let marks = state.marks_at(horizon);
    let dead = |h: &&RunHandle<K>| marks.iter().any(|m| m.deletes_all_of(h));
    if marks.is_empty() {
        Vec::new()
    } else {
        state.runs.iter().filter(dead).cloned().collect()
    }
}

impl Core {
    /// Does anything in the tree want merging, under a horizon of this round? Cheap where nothing changed since the last
    /// no.
    pub(crate) fn wants_merge<K: Stored>(&self, tree: &Tree<K>, horizon: CommitSeq) -> bool {
        let state = tree.snapshot();
        let nothing = state.runs.is_empty() && state.marks.is_empty();
        if nothing {
            tree.merge_debt_bytes.store(0, Ordering::Relaxed);
        }
        if nothing || tree.nothing_to_merge.load(Ordering::Relaxed) == state.edits() {
            return false;
        }
        if tree.merge_health.left_alone(self.cache.files.clock.now_ms()) {
            // Nobody is slowed down for a merge that cannot be made.
            tree.merge_debt_bytes.store(0, Ordering::Relaxed);
            return false;
        }
        let wants = |horizon| {
            let (step, debt_bytes) = self.choice(&state, horizon).next();
            let marked = || state.has_needless_marks(horizon) || !deleted_runs(&state, horizon).is_empty();
            (step.is_some() || marked(), debt_bytes)
        };
        let (now, debt_bytes) = wants(horizon);
        tree.merge_debt_bytes.store(debt_bytes, Ordering::Relaxed);
        if now {
            return true;
        }
        // Time brings nothing but a higher horizon, and runs back that were set aside.
        if !any_unsound(&state) && state.marks.is_empty() && !wants(CommitSeq(u64::MAX)).0 {
            tree.nothing_to_merge.store(state.edits(), Ordering::Relaxed);
        }
        false
    }

    /// Merges everything in a table, and gives the space of what nobody sees back. `progress` gets blocks done and
    /// blocks there are in the merge under way; false stops it, and what was merged until then stays so.
    pub(crate) fn optimize(&self, table: &Table, progress: &mut dyn FnMut(u64, u64) -> bool) -> Result<()> {
        table.trees().all().try_for_each(|tree| with_tree!(tree, tree => self.optimize_tree(table, &tree, progress)))
    }

    fn optimize_tree<K: Stored>(
        &self,
        table: &Table,
        tree: &Arc<Tree<K>>,
        progress: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<()> {
        self.flush(table, tree)?;
        loop {
            let merged = match self.merge_step(table, tree, true, progress) {
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
            if self.choice(&state, self.views.horizon()).all().is_none() || state.runs.iter().any(|h| h.owner.is_some())
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
mod cost;
#[cfg(test)]
mod parts;
#[cfg(test)]
mod tests;
