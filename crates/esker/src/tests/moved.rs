//! Versions of open transactions that a flush meets: carried on in memory while they are few, moved to runs once they are many.

use crate::tests::support::*;
use crate::upkeep::{checkpoint, flush, merge};
use esker_base::counters::{bind, Counter, SessionCounters};

/// Small transactions that never end while others commit: they cost flushes no file, and nobody waits for them.
#[test]
fn small_open_transactions_add_no_file_to_flushes() {
    let (_, e, t) = one_table(small());
    let own = SessionCounters::new();
    let _bound = bind(&own);
    let mut idle: Vec<_> = (0..64).map(|_| e.session()).collect();
    for (n, s) in idle.iter_mut().enumerate() {
        begin(s);
        insert(s, &t, n as u64).unwrap();
    }
    let (mut s, syncs) = (e.session(), own.get(Counter::SyncsRun));
    for n in 0..100 {
        begin(&mut s);
        insert(&mut s, &t, n).unwrap();
        s.commit().unwrap();
        flush(&e, &t);
    }
    assert_eq!(own.get(Counter::RunsMoved), 0);
    assert_eq!(own.get(Counter::SyncsRun) - syncs, 100, "a flush synced more than its run");
    assert!(own.get(Counter::VersionsCarried) >= 6400);
    // Nothing but what is carried: a flush would free nothing, so none is asked for.
    flush(&e, &t);
    assert!(t.tree().snapshot().active.flushable_bytes() < 64 << 10);
    idle.iter_mut().for_each(|s| s.commit().unwrap());
    assert_eq!(count(&e, "t"), 164);
}

/// What open transactions have much of goes to runs of theirs: neither memory nor redo is pinned, and nobody is stalled.
#[test]
fn large_open_transactions_are_moved_out_of_memory() {
    let (disk, e, t) = one_table(small());
    let own = SessionCounters::new();
    let _bound = bind(&own);
    let mut idle: Vec<_> = (0..50).map(|_| e.session()).collect();
    for s in &mut idle {
        begin(s);
        fill(s, &t, 0..900);
    }
    flush(&e, &t);
    assert!(own.get(Counter::RunsMoved) >= 50, "only {} were moved", own.get(Counter::RunsMoved));
    let state = t.tree().snapshot();
    let held: usize = state.memtables().map(|m| m.used_bytes()).sum();
    assert!(held < 256 << 10, "{held} bytes are still in memory");
    // Each sees its own, nobody else any.
    assert_eq!(count(&e, "t"), 0);
    idle.iter_mut().for_each(|s| assert_eq!(s.count_rows(&t).unwrap(), 900));
    for (n, s) in idle.iter_mut().enumerate() {
        if n % 2 == 0 {
            s.commit().unwrap();
        } else {
            s.rollback().unwrap();
        }
    }
    assert_eq!(count(&e, "t"), 25 * 900);
    drop((idle, t, e));
    disk.crash();
    let e = open_with(&disk, small()).unwrap();
    assert_eq!(count(&e, "t"), 25 * 900);
}

#[test]
fn moved_versions_follow_savepoints_and_their_redo_goes() {
    let (disk, e, t) = one_table(small());
    let mut s = e.session();
    begin(&mut s);
    let first: Vec<_> = (0..400).map(|n| insert(&mut s, &t, n).unwrap()).collect();
    let point = s.savepoint();
    fill(&mut s, &t, 0..400);
    flush(&e, &t);
    s.current.open_mut().unwrap().adopt_moved(false);
    let txn = s.current.open().unwrap();
    assert_eq!((txn.redo_bytes(), txn.tables[0].rows.runs.len()), (0, 1), "the move was not taken over");
    // Rolled back in part, then written on; the second move is rolled back as a whole.
    s.rollback_to(&point);
    assert_eq!(s.count_rows(&t).unwrap(), 400);
    s.delete(&t, first[0]).unwrap();
    let point = s.savepoint();
    fill(&mut s, &t, 0..200);
    for id in &first[1..100] {
        unsafe { s.update_image(&t, *id, image(&t, 9).as_ptr()).unwrap() };
    }
    s.delete(&t, first[2]).unwrap();
    flush(&e, &t);
    s.rollback_to(&point);
    assert_eq!(s.count_rows(&t).unwrap(), 399);
    s.commit().unwrap();
    assert_eq!(count(&e, "t"), 399);
    e.checkpoint().unwrap();
    drop((s, t, e));
    disk.crash();
    let e = open_with(&disk, small()).unwrap();
    assert_eq!(count(&e, "t"), 399);
}

/// A prepared transaction has no session that could take a move over, before and after a restart.
#[test]
fn prepared_transactions_are_carried_not_moved() {
    let (disk, mut e, t) = one_table(small());
    let mut s = e.session();
    begin(&mut s);
    fill(&mut s, &t, 0..800);
    s.prepare(b"x").unwrap();
    s.detach_prepared();
    drop(t);
    for restart in [false, true] {
        if restart {
            drop((s, e));
            disk.crash();
            e = open_with(&disk, small()).unwrap();
            s = e.session();
        }
        let t = e.open_table("t").unwrap();
        let own = SessionCounters::new();
        let _bound = bind(&own);
        flush(&e, &t);
        assert_eq!((own.get(Counter::RunsMoved), own.get(Counter::VersionsCarried)), (0, 800));
        checkpoint::write(&e.core).unwrap();
    }
    assert!(e.commit_xid(b"x").unwrap());
    checkpoint::write(&e.core).unwrap();
    drop((s, e));
    disk.crash();
    let e = open_with(&disk, small()).unwrap();
    assert_eq!(count(&e, "t"), 800);
}

/// Carried by one flush, moved by the next: the redo of the first memtable stays, though the run has the rows.
#[test]
fn rows_carried_then_moved_stay_deleted() {
    let (disk, e, t) = one_table(roomy());
    let mut s = e.session();
    begin(&mut s);
    let few: Vec<_> = (0..150).map(|n| insert(&mut s, &t, n).unwrap()).collect();
    flush::tree(&e.core, &t, &t.tree()).unwrap(); // carried
    few.iter().for_each(|id| s.delete(&t, *id).unwrap());
    for n in 0..300 {
        insert(&mut s, &t, 1000 + n).unwrap();
    }
    flush::tree(&e.core, &t, &t.tree()).unwrap(); // moved
    s.current.open_mut().unwrap().adopt_moved(false);
    let txn = s.current.open().unwrap();
    assert_eq!(txn.tables[0].rows.runs.len(), 1);
    s.commit().unwrap();
    assert_eq!(count(&e, "t"), 300);
    while merge::once(&e.core, &t, &t.tree()).unwrap() {}
    assert_eq!(count(&e, "t"), 300);
    drop((s, t, e));
    disk.crash();
    let e = open_with(&disk, roomy()).unwrap();
    assert_eq!(count(&e, "t"), 300, "deleted rows are back");
}
