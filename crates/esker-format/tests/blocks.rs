//! Blocks give back what was put into them, by every way out, and refuse what was damaged.
#![allow(clippy::unwrap_used)]

mod common;

use common::{image_of, random_layout, random_mask, random_row, Rng};
use esker_format::block::{block_at, flags, reseal, segment_at, BLOCK_HEADER_BYTES};
use esker_format::{
    row, BlockBytes, BlockEntry, ColumnKind, ColumnMask, CommitSeq, Compression, FormatError, Layout, RowBlock,
    RowBlockBuilder, RowFormat, RowId, VersionTag,
};
use proptest::prelude::*;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};

type Version = (RowId, VersionTag, Vec<u8>);

/// Random versions in order of row id.
fn random_versions(layout: &Layout, rng: &mut Rng) -> Vec<Version> {
    let many = rng.chance(3);
    let rows = 1 + rng.below(if many { 300 } else { 20 });
    let (dense, seqs, variety) = (rng.chance(2), rng.below(4), 1 + rng.below(40));
    let deletes = rng.chance(3).then(|| [1, 4][rng.below(2) as usize]);
    let updates = [0, 1, 3][rng.below(3) as usize];
    let mut id = rng.below(1 << 50);
    let mut versions = Vec::new();
    for i in 0..rows {
        let wide = 1 << rng.below(40);
        id += if dense { 1 } else { rng.below(3) * (1 + rng.below(wide)) };
        let seq = match seqs {
            0 => 0,
            1 => 77,
            2 => rng.below(300),
            _ => rng.below(1 << 60),
        };
        let tombstone = deletes.is_some_and(|one_in| rng.chance(one_in));
        let supersedes = updates != 0 && rng.chance(updates);
        let ordinal = if rng.chance(20) { rng.below(1 << 40) } else { i };
        let tag = VersionTag { seq: CommitSeq(seq), ordinal, tombstone, supersedes };
        let packed = if tombstone { Vec::new() } else { random_row(layout, rng, variety) };
        versions.push((RowId(id), tag, packed));
    }
    versions
}

/// Are two images the same where they mean something? Blobs are compared by content.
fn same_image(layout: &Layout, mask: &ColumnMask, a: &[u8], b: &[u8]) -> bool {
    let head = ..layout.head_bytes as usize;
    a[head] == b[head]
        && layout.columns.iter().enumerate().filter(|(i, _)| mask.get(*i)).all(|(_, c)| {
            let slot = c.offset as usize..(c.offset + c.kind.slot_bytes()) as usize;
            let (a, b) = (&a[slot.clone()], &b[slot]);
            let len = |s: &[u8], n: u8| (0..n as usize).fold(0, |len, i| len | usize::from(s[i]) << (8 * i));
            match c.kind {
                ColumnKind::Fixed { .. } | ColumnKind::Padded { .. } => a == b,
                ColumnKind::Var { len_bytes, .. } => {
                    let used = len_bytes as usize + len(a, len_bytes);
                    a[..used] == b[..used]
                }
                ColumnKind::Blob { len_bytes } => {
                    let bytes = |s: &[u8]| {
                        let p = usize::from_ne_bytes(s[len_bytes as usize..].try_into().unwrap());
                        let n = len(s, len_bytes);
                        if n == 0 {
                            return Vec::new();
                        }
                        unsafe { std::slice::from_raw_parts(p as *const u8, n) }.to_vec()
                    };
                    bytes(a) == bytes(b)
                }
            }
        })
}

fn compression_of(n: u64) -> Compression {
    [Compression::None, Compression::Lz4, Compression::Zstd][n as usize % 3]
}

/// Everything that a block offers, against the versions that went in.
fn check_block(block: &RowBlock<&[u8]>, layout: &Layout, versions: &[Version], rng: &mut Rng) {
    block.verify().unwrap();
    let rows = versions.len() as u32;
    assert_eq!(block.rows(), rows);
    assert_eq!(block.first_id(), versions[0].0);
    assert_eq!(block.last_id(), versions[versions.len() - 1].0);
    assert_eq!(block.min_seq(), versions.iter().map(|v| v.1.seq).min().unwrap());
    assert_eq!(block.max_seq(), versions.iter().map(|v| v.1.seq).max().unwrap());
    assert_eq!(block.has_tombstones(), versions.iter().any(|v| v.1.tombstone));
    assert_eq!(block.ids_unique(), versions.windows(2).all(|w| w[0].0 != w[1].0));
    let mut ids = vec![RowId::ZERO; versions.len()];
    block.copy_ids(0..rows, &mut ids);
    for (i, (id, tag, packed)) in versions.iter().enumerate() {
        let i = i as u32;
        assert_eq!((block.row_id(i), ids[i as usize], block.tag(i)), (*id, *id, *tag));
        let mut out = vec![1];
        block.packed(i, &mut out).unwrap();
        assert_eq!((out[0], &out[1..]), (1, &packed[..]));
        for probe in [id.0.wrapping_sub(1), id.0, id.0 + 1] {
            let expected = versions.partition_point(|v| v.0 < RowId(probe)) as u32;
            assert_eq!(block.lower_bound(RowId(probe)), expected);
            for from in [0, expected / 2, expected.saturating_sub(1), expected] {
                assert_eq!(block.lower_bound_from(from, RowId(probe)), expected);
            }
        }
    }
    let width = layout.image_bytes as usize;
    let stride = width + rng.below(2) as usize * rng.below(40) as usize;
    let mask = random_mask(layout, rng);
    let from = rng.below(u64::from(rows)) as u32;
    let to = from + 1 + rng.below(u64::from(rows - from)) as u32;
    let n = (to - from) as usize;
    // Exactly as long as it must be: what is written outside is found by tools, and between images by the pattern.
    let mut images = vec![0x5a; (n - 1) * stride + width];
    let falls = rng.below(4) == 0;
    let (first, step) = if falls { ((n - 1) * stride, -(stride as isize)) } else { (0, stride as isize) };
    unsafe { block.decode_images(from..to, &mask, images[first..].as_mut_ptr(), step).unwrap() };
    for (k, (_, tag, packed)) in versions[from as usize..to as usize].iter().enumerate() {
        let at = if falls { n - 1 - k } else { k };
        let image = &images[at * stride..at * stride + width];
        if !tag.tombstone {
            assert!(same_image(layout, &mask, &image_of(layout, packed), image), "row {k}");
        }
        let mut covered = vec![false; width];
        covered[..layout.head_bytes as usize].fill(true);
        for (i, c) in layout.columns.iter().enumerate().filter(|(i, _)| mask.get(*i)) {
            let _ = i;
            covered[c.offset as usize..(c.offset + c.kind.slot_bytes()) as usize].fill(true);
        }
        assert!(image.iter().zip(covered).all(|(&b, c)| c || b == 0x5a), "an unwanted column was written");
    }
    for gap in images.chunks(stride.max(1)).filter_map(|c| c.get(width..)) {
        assert!(gap.iter().all(|&b| b == 0x5a), "bytes between images were written");
    }
}

/// A block that moves to another place is the same there, with the sequence that it is given if it has none.
fn check_reseal(
    bytes: &[u8],
    entry: &BlockEntry,
    layout: &Arc<Layout>,
    format: RowFormat,
    versions: &[Version],
    rng: &mut Rng,
) {
    let mut moved = bytes.to_vec();
    assert!(matches!(reseal(&mut moved, 98, 97, None), Err(FormatError::Checksum { .. })));
    let own = entry.max_seq != CommitSeq::ZERO;
    let seq = Some(CommitSeq(1 + rng.below(1 << 60)));
    if own {
        assert!(reseal(&mut moved, 99, 97, seq).is_err() && entry.moved(0, seq).is_err());
    }
    assert!(moved == bytes, "an error changed the block");
    let seq = seq.filter(|_| !own && rng.chance(2));
    assert_eq!(reseal(&mut moved, 99, 97, seq), Ok(*entry));
    entry.agrees_with(entry).unwrap();
    assert!(matches!(RowBlock::open(&moved[..], layout, format, 99), Err(FormatError::Checksum { .. })));
    let block = RowBlock::open(&moved[..], layout, format, 97).unwrap();
    let mut versions = versions.to_vec();
    versions.iter_mut().for_each(|v| v.1.seq = seq.unwrap_or(v.1.seq));
    check_block(&block, layout, &versions, rng);
    let there = entry.moved(4096, seq).unwrap();
    assert_eq!((there.offset, there.min_seq, there.max_seq), (4096, block.min_seq(), block.max_seq()));
    assert_eq!(
        BlockEntry { offset: 0, min_seq: entry.min_seq, max_seq: entry.max_seq, flags: entry.flags, ..there },
        *entry
    );
    // And back.
    if seq.is_none() {
        reseal(&mut moved, 97, 99, None).unwrap();
        assert!(moved == bytes);
    }
}

fn round_trip(seed: u64) {
    let rng = &mut Rng(seed);
    let format = if rng.chance(4) { RowFormat::Fixed } else { RowFormat::Dynamic };
    let layout = Arc::new(random_layout(rng, format == RowFormat::Dynamic));
    let mut builder = RowBlockBuilder::new(Arc::clone(&layout), format);
    let mut file = vec![7; 3];
    // Twice with one builder: nothing stays from the first time.
    for _ in 0..2 {
        let versions = random_versions(&layout, rng);
        for (id, tag, packed) in &versions {
            let plain = tag.seq == CommitSeq::ZERO && !tag.tombstone && !tag.supersedes;
            if plain && rng.chance(2) {
                let image = image_of(&layout, packed);
                unsafe { builder.push_image(*id, tag.ordinal, image.as_ptr()) };
            } else {
                builder.push_packed(*id, *tag, packed).unwrap();
            }
        }
        assert_eq!((builder.rows(), builder.last_id()), (versions.len(), versions.last().map(|v| v.0)));
        let (start, compression) = (file.len(), compression_of(rng.next()));
        let estimate = builder.raw_bytes();
        let entry = builder.finish(compression, 1, 99, &mut file).unwrap();
        assert!(builder.is_empty() && builder.raw_bytes() == 0);
        let bytes = &file[start..];
        assert_eq!(entry.stored_bytes as usize, bytes.len());
        assert!(entry.raw_bytes as usize <= estimate + 32 * versions.len() + 32 * layout.columns.len() + 400);
        assert_eq!(entry.rows as usize, versions.len());
        assert_eq!(entry.min_ordinal, versions.iter().map(|v| v.1.ordinal).min().unwrap());
        assert_eq!(entry.max_ordinal, versions.iter().map(|v| v.1.ordinal).max().unwrap());
        assert_eq!(entry.tombstones as usize, versions.iter().filter(|v| v.1.tombstone).count());
        assert_eq!(entry.supersedes as usize, versions.iter().filter(|v| v.1.supersedes).count());
        check_reseal(bytes, &entry, &layout, format, &versions, rng);
        let block = RowBlock::open(bytes, &layout, format, 99).unwrap();
        assert_eq!(entry.ids_unique(), block.ids_unique());
        check_block(&block, &layout, &versions, rng);
        let moved = RowBlock::open(bytes, &layout, format, 98).unwrap_err();
        assert!(matches!(moved, FormatError::Checksum { .. }));
        if let Some(images) = block.images(0..block.rows()) {
            assert_eq!(images.len(), versions.len() * layout.image_bytes as usize);
            for (image, (_, tag, packed)) in images.chunks(layout.image_bytes.max(1) as usize).zip(&versions) {
                let mask = ColumnMask::all(layout.columns.len());
                assert!(tag.tombstone || same_image(&layout, &mask, image, &image_of(&layout, packed)));
            }
        } else {
            assert_eq!(format, RowFormat::Dynamic);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn blocks_round_trip(seed: u64) {
        round_trip(seed);
    }

    #[test]
    fn images_pack_like_values(seed: u64) {
        let rng = &mut Rng(seed);
        let layout = random_layout(rng, true);
        let packed = random_row(&layout, rng, 30);
        row::check(&layout, &packed).unwrap();
        let image = image_of(&layout, &packed);
        let mut again = Vec::new();
        unsafe { row::pack(&layout, image.as_ptr(), &mut again) }.unwrap();
        prop_assert_eq!(&again, &packed);
        prop_assert_eq!(unsafe { row::packed_len(&layout, image.as_ptr()) }, packed.len());
        let values = row::values(&layout, &packed).unwrap();
        let mut again = Vec::new();
        row::pack_values(&layout, &values, &mut again).unwrap();
        prop_assert_eq!(&again, &packed);
        for cut in 0..packed.len() {
            prop_assert!(row::check(&layout, &packed[..cut]).is_err());
        }
    }
}

#[test]
fn every_flipped_bit_is_found() {
    let rng = &mut Rng(5);
    let layout = Arc::new(random_layout(&mut Rng(11), true));
    let mut builder = RowBlockBuilder::new(Arc::clone(&layout), RowFormat::Dynamic);
    for id in 0..20 {
        let tag = VersionTag { seq: CommitSeq(id), ordinal: 3, ..VersionTag::default() };
        builder.push_packed(RowId(id), tag, &random_row(&layout, rng, 9)).unwrap();
    }
    let mut bytes = Vec::new();
    builder.finish(Compression::Lz4, 0, 1, &mut bytes).unwrap();
    for bit in 0..bytes.len() * 8 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(RowBlock::open(&bytes[..], &layout, RowFormat::Dynamic, 1).is_err(), "bit {bit}");
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
    for len in 0..bytes.len() {
        assert!(RowBlock::open(&bytes[..len], &layout, RowFormat::Dynamic, 1).is_err(), "length {len}");
    }
    assert!(RowBlock::open(&bytes[..], &layout, RowFormat::Dynamic, 1).is_ok());
}

/// A block of a few rows, with sequences of their own or none.
fn small_block(seqs: bool) -> (Arc<Layout>, Vec<u8>, BlockEntry) {
    let rng = &mut Rng(5);
    let layout = Arc::new(random_layout(&mut Rng(11), true));
    let mut builder = RowBlockBuilder::new(Arc::clone(&layout), RowFormat::Dynamic);
    for id in 0..20 {
        let tag = VersionTag { seq: CommitSeq(u64::from(seqs)), ordinal: 3, ..VersionTag::default() };
        builder.push_packed(RowId(id), tag, &random_row(&layout, rng, 9)).unwrap();
    }
    let mut bytes = Vec::new();
    let entry = builder.finish(Compression::Lz4, 0, 1, &mut bytes).unwrap();
    (layout, bytes, entry)
}

/// Sets a field of the header and seals header and directory again.
fn with_header(bytes: &[u8], at: usize, value: u32) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
    common::decoders::seal_head(&mut bytes, 1);
    bytes
}

/// Stored bytes of a block that has few rooms.
struct Cramped<'a>(&'a [u8], std::cell::Cell<u32>, usize);

impl AsRef<[u8]> for Cramped<'_> {
    fn as_ref(&self) -> &[u8] {
        self.0
    }
}

impl BlockBytes for Cramped<'_> {
    type Room = Vec<u8>;

    fn note_memory(&mut self, rooms: usize, _: usize) {
        self.2 = rooms;
    }

    fn room(&self, bytes: usize) -> Option<Vec<u8>> {
        self.1.set(self.1.get().checked_sub(1)?);
        Some(vec![0xee; bytes])
    }
}

/// Rooms hold what others left; what is decoded is the same. Without one it is an error, until there is one.
#[test]
fn a_block_is_decoded_into_rooms_or_says_that_there_are_none() {
    let (layout, bytes, _) = small_block(false);
    let plain = RowBlock::open(&bytes[..], &layout, RowFormat::Dynamic, 1).unwrap();
    let cramped = Cramped(&bytes, std::cell::Cell::new(0), 0);
    let block = RowBlock::open(cramped, &layout, RowFormat::Dynamic, 1).unwrap();
    assert!(block.bytes().2 > 0);
    assert!(matches!(block.verify(), Err(FormatError::OutOfMemory { bytes }) if bytes as usize <= block.bytes().2));
    block.bytes().1.set(u32::MAX);
    block.verify().unwrap();
    for i in 0..block.rows() {
        let (mut one, mut other) = (Vec::new(), Vec::new());
        plain.packed(i, &mut one).unwrap();
        block.packed(i, &mut other).unwrap();
        assert_eq!(one, other);
    }
}

/// Counts rooms, and takes its time, so that others come meanwhile.
struct Slow<'a>(&'a [u8], AtomicUsize);

impl AsRef<[u8]> for Slow<'_> {
    fn as_ref(&self) -> &[u8] {
        self.0
    }
}

impl BlockBytes for Slow<'_> {
    type Room = Vec<u8>;

    fn note_memory(&mut self, _: usize, _: usize) {}

    fn room(&self, bytes: usize) -> Option<Vec<u8>> {
        self.1.fetch_add(1, Ordering::Relaxed);
        (0..100).for_each(|_| std::thread::yield_now());
        Some(vec![0; bytes])
    }
}

#[test]
fn threads_that_use_a_column_first_take_room_for_it_once() {
    let (layout, bytes, _) = small_block(false);
    let open = || RowBlock::open(Slow(&bytes, AtomicUsize::new(0)), &layout, RowFormat::Dynamic, 1).unwrap();
    let alone = open();
    alone.verify().unwrap();
    let rooms = alone.bytes().1.load(Ordering::Relaxed);
    assert!(rooms > 0);
    for _ in 0..50 {
        let (block, start) = (open(), Barrier::new(4));
        std::thread::scope(|s| {
            (0..4).for_each(|_| {
                s.spawn(|| {
                    start.wait();
                    block.verify().unwrap();
                });
            });
        });
        assert_eq!(block.bytes().1.load(Ordering::Relaxed), rooms);
    }
}

/// A hint decompresses nothing, and reads nothing that is not there.
#[test]
fn looking_for_a_row_takes_no_room() {
    let (layout, bytes, _) = small_block(false);
    let block = RowBlock::open(Slow(&bytes, AtomicUsize::new(0)), &layout, RowFormat::Dynamic, 1).unwrap();
    let look = || {
        block.prefetch_head();
        (0..block.rows() + 1000).chain([u32::MAX]).for_each(|i| block.prefetch_found(i));
        block.bytes().1.load(Ordering::Relaxed)
    };
    assert_eq!(look(), 0);
    block.verify().unwrap();
    let rooms = block.bytes().1.load(Ordering::Relaxed);
    assert!(rooms > 0 && look() == rooms);
}

#[test]
fn what_cannot_be_read_is_refused_by_name() {
    let (layout, bytes, _) = small_block(false);
    let open = |bytes: &[u8]| RowBlock::open(bytes, &layout, RowFormat::Dynamic, 1).map(|_| ()).unwrap_err();
    let version = |v: u32| with_header(&bytes, block_at::VERSION, v);
    assert!(matches!(open(&version(1)), FormatError::OlderVersion { found: 1, .. }));
    assert!(matches!(open(&version(3)), FormatError::NewerVersion { found: 3, .. }));
    let needs = with_header(&bytes, block_at::REQUIRED, 4);
    assert!(matches!(open(&needs), FormatError::Unknown { found: 4, .. }));
    for at in [block_at::KEY_ID, block_at::KEY_VERSION, block_at::AUTH_TAG, block_at::AUTH_TAG + 12] {
        assert!(matches!(open(&with_header(&bytes, at, 1)), FormatError::Invalid { what: "block key", .. }));
    }
    // What is reserved may be used by others.
    RowBlock::open(&with_header(&bytes, block_at::RESERVED, 9)[..], &layout, RowFormat::Dynamic, 1).unwrap();
}

#[test]
fn a_damaged_block_is_not_sealed_anew() {
    let (_, bytes, _) = small_block(false);
    for at in [block_at::ROWS, BLOCK_HEADER_BYTES + segment_at::UNIT, bytes.len() - 1] {
        let mut bad = bytes.clone();
        bad[at] ^= 1;
        assert!(matches!(reseal(&mut bad, 1, 2, None), Err(FormatError::Checksum { .. })), "byte {at}");
    }
}

#[test]
fn one_sequence_takes_no_segment() {
    let ((_, none, a), (_, one, b)) = (small_block(false), small_block(true));
    assert_eq!(none.len(), one.len());
    assert_eq!((a.flags & flags::SEQ_ZERO, b.flags & flags::SEQ_ZERO), (flags::SEQ_ZERO, 0));
    assert_eq!(a.flags & b.flags & flags::SEQ_UNIFORM, flags::SEQ_UNIFORM);
    let mut sealed = none;
    reseal(&mut sealed, 1, 1, Some(CommitSeq(1))).unwrap();
    assert!(sealed == one, "the same block as if it had been written with the sequence");
}

#[test]
fn wrong_rows_are_refused_and_leave_nothing() {
    let rng = &mut Rng(1);
    let layout = Arc::new(random_layout(&mut Rng(11), true));
    let mut builder = RowBlockBuilder::new(Arc::clone(&layout), RowFormat::Dynamic);
    let row = random_row(&layout, rng, 9);
    let tag = VersionTag::default();
    builder.push_packed(RowId(5), tag, &row).unwrap();
    let before = builder.raw_bytes();
    assert!(builder.push_packed(RowId(4), tag, &row).is_err());
    assert!(builder.push_packed(RowId(6), tag, &row[..row.len() - 1]).is_err());
    assert!(builder.push_packed(RowId(6), tag, &[&row[..], &[0]].concat()).is_err());
    assert_eq!((builder.rows(), builder.raw_bytes()), (1, before));
    let mut out = Vec::new();
    builder.finish(Compression::None, 0, 0, &mut out).unwrap();
    RowBlock::open(&out[..], &layout, RowFormat::Dynamic, 0).unwrap().verify().unwrap();
}

#[test]
fn one_very_long_row() {
    let layout =
        Arc::new(common::layout_of(&[ColumnKind::Blob { len_bytes: 4 }, ColumnKind::Fixed { width: 4 }], |_| false));
    let long = vec![b'z'; 30 << 20];
    let mut row = Vec::new();
    let values = [row::Value::Bytes(&long), row::Value::Bytes(&[1, 2, 3, 4])];
    row::pack_values(&layout, &values, &mut row).unwrap();
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
        let mut builder = RowBlockBuilder::new(Arc::clone(&layout), RowFormat::Dynamic);
        builder.push_packed(RowId(1), VersionTag::default(), &row).unwrap();
        let mut out = Vec::new();
        builder.finish(compression, 1, 0, &mut out).unwrap();
        let block = RowBlock::open(&out[..], &layout, RowFormat::Dynamic, 0).unwrap();
        let mut again = Vec::new();
        block.packed(0, &mut again).unwrap();
        assert!(again == row);
    }
}

/// A block as it is in memory: what was decompressed stands in the place of what was stored, all else as it was.
#[test]
fn a_block_with_its_opened_segments_unpacked_reads_alike() {
    let rng = &mut Rng(21);
    let (mut made, mut fewer) = (0, 0);
    for round in 0..60 {
        let layout = Arc::new(random_layout(&mut Rng(round), true));
        let mut builder = RowBlockBuilder::new(Arc::clone(&layout), RowFormat::Dynamic);
        for id in 0..150 {
            let (dead, seq) = (id % 19 == 7, if round % 2 == 0 { id / 3 } else { 4 });
            let tag = VersionTag { seq: CommitSeq(seq), ordinal: id % 5, tombstone: dead, supersedes: id % 4 == 0 };
            let row = if dead { Vec::new() } else { random_row(&layout, rng, 9) };
            builder.push_packed(RowId(id), tag, &row).unwrap();
        }
        let (mut bytes, kind) = (Vec::new(), [Compression::Lz4, Compression::Zstd][round as usize % 2]);
        builder.finish(kind, 1, 1, &mut bytes).unwrap();
        let block = RowBlock::open(&bytes[..], &layout, RowFormat::Dynamic, 1).unwrap();
        let mut unpacked = Vec::new();
        assert!(!block.unpack(&mut unpacked) && unpacked.is_empty(), "nothing has been decompressed");
        // Some columns.
        let image = &mut vec![0u8; layout.image_bytes as usize];
        let mask = random_mask(&layout, rng);
        // SAFETY: the image is one of the layout.
        unsafe { block.decode_images(0..1, &mask, image.as_mut_ptr(), image.len() as isize).unwrap() };
        if !block.unpack(&mut unpacked) {
            continue;
        }
        made += 1;
        let again = block.open_unpacked(&unpacked[..]).unwrap();
        fewer += u32::from(unpacked.len() < block.entry().raw_bytes as usize);
        assert!(unpacked.len() > bytes.len(), "round {round}");
        for i in 0..block.rows() {
            let (mut one, mut other) = (Vec::new(), Vec::new());
            block.packed(i, &mut one).unwrap();
            again.packed(i, &mut other).unwrap();
            assert_eq!((one, block.row_id(i), block.tag(i)), (other, again.row_id(i), again.tag(i)), "round {round}");
        }
        again.verify().unwrap();
        // All of them, and nothing is left to decompress.
        block.verify().unwrap();
        let (mut whole, mut more) = (Vec::new(), Vec::new());
        assert!(block.unpack(&mut whole));
        assert_eq!(whole.len(), block.entry().raw_bytes as usize);
        let whole = block.open_unpacked(&whole[..]).unwrap();
        whole.verify().unwrap();
        assert!(!whole.unpack(&mut more));
    }
    assert!(made > 20 && fewer > 5, "{made} unpacked, {fewer} of them in part");
}
