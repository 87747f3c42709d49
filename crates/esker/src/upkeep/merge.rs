//! Joins runs and purges versions that no view needs.
//!
//! Any set of committed runs may be merged at any time: which version is visible is decided by commit sequence, not by
//! where a version lies. Order: new runs synced, folder synced, tree edit durable, tree state replaced, old files
//! unlinked when their last reader lets go. A crash before the edit is durable leaves orphans.

use crate::catalog::table::{with_tree, Table};
use crate::core::Core;
use crate::tree::looks::READ_REST;
use crate::tree::run::health::State;
use crate::tree::run::Run;
use crate::tree::stored::Stored;
use crate::tree::{RunHandle, Tree, TreeState};
use crate::txn::views::SeenByViews;
use crate::upkeep::choose::{any_unsound, AtRest, Choice, Step, Sweep};
use crate::upkeep::discard;
use crate::upkeep::flush::{self, run_entry};
use crate::upkeep::next_flush::REST;
use crate::{Error, Result};
use esker_base::counters::{count, Counter};
use esker_base::lock::MutexGuard;
use esker_format::{CommitSeq, FileId, Record};
use esker_io::{IoError, IoKind};
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;
use step::{Merge, Outcome};

mod input;
mod step;

/// Whoever waits for another merge looks this often whether it is still wanted.
const POLL: Duration = Duration::from_millis(20);

/// What a step came to.
pub(crate) enum StepOutcome<K: Stored> {
    /// There was nothing to do.
    Nothing,
    /// Runs or marks that were deleted as a whole are gone.
    Dropped,
    /// It merged; where a sweep goes on.
    Merged(Sweep<K::Own>),
}

/// Merges what most needs it in one tree; false if nothing does.
///
/// What it fails with leaves the tree as it was, and can be tried again, unless the engine stops by it: a run that
/// cannot be read is set aside and the next call leaves it alone; what could not be written is discarded, and the
/// tree left alone for a while.
pub(crate) fn once<K: Stored>(core: &Core, table: &Table, tree: &Arc<Tree<K>>) -> Result<bool> {
    Ok(!matches!(one_step(core, table, tree, None, &mut |_, _| true)?, StepOutcome::Nothing))
}

/// The first step of everything, as often as it comes to something.
#[cfg(test)]
pub(crate) fn once_of_all<K: Stored>(core: &Core, table: &Table, tree: &Arc<Tree<K>>) -> Result<bool> {
    Ok(!matches!(one_step(core, table, tree, Some(&Sweep::Begin), &mut |_, _| true)?, StepOutcome::Nothing))
}

/// The same, unless somebody merges the tree already.
pub(crate) fn once_unless_busy<K: Stored>(core: &Core, table: &Table, tree: &Arc<Tree<K>>) -> Result<bool> {
    // Told of no blocks while it waits for the tree.
    match one_step(core, table, tree, None, &mut |_, blocks| blocks > 0) {
        Ok(StepOutcome::Nothing) | Err(Error::Interrupted) => Ok(false),
        merged => merged.map(|_| true),
    }
}

/// One step of a sweep, or what most needs it, telling `progress` blocks done and blocks there are; false stops it. Fails as
/// [`once`].
pub(crate) fn one_step<K: Stored>(
    core: &Core,
    table: &Table,
    tree: &Arc<Tree<K>>,
    sweep: Option<&Sweep<K::Own>>,
    progress: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<StepOutcome<K>> {
    let merging = Merging::begin(core, table, tree, progress)?;
    core.writable.check()?;
    if merging.drop_deleted()? {
        return Ok(StepOutcome::Dropped);
    }
    // First: what the state has of marks and runs that are newer is no part of what is purged, and wants another merge.
    let kept = core.views.kept();
    let state = tree.snapshot();
    let rest = rest(core, tree, &state);
    let choice = choice(core, &state, kept.horizon, rest);
    let step = match sweep {
        Some(from) => choice.sweep(from),
        None => choice.next().0,
    };
    let Some(step) = step else { return Ok(StepOutcome::Nothing) };
    let merged = merging.merge(&state, &step, kept, progress);
    if step.for_readers {
        state.forget_looks_in_runs();
        if matches!(merged, Err(Error::DiskFull(_))) {
            // Nobody needs it.
            return Ok(StepOutcome::Nothing);
        }
        count(Counter::MergesForReads, u64::from(merged.is_ok()));
    }
    let reached = merged?;
    Ok(StepOutcome::Merged(reached.min(step.then)))
}

/// Merges everything in a table, and gives the space of what nobody sees back, in steps that are bounded and durable
/// each by itself. `progress` gets blocks done and blocks there are in the tree under way, as far as is known; false
/// stops it, and the steps done until then stay so.
pub(crate) fn optimize(core: &Core, table: &Table, progress: &mut dyn FnMut(u64, u64) -> bool) -> Result<()> {
    table.trees().all().try_for_each(|tree| with_tree!(tree, tree => optimize_tree(core, table, &tree, progress)))
}

fn optimize_tree<K: Stored>(
    core: &Core,
    table: &Table,
    tree: &Arc<Tree<K>>,
    progress: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<()> {
    flush::tree(core, table, tree)?;
    let runs = || tree.snapshot().runs.len();
    let (mut sweep, mut done, mut of, mut runs_before) = (Sweep::Begin, 0, 0, runs());
    loop {
        // Blocks of the steps before count as done; nothing is told of a wait.
        let before = done;
        let mut told = |blocks: u64, all: u64| {
            (done, of) = (before + blocks, before + all);
            if all == 0 {
                progress(0, 0)
            } else {
                progress(done, of)
            }
        };
        let stepped = match one_step(core, table, tree, Some(&sweep), &mut told) {
            Err(Error::Interrupted) if !table.still_has(tree.id) => StepOutcome::Nothing,
            stepped => stepped?,
        };
        if !table.still_has(tree.id) {
            return Err(Error::NoSuchTable(table.name()));
        }
        match stepped {
            StepOutcome::Nothing => return Ok(()),
            StepOutcome::Dropped => {}
            StepOutcome::Merged(then) => sweep = then,
        }
        if sweep == Sweep::End && 2 * runs() <= runs_before {
            // Of very many a step takes only so many.
            (sweep, runs_before) = (Sweep::Begin, runs());
        }
        if sweep != Sweep::End && !progress(done, of) {
            return Err(Error::Interrupted);
        }
    }
}

/// Does anything in the tree want merging, under a horizon of this round? Cheap where nothing changed since the last
/// no.
pub(crate) fn wanted<K: Stored>(core: &Core, tree: &Tree<K>, horizon: CommitSeq) -> bool {
    let state = tree.snapshot();
    let nothing = state.runs.is_empty() && state.marks.is_empty();
    if nothing {
        tree.merge_debt_bytes.store(0, Ordering::Relaxed);
    }
    if tree.is_settled() {
        return false;
    }
    if tree.merge_health.left_alone(core.host.now()) {
        // Nobody is slowed down for a merge that cannot be made.
        tree.merge_debt_bytes.store(0, Ordering::Relaxed);
        return false;
    }
    // Once looked at it is no news.
    state.take_news_of_looks();
    let wants = |horizon, rest| {
        let (step, debt_bytes) = choice(core, &state, horizon, rest).next();
        let marked = || state.has_needless_marks(horizon) || !deleted_runs(&state, horizon).is_empty();
        (step.is_some() || marked(), debt_bytes)
    };
    let (now, debt_bytes) = wants(horizon, rest(core, tree, &state));
    tree.merge_debt_bytes.store(debt_bytes, Ordering::Relaxed);
    if now {
        return true;
    }
    // Time brings nothing but a higher horizon, rest, and runs back that were set aside.
    if !any_unsound(&state) && state.marks.is_empty() && !wants(CommitSeq::MAX, AtRest { long: true, short: true }).0 {
        tree.nothing_to_merge.store(state.edits(), Ordering::Relaxed);
    }
    false
}

fn rest<K: Stored>(core: &Core, tree: &Tree<K>, state: &TreeState<K>) -> AtRest {
    let lasts = |time| tree.rest.lasts(state, time, core.host.now());
    AtRest { long: lasts(REST), short: lasts(READ_REST) }
}

fn choice<'a, K: Stored>(core: &Core, state: &'a TreeState<K>, horizon: CommitSeq, rest: AtRest) -> Choice<'a, K> {
    Choice { state, horizon, run_bytes: core.options.run_bytes, rest }
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

/// A tree that is being merged: nobody else merges it meanwhile.
struct Merging<'a, K: Stored> {
    core: &'a Core,
    table: &'a Table,
    tree: &'a Arc<Tree<K>>,
    _alone: MutexGuard<'a, ()>,
}

impl<'a, K: Stored> Merging<'a, K> {
    /// Waits for the tree as long as `progress` wants.
    fn begin(
        core: &'a Core,
        table: &'a Table,
        tree: &'a Arc<Tree<K>>,
        progress: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<Self> {
        loop {
            // A merge in the background may hold it for long.
            match tree.merging.try_lock() {
                Some(guard) => return Ok(Merging { core, table, tree, _alone: guard }),
                None if !progress(0, 0) => return Err(Error::Interrupted),
                None => core.host.sleep(POLL),
            }
        }
    }

    /// Drops runs that range deletes cover entirely, and marks that cover nothing any more.
    fn drop_deleted(&self) -> Result<bool> {
        let horizon = self.core.views.horizon();
        let state = self.tree.snapshot();
        let dead = deleted_runs(&state, horizon);
        if !dead.is_empty() {
            self.replace(&dead, Outcome { runs: Vec::new(), left: Vec::new(), settled: 0, reached: Sweep::End })?;
            return Ok(true);
        }
        if state.has_needless_marks(horizon) {
            self.tree.edit(|s| s.drop_needless_marks(horizon));
        }
        Ok(false)
    }

    /// Makes a step, without what nobody sees but for what is `kept`; from where on its inputs still hold keys.
    fn merge(
        &self,
        state: &TreeState<K>,
        step: &Step<K>,
        kept: SeenByViews,
        progress: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<Sweep<K::Own>> {
        let (core, tree) = (self.core, self.tree);
        let now = core.host.now();
        let set_aside = || tree.merge_health.failed(0, State::SetAside, now);
        self.check_space(step).inspect_err(|_| set_aside())?;
        let mut merge = Merge::new(self, state, step, kept).inspect_err(|e| {
            if e.is_want_of_resources() {
                set_aside();
            }
        })?;
        let outcome = match merge.run(progress) {
            Ok(outcome) => outcome,
            Err(e) => {
                discard::runs(core, merge.take_done());
                // A run that could not be read is set aside alone.
                if merge.cannot_write || e.is_want_of_resources() {
                    set_aside();
                }
                return Err(e);
            }
        };
        let runs = &outcome.runs;
        if !runs.is_empty() {
            if let Err(e) = core.runs.sync(&core.writable) {
                // Nothing names the new runs.
                discard::runs(core, outcome.runs);
                return Err(e);
            }
        }
        let (bytes, settled) = (runs.iter().map(|r| r.size_bytes()).sum(), outcome.settled);
        let reached = outcome.reached.clone();
        // A step that cannot be logged would be made again and again.
        self.replace(&step.inputs, outcome).inspect_err(|e| {
            if !matches!(e, Error::Interrupted) {
                set_aside();
            }
        })?;
        count(Counter::Merges, 1);
        count(Counter::KeyMerges, K::OF_INDEX);
        count(Counter::MergedBytes, bytes);
        count(Counter::VersionsSettled, settled);
        tree.merge_health.succeeded(0);
        Ok(reached)
    }

    /// Refuses a merge for which the disk has no room, before it fills what is left.
    fn check_space(&self, step: &Step<K>) -> Result<()> {
        let core = self.core;
        let share = |h: &RunHandle<K>| h.share(K::lend(&step.first), K::lend(&step.last));
        let part = |h: &RunHandle<K>| (h.run.size_bytes() as f64 * share(h)) as u64;
        let bytes = step.inputs.iter().map(part).sum::<u64>().min(3 * core.options.run_bytes);
        match core.disk.free_bytes(core.runs.path()) {
            Ok(free) if free < bytes => {
                let why = format!("{bytes} bytes may be needed, {free} are free");
                Err(Error::DiskFull(IoError::new("merge in", core.runs.path(), None, IoKind::DiskFull, why)))
            }
            // A disk that cannot tell says so when it is full.
            _ => Ok(()),
        }
    }

    /// Puts what a merge made in the place of `old`, durably, and lets the files go of which nothing is left.
    fn replace(&self, old: &[RunHandle<K>], made: Outcome<K>) -> Result<()> {
        let (core, tree) = (self.core, self.tree);
        let fresh: Vec<RunHandle<K>> = made.runs.into_iter().map(RunHandle::committed).chain(made.left).collect();
        let is_old = |h: &RunHandle<K>| old.iter().any(|o| o.is(h));
        let is_new = |run: &Arc<Run<K>>| !old.iter().any(|o| Arc::ptr_eq(&o.run, run));
        #[cfg(test)]
        crate::tests::hooks::reached("a merge is about to be logged");
        // No checkpoint between record and state: its manifest would name the old runs and its position pass the record.
        let _no_checkpoint = core.manifest.lock();
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
        // Of a tree that its table has given up nothing is logged: it stays as it is, and goes when that is durable.
        let is_there = if self.table.still_has(tree.id) { Ok(()) } else { Err(Error::Interrupted) };
        let appended = match is_there.and_then(|()| Ok(core.wal.append(&bytes)?)) {
            Ok(appended) => appended,
            Err(e) => {
                // Nothing names the new runs.
                discard::runs(core, fresh.into_iter().map(|h| h.run).filter(is_new).collect());
                return Err(e);
            }
        };
        // Durable before the old files go.
        core.wal.wait_durable(appended.end)?;
        #[cfg(test)]
        crate::tests::hooks::reached("a merge is logged, and the tree as it was");
        let parts = fresh.iter().filter(|h| !is_new(&h.run)).count();
        count(Counter::RunsNarrowed, parts as u64);
        let gone = tree.edit(|s| {
            s.runs.retain(|h| !is_old(h));
            fresh.into_iter().for_each(|h| s.add_run(h));
            let mut gone: Vec<Arc<Run<K>>> = old.iter().map(|h| h.run.clone()).collect();
            gone.retain(|run| !s.runs.iter().any(|h| Arc::ptr_eq(&h.run, run)));
            gone
        });
        // What a merge makes of sequences is nothing that was written.
        tree.rest.pass(&tree.snapshot());
        discard::runs(core, gone);
        discard::what_came_late(core, tree);
        Ok(())
    }
}

#[cfg(test)]
mod cost;
#[cfg(test)]
mod parts;
#[cfg(test)]
mod settled;
#[cfg(test)]
mod tests;
