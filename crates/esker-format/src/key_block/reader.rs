//! Owns the reading of key blocks. Invariants: [`KeyBlock::open`] checks checksums, every bound and the order of the
//! keys, and makes all keys at full length in one buffer, which is bounded before; nothing changes afterwards.

use super::builder::{PAYLOADS, RESTS};
use super::heads::Heads;
use super::MAX_KEY_BYTES;
use crate::block::head::{invalid, Head};
use crate::block::ints::Ints;
use crate::block::plain::Plain;
use crate::block::tags::{self, Tags};
use crate::block::view::View;
use crate::block::{encoding, flags, segment_kind, BlockEntry, VersionTag, KEY_BLOCK_MAGIC};
use crate::compress::{decompress, Compression};
use crate::error::FormatError;
use crate::ids::{CommitSeq, RowId};
use crate::layout::ColumnKind;
use crate::MAX_BLOCK_BYTES;
use std::ops::Range;

/// Byte strings in one buffer.
struct Strings {
    bytes: Vec<u8>,
    /// Where each ends.
    ends: Vec<u32>,
}

impl Strings {
    fn get(&self, i: u32) -> &[u8] {
        let i = i as usize;
        let start = if i == 0 { 0 } else { self.ends[i - 1] };
        &self.bytes[start as usize..self.ends[i] as usize]
    }
}

/// A key block, open for reading. `B` owns the stored bytes.
pub struct KeyBlock<B: AsRef<[u8]>> {
    bytes: B,
    entry: BlockEntry,
    rows: Ints,
    tags: Tags,
    keys: Strings,
    heads: Heads,
    payloads: Strings,
    plain: Plain,
}

impl<B: AsRef<[u8]>> KeyBlock<B> {
    /// Opens a block: checks its checksums with the context that it was written with, and all that is in it. What
    /// follows the block in `bytes` is ignored.
    pub fn open(bytes: B, block_context: u64) -> Result<Self, FormatError> {
        let mut head = Head::read(bytes.as_ref(), KEY_BLOCK_MAGIC, block_context)?;
        if head.format != 0 {
            return invalid("key block format", head.format.into());
        }
        let segment = head.next(segment_kind::IDS, 0)?;
        let rows = tags::ints("key block row ids", &segment, &head)?;
        let tags = Tags::read(&mut head)?;
        let segment = head.next(segment_kind::SHARED, 0)?;
        let shared = tags::ints("shared bytes of keys", &segment, &head)?;
        let rests = strings(&mut head, segment_kind::KEYS, &RESTS)?;
        let payloads = strings(&mut head, segment_kind::PAYLOADS, &PAYLOADS)?;
        let block = head.block;
        let entry = head.finish()?;
        let keys = full_keys(block, &shared, &rests)?;
        let ids = || (0..entry.rows).map(|i| rows.get(block, i));
        let range = (ids().min().unwrap_or(0), ids().max().unwrap_or(0));
        let dense = rows.is_linear() || entry.rows == 1;
        let unique = (1..entry.rows).all(|i| keys.get(i - 1) != keys.get(i));
        if unique != entry.ids_unique() {
            return invalid("uniqueness of keys", u64::from(!unique));
        }
        if range != (entry.first_id.0, entry.last_id.0) || dense != (entry.flags & flags::IDS_DENSE != 0) {
            return invalid("range of key block row ids", range.0);
        }
        tags.verify(block, &entry)?;
        let plain = match unique && !tags.has_tombstones() {
            true => Plain::all(entry.rows),
            false => Plain::of(entry.rows, |i| tags.is_tombstone(block, i), |i| keys.get(i - 1) == keys.get(i)),
        };
        let heads = Heads::new(entry.rows, |at| keys.get(at));
        Ok(KeyBlock { entry, rows, tags, keys, heads, payloads, plain, bytes })
    }

    /// The stored bytes of the block.
    fn block(&self) -> &[u8] {
        let all = self.bytes.as_ref();
        &all[..(self.entry.stored_bytes as usize).min(all.len())]
    }

    /// What its head says of it; nothing of offset, ordinals, and keys.
    #[must_use]
    pub fn entry(&self) -> &BlockEntry {
        &self.entry
    }

    /// How many entries it holds, tombstones included.
    #[must_use]
    pub fn rows(&self) -> u32 {
        self.entry.rows
    }

    /// The key of entry `at`. Panics when there is no such entry.
    #[must_use]
    pub fn key(&self, at: u32) -> &[u8] {
        self.keys.get(at)
    }

    /// The row id of entry `at`. Panics when there is no such entry.
    #[must_use]
    pub fn row(&self, at: u32) -> RowId {
        assert!(at < self.entry.rows, "no such entry in the block");
        RowId(self.rows.get(self.block(), at))
    }

    /// Which version entry `at` is. Panics when there is no such entry.
    #[must_use]
    pub fn tag(&self, at: u32) -> VersionTag {
        assert!(at < self.entry.rows, "no such entry in the block");
        self.tags.get(self.block(), at)
    }

    /// The payload of entry `at`. Panics when there is no such entry.
    #[must_use]
    pub fn payload(&self, at: u32) -> &[u8] {
        self.payloads.get(at)
    }

    /// The first entry whose key is `key` or greater; [`Self::rows`] when there is none.
    #[must_use]
    pub fn lower_bound(&self, key: &[u8]) -> u32 {
        if self.entry.rows == 0 {
            return 0;
        }
        let Range { start: mut low, end: mut high } = self.heads.near(key, self.key(0), self.entry.rows);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.key(middle) < key {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// No key occurs twice.
    #[must_use]
    pub fn keys_unique(&self) -> bool {
        self.entry.ids_unique()
    }

    /// Behind the entries that stand together from `at` on and are plain: no tombstones, each the only one of its key. `at`
    /// itself if that is none.
    #[inline]
    #[must_use]
    pub fn plain_until(&self, at: u32) -> u32 {
        self.plain.until(at)
    }

    /// The commit sequence of all entries, if it is the same.
    #[must_use]
    pub fn uniform_seq(&self) -> Option<CommitSeq> {
        (self.entry.min_seq == self.entry.max_seq).then_some(self.entry.min_seq)
    }

    /// The least commit sequence.
    #[must_use]
    pub fn min_seq(&self) -> CommitSeq {
        self.entry.min_seq
    }

    /// The greatest commit sequence.
    #[must_use]
    pub fn max_seq(&self) -> CommitSeq {
        self.entry.max_seq
    }

    /// Is any entry a tombstone?
    #[must_use]
    pub fn has_tombstones(&self) -> bool {
        self.tags.has_tombstones()
    }

    /// Memory that the block takes, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let strings = |s: &Strings| s.bytes.capacity() + s.ends.capacity() * size_of::<u32>();
        let plain = Plain::memory_bytes(self.entry.rows, !self.keys_unique() || self.has_tombstones());
        size_of::<Self>()
            + self.entry.stored_bytes as usize
            + strings(&self.keys)
            + self.heads.memory_bytes()
            + strings(&self.payloads)
            + plain
    }
}

/// The values of the segment that is next.
fn strings(head: &mut Head<'_>, kind: u8, column: &ColumnKind) -> Result<Strings, FormatError> {
    let rows = head.entry.rows as usize;
    let segment = head.next(kind, 0)?;
    let max = column.max_bytes();
    segment.check_values(rows, None, max)?;
    let stored = segment.bytes(head.block);
    let content = match segment.compression {
        Compression::None => None,
        how => Some(decompress(how, stored, segment.raw)?),
    };
    let bytes = content.as_deref().unwrap_or(stored);
    let mut view =
        View { encoding: segment.encoding, unit: segment.unit as usize, rows, bytes, raw: segment.raw, anchors: &[] };
    let anchors;
    if segment.encoding == encoding::VAR {
        anchors = view.make_anchors(max)?;
        view.anchors = &anchors;
    }
    // A value that all share is stored once: what they take together is bounded like a block.
    let total = match segment.encoding {
        encoding::CONSTANT => rows * view.unit,
        _ => segment.raw,
    };
    check_total("values of a key block", total)?;
    let mut all = Strings { bytes: Vec::with_capacity(total), ends: Vec::with_capacity(rows) };
    for i in 0..rows {
        all.bytes.extend_from_slice(view.value(i));
        all.ends.push(all.bytes.len() as u32);
    }
    Ok(all)
}

/// The keys at full length, from how much each shares with the one before and what follows that.
fn full_keys(block: &[u8], shared: &Ints, rests: &Strings) -> Result<Strings, FormatError> {
    let rows = rests.ends.len() as u32;
    let (mut last, mut total) = (0, 0);
    for i in 0..rows {
        let same = shared.get(block, i);
        if same > last as u64 {
            return invalid("shared bytes of a key", same);
        }
        last = same as usize + rests.get(i).len();
        if last > MAX_KEY_BYTES {
            return Err(FormatError::TooLong { what: "key", found: last as u64, max: MAX_KEY_BYTES as u64 });
        }
        total += last;
    }
    check_total("keys of a key block", total)?;
    let mut keys = Strings { bytes: Vec::with_capacity(total), ends: Vec::with_capacity(rows as usize) };
    let mut before = 0..0;
    for i in 0..rows {
        let start = keys.bytes.len();
        // Bounded above by the length of the key before.
        let same = (shared.get(block, i) as usize).min(before.len());
        keys.bytes.extend_from_within(before.start..before.start + same);
        keys.bytes.extend_from_slice(rests.get(i));
        if keys.bytes[start..] < keys.bytes[before.clone()] {
            return invalid("order of keys", i.into());
        }
        before = start..keys.bytes.len();
        keys.ends.push(keys.bytes.len() as u32);
    }
    Ok(keys)
}

/// Fails when what is to be made is longer than a block may be.
fn check_total(what: &'static str, found: usize) -> Result<(), FormatError> {
    if found > MAX_BLOCK_BYTES as usize {
        return Err(FormatError::TooLong { what, found: found as u64, max: u64::from(MAX_BLOCK_BYTES) });
    }
    Ok(())
}

impl<B: AsRef<[u8]>> std::fmt::Debug for KeyBlock<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyBlock")
            .field("rows", &self.entry.rows)
            .field("stored_bytes", &self.entry.stored_bytes)
            .finish_non_exhaustive()
    }
}
