//! Owns the figures of a run: what its blocks hold in all. Invariant: all are zero when it holds no row.

use crate::block::BlockEntry;
use crate::codec::{put_varint, Reader};
use crate::error::FormatError;
use crate::ids::{CommitSeq, RowId};

/// Numbers of [`RunStats`].
const STATS_NUMBERS: usize = 12;

/// What is in a run. All zero when it holds no row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RunStats {
    /// Row versions, tombstones included.
    pub rows: u64,
    /// Tombstones.
    pub tombstones: u64,
    /// Versions that supersede an older one.
    pub supersedes: u64,
    /// Bytes before compression.
    pub raw_bytes: u64,
    /// Bytes of the stored blocks.
    pub stored_bytes: u64,
    /// Blocks.
    pub blocks: u64,
    /// Least row id.
    pub min_id: RowId,
    /// Greatest row id.
    pub max_id: RowId,
    /// Least commit sequence; zero stands for the run's own.
    pub min_seq: CommitSeq,
    /// Greatest commit sequence.
    pub max_seq: CommitSeq,
    /// Least ordinal.
    pub min_ordinal: u64,
    /// Greatest ordinal.
    pub max_ordinal: u64,
}

impl RunStats {
    /// The shortest stored form.
    pub(crate) const MIN_BYTES: usize = STATS_NUMBERS;

    /// Takes a block into account.
    pub fn add(&mut self, block: &BlockEntry) {
        if block.rows == 0 {
            return;
        }
        self.merge(&RunStats {
            rows: u64::from(block.rows),
            tombstones: u64::from(block.tombstones),
            supersedes: u64::from(block.supersedes),
            raw_bytes: u64::from(block.raw_bytes),
            stored_bytes: u64::from(block.stored_bytes),
            blocks: 1,
            min_id: block.first_id,
            max_id: block.last_id,
            min_seq: block.min_seq,
            max_seq: block.max_seq,
            min_ordinal: block.min_ordinal,
            max_ordinal: block.max_ordinal,
        });
    }

    /// Takes another run into account.
    pub fn merge(&mut self, other: &RunStats) {
        if other.rows == 0 {
            return;
        }
        if self.rows == 0 {
            *self = *other;
            return;
        }
        self.rows += other.rows;
        self.tombstones += other.tombstones;
        self.supersedes += other.supersedes;
        self.raw_bytes += other.raw_bytes;
        self.stored_bytes += other.stored_bytes;
        self.blocks += other.blocks;
        self.min_id = self.min_id.min(other.min_id);
        self.max_id = self.max_id.max(other.max_id);
        self.min_seq = self.min_seq.min(other.min_seq);
        self.max_seq = self.max_seq.max(other.max_seq);
        self.min_ordinal = self.min_ordinal.min(other.min_ordinal);
        self.max_ordinal = self.max_ordinal.max(other.max_ordinal);
    }

    /// The numbers in stored order.
    fn numbers(&self) -> [u64; STATS_NUMBERS] {
        [
            self.rows,
            self.tombstones,
            self.supersedes,
            self.raw_bytes,
            self.stored_bytes,
            self.blocks,
            self.min_id.0,
            self.max_id.0,
            self.min_seq.0,
            self.max_seq.0,
            self.min_ordinal,
            self.max_ordinal,
        ]
    }

    /// From the numbers in stored order.
    fn from_numbers(n: [u64; STATS_NUMBERS]) -> Self {
        RunStats {
            rows: n[0],
            tombstones: n[1],
            supersedes: n[2],
            raw_bytes: n[3],
            stored_bytes: n[4],
            blocks: n[5],
            min_id: RowId(n[6]),
            max_id: RowId(n[7]),
            min_seq: CommitSeq(n[8]),
            max_seq: CommitSeq(n[9]),
            min_ordinal: n[10],
            max_ordinal: n[11],
        }
    }

    /// Appends the stored form of log and manifest: varints.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        for n in self.numbers() {
            put_varint(out, n);
        }
    }

    /// Reads the stored form of log and manifest.
    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Self, FormatError> {
        let mut n = [0; STATS_NUMBERS];
        for slot in &mut n {
            *slot = r.varint()?;
        }
        Ok(Self::from_numbers(n))
    }
}
