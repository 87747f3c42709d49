//! Rows of one state under one view, looked up one after the other by their ids.
//!
//! Rows that came together lie together. So in each memtable, and in each level of runs, the place of the last row is kept,
//! and the next one is looked for from there: next to it is at hand, and what lies far away is searched as by
//! [`find`](super::find). Two places are kept of each, as one row among many that lie together may lie far away, and the next
//! is where the others are. Rows that are asked for soon are searched together, see `search.rs`. Of rows that are looked up one
//! behind the other, or before, those up to the next one that anything else has are looked for in one block alone, and stretches of
//! them are taken as they stand (`beside.rs`).
//!
//! Invariants: what is found is what `find` finds; what is kept of a place stays true, since whatever comes to a memtable later
//! is not seen by the view. The looker itself writes nothing meanwhile.

mod ahead;
mod beside;

use self::ahead::Way;
pub(crate) use self::beside::Beside;
use crate::tally::tally;
use crate::tree::key::ByRow;
use crate::tree::levels::PlaceInLevel;
use crate::tree::looks::OwnLooks;
use crate::tree::memtable::{Memtable, Node, Version};
use crate::tree::merge_read::run_source::sees_all;
use crate::tree::run::index::Index;
use crate::tree::run::Block;
use crate::tree::stored::{may_meet, Stored};
use crate::tree::{find_in_run, order_in_block, Found, Place, RunHandle, RunSeen, Seen, SeenMark, TreeState};
use crate::version::{OrdinalRanges, VersionOrder, View};
use crate::Result;
use esker_base::counters::{count, Counter};
use esker_format::RowId;
use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Nodes that are passed one by one before they are searched.
const STEPS: usize = 8;
/// What is farther than so many ids away is searched at once.
const NEAR_IDS: u64 = 1024;

/// See the module.
pub(crate) struct NearLookup {
    /// Keeps what the places point to.
    state: Arc<TreeState<ByRow>>,
    view: View,
    marks: Vec<SeenMark>,
    memtables: Vec<InMemory>,
    levels: Vec<Places>,
    told: ToldRows,
    /// Of these rows nothing is anywhere but in the block at the place in this level.
    alone: (usize, RangeInclusive<RowId>),
    /// The row that was looked for everywhere last.
    last: RowId,
    looks: OwnLooks<ByRow>,
}

/// Rows that are asked for soon.
#[derive(Default)]
struct ToldRows {
    /// In their order, those that were asked for meanwhile among them.
    rows: Vec<RowId>,
    /// How many of them were asked for.
    asked: usize,
    /// Of each row, for each memtable, the first node from there on.
    nodes: Vec<*const Node>,
    /// Of each row, for each level, where it is in its block, or [`NOT_TOLD`].
    ats: Vec<u32>,
}

// SAFETY: the nodes are those of the memtables that are held beside them, and only read.
unsafe impl Send for ToldRows {}

/// Where a row is in a block is not known.
const NOT_TOLD: u32 = u32::MAX;

/// The places in a memtable, the last one first.
struct InMemory {
    mem: Arc<Memtable>,
    places: [MemPlace; 2],
}

/// A place in a memtable.
struct MemPlace {
    /// `next` is the first node from here on, or one before it.
    from: RowId,
    next: *const Node,
}

// SAFETY: the nodes are those of the memtable that is held beside them, and only read.
unsafe impl Send for InMemory {}

/// The places in a level of runs.
struct Places {
    /// The last one first.
    last: [InLevel; 2],
    /// Of rows that are asked for soon, in their order.
    ahead: VecDeque<InLevel>,
    /// Of the run that was looked into last, by its place among the state's.
    index: Option<(usize, Arc<Index<ByRow>>)>,
}

/// A place in a level of runs.
struct InLevel {
    /// Of these rows what is kept here tells.
    known: RangeInclusive<RowId>,
    /// `None`: there is nothing of them.
    block: Option<InBlock>,
}

/// The place in a block, all versions of whose rows that its level has are in it.
struct InBlock {
    /// Its place among the state's.
    run: usize,
    /// Where the block begins in the file.
    offset: u64,
    block: Arc<Block>,
    seen: RunSeen,
    /// If there are any.
    aborted: Option<Arc<OrdinalRanges>>,
    /// The view sees all that is in it, but for tombstones and older versions.
    sees_all: bool,
    /// The first version from `from` on stands at `at`, and is of `next`.
    from: RowId,
    at: u32,
    next: RowId,
}

/// What comes of going to a row in a level.
enum StepInLevel {
    There,
    /// Versions of it may lie in two blocks.
    ToAnEdge,
    /// All that may be there is older than what was found.
    Nowhere,
}

/// What comes of looking for the place of a row in a level.
enum SearchedLevel {
    At(InLevel),
    /// Versions of it may lie in two blocks.
    AtEdge,
    /// Its block is not wanted.
    Unwanted,
}

/// The best so far.
enum Best {
    Mem(usize, &'static [u8]),
    Block(usize, u32),
    Found(Found),
}

impl NearLookup {
    /// Of `state` under `view`; `private` is the looker's own memtable.
    pub(crate) fn new(state: Arc<TreeState<ByRow>>, private: Option<&Arc<Memtable>>, view: View) -> Self {
        let nowhere = || MemPlace { from: RowId::MAX, next: std::ptr::null() };
        let in_memory = |mem: &Arc<Memtable>| InMemory { mem: mem.clone(), places: [nowhere(), nowhere()] };
        let nothing = || InLevel { known: RowId::MAX..=RowId::ZERO, block: None };
        let places = || Places { last: [nothing(), nothing()], ahead: VecDeque::new(), index: None };
        NearLookup {
            marks: state.seen_marks(view),
            memtables: private.into_iter().chain(state.memtables()).map(in_memory).collect(),
            levels: (0..state.levels().count()).map(|_| places()).collect(),
            told: ToldRows::default(),
            alone: (0, RowId::MAX..=RowId::ZERO),
            last: RowId::MAX,
            looks: OwnLooks::default(),
            state,
            view,
        }
    }

    /// The newest version of a row that the view sees, if that is not a tombstone.
    pub(crate) fn find(&mut self, row: RowId) -> Result<Option<(VersionOrder, Place<'_>)>> {
        let mut best: Option<(VersionOrder, Best)> = None;
        let told = self.told.ask(row);
        if self.alone.1.contains(&row) {
            #[cfg(test)]
            alone::count();
            self.find_in_level(self.alone.0, row, NOT_TOLD, &mut best);
        } else {
            self.find_anywhere(row, told, &mut best)?;
        }
        let Some((order, best)) = best.filter(|(order, _)| !self.marks.iter().any(|m| m.hides(row, *order))) else {
            return Ok(None);
        };
        Ok(self.place(best).map(|place| (order, place)))
    }

    /// `told`: which of the rows that were told of it is.
    fn find_anywhere(
        &mut self,
        row: RowId,
        told: Option<usize>,
        best: &mut Option<(VersionOrder, Best)>,
    ) -> Result<()> {
        // Places move.
        self.alone.1 = RowId::MAX..=RowId::ZERO;
        let (mut memtables, of_each) = (0, self.memtables.len());
        for (i, place) in self.memtables.iter_mut().enumerate() {
            let was_searched = place.go_to(row, told.map(|told| self.told.nodes[told * of_each + i]));
            memtables += u64::from(was_searched && !place.mem.is_empty() && !place.mem.is_private());
            if let Some((order, version)) = place.visible(row, self.view) {
                if best.as_ref().is_none_or(|(b, _)| order > *b) {
                    // SAFETY: the bytes live as long as the memtable, which is held.
                    let value = unsafe { std::mem::transmute::<&[u8], &'static [u8]>(version.value()) };
                    let found = if version.tombstone { Best::Found(Found::Tombstone) } else { Best::Mem(i, value) };
                    *best = Some((order, found));
                }
            }
        }
        let (mut is_everywhere, mut blocks) = (true, 0);
        for i in 0..self.levels.len() {
            let is_at_hand = self.levels[i].last[0].known.contains(&row);
            match self.go_to_level(i, row, best.as_ref().map(|(order, _)| *order))? {
                StepInLevel::There => {
                    let at = told.map_or(NOT_TOLD, |told| self.told.ats[told * self.levels.len() + i]);
                    self.find_in_level(i, row, at, best);
                    let block = self.levels[i].last[0].block.as_ref();
                    blocks += u64::from(!is_at_hand && block.is_some_and(|b| b.seen != RunSeen::Own));
                }
                StepInLevel::ToAnEdge => {
                    self.find_at_edge(i, row, best)?;
                    is_everywhere = false;
                    blocks += 1;
                }
                StepInLevel::Nowhere => is_everywhere = false,
            }
        }
        self.looks.add(blocks, memtables, row);
        // Rows that lie together are asked for one behind the other, or before.
        let last = std::mem::replace(&mut self.last, row);
        let (is_next, is_before) = (last.0.checked_add(1) == Some(row.0), row.0.checked_add(1) == Some(last.0));
        if let Some((_, Best::Block(level, _))) = best.as_ref().filter(|_| (is_next || is_before) && is_everywhere) {
            let level = *level;
            let rows = if is_next { row..=self.alone_until(level, row) } else { self.alone_from(level, row)..=row };
            self.alone = (level, rows);
        }
        Ok(())
    }

    /// Looks at the versions in the block at the place in a level, where the row's place is: at `told_at`, if that is told.
    #[inline]
    fn find_in_level(&mut self, level: usize, row: RowId, told_at: u32, best: &mut Option<(VersionOrder, Best)>) {
        let Some(place) = &mut self.levels[level].last[0].block else { return };
        let aborted = place.aborted.clone();
        let aborted = aborted.as_deref().unwrap_or(OrdinalRanges::NONE);
        let mut at = place.go_to(row, told_at);
        let mut is_of_row = place.next == row && at < place.block.rows();
        while is_of_row {
            if let Some(order) = order_in_block::<ByRow>(&place.block, at, place.seen, self.view, aborted) {
                if best.as_ref().is_none_or(|(b, _)| order > *b) {
                    let is_gone = place.block.has_tombstones() && place.block.tag(at).tombstone;
                    let found = if is_gone { Best::Found(Found::Tombstone) } else { Best::Block(level, at) };
                    *best = Some((order, found));
                }
                // Those behind it are older.
                return;
            }
            at += 1;
            is_of_row = !place.block.ids_unique() && at < place.block.rows() && place.block.row_id(at) == row;
        }
    }

    fn place(&self, best: Best) -> Option<Place<'_>> {
        match best {
            Best::Mem(i, value) => Some(Place::Mem(&self.memtables[i].mem, value)),
            Best::Block(i, at) => {
                let InBlock { run, offset, block, .. } = self.levels[i].last[0].block.as_ref()?;
                Some(Place::Block(&self.state.runs[*run].run, *offset, block, at))
            }
            Best::Found(Found::Tombstone) => None,
            Best::Found(found) => Some(Place::Found(found)),
        }
    }

    /// What was told of is not asked for any more.
    pub(crate) fn forget_told(&mut self) {
        self.told.forget();
        self.levels.iter_mut().for_each(|places| places.ahead.clear());
    }

    /// Goes to the place of a row in a level, but for what is older than the version that was `found`.
    #[inline]
    fn go_to_level(&mut self, level: usize, row: RowId, found: Option<VersionOrder>) -> Result<StepInLevel> {
        let Places { last, ahead, .. } = &mut self.levels[level];
        if last[0].known.contains(&row) {
            return Ok(StepInLevel::There);
        }
        last.swap(0, 1);
        if last[0].known.contains(&row) {
            return Ok(StepInLevel::There);
        }
        // What is ahead of others stays for them.
        let passed = ahead.iter().position(|place| place.known.contains(&row));
        if let Some(place) = passed.and_then(|passed| ahead.drain(..=passed).next_back()) {
            last[0] = place;
            return Ok(StepInLevel::There);
        }
        let may_be_newer = |handle: &RunHandle, seen| found.is_none_or(|found| !handle.is_older(seen, found));
        Ok(match self.place_in_level(level, row, may_be_newer)? {
            SearchedLevel::At(place) => {
                self.levels[level].last[0] = place;
                StepInLevel::There
            }
            SearchedLevel::AtEdge => StepInLevel::ToAnEdge,
            SearchedLevel::Unwanted => StepInLevel::Nowhere,
        })
    }

    /// The place of a row in a level. `is_wanted`: is a block of a run, which is seen so?
    fn place_in_level(
        &mut self,
        level: usize,
        row: RowId,
        is_wanted: impl FnOnce(&RunHandle, RunSeen) -> bool,
    ) -> Result<SearchedLevel> {
        #[cfg(test)]
        searched::count();
        let (known, run) = match self.state.levels().lies(level, row) {
            PlaceInLevel::In(known, run) => (known, run),
            PlaceInLevel::Between(known) => return Ok(SearchedLevel::At(InLevel { known, block: None })),
        };
        let handle = &self.state.runs[run];
        let seen = handle.seen(self.view);
        if seen == RunSeen::Hidden {
            return Ok(SearchedLevel::At(InLevel { known, block: None }));
        }
        let blocks = self.take_index(level, run)?;
        let (at, wanted) = (blocks.block_at_or_after(row), is_wanted(&self.state.runs[run], seen));
        let placed = self.place_in_run(row, Way { known, run, seen, at, block: None }, &blocks, wanted);
        self.levels[level].index = Some((run, blocks));
        placed
    }

    /// The same in a run that lies over the row, on the way to its block.
    fn place_in_run(&self, row: RowId, way: Way, blocks: &Arc<Index<ByRow>>, is_wanted: bool) -> Result<SearchedLevel> {
        let nothing = |known| Ok(SearchedLevel::At(InLevel { known, block: None }));
        let Way { known, run, seen, at, block } = way;
        let (entries, handle) = (blocks.entries(), &self.state.runs[run]);
        let first = at.checked_sub(1).map_or(RowId::ZERO, |i| RowId(entries[i].last_id.0.saturating_add(1)));
        let Some(entry) = entries.get(at).filter(|e| e.first_id <= row) else {
            let behind = entries.get(at).map_or(RowId::MAX, |e| RowId(e.first_id.0 - 1));
            return nothing(first.max(*known.start())..=behind.min(*known.end()));
        };
        let meets_before = at.checked_sub(1).is_some_and(|i| may_meet::<ByRow>(&entries[i], entry));
        let meets_after = entries.get(at + 1).is_some_and(|e| may_meet::<ByRow>(entry, e));
        if (meets_before && row == entry.first_id) || (meets_after && row == entry.last_id) {
            return Ok(SearchedLevel::AtEdge);
        }
        if !is_wanted {
            return Ok(SearchedLevel::Unwanted);
        }
        let block = match block.or_else(|| blocks.slot(at).get()) {
            Some(block) => {
                count(Counter::BlocksCached, 1);
                block
            }
            // A block that is here tells of the rows beside it, too.
            None if blocks.filters().is_some() && !handle.run.may_hold(blocks, at, ByRow::filter_hash(row)) => {
                return nothing(row..=row);
            }
            None => handle.run.block(blocks, at)?,
        };
        let first = RowId(entry.first_id.0 + u64::from(meets_before)).max(*known.start());
        let last = RowId(entry.last_id.0 - u64::from(meets_after)).min(*known.end());
        let (offset, aborted) = (entry.offset, handle.aborted());
        let sees_all = sees_all(entry, seen, &aborted, self.view, &self.marks);
        let aborted = (!aborted.is_empty()).then(|| handle.keep_aborted());
        let (from, at, next) = (RowId::MAX, 0, RowId::ZERO);
        let block = Some(InBlock { run, offset, block, seen, aborted, sees_all, from, at, next });
        Ok(SearchedLevel::At(InLevel { known: first..=last, block }))
    }

    /// The index of one of the state's runs, which lies in a level: to be given back to it.
    fn take_index(&mut self, level: usize, run: usize) -> Result<Arc<Index<ByRow>>> {
        match self.levels[level].index.take_if(|(of, _)| *of == run) {
            Some((_, index)) => {
                index.touch();
                Ok(index)
            }
            None => Ok(self.state.runs[run].run.index()?.keep()),
        }
    }

    /// The same for a row whose versions may lie in two blocks of a run: without a place.
    fn find_at_edge(&mut self, level: usize, row: RowId, best: &mut Option<(VersionOrder, Best)>) -> Result<()> {
        #[cfg(test)]
        edges::count();
        let PlaceInLevel::In(_, at) = self.state.levels().lies(level, row) else { return Ok(()) };
        let mut seen: Option<Seen<ByRow>> = None;
        find_in_run(&self.state.runs[at], row, self.view, &mut seen)?;
        if let Some(seen) = seen.filter(|seen| best.as_ref().is_none_or(|(b, _)| seen.order > *b)) {
            *best = Some((seen.order, Best::Found(seen.found)));
        }
        Ok(())
    }

    /// Reading pauses: upkeep is told of the looks so far.
    pub(crate) fn tell_looks(&mut self) {
        self.looks.tell(&self.state);
    }
}

impl Drop for NearLookup {
    fn drop(&mut self) {
        self.tell_looks();
    }
}

impl ToldRows {
    fn forget(&mut self) {
        self.rows.clear();
        self.nodes.clear();
        self.ats.clear();
        self.asked = 0;
    }

    /// A row is asked for: which of those that were told of it is, if it is the next of them.
    #[inline]
    fn ask(&mut self, row: RowId) -> Option<usize> {
        let next = self.asked;
        (self.rows.get(next) == Some(&row)).then(|| {
            self.asked += 1;
            next
        })
    }
}

impl InMemory {
    /// The newest version of a row that the view sees, where the place is; a tombstone counts.
    fn visible(&mut self, row: RowId, view: View) -> Option<(VersionOrder, &Version)> {
        // SAFETY: null, or a node of the memtable.
        let next = unsafe { self.places[0].next.as_ref() }?;
        // Of this row, or of one that is asked for soon.
        next.prefetch_newest();
        self.mem.visible(Some(next).filter(|node| node.key() == row)?, view)
    }

    /// How far back nothing is before a row, the place of the last row: from there on.
    fn none_from(&mut self, row: RowId) -> RowId {
        let place = &mut self.places[0];
        if place.from >= row {
            let before = self.mem.before(row);
            place.from = before.map_or(RowId::ZERO, |node| RowId(node.key().0 + 1));
        }
        place.from
    }

    /// Stands at the row's node, or at the first behind it: at `told`, if that is told. True if that was not at hand.
    #[inline]
    fn go_to(&mut self, row: RowId, told: Option<*const Node>) -> bool {
        if let Some(next) = told {
            #[cfg(test)]
            told::count();
            self.places.swap(0, 1);
            self.places[0] = MemPlace { from: row, next };
            return true;
        }
        if self.step(row) {
            return false;
        }
        self.places.swap(0, 1);
        if self.step(row) {
            return false;
        }
        #[cfg(test)]
        searched::count();
        let next = self.mem.seek(row).map_or(std::ptr::null(), std::ptr::from_ref);
        self.places[0] = MemPlace { from: row, next };
        true
    }

    /// The same from the last place, if the row is near.
    #[inline]
    fn step(&mut self, row: RowId) -> bool {
        let place = &mut self.places[0];
        if row < place.from {
            return false;
        }
        for _ in 0..=STEPS {
            // SAFETY: null, or a node of the memtable.
            let Some(node) = unsafe { place.next.as_ref() }.filter(|node| node.key() < row) else { return true };
            if row.0 - node.key().0 > NEAR_IDS {
                return false;
            }
            place.from = row;
            place.next = self.mem.after(node).map_or(std::ptr::null(), |next| {
                next.prefetch_behind();
                std::ptr::from_ref(next)
            });
        }
        false
    }
}

impl InBlock {
    /// The first version of a row or a greater one: `told_at`, if that is told.
    fn go_to(&mut self, row: RowId, told_at: u32) -> u32 {
        if row < self.from || row > self.next {
            self.at = match row < self.from {
                _ if told_at != NOT_TOLD => told_at,
                true => self.block.lower_bound(row),
                false => self.block.lower_bound_from(self.at, row),
            };
            self.next = if self.at < self.block.rows() { self.block.row_id(self.at) } else { RowId::MAX };
        }
        self.from = row;
        self.at
    }
}

tally! {
    /// Counts the places that this thread searched.
    searched
}

tally! {
    /// Counts the places in memtables that were searched before they were asked for.
    told
}

tally! {
    /// Counts the rows that this thread found without a place.
    edges
}

tally! {
    /// Counts the rows that this thread looked for in one block alone.
    alone
}

tally! {
    /// Counts the stretches of rows that this thread found beside one.
    stretches
}
