//! Rows that a statement inserts in bulk: copied into chunks as they come and, once there are enough of them for a run
//! of their own, turned into blocks, checksummed, compressed and written by a worker while the statement goes on.
//!
//! What stays small never touches a file: its rows end in memtable and log. So there is no load mode, and rows written
//! in bulk are written to disk once. Short rows without blobs are copied as images, and may be written straight into the
//! chunk ([`BulkWriter::room`]); others are packed. Invariant: chunks reach the worker in the order of their row ids.

use crate::run::Run;
use crate::run_writer::{RunRecipe, RunWriter};
use crate::{Error, Result};
use esker_format::{CommitSeq, FileId, Layout, RowId, VersionTag};
use esker_trace::counters::{count, Counter};
use esker_trace::memory::{Account, Charge};
use esker_trace::wait::{timed, WaitEvent};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{sync_channel, Receiver, SyncSender, TrySendError};
use std::sync::Arc;
use std::thread::JoinHandle;

/// Rows with longer images are packed: most of such an image is room for values that are shorter.
const MOST_IMAGE_BYTES: usize = 512;
/// Memory that an empty chunk keeps for its next rows, if it had more.
const MOST_KEPT_BYTES: usize = 1 << 20;

/// How a bulk writer works.
#[derive(Clone)]
pub(crate) struct BulkPlan {
    pub(crate) recipe: RunRecipe,
    pub(crate) min_run_bytes: usize,
    /// Bytes of images or packed rows at which a chunk is handed on.
    chunk_bytes: usize,
    /// Bytes of an image that is copied as it is; zero: rows are packed.
    stride: usize,
    /// Chunks under way between statement and worker.
    depth: usize,
    pub(crate) threaded: bool,
}

impl BulkPlan {
    /// With `buffer_bytes` for rows and writes that are under way.
    pub(crate) fn new(recipe: RunRecipe, min_run_bytes: usize, buffer_bytes: usize, threaded: bool) -> Self {
        let image_bytes = recipe.layout.image_bytes as usize;
        let stride = if recipe.layout.has_blobs() || image_bytes > MOST_IMAGE_BYTES { 0 } else { image_bytes };
        let rows = (recipe.block_bytes / stride.max(1)).max(1);
        let chunk_bytes = if stride == 0 { recipe.block_bytes } else { rows * stride };
        let depth = (buffer_bytes / 2 / recipe.block_bytes.max(1)).clamp(1, 64);
        BulkPlan { recipe, min_run_bytes: min_run_bytes.min(buffer_bytes), chunk_bytes, stride, depth, threaded }
    }
}

/// Rows whose ids and ordinals count up together.
struct Stretch {
    row: u64,
    ordinal: u64,
    rows: u64,
}

/// Rows on their way to the worker.
pub(crate) struct Chunk {
    /// Bytes from one image to the next; zero: packed rows, each behind its length as a u32.
    stride: usize,
    bytes: Vec<u8>,
    stretches: Vec<Stretch>,
}

impl Chunk {
    fn new(plan: &BulkPlan) -> Chunk {
        let room = plan.chunk_bytes + if plan.stride == 0 { 4096 } else { 0 };
        Chunk { stride: plan.stride, bytes: Vec::with_capacity(room), stretches: Vec::new() }
    }

    /// Forgets the rows, keeps the memory, unless a few large rows made it very large.
    fn clear(&mut self) {
        self.bytes.clear();
        if self.stride == 0 {
            // Images are written into the room that a chunk has from the start.
            self.bytes.shrink_to(MOST_KEPT_BYTES);
        }
        self.stretches.clear();
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
            unsafe { esker_format::row::pack(layout, bytes.as_ptr(), &mut packed) };
            take(row, ordinal, &packed)
        })
    }

    /// Adds the rows to a run.
    fn write(&self, writer: &mut RunWriter) -> Result<()> {
        self.each(|row, ordinal, bytes| match self.stride {
            0 => writer.push(row, VersionTag { seq: CommitSeq::ZERO, ordinal, tombstone: false }, bytes),
            // SAFETY: an image of the run's layout, which has no blobs.
            _ => unsafe { writer.push_image(row, ordinal, bytes.as_ptr()) },
        })
    }
}

/// The rows that one transaction inserts in bulk into one tree.
pub(crate) struct BulkWriter {
    plan: BulkPlan,
    current: Chunk,
    /// Full chunks that wait until there are enough for a run.
    full: Vec<Chunk>,
    gathered_bytes: usize,
    charge: Charge,
    pipe: Option<Pipe>,
    /// Rows were lost to this error: what was gathered can only be rolled back, also by a later statement.
    failed: Option<Error>,
    pub(crate) first_ordinal: u64,
    pub(crate) rows: u64,
}

enum Pipe {
    Inline(Box<RunWriter>),
    Threaded {
        jobs: SyncSender<Chunk>,
        empty: Receiver<Chunk>,
        cancel: Arc<AtomicBool>,
        worker: JoinHandle<Result<Option<RunWriter>>>,
    },
}

impl BulkWriter {
    pub(crate) fn new(plan: BulkPlan, first_ordinal: u64) -> Self {
        BulkWriter {
            current: Chunk::new(&plan),
            plan,
            full: Vec::new(),
            gathered_bytes: 0,
            charge: Charge::new(Account::BulkBuffer, 0),
            pipe: None,
            failed: None,
            first_ordinal,
            rows: 0,
        }
    }

    /// Takes one row.
    ///
    /// # Safety
    /// `image` is a row image of the tree's layout; its blob slots point to readable bytes.
    pub(crate) unsafe fn push_image(
        &mut self,
        row: RowId,
        ordinal: u64,
        image: *const u8,
        next_file: &dyn Fn() -> FileId,
    ) -> Result<()> {
        let bytes = &mut self.current.bytes;
        // SAFETY: the caller's promise; a chunk that is not full has room for an image.
        unsafe {
            match self.plan.stride {
                0 => {
                    let at = bytes.len();
                    bytes.extend_from_slice(&[0; 4]);
                    esker_format::row::pack(&self.plan.recipe.layout, image, bytes);
                    let length = (bytes.len() - at - 4) as u32;
                    bytes[at..at + 4].copy_from_slice(&length.to_le_bytes());
                }
                stride => {
                    let (out, _) = self.room();
                    std::ptr::copy_nonoverlapping(image, out, stride);
                    let bytes = &mut self.current.bytes;
                    bytes.set_len(bytes.len() + stride);
                }
            }
        }
        self.pushed(row, ordinal, 1, next_file)
    }

    /// Where images may be written, and how many; none for rows that must be packed.
    pub(crate) fn room(&mut self) -> (*mut u8, usize) {
        let bytes = &mut self.current.bytes;
        // The image size divides the size of a chunk of images: see `BulkPlan`.
        let rows = match self.plan.stride {
            0 => 0,
            stride => (self.plan.chunk_bytes - bytes.len()) / stride,
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
    ) -> Result<()> {
        let bytes = &mut self.current.bytes;
        // SAFETY: the caller's promise.
        unsafe { bytes.set_len(bytes.len() + rows * self.plan.stride) };
        self.pushed(row, ordinal, rows as u64, next_file)
    }

    fn pushed(&mut self, row: RowId, ordinal: u64, rows: u64, next_file: &dyn Fn() -> FileId) -> Result<()> {
        self.current.note(row, ordinal, rows);
        self.rows += rows;
        if self.current.bytes.len() >= self.plan.chunk_bytes {
            return self.rotate(next_file);
        }
        Ok(())
    }

    /// Hands the full chunk on. An error stays: every later call returns it.
    #[cold]
    fn rotate(&mut self, next_file: &dyn Fn() -> FileId) -> Result<()> {
        if let Some(e) = &self.failed {
            return Err(e.clone());
        }
        self.hand_on(next_file).inspect_err(|e| self.failed = Some(e.clone()))
    }

    fn hand_on(&mut self, next_file: &dyn Fn() -> FileId) -> Result<()> {
        count(Counter::BuffersFilled, 1);
        if self.pipe.is_none() {
            self.gathered_bytes += self.current.bytes.len();
            self.charge.resize(self.gathered_bytes as u64);
            self.full.push(std::mem::replace(&mut self.current, Chunk::new(&self.plan)));
            if self.gathered_bytes < self.plan.min_run_bytes {
                return Ok(());
            }
            self.pipe = Some(Pipe::open(&self.plan, next_file())?);
            for chunk in std::mem::take(&mut self.full) {
                self.send(chunk)?;
            }
            return Ok(());
        }
        count(Counter::BulkBytes, self.current.bytes.len() as u64);
        let fresh = match &self.pipe {
            Some(Pipe::Threaded { empty, .. }) => empty.try_recv().ok(),
            _ => None,
        };
        let fresh = fresh.unwrap_or_else(|| Chunk::new(&self.plan));
        let full = std::mem::replace(&mut self.current, fresh);
        self.send(full)
    }

    fn send(&mut self, chunk: Chunk) -> Result<()> {
        match &mut self.pipe {
            Some(Pipe::Inline(writer)) => chunk.write(writer),
            Some(Pipe::Threaded { jobs, .. }) => match hand_over(jobs, chunk) {
                Ok(()) => Ok(()),
                // The worker has stopped: it says why when it is joined.
                Err(()) => match self.pipe.take() {
                    Some(pipe) => match pipe.join() {
                        Err(e) => Err(e),
                        Ok(_) => Err(Error::Poisoned("bulk worker stopped".into())),
                    },
                    None => Err(Error::Poisoned("bulk worker stopped".into())),
                },
            },
            None => Err(Error::Poisoned("bulk writer lost its run".into())),
        }
    }

    /// Ends the gathering: a finished run, or, if it stayed small, the chunks with the rows.
    pub(crate) fn finish(mut self) -> Result<Gathered> {
        if let Some(e) = self.failed {
            return Err(e);
        }
        if self.pipe.is_none() {
            let mut chunks = std::mem::take(&mut self.full);
            chunks.push(self.current);
            return Ok(Gathered::Rows(chunks));
        }
        let last = Chunk { bytes: Vec::new(), stretches: Vec::new(), ..self.current };
        let last = std::mem::replace(&mut self.current, last);
        self.send(last)?;
        match self.pipe.take().map(Pipe::join) {
            Some(Ok(Some(writer))) => Ok(Gathered::Run(writer.finish()?)),
            Some(Err(e)) => Err(e),
            _ => Err(Error::Poisoned("bulk writer lost its run".into())),
        }
    }

    /// Gives everything up, without waiting; an unfinished run removes its file when it is dropped.
    pub(crate) fn abandon(mut self) {
        if let Some(Pipe::Threaded { cancel, .. }) = self.pipe.take() {
            // The worker is detached: it sees the flag, or that nobody sends any more.
            cancel.store(true, Ordering::Release);
        }
    }
}

/// What a bulk writer ended with.
pub(crate) enum Gathered {
    /// A run of its own, synced.
    Run(Arc<Run>),
    /// Too few rows for one.
    Rows(Vec<Chunk>),
}

impl Pipe {
    fn open(plan: &BulkPlan, file: FileId) -> Result<Pipe> {
        let writer = RunWriter::create(&plan.recipe, file)?;
        if !plan.threaded {
            return Ok(Pipe::Inline(Box::new(writer)));
        }
        let (jobs, inbox) = sync_channel::<Chunk>(plan.depth);
        let (give_back, empty) = sync_channel::<Chunk>(plan.depth + 2);
        let cancel = Arc::new(AtomicBool::new(false));
        let flag = cancel.clone();
        let worker = std::thread::Builder::new()
            .name("esker-bulk".into())
            .spawn(move || work(writer, &inbox, &give_back, &flag))
            .map_err(|e| Error::OutOfMemory(format!("thread for bulk writing: {e}")))?;
        Ok(Pipe::Threaded { jobs, empty, cancel, worker })
    }

    /// Waits for the worker; the writer with all blocks in it.
    fn join(self) -> Result<Option<RunWriter>> {
        match self {
            Pipe::Inline(writer) => Ok(Some(*writer)),
            Pipe::Threaded { jobs, worker, .. } => {
                drop(jobs);
                timed(WaitEvent::BulkWorker, || worker.join())
                    .unwrap_or_else(|_| Err(Error::Poisoned("bulk worker panicked".into())))
            }
        }
    }
}

/// Gives the worker a chunk, and counts the wait if it lags behind.
fn hand_over(jobs: &SyncSender<Chunk>, chunk: Chunk) -> std::result::Result<(), ()> {
    match jobs.try_send(chunk) {
        Ok(()) => Ok(()),
        Err(TrySendError::Full(chunk)) => timed(WaitEvent::BulkWorker, || jobs.send(chunk)).map_err(|_| ()),
        Err(TrySendError::Disconnected(_)) => Err(()),
    }
}

fn work(
    mut writer: RunWriter,
    inbox: &Receiver<Chunk>,
    give_back: &SyncSender<Chunk>,
    cancel: &AtomicBool,
) -> Result<Option<RunWriter>> {
    for mut chunk in inbox {
        if cancel.load(Ordering::Acquire) {
            break;
        }
        chunk.write(&mut writer)?;
        chunk.clear();
        let _ = give_back.try_send(chunk);
    }
    Ok((!cancel.load(Ordering::Acquire)).then_some(writer))
}
