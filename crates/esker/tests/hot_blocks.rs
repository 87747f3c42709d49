//! Where memory is short, a block in use takes what its rows take: what was decompressed is not kept beside what it was made of, so
//! that more blocks stay; and blocks that take much more than what is stored of them do not stay beyond the limit. A process of its
//! own, since the accounts are the process's.

#![allow(clippy::unwrap_used)]

use esker::base::{global_total, Counter};
use esker::memory::{charged, charged_total, Account};
use esker::{Background, Engine, IndexRange, Options, PosixDisk, Schema, Session, Table, TableDef, Type};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const ROWS: u64 = 59_000;
const LIMIT: u64 = 16 << 20;
/// Of each row that is short where it is stored, and of all of them together several times the limit.
const LONG_BYTES: usize = 45_000;
const LONG_ROWS: u64 = 1600;

/// One at a time: the accounts are the process's.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn text(n: u64) -> String {
    format!("{:0>40} and {:x}", n % 97, n.wrapping_mul(0x9E37_79B9_7F4A_7C15)).repeat(3)
}

fn table(engine: &Engine) -> Arc<Table> {
    let schema = Schema::new().column("id", Type::U64).column("text", Type::Text(300)).column("other", Type::Text(60));
    let def = TableDef::of(&schema).unwrap().unique("by_id", &["id"]).unwrap();
    engine.create_table("t", &def).unwrap();
    let (table, mut session) = (engine.open_table("t").unwrap(), engine.session());
    for n in 0..ROWS {
        session.insert(&table, &[n.into(), (&*text(n)).into(), "other".repeat(3).as_str().into()]).unwrap();
    }
    session.commit().unwrap();
    engine.checkpoint().unwrap();
    table
}

/// Looks rows up one by one; how many blocks were not in memory.
fn look_up(session: &mut Session, table: &Arc<Table>, rows: impl Iterator<Item = u64>) -> u64 {
    let before = global_total(Counter::BlocksMissed);
    for n in rows {
        let key = [n.into()];
        let mut found = session.rows_by(table, "by_id", IndexRange::equal(&key)).unwrap();
        let row = found.next().unwrap().unwrap();
        assert_eq!((row.get::<u64>("id").unwrap(), row.get::<String>("text").unwrap()), (n, text(n)));
    }
    global_total(Counter::BlocksMissed) - before
}

fn folder(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("esker-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    dir
}

fn open(dir: &Path) -> Engine {
    let options = Options { memory_limit_bytes: LIMIT, background: Background::Inline, ..Options::default() };
    Engine::open(Arc::new(PosixDisk::default()), dir, options, Arc::new(|_, _| {})).unwrap()
}

#[test]
fn blocks_in_use_are_not_kept_twice_where_memory_is_short() {
    let _alone = alone();
    let dir = folder("hot");
    let engine = open(&dir);
    let table = table(&engine);
    let mut session = engine.session();
    // The rows take most of the limit once, and more than it twice.
    let in_no_order = || (0..ROWS).map(|n| n * 7919 % ROWS);
    let missed: Vec<u64> = (0..8).map(|_| look_up(&mut session, &table, in_no_order())).collect();
    session.commit().unwrap();
    assert!(global_total(Counter::BlocksEvicted) > 0 && missed[0] > 500, "{missed:?}: memory was never short");
    assert!(global_total(Counter::BlocksUnpacked) > 200, "{} unpacked", global_total(Counter::BlocksUnpacked));
    assert_eq!(missed.last(), Some(&0), "{missed:?}: all would fit");
    assert!(charged(Account::BlockCache) > LIMIT / 2 && charged_total() <= LIMIT, "{} bytes", charged_total());
    assert!(engine.status().cache_bytes <= charged(Account::BlockCache));
    drop((session, table));
    engine.drop_table("t").unwrap();
    engine.checkpoint().unwrap();
    assert_eq!((engine.status().cache_bytes, charged(Account::BlockCache)), (0, 0));
    engine.close().unwrap();
    drop(engine);
    let _ = std::fs::remove_dir_all(&dir);
}

fn long(n: u64) -> String {
    format!("{n:>9}").repeat(LONG_BYTES / 9)
}

/// The most that all of it took meanwhile, in bytes.
fn most_while<T>(rows: impl Iterator<Item = T>) -> u64 {
    rows.map(|_| charged_total()).max().unwrap()
}

#[test]
fn blocks_that_are_short_only_where_they_are_stored_keep_within_the_limit() {
    let _alone = alone();
    let dir = folder("long");
    let engine = open(&dir);
    let schema = Schema::new()
        .column("id", Type::U64)
        .column("long", Type::Bytes(LONG_BYTES as u32))
        .column("key", Type::Text(3000));
    let def = TableDef::of(&schema).unwrap().unique("by_id", &["id"]).unwrap().index("by_key", &["key"]).unwrap();
    engine.create_table("t", &def).unwrap();
    let (table, mut session) = (engine.open_table("t").unwrap(), engine.session());
    for n in 0..LONG_ROWS {
        // Keys that share nearly all of their bytes.
        let key = format!("{:->2900}{n:>6}", "");
        session.insert(&table, &[n.into(), long(n).as_bytes().into(), (&*key).into()]).unwrap();
        session.commit().unwrap();
    }
    engine.checkpoint().unwrap();
    let read = || global_total(Counter::BlocksMissed);
    let before = read();
    for _ in 0..2 {
        let mut rows = session.rows(&table).unwrap();
        let most = most_while(std::iter::from_fn(|| {
            let row = rows.next().unwrap()?;
            assert_eq!(row.get::<Vec<u8>>("long").unwrap(), long(row.get::<u64>("id").unwrap()).as_bytes());
            Some(())
        }));
        assert!(most <= LIMIT + (LIMIT >> 2), "rows took {most} bytes of {LIMIT}");
    }
    session.commit().unwrap();
    assert!(read() - before > LONG_ROWS / 4, "{} blocks were read", read() - before);
    drop((session, table));
    engine.drop_table("t").unwrap();
    engine.checkpoint().unwrap();
    assert_eq!((engine.status().cache_bytes, charged(Account::BlockCache)), (0, 0));
    engine.close().unwrap();
    drop(engine);
    let _ = std::fs::remove_dir_all(&dir);
}
