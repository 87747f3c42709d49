//! Rows beside the one that was found last, in either direction: as far as nothing but one block has any, they are found without
//! being looked for one by one.
//!
//! Invariant: of the rows that are alone nothing is anywhere but in the block at the place in their level, for this view.

use super::{InBlock, InMemory, NearLookup, Places, RunSeen};
use crate::tree::run::{Block, Run};
use esker_format::RowId;
use std::ops::Range;
use std::sync::Arc;

/// Rows that stand together in a block, each found as it stands.
pub(crate) struct Beside<'a> {
    pub(crate) run: &'a Arc<Run>,
    /// Where the block begins in the file.
    pub(crate) offset: u64,
    pub(crate) block: &'a Arc<Block>,
    /// Where they stand, by rising ids.
    pub(crate) places: Range<u32>,
    /// They were asked for by falling ids.
    pub(crate) falls: bool,
}

impl NearLookup {
    /// The last row up to which, from a row on that was looked for everywhere, there is nothing but in one level's block.
    pub(super) fn alone_until(&self, level: usize, row: RowId) -> RowId {
        let mut until = *self.levels[level].last[0].known.end();
        for InMemory { places, .. } in &self.memtables {
            // SAFETY: null, or a node of the memtable that is held.
            if let Some(next) = unsafe { places[0].next.as_ref() } {
                until = until.min(RowId(next.key().0.saturating_sub(1)));
            }
        }
        for Places { last, .. } in self.levels_but(level) {
            until = until.min(*last[0].known.end());
            if let Some(place) = last[0].block.as_ref().filter(|place| place.at < place.block.rows()) {
                until = until.min(RowId(place.next.0.saturating_sub(1)));
            }
        }
        until.max(RowId(row.0.saturating_sub(1)))
    }

    /// The first row from which, up to a row that was looked for everywhere, there is nothing but in one level's block.
    pub(super) fn alone_from(&mut self, level: usize, row: RowId) -> RowId {
        let mut from = *self.levels[level].last[0].known.start();
        for mem in &mut self.memtables {
            from = from.max(mem.none_from(row));
        }
        for Places { last, .. } in self.levels_but(level) {
            from = from.max(*last[0].known.start());
            if let Some((place, before)) = last[0].block.as_ref().and_then(|p| Some((p, p.at.checked_sub(1)?))) {
                from = from.max(RowId(place.block.row_id(before).0 + 1));
            }
        }
        from.min(row)
    }

    fn levels_but(&self, level: usize) -> impl Iterator<Item = &Places> {
        self.levels.iter().enumerate().filter(move |(i, _)| *i != level).map(|(_, places)| places)
    }

    /// Of the rows that are asked for next those, from the first one on, that stand beside the one that was found last, all of
    /// them behind it or all before, and are seen as they stand.
    #[inline]
    pub(crate) fn beside(&mut self, rows: &[RowId]) -> Option<Beside<'_>> {
        let first = *rows.first()?;
        if !self.alone.1.contains(&first) {
            return None;
        }
        let place = self.levels[self.alone.0].last[0].block.as_mut()?;
        // Who reads its own rows asks of each when it was written.
        if !place.sees_all || place.seen == RunSeen::Own || place.next != place.from {
            return None;
        }
        let (last, alone) = (place.from, &self.alone.1);
        let falls = first < last;
        let (room, step) = match falls {
            true => (last.0.saturating_sub(alone.start().0), -1),
            false => (alone.end().0.saturating_sub(last.0), 1),
        };
        let is_beside = |(i, row): &(usize, &RowId)| Some(row.0) == last.0.checked_add_signed(step * (*i as i64 + 1));
        let room = usize::try_from(room).unwrap_or(usize::MAX);
        let wanted = rows.iter().enumerate().take(room).take_while(is_beside).count();
        let places = if falls { place.plain_before(wanted) } else { place.plain_behind(wanted) };
        if places.is_empty() {
            return None;
        }
        let to = if falls { places.start } else { places.end - 1 };
        (place.at, place.next) = (to, place.block.row_id(to));
        place.from = place.next;
        #[cfg(test)]
        {
            places.clone().for_each(|_| super::alone::count());
            super::stretches::count();
        }
        let run = &self.state.runs[place.run].run;
        Some(Beside { run, offset: place.offset, block: &place.block, places, falls })
    }
}

impl InBlock {
    /// So many rows behind the place, or fewer, whose ids rise by one from it on.
    fn plain_behind(&self, rows: usize) -> Range<u32> {
        let from = self.at + 1;
        let end = self.block.plain_until(from.min(self.block.rows())).min(from.saturating_add(rows as u32));
        let mut places = from..end.max(from);
        while !places.is_empty() && self.block.row_id(places.end - 1).0 - self.next.0 != places.len() as u64 {
            places.end = from + places.len() as u32 / 2;
        }
        places
    }

    /// So many rows before the place, or fewer, whose ids rise by one up to it.
    fn plain_before(&self, rows: usize) -> Range<u32> {
        let mut places = self.at - self.at.min(rows as u32)..self.at;
        let is_beside = |places: &Range<u32>| {
            self.next.0 - self.block.row_id(places.start).0 == places.len() as u64
                && self.block.plain_until(places.start) >= self.at
        };
        while !places.is_empty() && !is_beside(&places) {
            places.start = self.at - places.len() as u32 / 2;
        }
        places
    }
}
