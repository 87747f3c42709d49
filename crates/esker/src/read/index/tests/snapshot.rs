//! Under snapshot isolation a locking read by an index passes over no row of the own view that somebody has changed since.

use super::locked::{filled, meanwhile, read, values, BOTH};
use super::*;
use crate::tests::support::{begin, begun};

/// A reader whose view has twelve rows, of few numbers 0 to 11 and ids one more, and what was committed since.
fn after(snapshot: bool, change: &dyn Fn(&mut Session, &Arc<Table>)) -> (Engine, Arc<Table>, Session) {
    let (_disk, e, t) = filled(12, small_blocks());
    let mut s = begun(&e, snapshot);
    assert_eq!(s.count_rows(&t).unwrap(), 12);
    let mut other = e.session();
    begin(&mut other);
    change(&mut other, &t);
    other.commit().unwrap();
    (e, t, s)
}

fn by_key(s: &mut Session, t: &Arc<Table>, n: u64) -> Result<usize> {
    let (key, _) = entry_of(t, BY_NAME, RowId(n + 1), &values(n));
    let mut c = s.open_index_cursor(t, BY_NAME, locking())?;
    c.seek_key(s, &key, Direction::Forward)?;
    Ok(c.next_batch(s)?.ids.len())
}

fn delete(s: &mut Session, t: &Arc<Table>) {
    s.delete(t, RowId(6)).unwrap();
}

fn move_away(s: &mut Session, t: &Arc<Table>) {
    update(s, t, RowId(6), &(5, Some(100), Some(b"other".to_vec())));
}

fn move_beside(s: &mut Session, t: &Arc<Table>) {
    update(s, t, RowId(6), &(5, Some(7), Some(b"other".to_vec())));
}

fn another_takes_the_key(s: &mut Session, t: &Arc<Table>) {
    s.delete(t, RowId(6)).unwrap();
    insert(s, t, &values(5));
}

fn delete_all(s: &mut Session, t: &Arc<Table>) {
    s.delete_all(t).unwrap();
}

type Change = fn(&mut Session, &Arc<Table>);
const CHANGES: [Change; 5] = [delete, move_away, move_beside, another_takes_the_key, delete_all];

#[test]
fn a_row_that_the_index_has_no_more_has_changed() {
    for (at, change) in CHANGES.iter().enumerate() {
        for flushed in [false, true] {
            for way in BOTH {
                for (most, least) in [(8, 3), (5, 5), (11, 0)] {
                    let (e, t, mut s) = after(true, change);
                    if flushed {
                        e.checkpoint().unwrap();
                    }
                    let answer = read(&mut s, &t, locking(), most, least, way);
                    assert!(matches!(answer, Err(Error::RecordChanged)), "{at} {flushed} {way:?} {most}: {answer:?}");
                }
            }
            let (e, t, mut s) = after(true, change);
            if flushed {
                e.checkpoint().unwrap();
            }
            let answer = by_key(&mut s, &t, 5);
            assert!(matches!(answer, Err(Error::RecordChanged)), "{at} {flushed}: {answer:?}");
        }
    }
}

/// Entries of another table, which a statement that reads this one has gathered, do not matter.
#[test]
fn rows_of_another_table_are_inserted_meanwhile() {
    for way in BOTH {
        let (e, t, mut s) = after(true, &delete);
        e.create_table("u", &def()).unwrap();
        let u = e.open_table("u").unwrap();
        let mut c = s.open_index_cursor(&t, BY_FEW, locking()).unwrap();
        c.seek(&mut s, KeyRange::default(), way).unwrap();
        for n in 0..5 {
            assert_eq!(c.next_batch(&mut s).unwrap().ids.len(), 1);
            insert(&mut s, &u, &values(n));
        }
        assert!(s.current.open().is_some_and(|txn| !txn.deferred.is_empty()), "nothing was gathered");
        let answer = loop {
            match c.next_batch(&mut s) {
                Ok(batch) if batch.ids.is_empty() => break None,
                Ok(_) => {}
                Err(e) => break Some(e),
            }
        };
        assert!(matches!(answer, Some(Error::RecordChanged)), "{way:?}: {answer:?}");
    }
}

/// What lies elsewhere, what the own transaction has done, and who reads what is committed.
#[test]
fn nothing_else_is_a_change() {
    for way in BOTH {
        for change in &CHANGES[..3] {
            let (_e, t, mut s) = after(true, change);
            assert_eq!(read(&mut s, &t, locking(), 4, 2, way).unwrap(), [4, 3, 2]);
            assert_eq!(read(&mut s, &t, locking(), 11, 8, way).unwrap(), [11, 10, 9, 8]);
            assert_eq!((by_key(&mut s, &t, 4).unwrap(), by_key(&mut s, &t, 50).unwrap()), (1, 0));
        }
        let (_e, t, mut s) = after(true, &|s, t| assert_ne!(insert(s, t, &values(50)), RowId(0)));
        delete(&mut s, &t);
        update(&mut s, &t, RowId(8), &(7, Some(4), Some(b"mine".to_vec())));
        let mut found = read(&mut s, &t, locking(), 9, 2, way).unwrap();
        found.sort_unstable();
        assert_eq!(found, [2, 3, 4, 6, 7, 8, 9]);
        assert_eq!(by_key(&mut s, &t, 5).unwrap(), 0);
        let (_e, t, mut s) = after(false, &delete);
        assert_eq!(read(&mut s, &t, locking(), 7, 3, way).unwrap(), [7, 6, 4, 3]);
        assert_eq!(by_key(&mut s, &t, 5).unwrap(), 0);
    }
}

/// Whoever is waited for may have taken the row away, too.
#[test]
fn what_is_taken_away_while_it_is_waited_for_has_changed() {
    for way in BOTH {
        for commits in [false, true] {
            let (_disk, e, t) = filled(12, small_blocks());
            let mut s = begun(&e, true);
            assert_eq!(s.count_rows(&t).unwrap(), 12);
            let mut other = e.session();
            begin(&mut other);
            delete(&mut other, &t);
            let waited = meanwhile(&mut s, move || match commits {
                true => other.commit().unwrap(),
                false => other.rollback().unwrap(),
            });
            let answer = read(&mut s, &t, locking(), 8, 3, way);
            match commits {
                true => assert!(matches!(answer, Err(Error::RecordChanged)), "{answer:?}"),
                false => assert_eq!(answer.unwrap(), [8, 7, 6, 5, 4, 3]),
            }
            assert_eq!(waited.waits.get(), 1);
        }
    }
}

/// What the transaction takes away itself, ahead of a cursor that it has open, is no change of others; nor is anything to who asks
/// whether a key is free.
#[test]
fn own_changes_ahead_of_an_open_cursor_are_no_change_of_others() {
    for way in BOTH {
        let (_e, t, mut s) = after(true, &|s, t| assert_ne!(insert(s, t, &values(50)), RowId(0)));
        let mut c = s.open_index_cursor(&t, BY_FEW, locking()).unwrap();
        c.seek(&mut s, KeyRange { from: few(8), to: Some(few(2)) }, way).unwrap();
        let mut numbers = Vec::new();
        while let [one] = &given(&c.next_batch(&mut s).unwrap(), &locking().mask)[..] {
            numbers.push(one.2 .0);
            // The next one, or the one behind that.
            let near = if way == Direction::Forward { one.2 .0 - 1 } else { one.2 .0 + 1 };
            if numbers.len() == 2 {
                s.delete(&t, RowId(near + 1)).unwrap();
            }
        }
        assert_eq!(numbers, if way == Direction::Forward { [8, 7, 5, 4, 3] } else { [3, 4, 6, 7, 8] });
        let (_e, t, mut s) = after(true, &delete);
        let free = ScanOptions { passes_gone: true, ..locking() };
        assert_eq!(read(&mut s, &t, free, 7, 4, way).unwrap(), [7, 6, 4]);
    }
}

/// Somebody who is passed over may have put another row under the key of one that is gone.
#[test]
fn a_row_that_is_gone_has_changed_though_its_key_is_passed_over() {
    for way in BOTH {
        let (e, t, mut s) = after(true, &delete);
        let mut third = e.session();
        begin(&mut third);
        insert(&mut third, &t, &values(5));
        let mut c = s.open_index_cursor(&t, BY_NAME, ScanOptions { skip_locked: true, ..locking() }).unwrap();
        c.seek(&mut s, KeyRange::of_prefix(&[]), way).unwrap();
        let error = loop {
            match c.next_batch(&mut s) {
                Ok(batch) => assert!(!batch.ids.is_empty(), "{way:?}: the end"),
                Err(e) => break e,
            }
        };
        assert!(matches!(error, Error::RecordChanged), "{error}");
    }
}
