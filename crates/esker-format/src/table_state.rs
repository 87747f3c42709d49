//! Owns what the manifest says about a table beyond its catalog entry: counters, range tombstones, each tree's runs, and
//! what is known of its indexes. Invariant of a decoded state: it has a tree's state and statistics for no tree that its entry
//! does not name; what belongs to a tree that was skipped goes with it.

use crate::catalog::TableEntry;
use crate::codec::{put_varint, Reader};
use crate::entry::{put_list, put_sized};
use crate::error::FormatError;
use crate::ids::{CommitSeq, Lsn, RowId, TreeId};
use crate::run_entry::{get_runs, put_runs, RunEntry};
use crate::statistics::IndexStatistics;
use xxhash_rust::xxh3::xxh3_128;

/// All versions of rows below `up_to` that were committed up to `as_of`, and earlier ones of the same transaction, are
/// deleted for views from `seq` on, in all trees of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RangeTombstone {
    /// Rows with ids below this one.
    pub up_to: RowId,
    /// Versions committed up to here.
    pub as_of: CommitSeq,
    /// The commit sequence of the delete.
    pub seq: CommitSeq,
    /// Which change of its transaction it was.
    pub ordinal: u64,
}

impl RangeTombstone {
    fn encode(&self, out: &mut Vec<u8>) {
        for n in [self.up_to.0, self.as_of.0, self.seq.0, self.ordinal] {
            put_varint(out, n);
        }
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, FormatError> {
        Ok(RangeTombstone {
            up_to: RowId(r.varint()?),
            as_of: CommitSeq(r.varint()?),
            seq: CommitSeq(r.varint()?),
            ordinal: r.varint()?,
        })
    }
}

/// The state of one tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeState {
    /// Which of the table's trees.
    pub tree: TreeId,
    /// What the log says about the tree before this is in its runs.
    pub flushed_to: Lsn,
    /// The tree's runs.
    pub runs: Vec<RunEntry>,
}

impl TreeState {
    fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.tree.0);
        put_varint(out, self.flushed_to.0);
        put_runs(out, &self.runs);
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, FormatError> {
        Ok(TreeState { tree: TreeId(r.varint()?), flushed_to: Lsn(r.varint()?), runs: get_runs(r)? })
    }
}

/// A table and its trees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableState {
    /// What the catalog says.
    pub entry: TableEntry,
    /// Row ids from here on are free.
    pub next_row_id: RowId,
    /// Auto-increment values from here on are free; 0: none was given out.
    pub next_auto_increment: u64,
    /// Rows that live in the table.
    pub live_rows: u64,
    /// `live_rows` is exact for the commits up to this one; zero: an estimate.
    pub counted_at: CommitSeq,
    /// The table's range tombstones.
    pub range_deletes: Vec<RangeTombstone>,
    /// Its trees.
    pub trees: Vec<TreeState>,
    /// What ANALYZE TABLE found out about its indexes.
    pub statistics: Vec<IndexStatistics>,
}

impl TableState {
    /// A hash of all of it, long enough that two states with one hash are the same.
    #[must_use]
    pub fn digest(&self) -> u128 {
        let mut bytes = Vec::new();
        self.encode(&mut bytes);
        xxh3_128(&bytes)
    }

    /// Appends the stored form.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_sized(out, |out| self.entry.encode(out));
        for n in [self.next_row_id.0, self.next_auto_increment, self.live_rows, self.counted_at.0] {
            put_varint(out, n);
        }
        put_list(out, &self.range_deletes, RangeTombstone::encode);
        put_list(out, &self.trees, TreeState::encode);
        put_list(out, &self.statistics, IndexStatistics::encode);
    }

    /// Reads the stored form.
    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Self, FormatError> {
        let mut state = TableState {
            entry: TableEntry::decode(&mut r.sized()?)?,
            next_row_id: RowId(r.varint()?),
            next_auto_increment: r.varint()?,
            live_rows: r.varint()?,
            counted_at: CommitSeq(r.varint()?),
            range_deletes: r.list(4, RangeTombstone::decode)?,
            trees: r.list(3, TreeState::decode)?,
            // Not there before anybody kept them.
            statistics: if r.rest().is_empty() { Vec::new() } else { r.list(4, IndexStatistics::decode)? },
        };
        let entry = &state.entry;
        let is_there = |tree| entry.trees.iter().any(|e| e.id == tree);
        state.trees.retain(|t| is_there(t.tree));
        state.statistics.retain(|s| is_there(s.tree));
        Ok(state)
    }
}
