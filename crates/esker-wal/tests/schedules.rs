//! The log under shuttle: the crate's own sources, built on locks and atomics whose scheduler tries one interleaving of
//! threads after the other. A failure prints the schedule that replays it; threads that all wait are a failure, too.

#![allow(clippy::unwrap_used, dead_code, missing_docs)]

#[path = "../src/buffer.rs"]
mod buffer;
#[path = "../src/chain.rs"]
mod chain;
mod common;
#[path = "../src/error.rs"]
mod error;
#[path = "../src/group.rs"]
mod group;
#[path = "schedules/buffer.rs"]
mod log_buffer;
#[path = "../src/measure.rs"]
mod measure;
#[path = "../src/options.rs"]
mod options;
#[path = "../src/pace.rs"]
mod pace;
#[path = "../src/replay.rs"]
mod replay;
#[path = "../src/seal.rs"]
mod seal;
#[path = "../src/segment.rs"]
mod segment;
#[path = "common/shuttle_sync.rs"]
mod sync;
#[path = "../src/tail.rs"]
mod tail;
#[path = "../src/trial.rs"]
mod trial;
#[path = "../src/wal.rs"]
mod wal;
#[path = "../src/writer.rs"]
mod writer;

pub(crate) use error::{Result, WalError};
pub(crate) use measure::{frame_space, sector_up, FRAME_ALIGN, SECTOR_BYTES};
pub(crate) use options::{Committer, FlushMode, WalOptions};

use common::{disk, frames, Watch, DIR};
use esker_format::Lsn;
use esker_io::{IoKind, SimDisk, SyncMethod};
use shuttle::rand::{thread_rng, Rng};
use shuttle::thread;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use wal::Wal;

/// Schedules for each test: a few seconds in all.
const SCHEDULES: usize = 1500;

fn schedules(test: impl Fn() + Send + Sync + Clone + 'static) {
    let random = test.clone();
    shuttle::check_random(random, SCHEDULES);
    // Few switches, at unlikely places.
    shuttle::check_pct(test, SCHEDULES, 3);
}

/// A log on a disk at whose writes and syncs others may run.
fn log(options: WalOptions) -> (SimDisk, Wal) {
    let mut watch = Watch::new(disk(thread_rng().gen()));
    watch.pause = Arc::new(thread::yield_now);
    let sim = watch.disk.clone();
    let nothing = &mut |_: Lsn, _: &[u8]| Ok::<_, WalError>(());
    let wal = Wal::open(Arc::new(watch), Path::new(DIR), options, Lsn(1), nothing, &mut |_, _| {}).unwrap();
    (sim, wal)
}

fn small() -> WalOptions {
    let method = SyncMethod::ALL[thread_rng().gen_range(0..3)];
    WalOptions {
        segment_bytes: 5 * SECTOR_BYTES,
        buffer_bytes: 16 << 10,
        sync_method: Some(method),
        ..WalOptions::default()
    }
}

/// Would this commit be there if the power went now?
fn assert_durable(sim: &SimDisk, payload: &[u8]) {
    let after = sim.after_power_cut(thread_rng().gen());
    assert!(frames(&after, Lsn(1)).unwrap().iter().any(|f| f.1 == payload), "an acknowledged commit is lost");
}

/// One commit, by one way or the other; whether it was acknowledged.
fn commit(sim: &SimDisk, wal: &Wal, payload: &[u8], reserved: bool) -> Result<()> {
    let appended = match reserved {
        true => wal.reserve_commit(payload.len()).map(|credit| wal.append_reserved(credit, payload)),
        false => wal.append(payload),
    };
    let at = appended?;
    // Whom a leader expects, and whether he gathers, is anybody's guess here.
    let who = match reserved {
        true => Committer::Prepares,
        false => Committer::Commits,
    };
    let done = wal.finish(FlushMode::EveryCommit, who, at.end);
    wal.ended(who);
    if done.is_ok() {
        assert!(wal.durable_lsn() >= at.end);
        assert_durable(sim, payload);
    }
    done
}

/// Everybody is told once everything is durable, by whoever led; nobody sleeps on.
#[test]
fn groups_acknowledge_what_is_durable() {
    schedules(|| {
        let (sim, wal) = log(small());
        let committers: Vec<_> = (0..3u8)
            .map(|n| {
                let (sim, wal) = (sim.clone(), wal.clone());
                thread::spawn(move || {
                    for step in 0..2 {
                        commit(&sim, &wal, &[n, step], n == 0).unwrap();
                    }
                })
            })
            .collect();
        wal.prepare_segments().unwrap();
        committers.into_iter().for_each(|c| c.join().unwrap());
        assert_eq!(frames(&sim, Lsn(1)).unwrap().len(), 6);
    });
}

/// Somebody else stops the log: whoever waits is told, and nothing is believed that is not so.
#[test]
fn poison_reaches_everybody() {
    schedules(|| {
        let (sim, wal) = log(small());
        let credit = wal.reserve_commit(1).unwrap();
        let committers: Vec<_> = (0..2u8)
            .map(|n| {
                let (sim, wal) = (sim.clone(), wal.clone());
                thread::spawn(move || {
                    if let Err(e) = commit(&sim, &wal, &[n], n == 0) {
                        assert!(matches!(e, WalError::Poisoned(_)), "{e}");
                    }
                })
            })
            .collect();
        let stopper = thread::spawn({
            let wal = wal.clone();
            move || wal.poison("stopped")
        });
        // A decision that cannot be refused any more.
        let at = wal.append_reserved(credit, &[9]);
        match wal.wait_durable(at.end) {
            Ok(()) => assert_durable(&sim, &[9]),
            Err(e) => assert!(matches!(e, WalError::Poisoned(_)), "{e}"),
        }
        stopper.join().unwrap();
        committers.into_iter().for_each(|c| c.join().unwrap());
        assert_eq!(wal.poisoned().as_deref(), Some("stopped"));
        let (operations, written) = (sim.op_count(), wal.stats().written);
        assert!(wal.append(b"more").is_err() && wal.write_out().is_err());
        let _ = wal.sync_all();
        assert_eq!((sim.op_count(), wal.stats().written), (operations, written));
    });
}

/// A write or a sync of the group fails: its leader and all who follow are told.
#[test]
fn a_failed_group_is_acknowledged_to_nobody() {
    schedules(|| {
        let (sim, wal) = log(small());
        let acknowledged = Arc::new(AtomicU64::new(0));
        sim.fail_once(sim.op_count() + thread_rng().gen_range(1..5), IoKind::Failed);
        let committers: Vec<_> = (0..3u8)
            .map(|n| {
                let (sim, wal, acknowledged) = (sim.clone(), wal.clone(), acknowledged.clone());
                thread::spawn(move || match commit(&sim, &wal, &[n], n == 0) {
                    Ok(()) => drop(acknowledged.fetch_add(1, Ordering::SeqCst)),
                    Err(e) => assert!(matches!(e, WalError::Poisoned(_) | WalError::Io(_)), "{e}"),
                })
            })
            .collect();
        committers.into_iter().for_each(|c| c.join().unwrap());
        assert_eq!(wal.poisoned().is_some(), acknowledged.load(Ordering::SeqCst) < 3);
    });
}

/// Frames that fill the buffer, or do not fit into it, among small ones and credits: all go in, in the order of their
/// positions.
#[test]
fn long_frames_get_their_turn() {
    schedules(|| {
        let (sim, wal) = log(WalOptions { buffer_bytes: 600, segment_bytes: 1 << 16, ..small() });
        let credit = wal.reserve_commit(10).unwrap();
        let appenders: Vec<_> = [(4, 100), (4, 300), (1, 2000), (1, 3000)]
            .into_iter()
            .map(|(frames, bytes)| {
                let wal = wal.clone();
                let append = move || -> Vec<_> {
                    (0..frames).map(|_| (wal.append(&vec![1; bytes]).unwrap().lsn, bytes)).collect()
                };
                thread::spawn(append)
            })
            .collect();
        let mut all = vec![(wal.append_reserved(credit, &[1; 10]).lsn, 10)];
        appenders.into_iter().for_each(|a| all.extend(a.join().unwrap()));
        wal.sync_all().unwrap();
        all.sort();
        let found: Vec<_> = frames(&sim, Lsn(1)).unwrap().into_iter().map(|f| (f.0, f.1.len())).collect();
        assert_eq!(found, all);
    });
}
