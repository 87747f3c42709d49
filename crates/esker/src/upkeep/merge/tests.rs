//! Merges that are stopped, refused, or have nothing to do.

use super::input::looked_at;
use super::Merging;
use crate::host::SimHost;
use crate::tests::hooks;
use crate::tests::tables::{
    begin, commit_rows, def, delete_rows, img, insert, open, open_on, options, rows_of, run_files, small_runs, Watched,
};
use crate::tree::run::file::RunFile;
use crate::tree::run::writer::encode_tail;
use crate::tree::run::Run;
use crate::tree::RunHandle;
use crate::upkeep::choose::{Step, Sweep};
use crate::upkeep::{checkpoint, flush, merge, new_run};
use crate::*;
use esker_format::{BlockEntry, CommitSeq, RowId, VersionTag};
use esker_io::{AccessHint, Disk, IoKind, OpenMode, SimDisk};
use std::cell::RefCell;
use std::sync::atomic::Ordering;
use std::sync::{mpsc, Arc, Mutex};
use std::time::Duration;

thread_local! {
    static BEHIND_THE_HORIZON: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
}

/// Runs what a test wants to happen once a merge knows the horizon.
pub(super) fn behind_the_horizon() {
    if let Some(work) = BEHIND_THE_HORIZON.with(|w| w.borrow_mut().take()) {
        work();
    }
}

/// Has it run so in this thread's next merge.
pub(super) fn at_the_next_horizon(work: impl FnOnce() + 'static) {
    BEHIND_THE_HORIZON.with(|w| *w.borrow_mut() = Some(Box::new(work)));
}

/// A table of `runs` runs that beg to be merged: each holds new versions of the same rows.
fn table_of_runs(e: &Engine, runs: u64) -> Arc<Table> {
    table_of(e, "t", runs, 2000)
}

fn table_of(e: &Engine, name: &str, runs: u64, rows: u64) -> Arc<Table> {
    e.create_table(name, &def()).unwrap();
    let t = e.open_table(name).unwrap();
    let mut s = e.session();
    let ids = commit_rows(&mut s, &t, rows);
    flush::tree(&e.core, &t, &t.tree()).unwrap();
    for round in 1..runs {
        begin(&mut s);
        for id in &ids {
            unsafe { s.update_image(&t, *id, img(round).as_ptr()).unwrap() };
        }
        s.commit().unwrap();
        flush::tree(&e.core, &t, &t.tree()).unwrap();
    }
    t
}

/// Without handles for what it reads a merge cannot begin: the tree is left alone for a while, and slows nobody down, as where they run
/// out in the middle.
#[test]
fn a_merge_that_cannot_begin_is_left_alone_for_a_while() {
    let (disk, time) = (Watched::new(), SimHost::new());
    let opened = || open_on(Arc::new(disk.clone()), Options { host: time.clone(), ..small_runs() });
    let e = opened();
    drop(table_of_runs(&e, 6));
    drop(e);
    disk.0.crash();
    // No index is in memory.
    let e = opened();
    let t = e.open_table("t").unwrap();
    let wanted = || merge::wanted(&e.core, &t.tree(), e.core.views.horizon());
    assert!(wanted());
    disk.1.no_handles.store(true, Ordering::Relaxed);
    let merged = merge::once(&e.core, &t, &t.tree());
    assert!(matches!(&merged, Err(Error::Io(e)) if e.kind == IoKind::Resources), "{merged:?}");
    assert!(!wanted() && t.tree().merge_debt_bytes.load(Ordering::Relaxed) == 0);
    disk.1.no_handles.store(false, Ordering::Relaxed);
    time.pass(Duration::from_secs(11));
    assert!(wanted() && merge::once(&e.core, &t, &t.tree()).unwrap());
}

#[test]
fn a_table_dropped_while_it_is_merged_leaves_no_file() {
    let disk = SimDisk::new(1);
    let e = open(&disk, options());
    let t = table_of_runs(&e, 3);
    let other = e.clone();
    let drop_it = move || other.drop_table("t").unwrap();
    hooks::at("a merge is logged, and the tree as it was", drop_it);
    assert!(merge::once(&e.core, &t, &t.tree()).unwrap());
    drop(t);
    assert_eq!(run_files(&disk), Vec::<String>::new());
}

/// In memory it is empty then, and nobody knows what a restart finds; a merge that is at its end meanwhile removes nothing.
#[test]
fn a_table_whose_emptying_is_not_durable_keeps_its_files() {
    let mut kept = 0;
    for seed in 0..8 {
        let disk = SimDisk::new(seed);
        let e = open(&disk, Options { block_bytes: 1 << 10, ..options() });
        let t = table_of_runs(&e, 3);
        checkpoint::write(&e.core).unwrap();
        let (tree, faulty) = (t.tree(), disk.clone());
        hooks::at("a table is made anew, and not durably so", move || {
            faulty.fail_once(faulty.op_count() + 1, IoKind::Failed);
        });
        let mut emptied = None;
        let mut progress = |done, of| {
            if done == of && emptied.is_none() {
                emptied = Some(e.truncate_table("t"));
            }
            true
        };
        let _ = merge::one_step(&e.core, &t, &tree, Some(&Sweep::Begin), &mut progress);
        assert!(emptied.unwrap().is_err() && hooks::all_done());
        disk.clear_plans();
        drop((t, tree, e));
        let e = open(&disk.after_power_cut(seed), options());
        let t = e.open_table("t").unwrap();
        let rows = rows_of(&e, &t);
        assert!(rows == 0 || rows == 2000, "{rows} rows");
        kept += u64::from(rows > 0);
        assert!(e.check(&t, &mut |_, _| true).unwrap().damages.is_empty());
    }
    assert!(kept > 0);
}

/// The same while its emptying waits for the log, and a flush or a merge of the trees of before comes to its end.
#[test]
fn a_table_whose_emptying_waits_for_the_log_keeps_its_files() {
    let places = ["a merge is about to be logged", "a merge is logged, and the tree as it was"];
    for place in [None, Some(places[0]), Some(places[1])] {
        let disk = SimDisk::new(1);
        let e = open(&disk, options());
        let t = table_of_runs(&e, 3);
        checkpoint::write(&e.core).unwrap();
        commit_rows(&mut e.session(), &t, 1);
        let before = run_files(&disk);
        let (ready, is_ready) = mpsc::channel();
        let (go, goes) = mpsc::channel();
        let (other, table, tree) = (e.clone(), t.clone(), t.tree());
        let upkeep = std::thread::spawn(move || {
            let wait = move || {
                ready.send(()).unwrap();
                goes.recv().unwrap();
            };
            match place {
                None => {
                    wait();
                    flush::tree(&other.core, &table, &tree).unwrap();
                }
                Some(place) => {
                    hooks::at(place, wait);
                    let _ = merge::once(&other.core, &table, &tree);
                    assert!(hooks::all_done());
                }
            }
        });
        is_ready.recv().unwrap();
        let left = Arc::new(Mutex::new(None));
        let (killed, still) = (left.clone(), disk.clone());
        hooks::at("a table is made anew, and not durably so", move || {
            go.send(()).unwrap();
            upkeep.join().unwrap();
            // A merge that is logged has others in their place.
            let (now, is_logged) = (run_files(&still), place == Some(places[1]));
            assert!(is_logged || before.iter().all(|file| now.contains(file)), "{place:?}: {before:?}, then {now:?}");
            *killed.lock().unwrap() = Some(still.after_kill());
        });
        e.truncate_table("t").unwrap();
        assert!(hooks::all_done());
        drop(t);
        assert_eq!(run_files(&disk), Vec::<String>::new(), "{place:?}");
        let e = open(&left.lock().unwrap().take().unwrap(), options());
        let t = e.open_table("t").unwrap();
        assert_eq!(rows_of(&e, &t), 2001, "{place:?}");
        assert!(e.check(&t, &mut |_, _| true).unwrap().damages.is_empty());
    }
}

#[test]
fn a_checkpoint_goes_on_where_a_table_is_dropped_meanwhile() {
    let disk = SimDisk::new(1);
    let e = open(&disk, options());
    drop([table_of(&e, "a", 3, 200), table_of(&e, "b", 3, 200)]);
    let other = e.clone();
    hooks::at("a merge is about to be logged", move || other.drop_table("a").unwrap());
    e.checkpoint().unwrap();
    assert!(hooks::all_done());
    assert_eq!(e.open_table("b").unwrap().stats().runs, 1);
}

#[test]
fn a_merge_of_a_dropped_table_stops_and_its_new_runs_go() {
    let disk = SimDisk::new(1);
    let e = open(&disk, Options { block_bytes: 1 << 10, ..options() });
    let t = table_of_runs(&e, 3);
    let mut steps = 0;
    let result = e.optimize(&t, &mut |done, total| {
        steps += 1;
        assert!(done <= total);
        if steps == 3 {
            e.drop_table("t").unwrap();
        }
        true
    });
    assert!(matches!(result, Err(Error::NoSuchTable(_))), "{result:?}");
    assert!(steps <= 4, "went on for {steps} steps");
    drop(t);
    assert_eq!(run_files(&disk), Vec::<String>::new());
}

#[test]
fn optimize_stops_when_its_caller_says_so() {
    let disk = SimDisk::new(1);
    let e = open(&disk, Options { block_bytes: 1 << 10, ..options() });
    let t = table_of_runs(&e, 3);
    let before = run_files(&disk);
    let (mut steps, mut last) = (0, (0, 0));
    let result = e.optimize(&t, &mut |done, total| {
        steps += 1;
        last = (done, total);
        steps < 5
    });
    assert!(matches!(result, Err(Error::Interrupted)), "{result:?}");
    assert!(steps == 5 && last.0 < last.1, "{steps} steps, {last:?}");
    assert_eq!(run_files(&disk), before, "its new runs are gone, the old ones are there");
    assert_eq!(rows_of(&e, &t), 2000);
    e.optimize(&t, &mut |_, _| true).unwrap();
    assert_eq!(run_files(&disk).len(), 1);
}

/// Merges as the background does: what wants it, until nothing does; how many there were.
fn merge_all(e: &Engine, tables: &[&Arc<Table>]) -> (usize, Vec<Error>) {
    let (mut merges, mut errors) = (0, Vec::new());
    for _ in 0..100 {
        let mut any = false;
        for t in tables {
            if merge::wanted(&e.core, &t.tree(), e.core.views.horizon()) {
                match merge::once(&e.core, t, &t.tree()) {
                    Ok(true) => (any, merges) = (true, merges + 1),
                    Ok(false) => {}
                    Err(e) => errors.push(e),
                }
            }
        }
        if !any && tables.iter().all(|t| !merge::wanted(&e.core, &t.tree(), e.core.views.horizon())) {
            return (merges, errors);
        }
    }
    panic!("merging finds no end: {errors:?}");
}

#[test]
fn a_run_that_cannot_be_read_ends_no_other_merge() {
    let (disk, time) = (Watched::new(), SimHost::new());
    let e = open_on(Arc::new(disk.clone()), Options { host: time.clone(), ..options() });
    let (a, b) = (table_of(&e, "a", 3, 500), table_of(&e, "b", 3, 500));
    // The newest of the first table: the others are in the cache.
    let bad = run_files(&disk.0)[2].clone();
    disk.break_reads(&bad, 0, IoKind::Failed);
    let (_, errors) = merge_all(&e, &[&a, &b]);
    assert!(matches!(errors[..], [Error::Io(_)]), "told once: {errors:?}");
    assert_eq!(b.tree().snapshot().runs.len(), 1);
    assert_eq!(a.tree().snapshot().runs.len(), 2, "the two others of its table are merged");
    assert_eq!(disk.failed_reads(), 1);
    // It is left alone, until some time has passed; then it is tried once.
    (0..10).for_each(|_| drop(merge_all(&e, &[&a, &b])));
    assert_eq!(disk.failed_reads(), 1);
    time.pass(Duration::from_secs(11));
    (0..10).for_each(|_| drop(merge_all(&e, &[&a, &b])));
    assert_eq!(disk.failed_reads(), 2);
    // A statement always tries; once it succeeds, merging goes on.
    let mut s = e.session();
    begin(&mut s);
    assert!(s.count_rows(&a).is_err());
    assert_eq!(disk.failed_reads(), 3);
    disk.mend_reads();
    assert_eq!(s.count_rows(&a).unwrap(), 500);
    s.commit().unwrap();
    assert!(merge_all(&e, &[&a, &b]).1.is_empty());
    assert_eq!(a.tree().snapshot().runs.len(), 1);
    assert!(!e.poisoned());
}

#[test]
fn a_damaged_run_is_not_merged() {
    let disk = SimDisk::new(1);
    let e = open(&disk, options());
    let t = table_of(&e, "t", 3, 500);
    let bad = t.tree().snapshot().runs[0].run.clone();
    disk.damage(&bad.path(), bad.index().unwrap().entries()[0].offset + 100, &[1]).unwrap();
    let (_, errors) = merge_all(&e, &[&t]);
    assert!(matches!(errors[..], [Error::Damage { .. }]), "{errors:?}");
    let state = t.tree().snapshot();
    assert!(state.runs.len() == 2 && state.runs.iter().any(|h| Arc::ptr_eq(&h.run, &bad)));
    // OPTIMIZE leaves it alone too.
    e.optimize(&t, &mut |_, _| true).unwrap();
    assert!(t.tree().snapshot().runs.iter().any(|h| Arc::ptr_eq(&h.run, &bad)));
}

#[test]
fn what_a_merge_cannot_write_is_discarded() {
    for (kind, full) in [(IoKind::Failed, false), (IoKind::DiskFull, true), (IoKind::Resources, false)] {
        let (disk, time) = (Watched::new(), SimHost::new());
        let e = open_on(Arc::new(disk.clone()), Options { host: time.clone(), ..options() });
        let t = table_of(&e, "t", 3, 500);
        let before = run_files(&disk.0);
        disk.1.bad_writes.set(Some(kind));
        let (_, errors) = merge_all(&e, &[&t]);
        let told = match &errors[..] {
            [Error::DiskFull(_)] => full,
            [Error::Io(e)] => e.kind == kind && e.message.contains("discarded"),
            _ => false,
        };
        assert!(told && !errors.iter().any(Error::stops_writing), "{kind:?}: {errors:?}");
        assert_eq!(run_files(&disk.0), before);
        assert_eq!(rows_of(&e, &t), 500);
        disk.1.bad_writes.set(None);
        assert!(!merge::wanted(&e.core, &t.tree(), e.core.views.horizon()), "not again at once");
        time.pass(Duration::from_secs(11));
        assert!(merge_all(&e, &[&t]).1.is_empty());
        assert_eq!(run_files(&disk.0).len(), 1);
        assert!(!e.poisoned());
    }
}

#[test]
fn a_write_that_fails_midway_is_discarded() {
    let disk = SimDisk::new(1);
    let e = open(&disk, options());
    let t = table_of(&e, "t", 3, 2000);
    let before = run_files(&disk);
    // Its output: created, reserved, written, cut, synced.
    for operation in 1..=4 {
        disk.fail_once(disk.op_count() + operation, IoKind::Failed);
        let e = merge::once(&e.core, &t, &t.tree());
        let told = matches!(&e, Err(Error::Io(e)) if e.message.contains("discarded"));
        assert!(told, "operation {operation}: {e:?}");
        assert_eq!(run_files(&disk), before);
    }
    assert!(!e.poisoned());
    assert!(merge::once(&e.core, &t, &t.tree()).unwrap());
    assert_eq!(rows_of(&e, &t), 2000);
}

#[test]
fn a_merge_that_would_not_fit_is_refused_before_it_begins() {
    let disk = SimDisk::new(1);
    let e = open(&disk, options());
    let t = table_of(&e, "t", 3, 2000);
    let bytes: u64 = t.tree().snapshot().runs.iter().map(|h| h.run.size_bytes()).sum();
    disk.capacity(Some(disk.used_bytes() + bytes - 4096));
    let operations = disk.op_count();
    assert!(matches!(merge::once(&e.core, &t, &t.tree()), Err(Error::DiskFull(_))));
    assert_eq!(disk.op_count(), operations, "it wrote nothing");
    disk.capacity(None);
    assert!(merge::once(&e.core, &t, &t.tree()).unwrap());
}

/// Deletes these rows, most of them by a private run of tombstones.
fn delete_by_run(e: &Engine, t: &Arc<Table>, ids: &[RowId]) {
    let before = t.tree().snapshot().runs.len();
    delete_rows(&mut e.session(), t, ids);
    assert!(t.tree().snapshot().runs.len() > before, "no private run was made");
}

/// Rows that are in the memtable only.
fn rows_in_memory(e: &Engine, t: &Arc<Table>, rows: u64) -> Vec<RowId> {
    (0..rows / 50).flat_map(|_| commit_rows(&mut e.session(), t, 50)).collect()
}

#[test]
fn a_merge_that_would_change_nothing_is_not_done() {
    let disk = SimDisk::new(1);
    let e = open(&disk, small_runs());
    e.create_table("t", &def()).unwrap();
    let t = e.open_table("t").unwrap();
    let ids = rows_in_memory(&e, &t, 600);
    delete_by_run(&e, &t, &ids);
    let files = run_files(&disk);
    assert!(!files.is_empty());
    for _ in 0..5 {
        assert_eq!(merge_all(&e, &[&t]).0, 0);
        assert!(!merge::once(&e.core, &t, &t.tree()).unwrap());
    }
    checkpoint::write(&e.core).unwrap();
    assert_eq!(run_files(&disk), files);
    assert_eq!(rows_of(&e, &t), 0);
    drop((t, e));
    disk.crash();
    let e = open(&disk, small_runs());
    let t = e.open_table("t").unwrap();
    for _ in 0..5 {
        assert_eq!(merge_all(&e, &[&t]).0, 0);
    }
    assert_eq!(run_files(&disk), files);
    assert_eq!(rows_of(&e, &t), 0);
    // Once the rows are in runs too, all goes.
    flush::tree(&e.core, &t, &t.tree()).unwrap();
    merge_all(&e, &[&t]);
    assert_eq!(run_files(&disk), Vec::<String>::new());
    assert_eq!(rows_of(&e, &t), 0);
}

#[test]
fn merging_comes_to_an_end_over_restarts() {
    let disk = SimDisk::new(1);
    let o = || Options { run_bytes: 16 << 10, block_bytes: 1 << 10, ..small_runs() };
    let mut e = open(&disk, o());
    e.create_table("t", &def()).unwrap();
    let (mut kept, mut rows) = (Vec::new(), 0);
    for round in 0..6u64 {
        let t = e.open_table("t").unwrap();
        let ids = commit_rows(&mut e.session(), &t, 700);
        delete_rows(&mut e.session(), &t, &ids[..(100 * round) as usize]);
        kept.extend_from_slice(&ids[(100 * round) as usize..]);
        rows_in_memory(&e, &t, 100);
        rows += 700 - 100 * round + 100;
        if round % 2 == 1 {
            let gone: Vec<_> = kept.drain(..300).collect();
            delete_rows(&mut e.session(), &t, &gone);
            rows -= 300;
        }
        flush::tree(&e.core, &t, &t.tree()).unwrap();
        merge_all(&e, &[&t]);
        checkpoint::write(&e.core).unwrap();
        let files = run_files(&disk);
        drop((t, e));
        disk.crash();
        e = open(&disk, o());
        let t = e.open_table("t").unwrap();
        assert_eq!(merge_all(&e, &[&t]).0, 0, "round {round}");
        assert_eq!(run_files(&disk), files);
        assert_eq!(rows_of(&e, &t), rows);
    }
    let t = e.open_table("t").unwrap();
    e.optimize(&t, &mut |_, _| true).unwrap();
    let files = run_files(&disk);
    e.optimize(&t, &mut |_, _| true).unwrap();
    assert_eq!(run_files(&disk), files, "there is nothing left to do");
    assert_eq!(rows_of(&e, &t), rows);
}

#[test]
fn a_tombstone_stays_while_a_memtable_has_the_row() {
    let disk = SimDisk::new(1);
    let e = open(&disk, small_runs());
    e.create_table("t", &def()).unwrap();
    let t = e.open_table("t").unwrap();
    // Half of the rows in a run, half in the memtable; then all are deleted, the last ones by a private run.
    let mut ids = rows_in_memory(&e, &t, 300);
    flush::tree(&e.core, &t, &t.tree()).unwrap();
    ids.extend(rows_in_memory(&e, &t, 300));
    ids.rotate_left(300);
    ids.rotate_left(128);
    let last = ids.split_off(ids.len() - 128);
    delete_by_run(&e, &t, &[last, ids].concat());
    assert_eq!(rows_of(&e, &t), 0);
    assert!(merge_all(&e, &[&t]).0 > 0, "the run and the tombstones over it are merged");
    assert_eq!(rows_of(&e, &t), 0, "deleted rows are back");
    checkpoint::write(&e.core).unwrap();
    drop((t, e));
    disk.crash();
    let e = open(&disk, small_runs());
    assert_eq!(rows_of(&e, &e.open_table("t").unwrap()), 0, "deleted rows came back with a restart");
}

#[test]
fn a_merge_of_many_bytes_makes_many_runs() {
    let disk = SimDisk::new(1);
    let e = open(&disk, Options { run_bytes: 8 << 10, block_bytes: 1 << 10, ..options() });
    let t = table_of(&e, "t", 3, 3000);
    e.optimize(&t, &mut |_, _| true).unwrap();
    let state = t.tree().snapshot();
    assert!(state.runs.len() > 3, "{} runs", state.runs.len());
    assert!(state.runs.windows(2).all(|w| w[0].run.stats.max_id < w[1].run.stats.min_id));
    assert!(state.runs.iter().all(|h| h.run.size_bytes() < 24 << 10));
    assert_eq!(rows_of(&e, &t), 3000);
    assert!(e.check(&t, &mut |_, _| true).unwrap().damages.is_empty());
    // In the background it comes to the same, and to an end.
    let u = table_of(&e, "u", 3, 12000);
    merge_all(&e, &[&u]);
    assert!(u.tree().snapshot().runs.len() > 10);
    assert_eq!(rows_of(&e, &u), 12000);
}

#[test]
fn versions_of_a_row_stay_in_one_run() {
    let disk = SimDisk::new(1);
    let e = open(&disk, Options { run_bytes: 4 << 10, block_bytes: 512, ..options() });
    e.create_table("t", &def()).unwrap();
    let t = e.open_table("t").unwrap();
    let ids = commit_rows(&mut e.session(), &t, 20);
    // Views keep every version.
    let mut views = Vec::new();
    for n in 0..40 {
        let mut view = e.session();
        begin(&mut view);
        view.take_view();
        views.push(view);
        let mut s = e.session();
        begin(&mut s);
        for id in &ids {
            unsafe { s.update_image(&t, *id, img(n).as_ptr()).unwrap() };
        }
        s.commit().unwrap();
        if n % 10 == 0 {
            flush::tree(&e.core, &t, &t.tree()).unwrap();
        }
    }
    e.optimize(&t, &mut |_, _| true).unwrap();
    let runs = &t.tree().snapshot().runs;
    assert!(runs.len() > 1 && runs.windows(2).all(|w| w[0].run.stats.max_id < w[1].run.stats.min_id));
    assert!(views.iter_mut().all(|v| v.count_rows(&t).unwrap() == 20));
}

#[test]
fn optimize_leaves_the_count_of_rows_to_those_who_commit() {
    let disk = SimDisk::new(1);
    let e = open(&disk, Options { block_bytes: 1 << 10, ..options() });
    let t = table_of_runs(&e, 3);
    let (mut s, mut steps) = (e.session(), 0);
    e.optimize(&t, &mut |_, _| {
        steps += 1;
        if steps <= 10 {
            commit_rows(&mut s, &t, 1);
        }
        true
    })
    .unwrap();
    assert_eq!(t.stats().rows, 2010);
    assert_eq!(rows_of(&e, &t), 2010);
}

#[test]
fn a_table_at_rest_is_not_looked_at_again() {
    let disk = SimDisk::new(1);
    let e = open(&disk, options());
    let t = table_of(&e, "t", 3, 500);
    merge_all(&e, &[&t]);
    let tree = t.tree();
    assert!(!merge::wanted(&e.core, &tree, e.core.views.horizon()));
    assert_eq!(tree.nothing_to_merge.load(std::sync::atomic::Ordering::Relaxed), tree.snapshot().edits());
    let mut s = e.session();
    begin(&mut s);
    insert(&mut s, &t, 1);
    s.commit().unwrap();
    flush::tree(&e.core, &t, &tree).unwrap();
    assert_ne!(tree.nothing_to_merge.load(std::sync::atomic::Ordering::Relaxed), tree.snapshot().edits());
}

/// Of every run, oldest first: row versions, tombstones, superseding versions.
fn figures(t: &Arc<Table>) -> Vec<(u64, u64, u64)> {
    let state = t.tree().snapshot();
    let of = |stats: &esker_format::RunStats| (stats.rows, stats.tombstones, stats.supersedes);
    let mut runs: Vec<_> = state.runs.iter().map(|h| (h.run.file_id, of(&h.run.stats))).collect();
    runs.sort_unstable();
    runs.into_iter().map(|r| r.1).collect()
}

fn update(s: &mut Session, t: &Arc<Table>, ids: &[RowId]) {
    begin(s);
    ids.iter().for_each(|id| unsafe { s.update_image(t, *id, img(7).as_ptr()).unwrap() });
    s.commit().unwrap();
}

#[test]
fn inserts_supersede_nothing_and_all_else_does() {
    let disk = SimDisk::new(1);
    let e = open(&disk, small_runs());
    e.create_table("t", &def()).unwrap();
    let t = e.open_table("t").unwrap();
    let (tree, mut s) = (t.tree(), e.session());
    // Most by a private run, the others by the memtable; then all by the memtable.
    let many = commit_rows(&mut s, &t, 600);
    assert_eq!(figures(&t).len(), 1);
    let few = rows_in_memory(&e, &t, 100);
    flush::tree(&e.core, &t, &tree).unwrap();
    let inserted = figures(&t);
    assert!(inserted.iter().all(|f| (f.1, f.2) == (0, 0)), "{inserted:?}");
    assert_eq!(inserted.iter().map(|f| f.0).sum::<u64>(), 700);
    // Updated and deleted in the same ways.
    update(&mut s, &t, &many);
    delete_rows(&mut s, &t, &many[..300]);
    flush::tree(&e.core, &t, &tree).unwrap();
    update(&mut s, &t, &few[..20]);
    flush::tree(&e.core, &t, &tree).unwrap();
    let later = &figures(&t)[inserted.len()..];
    assert!(later.len() > 2 && later.iter().all(|f| f.2 == f.0), "{later:?}");
    // Nothing older is left.
    e.optimize(&t, &mut |_, _| true).unwrap();
    assert_eq!(figures(&t), [(400, 0, 0)]);
}

#[test]
fn a_merge_tells_what_still_has_an_older_version() {
    let disk = SimDisk::new(1);
    let e = open(&disk, options());
    // Three runs of the same rows; the first is left out.
    let t = table_of(&e, "t", 3, 100);
    let merge = |from: usize| {
        let (tree, state) = (t.tree(), t.tree().snapshot());
        let mut inputs = state.runs.to_vec();
        inputs.sort_by_key(|h| h.run.file_id);
        let step = Step::of(inputs.split_off(from)).unwrap();
        let merging = Merging::begin(&e.core, &t, &tree, &mut |_, _| true).unwrap();
        merging.merge(&state, &step, e.core.views.kept(), &mut |_, _| true).unwrap();
    };
    merge(1);
    assert_eq!(figures(&t), [(100, 0, 0), (100, 0, 100)], "the rows of the first run lie below");
    // A view needs both versions.
    let mut s = e.session();
    begin(&mut s);
    s.take_view();
    update(&mut e.session(), &t, &(1..=100).map(RowId).collect::<Vec<_>>());
    flush::tree(&e.core, &t, &t.tree()).unwrap();
    merge(0);
    assert_eq!(figures(&t), [(200, 0, 100)]);
    s.commit().unwrap();
    merge(0);
    assert_eq!(figures(&t), [(100, 0, 0)]);
}

/// What OPTIMIZE says of a run whose index says something else than its blocks, beside one of rows from `others` on; and
/// where it should find it.
fn merge_with_lying_index(others: u64, lie: impl FnOnce(&mut [BlockEntry])) -> (Error, std::path::PathBuf, u64) {
    let disk = SimDisk::new(1);
    let e = open(&disk, Options { block_bytes: 1 << 10, ..options() });
    e.create_table("t", &def()).unwrap();
    let t = e.open_table("t").unwrap();
    let tree = t.tree();
    let run = |from: u64, seq| {
        let mut writer = new_run(&e.core, &t, &tree).unwrap();
        for row in from..from + 200 {
            let mut packed = Vec::new();
            // SAFETY: an image of this layout.
            unsafe { esker_format::row::pack(t.layout(), img(row).as_ptr(), &mut packed) }.unwrap();
            let tag = VersionTag { seq: CommitSeq(seq + row % 11), ordinal: 1 + row % 17, ..VersionTag::default() };
            writer.push(RowId(row), tag, &packed).unwrap();
        }
        writer.finish().unwrap()
    };
    let (bad, good) = (run(1, 5000), run(others, 6000));
    let mut entries = bad.index().unwrap().entries().to_vec();
    let place = entries[1].offset;
    lie(&mut entries);
    let last = bad.index().unwrap().entries()[entries.len() - 1];
    let base = last.offset + u64::from(last.stored_bytes);
    let tail = encode_tail(&e.core.runs.recipe(&t, &tree), bad.file_id, &entries, &bad.stats, base);
    disk.open(&bad.path(), OpenMode::Write, AccessHint::Meta).unwrap().write_at(&tail, base).unwrap();
    let file = RunFile::new(&e.core.cache, bad.file_id, 0);
    let lying = Run::open(&e.core.runs.recipe(&t, &tree), &file, 0, &bad.stats, bad.bounds);
    lying.index().unwrap();
    tree.edit(|s| [lying, good].into_iter().for_each(|run| s.add_run(RunHandle::committed(run))));
    let said = e.optimize(&t, &mut |_, _| true).unwrap_err();
    assert_eq!((tree.snapshot().runs.len(), e.poisoned()), (2, false), "{said}");
    (said, bad.path(), place)
}

#[test]
fn a_block_that_is_not_what_its_index_entry_says_is_not_merged() {
    type Lie = fn(&mut [BlockEntry]);
    let lies: [(&str, Lie); 5] = [
        ("first row", |e| e[1].first_id.0 += 1),
        ("last row", |e| e[1].last_id.0 -= 1),
        ("least sequence", |e| e[1].min_seq.0 += 1),
        ("rows of a block", |e| (e[1].rows, e[2].rows) = (e[1].rows - 1, e[2].rows + 1)),
        ("flags", |e| e[1].flags ^= esker_format::block::flags::ORDINALS_DENSE),
    ];
    // Beside the other run blocks are copied, under it they are decoded.
    for others in [1000, 1] {
        for (what, lie) in lies {
            match merge_with_lying_index(others, lie) {
                (Error::Damage { file, offset, reason }, path, place) => {
                    assert!(reason.to_string().contains(what), "{what}: {reason}");
                    assert_eq!((file, offset), (path, place), "{what}");
                }
                (e, ..) => panic!("{what}: {e}"),
            }
        }
    }
    // Of ordinals the block's head says nothing: they are looked at where it is copied.
    let (e, ..) = merge_with_lying_index(1000, |e| e[1].min_ordinal += 1);
    assert!(matches!(&e, Error::Damage { reason, .. } if reason.to_string().contains("least ordinal")), "{e}");
}

/// Inputs are kept in order: whichever comes next, it is not looked for among all of them.
#[test]
fn a_merge_looks_at_few_keys_however_many_runs_it_joins() {
    const RUNS: u64 = 32;
    const ROWS: u64 = 3200;
    let disk = SimDisk::new(1);
    let e = open(&disk, options());
    e.create_table("t", &def()).unwrap();
    let t = e.open_table("t").unwrap();
    let mut s = e.session();
    let ids = commit_rows(&mut s, &t, ROWS);
    flush::tree(&e.core, &t, &t.tree()).unwrap();
    for round in 0..RUNS {
        begin(&mut s);
        for id in ids.iter().filter(|id| id.0 % RUNS == round) {
            unsafe { s.update_image(&t, *id, img(round).as_ptr()).unwrap() };
        }
        s.commit().unwrap();
        flush::tree(&e.core, &t, &t.tree()).unwrap();
    }
    assert_eq!(t.tree().snapshot().runs.len() as u64, RUNS + 1);
    looked_at::take();
    assert!(merge::once_of_all(&e.core, &t, &t.tree()).unwrap());
    let looked = looked_at::take();
    assert_eq!((t.tree().snapshot().runs.len(), rows_of(&e, &t)), (1, ROWS));
    // Twice as many versions as rows; to find a place among so many inputs 6 are looked at, and itself each time.
    assert!(looked as u64 <= 2 * ROWS * 20, "{looked} for {ROWS} rows of {RUNS} runs");
}
