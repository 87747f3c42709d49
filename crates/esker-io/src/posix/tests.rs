use super::*;
use crate::{FileFigures, IoKind, SyncMethod};
use esker_base::trace::Source;
use esker_base::{Counter, SessionCounters};
use esker_memory::{Account, Region};
use std::os::fd::AsRawFd;
use std::path::PathBuf;

/// A folder of its own, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("esker-io-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn round_trip_for_every_hint_counts_each_operation() {
    let folder = Folder::new("round-trip");
    let disk = PosixDisk::new();
    for (hint, writes, bytes, reads, syncs) in [
        (AccessHint::Log, Counter::WritesWal, Counter::BytesWrittenWal, Counter::ReadsWal, Counter::SyncsWal),
        (AccessHint::Bulk, Counter::WritesRun, Counter::BytesWrittenRun, Counter::ReadsRun, Counter::SyncsRun),
        (
            AccessHint::Meta,
            Counter::WritesManifest,
            Counter::BytesWrittenManifest,
            Counter::ReadsManifest,
            Counter::SyncsManifest,
        ),
    ] {
        let session = SessionCounters::new();
        let _bound = esker_base::counters::bind(&session);
        let file = disk.open(&folder.path(writes.name()), OpenMode::Create, hint).unwrap();
        file.write_at(b"hello", 3).unwrap();
        file.sync_data().unwrap();
        file.sync_all().unwrap();
        assert_eq!(file.size_bytes().unwrap(), 8);
        let mut read = [0; 5];
        file.read_at(&mut read, 3).unwrap();
        assert_eq!(&read, b"hello");
        let error = file.read_at(&mut read, 4).unwrap_err();
        assert_eq!((error.kind, error.offset), (IoKind::ShortRead, Some(4)));
        let figures = [writes, bytes, reads, syncs, Counter::FilesOpened].map(|c| session.get(c));
        assert_eq!(figures, [1, 5, 2, 2, 1]);
    }
    disk.sync_dir(&folder.0).unwrap();
}

/// Each method's calls: writes in all, of them durable and of them linked, and syncs. A kernel that refuses one says so.
#[test]
fn durable_writes_are_counted_by_how_they_are_made() {
    let folder = Folder::new("durable");
    let disk = PosixDisk::new();
    for (method, figures) in SyncMethod::ALL.into_iter().zip([[3, 0, 0, 3], [3, 3, 0, 0], [3, 0, 3, 0]]) {
        let session = SessionCounters::new();
        let _bound = esker_base::counters::bind(&session);
        let path = folder.path(method.name());
        let file = disk.open(&path, OpenMode::Create, AccessHint::Log).unwrap();
        let write = |n: u8| file.write_durably(&[n; 5000], u64::from(n) * 5000, method);
        if let Err(refused) = write(0) {
            assert_ne!(method, SyncMethod::Fdatasync, "{refused}");
            continue;
        }
        write(1).unwrap();
        write(2).unwrap();
        let counters = [Counter::WritesWal, Counter::WritesWalDsync, Counter::WritesWalLinked, Counter::SyncsWal];
        assert_eq!(counters.map(|counter| session.get(counter)), figures, "{method}");
        assert_eq!(session.get(Counter::BytesWrittenWal), 15_000);
        let expected = [[0; 5000], [1; 5000], [2; 5000]].concat();
        assert_eq!(fs::read(&path).unwrap(), expected, "{method}");
    }
    // More than a ring's buffer takes: written and synced, whole.
    let file = disk.open(&folder.path("long"), OpenMode::Create, AccessHint::Log).unwrap();
    let long = vec![7; 1 << 20];
    file.write_durably(&long, 0, SyncMethod::Uring).unwrap();
    assert_eq!(fs::read(folder.path("long")).unwrap(), long);
}

#[test]
fn bulk_file_takes_aligned_and_odd_writes_and_reads_them_back() {
    let folder = Folder::new("bulk");
    let disk = PosixDisk::new();
    let file = disk.open(&folder.path("f"), OpenMode::Create, AccessHint::Bulk).unwrap();
    let mut region = Region::zeroed(Account::Other, 16_384).unwrap();
    region.fill(7);
    file.reserve(0, 1 << 20).unwrap();
    assert_eq!(file.size_bytes().unwrap(), 0);
    file.write_at(&region, 0).unwrap();
    file.write_at(b"odd", 5).unwrap();
    file.write_at(&region[..4096], 16_384).unwrap();
    file.set_size(17_000).unwrap();
    file.sync_all().unwrap();
    let mut read = vec![0; 17_000];
    file.read_at(&mut read, 0).unwrap();
    assert_eq!(&read[..10], [7, 7, 7, 7, 7, b'o', b'd', b'd', 7, 7]);
    assert!(read[10..].iter().all(|&b| b == 7));
}

#[test]
fn names() {
    let folder = Folder::new("names");
    let disk = PosixDisk::new();
    let (a, b, sub) = (folder.path("a"), folder.path("b"), folder.path("x/y"));
    disk.create_dir(&sub).unwrap();
    disk.create_dir(&sub).unwrap();
    let file = disk.open(&a, OpenMode::Create, AccessHint::Meta).unwrap();
    file.write_at(b"123", 0).unwrap();
    let again = disk.open(&a, OpenMode::Create, AccessHint::Meta).err().unwrap();
    assert_eq!(again.kind, IoKind::AlreadyExists);
    let missing = disk.open(&b, OpenMode::Read, AccessHint::Bulk).err().unwrap();
    assert_eq!(missing.kind, IoKind::NotFound);
    assert!(missing.to_string().contains(&b.display().to_string()));
    disk.link(&a, &b).unwrap();
    let names: Vec<_> = disk.list(&folder.0).unwrap();
    let entry = |name: &str, size_bytes, is_dir| DirEntry { name: name.into(), size_bytes, is_dir };
    assert_eq!(names, [entry("a", 3, false), entry("b", 3, false), entry("x", 0, true)]);
    disk.rename(&b, &a).unwrap();
    disk.remove(&a).unwrap();
    file.read_at(&mut [0; 3], 0).unwrap();
    disk.rename(&b, &sub.join("c")).unwrap();
    assert!(disk.remove_dir(&sub).is_err());
    assert!(disk.exists(&sub.join("c")).unwrap());
    disk.remove(&sub.join("c")).unwrap();
    disk.remove_dir(&sub).unwrap();
    assert!(!disk.exists(&sub).unwrap());
    assert!(disk.free_bytes(&folder.0).unwrap() > 0);
}

#[test]
fn lock_file_keeps_a_second_one_out() {
    let folder = Folder::new("lock");
    let disk = PosixDisk::new();
    let lock = disk.lock(&folder.path("lock")).unwrap();
    let error = disk.lock(&folder.path("lock")).err().unwrap();
    assert_eq!(error.kind, IoKind::Locked);
    assert!(error.message.contains(&std::process::id().to_string()), "{error}");
    // Without its file the lock is still a lock.
    disk.remove(&folder.path("lock")).unwrap();
    assert_eq!(disk.lock(&folder.path("lock")).err().unwrap().kind, IoKind::Locked);
    drop(lock);
    disk.lock(&folder.path("lock")).unwrap();
}

#[test]
fn what_is_read_only_can_be_locked_where_it_is_there() {
    let disk = PosixDisk::new();
    // Not even root may write there.
    let path = std::path::Path::new("/sys/kernel/uevent_seqnum");
    assert!(std::fs::OpenOptions::new().write(true).open(path).is_err());
    let lock = disk.lock(path).unwrap();
    assert_eq!(disk.lock(path).err().unwrap().kind, IoKind::Locked);
    drop(lock);
    drop(disk.lock(path).unwrap());
    let error = disk.lock(&path.with_file_name("none")).err().unwrap();
    assert_eq!(error.kind, IoKind::ReadOnly, "{error}");
}

#[test]
fn queued_writes_arrive_whether_or_not_the_kernel_queues() {
    let folder = Folder::new("queue");
    for disk in [PosixDisk::new(), PosixDisk::with_uring(4)] {
        let path = folder.path("f");
        let file = disk.open(&path, OpenMode::Create, AccessHint::Bulk).unwrap();
        let mut regions = Vec::new();
        const BYTES: usize = 65_536;
        for i in 0..50u8 {
            let spare = regions.pop();
            let mut region = spare.unwrap_or_else(|| Region::new(Account::Other, BYTES).unwrap());
            region.fill(i);
            regions.extend(file.submit_write(region, BYTES, u64::from(i) * BYTES as u64).unwrap());
            assert!(regions.len() <= 1);
        }
        // The tail of a region, at an odd place: the ordinary way.
        let region = Region::zeroed(Account::Other, BYTES).unwrap();
        file.submit_write(region, 10, 50 * BYTES as u64).unwrap();
        file.drain().unwrap();
        file.sync_data().unwrap();
        let mut read = vec![0; BYTES];
        for i in 0..50u8 {
            file.read_at(&mut read, u64::from(i) * BYTES as u64).unwrap();
            assert!(read.iter().all(|&b| b == i));
        }
        assert_eq!(file.size_bytes().unwrap(), 50 * BYTES as u64 + 10);
        disk.remove(&path).unwrap();
    }
}

#[test]
fn file_dropped_with_writes_under_way_and_from_a_dead_thread() {
    let folder = Folder::new("drop");
    let disk = PosixDisk::with_uring(8);
    let submit = |file: &Arc<dyn File>| {
        for i in 0..8 {
            let mut region = Region::new(Account::Other, 65_536).unwrap();
            region.fill(9);
            file.submit_write(region, 65_536, i * 65_536).unwrap();
        }
    };
    let file = disk.open(&folder.path("a"), OpenMode::Create, AccessHint::Bulk).unwrap();
    submit(&file);
    drop(file);
    // Requests of a thread that ends may be cancelled: they must arrive all the same.
    let file = disk.open(&folder.path("b"), OpenMode::Create, AccessHint::Bulk).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| submit(&file));
    });
    file.drain().unwrap();
    let mut read = vec![0; 8 * 65_536];
    file.read_at(&mut read, 0).unwrap();
    assert!(read.iter().all(|&b| b == 9));
}

#[test]
fn failed_queued_write_is_told_and_stays_told() {
    let folder = Folder::new("failed");
    for disk in [PosixDisk::new(), PosixDisk::with_uring(2)] {
        let path = folder.path("f");
        let file = disk.open(&path, OpenMode::Create, AccessHint::Bulk).unwrap();
        let region = Region::zeroed(Account::Other, 4096).unwrap();
        // Beyond any file system's largest file.
        let offset = (i64::MAX as u64 - 8191) & !4095;
        let submitted = file.submit_write(region, 4096, offset).map(drop);
        let error = submitted.and_then(|()| file.drain()).unwrap_err();
        assert_eq!(error.offset, Some(offset));
        disk.remove(&path).unwrap();
    }
}

#[test]
fn status_says_what_is() {
    assert_eq!(PosixDisk::new().uring_status(), UringStatus::Off);
    match PosixDisk::with_uring(4).uring_status() {
        UringStatus::Active { depth } => assert_eq!(depth, 4),
        UringStatus::Refused(why) => assert!(why.starts_with("io_uring refused: ")),
        UringStatus::Off => panic!("it was asked for"),
    }
}

/// Takes a file out of the page cache, if that lets it go.
fn forget(path: &Path) {
    let plain = fs::File::open(path).unwrap();
    // SAFETY: the descriptor is open.
    assert_eq!(unsafe { libc::posix_fadvise(plain.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) }, 0);
}

/// On what this machine's temporary files lie.
#[test]
fn the_kernel_says_who_answers() {
    let folder = Folder::new("source");
    let disk = PosixDisk::new();
    let path = folder.path("f");
    let file = disk.open(&path, OpenMode::Create, AccessHint::Blocks).unwrap();
    file.write_at(&vec![7; 1 << 20], 0).unwrap();
    file.sync_all().unwrap();
    let mut bytes = vec![0; 16 << 10];
    let Some(source) = file.read_at_from(&mut bytes, 64 << 10).unwrap() else {
        eprintln!("NOT REACHED: the file system of {} does not tell", path.display());
        assert_eq!(file.read_at_from(&mut bytes, 0).unwrap(), None);
        return;
    };
    assert_eq!(source, Source::PageCache, "it was just written");
    // A file system that lies in memory keeps it there.
    let read = (0..10u64).map(|n| {
        forget(&path);
        [(); 2].map(|()| file.read_at_from(&mut bytes, n * (16 << 10)).unwrap().unwrap())
    });
    let read: Vec<_> = read.collect();
    match read.contains(&[Source::PageCache; 2]) {
        true => eprintln!("NOT REACHED: the page cache keeps what it is to forget: {read:?}"),
        false => assert_eq!(read, [[Source::Device, Source::PageCache]; 10]),
    }
    assert!(bytes.iter().all(|b| *b == 7));
}

/// On what this machine's temporary files lie.
#[test]
fn the_kernel_reads_what_was_asked_for_or_announced_and_nothing_else() {
    const BLOCK: u64 = 16 << 10;
    let folder = Folder::new("announced");
    let disk = PosixDisk::new();
    let path = folder.path("f");
    let made = disk.open(&path, OpenMode::Create, AccessHint::Bulk).unwrap();
    made.write_at(&vec![7; 4 << 20], 0).unwrap();
    made.sync_all().unwrap();
    let file = disk.open(&path, OpenMode::Read, AccessHint::Blocks).unwrap();
    file.read_along(false);
    let mut bytes = vec![0; BLOCK as usize];
    let mut read = |block: u64| file.read_at_from(&mut bytes, block * BLOCK).unwrap();
    forget(&path);
    if read(0) != Some(Source::Device) {
        eprintln!("NOT REACHED: the page cache keeps what it is to forget, or nobody tells");
        return;
    }
    // One after the other, as the kernel likes to go on. Now and then a device answers before the call that begins the read looks.
    let tries: Vec<_> = (0..20)
        .map(|_| {
            forget(&path);
            [0, 1, 2, 3, 4, 5, 8, 20].map(&mut read)
        })
        .collect();
    assert!(tries.contains(&[Some(Source::Device); 8]), "something was read along each time: {tries:?}");
    // What is announced comes with its first block, if the machine is not busy.
    let came = (0..20).any(|_| {
        forget(&path);
        file.will_need(100 * BLOCK, 8 * BLOCK);
        read(100);
        read(106) == Some(Source::PageCache)
    });
    assert!(came, "announced and never there");
}

#[test]
fn a_file_has_figures_until_it_is_removed() {
    let folder = Folder::new("figures");
    let disk = PosixDisk::with_uring(2);
    let (path, other) = (folder.path("f"), folder.path("g"));
    let of = |path: &Path| disk.clone().figures().into_iter().find(|f| f.path == *path).map(|f| f.figures);
    assert_eq!(of(&path), None);
    let file = disk.open(&path, OpenMode::Create, AccessHint::Log).unwrap();
    file.write_at(&[7; 100], 50).unwrap();
    file.write_durably(&[8; 60], 0, SyncMethod::Dsync).unwrap();
    file.write_durably(&[8; 60], 0, SyncMethod::Fdatasync).unwrap();
    file.sync_all().unwrap();
    let mut bytes = [0; 40];
    file.read_at(&mut bytes, 10).unwrap();
    file.read_at(&mut bytes, 200).unwrap_err();
    let figures = of(&path).unwrap();
    let times = [figures.read_ns, figures.write_ns, figures.sync_ns];
    assert!(times.iter().all(|ns| (1..10_000_000_000).contains(ns)), "{times:?}");
    let wanted =
        FileFigures { size_bytes: 150, reads: 2, read_bytes: 80, writes: 3, write_bytes: 220, syncs: 3, ..figures };
    assert_eq!(figures, wanted);
    file.set_size(30).unwrap();
    drop(file);
    // They outlive the handle, go with the name, and are another file's no more.
    disk.rename(&path, &other).unwrap();
    assert_eq!((of(&path), of(&other).map(|f| (f.size_bytes, f.writes))), (None, Some((30, 3))));
    let again = disk.open(&other, OpenMode::Read, AccessHint::Blocks).unwrap();
    again.read_at(&mut bytes[..5], 0).unwrap();
    assert_eq!(of(&other).map(|f| f.reads), Some(3));
    disk.remove(&other).unwrap();
    again.read_at(&mut bytes[..5], 0).unwrap();
    assert_eq!(of(&other), None);
    drop(disk.open(&other, OpenMode::Create, AccessHint::Bulk).unwrap());
    assert_eq!(of(&other), Some(FileFigures::default()));
}

#[test]
fn queued_writes_are_their_files() {
    let folder = Folder::new("queued");
    let disk = PosixDisk::with_uring(2);
    let path = folder.path("f");
    let file = disk.open(&path, OpenMode::Create, AccessHint::Bulk).unwrap();
    for i in 0..4 {
        let region = Region::zeroed(Account::BulkBuffer, 4096).unwrap();
        drop(file.submit_write(region, 4096, i * 4096).unwrap());
    }
    file.sync_data().unwrap();
    let figures = disk.figures().remove(0).figures;
    assert_eq!((figures.writes, figures.write_bytes, figures.size_bytes, figures.syncs), (4, 4 << 12, 4 << 12, 1));
    assert!(figures.write_ns > 0);
}

#[test]
fn a_file_with_holes_does_not_own_its_space() {
    let folder = Folder::new("own-space");
    let disk = PosixDisk::new();
    const MIB: u64 = 1 << 20;
    let open = |name: &str| disk.open(&folder.path(name), OpenMode::Create, AccessHint::Log).unwrap();
    let whole = open("whole");
    whole.write_at(&vec![1; MIB as usize], 0).unwrap();
    assert!(whole.owns_space().unwrap());
    // Extents that lie apart, more of them than are asked for at once.
    let holes = open("holes");
    holes.set_size(2 * MIB).unwrap();
    if holes.owns_space().unwrap() {
        println!("not looked at: the file system of {} does not tell", folder.0.display());
        return;
    }
    for n in 0..256 {
        holes.write_at(&[1; 4096], 2 * n * 4096).unwrap();
    }
    assert!(!holes.owns_space().unwrap());
    for n in 0..256 {
        assert!(!holes.owns_space().unwrap(), "hole {n}");
        holes.write_at(&[1; 4096], (2 * n + 1) * 4096).unwrap();
    }
    assert!(holes.owns_space().unwrap());
    let reserved = open("reserved");
    reserved.set_size(MIB).unwrap();
    reserved.reserve(0, MIB).unwrap();
    assert!(reserved.owns_space().unwrap());
    assert!(open("empty").owns_space().unwrap());
}

#[test]
fn only_regular_files_are_opened() {
    let folder = Folder::new("kinds");
    let disk = PosixDisk::new();
    let pipe = folder.path("pipe");
    let name = std::ffi::CString::new(pipe.as_os_str().as_encoded_bytes()).unwrap();
    // SAFETY: the name ends with a zero.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    // Whoever holds both ends keeps an open without the check from waiting, so that the test would end.
    let _ends = fs::OpenOptions::new().read(true).write(true).open(&pipe).unwrap();
    for path in [&pipe, &folder.0, Path::new("/dev/zero")] {
        for mode in [OpenMode::Read, OpenMode::Write] {
            let error = disk.open(path, mode, AccessHint::Blocks).err().unwrap();
            assert_eq!((error.kind, error.path.as_path()), (IoKind::Failed, path as &Path));
            assert!(error.message.contains("no regular file"), "{error}");
        }
    }
}
