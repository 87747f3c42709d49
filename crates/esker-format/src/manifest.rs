//! Owns the manifest: the state of the catalog and of all trees at one position of the log.
//! Invariant: one checksum over the whole, so that a manifest is read wholly or not at all.

use crate::catalog::{get_runs, put_runs, RunEntry, TableEntry};
use crate::codec::{self, get_u32, get_u64, put_varint, set_u32, set_u64, Reader};
use crate::error::FormatError;
use crate::ids::{CommitSeq, FileId, Lsn, RowId, TableId, TreeId, TxnId};
use crate::run::RunStats;

/// Format version of the manifest.
pub const MANIFEST_VERSION: u32 = 1;
/// Length of the manifest before its body.
pub const MANIFEST_HEADER_BYTES: usize = 32;
/// "ESKMAN" and two zero bytes.
pub const MANIFEST_MAGIC: u64 = u64::from_le_bytes(*b"ESKMAN\0\0");

/// Offsets in the manifest (checksum at 0, of all that follows up to the end of the body).
pub mod manifest_at {
    #![allow(missing_docs)]
    pub const CHECKSUM: usize = 0;
    pub const MAGIC: usize = 8;
    pub const VERSION: usize = 16;
    pub const ZERO: usize = 20;
    pub const BODY_BYTES: usize = 24;
    pub const BODY: usize = 32;
}

/// All versions of rows below `up_to` that were committed up to `as_of`, and earlier ones of the same transaction, are
/// deleted for views from `seq` on.
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

/// A table and its row tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableState {
    /// What the catalog says.
    pub entry: TableEntry,
    /// Row ids from here on are free.
    pub next_row_id: RowId,
    /// Rows that live in the tree, an estimate.
    pub live_rows: u64,
    /// What the log says about the tree before this is in its runs.
    pub flushed_to: Lsn,
    /// The tree's runs.
    pub runs: Vec<RunEntry>,
    /// The tree's range tombstones.
    pub range_deletes: Vec<RangeTombstone>,
}

/// The state of everything at one position of the log.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Manifest {
    /// Counts the manifests: of two whole ones the greater is valid.
    pub generation: u64,
    /// The log is replayed from here.
    pub replay_from: Lsn,
    /// The next free table id.
    pub next_table: TableId,
    /// The next free tree id.
    pub next_tree: TreeId,
    /// The next free file id.
    pub next_file: FileId,
    /// The next free transaction id.
    pub next_txn: TxnId,
    /// The tables.
    pub tables: Vec<TableState>,
}

impl Manifest {
    /// Appends the stored form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.resize(start + MANIFEST_HEADER_BYTES, 0);
        let numbers = [
            self.generation,
            self.replay_from.0,
            self.next_table.0,
            self.next_tree.0,
            self.next_file.0,
            self.next_txn.0,
        ];
        for n in numbers {
            put_varint(out, n);
        }
        put_varint(out, self.tables.len() as u64);
        for table in &self.tables {
            table.encode(out);
        }
        let b = &mut out[start..];
        let body = (b.len() - MANIFEST_HEADER_BYTES) as u64;
        set_u64(b, manifest_at::MAGIC, MANIFEST_MAGIC);
        set_u32(b, manifest_at::VERSION, MANIFEST_VERSION);
        set_u64(b, manifest_at::BODY_BYTES, body);
        codec::seal(b, MANIFEST_MAGIC);
    }

    /// Reads the stored form from the start of `bytes`; what follows it is ignored (a file may be longer).
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        codec::need("manifest", bytes, MANIFEST_HEADER_BYTES)?;
        let magic = get_u64(bytes, manifest_at::MAGIC);
        if magic != MANIFEST_MAGIC {
            return Err(FormatError::Invalid { what: "manifest magic", found: magic });
        }
        let have = bytes.len() as u64;
        let need = get_u64(bytes, manifest_at::BODY_BYTES).saturating_add(MANIFEST_HEADER_BYTES as u64);
        if need > have {
            return Err(FormatError::Truncated { what: "manifest", need, have });
        }
        let b = &bytes[..need as usize];
        codec::check_seal(b, MANIFEST_MAGIC)?;
        codec::check_version("manifest", get_u32(b, manifest_at::VERSION), MANIFEST_VERSION)?;
        let r = &mut Reader::new("manifest", &b[manifest_at::BODY..]);
        let generation = r.varint()?;
        let replay_from = Lsn(r.varint()?);
        let next_table = TableId(r.varint()?);
        let next_tree = TreeId(r.varint()?);
        let next_file = FileId(r.varint()?);
        let next_txn = TxnId(r.varint()?);
        let n = r.count(TableState::MIN_BYTES)?;
        let tables = (0..n).map(|_| TableState::decode(r)).collect::<Result<_, _>>()?;
        if !r.rest().is_empty() {
            return Err(r.invalid(r.rest().len() as u64));
        }
        Ok(Manifest { generation, replay_from, next_table, next_tree, next_file, next_txn, tables })
    }
}

impl TableState {
    /// The shortest stored form.
    const MIN_BYTES: usize = 17;

    fn encode(&self, out: &mut Vec<u8>) {
        self.entry.encode(out);
        put_varint(out, self.next_row_id.0);
        put_varint(out, self.live_rows);
        put_varint(out, self.flushed_to.0);
        put_runs(out, &self.runs);
        put_varint(out, self.range_deletes.len() as u64);
        for range in &self.range_deletes {
            put_varint(out, range.up_to.0);
            put_varint(out, range.as_of.0);
            put_varint(out, range.seq.0);
            put_varint(out, range.ordinal);
        }
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, FormatError> {
        let entry = TableEntry::decode(r)?;
        let next_row_id = RowId(r.varint()?);
        let live_rows = r.varint()?;
        let flushed_to = Lsn(r.varint()?);
        let runs = get_runs(r)?;
        let n = r.count(4)?;
        let range = |r: &mut Reader<'_>| {
            Ok(RangeTombstone {
                up_to: RowId(r.varint()?),
                as_of: CommitSeq(r.varint()?),
                seq: CommitSeq(r.varint()?),
                ordinal: r.varint()?,
            })
        };
        let range_deletes = (0..n).map(|_| range(r)).collect::<Result<_, FormatError>>()?;
        Ok(TableState { entry, next_row_id, live_rows, flushed_to, runs, range_deletes })
    }
}

impl Manifest {
    /// What all runs of all tables hold together.
    #[must_use]
    pub fn totals(&self) -> RunStats {
        let mut stats = RunStats::default();
        for run in self.tables.iter().flat_map(|t| &t.runs) {
            stats.merge(&run.stats);
        }
        stats
    }
}
