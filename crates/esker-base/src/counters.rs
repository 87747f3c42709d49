//! Event counters, per session and for the whole process.
//!
//! Owns the list of counters and the blocks of memory that they live in. A block is written by the one thread that is
//! bound to it, with a plain load and store, and may be read by any thread at any time. Blocks are never freed: a
//! closed session's block goes to the next session, which remembers what the block held at that time. So totals are
//! the sum over all blocks ever made: they never fall, count closed sessions without folding, and are read without a
//! lock.

use crate::wait::{OwnWaits, WaitEvent, Waited};
use crate::WITHOUT_FIGURES;
use parking_lot::Mutex;
use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

macro_rules! counters {
    ($($variant:ident $name:literal $help:literal,)+) => {
        /// Everything that is counted. Units stand at the end of the name; what has none is a number of events.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(usize)]
        pub enum Counter {
            $(#[doc = $help] $variant,)+
        }

        impl Counter {
            /// Every counter, in the order of the enum.
            pub const ALL: &'static [Counter] = &[$(Counter::$variant,)+];
            /// How many there are.
            pub const COUNT: usize = Self::ALL.len();

            /// Name in snake_case; the status variable is `Esker_<name>`.
            pub const fn name(self) -> &'static str {
                match self { $(Counter::$variant => $name,)+ }
            }

            /// One line for people.
            pub const fn help(self) -> &'static str {
                match self { $(Counter::$variant => $help,)+ }
            }
        }
    };
}

counters! {
    RowsRead "rows_read" "Rows handed to the caller by scans and by position",
    RowsExamined "rows_examined" "Rows that scans came to, visible or not",
    VersionsPassed "versions_passed" "Row versions that readers passed over, as they are newer than their view or undone",
    RowsInserted "rows_inserted" "Rows inserted",
    RowsUpdated "rows_updated" "Rows updated",
    RowsDeleted "rows_deleted" "Rows deleted",
    RowsPurged "rows_purged" "Row versions that no view needs any more, dropped by flush or merge",
    Scans "scans" "Table scans started",
    KeysLookedUp "keys_looked_up" "Whole keys of unique indexes that were looked up as they stand, without a scan",
    CountsKept "counts_kept" "Counts of a table's rows that were answered without reading it",
    Batches "batches" "Batches of rows decoded ahead for a scan",
    RowBytesOut "row_bytes_out" "Bytes of row images handed to the caller",

    Commits "commits" "Transactions committed that had changed something",
    Rollbacks "rollbacks" "Transactions rolled back that had begun to change something, by statements that failed, too",
    StatementRollbacks "statement_rollbacks" "Statements rolled back within a transaction",
    Prepares "prepares" "Transactions prepared",
    DecisionsByOthers "decisions_by_others" "Decisions of commit_ordered that another session had carried out before its own came to it",
    Views "views" "Read views taken",
    ReadsFollowed "reads_followed" "Times a reader that locks nothing went on in the newest state of what it reads, under its view",
    RowLocks "row_locks" "Row locks taken",
    LockWaits "lock_waits" "Row lock requests that had to wait",
    LockWaitUs "lock_wait_us" "Microseconds spent waiting for row locks",
    LockTimeouts "lock_timeouts" "Row lock waits that ended by timeout",
    Deadlocks "deadlocks" "Row lock waits that were refused to break a circle",

    WalRecords "wal_records" "Frames appended to the log, each of records that go together",
    WalBytes "wal_bytes" "Bytes of frames appended to the log, before they are written",
    WalSyncRequests "wal_sync_requests" "Times somebody asked that the log be durable up to a position",
    WalSyncs "wal_syncs" "Syncs of the log for those who asked, each by one of them",
    WalSyncsCovered "wal_syncs_covered" "Requests that were served by another's sync",
    GroupClosedAtOnce "group_closed_at_once" "Syncs that began at once, since no committer was expected",
    GroupClosedByCost "group_closed_by_cost" "Syncs that began at once, since those who are expected need longer than a sync",
    GroupClosedByAll "group_closed_by_all" "Syncs that were put off until all who were expected had come",
    GroupClosedByTime "group_closed_by_time" "Syncs that were put off for somebody who did not come in time",
    WalSegmentsCreated "wal_segments_created" "Log segments made new",
    WalSegmentsRecycled "wal_segments_recycled" "Log segments used again",

    WritesWal "writes_wal" "Physical writes to the log",
    WritesWalDsync "writes_wal_dsync" "Those of them that were durable when they returned, without a sync",
    WritesWalLinked "writes_wal_linked" "Those of them that were synced by the same call, by io_uring",
    WritesRun "writes_run" "Physical writes to run files",
    WritesManifest "writes_manifest" "Physical writes to the manifest and other metadata",
    BytesWrittenWal "bytes_written_wal" "Bytes physically written to the log",
    BytesWrittenRun "bytes_written_run" "Bytes physically written to run files",
    BytesWrittenManifest "bytes_written_manifest" "Bytes physically written to the manifest and other metadata",
    ReadsWal "reads_wal" "Physical reads of the log",
    ReadsRun "reads_run" "Physical reads of run files",
    ReadsManifest "reads_manifest" "Physical reads of the manifest and other metadata",
    BytesReadWal "bytes_read_wal" "Bytes physically read from the log",
    BytesReadRun "bytes_read_run" "Bytes physically read from run files",
    BytesReadManifest "bytes_read_manifest" "Bytes physically read from the manifest and other metadata",
    SyncsWal "syncs_wal" "Syncs of the log by a call of their own",
    SyncsRun "syncs_run" "Syncs of run files",
    SyncsManifest "syncs_manifest" "Syncs of the manifest and other metadata",
    SyncsDir "syncs_dir" "Syncs of folders",
    FilesOpened "files_opened" "Files opened or created",

    BuffersFilled "buffers_filled" "Buffers of bulk rows filled and handed to the writer",
    BufferWrites "buffer_writes" "Writes of whole buffers by sequential file writers",
    BufferWritesQueued "buffer_writes_queued" "Those of them that went on while the next buffer was filled",
    BufferWritesKept "buffer_writes_kept" "Those of them that went through the page cache, where who reads them next finds them",
    BulkBytes "bulk_bytes" "Bytes of rows that went to private runs instead of the log",

    RowIdsKept "row_ids_kept" "Rows inserted where their transaction had deleted the row of the same primary key, with its row id",
    EntriesTogether "entries_together" "Index entries of rows inserted by one statement that were put into memory together",

    LargeSpills "large_spills" "Times a large write spilled what it had gathered, since memory for large writes was short",

    RunsCreated "runs_created" "Run files created",
    RunsRemoved "runs_removed" "Run files removed",
    RunsAttached "runs_attached" "Run files that joined their tree",
    KeyRunsAttached "key_runs_attached" "Those of them that hold entries of an index",
    IndexesBuilt "indexes_built" "Indexes built for tables that are there already",
    IndexesSampled "indexes_sampled" "Times an index was looked into for how many of its entries are alike",
    BlocksWritten "blocks_written" "Blocks encoded into runs",
    BlocksCached "blocks_cached" "Blocks found in the block cache",
    BlocksMissed "blocks_missed" "Blocks not found in the block cache",
    BlocksPagecache "blocks_pagecache" "Those of them that the operating system had in its page cache",
    BlocksDevice "blocks_device" "Those of them that had to come from the device; where the file system does not tell, neither is counted",
    BlocksReadAhead "blocks_read_ahead" "Blocks that were read together with one that was wanted, by one call, for who reads block after block",
    BlocksEvicted "blocks_evicted" "Blocks dropped from the block cache",
    BlocksUnpacked "blocks_unpacked" "Blocks in use whose decompressed content took the place of what they were read as, since memory is short",
    ReadsAnnounced "reads_announced" "Times the operating system was told which blocks will be read next, by who reads block after block",
    FiltersDenied "filters_denied" "Blocks that need not be read for a key, as their filters deny it",
    FiltersPassed "filters_passed" "Blocks that are read for a key, as far as their filters know it",
    BlocksSkipped "blocks_skipped" "Blocks that scans need not read, since a DELETE of all rows came after all that is in them",
    BlocksDamaged "blocks_damaged" "Blocks whose checksum or contents were wrong, when somebody met the first of a run, and all findings of checks",

    Flushes "flushes" "Memtables written out as runs",
    KeyFlushes "key_flushes" "Those of them that hold entries of an index",
    FlushesAtRest "flushes_at_rest" "Those of trees to which nothing was written for a while",
    FlushBytes "flush_bytes" "Bytes of the runs that flushes wrote, those of open transactions too",
    FlushSyncs "flush_syncs" "Syncs of those runs and of their folder",
    FlushUs "flush_us" "Microseconds that flushes took, from when the memtable was frozen until its run was in its place",
    VersionsCarried "versions_carried" "Row versions of unended transactions that a flush copied to the next memtable",
    RunsMoved "runs_moved" "Private runs that a flush made of what an unended transaction had in a memtable",
    Merges "merges" "Merges of runs",
    KeyMerges "key_merges" "Those of them that hold entries of an index",
    MergedBytes "merged_bytes" "Bytes that merges wrote",
    BlocksCopied "blocks_copied" "Blocks that merges copied without decoding them",
    RunsNarrowed "runs_narrowed" "Parts of runs that merges left in their tree, having taken the rest",
    VersionsSettled "versions_settled" "Versions that merges wrote as committed long ago, as every view sees them and nothing older is left",
    MergesForReads "merges_for_reads" "Merges of runs that readers had to look into beside others",
    Checkpoints "checkpoints" "Manifests written",
    ManifestEdits "manifest_edits" "Checkpoints that appended to the manifest what had changed, instead of writing it anew",
    MemoryStalls "memory_stalls" "Times a writer waited for memory",
    MemoryStallUs "memory_stall_us" "Microseconds that writers waited for memory",
    MemoryReturnedBytes "memory_returned_bytes" "Bytes of regions that were given back to the operating system",
    MemoryReturnCalls "memory_return_calls" "System calls that gave memory back",
    MemoryReturnUs "memory_return_us" "Microseconds that those took",
    LogStalls "log_stalls" "Times a commit waited since the log's tail had become long",
    RecoveryRecords "recovery_records" "Frames of the log replayed at the start: what was appended together is one",
    RecoveryBytes "recovery_bytes" "Log bytes replayed at the start",
}

impl std::fmt::Display for Counter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// The counters of one session at a time. Aligned so that no two sessions share a cache line.
#[repr(align(128))]
struct Block {
    values: [AtomicU64; Counter::COUNT],
    waits: OwnWaits,
    next: AtomicPtr<Block>,
}

impl Block {
    const fn new() -> Self {
        Block {
            values: [const { AtomicU64::new(0) }; Counter::COUNT],
            waits: OwnWaits::new(),
            next: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    fn get(&self, counter: Counter) -> u64 {
        self.values[counter as usize].load(Ordering::Relaxed)
    }
}

/// Takes what threads without a session count; the head of the list of all blocks.
static SHARED: Block = Block::new();
/// Blocks whose session is closed. Taken when sessions open and close, never by counting or reading.
static IDLE: Mutex<Vec<&'static Block>> = Mutex::new(Vec::new());

thread_local! {
    static BOUND: Cell<Option<&'static Block>> = const { Cell::new(None) };
}

fn blocks() -> impl Iterator<Item = &'static Block> {
    let mut block = Some(&SHARED);
    std::iter::from_fn(move || {
        let this = block?;
        // SAFETY: `next` is null or points to a leaked block, published with release order.
        block = unsafe { this.next.load(Ordering::Acquire).as_ref() };
        Some(this)
    })
}

fn take_block() -> &'static Block {
    let mut idle = IDLE.lock();
    if let Some(block) = idle.pop() {
        return block;
    }
    // Still under the lock, so that nobody else links a block at the same time.
    let block: &'static mut Block = Box::leak(Box::new(Block::new()));
    *block.next.get_mut() = SHARED.next.load(Ordering::Relaxed);
    SHARED.next.store(block, Ordering::Release);
    block
}

/// The counters of one session. They start at zero; what they hold stays in [`global_total`] after the session.
///
/// Only one thread at a time may be bound to it, else counts can be lost (nothing worse).
pub struct SessionCounters {
    block: &'static Block,
    base: [u64; Counter::COUNT],
}

impl SessionCounters {
    /// Memory that a session's figures take, waits included. It goes to the next session, and never back.
    pub const BYTES: u64 = size_of::<Block>() as u64;

    /// Counters of a new session, all zero.
    pub fn new() -> Self {
        let block = take_block();
        let base = std::array::from_fn(|i| block.values[i].load(Ordering::Relaxed));
        // Nobody is bound to it.
        block.waits.forget();
        SessionCounters { block, base }
    }

    /// How often and how long this session has waited, since it began or since [`forget_waits`](Self::forget_waits).
    pub fn waited(&self, event: WaitEvent) -> Waited {
        self.block.waits.get(event)
    }

    /// Its waits are counted from zero, whichever thread says so; of one that ends at this moment the longest may be lost.
    pub fn forget_waits(&self) {
        self.block.waits.forget();
    }

    /// Nanoseconds of waiting that it, or another session before it, ever counted: for differences.
    pub fn waited_ns_ever(&self, event: WaitEvent) -> u64 {
        self.block.waits.sum_ns_ever(event)
    }

    /// What this session has counted.
    pub fn get(&self, counter: Counter) -> u64 {
        self.block.get(counter).wrapping_sub(self.base[counter as usize])
    }
}

impl Default for SessionCounters {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for SessionCounters {
    fn drop(&mut self) {
        IDLE.lock().push(self.block);
    }
}

impl AsRef<SessionCounters> for SessionCounters {
    fn as_ref(&self) -> &SessionCounters {
        self
    }
}

impl std::fmt::Debug for SessionCounters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let nonzero = Counter::ALL.iter().map(|&c| (c, self.get(c))).filter(|&(_, n)| n != 0);
        f.debug_map().entries(nonzero.map(|(c, n)| (c.name(), n))).finish()
    }
}

/// While it lives, [`count`] on this thread counts for a session. Dropping it goes back to what was bound before.
#[must_use = "the session is bound only while this lives"]
pub struct Bound {
    previous: Option<&'static Block>,
    /// It belongs to the thread that made it.
    not_send: PhantomData<*const ()>,
}

/// Binds this thread to a session's counters (`&SessionCounters`, `Arc<SessionCounters>` and `&Arc<..>` all do). The
/// session must outlive the binding, or the counts go to whoever takes its place.
pub fn bind(session: impl AsRef<SessionCounters>) -> Bound {
    let previous = BOUND.replace(Some(session.as_ref().block));
    Bound { previous, not_send: PhantomData }
}

impl Drop for Bound {
    fn drop(&mut self) {
        BOUND.set(self.previous);
    }
}

/// Adds `n` to a counter of the session that this thread is bound to, or to the shared ones. A few nanoseconds.
#[inline]
pub fn count(counter: Counter, n: u64) {
    if WITHOUT_FIGURES {
        return;
    }
    match BOUND.get() {
        Some(block) => {
            let value = &block.values[counter as usize];
            value.store(value.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
        }
        None => {
            SHARED.values[counter as usize].fetch_add(n, Ordering::Relaxed);
        }
    }
}

/// Notes a wait of the session that this thread is bound to, if it is.
#[inline]
pub(crate) fn note_wait(event: WaitEvent, ns: u64) {
    if let Some(block) = BOUND.get() {
        block.waits.note(event, ns);
    }
}

/// Sum over all sessions, open and closed, and over threads without one. Never falls. Takes no lock.
pub fn global_total(counter: Counter) -> u64 {
    blocks().map(|block| block.get(counter)).fold(0, u64::wrapping_add)
}

/// [`global_total`] of every counter, indexed by `Counter as usize`, in one pass.
pub fn global_totals() -> [u64; Counter::COUNT] {
    let mut totals = [0u64; Counter::COUNT];
    for block in blocks() {
        for (total, value) in totals.iter_mut().zip(&block.values) {
            *total = total.wrapping_add(value.load(Ordering::Relaxed));
        }
    }
    totals
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::sync::Arc;

    #[test]
    fn names_are_unique_snake_case_and_ordered() {
        let names: HashSet<_> = Counter::ALL.iter().map(|c| c.name()).collect();
        assert_eq!(names.len(), Counter::COUNT);
        for (i, counter) in Counter::ALL.iter().enumerate() {
            assert_eq!(*counter as usize, i);
            assert!(counter.name().bytes().all(|b| b.is_ascii_lowercase() || b == b'_'));
            assert!(!counter.help().is_empty());
        }
    }

    #[test]
    fn session_counts_only_while_bound_and_stays_in_the_total() {
        let before = global_total(Counter::Deadlocks);
        let session = Arc::new(SessionCounters::new());
        {
            let _bound = bind(&session);
            count(Counter::Deadlocks, 3);
        }
        count(Counter::Deadlocks, 10);
        assert_eq!(session.get(Counter::Deadlocks), 3);
        assert_eq!(global_total(Counter::Deadlocks) - before, 13);
        drop(session);
        assert_eq!(global_total(Counter::Deadlocks) - before, 13);
        assert_eq!(global_totals()[Counter::Deadlocks as usize] - before, 13);
    }

    #[test]
    fn new_session_starts_at_zero_on_a_used_block() {
        for _ in 0..3 {
            let session = SessionCounters::new();
            assert_eq!(session.get(Counter::Views), 0);
            let _bound = bind(&session);
            count(Counter::Views, 7);
            assert_eq!(session.get(Counter::Views), 7);
        }
    }

    #[test]
    fn bindings_nest() {
        let (a, b) = (SessionCounters::new(), SessionCounters::new());
        let _a = bind(&a);
        {
            let _b = bind(&b);
            count(Counter::Scans, 1);
        }
        count(Counter::Scans, 2);
        assert_eq!((a.get(Counter::Scans), b.get(Counter::Scans)), (2, 1));
    }

    #[test]
    fn many_threads_lose_nothing() {
        let before = global_total(Counter::Batches);
        std::thread::scope(|scope| {
            for i in 0..8 {
                scope.spawn(move || {
                    let session = SessionCounters::new();
                    let _bound = (i % 2 == 0).then(|| bind(&session));
                    for _ in 0..10_000 {
                        count(Counter::Batches, 1);
                    }
                });
            }
        });
        assert_eq!(global_total(Counter::Batches) - before, 80_000);
    }
}
