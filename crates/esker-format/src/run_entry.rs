//! Owns what log and manifest say about a run of a tree.
//! Invariant of a decoded entry: its least key is not above its greatest, and a key is no longer than
//! [`MAX_KEY_BYTES`].

use crate::codec::{check_bits, put_bytes, put_ranges, put_varint, Reader};
use crate::entry::{put_list, put_sized};
use crate::error::FormatError;
use crate::ids::{CommitSeq, FileId, FolderId, RowId, TreeId};
use crate::key_block::MAX_KEY_BYTES;
use crate::run::RunStats;
use std::ops::Range;

/// Bits of a run entry's flags.
pub mod run_flags {
    #![allow(missing_docs)]
    pub const ORIGIN: u64 = 1;
    pub const KEYS: u64 = 2;
}

/// For which tree a run was written, if not for the one that it is in: its file says so too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunOrigin {
    /// The folder.
    pub folder: FolderId,
    /// The tree in it.
    pub tree: TreeId,
}

/// Which keys of a run count. It may hold others beyond: those that a merge has taken out of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyBounds {
    /// In a tree of rows: the least row id and the greatest.
    Rows(RowId, RowId),
    /// In a tree of keys: the least key and the greatest. Whole keys: runs beside each other may differ in the last byte.
    Keys(Vec<u8>, Vec<u8>),
}

impl KeyBounds {
    /// All rows that the statistics tell of.
    #[must_use]
    pub fn of_rows(stats: &RunStats) -> Self {
        KeyBounds::Rows(stats.min_id, stats.max_id)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            KeyBounds::Rows(first, last) => {
                put_varint(out, first.0);
                put_varint(out, last.0);
            }
            KeyBounds::Keys(least, greatest) => {
                put_bytes(out, least);
                put_bytes(out, greatest);
            }
        }
    }

    fn decode(r: &mut Reader<'_>, flags: u64) -> Result<Self, FormatError> {
        if flags & run_flags::KEYS == 0 {
            let (first, last) = (RowId(r.varint()?), RowId(r.varint()?));
            return match first <= last {
                true => Ok(KeyBounds::Rows(first, last)),
                false => Err(FormatError::Invalid { what: "row bounds of a run", found: first.0 }),
            };
        }
        let (least, greatest) = (bound(r)?, bound(r)?);
        match least <= greatest {
            true => Ok(KeyBounds::Keys(least, greatest)),
            false => Err(FormatError::Invalid { what: "key bounds of a run", found: least.len() as u64 }),
        }
    }
}

fn bound(r: &mut Reader<'_>) -> Result<Vec<u8>, FormatError> {
    let bytes = r.bytes()?;
    if bytes.len() > MAX_KEY_BYTES {
        let (found, max) = (bytes.len() as u64, MAX_KEY_BYTES as u64);
        return Err(FormatError::TooLong { what: "key bound of a run", found, max });
    }
    Ok(bytes.to_vec())
}

/// A run of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunEntry {
    /// For which tree it was written; `None`: for the one that it is in.
    pub origin: Option<RunOrigin>,
    /// Its file.
    pub file: FileId,
    /// Which part of the file.
    pub part: u32,
    /// The number of the layout that its rows were written with.
    pub layout: u32,
    /// Which of its keys count.
    pub bounds: KeyBounds,
    /// The commit sequence of all its rows that carry none of their own; zero when every row carries its own.
    pub seq: CommitSeq,
    /// Ranges of ordinals (from, to; `to` excluded) that were rolled back: their versions in it do not count.
    pub aborted: Vec<Range<u64>>,
    /// What is in it.
    pub stats: RunStats,
}

impl RunEntry {
    /// Less than the shortest stored form.
    const MIN_BYTES: usize = RunStats::MIN_BYTES;

    /// A file that holds one run of rows of the first layout, all of which count.
    #[must_use]
    pub fn of_rows(file: FileId, seq: CommitSeq, aborted: Vec<Range<u64>>, stats: RunStats) -> Self {
        let bounds = KeyBounds::of_rows(&stats);
        RunEntry { origin: None, file, part: 0, layout: 0, bounds, seq, aborted, stats }
    }

    /// Appends the stored form.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let mut flags = if self.origin.is_some() { run_flags::ORIGIN } else { 0 };
        if matches!(self.bounds, KeyBounds::Keys(..)) {
            flags |= run_flags::KEYS;
        }
        put_varint(out, flags);
        if let Some(origin) = &self.origin {
            out.extend_from_slice(&origin.folder.0);
            put_varint(out, origin.tree.0);
        }
        for n in [self.file.0, u64::from(self.part), u64::from(self.layout)] {
            put_varint(out, n);
        }
        self.bounds.encode(out);
        put_varint(out, self.seq.0);
        put_ranges(out, &self.aborted);
        put_sized(out, |out| self.stats.encode(out));
    }

    /// Reads the stored form.
    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Self, FormatError> {
        let flags = r.varint()?;
        check_bits("flags of a run", flags, run_flags::ORIGIN | run_flags::KEYS)?;
        let origin = match flags & run_flags::ORIGIN {
            0 => None,
            _ => Some(RunOrigin { folder: FolderId(r.array()?), tree: TreeId(r.varint()?) }),
        };
        Ok(RunEntry {
            origin,
            file: FileId(r.varint()?),
            part: r.varint32()?,
            layout: r.varint32()?,
            bounds: KeyBounds::decode(r, flags)?,
            seq: CommitSeq(r.varint()?),
            aborted: r.ranges()?,
            stats: RunStats::decode(&mut r.sized()?)?,
        })
    }
}

/// A private run that a transaction attaches to a tree when it commits, at its sequence and without what it rolled back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunRef {
    /// The tree it joins.
    pub tree: TreeId,
    /// The run, with neither sequence nor rolled back ordinals: those are the transaction's.
    pub run: RunEntry,
}

/// Appends a count and the runs.
pub(crate) fn put_refs(out: &mut Vec<u8>, runs: &[RunRef]) {
    put_list(out, runs, |r, out| {
        put_varint(out, r.tree.0);
        r.run.encode(out);
    });
}

/// Reads what [`put_refs`] wrote.
pub(crate) fn get_refs(r: &mut Reader<'_>) -> Result<Vec<RunRef>, FormatError> {
    r.list(RunEntry::MIN_BYTES, |r| Ok(RunRef { tree: TreeId(r.varint()?), run: RunEntry::decode(r)? }))
}

/// Appends a count and the runs.
pub(crate) fn put_runs(out: &mut Vec<u8>, runs: &[RunEntry]) {
    put_list(out, runs, RunEntry::encode);
}

/// Reads what [`put_runs`] wrote.
pub(crate) fn get_runs(r: &mut Reader<'_>) -> Result<Vec<RunEntry>, FormatError> {
    r.list(RunEntry::MIN_BYTES, RunEntry::decode)
}
