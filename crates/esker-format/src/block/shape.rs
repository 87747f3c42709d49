//! Owns the checks of a row block's header and segment directory. Invariant: in a [`Shape`] every segment lies in the
//! block, and its encoding fits its column; what is inside compressed and var segments is checked when they are first used.

use super::head::{invalid, Head, Segment};
use super::ints::Ints;
use super::tags::{self, Tags};
use super::view::ANCHOR_ROWS;
use super::{encoding, flags, segment_kind, BlockEntry, BLOCK_MAGIC};
use crate::compress::{Compression, SLACK_BYTES};
use crate::error::FormatError;
use crate::layout::{Column, ColumnKind, Layout, RowFormat};

/// What header and directory of a block say.
pub(super) struct Shape {
    pub format: RowFormat,
    /// But for offset and ordinals.
    pub entry: BlockEntry,
    pub ids: Ints,
    pub tags: Tags,
}

/// The width that all of a column's values have, if it is one.
fn fixed_width(column: &Column) -> Option<u32> {
    match column.kind {
        ColumnKind::Fixed { width } => Some(width),
        _ => None,
    }
}

impl Shape {
    /// Checks the block at the start of `all`: its checksums and all its bounds. Gives also the segments of values: heads
    /// or images first, then the columns.
    pub(super) fn read(
        all: &[u8],
        layout: &Layout,
        format: RowFormat,
        block_context: u64,
    ) -> Result<(Shape, Vec<Segment>), FormatError> {
        let mut head = Head::read(all, BLOCK_MAGIC, block_context)?;
        if RowFormat::from_u8(head.format)? != format {
            return invalid("block row format", head.format.into());
        }
        let rows = head.entry.rows;
        let segment = head.next(segment_kind::IDS, 0)?;
        let ids = tags::ints("block row ids", &segment, &head)?;
        let tags = Tags::read(&mut head)?;
        let columns = if format == RowFormat::Fixed { &[][..] } else { &layout.columns };
        let mut values = Vec::with_capacity(1 + columns.len());
        let (kind, width) = match format {
            RowFormat::Dynamic => (segment_kind::HEADS, layout.head_bytes),
            RowFormat::Fixed => (segment_kind::IMAGES, layout.image_bytes),
        };
        let heads = head.next(kind, 0)?;
        heads.check_values(rows as usize, Some(width), width)?;
        if format == RowFormat::Fixed && (heads.encoding != encoding::UNIFORM || layout.has_blobs()) {
            return Err(heads.invalid("encoding of block images"));
        }
        values.push(heads);
        for (column, id) in columns.iter().zip(0..) {
            let segment = head.next(segment_kind::COLUMN, id)?;
            segment.check_values(rows as usize, fixed_width(column), column.kind.max_bytes())?;
            values.push(segment);
        }
        let block = head.block;
        let entry = head.finish()?;
        let dense = ids.is_linear() || rows == 1;
        if entry.first_id.0 != ids.get(block, 0)
            || entry.last_id.0 != ids.get(block, rows - 1)
            || dense != (entry.flags & flags::IDS_DENSE != 0)
        {
            return invalid("block row ids", entry.first_id.0);
        }
        Ok((Shape { format, entry, ids, tags }, values))
    }

    /// Memory that the segment's content takes besides the block.
    pub(super) fn content_bytes(&self, segment: &Segment) -> usize {
        match segment.compression {
            Compression::None => 0,
            _ => segment.raw + SLACK_BYTES,
        }
    }

    /// Memory that its anchors take.
    pub(super) fn anchor_bytes(&self, segment: &Segment) -> usize {
        match segment.encoding {
            encoding::VAR => size_of::<u32>() * (self.entry.rows as usize).div_ceil(ANCHOR_ROWS),
            _ => 0,
        }
    }
}
