//! The simulator itself: it is deterministic, and it finds a loss where there must be one.

use esker_sim::crash::{canary_seed, crash_seed};
use esker_sim::runner::{alone, try_seed};

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
    let _alone = alone();
    let found = (1..=20).filter(|seed| try_seed(*seed, &mut canary_seed).is_err()).count();
    assert!(found > 10, "only {found} of 20 losses were found: the crash test is worth nothing");
}
