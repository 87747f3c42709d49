//! `esker info`: what is in a folder, without reading rows.

use crate::failure::Failure;
use crate::{folder, text};
use comfy_table::{presets::NOTHING, CellAlignment, Table as Lines};
use esker::format::IndexStatistics;
use esker::{Engine, Status, Table, TableStats};
use serde_json::{json, Value as Json};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

/// Files and bytes of the log.
struct LogFiles {
    files: u64,
    bytes: u64,
}

/// Tells what is in the folder.
pub fn run(dir: &Path, as_json: bool, out: &mut dyn Write) -> Result<(), Failure> {
    let engine = folder::open(dir)?;
    let result = tell(&engine, dir, as_json, out);
    engine.close()?;
    result
}

fn tell(engine: &Engine, dir: &Path, as_json: bool, out: &mut dyn Write) -> Result<(), Failure> {
    let names = engine.tables();
    let tables = names.iter().map(|name| engine.open_table(name)).collect::<Result<Vec<_>, _>>()?;
    let (files, bytes) = folder::files(&dir.join("wal"), ".wal")?;
    let log = LogFiles { files, bytes };
    let mut prepared = engine.prepared();
    prepared.sort();
    let status = engine.status();
    if as_json {
        writeln!(out, "{}", folder_json(dir, &status, &log, &tables, &prepared))?;
        return Ok(());
    }
    writeln!(out, "folder    {}", text::line(dir.display()))?;
    writeln!(out, "tables    {}, {} runs, {}", status.tables, status.runs, text::size(status.run_bytes))?;
    writeln!(
        out,
        "log       {} files, {}; a restart replays {} bytes, from {} to {}",
        log.files,
        text::size(log.bytes),
        status.recovered_bytes,
        status.replay_from,
        status.recovered_to
    )?;
    writeln!(out, "prepared  {} transactions", prepared.len())?;
    for xid in &prepared {
        writeln!(out, "  {}", text::field(xid, true))?;
    }
    table_lines(&tables, out)
}

fn table_lines(tables: &[Arc<Table>], out: &mut dyn Write) -> Result<(), Failure> {
    let mut lines = Lines::new();
    let head = ["table", "rows (about)", "runs", "on disk", "unpacked", "in the log", "format", "compression"];
    lines.load_preset(NOTHING).set_header(head);
    for table in tables {
        let stats = table.stats();
        lines.add_row([
            text::field(table.name().as_bytes(), true),
            stats.rows.to_string(),
            stats.runs.to_string(),
            text::size(run_bytes(&stats)),
            text::size(stats.raw_bytes),
            text::size(stats.memtable_bytes),
            format(table),
            compression(table),
        ]);
    }
    for (i, column) in lines.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        column.set_cell_alignment(if (1..=5).contains(&i) { CellAlignment::Right } else { CellAlignment::Left });
    }
    writeln!(out, "\n{}", lines.trim_fmt())?;
    Ok(())
}

fn folder_json(dir: &Path, status: &Status, log: &LogFiles, tables: &[Arc<Table>], prepared: &[Vec<u8>]) -> Json {
    json!({
        "folder": text::json_path(dir),
        "runs": status.runs,
        "run_bytes": status.run_bytes,
        "log": {
            "files": log.files,
            "bytes": log.bytes,
            "replay_from": status.replay_from.0,
            "end": status.recovered_to.0,
            "replay_bytes": status.recovered_bytes,
        },
        "prepared": prepared.iter().map(|xid| text::json_field(xid, true)).collect::<Vec<_>>(),
        "tables": tables.iter().map(|t| table_json(t)).collect::<Vec<_>>(),
    })
}

fn table_json(table: &Table) -> Json {
    let stats = table.stats();
    json!({
        "table": table.name(),
        "rows_estimate": stats.rows,
        "runs": stats.runs,
        "run_bytes": run_bytes(&stats),
        "raw_bytes": stats.raw_bytes,
        "memtable_bytes": stats.memtable_bytes,
        "dead_bytes_estimate": stats.dead_bytes,
        "columns": table.layout().columns.len(),
        "image_bytes": table.layout().image_bytes,
        "format": format(table),
        "compression": compression(table),
        "created_unix_s": stats.created_unix_s,
        "statistics": table.statistics().iter().map(|(index, s)| statistics_json(index, s)).collect::<Vec<_>>(),
    })
}

/// What ANALYZE TABLE found out about an index.
fn statistics_json(index: &str, found: &IndexStatistics) -> Json {
    let IndexStatistics { analyzed_unix_s, rows, groups, .. } = found;
    json!({ "index": index, "analyzed_unix_s": analyzed_unix_s, "rows": rows, "groups": groups })
}

fn run_bytes(stats: &TableStats) -> u64 {
    stats.data_bytes.saturating_sub(stats.memtable_bytes)
}

fn format(table: &Table) -> String {
    format!("{:?}", table.format()).to_lowercase()
}

fn compression(table: &Table) -> String {
    format!("{:?}", table.compression()).to_lowercase()
}
