//! The memtable: a skip list of keys, each with its chain of versions, newest first, all in one arena.
//!
//! Invariants: nodes and versions are never removed or moved while the memtable lives; a version's bytes are written
//! before it is linked; versions of one key are linked in the order in which their writers held the row's lock (only
//! [`Memtable::carry`] links below). Any thread may read and insert at once; inserting is lock-free (the insert-only
//! skip list of Herlihy and Shavit, The Art of Multiprocessor Programming, chapter 14, without its removal).
//!
//! What its nodes and versions are says `node.rs`, how a key is found `search.rs`.

use crate::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use crate::sync::{order, Mutex};
use crate::tree::arena::Arena;
use crate::tree::fences::Fences;
use crate::tree::key::{ByRow, Key};
use crate::tree::node::{height_of, new_node, Head, FENCE_LEVEL, MAX_HEIGHT};
pub(crate) use crate::tree::node::{Change, Node, TxnSlot, Version, VersionHead};
use crate::tree::search::Before;
use crate::version::{order_if_visible, Aborted, VersionOrder, View, ABORTED};
use crate::Result;
use esker_base::counters::{count, Counter};
use esker_format::{prefetch, Lsn, TxnId};
use std::mem::size_of;
use std::sync::Arc;

/// So many nodes before one is asked for what it points to is fetched; and itself as many before that.
const AHEAD: usize = 8;

/// A memtable of any kind of tree, as a transaction that has versions there knows it.
pub(crate) trait AnyMemtable: Send + Sync {
    /// See [`Memtable::also_needs`].
    fn also_needs(&self, lsn: Lsn);
    /// See [`Memtable::set_aborted`].
    fn set_aborted(&self, slot: &TxnSlot, aborted: &Arc<Aborted>);
}

impl<K: Key> AnyMemtable for Memtable<K> {
    fn also_needs(&self, lsn: Lsn) {
        Memtable::also_needs(self, lsn);
    }

    fn set_aborted(&self, slot: &TxnSlot, aborted: &Arc<Aborted>) {
        Memtable::set_aborted(self, slot, aborted);
    }
}

/// A sorted, concurrent map from keys to versions.
pub(crate) struct Memtable<K: Key = ByRow> {
    /// Never used twice in a process, unlike an address.
    pub(crate) id: u64,
    pub(super) arena: Arena,
    pub(super) head: Head<K>,
    /// What slots point to.
    aborted: Mutex<Vec<Arc<Aborted>>>,
    /// Where searches begin.
    pub(super) fences: Fences<Node<K>, K::Rank>,
    versions: AtomicUsize,
    /// Of the memory held: what unended transactions had in older memtables. No flush frees it.
    pinned_bytes: AtomicUsize,
    /// No commit before this LSN has versions here: the log's end when the memtable was made.
    pub(crate) first_lsn: Lsn,
    /// Nothing was here while the log ended before this LSN: `first_lsn`, raised as long as the memtable is empty.
    empty_until: AtomicU64,
    /// The log is needed from here for what came from an older memtable, or was prepared before; else the largest value.
    also_needs: AtomicU64,
}

// SAFETY: everything behind the raw pointers is atomics or written once before it is published, and lives in the arena.
unsafe impl<K: Key> Send for Memtable<K> {}
unsafe impl<K: Key> Sync for Memtable<K> {}

impl<K: Key> Memtable<K> {
    pub(crate) fn new(first_lsn: Lsn) -> Result<Arc<Self>> {
        static NEXT_ID: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
        Ok(Arc::new(Memtable {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            arena: Arena::new(),
            head: Head::new(),
            aborted: Mutex::new(&order::MEMTABLE_ABORTED, Vec::new()),
            fences: Fences::new(),
            versions: AtomicUsize::new(0),
            pinned_bytes: AtomicUsize::new(0),
            first_lsn,
            empty_until: AtomicU64::new(first_lsn.0),
            also_needs: AtomicU64::new(u64::MAX),
        }))
    }

    /// An empty memtable's first position in the log becomes known.
    pub(crate) fn begin_at(&mut self, first_lsn: Lsn) {
        self.first_lsn = first_lsn;
        self.empty_until = AtomicU64::new(first_lsn.0);
    }

    /// The log is needed from here to make this memtable again. Never falls below what a checkpoint was told.
    pub(crate) fn needs_from(&self) -> Lsn {
        Lsn(self.empty_until.load(Ordering::Acquire).min(self.also_needs.load(Ordering::Acquire)))
    }

    /// As [`needs_from`](Self::needs_from), for a checkpoint whose position is `position`: an empty memtable needs
    /// nothing before it, from now on. Whatever is put here later commits, or prepares, behind `position`.
    pub(crate) fn needs_at_checkpoint(&self, position: Lsn) -> Lsn {
        if self.is_empty() {
            self.empty_until.fetch_max(position.0, Ordering::AcqRel);
        }
        self.needs_from()
    }

    /// Whatever is here, or is about to be, commits or prepares behind `position`, of a checkpoint that did not look here.
    pub(crate) fn begins_behind(&self, position: Lsn) {
        self.empty_until.fetch_max(position.0, Ordering::AcqRel);
        // Told for one who had a place here and put nothing.
        self.also_needs.fetch_max(position.0, Ordering::AcqRel);
    }

    /// Redo of a version that is here, or is about to be, lies at `lsn` in the log or behind it.
    pub(crate) fn also_needs(&self, lsn: Lsn) {
        self.also_needs.fetch_min(lsn.0, Ordering::AcqRel);
    }

    /// Bytes of memory held.
    pub(crate) fn used_bytes(&self) -> usize {
        self.arena.used_bytes()
    }

    /// Bytes that a flush would free, as far as is known.
    pub(crate) fn flushable_bytes(&self) -> usize {
        if self.is_empty() {
            return 0;
        }
        self.used_bytes().saturating_sub(self.pinned_bytes())
    }

    pub(crate) fn pinned_bytes(&self) -> usize {
        self.pinned_bytes.load(Ordering::Relaxed)
    }

    /// `bytes` of the memory are taken by versions that a flush would only carry on.
    pub(crate) fn pin(&self, bytes: usize) {
        self.pinned_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.versions.load(Ordering::Acquire) == 0
    }

    /// Is it one transaction's alone? Such a one has no place in the log.
    pub(crate) fn is_private(&self) -> bool {
        self.first_lsn == Lsn::MAX
    }

    /// How many versions were written here.
    pub(crate) fn versions(&self) -> usize {
        self.versions.load(Ordering::Acquire)
    }

    /// Would a flush change anything? An empty memtable may keep the log for what was carried to it, rolled back meanwhile.
    pub(crate) fn wants_flush(&self) -> bool {
        !self.is_empty() || self.also_needs.load(Ordering::Acquire) != u64::MAX
    }

    /// The place where `txn`'s status will stand for this memtable.
    pub(crate) fn new_slot(&self, txn: TxnId) -> Result<*const TxnSlot> {
        let p = self.arena.allocate(size_of::<TxnSlot>())?.cast::<TxnSlot>();
        // SAFETY: fresh, aligned, large enough.
        unsafe {
            p.write(TxnSlot::new(txn));
        }
        Ok(p)
    }

    /// Lets a slot's versions be seen as its transaction's set of rolled-back ordinals says, from now on.
    pub(crate) fn set_aborted(&self, slot: &TxnSlot, aborted: &Arc<Aborted>) {
        let mut kept = self.aborted.lock();
        if slot.aborted.load(Ordering::Acquire).is_null() {
            kept.push(aborted.clone());
            slot.aborted.store(Arc::as_ptr(aborted).cast_mut(), Ordering::Release);
        }
    }

    fn is_aborted(slot: &TxnSlot, ordinal: u64) -> bool {
        // SAFETY: null, or what the memtable's `aborted` keeps, as long as its slots.
        unsafe { slot.aborted.load(Ordering::Acquire).as_ref() }.is_some_and(|a| a.contains(ordinal))
    }

    /// Writes a version of `key` on top of what is there.
    ///
    /// # Safety
    /// `slot` is from this memtable; the caller holds the row's lock or is the only one to know the row.
    pub(crate) unsafe fn put(&self, key: K::Ref<'_>, slot: *const TxnSlot, change: Change<'_>) -> Result<()> {
        let version = self.new_version(slot, change)?;
        self.put_on_top(&self.node(key)?, version);
        Ok(())
    }

    /// Links a version, made for this, on top of what its node has, which the place is behind.
    pub(super) fn put_on_top(&self, behind: &Before<K>, version: *mut VersionHead) {
        // SAFETY: nodes live as long as the arena.
        let node = unsafe { &*behind[0] };
        let mut old = node.head.load(Ordering::Acquire);
        loop {
            // SAFETY: not published yet.
            unsafe { (*version).older.store(old, Ordering::Relaxed) };
            match node.head.compare_exchange_weak(old, version, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => break,
                Err(now) => old = now,
            }
        }
        self.versions.fetch_add(1, Ordering::Release);
    }

    /// Links a version below all that the key has here: one that moves over from an older memtable. One that moved already stays.
    ///
    /// # Safety
    /// As for [`put`](Self::put), and nobody else carries at the same time.
    pub(crate) unsafe fn carry(&self, key: K::Ref<'_>, slot: *const TxnSlot, change: Change<'_>) -> Result<()> {
        // SAFETY: nodes live as long as the arena.
        let node = unsafe { &*self.node(key)?[0] };
        // SAFETY: the caller's promise.
        let txn = unsafe { (*slot).txn };
        let (mut link, mut version) = (&node.head, std::ptr::null_mut::<VersionHead>());
        loop {
            // SAFETY: versions and slots live as long as the arena.
            match unsafe { link.load(Ordering::Acquire).as_ref() } {
                Some(other) if other.ordinal == change.ordinal && unsafe { (*other.slot).txn } == txn => return Ok(()),
                Some(other) => link = &other.older,
                None => {
                    if version.is_null() {
                        version = self.new_version(slot, change)?;
                    }
                    let null = std::ptr::null_mut();
                    if link.compare_exchange(null, version, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                        break;
                    }
                }
            }
        }
        self.versions.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// A node is linked where fences are.
    pub(super) fn count_fence(&self) {
        let Some(count) = self.fences.count() else { return };
        // Those of the last array are fetched long before they come, and what follows each of them a little before.
        let known = self.fences.nodes();
        let mut passed = 0;
        let nodes = self.places_at_level(FENCE_LEVEL).map(|node| {
            if known.get(passed) == Some(&node) {
                passed += 1;
                known.get(passed + 2 * AHEAD).into_iter().for_each(|node| prefetch(*node));
                // SAFETY: nodes live as long as the arena; these have this level.
                let next = known.get(passed + AHEAD).map(|node| unsafe { Node::next(*node, FENCE_LEVEL) });
                next.into_iter().for_each(|next| prefetch(next.load(Ordering::Relaxed).cast_const()));
            }
            // SAFETY: nodes live as long as the arena.
            (K::rank(unsafe { (*node).key() }), node)
        });
        self.fences.make(&self.arena, count, nodes);
    }

    pub(super) fn new_version(&self, slot: *const TxnSlot, change: Change<'_>) -> Result<*mut VersionHead> {
        let Change { ordinal, value, tombstone, supersedes } = change;
        let p = self.arena.allocate(size_of::<VersionHead>() + value.len())?.cast::<VersionHead>();
        // SAFETY: fresh, aligned, large enough for the header and the bytes behind it.
        unsafe {
            let older = AtomicPtr::new(std::ptr::null_mut());
            p.write(VersionHead { older, slot, ordinal, bytes: value.len() as u32, tombstone, supersedes });
            std::ptr::copy_nonoverlapping(value.as_ptr(), p.add(1).cast::<u8>(), value.len());
        }
        Ok(p)
    }

    /// The place behind the node of `key`, which is made if there is none.
    pub(super) fn node(&self, key: K::Ref<'_>) -> Result<Before<K>> {
        let mut before = [std::ptr::null::<Node<K>>(); MAX_HEIGHT];
        let mut after = [std::ptr::null_mut::<Node<K>>(); MAX_HEIGHT];
        let height = height_of(K::hash(key));
        if let Some(found) = self.search(key, height, &mut before, &mut after) {
            return Ok([found, before[FENCE_LEVEL]]);
        }
        let fresh = new_node::<K>(&self.arena, key, height)?;
        for level in 0..height {
            loop {
                // SAFETY: nodes live as long as the arena; `fresh` is ours until level 0 links it, and upper links
                // of a published node are only ever written here, and may be read before they are linked.
                let linked = unsafe {
                    Node::next(fresh, level).store(after[level], Ordering::Release);
                    Node::next(before[level], level).compare_exchange(
                        after[level],
                        fresh.cast_mut(),
                        Ordering::AcqRel,
                        Ordering::Acquire,
                    )
                };
                if linked.is_ok() {
                    break;
                }
                if let Some(other) = self.search(key, height, &mut before, &mut after) {
                    if level == 0 {
                        // Somebody else was first; the unused node stays in the arena.
                        return Ok([other, before[FENCE_LEVEL]]);
                    }
                    // Ours is found at level 0: `after` at this level must not be ours.
                    if after[level] == fresh.cast_mut() {
                        break;
                    }
                }
            }
        }
        if height > FENCE_LEVEL {
            self.count_fence();
            before[FENCE_LEVEL] = fresh;
        }
        Ok([fresh, before[FENCE_LEVEL]])
    }

    /// Fills the neighbours of `key` at the lowest `height` levels, and at those of fences; the node itself if it is there.
    fn search(
        &self,
        key: K::Ref<'_>,
        height: usize,
        before: &mut [*const Node<K>; MAX_HEIGHT],
        after: &mut [*mut Node<K>; MAX_HEIGHT],
    ) -> Option<*const Node<K>> {
        let wanted = K::head(key);
        // Whatever is passed on the way from a fence is linked up to the fences' level at least.
        let (mut at, top) = if height <= FENCE_LEVEL + 1 { self.begin(wanted, key) } else { self.top() };
        let mut found = None;
        for level in (0..=top).rev() {
            loop {
                // SAFETY: nodes live as long as the arena.
                let next = unsafe { Self::next_of(at, level) };
                match unsafe { next.as_ref() } {
                    Some(n) if n.cmp_key(wanted, key).is_lt() => at = next,
                    n => {
                        before[level] = at;
                        after[level] = next;
                        if level == 0 {
                            found = n.filter(|n| n.cmp_key(wanted, key).is_eq()).map(|_| next.cast_const());
                        }
                        break;
                    }
                }
            }
        }
        found
    }

    /// The key after `node`, which is of this memtable.
    pub(crate) fn after<'a>(&'a self, node: &'a Node<K>) -> Option<&'a Node<K>> {
        // SAFETY: nodes live as long as the arena.
        unsafe { node.next.load(Ordering::Acquire).as_ref() }
    }

    /// The newest version of a key that `view` sees (a tombstone counts), with its order.
    pub(crate) fn visible<'a>(&self, node: &'a Node<K>, view: View) -> Option<(VersionOrder, &'a Version)> {
        let mut passed = 0;
        let seen = node.versions().find_map(|v| {
            let slot = v.slot();
            let order = order_if_visible(view, slot.txn, slot.status(), v.ordinal);
            let seen = order.filter(|_| !Self::is_aborted(slot, v.ordinal)).map(|order| (order, v));
            passed += u64::from(seen.is_none());
            seen
        });
        if passed > 0 {
            count(Counter::VersionsPassed, passed);
        }
        seen
    }

    /// Was a change of a slot's transaction rolled back, with it or by itself? The slot is of this memtable.
    pub(crate) fn is_rolled_back(&self, slot: &TxnSlot, ordinal: u64) -> bool {
        slot.status() == ABORTED || Self::is_aborted(slot, ordinal)
    }

    /// Is the version neither rolled back nor in an aborted range?
    pub(crate) fn is_live(&self, v: &Version) -> bool {
        !self.is_rolled_back(v.slot(), v.ordinal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::key::whole_keys;
    use crate::tree::key::ByBytes;
    use crate::tree::search::seek_each;
    use esker_format::{CommitSeq, RowId};

    fn view(seq: u64, me: u64) -> View {
        View { seq: CommitSeq(seq), me: TxnId(me) }
    }

    #[test]
    fn versions_are_seen_by_view_and_owner() {
        let m = Memtable::<ByRow>::new(Lsn(1)).unwrap();
        let a = m.new_slot(TxnId(1)).unwrap();
        let b = m.new_slot(TxnId(2)).unwrap();
        unsafe {
            m.put(RowId(5), a, Change::of_row(1, Some(b"one"), false)).unwrap();
            (*a).end(10);
            m.put(RowId(5), b, Change::of_row(1, Some(b"two"), false)).unwrap();
            m.put(RowId(5), b, Change::of_row(2, None, false)).unwrap();
        }
        let n = m.seek(RowId(1)).unwrap();
        assert_eq!(m.visible(n, view(10, 9)).unwrap().1.value(), b"one");
        assert!(m.visible(n, view(9, 9)).is_none());
        assert!(m.visible(n, view(10, 2)).unwrap().1.tombstone);
        m.set_aborted(unsafe { &*b }, &Aborted::of(2, 3));
        assert_eq!(m.visible(n, view(10, 2)).unwrap().1.value(), b"two");
    }

    #[test]
    fn carried_versions_lie_below() {
        let m = Memtable::<ByRow>::new(Lsn(1)).unwrap();
        let a = m.new_slot(TxnId(1)).unwrap();
        unsafe {
            m.put(RowId(1), a, Change::of_row(5, Some(b"new"), false)).unwrap();
            m.carry(RowId(1), a, Change::of_row(2, Some(b"old"), false)).unwrap();
            m.carry(RowId(2), a, Change::of_row(3, Some(b"alone"), false)).unwrap();
        }
        let n = m.seek(RowId(1)).unwrap();
        let all: Vec<_> = n.versions().map(|v| v.value().to_vec()).collect();
        assert_eq!(all, vec![b"new".to_vec(), b"old".to_vec()]);
        assert_eq!(m.after(n).unwrap().versions().count(), 1);
    }

    #[test]
    fn concurrent_inserts_keep_order_and_lose_nothing() {
        let m = Memtable::<ByRow>::new(Lsn(1)).unwrap();
        let each = if cfg!(miri) { 60 } else { 5000u64 };
        std::thread::scope(|s| {
            for t in 0..4u64 {
                let m = &m;
                s.spawn(move || {
                    let slot = m.new_slot(TxnId(t + 1)).unwrap();
                    for i in 0..each {
                        let row = (i * 7919 + t * 13) % 20_011;
                        unsafe {
                            m.put(RowId(row + 1), slot, Change::of_row(i, Some(&row.to_le_bytes()), false)).unwrap()
                        };
                    }
                });
            }
        });
        let (mut rows, mut versions, mut last) = (0, 0, 0);
        let mut at = m.seek(RowId(0));
        while let Some(n) = at {
            assert!(n.key().0 > last);
            last = n.key().0;
            rows += 1;
            versions += n.versions().count();
            at = m.after(n);
        }
        assert_eq!(versions, 4 * each as usize);
        assert!(rows > 2 * each);
    }

    /// Keys that come in order, in no order, and alike in what is compared first: all are found, and what lies between them is
    /// not, whatever came since the fences were made.
    #[test]
    fn searches_that_begin_at_fences_find_the_same() {
        let most: u64 = if cfg!(miri) { 70 } else { 700 };
        let key_of = |way: u64, n: u64| match way {
            0 => (2 * n).to_be_bytes().to_vec(),
            1 => (2 * (n * 7919 % most)).to_be_bytes().to_vec(),
            2 => [b"a tenant".as_slice(), &(2 * (n * 7919 % most)).to_be_bytes()].concat(),
            3 => [b"all alike".as_slice(), &(2 * (n * 7919 % most)).to_be_bytes()].concat(),
            _ => [b"all of them alike".as_slice(), &(2 * (n * 7919 % most)).to_be_bytes()].concat(),
        };
        for way in 0..5 {
            let m = Memtable::<ByBytes>::new(Lsn(1)).unwrap();
            let slot = m.new_slot(TxnId(1)).unwrap();
            let (mut model, mut from_fences) = (std::collections::BTreeSet::new(), 0);
            for n in 0..most {
                let key = key_of(way, n);
                unsafe { m.put(&key, slot, Change::of_row(n, Some(b""), false)).unwrap() };
                model.insert(key);
                let mut sought = key_of(way, (n * 31) % most);
                for _ in 0..2 {
                    let found = m.seek(&sought).map(|node| node.key().to_vec());
                    assert_eq!(found.as_ref(), model.range(sought.clone()..).next());
                    assert_eq!(m.get(&sought).is_some(), model.contains(&sought));
                    from_fences +=
                        usize::from(!std::ptr::eq(m.begin(ByBytes::head(&sought), &sought).0, m.head.node()));
                    *sought.last_mut().unwrap() |= 1;
                }
                if n % 16 == 0 {
                    // More than are searched together; what is there and what is not.
                    let mut some: Vec<_> = (0..30).map(|k| key_of(way, (n + k * 37) % most)).collect();
                    some.iter_mut().step_by(3).for_each(|key| *key.last_mut().unwrap() |= 1);
                    let keys: Vec<_> = some.iter().map(|key| (&*m, key.as_slice())).collect();
                    let mut found = vec![None; keys.len()];
                    seek_each(&keys, |i, spot| {
                        let key = unsafe { spot.next.as_ref() }.map(|node| node.key().to_vec());
                        assert!(found[i].replace(key).is_none(), "twice");
                    });
                    for (key, found) in some.into_iter().zip(found) {
                        assert_eq!(found.unwrap().as_ref(), model.range(key..).next());
                    }
                }
            }
            assert!(m.at_level(0).map(|n| n.key()).eq(model.iter().map(Vec::as_slice)), "way {way}");
            assert_eq!(m.at_level(0).filter(|n| n.height > 3).count(), m.at_level(3).count(), "way {way}");
            assert!(from_fences > most as usize, "way {way}: {from_fences}");
        }
    }

    /// Keys of a tenant and a number: the first 8 bytes tell nothing, the next do.
    #[test]
    fn keys_that_begin_alike_are_told_apart_without_a_look_at_them() {
        let most: u64 = if cfg!(miri) { 70 } else { 700 };
        let key_of = |n: u64| [b"a tenant".as_slice(), &(2 * (n * 7919 % most)).to_be_bytes()].concat();
        let m = Memtable::<ByBytes>::new(Lsn(1)).unwrap();
        let slot = m.new_slot(TxnId(1)).unwrap();
        whole_keys::take();
        for n in 0..most {
            unsafe { m.put(&key_of(n), slot, Change::of_row(n, Some(b""), false)).unwrap() };
        }
        assert_eq!(whole_keys::take(), 0, "where none is there");
        assert!((0..most).all(|n| m.get(&key_of(n)).is_some()));
        let looked = whole_keys::take();
        assert!((most as usize..=8 * most as usize).contains(&looked), "{looked} where each is there");
    }

    #[test]
    fn an_empty_memtable_takes_no_region() {
        let m = Memtable::<ByRow>::new(Lsn(1)).unwrap();
        assert!(m.seek(RowId(0)).is_none());
        assert_eq!(m.used_bytes(), 0);
        m.new_slot(TxnId(1)).unwrap();
        assert!(m.used_bytes() > 0);
    }

    #[test]
    fn keys_of_bytes_are_in_their_order() {
        let m = Memtable::<ByBytes>::new(Lsn(1)).unwrap();
        let a = m.new_slot(TxnId(1)).unwrap();
        let keys: [&[u8]; 7] = [b"", b"\0", b"a", b"a\0", b"ab", b"b", b"\xff\xff"];
        for key in keys.iter().rev() {
            unsafe { m.put(key, a, Change::of_row(1, Some(key), false)).unwrap() };
        }
        unsafe { (*a).end(10) };
        let (mut found, mut at) = (Vec::new(), m.first());
        while let Some(n) = at {
            assert_eq!(m.visible(n, view(10, 9)).unwrap().1.value(), n.key());
            found.push(n.key());
            at = m.after(n);
        }
        assert_eq!(found, keys);
        assert_eq!(m.seek(b"a\0\0").unwrap().key(), b"ab");
        assert!(m.get(b"aa").is_none() && m.get(b"ab").is_some() && m.seek(b"\xff\xff\xff").is_none());
    }
}
