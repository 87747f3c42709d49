//! `esker lab locks`: the engine's lock type under threads: how often it was taken already, and how long waiting, holding
//! and letting go took, the releasing thread's share (waking another) included; and the stacks of waiters and holders.

use crate::clock::together;
use crate::details::Details;
use crate::doctor;
use crate::error::{LabError, Result};
use crate::experiment::{Case, Experiment, Sample};
use crate::needs::{product, Needs};
use crate::options::CommonOptions;
use crate::report::{null_difference, Report, Row};
use crate::times::is_told;
use clap::Args;
use esker_base::lock::{self, order, Mutex, Site, SiteReport};
use serde_json::json;
use std::time::Instant;

/// Of the lock that is measured.
static SITE: &Site = &order::LAB;
/// Work of odd threads is so many times that of even ones.
const LONG: u32 = 8;

/// Options of the command.
#[derive(Debug, Clone, Args)]
pub struct Options {
    #[command(flatten)]
    common: CommonOptions,
    /// Threads; several, with commas, up to 512
    #[arg(long, value_name = "N", default_value = "1,2,4,16", value_delimiter = ',')]
    threads: Vec<usize>,
    /// Times that each thread takes the lock
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    count: u64,
    /// Steps of work under the lock, about a nanosecond each, eight times as many for every other thread; as many follow
    /// without it
    #[arg(long, value_name = "N", default_value_t = 100)]
    work: u32,
    /// Samples the stacks of one in so many waiters, and of who held the lock, in a row of its own; 0: no such row
    #[arg(long, value_name = "N", default_value_t = 10)]
    stacks: u32,
}

impl Options {
    pub(crate) fn common(&self) -> &CommonOptions {
        &self.common
    }
}

/// What is switched on while a row is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Timing {
    /// Counted always; holding and releasing are timed of one lock in 64.
    Off,
    /// Every lock is timed.
    On,
    /// Also, the stacks of one in so many waiters are sampled.
    Stacks(u32),
}

impl Timing {
    fn name(self) -> &'static str {
        match self {
            Timing::Off => "off",
            Timing::On => "on",
            Timing::Stacks(_) => "stacks",
        }
    }

    fn begin(self) {
        if let Timing::Stacks(every) = self {
            lock::sample_stacks(every);
        }
        lock::profile(self != Timing::Off);
    }

    fn end() {
        lock::profile(false);
        lock::sample_stacks(0);
    }
}

/// Measures.
///
/// # Errors
/// Wrong options, no folder.
pub fn run(options: &Options) -> Result<Report> {
    if options.count == 0 || options.threads.iter().any(|t| *t == 0 || *t > 512) {
        return Err(LabError::Invalid("--count must be at least 1, --threads between 1 and 512".into()));
    }
    for threads in &options.threads {
        product(&[options.count, *threads as u64])?;
    }
    options.common.without_cache()?;
    let mut experiment = Experiment::begin(&options.common, "locks")?;
    let timings: Vec<Timing> = [Timing::Off, Timing::On, Timing::Stacks(options.stacks)]
        .into_iter()
        .filter(|t| *t != Timing::Stacks(0))
        .collect();
    let mut cases = Vec::new();
    for &threads in &options.threads {
        let base = cases.len();
        for &timing in &timings {
            let (count, steps) = (options.count, options.work);
            let work = Box::new(move |experiment: &Experiment| measure(experiment, threads, count, steps, timing));
            cases.push(Case { params: vec![threads.to_string(), timing.name().to_owned()], base: Some(base), work });
        }
    }
    // What each thread's stack has in use, and what is counted.
    let threads = options.threads.iter().max().copied().unwrap_or(0) as u64;
    experiment.plan(cases.len(), Needs { memory_bytes: (4 << 20) + threads * (64 << 10), ..Needs::default() })?;
    let mut rows = experiment.run(&mut cases);
    name_the_most_contended(&mut rows);
    Ok(Report {
        command: "locks",
        options: experiment.options(json!({
            "threads": options.threads, "count": options.count, "work": options.work, "stacks": options.stacks,
        })),
        machine: doctor::machine(&options.common.dir),
        params: vec!["threads", "timing"],
        shown: vec![
            ("ns", "ns each"),
            ("contended", "contended %"),
            ("wait_ns", "mean wait ns"),
            ("wait_p99_ns", "99% below"),
            ("hold_ns", "mean hold ns"),
            ("unlock_ns", "mean unlock ns"),
            ("unlock_p99_ns", "99% below"),
        ],
        shown_counts: vec![("taken", "taken")],
        relative: Some("ns"),
        null_difference: null_difference(&rows, "ns"),
        rows,
        notes: vec![
            "Percent is of the same threads with timing off: what timing every lock costs, and sampling stacks too. \
             Contention is counted always."
                .into(),
            format!("Even threads do short_work under the lock, odd ones long_work, {LONG} times as much."),
        ],
        waited: experiment.waited(),
        ..Report::default()
    })
}

/// The histograms and stacks of these rows are printed for people: the timed row that waited most often, and the row
/// with stacks of the same threads.
fn name_the_most_contended(rows: &mut [Row]) {
    let contended = |r: &Row| r.summary("contended").map_or(0.0, |m| m.median);
    let timed = rows.iter().filter(|r| r.params[1] == "on");
    let Some(most) = timed.max_by(|a, b| contended(a).total_cmp(&contended(b))).map(|r| r.params[0].clone()) else {
        return;
    };
    for row in rows.iter_mut().filter(|r| r.params[0] == most) {
        row.details.title = Some(format!("{most} threads"));
    }
}

/// What the lock guards: a figure that is worked on, and how often.
type Shared = Mutex<(u64, u64)>;

/// Takes the lock for a short time; how often it has been taken. Not inlined: a stack tells who it was.
#[inline(never)]
fn short_work(shared: &Shared, steps: u32) -> u64 {
    let mut guard = shared.lock();
    *guard = (spin(guard.0, steps), guard.1 + 1);
    guard.1
}

/// Takes the lock for a longer time.
#[inline(never)]
fn long_work(shared: &Shared, steps: u32) -> u64 {
    let mut guard = shared.lock();
    *guard = (spin(guard.0, steps.saturating_mul(LONG)), guard.1 + 1);
    guard.1
}

/// One thread's share; how often all threads together had the lock by then, and the nanoseconds that had gone.
fn work(experiment: &Experiment, shared: &Shared, thread: usize, count: u64, steps: u32, begun: Instant) -> (u64, f64) {
    let mut held = 0;
    for n in 0..count {
        if n % 4096 == 0 && experiment.is_over() {
            break;
        }
        held = match thread % 2 {
            0 => short_work(shared, steps),
            _ => long_work(shared, steps),
        };
        std::hint::black_box(spin(n, steps));
    }
    let took = begun.elapsed().as_nanos() as f64;
    (held, took)
}

fn measure(experiment: &Experiment, threads: usize, count: u64, steps: u32, timing: Timing) -> Result<Sample> {
    let mut details = Details::default();
    let shared = Mutex::new(SITE, (0u64, 0u64));
    let mut before = figures();
    let go = || {
        before = figures();
        timing.begin();
    };
    let each = |thread: &mut usize, zero| Ok(work(experiment, &shared, *thread, count, steps, zero));
    let done = together((0..threads).collect(), go, &each);
    Timing::end();
    // The first one to end: until then all were at work.
    let (held_then, took) = done?.0.into_iter().min_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or((1, 0.0));
    experiment.check()?;
    let after = figures();
    let held = shared.lock().1;
    let taken = held as f64;
    let mut metrics = vec![
        ("ns", "ns", took / held_then as f64),
        ("contended", "percent", 100.0 * (after.contended - before.contended) as f64 / taken),
    ];
    if timing != Timing::Off {
        let [wait, hold, unlock] =
            [(&after.wait, &before.wait), (&after.hold, &before.hold), (&after.unlock, &before.unlock)]
                .map(|(after, before)| after.since(before));
        metrics.extend([
            ("wait_ns", "ns", wait.mean_ns() as f64),
            ("hold_ns", "ns", hold.mean_ns() as f64),
            ("unlock_ns", "ns", unlock.mean_ns() as f64),
        ]);
        let p99 = [("wait_p99_ns", &wait), ("unlock_p99_ns", &unlock)];
        let told = p99.into_iter().filter(|(_, of)| is_told(of.count, 0.99));
        metrics.extend(told.map(|(name, of)| (name, "ns", of.quantile_ns(0.99) as f64)));
        match timing {
            // Those waits are of threads that also record stacks.
            Timing::Stacks(_) => details.stacks = Some(lock::stacks(SITE.name())),
            _ => [("wait", wait), ("hold", hold), ("unlock", unlock)].into_iter().for_each(|(n, h)| details.add(n, h)),
        }
    }
    let expected = threads as u64 * count;
    let wrong = (held != expected).then(|| format!("{held} of {expected} increments under the lock were kept"));
    Ok(Sample { metrics, counts: vec![("taken", held)], wrong, details })
}

/// The lock's figures so far; it has been made.
fn figures() -> SiteReport {
    let found = lock::report().into_iter().find(|s| s.name == SITE.name());
    found.unwrap_or_else(|| {
        let empty = esker_base::histogram::Histogram::new().snapshot();
        SiteReport {
            name: SITE.name(),
            rank: 0,
            acquired: 0,
            contended: 0,
            spins: 0,
            wait: empty.clone(),
            wait_max_ns: 0,
            hold: empty.clone(),
            hold_max_ns: 0,
            unlock: empty.clone(),
            rewake: empty,
        }
    })
}

/// Work that cannot be left out.
fn spin(mut x: u64, steps: u32) -> u64 {
    for _ in 0..steps {
        x = std::hint::black_box(x).wrapping_mul(3);
    }
    x
}
