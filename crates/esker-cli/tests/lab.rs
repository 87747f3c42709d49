//! `esker lab` as a process: exit codes, Ctrl-C, nothing left behind.

#![allow(clippy::unwrap_used)]

mod common;

use common::Scratch;
use serde_json::Value;
use std::io::Read;
use std::process::{Command, Stdio};

fn esker(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_esker"));
    command.arg("lab").args(arguments);
    command
}

#[test]
fn ctrl_c_leaves_what_is_done_and_no_files() {
    let folder = Scratch::named("lab-ctrl-c");
    let dir = folder.name();
    let mut child = esker(&["io", "--records", "300000", "--runs", "100000", "--json", "--dir", dir])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // It is at work once what it reads is there in full, and something is written beside it.
    let at_work = || {
        let inner = std::fs::read_dir(&folder).unwrap().next()?.ok()?.path();
        inner.join("written").exists().then_some(())
    };
    while at_work().is_none() {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it was stopped");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let report: Value = serde_json::from_str(&text).unwrap();
    assert!(report["rows"].as_array().unwrap().iter().any(|r| r["status"] == "stopped"));
    assert_eq!(report["exit_code"], 130);
    folder.assert_empty();
}

#[test]
fn a_report_says_what_it_was_built_from() {
    let folder = Scratch::named("lab-commit");
    let output = esker(&["doctor", "--json", "--runs", "1", "--dir", folder.name()]).output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let git = Command::new("git").args(["rev-parse", "--is-inside-work-tree"]).output();
    // Without git there is nothing to say.
    let told = report["commit"].as_str().is_some_and(|c| c.len() >= 7 && c.chars().all(|c| c.is_ascii_hexdigit()));
    assert_eq!(told, git.is_ok_and(|o| o.status.success()), "{}", report["commit"]);
    folder.assert_empty();
}

#[test]
fn an_aligned_append_reads_no_tail_but_its_first() {
    let folder = Scratch::named("lab-append");
    let arguments =
        ["buffer", "--records", "20000", "--from", "128K", "--to", "128K", "--runs", "2", "--json", "--dir"];
    let output = esker(&arguments).arg(folder.path()).output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    for (what, each) in [("append", true), ("append aligned", false)] {
        let fits = |r: &&Value| r["params"]["do"] == what && r["params"]["records"] == "static";
        let row = report["rows"].as_array().unwrap().iter().find(fits).unwrap();
        if row["status"] == "unsupported" {
            eprintln!("skipped: the file cannot be dropped here: {}", row["why"]);
            continue;
        }
        let (writes, read) = (row["counts"]["calls"].as_f64(), row["metrics"]["tail_reads"]["low"].as_f64());
        let (writes, read) = (writes.unwrap(), read.unwrap());
        assert_eq!((row["status"].as_str(), writes >= 15.0), (Some("good"), true), "{row:#}");
        // A page before each write that begins within one; of those that are aligned only the first does.
        assert!(if each { read >= writes - 1.0 } else { read < writes / 2.0 }, "{what}: {read} of {writes}");
    }
    folder.assert_empty();
}

#[test]
fn who_may_not_ask_for_the_page_cache_is_told_nothing_of_it() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    let folder = Scratch::named("lab-mincore");
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o777)).unwrap();
    let outside = folder.path().with_extension("outside");
    std::fs::create_dir_all(&outside).unwrap();
    let file = outside.join("file");
    std::fs::write(&file, vec![7; 4 << 20]).unwrap();
    let words = ["trace", "--reads", "50", "--runs", "1", "--json", "--file", file.to_str().unwrap(), "--dir"];
    let trace = |mut command: Command| {
        let output = command.args(words).arg(folder.path()).output().ok()?;
        serde_json::from_slice::<Value>(&output.stdout).ok()
    };
    let from = |report: &Value| -> Vec<String> {
        let rows = report["rows"].as_array().unwrap().iter();
        rows.map(|r| r["params"]["from"].as_str().unwrap().to_owned()).collect()
    };
    let mine = trace(esker(&[])).unwrap();
    assert!(from(&mine).iter().all(|f| !f.contains(" or ")), "{mine:#}");
    // Only root can become nobody, who does not own the file and may not write it.
    let mut nobody = esker(&[]);
    nobody.uid(65_534).gid(65_534);
    match trace(nobody) {
        Some(report) => {
            assert!(from(&report).iter().all(|f| f.starts_with("page cache or device")), "{report:#}");
            let notes = report["notes"].as_array().unwrap();
            assert!(notes.iter().any(|n| n.as_str().unwrap().contains("the kernel tells that only")), "{report:#}");
            eprintln!("nobody was told nothing");
        }
        None => eprintln!("skipped: no other user can be had here"),
    }
    std::fs::remove_dir_all(outside).unwrap();
    folder.assert_empty();
}

#[test]
fn recovery_finds_every_row_after_a_crash() {
    let folder = Scratch::named("lab-recovery");
    let dir = folder.name();
    let arguments = ["recovery", "--records", "300,3000", "--runs", "1", "--json", "--dir", dir];
    let output = esker(&arguments).output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["rows"].as_array().unwrap().len(), 4);
    // The log is kept short, then only grows.
    for (row, n) in report["rows"].as_array().unwrap().iter().zip([300, 3000, 300, 3000]) {
        assert_eq!((row["status"].as_str(), &row["counts"]["rows"]), (Some("good"), &Value::from(n)), "{report:#}");
        assert!(row["metrics"]["replayed"]["median"].as_f64().unwrap() >= f64::from(n));
        // The phases are all of it.
        let [open, replay, rest] =
            ["open_s", "replay_s", "rest_s"].map(|m| row["metrics"][m]["median"].as_f64().unwrap());
        assert!(replay > 0.0 && rest > 0.0 && (replay + rest - open).abs() < 1e-9, "{row}");
        // Of the first one: the log is read, and the segment is made in which it goes on.
        let [read, segment] = ["read_s", "segment_s"].map(|m| row["metrics"][m]["median"].as_f64().unwrap());
        assert!(read > 0.0 && segment > 0.0 && read + segment < replay, "{row}");
    }
    // Two lengths of the log tell no law.
    assert!(report["notes"].as_array().unwrap().iter().any(|n| n.as_str().unwrap().contains("no law can be told")));
    folder.assert_empty();
}

#[test]
fn a_load_tells_how_far_it_is() {
    let folder = Scratch::named("lab-load");
    let dir = folder.path().join("data");
    let arguments = ["recovery-load", "--records", "250", "--target", "0", "--dir", dir.to_str().unwrap()];
    let output = esker(&arguments).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let told: Vec<u64> = String::from_utf8(output.stdout).unwrap().lines().map(|l| l.parse().unwrap()).collect();
    assert_eq!(told, (1..=125).map(|n| 2 * n).collect::<Vec<_>>());
}

#[test]
fn a_load_that_is_stopped_leaves_no_process_and_no_files() {
    let folder = Scratch::named("lab-load-stopped");
    let dir = folder.name();
    let arguments = ["recovery", "--records", "300,100000000", "--runs", "1", "--target", "5", "--json", "--dir", dir];
    let arguments = [&arguments[..], &["--max-time", "2s", "--seed", "1"]].concat();
    let output = esker(&arguments).output().unwrap();
    // Such a log may not find room here: then there is nothing to stop.
    if output.status.code() != Some(1) {
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(report["rows"].as_array().unwrap().iter().any(|r| r["status"] == "stopped"), "{report:#}");
    }
    folder.assert_empty();
}

#[test]
fn wrong_arguments_and_no_space_are_one() {
    let folder = Scratch::named("lab-wrong");
    let dir = folder.name();
    for arguments in [
        &["io", "--records", "x"][..],
        &["io", "--max-time", "5м", "--dir", dir],
        &["io", "--max-space", "1K", "--dir", dir],
        &["doctor", "--dir", "/proc/no-such-folder"],
        &["report", "/no/such/file"],
    ] {
        let output = esker(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(!output.stderr.is_empty(), "{arguments:?} says nothing");
    }
    folder.assert_empty();
}

#[test]
fn what_never_comes_to_an_end_is_refused() {
    let folder = Scratch::named("lab-endless");
    let dir = folder.name();
    for arguments in [
        &["report", "/dev/zero"][..],
        &["advise", "/dev/zero"],
        &["memory", "--pid", "1", "--dir", dir, "--accounts", "/dev/zero"],
    ] {
        let output = esker(arguments).output().unwrap();
        let words = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), &*words), (Some(1), "esker: cannot read /dev/zero: it is a device\n"));
    }
    folder.assert_empty();
}

#[test]
fn a_byte_changed_beneath_the_readers_is_exit_code_two() {
    // Writes may come before the next reading, each with its syncs: where those are slow it is given more time.
    let (_, report) =
        [4, 15, 40].into_iter().map(read_with_a_byte_changed).find(|(code, _)| *code == Some(2)).expect("not seen");
    let void = |r: &Value| r["status"] == "void" && r["params"]["do"] == "read warm";
    assert!(report["rows"].as_array().unwrap().iter().any(void), "{report:#}");
}

/// Stopped so many seconds after a byte of what is read was changed: how it ends, and what it tells.
fn read_with_a_byte_changed(seconds: u64) -> (Option<i32>, Value) {
    use std::os::unix::fs::FileExt;
    let folder = Scratch::named("lab-planted");
    let dir = folder.name();
    let arguments = ["io", "--records", "20000", "--runs", "1000000", "--ways", "cached", "--cache", "warm", "--json"];
    let mut child = esker(&arguments)
        .args(["--max-time", "60s", "--dir", dir])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // Something is written beside what is read: that is there in full, and is read again and again.
    let source = loop {
        assert!(child.try_wait().unwrap().is_none(), "it ended before anything was planted");
        let inner = std::fs::read_dir(&folder).unwrap().next().map(|e| e.unwrap().path());
        match inner.filter(|i| i.join("written").exists()) {
            Some(inner) => break inner.join("read"),
            None => std::thread::sleep(std::time::Duration::from_millis(5)),
        }
    };
    let file = std::fs::OpenOptions::new().read(true).write(true).open(source).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, 103 * 5000).unwrap();
    file.write_all_at(&[!byte[0]], 103 * 5000).unwrap();
    std::thread::sleep(std::time::Duration::from_secs(seconds));
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    let code = child.wait().unwrap().code();
    folder.assert_empty();
    (code, serde_json::from_str(&text).unwrap())
}

#[test]
fn what_all_could_not_run_is_exit_code_one() {
    let folder = Scratch::named("lab-all-refused");
    let arguments = ["all", "--quick", "--max-space", "1K", "--json", "--dir", folder.name()];
    // Memory and locks need no space: they are not what this is about.
    let output = esker(&arguments).args(["--max-time", "20s", "--runs", "1"]).output().unwrap();
    let all: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), &all["exit_code"]), (Some(1), &Value::from(1)));
    assert!(all["notes"].as_array().unwrap().iter().any(|n| n.as_str().unwrap().contains("--max-space allows 1K")));
    folder.assert_empty();
}
