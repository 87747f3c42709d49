//! Where a search in a memtable begins: some of its nodes, about every other one, in one sorted array.
//!
//! On its way down a skip list a search meets nodes that lie anywhere in memory, one after the other. An array's ranks lie
//! together, and over them a search tree without pointers: each step reads one line of the processor's cache, and the upper steps
//! read few lines in all (J. Rao and K. A. Ross, "Cache Conscious Indexing for Decision-Support in Main Memory", VLDB 1999, the
//! CSS-tree). Invariants: an array does not change; its nodes are linked at levels 0 and 1 and in the order of their keys. As no
//! node is ever removed, an old array stays right: what came since lies a few steps behind one of its nodes.

use crate::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use crate::tree::arena::Arena;
use crate::tree::key::Rank;
use esker_format::prefetch;
use std::mem::size_of;

/// So many nodes make the first array; each further one comes when there are twice as many. Few in tests, so that there always
/// are some.
const FIRST_NODES: usize = if cfg!(test) { 4 } else { 128 };

/// So many keys are looked for at once, at most: about as many lines as a processor fetches beside each other.
pub(crate) const TOGETHER: usize = 12;

/// So many ranks are looked at together: they fill a line of the processor's cache, or the two beside each other that it fetches as
/// one.
const LINE: usize = 8;
/// Enough for 2^36 nodes.
const MOST_LEVELS: usize = 12;

/// What [`Fences::newest`] points to, in the arena.
struct Array<N, R> {
    nodes: *const *const N,
    count: usize,
    /// Of the nodes; then level by level the last rank of each line of the level below, up to a level of one line. Each with its
    /// length.
    ranks: [(*const R, usize); MOST_LEVELS],
    levels: usize,
}

/// What every search reads, in a line of the processor's cache which those who count do not write.
#[repr(align(128))]
struct Apart<T>(T);

/// Of one memtable, in its arena.
pub(crate) struct Fences<N, R> {
    newest: Apart<AtomicPtr<Array<N, R>>>,
    /// How many there are in the list.
    nodes: AtomicUsize,
}

impl<N, R: Rank> Fences<N, R> {
    pub(crate) fn new() -> Self {
        Fences { newest: Apart(AtomicPtr::new(std::ptr::null_mut())), nodes: AtomicUsize::new(0) }
    }

    /// One node more that is linked as fences are. For one caller each time that an array is to be made: of how many.
    pub(crate) fn count(&self) -> Option<usize> {
        let nodes = self.nodes.fetch_add(1, Ordering::Release) + 1;
        (nodes >= FIRST_NODES && nodes.is_power_of_two()).then_some(nodes)
    }

    /// Makes an array of these nodes, `count` of them at most; without memory for it the last one serves on.
    pub(crate) fn make(&self, arena: &Arena, count: usize, nodes: impl Iterator<Item = (R, *const N)>) {
        if let Some(array) = Array::new(arena, count, nodes) {
            self.newest.0.store(array, Ordering::Release);
        }
    }

    fn newest(&self) -> Option<&Array<N, R>> {
        // SAFETY: null, or an array that was written before it was published, in the arena of the memtable that owns `self`.
        unsafe { self.newest.0.load(Ordering::Acquire).as_ref() }
    }

    /// The nodes of the last array.
    pub(crate) fn nodes(&self) -> &[*const N] {
        self.newest().map(Array::nodes).unwrap_or_default()
    }

    /// The last node before a key, of those in the array: its rank is less than `rank`, or equal and `is_less` says so.
    #[inline]
    pub(crate) fn last_before(&self, rank: R, is_less: impl Fn(*const N) -> bool) -> Option<*const N> {
        let array = self.newest()?;
        let (ranks, nodes) = (array.level(0), array.nodes());
        let mut before = array.ranks_below(rank);
        if ranks.get(before) == Some(&rank) {
            // Mostly it is the only one.
            let alike = match ranks.get(before + 1) == Some(&rank) {
                true => before + ranks[before..].partition_point(|other| *other == rank),
                false => before + 1,
            };
            before += nodes[before..alike].partition_point(|node| is_less(*node));
        }
        Some(nodes[before.checked_sub(1)?])
    }
}

/// For each of these ranks, [`TOGETHER`] at most, the last node of its array that has a lesser one, which is on its way from
/// memory; null if there is none. Unlike [`Fences::last_before`] it compares no nodes: where many have one rank it is farther away.
pub(crate) fn before_each<'a, N: 'a, R: Rank + 'a>(
    wanted: impl Iterator<Item = (&'a Fences<N, R>, R)>,
) -> [*const N; TOGETHER] {
    let mut places = [const { None }; TOGETHER];
    for (place, (fences, rank)) in places.iter_mut().zip(wanted) {
        *place = fences.newest().map(|array| (array, rank, 0));
    }
    let levels = places.iter().flatten().map(|(array, ..)| array.levels).max().unwrap_or(0);
    for level in (0..levels).rev() {
        for (array, rank, place) in places.iter_mut().flatten().filter(|(array, ..)| level < array.levels) {
            *place = array.ranks_below_at(level, *place, *rank);
            match level.checked_sub(1) {
                Some(below) => prefetch(array.level(below).as_ptr().wrapping_add(*place * LINE)),
                None => prefetch(array.nodes.wrapping_add(place.saturating_sub(1))),
            }
        }
    }
    places.map(|place| {
        let node =
            place.and_then(|(array, _, place)| array.nodes().get(place.checked_sub(1)?).copied()).unwrap_or_default();
        prefetch(node);
        node
    })
}

impl<N, R: Rank> Array<N, R> {
    fn new(arena: &Arena, count: usize, nodes: impl Iterator<Item = (R, *const N)>) -> Option<*mut Self> {
        let room = arena.allocate(size_of::<Self>() + count * size_of::<*const N>()).ok()?.cast::<Self>();
        let lowest = new_level::<R>(arena, count)?;
        // SAFETY: fresh, aligned to 8 bytes as all its types are, and large enough for an array and `count` nodes.
        unsafe {
            let to_nodes = room.add(1).cast::<*const N>();
            let mut made = 0;
            for (rank, node) in nodes.take(count) {
                to_nodes.add(made).write(node);
                lowest.add(made).write(rank);
                made += 1;
            }
            let ranks = [(lowest.cast_const(), made); MOST_LEVELS];
            room.write(Array { nodes: to_nodes, count: made, ranks, levels: 1 });
            (*room).make_levels(arena)?;
        }
        Some(room)
    }

    /// Those above the lowest.
    fn make_levels(&mut self, arena: &Arena) -> Option<()> {
        while self.levels < MOST_LEVELS && self.level(self.levels - 1).len() > LINE {
            let lines = self.level(self.levels - 1).chunks(LINE);
            let (count, above) = (lines.len(), new_level::<R>(arena, lines.len())?);
            for (place, last) in lines.filter_map(<[R]>::last).enumerate() {
                // SAFETY: there is room for as many as there are lines.
                unsafe { above.add(place).write(*last) };
            }
            self.ranks[self.levels] = (above, count);
            self.levels += 1;
        }
        Some(())
    }

    fn nodes(&self) -> &[*const N] {
        // SAFETY: so many were written, in an arena that outlives `self`.
        unsafe { std::slice::from_raw_parts(self.nodes, self.count) }
    }

    #[inline]
    fn level(&self, level: usize) -> &[R] {
        let (ranks, count) = self.ranks[level];
        // SAFETY: so many were written, in an arena that outlives `self`.
        unsafe { std::slice::from_raw_parts(ranks, count) }
    }

    /// How many nodes have a lesser rank.
    #[inline]
    fn ranks_below(&self, rank: R) -> usize {
        let mut place = 0;
        for level in (0..self.levels).rev() {
            place = self.ranks_below_at(level, place, rank);
        }
        place
    }

    /// How many ranks of a level are less, if those of the level above are `place`.
    #[inline]
    fn ranks_below_at(&self, level: usize, place: usize, rank: R) -> usize {
        let ranks = self.level(level);
        // Beyond the last line where all are less.
        let from = (place * LINE).min(ranks.len());
        let line = &ranks[from..(from + LINE).min(ranks.len())];
        from + line.iter().map(|r| usize::from(*r < rank)).sum::<usize>()
    }
}

/// Room for so many ranks, which begins where a line does.
fn new_level<R>(arena: &Arena, ranks: usize) -> Option<*mut R> {
    let room = arena.allocate((ranks + LINE) * size_of::<R>()).ok()?;
    // SAFETY: less than so many ranks are passed over, and there is room for more.
    Some(unsafe { room.add(room.align_offset(LINE * size_of::<R>())) }.cast())
}
