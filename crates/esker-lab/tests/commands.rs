//! Each command on small sizes: its JSON against the schema, its counts against theory, and failures that must show.

#![allow(clippy::unwrap_used)]

mod lab;

use clap::Parser;
use esker_lab::{LabError, Verdict};
use lab::{report, report_of_any_verdict, rows, run, schema, statuses, Command, Folder, COUNTING};
use serde_json::{json, Value};

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
fn nothing_is_measured_of_nothing() {
    let folder = Folder::new("nothing");
    let nothing: [(&[&str], &str); 5] = [
        (&["io", "--records", "0"], "--records"),
        (&["io", "--records", "1000,0"], "--records"),
        (&["buffer", "--records", "0"], "--records"),
        (&["recovery", "--records", "0"], "--records"),
        (&["trace", "--reads", "0"], "--reads"),
    ];
    for (arguments, option) in nothing {
        let said = run(&folder, arguments).unwrap_err();
        assert!(matches!(said, LabError::Invalid(_)), "{said:?}");
        assert_eq!(said.to_string(), format!("{option} must be at least 1"));
        assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 0);
    }
}

#[test]
fn a_page_that_cannot_be_is_refused_before_anything_is_measured() {
    let (folder, outside) = (Folder::new("no-page"), Folder::new("no-page-files"));
    let file = |name: &str| outside.0.join(name).to_str().unwrap().to_owned();
    std::fs::write(file("report.json"), "{}").unwrap();
    for (page, why) in [
        (file("missing/page.html"), "No such file"),
        (file(""), "Is a directory"),
        (file("report.json"), "no page of HTML"),
    ] {
        // What is refused later has another reason.
        for command in [&["sync", "--max-space", "0"][..], &["all", "--full", "--max-space", "0", "--max-time", "1s"]] {
            let said = run(&folder, &[command, &["--html", &page]].concat()).unwrap_err().to_string();
            assert!(said.starts_with(&format!("cannot write {page}")) && said.contains(why), "{said}");
            assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 0, "{command:?}");
        }
    }
    assert_eq!(std::fs::read_to_string(file("report.json")).unwrap(), "{}");
    // Whoever looks leaves nothing, and a page is written over.
    let page = file("page.html");
    let few = ["sync", "--count", "1", "--rates", "0", "--runs", "1", "--min-time", "0", "--html", &page];
    for _ in 0..2 {
        run(&folder, &few).unwrap();
        assert!(std::fs::read_to_string(&page).unwrap().ends_with("</html>\n"));
    }
    assert!(run(&folder, &["sync", "--count", "0", "--html", &file("other.html")]).is_err());
    assert_eq!(std::fs::read_dir(&outside.0).unwrap().count(), 2);
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
fn a_page_is_made_of_one_report_or_two() {
    let folder = Folder::new("page");
    let outside = Folder::new("page-files");
    let file = |name: &str| outside.0.join(name).to_str().unwrap().to_owned();
    let (_, text) =
        run(&folder, &["io", "--records", "1000", "--runs", "1", "--json", "--html", &file("page.html")]).unwrap();
    std::fs::write(file("a.json"), text).unwrap();
    let page = std::fs::read_to_string(file("page.html")).unwrap();
    let rects = page.matches("<rect").count();
    assert!(rects > 10 && !page.contains("<script"));
    assert!(page.contains("over time: write plain") && page.contains("each 2 records"), "{page}");
    let both = Command::try_parse_from(["lab", "report", &file("a.json"), &file("a.json")]).unwrap();
    let mut out = Vec::new();
    assert_eq!(esker_lab::run(&both.lab, &mut out).unwrap(), Verdict::Good);
    assert_eq!(String::from_utf8(out).unwrap().matches("<rect").count(), 2 * rects);
    // With a longer one, and in words.
    let (_, text) = run(&folder, &["io", "--records", "3000", "--runs", "1", "--json"]).unwrap();
    std::fs::write(file("b.json"), text).unwrap();
    let both = Command::try_parse_from(["lab", "report", "--text", &file("a.json"), &file("b.json")]).unwrap();
    let mut out = Vec::new();
    assert_eq!(esker_lab::run(&both.lab, &mut out).unwrap(), Verdict::Good);
    let text = String::from_utf8(out).unwrap();
    assert!(text.contains("1000 | 3000  write      plain") && !text.contains("Not matched"), "{text}");
    let date =
        |name: &str| text.lines().any(|l| l.starts_with(&format!("{name}: date 2")) && !l.contains("kernel unknown"));
    assert!(date("a") && date("b"), "{text}");
}

#[test]
fn no_text_of_a_report_moves_the_cursor() {
    let outside = Folder::new("odd-report");
    let odd = "a\u{1b}[2J\r\u{9b}1mb";
    let report = |rows: &[&str]| {
        let row = |way: &&str| json!({ "params": { odd: odd, "way": way }, "status": odd, "why": odd, "metrics": {} });
        json!({
            "schema": "esker-lab", "schema_version": 2, "command": odd, "params": [odd, "way"], "options": { odd: rows },
            "machine": { "kernel": odd }, "date": odd, "rows": rows.iter().map(row).collect::<Vec<_>>(), "notes": [odd],
        })
    };
    let files: Vec<String> = ["a.json", "b.json"].map(|n| outside.0.join(n).to_str().unwrap().to_owned()).into();
    std::fs::write(&files[0], report(&["x", "y"]).to_string()).unwrap();
    std::fs::write(&files[1], report(&["x"]).to_string()).unwrap();
    for how in [&[][..], &["--text"]] {
        let words = [&["lab", "report", &files[0], &files[1]][..], how].concat();
        let mut out = Vec::new();
        esker_lab::run(&Command::try_parse_from(words).unwrap().lab, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("a [2J  1mb"), "{text}");
        assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text:?}");
    }
}

#[test]
fn reports_of_buffer_from_before_it_had_ways_are_of_the_only_one() {
    let folder = Folder::new("old-buffer");
    let outside = Folder::new("old-buffer-files");
    let file = |name: &str| outside.0.join(name).to_str().unwrap().to_owned();
    let arguments = ["buffer", "--records", "3000", "--from", "64K", "--to", "256K", "--runs", "2", "--json"];
    let (_, text) = run(&folder, &arguments).unwrap();
    std::fs::write(file("new.json"), text).unwrap();
    let old = include_str!("fixtures/buffer_without_ways.json");
    std::fs::write(file("old.json"), old).unwrap();
    std::fs::write(
        file("all.json"),
        format!(r#"{{"schema":"esker-lab","schema_version":2,"command":"all","reports":[{old}]}}"#),
    )
    .unwrap();
    let told = |words: &[&str]| {
        let command = Command::try_parse_from([&["lab"], words].concat()).unwrap();
        let mut out = Vec::new();
        assert_eq!(esker_lab::run(&command.lab, &mut out).unwrap(), Verdict::Good);
        String::from_utf8(out).unwrap()
    };
    let written = |r: &&Value| r["params"].get("way").is_none();
    let rows_of = serde_json::from_str::<Value>(old).unwrap();
    assert_eq!(rows(&rows_of).iter().filter(written).count(), rows(&rows_of).len());
    for (a, b) in [("old.json", "new.json"), ("new.json", "old.json"), ("all.json", "new.json")] {
        let text = told(&["report", "--text", &file(a), &file(b)]);
        let line = |l: &&str| l.contains("write") && l.contains("static") && l.contains("cached") && l.contains("128K");
        assert!(text.lines().any(|l| line(&l)), "{a} {b}: {text}");
        // Nothing is left over but the way that there was not.
        let unmatched: Vec<&str> = text.lines().filter(|l| l.contains("only in the")).collect();
        assert!(
            !unmatched.is_empty() && unmatched.iter().all(|l| l.contains("esker") && !l.contains("cached")),
            "{text}"
        );
        assert!(told(&["report", &file(a), &file(b)]).contains("B in percent of A"));
    }
    let advice = told(&["advise", &file("old.json")]);
    assert!(
        advice.contains("esker_bulk_buffer_size") && advice.contains("No good row says anything of it"),
        "{advice}"
    );
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
fn a_folder_that_is_there_is_somebody_elses() {
    let folder = Folder::new("others");
    let name = format!("esker-lab-io-{}", std::process::id());
    let theirs = folder.0.join(&name);
    std::fs::create_dir(&theirs).unwrap();
    std::fs::write(theirs.join("file"), "somebody's").unwrap();
    std::os::unix::fs::symlink(&theirs, folder.0.join(format!("{name}-2"))).unwrap();
    let dir = folder.0.to_str().unwrap();
    let words = ["lab", "io", "--records", "1000", "--ways", "plain", "--runs", "1", "--dir", dir];
    esker_lab::run(&Command::try_parse_from(words).unwrap().lab, &mut Vec::new()).unwrap();
    assert_eq!(std::fs::read_to_string(theirs.join("file")).unwrap(), "somebody's");
    assert_eq!((std::fs::read_dir(&theirs).unwrap().count(), std::fs::read_dir(&folder.0).unwrap().count()), (1, 2));
}

#[test]
fn what_cannot_be_is_refused() {
    let folder = Folder::new("refused");
    let refused = |arguments: &[&str]| match run(&folder, arguments) {
        Err(e) => e.to_string(),
        Ok((_, text)) => panic!("{arguments:?} was not refused: {text}"),
    };
    assert!(refused(&["io", "--max-space", "1M"]).contains("--max-space allows 1M"));
    assert!(refused(&["io", "--records", "99999999999999"]).contains("to spare; use fewer or smaller --records"));
    assert!(refused(&["io", "--buffer", "0"]).contains("--buffer must be"));
    assert!(refused(&["io", "--runs", "0"]).contains("--runs must be"));
    assert!(refused(&["io", "--records", "3", "--clients", "4"]).contains("too few for 4 clients"));
    assert!(refused(&["buffer", "--from", "2G", "--to", "1G"]).contains("buffers go from"));
    assert!(refused(&["buffer", "--io-size", "100", "--model", "myisam"]).contains("power of two"));
    assert!(refused(&["sync", "--threads", "65"]).contains("between 1 and 64"));
    // A number that no machine has.
    let huge = "18446744073709551615";
    assert!(refused(&["sync", "--count", huge]).contains("more than any machine has"));
    assert!(refused(&["commit", "--commits", huge]).contains("more than any machine has"));
    assert!(refused(&["buffer", "--records", huge]).contains("more than any machine has"));
    assert!(refused(&["io", "--records", &format!("{huge},2")]).contains("to spare"));
    assert!(refused(&["locks", "--count", huge]).contains("more than any machine has"));
    // The hint names what there is.
    assert!(refused(&["sync", "--count", "100M"]).contains("smaller --count, --sizes or --threads"));
    assert!(refused(&["commit", "--commits", "1000M", "--beside", "none"]).contains("smaller --commits or --bytes"));
    // All times are memory too.
    let times = ["sync", "--count", "10K", "--sizes", "1", "--min-time", "0", "--threads", "64", "--max-memory", "40M"];
    assert!(refused(&times).contains("--max-memory allows 40M"));
    // What would be taken and then ignored.
    assert!(refused(&["sync", "--cache", "warm"]).contains("--cache does nothing here"));
    assert!(refused(&["memory", "--cache", "warm"]).contains("--cache does nothing here"));
    assert!(refused(&["buffer", "--cache", "both"]).contains("either cold or warm"));
    assert!(refused(&["buffer", "--io-size", "4096"]).contains("it is of --model myisam"));
    assert!(refused(&["io", "--depth", "3", "--ways", "plain,cached"]).contains("--depth does nothing here"));
    assert!(refused(&["io", "--buffer", "4K", "--ways", "mapped,plain"]).contains("--buffer does nothing here"));
    assert!(refused(&["io", "--one-file"]).contains("--one-file does nothing here"));
    assert!(refused(&["io", "--only", "write", "--cache", "cold"]).contains("--cache does nothing here"));
    assert!(refused(&["io", "--only", "read", "--existing"]).contains("--existing does nothing here"));
    assert!(refused(&["io", "--ways", "plain", "--window", "4K"]).contains("--window, --madvise does nothing here"));
    for window in ["0", "1025G"] {
        assert!(refused(&["io", "--window", window]).contains("--window must be between 1 byte and 1T"));
    }
    assert!(refused(&["io", "--clients", "2:0"]).contains("--clients must be"));
    assert!(refused(&["io", "--clients", "2:1", "--only", "read"]).contains("without --only"));
    // Memory is part of the plan.
    let large = ["--records", "1K", "--buffer", "1G", "--depth", "64"];
    assert!(refused(&[&["io", "--max-memory", "500M"], &large[..]].concat()).contains("--max-memory allows 500M"));
    let clients =
        ["io", "--records", "1K", "--buffer", "1G", "--depth", "1000", "--clients", "100", "--ways", "direct"];
    let words = refused(&clients);
    assert!(words.contains("is available; use less or smaller buffers"), "{words}");
    assert!(refused(&["buffer", "--max-memory", "1M"]).contains("--max-memory allows 1M"));
    assert!(refused(&["trace", "--blocks", "1000", "--block", "1M", "--max-memory", "1M"]).contains("of memory"));
    // Every read is kept.
    assert!(refused(&["trace", "--reads", "1G", "--max-memory", "64M"]).contains("--max-memory allows 64M"));
    assert!(refused(&["trace", "--reads", huge]).contains("more than any machine has"));
    let reads = ["trace", "--reads", "20K", "--blocks", "1", "--runs", "4", "--max-memory", "40M"];
    assert!(refused(&[&reads[..], &["--lines"]].concat()).contains("--max-memory allows 40M"));
    let typo = folder.0.join("no-such-folder");
    // Those that measure several things, too: not a report in which nothing was measured.
    for command in ["doctor", "all", "advise"] {
        let command = Command::try_parse_from(["lab", command, "--dir", typo.to_str().unwrap()]).unwrap();
        let error = esker_lab::run(&command.lab, &mut Vec::new()).unwrap_err();
        assert!(error.to_string().contains("there is no folder") && !typo.exists(), "{error}");
    }
    // A pipe would be waited for, and a device has no end.
    for arguments in [&["trace"][..], &["io", "--only", "read"]] {
        let words = refused(&[arguments, &["--file", "/dev/zero"]].concat());
        assert!(words.contains("no regular file"), "{words}");
    }
    let file = folder.0.join("file");
    std::fs::write(&file, "").unwrap();
    let command = Command::try_parse_from(["lab", "io", "--dir", file.to_str().unwrap()]).unwrap();
    let error = esker_lab::run(&command.lab, &mut Vec::new()).unwrap_err();
    assert!(error.to_string().contains("cannot create folder"), "{error}");
    std::fs::remove_file(file).unwrap();
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
