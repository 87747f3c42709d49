//! The log over the manifest: redo of committed transactions goes to memtables, edits of catalog and runs to sets of ids.
//!
//! Invariants: no file of a run is opened here. Replaying twice, or more than was needed, gives the same: edits name files
//! by ids never used twice, and what runs hold comes to no memtable.

use super::count::{live_delta, Count};
use super::known;
use super::tree::ReplayedTree;
use crate::catalog::ids::Ids;
use crate::catalog::table::{is_temporary, key_trees};
use crate::options::{Level, Notify, Options};
use crate::tree::key::{ByBytes, ByRow};
use crate::tree::memtable::Change;
use crate::tree::stored::entry_value;
use crate::tree::RangeMark;
use crate::version::OrdinalRanges;
use crate::{Error, Result};
use esker_format::{
    grow, CommitSeq, FileId, FolderId, FormatError, IndexStatistics, Lsn, Manifest, Record, RecordReader, RowId,
    RunEntry, RunRef, TableEntry, TableId, TableState, TreeEntry, TreeId, TreeKind, TxnId,
};
use esker_io::Disk;
use esker_wal::{Clock, Opening, SyncMethod, WalOptions, FRAME_ALIGN};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// A table while the log is replayed.
pub(super) struct Replayed {
    pub(super) entry: TableEntry,
    pub(super) next_row: RowId,
    pub(super) next_auto_increment: u64,
    pub(super) count: Count,
    pub(super) marks: Vec<RangeMark>,
    pub(super) rows: ReplayedTree<ByRow>,
    /// In the order of the entry's.
    pub(super) keys: Vec<ReplayedTree<ByBytes>>,
    /// Of key trees, some of which may be there no more.
    pub(super) statistics: Vec<IndexStatistics>,
}

impl Replayed {
    /// An empty table whose trees begin at `lsn`.
    fn new(entry: TableEntry, lsn: Lsn) -> Result<Self> {
        let rows = ReplayedTree::new(entry.row_tree(), lsn)?;
        let keys = key_trees(&entry).map(|(id, _)| ReplayedTree::new(id, lsn)).collect::<Result<_>>()?;
        let (next_row, count) = (RowId(1), Count::new(0, CommitSeq(lsn.0)));
        let (marks, statistics) = (Vec::new(), Vec::new());
        Ok(Replayed { next_row, next_auto_increment: 0, count, marks, rows, keys, statistics, entry })
    }

    fn learn(&mut self, found: Vec<IndexStatistics>) {
        self.statistics.retain(|known| !found.iter().any(|f| f.tree == known.tree));
        self.statistics.extend(found);
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
pub(super) struct Pending {
    pub(super) xid: Vec<u8>,
    /// Its redo, with the prepare record at the end.
    pub(super) redo: Vec<u8>,
    pub(super) attach: Vec<RunRef>,
    pub(super) aborted: OrdinalRanges,
    /// By how many rows it changes tables.
    pub(super) deltas: Vec<(TableId, i64)>,
    pub(super) logged_at: Lsn,
}

/// What is known so far.
pub(super) struct Replay {
    pub(super) folder: FolderId,
    pub(super) wal_dir: PathBuf,
    pub(super) from: Lsn,
    /// The newest commit that the manifest names: all of the log up to it was durable before the manifest was.
    named: Lsn,
    pub(super) tables: BTreeMap<TableId, Replayed>,
    pub(super) trees: HashMap<TreeId, TableId>,
    pub(super) redo: HashMap<TxnId, Vec<u8>>,
    pub(super) prepared: BTreeMap<TxnId, Pending>,
    pub(super) ids: Ids,
}

/// About what a change takes as a record, in bytes, and no less.
fn encoded_bytes(record: &Record<'_>) -> usize {
    let long = match record {
        Record::RowPut { bytes, .. } => bytes.len(),
        Record::KeyPut { key, payload, .. } => key.len() + payload.len(),
        Record::KeyDelete { key, .. } => key.len(),
        _ => 0,
    };
    64 + long
}

/// The newest commit that a manifest names. What was visible when an opening began, before any commit, is no commit's sequence,
/// and not where a frame can begin.
fn newest_named(manifest: &Manifest) -> Lsn {
    let of_table = |t: &TableState| {
        let marks = t.range_deletes.iter().flat_map(|m| [m.seq, m.as_of]);
        let runs = t.trees.iter().flat_map(|tree| &tree.runs).map(|run| run.seq);
        let commits = marks.chain(runs).chain([t.counted_at]).filter(|seq| seq.0 % FRAME_ALIGN as u64 == 0);
        commits.max().unwrap_or_default()
    };
    Lsn(manifest.tables.values().map(of_table).max().unwrap_or_default().0)
}

impl Replay {
    /// What the manifest says.
    pub(super) fn new(manifest: Manifest, manifest_path: &Path, wal_dir: &Path) -> Result<Self> {
        let mut replay = Replay {
            folder: manifest.folder,
            wal_dir: wal_dir.to_owned(),
            from: manifest.replay_from,
            named: newest_named(&manifest),
            tables: BTreeMap::new(),
            trees: HashMap::new(),
            redo: HashMap::new(),
            prepared: BTreeMap::new(),
            ids: Ids::of(&manifest),
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
            let count = Count::new(state.live_rows, state.counted_at);
            let rows = ReplayedTree::of(rows, replay.from)?.map_err(damage)?;
            let key = |(id, _)| ReplayedTree::of(take(id)?, replay.from)?.map_err(damage);
            let keys = key_trees(&state.entry).map(key).collect::<Result<_>>()?;
            let marks = state
                .range_deletes
                .iter()
                .map(|r| RangeMark { owner: None, seq: r.seq, ordinal: r.ordinal, up_to: r.up_to, as_of: r.as_of })
                .collect();
            replay.trees.extend(state.entry.trees.iter().map(|t| (t.id, id)));
            let (next_row, next_auto_increment) = (state.next_row_id, state.next_auto_increment);
            let (entry, statistics) = (state.entry, state.statistics);
            let table = Replayed { entry, next_row, next_auto_increment, count, marks, rows, keys, statistics };
            replay.tables.insert(id, table);
        }
        Ok(replay)
    }

    /// Replays the log, of which there may be none if `create`; tells the progress of it.
    pub(super) fn run(
        &mut self,
        disk: &Arc<dyn Disk>,
        options: &Options,
        notify: &Notify,
        create: bool,
    ) -> Result<Opening> {
        let clock = options.host.clone();
        let wal_options = WalOptions {
            segment_bytes: options.wal_segment_bytes,
            // What stays in memory needs no trial.
            sync_method: if options.read_only { Some(SyncMethod::Fdatasync) } else { options.sync_method },
            clock: Clock(Arc::new(move || clock.now())),
            folder: self.folder,
            durable: self.named,
            create,
            ..WalOptions::default()
        };
        let (dir, from) = (self.wal_dir.clone(), self.from);
        let started = options.host.now();
        let mut said = started;
        options.host.opening(0.0);
        let mut progress = |done: u64, total: u64| {
            let now = options.host.now();
            if now - said >= Duration::from_secs(1) && total > 0 {
                said = now;
                options.host.opening(done as f64 / total as f64);
                let left = (now - started).as_secs_f64() * (total - done.min(total)) as f64 / done.max(1) as f64;
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
                let redo = self.redo.entry(txn).or_default();
                grow(redo, encoded_bytes(&record)).map_err(Error::in_memory)?;
                record.encode(redo);
            }
            Record::Prepare { txn, xid, ref attach, ref aborted, ref deltas } => {
                let (xid, attach, deltas) = (xid.to_vec(), attach.clone(), deltas.clone());
                let aborted = OrdinalRanges(aborted.clone());
                let mut redo = self.redo.remove(&txn).unwrap_or_default();
                record.encode(&mut redo);
                self.seen_files(attach.iter().map(|r| r.run.file));
                self.prepared.insert(txn, Pending { xid, redo, attach, aborted, deltas, logged_at: lsn });
            }
            Record::Commit { txn, attach, aborted, deltas } => {
                let redo = self.redo.remove(&txn).unwrap_or_default();
                self.seen_files(attach.iter().map(|r| r.run.file));
                self.count(lsn, &deltas);
                self.commit(txn, lsn, &redo, &attach, &OrdinalRanges(aborted))?;
            }
            Record::CommitPrepared { txn } => {
                if let Some(p) = self.prepared.remove(&txn) {
                    self.count(lsn, &p.deltas);
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
            Record::AlterIndexes { table, trees, attach } => self.alter_indexes(lsn, table, &trees, attach)?,
            Record::TreeEdit { tree, add, remove, flushed_to } => self.edit(lsn, tree, add, &remove, flushed_to)?,
            Record::RowIdMark { tree, next } => {
                if let Some(t) = self.table_of(tree) {
                    t.next_row = t.next_row.max(next);
                }
            }
            Record::AutoIncrementMark { table, next } => {
                // A table that was emptied later begins anew; that of its creation stands in one frame with it.
                if let Some(t) = self.tables.get_mut(&table).filter(|t| t.entry.rebuilt_seq.0 <= lsn.0) {
                    t.next_auto_increment = t.next_auto_increment.max(next);
                }
            }
            Record::IndexStatistics { table, statistics } => {
                if let Some(t) = self.tables.get_mut(&table) {
                    t.learn(statistics);
                }
            }
            // Refused before.
            Record::CreateSnapshot { .. } | Record::DropSnapshot { .. } => {}
        }
        Ok(())
    }

    fn table_of(&mut self, tree: TreeId) -> Option<&mut Replayed> {
        self.trees.get(&tree).and_then(|id| self.tables.get_mut(id))
    }

    fn seen_files(&mut self, files: impl Iterator<Item = FileId>) {
        files.for_each(|file| self.ids.file_seen(file));
    }

    fn create(&mut self, lsn: Lsn, mut entry: TableEntry) -> Result<()> {
        entry.rebuilt_seq = CommitSeq(lsn.0);
        self.ids.table_seen(entry.id);
        entry.trees.iter().for_each(|t| self.ids.tree_seen(t.id));
        if self.tables.contains_key(&entry.id) {
            return Ok(());
        }
        self.trees.extend(entry.trees.iter().map(|t| (t.id, entry.id)));
        self.tables.insert(entry.id, Replayed::new(entry, lsn)?);
        Ok(())
    }

    fn truncate(&mut self, lsn: Lsn, table: TableId, trees: &[(TreeId, TreeId)]) -> Result<()> {
        trees.iter().for_each(|(_, new)| self.ids.tree_seen(*new));
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

    /// Key trees that are not there begin here. Replayed over a later state they go again with the record that took them away.
    fn alter_indexes(&mut self, lsn: Lsn, table: TableId, trees: &[TreeEntry], attach: Vec<RunRef>) -> Result<()> {
        trees.iter().for_each(|t| self.ids.tree_seen(t.id));
        self.seen_files(attach.iter().map(|r| r.run.file));
        let Some(t) = self.tables.get_mut(&table) else {
            return Ok(());
        };
        let rows = TreeEntry { id: t.entry.row_tree(), kind: TreeKind::Rows };
        if !trees.contains(&rows) {
            // It was emptied later.
            return Ok(());
        }
        let usable_from: HashMap<_, _> = key_trees(&t.entry).map(|(id, index)| (id, index.usable_from)).collect();
        let mut before: HashMap<_, _> = std::mem::take(&mut t.keys).into_iter().map(|k| (k.id, k)).collect();
        let mut attached: HashMap<TreeId, Vec<RunEntry>> = HashMap::new();
        for RunRef { tree, run } in attach {
            attached.entry(tree).or_default().push(RunEntry { seq: CommitSeq(lsn.0), ..run });
        }
        t.entry.trees = trees.to_vec();
        for tree in &mut t.entry.trees {
            let TreeKind::Keys(index) = &mut tree.kind else { continue };
            index.usable_from = usable_from.get(&tree.id).copied().unwrap_or(CommitSeq(lsn.0));
            let known = before.remove(&tree.id);
            let mut keys = known.map_or_else(|| ReplayedTree::new(tree.id, lsn), Ok)?;
            if !usable_from.contains_key(&tree.id) {
                let runs = attached.remove(&tree.id).unwrap_or_default();
                let added = runs.into_iter().try_for_each(|run| keys.attach(run));
                added.map_err(|e| Error::damage(&self.wal_dir, lsn.0, e))?;
            }
            t.keys.push(keys);
        }
        self.trees.retain(|_, id| *id != table);
        self.trees.extend(t.entry.trees.iter().map(|tree| (tree.id, table)));
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
                t.next_row = add.iter().map(|r| r.stats.max_id.next()).fold(t.next_row, RowId::max);
                t.rows.edit(add, remove, flushed_to)?
            }
        };
        edited.map_err(|e| self.damage(lsn, e))
    }

    /// A commit says by how much it changed the number of rows. Before its rows: those of which it says so are not guessed.
    fn count(&mut self, lsn: Lsn, deltas: &[(TableId, i64)]) {
        for (table, rows) in deltas {
            if let Some(t) = self.tables.get_mut(table) {
                t.count.add(CommitSeq(lsn.0), *rows);
            }
        }
    }

    fn commit(&mut self, txn: TxnId, lsn: Lsn, redo: &[u8], attach: &[RunRef], aborted: &OrdinalRanges) -> Result<()> {
        self.ids.txn_seen(txn);
        let seq = CommitSeq(lsn.0);
        for RunRef { tree, run } in attach {
            let Some(t) = self.table_of(*tree) else { continue };
            let entry = RunEntry { seq, aborted: aborted.0.clone(), ..run.clone() };
            let attached = match t.key_tree(*tree) {
                Some(keys) => keys.attach(entry),
                None => {
                    t.next_row = t.next_row.max(run.stats.max_id.next());
                    t.count.guess(seq, live_delta(&run.stats));
                    t.rows.attach(entry)
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
                        t.count.guess(seq, -t.count.rows);
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
        t.count.guess(CommitSeq(lsn.0), i64::from(!change.supersedes) - i64::from(change.tombstone));
        t.rows.put(txn, lsn, row, change)
    }

    fn put_key(&mut self, txn: TxnId, lsn: Lsn, tree: TreeId, key: &[u8], change: Change<'_>) -> Result<()> {
        match self.table_of(tree).and_then(|t| t.key_tree(tree)) {
            Some(keys) => keys.put(txn, lsn, key, change),
            None => Ok(()),
        }
    }

    /// The log is replayed: temporary tables go, with what prepared transactions have in them. Nothing is logged, which a full
    /// disk might refuse: until a manifest is without them each replay meets them, and forgets them again. Their names may be others'.
    pub(super) fn forget_temporary(&mut self) {
        self.tables.retain(|_, t| !is_temporary(&t.entry));
        self.trees.retain(|_, table| self.tables.contains_key(table));
        for p in self.prepared.values_mut() {
            p.attach.retain(|r| self.trees.contains_key(&r.tree));
        }
    }

    /// The files of runs that a table or a prepared transaction has.
    pub(super) fn files(&self) -> impl Iterator<Item = FileId> + '_ {
        let attached = self.prepared.values().flat_map(|p| p.attach.iter().map(|r| r.run.file));
        self.tables.values().flat_map(Replayed::files).chain(attached)
    }
}
