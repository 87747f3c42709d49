//! The long version of the simulation: `soak --seeds 10000 [--from 1]`, from new seeds on if it is not
//! said from which. Each seed runs every scenario once; a failure
//! is printed with the way to replay it and ends the run with status 1.

use esker_sim::{
    binlog_crash, binlog_threads, crash, cut, damage, fault, large, runner, time, unique, Config, Failure, Sim, Stats,
};
use std::process::ExitCode;
use std::time::{Duration, Instant};

type Scenario = fn(u64, &mut Option<Sim>) -> Result<Stats, Failure>;

const SCENARIOS: [(&str, Scenario); 14] = [
    ("model_long", |seed, sim| crash::model_seed(seed, 300, Config::default(), sim)),
    ("crash_at_random_operations", crash::crash_seed),
    ("spilled_transactions_are_cut", large::spilled_seed),
    ("operations_fail_once", |seed, sim| fault::operations_seed(seed, 2, sim)),
    ("reads_fail_once", |seed, sim| fault::reads_seed(seed, 1, sim)),
    ("faults_at_opening", |seed, sim| fault::recovery_seed(seed, 3, sim)),
    ("disk_is_full_for_a_while", |seed, sim| fault::disk_full_seed(seed, 2, sim)),
    ("damaged_files_are_named_and_never_believed", |seed, sim| damage::damage_seed(seed, 4, sim)),
    ("hours_pass", time::time_seed),
    ("binlog_and_engine_agree", binlog_crash::binlog_seed),
    ("a_log_that_stops_acknowledges_nothing", binlog_crash::binlog_faults_seed),
    // Threads: the seed does not decide how they interleave.
    ("threads_are_cut", cut::cut_seed),
    ("unique_keys_are_cut", unique::unique_seed),
    ("a_binlog_among_threads", binlog_threads::binlog_threads_seed),
];

const USAGE: &str = "usage: soak [--seeds 1000] [--from SEED]";

/// Seeds to run, and the first of them; `None` if the arguments are something else.
fn arguments() -> Option<(u64, u64)> {
    let (mut seeds, mut from) = (1000, runner::first_seed());
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let target = match name.as_str() {
            "--seeds" => &mut seeds,
            "--from" => &mut from,
            _ => return None,
        };
        *target = arguments.next()?.parse().ok()?;
    }
    Some((seeds, from))
}

fn main() -> ExitCode {
    let Some((seeds, from)) = arguments() else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let started = Instant::now();
    let mut told = started;
    let (mut all, mut failures) = (Stats::default(), 0);
    for seed in from..from + seeds {
        for (name, mut scenario) in SCENARIOS {
            match runner::try_seed(seed, &mut scenario) {
                Ok(stats) => all.add(stats),
                Err(why) => {
                    failures += 1;
                    println!("{name}, seed {seed}: {why}");
                    println!("replay: cargo run --release -p esker-sim --bin soak -- --seeds 1 --from {seed}\n");
                }
            }
        }
        if told.elapsed() > Duration::from_secs(10) {
            told = Instant::now();
            let seconds = started.elapsed().as_secs();
            println!("{} of {seeds} seeds, {failures} failures, {seconds} s, {all:?}", seed + 1 - from);
        }
    }
    println!("soak: {seeds} seeds from {from}, {failures} failures, {} s, {all:?}", started.elapsed().as_secs());
    ExitCode::from(u8::from(failures > 0))
}
