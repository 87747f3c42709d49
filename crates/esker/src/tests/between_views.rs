//! Purge between views that are open: what none of them sees goes, whatever is older or newer, and each keeps what it sees.

use crate::tests::indexes::{def, image, Row};
use crate::tests::support::{begin, locking, make, open_with, options};
use crate::tree::find;
use crate::upkeep::{flush, merge};
use crate::*;
use esker_format::RowId;
use esker_io::SimDisk;
use std::sync::Arc;

/// Rows whose keys change with each round.
const ROWS: u32 = 3;

fn row(a: u32, round: u32) -> Row {
    Row { a, c: Some(1000 * a + round), text: format!("round {round}").into_bytes() }
}

fn engine() -> (Engine, Arc<Table>) {
    let e = open_with(&SimDisk::new(1), options()).unwrap();
    let t = make(&e, "t", &def());
    (e, t)
}

/// What the writer does, committed.
fn written(e: &Engine, work: impl FnOnce(&mut Session)) {
    let mut s = e.session();
    begin(&mut s);
    work(&mut s);
    s.commit().unwrap();
}

fn insert(s: &mut Session, t: &Arc<Table>, row: &Row) -> RowId {
    // SAFETY: an image of this layout.
    unsafe { s.insert_image(t, image(row).as_ptr()).unwrap() }
}

fn update(s: &mut Session, t: &Arc<Table>, id: RowId, row: &Row) {
    // SAFETY: the same.
    unsafe { s.update_image(t, id, image(row).as_ptr()).unwrap() };
}

fn flush(e: &Engine, t: &Arc<Table>) {
    let trees = t.trees();
    flush::tree(&e.core, t, &trees.rows).unwrap();
    trees.keys.iter().for_each(|keys| flush::tree(&e.core, t, keys).unwrap());
}

/// All runs of each tree become one.
fn merge_all(e: &Engine, t: &Arc<Table>) {
    merge::optimize(&e.core, t, &mut |_, _| true).unwrap();
}

/// How many versions the runs of the row tree have, and those of the key trees.
fn versions(t: &Arc<Table>) -> (u64, Vec<u64>) {
    let trees = t.trees();
    let rows = trees.rows.snapshot().runs.iter().map(|h| h.run.stats.rows).sum();
    let of =
        |keys: &Arc<_>| tree::Tree::<tree::key::ByBytes>::snapshot(keys).runs.iter().map(|h| h.run.stats.rows).sum();
    (rows, trees.keys.iter().map(of).collect())
}

/// The texts that a session sees.
fn texts(s: &mut Session, t: &Arc<Table>) -> Vec<Vec<u8>> {
    let mut cursor = s.scan(t, ScanOptions { mask: t.all_columns(), ..Default::default() }).unwrap();
    let mut texts = Vec::new();
    loop {
        let batch = cursor.next_batch(s).unwrap();
        if batch.ids.is_empty() {
            return texts;
        }
        for at in 0..batch.ids.len() {
            // SAFETY: an image of this layout, as long as the batch.
            let image = unsafe { std::slice::from_raw_parts(batch.images.add(at * batch.stride), 210) };
            texts.push(image[10..10 + usize::from(image[9])].to_vec());
        }
    }
}

fn reads(e: &Engine, t: &Arc<Table>, round: u32) -> Session {
    let mut s = e.session();
    begin(&mut s);
    sees(&mut s, t, round);
    s
}

fn sees(s: &mut Session, t: &Arc<Table>, round: u32) {
    assert_eq!(texts(s, t), vec![row(0, round).text; ROWS as usize], "round {round}");
}

#[test]
fn hot_rows_keep_what_views_see_and_no_more() {
    let (e, t) = engine();
    let mut ids = Vec::new();
    written(&e, |s| ids = (0..ROWS).map(|a| insert(s, &t, &row(a, 0))).collect());
    let mut views = Vec::new();
    for round in 1..=60 {
        if [1, 31, 42].contains(&round) {
            views.push((round - 1, reads(&e, &t, round - 1)));
        }
        for (a, id) in (0..).zip(&ids) {
            written(&e, |s| update(s, &t, *id, &row(a, round)));
        }
        if round % 5 == 0 {
            flush(&e, &t);
        }
    }
    let flushed = versions(&t);
    // Of five in a memtable a flush leaves the newest, and what a view sees.
    assert!(flushed.0 <= u64::from(ROWS) * (60 / 5 + 4), "{flushed:?}");
    merge_all(&e, &t);
    // What the three views see, and what is newest. Of keys that were taken away, their ends, too.
    let rows = u64::from(ROWS);
    let (of_rows, of_keys) = versions(&t);
    assert_eq!(of_rows, 4 * rows);
    assert!(of_keys.iter().all(|entries| (rows..=7 * rows).contains(entries)), "{of_keys:?}");
    for (round, view) in &mut views {
        sees(view, &t, *round);
    }
    reads(&e, &t, 60);
    assert!(e.check(&t, &mut |_, _| true).unwrap().damages.is_empty());
    // The middle one goes, and what it alone has seen.
    views.remove(1);
    written(&e, |s| (0..).zip(&ids).for_each(|(a, id)| update(s, &t, *id, &row(a, 61))));
    flush(&e, &t);
    merge_all(&e, &t);
    assert_eq!(versions(&t).0, 3 * rows);
    for (round, view) in &mut views {
        sees(view, &t, *round);
    }
}

#[test]
fn what_came_and_went_between_two_views_leaves_nothing() {
    let (e, t) = engine();
    let mut kept = RowId::ZERO;
    written(&e, |s| kept = insert(s, &t, &row(1, 0)));
    let mut old = e.session();
    begin(&mut old);
    assert_eq!(texts(&mut old, &t).len(), 1);
    for round in 0..10 {
        let mut ids = Vec::new();
        written(&e, |s| ids = (10..30).map(|a| insert(s, &t, &row(a, round))).collect());
        if round % 2 == 0 {
            flush(&e, &t);
        }
        written(&e, |s| ids.iter().for_each(|id| s.delete(&t, *id).unwrap()));
        flush(&e, &t);
    }
    merge_all(&e, &t);
    assert_eq!(versions(&t), (1, vec![1, 1, 1]));
    assert_eq!((texts(&mut old, &t).len(), old.count_rows(&t).unwrap()), (1, 1));
    written(&e, |s| s.delete(&t, kept).unwrap());
    flush(&e, &t);
    merge_all(&e, &t);
    assert_eq!(texts(&mut old, &t).len(), 1, "its deletion is newer than the view");
}

/// A session has an old view, and one of all that is committed by now: what lies between is newer than the one and older than the
/// other.
#[test]
fn a_later_view_of_the_same_session_keeps_what_it_sees() {
    let (e, t) = engine();
    let mut ids = Vec::new();
    let mut s = e.session();
    begin(&mut s);
    assert_eq!(texts(&mut s, &t).len(), 0);
    written(&e, |s| ids = (0..ROWS).map(|a| insert(s, &t, &row(a, 1))).collect());
    s.scan(&t, locking()).unwrap();
    let later = s.latest_view().unwrap();
    for round in 2..5 {
        written(&e, |s| (0..).zip(&ids).for_each(|(a, id)| update(s, &t, *id, &row(a, round))));
        flush(&e, &t);
    }
    merge_all(&e, &t);
    let found = find(&t.tree().snapshot(), None, ids[0], later).unwrap();
    assert!(found.is_some(), "the later view has lost its row");
    s.rollback().unwrap();
}
