//! Layouts, records, frames, run parts and manifests give back what was put into them, and refuse what was damaged,
//! cut short, misplaced, or written by a newer version.
#![allow(clippy::unwrap_used)]

mod common;

use common::decoders::entry;
use common::samples::{manifest, records};
use common::{layout_of, random_layout, Rng};
use esker_format::{
    block_context, frame, manifest as man, run, Column, ColumnKind, FileId, FormatError, Layout, Lsn, Manifest,
    NullBit, RecordReader, RowId, RunFooter, RunHeader, RunStats, SegmentHeader, TreeId,
};
use proptest::prelude::*;
use xxhash_rust::xxh3::xxh3_64_with_seed;

proptest! {
    #[test]
    fn layouts_round_trip(seed: u64) {
        let layout = random_layout(&mut Rng(seed), true);
        let mut bytes = Vec::new();
        layout.encode(&mut bytes);
        prop_assert_eq!(Layout::decode(&bytes), Ok(layout));
        for cut in 0..bytes.len() {
            prop_assert!(Layout::decode(&bytes[..cut]).is_err());
        }
    }

    #[test]
    fn records_round_trip(seed: u64) {
        let records = records(&mut Rng(seed));
        let mut bytes = Vec::new();
        for (i, record) in records.iter().enumerate() {
            bytes.resize(bytes.len() + i % 3, 0);
            let start = bytes.len();
            record.encode(&mut bytes);
            for cut in start + 1..bytes.len() {
                let some: Vec<_> = RecordReader::new(&bytes[start..cut]).collect();
                prop_assert!(some.len() == 1 && some[0].is_err());
            }
        }
        bytes.resize(bytes.len() + 5, 0);
        let again: Result<Vec<_>, _> = RecordReader::new(&bytes).collect();
        prop_assert_eq!(again, Ok(records));
    }

    #[test]
    fn manifests_round_trip(seed: u64, flip: u64) {
        let manifest = manifest(&mut Rng(seed));
        let mut bytes = Vec::new();
        manifest.encode(&mut bytes);
        let whole = bytes.len();
        prop_assert_eq!(Manifest::decode(&bytes), Ok(manifest.clone()));
        bytes.extend_from_slice(&[9; 20]);
        prop_assert_eq!(Manifest::decode(&bytes), Ok(manifest));
        for cut in 0..whole {
            prop_assert!(Manifest::decode(&bytes[..cut]).is_err());
        }
        let bit = flip as usize % (whole * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(Manifest::decode(&bytes).is_err());
    }

    #[test]
    fn frames_round_trip(lsn: u64, generation: u32, payload: Vec<u8>, flip: usize) {
        let mut bytes = Vec::new();
        frame::encode_frame(Lsn(lsn), generation, &payload, &mut bytes);
        let whole = bytes.len();
        prop_assert_eq!(whole, frame::frame_bytes(payload.len()));
        bytes.push(1);
        let frame = frame::parse_frame(&bytes, Lsn(lsn), generation).unwrap().unwrap();
        prop_assert_eq!((frame.lsn, frame.payload, frame.bytes()), (Lsn(lsn), &payload[..], whole));
        prop_assert_eq!(frame::parse_frame(&bytes, Lsn(lsn ^ 1), generation), Ok(None));
        prop_assert_eq!(frame::parse_frame(&bytes, Lsn(lsn), generation ^ 1), Ok(None));
        for cut in 0..whole {
            let short = frame::parse_frame(&bytes[..cut], Lsn(lsn), generation).unwrap_err();
            let need = if cut < frame::FRAME_HEADER_BYTES { frame::FRAME_HEADER_BYTES } else { whole };
            prop_assert_eq!(short, FormatError::Truncated { what: "log frame", need: need as u64, have: cut as u64 });
        }
        let bit = flip % (whole * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(!matches!(frame::parse_frame(&bytes, Lsn(lsn), generation), Ok(Some(_))));
    }

    #[test]
    fn segment_headers_round_trip(generation: u32, lsn: u64, flip: usize) {
        let header = SegmentHeader { generation, first_lsn: Lsn(lsn) };
        let mut bytes = Vec::new();
        header.encode(&mut bytes);
        prop_assert_eq!(SegmentHeader::decode(&bytes), Ok(header));
        let bit = flip % (bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(SegmentHeader::decode(&bytes).is_err());
    }

    #[test]
    fn run_parts_round_trip(file: u64, tree: u64, n in 0..50u64, flip: usize) {
        let (file, tree) = (FileId(file), TreeId(tree));
        let header = RunHeader { file, tree, fingerprint: 5, created_unix_s: 6 };
        let mut bytes = Vec::new();
        header.encode(&mut bytes);
        prop_assert_eq!(bytes.len(), run::RUN_HEADER_BYTES);
        prop_assert_eq!(RunHeader::decode(&bytes), Ok(header));
        let bit = flip % (bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(RunHeader::decode(&bytes).is_err());

        let blocks: Vec<_> = (0..n).map(|i| entry(4096 + 100 * i, 2 * i)).collect();
        let mut stats = RunStats::default();
        blocks.iter().for_each(|b| stats.add(b));
        prop_assert_eq!((stats.rows, stats.blocks), (3 * n, n));
        let mut index = Vec::new();
        run::encode_index(file, &blocks, &mut index);
        prop_assert_eq!(run::decode_index(file, &index), Ok(blocks));
        let other = run::decode_index(file.next_or_first(), &index);
        let checksum = matches!(other, Err(FormatError::Checksum { .. }));
        prop_assert!(checksum);

        let index_bytes = index.len() as u64;
        let footer = RunFooter { file, tree, index_offset: 4096 + 100 * n, index_bytes, stats };
        let file_bytes = footer.index_offset + index_bytes + run::RUN_FOOTER_BYTES as u64;
        let mut bytes = vec![1, 2, 3];
        footer.encode(&mut bytes);
        prop_assert_eq!(RunFooter::decode(&bytes, file_bytes), Ok(footer));
        prop_assert!(RunFooter::decode(&bytes, file_bytes - 1).is_err());
        let bit = 24 + flip % (run::RUN_FOOTER_BYTES * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(RunFooter::decode(&bytes, file_bytes).is_err());
        let bit = flip % (index.len() * 8);
        index[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(run::decode_index(file, &index).is_err());
    }
}

/// Another file.
trait NextOrFirst {
    fn next_or_first(self) -> Self;
}

impl NextOrFirst for FileId {
    fn next_or_first(self) -> Self {
        FileId(self.0.wrapping_add(1))
    }
}

#[test]
fn newer_versions_are_named() {
    let bump = |bytes: &mut Vec<u8>, sum_at: usize, version_at: usize, seed: u64| {
        bytes[version_at] += 1;
        let sum = xxh3_64_with_seed(&bytes[sum_at + 8..], seed);
        bytes[sum_at..sum_at + 8].copy_from_slice(&sum.to_le_bytes());
    };
    let newer =
        |e: FormatError| matches!(e, FormatError::NewerVersion { found, supported, .. } if found == supported + 1);

    let mut bytes = Vec::new();
    Manifest::default().encode(&mut bytes);
    bump(&mut bytes, 0, man::manifest_at::VERSION, man::MANIFEST_MAGIC);
    assert!(newer(Manifest::decode(&bytes).unwrap_err()));

    let mut bytes = Vec::new();
    SegmentHeader { generation: 1, first_lsn: Lsn(1) }.encode(&mut bytes);
    bump(&mut bytes, 0, frame::segment_at::VERSION, frame::SEGMENT_MAGIC);
    assert!(newer(SegmentHeader::decode(&bytes).unwrap_err()));

    let mut bytes = Vec::new();
    RunHeader { file: FileId(1), tree: TreeId(1), fingerprint: 1, created_unix_s: 1 }.encode(&mut bytes);
    bump(&mut bytes, 8, run::header_at::VERSION, run::RUN_MAGIC);
    assert!(newer(RunHeader::decode(&bytes).unwrap_err()));

    let mut bytes = Vec::new();
    run::encode_index(FileId(1), &[], &mut bytes);
    bump(&mut bytes, 0, run::index_at::VERSION, block_context(FileId(1), run::INDEX_MAGIC));
    assert!(newer(run::decode_index(FileId(1), &bytes).unwrap_err()));
}

#[test]
fn zeros_are_no_frame() {
    assert_eq!(frame::parse_frame(&[0; 100], Lsn(4096), 1), Ok(None));
    assert_eq!(frame::parse_frame(&[0; 100], Lsn::ZERO, 0), Ok(None));
}

#[test]
fn index_entries_must_be_in_order() {
    let wrong = [
        vec![entry(4095, 1)],
        vec![entry(5000, 1), entry(5099, 4)],
        vec![entry(5000, 10), entry(5100, 11)],
        vec![esker_format::BlockEntry { rows: 0, ..entry(5000, 1) }],
        vec![esker_format::BlockEntry { tombstones: 4, ..entry(5000, 1) }],
        vec![esker_format::BlockEntry { supersedes: 4, ..entry(5000, 1) }],
        vec![esker_format::BlockEntry { stored_bytes: u32::MAX, ..entry(5000, 1) }],
        vec![esker_format::BlockEntry { last_id: RowId(0), ..entry(5000, 1) }],
    ];
    for blocks in wrong {
        let mut bytes = Vec::new();
        run::encode_index(FileId(1), &blocks, &mut bytes);
        assert!(run::decode_index(FileId(1), &bytes).is_err(), "{blocks:?}");
    }
}

#[test]
fn wrong_layouts_are_refused() {
    let good = layout_of(&[ColumnKind::Fixed { width: 4 }, ColumnKind::Blob { len_bytes: 2 }], |_| true);
    let with = |change: &dyn Fn(&mut Layout)| {
        let mut layout = good.clone();
        change(&mut layout);
        layout.validate()
    };
    assert!(with(&|_| {}).is_ok());
    assert!(with(&|l| l.image_bytes -= 1).is_err());
    assert!(with(&|l| l.image_bytes = u32::MAX).is_err());
    assert!(with(&|l| l.head_bytes = 2).is_err());
    assert!(with(&|l| l.head_bytes = 1000).is_err());
    assert!(with(&|l| l.columns[1].offset -= 1).is_err());
    assert!(with(&|l| l.columns[1].offset = u32::MAX).is_err());
    assert!(with(&|l| l.columns[0].kind = ColumnKind::Fixed { width: u32::MAX }).is_err());
    assert!(with(&|l| l.columns[1].kind = ColumnKind::Blob { len_bytes: 5 }).is_err());
    assert!(with(&|l| l.columns[1].kind = ColumnKind::Blob { len_bytes: 0 }).is_err());
    assert!(with(&|l| l.columns[0].kind = ColumnKind::Var { len_bytes: 3, max: 1 }).is_err());
    assert!(with(&|l| l.columns[0].kind = ColumnKind::Var { len_bytes: 1, max: 256 }).is_err());
    assert!(with(&|l| l.columns[0].null = Some(NullBit { byte: 1, mask: 1 })).is_err());
    assert!(with(&|l| l.columns[0].null = Some(NullBit { byte: 0, mask: 3 })).is_err());
    let far = Column { kind: ColumnKind::Fixed { width: 0 }, offset: 0, null: None };
    assert!(with(&|l| l.columns.push(far)).is_err());
}
