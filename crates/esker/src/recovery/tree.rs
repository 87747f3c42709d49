//! A tree while the log is replayed: versions that are in no run yet, and the runs that there are.
//!
//! Invariant: what was committed before `flushed_to` is in runs, and comes to no memtable; the bounds of all runs are of
//! the tree's kind.

use super::replay::Replayed;
use crate::tree::memtable::{Change, Memtable, TxnSlot};
use crate::tree::run::file::OpenedFiles;
use crate::tree::run::writer::RunRecipe;
use crate::tree::run::Run;
use crate::tree::stored::Stored;
use crate::tree::{RunHandle, Tree, TreeState};
use crate::version::OrdinalRanges;
use crate::Result;
use esker_format::{FileId, FormatError, Lsn, RunEntry, TreeId, TxnId};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// See the module.
pub(super) struct ReplayedTree<K: Stored> {
    pub(super) id: TreeId,
    flushed_to: Lsn,
    /// By file, of which one part at most is the tree's; one that merges took keys from may be there several times.
    pub(super) runs: BTreeMap<FileId, Vec<RunEntry>>,
    mem: Arc<Memtable<K>>,
    /// The place in `mem` of the transaction that was committed at this position.
    slot: Option<(Lsn, *const TxnSlot)>,
}

impl<K: Stored> ReplayedTree<K> {
    /// An empty tree that begins at `lsn`.
    pub(super) fn new(id: TreeId, lsn: Lsn) -> Result<Self> {
        Ok(ReplayedTree { id, flushed_to: lsn, runs: BTreeMap::new(), mem: Memtable::new(lsn)?, slot: None })
    }

    /// What the manifest says of a tree, whose log begins at `from`.
    pub(super) fn of(state: esker_format::TreeState, from: Lsn) -> Result<std::result::Result<Self, FormatError>> {
        let mut tree = ReplayedTree::new(state.tree, from)?;
        tree.flushed_to = state.flushed_to;
        let added = state.runs.into_iter().try_for_each(|run| tree.add(run));
        Ok(added.map(|()| tree))
    }

    /// A run, or what is left of one, is in the tree.
    fn add(&mut self, run: RunEntry) -> std::result::Result<(), FormatError> {
        if K::from_bounds(&run.bounds).is_none() {
            return Err(FormatError::Invalid { what: "kind of the bounds of a run, file", found: run.file.0 });
        }
        let entries = self.runs.entry(run.file).or_default();
        if entries.first().is_some_and(|e| e.part != run.part) {
            // Edits name files: they could not tell one from the other.
            return Err(FormatError::Invalid { what: "second part of a file in a tree, file", found: run.file.0 });
        }
        entries.push(run);
        Ok(())
    }

    /// A committed transaction's private run joins the tree.
    pub(super) fn attach(&mut self, run: RunEntry) -> std::result::Result<(), FormatError> {
        self.runs.remove(&run.file);
        self.add(run)
    }

    /// Runs of these files leave the tree and others join it; what is in memory from before `flushed_to` is in runs.
    pub(super) fn edit(
        &mut self,
        add: Vec<RunEntry>,
        remove: &[FileId],
        flushed_to: Lsn,
    ) -> Result<std::result::Result<(), FormatError>> {
        // What joins replaces all that there is of its file: replayed twice, it comes to the same.
        for file in remove.iter().chain(add.iter().map(|r| &r.file)) {
            self.runs.remove(file);
        }
        if let Err(e) = add.into_iter().try_for_each(|run| self.add(run)) {
            return Ok(Err(e));
        }
        if flushed_to > self.flushed_to {
            self.flushed_to = flushed_to;
            // What those runs hold must not come back from the log: a merge may have purged it since.
            self.mem = from_seq(&self.mem, flushed_to)?;
            self.slot = None;
        }
        Ok(Ok(()))
    }

    /// A version of a transaction that was committed at `lsn`, unless it is in a run.
    pub(super) fn put(&mut self, txn: TxnId, lsn: Lsn, key: K::Ref<'_>, change: Change<'_>) -> Result<()> {
        if lsn < self.flushed_to {
            return Ok(());
        }
        let slot = match self.slot.filter(|(at, _)| *at == lsn) {
            Some((_, slot)) => slot,
            None => {
                let slot = self.mem.new_slot(txn)?;
                // SAFETY: just made in this memtable.
                unsafe { (*slot).end(lsn.0) };
                self.slot = Some((lsn, slot));
                slot
            }
        };
        // SAFETY: one thread; the slot is of this memtable.
        unsafe { self.mem.put(key, slot, change)? };
        Ok(())
    }

    /// The tree with its runs. None is read; one whose file is not there is told of, and stays as a run that
    /// cannot be read.
    pub(super) fn open(&self, recipe: &RunRecipe<K>, files: &OpenedFiles, t: &Replayed) -> Arc<Tree<K>> {
        let mut state = TreeState::new(self.mem.clone(), self.flushed_to);
        state.marks.clone_from(&t.marks);
        for parts in self.runs.values() {
            let Some(entry) = parts.first() else { continue };
            let bounds = |part: &RunEntry| K::from_bounds(&part.bounds);
            let all = parts.iter().filter_map(bounds).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
            let Some(all) = all else { continue };
            let (file, bounds_of_all) = (files.of(entry.file), K::whole(&entry.stats).unwrap_or(all));
            let run = Run::open(recipe, &file, entry.part, &entry.stats, bounds_of_all);
            if !files.has(entry.file) {
                run.tell_missing();
            }
            let aborted = Arc::new(OrdinalRanges(entry.aborted.clone()));
            let whole = RunHandle { seq: entry.seq, aborted, ..RunHandle::committed(run) };
            for (first, last) in parts.iter().filter_map(bounds) {
                state.add_run(RunHandle { first, last, ..whole.clone() });
            }
        }
        Tree::with_state(self.id, recipe.shape.clone(), t.next_row, state)
    }
}

/// A memtable with those versions of `mem` that were committed at `seq` or later.
fn from_seq<K: Stored>(mem: &Memtable<K>, seq: Lsn) -> Result<Arc<Memtable<K>>> {
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
            unsafe { kept.carry(n.key(), slot, v.change())? };
        }
        node = mem.after(n);
    }
    Ok(kept)
}
