//! `esker lab commit`: how commits of many threads share barriers, alone and together with a coordinator's log (the
//! server's binlog).
//!
//! Every transaction writes `--bytes` of redo. Alone it commits by one record. In two phases it prepares, then joins the
//! coordinator's queue; whoever leads that queue writes and syncs the coordinator's log for all in it, and gives each its
//! commit record in that order. What differs is who makes the engine's log durable, and when. Beside them, the engine
//! itself: its sessions insert a row each and commit it, alone or as the server's binlog drives them.

mod coordinator;
mod engine;
mod log;
mod mode;
mod work;

use crate::buffer::record_bytes;
use crate::clock::{least_time, Repetitions};
use crate::doctor;
use crate::error::{LabError, Result};
use crate::experiment::{Case, Experiment};
use crate::needs::{most_memory, product, Needs};
use crate::options::CommonOptions;
use crate::report::{null_difference, Report};
use crate::times;
use crate::units::{count, size_text};
use clap::Args;
use esker_io::{Disk, PosixDisk};
use mode::{Mode, MODES};
use serde_json::json;
use std::path::PathBuf;
use std::time::Duration;
use work::Job;

/// Options of the command.
#[derive(Debug, Clone, Args)]
pub struct Options {
    #[command(flatten)]
    common: CommonOptions,
    /// Threads that commit; several, with commas, up to 512
    #[arg(long, value_name = "N", default_value = "1,8,64", value_delimiter = ',')]
    threads: Vec<usize>,
    /// Transactions of each thread in a run, at least
    #[arg(long, value_name = "N", default_value = "50", value_parser = count)]
    commits: u64,
    /// A run takes so long at least, with more transactions, as far as they fit 256M; 0: as many as --commits
    #[arg(long, value_name = "TIME", default_value = "0.1s", value_parser = least_time)]
    min_time: Duration,
    /// Bytes of redo of a transaction
    #[arg(long, value_name = "BYTES", default_value_t = 200, value_parser = record_bytes)]
    bytes: usize,
    /// Another folder, on memory say, to compare with; 'none': only --dir
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    beside: PathBuf,
}

impl Options {
    pub(crate) fn common(&self) -> &CommonOptions {
        &self.common
    }
}

/// Measures.
///
/// # Errors
/// Wrong options, no space, no folder.
pub fn run(options: &Options) -> Result<Report> {
    check(options)?;
    let mut experiment = Experiment::begin(&options.common, "commit")?;
    // What is asked for must fit; more comes only as far as it does.
    for (mode, threads) in MODES.iter().flat_map(|m| options.threads.iter().map(move |t| (m, t))) {
        product(&[options.commits, *threads as u64, mode.each_bytes(options.bytes)])?;
    }
    let room = experiment.room_bytes()?;
    let run_bytes = run_bytes(options, room);
    let (beside, alone) = beside(options, run_bytes)?;
    let places: Vec<&Experiment> = std::iter::once(&experiment).chain(&beside).collect();
    let mut cases = Vec::new();
    for place in &places {
        add_cases(&mut cases, options, place, room);
    }
    let runs = (places.len() * experiment.rounds()) as u64;
    let other_memory = if beside.as_ref().is_some_and(Experiment::is_on_memory) { run_bytes } else { 0 };
    let memory_bytes = memory_bytes(options, room, cases.len()).saturating_add(other_memory);
    let needs = needs(options, room, runs, memory_bytes);
    experiment.plan(cases.len(), Needs { space_bytes: run_bytes, ..needs })?;
    let rows = experiment.run(&mut cases);
    Ok(Report {
        command: "commit",
        options: experiment.options(
            json!({ "threads": options.threads, "commits": options.commits, "bytes": options.bytes,
                "min_time_s": options.min_time.as_secs_f64(),
                "beside": options.beside.display().to_string() }),
        ),
        machine: doctor::machine(&options.common.dir),
        params: vec!["on", "threads", "commit"],
        shown: vec![
            ("per_second", "a second"),
            ("median_us", "median us"),
            ("real_s", "s"),
            ("log_syncs", "log syncs"),
            ("coordinator_syncs", "coordinator's"),
            ("led", "led"),
            ("followed", "followed"),
            ("group", "in a group"),
            ("log_bytes", "log bytes each"),
        ],
        shown_counts: vec![("asked", "syncs asked for")],
        relative: Some("per_second"),
        null_difference: null_difference(&rows, "per_second"),
        rows,
        notes: alone.into_iter().chain(NOTES.map(str::to_owned)).collect(),
        waited: experiment.waited(),
        ..Report::default()
    })
}

/// What a reader of the table must know.
const NOTES: [&str; 4] = [
    "Percent is of one sync per commit. 'led' and 'followed' count waits for the log that wrote for others and that \
     others wrote for; 'in a group' is how many transactions a coordinator's sync, or else a log sync, served.",
    "'one sync per commit' has the log for itself from its record to its sync, on the same file. 'engine's sessions' \
     insert a row and commit it; with '2pc' they prepare, and the coordinator decides them as the server's binlog does \
     (sync_binlog 1, and 0).",
    "Groups: 'commits' and 'prepares' waited for one sync of the engine's log, by the engine's own count; \
     'coordinator' is exact.",
    "2pc, prepare synced: what MariaDB asks of an engine. 2pc, prepares synced by the group: as MySQL does it.",
];

/// Refuses what cannot be.
fn check(options: &Options) -> Result<()> {
    if options.threads.iter().any(|t| *t == 0 || *t > 512) {
        return Err(LabError::Invalid("--threads must be between 1 and 512".into()));
    }
    if options.commits == 0 || options.bytes == 0 || options.bytes > 1 << 20 {
        return Err(LabError::Invalid("--commits must be at least 1, --bytes between 1 and 1M".into()));
    }
    options.common.without_cache()
}

/// Every number of threads in every mode, in one place. Percent is of the first mode.
fn add_cases(cases: &mut Vec<Case<'_>>, options: &Options, place: &Experiment, room: u64) {
    let on = doctor::file_system(&place.common().dir);
    for &threads in &options.threads {
        let base = cases.len();
        for mode in MODES {
            let folder = place.folder().join(format!("log-{threads}"));
            let most = most(options, room, &mode, threads);
            let mut repetitions = Repetitions::new(options.commits, most, options.min_time);
            let job = Job { mode, threads, bytes: options.bytes, folder };
            let params = vec![on.clone(), threads.to_string(), mode.name.into()];
            let work = Box::new(move |experiment: &Experiment| repetitions.run(|commits| job.run(experiment, commits)));
            cases.push(Case { params, base: Some(base), work });
        }
    }
}

/// Bytes of both logs in a run, unless more transactions are asked for, or there is no space.
const MOST_BYTES: u64 = 256 << 20;
/// What a run's files take besides.
const FEW_BYTES: u64 = 16 << 20;

/// Transactions of a thread in a run, at the most, with room for so many bytes.
fn most(options: &Options, room: u64, mode: &Mode, threads: usize) -> u64 {
    let more = MOST_BYTES.min(room.saturating_sub(FEW_BYTES)) / mode.each_bytes(options.bytes) / threads as u64;
    if options.min_time.is_zero() {
        options.commits
    } else {
        more.max(options.commits)
    }
}

/// Space that a run takes at the most: both logs, and some.
fn run_bytes(options: &Options, room: u64) -> u64 {
    let of = |mode: &Mode| {
        let of = |t: &usize| most(options, room, mode, *t) * *t as u64 * mode.each_bytes(options.bytes);
        options.threads.iter().map(of).max().unwrap_or(0)
    };
    MODES.iter().map(of).max().unwrap_or(0) + FEW_BYTES
}

/// The log's buffer, a stack and a record a thread, and all times.
fn memory_bytes(options: &Options, room: u64, cases: usize) -> u64 {
    let threads = options.threads.iter().max().copied().unwrap_or(0) as u64;
    let of = |m: &Mode| options.threads.iter().map(|t| most(options, room, m, *t) * *t as u64).max().unwrap_or(0);
    let events = MODES.iter().map(of).max().unwrap_or(0);
    let rows = cases + cases / MODES.len();
    FEW_BYTES + threads * ((64 << 10) + options.bytes as u64) + times::memory_bytes(rows, events)
}

/// What so many runs of each mode and number of threads write: the log is filled with zeros first.
fn needs(options: &Options, room: u64, runs: u64, memory_bytes: u64) -> Needs {
    let all = || MODES.iter().flat_map(|m| options.threads.iter().map(move |t| (m, *t)));
    let sum = |of: &dyn Fn(&Mode, usize) -> u64| {
        all().fold(0u64, |sum, (m, t)| sum.saturating_add(of(m, t).saturating_mul(t as u64))).saturating_mul(runs)
    };
    let bytes = |m: &Mode, count: u64| 2 * count * m.each_bytes(options.bytes);
    Needs {
        written_bytes: sum(&|m, _| bytes(m, options.commits)),
        written_at_most: sum(&|m, t| bytes(m, most(options, room, m, t))),
        barriers: sum(&|_, _| options.commits),
        memory_bytes,
        seconds: (runs * all().count() as u64) as f64 * options.min_time.as_secs_f64(),
        less: "--commits or --bytes",
        ..Needs::default()
    }
}

/// A folder of the lab's own in the other place, with room for so many bytes; where there is none, why not. What is only
/// the default must not refuse the run.
fn beside(options: &Options, run_bytes: u64) -> Result<(Option<Experiment>, Option<String>)> {
    let (dir, other) = (&options.common.dir, &options.beside);
    if other.as_os_str() == "none" {
        return Ok((None, None));
    }
    let name = other.display();
    if doctor::device(other) == doctor::device(dir) {
        return Ok((None, Some(format!("Nothing is compared with {name}: it is the same file system."))));
    }
    if name.to_string() != "/dev/shm" && !PosixDisk::new().exists(other)? {
        let words = format!("there is no folder {name}: --beside takes one that is there, or 'none'");
        return Err(LabError::Invalid(words));
    }
    let common = CommonOptions { dir: other.clone(), ..options.common.clone() };
    let experiment = Experiment::begin(&common, "commit").and_then(|experiment| {
        let (need, free) = (size_text(run_bytes), experiment.free_bytes()?);
        // All other memory that a run takes is little.
        let memory = if experiment.is_on_memory() { most_memory(&common).unwrap_or(u64::MAX) } else { u64::MAX };
        if free < run_bytes {
            return Err(LabError::Space(format!("{name} has less than {need} to spare")));
        }
        match memory < run_bytes.saturating_add(run_bytes / 4) {
            true => Err(LabError::Space(format!("{name} is memory, of which {need} are too much here"))),
            false => Ok(experiment),
        }
    });
    match experiment {
        Ok(experiment) => Ok((Some(experiment), None)),
        Err(e) if other.as_os_str() == "/dev/shm" => {
            Ok((None, Some(format!("Nothing is compared with {name} (--beside): {e}."))))
        }
        Err(e) => Err(e),
    }
}
