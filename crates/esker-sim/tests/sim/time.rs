//! Time passes: locks are given up when it is time, lazy commits become durable, what failed is tried again.

use esker_sim::reached::Must;
use esker_sim::runner::run_seeds;
use esker_sim::time::time_seed;

#[test]
fn hours_pass() {
    let must = Must(&["jumps", "lock_timeouts", "lazy_syncs", "retries", "crashes", "flushes", "merges"]);
    run_seeds("hours_pass", 60, must, time_seed);
}
