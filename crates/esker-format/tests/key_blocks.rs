//! Key blocks give back what was put into them, and refuse what was damaged.
#![allow(clippy::unwrap_used)]

mod common;

use common::{random_entries, Entry, Rng};
use esker_format::block::{block_at, features, flags, reseal};
use esker_format::key_block::{MAX_KEY_BYTES, MAX_KEY_PAYLOAD_BYTES};
use esker_format::{
    BlockEntry, CommitSeq, Compression, FormatError, KeyBlock, KeyBlockBuilder, KeyBlockEntry, RowId, VersionTag,
};
use proptest::prelude::*;

fn push_all(builder: &mut KeyBlockBuilder, entries: &[Entry]) {
    for (key, row, tag, payload) in entries {
        builder.push(key, *row, *tag, payload).unwrap();
    }
}

fn check_block(block: &KeyBlock<&[u8]>, entries: &[Entry], rng: &mut Rng) {
    assert_eq!(block.rows() as usize, entries.len());
    for (at, (key, row, tag, payload)) in (0..).zip(entries) {
        assert_eq!((block.key(at), block.row(at), block.tag(at)), (&key[..], *row, *tag));
        assert_eq!(block.payload(at), &payload[..]);
    }
    let seqs = || entries.iter().map(|e| e.2.seq);
    assert_eq!((block.min_seq(), block.max_seq()), (seqs().min().unwrap(), seqs().max().unwrap()));
    assert_eq!(block.has_tombstones(), entries.iter().any(|e| e.2.tombstone));
    for _ in 0..30 {
        let mut probe = entries[rng.below(entries.len() as u64) as usize].0.clone();
        match rng.below(4) {
            0 => probe.push(0),
            1 => drop(probe.pop()),
            2 => probe.iter_mut().for_each(|b| *b = b.wrapping_add(1)),
            _ => {}
        }
        assert_eq!(block.lower_bound(&probe), entries.partition_point(|e| e.0 < probe) as u32);
    }
}

fn check_entry(entry: &KeyBlockEntry, entries: &[Entry], stored_bytes: usize) {
    let count = |is: fn(&VersionTag) -> bool| entries.iter().filter(|e| is(&e.2)).count() as u32;
    let (rows, ordinals) = (|| entries.iter().map(|e| e.1), || entries.iter().map(|e| e.2.ordinal));
    assert_eq!((&entry.first_key, &entry.last_key), (&entries[0].0, &entries[entries.len() - 1].0));
    let expected = BlockEntry {
        stored_bytes: stored_bytes as u32,
        rows: entries.len() as u32,
        first_id: rows().min().unwrap(),
        last_id: rows().max().unwrap(),
        tombstones: count(|t| t.tombstone),
        supersedes: count(|t| t.supersedes),
        min_ordinal: ordinals().min().unwrap(),
        max_ordinal: ordinals().max().unwrap(),
        ..entry.block
    };
    assert_eq!(entry.block, expected);
}

fn round_trip(seed: u64) {
    let rng = &mut Rng(seed);
    let mut builder = KeyBlockBuilder::new();
    let mut file = vec![7; 3];
    // Twice with one builder: nothing stays from the first time.
    for _ in 0..2 {
        let entries = random_entries(rng);
        push_all(&mut builder, &entries);
        assert_eq!((builder.rows(), builder.last_key()), (entries.len(), entries.last().map(|e| &e.0[..])));
        let compression = [Compression::None, Compression::Lz4, Compression::Zstd][rng.below(3) as usize];
        let (start, estimate) = (file.len(), builder.raw_bytes());
        let entry = builder.finish(compression, 1, 99, &mut file).unwrap();
        assert!(builder.is_empty() && builder.raw_bytes() == 0 && builder.last_key().is_none());
        assert!(entry.block.raw_bytes as usize <= estimate + 32 * entries.len() + 600);
        let mut bytes = file[start..].to_vec();
        check_entry(&entry, &entries, bytes.len());
        check_block(&KeyBlock::open(&bytes[..], 99).unwrap(), &entries, rng);
        assert!(matches!(KeyBlock::open(&bytes[..], 98), Err(FormatError::Checksum { .. })));
        // Moved to another place, with a sequence if it has none.
        let seq = (entry.block.max_seq == CommitSeq::ZERO).then_some(CommitSeq(5));
        reseal(&mut bytes, 99, 98, seq).unwrap();
        assert!(matches!(KeyBlock::open(&bytes[..], 99), Err(FormatError::Checksum { .. })));
        let mut moved = entries;
        moved.iter_mut().for_each(|e| e.2.seq = seq.unwrap_or(e.2.seq));
        check_block(&KeyBlock::open(&bytes[..], 98).unwrap(), &moved, rng);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn key_blocks_round_trip(seed: u64) {
        round_trip(seed);
    }
}

#[test]
fn every_flipped_bit_is_found() {
    let mut builder = KeyBlockBuilder::new();
    push_all(&mut builder, &random_entries(&mut Rng(3)));
    let mut bytes = Vec::new();
    builder.finish(Compression::Lz4, 0, 1, &mut bytes).unwrap();
    for bit in 0..bytes.len() * 8 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(KeyBlock::open(&bytes[..], 1).is_err(), "bit {bit}");
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
    for len in 0..bytes.len() {
        assert!(KeyBlock::open(&bytes[..len], 1).is_err(), "length {len}");
    }
    assert!(KeyBlock::open(&bytes[..], 1).is_ok());
}

#[test]
fn wrong_entries_are_refused_and_leave_nothing() {
    let mut builder = KeyBlockBuilder::new();
    let tag = VersionTag::default();
    let longest = vec![b'k'; MAX_KEY_BYTES];
    builder.push(&longest, RowId(1), tag, &[1; MAX_KEY_PAYLOAD_BYTES]).unwrap();
    let before = builder.raw_bytes();
    assert!(matches!(builder.push(b"ka", RowId(1), tag, b""), Err(FormatError::Invalid { what: "order of keys", .. })));
    assert!(matches!(builder.push(&[b'l'; MAX_KEY_BYTES + 1], RowId(1), tag, b""), Err(FormatError::TooLong { .. })));
    let long = [1; MAX_KEY_PAYLOAD_BYTES + 1];
    assert!(matches!(builder.push(b"l", RowId(1), tag, &long), Err(FormatError::TooLong { .. })));
    assert_eq!((builder.rows(), builder.raw_bytes(), builder.last_key()), (1, before, Some(&longest[..])));
    let mut out = Vec::new();
    builder.finish(Compression::None, 0, 0, &mut out).unwrap();
    assert_eq!(KeyBlock::open(&out[..], 0).unwrap().key(0), &longest[..]);
}

/// Keys that share nearly all of a long key are short when stored and long when read: a builder stops in time.
#[test]
fn keys_at_full_length_are_bounded() {
    let mut builder = KeyBlockBuilder::new();
    let mut key = vec![b'k'; MAX_KEY_BYTES];
    let refused = (0u32..20_000).find_map(|i| {
        key[MAX_KEY_BYTES - 4..].copy_from_slice(&i.to_be_bytes());
        builder.push(&key, RowId(1), VersionTag::default(), b"").err()
    });
    assert!(matches!(refused, Some(FormatError::TooLong { what: "keys of a key block", .. })), "{refused:?}");
    let mut out = Vec::new();
    let rows = builder.rows();
    builder.finish(Compression::None, 0, 0, &mut out).unwrap();
    assert!(out.len() < 1 << 20);
    assert_eq!(KeyBlock::open(&out[..], 0).unwrap().rows() as usize, rows);
}

/// A reader that does not know them must refuse them, and no other.
#[test]
fn a_block_says_whether_its_integers_have_widths_that_were_not_there_before() {
    for (greatest, needs) in [(0xff_ffff, features::DELTA_WIDTHS), (0xffff_ffff, 0)] {
        let mut builder = KeyBlockBuilder::new();
        for row in [0u64, 5, greatest] {
            builder.push(&row.to_be_bytes(), RowId(row), VersionTag::default(), b"").unwrap();
        }
        let mut out = Vec::new();
        builder.finish(Compression::None, 0, 1, &mut out).unwrap();
        let block = KeyBlock::open(&out[..], 1).unwrap();
        assert_eq!([0, 1, 2].map(|at| block.row(at).0), [0, 5, greatest]);
        assert_eq!(out[block_at::REQUIRED..][..4], needs.to_le_bytes());
        for wrong in [needs ^ features::DELTA_WIDTHS, needs | 2] {
            out[block_at::REQUIRED..][..4].copy_from_slice(&wrong.to_le_bytes());
            common::decoders::seal_head(&mut out, 1);
            let refused = KeyBlock::open(&out[..], 1).map(|_| ()).unwrap_err();
            match wrong & 2 {
                0 => assert!(matches!(refused, FormatError::Invalid { what: "features of a block", .. }), "{refused}"),
                _ => assert!(matches!(refused, FormatError::Unknown { .. }), "{refused}"),
            }
        }
    }
}

#[test]
fn a_row_block_is_no_key_block() {
    let mut builder = KeyBlockBuilder::new();
    builder.push(b"key", RowId(1), VersionTag::default(), b"").unwrap();
    let mut out = Vec::new();
    let entry = builder.finish(Compression::None, 0, 1, &mut out).unwrap();
    assert_eq!(entry.block.flags & flags::SEQ_ZERO, flags::SEQ_ZERO);
    out[block_at::MAGIC..block_at::MAGIC + 4].copy_from_slice(b"EBLK");
    common::decoders::seal_head(&mut out, 1);
    assert!(matches!(KeyBlock::open(&out[..], 1), Err(FormatError::Invalid { what: "block magic", .. })));
}
