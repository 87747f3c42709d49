//! The log's buffer while it is written: frames by every way, credits that are used and such that are not, syncs, writes
//! without one, segments that are made and recycled, all at once. Whatever a power cut leaves at any moment is the frames from
//! the recycled position on up to some end behind all that was acknowledged, without a gap and each with its own bytes.

use super::common::frames;
use super::wal::Wal;
use super::{log, schedules, small};
use crate::options::WalOptions;
use esker_format::Lsn;
use esker_io::SimDisk;
use shuttle::rand::{thread_rng, Rng};
use shuttle::thread;
use std::sync::{Arc, Mutex};

type Frames = Vec<(Lsn, Vec<u8>)>;

/// What was appended, and what of it was acknowledged; shuttle's threads take turns, so nobody waits for these locks.
#[derive(Default)]
struct Seen {
    appended: Mutex<Frames>,
    acknowledged: Mutex<Frames>,
    recycled: Mutex<Lsn>,
}

/// A payload that nobody else has.
fn payload(who: u8, step: u8) -> Vec<u8> {
    let bytes = [3, 40, 130, 700][thread_rng().gen_range(0..4)];
    (0..bytes).map(|at: u32| at as u8 ^ who ^ step.rotate_left(4)).chain([who, step]).collect()
}

fn append(sim: &SimDisk, wal: &Wal, seen: &Seen, who: u8, step: u8) {
    let payload = payload(who, step);
    let appended = match thread_rng().gen_range(0..3) {
        0 => {
            let credit = wal.reserve_commit(payload.len() + thread_rng().gen_range(0..300)).unwrap();
            thread::yield_now();
            Some(wal.append_reserved(credit, &payload))
        }
        1 => {
            // Set aside and not used.
            drop(wal.reserve_commit(payload.len()).unwrap());
            None
        }
        _ => None,
    };
    let appended = appended.unwrap_or_else(|| wal.append(&payload).unwrap());
    seen.appended.lock().unwrap().push((appended.lsn, payload.clone()));
    match thread_rng().gen_range(0..3) {
        0 => wal.write_out().unwrap(),
        1 => {}
        _ => {
            wal.wait_durable(appended.end).unwrap();
            seen.acknowledged.lock().unwrap().push((appended.lsn, payload));
            let (from, acknowledged, found) = cut(sim, seen);
            assert_kept(from, &acknowledged, &found);
        }
    }
}

/// What would be left if the power went now, and what must be.
fn cut(sim: &SimDisk, seen: &Seen) -> (Lsn, Frames, Frames) {
    // In this order, and nobody goes on in between.
    let acknowledged = seen.acknowledged.lock().unwrap().clone();
    let from = *seen.recycled.lock().unwrap();
    (from, acknowledged, frames(&sim.after_power_cut(thread_rng().gen()), from).unwrap())
}

fn assert_whole(seen: &Seen, (from, acknowledged, found): (Lsn, Frames, Frames)) {
    let mut all = seen.appended.lock().unwrap().clone();
    all.retain(|f| f.0 >= from);
    all.sort();
    assert!(
        found.len() <= all.len() && found == all[..found.len()],
        "from {from}: not a beginning of what was appended"
    );
    assert_kept(from, &acknowledged, &found);
}

fn assert_kept(from: Lsn, acknowledged: &Frames, found: &Frames) {
    let missing = acknowledged.iter().filter(|f| f.0 >= from && !found.contains(f)).count();
    assert_eq!(missing, 0, "from {from}: acknowledged frames are lost");
}

#[test]
fn what_is_appended_while_others_write() {
    schedules(|| {
        let options = WalOptions { buffer_bytes: 600, segment_bytes: 4 << 10, ..small() };
        let (sim, wal) = log(options);
        let seen = Arc::<Seen>::default();
        *seen.recycled.lock().unwrap() = Lsn(1);
        let appenders: Vec<_> = (0..3u8)
            .map(|who| {
                let (sim, wal, seen) = (sim.clone(), wal.clone(), seen.clone());
                thread::spawn(move || (0..3).for_each(|step| append(&sim, &wal, &seen, who, step)))
            })
            .collect();
        let keeper = thread::spawn({
            let (wal, seen) = (wal.clone(), seen.clone());
            move || {
                wal.prepare_segments().unwrap();
                let from = wal.durable_lsn();
                // Nothing before it is asked for from now on.
                *seen.recycled.lock().unwrap() = from;
                wal.recycle(from).unwrap();
            }
        });
        let cutter = thread::spawn({
            let (sim, seen) = (sim.clone(), seen.clone());
            move || {
                (0..thread_rng().gen_range(0..12)).for_each(|_| thread::yield_now());
                cut(&sim, &seen)
            }
        });
        appenders.into_iter().for_each(|a| a.join().unwrap());
        keeper.join().unwrap();
        assert_whole(&seen, cutter.join().unwrap());
        wal.sync_all().unwrap();
        let left = cut(&sim, &seen);
        let all = seen.appended.lock().unwrap().iter().filter(|f| f.0 >= left.0).count();
        assert_eq!(left.2.len(), all);
        assert_whole(&seen, left);
    });
}
