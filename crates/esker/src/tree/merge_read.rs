//! Reads a tree in row-id order: memtables and runs merged, each row once, in the version that the view sees.
//!
//! The unit is a span: as many consecutive rows of one block as no other source touches and the view sees entirely.
//! So a table that was loaded in bulk is read a block at a time, whatever lies beside it. Invariant: a source stands
//! on its least row id that was not yet given out; sources that begin later wait unopened.

use crate::lock::Parker;
use crate::tree::memtable::{Memtable, Node};
use crate::tree::run::{Block, Run};
use crate::tree::{found_in_block, found_in_mem, order_in_block, Found, RunHandle, RunSeen, SeenMark, TreeState};
use crate::version::{OrdinalRanges, VersionOrder, View};
use crate::{Error, Result};
use esker_base::counters::{count, Counter};
use esker_format::RowId;
use std::ops::Range;
use std::sync::Arc;

/// Consecutive rows of a block, all seen.
pub(crate) struct BlockSpan {
    pub(crate) run: Arc<Run>,
    /// Which block of the run.
    pub(crate) index: usize,
    pub(crate) block: Arc<Block>,
    pub(crate) rows: Range<u32>,
}

/// What comes next.
pub(crate) enum Span {
    /// Rows to be given out as they stand.
    Rows(BlockSpan),
    /// One row.
    One(RowId, Found),
    /// Nothing more.
    End,
}

struct MemSource {
    mem: Arc<Memtable>,
    at: *const Node,
}

struct RunSource {
    handle: RunHandle,
    seen: RunSeen,
    aborted: Arc<OrdinalRanges>,
    index: usize,
    /// Beyond its last block.
    end: usize,
    block: Option<Arc<Block>>,
    at: u32,
    /// Rows of the block that count: the handle may end before it.
    rows: u32,
    /// Every row of the block is seen, none is a tombstone, none has two versions.
    clean: bool,
}

enum Source {
    Mem(MemSource),
    Run(Box<RunSource>),
}

/// The merged reading of one tree state under one view.
pub(crate) struct MergeRead {
    view: View,
    marks: Vec<SeenMark>,
    open: Vec<Source>,
    /// The place of the next run among the state's, which are in the order of their first rows.
    next_run: usize,
    /// The reader's: where it is killed.
    parker: Arc<Parker>,
    /// Keeps the memtables' nodes alive.
    state: Arc<TreeState>,
}

// SAFETY: the node pointers are into memtables that are held by `MemSource::mem` and only read.
unsafe impl Send for MergeRead {}

impl MergeRead {
    /// Reads `state` from row `from` on; `private` is the reader's own memtable.
    pub(crate) fn new(
        state: Arc<TreeState>,
        private: Option<Arc<Memtable>>,
        view: View,
        from: RowId,
        parker: &Arc<Parker>,
    ) -> Result<Self> {
        let mut open = Vec::new();
        for mem in private.iter().chain(state.memtables()) {
            if let Some(node) = mem.seek(from) {
                open.push(Source::Mem(MemSource { mem: mem.clone(), at: node }));
            }
        }
        let marks = state.seen_marks(view);
        for handle in state.runs_at(from).filter(|h| h.first < from && h.seen(view) != RunSeen::Hidden) {
            open.push(Source::Run(Box::new(RunSource::new(handle, view, from)?)));
        }
        let next_run = state.runs.partition_point(|h| h.first < from);
        Ok(MergeRead { view, marks, open, next_run, parker: parker.clone(), state })
    }

    /// The next rows, unless the reader is killed: looked at for every row and block, since millions may be passed over.
    pub(crate) fn next(&mut self) -> Result<Span> {
        loop {
            if self.parker.is_killed() {
                return Err(Error::Interrupted);
            }
            let Some((lead, row, bound)) = self.lead()? else {
                return Ok(Span::End);
            };
            if let Source::Run(source) = &mut self.open[lead] {
                source.load(self.view, &self.marks)?;
                let Some(block) = source.block.clone() else {
                    // The whole block is deleted.
                    self.drop_if_done(lead);
                    continue;
                };
                if source.clean && row < bound {
                    let end =
                        if bound > block.last_id() { source.rows } else { block.lower_bound(bound).min(source.rows) };
                    let span = Span::Rows(BlockSpan {
                        run: source.handle.run.clone(),
                        index: source.index,
                        block,
                        rows: source.at..end,
                    });
                    count(Counter::RowsExamined, u64::from(end - source.at));
                    source.advance_to(end);
                    self.drop_if_done(lead);
                    return Ok(span);
                }
            }
            count(Counter::RowsExamined, 1);
            if let Some(found) = self.contested(row)? {
                return Ok(Span::One(row, found));
            }
        }
    }

    /// The source with the least row, that row, and the least row of any other source.
    fn lead(&mut self) -> Result<Option<(usize, RowId, RowId)>> {
        loop {
            let (mut lead, mut least, mut bound) = (usize::MAX, RowId::MAX, RowId::MAX);
            for (i, source) in self.open.iter().enumerate() {
                let row = source.row();
                if lead == usize::MAX || row < least {
                    bound = least;
                    (lead, least) = (i, row);
                } else if row < bound {
                    bound = row;
                }
            }
            self.pass_unseen();
            match self.state.runs.get(self.next_run) {
                Some(next) if lead == usize::MAX || next.first <= least => {
                    self.open.push(Source::Run(Box::new(RunSource::new(next, self.view, next.first)?)));
                    self.next_run += 1;
                }
                next => {
                    let bound = next.map_or(bound, |n| bound.min(n.first));
                    return Ok((lead != usize::MAX).then_some((lead, least, bound)));
                }
            }
        }
    }

    /// Passes runs of which nothing is seen: those of others, and those that a mark deletes as a whole. A run that is
    /// not seen never will be: only what was committed before the view is.
    fn pass_unseen(&mut self) {
        while let Some(next) = self.state.runs.get(self.next_run) {
            let deleted = next
                .seq_bounds()
                .is_some_and(|(_, newest)| self.marks.iter().any(|m| next.last < m.up_to && newest <= m.as_of));
            if !deleted && next.seen(self.view) != RunSeen::Hidden {
                return;
            }
            self.next_run += 1;
        }
    }

    /// The visible version of `row` among all sources that stand on it; moves them past it.
    fn contested(&mut self, row: RowId) -> Result<Option<Found>> {
        let mut best: Option<(VersionOrder, Found)> = None;
        let mut i = 0;
        while i < self.open.len() {
            if self.open[i].row() == row {
                match &mut self.open[i] {
                    Source::Mem(s) => s.take(self.view, &mut best),
                    Source::Run(s) => s.take(row, self.view, &self.marks, &mut best)?,
                }
                if self.drop_if_done(i) {
                    continue;
                }
            }
            i += 1;
        }
        Ok(best
            .filter(|(order, _)| !self.marks.iter().any(|m| m.hides(row, *order)))
            .map(|(_, found)| found)
            .filter(|found| !matches!(found, Found::Tombstone)))
    }

    fn drop_if_done(&mut self, i: usize) -> bool {
        let done = match &self.open[i] {
            Source::Mem(s) => s.at.is_null(),
            Source::Run(s) => s.index >= s.end,
        };
        if done {
            self.open.swap_remove(i);
        }
        done
    }
}

impl Source {
    fn row(&self) -> RowId {
        match self {
            // SAFETY: a source with a null node is dropped at once.
            Source::Mem(s) => unsafe { (*s.at).key() },
            Source::Run(s) => match &s.block {
                Some(block) => block.row_id(s.at),
                None => s.handle.run.entries()[s.index].first_id,
            },
        }
    }
}

impl MemSource {
    fn take(&mut self, view: View, best: &mut Option<(VersionOrder, Found)>) {
        // SAFETY: nodes live as long as `mem`.
        let node = unsafe { &*self.at };
        if let Some((order, version)) = self.mem.visible(node, view) {
            if best.as_ref().is_none_or(|b| order > b.0) {
                *best = Some((order, found_in_mem(&self.mem, version)));
            }
        }
        self.at = self.mem.after(node).map_or(std::ptr::null(), std::ptr::from_ref);
    }
}

impl RunSource {
    /// Stands on the first row at or after `from`, which is in the handle's bounds.
    fn new(handle: &RunHandle, view: View, from: RowId) -> Result<Self> {
        handle.run.load()?;
        #[cfg(test)]
        crate::tree::levels::looked::count();
        let (seen, aborted) = (handle.seen(view), handle.aborted());
        let (run, entries) = (&handle.run, handle.run.entries());
        let index = run.block_at_or_after(from);
        let end = entries.partition_point(|e| e.first_id <= handle.last);
        let handle = handle.clone();
        let mut source = RunSource { handle, seen, aborted, index, end, block: None, at: 0, rows: 0, clean: false };
        if entries.get(index).is_some_and(|e| e.first_id < from) {
            let block = run.block(index)?;
            (source.at, source.rows) = (block.lower_bound(from), source.rows_of(&block));
            source.block = Some(block);
            if source.at >= source.rows {
                source.advance_block();
            }
        }
        Ok(source)
    }

    /// How many rows of a block count.
    fn rows_of(&self, block: &Block) -> u32 {
        if block.last_id() <= self.handle.last {
            block.rows()
        } else {
            block.lower_bound(self.handle.last.next())
        }
    }

    /// Brings the block in and judges it; a block that is deleted as a whole is skipped without being read.
    fn load(&mut self, view: View, marks: &[SeenMark]) -> Result<()> {
        if self.block.is_some() {
            return Ok(());
        }
        let entry = &self.handle.run.entries()[self.index];
        let (least, greatest) = match self.seen {
            RunSeen::At(seq) => (seq, seq),
            _ => (entry.min_seq, entry.max_seq),
        };
        let own = self.seen == RunSeen::Own;
        if !own && marks.iter().any(|m| entry.last_id < m.up_to && greatest <= m.as_of) {
            count(Counter::BlocksSkipped, 1);
            self.advance_block();
            return Ok(());
        }
        let block = self.handle.run.block(self.index)?;
        let entries = self.handle.run.entries();
        let before = self.index.checked_sub(1).is_some_and(|i| entries[i].last_id == entry.first_id);
        let after = entries.get(self.index + 1).is_some_and(|e| e.first_id == entry.last_id);
        self.clean = block.ids_unique()
            && self.seen != RunSeen::Hidden
            && !before
            && !after
            && !block.has_tombstones()
            && !self.aborted.meets(entry.min_ordinal, entry.max_ordinal)
            && (self.seen != RunSeen::PerRow || greatest <= view.seq)
            && !marks
                .iter()
                .any(|m| entry.first_id < m.up_to && (own || least <= m.as_of || m.same_seq(least, greatest)));
        self.rows = self.rows_of(&block);
        self.block = Some(block);
        Ok(())
    }

    fn take(
        &mut self,
        row: RowId,
        view: View,
        marks: &[SeenMark],
        best: &mut Option<(VersionOrder, Found)>,
    ) -> Result<()> {
        while self.index < self.end {
            self.load(view, marks)?;
            let Some(block) = self.block.clone() else {
                if self.index >= self.end || self.handle.run.entries()[self.index].first_id > row {
                    break;
                }
                continue;
            };
            if block.row_id(self.at) != row {
                break;
            }
            if let Some(order) = order_in_block(&block, self.at, self.seen, view, &self.aborted) {
                if best.as_ref().is_none_or(|b| order > b.0) {
                    *best = Some((order, found_in_block(&self.handle.run, self.index, &block, self.at)));
                }
            }
            self.advance_to(self.at + 1);
        }
        Ok(())
    }

    fn advance_to(&mut self, at: u32) {
        self.at = at;
        if self.block.is_some() && at >= self.rows {
            self.advance_block();
        }
    }

    fn advance_block(&mut self) {
        (self.block, self.at, self.clean) = (None, 0, false);
        self.index += 1;
    }
}

#[cfg(test)]
mod tests;
