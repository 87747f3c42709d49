//! Owns the set of row ids that a part of a transaction's run has versions of: what a restart locks for a prepared one without
//! reading a block. The ids of 65536 neighbouring rows are a container, told in the shortest of a few ways.
//!
//! Invariants: containers rise and hold an id at least, so do the ids in each; nothing is allocated by a number that was read.

use crate::codec::{get_u16, get_u64, put_varint, Reader};
use crate::error::FormatError;
use crate::ids::RowId;
use std::ops::{Range, RangeInclusive};

/// Length of a container that is told bit by bit.
pub const CONTAINER_BITS_BYTES: usize = 8192;
/// Containers that there can be.
const CONTAINERS: u64 = 1 << 48;
/// What a row needs that has a container for itself: its place, its kind, the number 1, two bytes. No row needs more.
const MOST_BYTES_A_ROW: u64 = 7 + 1 + 1 + 2;

/// How the ids of a container are told.
pub mod container_kind {
    #![allow(missing_docs)]
    pub const FULL: u8 = 1;
    pub const RANGES: u8 = 2;
    pub const LIST: u8 = 3;
    pub const BITS: u8 = 4;
}

/// A set of row ids, as it is gathered.
#[derive(Debug, Default)]
pub struct RowIdSet {
    /// Containers that are encoded.
    bytes: Vec<u8>,
    /// The least container that may follow those.
    next: u64,
    /// Containers that follow them with all of their ids.
    full: Range<u64>,
    /// The container that is gathered, and the ranges of its ids.
    high: u64,
    ranges: Vec<RangeInclusive<u16>>,
}

impl RowIdSet {
    /// Adds an id that is not less than the last one.
    #[inline]
    pub fn add(&mut self, id: RowId) {
        let (high, low) = (id.0 >> 16, id.0 as u16);
        match self.ranges.last_mut() {
            Some(last) if self.high == high && low == *last.end() => {}
            Some(last) if self.high == high && Some(low) == last.end().checked_add(1) => *last = *last.start()..=low,
            last => {
                assert!(last.is_none_or(|last| (self.high, *last.end()) < (high, low)), "row ids of a run fell");
                if self.high != high {
                    self.end_container();
                    self.high = high;
                }
                self.ranges.push(low..=low);
            }
        }
    }

    /// The section's content; nothing if the set is empty.
    #[must_use]
    pub fn finish(mut self) -> Vec<u8> {
        self.end_container();
        self.end_full();
        self.bytes
    }

    /// Memory that it takes, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + self.ranges.capacity() * size_of::<RangeInclusive<u16>>()
    }

    fn end_container(&mut self) {
        let (high, ranges) = (self.high, std::mem::take(&mut self.ranges));
        if ranges.is_empty() {
            return;
        }
        if ranges[0] == (0..=u16::MAX) {
            if self.full.is_empty() || self.full.end != high {
                self.end_full();
                self.full = high..high;
            }
            self.full.end += 1;
            return;
        }
        self.end_full();
        let rows: usize = ranges.iter().map(ExactSizeIterator::len).sum();
        if 4 * ranges.len() <= (2 * rows).min(CONTAINER_BITS_BYTES) {
            self.begin(high, container_kind::RANGES);
            put_varint(&mut self.bytes, ranges.len() as u64);
            let ends = ranges.iter().flat_map(|r| [*r.start(), *r.end()]);
            self.bytes.extend(ends.flat_map(u16::to_le_bytes));
        } else if 2 * rows <= CONTAINER_BITS_BYTES {
            self.begin(high, container_kind::LIST);
            put_varint(&mut self.bytes, rows as u64);
            self.bytes.extend(ranges.into_iter().flatten().flat_map(u16::to_le_bytes));
        } else {
            self.begin(high, container_kind::BITS);
            let at = self.bytes.len();
            self.bytes.resize(at + CONTAINER_BITS_BYTES, 0);
            let bits = &mut self.bytes[at..];
            ranges.into_iter().flatten().for_each(|low| bits[usize::from(low / 8)] |= 1 << (low % 8));
        }
    }

    fn end_full(&mut self) {
        let full = std::mem::take(&mut self.full);
        if !full.is_empty() {
            self.begin(full.start, container_kind::FULL);
            put_varint(&mut self.bytes, full.end - full.start - 1);
            self.next = full.end;
        }
    }

    fn begin(&mut self, high: u64, kind: u8) {
        put_varint(&mut self.bytes, high - self.next);
        self.bytes.push(kind);
        self.next = high + 1;
    }
}

/// A set of row ids that was read, whole and sound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowIds {
    bytes: Vec<u8>,
    /// How many ids there are.
    pub rows: u64,
    /// The least one.
    pub first: RowId,
    /// The greatest one.
    pub last: RowId,
}

/// Containers that tell their ids alike.
#[derive(Debug, Clone)]
pub struct Container<'a> {
    /// Upper 48 bits of their ids: one, or, where it is full, several.
    pub highs: Range<u64>,
    told: Told<'a>,
}

#[derive(Debug, Clone)]
enum Told<'a> {
    Full,
    Ranges(&'a [u8]),
    List(&'a [u8]),
    Bits(&'a [u8]),
}

impl RowIds {
    /// The most bytes that a set of so many rows can take.
    #[must_use]
    pub fn most_bytes(rows: u64) -> u64 {
        rows.saturating_mul(MOST_BYTES_A_ROW)
    }

    /// Reads a whole section, whose checksum was checked.
    pub fn decode(bytes: Vec<u8>) -> Result<Self, FormatError> {
        let mut reader = Reader::new("row ids of a run", &bytes);
        let (mut next, mut rows, mut first, mut last) = (0, 0u64, None, 0);
        while !reader.rest().is_empty() {
            let container = Container::read(&mut reader, next)?;
            next = container.highs.end;
            let (mut ids, mut end) = (0, None);
            for range in container.ranges() {
                let (low, high) = (*range.start(), *range.end());
                if low > high || end.is_some_and(|end| end >= low) {
                    return Err(reader.invalid(low.into()));
                }
                first = first.or(Some(container.highs.start << 16 | u64::from(low)));
                (ids, end) = (ids + range.len() as u64, Some(high));
            }
            let Some(end) = end else { return Err(reader.invalid(container.highs.start)) };
            last = (next - 1) << 16 | u64::from(end);
            let all = ids.checked_mul(container.highs.end - container.highs.start).and_then(|n| rows.checked_add(n));
            rows = all.ok_or_else(|| reader.invalid(rows))?;
        }
        let Some(first) = first else { return Err(reader.invalid(0)) };
        Ok(RowIds { bytes, rows, first: RowId(first), last: RowId(last) })
    }

    /// The section's content.
    #[must_use]
    pub fn stored(&self) -> &[u8] {
        &self.bytes
    }

    /// Its containers, rising.
    pub fn containers(&self) -> impl Iterator<Item = Container<'_>> {
        let (mut reader, mut next) = (Reader::new("row ids of a run", &self.bytes), 0);
        std::iter::from_fn(move || {
            let container = Container::read(&mut reader, next).ok()?;
            next = container.highs.end;
            Some(container)
        })
    }
}

impl<'a> Container<'a> {
    /// The next one, which is not before `next`. What it says of its ids is not looked at.
    fn read(reader: &mut Reader<'a>, next: u64) -> Result<Self, FormatError> {
        let gap = reader.varint()?;
        let high = next.checked_add(gap).filter(|high| *high < CONTAINERS).ok_or_else(|| reader.invalid(gap))?;
        let (mut more, kind) = (0, reader.u8()?);
        let told = match kind {
            container_kind::FULL => {
                more = reader.varint()?;
                Told::Full
            }
            container_kind::RANGES => {
                let ranges = reader.count(4)?;
                Told::Ranges(reader.take(4 * ranges)?)
            }
            container_kind::LIST => {
                let rows = reader.count(2)?;
                Told::List(reader.take(2 * rows)?)
            }
            container_kind::BITS => Told::Bits(reader.take(CONTAINER_BITS_BYTES)?),
            other => return Err(FormatError::Unknown { what: "kind of a container", found: other.into() }),
        };
        let end = (high + 1).checked_add(more).filter(|end| *end <= CONTAINERS).ok_or_else(|| reader.invalid(more))?;
        Ok(Container { highs: high..end, told })
    }

    /// The lower 16 bits of its ids: ranges that rise and are apart.
    pub fn ranges(&self) -> Box<dyn Iterator<Item = RangeInclusive<u16>> + 'a> {
        match self.told {
            Told::Full => Box::new(std::iter::once(0..=u16::MAX)),
            Told::Ranges(ends) => Box::new(ends.chunks_exact(4).map(|ends| get_u16(ends, 0)..=get_u16(ends, 2))),
            Told::List(ids) => Box::new(ids.chunks_exact(2).map(|id| get_u16(id, 0)..=get_u16(id, 0))),
            Told::Bits(bits) => Box::new(ranges_of(bits)),
        }
    }
}

/// The ranges of bits that are set; one may end with its word and go on in the next.
fn ranges_of(bits: &[u8]) -> impl Iterator<Item = RangeInclusive<u16>> + '_ {
    bits.chunks_exact(8).zip(0u16..).flat_map(|(word, at)| {
        let mut left = get_u64(word, 0);
        std::iter::from_fn(move || {
            if left == 0 {
                return None;
            }
            let first = left.trailing_zeros();
            let many = (left >> first).trailing_ones();
            left &= u64::MAX.checked_shl(first + many).unwrap_or(0);
            let first = at * 64 + first as u16;
            Some(first..=first + (many - 1) as u16)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(ids: impl IntoIterator<Item = u64>) -> Vec<u8> {
        let mut set = RowIdSet::default();
        ids.into_iter().for_each(|id| set.add(RowId(id)));
        set.finish()
    }

    fn ids(bytes: Vec<u8>) -> Vec<u64> {
        let set = RowIds::decode(bytes).unwrap();
        let mut ids = Vec::new();
        for c in set.containers() {
            let lows: Vec<u16> = c.ranges().flatten().collect();
            c.highs.for_each(|high| ids.extend(lows.iter().map(|low| high << 16 | u64::from(*low))));
        }
        assert_eq!((set.rows, set.first.0, set.last.0), (ids.len() as u64, ids[0], ids[ids.len() - 1]));
        ids
    }

    #[test]
    fn what_was_added_is_there_in_the_shortest_form() {
        let far: u64 = ((1 << 48) - 1) << 16;
        let cases: [(Vec<u64>, usize); 9] = [
            (vec![7], 5),
            (vec![u64::MAX], 11),
            ((5..1_000_000).collect(), 7 + 3 + 7),
            ((0..65536).chain(131_072..196_608).collect(), 6),
            ((0..65536).step_by(2).collect(), 2 + CONTAINER_BITS_BYTES),
            ((0..65536).filter(|n| n % 64 != 63).collect(), 2 + 2 + 4 * 1024),
            ((1..65536).step_by(40).collect(), 2 + 2 + 2 * 1639),
            ((0..40_000).filter(|n| n % 5 != 0).chain(far..far + 70).collect(), 2 + CONTAINER_BITS_BYTES + 7 + 2 + 4),
            ((0..200).map(|n| n << 16).collect(), 200 * 5),
        ];
        for (added, bytes) in cases {
            let stored = set(added.iter().copied());
            assert_eq!(stored.len(), bytes, "{:?}...", &added[..added.len().min(5)]);
            assert!(stored.len() as u64 <= RowIds::most_bytes(added.len() as u64));
            assert_eq!(ids(stored), added);
        }
        assert_eq!(ids(set([3, 3, 4, 4, 9])), [3, 4, 9], "versions of one row");
        assert!(set([]).is_empty() && RowIds::decode(Vec::new()).is_err());
    }

    #[test]
    #[should_panic(expected = "fell")]
    fn ids_rise() {
        set([8, 7]);
    }

    #[test]
    fn what_is_no_set_is_refused() {
        let refused = |bytes: &[u8]| assert!(RowIds::decode(bytes.to_vec()).is_err(), "{bytes:?}");
        let far = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];
        assert_eq!(ids(vec![0, 2, 2, 1, 0, 2, 0, 3, 0, 3, 0]), [1, 2, 3]);
        refused(&[0, 2, 2, 1, 0, 2, 0, 2, 0, 3, 0]);
        refused(&[0, 2, 1, 2, 0, 1, 0]);
        refused(&[0, 2, 2, 1, 0, 2, 0]);
        refused(&[0, 2, 0]);
        refused(&[0, 3, 2, 5, 0, 5, 0]);
        refused(&[0, 3, 0]);
        refused(&[0, 4, 1]);
        refused(&[[0, 4].as_slice(), &[0; CONTAINER_BITS_BYTES]].concat());
        refused(&[0, 5, 0]);
        refused(&[0, 0, 0]);
        // Containers that there cannot be.
        refused(&[far.as_slice(), &[0, 1, 0]].concat());
        refused(&[[0, 1].as_slice(), &far, &[0]].concat());
        refused(&[[0, 1].as_slice(), &far, &[0xff, 0xff, 1]].concat());
    }
}
