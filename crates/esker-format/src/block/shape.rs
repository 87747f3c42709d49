//! Owns the checks of a block's header and segment directory. Invariant: in a [`Shape`] every segment lies in the block,
//! and its encoding fits its column; what is inside compressed and var segments is checked when they are first used.

use super::ints::Ints;
use super::view::ANCHOR_ROWS;
use super::{block_at, encoding, flags, segment_at, segment_kind};
use super::{BLOCK_HEADER_BYTES, BLOCK_MAGIC, BLOCK_VERSION, MAX_BLOCK_ROWS, SEGMENT_ENTRY_BYTES};
use crate::codec::{self, get_u16, get_u32, get_u64};
use crate::compress::{Compression, SLACK_BYTES};
use crate::error::FormatError;
use crate::ids::{CommitSeq, RowId};
use crate::layout::{Column, ColumnKind, Layout, RowFormat};
use crate::MAX_BLOCK_BYTES;

/// Where a segment lies in its block, and how it is stored.
#[derive(Debug, Clone, Copy)]
pub(super) struct Segment {
    pub encoding: u8,
    pub compression: Compression,
    pub unit: u32,
    pub at: usize,
    pub stored: usize,
    pub raw: usize,
}

/// What header and directory of a block say.
pub(super) struct Shape {
    pub format: RowFormat,
    pub stored_bytes: u32,
    pub rows: u32,
    pub first_id: RowId,
    pub last_id: RowId,
    pub min_seq: CommitSeq,
    pub max_seq: CommitSeq,
    pub tombstones: u32,
    pub flags: u32,
    pub ids: Ints,
    pub seqs: Ints,
    pub ordinals: Ints,
    /// Where the tombstone bitmap lies, if there is one.
    pub bitmap: Option<usize>,
}

/// Reads an entry of the segment directory; the segment begins at `at` of a block of `end` bytes.
fn read_segment(entry: &[u8], at: usize, end: usize) -> Result<Segment, FormatError> {
    let (stored, raw) =
        (get_u32(entry, segment_at::STORED_BYTES) as usize, get_u32(entry, segment_at::RAW_BYTES) as usize);
    let compression = Compression::from_u8(entry[segment_at::COMPRESSION])?;
    if stored > end - at {
        let (need, have) = (stored as u64, (end - at) as u64);
        return Err(FormatError::Truncated { what: "block segment", need, have });
    }
    if raw > MAX_BLOCK_BYTES as usize {
        return Err(FormatError::TooLong { what: "block segment", found: raw as u64, max: u64::from(MAX_BLOCK_BYTES) });
    }
    let plain = compression == Compression::None;
    if (plain && raw != stored) || (!plain && stored >= raw) || entry[segment_at::ZERO] != 0 {
        return Err(FormatError::Invalid { what: "block segment length", found: stored as u64 });
    }
    Ok(Segment {
        encoding: entry[segment_at::ENCODING],
        compression,
        unit: get_u32(entry, segment_at::UNIT),
        at,
        stored,
        raw,
    })
}

impl Segment {
    /// The error for a segment that cannot be.
    fn invalid(&self, what: &'static str) -> FormatError {
        FormatError::Invalid { what, found: u64::from(self.encoding) << 32 | u64::from(self.unit) }
    }

    /// Checks a segment of values: `width` is what every value must have, `max` the longest that may be.
    fn check_values(&self, rows: usize, width: Option<u32>, max: u32) -> Result<(), FormatError> {
        let unit = self.unit as usize;
        let fits = |unit: u32| width.map_or(unit <= max, |w| unit == w);
        let good = match self.encoding {
            encoding::EMPTY => unit == 0 && self.raw == 0 && fits(0),
            encoding::CONSTANT => fits(self.unit) && self.raw == unit,
            encoding::UNIFORM => fits(self.unit) && rows.checked_mul(unit) == Some(self.raw),
            encoding::VAR => width.is_none() && matches!(unit, 1 | 2 | 4) && self.raw >= rows * unit,
            _ => false,
        };
        if good {
            Ok(())
        } else {
            Err(self.invalid("encoding of block values"))
        }
    }

    /// An integer segment: never compressed.
    fn ints(&self, what: &'static str, block: &[u8], rows: u32) -> Result<Ints, FormatError> {
        if self.compression != Compression::None {
            return Err(self.invalid(what));
        }
        Ints::open(what, self.encoding, self.unit, &block[self.at..self.at + self.stored], self.at, rows)
    }
}

/// The width that all of a column's values have, if it is one.
fn fixed_width(column: &Column) -> Option<u32> {
    match column.kind {
        ColumnKind::Fixed { width } => Some(width),
        _ => None,
    }
}

/// An error for a number that cannot be.
fn invalid<T>(what: &'static str, found: u64) -> Result<T, FormatError> {
    Err(FormatError::Invalid { what, found })
}

impl Shape {
    /// Checks the block at the start of `all`: its checksum and all its bounds. Gives also the segments of values: heads
    /// or images first, then the columns.
    pub(super) fn read(
        all: &[u8],
        layout: &Layout,
        format: RowFormat,
        block_context: u64,
    ) -> Result<(Shape, Vec<Segment>), FormatError> {
        codec::need("block", all, BLOCK_HEADER_BYTES)?;
        let magic = get_u32(all, block_at::MAGIC);
        if magic != BLOCK_MAGIC {
            return invalid("block magic", u64::from(magic));
        }
        let stored_bytes = get_u32(all, block_at::STORED_BYTES);
        let end = stored_bytes as usize;
        if end < BLOCK_HEADER_BYTES || stored_bytes > MAX_BLOCK_BYTES {
            return invalid("block length", u64::from(stored_bytes));
        }
        codec::need("block", all, end)?;
        let b = &all[..end];
        codec::check_seal(b, block_context)?;
        codec::check_version("block", get_u16(b, block_at::VERSION).into(), BLOCK_VERSION.into())?;
        if RowFormat::from_u8(b[block_at::FORMAT])? != format || b[block_at::ZERO] != 0 {
            return invalid("block row format", u64::from(b[block_at::FORMAT]));
        }
        let rows = get_u32(b, block_at::ROWS);
        let tombstones = get_u32(b, block_at::TOMBSTONES);
        if rows == 0 || rows > MAX_BLOCK_ROWS || tombstones > rows {
            return invalid("block rows", u64::from(rows));
        }
        let columns = if format == RowFormat::Fixed { &[][..] } else { &layout.columns };
        let segments = get_u32(b, block_at::SEGMENTS);
        if segments as usize != 5 + columns.len() {
            return invalid("block segments", u64::from(segments));
        }
        let mut at = BLOCK_HEADER_BYTES + segments as usize * SEGMENT_ENTRY_BYTES;
        codec::need("block directory", b, at)?;
        let directory = &b[BLOCK_HEADER_BYTES..at];
        let mut raw_bytes = at as u64;
        let mut entries = directory.chunks_exact(SEGMENT_ENTRY_BYTES);
        let mut next = |kind: u8| {
            let Some(entry) = entries.next() else {
                return invalid("block segments", u64::from(kind));
            };
            if entry[segment_at::KIND] != kind {
                return invalid("block segment kind", u64::from(entry[segment_at::KIND]));
            }
            let segment = read_segment(entry, at, end)?;
            at += segment.stored;
            raw_bytes += segment.raw as u64;
            Ok(segment)
        };

        let ids = next(segment_kind::IDS)?.ints("block row ids", b, rows)?;
        let seqs = next(segment_kind::SEQS)?.ints("block commit sequences", b, rows)?;
        let ordinals = next(segment_kind::ORDINALS)?.ints("block ordinals", b, rows)?;
        let marks = next(segment_kind::TOMBSTONES)?;
        let bitmap = match (marks.encoding, tombstones) {
            (encoding::EMPTY, 0) if marks.stored == 0 => None,
            (encoding::BITMAP, 1..)
                if marks.stored == rows.div_ceil(8) as usize && marks.compression == Compression::None =>
            {
                Some(marks.at)
            }
            _ => return Err(marks.invalid("block tombstones")),
        };
        let mut values = Vec::with_capacity(1 + columns.len());
        let (kind, width) = match format {
            RowFormat::Dynamic => (segment_kind::HEADS, layout.head_bytes),
            RowFormat::Fixed => (segment_kind::IMAGES, layout.image_bytes),
        };
        let heads = next(kind)?;
        heads.check_values(rows as usize, Some(width), width)?;
        if format == RowFormat::Fixed && (heads.encoding != encoding::UNIFORM || layout.has_blobs()) {
            return Err(heads.invalid("encoding of block images"));
        }
        values.push(heads);
        for column in columns {
            let segment = next(segment_kind::COLUMN)?;
            let max = column.kind.max_bytes();
            segment.check_values(rows as usize, fixed_width(column), max)?;
            values.push(segment);
        }
        if at != end {
            return invalid("block end", at as u64);
        }
        if raw_bytes != u64::from(get_u32(b, block_at::RAW_BYTES)) || raw_bytes > u64::from(MAX_BLOCK_BYTES) {
            return invalid("block length before compression", raw_bytes);
        }
        let block_flags = get_u32(b, block_at::FLAGS);
        let (min_seq, max_seq) = (get_u64(b, block_at::MIN_SEQ), get_u64(b, block_at::MAX_SEQ));
        let (first_id, last_id) = (get_u64(b, block_at::FIRST_ID), get_u64(b, block_at::LAST_ID));
        let dense = ids.is_linear() || rows == 1;
        if first_id != ids.get(b, 0)
            || last_id != ids.get(b, rows - 1)
            || first_id > last_id
            || dense != (block_flags & flags::IDS_DENSE != 0)
        {
            return invalid("block row ids", first_id);
        }
        let uniform = min_seq == max_seq;
        if min_seq > max_seq
            || (seqs.is_constant() && seqs.get(b, 0) != min_seq)
            || seqs.is_constant() != uniform
            || uniform != (block_flags & flags::SEQ_UNIFORM != 0)
        {
            return invalid("block commit sequences", min_seq);
        }
        let shape = Shape {
            format,
            stored_bytes,
            rows,
            first_id: RowId(first_id),
            last_id: RowId(last_id),
            min_seq: CommitSeq(min_seq),
            max_seq: CommitSeq(max_seq),
            tombstones,
            flags: block_flags,
            ids,
            seqs,
            ordinals,
            bitmap,
        };
        Ok((shape, values))
    }

    /// Memory that the opened segment takes at most, besides the block.
    pub(super) fn opened_bytes(&self, segment: &Segment) -> usize {
        let mut bytes = 0;
        if segment.compression != Compression::None {
            bytes += segment.raw + SLACK_BYTES;
        }
        if segment.encoding == encoding::VAR {
            bytes += size_of::<u32>() * (self.rows as usize).div_ceil(ANCHOR_ROWS);
        }
        bytes
    }
}
