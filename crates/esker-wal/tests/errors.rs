//! Which errors pass and which end the log: every operation and every read of making, recycling and opening fails once,
//! with each kind.

#![allow(clippy::unwrap_used)]

mod common;

use common::{disk, frames, open, small, Frames, Watch, DIR};
use esker_format::Lsn;
use esker_io::{Disk, IoKind, SimDisk};
use esker_wal::{Wal, WalError, SECTOR_BYTES};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

const PASSING: [IoKind; 2] = [IoKind::DiskFull, IoKind::Resources];

/// What is done to a log that holds these frames.
type Work = dyn Fn(&Wal, &Frames) -> Result<(), WalError>;

/// A log of several segments that has spares, or none; all that it holds from the position on.
fn log(spares: bool) -> (Watch, Wal, Lsn, Frames) {
    let watch = Watch::new(disk(1));
    let (wal, _) = open(&watch, small(), Lsn(1)).unwrap();
    let mut all = Frames::new();
    for n in 0..20 {
        let at = wal.append(&[n; 4000]).unwrap();
        wal.wait_durable(at.end).unwrap();
        all.push((at.lsn, vec![n; 4000]));
    }
    let mut from = Lsn(1);
    if spares {
        from = all[12].0;
        wal.recycle(from).unwrap();
        all.drain(..12);
        assert!(wal.stats().spares > 1);
    }
    // The prepared segments are used up.
    while !wal.needs_segments() {
        let at = wal.append(&[0; 4000]).unwrap();
        wal.wait_durable(at.end).unwrap();
        all.push((at.lsn, vec![0; 4000]));
    }
    (watch, wal, from, all)
}

/// Operations and reads that `work` does on a fresh log.
fn steps(spares: bool, work: &Work) -> (u64, u64) {
    let (watch, wal, _, all) = log(spares);
    let before = (watch.disk.op_count(), watch.disk.read_count());
    work(&wal, &all).unwrap();
    (watch.disk.op_count() - before.0, watch.disk.read_count() - before.1)
}

/// Plans the fault of step number `step`: operations first, then reads.
fn plan(disk: &SimDisk, step: u64, operations: u64, kind: IoKind) {
    if step <= operations {
        disk.fail_once(disk.op_count() + step, kind);
    } else {
        disk.fail_read_once(disk.read_count() + step - operations, kind);
    }
}

/// What was done when the fault struck.
fn struck(disk: &SimDisk, operation: u64) -> &'static str {
    disk.op_log().iter().find(|o| o.number == operation).map_or("read", |o| o.operation)
}

/// The log takes more, and holds everything, now and after a power cut.
fn goes_on(watch: &Watch, wal: &Wal, from: Lsn, mut all: Frames) {
    for n in 0..10 {
        let at = wal.append(&[n; 3000]).unwrap();
        wal.wait_durable(at.end).unwrap();
        all.push((at.lsn, vec![n; 3000]));
    }
    assert_eq!(frames(&watch.disk, from).unwrap(), all);
    for outcome in 0..10 {
        let after = Watch::new(watch.disk.after_power_cut(outcome));
        assert_eq!(open(&after, small(), from).unwrap().1, all);
    }
}

/// One fault at each step of `work`. If it passes, then without a trace; if it does not, the log is poisoned.
fn each_step_fails_once(work: &Work) {
    for spares in [false, true] {
        let (operations, reads) = steps(spares, work);
        assert!(operations > 0);
        let used = {
            let (watch, wal, _, all) = log(spares);
            work(&wal, &all).unwrap();
            watch.disk.used_bytes()
        };
        for kind in [IoKind::DiskFull, IoKind::Resources, IoKind::Failed] {
            for step in 1..=operations + reads {
                let (watch, wal, from, all) = log(spares);
                let (before, first) = (watch.disk.used_bytes(), watch.disk.op_count());
                plan(&watch.disk, step, operations, kind);
                let result = work(&wal, &all);
                let what = if step <= operations { struck(&watch.disk, first + step) } else { "read" };
                let case = format!("spares {spares}, {kind:?} at step {step}, {what}: {result:?}");
                if what == "sync folder" && kind == IoKind::DiskFull || kind == IoKind::Failed {
                    assert!(result.is_err() && wal.poisoned().is_some(), "{case}");
                    continue;
                }
                assert!(PASSING.contains(&kind) && wal.poisoned().is_none(), "{case}");
                assert!(result.is_err_and(|e| e.is_passing()), "{case}");
                assert!(watch.disk.used_bytes() <= before, "{case}: something is left");
                work(&wal, &all).unwrap();
                assert!(watch.disk.used_bytes() <= used, "{case}: something was left");
                // The log knows of every file.
                let stats = wal.stats();
                let files = watch.disk.list(Path::new(DIR)).unwrap().len();
                assert_eq!(stats.segments + stats.spares, files, "{case}: {stats:?}");
                let from = from.max(Lsn(wal.stats().first.0));
                let all: Frames = all.into_iter().filter(|f| f.0 >= from).collect();
                let from = all[0].0;
                goes_on(&watch, &wal, from, all);
            }
        }
    }
}

#[test]
fn making_a_segment_fails_without_a_trace() {
    each_step_fails_once(&|wal, _| wal.prepare_segments());
}

#[test]
fn recycling_fails_and_is_made_good() {
    each_step_fails_once(&|wal, all| wal.recycle(all[all.len() - 2].0));
}

/// The same while the disk stays full, or handles stay away, for a while.
#[test]
fn appending_waits_out_what_lasts() {
    let (watch, wal, from, _) = log(false);
    let before = watch.disk.used_bytes();
    let refused = |kind: IoKind| {
        for _ in 0..5 {
            let full = (0..100).find_map(|_| wal.append(&[1; 4000]).err()).unwrap();
            assert!(full.is_passing(), "{full}");
            let said = match &full {
                WalError::DiskFull(e) | WalError::Io(e) => e.kind,
                e => panic!("{e}"),
            };
            assert_eq!(said, kind);
            assert!(wal.reserve_commit(4000).is_err_and(|e| e.is_passing()));
            assert!(wal.prepare_segments().is_err_and(|e| e.is_passing()));
            assert_eq!(watch.disk.used_bytes(), before);
        }
    };
    watch.disk.handle_limit(Some(watch.disk.open_handles()));
    refused(IoKind::Resources);
    watch.disk.handle_limit(None);
    watch.disk.capacity(Some(before));
    refused(IoKind::DiskFull);
    watch.disk.capacity(None);
    assert!(wal.poisoned().is_none());
    let end = wal.end_lsn();
    wal.sync_all().unwrap();
    let all = frames(&watch.disk, from).unwrap().into_iter().filter(|f| f.0 < end).collect::<Frames>();
    assert!(all.len() >= 20, "{}", all.len());
    goes_on(&watch, &wal, from, all);
}

#[test]
fn opening_fails_and_succeeds_the_next_time() {
    for spares in [false, true] {
        // What a process leaves that was killed: prepared segments, and frames that no sync covers.
        let killed = || {
            let (watch, wal, from, mut all) = log(spares);
            wal.prepare_segments().unwrap();
            let at = wal.append(&[7; 100]).unwrap();
            wal.write_out().unwrap();
            all.push((at.lsn, vec![7; 100]));
            watch.disk.crash();
            (Watch::new(watch.disk), from, all)
        };
        let (watch, from, _) = killed();
        let before = (watch.disk.op_count(), watch.disk.read_count());
        drop(open(&watch, small(), from).unwrap());
        let (operations, reads) = (watch.disk.op_count() - before.0, watch.disk.read_count() - before.1);
        for kind in [IoKind::DiskFull, IoKind::Resources, IoKind::ReadOnly, IoKind::Failed] {
            for step in 1..=operations + reads {
                let (watch, from, all) = killed();
                plan(&watch.disk, step, operations, kind);
                match open(&watch, small(), from) {
                    // Not all of it is needed.
                    Ok((wal, found)) => {
                        assert_eq!(found, all);
                        goes_on(&watch, &wal, from, all.clone());
                        continue;
                    }
                    Err(WalError::Io(e) | WalError::DiskFull(e)) => assert_eq!(e.kind, kind, "step {step}"),
                    Err(e) => panic!("{kind:?} at step {step}: {e}"),
                }
                let (wal, found) = open(&watch, small(), from).unwrap();
                assert_eq!(found, all, "{kind:?} at step {step}");
                goes_on(&watch, &wal, from, all);
            }
        }
    }
}

#[test]
fn spares_can_be_dropped_for_their_space() {
    let (watch, wal, from, all) = log(true);
    let (before, spares) = (watch.disk.used_bytes(), wal.stats().spares as u64);
    watch.disk.fail_once(watch.disk.op_count() + 2, IoKind::Failed);
    assert!(wal.drop_spares().is_err());
    assert_eq!((wal.stats().spares as u64, wal.poisoned()), (spares - 1, None));
    wal.drop_spares().unwrap();
    wal.drop_spares().unwrap();
    assert_eq!(wal.stats().spares, 0);
    assert_eq!(watch.disk.used_bytes(), before - spares * 5 * SECTOR_BYTES);
    goes_on(&watch, &wal, from, all);
}

/// It is written whole before it is a segment; where there is no space for that it goes, and the log is as it was.
#[test]
fn a_spare_that_shares_its_blocks_takes_space_of_its_own() {
    let (watch, wal, from, all) = log(true);
    let (before, spares) = (watch.disk.op_count(), wal.stats().spares);
    watch.shares.store(true, Ordering::Relaxed);
    watch.disk.fail_once(before + 1, IoKind::DiskFull);
    let refused = wal.prepare_segments();
    assert_eq!(struck(&watch.disk, before + 1), "write");
    assert!(matches!(refused, Err(WalError::DiskFull(_))), "{refused:?}");
    assert_eq!((wal.stats().spares, wal.poisoned()), (spares - 1, None));
    wal.prepare_segments().unwrap();
    assert!(wal.stats().spares < spares - 1, "no spare was used: {:?}", wal.stats());
    goes_on(&watch, &wal, from, all);
}

/// Of a spare nobody can tell whether it shares its blocks: it is written whole, and nothing stops by that.
#[test]
fn a_look_at_a_spare_that_fails_stops_nothing() {
    let (watch, wal, from, all) = log(true);
    watch.is_blind.store(true, Ordering::Relaxed);
    let before = watch.disk.op_count();
    wal.prepare_segments().unwrap();
    assert!(wal.poisoned().is_none());
    let ops = watch.disk.op_log().into_iter().filter(|op| op.number > before && op.operation == "write");
    let written: u64 = ops.filter_map(|op| op.bytes).sum();
    assert!(written >= small().segment_bytes, "{written} bytes");
    goes_on(&watch, &wal, from, all);
}

/// A new segment is made without a look for what an attempt before has left.
#[test]
fn making_a_segment_looks_for_nothing() {
    let (watch, wal, from, all) = log(false);
    let looks = Arc::new(AtomicU64::new(0));
    let counted = looks.clone();
    watch.disk.watch(Some(Arc::new(move |operation, _| {
        counted.fetch_add(u64::from(operation == "look for"), Ordering::Relaxed);
    })));
    wal.prepare_segments().unwrap();
    assert_eq!(looks.load(Ordering::Relaxed), 0);
    watch.disk.watch(None);
    goes_on(&watch, &wal, from, all);
}

/// A checkpoint that was told too much does not take away what is not durable yet.
#[test]
fn what_is_not_durable_is_not_recycled() {
    let watch = Watch::new(disk(1));
    let (wal, _) = open(&watch, small(), Lsn(1)).unwrap();
    let first = wal.append(&[1; 40_000]).unwrap();
    wal.write_out().unwrap();
    wal.recycle(first.end).unwrap();
    assert!(wal.stats().first <= first.lsn);
    assert_eq!(frames(&watch.disk, Lsn(1)).unwrap().len(), 1);
    wal.sync_all().unwrap();
    wal.recycle(first.end).unwrap();
    assert!(wal.stats().first > first.lsn);
}
