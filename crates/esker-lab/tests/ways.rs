//! All ways of writing leave the same bytes, and all ways of reading find the same records.

#![allow(clippy::unwrap_used)]

use esker_lab::records::{sum_of, Records, Shape};
use esker_lab::writers::{self, Target, Way};
use esker_lab::{readers, LabError};

#[test]
fn every_way_writes_and_reads_the_same() {
    let folder = std::env::temp_dir().join(format!("esker-lab-ways-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    for (shape, count, buffer) in [
        (Shape::Static, 0, 4096),
        (Shape::Static, 1, 4096),
        (Shape::Dynamic, 5000, 4096),
        (Shape::Static, 9000, 131_072),
    ] {
        let records = Records::new(shape, 103, count, 3);
        let mut files = Vec::new();
        for way in Way::ALL {
            let path = folder.join(way.name());
            let mut writer = match writers::open(way, &Target::new(&path, buffer)) {
                Err(LabError::Unsupported(_)) => continue,
                writer => writer.unwrap(),
            };
            (0..count).for_each(|i| writer.put(records.get(i)).unwrap());
            let (_, tally) = writer.finish().unwrap();
            assert_eq!(tally.bytes, records.total_bytes());
            files.push(std::fs::read(&path).unwrap());
            assert!(files[0] == files[files.len() - 1], "{way:?} wrote other bytes");
            let mut reader = readers::open(way, &Target::new(&path, buffer)).unwrap();
            assert_eq!(reader.calls(), 0, "{way:?} reads before it is asked to");
            let (mut record, mut sum) = (vec![0; 103], 0);
            for i in 0..count {
                let record = &mut record[..records.length(i)];
                reader.take(record).unwrap();
                sum = sum_of(sum, record);
            }
            assert_eq!(sum, records.sum(records.all()), "{way:?}");
            assert!(matches!(reader.take(&mut [0; 1]), Err(LabError::Invalid(_))), "{way:?} read on");
        }
        assert_eq!(files[0].len() as u64, records.total_bytes());
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn windows_of_any_size_write_and_read_the_same() {
    let path = std::env::temp_dir().join(format!("esker-lab-windows-{}", std::process::id()));
    for (window_bytes, count) in
        [(1, 40), (3, 100), (102, 500), (4095, 5000), (5000, 5000), (4097, 5000), ((1 << 20) + 1, 30_000)]
    {
        let records = Records::new(Shape::Dynamic, 103, count, 7);
        let bytes: Vec<u8> = (0..count).flat_map(|i| records.get(i).to_vec()).collect();
        // From the file's beginning, and from somewhere within a page behind what is another's.
        for start in [0, 4133] {
            let target = Target { window_bytes, start, existing: start > 0, ..Target::new(&path, 4096) };
            std::fs::write(&path, vec![0xA5; start as usize]).unwrap();
            let mut writer = writers::open(Way::Mapped, &target).unwrap();
            (0..count).for_each(|i| writer.put(records.get(i)).unwrap());
            let (_, tally) = writer.finish().unwrap();
            let windows = bytes.len().div_ceil(window_bytes) as u64;
            assert_eq!((tally.bytes, tally.overflows + tally.last), (bytes.len() as u64, windows), "{window_bytes}");
            let found = std::fs::read(&path).unwrap();
            assert!(found[start as usize..] == bytes && found[..start as usize].iter().all(|b| *b == 0xA5));
            let mut reader = readers::open(Way::Mapped, &target).unwrap();
            for i in 0..count {
                let mut record = vec![0; records.length(i)];
                reader.take(&mut record).unwrap();
                assert!(record == records.get(i), "{window_bytes} from {start}: record {i}");
            }
            assert!(matches!(reader.take(&mut [0; 1]), Err(LabError::Invalid(_))), "{window_bytes}: read on");
        }
    }
    std::fs::remove_file(&path).unwrap();
}
