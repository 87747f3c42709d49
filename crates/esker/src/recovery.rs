//! Opening a folder: manifest, log, runs.
//!
//! The manifest says what there was at a position of the log; the log from there on is replayed: redo of committed
//! transactions goes to memtables, edits of catalog and runs to sets of ids. Only then are files opened, and what
//! nothing refers to is removed. Nothing is undone: the log holds only what was committed or prepared. Replaying twice,
//! or more than was needed, gives the same.

mod count;
mod known;
mod prepared;
mod tree;

use count::Count;
use tree::ReplayedTree;

use crate::catalog::table::{key_shape, key_trees, Table, Trees};
use crate::core::{Core, Parts, Prepared};
use crate::lock::{LockMode, NoHooks, Parker, WaitPolicy};
use crate::options::{Level, Notify, Options};
use crate::tree::key::{ByBytes, ByRow};
use crate::tree::memtable::{Change, Memtable};
use crate::tree::run::cache::BlockCache;
use crate::tree::run::file::OpenedFiles;
use crate::tree::run::writer::RunRecipe;
use crate::tree::run::Run;
use crate::tree::stored::{entry_value, Stored};
use crate::tree::{RangeMark, RunHandle, Tree, TreeState};
use crate::txn::state::TxnState;
use crate::upkeep::manifest::{remove_fresh, write_first, MANIFEST};
use crate::version::OrdinalRanges;
use crate::{Error, Result};
use esker_base::counters::{count, Counter};
use esker_format::manifest::MAX_MANIFEST_BYTES;
use esker_format::{
    CommitSeq, FileId, FolderId, FormatError, IndexEntry, Lsn, Manifest, ManifestFile, Record, RecordReader, RowId,
    RunEntry, RunRef, TableEntry, TableId, TreeId, TxnId,
};
use esker_io::{AccessHint, Disk, IoKind, OpenMode};
use esker_wal::{Opening, Wal, WalOptions};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A log begins here, so that no commit sequence is zero.
const FIRST_LSN: Lsn = Lsn(4096);

/// A table while the log is replayed.
struct Replayed {
    entry: TableEntry,
    next_row: RowId,
    count: Count,
    marks: Vec<RangeMark>,
    rows: ReplayedTree<ByRow>,
    /// In the order of the entry's.
    keys: Vec<ReplayedTree<ByBytes>>,
}

impl Replayed {
    /// An empty table whose trees begin at `lsn`.
    fn new(entry: TableEntry, lsn: Lsn) -> Result<Self> {
        let rows = ReplayedTree::new(entry.row_tree(), lsn)?;
        let keys = key_trees(&entry).map(|(id, _)| ReplayedTree::new(id, lsn)).collect::<Result<_>>()?;
        Ok(Replayed { next_row: RowId(1), count: Count::empty(), marks: Vec::new(), rows, keys, entry })
    }

    fn key_tree(&mut self, id: TreeId) -> Option<&mut ReplayedTree<ByBytes>> {
        self.keys.iter_mut().find(|k| k.id == id)
    }

    /// Files of its runs.
    fn files(&self) -> impl Iterator<Item = FileId> + '_ {
        self.rows.runs.keys().chain(self.keys.iter().flat_map(|k| k.runs.keys())).copied()
    }
}

/// A transaction that the log says is prepared.
struct Pending {
    xid: Vec<u8>,
    /// Its redo, with the prepare record at the end.
    redo: Vec<u8>,
    attach: Vec<RunRef>,
    aborted: OrdinalRanges,
    logged_at: Lsn,
}

struct Replay {
    folder: FolderId,
    wal_dir: PathBuf,
    from: Lsn,
    tables: BTreeMap<TableId, Replayed>,
    trees: HashMap<TreeId, TableId>,
    redo: HashMap<TxnId, Vec<u8>>,
    prepared: BTreeMap<TxnId, Pending>,
    next: [u64; 4],
}

/// Opens the engine in `dir`, recovering what the last process left.
pub(crate) fn open(disk: Arc<dyn Disk>, dir: &Path, options: Options, notify: Notify) -> Result<Arc<Core>> {
    disk.create_dir(dir)?;
    let lock_guard = disk.lock(&dir.join("LOCK"))?;
    let (runs_dir, wal_dir) = (dir.join("runs"), dir.join("wal"));
    remove_fresh(&*disk, dir)?;
    let (manifest, torn, fresh) = match read_manifest(&*disk, dir)? {
        Some(file) => (file.manifest, file.torn, false),
        None => (first_manifest(&*disk, dir, &runs_dir, &wal_dir)?, None, true),
    };
    let generation = manifest.generation;
    if generation == 1 {
        // A power cut in the first opening may have kept the manifest's name and not this one.
        disk.create_dir(&runs_dir)?;
    }
    keep_names(&*disk, dir, generation == 1)?;
    let mut replay = Replay::new(manifest, &dir.join(MANIFEST), &wal_dir)?;
    let started = Instant::now();
    // Only a folder whose first opening did not get to its second manifest may lack a log.
    let log = replay.run(&disk, &options, &notify, generation == 1).map_err(|e| match (e, &torn) {
        // The log was shortened after an edit that is not whole any more.
        (Error::LogMissing { .. }, Some((at, why))) => Error::damage(&dir.join(MANIFEST), *at, why.clone()),
        (e, _) => e,
    })?;
    if let Some((at, why)) = torn {
        let file = dir.join(MANIFEST);
        let text = "no whole edit, as a crash leaves it: the state before it and the log count";
        notify(&format!("{}, byte {at}: {why}; {text}", file.display()), Level::Warning);
    }
    let wal = log.begin(&mut || replay.remove_orphans(&*disk, &runs_dir).map(drop))?;
    let cache = BlockCache::new(&disk, &runs_dir, &options);
    let found = wal.replayed();
    count(Counter::RecoveryRecords, found.frames);
    count(Counter::RecoveryBytes, found.size_bytes);
    if !fresh && found.frames > 0 {
        notify(
            &format!(
                "recovery: 100%, {} log frames, {} bytes replayed in {} ms",
                found.frames,
                found.size_bytes,
                started.elapsed().as_millis()
            ),
            Level::Info,
        );
    }
    replay.finish(disk, dir, options, notify, wal, cache, generation, lock_guard)
}

fn read_manifest(disk: &dyn Disk, dir: &Path) -> Result<Option<ManifestFile>> {
    let path = dir.join(MANIFEST);
    let file = match disk.open(&path, OpenMode::Read, AccessHint::Meta) {
        Ok(file) => file,
        Err(e) if e.kind == IoKind::NotFound => return Ok(None),
        Err(e) => return Err(e.into()),
    };
    let size = file.size_bytes()?;
    if size > MAX_MANIFEST_BYTES {
        let reason = FormatError::TooLong { what: "manifest", found: size, max: MAX_MANIFEST_BYTES };
        return Err(Error::damage(&path, 0, reason));
    }
    let mut bytes = vec![0; size as usize];
    file.read_at(&mut bytes, 0)?;
    ManifestFile::decode(&bytes).map(Some).map_err(|e| Error::damage(&path, 0, e))
}

/// Begins a new folder; refuses one that holds data without a manifest.
fn first_manifest(disk: &dyn Disk, dir: &Path, runs_dir: &Path, wal_dir: &Path) -> Result<Manifest> {
    for part in [runs_dir, wal_dir] {
        if disk.exists(part)? && !disk.list(part)?.is_empty() {
            return Err(Error::InvalidArgument(format!(
                "{} is missing, but {} holds files: restore the file or the whole folder from a backup, or move the \
                 folder away to begin with an empty one",
                dir.join(MANIFEST).display(),
                part.display()
            )));
        }
    }
    disk.create_dir(runs_dir)?;
    let manifest = Manifest {
        folder: FolderId(disk.fresh_id()),
        generation: 1,
        replay_from: FIRST_LSN,
        next_table: TableId(1),
        next_tree: TreeId(1),
        next_file: FileId(1),
        next_txn: TxnId(1),
        ..Manifest::default()
    };
    write_first(disk, dir, &manifest)?;
    Ok(manifest)
}

/// Makes durable what was found or made, before anything is built upon it: a process that died may have renamed the
/// manifest and not come to sync its folder, or made the folder itself.
fn keep_names(disk: &dyn Disk, dir: &Path, first: bool) -> Result<()> {
    disk.sync_dir(dir)?;
    if first {
        let mut above = dir.ancestors().skip(1).filter(|p| !p.as_os_str().is_empty());
        if let Some(parent) = above.next() {
            disk.sync_dir(parent)?;
        }
        for folder in above {
            // Made together with `dir`, or there since long and perhaps not ours to open.
            match disk.sync_dir(folder) {
                Err(e) if e.kind != IoKind::ReadOnly => return Err(e.into()),
                _ => {}
            }
        }
    }
    Ok(())
}

impl Replay {
    fn new(manifest: Manifest, manifest_path: &Path, wal_dir: &Path) -> Result<Self> {
        let mut replay = Replay {
            folder: manifest.folder,
            wal_dir: wal_dir.to_owned(),
            from: manifest.replay_from,
            tables: BTreeMap::new(),
            trees: HashMap::new(),
            redo: HashMap::new(),
            prepared: BTreeMap::new(),
            next: [manifest.next_table.0, manifest.next_tree.0, manifest.next_file.0, manifest.next_txn.0],
        };
        for (id, state) in manifest.tables {
            let damage = |e| Error::damage(manifest_path, 0, e);
            known::table_state(&state).map_err(damage)?;
            let mut trees: HashMap<TreeId, esker_format::TreeState> =
                state.trees.into_iter().map(|t| (t.tree, t)).collect();
            let mut take = |id: TreeId| {
                let missing = FormatError::Invalid { what: "tree without a state", found: id.0 };
                trees.remove(&id).ok_or_else(|| damage(missing))
            };
            let rows = take(state.entry.row_tree())?;
            let count = Count::new(state.live_rows, manifest.next_txn, &rows.runs);
            let rows = ReplayedTree::of(rows, replay.from)?.map_err(damage)?;
            let key = |(id, _)| ReplayedTree::of(take(id)?, replay.from)?.map_err(damage);
            let keys = key_trees(&state.entry).map(key).collect::<Result<_>>()?;
            let marks = state
                .range_deletes
                .iter()
                .map(|r| RangeMark { owner: None, seq: r.seq, ordinal: r.ordinal, up_to: r.up_to, as_of: r.as_of })
                .collect();
            replay.trees.extend(state.entry.trees.iter().map(|t| (t.id, id)));
            let table = Replayed { entry: state.entry, next_row: state.next_row_id, count, marks, rows, keys };
            replay.tables.insert(id, table);
        }
        Ok(replay)
    }

    fn run(&mut self, disk: &Arc<dyn Disk>, options: &Options, notify: &Notify, create: bool) -> Result<Opening> {
        let wal_options = WalOptions {
            segment_bytes: options.wal_segment_bytes,
            folder: self.folder,
            create,
            ..WalOptions::default()
        };
        let (dir, from) = (self.wal_dir.clone(), self.from);
        let started = Instant::now();
        let mut said = started;
        let mut progress = |done: u64, total: u64| {
            if said.elapsed() >= Duration::from_secs(1) && total > 0 {
                said = Instant::now();
                let left = started.elapsed().as_secs_f64() * (total - done.min(total)) as f64 / done.max(1) as f64;
                let percent = done * 100 / total;
                notify(&format!("recovery: {percent}%, {done} of {total} bytes, {left:.0} s left"), Level::Info);
            }
        };
        let mut frame = |lsn, payload: &[u8]| self.frame(lsn, payload);
        Opening::replay(disk.clone(), &dir, wal_options, from, &mut frame, &mut progress)
    }

    fn frame(&mut self, lsn: Lsn, payload: &[u8]) -> Result<()> {
        for record in RecordReader::new(payload) {
            let record = record.and_then(|r| known::record(&r).map(|()| r));
            self.record(lsn, record.map_err(|e| Error::damage(&self.wal_dir, lsn.0, e))?)?;
        }
        Ok(())
    }

    fn record(&mut self, lsn: Lsn, record: Record<'_>) -> Result<()> {
        match record {
            Record::RowPut { txn, .. }
            | Record::RowDelete { txn, .. }
            | Record::KeyPut { txn, .. }
            | Record::KeyDelete { txn, .. }
            | Record::RangeDelete { txn, .. } => {
                record.encode(self.redo.entry(txn).or_default());
            }
            Record::Prepare { txn, xid, ref attach, ref aborted, .. } => {
                let (xid, attach) = (xid.to_vec(), attach.clone());
                let aborted = OrdinalRanges(aborted.clone());
                let mut redo = self.redo.remove(&txn).unwrap_or_default();
                record.encode(&mut redo);
                self.seen_files(attach.iter().map(|r| r.run.file));
                self.prepared.insert(txn, Pending { xid, redo, attach, aborted, logged_at: lsn });
            }
            Record::Commit { txn, attach, aborted, .. } => {
                let redo = self.redo.remove(&txn).unwrap_or_default();
                self.seen_files(attach.iter().map(|r| r.run.file));
                self.commit(txn, lsn, &redo, &attach, &OrdinalRanges(aborted))?;
            }
            Record::CommitPrepared { txn } => {
                if let Some(p) = self.prepared.remove(&txn) {
                    self.commit(txn, lsn, &p.redo, &p.attach, &p.aborted)?;
                }
            }
            Record::Rollback { txn } => {
                self.redo.remove(&txn);
                self.prepared.remove(&txn);
            }
            Record::CreateTable(entry) => self.create(lsn, entry)?,
            Record::DropTable { table } => {
                if let Some(t) = self.tables.remove(&table) {
                    self.trees.retain(|_, id| *id != t.entry.id);
                }
            }
            Record::RenameTable { table, name } => {
                if let Some(t) = self.tables.get_mut(&table) {
                    name.clone_into(&mut t.entry.name);
                }
            }
            Record::TruncateTable { table, trees } => self.truncate(lsn, table, &trees)?,
            Record::TreeEdit { tree, add, remove, flushed_to } => self.edit(lsn, tree, add, &remove, flushed_to)?,
            Record::RowIdMark { tree, next } => {
                if let Some(t) = self.table_of(tree) {
                    t.next_row = t.next_row.max(next);
                }
            }
            // Refused before.
            Record::AutoIncrementMark { .. } | Record::CreateSnapshot { .. } | Record::DropSnapshot { .. } => {}
        }
        Ok(())
    }

    fn table_of(&mut self, tree: TreeId) -> Option<&mut Replayed> {
        self.trees.get(&tree).and_then(|id| self.tables.get_mut(id))
    }

    fn seen_files(&mut self, files: impl Iterator<Item = FileId>) {
        for file in files {
            self.next[2] = self.next[2].max(file.0 + 1);
        }
    }

    fn create(&mut self, lsn: Lsn, mut entry: TableEntry) -> Result<()> {
        entry.rebuilt_seq = CommitSeq(lsn.0);
        self.next[0] = self.next[0].max(entry.id.0 + 1);
        self.next[1] = entry.trees.iter().map(|t| t.id.0 + 1).fold(self.next[1], u64::max);
        if self.tables.contains_key(&entry.id) {
            return Ok(());
        }
        self.trees.extend(entry.trees.iter().map(|t| (t.id, entry.id)));
        self.tables.insert(entry.id, Replayed::new(entry, lsn)?);
        Ok(())
    }

    fn truncate(&mut self, lsn: Lsn, table: TableId, trees: &[(TreeId, TreeId)]) -> Result<()> {
        self.next[1] = trees.iter().map(|(_, new)| new.0 + 1).fold(self.next[1], u64::max);
        let Some(t) = self.tables.get_mut(&table) else {
            return Ok(());
        };
        let row_tree = t.entry.row_tree();
        // One that was made anew by it or later has younger trees already: ids are never used twice.
        if trees.iter().any(|(_, new)| *new <= row_tree) {
            return Ok(());
        }
        // A newer version's trees that were skipped in the table's entry are in pairs that nobody asks for.
        let pairs: HashMap<_, _> = trees.iter().copied().collect();
        let mut entries = t.entry.trees.clone();
        for entry in &mut entries {
            let Some(new) = pairs.get(&entry.id) else {
                let reason = FormatError::Invalid { what: "emptied table without its tree", found: entry.id.0 };
                return Err(Error::damage(&self.wal_dir, lsn.0, reason));
            };
            entry.id = *new;
        }
        t.entry.trees = entries;
        self.trees.retain(|_, id| *id != table);
        t.entry.rebuilt_seq = CommitSeq(lsn.0);
        self.trees.extend(t.entry.trees.iter().map(|tree| (tree.id, table)));
        *t = Replayed::new(t.entry.clone(), lsn)?;
        Ok(())
    }

    /// Of what the log says at `lsn`.
    fn damage(&self, lsn: Lsn, e: FormatError) -> Error {
        Error::damage(&self.wal_dir, lsn.0, e)
    }

    fn edit(&mut self, lsn: Lsn, tree: TreeId, add: Vec<RunEntry>, remove: &[FileId], flushed_to: Lsn) -> Result<()> {
        self.seen_files(add.iter().map(|r| r.file));
        let Some(t) = self.table_of(tree) else {
            return Ok(());
        };
        let edited = match t.key_tree(tree) {
            Some(keys) => keys.edit(add, remove, flushed_to)?,
            None => {
                t.count.replace(remove, &add);
                t.next_row = add.iter().map(|r| r.stats.max_id.next()).fold(t.next_row, RowId::max);
                t.rows.edit(add, remove, flushed_to)?
            }
        };
        edited.map_err(|e| self.damage(lsn, e))
    }

    fn commit(&mut self, txn: TxnId, lsn: Lsn, redo: &[u8], attach: &[RunRef], aborted: &OrdinalRanges) -> Result<()> {
        self.next[3] = self.next[3].max(txn.0 + 1);
        let seq = CommitSeq(lsn.0);
        for RunRef { tree, run } in attach {
            let Some(t) = self.table_of(*tree) else { continue };
            let entry = RunEntry { seq, aborted: aborted.0.clone(), ..run.clone() };
            let attached = match t.key_tree(*tree) {
                Some(keys) => keys.attach(entry).map(drop),
                None => {
                    t.next_row = t.next_row.max(run.stats.max_id.next());
                    t.rows.attach(entry).map(|is_new| {
                        if is_new {
                            t.count.attach(run.file, &run.stats);
                        }
                    })
                }
            };
            attached.map_err(|e| self.damage(lsn, e))?;
        }
        for record in RecordReader::new(redo) {
            match record.map_err(|e| self.damage(lsn, e))? {
                Record::RowPut { ordinal, tree, row, bytes, supersedes, .. } if !aborted.contains(ordinal) => {
                    self.put(txn, lsn, tree, row, Change::of_row(ordinal, Some(bytes), supersedes))?;
                }
                Record::RowDelete { ordinal, tree, row, .. } if !aborted.contains(ordinal) => {
                    self.put(txn, lsn, tree, row, Change::of_row(ordinal, None, true))?;
                }
                Record::KeyPut { ordinal, tree, row, key, payload, .. } if !aborted.contains(ordinal) => {
                    let value = entry_value(row, payload);
                    self.put_key(txn, lsn, tree, key, Change::of_entry(ordinal, &value, false))?;
                }
                Record::KeyDelete { ordinal, tree, row, key, .. } if !aborted.contains(ordinal) => {
                    let value = entry_value(row, &[]);
                    self.put_key(txn, lsn, tree, key, Change::of_entry(ordinal, &value, true))?;
                }
                Record::RangeDelete { ordinal, table, up_to, as_of, .. } if !aborted.contains(ordinal) => {
                    // A table that was made anew later has nothing of it.
                    if let Some(t) = self.tables.get_mut(&table).filter(|t| t.entry.rebuilt_seq < seq) {
                        if !t.marks.iter().any(|m| m.seq == seq && m.ordinal == ordinal) {
                            t.marks.push(RangeMark { owner: None, seq, ordinal, up_to, as_of });
                        }
                        t.count.clear(txn);
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn put(&mut self, txn: TxnId, lsn: Lsn, tree: TreeId, row: RowId, change: Change<'_>) -> Result<()> {
        let Some(t) = self.table_of(tree) else {
            return Ok(());
        };
        t.next_row = t.next_row.max(row.next());
        if t.rows.put(txn, lsn, row, change)? {
            t.count.put(txn, change.tombstone, change.supersedes);
        }
        Ok(())
    }

    fn put_key(&mut self, txn: TxnId, lsn: Lsn, tree: TreeId, key: &[u8], change: Change<'_>) -> Result<()> {
        match self.table_of(tree).and_then(|t| t.key_tree(tree)) {
            Some(keys) => keys.put(txn, lsn, key, change).map(drop),
            None => Ok(()),
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn finish(
        mut self,
        disk: Arc<dyn Disk>,
        dir: &Path,
        options: Options,
        notify: Notify,
        wal: Wal,
        cache: Arc<BlockCache>,
        generation: u64,
        lock_guard: Box<dyn esker_io::LockGuard>,
    ) -> Result<Arc<Core>> {
        let runs_dir = dir.join("runs");
        for t in self.tables.values_mut().filter(|t| crate::catalog::table::is_temporary(&t.entry)) {
            // About to go; its files may be gone already.
            t.rows.runs.clear();
            t.keys.iter_mut().for_each(|k| k.runs.clear());
        }
        for txn in self.prepared.keys() {
            self.next[3] = self.next[3].max(txn.0 + 1);
        }
        let (trees, tables) = (&self.trees, &self.tables);
        let lasts = |tree: &TreeId| {
            let table = trees.get(tree).and_then(|id| tables.get(id));
            table.is_some_and(|t| !crate::catalog::table::is_temporary(&t.entry))
        };
        for p in self.prepared.values_mut() {
            p.attach.retain(|r| lasts(&r.tree));
        }
        let there = self.remove_orphans(&*disk, &runs_dir)?;
        let files = OpenedFiles::new(&cache);
        let parts =
            RecipeParts { disk: &disk, runs_dir: &runs_dir, cache: &cache, options: &options, folder: self.folder };
        let mut tables = BTreeMap::new();
        let mut temporary = Vec::new();
        for mut t in std::mem::take(&mut self.tables).into_values() {
            let max_ids = t.rows.runs.values().flatten().map(|r| r.stats.max_id.next());
            t.next_row = max_ids.fold(t.next_row, RowId::max);
            let rows = t.rows.open(&parts.recipe(t.rows.id, Table::row_shape(&t.entry), &t.entry), &files, &t, &there);
            let open = |(k, (_, index)): (&ReplayedTree<ByBytes>, (TreeId, &IndexEntry))| {
                k.open(&parts.recipe(k.id, key_shape(index), &t.entry), &files, &t, &there)
            };
            let keys = t.keys.iter().zip(key_trees(&t.entry)).map(open).collect();
            let table = Table::new(&t.entry, Trees { rows, keys });
            if table.temporary {
                temporary.push(t.entry.name.clone());
            }
            tables.insert(t.entry.name.clone(), table);
        }
        let core = Core::new(Parts {
            disk,
            dir: dir.to_owned(),
            options,
            notify,
            wal,
            cache,
            tables,
            next: self.next,
            folder: self.folder,
            generation,
            lock_guard,
        });
        core.signals.set_replay_from(self.from);
        core.tell_unread();
        // Before prepared transactions come back: what they have in a temporary table goes with it.
        for name in temporary {
            core.drop_table(&name)?;
        }
        let prepared: Vec<_> = self.prepared.into_iter().map(|(txn, p)| (TxnState::new(txn), p)).collect();
        // Ranges first: what another one has in them was inserted and needs no lock, but would keep the range away.
        for (state, pending) in &prepared {
            core.keep_ranges(state, pending)?;
        }
        let mut unread = Vec::new();
        for (state, pending) in prepared {
            core.keep_prepared(state, pending, &files, &mut unread)?;
        }
        unread.iter().for_each(|rows| core.lock_unread(rows));
        if generation == 1 {
            core.checkpoint()?;
        }
        Ok(core)
    }

    /// Removes run files that nothing refers to: of loads that did not commit, or whose removal did not get done. Which
    /// others there are.
    fn remove_orphans(&mut self, disk: &dyn Disk, runs_dir: &Path) -> Result<HashSet<FileId>> {
        let mut known: HashSet<FileId> = self.tables.values().flat_map(Replayed::files).collect();
        known.extend(self.prepared.values().flat_map(|p| p.attach.iter().map(|r| r.run.file)));
        let mut there = HashSet::new();
        for entry in disk.list(runs_dir)? {
            let id = entry.name.strip_suffix(".run").and_then(|n| u64::from_str_radix(n, 16).ok());
            let Some(id) = id.map(FileId) else { continue };
            self.next[2] = self.next[2].max(id.0 + 1);
            if known.contains(&id) {
                there.insert(id);
            } else {
                disk.remove(&runs_dir.join(&entry.name))?;
            }
        }
        Ok(there)
    }
}

/// What the recipes of all runs have in common, before there is an engine.
struct RecipeParts<'a> {
    disk: &'a Arc<dyn Disk>,
    runs_dir: &'a Path,
    cache: &'a Arc<BlockCache>,
    options: &'a Options,
    folder: FolderId,
}

impl RecipeParts<'_> {
    fn recipe<K: Stored>(&self, tree: TreeId, shape: K::Shape, entry: &TableEntry) -> RunRecipe<K> {
        RunRecipe {
            disk: self.disk.clone(),
            dir: self.runs_dir.to_owned(),
            cache: self.cache.clone(),
            folder: self.folder,
            tree,
            shape,
            compression: entry.compression,
            zstd_level: self.options.zstd_level,
            block_bytes: self.options.block_bytes,
            write_bytes: self.options.bulk_buffer_bytes,
        }
    }
}

#[cfg(test)]
mod tests;
