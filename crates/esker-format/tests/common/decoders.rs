//! What every decoder must survive, whatever the bytes: no panic, nothing read or written outside, and what it accepts
//! can be encoded and decoded again. Shared by the fuzz targets and by the short run in the tests.
//!
//! A checksum would stop every mutation, so each function tries the bytes as they are and again with their checksum set
//! right.

use super::keys::{random_index, TwoCollations};
use super::{encode_frame, random_layout, run_tail, Rng};
use esker_format::key_bytes::key_encoding;
use esker_format::run::{Leaf, Part, PartPlace, RowIdSet, RowIds, Section};
use esker_format::{
    block, frame, manifest, row, run, BlockEntry, BlockKind, ColumnMask, Compression, FileId, KeyBlock,
    KeyBlockBuilder, KeyBlockEntry, KeyCodec, KeyPart, Layout, LeafEntry, Lsn, Manifest, Record, RecordReader,
    RowBlock, RowBlockBuilder, RowFormat, RowId, RunFooter, RunHeader, SegmentHeader, Shown, Telling, TimeForm, TreeId,
    VersionTag,
};
use std::sync::Arc;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// A decoder under test.
pub type Decoder = fn(&[u8]);

/// All of them.
pub const DECODERS: [(&str, Decoder); 11] = [
    ("layout", layout),
    ("packed_row", packed_row),
    ("block", block),
    ("key_block", key_block),
    ("key_bytes", key_bytes),
    ("run", run),
    ("row_ids", row_ids),
    ("record", record),
    ("frame", frame),
    ("manifest", manifest),
    ("schema", schema),
];

/// The layouts that blocks and rows are tried with: one for each seed.
pub fn layout_for(seed: u8) -> (Arc<Layout>, RowFormat) {
    let format = if seed % 4 == 0 { RowFormat::Fixed } else { RowFormat::Dynamic };
    (Arc::new(random_layout(&mut Rng(seed.into()), format == RowFormat::Dynamic)), format)
}

/// The bytes with the checksum at `at` set right for all that follows it up to `end`.
fn resealed(bytes: &[u8], at: usize, end: usize, seed: u64) -> Option<Vec<u8>> {
    let mut bytes = bytes.to_vec();
    let sum = xxh3_64_with_seed(bytes.get(at + 8..end)?, seed);
    bytes[at..at + 8].copy_from_slice(&sum.to_le_bytes());
    Some(bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<usize> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?) as usize)
}

/// Seals header and directory of the block that begins `bytes`, if it is that long.
pub fn seal_head(bytes: &mut [u8], context: u64) -> Option<()> {
    let segments = u32_at(bytes, block::block_at::SEGMENTS)?;
    let end = block::BLOCK_HEADER_BYTES + segments.min(1 << 16) * block::SEGMENT_ENTRY_BYTES;
    let sum = xxh3_64_with_seed(bytes.get(8..end)?, context);
    bytes[..8].copy_from_slice(&sum.to_le_bytes());
    Some(())
}

/// A block with all its checksums set right: those of its segments, then that of header and directory.
fn resealed_block(bytes: &[u8], context: u64) -> Option<Vec<u8>> {
    let mut bytes = bytes.to_vec();
    for i in 0..u32_at(&bytes, block::block_at::SEGMENTS)?.min(1 << 16) {
        let at = block::BLOCK_HEADER_BYTES + i * block::SEGMENT_ENTRY_BYTES;
        let place = |field| u32_at(&bytes, at + field);
        let (from, stored) = (place(block::segment_at::OFFSET)?, place(block::segment_at::STORED_BYTES)?);
        if let Some(stored) = bytes.get(from..from.checked_add(stored)?) {
            let sum = xxh3_64(stored);
            let at = at + block::segment_at::CHECKSUM;
            bytes.get_mut(at..at + 8)?.copy_from_slice(&sum.to_le_bytes());
        }
    }
    seal_head(&mut bytes, context)?;
    Some(bytes)
}

pub fn layout(data: &[u8]) {
    if let Ok(layout) = Layout::decode(data) {
        let mut again = Vec::new();
        layout.encode(&mut again);
        assert_eq!(Layout::decode(&again).as_ref(), Ok(&layout));
        assert_eq!(layout.fingerprint(), xxh3_64(&again));
    }
}

/// What the front end's bytes of a table can be.
pub fn schema(data: &[u8]) {
    if let Ok(Some(types)) = esker_format::ColumnTypes::decode(data) {
        assert_eq!(esker_format::ColumnTypes::decode(&types.encode()), Ok(Some(types)));
    }
    if let Ok(Some(schema)) = esker_format::Schema::decode(data) {
        let mut again = Vec::new();
        schema.encode(&mut again);
        assert_eq!(esker_format::Schema::decode(&again), Ok(Some(schema)));
    }
}

/// The first byte is the index's, the next the length of the payload, which comes before the key.
/// Columns are shown as anything, whatever they hold.
fn shown_for(seed: u8) -> Shown {
    let (form, n) = (if seed & 1 == 0 { TimeForm::Bits } else { TimeForm::Number }, seed / 16);
    match seed / 2 % 8 {
        0 => Shown::DateTime(form, n),
        1 => Shown::Timestamp(form, n),
        2 => Shown::Time(form, n),
        3 => Shown::Decimal { digits: 2 * n, decimals: n },
        4 => Shown::Set(vec!["a".to_owned(); usize::from(n) * 5]),
        5 => Shown::Enum(vec!["it's".to_owned(); usize::from(n)]),
        6 => [Shown::Binary, Shown::Bits, Shown::Date, Shown::Uuid][usize::from(n) % 4].clone(),
        _ => Shown::Filled(Box::new(Shown::Rounded(n)), 9),
    }
}

pub fn key_bytes(data: &[u8]) {
    let Some(([seed, length], bytes)) = data.split_first_chunk() else { return };
    let (layout, index) = random_index(&mut Rng((*seed).into()));
    let codec = KeyCodec::new(&index, &layout, |column| Some(column as usize), &TwoCollations).unwrap();
    let (payload, key) = bytes.split_at(bytes.len().min((*length).into()));
    let mut image = vec![0; layout.image_bytes as usize];
    let (mask, mut scratch) = (ColumnMask::all(layout.columns.len()), Vec::new());
    let filled = codec.fill_image(key, payload, &mask, &mut image, &mut scratch);
    let told = |p: &KeyPart| p.encoding != key_encoding::FLOAT && p.collation == 0 && codec.covers(p.column as usize);
    if filled.is_ok() && index.parts.iter().all(told) {
        let mut again = Vec::new();
        // SAFETY: every slot was filled, and none is a blob's.
        unsafe { codec.key_of_image(image.as_ptr(), &TwoCollations, &mut again).unwrap() };
        assert!(key.starts_with(&again));
        let shown = vec![shown_for(*length); layout.columns.len()];
        let telling = Telling { collations: &TwoCollations, shown: &shown, local_time: None };
        // SAFETY: the same.
        assert!(!unsafe { codec.text_of_image(image.as_ptr(), &telling) }.is_empty());
    }
}

pub fn packed_row(data: &[u8]) {
    let Some((&seed, packed)) = data.split_first() else {
        return;
    };
    let (layout, format) = layout_for(seed);
    let mask = ColumnMask::all(layout.columns.len());
    let mut image = vec![0; layout.image_bytes as usize];
    let unpacked = row::unpack(&layout, packed, &mask, &mut image);
    let mut builder = RowBlockBuilder::new(Arc::clone(&layout), format);
    let pushed = builder.push_packed(RowId(1), VersionTag::default(), packed);
    if row::check(&layout, packed).is_err() {
        assert!(row::values(&layout, packed).is_err() && pushed.is_err() && builder.is_empty());
        return;
    }
    unpacked.unwrap();
    pushed.unwrap();
    let values = row::values(&layout, packed).unwrap();
    let mut again = Vec::new();
    row::pack_values(&layout, &values, &mut again).unwrap();
    row::check(&layout, &again).unwrap();
}

pub fn block(data: &[u8]) {
    let Some((&seed, bytes)) = data.split_first() else {
        return;
    };
    let (layout, format) = layout_for(seed);
    try_block(bytes, &layout, format);
    if let Some(bytes) = resealed_block(bytes, 5) {
        try_block(&bytes, &layout, format);
    }
}

fn try_block(bytes: &[u8], layout: &Arc<Layout>, format: RowFormat) {
    let Ok(block) = RowBlock::open(bytes, layout, format, 5) else {
        return;
    };
    let mut moved = bytes.to_vec();
    block::reseal(&mut moved, 5, 6, None).unwrap();
    RowBlock::open(&moved[..], layout, format, 6).unwrap();
    // More would only take time; the least that a block of this size holds honestly is less.
    let rows = block.rows().min(3000);
    let mut ids = vec![RowId::ZERO; rows as usize];
    block.copy_ids(0..rows, &mut ids);
    for i in (0..rows).step_by(1 + rows as usize / 64) {
        assert_eq!(block.row_id(i), ids[i as usize]);
        let _ = block.tag(i);
        assert!(block.lower_bound(ids[i as usize]) <= block.rows());
        let mut out = Vec::new();
        if block.packed(i, &mut out).is_ok() && !block.tag(i).tombstone {
            row::check(layout, &out).unwrap();
        }
    }
    let width = layout.image_bytes as usize;
    let from = rows / 3;
    let n = ((rows - from) as usize).min((1 << 20) / width.max(1));
    let mut images = vec![0; n * width];
    let mask = ColumnMask::all(layout.columns.len());
    let rows = from..from + n as u32;
    // SAFETY: there is room for every row.
    let _ = unsafe { block.decode_images(rows.clone(), &mask, images.as_mut_ptr(), width as isize) };
    let _ = (block.images(rows), block.verify());
    // What could be decompressed of it reads alike from the form it takes in memory.
    let (mut unpacked, mut one, mut other) = (Vec::new(), Vec::new(), Vec::new());
    if block.unpack(&mut unpacked) {
        let again = block.open_unpacked(&unpacked[..]).unwrap();
        for i in (0..block.rows().min(3000)).step_by(97) {
            assert_eq!(block.packed(i, &mut one).is_ok(), again.packed(i, &mut other).is_ok());
        }
        assert_eq!(one, other);
    }
}

pub fn key_block(data: &[u8]) {
    try_key_block(data);
    if let Some(data) = resealed_block(data, 5) {
        try_key_block(&data);
    }
}

fn try_key_block(data: &[u8]) {
    let Ok(block) = KeyBlock::open(data, 5) else {
        return;
    };
    let mut builder = KeyBlockBuilder::new();
    for at in 0..block.rows().min(3000) {
        let key = block.key(at);
        assert!(block.lower_bound(key) <= at);
        // A few bytes may stand for very long payloads.
        if builder.raw_bytes() > 8 << 20 {
            break;
        }
        builder.push(key, block.row(at), block.tag(at), block.payload(at)).unwrap();
    }
    let mut again = Vec::new();
    builder.finish(Compression::None, 0, 6, &mut again).unwrap();
    let again = KeyBlock::open(&again[..], 6).unwrap();
    for at in 0..again.rows() {
        assert_eq!((again.key(at), again.row(at), again.tag(at)), (block.key(at), block.row(at), block.tag(at)));
        assert_eq!(again.payload(at), block.payload(at));
    }
    let mut moved = data.to_vec();
    block::reseal(&mut moved, 5, 6, None).unwrap();
    KeyBlock::open(&moved[..], 6).unwrap();
}

/// Where the parts of a file lie that `run` tries.
const PLACE: u64 = 1 << 20;

pub fn run(data: &[u8]) {
    let file = FileId(3);
    let here = run::block_context(file, PLACE);
    let try_all = |data: &[u8]| {
        if let Ok(header) = RunHeader::decode(data) {
            let mut again = Vec::new();
            header.encode(&mut again);
            assert_eq!(RunHeader::decode(&again), Ok(header));
        }
        let _ = RunFooter::decode(data, 1 << 30);
        try_part(file, data);
        try_leaf::<BlockEntry>(file, data);
        try_leaf::<KeyBlockEntry>(file, data);
        if let Ok(filters) = run::open_group(file, PLACE, data) {
            // Of any length.
            let _ = run::may_hold(filters, u64_at(data, 0));
        }
    };
    try_all(data);
    for (at, seed) in [(8, run::RUN_MAGIC), (0, run::FOOTER_MAGIC), (0, here)] {
        if let Some(data) = resealed(data, at, data.len(), seed) {
            try_all(&data);
        }
    }
    try_directory(file, data);
    try_top(file, data, BlockKind::Rows);
    try_top(file, data, BlockKind::Keys);
}

/// More ids would only take time.
const MOST_IDS: usize = 1 << 18;

pub fn row_ids(data: &[u8]) {
    let Ok(ids) = RowIds::decode(data.to_vec()) else { return };
    let each = |ids: &RowIds| {
        let mut found = Vec::new();
        for c in ids.containers() {
            for high in c.highs.clone() {
                if found.len() >= MOST_IDS {
                    return found;
                }
                found.extend(c.ranges().flatten().map(|low| RowId(high << 16 | u64::from(low))));
            }
        }
        found
    };
    let found = each(&ids);
    assert_eq!(found.first(), Some(&ids.first));
    assert!(found.windows(2).all(|two| two[0] < two[1]));
    if ids.rows <= MOST_IDS as u64 {
        assert_eq!((found.len() as u64, found.last()), (ids.rows, Some(&ids.last)));
        let mut again = RowIdSet::default();
        found.iter().for_each(|id| again.add(*id));
        let again = RowIds::decode(again.finish()).unwrap();
        assert!(again.stored().len() as u64 <= RowIds::most_bytes(ids.rows) && each(&again) == found);
    }
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes)
}

fn try_part(file: FileId, data: &[u8]) {
    let tree = TreeId(u64_at(data, run::part_at::TREE));
    let place = PartPlace { tree, offset: PLACE, bytes: data.len() as u32 };
    if let Ok(part) = Part::decode(file, 0, &[place], data) {
        let mut again = Vec::new();
        let place = part.encode(file, PLACE, &mut again);
        assert_eq!(Part::decode(file, 0, &[place], &again), Ok(part));
    }
}

/// As a page of an index; one of key blocks only if it holds one block.
fn try_leaf<E: LeafEntry + PartialEq + std::fmt::Debug>(file: FileId, data: &[u8]) {
    let first = run::LEAF_HEADER_BYTES;
    let keys = E::BLOCKS == BlockKind::Keys;
    let last = if keys { first } else { data.len().saturating_sub(run::INDEX_ENTRY_BYTES) };
    let length = |at: usize| data.get(first + at).map_or(0, |&n| usize::from(n));
    let (a, b) = match keys {
        true => (length(run::entry_at::FIRST_KEY_BYTES), length(run::entry_at::LAST_KEY_BYTES)),
        false => (0, 0),
    };
    let key = |from: usize, n: usize| data.get(from..from + n).unwrap_or(&[]).to_vec();
    let at = first + run::entry_at::KEYS;
    let leaf = Leaf {
        offset: PLACE,
        bytes: data.len() as u32,
        blocks: u32_at(data, run::leaf_at::BLOCKS).unwrap_or(0) as u32,
        first_id: RowId(u64_at(data, first + run::entry_at::FIRST_ID)),
        last_id: RowId(u64_at(data, last + run::entry_at::LAST_ID)),
        first_key: key(at, a),
        last_key: key(at + a, b),
    };
    let leaves = Section::written(file, run::section_kind::INDEX_LEAVES, true, PLACE, data, 0..data.len());
    let (tree, sections) = (TreeId(1), vec![leaves]);
    let part = Part { number: 0, tree, fingerprint: 0, blocks: E::BLOCKS, first_block: 4096, sections };
    let mut entries: Vec<E> = Vec::new();
    if part.decode_leaf(file, &leaf, data, &mut entries).is_ok() {
        assert_eq!(entries.len() as u32, leaf.blocks);
        if data.len() <= run::LEAF_BYTES {
            let (again, _) = run_tail(file, &[(TreeId(1), entries)], PLACE);
            let mut same: Vec<E> = Vec::new();
            part.decode_leaf(file, &leaf, &again[..data.len()], &mut same).unwrap();
            assert_eq!(same.len() as u32, leaf.blocks);
        }
    }
}

/// As a directory of parts.
fn try_directory(file: FileId, data: &[u8]) {
    let mut footer = Vec::new();
    run::encode_end(file, &[], PLACE, &mut footer);
    let sum = xxh3_64_with_seed(data, run::block_context(file, PLACE));
    footer[run::footer_at::DIRECTORY_SUM..][..8].copy_from_slice(&sum.to_le_bytes());
    let parts = (data.len() / run::PART_ENTRY_BYTES) as u32;
    footer[run::footer_at::PARTS..][..4].copy_from_slice(&parts.to_le_bytes());
    let end = footer.len();
    let footer = resealed(&footer, 0, end, run::FOOTER_MAGIC).unwrap();
    let Ok(footer) = RunFooter::decode(&footer, 1 << 30) else { return };
    if let Ok(places) = footer.decode_directory(data) {
        assert!(places.len() == parts as usize && places.iter().all(|p| p.offset + u64::from(p.bytes) <= PLACE));
    }
}

/// As the top level of an index.
fn try_top(file: FileId, data: &[u8], blocks: BlockKind) {
    let top = Section::written(file, run::section_kind::INDEX_TOP, true, PLACE, data, 0..data.len());
    let mut leaves = Section::written(file, run::section_kind::INDEX_LEAVES, true, PLACE, data, 0..0);
    leaves.offset = u64_at(data, run::top_at::OFFSET);
    // What the entries' lengths add up to, if they are of row blocks.
    let lengths = data.chunks_exact(run::TOP_ENTRY_BYTES).map(|e| u32_at(e, run::top_at::BYTES).unwrap_or(0) as u64);
    leaves.bytes = lengths.sum();
    let sections = vec![leaves, top];
    let part = Part { number: 0, tree: TreeId(1), fingerprint: 0, blocks, first_block: 4096, sections };
    if let Ok(all) = part.decode_top(file, data) {
        assert_eq!(all.iter().map(|l| u64::from(l.bytes)).sum::<u64>(), leaves.bytes);
    }
}

pub fn record(data: &[u8]) {
    for record in RecordReader::new(data) {
        let Ok(record) = record else { return };
        let mut again = Vec::new();
        record.encode(&mut again);
        let records: Result<Vec<Record<'_>>, _> = RecordReader::new(&again).collect();
        assert_eq!(records, Ok(vec![record]));
    }
}

pub fn frame(data: &[u8]) {
    let header = |data: &[u8]| {
        if let Ok(header) = SegmentHeader::decode(data) {
            let mut again = Vec::new();
            header.encode(&mut again);
            assert_eq!(SegmentHeader::decode(&again), Ok(header));
        }
    };
    header(data);
    let end = frame::SEGMENT_HEADER_BYTES;
    if let Some(data) = resealed(data, 0, end, frame::SEGMENT_MAGIC) {
        header(&data);
    }
    let at = |at: usize, n: usize| {
        data.get(at..at + n).map_or(0, |b| b.iter().rev().fold(0u64, |v, &b| v << 8 | u64::from(b)))
    };
    let (lsn, tag) = (Lsn(at(frame::frame_at::LSN, 8)), at(frame::frame_at::TAG, 4) as u32);
    let _ = frame::parse_frame(data, Lsn(lsn.0 ^ 1), tag);
    let _ = frame::parse_frame(data, lsn, tag);
    let len = at(frame::frame_at::LEN, 4) as usize;
    if let Some(payload) = data.get(frame::FRAME_HEADER_BYTES..).and_then(|p| p.get(..len)) {
        let mut again = Vec::new();
        encode_frame(lsn, tag, payload, &mut again);
        let parsed = frame::parse_frame(&again, lsn, tag).unwrap();
        assert!(parsed.is_none_or(|f| f.payload == payload && f.bytes() == again.len()));
    }
}

pub fn manifest(data: &[u8]) {
    let try_one = |data: &[u8]| {
        if let Ok(manifest) = Manifest::decode(data) {
            let mut again = Vec::new();
            manifest.encode(&mut again);
            assert_eq!(Manifest::decode(&again), Ok(manifest));
        }
    };
    try_one(data);
    let mut end = u32_at(data, manifest::manifest_at::BODY_BYTES).unwrap_or(0) + manifest::MANIFEST_HEADER_BYTES;
    let Some(mut data) = resealed(data, 0, end, manifest::MANIFEST_MAGIC) else { return };
    try_one(&data);
    // And each edit behind it.
    loop {
        let at = manifest::edit_offset(end);
        let Some(body) = u32_at(&data, at + manifest::edit_at::BODY_BYTES) else { return };
        end = at + manifest::EDIT_HEADER_BYTES + body;
        let Some(sealed) = resealed(&data, at, end, manifest::EDIT_MAGIC) else { return };
        data = sealed;
        try_one(&data);
    }
}

/// An index entry that [`Part::decode_leaf`] accepts, for those who make seeds.
pub fn entry(offset: u64, first: u64) -> BlockEntry {
    BlockEntry {
        offset,
        stored_bytes: 100,
        rows: 3,
        first_id: RowId(first),
        last_id: RowId(first + 2),
        raw_bytes: 120,
        max_ordinal: 9,
        ..BlockEntry::default()
    }
}
