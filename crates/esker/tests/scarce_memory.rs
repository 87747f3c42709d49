//! Memory that is missing once, or for a while, is an error of whoever asked for it, and nothing else: whatever region is refused,
//! statements that failed are not there, all others are, nothing is left over, and all work goes on once there is memory again. A
//! process of its own, since regions are refused in all of it.

#![allow(clippy::unwrap_used)]

use esker::base::{global_total, Counter};
use esker::format::RowId;
use esker::io::{Disk, IoKind, SimDisk};
use esker::memory::scarce::{have_enough, refuse};
use esker::memory::{charged, Account};
use esker::{
    Background, Engine, Error, IndexDef, IndexPlan, IndexRange, Options, Result, Schema, Session, Table, TableDef, Type,
};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// Tests of this process take turns: regions are refused to all of it.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Few rows make a large write, a run, a merge.
fn options() -> Options {
    Options {
        memory_limit_bytes: 8 << 20,
        bulk_buffer_bytes: 64 << 10,
        bulk_threshold_bytes: 24 << 10,
        min_run_bytes: 16 << 10,
        block_bytes: 4 << 10,
        lookup_block_bytes: 4 << 10,
        wal_segment_bytes: 1 << 20,
        run_bytes: 256 << 10,
        background: Background::Inline,
        ..Options::default()
    }
}

fn def() -> TableDef {
    let schema = Schema::new().column("id", Type::U64).column("text", Type::Text(200)).column("n", Type::U64);
    TableDef::of(&schema).unwrap().unique("by_id", &["id"]).unwrap().index("by_text", &["text"]).unwrap()
}

fn text(id: u64, n: u64) -> String {
    format!("{:05} of {n:04}, {}", id * 7919 % 100_003, "long ".repeat(12))
}

/// Rows by their ids: where they are, and their number.
type Rows = BTreeMap<u64, (RowId, u64)>;

struct Bench {
    options: Options,
    disk: SimDisk,
    engine: Engine,
    table: Arc<Table>,
    session: Session,
    rows: Rows,
    next: u64,
}

fn open(disk: &SimDisk, options: &Options) -> Result<Engine> {
    Engine::open(Arc::new(disk.clone()), Path::new("/db"), options.clone(), Arc::new(|_, _| {}))
}

fn is_want_of_memory(e: &Error) -> bool {
    matches!(e, Error::OutOfMemory(_)) || matches!(e, Error::Io(e) if e.kind == IoKind::Resources)
}

type Statement = fn(&mut Bench) -> Result<()>;

impl Bench {
    /// With some rows in runs and some in memory.
    fn new(options: Options) -> Bench {
        let disk = SimDisk::new(1);
        let engine = open(&disk, &options).unwrap();
        engine.create_table("t", &def()).unwrap();
        let (table, session) = (engine.open_table("t").unwrap(), engine.session());
        let mut b = Bench { options, disk, engine, table, session, rows: Rows::new(), next: 0 };
        for rows in [150, 30] {
            b.insert(rows).unwrap();
            b.session.commit().unwrap();
            b.engine.checkpoint().unwrap();
        }
        b.insert(20).unwrap();
        b.session.commit().unwrap();
        b
    }

    fn put(&mut self, id: u64, n: u64) -> Result<()> {
        let row = self.session.insert(&self.table, &[id.into(), (&*text(id, n)).into(), n.into()])?;
        self.rows.insert(id, (row, n));
        Ok(())
    }

    fn insert(&mut self, rows: u64) -> Result<()> {
        for _ in 0..rows {
            self.next += 1;
            self.put(self.next, 0)?;
        }
        Ok(())
    }

    fn update(&mut self, one_in: usize) -> Result<()> {
        let some: Vec<_> = self.rows.iter().step_by(one_in).map(|(id, row)| (*id, *row)).collect();
        for (id, (row, n)) in some {
            self.session.update(&self.table, row, &[id.into(), (&*text(id, n + 1)).into(), (n + 1).into()])?;
            self.rows.insert(id, (row, n + 1));
        }
        Ok(())
    }

    fn delete(&mut self, one_in: usize) -> Result<()> {
        let some: Vec<_> = self.rows.iter().step_by(one_in).map(|(id, row)| (*id, *row)).collect();
        for (id, (row, _)) in some {
            self.session.delete(&self.table, row)?;
            self.rows.remove(&id);
        }
        Ok(())
    }

    /// As REPLACE does.
    fn replace(&mut self, one_in: usize) -> Result<()> {
        let some: Vec<_> = self.rows.iter().step_by(one_in).map(|(id, row)| (*id, *row)).collect();
        for (id, (row, n)) in some {
            self.session.delete(&self.table, row)?;
            self.rows.remove(&id);
            self.put(id, n + 1)?;
        }
        Ok(())
    }

    /// What the session reads, by a scan and by an index, is what it has written.
    fn read(&mut self) -> Result<()> {
        let expected: Vec<(u64, u64)> = self.rows.iter().map(|(id, (_, n))| (*id, *n)).collect();
        for by_index in [false, true] {
            let mut rows = match by_index {
                false => self.session.rows(&self.table)?,
                true => self.session.rows_by(&self.table, "by_text", IndexRange::all())?,
            };
            let mut found = Vec::new();
            while let Some(row) = rows.next()? {
                let (id, n) = (row.get("id")?, row.get("n")?);
                assert_eq!(row.get::<String>("text")?, text(id, n));
                found.push((id, n));
            }
            found.sort_unstable();
            assert_eq!(found, expected, "by an index: {by_index}");
        }
        assert_eq!(self.session.count_rows(&self.table)?, expected.len() as u64);
        Ok(())
    }

    /// Undoes some, and goes on.
    fn undo(&mut self) -> Result<()> {
        let (point, rows) = (self.session.savepoint(), self.rows.clone());
        self.insert(60)?;
        self.update(9)?;
        self.session.rollback_to(&point);
        self.rows = rows;
        self.insert(3)
    }

    /// Does a statement as a server does; those that fail are undone. Had one?
    fn statement(&mut self, statement: Statement) -> bool {
        let rows = self.rows.clone();
        self.session.begin_statement();
        let done = statement(self);
        if let Err(e) = &done {
            assert!(is_want_of_memory(e), "{e}");
            self.session.rollback_statement();
            self.rows = rows;
        }
        self.session.end_statement();
        done.is_err()
    }

    /// What there is is what was said, for others, too; nobody has anything locked, and nothing more is there than what is referred to.
    fn check(&mut self) {
        let mut other = self.engine.session();
        other.set_lock_wait(Duration::ZERO, true);
        let mut locked = other.rows_for_update(&self.table).unwrap();
        while locked.next().unwrap().is_some() {}
        drop(locked);
        other.rollback().unwrap();
        std::mem::swap(&mut self.session, &mut other);
        self.read().unwrap();
        self.session.rollback().unwrap();
        std::mem::swap(&mut self.session, &mut other);
        let report = self.engine.check(&self.table, &mut |_, _| true).unwrap();
        assert!(report.damages.is_empty() && report.unheld.is_empty(), "{report:?}");
    }

    fn files(&self) -> Vec<String> {
        let mut names: Vec<_> = self.disk.list(Path::new("/db/runs")).unwrap().into_iter().map(|f| f.name).collect();
        names.sort();
        names
    }

    /// The same after all that is in memory went to runs, and in another life: no file goes then that was nobody's.
    fn end(mut self) {
        self.check();
        self.engine.checkpoint().unwrap();
        self.check();
        let files = self.files();
        let Bench { options, disk, engine, table, session, rows, next } = self;
        drop((table, session, engine));
        for account in Account::ALL {
            assert_eq!(charged(account), 0, "{}", account.name());
        }
        let engine = open(&disk, &options).unwrap();
        let (table, session) = (engine.open_table("t").unwrap(), engine.session());
        let mut b = Bench { options, disk, engine, table, session, rows, next };
        assert_eq!(b.files(), files, "a file of nobody was left");
        b.check();
    }
}

/// Does `work` with another region [refused](refusing) each time until none is; how often one was.
fn each_refused(mut work: impl FnMut(u64)) -> u64 {
    for number in 0.. {
        work(number);
        if !WAS_REFUSED.with(std::cell::Cell::get) {
            return number;
        }
    }
    unreachable!("some time none is refused")
}

thread_local! {
    static WAS_REFUSED: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Refuses so many regions while `work` goes on, from the one with this number on.
fn refusing<T>(number: u64, most: u64, work: impl FnOnce() -> T) -> T {
    refuse(number..number.saturating_add(most));
    let done = work();
    WAS_REFUSED.with(|was| was.set(have_enough()));
    done
}

/// Each is one transaction's.
const STORIES: [&[Statement]; 5] = [
    &[|b| b.insert(10), |b| b.update(7), |b| b.delete(5), |b| b.read(), |b| b.insert(20)],
    &[|b| b.insert(700), |b| b.read(), |b| b.insert(300), |b| b.update(50)],
    &[|b| b.insert(150), |b| b.update(2), |b| b.update(3), |b| b.read(), |b| b.delete(4), |b| b.insert(5)],
    &[|b| b.undo(), |b| b.insert(200), |b| b.undo(), |b| b.read()],
    &[|b| b.replace(10), |b| b.insert(200), |b| b.replace(3), |b| b.read(), |b| b.replace(30)],
];

#[test]
fn statements_that_fail_are_not_there_and_all_others_are() {
    let _alone = alone();
    for (story, statements) in STORIES.iter().enumerate() {
        for most in [1, 3, u64::MAX] {
            let (mut failed, mut kept, mut given_up) = (0, 0, 0);
            let refused = each_refused(|number| {
                let mut b = Bench::new(options());
                let before = b.rows.clone();
                let committed = refusing(number, most, || {
                    for statement in *statements {
                        failed += u64::from(b.statement(*statement));
                    }
                    b.session.commit()
                });
                match committed.or_else(|e| {
                    assert!(is_want_of_memory(&e), "{e}");
                    b.session.commit()
                }) {
                    Ok(()) => kept += 1,
                    // Some of it was lost.
                    Err(e) => {
                        assert!(is_want_of_memory(&e), "{e}");
                        b.session.rollback().unwrap();
                        b.rows = before;
                        given_up += 1;
                    }
                }
                b.insert(3).unwrap();
                b.session.commit().unwrap();
                b.end();
            });
            println!(
                "story {story}, {most} refused: {refused} times, {failed} failed, {kept} kept, {given_up} given up"
            );
            assert!(refused > 5 && failed > 0 && kept > 0, "{refused} refused, {failed} failed, {kept} kept");
        }
    }
}

/// Memtables to runs, runs joined, the manifest, with others open.
#[test]
fn upkeep_that_failed_is_done_later() {
    let _alone = alone();
    for most in [1, 5, u64::MAX] {
        let mut failed = 0;
        let refused = each_refused(|number| {
            let mut b = Bench::new(options());
            let engine = b.engine.clone();
            // One has little in memory, which is carried on, one much, which moves.
            let (mut little, mut much) = (engine.session(), engine.session());
            for n in 0..10u64 {
                let id = 1_000_000 + n;
                little.insert(&b.table, &[id.into(), (&*text(id, 0)).into(), 0u64.into()]).unwrap();
            }
            for n in 0..150u64 {
                let id = 2_000_000 + n;
                much.insert(&b.table, &[id.into(), (&*text(id, 0)).into(), 0u64.into()]).unwrap();
            }
            b.update(3).unwrap();
            b.delete(7).unwrap();
            b.session.commit().unwrap();
            let table = b.table.clone();
            let done =
                refusing(number, most, || engine.checkpoint().and_then(|()| engine.optimize(&table, &mut |_, _| true)));
            if let Err(e) = &done {
                assert!(is_want_of_memory(e), "{e}");
                failed += 1;
            }
            assert!(!engine.poisoned());
            engine.checkpoint().unwrap();
            engine.optimize(&table, &mut |_, _| true).unwrap();
            little.commit().unwrap();
            much.rollback().unwrap();
            drop((little, much));
            // Where they are is nothing that a check looks at.
            b.rows.extend((0..10).map(|n| (1_000_000 + n, (RowId(0), 0))));
            drop((table, engine));
            b.end();
        });
        println!("upkeep, {most} refused: {refused} times, {failed} failed");
        assert!(refused > 20 && failed > 20, "{refused} refused, {failed} failed");
    }
}

/// Tries that fail at the same place again and again take no more memory each time, and what they have carried on is there once: also
/// where its transaction has so much by then that it goes to a run.
#[test]
fn tries_of_a_flush_do_not_add_up() {
    let _alone = alone();
    let mut failed = 0;
    for number in 0.. {
        let mut b = Bench::new(Options { bulk_threshold_bytes: 1 << 20, ..options() });
        let engine = b.engine.clone();
        let (mut open, table) = (engine.session(), b.table.clone());
        let mut insert = |ids: std::ops::Range<u64>| {
            ids.for_each(|id| _ = open.insert(&table, &[id.into(), (&*text(id, 0)).into(), 0u64.into()]).unwrap());
        };
        insert(10_000..10_100);
        b.insert(20).unwrap();
        b.session.commit().unwrap();
        let mut took = Vec::new();
        while took.len() < 20 && refusing(number, 1, || engine.checkpoint()).is_err() {
            took.push(charged(Account::Memtable));
        }
        if took.is_empty() && !WAS_REFUSED.with(std::cell::Cell::get) {
            break;
        }
        failed += took.len();
        let (first, last) = (took.first().copied().unwrap_or(0), took.last().copied().unwrap_or(0));
        assert!(last <= first + (16 << 10), "region {number}: {took:?}");
        engine.checkpoint().unwrap();
        insert(10_100..11_000);
        let moved = global_total(Counter::RunsMoved);
        engine.checkpoint().unwrap();
        assert!(global_total(Counter::RunsMoved) > moved, "too little to be moved");
        open.commit().unwrap();
        b.rows.extend((10_000..11_000).map(|id| (id, (RowId(0), 0))));
        drop((open, table, engine));
        b.end();
    }
    assert!(failed > 100, "{failed} tries failed");
}

/// Indexes are made of the rows that are there.
#[test]
fn an_index_that_failed_leaves_nothing() {
    let _alone = alone();
    let added = || def().index("by_n", &["n", "text"]).unwrap().unique("by_both", &["text", "id"]).unwrap().indexes;
    for most in [1, u64::MAX] {
        let mut failed = 0;
        let refused = each_refused(|number| {
            let mut b = Bench::new(options());
            b.insert(1000).unwrap();
            b.update(4).unwrap();
            b.session.commit().unwrap();
            b.engine.set_memory_limit(1 << 20);
            let keep = |index: usize, def: &IndexDef| IndexPlan::Keep { index, name: def.name.clone() };
            let defs: Vec<IndexDef> = added();
            let plan: Vec<_> = vec![
                keep(0, &defs[0]),
                keep(1, &defs[1]),
                IndexPlan::Add(defs[2].clone()),
                IndexPlan::Add(defs[3].clone()),
            ];
            let (engine, table) = (b.engine.clone(), b.table.clone());
            let alter = || {
                let built = engine.build_indexes(&table, &plan, &mut |_, _| true)?;
                engine.alter_indexes(vec![built])
            };
            let files = b.files();
            if let Err(e) = refusing(number, most, alter) {
                assert!(is_want_of_memory(&e), "{e}");
                failed += 1;
                assert_eq!(b.files(), files);
                assert!(table.has_indexes(&def().indexes));
                b.check();
                alter().unwrap();
            }
            assert!(!engine.poisoned() && table.has_indexes(&defs));
            drop((engine, table));
            b.end();
        });
        println!("indexes, {most} refused: {refused} times, {failed} failed");
        assert!(refused > 20 && failed > 20, "{refused} refused, {failed} failed");
    }
}

/// A folder that could not be opened for want of memory is opened later, and its prepared transactions have what they had.
#[test]
fn an_opening_that_failed_is_made_later() {
    let _alone = alone();
    for most in [1, 4, u64::MAX] {
        let mut failed = 0;
        let refused = each_refused(|number| {
            let mut b = Bench::new(options());
            b.statement(|b| b.insert(500));
            b.statement(|b| b.update(5));
            b.session.commit().unwrap();
            b.insert(30).unwrap();
            b.session.commit().unwrap();
            let rows = b.rows.clone();
            // One with a little of everything, one with runs.
            b.statement(|b| b.update(17));
            b.session.prepare(b"a").unwrap();
            b.session.detach_prepared();
            let mut other = b.engine.session();
            for n in 0..600u64 {
                let id = 3_000_000 + n;
                other.insert(&b.table, &[id.into(), (&*text(id, 0)).into(), 0u64.into()]).unwrap();
            }
            other.prepare(b"b").unwrap();
            other.detach_prepared();
            let (updated, next, disk) = (b.rows.clone(), b.next, b.disk.clone());
            drop((b, other));
            let mut files = Vec::new();
            let engine = loop {
                match refusing(number, most, || open(&disk, &options())) {
                    Ok(engine) => break engine,
                    Err(e) => assert!(is_want_of_memory(&e), "{e}"),
                }
                failed += 1;
                let in_log = disk.list(Path::new("/db/wal")).unwrap().len();
                files.push(in_log + disk.list(Path::new("/db/runs")).unwrap().len());
                if files.len() == 4 {
                    break open(&disk, &options()).unwrap();
                }
            };
            assert!(files.windows(2).skip(1).all(|f| f[1] <= f[0]), "files after each try: {files:?}");
            assert_eq!(engine.prepared(), [b"a".to_vec(), b"b".to_vec()]);
            let (table, mut session) = (engine.open_table("t").unwrap(), engine.session());
            session.set_lock_wait(Duration::ZERO, true);
            let (first, (row, _)) = updated.iter().next().unwrap();
            let locked = session.update(&table, *row, &[(*first).into(), "x".into(), 0u64.into()]);
            assert!(matches!(locked, Err(Error::WouldBlock)), "{locked:?}");
            session.rollback().unwrap();
            assert!(engine.commit_xid(b"a").unwrap() && engine.rollback_xid(b"b").unwrap());
            assert_ne!(rows, updated);
            Bench { options: options(), disk, engine, table, session, rows: updated, next }.end();
        });
        println!("opening, {most} refused: {refused} times, {failed} failed");
        assert!(refused > 5 && failed > 5, "{refused} refused, {failed} failed");
    }
}
