//! Where regions come from: anonymous mappings cut into slots of one size class each.
//!
//! Owns all mappings. Sizes up to [`LARGEST_SLOT`] share slabs, so that any number of regions needs few mappings (the
//! operating system allows some 65,000 of them); larger ones have their own. A freed slot is either *hot* (still
//! resident, for the next region, [`HOT_BYTES`] in all) or *cold* (given back by MADV_DONTNEED). A slab without live or
//! hot slots is unmapped, except one per class.
//!
//! Invariant: a slot is in exactly one place: a live region, the hot list, its slab's cold list, or a thread that is
//! just giving it back.

use crate::region::{Reserve, PAGE_BYTES};
use esker_base::counters::{count, Counter};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

/// Largest size in bytes that is cut from a slab.
const LARGEST_SLOT: usize = 4 << 20;
/// Bytes that may stay resident in free slots.
const HOT_BYTES: usize = 6 << 20;
/// Bytes of them that may belong to one class, so that a class that was busy once leaves room for the others.
const HOT_CLASS_BYTES: usize = 1 << 20;
/// What the mappings are called, where the kernel gives them names.
const MAP_NAME: &std::ffi::CStr = c"esker";
/// Least bytes of a slab.
const SLAB_BYTES: usize = 4 << 20;
/// Least number of slots in a slab.
const SLAB_SLOTS: usize = 8;
/// Classes are 4 per doubling: 1 to 4 pages, then 5, 6, 7, 8, 10, 12, 14, 16, and so on.
const CLASSES: usize = class_of(LARGEST_SLOT) + 1;

/// The class whose slots are the smallest that hold `bytes`.
const fn class_of(bytes: usize) -> usize {
    let pages = if bytes == 0 { 1 } else { bytes.div_ceil(PAGE_BYTES) };
    if pages <= 4 {
        return pages - 1;
    }
    // Quarter steps between powers of two, counted from above 4 pages.
    let doublings = (pages - 1).ilog2() as usize - 2;
    let quarters = (pages - 1) >> doublings;
    4 * doublings + quarters
}

/// Slot bytes of a class.
const fn class_bytes(class: usize) -> usize {
    if class < 4 {
        return (class + 1) * PAGE_BYTES;
    }
    let doublings = (class - 4) / 4;
    ((class % 4 + 5) << doublings) * PAGE_BYTES
}

fn slab_slots(class: usize) -> usize {
    (SLAB_BYTES / class_bytes(class)).max(SLAB_SLOTS)
}

/// Lets `/proc/PID/smaps` show a mapping as `[anon:esker]`, so that whoever looks at a process sees whose memory it is.
/// Kernels without CONFIG_ANON_VMA_NAME (5.17 and later can have it) refuse, which changes nothing.
fn name(start: *mut libc::c_void, bytes: usize) {
    // SAFETY: the range is a mapping that was just made; the kernel copies the name.
    unsafe {
        let _ = libc::prctl(libc::PR_SET_VMA, libc::PR_SET_VMA_ANON_NAME, start, bytes, MAP_NAME.as_ptr());
    }
}

/// Where a region's memory lies, to find the way back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    bytes: usize,
    /// Class, slab and slot; none for a mapping of its own.
    slot: Option<(u8, u32, u32)>,
}

impl Place {
    /// Of a mapping that has nothing else in it.
    pub(crate) fn of_its_own(bytes: usize) -> Place {
        Place { bytes, slot: None }
    }

    /// Bytes of memory that it takes.
    pub(crate) fn bytes(self) -> usize {
        self.bytes
    }
}

struct Slab {
    start: NonNull<u8>,
    /// Slots that are neither live nor hot.
    cold: Vec<u32>,
}

#[derive(Default)]
struct Class {
    slabs: Vec<Option<Slab>>,
    /// Slabs with a cold slot. The first ones are used first, so that the last ones empty.
    with_cold: BTreeSet<u32>,
    hot: Vec<(u32, u32)>,
    empty_slabs: usize,
}

// SAFETY: the pointers are to mappings that are process-wide; access is under the class's lock.
unsafe impl Send for Class {}

/// An allocator. The process has one; tests make their own.
pub(crate) struct Slabs {
    classes: [Mutex<Class>; CLASSES],
    hot_bytes: AtomicUsize,
    live_bytes: AtomicU64,
    mapped_bytes: AtomicU64,
    mappings: AtomicU64,
}

static SLABS: std::sync::LazyLock<Slabs> = std::sync::LazyLock::new(Slabs::new);

/// Memory for at least `bytes` bytes, or none.
pub(crate) fn allocate(bytes: usize) -> Option<(NonNull<u8>, Place)> {
    #[cfg(feature = "sim")]
    if crate::scarce::is_refused() {
        return None;
    }
    if cfg!(miri) {
        return interpreted::allocate(bytes);
    }
    if cfg!(feature = "strict-memory") {
        return crate::strict::allocate(bytes);
    }
    SLABS.allocate(bytes)
}

/// Bytes of memory that `bytes` bytes take.
pub(crate) fn taken_bytes(bytes: usize) -> usize {
    if bytes > LARGEST_SLOT || cfg!(any(miri, feature = "strict-memory")) {
        return bytes.max(1).checked_next_multiple_of(PAGE_BYTES).unwrap_or(bytes);
    }
    class_bytes(class_of(bytes))
}

/// Takes back what [`allocate`] gave.
pub(crate) fn free(start: NonNull<u8>, place: Place) {
    if cfg!(miri) {
        return interpreted::free(start, place);
    }
    if cfg!(feature = "strict-memory") {
        return crate::strict::free(start, place);
    }
    SLABS.free(start, place);
}

/// Miri knows no mappings: under it each region is of the heap, whose every byte it watches.
mod interpreted {
    use super::{NonNull, Place, PAGE_BYTES};
    use std::alloc::{alloc_zeroed, dealloc, Layout};

    fn layout(bytes: usize) -> Option<Layout> {
        Layout::from_size_align(bytes.checked_next_multiple_of(PAGE_BYTES)?.max(PAGE_BYTES), PAGE_BYTES).ok()
    }

    pub(super) fn allocate(bytes: usize) -> Option<(NonNull<u8>, Place)> {
        let layout = layout(bytes)?;
        // SAFETY: the size is not zero.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some((start, Place { bytes: layout.size(), slot: None }))
    }

    pub(super) fn free(start: NonNull<u8>, place: Place) {
        if let Some(layout) = layout(place.bytes) {
            // SAFETY: from `allocate`, with the same layout.
            unsafe { dealloc(start.as_ptr(), layout) }
        }
    }
}

/// Counts a system call that gives so many bytes back.
fn give_back(bytes: usize, call: impl FnOnce() -> libc::c_int) {
    /// Of all of them: a microsecond is counted when it is full.
    static NS: AtomicU64 = AtomicU64::new(0);
    let start = Instant::now();
    call();
    let ns = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let before = NS.fetch_add(ns, Ordering::Relaxed);
    count(Counter::MemoryReturnedBytes, bytes as u64);
    count(Counter::MemoryReturnCalls, 1);
    count(Counter::MemoryReturnUs, (before.wrapping_add(ns) / 1000).wrapping_sub(before / 1000));
}

/// See [`crate::region::reserve`].
pub(crate) fn reserve() -> Reserve {
    SLABS.reserve()
}

/// See [`crate::region::trim`].
pub(crate) fn trim() {
    SLABS.trim();
}

impl Slabs {
    fn new() -> Self {
        Slabs {
            classes: std::array::from_fn(|_| Mutex::new(Class::default())),
            hot_bytes: AtomicUsize::new(0),
            live_bytes: AtomicU64::new(0),
            mapped_bytes: AtomicU64::new(0),
            mappings: AtomicU64::new(0),
        }
    }

    fn allocate(&self, bytes: usize) -> Option<(NonNull<u8>, Place)> {
        let (start, place) = if bytes > LARGEST_SLOT {
            let bytes = bytes.checked_next_multiple_of(PAGE_BYTES)?;
            (self.map(bytes)?, Place { bytes, slot: None })
        } else {
            self.take_slot(class_of(bytes))?
        };
        self.live_bytes.fetch_add(place.bytes as u64, Ordering::Relaxed);
        Some((start, place))
    }

    fn free(&self, start: NonNull<u8>, place: Place) {
        self.live_bytes.fetch_sub(place.bytes as u64, Ordering::Relaxed);
        match place.slot {
            None => self.unmap(start, place.bytes, place.bytes),
            Some((class, slab, slot)) => {
                let class = class as usize;
                if !self.keep_hot(class, slab, slot) {
                    self.cool(class, start, slab, slot);
                }
            }
        }
    }

    /// Lists a slot as hot, if there is room.
    fn keep_hot(&self, index: usize, slab: u32, slot: u32) -> bool {
        let bytes = class_bytes(index);
        let mut class = self.classes[index].lock();
        if (class.hot.len() + 1) * bytes > HOT_CLASS_BYTES {
            return false;
        }
        let room = |hot: usize| hot.checked_add(bytes).filter(|&sum| sum <= HOT_BYTES);
        let kept = self.hot_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room).is_ok();
        if kept {
            class.hot.push((slab, slot));
        }
        kept
    }

    fn take_slot(&self, index: usize) -> Option<(NonNull<u8>, Place)> {
        let bytes = class_bytes(index);
        let mut class = self.classes[index].lock();
        let (slab, slot) = match class.hot.pop() {
            Some(place) => {
                self.hot_bytes.fetch_sub(bytes, Ordering::Relaxed);
                place
            }
            None => self.take_cold(index, &mut class)?,
        };
        let slab_start = class.slabs[slab as usize].as_ref()?.start;
        drop(class);
        // SAFETY: the slot lies within its slab's mapping.
        let start = unsafe { slab_start.add(slot as usize * bytes) };
        Some((start, Place { bytes, slot: Some((index as u8, slab, slot)) }))
    }

    fn take_cold(&self, index: usize, class: &mut Class) -> Option<(u32, u32)> {
        if class.with_cold.is_empty() {
            self.add_slab(index, class)?;
        }
        let id = *class.with_cold.first()?;
        let slab = class.slabs[id as usize].as_mut()?;
        if slab.cold.len() == slab_slots(index) {
            class.empty_slabs -= 1;
        }
        let slot = slab.cold.pop()?;
        if slab.cold.is_empty() {
            class.with_cold.remove(&id);
        }
        Some((id, slot))
    }

    fn add_slab(&self, index: usize, class: &mut Class) -> Option<()> {
        let slots = slab_slots(index);
        let start = self.map(slots * class_bytes(index))?;
        let slab = Some(Slab { start, cold: (0..slots as u32).rev().collect() });
        let id = match class.slabs.iter().position(Option::is_none) {
            Some(id) => id,
            None => {
                class.slabs.push(None);
                class.slabs.len() - 1
            }
        };
        class.slabs[id] = slab;
        class.with_cold.insert(id as u32);
        class.empty_slabs += 1;
        Some(())
    }

    /// Gives a slot's pages back, then lists it as cold. The system call is made outside the lock.
    fn cool(&self, index: usize, start: NonNull<u8>, id: u32, slot: u32) {
        let bytes = class_bytes(index);
        // SAFETY: the slot is on no list and in no region, so nobody uses its pages.
        give_back(bytes, || unsafe { libc::madvise(start.as_ptr().cast(), bytes, libc::MADV_DONTNEED) });
        let mut class = self.classes[index].lock();
        let Some(slab) = &mut class.slabs[id as usize] else {
            return;
        };
        slab.cold.push(slot);
        let empty = slab.cold.len() == slab_slots(index);
        class.with_cold.insert(id);
        if empty {
            class.empty_slabs += 1;
            if class.empty_slabs > 1 {
                self.remove_slab(index, &mut class, id);
            }
        }
    }

    fn remove_slab(&self, index: usize, class: &mut Class, id: u32) {
        if let Some(slab) = class.slabs[id as usize].take() {
            // Its slots are cold: their pages were given back one by one.
            self.unmap(slab.start, slab_slots(index) * class_bytes(index), 0);
            class.with_cold.remove(&id);
            class.empty_slabs -= 1;
        }
        while class.slabs.last().is_some_and(Option::is_none) {
            class.slabs.pop();
        }
    }

    fn trim(&self) {
        for index in 0..CLASSES {
            let bytes = class_bytes(index);
            let hot: Vec<_> = {
                let mut class = self.classes[index].lock();
                let hot = std::mem::take(&mut class.hot);
                let start_of = |id: u32| class.slabs[id as usize].as_ref().map(|slab| slab.start);
                hot.into_iter().filter_map(|(id, slot)| Some((start_of(id)?, id, slot))).collect()
            };
            for (slab_start, id, slot) in hot {
                self.hot_bytes.fetch_sub(bytes, Ordering::Relaxed);
                // SAFETY: the slot lies within its slab's mapping, which it keeps alive.
                self.cool(index, unsafe { slab_start.add(slot as usize * bytes) }, id, slot);
            }
            let mut class = self.classes[index].lock();
            let slots = slab_slots(index);
            let empty: Vec<u32> = (0u32..)
                .zip(&class.slabs)
                .filter(|(_, slab)| slab.as_ref().is_some_and(|s| s.cold.len() == slots))
                .map(|(id, _)| id)
                .collect();
            for id in empty {
                self.remove_slab(index, &mut class, id);
            }
        }
    }

    fn reserve(&self) -> Reserve {
        Reserve {
            mapped_bytes: self.mapped_bytes.load(Ordering::Relaxed),
            live_bytes: self.live_bytes.load(Ordering::Relaxed),
            hot_bytes: self.hot_bytes.load(Ordering::Relaxed) as u64,
            mappings: self.mappings.load(Ordering::Relaxed),
        }
    }

    fn map(&self, bytes: usize) -> Option<NonNull<u8>> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new anonymous mapping touches nothing that exists.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return None;
        }
        name(start, bytes);
        self.mapped_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.mappings.fetch_add(1, Ordering::Relaxed);
        NonNull::new(start.cast())
    }

    /// Undoes a mapping, `warm` bytes of which may have pages.
    fn unmap(&self, start: NonNull<u8>, bytes: usize, warm: usize) {
        // SAFETY: the range is a mapping of ours that nobody uses any more.
        give_back(warm, || unsafe { libc::munmap(start.as_ptr().cast(), bytes) });
        self.mapped_bytes.fetch_sub(bytes as u64, Ordering::Relaxed);
        self.mappings.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use esker_base::counters::{bind, SessionCounters};

    /// Bytes given back, and calls.
    fn returned(own: &SessionCounters) -> (u64, u64) {
        (own.get(Counter::MemoryReturnedBytes), own.get(Counter::MemoryReturnCalls))
    }

    #[test]
    fn classes_hold_what_they_are_for_and_waste_little() {
        for class in 1..CLASSES {
            assert!(class_bytes(class - 1) < class_bytes(class));
        }
        assert_eq!(class_bytes(CLASSES - 1), LARGEST_SLOT);
        for pages in 1..=LARGEST_SLOT / PAGE_BYTES {
            let bytes = pages * PAGE_BYTES;
            let class = class_of(bytes);
            assert!(class_bytes(class) >= bytes);
            assert!(class == 0 || class_bytes(class - 1) < bytes);
            assert!(class_bytes(class) - bytes <= bytes / 4);
        }
    }

    #[test]
    fn many_regions_need_few_mappings_and_all_come_back() {
        let slabs = Slabs::new();
        let regions: Vec<_> = (0..1000).map(|_| slabs.allocate(65_536).unwrap()).collect();
        let held = slabs.reserve();
        assert_eq!(held.live_bytes, 1000 * 65_536);
        assert_eq!(held.mappings, 16);
        for (start, place) in regions {
            slabs.free(start, place);
        }
        let freed = slabs.reserve();
        assert_eq!(freed.live_bytes, 0);
        assert_eq!(freed.hot_bytes, HOT_CLASS_BYTES as u64);
        // The first ones freed stayed hot, in the first slab; one empty slab is kept.
        assert_eq!(freed.mappings, 2);
        slabs.trim();
        assert_eq!(slabs.reserve(), Reserve::default());
    }

    #[test]
    fn large_ones_have_a_mapping_of_their_own() {
        let (own, slabs) = (SessionCounters::new(), Slabs::new());
        let _bound = bind(&own);
        let (start, place) = slabs.allocate(LARGEST_SLOT + 1).unwrap();
        assert_eq!(place.bytes(), LARGEST_SLOT + PAGE_BYTES);
        assert_eq!(slabs.reserve().mappings, 1);
        slabs.free(start, place);
        assert_eq!(slabs.reserve(), Reserve::default());
        assert_eq!(returned(&own), ((LARGEST_SLOT + PAGE_BYTES) as u64, 1));
    }

    #[test]
    fn hot_slots_are_used_first_and_cold_ones_are_zero() {
        let (own, slabs) = (SessionCounters::new(), Slabs::new());
        let _bound = bind(&own);
        let (a, place_a) = slabs.allocate(8192).unwrap();
        slabs.free(a, place_a);
        assert_eq!(slabs.reserve().hot_bytes, 8192);
        let (b, place_b) = slabs.allocate(8000).unwrap();
        assert_eq!((a, place_a), (b, place_b));
        assert_eq!(slabs.reserve().hot_bytes, 0);
        // SAFETY: ours, 8192 bytes.
        unsafe { b.write_bytes(7, 8192) };
        let keep = slabs.allocate(8192).unwrap();
        slabs.free(b, place_b);
        slabs.trim();
        let (c, place_c) = slabs.allocate(8192).unwrap();
        assert_eq!(c, a);
        // SAFETY: ours, 8192 bytes, given back to the operating system in between.
        assert!(unsafe { std::slice::from_raw_parts(c.as_ptr(), 8192) }.iter().all(|&b| b == 0));
        slabs.free(c, place_c);
        slabs.free(keep.0, keep.1);
        assert_eq!(returned(&own), (8192, 1), "hot ones are kept");
        slabs.trim();
        assert_eq!(slabs.reserve(), Reserve::default());
        assert_eq!(returned(&own), (3 * 8192, 4), "two slots, then their slab, which has no pages any more");
    }

    #[test]
    fn live_slots_never_overlap_under_threads() {
        let slabs = Slabs::new();
        std::thread::scope(|scope| {
            for thread in 0..4u8 {
                let slabs = &slabs;
                scope.spawn(move || {
                    let mut live = Vec::new();
                    for i in 0..2000usize {
                        let bytes = 1 + (i * 7919 + thread as usize * 104_729) % 200_000;
                        let (start, place) = slabs.allocate(bytes).unwrap();
                        // SAFETY: ours, at least `bytes` long.
                        unsafe {
                            *start.as_ptr() = thread;
                            *start.as_ptr().add(bytes - 1) = thread;
                        }
                        live.push((start, place, bytes));
                        if live.len() > 64 {
                            let (start, place, bytes) = live.swap_remove(i % 64);
                            // SAFETY: as above.
                            unsafe {
                                assert_eq!(*start.as_ptr(), thread);
                                assert_eq!(*start.as_ptr().add(bytes - 1), thread);
                            }
                            slabs.free(start, place);
                        }
                    }
                    for (start, place, _) in live {
                        slabs.free(start, place);
                    }
                });
            }
        });
        slabs.trim();
        assert_eq!(slabs.reserve(), Reserve::default());
    }
}
