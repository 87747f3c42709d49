//! Layouts, records, frames, run parts and manifests give back what was put into them, and refuse what was damaged,
//! cut short, misplaced, or written by a newer version.
#![allow(clippy::unwrap_used)]

mod common;

use common::decoders::entry;
use common::samples::{key_entry, manifest, records, segment_header};
use common::{layout_of, random_layout, read_part, run_tail, section_of, Rng};
use esker_format::run::{key_bound, section_kind, MoreSections, Part, Section, BOUND_BYTES};
use esker_format::{
    block_context, frame, manifest as man, run, BlockEntry, BlockKind, Column, ColumnKind, FileId, FolderId,
    FormatError, KeyBlockEntry, Layout, Lsn, Manifest, NullBit, RecordReader, RowId, RunFooter, RunHeader,
    SegmentHeader, TreeId,
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
        common::encode_frame(Lsn(lsn), generation, &payload, &mut bytes);
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
        let header = SegmentHeader { generation, tag: generation ^ 5, first_lsn: Lsn(lsn), ..segment_header(&mut Rng(lsn)) };
        let mut bytes = Vec::new();
        header.encode(&mut bytes);
        prop_assert_eq!(SegmentHeader::decode(&bytes), Ok(header));
        let bit = flip % (bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(SegmentHeader::decode(&bytes).is_err());
    }

    #[test]
    fn run_headers_and_footers_round_trip(file: u64, folder: u128, tree: u64, flip: usize) {
        let (file, tree) = (FileId(file), TreeId(tree));
        let header = RunHeader { file, folder: FolderId(folder.to_le_bytes()), created_unix_s: 6 };
        let mut bytes = Vec::new();
        header.encode(&mut bytes);
        prop_assert_eq!(bytes.len(), run::RUN_HEADER_BYTES);
        prop_assert_eq!(RunHeader::decode(&bytes), Ok(header));
        let bit = flip % (bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(RunHeader::decode(&bytes).is_err());

        let places = [5000, 6000].map(|offset| run::PartPlace { tree, offset, bytes: 1000 });
        let mut bytes = vec![0; 7000];
        run::encode_end(file, &places, 0, &mut bytes);
        let file_bytes = bytes.len() as u64;
        let footer = RunFooter::decode(&bytes, file_bytes).unwrap();
        prop_assert_eq!((footer.file, footer.parts, footer.directory_offset), (file, 2, 7000));
        prop_assert!(RunFooter::decode(&bytes, file_bytes - 1).is_err());
        let directory = &mut bytes[7000..][..footer.directory_bytes() as usize];
        prop_assert_eq!(footer.decode_directory(directory), Ok(places.to_vec()));
        let bit = flip % (directory.len() * 8);
        directory[bit / 8] ^= 1 << (bit % 8);
        let damaged = footer.decode_directory(directory);
        let checksum = matches!(damaged, Err(FormatError::Checksum { .. }));
        prop_assert!(checksum);
        let end = bytes.len() - run::RUN_FOOTER_BYTES;
        let bit = flip % (run::RUN_FOOTER_BYTES * 8);
        bytes[end + bit / 8] ^= 1 << (bit % 8);
        prop_assert!(RunFooter::decode(&bytes, file_bytes).is_err());
    }

    #[test]
    fn parts_round_trip(n in 0..150u64, many in 0..150u64, flip: usize) {
        let file = FileId(9);
        let mut bytes = Vec::new();
        RunHeader { file, folder: FolderId([1; 16]), created_unix_s: 6 }.encode(&mut bytes);
        let first: Vec<_> = (0..n).map(|i| entry(4096 + 100 * i, 2 * i)).collect();
        let second: Vec<_> = (0..many).map(|i| entry(300_000 + 100 * i, 3 * i)).collect();
        bytes.resize(200_000, 0);
        let parts = [(TreeId(5), first.clone()), (TreeId(6), second.clone())];
        let (tail, places) = run_tail(file, &parts, bytes.len() as u64);
        bytes.extend_from_slice(&tail);
        for (number, entries) in (0..).zip([first, second]) {
            let (_, part, found, stats) = read_part::<BlockEntry>(&bytes, number).unwrap();
            prop_assert_eq!((part.number, part.tree, part.fingerprint), (number, TreeId(5 + u64::from(number)), 7));
            prop_assert_eq!((stats.rows, stats.blocks), (3 * entries.len() as u64, entries.len() as u64));
            prop_assert_eq!(found, entries);
        }
        // Every bit of the first part's end is covered: pages, top level, statistics, footer.
        let end = 200_000..places[0].offset as usize + places[0].bytes as usize;
        let bit = end.start * 8 + flip % (end.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(read_part::<BlockEntry>(&bytes, 0).is_err());
        prop_assert!(read_part::<BlockEntry>(&bytes, 1).is_ok());
    }
}

#[test]
fn an_index_of_keys_has_bounds_that_hold_them() {
    let mut file = Vec::new();
    RunHeader { file: FileId(9), folder: FolderId::default(), created_unix_s: 6 }.encode(&mut file);
    let long = |byte: u8, end: &str| [&[byte; 70][..], end.as_bytes()].concat();
    let keys: Vec<Vec<u8>> = (0..200).map(|i| long(b'a' + i / 10, &i.to_string())).collect();
    let entry = |(i, pair): (usize, &[Vec<u8>])| key_entry(4096 + 100 * i as u64, &pair[0], &pair[1]);
    let written: Vec<_> = keys.chunks(2).enumerate().map(entry).collect();
    file.resize(20_000, 0);
    file.extend_from_slice(&run_tail(FileId(9), &[(TreeId(1), written.clone())], 20_000).0);
    let (_, part, found, _) = read_part::<KeyBlockEntry>(&file, 0).unwrap();
    assert_eq!(part.blocks, BlockKind::Keys);
    let top = section_of(&file, part.section(section_kind::INDEX_TOP).unwrap());
    let leaves = part.decode_top(FileId(9), top).unwrap();
    assert!(leaves.len() > 3 && leaves.iter().all(|l| l.bytes as usize <= run::LEAF_BYTES));
    for (found, written) in found.iter().zip(&written) {
        assert_eq!(found.block, written.block);
        assert!(found.first_key.len() <= BOUND_BYTES && found.last_key.len() <= BOUND_BYTES);
        for key in [&written.first_key, &written.last_key] {
            assert!(found.first_key[..] <= *key_bound(key) && *key_bound(key) <= found.last_key[..]);
        }
    }
    // Rows are not in order there, and an index of rows has no keys.
    assert!(read_part::<BlockEntry>(&file, 0).is_err());
}

/// A part with one more section than there are kinds.
fn with_section(kind: u32, version: u16, required: bool) -> Result<Part, FormatError> {
    let mut out = vec![1; 5000];
    let mut section = Section::written(FileId(1), kind, required, 0, &out, 4096..5000);
    section.version = version;
    let (tree, sections) = (TreeId(1), vec![section]);
    let part = Part { number: 0, tree, fingerprint: 1, blocks: BlockKind::Rows, first_block: 4096, sections };
    let place = part.encode(FileId(1), 0, &mut out);
    Part::decode(FileId(1), 0, &[place], &out[5000..])
}

#[test]
fn unknown_sections_are_passed_over_unless_they_are_needed() {
    assert_eq!(with_section(77, 1, false).unwrap().sections, []);
    let refused = with_section(77, 1, true).unwrap_err();
    assert!(matches!(refused, FormatError::Unknown { found: 77, .. }), "{refused:?}");
    assert!(refused.to_string().contains("section of a run 77 is not known here"), "{refused}");
    assert_eq!(with_section(section_kind::STATISTICS, 1, true).unwrap().sections.len(), 1);
    // A newer version of a known kind is like an unknown one.
    assert_eq!(with_section(section_kind::STATISTICS, 2, false).unwrap().sections, []);
    let newer = with_section(section_kind::STATISTICS, 2, true).unwrap_err();
    assert!(matches!(newer, FormatError::NewerVersion { found: 2, .. }), "{newer:?}");
    assert!(with_section(77, 1, false).unwrap().section(section_kind::INDEX_TOP).is_err());
}

#[test]
fn a_run_that_needs_unknown_features_or_keys_is_refused() {
    let with = |at: usize| {
        let mut bytes = Vec::new();
        RunHeader { file: FileId(1), folder: FolderId::default(), created_unix_s: 1 }.encode(&mut bytes);
        bytes[at] = 2;
        let sum = xxh3_64_with_seed(&bytes[16..], run::RUN_MAGIC);
        bytes[8..16].copy_from_slice(&sum.to_le_bytes());
        RunHeader::decode(&bytes)
    };
    assert!(matches!(with(run::header_at::REQUIRED), Err(FormatError::Unknown { found: 2, .. })));
    for at in [run::header_at::KEY_ID, run::header_at::KEY_VERSION] {
        assert!(matches!(with(at), Err(FormatError::Invalid { what: "run key", .. })));
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
    segment_header(&mut Rng(1)).encode(&mut bytes);
    bump(&mut bytes, 0, frame::segment_at::VERSION, frame::SEGMENT_MAGIC);
    assert!(newer(SegmentHeader::decode(&bytes).unwrap_err()));

    let mut bytes = Vec::new();
    RunHeader { file: FileId(1), folder: FolderId::default(), created_unix_s: 1 }.encode(&mut bytes);
    bump(&mut bytes, 8, run::header_at::VERSION, run::RUN_MAGIC);
    assert!(newer(RunHeader::decode(&bytes).unwrap_err()));

    let (mut bytes, places) = run_tail::<BlockEntry>(FileId(1), &[(TreeId(1), Vec::new())], 4096);
    bytes.truncate(places[0].offset as usize - 4096 + places[0].bytes as usize);
    let mut part = bytes.split_off(places[0].offset as usize - 4096);
    bump(&mut part, 0, run::part_at::VERSION, block_context(FileId(1), places[0].offset));
    assert!(newer(Part::decode(FileId(1), 0, &places, &part).unwrap_err()));
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
        vec![BlockEntry { rows: 0, ..entry(5000, 1) }],
        vec![BlockEntry { tombstones: 4, ..entry(5000, 1) }],
        vec![BlockEntry { supersedes: 4, ..entry(5000, 1) }],
        vec![BlockEntry { stored_bytes: u32::MAX, ..entry(5000, 1) }],
        vec![BlockEntry { last_id: RowId(0), ..entry(5000, 1) }],
    ];
    let refused = |blocks: Vec<BlockEntry>| {
        let mut file = Vec::new();
        RunHeader { file: FileId(1), folder: FolderId::default(), created_unix_s: 1 }.encode(&mut file);
        file.resize(9000, 0);
        file.extend_from_slice(&run_tail(FileId(1), &[(TreeId(1), blocks.clone())], 9000).0);
        assert!(read_part::<BlockEntry>(&file, 0).is_err(), "{blocks:?}");
    };
    wrong.into_iter().for_each(refused);
}

/// The blocks and what follows them of two parts, where the second begins, and a block of it.
fn second_part(first_block: u64, block: u64) -> Result<Vec<BlockEntry>, FormatError> {
    let mut file = Vec::new();
    RunHeader { file: FileId(1), folder: FolderId::default(), created_unix_s: 1 }.encode(&mut file);
    file.resize(9000, 0);
    let mut places = Vec::new();
    for (number, first_block, block) in [(0, 4096, 4096), (1, first_block, block)] {
        let entries = [entry(block, 1)];
        let mut stats = run::RunStats::default();
        stats.add(&entries[0]);
        file.resize(9000 * (number as usize + 1), 0);
        let (tree, sections) = (TreeId(1), Vec::new());
        let part = Part { number, tree, fingerprint: 7, blocks: BlockKind::Rows, first_block, sections };
        places.push(part.encode_with(FileId(1), (&entries, &stats, MoreSections::default()), 0, &mut file));
    }
    run::encode_end(FileId(1), &places, 0, &mut file);
    assert!(read_part::<BlockEntry>(&file, 0).is_ok() && places[0].end() < 10_000);
    read_part::<BlockEntry>(&file, 1).map(|(_, _, entries, _)| entries)
}

#[test]
fn blocks_lie_in_their_part() {
    let invalid = |what, found| Err(FormatError::Invalid { what, found });
    let end = 18_000 - 100;
    assert_eq!(second_part(10_000, 10_000), Ok(vec![entry(10_000, 1)]));
    assert_eq!(second_part(10_000, end), Ok(vec![entry(end, 1)]));
    // In its own sections, before its first block; and a part that begins in the one before.
    assert_eq!(second_part(10_000, end + 1), invalid("block offset", end + 1));
    assert_eq!(second_part(10_000, 9_999), invalid("block offset", 9_999));
    assert_eq!(second_part(4096, 4096), invalid("first block of a part", 4096));
    // Nor do the footers lie in one another.
    let mut file = vec![0; 9000];
    let place = |offset| run::PartPlace { tree: TreeId(1), offset, bytes: 100 };
    run::encode_end(FileId(1), &[place(5000), place(5099)], 0, &mut file);
    let footer = RunFooter::decode(&file, file.len() as u64).unwrap();
    let directory = &file[9000..][..footer.directory_bytes() as usize];
    let overlaps = footer.decode_directory(directory);
    assert_eq!(overlaps, Err(FormatError::Invalid { what: "place of a part", found: 5099 }));
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
