//! `esker lab commit`: how commits of many threads share barriers, alone and together with a coordinator's log (the
//! server's binlog).
//!
//! Every transaction writes `--bytes` of redo. Alone it commits by one record. In two phases it prepares, then joins the
//! coordinator's queue; whoever leads that queue writes and syncs the coordinator's log for all in it, and gives each its
//! commit record in that order. What differs is who makes the engine's log durable, and when. Beside them, the engine
//! itself: its sessions insert a row each and commit it.

mod engine;

use crate::clock::{caught, least_time, steady_rate, together, Enough, Event, Watch};
use crate::details::Details;
use crate::doctor;
use crate::error::{LabError, Result};
use crate::probe::raw::{Barrier, RawFile, RawOptions};
use crate::report::{null_difference, Report};
use crate::session::{count, most_memory, product, remove_all, size_text, Case, Common, Needs, Sample, Session};
use crate::times::{self, is_told, Times};
use clap::Args;
use engine::Rows;
use esker_base::counters::{global_total, Counter};
use esker_io::{Disk, PosixDisk};
use esker_wal::{Committer, FlushMode, Wal, WalError, WalOptions};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Bytes of a decision, and of an entry in the coordinator's log besides the redo.
const DECISION_BYTES: usize = 16;

/// Options of the command.
#[derive(Debug, Clone, Args)]
pub struct Options {
    #[command(flatten)]
    common: Common,
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
    #[arg(long, value_name = "BYTES", default_value_t = 200)]
    bytes: usize,
    /// Another folder, on memory say, to compare with; 'none': only --dir
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    beside: PathBuf,
}

impl Options {
    pub(crate) fn common(&self) -> &Common {
        &self.common
    }
}

/// Who syncs what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mode {
    name: &'static str,
    /// With a coordinator.
    two_phases: bool,
    /// Through the engine's sessions, not by its log alone.
    engine: bool,
    /// A transaction has the log for itself from its record to its sync: as if there were no groups, on the same file.
    alone: bool,
    /// A prepared transaction is durable before it queues.
    prepare_sync: bool,
    /// The coordinator's log is synced before its transactions commit.
    coordinator_sync: bool,
    /// The queue's leader makes all prepared transactions durable at once, before the coordinator's log.
    group_prepare: bool,
    /// The commit record is durable before the commit is acknowledged.
    commit_sync: bool,
}

const ALONE: Mode = Mode {
    name: "group commit",
    two_phases: false,
    engine: false,
    alone: false,
    coordinator_sync: true,
    prepare_sync: false,
    group_prepare: false,
    commit_sync: true,
};
const TWO: Mode = Mode { name: "2pc, no sync of the engine's", two_phases: true, commit_sync: false, ..ALONE };

const MODES: [Mode; 12] = [
    Mode { name: "one sync per commit", alone: true, ..ALONE },
    ALONE,
    Mode { name: "no sync", commit_sync: false, ..ALONE },
    Mode { name: "2pc, prepare synced", prepare_sync: true, ..TWO },
    Mode { name: "2pc, commit synced", commit_sync: true, ..TWO },
    Mode { name: "2pc, prepare and commit synced", prepare_sync: true, commit_sync: true, ..TWO },
    Mode { name: "2pc, prepares synced by the group", group_prepare: true, ..TWO },
    TWO,
    Mode {
        name: "2pc, coordinator not synced, prepare and commit synced",
        coordinator_sync: false,
        prepare_sync: true,
        commit_sync: true,
        ..TWO
    },
    Mode { name: "2pc, nothing synced", coordinator_sync: false, ..TWO },
    Mode { name: "engine's sessions", engine: true, ..ALONE },
    Mode { name: "engine's sessions, no sync", engine: true, commit_sync: false, ..ALONE },
];

/// Measures.
///
/// # Errors
/// Wrong options, no space, no folder.
pub fn run(options: &Options) -> Result<Report> {
    if options.threads.iter().any(|t| *t == 0 || *t > 512) {
        return Err(LabError::Invalid("--threads must be between 1 and 512".into()));
    }
    if options.commits == 0 || options.bytes == 0 || options.bytes > 1 << 20 {
        return Err(LabError::Invalid("--commits must be at least 1, --bytes between 1 and 1M".into()));
    }
    options.common.without_cache()?;
    let mut session = Session::begin(&options.common, "commit")?;
    // What is asked for must fit; more comes only as far as it does.
    for (mode, threads) in MODES.iter().flat_map(|m| options.threads.iter().map(move |t| (m, t))) {
        product(&[options.commits, *threads as u64, mode.each_bytes(options.bytes)])?;
    }
    let room = session.room_bytes()?;
    let run_bytes = run_bytes(options, room);
    let (beside, alone) = beside(options, run_bytes)?;
    let places = [Some(&session), beside.as_ref()];
    let places: Vec<(String, PathBuf)> =
        places.into_iter().flatten().map(|s| (doctor::file_system(&s.common().dir), s.folder().to_owned())).collect();
    let mut cases = Vec::new();
    for (on, folder) in &places {
        for &threads in &options.threads {
            let base = cases.len();
            for mode in MODES {
                let folder = folder.join(format!("log-{threads}"));
                let mut enough = Enough::new(options.commits, most(options, room, &mode, threads), options.min_time);
                let job = Job { mode, threads, bytes: options.bytes, folder };
                let params = vec![on.clone(), threads.to_string(), mode.name.into()];
                let work = Box::new(move |session: &Session| enough.run(|commits| job.run(session, commits)));
                cases.push(Case { params, base: Some(base), work });
            }
        }
    }
    let other_memory = if beside.as_ref().is_some_and(Session::is_on_memory) { run_bytes } else { 0 };
    let memory_bytes = memory_bytes(options, room, cases.len()).saturating_add(other_memory);
    let needs = needs(options, room, places.len() as u64 * session.rounds() as u64, memory_bytes);
    session.plan(cases.len(), Needs { space_bytes: run_bytes, ..needs })?;
    let rows = session.run(&mut cases);
    Ok(Report {
        command: "commit",
        options: session
            .options(json!({ "threads": options.threads, "commits": options.commits, "bytes": options.bytes,
                "min_time_s": options.min_time.as_secs_f64(),
                "beside": options.beside.display().to_string() })),
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
        notes: alone.into_iter().chain([
            "Percent is of one sync per commit. 'led' and 'followed' count waits for the log that wrote for others and that \
             others wrote for; 'in a group' is how many transactions a coordinator's sync, or else a log sync, served."
                .into(),
            "'one sync per commit' has the log for itself from its record to its sync, on the same file. 'engine's sessions' \
             insert a row and commit it.".into(),
            "2pc, prepare synced: what MariaDB asks of an engine. 2pc, prepares synced by the group: as MySQL does it.".into(),
        ]).collect(),
    })
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

impl Mode {
    /// What a transaction takes of both logs at the most; the engine makes a segment ahead, and writes rows to files.
    fn each_bytes(&self, bytes: usize) -> u64 {
        if self.engine {
            return 3 * self.commit_bytes(bytes) + bytes as u64;
        }
        self.commit_bytes(bytes) + bytes as u64
    }

    /// What a transaction takes of the engine's log at the most: frames, and padding where it is synced.
    fn commit_bytes(&self, bytes: usize) -> u64 {
        let frame = |bytes: usize| bytes as u64 + 128;
        let all = frame(bytes) + if self.two_phases { frame(DECISION_BYTES) } else { 0 };
        let synced = self.alone || self.prepare_sync || self.group_prepare || self.commit_sync;
        all + if synced { 2 * esker_wal::SECTOR_BYTES } else { 0 }
    }
}

/// A folder of the lab's own in the other place, with room for so many bytes; where there is none, why not. What is only
/// the default must not refuse the run.
fn beside(options: &Options, run_bytes: u64) -> Result<(Option<Session>, Option<String>)> {
    let (dir, other) = (&options.common.dir, &options.beside);
    if other.as_os_str() == "none" {
        return Ok((None, None));
    }
    let name = other.display();
    if doctor::device(other) == doctor::device(dir) {
        return Ok((None, Some(format!("Nothing is compared with {name}: it is the same file system."))));
    }
    let common = Common { dir: other.clone(), ..options.common.clone() };
    let session = Session::begin(&common, "commit").and_then(|session| {
        let (need, free) = (size_text(run_bytes), session.free_bytes()?);
        // All other memory that a run takes is little.
        let memory = if session.is_on_memory() { most_memory(&common).unwrap_or(u64::MAX) } else { u64::MAX };
        if free < run_bytes {
            return Err(LabError::Space(format!("{name} has less than {need} to spare")));
        }
        match memory < run_bytes.saturating_add(run_bytes / 4) {
            true => Err(LabError::Space(format!("{name} is memory, of which {need} are too much here"))),
            false => Ok(session),
        }
    });
    match session {
        Ok(session) => Ok((Some(session), None)),
        Err(e) if other.as_os_str() == "/dev/shm" => {
            Ok((None, Some(format!("Nothing is compared with {name} (--beside): {e}."))))
        }
        Err(e) => Err(e),
    }
}

/// Space for what a log begins with.
const LOG_HEAD: u64 = 64 << 10;

/// What the engine's log counts.
const FIGURES: [Counter; 5] =
    [Counter::SyncsWal, Counter::WalSyncs, Counter::WalSyncRequests, Counter::WalBytes, Counter::WalSegmentsCreated];

struct Job {
    folder: PathBuf,
    mode: Mode,
    threads: usize,
    bytes: usize,
}

/// The engine's log.
struct Log {
    wal: Wal,
    /// Who holds it has the log for itself.
    turn: Mutex<()>,
}

impl Log {
    /// With space for so many bytes: full of zeros and synced, as the engine's segments are, so that no file is made or
    /// lengthened while the clock runs.
    fn open(folder: &Path, bytes: u64) -> Result<Log> {
        let disk: Arc<dyn Disk> = Arc::new(PosixDisk::new());
        let options = WalOptions { create: true, segment_bytes: bytes, ..WalOptions::default() };
        let from = esker_format::Lsn(esker_wal::SECTOR_BYTES);
        let wal = Wal::open::<WalError>(disk, folder, options, from, &mut |_, _| Ok(()), &mut |_, _| {});
        Ok(Log { wal: wal.map_err(wal_failed)?, turn: Mutex::default() })
    }

    /// Adds a record; the position that must be durable for it.
    fn append(&self, record: &[u8]) -> Result<u64> {
        Ok(self.wal.append(record).map_err(wal_failed)?.end.0)
    }

    fn sync(&self, who: Committer, position: u64, counts: &Counts) -> Result<()> {
        counts.asked.fetch_add(1, Ordering::Relaxed);
        self.wal.finish(FlushMode::EveryCommit, who, esker_format::Lsn(position)).map_err(wal_failed)
    }
}

fn wal_failed(e: WalError) -> LabError {
    LabError::Failed(e.to_string())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Default)]
struct Counts {
    asked: AtomicU64,
    coordinator_syncs: AtomicU64,
    /// Sizes of the coordinator's groups.
    groups: Mutex<Vec<u32>>,
}

/// The other log of a two-phase commit, with a queue as the server's binlog has it.
struct Coordinator {
    file: RawFile,
    queue: Mutex<Queue>,
    done: Condvar,
}

#[derive(Default)]
struct Queue {
    /// Transactions that wait: prepared up to which position of the engine's log.
    waiting: Vec<u64>,
    /// So many have entered, and so many are done.
    entered: u64,
    finished: u64,
    leading: bool,
    position: u64,
    /// Where the last finished group's commit records end.
    committed: u64,
    failure: Option<LabError>,
}

impl Coordinator {
    /// Commits a prepared transaction; where its commit record ends in the engine's log.
    fn commit(&self, job: &Job, log: &Log, counts: &Counts, prepared: u64) -> Result<u64> {
        let mut queue = lock(&self.queue);
        queue.waiting.push(prepared);
        queue.entered += 1;
        let mine = queue.entered;
        loop {
            if let Some(failure) = &queue.failure {
                return Err(failure.clone());
            }
            if queue.finished >= mine {
                return Ok(queue.committed);
            }
            if queue.leading {
                queue = self.done.wait(queue).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            queue.leading = true;
            let group = std::mem::take(&mut queue.waiting);
            let position = queue.position;
            drop(queue);
            // The others wait: whatever becomes of the leader, they must hear of it.
            let result = caught(|| self.lead(job, log, counts, &group, position));
            queue = lock(&self.queue);
            queue.leading = false;
            queue.finished += group.len() as u64;
            match result {
                Ok((position, committed)) => (queue.position, queue.committed) = (position, committed),
                Err(e) => queue.failure = Some(e),
            }
            self.done.notify_all();
        }
    }

    fn lead(&self, job: &Job, log: &Log, counts: &Counts, group: &[u64], position: u64) -> Result<(u64, u64)> {
        if job.mode.group_prepare {
            log.sync(Committer::No, group.iter().copied().max().unwrap_or(0), counts)?;
        }
        let entries = vec![0xB1; group.len() * (job.bytes + DECISION_BYTES)];
        self.file.write_at(&entries, position)?;
        lock(&counts.groups).push(group.len() as u32);
        if job.mode.coordinator_sync {
            self.file.sync(Barrier::Fdatasync)?;
            counts.coordinator_syncs.fetch_add(1, Ordering::Relaxed);
        }
        let mut committed = 0;
        for _ in group {
            committed = log.append(&[0xC0; DECISION_BYTES])?;
        }
        if !job.mode.commit_sync {
            group.iter().for_each(|_| log.wal.ended(Committer::Prepares));
        }
        Ok((position + entries.len() as u64, committed))
    }
}

impl Job {
    fn run(&self, session: &Session, commits: u64) -> Result<(Sample, Duration)> {
        let result = self.run_in(session, &self.folder, commits);
        remove_all(&self.folder);
        result
    }

    fn run_in(&self, session: &Session, folder: &Path, commits: u64) -> Result<(Sample, Duration)> {
        PosixDisk::new().create_dir(folder)?;
        let log_bytes = commits * self.threads as u64 * self.mode.commit_bytes(self.bytes) + LOG_HEAD;
        if self.mode.engine {
            let rows = Rows::open(folder, self.mode.commit_sync, self.bytes, log_bytes)?;
            let result = self.run_engine(session, &rows, commits);
            return rows.close().and(result);
        }
        let log = Log::open(folder, log_bytes)?;
        let path: PathBuf = folder.join("coordinator");
        let file = RawFile::open(&path, RawOptions { create: true, ..RawOptions::default() })?;
        let coordinator = Coordinator { file, queue: Mutex::default(), done: Condvar::new() };
        let counts = Counts::default();
        let jobs = vec![(); self.threads];
        self.timed(session, jobs, commits, &counts, &|()| self.transaction(&log, &coordinator, &counts))
    }

    /// The same through the engine; all rows must be there at the end.
    fn run_engine(&self, session: &Session, rows: &Rows, commits: u64) -> Result<(Sample, Duration)> {
        let sessions: Vec<esker::Session> = (0..self.threads).map(|_| rows.session()).collect();
        let counts = Counts::default();
        let (mut sample, took) = self.timed(session, sessions, commits, &counts, &|session| rows.commit(session))?;
        let (found, wanted) = (rows.count()?, commits * self.threads as u64);
        if found != wanted {
            sample.wrong = Some(format!("{found} rows are there, {wanted} were committed"));
        }
        Ok((sample, took))
    }

    /// Each thread commits so often: the figures, and how long it took.
    fn timed<J: Send>(
        &self,
        session: &Session,
        jobs: Vec<J>,
        commits: u64,
        counts: &Counts,
        commit: &(impl Fn(&mut J) -> Result<()> + Sync),
    ) -> Result<(Sample, Duration)> {
        let figures = || FIGURES.map(global_total);
        let mut before = figures();
        let work = |job: &mut J, zero: Instant| {
            let mut watch = Watch::new(zero);
            for _ in 0..commits {
                session.check()?;
                watch.time(|| commit(job))?;
            }
            Ok(watch.events())
        };
        let (events, took): (Vec<Vec<Event>>, Duration) = together(jobs, || before = figures(), &work)?;
        let after = figures();
        let moved = std::array::from_fn(|i| (after[i] - before[i]) as f64);
        Ok((self.sample(&events, took, counts, moved), took))
    }

    fn sample(&self, events: &[Vec<Event>], took: Duration, counts: &Counts, moved: [f64; 5]) -> Sample {
        let [syncs, groups, members, bytes, segments] = moved;
        let mut times: Vec<f64> = events.iter().flatten().map(|e| e.took_ns as f64 / 1000.0).collect();
        times.sort_by(f64::total_cmp);
        let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
        let n = times.len() as f64;
        let count = |c: &AtomicU64| c.load(Ordering::Relaxed) as f64;
        let mut sizes = std::mem::take(&mut *lock(&counts.groups));
        sizes.sort_unstable();
        let shared = if self.mode.two_phases { sizes.len() as f64 } else { syncs };
        let mut sample = Sample {
            metrics: vec![
                ("per_second", "1/s", steady_rate(events)),
                ("median_us", "us", at(0.5)),
                ("real_s", "s", took.as_secs_f64()),
                ("log_syncs", "", syncs),
                ("coordinator_syncs", "", count(&counts.coordinator_syncs)),
                ("led", "", groups),
                ("followed", "", (members - groups).max(0.0)),
                ("group", "", if shared > 0.0 { n / shared } else { 0.0 }),
                ("log_bytes", "bytes", bytes / n),
                ("asked_syncs", "", count(&counts.asked)),
            ],
            details: Details { times: Times::new("commit", events), ..Details::default() },
            ..Sample::default()
        };
        if !self.mode.group_prepare && !self.mode.engine {
            sample.counts.push(("asked", counts.asked.load(Ordering::Relaxed)));
        }
        // The engine makes segments when it likes.
        let made = segments > 0.0 && !self.mode.engine;
        sample.wrong = made.then(|| format!("the log made {segments} segments while the clock ran"));
        sample.metrics.extend(is_told(times.len() as u64, 0.99).then(|| ("p99_us", "us", at(0.99))));
        if let Some(largest) = sizes.last() {
            sample.metrics.push(("group_median", "", f64::from(sizes[sizes.len() / 2])));
            sample.metrics.push(("group_largest", "", f64::from(*largest)));
        }
        sample
    }

    fn transaction(&self, log: &Log, coordinator: &Coordinator, counts: &Counts) -> Result<()> {
        let redo = vec![0x5E; self.bytes];
        let _turn = self.mode.alone.then(|| lock(&log.turn));
        let prepared = log.append(&redo)?;
        if !self.mode.two_phases {
            return if self.mode.commit_sync { log.sync(Committer::Commits, prepared, counts) } else { Ok(()) };
        }
        if self.mode.prepare_sync {
            let who = if self.mode.commit_sync { Committer::No } else { Committer::Prepares };
            log.sync(who, prepared, counts)?;
        }
        let committed = coordinator.commit(self, log, counts, prepared)?;
        if self.mode.commit_sync {
            log.sync(Committer::Commits, committed, counts)?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn who_leads_and_panics_takes_the_others_along() {
        let folder = std::env::temp_dir().join(format!("esker-lab-leader-{}", std::process::id()));
        PosixDisk::new().create_dir(&folder).unwrap();
        let make = RawOptions { create: true, ..RawOptions::default() };
        let log = Log::open(&folder, 1 << 20).unwrap();
        let file = RawFile::open(&folder.join("coordinator"), make).unwrap();
        let coordinator = Coordinator { file, queue: Mutex::default(), done: Condvar::new() };
        // No memory has room for such an entry.
        let job = Job { folder: folder.clone(), mode: TWO, threads: 3, bytes: isize::MAX as usize };
        let counts = Counts::default();
        std::thread::scope(|scope| {
            let commit = || coordinator.commit(&job, &log, &counts, 0);
            let threads: Vec<_> = (0..3).map(|_| scope.spawn(commit)).collect();
            // Who is not told waits here for ever.
            for thread in threads {
                assert!(thread.join().unwrap().unwrap_err().to_string().contains("capacity overflow"));
            }
        });
        remove_all(&folder);
    }
}
