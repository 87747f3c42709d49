//! The records that the lab writes and reads: cheap to make, different from each other, the same for every algorithm.

/// Bytes that records are cut from.
const PATTERN_BYTES: usize = 1 << 20;
/// Row lengths repeat after so many records.
const LENGTHS: usize = 1 << 16;

/// How long records are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Shape {
    /// All the same, as in a table with fixed rows.
    Static,
    /// From a quarter of the length up, as in a table with dynamic rows.
    Dynamic,
}

impl Shape {
    /// As it is printed.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Shape::Static => "static",
            Shape::Dynamic => "dynamic",
        }
    }
}

/// A sequence of records, the same for the same seed.
pub struct Records {
    pattern: Vec<u8>,
    /// Empty: all are `longest` long.
    lengths: Vec<u32>,
    longest: usize,
    /// How many.
    pub count: u64,
}

/// Some records that follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// The first one's number.
    pub first: u64,
    /// How many.
    pub count: u64,
}

impl Part {
    /// Their numbers.
    #[must_use]
    pub fn range(&self) -> std::ops::Range<u64> {
        self.first..self.first + self.count
    }
}

impl Records {
    /// `count` records of at most `longest` bytes.
    #[must_use]
    pub fn new(shape: Shape, longest: usize, count: u64, seed: u64) -> Records {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut pattern = vec![0; PATTERN_BYTES + longest];
        random.fill(&mut pattern);
        let least = (longest / 4).max(1);
        let lengths = match shape {
            Shape::Static => Vec::new(),
            Shape::Dynamic => (0..LENGTHS).map(|_| random.u32(least as u32..=longest as u32)).collect(),
        };
        Records { pattern, lengths, longest, count }
    }

    /// Length of record `i`, in bytes.
    #[must_use]
    pub fn length(&self, i: u64) -> usize {
        match self.lengths.len() {
            0 => self.longest,
            n => self.lengths[i as usize % n] as usize,
        }
    }

    /// Bytes of record `i`.
    #[must_use]
    pub fn get(&self, i: u64) -> &[u8] {
        // An odd step: neighbours differ, and the pattern is walked in full.
        let at = (i as usize).wrapping_mul(811) % PATTERN_BYTES;
        &self.pattern[at..at + self.length(i)]
    }

    /// Length of the longest record, in bytes.
    #[must_use]
    pub fn longest(&self) -> usize {
        self.longest
    }

    /// Bytes of all of them.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.bytes_of(self.all())
    }

    /// Bytes of some of them.
    #[must_use]
    pub fn bytes_of(&self, part: Part) -> u64 {
        let first = |count: u64| match self.lengths.len() as u64 {
            0 => count * self.longest as u64,
            n => {
                let all: u64 = self.lengths.iter().map(|l| u64::from(*l)).sum();
                let rest: u64 = self.lengths[..(count % n) as usize].iter().map(|l| u64::from(*l)).sum();
                count / n * all + rest
            }
        };
        first(part.range().end) - first(part.first)
    }

    /// What [`sum_of`] gives over some of them.
    #[must_use]
    pub fn sum(&self, part: Part) -> u64 {
        part.range().fold(0, |sum, i| sum_of(sum, self.get(i)))
    }

    /// All of them.
    #[must_use]
    pub fn all(&self) -> Part {
        Part { first: 0, count: self.count }
    }

    /// All of them in `n` parts of about the same size, whose numbers are multiples of `unit`, but for the last.
    #[must_use]
    pub fn parts(&self, n: u64, unit: u64) -> Vec<Part> {
        let n = n.max(1);
        let most = self.count.div_ceil(n).next_multiple_of(unit.max(1));
        let first = |i: u64| (i * most).min(self.count);
        (0..n).map(|i| Part { first: first(i), count: first(i + 1) - first(i) }).collect()
    }
}

/// Adds a record to a sum that depends on every record's beginning, end, length and place.
#[inline]
#[must_use]
pub fn sum_of(sum: u64, record: &[u8]) -> u64 {
    let first = record.first().copied().unwrap_or(0);
    let last = record.last().copied().unwrap_or(0);
    sum.rotate_left(1) ^ (u64::from(first) << 32 | u64::from(last) << 24 | record.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_and_total_agree() {
        for shape in [Shape::Static, Shape::Dynamic] {
            for count in [0, 1, 1000, 70_000] {
                let r = Records::new(shape, 103, count, 7);
                let total: u64 = (0..count).map(|i| r.get(i).len() as u64).sum();
                assert_eq!(total, r.total_bytes(), "{shape:?} {count}");
            }
        }
    }

    #[test]
    fn a_sum_tells_an_exchange() {
        let r = Records::new(Shape::Dynamic, 103, 100, 7);
        let exchanged = [1, 0].into_iter().chain(2..100).fold(0, |sum, i| sum_of(sum, r.get(i)));
        assert_ne!(exchanged, r.sum(r.all()));
    }

    #[test]
    fn parts_are_all_of_them() {
        for (count, n, unit) in [(0, 3, 1), (1, 1, 1), (10_000, 3, 4096), (5000, 8, 1)] {
            let parts = Records::new(Shape::Static, 103, count, 7).parts(n, unit);
            assert_eq!((parts.len() as u64, parts.iter().map(|p| p.count).sum::<u64>()), (n, count));
            assert!(parts.windows(2).all(|p| p[0].range().end == p[1].first));
            assert!(parts.iter().all(|p| p.count == 0 || p.first % unit == 0));
            assert!(count < n || parts.iter().all(|p| p.count > 0), "{parts:?}");
        }
    }
}
