//! Keys that sources have in turn, few each time, handed out together: without a copy of a key, a count of references, or a search in
//! a block, for each. In their order, or, once taken from the end, against it.

use super::{BlockSpan, Lead, MergeRead, RunSource, Source};
use crate::tree::memtable::{Memtable, Node};
use crate::tree::stored::Stored;
use crate::tree::{Place, RunSeen};
use crate::version::View;
use crate::{Error, Result};
use esker_base::counters::{count, Counter};
use std::sync::Arc;

/// Room for so many keys is made at once.
const AT_ONCE: usize = 128;

/// A block's versions are a span of their own where more than so many come before all other sources.
const FEW: u32 = 8;

/// Keys one after the other, of each the version that is seen.
pub(crate) struct InTurn<K: Stored> {
    mems: Vec<Arc<Memtable<K>>>,
    /// With whether they are the reader's own.
    blocks: Vec<(BlockSpan<K>, bool)>,
    picks: Vec<Pick<K>>,
}

/// One of them. Keys and values are the memtable's, which is among `mems`.
enum Pick<K: Stored> {
    Mem { mem: usize, key: K::Ref<'static>, value: &'static [u8], own: bool },
    Block { block: usize, at: u32 },
}

impl<K: Stored> InTurn<K> {
    fn new() -> Self {
        InTurn { mems: Vec::new(), blocks: Vec::new(), picks: Vec::new() }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.picks.len()
    }

    /// The last ones, so many at most, from the end on; the others stay.
    pub(crate) fn take_last(&mut self, most: usize) -> Self {
        let left = self.picks.len().saturating_sub(most);
        let mut last = match left {
            0 => std::mem::replace(self, InTurn::new()),
            left => InTurn {
                mems: self.mems.clone(),
                blocks: self.blocks.iter().map(|(span, own)| (span.same(), *own)).collect(),
                picks: self.picks.split_off(left),
            },
        };
        last.picks.reverse();
        last
    }

    /// Keys, their versions, and whether the reader's own transaction has written them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (K::Ref<'_>, Place<'_, K>, bool)> {
        self.picks.iter().map(|pick| match pick {
            Pick::Mem { mem, key, value, own } => (K::short(*key), Place::Mem(&self.mems[*mem], value), *own),
            Pick::Block { block, at } => {
                let (BlockSpan { run, offset, block, .. }, own) = &self.blocks[*block];
                (K::key(block, *at), Place::Block(run, *offset, block, *at), *own)
            }
        })
    }

    /// Where one of the blocks or memtables is kept, from now on if it was not. They are few.
    fn place<T>(kept: &mut Vec<T>, is: impl Fn(&T) -> bool, make: impl FnOnce() -> T) -> usize {
        kept.iter().position(is).unwrap_or_else(|| {
            kept.push(make());
            kept.len() - 1
        })
    }

    /// Takes the keys of a memtable from a node on that lie before `until`; where it then stands, and whether there.
    fn take_mem(
        &mut self,
        (mem, mut at): (&Arc<Memtable<K>>, *const Node<K>),
        until: Option<K::Ref<'_>>,
        view: View,
        most: usize,
    ) -> (*const Node<K>, bool) {
        let place = Self::place(&mut self.mems, |kept| Arc::ptr_eq(kept, mem), || mem.clone());
        // SAFETY: null, or a node of the memtable.
        while let Some(node) = unsafe { at.as_ref() }.filter(|_| self.picks.len() < most) {
            node.prefetch_behind();
            if until.is_some_and(|until| K::cmp(node.key(), until).is_ge()) {
                return (at, true);
            }
            let Some((order, version)) = mem.visible(node, view).filter(|(_, v)| !v.tombstone) else { break };
            if self.picks.is_empty() {
                self.picks.reserve(most.min(AT_ONCE));
            }
            // SAFETY: keys and versions live as long as the memtable, which is kept.
            let (key, value) =
                unsafe { (node.key_for_ever(), std::mem::transmute::<&[u8], &'static [u8]>(version.value())) };
            self.picks.push(Pick::Mem { mem: place, key, value, own: order.is_own() });
            at = mem.after(node).map_or(std::ptr::null(), std::ptr::from_ref);
        }
        (at, false)
    }

    /// The same of the block that a run stands in, if they are few.
    fn take_block(&mut self, source: &RunSource<K>, until: Option<K::Ref<'_>>, most: usize) -> (u32, bool) {
        let (mut at, end) = (source.at, source.plain_end());
        let (Some(block), Some(until)) = (&source.block, until) else { return (at, false) };
        let is_before = |at| K::cmp(K::key(block, at), until).is_lt();
        if at >= end || (end - at > FEW && is_before(at + FEW)) {
            return (at, false);
        }
        let make = || {
            let (run, offset, block) = (source.handle.run.clone(), source.offset(), block.clone());
            (BlockSpan { run, offset, block, rows: 0..0 }, source.seen == RunSeen::Own)
        };
        if self.picks.is_empty() {
            self.picks.reserve(most.min(AT_ONCE));
        }
        let place = Self::place(&mut self.blocks, |(kept, _)| Arc::ptr_eq(&kept.block, block), make);
        while at < end && self.picks.len() < most {
            if !is_before(at) {
                return (at, true);
            }
            self.picks.push(Pick::Block { block: place, at });
            at += 1;
        }
        (at, false)
    }
}

impl<K: Stored> MergeRead<K> {
    /// What comes next, if that are keys which sources have in turn, of each of which the view sees a value: `most` of them. Else
    /// [`next`](Self::next) tells. Not for who watches.
    pub(crate) fn next_in_turn(&mut self, most: usize) -> Result<Option<InTurn<K>>> {
        debug_assert!(!self.watches && self.led.is_none());
        if self.parker.is_killed() {
            self.passed.end(&self.state, self.view.seq);
            return Err(Error::Interrupted);
        }
        let led = self.lead()?;
        let found = match &led {
            // What marks hide is told by the order of each version.
            Some(Lead::Alone(lead, next)) if self.marks.is_empty() => self.in_turn(*lead, *next, most),
            _ => None,
        };
        match found {
            Some(found) => {
                self.passed.end(&self.state, self.view.seq);
                Ok(Some(found))
            }
            None => {
                self.led = Some(led);
                Ok(None)
            }
        }
    }

    fn in_turn(&mut self, mut lead: usize, mut next: Option<usize>, most: usize) -> Option<InTurn<K>> {
        let mut found = InTurn::new();
        while self.take(&mut found, lead, next, most) {
            let Some(behind) = next.filter(|behind| self.comes_next(lead, *behind)) else { break };
            (lead, next) = (behind, self.least_but(behind));
        }
        if found.picks.is_empty() {
            return None;
        }
        for i in (0..self.open.len()).rev() {
            if let Source::Run(source) = &mut self.open[i] {
                source.advance_to(source.at);
            }
            self.drop_if_done(i);
        }
        (self.own, self.unseen) = (false, None);
        count(Counter::RowsExamined, found.picks.len() as u64);
        #[cfg(test)]
        counted::count(&found);
        Some(found)
    }

    /// Takes what one source has before all others; false where it has more that is to be looked at otherwise, or nothing.
    fn take(&mut self, found: &mut InTurn<K>, lead: usize, next: Option<usize>, most: usize) -> bool {
        let ends = [self.limit(), next.map(|next| self.open[next].key())];
        let until = ends.into_iter().flatten().reduce(|a, b| if K::cmp(b, a).is_lt() { b } else { a });
        let (node, at, goes_on) = match &self.open[lead] {
            Source::Mem(source) => {
                let (node, goes_on) = found.take_mem((&source.mem, source.at), until, self.view, most);
                (node, 0, goes_on)
            }
            Source::Run(source) => {
                let (at, goes_on) = found.take_block(source, until, most);
                (std::ptr::null(), at, goes_on)
            }
        };
        match &mut self.open[lead] {
            Source::Mem(source) => source.at = node,
            Source::Run(source) => source.at = at,
        }
        goes_on
    }

    /// Before this key lies all that the open sources have of what is read.
    fn limit(&self) -> Option<K::Ref<'_>> {
        let ends = [self.to.as_ref().map(K::lend), self.next_run().map(|run| K::lend(&run.first))];
        ends.into_iter().flatten().reduce(|a, b| if K::cmp(b, a).is_lt() { b } else { a })
    }

    /// Does the key of this source, by itself, come before that of the one that was ahead, and all that is not open?
    fn comes_next(&self, ahead: usize, behind: usize) -> bool {
        let key = self.open[behind].key();
        K::cmp(key, self.open[ahead].key()).is_lt() && self.limit().is_none_or(|limit| K::cmp(key, limit).is_lt())
    }

    /// The source with the least key among all others.
    fn least_but(&self, lead: usize) -> Option<usize> {
        let others = self.open.iter().enumerate().filter(|(i, _)| *i != lead);
        others
            .map(|(i, source)| (i, source.key()))
            .reduce(|a, b| if K::cmp(b.1, a.1).is_lt() { b } else { a })
            .map(|(i, _)| i)
    }
}

/// Counts the keys that this thread's readings handed out so: of memtables, and of blocks.
#[cfg(test)]
pub(crate) mod counted {
    use super::{InTurn, Pick, Stored};
    use std::cell::Cell;

    thread_local! {
        static KEYS: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
    }

    pub(super) fn count<K: Stored>(found: &InTurn<K>) {
        let of_mems = found.picks.iter().filter(|pick| matches!(pick, Pick::Mem { .. })).count();
        KEYS.with(|k| k.set((k.get().0 + of_mems, k.get().1 + found.len() - of_mems)));
    }

    /// How many since the last call.
    pub(crate) fn take() -> (usize, usize) {
        KEYS.with(|k| k.replace((0, 0)))
    }
}
