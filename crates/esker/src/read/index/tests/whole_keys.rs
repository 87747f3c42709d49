//! Whole keys of a unique index, for who locks: looked up if nobody else has to do with them, else waited for.

use super::*;
use crate::tests::support::begun;
use crate::WaitHooks;
use esker_base::counters::{bind, Counter, SessionCounters};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// What others have done with the key of row 7.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Others {
    /// Nothing; with other keys much.
    Elsewhere,
    /// They have put it, for a row of their own, after its own row was deleted.
    Put,
    /// The same with many rows, which they have for themselves.
    PutWithMany,
    /// The same, and a flush has moved it to a run of their own.
    PutAndMoved,
    /// They have deleted it.
    Deleted,
    /// They have deleted it with all others.
    DeletedWithAll,
    /// They have given its row another key.
    Moved,
    /// They have given its row another key, gone back to the savepoint before, and let go of the row.
    RolledBack,
}

const ALL: [Others; 8] = [
    Others::Elsewhere,
    Others::Put,
    Others::PutWithMany,
    Others::PutAndMoved,
    Others::Deleted,
    Others::DeletedWithAll,
    Others::Moved,
    Others::RolledBack,
];

fn row(n: u64) -> Values {
    (n, Some(n as i32), Some(format!("name {n}").into_bytes()))
}

fn key_of(t: &Table, n: u64) -> Vec<u8> {
    entry_of(t, BY_NAME, RowId(0), &row(n)).0
}

/// Ends the others' transaction when the session is about to wait.
struct Ends {
    others: RefCell<Option<(Session, bool)>>,
    waits: Rc<Cell<usize>>,
}

// SAFETY: these tests have one thread.
unsafe impl Send for Ends {}

impl WaitHooks for Ends {
    fn before_wait(&self) {
        self.waits.set(self.waits.get() + 1);
        let (mut others, commits) = self.others.borrow_mut().take().expect("waited for twice");
        if commits {
            others.commit().unwrap()
        } else {
            others.rollback().unwrap()
        }
    }
}

/// A table with rows 0 to 19, in memory or in a run, and others who have done that.
fn table_with(others: Others, flushed: bool) -> (SimDisk, Engine, Arc<Table>, Session) {
    let many = Options { bulk_threshold_bytes: 4 << 10, min_run_bytes: 64 << 10, ..small_blocks() };
    let few = Options { bulk_threshold_bytes: 1 << 20, ..small_blocks() };
    let (disk, e, t) = made(if others == Others::PutWithMany { many } else { few });
    let mut s = begun(&e, false);
    (0..20).for_each(|n| {
        insert(&mut s, &t, &row(n));
        s.commit().unwrap();
    });
    if matches!(others, Others::Put | Others::PutWithMany | Others::PutAndMoved) {
        s.delete(&t, RowId(7 + 1)).unwrap();
        s.commit().unwrap();
    }
    if flushed {
        e.sim_flush(&t).unwrap();
    }
    let mut o = begun(&e, false);
    match others {
        Others::Elsewhere => {
            insert(&mut o, &t, &row(100));
            o.delete(&t, RowId(8 + 1)).unwrap();
        }
        Others::Put => assert!(insert(&mut o, &t, &row(7)) > RowId(20)),
        Others::PutWithMany | Others::PutAndMoved => {
            insert(&mut o, &t, &row(7));
            (1000..3000).for_each(|n| assert!(insert(&mut o, &t, &row(n)) > RowId(20)));
            if others == Others::PutAndMoved {
                e.sim_flush(&t).unwrap();
            }
        }
        Others::Deleted => o.delete(&t, RowId(7 + 1)).unwrap(),
        Others::DeletedWithAll => {
            o.lock_all(&t).unwrap();
            o.delete_all(&t).unwrap();
        }
        Others::Moved => update(&mut o, &t, RowId(7 + 1), &row(200)),
        Others::RolledBack => {
            o.delete(&t, RowId(8 + 1)).unwrap();
            let point = o.savepoint();
            update(&mut o, &t, RowId(7 + 1), &row(200));
            o.rollback_to(&point);
            o.unlock_row(&t, RowId(7 + 1));
        }
    }
    (disk, e, t, o)
}

/// Whoever locks by a key waits for those who have changed it, whatever lies where, and for nobody else; then he meets what they
/// left. A key that nobody disputes is looked up.
#[test]
fn a_whole_key_is_locked_as_its_changes_end() {
    let mut looked_up = 0;
    for others in ALL {
        for (flushed, commits) in [(false, false), (false, true), (true, false), (true, true)] {
            let (_disk, e, t, o) = table_with(others, flushed);
            let state = t.trees().keys[BY_NAME].snapshot();
            match others {
                Others::PutWithMany => assert!(!state.privates.is_empty(), "it has nothing for itself"),
                Others::PutAndMoved => assert!(state.runs.iter().any(|r| r.owner.is_some()), "nothing was moved"),
                Others::DeletedWithAll => assert!(state.marks.iter().any(|m| m.owner.is_some())),
                _ => {}
            }
            let mut s = begun(&e, false);
            let counters = Arc::new(SessionCounters::new());
            let _bound = bind(&counters);
            let (waits, others_end) = (Rc::new(Cell::new(0)), RefCell::new(Some((o, commits))));
            s.set_wait_hooks(Box::new(Ends { others: others_end, waits: waits.clone() }));
            let mut c = s.open_index_cursor(&t, BY_NAME, locking()).unwrap();
            c.seek_key(&mut s, &key_of(&t, 7), Direction::Forward).unwrap();
            let found: Vec<u64> = rest(&mut s, &mut c, &locking().mask).iter().map(|g| g.2 .0).collect();
            let is_there = match others {
                Others::Elsewhere | Others::RolledBack => true,
                Others::Put | Others::PutWithMany | Others::PutAndMoved => commits,
                Others::Deleted | Others::DeletedWithAll | Others::Moved => !commits,
            };
            let what = format!("{others:?}, flushed {flushed}, committed {commits}");
            assert_eq!(found, if is_there { vec![7] } else { vec![] }, "{what}");
            assert_eq!(waits.get(), usize::from(!matches!(others, Others::Elsewhere | Others::RolledBack)), "{what}");
            looked_up += counters.get(Counter::KeysLookedUp);
            // It has the row's lock.
            let mut third = begun(&e, false);
            third.set_lock_wait(std::time::Duration::ZERO, true);
            if is_there && !matches!(others, Others::Put | Others::PutWithMany | Others::PutAndMoved) {
                assert!(matches!(third.delete(&t, RowId(7 + 1)), Err(Error::WouldBlock)), "{what}");
            }
        }
    }
    // Those that nobody disputes: elsewhere, and what was rolled back.
    assert_eq!(looked_up, 8);
}

/// A row whose key moves while its lock is waited for is not given by its old key.
#[test]
fn a_row_that_moves_while_its_lock_is_waited_for_has_another_key() {
    for flushed in [false, true] {
        let (_disk, e, t, mut o) = table_with(Others::Elsewhere, flushed);
        // Its key stays, so nobody disputes it.
        update(&mut o, &t, RowId(7 + 1), &(7, Some(70), row(7).2));
        let mut s = begun(&e, false);
        struct Moves(RefCell<Option<(Session, Arc<Table>)>>);
        // SAFETY: this test has one thread.
        unsafe impl Send for Moves {}
        impl WaitHooks for Moves {
            fn before_wait(&self) {
                let (mut o, t) = self.0.borrow_mut().take().expect("waited for twice");
                update(&mut o, &t, RowId(7 + 1), &row(200));
                o.commit().unwrap();
            }
        }
        s.set_wait_hooks(Box::new(Moves(RefCell::new(Some((o, t.clone()))))));
        let counters = Arc::new(SessionCounters::new());
        let _bound = bind(&counters);
        let mut c = s.open_index_cursor(&t, BY_NAME, locking()).unwrap();
        for (n, expected) in [(7, vec![]), (200, vec![200])] {
            c.seek_key(&mut s, &key_of(&t, n), Direction::Forward).unwrap();
            let found: Vec<u64> = rest(&mut s, &mut c, &locking().mask).iter().map(|g| g.2 .0).collect();
            assert_eq!(found, expected);
        }
        assert_eq!(counters.get(Counter::KeysLookedUp), 2);
    }
}

/// Two rows change their keys between a look at one of these and the lock of its row: the one is met that has the key then.
#[test]
fn a_key_that_moves_behind_the_reader_is_met_where_it_is() {
    for flushed in [false, true] {
        let (_disk, e, t, o) = table_with(Others::Elsewhere, flushed);
        drop(o);
        let mut s = begun(&e, false);
        let mut c = s.open_index_cursor(&t, BY_NAME, locking()).unwrap();
        let (engine, table, done) = (e.clone(), t.clone(), Rc::new(Cell::new(false)));
        let told = done.clone();
        crate::tests::hooks::at("a whole key was looked up", move || {
            let mut o = begun(&engine, false);
            update(&mut o, &table, RowId(7 + 1), &row(200));
            update(&mut o, &table, RowId(9 + 1), &(7, Some(9), row(7).2));
            o.commit().unwrap();
            told.set(true);
        });
        c.seek_key(&mut s, &key_of(&t, 7), Direction::Forward).unwrap();
        assert!(done.get());
        let found: Vec<_> = rest(&mut s, &mut c, &locking().mask).iter().map(|g| (g.1, g.2 .1)).collect();
        assert_eq!(found, [(RowId(9 + 1), Some(9))]);
    }
}

/// Who asks for one key gets it under its lock or not at all: no last committed version, though the cursor would take one.
#[test]
fn a_whole_key_is_read_semi_consistently_by_nobody() {
    let (_disk, e, t, o) = table_with(Others::Elsewhere, false);
    drop(o);
    let mut o = begun(&e, false);
    update(&mut o, &t, RowId(7 + 1), &(7, Some(70), row(7).2));
    let mut s = begun(&e, false);
    s.set_lock_wait(std::time::Duration::ZERO, true);
    let options = ScanOptions { semi_consistent: true, ..locking() };
    let mut c = s.open_index_cursor(&t, BY_NAME, options).unwrap();
    c.seek(&mut s, KeyRange::of_prefix(&key_of(&t, 7)), Direction::Forward).unwrap();
    assert_eq!(given(&c.next_batch(&mut s).unwrap(), &locking().mask).len(), 1, "a range is read so");
    c.seek_key(&mut s, &key_of(&t, 7), Direction::Forward).unwrap();
    assert!(matches!(c.next_batch(&mut s), Err(Error::WouldBlock)));
}

/// A session's next transaction is made of one that has only read, and is another one all the same.
#[test]
fn what_has_only_read_is_used_again() {
    let (_disk, e, t, o) = table_with(Others::Elsewhere, false);
    drop(o);
    let mut s = begun(&e, false);
    let mut image = vec![0; (30 + TEXT) as usize];
    let mut ids = Vec::new();
    for n in 0..3 {
        let found = s.row_by_key(&t, BY_NAME, &key_of(&t, 7), &mask_of(&[NUMBER, FEW]), &mut image).unwrap();
        assert_eq!((found, values_of(&image, &mask_of(&[FEW])).1), (Some(RowId(7 + 1)), Some(7)));
        assert_eq!(e.transactions().len(), 1);
        if n == 1 {
            let mut c = s.open_index_cursor(&t, BY_NAME, locking()).unwrap();
            c.seek_key(&mut s, &key_of(&t, 9), Direction::Forward).unwrap();
            assert_eq!(rest(&mut s, &mut c, &locking().mask).len(), 1);
            assert_eq!(e.transactions()[0].rows_locked, 1);
        }
        ids.push(s.txn_id().unwrap());
        s.commit().unwrap();
        assert!(e.transactions().is_empty() && s.unused.is_some());
        crate::tests::support::begin(&mut s);
        assert_eq!(e.transactions()[0].rows_locked, 0);
    }
    ids.dedup();
    assert_eq!(ids.len(), 3);
    // One that has written is not.
    s.delete(&t, RowId(3 + 1)).unwrap();
    s.rollback().unwrap();
    assert!(s.unused.is_none());
    // Nor does it see with the eyes of the one before.
    crate::tests::support::begin(&mut s);
    assert!(s.row_by_key(&t, BY_NAME, &key_of(&t, 3), &mask_of(&[FEW]), &mut image).unwrap().is_some());
    s.commit().unwrap();
    let mut other = begun(&e, false);
    other.delete(&t, RowId(3 + 1)).unwrap();
    other.commit().unwrap();
    crate::tests::support::begin(&mut s);
    assert!(s.row_by_key(&t, BY_NAME, &key_of(&t, 3), &mask_of(&[FEW]), &mut image).unwrap().is_none());
}

/// A table that was emptied, or has come in another's place, since a statement opened its view: it is not empty to it.
#[test]
fn what_a_table_became_since_is_not_read_by_an_older_view() {
    for is_shown in [false, true] {
        let (_disk, e, t, o) = table_with(Others::Elsewhere, false);
        drop(o);
        let mut s = e.session();
        let mut image = vec![0; (30 + TEXT) as usize];
        assert!(s.count(&t).unwrap() > 0);
        let t = match is_shown {
            false => {
                e.truncate_table("t").unwrap();
                t
            }
            true => {
                e.create_table("copy", &def()).unwrap();
                let copy = e.open_table("copy").unwrap();
                let mut other = e.session();
                insert(&mut other, &copy, &(7, Some(7), Some(Vec::new())));
                other.commit().unwrap();
                e.rename_table("t", "old").unwrap();
                e.show_table("copy", "t").unwrap();
                copy
            }
        };
        let mask = mask_of(&[NUMBER]);
        let errors = [
            s.count(&t).unwrap_err(),
            s.count_rows(&t).unwrap_err(),
            s.row_by_key(&t, BY_NAME, &key_of(&t, 7), &mask, &mut image).unwrap_err(),
            s.scan(&t, ScanOptions { mask: mask.clone(), ..ScanOptions::default() }).map(drop).unwrap_err(),
            s.open_index_cursor(&t, BY_NAME, ScanOptions::default()).map(drop).unwrap_err(),
        ];
        assert!(errors.iter().all(|e| matches!(e, Error::TableChanged(_))), "{errors:?}");
        s.commit().unwrap();
        assert_eq!(s.count(&t).unwrap(), u64::from(is_shown));
    }
}
