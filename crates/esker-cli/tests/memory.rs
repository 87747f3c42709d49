//! `esker lab memory` as a process that starts processes: rows, allocators that are no allocators, stopping.

#![allow(clippy::unwrap_used)]

mod common;
#[path = "../../esker-lab/tests/schema/mod.rs"]
mod schema;

use common::Scratch;
use serde_json::Value;
use std::process::{Command, Stdio};

fn memory(dir: &Scratch, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_esker"));
    command.args(["lab", "memory", "--bytes", "8M", "--churn", "3", "--json", "--dir"]).arg(dir.path()).args(arguments);
    command
}

/// The report, and the exit code.
fn report(name: &str, arguments: &[&str]) -> (Value, Option<i32>) {
    let dir = Scratch::named(&format!("memory-{name}"));
    let output = memory(&dir, arguments).args(["--wait", "0.01"]).output().unwrap();
    dir.assert_empty();
    let words = String::from_utf8_lossy(&output.stderr);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {words}"));
    schema::check(&report);
    (report, output.status.code())
}

fn row<'a>(report: &'a Value, name: &str) -> &'a Value {
    report["rows"].as_array().unwrap().iter().find(|r| r["params"]["allocator"] == name).unwrap()
}

fn figure(row: &Value, name: &str) -> f64 {
    row["metrics"][name]["median"].as_f64().unwrap_or_else(|| panic!("{name} in {row:#}"))
}

#[test]
fn memory_is_told_at_each_step() {
    for more in [&[][..], &["--delete", "oldest", "--threads", "3", "--survivors", "0"]] {
        let arguments = [&["--allocators", "system,regions", "--runs", "2"], more].concat();
        let (report, code) = report("steps", &arguments);
        assert!(matches!(code, Some(0 | 3)), "{report:#}");
        for name in ["system", "regions"] {
            let row = row(&report, name);
            assert_eq!(row["status"], "good", "{row:#}");
            assert_eq!(row["metrics"]["loaded_rss"]["samples"].as_array().unwrap().len(), 2);
            // The rows are in memory once they are loaded.
            let asked = row["counts"]["asked"].as_f64().unwrap() / f64::from(1 << 20);
            assert!((7.0..9.0).contains(&asked), "{asked}");
            assert!(figure(row, "loaded_rss") - figure(row, "start_rss") >= asked, "{row:#}");
            assert!(figure(row, "churn_faults") >= 0.0 && figure(row, "churned_rss") > 0.0);
        }
        // Regions give memory back: of 8 MiB at most what is kept for the next ones and a region that is begun a thread.
        let regions = row(&report, "regions");
        assert!(figure(regions, "later_rss") < figure(regions, "loaded_rss") - 2.0, "{regions:#}");
        if more.contains(&"oldest") {
            assert!(figure(regions, "half_rss") < figure(regions, "loaded_rss"), "{regions:#}");
        }
    }
}

#[test]
fn an_environment_that_is_no_text_stops_nothing() {
    use std::os::unix::ffi::OsStrExt;
    let dir = Scratch::named("memory-environment");
    let odd = std::ffi::OsStr::from_bytes(b"a\xffb");
    let mut command = memory(&dir, &["--allocators", "system", "--runs", "1", "--wait", "0.01"]);
    let output = command.env("ANY", odd).env("MALLOC_NONE", odd).output().unwrap();
    let words = String::from_utf8_lossy(&output.stderr);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {words}"));
    let notes = report["notes"].as_array().unwrap();
    assert!(notes.contains(&"MALLOC_NONE=a\u{fffd}b was set.".into()), "{notes:?}");
    dir.assert_empty();
}

#[test]
fn what_is_no_allocator_is_a_row_that_says_so() {
    let dir = Scratch::named("memory-preload");
    let text = dir.path().join("text.so");
    std::fs::write(&text, "no library").unwrap();
    let blank = dir.path().join("a b.so");
    let files = [text.to_str().unwrap(), "/no/such/library.so", blank.to_str().unwrap()];
    let preload: Vec<&str> = files.iter().flat_map(|f| ["--preload", f]).collect();
    let arguments = [&["--allocators", "system", "--runs", "1"], &preload[..]].concat();
    let (report, code) = report("no-allocator", &arguments);
    assert!(matches!(code, Some(0 | 3)), "{report:#}");
    let whys = ["malloc is still", "no/such/library.so", "no path with a blank"];
    for (file, words) in files.iter().zip(whys) {
        let row = row(&report, file);
        assert_eq!((&row["status"], &row["metrics"]), (&"unsupported".into(), &serde_json::json!({})), "{row:#}");
        assert!(row["why"].as_str().unwrap().contains(words), "{row:#}");
    }
}

/// A library that another program has loaded, and that has no malloc: it can be preloaded, and must not count.
#[test]
fn a_library_without_malloc_is_found_out() {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let library = maps.lines().filter_map(|l| l.split_once('/')).map(|l| format!("/{}", l.1));
    let Some(library) = library.into_iter().find(|l| l.contains("libgcc_s")) else {
        // A test that is linked statically has none at hand.
        return;
    };
    let (report, _) = report("no-malloc", &["--allocators", "system", "--runs", "1", "--preload", &library]);
    let why = row(&report, &library)["why"].as_str().unwrap();
    assert!(why.contains("it was preloaded, but malloc is still"), "{why}");
}

#[test]
fn allocators_that_are_installed_are_measured_and_others_name_their_package() {
    let (report, _) = report("all", &["--runs", "1"]);
    for (name, package) in [("jemalloc", "libjemalloc2"), ("mimalloc", "libmimalloc2.0"), ("tcmalloc", "libtcmalloc")] {
        let row = row(&report, name);
        match row["status"].as_str().unwrap() {
            "good" => assert!(figure(row, "loaded_rss") > figure(row, "start_rss")),
            "unsupported" => assert!(row["why"].as_str().unwrap().contains(package), "{row:#}"),
            _ => panic!("{row:#}"),
        }
    }
}

/// The end of the time ends the process that waits, too.
#[test]
fn a_long_wait_is_cut_short() {
    let dir = Scratch::named("memory-long");
    let mut child = memory(&dir, &["--allocators", "system", "--wait", "7207", "--max-time", "1s"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = String::new();
    std::io::Read::read_to_string(child.stdout.as_mut().unwrap(), &mut output).unwrap();
    assert!(child.wait().unwrap().code().is_some());
    let report: Value = serde_json::from_str(&output).unwrap();
    assert_eq!(row(&report, "system")["status"], "stopped");
    let loads = std::fs::read_dir("/proc").unwrap().filter_map(|e| std::fs::read(e.ok()?.path().join("cmdline")).ok());
    let ours = |line: &Vec<u8>| {
        let words: Vec<&[u8]> = line.split(|b| *b == 0).collect();
        words.contains(&&b"memory-load"[..]) && words.contains(&&b"7207"[..])
    };
    assert_eq!(loads.filter(ours).count(), 0, "the process that waits is still there");
    dir.assert_empty();
}
