//! What to merge next in a tree: what its runs look like to [`Policy`], and what only the tree knows besides, its marks and
//! which runs can be read.
//!
//! Invariant: what is chosen changes by being merged, so merging comes to an end, in one process and over restarts. Runs
//! that could not be read not long ago are left out.

use crate::tally::tally;
use crate::tree::key::ByRow;
use crate::tree::memtable::Memtable;
use crate::tree::run::health::State;
use crate::tree::run::Run;
use crate::tree::stored::Stored;
use crate::tree::{RangeMark, RunHandle, TreeState};
use crate::upkeep::policy::{deepest_of, Chosen, Piece, Policy, Weights, MOST_AT_ONCE};
use crate::version::OrdinalRanges;
use esker_format::run::RunStats;
use esker_format::{CommitSeq, FileId};
use std::collections::BTreeMap;

/// A run whose parts take more than this in the log, in bytes, is written anew: each step that takes something of it names
/// all that is left of it, in one record with what is left of 64 others.
const MOST_NAMES_BYTES: usize = 1 << 20;
/// A part counts for so many bytes at least, so that there are no more than 256.
const NAME_BYTES: usize = 4 << 10;

/// A merge to be done: the keys of these runs from `first` to `last`.
pub(crate) struct Step<K: Stored = ByRow> {
    pub(crate) inputs: Vec<RunHandle<K>>,
    pub(crate) first: K::Own,
    pub(crate) last: K::Own,
    /// How many bytes it would write, about; it ends sooner when it has read or written far more than a run's.
    pub(crate) bytes: u64,
    /// Where a sweep goes on behind it.
    pub(crate) then: Sweep<K::Own>,
    /// [Looks](crate::tree::looks) have paid for it.
    pub(crate) for_readers: bool,
}

/// How far OPTIMIZE has come in a tree: all that lay before is merged.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Sweep<T> {
    Begin,
    From(T),
    End,
}

impl<K: Stored> Step<K> {
    /// All keys of these; `None` if there are none.
    pub(crate) fn of(inputs: Vec<RunHandle<K>>) -> Option<Self> {
        let bytes = inputs.iter().map(RunHandle::bytes).sum();
        let first = inputs.iter().map(|h| h.first.clone()).min()?;
        let last = inputs.iter().map(|h| h.last.clone()).max()?;
        Some(Step { inputs, first, last, bytes, then: Sweep::End, for_readers: false })
    }
}

/// A tree's state, and what choosing among its runs depends on besides.
pub(crate) struct Choice<'a, K: Stored = ByRow> {
    pub(crate) state: &'a TreeState<K>,
    /// What every view sees.
    pub(crate) horizon: CommitSeq,
    /// A merged run is closed at this size.
    pub(crate) run_bytes: u64,
    pub(crate) rest: AtRest,
}

/// Does nobody write to the tree any more?
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct AtRest {
    pub(crate) long: bool,
    /// As far as readers wait for it, see [`READ_REST`](crate::tree::looks::READ_REST).
    pub(crate) short: bool,
}

impl<K: Stored> Choice<'_, K> {
    /// What to merge next: a run that a mark empties, a range that readers find dead, or what the policy says; and how much
    /// more lies over the base than there should, in bytes.
    pub(crate) fn next(&self) -> (Option<Step<K>>, u64) {
        let (runs, others): (Vec<_>, Vec<_>) = self.state.runs.iter().partition(|h| mergeable(h));
        if let Some(handle) = runs.iter().find(|h| self.is_partly_deleted(h)) {
            return (Step::of(vec![(*handle).clone()]), 0);
        }
        if let Some(step) = cut_up(&runs) {
            return (Some(step), 0);
        }
        // The policy knows keys by their places among all bounds.
        let mut bounds: Vec<&K::Own> = runs.iter().flat_map(|h| [&h.first, &h.last]).collect();
        bounds.sort_unstable();
        bounds.dedup();
        let place = |key: &K::Own| bounds.partition_point(|b| *b < key) as u64;
        let mut pieces: Vec<Piece> =
            runs.iter().map(|h| self.piece(h, place(&h.first), place(&h.last), &others)).collect();
        tell_files(&runs, &mut pieces);
        let share = |i: usize, first: u64, last: u64| {
            let own = runs[i].own_share();
            if own > 0.0 {
                runs[i].share(K::lend(bounds[first as usize]), K::lend(bounds[last as usize])) / own
            } else {
                0.0
            }
        };
        let weights = if K::NEW_KEYS_COME_LAST { Weights::ROWS } else { Weights::KEYS };
        let weights = if self.rest.long { weights.at_rest() } else { weights };
        let policy = Policy::new(&pieces, &share, weights, self.horizon.0, self.run_bytes);
        let step = |chosen: Chosen, for_readers| {
            let inputs = chosen.inputs.iter().map(|i| runs[*i].clone()).collect();
            let (first, last) = (bounds[chosen.first as usize].clone(), bounds[chosen.last as usize].clone());
            Step { inputs, first, last, bytes: chosen.bytes, then: Sweep::End, for_readers }
        };
        let read = || self.paid_by_looks(&policy, &bounds).map(|chosen| step(chosen, true));
        let next = self.dead_range().or_else(|| policy.next().map(|chosen| step(chosen, false))).or_else(read);
        (next, policy.debt_bytes())
    }

    /// What readers have paid for.
    fn paid_by_looks(&self, policy: &Policy<'_>, bounds: &[&K::Own]) -> Option<Chosen> {
        let (bytes, key) = self.state.merge_paid_by_looks(self.rest.short)?;
        let to = bounds.partition_point(|b| **b < key);
        let is_bound = bounds.get(to).is_some_and(|b| **b == key);
        let from = if is_bound { Some(to) } else { to.checked_sub(1) };
        let chosen = from.and_then(|from| policy.for_readers(from as u64, to as u64));
        if chosen.is_none() {
            // By now it lies in one run, or in none.
            self.state.forget_looks_in_runs();
        }
        chosen.filter(|chosen| chosen.bytes <= bytes)
    }

    /// A range of dead keys that a reader told of, once no view needs them. Nothing is written for them, and of the runs
    /// there only this range is read.
    fn dead_range(&self) -> Option<Step<K>> {
        let told = self.state.dead_in_runs()?;
        if told.seq > self.horizon {
            return None;
        }
        let (first, last) = (K::lend(&told.first), K::lend(&told.last));
        let over: Vec<&RunHandle<K>> = self.state.runs.iter().filter(|h| h.overlaps(first, last)).collect();
        if over.len() > MOST_AT_ONCE || !over.iter().all(|h| mergeable(h)) {
            // Tombstones over what is not merged with them stay.
            self.state.forget_dead_in_runs(&told);
            return None;
        }
        let bytes = over.iter().map(|h| (h.run.size_bytes() as f64 * h.share(first, last)) as u64).sum();
        let (first, last) = (told.first.clone(), told.last.clone());
        Some(Step {
            inputs: over.into_iter().cloned().collect(),
            first,
            last,
            bytes,
            then: Sweep::End,
            for_readers: false,
        })
    }

    /// The next step of a sweep over all runs; none if it is done, or before it begins if merging them would change nothing.
    pub(crate) fn sweep(&self, from: &Sweep<K::Own>) -> Option<Step<K>> {
        let all: Vec<&RunHandle<K>> = self.state.runs.iter().filter(|h| mergeable(h)).collect();
        let first = match from {
            Sweep::Begin if self.is_tidy(&all) => return None,
            Sweep::Begin => &all.first()?.first,
            Sweep::From(key) => key,
            Sweep::End => return None,
        };
        let rest: Vec<_> = all.into_iter().filter(|h| h.last >= *first).collect();
        // Those that a merge made and that nothing lies over stay as they are.
        let good = |h: &RunHandle<K>| h.first >= *first && h.bytes() >= self.run_bytes / 2 && !self.may_shrink(&[h]);
        let apart = |i: usize| rest.get(i + 1).is_none_or(|next| next.first > rest[i].last);
        let skipped = (0..rest.len()).take_while(|&i| good(rest[i]) && apart(i)).count();
        let first = first.max(&rest.get(skipped)?.first);
        let rest = &rest[skipped..];
        let bytes = |h: &&RunHandle<K>| (h.run.size_bytes() as f64 * h.share(K::lend(first), K::lend(&h.last))) as u64;
        let mut deep = deepest_of(rest, |a, b| a.last < b.first);
        if deep.len() > MOST_AT_ONCE / 2 {
            // Fewer of them first, the small ones.
            deep.sort_by_key(bytes);
            let step = Step::of(deep.into_iter().take(MOST_AT_ONCE).cloned().collect())?;
            return Some(Step { first: step.first.max(first.clone()), then: Sweep::From(first.clone()), ..step });
        }
        let (mut over, behind): (Vec<_>, Vec<_>) = rest.iter().copied().partition(|h| h.first <= *first);
        let all_bytes = over.iter().chain(&behind).map(bytes).sum();
        let room = MOST_AT_ONCE - over.len();
        let next = behind.get(room).map(|h| h.first.clone());
        over.extend(behind.into_iter().take(room));
        let last = match &next {
            None => over.iter().map(|h| &h.last).max()?,
            // What comes before the first that has no room.
            Some(next) => over.iter().flat_map(|h| [&h.first, &h.last]).filter(|key| *key < next).max()?.max(first),
        };
        let (first, last) = (first.clone(), last.clone());
        let inputs = over.into_iter().filter(|h| h.first <= last).cloned().collect();
        Some(Step {
            inputs,
            first,
            last,
            bytes: all_bytes,
            then: next.map_or(Sweep::End, Sweep::From),
            for_readers: false,
        })
    }

    /// Would merging all these runs change nothing?
    fn is_tidy(&self, all: &[&RunHandle<K>]) -> bool {
        // What is left of a run keeps its whole file, and only the index may tell.
        let is_whole = |h: &RunHandle<K>| h.run.index().is_ok() && h.is_whole();
        let tidy = |h: &&RunHandle<K>| h.run.stats.tombstones == 0 && h.aborted.is_empty() && is_whole(h);
        let apart = all.windows(2).all(|w| w[0].last < w[1].first);
        let bytes: u64 = all.iter().map(|h| h.bytes()).sum();
        let few = all.len() <= 1 + (bytes / (self.run_bytes / 2).max(1)) as usize;
        apart && ((all.iter().all(tidy) && few && self.state.marks.is_empty()) || !self.may_shrink(all))
    }

    /// Does a mark that every view sees delete some of the run's rows?
    fn is_partly_deleted(&self, handle: &RunHandle<K>) -> bool {
        // A run that was merged since has lost them.
        let new = |m: &&RangeMark| handle.run.merged_at() < m.seq;
        self.state.marks_at(self.horizon).iter().filter(new).any(|m| m.deletes_some_of(handle, true))
    }

    /// Would merging runs that are apart purge anything? Not if merges made them all and the horizon has not passed what
    /// they kept.
    fn may_shrink(&self, all: &[&RunHandle<K>]) -> bool {
        let newest = all.iter().filter_map(|h| h.seq_bounds()).map(|(_, greatest)| greatest);
        let marks = self.state.marks.iter().filter(|m| m.owner.is_none()).map(|m| m.seq);
        let newest = newest.chain(marks).max().unwrap_or_default();
        all.iter().any(|h| {
            let made = h.run.merged_at();
            made == CommitSeq::ZERO || !h.is_whole() || (made < newest && newest <= self.horizon)
        })
    }

    /// What the policy is told of a run whose bounds have these places; `others` are the runs that are not merged.
    fn piece(&self, handle: &RunHandle<K>, first: u64, last: u64, others: &[&RunHandle<K>]) -> Piece {
        let (least, greatest) = (K::lend(&handle.first), K::lend(&handle.last));
        let stats = &handle.run.stats;
        let share = handle.own_share();
        let part = |n: u64| (n as f64 * share).ceil() as u64;
        let seqs = handle.seq_bounds().unwrap_or_default();
        let others = || others.iter().any(|h| h.overlaps(least, greatest));
        let within = |m: &Memtable<K>| m.seek(least).is_some_and(|n| K::cmp(n.key(), greatest).is_le());
        let in_memory = || self.state.memtables().any(|m| within(m));
        Piece {
            first,
            last,
            bytes: handle.bytes(),
            file_bytes: 0,
            rows: part(stats.rows),
            most_keys: K::most_keys(least, greatest),
            superseding: part(stats.supersedes.max(stats.tombstones)),
            tombstones: part(stats.tombstones),
            aborted: part((stats.rows as f64 * share_of_ordinals(&handle.aborted, stats)) as u64),
            seqs: (seqs.0 .0, seqs.1 .0),
            alone: stats.tombstones > 0 && !others() && !in_memory(),
        }
    }
}

/// A run that is in very many parts, or in some that it takes many bytes to name: all that is left of it.
fn cut_up<K: Stored>(runs: &[&RunHandle<K>]) -> Option<Step<K>> {
    let mut names: BTreeMap<FileId, usize> = BTreeMap::new();
    for h in runs {
        let bounds = K::length(K::lend(&h.first)) + K::length(K::lend(&h.last));
        *names.entry(h.run.file_id).or_default() += NAME_BYTES + bounds + size_of::<(u64, u64)>() * h.aborted.0.len();
    }
    let (file, _) = names.into_iter().find(|(_, bytes)| *bytes >= MOST_NAMES_BYTES)?;
    Step::of(runs.iter().filter(|h| h.run.file_id == file).copied().cloned().collect())
}

/// Of an entry beside its block, in the index and in the filters, about, in bytes.
const BESIDE_BYTES: u64 = 2;

/// Tells of each piece what its file has besides. What is this tree's there is no waste: the other side of a run that was cut in two.
fn tell_files<K: Stored>(runs: &[&RunHandle<K>], pieces: &mut [Piece]) {
    let mut own: BTreeMap<FileId, u64> = BTreeMap::new();
    runs.iter().zip(&*pieces).for_each(|(h, p)| *own.entry(h.run.file_id).or_default() += p.bytes);
    for (h, piece) in runs.iter().zip(pieces) {
        let run = &h.run;
        // Until its index is read a run has the bytes of its blocks.
        let beside = if run.size_bytes() == run.stats.stored_bytes { BESIDE_BYTES * run.stats.rows } else { 0 };
        piece.file_bytes = (run.file.size_bytes() + piece.bytes).saturating_sub(own[&run.file_id] + beside);
    }
}

/// Which part of a run's versions was rolled back, if those have ordinals at equal distances.
fn share_of_ordinals(aborted: &OrdinalRanges, stats: &RunStats) -> f64 {
    let (least, greatest) = (stats.min_ordinal, stats.max_ordinal);
    aborted.count_within(least, greatest) as f64 / (greatest - least + 1) as f64
}

/// Committed, and as far as is known readable.
fn mergeable<K: Stored>(handle: &RunHandle<K>) -> bool {
    #[cfg(test)]
    asked::count();
    handle.owner.is_none() && !handle.run.is_set_aside()
}

/// Has any run of the tree failed, so that time may change what is chosen?
pub(crate) fn any_unsound<K: Stored>(state: &TreeState<K>) -> bool {
    let unsound = |run: &Run<K>| run.state() != State::Sound;
    state.runs.iter().any(|h| unsound(&h.run))
}

tally! {
    /// Counts how often this thread asked whether a run is merged.
    asked
}
