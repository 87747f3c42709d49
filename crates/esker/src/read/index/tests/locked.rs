//! What locking reads meet, wait for, and leave alone.

use super::*;
use crate::read::index::locked::met;
use crate::tests::support::{begin, begun};
use crate::WaitHooks;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// What is done when the session is about to wait, one after the other; how often it waited.
pub(super) struct Meanwhile {
    acts: RefCell<Vec<Box<dyn FnOnce()>>>,
    pub(super) waits: Cell<usize>,
}

/// The session's hooks; in one thread.
struct Hooks(Rc<Meanwhile>);

// SAFETY: these tests have one thread.
unsafe impl Send for Hooks {}

impl WaitHooks for Hooks {
    fn before_wait(&self) {
        self.0.waits.set(self.0.waits.get() + 1);
        let act = self.0.acts.borrow_mut().pop();
        act.expect("nothing was to be waited for")();
    }
}

pub(super) fn meanwhile(s: &mut Session, act: impl FnOnce() + 'static) -> Rc<Meanwhile> {
    let meanwhile = Rc::new(Meanwhile { acts: RefCell::new(vec![Box::new(act)]), waits: Cell::new(0) });
    s.set_wait_hooks(Box::new(Hooks(meanwhile.clone())));
    meanwhile
}

pub(super) fn values(n: u64) -> Values {
    (n, Some(n as i32), Some(b"n".to_vec()))
}

/// Rows of these numbers, of which row ids are one more.
pub(super) fn filled(rows: u64, options: Options) -> (SimDisk, Engine, Arc<Table>) {
    let (disk, e, t) = made(options);
    let mut s = begun(&e, false);
    (0..rows).for_each(|n| {
        insert(&mut s, &t, &values(n));
    });
    s.commit().unwrap();
    (disk, e, t)
}

/// The numbers that a reading of few numbers from `most` down to `least` gives, one a call.
pub(super) fn read(
    s: &mut Session,
    t: &Arc<Table>,
    options: ScanOptions,
    most: i32,
    least: i32,
    way: Direction,
) -> Result<Vec<u64>> {
    let mask = options.mask.clone();
    let mut c = s.open_index_cursor(t, BY_FEW, options)?;
    c.seek(s, KeyRange { from: few(most), to: Some(few(least - 1)) }, way)?;
    let mut numbers = Vec::new();
    loop {
        match &given(&c.next_batch(s)?, &mask)[..] {
            [] => break,
            [one] => numbers.push(one.2 .0),
            _ => panic!("more than one row at a time"),
        }
    }
    if way == Direction::Backward {
        numbers.reverse();
    }
    Ok(numbers)
}

pub(super) const BOTH: [Direction; 2] = [Direction::Forward, Direction::Backward];

/// A put that is not committed is waited for; then it counts or not.
#[test]
fn a_row_that_is_being_inserted_is_waited_for() {
    for (way, commits) in BOTH.into_iter().flat_map(|way| [(way, true), (way, false)]) {
        for flushed in [false, true] {
            let (_disk, e, t) = filled(20, Options { bulk_threshold_bytes: 1 << 20, ..small_blocks() });
            let mut other = begun(&e, false);
            insert(&mut other, &t, &(100, Some(7), None));
            if flushed {
                // More than a flush carries on: to runs of its own.
                for n in 1000..2000 {
                    insert(&mut other, &t, &(n, Some(n as i32), Some(vec![b'q'; 90])));
                }
                e.sim_flush(&t).unwrap();
                let private = t.trees().keys[BY_FEW].snapshot().runs.iter().filter(|h| h.owner.is_some()).count();
                assert!(private > 0, "nothing was moved");
                // Whose it is reads it.
                let mut c = other.open_index_cursor(&t, BY_FEW, plain(&mask_of(&[NUMBER]))).unwrap();
                c.seek(&mut other, KeyRange::default(), way).unwrap();
                assert_eq!(rest(&mut other, &mut c, &mask_of(&[NUMBER])).len(), 1021);
            }
            let mut s = begun(&e, false);
            met::take();
            let hooks =
                meanwhile(&mut s, move || if commits { other.commit().unwrap() } else { other.rollback().unwrap() });
            let found = read(&mut s, &t, locking(), 9, 5, way).unwrap();
            let expected: Vec<u64> = if commits { vec![9, 8, 7, 100, 6, 5] } else { vec![9, 8, 7, 6, 5] };
            assert_eq!(found, expected, "{way:?}, committed {commits}, flushed {flushed}");
            assert_eq!((hooks.waits.get(), met::take().0), (1, 1));
        }
    }
}

/// What a large transaction has for itself is met as well.
#[test]
fn a_row_that_is_being_inserted_with_many_is_waited_for() {
    for (way, rows) in BOTH.into_iter().flat_map(|way| [(way, 60), (way, 3000)]) {
        let large = Options { bulk_threshold_bytes: 1 << 10, min_run_bytes: 8 << 10, ..small_blocks() };
        let (_disk, e, t) = filled(20, if rows == 60 { large } else { small_blocks() });
        let mut other = begun(&e, false);
        for n in 0..rows {
            let few = if n == rows / 2 { 7 } else { 1000 + n as i32 };
            insert(&mut other, &t, &(1000 + n, Some(few), Some(vec![b'q'; 90])));
        }
        let state = t.trees().keys[BY_FEW].snapshot();
        assert!(rows != 60 || !state.privates.is_empty(), "it has no memtable for itself");
        let mut s = begun(&e, false);
        let hooks = meanwhile(&mut s, move || other.commit().unwrap());
        assert_eq!(read(&mut s, &t, locking(), 9, 5, way).unwrap(), [9, 8, 7, 1000 + rows / 2, 6, 5]);
        assert_eq!(hooks.waits.get(), 1);
    }
}

/// Nobody outside the range is waited for, and none of the own writes.
#[test]
fn who_writes_elsewhere_is_not_waited_for() {
    let (_disk, e, t) = filled(20, small_blocks());
    let mut other = begun(&e, false);
    for n in [4, 10] {
        insert(&mut other, &t, &(100 + n as u64, Some(n), None));
        update(&mut other, &t, RowId(n as u64 + 1), &(500, Some(300 + n), None));
    }
    let mut s = begun(&e, false);
    insert(&mut s, &t, &(200, Some(6), None));
    s.delete(&t, RowId(8 + 1)).unwrap();
    s.set_lock_wait(std::time::Duration::from_secs(1), true);
    met::take();
    for way in BOTH {
        assert_eq!(read(&mut s, &t, locking(), 9, 5, way).unwrap(), [9, 7, 6, 200, 5]);
        assert!(matches!(read(&mut s, &t, locking(), 10, 5, way), Err(Error::WouldBlock)));
        assert!(matches!(read(&mut s, &t, locking(), 9, 4, way), Err(Error::WouldBlock)));
    }
    assert_eq!(met::take(), (4, 0));
}

/// Behind a row that could not be locked no other is given, before it is sought again.
#[test]
fn a_cursor_that_failed_gives_its_error_again() {
    for way in BOTH {
        let (_disk, e, t) = filled(20, small_blocks());
        let mut other = begun(&e, false);
        other.delete(&t, RowId(7 + 1)).unwrap();
        let mut s = begun(&e, false);
        s.set_lock_wait(std::time::Duration::ZERO, true);
        let mut c = s.open_index_cursor(&t, BY_FEW, locking()).unwrap();
        let range = KeyRange { from: few(7), to: Some(few(4)) };
        c.seek(&mut s, range.clone(), way).unwrap();
        let mut rows = Vec::new();
        let mut go_on = |s: &mut Session, c: &mut IndexCursor| loop {
            match c.next_batch(s) {
                Ok(batch) if batch.ids.is_empty() => break None,
                Ok(batch) => rows.push(batch.ids[0].0 - 1),
                Err(e) => break Some(e),
            }
        };
        for _ in 0..2 {
            let answer = go_on(&mut s, &mut c);
            assert!(matches!(answer, Some(Error::WouldBlock)), "{way:?}: {answer:?}");
        }
        other.rollback().unwrap();
        c.seek(&mut s, range, way).unwrap();
        assert!(go_on(&mut s, &mut c).is_none());
        assert_eq!(rows, if way == Direction::Forward { vec![7, 6, 5] } else { vec![5, 6, 5, 6, 7] });
    }
}

/// A row whose key moves ahead while it is waited for is met there; one that moves out of the range is not given.
#[test]
fn a_row_that_moves_is_met_where_it_is() {
    for way in BOTH {
        for (to, expected) in [(4, vec![9, 8, 6, 5, 7, 3]), (50, vec![9, 8, 6, 5, 3])] {
            for flushed in [false, true] {
                let (_disk, e, t) = filled(20, small_blocks());
                let mut other = begun(&e, false);
                other.delete(&t, RowId(4 + 1)).unwrap();
                other.commit().unwrap();
                if flushed {
                    e.sim_flush(&t).unwrap();
                }
                begin(&mut other);
                // Ahead, whichever way.
                let (from, to) = match way {
                    Direction::Forward => (7, to),
                    Direction::Backward => (3, if to == 4 { 7 } else { to }),
                };
                update(&mut other, &t, RowId(from + 1), &(from, Some(to), None));
                let mut s = begun(&e, false);
                let hooks = meanwhile(&mut s, move || other.commit().unwrap());
                let found = read(&mut s, &t, locking(), 9, 3, way).unwrap();
                let expected = match (way, to) {
                    (Direction::Forward, _) => expected.clone(),
                    (_, 7) => vec![9, 8, 3, 7, 6, 5],
                    _ => vec![9, 8, 7, 6, 5],
                };
                assert_eq!(found, expected, "{way:?} to {to}, flushed {flushed}");
                assert_eq!(hooks.waits.get(), 1);
            }
        }
    }
}

/// The entry is looked at again under the row's lock: somebody has moved it since it was read, and is not met as one who has not
/// committed.
#[test]
fn an_entry_is_checked_under_its_rows_lock() {
    for way in BOTH {
        let (_disk, e, t) = filled(200, Options { bulk_threshold_bytes: 1 << 20, ..small_blocks() });
        e.sim_flush(&t).unwrap();
        let mut s = begun(&e, false);
        let mut c = s.open_index_cursor(&t, BY_FEW, locking()).unwrap();
        c.seek(&mut s, KeyRange { from: few(110), to: Some(few(99)) }, way).unwrap();
        let mut numbers = vec![given(&c.next_batch(&mut s).unwrap(), &locking().mask)[0].2 .0];
        // All of the block is read; then one leaves, one stays with another name, one comes to where it was not.
        let mut other = begun(&e, false);
        let (gone, moved, ahead) = match way {
            Direction::Forward => (108, 107, 103),
            Direction::Backward => (102, 103, 107),
        };
        other.delete(&t, RowId(gone + 1)).unwrap();
        let to = (moved, Some(ahead), Some(b"moved".to_vec()));
        update(&mut other, &t, RowId(moved + 1), &to);
        update(&mut other, &t, RowId(105 + 1), &(105, Some(105), Some(b"new".to_vec())));
        other.commit().unwrap();
        for row in rest(&mut s, &mut c, &locking().mask) {
            assert_eq!(
                row.2 .2,
                Some(match row.2 .0 {
                    105 => b"new".to_vec(),
                    n if n == moved => b"moved".to_vec(),
                    _ => b"n".to_vec(),
                })
            );
            numbers.push(row.2 .0);
        }
        let mut expected: Vec<u64> = (100..=110).filter(|n| *n != gone).collect();
        numbers.sort_unstable();
        expected.sort_unstable();
        assert_eq!(numbers, expected, "{way:?}");
        // What was let go is free.
        begin(&mut other);
        other.set_lock_wait(std::time::Duration::from_secs(1), true);
        assert!(matches!(other.delete(&t, RowId(105 + 1)), Err(Error::WouldBlock)));
        assert!(matches!(other.delete(&t, RowId(gone + 1)), Err(Error::RowNotFound)));
    }
}

#[test]
fn skipping_and_semi_consistent_reads_wait_for_little() {
    for way in BOTH {
        let (_disk, e, t) = filled(20, small_blocks());
        let mut other = begun(&e, false);
        insert(&mut other, &t, &(100, Some(8), None));
        // The key stays.
        update(&mut other, &t, RowId(6 + 1), &(6, Some(6), Some(b"new".to_vec())));
        let mut s = begun(&e, false);
        s.set_lock_wait(std::time::Duration::from_secs(1), false);
        let skip = ScanOptions { skip_locked: true, ..locking() };
        assert_eq!(read(&mut s, &t, skip.clone(), 9, 5, way).unwrap(), [9, 8, 7, 5]);
        let semi = ScanOptions { semi_consistent: true, ..locking() };
        let mut c = s.open_index_cursor(&t, BY_FEW, semi.clone()).unwrap();
        c.seek(&mut s, KeyRange { from: few(9), to: Some(few(4)) }, way).unwrap();
        let mut locked_by_others = Vec::new();
        loop {
            let rows = given(&c.next_batch(&mut s).unwrap(), &semi.mask);
            let Some(row) = rows.first() else { break };
            if c.was_semi_consistent() {
                assert_eq!(row.2 .2, Some(b"n".to_vec()), "what is not committed was given");
                locked_by_others.push(row.2 .0);
            }
        }
        assert_eq!(locked_by_others, [6]);
        // A key that leaves is waited for, unless it is skipped.
        s.commit().unwrap();
        begin(&mut s);
        update(&mut other, &t, RowId(7 + 1), &(7, Some(70), None));
        assert_eq!(read(&mut s, &t, skip, 9, 5, way).unwrap(), [9, 8, 5]);
        met::take();
        let hooks = meanwhile(&mut s, move || other.commit().unwrap());
        // Forward, what is being inserted was passed by then.
        let expected: &[u64] = if way == Direction::Forward { &[9, 8, 6, 5] } else { &[9, 8, 100, 6, 5] };
        assert_eq!(read(&mut s, &t, semi, 9, 5, way).unwrap(), expected);
        assert_eq!((hooks.waits.get(), met::take().0), (1, 1));
    }
}

/// A row that matches is read again, which waits.
#[test]
fn a_semi_consistent_row_is_read_again() {
    for way in BOTH {
        let (_disk, e, t) = filled(20, small_blocks());
        let mut other = begun(&e, false);
        update(&mut other, &t, RowId(6 + 1), &(6, Some(6), Some(b"new".to_vec())));
        let mut s = begun(&e, false);
        let hooks = meanwhile(&mut s, move || other.commit().unwrap());
        let semi = ScanOptions { semi_consistent: true, ..locking() };
        let mut c = s.open_index_cursor(&t, BY_FEW, semi.clone()).unwrap();
        c.seek(&mut s, KeyRange { from: few(8), to: Some(few(4)) }, way).unwrap();
        let mut found = Vec::new();
        loop {
            let rows = given(&c.next_batch(&mut s).unwrap(), &semi.mask);
            let Some(row) = rows.into_iter().next() else { break };
            let again = c.was_semi_consistent();
            c.set_semi_consistent(!again);
            match again {
                true => c.step_back(),
                false => found.push((row.2 .0, row.2 .2.unwrap())),
            }
        }
        found.sort();
        let name = |n| if n == 6 { b"new".to_vec() } else { b"n".to_vec() };
        assert_eq!(found, (5..9).map(|n| (n, name(n))).collect::<Vec<_>>());
        assert_eq!(hooks.waits.get(), 1);
    }
}

/// What was rolled back to a savepoint is nobody's.
#[test]
fn what_was_rolled_back_is_not_waited_for() {
    let (_disk, e, t) = filled(20, small_blocks());
    let mut other = begun(&e, false);
    insert(&mut other, &t, &(100, Some(50), None));
    let point = other.savepoint();
    insert(&mut other, &t, &(101, Some(8), None));
    other.rollback_to(&point);
    let mut s = begun(&e, false);
    met::take();
    for way in BOTH {
        assert_eq!(read(&mut s, &t, locking(), 9, 7, way).unwrap(), [9, 8, 7]);
    }
    assert_eq!(met::take(), (0, 0));
}

/// What was committed after the read began is met, where the read comes later.
#[test]
fn what_was_committed_since_is_met() {
    for way in BOTH {
        let (_disk, e, t) = filled(2000, small_blocks());
        let mut s = begun(&e, false);
        let mut c = s.open_index_cursor(&t, BY_FEW, locking()).unwrap();
        c.seek(&mut s, KeyRange::default(), way).unwrap();
        c.next_batch(&mut s).unwrap();
        let mut other = begun(&e, false);
        insert(&mut other, &t, &(5000, Some(1000), None));
        other.commit().unwrap();
        met::take();
        let rows = rest(&mut s, &mut c, &locking().mask);
        assert_eq!(rows.iter().filter(|g| g.2 .0 == 5000).count(), 1, "{way:?}");
        assert_eq!((rows.len(), met::take()), (2000, (0, 0)));
    }
}

/// A row moves to where the reader has read ahead but not come yet, while that waits for another row.
#[test]
fn a_row_that_moves_under_the_eyes_of_the_reader_is_met() {
    for way in BOTH {
        for commits in [true, false] {
            let (_disk, e, t) = filled(200, small_blocks());
            e.sim_flush(&t).unwrap();
            let mut other = begun(&e, false);
            update(&mut other, &t, RowId(105 + 1), &(105, Some(105), Some(b"new".to_vec())));
            let (row, to) = if way == Direction::Forward { (101, 103) } else { (109, 107) };
            let mut s = begun(&e, false);
            let table = t.clone();
            let hooks = meanwhile(&mut s, move || {
                update(&mut other, &table, RowId(row + 1), &(row, Some(to), None));
                if commits {
                    other.commit().unwrap()
                } else {
                    other.rollback().unwrap()
                }
            });
            let mut found = read(&mut s, &t, locking(), 110, 100, way).unwrap();
            found.sort_unstable();
            assert_eq!(found, (100..=110).collect::<Vec<u64>>(), "{way:?}, committed {commits}");
            assert_eq!(hooks.waits.get(), 1);
        }
    }
}

/// A row that is waited for has another key when its lock is granted: it is given by that one, if at all, and let go before.
#[test]
fn a_row_that_moves_while_its_lock_is_waited_for_is_met_where_it_is() {
    for way in BOTH {
        let ahead = if way == Direction::Forward { 103 } else { 107 };
        for to in [ahead, 500] {
            let (_disk, e, t) = filled(200, small_blocks());
            e.sim_flush(&t).unwrap();
            let mut other = begun(&e, false);
            // No key changes yet.
            update(&mut other, &t, RowId(105 + 1), &(105, Some(105), Some(b"new".to_vec())));
            let mut s = begun(&e, false);
            let table = t.clone();
            let hooks = meanwhile(&mut s, move || {
                update(&mut other, &table, RowId(105 + 1), &(105, Some(to), None));
                other.commit().unwrap();
            });
            let found = read(&mut s, &t, locking(), 110, 100, way).unwrap();
            let expected: &[u64] = match to {
                103 => &[110, 109, 108, 107, 106, 104, 103, 105, 102, 101, 100],
                107 => &[110, 109, 108, 105, 107, 106, 104, 103, 102, 101, 100],
                _ => &[110, 109, 108, 107, 106, 104, 103, 102, 101, 100],
            };
            assert_eq!((&*found, hooks.waits.get()), (expected, 1), "{way:?} to {to}");
            let mut third = begun(&e, false);
            third.set_lock_wait(std::time::Duration::from_secs(1), true);
            assert_eq!(third.delete(&t, RowId(105 + 1)).is_ok(), to == 500, "its lock, {way:?} to {to}");
        }
    }
}

/// The same while a flush has put a new memtable in place, into which just as much was written as lay in the one before.
#[test]
fn a_row_that_moves_to_a_new_memtable_while_its_lock_is_waited_for_is_met_where_it_is() {
    for way in BOTH {
        let (_disk, e, t) = filled(200, small_blocks());
        e.sim_flush(&t).unwrap();
        let mut other = begun(&e, false);
        // A tombstone and an entry, elsewhere.
        update(&mut other, &t, RowId(5 + 1), &(5, Some(1000), None));
        other.commit().unwrap();
        begin(&mut other);
        // No key changes yet.
        update(&mut other, &t, RowId(105 + 1), &(105, Some(105), Some(b"new".to_vec())));
        let mut s = begun(&e, false);
        let (table, core) = (t.clone(), e.core.clone());
        let hooks = meanwhile(&mut s, move || {
            assert!(crate::upkeep::flush::freeze(&core, &table.trees().keys[BY_FEW]).unwrap());
            update(&mut other, &table, RowId(105 + 1), &(105, Some(500), None));
            other.commit().unwrap();
        });
        let found = read(&mut s, &t, locking(), 110, 100, way).unwrap();
        assert_eq!(found, [110, 109, 108, 107, 106, 104, 103, 102, 101, 100], "{way:?}");
        assert_eq!(hooks.waits.get(), 1);
    }
}

/// Who watches under an older view learns of what was committed since, in memory and in runs.
#[test]
fn a_commit_since_the_view_is_told() {
    let (_disk, e, t) = filled(20, small_blocks());
    let mut s = begun(&e, false);
    let view = s.read_view().unwrap();
    let mut other = begun(&e, false);
    insert(&mut other, &t, &(100, Some(7), None));
    other.delete(&t, RowId(5 + 1)).unwrap();
    other.commit().unwrap();
    for flushed in [false, true] {
        if flushed {
            e.sim_flush(&t).unwrap();
        }
        let tree = &t.trees().keys[BY_FEW];
        let extent = || Extent { from: &[][..], to: None, watches: true };
        let mut forward = MergeRead::<ByBytes>::within(tree.snapshot(), None, view, extent(), &s.parker).unwrap();
        let mut told = Vec::new();
        while !matches!(forward.next().unwrap(), Span::End) {
            told.extend(forward.unseen());
        }
        let mut backward = BackwardRead::<ByBytes>::new(tree.snapshot(), None, view, extent(), &s.parker);
        let mut again = Vec::new();
        while !matches!(backward.next().unwrap(), Span::End) {
            again.extend(backward.unseen());
        }
        again.reverse();
        assert_eq!(told.iter().map(|u| (u.owner, u.tombstone)).collect::<Vec<_>>(), [(None, false), (None, true)]);
        assert_eq!(told, again);
    }
}
