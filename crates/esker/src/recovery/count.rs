//! How many rows a table has, while the log is replayed: what the manifest has counted, and what later commits say.

use esker_format::{CommitSeq, RunStats};

/// See the module.
pub(super) struct Count {
    pub(super) rows: i64,
    /// The newest commit that is in them.
    pub(super) seq: CommitSeq,
    /// They are no estimate.
    pub(super) known: bool,
}

impl Count {
    /// From what the manifest says.
    pub(super) fn new(rows: u64, counted_at: CommitSeq) -> Self {
        Count { rows: rows as i64, seq: counted_at, known: counted_at != CommitSeq::ZERO }
    }

    /// A commit says by how much it changed the number.
    pub(super) fn add(&mut self, seq: CommitSeq, rows: i64) {
        if seq > self.seq {
            self.rows += rows;
            self.seq = seq;
        }
    }

    /// A commit changed rows: unless it said by how much, about so many have come.
    pub(super) fn guess(&mut self, seq: CommitSeq, rows: i64) {
        if seq > self.seq {
            self.rows += rows;
            self.known = false;
        }
    }
}

/// What a private run adds to the rows that live: what it inserts without what it deletes.
pub(super) fn live_delta(stats: &RunStats) -> i64 {
    stats.rows as i64 - stats.supersedes as i64 - stats.tombstones as i64
}
