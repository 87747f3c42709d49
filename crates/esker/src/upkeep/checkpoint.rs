//! The manifest: a snapshot of catalog and runs at a position of the log, so that the log before it can go.
//!
//! Order: take the position, log prepared transactions that lie far back again behind it, take the snapshot, sync the log up to its end
//! (the snapshot may name runs of commits that are in the log's memory only), make it the manifest (`manifest.rs`); only
//! then recycle log segments. A crash before that leaves the old manifest and all of the log it needs; a crash after it
//! the new one. The snapshot is taken while work goes on: it
//! may hold edits that are replayed again, which changes nothing, because every edit names runs by ids never used twice.

use crate::catalog::table::{with_tree, Table};
use crate::core::Core;
use crate::tree::stored::Stored;
use crate::tree::{RunHandle, Tree};
use crate::txn::prepared::{self, Prepared};
#[cfg(debug_assertions)]
use crate::upkeep::due::ToSave;
use crate::upkeep::manifest::{ManifestWriter, NextState};
use crate::version::{ABORTED, ACTIVE};
use crate::{Error, Result};
use esker_base::counters::{count, Counter};
use esker_format::{grow, CommitSeq, Lsn, Manifest, RangeTombstone, Record, RunEntry, TableId, TableState, TreeState};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Writes a manifest and recycles the log before it.
pub(crate) fn write(core: &Core) -> Result<()> {
    let mut written = core.manifest.lock();
    core.writable.check()?;
    let (position, needed, left) = relog_prepared(core)?;
    #[cfg(test)]
    crate::tests::hooks::reached("checkpoint has its position");
    // Memory before runs: what moves from one to the other is found in one of them.
    let in_memory = core.due.in_memory_at(position);
    let replay_from = in_memory.iter().map(|(_, tree)| tree.needs_at_checkpoint(position)).fold(needed, Lsn::min);
    let before = core.signals.replay_from();
    if let Some(e) = left.filter(|_| replay_from == before) {
        return Err(e);
    }
    let next = next_state(core, &mut written, replay_from);
    #[cfg(test)]
    crate::tests::hooks::reached("checkpoint has the tables");
    assert!(replay_from >= before, "the place from which the log is needed went back from {before} to {replay_from}");
    assert!(replay_from >= core.wal.stats().first, "the log is needed from {replay_from}, which is gone");
    core.wal.wait_durable(core.wal.end_lsn())?;
    written.write(core, next)?;
    core.signals.set_replay_from(replay_from);
    count(Counter::Checkpoints, 1);
    core.wal.recycle(replay_from)?;
    Ok(())
}

/// The state after the last durable one, as it is to be written: by its tables that may have changed, or by all of them.
fn next_state(core: &Core, written: &mut ManifestWriter, replay_from: Lsn) -> NextState {
    // A statement whose record lies before the position has changed the catalog, and told it, when it lets go of it.
    let catalog = core.tables.lock();
    #[cfg(debug_assertions)]
    let all: Vec<_> = catalog.values().cloned().collect();
    drop(catalog);
    // Gone until all has gone well: what is told from here on is told to the next checkpoint.
    let tail = written.tail.take();
    let to_save = core.due.take_to_save();
    #[cfg(debug_assertions)]
    let known = tail.as_ref().map(|tail| tail.tables.clone());
    let manifest = |tables: BTreeMap<_, _>| {
        #[cfg(test)]
        core.due.saved.fetch_add(tables.len() as u64, std::sync::atomic::Ordering::Relaxed);
        Manifest {
            folder: core.folder,
            required_features: 0,
            generation: written.generation + 1,
            replay_from,
            next_table: core.ids.next_table(),
            next_tree: core.ids.next_tree(),
            next_file: core.ids.next_file(),
            next_txn: core.ids.next_txn(),
            prepared: Vec::new(),
            tables,
        }
    };
    let edit = tail.and_then(|tail| {
        tail.edit(&manifest(states(core, to_save.tables.values())), &to_save.gone, written.most_bytes)
    });
    let next = edit.unwrap_or_else(|| NextState::base(&manifest(states(core, core.tables().iter()))));
    #[cfg(debug_assertions)]
    assert_all_told(core, &all, known.as_ref(), &to_save);
    next
}

/// What the manifest says of these tables.
fn states<'a>(core: &Core, tables: impl Iterator<Item = &'a Arc<Table>>) -> BTreeMap<TableId, TableState> {
    let state = |table: &'a Arc<Table>| {
        let (state, owned) = table_state(table, core.views.visible_seq());
        if owned {
            // The end of a transaction changes what is said, and tells nobody.
            table.mark_to_save();
        }
        (table.id, state)
    };
    tables.map(state).collect()
}

/// Where the log ends, with every prepared transaction that lies in its older half logged again behind that place; and
/// the first place that is needed for those that are prepared now. Both under the commit lock: a decision comes wholly
/// before, and what it left in trees is seen, or wholly after, and its PREPARE counts. For want of memory or space one stays where it
/// is, and the last is why.
fn relog_prepared(core: &Core) -> Result<(Lsn, Lsn, Option<Error>)> {
    let end = core.wal.end_lsn();
    let half = Lsn(core.signals.replay_from().0.midpoint(end.0));
    let old = |p: &Prepared| p.state.logged_at() < half;
    let frame = |p: &Prepared| {
        let mut frame = Vec::new();
        grow(&mut frame, p.redo.len() + 16).map_err(Error::in_memory)?;
        Record::Rollback { txn: p.state.id }.encode(&mut frame);
        frame.extend_from_slice(&p.redo);
        Ok::<_, Error>(frame)
    };
    // Space first: nothing under the commit lock waits for a disk. The oldest one before: while it stays others gain nothing.
    let framed = |(xid, p): (&Vec<u8>, &Prepared)| (p.state.logged_at(), xid.clone(), p.state.id, frame(p));
    let mut all: Vec<_> = core.prepared.lock().iter().filter(|(_, p)| old(p)).map(framed).collect();
    all.sort_unstable_by_key(|(logged_at, ..)| *logged_at);
    let (mut space, mut left) = (Vec::new(), None);
    for (_, xid, id, frame) in all {
        match frame.and_then(|frame| Ok((core.wal.reserve_commit(frame.len())?, frame))) {
            Ok((credit, frame)) => space.push((xid, id, credit, frame)),
            Err(e) if e.stops_writing() => return Err(e),
            Err(e) => {
                left = Some(e);
                break;
            }
        }
    }
    #[cfg(test)]
    crate::tests::hooks::reached("checkpoint has space for what is prepared");
    let _commit = prepared::lock_commits(core);
    let position = core.wal.end_lsn();
    let prepared = core.prepared.lock();
    for (xid, id, credit, frame) in space {
        // Decided meanwhile, perhaps with another one prepared under its XID: a memtable says what the first needs.
        let Some(p) = prepared.get(&xid).filter(|p| p.state.id == id) else { continue };
        p.state.set_logged_at(core.wal.append_reserved(credit, &frame).lsn);
    }
    let needed = prepared.values().map(|p| p.state.logged_at()).min().unwrap_or(position);
    Ok((position, needed.min(position), left))
}

/// What the manifest says of a table, whose commits up to `visible` have all their status words, and whether there is something
/// in it whose transaction has not been replaced by its commit sequence.
fn table_state(table: &Table, visible: CommitSeq) -> (TableState, bool) {
    // Of these trees: a TRUNCATE meanwhile is replayed.
    let all = table.trees();
    let (mut owned, mut marks, mut trees) = (false, Vec::new(), Vec::new());
    for tree in all.all() {
        trees.push(with_tree!(tree, tree => tree_state(&tree, &mut marks, &mut owned)));
    }
    // Each stands in all trees that still need it.
    marks.sort_unstable_by_key(|m: &RangeTombstone| (m.seq, m.ordinal));
    marks.dedup();
    let live = all.live.saved(visible);
    owned |= live.has_open;
    let state = TableState {
        entry: table.entry_with(&all),
        next_row_id: all.rows.next_row(),
        next_auto_increment: all.auto_increment.next(),
        live_rows: live.rows,
        counted_at: live.counted_at,
        range_deletes: marks,
        trees,
        statistics: all.statistics(),
    };
    (state, owned)
}

/// The same of a tree, whose range marks are added to `marks`.
fn tree_state<K: Stored>(tree: &Tree<K>, marks: &mut Vec<RangeTombstone>, owned: &mut bool) -> TreeState {
    let state = tree.snapshot();
    *owned |= state.runs.iter().any(|h| h.owner.is_some()) || state.marks.iter().any(|m| m.owner.is_some());
    let runs = state.runs.iter().filter_map(committed_entry).collect();
    marks.extend(state.marks.iter().filter_map(|m| {
        let seq = match &m.owner {
            None => m.seq,
            Some(o) if o.aborted().contains(m.ordinal) => return None,
            Some(o) => committed(o.status())?,
        };
        Some(RangeTombstone { up_to: m.up_to, as_of: m.as_of, seq, ordinal: m.ordinal })
    }));
    TreeState { tree: tree.id, flushed_to: state.flushed_to, runs }
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

/// Asserts that of all tables that were not looked at what is `known` is true, unless something else was told since: what
/// nobody tells would be missing in the manifest, and the log that has it would go.
#[cfg(debug_assertions)]
fn assert_all_told(core: &Core, all: &[Arc<Table>], known: Option<&BTreeMap<TableId, u128>>, taken: &ToSave) {
    all.iter().for_each(|table| table.assert_listed());
    let Some(known) = known else { return };
    for table in all.iter().filter(|t| !taken.tables.contains_key(&t.id) && !taken.gone.contains(&t.id)) {
        let is_true = || known.get(&table.id) == Some(&table_state(table, core.views.visible_seq()).0.digest());
        // An atomic is changed before it is told.
        let told = || is_true() || table.will_be_saved();
        let told = told()
            || (0..10_000).any(|_| {
                core.host.sleep(std::time::Duration::from_millis(1));
                told()
            });
        assert!(told, "table {} has changed, and nobody told", table.id);
    }
    let there = |id: &TableId| all.iter().any(|t| t.id == *id) || taken.gone.contains(id);
    assert!(known.keys().all(there), "a table has gone, and nobody told");
}
