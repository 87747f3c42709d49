//! What an engine is opened with, what of it can be set while it is open, and the sink of its messages.

use crate::host::{Host, Machine};
use esker_format::{Collations, NoCollations};
use esker_wal::{FlushMode, SyncMethod};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicU8, AtomicUsize, Ordering};
use std::sync::Arc;

/// Who does background work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Background {
    /// Threads of the engine.
    Threads,
    /// The calling thread, at fixed points: deterministic, for simulation.
    Inline,
}

/// Settings of an engine. What lies beyond its means is taken as the nearest that does not.
#[derive(Debug, Clone)]
pub struct Options {
    /// Bound of all large memory: memtables, block cache, buffers. Rows in hand, each a few times its size, and what the process's
    /// allocator keeps come on top. Bytes.
    pub memory_limit_bytes: u64,
    /// Buffers of one bulk writer, in bytes.
    pub bulk_buffer_bytes: usize,
    /// A transaction's small writes beyond this many bytes go to private runs.
    pub bulk_threshold_bytes: usize,
    /// A gathered bulk buffer below this size ends in memtable and log, not in a run of its own. Bytes.
    pub min_run_bytes: usize,
    /// Uncompressed size of a block, in bytes.
    pub block_bytes: usize,
    /// The same of what is looked up one by one, keys and the rows of tables that have keys, if it is less: who wants one row
    /// reads and keeps a block. The default leaves room for what else a block has, so that it takes 16 KiB of memory.
    pub lookup_block_bytes: usize,
    /// Size of a log segment, in bytes.
    pub wal_segment_bytes: u64,
    /// How the log's groups are made durable. None: each opening tries the methods on a file of the log, half a second at
    /// most, takes another than fdatasync if it is a tenth faster at least, beyond doubt, and tells the figures. One that
    /// the system refuses gives way to fdatasync, with a warning.
    ///
    /// Fdatasync is the default: it is there everywhere, and on a device whose flushes vary more than the methods differ half
    /// a second more at every start buys nothing, or another answer each time.
    pub sync_method: Option<SyncMethod>,
    /// The log's tail is kept short enough to be replayed in this time, in seconds.
    pub recovery_target_seconds: u32,
    /// The same as a number of bytes, whatever the time; for tests.
    pub recovery_target_bytes: Option<u64>,
    /// Threads or inline.
    pub background: Background,
    /// Level of zstd compression.
    pub zstd_level: i32,
    /// A merge begins a new run once the one it writes has so many bytes, and ends a step soon after twice as many.
    pub run_bytes: u64,
    /// Run files that are open at once; never more than a quarter of what the process may have open.
    pub max_open_runs: usize,
    /// Change nothing in the folder (but its lock file): recovery works on copies in memory, writing is refused.
    pub read_only: bool,
    /// Time and threads.
    pub host: Arc<dyn Host>,
    /// What strings weigh, for indexes over text that is not compared as bytes.
    pub collations: Arc<dyn Collations>,
}

/// More redo than a frame of the log takes cannot be committed.
const MOST_THRESHOLD_BYTES: usize = 64 << 20;
const MOST_MIN_RUN_BYTES: usize = 32 << 20;
/// A block has at least a row, and at most as much as one can be read of.
const LEAST_BLOCK_BYTES: usize = 512;
const MOST_BLOCK_BYTES: usize = 16 << 20;
/// Disks have no room for larger files, and a few of them can be added up.
const MOST_FILE_BYTES: u64 = 1 << 50;

impl Options {
    /// The same within what the engine can do with.
    pub(crate) fn sound(self) -> Self {
        let block = |bytes: usize| bytes.clamp(LEAST_BLOCK_BYTES, MOST_BLOCK_BYTES);
        Options {
            bulk_threshold_bytes: self.bulk_threshold_bytes.min(MOST_THRESHOLD_BYTES),
            min_run_bytes: self.min_run_bytes.min(MOST_MIN_RUN_BYTES),
            block_bytes: block(self.block_bytes),
            lookup_block_bytes: block(self.lookup_block_bytes),
            wal_segment_bytes: self.wal_segment_bytes.min(MOST_FILE_BYTES),
            run_bytes: self.run_bytes.min(MOST_FILE_BYTES),
            ..self
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Options {
            memory_limit_bytes: 256 << 20,
            bulk_buffer_bytes: 4 << 20,
            bulk_threshold_bytes: 512 << 10,
            min_run_bytes: 2 << 20,
            block_bytes: 64 << 10,
            lookup_block_bytes: 15 << 10,
            wal_segment_bytes: 64 << 20,
            sync_method: Some(SyncMethod::Fdatasync),
            recovery_target_seconds: 5,
            recovery_target_bytes: None,
            background: Background::Threads,
            zstd_level: 1,
            run_bytes: 128 << 20,
            max_open_runs: 512,
            read_only: false,
            host: Arc::new(Machine),
            collations: Arc::new(NoCollations),
        }
    }
}

/// What can be set while the engine is open.
pub(crate) struct Settings {
    flush_mode: AtomicU8,
    /// There may be commits that nobody synced, of a mode that does not wait for it.
    owes_sync: AtomicBool,
    memory_limit_bytes: AtomicU64,
    bulk_buffer_bytes: AtomicUsize,
}

impl Settings {
    pub(crate) fn of(options: &Options) -> Arc<Self> {
        Arc::new(Settings {
            flush_mode: AtomicU8::new(FlushMode::EveryCommit as u8),
            owes_sync: AtomicBool::new(false),
            memory_limit_bytes: AtomicU64::new(options.memory_limit_bytes),
            bulk_buffer_bytes: AtomicUsize::new(options.bulk_buffer_bytes),
        })
    }

    pub(crate) fn flush_mode(&self) -> FlushMode {
        match self.flush_mode.load(Ordering::Relaxed) {
            0 => FlushMode::Lazy,
            2 => FlushMode::WriteOnly,
            _ => FlushMode::EveryCommit,
        }
    }

    pub(crate) fn set_flush_mode(&self, mode: FlushMode) {
        let before = self.flush_mode.swap(mode as u8, Ordering::Relaxed);
        if [before, mode as u8] != [FlushMode::EveryCommit as u8; 2] {
            self.owes_sync.store(true, Ordering::Relaxed);
        }
    }

    /// Are there commits whose sync nobody waits for, or may there be some of before the mode changed?
    pub(crate) fn owes_sync(&self) -> bool {
        self.flush_mode() != FlushMode::EveryCommit || self.owes_sync.load(Ordering::Relaxed)
    }

    /// The log is about to be synced for them. While the mode lasts there come more.
    pub(crate) fn pays_sync(&self) {
        if self.flush_mode() == FlushMode::EveryCommit {
            self.owes_sync.store(false, Ordering::Relaxed);
        }
    }

    pub(crate) fn memory_limit_bytes(&self) -> u64 {
        self.memory_limit_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn set_memory_limit_bytes(&self, bytes: u64) {
        self.memory_limit_bytes.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn bulk_buffer_bytes(&self) -> usize {
        self.bulk_buffer_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn set_bulk_buffer_bytes(&self, bytes: usize) {
        self.bulk_buffer_bytes.store(bytes, Ordering::Relaxed);
    }
}

/// Importance of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// For the record.
    Info,
    /// Something to look at.
    Warning,
    /// Something is wrong.
    Error,
}

/// Where the engine's messages go: the error log of a front end.
pub type Notify = Arc<dyn Fn(&str, Level) + Send + Sync>;
