//! What the command says, and ends with, when a folder is damaged, in use, missing or of a newer version.

#![allow(clippy::unwrap_used)]

mod common;

use common::{contents, create, esker, flip, insert, open, runs, Scratch};
use esker::format::manifest::{manifest_at, MANIFEST_MAGIC};
use esker::format::run::RUN_HEADER_BYTES;
use serde_json::Value as Json;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// A closed folder with two tables of one run each; gives the first one's file too.
fn closed(scratch: &Scratch) -> (PathBuf, PathBuf) {
    let dir = scratch.db();
    let engine = open(&dir);
    for name in ["a", "b"] {
        let table = create(&engine, name);
        insert(&engine, &table, 0..3000);
        engine.checkpoint().unwrap();
    }
    engine.close().unwrap();
    let files = runs(&dir);
    assert_eq!(files.len(), 2);
    (dir, files[0].clone())
}

#[test]
fn a_whole_folder_is_ok() {
    let scratch = Scratch::new();
    let (dir, _) = closed(&scratch);
    let said = esker(&dir, &["check"]);
    assert_eq!((said.code, said.err.as_str()), (0, ""), "{}", said.out);
    assert_eq!(said.out.matches(": ok\n").count(), 3, "{}", said.out);
    assert!(said.out.contains("3000 row versions"), "{}", said.out);
    let said = esker(&dir, &["check", "b", "--json"]);
    let report: Json = serde_json::from_str(&said.out).unwrap();
    assert_eq!((&report["ok"], report["tables"].as_array().unwrap().len()), (&Json::Bool(true), 1));
    let said = esker(&dir, &["check", "a", "c"]);
    assert_eq!((said.code, said.err.as_str()), (1, "esker: no Esker table 'c'\n"));
}

#[test]
fn a_flipped_bit_in_a_block_is_found_and_nothing_else() {
    let scratch = Scratch::new();
    let (dir, run) = closed(&scratch);
    let block = RUN_HEADER_BYTES as u64;
    flip(&run, block + 500);
    let before = contents(&dir);
    let said = esker(&dir, &["check"]);
    assert_eq!(said.code, 2, "{}{}", said.out, said.err);
    let place = format!("  damaged file {} at byte {block}: checksum mismatch", run.display());
    assert!(said.out.contains(&place), "{}", said.out);
    assert!(said.out.contains("1 block is damaged") && said.out.contains("\nb: "), "{}", said.out);
    assert_eq!(said.out.matches("damaged file").count(), 1, "{}", said.out);

    let said = esker(&dir, &["check", "--json"]);
    assert_eq!(said.code, 2);
    let report: Json = serde_json::from_str(&said.out).unwrap();
    let found = &report["tables"][0]["damage"][0];
    assert_eq!((found["file"].as_str().unwrap(), found["offset"].as_u64().unwrap()), (run.to_str().unwrap(), block));
    assert_eq!((&report["ok"], &report["tables"][1]["ok"]), (&Json::Bool(false), &Json::Bool(true)));

    assert_eq!(esker(&dir, &["check", "b"]).code, 0);
    assert_eq!(esker(&dir, &["info"]).code, 0);
    let said = esker(&dir, &["dump", "a"]);
    assert!(said.code == 2 && said.err.contains(&format!("{} at byte {block}", run.display())), "{}", said.err);
    assert!(contents(&dir) == before);
}

#[test]
fn damage_is_told_by_the_exit_code_to_whoever_stops_reading() {
    let scratch = Scratch::new();
    let (dir, run) = closed(&scratch);
    flip(&run, RUN_HEADER_BYTES as u64 + 500);
    for json in [&[][..], &["--json"]] {
        // The reader is gone before anything is written.
        let mut reader = Command::new("true").stdin(Stdio::piped()).spawn().unwrap();
        let writer = reader.stdin.take().unwrap();
        reader.wait().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_esker"));
        let said = command.arg("check").arg(&dir).args(json).stdout(writer).output().unwrap();
        assert_eq!((said.status.code(), said.stderr.len()), (Some(2), 0), "{json:?}: {said:?}");
    }
}

#[test]
fn a_run_without_its_end_or_a_missing_one_is_damage() {
    for missing in [false, true] {
        let scratch = Scratch::new();
        let (dir, run) = closed(&scratch);
        if missing {
            fs::remove_file(&run).unwrap();
        } else {
            let bytes = fs::read(&run).unwrap();
            fs::write(&run, &bytes[..bytes.len() - 100]).unwrap();
        }
        assert_eq!(esker(&dir, &["info"]).code, 0, "the folder opens; only that run's rows are lost");
        for args in [&["check"][..], &["check", "--json"]] {
            let said = esker(&dir, args);
            let all = said.out + &said.err;
            assert!(said.code == 2 && all.contains(run.to_str().unwrap()), "{args:?}: {} {all}", said.code);
        }
    }
}

#[test]
fn a_damaged_manifest_is_damage() {
    let scratch = Scratch::new();
    let (dir, _) = closed(&scratch);
    flip(&dir.join("MANIFEST"), manifest_at::BODY as u64 + 8);
    for args in ["check", "info", "wal"] {
        let said = esker(&dir, &[args]);
        let all = said.out + &said.err;
        assert!(said.code == 2 && all.contains("MANIFEST at byte 0: checksum mismatch"), "{args}: {all}");
    }
}

/// A folder that is none of Esker's is another mistake.
#[test]
fn a_manifest_that_is_gone_is_damage_where_data_is_left() {
    let scratch = Scratch::new();
    let (dir, _) = closed(&scratch);
    fs::remove_file(dir.join("MANIFEST")).unwrap();
    let expect = |code: i32, words: &str| {
        for args in [&["check"][..], &["check", "--json"], &["info"], &["wal"], &["dump", "t"]] {
            let said = esker(&dir, args);
            let all = said.out + &said.err;
            assert!(
                said.code == code && all.contains("MANIFEST is missing") && all.contains(words),
                "{args:?}: {} {all}",
                said.code
            );
        }
    };
    expect(2, "holds files");
    fs::remove_dir_all(dir.join("runs")).unwrap();
    expect(2, "holds files");
    fs::remove_dir_all(dir.join("wal")).unwrap();
    expect(1, "no Esker folder");
}

#[test]
fn an_edit_that_the_log_does_not_reach_back_before_is_damage_of_the_manifest() {
    let scratch = Scratch::new();
    let (dir, _) = closed(&scratch);
    let manifest = fs::read(dir.join("MANIFEST")).unwrap();
    let at = (0..manifest.len()).step_by(4096).rfind(|at| manifest[at + 8..].starts_with(b"ESKMED")).unwrap();
    flip(&dir.join("MANIFEST"), at as u64 + 26);
    for segment in fs::read_dir(dir.join("wal")).unwrap() {
        fs::remove_file(segment.unwrap().path()).unwrap();
    }
    for args in ["check", "info", "wal"] {
        let said = esker(&dir, &[args]);
        let all = said.out + &said.err;
        assert!(said.code == 2 && all.contains(&format!("MANIFEST at byte {at}: checksum mismatch")), "{args}: {all}");
    }
}

#[test]
fn a_damaged_log_is_damage() {
    let scratch = Scratch::new();
    let engine = open(&scratch.db());
    let table = create(&engine, "t");
    for n in 0..20 {
        insert(&engine, &table, n..n + 1);
    }
    let dir = scratch.crashed();
    let mut logs: Vec<_> = fs::read_dir(dir.join("wal")).unwrap().map(|e| e.unwrap().path()).collect();
    logs.retain(|p| p.extension().is_some_and(|e| e == "wal"));
    logs.sort();
    // A frame in the middle of what was durable: behind it are others.
    let bytes = fs::read(&logs[0]).unwrap();
    let middle = bytes.windows(9).position(|w| w == b"of row 10").unwrap();
    flip(&logs[0], middle as u64);
    for args in ["check", "wal"] {
        let said = esker(&dir, &[args]);
        let all = said.out + &said.err;
        assert!(said.code == 2 && all.contains(&format!("{} at byte ", logs[0].display())), "{args}: {all}");
    }
    for log in &logs {
        fs::remove_file(log).unwrap();
    }
    let said = esker(&dir, &["wal"]);
    assert!(said.code == 2 && said.err.contains("has no file that holds position"), "{}", said.err);
}

#[test]
fn a_folder_in_use_is_refused() {
    let scratch = Scratch::new();
    let dir = scratch.db();
    let engine = open(&dir);
    create(&engine, "t");
    for args in [&["check"][..], &["info"], &["dump", "t"], &["wal"]] {
        let said = esker(&dir, args);
        assert_eq!((said.code, said.out.as_str()), (1, ""), "{args:?}");
        let want = format!("esker: {} is in use: stop the server first", dir.display());
        assert!(said.err.starts_with(&want), "{}", said.err);
    }
    engine.close().unwrap();
    assert_eq!(esker(&dir, &["check"]).code, 0);
}

#[test]
fn a_missing_folder_is_refused_and_not_made() {
    let scratch = Scratch::new();
    let dir = scratch.db();
    for job in ["check", "info", "wal"] {
        let said = esker(&dir, &[job]);
        assert_eq!((said.code, said.err), (1, format!("esker: there is no folder {}\n", dir.display())));
    }
    assert!(!dir.exists());
    fs::create_dir(&dir).unwrap();
    for job in ["check", "info", "wal"] {
        let said = esker(&dir, &[job]);
        assert!(said.code == 1 && said.err.contains("no Esker folder: "), "{}", said.err);
    }
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
}

#[test]
fn a_newer_version_is_refused() {
    let scratch = Scratch::new();
    let (dir, _) = closed(&scratch);
    let path = dir.join("MANIFEST");
    let mut bytes = fs::read(&path).unwrap();
    bytes[manifest_at::VERSION..manifest_at::VERSION + 4].copy_from_slice(&99u32.to_le_bytes());
    let body = bytes[manifest_at::BODY_BYTES..manifest_at::BODY].try_into().map(u64::from_le_bytes).unwrap();
    let base = &bytes[manifest_at::MAGIC..manifest_at::BODY + body as usize];
    let sum = xxhash_rust::xxh3::xxh3_64_with_seed(base, MANIFEST_MAGIC);
    bytes[manifest_at::CHECKSUM..manifest_at::CHECKSUM + 8].copy_from_slice(&sum.to_le_bytes());
    fs::write(&path, &bytes).unwrap();
    for job in ["check", "info", "wal"] {
        let said = esker(&dir, &[job]);
        assert_eq!(said.code, 1, "{}{}", said.out, said.err);
        assert!(said.err.contains("format version 99") && said.err.contains("upgrade Esker"), "{}", said.err);
    }
    assert_eq!(fs::read(&path).unwrap(), bytes);
}
