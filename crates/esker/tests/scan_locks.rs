//! Scans share nothing that they would have to take by turns: how often they take any lock of the engine, by its own figures. A
//! process of its own, since these are the process's.

#![allow(clippy::unwrap_used)]

use esker::base::lock::report;
use esker::base::{global_total, Counter};
use esker::{Background, Engine, Options, PosixDisk, Schema, Session, Table, Type};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Barrier};

const THREADS: usize = 4;
const ROWS: u64 = 100_000;
const SCANS: u64 = 3;

struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn open(folder: &Folder) -> Engine {
    let options = Options { background: Background::Inline, ..Options::default() };
    Engine::open(Arc::new(PosixDisk::new()), &folder.0, options, Arc::new(|_, _| {})).unwrap()
}

/// Acquisitions by the locks' names.
fn acquired() -> BTreeMap<&'static str, u64> {
    report().into_iter().map(|site| (site.name, site.acquired)).collect()
}

/// Those since.
fn since(before: &BTreeMap<&'static str, u64>) -> Vec<(&'static str, u64)> {
    let since = |(name, now): (&'static str, u64)| (name, now - before.get(name).copied().unwrap_or(0));
    acquired().into_iter().map(since).filter(|(_, n)| *n > 0).collect()
}

/// Every thread reads all rows, several times; acquisitions for a row, and of which locks they were.
fn locks_per_row(engine: &Engine, table: &Arc<Table>) -> (f64, Vec<(&'static str, u64)>) {
    let before = acquired();
    let begin = Barrier::new(THREADS);
    let work = || {
        let mut session = engine.session();
        begin.wait();
        (0..SCANS).for_each(|_| read(&mut session, table));
    };
    std::thread::scope(|scope| (0..THREADS).for_each(|_| _ = scope.spawn(work)));
    let of_each = since(&before);
    (sum(&of_each) as f64 / (ROWS * SCANS * THREADS as u64) as f64, of_each)
}

fn read(session: &mut Session, table: &Arc<Table>) {
    let (mut rows, mut bytes) = (session.rows(table).unwrap(), 0);
    while let Some(row) = rows.next().unwrap() {
        bytes += row.get::<&[u8]>("what").unwrap().len();
    }
    assert!(bytes as u64 >= ROWS * 200);
    session.commit().unwrap();
}

fn sum(of_each: &[(&'static str, u64)]) -> u64 {
    of_each.iter().map(|(_, n)| n).sum()
}

#[test]
fn scans_of_blobs_take_next_to_no_locks() {
    let folder = Folder(std::env::temp_dir().join(format!("esker-scan-locks-{}", std::process::id())));
    let _ = std::fs::remove_dir_all(&folder.0);
    let engine = open(&folder);
    let table =
        engine.create("t", &Schema::new().column("id", Type::U64).column("what", Type::Bytes(100_000))).unwrap();
    let mut session = engine.session();
    for id in 0..ROWS {
        let what = vec![id as u8; 200 + (id % 100) as usize];
        session.insert(&table, &[id.into(), what.as_slice().into()]).unwrap();
    }
    session.commit().unwrap();
    drop(session);
    engine.checkpoint().unwrap();
    // A block that is not in the cache costs the lock of its file and that of the cache, when it is read.
    let (missed, before) = (global_total(Counter::BlocksMissed), acquired());
    read(&mut engine.session(), &table);
    let (missed, of_each) = (global_total(Counter::BlocksMissed) - missed, since(&before));
    assert!(missed > 100 && sum(&of_each) <= 2 * missed + 50, "{missed} blocks: {of_each:?}");
    let (per_row, of_each) = locks_per_row(&engine, &table);
    println!("{per_row:.6} a row: {of_each:?}");
    assert!(per_row < 0.001, "{per_row:.5} a row: {of_each:?}");
    // Rows of a memtable, too, of which one is longer than a block.
    let mut session = engine.session();
    session.insert(&table, &[0u64.into(), vec![1; 90_000].as_slice().into()]).unwrap();
    session.commit().unwrap();
    let (per_row, of_each) = locks_per_row(&engine, &table);
    assert!(per_row < 0.001, "with a memtable: {per_row:.5} a row: {of_each:?}");
}
