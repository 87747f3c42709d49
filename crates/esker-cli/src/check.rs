//! `esker check`: reads and verifies everything. Opening the folder verifies the manifest, the log behind it and every
//! run's header, footer and index; then each table's blocks are read one after the other.

use crate::failure::{is_damage, place, Failure};
use crate::{folder, text};
use esker::{CheckReport, Engine, Error};
use serde_json::{json, Value as Json};
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::time::{Duration, Instant};

const PROGRESS_EVERY: Duration = Duration::from_millis(100);

/// Checks the named tables of a folder, or all.
pub fn run(dir: &Path, tables: &[String], as_json: bool, out: &mut dyn Write) -> Result<(), Failure> {
    let engine = match folder::open(dir) {
        Ok(engine) => engine,
        Err(Failure::Engine(e)) if is_damage(&e) => {
            return unopened(dir, &e, as_json, out);
        }
        Err(e) => return Err(e),
    };
    let result = tables_of(&engine, dir, tables, as_json, out);
    engine.close()?;
    result
}

/// The folder is so damaged that it cannot be opened: what was met first is all there is to tell.
fn unopened(dir: &Path, e: &Error, as_json: bool, out: &mut dyn Write) -> Result<(), Failure> {
    if as_json {
        let report = json!({ "folder": text::json_path(dir), "ok": false, "tables": [], "damage": [finding(e)] });
        writeln!(out, "{report}")?;
    } else {
        writeln!(
            out,
            "{}: cannot be opened, its tables were not checked\n  {}",
            text::line(dir.display()),
            text::line(e)
        )?;
    }
    Err(Failure::Damaged)
}

fn tables_of(
    engine: &Engine,
    dir: &Path,
    wanted: &[String],
    as_json: bool,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let names = if wanted.is_empty() { engine.tables() } else { wanted.to_vec() };
    // A name that is wrong should not be met after hours.
    let tables = names.iter().map(|name| folder::table(engine, name)).collect::<Result<Vec<_>, _>>()?;
    let (mut whole, mut reports) = (true, Vec::new());
    for table in &tables {
        let name = table.name();
        let shown = text::field(name.as_bytes(), true);
        let mut progress = Progress::new(&shown);
        let checked = engine.check(table, &mut |done, total| progress.tell(done, total));
        progress.clear();
        let report = match checked {
            Err(e) if is_damage(&e) => CheckReport { damages: vec![e], ..CheckReport::default() },
            report => report?,
        };
        whole &= report.damages.is_empty();
        if as_json {
            reports.push(table_json(&name, &report));
        } else {
            heard(tell(&shown, &report, out).and_then(|()| Ok(out.flush()?)))?;
        }
    }
    if as_json {
        let report = json!({ "folder": text::json_path(dir), "ok": whole, "tables": reports, "damage": [] });
        heard(writeln!(out, "{report}").map_err(Failure::from))?;
    } else {
        let replayed = engine.status().recovered_bytes;
        heard(writeln!(out, "manifest and log: {} replayed: ok", text::size(replayed)).map_err(Failure::from))?;
    }
    match whole {
        true => Ok(()),
        false => Err(Failure::Damaged),
    }
}

/// Whoever reads the output may have enough of it: the exit code is still to say what all tables are like.
fn heard(told: Result<(), Failure>) -> Result<(), Failure> {
    match told {
        Err(Failure::Output(e)) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        told => told,
    }
}

fn tell(name: &str, report: &CheckReport, out: &mut dyn Write) -> Result<(), Failure> {
    let CheckReport { blocks, rows, bytes, damages, unheld, .. } = report;
    let verdict = match damages.len() {
        0 => "ok".to_owned(),
        1 => "1 block is damaged".to_owned(),
        n => format!("{n} blocks are damaged"),
    };
    writeln!(out, "{name}: {blocks} blocks, {rows} row versions, {} read: {verdict}", text::size(*bytes))?;
    for damage in damages {
        writeln!(out, "  {}", text::line(damage))?;
    }
    for why in unheld {
        writeln!(out, "  not held against the rows: {}", text::line(why))?;
    }
    Ok(())
}

fn table_json(name: &str, report: &CheckReport) -> Json {
    json!({
        "table": name,
        "ok": report.damages.is_empty(),
        "blocks": report.blocks,
        "row_versions": report.rows,
        "bytes": report.bytes,
        "damage": report.damages.iter().map(finding).collect::<Vec<_>>(),
        "unheld": report.unheld.iter().map(Error::to_string).collect::<Vec<_>>(),
    })
}

fn finding(e: &Error) -> Json {
    let (file, offset) = place(e);
    json!({ "file": text::json_path(&file), "offset": offset, "message": e.to_string() })
}

/// A line on the terminal that says how far it is; none if there is no terminal.
struct Progress<'a> {
    name: &'a str,
    terminal: bool,
    told: Option<Instant>,
}

impl<'a> Progress<'a> {
    fn new(name: &'a str) -> Self {
        Progress { name, terminal: std::io::stderr().is_terminal(), told: None }
    }

    /// Always true: nobody stops it.
    fn tell(&mut self, done: u64, total: u64) -> bool {
        if self.terminal && self.told.is_none_or(|at| at.elapsed() >= PROGRESS_EVERY) {
            self.told = Some(Instant::now());
            let percent = done * 100 / total.max(1);
            let _ = write!(std::io::stderr(), "\r\x1b[K{}: {percent}%, {done} of {total} blocks", self.name);
        }
        true
    }

    fn clear(&self) {
        if self.told.is_some() {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}
