//! Large writes and long transactions: what they hold is bounded, what they move is neither lost nor doubled.

use crate::tests::regression::{begin, open_with, options};
use crate::tests::tables::{open_on, Watched};
use crate::*;
use esker_base::counters::{bind, Counter, SessionCounters};
use esker_format::row::{pack_values, Value};
use esker_format::{Column, ColumnKind, ColumnMask, Compression, Layout, RowFormat, RowId};
use esker_io::SimDisk;
use std::sync::Arc;

/// A number and so many bytes of filling.
pub(crate) fn fixed(filling: u32) -> TableDef {
    let column = |kind, offset| Column { kind, offset, null: None };
    let columns = vec![column(ColumnKind::Fixed { width: 8 }, 1), column(ColumnKind::Fixed { width: filling }, 9)];
    table(Layout { image_bytes: 9 + filling, head_bytes: 1, columns })
}

fn blob() -> TableDef {
    let kind = ColumnKind::Blob { len_bytes: 4 };
    table(Layout { image_bytes: 13, head_bytes: 1, columns: vec![Column { kind, offset: 1, null: None }] })
}

fn table(layout: Layout) -> TableDef {
    let (format, compression) = (RowFormat::Dynamic, Compression::None);
    TableDef { layout, format, compression, temporary: false, extra: vec![] }
}

pub(crate) fn make(e: &Engine, name: &str, def: &TableDef) -> Arc<Table> {
    e.create_table(name, def).unwrap();
    e.open_table(name).unwrap()
}

pub(crate) fn image(t: &Table, n: u64) -> Vec<u8> {
    let mut image = vec![0x5a; t.layout().image_bytes as usize];
    image[0] = 0;
    image[1..9].copy_from_slice(&n.to_le_bytes());
    image
}

pub(crate) fn insert(s: &mut Session, t: &Arc<Table>, n: u64) -> Result<RowId> {
    unsafe { s.insert_image(t, image(t, n).as_ptr()) }
}

fn fill(s: &mut Session, t: &Arc<Table>, numbers: std::ops::Range<u64>) {
    for n in numbers {
        insert(s, t, n).unwrap();
    }
}

/// As [`fill`], with rows that no compression makes small.
fn fill_with_noise(s: &mut Session, t: &Arc<Table>, numbers: std::ops::Range<u64>) {
    for n in numbers {
        let mut row = image(t, n);
        let noise = |(i, b): (usize, &mut u8)| *b = (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (i % 57)) as u8;
        row[9..].iter_mut().enumerate().for_each(noise);
        unsafe { s.insert_image(t, row.as_ptr()) }.unwrap();
    }
}

fn large_row(t: &Table, bytes: usize) -> Vec<u8> {
    let mut packed = Vec::new();
    pack_values(t.layout(), &[Value::Bytes(&vec![7; bytes])], &mut packed).unwrap();
    packed
}

pub(crate) fn count(e: &Engine, name: &str) -> u64 {
    let t = e.open_table(name).unwrap();
    let mut s = e.session();
    let rows = s.count_rows(&t).unwrap();
    s.commit().unwrap();
    rows
}

/// A budget of memtables of 1 MiB, of which 64 KiB may be carried; of large writes of 1 MiB.
pub(crate) fn small() -> Options {
    Options {
        memory_limit_bytes: 4 << 20,
        bulk_buffer_bytes: 256 << 10,
        bulk_threshold_bytes: 128 << 10,
        min_run_bytes: 128 << 10,
        block_bytes: 16 << 10,
        ..options()
    }
}

fn flush(e: &Engine, t: &Table) {
    e.core.flush(t, &t.tree()).unwrap();
}

#[test]
fn after_a_failed_hand_over_nothing_is_taken() {
    let disk = SimDisk::new(1);
    let e = open_with(&disk, Options { bulk_threshold_bytes: 4 << 10, ..small() }).unwrap();
    let t = make(&e, "t", &fixed(8));
    let mut s = e.session();
    begin(&mut s);
    fill(&mut s, &t, 0..2000);
    disk.capacity(Some(disk.used_bytes()));
    for _ in 0..6 {
        s.begin_statement();
        let failed = (0..1_000_000).find_map(|n| insert(&mut s, &t, n).err());
        assert!(failed.is_some(), "a full disk was not met");
        // Further rows are refused, and so is the stage.
        assert!(insert(&mut s, &t, 1).is_err() && s.stage(&t).is_none());
        s.rollback_statement();
    }
    disk.capacity(None);
    s.rollback().unwrap();
    begin(&mut s);
    insert(&mut s, &t, 1).unwrap();
    s.commit().unwrap();
    assert_eq!(count(&e, "t"), 1);
}

#[test]
fn a_transaction_of_large_rows_in_several_tables_commits() {
    let disk = SimDisk::new(1);
    let e = open_with(&disk, options()).unwrap();
    let mut s = e.session();
    begin(&mut s);
    for i in 0..3 {
        let t = make(&e, &format!("t{i}"), &blob());
        s.insert_row(&t, &large_row(&t, 50 << 20)).unwrap();
    }
    assert!(s.current.open().unwrap().redo_bytes() < 1 << 20, "a large row was written as a small one");
    s.commit().unwrap();
    drop((s, e));
    disk.crash();
    let e = open_with(&disk, options()).unwrap();
    assert_eq!((0..3).map(|i| count(&e, &format!("t{i}"))).sum::<u64>(), 3);
}

#[test]
fn redo_of_rolled_back_statements_goes() {
    let disk = SimDisk::new(1);
    let e = open_with(&disk, options()).unwrap();
    let t = make(&e, "t", &blob());
    let row = large_row(&t, 100 << 10);
    let mut s = e.session();
    begin(&mut s);
    for _ in 0..3000 {
        s.begin_statement();
        s.insert_row(&t, &row).unwrap();
        s.rollback_statement();
        assert_eq!(s.current.open().unwrap().redo_bytes(), 0);
    }
    s.begin_statement();
    s.insert_row(&t, &row).unwrap();
    s.commit().unwrap();
    assert_eq!(count(&e, "t"), 1);
}

#[test]
fn rows_that_are_read_back_one_by_one_stay_within_the_budget() {
    let disk = SimDisk::new(1);
    let e = open_with(&disk, small()).unwrap();
    let t = make(&e, "t", &fixed(400));
    let mut s = e.session();
    begin(&mut s);
    let options = ScanOptions { mask: ColumnMask::all(2), ..ScanOptions::default() };
    let mut c = s.open_cursor(&t, options).unwrap();
    let mut most = 0;
    for n in 0..20_000 {
        s.begin_statement();
        let row = insert(&mut s, &t, n).unwrap();
        assert!(c.fetch(&mut s, row).unwrap().is_some());
        s.end_statement();
        most = most.max(e.core.large.used());
    }
    assert!(
        most <= e.core.large.limit() * 3 / 2,
        "{most} bytes of large writes under a limit of {}",
        e.core.large.limit()
    );
    assert!(s.current.open().unwrap().tables[0].rows.runs.len() > 1, "nothing was spilled");
    s.commit().unwrap();
    assert_eq!(count(&e, "t"), 20_000);
}

/// Rows for 100 tables in turn, as an INSERT into partitions gives them; then the same for 40 sessions.
#[test]
fn loads_into_many_trees_and_sessions_stay_within_the_budget() {
    let disk = SimDisk::new(1);
    let e = open_with(&disk, small()).unwrap();
    let own = SessionCounters::new();
    let _bound = bind(&own);
    let tables: Vec<_> = (0..100).map(|i| make(&e, &format!("t{i:03}"), &fixed(100))).collect();
    let most = e.core.large.limit() * 3 / 2;
    let mut s = e.session();
    begin(&mut s);
    for n in 0..30_000u64 {
        insert(&mut s, &tables[n as usize % 100], n).unwrap();
        let used = e.core.large.used();
        assert!(used <= most, "{used} bytes of large writes, {most} are allowed");
    }
    s.commit().unwrap();
    assert!(own.get(Counter::LargeSpills) > 0, "nothing was spilled");
    assert_eq!(e.core.large.used(), 0, "what large writes take was not given back");
    assert_eq!(tables.iter().map(|t| count(&e, &t.name())).sum::<u64>(), 30_000);
    // Each session has less than half of a fair share before it must spill.
    let mut sessions: Vec<_> = (0..30).map(|_| e.session()).collect();
    let most = most + 30 * (64 << 10);
    for n in 0..30_000u64 {
        let s = &mut sessions[n as usize % 30];
        if n < 30 {
            begin(s);
        }
        insert(s, &tables[0], n).unwrap();
        let used = e.core.large.used();
        assert!(used <= most, "{used} bytes of large writes of 30 sessions, {most} are allowed");
    }
    sessions.iter_mut().for_each(|s| s.commit().unwrap());
    assert_eq!(count(&e, "t000"), 30_300);
}

/// Small transactions that never end while others commit: they cost flushes no file, and nobody waits for them.
#[test]
fn small_open_transactions_add_no_file_to_flushes() {
    let disk = SimDisk::new(1);
    let e = open_with(&disk, small()).unwrap();
    let own = SessionCounters::new();
    let _bound = bind(&own);
    let t = make(&e, "t", &fixed(100));
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
    let disk = SimDisk::new(1);
    let e = open_with(&disk, small()).unwrap();
    let own = SessionCounters::new();
    let _bound = bind(&own);
    let t = make(&e, "t", &fixed(100));
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
    let disk = SimDisk::new(1);
    let e = open_with(&disk, small()).unwrap();
    let t = make(&e, "t", &fixed(100));
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

/// Rows gathered before a statement are kept in memory during it; its rollback must not take their redo along.
#[test]
fn gathered_rows_survive_the_rollback_of_the_statement_that_read_them() {
    let disk = SimDisk::new(1);
    let e = open_with(&disk, Options { bulk_threshold_bytes: 4 << 10, ..small() }).unwrap();
    let t = make(&e, "t", &fixed(100));
    let mut s = e.session();
    begin(&mut s);
    let ids: Vec<_> = (0..300).map(|n| insert(&mut s, &t, n).unwrap()).collect();
    assert!(s.current.open().unwrap().tables[0].bulk.as_ref().is_some_and(|b| b.rows > 0), "nothing was gathered");
    s.begin_statement();
    ids.iter().for_each(|id| s.delete(&t, *id).unwrap());
    s.rollback_statement();
    s.commit().unwrap();
    drop((s, t, e));
    disk.crash();
    let e = open_with(&disk, small()).unwrap();
    assert_eq!(count(&e, "t"), 300);
}

/// A prepared transaction has no session that could take a move over, before and after a restart.
#[test]
fn prepared_transactions_are_carried_not_moved() {
    let disk = SimDisk::new(1);
    let mut e = open_with(&disk, small()).unwrap();
    let t = make(&e, "t", &fixed(100));
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
        e.core.checkpoint().unwrap();
    }
    assert!(e.commit_xid(b"x").unwrap());
    e.core.checkpoint().unwrap();
    drop((s, e));
    disk.crash();
    let e = open_with(&disk, small()).unwrap();
    assert_eq!(count(&e, "t"), 800);
}

#[test]
fn a_temporary_table_emptied_within_a_transaction_takes_further_rows() {
    let disk = SimDisk::new(1);
    let e = open_with(&disk, options()).unwrap();
    let t = make(&e, "t", &TableDef { temporary: true, ..fixed(8) });
    let mut s = e.session();
    begin(&mut s);
    insert(&mut s, &t, 1).unwrap();
    e.truncate_table("t").unwrap();
    insert(&mut s, &t, 2).unwrap();
    insert(&mut s, &t, 3).unwrap();
    s.commit().unwrap();
    assert_eq!(s.count_rows(&t).unwrap(), 2);
}

/// Rolling back ten thousand statements adds to one set of ordinals, in place.
#[test]
fn rolled_back_statements_share_one_set_of_ordinals() {
    let disk = SimDisk::new(1);
    let e = open_with(&disk, options()).unwrap();
    let t = make(&e, "t", &fixed(8));
    let mut s = e.session();
    begin(&mut s);
    for n in 0..10_000 {
        s.begin_statement();
        insert(&mut s, &t, n).unwrap();
        s.begin_statement();
        insert(&mut s, &t, n).unwrap();
        s.rollback_statement();
    }
    assert_eq!(s.current.open().unwrap().state.aborted().0.len(), 10_000);
    s.commit().unwrap();
    assert_eq!(count(&e, "t"), 10_000);
}

/// Threads: the workers are a few, whatever is loaded, and every stream's rows arrive.
#[test]
fn workers_serve_all_streams() {
    let disk = SimDisk::new(1);
    let e = open_with(&disk, Options { background: Background::Threads, ..small() }).unwrap();
    let tables: Vec<_> = (0..8).map(|i| make(&e, &format!("t{i}"), &fixed(100))).collect();
    std::thread::scope(|scope| {
        for t in &tables {
            let e = &e;
            scope.spawn(move || {
                let mut s = e.session();
                for round in 0..3 {
                    begin(&mut s);
                    fill(&mut s, t, 0..10_000);
                    if round == 1 {
                        s.rollback().unwrap();
                    } else {
                        s.commit().unwrap();
                    }
                }
            });
        }
    });
    tables.iter().for_each(|t| assert_eq!(count(&e, &t.name()), 20_000));
    // What was rolled back is a worker's to remove.
    crate::tests::support::until(|| e.core.large.used() == 0);
    drop(tables);
    e.close().unwrap();
}

/// Many transactions gather rows, too few for a run each: once the memtables are full, the rests become runs all the same.
/// Their sessions write them, and queue no write to the kernel, which would give each thread workers that stay.
#[test]
fn gathered_rows_do_not_overfill_the_memtables() {
    const LEAST: usize = 512 << 10;
    let watched = Watched::new();
    let o = Options {
        memory_limit_bytes: 8 << 20,
        bulk_buffer_bytes: 2 * LEAST,
        min_run_bytes: LEAST,
        bulk_threshold_bytes: 16 << 10,
        ..small()
    };
    let e = open_on(Arc::new(watched.clone()), o);
    let t = make(&e, "t", &fixed(100));
    let own = SessionCounters::new();
    let mut sessions: Vec<_> = (0..20).map(|_| e.session()).collect();
    // Nothing is flushed meanwhile.
    crate::sim_hooks::quietly(|| {
        let _bound = bind(&own);
        for s in &mut sessions {
            begin(s);
            fill_with_noise(s, &t, 0..2800);
            let open = |s: &Session| {
                let txn = s.current.open().unwrap();
                let gathered = txn.trees[0].bulk.as_ref().map_or(0, |b| b.gathered_bytes());
                (gathered as usize, txn.redo_bytes(), own.get(Counter::RunsAttached))
            };
            let (gathered, redo, runs) = open(s);
            assert!((LEAST / 4..LEAST).contains(&gathered), "{gathered} bytes are gathered, and no run begun");
            assert_eq!(s.count_rows(&t).unwrap(), 2800);
            let (_, redo_now, runs_now) = open(s);
            assert_ne!(redo_now > redo, runs_now > runs, "rows go to the memtable or to a run");
        }
    });
    let most = e.core.memtable_budget() as usize / 2 * 3;
    let used = t.tree().snapshot().active.used_bytes();
    assert!(used < most + 2 * LEAST, "the memtable has {used} bytes, {most} are the most");
    let figures = [Counter::RunsAttached, Counter::BufferWrites, Counter::LargeSpills, Counter::Flushes];
    let [runs, writes, spills, flushes] = figures.map(|c| own.get(c));
    assert!(runs >= 8 && writes > 2 * runs, "20 transactions made {runs} runs in {writes} writes");
    assert_eq!((spills, flushes), (0, 0), "memory was made free in another way");
    let queued = || watched.1.queued.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!(queued(), 0, "a session queued writes");
    sessions.iter_mut().for_each(|s| s.commit().unwrap());
    assert_eq!(count(&e, "t"), 20 * 2800);
    // The disk sees them where they are queued: the engine's own threads do.
    begin(&mut sessions[0]);
    fill_with_noise(&mut sessions[0], &t, 0..20_000);
    sessions[0].commit().unwrap();
    assert!(queued() > 0, "nobody queues writes");
}

/// What a large write has written so far is removed by a worker, not by the session that rolls back.
#[test]
fn rolling_back_removes_no_file() {
    let disk = SimDisk::new(1);
    let e = open_with(&disk, Options { background: Background::Threads, ..small() }).unwrap();
    let t = make(&e, "t", &fixed(100));
    let removed = Arc::new(std::sync::Mutex::new(Vec::new()));
    let told = removed.clone();
    disk.watch(Some(Arc::new(move |operation, path| {
        if operation == "remove" && path.extension().is_some_and(|e| e == "run") {
            told.lock().unwrap().push(std::thread::current().id());
        }
    })));
    let mut s = e.session();
    begin(&mut s);
    fill(&mut s, &t, 0..20_000);
    // The worker has nothing left to do, so that the file is nobody's at the moment.
    crate::tests::support::until(|| !crate::tests::tables::run_files(&disk).is_empty());
    std::thread::sleep(std::time::Duration::from_millis(20));
    s.rollback().unwrap();
    crate::tests::support::until(|| crate::tests::tables::run_files(&disk).is_empty());
    let removed = removed.lock().unwrap();
    assert!(!removed.is_empty() && !removed.contains(&std::thread::current().id()), "removed by {removed:?}");
}
