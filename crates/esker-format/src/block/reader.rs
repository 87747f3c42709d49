//! Owns the reading of row blocks. Invariants: [`RowBlock::open`] checks the checksum and every bound; a column is
//! decompressed and its lengths are checked when it is first used, once; nothing changes afterwards, so that any number
//! of threads read one block.
//!
//! The stored bytes come from outside through `AsRef`, which safe code may implement so that it gives other bytes each
//! time; so may the rooms, for what is decompressed. So the decode loops check places again where a wrong one would reach outside;
//! they do not trust `open`.

use super::bytes::{room, BlockBytes};
use super::decode::{self, Target};
use super::head::Segment;
use super::plain::Plain;
use super::shape::Shape;
use super::view::{check_images, View};
use super::{block_at, encoding, flags, BlockEntry, VersionTag};
use crate::codec::get_u32;
use crate::compress::{decompress, Compression, SLACK_BYTES};
use crate::error::FormatError;
use crate::ids::{CommitSeq, RowId};
use crate::image::is_null_in;
use crate::layout::{Layout, RowFormat};
use crate::mask::ColumnMask;
use crate::prefetch::prefetch_all;
use std::ops::{Deref, Range};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// From so many columns of one row on it pays to ask for all of them before the first is read.
const MANY_COLUMNS: usize = 2;
/// Of a row that was found so many columns are asked for before it is known which of them are wanted.
const FIRST_COLUMNS: usize = 8;

/// What is made when a segment is first used.
struct Opened<R> {
    /// The content, when it had to be decompressed.
    content: Option<R>,
    /// For `VAR`: where every [`ANCHOR_ROWS`]th row's value begins, counted from the first.
    anchors: Vec<u32>,
}

impl<R: Deref<Target = [u8]>> Opened<R> {
    /// Of what is stored what is read.
    #[inline]
    fn view<'a>(&'a self, stored: View<'a>) -> View<'a> {
        let bytes = self.content.as_deref().unwrap_or(stored.bytes);
        View { bytes, anchors: &self.anchors, ..stored }
    }
}

/// A segment of values: heads, images or a column.
struct Values<R> {
    segment: Segment,
    opened: OnceLock<Opened<R>>,
}

/// A row block, open for reading. `B` owns the stored bytes; blob slots of decoded images point into it or into what
/// the block has decompressed, so they are good as long as the block lives and the bytes of `B` and its rooms stay where they are.
pub struct RowBlock<B: BlockBytes> {
    bytes: B,
    layout: Arc<Layout>,
    shape: Shape,
    /// Heads or images first, then the columns.
    values: Box<[Values<B::Room>]>,
    plain: Plain,
    /// Who has it makes a segment ready: no two threads take room for one.
    opening: Mutex<()>,
}

impl<B: BlockBytes> RowBlock<B> {
    /// Opens a block: checks its checksum with the context that it was written with, and all its bounds. What follows
    /// the block in `bytes` is ignored.
    pub fn open(bytes: B, layout: &Arc<Layout>, format: RowFormat, block_context: u64) -> Result<Self, FormatError> {
        let (shape, segments) = Shape::read(bytes.as_ref(), layout, format, block_context)?;
        let (mut rooms, mut others) = (0, size_of::<Self>());
        let open = |segment: Segment| {
            rooms += shape.content_bytes(&segment);
            others += size_of::<Values<B::Room>>() + shape.anchor_bytes(&segment);
            Values { segment, opened: OnceLock::new() }
        };
        let values = segments.into_iter().map(open).collect();
        let mut block = RowBlock {
            plain: Plain::all(shape.entry.rows),
            bytes,
            layout: Arc::clone(layout),
            shape,
            values,
            opening: Mutex::new(()),
        };
        if !block.ids_unique() || block.has_tombstones() {
            let (ids, tags, bytes) = (&block.shape.ids, &block.shape.tags, block.block());
            let same = |i| !block.ids_unique() && ids.get(bytes, i - 1) == ids.get(bytes, i);
            block.plain = Plain::of(block.rows(), |i| tags.is_tombstone(bytes, i), same);
            others += Plain::memory_bytes(block.rows(), true);
        }
        block.bytes.note_memory(rooms, others);
        Ok(block)
    }

    /// What holds its stored bytes.
    pub fn bytes(&self) -> &B {
        &self.bytes
    }

    /// The stored bytes of the block.
    pub(super) fn block(&self) -> &[u8] {
        let all = self.bytes.as_ref();
        &all[..(self.shape.entry.stored_bytes as usize).min(all.len())]
    }

    pub(super) fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    pub(super) fn format(&self) -> RowFormat {
        self.shape.format
    }

    /// How many segments it has.
    pub(super) fn segments(&self) -> usize {
        get_u32(self.block(), block_at::SEGMENTS) as usize
    }

    /// The content of each segment of values, where it has been decompressed.
    pub(super) fn opened_contents(&self) -> impl Iterator<Item = Option<&B::Room>> {
        self.values.iter().map(|values| values.opened.get().and_then(|opened| opened.content.as_ref()))
    }

    /// What its head says of it; nothing of offset and ordinals.
    #[must_use]
    pub fn entry(&self) -> &BlockEntry {
        &self.shape.entry
    }

    /// How many row versions it holds, tombstones included.
    #[must_use]
    pub fn rows(&self) -> u32 {
        self.shape.entry.rows
    }

    /// The row id of row `i`. Panics when there is no such row.
    #[must_use]
    pub fn row_id(&self, i: u32) -> RowId {
        assert!(i < self.shape.entry.rows, "no such row in the block");
        RowId(self.shape.ids.get(self.block(), i))
    }

    /// The first row whose id is `id` or greater; [`Self::rows`] when there is none.
    #[must_use]
    pub fn lower_bound(&self, id: RowId) -> u32 {
        if id <= self.shape.entry.first_id {
            return 0;
        }
        if id > self.shape.entry.last_id {
            return self.shape.entry.rows;
        }
        if self.ids_dense() {
            return (id.0 - self.shape.entry.first_id.0) as u32;
        }
        self.search(id, 0..self.shape.entry.rows)
    }

    /// The same where all rows before `from` have lesser ids, and the one that is sought is likely to be near.
    #[must_use]
    pub fn lower_bound_from(&self, from: u32, id: RowId) -> u32 {
        let rows = self.shape.entry.rows;
        if self.ids_dense() || id > self.shape.entry.last_id {
            return self.lower_bound(id);
        }
        let block = self.block();
        let (mut low, mut step) = (from, 1);
        loop {
            let at = low.saturating_add(step - 1);
            if at >= rows {
                return self.search(id, low..rows);
            }
            if self.shape.ids.get(block, at) >= id.0 {
                return self.search(id, low..at);
            }
            (low, step) = (at + 1, step.saturating_mul(2));
        }
    }

    /// The first of these rows whose id is `id` or greater, or their end.
    fn search(&self, id: RowId, rows: Range<u32>) -> u32 {
        let block = self.block();
        let (mut low, mut high) = (rows.start, rows.end);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.shape.ids.get(block, middle) < id.0 {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Which version row `i` is. Panics when there is no such row.
    #[must_use]
    pub fn tag(&self, i: u32) -> VersionTag {
        assert!(i < self.shape.entry.rows, "no such row in the block");
        self.shape.tags.get(self.block(), i)
    }

    /// Is any row a tombstone?
    #[must_use]
    pub fn has_tombstones(&self) -> bool {
        self.shape.tags.has_tombstones()
    }

    /// Behind the rows that stand together from `at` on and are plain: no tombstones, each the only one of its id. `at` itself
    /// if that is none.
    #[inline]
    #[must_use]
    pub fn plain_until(&self, at: u32) -> u32 {
        self.plain.until(at)
    }

    /// The least commit sequence.
    #[must_use]
    pub fn min_seq(&self) -> CommitSeq {
        self.shape.entry.min_seq
    }

    /// The greatest commit sequence.
    #[must_use]
    pub fn max_seq(&self) -> CommitSeq {
        self.shape.entry.max_seq
    }

    /// The least row id.
    #[must_use]
    pub fn first_id(&self) -> RowId {
        self.shape.entry.first_id
    }

    /// The greatest row id.
    #[must_use]
    pub fn last_id(&self) -> RowId {
        self.shape.entry.last_id
    }

    /// Does no row id occur twice?
    #[must_use]
    pub fn ids_unique(&self) -> bool {
        self.shape.entry.flags & flags::IDS_UNIQUE != 0
    }

    /// Do row ids rise by one from row to row?
    #[must_use]
    pub fn ids_dense(&self) -> bool {
        self.shape.entry.flags & flags::IDS_DENSE != 0
    }

    /// Copies the row ids of `rows` to the front of `out`. Panics when the block or `out` has fewer.
    pub fn copy_ids(&self, rows: Range<u32>, out: &mut [RowId]) {
        self.check_range(&rows);
        let block = self.block();
        let out = &mut out[..rows.len()];
        if self.ids_dense() {
            let first = self.shape.entry.first_id.0.wrapping_add(u64::from(rows.start));
            for (slot, i) in out.iter_mut().zip(0..) {
                *slot = RowId(first.wrapping_add(i));
            }
        } else {
            out.iter_mut().zip(rows).for_each(|(slot, i)| *slot = RowId(self.shape.ids.get(block, i)));
        }
    }

    /// Rows beyond the block are broken logic.
    fn check_range(&self, rows: &Range<u32>) {
        assert!(rows.start <= rows.end && rows.end <= self.shape.entry.rows, "no such rows in the block");
    }

    /// The content of a segment of values (0: heads or images; 1..: columns), made ready if this is its first use.
    #[inline]
    fn view(&self, which: usize) -> Result<View<'_>, FormatError> {
        let stored = self.stored(which);
        if self.is_read_in_place(which) {
            return Ok(stored);
        }
        let ready = match self.values[which].opened.get() {
            Some(ready) => ready,
            None => self.open_segment(which, stored)?,
        };
        Ok(ready.view(stored))
    }

    /// The same, if it is ready.
    #[inline]
    fn view_if_ready(&self, which: usize) -> Option<View<'_>> {
        let stored = self.stored(which);
        if self.is_read_in_place(which) {
            return Some(stored);
        }
        Some(self.values[which].opened.get()?.view(stored))
    }

    /// A segment as it is stored.
    #[inline]
    fn stored(&self, which: usize) -> View<'_> {
        let segment = &self.values[which].segment;
        View {
            encoding: segment.encoding,
            unit: segment.unit as usize,
            rows: self.shape.entry.rows as usize,
            bytes: self.block().get(segment.at..).unwrap_or(&[]),
            raw: segment.raw,
            anchors: &[],
        }
    }

    #[inline]
    fn is_read_in_place(&self, which: usize) -> bool {
        let segment = &self.values[which].segment;
        let images = which == 0 && self.shape.format == RowFormat::Fixed;
        segment.compression == Compression::None && segment.encoding != encoding::VAR && !images
    }

    /// Makes a segment ready, unless somebody else has done so meanwhile.
    #[cold]
    fn open_segment(&self, which: usize, stored: View<'_>) -> Result<&Opened<B::Room>, FormatError> {
        let _alone = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        let opened = &self.values[which].opened;
        if let Some(ready) = opened.get() {
            return Ok(ready);
        }
        let made = self.make_ready(which, stored)?;
        Ok(opened.get_or_init(|| made))
    }

    /// Decompresses a segment and checks what is in it.
    fn make_ready(&self, which: usize, stored: View<'_>) -> Result<Opened<B::Room>, FormatError> {
        let segment = &self.values[which].segment;
        let content = match segment.compression {
            Compression::None => None,
            kind => {
                let bytes = stored.bytes.get(..segment.stored).unwrap_or(&[]);
                let mut content = room(&self.bytes, segment.raw + SLACK_BYTES)?;
                decompress(kind, bytes, &mut content)?;
                Some(content)
            }
        };
        let view = View { bytes: content.as_deref().unwrap_or(stored.bytes), ..stored };
        let mut anchors = Vec::new();
        if segment.encoding == encoding::VAR {
            let max = self.layout.columns[which - 1].kind.max_bytes();
            anchors = view.make_anchors(max)?;
        } else if which == 0 && self.shape.format == RowFormat::Fixed {
            check_images(&self.layout, view.content())?;
        }
        Ok(Opened { content, anchors })
    }

    /// A hint: row `i` will be decoded soon. Brings its tag and the columns of `mask` into the processor's cache, of columns whose
    /// values have lengths only these: the values are for [`prefetch_values`](Self::prefetch_values).
    #[inline]
    pub fn prefetch(&self, i: u32, mask: &ColumnMask) {
        self.shape.ids.prefetch(self.block(), i);
        self.shape.tags.prefetch(self.block(), i);
        self.each_view(mask, |view| view.prefetch(i as usize));
    }

    /// A hint, before a search in the block: brings the block's own fields, which are all that a search begins with, into the processor's
    /// cache.
    #[inline]
    pub fn prefetch_head(&self) {
        prefetch_all(self);
    }

    /// A hint, once a search has come to row `i`: brings its tag and its first columns into the processor's cache. Unlike
    /// [`prefetch`](Self::prefetch) it decompresses nothing: columns that nobody has read yet are left out.
    #[inline]
    pub fn prefetch_found(&self, i: u32) {
        let first = &self.values[..self.values.len().min(1 + FIRST_COLUMNS)];
        prefetch_all(first);
        self.shape.tags.prefetch(self.block(), i);
        let views = (0..first.len()).filter_map(|which| self.view_if_ready(which));
        views.for_each(|view| view.prefetch(i as usize));
    }

    /// A hint, before [`prefetch`](Self::prefetch): brings what the block says of these columns.
    pub fn prefetch_columns(&self, mask: &ColumnMask) {
        self.segments_of(mask).filter_map(|which| self.values.get(which)).for_each(prefetch_all);
    }

    /// A hint, a while after [`prefetch`](Self::prefetch): brings the values of row `i` in whose places its lengths tell.
    #[inline]
    pub fn prefetch_values(&self, i: u32, mask: &ColumnMask) {
        self.each_view(mask, |view| view.prefetch_value(i as usize));
    }

    /// Calls `f` for the heads and the columns of `mask`, or the images.
    #[inline]
    fn each_view(&self, mask: &ColumnMask, f: impl Fn(View<'_>)) {
        // What cannot be read is found out by who reads it.
        self.segments_of(mask).filter_map(|which| self.view(which).ok()).for_each(f);
    }

    /// Those of the heads and the columns of `mask`, or of the images.
    #[inline]
    fn segments_of<'m>(&self, mask: &'m ColumnMask) -> impl Iterator<Item = usize> + use<'m, B> {
        let columns = if self.shape.format == RowFormat::Fixed { 0 } else { mask.end().min(self.layout.columns.len()) };
        let masked = (0..columns).filter(|column| mask.get(*column)).map(|column| column + 1);
        std::iter::once(0).chain(masked)
    }

    /// Decodes `rows` into images at `out`, `out + stride`, ...: the head bytes and the columns of `mask`; other bytes
    /// of the images are left alone. Blob slots point into this block. Panics when the block has no such rows.
    ///
    /// # Safety
    /// `out` is writable for `image_bytes` bytes at every multiple of `stride` for the rows asked; `stride` is at least
    /// `image_bytes`, forward or backward. The memory is initialised, or is not read where this function did not write.
    pub unsafe fn decode_images(
        &self,
        rows: Range<u32>,
        mask: &ColumnMask,
        out: *mut u8,
        stride: isize,
    ) -> Result<(), FormatError> {
        self.check_range(&rows);
        debug_assert!(stride.unsigned_abs() >= self.layout.image_bytes as usize);
        if rows.is_empty() {
            return Ok(());
        }
        if rows.len() == 1 && self.shape.format != RowFormat::Fixed && mask.count() >= MANY_COLUMNS {
            // Its columns lie apart: each would be waited for alone.
            self.each_view(mask, |view| view.prefetch(rows.start as usize));
            self.prefetch_values(rows.start, mask);
        }
        let rows = rows.start as usize..rows.end as usize;
        let target = Target { out, stride };
        let heads = self.view(0)?;
        // SAFETY: the caller's promise; a validated column's slot lies in the image.
        unsafe {
            if self.shape.format == RowFormat::Fixed {
                decode::images(&self.layout, &heads, rows, mask, target);
                return Ok(());
            }
            decode::heads(&heads, rows.clone(), self.layout.head_bytes as usize, target);
            for (i, column) in self.layout.columns.iter().enumerate().take(mask.end()) {
                if mask.get(i) {
                    let view = self.view(i + 1)?;
                    decode::column(column, &view, rows.clone(), target);
                }
            }
        }
        Ok(())
    }

    /// Appends row `i` in packed form; nothing for a tombstone. Panics when there is no such row.
    pub fn packed(&self, i: u32, out: &mut Vec<u8>) -> Result<(), FormatError> {
        assert!(i < self.shape.entry.rows, "no such row in the block");
        if self.shape.tags.is_tombstone(self.block(), i) {
            return Ok(());
        }
        let start = out.len();
        let heads = self.view(0)?;
        let head = heads.value(i as usize);
        if self.shape.format == RowFormat::Fixed {
            if head.len() == self.layout.image_bytes as usize {
                // SAFETY: this is an image of the layout, which has no blobs.
                let packed = unsafe { crate::row::pack(&self.layout, head.as_ptr(), out) };
                packed.inspect_err(|_| out.truncate(start))?;
            }
            return Ok(());
        }
        out.extend_from_slice(head);
        out.resize(start + self.layout.head_bytes as usize, 0);
        for (column, which) in self.layout.columns.iter().zip(1..) {
            if !is_null_in(column, &out[start..]) {
                let len_bytes = column.kind.packed_len_bytes();
                let appended = self.view(which).and_then(|view| view.append(i as usize, len_bytes, out));
                appended.inspect_err(|_| out.truncate(start))?;
            }
        }
        Ok(())
    }

    /// In the fixed format: the images of `rows`, one after the other, tombstones' too. `None` in the dynamic format, and
    /// when they are damaged: [`Self::decode_images`] says how. Panics when the block has no such rows.
    pub fn images(&self, rows: Range<u32>) -> Option<&[u8]> {
        self.check_range(&rows);
        if self.shape.format != RowFormat::Fixed {
            return None;
        }
        let width = self.layout.image_bytes as usize;
        let heads = self.view(0).ok()?;
        heads.content().get(rows.start as usize * width..rows.end as usize * width)
    }

    /// Decodes and checks everything, for CHECK TABLE.
    pub fn verify(&self) -> Result<(), FormatError> {
        let block = self.block();
        let bad = |what, found: u64| Err(FormatError::Invalid { what, found });
        let (mut last, mut unique) = (None, true);
        for i in 0..self.shape.entry.rows {
            let id = self.shape.ids.get(block, i);
            if last.is_some_and(|last| last > id) {
                return bad("order of block row ids", id);
            }
            unique &= last != Some(id);
            last = Some(id);
        }
        if unique != self.ids_unique() {
            return bad("uniqueness of block row ids", u64::from(unique));
        }
        self.shape.tags.verify(block, &self.shape.entry)?;
        let heads = self.view(0)?;
        if self.shape.format == RowFormat::Fixed {
            return Ok(());
        }
        for (which, column) in (1..).zip(&self.layout.columns) {
            let view = self.view(which)?;
            for i in 0..self.shape.entry.rows {
                let value = view.value(i as usize);
                let absent = self.shape.tags.is_tombstone(block, i) || is_null_in(column, heads.value(i as usize));
                if absent && value.iter().any(|&b| b != 0) {
                    return bad("value of a NULL column", value.len() as u64);
                }
            }
        }
        Ok(())
    }
}

impl<B: BlockBytes> std::fmt::Debug for RowBlock<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RowBlock")
            .field("rows", &self.shape.entry.rows)
            .field("first_id", &self.shape.entry.first_id)
            .field("last_id", &self.shape.entry.last_id)
            .field("stored_bytes", &self.shape.entry.stored_bytes)
            .finish_non_exhaustive()
    }
}
