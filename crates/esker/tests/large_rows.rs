//! Memory for a long row that is not to be had is an error of its statement, not the end of the process: each large allocation that
//! writing, committing and reading such rows makes fails once. A process of its own, since the allocator is the process's.

#![allow(clippy::unwrap_used)]

use esker::format::{Compression, RowId};
use esker::{Background, Engine, Error, Options, PosixDisk, Result, Schema, Session, Table, TableDef, Type};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::path::Path;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::Arc;

/// From so many bytes on an allocation is large.
const LARGE: usize = 64 << 10;
const ROW_BYTES: usize = 1 << 20;

/// Bytes that are allocated now.
static LIVE: AtomicI64 = AtomicI64::new(0);
/// Large allocations so far, and the one that fails.
static MADE: AtomicU64 = AtomicU64::new(0);
static FAILS: AtomicU64 = AtomicU64::new(u64::MAX);

struct Scarce;

fn counted(place: *mut u8, bytes: i64) -> *mut u8 {
    if !place.is_null() {
        LIVE.fetch_add(bytes, Ordering::Relaxed);
    }
    place
}

fn refused(bytes: usize) -> bool {
    bytes >= LARGE && MADE.fetch_add(1, Ordering::Relaxed) == FAILS.load(Ordering::Relaxed)
}

// SAFETY: all is the system's, or a null.
unsafe impl GlobalAlloc for Scarce {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        if refused(layout.size()) {
            std::ptr::null_mut()
        } else {
            counted(unsafe { System.alloc(layout) }, layout.size() as i64)
        }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        if refused(layout.size()) {
            std::ptr::null_mut()
        } else {
            counted(unsafe { System.alloc_zeroed(layout) }, layout.size() as i64)
        }
    }
    unsafe fn realloc(&self, place: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: the caller's promise.
        if refused(bytes) {
            std::ptr::null_mut()
        } else {
            counted(unsafe { System.realloc(place, layout, bytes) }, bytes as i64 - layout.size() as i64)
        }
    }
    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Scarce = Scarce;

fn text(of: u8) -> String {
    let mut state = u64::from(of) + 1;
    std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b' ' + (state >> 58) as u8)
    })
    .take(ROW_BYTES)
    .collect()
}

/// Does `work` again and again, each time with another large allocation that fails, until none of them does: it is told of as
/// an error, or the work gets on without that memory. Each time `after` gets what came of it. How many failed.
fn each_fails(b: &mut Bench, work: impl Fn(&mut Bench) -> Result<()>, after: impl Fn(&mut Bench, &Result<()>)) -> u64 {
    for fails in 0.. {
        FAILS.store(MADE.load(Ordering::Relaxed) + fails, Ordering::Relaxed);
        let result = work(b);
        let failed = MADE.load(Ordering::Relaxed) > FAILS.swap(u64::MAX, Ordering::Relaxed);
        b.session.rollback().unwrap();
        assert!(matches!(result, Ok(()) | Err(Error::OutOfMemory(_))), "large allocation {fails}: {result:?}");
        after(b, &result);
        b.check();
        if !failed {
            result.unwrap();
            return fails;
        }
    }
    unreachable!("some time none fails")
}

struct Bench {
    engine: Engine,
    table: Arc<Table>,
    session: Session,
    /// Rows that were said to be inserted in this round, and whether they were said to be committed.
    inserted: Vec<u64>,
    committed: bool,
}

fn open(dir: &Path, bulk_threshold_bytes: usize) -> Result<Engine> {
    let options = Options { bulk_threshold_bytes, background: Background::Inline, ..Options::default() };
    Engine::open(Arc::new(PosixDisk::default()), dir, options, Arc::new(|_, _| {}))
}

impl Bench {
    fn open(dir: &Path, bulk_threshold_bytes: usize, compression: Compression) -> Bench {
        let engine = open(dir, bulk_threshold_bytes).unwrap();
        let schema = Schema::new().column("id", Type::U64).column("long", Type::Text(1 << 26)).column("n", Type::U64);
        let def = TableDef::of(&schema).unwrap().unique("by_id", &["id"]).unwrap();
        engine.create_table("t", &TableDef { compression, ..def }).unwrap();
        let (table, session) = (engine.open_table("t").unwrap(), engine.session());
        Bench { engine, table, session, inserted: Vec::new(), committed: false }
    }

    fn insert(&mut self, id: u64, long: &str) -> Result<RowId> {
        self.session.insert(&self.table, &[id.into(), long.into(), id.into()])
    }

    fn update(&mut self, row: RowId, id: u64, long: &str) -> Result<()> {
        self.session.update(&self.table, row, &[id.into(), long.into(), 0u64.into()])
    }

    /// All rows, each with whether its text is this one.
    fn rows(&mut self, text: &str) -> Result<Vec<(RowId, u64, bool)>> {
        let (mut rows, mut all) = (self.session.rows(&self.table)?, Vec::new());
        while let Some(row) = rows.next()? {
            all.push((row.id(), row.get("id")?, row.get::<&str>("long")? == text));
        }
        Ok(all)
    }

    /// What there is agrees: rows, index, and the number of rows that is kept.
    fn check(&mut self) {
        self.session.rollback().unwrap();
        let (counted, read) = (self.session.count_rows(&self.table).unwrap(), self.rows("").unwrap().len());
        self.session.rollback().unwrap();
        assert_eq!(counted, read as u64);
        let report = self.engine.check(&self.table, &mut |_, _| true).unwrap();
        assert!(report.damages.is_empty() && report.unheld.is_empty(), "{report:?}");
    }
}

/// A row that was refused is not there, whatever becomes of the others: whoever goes on without it commits them, or is told that he
/// cannot.
fn inserts(b: &mut Bench, long: &str) -> u64 {
    let work = |b: &mut Bench| {
        (b.inserted, b.committed) = (Vec::new(), false);
        let mut first_error = Ok(());
        for (id, text) in [(1, "short"), (2, long), (3, long), (4, "short"), (5, long)] {
            match b.insert(id, text) {
                Ok(_) => b.inserted.push(id),
                Err(e) => first_error = first_error.and(Err(e)),
            }
        }
        match b.session.commit() {
            Ok(()) => b.committed = true,
            Err(Error::OutOfMemory(_)) => {}
            Err(e) => return Err(e),
        }
        first_error
    };
    each_fails(b, work, |b, _| {
        let all = b.rows(long).unwrap();
        let found: Vec<_> = all.iter().map(|(_, id, _)| *id).collect();
        assert_eq!(found, if b.committed { b.inserted.clone() } else { Vec::new() });
        assert!(all.iter().all(|(_, id, is_long)| *is_long == [2, 3, 5].contains(id)), "{all:?}");
        all.iter().for_each(|(row, ..)| b.session.delete(&b.table, *row).unwrap());
        b.session.commit().unwrap();
    })
}

fn updates(b: &mut Bench, (first, second): (&str, &str)) -> u64 {
    let row = b.insert(1, first).unwrap();
    b.session.commit().unwrap();
    each_fails(
        b,
        |b| b.update(row, 2, second).and_then(|()| b.session.commit()),
        |b, done| {
            let expected = if done.is_ok() { second } else { first };
            assert!(b.rows(expected).unwrap()[0].2, "the row is not what it is said to be");
            b.session.rollback().unwrap();
            b.update(row, 1, first).unwrap();
            b.session.commit().unwrap();
        },
    )
}

/// A row that comes in the place of one that its transaction has deleted. A session keeps no memory for one that failed.
fn replaces(b: &mut Bench, (first, second): (&str, &str)) -> u64 {
    b.insert(7, first).unwrap();
    b.session.commit().unwrap();
    let row_of = |b: &mut Bench, text: &str| b.rows(text).map(|all| *all.iter().find(|(_, id, _)| *id == 7).unwrap());
    let least = Cell::new(i64::MAX);
    let replaced = each_fails(
        b,
        |b| {
            let (row, ..) = row_of(b, first)?;
            b.session.rollback()?;
            b.session.delete(&b.table, row)?;
            b.insert(7, second)?;
            b.session.commit()
        },
        |b, done| {
            let live = LIVE.load(Ordering::Relaxed);
            least.set(least.get().min(live));
            let most = least.get() + ROW_BYTES as i64 / 2;
            assert!(done.is_ok() || live < most, "a session keeps {} bytes", live - least.get());
            let (row, _, is_second) = row_of(b, second).unwrap();
            b.session.rollback().unwrap();
            assert_eq!(is_second, done.is_ok());
            b.update(row, 7, first).unwrap();
            b.session.commit().unwrap();
        },
    );
    let (row, ..) = row_of(b, first).unwrap();
    b.session.rollback().unwrap();
    b.session.delete(&b.table, row).unwrap();
    b.session.commit().unwrap();
    replaced
}

/// From memtables, from blocks as they are stored, and merged.
fn reads(b: &mut Bench, long: &str) -> u64 {
    let read = |b: &mut Bench| {
        let all = b.rows(long)?;
        assert!(all.len() == 1 && all[0].2, "a row reads as another");
        Ok(())
    };
    let write_out = |b: &mut Bench| {
        b.engine.checkpoint()?;
        b.engine.optimize(&b.table, &mut |_, _| true)
    };
    (0..2).map(|_| each_fails(b, read, |_, _| ()) + each_fails(b, write_out, |_, _| ())).sum()
}

/// The log has such rows, some of which are prepared.
fn opens(mut b: Bench, dir: &Path, bulk_threshold_bytes: usize, long: &str) -> u64 {
    let rows = b.rows(long).unwrap().len();
    (11..14).for_each(|id| _ = b.insert(id, long).unwrap());
    b.session.commit().unwrap();
    b.insert(14, long).unwrap();
    b.session.prepare(b"x").unwrap();
    b.session.detach_prepared();
    drop(b);
    for fails in 0.. {
        FAILS.store(MADE.load(Ordering::Relaxed) + fails, Ordering::Relaxed);
        let opened = open(dir, bulk_threshold_bytes);
        let failed = MADE.load(Ordering::Relaxed) > FAILS.swap(u64::MAX, Ordering::Relaxed);
        match opened {
            Ok(engine) => {
                assert_eq!(engine.prepared(), [b"x"]);
                let (table, session) = (engine.open_table("t").unwrap(), engine.session());
                let mut b = Bench { engine, table, session, inserted: Vec::new(), committed: false };
                let found = b.rows(long).unwrap();
                assert_eq!((found.len(), found.iter().filter(|(.., is_long)| *is_long).count()), (rows + 3, rows + 3));
                if !failed {
                    return fails;
                }
            }
            Err(e) => assert!(matches!(e, Error::OutOfMemory(_)), "large allocation {fails}: {e}"),
        }
    }
    unreachable!("some time none fails")
}

#[test]
fn memory_for_a_long_row_that_is_missing_is_an_error() {
    let (first, second) = (text(1), text(2));
    for (bulk, compression) in [
        (1 << 10, Compression::Lz4),
        (1 << 10, Compression::None),
        (64 << 20, Compression::Lz4),
        (64 << 20, Compression::Zstd),
    ] {
        let dir = std::env::temp_dir().join(format!("esker-large-rows-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        let mut b = Bench::open(&dir, bulk, compression);
        let texts = (&*second, &*first);
        let failed = [inserts(&mut b, &first), replaces(&mut b, texts), updates(&mut b, texts), reads(&mut b, &second)];
        let opening = opens(b, &dir, bulk, &second);
        assert!(failed.iter().all(|failed| *failed > 2), "large allocations that failed: {failed:?}");
        assert!(opening > if bulk > ROW_BYTES { 4 } else { 0 }, "{opening} large allocations of an opening failed");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
