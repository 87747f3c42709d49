//! What to merge next in a tree: what its runs look like to [`Policy`], and what only the tree knows besides, its marks and
//! which runs can be read.
//!
//! Invariant: what is chosen changes by being merged, so merging comes to an end, in one process and over restarts. Runs
//! that could not be read not long ago are left out.

use crate::tree::key::ByRow;
use crate::tree::memtable::Memtable;
use crate::tree::run::health::State;
use crate::tree::run::Run;
use crate::tree::stored::Stored;
use crate::tree::{RangeMark, RunHandle, TreeState};
use crate::upkeep::policy::{Piece, Policy, Weights};
use esker_format::CommitSeq;

/// A merge to be done: the keys of these runs from `first` to `last`.
pub(crate) struct Step<K: Stored = ByRow> {
    pub(crate) inputs: Vec<RunHandle<K>>,
    pub(crate) first: K::Own,
    pub(crate) last: K::Own,
    /// How many bytes it will write, about; it ends sooner when it has read or written far more than a run's.
    pub(crate) bytes: u64,
    pub(crate) bounded: bool,
}

impl<K: Stored> Step<K> {
    /// All keys of these; `None` if there are none.
    pub(crate) fn of(inputs: Vec<RunHandle<K>>, bounded: bool) -> Option<Self> {
        let bytes = inputs.iter().map(RunHandle::bytes).sum();
        let first = inputs.iter().map(|h| h.first.clone()).min()?;
        let last = inputs.iter().map(|h| h.last.clone()).max()?;
        Some(Step { inputs, first, last, bytes, bounded })
    }
}

/// A tree's state, and what choosing among its runs depends on besides.
pub(crate) struct Choice<'a, K: Stored = ByRow> {
    pub(crate) state: &'a TreeState<K>,
    /// What every view sees.
    pub(crate) horizon: CommitSeq,
    /// A merged run is closed at this size.
    pub(crate) run_bytes: u64,
}

impl<K: Stored> Choice<'_, K> {
    /// What to merge next: a run that a mark empties, or what the policy says; and how much more lies over the base than
    /// there should, in bytes.
    pub(crate) fn next(&self) -> (Option<Step<K>>, u64) {
        let runs: Vec<&RunHandle<K>> = self.state.runs.iter().filter(|h| mergeable(h)).collect();
        if let Some(handle) = runs.iter().find(|h| self.is_partly_deleted(h)) {
            return (Step::of(vec![(*handle).clone()], true), 0);
        }
        // The policy knows keys by their places among all bounds.
        let mut bounds: Vec<&K::Own> = runs.iter().flat_map(|h| [&h.first, &h.last]).collect();
        bounds.sort_unstable();
        bounds.dedup();
        let place = |key: &K::Own| bounds.partition_point(|b| *b < key) as u64;
        let pieces: Vec<Piece> = runs.iter().map(|h| self.piece(h, place(&h.first), place(&h.last))).collect();
        let share = |i: usize, first: u64, last: u64| {
            let own = runs[i].own_share();
            if own > 0.0 {
                runs[i].share(K::lend(bounds[first as usize]), K::lend(bounds[last as usize])) / own
            } else {
                0.0
            }
        };
        let weights = if K::NEW_KEYS_COME_LAST { Weights::ROWS } else { Weights::KEYS };
        let policy = Policy::new(&pieces, &share, weights, self.horizon.0, self.run_bytes);
        let step = policy.next().map(|chosen| {
            let inputs = chosen.inputs.iter().map(|i| runs[*i].clone()).collect();
            let (first, last) = (bounds[chosen.first as usize].clone(), bounds[chosen.last as usize].clone());
            Step { inputs, first, last, bytes: chosen.bytes, bounded: true }
        });
        (step, policy.debt_bytes())
    }

    /// All runs, unless merging them would change nothing.
    pub(crate) fn all(&self) -> Option<Step<K>> {
        let all: Vec<RunHandle<K>> = self.state.runs.iter().filter(|h| mergeable(h)).cloned().collect();
        // What is left of a run keeps its whole file.
        let tidy = |h: &RunHandle<K>| h.run.stats.tombstones == 0 && h.aborted.is_empty() && is_whole(h);
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
        Step::of(all, false)
    }

    /// Does a mark that every view sees delete some of the run's rows?
    fn is_partly_deleted(&self, handle: &RunHandle<K>) -> bool {
        // A run that was merged since has lost them.
        let new = |m: &&RangeMark| handle.run.merged_at() < m.seq;
        self.state.marks_at(self.horizon).iter().filter(new).any(|m| m.deletes_some_of(handle, true))
    }

    /// Would merging runs that are apart purge anything? Not if merges made them all and the horizon has not passed what
    /// they kept.
    fn may_shrink(&self, all: &[RunHandle<K>]) -> bool {
        let newest = all.iter().filter_map(|h| h.seq_bounds()).map(|(_, greatest)| greatest);
        let marks = self.state.marks.iter().filter(|m| m.owner.is_none()).map(|m| m.seq);
        let newest = newest.chain(marks).max().unwrap_or_default();
        all.iter().any(|h| {
            let made = h.run.merged_at();
            made == CommitSeq::ZERO || !is_whole(h) || (made < newest && newest <= self.horizon)
        })
    }

    /// What the policy is told of a run whose bounds have these places.
    fn piece(&self, handle: &RunHandle<K>, first: u64, last: u64) -> Piece {
        let (least, greatest) = (K::lend(&handle.first), K::lend(&handle.last));
        let stats = &handle.run.stats;
        let share = handle.own_share();
        let part = |n: u64| (n as f64 * share).ceil() as u64;
        let seqs = handle.seq_bounds().unwrap_or_default();
        let others = || self.state.runs.iter().any(|h| !mergeable(h) && h.overlaps(least, greatest));
        let within = |m: &Memtable<K>| m.seek(least).is_some_and(|n| K::cmp(n.key(), greatest).is_le());
        let in_memory = || self.state.memtables().any(|m| within(m));
        Piece {
            first,
            last,
            bytes: handle.bytes(),
            rows: part(stats.rows),
            most_keys: K::most_keys(least, greatest),
            superseding: part(stats.supersedes.max(stats.tombstones)),
            tombstones: part(stats.tombstones),
            seqs: (seqs.0 .0, seqs.1 .0),
            alone: stats.tombstones > 0 && !others() && !in_memory(),
        }
    }
}

/// Does the handle cover all of its run?
fn is_whole<K: Stored>(handle: &RunHandle<K>) -> bool {
    (&handle.first, &handle.last) == (&handle.run.bounds.0, &handle.run.bounds.1)
}

/// Committed, and as far as is known readable.
fn mergeable<K: Stored>(handle: &RunHandle<K>) -> bool {
    handle.owner.is_none() && !handle.run.is_set_aside()
}

/// Has any run of the tree failed, so that time may change what is chosen?
pub(crate) fn any_unsound<K: Stored>(state: &TreeState<K>) -> bool {
    let unsound = |run: &Run<K>| run.state() != State::Sound;
    state.runs.iter().any(|h| unsound(&h.run))
}
