//! Reads a tree backward, in pieces: each is read forward, by the one merge that there is, and given out from its end.
//!
//! A piece ends where the one before it began. Where it begins is a key of one of the sources, so that it holds about as many
//! entries as are wanted, few at first, of the source that has most there, and never more than a block of a run. Invariant:
//! every piece begins before it ends, at a key of the tree or where the reading ends, so that no key is in two of them, none
//! is in none, and there are no more of them than keys.

use crate::lock::Parker;
use crate::tally::tally;
use crate::tree::dead::Passed;
use crate::tree::key::Key;
use crate::tree::memtable::Memtable;
use crate::tree::merge_read::in_turn::InTurn;
use crate::tree::merge_read::{may_show, Extent, MergeRead, Span, Unseen};
use crate::tree::stored::Stored;
use crate::tree::{RunHandle, SeenMark, TreeState};
use crate::version::View;
use crate::Result;
use std::sync::Arc;

/// Entries of the first piece: who reads a row or two should not pay for more.
const FIRST_ENTRIES: u32 = 4;
/// Entries of a piece of one source at most: about a block's.
const MOST_ENTRIES: u32 = 512;

/// What a reading gives, with what it tells of it.
enum Given<K: Stored> {
    Span { span: Span<K>, own: bool, unseen: Option<Unseen> },
    InTurn(InTurn<K>),
}

/// The backward reading of one tree state under one view.
pub(crate) struct BackwardRead<K: Stored> {
    state: Arc<TreeState<K>>,
    private: Option<Arc<Memtable<K>>>,
    view: View,
    marks: Vec<SeenMark>,
    from: K::Own,
    /// What lies from here on was read.
    to: Option<K::Own>,
    watches: bool,
    /// The first piece was read.
    is_done: bool,
    /// Entries of the next piece, about.
    entries: u32,
    most_entries: u32,
    /// What is left of the piece that was read last.
    piece: Vec<Given<K>>,
    own: bool,
    unseen: Option<Unseen>,
    /// From piece to piece.
    passed: Passed<K>,
    parker: Arc<Parker>,
}

impl<K: Stored> Drop for BackwardRead<K> {
    fn drop(&mut self) {
        self.passed.end(&self.state, self.view.seq);
    }
}

impl<K: Stored> BackwardRead<K> {
    /// Reads these keys of `state` from their end; `private` is the reader's own memtable.
    pub(crate) fn new(
        state: Arc<TreeState<K>>,
        private: Option<&Arc<Memtable<K>>>,
        view: View,
        extent: Extent<'_, K>,
        parker: &Arc<Parker>,
    ) -> Self {
        let Extent { from, to, watches } = extent;
        BackwardRead {
            marks: state.seen_marks(view),
            state,
            private: private.cloned(),
            view,
            from: K::own(from),
            to,
            watches,
            is_done: false,
            entries: FIRST_ENTRIES,
            // What is read ahead of locks is soon stale.
            most_entries: if watches { FIRST_ENTRIES * 8 } else { MOST_ENTRIES },
            piece: Vec::new(),
            own: false,
            unseen: None,
            passed: Passed::new(),
            parker: parker.clone(),
        }
    }

    /// What comes before what was given last; versions of a block are to be taken from their end.
    pub(crate) fn next(&mut self) -> Result<Span<K>> {
        loop {
            match self.piece.pop() {
                Some(Given::Span { span, own, unseen }) => {
                    (self.own, self.unseen) = (own, unseen);
                    return Ok(span);
                }
                Some(Given::InTurn(mut rest)) => {
                    let last = rest.take_last(1);
                    self.keep(rest);
                    let one = last.iter().next().map(|(key, place, own)| (K::own(key), place.pinned(), own));
                    if let Some((key, found, own)) = one {
                        (self.own, self.unseen) = (own, None);
                        return Ok(Span::One(key, found));
                    }
                }
                None if self.is_done => return Ok(Span::End),
                None => self.read_piece()?,
            }
        }
    }

    /// As [`MergeRead::next_in_turn`].
    pub(crate) fn next_in_turn(&mut self, most: usize) -> Result<Option<InTurn<K>>> {
        loop {
            match self.piece.pop() {
                Some(Given::InTurn(mut rest)) => {
                    let last = rest.take_last(most);
                    self.keep(rest);
                    return Ok(Some(last));
                }
                Some(given) => {
                    self.piece.push(given);
                    return Ok(None);
                }
                None if self.is_done => return Ok(None),
                None => self.read_piece()?,
            }
        }
    }

    /// What is left comes next.
    fn keep(&mut self, rest: InTurn<K>) {
        if rest.len() > 0 {
            self.piece.push(Given::InTurn(rest));
        }
    }

    /// As [`MergeRead::state`].
    pub(crate) fn state(&self) -> &Arc<TreeState<K>> {
        &self.state
    }

    /// As [`MergeRead::is_own`].
    pub(crate) fn is_own(&self) -> bool {
        self.own
    }

    /// As [`MergeRead::unseen`].
    pub(crate) fn unseen(&self) -> Option<Unseen> {
        self.unseen
    }

    fn read_piece(&mut self) -> Result<()> {
        #[cfg(test)]
        pieces::count();
        let (begin, is_last) = match self.begin()? {
            Some(begin) => (begin, false),
            None => (self.from.clone(), true),
        };
        let extent = Extent { from: K::lend(&begin), to: self.to.clone(), watches: self.watches };
        let mut read = MergeRead::within(self.state.clone(), self.private.as_ref(), self.view, extent, &self.parker)?;
        std::mem::swap(&mut read.passed, &mut self.passed);
        let mut piece = Vec::new();
        loop {
            if !self.watches {
                if let Some(found) = read.next_in_turn(usize::MAX)? {
                    piece.push(Given::InTurn(found));
                    continue;
                }
            }
            match read.next()? {
                Span::End => break,
                span => piece.push(Given::Span { span, own: read.is_own(), unseen: read.unseen() }),
            }
        }
        std::mem::swap(&mut read.passed, &mut self.passed);
        // Only now that all of it was read: what failed is read again.
        (self.piece, self.to, self.is_done) = (piece, Some(begin), is_last);
        self.entries = (self.entries * 4).min(self.most_entries);
        Ok(())
    }

    /// Where the next piece begins; `None`: what is left is one.
    fn begin(&self) -> Result<Option<K::Own>> {
        let to = self.to.as_ref().map(K::lend);
        let mut begin: Option<K::Own> = None;
        let others = if self.watches { self.state.privates_of_others(self.view.me)? } else { Vec::new() };
        let memtables = self.private.iter().chain(self.state.memtables()).chain(others);
        for key in memtables.filter_map(|mem| mem.step_back(to, self.entries.ilog2().div_ceil(2) as usize)) {
            raise::<K>(&mut begin, key.key());
        }
        // From the end on: of those that lie before what is found already none is looked into, however many there are.
        for handle in self.state.runs.iter().rev().filter(|h| self.is_within(h)) {
            if begin.as_ref().is_none_or(|begin| *begin < handle.last) {
                begin_in_run(handle, to, self.entries, |key| raise::<K>(&mut begin, key))?;
            }
        }
        Ok(begin.filter(|begin| *begin > self.from))
    }

    /// Has the run anything to show of what is left?
    fn is_within(&self, handle: &RunHandle<K>) -> bool {
        self.to.as_ref().is_none_or(|to| handle.first < *to)
            && self.from <= handle.last
            && may_show(handle, self.view, &self.marks, self.watches)
    }
}

/// The greatest of the keys so far.
fn raise<K: Key>(greatest: &mut Option<K::Own>, key: K::Ref<'_>) {
    if greatest.as_ref().is_none_or(|g| K::cmp(K::lend(g), key).is_lt()) {
        *greatest = Some(K::own(key));
    }
}

/// Calls `with` with the key that lies so many versions before `to`, or the first of its block. Not where what the run has
/// before `to` begins there anyway.
fn begin_in_run<K: Stored>(
    handle: &RunHandle<K>,
    to: Option<K::Ref<'_>>,
    entries: u32,
    with: impl FnOnce(K::Ref<'_>),
) -> Result<()> {
    let blocks = handle.run.index()?.keep();
    let last = K::lend(&handle.last);
    // Its own last key is before the end, a key that it may not have is not.
    let (end, behind) = match to.map(K::short).filter(|to| K::cmp(*to, last).is_le()) {
        Some(to) => (to, 0),
        None => (last, 1),
    };
    let mut index = handle.run.seek(&blocks, end)?.min(blocks.entries().len().saturating_sub(1));
    let mut block = handle.run.block(&blocks, index)?;
    let mut at = K::lower_bound(&block, end) + behind;
    if at == 0 {
        let Some(before) = index.checked_sub(1) else { return Ok(()) };
        index = before;
        block = handle.run.block(&blocks, index)?;
        at = K::rows(&block);
    }
    let begin = at.saturating_sub(entries);
    let key = K::key(&block, begin);
    if (index, begin) != (0, 0) && K::cmp(K::lend(&handle.first), key).is_lt() {
        with(key);
    }
    Ok(())
}

tally! {
    /// Counts the pieces that this thread read.
    pieces
}
