//! Runs a scenario over many seeds, as the environment asks, and says how to replay a failure.
//!
//! Each run takes seeds that nobody has seen: the first follows from the clock, and is printed. `ESKER_SIM_SEED` sets it,
//! and runs that one seed; `ESKER_SIM_SEEDS` sets how many are run, `ESKER_SIM_SECONDS` bounds the time of all scenarios
//! together (each begins at least one seed). A scenario that tries every operation of a workload counts each seed a
//! hundredfold. A scenario names what it must have reached; it goes on until it has, or fails ([`Must`]).
//! `ESKER_SIM_ALL` goes on after a failure and tells of all of them, `ESKER_SIM_STORY` tells all steps of a failure,
//! `ESKER_SIM_VERBOSE` names each seed as it begins.
//!
//! Invariants: scenarios of one process run one after the other, since the engine's memory accounts are the process's; a
//! scenario that hangs ends the process and says where.

use crate::reached::{self, Must};
use crate::sim::{Failure, Sim, Stats};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, Once, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Scenarios that share `ESKER_SIM_SECONDS`.
const SCENARIOS: u64 = 19;
/// Seeds that one seed of an exhaustive scenario stands for.
const EXHAUSTIVE: u64 = 100;
/// A scenario that has not reached what it must goes on for so many times the seeds it was to run by default.
const PATIENCE: u64 = 4;
/// For so many at least: what real threads reach is a matter of chance, and scenarios that have them run few by default.
const LEAST_SEEDS: u64 = 120;
/// A seed in which nothing happens for so long hangs.
const HANGS: Duration = Duration::from_secs(240);

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
/// Rises with every step of every seed.
static PULSE: AtomicU64 = AtomicU64::new(0);
/// What is being run; none between scenarios.
static RUNNING: Mutex<Option<String>> = Mutex::new(None);

/// What is done with a seed; the simulation is left in its second argument, so that a failure can tell its story.
pub type Scenario<'a> = dyn FnMut(u64, &mut Option<Sim>) -> Result<Stats, Failure> + 'a;

/// Held while a scenario runs.
pub fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// The first seed of this process: `ESKER_SIM_SEED`, or one that follows from the clock.
pub fn first_seed() -> u64 {
    static FIRST: OnceLock<u64> = OnceLock::new();
    *FIRST.get_or_init(|| {
        // A thousand seeds a second: two runs do not share theirs.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
        number("ESKER_SIM_SEED").unwrap_or(now % 1_000_000_000 * 1000)
    })
}

/// Something has happened: the seed does not hang.
pub fn alive() {
    PULSE.fetch_add(1, Ordering::Relaxed);
}

fn running(what: Option<String>) {
    alive();
    *RUNNING.lock().unwrap_or_else(PoisonError::into_inner) = what;
    static WATCH: Once = Once::new();
    WATCH.call_once(|| drop(std::thread::spawn(watch)));
}

/// Ends the process when a seed hangs: a test fails, it does not wait for ever.
fn watch() {
    let (mut seen, mut since) = (0, Instant::now());
    loop {
        std::thread::sleep(Duration::from_secs(1));
        let now = PULSE.load(Ordering::Relaxed);
        let what = RUNNING.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(what) = what.filter(|_| now == seen) else {
            (seen, since) = (now, Instant::now());
            continue;
        };
        if since.elapsed() > HANGS {
            eprintln!("{what}: nothing has happened for {} s: it hangs", HANGS.as_secs());
            std::process::abort();
        }
    }
}

/// One seed of a scenario: failures and panics become text with the simulator's story.
pub fn try_seed(seed: u64, scenario: &mut Scenario<'_>) -> Result<Stats, String> {
    let mut sim = None;
    let result = catch_unwind(AssertUnwindSafe(|| scenario(seed, &mut sim)));
    let story = |sim: &Option<Sim>| sim.as_ref().map(Sim::story).unwrap_or_default();
    match result {
        Ok(Ok(stats)) => Ok(stats),
        Ok(Err(failure)) => {
            let text = format!("{}\n{}", failure.0, story(&sim));
            // What is left of a failed engine may itself be broken.
            let _ = catch_unwind(AssertUnwindSafe(|| drop(sim.take())));
            Err(text)
        }
        Err(panic) => {
            let text = panic
                .downcast_ref::<String>()
                .map(String::as_str)
                .or_else(|| panic.downcast_ref::<&str>().copied())
                .unwrap_or("no message");
            let text = format!("panic: {text}\n{}", story(&sim));
            std::mem::forget(sim);
            Err(text)
        }
    }
}

/// Runs a scenario over `default_seeds` seeds, or as the environment says; panics with the way to replay.
pub fn run_seeds(
    test: &str,
    default_seeds: u64,
    must: Must,
    scenario: impl FnMut(u64, &mut Option<Sim>) -> Result<Stats, Failure>,
) -> Stats {
    run(test, default_seeds, number("ESKER_SIM_SEEDS"), must, scenario)
}

/// As [`run_seeds`], for a scenario that goes through every operation of its workload.
pub fn run_exhaustive(
    test: &str,
    default_seeds: u64,
    must: Must,
    scenario: impl FnMut(u64, &mut Option<Sim>) -> Result<Stats, Failure>,
) -> Stats {
    run(test, default_seeds, number("ESKER_SIM_SEEDS").map(|n| n.div_ceil(EXHAUSTIVE)), must, scenario)
}

fn run(
    test: &str,
    default_seeds: u64,
    seeds: Option<u64>,
    must: Must,
    mut scenario: impl FnMut(u64, &mut Option<Sim>) -> Result<Stats, Failure>,
) -> Stats {
    let _alone = alone();
    let replay = number("ESKER_SIM_SEED").is_some() && seeds.is_none();
    let seconds = number("ESKER_SIM_SECONDS").map(|s| Duration::from_secs(s) / SCENARIOS as u32);
    let many = match seeds {
        _ if replay => 1,
        Some(seeds) => seeds,
        None if seconds.is_some() => u64::MAX,
        None => default_seeds,
    };
    let first = first_seed();
    println!("{test}: seeds from {first}");
    let (started, before) = (Instant::now(), reached::counted());
    let (mut all, mut done, mut failed) = (Stats::default(), 0, Vec::new());
    let missing = |all: &Stats| if replay { Vec::new() } else { must.missing(&before, all) };
    loop {
        let wanted = done < many && (done == 0 || seconds.is_none_or(|s| started.elapsed() < s));
        let lacks = done < (PATIENCE * default_seeds).max(LEAST_SEEDS) && !missing(&all).is_empty();
        if !wanted && !lacks {
            break;
        }
        let seed = first + done;
        if std::env::var_os("ESKER_SIM_VERBOSE").is_some() {
            eprintln!("{test}: seed {seed}");
        }
        running(Some(format!("{test}, seed {seed}")));
        match try_seed(seed, &mut scenario) {
            Ok(stats) => all.add(stats),
            Err(why) => {
                failed.push(format!(
                    "{test}, seed {seed}: {why}\nreplay: ESKER_SIM_SEED={seed} cargo test -p esker-sim --release {test}\n"
                ));
                if std::env::var_os("ESKER_SIM_ALL").is_none() {
                    break;
                }
            }
        }
        done += 1;
    }
    running(None);
    println!("{test}: {done} seeds, {all:?}, {:.1} s", started.elapsed().as_secs_f64());
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    let missing = missing(&all);
    assert!(missing.is_empty(), "{test}: {done} seeds from {first} on never reached {missing:?}: they prove nothing");
    all
}
