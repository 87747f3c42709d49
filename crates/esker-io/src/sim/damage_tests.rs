//! What a medium does behind everybody's back, and faults that last.

use super::*;
use crate::{AccessHint, Disk, File, OpenMode};
use std::collections::BTreeSet;

const SECTOR: usize = SECTOR_BYTES as usize;

fn path(name: &str) -> &Path {
    Path::new(name)
}

fn create(disk: &SimDisk, name: &str, bytes: &[u8]) -> Arc<dyn File> {
    let file = disk.open(path(name), OpenMode::Create, AccessHint::Log).unwrap();
    file.write_at(bytes, 0).unwrap();
    file.sync_all().unwrap();
    disk.sync_dir(path("")).unwrap();
    file
}

fn contents(disk: &SimDisk, name: &str) -> Vec<u8> {
    let file = disk.open(path(name), OpenMode::Read, AccessHint::Meta).unwrap();
    let mut bytes = vec![0; file.size_bytes().unwrap() as usize];
    file.read_at(&mut bytes, 0).unwrap();
    bytes
}

/// Readers see it now, and after any power cut.
fn assert_everywhere(disk: &SimDisk, name: &str, expected: &[u8]) {
    assert_eq!(contents(disk, name), expected);
    for seed in 0..20 {
        assert_eq!(contents(&disk.after_power_cut(seed), name), expected);
    }
}

#[test]
fn damage_hits_what_is_on_its_way_too() {
    let disk = SimDisk::new(1);
    let file = create(&disk, "f", &[1; 4 * SECTOR]);
    file.write_at(&[2; 4 * SECTOR], 0).unwrap();
    disk.damage(path("f"), SECTOR as u64, &[3]).unwrap();
    assert_eq!(contents(&disk, "f")[SECTOR], 2 ^ 3);
    let seen: BTreeSet<u8> = (0..100).map(|seed| contents(&disk.after_power_cut(seed), "f")[SECTOR]).collect();
    assert_eq!(seen, BTreeSet::from([1 ^ 3, 2 ^ 3]));
    file.sync_data().unwrap();
    let expected = [vec![2; SECTOR], vec![2 ^ 3], vec![2; 3 * SECTOR - 1]].concat();
    assert_everywhere(&disk, "f", &expected);
}

#[test]
fn zeroed_sectors_are_whole_ones() {
    let disk = SimDisk::new(1);
    create(&disk, "f", &[1; 3 * SECTOR + 7]);
    disk.zero_sectors(path("f"), SECTOR as u64 + 5, 1).unwrap();
    let expected = [vec![1; SECTOR], vec![0; SECTOR], vec![1; SECTOR + 7]].concat();
    assert_everywhere(&disk, "f", &expected);
    disk.zero_sectors(path("f"), 0, u64::MAX).unwrap();
    assert_everywhere(&disk, "f", &[0; 3 * SECTOR + 7]);
}

#[test]
fn stale_sector_is_what_the_sync_before_left() {
    let disk = SimDisk::new(1);
    disk.keep_old_sectors(true);
    let file = create(&disk, "f", &[1; 3 * SECTOR]);
    assert!(!disk.stale_sector(path("f"), 0).unwrap());
    for content in [2, 3] {
        file.write_at(&[content; SECTOR], SECTOR as u64).unwrap();
        file.sync_data().unwrap();
    }
    assert!(!disk.stale_sector(path("f"), 0).unwrap());
    let after = disk.after_power_cut(1);
    for disk in [disk, after] {
        assert!(disk.stale_sector(path("f"), SECTOR as u64 + 1).unwrap());
        let expected = [[1; SECTOR], [2; SECTOR], [1; SECTOR]].concat();
        assert_everywhere(&disk, "f", &expected);
        assert!(!disk.stale_sector(path("f"), SECTOR as u64).unwrap());
    }
}

#[test]
fn misplaced_writes() {
    let disk = SimDisk::new(1);
    create(&disk, "a", &[[1; SECTOR], [2; SECTOR]].concat());
    create(&disk, "b", &[[3; SECTOR], [4; SECTOR]].concat());
    let (a, b, sector) = (path("a"), path("b"), SECTOR as u64);
    disk.swap_bytes((a, sector), (b, 0), sector).unwrap();
    assert_everywhere(&disk, "a", &[[1; SECTOR], [3; SECTOR]].concat());
    assert_everywhere(&disk, "b", &[[2; SECTOR], [4; SECTOR]].concat());
    disk.swap_bytes((a, 0), (a, sector), sector).unwrap();
    assert_everywhere(&disk, "a", &[[3; SECTOR], [1; SECTOR]].concat());
    let outside = disk.swap_bytes((a, 0), (b, sector), sector + 1).unwrap_err();
    assert_eq!(outside.kind, IoKind::ShortRead);
    disk.swap_files(a, b).unwrap();
    assert_everywhere(&disk, "a", &[[2; SECTOR], [4; SECTOR]].concat());
    assert_everywhere(&disk, "b", &[[3; SECTOR], [1; SECTOR]].concat());
}

#[test]
fn lost_and_shortened_files() {
    let disk = SimDisk::new(1);
    let file = create(&disk, "f", &[1; 3 * SECTOR]);
    file.write_at(&[2; SECTOR], 3 * SECTOR as u64).unwrap();
    disk.cut_short(path("f"), 700).unwrap();
    assert_everywhere(&disk, "f", &[1; 700]);
    assert_eq!(disk.used_bytes(), 4096);
    disk.rename(path("f"), path("g")).unwrap();
    disk.lose_file(path("g")).unwrap();
    assert_eq!(disk.lose_file(path("g")).unwrap_err().kind, IoKind::NotFound);
    file.read_at(&mut [0; 700], 0).unwrap();
    for seed in 0..20 {
        assert!(!disk.after_power_cut(seed).exists(path("g")).unwrap());
    }
}

#[test]
fn reads_fail_where_they_touch_it_until_cleared() {
    let disk = SimDisk::new(1);
    let file = create(&disk, "f", &[1; 3 * SECTOR]);
    create(&disk, "other", &[1; SECTOR]);
    disk.fail_reads_of(path("f"), 600..601, IoKind::Failed).unwrap();
    disk.rename(path("f"), path("g")).unwrap();
    for _ in 0..3 {
        let error = file.read_at(&mut [0; 2], 599).unwrap_err();
        assert_eq!((error.kind, error.offset), (IoKind::Failed, Some(599)));
        file.read_at(&mut [0; 600], 0).unwrap();
        file.read_at(&mut [0; 10], 601).unwrap();
    }
    let again = disk.open(path("g"), OpenMode::Read, AccessHint::Meta).unwrap();
    assert!(again.read_at(&mut [0; 3 * SECTOR], 0).is_err());
    contents(&disk, "other");
    disk.clear_plans();
    file.read_at(&mut [0; 2], 599).unwrap();
}

#[test]
fn a_file_system_goes_read_only_and_comes_back() {
    let disk = SimDisk::new(1);
    let file = create(&disk, "f", b"a");
    disk.fail_from(disk.op_count() + 2, IoKind::ReadOnly);
    file.write_at(b"b", 0).unwrap();
    for _ in 0..3 {
        assert_eq!(file.write_at(b"c", 0).unwrap_err().kind, IoKind::ReadOnly);
        assert_eq!(disk.remove(path("f")).unwrap_err().kind, IoKind::ReadOnly);
    }
    assert_eq!(contents(&disk, "f"), b"b");
    disk.clear_plans();
    file.write_at(b"c", 0).unwrap();
}

#[test]
fn handles_run_out_and_come_back() {
    let disk = SimDisk::new(1);
    let first = create(&disk, "f", b"a");
    disk.handle_limit(Some(2));
    let open = |mode, name| disk.open(path(name), mode, AccessHint::Meta);
    let second = open(OpenMode::Read, "f").unwrap();
    assert_eq!(disk.open_handles(), 2);
    for (mode, name) in [(OpenMode::Read, "f"), (OpenMode::Create, "g")] {
        assert_eq!(open(mode, name).err().unwrap().kind, IoKind::Resources);
    }
    assert!(!disk.exists(path("g")).unwrap());
    assert_eq!(open(OpenMode::Read, "no").err().unwrap().kind, IoKind::NotFound);
    drop(second);
    open(OpenMode::Create, "g").unwrap();
    drop(first);
    assert_eq!(disk.open_handles(), 0);
}

#[test]
fn a_kill_in_the_middle_keeps_all_that_was_written() {
    let disk = SimDisk::new(1);
    let file = create(&disk, "f", b"aa");
    disk.power_cut_at(disk.op_count() + 2);
    disk.fail_from(disk.op_count() + 3, IoKind::Failed);
    file.write_at(b"b", 0).unwrap();
    file.write_at(b"b", 1).unwrap_err();
    let after = disk.after_kill();
    assert_eq!(contents(&after, "f"), b"bb");
    assert!(disk.is_power_cut() && !after.is_power_cut());
    create(&after, "g", b"new");
    // Written is not durable.
    let kept: BTreeSet<_> = (0..50).map(|seed| contents(&after.after_power_cut(seed), "f")).collect();
    assert!(kept.len() > 1);
}
