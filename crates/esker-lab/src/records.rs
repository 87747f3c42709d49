//! The records that the lab writes and reads: cheap to make, different from each other, the same for every algorithm.

/// Bytes that records are cut from.
const PATTERN_BYTES: usize = 1 << 20;
/// Row lengths repeat after so many records, or sooner where whole blocks would take more than this.
const LENGTHS: usize = 1 << 16;
const BLOCKS_BYTES: usize = 64 << 20;
/// Of dynamic rows so many are as short as can be, all their text empty; the others are anything from there to the longest,
/// one length as often as another. In [`myisam`]'s layout rows of at most 103 bytes then give the source's dynamic table.
const SHORTEST_SHARE: f64 = 0.2943;

/// How long records are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Shape {
    /// All the same, as in a table with fixed rows.
    Static,
    /// From 18 parts in 25 of the length up, as in a table with dynamic rows.
    Dynamic,
    /// The same rows as MyISAM writes them: in blocks.
    Blocks,
    /// From a quarter of the length up, one length as often as another: what an allocator has to do with.
    Spread,
}

impl Shape {
    /// As it is printed.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Shape::Static => "static",
            Shape::Dynamic | Shape::Blocks => "dynamic",
            Shape::Spread => "spread",
        }
    }
}

/// How MyISAM lays out a dynamic row at the end of a file (the facts are from MariaDB's storage/myisam/mi_dynrec.c).
pub mod myisam {
    /// Blocks have lengths that are multiples of this, and at least this.
    const UNIT: usize = 4;
    const LEAST: usize = 20;
    /// From this length on, of the row or its block, a length takes three bytes.
    const LONG: usize = 65_520;
    /// Longer rows are parted among blocks.
    pub const LONGEST_ROW: usize = (1 << 24) - 4 - 5;

    /// Bytes of the block of a packed row of so many.
    #[must_use]
    pub fn block_bytes(packed: usize) -> usize {
        let header = 3 + usize::from(packed >= LONG - 3);
        (packed + header).next_multiple_of(UNIT).max(LEAST)
    }

    /// What stands before the row: what kind of block it is, the row's length, most significant byte first, and, where the row
    /// does not fill the block, how many bytes are left.
    #[must_use]
    pub fn header(packed: usize) -> Vec<u8> {
        let block = block_bytes(packed);
        let long = block >= LONG || packed >= LONG;
        let exact = block == packed + 3 + usize::from(long);
        let kind = if exact { 1 } else { 3 } + u8::from(long);
        let length = (packed as u32).to_be_bytes();
        let mut header = vec![kind];
        header.extend(&length[if long { 1 } else { 2 }..]);
        if !exact {
            header.push((block - packed - header.len() - 1) as u8);
        }
        header
    }
}

/// A sequence of records, the same for the same seed.
pub struct Records {
    pattern: Vec<u8>,
    /// Empty: all are `longest` long.
    lengths: Vec<u32>,
    /// Where each block begins in the pattern; empty: a record is cut from anywhere.
    places: Vec<u32>,
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
    /// `count` records of at most `longest` bytes; blocks are longer, by what [`myisam`] adds.
    #[must_use]
    pub fn new(shape: Shape, longest: usize, count: u64, seed: u64) -> Records {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut pattern = vec![0; if shape == Shape::Blocks { 0 } else { PATTERN_BYTES + longest }];
        random.fill(&mut pattern);
        let lengths = match shape {
            Shape::Static => Vec::new(),
            Shape::Dynamic | Shape::Blocks => dynamic_lengths(longest, &mut random),
            Shape::Spread => {
                let least = (longest / 4).max(1) as u32;
                (0..LENGTHS).map(|_| random.u32(least..=longest as u32)).collect()
            }
        };
        if shape == Shape::Blocks {
            return blocks(&lengths, count, &mut random);
        }
        Records { pattern, lengths, places: Vec::new(), longest, count }
    }

    /// Bytes of memory that such records take, at most.
    #[must_use]
    pub fn memory_bytes(shape: Shape, longest: usize) -> u64 {
        match shape {
            Shape::Blocks => (distinct(longest) * (longest + 32)) as u64,
            _ => (PATTERN_BYTES + 2 * longest) as u64,
        }
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
        let at = match self.places.len() {
            // An odd step: neighbours differ, and the pattern is walked in full.
            0 => (i as usize).wrapping_mul(811) % PATTERN_BYTES,
            n => self.places[i as usize % n] as usize,
        };
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

/// After how many records lengths repeat.
fn distinct(longest: usize) -> usize {
    (BLOCKS_BYTES / longest.max(1)).clamp(16, LENGTHS)
}

/// Lengths of dynamic rows: each of the distribution as often as it demands, in an order of chance.
fn dynamic_lengths(longest: usize, random: &mut fastrand::Rng) -> Vec<u32> {
    let (least, n) = ((longest * 18 / 25).max(1), distinct(longest));
    let shortest = (n as f64 * SHORTEST_SHARE).round() as usize;
    let of = |i: usize| match i.checked_sub(shortest) {
        Some(j) if least < longest => (least + 1 + j * (longest - least) / (n - shortest)) as u32,
        _ => least as u32,
    };
    let mut lengths: Vec<u32> = (0..n).map(of).collect();
    random.shuffle(&mut lengths);
    lengths
}

/// Rows of these lengths in MyISAM's blocks: header, row, and zeros up to the block's end.
fn blocks(rows: &[u32], count: u64, random: &mut fastrand::Rng) -> Records {
    let (mut pattern, mut places, mut lengths) = (Vec::new(), Vec::new(), Vec::new());
    for packed in rows.iter().map(|l| *l as usize) {
        let (at, block) = (pattern.len(), myisam::block_bytes(packed));
        pattern.extend(myisam::header(packed));
        let row = pattern.len();
        pattern.resize(at + block, 0);
        random.fill(&mut pattern[row..row + packed]);
        places.push(at as u32);
        lengths.push(block as u32);
    }
    let longest = lengths.iter().max().map_or(0, |l| *l as usize);
    Records { pattern, lengths, places, longest, count }
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
        for shape in [Shape::Static, Shape::Dynamic, Shape::Blocks] {
            for count in [0, 1, 1000, 70_000] {
                let r = Records::new(shape, 103, count, 7);
                let total: u64 = (0..count).map(|i| r.get(i).len() as u64).sum();
                assert_eq!(total, r.total_bytes(), "{shape:?} {count}");
            }
        }
    }

    #[test]
    fn a_block_has_its_header_its_row_and_nothing_more_than_it_needs() {
        let of = |packed| (myisam::block_bytes(packed), myisam::header(packed));
        // Rows that fill their block, that leave bytes, that are shorter than the least block; then with long lengths.
        assert_eq!(of(101), (104, vec![1, 0, 101]));
        assert_eq!(of(100), (104, vec![3, 0, 100, 0]));
        assert_eq!(of(98), (104, vec![3, 0, 98, 2]));
        assert_eq!(of(1), (20, vec![3, 0, 1, 15]));
        assert_eq!(of(65_513), (65_516, vec![1, 0xFF, 0xE9]));
        assert_eq!(of(65_514), (65_520, vec![4, 0, 0xFF, 0xEA, 1]));
        assert_eq!(of(65_516), (65_520, vec![2, 0, 0xFF, 0xEC]));
        assert_eq!(of(1 << 20), ((1 << 20) + 4, vec![2, 0x10, 0, 0]));
        for packed in (1..300).chain(65_500..65_530).chain([myisam::LONGEST_ROW]) {
            let (block, header) = of(packed);
            let left = block - header.len() - packed;
            assert!(block % 4 == 0 && (left < 4 || block == 20), "{packed}");
            assert!(header[0] < 3 && left == 0 || usize::from(header[header.len() - 1]) == left, "{packed}");
        }
        let blocks = Records::new(Shape::Blocks, 103, 1000, 7);
        for i in 0..1000 {
            let block = blocks.get(i);
            let packed = usize::from(block[1]) << 8 | usize::from(block[2]);
            assert_eq!(block.len(), myisam::block_bytes(packed));
            assert!(block.starts_with(&myisam::header(packed)) && (74..=103).contains(&packed));
        }
    }

    #[test]
    fn one_distribution_gives_the_sources_file() {
        // 895389376 bytes for ten million records, whatever the order.
        for seed in [1, 7] {
            let bytes = Records::new(Shape::Blocks, 103, 10_000_000, seed).total_bytes();
            assert!(bytes.abs_diff(895_389_376) < 100_000, "{bytes} bytes");
        }
        for longest in [1, 2, 1000, 1 << 20] {
            let records = Records::new(Shape::Dynamic, longest, 1000, 7);
            let lengths: Vec<usize> = (0..1000).map(|i| records.length(i)).collect();
            let (least, most) = (lengths.iter().min().copied(), lengths.iter().max().copied());
            assert!(least == Some((longest * 18 / 25).max(1)) && most <= Some(longest), "{least:?} {most:?}");
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
