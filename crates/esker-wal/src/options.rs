//! What can be chosen about a log.

use crate::{sector_up, SECTOR_BYTES};
use esker_format::frame::SEGMENT_HEADER_BYTES;
use esker_format::{FolderId, Lsn};
use esker_io::SyncMethod;
use std::sync::Arc;
use std::time::Duration;

/// When a commit's records leave the process. The numbers are those of MariaDB's `innodb_flush_log_at_trx_commit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FlushMode {
    /// Some time later; a crash of the process loses the last commits.
    Lazy = 0,
    /// Written and synced before the commit is acknowledged.
    #[default]
    EveryCommit = 1,
    /// Written before the commit is acknowledged, synced later: a power cut loses the last commits.
    WriteOnly = 2,
}

/// Who waits for the log, and what it does then: so that a leader knows whom to expect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Committer {
    /// Nobody whom a leader should expect: who does not commit, or whose transaction's end waits for others.
    No,
    /// Has prepared, and is not back before [`Wal::ended`](crate::Wal::ended) tells of it.
    Prepares,
    /// Has committed, and may soon commit again.
    Commits,
}

/// Time since some moment, for a trial of [`SyncMethod`]s.
#[derive(Clone)]
pub struct Clock(pub Arc<dyn Fn() -> Duration + Send + Sync>);

impl Default for Clock {
    fn default() -> Self {
        Clock(Arc::new(|| Duration::from_nanos(crate::sync::now_ns())))
    }
}

impl std::ops::Deref for Clock {
    type Target = dyn Fn() -> Duration + Send + Sync;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

impl std::fmt::Debug for Clock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Clock")
    }
}

/// Sizes of a log, and its ways.
#[derive(Debug, Clone)]
pub struct WalOptions {
    /// Size of a segment file in bytes, header included. Rounded up to sectors, at least four of them. A change
    /// applies to segments made from now on.
    pub segment_bytes: u64,
    /// What may be buffered, in bytes, before an append waits until some of it is written.
    pub buffer_bytes: usize,
    /// How many segments [`Wal::prepare_segments`](crate::Wal::prepare_segments) keeps ready behind the current one.
    pub prepared_segments: usize,
    /// How many recycled segment files are kept for later use; more are removed.
    pub spare_segments: usize,
    /// The folder that the log is of: its segments say so, and those of another are refused.
    pub folder: FolderId,
    /// That the log was durable with the frame that begins here is known from elsewhere: one that ends before is damaged, or has
    /// lost a segment. Zero: nothing is known.
    pub durable: Lsn,
    /// How a group is made durable. None: the log tries each method when it is opened, half a second at most, and takes
    /// another than fdatasync if that is a tenth faster at least, beyond doubt. One that the system refuses gives way to
    /// fdatasync; [`Wal::syncing`](crate::Wal::syncing) tells.
    pub sync_method: Option<SyncMethod>,
    /// What times that.
    pub clock: Clock,
    /// The log may not exist yet. If false, a log without segments is an error, not an empty log.
    pub create: bool,
}

impl Default for WalOptions {
    fn default() -> Self {
        WalOptions {
            segment_bytes: 64 << 20,
            buffer_bytes: 4 << 20,
            prepared_segments: 1,
            spare_segments: 4,
            sync_method: Some(SyncMethod::Fdatasync),
            clock: Clock::default(),
            folder: FolderId::default(),
            durable: Lsn(0),
            create: true,
        }
    }
}

impl WalOptions {
    /// Bytes of the stream that a segment holds.
    pub(crate) fn capacity(&self) -> u64 {
        let size = sector_up(self.segment_bytes.max(4 * SECTOR_BYTES));
        size - SEGMENT_HEADER_BYTES as u64
    }
}
