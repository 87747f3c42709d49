//! Random indexes with rows, and the order in which their keys must lie: found by comparing values, not bytes.

use super::{layout_of, Rng};
use esker_format::key_bytes::key_encoding::*;
use esker_format::row::{self, Value};
use esker_format::{
    Collations, ColumnKind, ColumnMask, CommitSeq, FormatError, IndexEntry, IndexState, KeyPart, Layout,
};
use std::cmp::Ordering;

/// Two collations that tell no case apart: 1 of one byte a character, 2 of two, in which trailing spaces do not count.
#[derive(Debug)]
pub struct TwoCollations;

impl Collations for TwoCollations {
    fn weights(&self, collation: u32, value: &[u8], prefix: u32, out: &mut Vec<u8>) -> Result<(), FormatError> {
        let cut = if prefix == 0 { value.len() } else { value.len().min(prefix as usize) };
        for byte in value[..cut].iter().map(u8::to_ascii_uppercase) {
            match collation {
                1 => out.push(byte),
                2 => out.extend([0x10, byte]),
                found => return Err(FormatError::Unknown { what: "collation", found: found.into() }),
            }
        }
        Ok(())
    }
}

/// An index over columns of its own, in an order of its own.
pub fn random_index(rng: &mut Rng) -> (Layout, IndexEntry) {
    let mut kinds = Vec::new();
    let mut parts = Vec::new();
    for column in 0..1 + rng.below(4) as u32 {
        let width = rng.below(12) as u32;
        let text = match rng.below(3) {
            0 => ColumnKind::Var { len_bytes: 1, max: 20 },
            1 => ColumnKind::Padded { width, pad: b' ' },
            _ => ColumnKind::Blob { len_bytes: 2 },
        };
        let (kind, encoding) = match rng.below(7) {
            0 => (ColumnKind::Fixed { width: 1 + rng.below(8) as u32 }, UNSIGNED),
            1 => (ColumnKind::Fixed { width: 1 + rng.below(8) as u32 }, SIGNED),
            2 => (ColumnKind::Fixed { width: if rng.chance(2) { 4 } else { 8 } }, FLOAT),
            3 if rng.chance(2) => (ColumnKind::Fixed { width }, FIXED),
            3 => (ColumnKind::Padded { width, pad: if rng.chance(2) { 0 } else { b' ' } }, FIXED),
            4 => (text, BYTES),
            5 => (text, WEIGHTS),
            _ => (text, PADDED_WEIGHTS),
        };
        let prefix_bytes = if encoding >= FIXED && rng.chance(3) { 1 + rng.below(4) as u32 } else { 0 };
        let collation = match encoding {
            WEIGHTS | PADDED_WEIGHTS => encoding - WEIGHTS + 1,
            _ => 0,
        };
        kinds.push(kind);
        parts.push(KeyPart { column, prefix_bytes, descending: rng.chance(3), encoding, collation });
    }
    let bits = rng.next();
    let layout = layout_of(&kinds, |i| bits >> i & 1 == 1);
    let state = IndexState::Ready;
    let usable_from = CommitSeq::ZERO;
    (layout, IndexEntry { id: 1, name: "k".into(), unique: false, parts, state, usable_from, weights: 0 })
}

/// A row of few different values, packed.
pub fn random_values(layout: &Layout, index: &IndexEntry, rng: &mut Rng) -> Vec<Option<Vec<u8>>> {
    let value = |(column, part): (&esker_format::Column, &KeyPart), rng: &mut Rng| {
        if column.null.is_some() && rng.chance(4) {
            return None;
        }
        let numbers = [0.0f64, -0.0, 1.5, -1.5, 1e300, -1e-300, f64::INFINITY];
        let number = numbers[rng.below(7) as usize];
        let max = column.kind.max_bytes() as usize;
        Some(match (part.encoding, max) {
            (FLOAT, 4) => (number as f32).to_le_bytes().to_vec(),
            (FLOAT, _) => number.to_le_bytes().to_vec(),
            (UNSIGNED | SIGNED, _) => (0..max).map(|_| [0, 1, 0x7f, 0x80, 0xff][rng.below(5) as usize]).collect(),
            _ => {
                let length = match column.kind {
                    ColumnKind::Fixed { .. } => max,
                    _ => rng.below(max.min(12) as u64 + 1) as usize,
                };
                // Few letters often: strings that differ late.
                let letters: &[u8] = if rng.chance(2) { b"\0\x01 !aAb\xff" } else { b"\x01 a" };
                let letter = |_| letters[rng.below(letters.len() as u64) as usize];
                let mut value: Vec<u8> = (0..length).map(letter).collect();
                if let ColumnKind::Padded { pad, .. } = column.kind {
                    let end = value.iter().rposition(|b| *b != pad).map_or(0, |at| at + 1);
                    value.truncate(end);
                }
                value
            }
        })
    };
    layout.columns.iter().zip(&index.parts).map(|both| value(both, rng)).collect()
}

/// Calls `with` with the row's image.
pub fn with_image<T>(layout: &Layout, values: &[Option<Vec<u8>>], with: impl FnOnce(&[u8]) -> T) -> T {
    let values: Vec<_> = values.iter().map(|v| v.as_deref().map_or(Value::Null, Value::Bytes)).collect();
    let mut packed = Vec::new();
    row::pack_values(layout, &values, &mut packed).unwrap();
    let mut image = vec![0xaa; layout.image_bytes as usize];
    image[..layout.head_bytes as usize].fill(0);
    row::unpack(layout, &packed, &ColumnMask::all(layout.columns.len()), &mut image).unwrap();
    with(&image)
}

fn signed(bytes: &[u8]) -> i64 {
    let sign = if bytes.last().is_some_and(|b| b & 0x80 != 0) { 0xff } else { 0 };
    i64::from_le_bytes(std::array::from_fn(|i| bytes.get(i).copied().unwrap_or(sign)))
}

fn unsigned(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|i| bytes.get(i).copied().unwrap_or(0)))
}

fn float(bytes: &[u8]) -> f64 {
    match bytes.try_into() {
        Ok(bytes) => f64::from_le_bytes(bytes),
        Err(_) => f64::from(f32::from_le_bytes(bytes.try_into().unwrap())),
    }
}

/// How two values compare in a part.
fn compare_part(part: &KeyPart, kind: ColumnKind, a: &[u8], b: &[u8]) -> Ordering {
    let weights = |value: &[u8]| {
        let mut out = Vec::new();
        TwoCollations.weights(part.collation, value, part.prefix_bytes, &mut out).unwrap();
        out
    };
    let cut = |value: &[u8]| match part.prefix_bytes as usize {
        0 => value.to_vec(),
        n => value[..value.len().min(n)].to_vec(),
    };
    match part.encoding {
        UNSIGNED => unsigned(a).cmp(&unsigned(b)),
        SIGNED => signed(a).cmp(&signed(b)),
        FLOAT => float(a).partial_cmp(&float(b)).unwrap(),
        FIXED => {
            let full = |value: &[u8]| {
                let ColumnKind::Padded { width, pad } = kind else { return cut(value) };
                let mut value = value.to_vec();
                value.resize(width as usize, pad);
                cut(&value)
            };
            full(a).cmp(&full(b))
        }
        BYTES => cut(a).cmp(&cut(b)),
        WEIGHTS => weights(a).cmp(&weights(b)),
        _ => {
            let (mut a, mut b) = (weights(a), weights(b));
            let length = a.len().max(b.len()) / 2;
            for w in [&mut a, &mut b] {
                (w.len() / 2..length).for_each(|_| w.extend([0x10, b' ']));
            }
            a.cmp(&b)
        }
    }
}

/// How two rows compare in the first `parts` parts of an index.
pub fn compare(layout: &Layout, index: &IndexEntry, parts: usize, rows: [&[Option<Vec<u8>>]; 2]) -> Ordering {
    for (i, part) in index.parts.iter().enumerate().take(parts) {
        let order = match (&rows[0][i], &rows[1][i]) {
            (Some(a), Some(b)) => compare_part(part, layout.columns[i].kind, a, b),
            (a, b) => a.is_some().cmp(&b.is_some()),
        };
        let order = if part.descending { order.reverse() } else { order };
        if order.is_ne() {
            return order;
        }
    }
    Ordering::Equal
}
