//! What the tests of this crate share: a deterministic source of numbers, layouts of every kind of column, and rows.
#![allow(dead_code)]

pub mod decoders;
pub mod keys;
pub mod samples;

use esker_format::frame::frame_header;
use esker_format::row::{self, Value};
use esker_format::run::{encode_end, section_kind, MoreSections, Part, PartPlace, Section};
use esker_format::{
    Column, ColumnKind, ColumnMask, CommitSeq, FileId, FormatError, Layout, LeafEntry, Lsn, NullBit, RowId, RunFooter,
    RunHeader, RunStats, TreeId, VersionTag,
};

/// A small generator: the same seed gives the same numbers everywhere.
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }

    pub fn chance(&mut self, one_in: u64) -> bool {
        self.below(one_in) == 0
    }
}

/// Appends a frame of the log.
pub fn encode_frame(lsn: Lsn, tag: u32, payload: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&frame_header(lsn, tag, payload));
    out.extend_from_slice(payload);
}

/// A number as log and manifest write it.
pub fn varint(mut value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
    out
}

/// Bytes behind their length.
pub fn sized(body: &[u8]) -> Vec<u8> {
    [&varint(body.len() as u64), body].concat()
}

/// An entry of the log or of a manifest, of this kind.
pub fn entry_of(kind: u8, body: &[u8]) -> Vec<u8> {
    [&[kind][..], &sized(body)].concat()
}

/// Places columns one after the other behind a head that holds their null bits; `nullable` says which have one.
pub fn layout_of(kinds: &[ColumnKind], nullable: impl Fn(usize) -> bool) -> Layout {
    let head_bytes = kinds.len().div_ceil(8) as u32;
    let mut offset = head_bytes;
    let mut columns = Vec::new();
    for (i, &kind) in kinds.iter().enumerate() {
        let null = nullable(i).then_some(NullBit { byte: i as u32 / 8, mask: 1 << (i % 8) });
        columns.push(Column { kind, offset, null });
        offset += kind.slot_bytes();
    }
    let layout = Layout { image_bytes: offset, head_bytes, columns };
    layout.validate().unwrap();
    layout
}

/// A random kind of column.
pub fn random_kind(rng: &mut Rng, blobs: bool) -> ColumnKind {
    let width = match rng.below(4) {
        0 => rng.below(9) as u32,
        1 | 2 => rng.below(40) as u32,
        _ => rng.below(600) as u32,
    };
    match rng.below(if blobs { 4 } else { 3 }) {
        0 => ColumnKind::Fixed { width },
        1 => ColumnKind::Padded { width, pad: if rng.chance(3) { 0 } else { b' ' } },
        2 => ColumnKind::Var { len_bytes: if width > 255 || rng.chance(3) { 2 } else { 1 }, max: width },
        _ => ColumnKind::Blob { len_bytes: 1 + rng.below(4) as u8 },
    }
}

/// A random layout.
pub fn random_layout(rng: &mut Rng, blobs: bool) -> Layout {
    let kinds: Vec<_> = (0..rng.below(9)).map(|_| random_kind(rng, blobs)).collect();
    let bits = rng.next();
    layout_of(&kinds, |i| bits >> i & 1 == 1)
}

/// A random packed row. `variety` small: values repeat.
pub fn random_row(layout: &Layout, rng: &mut Rng, variety: u64) -> Vec<u8> {
    let mut values = Vec::new();
    for column in &layout.columns {
        let max = u64::from(column.kind.max_bytes()).min(700);
        let len = match column.kind {
            ColumnKind::Fixed { .. } => max,
            _ if rng.chance(4) => max,
            _ => rng.below(max.min(1 + variety) + 1),
        };
        let byte = b'a' + rng.below(variety.clamp(1, 20)) as u8;
        let bytes: Vec<u8> =
            (0..len).map(|_| if rng.chance(5) { b' ' } else { byte.wrapping_add(rng.below(variety) as u8) }).collect();
        values.push((column.null.is_some() && rng.chance(4)).then_some(()).map_or(Some(bytes), |()| None));
    }
    let values: Vec<_> = values.iter().map(|v| v.as_ref().map_or(Value::Null, |bytes| Value::Bytes(bytes))).collect();
    let mut packed = Vec::new();
    row::pack_values(layout, &values, &mut packed).unwrap();
    packed
}

/// A random set of columns.
pub fn random_mask(layout: &Layout, rng: &mut Rng) -> ColumnMask {
    let n = layout.columns.len();
    if rng.chance(2) {
        return ColumnMask::all(n);
    }
    let mut mask = ColumnMask::none(n);
    (0..n).filter(|_| rng.chance(2)).collect::<Vec<_>>().into_iter().for_each(|i| mask.set(i));
    mask
}

/// The image of a packed row, in memory of exactly its length.
pub fn image_of(layout: &Layout, packed: &[u8]) -> Vec<u8> {
    let mut image = vec![0xa5; layout.image_bytes as usize];
    row::unpack(layout, packed, &ColumnMask::all(layout.columns.len()), &mut image).unwrap();
    image
}

/// An entry of a key block: key, row id, tag, payload.
pub type Entry = (Vec<u8>, RowId, VersionTag, Vec<u8>);

/// Random entries in order of their keys.
pub fn random_entries(rng: &mut Rng) -> Vec<Entry> {
    let many = rng.chance(3);
    let (letters, longest) = (1 + rng.below(4), [3, 20, 400][rng.below(3) as usize]);
    let (prefix, payload) = (vec![b'p'; rng.below(80) as usize], rng.below(3) * 9);
    let (seqs, deletes, updates) = (rng.below(3), rng.below(3), rng.below(3));
    let ids = rng.below(1 << 40);
    let mut entries: Vec<Entry> = (0..1 + rng.below(if many { 300 } else { 20 }))
        .map(|i| {
            let mut key = prefix.clone();
            (0..rng.below(longest)).for_each(|_| key.push(b'a' + rng.below(letters) as u8));
            let seq = CommitSeq([0, 77, rng.below(300)][seqs as usize]);
            let tombstone = deletes > 0 && rng.chance(deletes * 2 - 1);
            let supersedes = updates > 0 && rng.chance(updates * 2 - 1);
            let ordinal = if rng.chance(20) { rng.below(1 << 40) } else { i };
            let bytes = (0..rng.below(payload + 1)).map(|_| rng.next() as u8).collect();
            (key, RowId(ids + rng.below(1000)), VersionTag { seq, ordinal, tombstone, supersedes }, bytes)
        })
        .collect();
    entries.sort_by(|a, b| a.0.cmp(&b.0));
    entries
}

/// Where the blocks of part `n` of [`run_tail`] may lie: behind the end of the one before, before its own.
pub const PART_GAP: usize = 1 << 20;

/// What follows the blocks of a file of these parts, each of a tree, from `base` on, with [`PART_GAP`] between parts.
pub fn run_tail<E: LeafEntry>(file: FileId, parts: &[(TreeId, Vec<E>)], base: u64) -> (Vec<u8>, Vec<PartPlace>) {
    let mut out = Vec::new();
    let mut places = Vec::new();
    for ((tree, entries), number) in parts.iter().zip(0..) {
        let mut stats = RunStats::default();
        entries.iter().for_each(|e| stats.add(e.block()));
        if number > 0 {
            out.resize(out.len() + PART_GAP, 0);
        }
        let first_block = entries.first().map_or(base + out.len() as u64, |e| e.block().offset);
        let (fingerprint, sections) = (7, Vec::new());
        let part = Part { number, tree: *tree, fingerprint, blocks: E::BLOCKS, first_block, sections };
        places.push(part.encode_with(file, (entries, &stats, MoreSections::default()), base, &mut out));
    }
    encode_end(file, &places, base, &mut out);
    (out, places)
}

/// The content of a section of a file's bytes.
pub fn section_of<'a>(file: &'a [u8], section: &Section) -> &'a [u8] {
    &file[section.offset as usize..][..section.bytes as usize]
}

/// What a file says of one of its parts: header, part, block index and figures.
pub type RunParts<E> = (RunHeader, Part, Vec<E>, RunStats);

/// Reads a part of a whole file.
pub fn read_part<E: LeafEntry>(bytes: &[u8], number: u32) -> Result<RunParts<E>, FormatError> {
    let header = RunHeader::decode(bytes)?;
    let footer = RunFooter::decode(bytes, bytes.len() as u64)?;
    let directory = &bytes[footer.directory_offset as usize..][..footer.directory_bytes() as usize];
    let places = footer.decode_directory(directory)?;
    let place = places[number as usize];
    let stored = &bytes[place.offset as usize..][..place.bytes as usize];
    let part = Part::decode(header.file, number, &places, stored)?;
    let section = |kind| part.section(kind).map(|s| section_of(bytes, s));
    let leaves = part.decode_top(header.file, section(section_kind::INDEX_TOP)?)?;
    part.section(section_kind::INDEX_LEAVES)?.check(header.file, section(section_kind::INDEX_LEAVES)?)?;
    let mut entries = Vec::new();
    for leaf in &leaves {
        let page = &bytes[leaf.offset as usize..][..leaf.bytes as usize];
        part.decode_leaf(header.file, leaf, page, &mut entries)?;
        // Any page can be read without the others.
        let mut alone: Vec<E> = Vec::new();
        part.decode_leaf(header.file, leaf, page, &mut alone)?;
        assert_eq!(alone.len() as u32, leaf.blocks);
    }
    let stats = part.decode_stats(header.file, section(section_kind::STATISTICS)?)?;
    Ok((header, part, entries, stats))
}
