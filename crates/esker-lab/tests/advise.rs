//! `esker lab advise` on reports made by hand: what it advises, on which rows, and when it keeps silent.

#![allow(clippy::unwrap_used)]

mod lab;

use clap::Parser;
use esker_lab::{LabError, Verdict};
use lab::{command, schema, Command};
use serde_json::{json, Value};

/// A folder for reports.
struct Folder(lab::Folder);

impl Folder {
    fn new(name: &str) -> Folder {
        Folder(lab::Folder::new(&format!("advise-{name}")))
    }

    fn file(&self, name: &str) -> String {
        self.0 .0.join(name).to_str().unwrap().to_owned()
    }

    /// Advice on some reports, each a file.
    fn advise(&self, reports: &[Value], more: &[&str]) -> Result<(Verdict, String), LabError> {
        let name = |n: usize| self.file(&format!("{n}.json"));
        let names: Vec<String> = (0..reports.len()).map(name).collect();
        for (name, report) in names.iter().zip(reports) {
            std::fs::write(name, report.to_string()).unwrap();
        }
        let files = names.iter().map(String::as_str);
        command(&["advise"].into_iter().chain(files).chain(more.iter().copied()).collect::<Vec<_>>())
    }

    /// The advice on one setting: its row's parameters.
    fn on(&self, setting: &str, reports: &[Value]) -> Value {
        let (_, text) = self.advise(reports, &["--json"]).unwrap();
        let advice: Value = serde_json::from_str(&text).unwrap();
        schema::check(&advice);
        let rows = advice["rows"].as_array().unwrap();
        rows.iter().find(|r| r["params"]["setting"] == setting).unwrap()["params"].clone()
    }
}

/// A good row: sixteen samples within two percent, whose order is the row's own.
fn row(params: Value, metric: &str, median: f64) -> Value {
    let seed = params.to_string().bytes().fold(7u64, |sum, b| sum.wrapping_mul(31).wrapping_add(b.into()));
    let mut samples: Vec<f64> = (0..16).map(|n| median * (0.98 + 0.04 * f64::from(n) / 15.0)).collect();
    fastrand::Rng::with_seed(seed).shuffle(&mut samples);
    let figure =
        json!({ "unit": "s", "median": median, "low": 0.98 * median, "high": 1.02 * median, "samples": samples });
    json!({
        "params": params, "metrics": { metric: figure }, "counts": {}, "status": "good", "why": "", "base": null,
        "percent": null, "noise": { "steal": 0.0, "cpu_pressure": 0.0, "io_pressure": 0.0 },
    })
}

fn report(command: &str, options: Value, null_test: Option<f64>, rows: Vec<Value>) -> Value {
    json!({
        "schema": "esker-lab", "schema_version": 1, "esker_version": "0", "command": command, "options": options,
        "machine": {
            "kernel": "6.1", "cpu": "a cpu", "cores": 2, "memory_bytes": 8u64 << 30, "file_system": "ext4",
            "mount_options": "rw", "device": {},
        },
        "null_difference": null_test, "relative": null, "rows": rows, "notes": [], "exit_code": 0,
        "params": match command {
            "buffer" => json!(["do", "records", "way", "buffer"]),
            "sync" => json!(["threads", "bytes", "file", "barrier"]),
            "commit" => json!(["threads", "commit"]),
            "io" => json!(["do", "way"]),
            "recovery" => json!(["log", "commits"]),
            _ => json!(["what", "found", "remark"]),
        },
    })
}

const SIZES: [&str; 7] = ["64K", "128K", "256K", "512K", "1M", "2M", "4M"];

/// What `buffer` would print, with these times for 64K to 4M; another way's are the other way round.
fn buffers(times: [f64; 7]) -> Value {
    let row = |way: &'static str| {
        move |(size, time): (&str, f64)| {
            row(json!({ "do": "write", "records": "static", "way": way, "buffer": size }), "durable_s", time)
        }
    };
    let own = SIZES.into_iter().zip(times).map(row("esker"));
    let other = SIZES.into_iter().zip(times.into_iter().rev()).map(row("cached"));
    report("buffer", json!({ "model": "esker" }), None, own.chain(other).collect())
}

const BULK: &str = "esker_bulk_buffer_size";

/// 2M is best, 256K cannot be told from it, 128K and the default 1M can.
const WINNER: [f64; 7] = [9.0, 2.0, 1.01, 1.02, 1.5, 1.0, 1.2];

#[test]
fn the_smallest_buffer_that_nothing_beats_is_advised() {
    let folder = Folder::new("winner");
    let advice = folder.on(BULK, &[buffers(WINNER)]);
    assert_eq!(advice["outcome"], "change");
    assert_eq!((&advice["default"], &advice["advised"]), (&json!("4M"), &json!("1M")));
    let rests = advice["rests on"].as_str().unwrap();
    for row in [
        "buffer write static esker 1M: durable_s in s: 1.50 (1.47 to 1.53, 16 runs)",
        "buffer write static esker 256K: durable_s in s: 1.01",
        "buffer write static esker 2M: durable_s in s: 1.00",
    ] {
        assert!(rests.contains(row), "'{row}' is missing in {rests}");
    }
    assert!(!rests.contains("64K"), "{rests}");
}

#[test]
fn a_figure_beside_a_verdict_is_of_pairs_as_it_is() {
    // Ten rounds take a fifth longer, six take two fifths: in the median a fifth, by pairs 27 percent.
    let mut rows = ["off", "on"].map(|t| row(json!({ "threads": "4", "timing": t }), "ns", 100.0));
    let off: Vec<f64> = (0..16).map(|n| 100.0 + f64::from(n * 7 % 16) / 100.0).collect();
    let on = |(n, v): (usize, &f64)| v * if n % 16 / 2 % 3 == 1 { 1.4 } else { 1.2 };
    rows[1]["metrics"]["ns"]["samples"] = off.iter().enumerate().map(on).collect();
    rows[1]["metrics"]["ns"]["median"] = json!(120.0);
    rows[0]["metrics"]["ns"]["samples"] = json!(off);
    let mut report = report("locks", json!({}), None, rows.into());
    report["params"] = json!(["threads", "timing"]);
    let advice = Folder::new("pairs").on("esker_profile_locks", &[report]);
    assert_eq!(advice["outcome"], "keep");
    assert!(advice["why"].as_str().unwrap().contains("threads 4: 27.1 percent"), "{advice}");
}

#[test]
fn what_cannot_be_told_apart_leaves_the_default() {
    let folder = Folder::new("same");
    let same = |reports: &[Value]| {
        let advice = folder.on(BULK, reports);
        assert_eq!(advice["advised"], "4M");
        advice["outcome"] == "no measurable difference"
    };
    assert!(same(&[buffers([1.0, 1.0, 1.001, 1.0, 1.001, 1.0, 1.0])]));
    // Seven pairs of rounds tell nothing, neither that they differ nor that they do not.
    for times in [WINNER, [1.0; 7]] {
        let mut few = buffers(times);
        for row in few["rows"].as_array_mut().unwrap() {
            row["metrics"]["durable_s"]["samples"].as_array_mut().unwrap().pop();
        }
        let advice = folder.on(BULK, &[few]);
        assert_eq!((&advice["outcome"], &advice["advised"]), (&json!("undecided"), &json!("4M")));
        assert!(advice["why"].as_str().unwrap().contains("Fewer than 16 rounds"), "{advice}");
    }
    // What is too noisy is not the same.
    let mut noisy = buffers([1.0; 7]);
    for (n, sample) in
        noisy["rows"][5]["metrics"]["durable_s"]["samples"].as_array_mut().unwrap().iter_mut().enumerate()
    {
        *sample = json!(if n % 4 < 2 { 0.7 } else { 1.4 });
    }
    assert_eq!(folder.on(BULK, &[noisy])["outcome"], "undecided");
}

#[test]
fn what_was_not_measured_says_what_to_run() {
    let folder = Folder::new("missing");
    let (_, text) = folder.advise(&[report("doctor", json!({}), None, vec![])], &["--json"]).unwrap();
    let advice: Value = serde_json::from_str(&text).unwrap();
    for row in advice["rows"].as_array().unwrap() {
        let params = &row["params"];
        assert_eq!((&params["outcome"], &params["default"]), (&json!("not measured"), &params["advised"]), "{params}");
        assert!(params["why"].as_str().unwrap().contains("run 'esker lab "), "{params}");
    }
}

#[test]
fn only_good_rows_of_the_right_rule_count() {
    let folder = Folder::new("void");
    let mut void = buffers(WINNER);
    for n in [2, 3, 5, 6] {
        void["rows"][n]["status"] = json!("void");
    }
    // Without them the default is the best that is left.
    let advice = folder.on(BULK, &[void]);
    assert_eq!(advice["outcome"], "no measurable difference");
    assert!(!advice["rests on"].as_str().unwrap().contains("2M"));
    let mut other = buffers(WINNER);
    other["options"]["model"] = json!("myisam");
    assert_eq!(folder.on(BULK, &[other])["outcome"], "not measured");
}

#[test]
fn noise_is_told() {
    let folder = Folder::new("noise");
    let mut noisy = buffers(WINNER);
    noisy["rows"][4]["noise"]["steal"] = json!(0.4);
    let (verdict, text) = folder.advise(&[noisy], &[]).unwrap();
    assert!(text.contains("the host took 40 percent of the processors' time"), "{text}");
    assert_eq!(verdict, Verdict::Noisy);
}

fn barriers(reserved_rwf: f64) -> Value {
    let row = |file: &str, barrier: &str, us: f64| {
        row(json!({ "threads": "1", "bytes": "4K", "file": file, "barrier": barrier }), "median_us", us)
    };
    let rows = vec![
        row("appended", "fdatasync", 400.0),
        row("zero-filled", "fdatasync", 100.0),
        row("zero-filled", "sync_file_range", 10.0),
        row("reserved", "RWF_DSYNC", reserved_rwf),
        // No choice: large writes, and what is not durable.
        row("recycled, large writes", "fdatasync", 1.0),
        row("recycled", "none", 1.0),
    ];
    report("sync", json!({}), None, rows)
}

#[test]
fn a_bad_choice_of_the_engine_is_named() {
    let folder = Folder::new("choice");
    let barrier = |us: f64| folder.on("engine: the log's barrier", &[barriers(us)]);
    let bad = barrier(50.0);
    assert_eq!(bad["outcome"], "the engine chose badly here");
    assert!(bad["why"].as_str().unwrap().contains("'reserved RWF_DSYNC' took 50.0 percent"), "{bad}");
    // sync_file_range is no barrier.
    assert_eq!(barrier(100.0)["outcome"], "no measurable difference");
    assert_eq!(barrier(300.0)["outcome"], "keep");
}

#[test]
fn replay_is_held_against_what_the_engine_takes_for_granted() {
    let folder = Folder::new("replay");
    let log = |kind: &str, commits: &str, bytes: f64, seconds: f64| {
        let mut row = row(json!({ "log": kind, "commits": commits }), "open_s", seconds);
        let samples = [bytes; 3];
        row["metrics"]["replayed_bytes"] =
            json!({ "unit": "bytes", "median": bytes, "low": bytes, "high": bytes, "samples": samples });
        row
    };
    let on = |seconds: f64| {
        let rows = vec![
            log("grows", "1", 1e6, 1.0),
            log("grows", "2", 1e6 + f64::from(64 << 20), 1.0 + seconds),
            // Of another kind: it is not held against the first ones.
            log("kept short", "2", 1e5, 9.0),
        ];
        folder.on("esker_recovery_target_seconds", &[report("recovery", json!({}), None, rows)])
    };
    assert_eq!(on(0.5)["outcome"], "no measurable difference");
    let slow = on(2.0);
    assert_eq!((&slow["outcome"], &slow["advised"]), (&json!("the engine chose badly here"), &json!("2")));
}

#[test]
fn bulk_files_are_judged_by_rows_of_their_own_pieces() {
    let folder = Folder::new("bulk");
    let on = |buffer: u64| {
        let row = |way: &str, s: f64| row(json!({ "do": "write", "way": way }), "durable_s", s);
        let rows = vec![row("plain", 9.0), row("plain again", 0.1), row("esker", 2.0), row("cached", 1.0)];
        folder.on("engine: writing bulk files", &[report("io", json!({ "buffer_bytes": buffer }), None, rows)])
    };
    let bad = on(1 << 20);
    assert_eq!((&bad["outcome"], &bad["advised"]), (&json!("the engine chose badly here"), &json!("cached")));
    assert_eq!(on(128 << 10)["outcome"], "not measured");
}

fn commits() -> Value {
    let row = |mode: &str, rate: f64| row(json!({ "threads": "8", "commit": mode }), "per_second", rate);
    // The log's alone are not what a server's commits cost.
    let raw = [
        ("group commit", 7000.0),
        ("one sync per commit", 9000.0),
        ("no sync", 500_000.0),
        ("2pc, prepare synced", 1.0),
    ];
    let sessions = [("", 5000.0), (", one sync per commit", 800.0), (", no sync", 90_000.0), (", 2pc", 3000.0)];
    let sessions = sessions.map(|(how, rate)| (format!("engine's sessions{how}"), rate));
    let mut rows: Vec<Value> = raw.into_iter().map(|(mode, rate)| row(mode, rate)).collect();
    rows.extend(sessions.iter().map(|(mode, rate)| row(mode, *rate)));
    rows.push(row("engine's sessions, 2pc, coordinator not synced", 4500.0));
    report("commit", json!({}), None, rows)
}

#[test]
fn durability_is_priced_and_never_given_up() {
    let folder = Folder::new("durable");
    let flush = folder.on("esker_flush_log_at_trx_commit", &[commits()]);
    assert_eq!((&flush["outcome"], &flush["advised"]), (&json!("durable"), &json!("1")));
    assert!(flush["why"].as_str().unwrap().contains("threads 8: 5000 a second instead of 90000"), "{flush}");
    let binlog = folder.on("sync_binlog", &[commits()]);
    assert_eq!((&binlog["default"], &binlog["advised"]), (&json!("0"), &json!("1")));
    let why = binlog["why"].as_str().unwrap();
    assert!(why.contains("against 0, with threads 8: 3000 a second instead of 4500"), "{why}");
    assert!(why.contains("against no binlog, with threads 8: 3000 a second instead of 5000"), "{why}");
    // All of it from the engine's sessions.
    for setting in ["esker_flush_log_at_trx_commit", "sync_binlog", "engine: who syncs commits"] {
        let advice = folder.on(setting, &[commits()]);
        let rests = advice["rests on"].as_str().unwrap();
        assert!(rests.contains("engine's sessions") && rests.split("; ").all(|r| r.contains("engine's")), "{rests}");
    }
    let own = folder.on("engine: who syncs commits", &[commits()]);
    assert_eq!(own["outcome"], "keep", "{own}");
    // Without them nothing is said.
    let mut old = commits();
    old["rows"].as_array_mut().unwrap().truncate(4);
    assert_eq!(folder.on("sync_binlog", &[old])["outcome"], "not measured");
}

/// What `buffer --model myisam` would print: 1M is best, of what is written as of what is read.
fn myisam() -> Value {
    let row = |what: &'static str| {
        move |(n, size): (usize, &str)| {
            let ns = [9.0, 2.0, 2.0, 1.5, 1.0, 1.0, 1.0][n];
            row(json!({ "do": what, "records": "static", "way": "cached", "buffer": size }), "ns", ns)
        }
    };
    let rows = ["write", "read warm"].into_iter().flat_map(|what| SIZES.into_iter().enumerate().map(row(what)));
    report("buffer", json!({ "model": "myisam" }), None, rows.collect())
}

#[test]
fn a_buffer_of_every_connection_is_memory() {
    let folder = Folder::new("connections");
    let on = |reports: &[Value], more: &[&str]| {
        let (_, text) = folder.advise(reports, &[&["--json"], more].concat()).unwrap();
        let advice: Value = serde_json::from_str(&text).unwrap();
        let rows = advice["rows"].as_array().unwrap();
        rows.iter().find(|r| r["params"]["setting"] == "read_buffer_size").unwrap()["params"].clone()
    };
    // Of 8G: 151 times 1M, and what the default would take less.
    let usual = on(&[myisam()], &[]);
    assert_eq!((&usual["outcome"], &usual["advised"]), (&json!("change"), &json!("1M")), "{usual}");
    let why = usual["why"].as_str().unwrap();
    assert!(why.contains("151 connections (--max-connections) take up to 151M, 132.1M more than by default"), "{why}");
    assert!(usual["rests on"].as_str().unwrap().contains("read warm static"), "{usual}");
    // 2340 times 896K are less than a quarter of 8G, 2341 are more.
    assert_eq!(on(&[myisam()], &["--max-connections", "2340"])["outcome"], "change");
    let many = on(&[myisam()], &["--max-connections", "2341"]);
    assert_eq!((&many["outcome"], &many["advised"]), (&json!("keep"), &many["default"]), "{many}");
    assert!(many["why"].as_str().unwrap().contains("more than 2G, a quarter of the memory"), "{many}");
    // A container's limit is what there is.
    let mut row = row(json!({ "what": "memory limit", "found": "256M", "remark": "" }), "none", 0.0);
    row["metrics"] = json!({});
    let doctor = report("doctor", json!({}), None, vec![row]);
    let small = on(&[myisam(), doctor], &[]);
    assert_eq!(small["outcome"], "keep", "{small}");
    assert!(small["why"].as_str().unwrap().contains("more than 64M, a quarter of the memory"), "{small}");
    // What the engine bounds itself is told, and advised all the same.
    let (_, text) =
        folder.advise(&[buffers([9.0, 9.0, 9.0, 9.0, 5.0, 1.0, 1.2])], &["--max-connections", "9999"]).unwrap();
    assert!(text.contains("esker_bulk_buffer_size = 8M (default 4M): change"), "{text}");
    assert!(text.contains("within a quarter of esker_memory_limit: 9999 connections"), "{text}");
    let refused = |n: &str| Command::try_parse_from(["lab", "advise", "--max-connections", n]).is_err();
    assert!(refused("0") && refused("many") && refused("100001"));
}

#[test]
fn memory_is_taken_where_it_pays_and_within_the_limit() {
    let folder = Folder::new("memory");
    let io = |cold: f64| {
        let row = |what: &str, ns: f64| row(json!({ "do": what, "way": "cached" }), "ns", ns);
        report("io", json!({}), Some(0.05), vec![row("read cold", cold), row("read warm", 10.0)])
    };
    let doctor = |limit: &str| {
        let mut row = row(json!({ "what": "memory limit", "found": limit, "remark": "" }), "none", 0.0);
        row["metrics"] = json!({});
        report("doctor", json!({}), Some(0.05), vec![row])
    };
    let on = |reports: &[Value]| {
        let advice = folder.on("esker_memory_limit", reports);
        (advice["outcome"].as_str().unwrap().to_owned(), advice["advised"].as_str().unwrap().to_owned())
    };
    let is = |outcome: &str, advised: &str| (outcome.to_owned(), advised.to_owned());
    assert_eq!(on(&[io(40.0)]), is("change", "2G"));
    assert_eq!(on(&[io(10.0)]), is("no measurable difference", "256M"));
    assert_eq!(on(&[io(40.0), doctor("2147483648")]), is("change", "512M"));
    assert_eq!(on(&[io(10.0), doctor("268435456")]), is("change", "64M"));
    // As the doctor prints them.
    assert_eq!(on(&[io(10.0), doctor("256M")]), is("change", "64M"));
    assert_eq!(on(&[io(40.0), doctor("1.5G")]), is("change", "384M"));
    assert_eq!(on(&[io(40.0), doctor("none")]), is("change", "2G"));
    // Any report knows the limit under which it was made.
    let mut contained = io(40.0);
    contained["machine"]["memory_limit_bytes"] = json!(256 << 20);
    assert_eq!(on(&[contained]), is("change", "64M"));
}

#[test]
fn a_cnf_says_on_what_it_rests() {
    let folder = Folder::new("cnf");
    let cnf = folder.file("esker.cnf");
    let reports = [buffers(WINNER), commits(), barriers(100.0)];
    folder.advise(&reports, &["--cnf", &cnf]).unwrap();
    let text = std::fs::read_to_string(&cnf).unwrap();
    let lines: Vec<&str> = text.lines().filter(|l| !l.is_empty() && !l.starts_with('#')).collect();
    assert_eq!(lines, ["[mariadb]", "loose_esker_bulk_buffer_size = 1M", "sync_binlog = 1"]);
    assert!(text.contains("#   buffer write static esker 2M: durable_s in s: 1.00"), "{text}");
    assert!(text.contains("# loose_esker_flush_log_at_trx_commit = 1"), "{text}");
    // It is not written over unless told to.
    std::fs::write(&cnf, "mine").unwrap();
    let error = folder.advise(&reports, &["--cnf", &cnf]).unwrap_err().to_string();
    assert!(error.contains("is there already: --force"), "{error}");
    assert_eq!(std::fs::read_to_string(&cnf).unwrap(), "mine");
    folder.advise(&reports, &["--cnf", &cnf, "--force"]).unwrap();
    assert_eq!(std::fs::read_to_string(&cnf).unwrap(), text);
}

#[test]
fn no_text_of_a_report_becomes_a_setting() {
    let folder = Folder::new("injected");
    let evil = "x\r\nplugin_load = evil\u{85}\u{1b}[2J\n";
    let mut reports = [buffers(WINNER), commits(), barriers(50.0)];
    for report in &mut reports {
        report["machine"] = json!({ "cpu": evil, "cores": evil, "file_system": evil });
        report["shown"] = json!([{ "name": "durable_s", "heading": evil }, { "name": "median_us", "heading": evil }]);
        report["params"].as_array_mut().unwrap().push("more".into());
        for row in report["rows"].as_array_mut().unwrap() {
            row["params"]["more"] = json!(evil);
            row["metrics"].as_object_mut().unwrap().values_mut().for_each(|m| m["unit"] = json!(evil));
        }
    }
    reports[2]["rows"][3]["params"]["barrier"] = json!(evil);
    let cnf = folder.file("esker.cnf");
    let (_, said) = folder.advise(&reports, &["--cnf", &cnf]).unwrap();
    let text = std::fs::read_to_string(&cnf).unwrap();
    let lines: Vec<&str> = text.lines().filter(|l| !l.is_empty() && !l.starts_with('#')).collect();
    assert_eq!(lines, ["[mariadb]", "loose_esker_bulk_buffer_size = 1M", "sync_binlog = 1"]);
    for text in [text, said] {
        assert!(text.contains("evil") && !text.contains(|c: char| c.is_control() && c != '\n'), "{text:?}");
    }
}

#[test]
fn reports_of_all_are_taken_and_others_refused() {
    let folder = Folder::new("refused");
    let all = json!({
        "schema": "esker-lab", "schema_version": 1, "command": "all", "reports": [buffers(WINNER), commits()],
    });
    assert_eq!(folder.on(BULK, &[all])["outcome"], "change");
    let refused = |report: Value| folder.advise(&[buffers(WINNER), report], &[]).unwrap_err().to_string();
    let mut other = commits();
    other["machine"]["cores"] = json!(64);
    assert!(refused(other).contains("several machines: 'cores' differs"));
    assert!(refused(json!({})).contains("is no report of esker lab"));
    assert!(refused(report("advise", json!({}), None, vec![])).contains("is advice"));
    std::fs::write(folder.file("broken"), "{").unwrap();
    let error = command(&["advise", &folder.file("broken")]).unwrap_err().to_string();
    assert!(error.contains("broken is no JSON"), "{error}");
    // What only who measures has a use for.
    let measuring = ["--runs", "--cache", "--max-time", "--max-space", "--max-memory", "--wait-for-quiet"];
    for (option, value) in measuring.into_iter().zip(["2", "cold", "5s", "1G", "1G", "5s"]) {
        let error = folder.advise(&[commits()], &[option, value]).unwrap_err().to_string();
        assert!(error.contains(option) && error.contains("does nothing here"), "{error}");
    }
    for (option, value) in [("--dir", "."), ("--seed", "2")] {
        let words = ["lab", "advise", &folder.file("0.json"), option, value];
        let error = Command::try_parse_from(words).err().unwrap().to_string();
        assert!(error.contains("cannot be used with") && error.contains(option), "{error}");
    }
}

#[test]
fn it_measures_itself_when_told_of_nothing() {
    let folder = Folder::new("itself");
    // The time is over soon: what was not measured is not advised on.
    let (_, text) = folder.advise(&[], &["--dir", &folder.file(""), "--runs", "1", "--max-time", "1s"]).unwrap();
    assert!(text.contains("was not run: the time is over") && text.contains("not measured"), "{text}");
    assert_eq!(std::fs::read_dir(&folder.0 .0).unwrap().count(), 0, "something was left behind");
}
