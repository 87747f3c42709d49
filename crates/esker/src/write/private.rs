//! What a transaction gathers for itself, and how it becomes private runs: inserts in a bulk writer, updates and deletes in
//! a private memtable.
//!
//! What all sessions gather is bounded together (`large.rs`): past the budget a session spills its fullest place. What stays
//! small ends in memtable and redo. Invariant: a gathered row that its transaction may read, update or delete is in a
//! memtable or run of its tree before.

use crate::catalog::table::Table;
use crate::core::Core;
use crate::session::{Current, Session};
use crate::tree::memtable::{Change, Memtable};
use crate::tree::run::writer::{FileWriter, RunWriter};
use crate::tree::run::Run;
use crate::txn::open::{TableTxn, Txn};
use crate::write::bulk::{BulkWriter, Chunk, Gathered};
use crate::write::{push_redo, Fill, VERSION_BYTES};
use crate::Result;
use esker_base::counters::{count, Counter};
use esker_format::{CommitSeq, RowId};
use std::sync::Arc;

impl Txn {
    /// A version into the transaction's own memtable; a full one becomes a run.
    pub(crate) fn put_private(&mut self, core: &Core, at: usize, row: RowId, packed: Option<&[u8]>) -> Result<()> {
        self.become_large(core);
        let fill = self.tables[at].put_private(&self.state, row, self.next_ordinal, packed, true)?;
        self.next_ordinal += 1;
        self.relieve(core, at, fill)
    }

    /// What follows from how a private memtable has changed.
    fn relieve(&mut self, core: &Core, at: usize, fill: Fill) -> Result<()> {
        match fill {
            Fill::Same => Ok(()),
            Fill::Grown => self.relieve_large(core),
            Fill::Full => self.spill_private(core, at),
        }
    }

    /// Spills the fullest places of this transaction for as long as large writes take more memory than they may.
    #[cold]
    pub(crate) fn relieve_large(&mut self, core: &Core) -> Result<()> {
        loop {
            let held = |t: &TableTxn| t.bulk.as_ref().map_or(0, BulkWriter::gathered_bytes) + t.private_share.bytes();
            let own: u64 = self.tables.iter().map(held).sum();
            if !core.large.must_spill(own) {
                return Ok(());
            }
            let Some(at) = (0..self.tables.len()).max_by_key(|at| held(&self.tables[*at])) else { return Ok(()) };
            self.spill(core, at)?;
        }
    }

    /// Writes what the transaction has gathered in a tree, in memory of its own, as private runs.
    fn spill(&mut self, core: &Core, at: usize) -> Result<()> {
        let bulk = self.tables[at].bulk.as_mut().filter(|b| b.gathered_bytes() > 0);
        if let Some(run) = bulk.map(|b| b.spill(core.new_file_id())).transpose()? {
            count(Counter::LargeSpills, 1);
            self.join(at, run);
        }
        self.spill_private(core, at)
    }

    /// Between statements: where memory for large writes is short, nobody keeps any of it. A failure stays with the
    /// transaction.
    pub(crate) fn yield_large(&mut self, core: &Core) {
        if self.large.is_none() || !core.large.is_crowded() {
            return;
        }
        let least = core.options.min_run_bytes as u64;
        for at in 0..self.tables.len() {
            let _ = self.seal_bulk(core, at);
            if self.tables[at].private_share.bytes() >= least {
                let _ = self.spill_private(core, at);
            }
        }
    }

    /// Writes the private memtable as a private run.
    pub(crate) fn spill_private(&mut self, core: &Core, at: usize) -> Result<()> {
        let tree = &mut self.tables[at];
        // Stays in place until its run is written: an error loses nothing.
        let Some(private) = tree.private.clone() else {
            return Ok(());
        };
        let mut writer = None;
        let mut node = private.mem.first();
        while let Some(n) = node {
            for v in n.versions().filter(|v| private.mem.is_live(v)) {
                let writer = match &mut writer {
                    Some(w) => w,
                    None => {
                        let recipe = core.recipe(&tree.table, &tree.rows.tree);
                        let out = FileWriter::of_session(&recipe, core.new_file_id())?;
                        writer.insert(RunWriter::next(recipe, out))
                    }
                };
                writer.push(n.key(), v.tag(CommitSeq::ZERO), v.value())?;
            }
            node = private.mem.after(n);
        }
        if let Some(writer) = writer {
            let run = writer.finish()?;
            self.join(at, run);
        }
        self.tables[at].drop_private();
        Ok(())
    }

    /// At the end: a private memtable that is too small for a run goes to memtable and redo.
    pub(crate) fn seal_private(&mut self, core: &Core, at: usize) -> Result<()> {
        let Some(private) = self.tables[at].private.clone() else { return Ok(()) };
        let bytes = private.mem.used_bytes();
        let redo_bytes = self.redo_bytes() + bytes;
        let large = bytes >= core.options.min_run_bytes || redo_bytes > most_redo(core);
        if large || core.outgrows_memtables(bytes as u64) {
            return self.spill_private(core, at);
        }
        let mut node = private.mem.first();
        while let Some(n) = node {
            let mut versions: Vec<_> = n.versions().filter(|v| private.mem.is_live(v)).collect();
            // Oldest first: each goes on top.
            versions.reverse();
            for v in versions {
                let packed = (!v.tombstone).then(|| v.value());
                self.tables[at].put_shared(&self.state, n.key(), v.ordinal, packed, v.supersedes)?;
            }
            node = private.mem.after(n);
        }
        self.tables[at].drop_private();
        Ok(())
    }

    /// Lets a sealed private run join its tree under this transaction's status word.
    fn join(&mut self, at: usize, run: Arc<Run>) {
        self.tables[at].rows.join(&self.state, run);
    }

    /// Ends the bulk writer of a tree: its rows are in a private run, or, if few, in memtable and redo.
    pub(crate) fn seal_bulk(&mut self, core: &Core, at: usize) -> Result<()> {
        let least = core.options.min_run_bytes as u64;
        let Some(mut bulk) = self.tables[at].bulk.take().filter(|b| b.rows > 0) else {
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
            Gathered::Rows(chunks) => self.keep_rows(core, at, first_ordinal, &chunks),
        });
        if let Err(e) = &sealed {
            if self.broken.as_ref().is_none_or(|b| first_ordinal < b.0) {
                self.broken = Some((first_ordinal, e.clone()));
            }
        }
        sealed
    }

    /// Gathered rows that are too few for a run: to memtable and redo, or, once the redo is long, to the private
    /// memtable, which becomes a run in the end. So redo stays bounded, however often a transaction reads what it wrote.
    fn keep_rows(&mut self, core: &Core, at: usize, first_ordinal: u64, chunks: &[Chunk]) -> Result<()> {
        let most_redo = most_redo(core);
        let mut redo_bytes = self.redo_bytes();
        let (state, tree) = (&self.state, &mut self.tables[at]);
        let aborted = state.aborted();
        let layout = tree.table.layout.clone();
        let mut fill = Fill::Same;
        for chunk in chunks {
            chunk.each_packed(&layout, |row, ordinal, packed| {
                if aborted.contains(ordinal) {
                    return Ok(());
                }
                if redo_bytes > most_redo {
                    fill = fill.max(tree.put_private(state, row, ordinal, Some(packed), false)?);
                    return Ok(());
                }
                redo_bytes += packed.len() + VERSION_BYTES;
                let rows = &mut tree.rows;
                let mem = rows.put(state, row, Change::of_row(ordinal, Some(packed), false))?;
                let redo = rows.redo.of_gathered(mem, first_ordinal);
                push_redo(redo, state.id, rows.tree.id, row, ordinal, Some(packed), false);
                Ok(())
            })?;
        }
        self.relieve(core, at, fill)
    }

    /// Makes its gathered rows of `table` readable to itself.
    pub(crate) fn seal_for_read(&mut self, core: &Core, table: &Arc<Table>) -> Result<()> {
        if let Some((_, e)) = &self.broken {
            // Some of its own rows are lost: it must not read as if they had never been.
            return Err(e.clone());
        }
        let has_rows = |t: &TableTxn| t.bulk.as_ref().is_some_and(|b| b.rows > 0);
        let at = self.place_of(table).filter(|at| has_rows(&self.tables[*at]));
        at.map_or(Ok(()), |at| self.seal_bulk(core, at))
    }
}

/// The most redo that gathered rows may add, in bytes.
fn most_redo(core: &Core) -> usize {
    core.options.bulk_threshold_bytes + core.options.min_run_bytes
}

impl Session {
    /// Makes this transaction's gathered rows of `table` readable to itself.
    pub(crate) fn seal_for_read(&mut self, table: &Arc<Table>) -> Result<()> {
        match &mut self.current {
            Current::Open(txn) => txn.seal_for_read(&self.core, table),
            _ => Ok(()),
        }
    }

    /// The transaction's private memtable of a table.
    pub(crate) fn private_of(&self, table: &Arc<Table>) -> Option<Arc<Memtable>> {
        self.current.open()?.private_of(table)
    }
}
