//! One merge: reads some runs' rows between two rows, in order, and writes the versions that somebody may still see.
//!
//! Invariants: all versions that the inputs have of a row go to one run; a step ends between two rows, and what it has
//! come to until then is all that its inputs lose. Nothing of the tree changes here.

use super::*;
use crate::tree::run::writer::RunWriter;
use crate::tree::run::Block;
use crate::tree::RangeMark;
use crate::upkeep::choose::Step;
use esker_format::{BlockEntry, VersionTag};

/// What a merge came to.
#[derive(Default)]
pub(super) struct Outcome {
    pub(super) runs: Vec<Arc<Run>>,
    /// What its inputs still hold.
    pub(super) left: Vec<RunHandle>,
}

struct Input {
    handle: RunHandle,
    index: usize,
    block: Option<Arc<Block>>,
    at: u32,
    /// The last row to be read.
    last: RowId,
}

pub(super) struct Merge<'a> {
    core: &'a Core,
    table: &'a Table,
    tree: &'a Arc<Tree>,
    state: &'a TreeState,
    step: &'a Step,
    inputs: Vec<Input>,
    horizon: CommitSeq,
    /// The marks that every view sees and that count.
    marks: &'a [RangeMark],
    writer: Option<RunWriter>,
    done: Vec<Arc<Run>>,
    /// An output run is closed at this size, in bytes, so that they become about equal.
    close_bytes: u64,
    /// Bytes of the output runs that are closed.
    done_bytes: u64,
    /// What it failed with is about its output.
    pub(super) cannot_write: bool,
    read: Read,
}

/// What was read of the inputs.
#[derive(Default)]
struct Read {
    blocks: u64,
    bytes: u64,
    /// How many blocks there are to be read.
    of_blocks: u64,
}

struct Candidate {
    order: (u64, u64),
    input: usize,
    index: usize,
    block: Arc<Block>,
    at: u32,
    tombstone: bool,
    supersedes: bool,
}

impl<'a> Merge<'a> {
    pub(super) fn new(
        core: &'a Core,
        table: &'a Table,
        tree: &'a Arc<Tree>,
        state: &'a TreeState,
        step: &'a Step,
    ) -> Result<Self> {
        let mut read = Read::default();
        let mut inputs = Vec::new();
        for handle in &step.inputs {
            handle.run.load()?;
            let (first, last) = (step.first.max(handle.first), step.last.min(handle.last));
            if first <= last {
                let input = Input::new(handle, first, last, &mut read)?;
                let end = handle.run.entries().partition_point(|e| e.first_id <= last);
                read.of_blocks += end.saturating_sub(input.index) as u64;
                inputs.push(input);
            }
        }
        let horizon = core.views.horizon();
        // Room is left in each for what later merges bring.
        let run_bytes = core.options.run_bytes;
        let runs = step.bytes.div_ceil((run_bytes - run_bytes / 8).max(1)).max(1);
        Ok(Merge {
            core,
            table,
            tree,
            state,
            step,
            inputs,
            horizon,
            marks: state.marks_at(horizon),
            writer: None,
            done: Vec::new(),
            close_bytes: if runs == 1 { run_bytes } else { (step.bytes / runs + run_bytes / 32).min(run_bytes) },
            done_bytes: 0,
            cannot_write: false,
            read,
        })
    }

    pub(super) fn run(&mut self, progress: &mut dyn FnMut(u64, u64) -> bool) -> Result<Outcome> {
        let (mut versions, mut packed) = (Vec::new(), Vec::new());
        let mut told = 0;
        let mut end = None;
        while self.inputs.iter().any(|input| input.peek().is_some()) {
            if end.is_some() && self.is_enough() {
                break;
            }
            if self.read.blocks != told {
                told = self.read.blocks;
                if self.is_unwanted() || !progress(told.min(self.read.of_blocks), self.read.of_blocks) {
                    return Err(Error::Interrupted);
                }
            }
            if let Some(last) = self.copy_untouched()? {
                end = Some(last);
                continue;
            }
            let Some(row) = self.least()? else { break };
            self.collect(row, &mut versions)?;
            versions.sort_by_key(|v: &Candidate| std::cmp::Reverse(v.order));
            versions.dedup_by_key(|v| v.order);
            self.keep(row, &versions, &mut packed)?;
            versions.clear();
            end = Some(row);
        }
        // All that was asked for, or what it came to.
        let end = if self.inputs.iter().all(|input| input.peek().is_none()) {
            self.step.last
        } else {
            end.unwrap_or(self.step.last)
        };
        self.finish()?;
        let mut left = Vec::new();
        for handle in &self.step.inputs {
            left.extend(parts_left(handle, self.step.first, end)?);
        }
        Ok(Outcome { runs: std::mem::take(&mut self.done), left })
    }

    /// The runs that were finished, for whoever gives them up.
    pub(super) fn take_done(&mut self) -> Vec<Arc<Run>> {
        std::mem::take(&mut self.done)
    }

    /// Has it done as much as one step should?
    fn is_enough(&self) -> bool {
        let most = 2 * self.core.options.run_bytes;
        let written = self.done_bytes + self.writer.as_ref().map_or(0, RunWriter::size_bytes);
        self.step.bounded && (written >= most || self.read.bytes >= 2 * most)
    }

    /// Is the engine being closed, or the table dropped or emptied?
    fn is_unwanted(&self) -> bool {
        self.core.signals.stopping() || self.table.is_dropped() || !Arc::ptr_eq(&self.table.tree(), self.tree)
    }

    /// Copies the block that comes next, if no other input has rows between its own, and all of it stays as it is; its
    /// last row then.
    fn copy_untouched(&mut self) -> Result<Option<RowId>> {
        let (mut lead, mut least, mut bound) = (0, RowId::MAX, RowId::MAX);
        for (i, input) in self.inputs.iter().enumerate() {
            let Some(row) = input.peek() else { continue };
            if row < least {
                (lead, least, bound) = (i, row, least);
            } else {
                bound = bound.min(row);
            }
        }
        let input = &self.inputs[lead];
        let Some((index, entry)) = input.unread_block().map(|index| (index, input.handle.run.entries()[index])) else {
            return Ok(None);
        };
        if entry.last_id >= bound || !self.stays_as_it_is(input, index, &entry) {
            return Ok(None);
        }
        let handle = input.handle.clone();
        self.close_full()?;
        if self.writer.as_ref().is_some_and(|w| !w.can_copy()) {
            return Ok(None);
        }
        let seq = (handle.seq != CommitSeq::ZERO).then_some(handle.seq);
        let (mut bytes, context) = handle.run.stored_block(index)?;
        let copied = match &mut self.writer {
            Some(w) => w.copy_block(&mut bytes, context, &entry, seq),
            None => self
                .core
                .run_writer(self.table, self.tree)
                .and_then(|w| self.writer.insert(w).copy_block(&mut bytes, context, &entry, seq)),
        };
        if !self.written(copied)? {
            // Whoever decodes it says what is wrong.
            return Ok(None);
        }
        self.read.blocks += 1;
        self.read.bytes += u64::from(entry.stored_bytes);
        let input = &mut self.inputs[lead];
        (input.index, input.block, input.at) = (index + 1, None, 0);
        Ok(Some(entry.last_id))
    }

    /// Has nothing in the block to be dropped, as far as its entry tells, and would it be a block of good size?
    fn stays_as_it_is(&self, input: &Input, index: usize, entry: &BlockEntry) -> bool {
        let (handle, entries) = (&input.handle, input.handle.run.entries());
        let own = handle.seq == CommitSeq::ZERO;
        let seqs = if own { (entry.min_seq, entry.max_seq) } else { (handle.seq, handle.seq) };
        let before = index.checked_sub(1).is_some_and(|i| entries[i].last_id == entry.first_id);
        let after = entries.get(index + 1).is_some_and(|e| e.first_id == entry.last_id);
        entry.ids_unique()
            && !before
            && !after
            && entry.last_id <= input.last
            && entry.tombstones == 0
            && own == (entry.min_seq != CommitSeq::ZERO)
            && !handle.aborted.meets(entry.min_ordinal, entry.max_ordinal)
            && !self.marks.iter().any(|m| m.may_delete(entry.first_id, seqs, entry.min_ordinal))
            && entry.raw_bytes as usize >= self.core.options.block_bytes / 2
    }

    /// Writes the versions of a row that somebody may still see.
    fn keep(&mut self, row: RowId, versions: &[Candidate], packed: &mut Vec<u8>) -> Result<()> {
        let (mut settled, mut last_seq) = (false, 0);
        // All versions of a row go to one run.
        self.close_full()?;
        for (i, v) in versions.iter().enumerate() {
            // Of one transaction's versions only the newest counts.
            if settled || v.order.0 == last_seq || self.marks.iter().any(|m| m.deletes(row, v.order)) {
                count(Counter::RowsPurged, 1);
                continue;
            }
            last_seq = v.order.0;
            settled = v.order.0 <= self.horizon.0;
            if settled && v.tombstone && !self.lies_elsewhere(row) {
                count(Counter::RowsPurged, 1);
                continue;
            }
            packed.clear();
            if !v.tombstone {
                let run = &self.inputs[v.input].handle.run;
                v.block.packed(v.at, packed).map_err(|e| run.damage(v.index, e))?;
            }
            // Whatever was older is purged with this merge, if it was all among its inputs.
            let is_last = settled && i + 1 < versions.len();
            let supersedes = v.supersedes && (v.tombstone || !is_last || self.lies_elsewhere(row));
            let tag = VersionTag { seq: CommitSeq(v.order.0), ordinal: v.order.1, tombstone: v.tombstone, supersedes };
            self.push(row, tag, packed)?;
        }
        Ok(())
    }

    fn push(&mut self, row: RowId, tag: VersionTag, packed: &[u8]) -> Result<()> {
        let pushed = match &mut self.writer {
            Some(w) => w.push(row, tag, packed),
            None => {
                self.core.run_writer(self.table, self.tree).and_then(|w| self.writer.insert(w).push(row, tag, packed))
            }
        };
        self.written(pushed)
    }

    /// An error of what is being written: it is given up, nothing needs it, and the message says so.
    fn written<T>(&mut self, result: Result<T>) -> Result<T> {
        self.cannot_write |= result.is_err();
        result.map_err(|e| match e {
            Error::Io(mut e) => {
                e.message.push_str("; what was merged is discarded, nothing is lost");
                Error::Io(e)
            }
            e => e,
        })
    }

    /// Ends the run that is written if it is full.
    fn close_full(&mut self) -> Result<()> {
        match self.writer.take_if(|w| w.size_bytes() >= self.close_bytes) {
            Some(full) => self.close(full),
            None => Ok(()),
        }
    }

    fn close(&mut self, writer: RunWriter) -> Result<()> {
        let run = self.written(writer.finish())?;
        self.done_bytes += run.size_bytes();
        self.done.push(run);
        Ok(())
    }

    /// May an older version of `row` lie in a run that is not merged now?
    fn lies_elsewhere(&self, row: RowId) -> bool {
        self.state.runs_at(row).any(|h| !self.step.inputs.iter().any(|i| i.is(h)))
            || self.state.memtables().any(|m| m.get(row).is_some())
    }

    /// The least row that any input stands on.
    fn least(&mut self) -> Result<Option<RowId>> {
        let mut least = None;
        for input in &mut self.inputs {
            if let Some(row) = input.row(&mut self.read)? {
                if least.is_none_or(|l| row < l) {
                    least = Some(row);
                }
            }
        }
        Ok(least)
    }

    fn collect(&mut self, row: RowId, versions: &mut Vec<Candidate>) -> Result<()> {
        for (i, input) in self.inputs.iter_mut().enumerate() {
            while input.row(&mut self.read)? == Some(row) {
                let Some(block) = input.block.clone() else {
                    break;
                };
                let tag = block.tag(input.at);
                let seq = if input.handle.seq == CommitSeq::ZERO { tag.seq } else { input.handle.seq };
                if !input.handle.aborted.contains(tag.ordinal) {
                    versions.push(Candidate {
                        order: (seq.0, tag.ordinal),
                        input: i,
                        index: input.index,
                        block,
                        at: input.at,
                        tombstone: tag.tombstone,
                        supersedes: tag.supersedes,
                    });
                }
                input.at += 1;
            }
        }
        Ok(())
    }

    /// Closes the last run.
    fn finish(&mut self) -> Result<()> {
        if let Some(writer) = self.writer.take() {
            self.close(writer)?;
        }
        self.done.iter().for_each(|run| run.set_merged_at(self.horizon));
        Ok(())
    }
}

impl Input {
    /// Stands on the first of the handle's rows from `first` to `last`.
    fn new(handle: &RunHandle, first: RowId, last: RowId, read: &mut Read) -> Result<Self> {
        let index = handle.run.block_at_or_after(first);
        let mut input = Input { handle: handle.clone(), index, block: None, at: 0, last };
        if handle.run.entries().get(index).is_some_and(|e| e.first_id < first) {
            input.at = input.open(read)?.lower_bound(first);
        }
        Ok(input)
    }

    /// The row it stands on, or that its next block begins with; nothing is read.
    fn peek(&self) -> Option<RowId> {
        let row = match &self.block {
            Some(block) if self.at < block.rows() => Some(block.row_id(self.at)),
            _ => self.handle.run.entries().get(self.unread_block()?).map(|e| e.first_id),
        };
        row.filter(|row| *row <= self.last)
    }

    /// The block that it comes to next, if it stands before it and has read nothing of it.
    fn unread_block(&self) -> Option<usize> {
        let index = match &self.block {
            None => self.index,
            Some(block) if self.at >= block.rows() => self.index + 1,
            Some(_) => return None,
        };
        (index < self.handle.run.entries().len()).then_some(index)
    }

    /// Reads its block, past the cache.
    fn open(&mut self, read: &mut Read) -> Result<Arc<Block>> {
        let block = Arc::new(self.handle.run.read_block(self.index)?);
        read.blocks += 1;
        read.bytes += u64::from(self.handle.run.entries()[self.index].stored_bytes);
        self.block = Some(block.clone());
        Ok(block)
    }

    /// The row it stands on; `None` at the end.
    fn row(&mut self, read: &mut Read) -> Result<Option<RowId>> {
        loop {
            let block = match &self.block {
                Some(block) => block.clone(),
                None => match self.handle.run.entries().get(self.index) {
                    Some(entry) if entry.first_id <= self.last => self.open(read)?,
                    _ => return Ok(None),
                },
            };
            if self.at < block.rows() {
                return Ok(Some(block.row_id(self.at)).filter(|row| *row <= self.last));
            }
            (self.block, self.at) = (None, 0);
            self.index += 1;
        }
    }
}

/// What is left of a handle that loses its rows from `first` to `last`; each part begins and ends with a row of its run.
fn parts_left(handle: &RunHandle, first: RowId, last: RowId) -> Result<Vec<RunHandle>> {
    let mut parts = Vec::new();
    if !handle.overlaps(first, last) {
        return Ok(vec![handle.clone()]);
    }
    if handle.first < first {
        parts.extend(handle.run.row_before(first)?.map(|row| handle.narrowed(handle.first, row)));
    }
    if last < handle.last {
        parts.extend(handle.run.row_after(last)?.map(|row| handle.narrowed(row, handle.last)));
    }
    Ok(parts)
}
