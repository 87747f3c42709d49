//! A set of the low 16 bits of row ids: what one transaction locks within one container of 65536 neighbouring rows.
//!
//! Three shapes, each kept sorted: a few rows in place (a point update allocates nothing), a vector, a bitmap of 8 KiB.
//! So a million neighbouring rows cost an eighth of a megabyte, a single row nothing beyond its container.

use std::ops::RangeInclusive;

const IN_PLACE: usize = 11;
/// Past this many rows a bitmap is no larger than twice the vector, and inserting needs no shifting.
const VECTOR_MAX: usize = 2048;
const WORDS: usize = 1024;

#[derive(Debug, Clone)]
enum Shape {
    InPlace { len: u8, rows: [u16; IN_PLACE] },
    Vector(Vec<u16>),
    Bits { count: u32, words: Box<[u64; WORDS]> },
}

/// The set. Empty by default.
#[derive(Debug, Clone)]
pub(crate) struct RowSet(Shape);

impl Default for RowSet {
    fn default() -> Self {
        RowSet(Shape::InPlace { len: 0, rows: [0; IN_PLACE] })
    }
}

fn bit(row: u16) -> (usize, u64) {
    (usize::from(row >> 6), 1 << (row & 63))
}

impl RowSet {
    fn sorted(&self) -> Option<&[u16]> {
        match &self.0 {
            Shape::InPlace { len, rows } => Some(&rows[..usize::from(*len)]),
            Shape::Vector(rows) => Some(rows),
            Shape::Bits { .. } => None,
        }
    }

    pub(crate) fn contains(&self, row: u16) -> bool {
        match &self.0 {
            Shape::Bits { words, .. } => {
                let (word, mask) = bit(row);
                words[word] & mask != 0
            }
            _ => self.sorted().is_some_and(|rows| rows.binary_search(&row).is_ok()),
        }
    }

    /// Adds `row`; false if it was there.
    pub(crate) fn insert(&mut self, row: u16) -> bool {
        if let Shape::Bits { count, words } = &mut self.0 {
            let (word, mask) = bit(row);
            let new = words[word] & mask == 0;
            words[word] |= mask;
            *count += u32::from(new);
            return new;
        }
        let rows = self.sorted().unwrap_or(&[]);
        // Rows mostly come in rising order.
        let at = if rows.last().is_some_and(|last| *last < row) {
            rows.len()
        } else {
            match rows.binary_search(&row) {
                Ok(_) => return false,
                Err(at) => at,
            }
        };
        if rows.len() >= VECTOR_MAX {
            self.become_bits();
            return self.insert(row);
        }
        match &mut self.0 {
            Shape::InPlace { len, rows } if usize::from(*len) < IN_PLACE => {
                rows.copy_within(at..usize::from(*len), at + 1);
                rows[at] = row;
                *len += 1;
            }
            Shape::InPlace { rows, .. } => {
                let mut vector = Vec::with_capacity(IN_PLACE * 4);
                vector.extend_from_slice(rows);
                vector.insert(at, row);
                self.0 = Shape::Vector(vector);
            }
            Shape::Vector(rows) => rows.insert(at, row),
            Shape::Bits { .. } => {}
        }
        true
    }

    /// Adds all of these rows.
    pub(crate) fn insert_range(&mut self, rows: RangeInclusive<u16>) {
        if self.len() as usize + rows.len() <= VECTOR_MAX {
            for row in rows {
                self.insert(row);
            }
            return;
        }
        self.become_bits();
        let Shape::Bits { count, words } = &mut self.0 else { return };
        let (first, last) = (bit(*rows.start()).0, bit(*rows.end()).0);
        for (at, word) in words.iter_mut().enumerate().take(last + 1).skip(first) {
            let from = if at == first { u64::MAX << (rows.start() & 63) } else { u64::MAX };
            let to = if at == last { u64::MAX >> (63 - (rows.end() & 63)) } else { u64::MAX };
            *count += (from & to & !*word).count_ones();
            *word |= from & to;
        }
    }

    fn become_bits(&mut self) {
        let Some(rows) = self.sorted() else { return };
        let mut words = Box::new([0u64; WORDS]);
        for row in rows {
            let (word, mask) = bit(*row);
            words[word] |= mask;
        }
        self.0 = Shape::Bits { count: rows.len() as u32, words };
    }

    /// Takes `row` out; false if it was not there. An emptied set holds no memory.
    pub(crate) fn remove(&mut self, row: u16) -> bool {
        let removed = match &mut self.0 {
            Shape::Bits { count, words } => {
                let (word, mask) = bit(row);
                let there = words[word] & mask != 0;
                words[word] &= !mask;
                *count -= u32::from(there);
                there
            }
            Shape::Vector(rows) => rows.binary_search(&row).map(|at| rows.remove(at)).is_ok(),
            Shape::InPlace { len, rows } => {
                let used = usize::from(*len);
                match rows[..used].binary_search(&row) {
                    Ok(at) => {
                        rows.copy_within(at + 1..used, at);
                        *len -= 1;
                        true
                    }
                    Err(_) => false,
                }
            }
        };
        if removed && self.is_empty() {
            *self = RowSet::default();
        }
        removed
    }

    /// Takes all of these out that are there.
    pub(crate) fn remove_all(&mut self, rows: &RowSet) {
        for row in rows.iter() {
            self.remove(row);
        }
    }

    pub(crate) fn len(&self) -> u64 {
        match &self.0 {
            Shape::Bits { count, .. } => u64::from(*count),
            _ => self.sorted().map_or(0, |rows| rows.len() as u64),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The least row, if any.
    pub(crate) fn first(&self) -> Option<u16> {
        match &self.0 {
            Shape::Bits { words, .. } => {
                let word = words.iter().position(|w| *w != 0)?;
                Some((word as u16) << 6 | words[word].trailing_zeros() as u16)
            }
            _ => self.sorted().and_then(|rows| rows.first().copied()),
        }
    }

    /// All rows, rising.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u16> + '_ {
        let words = match &self.0 {
            Shape::Bits { words, .. } => &words[..],
            _ => &[],
        };
        let of_word = |(at, word): (usize, &u64)| {
            let word = *word;
            (0..64u16).filter(move |bit| word >> bit & 1 != 0).map(move |bit| (at as u16) << 6 | bit)
        };
        self.sorted().unwrap_or(&[]).iter().copied().chain(words.iter().enumerate().flat_map(of_word))
    }

    /// Bytes beyond the set's own size.
    pub(crate) fn heap_bytes(&self) -> u64 {
        match &self.0 {
            Shape::InPlace { .. } => 0,
            Shape::Vector(rows) => rows.capacity() as u64 * 2,
            Shape::Bits { .. } => WORDS as u64 * 8,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn equals_a_plain_set() {
        let mut seed = 1u64;
        let (mut set, mut plain) = (RowSet::default(), BTreeSet::new());
        for round in 0..60_000 {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let row = (seed >> 40) as u16;
            // Grow through all shapes, then shrink to nothing.
            if round < 30_000 {
                assert_eq!(set.insert(row), plain.insert(row));
            } else {
                let victim = plain.range(row..).next().copied().unwrap_or(row);
                assert_eq!(set.remove(victim), plain.remove(&victim));
            }
            assert_eq!(set.len(), plain.len() as u64);
            if round % 100 == 0 {
                assert_eq!(set.first(), plain.first().copied());
                assert_eq!(set.contains(row), plain.contains(&row));
                assert!(set.iter().eq(plain.iter().copied()));
            }
        }
        while let Some(row) = plain.pop_first() {
            assert_eq!(set.first(), Some(row));
            assert!(set.remove(row) && !set.remove(row));
        }
        assert!(set.is_empty());
        assert_eq!(set.heap_bytes(), 0);
    }

    #[test]
    fn ranges_are_their_rows() {
        let ranges =
            [5..=5, 7..=20, 64..=127, 3000..=3001, 2990..=9000, 63..=64, 65535..=65535, 9001..=60000, 0..=65535];
        for skip in 0..ranges.len() {
            let (mut set, mut plain) = (RowSet::default(), BTreeSet::new());
            for range in ranges.iter().skip(skip) {
                set.insert_range(range.clone());
                plain.extend(range.clone());
                assert!(set.iter().eq(plain.iter().copied()) && set.len() == plain.len() as u64, "{range:?}");
            }
        }
    }

    #[test]
    fn few_rows_allocate_nothing_many_a_bitmap() {
        let mut set = RowSet::default();
        for row in (0..IN_PLACE as u16).rev() {
            assert!(set.insert(row));
        }
        assert_eq!(set.heap_bytes(), 0);
        for row in 0..=u16::MAX {
            set.insert(row);
        }
        assert_eq!((set.len(), set.heap_bytes()), (65536, 8192));
    }
}
