//! Owns the parts of a run file that are not row blocks: header at the start, block index, footer at the end.
//! Invariants: each part carries a checksum into which the file's identity is mixed, so that a part of another file is
//! found; a decoded index is in order of rows and of offsets, and its blocks do not overlap.

use crate::block::BlockEntry;
use crate::codec::{self, get_u32, get_u64, put_varint, set_u32, set_u64, Reader};
use crate::error::FormatError;
use crate::ids::{CommitSeq, FileId, RowId, TreeId};
use crate::MAX_BLOCK_BYTES;
use xxhash_rust::xxh3::xxh3_64;

/// Format version of run files.
pub const RUN_VERSION: u32 = 2;
/// Length of the header; the first block follows it.
pub const RUN_HEADER_BYTES: usize = 4096;
/// Length of the footer, the last bytes of the file.
pub const RUN_FOOTER_BYTES: usize = 256;
/// Length of the block index before its entries.
pub const INDEX_HEADER_BYTES: usize = 24;
/// Numbers of [`RunStats`].
const STATS_NUMBERS: usize = 12;
/// Length of one entry of the block index.
pub const INDEX_ENTRY_BYTES: usize = 80;

/// "ESKRUN" and two zero bytes.
pub const RUN_MAGIC: u64 = u64::from_le_bytes(*b"ESKRUN\0\0");
/// "ESKRIX" and two zero bytes.
pub const INDEX_MAGIC: u64 = u64::from_le_bytes(*b"ESKRIX\0\0");
/// "ESKRFT" and two zero bytes.
pub const FOOTER_MAGIC: u64 = u64::from_le_bytes(*b"ESKRFT\0\0");

/// Offsets in the header (checksum at 8, of all other bytes).
pub mod header_at {
    #![allow(missing_docs)]
    pub const MAGIC: usize = 0;
    pub const CHECKSUM: usize = 8;
    pub const VERSION: usize = 16;
    pub const FILE: usize = 24;
    pub const TREE: usize = 32;
    pub const FINGERPRINT: usize = 40;
    pub const CREATED: usize = 48;
}

/// Offsets in the footer (checksum at 0, of all that follows).
pub mod footer_at {
    #![allow(missing_docs)]
    pub const CHECKSUM: usize = 0;
    pub const MAGIC: usize = 8;
    pub const VERSION: usize = 16;
    pub const FILE: usize = 24;
    pub const TREE: usize = 32;
    pub const INDEX_OFFSET: usize = 40;
    pub const INDEX_BYTES: usize = 48;
    pub const STATS: usize = 56;
}

/// Offsets in the block index (checksum at 0, of all that follows, seeded with the file's identity).
pub mod index_at {
    #![allow(missing_docs)]
    pub const CHECKSUM: usize = 0;
    pub const MAGIC: usize = 8;
    pub const VERSION: usize = 16;
    pub const BLOCKS: usize = 20;
    pub const ENTRIES: usize = 24;
}

/// Offsets in an entry of the block index.
pub mod entry_at {
    #![allow(missing_docs)]
    pub const OFFSET: usize = 0;
    pub const STORED_BYTES: usize = 8;
    pub const ROWS: usize = 12;
    pub const FIRST_ID: usize = 16;
    pub const LAST_ID: usize = 24;
    pub const MIN_SEQ: usize = 32;
    pub const MAX_SEQ: usize = 40;
    pub const TOMBSTONES: usize = 48;
    pub const RAW_BYTES: usize = 52;
    pub const FLAGS: usize = 56;
    pub const SUPERSEDES: usize = 60;
    pub const MIN_ORDINAL: usize = 64;
    pub const MAX_ORDINAL: usize = 72;
}

/// What is mixed into a block's checksum, so that a block read from the wrong place is found.
#[must_use]
pub fn block_context(file: FileId, offset: u64) -> u64 {
    let mut bytes = [0; 16];
    set_u64(&mut bytes, 0, file.0);
    set_u64(&mut bytes, 8, offset);
    xxh3_64(&bytes)
}

/// The start of a run file: which run it is, of which tree, for which layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunHeader {
    /// The file's identity.
    pub file: FileId,
    /// The tree it was written for.
    pub tree: TreeId,
    /// [`crate::Layout::fingerprint`] of the layout it was written with.
    pub fingerprint: u64,
    /// When it was created, seconds since 1970.
    pub created_unix_s: u64,
}

impl RunHeader {
    /// Appends [`RUN_HEADER_BYTES`] bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.resize(start + RUN_HEADER_BYTES, 0);
        let b = &mut out[start..];
        set_u64(b, header_at::MAGIC, RUN_MAGIC);
        set_u32(b, header_at::VERSION, RUN_VERSION);
        set_u64(b, header_at::FILE, self.file.0);
        set_u64(b, header_at::TREE, self.tree.0);
        set_u64(b, header_at::FINGERPRINT, self.fingerprint);
        set_u64(b, header_at::CREATED, self.created_unix_s);
        codec::seal(&mut b[header_at::CHECKSUM..], RUN_MAGIC);
    }

    /// Reads the first [`RUN_HEADER_BYTES`] bytes of a file.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        codec::need("run header", bytes, RUN_HEADER_BYTES)?;
        let b = &bytes[..RUN_HEADER_BYTES];
        let magic = get_u64(b, header_at::MAGIC);
        if magic != RUN_MAGIC {
            return Err(FormatError::Invalid { what: "run magic", found: magic });
        }
        codec::check_seal(&b[header_at::CHECKSUM..], RUN_MAGIC)?;
        codec::check_version("run", get_u32(b, header_at::VERSION), RUN_VERSION)?;
        Ok(RunHeader {
            file: FileId(get_u64(b, header_at::FILE)),
            tree: TreeId(get_u64(b, header_at::TREE)),
            fingerprint: get_u64(b, header_at::FINGERPRINT),
            created_unix_s: get_u64(b, header_at::CREATED),
        })
    }
}

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

/// The end of a run file: where the block index is, and what is in the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunFooter {
    /// The file's identity, as in the header.
    pub file: FileId,
    /// The tree, as in the header.
    pub tree: TreeId,
    /// Where the block index begins.
    pub index_offset: u64,
    /// How long it is.
    pub index_bytes: u64,
    /// What is in the run.
    pub stats: RunStats,
}

impl RunFooter {
    /// Appends [`RUN_FOOTER_BYTES`] bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.resize(start + RUN_FOOTER_BYTES, 0);
        let b = &mut out[start..];
        set_u64(b, footer_at::MAGIC, FOOTER_MAGIC);
        set_u32(b, footer_at::VERSION, RUN_VERSION);
        set_u64(b, footer_at::FILE, self.file.0);
        set_u64(b, footer_at::TREE, self.tree.0);
        set_u64(b, footer_at::INDEX_OFFSET, self.index_offset);
        set_u64(b, footer_at::INDEX_BYTES, self.index_bytes);
        for (i, n) in self.stats.numbers().into_iter().enumerate() {
            set_u64(b, footer_at::STATS + 8 * i, n);
        }
        codec::seal(b, FOOTER_MAGIC);
    }

    /// Reads the last [`RUN_FOOTER_BYTES`] bytes of a file that is `file_bytes` long, and bounds the index by it.
    pub fn decode(bytes: &[u8], file_bytes: u64) -> Result<Self, FormatError> {
        codec::need("run footer", bytes, RUN_FOOTER_BYTES)?;
        let b = &bytes[bytes.len() - RUN_FOOTER_BYTES..];
        let magic = get_u64(b, footer_at::MAGIC);
        if magic != FOOTER_MAGIC {
            return Err(FormatError::Invalid { what: "run footer magic", found: magic });
        }
        codec::check_seal(b, FOOTER_MAGIC)?;
        codec::check_version("run footer", get_u32(b, footer_at::VERSION), RUN_VERSION)?;
        let mut n = [0; STATS_NUMBERS];
        for (i, slot) in n.iter_mut().enumerate() {
            *slot = get_u64(b, footer_at::STATS + 8 * i);
        }
        let footer = RunFooter {
            file: FileId(get_u64(b, footer_at::FILE)),
            tree: TreeId(get_u64(b, footer_at::TREE)),
            index_offset: get_u64(b, footer_at::INDEX_OFFSET),
            index_bytes: get_u64(b, footer_at::INDEX_BYTES),
            stats: RunStats::from_numbers(n),
        };
        let end = footer.index_offset.checked_add(footer.index_bytes);
        if footer.index_offset < RUN_HEADER_BYTES as u64
            || end.is_none_or(|end| end > file_bytes.saturating_sub(RUN_FOOTER_BYTES as u64))
        {
            return Err(FormatError::Invalid { what: "block index offset", found: footer.index_offset });
        }
        let entries = footer.stats.blocks.checked_mul(INDEX_ENTRY_BYTES as u64);
        if entries.and_then(|e| e.checked_add(INDEX_HEADER_BYTES as u64)) != Some(footer.index_bytes) {
            return Err(FormatError::Invalid { what: "block index length", found: footer.index_bytes });
        }
        Ok(footer)
    }
}

/// Appends the block index of the run file `file`.
pub fn encode_index(file: FileId, blocks: &[BlockEntry], out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + INDEX_HEADER_BYTES + blocks.len() * INDEX_ENTRY_BYTES, 0);
    let b = &mut out[start..];
    set_u64(b, index_at::MAGIC, INDEX_MAGIC);
    set_u32(b, index_at::VERSION, RUN_VERSION);
    set_u32(b, index_at::BLOCKS, blocks.len() as u32);
    for (entry, e) in b[index_at::ENTRIES..].chunks_exact_mut(INDEX_ENTRY_BYTES).zip(blocks) {
        set_u64(entry, entry_at::OFFSET, e.offset);
        set_u32(entry, entry_at::STORED_BYTES, e.stored_bytes);
        set_u32(entry, entry_at::ROWS, e.rows);
        set_u64(entry, entry_at::FIRST_ID, e.first_id.0);
        set_u64(entry, entry_at::LAST_ID, e.last_id.0);
        set_u64(entry, entry_at::MIN_SEQ, e.min_seq.0);
        set_u64(entry, entry_at::MAX_SEQ, e.max_seq.0);
        set_u32(entry, entry_at::TOMBSTONES, e.tombstones);
        set_u32(entry, entry_at::RAW_BYTES, e.raw_bytes);
        set_u32(entry, entry_at::FLAGS, e.flags);
        set_u32(entry, entry_at::SUPERSEDES, e.supersedes);
        set_u64(entry, entry_at::MIN_ORDINAL, e.min_ordinal);
        set_u64(entry, entry_at::MAX_ORDINAL, e.max_ordinal);
    }
    codec::seal(b, block_context(file, INDEX_MAGIC));
}

/// Reads the block index of the run file `file`, all of `bytes`.
pub fn decode_index(file: FileId, bytes: &[u8]) -> Result<Vec<BlockEntry>, FormatError> {
    codec::need("block index", bytes, INDEX_HEADER_BYTES)?;
    let magic = get_u64(bytes, index_at::MAGIC);
    if magic != INDEX_MAGIC {
        return Err(FormatError::Invalid { what: "block index magic", found: magic });
    }
    codec::check_seal(bytes, block_context(file, INDEX_MAGIC))?;
    codec::check_version("block index", get_u32(bytes, index_at::VERSION), RUN_VERSION)?;
    let n = get_u32(bytes, index_at::BLOCKS) as usize;
    if Some(bytes.len() - INDEX_HEADER_BYTES) != n.checked_mul(INDEX_ENTRY_BYTES) {
        return Err(FormatError::Invalid { what: "block count", found: n as u64 });
    }
    let mut blocks: Vec<BlockEntry> = Vec::with_capacity(n);
    for entry in bytes[index_at::ENTRIES..].chunks_exact(INDEX_ENTRY_BYTES) {
        let e = BlockEntry {
            offset: get_u64(entry, entry_at::OFFSET),
            stored_bytes: get_u32(entry, entry_at::STORED_BYTES),
            rows: get_u32(entry, entry_at::ROWS),
            first_id: RowId(get_u64(entry, entry_at::FIRST_ID)),
            last_id: RowId(get_u64(entry, entry_at::LAST_ID)),
            min_seq: CommitSeq(get_u64(entry, entry_at::MIN_SEQ)),
            max_seq: CommitSeq(get_u64(entry, entry_at::MAX_SEQ)),
            tombstones: get_u32(entry, entry_at::TOMBSTONES),
            supersedes: get_u32(entry, entry_at::SUPERSEDES),
            raw_bytes: get_u32(entry, entry_at::RAW_BYTES),
            flags: get_u32(entry, entry_at::FLAGS),
            min_ordinal: get_u64(entry, entry_at::MIN_ORDINAL),
            max_ordinal: get_u64(entry, entry_at::MAX_ORDINAL),
        };
        let (at, id) = blocks
            .last()
            .map_or((RUN_HEADER_BYTES as u64, RowId::ZERO), |p| (p.offset + u64::from(p.stored_bytes), p.last_id));
        if e.offset < at || e.offset > u64::MAX / 2 {
            return Err(FormatError::Invalid { what: "block offset", found: e.offset });
        }
        if e.rows == 0 || e.tombstones > e.rows || e.supersedes > e.rows {
            return Err(FormatError::Invalid { what: "block rows", found: u64::from(e.rows) });
        }
        if e.stored_bytes > MAX_BLOCK_BYTES || e.raw_bytes > MAX_BLOCK_BYTES {
            let found = u64::from(e.stored_bytes.max(e.raw_bytes));
            return Err(FormatError::TooLong { what: "block", found, max: u64::from(MAX_BLOCK_BYTES) });
        }
        if e.first_id < id || e.last_id < e.first_id || e.max_seq < e.min_seq {
            return Err(FormatError::Invalid { what: "block row ids", found: e.first_id.0 });
        }
        blocks.push(e);
    }
    Ok(blocks)
}
