//! Dead entries that readers pass: who asks for what, and what it costs.

use super::*;
use crate::tree::key::copies;

/// A queue: entries come at one end and go at the other, through runs and memtables. Whoever looks for the least one does not
/// pass all that ever were.
#[test]
fn the_head_of_a_queue_is_found_at_once() {
    const WAITING: u64 = 100;
    let disk = SimDisk::new(1);
    let e = open(&disk, small());
    e.sim_create_table("t", &def(), &[index(1)]).unwrap();
    let t = e.open_table("t").unwrap();
    let counters = SessionCounters::new();
    let _bound = bind(&counters);
    let (mut s, mut most) = (e.session(), 0);
    let write = |s: &mut Session, n: u64, payload: Option<&[u8]>| {
        s.sim_write_entry(&t, 0, Entry { key: &n.to_be_bytes(), row: RowId(n + 1), payload }).unwrap();
    };
    // A million take a while where the compiler does not help.
    let steps = if cfg!(debug_assertions) { 60_000 } else { 1_000_000 };
    let steps = std::env::var("ESKER_QUEUE").map_or(steps, |n| n.parse().unwrap());
    for n in 0..steps {
        begin(&mut s);
        write(&mut s, n, Some(b"job"));
        if n >= WAITING {
            write(&mut s, n - WAITING, None);
        }
        s.commit().unwrap();
        if n % 50 != 0 {
            continue;
        }
        begin(&mut s);
        let before = counters.get(Counter::RowsExamined);
        let head = s.sim_first(&t, 0, &[]).unwrap().unwrap().0;
        assert_eq!(head, (n + 1).saturating_sub(WAITING).to_be_bytes());
        most = most.max(counters.get(Counter::RowsExamined) - before);
        s.commit().unwrap();
        while background::merge_somewhere(&e.core).unwrap() {}
    }
    assert!(most <= 2000, "{most} entries were looked at to find the least one");
    assert!(counters.get(Counter::Flushes) >= steps / 2000, "{} flushes", counters.get(Counter::Flushes));
    assert!(counters.get(Counter::Flushes) <= steps / 500, "{} flushes", counters.get(Counter::Flushes));
}

/// What an old view needs stays, and nobody flushes in vain for it.
#[test]
fn dead_entries_that_a_view_needs_ask_for_no_flush() {
    let disk = SimDisk::new(1);
    let e = open(&disk, small());
    e.sim_create_table("t", &def(), &[index(1)]).unwrap();
    let t = e.open_table("t").unwrap();
    let (mut model, mut s, mut view) = (Model::new(), e.session(), e.session());
    begin(&mut s);
    (0..1500).for_each(|n| put(&mut s, &t, &mut model, n, b"p"));
    s.commit().unwrap();
    begin(&mut view);
    view.take_view();
    let old = model.clone();
    begin(&mut s);
    (0..1500).for_each(|n| remove(&mut s, &t, &mut model, n));
    s.commit().unwrap();
    let counters = SessionCounters::new();
    let _bound = bind(&counters);
    for _ in 0..3 {
        check(&e, &t, &model);
        e.sim_round().unwrap();
    }
    assert_eq!(counters.get(Counter::Flushes), 0);
    check_in(&mut view, &t, &old);
    view.commit().unwrap();
    e.sim_round().unwrap();
    assert_eq!((counters.get(Counter::Flushes), runs(&t)), (1, 0), "nothing is left of them");
    check(&e, &t, &model);
}

/// What merges take care of asks for no flush: dead entries that lie in runs, beside a memtable that is in use.
#[test]
fn dead_entries_of_runs_ask_for_no_flush() {
    let disk = SimDisk::new(1);
    let e = open(&disk, small());
    e.sim_create_table("t", &def(), &[index(1)]).unwrap();
    let t = e.open_table("t").unwrap();
    let (mut model, mut s) = (Model::new(), e.session());
    begin(&mut s);
    (0..1500).for_each(|n| put(&mut s, &t, &mut model, n, b"p"));
    s.commit().unwrap();
    e.sim_flush(&t).unwrap();
    begin(&mut s);
    (0..1500).for_each(|n| remove(&mut s, &t, &mut model, n));
    s.commit().unwrap();
    e.sim_flush(&t).unwrap();
    assert_eq!(runs(&t), 2, "entries and tombstones are apart");
    begin(&mut s);
    put(&mut s, &t, &mut model, 7, b"new");
    s.commit().unwrap();
    let counters = SessionCounters::new();
    let _bound = bind(&counters);
    check(&e, &t, &model);
    assert!(counters.get(Counter::RowsExamined) > 1500, "the dead ones were passed");
    e.sim_round().unwrap();
    assert_eq!(counters.get(Counter::Flushes), 0);
}

/// A key tree with one large run, whose `dead` entries from `from` on are deleted by another, and nothing in memory. Few
/// enough of all that no merge wants them.
fn with_dead_in_runs(e: &Engine, entries: u64, from: u64, dead: u64) -> Arc<Table> {
    e.sim_create_table("t", &def(), &[index(1)]).unwrap();
    let t = e.open_table("t").unwrap();
    let mut s = e.session();
    for (range, payload) in [(0..entries, Some(b"payload".as_slice())), (from..from + dead, None)] {
        begin(&mut s);
        for n in range {
            s.sim_write_entry(&t, 0, Entry { key: &n.to_be_bytes(), row: RowId(n + 1), payload }).unwrap();
        }
        s.commit().unwrap();
        e.sim_flush(&t).unwrap();
    }
    assert_eq!(runs(&t), 2);
    assert!(!background::merge_somewhere(&e.core).unwrap(), "few of the entries are dead");
    t
}

/// How many entries it looks at to find the first one from `from` on; what that is.
fn passed(s: &mut Session, t: &Arc<Table>, counters: &SessionCounters, from: u64) -> (u64, Vec<u8>) {
    let before = counters.get(Counter::RowsExamined);
    let first = s.sim_first(t, 0, &from.to_be_bytes()).unwrap().unwrap().0;
    (counters.get(Counter::RowsExamined) - before, first)
}

#[test]
fn a_range_that_readers_find_dead_is_merged_first() {
    let disk = SimDisk::new(1);
    let e = open(&disk, Options { run_bytes: 1 << 20, ..small() });
    let t = with_dead_in_runs(&e, 20_000, 7000, 1500);
    let counters = SessionCounters::new();
    let _bound = bind(&counters);
    let mut s = e.session();
    begin(&mut s);
    copies::take();
    let (looked, first) = passed(&mut s, &t, &counters, 7000);
    let copies = copies::take();
    assert!(copies < 20, "{copies} keys were allocated");
    assert_eq!((looked > 1500, first), (true, 8500u64.to_be_bytes().to_vec()));
    s.commit().unwrap();
    // One merge of that range alone: nothing is written, and the next reader finds nothing there.
    let merged = || [Counter::Merges, Counter::MergedBytes, Counter::RowsPurged].map(|c| counters.get(c));
    let before = merged();
    assert!(background::merge_somewhere(&e.core).unwrap());
    assert!(!background::merge_somewhere(&e.core).unwrap());
    let after = merged();
    assert_eq!([0, 1, 2].map(|i| after[i] - before[i]), [1, 0, 3000]);
    assert_eq!(counters.get(Counter::Flushes), 0);
    begin(&mut s);
    assert_eq!(passed(&mut s, &t, &counters, 7000).1, 8500u64.to_be_bytes());
    assert!(passed(&mut s, &t, &counters, 7000).0 < 1000);
    assert_eq!(s.sim_entries(&t, 0, &[]).unwrap().len(), 18_500);
    s.commit().unwrap();
    assert!(!background::merge_somewhere(&e.core).unwrap());
    assert!(e.check(&t, &mut |_, _| true).unwrap().damages.is_empty());
    // Nor do they come back when what is left of the run is merged: its blocks hold some of them still.
    e.optimize(&t, &mut |_, _| true).unwrap();
    begin(&mut s);
    assert_eq!(s.sim_entries(&t, 0, &[]).unwrap().len(), 18_500);
    s.commit().unwrap();
}

#[test]
fn a_dead_range_waits_for_those_who_need_it() {
    let disk = SimDisk::new(1);
    let e = open(&disk, Options { run_bytes: 1 << 20, ..small() });
    let mut view = e.session();
    begin(&mut view);
    view.take_view();
    let t = with_dead_in_runs(&e, 20_000, 0, 1500);
    let counters = SessionCounters::new();
    let _bound = bind(&counters);
    let mut s = e.session();
    for _ in 0..3 {
        begin(&mut s);
        assert!(passed(&mut s, &t, &counters, 0).0 > 1500);
        s.commit().unwrap();
        assert!(!background::merge_somewhere(&e.core).unwrap(), "an old view needs them");
    }
    view.commit().unwrap();
    // Nobody needs to read it again for that.
    assert!(background::merge_somewhere(&e.core).unwrap());
    assert!(!background::merge_somewhere(&e.core).unwrap());
    begin(&mut s);
    assert!(passed(&mut s, &t, &counters, 0).0 < 1000);
    s.commit().unwrap();
}

/// What cannot go is not merged again and again.
#[test]
fn a_dead_range_under_an_open_transaction_is_left_alone() {
    let disk = SimDisk::new(1);
    let e = open(&disk, Options { run_bytes: 1 << 20, bulk_threshold_bytes: 64 << 20, ..small() });
    let t = with_dead_in_runs(&e, 20_000, 100, 1500);
    // A private run over all of it.
    let (mut s, mut owner) = (e.session(), e.session());
    begin(&mut owner);
    for n in (0..20_000u64).step_by(20) {
        let key = [&n.to_be_bytes()[..], &[7; 50]].concat();
        owner.sim_write_entry(&t, 0, Entry { key: &key, row: RowId(n + 1), payload: Some(&[7; 100]) }).unwrap();
    }
    e.sim_flush(&t).unwrap();
    assert_eq!(runs(&t), 3, "what it wrote was moved to a run of its own");
    let counters = SessionCounters::new();
    let _bound = bind(&counters);
    for _ in 0..3 {
        begin(&mut s);
        assert!(passed(&mut s, &t, &counters, 100).0 > 1500);
        s.commit().unwrap();
        assert!(!background::merge_somewhere(&e.core).unwrap());
    }
    owner.rollback().unwrap();
    begin(&mut s);
    assert!(passed(&mut s, &t, &counters, 100).0 > 1500);
    s.commit().unwrap();
    assert!(background::merge_somewhere(&e.core).unwrap());
    begin(&mut s);
    assert!(passed(&mut s, &t, &counters, 100).0 < 1000);
    s.commit().unwrap();
}

/// A reader that merely does not see what came later asks for nothing.
#[test]
fn entries_that_are_too_new_are_not_dead() {
    let disk = SimDisk::new(1);
    let e = open(&disk, small());
    e.sim_create_table("t", &def(), &[index(1)]).unwrap();
    let t = e.open_table("t").unwrap();
    let (mut model, mut s, mut view) = (Model::new(), e.session(), e.session());
    begin(&mut view);
    view.take_view();
    begin(&mut s);
    (0..1500).for_each(|n| put(&mut s, &t, &mut model, n, b"p"));
    s.commit().unwrap();
    let counters = SessionCounters::new();
    let _bound = bind(&counters);
    assert_eq!(view.sim_entries(&t, 0, &[]).unwrap(), []);
    assert!(counters.get(Counter::RowsExamined) >= 1500);
    e.sim_round().unwrap();
    assert_eq!(counters.get(Counter::Flushes), 0);
    view.commit().unwrap();
    // What was rolled back is.
    begin(&mut s);
    let point = s.savepoint();
    for n in 0..1500u64 {
        let key = [&[b'z'; 90][..], &n.to_be_bytes()].concat();
        s.sim_write_entry(&t, 0, Entry { key: &key, row: RowId(n + 1), payload: Some(b"p") }).unwrap();
    }
    s.rollback_to(&point);
    s.commit().unwrap();
    check(&e, &t, &model);
    e.sim_round().unwrap();
    assert_eq!(counters.get(Counter::Flushes), 1);
    check(&e, &t, &model);
}
