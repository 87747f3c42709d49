//! Where memory is short, a block in use takes what its rows take: what was decompressed is not kept beside what it was made of, so
//! that more blocks stay. A process of its own, since the accounts are the process's.

#![allow(clippy::unwrap_used)]

use esker::base::{global_total, Counter};
use esker::memory::{charged, charged_total, Account};
use esker::{Background, Engine, IndexRange, Options, PosixDisk, Schema, Session, Table, TableDef, Type};
use std::sync::Arc;

const ROWS: u64 = 60_000;
const LIMIT: u64 = 16 << 20;

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

#[test]
fn blocks_in_use_are_not_kept_twice_where_memory_is_short() {
    let dir = std::env::temp_dir().join(format!("esker-hot-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    let options = Options { memory_limit_bytes: LIMIT, background: Background::Inline, ..Options::default() };
    let engine = Engine::open(Arc::new(PosixDisk::default()), &dir, options, Arc::new(|_, _| {})).unwrap();
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
