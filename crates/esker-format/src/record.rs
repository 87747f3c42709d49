//! Owns the records of the log: what a frame's payload says. A payload is records one after the other, each an entry
//! ([`crate::entry`]); a zero byte where a record would begin is padding. Invariants: encode and decode mirror each other,
//! field by field; a record of a row costs its numbers and at most 2 bytes more than they.

use crate::catalog::{get_trees, put_trees, TableEntry, TreeEntry};
use crate::codec::{check_bits, put_bytes, put_ranges, put_varint, varint_bytes, Reader};
use crate::entry::{put_entry, put_list, Entry, SKIPPABLE};
use crate::error::FormatError;
use crate::ids::{CommitSeq, FileId, Lsn, RowId, TableId, TreeId, TxnId};
use crate::run_entry::{get_refs, get_runs, put_refs, put_runs, RunEntry, RunRef};
use crate::statistics::IndexStatistics;
use std::ops::Range;

/// The numbers that records begin with.
pub mod kind {
    #![allow(missing_docs)]
    pub const PADDING: u8 = 0;
    pub const ROW_PUT: u8 = 1;
    pub const ROW_DELETE: u8 = 2;
    pub const RANGE_DELETE: u8 = 3;
    pub const PREPARE: u8 = 4;
    pub const COMMIT: u8 = 5;
    pub const ROLLBACK: u8 = 6;
    pub const COMMIT_PREPARED: u8 = 7;
    pub const CREATE_TABLE: u8 = 8;
    pub const DROP_TABLE: u8 = 9;
    pub const RENAME_TABLE: u8 = 10;
    pub const TRUNCATE_TABLE: u8 = 11;
    pub const TREE_EDIT: u8 = 12;
    pub const ROW_ID_MARK: u8 = 13;
    pub const KEY_PUT: u8 = 14;
    pub const KEY_DELETE: u8 = 15;
    pub const AUTO_INCREMENT_MARK: u8 = 16;
    pub const CREATE_SNAPSHOT: u8 = 17;
    pub const DROP_SNAPSHOT: u8 = 18;
    pub const ALTER_INDEXES: u8 = 19;
    pub const INDEX_STATISTICS: u8 = 20;
}

/// Bits of the flags of a row's and of a key's record.
pub mod put_flags {
    #![allow(missing_docs)]
    pub const SUPERSEDES: u64 = 1;
    pub const LAYOUT: u64 = 2;
}

/// One record of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record<'a> {
    /// A row was inserted, or given a new version.
    RowPut {
        /// Its writer.
        txn: TxnId,
        /// Which change of the writer's it is.
        ordinal: u64,
        /// The row tree.
        tree: TreeId,
        /// The row.
        row: RowId,
        /// It takes the place of an older version: an update, not an insert.
        supersedes: bool,
        /// The number of the layout that it was packed with.
        layout: u32,
        /// The packed row.
        bytes: &'a [u8],
    },
    /// A row was deleted.
    RowDelete {
        /// Its deleter.
        txn: TxnId,
        /// Which change of the deleter's it is.
        ordinal: u64,
        /// The row tree.
        tree: TreeId,
        /// The row.
        row: RowId,
    },
    /// A key came to a row.
    KeyPut {
        /// Its writer.
        txn: TxnId,
        /// Which change of the writer's it is.
        ordinal: u64,
        /// The key tree.
        tree: TreeId,
        /// The row.
        row: RowId,
        /// The key.
        key: &'a [u8],
        /// What the entry holds beside its key.
        payload: &'a [u8],
    },
    /// A key left a row.
    KeyDelete {
        /// Its deleter.
        txn: TxnId,
        /// Which change of the deleter's it is.
        ordinal: u64,
        /// The key tree.
        tree: TreeId,
        /// The row.
        row: RowId,
        /// The key.
        key: &'a [u8],
    },
    /// All rows of a table were deleted, in all its trees.
    RangeDelete {
        /// Their deleter.
        txn: TxnId,
        /// Which change of the deleter's it is.
        ordinal: u64,
        /// The table.
        table: TableId,
        /// Rows with ids below this one.
        up_to: RowId,
        /// Versions committed up to here.
        as_of: CommitSeq,
    },
    /// A transaction is prepared: all its records came before, in the same or earlier frames.
    Prepare {
        /// The transaction.
        txn: TxnId,
        /// Its name in the front end's two-phase commit.
        xid: &'a [u8],
        /// The private runs that its commit attaches.
        attach: Vec<RunRef>,
        /// Ranges of ordinals (from, to; `to` excluded) that it rolled back.
        aborted: Vec<Range<u64>>,
        /// By how much the number of live rows changes, for each table where it is known.
        deltas: Vec<(TableId, i64)>,
    },
    /// A transaction that was not prepared commits; the LSN of this frame is its commit sequence.
    Commit {
        /// The transaction.
        txn: TxnId,
        /// The private runs that it attaches.
        attach: Vec<RunRef>,
        /// Ranges of ordinals (from, to; `to` excluded) that it rolled back.
        aborted: Vec<Range<u64>>,
        /// By how much the number of live rows changes, for each table where it is known.
        deltas: Vec<(TableId, i64)>,
    },
    /// A prepared transaction is rolled back.
    Rollback {
        /// The transaction.
        txn: TxnId,
    },
    /// A prepared transaction commits; the LSN of this frame is its commit sequence.
    CommitPrepared {
        /// The transaction.
        txn: TxnId,
    },
    /// A table was created.
    CreateTable(TableEntry),
    /// A table was dropped.
    DropTable {
        /// The table.
        table: TableId,
    },
    /// A table got another name.
    RenameTable {
        /// The table.
        table: TableId,
        /// The new name.
        name: &'a str,
    },
    /// A table was emptied by giving it new trees.
    TruncateTable {
        /// The table.
        table: TableId,
        /// Each of its trees with the one that takes its place.
        trees: Vec<(TreeId, TreeId)>,
    },
    /// A table got other indexes; the LSN of this frame is the commit sequence of what new ones hold.
    AlterIndexes {
        /// The table.
        table: TableId,
        /// All its trees from now on, in their order. Those of keys that were not there before are new, others go on.
        trees: Vec<TreeEntry>,
        /// What new ones begin with.
        attach: Vec<RunRef>,
    },
    /// A flush or a merge changed the set of a tree's runs.
    TreeEdit {
        /// The tree.
        tree: TreeId,
        /// Runs that join.
        add: Vec<RunEntry>,
        /// Runs that leave.
        remove: Vec<FileId>,
        /// What the log says about the tree before this is in its runs now.
        flushed_to: Lsn,
    },
    /// Row ids below this one may have been given out.
    RowIdMark {
        /// The row tree.
        tree: TreeId,
        /// The next free row id.
        next: RowId,
    },
    /// Auto-increment values below this one may have been given out.
    AutoIncrementMark {
        /// The table.
        table: TableId,
        /// The next free value.
        next: u64,
    },
    /// What ANALYZE TABLE found out about indexes, in the place of what was known of them. Who does not know it may skip it.
    IndexStatistics {
        /// The table.
        table: TableId,
        /// Of each index that was looked at.
        statistics: Vec<IndexStatistics>,
    },
    /// A named snapshot: what its view sees is kept until it is dropped.
    CreateSnapshot {
        /// Its identity.
        id: u64,
        /// Its name.
        name: &'a str,
        /// The commit sequence up to which it sees.
        seq: CommitSeq,
        /// When it was made, seconds since 1970.
        created_unix_s: u64,
    },
    /// A snapshot was dropped.
    DropSnapshot {
        /// Its identity.
        id: u64,
    },
}

impl<'a> Record<'a> {
    /// The number of its kind.
    #[must_use]
    pub fn kind(&self) -> u8 {
        match self {
            Record::RowPut { .. } => kind::ROW_PUT,
            Record::RowDelete { .. } => kind::ROW_DELETE,
            Record::KeyPut { .. } => kind::KEY_PUT,
            Record::KeyDelete { .. } => kind::KEY_DELETE,
            Record::RangeDelete { .. } => kind::RANGE_DELETE,
            Record::Prepare { .. } => kind::PREPARE,
            Record::Commit { .. } => kind::COMMIT,
            Record::Rollback { .. } => kind::ROLLBACK,
            Record::CommitPrepared { .. } => kind::COMMIT_PREPARED,
            Record::CreateTable(_) => kind::CREATE_TABLE,
            Record::DropTable { .. } => kind::DROP_TABLE,
            Record::RenameTable { .. } => kind::RENAME_TABLE,
            Record::TruncateTable { .. } => kind::TRUNCATE_TABLE,
            Record::AlterIndexes { .. } => kind::ALTER_INDEXES,
            Record::TreeEdit { .. } => kind::TREE_EDIT,
            Record::RowIdMark { .. } => kind::ROW_ID_MARK,
            Record::AutoIncrementMark { .. } => kind::AUTO_INCREMENT_MARK,
            Record::IndexStatistics { .. } => kind::INDEX_STATISTICS,
            Record::CreateSnapshot { .. } => kind::CREATE_SNAPSHOT,
            Record::DropSnapshot { .. } => kind::DROP_SNAPSHOT,
        }
    }

    /// The kind, and whether those may skip it who do not know it.
    fn first_byte(&self) -> u8 {
        match self {
            Record::IndexStatistics { .. } => self.kind() | SKIPPABLE,
            _ => self.kind(),
        }
    }

    /// Appends the record.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            // One for each row: their length is known before, so that no byte is moved.
            Record::RowPut { txn, ordinal, tree, row, supersedes, layout, bytes } => {
                let flags = if *supersedes { put_flags::SUPERSEDES } else { 0 };
                let numbers = [txn.0, *ordinal, tree.0, row.0, flags];
                match layout {
                    0 => put_row(out, kind::ROW_PUT, &numbers, &[bytes]),
                    _ => {
                        let mut number = Vec::new();
                        put_varint(&mut number, u64::from(*layout));
                        let numbers = [txn.0, *ordinal, tree.0, row.0, flags | put_flags::LAYOUT];
                        put_row(out, kind::ROW_PUT, &numbers, &[&number, bytes]);
                    }
                }
            }
            Record::RowDelete { txn, ordinal, tree, row } => {
                put_row(out, kind::ROW_DELETE, &[txn.0, *ordinal, tree.0, row.0], &[]);
            }
            Record::KeyPut { txn, ordinal, tree, row, key, payload } => {
                let numbers = [txn.0, *ordinal, tree.0, row.0, 0, key.len() as u64];
                put_row(out, kind::KEY_PUT, &numbers, &[key, payload]);
            }
            Record::KeyDelete { txn, ordinal, tree, row, key } => {
                let numbers = [txn.0, *ordinal, tree.0, row.0, key.len() as u64];
                put_row(out, kind::KEY_DELETE, &numbers, &[key]);
            }
            other => put_entry(out, other.first_byte(), |out| other.encode_body(out)),
        }
    }

    /// Appends the fields of all others.
    fn encode_body(&self, out: &mut Vec<u8>) {
        match self {
            Record::RowPut { .. } | Record::RowDelete { .. } | Record::KeyPut { .. } | Record::KeyDelete { .. } => {}
            Record::RangeDelete { txn, ordinal, table, up_to, as_of } => {
                put_numbers(out, &[txn.0, *ordinal, table.0, up_to.0, as_of.0]);
            }
            Record::Prepare { txn, xid, attach, aborted, deltas } => {
                put_varint(out, txn.0);
                put_bytes(out, xid);
                put_refs(out, attach);
                put_ranges(out, aborted);
                put_deltas(out, deltas);
            }
            Record::Commit { txn, attach, aborted, deltas } => {
                put_varint(out, txn.0);
                put_refs(out, attach);
                put_ranges(out, aborted);
                put_deltas(out, deltas);
            }
            Record::Rollback { txn } | Record::CommitPrepared { txn } => put_varint(out, txn.0),
            Record::CreateTable(table) => table.encode(out),
            Record::DropTable { table } => put_varint(out, table.0),
            Record::RenameTable { table, name } => {
                put_varint(out, table.0);
                put_bytes(out, name.as_bytes());
            }
            Record::TruncateTable { table, trees } => {
                put_varint(out, table.0);
                put_varint(out, trees.len() as u64);
                trees.iter().for_each(|(old, new)| put_numbers(out, &[old.0, new.0]));
            }
            Record::AlterIndexes { table, trees, attach } => {
                put_varint(out, table.0);
                put_trees(out, trees);
                put_refs(out, attach);
            }
            Record::TreeEdit { tree, add, remove, flushed_to } => {
                put_varint(out, tree.0);
                put_runs(out, add);
                put_varint(out, remove.len() as u64);
                remove.iter().for_each(|f| put_varint(out, f.0));
                put_varint(out, flushed_to.0);
            }
            Record::RowIdMark { tree, next } => put_numbers(out, &[tree.0, next.0]),
            Record::AutoIncrementMark { table, next } => put_numbers(out, &[table.0, *next]),
            Record::IndexStatistics { table, statistics } => {
                put_varint(out, table.0);
                put_list(out, statistics, IndexStatistics::encode);
            }
            Record::CreateSnapshot { id, name, seq, created_unix_s } => {
                put_varint(out, *id);
                put_bytes(out, name.as_bytes());
                put_numbers(out, &[seq.0, *created_unix_s]);
            }
            Record::DropSnapshot { id } => put_varint(out, *id),
        }
    }

    /// Reads one record; `None` for one that may be skipped.
    fn decode(entry: &mut Entry<'a>) -> Result<Option<Self>, FormatError> {
        let r = &mut entry.body;
        Ok(Some(match entry.kind {
            kind::ROW_PUT => {
                let (txn, ordinal) = (TxnId(r.varint()?), r.varint()?);
                let (tree, row, flags) = (TreeId(r.varint()?), RowId(r.varint()?), r.varint()?);
                check_bits("flags of a row's record", flags, put_flags::SUPERSEDES | put_flags::LAYOUT)?;
                let supersedes = flags & put_flags::SUPERSEDES != 0;
                let layout = if flags & put_flags::LAYOUT != 0 { r.varint32()? } else { 0 };
                Record::RowPut { txn, ordinal, tree, row, supersedes, layout, bytes: r.rest() }
            }
            kind::ROW_DELETE => Record::RowDelete {
                txn: TxnId(r.varint()?),
                ordinal: r.varint()?,
                tree: TreeId(r.varint()?),
                row: RowId(r.varint()?),
            },
            kind::KEY_PUT => {
                let (txn, ordinal) = (TxnId(r.varint()?), r.varint()?);
                let (tree, row, flags) = (TreeId(r.varint()?), RowId(r.varint()?), r.varint()?);
                check_bits("flags of a key's record", flags, 0)?;
                Record::KeyPut { txn, ordinal, tree, row, key: r.bytes()?, payload: r.rest() }
            }
            kind::KEY_DELETE => Record::KeyDelete {
                txn: TxnId(r.varint()?),
                ordinal: r.varint()?,
                tree: TreeId(r.varint()?),
                row: RowId(r.varint()?),
                key: r.bytes()?,
            },
            kind::RANGE_DELETE => Record::RangeDelete {
                txn: TxnId(r.varint()?),
                ordinal: r.varint()?,
                table: TableId(r.varint()?),
                up_to: RowId(r.varint()?),
                as_of: CommitSeq(r.varint()?),
            },
            kind::PREPARE => Record::Prepare {
                txn: TxnId(r.varint()?),
                xid: r.bytes()?,
                attach: get_refs(r)?,
                aborted: r.ranges()?,
                deltas: get_deltas(r)?,
            },
            kind::COMMIT => Record::Commit {
                txn: TxnId(r.varint()?),
                attach: get_refs(r)?,
                aborted: r.ranges()?,
                deltas: get_deltas(r)?,
            },
            kind::ROLLBACK => Record::Rollback { txn: TxnId(r.varint()?) },
            kind::COMMIT_PREPARED => Record::CommitPrepared { txn: TxnId(r.varint()?) },
            kind::CREATE_TABLE => Record::CreateTable(TableEntry::decode(r)?),
            kind::DROP_TABLE => Record::DropTable { table: TableId(r.varint()?) },
            kind::RENAME_TABLE => Record::RenameTable { table: TableId(r.varint()?), name: r.text()? },
            kind::TRUNCATE_TABLE => {
                let (table, trees) = (TableId(r.varint()?), r.pairs()?);
                let trees = trees.into_iter().map(|(old, new)| (TreeId(old), TreeId(new))).collect();
                Record::TruncateTable { table, trees }
            }
            kind::ALTER_INDEXES => {
                Record::AlterIndexes { table: TableId(r.varint()?), trees: get_trees(r)?, attach: get_refs(r)? }
            }
            kind::TREE_EDIT => {
                let tree = TreeId(r.varint()?);
                let add = get_runs(r)?;
                let n = r.count(1)?;
                let remove = (0..n).map(|_| Ok(FileId(r.varint()?))).collect::<Result<_, FormatError>>()?;
                Record::TreeEdit { tree, add, remove, flushed_to: Lsn(r.varint()?) }
            }
            kind::ROW_ID_MARK => Record::RowIdMark { tree: TreeId(r.varint()?), next: RowId(r.varint()?) },
            kind::AUTO_INCREMENT_MARK => Record::AutoIncrementMark { table: TableId(r.varint()?), next: r.varint()? },
            kind::INDEX_STATISTICS => {
                Record::IndexStatistics { table: TableId(r.varint()?), statistics: r.list(4, IndexStatistics::decode)? }
            }
            kind::CREATE_SNAPSHOT => Record::CreateSnapshot {
                id: r.varint()?,
                name: r.text()?,
                seq: CommitSeq(r.varint()?),
                created_unix_s: r.varint()?,
            },
            kind::DROP_SNAPSHOT => Record::DropSnapshot { id: r.varint()? },
            _ => return entry.skip("log record of kind").map(|()| None),
        }))
    }
}

/// Appends a record whose body is these numbers and then these bytes.
#[inline]
fn put_row(out: &mut Vec<u8>, kind: u8, numbers: &[u64], bytes: &[&[u8]]) {
    let length = numbers.iter().map(|&n| varint_bytes(n)).sum::<usize>() + bytes.iter().map(|b| b.len()).sum::<usize>();
    out.push(kind);
    put_varint(out, length as u64);
    put_numbers(out, numbers);
    bytes.iter().for_each(|b| out.extend_from_slice(b));
}

fn put_numbers(out: &mut Vec<u8>, numbers: &[u64]) {
    numbers.iter().for_each(|&n| put_varint(out, n));
}

/// Changes of row counts: the sign goes to the lowest bit.
fn put_deltas(out: &mut Vec<u8>, deltas: &[(TableId, i64)]) {
    put_varint(out, deltas.len() as u64);
    for (table, delta) in deltas {
        put_numbers(out, &[table.0, (delta << 1 ^ delta >> 63) as u64]);
    }
}

fn get_deltas(r: &mut Reader<'_>) -> Result<Vec<(TableId, i64)>, FormatError> {
    let pairs = r.pairs()?;
    Ok(pairs.into_iter().map(|(table, n)| (TableId(table), (n >> 1) as i64 ^ -((n & 1) as i64))).collect())
}

/// Reads the records of a frame's payload, in order. After an error it ends.
pub struct RecordReader<'a> {
    reader: Reader<'a>,
}

impl<'a> RecordReader<'a> {
    /// A reader over a frame's payload.
    #[must_use]
    pub fn new(payload: &'a [u8]) -> Self {
        RecordReader { reader: Reader::new("log record", payload) }
    }
}

impl<'a> Iterator for RecordReader<'a> {
    type Item = Result<Record<'a>, FormatError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let rest = self.reader.rest();
            let padding = rest.iter().take_while(|&&b| b == kind::PADDING).count();
            self.reader = self.reader.over(&rest[padding..]);
            if padding == rest.len() {
                return None;
            }
            match self.reader.entry().and_then(|mut e| Record::decode(&mut e)) {
                Ok(None) => {}
                Ok(Some(record)) => return Some(Ok(record)),
                Err(e) => {
                    self.reader = self.reader.over(&[]);
                    return Some(Err(e));
                }
            }
        }
    }
}
