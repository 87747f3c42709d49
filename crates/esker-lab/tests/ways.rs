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
