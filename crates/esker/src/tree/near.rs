//! The rows about one that was found: as many of the same block as no other source touches and the view sees entirely.
//!
//! Whoever looks up many rows by their ids, as an index tells them, asks here before it looks anywhere else: rows that came
//! together lie together. Invariant: what is told is what [`find`](super::find) would find in the same state under the same
//! view.

use crate::tree::key::ByRow;
use crate::tree::memtable::Memtable;
use crate::tree::merge_read::is_clean;
use crate::tree::run::{Block, Run};
use crate::tree::{Found, RunSeen, TreeState};
use crate::version::View;
use esker_format::RowId;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// See the module.
pub(crate) struct Near {
    run: Arc<Run>,
    /// Where the block begins in the file.
    offset: u64,
    block: Arc<Block>,
    /// What the block says of these rows is all there is.
    rows: RangeInclusive<RowId>,
}

/// How many rows before the one that was found are asked about.
const BEFORE: u64 = 64;

impl Near {
    /// About a row that was found in `state` under `view`, if that is in a block and others lie beside it; `private` is the
    /// looker's own memtable.
    pub(crate) fn of(
        state: &TreeState<ByRow>,
        private: Option<&Arc<Memtable>>,
        view: View,
        row: RowId,
        found: &Found,
    ) -> Option<Near> {
        let Found::Block(run, offset, block, _) = found else { return None };
        let only_at = |row: RowId| {
            let mut handles = state.runs_at(row);
            handles.next().filter(|h| Arc::ptr_eq(&h.run, run) && handles.next().is_none())
        };
        let handle = only_at(row)?;
        let seen = handle.seen(view);
        if matches!(seen, RunSeen::Own | RunSeen::Hidden) {
            return None;
        }
        let blocks = run.index().ok()?;
        let index = blocks.block_at_or_after(row);
        let is_it = blocks.entries().get(index).is_some_and(|e| e.offset == *offset);
        if !is_it || !is_clean(&blocks, index, block, (seen, &*handle.aborted()), view, &state.seen_marks(view)) {
            return None;
        }
        let memtables = || private.into_iter().chain(state.memtables());
        let in_memory_from = |row: RowId| memtables().filter_map(|mem| mem.seek(row)).map(|node| node.key()).min();
        let runs_to = |row: RowId| state.runs.partition_point(|r| r.first <= row);
        let before = |behind: Option<RowId>| behind.map_or(RowId(u64::MAX), |behind| RowId(behind.0 - 1));
        let next_run = before(state.runs.get(runs_to(row)).map(|r| r.first));
        let last = block.last_id().min(handle.last).min(next_run).min(before(in_memory_from(RowId(row.0 + 1))));
        let from = RowId(row.0.saturating_sub(BEFORE)).max(block.first_id()).max(handle.first);
        let alone = only_at(from).is_some() && runs_to(from) == runs_to(row);
        let first = if alone && in_memory_from(from).is_none_or(|n| n > row) { from } else { row };
        let (run, offset, block) = (run.clone(), *offset, block.clone());
        (first < last).then(|| Near { run, offset, block, rows: first..=last })
    }

    /// Is it known here what there is of the row?
    pub(crate) fn knows(&self, row: RowId) -> bool {
        self.rows.contains(&row)
    }

    /// The row, which is [known](Self::knows).
    pub(crate) fn find(&self, row: RowId) -> Option<Found> {
        let at = self.block.lower_bound(row);
        let is_there = at < self.block.rows() && self.block.row_id(at) == row;
        is_there.then(|| Found::Block(self.run.clone(), self.offset, self.block.clone(), at))
    }
}
