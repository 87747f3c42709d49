//! `esker lab recovery`: how long does the engine take to open a folder after a crash, as the log grows?
//!
//! A process of its own commits rows one by one and ends without closing the engine; opening the folder is then timed,
//! and the rows are counted. The engine keeps its log short enough for a target, so the time has a bound; beside it
//! stand folders whose log only grew, for how the time grows with what is replayed.

use crate::doctor;
use crate::error::{LabError, Result};
use crate::experiment::{remove_all, Case, Experiment, Sample};
use crate::needs::Needs;
use crate::options::CommonOptions;
use crate::records::{Records, Shape};
use crate::report::{Report, Row, Status};
use crate::units::count;
use clap::Args;
use esker::format::row::{self, pack_values};
use esker::format::{Column, ColumnKind, Compression, Layout, RowFormat};
use esker::{BeginOptions, Engine, FlushMode, Isolation, Options as EngineOptions, PosixDisk, Table, TableDef};
use esker_base::counters::{global_total, Counter};
use esker_base::wait::{self, WaitEvent};
use law::{Law, Size};
use serde_json::{json, Map, Value};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

mod law;

/// Of which the law is: how long an opening takes but for making the segment in which the log goes on.
pub(crate) const LOG_TIME: &str = "log_s";
/// In what the engine says when the log is replayed, and the rest of opening begins.
const REPLAYED: &str = " replayed in ";
const ROW_BYTES: u16 = 100;
/// Space a row takes at most, in bytes: its frame in the log, and its run twice while runs are merged.
const SPACE_BYTES: u64 = 400;

/// Options of the command.
#[derive(Debug, Clone, Args)]
pub struct Options {
    #[command(flatten)]
    common: CommonOptions,
    /// Rows committed one by one before the crash; several, with commas
    #[arg(long, value_name = "N", default_value = "10000,30000,100000,300000,1000000", value_delimiter = ',', value_parser = count)]
    records: Vec<u64>,
    /// The engine keeps its log short enough to be replayed in this time, in seconds; 0: the log only grows; several,
    /// with commas
    #[arg(long, value_name = "SECONDS", default_value = "5,0", value_delimiter = ',')]
    target: Vec<u32>,
}

impl Options {
    pub(crate) fn common(&self) -> &CommonOptions {
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

/// Opens the engine; what it says goes to `tell`: during recovery, percent once a second.
fn open(dir: &Path, target: u32, tell: impl Fn(&str) + Send + Sync + 'static) -> Result<Engine> {
    let recovery_target_seconds = if target == 0 { u32::MAX } else { target };
    let options = EngineOptions { recovery_target_seconds, ..EngineOptions::default() };
    Engine::open(Arc::new(PosixDisk::new()), dir, options, Arc::new(move |text, _| tell(text))).map_err(failed)
}

/// Makes a table whose rows are a string of at most so many bytes.
pub(crate) fn table_of_rows(engine: &Engine, longest: u16) -> Result<Arc<Table>> {
    let len_bytes = if longest < 256 { 1 } else { 2 };
    let column = Column { kind: ColumnKind::Var { len_bytes, max: longest.into() }, offset: 1, null: None };
    let image_bytes = 1 + u32::from(len_bytes) + u32::from(longest);
    let layout = Layout { image_bytes, head_bytes: 1, columns: vec![column] };
    let (format, compression) = (RowFormat::Dynamic, Compression::None);
    let def = TableDef { layout, format, compression, temporary: false, indexes: Vec::new(), extra: Vec::new() };
    engine.create_table("rows", &def).map_err(failed)?;
    engine.open_table("rows").map_err(failed)
}

/// Commits rows and ends the process as a crash does: nothing is closed. The last commit makes all durable. `done` is
/// given the rows so far, often enough to stop the process soon.
///
/// # Errors
/// What the engine says, and `done`.
pub fn load(load: &Load, mut done: impl FnMut(u64) -> Result<()>) -> Result<()> {
    let engine = open(&load.dir, load.target, |_| {})?;
    let table = table_of_rows(&engine, ROW_BYTES)?;
    engine.set_flush_mode(FlushMode::Lazy);
    let records = Records::new(Shape::Static, ROW_BYTES.into(), load.records, 1);
    let (mut session, mut packed) = (engine.session(), Vec::new());
    let step = (load.records / 100).clamp(1, 10_000);
    for i in 0..load.records {
        if i + 1 == load.records {
            engine.set_flush_mode(FlushMode::EveryCommit);
        }
        packed.clear();
        pack_values(table.layout(), &[row::Value::Bytes(records.get(i))], &mut packed).map_err(failed)?;
        session.begin(Isolation::ReadCommitted, BeginOptions::default());
        session.insert_row(&table, &packed).map_err(failed)?;
        session.commit().map_err(failed)?;
        if (i + 1) % step == 0 || i + 1 == load.records {
            done(i + 1)?;
        }
    }
    // No destructor runs.
    std::process::exit(0)
}

/// Measures.
///
/// # Errors
/// Wrong options, no space, no folder.
pub fn run(options: &Options) -> Result<Report> {
    if options.records.contains(&0) {
        return Err(LabError::Invalid("--records must be at least 1".into()));
    }
    options.common.without_cache()?;
    let mut experiment = Experiment::begin(&options.common, "recovery")?;
    let most = options.records.iter().max().copied().unwrap_or(0);
    // Segments of the log are made ahead.
    let bytes = |n: u64| n.saturating_mul(SPACE_BYTES).saturating_add(512 << 20);
    let once = options.records.iter().map(|n| bytes(*n)).fold(0, u64::saturating_add);
    let times = (experiment.rounds() * options.target.len()) as u64;
    let needs = Needs {
        written_bytes: once.saturating_mul(times),
        space_bytes: bytes(most),
        memory_bytes: memory_bytes(most),
        less: "--records",
        ..Needs::default()
    };
    experiment.plan(options.records.len() * options.target.len(), needs)?;
    let mut cases = Vec::new();
    for (&target, &records) in options.target.iter().flat_map(|t| options.records.iter().map(move |r| (t, r))) {
        let work = Box::new(move |experiment: &Experiment| measure(experiment, records, target));
        cases.push(Case { params: vec![records.to_string(), log_name(target)], base: None, work });
    }
    let rows = experiment.run(&mut cases);
    let notes = words(&rows, &options.target);
    let laws: Vec<Value> = options.target.iter().filter_map(|target| law_json(&rows, &log_name(*target))).collect();
    Ok(Report {
        command: "recovery",
        options: experiment.options(json!({ "records": options.records, "target_s": options.target })),
        machine: doctor::machine(&options.common.dir),
        params: vec!["commits", "log"],
        shown: vec![
            ("open_s", "s to open"),
            ("replay_s", "s of it replaying"),
            ("read_s", "s of that reading"),
            ("segment_s", "s of that making a segment"),
            ("rest_s", "s then"),
            (LOG_TIME, "s without the segment"),
            ("replay_mib_s", "MiB/s replayed"),
            ("replayed", "frames replayed"),
            ("replayed_bytes", "bytes replayed"),
            ("per_second", "frames a second"),
        ],
        shown_counts: vec![("rows", "rows found")],
        relative: None,
        null_difference: None,
        rows,
        notes,
        waited: experiment.waited(),
        found: Map::from_iter([("laws".to_owned(), Value::Array(laws))]),
    })
}

/// Memory that the engine takes at most for so many rows, in the process that loads them, and then in this one.
fn memory_bytes(rows: u64) -> u64 {
    rows.saturating_mul(SPACE_BYTES).min(EngineOptions::default().memory_limit_bytes) + (64 << 20)
}

fn log_name(target: u32) -> String {
    match target {
        0 => "only grows".into(),
        seconds => format!("kept to {seconds} s"),
    }
}

fn measure(experiment: &Experiment, records: u64, target: u32) -> Result<Sample> {
    let dir = experiment.folder().join("data");
    let result =
        crash(experiment, &dir, records, target).and_then(|()| open_and_count(experiment, &dir, records, target));
    remove_all(&dir);
    let sample = result?;
    experiment.check()?;
    Ok(sample)
}

/// Lets a process of its own load rows and crash.
fn crash(experiment: &Experiment, dir: &Path, records: u64, target: u32) -> Result<()> {
    let program = std::env::current_exe().map_err(failed)?;
    let mut child = Command::new(program)
        .args(["lab", "recovery-load", "--dir"])
        .arg(dir)
        .args(["--records", &records.to_string(), "--target", &target.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let watched = watch(experiment, &mut child, records);
    if watched.is_err() {
        let _ = child.kill();
    }
    let status = child.wait().map_err(failed)?;
    watched?;
    // Ctrl-C on a terminal reaches the child too.
    experiment.check()?;
    if !status.success() {
        let mut words = String::new();
        let _ = child.stderr.take().map(|mut text| text.read_to_string(&mut words));
        return Err(failed(format!("the process that was to load rows ended with {status}: {}", words.trim())));
    }
    Ok(())
}

/// Shows how far the child is, until it ends.
fn watch(experiment: &Experiment, child: &mut Child, records: u64) -> Result<()> {
    let tell = experiment.teller();
    for line in BufReader::new(child.stdout.take().ok_or(LabError::Stopped)?).lines() {
        experiment.check()?;
        let done = line.map_err(failed)?.parse::<u64>().map_err(failed)?;
        tell(&format!("{records} commits: {}%", done.saturating_mul(100) / records));
    }
    Ok(())
}

/// Opens what the crash left, and looks whether all is there.
fn open_and_count(experiment: &Experiment, dir: &Path, records: u64, target: u32) -> Result<Sample> {
    let figures = || [Counter::RecoveryRecords, Counter::RecoveryBytes].map(global_total);
    let before = figures();
    let began = Instant::now();
    let (tell, replay_ended) = (experiment.teller(), Arc::new(OnceLock::new()));
    let (ended, waits_before) = (replay_ended.clone(), Waits::now());
    let engine = open(dir, target, move |text| {
        if text.contains(REPLAYED) {
            // Later waits are those of threads in the background, too.
            let _ = ended.set((began.elapsed().as_secs_f64(), Waits::now()));
        }
        tell(text);
    })?;
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
    let mut metrics = vec![
        ("open_s", "s", took),
        ("replayed", "", replayed),
        ("replayed_bytes", "bytes", bytes),
        ("per_second", "1/s", replayed / took),
    ];
    if let Some((replay, waits)) = replay_ended.get() {
        metrics.extend([("replay_s", "s", *replay), ("rest_s", "s", took - replay)]);
        metrics.push(("read_s", "s", waits.read_s - waits_before.read_s));
        let segment_s = waits.segment_s - waits_before.segment_s;
        metrics.extend([("segment_s", "s", segment_s), (LOG_TIME, "s", took - segment_s)]);
        metrics.push(("replay_mib_s", "MiB/s", bytes / f64::from(1 << 20) / replay));
    }
    Ok(Sample { metrics, counts: vec![("rows", rows)], wrong, ..Sample::default() })
}

/// Seconds that were waited for the log's files so far.
#[derive(Debug, Clone, Copy)]
struct Waits {
    read_s: f64,
    /// Writing and syncing: while the log is replayed that is the segment in which it goes on.
    segment_s: f64,
}

impl Waits {
    fn now() -> Waits {
        let of = |event| wait::snapshot(event).sum_ns as f64 / 1e9;
        Waits { read_s: of(WaitEvent::WalRead), segment_s: of(WaitEvent::WalWrite) + of(WaitEvent::WalSync) }
    }
}

/// What the figures say, for each target.
fn words(rows: &[Row], targets: &[u32]) -> Vec<String> {
    let mut words =
        vec!["A commit of one row is one frame of the log. The log was just written: it is in the page cache, \
                          as after the crash of a process, not of the machine."
            .to_owned()];
    for &target in targets {
        let log = log_name(target);
        let sizes = sizes(rows, &log);
        // A log that is kept short may have one length only: that is its purpose, and no law.
        if target == 0 || law::fit(&sizes).is_some() {
            words.push(law_words(&log, &sizes));
        }
    }
    if targets.iter().any(|t| *t > 0) {
        words.push(
            "A log that is kept short is as short as its target asks: beyond that, more commits do not take longer."
                .into(),
        );
    }
    words
}

/// What was replayed at each size, and how long that took in each run.
fn sizes(rows: &[Row], log: &str) -> Vec<Size> {
    let of = |row: &Row| {
        let n = row.summary("replayed")?.median;
        let times = row.metrics.get(LOG_TIME)?.samples.clone();
        (n > 0.0 && times.iter().all(|t| *t > 0.0)).then_some(Size { n, times })
    };
    rows.iter().filter(|r| r.status == Status::Good && r.params[1] == log).filter_map(of).collect()
}

/// The law of one log, for a report.
fn law_json(rows: &[Row], log: &str) -> Option<Value> {
    let law = law::fit(&sizes(rows, log))?;
    let Law { a, b, k, low, high } = law;
    Some(json!({
        "log": log, "a": a, "b": b, "k": k, "k_low": low, "k_high": high, "k_most": law::MOST, "fault": law.is_fault(),
    }))
}

/// The law of one log in words.
fn law_words(log: &str, sizes: &[Size]) -> String {
    let Some(law) = law::fit(sizes) else {
        return format!(
            "Log {log}: no law can be told; that takes {} different lengths of it, the longest four times the shortest.",
            law::LEAST_SIZES
        );
    };
    let Law { a, b, k, low, high } = law;
    let found = format!(
        "Log {log}: seconds without the segment = {a:.3} + {b:.3e} * frames^{k:.2}; the power is {low:.2} to {high:.2} with 95 percent confidence."
    );
    match (law.is_fault(), low > law::MOST) {
        (false, _) => found,
        (true, true) => format!("{found} A fault: it should be at most {:.1}.", law::MOST),
        (true, false) => format!(
            "{found} It should be at most {:.1}, and more cannot be ruled out: it counts as a fault until more --runs or \
             larger --records show otherwise.",
            law::MOST
        ),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::report::Metric;

    fn words_of(k: f64) -> String {
        let size = |n: f64| Size { n, times: [0.99, 1.0, 1.0, 1.01].map(|e| e * (0.01 + (n / 1e5).powf(k))).into() };
        law_words("only grows", &[1e4, 3e4, 1e5, 3e5, 1e6].map(size))
    }

    #[test]
    fn the_law_is_in_the_report_with_its_bounds() {
        let row = |(n, runs): (f64, [f64; 4])| {
            let mut row = Row::without_figures(vec![n.to_string(), "only grows".into()], Status::Good);
            row.metrics.insert("replayed", Metric { unit: "", samples: vec![n; 4] });
            row.metrics.insert(LOG_TIME, Metric { unit: "s", samples: runs.into() });
            row
        };
        let runs = |n: f64, k: f64| [0.99, 1.0, 1.0, 1.01].map(|e| e * (0.01 + (n / 1e5).powf(k)));
        let of = |k: f64| [1e4, 3e4, 1e5, 3e5, 1e6].map(|n| row((n, runs(n, k)))).to_vec();
        let law = law_json(&of(2.0), "only grows").unwrap();
        let figure = |name: &str| law[name].as_f64().unwrap();
        assert!((figure("k") - 2.0).abs() < 0.05 && (figure("a") - 0.01).abs() < 0.002, "{law}");
        assert!((figure("b") / 1e-10 - 1.0).abs() < 0.5, "{law}");
        assert!(figure("k_low") <= figure("k") && figure("k") <= figure("k_high"), "{law}");
        assert_eq!((&law["fault"], figure("k_most"), &law["log"]), (&json!(true), 1.1, &json!("only grows")));
        assert_eq!(law_json(&of(1.0), "only grows").unwrap()["fault"], false);
        assert_eq!(law_json(&of(1.0), "kept to 5 s"), None);
    }

    #[test]
    fn a_law_beyond_the_promised_is_called_a_fault() {
        assert!(words_of(1.0).contains("frames^1.0") && !words_of(1.0).contains("fault"), "{}", words_of(1.0));
        assert!(words_of(2.0).contains("A fault: it should be at most 1.1."), "{}", words_of(2.0));
        assert!(law_words("only grows", &[]).contains("no law"));
    }
}
