//! What a transaction gathers for itself, and how it becomes private runs: inserts in a bulk writer, updates and deletes in
//! a private memtable.
//!
//! What all sessions gather is bounded together (`large.rs`): past the budget a session spills its fullest place. What stays
//! small ends in memtable and redo. Invariant: a gathered row that its transaction may read, update or delete is in a
//! memtable or run of its tree before.

use crate::catalog::table::Table;
use crate::session::{Session, TreeTxn};
use crate::tree::memtable::Memtable;
use crate::tree::run::writer::RunWriter;
use crate::tree::run::Run;
use crate::tree::RunHandle;
use crate::write::bulk::{BulkWriter, Chunk, Gathered};
use crate::write::{no_transaction, push_redo, Fill, VERSION_BYTES};
use crate::Result;
use esker_base::counters::{count, Counter};
use esker_format::{CommitSeq, RowId, VersionTag};
use std::sync::Arc;

impl Session {
    /// A version into the transaction's own memtable; a full one becomes a run.
    pub(crate) fn put_private(&mut self, at: usize, row: RowId, packed: Option<&[u8]>) -> Result<()> {
        let Session { core, txn: Some(txn), .. } = self else { return Err(no_transaction()) };
        txn.become_large(core);
        let ordinal = txn.next_ordinal;
        let full = txn.trees[at].put_private(&txn.state, row, ordinal, packed)?;
        txn.next_ordinal += 1;
        match full {
            Fill::Same => Ok(()),
            Fill::Grown => self.relieve_large(),
            Fill::Full => self.spill_private(at),
        }
    }

    /// Spills the fullest places of this transaction for as long as large writes take more memory than they may.
    #[cold]
    pub(crate) fn relieve_large(&mut self) -> Result<()> {
        loop {
            let Some(txn) = self.txn.as_deref() else { return Ok(()) };
            let held = |t: &TreeTxn| t.bulk.as_ref().map_or(0, BulkWriter::gathered_bytes) + t.private_share.bytes();
            let own: u64 = txn.trees.iter().map(held).sum();
            if !self.core.large.must_spill(own) {
                return Ok(());
            }
            let Some(at) = (0..txn.trees.len()).max_by_key(|at| held(&txn.trees[*at])) else { return Ok(()) };
            self.spill(at)?;
        }
    }

    /// Writes what the transaction has gathered in a tree, in memory of its own, as private runs.
    fn spill(&mut self, at: usize) -> Result<()> {
        let Session { core, txn: Some(txn), .. } = self else { return Err(no_transaction()) };
        let bulk = txn.trees[at].bulk.as_mut().filter(|b| b.gathered_bytes() > 0);
        if let Some(run) = bulk.map(|b| b.spill(core.new_file_id())).transpose()? {
            count(Counter::LargeSpills, 1);
            self.join(at, run);
        }
        self.spill_private(at)
    }

    /// Between statements: where memory for large writes is short, nobody keeps any of it. A failure stays with the
    /// transaction.
    pub(crate) fn yield_large(&mut self) {
        if self.txn.as_deref().is_none_or(|t| t.large.is_none()) || !self.core.large.is_crowded() {
            return;
        }
        let trees = self.txn.as_deref().map_or(0, |t| t.trees.len());
        let least = self.core.options.min_run_bytes as u64;
        for at in 0..trees {
            let _ = self.seal_bulk(at);
            if self.txn.as_deref().is_some_and(|t| t.trees[at].private_share.bytes() >= least) {
                let _ = self.spill_private(at);
            }
        }
    }

    /// Writes the private memtable as a private run.
    pub(crate) fn spill_private(&mut self, at: usize) -> Result<()> {
        let core = self.core.clone();
        let Some(txn) = self.txn.as_deref_mut() else {
            return Ok(());
        };
        // Stays in place until its run is written: an error loses nothing.
        let Some(private) = txn.trees[at].private.clone() else {
            return Ok(());
        };
        let mut writer = None;
        let mut node = private.mem.seek(RowId::ZERO);
        while let Some(n) = node {
            for v in n.versions().filter(|v| private.mem.is_live(v)) {
                let writer = match &mut writer {
                    Some(w) => w,
                    None => writer.insert(RunWriter::of_session(
                        &core.recipe(&txn.trees[at].table, &txn.trees[at].tree),
                        core.new_file_id(),
                    )?),
                };
                let tag = VersionTag { seq: CommitSeq::ZERO, ordinal: v.ordinal, tombstone: v.tombstone };
                writer.push(n.key(), tag, v.packed())?;
            }
            node = private.mem.after(n);
        }
        if let Some(writer) = writer {
            let run = writer.finish()?;
            self.join(at, run);
        }
        if let Some(txn) = self.txn.as_deref_mut() {
            txn.trees[at].drop_private();
        }
        Ok(())
    }

    /// At the end: a private memtable that is too small for a run goes to memtable and redo.
    pub(crate) fn seal_private(&mut self, at: usize) -> Result<()> {
        let (least, most_redo) = (self.core.options.min_run_bytes, self.most_redo());
        let Some(txn) = self.txn.as_deref_mut() else { return Ok(()) };
        let Some(private) = txn.trees[at].private.clone() else { return Ok(()) };
        let bytes = private.mem.used_bytes();
        let redo_bytes = txn.redo_bytes() + bytes;
        if bytes >= least || redo_bytes > most_redo || self.core.outgrows_memtables(bytes as u64) {
            return self.spill_private(at);
        }
        let mut node = private.mem.seek(RowId::ZERO);
        while let Some(n) = node {
            let mut versions: Vec<_> = n.versions().filter(|v| private.mem.is_live(v)).collect();
            // Oldest first: each goes on top.
            versions.reverse();
            for v in versions {
                let packed = (!v.tombstone).then(|| v.packed());
                txn.trees[at].put_shared(&txn.state, n.key(), v.ordinal, packed)?;
            }
            node = private.mem.after(n);
        }
        txn.trees[at].drop_private();
        Ok(())
    }

    /// The most redo that gathered rows may add, in bytes.
    fn most_redo(&self) -> usize {
        self.core.options.bulk_threshold_bytes + self.core.options.min_run_bytes
    }

    /// Lets a sealed private run join its tree under this transaction's status word.
    fn join(&mut self, at: usize, run: Arc<Run>) {
        let Some(txn) = self.txn.as_deref_mut() else {
            return;
        };
        let handle = RunHandle {
            run: run.clone(),
            owner: Some(txn.state.clone()),
            seq: CommitSeq::ZERO,
            aborted: Arc::default(),
        };
        let tree = &mut txn.trees[at];
        tree.tree.edit(|state| state.add_run(handle));
        tree.runs.push(run);
        count(Counter::RunsAttached, 1);
    }

    /// Ends the bulk writer of a tree: its rows are in a private run, or, if few, in memtable and redo.
    pub(crate) fn seal_bulk(&mut self, at: usize) -> Result<()> {
        let least = self.core.options.min_run_bytes as u64;
        let Session { core, txn: Some(txn), .. } = self else { return Ok(()) };
        let Some(mut bulk) = txn.trees[at].bulk.take().filter(|b| b.rows > 0) else {
            return Ok(());
        };
        let first_ordinal = bulk.first_ordinal;
        let bytes = bulk.gathered_bytes();
        let gathered = if bytes >= least.max(1) || core.outgrows_memtables(bytes) {
            // Gathered and not yet on its way, since there are many like it.
            bulk.spill(core.new_file_id()).map(Gathered::Run)
        } else {
            bulk.finish()
        };
        let sealed = gathered.and_then(|gathered| match gathered {
            Gathered::Run(run) => {
                self.join(at, run);
                Ok(())
            }
            Gathered::Rows(chunks) => self.keep_rows(at, first_ordinal, &chunks),
        });
        if let (Err(e), Some(txn)) = (&sealed, self.txn.as_deref_mut()) {
            if txn.broken.as_ref().is_none_or(|b| first_ordinal < b.0) {
                txn.broken = Some((first_ordinal, e.clone()));
            }
        }
        sealed
    }

    /// Gathered rows that are too few for a run: to memtable and redo, or, once the redo is long, to the private
    /// memtable, which becomes a run in the end. So redo stays bounded, however often a transaction reads what it wrote.
    fn keep_rows(&mut self, at: usize, first_ordinal: u64, chunks: &[Chunk]) -> Result<()> {
        let most_redo = self.most_redo();
        let Some(txn) = self.txn.as_deref_mut() else { return Ok(()) };
        let state = txn.state.clone();
        let aborted = state.aborted();
        let layout = txn.trees[at].table.layout.clone();
        let mut redo_bytes = txn.redo_bytes();
        let tree = &mut txn.trees[at];
        let mut fill = Fill::Same;
        for chunk in chunks {
            chunk.each_packed(&layout, |row, ordinal, packed| {
                if aborted.contains(ordinal) {
                    return Ok(());
                }
                if redo_bytes > most_redo {
                    fill = fill.max(tree.put_private(&state, row, ordinal, Some(packed))?);
                    return Ok(());
                }
                redo_bytes += packed.len() + VERSION_BYTES;
                let mem = tree.put_in_memtable(&state, row, ordinal, Some(packed))?;
                push_redo(
                    tree.redo.of_gathered(mem, first_ordinal),
                    state.id,
                    tree.tree.id,
                    row,
                    ordinal,
                    Some(packed),
                );
                Ok(())
            })?;
        }
        match fill {
            Fill::Same => Ok(()),
            Fill::Grown => self.relieve_large(),
            Fill::Full => self.spill_private(at),
        }
    }

    /// Makes this transaction's gathered rows of `table` readable to itself.
    pub(crate) fn seal_for_read(&mut self, table: &Arc<Table>) -> Result<()> {
        if let Some((_, e)) = self.txn.as_deref().and_then(|t| t.broken.as_ref()) {
            // Some of its own rows are lost: it must not read as if they had never been.
            return Err(e.clone());
        }
        let has_rows = |t: &TreeTxn| t.bulk.as_ref().is_some_and(|b| b.rows > 0);
        let at = self.txn.as_deref().and_then(|t| t.place_of(table).filter(|at| has_rows(&t.trees[*at])));
        at.map_or(Ok(()), |at| self.seal_bulk(at))
    }

    /// The transaction's private memtable of a table.
    pub(crate) fn private_of(&self, table: &Arc<Table>) -> Option<Arc<Memtable>> {
        let txn = self.txn.as_deref()?;
        let tree = &txn.trees[txn.place_of(table)?];
        tree.private.as_ref().map(|p| p.mem.clone())
    }
}
