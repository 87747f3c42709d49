//! Power cuts and faults at every operation: what was acknowledged is replayed, in order, and nothing else but a prefix
//! of what was appended.

#![allow(clippy::unwrap_used)]

mod common;

use common::{disk, frames, open, random, small, small_by, within_two_minutes, Frames, Watch, DIR};
use esker_format::Lsn;
use esker_io::{Disk, IoKind, SimDisk};
use esker_wal::{Opening, Wal, WalError, WalOptions};
use std::path::Path;
use std::sync::Arc;

/// What a life did before it ended.
#[derive(Default, Clone)]
struct Life {
    /// The log's content from `from` on if everything appended arrives.
    appended: Frames,
    /// Up to here it was acknowledged.
    durable: Lsn,
    /// What the manifest would say.
    from: Lsn,
    error: Option<WalError>,
}

/// One life on `disk`, from an opened log to the first error or the end of the script. A full disk is no end.
fn live(disk: &SimDisk, before: &Life, seed: u64, steps: u64) -> Life {
    let mut life = before.clone();
    life.error = step_by_step(disk, &mut life, seed, steps).err();
    life
}

fn step_by_step(disk: &SimDisk, life: &mut Life, mut seed: u64, steps: u64) -> Result<(), WalError> {
    let watch = Watch::new(disk.clone());
    let (wal, found) = open(&watch, small_by(seed), life.from)?;
    check(life, &found);
    life.appended = found;
    // Replayed is durable.
    life.durable = wal.durable_lsn();
    let full_is_fine = |r: Result<(), WalError>| match r {
        Err(WalError::DiskFull(_)) if wal.poisoned().is_none() => Ok(()),
        r => r,
    };
    for step in 0..steps {
        let bytes = match random(&mut seed, 8) {
            0 => random(&mut seed, 30_000),
            1 => 4072,
            _ => random(&mut seed, 700),
        };
        let payload = vec![step as u8; bytes as usize];
        let appended = match random(&mut seed, 5) {
            0 => wal.reserve_commit(bytes as usize).map(|credit| wal.append_reserved(credit, &payload)),
            _ => wal.append(&payload),
        };
        match appended {
            Ok(at) => life.appended.push((at.lsn, payload)),
            Err(WalError::DiskFull(_)) if wal.poisoned().is_none() => {}
            Err(e) => return Err(e),
        }
        let end = wal.end_lsn();
        match random(&mut seed, 10) {
            0..=4 => wal.wait_durable(end)?,
            5 => wal.write_out()?,
            6 => full_is_fine(wal.prepare_segments())?,
            7 => {
                // A checkpoint: the manifest is durable before the log is told.
                wal.sync_all()?;
                life.durable = end;
                let keep = random(&mut seed, life.appended.len() as u64) as usize;
                life.from = life.appended.get(keep).map_or(end, |f| f.0);
                life.appended.drain(..keep);
                full_is_fine(wal.recycle(life.from))?;
            }
            _ => {}
        }
        life.durable = life.durable.max(wal.durable_lsn().min(end));
    }
    Ok(())
}

/// `found` is a prefix of what was appended and holds all that was acknowledged.
fn check(life: &Life, found: &Frames) {
    assert!(found.len() <= life.appended.len(), "{} frames of {}", found.len(), life.appended.len());
    for (f, a) in found.iter().zip(&life.appended) {
        assert_eq!((f.0, f.1.len()), (a.0, a.1.len()));
        assert_eq!(f.1, a.1);
    }
    let acknowledged = acknowledged(life);
    assert!(found.len() >= acknowledged, "{} frames, {acknowledged} acknowledged", found.len());
}

/// Frames that end before the durable position: a long one may have begun before it.
fn acknowledged(life: &Life) -> usize {
    life.appended.iter().filter(|f| f.0 .0 + (24 + f.1.len() as u64).next_multiple_of(8) <= life.durable.0).count()
}

fn first_life() -> Life {
    Life { from: Lsn(1), ..Life::default() }
}

#[test]
fn power_cut_at_every_operation() {
    within_two_minutes(|| {
        for seed in 0..6 {
            let whole = disk(seed);
            let start = whole.op_count();
            let done = live(&whole, &first_life(), seed, 40);
            assert!(done.error.is_none(), "{:?}", done.error);
            let operations = whole.op_count() - start;
            assert!(operations > 100);
            for cut in 1..=operations {
                let disk = disk(seed);
                disk.power_cut_at(start + cut);
                let life = live(&disk, &first_life(), seed, 40);
                assert!(disk.is_power_cut());
                for outcome in 0..4 {
                    let after = disk.after_power_cut(cut * 10 + outcome);
                    // A second life on top, cut at some place, and a third that must find everything.
                    let planned = after.op_count() + 1 + random(&mut (cut + outcome), 60);
                    after.power_cut_at(planned);
                    let second = live(&after, &life, cut * 100 + outcome, 15);
                    // Operations count from 1: no cut any more.
                    after.power_cut_at(0);
                    let last = if after.is_power_cut() { after.after_power_cut(outcome) } else { after };
                    let third = live(&last, &second, cut + outcome, 3);
                    assert!(third.error.is_none(), "seed {seed} cut {cut} outcome {outcome}: {:?}", third.error);
                }
            }
        }
    });
}

#[test]
fn every_operation_fails_once() {
    within_two_minutes(|| {
        for kind in [IoKind::Failed, IoKind::DiskFull] {
            let whole = disk(5);
            let start = whole.op_count();
            assert!(live(&whole, &first_life(), 5, 40).error.is_none());
            let operations = whole.op_count() - start;
            for fault in 1..=operations {
                let disk = disk(5);
                disk.fail_once(start + fault, kind);
                let life = live(&disk, &first_life(), 5, 40);
                if let Some(error) = &life.error {
                    assert!(!matches!(error, WalError::Damage { .. } | WalError::Missing { .. }), "{error}");
                }
                for outcome in 0..3 {
                    let after = disk.after_power_cut(outcome);
                    let next = live(&after, &life, fault, 5);
                    assert!(next.error.is_none(), "fault {fault}: {:?}", next.error);
                }
                disk.crash();
                let next = live(&disk, &life, fault, 5);
                assert!(next.error.is_none(), "fault {fault}, process killed: {:?}", next.error);
            }
        }
    });
}

#[test]
fn a_small_disk_is_never_fatal() {
    within_two_minutes(|| {
        for pages in 8..40 {
            let disk = disk(pages);
            disk.capacity(Some(pages * 4096));
            let life = live(&disk, &first_life(), pages, 60);
            match &life.error {
                None | Some(WalError::DiskFull(_)) => {}
                Some(e) => panic!("{pages} pages: {e}"),
            }
            for outcome in 0..4 {
                let after = disk.after_power_cut(outcome);
                after.capacity(None);
                assert!(live(&after, &life, pages, 5).error.is_none());
            }
        }
    });
}

/// A read that fails is an error, never a shorter log.
#[test]
fn reads_that_fail_are_errors() {
    within_two_minutes(|| {
        let disk = disk(9);
        let life = live(&disk, &first_life(), 9, 40);
        disk.crash();
        let before = disk.read_count();
        let found = frames(&disk, life.from).unwrap();
        check(&life, &found);
        for read in 1..=disk.read_count() - before {
            disk.fail_read_once(disk.read_count() + read, IoKind::Failed);
            assert!(matches!(frames(&disk, life.from), Err(WalError::Io(_))), "read {read}");
        }
    });
}

/// The tests above find a disk that lies.
#[test]
fn a_lying_disk_is_found_out() {
    within_two_minutes(|| {
        let lost = (0..20).any(|seed| {
            let disk = disk(seed);
            disk.lie_about_sync(true);
            let life = live(&disk, &first_life(), seed, 20);
            let after = disk.after_power_cut(seed);
            frames(&after, life.from).map_or(true, |found| found.len() < acknowledged(&life))
        });
        assert!(lost);
    });
}

/// A log of which nothing is needed any more is recycled, the process is killed at each operation of that, the next one at
/// each operation of its opening, and then the power goes at each operation of another opening: it opens again, and goes on.
/// What the replay begins at may be the first byte of a segment in which nothing stands yet, and a name that a killed
/// process gave may not be durable.
#[test]
fn whatever_an_opening_was_cut_at_the_next_one_opens() {
    let (mut at_a_start, mut recycled) = (0, 0);
    for frames in 1..=12 {
        for killed_at in 1..12 {
            let watch = Watch::new(disk(frames));
            let (wal, _) = open(&watch, small(), Lsn(1)).unwrap();
            for _ in 0..frames {
                wal.wait_durable(wal.append(&[7; 100]).unwrap().end).unwrap();
            }
            wal.prepare_segments().unwrap();
            let from = wal.end_lsn();
            watch.disk.power_cut_at(watch.disk.op_count() + killed_at);
            let done = wal.recycle(from).is_ok();
            at_a_start += u64::from(done && wal.stats().first == from);
            recycled += u64::from(!done);
            drop(wal);
            let case = format!("{frames} frames, killed at {killed_at}");
            cut_at_each_operation(&watch.disk.after_kill(), from, 0, true, &case);
            if done {
                break;
            }
        }
    }
    assert!(at_a_start > 0 && recycled > 5, "{at_a_start} logs began where a segment does, {recycled} kills");
}

/// The same of a log whose last frame begins in one segment, goes on in the next and is torn: the next one goes, and what is
/// left of the frame does not say that a segment is missing.
#[test]
fn an_opening_that_was_cut_does_not_miss_what_it_has_taken_away() {
    let mut torn = 0;
    for bytes in (1000..9000).step_by(700) {
        let watch = Watch::new(disk(bytes));
        let (wal, _) = open(&watch, small(), Lsn(1)).unwrap();
        let mut acknowledged = 0;
        loop {
            wal.append(&vec![7; bytes as usize]).unwrap();
            if wal.stats().segments == 2 {
                break;
            }
            wal.sync_all().unwrap();
            acknowledged += 1;
        }
        // Behind the frame lies one that may survive it: no proof that it was durable.
        wal.append(&[9; 40]).unwrap();
        wal.write_out().unwrap();
        drop(wal);
        for seed in 0..6 {
            let after = watch.disk.after_power_cut(seed);
            let (wal, found) = open(&Watch::new(after.snapshot()), small(), Lsn(1)).unwrap();
            if found.len() > acknowledged || !wal.replayed().torn {
                continue;
            }
            torn += 1;
            let case = format!("{acknowledged} frames of {bytes}, seed {seed}");
            cut_at_each_operation(&after, Lsn(1), acknowledged, torn < 3, &case);
        }
    }
    assert!(torn > 8, "{torn} torn frames");
}

/// The same of a frame that begins where a segment does, and is longer: of that segment nothing else is kept.
#[test]
fn an_opening_that_was_cut_takes_a_frame_back_that_began_a_segment() {
    let fill = |wal: &Wal, most: usize| {
        let mut frames = 0;
        while frames < most && wal.stats().segments < 2 {
            wal.append(&[7; 100]).unwrap();
            wal.sync_all().unwrap();
            frames += 1;
        }
        frames
    };
    let fresh = || Watch::new(disk(7));
    // With the last one the segment is full, and another is at hand.
    let fitting = fill(&open(&fresh(), small(), Lsn(1)).unwrap().0, usize::MAX);
    let watch = fresh();
    let (wal, _) = open(&watch, small(), Lsn(1)).unwrap();
    assert_eq!(fill(&wal, fitting), fitting);
    wal.append(&[9; 40_000]).unwrap();
    assert!(wal.stats().segments > 2, "it is longer than a segment");
    wal.append(&[9; 40]).unwrap();
    wal.write_out().unwrap();
    drop(wal);
    let mut torn = 0;
    for seed in 0..12 {
        let after = watch.disk.after_power_cut(seed);
        let (wal, found) = open(&Watch::new(after.snapshot()), small(), Lsn(1)).unwrap();
        if found.len() == fitting && wal.replayed().torn {
            torn += 1;
            cut_at_each_operation(&after, Lsn(1), fitting, torn < 3, &format!("seed {seed}"));
        }
    }
    assert!(torn > 1, "{torn} torn frames");
}

/// A disk without a byte left, and a log that had given out so many credits: an opening has room for as many, by what lies behind the
/// log's end, and by the reserve if that is not enough. A frame that was begun at the end, and would have ended before what is
/// taken from there, does not miss it, whenever the power goes.
#[test]
fn what_was_set_aside_is_there_again_on_a_full_disk() {
    const CREDITS: usize = 40;
    let (mut torn, mut cuts, mut by_the_reserve) = (0, 0, 0);
    for seed in 0..16 {
        let options =
            WalOptions { segment_bytes: if seed % 2 == 0 { 256 << 10 } else { 192 << 10 }, create: false, ..small() };
        let watch = Watch::new(disk(seed));
        let (wal, _) = open(&watch, WalOptions { create: true, ..options.clone() }, Lsn(1)).unwrap();
        wal.append(&[1; 100]).unwrap();
        wal.sync_all().unwrap();
        wal.keep_reserve().unwrap();
        watch.disk.capacity(Some(watch.disk.used_bytes()));
        let credits: Vec<_> = (0..CREDITS).map(|_| wal.reserve_commit(32).unwrap()).collect();
        assert_eq!(wal.stats().segments, 1);
        // It begins within a sector.
        wal.append(&[8; 40]).unwrap();
        wal.append(&[9; 9000]).unwrap();
        wal.write_out().unwrap();
        drop((credits, wal));
        let after = watch.disk.after_power_cut(seed);
        let begin = |disk: &SimDisk| {
            let (watch, mut frames) = (Watch::new(disk.clone()), 0);
            let mut count = |_, _: &[u8]| {
                frames += 1;
                Ok(())
            };
            let replayed = Opening::replay::<WalError>(
                Arc::new(watch),
                DIR.as_ref(),
                options.clone(),
                Lsn(1),
                &mut count,
                &mut |_, _| {},
            );
            let wal = replayed?.begin::<WalError>((CREDITS, 32), &mut || Ok(()))?;
            Ok::<_, WalError>((wal, frames))
        };
        for operation in 1.. {
            let disk = after.snapshot();
            disk.power_cut_at(disk.op_count() + operation);
            let done = begin(&disk).map(|(wal, frames)| torn += u64::from(wal.replayed().torn && frames == 2)).is_ok();
            cuts += u64::from(!done);
            let case = format!("seed {seed}, cut at {operation}");
            let disk = if done { disk.after_kill() } else { disk.after_power_cut(seed + operation) };
            let (wal, frames) = begin(&disk).unwrap_or_else(|e| panic!("{case}: {e}"));
            assert!((1..=3).contains(&frames), "{case}: {frames} frames");
            let credits = (0..CREDITS).map(|_| wal.reserve_commit(32)).collect::<Result<Vec<_>, _>>();
            credits.unwrap_or_else(|e| panic!("{case}: {e}"));
            by_the_reserve += u64::from(!disk.exists(&Path::new(DIR).join("reserve.spare")).unwrap());
            if done {
                break;
            }
        }
    }
    assert!(torn > 3 && cuts > 100 && by_the_reserve > 50, "{torn} torn, {cuts} cut, {by_the_reserve} by the reserve");
}

/// `there`: how many frames are.
fn cut_at_each_operation(killed: &SimDisk, from: Lsn, there: usize, once_more: bool, case: &str) {
    let options = || WalOptions { create: false, ..small() };
    let whole = Watch::new(killed.snapshot());
    let begin = whole.disk.op_count();
    open(&whole, options(), from).unwrap();
    let operations = whole.disk.op_count() - begin;
    assert!(operations > 3, "an opening of {operations} operations");
    for operation in 1..=operations + 1 {
        let cut = Watch::new(killed.snapshot());
        cut.disk.power_cut_at(cut.disk.op_count() + operation);
        let _ = open(&cut, options(), from);
        if once_more {
            cut_at_each_operation(&cut.disk.after_kill(), from, there, false, &format!("{case}, and at {operation}"));
        }
        let after = (0..6).map(|seed| cut.disk.after_power_cut(seed)).chain([cut.disk.after_kill()]);
        for disk in after.map(Watch::new) {
            let (wal, found) = open(&disk, options(), from)
                .unwrap_or_else(|e| panic!("{case}, from {from}, power cut at operation {operation}: {e}"));
            assert_eq!(found.len(), there);
            wal.wait_durable(wal.append(&[8; 100]).unwrap().end).unwrap();
            drop(wal);
            assert_eq!(open(&disk, options(), from).unwrap().1.len(), there + 1);
        }
    }
}
