//! What a transaction has locked, for people.
//!
//! A container's set is copied while its shard is locked, nothing else is done then.

use super::set::RowSet;
use super::wait::LockMode;
use super::{LockOwner, LockTable};
use esker_format::{RowId, TreeId};

/// A lock, or some of neighbouring rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Locked {
    /// Rows of a row tree, or places of reserved keys of a key tree, from the first to the last.
    Rows { tree: TreeId, first: RowId, last: RowId, mode: LockMode },
    /// Every row below that one.
    Range { tree: TreeId, up_to: RowId },
}

/// Adds locked rows to a list: one by one, or such as follow each other as one.
struct Gather {
    list: Vec<Locked>,
    most: usize,
    joins: bool,
    rows: u64,
}

impl Gather {
    /// False: no more fit.
    fn add(&mut self, tree: TreeId, row: RowId, mode: LockMode) -> bool {
        if let (true, Some(Locked::Rows { tree: t, last, mode: m, .. })) = (self.joins, self.list.last_mut()) {
            if (*t, *m, last.0 + 1) == (tree, mode, row.0) {
                *last = row;
                self.rows += 1;
                return true;
            }
        }
        if self.list.len() >= self.most {
            return false;
        }
        self.list.push(Locked::Rows { tree, first: row, last: row, mode });
        self.rows += 1;
        true
    }

    /// The same of one container.
    fn add_all(&mut self, tree: TreeId, high: u64, shared: &RowSet, exclusive: &RowSet) -> bool {
        let row = |low: u16| RowId(high << 16 | u64::from(low));
        exclusive.iter().all(|low| self.add(tree, row(low), LockMode::Exclusive))
            && shared
                .iter()
                .filter(|low| !exclusive.contains(*low))
                .all(|low| self.add(tree, row(low), LockMode::Shared))
    }
}

impl LockTable {
    /// What `owner` has locked, in at most `most` lines and one for each range, and how many rows it has besides. Row by row
    /// if that fits, else neighbours are one line. What it locks meanwhile may be among them or not.
    pub(crate) fn held_by(&self, owner: &LockOwner, most: usize) -> (Vec<Locked>, u64) {
        let (mut containers, ranges) = {
            let held = owner.held.lock();
            (held.containers.clone(), held.ranges.clone())
        };
        containers.sort_unstable();
        let locked = owner.locked_rows();
        let mut gather = Gather { list: Vec::new(), most, joins: locked > most as u64, rows: 0 };
        for (tree, high) in containers {
            let sets = {
                let shard = self.shard(tree, high);
                let holders = shard.containers.get(&(tree, high)).map_or(&[][..], |holders| holders);
                let mine = holders.iter().find(|h| h.owner.txn == owner.txn);
                mine.map(|h| (h.shared.clone(), h.exclusive.clone()))
            };
            if sets.is_some_and(|(shared, exclusive)| !gather.add_all(tree, high, &shared, &exclusive)) {
                break;
            }
        }
        let Gather { mut list, rows, .. } = gather;
        if !ranges.is_empty() {
            // Noted alike in every shard.
            let shard = self.shards[0].lock();
            let own = shard.ranges.iter().filter(|r| r.owner.txn == owner.txn);
            list.extend(own.map(|r| Locked::Range { tree: r.tree, up_to: r.up_to }));
        }
        (list, locked.saturating_sub(rows))
    }
}
