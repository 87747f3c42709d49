//! A case at work: threads that commit, each so often, and what came of it.

use super::coordinator::Coordinator;
use super::engine::Rows;
use super::log::Log;
use super::mode::{Mode, DECISION_BYTES};
use crate::clock::{steady_rate, together, Event, Watch};
use crate::details::Details;
use crate::error::Result;
use crate::experiment::{remove_all, Experiment, Sample};
use crate::sizes::Sizes;
use crate::times::{is_told, Times};
use esker_base::counters::{global_total, Counter};
use esker_base::phase::{figures, CommitPhase};
use esker_io::{Disk, PosixDisk};
use esker_wal::{COMMIT_GROUPS, PREPARE_GROUPS};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Space for what a log begins with.
const LOG_HEAD: u64 = 64 << 10;

/// What the engine's log counts.
const FIGURES: [Counter; 5] =
    [Counter::SyncsWal, Counter::WalSyncs, Counter::WalSyncRequests, Counter::WalBytes, Counter::WalSegmentsCreated];

/// What a run counts by itself.
#[derive(Default)]
pub(super) struct Counts {
    /// Syncs of the engine's log that transactions asked for.
    pub(super) asked: AtomicU64,
    pub(super) coordinator_syncs: AtomicU64,
    /// Sizes of the coordinator's groups.
    groups: Mutex<Vec<u32>>,
}

impl Counts {
    /// The coordinator had a group of so many.
    pub(super) fn grouped(&self, size: usize) {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner).push(size as u32);
    }

    /// The groups so far, in their order.
    pub(super) fn groups(&self) -> Vec<u32> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// What the engine counts while the clock runs.
struct EngineCounts {
    figures: [f64; 5],
    /// Groups of those who waited for a sync of its log, in order to commit and in order to prepare.
    groups: [Sizes; 2],
}

/// A case.
pub(super) struct Job {
    pub(super) folder: PathBuf,
    pub(super) mode: Mode,
    pub(super) threads: usize,
    /// Of a transaction's redo, or of its row.
    pub(super) bytes: usize,
}

impl Job {
    /// Each thread commits so often: the figures, and how long it took.
    ///
    /// # Errors
    /// What the engine or the operating system say; `Stopped`.
    pub(super) fn run(&self, experiment: &Experiment, commits: u64) -> Result<(Sample, Duration)> {
        let result = self.run_in(experiment, &self.folder, commits);
        remove_all(&self.folder);
        result
    }

    fn run_in(&self, experiment: &Experiment, folder: &Path, commits: u64) -> Result<(Sample, Duration)> {
        PosixDisk::new().create_dir(folder)?;
        let (mode, bytes, counts) = (self.mode, self.bytes, Counts::default());
        let log_bytes = commits * self.threads as u64 * mode.commit_bytes(bytes) + LOG_HEAD;
        let (path, entry) = (folder.join("coordinator"), bytes + DECISION_BYTES);
        let (mut sample, took, written) = if mode.engine {
            let rows = Rows::open(folder, mode, bytes, log_bytes)?;
            let coordinator = Coordinator::open(&path, entry, mode.coordinator_sync, &counts)?;
            let result = self.run_engine(experiment, &rows, &coordinator, commits, &counts);
            let (sample, took) = rows.close().and(result)?;
            (sample, took, coordinator.written()?)
        } else {
            let log = Log::open(folder, mode, bytes, log_bytes, &counts)?;
            let coordinator = Coordinator::open(&path, entry, mode.coordinator_sync, &counts)?;
            let jobs = vec![(); self.threads];
            let (sample, took) = self.timed(experiment, jobs, commits, &counts, &|()| log.transaction(&coordinator))?;
            (sample, took, coordinator.written()?)
        };
        let wanted = if mode.two_phases { commits * self.threads as u64 * entry as u64 } else { 0 };
        if written != wanted {
            sample.wrong = Some(format!("the coordinator's log has {written} bytes, not {wanted}"));
        }
        Ok((sample, took))
    }

    /// Through the engine; all rows must be there at the end, and nothing undecided.
    fn run_engine(
        &self,
        experiment: &Experiment,
        rows: &Rows,
        coordinator: &Coordinator<'_, super::engine::Client>,
        commits: u64,
        counts: &Counts,
    ) -> Result<(Sample, Duration)> {
        let clients = (0..self.threads).map(|n| rows.client(n as u64)).collect();
        let decided = || figures(CommitPhase::Ordered).count;
        let before = decided();
        let (mut sample, took) =
            self.timed(experiment, clients, commits, counts, &|client| rows.transaction(client, coordinator))?;
        let (found, wanted) = (rows.count()?, commits * self.threads as u64);
        let (undecided, decided) = (rows.undecided(), decided() - before);
        if found != wanted || undecided > 0 {
            sample.wrong = Some(format!("{found} rows are there and {undecided} undecided, {wanted} were committed"));
        } else if decided != if self.mode.two_phases { wanted } else { 0 } {
            sample.wrong = Some(format!("the coordinator decided {decided} of {wanted} transactions"));
        }
        Ok((sample, took))
    }

    /// Each thread commits so often.
    fn timed<J: Send>(
        &self,
        experiment: &Experiment,
        jobs: Vec<J>,
        commits: u64,
        counts: &Counts,
        commit: &(impl Fn(&mut J) -> Result<()> + Sync),
    ) -> Result<(Sample, Duration)> {
        let look = || (FIGURES.map(global_total), [&COMMIT_GROUPS, &PREPARE_GROUPS].map(|g| g.snapshot()));
        let mut before = look();
        let work = |job: &mut J, zero: Instant| {
            let mut watch = Watch::new(zero);
            for _ in 0..commits {
                experiment.check()?;
                watch.time(|| commit(job))?;
            }
            Ok(watch.events())
        };
        let (events, took): (Vec<Vec<Event>>, Duration) = together(jobs, || before = look(), &work)?;
        let after = look();
        let engine = EngineCounts {
            figures: std::array::from_fn(|i| (after.0[i] - before.0[i]) as f64),
            groups: std::array::from_fn(|i| Sizes::of_groups(&after.1[i].since(&before.1[i]))),
        };
        Ok((self.sample(&events, took, counts, engine), took))
    }

    fn sample(&self, events: &[Vec<Event>], took: Duration, counts: &Counts, engine: EngineCounts) -> Sample {
        let [syncs, groups, members, bytes, segments] = engine.figures;
        let mut times: Vec<f64> = events.iter().flatten().map(|e| e.took_ns as f64 / 1000.0).collect();
        times.sort_by(f64::total_cmp);
        let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
        let n = times.len() as f64;
        let count = |c: &AtomicU64| c.load(Ordering::Relaxed) as f64;
        let mut sizes = counts.groups();
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
        let [commits, prepares] = engine.groups;
        let all = [("commits", commits), ("prepares", prepares), ("coordinator", Sizes::exact(&sizes))];
        sample.details.sizes.extend(all.into_iter().filter(|(_, sizes)| sizes.count() > 0));
        sample
    }
}
