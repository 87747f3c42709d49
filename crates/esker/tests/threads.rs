//! Real threads on real files: transfers between rows keep their sum in every view, while others load, roll back, flush
//! and merge. Bounded by numbers of operations, never by time.

#![allow(clippy::unwrap_used)]

use esker::format::{Column, ColumnKind, ColumnMask, Compression, Layout, RowFormat, RowId};
use esker::{
    BeginOptions, Engine, Error, Isolation, LockMode, Options, PosixDisk, ScanOptions, Session, Table, TableDef,
    WaitHooks,
};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

const ACCOUNTS: u64 = 200;
const START: u64 = 1000;

struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn folder(name: &str) -> Folder {
    let path = std::env::temp_dir().join(format!("esker-threads-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    Folder(path)
}

fn open(folder: &Folder) -> Engine {
    let options = Options {
        memory_limit_bytes: 8 << 20,
        bulk_threshold_bytes: 16 << 10,
        min_run_bytes: 64 << 10,
        block_bytes: 8 << 10,
        wal_segment_bytes: 1 << 20,
        ..Options::default()
    };
    Engine::open(Arc::new(PosixDisk::new()), &folder.0, options, Arc::new(|_, _| {})).unwrap()
}

/// Two numbers: an account, and what is in it; then some weight, so that memtables fill.
fn def() -> TableDef {
    let column = |offset, width| Column { kind: ColumnKind::Fixed { width }, offset, null: None };
    let layout = Layout { image_bytes: 217, head_bytes: 1, columns: vec![column(1, 8), column(9, 8), column(17, 200)] };
    TableDef {
        layout,
        format: RowFormat::Dynamic,
        compression: Compression::None,
        temporary: false,
        indexes: Vec::new(),
        extra: vec![],
    }
}

fn image(account: u64, amount: u64) -> [u8; 217] {
    let mut image = [7u8; 217];
    image[0] = 0;
    image[1..9].copy_from_slice(&account.to_le_bytes());
    image[9..17].copy_from_slice(&amount.to_le_bytes());
    image
}

fn numbers(image: *const u8) -> (u64, u64) {
    let bytes = unsafe { std::slice::from_raw_parts(image, 17) };
    (u64::from_le_bytes(bytes[1..9].try_into().unwrap()), u64::from_le_bytes(bytes[9..17].try_into().unwrap()))
}

fn begin(s: &mut Session, isolation: Isolation) {
    s.set_lock_wait(Duration::from_secs(20), false);
    s.begin(isolation, BeginOptions::default());
    s.begin_statement();
}

fn mask() -> ColumnMask {
    ColumnMask::all(3)
}

/// Rows and the sum of their amounts, as one view sees them.
fn total(s: &mut Session, t: &Arc<Table>) -> (u64, u64) {
    let mut c = s.scan(t, ScanOptions { mask: mask(), ..ScanOptions::default() }).unwrap();
    let (mut rows, mut sum) = (0, 0);
    loop {
        let b = c.next_batch(s).unwrap();
        if b.ids.is_empty() {
            return (rows, sum);
        }
        for i in 0..b.ids.len() {
            rows += 1;
            sum += numbers(unsafe { b.images.add(i * b.stride) }).1;
        }
    }
}

/// Reads a row under its lock and writes it back changed.
fn add(s: &mut Session, t: &Arc<Table>, row: RowId, amount: i64) -> Result<(), Error> {
    let lock = Some(LockMode::Exclusive);
    let mut c = s.open_cursor(t, ScanOptions { mask: mask(), lock, ..ScanOptions::default() })?;
    let found = c.fetch(s, row)?.unwrap();
    let (account, now) = numbers(found);
    unsafe { s.update_image(t, row, image(account, now.wrapping_add_signed(amount)).as_ptr()) }
}

fn transfer(s: &mut Session, t: &Arc<Table>, ids: &[RowId], mut random: u64) -> bool {
    let mut next = || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        random >> 33
    };
    let (from, to) = (ids[next() as usize % ids.len()], ids[next() as usize % ids.len()]);
    let isolation = if next() % 2 == 0 { Isolation::ReadCommitted } else { Isolation::RepeatableRead };
    begin(s, isolation);
    let done = add(s, t, from, -1).and_then(|()| add(s, t, to, 1));
    match done {
        Ok(()) if next() % 8 == 0 => s.rollback().unwrap(),
        Ok(()) => {
            s.commit().unwrap();
            return true;
        }
        Err(Error::Deadlock | Error::LockTimeout) => s.rollback().unwrap(),
        Err(e) => panic!("{e}"),
    }
    false
}

/// Sets a flag when it goes.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn loader(e: &Engine, t: &Arc<Table>, kept: &AtomicU64) {
    let mut s = e.session();
    for round in 0..12u64 {
        begin(&mut s, Isolation::ReadCommitted);
        for n in 0..4000 {
            unsafe { s.insert_image(t, image(1_000_000 + n, 0).as_ptr()).unwrap() };
        }
        if round % 3 == 0 {
            s.rollback().unwrap();
        } else {
            s.commit().unwrap();
            kept.fetch_add(4000, Ordering::Relaxed);
        }
    }
}

#[test]
fn sums_hold_in_every_view() {
    let folder = folder("sums");
    let e = open(&folder);
    e.create_table("t", &def()).unwrap();
    let t = e.open_table("t").unwrap();
    let mut s = e.session();
    begin(&mut s, Isolation::ReadCommitted);
    let ids: Vec<RowId> =
        (0..ACCOUNTS).map(|n| unsafe { s.insert_image(&t, image(n, START).as_ptr()).unwrap() }).collect();
    s.commit().unwrap();
    let (stop, committed, kept) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        // Also by a panic of a worker: the others must not go on for ever.
        let stopped = StopAtEnd(&stop);
        let mut workers = Vec::new();
        for w in 0..4u64 {
            let (e, t, ids, committed) = (&e, &t, &ids, &committed);
            workers.push(scope.spawn(move || {
                let mut s = e.session();
                for n in 0..1500 {
                    if transfer(&mut s, t, ids, w * 1_000_003 + n * 7919) {
                        committed.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }));
        }
        workers.push(scope.spawn(|| loader(&e, &t, &kept)));
        for isolation in [Isolation::ReadCommitted, Isolation::RepeatableRead] {
            let (e, t, stop) = (&e, &t, &stop);
            scope.spawn(move || {
                let mut s = e.session();
                while !stop.load(Ordering::Relaxed) {
                    begin(&mut s, isolation);
                    let first = total(&mut s, t);
                    assert_eq!(first.1, ACCOUNTS * START);
                    assert_eq!((first.0 - ACCOUNTS) % 4000, 0, "half a load is seen");
                    s.end_statement();
                    s.begin_statement();
                    let second = total(&mut s, t);
                    assert_eq!(second.1, ACCOUNTS * START);
                    if isolation == Isolation::RepeatableRead {
                        assert_eq!(first, second);
                    }
                    s.commit().unwrap();
                }
            });
        }
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                e.checkpoint().unwrap();
                e.optimize(&t, &mut |_, _| true).unwrap();
            }
        });
        for w in workers {
            w.join().unwrap();
        }
        drop(stopped);
    });
    assert!(committed.load(Ordering::Relaxed) > 1000);
    let expected = (ACCOUNTS + kept.load(Ordering::Relaxed), ACCOUNTS * START);
    begin(&mut s, Isolation::ReadCommitted);
    assert_eq!(total(&mut s, &t), expected);
    s.commit().unwrap();
    assert!(e.check(&t, &mut |_, _| true).unwrap().damages.is_empty());
    drop((s, t));
    e.close().unwrap();
    drop(e);
    let e = open(&folder);
    let t = e.open_table("t").unwrap();
    let mut s = e.session();
    begin(&mut s, Isolation::ReadCommitted);
    assert_eq!(total(&mut s, &t), expected, "after reopening");
}

/// Says whom its session waits for.
struct Tell(std::sync::mpsc::Sender<()>);

impl WaitHooks for Tell {
    fn before_wait(&self) {
        self.0.send(()).unwrap();
    }
}

/// Locks and counts all rows; tells when it waits.
fn lock_all_rows(s: &mut Session, t: &Arc<Table>) -> Result<u64, Error> {
    let lock = Some(LockMode::Exclusive);
    let mut c = s.scan(t, ScanOptions { mask: mask(), lock, ..ScanOptions::default() })?;
    let mut rows = 0;
    while !c.next_batch(s)?.ids.is_empty() {
        rows += 1;
    }
    Ok(rows)
}

#[test]
fn a_locking_scan_waits_for_rows_that_are_being_inserted() {
    let folder = folder("inserters");
    let e = open(&folder);
    e.create_table("t", &def()).unwrap();
    let t = e.open_table("t").unwrap();
    let mut expected = 0;
    // Few rows stay in the shared memtable, many in private runs and buffers.
    for (rows, commit) in [(3, true), (1000, true), (5, false), (1000, false)] {
        let mut inserter = e.session();
        begin(&mut inserter, Isolation::RepeatableRead);
        for n in 0..rows {
            unsafe { inserter.insert_image(&t, image(n, 0).as_ptr()) }.unwrap();
        }
        let (tell, told) = std::sync::mpsc::channel();
        let counted = std::thread::scope(|scope| {
            let locker = scope.spawn(|| {
                let mut s = e.session();
                s.set_wait_hooks(Box::new(Tell(tell)));
                begin(&mut s, Isolation::RepeatableRead);
                lock_all_rows(&mut s, &t).unwrap()
            });
            told.recv().unwrap();
            if commit {
                inserter.commit().unwrap();
                expected += rows;
            } else {
                inserter.rollback().unwrap();
            }
            locker.join().unwrap()
        });
        assert_eq!(counted, expected, "after {rows} rows, commit {commit}");
    }
}

#[test]
fn two_inserters_that_insist_on_each_other_are_a_deadlock() {
    let folder = folder("circle");
    let e = open(&folder);
    e.create_table("t", &def()).unwrap();
    let t = e.open_table("t").unwrap();
    let insert = || {
        let mut s = e.session();
        begin(&mut s, Isolation::RepeatableRead);
        unsafe { s.insert_image(&t, image(1, 1).as_ptr()) }.unwrap();
        s
    };
    let (mut a, mut b) = (insert(), insert());
    let (tell, told) = std::sync::mpsc::channel();
    a.set_wait_hooks(Box::new(Tell(tell)));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| lock_all_rows(&mut a, &t));
        told.recv().unwrap();
        assert!(matches!(lock_all_rows(&mut b, &t), Err(Error::Deadlock)));
        b.rollback().unwrap();
        assert_eq!(waiting.join().unwrap().unwrap(), 1);
    });
}

#[test]
fn a_deletion_of_all_rows_leaves_none_that_others_put_in_place_of_others() {
    const ROWS: u64 = 20;
    let folder = folder("replaced");
    let e = open(&folder);
    e.create_table("t", &def()).unwrap();
    let t = e.open_table("t").unwrap();
    let mut s = e.session();
    begin(&mut s, Isolation::ReadCommitted);
    for n in 0..ROWS {
        unsafe { s.insert_image(&t, image(n, 0).as_ptr()) }.unwrap();
    }
    s.commit().unwrap();
    // Each replaces the row that it comes to first, or as many as the number says.
    let replace = |s: &mut Session, rows: u64| -> Result<(), Error> {
        let options = ScanOptions { mask: mask(), lock: Some(LockMode::Exclusive), ..ScanOptions::default() };
        let mut c = s.scan(&t, options)?;
        for n in 0..rows {
            let row = c.next_batch(s)?.ids.first().copied();
            s.delete(&t, row.unwrap())?;
            unsafe { s.insert_image(&t, image(n, 0).as_ptr()) }?;
        }
        Ok(())
    };
    let (done, replaced) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for rows in [1, 3] {
            let (e, done, replaced, replace) = (&e, &done, &replaced, &replace);
            scope.spawn(move || {
                let mut s = e.session();
                while !done.load(Ordering::Relaxed) {
                    begin(&mut s, Isolation::ReadCommitted);
                    match replace(&mut s, rows) {
                        Ok(()) => {
                            s.commit().unwrap();
                            replaced.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(Error::Deadlock) => s.rollback().unwrap(),
                        Err(e) => panic!("{e}"),
                    }
                }
            });
        }
        let mut deleted = 0;
        while deleted < 300 || replaced.load(Ordering::Relaxed) < 300 {
            begin(&mut s, Isolation::ReadCommitted);
            match s.lock_all(&t) {
                Ok(rows) => assert_eq!(rows, ROWS),
                Err(Error::Deadlock) => {
                    s.rollback().unwrap();
                    continue;
                }
                Err(e) => panic!("{e}"),
            }
            s.delete_all(&t).unwrap();
            assert_eq!((s.count_rows(&t).unwrap(), s.count(&t).unwrap()), (0, 0));
            s.rollback().unwrap();
            deleted += 1;
        }
        done.store(true, Ordering::Relaxed);
    });
    begin(&mut s, Isolation::ReadCommitted);
    assert_eq!((s.count_rows(&t).unwrap(), s.count(&t).unwrap()), (ROWS, ROWS));
}
