//! What trees are sorted by: row ids, or the bytes of an index's key. All that holds, seeks or compares keys is written
//! once, over [`Key`]; for row ids it comes down to arithmetic on integers.
//!
//! Invariant: keys of one tree have one total order, in memory and on disk: that of their integers, or of their bytes.

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
    /// Not above any key, and in no arena.
    const LEAST: Self::InNode;

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

    /// A number that does not fall where keys rise.
    fn rank(key: Self::Ref<'_>) -> u64;

    /// Nodes get their heights by this: a function of the key, so that a seed replays exactly.
    fn hash(key: Self::Ref<'_>) -> u64;
}

/// A table's rows, by their ids.
pub(crate) enum ByRow {}

impl Key for ByRow {
    type Ref<'a> = RowId;
    type Own = RowId;
    type Room = RowId;
    type InNode = RowId;
    type Head = ();
    const LEAST: RowId = RowId::ZERO;

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
    /// The first of them, as a number in their order; what is shorter ends with zeros.
    head: u64,
    at: *const u8,
    bytes: u32,
}

impl Key for ByBytes {
    type Ref<'a> = &'a [u8];
    type Own = Arc<[u8]>;
    type Room = Vec<u8>;
    type InNode = InArena;
    type Head = u64;
    const LEAST: InArena = InArena { head: 0, at: std::ptr::NonNull::dangling().as_ptr(), bytes: 0 };

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
    fn head(key: &[u8]) -> u64 {
        let mut head = [0; size_of::<u64>()];
        let bytes = key.len().min(head.len());
        head[..bytes].copy_from_slice(&key[..bytes]);
        u64::from_be_bytes(head)
    }

    #[inline]
    unsafe fn cmp_kept(kept: &InArena, head: u64, key: &[u8]) -> Ordering {
        // SAFETY: the caller's promise. Heads that differ tell; equal ones may be of keys that end with zeros.
        kept.head.cmp(&head).then_with(|| unsafe { Self::kept(kept) }.cmp(key))
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
    fn rank(key: &[u8]) -> u64 {
        Self::head(key)
    }

    fn hash(key: &[u8]) -> u64 {
        // FNV-1a: heights need no better one.
        key.iter().fold(0xCBF2_9CE4_8422_2325, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x100_0000_01B3))
    }
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
