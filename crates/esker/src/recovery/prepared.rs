//! Prepared transactions after a restart: each gets its versions, runs, range marks and row locks back, as if its session
//! had only let go of it. Invariant: range locks come first, so that no other one's row lock keeps them away; locks of rows
//! that may lie where nothing could be read come last, so that they keep away nobody's row that is known.

use super::*;

/// Rows of a prepared transaction's run that could not be read.
pub(super) struct Unread {
    owner: Arc<TxnState>,
    tree: TreeId,
    rows: std::ops::RangeInclusive<u64>,
}

impl Core {
    /// Locks again what a prepared transaction has emptied.
    pub(super) fn keep_ranges(&self, state: &Arc<TxnState>, pending: &Pending) -> Result<()> {
        let wait = WaitPolicy { timeout: Duration::ZERO, nowait: true };
        for record in RecordReader::new(&pending.redo) {
            let record = record.map_err(|e| Error::damage(&self.dir, pending.logged_at.0, e))?;
            let Record::RangeDelete { table, up_to, .. } = record else { continue };
            if let Some((_, tree)) = self.trees().iter().find(|(t, _)| t.id == table) {
                // Two of one tree excluded each other before: it cannot fail.
                let _ = self.locks.lock_range(&state.locks, &Parker::new(), tree.id, up_to, wait, &NoHooks);
            }
        }
        Ok(())
    }

    /// Gives a prepared transaction its place back: versions, runs, row locks. Rows that it may have written, where nothing
    /// can be read, are added to `unread`, for [`lock_unread`](Self::lock_unread).
    pub(super) fn keep_prepared(&self, state: Arc<TxnState>, pending: Pending, unread: &mut Vec<Unread>) -> Result<()> {
        self.register(&state);
        // What it has is in its PREPARE, and nobody would take over what moved.
        state.moves.lock().closed = true;
        state.set_logged_at(pending.logged_at);
        for (from, to) in &pending.aborted.0 {
            state.abort_ordinals(*from, *to);
        }
        let by_tree: HashMap<TreeId, (Arc<Table>, Arc<Tree>)> =
            self.trees().into_iter().map(|(table, tree)| (tree.id, (table, tree))).collect();
        let mut touched: HashMap<TreeId, i64> = HashMap::new();
        let parker = Parker::new();
        let lock = |tree: TreeId, row: RowId| self.lock_row(&state, &parker, tree, row, LockMode::Exclusive);
        for record in RecordReader::new(&pending.redo) {
            let (tree, row, ordinal, bytes, supersedes) =
                match record.map_err(|e| Error::damage(&self.dir, pending.logged_at.0, e))? {
                    Record::RowPut { ordinal, tree, row, bytes, supersedes, .. } => {
                        (tree, row, ordinal, Some(bytes), supersedes)
                    }
                    Record::RowDelete { ordinal, tree, row, .. } => (tree, row, ordinal, None, true),
                    Record::RangeDelete { ordinal, table, up_to, as_of, .. } => {
                        if let Some((_, t)) = by_tree.values().find(|(t, _)| t.id == table) {
                            touched.entry(t.id).or_default();
                            let owner = Some(state.clone());
                            t.edit(|s| s.marks.push(RangeMark { owner, seq: CommitSeq::ZERO, ordinal, up_to, as_of }));
                        }
                        continue;
                    }
                    _ => continue,
                };
            let Some((_, t)) = by_tree.get(&tree) else {
                continue;
            };
            *touched.entry(tree).or_default() += i64::from(!supersedes) - i64::from(bytes.is_none());
            if !supersedes {
                state.locks.inserts_into(tree, row);
            }
            t.row_seen(row);
            lock(tree, row);
            let guard = t.state.read();
            let slot = state.slot_in(&guard.active)?;
            // SAFETY: the slot is of this memtable; nobody else is there.
            unsafe { guard.active.put(row, slot, ordinal, bytes, supersedes)? };
        }
        for RunRef { tree: id, run: r } in &pending.attach {
            let id = *id;
            let Some((table, tree)) = by_tree.get(&id) else {
                // Of a temporary table, which is gone.
                let _ = self.disk.remove(&run_path(&self.runs_dir, r.file));
                continue;
            };
            let run = Run::open(&self.recipe(table, tree), r.file, &r.stats);
            // What cannot be read now may be readable later: all that could lie there is locked.
            let mut missed = |first: RowId, last: RowId| {
                unread.push(Unread { owner: state.clone(), tree: id, rows: first.0..=last.0 });
            };
            if run.load().is_err() {
                missed(r.stats.min_id, r.stats.max_id);
            }
            for (index, entry) in run.entries().iter().enumerate() {
                match run.read_block(index) {
                    Ok(block) => (0..block.rows()).for_each(|i| lock(id, block.row_id(i))),
                    Err(_) => missed(entry.first_id, entry.last_id),
                }
            }
            tree.row_seen(r.stats.max_id);
            state.locks.inserts_into(id, r.stats.min_id);
            *touched.entry(id).or_default() += count::live_delta(&r.stats);
            tree.edit(|s| s.add_run(RunHandle::private(run, state.clone())));
        }
        let trees = touched
            .into_iter()
            .filter_map(|(id, delta)| by_tree.get(&id).map(|(table, tree)| (tree.clone(), table.clone(), delta)))
            .collect();
        let prepared = Prepared {
            credit: self.wal.reserve_commit(crate::txn::commit::DECISION_BYTES)?,
            state,
            redo: pending.redo,
            trees,
            detached: true,
        };
        self.prepared.lock().insert(pending.xid, prepared);
        Ok(())
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
