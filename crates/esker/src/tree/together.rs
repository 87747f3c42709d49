//! Versions of many keys, put into a memtable: together, or one behind the other.
//!
//! Where a key's node goes takes a search, which waits for memory at each of its steps; many searches go on beside each other
//! (`search.rs`), and their nodes are linked from where they ended. Keys that rise need none: the place is behind the last one.
//! Invariant: whatever is put so is put as by [`Memtable::put`], one after the other.

use crate::sync::atomic::Ordering;
use crate::tally::tally;
use crate::tree::fences::TOGETHER;
use crate::tree::key::Key;
use crate::tree::memtable::{Change, Memtable, Node, TxnSlot};
use crate::tree::node::{height_of, new_node, FENCE_LEVEL, MAX_HEIGHT};
use crate::tree::search::{in_turns, seek_each, Before};
use crate::Result;
use esker_format::prefetch;
use std::cmp::Ordering::{Equal, Less};

impl<K: Key> Memtable<K> {
    /// Writes versions of keys, each on top of what is there. On an error the first ones may be there.
    ///
    /// # Safety
    /// As for [`put`](Self::put), of each of them.
    pub(crate) unsafe fn put_each(&self, slot: *const TxnSlot, wanted: &[(K::Ref<'_>, Change<'_>)]) -> Result<()> {
        let mut high = Vec::new();
        let put = wanted.chunks(TOGETHER).try_for_each(|part| {
            let keys: [_; TOGETHER] = std::array::from_fn(|i| (self, part[i.min(part.len() - 1)].0));
            let mut spots: [_; TOGETHER] = std::array::from_fn(|_| None);
            seek_each(&keys[..part.len()], |i, spot| spots[i] = Some(spot));
            part.iter().zip(spots.iter().flatten()).try_for_each(|((key, change), spot)| {
                let version = self.new_version(slot, *change)?;
                self.put_on_top(&self.node_behind(*key, &spot.before, &mut high)?, version);
                Ok(())
            })
        });
        self.link_high(&high);
        put
    }

    /// As [`put`](Self::put), where keys often rise: `last` is behind the key that was put last, or null, and then behind
    /// this one.
    ///
    /// # Safety
    /// As for [`put`](Self::put); `last` is of this memtable.
    pub(crate) unsafe fn put_behind(
        &self,
        last: &mut Before<K>,
        key: K::Ref<'_>,
        slot: *const TxnSlot,
        change: Change<'_>,
    ) -> Result<()> {
        let version = self.new_version(slot, change)?;
        // SAFETY: the caller's promise.
        *last = match unsafe { self.is_right_behind(last, key) } {
            true => {
                let mut high = Vec::new();
                let behind = self.node_behind(key, last, &mut high)?;
                self.link_high(&high);
                behind
            }
            false => self.node(key)?,
        };
        self.put_on_top(last, version);
        Ok(())
    }

    /// Would a key be the next one behind a place? If so, it is not here.
    ///
    /// # Safety
    /// The place is of this memtable.
    pub(crate) unsafe fn is_right_behind(&self, place: &Before<K>, key: K::Ref<'_>) -> bool {
        let wanted = K::head(key);
        // SAFETY: null, or nodes that live as long as the arena.
        let Some(last) = (unsafe { place[0].as_ref() }).filter(|last| last.cmp_key(wanted, key).is_lt()) else {
            return false;
        };
        self.after(last).is_none_or(|next| next.cmp_key(wanted, key).is_gt())
    }

    /// As [`node`](Self::node), from a place before the key. A new node that has higher levels than a place is to be linked
    /// there ([`link_high`](Self::link_high)).
    fn node_behind<'k>(&self, key: K::Ref<'k>, place: &Before<K>, high: &mut Vec<High<'k, K>>) -> Result<Before<K>> {
        let (wanted, height) = (K::head(key), height_of(K::hash(key)));
        let mut behind = *place;
        let mut fresh: *const Node<K> = std::ptr::null();
        for level in 0..height.min(place.len()) {
            let mut at = place[level];
            loop {
                // SAFETY: nodes live as long as the arena, and those of a place have its level, as those behind them.
                let link = unsafe { Node::next(at, level) };
                let next = link.load(Ordering::Acquire);
                // SAFETY: the same.
                match unsafe { next.as_ref() }.map(|n| n.cmp_key(wanted, key)) {
                    Some(Less) => {
                        at = next;
                        continue;
                    }
                    // At an upper level it would be the own one.
                    Some(Equal) if level == 0 => return Ok([next, place[FENCE_LEVEL]]),
                    _ => {}
                }
                if fresh.is_null() {
                    fresh = new_node::<K>(&self.arena, key, height)?;
                }
                // SAFETY: as in [`Memtable::node`].
                unsafe { Node::next(fresh, level).store(next, Ordering::Release) };
                if link.compare_exchange(next, fresh.cast_mut(), Ordering::AcqRel, Ordering::Acquire).is_ok() {
                    behind[level] = fresh;
                    break;
                }
            }
        }
        if height > FENCE_LEVEL {
            self.count_fence();
        }
        if height > place.len() {
            high.push(High { key, node: fresh, height });
        }
        #[cfg(test)]
        behind::count();
        Ok(behind)
    }

    /// Links nodes at their higher levels, where they are not yet: whoever comes there finds less until then.
    fn link_high(&self, high: &[High<'_, K>]) {
        for part in high.chunks(TOGETHER) {
            let mut ways: [Down<K>; TOGETHER] = std::array::from_fn(|_| Down::new(self.top()));
            // SAFETY: nodes live as long as the arena.
            in_turns(part.len(), |i| unsafe { ways[i].step(part[i].key) });
            for (high, way) in part.iter().zip(&ways) {
                (LOWEST..high.height).for_each(|level| self.link_behind(high, level, way.before[level]));
                #[cfg(test)]
                high::count();
            }
        }
    }

    /// Links a node at a level, behind one before it that has this level, too.
    fn link_behind(&self, high: &High<'_, K>, level: usize, mut before: *const Node<K>) {
        let wanted = K::head(high.key);
        loop {
            // SAFETY: nodes live as long as the arena, and these have this level.
            let link = unsafe { Node::next(before, level) };
            let next = link.load(Ordering::Acquire);
            // SAFETY: the same.
            if unsafe { next.as_ref() }.is_some_and(|n| n.cmp_key(wanted, high.key).is_lt()) {
                before = next;
                continue;
            }
            // SAFETY: as in [`Memtable::node`].
            unsafe { Node::next(high.node, level).store(next, Ordering::Release) };
            if link.compare_exchange(next, high.node.cast_mut(), Ordering::AcqRel, Ordering::Acquire).is_ok() {
                return;
            }
        }
    }
}

/// The lowest level that a place knows nothing of.
const LOWEST: usize = FENCE_LEVEL + 1;

/// A node that is linked at the levels of a place alone.
struct High<'k, K: Key> {
    key: K::Ref<'k>,
    node: *const Node<K>,
    height: usize,
}

/// A search for the last nodes before a key at the levels from [`LOWEST`] on.
struct Down<K: Key> {
    at: *const Node<K>,
    level: usize,
    /// The one behind `at` at this level, on its way from memory.
    next: *const Node<K>,
    before: [*const Node<K>; MAX_HEIGHT],
}

impl<K: Key> Down<K> {
    fn new((at, level): (*const Node<K>, usize)) -> Self {
        // SAFETY: a memtable's top, with all levels.
        let next = unsafe { Node::next(at, level) }.load(Ordering::Acquire);
        prefetch(next.cast_const());
        Down { at, level, next, before: [std::ptr::null(); MAX_HEIGHT] }
    }

    /// One more step; true if it was the last one.
    ///
    /// # Safety
    /// The nodes live, as in [`Node::next`].
    unsafe fn step(&mut self, key: K::Ref<'_>) -> bool {
        // SAFETY: the caller's promise.
        match unsafe { self.next.as_ref() }.is_some_and(|next| next.cmp_key(K::head(key), key).is_lt()) {
            true => self.at = self.next,
            false => {
                self.before[self.level] = self.at;
                if self.level == LOWEST {
                    return true;
                }
                self.level -= 1;
            }
        }
        // SAFETY: the same; `at` has the level.
        self.next = unsafe { Node::next(self.at, self.level) }.load(Ordering::Acquire);
        prefetch(self.next);
        false
    }
}

tally! {
    /// Counts the nodes that this thread made behind places.
    behind
}

tally! {
    /// Counts those of them that were linked at higher levels.
    high
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::key::{ByBytes, ByRow};
    use esker_format::{Lsn, RowId, TxnId};

    fn key_of(n: u64) -> Vec<u8> {
        // Many have one rank.
        [(n / 5).to_be_bytes().as_slice(), &n.to_be_bytes()].concat()
    }

    /// All nodes with how many versions each has, each level a part of the one below.
    fn contents(m: &Memtable<ByBytes>) -> Vec<(Vec<u8>, usize)> {
        for level in 1..4 {
            let (above, below) = (m.at_level(level).count(), m.at_level(0).filter(|n| n.height > level).count());
            assert_eq!(above, below, "level {level}");
        }
        m.at_level(0).map(|n| (n.key().to_vec(), n.versions().count())).collect()
    }

    #[test]
    fn what_is_put_together_is_as_if_put_one_by_one() {
        let (most, part) = if cfg!(miri) { (60, 20) } else { (3000, 100) };
        let one_by_one = Memtable::<ByBytes>::new(Lsn(1)).unwrap();
        let together = Memtable::<ByBytes>::new(Lsn(1)).unwrap();
        let slots = [&one_by_one, &together].map(|m| m.new_slot(TxnId(1)).unwrap());
        let keys: Vec<_> = (0..most).map(|n| key_of(n * 7919 % (most / 2))).collect();
        behind::take();
        for keys in keys.chunks(part) {
            // Twice in a part, too.
            let change = |n: usize| Change::of_row(n as u64, Some(b"value"), false);
            let mut wanted: Vec<_> = keys.iter().enumerate().map(|(n, key)| (key.as_slice(), change(n))).collect();
            wanted.sort_by_key(|(key, _)| *key);
            wanted.iter().for_each(|(key, change)| unsafe { one_by_one.put(key, slots[0], *change).unwrap() });
            unsafe { together.put_each(slots[1], &wanted).unwrap() };
        }
        assert_eq!(contents(&together), contents(&one_by_one));
        let (behind, high) = (behind::take(), high::take());
        assert!(behind > 3 * high && high > 0, "{behind} nodes were made behind places, {high} were too high");
        assert_eq!(together.versions(), keys.len());
    }

    /// Rising keys need no search; those that fall, or have others before them, do.
    #[test]
    fn rising_keys_are_put_behind_each_other() {
        let m = Memtable::<ByRow>::new(Lsn(1)).unwrap();
        let slot = m.new_slot(TxnId(1)).unwrap();
        let (mut last, mut all) = ([std::ptr::null(); 2], Vec::new());
        let mut put = |row: u64| {
            all.push(row);
            let right_behind = unsafe { m.is_right_behind(&last, RowId(row)) };
            assert!(!right_behind || m.get(RowId(row)).is_none());
            unsafe { m.put_behind(&mut last, RowId(row), slot, Change::of_row(row, Some(b""), false)).unwrap() };
            assert!(!unsafe { m.is_right_behind(&last, RowId(row)) }, "it is there");
            right_behind
        };
        assert!(!put(100));
        assert!((101..200).all(&mut put));
        // Others are in between; then once more behind the last.
        assert!(!put(50) && put(60) && !put(110) && !put(150) && !put(300) && put(301) && !put(250) && put(260));
        all.sort_unstable();
        all.dedup();
        assert!(m.at_level(0).map(|n| n.key().0).eq(all));
        assert_eq!(m.at_level(0).filter(|n| n.height > 1).count(), m.at_level(1).count());
    }

    #[test]
    fn threads_put_together_beside_each_other() {
        let m = Memtable::<ByBytes>::new(Lsn(1)).unwrap();
        let each = if cfg!(miri) { 30 } else { 4000u64 };
        std::thread::scope(|s| {
            for t in 0..3u64 {
                let m = &m;
                s.spawn(move || {
                    let slot = m.new_slot(TxnId(t + 1)).unwrap();
                    // A third of the keys are two threads'.
                    let keys: Vec<_> = (0..each).map(|n| key_of((n * 7919 + t * each / 2) % (2 * each))).collect();
                    for keys in keys.chunks(50) {
                        let change = Change::of_row(1, Some(b"value"), false);
                        let wanted: Vec<_> = keys.iter().map(|key| (key.as_slice(), change)).collect();
                        unsafe { m.put_each(slot, &wanted).unwrap() };
                    }
                });
            }
        });
        let found = contents(&m);
        assert!(found.is_sorted_by(|a, b| a.0 < b.0), "in order, each once");
        assert_eq!(found.iter().map(|(_, versions)| versions).sum::<usize>(), 3 * each as usize);
    }
}
