//! Owns the version tags of a block's rows: commit sequences, ordinals, tombstones, superseding versions. Invariants:
//! what all rows share stands in the header and has no segment: a commit sequence, and bits that no row or every row
//! has; the rest is read in place.

use super::head::{invalid, Encoder, Head, Segment};
use super::ints::{IntPlan, Ints};
use super::{encoding, flags, segment_kind, BlockEntry, VersionTag};
use crate::compress::Compression;
use crate::error::FormatError;
use crate::ids::CommitSeq;

/// The tags of the rows that a builder has gathered.
#[derive(Default)]
pub(crate) struct TagBuffer {
    ordinals: Vec<u64>,
    /// Empty as long as every one is zero.
    seqs: Vec<u64>,
    /// Rows that are tombstones.
    tombstones: Vec<u32>,
    /// Rows that supersede an older version.
    supersedes: Vec<u32>,
}

/// How they are stored.
pub(crate) struct TagPlan {
    seqs: IntPlan,
    ordinals: IntPlan,
}

impl TagBuffer {
    /// Adds the next row's.
    #[inline(always)]
    pub(crate) fn push(&mut self, tag: VersionTag) {
        let row = self.ordinals.len();
        self.ordinals.push(tag.ordinal);
        if tag.seq != CommitSeq::ZERO || !self.seqs.is_empty() {
            self.seqs.resize(row, 0);
            self.seqs.push(tag.seq.0);
        }
        if tag.tombstone {
            self.tombstones.push(row as u32);
        }
        if tag.supersedes {
            self.supersedes.push(row as u32);
        }
    }

    /// Makes room for more rows.
    pub(crate) fn reserve(&mut self, rows: usize) {
        self.ordinals.reserve(rows);
    }

    /// Forgets the rows and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.ordinals.clear();
        self.seqs.clear();
        self.tombstones.clear();
        self.supersedes.clear();
    }

    /// Chooses how to store them, of which there is one at least.
    pub(crate) fn plan(&self) -> TagPlan {
        let seqs = if self.seqs.is_empty() { &[0][..] } else { &self.seqs };
        TagPlan { seqs: IntPlan::of(seqs), ordinals: IntPlan::of(&self.ordinals) }
    }

    /// Do some rows have the bit, and some not?
    fn differ(&self, set: &[u32]) -> bool {
        !set.is_empty() && set.len() != self.ordinals.len()
    }

    /// How many segments [`encode`](Self::encode) makes.
    pub(crate) fn segments(&self, plan: &TagPlan) -> usize {
        let bits = usize::from(self.differ(&self.tombstones)) + usize::from(self.differ(&self.supersedes));
        1 + usize::from(!plan.seqs.is_constant()) + bits
    }

    /// Appends the segments.
    pub(crate) fn encode(&self, plan: &TagPlan, block: &mut Encoder<'_>) {
        if !plan.seqs.is_constant() {
            block.ints(segment_kind::SEQS, &plan.seqs, &self.seqs);
        }
        block.ints(segment_kind::ORDINALS, &plan.ordinals, &self.ordinals);
        for (kind, set) in [(segment_kind::TOMBSTONES, &self.tombstones), (segment_kind::SUPERSEDES, &self.supersedes)]
        {
            if self.differ(set) {
                block.bitmap(kind, self.ordinals.len(), set);
            }
        }
    }

    /// What the block's index entry says of them.
    pub(crate) fn entry(&self, plan: &TagPlan) -> BlockEntry {
        let mut bits = 0;
        if plan.seqs.is_constant() {
            bits |= flags::SEQ_UNIFORM;
            if plan.seqs.max == 0 {
                bits |= flags::SEQ_ZERO;
            }
        }
        if plan.ordinals.is_dense(self.ordinals.len()) {
            bits |= flags::ORDINALS_DENSE;
        }
        BlockEntry {
            rows: self.ordinals.len() as u32,
            min_seq: CommitSeq(plan.seqs.min),
            max_seq: CommitSeq(plan.seqs.max),
            tombstones: self.tombstones.len() as u32,
            supersedes: self.supersedes.len() as u32,
            min_ordinal: plan.ordinals.min,
            max_ordinal: plan.ordinals.max,
            flags: bits,
            ..BlockEntry::default()
        }
    }
}

/// A bit for each row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bits {
    /// The same for all.
    All(bool),
    /// The bitmap lies there in the block.
    Each(usize),
}

impl Bits {
    /// Of a block of which `set` rows have the bit.
    fn read(head: &mut Head<'_>, kind: u8, set: u32) -> Result<Bits, FormatError> {
        let rows = head.entry.rows;
        if set == 0 || set == rows {
            return Ok(Bits::All(set != 0));
        }
        let segment = head.next(kind, 0)?;
        let plain = segment.compression == Compression::None && segment.unit == 0;
        if segment.encoding != encoding::BITMAP || !plain || segment.stored != rows.div_ceil(8) as usize {
            return Err(segment.invalid("block bitmap"));
        }
        Ok(Bits::Each(segment.at))
    }

    #[inline]
    fn get(self, block: &[u8], i: u32) -> bool {
        match self {
            Bits::All(bit) => bit,
            Bits::Each(at) => block[at + i as usize / 8] >> (i % 8) & 1 != 0,
        }
    }
}

/// How to read the tags of a block.
pub(crate) struct Tags {
    seqs: Ints,
    ordinals: Ints,
    tombstones: Bits,
    supersedes: Bits,
}

/// An integer segment: never compressed.
pub(crate) fn ints(what: &'static str, segment: &Segment, head: &Head<'_>) -> Result<Ints, FormatError> {
    if segment.compression != Compression::None {
        return Err(segment.invalid(what));
    }
    Ints::open(what, segment.encoding, segment.unit, segment.bytes(head.block), segment.at, head.entry.rows)
}

impl Tags {
    /// The tag of row `i` is asked for soon.
    #[inline]
    pub(crate) fn prefetch(&self, block: &[u8], i: u32) {
        self.seqs.prefetch(block, i);
        self.ordinals.prefetch(block, i);
    }

    /// Reads their segments, which are next.
    pub(crate) fn read(head: &mut Head<'_>) -> Result<Tags, FormatError> {
        let entry = head.entry;
        let seqs = if entry.min_seq == entry.max_seq {
            Ints::constant(entry.min_seq.0)
        } else {
            let segment = head.next(segment_kind::SEQS, 0)?;
            ints("block commit sequences", &segment, head)?
        };
        let segment = head.next(segment_kind::ORDINALS, 0)?;
        let ordinals = ints("block ordinals", &segment, head)?;
        let dense = ordinals.is_linear() || entry.rows == 1;
        if dense != (entry.flags & flags::ORDINALS_DENSE != 0) {
            return invalid("density of block ordinals", dense.into());
        }
        let tombstones = Bits::read(head, segment_kind::TOMBSTONES, entry.tombstones)?;
        let supersedes = Bits::read(head, segment_kind::SUPERSEDES, entry.supersedes)?;
        Ok(Tags { seqs, ordinals, tombstones, supersedes })
    }

    /// The tag of row `i` of the block.
    #[inline]
    pub(crate) fn get(&self, block: &[u8], i: u32) -> VersionTag {
        VersionTag {
            seq: CommitSeq(self.seqs.get(block, i)),
            ordinal: self.ordinals.get(block, i),
            tombstone: self.is_tombstone(block, i),
            supersedes: self.supersedes.get(block, i),
        }
    }

    /// Is row `i` a tombstone?
    #[inline]
    pub(crate) fn is_tombstone(&self, block: &[u8], i: u32) -> bool {
        self.tombstones.get(block, i)
    }

    /// Is any row a tombstone?
    pub(crate) fn has_tombstones(&self) -> bool {
        self.tombstones != Bits::All(false)
    }

    /// Checks every tag against what the header says of them all.
    pub(crate) fn verify(&self, block: &[u8], entry: &BlockEntry) -> Result<(), FormatError> {
        let (mut tombstones, mut supersedes, mut min_seq, mut max_seq) = (0, 0, CommitSeq::MAX, CommitSeq::ZERO);
        for i in 0..entry.rows {
            let tag = self.get(block, i);
            min_seq = min_seq.min(tag.seq);
            max_seq = max_seq.max(tag.seq);
            tombstones += u32::from(tag.tombstone);
            supersedes += u32::from(tag.supersedes);
        }
        if (min_seq, max_seq) != (entry.min_seq, entry.max_seq) {
            return invalid("range of block commit sequences", min_seq.0);
        }
        if tombstones != entry.tombstones {
            return invalid("count of block tombstones", tombstones.into());
        }
        if supersedes != entry.supersedes {
            return invalid("count of superseding versions in a block", supersedes.into());
        }
        Ok(())
    }
}
