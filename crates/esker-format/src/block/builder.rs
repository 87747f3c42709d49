//! Owns the making of row blocks. Invariants: rows come in order of row id; what [`RowBlockBuilder::finish`] writes,
//! [`super::RowBlock`] reads; a builder is empty and reusable after it, with its buffers' memory.

use super::columns::{copy_chunks, same_values, ColumnBuffer};
use super::head::{Encoder, Press};
use super::ints::IntPlan;
use super::tags::TagBuffer;
use super::{encoding, flags, segment_kind, BlockEntry, VersionTag};
use super::{BLOCK_HEADER_BYTES, BLOCK_MAGIC, MAX_BLOCK_ROWS, SEGMENT_ENTRY_BYTES};
use crate::codec::grow;
use crate::compress::{Compression, Compressor};
use crate::error::FormatError;
use crate::ids::RowId;
use crate::image::{self, is_null};
use crate::layout::{ColumnKind, Layout, RowFormat};
use crate::row::{split_head, take_value};
use std::sync::Arc;

/// Rows longer than this are no longer bounded by what a block is to be: there may be no memory for them.
const LONG_BYTES: usize = 64 << 10;

/// Gathers rows, a column at a time, and encodes them as a block.
pub struct RowBlockBuilder {
    layout: Arc<Layout>,
    format: RowFormat,
    columns: Vec<ColumnBuffer>,
    /// Head bytes of all rows; in the fixed format, images.
    heads: Vec<u8>,
    /// Bytes of a row in `heads`.
    head_bytes: usize,
    ids: Vec<u64>,
    tags: TagBuffer,
    /// Rows for which all vectors have room.
    row_room: usize,
    raw_bytes: usize,
    /// Stored bytes of a row besides its values: head and lengths.
    row_overhead: usize,
    compressor: Compressor,
    scratch: Vec<u8>,
    /// Spans of a packed row's values, while it is taken apart.
    spans: Vec<Option<(usize, usize)>>,
}

impl RowBlockBuilder {
    /// An empty builder. The layout is validated.
    ///
    /// # Panics
    /// When the format is fixed and the layout has blobs: table definitions are checked before they get here.
    #[must_use]
    pub fn new(layout: Arc<Layout>, format: RowFormat) -> Self {
        let fixed = format == RowFormat::Fixed;
        let columns: Vec<_> = if fixed {
            assert!(!layout.has_blobs(), "blobs in the fixed row format");
            Vec::new()
        } else {
            layout.columns.iter().map(|&c| ColumnBuffer::new(c)).collect()
        };
        let head_bytes = if fixed { layout.image_bytes } else { layout.head_bytes } as usize;
        let lens = |c: &ColumnBuffer| c.column.kind.packed_len_bytes();
        RowBlockBuilder {
            row_overhead: head_bytes + columns.iter().map(lens).sum::<usize>(),
            layout,
            format,
            columns,
            heads: Vec::new(),
            head_bytes,
            ids: Vec::new(),
            tags: TagBuffer::default(),
            row_room: 0,
            raw_bytes: 0,
            compressor: Compressor::default(),
            scratch: Vec::new(),
            spans: Vec::new(),
        }
    }

    /// Adds an inserted row. The commit sequence is zero: that of the run.
    ///
    /// # Panics
    /// When `id` is less than the last one.
    ///
    /// # Safety
    /// `image` points to an image of the layout, readable for `image_bytes` bytes, initialised where values are (in the
    /// fixed format: everywhere but behind var values and in NULL columns); blob pointers are valid for their lengths, and its packed form is at most [`crate::MAX_ROW_BYTES`] long.
    pub unsafe fn push_image(&mut self, id: RowId, ordinal: u64, image: *const u8) {
        self.push_row(id, VersionTag { ordinal, ..VersionTag::default() });
        let mut bytes = self.row_overhead;
        // SAFETY: the caller's promise; `push_row` made room for a row in every vector.
        unsafe {
            let at = self.heads.len();
            copy_chunks(image, self.heads.as_mut_ptr().add(at), self.head_bytes);
            self.heads.set_len(at + self.head_bytes);
            for column in &mut self.columns {
                bytes += column.push_image(image);
            }
            if self.format == RowFormat::Fixed {
                clean_image(&self.layout, self.heads.as_mut_ptr().add(at));
            }
        }
        self.raw_bytes += bytes;
    }

    /// The ids of what was added, in order.
    #[must_use]
    pub fn ids(&self) -> &[u64] {
        &self.ids
    }

    /// Adds a version of a row; `packed` is ignored for tombstones. On error nothing was added.
    pub fn push_packed(&mut self, id: RowId, tag: VersionTag, packed: &[u8]) -> Result<(), FormatError> {
        if let Some(last) = self.last_id() {
            if id < last {
                return Err(FormatError::Invalid { what: "order of row ids", found: id.0 });
            }
        }
        let mut bytes = self.row_overhead;
        if tag.tombstone {
            self.push_row(id, tag);
            self.heads.resize(self.heads.len() + self.head_bytes, 0);
            for column in &mut self.columns {
                bytes += column.push_value(None);
            }
            self.raw_bytes += bytes;
            return Ok(());
        }
        let (head, values) = split_head(&self.layout, packed)?;
        let mut rest = values;
        self.spans.clear();
        for column in &self.layout.columns {
            let value = take_value(column, head, &mut rest)?;
            let end = packed.len() - rest.len();
            self.spans.push(value.map(|v| (end - v.len(), end)));
        }
        if !rest.is_empty() {
            return Err(FormatError::Invalid { what: "end of a packed row", found: rest.len() as u64 });
        }
        if packed.len() > LONG_BYTES {
            for (column, span) in self.columns.iter_mut().zip(&self.spans) {
                column.make_room(span.map_or(0, |(a, b)| b - a))?;
            }
        }
        self.push_row(id, tag);
        if self.format == RowFormat::Fixed {
            let at = self.heads.len();
            self.heads.resize(at + self.head_bytes, 0);
            self.heads[at..at + head.len()].copy_from_slice(head);
            for (column, span) in self.layout.columns.iter().zip(&self.spans) {
                let value = span.map_or(&[][..], |(a, b)| &packed[a..b]);
                // SAFETY: the image was just made, and take_value bounds the value.
                unsafe { image::put_value(column, self.heads.as_mut_ptr().add(at), value) };
            }
        } else {
            self.heads.extend_from_slice(head);
            for (column, span) in self.columns.iter_mut().zip(&self.spans) {
                bytes += column.push_value(span.map(|(a, b)| &packed[a..b]));
            }
        }
        self.raw_bytes += bytes;
        Ok(())
    }

    /// Adds the row's identity and tag, and makes room for its head and ends.
    #[inline(always)]
    fn push_row(&mut self, id: RowId, tag: VersionTag) {
        let row = self.ids.len();
        assert!(row == 0 || self.ids[row - 1] <= id.0, "row ids fall within a block");
        if row == self.row_room {
            self.grow_rows();
        }
        self.ids.push(id.0);
        self.tags.push(tag);
    }

    /// Makes room for more rows in every vector.
    #[cold]
    #[inline(never)]
    fn grow_rows(&mut self) {
        let rows = self.ids.len();
        assert!(rows < MAX_BLOCK_ROWS as usize, "too many rows in a block");
        let by_head = (1 << 20) / self.head_bytes.max(1);
        let more = rows.clamp(64, 4096).min(by_head.max(1));
        self.row_room = rows + more;
        self.ids.reserve(more);
        self.tags.reserve(more);
        self.heads.reserve(more * self.head_bytes);
        for column in &mut self.columns {
            column.reserve_rows(more);
        }
    }

    /// How many rows are gathered.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.ids.len()
    }

    /// Is no row gathered?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// About how long the block will be before compression.
    #[inline]
    #[must_use]
    pub fn raw_bytes(&self) -> usize {
        self.raw_bytes
    }

    /// The greatest row id gathered.
    #[must_use]
    pub fn last_id(&self) -> Option<RowId> {
        self.ids.last().copied().map(RowId)
    }

    /// Forgets the rows and keeps the memory.
    pub fn clear(&mut self) {
        self.ids.clear();
        self.tags.clear();
        self.heads.clear();
        self.columns.iter_mut().for_each(ColumnBuffer::clear);
        self.raw_bytes = 0;
    }

    /// Appends the gathered rows to `out` as a block and forgets them. The block's checksum is good only with the same
    /// context (see [`crate::block_context`]). The entry's offset is left to the caller. Without memory for the block the rows stay,
    /// and what was appended is no block.
    ///
    /// # Panics
    /// When no row is gathered, or more than [`crate::MAX_BLOCK_BYTES`].
    pub fn finish(
        &mut self,
        compression: Compression,
        zstd_level: i32,
        block_context: u64,
        out: &mut Vec<u8>,
    ) -> Result<BlockEntry, FormatError> {
        let rows = self.ids.len();
        assert!(rows > 0, "an empty block");
        let (ids, tags) = (IntPlan::of(&self.ids), self.tags.plan());
        let segments = 2 + self.tags.segments(&tags) + self.columns.len();
        grow(out, self.raw_bytes + self.raw_bytes / 8 + BLOCK_HEADER_BYTES + segments * SEGMENT_ENTRY_BYTES)?;
        let mut block = Encoder::new(out, segments);
        block.ints(segment_kind::IDS, &ids, &self.ids);
        self.tags.encode(&tags, &mut block);
        let (kind, enc) = match self.format {
            RowFormat::Dynamic if self.heads.is_empty() => (segment_kind::HEADS, encoding::EMPTY),
            RowFormat::Dynamic => (segment_kind::HEADS, same_values(&self.heads, self.head_bytes)),
            RowFormat::Fixed => (segment_kind::IMAGES, encoding::UNIFORM),
        };
        let heads = if enc == encoding::CONSTANT { &self.heads[..self.head_bytes] } else { &self.heads };
        let unit = if enc == encoding::EMPTY { 0 } else { self.head_bytes as u32 };
        let mut press =
            Press { compressor: &mut self.compressor, compression, level: zstd_level, scratch: &mut self.scratch };
        block.values((kind, 0), (enc, unit), heads, &mut press)?;
        for (column, id) in self.columns.iter().zip(0..) {
            block.column((segment_kind::COLUMN, id), column, rows, &mut press)?;
        }
        let mut entry = self.tags.entry(&tags);
        (entry.first_id, entry.last_id) = (RowId(ids.min), RowId(ids.max));
        if ids.is_dense(rows) {
            entry.flags |= flags::IDS_DENSE;
        }
        if ids.is_dense(rows) || self.ids.windows(2).all(|w| w[0] != w[1]) {
            entry.flags |= flags::IDS_UNIQUE;
        }
        let entry = block.finish(BLOCK_MAGIC, self.format as u8, entry, block_context);
        self.scratch.clear();
        if self.scratch.capacity() > 8 << 20 {
            self.scratch = Vec::new();
        }
        self.clear();
        Ok(entry)
    }
}

/// Makes an image that was copied from a front end canonical: zeros behind var values, NULL columns as they decode.
///
/// # Safety
/// `image` points to a writable image of the layout, which is validated.
unsafe fn clean_image(layout: &Layout, image: *mut u8) {
    for column in &layout.columns {
        // SAFETY: a validated column's slot lies in the image.
        unsafe {
            if is_null(column, image) {
                image::put_value(column, image, &[]);
            }
            if let ColumnKind::Var { len_bytes, max } = column.kind {
                let slot = image.add(column.offset as usize);
                let len = image::load_len(slot, len_bytes).min(max as usize);
                image::store_len(slot, len_bytes, len);
                std::ptr::write_bytes(slot.add(usize::from(len_bytes) + len), 0, max as usize - len);
            }
        }
    }
}
