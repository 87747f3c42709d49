//! Prepared transactions after a restart: each gets its versions, runs, range marks and row locks back, as if its session
//! had only let go of it. Invariant: range locks come first, so that no other one's row lock keeps them away; locks of rows
//! that may lie where nothing could be read come last, so that they keep away nobody's row that is known.

use super::*;
use crate::catalog::table::{with_tree, AnyTree};
use crate::core::PreparedTable;

/// Rows of a prepared transaction's run that could not be read.
pub(super) struct Unread {
    owner: Arc<TxnState>,
    tree: TreeId,
    rows: std::ops::RangeInclusive<u64>,
}

/// Puts a version back where nobody else writes.
fn put_back<K: Stored>(tree: &Tree<K>, state: &TxnState, key: K::Ref<'_>, change: Change<'_>) -> Result<()> {
    let guard = tree.state.read();
    let slot = state.slot_in(&guard.active)?;
    // SAFETY: the slot is of this memtable; nobody else is there.
    unsafe { guard.active.put(key, slot, change)? };
    tree.has_something();
    Ok(())
}

impl Core {
    /// Locks again what a prepared transaction has emptied.
    pub(super) fn keep_ranges(&self, state: &Arc<TxnState>, pending: &Pending) -> Result<()> {
        let wait = WaitPolicy { timeout: Duration::ZERO, nowait: true };
        for record in RecordReader::new(&pending.redo) {
            let record = record.map_err(|e| Error::damage(&self.dir, pending.logged_at.0, e))?;
            let Record::RangeDelete { table, up_to, .. } = record else { continue };
            if let Some(table) = self.tables().iter().find(|t| t.id == table) {
                // Two of one table excluded each other before: it cannot fail.
                let _ = self.locks.lock_range(&state.locks, &Parker::new(), table.tree_id(), up_to, wait, &NoHooks);
            }
        }
        Ok(())
    }

    /// Gives a prepared transaction its place back: versions, runs, row locks. Rows that it may have written, where nothing
    /// can be read, are added to `unread`, for [`lock_unread`](Self::lock_unread).
    pub(super) fn keep_prepared(
        &self,
        state: Arc<TxnState>,
        pending: Pending,
        files: &OpenedFiles,
        unread: &mut Vec<Unread>,
    ) -> Result<()> {
        self.register(&state);
        // What it has is in its PREPARE, and nobody would take over what moved.
        state.moves.lock().closed = true;
        state.set_logged_at(pending.logged_at);
        for (from, to) in &pending.aborted.0 {
            state.abort_ordinals(*from, *to);
        }
        let by_tree: HashMap<TreeId, (Arc<Table>, AnyTree)> =
            self.trees().into_iter().map(|(table, tree)| (tree.id(), (table, tree))).collect();
        let mut touched: BTreeMap<TableId, PreparedTable> = BTreeMap::new();
        let mut delta = |table: &Arc<Table>, rows: i64| {
            let new = || PreparedTable { table: table.clone(), trees: table.trees(), live_delta: 0 };
            touched.entry(table.id).or_insert_with(new).live_delta += rows;
        };
        let parker = Parker::new();
        let lock = |tree: TreeId, row: RowId| self.lock_row(&state, &parker, tree, row, LockMode::Exclusive);
        for record in RecordReader::new(&pending.redo) {
            match record.map_err(|e| Error::damage(&self.dir, pending.logged_at.0, e))? {
                Record::RowPut { ordinal, tree, row, bytes, supersedes, .. } => {
                    let Some((table, AnyTree::Rows(t))) = by_tree.get(&tree) else { continue };
                    delta(table, i64::from(!supersedes));
                    if !supersedes {
                        state.locks.inserts_into(tree, row);
                    }
                    t.row_seen(row);
                    lock(tree, row);
                    put_back(t, &state, row, Change::of_row(ordinal, Some(bytes), supersedes))?;
                }
                Record::RowDelete { ordinal, tree, row, .. } => {
                    let Some((table, AnyTree::Rows(t))) = by_tree.get(&tree) else { continue };
                    delta(table, -1);
                    t.row_seen(row);
                    lock(tree, row);
                    put_back(t, &state, row, Change::of_row(ordinal, None, true))?;
                }
                // Their rows are locked.
                Record::KeyPut { ordinal, tree, row, key, payload, .. } => {
                    let Some((table, AnyTree::Keys(t))) = by_tree.get(&tree) else { continue };
                    delta(table, 0);
                    put_back(t, &state, key, Change::of_entry(ordinal, &entry_value(row, payload), false))?;
                }
                Record::KeyDelete { ordinal, tree, row, key, .. } => {
                    let Some((table, AnyTree::Keys(t))) = by_tree.get(&tree) else { continue };
                    delta(table, 0);
                    put_back(t, &state, key, Change::of_entry(ordinal, &entry_value(row, &[]), true))?;
                }
                Record::RangeDelete { ordinal, table, up_to, as_of, .. } => {
                    let Some((table, _)) = by_tree.values().find(|(t, _)| t.id == table) else { continue };
                    delta(table, 0);
                    let mark = RangeMark { owner: Some(state.clone()), seq: CommitSeq::ZERO, ordinal, up_to, as_of };
                    for tree in table.trees().all() {
                        with_tree!(tree, tree => tree.edit(|s| s.marks.push(mark.clone())));
                    }
                }
                _ => {}
            }
        }
        for RunRef { tree: id, run: r } in &pending.attach {
            let Some((table, tree)) = by_tree.get(id) else {
                // Of a temporary table, which is gone.
                continue;
            };
            delta(table, 0);
            let tree = match tree {
                AnyTree::Keys(tree) => {
                    self.attach_prepared((table, tree), r, files, &state, pending.logged_at)?;
                    continue;
                }
                AnyTree::Rows(tree) => tree,
            };
            let run = self.attach_prepared((table, tree), r, files, &state, pending.logged_at)?;
            // What cannot be read now may be readable later: all that could lie there is locked.
            let mut missed = |first: RowId, last: RowId| {
                unread.push(Unread { owner: state.clone(), tree: *id, rows: first.0..=last.0 });
            };
            match run.index() {
                Ok(blocks) => {
                    for (at, entry) in blocks.entries().iter().enumerate() {
                        match run.read_block_of(&blocks, at) {
                            Ok(block) => (0..block.rows()).for_each(|i| lock(*id, block.row_id(i))),
                            Err(_) => missed(entry.first_id, entry.last_id),
                        }
                    }
                }
                Err(_) => missed(r.stats.min_id, r.stats.max_id),
            }
            tree.row_seen(r.stats.max_id);
            state.locks.inserts_into(*id, r.stats.min_id);
            delta(table, count::live_delta(&r.stats));
        }
        let prepared = Prepared {
            credit: self.wal.reserve_commit(crate::txn::commit::DECISION_BYTES)?,
            state,
            redo: pending.redo,
            tables: touched.into_values().collect(),
            detached: true,
        };
        self.prepared.lock().insert(pending.xid, prepared);
        Ok(())
    }

    /// Lets a private run of a prepared transaction join its tree.
    fn attach_prepared<K: Stored>(
        &self,
        (table, tree): (&Table, &Arc<Tree<K>>),
        r: &RunEntry,
        files: &OpenedFiles,
        state: &Arc<TxnState>,
        logged_at: Lsn,
    ) -> Result<Arc<Run<K>>> {
        let bounds = K::from_bounds(&r.bounds).ok_or_else(|| {
            let reason = FormatError::Invalid { what: "kind of the bounds of a run, file", found: r.file.0 };
            Error::damage(&self.dir, logged_at.0, reason)
        })?;
        let run = Run::open(&self.recipe(table, tree), &files.of(r.file), r.part, &r.stats, bounds);
        tree.edit(|s| s.add_run(RunHandle::private(run.clone(), state.clone())));
        Ok(run)
    }

    /// Keeps writers from rows that a prepared transaction may have written. Shared: another one may have, too, and each keeps
    /// them away until it has ended.
    pub(super) fn lock_unread(&self, unread: &Unread) {
        let parker = Parker::new();
        unread
            .rows
            .clone()
            .for_each(|row| self.lock_row(&unread.owner, &parker, unread.tree, RowId(row), LockMode::Shared));
    }

    /// Fails only where another one has the row, or a range in which this one has inserted it.
    fn lock_row(&self, state: &Arc<TxnState>, parker: &Arc<Parker>, tree: TreeId, row: RowId, mode: LockMode) {
        let wait = WaitPolicy { timeout: Duration::ZERO, nowait: true };
        let _ = self.locks.lock(&state.locks, parker, tree, row, mode, wait, &NoHooks);
    }
}
