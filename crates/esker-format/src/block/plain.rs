//! Owns which versions of a block are plain: no tombstone, and the only one of its key in the block. A reader takes
//! stretches of these as they stand.

/// Bits of a word.
const WORD: u32 = u64::BITS;

/// Which versions of a block are plain.
pub(crate) struct Plain {
    rows: u32,
    /// A bit for each that is not; empty when all are.
    others: Box<[u64]>,
}

impl Plain {
    /// All of them.
    pub(crate) fn all(rows: u32) -> Plain {
        Plain { rows, others: Box::default() }
    }

    /// As the block's tombstones tell, and which neighbours have one key: `same(i)` is asked of `i` and the one before.
    pub(crate) fn of(rows: u32, is_tombstone: impl Fn(u32) -> bool, same: impl Fn(u32) -> bool) -> Plain {
        let mut others = vec![0; rows.div_ceil(WORD) as usize];
        let mut set = |i: u32| others[(i / WORD) as usize] |= 1 << (i % WORD);
        for i in 0..rows {
            if is_tombstone(i) {
                set(i);
            }
            if i > 0 && same(i) {
                set(i - 1);
                set(i);
            }
        }
        Plain { rows, others: others.into() }
    }

    /// Behind the plain ones that stand together from `at` on: `at` itself if that is none.
    #[inline]
    pub(crate) fn until(&self, at: u32) -> u32 {
        let mut word = (at / WORD) as usize;
        let mut bits = match self.others.get(word) {
            Some(bits) => bits & (u64::MAX << (at % WORD)),
            None => return self.rows,
        };
        while bits == 0 {
            word += 1;
            match self.others.get(word) {
                Some(next) => bits = *next,
                None => return self.rows,
            }
        }
        word as u32 * WORD + bits.trailing_zeros()
    }

    /// Memory that it takes beside itself, in bytes, for a block that has others than plain ones, or not.
    pub(crate) fn memory_bytes(rows: u32, has_others: bool) -> usize {
        if has_others {
            rows.div_ceil(WORD) as usize * size_of::<u64>()
        } else {
            0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_end_before_tombstones_and_keys_that_are_there_twice() {
        for rows in [1, 63, 64, 65, 200] {
            assert_eq!(Plain::all(rows).until(0), rows);
            assert_eq!(Plain::of(rows, |_| false, |_| false).until(rows - 1), rows);
        }
        let plain = Plain::of(200, |i| [3, 64, 199].contains(&i), |i| [70, 71, 128].contains(&i));
        let others = [3, 64, 69, 70, 71, 127, 128, 199];
        for at in 0..200 {
            assert_eq!(plain.until(at), *others.iter().find(|other| **other >= at).unwrap());
        }
        assert_eq!(plain.until(200), 200);
    }
}
