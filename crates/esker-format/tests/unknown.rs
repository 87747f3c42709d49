//! What only a newer version can know is refused: each bit and each value of a flag, a kind, a state that has no meaning
//! yet, each byte that is kept for later and checked. What is ignored is what FORMAT.md calls zero, and nothing else.
#![allow(clippy::unwrap_used, clippy::single_range_in_vec_init)]

mod common;

use common::decoders::{entry, seal_head};
use common::samples::{key_entry, manifest_with_edits, segment_header, WITH_EDITS};
use common::{entry_of, layout_of, random_entries, random_row, run_tail, sized, varint, Rng};
use esker_format::manifest::{edit_at, edit_offset, manifest_at, EDIT_MAGIC, MANIFEST_MAGIC};
use esker_format::run::{
    entry_at, footer_at, header_at, leaf_at, part_at, place_at, section_at, section_kind, top_at, Part, PartPlace,
};
use esker_format::{
    block, block_context, frame, run, BlockEntry, ColumnKind, CommitSeq, Compression, FileId, FolderId, FormatError,
    KeyBlock, KeyBlockBuilder, KeyBlockEntry, Layout, LeafEntry, ManifestFile, Record, RecordReader, RowBlock,
    RowBlockBuilder, RowFormat, RowId, RunFooter, RunHeader, Schema, SegmentHeader, TreeId, VersionTag,
};
use std::fmt::Debug;
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64_with_seed;

type Result<T> = std::result::Result<T, FormatError>;

/// Something that is sealed, where it holds bytes that are ignored, and flags of which some bits are known.
struct Sealed<'a> {
    what: &'static str,
    bytes: Vec<u8>,
    ignored: Vec<Range<usize>>,
    /// Offset, length, known bits.
    flags: Vec<(usize, usize, u64)>,
    seal: &'a dyn Fn(&mut [u8]),
    /// All that is read, as text.
    read: &'a dyn Fn(&[u8]) -> Result<String>,
}

fn text<T: Debug>(read: Result<T>) -> Result<String> {
    read.map(|t| format!("{t:?}"))
}

fn sealed_with(seed: u64, at: usize) -> impl Fn(&mut [u8]) {
    move |bytes| {
        let sum = xxh3_64_with_seed(&bytes[at + 8..], seed);
        bytes[at..at + 8].copy_from_slice(&sum.to_le_bytes());
    }
}

impl Sealed<'_> {
    /// Each bit counts, or is refused, or is one of those that are ignored; a flag that is not known is refused as that.
    fn check(&self, from: usize, to: usize) {
        let good = (self.read)(&self.bytes).unwrap();
        for bit in from * 8..to * 8 {
            let (at, mut bytes) = (bit / 8, self.bytes.clone());
            bytes[at] ^= 1 << (bit % 8);
            (self.seal)(&mut bytes);
            let (found, here) = ((self.read)(&bytes), format!("{}, byte {at}, bit {}", self.what, bit % 8));
            if self.ignored.iter().any(|r| r.contains(&at)) {
                assert_eq!(found, Ok(good.clone()), "{here} is ignored");
                continue;
            }
            assert_ne!(found, Ok(good.clone()), "{here} is ignored, which nobody says");
            for (field, length, known) in &self.flags {
                let flag = bit.wrapping_sub(field * 8);
                if flag < length * 8 && known >> flag & 1 == 0 {
                    assert!(matches!(found, Err(FormatError::Unknown { .. })), "{here}: {found:?}");
                }
            }
        }
    }
}

const CONTEXT: u64 = 5;

fn block_fields() -> Vec<(usize, usize, u64)> {
    vec![(block::block_at::FLAGS, 4, 31), (block::block_at::REQUIRED, 4, 1)]
}

fn check_block(what: &'static str, bytes: Vec<u8>, read: &dyn Fn(&[u8]) -> Result<String>) {
    let segments = u32::from_le_bytes(bytes[block::block_at::SEGMENTS..][..4].try_into().unwrap()) as usize;
    // A directory that is longer than the block cannot be sealed, and is refused for that.
    let seal = |bytes: &mut [u8]| _ = seal_head(bytes, CONTEXT);
    let ignored = vec![block::block_at::CHECKSUM..8, block::block_at::RESERVED..block::block_at::DIRECTORY];
    let block = Sealed { what, bytes, ignored, flags: block_fields(), seal: &seal, read };
    block.check(0, block::BLOCK_HEADER_BYTES + segments * block::SEGMENT_ENTRY_BYTES);
}

#[test]
fn of_row_blocks() {
    let kinds = [
        ColumnKind::Fixed { width: 4 },
        ColumnKind::Padded { width: 10, pad: b' ' },
        ColumnKind::Var { len_bytes: 1, max: 40 },
        ColumnKind::Var { len_bytes: 2, max: 300 },
    ];
    let layout = Arc::new(layout_of(&kinds, |i| i != 0));
    for (format, seqs) in [(RowFormat::Dynamic, 3), (RowFormat::Dynamic, 1), (RowFormat::Fixed, 3)] {
        let mut builder = RowBlockBuilder::new(layout.clone(), format);
        let mut rng = Rng(4);
        for i in 0..40 {
            let (seq, tombstone, supersedes) = (CommitSeq(7 + i % seqs), i % 5 == 0, i % 3 == 0);
            let packed = random_row(&layout, &mut rng, 6);
            let tag = VersionTag { seq, ordinal: i * 3, tombstone, supersedes };
            builder.push_packed(RowId(100 + i / 2), tag, if tombstone { &[] } else { &packed }).unwrap();
        }
        let mut bytes = Vec::new();
        builder.finish(Compression::Lz4, 0, CONTEXT, &mut bytes).unwrap();
        check_block("row block", bytes, &|bytes| {
            let block = RowBlock::open(bytes, &layout, format, CONTEXT)?;
            block.verify()?;
            let row = |i| {
                let mut packed = Vec::new();
                block.packed(i, &mut packed)?;
                Ok((block.row_id(i), block.tag(i), packed))
            };
            text((0..block.rows()).map(row).collect::<Result<Vec<_>>>())
        });
    }
}

#[test]
fn of_key_blocks() {
    let mut builder = KeyBlockBuilder::new();
    for (key, row, tag, payload) in random_entries(&mut Rng(6)) {
        builder.push(&key, row, tag, &payload).unwrap();
    }
    let mut bytes = Vec::new();
    builder.finish(Compression::Lz4, 0, CONTEXT, &mut bytes).unwrap();
    let read = |bytes: &[u8]| {
        let block = KeyBlock::open(bytes, CONTEXT)?;
        let entry = |at| (block.key(at).to_vec(), block.row(at), block.tag(at), block.payload(at).to_vec());
        text(Ok((0..block.rows()).map(entry).collect::<Vec<_>>()))
    };
    check_block("key block", bytes.clone(), &read);
    bytes[block::block_at::FLAGS] ^= block::flags::IDS_UNIQUE as u8;
    seal_head(&mut bytes, CONTEXT);
    assert!(matches!(read(&bytes), Err(FormatError::Invalid { what: "uniqueness of keys", .. })));
}

#[test]
fn of_run_headers_and_log_segments() {
    let mut bytes = Vec::new();
    RunHeader { file: FileId(3), folder: FolderId([7; 16]), created_unix_s: 9 }.encode(&mut bytes);
    let ignored = vec![header_at::CHECKSUM..16, header_at::KEY_VERSION + 4..run::RUN_HEADER_BYTES];
    let (seal, read) = (sealed_with(run::RUN_MAGIC, 8), |bytes: &[u8]| text(RunHeader::decode(bytes)));
    let flags = vec![(header_at::REQUIRED, 4, 0)];
    Sealed { what: "run header", bytes, ignored, flags, seal: &seal, read: &read }.check(0, 100);

    let mut bytes = Vec::new();
    let header = segment_header(&mut Rng(3));
    SegmentHeader { tag: header.generation ^ 1, ..header }.encode(&mut bytes);
    let ignored = vec![0..8, frame::segment_at::TAG + 4..frame::SEGMENT_HEADER_BYTES];
    let (seal, read) = (sealed_with(frame::SEGMENT_MAGIC, 0), |bytes: &[u8]| text(SegmentHeader::decode(bytes)));
    let flags = vec![(frame::segment_at::REQUIRED_FEATURES, 8, frame::KNOWN_FEATURES)];
    let header = Sealed { what: "log segment header", bytes, ignored, flags, seal: &seal, read: &read };
    header.check(0, 100);
    for at in [frame::segment_at::KEY, frame::segment_at::KEY_VERSION] {
        let mut bytes = header.bytes.clone();
        bytes[at] = 1;
        (header.seal)(&mut bytes);
        assert!(matches!(SegmentHeader::decode(&bytes), Err(FormatError::Invalid { what: "log segment key", .. })));
    }
}

const FILE: FileId = FileId(3);
/// Where what follows the blocks begins.
const BASE: u64 = 1 << 20;

/// A part's pages, top level and footer, and the file's end.
fn check_part<E: LeafEntry + Debug>(entries: Vec<E>, keys: usize) {
    let (all, places) = run_tail(FILE, &[(TreeId(1), entries)], BASE);
    let bytes = |at: u64, bytes: usize| all[(at - BASE) as usize..][..bytes].to_vec();
    let place = places[0];
    let part = Part::decode(FILE, 0, &places, &bytes(place.offset, place.bytes as usize)).unwrap();
    let (leaves, top) = (part.sections[0], part.sections[1]);
    let leaf = part.decode_top(FILE, &bytes(top.offset, top.bytes as usize)).unwrap().remove(0);

    let page = bytes(leaf.offset, leaf.bytes as usize);
    let (one, first) = (run::INDEX_ENTRY_BYTES + keys, run::LEAF_HEADER_BYTES);
    let each =
        |from: usize, to: usize| (0..leaf.blocks as usize).map(move |i| first + i * one + from..first + i * one + to);
    let ignored = [leaf_at::CHECKSUM..8, leaf_at::ZERO..leaf_at::ENTRIES].into_iter();
    let ignored = ignored.chain(each(entry_at::ZERO, entry_at::KEYS)).collect();
    let flags = each(entry_at::FLAGS, entry_at::FLAGS + 4).map(|r| (r.start, 4, 31)).collect();
    let read = |bytes: &[u8]| {
        let mut out: Vec<E> = Vec::new();
        text(part.decode_leaf(FILE, &leaf, bytes, &mut out).map(|()| out))
    };
    let seal = sealed_with(block_context(FILE, leaf.offset), 0);
    let length = page.len();
    Sealed { what: "index page", bytes: page, ignored, flags, seal: &seal, read: &read }.check(0, length);

    let page = bytes(top.offset, top.bytes as usize);
    let read = |bytes: &[u8]| {
        let top = run::Section::written(FILE, section_kind::INDEX_TOP, true, top.offset, bytes, 0..bytes.len());
        text(Part { sections: vec![leaves, top], ..part.clone() }.decode_top(FILE, bytes))
    };
    let (ignored, length) = (vec![top_at::ZERO..top_at::KEYS], page.len());
    Sealed { what: "top level", bytes: page, ignored, flags: Vec::new(), seal: &|_| {}, read: &read }.check(0, length);

    let footer = bytes(place.offset, place.bytes as usize);
    let table = |i: usize| part_at::TABLE + i * run::SECTION_ENTRY_BYTES;
    let mut ignored = vec![0..8, part_at::ZERO..part_at::SECTIONS];
    ignored.extend((0..3).map(|i| table(i) + section_at::ZERO..table(i) + section_at::OFFSET));
    let mut flags = vec![(part_at::BLOCK_KIND, 1, 1)];
    flags.extend((0..3).map(|i| (table(i) + section_at::REQUIRED, 1, 1)));
    let read = |bytes: &[u8]| text(Part::decode(FILE, 0, &places, bytes));
    let (seal, length) = (sealed_with(block_context(FILE, place.offset), 0), footer.len());
    Sealed { what: "part footer", bytes: footer, ignored, flags, seal: &seal, read: &read }.check(0, length);
}

#[test]
fn of_parts() {
    check_part::<BlockEntry>((0..3).map(|i| entry(4096 + 100 * i, 3 * i)).collect(), 0);
    let keys = |i: u64| key_entry(4096 + 100 * i, &[b'a' + i as u8, 0], &[b'a' + i as u8, 1, 1]);
    check_part::<KeyBlockEntry>((0..3).map(keys).collect(), 5);
}

#[test]
fn of_a_runs_end() {
    let place = PartPlace { tree: TreeId(1), offset: 5000, bytes: 1000 };
    let mut bytes = vec![0; 7000];
    run::encode_end(FILE, &[place], 0, &mut bytes);
    let (directory, end) =
        (bytes[7000..][..run::PART_ENTRY_BYTES].to_vec(), bytes.split_off(7000 + run::PART_ENTRY_BYTES));
    let ignored = vec![0..8, footer_at::DIRECTORY_SUM + 8..run::RUN_FOOTER_BYTES];
    let (seal, read) = (sealed_with(run::FOOTER_MAGIC, 0), |bytes: &[u8]| text(RunFooter::decode(bytes, 1 << 40)));
    let footer = Sealed { what: "run footer", bytes: end, ignored, flags: Vec::new(), seal: &seal, read: &read };
    footer.check(0, run::RUN_FOOTER_BYTES);
    let read = |bytes: &[u8]| {
        let mut end = footer.bytes.clone();
        let sum = xxh3_64_with_seed(bytes, block_context(FILE, 7000));
        end[footer_at::DIRECTORY_SUM..][..8].copy_from_slice(&sum.to_le_bytes());
        (footer.seal)(&mut end);
        text(RunFooter::decode(&end, 1 << 40).unwrap().decode_directory(bytes))
    };
    let ignored = vec![place_at::ZERO..run::PART_ENTRY_BYTES];
    Sealed { what: "directory", bytes: directory, ignored, flags: Vec::new(), seal: &|_| {}, read: &read }
        .check(0, run::PART_ENTRY_BYTES);
}

#[test]
fn of_a_manifests_headers() {
    let (bytes, states) = manifest_with_edits(&mut Rng(WITH_EDITS));
    assert!(states.len() > 1);
    let mut base = Vec::new();
    states[0].encode(&mut base);
    let (edit, base_end) = (edit_offset(base.len()), base.len());
    let read = |bytes: &[u8]| text(ManifestFile::decode(bytes));
    let seal = |bytes: &mut [u8]| sealed_with(MANIFEST_MAGIC, 0)(&mut bytes[..base_end]);
    let ignored = vec![0..8, manifest_at::ZERO..manifest_at::BODY_BYTES];
    let base = Sealed { what: "manifest", bytes, ignored, flags: Vec::new(), seal: &seal, read: &read };
    base.check(0, manifest_at::BODY);
    let body = u64::from_le_bytes(base.bytes[edit + edit_at::BODY_BYTES..][..8].try_into().unwrap()) as usize;
    let end = edit + edit_at::BODY + body;
    let seal = |bytes: &mut [u8]| sealed_with(EDIT_MAGIC, 0)(&mut bytes[edit..end]);
    let ignored = vec![edit..edit + 8];
    Sealed { what: "manifest edit", ignored, seal: &seal, ..base }.check(edit, edit + edit_at::BODY);
}

/// Reads one record of this kind and body.
fn record(kind: u8, body: &[u8]) -> Result<()> {
    RecordReader::new(&entry_of(kind, body)).collect::<Result<Vec<Record<'_>>>>().map(drop)
}

/// Exactly the `known` bits of the flags may be set.
fn check_flags(what: &str, known: u64, read: impl Fn(u64) -> Result<()>) {
    for bit in 0..64 {
        let found = read(1 << bit);
        match known >> bit & 1 {
            1 => assert_eq!(found, Ok(()), "{what}: bit {bit}"),
            _ => assert!(matches!(found, Err(FormatError::Unknown { .. })), "{what}: bit {bit}: {found:?}"),
        }
    }
}

/// Of `all` bytes exactly these are `known`.
fn check_byte(what: &str, all: RangeInclusive<u8>, known: Range<u8>, read: impl Fn(u8) -> Result<()>) {
    for byte in all {
        match (read(byte), known.contains(&byte)) {
            (Ok(()), true) | (Err(FormatError::Unknown { .. }), false) => {}
            (found, _) => panic!("{what}: {byte}: {found:?}"),
        }
    }
}

#[test]
fn of_records_flags() {
    check_flags("row", 3, |flags| record(1, &[&[1, 2, 3, 4][..], &varint(flags), &[0, 0]].concat()));
    check_flags("key", 0, |flags| record(14, &[&[1, 2, 3, 4][..], &varint(flags), &[0]].concat()));
    // A run whose bounds are good as rows and as keys.
    let run = |flags: u64| {
        let (origin, bounds) = (if flags & 1 == 0 { 0 } else { 17 }, if flags & 2 == 0 { 2 } else { 4 });
        let bounds = &[1, 1, 1, 1][..bounds];
        [&varint(flags), &vec![9; origin][..], &[5, 0, 0], bounds, &[6, 0], &sized(&[0; 12])].concat()
    };
    check_flags("run", 3, |flags| record(12, &[&[1, 1][..], &sized(&run(flags)), &[0, 0]].concat()));
    assert_eq!(record(12, &[&[1, 1][..], &sized(&run(3)), &[0, 0]].concat()), Ok(()));
}

/// What can be wrong in the record of a table that is created.
struct Created {
    tree: u8,
    index_flags: u64,
    part_flags: u64,
    state: u8,
    default: u8,
    format: u8,
    compression: u8,
}

const GOOD: Created =
    Created { tree: 2, index_flags: 0, part_flags: 0, state: 2, default: 0, format: 0, compression: 0 };

impl Created {
    fn read(&self) -> Result<()> {
        let part = [&[0, 0][..], &varint(self.part_flags), &[0, 0]].concat();
        let index = [&[8, 1, 1, b'i'][..], &varint(self.index_flags), &[1], &sized(&part), &[self.state, 0]].concat();
        let mut layout = Vec::new();
        layout_of(&[ColumnKind::Fixed { width: 4 }], |_| false).encode(&mut layout);
        // The byte behind the default is its length.
        let column = [0, self.default, 0];
        let version = [&[0][..], &sized(&layout), &[1], &sized(&column)].concat();
        let rows = [1, 1, 7];
        let head = [&[1, 0, 2][..], &rows, &[self.tree], &sized(&index)].concat();
        record(8, &[&head[..], &[1], &sized(&version), &[self.format, self.compression, 0, 0, 0]].concat())
    }
}

#[test]
fn of_a_tables_entry() {
    assert_eq!(GOOD.read(), Ok(()));
    check_flags("index", 1, |index_flags| Created { index_flags, ..GOOD }.read());
    check_flags("key part", 1, |part_flags| Created { part_flags, ..GOOD }.read());
    check_byte("state", 0..=u8::MAX, 1..4, |state| Created { state, ..GOOD }.read());
    check_byte("default", 0..=u8::MAX, 0..2, |default| Created { default, ..GOOD }.read());
    check_byte("row format", 0..=u8::MAX, 0..2, |format| Created { format, ..GOOD }.read());
    check_byte("compression", 0..=u8::MAX, 0..3, |compression| Created { compression, ..GOOD }.read());
    // There is a tree of rows already; and those that say so are skipped.
    check_byte("tree", 2..=0x7f, 2..3, |tree| Created { tree, ..GOOD }.read());
    assert!(Created { tree: 0, ..GOOD }.read().is_err() && Created { tree: 1, ..GOOD }.read().is_err());
    assert_eq!(Created { tree: 0xff, ..GOOD }.read(), Ok(()));
}

#[test]
fn of_layouts_and_schemas() {
    let layout = |kind: u8, number: u8, byte: u8, mask: u8, null: u8| {
        Layout::decode(&[20, 1, 1, kind, number, byte, 1, mask, null]).map(drop)
    };
    check_byte("kind of a column", 0..=u8::MAX, 1..5, |kind| {
        layout(kind, if kind == 4 { 0 } else { 2 }, u8::from(kind > 1), 0, 0)
    });
    assert_eq!(layout(1, 2, 0, 1, 0), Ok(()));
    let unused = |found| Err(FormatError::Invalid { what: "unused number of a column", found });
    assert_eq!(layout(1, 2, 5, 0, 0), unused(5));
    assert_eq!(layout(4, 3, 1, 0, 0), unused(3));
    assert_eq!(layout(1, 2, 0, 0, 6), unused(6));

    let schema = |version: u8, kind: u8, max: u8, null: u8| {
        Schema::decode(&[b"ESCH", &[version, 1, 1, b'c', kind, max, null][..]].concat()).map(drop)
    };
    check_byte("type", 0..=u8::MAX, 1..6, |kind| schema(1, kind, 0, 0));
    check_byte("nullable", 0..=u8::MAX, 0..2, |null| schema(1, 1, 0, null));
    assert!(matches!(schema(2, 1, 0, 0), Err(FormatError::NewerVersion { found: 2, .. })));
    assert!(matches!(schema(1, 1, 8, 0), Err(FormatError::Invalid { found: 8, .. })));
    assert_eq!(schema(1, 4, 8, 0), Ok(()));
}

/// A base of these entries, and if there are some, an edit of those.
fn manifest_of(base: &[&[u8]], edit: &[&[u8]]) -> Result<ManifestFile> {
    let (base, edit) = (base.concat(), edit.concat());
    let mut file = vec![0; manifest_at::BODY];
    file[manifest_at::MAGIC..][..8].copy_from_slice(&MANIFEST_MAGIC.to_le_bytes());
    file[manifest_at::VERSION] = 2;
    file[manifest_at::BODY_BYTES..][..8].copy_from_slice(&(base.len() as u64).to_le_bytes());
    file.extend_from_slice(&base);
    sealed_with(MANIFEST_MAGIC, 0)(&mut file);
    if !edit.is_empty() {
        let at = edit_offset(file.len());
        file.resize(at + edit_at::BODY, 0);
        file[at + edit_at::MAGIC..][..8].copy_from_slice(&EDIT_MAGIC.to_le_bytes());
        file[at + edit_at::BODY_BYTES..][..8].copy_from_slice(&(edit.len() as u64).to_le_bytes());
        file.extend_from_slice(&edit);
        sealed_with(EDIT_MAGIC, 0)(&mut file[at..]);
    }
    ManifestFile::decode(&file)
}

#[test]
fn of_a_manifests_entries() {
    let folder = |features: u64| entry_of(1, &[&[7; 16][..], &varint(features)].concat());
    let numbers = |generation: u8| entry_of(2, &[generation, 9, 1, 1, 1, 1]);
    let gone = entry_of(4, &[77]);
    let edits = |base: &[&[u8]], edit: &[&[u8]]| manifest_of(base, edit).map(|f| (f.edits, f.torn));
    assert_eq!(edits(&[&folder(0), &numbers(1)], &[&numbers(2)]), Ok((1, None)));
    check_flags("features", 0, |bits| edits(&[&folder(bits), &numbers(1)], &[]).map(drop));
    check_byte("manifest entry", 6..=0x7f, 0..0, |kind| {
        edits(&[&folder(0), &numbers(1), &entry_of(kind, b"x")], &[]).map(drop)
    });
    // Those that say so are skipped.
    assert_eq!(edits(&[&folder(0), &numbers(1), &entry_of(0xfe, b"x")], &[]), Ok((0, None)));
    let invalid = |what, found| Err(FormatError::Invalid { what, found });
    let (base, edit) = ("folders of a manifest's base", "folders of a manifest's edit");
    assert_eq!(edits(&[&numbers(1)], &[]), invalid(base, 0));
    assert_eq!(edits(&[&folder(0), &folder(0), &numbers(1)], &[]), invalid(base, 2));
    assert_eq!(edits(&[&folder(0), &numbers(1)], &[&folder(0), &numbers(2)]), invalid(edit, 1));
    assert_eq!(edits(&[&folder(0)], &[]), invalid("manifest without numbers, after generation", 0));
    assert_eq!(edits(&[&folder(0), &numbers(1), &numbers(1)], &[]), invalid("numbers of a manifest, how often", 2));
    let not_there = invalid("table that is gone and was not there, table", 77);
    assert_eq!(edits(&[&folder(0), &numbers(1), &gone], &[]), not_there);
    assert_eq!(edits(&[&folder(0), &numbers(1)], &[&numbers(2), &gone]), not_there);
}

#[test]
fn a_table_is_once_in_a_base() {
    let (bytes, states) = manifest_with_edits(&mut Rng(WITH_EDITS));
    let table = states[0].tables.keys().next().unwrap();
    let mut base = Vec::new();
    states[0].encode(&mut base);
    let body = &bytes[manifest_at::BODY..base.len()];
    assert!(manifest_of(&[body], &[]).is_ok());
    // The first entries are FOLDER and NUMBERS.
    let entry = |from: usize| from + 1 + if body[from + 1] < 0x80 { 1 + body[from + 1] as usize } else { panic!() };
    let tables = &body[entry(entry(0))..];
    let twice = Err(FormatError::Invalid { what: "table that is twice in a manifest, table", found: table.0 });
    assert_eq!(manifest_of(&[body, tables], &[]), twice);
}
