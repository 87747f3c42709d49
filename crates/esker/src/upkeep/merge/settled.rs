//! What every view sees takes no room for sequences and ordinals, unless these still tell something.

use crate::tests::tables::{begin, commit_rows, def, img, open, rows_of};
use crate::upkeep::{flush, merge};
use crate::*;
use esker_format::{BlockEntry, CommitSeq, LeafEntry, RowId};
use esker_io::SimDisk;
use std::sync::Arc;

const ROWS: u64 = 2000;

fn options() -> Options {
    Options { block_bytes: 4 << 10, ..crate::tests::tables::small_runs() }
}

fn flush(e: &Engine, t: &Table) {
    flush::tree(&e.core, t, &t.tree()).unwrap();
}

/// Rows of three transactions: of those that the last two have changed two versions each, in three runs.
fn table(e: &Engine) -> (Arc<Table>, Vec<RowId>) {
    e.create_table("t", &def()).unwrap();
    let t = e.open_table("t").unwrap();
    let mut s = e.session();
    let ids = commit_rows(&mut s, &t, ROWS);
    flush(e, &t);
    for part in 0..2 {
        change(e, &t, &ids, part);
        flush(e, &t);
    }
    (t, ids)
}

/// Changes each third row, from this one on.
fn change(e: &Engine, t: &Arc<Table>, ids: &[RowId], from: usize) {
    let mut s = e.session();
    begin(&mut s);
    for id in ids.iter().skip(from).step_by(3) {
        unsafe { s.update_image(t, *id, img(7).as_ptr()).unwrap() };
    }
    s.commit().unwrap();
}

fn merge(e: &Engine, t: &Table) {
    assert!(merge::once_of_all(&e.core, t, &t.tree()).unwrap());
}

fn blocks(t: &Table) -> Vec<BlockEntry> {
    let state = t.tree().snapshot();
    let indexes = state.runs.iter().map(|h| h.run.index().unwrap().keep());
    indexes.flat_map(|index| index.entries().iter().map(|e| *e.block()).collect::<Vec<_>>()).collect()
}

/// How many blocks there are, and in how many something is told apart.
fn told_apart(t: &Table) -> (usize, usize) {
    let blocks = blocks(t);
    assert!(blocks.len() > 2 && blocks.iter().all(|b| b.min_seq > CommitSeq::ZERO), "{} blocks", blocks.len());
    let alike = |b: &BlockEntry| b.min_seq == b.max_seq && (b.min_ordinal, b.max_ordinal) == (0, 0);
    (blocks.len(), blocks.iter().filter(|b| !alike(b)).count())
}

fn are_settled(t: &Table) -> bool {
    told_apart(t).1 == 0
}

#[test]
fn what_every_view_sees_becomes_alike() {
    let disk = SimDisk::new(1);
    let e = open(&disk, options());
    let (t, ids) = table(&e);
    let least = t.tree().snapshot().runs.iter().filter_map(|h| Some(h.seq_bounds()?.0)).min();
    merge(&e, &t);
    assert!(are_settled(&t));
    assert_eq!(blocks(&t).iter().map(|b| b.min_seq).min(), least);
    // What comes later is newer all the same, and a view of before it sees what was.
    let mut old = e.session();
    begin(&mut old);
    old.read_view().unwrap();
    change(&e, &t, &ids, 2);
    flush(&e, &t);
    merge(&e, &t);
    let (all, apart) = told_apart(&t);
    assert_eq!(apart, all, "two versions of many rows");
    let seen = |s: &mut Session| {
        let mut cursor = s.scan(&t, ScanOptions { mask: t.all_columns(), ..ScanOptions::default() }).unwrap();
        let (mut rows, mut changed) = (0, 0);
        loop {
            let batch = cursor.next_batch(s).unwrap();
            if batch.ids.is_empty() {
                return (rows, changed);
            }
            rows += batch.ids.len() as u64;
            for i in 0..batch.ids.len() {
                // SAFETY: the batch has an image for each id.
                let image = unsafe { std::slice::from_raw_parts(batch.images.add(i * batch.stride), img(7).len()) };
                changed += u64::from(image == img(7));
            }
        }
    };
    // One of them was so from the beginning.
    let third = ROWS / 3;
    assert_eq!(seen(&mut old).0, ROWS);
    let before = seen(&mut old).1;
    old.commit().unwrap();
    begin(&mut old);
    let now = seen(&mut old).1;
    assert!(now == ROWS && (third - 1..=third + 1).contains(&(now - before)), "{before}, then {now} rows are changed");
    old.commit().unwrap();
    // Once nobody sees what was, it is purged.
    change(&e, &t, &ids, 0);
    flush(&e, &t);
    merge(&e, &t);
    assert!(are_settled(&t));
    assert!(e.check(&t, &mut |_, _| true).unwrap().damages.is_empty());
    drop((old, t, e));
    let e = open(&disk, options());
    assert_eq!(rows_of(&e, &e.open_table("t").unwrap()), ROWS);
}

/// A view of before, something in memory, a run that stays, a mark: each may tell versions from each other that look alike.
#[test]
fn what_others_may_tell_apart_stays_as_it_is() {
    let disk = SimDisk::new(1);
    let e = open(&disk, options());
    let (t, _) = table(&e);
    let mut old = e.session();
    begin(&mut old);
    old.read_view().unwrap();
    let (t2, ids) = {
        e.rename_table("t", "first").unwrap();
        table(&e)
    };
    merge(&e, &t2);
    let (all, apart) = told_apart(&t2);
    assert_eq!(apart, all, "the view is older than all of it");
    merge(&e, &t);
    assert!(are_settled(&t), "the view sees all of it");
    old.commit().unwrap();

    e.rename_table("t", "second").unwrap();
    let (t, ids) = (table(&e).0, ids);
    change(&e, &t, &ids[..1], 0);
    merge(&e, &t);
    assert_eq!(told_apart(&t).1, 1, "a version in memory may be older");

    // The mark, and what it deletes, goes; it may come back with the log.
    e.rename_table("t", "third").unwrap();
    let (t, _) = table(&e);
    let mut s = e.session();
    empty(&mut s, &t);
    fill(&e, &t);
    while merge::once_of_all(&e.core, &t, &t.tree()).unwrap() {}
    assert!(t.tree().snapshot().marks.is_empty());
    let ids = fill(&e, &t);
    change(&e, &t, &ids, 0);
    flush(&e, &t);
    merge(&e, &t);
    let (all, apart) = told_apart(&t);
    assert_eq!(apart, all, "it had a mark");
    assert_eq!(rows_of(&e, &t), 2 * ROWS);

    // One that comes while a merge begins.
    e.rename_table("t", "fourth").unwrap();
    let (t, _) = table(&e);
    {
        let (e, t) = (e.clone(), t.clone());
        super::tests::at_the_next_horizon(move || empty(&mut e.session(), &t));
    }
    merge(&e, &t);
    let (all, apart) = told_apart(&t);
    assert_eq!((apart, rows_of(&e, &t)), (all, 0), "a mark came");

    // What was read of a manifest may not be durable.
    e.rename_table("t", "fifth").unwrap();
    drop((s, t, t2, ids));
    let (_t, _) = table(&e);
    drop((_t, old));
    drop(e);
    let e = open(&disk.after_kill(), options());
    let t = e.open_table("t").unwrap();
    merge(&e, &t);
    let (all, apart) = told_apart(&t);
    assert_eq!(apart, all, "no manifest was written since");
}

fn empty(s: &mut Session, t: &Arc<Table>) {
    begin(s);
    s.lock_all(t).unwrap();
    s.delete_all(t).unwrap();
    s.commit().unwrap();
}

fn fill(e: &Engine, t: &Arc<Table>) -> Vec<RowId> {
    let ids = commit_rows(&mut e.session(), t, ROWS);
    flush(e, t);
    ids
}
