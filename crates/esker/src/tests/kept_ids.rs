//! A row that its transaction deleted and inserts again, with the same primary key, is where it was.

use crate::tests::indexes::{def, image, Row};
use crate::tests::support::flush;
use crate::tests::tables::{open, options};
use crate::*;
use esker_base::counters::{bind, Counter, SessionCounters};
use esker_format::RowId;
use esker_io::SimDisk;
use std::sync::Arc;
use std::time::Duration;

struct Opened {
    disk: SimDisk,
    engine: Engine,
    table: Arc<Table>,
    counters: Arc<SessionCounters>,
}

impl Opened {
    /// With rows 0 to 9, committed.
    fn new(options: Options) -> Opened {
        let disk = SimDisk::new(1);
        let engine = open(&disk, options);
        engine.create_table("t", &def()).unwrap();
        let table = engine.open_table("t").unwrap();
        let o = Opened { disk, engine, table, counters: Arc::new(SessionCounters::new()) };
        let mut s = o.session();
        for a in 0..10 {
            o.insert(&mut s, a);
        }
        s.commit().unwrap();
        o
    }

    fn session(&self) -> Session {
        let mut s = self.engine.session();
        s.set_lock_wait(Duration::ZERO, true);
        s.begin(Isolation::RepeatableRead, BeginOptions::default());
        s
    }

    fn insert(&self, s: &mut Session, a: u32) -> RowId {
        self.insert_with(s, a, b"text")
    }

    fn insert_with(&self, s: &mut Session, a: u32, text: &[u8]) -> RowId {
        let row = Row { a, c: Some(a + 100), text: text.into() };
        unsafe { s.insert_image(&self.table, image(&row).as_ptr()).unwrap() }
    }

    fn delete(&self, s: &mut Session, a: u32) -> RowId {
        let row = self.seen(s).iter().find(|seen| seen.0 == a).unwrap().1;
        s.delete(&self.table, row).unwrap();
        row
    }

    /// The rows that it sees by their primary key, with their ids; all indexes agree with them.
    fn seen(&self, s: &mut Session) -> Vec<(u32, RowId)> {
        for index in 0..3 {
            let report = s.check_index(&self.table, index).unwrap();
            assert!(report.wrong.is_empty(), "index {index}: {report:?}");
        }
        let entries = s.read_entries(&self.table, 0, b"").unwrap();
        let rows: Vec<_> = entries.iter().map(|(key, row, _)| (number(key), *row)).collect();
        assert_eq!(s.count(&self.table).unwrap(), rows.len() as u64);
        rows
    }

    fn kept(&self) -> u64 {
        self.counters.get(Counter::RowIdsKept)
    }
}

/// Of a key of the first index.
fn number(key: &[u8]) -> u32 {
    u32::from_be_bytes(key[key.len() - 4..].try_into().unwrap())
}

#[test]
fn it_has_its_id_again() {
    let o = Opened::new(options());
    let _bound = bind(&o.counters);
    let (mut before, mut s) = (o.session(), o.session());
    let all = o.seen(&mut before);
    let row = o.delete(&mut s, 5);
    assert_eq!(o.insert_with(&mut s, 5, b"another"), row);
    // Once more, and under a savepoint that goes.
    let point = s.savepoint();
    assert_eq!(o.delete(&mut s, 5), row);
    assert_eq!(o.insert_with(&mut s, 5, b"third"), row);
    s.rollback_to(&point);
    assert_eq!(o.kept(), 2);
    for s in [&mut before, &mut s] {
        assert_eq!(o.seen(s), all);
    }
    s.commit().unwrap();
    assert_eq!(o.seen(&mut before), all, "an older view");
    assert_eq!(o.seen(&mut o.session()), all);
    flush(&o.engine, &o.table);
    assert_eq!(o.seen(&mut before), all, "an older view");
    assert_eq!(o.seen(&mut o.session()), all);
    // What went back is deleted again, or there as it was.
    let mut s = o.session();
    let point = s.savepoint();
    o.delete(&mut s, 7);
    let deleted = s.savepoint();
    o.insert(&mut s, 7);
    s.rollback_to(&deleted);
    assert_eq!(o.seen(&mut s).len(), 9);
    s.rollback_to(&point);
    assert_eq!(o.seen(&mut s), all);
    o.delete(&mut s, 7);
    o.insert(&mut s, 7);
    drop((before, s));
    let Opened { disk, engine, table, .. } = o;
    drop((table, engine));
    disk.crash();
    let engine = open(&disk, options());
    let table = engine.open_table("t").unwrap();
    let o = Opened { disk, engine, table, counters: Arc::default() };
    assert_eq!(o.seen(&mut o.session()), all);
}

/// A key alone says nothing of the row that had it.
#[test]
fn another_row_keeps_its_own() {
    let o = Opened::new(options());
    let _bound = bind(&o.counters);
    let mut s = o.session();
    let all = o.seen(&mut s);
    // The row went on with another key.
    let row = all[5].1;
    let moved = Row { a: 50, c: None, text: b"moved".into() };
    unsafe { s.update_image(&o.table, row, image(&moved).as_ptr()).unwrap() };
    let new = o.insert(&mut s, 5);
    assert!(new > all[9].1, "row {new} is somebody's");
    // Deleted under its second key, and inserted under the first one, once that is free.
    assert_eq!(o.delete(&mut s, 50), row);
    assert_eq!(o.delete(&mut s, 5), new);
    assert_eq!((o.insert(&mut s, 5), o.insert(&mut s, 50)), (new, row));
    assert_eq!(o.kept(), 2);
    // Another transaction's deletion.
    s.commit().unwrap();
    let row = o.delete(&mut s, 3);
    s.commit().unwrap();
    assert!(o.insert(&mut s, 3) > row);
    // Only another unique key is the same.
    let row = o.delete(&mut s, 8);
    let other = Row { a: 9000, c: Some(108), text: b"another".into() };
    assert!(unsafe { s.insert_image(&o.table, image(&other).as_ptr()).unwrap() } > row);
    // What went into a run with its deletion.
    let row = o.delete(&mut s, 4);
    flush(&o.engine, &o.table);
    let id = o.insert(&mut s, 4);
    assert!(id >= row);
    s.commit().unwrap();
    assert_eq!(o.seen(&mut o.session()).len(), 11);
}

/// All rows are deleted at once after it: its deletion is not to be seen any more.
#[test]
fn a_range_mark_over_it() {
    let o = Opened::new(options());
    let _bound = bind(&o.counters);
    let mut s = o.session();
    let row = o.delete(&mut s, 5);
    s.delete_all(&o.table).unwrap();
    let new = o.insert(&mut s, 5);
    assert!(new > row);
    assert_eq!(o.delete(&mut s, 5), new);
    assert_eq!(o.insert(&mut s, 5), new);
    assert_eq!(o.seen(&mut s), [(5, new)]);
    let point = s.savepoint();
    s.delete_all(&o.table).unwrap();
    assert!(o.seen(&mut s).is_empty());
    o.insert(&mut s, 5);
    s.rollback_to(&point);
    assert_eq!(o.seen(&mut s), [(5, new)]);
    s.commit().unwrap();
    assert_eq!(o.seen(&mut o.session()), [(5, new)]);
    flush(&o.engine, &o.table);
    assert_eq!(o.seen(&mut o.session()), [(5, new)]);
    assert_eq!(o.kept(), 1);
}

/// It comes once the transaction gathers for itself.
#[test]
fn a_large_transaction_gives_new_ids() {
    let o = Opened::new(Options { bulk_threshold_bytes: 4 << 10, min_run_bytes: 2 << 10, ..options() });
    let _bound = bind(&o.counters);
    let mut s = o.session();
    let row = o.delete(&mut s, 5);
    for a in 100..400 {
        o.insert(&mut s, a);
    }
    assert!(o.insert(&mut s, 5) > row);
    assert_eq!((o.seen(&mut s).len(), o.kept()), (310, 0));
    s.commit().unwrap();
    assert_eq!(o.seen(&mut o.session()).len(), 310);
}

/// Somebody else deleted and inserted rows that the own view has not seen go.
#[test]
fn rows_that_others_have_changed_since() {
    let o = Opened::new(options());
    let _bound = bind(&o.counters);
    let mut s = o.engine.session();
    s.set_lock_wait(Duration::ZERO, true);
    s.begin(Isolation::RepeatableRead, BeginOptions { snapshot_isolation: false });
    assert_eq!(o.seen(&mut s).len(), 10);
    let mut other = o.session();
    let old = o.delete(&mut other, 5);
    let new = o.insert_with(&mut other, 5, b"of another");
    other.commit().unwrap();
    assert_eq!(old, new);
    // Its view has the version of before, and it writes over the one of after.
    s.delete(&o.table, new).unwrap();
    assert_eq!(o.seen(&mut s).len(), 9);
    assert_eq!(o.insert(&mut s, 5), old);
    assert_eq!(o.seen(&mut s).len(), 10);
    s.commit().unwrap();
    assert_eq!((o.seen(&mut o.session()).len(), o.kept()), (10, 2));
}
