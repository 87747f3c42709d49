//! Reads a tree in the order of its keys: memtables and runs merged, each key once, in the version that the view sees.
//!
//! The unit is a span: as many consecutive versions of one block as no other source touches and the view sees entirely.
//! So a table that was loaded in bulk is read a block at a time, whatever lies beside it. Invariant: a source stands
//! on its least key that was not yet given out, or before it where an index says only what that begins with; sources that
//! begin later wait unopened.
//!
//! A watching reader also learns of live versions that its view does not see: those of transactions that have not ended, and
//! those that were committed after the view was opened. Each key that has one is given by itself.

pub(crate) mod in_turn;
pub(crate) mod run_source;

use self::run_source::{Examined, RunSource};
use crate::lock::Parker;
use crate::tree::dead::Passed;
use crate::tree::key::{ByRow, Key};
use crate::tree::looks::OwnLooks;
use crate::tree::memtable::{Memtable, Node};
use crate::tree::run::{Ahead, Run};
use crate::tree::stored::Stored;
use crate::tree::{Found, RunHandle, RunSeen, Seen, SeenMark, TreeState};
use crate::version::{order_if_visible, VersionOrder, View, ABORTED, ACTIVE};
use crate::{Error, Result};
use esker_base::counters::{count, Counter};
use esker_format::{FileId, RowId, TxnId};
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

impl<K: Stored> BlockSpan<K> {
    /// The block again, with none of its versions.
    fn same(&self) -> Self {
        BlockSpan { run: self.run.clone(), offset: self.offset, block: self.block.clone(), rows: 0..0 }
    }
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
    pub(super) passed: Passed<K>,
    looks: OwnLooks<K>,
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

/// The newest version so far of a key that several sources stand on.
enum Best<K: Stored> {
    /// Pinned, if it is in a run then with that's file.
    Made(Seen<K>, Option<FileId>),
    /// In the block that a source of a run stands in, there.
    At(usize, u32, VersionOrder),
}

impl<K: Stored> Best<K> {
    fn order(&self) -> VersionOrder {
        match self {
            Best::Made(seen, _) => seen.order,
            Best::At(_, _, order) => *order,
        }
    }
}

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
        let (mut open, mut runs, mut memtables) = (Vec::new(), 0, 0);
        let others = if watches { state.privates_of_others(view.me)? } else { Vec::new() };
        for mem in private.into_iter().chain(state.memtables()).chain(others) {
            if let Some(node) = mem.seek(from) {
                memtables += u64::from(!mem.is_private());
                open.push(Source::Mem(MemSource { mem: mem.clone(), at: node }));
            }
        }
        let marks = state.seen_marks(view);
        let begins_before = |h: &RunHandle<K>| K::cmp(K::lend(&h.first), from).is_lt();
        for handle in state.runs_at(from).filter(|h| begins_before(h) && may_show(h, view, &marks, watches)) {
            let source = RunSource::new(handle, view, &marks, from, Ahead::new(parker.read_blocks()))?;
            runs += u64::from(handle.owner.is_none());
            if source.index < source.end {
                open.push(Source::Run(Box::new(source)));
            }
        }
        let next_run = state.runs.partition_point(begins_before);
        let begins_within = |h: &RunHandle<K>| to.as_ref().is_none_or(|to| h.first < *to);
        let end_run = state.runs.partition_point(begins_within);
        let mut looks = OwnLooks::default();
        looks.add(runs, memtables, from);
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
            looks,
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
            let Some(found) = led else { return Ok(Span::End) };
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
            let span = found.map(|found| match found {
                // Who watches learns of each key alone; who does not needs no copy of it.
                Found::Block(run, offset, block, at) if !self.watches => {
                    Span::Rows(BlockSpan { run, offset, block, rows: at..at + 1 })
                }
                found => Span::One(K::own(K::in_room(&key)), found),
            });
            self.key = key;
            if let Some(span) = span {
                self.passed.end(&self.state, self.view.seq);
                return Ok(span);
            }
        }
    }

    /// What it reads.
    pub(crate) fn state(&self) -> &Arc<TreeState<K>> {
        &self.state
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
        let block = source.block.as_ref()?;
        let mut end = source.plain_end();
        if end <= source.at {
            return None;
        }
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
                    let ahead = Ahead::new(self.parker.read_blocks());
                    let source = RunSource::new(run, self.view, &self.marks, K::lend(&run.first), ahead)?;
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
        let mut best: Option<Best<K>> = None;
        (self.own, self.unseen) = (false, None);
        // Is it in memory, and has somebody there what the view does not see?
        let (mut in_memory, mut unseen, mut runs, mut memtables) = (false, false, 0, 0);
        for i in 0..self.open.len() {
            if K::cmp(self.open[i].key(), key).is_ne() {
                continue;
            }
            match &mut self.open[i] {
                Source::Mem(s) => {
                    in_memory = true;
                    memtables += u64::from(!s.mem.is_private());
                    if self.watches {
                        self.unseen = self.unseen.or(s.unseen(self.view));
                    }
                    unseen |= s.take(self.view, &mut best);
                }
                Source::Run(s) => {
                    runs += u64::from(s.handle.owner.is_none());
                    let newest = best.as_ref().map(Best::order);
                    let examined = s.examine(key, self.view, &self.marks, newest, self.watches)?;
                    self.unseen = self.unseen.or(examined.unseen);
                    best = match examined {
                        Examined { kept: Some(seen), .. } => Some(Best::Made(seen, Some(s.handle.run.file_id))),
                        Examined { found: Some((order, at)), .. } => Some(Best::At(i, at, order)),
                        _ => best,
                    };
                }
            }
        }
        self.looks.add(runs, memtables, key);
        // Only now that nobody's block has gone.
        let best = best.and_then(|best| match best {
            Best::Made(seen, file) => Some((seen, file)),
            Best::At(i, at, order) => match &self.open[i] {
                Source::Run(s) => s.seen_at(at, order).map(|seen| (seen, Some(s.handle.run.file_id))),
                Source::Mem(_) => None,
            },
        });
        for i in (0..self.open.len()).rev() {
            if let Source::Run(s) = &mut self.open[i] {
                s.go_past();
            }
            self.drop_if_done(i);
        }
        let Some((best, file)) = best else {
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

impl<K: Stored> Drop for MergeRead<K> {
    fn drop(&mut self) {
        self.passed.end(&self.state, self.view.seq);
        self.looks.tell(&self.state);
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
    fn take(&mut self, view: View, best: &mut Option<Best<K>>) -> bool {
        // SAFETY: nodes live as long as `mem`.
        let node = unsafe { &*self.at };
        node.prefetch_behind();
        let seen = self.mem.visible(node, view);
        if let Some((order, version)) = seen {
            if best.as_ref().is_none_or(|b| order > b.order()) {
                *best = Some(Best::Made(Seen::in_mem(&self.mem, node.key(), order, version), None));
            }
        }
        self.at = self.mem.after(node).map_or(std::ptr::null(), std::ptr::from_ref);
        seen.is_none() && node.versions().any(|v| self.mem.is_live(v))
    }
}

#[cfg(test)]
mod tests;
