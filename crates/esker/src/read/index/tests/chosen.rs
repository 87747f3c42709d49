//! Entries first, then the rows of those that were chosen.

use super::*;
use crate::tests::support::begun;
use esker_base::counters::{bind, Counter, SessionCounters};

fn values(n: u64, name: &[u8]) -> Values {
    (n, Some((n % 10) as i32), Some(name.to_vec()))
}

fn filled(rows: u64) -> (SimDisk, Engine, Arc<Table>) {
    let (disk, e, t) = made(small_blocks());
    let mut s = begun(&e, false);
    for n in 0..rows {
        insert(&mut s, &t, &values(n, b"n"));
    }
    s.commit().unwrap();
    e.sim_flush(&t).unwrap();
    (disk, e, t)
}

/// All rows of a cursor that chooses by number, row by row.
fn chosen(s: &mut Session, c: &mut IndexCursor, mask: &ColumnMask, wanted: impl Fn(&Given) -> bool) -> Vec<Given> {
    let mut all = Vec::new();
    loop {
        let entries = given(&c.next_batch(s).unwrap(), mask);
        if entries.is_empty() {
            return all;
        }
        let places: Vec<u32> = (0..entries.len() as u32).filter(|at| wanted(&entries[*at as usize])).collect();
        all.extend(given(&c.choose(s, &places).unwrap(), mask));
    }
}

#[test]
fn rows_that_are_not_chosen_are_not_read() {
    let (_disk, e, t) = filled(1000);
    let (mut s, all) = (begun(&e, false), mask_of(&[NUMBER, FEW, NAME]));
    let mut c = s.open_index_cursor(&t, BY_FEW, plain(&all)).unwrap();
    let counters = SessionCounters::new();
    let _bound = bind(&counters);
    c.set_choosing(true);
    for direction in [Direction::Forward, Direction::Backward] {
        let before = counters.get(Counter::RowsRead);
        c.seek(&mut s, KeyRange::default(), direction).unwrap();
        // What an entry tells is in its image, and nothing else is.
        let rows = chosen(&mut s, &mut c, &all, |entry| {
            assert!(entry.2 .0 == 0 && entry.2 .2.as_ref().is_some_and(Vec::is_empty), "{entry:?}");
            entry.2 .1 == Some(3)
        });
        let mut numbers: Vec<u64> = rows.iter().map(|row| row.2 .0).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (0..1000).filter(|n| n % 10 == 3).collect::<Vec<_>>());
        assert!(rows.iter().all(|row| row.2 == values(row.2 .0, b"n")));
        assert_eq!(counters.get(Counter::RowsRead) - before, 100);
    }
}

/// Between an entry and its row the reader's own statement may change the row: it counts by the key that it has then.
#[test]
fn what_was_changed_since_is_left_out() {
    let (_disk, e, t) = filled(4);
    let (mut s, all) = (begun(&e, false), mask_of(&[NUMBER, FEW, NAME]));
    let mut c = s.open_index_cursor(&t, BY_FEW, plain(&all)).unwrap();
    c.set_choosing(true);
    c.seek(&mut s, KeyRange::default(), Direction::Forward).unwrap();
    assert_eq!(c.next_batch(&mut s).unwrap().ids.len(), 4);
    s.delete(&t, RowId(1)).unwrap();
    update(&mut s, &t, RowId(2), &(1, Some(77), Some(b"moved".to_vec())));
    update(&mut s, &t, RowId(3), &values(2, b"renamed"));
    let rows = given(&c.choose(&mut s, &[0, 1, 2, 3]).unwrap(), &all);
    // The index falls.
    let expected = [(RowId(4), values(3, b"n")), (RowId(3), values(2, b"renamed"))];
    assert_eq!(rows.into_iter().map(|row| (row.1, row.2)).collect::<Vec<_>>(), expected);
}

#[test]
fn who_locks_and_who_covers_gets_rows_at_once() {
    let (_disk, e, t) = filled(40);
    let (mut s, all) = (begun(&e, false), mask_of(&[NUMBER, FEW, NAME]));
    let mut c = s.open_index_cursor(&t, BY_FEW, locking()).unwrap();
    c.set_choosing(true);
    c.seek(&mut s, KeyRange::default(), Direction::Forward).unwrap();
    let rows = chosen(&mut s, &mut c, &all, |row| {
        assert_eq!(row.2, values(row.2 .0, b"n"));
        row.2 .0 == 17
    });
    assert_eq!(rows.iter().map(|row| row.2 .0).collect::<Vec<_>>(), [17]);
    let few = mask_of(&[FEW]);
    let mut c = s.open_index_cursor(&t, BY_FEW, plain(&few)).unwrap();
    c.set_choosing(true);
    c.seek(&mut s, KeyRange::default(), Direction::Forward).unwrap();
    let rows = chosen(&mut s, &mut c, &few, |row| row.1 .0 % 2 == 0);
    assert_eq!(rows.len(), 20);
    assert!(rows.iter().all(|row| row.1 .0 % 2 == 0 && row.2 .1 == Some(((row.1 .0 - 1) % 10) as i32)));
}

#[test]
fn only_places_of_the_batch_are_chosen() {
    let (_disk, e, t) = filled(3);
    let mut s = begun(&e, false);
    let mut c = s.open_index_cursor(&t, BY_FEW, plain(&mask_of(&[NUMBER]))).unwrap();
    c.set_choosing(true);
    c.seek(&mut s, KeyRange::default(), Direction::Forward).unwrap();
    c.next_batch(&mut s).unwrap();
    for places in [&[3][..], &[1, 0], &[1, 1]] {
        assert!(matches!(c.choose(&mut s, places), Err(Error::InvalidArgument(_))), "{places:?}");
    }
    assert_eq!(c.choose(&mut s, &[]).unwrap().ids.len(), 0);
}
