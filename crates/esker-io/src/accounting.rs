//! Which counters and wait events a file operation belongs to. Every backend reports through here, so that physical
//! reads, writes and syncs are counted once and in the same way.

use crate::figures::Figures;
use crate::{AccessHint, SyncMethod};
use esker_base::wait::measured;
use esker_base::{count, timed, Counter, WaitEvent};

/// What a file is to those who read the counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileKind {
    Wal,
    Run,
    Manifest,
}

impl From<AccessHint> for FileKind {
    fn from(hint: AccessHint) -> Self {
        match hint {
            AccessHint::Log => FileKind::Wal,
            AccessHint::Bulk | AccessHint::Kept | AccessHint::Blocks => FileKind::Run,
            AccessHint::Meta => FileKind::Manifest,
        }
    }
}

impl FileKind {
    /// Counts one physical write of `bytes` bytes.
    pub(crate) fn wrote(self, of: &Figures, bytes: usize, offset: u64) {
        of.wrote(bytes, offset);
        let (writes, written) = match self {
            FileKind::Wal => (Counter::WritesWal, Counter::BytesWrittenWal),
            FileKind::Run => (Counter::WritesRun, Counter::BytesWrittenRun),
            FileKind::Manifest => (Counter::WritesManifest, Counter::BytesWrittenManifest),
        };
        count(writes, 1);
        count(written, bytes as u64);
    }

    /// Counts one physical write that was made durable by the same call.
    pub(crate) fn wrote_durably(self, of: &Figures, bytes: usize, offset: u64, method: SyncMethod) {
        self.wrote(of, bytes, offset);
        match (self, method) {
            (FileKind::Wal, SyncMethod::Dsync) => count(Counter::WritesWalDsync, 1),
            (FileKind::Wal, SyncMethod::Uring) => count(Counter::WritesWalLinked, 1),
            _ => {}
        }
    }

    /// Runs a write and times it.
    pub(crate) fn timed_write<T>(self, of: &Figures, work: impl FnOnce() -> T) -> T {
        let event = match self {
            FileKind::Wal => WaitEvent::WalWrite,
            FileKind::Run => WaitEvent::RunWrite,
            FileKind::Manifest => WaitEvent::ManifestWrite,
        };
        let (result, ns) = measured(event, work);
        of.took(ns);
        result
    }

    /// Runs a read of `bytes` bytes, counts and times it.
    pub(crate) fn read<T>(self, of: &Figures, bytes: usize, work: impl FnOnce() -> T) -> T {
        let (reads, read, event) = match self {
            FileKind::Wal => (Counter::ReadsWal, Counter::BytesReadWal, WaitEvent::WalRead),
            FileKind::Run => (Counter::ReadsRun, Counter::BytesReadRun, WaitEvent::RunRead),
            FileKind::Manifest => (Counter::ReadsManifest, Counter::BytesReadManifest, WaitEvent::ManifestRead),
        };
        count(reads, 1);
        count(read, bytes as u64);
        let (result, ns) = measured(event, work);
        of.read(bytes, ns);
        result
    }

    /// Runs a sync, counts and times it.
    pub(crate) fn sync<T>(self, of: &Figures, work: impl FnOnce() -> T) -> T {
        let syncs = match self {
            FileKind::Wal => Counter::SyncsWal,
            FileKind::Run => Counter::SyncsRun,
            FileKind::Manifest => Counter::SyncsManifest,
        };
        count(syncs, 1);
        self.timed_sync(of, work)
    }

    /// Runs a sync, or a write that is one, and times it.
    pub(crate) fn timed_sync<T>(self, of: &Figures, work: impl FnOnce() -> T) -> T {
        let event = match self {
            FileKind::Wal => WaitEvent::WalSync,
            FileKind::Run => WaitEvent::RunSync,
            FileKind::Manifest => WaitEvent::ManifestSync,
        };
        let (result, ns) = measured(event, work);
        of.synced(ns);
        result
    }
}

/// Runs the sync of a folder, counts and times it.
pub(crate) fn sync_dir<T>(work: impl FnOnce() -> T) -> T {
    count(Counter::SyncsDir, 1);
    timed(WaitEvent::DirSync, work)
}

/// Runs the opening of a file, counts and times it.
pub(crate) fn open<T>(work: impl FnOnce() -> T) -> T {
    count(Counter::FilesOpened, 1);
    timed(WaitEvent::FileName, work)
}
