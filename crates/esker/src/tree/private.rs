//! What one transaction has gathered for itself in a tree, before it becomes a run.
//!
//! Keys of an index come in no order: to bring each to its place at once takes most of a load's time. So entries lie as they
//! came, and are sorted once, when a run is made of them; or go to a memtable, when somebody wants to read them in their order.
//! Who looks for one unique key finds it by a hash. Rows go to the memtable at once: an update reads what it writes.
//!
//! Invariants: what lies as it came is newer than all in the memtable; only [`Private::sorted`], under the lock of what lies as
//! it came, or the owner in a tree of rows, puts versions into the memtable. Others sort, too, to read what is locked: so who looks
//! for something looks among what lies as it came first, then in the memtable, as nothing goes the other way.

use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{order, RwLock};
use crate::tree::key::Key;
use crate::tree::memtable::{Change, Memtable, TxnSlot};
use crate::tree::run::writer::RunWriter;
use crate::tree::search::Before;
use crate::tree::stored::Stored;
use crate::tree::Tree;
use crate::txn::state::TxnState;
use crate::{Error, Result};
use esker_format::{prefetch, Lsn, RowId, TxnId};
use esker_memory::{Account, Charge, Region};
use std::marker::PhantomData;
use std::sync::Arc;

/// A first piece of memory; each is twice as large as the last one, up to the largest.
const FIRST_PIECE_BYTES: usize = 4 << 10;
/// Also what one step of the upper part of a [`Place`] stands for.
const LARGEST_PIECE_BYTES: usize = 1 << 20;
/// What is kept for the next entries once all are sorted.
const MOST_KEPT_BYTES: usize = 64 << 10;
/// Slots for unique keys to begin with.
const FIRST_SLOTS: usize = 512;
/// So far ahead memory is asked for where entries are taken in their order, which is none in memory.
const AHEAD: usize = 8;

/// See the module.
pub(crate) struct Private<K: Stored> {
    mem: Arc<Memtable<K>>,
    slot: *const TxnSlot,
    unsorted: RwLock<Unsorted<K>>,
    /// How many versions were ever put here.
    versions: AtomicUsize,
}

// SAFETY: the slot lies in the memtable's arena, and is itself made of atomics.
unsafe impl<K: Stored> Send for Private<K> {}
// SAFETY: the same.
unsafe impl<K: Stored> Sync for Private<K> {}

/// The newest version of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Newest {
    pub(crate) ordinal: u64,
    pub(crate) row: RowId,
    pub(crate) tombstone: bool,
}

impl<K: Stored> Private<K> {
    pub(crate) fn new(owner: &TxnState) -> Result<Arc<Self>> {
        let mem = Memtable::new(Lsn::MAX)?;
        let slot = owner.slot_in(&mem)?;
        let unsorted = RwLock::new(&order::PRIVATE_UNSORTED, Unsorted::default());
        Ok(Arc::new(Private { mem, slot, unsorted, versions: AtomicUsize::new(0) }))
    }

    /// The owner and how it stands.
    pub(crate) fn slot(&self) -> &TxnSlot {
        // SAFETY: it lives in the arena of `mem`.
        unsafe { &*self.slot }
    }

    pub(crate) fn owner(&self) -> TxnId {
        self.slot().txn
    }

    /// How many versions were put here.
    pub(crate) fn versions(&self) -> usize {
        self.versions.load(Ordering::Relaxed)
    }

    /// Adds a version; `unique`: it may be asked for by [`newest_unsorted`](Self::newest_unsorted). Tells how many bytes all
    /// take now. The caller is the owner, and the key is fresh, or it has the lock of the row. `last`: see
    /// [`Memtable::put_behind`]; of this memtable.
    pub(crate) fn put(&self, last: &mut Before<K>, key: K::Ref<'_>, change: Change<'_>, unique: bool) -> Result<usize> {
        if K::NEW_KEYS_COME_LAST {
            // SAFETY: the slot is of this memtable; the caller's promise.
            unsafe { self.mem.put_behind(last, key, self.slot, change)? };
            self.versions.fetch_add(1, Ordering::Relaxed);
            return Ok(self.mem.used_bytes());
        }
        let mut unsorted = self.unsorted.write();
        unsorted.push(key, change, unique)?;
        self.versions.fetch_add(1, Ordering::Relaxed);
        Ok(self.mem.used_bytes() + unsorted.used_bytes())
    }

    /// The memtable, with everything in it.
    pub(crate) fn sorted(&self) -> Result<&Arc<Memtable<K>>> {
        if !K::NEW_KEYS_COME_LAST && self.unsorted.read().entries > 0 {
            let mut unsorted = self.unsorted.write();
            // Of each key the oldest first. Neighbours are found faster than what comes as it likes.
            let (order, _charge) = unsorted.in_order();
            for place in order.into_iter().rev().map(Sorted::place) {
                let (key, change) = unsorted.at(place);
                // SAFETY: the slot is of this memtable; whoever put the entry had the lock of its row, and the entries of a row
                // come here in the order in which they came, one after the other.
                unsafe { self.mem.put(key, self.slot, change)? };
                unsorted.bytes_at_mut(place)[FLAGS] |= TAKEN;
            }
            unsorted.clear();
        }
        Ok(&self.mem)
    }

    /// The newest version of a unique key among those that are not in the memtable, but for what was rolled back.
    pub(crate) fn newest_unsorted(&self, key: K::Ref<'_>) -> Option<Newest> {
        let unsorted = self.unsorted.read();
        let newest = unsorted.versions(key).find_map(|place| {
            let (found, change) = unsorted.at(place);
            let is_live = !self.mem.is_rolled_back(self.slot(), change.ordinal);
            is_live.then(|| Newest {
                ordinal: change.ordinal,
                row: K::row_of(found, change.value),
                tombstone: change.tombstone,
            })
        });
        newest
    }

    /// What is in the memtable already.
    pub(crate) fn memtable(&self) -> &Arc<Memtable<K>> {
        &self.mem
    }

    /// Calls `with` with all versions that were not rolled back, by their keys, of each key the newest first.
    pub(crate) fn each(&self, mut with: impl FnMut(K::Ref<'_>, Change<'_>) -> Result<()>) -> Result<()> {
        {
            let unsorted = self.unsorted.read();
            // Who sorts has the lock for itself, so it stays as it is.
            if self.mem.is_empty() {
                let (order, _charge) = unsorted.in_order();
                return order.iter().enumerate().try_for_each(|(at, entry)| {
                    if let Some(ahead) = order.get(at + AHEAD) {
                        prefetch(unsorted.bytes_at(ahead.place()).as_ptr());
                    }
                    let (key, change) = unsorted.at(entry.place());
                    match self.mem.is_rolled_back(self.slot(), change.ordinal) {
                        true => Ok(()),
                        false => with(key, change),
                    }
                });
            }
        }
        let mem = self.sorted()?;
        mem.walk().try_for_each(|n| n.versions().filter(|v| mem.is_live(v)).try_for_each(|v| with(n.key(), v.change())))
    }

    /// Adds them to a run.
    pub(crate) fn write(&self, writer: &mut RunWriter<K>) -> Result<()> {
        self.each(|key, change| writer.push(key, change.tag(), change.value))
    }

    /// About what the versions that were not rolled back would take of the redo, in bytes; counted up to `enough`. Their
    /// memory may be far more, where they are a few in each of many trees. 0 only if there are none.
    pub(crate) fn content_bytes(&self, enough: usize) -> usize {
        // What lies as it came goes first: others may bring it to the memtable meanwhile, and it is counted twice then.
        let mut bytes = self.unsorted_bytes(enough);
        #[cfg(test)]
        crate::tests::hooks::reached("what lies as it came is counted");
        let mem = &self.mem;
        let mut node = mem.first();
        while let Some(n) = node.filter(|_| bytes < enough) {
            bytes += n.versions().filter(|v| mem.is_live(v)).map(|v| v.memory_bytes()).sum::<usize>();
            node = mem.after(n);
        }
        bytes
    }

    fn unsorted_bytes(&self, enough: usize) -> usize {
        let (mut bytes, unsorted) = (0, self.unsorted.read());
        for place in unsorted.places() {
            if bytes >= enough {
                break;
            }
            let (key, change) = unsorted.at(place);
            if !self.mem.is_rolled_back(self.slot(), change.ordinal) {
                bytes += HEAD_BYTES + K::length(key) + change.value.len();
            }
        }
        bytes
    }
}

/// Where an entry lies: the piece, and behind it the offset in that.
type Place = u32;
/// No entry.
const NOWHERE: Place = Place::MAX;
/// Half of what places reach: whoever gathers so much makes a run of it, whatever memory there is.
pub(crate) const MOST_PRIVATE_BYTES: u64 = NOWHERE as u64 / 2;
/// What an entry has before its key and value: ordinal, place of the version before it of the same unique key, length of the
/// key, length of the value, flags.
const HEAD_BYTES: usize = FLAGS + 1;
const FLAGS: usize = 8 + 4 + 4 + 4;
const TOMBSTONE: u8 = 1;
const SUPERSEDES: u8 = 2;
/// It is in the memtable: memory did not suffice for all at once.
const TAKEN: u8 = 4;

/// A unique key by its hash, and its newest entry.
type Slot = (u32, Place);

/// Entries as they came.
struct Unsorted<K> {
    pieces: Vec<(Region, usize)>,
    bytes: usize,
    entries: usize,
    /// Unique keys.
    keys: usize,
    /// For each the newest entry, in a slot that its hash says or behind that; as many as a power of two, at most three
    /// quarters of them taken.
    slots: Vec<Slot>,
    /// The memory of `slots`.
    charge: Charge,
    kind: PhantomData<fn() -> K>,
}

impl<K> Default for Unsorted<K> {
    fn default() -> Self {
        Unsorted {
            pieces: Vec::new(),
            bytes: 0,
            entries: 0,
            keys: 0,
            slots: Vec::new(),
            charge: Charge::new(Account::Memtable, 0),
            kind: PhantomData,
        }
    }
}

impl<K: Key> Unsorted<K> {
    fn push(&mut self, key: K::Ref<'_>, change: Change<'_>, unique: bool) -> Result<()> {
        let (key_bytes, value_bytes) = (K::length(key), change.value.len());
        let place = self.room(HEAD_BYTES + key_bytes + value_bytes)?;
        let mut older = NOWHERE;
        if unique {
            if 4 * self.keys >= 3 * self.slots.len() {
                self.grow_slots();
            }
            let (slot, hash) = self.slot_of(key);
            older = std::mem::replace(&mut self.slots[slot], (hash, place)).1;
            self.keys += usize::from(older == NOWHERE);
        }
        let flags = u8::from(change.tombstone) * TOMBSTONE + u8::from(change.supersedes) * SUPERSEDES;
        let out = self.bytes_at_mut(place);
        out[..8].copy_from_slice(&change.ordinal.to_le_bytes());
        out[8..12].copy_from_slice(&older.to_le_bytes());
        out[12..16].copy_from_slice(&(key_bytes as u32).to_le_bytes());
        out[16..20].copy_from_slice(&(value_bytes as u32).to_le_bytes());
        out[FLAGS] = flags;
        let (key_out, rest) = out[HEAD_BYTES..].split_at_mut(key_bytes);
        K::write(key, key_out);
        rest[..value_bytes].copy_from_slice(change.value);
        self.entries += 1;
        Ok(())
    }

    /// Room for so many bytes.
    fn room(&mut self, bytes: usize) -> Result<Place> {
        let fits = self.pieces.last().is_some_and(|(region, used)| region.len() - used >= bytes);
        if !fits {
            let doubled = FIRST_PIECE_BYTES << self.pieces.len().min(8);
            let size = doubled.clamp(bytes.min(LARGEST_PIECE_BYTES), LARGEST_PIECE_BYTES);
            let most_pieces = NOWHERE as usize / LARGEST_PIECE_BYTES;
            if bytes > size || self.pieces.len() >= most_pieces {
                return Err(Error::OutOfMemory(format!("{bytes} bytes for an entry of an index")));
            }
            let region = Region::new(Account::Memtable, size)
                .map_err(|_| Error::OutOfMemory(format!("{size} bytes for entries of an index")))?;
            self.bytes += region.len();
            self.pieces.push((region, 0));
        }
        let piece = self.pieces.len() - 1;
        let used = &mut self.pieces[piece].1;
        let place = piece * LARGEST_PIECE_BYTES + *used;
        *used += bytes;
        Ok(place as Place)
    }

    fn bytes_at(&self, place: Place) -> &[u8] {
        let place = place as usize;
        &self.pieces[place / LARGEST_PIECE_BYTES].0[place % LARGEST_PIECE_BYTES..]
    }

    fn bytes_at_mut(&mut self, place: Place) -> &mut [u8] {
        let place = place as usize;
        &mut self.pieces[place / LARGEST_PIECE_BYTES].0[place % LARGEST_PIECE_BYTES..]
    }

    fn at(&self, place: Place) -> (K::Ref<'_>, Change<'_>) {
        let bytes = self.bytes_at(place);
        let (key_bytes, value_bytes) = (u32_at(bytes, 12) as usize, u32_at(bytes, 16) as usize);
        let (key, rest) = bytes[HEAD_BYTES..].split_at(key_bytes);
        let ordinal = u64::from(u32_at(bytes, 4)) << 32 | u64::from(u32_at(bytes, 0));
        let (tombstone, supersedes) = (bytes[FLAGS] & TOMBSTONE != 0, bytes[FLAGS] & SUPERSEDES != 0);
        (K::read(key), Change { ordinal, value: &rest[..value_bytes], tombstone, supersedes })
    }

    fn entry_bytes(&self, place: Place) -> usize {
        let bytes = self.bytes_at(place);
        HEAD_BYTES + u32_at(bytes, 12) as usize + u32_at(bytes, 16) as usize
    }

    /// Of all entries, as they came.
    fn places(&self) -> impl Iterator<Item = Place> + use<'_, K> {
        self.pieces.iter().enumerate().flat_map(move |(piece, (_, used))| {
            let mut offset = 0;
            std::iter::from_fn(move || {
                let place = (piece * LARGEST_PIECE_BYTES + offset) as Place;
                let is_there = offset < *used;
                if is_there {
                    offset += self.entry_bytes(place);
                }
                is_there.then_some(place)
            })
        })
    }

    /// All entries that are not in the memtable, by their keys, of each key the newest first; what that takes.
    fn in_order(&self) -> (Vec<Sorted>, Charge) {
        let charge = Charge::new(Account::Memtable, (self.entries * size_of::<Sorted>()) as u64);
        let mut order = Vec::with_capacity(self.entries);
        let wanted = self.places().filter(|place| self.bytes_at(*place)[FLAGS] & TAKEN == 0);
        order.extend(wanted.map(|place| Sorted::new(self.key_bytes(place), place)));
        order.sort_unstable_by(|a, b| {
            let by_rest = || self.key_bytes(a.place()).cmp(self.key_bytes(b.place()));
            a.head().cmp(&b.head()).then_with(by_rest).then(b.place().cmp(&a.place()))
        });
        (order, charge)
    }

    /// The key, written out: in the order of keys.
    fn key_bytes(&self, place: Place) -> &[u8] {
        let bytes = self.bytes_at(place);
        &bytes[HEAD_BYTES..][..u32_at(bytes, 12) as usize]
    }

    /// The entries of a unique key, the newest first.
    fn versions(&self, key: K::Ref<'_>) -> impl Iterator<Item = Place> + use<'_, K> {
        let is_there = |place: &Place| *place != NOWHERE;
        let newest = (!self.slots.is_empty()).then(|| self.slots[self.slot_of(key).0].1);
        let older = move |place: &Place| Some(u32_at(self.bytes_at(*place), 8)).filter(is_there);
        std::iter::successors(newest.filter(is_there), older)
    }

    /// The slot of a unique key, or the one that it gets, and the key's hash. There are slots that are not taken.
    fn slot_of(&self, key: K::Ref<'_>) -> (usize, u32) {
        // The upper bits, spread.
        let hash = (K::hash(key).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as u32;
        let mut at = hash as usize & (self.slots.len() - 1);
        loop {
            let (other, place) = self.slots[at];
            if place == NOWHERE || (other == hash && K::cmp(K::read(self.key_bytes(place)), key).is_eq()) {
                return (at, hash);
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
    }

    #[cold]
    fn grow_slots(&mut self) {
        let slots = (2 * self.slots.len()).max(FIRST_SLOTS);
        self.charge.resize((slots * size_of::<Slot>()) as u64);
        let old = std::mem::replace(&mut self.slots, vec![(0, NOWHERE); slots]);
        for (hash, place) in old.into_iter().filter(|(_, place)| *place != NOWHERE) {
            let mut at = hash as usize & (slots - 1);
            while self.slots[at].1 != NOWHERE {
                at = (at + 1) & (slots - 1);
            }
            self.slots[at] = (hash, place);
        }
    }

    fn used_bytes(&self) -> usize {
        self.bytes + self.slots.len() * size_of::<Slot>()
    }

    /// Forgets all entries.
    fn clear(&mut self) {
        if self.used_bytes() > MOST_KEPT_BYTES {
            *self = Self::default();
            return;
        }
        // The last piece is as large as all others together.
        self.pieces.drain(..self.pieces.len().saturating_sub(1));
        self.pieces.iter_mut().for_each(|(_, used)| *used = 0);
        self.bytes = self.pieces.iter().map(|(region, _)| region.len()).sum();
        self.slots.fill((0, NOWHERE));
        (self.entries, self.keys) = (0, 0);
    }
}

/// An entry that is sorted: the first bytes of its key as a number in their order, by which most keys are told apart without
/// another look at memory, and its place.
#[derive(Clone, Copy)]
struct Sorted(u128);

impl Sorted {
    fn new(key: &[u8], place: Place) -> Self {
        let mut head = [0; size_of::<u128>() - size_of::<Place>()];
        let bytes = key.len().min(head.len());
        head[..bytes].copy_from_slice(&key[..bytes]);
        let mut all = [0; size_of::<u128>()];
        all[..head.len()].copy_from_slice(&head);
        all[head.len()..].copy_from_slice(&place.to_be_bytes());
        Sorted(u128::from_be_bytes(all))
    }

    fn head(self) -> u128 {
        self.0 >> Place::BITS
    }

    fn place(self) -> Place {
        self.0 as Place
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// What a transaction has gathered, in the state of its tree, for as long as this is here.
pub(crate) struct ShownPrivate<K: Stored> {
    tree: Arc<Tree<K>>,
    private: Arc<Private<K>>,
}

impl<K: Stored> ShownPrivate<K> {
    /// Row ids are never looked for by others: rows that nobody else knows have no locks that they could wait for.
    pub(crate) fn new(tree: &Arc<Tree<K>>, private: &Arc<Private<K>>) -> Option<Self> {
        if K::NEW_KEYS_COME_LAST {
            return None;
        }
        tree.edit(|state| state.privates.push(private.clone()));
        Some(ShownPrivate { tree: tree.clone(), private: private.clone() })
    }
}

impl<K: Stored> Drop for ShownPrivate<K> {
    fn drop(&mut self) {
        self.tree.edit(|state| state.privates.retain(|p| !Arc::ptr_eq(p, &self.private)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::hooks;
    use crate::tree::key::ByBytes;
    use crate::tree::stored::entry_value;

    fn private() -> (Arc<TxnState>, Arc<Private<ByBytes>>) {
        let owner = TxnState::new(TxnId(7));
        let private = Private::new(&owner).unwrap();
        (owner, private)
    }

    fn put(private: &Private<ByBytes>, key: &[u8], ordinal: u64, row: Option<u64>) {
        let value = entry_value(RowId(row.unwrap_or(1)), b"");
        private.put(&mut [std::ptr::null(); 2], key, Change::of_entry(ordinal, &value, row.is_none()), true).unwrap();
    }

    fn all(private: &Private<ByBytes>) -> Vec<(Vec<u8>, u64)> {
        let mut all = Vec::new();
        private
            .each(|key, change| {
                all.push((key.to_vec(), change.ordinal));
                Ok(())
            })
            .unwrap();
        all
    }

    #[test]
    fn entries_come_in_their_order_sorted_or_not() {
        let (_, private) = private();
        // Longer than what is compared at first, alike there, of one another's beginning, and with zeros at the end.
        let long: Vec<Vec<u8>> =
            (0..5000u32).map(|i| format!("a long beginning {:05}", i * 7919 % 5000).into()).collect();
        let odd: [&[u8]; 5] = [b"", b"\0", b"a", b"a\0", b"a long beginning "];
        let keys = || odd.iter().copied().chain(long.iter().map(Vec::as_slice));
        for (ordinal, key) in keys().chain(keys().step_by(3)).enumerate() {
            put(&private, key, ordinal as u64, Some(1));
        }
        assert!(private.mem.is_empty(), "sorted too early");
        let found = all(&private);
        let mut wanted = found.clone();
        wanted.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
        assert_eq!(found, wanted);
        assert_eq!(found.len(), keys().count() + keys().step_by(3).count());
        assert_eq!(private.sorted().unwrap().versions(), found.len());
        assert_eq!(all(&private), found, "from the memtable");
        put(&private, b"b", 1 << 20, None);
        assert_eq!(all(&private).last(), Some(&(b"b".to_vec(), 1 << 20)));
        assert_eq!(private.versions(), found.len() + 1);
    }

    #[test]
    fn the_newest_of_a_key_is_found_among_many() {
        let (_, private) = private();
        for n in 0..3000u64 {
            put(&private, &n.to_be_bytes(), n, Some(n));
        }
        for n in (0..3000u64).step_by(7) {
            put(&private, &n.to_be_bytes(), 5000 + n, None);
        }
        for n in 0..3000u64 {
            let (ordinal, tombstone) = if n % 7 == 0 { (5000 + n, true) } else { (n, false) };
            let row = RowId(if tombstone { 1 } else { n });
            assert_eq!(private.newest_unsorted(&n.to_be_bytes()), Some(Newest { ordinal, row, tombstone }));
        }
        assert_eq!(private.newest_unsorted(b"other"), None);
        private.sorted().unwrap();
        assert_eq!(private.newest_unsorted(&0u64.to_be_bytes()), None, "it is in the memtable");
    }

    /// A spill leaves out what has nothing: it was left out for good, and the rows had no entry.
    #[test]
    fn what_others_bring_to_its_place_while_it_is_counted_is_not_nothing() {
        let (_, private) = private();
        put(&private, b"a", 1, Some(1));
        let others = private.clone();
        hooks::at("what lies as it came is counted", move || assert!(others.sorted().unwrap().first().is_some()));
        assert!(private.content_bytes(1) > 0);
        assert!(hooks::all_done() && !private.mem.is_empty());
        assert!(private.content_bytes(1) > 0);
    }

    #[test]
    fn what_is_rolled_back_is_not_there() {
        let (owner, private) = private();
        put(&private, b"a", 1, Some(1));
        put(&private, b"a", 2, Some(2));
        put(&private, b"b", 3, Some(3));
        let before = private.content_bytes(usize::MAX);
        owner.abort_ordinals(2, 4);
        assert_eq!(private.newest_unsorted(b"a").map(|n| n.ordinal), Some(1));
        assert_eq!(private.newest_unsorted(b"b"), None);
        assert_eq!(all(&private), [(b"a".to_vec(), 1)]);
        assert!(private.content_bytes(usize::MAX) < before);
        private.sorted().unwrap();
        assert_eq!(all(&private), [(b"a".to_vec(), 1)]);
    }

    #[test]
    fn memory_is_kept_only_where_it_is_little() {
        let (_, private) = private();
        put(&private, b"a", 1, Some(1));
        let little = private.unsorted.read().used_bytes();
        assert!(little <= 2 * FIRST_PIECE_BYTES);
        private.sorted().unwrap();
        assert_eq!(private.unsorted.read().used_bytes(), little);
        for n in 0..10_000u64 {
            put(&private, &n.to_be_bytes(), 2 + n, Some(n));
        }
        assert!(private.unsorted.read().used_bytes() > MOST_KEPT_BYTES);
        let slots = private.unsorted.read().slots.len() * size_of::<Slot>();
        assert_eq!(private.unsorted.read().charge.bytes(), slots as u64);
        private.sorted().unwrap();
        assert_eq!(private.unsorted.read().used_bytes(), 0);
    }
}
