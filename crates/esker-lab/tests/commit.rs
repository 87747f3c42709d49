//! `esker lab commit` on small sizes: what it counts, held against what must be.

#![allow(clippy::unwrap_used)]

mod lab;

use lab::{report, rows, run, statuses, Folder, COUNTING};
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

/// The distribution of a row's groups: least size and how many.
fn groups(row: &Value, of: &str) -> Vec<(u64, u64)> {
    let buckets = row["groups"][of]["buckets"].as_array().into_iter().flatten();
    let found: Vec<(u64, u64)> = buckets.map(|b| (b[0].as_u64().unwrap(), b[2].as_u64().unwrap())).collect();
    let count = found.iter().map(|b| b.1).sum::<u64>();
    assert_eq!(row["groups"][of]["count"].as_u64().unwrap_or(0), count, "{row}");
    found
}

#[test]
fn sessions_commit_in_two_phases_and_groups_have_their_sizes() {
    let _alone = COUNTING.lock();
    let arguments =
        ["commit", "--threads", "1,4", "--commits", "48", "--runs", "2", "--min-time", "0", "--beside", "none"];
    let report = report(&Folder::new("commit-sessions"), &arguments);
    // Good: all rows are there, nothing is undecided, and the coordinator's log has an entry for each.
    assert!(statuses(&report).iter().all(|s| s.0 == "good"), "{report:#}");
    let row = |threads: &str, way: &str| {
        let fits = |r: &&Value| r["params"]["threads"] == threads && r["params"]["commit"] == way;
        rows(&report).iter().find(fits).unwrap().clone()
    };
    let figure = |row: &Value, name: &str| row["metrics"][name]["median"].as_f64().unwrap();
    for (threads, commits) in [("1", 48), ("4", 192)] {
        let synced = row(threads, "engine's sessions, 2pc");
        let not = row(threads, "engine's sessions, 2pc, coordinator not synced");
        for two in [&synced, &not] {
            // Every transaction was in one group of the coordinator, in both runs.
            let members: u64 = groups(two, "coordinator").iter().map(|(size, n)| size * n).sum();
            assert_eq!(members, 2 * commits, "{two:#}");
            assert_eq!(two["times"]["count"], 2 * commits);
            // What is prepared is synced, alone or in groups; what is decided is not.
            assert!(!groups(two, "prepares").is_empty() && groups(two, "commits").is_empty(), "{two:#}");
        }
        assert!(figure(&synced, "coordinator_syncs") > 0.0 && figure(&not, "coordinator_syncs") == 0.0, "{not:#}");
        // Nobody shares a sync.
        for alone in ["one sync per commit", "engine's sessions, one sync per commit"] {
            let alone = row(threads, alone);
            assert!(groups(&alone, "commits").iter().all(|g| g.0 == 1), "{alone:#}");
            assert!(figure(&alone, "log_syncs") >= commits as f64, "{alone:#}");
        }
        assert_eq!(groups(&row(threads, "one sync per commit"), "commits"), [(1, 2 * commits)]);
        assert!(row(threads, "engine's sessions, no sync")["groups"].is_null());
    }
    // One thread has nobody to share with.
    let one = row("1", "engine's sessions, 2pc");
    assert_eq!((groups(&one, "coordinator"), figure(&one, "coordinator_syncs")), (vec![(1, 96)], 48.0));
    assert!(figure(&one, "log_syncs") >= 48.0, "{one:#}");
}

#[test]
fn sizes_of_groups_are_in_the_text_and_on_the_page() {
    let _alone = COUNTING.lock();
    let outside = Folder::new("commit-page");
    let page = outside.0.join("page.html");
    let few = ["commit", "--threads", "2", "--commits", "20", "--runs", "1", "--min-time", "0", "--beside", "none"];
    let (_, text) =
        run(&Folder::new("commit-text"), &[&few[..], &["--html", page.to_str().unwrap()]].concat()).unwrap();
    let table = text.split("Sizes of groups, all runs, in transactions:").nth(1).unwrap();
    let line = table.lines().find(|l| l.contains("  one sync per commit ")).unwrap();
    let cells: Vec<&str> = line.split_whitespace().rev().take(8).collect();
    // Forty groups of one: ten are above p50, too few above the others.
    assert_eq!(cells, ["1", "-", "-", "-", "-", "1", "40", "commits"], "{line}");
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("sizes of groups: coordinator") && page.contains("transactions, logarithmic"), "{page}");
}

#[test]
fn places_and_sizes_that_cannot_be_are_refused_by_their_option() {
    let _alone = COUNTING.lock();
    let folder = Folder::new("commit-refused");
    let refused = |more: &[&str]| run(&folder, &[&["commit", "--runs", "1"], more].concat()).unwrap_err().to_string();
    assert!(refused(&["--beside", "/no-such-folder"]).contains("no folder /no-such-folder: --beside takes one"));
    assert!(refused(&["--bytes", "2M"]).contains("--bytes between 1 and 1M"));
    assert!(refused(&["--threads", "513"]).contains("--threads must be between"));
    // Longer rows than the engine takes: its sessions say so, the log alone is measured.
    let long = ["--bytes", "64K", "--threads", "1", "--commits", "2", "--min-time", "0", "--beside", "none"];
    let report = report(&folder, &[&["commit", "--runs", "1"], &long[..]].concat());
    let sessions = |r: &&Value| r["params"]["commit"].as_str().unwrap().starts_with("engine's");
    let (own, raw): (Vec<_>, Vec<_>) = rows(&report).iter().partition(sessions);
    assert!(own.len() == 5 && own.iter().all(|r| r["status"] == "unsupported"), "{report:#}");
    assert!(raw.iter().all(|r| r["status"] == "good"), "{report:#}");
}
