//! `esker wal`: the log's records, one a line, as they lie there. Nothing is replayed into tables.

use crate::failure::Failure;
use crate::{folder, text};
use esker::format::{Lsn, Record, RecordReader, RunEntry, RunRef};
use esker::wal::{replay, WalError};
use esker::Error;
use serde_json::{json, Value as Json};
use std::io::Write;
use std::path::Path;

/// What ends the reading.
enum Stop {
    Failed(Failure),
    Enough,
}

impl From<WalError> for Stop {
    fn from(e: WalError) -> Self {
        Stop::Failed(Error::from(e).into())
    }
}

impl From<Error> for Stop {
    fn from(e: Error) -> Self {
        Stop::Failed(e.into())
    }
}

impl From<std::io::Error> for Stop {
    fn from(e: std::io::Error) -> Self {
        Stop::Failed(e.into())
    }
}

/// Prints up to `limit` records from `from` on.
pub fn run(
    dir: &Path,
    from: Option<u64>,
    limit: Option<u64>,
    as_json: bool,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let folder = folder::lock(dir)?;
    let from = from.map_or(folder.manifest.replay_from, Lsn);
    let wal = dir.join("wal");
    let mut left = limit.unwrap_or(u64::MAX);
    let mut frame = |lsn: Lsn, payload: &[u8]| -> Result<(), Stop> {
        for record in RecordReader::new(payload) {
            if left == 0 {
                return Err(Stop::Enough);
            }
            left -= 1;
            let record = record.map_err(|e| Error::damage(&wal, lsn.0, e))?;
            let (kind, fields) = parts(&record);
            if as_json {
                writeln!(out, "{}", json_line(lsn, kind, fields))?;
            } else {
                writeln!(out, "{}", line(lsn, kind, &fields))?;
            }
        }
        Ok(())
    };
    match replay(&*folder.disk, &wal, from, &mut frame, &mut |_, _| {}) {
        Ok(found) if as_json => {
            let (end, torn) = (found.end.0, found.torn);
            writeln!(out, "{}", json!({ "record": "end", "lsn": end, "torn": torn }))?;
            Ok(())
        }
        Ok(found) => {
            let torn = if found.torn { ", behind it a write that did not finish" } else { "" };
            writeln!(out, "{}\tend of the log{torn}", found.end)?;
            Ok(())
        }
        Err(Stop::Enough) => Ok(()),
        Err(Stop::Failed(e)) => Err(e),
    }
}

type Fields = Vec<(&'static str, Json)>;

fn line(lsn: Lsn, kind: &str, fields: &Fields) -> String {
    let mut out = format!("{lsn}\t{kind}");
    for (name, value) in fields {
        out.push_str(&format!("\t{name}={value}"));
    }
    out
}

fn json_line(lsn: Lsn, kind: &str, fields: Fields) -> Json {
    let mut object = serde_json::Map::new();
    object.insert("lsn".to_owned(), json!(lsn.0));
    object.insert("record".to_owned(), json!(kind));
    object.extend(fields.into_iter().map(|(name, value)| (name.to_owned(), value)));
    Json::Object(object)
}

/// The record's name and what it says.
fn parts(record: &Record<'_>) -> (&'static str, Fields) {
    match record {
        Record::RowPut { txn, ordinal, tree, row, bytes } => {
            let fields = [("txn", txn.0), ("tree", tree.0), ("row", row.0), ("ordinal", *ordinal)];
            ("row_put", numbers(fields, [("bytes", json!(bytes.len()))]))
        }
        Record::RowDelete { txn, ordinal, tree, row } => {
            let fields = [("txn", txn.0), ("tree", tree.0), ("row", row.0), ("ordinal", *ordinal)];
            ("row_delete", numbers(fields, []))
        }
        Record::RangeDelete { txn, ordinal, tree, up_to, as_of } => {
            let more = [("up_to", json!(up_to.0)), ("as_of", json!(as_of.0))];
            ("range_delete", numbers([("txn", txn.0), ("tree", tree.0), ("ordinal", *ordinal)], more))
        }
        Record::Prepare { txn, xid, attach, aborted } => {
            let more = [("xid", text::json_field(xid, true)), ("attach", refs(attach)), ("aborted", json!(aborted))];
            ("prepare", numbers([("txn", txn.0)], more))
        }
        Record::Commit { txn, attach, aborted } => {
            ("commit", numbers([("txn", txn.0)], [("attach", refs(attach)), ("aborted", json!(aborted))]))
        }
        Record::Rollback { txn } => ("rollback", numbers([("txn", txn.0)], [])),
        Record::CommitPrepared { txn } => ("commit_prepared", numbers([("txn", txn.0)], [])),
        Record::CreateTable(t) => {
            ("create_table", numbers([("table", t.id.0), ("tree", t.tree.0)], [("name", json!(t.name))]))
        }
        Record::DropTable { table } => ("drop_table", numbers([("table", table.0)], [])),
        Record::RenameTable { table, name } => ("rename_table", numbers([("table", table.0)], [("name", json!(name))])),
        Record::TruncateTable { table, tree } => {
            ("truncate_table", numbers([("table", table.0), ("tree", tree.0)], []))
        }
        Record::TreeEdit { tree, add, remove, flushed_to } => {
            let remove: Vec<u64> = remove.iter().map(|f| f.0).collect();
            let more = [("add", entries(add)), ("remove", json!(remove)), ("flushed_to", json!(flushed_to.0))];
            ("tree_edit", numbers([("tree", tree.0)], more))
        }
        Record::RowIdMark { tree, next } => ("row_id_mark", numbers([("tree", tree.0), ("next", next.0)], [])),
    }
}

fn numbers<const N: usize, const M: usize>(first: [(&'static str, u64); N], more: [(&'static str, Json); M]) -> Fields {
    first.into_iter().map(|(name, n)| (name, json!(n))).chain(more).collect()
}

fn refs(runs: &[RunRef]) -> Json {
    runs.iter().map(|r| json!({ "tree": r.tree.0, "file": r.file.0, "rows": r.stats.rows })).collect()
}

fn entries(runs: &[RunEntry]) -> Json {
    runs.iter().map(|r| json!({ "file": r.file.0, "seq": r.seq.0, "rows": r.stats.rows })).collect()
}
