//! Commits through the engine's own sessions: a row each, with all that an engine does for one; alone, or in two phases as
//! the server's binlog drives them.

use super::coordinator::{Coordinator, Participant};
use super::mode::Mode;
use crate::error::{LabError, Result};
use crate::recovery::table_of_rows;
use esker::format::row::{pack_values, Value};
use esker::{BeginOptions, Engine, FlushMode, Isolation, Options, PosixDisk, Session, Table};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Rows are no longer than this.
pub(super) const LONGEST: usize = 60_000;

/// The log's segments are no smaller.
const LEAST_SEGMENT: u64 = 4 << 20;

/// An engine in a folder of its own, with one table.
pub(super) struct Rows {
    engine: Engine,
    table: Arc<Table>,
    mode: Mode,
    /// A row, as the engine takes it.
    packed: Vec<u8>,
    /// Who holds it commits alone.
    turn: Mutex<()>,
}

/// A thread's session. Whoever leads the coordinator's queue decides its transaction meanwhile.
#[derive(Clone)]
pub(super) struct Client {
    session: Arc<Mutex<Session>>,
    /// Which thread's, and how many transactions it has had.
    number: u64,
    transactions: u64,
}

impl Client {
    fn session(&self) -> MutexGuard<'_, Session> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As long as the binlog's: a format, two lengths, 20 bytes.
    fn next_xid(&mut self) -> [u8; 30] {
        self.transactions += 1;
        let mut xid = [0; 30];
        xid[14..22].copy_from_slice(&self.number.to_le_bytes());
        xid[22..].copy_from_slice(&self.transactions.to_le_bytes());
        xid
    }
}

fn failed(e: impl std::fmt::Display) -> LabError {
    LabError::Failed(e.to_string())
}

impl Rows {
    /// Opens it as a server does, with a log whose segment has room for so many bytes.
    ///
    /// # Errors
    /// What the engine says; `Unsupported` for longer rows than it takes.
    pub(super) fn open(folder: &Path, mode: Mode, bytes: usize, log_bytes: u64) -> Result<Rows> {
        let longest = u16::try_from(bytes).ok().filter(|_| bytes <= LONGEST);
        let longest = longest.ok_or_else(|| LabError::Unsupported(format!("rows are at most {LONGEST} bytes long")))?;
        let options = Options { wal_segment_bytes: log_bytes.max(LEAST_SEGMENT), ..Options::default() };
        let disk = Arc::new(PosixDisk::with_uring(2));
        let engine = Engine::open(disk, &folder.join("engine"), options, Arc::new(|_, _| {})).map_err(failed)?;
        let table = table_of_rows(&engine, longest)?;
        let synced = mode.prepare_sync || mode.commit_sync;
        engine.set_flush_mode(if synced { FlushMode::EveryCommit } else { FlushMode::Lazy });
        let mut packed = Vec::new();
        pack_values(table.layout(), &[Value::Bytes(&vec![0x5E; bytes])], &mut packed).map_err(failed)?;
        Ok(Rows { engine, table, mode, packed, turn: Mutex::default() })
    }

    /// For a thread.
    pub(super) fn client(&self, number: u64) -> Client {
        Client { session: Arc::new(Mutex::new(self.engine.session())), number, transactions: 0 }
    }

    /// Inserts a row and commits it, as the mode says.
    ///
    /// # Errors
    /// What the engine or the coordinator say.
    pub(super) fn transaction(&self, client: &mut Client, coordinator: &Coordinator<'_, Client>) -> Result<()> {
        let xid = client.next_xid();
        let mut session = client.session();
        session.begin(Isolation::ReadCommitted, BeginOptions::default());
        session.insert_row(&self.table, &self.packed).map_err(failed)?;
        if self.mode.two_phases {
            session.prepare(&xid).map_err(failed)?;
            drop(session);
            coordinator.commit(client.clone(), self)?;
            session = client.session();
        }
        let _turn = self.mode.alone.then(|| self.turn.lock().unwrap_or_else(PoisonError::into_inner));
        session.commit().map_err(failed)
    }

    /// Rows that are there.
    ///
    /// # Errors
    /// What the engine says.
    pub(super) fn count(&self) -> Result<u64> {
        self.engine.session().count_rows(&self.table).map_err(failed)
    }

    /// Transactions that are prepared and nothing more.
    pub(super) fn undecided(&self) -> u64 {
        self.engine.status().prepared
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

/// In memory, in this order, in the leader's thread; each thread carries its own out afterwards.
impl Participant<Client> for Rows {
    fn decide(&self, group: &[Client]) -> Result<u64> {
        group.iter().for_each(|client| client.session().commit_ordered());
        Ok(0)
    }
}
