//! Each command on small sizes: its JSON against the schema, and its counts against theory.

#![allow(clippy::unwrap_used)]

mod lab;

use lab::{report, report_of_any_verdict, rows, run, schema, statuses, Folder, COUNTING};
use serde_json::Value;

#[test]
fn doctor_looks_at_everything() {
    let report = report(&Folder::new("doctor"), &["doctor"]);
    let found: Vec<&str> = rows(&report).iter().map(|r| r["params"]["what"].as_str().unwrap()).collect();
    for what in [
        "kernel",
        "virtual machine",
        "file system",
        "barriers",
        "device",
        "durable",
        "io_uring",
        "system call filter",
        "O_DIRECT",
        "memory limit",
        "processor limit",
        "storage limit",
        "process limit",
        "open files",
        "locked memory",
        "timer",
        "clock source",
        "barrier",
        "null test",
        "stolen time",
        "pressure",
    ] {
        assert!(found.contains(&what), "{what} is missing in {found:?}");
    }
    for row in rows(&report) {
        assert!(["ok", "info", "warning"].contains(&row["params"]["state"].as_str().unwrap()), "{row}");
        assert_ne!(row["params"]["found"], "", "{row}");
    }
    let barrier = rows(&report).iter().find(|r| r["params"]["what"] == "barrier").unwrap();
    assert!(!barrier["metrics"]["us"]["samples"].as_array().unwrap().is_empty());
}

#[test]
fn odd_sizes_and_one_record() {
    for (records, bytes) in [("1", "1"), ("1000", "4097")] {
        for command in ["io", "buffer"] {
            let arguments = [command, "--records", records, "--record-bytes", bytes, "--runs", "1"];
            let report = report(&Folder::new(&format!("odd-{command}")), &arguments);
            for (row, (status, why)) in rows(&report).iter().zip(statuses(&report)) {
                assert!(status == "good" || status == "unsupported", "{}: {status}: {why}", row["params"]);
            }
        }
    }
}

#[test]
fn buffers_are_written_as_their_rule_demands() {
    for model in ["esker", "myisam"] {
        let arguments = ["buffer", "--records", "3000", "--model", model, "--runs", "2"];
        let report = report(&Folder::new(&format!("buffer-{model}")), &arguments);
        assert!(statuses(&report).iter().all(|s| s.0 == "good"), "{report:#}");
        // 3000 records of 103 bytes: 309000 bytes, 301 buffers of 1 KiB and a rest.
        let kib = |r: &&Value| {
            r["params"]["do"] == "write" && r["params"]["records"] == "static" && r["params"]["buffer"] == "1K"
        };
        let row = rows(&report).iter().find(kib).unwrap();
        assert_eq!(row["counts"]["last"], 1);
        if model == "esker" {
            assert_eq!(row["counts"]["overflows"], 301);
        }
        let own = |r: &&Value| r["params"]["way"] == "esker";
        assert_eq!(rows(&report).iter().any(|r| own(&r)), model == "esker");
    }
}

#[test]
fn the_engines_own_writer_is_measured_with_every_buffer_that_it_can_have() {
    // 30000 records of 103 bytes: 3090000 bytes.
    let arguments = ["buffer", "--records", "30000", "--from", "1K", "--to", "4M", "--runs", "2"];
    let report = report(&Folder::new("buffer-own"), &arguments);
    assert!(statuses(&report).iter().all(|s| s.0 == "good"), "{report:#}");
    let row = |what: &str, way: &str, buffer: &str| {
        let is = |r: &&Value, name: &str, value: &str| r["params"][name] == value;
        let fits = |r: &&Value| {
            is(r, "do", what) && is(r, "records", "static") && is(r, "way", way) && is(r, "buffer", buffer)
        };
        rows(&report).iter().find(fits).cloned()
    };
    for (buffer, bytes) in [("1K", 1 << 10), ("2K", 2 << 10), ("4K", 4 << 10), ("64K", 64 << 10), ("4M", 4u64 << 20)] {
        let own = ["write", "read warm"].map(|what| row(what, "esker", buffer));
        let [Some(write), Some(read)] = own else {
            assert!(bytes < 4096, "{buffer} is missing: {report:#}");
            continue;
        };
        assert!(bytes >= 4096, "{write:#}");
        // By the file layer's own count: a write and a read for each buffer, one for what is left.
        let calls = 3_090_000u64.div_ceil(bytes);
        assert_eq!((&write["counts"]["calls"], &read["counts"]["calls"]), (&Value::from(calls), &Value::from(calls)));
        assert_eq!((&write["counts"]["overflows"], &write["counts"]["last"]), (&(calls - 1).into(), &1.into()));
        // By the same rule as the other way.
        let other = row("write", "cached", buffer).unwrap();
        assert_eq!(other["counts"]["overflows"], write["counts"]["overflows"]);
        // Each way has a buffer of its own that is 100 percent.
        assert!(other["base"].is_u64() && write["base"].is_u64() && other["base"] != write["base"], "{write:#}");
    }
    let notes = report["notes"].to_string();
    assert!(notes.contains("multiples of 4K: with others it is not measured"), "{notes}");
}

#[test]
fn sync_counts_every_barrier() {
    let report = report(
        &Folder::new("sync"),
        &["sync", "--count", "5", "--threads", "1,3", "--sizes", "512,4K", "--runs", "1", "--min-time", "0"],
    );
    // Five states, six methods, and the null test of each group; six sizes of large writes, with barriers and without.
    assert_eq!(rows(&report).len(), 2 * 2 * (5 * 6 + 1) + 6 * 2);
    for row in rows(&report).iter().filter(|r| r["status"] == "good") {
        let threads: u64 = row["params"]["threads"].as_str().unwrap().parse().unwrap();
        let (large, none) = (row["params"]["file"] == "recycled, large writes", row["params"]["barrier"] == "none");
        assert!(large || !none, "{row}");
        // Two of 16M are all that a run may write.
        let each = if row["params"]["bytes"] == "16M" { 2 } else { 5 };
        assert_eq!(row["counts"]["barriers"], if none { 0 } else { each * threads }, "{row}");
        assert_eq!(row["times"]["count"], each * threads, "{row}");
    }
}

#[test]
fn sync_tells_what_is_durable_in_a_second_by_the_size_of_writes() {
    let arguments = ["sync", "--count", "3", "--sizes", "4K,16K", "--runs", "2", "--min-time", "0"];
    let folder = Folder::new("sync-rates");
    let report = report(&folder, &[&arguments[..], &["--rates", "16K,1M,64M"]].concat());
    for row in rows(&report).iter().filter(|r| r["status"] == "good") {
        let figure = |name: &str| row["metrics"][name]["samples"][0].as_f64().unwrap();
        let bytes = esker_lab::units::size(row["params"]["bytes"].as_str().unwrap()).unwrap() as f64;
        assert!((figure("mb_per_second") / (figure("per_second") * bytes / 1e6) - 1.0).abs() < 1e-9, "{row}");
    }
    let large: Vec<(String, String, bool)> = rows(&report)
        .iter()
        .filter(|r| r["params"]["file"] == "recycled, large writes")
        .map(|r| {
            let of = |name: &str| r["params"][name].as_str().unwrap().to_owned();
            // What has no barrier is held against the same size with one.
            let base = r["base"].as_u64().map(|b| rows(&report)[b as usize]["params"]["bytes"] == r["params"]["bytes"]);
            (of("bytes"), of("barrier"), base.unwrap_or(of("barrier") == "fdatasync"))
        })
        .collect();
    let wanted =
        ["16K", "1M", "64M"].iter().flat_map(|s| ["fdatasync", "none"].map(|b| ((*s).to_owned(), b.to_owned(), true)));
    assert_eq!(large, wanted.collect::<Vec<_>>());
    assert!(report["notes"].to_string().contains("MB/s are millions of bytes"));
    // What has no barrier is no barrier that is too fast to be one.
    let is_fast = |r: &Value| {
        !["none", "sync_file_range"].contains(&r["params"]["barrier"].as_str().unwrap())
            && r["metrics"]["median_us"]["median"].as_f64().is_some_and(|us| us < 15.0)
    };
    let told = report["notes"].to_string().contains("Some barriers took less than 15 us");
    assert_eq!(told, rows(&report).iter().any(is_fast), "{report:#}");
    // The page has a plot of its own for them, and they are in no other.
    let page = esker_lab::html::page(&[("a".to_owned(), report)]).unwrap();
    let figures = || page.split("<figure>").skip(1).filter_map(|f| f.split("</figure>").next());
    let own: Vec<&str> = figures().filter(|f| f.contains("MB/s, with a barrier after each write")).collect();
    assert_eq!(
        (own.len(), own[0].matches("<polyline").count(), own[0].matches("<circle").count()),
        (1, 2, 6),
        "{page}"
    );
    assert!(own[0].contains("no barrier: not durable") && figures().all(|f| !f.contains("large writes")), "{page}");
    // None at all, and only those that there is room for.
    let few = lab::report(&folder, &[&arguments[..], &["--rates", "0"]].concat());
    assert!(rows(&few).iter().all(|r| r["params"]["file"] != "recycled, large writes"));
    let small = lab::report(&folder, &[&arguments[..], &["--max-space", "1M", "--rates", "16K,16M"]].concat());
    let is_large = |r: &&Value| r["params"]["file"] == "recycled, large writes";
    assert_eq!(rows(&small).iter().filter(is_large).count(), 2);
    assert!(small["notes"].to_string().contains("no room for large writes of 16M"), "{small:#}");
}

#[test]
fn who_waits_for_quiet_is_told_how_long() {
    // All of it commits, too, where the time suffices.
    let _alone = COUNTING.lock();
    let folder = Folder::new("quiet");
    let arguments =
        ["sync", "--count", "1", "--rates", "0", "--runs", "1", "--min-time", "0", "--wait-for-quiet", "1s"];
    let report = report(&folder, &arguments);
    // A second is too short to be sure of it.
    let waited = &report["waited"];
    assert_eq!((&waited["quiet"], &waited["limit_s"]), (&Value::from(false), &Value::from(1.0)), "{waited}");
    let seconds = waited["seconds"].as_f64().unwrap();
    assert!(seconds >= 1.0 && !waited["last"].as_str().unwrap().is_empty(), "{waited}");
    let words = format!("Waited {seconds:.0} s for the machine");
    assert!(report["notes"][0].as_str().unwrap().starts_with(&words), "{report:#}");
    assert_eq!(report["options"]["wait_for_quiet_s"], 1.0);
    // Each of several.
    let all = ["all", "--quick", "--runs", "1", "--max-time", "3s", "--wait-for-quiet", "0.1s", "--json"];
    let (_, text) = run(&folder, &all).unwrap();
    let all: Value = serde_json::from_str(&text).unwrap();
    schema::check(&all);
    assert!(all["reports"].as_array().unwrap().iter().all(|r| r["waited"]["limit_s"] == 0.1), "{text}");
}

#[test]
fn every_time_is_in_the_distribution() {
    let _alone = COUNTING.lock();
    let folder = Folder::new("times");
    let sync = report(&folder, &["sync", "--count", "30", "--rates", "0", "--runs", "2", "--min-time", "0"]);
    let commit = report(&folder, &["commit", "--threads", "3", "--commits", "20", "--runs", "2", "--min-time", "0"]);
    let io = report(&folder, &["io", "--records", "20000", "--runs", "2", "--cache", "warm"]);
    for (report, of, count) in [(&sync, "barrier", 60), (&commit, "commit", 120), (&io, "40 records", 1000)] {
        for row in rows(report).iter().filter(|r| r["status"] == "good") {
            let times = &row["times"];
            assert_eq!((times["of"].as_str(), times["count"].as_u64()), (Some(of), Some(count)), "{row}");
            let sum = |list: &str, at: usize| -> u64 {
                times[list].as_array().unwrap().iter().map(|b| b[at].as_u64().unwrap()).sum()
            };
            assert_eq!((sum("buckets", 2), sum("over_time", 1)), (count, count), "{row}");
            // Ten times above it, or it is not told.
            let told = ["p50", "p90", "p99", "p99.9"].map(|p| times["percentiles"][p].is_u64());
            assert_eq!(told, [true, count >= 100, count >= 1000, false], "{row}");
            // The worst of each run is in it, to the nanosecond.
            if let Some(worst) = row["metrics"]["worst_us"]["samples"].as_array() {
                let worst = worst.iter().map(|w| 1000.0 * w.as_f64().unwrap()).fold(0.0, f64::max);
                let longest = times["longest"].as_f64().unwrap();
                assert!((longest - worst).abs() < 1.0, "{longest} {worst}");
            }
        }
    }
}

#[test]
fn what_is_timed_stands_under_its_own_name() {
    let folder = Folder::new("timed");
    let few = ["sync", "--count", "30", "--rates", "1M", "--runs", "1", "--min-time", "0"];
    let (_, text) = run(&folder, &few).unwrap();
    let (_, rest) = text.split_once("\nEach barrier, all runs, in us:\n").unwrap();
    let (barriers, writes) = rest.split_once("\nEach write, all runs, in us:\n").unwrap();
    let with = |part: &str, barrier: &str| part.lines().filter(|l| l.contains(barrier)).count();
    assert!(with(barriers, " fdatasync ") > 5 && with(barriers, " none ") == 0, "{barriers}");
    assert!(with(writes, " fdatasync ") == 0 && with(writes, " none ") == 1, "{writes}");
    assert_eq!((writes.matches("A closed loop").count(), text.matches("A closed loop").count()), (1, 1), "{text}");
    // Batches of other sizes are other things, too; so on the page.
    let outside = Folder::new("timed-page");
    let page = outside.0.join("page.html");
    let sizes = ["io", "--records", "1000,3000", "--ways", "plain", "--only", "write", "--runs", "1"];
    let (_, text) = run(&folder, &[&sizes[..], &["--html", page.to_str().unwrap()]].concat()).unwrap();
    let page = std::fs::read_to_string(page).unwrap();
    for (of, records) in [("2 records", "1000"), ("6 records", "3000")] {
        let (_, rest) = text.split_once(&format!("\nEach {of}, all runs, in us:\n")).unwrap();
        let lines: Vec<&str> = rest.lines().skip(1).take_while(|l| !l.is_empty() && !l.starts_with("A ")).collect();
        // It, and the same again.
        assert!(lines.len() == 2 && lines.iter().all(|l| l.starts_with(records)), "{lines:?}");
        assert!(page.contains(&format!("each {of}")), "{page}");
    }
}

#[test]
fn a_rate_is_that_of_the_times_beside_it() {
    // One barrier: the rate is one over its time. Whatever else were in the clock would show.
    let report = report(&Folder::new("sync-one"), &["sync", "--count", "1", "--runs", "1", "--min-time", "0"]);
    for row in rows(&report).iter().filter(|r| r["status"] == "good") {
        let figure = |name: &str| row["metrics"][name]["median"].as_f64().unwrap();
        let seconds = figure("per_second") * figure("median_us") / 1e6;
        assert!((0.999..1.001).contains(&seconds), "{row}");
    }
}

#[test]
fn a_run_lasts_long_enough_and_the_log_makes_no_file_meanwhile() {
    let _alone = COUNTING.lock();
    let arguments = ["--runs", "2", "--min-time", "0.1s"];
    let commit = ["commit", "--threads", "2", "--commits", "3", "--beside", "none"];
    let commit = report(&Folder::new("commit-long"), &[&commit[..], &arguments].concat());
    let sync = report(&Folder::new("sync-long"), &[&["sync", "--count", "3"][..], &arguments].concat());
    for (report, count) in [(&commit, "asked"), (&sync, "barriers")] {
        assert!(statuses(report).iter().all(|s| s.0 == "good" || s.0 == "unsupported"), "{report:#}");
        let more = |r: &&Value| r["counts"][count].as_u64().is_some_and(|n| n > 6);
        assert!(rows(report).iter().any(|r| more(&r)), "{report:#}");
    }
}

#[test]
fn trace_tells_every_read() {
    let folder = Folder::new("trace");
    let outside = Folder::new("trace-file");
    let file = outside.0.join("some file");
    std::fs::write(&file, vec![7; 1 << 20]).unwrap();
    let file = file.to_str().unwrap();
    for (order, block) in [("sequential", "8K"), ("random", "1000"), ("again", "64K")] {
        let arguments = ["trace", "--file", file, "--order", order, "--block", block, "--reads", "50", "--lines"];
        let report = report(&folder, &[&arguments[..], &["--blocks", "1,4", "--runs", "2"]].concat());
        let reads: u64 = rows(&report).iter().map(|r| r["counts"]["reads"].as_u64().unwrap()).sum();
        let lines = report["notes"].as_array().unwrap().iter().filter(|n| n.as_str().unwrap().starts_with("WAIT #1:"));
        // Two numbers of blocks, two passes, two runs.
        assert_eq!((reads, lines.count()), (400, 400));
        let buckets = |r: &Value| r["histograms"]["reads"]["buckets"].as_array().unwrap().clone();
        let counted: u64 = rows(&report).iter().flat_map(buckets).map(|b| b[2].as_u64().unwrap()).sum();
        assert_eq!(counted, 400);
        // The file was just written: it is in memory, and known to be.
        assert!(rows(&report).iter().all(|r| r["params"]["from"] == "page cache"), "{report:#}");
    }
}

#[test]
fn trace_reads_the_same_places_again_and_cold_ones_from_the_device() {
    let folder = Folder::new("trace-cold");
    let outside = Folder::new("trace-cold-file");
    let file = outside.0.join("file");
    std::fs::write(&file, vec![7; 1 << 20]).unwrap();
    let arguments = ["trace", "--file", file.to_str().unwrap(), "--blocks", "2", "--reads", "20", "--lines"];
    let cold = report_of_any_verdict(&folder, &[&arguments[..], &["--cache", "cold", "--runs", "1"]].concat());
    // What is cold comes from the device; or the kernel keeps the file in memory, and the row says so.
    let refused = rows(&cold).iter().all(|r| r["status"] == "unsupported" && r["counts"]["reads"] == 0);
    let device = rows(&cold).iter().filter(|r| r["params"]["from"].as_str().unwrap().starts_with("device"));
    assert!(refused || device.count() > 0, "{cold:#}");
    assert!(rows(&cold).iter().all(|r| r["params"]["pass"] == "first"), "{cold:#}");
    let both = report(&folder, &[&arguments[..], &["--runs", "1"]].concat());
    let blocks: Vec<&str> = both["notes"].as_array().unwrap().iter().filter_map(block_of).collect();
    assert_eq!(blocks.len(), 40);
    assert_eq!(blocks[..20], blocks[20..]);
}

fn block_of(note: &Value) -> Option<&str> {
    note.as_str()?.split_once("block#=")?.1.split_whitespace().next()
}

#[test]
fn locks_are_timed_when_told_to() {
    let _alone = COUNTING.lock();
    let arguments = ["locks", "--threads", "1,4", "--count", "20000", "--runs", "2", "--stacks", "1"];
    let report = report(&Folder::new("locks"), &arguments);
    assert!(statuses(&report).iter().all(|s| s.0 == "good"), "{report:#}");
    // Off, off again, on, stacks.
    assert_eq!(rows(&report).len(), 2 * 4);
    for row in rows(&report) {
        let timing = row["params"]["timing"].as_str().unwrap();
        assert_eq!(row["metrics"]["unlock_ns"].is_object(), !timing.starts_with("off"));
        let threads: u64 = row["params"]["threads"].as_str().unwrap().parse().unwrap();
        assert_eq!(row["counts"]["taken"], 20_000 * threads);
        assert_eq!((row["histograms"].is_object(), row["stacks"].is_object()), (timing == "on", timing == "stacks"));
        if timing == "on" {
            let buckets = row["histograms"]["hold"]["buckets"].as_array().unwrap();
            let held: u64 = buckets.iter().map(|b| b[2].as_u64().unwrap()).sum();
            assert_eq!(held, 2 * 20_000 * threads);
        }
    }
    let stacks = rows(&report)[7]["stacks"]["stacks"].as_array().unwrap();
    let innermost = |role: &str| {
        let mine = stacks.iter().filter(|s| s["role"] == role);
        mine.map(|s| s["frames"][0].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    for role in ["waiter", "holder"] {
        let found = innermost(role);
        assert!(!found.is_empty() && found.iter().all(|f| f.ends_with("_work")), "{role}s: {found:?}");
    }
}

#[test]
fn all_of_it_within_a_time() {
    let _alone = COUNTING.lock();
    let folder = Folder::new("all");
    let (_, text) = run(&folder, &["all", "--quick", "--runs", "1", "--max-time", "1s", "--json"]).unwrap();
    let all: Value = serde_json::from_str(&text).unwrap();
    let reports = all["reports"].as_array().unwrap();
    assert!(!reports.is_empty() && reports[0]["command"] == "doctor");
    schema::check(&all);
    assert_eq!(reports.len() + all["notes"].as_array().unwrap().len(), 9, "{text}");
    let both = [("a".to_owned(), all.clone()), ("b".to_owned(), all)];
    let compared = esker_lab::versus::to_text(&both).unwrap();
    assert!(compared.contains("== doctor ==") && !compared.contains("Not matched"), "{compared}");
    assert!(esker_lab::html::page(&both).unwrap().contains("B in percent of A"));
}

#[test]
fn a_planted_difference_is_found() {
    use esker_lab::records::{Records, Shape};
    let folder = Folder::new("planted");
    let path = folder.0.join("file");
    let records = Records::new(Shape::Dynamic, 103, 1000, 1);
    let mut bytes: Vec<u8> = (0..1000).flat_map(|i| records.get(i).to_vec()).collect();
    std::fs::write(&path, &bytes).unwrap();
    assert_eq!(esker_lab::measure::verify(&path, 0, &records, records.all()).unwrap(), None);
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    assert!(esker_lab::measure::verify(&path, 0, &records, records.all())
        .unwrap()
        .unwrap()
        .contains("is not what was written"));
    bytes.pop();
    std::fs::write(&path, &bytes).unwrap();
    assert!(esker_lab::measure::verify(&path, 0, &records, records.all()).unwrap().unwrap().contains("bytes, not"));
}

#[test]
fn the_end_of_the_time_leaves_what_is_done() {
    let folder = Folder::new("time");
    let (_, text) =
        run(&folder, &["io", "--records", "5000", "--runs", "100000", "--max-time", "1s", "--json"]).unwrap();
    let report: Value = serde_json::from_str(&text).unwrap();
    let statuses = statuses(&report);
    assert!(statuses.iter().any(|s| s.0 == "stopped"), "{statuses:?}");
    assert!(rows(&report).iter().any(|r| r["metrics"]["ns"]["samples"].as_array().is_some_and(|s| !s.is_empty())));
}
