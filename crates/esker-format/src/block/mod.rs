//! Owns the row block: some tens of KiB of rows in order of row id, each column stored apart; and what key blocks share
//! with it.
//!
//! A block is a header, a directory of segments, and the segments: row ids, version tags, heads, and one for each column
//! (or, in the fixed row format, one of whole images). Invariants: checksums cover all of it and the place where it
//! belongs (`head.rs` says which covers what); a directory's lengths add up to the block's; ids never fall.

mod builder;
pub(crate) mod bytes;
pub(crate) mod columns;
mod decode;
pub(crate) mod head;
pub(crate) mod ints;
pub(crate) mod plain;
mod reader;
mod shape;
pub(crate) mod tags;
mod unpack;
pub(crate) mod view;

pub use builder::RowBlockBuilder;
pub use bytes::BlockBytes;
pub use head::reseal;
pub use reader::RowBlock;

use crate::error::FormatError;

use crate::ids::{CommitSeq, RowId};

/// Format version of blocks.
pub const BLOCK_VERSION: u16 = 2;
/// "EBLK".
pub const BLOCK_MAGIC: u32 = u32::from_le_bytes(*b"EBLK");
/// "EKBL": a key block.
pub const KEY_BLOCK_MAGIC: u32 = u32::from_le_bytes(*b"EKBL");
/// Length of a block's header; the segment directory follows.
pub const BLOCK_HEADER_BYTES: usize = 128;
/// Length of an entry of the segment directory.
pub const SEGMENT_ENTRY_BYTES: usize = 32;
/// The most rows of a block.
pub const MAX_BLOCK_ROWS: u32 = 1 << 20;

/// Offsets in a block's header (checksum at 0, of the rest of header and directory).
pub mod block_at {
    #![allow(missing_docs)]
    pub const CHECKSUM: usize = 0;
    pub const MAGIC: usize = 8;
    pub const VERSION: usize = 12;
    pub const FORMAT: usize = 14;
    pub const ZERO: usize = 15;
    pub const STORED_BYTES: usize = 16;
    pub const ROWS: usize = 20;
    pub const FIRST_ID: usize = 24;
    pub const LAST_ID: usize = 32;
    pub const MIN_SEQ: usize = 40;
    pub const MAX_SEQ: usize = 48;
    pub const TOMBSTONES: usize = 56;
    pub const SUPERSEDES: usize = 60;
    pub const RAW_BYTES: usize = 64;
    pub const FLAGS: usize = 68;
    pub const REQUIRED: usize = 72;
    pub const SEGMENTS: usize = 76;
    pub const KEY_ID: usize = 80;
    pub const KEY_VERSION: usize = 84;
    pub const AUTH_TAG: usize = 88;
    pub const RESERVED: usize = 104;
    pub const DIRECTORY: usize = 128;
}

/// Offsets in an entry of the segment directory.
pub mod segment_at {
    #![allow(missing_docs)]
    pub const KIND: usize = 0;
    pub const ENCODING: usize = 1;
    pub const COMPRESSION: usize = 2;
    pub const ZERO: usize = 3;
    pub const COLUMN: usize = 4;
    pub const UNIT: usize = 8;
    pub const OFFSET: usize = 12;
    pub const STORED_BYTES: usize = 16;
    pub const RAW_BYTES: usize = 20;
    pub const CHECKSUM: usize = 24;
}

/// What the segments are.
pub mod segment_kind {
    #![allow(missing_docs)]
    pub const IDS: u8 = 0;
    pub const SEQS: u8 = 1;
    pub const ORDINALS: u8 = 2;
    pub const TOMBSTONES: u8 = 3;
    pub const SUPERSEDES: u8 = 4;
    pub const HEADS: u8 = 5;
    pub const IMAGES: u8 = 6;
    pub const COLUMN: u8 = 7;
    pub const SHARED: u8 = 8;
    pub const KEYS: u8 = 9;
    pub const PAYLOADS: u8 = 10;
}

/// How a segment's content is encoded.
pub mod encoding {
    #![allow(missing_docs)]
    /// Nothing: no tombstones, no head bytes, a column that is empty in every row.
    pub const EMPTY: u8 = 0;
    /// One value of `unit` bytes that all rows share.
    pub const CONSTANT: u8 = 1;
    /// A value of `unit` bytes for each row.
    pub const UNIFORM: u8 = 2;
    /// A length of `unit` (1, 2 or 4) bytes for each row, then all values.
    pub const VAR: u8 = 3;
    /// Integers: a base that all rows share.
    pub const INT_CONSTANT: u8 = 4;
    /// Integers: a base, and one more for each row.
    pub const INT_LINEAR: u8 = 5;
    /// Integers: a base, and for each row what to add, in `unit` (1, 2, 4 or 8) bytes.
    pub const INT_DELTA: u8 = 6;
    /// A bit for each row.
    pub const BITMAP: u8 = 7;
    /// Kept for values that lie outside their block; not written, and refused.
    pub const OUTSIDE: u8 = 8;
}

/// Features of blocks that a reader must know, of [`block_at::REQUIRED`].
pub mod features {
    /// Integer segments may have deltas of 3, 5, 6 and 7 bytes.
    pub const DELTA_WIDTHS: u32 = 1;
}

/// Bits of [`BlockEntry::flags`].
pub mod flags {
    /// No row id occurs twice; in a key block: no key.
    pub const IDS_UNIQUE: u32 = 1;
    /// Row ids rise by one from row to row.
    pub const IDS_DENSE: u32 = 2;
    /// All commit sequences are zero: the run's own.
    pub const SEQ_ZERO: u32 = 4;
    /// All commit sequences are equal: they stand in the header alone.
    pub const SEQ_UNIFORM: u32 = 8;
    /// Ordinals rise by one from row to row.
    pub const ORDINALS_DENSE: u32 = 16;
    /// Those that this version knows.
    pub(crate) const KNOWN: u32 = IDS_UNIQUE | IDS_DENSE | SEQ_ZERO | SEQ_UNIFORM | ORDINALS_DENSE;
}

/// Which version of its row something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct VersionTag {
    /// Its commit sequence; zero stands for the run's own.
    pub seq: CommitSeq,
    /// Which change of its transaction's it is.
    pub ordinal: u64,
    /// Is it a deletion?
    pub tombstone: bool,
    /// May there be an older version of its row? True for updates and deletions, false for what was inserted, and once
    /// nothing older is left.
    pub supersedes: bool,
}

/// What a block index says about a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BlockEntry {
    /// Where it begins in its file.
    pub offset: u64,
    /// How long it is there.
    pub stored_bytes: u32,
    /// Its row versions, tombstones included.
    pub rows: u32,
    /// Its least row id.
    pub first_id: RowId,
    /// Its greatest row id.
    pub last_id: RowId,
    /// Its least commit sequence.
    pub min_seq: CommitSeq,
    /// Its greatest commit sequence.
    pub max_seq: CommitSeq,
    /// Its tombstones.
    pub tombstones: u32,
    /// Its versions that supersede an older one.
    pub supersedes: u32,
    /// Its length before compression.
    pub raw_bytes: u32,
    /// Bits of [`flags`].
    pub flags: u32,
    /// Its least ordinal.
    pub min_ordinal: u64,
    /// Its greatest ordinal.
    pub max_ordinal: u64,
}

impl BlockEntry {
    /// That of the block once [`reseal`] has made it good for `offset` of its new file, with the same `seq`.
    pub fn moved(self, offset: u64, seq: Option<CommitSeq>) -> Result<Self, FormatError> {
        let mut entry = BlockEntry { offset, ..self };
        if let Some(seq) = seq {
            if entry.max_seq != CommitSeq::ZERO || seq == CommitSeq::ZERO {
                return Err(FormatError::Invalid { what: "sequence for a block that has its own", found: seq.0 });
            }
            (entry.min_seq, entry.max_seq) = (seq, seq);
            entry.flags &= !flags::SEQ_ZERO;
        }
        Ok(entry)
    }

    /// Fails unless the block says of itself, in its head, what this entry of an index says of it.
    pub fn agrees_with_head(&self, block: &BlockEntry) -> Result<(), FormatError> {
        let pairs = [
            ("length of a block against its index entry", self.stored_bytes.into(), block.stored_bytes.into()),
            ("rows of a block against its index entry", self.rows.into(), block.rows.into()),
            ("first row of a block against its index entry", self.first_id.0, block.first_id.0),
            ("last row of a block against its index entry", self.last_id.0, block.last_id.0),
            ("least sequence of a block against its index entry", self.min_seq.0, block.min_seq.0),
            ("greatest sequence of a block against its index entry", self.max_seq.0, block.max_seq.0),
            ("tombstones of a block against its index entry", self.tombstones.into(), block.tombstones.into()),
            (
                "superseding versions of a block against its index entry",
                self.supersedes.into(),
                block.supersedes.into(),
            ),
            ("raw length of a block against its index entry", self.raw_bytes.into(), block.raw_bytes.into()),
            ("flags of a block against its index entry", self.flags.into(), block.flags.into()),
        ];
        first_difference(&pairs)
    }

    /// As [`agrees_with_head`](Self::agrees_with_head), with the ordinals, which a head does not tell: see [`reseal`].
    pub fn agrees_with(&self, block: &BlockEntry) -> Result<(), FormatError> {
        self.agrees_with_head(block)?;
        first_difference(&[
            ("least ordinal of a block against its index entry", self.min_ordinal, block.min_ordinal),
            ("greatest ordinal of a block against its index entry", self.max_ordinal, block.max_ordinal),
        ])
    }

    /// No row id occurs twice; in a key block: no key.
    #[must_use]
    pub fn ids_unique(&self) -> bool {
        self.flags & flags::IDS_UNIQUE != 0
    }

    /// Row ids rise by one from row to row.
    #[must_use]
    pub fn ids_dense(&self) -> bool {
        self.flags & flags::IDS_DENSE != 0
    }
}

/// Fails at the first of these whose two numbers are not the same.
fn first_difference(pairs: &[(&'static str, u64, u64)]) -> Result<(), FormatError> {
    match pairs.iter().find(|(_, said, found)| said != found) {
        Some(&(what, _, found)) => Err(FormatError::Invalid { what, found }),
        None => Ok(()),
    }
}
