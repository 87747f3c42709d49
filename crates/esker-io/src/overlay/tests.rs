//! What the overlay shows, and that the disk below stays as it was.

use crate::{AccessHint, Disk, IoKind, OpenMode, Overlay, SimDisk};
use std::path::Path;
use std::sync::Arc;

const META: AccessHint = AccessHint::Meta;

fn base() -> SimDisk {
    let disk = SimDisk::new(1);
    disk.create_dir(Path::new("/d")).unwrap();
    for (name, byte) in [("/d/a", b'a'), ("/d/b", b'b')] {
        let file = disk.open(Path::new(name), OpenMode::Create, META).unwrap();
        file.write_at(&vec![byte; 10_000], 0).unwrap();
        file.sync_all().unwrap();
    }
    disk
}

fn names(disk: &dyn Disk) -> Vec<(String, u64)> {
    disk.list(Path::new("/d")).unwrap().into_iter().map(|e| (e.name, e.size_bytes)).collect()
}

fn read(disk: &dyn Disk, name: &str) -> Vec<u8> {
    let file = disk.open(Path::new(name), OpenMode::Read, META).unwrap();
    let mut bytes = vec![0; file.size_bytes().unwrap() as usize];
    file.read_at(&mut bytes, 0).unwrap();
    bytes
}

#[test]
fn writes_are_seen_above_and_not_below() {
    let below = base();
    let disk = Overlay::new(Arc::new(below.clone()));
    let file = disk.open(Path::new("/d/a"), OpenMode::Write, META).unwrap();
    file.write_at(b"XYZ", 4095).unwrap();
    file.write_at(b"!", 12_000).unwrap();
    let mut want = vec![b'a'; 10_000];
    want[4095..4098].copy_from_slice(b"XYZ");
    want.resize(12_000, 0);
    want.push(b'!');
    assert_eq!(read(&disk, "/d/a"), want);
    file.set_size(4097).unwrap();
    file.set_size(9000).unwrap();
    want.truncate(4097);
    want.resize(9000, 0);
    assert_eq!(read(&disk, "/d/a"), want);
    let mut one = [0];
    assert_eq!(file.read_at(&mut one, 9000).unwrap_err().kind, IoKind::ShortRead);
    assert_eq!(read(&below, "/d/a"), vec![b'a'; 10_000]);
}

#[test]
fn names_change_above_and_not_below() {
    let below = base();
    let disk = Overlay::new(Arc::new(below.clone()));
    let (a, b, c) = (Path::new("/d/a"), Path::new("/d/b"), Path::new("/d/c"));
    disk.rename(a, c).unwrap();
    disk.remove(b).unwrap();
    assert_eq!(names(&disk), [("c".to_owned(), 10_000)]);
    assert_eq!(read(&disk, "/d/c"), vec![b'a'; 10_000]);
    for (gone, mode) in [(a, OpenMode::Read), (b, OpenMode::Write)] {
        assert!(!disk.exists(gone).unwrap());
        assert_eq!(disk.open(gone, mode, META).err().unwrap().kind, IoKind::NotFound);
    }
    assert_eq!(disk.remove(b).unwrap_err().kind, IoKind::NotFound);
    assert_eq!(disk.open(c, OpenMode::Create, META).err().unwrap().kind, IoKind::AlreadyExists);
    disk.open(b, OpenMode::Create, META).unwrap().write_at(b"new", 0).unwrap();
    disk.create_dir(Path::new("/d/e")).unwrap();
    disk.link(b, Path::new("/d/e/f")).unwrap();
    assert_eq!(read(&disk, "/d/e/f"), b"new");
    assert_eq!(names(&disk), [("b".to_owned(), 3), ("c".to_owned(), 10_000), ("e".to_owned(), 0)]);
    assert_eq!(names(&below), [("a".to_owned(), 10_000), ("b".to_owned(), 10_000)]);
}
