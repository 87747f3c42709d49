//! Transactions of the engine's log alone: redo, and who makes it durable, without the engine above it.

use super::coordinator::{Coordinator, Participant};
use super::mode::{Mode, DECISION_BYTES};
use super::work::Counts;
use crate::error::{LabError, Result};
use esker_io::{Disk, PosixDisk};
use esker_wal::{Committer, FlushMode, Wal, WalError, WalOptions};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

/// The engine's log.
pub(super) struct Log<'a> {
    wal: Wal,
    mode: Mode,
    bytes: usize,
    counts: &'a Counts,
    /// Who holds it has the log for itself.
    turn: Mutex<()>,
}

fn failed(e: WalError) -> LabError {
    LabError::Failed(e.to_string())
}

impl<'a> Log<'a> {
    /// With space for so many bytes: full of zeros and synced, as the engine's segments are, so that no file is made or
    /// lengthened while the clock runs.
    ///
    /// # Errors
    /// What the log says.
    pub(super) fn open(folder: &Path, mode: Mode, bytes: usize, space: u64, counts: &'a Counts) -> Result<Log<'a>> {
        let disk: Arc<dyn Disk> = Arc::new(PosixDisk::new());
        let options = WalOptions { create: true, segment_bytes: space, ..WalOptions::default() };
        let from = esker_format::Lsn(esker_wal::SECTOR_BYTES);
        let wal = Wal::open::<WalError>(disk, folder, options, from, &mut |_, _| Ok(()), &mut |_, _| {});
        Ok(Log { wal: wal.map_err(failed)?, mode, bytes, counts, turn: Mutex::default() })
    }

    /// Adds a record; the position that must be durable for it.
    fn append(&self, record: &[u8]) -> Result<u64> {
        Ok(self.wal.append(record).map_err(failed)?.end.0)
    }

    fn sync(&self, who: Committer, position: u64) -> Result<()> {
        self.counts.asked.fetch_add(1, Ordering::Relaxed);
        self.wal.finish(FlushMode::EveryCommit, who, esker_format::Lsn(position)).map_err(failed)
    }

    /// One transaction, as the mode says.
    ///
    /// # Errors
    /// What log or coordinator say.
    pub(super) fn transaction(&self, coordinator: &Coordinator<u64>) -> Result<()> {
        let (mode, redo) = (self.mode, vec![0x5E; self.bytes]);
        let _turn = mode.alone.then(|| self.turn.lock().unwrap_or_else(PoisonError::into_inner));
        let prepared = self.append(&redo)?;
        if !mode.two_phases {
            return if mode.commit_sync { self.sync(Committer::Commits, prepared) } else { Ok(()) };
        }
        if mode.prepare_sync {
            let who = if mode.commit_sync { Committer::No } else { Committer::Prepares };
            self.sync(who, prepared)?;
        }
        let committed = coordinator.commit(prepared, self)?;
        if mode.commit_sync {
            self.sync(Committer::Commits, committed)?;
        }
        Ok(())
    }
}

/// Of transactions that are prepared up to these positions.
impl Participant<u64> for Log<'_> {
    fn before(&self, group: &[u64]) -> Result<()> {
        match self.mode.group_prepare {
            true => self.sync(Committer::No, group.iter().copied().max().unwrap_or(0)),
            false => Ok(()),
        }
    }

    /// Where the last one's record ends.
    fn decide(&self, group: &[u64]) -> Result<u64> {
        let mut committed = 0;
        for _ in group {
            committed = self.append(&[0xC0; DECISION_BYTES])?;
        }
        if !self.mode.commit_sync {
            group.iter().for_each(|_| self.wal.ended(Committer::Prepares));
        }
        Ok(committed)
    }
}
