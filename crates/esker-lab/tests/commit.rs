//! `esker lab commit` on small sizes: what it counts, held against what must be.

#![allow(clippy::unwrap_used)]

mod lab;

use lab::{report, rows, statuses, Folder, COUNTING};
use serde_json::Value;

#[test]
fn little_memory_or_space_makes_runs_smaller_and_leaves_out_what_is_beside() {
    let _alone = COUNTING.lock();
    let folder = Folder::new("commit-small");
    let few = ["commit", "--threads", "2", "--commits", "10", "--runs", "1"];
    let alone = report(&folder, &[&few[..], &["--max-memory", "300M", "--min-time", "0.001s"]].concat());
    let places: std::collections::BTreeSet<&str> =
        rows(&alone).iter().map(|r| r["params"]["on"].as_str().unwrap()).collect();
    assert_eq!(places.len(), 1, "{alone:#}");
    assert!(alone["notes"][0].as_str().unwrap().starts_with("Nothing is compared with /dev/shm"), "{alone:#}");
    // As much as fits: a run is as long as --commits and --count ask for, at least.
    let small = report(&folder, &[&few[..], &["--max-space", "17M", "--beside", "none"]].concat());
    assert!(statuses(&small).iter().all(|s| s.0 == "good"), "{small:#}");
    let sync = report(&folder, &["sync", "--count", "10", "--runs", "1", "--max-space", "1M"]);
    let most = rows(&sync).iter().filter_map(|r| r["counts"]["barriers"].as_u64()).max().unwrap();
    assert!((10..=85).contains(&most), "{most}");
    assert_eq!((&sync["options"]["cache"], &small["options"]["cache"]), (&Value::Null, &Value::Null));
}

#[test]
fn commit_counts_the_syncs_of_each_way() {
    let _alone = COUNTING.lock();
    let arguments = ["commit", "--threads", "1,4", "--commits", "48", "--runs", "2", "--min-time", "0"];
    let report = report(&Folder::new("commit"), &arguments);
    assert!(statuses(&report).iter().all(|s| s.0 == "good"), "{report:#}");
    let row = |threads: &str, way: &str| {
        let fits = |r: &&Value| r["params"]["threads"] == threads && r["params"]["commit"] == way;
        rows(&report).iter().find(fits).unwrap().clone()
    };
    let figure = |row: &Value, name: &str| row["metrics"][name]["median"].as_f64().unwrap();
    // Whoever has the log for himself shares no sync.
    for (threads, commits) in [("1", 48.0), ("4", 192.0)] {
        assert_eq!(figure(&row(threads, "one sync per commit"), "log_syncs"), commits);
        assert_eq!(row(threads, "engine's sessions")["times"]["count"], 2.0 * commits);
    }
    assert_eq!(row("4", "group commit")["counts"]["asked"], 192);
    assert!(figure(&row("4", "group commit"), "log_syncs") <= 193.0);
    assert_eq!(row("1", "no sync")["counts"]["asked"], 0);
    // The engine's own syncs, of its own sessions; opening and making the table are not in the clock.
    let synced = figure(&row("1", "engine's sessions"), "log_syncs");
    assert!((48.0..=56.0).contains(&synced), "{synced}");
    assert!(figure(&row("1", "engine's sessions, no sync"), "log_syncs") < 10.0);
    // One thread: its prepare and the coordinator's log, and the commit too if asked for.
    let both = row("1", "2pc, prepare and commit synced");
    assert_eq!((&both["counts"]["asked"], figure(&both, "coordinator_syncs")), (&Value::from(96), 48.0));
    let neither = row("1", "2pc, nothing synced");
    let engine = row("1", "2pc, coordinator not synced, prepare and commit synced");
    for (row, asked) in [(&neither, 0), (&engine, 96)] {
        assert_eq!((&row["counts"]["asked"], figure(row, "coordinator_syncs")), (&Value::from(asked), 0.0));
        assert_eq!((figure(row, "group"), figure(row, "group_largest")), (1.0, 1.0));
    }
}
