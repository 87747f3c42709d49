//! What large writes of all sessions may take: memory and threads.
//!
//! Owns one budget of bytes and a few workers that encode and write chunks for whoever has some. A large write that finds
//! the budget used up spills what its transaction holds, or goes on with a run that it writes itself (see `private.rs`), so
//! memory is bounded however many sessions, tables and partitions are written at once, and the number of threads is constant.
//! Invariants: `used` is the sum of all live [`Share`]s; a stream's chunks are written in the order in which they came, by
//! one worker at a time; they take no more memory until they are written than its share was reckoned with, or are one chunk.

use crate::host::{self, Host};
use crate::lock::Parker;
use crate::tree::run::writer::RunWriter;
use crate::write::bulk::Chunk;
use crate::{Error, Result};
use esker_base::lock::{order, Condvar, Mutex};
use esker_base::trace::{helped, Helped};
use esker_base::wait::{timed, WaitEvent};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// Threads that write chunks, for all sessions together.
const WORKERS: usize = 2;
/// Chunks that a worker takes before it looks whether others wait too.
const CHUNKS_AT_ONCE: usize = 16;
/// Streams of one transaction at a time: each makes a file, what goes into more trees is spilled into one together.
const MOST_STREAMS: usize = 8;
/// How often who waits for a worker looks whether he was killed.
const TICK: Duration = Duration::from_millis(100);
/// Nobody has to spill less than this, in bytes.
const LEAST_SPILL_BYTES: u64 = 64 << 10;

/// The budget, in bytes.
pub(crate) struct Budget {
    limit: AtomicU64,
    used: AtomicU64,
    /// Of what is used: streams.
    streams: AtomicU64,
    /// Of what is used: filters of own keys.
    filters: AtomicU64,
    /// Transactions that write large.
    writers: AtomicU64,
}

impl Budget {
    pub(crate) fn new(memory_limit_bytes: u64) -> Arc<Budget> {
        let budget = Budget {
            limit: AtomicU64::new(0),
            used: AtomicU64::new(0),
            streams: AtomicU64::new(0),
            filters: AtomicU64::new(0),
            writers: AtomicU64::new(0),
        };
        budget.set_memory_limit(memory_limit_bytes);
        Arc::new(budget)
    }

    /// A quarter of the engine's memory.
    pub(crate) fn set_memory_limit(&self, bytes: u64) {
        self.limit.store(bytes / 4, Ordering::Relaxed);
    }

    pub(crate) fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }

    #[cfg(test)]
    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    #[cfg(test)]
    pub(crate) fn filters(&self) -> u64 {
        self.filters.load(Ordering::Relaxed)
    }

    /// Must a writer that holds `own` bytes spill some of them? Not while it has less than half of its fair share: then
    /// others are to.
    pub(crate) fn must_spill(&self, own: u64) -> bool {
        let limit = self.limit();
        let fair = limit / (2 * self.writers.load(Ordering::Relaxed).max(1));
        self.used.load(Ordering::Relaxed) > limit && own > fair.max(LEAST_SPILL_BYTES)
    }

    /// Is so much used that nobody should keep anything over an idle moment?
    pub(crate) fn is_crowded(&self) -> bool {
        self.used.load(Ordering::Relaxed) > self.limit() / 4 * 3
            || self.streams.load(Ordering::Relaxed) > self.limit() / 8 * 3
    }
}

/// A part of the budget that somebody uses.
pub(crate) struct Share {
    budget: Arc<Budget>,
    bytes: u64,
    of: Of,
}

/// What a share is for, where that has a bound of its own.
enum Of {
    Anything,
    /// What counts as a stream's, and the number of its transaction's.
    Stream(u64, Arc<AtomicUsize>),
    Filter,
}

impl Share {
    pub(crate) fn new(budget: &Arc<Budget>) -> Share {
        Share { budget: budget.clone(), bytes: 0, of: Of::Anything }
    }

    /// What a stream takes: its file's buffers, and chunks, which have shares of their own. None if streams have half of
    /// the budget already and this is not the only one, or the transaction, which has `own`, has enough of them.
    pub(crate) fn of_stream(budget: &Arc<Budget>, own: &Arc<AtomicUsize>, buffers: u64, chunks: u64) -> Option<Share> {
        Share::within(budget, own, (buffers, chunks), budget.limit() / 2)
    }

    /// The same for a run that its session writes, with as little memory as can be: these may have another quarter.
    pub(crate) fn of_lean(budget: &Arc<Budget>, own: &Arc<AtomicUsize>, buffers: u64, chunks: u64) -> Option<Share> {
        Share::within(budget, own, (buffers, chunks), budget.limit() / 4 * 3)
    }

    fn within(budget: &Arc<Budget>, own: &Arc<AtomicUsize>, (buffers, chunks): (u64, u64), most: u64) -> Option<Share> {
        if own.load(Ordering::Relaxed) >= MOST_STREAMS {
            return None;
        }
        let stream_bytes = buffers + chunks;
        let take = |used: u64| (used == 0 || used + stream_bytes <= most).then_some(used + stream_bytes);
        budget.streams.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).ok()?;
        budget.used.fetch_add(buffers, Ordering::Relaxed);
        own.fetch_add(1, Ordering::Relaxed);
        Some(Share { budget: budget.clone(), bytes: buffers, of: Of::Stream(stream_bytes, own.clone()) })
    }

    /// What a filter of a transaction's own keys takes: so many bytes, or fewer if these are what is left of an eighth of the
    /// budget, which all filters have together. None if that is less than `least`.
    pub(crate) fn of_filter(budget: &Arc<Budget>, bytes: u64, least: u64) -> Option<Share> {
        let most = budget.limit() / 8;
        let part = |used: u64| Some(most.saturating_sub(used).min(bytes)).filter(|bytes| *bytes >= least);
        let take = |used: u64| part(used).map(|bytes| used + bytes);
        let used = budget.filters.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).ok()?;
        let bytes = part(used)?;
        budget.used.fetch_add(bytes, Ordering::Relaxed);
        Some(Share { budget: budget.clone(), bytes, of: Of::Filter })
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn resize(&mut self, bytes: u64) {
        // Wraps around where it shrinks.
        self.budget.used.fetch_add(bytes.wrapping_sub(self.bytes), Ordering::Relaxed);
        self.bytes = bytes;
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
        match &self.of {
            Of::Anything => {}
            Of::Stream(bytes, own) => {
                self.budget.streams.fetch_sub(*bytes, Ordering::Relaxed);
                own.fetch_sub(1, Ordering::Relaxed);
            }
            Of::Filter => drop(self.budget.filters.fetch_sub(self.bytes, Ordering::Relaxed)),
        }
    }
}

/// A transaction that writes large, for as long as it lives.
pub(crate) struct LargeWriter {
    budget: Arc<Budget>,
    /// How many streams it has.
    pub(crate) streams: Arc<AtomicUsize>,
}

impl LargeWriter {
    pub(crate) fn new(budget: &Arc<Budget>) -> LargeWriter {
        budget.writers.fetch_add(1, Ordering::Relaxed);
        LargeWriter { budget: budget.clone(), streams: Arc::default() }
    }
}

impl Drop for LargeWriter {
    fn drop(&mut self) {
        self.budget.writers.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Default)]
struct Queue {
    ready: VecDeque<Arc<Stream>>,
    stop: bool,
}

/// The workers and their queue.
#[derive(Clone)]
pub(crate) struct Pool(Arc<(Mutex<Queue>, Condvar)>);

impl Pool {
    pub(crate) fn new() -> Pool {
        Pool(Arc::new((Mutex::new(&order::BULK_QUEUE, Queue::default()), Condvar::new())))
    }

    /// Starts the workers, each of which is given to `keep`.
    pub(crate) fn start(&self, host: &dyn Host, keep: &dyn Fn(JoinHandle<()>)) -> Result<()> {
        (1..=WORKERS).try_for_each(|n| {
            let pool = self.clone();
            let spawned = host.spawn(&format!("esker-bulk-{n}"), Box::new(move || pool.run()));
            spawned.map(keep).map_err(|e| Error::OutOfMemory(format!("thread for bulk writing: {e}")))
        })
    }

    /// Counts who has the pool: the engine and each worker.
    #[cfg(test)]
    pub(crate) fn watched(&self) -> impl Fn() -> usize {
        let weak = Arc::downgrade(&self.0);
        move || weak.strong_count()
    }

    pub(crate) fn stop(&self) {
        let (queue, changed) = &*self.0;
        queue.lock().stop = true;
        changed.notify_all();
    }

    fn submit(&self, stream: Arc<Stream>) {
        let (queue, changed) = &*self.0;
        let mut queue = queue.lock();
        if queue.stop {
            drop(queue);
            while stream.work() {}
            return;
        }
        queue.ready.push_back(stream);
        drop(queue);
        changed.notify_one();
    }

    fn run(&self) {
        let (queue, changed) = &*self.0;
        loop {
            let stream = {
                let mut queue = queue.lock();
                loop {
                    match queue.ready.pop_front() {
                        Some(stream) => break stream,
                        None if queue.stop => return,
                        None => changed.wait(&mut queue),
                    }
                }
            };
            if stream.work() {
                self.submit(stream);
            }
        }
    }
}

/// A run that a worker writes while chunks for it come.
pub(crate) struct Stream {
    pool: Pool,
    /// Memory of the chunks that wait or are being written, in bytes; one chunk may take more.
    most_bytes: u64,
    state: Mutex<StreamState>,
    changed: Condvar,
}

struct StreamState {
    jobs: VecDeque<Chunk>,
    /// Memory of `jobs` and of what a worker has of them, in bytes.
    sent_bytes: u64,
    empty: Vec<Chunk>,
    /// Gone while a worker has it, and after an error.
    writer: Option<Box<RunWriter>>,
    failed: Option<Error>,
    /// A worker has it, or will have.
    busy: bool,
    cancelled: bool,
    /// The part of the budget of one that was cancelled, until its writer is gone.
    held: Option<Share>,
    /// The session that sent the last chunk, if it is traced.
    helped: Option<Helped>,
}

impl Stream {
    pub(crate) fn new(pool: &Pool, writer: RunWriter, most_bytes: u64) -> Arc<Stream> {
        let state = StreamState {
            jobs: VecDeque::new(),
            sent_bytes: 0,
            empty: Vec::new(),
            writer: Some(Box::new(writer)),
            failed: None,
            busy: false,
            cancelled: false,
            held: None,
            helped: None,
        };
        let state = Mutex::new(&order::BULK_STREAM, state);
        Arc::new(Stream { pool: pool.clone(), most_bytes, state, changed: Condvar::new() })
    }

    /// Hands a chunk on; waits until there is room for it, or the session is killed: an error here would lose the chunk's rows,
    /// those of earlier statements too. An empty one in exchange, if there is one.
    pub(crate) fn send(self: &Arc<Self>, chunk: Chunk, host: &dyn Host, session: &Parker) -> Result<Option<Chunk>> {
        let mut state = self.state.lock();
        let bytes = chunk.memory_bytes();
        let must_wait = |state: &StreamState| {
            let is_full = state.sent_bytes > 0 && state.sent_bytes + bytes > self.most_bytes;
            is_full && state.failed.is_none() && !session.is_killed()
        };
        if must_wait(&state) {
            #[cfg(test)]
            crate::tests::hooks::reached("a stream has no room");
            timed(WaitEvent::BulkWorker, || {
                while must_wait(&state) {
                    host::wait_for(host, &self.changed, &mut state, TICK);
                }
            });
        }
        if let Some(e) = &state.failed {
            return Err(e.clone());
        }
        state.jobs.push_back(chunk);
        state.sent_bytes += bytes;
        state.helped = helped();
        let idle = !std::mem::replace(&mut state.busy, true);
        let empty = state.empty.pop();
        drop(state);
        if idle {
            self.pool.submit(self.clone());
        }
        Ok(empty)
    }

    /// Waits until all is written; the writer with all blocks in it.
    pub(crate) fn finish(&self) -> Result<RunWriter> {
        let mut state = self.state.lock();
        if state.busy {
            timed(WaitEvent::BulkWorker, || {
                while state.busy {
                    self.changed.wait(&mut state);
                }
            });
        }
        match (state.failed.clone(), state.writer.take()) {
            (Some(e), _) => Err(e),
            (None, Some(writer)) => Ok(*writer),
            (None, None) => Err(Error::Poisoned("a bulk writer lost its run".into())),
        }
    }

    /// Gives everything up, without waiting. An unfinished run removes its file when it is dropped: that takes time in
    /// proportion to its length, and is a worker's to do; until then it keeps its `share` of the budget.
    pub(crate) fn cancel(self: &Arc<Self>, share: Share) {
        let mut state = self.state.lock();
        state.cancelled = true;
        state.held = Some(share);
        let gone = std::mem::take(&mut state.jobs);
        let idle = state.writer.is_some() && !std::mem::replace(&mut state.busy, true);
        drop(state);
        drop(gone);
        if idle {
            self.pool.submit(self.clone());
        }
    }

    /// A worker's part; true if there is more to do.
    fn work(&self) -> bool {
        let (chunks, writer, helped) = {
            let mut state = self.state.lock();
            let n = state.jobs.len().min(CHUNKS_AT_ONCE);
            (state.jobs.drain(..n).collect::<Vec<_>>(), state.writer.take(), state.helped.clone())
        };
        let written = writer.map(|writer| match helped {
            Some(session) => session.helps(|| self.write(writer, chunks)),
            None => self.write(writer, chunks),
        });
        let mut state = self.state.lock();
        let mut gone = None;
        match written {
            Some(Ok(writer)) if state.cancelled => gone = Some(writer),
            Some(Ok(writer)) => state.writer = Some(writer),
            Some(Err(e)) => state.failed = Some(e),
            // Cancelled.
            None => {}
        }
        if state.failed.is_some() || state.cancelled {
            state.jobs.clear();
        }
        state.busy = !state.jobs.is_empty();
        let more = state.busy;
        drop(state);
        self.changed.notify_all();
        drop(gone);
        more
    }

    /// Writes the chunks and empties them. A panic is an error, not the end of the worker.
    fn write(&self, mut writer: Box<RunWriter>, chunks: Vec<Chunk>) -> Result<Box<RunWriter>> {
        let work = std::panic::AssertUnwindSafe(|| {
            for mut chunk in chunks {
                let bytes = chunk.memory_bytes();
                chunk.write(&mut writer)?;
                chunk.clear();
                self.wrote(chunk, bytes);
            }
            Ok(())
        });
        std::panic::catch_unwind(work).unwrap_or_else(|_| Err(Error::Poisoned("a bulk worker panicked".into())))?;
        Ok(writer)
    }

    /// A chunk that took so many bytes is written and empty.
    fn wrote(&self, chunk: Chunk, bytes: u64) {
        let mut state = self.state.lock();
        state.sent_bytes -= bytes;
        let kept_bytes = state.empty.iter().map(Chunk::memory_bytes).sum::<u64>() + chunk.memory_bytes();
        let left_over = match chunk.memory_bytes() > 0 && state.sent_bytes + kept_bytes <= self.most_bytes {
            true => {
                state.empty.push(chunk);
                None
            }
            false => Some(chunk),
        };
        // Not for each one: who sends is woken to several.
        let tells = state.sent_bytes <= self.most_bytes / 2;
        drop(state);
        drop(left_over);
        if tells {
            self.changed.notify_all();
        }
    }
}
