//! The simulator itself: it is deterministic, and it finds a loss where there must be one.

use esker_sim::crash::crash_seed;
use esker_sim::runner::{alone, try_seed, Scenario};
use esker_sim::{binlog_threads, crash, cut, unique};

#[test]
fn same_seed_same_story() {
    let _alone = alone();
    for seed in [3, 14, 159] {
        let mut logs = Vec::new();
        for _ in 0..2 {
            let mut log = None;
            let result = try_seed(seed, &mut |seed, sim| {
                let stats = crash_seed(seed, sim)?;
                log = sim.as_ref().map(|s| (s.steps_told(), s.disk.op_count(), s.disk.op_log()));
                Ok(stats)
            });
            result.unwrap();
            logs.push(log.unwrap());
        }
        assert_eq!(logs[0], logs[1], "seed {seed}");
    }
}

#[test]
fn canary_a_disk_that_lies_is_found_out() {
    lies_are_found(20, &mut crash::canary_seed);
}

#[test]
fn canary_threads_that_are_cut() {
    lies_are_found(10, &mut cut::canary_seed);
}

#[test]
fn canary_unique_keys_that_are_cut() {
    lies_are_found(10, &mut unique::canary_seed);
}

#[test]
fn canary_a_binlog_among_threads() {
    lies_are_found(10, &mut binlog_threads::canary_seed);
}

/// Of so many seeds more than half find the loss.
fn lies_are_found(seeds: u64, canary: &mut Scenario<'_>) {
    let _alone = alone();
    let found: Vec<_> = (1..=seeds).filter_map(|seed| try_seed(seed, canary).err()).collect();
    let first_lines: Vec<_> = found.iter().filter_map(|why| why.lines().next()).collect();
    println!("{} of {seeds} losses were found: {first_lines:#?}", found.len());
    assert!(found.len() as u64 > seeds / 2, "only {} of {seeds} losses were found: it is worth nothing", found.len());
}
