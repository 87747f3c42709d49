//! info, dump and wal: what they say of a folder, and that they leave it as it was.

#![allow(clippy::unwrap_used)]

mod common;

use common::{contents, create, esker, flip, insert, open, options, packed, runs, Scratch};
use esker::format::key_bytes::key_encoding;
use esker::format::manifest::manifest_at;
use esker::format::FormatError;
use esker::{BeginOptions, Collations, Engine, Isolation, Options, PosixDisk, Schema, TableDef, Type};
use serde_json::{json, Value as Json};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

/// Two tables, one of them in runs, the other in the log; a prepared transaction; a copy as a crash leaves it.
fn crashed(scratch: &Scratch) -> std::path::PathBuf {
    let engine: Engine = open(&scratch.db());
    let old = create(&engine, "d/old");
    insert(&engine, &old, 0..5000);
    engine.checkpoint().unwrap();
    let new = create(&engine, "d/new");
    insert(&engine, &new, 0..5);
    let mut session = engine.session();
    session.begin(Isolation::RepeatableRead, BeginOptions::default());
    session.insert_row(&new, &packed(&new, 77)).unwrap();
    session.prepare(b"the xid").unwrap();
    session.detach_prepared();
    let copy = scratch.crashed();
    // A file that no table knows: a start of the server removes it, a look must not.
    std::fs::write(copy.join("runs/00000000000000ff.run"), b"left behind").unwrap();
    copy
}

#[test]
fn looking_changes_nothing() {
    let scratch = Scratch::new();
    let dir = crashed(&scratch);
    let before = contents(&dir);
    for args in [&["check"][..], &["info"], &["info", "--json"], &["dump", "d/new"], &["wal"]] {
        let said = esker(&dir, args);
        assert_eq!((said.code, said.err.as_str()), (0, ""), "{args:?}: {}", said.out);
        assert!(contents(&dir) == before, "{args:?} changed the folder");
    }
    let engine = open(&dir);
    assert_eq!(engine.tables(), ["d/new", "d/old"]);
    assert!(!dir.join("runs/00000000000000ff.run").exists());
}

/// As a server's are, which alone knows what its texts weigh.
#[derive(Debug)]
struct NoCase;

impl Collations for NoCase {
    fn weights(&self, _: u32, value: &[u8], _: u32, weights: &mut Vec<u8>) -> Result<(), FormatError> {
        weights.extend(value.iter().map(u8::to_ascii_uppercase));
        Ok(())
    }
}

#[test]
fn a_table_whose_texts_only_a_server_can_compare_is_checked() {
    let scratch = Scratch::new();
    let options = Options { collations: Arc::new(NoCase), ..options() };
    let engine = Engine::open(Arc::new(PosixDisk::new()), &scratch.db(), options, Arc::new(|_, _| {})).unwrap();
    let schema = Schema::new().column("id", Type::U64).column("name", Type::Text(60));
    let def = TableDef::of(&schema).unwrap().unique("by_id", &["id"]).unwrap();
    let mut def = def.index("by_name", &["name"]).unwrap().index("by_padded_name", &["name"]).unwrap();
    for (at, encoding) in [(1, key_encoding::WEIGHTS), (2, key_encoding::PADDED_WEIGHTS)] {
        (def.indexes[at].parts[0].encoding, def.indexes[at].parts[0].collation) = (encoding, 45);
    }
    engine.create_table("d/t", &def).unwrap();
    let (table, mut session) = (engine.open_table("d/t").unwrap(), engine.session());
    for n in 0..500_u64 {
        session.insert(&table, &[n.into(), format!("Name {n}").as_str().into()]).unwrap();
    }
    session.commit().unwrap();
    engine.checkpoint().unwrap();
    let dir = scratch.crashed();
    let said = esker(&dir, &["check"]);
    assert_eq!((said.code, said.err.as_str()), (0, ""), "{}", said.out);
    for name in ["by_name", "by_padded_name"] {
        let why = format!("  not held against the rows: index '{name}': collation 45 is not known here\n");
        assert!(said.out.contains(": ok\n") && said.out.contains(&why), "{}", said.out);
    }
    let json: Json = serde_json::from_str(&esker(&dir, &["check", "--json"]).out).unwrap();
    assert_eq!((&json["ok"], json["tables"][0]["unheld"].as_array().unwrap().len()), (&json!(true), 2));
}

/// Names may hold whatever moves a terminal's cursor, or more; they are told without.
#[test]
fn no_name_moves_the_cursor() {
    const ODD: &str = "x\u{1b}[2J\n\u{9b}1my";
    let scratch = Scratch::new();
    let options = Options { collations: Arc::new(NoCase), ..options() };
    let engine = Engine::open(Arc::new(PosixDisk::new()), &scratch.db(), options, Arc::new(|_, _| {})).unwrap();
    let schema = Schema::new().column("name", Type::Text(60));
    let mut def = TableDef::of(&schema).unwrap().index(ODD, &["name"]).unwrap();
    (def.indexes[0].parts[0].encoding, def.indexes[0].parts[0].collation) = (key_encoding::WEIGHTS, 45);
    engine.create_table(ODD, &def).unwrap();
    let (table, mut session) = (engine.open_table(ODD).unwrap(), engine.session());
    session.insert(&table, &["a".into()]).unwrap();
    session.commit().unwrap();
    let shown = "x [2J  1my";
    let looks = |dir: &Path, args: &[&str], said: &str| {
        let found = esker(dir, args);
        let all = found.out + &found.err;
        assert!(all.contains(said), "{args:?}: {all}");
        assert!(!all.contains(|c: char| c.is_control() && !matches!(c, '\n' | '\t')), "{args:?}: {all:?}");
    };
    let dir = scratch.crashed();
    looks(&dir, &["check"], &format!("index '{shown}'"));
    looks(&dir, &["wal"], "name=\"x\\u001b[2J\\n 1my\"");
    looks(&dir, &["dump", "no\u{1b}[2J"], "no Esker table 'no [2J'");
    // And what the engine tells of while it opens: a run that is missing.
    drop((session, table));
    engine.checkpoint().unwrap();
    engine.close().unwrap();
    let dir = scratch.db().with_file_name(ODD);
    std::fs::rename(scratch.db(), &dir).unwrap();
    runs(&dir).iter().for_each(|run| std::fs::remove_file(run).unwrap());
    looks(&dir, &["info"], &format!("{shown}/runs/"));
    looks(&dir, &["check"], "blocks are damaged\n  ");
    flip(&dir.join("MANIFEST"), manifest_at::BODY as u64 + 8);
    looks(&dir, &["check"], &format!("{shown}: cannot be opened"));
}

#[test]
fn info_tells_tables_log_and_prepared_transactions() {
    let scratch = Scratch::new();
    let dir = crashed(&scratch);
    let said = esker(&dir, &["info", "--json"]);
    let info: Json = serde_json::from_str(&said.out).unwrap();
    assert_eq!(info["prepared"], json!(["the xid"]));
    let tables = info["tables"].as_array().unwrap();
    let figures = |i: usize| (&tables[i]["table"], &tables[i]["rows_estimate"], &tables[i]["columns"]);
    assert_eq!(figures(0), (&json!("d/new"), &json!(5), &json!(3)));
    assert_eq!(figures(1), (&json!("d/old"), &json!(5000), &json!(3)));
    assert_eq!(tables[0]["runs"], 0);
    assert!(tables[1]["runs"].as_u64().unwrap() > 0 && tables[1]["run_bytes"].as_u64().unwrap() > 50_000);
    let log = |name: &str| info["log"][name].as_u64().unwrap();
    assert!(log("end") > log("replay_from") && log("replay_bytes") > 0 && log("files") > 0);
    let said = esker(&dir, &["info"]);
    for part in ["tables    2, ", "prepared  1 transactions\n  the xid\n", "d/old", "dynamic", "5000"] {
        assert!(said.out.contains(part), "{part:?} is not in\n{}", said.out);
    }
}

#[test]
fn what_analyze_found_is_told() {
    let scratch = Scratch::new();
    let engine = open(&scratch.db());
    let schema = Schema::new().column("n", Type::U64).column("m", Type::U64);
    engine.create_table("t", &TableDef::of(&schema).unwrap().index("by m", &["m", "n"]).unwrap()).unwrap();
    let t = engine.open_table("t").unwrap();
    let mut session = engine.session();
    (0..50u64).for_each(|n| _ = session.insert(&t, &[n.into(), (n / 5).into()]).unwrap());
    session.commit().unwrap();
    engine.analyze(&t, &mut |_, _| true).unwrap();
    let dir = scratch.crashed();
    let info: Json = serde_json::from_str(&esker(&dir, &["info", "--json"]).out).unwrap();
    let found = &info["tables"][0]["statistics"];
    assert_eq!(found.as_array().unwrap().len(), 1);
    let found = &found[0];
    assert_eq!((&found["index"], &found["rows"], &found["groups"]), (&json!("by m"), &json!(50), &json!([10, 50])));
    assert!(found["analyzed_unix_s"].as_u64().unwrap() > 1_700_000_000);
    let log = esker(&dir, &["wal", "--json"]).out;
    let told = log.lines().map(|line| serde_json::from_str::<Json>(line).unwrap());
    let told: Vec<_> = told.filter(|record| record["record"] == "index_statistics").collect();
    assert_eq!(told.len(), 1, "{log}");
    assert_eq!(told[0]["statistics"][0]["groups"], json!([10, 50]));
}

#[test]
fn dump_prints_rows() {
    let scratch = Scratch::new();
    let dir = crashed(&scratch);
    let said = esker(&dir, &["dump", "d/new"]);
    let want = "1\t0x00000000\tcode 0\t\\N\n2\t0x01000000\tcode 1\ttext\\tof row 1\n";
    assert!(said.out.starts_with(want), "{}", said.out);
    assert_eq!(said.out.lines().count(), 5, "the prepared row is not committed: {}", said.out);
    let said = esker(&dir, &["dump", "d/new", "--limit", "2", "--json"]);
    let lines: Vec<Json> = said.out.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(
        lines,
        [
            json!({ "row": 1, "values": [{ "hex": "00000000" }, "code 0", null] }),
            json!({ "row": 2, "values": [{ "hex": "01000000" }, "code 1", "text\tof row 1"] }),
        ]
    );
    assert_eq!(esker(&dir, &["dump", "d/old"]).out.lines().count(), 5000);
    assert_eq!(esker(&dir, &["dump", "d.old"]).out.lines().count(), 5000, "as SQL calls it");
    let said = esker(&dir, &["dump", "d/none"]);
    assert_eq!((said.code, said.err.as_str()), (1, "esker: no Esker table 'd/none'\n"));
}

/// Who reads it back must not take one value for another.
#[test]
fn a_dumps_line_tells_all_values_apart() {
    let scratch = Scratch::new();
    let engine = open(&scratch.db());
    let table = engine.create("t", &Schema::new().nullable("a", Type::Bytes(100))).unwrap();
    let values: [Option<&[u8]>; 8] =
        [None, Some(b""), Some(b"\\N"), Some(b"0x00ff"), Some(&[0, 255]), Some(b"0x"), Some(b"00ff"), Some(b"a\\tb\n")];
    let mut session = engine.session();
    for value in values {
        session.insert(&table, &[value.into()]).unwrap();
    }
    session.commit().unwrap();
    drop(session);
    engine.close().unwrap();
    let said = esker(&scratch.db(), &["dump", "t"]);
    let told: Vec<_> = said.out.lines().map(|line| line.split_once('\t').unwrap().1).collect();
    assert_eq!(told, ["\\N", "", "\\\\N", "0x307830306666", "0x00ff", "0x3078", "00ff", "a\\\\tb\\n"]);
}

#[test]
fn wal_prints_records() {
    let scratch = Scratch::new();
    let dir = crashed(&scratch);
    let said = esker(&dir, &["wal"]);
    let kinds: Vec<&str> = said.out.lines().map(|l| l.split('\t').nth(1).unwrap()).collect();
    let count = |kind: &str| kinds.iter().filter(|k| **k == kind).count();
    let found = ["create_table", "row_put", "commit", "prepare", "end of the log"].map(count);
    assert_eq!(found, [1, 6, 1, 1, 1], "{}", said.out);
    let said = esker(&dir, &["wal", "--json"]);
    let lines: Vec<Json> = said.out.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let created = lines.iter().find(|l| l["record"] == "create_table").unwrap();
    assert_eq!(created["name"], "d/new");
    assert_eq!(lines.iter().find(|l| l["record"] == "prepare").unwrap()["xid"], "the xid");
    assert_eq!(lines.last().unwrap()["record"], "end");
    let from = lines.iter().find(|l| l["record"] == "prepare").unwrap()["lsn"].to_string();
    let said = esker(&dir, &["wal", "--from", &from, "--limit", "1"]);
    assert_eq!(said.out.lines().count(), 1);
    assert!(said.out.starts_with(&format!("{from}\trow_put\t")), "{}", said.out);
    let end = lines.last().unwrap()["lsn"].to_string();
    assert_eq!(esker(&dir, &["wal", "--from", &end]).out, format!("{end}\tend of the log\n"));
    let inside = (from.parse::<u64>().unwrap() + 8).to_string();
    for (from, words) in [("0", "does not reach"), (&u64::MAX.to_string(), "does not reach"), (&inside, "no record")] {
        let said = esker(&dir, &["wal", "--from", from]);
        assert!(said.code == 1 && said.out.is_empty() && said.err.contains(words), "{from}: {} {}", said.out, said.err);
    }
}

#[test]
fn a_folder_may_have_any_name() {
    use std::os::unix::ffi::OsStrExt;
    let scratch = Scratch::new();
    let folder = crashed(&scratch);
    let dir = folder.with_file_name(std::ffi::OsStr::from_bytes(b"na\xffme"));
    std::fs::rename(&folder, &dir).unwrap();
    for job in ["info", "check"] {
        let said = esker(&dir, &[job, "--json"]);
        let report: Json = serde_json::from_str(&said.out).unwrap_or_else(|e| panic!("{job}: {e} {}", said.err));
        assert!(said.code == 0 && report["folder"].as_str().unwrap().ends_with("na\u{fffd}me"), "{job}: {report}");
    }
    std::fs::write(dir.join("MANIFEST"), [7; 100]).unwrap();
    let said = esker(&dir, &["check", "--json"]);
    let report: Json = serde_json::from_str(&said.out).unwrap();
    let file = report["damage"][0]["file"].as_str().unwrap();
    assert!(said.code == 2 && file.ends_with("na\u{fffd}me/MANIFEST"), "{report}");
}

#[test]
fn a_table_may_have_any_name() {
    let scratch = Scratch::new();
    let engine = open(&scratch.db());
    let names = [("a\tb\n", "a\\tb\\n"), ("\\", "\\\\"), ("a\0b", "0x610062"), ("plain", "plain")];
    for (n, (name, _)) in (1..).zip(names) {
        insert(&engine, &create(&engine, name), 0..n);
    }
    engine.close().unwrap();
    let info = esker(&scratch.db(), &["info"]);
    let all = esker(&scratch.db(), &["check"]);
    for (n, (name, shown)) in (1..).zip(names) {
        assert!(info.out.lines().any(|line| line.contains(shown)), "{}", info.out);
        let of_it = |line: &&str| line.starts_with(&format!("{shown}: "));
        assert_eq!(all.out.lines().filter(of_it).count(), 1, "{}", all.out);
        // No argument has a zero byte.
        for name in [name, shown].into_iter().filter(|name| !name.contains('\0')) {
            let said = esker(&scratch.db(), &["dump", name]);
            assert_eq!((said.code, said.out.lines().count()), (0, n), "{name}: {}", said.err);
            let said = esker(&scratch.db(), &["check", name]);
            assert!(said.code == 0 && said.out.lines().next().is_some_and(|line| of_it(&line)), "{name}: {}", said.out);
        }
    }
    assert_eq!(all.out.lines().count(), names.len() + 1, "{}", all.out);
    let said = esker(&scratch.db(), &["dump", "none"]);
    assert!(said.code == 1 && said.err.contains("none"), "{}", said.err);
}

#[test]
fn arguments_are_explained() {
    let run = |args: &[&str]| {
        let out = Command::new(env!("CARGO_BIN_EXE_esker")).args(args).output().unwrap();
        (out.status.code().unwrap(), String::from_utf8(out.stdout).unwrap(), String::from_utf8(out.stderr).unwrap())
    };
    for job in ["check", "info", "dump", "wal"] {
        let (code, out, _) = run(&[job, "--help"]);
        assert!(code == 0 && out.contains("Exit codes:") && out.contains("--json"), "{job}: {out}");
    }
    let (code, out, _) = run(&["--version"]);
    assert_eq!((code, out), (0, format!("esker {}\n", env!("CARGO_PKG_VERSION"))));
    for wrong in [&["check"][..], &["dump", "x"], &["nonsense"], &["wal", "x", "--limit", "many"]] {
        let (code, out, err) = run(wrong);
        assert!(code == 1 && out.is_empty() && err.contains("--help"), "{wrong:?}: {code} {out} {err}");
    }
}

/// A script that saves the help must learn that it was not saved; who has read enough of it is no failure.
#[test]
fn help_that_cannot_be_printed_is_an_error() {
    let help = |out: OwnedFd| {
        let said = Command::new(env!("CARGO_BIN_EXE_esker")).arg("--help").stdout(out).output().unwrap();
        (said.status.code(), String::from_utf8(said.stderr).unwrap())
    };
    let (code, told) = help(std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap().into());
    assert!(code == Some(1) && told.contains("cannot write the output"), "{code:?} {told}");
    let (near, far) = UnixStream::pair().unwrap();
    drop(far);
    assert_eq!(help(near.into()), (Some(0), String::new()));
}
