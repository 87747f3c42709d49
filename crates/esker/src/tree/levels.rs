//! Where the runs of a tree lie: in levels of runs that are apart from each other.
//!
//! Invariant: within a level, ranges of keys are disjoint and rise; there are no more levels than runs that lie over
//! one key. So a lookup searches each level once, however many runs lie side by side.

use crate::tree::key::{ByRow, Key};
use crate::tree::stored::Stored;
use crate::tree::RunHandle;
use esker_format::RowId;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::RangeInclusive;

/// See the module.
pub(crate) struct Levels<K: Key>(Vec<Vec<Reach<K>>>);

/// From where to where a run reaches, and its place among the tree's runs.
struct Reach<K: Key> {
    first: K::Own,
    last: K::Own,
    at: u32,
}

/// Where a row lies in a level of a row tree.
pub(crate) enum Lies {
    /// In the bounds of a run, by its place among the tree's runs.
    In(RangeInclusive<RowId>, usize),
    /// Between runs, as all these do.
    Between(RangeInclusive<RowId>),
}

impl Levels<ByRow> {
    /// Where a row lies in one of the levels.
    pub(crate) fn lies(&self, level: usize, row: RowId) -> Lies {
        let level = &self.0[level];
        #[cfg(test)]
        looked::count();
        let at = level.partition_point(|r| r.last < row);
        match level.get(at) {
            Some(reach) if reach.first <= row => Lies::In(reach.first..=reach.last, reach.at as usize),
            next => {
                let first = at.checked_sub(1).map_or(RowId::ZERO, |before| RowId(level[before].last.0 + 1));
                Lies::Between(first..=next.map_or(RowId::MAX, |next| RowId(next.first.0 - 1)))
            }
        }
    }
}

impl<K: Stored> Levels<K> {
    /// Of runs in the order of their least keys: each goes to the level that ended first, if that ends before it.
    pub(crate) fn new(runs: &[RunHandle<K>]) -> Self {
        Self::of(runs.iter().map(|h| (h.first.clone(), h.last.clone())))
    }
}

impl<K: Key> Levels<K> {
    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    fn of(reaches: impl Iterator<Item = (K::Own, K::Own)>) -> Self {
        let mut levels: Vec<Vec<Reach<K>>> = Vec::new();
        let mut ends: BinaryHeap<Reverse<(K::Own, usize)>> = BinaryHeap::new();
        for ((first, last), at) in reaches.zip(0..) {
            let level = match ends.peek() {
                Some(Reverse((end, level))) if *end < first => {
                    let level = *level;
                    ends.pop();
                    level
                }
                _ => {
                    levels.push(Vec::new());
                    levels.len() - 1
                }
            };
            ends.push(Reverse((last.clone(), level)));
            levels[level].push(Reach { first, last, at });
        }
        Levels(levels)
    }

    /// The places of the runs that reach over `key`.
    pub(crate) fn at<'a, 'k>(&'a self, key: K::Ref<'k>) -> impl Iterator<Item = usize> + use<'a, 'k, K> {
        self.0.iter().filter_map(move |level| {
            let reach = level.get(level.partition_point(|r| K::cmp(K::lend(&r.last), key).is_lt()))?;
            #[cfg(test)]
            looked::count();
            K::cmp(K::lend(&reach.first), key).is_le().then_some(reach.at as usize)
        })
    }
}

/// Counts the runs that lookups of this thread looked at.
#[cfg(test)]
pub(crate) mod looked {
    use std::cell::Cell;

    thread_local! {
        static RUNS: Cell<usize> = const { Cell::new(0) };
    }

    pub(crate) fn count() {
        RUNS.with(|r| r.set(r.get() + 1));
    }

    /// How many since the last call.
    pub(crate) fn take() -> usize {
        RUNS.with(|r| r.replace(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The run that a row lies in; asserts that what is told of its neighbours holds it.
    fn place(lies: Lies, row: u64) -> Option<usize> {
        let (known, at) = match lies {
            Lies::In(known, at) => (known, Some(at)),
            Lies::Between(known) => (known, None),
        };
        assert!(known.contains(&RowId(row)));
        at
    }

    #[test]
    fn every_run_over_a_row_is_found_and_levels_are_few() {
        // Loads that interleave, a run over all, runs that touch in one row.
        let mut reaches: Vec<(u64, u64)> = (0..200).map(|i| (i * 7 % 1000, i * 7 % 1000 + i % 13)).collect();
        reaches.extend([(0, 2000), (500, 500), (500, 700), (700, 900), (1500, 1500)]);
        reaches.sort_unstable();
        let levels = Levels::<ByRow>::of(reaches.iter().map(|r| (RowId(r.0), RowId(r.1))));
        let over = |row: u64| {
            let holds = |r: &(usize, &(u64, u64))| r.1 .0 <= row && row <= r.1 .1;
            reaches.iter().enumerate().filter(holds).map(|r| r.0).collect::<Vec<_>>()
        };
        for row in 0..2100 {
            let mut found: Vec<_> = levels.at(RowId(row)).collect();
            found.sort_unstable();
            assert_eq!(found, over(row), "row {row}");
            let mut alike: Vec<_> =
                (0..levels.count()).filter_map(|level| place(levels.lies(level, RowId(row)), row)).collect();
            alike.sort_unstable();
            assert_eq!(alike, found, "row {row}");
        }
        assert_eq!(levels.0.len(), (0..2100).map(|r| over(r).len()).max().unwrap());
    }
}
