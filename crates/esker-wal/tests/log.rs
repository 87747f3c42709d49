//! The log on a disk that behaves: order, sizes, counts, recycling, full disks, failures.

#![allow(clippy::unwrap_used)]

mod common;

use common::{disk, frames, open, small, Watch, DIR};
use esker_format::frame::{frame_header, FRAME_HEADER_BYTES, SEGMENT_HEADER_BYTES};
use esker_format::Lsn;
use esker_io::{AccessHint, Disk, IoKind, OpenMode, SimDisk};
use esker_wal::{Committer, FlushMode, Opening, Wal, WalError, WalOptions, SECTOR_BYTES};
use std::path::Path;
use std::sync::{Arc, Mutex};

#[test]
fn what_was_appended_is_replayed_over_several_lives() {
    let watch = Watch::new(disk(1));
    let mut expected = Vec::new();
    let from = Lsn(100);
    for life in 0..4u8 {
        let (wal, found) = open(&watch, small(), from).unwrap();
        assert_eq!(found, expected);
        assert_eq!(wal.replayed().frames, expected.len() as u64);
        // Longer than a segment, too.
        for bytes in [0usize, 1, 100, 4000, 4072, 5000, 50_000] {
            let payload = vec![life; bytes];
            let at = wal.append(&payload).unwrap();
            assert_eq!(at.end.0 - at.lsn.0, (bytes as u64 + 24).next_multiple_of(8));
            expected.push((at.lsn, payload));
            if bytes % 3 == 0 {
                wal.wait_durable(at.end).unwrap();
                assert_eq!(wal.durable_lsn().0 % SECTOR_BYTES, 0);
            }
        }
        wal.sync_all().unwrap();
        assert_eq!(wal.durable_lsn(), wal.end_lsn());
        assert_eq!(frames(&watch.disk, from).unwrap(), expected);
    }
    // From every position that was ever given out.
    for i in 0..expected.len() {
        assert_eq!(frames(&watch.disk, expected[i].0).unwrap(), expected[i..]);
    }
}

#[test]
fn a_commit_is_one_write_and_one_sync_and_no_metadata() {
    let watch = Watch::new(disk(1));
    let (wal, _) = open(&watch, WalOptions { segment_bytes: 1 << 20, ..WalOptions::default() }, Lsn(1)).unwrap();
    wal.prepare_segments().unwrap();
    assert!(!wal.needs_segments());
    let before = watch.counts();
    for _ in 0..100 {
        let at = wal.append(&[7; 200]).unwrap();
        wal.wait_durable(at.end).unwrap();
        wal.wait_durable(at.end).unwrap();
    }
    let after = watch.counts();
    assert_eq!((after.0 - before.0, after.1 - before.1, after.2 - before.2), (100, 100, 0));
    wal.sync_all().unwrap();
    assert_eq!(watch.counts(), after);
}

#[test]
fn written_out_survives_the_process() {
    let watch = Watch::new(disk(1));
    let (wal, _) = open(&watch, WalOptions::default(), Lsn(1)).unwrap();
    let before = watch.counts();
    let mut expected = Vec::new();
    for i in 0..50u8 {
        let at = wal.append(&[i; 99]).unwrap();
        wal.finish(FlushMode::WriteOnly, Committer::Commits, at.end).unwrap();
        expected.push((at.lsn, vec![i; 99]));
    }
    // No padding between, no syncs.
    assert_eq!(expected[49].0 .0 - expected[0].0 .0, 49 * 128);
    assert_eq!(watch.counts().1, before.1);
    let lazy = wal.append(b"lazy").unwrap();
    wal.finish(FlushMode::Lazy, Committer::Commits, lazy.end).unwrap();
    watch.disk.crash();
    let (wal, found) = open(&watch, WalOptions::default(), Lsn(1)).unwrap();
    assert_eq!(found, expected);
    // What was replayed is durable, although nobody had synced it.
    drop(wal);
    for outcome in 0..30 {
        assert_eq!(frames(&watch.disk.after_power_cut(outcome), Lsn(1)).unwrap(), expected);
    }
}

#[test]
fn segments_are_recycled_and_stale_frames_stay_silent() {
    let watch = Watch::new(disk(1));
    let (wal, _) = open(&watch, small(), Lsn(1)).unwrap();
    let mut last = Lsn(1);
    for i in 0..400u64 {
        let at = wal.append(&i.to_le_bytes()).unwrap();
        wal.wait_durable(at.end).unwrap();
        wal.prepare_segments().unwrap();
        if i % 3 == 0 {
            wal.recycle(at.lsn).unwrap();
            last = at.lsn;
        }
        let found = frames(&watch.disk, last).unwrap();
        assert_eq!(found.last().map(|f| f.1.clone()), Some(i.to_le_bytes().to_vec()));
        assert_eq!(found.len() as u64, i % 3 + 1);
    }
    let stats = wal.stats();
    assert!(stats.segments + stats.spares <= 8, "{stats:?}");
    assert!(watch.disk.used_bytes() <= 8 * 5 * SECTOR_BYTES);
    assert!(matches!(frames(&watch.disk, Lsn(1)), Err(WalError::Missing { .. })));
    assert_eq!(wal.tail_bytes(last), stats.end.0 - last.0);
}

#[test]
fn a_full_disk_is_met_before_anything_is_appended() {
    let watch = Watch::new(disk(1));
    watch.disk.capacity(Some(3 * 5 * SECTOR_BYTES));
    let (wal, _) = open(&watch, small(), Lsn(1)).unwrap();
    let mut expected = Vec::new();
    let credit = wal.reserve_commit(100).unwrap();
    let full = loop {
        let end = wal.end_lsn();
        match wal.append(&[1; 1000]) {
            Ok(at) => expected.push((at.lsn, vec![1; 1000])),
            Err(e) => {
                assert_eq!(wal.end_lsn(), end);
                break e;
            }
        }
        wal.sync_all().unwrap();
    };
    assert!(matches!(full, WalError::DiskFull(_)), "{full}");
    assert!(wal.poisoned().is_none());
    assert!(matches!(wal.prepare_segments(), Err(WalError::DiskFull(_))));
    // What was promised is kept.
    let at = wal.append_reserved(credit, &[2; 100]);
    expected.push((at.lsn, vec![2; 100]));
    wal.wait_durable(at.end).unwrap();
    assert_eq!(frames(&watch.disk, Lsn(1)).unwrap(), expected);
    // A checkpoint gives space back.
    wal.recycle(at.lsn).unwrap();
    let at = wal.append(&[3; 1000]).unwrap();
    wal.wait_durable(at.end).unwrap();
    // A full disk is no reason not to open.
    drop(wal);
    watch.disk.crash();
    let (_, found) = open(&watch, small(), at.lsn).unwrap();
    assert_eq!(found, [(at.lsn, vec![3; 1000])]);
}

#[test]
fn credits_keep_their_space_whatever_others_append() {
    let watch = Watch::new(disk(1));
    let (wal, _) = open(&watch, small(), Lsn(1)).unwrap();
    let mut expected = Vec::new();
    for round in 0..30u8 {
        let credits: Vec<_> = (0..10).map(|_| wal.reserve_commit(50).unwrap()).collect();
        drop(wal.reserve_commit(5000).unwrap());
        let at = wal.append(&[round; 3000]).unwrap();
        expected.push((at.lsn, vec![round; 3000]));
        let created = watch.counts().2;
        for (i, credit) in credits.into_iter().enumerate() {
            let at = wal.append_reserved(credit, &[round; 50]);
            expected.push((at.lsn, vec![round; 50]));
            if i % 2 == 0 {
                wal.sync_all().unwrap();
            }
        }
        assert_eq!(watch.counts().2, created, "a credit had no space");
    }
    wal.sync_all().unwrap();
    assert_eq!(frames(&watch.disk, Lsn(1)).unwrap(), expected);
}

/// Whenever the log writes, somebody else's frame comes in: a long one goes in all the same, after one write.
#[test]
fn a_long_frame_does_not_wait_for_an_empty_buffer() {
    let mut watch = Watch::new(disk(1));
    let credits = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::new(Mutex::new(None::<Wal>));
    watch.pause = Arc::new({
        let (log, credits) = (log.clone(), credits.clone());
        move || {
            let credit = credits.lock().unwrap().pop();
            if let (Some(wal), Some(credit)) = (&*log.lock().unwrap(), credit) {
                wal.append_reserved(credit, b"small");
            }
        }
    });
    let options = WalOptions { segment_bytes: 8 << 20, buffer_bytes: 8 << 10, ..WalOptions::default() };
    let (wal, _) = open(&watch, options, Lsn(1)).unwrap();
    credits.lock().unwrap().extend((0..1000).map(|_| wal.reserve_commit(10).unwrap()));
    for (way, bytes) in [(0, 9 << 10), (1, 20 << 10), (0, 8180)] {
        wal.append(b"first").unwrap();
        *log.lock().unwrap() = Some(wal.clone());
        let before = (watch.counts().0, credits.lock().unwrap().len());
        match way {
            0 => drop(wal.append(&vec![1; bytes]).unwrap()),
            _ => {
                let credit = wal.reserve_commit(bytes).unwrap();
                wal.append_reserved(credit, &vec![1; bytes]);
            }
        }
        *log.lock().unwrap() = None;
        let used = before.1 - credits.lock().unwrap().len();
        assert!((1..=2).contains(&used) && watch.counts().0 - before.0 == 1, "{used} others went before");
    }
    wal.sync_all().unwrap();
}

/// Its credit has seen to all that it needs.
#[test]
fn a_reserved_frame_does_no_io() {
    let watch = Watch::new(disk(1));
    let (wal, _) = open(&watch, WalOptions { buffer_bytes: 4 << 10, ..small() }, Lsn(1)).unwrap();
    for _ in 0..200 {
        let credit = wal.reserve_commit(500).unwrap();
        let operations = watch.disk.op_count();
        let at = wal.append_reserved(credit, &[1; 500]);
        assert_eq!((at.end.0 - at.lsn.0, watch.disk.op_count()), (528, operations));
    }
    wal.sync_all().unwrap();
    assert!(wal.stats().segments > 3);
    assert_eq!(frames(&watch.disk, Lsn(1)).unwrap().len(), 200);
}

/// However many credits are out.
#[test]
fn segments_for_credits_are_made_in_time() {
    let watch = Watch::new(disk(1));
    let (wal, _) = open(&watch, small(), Lsn(1)).unwrap();
    let mut credits = Vec::new();
    for _ in 0..50 {
        credits.push(wal.reserve_commit(50).unwrap());
        wal.prepare_segments().unwrap();
        let metadata = watch.counts().2;
        drop(wal.reserve_commit(50).unwrap());
        wal.append(&[1; 50]).unwrap();
        assert_eq!(watch.counts().2, metadata);
    }
}

#[test]
fn a_failed_sync_stops_everything_and_is_not_repeated() {
    for (after, kind) in [(1, IoKind::Failed), (2, IoKind::Failed), (1, IoKind::DiskFull), (2, IoKind::DiskFull)] {
        let watch = Watch::new(disk(1));
        let (wal, _) = open(&watch, WalOptions::default(), Lsn(1)).unwrap();
        let good = wal.append(b"good").unwrap();
        wal.wait_durable(good.end).unwrap();
        let credit = wal.reserve_commit(10).unwrap();
        let bad = wal.append(b"bad").unwrap();
        watch.disk.fail_once(watch.disk.op_count() + after, kind);
        assert!(wal.wait_durable(bad.end).is_err());
        let operations = watch.disk.op_count();
        assert!(matches!(wal.wait_durable(bad.end), Err(WalError::Poisoned(_))));
        assert!(matches!(wal.append(b"more"), Err(WalError::Poisoned(_))));
        assert!(matches!(wal.write_out(), Err(WalError::Poisoned(_))));
        assert!(matches!(wal.recycle(Lsn(5000)), Err(WalError::Poisoned(_))));
        assert!(matches!(wal.prepare_segments(), Err(WalError::Poisoned(_))));
        assert!(matches!(wal.reserve_commit(1), Err(WalError::Poisoned(_))));
        let lost = wal.append_reserved(credit, b"lost");
        assert!(lost.lsn >= bad.end && wal.end_lsn() == lost.end);
        assert!(wal.wait_durable(good.end).is_ok());
        assert!(wal.poisoned().is_some());
        assert_eq!(watch.disk.op_count(), operations);
        watch.disk.crash();
        let (_, found) = open(&watch, WalOptions::default(), Lsn(1)).unwrap();
        assert_eq!(found[0].1, b"good");
        assert!(found.iter().all(|f| f.1 != b"lost" && f.1 != b"more"));
    }
}

#[test]
fn a_missing_log_is_an_error_unless_it_is_to_be_made() {
    let watch = Watch::new(disk(1));
    let options = WalOptions { create: false, ..small() };
    assert!(matches!(open(&watch, options.clone(), Lsn(1)), Err(WalError::Missing { .. })));
    drop(open(&watch, small(), Lsn(1)).unwrap());
    drop(open(&watch, options.clone(), Lsn(1)).unwrap());
    let too_far = Lsn(1 << 30);
    assert!(matches!(open(&watch, options, too_far), Err(WalError::Missing { .. })));
    let too_long = vec![0; (128 << 20) + 1];
    let (wal, _) = open(&watch, small(), Lsn(1)).unwrap();
    assert!(matches!(wal.append(&too_long), Err(WalError::TooLong { .. })));
}

/// Ten groups of a hundred frames each, and the segment's path.
fn ten_groups() -> (SimDisk, Vec<Vec<u64>>) {
    let watch = Watch::new(disk(1));
    let (wal, _) = open(&watch, WalOptions { segment_bytes: 1 << 20, ..WalOptions::default() }, Lsn(1)).unwrap();
    let groups = (0..10u8)
        .map(|g| {
            let group = (0..100).map(|_| wal.append(&[g; 100]).unwrap().lsn.0).collect();
            wal.sync_all().unwrap();
            group
        })
        .collect();
    (watch.disk, groups)
}

#[test]
fn damage_is_told_from_a_torn_tail() {
    let first = Path::new(DIR).join("0000000001.wal");
    for group in 0..10 {
        for frame in [0, 1, 50, 99] {
            let (disk, groups) = ten_groups();
            // Positions begin at one sector, the header takes another.
            let offset = groups[group][frame];
            disk.damage(&first, offset + 40, &[1]).unwrap();
            match frames(&disk, Lsn(1)) {
                Ok(found) => {
                    // Nothing after the last group proves that it was durable.
                    assert_eq!(group, 9);
                    assert_eq!(found.len(), 900 + frame);
                }
                Err(WalError::Damage { file, offset: at, .. }) => {
                    assert!(group < 9);
                    assert_eq!((file, at), (first.clone(), offset));
                }
                Err(e) => panic!("{e}"),
            }
        }
    }
    // A later opening proves it for the last group, too.
    let (disk, groups) = ten_groups();
    drop(open(&Watch::new(disk.clone()), small(), Lsn(1)).unwrap());
    disk.damage(&first, groups[9][99] + 40, &[1]).unwrap();
    assert!(matches!(frames(&disk, Lsn(1)), Err(WalError::Damage { .. })));
    // Headers.
    let (disk, _) = ten_groups();
    disk.damage(&first, 20, &[1]).unwrap();
    assert!(matches!(frames(&disk, Lsn(1)), Err(WalError::Damage { offset: 0, .. })));
}

/// A segment is written only after the one before it was synced: anything in it proves that.
#[test]
fn the_next_segment_proves_that_this_one_was_durable() {
    for group in 0..20 {
        let watch = Watch::new(disk(1));
        let (wal, _) = open(&watch, small(), Lsn(1)).unwrap();
        let mut sectors = Vec::new();
        for _ in 0..20 {
            let at = wal.append(&[1; 4000]).unwrap();
            // Without a seal within the segment, too.
            match group % 2 {
                0 => wal.sync_all().unwrap(),
                _ => wal.write_out().unwrap(),
            }
            sectors.push(at.lsn.0);
        }
        wal.sync_all().unwrap();
        // Positions begin at one sector; a segment holds four.
        let (segment, offset) = ((sectors[group] - 4096) / 16384, (sectors[group] - 4096) % 16384);
        let file = Path::new(DIR).join(format!("{:010}.wal", segment + 1));
        // The length where a seal is the proof, contents where it is the next segment.
        let place = if group % 2 == 0 { 10 } else { 30 };
        watch.disk.damage(&file, 4096 + offset + place, &[1]).unwrap();
        let last = watch.disk.list(Path::new(DIR)).unwrap().len() as u64 - 1;
        let straddles = offset + 4024 > 16384;
        match frames(&watch.disk, Lsn(1)) {
            Err(WalError::Damage { file: found, offset: at, .. }) => {
                assert_eq!((found, at), (file, 4096 + offset));
            }
            Ok(found) => {
                // The last group has no proof behind it.
                assert!(if group % 2 == 0 { group == 19 } else { segment == last || straddles }, "group {group}");
                assert_eq!(found.len(), group);
            }
            Err(e) => panic!("{e}"),
        }
    }
}

#[test]
fn a_missing_segment_in_the_middle_is_an_error() {
    let watch = Watch::new(disk(1));
    let (wal, _) = open(&watch, small(), Lsn(1)).unwrap();
    let mut last = Lsn(1);
    for _ in 0..20 {
        last = wal.append(&[1; 4000]).unwrap().lsn;
        wal.sync_all().unwrap();
    }
    watch.disk.remove(&Path::new(DIR).join("0000000003.wal")).unwrap();
    assert!(matches!(frames(&watch.disk, Lsn(1)), Err(WalError::Missing { .. })));
    assert_eq!(frames(&watch.disk, last).unwrap().len(), 1);
}

/// Files that bear a number as the log's do, and are none of them.
#[test]
fn names_that_are_not_the_logs_mean_nothing() {
    let watch = Watch::new(disk(1));
    for life in 1..=3u8 {
        let (wal, found) = open(&watch, small(), Lsn(1)).unwrap();
        assert_eq!(found.len(), usize::from(life) - 1);
        wal.append(&[life; 100]).unwrap();
        wal.sync_all().unwrap();
        drop(wal);
        let not_whole =
            ["7.wal", "+0000000007.wal", "00000000007.wal", "9.spare", "0000000001.wal.copy", ".wal", "x.spare"];
        let beyond_all = ["2147483648.wal", "4294967295.wal", "4294967295.spare"];
        for name in not_whole.into_iter().chain(beyond_all) {
            if life == 1 {
                watch.disk.open(&Path::new(DIR).join(name), OpenMode::Create, AccessHint::Log).unwrap();
            }
            assert!(watch.disk.exists(&Path::new(DIR).join(name)).unwrap(), "{name} is gone");
        }
    }
}

/// The newest segment, and nothing prepared behind it: the frame that goes on in it tells, acknowledged or not.
#[test]
fn a_missing_last_segment_is_told_by_the_frame_that_goes_on_in_it() {
    let (mut synced, mut written) = (0, 0);
    for bytes in (100..12_000).step_by(300) {
        for sync in [true, false] {
            let watch = Watch::new(disk(1));
            let (wal, _) = open(&watch, small(), Lsn(1)).unwrap();
            let mut last = wal.append(&vec![1; bytes]).unwrap();
            while wal.stats().segments < 2 {
                wal.sync_all().unwrap();
                last = wal.append(&vec![1; bytes]).unwrap();
            }
            if sync {
                wal.sync_all().unwrap();
            } else {
                wal.write_out().unwrap();
            }
            drop(wal);
            let names = files(&watch.disk, ".wal");
            let [first, second] = &names[..] else { panic!("{names:?}") };
            let opened = frames(&watch.disk, Lsn(1)).unwrap();
            assert_eq!(opened.last().unwrap().0, last.lsn);
            watch.disk.remove(&Path::new(DIR).join(second)).unwrap();
            let size =
                watch.disk.open(&Path::new(DIR).join(first), OpenMode::Read, AccessHint::Log).unwrap().size_bytes();
            // The header takes as much as lies before the stream's first byte.
            let first_ends = size.unwrap();
            // Of a header that is not whole nothing is believed.
            if last.lsn.0 + 24 > first_ends || last.end.0 <= first_ends {
                continue;
            }
            let opened = frames(&watch.disk, Lsn(1));
            assert!(
                matches!(opened, Err(WalError::Missing { lsn, .. }) if lsn.0 == first_ends),
                "frames of {bytes}, opened without {second}: {:?}",
                opened.map(|found| found.len())
            );
            assert!(matches!(open(&watch, small(), Lsn(1)), Err(WalError::Missing { .. })));
            *if sync { &mut synced } else { &mut written } += 1;
        }
    }
    assert!(synced > 10 && written > 10, "{synced} and {written} frames went on in the second segment");
}

/// A life that ended in the middle of its segment, the next one's first segment, one that was prepared behind it.
#[test]
fn a_missing_segment_behind_a_half_full_one_is_an_error() {
    let watch = Watch::new(disk(1));
    let (wal, _) = open(&watch, small(), Lsn(1)).unwrap();
    wal.append(&[1; 100]).unwrap();
    wal.sync_all().unwrap();
    drop(wal);
    let (wal, found) = open(&watch, small(), Lsn(1)).unwrap();
    assert_eq!(found.len(), 1);
    wal.append(&[2; 100]).unwrap();
    wal.sync_all().unwrap();
    wal.prepare_segments().unwrap();
    drop(wal);
    let mut names: Vec<_> = watch.disk.list(Path::new(DIR)).unwrap().into_iter().map(|e| e.name).collect();
    names.retain(|n| n.ends_with(".wal"));
    names.sort();
    assert!(names.len() >= 3, "nothing was prepared: {names:?}");
    let middle = &names[names.len() - 2];
    watch.disk.remove(&Path::new(DIR).join(middle)).unwrap();
    let opened = frames(&watch.disk, Lsn(1));
    assert!(matches!(opened, Err(WalError::Missing { .. })), "opened without {middle}: {opened:?}");
}

/// No room for another segment of the usual size, and none to take over: the log opens with a small one, and the next is of
/// the usual size again.
#[test]
fn a_full_disk_is_no_reason_not_to_open() {
    let watch = Watch::new(disk(1));
    let options = WalOptions { segment_bytes: 1 << 20, ..small() };
    let (wal, _) = open(&watch, options.clone(), Lsn(1)).unwrap();
    wal.append(&[1; 100]).unwrap();
    wal.sync_all().unwrap();
    drop(wal);
    watch.disk.capacity(Some(watch.disk.used_bytes() + (100 << 10)));
    for life in 1..=2u8 {
        let (wal, found) = open(&watch, options.clone(), Lsn(1)).unwrap();
        assert_eq!(found.len(), usize::from(life));
        wal.append(&[2; 100]).unwrap();
        wal.sync_all().unwrap();
        drop(wal);
        watch.disk.capacity(Some(watch.disk.used_bytes() + (100 << 10)));
    }
    watch.disk.capacity(None);
    let (wal, found) = open(&watch, options, Lsn(1)).unwrap();
    assert_eq!(found.len(), 3);
    wal.append(&[3; 500_000]).unwrap();
    wal.sync_all().unwrap();
}

const RESERVE: &str = "reserve.spare";

fn files(disk: &SimDisk, ending: &str) -> Vec<String> {
    let names = disk.list(Path::new(DIR)).unwrap().into_iter().map(|f| f.name);
    names.filter(|name| name.ends_with(ending)).collect()
}

/// A log with its reserve, and not a byte left on its disk; where it begins. `filled`: nor is there in its last segment.
fn on_a_full_disk(filled: bool) -> (Watch, WalOptions, Lsn) {
    let watch = Watch::new(disk(1));
    let options = WalOptions { segment_bytes: 1 << 20, ..small() };
    let (wal, _) = open(&watch, options.clone(), Lsn(1)).unwrap();
    let from = wal.append(&[1; 100]).unwrap().lsn;
    wal.sync_all().unwrap();
    wal.keep_reserve().unwrap();
    assert_eq!(files(&watch.disk, ".spare"), [RESERVE]);
    watch.disk.capacity(Some(watch.disk.used_bytes()));
    while filled && wal.append(&[1; 1000]).is_ok() {}
    wal.sync_all().unwrap();
    drop(wal);
    (watch, options, from)
}

/// No room for any segment: the log opens with the reserve, and openings after which nothing was written leave nothing.
#[test]
fn the_reserve_opens_a_log_on_a_full_disk_any_number_of_times() {
    let (watch, options, from) = on_a_full_disk(true);
    let mut frames = 0;
    for life in 0..3 {
        let (wal, found) = open(&watch, options.clone(), from).unwrap_or_else(|e| panic!("life {life}: {e}"));
        assert_eq!(files(&watch.disk, ".wal").len(), 2, "life {life}");
        assert_eq!(files(&watch.disk, ".spare"), Vec::<String>::new(), "life {life}: the reserve was not taken");
        frames = found.len();
        drop(wal);
        watch.disk.capacity(Some(watch.disk.used_bytes()));
    }
    // What the reserve holds then is needed, and there is no other; what it has behind that is room for one that is smaller.
    for life in 0..2 {
        let (wal, found) = open(&watch, options.clone(), from).unwrap_or_else(|e| panic!("life {life}: {e}"));
        assert_eq!(found.len(), frames, "life {life}");
        while wal.append(&[2; 100]).is_ok() {
            frames += 1;
            if life == 0 {
                break;
            }
        }
        wal.sync_all().unwrap();
        drop(wal);
        watch.disk.capacity(Some(watch.disk.used_bytes()));
    }
    assert!(matches!(open(&watch, options.clone(), from).map(drop), Err(WalError::DiskFull(_))));
    watch.disk.capacity(None);
    assert_eq!(open(&watch, options, from).unwrap().1.len(), frames);
}

/// What its caller can do without makes room for a log on a full disk before the reserve does.
#[test]
fn room_is_made_before_the_reserve_is_taken() {
    let (watch, options, from) = on_a_full_disk(true);
    watch.disk.capacity(None);
    let other = Path::new("/data/other");
    let file = watch.open(other, OpenMode::Create, AccessHint::Log).unwrap();
    file.set_size(2 << 20).unwrap();
    file.reserve(0, 2 << 20).unwrap();
    drop(file);
    watch.disk.capacity(Some(watch.disk.used_bytes()));
    let (dir, mut made) = (Path::new(DIR), 0);
    let replay = |disk: &Watch| {
        let disk = Arc::new(disk.clone());
        Opening::replay::<WalError>(disk, dir, options, from, &mut |_, _| Ok(()), &mut |_, _| {})
    };
    let wal = replay(&watch).unwrap().begin::<WalError>((0, 0), &mut || {
        made += 1;
        Ok(watch.disk.remove(other)?)
    });
    drop(wal.unwrap());
    assert_eq!((made, files(&watch.disk, ".spare")), (1, vec![RESERVE.to_owned()]));
}

/// A payload may have any bytes at the place where a segment begins: also those by which that says that the log was opened there,
/// though they be of who knows the segment's tag.
#[test]
fn what_a_payload_has_is_no_beginning_of_a_log() {
    let mut crossed = 0;
    // The simulated disk draws the same each time.
    let simulated = u32::from_le_bytes(*b"simu");
    for generation in 1..5u32 {
        let watch = Watch::new(disk(1));
        let (wal, _) = open(&watch, small(), Lsn(1)).unwrap();
        wal.append(&[7; 100]).unwrap();
        let payload_at = wal.end_lsn().0 + FRAME_HEADER_BYTES as u64;
        let mut payload = vec![0u8; 50_000];
        let body: Vec<u8> = [1u64, 1].iter().flat_map(|n| n.to_le_bytes()).collect();
        for sector in payload_at / SECTOR_BYTES + 1..(payload_at + 49_000) / SECTOR_BYTES {
            let lsn = Lsn(sector * SECTOR_BYTES);
            let forged = [&frame_header(lsn, (simulated ^ generation) | 1 << 31, &body)[..], &body].concat();
            let at = (lsn.0 - payload_at) as usize;
            payload[at..at + forged.len()].copy_from_slice(&forged);
        }
        let appended = wal.append(&payload).unwrap();
        wal.sync_all().unwrap();
        crossed += u64::from(wal.stats().segments > 1);
        drop(wal);
        let found = frames(&watch.disk, Lsn(1)).unwrap();
        assert!(found.len() == 2 && found[1] == (appended.lsn, payload), "generation {generation}");
    }
    assert_eq!(crossed, 4);
}

/// What lies behind the log's end since the file's earlier use may be a row's content, made to look as if this log had gone on: it is
/// none of its frames, and no proof of anything, as nobody could know the segment's tag.
#[test]
fn what_an_earlier_use_has_left_proves_nothing() {
    // As the simulated disk draws it.
    let generation = 1;
    let tag = u32::from_le_bytes(*b"simu") ^ generation;
    for (forged, refused) in [(generation, false), (tag, true)] {
        let watch = Watch::new(disk(1));
        let (wal, _) = open(&watch, small(), Lsn(1)).unwrap();
        wal.append(&[7; 100]).unwrap();
        wal.sync_all().unwrap();
        let end = wal.stats().written.0;
        let path = Path::new(DIR).join(files(&watch.disk, "0000000001.wal").remove(0));
        drop(wal);
        let file = watch.disk.open(&path, OpenMode::Write, AccessHint::Log).unwrap();
        let write = |lsn: u64, bytes: &[u8]| {
            file.write_at(bytes, SEGMENT_HEADER_BYTES as u64 + lsn - SECTOR_BYTES).unwrap();
        };
        let body: Vec<u8> = [0u64, end + 4 * SECTOR_BYTES].iter().flat_map(|n| n.to_le_bytes()).collect();
        for lsn in [end + SECTOR_BYTES, end + 2 * SECTOR_BYTES] {
            write(lsn, &[&frame_header(Lsn(lsn), forged | 1 << 31, &body)[..], &body].concat());
        }
        // The beginning of a frame that would go on where no segment is.
        let mut torn = frame_header(Lsn(end), forged, &[]);
        torn[8..12].copy_from_slice(&(100u32 << 20).to_le_bytes());
        write(end, &torn);
        let opened = open(&watch, small(), Lsn(1)).map(|(_, found)| found.len());
        assert!(if refused { opened.is_err() } else { opened.unwrap() == 1 }, "forged with {forged}");
    }
}

/// Where a log is opened again and again, each time with little in it, it takes little: the segment in which it ended is cut there.
#[test]
fn short_lives_leave_short_segments() {
    let watch = Watch::new(disk(1));
    let lives = 40;
    for life in 0..lives {
        let (wal, found) = open(&watch, small(), Lsn(1)).unwrap();
        assert_eq!(found.len(), life);
        wal.append(&[7; 100]).unwrap();
        wal.sync_all().unwrap();
        // A process that dies, and now and then the power goes, too.
        drop(wal);
        if life % 3 == 2 {
            watch.disk.crash();
        }
    }
    let found = watch.disk.list(Path::new(DIR)).unwrap().into_iter().filter(|f| f.name.ends_with(".wal"));
    let sizes: Vec<_> = found.map(|f| f.size_bytes).collect();
    assert_eq!(sizes.len(), lives);
    let short = sizes.iter().filter(|bytes| **bytes <= SEGMENT_HEADER_BYTES as u64 + 3 * SECTOR_BYTES).count();
    assert_eq!(short, lives - 1, "{sizes:?}");
    assert_eq!(frames(&watch.disk, Lsn(1)).unwrap().len(), lives);
}
