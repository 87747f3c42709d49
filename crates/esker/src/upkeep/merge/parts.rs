//! Merges that take some rows of a run and leave the others: what is read then, by whom, and what is left on disk.

use crate::tests::tables::{begin, commit_rows, def, delete_rows, img, open, options, run_files, small_runs};
use crate::*;
use esker_base::counters::{bind, Counter, SessionCounters};
use esker_format::{ColumnMask, RowId};
use esker_io::SimDisk;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What is in the table: the number of each row.
type Model = BTreeMap<RowId, u64>;

fn small() -> Options {
    Options { run_bytes: 48 << 10, block_bytes: 1 << 10, ..options() }
}

fn flush(e: &Engine, t: &Arc<Table>) {
    e.core.flush(t, &t.tree()).unwrap();
}

/// Eight runs of 1000 rows each, apart.
fn base(e: &Engine) -> (Arc<Table>, Model) {
    e.create_table("t", &def()).unwrap();
    let t = e.open_table("t").unwrap();
    let mut model = Model::new();
    for _ in 0..8 {
        let ids = commit_rows(&mut e.session(), &t, 1000);
        model.extend(ids.into_iter().zip(0..));
        flush(e, &t);
    }
    assert!(!e.core.merge_once(&t, &t.tree(), false).unwrap(), "runs apart are left alone");
    (t, model)
}

fn update(e: &Engine, t: &Arc<Table>, model: &mut Model, rows: &[RowId], n: u64) {
    let mut s = e.session();
    begin(&mut s);
    for row in rows {
        // SAFETY: an image of this table's layout.
        unsafe { s.update_image(t, *row, img(n).as_ptr()).unwrap() };
        model.insert(*row, n);
    }
    s.commit().unwrap();
}

/// Reads all in order, and every seventh row by itself.
fn check_in(s: &mut Session, t: &Arc<Table>, model: &Model) {
    let mut rows = s.rows(t).unwrap();
    let mut found = Model::new();
    while let Some(row) = rows.next().unwrap() {
        found.insert(row.id(), u64::from_le_bytes(row.packed()[1..9].try_into().unwrap()));
    }
    assert!(found == *model, "{:?}", found.iter().zip(model).find(|(a, b)| a != b));
    let options = ScanOptions { mask: ColumnMask::all(2), ..ScanOptions::default() };
    let mut cursor = s.open_cursor(t, options).unwrap();
    for (row, n) in model.iter().step_by(7) {
        let image = cursor.fetch(s, *row).unwrap().unwrap();
        // SAFETY: an image of this table's layout.
        assert_eq!(unsafe { image.add(1).cast::<u64>().read_unaligned() }, *n, "row {row}");
    }
}

fn check(e: &Engine, t: &Arc<Table>, model: &Model) {
    let mut s = e.session();
    begin(&mut s);
    check_in(&mut s, t, model);
    s.commit().unwrap();
    assert!(e.check(t, &mut |_, _| true).unwrap().damages.is_empty());
    let state = t.tree().snapshot();
    for (i, h) in state.runs.iter().enumerate() {
        let is_row = |row: RowId| {
            let blocks = h.run.index().unwrap();
            let block = h.run.block(&blocks, blocks.block_at_or_after(row)).unwrap();
            block.row_id(block.lower_bound(row)) == row
        };
        assert!(h.first <= h.last && is_row(h.first) && is_row(h.last), "{}..{} are no rows of it", h.first, h.last);
        let rest = &state.runs[i + 1..];
        let beside = |o: &&crate::tree::RunHandle| Arc::ptr_eq(&o.run, &h.run) && o.overlaps(h.first, h.last);
        assert_eq!(rest.iter().filter(beside).count(), 0, "two parts of a run overlap");
    }
}

/// Parts of runs in the table.
fn parts(t: &Arc<Table>) -> usize {
    let whole = |h: &&crate::tree::RunHandle| (h.first, h.last) != (h.run.stats.min_id, h.run.stats.max_id);
    t.tree().snapshot().runs.iter().filter(whole).count()
}

/// Every fiftieth row, and two fifths of those of one run.
fn some_rows(model: &Model, busy: usize) -> Vec<RowId> {
    let row = |at: usize, row: &RowId| (at % 50 == 7 || (at / 1000 == busy && at % 5 < 2)).then_some(*row);
    model.keys().enumerate().filter_map(|(at, r)| row(at, r)).collect()
}

#[test]
fn a_step_takes_its_range_and_leaves_the_rest() {
    let disk = SimDisk::new(1);
    let mut e = open(&disk, small());
    let (mut t, mut model) = base(&e);
    for (round, busy) in [3usize, 5, 0, 7, 3, 1].into_iter().enumerate() {
        let before = model.clone();
        let mut view = e.session();
        begin(&mut view);
        view.take_view();
        let busy_rows = some_rows(&model, busy);
        update(&e, &t, &mut model, &busy_rows, 100 + round as u64);
        flush(&e, &t);
        let apart: Vec<_> = t.tree().snapshot().runs.iter().map(|h| h.run.clone()).collect();
        // What the view reads is there before, in the middle and after.
        check_in(&mut view, &t, &before);
        while e.core.merge_once(&t, &t.tree(), false).unwrap() {
            check_in(&mut view, &t, &before);
        }
        view.commit().unwrap();
        while e.core.merge_once(&t, &t.tree(), false).unwrap() {
            check(&e, &t, &model);
        }
        assert!(parts(&t) > 0, "round {round}: no run was narrowed");
        let state = t.tree().snapshot();
        let kept = apart.iter().filter(|run| state.runs.iter().any(|h| Arc::ptr_eq(&h.run, run))).count();
        assert!(kept >= apart.len().saturating_sub(6), "round {round}: {kept} of {} are left", apart.len());
        let files: BTreeSet<_> = state.runs.iter().map(|h| h.run.file_id).collect();
        drop((state, apart));
        assert_eq!(run_files(&disk).len(), files.len(), "files of which nothing is left");
        // Parts come back from the log, and from the manifest.
        if round % 2 == 0 {
            e.core.checkpoint().unwrap();
        }
        let bounds = |t: &Arc<Table>| -> BTreeSet<_> {
            t.tree().snapshot().runs.iter().map(|h| (h.run.file_id, h.first, h.last)).collect()
        };
        let left = bounds(&t);
        drop((view, t, e));
        disk.crash();
        e = open(&disk, small());
        t = e.open_table("t").unwrap();
        assert_eq!(bounds(&t), left);
        check(&e, &t, &model);
        assert!(!e.core.merge_once(&t, &t.tree(), false).unwrap(), "nothing is left to do");
    }
}

#[test]
fn deleted_rows_stay_deleted_when_tombstones_are_taken_in_parts() {
    let disk = SimDisk::new(1);
    let mut e = open(&disk, small());
    let (mut t, mut model) = base(&e);
    let mut most_parts = 0;
    for busy in [2usize, 4, 6, 2] {
        let gone = some_rows(&model, busy);
        delete_rows(&mut e.session(), &t, &gone);
        gone.iter().for_each(|row| {
            model.remove(row);
        });
        // Some of them are known to the memtable only.
        let last = *model.keys().next_back().unwrap();
        flush(&e, &t);
        delete_rows(&mut e.session(), &t, &[last]);
        model.remove(&last);
        while e.core.merge_once(&t, &t.tree(), false).unwrap() {
            check(&e, &t, &model);
        }
        most_parts = most_parts.max(parts(&t));
        drop((t, e));
        disk.crash();
        e = open(&disk, small());
        t = e.open_table("t").unwrap();
        check(&e, &t, &model);
    }
    assert!(most_parts > 0, "no run was narrowed");
    e.optimize(&t, &mut |_, _| true).unwrap();
    check(&e, &t, &model);
    assert_eq!(t.tree().snapshot().runs.iter().map(|h| h.run.stats.rows).sum::<u64>(), model.len() as u64);
}

#[test]
fn a_step_is_bounded_and_the_next_one_goes_on() {
    let disk = SimDisk::new(1);
    // The base is one run of 200 KiB, and a step writes no more than 32.
    let e = open(&disk, Options { run_bytes: 1 << 20, ..small() });
    e.create_table("t", &def()).unwrap();
    let t = e.open_table("t").unwrap();
    let mut model: Model = commit_rows(&mut e.session(), &t, 8000).into_iter().zip(0..).collect();
    flush(&e, &t);
    let rows: Vec<RowId> = model.keys().copied().step_by(2).collect();
    update(&e, &t, &mut model, &rows, 1000);
    e.core.checkpoint().unwrap();
    drop((t, e));
    let e = open(&disk, Options { run_bytes: 16 << 10, ..small() });
    let t = e.open_table("t").unwrap();
    flush(&e, &t);
    let mut steps = 0;
    loop {
        let files = run_files(&disk);
        if !e.core.merge_once(&t, &t.tree(), false).unwrap() {
            break;
        }
        let fresh = run_files(&disk).iter().filter(|f| !files.contains(f)).count();
        assert!(fresh <= 3, "a step wrote {fresh} runs");
        steps += 1;
        check(&e, &t, &model);
    }
    assert!(steps >= 4, "{steps} steps");
    assert_eq!(parts(&t), 0, "all was taken in");
}

#[test]
fn untouched_blocks_are_copied_and_read_the_same() {
    let disk = SimDisk::new(1);
    // Blocks get their sequence where the run was a transaction's own, and keep it where it was flushed.
    for (name, options) in [("flushed", small()), ("loaded", Options { run_bytes: 48 << 10, ..small_runs() })] {
        let options = Options { block_bytes: 1 << 10, run_bytes: 256 << 10, ..options };
        let mut e = open(&disk, options.clone());
        e.create_table(name, &def()).unwrap();
        let mut t = e.open_table(name).unwrap();
        let mut before = e.session();
        begin(&mut before);
        before.take_view();
        let mut model: Model = commit_rows(&mut e.session(), &t, 6000).into_iter().zip(0..).collect();
        flush(&e, &t);
        let own = t.tree().snapshot().runs.iter().any(|h| h.seq != esker_format::CommitSeq::ZERO);
        assert_eq!(own, name == "loaded", "the runs are of the kind that is meant");
        let mut after = e.session();
        begin(&mut after);
        after.take_view();
        let (old, rows): (Model, Vec<RowId>) = (model.clone(), model.keys().copied().skip(2000).take(2500).collect());
        update(&e, &t, &mut model, &rows, 9);
        flush(&e, &t);
        let counters = SessionCounters::new();
        {
            let _bound = bind(&counters);
            e.optimize(&t, &mut |_, _| true).unwrap();
        }
        let blocks = counters.get(Counter::BlocksCopied);
        assert!(blocks > 20, "{name}: {blocks} blocks were copied");
        // Views from before the rows, and from before their update, see what they saw.
        assert_eq!(before.count_rows(&t).unwrap(), 0);
        check_in(&mut after, &t, &old);
        before.commit().unwrap();
        after.commit().unwrap();
        for _ in 0..2 {
            check(&e, &t, &model);
            e.core.checkpoint().unwrap();
            drop((before, after, t, e));
            disk.crash();
            e = open(&disk, options.clone());
            t = e.open_table(name).unwrap();
            (before, after) = (e.session(), e.session());
        }
        drop((before, after));
    }
}
