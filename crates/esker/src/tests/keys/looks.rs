//! Runs and memtables that readers look into beside others: when they have paid for a merge or a flush, and that it ends.

use super::*;
use crate::sim_hooks::SimHost;
use crate::tree::looks::{BUSY_LOOK_BYTES, LOOK_BYTES, READ_REST, TOLD_FIRST};
use crate::tree::merge_read::{Extent, MergeRead};
use crate::version::View;
use esker_format::TxnId;
use std::time::Duration;

const ENTRIES: u64 = 4000;
/// Entries that are changed once all are in a run; few enough that no merge wants them, even at rest.
const CHANGED: u64 = 40;

struct Case {
    e: Engine,
    t: Arc<Table>,
    time: Arc<SimHost>,
    counters: SessionCounters,
}

impl Case {
    /// All entries in one run.
    fn new() -> Case {
        let time = SimHost::new();
        let e = open(&SimDisk::new(1), Options { host: time.clone(), run_bytes: 1 << 20, ..small() });
        e.sim_create_table("t", &def(), &[index(1)]).unwrap();
        let t = e.open_table("t").unwrap();
        let case = Case { e, t, time, counters: SessionCounters::new() };
        case.write(0..ENTRIES, b"first");
        case.e.sim_flush(&case.t).unwrap();
        assert!(!case.merges());
        case
    }

    fn write(&self, entries: impl Iterator<Item = u64>, payload: &[u8]) {
        let mut s = self.e.session();
        begin(&mut s);
        for n in entries {
            let entry = Entry { key: &n.to_be_bytes(), row: RowId(n + 1), payload: Some(payload) };
            s.sim_write_entry(&self.t, 0, entry).unwrap();
        }
        s.commit().unwrap();
    }

    /// Changes entries that lie apart.
    fn change(&self, payload: &[u8]) {
        self.write((0..CHANGED).map(|n| n * (ENTRIES / CHANGED)), payload);
    }

    /// Reads all, and finds so many that were changed.
    fn read(&self, changed: u64, payload: &[u8]) {
        let _bound = bind(&self.counters);
        let mut s = self.e.session();
        begin(&mut s);
        let all = s.sim_entries(&self.t, 0, &[]).unwrap();
        assert_eq!(all.len() as u64, ENTRIES);
        assert_eq!(all.iter().filter(|entry| entry.2 == payload).count() as u64, changed);
        s.commit().unwrap();
    }

    /// Reads so many entries from one on.
    fn read_few(&self, from: u64, count: u64) -> u64 {
        let _bound = bind(&self.counters);
        let mut s = self.e.session();
        begin(&mut s);
        let (from, to) = (from.to_be_bytes(), Some((from + count).to_be_bytes().to_vec().into()));
        let view = View { seq: self.e.core.views.visible_seq(), me: TxnId::ZERO };
        let state = self.t.trees().keys[0].snapshot();
        let extent = Extent { from: &from[..], to, watches: false };
        MergeRead::within(state, None, view, extent, &s.parker).unwrap().count_rest(&mut || true).unwrap()
    }

    fn merges(&self) -> bool {
        let _bound = bind(&self.counters);
        background::merge_somewhere(&self.e.core).unwrap()
    }

    fn run_bytes(&self) -> u64 {
        self.t.trees().keys[0].snapshot().runs.iter().map(|run| run.bytes()).sum()
    }

    fn runs(&self) -> usize {
        runs(&self.t)
    }
}

/// How often all are read until the runs are merged for that.
fn reads_until_merged(case: &Case, meanwhile: impl Fn()) -> u64 {
    for reads in 1..10_000 {
        case.read(CHANGED, b"second");
        meanwhile();
        if case.merges() {
            return reads;
        }
    }
    panic!("never merged");
}

#[test]
fn few_changes_that_are_read_again_and_again_are_merged_once_that_is_paid() {
    for (rests, look_bytes) in [(true, LOOK_BYTES), (false, BUSY_LOOK_BYTES)] {
        let case = Case::new();
        case.change(b"second");
        case.e.sim_flush(&case.t).unwrap();
        assert_eq!((case.runs(), case.merges()), (2, false), "too few to be merged");
        if rests {
            case.time.pass(READ_REST);
        }
        let bytes = case.run_bytes();
        let written = std::cell::Cell::new(0);
        let reads = reads_until_merged(&case, || {
            if !rests {
                // A new version of an entry that nobody changed else, of the same payload.
                written.set(written.get() + 1);
                case.write(std::iter::once(1), b"first");
                case.time.pass(READ_REST / 4);
            }
        });
        assert_eq!(case.counters.get(Counter::MergesForReads), 1);
        assert_eq!(case.runs(), 1);
        let paid = reads * CHANGED * look_bytes;
        // Upkeep is told of looks when they have doubled, and not of a few.
        let least = bytes.max(TOLD_FIRST * look_bytes / 2);
        assert!((bytes..3 * least).contains(&paid), "{bytes} bytes were merged for {paid} paid, rests: {rests}");
        // Whoever finds all in one run pays for nothing.
        for _ in 0..200 {
            case.read(CHANGED, b"second");
            assert!(!case.merges());
        }
        assert_eq!(case.counters.get(Counter::MergesForReads), 1);
    }
}

/// Who opens a run to read a few entries of it has looked into it, whether or not it has any of these keys.
#[test]
fn short_ranges_pay_for_each_run_that_they_open() {
    let case = Case::new();
    case.change(b"second");
    case.e.sim_flush(&case.t).unwrap();
    assert_eq!((case.runs(), case.merges()), (2, false), "too few to be merged");
    case.time.pass(READ_REST);
    let bytes = case.run_bytes();
    let mut reads = 0;
    while !case.merges() {
        // Not one that was changed.
        assert_eq!(case.read_few(reads % 60 + 1, 3), 3);
        reads += 1;
        assert!(reads < 100_000, "never merged");
    }
    assert_eq!((case.runs(), case.counters.get(Counter::MergesForReads)), (1, 1));
    let least = bytes.max(TOLD_FIRST * LOOK_BYTES / 2);
    assert!((bytes..3 * least).contains(&(reads * LOOK_BYTES)), "{bytes} bytes were merged for {reads} reads");
    for _ in 0..2 * reads {
        case.read_few(1, 3);
    }
    assert!(!case.merges());
}

/// A view that needs the older versions keeps them, in one run with the newer ones: nothing is merged again for that.
#[test]
fn merging_for_readers_ends_under_an_old_view() {
    let case = Case::new();
    let mut old = case.e.session();
    begin(&mut old);
    old.take_view();
    case.change(b"second");
    case.e.sim_flush(&case.t).unwrap();
    case.time.pass(READ_REST);
    reads_until_merged(&case, || {});
    assert_eq!(case.runs(), 1);
    for _ in 0..200 {
        case.read(CHANGED, b"second");
        assert!(!case.merges());
    }
    assert_eq!(old.sim_entries(&case.t, 0, &[]).unwrap().iter().filter(|entry| entry.2 == b"second").count(), 0);
}

#[test]
fn what_is_read_beside_runs_is_flushed_once_nobody_writes() {
    let case = Case::new();
    case.change(b"second");
    let bytes = case.t.trees().keys[0].snapshot().in_memory().flushable_bytes;
    let reads = bytes / (CHANGED * LOOK_BYTES) + 1;
    let rounds = || {
        case.e.sim_round().unwrap();
        case.time.pass(READ_REST / 2);
    };
    // Nobody reads it: it is too little to be flushed.
    (0..100).for_each(|_| rounds());
    assert_eq!(case.runs(), 1);
    // Somebody writes.
    for _ in 0..2 * reads {
        case.read(CHANGED, b"second");
        case.write(std::iter::once(1), b"first");
        rounds();
    }
    assert_eq!(case.runs(), 1);
    rounds();
    rounds();
    assert_eq!(case.runs(), 2, "flushed, as looks have paid for it");
    assert!(case.t.trees().keys[0].snapshot().active.is_empty());
    // What was paid is forgotten: the next pays anew.
    case.change(b"third");
    (0..100).for_each(|_| rounds());
    assert_eq!(case.runs(), 2);
    (0..2 * reads).for_each(|_| case.read(CHANGED, b"third"));
    (0..3).for_each(|_| rounds());
    assert_eq!(case.runs(), 3);
    assert!(case.time.now() > Duration::from_secs(100));
}
