//! What a transaction gathers for itself, and how it becomes private runs: inserts in a bulk writer, updates and deletes in
//! a private memtable.
//!
//! What all sessions gather is bounded together (`large.rs`): past the budget a transaction spills what it has, in all its
//! trees, into one file with a part for each. So files are few, however many trees there are. What stays small in all trees
//! together ends in memtable and redo. Invariant: a gathered row that its transaction may read, update or delete is in a
//! memtable or run of its tree before.

use crate::catalog::table::Table;
use crate::core::Core;
use crate::session::{Current, Session};
use crate::tree::memtable::{Change, Memtable, Version};
use crate::tree::run::writer::{FileWriter, RunRecipe, RunWriter};
use crate::tree::run::Run;
use crate::txn::open::{TableTxn, Txn};
use crate::write::bulk::{BulkWriter, Chunk, Gathered};
use crate::write::{push_redo, Fill, VERSION_BYTES};
use crate::Result;
use esker_base::counters::{count, Counter};
use esker_format::run::MAX_PARTS;
use esker_format::{CommitSeq, RowId};
use std::sync::Arc;

/// A spill's file is written in pieces of this size at most, in bytes: memory is short.
const SPILL_WRITE_BYTES: usize = 64 << 10;

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
            Fill::Full => self.spill_with(core, at),
        }
    }

    /// Spills what the transaction has gathered, where large writes take more memory than they may.
    #[cold]
    pub(crate) fn relieve_large(&mut self, core: &Core) -> Result<()> {
        let own = self.tables.iter().map(TableTxn::gathered_bytes).sum();
        if !core.large.must_spill(own) {
            return Ok(());
        }
        count(Counter::LargeSpills, 1);
        self.spill(core, |_, _| true)
    }

    /// Spills a tree, and with it those that have enough for a run.
    fn spill_with(&mut self, core: &Core, at: usize) -> Result<()> {
        let least = core.options.min_run_bytes as u64;
        self.spill(core, |i, tree| i == at || tree.gathered_bytes() >= least)
    }

    /// Writes what the transaction has gathered in these trees, in memory of its own, as private runs: parts of one file.
    /// All of it stays in place until they are written: an error loses nothing.
    fn spill(&mut self, core: &Core, wanted: impl Fn(usize, &TableTxn) -> bool) -> Result<()> {
        let is_wanted = |at: &usize| wanted(*at, &self.tables[*at]) && self.tables[*at].has_gathered();
        let chosen: Vec<usize> = (0..self.tables.len()).filter(is_wanted).collect();
        for trees in chosen.chunks(MAX_PARTS as usize) {
            for (at, run) in self.write_parts(core, trees)? {
                self.join(at, run);
            }
            for at in trees {
                let tree = &mut self.tables[*at];
                tree.bulk.iter_mut().for_each(BulkWriter::spilled);
                tree.drop_private();
            }
        }
        Ok(())
    }

    fn write_parts(&mut self, core: &Core, trees: &[usize]) -> Result<Vec<(usize, Arc<Run>)>> {
        let (mut out, mut parts) = (None, Vec::new());
        for at in trees {
            let tree = &mut self.tables[*at];
            if !tree.has_versions() {
                continue;
            }
            let recipe = core.recipe(&tree.table, &tree.rows.tree);
            let recipe = RunRecipe { write_bytes: recipe.write_bytes.min(SPILL_WRITE_BYTES), ..recipe };
            let file = match out.take() {
                Some(file) => file,
                None => FileWriter::of_session(&recipe, core.new_file_id())?,
            };
            let mut writer = RunWriter::next(recipe, file);
            tree.write_gathered(&mut writer)?;
            let (file, part) = writer.end_part()?;
            parts.push((*at, part));
            out = Some(file);
        }
        let Some(out) = out else { return Ok(Vec::new()) };
        let file = out.finish()?;
        Ok(parts.into_iter().map(|(at, part)| (at, part.run(&file))).collect())
    }

    /// Between statements: where memory for large writes is short, nobody keeps any of it. What cannot be written stays for
    /// the next time; rows that are lost to an error, the transaction knows of.
    pub(crate) fn yield_large(&mut self, core: &Core) {
        if self.large.is_some() && core.large.is_crowded() {
            let _ = self.seal_gathered(core, false);
        }
    }

    /// Ends what is on its way to runs. What is gathered in all trees together goes the same way, into one file, or, if it is
    /// little, to memtable and redo, at the end of the transaction the private memtables' too.
    pub(crate) fn seal_gathered(&mut self, core: &Core, at_end: bool) -> Result<()> {
        for at in 0..self.tables.len() {
            if self.tables[at].bulk.as_ref().is_some_and(|b| !b.is_gathering()) {
                self.end_bulk(core, at)?;
            }
        }
        let least = core.options.min_run_bytes.max(1);
        let bytes = self.tables.iter().fold(0, |bytes, tree| match bytes >= least {
            true => bytes,
            false => bytes + tree.content_bytes(least - bytes),
        });
        let large = bytes >= least || self.redo_bytes() + bytes > most_redo(core);
        if large || core.outgrows_memtables(bytes as u64) {
            self.spill(core, |_, _| true)?;
        }
        for at in 0..self.tables.len() {
            self.end_bulk(core, at)?;
            if at_end {
                self.keep_private(at)?;
            }
        }
        Ok(())
    }

    /// A private memtable that is too small for a run goes to memtable and redo.
    fn keep_private(&mut self, at: usize) -> Result<()> {
        let Some(private) = self.tables[at].private.clone() else { return Ok(()) };
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

    /// Makes the gathered rows of a tree readable: in a private run, or, if few, in memtable and redo.
    fn seal_bulk(&mut self, core: &Core, at: usize) -> Result<()> {
        let least = core.options.min_run_bytes as u64;
        let bytes = self.tables[at].bulk.as_ref().map_or(0, BulkWriter::gathered_bytes);
        if bytes >= least.max(1) || core.outgrows_memtables(bytes) {
            // Gathered and not yet on its way, since there are many like it.
            self.spill_with(core, at)?;
        }
        self.end_bulk(core, at)
    }

    /// Ends the bulk writer of a tree: the run that was being written joins, or the few rows go to memtable and redo.
    fn end_bulk(&mut self, core: &Core, at: usize) -> Result<()> {
        let Some(bulk) = self.tables[at].bulk.take().filter(|b| b.rows > 0) else {
            return Ok(());
        };
        let first_ordinal = bulk.first_ordinal;
        let sealed = bulk.finish().and_then(|gathered| match gathered {
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

impl TableTxn {
    /// Memory that a spill would free, in bytes.
    fn gathered_bytes(&self) -> u64 {
        self.bulk.as_ref().map_or(0, BulkWriter::gathered_bytes) + self.private_share.bytes()
    }

    fn has_gathered(&self) -> bool {
        self.private.is_some() || self.bulk.as_ref().is_some_and(|b| b.rows > 0 && b.is_gathering())
    }

    /// Would a spill write anything?
    fn has_versions(&self) -> bool {
        self.content_bytes(1) > 0
    }

    /// About what the gathered versions would take of the redo, in bytes; counted up to `enough`. Their memory may be far
    /// more, where they are a few in each of many trees.
    fn content_bytes(&self, enough: usize) -> usize {
        let mut bytes = self.bulk.as_ref().map_or(0, BulkWriter::content_bytes);
        let mut node = self.private.as_ref().and_then(|p| p.mem.first());
        while let (Some(private), Some(n)) = (self.private.as_ref().filter(|_| bytes < enough), node) {
            bytes += n.versions().filter(|v| private.mem.is_live(v)).map(Version::memory_bytes).sum::<usize>();
            node = private.mem.after(n);
        }
        bytes
    }

    /// Writes the gathered rows and the private memtable, in the order of their rows. No row is in both: gathered rows are
    /// fresh.
    fn write_gathered(&mut self, writer: &mut RunWriter) -> Result<()> {
        let chunks = match &mut self.bulk {
            Some(bulk) => bulk.gathered()?,
            None => &[],
        };
        let Some(private) = &self.private else {
            return chunks.iter().try_for_each(|chunk| chunk.write(writer));
        };
        let mem = &private.mem;
        let mut node = mem.first();
        let mut write_before = |writer: &mut RunWriter, row: Option<RowId>| {
            while let Some(n) = node.filter(|n| row.is_none_or(|row| n.key() < row)) {
                for v in n.versions().filter(|v| mem.is_live(v)) {
                    writer.push(n.key(), v.tag(CommitSeq::ZERO), v.value())?;
                }
                node = mem.after(n);
            }
            Ok(())
        };
        for chunk in chunks {
            chunk.write_behind(writer, &mut |writer, row| write_before(writer, Some(row)))?;
        }
        write_before(writer, None)
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
