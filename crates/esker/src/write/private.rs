//! What a transaction gathers for itself, and how it becomes private runs: inserts in a bulk writer, updates and deletes in
//! a private memtable.
//!
//! What all sessions gather is bounded together (`large.rs`): past the budget a transaction spills what it has, in all its
//! trees, into one file with a part for each. So files are few, however many trees there are; but the more write large at once,
//! the less each has gathered by then. So what it has mostly gathered for one tree begins a run instead, which takes the rest
//! as it comes: one file, however often memory is short. What stays small in all trees together ends in memtable and redo.
//! Invariant: a gathered row that its transaction may read, update or delete is in a memtable or run of its tree before.

use crate::catalog::table::Table;
use crate::core::Core;
use crate::lock::Parker;
use crate::session::{Current, Session};
use crate::tree::key::{ByBytes, ByRow};
use crate::tree::memtable::{Change, Memtable};
use crate::tree::run::writer::{FileWriter, RunRecipe, RunWriter, WrittenPart};
use crate::tree::stored::Stored;
use crate::tree::Tree;
use crate::txn::open::{TableTxn, Txn};
use crate::txn::written::{logged_bytes, Fill, TreeWrites};
use crate::upkeep::pressure;
use crate::write::bulk::{BulkEnd, BulkWriter, Chunk, LEAN_WRITE_BYTES};
use crate::write::VERSION_BYTES;
use crate::{Error, Result};
use esker_base::counters::{count, Counter};
use esker_format::run::MAX_PARTS;
use esker_format::{grow, CommitSeq, RowId};
use std::sync::atomic::Ordering;
use std::sync::Arc;

/// A tree that a transaction writes in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// The table's place in the transaction.
    pub(crate) table: usize,
    /// 0: the table's rows; else the place of the key tree, and one.
    pub(crate) tree: usize,
}

/// A part of a spill's file.
enum Part {
    Rows(WrittenPart<ByRow>),
    /// And whether its keys were noted.
    Keys(WrittenPart<ByBytes>, bool),
}

impl Txn {
    /// A version of a row into the transaction's own memtable.
    pub(crate) fn put_private(&mut self, core: &Core, at: usize, row: RowId, packed: Option<&[u8]>) -> Result<Fill> {
        self.become_large(core);
        let change = Change::of_row(self.next_ordinal, packed, true);
        let fill = self.tables[at].rows.put_private(&self.state, row, change, false)?;
        self.next_ordinal += 1;
        Ok(fill)
    }

    /// What follows from how a private memtable has changed by what was just written; a full one becomes a run. If that fails the
    /// transaction can only be rolled back to before that: whoever wrote is told that he has not.
    pub(crate) fn relieve(&mut self, core: &Core, place: Place, fill: Fill) -> Result<()> {
        let relieved = match fill {
            Fill::Same => return Ok(()),
            Fill::Grown => self.spill_what_is_too_much(core),
            Fill::Full => self.spill_with(core, place),
        };
        relieved.inspect_err(|why| self.lose(self.next_ordinal - 1, why))
    }

    /// The same of rows that were just inserted in bulk. Who was killed has not waited for room, and must not go on.
    pub(crate) fn relieve_large(&mut self, core: &Core, session: &Parker) -> Result<()> {
        if session.is_killed() {
            self.lose(self.next_ordinal - 1, &Error::Interrupted);
            return Err(Error::Interrupted);
        }
        self.spill_what_is_too_much(core).inspect_err(|why| self.lose(self.next_ordinal - 1, why))
    }

    /// Spills what the transaction has gathered, where large writes take more memory than they may.
    #[cold]
    fn spill_what_is_too_much(&mut self, core: &Core) -> Result<()> {
        let own = self.gathered_bytes();
        if !core.large.must_spill(own) {
            return Ok(());
        }
        count(Counter::LargeSpills, 1);
        let bulks = self.tables.iter_mut().filter_map(|t| t.bulk.as_mut());
        let most = bulks.max_by_key(|b| b.gathered_bytes()).filter(|b| b.gathered_bytes() > own / 2);
        if let Some(bulk) = most {
            if bulk.begin_lean(&|| core.ids.new_file())? && !core.large.must_spill(self.gathered_bytes()) {
                return Ok(());
            }
        }
        self.spill(core, |_, _| true)
    }

    /// Memory that a spill of all its trees would free, in bytes.
    pub(crate) fn gathered_bytes(&self) -> u64 {
        self.tables.iter().map(TableTxn::gathered_bytes).sum()
    }

    /// Spills a tree, and with it those that have enough for a run.
    fn spill_with(&mut self, core: &Core, place: Place) -> Result<()> {
        let least = core.options.min_run_bytes as u64;
        self.spill(core, |p, table| p == place || table.gathered_bytes_of(p.tree) >= least)
    }

    /// Writes what the transaction has gathered in these trees, in memory of its own, as private runs: parts of one file.
    /// All of it stays in place until they are written: an error loses nothing.
    fn spill(&mut self, core: &Core, wanted: impl Fn(Place, &TableTxn) -> bool) -> Result<()> {
        let trees = |at: usize| (0..=self.tables[at].keys.len()).map(move |tree| Place { table: at, tree });
        let is_wanted = |place: &Place| {
            let table = &self.tables[place.table];
            table.has_gathered(place.tree) && wanted(*place, table)
        };
        let chosen: Vec<Place> = (0..self.tables.len()).flat_map(trees).filter(is_wanted).collect();
        for places in chosen.chunks(MAX_PARTS as usize) {
            self.write_parts(core, places)?;
            for place in places {
                self.tables[place.table].drop_gathered(place.tree);
            }
        }
        Ok(())
    }

    /// Writes the parts of one file, which join their trees when all of them are durable.
    fn write_parts(&mut self, core: &Core, places: &[Place]) -> Result<()> {
        let (mut out, mut parts) = (None, Vec::new());
        for place in places {
            let TableTxn { table, trees, rows, keys, bulk, .. } = &mut self.tables[place.table];
            match place.tree.checked_sub(1) {
                None if bulk.as_ref().map_or(0, BulkWriter::content_bytes) + rows.private_content_bytes(1) == 0 => {}
                None => {
                    let write = |writer: &mut RunWriter| write_rows(bulk, rows, writer);
                    parts.push((*place, Part::Rows(write_part(core, table, &rows.tree, &mut out, write)?)));
                }
                Some(i) if keys[i].private_content_bytes(1) == 0 => {}
                Some(i) => {
                    let (mut noted, tree) = (false, keys[i].tree.clone());
                    let write = |writer: &mut RunWriter<ByBytes>| match trees.is_unique(i) {
                        true => keys[i].write_noted(writer, &core.large).map(|was| noted = was),
                        false => keys[i].write_private(writer),
                    };
                    let part = write_part(core, table, &tree, &mut out, write)?;
                    parts.push((*place, Part::Keys(part, noted)));
                }
            }
        }
        let Some(out) = out else { return Ok(()) };
        let file = out.finish()?;
        for (place, part) in parts {
            let table = &mut self.tables[place.table];
            match part {
                Part::Rows(part) => table.rows.join(&self.state, part.run(&file)),
                Part::Keys(part, noted) => {
                    let run = part.run(&file);
                    run.noted.store(noted, Ordering::Relaxed);
                    table.keys[place.tree - 1].join(&self.state, run);
                }
            }
        }
        Ok(())
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
        self.put_deferred()?;
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
        if large || pressure::outgrows_memtables(core, bytes as u64) {
            self.spill(core, |_, _| true)?;
        }
        for at in 0..self.tables.len() {
            self.end_bulk(core, at)?;
            if at_end {
                let table = &mut self.tables[at];
                self.kept_at_end |= table.rows.has_private() || table.keys.iter().any(TreeWrites::has_private);
                let kept = table.rows.keep_private(&self.state);
                let kept = kept.and_then(|()| table.keys.iter_mut().try_for_each(|k| k.keep_private(&self.state)));
                // Some of it is there by now, and would be put once more.
                kept.inspect_err(|why| self.lose(0, why))?;
            }
        }
        Ok(())
    }

    /// Makes the gathered rows of a tree readable: in a private run, or, if few, in memtable and redo.
    fn seal_bulk(&mut self, core: &Core, at: usize) -> Result<()> {
        let least = core.options.min_run_bytes as u64;
        let bytes = self.tables[at].bulk.as_ref().map_or(0, BulkWriter::gathered_bytes);
        if bytes >= least.max(1) || pressure::outgrows_memtables(core, bytes) {
            // Gathered and not yet on its way, since there are many like it.
            self.spill_with(core, Place { table: at, tree: 0 })?;
        }
        self.end_bulk(core, at)
    }

    /// Ends the bulk writer of a tree: the run that was being written joins, or the few rows go to memtable and redo.
    fn end_bulk(&mut self, core: &Core, at: usize) -> Result<()> {
        let Some(bulk) = self.tables[at].bulk.take() else { return Ok(()) };
        let Some(first_ordinal) = bulk.first_ordinal else { return Ok(()) };
        let sealed = bulk.finish().and_then(|gathered| match gathered {
            BulkEnd::Runs(runs) => {
                runs.into_iter().for_each(|run| self.tables[at].rows.join(&self.state, run));
                Ok(())
            }
            BulkEnd::Rows(chunks) => self.keep_rows(core, at, first_ordinal, &chunks),
        });
        sealed.inspect_err(|why| self.lose(first_ordinal, why))
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
                let (rows, change) = (&mut tree.rows, Change::of_row(ordinal, Some(packed), false));
                if redo_bytes > most_redo {
                    fill = fill.max(rows.put_private(state, row, change, false)?);
                    return Ok(());
                }
                redo_bytes += packed.len() + VERSION_BYTES;
                let mem = rows.put(state, row, change)?;
                let redo = rows.redo.of_gathered(mem, first_ordinal);
                grow(redo, logged_bytes(&change)).map_err(Error::in_memory)?;
                ByRow::log(state.id, rows.tree.id, row, change, redo);
                Ok(())
            })?;
        }
        self.relieve(core, Place { table: at, tree: 0 }, fill)
    }

    /// Makes its gathered rows of `table` readable to itself.
    pub(crate) fn seal_for_read(&mut self, core: &Core, table: &Arc<Table>) -> Result<()> {
        if let Some(lost) = &self.broken {
            // Some of its own rows are lost: it must not read as if they had never been.
            return Err(lost.why.clone());
        }
        self.put_deferred()?;
        let has_rows = |t: &TableTxn| t.bulk.as_ref().is_some_and(|b| b.rows > 0);
        let at = self.place_of(table).filter(|at| has_rows(&self.tables[*at]));
        at.map_or(Ok(()), |at| self.seal_bulk(core, at))
    }
}

impl TableTxn {
    /// Memory that a spill of the table's trees would free, in bytes.
    fn gathered_bytes(&self) -> u64 {
        (0..=self.keys.len()).map(|tree| self.gathered_bytes_of(tree)).sum()
    }

    /// The same of one of its trees, see [`Place::tree`].
    fn gathered_bytes_of(&self, tree: usize) -> u64 {
        match tree.checked_sub(1) {
            None => self.bulk.as_ref().map_or(0, BulkWriter::gathered_bytes) + self.rows.private_bytes(),
            Some(i) => self.keys[i].private_bytes(),
        }
    }

    fn has_gathered(&self, tree: usize) -> bool {
        match tree.checked_sub(1) {
            None => self.rows.has_private() || self.bulk.as_ref().is_some_and(|b| b.rows > 0 && b.is_gathering()),
            Some(i) => self.keys[i].has_private(),
        }
    }

    /// What was gathered is in a run.
    fn drop_gathered(&mut self, tree: usize) {
        match tree.checked_sub(1) {
            None => {
                self.bulk.iter_mut().for_each(BulkWriter::spilled);
                self.rows.drop_private();
            }
            Some(i) => self.keys[i].drop_private(),
        }
    }

    /// About what the gathered versions of its trees would take of the redo, in bytes; counted up to `enough`.
    fn content_bytes(&self, enough: usize) -> usize {
        let mut bytes = self.bulk.as_ref().map_or(0, BulkWriter::content_bytes);
        bytes += self.rows.private_content_bytes(enough.saturating_sub(bytes));
        self.keys.iter().fold(bytes, |bytes, k| bytes + k.private_content_bytes(enough.saturating_sub(bytes)))
    }
}

/// Writes a part of the file that is being written, or of a new one.
fn write_part<K: Stored>(
    core: &Core,
    table: &Table,
    tree: &Tree<K>,
    out: &mut Option<FileWriter>,
    write: impl FnOnce(&mut RunWriter<K>) -> Result<()>,
) -> Result<WrittenPart<K>> {
    let recipe = core.runs.recipe(table, tree).of_open_transaction();
    let recipe = RunRecipe { write_bytes: recipe.write_bytes.min(LEAN_WRITE_BYTES), ..recipe };
    let file = match out.take() {
        Some(file) => file,
        None => FileWriter::of_session(&recipe, core.ids.new_file())?,
    };
    let mut writer = RunWriter::next(recipe, file);
    write(&mut writer)?;
    let (file, part) = writer.end_part()?;
    *out = Some(file);
    Ok(part)
}

/// Writes the gathered rows and the private memtable, in the order of their rows. No row is in both: gathered rows are
/// fresh.
fn write_rows(bulk: &mut Option<BulkWriter>, rows: &TreeWrites<ByRow>, writer: &mut RunWriter) -> Result<()> {
    let chunks = match bulk {
        Some(bulk) => bulk.gathered()?,
        None => &[],
    };
    let Some(mem) = rows.private()? else {
        return chunks.iter().try_for_each(|chunk| chunk.write(writer));
    };
    let mut nodes = mem.walk().peekable();
    let mut write_before = |writer: &mut RunWriter, row: Option<RowId>| {
        while let Some(n) = nodes.next_if(|n| row.is_none_or(|row| n.key() < row)) {
            for v in n.versions().filter(|v| mem.is_live(v)) {
                writer.push(n.key(), v.tag(CommitSeq::ZERO), v.value())?;
            }
        }
        Ok(())
    };
    for chunk in chunks {
        chunk.write_behind(writer, &mut |writer, row| write_before(writer, Some(row)))?;
    }
    write_before(writer, None)
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
    pub(crate) fn private_of(&self, table: &Arc<Table>) -> Result<Option<Arc<Memtable>>> {
        let txn = self.current.open().and_then(|txn| txn.in_table(table));
        txn.map_or(Ok(None), |txn| Ok(txn.rows.private()?.cloned()))
    }

    /// The same of one of its key trees.
    pub(crate) fn private_keys(&self, table: &Arc<Table>, index: usize) -> Result<Option<Arc<Memtable<ByBytes>>>> {
        debug_assert!(self.current.open().is_none_or(|txn| txn.deferred.is_empty()), "read before `seal_for_read`");
        let txn = self.current.open().and_then(|txn| txn.in_table(table));
        match txn {
            None => Ok(None),
            Some(txn) if txn.changed != table.changed_seq() && !table.temporary => {
                Err(Error::TableChanged(table.name()))
            }
            Some(txn) => Ok(txn.keys[index].private()?.cloned()),
        }
    }
}
