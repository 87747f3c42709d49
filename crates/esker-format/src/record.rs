//! Owns the records of the log: what a frame's payload says. A payload is records one after the other; a zero byte
//! where a record would begin is padding. Invariant: encode and decode mirror each other, field by field.

use crate::catalog::{get_refs, get_runs, put_refs, put_runs, RunEntry, RunRef, TableEntry};
use crate::codec::{put_bytes, put_pairs, put_varint, Reader};
use crate::error::FormatError;
use crate::ids::{CommitSeq, FileId, Lsn, RowId, TableId, TreeId, TxnId};

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
    /// All rows of a tree were deleted.
    RangeDelete {
        /// Their deleter.
        txn: TxnId,
        /// Which change of the deleter's it is.
        ordinal: u64,
        /// The row tree.
        tree: TreeId,
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
        aborted: Vec<(u64, u64)>,
    },
    /// A transaction that was not prepared commits; the LSN of this frame is its commit sequence.
    Commit {
        /// The transaction.
        txn: TxnId,
        /// The private runs that it attaches.
        attach: Vec<RunRef>,
        /// Ranges of ordinals (from, to; `to` excluded) that it rolled back.
        aborted: Vec<(u64, u64)>,
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
    /// A table was emptied by giving it a new tree.
    TruncateTable {
        /// The table.
        table: TableId,
        /// The new tree.
        tree: TreeId,
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
        /// The tree.
        tree: TreeId,
        /// The next free row id.
        next: RowId,
    },
}

impl<'a> Record<'a> {
    /// Appends the record.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Record::RowPut { txn, ordinal, tree, row, bytes } => {
                put_head(out, kind::ROW_PUT, &[txn.0, *ordinal, tree.0, row.0]);
                put_bytes(out, bytes);
            }
            Record::RowDelete { txn, ordinal, tree, row } => {
                put_head(out, kind::ROW_DELETE, &[txn.0, *ordinal, tree.0, row.0]);
            }
            Record::RangeDelete { txn, ordinal, tree, up_to, as_of } => {
                put_head(out, kind::RANGE_DELETE, &[txn.0, *ordinal, tree.0, up_to.0, as_of.0]);
            }
            Record::Prepare { txn, xid, attach, aborted } => {
                put_head(out, kind::PREPARE, &[txn.0]);
                put_bytes(out, xid);
                put_refs(out, attach);
                put_pairs(out, aborted);
            }
            Record::Commit { txn, attach, aborted } => {
                put_head(out, kind::COMMIT, &[txn.0]);
                put_refs(out, attach);
                put_pairs(out, aborted);
            }
            Record::Rollback { txn } => put_head(out, kind::ROLLBACK, &[txn.0]),
            Record::CommitPrepared { txn } => put_head(out, kind::COMMIT_PREPARED, &[txn.0]),
            Record::CreateTable(table) => {
                out.push(kind::CREATE_TABLE);
                table.encode(out);
            }
            Record::DropTable { table } => put_head(out, kind::DROP_TABLE, &[table.0]),
            Record::RenameTable { table, name } => {
                put_head(out, kind::RENAME_TABLE, &[table.0]);
                put_bytes(out, name.as_bytes());
            }
            Record::TruncateTable { table, tree } => put_head(out, kind::TRUNCATE_TABLE, &[table.0, tree.0]),
            Record::TreeEdit { tree, add, remove, flushed_to } => {
                put_head(out, kind::TREE_EDIT, &[tree.0]);
                put_runs(out, add);
                put_varint(out, remove.len() as u64);
                for file in remove {
                    put_varint(out, file.0);
                }
                put_varint(out, flushed_to.0);
            }
            Record::RowIdMark { tree, next } => put_head(out, kind::ROW_ID_MARK, &[tree.0, next.0]),
        }
    }

    /// Reads one record.
    fn decode(r: &mut Reader<'a>) -> Result<Self, FormatError> {
        let kind = r.u8()?;
        Ok(match kind {
            kind::ROW_PUT => Record::RowPut {
                txn: TxnId(r.varint()?),
                ordinal: r.varint()?,
                tree: TreeId(r.varint()?),
                row: RowId(r.varint()?),
                bytes: r.bytes()?,
            },
            kind::ROW_DELETE => Record::RowDelete {
                txn: TxnId(r.varint()?),
                ordinal: r.varint()?,
                tree: TreeId(r.varint()?),
                row: RowId(r.varint()?),
            },
            kind::RANGE_DELETE => Record::RangeDelete {
                txn: TxnId(r.varint()?),
                ordinal: r.varint()?,
                tree: TreeId(r.varint()?),
                up_to: RowId(r.varint()?),
                as_of: CommitSeq(r.varint()?),
            },
            kind::PREPARE => {
                Record::Prepare { txn: TxnId(r.varint()?), xid: r.bytes()?, attach: get_refs(r)?, aborted: r.pairs()? }
            }
            kind::COMMIT => Record::Commit { txn: TxnId(r.varint()?), attach: get_refs(r)?, aborted: r.pairs()? },
            kind::ROLLBACK => Record::Rollback { txn: TxnId(r.varint()?) },
            kind::COMMIT_PREPARED => Record::CommitPrepared { txn: TxnId(r.varint()?) },
            kind::CREATE_TABLE => Record::CreateTable(TableEntry::decode(r)?),
            kind::DROP_TABLE => Record::DropTable { table: TableId(r.varint()?) },
            kind::RENAME_TABLE => Record::RenameTable { table: TableId(r.varint()?), name: r.text()? },
            kind::TRUNCATE_TABLE => Record::TruncateTable { table: TableId(r.varint()?), tree: TreeId(r.varint()?) },
            kind::TREE_EDIT => {
                let tree = TreeId(r.varint()?);
                let add = get_runs(r)?;
                let n = r.count(1)?;
                let remove = (0..n).map(|_| Ok(FileId(r.varint()?))).collect::<Result<_, FormatError>>()?;
                Record::TreeEdit { tree, add, remove, flushed_to: Lsn(r.varint()?) }
            }
            kind::ROW_ID_MARK => Record::RowIdMark { tree: TreeId(r.varint()?), next: RowId(r.varint()?) },
            other => return Err(r.invalid(u64::from(other))),
        })
    }
}

/// Appends a record's kind and its leading numbers.
fn put_head(out: &mut Vec<u8>, kind: u8, numbers: &[u64]) {
    out.push(kind);
    for &n in numbers {
        put_varint(out, n);
    }
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
        let rest = self.reader.rest();
        let padding = rest.iter().take_while(|&&b| b == kind::PADDING).count();
        self.reader = Reader::new("log record", &rest[padding..]);
        if padding == rest.len() {
            return None;
        }
        let record = Record::decode(&mut self.reader);
        if record.is_err() {
            self.reader = Reader::new("log record", &[]);
        }
        Some(record)
    }
}
