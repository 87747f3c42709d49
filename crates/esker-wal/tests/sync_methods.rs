//! How groups are made durable: the calls of each method, what each covers, and the choice among them when a log is opened.

#![allow(clippy::unwrap_used)]

mod common;

use common::{disk, frames, open, small, Watch};
use esker_base::{Counter, SessionCounters};
use esker_format::Lsn;
use esker_io::{IoKind, SyncMethod};
use esker_wal::{Clock, Committer, FlushMode, Wal, WalOptions};
use std::sync::Arc;
use std::time::Duration;

fn by(method: SyncMethod) -> WalOptions {
    WalOptions { sync_method: Some(method), segment_bytes: 1 << 20, ..WalOptions::default() }
}

/// Calls on segments: writes, those durable by themselves, device flushes.
fn calls(watch: &Watch) -> [u64; 3] {
    let seen = watch.seen.lock().unwrap();
    [seen.writes, seen.durable_writes, seen.syncs]
}

fn calls_of(watch: &Watch, work: impl FnOnce()) -> [u64; 3] {
    let before = calls(watch);
    work();
    let after = calls(watch);
    std::array::from_fn(|i| after[i] - before[i])
}

fn commit(wal: &Wal) {
    wal.wait_durable(wal.append(&[7; 200]).unwrap().end).unwrap();
}

fn write_out(wal: &Wal) {
    let end = wal.append(&[8; 200]).unwrap().end;
    wal.finish(FlushMode::WriteOnly, Committer::Commits, end).unwrap();
}

/// All that was acknowledged is there, wherever the power goes.
fn assert_durable(watch: &Watch, records: usize) {
    for seed in 0..20 {
        let found = frames(&watch.disk.after_power_cut(seed), Lsn(1)).unwrap();
        assert!(found.len() >= records, "{} of {records} records", found.len());
    }
}

#[test]
fn a_commit_is_one_device_flush_by_each_method() {
    for (method, durable) in SyncMethod::ALL.into_iter().zip([0, 100, 100]) {
        let watch = Watch::new(disk(1));
        let (wal, _) = open(&watch, by(method), Lsn(1)).unwrap();
        wal.prepare_segments().unwrap();
        let session = SessionCounters::new();
        let _bound = esker_base::counters::bind(&session);
        assert_eq!(calls_of(&watch, || (0..100).for_each(|_| commit(&wal))), [100, durable, 100], "{method}");
        let counters = [Counter::WritesWal, Counter::WritesWalDsync, Counter::WritesWalLinked, Counter::SyncsWal];
        let expected = match method {
            SyncMethod::Fdatasync => [100, 0, 0, 100],
            SyncMethod::Dsync => [100, 100, 0, 0],
            SyncMethod::Uring => [100, 0, 100, 0],
        };
        assert_eq!(counters.map(|counter| session.get(counter)), expected, "{method}");
        assert_eq!(wal.syncing().method, method);
        assert!(wal.syncing().found.is_none() && !wal.syncing().refused);
        assert_durable(&watch, 100);
    }
}

/// What was written before without a sync is covered by a sync and by no durable write: it needs one of its own, once.
#[test]
fn what_was_written_out_is_durable_with_the_next_commit() {
    for (method, after_write_out) in SyncMethod::ALL.into_iter().zip([[1, 0, 1], [1, 0, 1], [1, 1, 1]]) {
        let watch = Watch::new(disk(2));
        let (wal, _) = open(&watch, by(method), Lsn(1)).unwrap();
        wal.prepare_segments().unwrap();
        for round in 1..=5 {
            assert_eq!(calls_of(&watch, || (0..30).for_each(|_| write_out(&wal))), [30, 0, 0]);
            assert_eq!(calls_of(&watch, || commit(&wal)), after_write_out, "{method}");
            assert_durable(&watch, round * 32 - 1);
            let alone = if method == SyncMethod::Fdatasync { [1, 0, 1] } else { [1, 1, 1] };
            assert_eq!(calls_of(&watch, || commit(&wal)), alone, "{method}");
            assert_durable(&watch, round * 32);
        }
    }
}

/// A group that goes over segments: one write and one flush each, and each before the next is begun.
#[test]
fn a_group_over_several_segments_is_durable_in_each() {
    for method in SyncMethod::ALL {
        let watch = Watch::new(disk(3));
        let (wal, _) = open(&watch, WalOptions { sync_method: Some(method), ..small() }, Lsn(1)).unwrap();
        let seen = calls_of(&watch, || {
            let end = wal.append(&[1; 50_000]).unwrap().end;
            wal.wait_durable(end).unwrap();
        });
        assert_eq!((seen[0], seen[2]), (4, 4), "{method}");
        assert_eq!(seen[1], if method == SyncMethod::Fdatasync { 0 } else { 4 });
        assert_durable(&watch, 1);
        // The first of them has something that was only written.
        write_out(&wal);
        wal.wait_durable(wal.append(&[2; 50_000]).unwrap().end).unwrap();
        assert_durable(&watch, 3);
    }
}

/// Operations of the disk take time by what they are: microseconds of a sync after a write, a durable write, both linked.
fn slow(watch: &Watch, costs: [u64; 3]) -> Clock {
    let disk = watch.disk.clone();
    let state = std::sync::Mutex::new((disk.op_count(), Duration::ZERO));
    Clock(Arc::new(move || {
        let mut state = state.lock().unwrap();
        for done in
            disk.op_log().iter().filter(|done| done.number > state.0).map(|done| done.operation).collect::<Vec<_>>()
        {
            state.1 += Duration::from_micros(match done {
                "sync" => costs[0],
                "write durably" => costs[1],
                "write and sync" => costs[2],
                _ => 0,
            });
        }
        state.0 = disk.op_count();
        state.1
    }))
}

fn auto(watch: &Watch, costs: [u64; 3]) -> WalOptions {
    WalOptions { sync_method: None, clock: slow(watch, costs), ..small() }
}

#[test]
fn the_trial_takes_what_is_faster() {
    use SyncMethod::{Dsync, Fdatasync, Uring};
    for (costs, method) in
        [([100, 100, 100], Fdatasync), ([100, 95, 100], Fdatasync), ([100, 85, 100], Dsync), ([100, 85, 80], Uring)]
    {
        let watch = Watch::new(disk(4));
        let (wal, _) = open(&watch, auto(&watch, costs), Lsn(1)).unwrap();
        assert_eq!(wal.syncing().method, method, "{costs:?}");
        let found = wal.syncing().found.as_ref().unwrap();
        for (one, cost) in SyncMethod::ALL.into_iter().zip(costs) {
            assert!(found.contains(&format!("{one} {cost}.0 us ({cost}.0 to {cost}.0, 50 times)")), "{found}");
        }
        assert!(found.ends_with(&format!("{method} is taken")), "{found}");
        commit(&wal);
        assert_durable(&watch, 1);
        assert_eq!(calls(&watch)[1], u64::from(method != Fdatasync));
    }
}

/// It writes where no log is, within the file that becomes the next segment, and changes no size.
#[test]
fn the_trial_leaves_nothing_behind() {
    let tried = Watch::new(disk(5));
    let plain = Watch::new(disk(5));
    let before = tried.disk.op_count();
    drop(open(&tried, auto(&tried, [100; 3]), Lsn(1)).unwrap());
    drop(open(&plain, small(), Lsn(1)).unwrap());
    let log = tried.disk.op_log();
    let trial: Vec<_> =
        log.iter().filter(|op| op.number > before && op.path.extension().is_some_and(|e| e == "spare")).collect();
    assert!(trial.iter().filter(|op| op.operation == "write durably").count() == 51, "{trial:?}");
    let names = |watch: &Watch| esker_io::Disk::list(&watch.disk, std::path::Path::new(common::DIR)).unwrap();
    assert_eq!(names(&tried), names(&plain));
    // A log that goes on: what was there stays, on a spare as on a new file.
    let mut expected = Vec::new();
    for life in 0..6u8 {
        let (wal, found) = open(&tried, auto(&tried, [100, 85, 100]), Lsn(1)).unwrap();
        assert_eq!(found, expected);
        let at = wal.append(&[life; 3000]).unwrap();
        wal.wait_durable(at.end).unwrap();
        wal.prepare_segments().unwrap();
        expected.push((at.lsn, vec![life; 3000]));
        assert_eq!(frames(&tried.disk, Lsn(1)).unwrap(), expected);
    }
}

/// Half a second, and one write over it at most.
#[test]
fn the_trial_ends_in_time_on_a_slow_disk() {
    let watch = Watch::new(disk(6));
    let options = auto(&watch, [15_000, 10_000, 15_000]);
    let clock = options.clock.clone();
    let (wal, _) = open(&watch, options, Lsn(1)).unwrap();
    assert!((400..=540).contains(&clock().as_millis()), "{:?}", clock());
    assert_eq!(wal.syncing().method, SyncMethod::Dsync, "{:?}", wal.syncing());
    // So slow that there is no telling.
    let watch = Watch::new(disk(6));
    let (wal, _) = open(&watch, auto(&watch, [100_000, 10_000, 100_000]), Lsn(1)).unwrap();
    assert_eq!(wal.syncing().method, SyncMethod::Fdatasync);
    assert!(wal.syncing().found.as_ref().unwrap().contains("too few to tell"), "{:?}", wal.syncing());
}

#[test]
fn a_method_that_is_refused_gives_way() {
    for method in [SyncMethod::Dsync, SyncMethod::Uring] {
        let mut watch = Watch::new(disk(7));
        watch.refuses = vec![method];
        let (wal, _) = open(&watch, by(method), Lsn(1)).unwrap();
        let syncing = wal.syncing();
        assert_eq!((syncing.method, syncing.refused), (SyncMethod::Fdatasync, true));
        let found = syncing.found.as_ref().unwrap();
        assert!(
            found.starts_with(&format!("{method} is refused (")) && found.ends_with("fdatasync is taken"),
            "{found}"
        );
        commit(&wal);
        assert_durable(&watch, 1);
        drop(wal);
        // Nobody asked for it by name.
        let (wal, _) = open(&watch, auto(&watch, [100, 50, 60]), Lsn(1)).unwrap();
        assert!(
            !wal.syncing().refused && wal.syncing().method != method && wal.syncing().method != SyncMethod::Fdatasync
        );
        assert!(wal.syncing().found.as_ref().unwrap().contains(&format!("{method} is refused (")));
    }
}

/// The power goes, or the disk fails, at each operation of an opening that tries: the next one finds all that there was.
#[test]
fn an_opening_that_tries_may_end_anywhere() {
    let first = Watch::new(disk(8));
    let (wal, _) = open(&first, small(), Lsn(1)).unwrap();
    (0..5).for_each(|_| commit(&wal));
    drop(wal);
    let killed = first.disk.after_kill();
    let whole = Watch::new(killed.snapshot());
    let begin = whole.disk.op_count();
    open(&whole, auto(&whole, [100; 3]), Lsn(1)).unwrap();
    let operations = whole.disk.op_count() - begin;
    assert!(operations > 200, "{operations}");
    for operation in 1..=operations {
        let cut = Watch::new(killed.snapshot());
        cut.disk.power_cut_at(begin + operation);
        // The last one gives space back: that it fails is no error.
        assert_eq!(open(&cut, auto(&cut, [100; 3]), Lsn(1)).is_ok(), operation == operations);
        for after in [cut.disk.after_power_cut(operation), cut.disk.after_kill()].map(Watch::new) {
            assert_eq!(open(&after, auto(&after, [100; 3]), Lsn(1)).unwrap().1.len(), 5, "cut at {operation}");
        }
        let failing = Watch::new(killed.snapshot());
        failing.disk.fail_once(begin + operation, IoKind::Failed);
        if let Ok((wal, found)) = open(&failing, auto(&failing, [100; 3]), Lsn(1)) {
            assert_eq!(found.len(), 5);
            commit(&wal);
            assert_durable(&failing, 6);
        }
    }
}
