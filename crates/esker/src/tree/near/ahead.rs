//! Rows that are asked for soon: the way to all of them is gone together, so that what each step needs comes from memory for all at
//! once. In memtables by searches in turns; in a level of runs what an index says of the blocks is fetched first, then the blocks'
//! heads, then what these say of columns, then the rows.
//!
//! Invariant: of blocks only those in memory are looked at.

use super::{InBlock, NearLookup, SearchedLevel, NOT_TOLD};
use crate::tree::fences::TOGETHER;
use crate::tree::levels::PlaceInLevel;
use crate::tree::run::cache::Slot;
use crate::tree::run::Block;
use crate::tree::search::seek_each;
use crate::tree::RunSeen;
use crate::Result;
use esker_format::{prefetch_all, ColumnMask, RowId};
use std::ops::RangeInclusive;
use std::sync::Arc;

/// The way to a row in a run that lies over it.
pub(super) struct Way {
    /// Of these rows the run alone tells in its level.
    pub(super) known: RangeInclusive<RowId>,
    /// The run's place among the state's.
    pub(super) run: usize,
    /// Not hidden.
    pub(super) seen: RunSeen,
    /// The block's in the index, which may end before it.
    pub(super) at: usize,
    /// The block, if it was come by.
    pub(super) block: Option<Arc<Block>>,
}

impl NearLookup {
    /// Tells of rows that are asked for soon, and of these columns of them. Rows are asked for in the order in which they are told
    /// of; not all of them need be told of.
    pub(crate) fn expect(&mut self, rows: &[RowId], mask: &ColumnMask) -> Result<()> {
        let (first, of_each) = (self.told.rows.len(), self.memtables.len());
        self.told.rows.extend_from_slice(rows);
        self.told.nodes.resize((first + rows.len()) * of_each, std::ptr::null());
        self.told.ats.resize((first + rows.len()) * self.levels.len(), NOT_TOLD);
        let memtables = &self.memtables;
        let in_each = |row: &RowId| {
            let row = *row;
            memtables.iter().map(move |place| (&*place.mem, row))
        };
        let wanted: Vec<_> = rows.iter().flat_map(in_each).collect();
        seek_each(&wanted, |i, spot| self.told.nodes[first * of_each + i] = spot.next);
        let levels = self.levels.len();
        for level in 0..levels {
            for (part, rows) in rows.chunks(TOGETHER).enumerate() {
                let mut ways = self.fetch_in_level(level, rows, mask)?.into_iter();
                for (i, row) in (first + part * TOGETHER..).zip(rows) {
                    let at = self.expect_in_level(level, *row, ways.next().flatten(), mask)?;
                    self.told.ats[i * levels + level] = at;
                }
            }
        }
        Ok(())
    }

    /// Fetches what lies on the way to each of these rows in a level, [`TOGETHER`] at most.
    fn fetch_in_level(&mut self, level: usize, rows: &[RowId], mask: &ColumnMask) -> Result<[Option<Way>; TOGETHER]> {
        let mut ways = [const { None }; TOGETHER];
        for (way, row) in ways.iter_mut().zip(rows) {
            let PlaceInLevel::In(known, run) = self.state.levels().lies(level, *row) else { continue };
            let seen = self.state.runs[run].seen(self.view);
            if seen == RunSeen::Hidden {
                continue;
            }
            let index = self.take_index(level, run)?;
            let at = index.block_at_or_after(*row);
            index.fetch(at);
            self.levels[level].index = Some((run, index));
            *way = Some(Way { known, run, seen, at, block: None });
        }
        if rows.len() > 1 {
            self.each_slot(level, &mut ways, |slot, _| slot.glance(prefetch_all))?;
        }
        self.each_slot(level, &mut ways, |slot, way| {
            way.block = slot.get();
            way.block.iter().for_each(|block| block.prefetch_columns(mask));
        })?;
        Ok(ways)
    }

    /// Calls `f` with the slots of blocks that are on these ways.
    fn each_slot(
        &mut self,
        level: usize,
        ways: &mut [Option<Way>],
        mut f: impl FnMut(&Slot<Block>, &mut Way),
    ) -> Result<()> {
        for way in ways.iter_mut().flatten() {
            let index = self.take_index(level, way.run)?;
            if way.at < index.entries().len() {
                f(index.slot(way.at), way);
            }
            self.levels[level].index = Some((way.run, index));
        }
        Ok(())
    }

    /// Fetches what is there of a row in its block in a level, if that is in memory; tells where in the block.
    fn expect_in_level(&mut self, level: usize, row: RowId, way: Option<Way>, mask: &ColumnMask) -> Result<u32> {
        let places = &self.levels[level];
        let last = places.ahead.back().unwrap_or(&places.last[0]);
        if !last.known.contains(&row) {
            let SearchedLevel::At(place) = self.place_ahead(level, row, way)? else { return Ok(NOT_TOLD) };
            self.levels[level].ahead.push_back(place);
        }
        let places = &self.levels[level];
        let last = places.ahead.back().unwrap_or(&places.last[0]);
        let Some(InBlock { block, .. }) = &last.block else { return Ok(NOT_TOLD) };
        let at = block.lower_bound(row);
        if at < block.rows() {
            block.prefetch(at, mask);
        }
        Ok(at)
    }

    /// The place of a row in a level at the end of its way, if its block is in memory.
    fn place_ahead(&mut self, level: usize, row: RowId, way: Option<Way>) -> Result<SearchedLevel> {
        let Some(way) = way else {
            return self.place_in_level(level, row, |_, _| true);
        };
        #[cfg(test)]
        super::searched::count();
        let (run, is_here) = (way.run, way.block.is_some());
        let index = self.take_index(level, run)?;
        let placed = self.place_in_run(row, way, &index, is_here);
        self.levels[level].index = Some((run, index));
        placed
    }
}
