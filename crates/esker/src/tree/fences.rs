//! Where a search in a memtable begins: some of its nodes, about one in four, in one sorted array.
//!
//! On its way down a skip list a search meets nodes that lie anywhere in memory, one after the other; what is compared in an
//! array lies together. Invariants: an array does not change; its nodes are linked at levels 0 and 1 and in the order of their
//! keys. As no node is ever removed, an old array stays right: what came since lies a few steps behind one of its nodes.

use crate::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use crate::tree::arena::Arena;
use std::mem::size_of;

/// So many versions make the first array; each further one comes when there are twice as many. Few in tests, so that there
/// always are some.
const FIRST_VERSIONS: usize = if cfg!(test) { 8 } else { 256 };

/// A node, and its key's rank.
struct Fence<N> {
    rank: u64,
    node: *const N,
}

/// What [`Fences::newest`] points to, in the arena.
struct Array<N> {
    count: usize,
    first: *const Fence<N>,
}

/// Of one memtable, in its arena.
pub(crate) struct Fences<N> {
    newest: AtomicPtr<Array<N>>,
    versions: AtomicUsize,
}

impl<N> Fences<N> {
    pub(crate) fn new() -> Self {
        Fences { newest: AtomicPtr::new(std::ptr::null_mut()), versions: AtomicUsize::new(0) }
    }

    /// How many versions were counted.
    pub(crate) fn versions(&self) -> usize {
        self.versions.load(Ordering::Acquire)
    }

    /// One version more. True for one caller each time that an array is to be made.
    pub(crate) fn count(&self) -> bool {
        let versions = self.versions.fetch_add(1, Ordering::Release) + 1;
        versions >= FIRST_VERSIONS && versions.is_power_of_two()
    }

    /// Makes an array of these nodes, `count` of them at most; without memory for it the last one serves on.
    pub(crate) fn make(&self, arena: &Arena, count: usize, nodes: impl Iterator<Item = (u64, *const N)>) {
        let Ok(room) = arena.allocate(size_of::<Array<N>>() + count * size_of::<Fence<N>>()) else { return };
        let array = room.cast::<Array<N>>();
        // SAFETY: fresh, aligned to 8 bytes as both types are, large enough for the array's head and `count` fences.
        unsafe {
            let first = array.add(1).cast::<Fence<N>>();
            let mut made = 0;
            for (rank, node) in nodes.take(count) {
                first.add(made).write(Fence { rank, node });
                made += 1;
            }
            array.write(Array { count: made, first });
        }
        self.newest.store(array, Ordering::Release);
    }

    /// The last node before a key, of those in the array: its rank is less than `rank`, or equal and `is_less` says so.
    #[inline]
    pub(crate) fn last_before(&self, rank: u64, is_less: impl Fn(*const N) -> bool) -> Option<*const N> {
        // SAFETY: null, or an array that was written before it was published, in the arena of the memtable that owns `self`.
        let fences = unsafe {
            let array = self.newest.load(Ordering::Acquire).as_ref()?;
            std::slice::from_raw_parts(array.first, array.count)
        };
        let before = fences.partition_point(|f| f.rank < rank || (f.rank == rank && is_less(f.node)));
        Some(fences[before.checked_sub(1)?].node)
    }
}
