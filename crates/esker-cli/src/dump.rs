//! `esker dump`: a table's committed rows, one a line.

use crate::failure::Failure;
use crate::{folder, text};
use esker::format::row::Value;
use esker::format::{ColumnKind, Layout};
use esker::{Engine, Row};
use serde_json::{json, Value as Json};
use std::io::Write;
use std::path::Path;

/// Prints up to `limit` rows of a table.
pub fn run(dir: &Path, table: &str, limit: Option<u64>, as_json: bool, out: &mut dyn Write) -> Result<(), Failure> {
    let engine = folder::open(dir)?;
    let result = rows(&engine, table, limit, as_json, out);
    engine.close()?;
    result
}

fn rows(engine: &Engine, table: &str, limit: Option<u64>, as_json: bool, out: &mut dyn Write) -> Result<(), Failure> {
    let table = folder::table(engine, table)?;
    let mut session = engine.session();
    let mut rows = session.rows(&table)?;
    let mut left = limit.unwrap_or(u64::MAX);
    while left > 0 {
        let Some(row) = rows.next()? else { break };
        if as_json {
            writeln!(out, "{}", json_line(table.layout(), &row)?)?;
        } else {
            writeln!(out, "{}", line(table.layout(), &row)?)?;
        }
        left -= 1;
    }
    Ok(())
}

/// In a line, hexadecimal digits are told from text by how they begin.
const HEX: &[u8] = b"0x";

/// Columns of fixed width hold numbers and dates: bytes that look like text are chance.
fn as_text(kind: ColumnKind) -> bool {
    !matches!(kind, ColumnKind::Fixed { .. })
}

fn line(layout: &Layout, row: &Row<'_>) -> Result<String, Failure> {
    let mut out = row.id().to_string();
    for (column, value) in layout.columns.iter().zip(row.stored()?) {
        out.push('\t');
        match value {
            Value::Null => out.push_str("\\N"),
            Value::Bytes(bytes) => {
                let as_text = as_text(column.kind) && !bytes.starts_with(HEX);
                out.push_str(&text::field(bytes, as_text));
            }
        }
    }
    Ok(out)
}

fn json_line(layout: &Layout, row: &Row<'_>) -> Result<Json, Failure> {
    let values = row.stored()?;
    let values = layout.columns.iter().zip(values).map(|(column, value)| match value {
        Value::Null => Json::Null,
        Value::Bytes(bytes) => text::json_field(bytes, as_text(column.kind)),
    });
    Ok(json!({ "row": row.id().0, "values": values.collect::<Vec<_>>() }))
}
