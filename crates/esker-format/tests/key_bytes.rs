//! Key bytes lie in the order of the values, and give back what an entry tells.
#![allow(clippy::unwrap_used)]

mod common;

use common::keys::{compare, random_index, random_values, with_image, TwoCollations};
use common::{layout_of, Rng};
use esker_format::key_bytes::{append_row, key_encoding, pass_prefix};
use esker_format::row::{self, Value};
use esker_format::{
    ColumnKind, ColumnMask, CommitSeq, FormatError, IndexEntry, IndexState, KeyCodec, KeyPart, Layout, NoCollations,
    RowId,
};

type Row = Vec<Option<Vec<u8>>>;

struct Sample {
    row: Row,
    key: Vec<u8>,
    payload: Vec<u8>,
}

fn codec_of(layout: &Layout, index: &IndexEntry) -> KeyCodec {
    KeyCodec::new(index, layout, |column| Some(column as usize), &TwoCollations).unwrap()
}

fn sample(layout: &Layout, index: &IndexEntry, codec: &KeyCodec, rng: &mut Rng) -> Sample {
    let row = random_values(layout, index, rng);
    let (mut key, mut payload) = (Vec::new(), Vec::new());
    with_image(layout, &row, |image| {
        // SAFETY: the image is of this layout.
        unsafe {
            let has_null = codec.key_of_image(image.as_ptr(), &TwoCollations, &mut key).unwrap();
            assert_eq!(has_null, row.iter().any(Option::is_none));
            codec.payload_of_image(image.as_ptr(), &mut payload);
        }
    });
    Sample { row, key, payload }
}

#[test]
fn keys_lie_in_the_order_of_the_values() {
    let (mut equal, mut padded) = (0, 0);
    for seed in 0..3000 {
        let mut rng = Rng(seed);
        let (layout, index) = random_index(&mut rng);
        let codec = codec_of(&layout, &index);
        let samples: Vec<_> = (0..12).map(|_| sample(&layout, &index, &codec, &mut rng)).collect();
        for (a, b) in samples.iter().flat_map(|a| samples.iter().map(move |b| (a, b))) {
            let order = compare(&layout, &index, index.parts.len(), [&a.row, &b.row]);
            assert_eq!(a.key.cmp(&b.key), order, "seed {seed}: {index:?}, {:?} and {:?}", a.row, b.row);
            equal += u32::from(order.is_eq() && a.row != b.row);
        }
        padded += u32::from(index.parts.iter().any(|p| p.encoding == key_encoding::PADDED_WEIGHTS));
    }
    assert!(equal > 1000 && padded > 500, "rows that differ were equal {equal} times, {padded} indexes with padding");
}

/// All columns, none, or some.
fn random_mask(layout: &Layout, rng: &mut Rng) -> ColumnMask {
    let chosen = [u64::MAX, 0, rng.next(), rng.next()][rng.below(4) as usize];
    let mut mask = ColumnMask::none(layout.columns.len());
    (0..layout.columns.len()).filter(|place| chosen >> place & 1 != 0).for_each(|place| mask.set(place));
    mask
}

/// What lies behind the last part that is wanted is not looked at; a part before it is.
#[test]
fn parts_behind_those_that_are_wanted_are_not_looked_at() {
    let layout = layout_of(&[ColumnKind::Fixed { width: 1 }, ColumnKind::Var { len_bytes: 1, max: 9 }], |_| false);
    let [number, text] =
        [part(key_encoding::UNSIGNED), KeyPart { column: 1, collation: 1, ..part(key_encoding::WEIGHTS) }];
    let fill = |parts: [KeyPart; 2], place: usize| {
        let mut mask = ColumnMask::none(2);
        mask.set(place);
        let key: &[u8] = if parts[0].column == 0 { b"\x05A\0\x07" } else { b"A\0\x07\x05" };
        let mut image = vec![0; layout.image_bytes as usize];
        codec_of(&layout, &index_of(parts.to_vec())).fill_image(key, b"", &mask, &mut image, &mut Vec::new())
    };
    fill([number, text], 0).unwrap();
    for refused in [fill([number, text], 1), fill([text, number], 0), fill([text, number], 1)] {
        assert!(matches!(refused, Err(FormatError::Invalid { found: 7, .. })), "{refused:?}");
    }
}

/// All keys whose first parts are given begin with the bytes of these, and no others do.
#[test]
fn first_parts_are_where_keys_begin() {
    for seed in 0..1000 {
        let mut rng = Rng(seed);
        let (layout, index) = random_index(&mut rng);
        let codec = codec_of(&layout, &index);
        let samples: Vec<_> = (0..12).map(|_| sample(&layout, &index, &codec, &mut rng)).collect();
        for parts in 1..=index.parts.len() {
            let sought = &samples[0];
            let mut from = Vec::new();
            for (i, value) in sought.row.iter().enumerate().take(parts) {
                codec.put_part(i, value.as_deref(), &TwoCollations, &mut from).unwrap();
            }
            let mut behind = from.clone();
            let bounded = pass_prefix(&mut behind);
            for other in &samples {
                let order = compare(&layout, &index, parts, [&other.row, &sought.row]);
                assert_eq!(other.key.starts_with(&from), order.is_eq(), "seed {seed}");
                assert_eq!(other.key >= from && (!bounded || other.key < behind), order.is_eq(), "seed {seed}");
            }
        }
    }
}

#[test]
fn entries_give_back_the_columns_that_they_cover() {
    let (mut covered, mut left, mut scratch) = (0, 0, vec![7; 9]);
    for seed in 0..6000 {
        let mut rng = Rng(seed);
        let (layout, index) = random_index(&mut rng);
        let codec = codec_of(&layout, &index);
        let sample = sample(&layout, &index, &codec, &mut rng);
        let (mask, mut image) = (random_mask(&layout, &mut rng), vec![0; layout.image_bytes as usize]);
        codec.fill_image(&sample.key, &sample.payload, &mask, &mut image, &mut scratch).unwrap();
        with_image(&layout, &sample.row, |whole| {
            for (place, column) in layout.columns.iter().enumerate() {
                let slot = column.offset as usize..(column.offset + column.kind.slot_bytes()) as usize;
                if !codec.covers(place) || !mask.get(place) {
                    left += 1;
                    assert!(
                        image[slot].iter().all(|b| *b == 0),
                        "seed {seed}: a column that no entry tells, or that nobody wants, was written"
                    );
                    continue;
                }
                covered += 1;
                let null = |image: &[u8]| column.null.map(|n| image[n.byte as usize] & n.mask);
                assert_eq!(null(&image), null(whole), "seed {seed}");
                let Some(value) = &sample.row[place] else { continue };
                // Beyond its end a var value has no bytes.
                let bytes = match column.kind {
                    ColumnKind::Var { len_bytes, .. } => slot.start..slot.start + usize::from(len_bytes) + value.len(),
                    _ => slot,
                };
                assert_eq!(image[bytes.clone()], whole[bytes], "seed {seed}: column {place} of {index:?}");
            }
        });
    }
    assert!(covered > 3000 && left > 1000, "{covered} columns were covered, {left} were not");
}

fn index_of(parts: Vec<KeyPart>) -> IndexEntry {
    let (state, usable_from) = (IndexState::Ready, CommitSeq::ZERO);
    IndexEntry { id: 1, name: "k".into(), unique: true, parts, state, usable_from, weights: 0 }
}

fn part(encoding: u32) -> KeyPart {
    KeyPart { column: 0, prefix_bytes: 0, descending: false, encoding, collation: 0 }
}

#[test]
fn definitions_that_fit_no_column_are_refused() {
    let number = layout_of(&[ColumnKind::Fixed { width: 4 }], |_| false);
    let long = layout_of(&[ColumnKind::Fixed { width: 9 }], |_| false);
    let text = layout_of(&[ColumnKind::Var { len_bytes: 1, max: 9 }], |_| false);
    let refused = |layout: &Layout, part: KeyPart| {
        let found = KeyCodec::new(&index_of(vec![part]), layout, |c| Some(c as usize), &TwoCollations);
        assert!(matches!(found, Err(FormatError::Invalid { .. } | FormatError::Unknown { .. })), "{part:?}");
    };
    refused(&long, part(key_encoding::UNSIGNED));
    refused(&text, part(key_encoding::SIGNED));
    refused(&text, part(key_encoding::FIXED));
    refused(&number, KeyPart { column: 1, ..part(key_encoding::UNSIGNED) });
    refused(&number, KeyPart { prefix_bytes: 2, ..part(key_encoding::UNSIGNED) });
    refused(&number, KeyPart { collation: 1, ..part(key_encoding::UNSIGNED) });
    refused(&text, part(key_encoding::WEIGHTS));
    refused(&text, KeyPart { collation: 9, ..part(key_encoding::PADDED_WEIGHTS) });
    refused(&text, part(0));
    refused(&text, part(8));
    assert!(KeyCodec::new(&index_of(Vec::new()), &text, |c| Some(c as usize), &NoCollations).is_err());
}

/// One value has one key: what no image gives is refused, in the key's bytes and in the payload.
#[test]
fn a_padded_value_with_its_pad_bytes_is_refused() {
    let layout = layout_of(&[ColumnKind::Padded { width: 3, pad: b' ' }], |_| false);
    let fill = |part, key: &[u8], payload: &[u8]| {
        let mut image = vec![0; layout.image_bytes as usize];
        codec_of(&layout, &index_of(vec![part])).fill_image(
            key,
            payload,
            &ColumnMask::all(1),
            &mut image,
            &mut Vec::new(),
        )
    };
    let weights = KeyPart { collation: 1, ..part(key_encoding::WEIGHTS) };
    fill(part(key_encoding::BYTES), b"a\0\0", b"").unwrap();
    fill(weights, b"A\0\0", b"\x01a").unwrap();
    for refused in [fill(part(key_encoding::BYTES), b"a \0\0", b""), fill(weights, b"A \0\0", b"\x02a ")] {
        assert!(matches!(refused, Err(FormatError::Invalid { found: 2, .. })), "{refused:?}");
    }
}

/// Written down once: the bytes of keys are on disk.
#[test]
fn these_are_the_bytes() {
    let kinds = [
        (ColumnKind::Fixed { width: 4 }, key_encoding::SIGNED),
        (ColumnKind::Fixed { width: 2 }, key_encoding::UNSIGNED),
        (ColumnKind::Fixed { width: 8 }, key_encoding::FLOAT),
        (ColumnKind::Padded { width: 3, pad: b' ' }, key_encoding::FIXED),
        (ColumnKind::Var { len_bytes: 1, max: 9 }, key_encoding::BYTES),
        (ColumnKind::Var { len_bytes: 1, max: 9 }, key_encoding::WEIGHTS),
        (ColumnKind::Var { len_bytes: 1, max: 9 }, key_encoding::PADDED_WEIGHTS),
        (ColumnKind::Fixed { width: 1 }, key_encoding::UNSIGNED),
        (ColumnKind::Fixed { width: 1 }, key_encoding::UNSIGNED),
    ];
    let layout = layout_of(&kinds.map(|k| k.0), |i| i >= 7);
    let parts = (0..).zip(kinds).map(|(column, (_, encoding))| KeyPart {
        column,
        descending: column >= 7,
        collation: if encoding >= key_encoding::WEIGHTS { encoding - key_encoding::WEIGHTS + 1 } else { 0 },
        ..part(encoding)
    });
    let codec = codec_of(&layout, &index_of(parts.collect()));
    let float = 1.5f64.to_le_bytes();
    let values = [
        Value::Bytes(&[0xfe, 0xff, 0xff, 0xff]),
        Value::Bytes(&[0x34, 0x12]),
        Value::Bytes(&float),
        Value::Bytes(b"a"),
        Value::Bytes(b"a\0"),
        Value::Bytes(b"a\0"),
        Value::Bytes(b"abcd!  "),
        Value::Null,
        Value::Bytes(&[5]),
    ];
    let (mut packed, mut image) = (Vec::new(), vec![0; layout.image_bytes as usize]);
    row::pack_values(&layout, &values, &mut packed).unwrap();
    row::unpack(&layout, &packed, &ColumnMask::all(9), &mut image).unwrap();
    let (mut key, mut payload) = (Vec::new(), Vec::new());
    // SAFETY: the image is of this layout.
    unsafe {
        assert!(codec.key_of_image(image.as_ptr(), &TwoCollations, &mut key).unwrap());
        codec.payload_of_image(image.as_ptr(), &mut payload);
    }
    append_row(&mut key, RowId(0x0102));
    let expected: &[&[u8]] = &[
        &[0x7f, 0xff, 0xff, 0xfe],
        &[0x12, 0x34],
        &[0xbf, 0xf8, 0, 0, 0, 0, 0, 0],
        b"a  ",
        &[b'a', 0, 0xff, 0, 0],
        &[b'A', 0, 0xff, 0, 0],
        &[0x10, b'A', 0x10, b'B', 0x10, b'C', 0x10, b'D', 3],
        &[0x10, b'!', 0x10, b' ', 0x10, b' ', 0x10, b' ', 2],
        &[0xff],
        &[0xfe, 0xfa],
        &[0, 0, 0, 0, 0, 0, 1, 2],
    ];
    assert_eq!(key, expected.concat());
    let expected: &[&[u8]] = &[&[8], &float, &[2], b"a\0", &[7], b"abcd!  "];
    assert_eq!(payload, expected.concat());
}
