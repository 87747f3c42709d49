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
        let (_e, t, mut s) = after(true, &|s, t| drop(insert(s, t, &values(50))));
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
