//! Files written by each format version open and hold what was put into them. The files of the newest version are also
//! written again and compared (those without compression byte by byte), so that the format does not change unnoticed.
//!
//! `ESKER_WRITE_FIXTURES=1 cargo test -p esker-format --test fixtures` writes the newest version's files.
#![allow(clippy::unwrap_used)]

mod common;

use common::samples::{manifest_with_edits, records, WITH_EDITS, WITH_STATISTICS};
use common::{layout_of, random_entries, random_row, read_part, section_of, Rng};
use esker_format::block::{block_at, features};
use esker_format::run::{MoreSections, RowIdSet, RowIds};
use esker_format::{
    block_context, frame, run, BlockEntry, BlockKind, ColumnKind, CommitSeq, Compression, FileId, FolderId,
    FormatError, KeyBlock, KeyBlockBuilder, KeyBlockEntry, Layout, LeafEntry, Lsn, ManifestFile, RecordReader,
    RowBlock, RowBlockBuilder, RowFormat, RowId, RunFooter, RunHeader, RunStats, SegmentHeader, TreeId, VersionTag,
};
use std::path::PathBuf;
use std::sync::Arc;

const NEWEST: &str = "v2";
/// Its files are refused: they are from before the format could grow.
const REFUSED: &str = "v1";
const VERSIONS: [&str; 1] = [NEWEST];
const FILE: FileId = FileId(17);
const GENERATION: u32 = 3;
const FIRST_LSN: Lsn = Lsn(1 << 20);
/// A segment whose frames have a tag; those of before there were tags have its generation.
const TAGGED: &str = "log-tagged.segment";
const TAG: u32 = 0x5eed_1234;

/// Are the newest version's files to be written?
fn writing() -> bool {
    std::env::var_os("ESKER_WRITE_FIXTURES").is_some()
}

fn path(version: &str, name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests/fixtures", version, name].iter().collect()
}

fn table(format: RowFormat) -> Arc<Layout> {
    let mut kinds = vec![
        ColumnKind::Fixed { width: 4 },
        ColumnKind::Padded { width: 10, pad: b' ' },
        ColumnKind::Var { len_bytes: 1, max: 40 },
        ColumnKind::Var { len_bytes: 2, max: 300 },
    ];
    if format == RowFormat::Dynamic {
        kinds.push(ColumnKind::Blob { len_bytes: 2 });
    }
    Arc::new(layout_of(&kinds, |i| i != 0))
}

/// What the run files hold: 90 versions in 3 blocks.
fn versions(format: RowFormat) -> Vec<(RowId, VersionTag, Vec<u8>)> {
    let (layout, rng) = (table(format), &mut Rng(2024));
    (0..90)
        .map(|i| {
            let seq = if i < 30 { 0 } else { 100 + i % 7 };
            let tombstone = i >= 60 && i % 5 == 0;
            let supersedes = i >= 60 && i % 3 == 0;
            let tag = VersionTag { seq: CommitSeq(seq), ordinal: i % 40, tombstone, supersedes };
            let id = if i < 30 { 1000 + i } else { 1000 + i * i / 2 };
            let packed = if tombstone { Vec::new() } else { random_row(&layout, rng, 6) };
            (RowId(id), tag, packed)
        })
        .collect()
}

/// Which sections beyond those that all parts have.
#[derive(Clone, Copy, PartialEq, Eq)]
enum More {
    None,
    Filters,
    RowFilters,
    RowIds,
}

fn run_file(format: RowFormat, compression: Compression, more: More) -> Vec<u8> {
    let layout = table(format);
    let fingerprint = layout.fingerprint();
    let mut out = Vec::new();
    RunHeader { file: FILE, folder: FolderId(*b"esker's fixtures"), created_unix_s: 1_700_000_000 }.encode(&mut out);
    let mut builder = RowBlockBuilder::new(layout, format);
    let (mut blocks, mut stats, mut filters) = (Vec::new(), RunStats::default(), run::Filters::default());
    let mut row_ids = RowIdSet::default();
    for some in versions(format).chunks(30) {
        for (id, tag, packed) in some {
            builder.push_packed(*id, *tag, packed).unwrap();
        }
        builder.ids().iter().for_each(|id| row_ids.add(RowId(*id)));
        let offset = out.len() as u64;
        let entry = builder.finish(compression, 3, block_context(FILE, offset), &mut out).unwrap();
        blocks.push(BlockEntry { offset, ..entry });
        stats.add(&entry);
        let hashes: Vec<u64> = some.iter().map(|(id, ..)| run::row_filter_hash(*id)).collect();
        filters.add(entry.filter_bytes(), Some(&hashes));
    }
    let filters = (more == More::RowFilters).then_some(&filters);
    let first_block = run::RUN_HEADER_BYTES as u64;
    let part = |number, tree, blocks, first_block| {
        let (tree, sections) = (TreeId(tree), Vec::new());
        run::Part { number, tree, fingerprint, blocks, first_block, sections }
    };
    let row_ids = if more == More::RowIds { row_ids.finish() } else { Vec::new() };
    let sections = MoreSections { row_ids: &row_ids, filters };
    let rows = part(0, 5, BlockKind::Rows, first_block).encode_with(FILE, (&blocks, &stats, sections), 0, &mut out);
    // A second part: the keys of an index.
    let first_block = out.len() as u64;
    let mut entry = keys().finish(compression, 3, block_context(FILE, first_block), &mut out).unwrap();
    entry.block.offset = first_block;
    let mut stats = RunStats::default();
    stats.add(&entry.block);
    let filters = (more == More::Filters).then(|| {
        let hashes: Vec<u64> = random_entries(&mut Rng(6)).iter().map(|(key, ..)| run::filter_hash(key)).collect();
        let mut filters = run::Filters::default();
        filters.add(entry.filter_bytes(), Some(&hashes));
        filters
    });
    let sections = MoreSections { filters: filters.as_ref(), row_ids: &[] };
    let keys = part(1, 6, BlockKind::Keys, first_block).encode_with(FILE, (&[entry], &stats, sections), 0, &mut out);
    run::encode_end(FILE, &[rows, keys], 0, &mut out);
    out
}

fn keys() -> KeyBlockBuilder {
    let mut builder = KeyBlockBuilder::new();
    for (key, row, tag, payload) in random_entries(&mut Rng(6)) {
        builder.push(&key, row, tag, &payload).unwrap();
    }
    builder
}

fn check_keys(bytes: &[u8]) {
    let (_, part, entries, stats) = read_part::<KeyBlockEntry>(bytes, 1).unwrap();
    assert_eq!((part.tree, part.blocks, entries.len()), (TreeId(6), BlockKind::Keys, 1));
    let place = entries[0].block.offset;
    let stored = &bytes[place as usize..][..entries[0].block.stored_bytes as usize];
    let block = KeyBlock::open(stored, block_context(FILE, place)).unwrap();
    let entry = |at| (block.key(at).to_vec(), block.row(at), block.tag(at), block.payload(at).to_vec());
    assert_eq!((0..block.rows()).map(entry).collect::<Vec<_>>(), random_entries(&mut Rng(6)));
    assert_eq!(stats.rows, u64::from(block.rows()));
}

/// The filter knows all keys, and few others.
fn check_filters(bytes: &[u8]) {
    let (header, part, entries, _) = read_part::<KeyBlockEntry>(bytes, 1).unwrap();
    let section = part.section(run::section_kind::FILTERS).unwrap();
    section.check(header.file, section_of(bytes, section)).unwrap();
    let filters = run::open_group(header.file, section.offset, section_of(bytes, section)).unwrap();
    assert_eq!(filters.len(), run::filter_bytes(entries[0].block.rows));
    let knows = |key: &[u8]| run::may_hold(filters, run::filter_hash(key));
    assert!(random_entries(&mut Rng(6)).iter().all(|(key, ..)| knows(key)));
    assert!((0..1000u32).filter(|n| knows(&n.to_be_bytes())).count() < 50);
}

/// The filters of rows know all of them, and few others; the block without gaps has none.
fn check_row_filters(bytes: &[u8]) {
    let (header, part, blocks, _) = read_part::<BlockEntry>(bytes, 0).unwrap();
    let section = part.section(run::section_kind::ROW_FILTERS).unwrap();
    section.check(header.file, section_of(bytes, section)).unwrap();
    let mut filters = run::open_group(header.file, section.offset, section_of(bytes, section)).unwrap();
    assert_eq!(blocks.iter().map(|b| b.filter_bytes() > 0).collect::<Vec<_>>(), [false, true, true]);
    for (entry, rows) in blocks.iter().zip(versions(RowFormat::Dynamic).chunks(30)) {
        let (filter, rest) = filters.split_at(entry.filter_bytes());
        filters = rest;
        assert!(rows.iter().all(|(row, ..)| run::may_hold(filter, run::row_filter_hash(*row))));
        let others = (0..1000).filter(|row| run::may_hold(filter, run::row_filter_hash(RowId(*row)))).count();
        assert!(filter.is_empty() || others < 50, "{others}");
    }
    assert!(filters.is_empty());
}

/// The rows that the part has versions of, in its section.
fn check_row_ids(bytes: &[u8]) {
    let (header, part, ..) = read_part::<BlockEntry>(bytes, 0).unwrap();
    let section = part.section(run::section_kind::ROW_IDS).unwrap();
    section.check(header.file, section_of(bytes, section)).unwrap();
    let ids = RowIds::decode(section_of(bytes, section).to_vec()).unwrap();
    let containers = ids.containers().map(|c| (c.highs.clone(), c.ranges().flatten().collect::<Vec<_>>()));
    let mut rows: Vec<u16> = versions(RowFormat::Dynamic).iter().map(|(id, ..)| id.0 as u16).collect();
    rows.dedup();
    assert_eq!((ids.rows, containers.collect::<Vec<_>>()), (rows.len() as u64, vec![(0..1, rows)]));
}

/// Key blocks whose row ids need 1, 2, ... 8 bytes above the least, one after the other.
fn delta_widths() -> Vec<u8> {
    let mut out = Vec::new();
    for width in 1..=8 {
        let mut builder = KeyBlockBuilder::new();
        for (i, row) in rows_of(width).into_iter().enumerate() {
            builder.push(&[i as u8], row, VersionTag::default(), b"").unwrap();
        }
        builder.finish(Compression::None, 0, block_context(FILE, out.len() as u64), &mut out).unwrap();
    }
    out
}

/// The least, one that needs `width` bytes above it, and the most that those can tell.
fn rows_of(width: u32) -> [RowId; 3] {
    [0, 1 << (8 * width - 4), u64::MAX >> (64 - 8 * width)].map(|n| RowId(if width == 8 { n } else { n + 1000 }))
}

fn check_delta_widths(bytes: &[u8]) {
    let mut at = 0;
    for width in 1..=8 {
        let block = KeyBlock::open(&bytes[at..], block_context(FILE, at as u64)).unwrap();
        assert_eq!([0, 1, 2].map(|i| block.row(i)), rows_of(width), "{width}");
        let required = u32::from_le_bytes(bytes[at + block_at::REQUIRED..][..4].try_into().unwrap());
        assert_eq!(required, if matches!(width, 1 | 2 | 4 | 8) { 0 } else { features::DELTA_WIDTHS }, "{width}");
        at += block.entry().stored_bytes as usize;
    }
    assert_eq!(at, bytes.len());
}

fn segment_header(tag: u32) -> SegmentHeader {
    let folder = FolderId(*b"a folder's name.");
    SegmentHeader { generation: GENERATION, tag, first_lsn: FIRST_LSN, folder }
}

fn log_segment(tag: u32) -> Vec<u8> {
    let mut out = Vec::new();
    segment_header(tag).encode(&mut out);
    let start = out.len() as u64;
    for record in records(&mut Rng(7)) {
        let mut payload = Vec::new();
        record.encode(&mut payload);
        let lsn = Lsn(FIRST_LSN.0 + out.len() as u64 - start);
        common::encode_frame(lsn, tag, &payload, &mut out);
    }
    out.resize(out.len() + 64, 0);
    out
}

fn manifest_file(seed: u64) -> Vec<u8> {
    manifest_with_edits(&mut Rng(seed)).0
}

const RUNS: [(&str, RowFormat, Compression); 4] = [
    ("dynamic.run", RowFormat::Dynamic, Compression::None),
    ("dynamic-lz4.run", RowFormat::Dynamic, Compression::Lz4),
    ("dynamic-zstd.run", RowFormat::Dynamic, Compression::Zstd),
    ("fixed.run", RowFormat::Fixed, Compression::None),
];

const WITH_FILTERS: &str = "filters.run";
const WITH_ROW_FILTERS: &str = "row-filters.run";
const WITH_ROW_IDS: &str = "row-ids.run";
const WIDTHS: &str = "delta-widths.blocks";
/// The manifest from before it kept statistics of indexes.
const WITHOUT_STATISTICS: &str = "manifest-without-statistics";

fn check_run(bytes: &[u8], format: RowFormat) {
    let layout = table(format);
    let (header, part, blocks, stats) = read_part::<BlockEntry>(bytes, 0).unwrap();
    assert_eq!((header.file, header.folder), (FILE, FolderId(*b"esker's fixtures")));
    assert_eq!((part.tree, part.fingerprint, part.blocks), (TreeId(5), layout.fingerprint(), BlockKind::Rows));
    let mut found = Vec::new();
    for entry in &blocks {
        let stored = &bytes[entry.offset as usize..][..entry.stored_bytes as usize];
        let block = RowBlock::open(stored, &layout, format, block_context(FILE, entry.offset)).unwrap();
        block.verify().unwrap();
        for i in 0..block.rows() {
            let mut packed = Vec::new();
            block.packed(i, &mut packed).unwrap();
            found.push((block.row_id(i), block.tag(i), packed));
        }
    }
    assert_eq!(stats.rows, found.len() as u64);
    assert_eq!(found, versions(format));
    check_keys(bytes);
}

fn check_log(bytes: &[u8], tag: u32) {
    let header = SegmentHeader::decode(bytes).unwrap();
    assert_eq!(header, segment_header(tag));
    let (mut at, mut found) = (frame::SEGMENT_HEADER_BYTES, Vec::new());
    loop {
        let lsn = Lsn(FIRST_LSN.0 + (at - frame::SEGMENT_HEADER_BYTES) as u64);
        let Some(frame) = frame::parse_frame(&bytes[at..], lsn, tag).unwrap() else { break };
        found.extend(RecordReader::new(frame.payload).map(|r| r.unwrap()));
        at += frame.bytes();
    }
    assert_eq!(found, records(&mut Rng(7)));
}

#[test]
fn files_of_every_version_open() {
    if writing() {
        return;
    }
    for version in VERSIONS {
        let read = |name: &str| std::fs::read(path(version, name)).unwrap();
        for (name, format, _) in RUNS {
            check_run(&read(name), format);
        }
        check_run(&read(WITH_FILTERS), RowFormat::Dynamic);
        check_filters(&read(WITH_FILTERS));
        check_run(&read(WITH_ROW_FILTERS), RowFormat::Dynamic);
        check_row_filters(&read(WITH_ROW_FILTERS));
        check_run(&read(WITH_ROW_IDS), RowFormat::Dynamic);
        check_row_ids(&read(WITH_ROW_IDS));
        check_delta_widths(&read(WIDTHS));
        check_log(&read("log.segment"), GENERATION);
        check_log(&read(TAGGED), TAG);
        let (_, states) = manifest_with_edits(&mut Rng(WITH_EDITS));
        let file = ManifestFile::decode(&read("manifest")).unwrap();
        assert!(file.edits >= 2 && states.iter().all(|s| !s.tables.is_empty()));
        assert_eq!((Some(&file.manifest), file.torn), (states.last(), None));
        let mut before = ManifestFile::decode(&read(WITHOUT_STATISTICS)).unwrap().manifest;
        for (id, table) in &mut before.tables {
            assert!(table.statistics.is_empty());
            table.statistics.clone_from(&file.manifest.tables[id].statistics);
        }
        assert_eq!(before, file.manifest);
        let (_, states) = manifest_with_edits(&mut Rng(WITH_STATISTICS));
        let file = ManifestFile::decode(&read("manifest-with-statistics")).unwrap();
        assert!(file.edits >= 1 && file.manifest.tables.values().any(|t| t.statistics.len() > 1));
        assert_eq!(Some(&file.manifest), states.last());
    }
}

/// Version 1 was never released.
#[test]
fn files_of_version_1_are_refused_by_name() {
    let bytes = std::fs::read(path("v1", "dynamic.run")).unwrap();
    let refused = FormatError::OlderVersion { what: "run", found: 1, needed: 2 };
    assert_eq!(refused.to_string(), "run has format version 1, this program needs 2");
    assert_eq!(RunHeader::decode(&bytes), Err(refused));
    let footer = RunFooter::decode(&bytes, bytes.len() as u64);
    assert!(matches!(footer, Err(FormatError::OlderVersion { found: 1, .. })), "{footer:?}");
    let first = &bytes[run::RUN_HEADER_BYTES..];
    let context = block_context(FILE, run::RUN_HEADER_BYTES as u64);
    // The checksum of a block of version 1 covers other bytes: nothing of it is believed.
    assert!(RowBlock::open(first, &table(RowFormat::Dynamic), RowFormat::Dynamic, context).is_err());
}

#[test]
fn the_first_version_is_refused_by_its_number() {
    let read = |name: &str| std::fs::read(path(REFUSED, name)).unwrap();
    let refused = |e: FormatError| matches!(e, FormatError::OlderVersion { found: 1, needed: 2, .. });
    assert!(refused(ManifestFile::decode(&read("manifest")).unwrap_err()));
    assert!(refused(SegmentHeader::decode(&read("log.segment")).unwrap_err()));
}

#[test]
fn the_newest_version_is_written_as_it_was() {
    let mut files = vec![
        ("log.segment", log_segment(GENERATION), true),
        (TAGGED, log_segment(TAG), true),
        ("manifest", manifest_file(WITH_EDITS), true),
        ("manifest-with-statistics", manifest_file(WITH_STATISTICS), true),
    ];
    for (name, format, compression) in RUNS {
        let bytes = run_file(format, compression, More::None);
        check_run(&bytes, format);
        files.push((name, bytes, compression == Compression::None));
    }
    files.push((WIDTHS, delta_widths(), true));
    for (name, more) in
        [(WITH_FILTERS, More::Filters), (WITH_ROW_FILTERS, More::RowFilters), (WITH_ROW_IDS, More::RowIds)]
    {
        files.push((name, run_file(RowFormat::Dynamic, Compression::None, more), true));
    }
    for (name, bytes, same) in files {
        let path = path(NEWEST, name);
        if writing() {
            std::fs::write(&path, &bytes).unwrap();
        } else if same {
            let old = std::fs::read(&path).unwrap();
            assert!(old == bytes, "{name} is written differently than before: a new format version?");
        }
    }
}
