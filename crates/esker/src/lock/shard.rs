//! A part of the table of row locks: who holds which rows of which containers, and which ranges; nobody waits here.

use super::set::RowSet;
use super::wait::Blocker;
use super::{LockMode, LockOutcome, LockOwner};
use esker_format::{RowId, TreeId};
use esker_memory::{Account, Charge};
use std::collections::hash_map::Entry;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::Ordering;
use std::sync::Arc;

pub(super) struct Holder {
    pub(super) owner: Arc<LockOwner>,
    pub(super) shared: RowSet,
    pub(super) exclusive: RowSet,
}

impl Holder {
    pub(super) fn heap_bytes(&self) -> u64 {
        self.shared.heap_bytes() + self.exclusive.heap_bytes()
    }

    /// Adds a row; false if the owner had it in this mode.
    pub(super) fn add(&mut self, low: u16, mode: LockMode) -> bool {
        let (new, rows) = match mode {
            LockMode::Exclusive => {
                // An upgrade keeps the shared lock: letting go of the row again falls back to it.
                let new = self.exclusive.insert(low);
                (new, new && !self.shared.contains(low))
            }
            LockMode::Shared => {
                let new = !self.exclusive.contains(low) && self.shared.insert(low);
                (new, new)
            }
        };
        self.owner.rows.fetch_add(rows.into(), Ordering::Relaxed);
        new
    }
}

/// The place of an owner among those of a container, made if there is none.
pub(super) fn holder_of<'a>(
    holders: &'a mut Vec<Holder>,
    owner: &Arc<LockOwner>,
    key: (TreeId, u64),
) -> &'a mut Holder {
    let at = holders.iter().position(|h| h.owner.txn == owner.txn).unwrap_or_else(|| {
        owner.held.lock().containers.push(key);
        let empty = RowSet::default();
        holders.push(Holder { owner: owner.clone(), shared: empty.clone(), exclusive: empty });
        holders.len() - 1
    });
    &mut holders[at]
}

pub(super) struct RangeHolder {
    pub(super) owner: Arc<LockOwner>,
    pub(super) tree: TreeId,
    pub(super) up_to: RowId,
}

/// Keys are dense numbers: one multiplication spreads them well enough.
#[derive(Default)]
pub(super) struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for b in bytes {
            self.write_u64(u64::from(*b));
        }
    }
    fn write_u64(&mut self, n: u64) {
        let mixed = (self.0.rotate_left(29) ^ n).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = mixed ^ (mixed >> 32);
    }
}

type Containers = HashMap<(TreeId, u64), Vec<Holder>, BuildHasherDefault<Spread>>;

pub(super) struct Shard {
    pub(super) containers: Containers,
    pub(super) ranges: Vec<RangeHolder>,
    /// What large sets take; the fixed size of a container is not worth an account.
    pub(super) charge: Charge,
}

/// What one look at a shard gave.
pub(super) enum Attempt {
    Done(LockOutcome),
    Blocked(Vec<Blocker>),
}

pub(super) fn split(row: RowId) -> (u64, u16) {
    (row.0 >> 16, row.0 as u16)
}

pub(super) fn recharge(charge: &mut Charge, before: u64, after: u64) {
    if before != after {
        charge.resize((charge.bytes() + after).saturating_sub(before));
    }
}

impl Shard {
    pub(super) fn new() -> Self {
        Shard { containers: Containers::default(), ranges: Vec::new(), charge: Charge::new(Account::Locks, 0) }
    }

    pub(super) fn try_lock(&mut self, owner: &Arc<LockOwner>, tree: TreeId, row: RowId, mode: LockMode) -> Attempt {
        let (high, low) = split(row);
        let mut blockers = Vec::new();
        let mut covered = false;
        for r in self.ranges.iter().filter(|r| r.tree == tree && row < r.up_to) {
            if r.owner.txn == owner.txn {
                covered = true;
            } else {
                blockers.push(Blocker { owner: r.owner.clone(), exclusive: true });
            }
        }
        let entry = self.containers.entry((tree, high));
        if let Entry::Occupied(entry) = &entry {
            for h in entry.get().iter().filter(|h| h.owner.txn != owner.txn) {
                if h.exclusive.contains(low) {
                    blockers.push(Blocker { owner: h.owner.clone(), exclusive: true });
                } else if mode == LockMode::Exclusive && h.shared.contains(low) {
                    blockers.push(Blocker { owner: h.owner.clone(), exclusive: false });
                }
            }
        }
        if !blockers.is_empty() {
            return Attempt::Blocked(blockers);
        }
        if covered {
            return Attempt::Done(LockOutcome::AlreadyHeld);
        }
        let holder = holder_of(entry.or_default(), owner, (tree, high));
        let before = holder.heap_bytes();
        let new = holder.add(low, mode);
        let after = holder.heap_bytes();
        recharge(&mut self.charge, before, after);
        Attempt::Done(if new { LockOutcome::Granted } else { LockOutcome::AlreadyHeld })
    }

    pub(super) fn try_range(&mut self, owner: &Arc<LockOwner>, tree: TreeId, up_to: RowId) -> Attempt {
        let mut blockers = Vec::new();
        for r in self.ranges.iter().filter(|r| r.tree == tree && r.owner.txn != owner.txn) {
            blockers.push(Blocker { owner: r.owner.clone(), exclusive: true });
        }
        let below = |high: u64, set: &RowSet| set.first().is_some_and(|low| high << 16 | u64::from(low) < up_to.0);
        for ((_, high), holders) in self.containers.iter().filter(|((t, _), _)| *t == tree) {
            for h in holders.iter().filter(|h| h.owner.txn != owner.txn) {
                let exclusive = below(*high, &h.exclusive);
                if exclusive || below(*high, &h.shared) {
                    blockers.push(Blocker { owner: h.owner.clone(), exclusive });
                }
            }
        }
        if !blockers.is_empty() {
            return Attempt::Blocked(blockers);
        }
        match self.ranges.iter_mut().find(|r| r.tree == tree && r.owner.txn == owner.txn) {
            Some(r) if r.up_to >= up_to => Attempt::Done(LockOutcome::AlreadyHeld),
            Some(r) => {
                r.up_to = up_to;
                Attempt::Done(LockOutcome::Granted)
            }
            None => {
                self.ranges.push(RangeHolder { owner: owner.clone(), tree, up_to });
                Attempt::Done(LockOutcome::Granted)
            }
        }
    }
}
