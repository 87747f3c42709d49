//! Owns the reading of key blocks. Invariants: [`KeyBlock::open`] checks checksums, every bound and the order of the
//! keys, and makes all keys at full length in one room, which is bounded before; nothing changes afterwards.

use super::builder::{PAYLOADS, RESTS};
use super::heads::Heads;
use super::strings::Strings;
use super::MAX_KEY_BYTES;
use crate::block::bytes::{room, BlockBytes};
use crate::block::head::{invalid, Head, Segment};
use crate::block::ints::Ints;
use crate::block::plain::Plain;
use crate::block::tags::{self, Tags};
use crate::block::view::View;
use crate::block::{encoding, flags, segment_kind, BlockEntry, VersionTag, KEY_BLOCK_MAGIC};
use crate::codec::zeros;
use crate::compress::{decompress, Compression, SLACK_BYTES};
use crate::error::FormatError;
use crate::ids::{CommitSeq, RowId};
use crate::layout::ColumnKind;
use crate::prefetch::prefetch_all;
use crate::MAX_BLOCK_BYTES;
use std::ops::Range;

/// A key block, open for reading. `B` owns the stored bytes.
pub struct KeyBlock<B: BlockBytes> {
    bytes: B,
    /// Keys, and behind them payloads.
    room: B::Room,
    entry: BlockEntry,
    rows: Ints,
    tags: Tags,
    keys: Strings,
    heads: Heads,
    payloads: Strings,
    plain: Plain,
}

impl<B: BlockBytes> KeyBlock<B> {
    /// Opens a block: checks its checksums with the context that it was written with, and all that is in it. What
    /// follows the block in `bytes` is ignored.
    pub fn open(mut bytes: B, block_context: u64) -> Result<Self, FormatError> {
        let mut head = Head::read(bytes.as_ref(), KEY_BLOCK_MAGIC, block_context)?;
        if head.format != 0 {
            return invalid("key block format", head.format.into());
        }
        let segment = head.next(segment_kind::IDS, 0)?;
        let rows = tags::ints("key block row ids", &segment, &head)?;
        let tags = Tags::read(&mut head)?;
        let segment = head.next(segment_kind::SHARED, 0)?;
        let needed = segment.at;
        let shared = tags::ints("shared bytes of keys", &segment, &head)?;
        let rests = Raw::read(&mut head, segment_kind::KEYS, &RESTS)?;
        let values = Raw::read(&mut head, segment_kind::PAYLOADS, &PAYLOADS)?;
        let block = head.block;
        let entry = head.finish()?;
        let (rests, values) = (rests.view(), values.view());
        let lengths = key_lengths(block, &shared, &rests)?;
        let keys = Strings::plan(0, lengths.iter().map(|l| *l as usize));
        let payloads = Strings::plan(keys.end(entry.rows), (0..rests.rows).map(|i| values.value(i).len()));
        let mut room = room(&bytes, payloads.end(entry.rows))?;
        for i in 0..entry.rows {
            // Bounded by the length of the key before.
            let same = shared.get(block, i) as usize;
            keys.write(&mut room, i, same, rests.value(i as usize))?;
            if i > 0 && keys.get(&room, i - 1) > keys.get(&room, i) {
                return invalid("order of keys", i.into());
            }
        }
        if payloads.bytes() > 0 {
            (0..entry.rows).try_for_each(|i| payloads.write(&mut room, i, 0, values.value(i as usize)))?;
        }
        let ids = || (0..entry.rows).map(|i| rows.get(block, i));
        let range = (ids().min().unwrap_or(0), ids().max().unwrap_or(0));
        let dense = rows.is_linear() || entry.rows == 1;
        let key = |i| keys.get(&room, i);
        let unique = (1..entry.rows).all(|i| key(i - 1) != key(i));
        if unique != entry.ids_unique() {
            return invalid("uniqueness of keys", u64::from(!unique));
        }
        if range != (entry.first_id.0, entry.last_id.0) || dense != (entry.flags & flags::IDS_DENSE != 0) {
            return invalid("range of key block row ids", range.0);
        }
        tags.verify(block, &entry)?;
        let plain = match unique && !tags.has_tombstones() {
            true => Plain::all(entry.rows),
            false => Plain::of(entry.rows, |i| tags.is_tombstone(block, i), |i| key(i - 1) == key(i)),
        };
        let heads = Heads::new(entry.rows, key);
        let others = size_of::<Self>()
            + heads.memory_bytes()
            + Plain::memory_bytes(entry.rows, !unique || tags.has_tombstones());
        // Keys and payloads are in the room.
        bytes.keep(needed);
        bytes.note_memory(room.len(), others);
        Ok(KeyBlock { entry, rows, tags, keys, heads, payloads, plain, room, bytes })
    }

    /// What holds its stored bytes.
    pub fn bytes(&self) -> &B {
        &self.bytes
    }

    /// The stored bytes of the block, as far as they are kept: row ids and tags at least.
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
        assert!(at < self.entry.rows, "no such entry in the block");
        self.keys.get(&self.room, at)
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
        assert!(at < self.entry.rows, "no such entry in the block");
        self.payloads.get(&self.room, at)
    }

    /// The first entry whose key is `key` or greater; [`Self::rows`] when there is none.
    #[must_use]
    pub fn lower_bound(&self, key: &[u8]) -> u32 {
        if self.entry.rows == 0 {
            return 0;
        }
        let near = self.heads.near(key, self.key(0), self.entry.rows);
        self.prefetch(&near);
        let Range { start: mut low, end: mut high } = near;
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

    /// A hint, before a search in the block: brings the block's own fields into the processor's cache.
    #[inline]
    pub fn prefetch_head(&self) {
        prefetch_all(self);
    }

    /// A hint: brings the first, middle and last key of these entries, and tag and row id of the middle one, beside which the
    /// others lie.
    #[inline]
    fn prefetch(&self, entries: &Range<u32>) {
        if let Some(last) = entries.end.min(self.entry.rows).checked_sub(1).filter(|last| *last >= entries.start) {
            let middle = entries.start + (last - entries.start) / 2;
            [entries.start, middle, last].into_iter().for_each(|at| self.keys.prefetch(&self.room, at));
            self.tags.prefetch(self.block(), middle);
            self.rows.prefetch(self.block(), middle);
        }
    }

    /// Behind the entries that stand together from `at` on and are plain: no tombstones, each the only one of its key. `at`
    /// itself if that is none.
    #[inline]
    #[must_use]
    pub fn plain_until(&self, at: u32) -> u32 {
        self.plain.until(at)
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
}

/// The values of a segment, for as long as the block is opened.
struct Raw<'a> {
    segment: Segment,
    rows: usize,
    stored: &'a [u8],
    /// The content, when it had to be decompressed.
    content: Option<Vec<u8>>,
    anchors: Vec<u32>,
}

impl<'a> Raw<'a> {
    /// The values of the segment that is next.
    fn read(head: &mut Head<'a>, kind: u8, column: &ColumnKind) -> Result<Self, FormatError> {
        let rows = head.entry.rows as usize;
        let segment = head.next(kind, 0)?;
        let max = column.max_bytes();
        segment.check_values(rows, None, max)?;
        let stored = segment.bytes(head.block);
        let mut content = None;
        if segment.compression != Compression::None {
            let content = content.insert(zeros(segment.raw + SLACK_BYTES)?);
            decompress(segment.compression, stored, content)?;
        }
        let mut raw = Raw { segment, rows, stored, content, anchors: Vec::new() };
        if raw.segment.encoding == encoding::VAR {
            raw.anchors = raw.view().make_anchors(max)?;
        }
        // A value that all share is stored once: what they take together is bounded like a block.
        let total = match raw.segment.encoding {
            encoding::CONSTANT => rows * raw.segment.unit as usize,
            _ => raw.segment.raw,
        };
        check_total("values of a key block", total)?;
        Ok(raw)
    }

    fn view(&self) -> View<'_> {
        let bytes = self.content.as_deref().unwrap_or(self.stored);
        let Segment { encoding, unit, raw, .. } = self.segment;
        View { encoding, unit: unit as usize, rows: self.rows, bytes, raw, anchors: &self.anchors }
    }
}

/// How long each key is, from how much it shares with the one before and what follows that.
fn key_lengths(block: &[u8], shared: &Ints, rests: &View<'_>) -> Result<Vec<u32>, FormatError> {
    let mut lengths: Vec<u32> = Vec::with_capacity(rests.rows);
    let mut total = 0;
    for i in 0..rests.rows {
        let same = shared.get(block, i as u32);
        if same > lengths.last().copied().unwrap_or(0).into() {
            return invalid("shared bytes of a key", same);
        }
        let length = same as usize + rests.value(i).len();
        if length > MAX_KEY_BYTES {
            return Err(FormatError::TooLong { what: "key", found: length as u64, max: MAX_KEY_BYTES as u64 });
        }
        total += length;
        lengths.push(length as u32);
    }
    check_total("keys of a key block", total)?;
    Ok(lengths)
}

/// Fails when what is to be made is longer than a block may be.
fn check_total(what: &'static str, found: usize) -> Result<(), FormatError> {
    if found > MAX_BLOCK_BYTES as usize {
        return Err(FormatError::TooLong { what, found: found as u64, max: u64::from(MAX_BLOCK_BYTES) });
    }
    Ok(())
}

impl<B: BlockBytes> std::fmt::Debug for KeyBlock<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyBlock")
            .field("rows", &self.entry.rows)
            .field("stored_bytes", &self.entry.stored_bytes)
            .finish_non_exhaustive()
    }
}
