//! Entries of inserted rows that are put together: nobody finds that they were not put one by one.

use crate::tests::indexes::{def, image, Row};
use crate::tests::tables::{open, options};
use crate::*;
use esker_base::counters::{bind, Counter, SessionCounters};
use esker_format::{ColumnMask, RowId};
use esker_io::SimDisk;
use std::sync::Arc;
use std::time::Duration;

/// The plain index of [`def`], and the last one, whose keys end with the row where they are NULL.
const PLAIN: usize = 1;
const NULLS: usize = 2;

struct Opened {
    disk: SimDisk,
    engine: Engine,
    table: Arc<Table>,
    counters: Arc<SessionCounters>,
}

impl Opened {
    fn new(options: Options) -> Opened {
        let disk = SimDisk::new(1);
        let engine = open(&disk, options);
        engine.create_table("t", &def()).unwrap();
        let table = engine.open_table("t").unwrap();
        Opened { disk, engine, table, counters: Arc::new(SessionCounters::new()) }
    }

    /// A session within a statement.
    fn session(&self) -> Session {
        let mut s = self.engine.session();
        s.set_lock_wait(Duration::ZERO, true);
        s.begin(Isolation::RepeatableRead, BeginOptions::default());
        s.begin_statement();
        s
    }

    fn insert(&self, s: &mut Session, rows: std::ops::Range<u32>) -> RowId {
        let insert = |a| unsafe { s.insert_image(&self.table, image(&row(a)).as_ptr()).unwrap() };
        rows.map(insert).last().unwrap()
    }

    /// How many entries of both indexes it sees, if they agree with the rows.
    fn seen(&self, s: &mut Session) -> usize {
        for index in 0..3 {
            let report = s.check_index(&self.table, index).unwrap();
            assert!(report.wrong.is_empty(), "index {index}: {report:?}");
        }
        [PLAIN, NULLS].map(|index| s.read_entries(&self.table, index, b"").unwrap().len()).iter().sum()
    }

    /// Entries that were put together so far.
    fn together(&self) -> u64 {
        self.counters.get(Counter::EntriesTogether)
    }
}

fn row(a: u32) -> Row {
    Row { a, c: None, text: format!("text {}", a * 7919 % 1000).into_bytes() }
}

#[test]
fn a_statement_reads_what_it_inserted() {
    let o = Opened::new(options());
    let _bound = bind(&o.counters);
    let mut s = o.session();
    o.insert(&mut s, 0..10);
    assert_eq!(o.together(), 0, "they wait for more");
    // But for those of the first row.
    assert_eq!((o.seen(&mut s), o.together()), (20, 18));
    // So many at the latest.
    o.insert(&mut s, 10..35);
    assert_eq!(o.together(), 58);
    let last = o.insert(&mut s, 35..40);
    // The row that was inserted last changes and goes.
    unsafe { s.update_image(&o.table, last, image(&row(100)).as_ptr()).unwrap() };
    assert_eq!(o.seen(&mut s), 80);
    let last = o.insert(&mut s, 40..41);
    s.delete(&o.table, last).unwrap();
    assert_eq!(o.seen(&mut s), 80);
    o.insert(&mut s, 41..42);
    s.commit().unwrap();
    assert_eq!(o.seen(&mut o.session()), 82);
}

#[test]
fn what_goes_back_takes_what_waits_along() {
    let o = Opened::new(options());
    let _bound = bind(&o.counters);
    let mut s = o.session();
    o.insert(&mut s, 0..10);
    let point = s.savepoint();
    assert_eq!(o.together(), 18);
    o.insert(&mut s, 10..15);
    s.rollback_to(&point);
    o.insert(&mut s, 15..18);
    assert_eq!(o.seen(&mut s), 26);
    s.end_statement();
    s.begin_statement();
    o.insert(&mut s, 18..20);
    s.rollback_statement();
    s.end_statement();
    assert_eq!((o.seen(&mut s), o.together()), (26, 24));
    s.commit().unwrap();
    // Nothing of what went back comes with the log.
    o.disk.crash();
    let Opened { disk, engine, table, counters } = o;
    drop((s, table, engine));
    let engine = open(&disk, options());
    let table = engine.open_table("t").unwrap();
    let o = Opened { disk, engine, table, counters };
    assert_eq!(o.seen(&mut o.session()), 26);
    let mut s = o.session();
    o.insert(&mut s, 30..35);
    s.rollback().unwrap();
    assert_eq!(o.seen(&mut o.session()), 26);
}

/// Between statements others find all of them, and wait.
#[test]
fn a_statement_ends_with_all_entries_put() {
    let o = Opened::new(options());
    let _bound = bind(&o.counters);
    let (mut s, mut other) = (o.session(), o.session());
    let point = s.savepoint();
    o.insert(&mut s, 9..10);
    s.rollback_to(&point);
    o.insert(&mut s, 0..3);
    let mut read = |o: &Opened| -> Result<usize> {
        let options =
            ScanOptions { mask: ColumnMask::all(3), lock: Some(LockMode::Exclusive), ..ScanOptions::default() };
        let mut cursor = other.open_index_cursor(&o.table, PLAIN, options).unwrap();
        cursor.seek(&mut other, KeyRange { from: vec![], to: None }, Direction::Forward).unwrap();
        let mut rows = 0;
        loop {
            match cursor.next_batch(&mut other)?.ids.len() {
                0 => return Ok(rows),
                some => rows += some,
            }
        }
    };
    assert_eq!(read(&o).unwrap(), 0, "those that are being inserted come behind");
    s.end_statement();
    assert_eq!(o.together(), 6);
    assert!(read(&o).is_err(), "somebody's rows were not waited for");
    s.begin_statement();
    o.insert(&mut s, 20..21);
    s.commit().unwrap();
    assert_eq!(read(&o).unwrap(), 4);
    // Without statements each is there at once: who has none, or whose transaction with it is over.
    for mut alone in [o.engine.session(), s] {
        o.insert(&mut alone, 3..5);
        assert_eq!(o.together(), 6);
        assert!(read(&o).is_err(), "somebody's rows were not waited for");
        alone.rollback().unwrap();
    }
}

/// In the middle of a statement the transaction becomes a large one.
#[test]
fn none_is_lost_where_a_transaction_becomes_large() {
    let o = Opened::new(Options { bulk_threshold_bytes: 8 << 10, min_run_bytes: 4 << 10, ..options() });
    let _bound = bind(&o.counters);
    let mut s = o.session();
    o.insert(&mut s, 0..1000);
    let together = o.together();
    assert!((40..1000).contains(&together), "{together} entries were put together");
    assert_eq!(o.seen(&mut s), 2000);
    s.commit().unwrap();
    assert_eq!(o.seen(&mut o.session()), 2000);
}

/// A temporary table is emptied in the middle of a statement: its rows, and their entries, are gone.
#[test]
fn an_emptied_temporary_table_keeps_none() {
    let o = Opened::new(options());
    let _bound = bind(&o.counters);
    o.engine.create_table("temporary", &TableDef { temporary: true, ..def() }).unwrap();
    let table = o.engine.open_table("temporary").unwrap();
    let o = Opened { table, ..o };
    let mut s = o.session();
    o.insert(&mut s, 0..5);
    o.engine.truncate_table("temporary").unwrap();
    o.insert(&mut s, 5..7);
    assert_eq!((o.seen(&mut s), o.together()), (4, 4));
    o.insert(&mut s, 7..8);
    o.engine.truncate_table("temporary").unwrap();
    s.commit().unwrap();
    assert_eq!((o.seen(&mut o.session()), o.together()), (0, 4));
}
