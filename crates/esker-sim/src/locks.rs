//! The reference's row locks: who holds which row, and what a request that does not wait must therefore get.
//!
//! Invariant: `Maybe` is said only where the engine is free to choose: rows reserved before a table was emptied, and
//! locks of rolled back work that a restart may or may not have kept.

use crate::model::Key;
use std::collections::BTreeMap;

/// What a request must get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is granted, and was not held before.
    Free,
    /// It is held already.
    Held,
    /// Somebody else has it.
    Blocked,
    /// Any of the three.
    Maybe,
}

#[derive(Debug, Clone, Copy)]
struct Hold {
    owner: u64,
    exclusive: bool,
    sure: bool,
}

#[derive(Debug, Clone, Copy)]
struct RangeHold {
    owner: u64,
    up_to: u64,
    sure: bool,
}

#[derive(Debug, Clone, Copy)]
struct InsertHold {
    owner: u64,
    first: u64,
    sure: bool,
}

/// All row locks.
#[derive(Debug, Clone, Default)]
pub struct Locks {
    rows: BTreeMap<(Key, u64), Vec<Hold>>,
    ranges: BTreeMap<Key, Vec<RangeHold>>,
    /// Who inserts into a table, and from which row on.
    inserts: BTreeMap<Key, Vec<InsertHold>>,
}

impl Locks {
    /// What a request for a row must get.
    pub fn ask(&self, owner: u64, key: Key, row: u64, exclusive: bool) -> Verdict {
        let (mut maybe, mut mine_maybe, mut held) = (false, false, false);
        for r in self.ranges.get(&key).into_iter().flatten() {
            match (r.owner == owner, row <= r.up_to && r.sure) {
                (true, true) => held = true,
                (false, true) => return Verdict::Blocked,
                (true, false) => mine_maybe = true,
                (false, false) => maybe = true,
            }
        }
        for h in self.rows.get(&(key, row)).into_iter().flatten() {
            if h.owner == owner {
                held |= h.sure && (h.exclusive || !exclusive);
                mine_maybe |= !h.sure;
            } else if h.exclusive || exclusive {
                if h.sure {
                    return Verdict::Blocked;
                }
                maybe = true;
            }
        }
        match (maybe || (mine_maybe && !held), held) {
            (true, _) => Verdict::Maybe,
            (false, true) => Verdict::Held,
            (false, false) => Verdict::Free,
        }
    }

    /// The row was locked.
    pub fn take(&mut self, owner: u64, key: Key, row: u64, exclusive: bool) {
        let holds = self.rows.entry((key, row)).or_default();
        match holds.iter_mut().find(|h| h.owner == owner && h.sure) {
            Some(h) => h.exclusive |= exclusive,
            None => holds.push(Hold { owner, exclusive, sure: true }),
        }
    }

    /// What a request for all rows of a table must get.
    pub fn ask_range(&self, owner: u64, key: Key) -> Verdict {
        let ranges = self.ranges.get(&key).into_iter().flatten().map(|r| (r.owner, r.sure));
        let rows = self.rows.range((key, 0)..=(key, u64::MAX)).flat_map(|(_, h)| h).map(|h| (h.owner, h.sure));
        let mut verdict = Verdict::Free;
        for (_, sure) in ranges.chain(rows).filter(|(o, _)| *o != owner) {
            if sure {
                return Verdict::Blocked;
            }
            verdict = Verdict::Maybe;
        }
        verdict
    }

    /// The owner inserted a row, or, if it is not sure, may have.
    pub fn insert(&mut self, owner: u64, key: Key, first: u64, sure: bool) {
        let inserts = self.inserts.entry(key).or_default();
        match inserts.iter_mut().find(|i| i.owner == owner && i.sure == sure) {
            Some(known) => known.first = known.first.min(first),
            None => inserts.push(InsertHold { owner, first, sure }),
        }
    }

    /// What a scan that insists on all rows must get when it comes to `row`.
    pub fn ask_inserts(&self, owner: u64, key: Key, row: u64) -> Verdict {
        let others = self.inserts.get(&key).into_iter().flatten().filter(|i| i.owner != owner && i.first <= row);
        others.fold(Verdict::Free, |verdict, i| match (verdict, i.sure) {
            (Verdict::Blocked, _) | (_, true) => Verdict::Blocked,
            (_, false) => Verdict::Maybe,
        })
    }

    /// All rows up to `up_to` were locked.
    pub fn take_range(&mut self, owner: u64, key: Key, up_to: u64) {
        self.keep_range(owner, key, up_to, true);
    }

    /// A restart kept the lock of a prepared transaction, or may have.
    pub fn keep(&mut self, owner: u64, key: Key, row: u64, sure: bool, exclusive: bool) {
        self.rows.entry((key, row)).or_default().push(Hold { owner, exclusive, sure });
    }

    /// As [`keep`](Self::keep), for all rows up to `up_to`.
    pub fn keep_range(&mut self, owner: u64, key: Key, up_to: u64, sure: bool) {
        self.ranges.entry(key).or_default().push(RangeHold { owner, up_to, sure });
    }

    /// One row's lock is let go.
    pub fn unlock(&mut self, owner: u64, key: Key, row: u64) {
        if let Some(holds) = self.rows.get_mut(&(key, row)) {
            holds.retain(|h| h.owner != owner);
        }
    }

    /// Everything of an owner is let go.
    pub fn release(&mut self, owner: u64) {
        self.rows.retain(|_, holds| {
            holds.retain(|h| h.owner != owner);
            !holds.is_empty()
        });
        self.inserts.retain(|_, holds| {
            holds.retain(|h| h.owner != owner);
            !holds.is_empty()
        });
        self.ranges.retain(|_, holds| {
            holds.retain(|h| h.owner != owner);
            !holds.is_empty()
        });
    }
}
