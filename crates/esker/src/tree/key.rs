//! What trees are sorted by: row ids, or the bytes of an index's key. All that holds, seeks or compares keys is written
//! once, over [`Key`]; for row ids it comes down to arithmetic on integers.
//!
//! Invariant: keys of one tree have one total order, in memory and on disk: that of their integers, or of their bytes.

use crate::tally::tally;
use crate::tree::arena::Arena;
use crate::Result;
use esker_format::RowId;
use std::cmp::Ordering;
use std::fmt::Debug;
use std::sync::Arc;

/// A kind of key. The type itself has no values.
pub(crate) trait Key: Sized + Send + Sync + 'static {
    /// A key that somebody else keeps.
    type Ref<'a>: Copy + Debug;
    /// A key by itself.
    type Own: Clone + Debug + Ord + Send + Sync;
    /// Room for one key after the other.
    type Room: Default + Send;
    /// As it stands in a node of a memtable.
    type InNode;
    /// What of a key is compared first, without a look at the rest.
    type Head: Copy;
    /// A number that does not fall where keys rise.
    type Rank: Rank;
    /// Not above any key, and in no arena.
    const LEAST: Self::InNode;
    /// Lines of the processor's cache in which a short version lies.
    const VERSION_LINES: usize;

    /// The order of keys.
    fn cmp(a: Self::Ref<'_>, b: Self::Ref<'_>) -> Ordering;

    /// A copy of a key.
    fn own(key: Self::Ref<'_>) -> Self::Own;

    /// A key that is kept by itself.
    fn lend(key: &Self::Own) -> Self::Ref<'_>;

    /// Puts a copy of a key into the room, in the place of the last one.
    fn put(room: &mut Self::Room, key: Self::Ref<'_>);

    /// What was put there last.
    fn in_room(room: &Self::Room) -> Self::Ref<'_>;

    /// The same for a shorter time.
    fn short<'a: 'b, 'b>(key: Self::Ref<'a>) -> Self::Ref<'b>;

    /// Puts a key where a node can keep it.
    fn keep(arena: &Arena, key: Self::Ref<'_>) -> Result<Self::InNode>;

    /// The key of a node.
    ///
    /// # Safety
    /// `kept` is what [`keep`](Self::keep) gave for an arena that outlives `'a`.
    unsafe fn kept<'a>(kept: &Self::InNode) -> Self::Ref<'a>;

    /// What [`cmp_kept`](Self::cmp_kept) wants of a key that is compared with many.
    fn head(key: Self::Ref<'_>) -> Self::Head;

    /// Compares the key of a node with another one.
    ///
    /// # Safety
    /// As for [`kept`](Self::kept), as long as the call lasts.
    unsafe fn cmp_kept(kept: &Self::InNode, head: Self::Head, key: Self::Ref<'_>) -> Ordering;

    /// How long it is, written out, in bytes.
    fn length(key: Self::Ref<'_>) -> usize;

    /// Writes it out.
    ///
    /// # Panics
    /// There is not just the room for it.
    fn write(key: Self::Ref<'_>, out: &mut [u8]);

    /// A key that was written out, and nothing else.
    fn read(bytes: &[u8]) -> Self::Ref<'_>;

    /// Its rank.
    fn rank(key: Self::Ref<'_>) -> Self::Rank;

    /// Nodes get their heights by this: a function of the key, so that a seed replays exactly.
    fn hash(key: Self::Ref<'_>) -> u64;
}

/// A number by which keys are looked for before they are compared.
pub(crate) trait Rank: Copy + Ord + Send + Sync {
    /// Which part of the way from `first` to `last`, which is not the same, is to be gone to it. It is none of those beyond them.
    fn part(self, first: Self, last: Self) -> f64;
}

impl Rank for u64 {
    #[inline]
    fn part(self, first: u64, last: u64) -> f64 {
        (self - first) as f64 / (last - first) as f64
    }
}

/// The first 16 bytes of a key, as a number in their order; what is shorter ends with zeros. Of a key of several columns the first
/// 8 are often those of many others, too: a tenant's, a day's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FirstBytes {
    high: u64,
    low: u64,
}

impl FirstBytes {
    const ZERO: FirstBytes = FirstBytes { high: 0, low: 0 };

    #[inline]
    fn number(self) -> u128 {
        u128::from(self.high) << 64 | u128::from(self.low)
    }
}

impl From<&[u8]> for FirstBytes {
    #[inline]
    fn from(key: &[u8]) -> Self {
        let padded = || {
            let mut all = [0; size_of::<FirstBytes>()];
            all[..key.len()].copy_from_slice(key);
            all
        };
        let number = u128::from_be_bytes(key.first_chunk().copied().unwrap_or_else(padded));
        FirstBytes { high: (number >> 64) as u64, low: number as u64 }
    }
}

impl Ord for FirstBytes {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        self.number().cmp(&other.number())
    }
}

impl PartialOrd for FirstBytes {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Rank for FirstBytes {
    #[inline]
    fn part(self, first: Self, last: Self) -> f64 {
        (self.number() - first.number()) as f64 / (last.number() - first.number()) as f64
    }
}

/// A table's rows, by their ids.
pub(crate) enum ByRow {}

impl Key for ByRow {
    type Ref<'a> = RowId;
    type Own = RowId;
    type Room = RowId;
    type InNode = RowId;
    type Head = ();
    type Rank = u64;
    const LEAST: RowId = RowId::ZERO;
    const VERSION_LINES: usize = 4;

    #[inline]
    fn cmp(a: RowId, b: RowId) -> Ordering {
        a.cmp(&b)
    }

    #[inline]
    fn own(key: RowId) -> RowId {
        key
    }

    #[inline]
    fn lend(key: &RowId) -> RowId {
        *key
    }

    #[inline]
    fn put(room: &mut RowId, key: RowId) {
        *room = key;
    }

    #[inline]
    fn in_room(room: &RowId) -> RowId {
        *room
    }

    #[inline]
    fn short<'a: 'b, 'b>(key: RowId) -> RowId {
        key
    }

    #[inline]
    fn keep(_: &Arena, key: RowId) -> Result<RowId> {
        Ok(key)
    }

    #[inline]
    unsafe fn kept<'a>(kept: &RowId) -> Self::Ref<'a> {
        *kept
    }

    #[inline]
    fn head(_: RowId) {}

    #[inline]
    unsafe fn cmp_kept(kept: &RowId, (): (), key: RowId) -> Ordering {
        kept.cmp(&key)
    }

    fn length(_: RowId) -> usize {
        size_of::<RowId>()
    }

    fn write(key: RowId, out: &mut [u8]) {
        out.copy_from_slice(&key.0.to_be_bytes());
    }

    fn read(bytes: &[u8]) -> RowId {
        RowId(bytes.iter().fold(0, |id, b| id << 8 | u64::from(*b)))
    }

    #[inline]
    fn rank(key: RowId) -> u64 {
        key.0
    }

    #[inline]
    fn hash(key: RowId) -> u64 {
        key.0
    }
}

/// An index's entries, by the bytes of their keys.
pub(crate) enum ByBytes {}

/// Bytes in an arena.
pub(crate) struct InArena {
    head: FirstBytes,
    at: *const u8,
    bytes: u32,
}

impl Key for ByBytes {
    type Ref<'a> = &'a [u8];
    type Own = Arc<[u8]>;
    type Room = Vec<u8>;
    type InNode = InArena;
    type Head = FirstBytes;
    type Rank = FirstBytes;
    const LEAST: InArena = InArena { head: FirstBytes::ZERO, at: std::ptr::NonNull::dangling().as_ptr(), bytes: 0 };
    const VERSION_LINES: usize = 1;

    fn cmp(a: &[u8], b: &[u8]) -> Ordering {
        a.cmp(b)
    }

    fn own(key: &[u8]) -> Arc<[u8]> {
        #[cfg(test)]
        copies::count();
        key.into()
    }

    fn lend(key: &Arc<[u8]>) -> &[u8] {
        key
    }

    fn put(room: &mut Vec<u8>, key: &[u8]) {
        room.clear();
        room.extend_from_slice(key);
    }

    fn in_room(room: &Vec<u8>) -> &[u8] {
        room
    }

    fn short<'a: 'b, 'b>(key: &'a [u8]) -> &'b [u8] {
        key
    }

    fn keep(arena: &Arena, key: &[u8]) -> Result<InArena> {
        let at = arena.allocate(key.len())?;
        // SAFETY: so many fresh bytes.
        unsafe { std::ptr::copy_nonoverlapping(key.as_ptr(), at, key.len()) };
        Ok(InArena { head: Self::head(key), at, bytes: key.len() as u32 })
    }

    #[inline]
    unsafe fn kept<'a>(kept: &InArena) -> &'a [u8] {
        // SAFETY: the caller's promise; `keep` wrote them, and nobody does again.
        unsafe { std::slice::from_raw_parts(kept.at, kept.bytes as usize) }
    }

    #[inline]
    fn head(key: &[u8]) -> FirstBytes {
        key.into()
    }

    #[inline]
    unsafe fn cmp_kept(kept: &InArena, head: FirstBytes, key: &[u8]) -> Ordering {
        // SAFETY: the caller's promise. Heads that differ tell; equal ones may be of keys that end with zeros.
        kept.head.cmp(&head).then_with(|| {
            #[cfg(test)]
            whole_keys::count();
            unsafe { Self::kept(kept) }.cmp(key)
        })
    }

    fn length(key: &[u8]) -> usize {
        key.len()
    }

    fn write(key: &[u8], out: &mut [u8]) {
        out.copy_from_slice(key);
    }

    fn read(bytes: &[u8]) -> &[u8] {
        bytes
    }

    #[inline]
    fn rank(key: &[u8]) -> FirstBytes {
        key.into()
    }

    fn hash(key: &[u8]) -> u64 {
        // FNV-1a: heights need no better one.
        key.iter().fold(0xCBF2_9CE4_8422_2325, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x100_0000_01B3))
    }
}

tally! {
    /// Counts the keys in memtables that this thread compared as a whole.
    whole_keys
}

/// Counts the keys of bytes that this thread allocated.
#[cfg(test)]
pub(crate) mod copies {
    use std::cell::Cell;

    thread_local! {
        static KEYS: Cell<usize> = const { Cell::new(0) };
    }

    pub(super) fn count() {
        KEYS.with(|k| k.set(k.get() + 1));
    }

    /// How many since the last call.
    pub(crate) fn take() -> usize {
        KEYS.with(|k| k.replace(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_do_not_fall_where_keys_rise() {
        let pieces: [&[u8]; 6] = [b"", b"\0", b"\x7f", b"seven b", b"16 bytes of them", b"\xff\xff"];
        let both = |a: &[u8], b: &[u8]| [a, b].concat();
        let mut keys: Vec<Vec<u8>> = pieces.iter().flat_map(|a| pieces.iter().map(|b| both(a, b))).collect();
        keys.sort_unstable();
        let ranks: Vec<FirstBytes> = keys.iter().map(|key| ByBytes::rank(key)).collect();
        assert!(ranks.is_sorted());
        // Of 16 bytes or fewer that do not end with zeros each has its own.
        let mut told = ranks.clone();
        told.dedup();
        keys.iter_mut().for_each(|key| {
            key.resize(16, 0);
        });
        keys.dedup();
        assert_eq!(told.len(), keys.len());
    }

    #[test]
    fn parts_of_the_way_are_told_where_only_the_last_bytes_differ() {
        let rank = |n: u64| ByBytes::rank(&[b"a tenant".as_slice(), &n.to_be_bytes()].concat());
        assert_eq!(rank(25).part(rank(0), rank(100)), 0.25);
        assert_eq!(25u64.part(0, 100), 0.25);
    }
}
