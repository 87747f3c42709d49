//! Rows that a statement inserts in bulk: copied into chunks as they come and, once there are enough of them for a run
//! of their own, turned into blocks, checksummed, compressed and written by a worker while the statement goes on.
//!
//! What stays small never touches a file: its rows end in memtable and log. So there is no load mode, and rows written
//! in bulk are written to disk once. Where memory is short (see `large.rs`) what was gathered is spilled (`private.rs`). Short rows without blobs are copied as images, and may be written straight into the chunk ([`BulkWriter::room`]);
//! others are packed. A run ends, and another begins, before its index is more than a block cache wants to keep at once, or than its
//! writer should have in memory. Invariants: chunks reach the run in the order of their row ids; nothing is written beyond a chunk's
//! capacity; after an error nothing is taken any more.

use crate::catalog::table::Table;
use crate::core::Core;
use crate::host::Host;
use crate::lock::Parker;
use crate::options::Background;
use crate::tree::run::cache::AnyRun;
use crate::tree::run::writer::{FileWriter, RunRecipe, RunWriter};
use crate::tree::run::Run;
use crate::tree::Tree;
use crate::write::large::{Budget, LargeWriter, Pool, Share, Stream};
use crate::write::VERSION_BYTES;
use crate::{Error, Result};
use esker_base::counters::{count, Counter};
use esker_format::{FileId, Layout, RowId, VersionTag};
use esker_memory::{Account, Charge};
use std::sync::atomic::AtomicUsize;
use std::sync::Arc;

/// Rows with longer images are packed: most of such an image is room for values that are shorter.
const MOST_IMAGE_BYTES: usize = 512;
/// An empty chunk with more memory than this keeps none for its next rows.
const MOST_KEPT_BYTES: usize = 1 << 20;
/// Where memory is short files are written in pieces of this size at most, in bytes.
pub(crate) const LEAN_WRITE_BYTES: usize = 64 << 10;
/// A first chunk begins with this much memory and doubles it: a load into thousands of partitions fills few of them.
const FIRST_BYTES: usize = 4 << 10;

/// A run ends once so many times what runs have after a merge was handed on to it, before compression.
const MOST_RUN_BYTES: u64 = 4;

/// How a bulk writer works.
#[derive(Clone)]
pub(crate) struct BulkPlan {
    pub(crate) recipe: RunRecipe,
    pub(crate) min_run_bytes: usize,
    /// Bytes from which on another run begins.
    most_run_bytes: u64,
    /// Bytes of images or packed rows at which a chunk is handed on.
    chunk_bytes: usize,
    /// Bytes of an image that is copied as it is; zero: rows are packed.
    stride: usize,
    /// Memory of chunks under way between statement and worker, in bytes.
    stream_bytes: u64,
    budget: Arc<Budget>,
    /// How many streams the transaction has.
    streams: Arc<AtomicUsize>,
    /// Without one the statement writes by itself.
    pool: Option<Pool>,
    host: Arc<dyn Host>,
    /// Whose rows they are.
    session: Arc<Parker>,
}

impl BulkPlan {
    /// For rows of one tree; the transaction's large writes are `writer`'s.
    pub(crate) fn new(core: &Core, session: &Arc<Parker>, table: &Table, tree: &Tree, writer: &LargeWriter) -> Self {
        let recipe = core.runs.recipe(table, tree).of_open_transaction();
        let buffer_bytes = core.settings.bulk_buffer_bytes();
        let image_bytes = recipe.shape.layout.image_bytes as usize;
        let stride = if recipe.shape.layout.has_blobs() || image_bytes > MOST_IMAGE_BYTES { 0 } else { image_bytes };
        let rows = (recipe.block_bytes / stride.max(1)).max(1);
        let chunk_bytes = if stride == 0 { recipe.block_bytes } else { rows * stride };
        let depth = (buffer_bytes / 2 / recipe.block_bytes.max(1)).clamp(1, 64);
        BulkPlan {
            recipe,
            min_run_bytes: core.options.min_run_bytes.min(buffer_bytes),
            most_run_bytes: core.options.run_bytes.saturating_mul(MOST_RUN_BYTES),
            chunk_bytes,
            stride,
            stream_bytes: (depth * chunk_bytes) as u64,
            budget: core.large.clone(),
            streams: writer.streams.clone(),
            pool: (core.options.background == Background::Threads).then(|| core.pool.clone()),
            host: core.host.clone(),
            session: session.clone(),
        }
    }

    /// Where memory is short: in small pieces, by the statement.
    fn lean_writer(&self, file: FileId) -> Result<RunWriter> {
        let recipe = RunRecipe { write_bytes: self.lean_write_bytes(), ..self.recipe.clone() };
        let file = FileWriter::of_session(&recipe, file)?;
        Ok(RunWriter::next(recipe, file))
    }

    fn lean_write_bytes(&self) -> usize {
        self.recipe.write_bytes.min(LEAN_WRITE_BYTES)
    }
}

/// Rows whose ids and ordinals count up together.
struct Stretch {
    row: u64,
    ordinal: u64,
    rows: u64,
}

/// Rows on their way to a run.
pub(crate) struct Chunk {
    /// Bytes from one image to the next; zero: packed rows, each behind its length as a u32.
    stride: usize,
    bytes: Vec<u8>,
    stretches: Vec<Stretch>,
    charge: Charge,
    share: Share,
}

impl Chunk {
    fn new(plan: &BulkPlan, bytes: usize) -> Chunk {
        let mut chunk = Chunk {
            stride: plan.stride,
            bytes: Vec::with_capacity(bytes),
            stretches: Vec::new(),
            charge: Charge::new(Account::BulkBuffer, 0),
            share: Share::new(&plan.budget),
        };
        chunk.account();
        chunk
    }

    /// How much memory it has.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.share.bytes()
    }

    /// Notes how much memory it has; true if that has changed.
    fn account(&mut self) -> bool {
        let bytes = self.bytes.capacity() as u64;
        let changed = bytes != self.share.bytes();
        if changed {
            self.charge.resize(bytes);
            self.share.resize(bytes);
        }
        changed
    }

    /// Forgets the rows, keeps the memory, unless a few large rows made it very large.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        if self.bytes.capacity() > MOST_KEPT_BYTES {
            self.bytes = Vec::new();
        }
        self.stretches.clear();
        self.account();
    }

    /// Notes rows whose bytes were added.
    #[inline]
    fn note(&mut self, row: RowId, ordinal: u64, rows: u64) {
        match self.stretches.last_mut() {
            Some(s) if s.row + s.rows == row.0 && s.ordinal + s.rows == ordinal => s.rows += rows,
            _ => self.stretches.push(Stretch { row: row.0, ordinal, rows }),
        }
    }

    /// Calls `take` with each row's id, ordinal and bytes: its image, or its packed form.
    fn each(&self, mut take: impl FnMut(RowId, u64, &[u8]) -> Result<()>) -> Result<()> {
        let mut rest = self.bytes.as_slice();
        for s in &self.stretches {
            for i in 0..s.rows {
                let length = match self.stride {
                    0 => {
                        let (length, behind) = rest.split_at(4);
                        rest = behind;
                        u32::from_le_bytes([length[0], length[1], length[2], length[3]]) as usize
                    }
                    stride => stride,
                };
                let (row, behind) = rest.split_at(length);
                rest = behind;
                take(RowId(s.row + i), s.ordinal + i, row)?;
            }
        }
        Ok(())
    }

    /// Calls `take` with each row's id, ordinal and packed form.
    pub(crate) fn each_packed(
        &self,
        layout: &Layout,
        mut take: impl FnMut(RowId, u64, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut packed = Vec::new();
        self.each(|row, ordinal, bytes| {
            if self.stride == 0 {
                return take(row, ordinal, bytes);
            }
            packed.clear();
            // SAFETY: an image of the layout, which has no blobs.
            unsafe { esker_format::row::pack(layout, bytes.as_ptr(), &mut packed) }.map_err(Error::in_memory)?;
            take(row, ordinal, &packed)
        })
    }

    /// Adds the rows to a run.
    pub(crate) fn write(&self, writer: &mut RunWriter) -> Result<()> {
        self.write_behind(writer, &mut |_, _| Ok(()))
    }

    /// Adds the rows to a run, each after `before` has added what comes before it.
    #[inline]
    pub(crate) fn write_behind(
        &self,
        writer: &mut RunWriter,
        before: &mut impl FnMut(&mut RunWriter, RowId) -> Result<()>,
    ) -> Result<()> {
        self.each(|row, ordinal, bytes| {
            before(writer, row)?;
            match self.stride {
                0 => writer.push(row, VersionTag { ordinal, ..VersionTag::default() }, bytes),
                // SAFETY: an image of the run's layout, which has no blobs.
                _ => unsafe { writer.push_image(row, ordinal, bytes.as_ptr()) },
            }
        })
    }
}

/// The rows that one transaction inserts in bulk into one tree.
pub(crate) struct BulkWriter {
    plan: BulkPlan,
    current: Chunk,
    /// Full chunks that wait until there are enough for a run.
    full: Vec<Chunk>,
    /// Memory of the chunks that wait, in bytes.
    full_bytes: u64,
    output: Option<Output>,
    /// What was handed on to it, in bytes.
    sent_bytes: u64,
    /// Runs that it had before.
    ended: Vec<Arc<Run>>,
    /// Rows were lost to this error: what was gathered can only be rolled back, also by a later statement.
    failed: Option<Error>,
    /// Of the first row that is here or under way.
    pub(crate) first_ordinal: Option<u64>,
    pub(crate) rows: u64,
}

/// Where full chunks go.
enum Output {
    /// The statement writes by itself: there are no workers, or memory is short.
    Inline(Box<RunWriter>, Option<Share>),
    Stream(Arc<Stream>, Share),
}

impl BulkWriter {
    pub(crate) fn new(plan: BulkPlan) -> Self {
        BulkWriter {
            current: Chunk::new(&plan, 0),
            plan,
            full: Vec::new(),
            full_bytes: 0,
            output: None,
            sent_bytes: 0,
            ended: Vec::new(),
            failed: None,
            first_ordinal: None,
            rows: 0,
        }
    }

    /// Memory that a spill would free, in bytes.
    pub(crate) fn gathered_bytes(&self) -> u64 {
        if self.output.is_some() || self.rows == 0 {
            return 0;
        }
        self.full_bytes + self.current.share.bytes()
    }

    /// Takes one row. True: it took memory, or handed some on. Where there is no memory for the row nothing was taken.
    ///
    /// # Safety
    /// `image` is a row image of the tree's layout; its blob slots point to readable bytes.
    pub(crate) unsafe fn push_image(
        &mut self,
        row: RowId,
        ordinal: u64,
        image: *const u8,
        next_file: &dyn Fn() -> FileId,
    ) -> Result<bool> {
        self.check()?;
        let bytes = &mut self.current.bytes;
        match self.plan.stride {
            0 => {
                let at = bytes.len();
                bytes.extend_from_slice(&[0; 4]);
                // SAFETY: the caller's promise.
                let packed = unsafe { esker_format::row::pack(&self.plan.recipe.shape.layout, image, bytes) };
                packed.inspect_err(|_| bytes.truncate(at)).map_err(Error::in_memory)?;
                let length = (bytes.len() - at - 4) as u32;
                bytes[at..at + 4].copy_from_slice(&length.to_le_bytes());
            }
            stride => {
                if bytes.capacity() - bytes.len() < stride {
                    let more = bytes.capacity().max(FIRST_BYTES / stride * stride).max(stride);
                    bytes.reserve_exact(more.min(self.plan.chunk_bytes - bytes.len()).max(stride));
                }
                // SAFETY: the caller's promise: one image.
                bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(image, stride) });
            }
        }
        self.pushed(row, ordinal, 1, next_file)
    }

    /// Where images may be written, and how many; none for rows that must be packed.
    pub(crate) fn room(&mut self) -> (*mut u8, usize) {
        let (chunk_bytes, stride, bytes) = (self.plan.chunk_bytes, self.plan.stride, &mut self.current.bytes);
        let end = bytes.capacity().min(chunk_bytes);
        let rows = match stride {
            0 => 0,
            _ if self.failed.is_some() => 0,
            stride => (end - bytes.len()) / stride,
        };
        (bytes.spare_capacity_mut().as_mut_ptr().cast(), rows)
    }

    /// Takes `rows` rows with rising ids and ordinals that were written where [`room`](Self::room) said.
    ///
    /// # Safety
    /// So many images are there, since the last call on this writer.
    pub(crate) unsafe fn wrote_images(
        &mut self,
        row: RowId,
        ordinal: u64,
        rows: usize,
        next_file: &dyn Fn() -> FileId,
    ) -> Result<bool> {
        self.check()?;
        let bytes = &mut self.current.bytes;
        let length = bytes.len() + rows * self.plan.stride;
        assert!(length <= bytes.capacity(), "more rows were staged than there was room for");
        // SAFETY: the caller's promise.
        unsafe { bytes.set_len(length) };
        self.pushed(row, ordinal, rows as u64, next_file)
    }

    fn check(&self) -> Result<()> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    #[inline]
    fn pushed(&mut self, row: RowId, ordinal: u64, rows: u64, next_file: &dyn Fn() -> FileId) -> Result<bool> {
        self.current.note(row, ordinal, rows);
        if self.rows == 0 {
            self.first_ordinal = Some(ordinal);
        }
        self.rows += rows;
        let grown = self.current.account();
        if self.current.bytes.len() >= self.plan.chunk_bytes {
            self.hand_on(next_file).inspect_err(|e| self.failed = Some(e.clone()))?;
            return Ok(true);
        }
        Ok(grown)
    }

    /// Hands the full chunk on.
    #[cold]
    fn hand_on(&mut self, next_file: &dyn Fn() -> FileId) -> Result<()> {
        count(Counter::BuffersFilled, 1);
        if self.output.is_some() {
            if self.sent_bytes >= self.plan.most_run_bytes {
                self.begin_another(next_file())?;
            }
            let full = self.take_current(None);
            self.current = match self.send(full)? {
                Some(empty) => empty,
                None => Chunk::new(&self.plan, self.plan.chunk_bytes),
            };
            return Ok(());
        }
        let fresh = Chunk::new(&self.plan, self.plan.chunk_bytes);
        let full = self.take_current(Some(fresh));
        self.full_bytes += full.share.bytes();
        self.full.push(full);
        if self.full_bytes < self.plan.min_run_bytes as u64 {
            return Ok(());
        }
        let writer = |recipe: &RunRecipe| RunWriter::create(recipe, next_file());
        let buffers = 2 * self.plan.recipe.write_bytes as u64;
        let chunks = self.plan.stream_bytes;
        self.output = match (&self.plan.pool, Share::of_stream(&self.plan.budget, &self.plan.streams, buffers, chunks))
        {
            // Too many streams: it is spilled when memory is short.
            (_, None) => return Ok(()),
            (None, Some(_)) => Some(Output::Inline(Box::new(writer(&self.plan.recipe)?), None)),
            (Some(pool), Some(share)) => {
                Some(Output::Stream(Stream::new(pool, writer(&self.plan.recipe)?, chunks), share))
            }
        };
        self.send_full()
    }

    fn send_full(&mut self) -> Result<()> {
        self.full_bytes = 0;
        std::mem::take(&mut self.full).into_iter().try_for_each(|chunk| self.send(chunk).map(drop))
    }

    /// Where memory is short: begins the run that would else be begun later, with what is gathered, and goes on with it; its
    /// statement writes it in small pieces. False if that would free too little, or such runs have memory enough already.
    pub(crate) fn begin_lean(&mut self, next_file: &dyn Fn() -> FileId) -> Result<bool> {
        self.check()?;
        // One buffer, and a block that is being made.
        let buffers = (self.plan.lean_write_bytes() + self.plan.recipe.block_bytes) as u64;
        if self.full_bytes < 2 * buffers {
            return Ok(false);
        }
        let chunks = self.plan.chunk_bytes as u64;
        let Some(share) = Share::of_lean(&self.plan.budget, &self.plan.streams, buffers, chunks) else {
            return Ok(false);
        };
        self.output = Some(Output::Inline(Box::new(self.plan.lean_writer(next_file())?), Some(share)));
        self.send_full().inspect_err(|e| self.failed = Some(e.clone()))?;
        Ok(true)
    }

    /// The gathered chunk; `next` or an empty one without memory takes its place.
    fn take_current(&mut self, next: Option<Chunk>) -> Chunk {
        let next = next.unwrap_or_else(|| Chunk::new(&self.plan, 0));
        std::mem::replace(&mut self.current, next)
    }

    /// Sends a chunk to the run; an empty one in exchange, if there is one.
    fn send(&mut self, mut chunk: Chunk) -> Result<Option<Chunk>> {
        count(Counter::BulkBytes, chunk.bytes.len() as u64);
        self.sent_bytes += chunk.bytes.len() as u64;
        match &mut self.output {
            Some(Output::Inline(writer, _)) => {
                chunk.write(writer)?;
                chunk.clear();
                Ok(Some(chunk))
            }
            Some(Output::Stream(stream, _)) => stream.send(chunk, &*self.plan.host, &self.plan.session),
            None => Err(lost_its_run()),
        }
    }

    /// Ends the run that is being written: what comes goes to another one.
    fn begin_another(&mut self, file: FileId) -> Result<()> {
        let writer = |lean| if lean { self.plan.lean_writer(file) } else { RunWriter::create(&self.plan.recipe, file) };
        let output = match (self.output.take(), &self.plan.pool) {
            (Some(Output::Inline(ended, share)), _) => {
                self.ended.push(ended.finish()?);
                Output::Inline(Box::new(writer(share.is_some())?), share)
            }
            (Some(Output::Stream(stream, share)), Some(pool)) => {
                self.ended.push(stream.finish()?.finish()?);
                Output::Stream(Stream::new(pool, writer(false)?, self.plan.stream_bytes), share)
            }
            _ => return Err(lost_its_run()),
        };
        (self.output, self.sent_bytes) = (Some(output), 0);
        Ok(())
    }

    /// Are its rows in memory, not on their way to a run?
    pub(crate) fn is_gathering(&self) -> bool {
        self.output.is_none()
    }

    /// About what the gathered rows would take of the redo, in bytes.
    pub(crate) fn content_bytes(&self) -> usize {
        if !self.is_gathering() || self.rows == 0 {
            return 0;
        }
        let chunks = self.full.iter().chain([&self.current]).map(|c| c.bytes.len()).sum::<usize>();
        chunks + self.rows as usize * VERSION_BYTES
    }

    /// The gathered rows, in order.
    pub(crate) fn gathered(&mut self) -> Result<&[Chunk]> {
        self.check()?;
        if self.is_gathering() && !self.current.bytes.is_empty() {
            let last = self.take_current(None);
            self.full_bytes += last.share.bytes();
            self.full.push(last);
        }
        Ok(&self.full)
    }

    /// The [`gathered`](Self::gathered) rows are in a run: others are gathered anew.
    pub(crate) fn spilled(&mut self) {
        if self.is_gathering() {
            count(Counter::BulkBytes, self.full.iter().map(|c| c.bytes.len() as u64).sum());
            self.full.clear();
            (self.full_bytes, self.rows, self.first_ordinal) = (0, 0, None);
        }
    }

    /// Ends the gathering: finished runs, or, if it stayed small, the chunks with the rows.
    pub(crate) fn finish(mut self) -> Result<BulkEnd> {
        self.check()?;
        if self.output.is_none() {
            let last = self.take_current(None);
            self.full.push(last);
            return Ok(BulkEnd::Rows(std::mem::take(&mut self.full)));
        }
        let last = self.take_current(None);
        if !last.bytes.is_empty() {
            self.send(last).map(drop)?;
        }
        let writer = match self.output.take() {
            Some(Output::Inline(writer, _share)) => *writer,
            Some(Output::Stream(stream, _share)) => stream.finish()?,
            None => return Err(lost_its_run()),
        };
        let last = writer.finish()?;
        self.ended.push(last);
        Ok(BulkEnd::Runs(std::mem::take(&mut self.ended)))
    }
}

impl Drop for BulkWriter {
    fn drop(&mut self) {
        match (self.output.take(), &self.plan.pool) {
            (Some(Output::Stream(stream, share)), _) => stream.cancel(share),
            // A worker's to remove, too.
            (Some(Output::Inline(writer, Some(share))), Some(pool)) => Stream::new(pool, *writer, 0).cancel(share),
            _ => {}
        }
        self.ended.drain(..).for_each(|run| run.remove_when_unused());
    }
}

fn lost_its_run() -> Error {
    Error::Poisoned("a bulk writer lost its run".into())
}

/// What a bulk writer ended with.
pub(crate) enum BulkEnd {
    /// Runs of its own, synced, in the order of their rows.
    Runs(Vec<Arc<Run>>),
    /// Too few rows for one, or memory is short.
    Rows(Vec<Chunk>),
}
