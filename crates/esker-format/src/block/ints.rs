//! Owns integer segments: row ids, commit sequences and ordinals. Invariant: they are never compressed, so that they
//! are read in place, and a number is found by arithmetic.

use super::{encoding, features};
use crate::codec::get_u64;
use crate::error::FormatError;
use crate::prefetch::prefetch_byte;

/// How a list of integers is stored: the shortest way that fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IntPlan {
    /// One of [`encoding`]'s `INT_` numbers.
    pub encoding: u8,
    /// Bytes of a delta, 1 to 8.
    pub width: u8,
    /// Least of all.
    pub min: u64,
    /// Greatest of all.
    pub max: u64,
}

impl IntPlan {
    /// Chooses for `values`, which are not empty.
    pub(crate) fn of(values: &[u64]) -> IntPlan {
        let first = values.first().copied().unwrap_or(0);
        let (mut min, mut max, mut linear) = (first, first, true);
        let mut next = first;
        for &v in values {
            min = min.min(v);
            max = max.max(v);
            linear &= v == next;
            next = next.wrapping_add(1);
        }
        let (encoding, width) = match max - min {
            0 => (encoding::INT_CONSTANT, 0),
            // Beginning with the least: the numbers do not wrap around.
            _ if linear && first == min => (encoding::INT_LINEAR, 0),
            most => (encoding::INT_DELTA, 8 - (most.leading_zeros() / 8) as u8),
        };
        IntPlan { encoding, width, min, max }
    }

    /// Are all numbers the same?
    pub(crate) fn is_constant(&self) -> bool {
        self.encoding == encoding::INT_CONSTANT
    }

    /// Does each of the `rows` numbers exceed the one before by one?
    pub(crate) fn is_dense(&self, rows: usize) -> bool {
        self.encoding == encoding::INT_LINEAR || rows == 1
    }

    /// Appends the segment: base, then deltas.
    pub(crate) fn encode(&self, values: &[u64], out: &mut Vec<u8>) {
        out.extend_from_slice(&self.min.to_le_bytes());
        match self.width {
            0 => {}
            1 => out.extend(values.iter().map(|v| (v - self.min) as u8)),
            2 => values.iter().for_each(|v| out.extend_from_slice(&((v - self.min) as u16).to_le_bytes())),
            3 => values.iter().for_each(|v| out.extend_from_slice(&(v - self.min).to_le_bytes()[..3])),
            4 => values.iter().for_each(|v| out.extend_from_slice(&((v - self.min) as u32).to_le_bytes())),
            width => {
                let width = usize::from(width).min(8);
                values.iter().for_each(|v| out.extend_from_slice(&(v - self.min).to_le_bytes()[..width]));
            }
        }
    }
}

/// What a reader of a segment must know, of [`features`].
pub(crate) fn features_of(encoding_: u8, unit: u32) -> u32 {
    match (encoding_, unit) {
        (encoding::INT_DELTA, 3 | 5 | 6 | 7) => features::DELTA_WIDTHS,
        _ => 0,
    }
}

/// How to read an integer segment of a block. The deltas lie at `at` in the block.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ints {
    base: u64,
    /// What every row adds: 1 for linear segments.
    step: u64,
    /// Bytes of a delta; 0 for none.
    width: u8,
    at: usize,
}

impl Ints {
    /// Checks a segment that lies at `at` in the block: its content is `bytes`.
    pub(crate) fn open(
        what: &'static str,
        encoding_: u8,
        unit: u32,
        bytes: &[u8],
        at: usize,
        rows: u32,
    ) -> Result<Ints, FormatError> {
        let (step, width) = match (encoding_, unit) {
            (encoding::INT_CONSTANT, 0) => (0, 0),
            (encoding::INT_LINEAR, 0) => (1, 0),
            (encoding::INT_DELTA, 1..=8) => (0, unit as u8),
            _ => return Err(FormatError::Invalid { what, found: u64::from(encoding_) }),
        };
        if bytes.len() != 8 + rows as usize * usize::from(width) {
            return Err(FormatError::Invalid { what, found: bytes.len() as u64 });
        }
        Ok(Ints { base: get_u64(bytes, 0), step, width, at: at + 8 })
    }

    /// The same number for every row, without a segment.
    pub(crate) fn constant(base: u64) -> Ints {
        Ints { base, step: 0, width: 0, at: 0 }
    }

    /// Does each number exceed the one before by one?
    pub(crate) fn is_linear(&self) -> bool {
        self.step == 1
    }

    /// The least and the greatest number of a block's `rows` rows.
    pub(crate) fn range(&self, block: &[u8], rows: u32) -> (u64, u64) {
        (0..rows).map(|i| self.get(block, i)).fold((u64::MAX, 0), |(min, max), n| (min.min(n), max.max(n)))
    }

    /// The number of row `i` is asked for soon.
    #[inline]
    pub(crate) fn prefetch(&self, block: &[u8], i: u32) {
        if self.width != 0 {
            prefetch_byte(block, self.at + i as usize * usize::from(self.width));
        }
    }

    /// The number of row `i`, which exists in the block `block`.
    #[inline]
    pub(crate) fn get(&self, block: &[u8], i: u32) -> u64 {
        let width = usize::from(self.width);
        if width == 0 {
            return self.base.wrapping_add(u64::from(i) * self.step);
        }
        // The base stands before the deltas: there are eight bytes that end with each.
        let end = self.at + (i as usize + 1) * width;
        self.base.wrapping_add(get_u64(block, end - 8) >> (64 - 8 * width))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortest_encoding() {
        let cases: [(&[u64], u8, usize); 10] = [
            (&[7], encoding::INT_CONSTANT, 8),
            (&[7, 7], encoding::INT_CONSTANT, 8),
            (&[7, 8, 9], encoding::INT_LINEAR, 8),
            (&[9, 8, 7], encoding::INT_DELTA, 11),
            (&[1, 257, 3], encoding::INT_DELTA, 14),
            (&[1, 1 << 20], encoding::INT_DELTA, 14),
            (&[1, 1 << 24, 1 << 25], encoding::INT_DELTA, 20),
            (&[1, 1 << 40], encoding::INT_DELTA, 18),
            (&[5, 1 << 55], encoding::INT_DELTA, 22),
            (&[u64::MAX, 0], encoding::INT_DELTA, 24),
        ];
        for (values, kind, len) in cases {
            let plan = IntPlan::of(values);
            let mut out = Vec::new();
            plan.encode(values, &mut out);
            assert_eq!((plan.encoding, out.len()), (kind, len), "{values:?}");
            let ints = Ints::open("t", kind, plan.width.into(), &out, 0, values.len() as u32).unwrap();
            for (i, &v) in values.iter().enumerate() {
                assert_eq!(ints.get(&out, i as u32), v);
            }
            assert!(Ints::open("t", kind, plan.width.into(), &out[1..], 0, values.len() as u32).is_err());
        }
    }
}
