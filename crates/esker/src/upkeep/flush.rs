//! Memtable to run.
//!
//! Order: freeze (nothing more is written to the memtable), write the run, sync it, sync the folder, append the tree
//! edit to the log, then replace the memtable by the run in the tree. A crash before the edit is durable leaves an
//! orphan file and the log that made the memtable; after it, the run.
//!
//! The boundary: the edit says `flushed_to`, the log's end at the freeze, and replay leaves out what was committed before
//! it. So the run holds commits below the boundary and nothing else (asserted), and every commit below it is in the run:
//! the memtable is read only after those have stored their status words. What was committed at the boundary or later, or
//! has not ended, is carried to the next memtable, which then needs the log from the boundary on, or from where a prepared
//! transaction has its redo. (In a run it would be there twice after a crash, and a merge may have purged one of the two.)
//!
//! Unended versions are carried as long as they are few; what an open transaction has much of moves to a private run of that
//! transaction, which then needs neither memory nor redo for it. So a long transaction pins neither memory nor log, and small
//! ones cost a flush no file. Moves are decided, and show in the tree, under the transactions' locks (`TxnState::moves`).

use crate::catalog::table::{with_tree, Table};
use crate::core::Core;
use crate::tree::key::Key;
use crate::tree::memtable::{Memtable, Node, TxnSlot, Version};
use crate::tree::run::writer::RunWriter;
use crate::tree::run::Run;
use crate::tree::stored::Stored;
use crate::tree::{RunHandle, Tree, TreeState};
use crate::txn::prepared;
use crate::txn::state::{MovedVersions, Moves, TxnState};
use crate::upkeep::{checkpoint, discard, new_run, pressure};
use crate::version::{VersionOrder, ABORTED, ACTIVE};
use crate::Result;
use esker_base::counters::{count, Counter};
use esker_base::lock::MutexGuard;
use esker_format::{CommitSeq, Lsn, Record, RunEntry, TxnId};
use std::collections::HashMap;
use std::sync::Arc;

/// An open transaction with more than this in a memtable, in bytes, gets it moved to a run of its own.
const MOST_CARRIED_BYTES: usize = 64 << 10;
/// All open transactions together are carried up to this share of what memtables may take: one in ...
const CARRIED_SHARE: u64 = 16;

/// What stays of a memtable when its run is written: versions that are not committed below the boundary.
struct Rest<'a, K: Key> {
    /// In the order of the keys, those of a key newest first. Of the memtable, which the flush holds.
    versions: Vec<(&'a Node<K>, &'a Version)>,
    /// Bytes of each open transaction.
    open: HashMap<TxnId, usize>,
}

impl<'a, K: Key> Rest<'a, K> {
    fn new() -> Self {
        Rest { versions: Vec::new(), open: HashMap::new() }
    }

    fn add(&mut self, node: &'a Node<K>, v: &'a Version, status: u64) {
        self.versions.push((node, v));
        if status == ACTIVE {
            *self.open.entry(v.slot().txn).or_default() += v.memory_bytes();
        }
    }
}

/// A private run that was made of what an open transaction had in a memtable; to be moved there.
struct Move<K: Stored> {
    state: Arc<TxnState>,
    run: Arc<Run<K>>,
}

/// Writes a tree's memtable out. Nothing happens if it is empty.
pub(crate) fn tree<K: Stored>(core: &Core, table: &Table, tree: &Tree<K>) -> Result<()> {
    let _flushing = tree.flushing.lock();
    core.writable.check()?;
    while let Some(left) = Flush::of_oldest(core, table, tree) {
        // By a flush that failed.
        left.run()?;
    }
    if !freeze(core, tree)? {
        return Ok(());
    }
    Flush::of_oldest(core, table, tree).map_or(Ok(()), |frozen| frozen.run())
}

/// Writes every memtable out and a manifest.
pub(crate) fn all(core: &Core) -> Result<()> {
    for (table, any) in core.trees() {
        with_tree!(any, one => tree(core, &table, &one))?;
    }
    checkpoint::write(core)
}

/// Puts a new memtable in place, whose first LSN is the boundary; false if the old one is empty, and keeps nothing of
/// the log.
pub(crate) fn freeze<K: Stored>(core: &Core, tree: &Tree<K>) -> Result<bool> {
    // Under the guard nobody writes: whatever the old memtable gets has it now, and what comes commits later.
    let mut guard = tree.state.write();
    if !guard.active.wants_flush() {
        return Ok(false);
    }
    guard.forget_dead_in_memory();
    guard.forget_looks_in_memory();
    let mut state = TreeState::clone(&guard);
    let fresh = Memtable::new(core.wal.end_lsn())?;
    state.frozen.insert(0, std::mem::replace(&mut state.active, fresh));
    *guard = Arc::new(state);
    Ok(true)
}

/// A frozen memtable on its way to a run, while nobody else flushes the tree.
struct Flush<'a, K: Stored> {
    core: &'a Core,
    table: &'a Table,
    tree: &'a Tree<K>,
    /// Of before. Its active memtable takes what is carried.
    state: Arc<TreeState<K>>,
    mem: Arc<Memtable<K>>,
    /// The boundary.
    flushed_to: Lsn,
}

impl<'a, K: Stored> Flush<'a, K> {
    /// Of a tree's oldest frozen memtable, if there is one.
    fn of_oldest(core: &'a Core, table: &'a Table, tree: &'a Tree<K>) -> Option<Self> {
        let state = tree.snapshot();
        let mem = state.frozen.last().cloned()?;
        assert_eq!(state.frozen.len(), 1, "a memtable was frozen before the one below was flushed");
        let flushed_to = state.active.first_lsn;
        Some(Flush { core, table, tree, state, mem, flushed_to })
    }

    fn run(&self) -> Result<()> {
        let began = self.core.host.now();
        // Records and status words go together under this lock: from here on every commit below the boundary shows.
        drop(prepared::lock_commits(self.core));
        let mut rest = Rest::new();
        let run = self.write_run(&mut rest)?;
        let mut made: Vec<Arc<Run<K>>> = run.iter().cloned().collect();
        let moves = self.write_moves(&rest, &mut made);
        let bytes = made.iter().map(|run| run.size_bytes()).sum();
        let syncs = made.len() + usize::from(run.is_some());
        // Their names are durable before anything speaks of them; those of moved runs by the commit that attaches them.
        let named = moves.and_then(|moves| match run.is_some() {
            true => self.core.runs.sync(&self.core.writable).map(|()| moves),
            false => Ok(moves),
        });
        match named.and_then(|moves| self.exchange(run, moves, &rest)) {
            // Nothing names the runs: they go, and the memtable stays for the next try.
            Err(e) => {
                discard::runs(self.core, made);
                return Err(e);
            }
            Ok(refused) => discard::runs(self.core, refused),
        }
        count(Counter::Flushes, 1);
        count(Counter::KeyFlushes, K::OF_INDEX);
        count(Counter::FlushBytes, bytes);
        count(Counter::FlushSyncs, syncs as u64);
        count(Counter::FlushUs, self.core.host.now().saturating_sub(began).as_micros() as u64);
        discard::what_came_late(self.core, self.tree);
        Ok(())
    }

    /// Writes what open transactions have too much of into runs of theirs.
    fn write_moves(&self, rest: &Rest<'_, K>, made: &mut Vec<Arc<Run<K>>>) -> Result<Vec<Move<K>>> {
        let mut moves = Vec::new();
        for state in self.movers(&rest.open) {
            let mut writer: Option<RunWriter<K>> = None;
            let recipe = self.core.runs.recipe(self.table, self.tree).of_open_transaction();
            for (node, v) in rest.versions.iter().filter(|(_, v)| v.slot().txn == state.id && self.mem.is_live(v)) {
                let writer = match &mut writer {
                    Some(w) => w,
                    None => writer.insert(RunWriter::create(&recipe, self.core.ids.new_file())?),
                };
                writer.push(node.key(), v.tag(CommitSeq::ZERO), v.value())?;
            }
            let Some(writer) = writer else { continue };
            let run = writer.finish()?;
            made.push(run.clone());
            moves.push(Move { state, run });
        }
        // In the order in which they are locked.
        moves.sort_by_key(|m| m.state.id);
        Ok(moves)
    }

    /// Which open transactions are to be moved, given what each has: those with much, and the largest until the others
    /// together are few.
    fn movers(&self, open: &HashMap<TxnId, usize>) -> Vec<Arc<TxnState>> {
        let mut all: Vec<_> = open.iter().map(|(txn, bytes)| (*bytes, *txn)).collect();
        all.sort_unstable_by(|a, b| b.cmp(a));
        let mut left: usize = all.iter().map(|a| a.0).sum();
        let elsewhere = self.core.flushes.pinned_bytes();
        let most = (pressure::memtable_budget(self.core) / CARRIED_SHARE).saturating_sub(elsewhere) as usize;
        let mut movers = Vec::new();
        for (bytes, txn) in all {
            if bytes <= MOST_CARRIED_BYTES && left <= most {
                break;
            }
            left -= bytes;
            movers.extend(self.core.writers.get(txn).filter(|w| !w.moves.lock().closed));
        }
        movers
    }

    /// Puts run and moved runs in the place of the memtable. All that can fail comes before the tree changes, the log's
    /// append last. Moves that came too late are carried instead; their runs are returned.
    fn exchange(&self, run: Option<Arc<Run<K>>>, moves: Vec<Move<K>>, rest: &Rest<'_, K>) -> Result<Vec<Arc<Run<K>>>> {
        let (core, tree) = (self.core, self.tree);
        let edit = self.announcement(run.as_ref());
        let space = core.wal.reserve_commit(edit.len())?;
        let is_there = self.table.still_has(tree.id);
        let mut guards: Vec<(MutexGuard<'_, Moves>, &Move<K>)> = Vec::new();
        let mut refused = Vec::new();
        for m in &moves {
            // By their transactions' ids.
            let guard = m.state.moves.lock_in_turn(m.state.id.0);
            if guard.closed || m.state.status() != ACTIVE {
                refused.push(m.run.clone());
            } else {
                guards.push((guard, m));
            }
        }
        let moved: Vec<TxnId> = guards.iter().map(|(_, m)| m.state.id).collect();
        self.carry_all(rest.versions.iter().filter(|(_, v)| moved.binary_search(&v.slot().txn).is_err()))?;
        if is_there {
            core.wal.append_reserved(space, &edit);
        }
        tree.edit(|next| {
            next.frozen.retain(|m| !Arc::ptr_eq(m, &self.mem));
            next.flushed_to = next.flushed_to.max(self.flushed_to);
            if let Some(run) = run {
                next.add_run(RunHandle::committed(run));
            }
            for (_, m) in &guards {
                next.add_run(RunHandle::private(m.run.clone(), m.state.clone()));
            }
        });
        for (guard, m) in &mut guards {
            guard.list.push(MovedVersions { tree: tree.id, mem: self.mem.id, run: K::moved_run(m.run.clone()) });
            count(Counter::RunsMoved, 1);
        }
        Ok(refused)
    }

    /// Copies versions to the active memtable. They stand in both for a while, in the same order: no reader minds.
    fn carry_all<'v>(&self, versions: impl Iterator<Item = &'v (&'v Node<K>, &'v Version)>) -> Result<()> {
        let to = &self.state.active;
        let (before, mut places) = (to.used_bytes(), HashMap::new());
        let mut carry = |(node, version): &(&Node<K>, &Version)| {
            if places.is_empty() {
                // First: a checkpoint that still finds the memtable empty must not pass the boundary.
                to.also_needs(to.first_lsn);
            }
            self.carry(node.key(), version, &mut places)
        };
        let carried = versions.into_iter().try_for_each(&mut carry);
        // What was carried before an error stays, and the next try carries the rest.
        to.pin(to.used_bytes() - before);
        carried
    }

    /// What the flush changes, for the log.
    fn announcement(&self, run: Option<&Arc<Run<K>>>) -> Vec<u8> {
        let add = run.iter().map(|r| run_entry(&RunHandle::committed((*r).clone()), CommitSeq::ZERO)).collect();
        let mut bytes = Vec::new();
        Record::TreeEdit { tree: self.tree.id, add, remove: Vec::new(), flushed_to: self.flushed_to }
            .encode(&mut bytes);
        bytes
    }

    /// Writes the versions that were committed before the boundary and that somebody may still see; collects those of
    /// transactions that have not ended, or only since.
    fn write_run<'m>(&'m self, rest: &mut Rest<'m, K>) -> Result<Option<Arc<Run<K>>>> {
        let (state, mem, flushed_to) = (&*self.state, &*self.mem, self.flushed_to);
        let kept = self.core.views.kept();
        let horizon = kept.horizon;
        let marks: Vec<_> = state.marks.iter().filter(|m| m.owner.is_none() && m.seq <= horizon).collect();
        let is_deleted = |n: &Node<K>, v: &Version, seq: u64| {
            let order = VersionOrder::new(CommitSeq(seq), v.ordinal);
            marks.iter().any(|m| m.deletes(K::row_of(n.key(), v.value()), order))
        };
        let mut writer = None;
        for n in mem.walk() {
            let (mut settled, mut last_seq) = (false, ACTIVE);
            for v in n.versions() {
                let status = v.slot().status();
                match status {
                    ABORTED => {}
                    // Not ended, or behind the boundary.
                    seq if seq == ACTIVE || seq >= flushed_to.0 => rest.add(n, v, seq),
                    // Of one transaction's versions only the newest counts.
                    seq if settled || seq == last_seq || !mem.is_live(v) => count(Counter::RowsPurged, 1),
                    seq if is_deleted(n, v, seq) => count(Counter::RowsPurged, 1),
                    seq if last_seq != ACTIVE && !kept.is_seen(CommitSeq(seq), CommitSeq(last_seq)) => {
                        count(Counter::RowsPurged, 1);
                    }
                    seq => {
                        debug_assert!(last_seq == ACTIVE || seq < last_seq, "versions of a row are newest first");
                        last_seq = seq;
                        settled = seq <= horizon.0;
                        if settled && v.tombstone && !lies_below(state, mem, n.key()) {
                            count(Counter::RowsPurged, 1);
                            continue;
                        }
                        let writer = match &mut writer {
                            Some(w) => w,
                            None => writer.insert(new_run(self.core, self.table, self.tree)?),
                        };
                        assert!(seq < flushed_to.0, "a flushed run must hold only commits below its boundary");
                        writer.push(n.key(), v.tag(CommitSeq(seq)), v.value())?;
                    }
                }
            }
        }
        writer.map(|w| w.finish()).transpose()
    }

    /// Copies a version to the active memtable, with the status that its transaction has by now. `places`: those of
    /// transactions there.
    fn carry(&self, key: K::Ref<'_>, version: &Version, places: &mut HashMap<TxnId, *const TxnSlot>) -> Result<()> {
        let slot = version.slot();
        let at = match places.get(&slot.txn) {
            Some(at) => *at,
            None => {
                let at = self.place_of(slot)?;
                places.insert(slot.txn, at);
                at
            }
        };
        if !self.mem.is_live(version) {
            return Ok(());
        }
        count(Counter::VersionsCarried, 1);
        // SAFETY: the slot is of the active memtable; only one flush of a tree goes on at a time.
        unsafe { self.state.active.carry(key, at, version.change()) }
    }

    /// The place in the active memtable of the transaction that `slot` belongs to.
    fn place_of(&self, slot: &TxnSlot) -> Result<*const TxnSlot> {
        let to = &self.state.active;
        if let Some(writer) = self.core.writers.get(slot.txn) {
            return writer.slot_in(to);
        }
        // It has ended meanwhile, and its status stands in its old slot.
        let status = slot.status();
        assert!(status >= to.first_lsn.0, "a commit below a flush's boundary was not seen");
        let at = to.new_slot(slot.txn)?;
        to.also_needs(slot.redo_at());
        // SAFETY: just made.
        unsafe {
            (*at).set_redo_at(slot.redo_at());
            (*at).end(status);
        }
        Ok(at)
    }
}

/// May an older version of `key` lie in a run or an older memtable?
fn lies_below<K: Stored>(state: &TreeState<K>, mem: &Memtable<K>, key: K::Ref<'_>) -> bool {
    state.runs_at(key).next().is_some() || state.frozen.iter().rev().any(|m| m.id < mem.id && m.get(key).is_some())
}

/// A run, or a part of one, as log and manifest describe it.
pub(crate) fn run_entry<K: Stored>(handle: &RunHandle<K>, seq: CommitSeq) -> RunEntry {
    let run = &handle.run;
    // A transaction may have rolled back far more than what concerns this run.
    let aborted = handle.aborted().meeting(run.stats.min_ordinal, run.stats.max_ordinal).to_vec();
    let bounds = K::bounds(K::lend(&handle.first), K::lend(&handle.last));
    RunEntry { origin: None, file: run.file_id, part: run.part, layout: 0, bounds, seq, aborted, stats: run.stats }
}
