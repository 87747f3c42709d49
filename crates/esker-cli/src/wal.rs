//! `esker wal`: the log's records, one a line, as they lie there. Nothing is replayed into tables.

use crate::failure::Failure;
use crate::folder::{self, LockedFolder};
use crate::text;
use esker::format::{
    IndexStatistics, Lsn, Record, RecordReader, RowId, RunEntry, RunRef, TableId, TreeEntry, TreeId, TxnId,
};
use esker::wal::{replay, Replayed, WalError};
use esker::Error;
use serde_json::{json, Value as Json};
use std::io::Write;
use std::ops::Range;
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
    let (asked, from) = (from.is_some(), from.map_or(folder.manifest.replay_from, Lsn));
    let wal = dir.join("wal");
    let mut left = limit.unwrap_or(u64::MAX);
    let mut frame = |lsn: Lsn, payload: &[u8]| -> Result<(), Stop> {
        for record in RecordReader::new(payload) {
            if left == 0 {
                return Err(Stop::Enough);
            }
            left -= 1;
            let record = record.map_err(|e| Error::damage(&wal, lsn.0, e))?;
            let (kind, fields) = kind_and_fields(&record);
            if as_json {
                writeln!(out, "{}", json_line(lsn, kind, fields))?;
            } else {
                writeln!(out, "{}", line(lsn, kind, &fields))?;
            }
        }
        Ok(())
    };
    let replayed = replay(&*folder.disk, &wal, folder.manifest.folder, from, &mut frame, &mut |_, _| {});
    if asked {
        refuse_place(&folder, &wal, from, &replayed)?;
    }
    match replayed {
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
        // The log was shortened after an edit of the manifest that is not whole any more.
        Err(Stop::Failed(Failure::Engine(e @ Error::LogMissing { .. }))) => Err(folder.torn.unwrap_or(e).into()),
        Err(Stop::Failed(e)) => Err(e),
    }
}

/// A place from where nothing can be read is the caller's mistake, unless it is the log's end.
fn refuse_place(
    folder: &LockedFolder,
    wal: &Path,
    from: Lsn,
    replayed: &Result<Replayed, Stop>,
) -> Result<(), Failure> {
    let why = match replayed {
        Err(Stop::Failed(Failure::Engine(Error::LogMissing { lsn, .. }))) if *lsn == from => {
            format!("the log in {} does not reach from {from} on", wal.display())
        }
        Ok(found) if found.frames == 0 => {
            let mut nothing = |_: Lsn, _: &[u8]| -> Result<(), Stop> { Ok(()) };
            let (disk, of, begin) = (&*folder.disk, folder.manifest.folder, folder.manifest.replay_from);
            match replay(disk, wal, of, begin, &mut nothing, &mut |_, _| {}) {
                Ok(whole) if whole.end != found.end => format!("at {from} no record of the log begins"),
                _ => return Ok(()),
            }
        }
        _ => return Ok(()),
    };
    Err(Error::InvalidArgument(why).into())
}

type Fields = Vec<(&'static str, Json)>;

fn line(lsn: Lsn, kind: &str, fields: &Fields) -> String {
    let mut out = format!("{lsn}\t{kind}");
    for (name, value) in fields {
        out.push_str(&format!("\t{name}={}", text::line(value)));
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
fn kind_and_fields(record: &Record<'_>) -> (&'static str, Fields) {
    match record {
        Record::RowPut { txn, ordinal, tree, row, supersedes, layout, bytes } => {
            let more = [("supersedes", json!(supersedes)), ("layout", json!(layout)), ("bytes", json!(bytes.len()))];
            ("row_put", version(*txn, *tree, *row, *ordinal, more))
        }
        Record::RowDelete { txn, ordinal, tree, row } => ("row_delete", version(*txn, *tree, *row, *ordinal, [])),
        Record::KeyPut { txn, ordinal, tree, row, key, payload } => {
            let more = [("key", text::json_field(key, true)), ("bytes", json!(payload.len()))];
            ("key_put", version(*txn, *tree, *row, *ordinal, more))
        }
        Record::KeyDelete { txn, ordinal, tree, row, key } => {
            ("key_delete", version(*txn, *tree, *row, *ordinal, [("key", text::json_field(key, true))]))
        }
        Record::RangeDelete { txn, ordinal, table, up_to, as_of } => {
            let more = [("up_to", json!(up_to.0)), ("as_of", json!(as_of.0))];
            ("range_delete", numbers([("txn", txn.0), ("table", table.0), ("ordinal", *ordinal)], more))
        }
        Record::Prepare { txn, xid, attach, aborted, deltas } => {
            let [attach, aborted, deltas] = outcome(attach, aborted, deltas);
            let more = [("xid", text::json_field(xid, true)), attach, aborted, deltas];
            ("prepare", numbers([("txn", txn.0)], more))
        }
        Record::Commit { txn, attach, aborted, deltas } => {
            ("commit", numbers([("txn", txn.0)], outcome(attach, aborted, deltas)))
        }
        Record::Rollback { txn } => ("rollback", numbers([("txn", txn.0)], [])),
        Record::CommitPrepared { txn } => ("commit_prepared", numbers([("txn", txn.0)], [])),
        Record::CreateTable(t) => {
            ("create_table", numbers([("table", t.id.0)], [("trees", tree_ids(&t.trees)), ("name", json!(t.name))]))
        }
        Record::DropTable { table } => ("drop_table", numbers([("table", table.0)], [])),
        Record::RenameTable { table, name } => ("rename_table", numbers([("table", table.0)], [("name", json!(name))])),
        Record::TruncateTable { table, trees } => {
            let trees: Vec<[u64; 2]> = trees.iter().map(|(old, new)| [old.0, new.0]).collect();
            ("truncate_table", numbers([("table", table.0)], [("trees", json!(trees))]))
        }
        Record::AlterIndexes { table, trees, attach } => {
            ("alter_indexes", numbers([("table", table.0)], [("trees", tree_ids(trees)), ("attach", refs(attach))]))
        }
        Record::TreeEdit { tree, add, remove, flushed_to } => {
            let remove: Vec<u64> = remove.iter().map(|f| f.0).collect();
            let more = [("add", entries(add)), ("remove", json!(remove)), ("flushed_to", json!(flushed_to.0))];
            ("tree_edit", numbers([("tree", tree.0)], more))
        }
        Record::RowIdMark { tree, next } => ("row_id_mark", numbers([("tree", tree.0), ("next", next.0)], [])),
        Record::AutoIncrementMark { table, next } => {
            ("auto_increment_mark", numbers([("table", table.0), ("next", *next)], []))
        }
        Record::IndexStatistics { table, statistics } => {
            ("index_statistics", numbers([("table", table.0)], [("statistics", found(statistics))]))
        }
        Record::CreateSnapshot { id, name, seq, .. } => {
            ("create_snapshot", numbers([("snapshot", *id), ("seq", seq.0)], [("name", json!(name))]))
        }
        Record::DropSnapshot { id } => ("drop_snapshot", numbers([("snapshot", *id)], [])),
    }
}

/// What every version of a row, or of an entry, says.
fn version<const M: usize>(
    txn: TxnId,
    tree: TreeId,
    row: RowId,
    ordinal: u64,
    more: [(&'static str, Json); M],
) -> Fields {
    numbers([("txn", txn.0), ("tree", tree.0), ("row", row.0), ("ordinal", ordinal)], more)
}

/// What a transaction leaves behind: runs, ordinals that do not count, and by how many rows tables change.
fn outcome(attach: &[RunRef], aborted: &[Range<u64>], deltas: &[(TableId, i64)]) -> [(&'static str, Json); 3] {
    [("attach", refs(attach)), ("aborted", ranges(aborted)), ("deltas", pairs(deltas))]
}

fn numbers<const N: usize, const M: usize>(first: [(&'static str, u64); N], more: [(&'static str, Json); M]) -> Fields {
    first.into_iter().map(|(name, n)| (name, json!(n))).chain(more).collect()
}

fn tree_ids(trees: &[TreeEntry]) -> Json {
    trees.iter().map(|t| t.id.0).collect()
}

fn refs(runs: &[RunRef]) -> Json {
    runs.iter().map(|r| json!({ "tree": r.tree.0, "file": r.run.file.0, "rows": r.run.stats.rows })).collect()
}

fn ranges(ordinals: &[Range<u64>]) -> Json {
    json!(ordinals.iter().map(|r| (r.start, r.end)).collect::<Vec<_>>())
}

fn pairs(deltas: &[(TableId, i64)]) -> Json {
    deltas.iter().map(|(table, delta)| json!([table.0, delta])).collect()
}

fn entries(runs: &[RunEntry]) -> Json {
    runs.iter().map(|r| json!({ "file": r.file.0, "seq": r.seq.0, "rows": r.stats.rows })).collect()
}

fn found(statistics: &[IndexStatistics]) -> Json {
    statistics.iter().map(|s| json!({ "tree": s.tree.0, "rows": s.rows, "groups": s.groups })).collect()
}
