//! `esker lab locks`: the engine's lock type under threads: how often it was taken already, and how long waiting, holding
//! and letting go took, the releasing thread's share (waking another) included.

use crate::doctor;
use crate::error::{LabError, Result};
use crate::report::Report;
use crate::session::{Case, Common, Needs, Sample, Session};
use clap::Args;
use esker_trace::lock::{self, Mutex, SiteReport};
use serde_json::json;
use std::time::Instant;

/// Options of the command.
#[derive(Debug, Clone, Args)]
pub struct Options {
    #[command(flatten)]
    common: Common,
    /// Threads; several, with commas, up to 512
    #[arg(long, value_name = "N", default_value = "1,2,4,16", value_delimiter = ',')]
    threads: Vec<usize>,
    /// Times that each thread takes the lock
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    count: u64,
    /// Steps of work under the lock, about a nanosecond each; as many follow without it
    #[arg(long, value_name = "N", default_value_t = 100)]
    work: u32,
}

impl Options {
    pub(crate) fn common(&self) -> &Common {
        &self.common
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
    let mut session = Session::begin(&options.common, "locks")?;
    let mut cases = Vec::new();
    for &threads in &options.threads {
        let base = cases.len();
        for timed in [false, true] {
            let (count, steps) = (options.count, options.work);
            let work = Box::new(move |session: &Session| measure(session, threads, count, steps, timed));
            let params = vec![threads.to_string(), if timed { "on" } else { "off" }.to_owned()];
            cases.push(Case { params, base: Some(base), work });
        }
    }
    session.plan(cases.len(), Needs::default())?;
    let rows = session.run(&mut cases);
    Ok(Report {
        command: "locks",
        options: session.options(json!({ "threads": options.threads, "count": options.count, "work": options.work })),
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
        null_difference: None,
        rows,
        notes: vec![
            "Percent is of the same threads with timing off: what timing every lock costs. Contention is counted always."
                .into(),
        ],
    })
}

fn measure(session: &Session, threads: usize, count: u64, steps: u32, timed: bool) -> Result<Sample> {
    let shared = Mutex::new("lab.lock", (0u64, 0u64));
    let before = figures();
    lock::profile(timed);
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                for n in 0..count {
                    if n % 4096 == 0 && session.is_over() {
                        break;
                    }
                    let mut guard = shared.lock();
                    *guard = (spin(guard.0, steps), guard.1 + 1);
                    drop(guard);
                    std::hint::black_box(spin(n, steps));
                }
            });
        }
    });
    let took = began.elapsed().as_nanos() as f64;
    lock::profile(false);
    session.check()?;
    let after = figures();
    let held = shared.lock().1;
    let taken = held as f64;
    let mut metrics = vec![
        ("ns", "ns", took / taken),
        ("contended", "percent", 100.0 * (after.contended - before.contended) as f64 / taken),
    ];
    if timed {
        let [wait, hold, unlock] =
            [(&after.wait, &before.wait), (&after.hold, &before.hold), (&after.unlock, &before.unlock)]
                .map(|(after, before)| after.since(before));
        metrics.extend([
            ("wait_ns", "ns", wait.mean_ns() as f64),
            ("wait_p99_ns", "ns", wait.quantile_ns(0.99) as f64),
            ("hold_ns", "ns", hold.mean_ns() as f64),
            ("unlock_ns", "ns", unlock.mean_ns() as f64),
            ("unlock_p99_ns", "ns", unlock.quantile_ns(0.99) as f64),
        ]);
    }
    let expected = threads as u64 * count;
    let wrong = (held != expected).then(|| format!("{held} of {expected} increments under the lock were kept"));
    Ok(Sample { metrics, counts: vec![("taken", held)], wrong })
}

/// The lock's figures so far; it has been made.
fn figures() -> SiteReport {
    let found = lock::report().into_iter().find(|s| s.name == "lab.lock");
    found.unwrap_or_else(|| {
        let empty = esker_trace::histogram::Histogram::new().snapshot();
        let (wait, hold, unlock) = (empty.clone(), empty.clone(), empty);
        SiteReport { name: "lab.lock", contended: 0, acquired: 0, wait, hold, unlock }
    })
}

/// Work that cannot be left out.
fn spin(mut x: u64, steps: u32) -> u64 {
    for _ in 0..steps {
        x = std::hint::black_box(x).wrapping_mul(3);
    }
    x
}
