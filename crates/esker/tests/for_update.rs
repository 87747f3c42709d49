//! Rust programs that change rows by what they read of them: nothing that another has changed meanwhile is written over.

#![allow(clippy::unwrap_used)]

use esker::{BeginOptions, Engine, Error, IndexRange, Isolation, Result, Schema, Session, Table, TableDef, Type};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const ACCOUNTS: u64 = 4;
const START: i64 = 100;

/// Accounts, each with its number and what is on it.
fn made(name: &str) -> (Folder, Engine, Arc<Table>) {
    let folder = Folder(std::env::temp_dir().join(format!("esker-for-update-{name}-{}", std::process::id())));
    let _ = std::fs::remove_dir_all(&folder.0);
    let engine = Engine::open_dir(&folder.0).unwrap();
    let schema = Schema::new().column("id", Type::U64).column("balance", Type::I64);
    engine.create_table("t", &TableDef::of(&schema).unwrap().unique("by_id", &["id"]).unwrap()).unwrap();
    let (table, mut session) = (engine.open_table("t").unwrap(), engine.session());
    for id in 0..ACCOUNTS {
        session.insert(&table, &[id.into(), START.into()]).unwrap();
    }
    session.commit().unwrap();
    (folder, engine, table)
}

/// Adds to an account what is read of it by the index, or by a scan.
fn add(session: &mut Session, table: &Arc<Table>, account: u64, more: i64, by_index: bool) -> Result<()> {
    let key = [account.into()];
    let mut rows = match by_index {
        true => session.rows_by_for_update(table, "by_id", IndexRange::equal(&key))?,
        false => session.rows_for_update(table)?,
    };
    let mut found = None;
    while let Some(row) = rows.next()? {
        if row.get::<u64>("id")? == account {
            found = Some((row.id(), row.get::<i64>("balance")?));
        }
    }
    let (row, balance) = found.unwrap();
    session.update(table, row, &[account.into(), (balance + more).into()])
}

fn balances(session: &mut Session, table: &Arc<Table>) -> Vec<i64> {
    let (mut rows, mut found) = (session.rows_by(table, "by_id", IndexRange::all()).unwrap(), Vec::new());
    while let Some(row) = rows.next().unwrap() {
        found.push(row.get("balance").unwrap());
    }
    found
}

#[test]
fn rows_that_are_read_for_update_are_the_newest_and_nobody_elses() {
    for by_index in [true, false] {
        let (_folder, engine, table) = made(if by_index { "index" } else { "scan" });
        let (mut one, mut other) = (engine.session(), engine.session());
        other.set_lock_wait(Duration::ZERO, true);
        other.begin(Isolation::RepeatableRead, BeginOptions::default());
        assert_eq!(balances(&mut other, &table), [START; 4]);
        add(&mut one, &table, 1, 5, by_index).unwrap();
        // Reading waits for nobody, but for update it does.
        assert_eq!(balances(&mut other, &table), [START; 4]);
        assert!(matches!(add(&mut other, &table, 1, 7, by_index), Err(Error::WouldBlock)));
        one.commit().unwrap();
        add(&mut other, &table, 1, 7, by_index).unwrap();
        // What was read and not changed stays locked as well.
        one.set_lock_wait(Duration::ZERO, true);
        assert!(matches!(add(&mut one, &table, 1, 9, by_index), Err(Error::WouldBlock)));
        assert_eq!(add(&mut one, &table, 2, 9, true).is_err(), !by_index);
        other.commit().unwrap();
        one.rollback().unwrap();
        assert_eq!(balances(&mut one, &table), [START, START + 12, START, START]);
    }
}

/// From where to where a thread moves how much.
fn moved(thread: u64, n: u64) -> (u64, u64, i64) {
    ((thread + n) % ACCOUNTS, (thread + n / 2 + 1) % ACCOUNTS, (thread * 5 + n % 7) as i64)
}

#[test]
fn of_what_many_add_nothing_is_lost() {
    const THREADS: u64 = 4;
    const EACH: u64 = 150;
    let (_folder, engine, table) = made("many");
    engine.set_flush_mode(esker::FlushMode::Lazy);
    let pay_in = &|thread: u64| {
        let mut session = engine.session();
        for n in 0..EACH {
            let (from, to, more) = moved(thread, n);
            let pay = |session: &mut Session| {
                add(session, &table, from, -more, n % 8 > 0)?;
                add(session, &table, to, more, true)?;
                session.commit()
            };
            while let Err(e) = pay(&mut session) {
                assert!(matches!(e, Error::Deadlock | Error::LockTimeout), "{e}");
                session.rollback().unwrap();
            }
        }
    };
    std::thread::scope(|scope| (0..THREADS).for_each(|thread| drop(scope.spawn(move || pay_in(thread)))));
    let mut wanted = [START; ACCOUNTS as usize];
    for (thread, n) in (0..THREADS).flat_map(|thread| (0..EACH).map(move |n| (thread, n))) {
        let (from, to, more) = moved(thread, n);
        wanted[from as usize] -= more;
        wanted[to as usize] += more;
    }
    assert!(wanted.iter().any(|balance| *balance != START), "nothing was moved");
    assert_eq!(balances(&mut engine.session(), &table), wanted);
}
