//! The engine's shared heart: what all sessions, background work and the catalog have in common.
//!
//! Lock order, outermost first: a tree's merging, a tree's flushing, manifest, catalog, commit lock, tree state,
//! prepared, transaction slots, lock table shards. The log's own locks are leaves. In test builds every acquisition is
//! held against the order learned so far (`esker_base::lock`): one that closes a circle panics.

use crate::catalog::table::{AnyTree, Table, Trees};
use crate::lock::{LockOwner, LockTable};
use crate::options::{Background, Level, Notify, Options};
use crate::session::Session;
use crate::tree::run::cache::{AnyRun, BlockCache};
use crate::tree::run::writer::{RunRecipe, RunWriter};
use crate::tree::run::Run;
use crate::tree::stored::Stored;
use crate::tree::Tree;
use crate::txn::activity::Sessions;
use crate::txn::open::TableTxn;
use crate::txn::state::TxnState;
use crate::txn::views::Views;
use crate::upkeep::background::Signals;
use crate::upkeep::due::Due;
use crate::upkeep::manifest::Written;
use crate::write::bulk::BulkPlan;
use crate::write::large::{Budget, LargeWriter, Pool};
use crate::{Error, Result};
use esker_base::lock::Mutex;
use esker_format::{FileId, FolderId, RowId, TreeId, TxnId};
use esker_io::{Disk, IoError, IoKind};
use esker_wal::{FlushMode, Wal};
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// A transaction between prepare and decision.
pub(crate) struct Prepared {
    pub(crate) state: Arc<TxnState>,
    /// Its redo with the prepare record, to be logged again when the log moves on.
    pub(crate) redo: Vec<u8>,
    pub(crate) tables: Vec<PreparedTable>,
    /// Space in the log for the decision.
    pub(crate) credit: esker_wal::Credit,
    /// No session holds it.
    pub(crate) detached: bool,
}

/// A table that a prepared transaction has written in.
pub(crate) struct PreparedTable {
    pub(crate) table: Arc<Table>,
    /// As they were then.
    pub(crate) trees: Arc<Trees>,
    /// Rows that it adds, or removes.
    pub(crate) live_delta: i64,
}

impl PreparedTable {
    pub(crate) fn of(t: &TableTxn) -> Self {
        let trees = Trees { rows: t.rows.tree.clone(), keys: t.keys.iter().map(|k| k.tree.clone()).collect() };
        PreparedTable { table: t.table.clone(), trees: Arc::new(trees), live_delta: t.live_delta }
    }
}

/// Shared state of an open engine.
pub(crate) struct Core {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) dir: PathBuf,
    pub(crate) folder: FolderId,
    pub(crate) runs_dir: PathBuf,
    pub(crate) options: Options,
    pub(crate) notify: Notify,
    pub(crate) wal: Wal,
    pub(crate) views: Views,
    pub(crate) locks: LockTable,
    pub(crate) sessions: Sessions,
    pub(crate) cache: Arc<BlockCache>,
    /// Memory and threads of large writes.
    pub(crate) large: Arc<Budget>,
    pub(crate) pool: Pool,
    pub(crate) commit_lock: Mutex<()>,
    pub(crate) tables: Mutex<BTreeMap<String, Arc<Table>>>,
    pub(crate) prepared: Mutex<BTreeMap<Vec<u8>, Prepared>>,
    pub(crate) next_txn: AtomicU64,
    pub(crate) next_file: AtomicU64,
    pub(crate) next_tree: AtomicU64,
    pub(crate) next_table: AtomicU64,
    pub(crate) manifest: Mutex<Written>,
    runs_sync: Mutex<()>,
    /// Space in the log for a DROP TABLE on a full disk.
    pub(crate) drop_space: Mutex<Option<esker_wal::Credit>>,
    pub(crate) signals: Signals,
    pub(crate) due: Arc<Due>,
    pub(crate) lock_guard: Mutex<Option<Box<dyn esker_io::LockGuard>>>,
    writers: Mutex<HashMap<TxnId, Arc<TxnState>>>,
    flush_mode: AtomicU8,
    memory_limit_bytes: AtomicU64,
    bulk_buffer_bytes: AtomicUsize,
    poison: OnceLock<String>,
    /// Recovery is over and nothing may change.
    read_only: AtomicBool,
}

/// What recovery found, to build a core from.
pub(crate) struct Parts {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) dir: PathBuf,
    pub(crate) options: Options,
    pub(crate) notify: Notify,
    pub(crate) wal: Wal,
    pub(crate) cache: Arc<BlockCache>,
    pub(crate) tables: BTreeMap<String, Arc<Table>>,
    pub(crate) next: [u64; 4],
    pub(crate) folder: FolderId,
    pub(crate) generation: u64,
    pub(crate) lock_guard: Box<dyn esker_io::LockGuard>,
}

impl Core {
    pub(crate) fn new(parts: Parts) -> Arc<Core> {
        let [next_table, next_tree, next_file, next_txn] = parts.next;
        let due = Due::new();
        parts.tables.values().for_each(|table| due.take_in(table, &table.trees()));
        let visible = esker_format::CommitSeq(parts.wal.end_lsn().0.saturating_sub(1));
        Arc::new(Core {
            runs_dir: parts.dir.join("runs"),
            dir: parts.dir,
            folder: parts.folder,
            disk: parts.disk,
            notify: parts.notify,
            wal: parts.wal,
            views: Views::new(visible),
            locks: LockTable::new(),
            sessions: Sessions::new(),
            cache: parts.cache,
            large: Budget::new(parts.options.memory_limit_bytes),
            pool: Pool::new(),
            commit_lock: Mutex::new("commit", ()),
            tables: Mutex::new("catalog", parts.tables),
            prepared: Mutex::new("prepared", BTreeMap::new()),
            next_txn: AtomicU64::new(next_txn),
            next_file: AtomicU64::new(next_file),
            next_tree: AtomicU64::new(next_tree),
            next_table: AtomicU64::new(next_table),
            manifest: Mutex::new("manifest", Written::found(parts.generation)),
            runs_sync: Mutex::new("runs_sync", ()),
            drop_space: Mutex::new("drop_space", None),
            signals: Signals::new(),
            due,
            lock_guard: Mutex::new("folder", Some(parts.lock_guard)),
            writers: Mutex::new("writers", HashMap::new()),
            flush_mode: AtomicU8::new(FlushMode::EveryCommit as u8),
            memory_limit_bytes: AtomicU64::new(parts.options.memory_limit_bytes),
            bulk_buffer_bytes: AtomicUsize::new(parts.options.bulk_buffer_bytes),
            poison: OnceLock::new(),
            read_only: AtomicBool::new(false),
            options: parts.options,
        })
    }

    pub(crate) fn new_file_id(&self) -> FileId {
        FileId(self.next_file.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn register(&self, state: &Arc<TxnState>) {
        self.writers.lock().insert(state.id, state.clone());
    }

    /// The transaction has ended; its status words are stored.
    pub(crate) fn unregister(&self, state: &Arc<TxnState>) {
        self.writers.lock().remove(&state.id);
    }

    /// A transaction that has written and not ended.
    pub(crate) fn writer(&self, txn: TxnId) -> Option<Arc<TxnState>> {
        self.writers.lock().get(&txn).cloned()
    }

    /// Transactions other than `me` that insert into `tree`, each with its first row; the one with the least comes last.
    pub(crate) fn inserters(&self, tree: TreeId, me: TxnId) -> Vec<(RowId, Arc<LockOwner>)> {
        let writers: Vec<_> = self.writers.lock().values().filter(|w| w.id != me).map(|w| w.locks.clone()).collect();
        let mut list: Vec<_> = writers.into_iter().filter_map(|w| Some((w.first_insert(tree)?, w))).collect();
        list.sort_by_key(|i| std::cmp::Reverse(i.0));
        list
    }

    /// Transactions that have written and not ended, with the rows they have locked.
    pub(crate) fn writer_list(&self) -> Vec<(TxnId, u64)> {
        let mut list: Vec<_> = self.writers.lock().values().map(|w| (w.id, w.locks.locked_rows())).collect();
        list.sort();
        list
    }

    pub(crate) fn flush_mode(&self) -> FlushMode {
        match self.flush_mode.load(Ordering::Relaxed) {
            0 => FlushMode::Lazy,
            2 => FlushMode::WriteOnly,
            _ => FlushMode::EveryCommit,
        }
    }

    pub(crate) fn set_flush_mode(&self, mode: FlushMode) {
        self.flush_mode.store(mode as u8, Ordering::Relaxed);
    }

    pub(crate) fn set_memory_limit(&self, bytes: u64) {
        self.memory_limit_bytes.store(bytes, Ordering::Relaxed);
        self.cache.set_memory_limit(bytes);
        self.large.set_memory_limit(bytes);
    }

    pub(crate) fn memory_limit(&self) -> u64 {
        self.memory_limit_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn set_bulk_buffer(&self, bytes: usize) {
        self.bulk_buffer_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Memtables beyond this are flushed, in bytes.
    pub(crate) fn memtable_budget(&self) -> u64 {
        (self.memory_limit() / 4).clamp(1 << 20, 256 << 20)
    }

    pub(crate) fn recipe<K: Stored>(&self, table: &Table, tree: &Tree<K>) -> RunRecipe<K> {
        RunRecipe {
            disk: self.disk.clone(),
            dir: self.runs_dir.clone(),
            cache: self.cache.clone(),
            folder: self.folder,
            tree: tree.id,
            shape: tree.shape.clone(),
            compression: table.compression,
            zstd_level: self.options.zstd_level,
            block_bytes: self.options.block_bytes,
            write_bytes: (self.bulk_buffer_bytes.load(Ordering::Relaxed) / 4).clamp(64 << 10, 4 << 20),
        }
    }

    pub(crate) fn run_writer<K: Stored>(&self, table: &Table, tree: &Tree<K>) -> Result<RunWriter<K>> {
        RunWriter::create(&self.recipe(table, tree), self.new_file_id())
    }

    pub(crate) fn bulk_plan(&self, table: &Table, tree: &Tree, writer: &LargeWriter) -> BulkPlan {
        let buffer_bytes = self.bulk_buffer_bytes.load(Ordering::Relaxed);
        let pool = (self.options.background == Background::Threads).then(|| self.pool.clone());
        let recipe = self.recipe(table, tree);
        BulkPlan::new(
            recipe,
            self.options.min_run_bytes,
            buffer_bytes,
            self.large.clone(),
            writer.streams.clone(),
            pool,
        )
    }

    /// Takes private runs of an ended or undone part of a transaction out of their tree and removes their files.
    pub(crate) fn drop_runs<K: Stored>(&self, tree: &Tree<K>, runs: Vec<Arc<Run<K>>>) {
        tree.edit(|state| {
            state.runs.retain(|h| !runs.iter().any(|r| Arc::ptr_eq(r, &h.run)));
            state.marks.retain(|m| m.owner.as_ref().is_none_or(|o| o.status() != crate::version::ABORTED));
        });
        self.discard(runs);
    }

    /// Removes the files of runs that nothing refers to any more, in the background.
    pub(crate) fn discard<K: Stored>(&self, runs: Vec<Arc<Run<K>>>) {
        let runs = runs.into_iter().map(|run| run as Arc<dyn AnyRun>);
        let runs: Vec<_> = runs.inspect(|run| run.remove_when_unused()).collect();
        if self.options.background == Background::Threads {
            self.signals.discard(runs);
        }
    }

    /// Fails if nothing may be written any more.
    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.is_read_only() {
            return Err(Error::ReadOnly("it was opened read-only".into()));
        }
        match self.poison.get() {
            Some(why) => Err(Error::Poisoned(why.clone())),
            None => Ok(()),
        }
    }

    /// From now on nothing may be written.
    pub(crate) fn set_read_only(&self) {
        self.read_only.store(true, Ordering::Release);
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.read_only.load(Ordering::Acquire)
    }

    pub(crate) fn is_poisoned(&self) -> bool {
        self.poison.get().is_some()
    }

    /// Stops all writing: what was acknowledged stays, nothing more is.
    pub(crate) fn poison(&self, why: &str) {
        if self.poison.set(why.to_owned()).is_ok() {
            (self.notify)(
                &format!("writing stopped after: {why}. Reads go on; restart the server to recover."),
                Level::Error,
            );
        }
    }

    /// A failed write or sync of something that cannot be tried again.
    pub(crate) fn poison_by(&self, e: IoError) -> Error {
        self.poison(&e.to_string());
        e.into()
    }

    /// Makes the names of run files durable. One at a time, and none after one that failed: names that it lost would not
    /// come back with a later sync that succeeds.
    pub(crate) fn sync_runs(&self) -> Result<()> {
        let _one = self.runs_sync.lock();
        self.check_writable()?;
        self.disk.sync_dir(&self.runs_dir).map_err(|e| match e.kind {
            // It was not begun.
            IoKind::Resources => e.into(),
            _ => self.poison_by(e),
        })
    }

    /// All tables, by their names.
    pub(crate) fn tables(&self) -> Vec<Arc<Table>> {
        self.tables.lock().values().cloned().collect()
    }

    /// All trees, with their tables; by the tables' names.
    pub(crate) fn trees(&self) -> Vec<(Arc<Table>, AnyTree)> {
        let with = |table: Arc<Table>| table.trees().all().map(|tree| (table.clone(), tree)).collect::<Vec<_>>();
        self.tables().into_iter().flat_map(with).collect()
    }

    pub(crate) fn tree_exists(&self, id: TreeId) -> bool {
        self.tables.lock().values().any(|t| t.has_tree(id))
    }

    pub(crate) fn session(self: &Arc<Self>) -> Session {
        Session::new(self.clone())
    }
}
