//! Commits through the engine's own sessions: a row each, with all that an engine does for one.

use crate::error::{LabError, Result};
use crate::recovery::table_of_rows;
use esker::format::row::{pack_values, Value};
use esker::{BeginOptions, Engine, FlushMode, Isolation, Options, PosixDisk, Session, Table};
use std::path::Path;
use std::sync::Arc;

/// Rows are no longer than this.
pub(super) const LONGEST: usize = 60_000;

/// The log's segments are no smaller.
const LEAST_SEGMENT: u64 = 4 << 20;

/// An engine in a folder of its own, with one table.
pub(super) struct Rows {
    engine: Engine,
    table: Arc<Table>,
    /// A row, as the engine takes it.
    packed: Vec<u8>,
}

fn failed(e: impl std::fmt::Display) -> LabError {
    LabError::Failed(e.to_string())
}

impl Rows {
    /// Opens it as a server does, with a log whose segment has room for so many bytes.
    ///
    /// # Errors
    /// What the engine says; `Unsupported` for longer rows than it takes.
    pub(super) fn open(folder: &Path, synced: bool, bytes: usize, log_bytes: u64) -> Result<Rows> {
        let longest = u16::try_from(bytes).ok().filter(|_| bytes <= LONGEST);
        let longest = longest.ok_or_else(|| LabError::Unsupported(format!("rows are at most {LONGEST} bytes long")))?;
        let options = Options { wal_segment_bytes: log_bytes.max(LEAST_SEGMENT), ..Options::default() };
        let disk = Arc::new(PosixDisk::with_uring(2));
        let engine = Engine::open(disk, &folder.join("engine"), options, Arc::new(|_, _| {})).map_err(failed)?;
        let table = table_of_rows(&engine, longest)?;
        engine.set_flush_mode(if synced { FlushMode::EveryCommit } else { FlushMode::Lazy });
        let mut packed = Vec::new();
        pack_values(table.layout(), &[Value::Bytes(&vec![0x5E; bytes])], &mut packed).map_err(failed)?;
        Ok(Rows { engine, table, packed })
    }

    /// For a thread.
    pub(super) fn session(&self) -> Session {
        self.engine.session()
    }

    /// Inserts a row and commits it.
    ///
    /// # Errors
    /// What the engine says.
    pub(super) fn commit(&self, session: &mut Session) -> Result<()> {
        session.begin(Isolation::ReadCommitted, BeginOptions::default());
        session.insert_row(&self.table, &self.packed).map_err(failed)?;
        session.commit().map_err(failed)
    }

    /// Rows that are there.
    ///
    /// # Errors
    /// What the engine says.
    pub(super) fn count(&self) -> Result<u64> {
        self.engine.session().count_rows(&self.table).map_err(failed)
    }

    /// Closes it.
    ///
    /// # Errors
    /// What the engine says.
    pub(super) fn close(self) -> Result<()> {
        drop(self.table);
        self.engine.close().map_err(failed)
    }
}
