//! Opening a folder: manifest, log, runs.
//!
//! The manifest says what there was at a position of the log; the log from there on is replayed: redo of committed
//! transactions goes to memtables, edits of catalog and runs to sets of ids. Only then are files opened, and what
//! nothing refers to is removed. Nothing is undone: the log holds only what was committed or prepared. Replaying twice,
//! or more than was needed, gives the same.

mod count;
mod known;
mod prepared;

use count::Count;

use crate::catalog::table::Table;
use crate::core::{Core, Parts, Prepared};
use crate::lock::{LockMode, NoHooks, Parker, WaitPolicy};
use crate::options::{Level, Notify, Options};
use crate::tree::memtable::Memtable;
use crate::tree::run::cache::BlockCache;
use crate::tree::run::writer::RunRecipe;
use crate::tree::run::{run_path, Run};
use crate::tree::{RangeMark, RunHandle, Tree, TreeState};
use crate::txn::state::TxnState;
use crate::upkeep::manifest::{write_first, MANIFEST};
use crate::version::OrdinalRanges;
use crate::{Error, Result};
use esker_base::counters::{count, Counter};
use esker_format::{
    CommitSeq, FileId, FolderId, FormatError, KeyBounds, Lsn, Manifest, ManifestFile, Record, RecordReader, RowId,
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
    flushed_to: Lsn,
    /// By file; one that merges took rows from may be there in several parts.
    runs: BTreeMap<FileId, Vec<RunEntry>>,
    marks: Vec<RangeMark>,
    mem: Arc<Memtable>,
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
    let log = replay.run(&disk, &options, &notify, generation == 1).map_err(|e| match (e, torn) {
        // The log was shortened after an edit that is not whole any more.
        (Error::LogMissing { .. }, Some((at, why))) => Error::damage(&dir.join(MANIFEST), at, why),
        (e, _) => e,
    })?;
    let wal = log.begin(&mut || replay.remove_orphans(&*disk, &runs_dir))?;
    let cache = BlockCache::new(&options);
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
    if size > 1 << 30 {
        let reason = esker_format::FormatError::Invalid { what: "manifest length", found: size };
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
        for (id, mut state) in manifest.tables {
            let said = known::table_state(&state).and_then(|()| known::row_tree(&mut state));
            let tree = said.map_err(|e| Error::damage(manifest_path, 0, e))?;
            replay.trees.insert(tree.tree, id);
            let marks = state
                .range_deletes
                .iter()
                .map(|r| RangeMark { owner: None, seq: r.seq, ordinal: r.ordinal, up_to: r.up_to, as_of: r.as_of })
                .collect();
            let table = Replayed {
                entry: state.entry,
                next_row: state.next_row_id,
                count: Count::new(state.live_rows, manifest.next_txn, &tree.runs),
                flushed_to: tree.flushed_to,
                runs: by_file(tree.runs),
                marks,
                mem: Memtable::new(replay.from)?,
            };
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
            Record::RowPut { txn, .. } | Record::RowDelete { txn, .. } | Record::RangeDelete { txn, .. } => {
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
                    self.trees.remove(&t.entry.row_tree());
                }
            }
            Record::RenameTable { table, name } => {
                if let Some(t) = self.tables.get_mut(&table) {
                    name.clone_into(&mut t.entry.name);
                }
            }
            Record::TruncateTable { table, trees } => self.truncate(lsn, table, &trees)?,
            Record::TreeEdit { tree, add, remove, flushed_to } => self.edit(tree, add, &remove, flushed_to)?,
            Record::RowIdMark { tree, next } => {
                if let Some(t) = self.table_of(tree) {
                    t.next_row = t.next_row.max(next);
                }
            }
            // Refused before.
            Record::KeyPut { .. }
            | Record::KeyDelete { .. }
            | Record::AutoIncrementMark { .. }
            | Record::CreateSnapshot { .. }
            | Record::DropSnapshot { .. } => {}
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
        self.trees.insert(entry.row_tree(), entry.id);
        let table = Replayed {
            next_row: RowId(1),
            count: Count::empty(),
            flushed_to: lsn,
            runs: BTreeMap::new(),
            marks: Vec::new(),
            mem: Memtable::new(lsn)?,
            entry,
        };
        self.tables.insert(table.entry.id, table);
        Ok(())
    }

    fn truncate(&mut self, lsn: Lsn, table: TableId, trees: &[TreeId]) -> Result<()> {
        self.next[1] = trees.iter().map(|t| t.0 + 1).fold(self.next[1], u64::max);
        // One that was made anew later has younger trees already.
        let is_news = |t: &&mut Replayed| trees.iter().all(|tree| t.entry.row_tree() < *tree);
        let Some(t) = self.tables.get_mut(&table).filter(is_news) else {
            return Ok(());
        };
        if trees.len() != t.entry.trees.len() {
            let reason = FormatError::Invalid { what: "trees of an emptied table", found: trees.len() as u64 };
            return Err(Error::damage(&self.wal_dir, lsn.0, reason));
        }
        self.trees.remove(&t.entry.row_tree());
        t.entry.trees.iter_mut().zip(trees).for_each(|(entry, tree)| entry.id = *tree);
        self.trees.insert(t.entry.row_tree(), table);
        t.entry.rebuilt_seq = CommitSeq(lsn.0);
        (t.next_row, t.count, t.flushed_to) = (RowId(1), Count::empty(), lsn);
        t.runs.clear();
        t.marks.clear();
        t.mem = Memtable::new(lsn)?;
        Ok(())
    }

    fn edit(&mut self, tree: TreeId, add: Vec<RunEntry>, remove: &[FileId], flushed_to: Lsn) -> Result<()> {
        self.seen_files(add.iter().map(|r| r.file));
        let Some(t) = self.table_of(tree) else {
            return Ok(());
        };
        // What joins replaces all that there is of its file: replayed twice, it comes to the same.
        for file in remove.iter().chain(add.iter().map(|r| &r.file)) {
            t.runs.remove(file);
        }
        t.count.replace(remove, &add);
        for run in add {
            t.next_row = t.next_row.max(run.stats.max_id.next());
            t.runs.entry(run.file).or_default().push(run);
        }
        if flushed_to > t.flushed_to {
            t.flushed_to = flushed_to;
            // What those runs hold must not come back from the log: a merge may have purged it since.
            t.mem = from_seq(&t.mem, flushed_to)?;
        }
        Ok(())
    }

    fn commit(&mut self, txn: TxnId, lsn: Lsn, redo: &[u8], attach: &[RunRef], aborted: &OrdinalRanges) -> Result<()> {
        self.next[3] = self.next[3].max(txn.0 + 1);
        let seq = CommitSeq(lsn.0);
        for RunRef { tree, run } in attach {
            if let Some(t) = self.table_of(*tree) {
                t.next_row = t.next_row.max(run.stats.max_id.next());
                let entry = RunEntry { seq, aborted: aborted.0.clone(), ..run.clone() };
                if t.runs.insert(run.file, vec![entry]).is_none() {
                    t.count.attach(run.file, &run.stats);
                }
            }
        }
        let wal_dir = self.wal_dir.clone();
        let mut slots: HashMap<TreeId, *const crate::tree::memtable::TxnSlot> = HashMap::new();
        for record in RecordReader::new(redo) {
            match record.map_err(|e| Error::damage(&wal_dir, lsn.0, e))? {
                Record::RowPut { ordinal, tree, row, bytes, supersedes, .. } if !aborted.contains(ordinal) => {
                    self.put(&mut slots, txn, lsn, tree, row, ordinal, Some(bytes), supersedes)?;
                }
                Record::RowDelete { ordinal, tree, row, .. } if !aborted.contains(ordinal) => {
                    self.put(&mut slots, txn, lsn, tree, row, ordinal, None, true)?;
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

    #[allow(clippy::too_many_arguments)]
    fn put(
        &mut self,
        slots: &mut HashMap<TreeId, *const crate::tree::memtable::TxnSlot>,
        txn: TxnId,
        lsn: Lsn,
        tree: TreeId,
        row: RowId,
        ordinal: u64,
        packed: Option<&[u8]>,
        supersedes: bool,
    ) -> Result<()> {
        let Some(t) = self.table_of(tree) else {
            return Ok(());
        };
        t.next_row = t.next_row.max(row.next());
        if lsn < t.flushed_to {
            return Ok(());
        }
        t.count.put(txn, packed.is_none(), supersedes);
        let slot = match slots.get(&tree) {
            Some(slot) => *slot,
            None => {
                let slot = t.mem.new_slot(txn)?;
                // SAFETY: just made in this memtable.
                unsafe { (*slot).end(lsn.0) };
                slots.insert(tree, slot);
                slot
            }
        };
        // SAFETY: one thread; the slot is of this memtable.
        unsafe { t.mem.put(row, slot, ordinal, packed, supersedes) }
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
            t.runs.clear();
        }
        for txn in self.prepared.keys() {
            self.next[3] = self.next[3].max(txn.0 + 1);
        }
        self.remove_orphans(&*disk, &runs_dir)?;
        let mut tables = BTreeMap::new();
        let mut temporary = Vec::new();
        for t in std::mem::take(&mut self.tables).into_values() {
            let recipe = recipe(&disk, &runs_dir, &cache, &options, &t.entry);
            let tree = open_tree(&recipe, &t, &notify);
            let table = Table::new(&t.entry, tree);
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
            core.keep_prepared(state, pending, &mut unread)?;
        }
        unread.iter().for_each(|rows| core.lock_unread(rows));
        if generation == 1 {
            core.checkpoint()?;
        }
        Ok(core)
    }

    /// Removes run files that nothing refers to: of loads that did not commit, or whose removal did not get done.
    fn remove_orphans(&mut self, disk: &dyn Disk, runs_dir: &Path) -> Result<()> {
        let mut known: HashSet<FileId> = self.tables.values().flat_map(|t| t.runs.keys().copied()).collect();
        known.extend(self.prepared.values().flat_map(|p| p.attach.iter().map(|r| r.run.file)));
        for entry in disk.list(runs_dir)? {
            let id = entry.name.strip_suffix(".run").and_then(|n| u64::from_str_radix(n, 16).ok());
            let Some(id) = id.map(FileId) else { continue };
            self.next[2] = self.next[2].max(id.0 + 1);
            if !known.contains(&id) {
                disk.remove(&runs_dir.join(&entry.name))?;
            }
        }
        Ok(())
    }
}

/// Entries of runs, put together by their files.
fn by_file(runs: Vec<RunEntry>) -> BTreeMap<FileId, Vec<RunEntry>> {
    let mut files: BTreeMap<FileId, Vec<RunEntry>> = BTreeMap::new();
    for run in runs {
        files.entry(run.file).or_default().push(run);
    }
    files
}

/// A memtable with those versions of `mem` that were committed at `seq` or later.
fn from_seq(mem: &Memtable, seq: Lsn) -> Result<Arc<Memtable>> {
    let kept = Memtable::new(mem.first_lsn)?;
    let mut slots = HashMap::new();
    let mut node = mem.first();
    while let Some(n) = node {
        for v in n.versions().filter(|v| v.slot().status() >= seq.0) {
            let from = v.slot();
            let slot = match slots.get(&from.txn) {
                Some(slot) => *slot,
                None => {
                    let slot = kept.new_slot(from.txn)?;
                    // SAFETY: just made.
                    unsafe { (*slot).end(from.status()) };
                    slots.insert(from.txn, slot);
                    slot
                }
            };
            // SAFETY: one thread; newest first, so each goes below the one before.
            unsafe { kept.carry(n.key(), slot, v.ordinal, (!v.tombstone).then(|| v.packed()), v.supersedes)? };
        }
        node = mem.after(n);
    }
    Ok(kept)
}

fn recipe(
    disk: &Arc<dyn Disk>,
    runs_dir: &Path,
    cache: &Arc<BlockCache>,
    options: &Options,
    entry: &TableEntry,
) -> RunRecipe {
    RunRecipe {
        disk: disk.clone(),
        dir: runs_dir.to_owned(),
        cache: cache.clone(),
        tree: entry.row_tree(),
        layout: entry.layout.layout.clone(),
        format: entry.format,
        compression: entry.compression,
        zstd_level: options.zstd_level,
        block_bytes: options.block_bytes,
        write_bytes: options.bulk_buffer_bytes,
    }
}

/// A tree with its runs; one that cannot be opened is told of, and stays as a run that cannot be read.
fn open_tree(recipe: &RunRecipe, t: &Replayed, notify: &Notify) -> Arc<Tree> {
    let mut state = TreeState::new(t.mem.clone(), t.flushed_to);
    state.marks.clone_from(&t.marks);
    let mut next_row = t.next_row;
    for parts in t.runs.values() {
        let Some(entry) = parts.first() else { continue };
        let run = Run::open(recipe, entry.file, &entry.stats);
        if let Err(e) = run.load() {
            notify(&format!("table '{}': {e}; its rows in that file cannot be read", t.entry.name), Level::Error);
        }
        next_row = next_row.max(entry.stats.max_id.next());
        let aborted = Arc::new(OrdinalRanges(entry.aborted.clone()));
        let whole = RunHandle { seq: entry.seq, aborted, ..RunHandle::committed(run) };
        for part in parts {
            let KeyBounds::Rows(first, last) = part.bounds else { unreachable!("refused by known.rs") };
            state.add_run(RunHandle { first, last, ..whole.clone() });
        }
    }
    Tree::with_state(t.entry.row_tree(), next_row, t.count.rows.max(0), state)
}

#[cfg(test)]
mod tests;
