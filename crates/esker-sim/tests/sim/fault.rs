//! Operations fail, the disk is full, bytes change: clear errors, nothing lost, nothing wrong.

use esker_sim::damage::damage_seed;
use esker_sim::fault::{disk_full_seed, every_operation, operations_seed, reads_seed, recovery_seed};
use esker_sim::reached::{Must, FAULTS};
use esker_sim::runner::{run_exhaustive, run_seeds};

#[test]
fn operations_fail_once() {
    run_seeds("operations_fail_once", 250, FAULTS, |seed, sim| operations_seed(seed, 5, sim));
}

#[test]
fn every_operation_fails_once() {
    run_exhaustive(
        "every_operation_fails_once",
        2,
        Must(&["flushes", "checkpoints", "faults", "poisoned"]),
        |seed, sim| {
            let mut stats = every_operation(seed, esker_io::IoKind::Failed, sim)?;
            stats.add(every_operation(seed, esker_io::IoKind::DiskFull, sim)?);
            Ok(stats)
        },
    );
}

#[test]
fn reads_fail_once() {
    run_seeds("reads_fail_once", 200, Must(&["flushes", "merges", "faults"]), |seed, sim| reads_seed(seed, 5, sim));
}

#[test]
fn faults_at_opening() {
    let must = Must(&["faults", "crashes", "refused_opens", "recovery_records"]);
    run_seeds("faults_at_opening", 200, must, |seed, sim| recovery_seed(seed, 4, sim));
}

#[test]
fn disk_is_full_for_a_while() {
    let must = Must(&["flushes", "merges", "checkpoints", "faults", "disk_full_answers"]);
    run_seeds("disk_is_full_for_a_while", 200, must, |seed, sim| disk_full_seed(seed, 5, sim));
}

#[test]
fn damaged_files_are_named_and_never_believed() {
    run_seeds(
        "damaged_files_are_named_and_never_believed",
        400,
        Must(&["flushes", "merges", "faults", "keys_flushed", "keys_damaged"]),
        |seed, sim| damage_seed(seed, 12, sim),
    );
}
