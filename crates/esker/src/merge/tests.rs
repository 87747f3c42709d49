//! Merges that are stopped, refused, or have nothing to do.

use crate::test_tables::{begin, commit_rows, def, img, open, options, rows_of, run_files};
use crate::*;
use esker_io::SimDisk;
use std::cell::RefCell;

thread_local! {
    static BEFORE_THE_STATE_CHANGES: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
}

/// Runs what a test wants to happen between a merge's durable edit and its change of the tree.
pub(super) fn before_the_state_changes() {
    if let Some(work) = BEFORE_THE_STATE_CHANGES.with(|w| w.borrow_mut().take()) {
        work();
    }
}

/// A table of `runs` runs that beg to be merged: each holds new versions of the same rows.
fn table_of_runs(e: &Engine, runs: u64) -> std::sync::Arc<Table> {
    e.create_table("t", &def()).unwrap();
    let t = e.open_table("t").unwrap();
    let mut s = e.session();
    let ids = commit_rows(&mut s, &t, 2000);
    e.core.flush(&t, &t.tree()).unwrap();
    for round in 1..runs {
        begin(&mut s);
        for id in &ids {
            unsafe { s.update_image(&t, *id, img(round).as_ptr()).unwrap() };
        }
        s.commit().unwrap();
        e.core.flush(&t, &t.tree()).unwrap();
    }
    t
}

#[test]
fn a_table_dropped_while_it_is_merged_leaves_no_file() {
    let disk = SimDisk::new(1);
    let e = open(&disk, options());
    let t = table_of_runs(&e, 3);
    let other = e.clone();
    let drop_it = move || other.drop_table("t").unwrap();
    BEFORE_THE_STATE_CHANGES.with(|w| *w.borrow_mut() = Some(Box::new(drop_it)));
    assert!(e.core.merge_once(&t, &t.tree(), false).unwrap());
    drop(t);
    assert_eq!(run_files(&disk), Vec::<String>::new());
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
