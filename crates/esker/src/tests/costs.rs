//! What must cost no more the more there is elsewhere: counted, not timed.

use crate::tests::support::{begun, open_with, options};
use crate::tree::run::cache::swept;
use crate::txn::commit::settled;
use crate::upkeep::choose::asked;
use crate::upkeep::merge;
use crate::*;
use esker_format::RowId;
use esker_io::SimDisk;
use std::sync::Arc;

const RUNS: u64 = 60;

fn small() -> Options {
    Options { bulk_threshold_bytes: 16 << 10, min_run_bytes: 4 << 10, block_bytes: 1 << 10, ..options() }
}

fn insert(s: &mut Session, t: &Arc<Table>, ids: std::ops::Range<u64>) -> Vec<RowId> {
    ids.map(|id| s.insert(t, &[id.into(), "a text".into()]).unwrap()).collect()
}

/// A table with a key, and many runs beside each other in each tree.
fn table(e: &Engine) -> (Arc<Table>, Vec<RowId>) {
    let schema = Schema::new().column("id", Type::U64).column("text", Type::Text(20));
    e.create_table("t", &TableDef::of(&schema).unwrap().unique("PRIMARY", &["id"]).unwrap()).unwrap();
    let t = e.open_table("t").unwrap();
    let mut rows = Vec::new();
    for run in 0..RUNS {
        let mut s = begun(e, false);
        rows.extend(insert(&mut s, &t, 100 * run..100 * run + 10));
        s.commit().unwrap();
        e.sim_flush(&t).unwrap();
    }
    assert!(t.trees().keys[0].snapshot().runs.len() as u64 >= RUNS);
    (t, rows)
}

/// Versions in memory are all that most transactions have; runs and marks of their own are found and settled.
#[test]
fn a_small_commit_looks_at_no_run() {
    let disk = SimDisk::new(1);
    let e = open_with(&disk, small()).unwrap();
    let (t, _) = table(&e);
    let no_owners = || {
        let trees = t.trees();
        let (rows, keys) = (trees.rows.snapshot(), trees.keys[0].snapshot());
        assert!(rows.runs.iter().all(|h| h.owner.is_none()) && keys.runs.iter().all(|h| h.owner.is_none()));
        assert!(rows.marks.iter().all(|m| m.owner.is_none()) && keys.marks.iter().all(|m| m.owner.is_none()));
    };
    let mut s = begun(&e, false);
    settled::take();
    insert(&mut s, &t, 50..51);
    s.commit().unwrap();
    assert_eq!(settled::take(), 0);
    // By two phases.
    let mut s = begun(&e, false);
    insert(&mut s, &t, 51..52);
    s.prepare(b"x").unwrap();
    s.commit().unwrap();
    assert_eq!(settled::take(), 0);
    let mut s = begun(&e, false);
    insert(&mut s, &t, 100 * RUNS..100 * RUNS + 3000);
    s.commit().unwrap();
    assert!(settled::take() >= 2);
    no_owners();
    let mut s = begun(&e, false);
    s.delete_all(&t).unwrap();
    s.commit().unwrap();
    assert!(settled::take() >= 2);
    no_owners();
}

/// Whether runs are to be merged is asked of each a few times, not of each for each other.
#[test]
fn a_merge_is_chosen_by_few_looks_at_each_run() {
    let disk = SimDisk::new(1);
    let e = open_with(&disk, small()).unwrap();
    let (t, rows) = table(&e);
    // So that many of them have tombstones.
    for run in 0..RUNS {
        let mut s = begun(&e, false);
        s.delete(&t, rows[10 * run as usize]).unwrap();
        insert(&mut s, &t, 100 * run + 20..100 * run + 25);
        s.commit().unwrap();
        e.sim_flush(&t).unwrap();
    }
    let tree = t.trees().keys[0].clone();
    let runs = tree.snapshot().runs.len();
    let with_tombstones = tree.snapshot().runs.iter().filter(|h| h.run.stats.tombstones > 0).count();
    assert!(
        runs as u64 >= 2 * RUNS && with_tombstones as u64 >= RUNS,
        "{runs} runs, {with_tombstones} with tombstones"
    );
    asked::take();
    merge::wanted(&e.core, &tree, e.core.views.horizon());
    let asked = asked::take();
    assert!(asked >= runs && asked <= 8 * runs, "{asked} times for {runs} runs");
}

/// The queues of the cache are looked through when much in them is of runs that are gone.
#[test]
fn the_cache_is_looked_through_once_much_of_it_is_gone() {
    let disk = SimDisk::new(1);
    let e = open_with(&disk, small()).unwrap();
    let (t, _) = table(&e);
    let mut s = begun(&e, false);
    let (mut rows, mut read) = (s.rows(&t).unwrap(), 0);
    while rows.next().unwrap().is_some() {
        read += 1;
    }
    assert_eq!(read, 10 * RUNS);
    drop(rows);
    s.commit().unwrap();
    swept::take();
    (0..100).for_each(|_| e.core.cache.sweep());
    assert_eq!(swept::take(), 0, "nothing is gone");
    drop((s, t));
    e.drop_table("t").unwrap();
    (0..100).for_each(|_| e.core.cache.sweep());
    assert_eq!(swept::take(), 1);
    assert_eq!(e.core.cache.queued(), 0, "places of what is gone");
}

/// Runs that are written and merged away unread leave no place in a queue either.
#[test]
fn runs_that_nobody_reads_leave_nothing_in_the_cache() {
    let disk = SimDisk::new(1);
    let e = open_with(&disk, small()).unwrap();
    let (t, _) = table(&e);
    let before = e.core.cache.indexes.queued();
    assert!(before as u64 >= RUNS);
    e.optimize(&t, &mut |_, _| true).unwrap();
    let trees = t.trees();
    let left = trees.rows.snapshot().runs.len() + trees.keys[0].snapshot().runs.len();
    assert!(left <= 4, "{left} runs");
    e.core.cache.sweep();
    assert!(e.core.cache.indexes.queued() <= 2 * left, "{} places", e.core.cache.indexes.queued());
}
