//! Where the runs of a tree lie: in levels of runs that are apart from each other.
//!
//! Invariant: within a level, ranges of row ids are disjoint and rise; there are no more levels than runs that lie over
//! one row. So a lookup searches each level once, however many runs lie side by side.

use crate::tree::RunHandle;
use esker_format::RowId;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// See the module.
pub(crate) struct Levels(Vec<Vec<Reach>>);

/// From where to where a run reaches, and its place among the tree's runs.
#[derive(Clone, Copy)]
struct Reach {
    first: RowId,
    last: RowId,
    at: u32,
}

impl Levels {
    /// Of runs in the order of their least row ids: each goes to the level that ended first, if that ends before it.
    pub(crate) fn new(runs: &[RunHandle]) -> Self {
        Self::of(runs.iter().map(|h| (h.first, h.last)))
    }

    fn of(reaches: impl Iterator<Item = (RowId, RowId)>) -> Self {
        let mut levels: Vec<Vec<Reach>> = Vec::new();
        let mut ends: BinaryHeap<Reverse<(RowId, usize)>> = BinaryHeap::new();
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
            levels[level].push(Reach { first, last, at });
            ends.push(Reverse((last, level)));
        }
        Levels(levels)
    }

    /// The places of the runs that reach over `row`.
    pub(crate) fn at(&self, row: RowId) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().filter_map(move |level| {
            let reach = level.get(level.partition_point(|r| r.last < row))?;
            #[cfg(test)]
            looked::count();
            (reach.first <= row).then_some(reach.at as usize)
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

    #[test]
    fn every_run_over_a_row_is_found_and_levels_are_few() {
        // Loads that interleave, a run over all, runs that touch in one row.
        let mut reaches: Vec<(u64, u64)> = (0..200).map(|i| (i * 7 % 1000, i * 7 % 1000 + i % 13)).collect();
        reaches.extend([(0, 2000), (500, 500), (500, 700), (700, 900), (1500, 1500)]);
        reaches.sort_unstable();
        let levels = Levels::of(reaches.iter().map(|r| (RowId(r.0), RowId(r.1))));
        let over = |row: u64| {
            let holds = |r: &(usize, &(u64, u64))| r.1 .0 <= row && row <= r.1 .1;
            reaches.iter().enumerate().filter(holds).map(|r| r.0).collect::<Vec<_>>()
        };
        for row in 0..2100 {
            let mut found: Vec<_> = levels.at(RowId(row)).collect();
            found.sort_unstable();
            assert_eq!(found, over(row), "row {row}");
        }
        assert_eq!(levels.0.len(), (0..2100).map(|r| over(r).len()).max().unwrap());
    }
}
