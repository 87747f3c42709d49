use super::*;
use crate::{PosixDisk, SimDisk};
use esker_base::trace::Source;
use esker_base::SessionCounters;

fn sim(seed: u64) -> (SimDisk, Arc<dyn Disk>) {
    let disk = SimDisk::new(seed);
    (disk.clone(), Arc::new(disk))
}

fn bytes(n: usize) -> Vec<u8> {
    (0..n).map(|i| (i * 31 % 251) as u8).collect()
}

fn read_all(disk: &Arc<dyn Disk>, path: &Path) -> Vec<u8> {
    let file = disk.open(path, OpenMode::Read, AccessHint::Blocks).unwrap();
    let mut read = vec![0; file.size_bytes().unwrap() as usize];
    file.read_at(&mut read, 0).unwrap();
    read
}

#[test]
fn any_size_in_any_pieces_comes_back_exactly() {
    let path = Path::new("f");
    for size in [0, 1, 4095, 4096, 4097, 16_384, 16_385, 100_000, 3 << 20] {
        for piece in [1000, 4096, 40_000, 5 << 20] {
            let (_, disk) = sim(1);
            let mut writer = SequentialWriter::create(&disk, path, AccessHint::Bulk, 16_000, Account::Other).unwrap();
            let all = bytes(size);
            for (i, piece_bytes) in all.chunks(piece).enumerate() {
                assert_eq!(writer.append(piece_bytes).unwrap(), (i * piece) as u64);
            }
            assert_eq!(writer.position(), size as u64);
            let (file, size_bytes) = writer.finish().unwrap();
            assert_eq!(size_bytes, size as u64);
            assert_eq!(file.size_bytes().unwrap(), size as u64);
            assert_eq!(read_all(&disk, path), all);
        }
    }
}

#[test]
fn whole_buffers_are_written_once_and_the_reserve_is_given_back() {
    let (sim, disk) = sim(1);
    let session = SessionCounters::new();
    let _bound = esker_base::counters::bind(&session);
    let path = Path::new("f");
    let mut writer = SequentialWriter::create(&disk, path, AccessHint::Bulk, 65_536, Account::Other).unwrap();
    for _ in 0..100 {
        writer.append(&bytes(10_000)).unwrap();
    }
    assert!(sim.used_bytes() > 1_000_000);
    writer.finish().unwrap();
    assert_eq!(sim.used_bytes(), 1_003_520);
    let get = |counter| session.get(counter);
    assert_eq!(get(Counter::BufferWrites), 16);
    assert_eq!(get(Counter::WritesRun), 16);
    assert_eq!(get(Counter::BytesWrittenRun), 1_003_520);
    assert_eq!(get(Counter::SyncsRun), 1);
}

#[test]
fn finished_file_survives_a_power_cut() {
    let (sim, disk) = sim(1);
    let path = Path::new("f");
    let mut writer = SequentialWriter::create(&disk, path, AccessHint::Bulk, 8192, Account::Other).unwrap();
    writer.append(&bytes(50_001)).unwrap();
    writer.finish().unwrap();
    disk.sync_dir(Path::new("")).unwrap();
    for seed in 0..100 {
        let after: Arc<dyn Disk> = Arc::new(sim.after_power_cut(seed));
        assert_eq!(read_all(&after, path), bytes(50_001));
    }
}

#[test]
fn every_fault_is_told_and_never_hidden() {
    let path = Path::new("f");
    let write = |disk: &Arc<dyn Disk>, hint| -> Result<u64> {
        let mut writer = SequentialWriter::create(disk, path, hint, 8192, Account::Other)?;
        for _ in 0..20 {
            writer.append(&bytes(5000))?;
        }
        Ok(writer.finish()?.1)
    };
    for (hint, write_backs) in [(AccessHint::Bulk, 0), (AccessHint::Kept, 13 + 5)] {
        let (clean, disk) = sim(0);
        write(&disk, hint).unwrap();
        assert_eq!(clean.op_log().iter().filter(|op| op.operation == "write back").count(), write_backs);
        for operation in 1..=clean.op_count() {
            let (faulty, disk) = sim(operation);
            faulty.fail_once(operation, IoKind::Failed);
            assert_eq!(write(&disk, hint).unwrap_err().kind, IoKind::Failed, "{hint:?}, operation {operation}");
        }
    }
}

/// What is on its way to the device is bounded, and every byte was sent once.
#[test]
fn a_kept_file_is_sent_behind_the_writing() {
    let (sim, disk) = sim(1);
    let session = SessionCounters::new();
    let _bound = esker_base::counters::bind(&session);
    let mut writer = SequentialWriter::create(&disk, Path::new("f"), AccessHint::Kept, 4096, Account::Other).unwrap();
    let ops = |from: u64| sim.op_log().into_iter().filter(move |op| op.number > from && op.operation == "write back");
    for n in 1..=20u64 {
        let before = sim.op_count();
        writer.append(&bytes(4096)).unwrap();
        let sent: Vec<_> = ops(before).map(|op| (op.offset.unwrap() / 4096, op.bytes.unwrap() / 4096)).collect();
        let expected = [(n - 1, 1)].into_iter().chain(n.checked_sub(9).map(|arrived| (arrived, 1)));
        assert_eq!(sent, expected.collect::<Vec<_>>(), "buffer {n}");
    }
    writer.finish().unwrap();
    assert_eq!((session.get(Counter::BufferWrites), session.get(Counter::BufferWritesKept)), (20, 20));
}

#[test]
fn failure_sticks() {
    let (faulty, disk) = sim(1);
    let mut writer = SequentialWriter::create(&disk, Path::new("f"), AccessHint::Bulk, 4096, Account::Other).unwrap();
    faulty.fail_once(2, IoKind::Failed);
    writer.append(&bytes(4096)).unwrap_err();
    writer.append(b"x").unwrap_err();
    assert_eq!(writer.finish().err().unwrap().kind, IoKind::Failed);
}

#[test]
fn full_disk_is_used_to_the_last_page() {
    let (faulty, disk) = sim(1);
    faulty.capacity(Some(40 * 4096));
    let write = |size| -> Result<u64> {
        let path = Path::new("f");
        let mut writer = SequentialWriter::create(&disk, path, AccessHint::Bulk, 8192, Account::Other)?;
        let result = writer.append(&bytes(size)).and_then(|_| Ok(writer.finish()?.1));
        disk.remove(path)?;
        result
    };
    assert_eq!(write(40 * 4096).unwrap(), 40 * 4096);
    assert_eq!(write(40 * 4096 + 1).unwrap_err().kind, IoKind::DiskFull);
    assert_eq!(faulty.used_bytes(), 0);
}

#[test]
fn memory_is_one_buffer_and_goes_back() {
    let (_, disk) = sim(1);
    let before = esker_memory::charged(Account::Catalog);
    let mut writer =
        SequentialWriter::create(&disk, Path::new("f"), AccessHint::Bulk, 65_536, Account::Catalog).unwrap();
    assert_eq!(esker_memory::charged(Account::Catalog), before);
    writer.append(&bytes(300_000)).unwrap();
    assert_eq!(esker_memory::charged(Account::Catalog) - before, 65_536);
    writer.finish().unwrap();
    assert_eq!(esker_memory::charged(Account::Catalog), before);
}

#[test]
fn real_disk_plain_and_queued() {
    let folder = std::env::temp_dir().join(format!("esker-io-{}-writer", std::process::id()));
    let ways = [
        ("plain", PosixDisk::new(), AccessHint::Bulk),
        ("queued", PosixDisk::with_uring(4), AccessHint::Bulk),
        ("kept", PosixDisk::with_uring(4), AccessHint::Kept),
    ];
    for (name, disk, hint) in ways {
        let disk: Arc<dyn Disk> = Arc::new(disk);
        disk.create_dir(&folder).unwrap();
        let path = folder.join(name);
        let mut writer = SequentialWriter::create(&disk, &path, hint, 65_536, Account::Other).unwrap();
        let all = bytes(2_000_001);
        for piece in all.chunks(7000) {
            writer.append(piece).unwrap();
        }
        let (file, size) = writer.finish().unwrap();
        assert_eq!(size, 2_000_001);
        let mut read = vec![0; size as usize];
        let source = file.read_at_from(&mut read, 0).unwrap();
        assert!(read == all);
        // None: this file system does not tell.
        assert!(hint == AccessHint::Bulk || source != Some(Source::Device), "{name}: it was not kept");
        disk.remove(&path).unwrap();
    }
    let _ = std::fs::remove_dir(&folder);
}
