//! Which runs of a tree to merge next.
//!
//! Invariant: what is chosen changes by being merged: there will be fewer runs, or fewer rows in them. So merging comes
//! to an end, in one process and over restarts. Runs that could not be read not long ago are left out.

use crate::tree::run::health::State;
use crate::tree::run::Run;
use crate::tree::{RangeMark, RunHandle, TreeState};
use esker_format::{CommitSeq, RowId};

/// More small runs than this beside each other are joined.
const MOST_SMALL_RUNS: usize = 8;
/// A run below this is small, in bytes.
const SMALL_RUN_BYTES: u64 = 32 << 20;
/// Overlying versions beyond this share of the rows below them are merged down: one in ...
const OVERLAY_SHARE: u64 = 5;
/// More runs than this over one row are merged.
const MOST_LAYERS: usize = 6;

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
    /// The runs to merge next: one that a mark or its own tombstones empty, those that overlap too much, or small ones
    /// beside each other.
    pub(crate) fn next(&self) -> Vec<RunHandle> {
        let runs: Vec<&RunHandle> = self.state.runs.iter().filter(|h| mergeable(h)).collect();
        if let Some(handle) = runs.iter().find(|h| self.is_partly_deleted(h)) {
            return vec![(*handle).clone()];
        }
        let mut group: Vec<&RunHandle> = Vec::new();
        let mut end = RowId::ZERO;
        for handle in &runs {
            if !group.is_empty() && handle.run.stats.min_id > end {
                if self.is_worth_merging(&group) {
                    break;
                }
                group.clear();
            }
            group.push(handle);
            end = end.max(handle.run.stats.max_id);
        }
        if self.is_worth_merging(&group) {
            return group.into_iter().cloned().collect();
        }
        // One that is full must not count as small, or what was joined would be joined again.
        let small_bytes = SMALL_RUN_BYTES.min(self.run_bytes / 4);
        let small: Vec<RunHandle> =
            runs.iter().filter(|h| h.run.size_bytes() < small_bytes).map(|h| (*h).clone()).collect();
        if small.len() > MOST_SMALL_RUNS {
            return small;
        }
        Vec::new()
    }

    /// All runs, unless merging them would change nothing.
    pub(crate) fn all(&self) -> Vec<RunHandle> {
        let all: Vec<RunHandle> = self.state.runs.iter().filter(|h| mergeable(h)).cloned().collect();
        let tidy = |h: &RunHandle| h.run.stats.tombstones == 0 && h.aborted.is_empty();
        let apart = all.windows(2).all(|w| w[0].run.stats.max_id < w[1].run.stats.min_id);
        let bytes: u64 = all.iter().map(|h| h.run.size_bytes()).sum();
        if all.iter().all(tidy)
            && apart
            && all.len() <= 1 + (bytes / self.run_bytes) as usize
            && self.state.marks.is_empty()
        {
            return Vec::new();
        }
        if apart && !self.may_shrink(&all.iter().collect::<Vec<_>>(), &self.state.marks) {
            return Vec::new();
        }
        all
    }

    /// Does a mark that every view sees delete some of the run's rows?
    fn is_partly_deleted(&self, handle: &RunHandle) -> bool {
        // A run that was merged since has lost them.
        let new = |m: &&RangeMark| handle.run.merged_at() < m.seq;
        self.state.marks_at(self.horizon).iter().filter(new).any(|m| m.deletes_some_of(handle))
    }

    fn is_worth_merging(&self, group: &[&RunHandle]) -> bool {
        match group {
            [] => false,
            [alone] => self.can_lose_its_tombstones(alone),
            _ => has_much_to_merge(group) && self.may_shrink(group, &[]),
        }
    }

    /// Are many of the rows of a run tombstones, and can they all go? Not while a view may see what they delete, or
    /// something else may hold it.
    fn can_lose_its_tombstones(&self, handle: &RunHandle) -> bool {
        let stats = &handle.run.stats;
        let (first, last) = (stats.min_id, stats.max_id);
        let over = |h: &RunHandle| h.run.stats.min_id <= last && first <= h.run.stats.max_id;
        stats.tombstones * OVERLAY_SHARE > stats.rows
            && handle.seq_bounds().is_some_and(|(_, newest)| newest <= self.horizon)
            && self.state.runs.iter().filter(|h| over(h)).count() == 1
            && !self.state.memtables().any(|m| m.seek(first).is_some_and(|n| n.key() <= last))
    }

    /// Would merging these runs purge anything? Not if merges made them all and the horizon has not passed what they
    /// kept.
    fn may_shrink(&self, group: &[&RunHandle], marks: &[RangeMark]) -> bool {
        // Versions that a view may still need are not purged: less than two layers below the horizon have nothing to
        // lose.
        let below = |h: &&&RunHandle| h.seq_bounds().is_some_and(|(least, _)| least <= self.horizon);
        let many = || layers(group) > 4 * MOST_LAYERS;
        if group.len() > 1 && marks.is_empty() && group.iter().filter(below).count() < 2 && !many() {
            return false;
        }
        let newest = group.iter().filter_map(|h| h.seq_bounds()).map(|(_, greatest)| greatest);
        let newest = newest.chain(marks.iter().filter(|m| m.owner.is_none()).map(|m| m.seq)).max().unwrap_or_default();
        group.iter().any(|h| {
            let made = h.run.merged_at();
            made == CommitSeq::ZERO || (made < newest && newest <= self.horizon)
        })
    }
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

/// Does a group of overlapping runs hold enough superseded rows, or too many layers?
fn has_much_to_merge(group: &[&RunHandle]) -> bool {
    let rows: u64 = group.iter().map(|h| h.run.stats.rows).sum();
    let tombstones: u64 = group.iter().map(|h| h.run.stats.tombstones).sum();
    if tombstones * OVERLAY_SHARE > rows && rows > 0 {
        return true;
    }
    // Rows of a group beyond its span of ids are newer versions; loads that ran beside each other interleave only.
    let first = group.iter().map(|h| h.run.stats.min_id.0).min().unwrap_or(0);
    let last = group.iter().map(|h| h.run.stats.max_id.0).max().unwrap_or(0);
    let over = rows.saturating_sub(last - first + 1) + tombstones;
    over * OVERLAY_SHARE > rows || (group.len() > MOST_LAYERS && layers(group) > MOST_LAYERS)
}

/// The most runs that lie over one row.
fn layers(group: &[&RunHandle]) -> usize {
    let mut ends: Vec<RowId> = group.iter().map(|h| h.run.stats.max_id).collect();
    ends.sort_unstable();
    let (mut most, mut ended) = (0, 0);
    // In the order of their least rows, as the tree has them.
    for (begun, handle) in group.iter().enumerate() {
        while ends[ended] < handle.run.stats.min_id {
            ended += 1;
        }
        most = most.max(begun + 1 - ended);
    }
    most
}
