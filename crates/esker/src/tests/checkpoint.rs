//! What a checkpoint looks at: the tables of which the manifest may say something else than is true, and what is in memory.

use crate::tests::formats::{content, kill, put};
use crate::tests::hooks;
use crate::tests::support::*;
use crate::upkeep::{background, checkpoint, flush, merge};
use crate::{Engine, Options, Table};
use esker_format::manifest::edit_offset;
use esker_format::ManifestFile;
use esker_io::{Disk, IoKind, SimDisk};
use std::sync::atomic::Ordering;
use std::sync::Arc;

/// How long the edit is that the next checkpoint writes.
fn edit_bytes(e: &Engine, disk: &SimDisk) -> usize {
    let before = content(disk, "MANIFEST").len();
    checkpoint::write(&e.core).unwrap();
    content(disk, "MANIFEST").len() - edit_offset(before)
}

/// Tables that a checkpoint looks at, trees whose memory it looks at, and edits that are in the manifest then.
fn looks(e: &Engine, disk: &SimDisk) -> (u64, u64, u64) {
    let (saved, looks) = (&e.core.due.saved, &e.core.due.looks);
    let before = (saved.load(Ordering::Relaxed), looks.load(Ordering::Relaxed));
    checkpoint::write(&e.core).unwrap();
    let file = ManifestFile::decode(&content(disk, "MANIFEST")).unwrap();
    (saved.load(Ordering::Relaxed) - before.0, looks.load(Ordering::Relaxed) - before.1, file.edits)
}

fn commit_one(e: &Engine, t: &Arc<Table>) {
    let mut s = e.session();
    begin(&mut s);
    insert(&mut s, t, 7).unwrap();
    s.commit().unwrap();
}

/// A transaction that has not ended and has runs of its own.
fn open_large(e: &Engine, t: &Arc<Table>, rows: u64) -> crate::Session {
    let mut s = e.session();
    begin(&mut s);
    fill(&mut s, t, 0..rows);
    s.seal_for_read(t).unwrap();
    assert!(t.tree().snapshot().runs.iter().any(|h| h.owner.is_some()), "it has a run of its own");
    s
}

#[test]
fn a_checkpoint_looks_at_what_changed() {
    // Ten thousand where the compiler helps.
    let many: u64 = std::env::var("ESKER_MANY_TABLES").map_or(500, |n| n.parse().unwrap());
    let disk = SimDisk::new(1);
    let e = open_with(&disk, small()).unwrap();
    let t: Vec<_> = (0..many).map(|n| make(&e, &format!("t{n}"), &fixed(100))).collect();
    let base = || {
        background::one_round(&e.core).unwrap();
        e.core.manifest.lock().tail = None;
        assert_eq!(looks(&e, &disk), (many, 0, 0));
    };
    base();
    assert_eq!(looks(&e, &disk), (0, 0, 1), "nothing has changed");
    let nothing = edit_bytes(&e, &disk);
    // What is in memory is looked at there; the manifest says how many rows there are.
    commit_one(&e, &t[7]);
    assert_eq!(looks(&e, &disk), (1, 1, 3));
    assert_eq!(looks(&e, &disk), (0, 1, 4));
    flush::tree(&e.core, &t[7], &t[7].tree()).unwrap();
    background::one_round(&e.core).unwrap();
    assert_eq!(looks(&e, &disk), (1, 0, 5));
    // Statements that change the catalog.
    e.rename_table("t8", "u8").unwrap();
    e.truncate_table("t7").unwrap();
    e.drop_table("t9").unwrap();
    let last = make(&e, "last", &number());
    assert_eq!(looks(&e, &disk), (3, 0, 6), "renamed, emptied, made");
    // A transaction that has runs and has not ended is looked at each time, and once when it has.
    base();
    let mut s = open_large(&e, &t[1], 5000);
    for _ in 0..3 {
        assert_eq!(looks(&e, &disk).0, 1);
    }
    assert!(edit_bytes(&e, &disk) < nothing + 8, "what is as it was is not written again");
    s.commit().unwrap();
    assert_eq!((looks(&e, &disk).0, looks(&e, &disk).0), (1, 0));
    flush::tree(&e.core, &t[1], &t[1].tree()).unwrap();
    base();
    let mut s = e.session();
    begin(&mut s);
    s.delete_all(&t[1]).unwrap();
    assert_eq!((looks(&e, &disk).0, looks(&e, &disk).0), (1, 1));
    s.commit().unwrap();
    assert_eq!((looks(&e, &disk).0, looks(&e, &disk).0), (1, 0));
    while merge::once(&e.core, &t[1], &t[1].tree()).unwrap() {}
    assert_eq!((looks(&e, &disk).0, looks(&e, &disk).0), (1, 0));
    drop((s, t, last));
    let e = open_with(&kill(e, &disk), small()).unwrap();
    assert_eq!(e.tables().len() as u64, many);
    assert!(e.open_table("t8").is_err() && e.open_table("t9").is_err());
    assert_eq!((count(&e, "u8"), count(&e, "t7"), count(&e, "t1"), count(&e, "last")), (0, 0, 0, 0));
}

/// A commit shows before its runs are told of it: a checkpoint in between, which passes its record, must find them.
#[test]
fn a_checkpoint_finds_what_a_commit_has_just_shown() {
    for with_mark in [false, true] {
        let disk = SimDisk::new(1);
        // Nothing of the large one is in the memtable.
        let e = open_with(&disk, Options { bulk_threshold_bytes: 128, ..small() }).unwrap();
        let t = make(&e, "t", &fixed(100));
        commit_one(&e, &t);
        flush::tree(&e.core, &t, &t.tree()).unwrap();
        let mut s = open_large(&e, &t, 5000);
        if with_mark {
            s.delete_all(&t).unwrap();
        }
        for _ in 0..3 {
            // The last state is durable, and an edit can follow.
            checkpoint::write(&e.core).unwrap();
        }
        let (core, position) = (e.core.clone(), e.core.wal.end_lsn());
        hooks::at("commit shows", move || {
            checkpoint::write(&core).unwrap();
            assert!(core.signals.replay_from() > position, "the log that has the commit is not needed");
        });
        s.commit().unwrap();
        assert!(hooks::all_done());
        let killed = disk.after_kill();
        drop((s, t, e));
        let e = open_with(&killed, small()).unwrap();
        assert_eq!(count(&e, "t"), if with_mark { 0 } else { 5001 });
    }
}

/// A failed checkpoint has taken what was told: the next one looks at everything.
#[test]
fn what_a_checkpoint_could_not_write_the_next_one_does() {
    let disk = SimDisk::new(1);
    let e = open_with(&disk, small()).unwrap();
    let (t, u) = (make(&e, "t", &number()), make(&e, "u", &number()));
    checkpoint::write(&e.core).unwrap();
    for (n, t) in [&t, &u].into_iter().enumerate() {
        commit_one(&e, t);
        flush::tree(&e.core, t, &t.tree()).unwrap();
        disk.capacity(Some(disk.used_bytes()));
        assert!(checkpoint::write(&e.core).is_err(), "there is no room for the edit");
        disk.capacity(None);
        let (saved, _, edits) = looks(&e, &disk);
        assert_eq!((saved, edits), (2, 0), "a base of all tables, {n}");
    }
    drop((t, u));
    let e = open_with(&kill(e, &disk), small()).unwrap();
    assert_eq!((count(&e, "t"), count(&e, "u")), (1, 1));
}

/// What runs out while a base is written, at whatever operation, and may be there again stops nothing. Who failed to make its name
/// durable, and had begun to, stops. A crash or a power cut in between loses nothing.
#[test]
fn a_base_that_could_not_be_written_is_written_again() {
    let options = || Options { wal_segment_bytes: 64 << 10, ..small() };
    for kind in [IoKind::DiskFull, IoKind::Resources] {
        let mut steps = Vec::new();
        for step in 1.. {
            let (disk, e, t) = one_table(options());
            commit_one(&e, &t);
            flush(&e, &t);
            e.core.wal.sync_all().unwrap();
            e.core.manifest.lock().tail = None;
            let before = disk.op_count();
            disk.fail_once(before + step, kind);
            let written = checkpoint::write(&e.core);
            let Some(struck) = disk.op_log().into_iter().find(|op| op.number == before + step) else { break };
            if struck.path.starts_with("/db/wal") {
                // The log goes by rules of its own.
                continue;
            }
            let case = format!("{kind:?} at {} {}: {written:?}", struck.operation, struck.path.display());
            steps.push(struck.operation);
            assert!(written.is_err(), "{case}");
            let was_begun = kind == IoKind::DiskFull && struck.operation == "sync folder";
            assert_eq!(e.poisoned(), was_begun, "{case}");
            let rows = |disk: &SimDisk, wanted: u64, when: &str| {
                assert_eq!(count(&open_with(disk, options()).unwrap(), "t"), wanted, "{case}, {when}");
            };
            (0..3).for_each(|seed| rows(&disk.after_power_cut(seed), 1, "power cut"));
            if was_begun {
                continue;
            }
            // What the base that was not finished names goes meanwhile.
            commit_one(&e, &t);
            flush(&e, &t);
            e.optimize(&t, &mut |_, _| true).unwrap();
            (0..3).for_each(|seed| rows(&disk.after_power_cut(seed), 2, "power cut after a merge"));
            checkpoint::write(&e.core).unwrap();
            assert!(!e.core.disk.exists("/db/MANIFEST.new".as_ref()).unwrap(), "{case}");
            commit_one(&e, &t);
            checkpoint::write(&e.core).unwrap();
            assert_eq!(ManifestFile::decode(&content(&disk, "MANIFEST")).unwrap().edits, 1, "{case}");
            drop(t);
            (0..3).for_each(|seed| rows(&disk.after_power_cut(seed), 3, "power cut in the end"));
            rows(&kill(e, &disk), 3, "kill");
        }
        assert_eq!(steps, ["create", "write", "sync", "rename", "sync folder"]);
    }
}

/// Nobody looks for what is left of a base that could not be written: a look that fails tells nothing. It is removed all the same.
#[test]
fn a_base_is_written_without_a_look_for_another() {
    let (disk, e, _t) = one_table(small());
    let before = disk.read_count();
    e.core.manifest.lock().tail = None;
    checkpoint::write(&e.core).unwrap();
    assert_eq!(disk.read_count(), before);
    e.core.manifest.lock().tail = None;
    put(&disk, "MANIFEST.new", b"left over");
    checkpoint::write(&e.core).unwrap();
    assert!(!disk.exists("/db/MANIFEST.new".as_ref()).unwrap());
    assert!(ManifestFile::decode(&content(&disk, "MANIFEST")).unwrap().manifest.tables.len() == 1);
}
