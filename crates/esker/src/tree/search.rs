//! Where a key is in a memtable, and about how many there are between two.
//!
//! A search begins at a fence and goes down the levels of the list from there. Each of its steps waits for memory, so searches
//! that are made together go on beside each other, and each fetches what it looks at in its next turn (O. Kocberber, B. Falsafi,
//! B. Grot, "Asynchronous Memory Access Chaining", VLDB 2015).

use crate::sync::atomic::Ordering;
use crate::tree::fences::{before_each, TOGETHER};
use crate::tree::key::Key;
use crate::tree::memtable::{Memtable, Node};
use crate::tree::node::{FENCE_LEVEL, MAX_HEIGHT};
use esker_format::prefetch;

/// A search on its way, which goes up and down as [`Memtable::begin`] and [`Memtable::seek`] do.
struct Way<K: Key> {
    /// Before the key.
    at: *const Node<K>,
    /// The last node before it at the level above.
    above: *const Node<K>,
    level: usize,
    /// The one behind `at` at this level, looked at next.
    next: *const Node<K>,
    /// Still on its way up: much may have come behind the fence.
    rises: bool,
}

impl<K: Key> Way<K> {
    /// One more step; true if `next` is the first node at or after the key.
    ///
    /// # Safety
    /// The nodes live, as in [`Node::next`]; `at` has the level.
    #[inline]
    unsafe fn step(&mut self, key: K::Ref<'_>) -> bool {
        // SAFETY: the caller's promise.
        unsafe {
            match self.next.as_ref().filter(|next| next.cmp_key(K::head(key), key).is_lt()) {
                Some(next) => {
                    self.at = self.next;
                    if self.rises {
                        self.level = next.height - 1;
                    }
                }
                None if self.level == 0 => return true,
                None => (self.above, self.level, self.rises) = (self.at, self.level - 1, false),
            }
            self.fetch();
        }
        false
    }

    /// # Safety
    /// As for [`step`](Self::step).
    #[inline]
    unsafe fn fetch(&mut self) {
        // SAFETY: the caller's promise.
        self.next = unsafe { Node::next(self.at, self.level) }.load(Ordering::Acquire);
        prefetch(self.next);
    }
}

/// Nodes before a place in a memtable at its lowest levels, which have these levels; null: none are known. They live as long as
/// the memtable, and what is put at the place in the meantime comes behind them.
pub(crate) type Before<K> = [*const Node<K>; FENCE_LEVEL + 1];

/// Where a key is in a memtable, or would be.
pub(crate) struct Spot<K: Key> {
    pub(super) before: Before<K>,
    /// The first node at it or after it, null if there is none.
    pub(crate) next: *const Node<K>,
}

/// Where each of these keys is in its memtable: all together.
pub(crate) fn seek_each<K: Key>(wanted: &[(&Memtable<K>, K::Ref<'_>)], mut found: impl FnMut(usize, Spot<K>)) {
    for (part, wanted) in wanted.chunks(TOGETHER).enumerate() {
        let mut fences = before_each(wanted.iter().map(|(mem, key)| (&mem.fences, K::rank(*key)))).into_iter();
        let mut ways: [Way<K>; TOGETHER] = std::array::from_fn(|i| {
            let (mem, fence) = (wanted.get(i).map(|wanted| wanted.0), fences.next().unwrap_or_default());
            let (at, level) = match mem {
                Some(mem) if mem.first().is_none() => (mem.top().0, 0),
                Some(mem) if fence.is_null() => mem.top(),
                _ => (fence, FENCE_LEVEL),
            };
            Way { at, above: at, level, next: std::ptr::null(), rises: !fence.is_null() }
        });
        // SAFETY: nodes live as long as the arena, and fences have that level.
        ways[..wanted.len()].iter_mut().for_each(|way| unsafe { way.fetch() });
        in_turns(wanted.len(), |i| {
            // SAFETY: the same.
            let is_there = unsafe { ways[i].step(wanted[i].1) };
            if is_there {
                let Way { at, above, next, .. } = ways[i];
                found(part * TOGETHER + i, Spot { before: [at, above], next });
            }
            is_there
        });
    }
}

/// Lets searches, [`TOGETHER`] at most, take a step each in turn, until each has said that it was its last.
#[inline]
pub(super) fn in_turns(searches: usize, mut step: impl FnMut(usize) -> bool) {
    let mut on_their_way = (1u32 << searches) - 1;
    while on_their_way != 0 {
        let mut turns = on_their_way;
        while turns != 0 {
            let i = turns.trailing_zeros() as usize;
            turns &= turns - 1;
            if step(i) {
                on_their_way &= !(1 << i);
            }
        }
    }
}

impl<K: Key> Memtable<K> {
    /// The next node at a level. That of the level below may be the next to be looked at.
    ///
    /// # Safety
    /// As for [`Node::next`].
    #[inline]
    pub(super) unsafe fn next_of(at: *const Node<K>, level: usize) -> *mut Node<K> {
        // SAFETY: the caller's promise.
        unsafe {
            if level > 0 {
                prefetch(Node::next(at, level - 1).load(Ordering::Relaxed).cast_const());
            }
            Node::next(at, level).load(Ordering::Acquire)
        }
    }

    /// Where the way down begins without fences.
    pub(super) fn top(&self) -> (*const Node<K>, usize) {
        (self.head.node(), MAX_HEIGHT - 1)
    }

    /// A node before `key`, and the level from which the way down to it begins there.
    pub(super) fn begin(&self, wanted: K::Head, key: K::Ref<'_>) -> (*const Node<K>, usize) {
        // SAFETY: nodes live as long as the arena.
        let is_less = |node: *const Node<K>| unsafe { (*node).cmp_key(wanted, key) }.is_lt();
        let Some(mut at) = self.fences.last_before(K::rank(key), is_less) else { return self.top() };
        // SAFETY: the same.
        let top_of = |node: *const Node<K>| unsafe { (*node).height } - 1;
        let mut level = FENCE_LEVEL;
        // Much may have come behind it: up, as far as the nodes on the way reach.
        loop {
            // SAFETY: the same; `at` has this level.
            let next = unsafe { Self::next_of(at, level) };
            if next.is_null() || !is_less(next) {
                return (at, level);
            }
            (at, level) = (next, top_of(next));
        }
    }

    /// The least key.
    pub(crate) fn first(&self) -> Option<&Node<K>> {
        // SAFETY: nodes live as long as the memtable.
        unsafe { Node::next(self.head.node(), 0).load(Ordering::Acquire).as_ref() }
    }

    /// The first key at or after `key`.
    pub(crate) fn seek(&self, key: K::Ref<'_>) -> Option<&Node<K>> {
        // Often there is nothing: not worth the way down.
        self.first()?;
        let wanted = K::head(key);
        let (mut at, top) = self.begin(wanted, key);
        for level in (0..=top).rev() {
            loop {
                // SAFETY: nodes live as long as the arena.
                let next = unsafe { Self::next_of(at, level) };
                match unsafe { next.as_ref() } {
                    Some(n) if n.cmp_key(wanted, key).is_lt() => at = next,
                    n if level == 0 => return n,
                    _ => break,
                }
            }
        }
        None
    }

    /// The node of `key`, if it is here.
    pub(crate) fn get(&self, key: K::Ref<'_>) -> Option<&Node<K>> {
        self.seek(key).filter(|n| K::cmp(n.key(), key).is_eq())
    }

    /// The last key before `key`.
    pub(crate) fn before(&self, key: K::Ref<'_>) -> Option<&Node<K>> {
        self.first()?;
        let (mut at, level) = self.begin(K::head(key), key);
        for level in (0..=level).rev() {
            at = self.last_before(at, level, Some(key));
        }
        // SAFETY: nodes live as long as the arena.
        (!std::ptr::eq(at, self.head.node())).then(|| unsafe { &*at })
    }

    /// A key before `to`, or before the end, behind which about 2 to the power of `2 * level - 1` keys come before `to`; none, if
    /// there are about so many or fewer.
    pub(crate) fn step_back(&self, to: Option<K::Ref<'_>>, level: usize) -> Option<&Node<K>> {
        let mut at = self.head.node();
        for level in (level.min(MAX_HEIGHT - 1)..MAX_HEIGHT).rev() {
            at = self.last_before(at, level, to);
        }
        // SAFETY: nodes live as long as the arena.
        (!std::ptr::eq(at, self.head.node())).then(|| unsafe { &*at })
    }

    /// About how many keys there are from `from` on and before `to`: counted on the highest level that has some.
    pub(crate) fn keys_between(&self, from: K::Ref<'_>, to: Option<K::Ref<'_>>) -> u64 {
        /// So many at a level tell about how many there are,
        const SOME: u64 = 32;
        /// and so many on the fences' level are worth a look from above.
        const MANY: u64 = 64;
        let shift = |level: usize| (2 * level).saturating_sub(1);
        let (mut near, level) = self.begin(K::head(from), from);
        for level in (FENCE_LEVEL + 1..=level).rev() {
            near = self.last_before(near, level, Some(from));
        }
        // If there are few on the fences' level, there are no more above it.
        let (mut before, keys) = self.count_at(near, FENCE_LEVEL, (from, to), MANY);
        if (SOME..MANY).contains(&keys) {
            return keys << shift(FENCE_LEVEL);
        }
        let top = if keys < SOME { FENCE_LEVEL } else { MAX_HEIGHT };
        if keys >= SOME {
            before = self.head.node();
        }
        for level in (0..top).rev() {
            let keys;
            (before, keys) = self.count_at(before, level, (from, to), u64::MAX);
            if keys >= SOME || level == 0 {
                return keys << shift(level);
            }
        }
        0
    }

    /// How many keys there are at `level` from one on and before another, `most` of them; and the last node before them. `at` is
    /// before them, and has this level.
    fn count_at(
        &self,
        at: *const Node<K>,
        level: usize,
        (from, to): (K::Ref<'_>, Option<K::Ref<'_>>),
        most: u64,
    ) -> (*const Node<K>, u64) {
        let before = self.last_before(at, level, Some(from));
        let (mut at, mut keys) = (before, 0);
        let to = to.map(|to| (K::head(to), to));
        while keys < most {
            // SAFETY: nodes live as long as the arena.
            at = unsafe { Node::next(at, level).load(Ordering::Acquire) };
            // SAFETY: the same.
            match unsafe { at.as_ref() } {
                Some(n) if to.is_none_or(|(head, to)| n.cmp_key(head, to).is_lt()) => keys += 1,
                _ => break,
            }
        }
        (before, keys)
    }

    /// Keys that lie about evenly among all, `most` at most.
    pub(crate) fn spread(&self, most: usize) -> Vec<K::Own> {
        const OF_EACH: usize = 4;
        for level in (0..MAX_HEIGHT).rev() {
            let nodes = self.at_level(level).count();
            if nodes >= most * OF_EACH || level == 0 {
                let step = nodes.div_ceil(most.max(1)).max(1);
                return self.at_level(level).step_by(step).map(|n| K::own(n.key())).collect();
            }
        }
        Vec::new()
    }

    /// The nodes that have this level, in the order of their keys.
    pub(super) fn at_level(&self, level: usize) -> impl Iterator<Item = &Node<K>> {
        // SAFETY: nodes live as long as the arena.
        self.places_at_level(level).map(|node| unsafe { &*node })
    }

    /// The same, as pointers from which all levels are reached.
    pub(super) fn places_at_level(&self, level: usize) -> impl Iterator<Item = *const Node<K>> + use<'_, K> {
        let mut at = self.head.node();
        std::iter::from_fn(move || {
            // SAFETY: nodes live as long as the arena.
            at = unsafe { Node::next(at, level).load(Ordering::Acquire) };
            (!at.is_null()).then_some(at)
        })
    }

    /// The last node at `level` before `to`, from `at` on, which has this level.
    fn last_before(&self, mut at: *const Node<K>, level: usize, to: Option<K::Ref<'_>>) -> *const Node<K> {
        let to = to.map(|to| (K::head(to), to));
        loop {
            // SAFETY: nodes live as long as the arena, and `at` has the level.
            let next = unsafe { Self::next_of(at, level) };
            // SAFETY: the same.
            match unsafe { next.as_ref() } {
                Some(n) if to.is_none_or(|(head, to)| n.cmp_key(head, to).is_lt()) => at = next,
                _ => return at,
            }
        }
    }
}
