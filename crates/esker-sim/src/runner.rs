//! Runs a scenario over many seeds, as the environment asks, and says how to replay a failure.
//!
//! `ESKER_SIM_SEED` runs one seed, `ESKER_SIM_SEEDS` sets how many are run, `ESKER_SIM_SECONDS` bounds the time of all
//! scenarios together (each begins at least one seed). A scenario that tries every operation of a workload counts each
//! seed a hundredfold. `ESKER_SIM_STORY` tells all steps of a failure, `ESKER_SIM_VERBOSE` names each seed as it begins. Invariant: scenarios of one process run one after the other,
//! since the engine's memory accounts are the process's.

use crate::sim::{Failure, Sim, Stats};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Scenarios that share `ESKER_SIM_SECONDS`.
const SCENARIOS: u64 = 9;
/// Seeds that one seed of an exhaustive scenario stands for.
const EXHAUSTIVE: u64 = 100;
/// The first seed of a run over many.
const FIRST_SEED: u64 = 1;

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// What is done with a seed; the simulation is left in its second argument, so that a failure can tell its story.
pub type Scenario<'a> = dyn FnMut(u64, &mut Option<Sim>) -> Result<Stats, Failure> + 'a;

/// Held while a scenario runs.
pub fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
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
    scenario: impl FnMut(u64, &mut Option<Sim>) -> Result<Stats, Failure>,
) -> Stats {
    run(test, default_seeds, number("ESKER_SIM_SEEDS"), scenario)
}

/// As [`run_seeds`], for a scenario that goes through every operation of its workload.
pub fn run_exhaustive(
    test: &str,
    default_seeds: u64,
    scenario: impl FnMut(u64, &mut Option<Sim>) -> Result<Stats, Failure>,
) -> Stats {
    run(test, default_seeds, number("ESKER_SIM_SEEDS").map(|n| n.div_ceil(EXHAUSTIVE)), scenario)
}

fn run(
    test: &str,
    default_seeds: u64,
    seeds: Option<u64>,
    mut scenario: impl FnMut(u64, &mut Option<Sim>) -> Result<Stats, Failure>,
) -> Stats {
    let _alone = alone();
    let one = number("ESKER_SIM_SEED");
    let seconds = number("ESKER_SIM_SECONDS").map(|s| Duration::from_secs(s) / SCENARIOS as u32);
    let many = seeds.unwrap_or(if seconds.is_some() { u64::MAX } else { default_seeds });
    let (first, many) = match one {
        Some(seed) => (seed, 1),
        None => (FIRST_SEED, many),
    };
    let started = Instant::now();
    let mut all = Stats::default();
    let mut done = 0;
    while done < many && (done == 0 || seconds.is_none_or(|s| started.elapsed() < s)) {
        let seed = first + done;
        if std::env::var_os("ESKER_SIM_VERBOSE").is_some() {
            eprintln!("{test}: seed {seed}");
        }
        match try_seed(seed, &mut scenario) {
            Ok(stats) => all.add(stats),
            Err(why) => panic!(
                "{test}, seed {seed}: {why}\nreplay: ESKER_SIM_SEED={seed} cargo test -p esker-sim --release {test}\n"
            ),
        }
        done += 1;
    }
    println!("{test}: {done} seeds, {all:?}, {:.1} s", started.elapsed().as_secs_f64());
    all
}
