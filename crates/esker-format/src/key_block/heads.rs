//! Where to look for a key in a block: the first bytes of some keys, close together in memory.
//!
//! Invariant: what is told of a key follows from the order of the keys, which the block has checked; the keys themselves
//! decide where first bytes are alike.

use std::cmp::Ordering;
use std::ops::Range;

/// Of so many keys one has its head here.
const APART: u32 = 16;

/// The heads of a block's keys: eight bytes each, behind those that all keys begin with.
pub(super) struct Heads {
    shared: usize,
    heads: Vec<u64>,
}

/// Eight bytes as a number that is ordered as they are; what is missing is zero.
fn head(bytes: &[u8]) -> u64 {
    match bytes.first_chunk::<8>() {
        Some(whole) => u64::from_be_bytes(*whole),
        None => bytes.iter().enumerate().fold(0, |head, (i, byte)| head | u64::from(*byte) << (56 - 8 * i)),
    }
}

impl Heads {
    /// Of `rows` keys in order.
    pub(super) fn new<'a>(rows: u32, key: impl Fn(u32) -> &'a [u8]) -> Self {
        if rows <= APART {
            return Heads { shared: 0, heads: Vec::new() };
        }
        let (first, last) = (key(0), key(rows - 1));
        let shared = first.iter().zip(last).take_while(|(a, b)| a == b).count();
        let heads = (0..rows).step_by(APART as usize).map(|at| head(&key(at)[shared..])).collect();
        Heads { shared, heads }
    }

    /// All keys before the range are less than `wanted`, none behind it is. `first`: the first key, `rows`: how many there are.
    pub(super) fn near(&self, wanted: &[u8], first: &[u8], rows: u32) -> Range<u32> {
        if self.heads.is_empty() {
            return 0..rows;
        }
        let begins = &wanted[..self.shared.min(wanted.len())];
        match begins.cmp(&first[..self.shared]) {
            Ordering::Less => return 0..0,
            Ordering::Greater => return rows..rows,
            Ordering::Equal => {}
        }
        let head = head(&wanted[self.shared..]);
        let less = self.heads.partition_point(|h| *h < head);
        let alike = self.heads[less..].iter().take_while(|h| **h == head).count();
        let from = less.checked_sub(1).map_or(0, |before| before as u32 * APART + 1);
        from..rows.min((less + alike) as u32 * APART)
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.heads.capacity() * size_of::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Few letters, so that keys begin alike, are alike, and end where others go on.
        #[test]
        fn the_first_key_that_is_not_less_is_in_the_range_or_behind_it(
            begin in proptest::collection::vec(0u8..2, 0..12),
            mut ends in proptest::collection::vec(proptest::collection::vec(0u8..3, 0..12), 1..200),
            wanted in proptest::collection::vec((any::<bool>(), proptest::collection::vec(0u8..3, 0..12)), 1..40),
        ) {
            ends.sort();
            let keys: Vec<Vec<u8>> = ends.iter().map(|end| [&begin[..], end].concat()).collect();
            let rows = keys.len() as u32;
            let heads = Heads::new(rows, |at| &keys[at as usize]);
            let others = wanted.into_iter().map(|(begins, end)| if begins { [&begin[..], &end].concat() } else { end });
            for wanted in others.chain(keys.iter().cloned()) {
                let near = heads.near(&wanted, &keys[0], rows);
                let bound = keys.partition_point(|key| *key < wanted) as u32;
                prop_assert!(near.start <= bound && bound <= near.end && near.end <= rows);
            }
        }
    }

    /// Keys of which the heads differ are told apart by them.
    #[test]
    fn what_is_left_to_compare_is_little() {
        let keys: Vec<[u8; 9]> = (0..1000u64)
            .map(|n| std::array::from_fn(|i| if i == 0 { 1 } else { (n * 7).to_be_bytes()[i - 1] }))
            .collect();
        let heads = Heads::new(1000, |at| &keys[at as usize][..]);
        assert_eq!(heads.shared, 7);
        for key in &keys {
            assert!(heads.near(key, &keys[0], 1000).len() <= 2 * APART as usize);
        }
        assert_eq!((heads.near(&[0], &keys[0], 1000), heads.near(&[2], &keys[0], 1000)), (0..0, 1000..1000));
    }
}
