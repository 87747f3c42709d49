//! About how many rows a table has, while the log is replayed.
//!
//! The manifest's figure holds what was committed before the manifest was written; the log begins earlier. So a change is
//! counted only if it is known to be later: of a transaction that the manifest does not know, or a private run that the
//! manifest neither holds nor had merged. A transaction that was open just then may be missed: hence "about".

use esker_format::{FileId, RunEntry, RunStats, TxnId};
use std::collections::{HashMap, HashSet};

pub(super) struct Count {
    pub(super) rows: i64,
    /// Transactions before this one may be in the manifest's figure.
    first_txn: TxnId,
    /// Runs of the manifest.
    held: HashSet<FileId>,
    /// What runs that were attached since have added, by the run that holds it now.
    attached: HashMap<FileId, i64>,
}

impl Count {
    /// From what the manifest says; `rows` of it were counted then.
    pub(super) fn new(rows: u64, first_txn: TxnId, runs: &[RunEntry]) -> Self {
        let held = runs.iter().map(|r| r.file).collect();
        Count { rows: rows as i64, first_txn, held, attached: HashMap::new() }
    }

    /// Of a tree that was made anew.
    pub(super) fn empty() -> Self {
        Self::new(0, TxnId::ZERO, &[])
    }

    /// A private run was committed that is not among the tree's.
    pub(super) fn attach(&mut self, file: FileId, stats: &RunStats) {
        let rows = live_delta(stats);
        self.rows += rows;
        self.attached.insert(file, rows);
    }

    /// Runs were replaced by others. If the manifest holds those, it had counted the old ones.
    pub(super) fn replace(&mut self, old: &[FileId], new: &[RunEntry]) {
        let rows: i64 = old.iter().filter_map(|f| self.attached.remove(f)).sum();
        if new.iter().any(|r| self.held.contains(&r.file) && !old.contains(&r.file)) {
            self.rows -= rows;
        } else if let Some(run) = new.iter().find(|r| !old.contains(&r.file)) {
            self.attached.insert(run.file, rows);
        }
    }

    /// A row was written.
    pub(super) fn put(&mut self, txn: TxnId, deleted: bool, supersedes: bool) {
        if txn >= self.first_txn {
            self.rows += i64::from(!supersedes) - i64::from(deleted);
        }
    }

    /// All rows were deleted.
    pub(super) fn clear(&mut self, txn: TxnId) {
        if txn >= self.first_txn {
            self.rows = 0;
            self.attached.clear();
        }
    }
}

/// What a private run adds to the rows that live: what it inserts without what it deletes.
pub(super) fn live_delta(stats: &RunStats) -> i64 {
    stats.rows as i64 - stats.supersedes as i64 - stats.tombstones as i64
}
