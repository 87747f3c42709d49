//! What to merge next in a tree: what its runs look like to [`Policy`], and what only the tree knows besides, its marks and
//! which runs can be read.
//!
//! Invariant: what is chosen changes by being merged, so merging comes to an end, in one process and over restarts. Runs
//! that could not be read not long ago are left out.

use crate::tree::run::health::State;
use crate::tree::run::Run;
use crate::tree::{RangeMark, RunHandle, TreeState};
use crate::upkeep::policy::{Piece, Policy};
use esker_format::{CommitSeq, RowId};

/// A merge to be done: the rows of these runs from `first` to `last`.
pub(crate) struct Step {
    pub(crate) inputs: Vec<RunHandle>,
    pub(crate) first: RowId,
    pub(crate) last: RowId,
    /// How many bytes it will write, about; it ends sooner when it has read or written far more than a run's.
    pub(crate) bytes: u64,
    pub(crate) bounded: bool,
}

impl Step {
    /// All rows of these.
    pub(crate) fn of(inputs: Vec<RunHandle>, bounded: bool) -> Self {
        let bytes = inputs.iter().map(RunHandle::bytes).sum();
        Step { inputs, first: RowId::ZERO, last: RowId::MAX, bytes, bounded }
    }
}

/// A tree's state, and what choosing among its runs depends on besides.
#[derive(Clone, Copy)]
pub(crate) struct Choice<'a> {
    pub(crate) state: &'a TreeState,
    /// What every view sees.
    pub(crate) horizon: CommitSeq,
    /// A merged run is closed at this size.
    pub(crate) run_bytes: u64,
}

impl<'a> Choice<'a> {
    /// What to merge next: a run that a mark empties, or what the policy says; and how much more lies over the base than
    /// there should, in bytes.
    pub(crate) fn next(&self) -> (Option<Step>, u64) {
        let runs: Vec<&RunHandle> = self.state.runs.iter().filter(|h| mergeable(h)).collect();
        if let Some(handle) = runs.iter().find(|h| self.is_partly_deleted(h)) {
            return (Some(Step::of(vec![(*handle).clone()], true)), 0);
        }
        let pieces: Vec<Piece> = runs.iter().map(|h| self.piece(h)).collect();
        let share = |i: usize, first: u64, last: u64| {
            let own = runs[i].share(runs[i].first, runs[i].last);
            if own > 0.0 {
                runs[i].share(RowId(first), RowId(last)) / own
            } else {
                0.0
            }
        };
        let policy = Policy::new(&pieces, &share, self.horizon.0, self.run_bytes);
        let step = policy.next().map(|chosen| {
            let inputs = chosen.inputs.iter().map(|i| runs[*i].clone()).collect();
            let (first, last) = (RowId(chosen.first), RowId(chosen.last));
            Step { inputs, first, last, bytes: chosen.bytes, bounded: true }
        });
        (step, policy.debt_bytes())
    }

    /// All runs, unless merging them would change nothing.
    pub(crate) fn all(&self) -> Option<Step> {
        let all: Vec<RunHandle> = self.state.runs.iter().filter(|h| mergeable(h)).cloned().collect();
        // What is left of a run keeps its whole file.
        let tidy = |h: &RunHandle| h.run.stats.tombstones == 0 && h.aborted.is_empty() && is_whole(h);
        let apart = all.windows(2).all(|w| w[0].last < w[1].first);
        let bytes: u64 = all.iter().map(RunHandle::bytes).sum();
        if all.iter().all(tidy)
            && apart
            && all.len() <= 1 + (bytes / self.run_bytes) as usize
            && self.state.marks.is_empty()
        {
            return None;
        }
        if all.is_empty() || (apart && !self.may_shrink(&all)) {
            return None;
        }
        Some(Step::of(all, false))
    }

    /// Does a mark that every view sees delete some of the run's rows?
    fn is_partly_deleted(&self, handle: &RunHandle) -> bool {
        // A run that was merged since has lost them.
        let new = |m: &&RangeMark| handle.run.merged_at() < m.seq;
        self.state.marks_at(self.horizon).iter().filter(new).any(|m| m.deletes_some_of(handle))
    }

    /// Would merging runs that are apart purge anything? Not if merges made them all and the horizon has not passed what
    /// they kept.
    fn may_shrink(&self, all: &[RunHandle]) -> bool {
        let newest = all.iter().filter_map(|h| h.seq_bounds()).map(|(_, greatest)| greatest);
        let marks = self.state.marks.iter().filter(|m| m.owner.is_none()).map(|m| m.seq);
        let newest = newest.chain(marks).max().unwrap_or_default();
        all.iter().any(|h| {
            let made = h.run.merged_at();
            made == CommitSeq::ZERO || !is_whole(h) || (made < newest && newest <= self.horizon)
        })
    }

    /// What the policy is told of a run.
    fn piece(&self, handle: &RunHandle) -> Piece {
        let (first, last) = (handle.first, handle.last);
        let stats = &handle.run.stats;
        let share = handle.share(first, last);
        let part = |n: u64| (n as f64 * share).ceil() as u64;
        let (least, greatest) = handle.seq_bounds().unwrap_or_default();
        let others = || self.state.runs.iter().any(|h| !mergeable(h) && h.overlaps(first, last));
        let in_memory = || self.state.memtables().any(|m| m.seek(first).is_some_and(|n| n.key() <= last));
        Piece {
            first: first.0,
            last: last.0,
            bytes: handle.bytes(),
            rows: part(stats.rows),
            superseding: part(stats.supersedes.max(stats.tombstones)),
            tombstones: part(stats.tombstones),
            seqs: (least.0, greatest.0),
            alone: stats.tombstones > 0 && !others() && !in_memory(),
        }
    }
}

/// Does the handle cover all of its run?
fn is_whole(handle: &RunHandle) -> bool {
    (handle.first, handle.last) == (handle.run.stats.min_id, handle.run.stats.max_id)
}

/// Committed, and as far as is known readable.
fn mergeable(handle: &RunHandle) -> bool {
    handle.owner.is_none() && !handle.run.is_set_aside()
}

/// Has any run of the tree failed, so that time may change what is chosen?
pub(crate) fn any_unsound(state: &TreeState) -> bool {
    let unsound = |run: &Run| run.state() != State::Sound;
    state.runs.iter().any(|h| unsound(&h.run))
}
