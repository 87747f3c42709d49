//! `esker lab sync`: what a barrier costs, by the way it is asked for and by the state of the file.

use crate::clock::{least_time, steady_rate, together, Event, Repetitions, Watch};
use crate::details::Details;
use crate::doctor::{self, IMPLAUSIBLE_US};
use crate::error::{LabError, Result};
use crate::experiment::{Case, Experiment, Sample, Work};
use crate::needs::{product, Needs};
use crate::options::CommonOptions;
use crate::probe::raw::{Barrier, RawFile, RawOptions, RawQueue};
use crate::report::{null_difference, Report, Row};
use crate::times::{is_told, memory_bytes, Times};
use crate::units::{count, size, size_text};
use clap::Args;
use esker_io::{Disk, IoError, IoKind, PosixDisk};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Options of the command.
#[derive(Debug, Clone, Args)]
pub struct Options {
    #[command(flatten)]
    common: CommonOptions,
    /// Barriers of each thread in a run, at least
    #[arg(long, value_name = "N", default_value = "200", value_parser = count)]
    count: u64,
    /// A run takes so long at least, with more barriers, as far as they fit 16M; 0: as many as --count
    #[arg(long, value_name = "TIME", default_value = "0.1s", value_parser = least_time)]
    min_time: Duration,
    /// Bytes written before each barrier; several, with commas
    #[arg(long, value_name = "SIZES", default_value = "4K", value_delimiter = ',', value_parser = size)]
    sizes: Vec<u64>,
    /// Threads, each with a file of its own; several, with commas, up to 64
    #[arg(long, value_name = "N", default_value = "1", value_delimiter = ',')]
    threads: Vec<usize>,
    /// MB a second that are durable with a barrier for so many bytes each, and without any barrier, by one thread; several,
    /// with commas; 0: none
    #[arg(long, value_name = "SIZES", default_value = "16K,64K,256K,1M,4M,16M", value_delimiter = ',', value_parser = size)]
    rates: Vec<u64>,
}

impl Options {
    pub(crate) fn common(&self) -> &CommonOptions {
        &self.common
    }
}

/// How durability is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Method {
    After(Barrier),
    /// fdatasync, through a ring.
    Uring,
    OpenDsync,
    WriteDsync,
    /// None at all: the page cache takes the bytes.
    None,
}

/// How it is asked for that nothing is durable.
pub(crate) const NO_BARRIER: &str = "none";

const METHODS: [(&str, Method); 6] = [
    ("fdatasync", Method::After(Barrier::Fdatasync)),
    ("fsync", Method::After(Barrier::Fsync)),
    ("io_uring fsync", Method::Uring),
    ("O_DSYNC", Method::OpenDsync),
    ("RWF_DSYNC", Method::WriteDsync),
    ("sync_file_range", Method::After(Barrier::SyncFileRange)),
];

/// What the file is before it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FileState {
    /// Empty: every write makes it longer.
    Appended,
    /// Its space is reserved, and reads as zeros: every write turns a part of it into data.
    Reserved,
    /// Full of zeros that were written and synced: nothing but data changes.
    Zeroed,
    /// Full of what an older file of another name held, as a log's segments are used again.
    Recycled,
    /// As recycled, and the same place is written each time, as pg_test_fsync does.
    OnePlace,
    /// As recycled, and written in large pieces.
    Stream,
}

/// What [`FileState::Stream`] is called in rows: they are no choice of files or barriers, but say how fast bytes get durable.
pub(crate) const STREAM: &str = "recycled, large writes";

impl FileState {
    /// Which states take turns on one file.
    fn kind(self) -> &'static str {
        match self {
            FileState::Appended | FileState::Reserved => "fresh",
            FileState::Zeroed => "zeros",
            FileState::Recycled | FileState::OnePlace => "old",
            FileState::Stream => "stream",
        }
    }
}

const STATES: [(&str, FileState); 5] = [
    ("appended", FileState::Appended),
    ("reserved", FileState::Reserved),
    ("zero-filled", FileState::Zeroed),
    ("recycled", FileState::Recycled),
    ("one place", FileState::OnePlace),
];

/// Measures.
///
/// # Errors
/// Wrong options, no space, no folder.
pub fn run(options: &Options) -> Result<Report> {
    check(options)?;
    let mut experiment = Experiment::begin(&options.common, "sync")?;
    let room = experiment.room_bytes()? / (FILES + 1);
    let (rates, left_out) = rates(options, room);
    let mut cases = Vec::new();
    add_barriers(&mut cases, options, experiment.folder(), room);
    add_rates(&mut cases, options, experiment.folder(), room, &rates);
    let needs = needs(options, room, &rates, cases.len(), experiment.rounds() as u64)?;
    experiment.plan(cases.len(), needs)?;
    let rows = experiment.run(&mut cases);
    Ok(Report {
        command: "sync",
        options: experiment.options(json!({ "count": options.count, "sizes": options.sizes,
            "threads": options.threads, "rates": options.rates, "min_time_s": options.min_time.as_secs_f64() })),
        machine: doctor::machine(&options.common.dir),
        params: vec!["threads", "bytes", "file", "barrier"],
        shown: vec![
            ("median_us", "median us"),
            ("worst_us", "worst us"),
            ("per_second", "a second"),
            ("mb_per_second", "MB/s"),
        ],
        shown_counts: vec![("barriers", "barriers")],
        relative: Some("median_us"),
        null_difference: null_difference(&rows, "median_us"),
        notes: notes(&rows, !rates.is_empty(), left_out),
        rows,
        waited: experiment.waited(),
        ..Report::default()
    })
}

/// Refuses what cannot be.
fn check(options: &Options) -> Result<()> {
    if options.count == 0 || options.sizes.iter().any(|s| *s == 0 || *s > 64 << 20) {
        return Err(LabError::Invalid("--count and --sizes must be at least 1, sizes at most 64M".into()));
    }
    if options.rates.iter().any(|s| *s > 64 << 20) {
        return Err(LabError::Invalid("--rates must be at most 64M".into()));
    }
    if options.threads.iter().any(|t| *t == 0 || *t > 64) {
        return Err(LabError::Invalid("--threads must be between 1 and 64".into()));
    }
    options.common.without_cache()
}

/// Threads and bytes of each barrier, in the order of the rows.
fn loads(options: &Options) -> impl Iterator<Item = (usize, u64)> + '_ {
    options.threads.iter().flat_map(|&threads| options.sizes.iter().map(move |&bytes| (threads, bytes)))
}

/// Every way to ask for durability, in every state of the file. Percent is of the first.
fn add_barriers(cases: &mut Vec<Case<'_>>, options: &Options, folder: &Path, room: u64) {
    for (threads, bytes) in loads(options) {
        let base = Some(cases.len());
        for (state_name, state) in STATES {
            for (name, method) in METHODS {
                let most = most(options, room, threads, bytes);
                let repetitions = Repetitions::new(options.count, most, options.min_time);
                let job = Job { folder: folder.to_owned(), method, state, bytes };
                cases.push(Case {
                    params: params(threads, bytes, state_name, name),
                    base,
                    work: job.work(threads, repetitions),
                });
            }
        }
    }
}

/// Large writes by one thread, with barriers and without. Percent is of the same size with them.
fn add_rates(cases: &mut Vec<Case<'_>>, options: &Options, folder: &Path, room: u64, rates: &[u64]) {
    for &bytes in rates {
        let (count, most) = rate_counts(options, room, bytes);
        let base = cases.len();
        for (name, method, base) in [("fdatasync", METHODS[0].1, None), (NO_BARRIER, Method::None, Some(base))] {
            let repetitions = Repetitions::new(count, most, options.min_time);
            let job = Job { folder: folder.to_owned(), method, state: FileState::Stream, bytes };
            cases.push(Case { params: params(1, bytes, STREAM, name), base, work: job.work(1, repetitions) });
        }
    }
}

/// The values of a row's parameters.
fn params(threads: usize, bytes: u64, state: &str, barrier: &str) -> Vec<String> {
    vec![threads.to_string(), size_text(bytes), state.into(), barrier.into()]
}

/// What all runs take.
fn needs(options: &Options, room: u64, rates: &[u64], cases: usize, rounds: u64) -> Result<Needs> {
    let runs = (METHODS.len() * STATES.len()) as u64 * rounds;
    let (mut least, mut written, mut space, mut events, mut barriers) = (0u64, 0u64, 0, 0, 0u64);
    for (threads, bytes) in loads(options) {
        let (threads, count) = (threads as u64, most(options, room, threads, bytes));
        let file_bytes = product(&[bytes, count, threads, FILES])? / FILES;
        least = least.saturating_add(2 * runs * bytes.saturating_mul(options.count * threads));
        written = written.saturating_add(file_bytes.saturating_mul(2 * runs));
        barriers = barriers.saturating_add(product(&[threads, options.count, runs])?);
        space = space.max(FILES * file_bytes);
        events = events.max(threads * count);
    }
    let mut stream = 0;
    for &bytes in rates {
        let (count, most) = rate_counts(options, room, bytes);
        least = least.saturating_add(2 * rounds * bytes * count);
        written = written.saturating_add(2 * rounds * bytes * most);
        barriers = barriers.saturating_add(rounds * count);
        events = events.max(most);
        stream = stream.max(bytes * most);
    }
    let largest = |of: &[u64]| of.iter().max().copied().unwrap_or(0);
    let threads = options.threads.iter().max().copied().unwrap_or(0) as u64;
    let buffers = (largest(&options.sizes) * threads).max(largest(rates));
    // The null test is a row more for each.
    let rows = cases + options.threads.len() * options.sizes.len();
    Ok(Needs {
        written_bytes: least,
        written_at_most: written,
        space_bytes: space + stream,
        barriers,
        memory_bytes: buffers + (4 << 20) + memory_bytes(rows, events),
        seconds: rows as f64 * rounds as f64 * options.min_time.as_secs_f64(),
        less: "--count, --sizes or --threads",
        ..Needs::default()
    })
}

/// What a reader of the table must know.
fn notes(rows: &[Row], rates: bool, left_out: Option<String>) -> Vec<String> {
    let mut notes = vec![
        "Percent is of appended and fdatasync: what a log that grows with every commit pays.".to_owned(),
        "io_uring fsync has fdatasync's meaning (IORING_FSYNC_DATASYNC).".to_owned(),
        "sync_file_range flushes no device cache and no metadata: it is no barrier.".to_owned(),
    ];
    if rates {
        notes.push(format!(
            "MB/s are millions of bytes. '{STREAM}': one thread, a file that is full, a barrier after each write of so many \
             bytes; '{NO_BARRIER}': the same writes without any, which nothing makes durable. Its percent is of the same size \
             with barriers."
        ));
    }
    notes.extend(left_out);
    let barriers = rows.iter().filter(|r| !["sync_file_range", NO_BARRIER].contains(&r.params[3].as_str()));
    if barriers.filter_map(|r| r.summary("median_us")).any(|m| m.median < IMPLAUSIBLE_US) {
        notes.push(format!(
            "Some barriers took less than {IMPLAUSIBLE_US} us, less than flash needs to write: the device answers from a \
             cache. Make sure that it survives a power cut."
        ));
    }
    notes
}

/// Barriers of a thread in a run, at the most, in files of so many bytes together.
fn most(options: &Options, room: u64, threads: usize, bytes: u64) -> u64 {
    let more = MOST_BYTES.min(room) / threads as u64 / bytes;
    if options.min_time.is_zero() {
        options.count
    } else {
        more.max(options.count)
    }
}

/// Bytes of all threads in a run, unless more barriers are asked for, or there is no space.
const MOST_BYTES: u64 = 16 << 20;
/// Files of a thread: fresh, full of zeros, full of something older.
const FILES: u64 = 3;

/// Bytes of a run of large writes at the most, unless one is larger.
const RATE_BYTES: u64 = 32 << 20;
/// Bytes of its first run.
const FIRST_RATE_BYTES: u64 = 1 << 20;

/// How many writes of so many bytes a run has, at least and at most: their bytes bound it, so that the largest sizes take
/// no longer than the others.
fn rate_counts(options: &Options, room: u64, bytes: u64) -> (u64, u64) {
    let most = (RATE_BYTES.min(room) / bytes).max(1);
    match options.min_time.is_zero() {
        true => (most.min(options.count), most.min(options.count)),
        false => ((FIRST_RATE_BYTES / bytes).clamp(1, most), most),
    }
}

/// The sizes of large writes, and what is said of those that there is no room for.
fn rates(options: &Options, room: u64) -> (Vec<u64>, Option<String>) {
    let wanted = options.rates.iter().copied().filter(|bytes| *bytes > 0);
    let (fit, large): (Vec<u64>, Vec<u64>) = wanted.partition(|bytes| *bytes <= room);
    let words = large.iter().map(|bytes| size_text(*bytes)).collect::<Vec<_>>().join(", ");
    (fit, (!large.is_empty()).then(|| format!("There is no room for large writes of {words}: they are left out.")))
}

/// What a case is about.
struct Job {
    folder: PathBuf,
    method: Method,
    state: FileState,
    bytes: u64,
}

/// A thread's file, ready to be written.
struct Ready {
    file: Arc<RawFile>,
    ring: Option<RawQueue>,
}

impl Job {
    /// Measures once, by so many threads.
    fn work<'a>(self, threads: usize, mut repetitions: Repetitions) -> Work<'a> {
        Box::new(move |experiment| repetitions.run(|count| self.run(experiment, threads, count)))
    }

    fn run(&self, experiment: &Experiment, threads: usize, count: u64) -> Result<(Sample, Duration)> {
        let path = |n| self.folder.join(format!("sync-{}-{n}", self.state.kind()));
        let ready = (0..threads).map(|n| self.ready(&path(n), count)).collect::<Result<Vec<Ready>>>()?;
        let (events, took) = together(ready, || {}, &|ready, zero| self.write(experiment, ready, count, zero))?;
        let is_none = self.method == Method::None;
        if is_none {
            // Outside the clock, and not left for whatever is measured next.
            (0..threads).try_for_each(|n| RawFile::open(&path(n), RawOptions::default())?.sync(Barrier::Fsync))?;
        }
        let mut times: Vec<f64> = events.iter().flatten().map(|e| e.took_ns as f64 / 1000.0).collect();
        times.sort_by(f64::total_cmp);
        let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
        let mut metrics = vec![
            ("median_us", "us", at(0.5)),
            ("worst_us", "us", at(1.0)),
            ("per_second", "1/s", steady_rate(&events)),
            ("mb_per_second", "MB/s", steady_rate(&events) * self.bytes as f64 / 1e6),
        ];
        metrics.extend(is_told(times.len() as u64, 0.99).then(|| ("p99_us", "us", at(0.99))));
        let sample = Sample {
            metrics,
            counts: vec![("barriers", if is_none { 0 } else { times.len() as u64 })],
            details: Details {
                times: Times::new(if is_none { "write" } else { "barrier" }, &events),
                ..Details::default()
            },
            ..Sample::default()
        };
        Ok((sample, took))
    }

    fn ready(&self, path: &Path, count: u64) -> Result<Ready> {
        let file = Arc::new(self.prepare(path, self.bytes * count)?);
        let ring = match self.method {
            Method::Uring => Some(RawQueue::new(file.clone(), 1).map_err(|e| refused("io_uring", e))?),
            _ => None,
        };
        Ok(Ready { file, ring })
    }

    /// The file in its state. One that is full stays full from run to run: a file system that gets space back may be
    /// busy with that for a while.
    fn prepare(&self, path: &Path, total: u64) -> Result<RawFile> {
        let full =
            matches!(self.state, FileState::Zeroed | FileState::Recycled | FileState::OnePlace | FileState::Stream);
        let length = |path: &Path| RawFile::open(path, RawOptions::default())?.size_bytes();
        let create = !(full && PosixDisk::new().exists(path)? && length(path)? >= total);
        let file = RawFile::open(path, RawOptions { create, write: true, ..RawOptions::default() })?;
        match self.state {
            FileState::Appended => {}
            FileState::Reserved => {
                let refused = |e: IoError| refused("fallocate", e);
                file.allocate(total, false).map_err(refused)?;
            }
            FileState::Zeroed => fill(&file, 0, total)?,
            FileState::Recycled | FileState::OnePlace | FileState::Stream => {
                if create {
                    fill(&file, 0xA5, total)?;
                    file.sync(Barrier::Fsync)?;
                }
                let older = path.with_extension("older");
                PosixDisk::new().rename(path, &older)?;
                PosixDisk::new().rename(&older, path)?;
                PosixDisk::new().sync_dir(&self.folder)?;
            }
        }
        file.sync(Barrier::Fsync)?;
        match self.method {
            Method::OpenDsync => {
                let options = RawOptions { write: true, data_sync: true, ..RawOptions::default() };
                Ok(RawFile::open(path, options)?)
            }
            _ => Ok(file),
        }
    }

    /// Each write with its barrier.
    fn write(&self, experiment: &Experiment, ready: &mut Ready, count: u64, zero: Instant) -> Result<Vec<Event>> {
        let Ready { file, ring } = ready;
        let (data, mut watch) = (vec![0x5A; self.bytes as usize], Watch::new(zero));
        for n in 0..count {
            experiment.check()?;
            let offset = if self.state == FileState::OnePlace { 0 } else { n * self.bytes };
            watch.time(|| {
                match self.method {
                    Method::After(barrier) => {
                        file.write_at(&data, offset)?;
                        file.sync(barrier)?;
                    }
                    Method::Uring => {
                        file.write_at(&data, offset)?;
                        ring.as_mut().map_or(Ok(()), |ring| ring.barrier(true))?;
                    }
                    Method::OpenDsync | Method::None => file.write_at(&data, offset)?,
                    Method::WriteDsync => file.write_at_durably(&data, offset).map_err(|e| refused("RWF_DSYNC", e))?,
                }
                Ok(())
            })?;
        }
        Ok(watch.events())
    }
}

/// What kernel or file system do not know is unsupported; a full disk is not that.
fn refused(what: &str, e: IoError) -> LabError {
    match e.kind {
        IoKind::DiskFull => LabError::Io(e),
        _ => LabError::Unsupported(format!("{what}: {}", e.message)),
    }
}

/// Writes a byte all over the first `total` bytes of a file.
fn fill(file: &RawFile, byte: u8, total: u64) -> Result<()> {
    // In pieces as the engine's: of larger ones the page cache makes larger folios, whose barriers take longer.
    let data = vec![byte; 64 << 10];
    let mut at = 0;
    while at < total {
        let n = data.len().min((total - at) as usize);
        file.write_at(&data[..n], at)?;
        at += n as u64;
    }
    Ok(())
}
