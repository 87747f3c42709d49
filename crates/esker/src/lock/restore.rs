//! Locks of transactions that a restart has found prepared: a container's rows at once, as sets. Nobody waits, as nobody who
//! could was there when they were taken.
//!
//! Invariant: as for locks that are taken one by one, an exclusive lock excludes every other owner's on that row.

use super::set::RowSet;
use super::shard::{holder_of, recharge};
use super::{LockMode, LockOwner, LockTable};
use esker_base::{count, Counter};
use esker_format::TreeId;
use std::ops::RangeInclusive;
use std::sync::atomic::Ordering;
use std::sync::Arc;

impl LockTable {
    /// Locks the rows of `tree` with these upper 48 bits and lower 16 bits, but for those that somebody's range covers or that
    /// another one has. A range of another one's has in it only what this one has inserted, which needs no lock.
    pub(crate) fn restore(
        &self,
        owner: &Arc<LockOwner>,
        tree: TreeId,
        high: u64,
        rows: impl Iterator<Item = RangeInclusive<u16>>,
        mode: LockMode,
    ) {
        let shard = &mut *self.shard(tree, high);
        let covered = shard.ranges.iter().filter(|r| r.tree == tree).map(|r| r.up_to.0).max().unwrap_or(0);
        let Ok(first) = u16::try_from(covered.saturating_sub(high << 16)) else { return };
        let mut wanted = RowSet::default();
        for rows in rows.filter(|rows| *rows.end() >= first) {
            wanted.insert_range(first.max(*rows.start())..=*rows.end());
        }
        let others = shard.containers.get(&(tree, high)).into_iter().flatten().filter(|h| h.owner.txn != owner.txn);
        for other in others {
            wanted.remove_all(&other.exclusive);
            if mode == LockMode::Exclusive {
                wanted.remove_all(&other.shared);
            }
        }
        if wanted.is_empty() {
            return;
        }
        let holder = holder_of(shard.containers.entry((tree, high)).or_default(), owner, (tree, high));
        let before = holder.heap_bytes();
        let new = if mode == LockMode::Exclusive && holder.exclusive.is_empty() && holder.shared.is_empty() {
            let rows = wanted.len();
            owner.rows.fetch_add(rows, Ordering::Relaxed);
            holder.exclusive = wanted;
            rows
        } else {
            wanted.iter().filter(|low| holder.add(*low, mode)).count() as u64
        };
        let after = holder.heap_bytes();
        recharge(&mut shard.charge, before, after);
        count(Counter::RowLocks, new);
    }
}
