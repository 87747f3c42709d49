//! Row images that a cursor decodes ahead, with what they point to, and by an index with the keys of their entries.
//!
//! A session keeps one buffer for its next cursor. Invariant: a buffer that is kept pins nothing and has no image, so that
//! nothing of one cursor's rows is in another's.

use crate::catalog::table::Table;
use crate::tree::memtable::Memtable;
use crate::tree::merge_read::BlockSpan;
use crate::tree::near::Beside;
use crate::tree::run::{Block, Run};
use crate::tree::{Found, Place};
use crate::{Error, Result};
use esker_format::{ColumnMask, RowId};
use esker_memory::{Account, Charge};
use std::ops::Range;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::Arc;

/// Bytes of row images that a batch aims at: they are read back at once and should stay in the first-level cache.
pub(crate) const BATCH_BYTES: usize = 24 << 10;
pub(crate) const MOST_ROWS: usize = 1024;
/// Bytes of blocks, as they are read, that a batch keeps in memory at most, but for its last one: rows are short images that point to
/// long values, too.
pub(crate) const MOST_PINNED_BYTES: usize = 4 << 20;
pub(crate) const FIRST_ROWS: usize = 4;

/// See the module.
#[derive(Default)]
pub(crate) struct Buffer {
    images: Vec<u8>,
    pub(crate) ids: Vec<RowId>,
    pub(crate) keys: Keys,
    /// Rows of the last keys, of which nothing is here yet.
    pub(crate) wanted: Vec<RowId>,
    /// Set when the images are a block's own bytes.
    pub(crate) direct: Option<*const u8>,
    pins: Vec<Pin>,
    /// Those of the rows that were given before, until one comes that has its own: whoever is told that there are no more, or of an
    /// error, still has the last row.
    before: Vec<Pin>,
    /// What is read ahead of its locks may never be given: `before` stays until a row is.
    pub(crate) reads_ahead: bool,
    /// A row was given of what is pinned now.
    given: bool,
    /// Bytes of the blocks that are pinned, as they are read.
    pinned_bytes: usize,
    charge: Option<Charge>,
    together: Vec<Together>,
}

/// Keys one behind the other.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

/// Where a session keeps a buffer while no cursor has it.
#[derive(Default)]
pub(crate) struct SpareBuffer(AtomicPtr<Buffer>);

/// Rows whose images are still to be made, from the position `to` on: they stand one behind the other in a block, which is
/// pinned there, the first one first, or last where they fall.
struct Together {
    pin: usize,
    rows: Range<u32>,
    to: usize,
    falls: bool,
}

/// So many decoded places before it is come to a place is fetched from memory.
const FETCHED_AHEAD: usize = 8;

impl Together {
    /// Joins the rows that stand there in the same block and get the images from `to` on, if they come next.
    fn join(&mut self, rows: &Range<u32>, to: usize, falls: bool) -> bool {
        let can_rise = !self.falls || self.rows.len() == 1;
        let can_fall = self.falls || self.rows.len() == 1;
        let one = rows.len() == 1;
        if self.to + self.rows.len() != to {
            return false;
        }
        if can_rise && (!falls || one) && self.rows.end == rows.start {
            (self.rows.end, self.falls) = (rows.end, false);
            return true;
        }
        if can_fall && (falls || one) && rows.end == self.rows.start {
            (self.rows.start, self.falls) = (rows.start, true);
            return true;
        }
        false
    }
}

impl Keys {
    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    pub(crate) fn push(&mut self, key: &[u8]) {
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len());
    }

    pub(crate) fn get(&self, at: usize) -> &[u8] {
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start..self.ends[at]]
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// All but those at these places, which rise. Those before the first of them stay where they are.
    pub(crate) fn forget(&mut self, places: &[usize]) {
        let Some(first) = places.first().copied() else { return };
        let start = first.checked_sub(1).map_or(0, |before| self.ends[before]);
        let mut others = Keys::default();
        let left = (first..self.len()).filter(|at| places.binary_search(at).is_err());
        left.for_each(|at| others.push(self.get(at)));
        self.bytes.truncate(start);
        self.ends.truncate(first);
        (0..others.len()).for_each(|at| self.push(others.get(at)));
    }

    /// Only the first so many.
    pub(crate) fn truncate(&mut self, keys: usize) {
        self.ends.truncate(keys);
        self.bytes.truncate(self.ends.last().copied().unwrap_or(0));
    }

    /// Only those at these places, which rise.
    pub(crate) fn keep(&mut self, places: &[u32]) {
        let mut kept = Keys::default();
        places.iter().for_each(|place| kept.push(self.get(*place as usize)));
        *self = kept;
    }
}

impl SpareBuffer {
    /// The one that is kept, or a new one.
    pub(crate) fn take(&self) -> Buffer {
        Self::own(self.0.swap(std::ptr::null_mut(), Ordering::Acquire)).unwrap_or_default()
    }

    /// Keeps a buffer, unless it is a large one, or one that nothing was put into: that would take a used one's place.
    pub(crate) fn put(&self, mut buffer: Buffer) {
        let bytes = buffer.images.capacity();
        if bytes == 0 || bytes > 2 * BATCH_BYTES || buffer.keys.bytes.capacity() > BATCH_BYTES {
            return;
        }
        buffer.clear();
        buffer.before.clear();
        buffer.reads_ahead = false;
        buffer.images.clear();
        drop(Self::own(self.0.swap(Box::into_raw(Box::new(buffer)), Ordering::AcqRel)));
    }

    /// What was swapped out.
    fn own(kept: *mut Buffer) -> Option<Buffer> {
        // SAFETY: made of a box by `put`, and whoever swaps it out is the only one that has it.
        (!kept.is_null()).then(|| unsafe { *Box::from_raw(kept) })
    }
}

impl Drop for SpareBuffer {
    fn drop(&mut self) {
        drop(self.take());
    }
}

/// What images point to.
enum Pin {
    /// A block, which begins there in the run's file.
    Block(Arc<Run>, u64, Arc<Block>),
    #[allow(dead_code)]
    Mem(Arc<Memtable>),
}

impl Pin {
    fn is(&self, other: &Arc<Block>) -> bool {
        matches!(self, Pin::Block(_, _, block) if Arc::ptr_eq(block, other))
    }
}

/// Rows that lie together lie in few blocks and memtables, in turn: so many of the last pins are looked at for one's.
const LAST_PINS: usize = 4;

// SAFETY: `direct` points into a block that `pins` holds; blocks are immutable.
unsafe impl Send for Buffer {}

impl Buffer {
    /// The first image.
    pub(crate) fn base(&self) -> *const u8 {
        self.direct.unwrap_or(self.images.as_ptr())
    }

    /// One of the images, which are the buffer's own.
    pub(crate) fn image(&self, stride: usize, at: usize) -> &[u8] {
        &self.images[at * stride..(at + 1) * stride]
    }

    pub(crate) fn clear(&mut self) {
        self.ids.clear();
        self.keys.clear();
        self.wanted.clear();
        if !self.pins.is_empty() {
            if self.given || !self.reads_ahead {
                std::mem::swap(&mut self.pins, &mut self.before);
            }
            self.pins.clear();
        }
        self.given = false;
        self.pinned_bytes = 0;
        self.direct = None;
        self.together.clear();
    }

    /// Room for `rows` images from the one at `at` on.
    fn room(&mut self, stride: usize, at: usize, rows: usize) -> *mut u8 {
        let at = at * stride;
        let need = at + rows * stride;
        if self.images.len() < need {
            self.images.resize(need.max(self.images.len() * 2).min(need.max(BATCH_BYTES)), 0);
            let bytes = self.images.capacity() as u64;
            self.charge.get_or_insert_with(|| Charge::new(Account::Cursor, 0)).resize(bytes);
        }
        // SAFETY: within the buffer.
        unsafe { self.images.as_mut_ptr().add(at) }
    }

    pub(crate) fn add_rows(
        &mut self,
        table: &Table,
        mask: &ColumnMask,
        span: &BlockSpan,
        rows: Range<u32>,
    ) -> Result<()> {
        let stride = table.layout.image_bytes as usize;
        let (at, n) = (self.ids.len(), rows.len());
        match span.block.images(rows.clone()) {
            Some(images) if at == 0 => self.direct = Some(images.as_ptr()),
            _ => {
                let out = self.room(stride, at, n);
                // SAFETY: `room` made room for `n` images.
                unsafe { span.block.decode_images(rows.clone(), mask, out, stride as isize) }
                    .map_err(|e| span.run.damage(span.offset, e))?;
            }
        }
        self.ids.resize(at + n, RowId::ZERO);
        span.block.copy_ids(rows, &mut self.ids[at..]);
        self.push_pin(Pin::Block(span.run.clone(), span.offset, span.block.clone()));
        Ok(())
    }

    pub(crate) fn add_found(&mut self, table: &Table, mask: &ColumnMask, row: RowId, found: Found) -> Result<()> {
        let at = self.ids.len();
        self.room(table.layout.image_bytes as usize, at, 1);
        self.ids.push(row);
        self.replace(table, mask, at, found)
    }

    /// One more row, of which [`make_images`](Self::make_images) may be still to make the image.
    pub(crate) fn add_place(&mut self, table: &Table, mask: &ColumnMask, row: RowId, place: Place<'_>) -> Result<()> {
        let (run, offset, block, at) = match place {
            Place::Block(run, offset, block, at) => (run, offset, block, at),
            Place::Mem(mem, packed) => return self.add_packed(table, mask, row, (mem, packed)),
            Place::Found(found) => return self.add_found(table, mask, row, found),
        };
        self.add_beside(&[row], &Beside { run, offset, block, places: at..at + 1, falls: false });
        Ok(())
    }

    /// Rows that stand together, in the order in which they were asked for.
    pub(crate) fn add_beside(&mut self, ids: &[RowId], beside: &Beside<'_>) {
        let Beside { run, offset, block, places, falls } = beside;
        let to = self.ids.len();
        let joined = match self.together.last_mut() {
            Some(last) if self.pins[last.pin].is(block) => last.join(places, to, *falls),
            _ => false,
        };
        if !joined {
            let pin = self.pin(|pin| pin.is(block), || Pin::Block((*run).clone(), *offset, (*block).clone()));
            self.together.push(Together { pin, rows: places.clone(), to, falls: *falls });
        }
        self.ids.extend_from_slice(ids);
    }

    fn add_packed(
        &mut self,
        table: &Table,
        mask: &ColumnMask,
        row: RowId,
        (mem, packed): (&Arc<Memtable>, &[u8]),
    ) -> Result<()> {
        let (at, stride) = (self.ids.len(), table.layout.image_bytes as usize);
        self.room(stride, at, 1);
        unpack(table, mask, packed, &mut self.images[at * stride..(at + 1) * stride])?;
        self.ids.push(row);
        self.pin(|pin| matches!(pin, Pin::Mem(pinned) if Arc::ptr_eq(pinned, mem)), || Pin::Mem(mem.clone()));
        Ok(())
    }

    /// A row that is here is given.
    pub(crate) fn gives(&mut self) {
        self.given = true;
        if self.reads_ahead {
            self.before.clear();
        }
    }

    fn push_pin(&mut self, pin: Pin) {
        if self.pins.is_empty() && !self.reads_ahead {
            self.before.clear();
        }
        if let Pin::Block(_, _, block) = &pin {
            let is_another = !self.pins.last().is_some_and(|last| last.is(block));
            self.pinned_bytes += if is_another { block.entry().raw_bytes as usize } else { 0 };
        }
        self.pins.push(pin);
    }

    /// How many blocks and memtables it keeps for images that were given.
    #[cfg(test)]
    pub(crate) fn pins(&self) -> usize {
        self.pins.len() + self.before.len()
    }

    /// The blocks that it keeps, the last one last.
    #[cfg(test)]
    pub(crate) fn pinned_blocks(&self) -> Vec<*const Block> {
        let block = |pin: &Pin| match pin {
            Pin::Block(_, _, block) => Some(Arc::as_ptr(block)),
            Pin::Mem(_) => None,
        };
        self.before.iter().chain(&self.pins).filter_map(block).collect()
    }

    #[cfg(test)]
    pub(crate) fn pinned_bytes(&self) -> usize {
        self.pinned_bytes
    }

    /// Does it keep as much of blocks, or of keys, in memory as a batch may?
    pub(crate) fn is_full(&self) -> bool {
        self.pinned_bytes.max(self.keys.bytes.len()) >= MOST_PINNED_BYTES
    }

    /// Where one is pinned, from now on if it was not.
    fn pin(&mut self, is: impl Fn(&Pin) -> bool, make: impl FnOnce() -> Pin) -> usize {
        let before = self.pins.len().saturating_sub(LAST_PINS);
        if let Some(at) = self.pins[before..].iter().rposition(is) {
            return before + at;
        }
        self.push_pin(make());
        self.pins.len() - 1
    }

    /// Every row gets its image: the columns of rows that stand together are decoded one after the other.
    pub(crate) fn make_images(&mut self, table: &Table, mask: &ColumnMask) -> Result<()> {
        let mut together = std::mem::take(&mut self.together);
        let stride = table.layout.image_bytes as usize;
        let out = self.room(stride, 0, self.ids.len());
        together.iter().take(FETCHED_AHEAD).for_each(|ahead| self.fetch(ahead, mask));
        for (i, Together { pin, rows, to, falls }) in together.iter().enumerate() {
            if let Some(ahead) = together.get(i + FETCHED_AHEAD) {
                self.fetch(ahead, mask);
            }
            let Pin::Block(run, offset, block) = &self.pins[*pin] else { continue };
            let (first, step) = match falls {
                true => (to + rows.len() - 1, -(stride as isize)),
                false => (*to, stride as isize),
            };
            // SAFETY: `room` made room for an image of each row.
            unsafe { block.decode_images(rows.clone(), mask, out.add(first * stride), step) }
                .map_err(|e| run.damage(*offset, e))?;
        }
        together.clear();
        self.together = together;
        Ok(())
    }

    fn fetch(&self, Together { pin, rows, .. }: &Together, mask: &ColumnMask) {
        if let Pin::Block(_, _, block) = &self.pins[*pin] {
            block.prefetch_values(rows.start, mask);
        }
    }

    /// One more image, that `fill` makes.
    pub(crate) fn add_filled(
        &mut self,
        stride: usize,
        row: RowId,
        fill: impl FnOnce(&mut [u8]) -> Result<()>,
    ) -> Result<()> {
        let at = self.ids.len();
        self.room(stride, at, 1);
        fill(&mut self.images[at * stride..(at + 1) * stride])?;
        self.ids.push(row);
        Ok(())
    }

    /// Only the images at these places, which rise. They are the buffer's own.
    pub(crate) fn keep(&mut self, stride: usize, places: &[u32]) {
        debug_assert!(self.direct.is_none());
        for (to, from) in places.iter().map(|place| *place as usize).enumerate() {
            self.images.copy_within(from * stride..(from + 1) * stride, to * stride);
            self.ids[to] = self.ids[from];
        }
        self.ids.truncate(places.len());
    }

    /// Decodes `found` as the image at position `at`.
    pub(crate) fn replace(&mut self, table: &Table, mask: &ColumnMask, at: usize, found: Found) -> Result<()> {
        let stride = table.layout.image_bytes as usize;
        if let Some(direct) = self.direct.take() {
            // The images are a block's: make them the buffer's own.
            let bytes = self.ids.len() * stride;
            self.images.resize(bytes.max(self.images.len()), 0);
            // SAFETY: the block holds an image for each id.
            unsafe { std::ptr::copy_nonoverlapping(direct, self.images.as_mut_ptr(), bytes) };
        }
        let image = &mut self.images[at * stride..(at + 1) * stride];
        decode(table, mask, &found, image)?;
        match found {
            Found::Mem(mem, _) => self.push_pin(Pin::Mem(mem)),
            Found::Block(run, offset, block, _) => self.push_pin(Pin::Block(run, offset, block)),
            Found::Tombstone => {}
        }
        Ok(())
    }
}

/// Decodes the columns of a row that was found to its image, whose blob slots then point to what `found` pins.
pub(crate) fn decode(table: &Table, mask: &ColumnMask, found: &Found, image: &mut [u8]) -> Result<()> {
    match found {
        Found::Mem(_, packed) => unpack(table, mask, packed, image),
        Found::Block(run, offset, block, i) => {
            // SAFETY: one image.
            unsafe { block.decode_images(*i..*i + 1, mask, image.as_mut_ptr(), image.len() as isize) }
                .map_err(|e| run.damage(*offset, e))
        }
        Found::Tombstone => Ok(()),
    }
}

fn unpack(table: &Table, mask: &ColumnMask, packed: &[u8], image: &mut [u8]) -> Result<()> {
    esker_format::row::unpack(&table.layout, packed, mask, image)
        .map_err(|e| Error::InvalidArgument(format!("row in memory: {e}")))
}
