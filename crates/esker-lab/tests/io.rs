//! `esker lab io` on small sizes: its ways, what is left out, and somebody's file.

#![allow(clippy::unwrap_used)]

mod lab;

use clap::Parser;
use lab::{report, report_of_any_verdict, rows, run, statuses, values, Command, Folder};
use serde_json::Value;

#[test]
fn io_compares_all_ways() {
    let extras = [
        &[][..],
        &["--existing"],
        &["--cache", "warm", "--buffer", "5000"],
        &["--clients", "3", "--depth", "1"],
        &["--clients", "3", "--one-file"],
        &["--clients", "2", "--one-file", "--existing", "--record-bytes", "7"],
    ];
    for extra in extras {
        let arguments = [&["io", "--records", "20000", "--runs", "2"], extra].concat();
        let report = report(&Folder::new("io"), &arguments);
        let groups = if extra.contains(&"warm") { 2 } else { 3 };
        assert_eq!(rows(&report).len(), groups * 7);
        let own = rows(&report).iter().find(|r| r["params"]["way"] == "esker").unwrap();
        let new = !extra.contains(&"--existing") && !extra.contains(&"--one-file");
        assert_eq!(own["status"] == "good", new, "{own}");
        let buffers = if extra.contains(&"5000") {
            252
        } else if extra.contains(&"3") {
            18
        } else {
            16
        };
        assert!(!new || own["counts"]["calls"] == buffers, "{own}");
        for (row, (status, why)) in rows(&report).iter().zip(statuses(&report)) {
            // A file system without O_DIRECT, and a cache that cannot be dropped, are not ours.
            assert!(status == "good" || status == "unsupported", "{}: {status}: {why}", row["params"]);
        }
        let plain = &rows(&report)[0];
        assert_eq!((&plain["counts"]["calls"], &plain["percent"]), (&Value::from(20_000), &Value::from(100.0)));
    }
}

#[test]
fn only_what_is_asked_for_is_measured() {
    let base = ["io", "--records", "3K", "--runs", "2", "--ways", "plain,cached"];
    let of = |more: &[&str]| report(&Folder::new("only"), &[&base[..], more].concat());
    let written = of(&["--only", "write"]);
    assert_eq!(
        (values(&written, "do"), values(&written, "way")),
        (vec!["write".into()], vec!["plain".into(), "cached".into()])
    );
    let read = of(&["--only", "read", "--cache", "warm"]);
    assert_eq!(values(&read, "do"), ["read warm"]);
    assert!(rows(&read).iter().all(|r| r["status"] == "good" && r["metrics"]["durable_s"].is_null()), "{read:#}");
}

#[test]
fn somebodys_file_is_read_and_never_written() {
    let folder = Folder::new("somebody");
    let outside = Folder::new("somebodys-file");
    let file = outside.0.join("file");
    let bytes: Vec<u8> = (0..1_000_000u32).flat_map(u32::to_le_bytes).collect();
    std::fs::write(&file, &bytes).unwrap();
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o444)).unwrap();
    let changed = || std::fs::metadata(&file).unwrap().modified().unwrap();
    let (before, name) = (changed(), file.to_str().unwrap());
    for (more, state, records) in [
        (&[][..], "read warm", "38834"),
        (&["--cache", "cold", "--clients", "3"], "read cold", "38834"),
        (&["--records", "1000", "--window", "4K", "--madvise", "random"], "read warm", "1000"),
    ] {
        let arguments = [&["io", "--file", name, "--runs", "2"][..], more].concat();
        let report = report_of_any_verdict(&folder, &arguments);
        assert_eq!((values(&report, "do"), values(&report, "records")), (vec![state.into()], vec![records.into()]));
        assert!(statuses(&report).iter().all(|s| s.0 == "good" || s.0 == "unsupported"), "{report:#}");
        assert!(statuses(&report).iter().any(|s| s.0 == "good") || state == "read cold", "{report:#}");
    }
    assert!(before == changed() && std::fs::read(&file).unwrap() == bytes);
    let refused = |more: &[&str]| match run(&folder, &[&["io", "--file", name, "--runs", "1"], more].concat()) {
        Err(e) => e.to_string(),
        Ok((_, text)) => panic!("{more:?} was not refused: {text}"),
    };
    assert!(refused(&["--only", "write"]).contains("never written"));
    assert!(refused(&["--clients", "1:1"]).contains("never written"));
    assert!(refused(&["--records", "40000"]).contains("has 38834 of 103 bytes"));
    assert!(Command::try_parse_from(["lab", "io", "--file", name, "--existing"]).is_err());
}

#[test]
fn readers_and_writers_at_once_have_their_own_times() {
    let arguments = ["io", "--records", "6K", "--runs", "2", "--clients", "2:1", "--cache", "warm"];
    let report = report(&Folder::new("mixed"), &arguments);
    assert_eq!(values(&report, "do"), ["mixed warm"]);
    for row in rows(&report).iter().filter(|r| r["status"] != "unsupported") {
        assert_eq!(row["status"], "good", "{row:#}");
        let of = |name: &str| row["metrics"][name]["median"].as_f64().unwrap();
        assert!(of("read_ns") > 0.0 && of("write_ns") > 0.0);
        // All records are read and all are written: the slower side is the whole.
        assert!(of("ns") * 2.0 <= 1.01 * (of("read_ns") + of("write_ns")), "{row:#}");
        let calls = row["counts"]["calls"].as_u64().unwrap();
        match row["params"]["way"].as_str().unwrap() {
            "mapped" => assert_eq!(calls, 0),
            // A call a record, of both.
            way if way.starts_with("plain") => assert_eq!(calls, 12_000),
            _ => assert!(calls > 0),
        }
    }
}

#[test]
fn windows_may_have_any_size() {
    for (window, bytes, advice, more) in [
        ("4K", 4096, "sequential", &["--clients", "2", "--one-file"][..]),
        ("1M", 1 << 20, "willneed", &["--clients", "2", "--one-file"]),
        ("5000", 5000, "random", &["--clients", "3", "--one-file"]),
        ("5000", 5000, "sequential", &["--clients", "2:1"]),
        ("1048577", 1_048_577, "sequential", &["--existing"]),
        ("3", 3, "random", &[]),
    ] {
        // Each record of three bytes' windows is 35 of them.
        let records = if bytes == 3 { "300" } else { "11K" };
        let arguments = ["io", "--records", records, "--runs", "2", "--ways", "plain,mapped", "--cache", "warm"];
        let more = [&["--window", window, "--madvise", advice], more].concat();
        let report = report(&Folder::new("windows"), &[arguments.as_slice(), &more].concat());
        // Good is what was read back byte for byte, and as many.
        assert!(statuses(&report).iter().all(|s| s.0 == "good"), "{report:#}");
        assert_eq!(
            (&report["options"]["madvise"], &report["options"]["window_bytes"]),
            (&advice.into(), &bytes.into())
        );
    }
}

#[test]
fn numbers_may_be_thousands_and_buffers_larger_than_the_file() {
    let arguments =
        ["io", "--records", "2K", "--buffer", "64M", "--depth", "64", "--ways", "cached,direct", "--runs", "1"];
    let report = report(&Folder::new("large-buffers"), &arguments);
    assert!(rows(&report).iter().all(|r| r["params"]["records"] == "2000"), "{report:#}");
    assert!(statuses(&report).iter().all(|s| s.0 == "good" || s.0 == "unsupported"), "{report:#}");
}
