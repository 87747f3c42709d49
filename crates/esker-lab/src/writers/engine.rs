//! The engine's own way: its sequential writer on its file layer, as a server writes runs where memory is not short.

use super::{Target, Writer};
use crate::error::{LabError, Result};
use crate::probe::raw::{RawFile, RawOptions};
use crate::theory::Tally;
use esker_io::{AccessHint, Disk, PosixDisk, SequentialWriter};
use esker_memory::Account;
use std::path::PathBuf;
use std::sync::Arc;

/// Writes of bulk files under way at once, as the server has it.
pub(crate) const DEPTH: usize = 2;
/// Buffers are multiples of this.
pub(crate) const UNIT: u64 = 4096;

pub(super) struct Engine {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    /// Gone when it is finished.
    writer: Option<SequentialWriter>,
    buffer_bytes: u64,
    tally: Tally,
}

impl Engine {
    /// A new file; the engine writes over none.
    pub(super) fn create(target: &Target) -> Result<Engine> {
        if target.existing || target.shared {
            return Err(LabError::Unsupported("the engine writes files that are new, and its own".into()));
        }
        let disk: Arc<dyn Disk> = Arc::new(PosixDisk::with_uring(DEPTH));
        if disk.exists(&target.path)? {
            disk.remove(&target.path)?;
        }
        let writer =
            SequentialWriter::create(&disk, &target.path, AccessHint::Kept, target.buffer_bytes, Account::Other)?;
        let buffer_bytes = (target.buffer_bytes as u64).max(1).next_multiple_of(UNIT);
        Ok(Engine { disk, path: target.path.clone(), writer: Some(writer), buffer_bytes, tally: Tally::default() })
    }
}

fn finished() -> LabError {
    LabError::Failed("the engine's writer is finished".into())
}

impl Writer for Engine {
    fn put(&mut self, record: &[u8]) -> Result<()> {
        self.tally.bytes += record.len() as u64;
        self.writer.as_mut().ok_or_else(finished)?.append(record)?;
        Ok(())
    }

    /// The engine's own end makes the file durable.
    fn finish(&mut self) -> Result<(Arc<RawFile>, Tally)> {
        let (kept, _) = self.writer.take().ok_or_else(finished)?.finish()?;
        self.tally.overflows = self.tally.bytes / self.buffer_bytes;
        self.tally.last = u64::from(self.tally.bytes % self.buffer_bytes > 0);
        let file = RawFile::open(&self.path, RawOptions { write: true, ..RawOptions::default() })?;
        let known = self.disk.figures();
        known.iter().filter(|f| f.path == self.path).for_each(|f| file.add_writes(f.figures.writes));
        drop(kept);
        Ok((Arc::new(file), self.tally))
    }
}
