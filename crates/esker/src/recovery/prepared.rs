//! Prepared transactions after a restart: each gets its versions, runs, range marks and row locks back, as if its session
//! had only let go of it. Its runs say which rows they are of, so none of their blocks is read, however many rows there are.
//! Invariant: range locks come first, so that no other one's row lock keeps them away; locks of rows
//! that may lie where nothing could be read come last, so that they keep away nobody's row that is known.

use super::replay::Pending;
use crate::catalog::table::{with_tree, AnyTree, Table};
use crate::core::Core;
use crate::lock::{LockMode, NoHooks, Parker, WaitPolicy};
use crate::options::Level;
use crate::tree::memtable::Change;
use crate::tree::run::file::OpenedFiles;
use crate::tree::run::Run;
use crate::tree::stored::{entry_value, Stored};
use crate::tree::{RangeMark, RunHandle, Tree};
use crate::txn::commit::DECISION_BYTES;
use crate::txn::prepared::{Prepared, PreparedTable};
use crate::txn::state::TxnState;
use crate::{Error, Result};
use esker_format::{FormatError, Lsn, Record, RecordReader, RowId, RunEntry, RunRef, TableId, TreeId, TxnId};
use std::collections::{BTreeMap, HashMap};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

/// Nobody is there to wait for.
const AT_ONCE: WaitPolicy = WaitPolicy { timeout: Duration::ZERO, nowait: true };

/// Gives prepared transactions their places back.
pub(super) fn bring_back(core: &Core, pending: BTreeMap<TxnId, Pending>, files: &OpenedFiles) -> Result<()> {
    if pending.is_empty() {
        return Ok(());
    }
    let pending: Vec<_> = pending.into_iter().map(|(txn, p)| (TxnState::new(txn), p)).collect();
    // Ranges first: what another one has in them was inserted and needs no lock, but would keep the range away.
    for (state, pending) in &pending {
        lock_ranges(core, state, pending)?;
    }
    let mut unread = Vec::new();
    let trees = core.trees().into_iter().map(|(table, tree)| (tree.id(), (table, tree))).collect();
    for (state, pending) in pending {
        Restoring::new(core, state, &pending, (files, &trees)).run(pending, &mut unread)?;
    }
    unread.iter().for_each(|rows| lock_unread(core, rows));
    Ok(())
}

/// Locks again what a prepared transaction has emptied.
fn lock_ranges(core: &Core, state: &TxnState, pending: &Pending) -> Result<()> {
    for record in RecordReader::new(&pending.redo) {
        let record = record.map_err(|e| Error::damage(&core.dir, pending.logged_at.0, e))?;
        let Record::RangeDelete { table, up_to, .. } = record else { continue };
        if let Some(table) = core.tables().iter().find(|t| t.id == table) {
            // Two of one table excluded each other before: it cannot fail.
            let _ = core.locks.lock_range(&state.locks, &Parker::new(), table.tree_id(), up_to, AT_ONCE, &NoHooks);
        }
    }
    Ok(())
}

/// Rows of a prepared transaction's run that could not be read.
struct Unread {
    owner: Arc<TxnState>,
    tree: TreeId,
    rows: RangeInclusive<u64>,
}

/// Keeps writers from rows that a prepared transaction may have written. Shared: another one may have, too, and each keeps
/// them away until it has ended.
fn lock_unread(core: &Core, unread: &Unread) {
    let (first, last) = (*unread.rows.start(), *unread.rows.end());
    for high in first >> 16..=last >> 16 {
        let low = |row: u64| row.clamp(high << 16, high << 16 | 0xffff) as u16;
        let rows = std::iter::once(low(first)..=low(last));
        core.locks.restore(&unread.owner.locks, unread.tree, high, rows, LockMode::Shared);
    }
}

/// The tables that one has written in.
#[derive(Default)]
struct WrittenTables(BTreeMap<TableId, PreparedTable>);

impl WrittenTables {
    fn add(&mut self, table: &Arc<Table>) {
        self.0.entry(table.id).or_insert_with(|| PreparedTable { table: table.clone(), trees: table.trees() });
    }
}

/// A prepared transaction that gets its place back.
struct Restoring<'a> {
    core: &'a Core,
    files: &'a OpenedFiles,
    state: Arc<TxnState>,
    logged_at: Lsn,
    trees: &'a HashMap<TreeId, (Arc<Table>, AnyTree)>,
    touched: WrittenTables,
}

impl<'a> Restoring<'a> {
    fn new(
        core: &'a Core,
        state: Arc<TxnState>,
        pending: &Pending,
        (files, trees): (&'a OpenedFiles, &'a HashMap<TreeId, (Arc<Table>, AnyTree)>),
    ) -> Self {
        Restoring { core, files, state, logged_at: pending.logged_at, trees, touched: WrittenTables::default() }
    }

    /// Versions, runs, row locks. Rows that it may have written, where nothing can be read, are added to `unread`, for
    /// [`lock_unread`].
    fn run(mut self, pending: Pending, unread: &mut Vec<Unread>) -> Result<()> {
        let state = &self.state;
        self.core.writers.add(state);
        state.locks.activity.begins(&*self.core.host);
        // What it has is in its PREPARE, and nobody would take over what moved.
        state.moves.lock().closed = true;
        state.set_logged_at(pending.logged_at);
        for ordinals in &pending.aborted.0 {
            state.abort_ordinals(ordinals.start, ordinals.end);
        }
        for record in RecordReader::new(&pending.redo) {
            self.redo(record.map_err(|e| self.damage(e))?)?;
        }
        for run in &pending.attach {
            self.attach(run, unread)?;
        }
        for (id, t) in &self.touched.0 {
            let rows = pending.deltas.iter().find(|d| d.0 == *id).map(|d| d.1);
            t.trees.live.enter(&self.core.views, &self.state, rows);
        }
        let prepared = Prepared {
            credit: self.core.wal.reserve_commit(DECISION_BYTES)?,
            state: self.state,
            redo: pending.redo,
            tables: self.touched.0.into_values().collect(),
            detached: true,
            who: esker_wal::Committer::No,
        };
        self.core.prepared.lock().insert(pending.xid, prepared);
        Ok(())
    }

    /// Of what the log says where it was prepared.
    fn damage(&self, e: FormatError) -> Error {
        Error::damage(&self.core.dir, self.logged_at.0, e)
    }

    fn lock(&self, tree: TreeId, row: RowId) {
        let low = row.0 as u16;
        self.lock_all(tree, row.0 >> 16, std::iter::once(low..=low));
    }

    fn lock_all(&self, tree: TreeId, high: u64, rows: impl Iterator<Item = RangeInclusive<u16>>) {
        self.core.locks.restore(&self.state.locks, tree, high, rows, LockMode::Exclusive);
    }

    /// Puts a version back, and locks its row.
    fn redo(&mut self, record: Record<'_>) -> Result<()> {
        let state = self.state.clone();
        match record {
            Record::RowPut { ordinal, tree, row, bytes, supersedes, .. } => {
                let Some((table, AnyTree::Rows(t))) = self.trees.get(&tree) else { return Ok(()) };
                self.touched.add(table);
                if !supersedes {
                    state.locks.inserts_into(tree, row);
                }
                t.row_seen(row);
                self.lock(tree, row);
                put_back(t, &state, row, Change::of_row(ordinal, Some(bytes), supersedes))
            }
            Record::RowDelete { ordinal, tree, row, .. } => {
                let Some((table, AnyTree::Rows(t))) = self.trees.get(&tree) else { return Ok(()) };
                self.touched.add(table);
                t.row_seen(row);
                self.lock(tree, row);
                put_back(t, &state, row, Change::of_row(ordinal, None, true))
            }
            // Their rows are locked.
            Record::KeyPut { ordinal, tree, row, key, payload, .. } => {
                let Some((table, AnyTree::Keys(t))) = self.trees.get(&tree) else { return Ok(()) };
                self.touched.add(table);
                put_back(t, &state, key, Change::of_entry(ordinal, &entry_value(row, payload), false))
            }
            Record::KeyDelete { ordinal, tree, row, key, .. } => {
                let Some((table, AnyTree::Keys(t))) = self.trees.get(&tree) else { return Ok(()) };
                self.touched.add(table);
                put_back(t, &state, key, Change::of_entry(ordinal, &entry_value(row, &[]), true))
            }
            Record::RangeDelete { ordinal, table, up_to, as_of, .. } => {
                let Some((table, _)) = self.trees.values().find(|(t, _)| t.id == table) else { return Ok(()) };
                self.touched.add(table);
                // Its locks reach so far: nobody's new row is to lie among them.
                table.tree().row_seen(RowId(up_to.0.saturating_sub(1)));
                let mark = RangeMark::own(state, ordinal, up_to, as_of);
                for tree in table.trees().all() {
                    with_tree!(tree, tree => tree.edit(|s| s.marks.push(mark.clone())));
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Lets a private run join its tree, and locks its rows.
    fn attach(&mut self, attached: &RunRef, unread: &mut Vec<Unread>) -> Result<()> {
        let RunRef { tree: id, run: entry } = attached;
        let Some((table, tree)) = self.trees.get(id) else {
            // Of a temporary table, which is gone.
            return Ok(());
        };
        self.touched.add(table);
        let tree = match tree {
            AnyTree::Keys(tree) => return self.open(table, tree, entry).map(drop),
            AnyTree::Rows(tree) => tree,
        };
        let run = self.open(table, tree, entry)?;
        self.lock_rows_of(&run, table, unread);
        tree.row_seen(entry.stats.max_id);
        self.state.locks.inserts_into(*id, entry.stats.min_id);
        Ok(())
    }

    /// Locks the rows of a run by what it says of them; else by its blocks, as a run of before it said so has nothing else.
    fn lock_rows_of(&self, run: &Arc<Run>, table: &Table, unread: &mut Vec<Unread>) {
        let id = run.tree;
        match run.row_ids() {
            Ok(Some(ids)) => {
                for rows in ids.containers() {
                    rows.highs.clone().for_each(|high| self.lock_all(id, high, rows.ranges()));
                }
                return;
            }
            Ok(None) => {}
            Err(e) => {
                let text = format!(
                    "table '{}': {e}; what a prepared transaction has locked is told by the blocks",
                    table.name()
                );
                (self.core.notify)(&text, Level::Warning);
            }
        }
        // What cannot be read now may be readable later: all that could lie there is locked.
        let mut missed = |first: RowId, last: RowId| {
            unread.push(Unread { owner: self.state.clone(), tree: id, rows: first.0..=last.0 });
        };
        match run.index() {
            Ok(blocks) => {
                for (at, block) in blocks.entries().iter().enumerate() {
                    match run.read_in_order(&blocks, at) {
                        Ok(rows) => (0..rows.rows()).for_each(|i| self.lock(id, rows.row_id(i))),
                        Err(_) => missed(block.first_id, block.last_id),
                    }
                }
            }
            Err(_) => missed(run.stats.min_id, run.stats.max_id),
        }
    }

    fn open<K: Stored>(&self, table: &Table, tree: &Tree<K>, entry: &RunEntry) -> Result<Arc<Run<K>>> {
        let bounds = K::from_bounds(&entry.bounds).ok_or_else(|| {
            self.damage(FormatError::Invalid { what: "kind of the bounds of a run, file", found: entry.file.0 })
        })?;
        let (recipe, file) = (self.core.runs.recipe(table, tree), self.files.of(entry.file));
        let run = Run::open(&recipe, &file, entry.part, &entry.stats, bounds);
        tree.edit(|s| s.add_run(RunHandle::private(run.clone(), self.state.clone())));
        Ok(run)
    }
}

/// Puts a version back where nobody else writes.
fn put_back<K: Stored>(tree: &Tree<K>, state: &TxnState, key: K::Ref<'_>, change: Change<'_>) -> Result<()> {
    let guard = tree.state.read();
    let slot = state.slot_in(&guard.active)?;
    // SAFETY: the slot is of this memtable; nobody else is there.
    unsafe { guard.active.put(key, slot, change)? };
    tree.mark_in_memory(&guard.active);
    Ok(())
}
