//! Many committers at once: counts of syncs, and everything acknowledged is there.

#![allow(clippy::unwrap_used)]

mod common;

use common::{disk, frames, open, small, within_two_minutes, SetWhenDropped, Watch};
use esker_base::{global_total, Counter};
use esker_format::Lsn;
use esker_wal::{WalError, WalOptions};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Mutex;
use std::thread;

#[test]
fn groups_share_syncs_and_lose_nothing() {
    within_two_minutes(commit_in_groups);
}

fn commit_in_groups() {
    let watch = Watch::new(disk(1));
    let options = WalOptions { segment_bytes: 256 << 10, ..WalOptions::default() };
    let (wal, _) = open(&watch, options, Lsn(1)).unwrap();
    let (threads, commits) = (8u64, 300u64);
    let before = watch.counts().1;
    let done = AtomicBool::new(false);
    thread::scope(|s| {
        let background = s.spawn(|| {
            while !done.load(Ordering::Acquire) {
                wal.prepare_segments().unwrap();
                thread::yield_now();
            }
        });
        let committers: Vec<_> = (0..threads)
            .map(|t| {
                let wal = &wal;
                s.spawn(move || {
                    for i in 0..commits {
                        let payload = (t * commits + i).to_le_bytes().repeat(1 + (i % 40) as usize);
                        let at = if i % 2 == 0 {
                            wal.append(&payload).unwrap()
                        } else {
                            let credit = wal.reserve_commit(payload.len()).unwrap();
                            wal.append_reserved(credit, &payload)
                        };
                        if i % 7 == 0 {
                            wal.write_out().unwrap();
                        }
                        wal.wait_durable(at.end).unwrap();
                        assert!(wal.durable_lsn() >= at.end);
                    }
                })
            })
            .collect();
        {
            let _ends_background = SetWhenDropped(&done);
            for c in committers {
                c.join().unwrap();
            }
        }
        background.join().unwrap();
    });
    let syncs = watch.counts().1 - before;
    let segments = wal.stats().segments as u64;
    assert!(syncs <= threads * commits + segments, "{syncs} syncs");
    let found = frames(&watch.disk.after_power_cut(1), Lsn(1)).unwrap();
    let numbers: BTreeSet<u64> = found.iter().map(|f| u64::from_le_bytes(f.1[..8].try_into().unwrap())).collect();
    assert_eq!((found.len() as u64, numbers.len() as u64), (threads * commits, threads * commits));
}

/// Who does not commit is waited for by nobody.
#[test]
fn others_are_not_expected() {
    let watch = Watch::new(disk(1));
    let (wal, _) = open(&watch, WalOptions::default(), Lsn(1)).unwrap();
    let before = [Counter::WalSyncRequests, Counter::WalSyncs, Counter::WalSyncsCovered].map(global_total);
    thread::scope(|s| {
        s.spawn(|| {
            for i in 0..50u8 {
                let at = wal.append(&[i]).unwrap();
                wal.wait_durable(at.end).unwrap();
                wal.wait_durable(at.end).unwrap();
            }
        });
    });
    let after = [Counter::WalSyncRequests, Counter::WalSyncs, Counter::WalSyncsCovered].map(global_total);
    // Other tests count, too.
    assert!(after[0] - before[0] >= 100 && after[1] - before[1] >= 50 && after[2] - before[2] >= 50);
    assert_eq!(watch.counts().1, 50);
}

/// The power goes while many commit: each finds out, and what was acknowledged to any of them is there.
#[test]
fn power_cut_among_many() {
    within_two_minutes(lose_power);
}

fn lose_power() {
    for cut in [20, 35, 50, 77, 100, 150, 300] {
        let watch = Watch::new(disk(cut));
        let (wal, _) = open(&watch, small(), Lsn(1)).unwrap();
        watch.disk.power_cut_at(watch.disk.op_count() + cut);
        let acknowledged = Mutex::new(BTreeSet::new());
        thread::scope(|s| {
            for t in 0..4u64 {
                let (wal, acknowledged) = (&wal, &acknowledged);
                s.spawn(move || {
                    for i in 0.. {
                        let number = t << 32 | i;
                        let committed = wal.append(&number.to_le_bytes()).and_then(|at| wal.wait_durable(at.end));
                        match committed {
                            Ok(()) => drop(acknowledged.lock().unwrap().insert(number)),
                            Err(WalError::Poisoned(_) | WalError::Io(_)) => break,
                            Err(e) => panic!("{e}"),
                        }
                    }
                });
            }
        });
        assert!(wal.poisoned().is_some());
        let found = frames(&watch.disk.after_power_cut(cut), Lsn(1)).unwrap();
        let found: BTreeSet<u64> = found.iter().map(|f| u64::from_le_bytes(f.1[..].try_into().unwrap())).collect();
        assert!(acknowledged.into_inner().unwrap().is_subset(&found));
    }
}

/// A buffer much smaller than what is appended: appends wait for writes, nothing is lost or out of order.
#[test]
fn back_pressure_keeps_order() {
    within_two_minutes(append_more_than_fits);
}

fn append_more_than_fits() {
    let watch = Watch::new(disk(1));
    let options = WalOptions { buffer_bytes: 8 << 10, segment_bytes: 128 << 10, ..WalOptions::default() };
    let (wal, _) = open(&watch, options, Lsn(1)).unwrap();
    let appended = Mutex::new(Vec::new());
    thread::scope(|s| {
        for t in 0..4u8 {
            let (wal, appended) = (&wal, &appended);
            s.spawn(move || {
                for i in 0..200usize {
                    let payload = vec![t; i * 37 % 3000];
                    let at = wal.append(&payload).unwrap();
                    appended.lock().unwrap().push((at.lsn, payload));
                }
            });
        }
    });
    wal.sync_all().unwrap();
    let mut appended = appended.into_inner().unwrap();
    appended.sort();
    assert_eq!(frames(&watch.disk, Lsn(1)).unwrap(), appended);
}
