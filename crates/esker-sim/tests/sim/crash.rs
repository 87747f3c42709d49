//! Nothing acknowledged is lost, nothing else appears: power cuts and kills.

use esker_sim::crash::{crash_seed, every_operation, model_seed};
use esker_sim::large::{large_seed, spilled_seed};
use esker_sim::reached::{Must, CRASHES, WORK};
use esker_sim::runner::{run_exhaustive, run_seeds};
use esker_sim::Config;

#[test]
fn model_verified_after_each_step() {
    let config = Config { verify_each: true, most_rows: 500, ..Config::default() };
    run_seeds("model_verified_after_each_step", 200, WORK, |seed, sim| model_seed(seed, 150, config.clone(), sim));
}

#[test]
fn model_long() {
    run_seeds("model_long", 80, WORK, |seed, sim| model_seed(seed, 1000, Config::default(), sim));
}

#[test]
fn crash_at_random_operations() {
    run_seeds("crash_at_random_operations", 1200, CRASHES, crash_seed);
}

#[test]
fn large_blocks() {
    run_seeds("large_blocks", 4, Must(&["merges", "runs_attached", "keys_from_runs"]), large_seed);
}

#[test]
fn spilled_transactions_are_cut() {
    let must = Must(&[
        "files_shared",
        "runs_attached",
        "merges",
        "prepares",
        "crashes",
        "keys_moved",
        "keys_from_log",
        "keys_from_runs",
    ]);
    run_seeds("spilled_transactions_are_cut", 40, must, spilled_seed);
}

#[test]
fn cut_at_every_operation() {
    run_exhaustive(
        "cut_at_every_operation",
        8,
        Must(&["flushes", "checkpoints", "manifest_edits", "crashes", "indexes_added", "builds_cut", "alters_kept"]),
        |seed, sim| every_operation(seed, 60, sim),
    );
}
