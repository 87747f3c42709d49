//! The entries of an index that a table is about to get: of rows that are there, written as runs of a tree that nobody knows
//! yet.
//!
//! Entries are gathered as they come, sorted and written as a run where memory for large writes is used up, and such runs
//! joined at the end, so that each entry is written twice at most, however many there are. Invariants: what is not taken
//! away by [`Building::finish`] leaves no file; of a unique key there is one entry, or building fails.

use crate::catalog::index::Index;
use crate::catalog::table::{key_shape, Table};
use crate::core::Core;
use crate::tree::key::ByBytes;
use crate::tree::memtable::Change;
use crate::tree::private::{Private, MOST_PRIVATE_BYTES};
use crate::tree::run::index::Index as BlockIndex;
use crate::tree::run::writer::{RunRecipe, RunWriter};
use crate::tree::run::Run;
use crate::tree::stored::{entry_value, split_value, Stored};
use crate::txn::state::TxnState;
use crate::upkeep::discard;
use crate::write::index::RowKey;
use crate::write::large::{LargeWriter, Share};
use crate::{Error, Result};
use esker_base::counters::{count, Counter};
use esker_format::{CommitSeq, RowId, TreeId, VersionTag};
use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
use std::collections::BinaryHeap;
use std::sync::Arc;

/// So many runs are joined at once: of each a block is in memory.
const MOST_SOURCES: usize = if cfg!(test) { 4 } else { 64 };
/// An index is built with so much of the memory for all large writes at most: one part of so many.
const PARTS_OF_BUDGET: u64 = 4;
/// ... but this much at least, in bytes.
const LEAST_BYTES: u64 = 64 << 10;
/// Nobody is asked to go on more often, in entries.
const ASK_EVERY: u64 = 1024;
/// All entries are versions of the same commit, whose sequence their runs have.
const TAG: VersionTag = VersionTag { seq: CommitSeq::ZERO, ordinal: 1, tombstone: false, supersedes: false };

/// Runs that nothing refers to yet: their files go with this.
pub(crate) struct Runs {
    core: Arc<Core>,
    list: Vec<Arc<Run<ByBytes>>>,
}

impl Runs {
    pub(crate) fn list(&self) -> &[Arc<Run<ByBytes>>] {
        &self.list
    }

    /// They are referred to.
    pub(crate) fn take(mut self) -> Vec<Arc<Run<ByBytes>>> {
        std::mem::take(&mut self.list)
    }

    /// The first so many go.
    fn discard(&mut self, first: usize) {
        discard::runs(&self.core, self.list.drain(..first).collect());
    }
}

impl Drop for Runs {
    fn drop(&mut self) {
        self.discard(self.list.len());
    }
}

/// Bytes of entries that are gathered before they become a run, of so many that large writes have together.
fn most_gathered(budget: u64) -> u64 {
    (budget / PARTS_OF_BUDGET).clamp(LEAST_BYTES, MOST_PRIVATE_BYTES)
}

/// Entries that are gathered.
struct EntryBuffer {
    private: Arc<Private<ByBytes>>,
    _owner: Arc<TxnState>,
}

impl EntryBuffer {
    fn new(core: &Core) -> Result<Self> {
        let owner = TxnState::new(core.ids.new_txn());
        Ok(EntryBuffer { private: Private::new(&owner)?, _owner: owner })
    }
}

/// An index that is being built.
pub(crate) struct Building {
    pub(crate) index: Index,
    pub(crate) tree: TreeId,
    /// Its place among the table's, for who asks which key is a duplicate.
    place: usize,
    recipe: RunRecipe<ByBytes>,
    gathered: EntryBuffer,
    share: Share,
    runs: Runs,
    _large: LargeWriter,
}

impl Building {
    pub(crate) fn new(core: &Arc<Core>, table: &Table, place: usize, index: Index, tree: TreeId) -> Result<Self> {
        Ok(Building {
            recipe: core.runs.recipe_of(tree, key_shape(&index.entry), table.compression, true),
            index,
            tree,
            place,
            gathered: EntryBuffer::new(core)?,
            share: Share::new(&core.large),
            runs: Runs { core: core.clone(), list: Vec::new() },
            _large: LargeWriter::new(&core.large),
        })
    }

    /// Adds the entry of a row.
    ///
    /// # Safety
    /// `image` is a row image of the table's layout in which the columns of the index are filled in.
    pub(crate) unsafe fn add(&mut self, row: RowId, image: *const u8) -> Result<()> {
        // SAFETY: the caller's promise.
        let mut key = unsafe { RowKey::of(self.place, &self.index, image)? };
        key.finish(row);
        let value = entry_value(row, &key.payload);
        let change = Change::of_entry(TAG.ordinal, &value, false);
        let used = self.gathered.private.put(&mut [std::ptr::null(); 2], &key.key, change, false)? as u64;
        if used != self.share.bytes() {
            self.share.resize(used);
            let core = &self.runs.core;
            if used > most_gathered(core.large.limit()) || core.large.must_spill(used) {
                count(Counter::LargeSpills, 1);
                return self.spill();
            }
        }
        Ok(())
    }

    /// What is gathered becomes a run.
    fn spill(&mut self) -> Result<()> {
        let gathered = std::mem::replace(&mut self.gathered, EntryBuffer::new(&self.runs.core)?);
        let mut out = Output::new(self, u64::MAX);
        gathered.private.each(|key, change| out.push(key, change.value))?;
        let runs = out.finish()?;
        drop(gathered);
        self.share.resize(0);
        self.runs.list.extend(runs.take());
        Ok(())
    }

    /// All rows were added: the index with its tree, and the runs that this begins with, which are apart. `go_on` is told of
    /// entries that were written again.
    pub(crate) fn finish(mut self, go_on: &mut dyn FnMut(u64) -> bool) -> Result<(Index, TreeId, Runs)> {
        self.spill()?;
        while self.runs.list.len() > 1 {
            let first = self.runs.list.len().min(MOST_SOURCES);
            let is_last = first == self.runs.list.len();
            let run_bytes = if is_last { self.runs.core.options.run_bytes } else { u64::MAX };
            let joined = self.join(&self.runs.list[..first], run_bytes, go_on)?;
            self.runs.discard(first);
            self.runs.list.extend(joined.take());
            if is_last {
                break;
            }
        }
        let core = self.runs.core.clone();
        let runs = std::mem::replace(&mut self.runs, Runs { core, list: Vec::new() });
        count(Counter::IndexesBuilt, 1);
        Ok((self.index, self.tree, runs))
    }

    /// Joins runs into others of about this size.
    fn join(&self, runs: &[Arc<Run<ByBytes>>], run_bytes: u64, go_on: &mut dyn FnMut(u64) -> bool) -> Result<Runs> {
        let mut sources = BinaryHeap::new();
        for run in runs {
            sources.extend(Source::open(run)?.map(Reverse));
        }
        let (mut out, mut done) = (Output::new(self, run_bytes), 0);
        while let Some(mut first) = sources.peek_mut() {
            let source = &mut first.0;
            out.push(source.key(), &entry_value(source.block.row(source.at), source.block.payload(source.at)))?;
            if !source.next()? {
                PeekMut::pop(first);
            }
            done += 1;
            if done % ASK_EVERY == 0 && !go_on(ASK_EVERY) {
                return Err(Error::Interrupted);
            }
        }
        out.finish()
    }
}

/// Sorted entries on their way to runs.
struct Output<'a> {
    of: &'a Building,
    run_bytes: u64,
    writer: Option<RunWriter<ByBytes>>,
    written: Runs,
    last: Option<Vec<u8>>,
}

impl<'a> Output<'a> {
    fn new(of: &'a Building, run_bytes: u64) -> Self {
        let written = Runs { core: of.runs.core.clone(), list: Vec::new() };
        Output { of, run_bytes, writer: None, written, last: None }
    }

    fn push(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let last = self.last.get_or_insert_default();
        if self.writer.is_some() && last == key {
            let (row, _) = split_value(value);
            return Err(Error::DuplicateKey { index: self.of.place, row });
        }
        last.clear();
        last.extend_from_slice(key);
        if self.writer.as_ref().is_some_and(|w| w.size_bytes() >= self.run_bytes) {
            self.end_run()?;
        }
        let writer = match &mut self.writer {
            Some(writer) => writer,
            None => {
                let file = self.written.core.ids.new_file();
                self.writer.insert(RunWriter::create(&self.of.recipe, file)?)
            }
        };
        writer.push(key, TAG, value)
    }

    fn end_run(&mut self) -> Result<()> {
        if let Some(writer) = self.writer.take() {
            self.written.list.push(writer.finish()?);
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Runs> {
        self.end_run()?;
        Ok(self.written)
    }
}

/// A run that is read from its first entry on; there is one.
struct Source {
    run: Arc<Run<ByBytes>>,
    index: Arc<BlockIndex<ByBytes>>,
    /// The block that comes next.
    next: usize,
    block: <ByBytes as Stored>::Block,
    at: u32,
}

impl Source {
    fn open(run: &Arc<Run<ByBytes>>) -> Result<Option<Self>> {
        let index = run.index()?.keep();
        if index.entries().is_empty() {
            return Ok(None);
        }
        let block = run.read_in_order(&index, 0)?;
        Ok(Some(Source { run: run.clone(), index, next: 1, block, at: 0 }))
    }

    fn key(&self) -> &[u8] {
        self.block.key(self.at)
    }

    /// Goes to the next entry; stays where it is if there is none (false), and on an error.
    fn next(&mut self) -> Result<bool> {
        if self.at + 1 < ByBytes::rows(&self.block) {
            self.at += 1;
            return Ok(true);
        }
        if self.next == self.index.entries().len() {
            return Ok(false);
        }
        self.block = self.run.read_in_order(&self.index, self.next)?;
        (self.next, self.at) = (self.next + 1, 0);
        Ok(true)
    }
}

impl PartialEq for Source {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Source {}

impl PartialOrd for Source {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Source {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(other.key())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of any limit that can be set: entries would have no place, however much memory there is.
    #[test]
    fn what_is_gathered_has_room() {
        for shift in 16..=44 {
            let most = most_gathered(1 << shift);
            assert!((LEAST_BYTES..=u64::from(u32::MAX) / 2).contains(&most), "{most} bytes of {}", 1u64 << shift);
        }
        assert_eq!(most_gathered(1 << 30), 1 << 28);
    }
}
