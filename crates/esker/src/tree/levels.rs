//! Where the runs of a tree lie: in levels of runs that are apart from each other.
//!
//! The newest level comes first, so that whoever has found a version there need not look into older ones. Invariants: within a level, ranges of keys are disjoint and rise; of runs that the same transaction has noted, and of all
//! others, there are no more levels than runs that lie over one key. So a lookup searches each level once, however many runs
//! lie side by side, and passes over levels of runs that cannot have the key.

use crate::tree::key::{ByRow, Key};
use crate::tree::stored::Stored;
use crate::tree::RunHandle;
use esker_format::{RowId, TxnId};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::ops::RangeInclusive;

/// See the module.
pub(crate) struct Levels<K: Key>(Vec<Level<K>>);

struct Level<K: Key> {
    /// The transaction that has noted its runs, see [`RunHandle::noted_by`].
    noted_by: Option<TxnId>,
    reaches: Vec<Reach<K>>,
}

/// Where levels end, and which these are.
type Ends<K> = BinaryHeap<Reverse<(<K as Key>::Own, usize)>>;

/// From where to where a run reaches, and its place among the tree's runs.
struct Reach<K: Key> {
    first: K::Own,
    last: K::Own,
    at: u32,
}

/// Where a row lies in a level of a row tree.
pub(crate) enum PlaceInLevel {
    /// In the bounds of a run, by its place among the tree's runs.
    In(RangeInclusive<RowId>, usize),
    /// Between runs, as all these do.
    Between(RangeInclusive<RowId>),
}

impl Levels<ByRow> {
    /// Where a row lies in one of the levels.
    pub(crate) fn lies(&self, level: usize, row: RowId) -> PlaceInLevel {
        let level = &self.0[level].reaches;
        #[cfg(test)]
        looked::count();
        let at = level.partition_point(|r| r.last < row);
        match level.get(at) {
            Some(reach) if reach.first <= row => PlaceInLevel::In(reach.first..=reach.last, reach.at as usize),
            next => {
                let first = at.checked_sub(1).map_or(RowId::ZERO, |before| RowId(level[before].last.0 + 1));
                PlaceInLevel::Between(first..=next.map_or(RowId::MAX, |next| RowId(next.first.0 - 1)))
            }
        }
    }
}

impl<K: Stored> Levels<K> {
    /// Of runs in the order of their least keys: each goes to the level that ended first, if that ends before it.
    pub(crate) fn new(runs: &[RunHandle<K>]) -> Self {
        let mut levels = Self::of(runs.iter().map(|h| (h.noted_by(), h.first.clone(), h.last.clone())));
        let newest = |level: &Level<K>| level.reaches.iter().map(|r| runs[r.at as usize].age()).max();
        levels.0.sort_by_cached_key(|level| Reverse(newest(level)));
        levels
    }
}

impl<K: Key> Levels<K> {
    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    fn of(reaches: impl Iterator<Item = (Option<TxnId>, K::Own, K::Own)>) -> Self {
        let mut levels: Vec<Level<K>> = Vec::new();
        let mut all_ends: HashMap<Option<TxnId>, Ends<K>> = HashMap::new();
        for ((noted_by, first, last), at) in reaches.zip(0..) {
            let ends = all_ends.entry(noted_by).or_default();
            let level = match ends.peek() {
                Some(Reverse((end, level))) if *end < first => {
                    let level = *level;
                    ends.pop();
                    level
                }
                _ => {
                    levels.push(Level { noted_by, reaches: Vec::new() });
                    levels.len() - 1
                }
            };
            ends.push(Reverse((last.clone(), level)));
            levels[level].reaches.push(Reach { first, last, at });
        }
        Levels(levels)
    }

    /// The places of the runs that reach over `key`, but for those that a transaction `but` has noted.
    pub(crate) fn at<'a, 'k>(
        &'a self,
        key: K::Ref<'k>,
        but: Option<TxnId>,
    ) -> impl Iterator<Item = usize> + use<'a, 'k, K> {
        let wanted = move |level: &&Level<K>| but.is_none() || level.noted_by != but;
        self.0.iter().filter(wanted).filter_map(move |Level { reaches: level, .. }| {
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
    fn place(lies: PlaceInLevel, row: u64) -> Option<usize> {
        let (known, at) = match lies {
            PlaceInLevel::In(known, at) => (known, Some(at)),
            PlaceInLevel::Between(known) => (known, None),
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
        let levels = Levels::<ByRow>::of(reaches.iter().map(|r| (None, RowId(r.0), RowId(r.1))));
        let over = |row: u64| {
            let holds = |r: &(usize, &(u64, u64))| r.1 .0 <= row && row <= r.1 .1;
            reaches.iter().enumerate().filter(holds).map(|r| r.0).collect::<Vec<_>>()
        };
        for row in 0..2100 {
            let mut found: Vec<_> = levels.at(RowId(row), None).collect();
            found.sort_unstable();
            assert_eq!(found, over(row), "row {row}");
            let mut alike: Vec<_> =
                (0..levels.count()).filter_map(|level| place(levels.lies(level, RowId(row)), row)).collect();
            alike.sort_unstable();
            assert_eq!(alike, found, "row {row}");
        }
        assert_eq!(levels.0.len(), (0..2100).map(|r| over(r).len()).max().unwrap());
    }

    #[test]
    fn runs_that_a_transaction_has_noted_are_passed_over_for_it_alone() {
        let owners = [None, Some(TxnId(1)), Some(TxnId(2))];
        let reaches: Vec<_> = (0..60u64).map(|i| (owners[i as usize % 3], RowId(i), RowId(100 + i))).collect();
        let levels = Levels::<ByRow>::of(reaches.into_iter());
        let found = |but| levels.at(RowId(80), but).collect::<Vec<_>>();
        assert_eq!(found(None).len(), 60);
        for but in owners.into_iter().flatten() {
            let mut others = found(Some(but));
            others.sort_unstable();
            let wanted: Vec<_> = (0..60).filter(|i| owners[i % 3] != Some(but)).collect();
            assert_eq!(others, wanted);
        }
    }
}
