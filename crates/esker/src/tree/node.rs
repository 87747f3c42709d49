//! What a memtable's arena holds: nodes, each a key with its places in the levels of the list, and versions, which hang from them.
//!
//! They are followed in the arena by what belongs to them. A reference to one covers no more than its type says, so what
//! follows is reached by the raw pointers that the arena gave, or is part of the type. Invariants: see `memtable.rs`.

use crate::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use crate::tree::arena::Arena;
use crate::tree::key::{ByRow, Key};
use crate::version::{Aborted, ACTIVE};
use crate::Result;
use esker_format::{prefetch, CommitSeq, Lsn, TxnId, VersionTag};
use std::marker::PhantomData;
use std::mem::{align_of, size_of, MaybeUninit};
use std::ops::Deref;

pub(super) const MAX_HEIGHT: usize = 12;
/// Nodes that are linked here are those where a search may begin.
pub(super) const FENCE_LEVEL: usize = 1;

/// A transaction's status word as this memtable's versions see it; lives in the arena.
pub(crate) struct TxnSlot {
    pub(crate) txn: TxnId,
    status: AtomicU64,
    /// Where its redo lies in the log if it was prepared and then committed; else the largest value.
    redo_at: AtomicU64,
    /// What its transaction has rolled back, if anything; the memtable keeps it.
    pub(super) aborted: AtomicPtr<Aborted>,
}

impl TxnSlot {
    /// Of a transaction that has not ended.
    pub(super) fn new(txn: TxnId) -> Self {
        TxnSlot {
            txn,
            status: AtomicU64::new(ACTIVE),
            redo_at: AtomicU64::new(u64::MAX),
            aborted: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    pub(crate) fn redo_at(&self) -> Lsn {
        Lsn(self.redo_at.load(Ordering::Acquire))
    }

    pub(crate) fn set_redo_at(&self, lsn: Lsn) {
        self.redo_at.store(lsn.0, Ordering::Release);
    }

    pub(crate) fn status(&self) -> u64 {
        self.status.load(Ordering::Acquire)
    }

    pub(crate) fn end(&self, status: u64) {
        self.status.store(status, Ordering::Release);
    }
}

/// One version of a row or an entry.
#[repr(C)]
pub(crate) struct Version {
    head: VersionHead,
    value: [u8],
}

/// What a version is, but for its key and its transaction.
#[derive(Clone, Copy)]
pub(crate) struct Change<'a> {
    /// Which change of its transaction's it is.
    pub(crate) ordinal: u64,
    /// A packed row, or what an entry holds; nothing for a row's tombstone.
    pub(crate) value: &'a [u8],
    pub(crate) tombstone: bool,
    /// See [`esker_format::VersionTag::supersedes`].
    pub(crate) supersedes: bool,
}

impl<'a> Change<'a> {
    /// Of an entry of a key tree. What it supersedes is not looked up.
    pub(crate) fn of_entry(ordinal: u64, value: &'a [u8], tombstone: bool) -> Self {
        Change { ordinal, value, tombstone, supersedes: tombstone }
    }

    /// Of a row; without a packed row: its deletion.
    pub(crate) fn of_row(ordinal: u64, packed: Option<&'a [u8]>, supersedes: bool) -> Self {
        Change { ordinal, value: packed.unwrap_or_default(), tombstone: packed.is_none(), supersedes }
    }

    /// As it stands in a run of a transaction that has not ended.
    pub(crate) fn tag(&self) -> VersionTag {
        let Change { ordinal, tombstone, supersedes, .. } = *self;
        VersionTag { seq: CommitSeq::ZERO, ordinal, tombstone, supersedes }
    }
}

/// A version but for its bytes: of one size, so that one word points to it.
pub(crate) struct VersionHead {
    pub(super) older: AtomicPtr<VersionHead>,
    pub(super) slot: *const TxnSlot,
    pub(crate) ordinal: u64,
    pub(super) bytes: u32,
    pub(crate) tombstone: bool,
    /// See [`esker_format::VersionTag::supersedes`].
    pub(crate) supersedes: bool,
}

impl Deref for Version {
    type Target = VersionHead;
    fn deref(&self) -> &VersionHead {
        &self.head
    }
}

impl VersionHead {
    /// The whole version.
    ///
    /// # Safety
    /// `head` is null or what [`Memtable::new_version`] gave, published, in an arena that outlives `'a`.
    unsafe fn version<'a>(head: *const VersionHead) -> Option<&'a Version> {
        // SAFETY: `bytes` bytes were written right behind the head before it was published; the arena gives multiples of
        // 8 bytes, so that the type's last padding is the allocation's, too.
        unsafe {
            let bytes = head.as_ref()?.bytes as usize;
            (std::ptr::slice_from_raw_parts(head.cast::<u8>(), bytes) as *const Version).as_ref()
        }
    }
}

impl Version {
    /// See [`Change::value`].
    pub(crate) fn value(&self) -> &[u8] {
        &self.value
    }

    /// What it is, to be written elsewhere.
    pub(crate) fn change(&self) -> Change<'_> {
        let VersionHead { ordinal, tombstone, supersedes, .. } = self.head;
        Change { ordinal, value: &self.value, tombstone, supersedes }
    }

    /// Bytes of memory that it takes, with its row's node.
    pub(crate) fn memory_bytes(&self) -> usize {
        std::mem::size_of_val(self) + size_of::<Node<ByRow>>()
    }

    /// What a block says of it, with this commit sequence.
    pub(crate) fn tag(&self, seq: CommitSeq) -> VersionTag {
        VersionTag { seq, ordinal: self.ordinal, tombstone: self.tombstone, supersedes: self.supersedes }
    }

    pub(crate) fn slot(&self) -> &TxnSlot {
        // SAFETY: slots live in the same arena as their versions.
        unsafe { &*self.slot }
    }
}

/// A key of the memtable.
#[repr(C)]
pub(crate) struct Node<K: Key = ByRow> {
    key: K::InNode,
    pub(super) head: AtomicPtr<VersionHead>,
    pub(super) height: usize,
    /// The next node at level 0; those of the upper levels follow the node in the arena.
    pub(super) next: AtomicPtr<Node<K>>,
}

impl<K: Key> Node<K> {
    #[inline]
    pub(crate) fn key(&self) -> K::Ref<'_> {
        // SAFETY: kept in the node's own arena, which outlives `&self`.
        unsafe { K::kept(&self.key) }
    }

    /// The same, as long as the arena.
    ///
    /// # Safety
    /// The arena outlives whoever uses it.
    #[inline]
    pub(crate) unsafe fn key_for_ever(&self) -> K::Ref<'static> {
        // SAFETY: the caller's promise.
        unsafe { K::kept(&*std::ptr::from_ref(&self.key)) }
    }

    /// How the node's key compares with another one, whose head is given.
    #[inline]
    pub(super) fn cmp_key(&self, head: K::Head, key: K::Ref<'_>) -> std::cmp::Ordering {
        // SAFETY: kept in the node's own arena, which outlives `&self`.
        unsafe { K::cmp_kept(&self.key, head, key) }
    }

    /// The pointer to the next node at `level`.
    ///
    /// # Safety
    /// `node` is what [`new_node`] gave, as a raw pointer ever since (one that was a reference covers level 0 alone), has
    /// more than `level` levels, and its arena outlives `'a`.
    pub(super) unsafe fn next<'a>(node: *const Node<K>, level: usize) -> &'a AtomicPtr<Node<K>> {
        // SAFETY: `height` pointers lie from `next` on, which is the last field.
        unsafe {
            debug_assert!(level < (*node).height);
            &*std::ptr::addr_of!((*node).next).add(level)
        }
    }

    /// Its newest version is asked for soon.
    #[inline]
    pub(crate) fn prefetch_newest(&self) {
        const LINE: usize = 64;
        let newest = self.head.load(Ordering::Relaxed).cast::<u8>().cast_const();
        (0..K::VERSION_LINES).for_each(|line| prefetch(newest.wrapping_add(line * LINE)));
    }

    /// Nodes are passed one by one from here: the newest version of the next one, and the node behind that, are asked for soon.
    #[inline]
    pub(crate) fn prefetch_behind(&self) {
        // SAFETY: nodes live as long as the arena, which outlives `&self`.
        if let Some(next) = unsafe { self.next.load(Ordering::Acquire).as_ref() } {
            next.prefetch_newest();
            prefetch(next.next.load(Ordering::Relaxed).cast_const());
        }
    }

    /// Versions, newest first.
    pub(crate) fn versions(&self) -> impl Iterator<Item = &Version> {
        let mut at = self.head.load(Ordering::Acquire);
        std::iter::from_fn(move || {
            // SAFETY: versions live as long as the arena, which outlives `&self`.
            let v = unsafe { VersionHead::version(at)? };
            at = v.older.load(Ordering::Acquire);
            Some(v)
        })
    }
}

/// One in two rises a level, so that there are fences enough, and of these one in four each further one.
pub(super) fn height_of(hash: u64) -> usize {
    let mut h = hash.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    h ^= h >> 29;
    h = h.wrapping_mul(0xBF58_476D_1CE4_E5B9);
    h ^= h >> 32;
    (h.trailing_zeros().div_ceil(2) as usize + 1).min(MAX_HEIGHT)
}

/// What the list begins with: a node above which no key stands. Not in the arena, so that an empty memtable takes no
/// region. A raw pointer, since others write behind it.
pub(super) struct Head<K: Key> {
    place: *mut [MaybeUninit<u64>],
    kind: PhantomData<Node<K>>,
}

impl<K: Key> Head<K> {
    pub(super) fn new() -> Self {
        const { assert!(align_of::<Node<K>>() <= align_of::<u64>()) };
        let words = node_bytes::<K>(MAX_HEIGHT).div_ceil(size_of::<u64>());
        let place = Box::into_raw(Box::new_uninit_slice(words));
        // SAFETY: fresh, aligned, large enough.
        unsafe { init_node::<K>(place.cast(), K::LEAST, MAX_HEIGHT) };
        Head { place, kind: PhantomData }
    }

    pub(super) fn node(&self) -> *const Node<K> {
        self.place.cast()
    }
}

impl<K: Key> Drop for Head<K> {
    fn drop(&mut self) {
        // SAFETY: of a box, and dropped once; a node has nothing to drop.
        drop(unsafe { Box::from_raw(self.place) });
    }
}

fn node_bytes<K: Key>(height: usize) -> usize {
    size_of::<Node<K>>() + (height - 1) * size_of::<AtomicPtr<Node<K>>>()
}

/// # Safety
/// `place` is aligned, has [`node_bytes`] and is nobody else's.
unsafe fn init_node<K: Key>(place: *mut Node<K>, key: K::InNode, height: usize) {
    let none = || AtomicPtr::new(std::ptr::null_mut());
    // SAFETY: the caller's promise.
    unsafe {
        place.write(Node { key, head: AtomicPtr::new(std::ptr::null_mut()), height, next: none() });
        for level in 1..height {
            std::ptr::addr_of_mut!((*place).next).add(level).write(none());
        }
    }
}

pub(super) fn new_node<K: Key>(arena: &Arena, key: K::Ref<'_>, height: usize) -> Result<*const Node<K>> {
    let key = K::keep(arena, key)?;
    let p = arena.allocate(node_bytes::<K>(height))?.cast::<Node<K>>();
    // SAFETY: fresh, aligned, large enough.
    unsafe { init_node(p, key, height) };
    Ok(p)
}
