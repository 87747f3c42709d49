//! The manifest: a snapshot of catalog and runs at a position of the log, so that the log before it can go.
//!
//! Order: take the position, log prepared transactions that lie far back again behind it, take the snapshot, sync the log up to its end
//! (the snapshot may name runs of commits that are in the log's memory only), make it the manifest (`manifest.rs`); only
//! then recycle log segments. A crash before that leaves the old manifest and all of the log it needs; a crash after it
//! the new one. The snapshot is taken while work goes on: it
//! may hold edits that are replayed again, which changes nothing, because every edit names runs by ids never used twice.

use crate::catalog::table::{with_tree, Table};
use crate::core::{Core, Prepared};
use crate::tree::stored::Stored;
use crate::tree::{RunHandle, Tree};
use crate::version::{ABORTED, ACTIVE};
use crate::Result;
use esker_base::counters::{count, Counter};
use esker_format::{
    CommitSeq, FileId, Lsn, Manifest, RangeTombstone, Record, RunEntry, TableId, TableState, TreeId, TreeState, TxnId,
};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

impl Core {
    /// Writes a manifest and recycles the log before it.
    pub(crate) fn checkpoint(&self) -> Result<()> {
        let mut written = self.manifest.lock();
        self.check_writable()?;
        let (position, mut replay_from) = self.relog_prepared()?;
        #[cfg(test)]
        crate::tests::hooks::reached("checkpoint has its position");
        let mut tables = BTreeMap::new();
        for table in self.tables() {
            let (state, needed) = table_state(&table, position);
            replay_from = replay_from.min(needed);
            tables.insert(table.id, state);
        }
        #[cfg(test)]
        crate::tests::hooks::reached("checkpoint has the tables");
        let before = self.signals.replay_from();
        assert!(
            replay_from >= before,
            "the place from which the log is needed went back from {before} to {replay_from}"
        );
        assert!(replay_from >= self.wal.stats().first, "the log is needed from {replay_from}, which is gone");
        self.wal.wait_durable(self.wal.end_lsn())?;
        let manifest = Manifest {
            folder: self.folder,
            required_features: 0,
            generation: written.generation + 1,
            replay_from,
            next_table: TableId(self.next_table.load(Ordering::Relaxed)),
            next_tree: TreeId(self.next_tree.load(Ordering::Relaxed)),
            next_file: FileId(self.next_file.load(Ordering::Relaxed)),
            next_txn: TxnId(self.next_txn.load(Ordering::Relaxed)),
            prepared: Vec::new(),
            tables,
        };
        written.write(self, manifest)?;
        self.signals.set_replay_from(replay_from);
        count(Counter::Checkpoints, 1);
        self.wal.recycle(replay_from)?;
        Ok(())
    }

    /// Where the log ends, with every prepared transaction that lies in its older half logged again behind that place; and
    /// the first place that is needed for those that are prepared now. Both under the commit lock: a decision comes wholly
    /// before, and what it left in trees is seen, or wholly after, and its PREPARE counts.
    fn relog_prepared(&self) -> Result<(Lsn, Lsn)> {
        let end = self.wal.end_lsn();
        let half = Lsn(self.signals.replay_from().0.midpoint(end.0));
        let old = |p: &Prepared| p.state.logged_at() < half;
        let frame = |p: &Prepared| {
            let mut frame = Vec::with_capacity(p.redo.len() + 16);
            Record::Rollback { txn: p.state.id }.encode(&mut frame);
            frame.extend_from_slice(&p.redo);
            frame
        };
        // Space first: nothing under the commit lock waits for a disk.
        let mut space = BTreeMap::new();
        for (xid, p) in self.prepared.lock().iter().filter(|(_, p)| old(p)) {
            space.insert(xid.clone(), (p.state.id, frame(p)));
        }
        let mut credits = BTreeMap::new();
        for (xid, (_, frame)) in &space {
            credits.insert(xid.clone(), self.wal.reserve_commit(frame.len())?);
        }
        #[cfg(test)]
        crate::tests::hooks::reached("checkpoint has space for what is prepared");
        let _commit = self.commit_lock.lock();
        let position = self.wal.end_lsn();
        let prepared = self.prepared.lock();
        for (xid, credit) in credits {
            // Decided meanwhile, perhaps with another one prepared under its XID: a memtable says what the first needs.
            let same = prepared.get(&xid).zip(space.get(&xid)).filter(|(p, (id, _))| p.state.id == *id);
            let Some((p, (_, frame))) = same else { continue };
            p.state.set_logged_at(self.wal.append_reserved(credit, frame).lsn);
        }
        let needed = prepared.values().map(|p| p.state.logged_at()).min().unwrap_or(position);
        Ok((position, needed.min(position)))
    }
}

/// What the manifest says of a table, and the oldest LSN that its memtables need; `position` if none needs an older one.
fn table_state(table: &Table, position: Lsn) -> (TableState, Lsn) {
    // Of these trees: a TRUNCATE meanwhile is replayed.
    let all = table.trees();
    let (mut needed, mut marks, mut trees) = (position, Vec::new(), Vec::new());
    for tree in all.all() {
        let (state, from) = with_tree!(tree, tree => tree_state(&tree, position, &mut marks));
        needed = needed.min(from);
        trees.push(state);
    }
    // Each stands in all trees that still need it.
    marks.sort_unstable_by_key(|m: &RangeTombstone| (m.seq, m.ordinal));
    marks.dedup();
    let state = TableState {
        entry: table.entry_with(&all),
        next_row_id: all.rows.next_row(),
        next_auto_increment: 0,
        live_rows: all.rows.live_rows.load(Ordering::Relaxed).max(0) as u64,
        counted_at: CommitSeq::ZERO,
        range_deletes: marks,
        trees,
    };
    (state, needed)
}

/// The same of a tree, whose range marks are added to `marks`.
fn tree_state<K: Stored>(tree: &Tree<K>, position: Lsn, marks: &mut Vec<RangeTombstone>) -> (TreeState, Lsn) {
    let state = tree.snapshot();
    let needed = state.memtables().map(|m| m.needs_at_checkpoint(position)).min().unwrap_or(position);
    let runs = state.runs.iter().filter_map(committed_entry).collect();
    marks.extend(state.marks.iter().filter_map(|m| {
        let seq = match &m.owner {
            None => m.seq,
            Some(o) if o.aborted().contains(m.ordinal) => return None,
            Some(o) => committed(o.status())?,
        };
        Some(RangeTombstone { up_to: m.up_to, as_of: m.as_of, seq, ordinal: m.ordinal })
    }));
    (TreeState { tree: tree.id, flushed_to: state.flushed_to, runs }, needed)
}

fn committed(status: u64) -> Option<CommitSeq> {
    (status != ACTIVE && status != ABORTED).then_some(CommitSeq(status))
}

fn committed_entry<K: Stored>(handle: &RunHandle<K>) -> Option<RunEntry> {
    let seq = match &handle.owner {
        None => handle.seq,
        Some(owner) => committed(owner.status())?,
    };
    Some(crate::upkeep::flush::run_entry(handle, seq))
}
