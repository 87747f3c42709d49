//! Seeks one behind the other with one cursor: rows are looked for from where those of the last seek were, and found as they are for
//! the view, whatever happens between two seeks.

use super::*;
use crate::tree::looks::LOOK_BYTES;
use crate::tree::near::alone;
use crate::{BeginOptions, Isolation};

/// Rows that have one number of few.
const EACH: u64 = 4;
const GROUPS: u64 = 200;

fn values(n: u64, name: &str) -> Values {
    (n, Some((n / EACH) as i32), Some(name.as_bytes().to_vec()))
}

fn begin(e: &Engine) -> Session {
    let mut s = e.session();
    s.begin(Isolation::RepeatableRead, BeginOptions::default());
    s.begin_statement();
    s
}

/// A table with rows in a run, and their ids.
fn filled() -> (SimDisk, Engine, Arc<Table>, Vec<RowId>) {
    let (disk, e, t) = made(Options { block_bytes: 4 << 10, ..small_blocks() });
    let mut s = begin(&e);
    let ids = (0..GROUPS * EACH).map(|n| insert(&mut s, &t, &values(n, "old"))).collect();
    s.commit().unwrap();
    e.sim_flush(&t).unwrap();
    (disk, e, t, ids)
}

fn mask() -> ColumnMask {
    mask_of(&[NUMBER, NAME])
}

/// The rows of a number of few: which, and their names.
fn sought(s: &mut Session, c: &mut IndexCursor, group: u64) -> Vec<(u64, String)> {
    c.seek(s, KeyRange::of_prefix(&few(group as i32)), Direction::Forward).unwrap();
    let named = |(number, _, name): Values| (number, String::from_utf8(name.unwrap()).unwrap());
    rest(s, c, &mask()).into_iter().map(|(_, _, values)| named(values)).collect()
}

fn group(group: u64, name: &str) -> Vec<(u64, String)> {
    (group * EACH..(group + 1) * EACH).map(|n| (n, name.to_string())).collect()
}

#[test]
fn rows_of_a_seek_are_looked_for_from_those_of_the_last() {
    let (_disk, e, t, _) = filled();
    let mut s = begin(&e);
    let mut c = s.open_index_cursor(&t, BY_FEW, plain(&mask())).unwrap();
    alone::take();
    (0..GROUPS).for_each(|g| assert_eq!(sought(&mut s, &mut c, g), group(g, "old")));
    let (alone, rows) = (alone::take(), (GROUPS * EACH) as usize);
    assert!(alone > rows * 8 / 10, "{alone} of {rows} rows were at hand");
}

#[test]
fn what_happens_between_two_seeks_is_met_or_not_seen() {
    let (_disk, e, t, ids) = filled();
    let mut s = begin(&e);
    let mut c = s.open_index_cursor(&t, BY_FEW, plain(&mask())).unwrap();
    assert_eq!(sought(&mut s, &mut c, 0), group(0, "old"));

    // Others' commits are not seen, in memory or in runs.
    let mut other = begin(&e);
    (EACH..3 * EACH).for_each(|n| update(&mut other, &t, ids[n as usize], &values(n, "other")));
    other.commit().unwrap();
    assert_eq!(sought(&mut s, &mut c, 1), group(1, "old"));
    e.sim_flush(&t).unwrap();
    assert_eq!(sought(&mut s, &mut c, 2), group(2, "old"));
    assert_eq!(sought(&mut s, &mut c, 3), group(3, "old"));

    // Its own changes are.
    s.begin_statement();
    (4 * EACH..5 * EACH).for_each(|n| update(&mut s, &t, ids[n as usize], &values(n, "own")));
    assert_eq!(sought(&mut s, &mut c, 4), group(4, "own"));
    (5 * EACH..6 * EACH).for_each(|n| update(&mut s, &t, ids[n as usize], &values(n, "later")));
    assert_eq!(sought(&mut s, &mut c, 5), group(5, "later"));
    assert_eq!(sought(&mut s, &mut c, 4), group(4, "own"));
    assert_eq!(sought(&mut s, &mut c, 1), group(1, "old"));
    s.rollback().unwrap();
}

/// Rows that lie in a run and in memory: who seeks many of them pays for a flush while the cursor is open.
#[test]
fn looks_are_told_of_at_the_end_of_a_seek() {
    let (_disk, e, t, ids) = filled();
    let mut s = begin(&e);
    ids.iter().step_by(3).zip((0..).step_by(3)).for_each(|(row, n)| update(&mut s, &t, *row, &values(n, "new")));
    s.commit().unwrap();
    s.begin_statement();
    let mut c = s.open_index_cursor(&t, BY_FEW, plain(&mask())).unwrap();
    let state = t.tree().snapshot();
    state.forget_looks_in_memory();
    let far = |n: u64| n * 89 % GROUPS;
    (0..GROUPS / 2).for_each(|n| drop(sought(&mut s, &mut c, far(n))));
    let half = state.flush_paid_by_looks();
    (GROUPS / 2..GROUPS).for_each(|n| drop(sought(&mut s, &mut c, far(n))));
    let paid = state.flush_paid_by_looks();
    assert!(half >= GROUPS / 4 * LOOK_BYTES && paid > half, "{half}, then {paid} paid");
}
