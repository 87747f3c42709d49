//! `esker lab recovery`: how long does the engine take to open a folder after a crash, as the log grows?
//!
//! A process of its own commits rows one by one and ends without closing the engine; opening the folder is then timed,
//! and the rows are counted.

use crate::doctor;
use crate::error::{LabError, Result};
use crate::records::{Records, Shape};
use crate::report::{Report, Row};
use crate::session::{Case, Common, Needs, Sample, Session};
use clap::Args;
use esker::format::row::{pack_values, Value};
use esker::format::{Column, ColumnKind, Compression, Layout, RowFormat};
use esker::{BeginOptions, Engine, FlushMode, Isolation, Options as EngineOptions, PosixDisk, TableDef};
use esker_trace::counters::{global_total, Counter};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

const ROW_BYTES: u16 = 100;

/// Options of the command.
#[derive(Debug, Clone, Args)]
pub struct Options {
    #[command(flatten)]
    common: Common,
    /// Rows committed one by one before the crash; several, with commas
    #[arg(long, value_name = "N", default_value = "10000,30000,100000,300000", value_delimiter = ',')]
    records: Vec<u64>,
    /// The engine keeps its log short enough to be replayed in this time, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    target: u32,
}

impl Options {
    pub(crate) fn common(&self) -> &Common {
        &self.common
    }
}

/// What the process that crashes is told.
#[derive(Debug, Clone, Args)]
pub struct Load {
    /// The data folder
    #[arg(long)]
    dir: PathBuf,
    /// Rows
    #[arg(long)]
    records: u64,
    /// As in `recovery`
    #[arg(long)]
    target: u32,
}

fn failed(e: impl std::fmt::Display) -> LabError {
    LabError::Failed(e.to_string())
}

fn open(dir: &Path, target: u32) -> Result<Engine> {
    let options = EngineOptions { recovery_target_seconds: target, ..EngineOptions::default() };
    Engine::open(Arc::new(PosixDisk::new()), dir, options, Arc::new(|_, _| {})).map_err(failed)
}

/// Commits rows and ends the process as a crash does: nothing is closed. The last commit makes all durable.
///
/// # Errors
/// What the engine says.
pub fn load(load: &Load) -> Result<()> {
    let engine = open(&load.dir, load.target)?;
    let column = Column { kind: ColumnKind::Var { len_bytes: 1, max: ROW_BYTES.into() }, offset: 1, null: None };
    let layout = Layout { image_bytes: 2 + u32::from(ROW_BYTES), head_bytes: 1, columns: vec![column] };
    let (format, compression) = (RowFormat::Dynamic, Compression::None);
    let def = TableDef { layout, format, compression, temporary: false, extra: Vec::new() };
    engine.create_table("rows", &def).map_err(failed)?;
    let table = engine.open_table("rows").map_err(failed)?;
    engine.set_flush_mode(FlushMode::Lazy);
    let records = Records::new(Shape::Static, ROW_BYTES.into(), load.records, 1);
    let (mut session, mut packed) = (engine.session(), Vec::new());
    for i in 0..load.records {
        if i + 1 == load.records {
            engine.set_flush_mode(FlushMode::EveryCommit);
        }
        packed.clear();
        pack_values(table.layout(), &[Value::Bytes(records.get(i))], &mut packed).map_err(failed)?;
        session.begin(Isolation::ReadCommitted, BeginOptions::default());
        session.insert_row(&table, &packed).map_err(failed)?;
        session.commit().map_err(failed)?;
    }
    // No destructor runs.
    std::process::exit(0)
}

/// Measures.
///
/// # Errors
/// Wrong options, no space, no folder.
pub fn run(options: &Options) -> Result<Report> {
    if options.target == 0 || options.records.contains(&0) {
        return Err(LabError::Invalid("--records and --target must be at least 1".into()));
    }
    let mut session = Session::begin(&options.common, "recovery")?;
    let most = options.records.iter().max().copied().unwrap_or(0);
    // A row in the log takes a sector in the worst case, and its place in a run later.
    let bytes = |n: u64| n.saturating_mul(1024).saturating_add(256 << 20);
    let written = options.records.iter().map(|n| bytes(*n)).fold(0, u64::saturating_add);
    let written_bytes = written.saturating_mul(options.common.runs as u64);
    session.plan(options.records.len(), Needs { written_bytes, space_bytes: bytes(most), ..Needs::default() })?;
    let mut cases = Vec::new();
    for &records in &options.records {
        let target = options.target;
        let work = Box::new(move |session: &Session| measure(session, records, target));
        cases.push(Case { params: vec![records.to_string()], base: None, work });
    }
    let rows = session.run(&mut cases);
    let mut notes = vec![format!(
        "The engine writes its memory to files early enough that the log can be replayed in {} s: a log does not grow for ever.",
        options.target
    )];
    notes.extend(exponent(&rows).map(|e| format!("Time grows with the replayed records to the power of {e:.2}.")));
    Ok(Report {
        command: "recovery",
        options: session.options(json!({ "records": options.records, "target_s": options.target })),
        machine: doctor::machine(&options.common.dir),
        params: vec!["commits"],
        shown: vec![
            ("open_s", "s to open"),
            ("replayed", "records replayed"),
            ("replayed_bytes", "bytes replayed"),
            ("per_second", "records a second"),
        ],
        shown_counts: vec![("rows", "rows found")],
        relative: None,
        null_difference: None,
        rows,
        notes,
    })
}

fn measure(session: &Session, records: u64, target: u32) -> Result<Sample> {
    let dir = session.folder().join("data");
    let result = crash_and_open(&dir, records, target);
    remove(&dir);
    let sample = result?;
    session.check()?;
    Ok(sample)
}

fn crash_and_open(dir: &Path, records: u64, target: u32) -> Result<Sample> {
    let program = std::env::current_exe().map_err(failed)?;
    let output = Command::new(program)
        .args(["lab", "recovery-load", "--dir"])
        .arg(dir)
        .args(["--records", &records.to_string(), "--target", &target.to_string()])
        .stdin(Stdio::null())
        .output()
        .map_err(failed)?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr);
        return Err(failed(format!(
            "the process that was to load rows ended with {}: {}",
            output.status,
            words.trim()
        )));
    }
    let figures = || [Counter::RecoveryRecords, Counter::RecoveryBytes].map(global_total);
    let before = figures();
    let began = Instant::now();
    let engine = open(dir, target)?;
    let took = began.elapsed().as_secs_f64();
    let after = figures();
    let [replayed, bytes] = std::array::from_fn(|i| (after[i] - before[i]) as f64);
    let table = engine.open_table("rows").map_err(failed)?;
    let mut reader = engine.session();
    let rows = reader.count_rows(&table).map_err(failed)?;
    drop(reader);
    drop(table);
    engine.close().map_err(failed)?;
    let wrong = (rows != records).then(|| format!("{rows} rows after the crash, {records} were committed"));
    Ok(Sample {
        metrics: vec![
            ("open_s", "s", took),
            ("replayed", "", replayed),
            ("replayed_bytes", "bytes", bytes),
            ("per_second", "1/s", replayed / took),
        ],
        counts: vec![("rows", rows)],
        wrong,
        ..Sample::default()
    })
}

/// Removes a data folder of the engine.
fn remove(dir: &Path) {
    use esker_io::Disk;
    let disk = PosixDisk::new();
    for entry in disk.list(dir).unwrap_or_default() {
        let path = dir.join(entry.name);
        if entry.is_dir {
            remove(&path);
        } else {
            let _ = disk.remove(&path);
        }
    }
    let _ = disk.remove_dir(dir);
}

/// Slope of the logarithms of time over replayed records, by least squares.
fn exponent(rows: &[Row]) -> Option<f64> {
    let point = |r: &Row| {
        let (x, y) = (r.middle("replayed")?.median, r.middle("open_s")?.median);
        (x > 0.0 && y > 0.0).then(|| (x.ln(), y.ln()))
    };
    let points: Vec<(f64, f64)> = rows.iter().filter_map(point).collect();
    let n = points.len() as f64;
    let (mx, my) = (points.iter().map(|p| p.0).sum::<f64>() / n, points.iter().map(|p| p.1).sum::<f64>() / n);
    let spread: f64 = points.iter().map(|p| (p.0 - mx).powi(2)).sum();
    let both: f64 = points.iter().map(|p| (p.0 - mx) * (p.1 - my)).sum();
    (points.len() > 1 && spread > 0.01).then(|| both / spread)
}
