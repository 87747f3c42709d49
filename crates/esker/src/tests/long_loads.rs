//! A load of any length becomes runs of a bounded one, whoever writes them: the statement, a worker, or the statement in small
//! pieces where memory is short.

use crate::tests::support::*;
use crate::tests::tables::run_files;
use crate::*;
use esker_io::SimDisk;

const ROWS: u64 = 8_000;
/// Those of a run, before compression, in bytes: ROWS are some 14 times as many.
const RUN_BYTES: u64 = 64 << 10;

fn options((background, memory_limit_bytes, min_run_bytes): (Background, u64, usize)) -> Options {
    let run_bytes = RUN_BYTES / 4;
    Options { background, memory_limit_bytes, min_run_bytes, run_bytes, bulk_threshold_bytes: 4 << 10, ..small() }
}

fn runs(t: &Table) -> usize {
    t.tree().snapshot().runs.len()
}

#[test]
fn a_load_becomes_several_runs() {
    let roomy = |background| (background, 4 << 20, 16 << 10);
    // No run begins before memory is short.
    let short = (Background::Inline, 768 << 10, 1 << 20);
    for how in [roomy(Background::Inline), roomy(Background::Threads), short] {
        let disk = SimDisk::new(1);
        let e = open_with(&disk, options(how)).unwrap();
        let (t, mut s) = (make(&e, "t", &fixed(100)), e.session());
        // Given up on their way.
        begin(&mut s);
        fill(&mut s, &t, 0..ROWS);
        assert!(run_files(&disk).len() >= 7, "{how:?}: {:?}", run_files(&disk));
        s.rollback().unwrap();
        until(|| run_files(&disk).is_empty());
        begin(&mut s);
        fill(&mut s, &t, 0..ROWS);
        assert_eq!(s.count_rows(&t).unwrap(), ROWS, "its own");
        let found = runs(&t);
        assert!((7..=16).contains(&found), "{how:?}: {found} runs");
        s.rollback().unwrap();
        assert_eq!(runs(&t), 0);
        // A thread's to remove, if there is one.
        until(|| run_files(&disk).is_empty());

        // A savepoint in the midst of them, from a row within a run on.
        begin(&mut s);
        fill(&mut s, &t, 0..ROWS / 2);
        let point = s.savepoint();
        fill(&mut s, &t, ROWS / 2..ROWS);
        s.rollback_to(&point);
        fill(&mut s, &t, ROWS..ROWS + 10);
        s.commit().unwrap();
        assert!(runs(&t) >= 5);
        let rows = ROWS / 2 + 10;
        assert_eq!((s.count_rows(&t).unwrap(), s.count(&t).unwrap()), (rows, rows));
        s.commit().unwrap();
        assert!(e.check(&t, &mut |_, _| true).unwrap().damages.is_empty());
        drop((s, t));
        let e2 = open_with(&disk.after_kill(), options(short)).unwrap();
        assert_eq!(count(&e2, "t"), rows);
    }
}

/// A load within a transaction that goes on without it: nobody will ever see its runs.
#[test]
fn a_load_that_is_rolled_back_to_a_savepoint_gives_its_room_back() {
    let disk = SimDisk::new(1);
    let e = open_with(&disk, options((Background::Inline, 4 << 20, 16 << 10))).unwrap();
    let (t, mut s) = (make(&e, "t", &fixed(100)), e.session());
    begin(&mut s);
    fill(&mut s, &t, 0..ROWS / 2);
    let point = s.savepoint();
    fill(&mut s, &t, ROWS..2 * ROWS);
    s.rollback_to(&point);
    fill(&mut s, &t, ROWS / 2..ROWS / 2 + 10);
    s.commit().unwrap();
    let rows = || t.tree().snapshot().runs.iter().map(|h| h.run.stats.rows).sum::<u64>();
    let before = rows();
    assert!(before > ROWS, "{before} rows, all that was loaded is in runs");
    while e.sim_merge(&t).unwrap() {}
    assert!(rows() < ROWS / 2 * 4 / 3 + 100, "{} of {before} rows are left", rows());
    assert_eq!((s.count_rows(&t).unwrap(), count(&e, "t")), (ROWS / 2 + 10, ROWS / 2 + 10));
    s.commit().unwrap();
    assert!(e.check(&t, &mut |_, _| true).unwrap().damages.is_empty());
}
