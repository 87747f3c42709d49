//! Merges that take some rows of a run and leave the others: what is read then, by whom, and what is left on disk.

use crate::sim_hooks::Entry;
use crate::tests::keys::index;
use crate::tests::tables::{begin, commit_rows, def, delete_rows, img, open, options, run_files, small_runs};
use crate::tree::key::{ByBytes, Key};
use crate::tree::stored::Stored;
use crate::tree::{Tree, TreeState};
use crate::upkeep::choose::{AtRest, Step, Sweep};
use crate::upkeep::merge::{choice, Merging};
use crate::upkeep::policy::MOST_AT_ONCE;
use crate::upkeep::{checkpoint, flush, merge};
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
    flush::tree(&e.core, t, &t.tree()).unwrap();
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
    assert!(!merge::once(&e.core, &t, &t.tree()).unwrap(), "runs apart are left alone");
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

/// Merges until there is nothing left to do, and looks after each step.
fn merge_all(e: &Engine, t: &Arc<Table>, mut look: impl FnMut()) {
    let mut steps = 0;
    while merge::once(&e.core, t, &t.tree()).unwrap() {
        steps += 1;
        assert!(steps < 300, "no end after {steps} steps");
        look();
        // Who looks does not pay for more.
        t.tree().snapshot().forget_looks_in_runs();
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

fn merge_step<K: Stored>(
    e: &Engine,
    t: &Table,
    tree: &Arc<Tree<K>>,
    state: &TreeState<K>,
    step: &Step<K>,
) -> Sweep<K::Own> {
    let merging = Merging::begin(&e.core, t, tree, &mut |_, _| true).unwrap();
    merging.merge(state, step, e.core.views.kept(), &mut |_, _| true).unwrap()
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
        merge_all(&e, &t, || check_in(&mut view, &t, &before));
        view.commit().unwrap();
        merge_all(&e, &t, || check(&e, &t, &model));
        assert!(parts(&t) > 0, "round {round}: no run was narrowed");
        let state = t.tree().snapshot();
        let kept = apart.iter().filter(|run| state.runs.iter().any(|h| Arc::ptr_eq(&h.run, run))).count();
        assert!(kept >= apart.len().saturating_sub(6), "round {round}: {kept} of {} are left", apart.len());
        let files: BTreeSet<_> = state.runs.iter().map(|h| h.run.file_id).collect();
        drop((state, apart));
        assert_eq!(run_files(&disk).len(), files.len(), "files of which nothing is left");
        // Parts come back from the log, and from the manifest.
        if round % 2 == 0 {
            checkpoint::write(&e.core).unwrap();
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
        assert!(!merge::once(&e.core, &t, &t.tree()).unwrap(), "nothing is left to do");
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
        merge_all(&e, &t, || check(&e, &t, &model));
        most_parts = most_parts.max(parts(&t));
        drop((t, e));
        disk.crash();
        e = open(&disk, small());
        t = e.open_table("t").unwrap();
        check(&e, &t, &model);
    }
    assert!(most_parts > 0, "no run was narrowed");
    let mut told = 0;
    let mut go_on = |_, _| {
        told += 1;
        told < 10_000
    };
    e.optimize(&t, &mut go_on).unwrap();
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
    checkpoint::write(&e.core).unwrap();
    drop((t, e));
    let e = open(&disk, Options { run_bytes: 16 << 10, ..small() });
    let t = e.open_table("t").unwrap();
    flush(&e, &t);
    let mut steps = 0;
    loop {
        let files = run_files(&disk);
        if !merge::once(&e.core, &t, &t.tree()).unwrap() {
            break;
        }
        let fresh = run_files(&disk).iter().filter(|f| !files.contains(f)).count();
        assert!(fresh <= 3, "a step wrote {fresh} runs");
        steps += 1;
        assert!(steps < 300, "no end after {steps} steps");
        check(&e, &t, &model);
    }
    assert!(steps >= 4, "{steps} steps");
    assert_eq!(parts(&t), 0, "all was taken in");
}

#[test]
fn optimizing_goes_in_steps_each_of_which_gives_its_space_back() {
    let disk = SimDisk::new(1);
    let options = || Options { run_bytes: 64 << 10, ..small() };
    let mut e = open(&disk, options());
    e.create_table("t", &def()).unwrap();
    let mut t = e.open_table("t").unwrap();
    let mut model = Model::new();
    for _ in 0..20 {
        model.extend(commit_rows(&mut e.session(), &t, 1800).into_iter().zip(0..));
        flush(&e, &t);
    }
    // Few enough that nothing is merged down for them.
    let rows: Vec<RowId> = model.keys().copied().step_by(10).collect();
    update(&e, &t, &mut model, &rows, 77);
    flush(&e, &t);
    assert!(!merge::once(&e.core, &t, &t.tree()).unwrap());
    let counters = SessionCounters::new();
    let _bound = bind(&counters);
    let used = || -> u64 {
        let files = esker_io::Disk::list(&disk, std::path::Path::new("/db/runs")).unwrap();
        files.iter().map(|f| f.size_bytes).sum()
    };
    let (before, all) = (used(), t.tree().snapshot().runs.iter().map(|h| h.bytes()).sum::<u64>());
    let (mut most, mut merges, mut last) = (0, 0, (0, 0));
    // Stopped at the first word after the fourth step, which is said between steps.
    let result = e.optimize(&t, &mut |done, of| {
        assert!(done >= last.0 && done <= of, "{done} of {of} after {last:?}");
        (most, merges, last) = (most.max(used()), counters.get(Counter::Merges), (done, of));
        merges < 4
    });
    assert!(matches!(result, Err(Error::Interrupted)), "{result:?}");
    assert!(merges == 4 && last.0 < last.1 / 2, "{last:?} blocks after {merges} steps");
    check(&e, &t, &model);
    assert!(!t
        .tree()
        .snapshot()
        .runs
        .iter()
        .any(|h| h.run.stats.rows > 0 && h.first == RowId(1) && h.run.file_id.0 < 4));
    // What they did stays.
    let first = t.tree().snapshot().runs[0].run.file_id;
    e.optimize(&t, &mut |_, _| {
        most = most.max(used());
        true
    })
    .unwrap();
    assert_eq!(t.tree().snapshot().runs[0].run.file_id, first, "what was merged before is not merged again");
    check(&e, &t, &model);
    let steps = counters.get(Counter::Merges);
    assert!((all / (128 << 10)..=all / (48 << 10)).contains(&steps), "{steps} steps for {all} bytes");
    let after = used();
    assert!(most <= before.max(after) + (256 << 10), "{most} bytes at once, {before} before, {after} after");
    assert!(counters.get(Counter::MergedBytes) <= after + after / 8);
    let state = t.tree().snapshot();
    assert!(state.runs.windows(2).all(|w| w[0].last < w[1].first) && parts(&t) == 0);
    assert!(state.runs.iter().rev().skip(1).all(|h| h.run.size_bytes() >= 32 << 10), "runs of good size");
    drop((state, t, e));
    disk.crash();
    e = open(&disk, options());
    t = e.open_table("t").unwrap();
    check(&e, &t, &model);
    e.optimize(&t, &mut |_, _| true).unwrap();
    assert_eq!(counters.get(Counter::Merges), steps, "nothing is left to do");
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
            checkpoint::write(&e.core).unwrap();
            drop((before, after, t, e));
            disk.crash();
            e = open(&disk, options.clone());
            t = e.open_table(name).unwrap();
            (before, after) = (e.session(), e.session());
        }
        drop((before, after));
    }
}

/// Merges in steps until nothing is to be done, by a sweep or as the background does; the most inputs of a step, and how
/// many steps there were.
fn most_inputs(e: &Engine, t: &Arc<Table>, sweeps: bool) -> (usize, usize) {
    let (mut most, mut steps, mut sweep) = (0, 0, Sweep::Begin);
    loop {
        let state = t.tree().snapshot();
        let choice = choice(&e.core, &state, e.core.views.horizon(), AtRest::default());
        let Some(step) = (if sweeps { choice.sweep(&sweep) } else { choice.next().0 }) else { return (most, steps) };
        (most, steps) = (most.max(step.inputs.len()), steps + 1);
        sweep = step.then.clone().min(merge_step(e, t, &t.tree(), &state, &step));
    }
}

#[test]
fn a_step_takes_so_many_runs_and_no_more() {
    let disk = SimDisk::new(1);
    let e = open(&disk, Options { run_bytes: 1 << 20, ..small() });
    for (name, deep, sweeps) in [("a", true, false), ("b", true, true), ("c", false, false), ("d", false, true)] {
        e.create_table(name, &def()).unwrap();
        let t = e.open_table(name).unwrap();
        let mut model: Model = commit_rows(&mut e.session(), &t, 4000).into_iter().zip(0..).collect();
        flush(&e, &t);
        let ids: Vec<RowId> = model.keys().copied().collect();
        for n in 0..200 {
            // Over all of it, or beside each other.
            let rows: Vec<RowId> = match deep {
                true => ids[n..].iter().copied().step_by(400).collect(),
                false => ids[n * 20..n * 20 + 8].to_vec(),
            };
            update(&e, &t, &mut model, &rows, 1000 + n as u64);
            flush(&e, &t);
        }
        assert_eq!(t.tree().snapshot().runs.len(), 201);
        let (most, steps) = most_inputs(&e, &t, sweeps);
        assert!((32..=MOST_AT_ONCE + 1).contains(&most) && steps >= 3, "{name}: {most} runs in one of {steps} steps");
        check(&e, &t, &model);
        let left = t.tree().snapshot().runs.len();
        assert!(left <= if sweeps { 4 } else { MOST_AT_ONCE }, "{name}: {left} runs are left");
    }
}

/// What a merge has taken much of in small pieces is written anew: else each further step would name all of them.
#[test]
fn a_run_in_very_many_parts_becomes_one_again() {
    let disk = SimDisk::new(1);
    let e = open(&disk, Options { run_bytes: 1 << 20, ..small() });
    e.create_table("t", &def()).unwrap();
    let t = e.open_table("t").unwrap();
    let mut model: Model = commit_rows(&mut e.session(), &t, 6000).into_iter().zip(0..).collect();
    flush(&e, &t);
    let ids: Vec<RowId> = model.keys().copied().collect();
    let some: Vec<RowId> = ids.iter().copied().step_by(10).collect();
    update(&e, &t, &mut model, &some, 7);
    flush(&e, &t);
    // A run is left in no more parts than this.
    const MOST_PARTS: usize = 256;
    let cut = |n: usize| {
        let state = t.tree().snapshot();
        let (first, last) = (ids[n * 20], ids[n * 20 + 5]);
        let inputs = state.runs.iter().filter(|h| h.overlaps(first, last)).cloned().collect();
        let step = Step { first, last, ..Step::of(inputs).unwrap() };
        let before = e.core.wal.end_lsn();
        merge_step(&e, &t, &t.tree(), &state, &step);
        e.core.wal.end_lsn().0 - before.0
    };
    let logged: Vec<u64> = (0..MOST_PARTS).map(cut).collect();
    let last = logged[MOST_PARTS - 1];
    assert!(parts(&t) >= 2 * MOST_PARTS && last > 4 * logged[0], "{} parts, {last} bytes logged", parts(&t));
    assert!(merge::once(&e.core, &t, &t.tree()).unwrap());
    assert!(merge::once(&e.core, &t, &t.tree()).unwrap());
    assert!(parts(&t) < 4, "{} parts are left", parts(&t));
    check(&e, &t, &model);
    assert!(cut(MOST_PARTS + 1) < 2 * logged[0]);
    check(&e, &t, &model);
}

/// Keys that were taken out of the middle of a run with their tombstones, and come back while a view looks that knows them
/// deleted: what the run still has of them is in neither of its parts.
#[test]
fn a_part_of_a_run_has_nothing_behind_its_end() {
    let disk = SimDisk::new(1);
    let e = open(&disk, small());
    e.sim_create_table("t", &def(), &[index(1)]).unwrap();
    let t = e.open_table("t").unwrap();
    let mut s = e.session();
    let mut write = |keys: std::ops::Range<u64>, payload: Option<&[u8]>| {
        begin(&mut s);
        for n in keys {
            let entry = Entry { key: &n.to_be_bytes(), row: RowId(n + 1), payload };
            s.sim_write_entry(&t, 0, entry).unwrap();
        }
        s.commit().unwrap();
        e.sim_flush(&t).unwrap();
    };
    let keys_seen = |s: &mut Session| -> Vec<u64> {
        let entries = s.sim_entries(&t, 0, &[]).unwrap();
        entries.iter().map(|(key, _, _)| u64::from_be_bytes(key[..].try_into().unwrap())).collect()
    };
    write(0..300, Some(b"first"));
    write(100..110, None);
    let tree = t.trees().keys[0].clone();
    let state = tree.snapshot();
    let bound = |n: u64| ByBytes::own(&n.to_be_bytes());
    let step = Step { first: bound(100), last: bound(109), ..Step::of(state.runs.to_vec()).unwrap() };
    merge_step(&e, &t, &tree, &state, &step);
    let state = tree.snapshot();
    assert!(state.runs.len() == 2 && Arc::ptr_eq(&state.runs[0].run, &state.runs[1].run), "one run in two parts");
    let mut view = e.session();
    begin(&mut view);
    let without: Vec<u64> = (0..100).chain(110..300).collect();
    assert_eq!(keys_seen(&mut view), without);
    write(95..115, Some(b"again"));
    e.optimize(&t, &mut |_, _| true).unwrap();
    assert_eq!(tree.snapshot().runs.len(), 1);
    assert_eq!(keys_seen(&mut view), without, "they were deleted in this view");
    let mut now = e.session();
    begin(&mut now);
    assert_eq!(keys_seen(&mut now), (0..300).collect::<Vec<_>>());
}
