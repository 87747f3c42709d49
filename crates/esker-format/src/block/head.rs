//! Owns what blocks of all kinds share: the header, the directory of segments, and the checksums. Invariants: the
//! block's checksum covers header and directory, seeded with the place; the directory holds a checksum of each segment;
//! so every byte is covered once, a block is checked in one pass, a segment can be read without the others, and a block
//! moves to another place without its segments being looked at again. Segments follow each other without gaps.

use super::columns::ColumnBuffer;
use super::ints::{features_of, IntPlan};
use super::{block_at, encoding, features, flags, segment_at, segment_kind};
use super::{
    BlockEntry, BLOCK_HEADER_BYTES, BLOCK_MAGIC, BLOCK_VERSION, KEY_BLOCK_MAGIC, MAX_BLOCK_ROWS, SEGMENT_ENTRY_BYTES,
};
use crate::codec::{self, get_u16, get_u32, get_u64, set_u32, set_u64};
use crate::compress::{Compression, Compressor};
use crate::error::FormatError;
use crate::ids::{CommitSeq, RowId};
use crate::MAX_BLOCK_BYTES;
use xxhash_rust::xxh3::xxh3_64;

/// Features that a block may need of its reader.
const KNOWN_FEATURES: u32 = features::DELTA_WIDTHS;

/// Where a segment lies in its block, and how it is stored.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Segment {
    pub encoding: u8,
    pub compression: Compression,
    pub unit: u32,
    pub at: usize,
    pub stored: usize,
    pub raw: usize,
}

impl Segment {
    /// The error for a segment that cannot be.
    pub(crate) fn invalid(&self, what: &'static str) -> FormatError {
        FormatError::Invalid { what, found: u64::from(self.encoding) << 32 | u64::from(self.unit) }
    }

    /// Checks a segment of values: `width` is what every value must have, `max` the longest that may be.
    pub(crate) fn check_values(&self, rows: usize, width: Option<u32>, max: u32) -> Result<(), FormatError> {
        let unit = self.unit as usize;
        let fits = |unit: u32| width.map_or(unit <= max, |w| unit == w);
        let good = match self.encoding {
            encoding::EMPTY => unit == 0 && self.raw == 0 && fits(0),
            // Values without bytes are EMPTY; images are never.
            encoding::CONSTANT => unit > 0 && fits(self.unit) && self.raw == unit,
            encoding::UNIFORM => {
                (unit > 0 || width == Some(0)) && fits(self.unit) && rows.checked_mul(unit) == Some(self.raw)
            }
            encoding::VAR => width.is_none() && matches!(unit, 1 | 2 | 4) && self.raw >= rows * unit,
            _ => false,
        };
        if good {
            Ok(())
        } else {
            Err(self.invalid("encoding of block values"))
        }
    }

    /// The stored bytes.
    pub(crate) fn bytes<'a>(&self, block: &'a [u8]) -> &'a [u8] {
        block.get(self.at..self.at + self.stored).unwrap_or(&[])
    }
}

/// How segments are compressed, and with whose memory.
pub(crate) struct Press<'a> {
    pub compressor: &'a mut Compressor,
    pub compression: Compression,
    pub level: i32,
    pub scratch: &'a mut Vec<u8>,
}

/// Appends a block to `out`: its segments, in the order of the directory, and in the end what lies before them.
pub(crate) struct Encoder<'a> {
    pub out: &'a mut Vec<u8>,
    start: usize,
    /// Entry of the directory that is next, and where they end.
    next: usize,
    end: usize,
    raw_bytes: usize,
    features: u32,
}

impl<'a> Encoder<'a> {
    /// Begins a block of so many segments.
    pub(crate) fn new(out: &'a mut Vec<u8>, segments: usize) -> Self {
        let start = out.len();
        let next = start + BLOCK_HEADER_BYTES;
        let end = next + segments * SEGMENT_ENTRY_BYTES;
        out.resize(end, 0);
        Encoder { out, start, next, end, raw_bytes: end - start, features: 0 }
    }

    /// Notes the segment that begins at `at` of `out` and ends it. `raw`: its length before compression.
    pub(crate) fn note(&mut self, kind: (u8, u32), enc: (u8, u32), how: Compression, raw: usize, at: usize) {
        let stored = self.out.len() - at;
        let sum = xxh3_64(&self.out[at..]);
        self.raw_bytes += raw;
        self.features |= features_of(enc.0, enc.1);
        let entry = &mut self.out[self.next..self.next + SEGMENT_ENTRY_BYTES];
        entry[segment_at::KIND] = kind.0;
        entry[segment_at::ENCODING] = enc.0;
        entry[segment_at::COMPRESSION] = how as u8;
        set_u32(entry, segment_at::COLUMN, kind.1);
        set_u32(entry, segment_at::UNIT, enc.1);
        set_u32(entry, segment_at::OFFSET, (at - self.start) as u32);
        set_u32(entry, segment_at::STORED_BYTES, stored as u32);
        set_u32(entry, segment_at::RAW_BYTES, raw as u32);
        set_u64(entry, segment_at::CHECKSUM, sum);
        self.next += SEGMENT_ENTRY_BYTES;
    }

    /// A segment of integers.
    pub(crate) fn ints(&mut self, kind: u8, plan: &IntPlan, values: &[u64]) {
        let at = self.out.len();
        plan.encode(values, self.out);
        let raw = self.out.len() - at;
        self.note((kind, 0), (plan.encoding, u32::from(plan.width)), Compression::None, raw, at);
    }

    /// A bitmap of `rows` bits, in which these are set.
    pub(crate) fn bitmap(&mut self, kind: u8, rows: usize, set: &[u32]) {
        let at = self.out.len();
        self.out.resize(at + rows.div_ceil(8), 0);
        for &i in set {
            self.out[at + i as usize / 8] |= 1 << (i % 8);
        }
        let raw = self.out.len() - at;
        self.note((kind, 0), (encoding::BITMAP, 0), Compression::None, raw, at);
    }

    /// A segment whose content is at hand, compressed if that is shorter.
    pub(crate) fn values(
        &mut self,
        kind: (u8, u32),
        enc: (u8, u32),
        raw: &[u8],
        press: &mut Press<'_>,
    ) -> Result<(), FormatError> {
        let at = self.out.len();
        let how = press.compressor.append(press.compression, press.level, raw, self.out)?;
        self.note(kind, enc, how, raw.len(), at);
        Ok(())
    }

    /// A segment of the `rows` values of a column.
    pub(crate) fn column(
        &mut self,
        kind: (u8, u32),
        column: &ColumnBuffer,
        rows: usize,
        press: &mut Press<'_>,
    ) -> Result<(), FormatError> {
        let enc = column.plan(rows);
        match (enc.0, press.compression) {
            (encoding::VAR, Compression::None) => {
                let at = self.out.len();
                column.append_var(enc.1, self.out)?;
                let raw = self.out.len() - at;
                self.note(kind, enc, Compression::None, raw, at);
                Ok(())
            }
            (encoding::VAR, _) => {
                let mut raw = std::mem::take(press.scratch);
                raw.clear();
                let pressed = column.append_var(enc.1, &mut raw).and_then(|()| self.values(kind, enc, &raw, press));
                *press.scratch = raw;
                pressed
            }
            _ => self.values(kind, enc, column.plain(enc), press),
        }
    }

    /// Writes header and directory. `entry` says the rest; what is its length and where it lies is set here.
    ///
    /// # Panics
    /// When the block is longer than [`MAX_BLOCK_BYTES`], or has other segments than were promised.
    pub(crate) fn finish(self, magic: u32, format: u8, entry: BlockEntry, block_context: u64) -> BlockEntry {
        let stored = self.out.len() - self.start;
        assert!(self.next == self.end, "a block has other segments than were counted");
        assert!(stored.max(self.raw_bytes) <= MAX_BLOCK_BYTES as usize, "a block longer than {MAX_BLOCK_BYTES} bytes");
        let entry = BlockEntry { offset: 0, stored_bytes: stored as u32, raw_bytes: self.raw_bytes as u32, ..entry };
        let segments = (self.end - self.start - BLOCK_HEADER_BYTES) / SEGMENT_ENTRY_BYTES;
        let b = &mut self.out[self.start..self.end];
        set_u32(b, block_at::MAGIC, magic);
        b[block_at::VERSION..block_at::VERSION + 2].copy_from_slice(&BLOCK_VERSION.to_le_bytes());
        b[block_at::FORMAT] = format;
        set_u32(b, block_at::STORED_BYTES, entry.stored_bytes);
        set_u32(b, block_at::ROWS, entry.rows);
        set_u64(b, block_at::FIRST_ID, entry.first_id.0);
        set_u64(b, block_at::LAST_ID, entry.last_id.0);
        set_u64(b, block_at::MIN_SEQ, entry.min_seq.0);
        set_u64(b, block_at::MAX_SEQ, entry.max_seq.0);
        set_u32(b, block_at::TOMBSTONES, entry.tombstones);
        set_u32(b, block_at::SUPERSEDES, entry.supersedes);
        set_u32(b, block_at::RAW_BYTES, entry.raw_bytes);
        set_u32(b, block_at::FLAGS, entry.flags);
        set_u32(b, block_at::REQUIRED, self.features);
        set_u32(b, block_at::SEGMENTS, segments as u32);
        codec::seal(b, block_context);
        entry
    }
}

/// A block's header, checked, and the segments that were not read yet.
pub(crate) struct Head<'a> {
    /// The block, without what follows it.
    pub block: &'a [u8],
    pub format: u8,
    /// What the header says; nothing of offset and ordinals.
    pub entry: BlockEntry,
    directory: std::slice::ChunksExact<'a, u8>,
    /// Where the next segment begins.
    at: usize,
    raw_bytes: u64,
    /// What the segments so far need to be known.
    features: u32,
}

impl<'a> Head<'a> {
    /// Checks header and directory of the block at the start of `all`; segments are checked by [`next`](Self::next).
    pub(crate) fn read(all: &'a [u8], magic: u32, block_context: u64) -> Result<Self, FormatError> {
        codec::need("block", all, BLOCK_HEADER_BYTES)?;
        let found = get_u32(all, block_at::MAGIC);
        if found != magic {
            return invalid("block magic", found.into());
        }
        let stored_bytes = get_u32(all, block_at::STORED_BYTES);
        let end = stored_bytes as usize;
        if end < BLOCK_HEADER_BYTES || stored_bytes > MAX_BLOCK_BYTES {
            return invalid("block length", stored_bytes.into());
        }
        codec::need("block", all, end)?;
        let b = &all[..end];
        let at = BLOCK_HEADER_BYTES as u64 + u64::from(get_u32(b, block_at::SEGMENTS)) * SEGMENT_ENTRY_BYTES as u64;
        let directory = usize::try_from(at).ok().and_then(|at| b.get(..at));
        let Some(sealed) = directory else {
            return Err(FormatError::Truncated { what: "block directory", need: at, have: end as u64 });
        };
        codec::check_seal(sealed, block_context)?;
        codec::check_version("block", get_u16(b, block_at::VERSION).into(), BLOCK_VERSION.into())?;
        codec::check_bits("feature of a block", get_u32(b, block_at::REQUIRED).into(), KNOWN_FEATURES.into())?;
        let encrypted = &b[block_at::KEY_ID..block_at::RESERVED];
        if b[block_at::ZERO] != 0 || encrypted.iter().any(|&b| b != 0) {
            return invalid("block key", get_u32(b, block_at::KEY_ID).into());
        }
        let entry = BlockEntry {
            offset: 0,
            stored_bytes,
            rows: get_u32(b, block_at::ROWS),
            first_id: RowId(get_u64(b, block_at::FIRST_ID)),
            last_id: RowId(get_u64(b, block_at::LAST_ID)),
            min_seq: CommitSeq(get_u64(b, block_at::MIN_SEQ)),
            max_seq: CommitSeq(get_u64(b, block_at::MAX_SEQ)),
            tombstones: get_u32(b, block_at::TOMBSTONES),
            supersedes: get_u32(b, block_at::SUPERSEDES),
            raw_bytes: get_u32(b, block_at::RAW_BYTES),
            flags: get_u32(b, block_at::FLAGS),
            ..BlockEntry::default()
        };
        codec::check_bits("flags of a block", entry.flags.into(), flags::KNOWN.into())?;
        let rows = entry.rows;
        if rows == 0 || rows > MAX_BLOCK_ROWS || entry.tombstones > rows || entry.supersedes > rows {
            return invalid("block rows", rows.into());
        }
        let flag = |flag: u32| entry.flags & flag != 0;
        if entry.min_seq > entry.max_seq
            || flag(flags::SEQ_UNIFORM) != (entry.min_seq == entry.max_seq)
            || flag(flags::SEQ_ZERO) != (entry.max_seq == CommitSeq::ZERO)
        {
            return invalid("block commit sequences", entry.min_seq.0);
        }
        if entry.first_id > entry.last_id {
            return invalid("block row ids", entry.first_id.0);
        }
        let directory = sealed[BLOCK_HEADER_BYTES..].chunks_exact(SEGMENT_ENTRY_BYTES);
        Ok(Head {
            block: b,
            format: b[block_at::FORMAT],
            entry,
            directory,
            at: sealed.len(),
            raw_bytes: at,
            features: 0,
        })
    }

    /// The next segment, which must be of this kind and column; its checksum is right.
    pub(crate) fn next(&mut self, kind: u8, column: u32) -> Result<Segment, FormatError> {
        let (found, segment) = self.next_of_any_kind()?;
        if found != (kind, column) {
            return invalid("block segment kind", u64::from(found.0) << 32 | u64::from(found.1));
        }
        Ok(segment)
    }

    fn next_of_any_kind(&mut self) -> Result<((u8, u32), Segment), FormatError> {
        let Some(entry) = self.directory.next() else {
            return invalid("block segments", 0);
        };
        let (stored, raw) =
            (get_u32(entry, segment_at::STORED_BYTES) as usize, get_u32(entry, segment_at::RAW_BYTES) as usize);
        let compression = Compression::from_u8(entry[segment_at::COMPRESSION])?;
        let have = self.block.len() - self.at;
        if stored > have {
            return Err(FormatError::Truncated { what: "block segment", need: stored as u64, have: have as u64 });
        }
        if raw > MAX_BLOCK_BYTES as usize {
            let (found, max) = (raw as u64, u64::from(MAX_BLOCK_BYTES));
            return Err(FormatError::TooLong { what: "block segment", found, max });
        }
        let plain = compression == Compression::None;
        if (plain && raw != stored) || (!plain && stored >= raw) || entry[segment_at::ZERO] != 0 {
            return invalid("block segment length", stored as u64);
        }
        let offset = get_u32(entry, segment_at::OFFSET);
        if offset as usize != self.at {
            return invalid("block segment offset", offset.into());
        }
        let segment = Segment {
            encoding: entry[segment_at::ENCODING],
            compression,
            unit: get_u32(entry, segment_at::UNIT),
            at: self.at,
            stored,
            raw,
        };
        let (expected, found) = (get_u64(entry, segment_at::CHECKSUM), xxh3_64(segment.bytes(self.block)));
        if expected != found {
            return Err(FormatError::Checksum { expected, found });
        }
        self.at += stored;
        self.raw_bytes += raw as u64;
        self.features |= features_of(segment.encoding, segment.unit);
        Ok(((entry[segment_at::KIND], get_u32(entry, segment_at::COLUMN)), segment))
    }

    /// Every segment was read: they end the block, and their lengths are those of the header.
    pub(crate) fn finish(mut self) -> Result<BlockEntry, FormatError> {
        if self.directory.next().is_some() || self.at != self.block.len() {
            return invalid("block end", self.at as u64);
        }
        if self.raw_bytes != u64::from(self.entry.raw_bytes) || self.raw_bytes > u64::from(MAX_BLOCK_BYTES) {
            return invalid("block length before compression", self.raw_bytes);
        }
        let said = get_u32(self.block, block_at::REQUIRED);
        if said != self.features {
            return invalid("features of a block", said.into());
        }
        Ok(self.entry)
    }
}

/// Makes a block good for another place, without decoding it: one that is copied to another file. `from` and `to` are
/// the contexts (see [`crate::block_context`]) of the two places. With `seq`, rows get this commit sequence; only for
/// blocks that have none of their own ([`flags::SEQ_ZERO`]). The block is checked, and unchanged on error. Gives what it
/// says of itself at the old place, but for offset and keys; its index entry at the new one is [`BlockEntry::moved`].
pub fn reseal(block: &mut [u8], from: u64, to: u64, seq: Option<CommitSeq>) -> Result<BlockEntry, FormatError> {
    let is_keys = block.len() > block_at::MAGIC + 4 && get_u32(block, block_at::MAGIC) == KEY_BLOCK_MAGIC;
    let mut head = Head::read(block, if is_keys { KEY_BLOCK_MAGIC } else { BLOCK_MAGIC }, from)?;
    let sealed = head.at;
    let mut ordinals = None;
    while head.directory.len() > 0 {
        let ((kind, _), segment) = head.next_of_any_kind()?;
        if kind == segment_kind::ORDINALS {
            let ints = super::tags::ints("block ordinals", &segment, &head)?;
            ordinals = Some(ints.range(head.block, head.entry.rows));
        }
    }
    let Some((min_ordinal, max_ordinal)) = ordinals else {
        return invalid("block segment kind", segment_kind::ORDINALS.into());
    };
    let found = BlockEntry { min_ordinal, max_ordinal, ..head.finish()? };
    let entry = found.moved(0, seq)?;
    let b = &mut block[..sealed];
    set_u64(b, block_at::MIN_SEQ, entry.min_seq.0);
    set_u64(b, block_at::MAX_SEQ, entry.max_seq.0);
    set_u32(b, block_at::FLAGS, entry.flags);
    codec::seal(b, to);
    Ok(found)
}

/// An error for a number that cannot be.
pub(crate) fn invalid<T>(what: &'static str, found: u64) -> Result<T, FormatError> {
    Err(FormatError::Invalid { what, found })
}
