//! Real threads.

use esker_sim::cut::cut_seed;
use esker_sim::reached::Must;
use esker_sim::runner::{alone, run_seeds};
use esker_sim::unique::unique_seed;
use std::sync::atomic::Ordering;

#[test]
fn transfers_loads_and_readers() {
    let _alone = alone();
    let dir = std::env::temp_dir().join(format!("esker-sim-{}", std::process::id()));
    let result = esker_sim::threads::run(&dir, 1, 3, 4000);
    let _ = std::fs::remove_dir_all(&dir);
    let report = result.map_err(|f| f.0).unwrap();
    println!("{report:?}");
    assert!(report.transfers.load(Ordering::Relaxed) > 0);
    assert!(report.sums.load(Ordering::Relaxed) > 0);
    assert!(report.entries.load(Ordering::Relaxed) > 10_000);
}

#[test]
fn threads_are_cut() {
    let must = Must(&[
        "flushes",
        "merges",
        "checkpoints",
        "runs_attached",
        "rows_purged",
        "prepares",
        "crashes",
        "keys_read",
        "keys_narrowed",
        "keys_moved",
        "keys_from_log",
        "keys_from_runs",
    ]);
    run_seeds("threads_are_cut", 8, must, cut_seed);
}

#[test]
fn unique_keys_are_cut() {
    let must = Must(&[
        "flushes",
        "merges",
        "runs_attached",
        "prepares",
        "deadlocks",
        "crashes",
        "duplicates",
        "kept_checked",
        "kept_checked_in_views",
        "indexes_added",
        "indexes_dropped",
        "alters_overtaken",
        "writers_refused",
    ]);
    run_seeds("unique_keys_are_cut", 8, must, unique_seed);
}
