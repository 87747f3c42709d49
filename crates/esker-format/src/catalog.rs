//! Owns the entries that log and manifest share: what they say about a table and about a run.
//! Invariant: a decoded entry's layout is validated.

use crate::codec::{put_bytes, put_pairs, put_varint, Reader};
use crate::compress::Compression;
use crate::error::FormatError;
use crate::ids::{CommitSeq, FileId, TableId, TreeId};
use crate::layout::{Layout, RowFormat};
use crate::run::RunStats;
use std::sync::Arc;

/// What the catalog says about a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableEntry {
    /// Its identity.
    pub id: TableId,
    /// Its row tree; TRUNCATE gives it a new one.
    pub tree: TreeId,
    /// Its name.
    pub name: String,
    /// How its row images are laid out.
    pub layout: Arc<Layout>,
    /// How its blocks keep rows.
    pub format: RowFormat,
    /// How its blocks are compressed.
    pub compression: Compression,
    /// When it was created, seconds since 1970.
    pub created_unix_s: u64,
    /// Commit sequence of its last rebuild: older views cannot read it.
    pub rebuilt_seq: CommitSeq,
    /// Bytes of the front end, opaque here.
    pub extra: Vec<u8>,
}

impl TableEntry {
    /// Appends the stored form.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.id.0);
        put_varint(out, self.tree.0);
        put_bytes(out, self.name.as_bytes());
        let mut layout = Vec::new();
        self.layout.encode(&mut layout);
        put_bytes(out, &layout);
        out.push(self.format as u8);
        out.push(self.compression as u8);
        put_varint(out, self.created_unix_s);
        put_varint(out, self.rebuilt_seq.0);
        put_bytes(out, &self.extra);
    }

    /// Reads the stored form.
    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Self, FormatError> {
        Ok(TableEntry {
            id: TableId(r.varint()?),
            tree: TreeId(r.varint()?),
            name: r.text()?.to_owned(),
            layout: Arc::new(Layout::decode(r.bytes()?)?),
            format: RowFormat::from_u8(r.u8()?)?,
            compression: Compression::from_u8(r.u8()?)?,
            created_unix_s: r.varint()?,
            rebuilt_seq: CommitSeq(r.varint()?),
            extra: r.bytes()?.to_vec(),
        })
    }
}

/// A run of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunEntry {
    /// Its file.
    pub file: FileId,
    /// The commit sequence of all its rows that carry none of their own; zero when every row carries its own.
    pub seq: CommitSeq,
    /// What is in it.
    pub stats: RunStats,
    /// Ranges of ordinals (from, to; `to` excluded) that were rolled back: their versions in it do not count.
    pub aborted: Vec<(u64, u64)>,
}

impl RunEntry {
    /// Appends the stored form.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.file.0);
        put_varint(out, self.seq.0);
        self.stats.encode(out);
        put_pairs(out, &self.aborted);
    }

    /// Reads the stored form.
    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Self, FormatError> {
        Ok(RunEntry {
            file: FileId(r.varint()?),
            seq: CommitSeq(r.varint()?),
            stats: RunStats::decode(r)?,
            aborted: r.pairs()?,
        })
    }
}

/// A private run that a transaction attaches to a tree when it commits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunRef {
    /// The tree it joins.
    pub tree: TreeId,
    /// Its file.
    pub file: FileId,
    /// What is in it.
    pub stats: RunStats,
}

impl RunRef {
    /// Appends the stored form.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.tree.0);
        put_varint(out, self.file.0);
        self.stats.encode(out);
    }

    /// Reads the stored form.
    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Self, FormatError> {
        Ok(RunRef { tree: TreeId(r.varint()?), file: FileId(r.varint()?), stats: RunStats::decode(r)? })
    }
}

/// Appends a count and the runs.
pub(crate) fn put_refs(out: &mut Vec<u8>, runs: &[RunRef]) {
    put_varint(out, runs.len() as u64);
    for run in runs {
        run.encode(out);
    }
}

/// Reads what [`put_refs`] wrote.
pub(crate) fn get_refs(r: &mut Reader<'_>) -> Result<Vec<RunRef>, FormatError> {
    let n = r.count(2 + RunStats::MIN_BYTES)?;
    (0..n).map(|_| RunRef::decode(r)).collect()
}

/// Appends a count and the runs.
pub(crate) fn put_runs(out: &mut Vec<u8>, runs: &[RunEntry]) {
    put_varint(out, runs.len() as u64);
    for run in runs {
        run.encode(out);
    }
}

/// Reads what [`put_runs`] wrote.
pub(crate) fn get_runs(r: &mut Reader<'_>) -> Result<Vec<RunEntry>, FormatError> {
    let n = r.count(3 + RunStats::MIN_BYTES)?;
    (0..n).map(|_| RunEntry::decode(r)).collect()
}
