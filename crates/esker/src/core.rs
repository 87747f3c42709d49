//! What all sessions, background work and the catalog share. No policy: what is done with it is said in the rooms, as
//! functions that take `&Core`.
//!
//! The lock order stands in `esker_base::lock::order`.

use crate::catalog::ddl::WayBack;
use crate::catalog::ids::Ids;
use crate::catalog::table::{AnyTree, Table};
use crate::host::Host;
use crate::lock::LockTable;
use crate::options::{Notify, Options, Settings};
use crate::tree::run::cache::BlockCache;
use crate::tree::run::folder::RunFolder;
use crate::txn::activity::Sessions;
use crate::txn::decisions::Decisions;
use crate::txn::prepared::{Ordered, Prepared};
use crate::txn::views::Views;
use crate::txn::writers::Writers;
use crate::upkeep::background::Signals;
use crate::upkeep::due::Due;
use crate::upkeep::manifest::ManifestWriter;
use crate::upkeep::next_flush::Flushes;
use crate::writable::{closed, Writable};
use crate::write::large::{Budget, Pool};
use crate::{Error, Result};
use esker_base::lock::{order, Mutex, MutexGuard};
use esker_base::WaitEvent;
use esker_format::{FolderId, TableId};
use esker_io::{Disk, LockGuard};
use esker_wal::Wal;
use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;

/// Shared state of an open engine.
pub(crate) struct Core {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) dir: PathBuf,
    pub(crate) folder: FolderId,
    pub(crate) options: Options,
    pub(crate) host: Arc<dyn Host>,
    pub(crate) settings: Arc<Settings>,
    pub(crate) notify: Notify,
    pub(crate) writable: Writable,
    pub(crate) wal: Wal,
    pub(crate) ids: Ids,
    pub(crate) views: Views,
    pub(crate) locks: LockTable,
    pub(crate) sessions: Sessions,
    pub(crate) writers: Writers,
    pub(crate) runs: RunFolder,
    pub(crate) cache: Arc<BlockCache>,
    /// Memory and threads of large writes.
    pub(crate) large: Arc<Budget>,
    pub(crate) pool: Pool,
    pub(crate) commit_lock: Mutex<()>,
    /// Of `commit_ordered`.
    pub(crate) decisions: Decisions<Ordered>,
    pub(crate) tables: Mutex<BTreeMap<String, Arc<Table>>>,
    /// The same, for those who only tell of them: `tables` may be held while a statement waits for the log's device.
    pub(crate) shown: Mutex<BTreeMap<TableId, Arc<Table>>>,
    /// By their XIDs.
    pub(crate) prepared: Mutex<BTreeMap<Vec<u8>, Prepared>>,
    pub(crate) manifest: Mutex<ManifestWriter>,
    /// Space in the log for a DROP TABLE on a full disk.
    pub(crate) drop_space: Mutex<Option<esker_wal::Credit>>,
    /// The last renamings', the newest one last.
    pub(crate) ways_back: Mutex<VecDeque<WayBack>>,
    pub(crate) signals: Signals,
    pub(crate) flushes: Flushes,
    pub(crate) due: Arc<Due>,
    /// Of the folder; none once the engine is closed. See [`hold_folder`](Self::hold_folder).
    pub(crate) lock_guard: Mutex<Option<Arc<dyn LockGuard>>>,
}

/// What recovery found, to build a core from.
pub(crate) struct CoreParts {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) dir: PathBuf,
    pub(crate) folder: FolderId,
    pub(crate) options: Options,
    pub(crate) settings: Arc<Settings>,
    pub(crate) notify: Notify,
    pub(crate) wal: Wal,
    pub(crate) ids: Ids,
    pub(crate) runs: RunFolder,
    pub(crate) cache: Arc<BlockCache>,
    pub(crate) tables: BTreeMap<String, Arc<Table>>,
    pub(crate) generation: u64,
    pub(crate) lock_guard: Box<dyn LockGuard>,
}

impl Core {
    pub(crate) fn new(parts: CoreParts) -> Arc<Core> {
        let due = Due::new();
        parts.tables.values().for_each(|table| due.take_in(table));
        let shown = parts.tables.values().map(|table| (table.id, table.clone())).collect();
        let lock_guard: Arc<dyn LockGuard> = parts.lock_guard.into();
        parts.cache.files.held_by(&lock_guard);
        let visible = esker_format::CommitSeq(parts.wal.end_lsn().0.saturating_sub(1));
        let core = Arc::new(Core {
            disk: parts.disk,
            dir: parts.dir,
            folder: parts.folder,
            settings: parts.settings,
            writable: Writable::new(&parts.notify),
            notify: parts.notify,
            wal: parts.wal,
            ids: parts.ids,
            views: Views::new(visible),
            locks: LockTable::new(parts.options.host.clone()),
            sessions: Sessions::new(&*parts.options.host),
            writers: Writers::new(),
            runs: parts.runs,
            cache: parts.cache,
            large: Budget::new(parts.options.memory_limit_bytes),
            pool: Pool::new(),
            commit_lock: Mutex::new(&order::COMMIT, ()),
            decisions: Decisions::new(),
            tables: Mutex::new(&order::CATALOG, parts.tables),
            shown: Mutex::new(&order::CATALOG_SHOWN, shown),
            prepared: Mutex::new(&order::PREPARED, BTreeMap::new()),
            manifest: Mutex::new(&order::MANIFEST, ManifestWriter::found(parts.generation)),
            drop_space: Mutex::new(&order::DROP_SPACE, None),
            ways_back: Mutex::new(&order::WAYS_BACK, VecDeque::new()),
            signals: Signals::new(parts.options.host.now()),
            flushes: Flushes::new(),
            due,
            lock_guard: Mutex::new(&order::FOLDER, Some(lock_guard)),
            host: parts.options.host.clone(),
            options: parts.options,
        });
        let words = Arc::downgrade(&core);
        core.locks.told_by(words);
        core
    }

    /// Fails if a table is another engine's: what is written there would stand in neither's log, and what is read would be seen
    /// as of another order of commits. So it does if the table was dropped.
    #[inline]
    pub(crate) fn check_usable(&self, table: &Table) -> Result<()> {
        self.check_own(table)?;
        match table.is_dropped() {
            true => Err(Error::NoSuchTable(table.name())),
            false => Ok(()),
        }
    }

    /// The same of what may have been dropped since, as it may under whoever reads.
    #[inline]
    pub(crate) fn check_own(&self, table: &Table) -> Result<()> {
        match table.engine() == self.due.engine {
            true => Ok(()),
            false => Err(not_own(table)),
        }
    }

    /// For whoever writes without a session: the folder stays locked as long as he has this, however the engine is closed
    /// meanwhile. Whether he may write he asks behind it.
    ///
    /// # Errors
    /// The folder is let go already.
    pub(crate) fn hold_folder(&self) -> Result<Arc<dyn LockGuard>> {
        self.lock_guard.lock().clone().ok_or_else(closed)
    }

    /// Nothing is written any more but by those who are at it. The folder is let go as soon as none of them is, if no session
    /// is there.
    pub(crate) fn let_go_of_folder(&self) {
        self.writable.set_closed();
        if self.sessions.is_empty() {
            let own = self.lock_guard.lock().take();
            drop(own);
        }
    }

    /// The catalog, for a statement that defines: one at a time.
    pub(crate) fn lock_catalog(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Table>>> {
        self.tables.lock_told(WaitEvent::Definition)
    }

    /// All tables, by their names.
    pub(crate) fn tables(&self) -> Vec<Arc<Table>> {
        self.tables.lock().values().cloned().collect()
    }

    /// The same for those who only tell of them: waits for nobody who waits for a disk.
    pub(crate) fn shown_tables(&self) -> Vec<Arc<Table>> {
        self.shown.lock().values().cloned().collect()
    }

    /// All trees, with their tables; by the tables' names.
    pub(crate) fn trees(&self) -> Vec<(Arc<Table>, AnyTree)> {
        let with = |table: Arc<Table>| table.trees().all().map(|tree| (table.clone(), tree)).collect::<Vec<_>>();
        self.tables().into_iter().flat_map(with).collect()
    }

    /// Has writing stopped, as the log or something else could not be written?
    pub(crate) fn is_poisoned(&self) -> bool {
        self.writable.is_poisoned() || self.wal.poisoned().is_some()
    }
}

#[cold]
fn not_own(table: &Table) -> Error {
    let name = table.name();
    Error::InvalidArgument(format!(
        "table '{name}' is of another engine than this session, or was opened before it was"
    ))
}
