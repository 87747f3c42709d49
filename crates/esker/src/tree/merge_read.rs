//! Reads a tree in the order of its keys: memtables and runs merged, each key once, in the version that the view sees.
//!
//! The unit is a span: as many consecutive versions of one block as no other source touches and the view sees entirely.
//! So a table that was loaded in bulk is read a block at a time, whatever lies beside it. Invariant: a source stands
//! on its least key that was not yet given out, or before it where an index says only what that begins with; sources that
//! begin later wait unopened.
//!
//! A watching reader also learns of live versions that its view does not see: those of transactions that have not ended, and
//! those that were committed after the view was opened. Each key that has one is given by itself.

pub(crate) mod in_memory;

use crate::lock::Parker;
use crate::tree::dead::Passed;
use crate::tree::key::{ByRow, Key};
use crate::tree::memtable::{Memtable, Node};
use crate::tree::run::index::Index;
use crate::tree::run::Run;
use crate::tree::stored::{may_meet, Stored};
use crate::tree::{order_in_block, Found, RunHandle, RunSeen, Seen, SeenMark, TreeState};
use crate::version::{order_if_visible, OrdinalRanges, View, ABORTED, ACTIVE};
use crate::{Error, Result};
use esker_base::counters::{count, Counter};
use esker_format::{BlockEntry, CommitSeq, LeafEntry, RowId, TxnId};
use std::ops::Range;
use std::sync::Arc;

/// Who reads much at once is asked whether to go on once in so many keys.
pub(crate) const ASK_EVERY: u64 = 4096;

/// Consecutive versions of a block, all seen.
pub(crate) struct BlockSpan<K: Stored = ByRow> {
    pub(crate) run: Arc<Run<K>>,
    /// Where the block begins in the file.
    pub(crate) offset: u64,
    pub(crate) block: Arc<K::Block>,
    pub(crate) rows: Range<u32>,
}

/// What comes next.
pub(crate) enum Span<K: Stored = ByRow> {
    /// Versions to be given out as they stand.
    Rows(BlockSpan<K>),
    /// One of this key. To a watching reader it may be a tombstone: the view sees nothing there.
    One(K::Own, Found<K>),
    /// Nothing more.
    End,
}

/// Which keys are read, and how.
pub(crate) struct Extent<'a, K: Key> {
    /// The first.
    pub(crate) from: K::Ref<'a>,
    /// Behind the last.
    pub(crate) to: Option<K::Own>,
    /// See the module.
    pub(crate) watches: bool,
}

/// A live version that the view does not see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unseen {
    /// Whose it is; `None`: it was committed after the view was opened.
    pub(crate) owner: Option<TxnId>,
    pub(crate) ordinal: u64,
    pub(crate) tombstone: bool,
    /// The row that it is of.
    pub(crate) row: RowId,
}

struct MemSource<K: Stored> {
    mem: Arc<Memtable<K>>,
    at: *const Node<K>,
}

struct RunSource<K: Stored> {
    handle: RunHandle<K>,
    /// Where its blocks lie.
    blocks: Arc<Index<K>>,
    seen: RunSeen,
    aborted: Arc<OrdinalRanges>,
    index: usize,
    /// Beyond its last block, or more while it stands before that.
    end: usize,
    block: Option<Arc<K::Block>>,
    at: u32,
    /// Versions of the block that count: the handle may end before it.
    rows: u32,
    /// Every version of the block is seen, none is a tombstone, no key has two.
    clean: bool,
}

enum Source<K: Stored> {
    Mem(MemSource<K>),
    Run(Box<RunSource<K>>),
}

/// The merged reading of one tree state under one view.
pub(crate) struct MergeRead<K: Stored = ByRow> {
    view: View,
    marks: Vec<SeenMark>,
    open: Vec<Source<K>>,
    /// The place of the next run among the state's, which are in the order of their first keys.
    next_run: usize,
    /// That of the first that begins behind what is read.
    end_run: usize,
    /// Behind the last key that is read.
    to: Option<K::Own>,
    watches: bool,
    /// Has the reader's own transaction written what was given last?
    own: bool,
    /// What the view does not see of the key that was given last.
    unseen: Option<Unseen>,
    passed: Passed<K>,
    /// The key that all who stand on it are asked for.
    key: K::Room,
    /// Who comes next, if that is known already.
    led: Option<Option<Lead>>,
    /// The reader's: where it is killed.
    parker: Arc<Parker>,
    /// Keeps the memtables' nodes alive.
    state: Arc<TreeState<K>>,
}

// SAFETY: the node pointers are into memtables that are held by `MemSource::mem` and only read.
unsafe impl<K: Stored> Send for MergeRead<K> {}

/// A source by its place, and the key that it stands on.
type Place<'a, K> = (usize, <K as Key>::Ref<'a>);

/// Who comes next.
enum Lead {
    /// A source on whose key no other stands; then the one with the least key among the others.
    Alone(usize, Option<usize>),
    /// A source on whose key others may stand too.
    Contested(usize),
}

impl<K: Stored> MergeRead<K> {
    /// Reads `state` from `from` on; `private` is the reader's own memtable.
    pub(crate) fn new(
        state: Arc<TreeState<K>>,
        private: Option<Arc<Memtable<K>>>,
        view: View,
        from: K::Ref<'_>,
        parker: &Arc<Parker>,
    ) -> Result<Self> {
        Self::within(state, private.as_ref(), view, Extent { from, to: None, watches: false }, parker)
    }

    /// Keys that are left, counted without decoding anything, as long as `go_on`, which is asked now and then, says so.
    pub(crate) fn count_rest(&mut self, go_on: &mut dyn FnMut() -> bool) -> Result<u64> {
        let (mut keys, mut ask_at) = (0, ASK_EVERY);
        loop {
            match self.next()? {
                Span::End => return Ok(keys),
                Span::Rows(span) => keys += span.rows.len() as u64,
                Span::One(..) => keys += 1,
            }
            if keys >= ask_at {
                ask_at = keys + ASK_EVERY;
                if !go_on() {
                    return Err(Error::Interrupted);
                }
            }
        }
    }

    /// Reads these keys of `state`; `private` is the reader's own memtable.
    pub(crate) fn within(
        state: Arc<TreeState<K>>,
        private: Option<&Arc<Memtable<K>>>,
        view: View,
        extent: Extent<'_, K>,
        parker: &Arc<Parker>,
    ) -> Result<Self> {
        let Extent { from, to, watches } = extent;
        let mut open = Vec::new();
        let others = if watches { state.privates_of_others(view.me)? } else { Vec::new() };
        for mem in private.into_iter().chain(state.memtables()).chain(others) {
            if let Some(node) = mem.seek(from) {
                open.push(Source::Mem(MemSource { mem: mem.clone(), at: node }));
            }
        }
        let marks = state.seen_marks(view);
        let begins_before = |h: &RunHandle<K>| K::cmp(K::lend(&h.first), from).is_lt();
        for handle in state.runs_at(from).filter(|h| begins_before(h) && may_show(h, view, &marks, watches)) {
            let source = RunSource::new(handle, view, &marks, from)?;
            if source.index < source.end {
                open.push(Source::Run(Box::new(source)));
            }
        }
        let next_run = state.runs.partition_point(begins_before);
        let begins_within = |h: &RunHandle<K>| to.as_ref().is_none_or(|to| h.first < *to);
        let end_run = state.runs.partition_point(begins_within);
        Ok(MergeRead {
            view,
            marks,
            open,
            next_run,
            end_run,
            to,
            watches,
            own: false,
            unseen: None,
            passed: Passed::new(),
            key: K::Room::default(),
            led: None,
            parker: parker.clone(),
            state,
        })
    }

    /// The next versions, unless the reader is killed: looked at for every key and block, since millions may be passed over.
    pub(crate) fn next(&mut self) -> Result<Span<K>> {
        loop {
            if self.parker.is_killed() {
                self.passed.end(&self.state, self.view.seq);
                return Err(Error::Interrupted);
            }
            let led = self.led.take().map_or_else(|| self.lead(), Ok)?;
            let Some(found) = led else {
                self.passed.end(&self.state, self.view.seq);
                return Ok(Span::End);
            };
            let (Lead::Alone(lead, _) | Lead::Contested(lead)) = found;
            if let Source::Run(source) = &mut self.open[lead] {
                source.load(self.view, &self.marks)?;
                if source.block.is_none() {
                    // The whole block is deleted.
                    self.drop_if_done(lead);
                    continue;
                }
            }
            if let Lead::Alone(_, next) = found {
                if let Some(span) = self.span(lead, next) {
                    self.drop_if_done(lead);
                    self.passed.end(&self.state, self.view.seq);
                    return Ok(Span::Rows(span));
                }
            }
            count(Counter::RowsExamined, 1);
            let mut key = std::mem::take(&mut self.key);
            K::put(&mut key, self.open[lead].key());
            let mut found = self.contested(K::in_room(&key))?;
            if self.unseen.is_some() {
                found = found.or(Some(Found::Tombstone));
            }
            let found = found.map(|found| Span::One(K::own(K::in_room(&key)), found));
            self.key = key;
            if let Some(one) = found {
                self.passed.end(&self.state, self.view.seq);
                return Ok(one);
            }
        }
    }

    /// Has the reader's own transaction, which has not ended, written what was given last?
    pub(crate) fn is_own(&self) -> bool {
        self.own
    }

    /// What a watching reader's view does not see of the key that was given last.
    pub(crate) fn unseen(&self) -> Option<Unseen> {
        self.unseen
    }

    /// The next run that is read.
    fn next_run(&self) -> Option<&RunHandle<K>> {
        self.state.runs[..self.end_run].get(self.next_run)
    }

    /// The versions of the lead's block that lie before all other sources, if they are given out as they stand.
    fn span(&mut self, lead: usize, next: Option<usize>) -> Option<BlockSpan<K>> {
        let next_run = self.next_run().map(|next| K::lend(&next.first));
        let to = self.to.as_ref().map(K::lend);
        let next = next.map(|i| self.open[i].key());
        let Source::Run(source) = &self.open[lead] else { return None };
        let block = source.block.as_ref().filter(|_| source.clean)?;
        let mut end = source.rows;
        for bound in [next, next_run, to].into_iter().flatten() {
            if K::cmp(bound, K::last_key(block)).is_le() {
                end = end.min(K::lower_bound(block, bound));
            }
        }
        let (run, offset, block) = (source.handle.run.clone(), source.offset(), block.clone());
        let span = BlockSpan { run, offset, block, rows: source.at..end };
        count(Counter::RowsExamined, span.rows.len() as u64);
        let Source::Run(source) = &mut self.open[lead] else { return None };
        (self.own, self.unseen) = (source.seen == RunSeen::Own, None);
        source.advance_to(end);
        Some(span)
    }

    /// The source with the least key, and who comes after it.
    fn lead(&mut self) -> Result<Option<Lead>> {
        loop {
            self.pass_unseen();
            let (mut lead, mut next): (Option<Place<'_, K>>, Option<Place<'_, K>>) = (None, None);
            for (i, source) in self.open.iter().enumerate() {
                let key = source.key();
                let is_less = |than: &Option<Place<'_, K>>| than.is_none_or(|(_, k)| K::cmp(key, k).is_lt());
                if is_less(&lead) {
                    (lead, next) = (Some((i, key)), lead);
                } else if is_less(&next) {
                    next = Some((i, key));
                }
            }
            if let Some(run) = self.next_run() {
                if lead.is_none_or(|(_, key)| K::cmp(K::lend(&run.first), key).is_le()) {
                    let source = RunSource::new(run, self.view, &self.marks, K::lend(&run.first))?;
                    self.open.push(Source::Run(Box::new(source)));
                    self.next_run += 1;
                    let last = self.open.len() - 1;
                    self.drop_if_done(last);
                    continue;
                }
            }
            let Some((lead, key)) = lead else { return Ok(None) };
            if self.to.as_ref().is_some_and(|to| K::cmp(key, K::lend(to)).is_ge()) {
                return Ok(None);
            }
            // Where the index does not tell, the block does.
            let is_told = match &self.open[lead] {
                Source::Mem(_) => true,
                Source::Run(source) => {
                    source.block.is_some() || K::is_first_known(&source.blocks.entries()[source.index])
                }
            };
            if is_told {
                return Ok(Some(match next {
                    Some((_, other)) if K::cmp(key, other).is_ge() => Lead::Contested(lead),
                    next => Lead::Alone(lead, next.map(|n| n.0)),
                }));
            }
            if let Source::Run(source) = &mut self.open[lead] {
                source.load(self.view, &self.marks)?;
            }
            self.drop_if_done(lead);
        }
    }

    /// Passes runs of which nothing is seen.
    fn pass_unseen(&mut self) {
        while let Some(next) = self.next_run() {
            if may_show(next, self.view, &self.marks, self.watches) {
                return;
            }
            self.next_run += 1;
        }
    }

    /// The visible version of a key among all sources that stand on it; moves them past it.
    fn contested(&mut self, key: K::Ref<'_>) -> Result<Option<Found<K>>> {
        let mut best: Option<Seen<K>> = None;
        (self.own, self.unseen) = (false, None);
        // Is it in memory, has somebody there what the view does not see, and which run has the best version?
        let (mut in_memory, mut unseen, mut file) = (false, false, None);
        let mut i = 0;
        while i < self.open.len() {
            if K::cmp(self.open[i].key(), key).is_eq() {
                match &mut self.open[i] {
                    Source::Mem(s) => {
                        in_memory = true;
                        if self.watches {
                            self.unseen = self.unseen.or(s.unseen(self.view));
                        }
                        unseen |= s.take(self.view, &mut best);
                    }
                    Source::Run(s) => {
                        let before = best.as_ref().map(|b| b.order);
                        let unseen = s.take(key, self.view, &self.marks, &mut best, self.watches)?;
                        self.unseen = self.unseen.or(unseen);
                        if best.as_ref().map(|b| b.order) != before {
                            file = Some(s.handle.run.file_id);
                        }
                    }
                }
                if self.drop_if_done(i) {
                    continue;
                }
            }
            i += 1;
        }
        let Some(best) = best else {
            // Rolled back, or newer than the view.
            if in_memory && !unseen {
                self.passed.in_memory(&self.state, self.view.seq);
            }
            return Ok(None);
        };
        self.own = best.order.is_own();
        if self.own {
            // Whoever has written it has its row's lock, or the key.
            self.unseen = None;
        }
        let deleted = matches!(best.found, Found::Tombstone);
        if !deleted && !self.marks.iter().any(|m| m.hides(best.row, best.order)) {
            return Ok(Some(best.found));
        }
        // What the reader's own transaction deletes is not dead yet; of what marks hide in runs merges know.
        match file.filter(|_| deleted) {
            _ if best.order.is_own() => {}
            _ if in_memory => self.passed.in_memory(&self.state, self.view.seq),
            Some(file) => self.passed.in_runs(key, file),
            None => {}
        }
        Ok(None)
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

/// Is any of a run for this reader? Not of those of others, unless it watches, and of those that a mark deletes as a whole. A
/// run that is not seen never will be: only what was committed before the view is.
pub(crate) fn may_show<K: Stored>(handle: &RunHandle<K>, view: View, marks: &[SeenMark], watches: bool) -> bool {
    let last = K::row_span(handle).1;
    let newest = handle.seq_bounds().map(|bounds| bounds.1);
    if newest.is_some_and(|newest| marks.iter().any(|m| last < m.up_to && newest <= m.as_of)) {
        return false;
    }
    handle.seen(view) != RunSeen::Hidden || (watches && handle.owner.as_ref().is_none_or(|o| o.status() != ABORTED))
}

/// The least and the greatest commit sequence of a block's versions.
fn sequences(entry: &BlockEntry, seen: RunSeen) -> (CommitSeq, CommitSeq) {
    match seen {
        RunSeen::At(seq) => (seq, seq),
        _ => (entry.min_seq, entry.max_seq),
    }
}

/// Is every version of a block seen, none of them a tombstone, and each the only one of its key in its run?
pub(crate) fn is_clean<K: Stored>(
    blocks: &Index<K>,
    index: usize,
    block: &K::Block,
    (seen, aborted): (RunSeen, &OrdinalRanges),
    view: View,
    marks: &[SeenMark],
) -> bool {
    let (entries, entry) = (blocks.entries(), blocks.entry(index));
    let (least, greatest) = sequences(entry, seen);
    let own = matches!(seen, RunSeen::Own | RunSeen::Hidden);
    let before = index.checked_sub(1).is_some_and(|i| may_meet::<K>(&entries[i], &entries[index]));
    let after = entries.get(index + 1).is_some_and(|e| may_meet::<K>(&entries[index], e));
    K::is_unique(block)
        && seen != RunSeen::Hidden
        && !before
        && !after
        && !K::has_tombstones(block)
        && !aborted.meets(entry.min_ordinal, entry.max_ordinal)
        && (seen != RunSeen::PerRow || greatest <= view.seq)
        && !marks.iter().any(|m| entry.first_id < m.up_to && (own || least <= m.as_of || m.same_seq(least, greatest)))
}

impl<K: Stored> Source<K> {
    /// Where it stands.
    #[inline]
    fn key(&self) -> K::Ref<'_> {
        match self {
            // SAFETY: a source with a null node is dropped at once.
            Source::Mem(s) => unsafe { (*s.at).key() },
            Source::Run(s) => match &s.block {
                Some(block) => K::key(block, s.at),
                None => s.first_of_block(),
            },
        }
    }
}

impl<K: Stored> MemSource<K> {
    /// The newest live version there, if the view does not see it.
    fn unseen(&self, view: View) -> Option<Unseen> {
        // SAFETY: nodes live as long as `mem`.
        let node = unsafe { &*self.at };
        let v = node.versions().find(|v| self.mem.is_live(v))?;
        let (txn, status) = (v.slot().txn, v.slot().status());
        if status == ABORTED || order_if_visible(view, txn, status, v.ordinal).is_some() {
            return None;
        }
        let (owner, row) = ((status == ACTIVE).then_some(txn), K::row_of(node.key(), v.value()));
        Some(Unseen { owner, ordinal: v.ordinal, tombstone: v.tombstone, row })
    }

    /// True if it has only versions there that the view does not see, and that were not rolled back.
    fn take(&mut self, view: View, best: &mut Option<Seen<K>>) -> bool {
        // SAFETY: nodes live as long as `mem`.
        let node = unsafe { &*self.at };
        let seen = self.mem.visible(node, view);
        if let Some((order, version)) = seen {
            if best.as_ref().is_none_or(|b| order > b.order) {
                *best = Some(Seen::in_mem(&self.mem, node.key(), order, version));
            }
        }
        self.at = self.mem.after(node).map_or(std::ptr::null(), std::ptr::from_ref);
        seen.is_none() && node.versions().any(|v| self.mem.is_live(v))
    }
}

impl<K: Stored> RunSource<K> {
    /// Stands on the first key at or after `from`, which is in the handle's bounds.
    fn new(handle: &RunHandle<K>, view: View, marks: &[SeenMark], from: K::Ref<'_>) -> Result<Self> {
        let blocks = handle.run.index()?.keep();
        #[cfg(test)]
        crate::tree::levels::looked::count();
        let (seen, aborted) = (handle.seen(view), handle.aborted());
        let index = handle.run.seek(&blocks, from)?;
        let (handle, end) = (handle.clone(), blocks.entries().len());
        let mut source =
            RunSource { handle, blocks, seen, aborted, index, end, block: None, at: 0, rows: 0, clean: false };
        source.find_end();
        // More than one where the index does not tell.
        while source.block.is_none() && source.index < source.end {
            let entry = &source.blocks.entries()[source.index];
            if K::is_first_known(entry) && K::cmp(K::first(entry), from).is_ge() {
                break;
            }
            let block = source.handle.run.block(&source.blocks, source.index)?;
            source.at = K::lower_bound(&block, from);
            source.stand_in(block, view, marks);
            if source.at >= source.rows {
                source.advance_block();
            }
        }
        Ok(source)
    }

    /// What its next block begins with, as far as the index tells, or what the handle does.
    fn first_of_block(&self) -> K::Ref<'_> {
        K::first(&self.blocks.entries()[self.index])
    }

    /// Where the block that it stands in begins in the file.
    fn offset(&self) -> u64 {
        self.blocks.entry(self.index).offset
    }

    /// How many versions of a block count.
    fn rows_of(&self, block: &K::Block) -> u32 {
        let last = K::lend(&self.handle.last);
        if K::cmp(K::last_key(block), last).is_le() {
            return K::rows(block);
        }
        // Behind the versions of the last key.
        let mut at = K::lower_bound(block, last);
        while K::cmp(K::key(block, at), last).is_eq() {
            at += 1;
        }
        at
    }

    /// Brings the block in and judges it; a block that is deleted as a whole is skipped without being read.
    fn load(&mut self, view: View, marks: &[SeenMark]) -> Result<()> {
        if self.block.is_some() {
            return Ok(());
        }
        let entries = self.blocks.entries();
        let entry = entries[self.index].block();
        let (_, greatest) = sequences(entry, self.seen);
        // No mark that is seen deletes what is not committed.
        let own = matches!(self.seen, RunSeen::Own | RunSeen::Hidden);
        if !own && marks.iter().any(|m| entry.last_id < m.up_to && greatest <= m.as_of) {
            count(Counter::BlocksSkipped, 1);
            self.advance_block();
            return Ok(());
        }
        let block = self.handle.run.block(&self.blocks, self.index)?;
        self.stand_in(block, view, marks);
        if self.rows == 0 {
            // Only where the index did not tell that the handle ends before it.
            self.advance_block();
        }
        Ok(())
    }

    /// Judges a block that was got.
    fn stand_in(&mut self, block: Arc<K::Block>, view: View, marks: &[SeenMark]) {
        self.clean = is_clean(&self.blocks, self.index, &block, (self.seen, &*self.aborted), view, marks);
        self.rows = self.rows_of(&block);
        self.block = Some(block);
    }

    /// Goes past the key; for who `watches`, one of its live versions that the view does not see.
    fn take(
        &mut self,
        key: K::Ref<'_>,
        view: View,
        marks: &[SeenMark],
        best: &mut Option<Seen<K>>,
        watches: bool,
    ) -> Result<Option<Unseen>> {
        let mut unseen = None;
        while self.index < self.end {
            self.load(view, marks)?;
            let Some(block) = self.block.clone() else {
                if self.index >= self.end || K::cmp(self.first_of_block(), key).is_gt() {
                    break;
                }
                continue;
            };
            if K::cmp(K::key(&block, self.at), key).is_ne() {
                break;
            }
            if let Some(order) = order_in_block::<K>(&block, self.at, self.seen, view, &self.aborted) {
                if best.as_ref().is_none_or(|b| order > b.order) {
                    *best = Some(Seen::in_block(&self.handle.run, self.offset(), &block, self.at, order));
                }
            } else if watches {
                unseen = unseen.or_else(|| self.unseen(&block, self.at));
            }
            self.advance_to(self.at + 1);
        }
        Ok(unseen)
    }

    /// A version that the view does not see, if it is live.
    fn unseen(&self, block: &K::Block, at: u32) -> Option<Unseen> {
        let tag = K::tag(block, at);
        let status = self.handle.owner.as_ref().map(|o| (o.id, o.status()));
        if self.aborted.contains(tag.ordinal) || status.is_some_and(|(_, status)| status == ABORTED) {
            return None;
        }
        let owner = status.filter(|(_, status)| *status == ACTIVE).map(|(id, _)| id);
        Some(Unseen { owner, ordinal: tag.ordinal, tombstone: tag.tombstone, row: K::row(block, at) })
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
        self.find_end();
    }

    /// Of a block that begins behind the handle's last key nothing counts, nor of those behind it.
    fn find_end(&mut self) {
        let is_behind = |e: &K::Entry| K::cmp(K::first(e), K::lend(&self.handle.last)).is_gt();
        if self.blocks.entries().get(self.index).is_some_and(is_behind) {
            self.end = self.index;
        }
    }
}

#[cfg(test)]
mod tests;
