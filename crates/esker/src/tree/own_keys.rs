//! Which unique keys a transaction has in runs of its own, as far as filters tell.
//!
//! A large load looks for each of its keys in what it has itself written. That lies in runs, one over the other and more and
//! more of them, and has the key hardly ever. So those who write such runs keep filters of all their keys together: a few of
//! them, however many runs there are.
//!
//! Invariants: all keys of a run that is [noted](crate::tree::run::Run::noted) are in the filters of its owner; filters of all
//! transactions take a bounded part of the budget of large writes, and runs that have no room there are not noted.

use crate::write::large::{Budget, Share};
use esker_format::run::{add_key, may_hold};
use esker_memory::{Account, Region, PAGE_BYTES};
use std::sync::Arc;

/// About one in a thousand keys that are not there may be, for all that a filter says.
const BYTES_A_KEY: usize = 2;
/// A filter has room for so many times the keys of the one before it.
const GROWTH: usize = 4;

/// See the module.
#[derive(Default)]
pub(crate) struct OwnKeys(Vec<Filter>);

struct Filter {
    bits: Region,
    /// How many keys it has room for, and how many of these may still come.
    keys: usize,
    room: usize,
    _share: Share,
}

impl OwnKeys {
    /// Was never any run noted?
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Makes room for the keys of one more run. False: there is none, and the run is not to be noted.
    pub(crate) fn make_room(&mut self, keys: usize, budget: &Arc<Budget>) -> bool {
        let last = self.0.last();
        if last.is_some_and(|filter| filter.room >= keys) {
            return true;
        }
        let more = last.map_or(0, |filter| GROWTH * filter.keys).max(keys);
        let Some(filter) = Filter::new(more, keys, budget) else { return false };
        self.0.push(filter);
        true
    }

    /// Adds a key, by its hash, of a run for which there is room.
    pub(crate) fn add(&mut self, hash: u64) {
        if let Some(filter) = self.0.last_mut() {
            debug_assert!(filter.room > 0, "there was room for fewer keys");
            filter.room = filter.room.saturating_sub(1);
            add_key(&mut filter.bits, hash);
        }
    }

    /// May a noted run have the key of this hash?
    pub(crate) fn may_hold(&self, hash: u64) -> bool {
        self.0.iter().any(|filter| may_hold(&filter.bits, hash))
    }
}

impl Filter {
    /// With room for so many keys, or, if memory is short, for `least` or more.
    fn new(keys: usize, least: usize, budget: &Arc<Budget>) -> Option<Filter> {
        let bytes =
            |keys: usize| Region::capacity_of((keys * BYTES_A_KEY).next_multiple_of(PAGE_BYTES)).max(PAGE_BYTES);
        let share = Share::of_filter(budget, bytes(keys) as u64, bytes(least) as u64)?;
        // As much as the share pays for, in whole pages.
        let mut length = share.bytes() as usize / PAGE_BYTES * PAGE_BYTES;
        while Region::capacity_of(length) as u64 > share.bytes() {
            length -= PAGE_BYTES;
        }
        let bits = Region::zeroed(Account::BulkBuffer, length).ok()?;
        let keys = bits.len() / BYTES_A_KEY;
        Some(Filter { bits, keys, room: keys, _share: share })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use esker_format::run::filter_hash;

    const MIB: u64 = 1 << 20;

    fn hashes(run: u64, keys: u64) -> impl Iterator<Item = u64> {
        (run * keys..(run + 1) * keys).map(|n| filter_hash(&n.to_be_bytes()))
    }

    #[test]
    fn no_key_is_missed_few_are_taken_for_one_and_filters_are_few() {
        let (budget, mut own) = (Budget::new(256 * MIB), OwnKeys::default());
        for run in 0..100 {
            assert!(own.make_room(1000, &budget));
            hashes(run, 1000).for_each(|hash| own.add(hash));
        }
        assert!((0..100).flat_map(|run| hashes(run, 1000)).all(|hash| own.may_hold(hash)));
        let wrong = (100..200).flat_map(|run| hashes(run, 1000)).filter(|hash| own.may_hold(*hash)).count();
        assert!(wrong < 1000, "{wrong} of 100,000 that are not there");
        assert!(own.0.len() <= 5, "{} filters of 100 runs", own.0.len());
    }

    #[test]
    fn filters_take_a_bounded_part_of_the_budget_and_give_it_back() {
        let (budget, mut own, mut other) = (Budget::new(32 * MIB), OwnKeys::default(), OwnKeys::default());
        let mut noted = 0;
        while own.make_room(10_000, &budget) {
            (0..10_000).for_each(|n| own.add(n));
            noted += 1;
        }
        let most = budget.limit() / 8;
        assert!(budget.used() <= most && budget.used() > most / 10 * 9, "{} of {most} bytes", budget.used());
        assert!(noted > 40, "{noted} runs");
        assert!(own.0.len() <= 5, "{} filters", own.0.len());
        assert!(!other.make_room(10_000, &budget));
        drop((own, other));
        assert_eq!(budget.used(), 0);
        assert!(OwnKeys::default().make_room(noted * 10_000, &budget), "all that there was");
    }
}
