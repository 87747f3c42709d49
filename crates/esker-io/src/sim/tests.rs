use super::*;
use crate::{AccessHint, Disk, File, OpenMode, SyncMethod};
use std::collections::{BTreeSet, HashSet};

const SECTOR: usize = SECTOR_BYTES as usize;

fn create(disk: &SimDisk, path: &str) -> Arc<dyn File> {
    disk.open(Path::new(path), OpenMode::Create, AccessHint::Log).unwrap()
}

fn contents(disk: &SimDisk, path: &str) -> Option<Vec<u8>> {
    if !disk.exists(Path::new(path)).unwrap() {
        return None;
    }
    let file = disk.open(Path::new(path), OpenMode::Read, AccessHint::Meta).unwrap();
    let mut bytes = vec![0; file.size_bytes().unwrap() as usize];
    file.read_at(&mut bytes, 0).unwrap();
    Some(bytes)
}

/// A disk with the folder `d`, durable, and a durable file `d/f` of `bytes`.
fn with_file(bytes: &[u8]) -> (SimDisk, Arc<dyn File>) {
    let disk = SimDisk::new(1);
    disk.create_dir(Path::new("d")).unwrap();
    disk.sync_dir(Path::new("")).unwrap();
    let file = create(&disk, "d/f");
    file.write_at(bytes, 0).unwrap();
    file.sync_data().unwrap();
    disk.sync_dir(Path::new("d")).unwrap();
    (disk, file)
}

/// What a file can be after a power cut, over many seeds.
fn outcomes(disk: &SimDisk, path: &str) -> HashSet<Option<Vec<u8>>> {
    (0..400).map(|seed| contents(&disk.after_power_cut(seed), path)).collect()
}

#[test]
fn synced_is_never_lost() {
    let (disk, _file) = with_file(b"hello");
    assert_eq!(outcomes(&disk, "d/f"), HashSet::from([Some(b"hello".to_vec())]));
}

/// A durable write answers for itself; a sync for all that came before.
#[test]
fn what_a_durable_write_covers() {
    for method in SyncMethod::ALL {
        let (disk, file) = with_file(&[b'a'; 4 * SECTOR]);
        file.write_at(&[b'b'; SECTOR], 0).unwrap();
        file.write_durably(&[b'c'; 2 * SECTOR], SECTOR as u64, method).unwrap();
        let seen = |at: usize| -> BTreeSet<u8> {
            outcomes(&disk, "d/f").into_iter().map(|bytes| bytes.unwrap()[at]).collect()
        };
        assert_eq!((seen(SECTOR), seen(3 * SECTOR - 1)), (BTreeSet::from([b'c']), BTreeSet::from([b'c'])));
        let earlier = match method.covers_earlier() {
            true => BTreeSet::from([b'b']),
            false => BTreeSet::from([b'a', b'b']),
        };
        assert_eq!(seen(0), earlier, "{method}");
    }
}

/// An older image of a sector never comes after a durable one; what is in the sector's cache goes with it.
#[test]
fn a_durable_write_is_the_sectors_last_word() {
    let (disk, file) = with_file(&[b'a'; 2 * SECTOR]);
    file.write_at(&[b'b'; 2 * SECTOR], 0).unwrap();
    file.write_durably(b"c", 1, SyncMethod::Dsync).unwrap();
    let first: BTreeSet<_> = outcomes(&disk, "d/f").into_iter().map(|bytes| bytes.unwrap()[..3].to_vec()).collect();
    assert_eq!(first, BTreeSet::from([b"bcb".to_vec()]));
    // A size on its way goes with it, and all before.
    file.write_at(&[b'd'; SECTOR], 2 * SECTOR as u64).unwrap();
    file.write_durably(b"e", 0, SyncMethod::Dsync).unwrap();
    let expected = [&b"ecb"[..], &[b'b'; 2 * SECTOR - 3], &[b'd'; SECTOR]].concat();
    assert_eq!(outcomes(&disk, "d/f"), HashSet::from([Some(expected)]));
}

/// One operation each, but for fdatasync's two: cut in the middle it may be lost, failed it is lost or not.
#[test]
fn a_durable_write_may_be_cut_and_fail() {
    for (method, operations) in SyncMethod::ALL.into_iter().zip([2, 1, 1]) {
        for fails in [false, true] {
            let (disk, file) = with_file(b"old");
            let last = disk.op_count() + operations;
            match fails {
                true => disk.fail_once(last, IoKind::Failed),
                false => disk.power_cut_at(last),
            }
            file.write_durably(b"new", 0, method).unwrap_err();
            assert_eq!(disk.op_count(), last);
            let both = HashSet::from([b"old", b"new"].map(|bytes| Some(bytes.to_vec())));
            assert!(outcomes(&disk, "d/f").is_subset(&both), "{method}");
            assert!(fails || outcomes(&disk, "d/f") == both, "{method}");
        }
        let (disk, file) = with_file(b"old");
        disk.lie_about_sync(true);
        file.write_durably(b"new", 0, method).unwrap();
        assert!(outcomes(&disk, "d/f").contains(&Some(b"old".to_vec())), "{method}");
    }
}

#[test]
fn unsynced_writes_are_kept_or_lost_by_sector() {
    let (disk, file) = with_file(&[b'a'; 4 * SECTOR]);
    file.write_at(&[b'b'; 4 * SECTOR], 0).unwrap();
    let outcomes = outcomes(&disk, "d/f");
    let patterns: HashSet<Vec<u8>> = outcomes
        .into_iter()
        .map(|bytes| {
            let bytes = bytes.unwrap();
            assert_eq!(bytes.len(), 4 * SECTOR);
            let sectors = bytes.chunks(SECTOR);
            sectors
                .map(|sector| {
                    assert!(sector.iter().all(|b| *b == sector[0]), "torn within a sector");
                    sector[0]
                })
                .collect()
        })
        .collect();
    // Every mixture of old and new.
    assert_eq!(patterns.len(), 16);
}

#[test]
fn writes_are_reordered() {
    let (disk, file) = with_file(&[0; 2 * SECTOR]);
    file.write_at(&[1; SECTOR], 0).unwrap();
    file.write_at(&[2; SECTOR], SECTOR as u64).unwrap();
    let later_without_earlier = [vec![0; SECTOR], vec![2; SECTOR]].concat();
    assert!(outcomes(&disk, "d/f").contains(&Some(later_without_earlier)));
}

#[test]
fn later_write_of_a_sector_carries_the_earlier_one() {
    let (disk, file) = with_file(b"....");
    file.write_at(b"a", 0).unwrap();
    file.write_at(b"b", 1).unwrap();
    let expected = [&b"...."[..], b"a...", b"ab.."].map(|bytes| Some(bytes.to_vec()));
    assert_eq!(outcomes(&disk, "d/f"), HashSet::from(expected));
}

#[test]
fn sizes_are_kept_in_order() {
    let (disk, file) = with_file(b"12345678");
    file.set_size(4).unwrap();
    file.set_size(6).unwrap();
    let expected = [&b"12345678"[..], b"1234", b"1234\0\0"].map(|bytes| Some(bytes.to_vec()));
    assert_eq!(outcomes(&disk, "d/f"), HashSet::from(expected));
    file.sync_data().unwrap();
    assert_eq!(outcomes(&disk, "d/f"), HashSet::from([Some(b"1234\0\0".to_vec())]));
}

#[test]
fn grown_size_can_be_kept_without_its_bytes() {
    let (disk, file) = with_file(b"");
    file.write_at(b"new", 0).unwrap();
    let expected = [&b""[..], b"\0\0\0", b"new"].map(|bytes| Some(bytes.to_vec()));
    assert_eq!(outcomes(&disk, "d/f"), HashSet::from(expected));
}

#[test]
fn name_is_durable_only_by_its_folders_sync() {
    let (disk, _f) = with_file(b"");
    let file = create(&disk, "d/new");
    file.write_at(b"x", 0).unwrap();
    file.sync_all().unwrap();
    assert_eq!(outcomes(&disk, "d/new"), HashSet::from([None, Some(b"x".to_vec())]));
    disk.sync_dir(Path::new("d")).unwrap();
    assert_eq!(outcomes(&disk, "d/new"), HashSet::from([Some(b"x".to_vec())]));
}

#[test]
fn folder_that_is_lost_takes_its_files() {
    let disk = SimDisk::new(1);
    disk.create_dir(Path::new("d/e")).unwrap();
    create(&disk, "d/e/f").sync_all().unwrap();
    disk.sync_dir(Path::new("d/e")).unwrap();
    assert_eq!(outcomes(&disk, "d/e/f"), HashSet::from([None, Some(vec![])]));
    disk.sync_dir(Path::new("d")).unwrap();
    disk.sync_dir(Path::new("")).unwrap();
    assert_eq!(outcomes(&disk, "d/e/f"), HashSet::from([Some(vec![])]));
}

#[test]
fn rename_is_atomic_and_durable_by_the_new_folder() {
    let (disk, file) = with_file(b"old");
    let new = create(&disk, "d/tmp");
    new.write_at(b"new", 0).unwrap();
    new.sync_all().unwrap();
    disk.sync_dir(Path::new("d")).unwrap();
    disk.rename(Path::new("d/tmp"), Path::new("d/f")).unwrap();
    let mut seen = HashSet::new();
    for seed in 0..100 {
        let after = disk.after_power_cut(seed);
        let kept = contents(&after, "d/f").unwrap();
        assert_eq!(contents(&after, "d/tmp").is_none(), kept == b"new");
        seen.insert(kept);
    }
    assert_eq!(seen.len(), 2);
    disk.sync_dir(Path::new("d")).unwrap();
    assert_eq!(outcomes(&disk, "d/f"), HashSet::from([Some(b"new".to_vec())]));
    assert_eq!(file.size_bytes().unwrap(), 3);
}

#[test]
fn changes_of_one_name_keep_their_order_and_others_do_not() {
    let (disk, _f) = with_file(b"");
    create(&disk, "d/a");
    create(&disk, "d/b");
    disk.rename(Path::new("d/a"), Path::new("d/c")).unwrap();
    let mut seen = HashSet::new();
    for seed in 0..400 {
        let after = disk.after_power_cut(seed);
        let names: Vec<_> = after.list(Path::new("d")).unwrap().into_iter().map(|e| e.name).collect();
        assert!(!(names.contains(&"a".into()) && names.contains(&"c".into())));
        seen.insert(names.join(","));
    }
    let expected = ["f", "a,f", "b,f", "a,b,f", "c,f", "b,c,f"].map(String::from);
    assert_eq!(seen, HashSet::from(expected));
}

#[test]
fn removed_file_may_come_back_and_open_handles_read_on() {
    let (disk, file) = with_file(b"data");
    disk.remove(Path::new("d/f")).unwrap();
    let mut bytes = [0; 4];
    file.read_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"data");
    assert!(!disk.exists(Path::new("d/f")).unwrap());
    assert_eq!(disk.used_bytes(), 4096);
    drop(file);
    assert_eq!(disk.used_bytes(), 0);
    assert_eq!(outcomes(&disk, "d/f"), HashSet::from([None, Some(b"data".to_vec())]));
    disk.sync_dir(Path::new("d")).unwrap();
    assert_eq!(outcomes(&disk, "d/f"), HashSet::from([None]));
}

#[test]
fn link_is_a_second_name() {
    let (disk, file) = with_file(b"1");
    disk.link(Path::new("d/f"), Path::new("d/g")).unwrap();
    file.write_at(b"2", 0).unwrap();
    assert_eq!(contents(&disk, "d/g").unwrap(), b"2");
    disk.remove(Path::new("d/f")).unwrap();
    assert_eq!(contents(&disk, "d/g").unwrap(), b"2");
    let again = disk.link(Path::new("d/g"), Path::new("d/g")).unwrap_err();
    assert_eq!(again.kind, IoKind::AlreadyExists);
}

#[test]
fn power_cut_stops_everything_and_the_cut_write_may_be_torn() {
    let (disk, file) = with_file(&[0; 2 * SECTOR]);
    disk.power_cut_at(disk.op_count() + 2);
    file.sync_data().unwrap();
    assert!(file.write_at(&[1; 2 * SECTOR], 0).is_err());
    assert!(disk.is_power_cut());
    assert!(file.sync_data().is_err());
    assert!(file.read_at(&mut [0], 0).is_err());
    assert!(disk.open(Path::new("d/f"), OpenMode::Read, AccessHint::Meta).is_err());
    assert!(disk.list(Path::new("d")).is_err());
    let torn = [vec![0; SECTOR], vec![1; SECTOR]].concat();
    let outcomes = outcomes(&disk, "d/f");
    assert_eq!(outcomes.len(), 4);
    assert!(outcomes.contains(&Some(torn)));
}

#[test]
fn power_cut_at_a_sync_promises_nothing() {
    let (disk, file) = with_file(b"a");
    file.write_at(b"b", 0).unwrap();
    disk.power_cut_at(disk.op_count() + 1);
    assert!(file.sync_data().is_err());
    assert_eq!(outcomes(&disk, "d/f").len(), 2);
}

#[test]
fn same_seed_same_outcome() {
    let (disk, file) = with_file(&[0; 16 * SECTOR]);
    for i in 0..16u8 {
        file.write_at(&[i; SECTOR], u64::from(i) * 512).unwrap();
        create(&disk, &format!("d/{i}"));
    }
    for seed in 0..50 {
        let (a, b) = (disk.after_power_cut(seed), disk.snapshot().after_power_cut(seed));
        assert_eq!(contents(&a, "d/f"), contents(&b, "d/f"));
        assert_eq!(a.list(Path::new("d")).unwrap(), b.list(Path::new("d")).unwrap());
    }
}

#[test]
fn failed_write_lands_in_part() {
    let mut lengths = HashSet::new();
    for seed in 0..50 {
        let disk = SimDisk::new(seed);
        let file = create(&disk, "f");
        disk.fail_once(disk.op_count() + 1, IoKind::Failed);
        let error = file.write_at(&[7; 4 * SECTOR], 0).unwrap_err();
        assert_eq!(error.kind, IoKind::Failed);
        lengths.insert(file.size_bytes().unwrap());
        file.write_at(&[7; 4 * SECTOR], 0).unwrap();
        assert_eq!(contents(&disk, "f").unwrap(), [7; 4 * SECTOR]);
    }
    assert_eq!(lengths, HashSet::from([0, 512, 1024, 1536]));
}

#[test]
fn failed_sync_loses_for_good() {
    let lost = (0..50).any(|seed| {
        let disk = SimDisk::new(seed);
        let file = create(&disk, "f");
        file.write_at(b"x", 0).unwrap();
        disk.fail_once(disk.op_count() + 1, IoKind::Failed);
        file.sync_data().unwrap_err();
        file.sync_data().unwrap();
        disk.sync_dir(Path::new("")).unwrap();
        assert_eq!(contents(&disk, "f").unwrap(), b"x");
        contents(&disk.after_power_cut(seed), "f").unwrap() != b"x"
    });
    assert!(lost, "a retried sync must not be trusted");
}

#[test]
fn every_operation_can_fail_once_without_effect() {
    let (disk, file) = with_file(b"x");
    let (d, f, g) = (Path::new("d"), Path::new("d/f"), Path::new("d/g"));
    let attempts: [&dyn Fn() -> Result<()>; 8] = [
        &|| disk.open(g, OpenMode::Create, AccessHint::Meta).map(drop),
        &|| disk.create_dir(g),
        &|| disk.rename(f, g),
        &|| disk.link(f, g),
        &|| disk.remove(f),
        &|| disk.sync_dir(d),
        &|| file.set_size(0),
        &|| file.reserve(0, 1 << 20),
    ];
    for (i, attempt) in attempts.iter().enumerate() {
        disk.fail_once(disk.op_count() + 1, IoKind::DiskFull);
        assert_eq!(attempt().unwrap_err().kind, IoKind::DiskFull, "attempt {i}");
        assert_eq!(contents(&disk, "d/f").unwrap(), b"x");
        assert!(!disk.exists(g).unwrap());
        assert_eq!(disk.used_bytes(), 4096);
    }
    disk.fail_read_once(disk.read_count() + 1, IoKind::Failed);
    file.read_at(&mut [0], 0).unwrap_err();
    file.read_at(&mut [0], 0).unwrap();
}

#[test]
fn full_disk_takes_what_fits_and_goes_on_when_raised() {
    let (disk, file) = with_file(&[1; 4096]);
    disk.capacity(Some(3 * 4096));
    assert_eq!(disk.free_bytes(Path::new("d")).unwrap(), 2 * 4096);
    let error = file.write_at(&[2; 4 * 4096], 0).unwrap_err();
    assert_eq!((error.kind, error.offset), (IoKind::DiskFull, Some(3 * 4096)));
    assert_eq!(disk.full_count(), 1);
    assert_eq!(file.size_bytes().unwrap(), 3 * 4096);
    // What has its space can still be written.
    file.write_at(&[3; 4096], 0).unwrap();
    assert_eq!(file.reserve(0, 4 * 4096).unwrap_err().kind, IoKind::DiskFull);
    disk.capacity(Some(4 * 4096));
    file.reserve(3 * 4096, 4096).unwrap();
    assert_eq!(disk.free_bytes(Path::new("d")).unwrap(), 0);
    file.write_at(&[2; 4 * 4096], 0).unwrap();
    disk.remove(Path::new("d/f")).unwrap();
    drop(file);
    assert_eq!(disk.free_bytes(Path::new("d")).unwrap(), 4 * 4096);
}

#[test]
fn reservation_outlives_writes_and_goes_with_the_size() {
    let disk = SimDisk::new(1);
    let file = create(&disk, "f");
    file.reserve(0, 10 * 4096).unwrap();
    file.write_at(&[1; 100], 0).unwrap();
    assert_eq!((disk.used_bytes(), file.size_bytes().unwrap()), (10 * 4096, 100));
    file.set_size(100).unwrap();
    assert_eq!(disk.used_bytes(), 4096);
}

#[test]
fn lying_sync_is_found() {
    let (disk, file) = with_file(b"a");
    disk.lie_about_sync(true);
    file.write_at(b"b", 0).unwrap();
    file.sync_data().unwrap();
    create(&disk, "d/g");
    disk.sync_dir(Path::new("d")).unwrap();
    assert_eq!(outcomes(&disk, "d/f").len(), 2);
    assert_eq!(outcomes(&disk, "d/g").len(), 2);
}

#[test]
fn killed_process_keeps_what_was_written_and_loses_its_handles() {
    let (disk, file) = with_file(b"a");
    let lock = disk.lock(Path::new("d/lock")).unwrap();
    file.write_at(b"b", 0).unwrap();
    disk.crash();
    assert!(file.read_at(&mut [0], 0).is_err());
    assert!(file.write_at(b"c", 0).is_err());
    assert!(file.sync_data().is_err());
    assert_eq!(contents(&disk, "d/f").unwrap(), b"b");
    let second = disk.lock(Path::new("d/lock")).unwrap();
    drop(lock);
    let third = disk.lock(Path::new("d/lock")).err().unwrap();
    assert_eq!(third.kind, IoKind::Locked);
    drop(second);
    disk.lock(Path::new("d/lock")).unwrap();
}

#[test]
fn snapshot_is_apart() {
    let (disk, file) = with_file(b"a");
    let copy = disk.snapshot();
    file.write_at(b"b", 0).unwrap();
    assert_eq!(contents(&copy, "d/f").unwrap(), b"a");
    copy.remove(Path::new("d/f")).unwrap();
    assert_eq!(contents(&disk, "d/f").unwrap(), b"b");
}

#[test]
fn bulk_files_ask_for_alignment() {
    let disk = SimDisk::new(1);
    let file = disk.open(Path::new("f"), OpenMode::Create, AccessHint::Bulk).unwrap();
    assert_eq!(file.write_alignment(), 4096);
    let region = esker_memory::Region::zeroed(esker_memory::Account::Other, 8192).unwrap();
    file.write_at(&region[..4096], 4096).unwrap();
    assert!(file.write_at(&region[..100], 0).is_err());
    assert!(file.write_at(&region[1..4097], 0).is_err());
    assert!(file.write_at(&region[..4096], 512).is_err());
    assert!(file.submit_write(region, 8192, 0).unwrap().is_some());
}

#[test]
fn damage_reaches_readers_and_the_medium() {
    let (disk, file) = with_file(b"abc");
    disk.damage(Path::new("d/f"), 1, &[0xff]).unwrap();
    let mut byte = [0];
    file.read_at(&mut byte, 1).unwrap();
    assert_eq!(byte[0], b'b' ^ 0xff);
    assert_eq!(contents(&disk.after_power_cut(1), "d/f").unwrap()[1], b'b' ^ 0xff);
}

#[test]
fn errors_name_their_kind() {
    let (disk, file) = with_file(b"abc");
    let kind = |result: Result<()>| result.unwrap_err().kind;
    let (f, g, no) = (Path::new("d/f"), Path::new("d/g"), Path::new("no/f"));
    let open = |path, mode| disk.open(path, mode, AccessHint::Meta).map(drop);
    assert_eq!(kind(open(f, OpenMode::Create)), IoKind::AlreadyExists);
    assert_eq!(kind(open(g, OpenMode::Read)), IoKind::NotFound);
    assert_eq!(kind(open(no, OpenMode::Create)), IoKind::NotFound);
    assert_eq!(kind(disk.rename(g, f)), IoKind::NotFound);
    assert_eq!(kind(disk.rename(f, no)), IoKind::NotFound);
    assert_eq!(kind(disk.remove(g)), IoKind::NotFound);
    assert_eq!(kind(disk.remove_dir(Path::new("d"))), IoKind::Failed);
    assert_eq!(kind(disk.sync_dir(Path::new("no"))), IoKind::NotFound);
    assert_eq!(kind(file.read_at(&mut [0; 4], 0)), IoKind::ShortRead);
    let reader = disk.open(f, OpenMode::Read, AccessHint::Meta).unwrap();
    assert_eq!(kind(reader.write_at(b"x", 0)), IoKind::ReadOnly);
}

#[test]
fn log_tells_what_was_done() {
    let (disk, _file) = with_file(b"abc");
    let log: Vec<_> = disk.op_log().iter().map(ToString::to_string).collect();
    let expected = [
        "1 create folder d",
        "2 sync folder ",
        "3 create d/f",
        "4 write d/f at 0, 3 bytes",
        "5 sync d/f",
        "6 sync folder d",
    ];
    assert_eq!(log, expected);
}
