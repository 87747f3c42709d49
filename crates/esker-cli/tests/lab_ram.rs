//! `esker lab io --ram`: a file that is larger than the memory allowed does not stay in it.

#![allow(clippy::unwrap_used)]

mod common;

use common::Scratch;
use serde_json::Value;
use std::process::Command;

#[test]
fn a_file_larger_than_memory_is_read_from_the_device_again() {
    let folder = Scratch::named("ram");
    let arguments =
        ["lab", "io", "--records", "2000000", "--ways", "cached", "--cache", "warm", "--runs", "1", "--json"];
    let run = |more: &[&str]| {
        let dir = ["--dir", folder.name()];
        Command::new(env!("CARGO_BIN_EXE_esker")).args(arguments).args(dir).args(more).output().unwrap()
    };
    let read = |text: &[u8]| {
        let report: Value = serde_json::from_slice(text).unwrap();
        let rows = report["rows"].as_array().unwrap();
        let row = rows.iter().find(|r| r["params"]["do"] == "read warm").unwrap();
        assert_eq!(row["status"], "good", "{row}");
        row["metrics"]["device_mib"]["median"].as_f64().unwrap()
    };
    let limited = run(&["--ram", "100M"]);
    let words = String::from_utf8_lossy(&limited.stderr).into_owned();
    if limited.status.code() == Some(4) {
        assert!(words.contains("--ram"), "{words}");
        eprintln!("no memory group here: {words}");
    } else if std::fs::canonicalize(&folder).unwrap().starts_with("/dev/shm") {
        eprintln!("the folder is memory: not tested");
    } else {
        // Of 196 MiB at most half fit.
        assert!(read(&limited.stdout) > 90.0, "{words}");
        assert_eq!(read(&run(&[]).stdout), 0.0);
    }
    folder.assert_empty();
}
