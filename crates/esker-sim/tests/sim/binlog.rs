//! A server with a binlog ends anywhere: afterwards the engine holds the transactions that the binlog holds.

use esker_sim::binlog_crash::{binlog_everywhere, binlog_faults_seed, binlog_seed};
use esker_sim::binlog_threads::binlog_threads_seed;
use esker_sim::reached::Must;
use esker_sim::runner::{run_exhaustive, run_seeds};

#[test]
fn binlog_and_engine_agree() {
    let must = Must(&[
        "killed_prepared",
        "cut_prepared",
        "killed_in_binlog",
        "cut_in_binlog",
        "killed_ordered",
        "cut_ordered",
        "killed_recovering",
        "cut_recovering",
        "killed_asked",
        "cut_asked",
        "entries_lost",
        "entries_forgotten",
        "entries_forgotten_at_once",
        "found_committed",
        "found_rolled_back",
        "found_used_again",
        "found_with_runs",
        "undone_in_part",
        "works_between_decisions",
        "decisions_by_others",
        "kills_inside",
        "steps_inside",
        "decided_inside",
        "flushes",
        "merges",
        "checkpoints",
        "runs_attached",
        "runs_moved",
        "wal_segments_recycled",
        "keys_prepared",
    ]);
    run_seeds("binlog_and_engine_agree", 150, must, binlog_seed);
}

#[test]
fn binlog_and_engine_agree_wherever_the_server_ends() {
    let must = Must(&[
        "killed_prepared",
        "cut_prepared",
        "killed_in_binlog",
        "cut_in_binlog",
        "killed_ordered",
        "cut_ordered",
        "found_committed",
        "found_rolled_back",
        "ended_at_many_places",
    ]);
    let test = "binlog_and_engine_agree_wherever_the_server_ends";
    run_exhaustive(test, 2, must, |seed, sim| binlog_everywhere(seed, 50, sim));
}

#[test]
fn a_log_that_stops_acknowledges_nothing() {
    let must = Must(&["poisoned", "prepares_refused", "requests_refused", "ordered_without_log", "found_committed"]);
    run_seeds("a_log_that_stops_acknowledges_nothing", 60, must, binlog_faults_seed);
}

#[test]
fn a_binlog_among_threads() {
    let must = Must(&[
        "killed_asked",
        "cut_asked",
        "decisions_by_others",
        "entries_forgotten",
        "found_committed",
        "found_rolled_back",
        "flushes",
        "merges",
        "checkpoints",
        "runs_attached",
    ]);
    run_seeds("a_binlog_among_threads", 20, must, binlog_threads_seed);
}
