//! Block indexes in memory: where the blocks of a run lie, and those of them that are cached; and what bounds them.
//!
//! An index is read when it is first needed and hangs in its run; readers that stand in a run keep it for as long. All of
//! them together, with the directories that hang in files of several runs, are bounded by a share of the memory limit: what
//! was not used for longest is let go, an index with its cached blocks, and read again when it is needed. Order of use as by
//! a clock: what was used since it was last looked at goes round once more. Invariants: `bytes` is the sum over all that
//! hangs somewhere; whoever has something is in the queue once; it is on its account until its last reader lets go.

use crate::tree::key::Rank;
use crate::tree::run::bytes::CachedBytes;
use crate::tree::run::cache::{BlockCache, Slot};
use crate::tree::run::filters::{Filters, GROUP};
use crate::tree::stored::Stored;
use arc_swap::{ArcSwapOption, Guard};
use esker_base::lock::{order, Mutex};
use esker_format::{prefetch_all, BlockEntry, LeafEntry};
use esker_memory::{Account, Charge};
use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// Indexes take one in so many bytes of the memory limit at most, or one index.
const SHARE: u64 = 8;

/// So often a place among ranks is guessed, and so many of those beside a guess are looked through.
const GUESSES: usize = 3;
const BESIDE: usize = 8;

/// Where a run's blocks lie, and those in memory.
pub(crate) struct Index<K: Stored> {
    entries: Box<[K::Entry]>,
    /// Of the last key of each: looked through before entries are.
    ranks: Box<[K::Rank]>,
    slots: Box<[Slot<K::Block>]>,
    filters: Option<Filters>,
    /// Was it used since it was last looked at?
    touched: AtomicBool,
    cache: Arc<BlockCache>,
    charge: Charge,
}

impl<K: Stored> Index<K> {
    pub(crate) fn new(entries: Vec<K::Entry>, filters: Option<Filters>, cache: &Arc<BlockCache>) -> Arc<Self> {
        let entries = entries.into_boxed_slice();
        let slots: Box<[Slot<K::Block>]> = entries.iter().map(|_| Slot::default()).collect();
        let ranks: Box<[K::Rank]> = entries.iter().map(|e| K::rank(K::last(e))).collect();
        let keys: usize = entries.iter().map(K::key_bytes).sum();
        let bytes = size_of::<Self>() + size_of_val(&*entries) + size_of_val(&*ranks) + size_of_val(&*slots) + keys;
        let bytes = bytes + filters.as_ref().map_or(0, Filters::memory_bytes);
        let charge = Charge::new(Account::Catalog, bytes as u64);
        Arc::new(Index {
            entries,
            ranks,
            slots,
            filters,
            touched: AtomicBool::new(false),
            cache: cache.clone(),
            charge,
        })
    }

    /// What it says of each block.
    #[inline]
    pub(crate) fn entries(&self) -> &[K::Entry] {
        &self.entries
    }

    /// What it says of a block.
    pub(crate) fn entry(&self, index: usize) -> &BlockEntry {
        self.entries[index].block()
    }

    #[inline]
    pub(crate) fn slot(&self, index: usize) -> &Slot<K::Block> {
        &self.slots[index]
    }

    pub(crate) fn filters(&self) -> Option<&Filters> {
        self.filters.as_ref()
    }

    /// The first block that may hold `key` or a greater one.
    #[inline]
    pub(crate) fn block_at_or_after(&self, key: K::Ref<'_>) -> usize {
        let rank = K::rank(key);
        let from = first_from(&self.ranks, rank);
        if self.ranks.get(from) != Some(&rank) {
            return from;
        }
        let alike = self.ranks[from..].partition_point(|r| *r == rank);
        from + self.entries[from..from + alike].partition_point(|e| !K::reaches(e, key))
    }

    /// A hint: asks for what it says of a block, and of those beside it.
    pub(crate) fn fetch(&self, index: usize) {
        let beside = index.saturating_sub(1)..(index + 2).min(self.entries.len());
        self.entries.get(beside).into_iter().for_each(prefetch_all);
        self.slots.get(index).into_iter().for_each(prefetch_all);
    }

    /// How many of its blocks are in memory, and their bytes; how many bytes it takes itself.
    pub(crate) fn in_memory(&self) -> (u64, u64, u64) {
        let blocks = self.slots.iter().filter_map(Slot::look).map(|block| K::bytes(&block).memory_bytes() as u64);
        let (count, bytes) = blocks.fold((0, 0), |(count, sum), bytes| (count + 1, sum + bytes));
        (count, bytes, self.charge.bytes())
    }

    pub(super) fn take_used(&self) -> bool {
        self.touched.swap(false, Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn touch(&self) {
        if !self.touched.load(Ordering::Relaxed) {
            self.touched.store(true, Ordering::Relaxed);
        }
    }
}

/// The first of these ranks, which rise, that is `rank` or greater, or their end: guessed, as most rise evenly, and searched
/// where that leads to.
#[inline]
fn first_from<R: Rank>(ranks: &[R], rank: R) -> usize {
    let (mut low, mut high) = (0, ranks.len());
    for _ in 0..GUESSES {
        if high - low <= 2 * BESIDE {
            break;
        }
        let (first, last) = (ranks[low], ranks[high - 1]);
        if rank <= first {
            return low;
        }
        if rank > last {
            return high;
        }
        let share = rank.part(first, last);
        let guess = (low + (share * (high - 1 - low) as f64) as usize).clamp(low + 1, high - 2);
        // It is right, or close, or all on one side of it is out.
        if ranks[guess] < rank {
            low = guess + 1;
            let bound = (low + BESIDE).min(high - 1);
            if ranks[bound] >= rank {
                high = bound + 1;
            } else {
                low = bound + 1;
            }
        } else {
            high = guess + 1;
            let bound = guess.saturating_sub(BESIDE).max(low);
            if ranks[bound] < rank {
                low = bound + 1;
            } else {
                high = bound + 1;
            }
        }
    }
    low + ranks[low..high].partition_point(|r| *r < rank)
}

impl<K: Stored> Drop for Index<K> {
    fn drop(&mut self) {
        let blocks = self.slots.iter().filter_map(Slot::take).map(|block| K::bytes(&block).takes());
        let mut entries = 0;
        let all = blocks.chain(self.filters.iter().flat_map(Filters::take_all)).inspect(|_| entries += 1);
        let took = all.sum();
        self.cache.forget(took, entries);
    }
}

/// Who has something in memory for as long as there is room: a run its index, a file its directory.
pub(crate) trait Holder: Send + Sync {
    /// Was what it has used since the last time this was asked?
    fn take_used(&self) -> bool;
    /// What it has, and has no longer.
    fn let_go(&self) -> Option<Arc<dyn Held>>;
}

/// What it has.
pub(crate) trait Held: Send + Sync {
    /// Its own memory, in bytes; that of blocks is on another account.
    fn bytes(&self) -> u64;
}

/// What is cached of any index: blocks by their places in it, groups of filters by theirs and [`GROUP`].
pub(crate) trait AnyIndex: Send + Sync {
    /// Was it got since the last time this was asked?
    fn take_touched(&self, index: usize) -> bool;
    /// Lets it go; what it took, `None` if it was not there.
    fn evict(&self, index: usize) -> Option<CachedBytes>;
    /// Keeps it in less memory, if it can be; what it took, and takes.
    fn unpack(&self, index: usize) -> Option<(CachedBytes, CachedBytes)>;
}

impl<K: Stored> Held for Index<K> {
    fn bytes(&self) -> u64 {
        self.charge.bytes()
    }
}

impl<K: Stored> AnyIndex for Index<K> {
    fn take_touched(&self, index: usize) -> bool {
        match index.checked_sub(GROUP) {
            None => self.slots[index].take_touched(),
            Some(group) => self.filters.as_ref().is_some_and(|f| f.slot(group).take_touched()),
        }
    }

    fn evict(&self, index: usize) -> Option<CachedBytes> {
        Some(match index.checked_sub(GROUP) {
            None => K::bytes(&*self.slots[index].take()?).takes(),
            Some(group) => self.filters.as_ref()?.slot(group).take()?.takes(),
        })
    }

    fn unpack(&self, index: usize) -> Option<(CachedBytes, CachedBytes)> {
        let slot = self.slots.get(index)?;
        let block = slot.look()?;
        let unpacked = K::unpacked(&block)?;
        let [was, is] = [&*block, &unpacked].map(|block| K::bytes(block).takes());
        slot.replace(&block, unpacked).then_some((was, is))
    }
}

/// A run's index for a short use, without a count of its readers; [`keep`](Self::keep) for a long one.
pub(crate) struct IndexRef<K: Stored>(Guard<Option<Arc<Index<K>>>>);

impl<K: Stored> IndexRef<K> {
    /// `None` if there is none.
    #[inline]
    pub(super) fn of(guard: Guard<Option<Arc<Index<K>>>>) -> Option<Self> {
        guard.is_some().then_some(IndexRef(guard))
    }

    pub(crate) fn keep(self) -> Arc<Index<K>> {
        Arc::clone(&self)
    }
}

impl<K: Stored> Deref for IndexRef<K> {
    type Target = Arc<Index<K>>;

    #[inline]
    fn deref(&self) -> &Arc<Index<K>> {
        match &*self.0 {
            Some(index) => index,
            None => unreachable!("looked at when it was made"),
        }
    }
}

/// The indexes that hang in runs, and the directories in files.
pub(crate) struct Indexes {
    /// What came in last, last.
    queue: Mutex<VecDeque<Weak<dyn Holder>>>,
    bytes: AtomicU64,
    most_bytes: AtomicU64,
}

/// What left memory, to be dropped where no lock is held.
type Gone = (Vec<Arc<dyn Held>>, Vec<Arc<dyn Holder>>);

impl Indexes {
    pub(super) fn new(memory_limit_bytes: u64) -> Self {
        Indexes {
            queue: Mutex::new(&order::CACHE_INDEXES, VecDeque::new()),
            bytes: AtomicU64::new(0),
            most_bytes: AtomicU64::new(memory_limit_bytes / SHARE),
        }
    }

    pub(super) fn set_memory_limit(&self, bytes: u64) {
        self.most_bytes.store(bytes / SHARE, Ordering::Relaxed);
        let gone = self.shrink(&mut self.queue.lock());
        drop(gone);
    }

    /// Hangs what was just read, or made, in its place at whoever has it. Somebody else may have been faster: then theirs
    /// counts.
    pub(super) fn keep<T: Held + 'static>(
        &self,
        holder: &Arc<impl Holder + 'static>,
        place: &ArcSwapOption<T>,
        fresh: Arc<T>,
    ) -> Arc<T> {
        let mut queue = self.queue.lock();
        if let Some(there) = place.load_full() {
            return there;
        }
        self.bytes.fetch_add(fresh.bytes(), Ordering::Relaxed);
        place.store(Some(fresh.clone()));
        let holder: Weak<dyn Holder> = Arc::downgrade(holder) as _;
        queue.push_back(holder);
        let gone = self.shrink(&mut queue);
        drop(queue);
        drop(gone);
        fresh
    }

    /// Lets go what was not used for longest, until the rest fits. What came in last stays.
    fn shrink(&self, queue: &mut VecDeque<Weak<dyn Holder>>) -> Gone {
        let (mut gone, mut holders) = (Vec::new(), Vec::new());
        let most = self.most_bytes.load(Ordering::Relaxed);
        // Twice round at most, however fast others use them.
        for _ in 0..2 * queue.len() {
            if self.bytes.load(Ordering::Relaxed) <= most || queue.len() <= 1 {
                break;
            }
            let Some(weak) = queue.pop_front() else { break };
            // One that is gone has taken along what it had.
            let Some(holder) = weak.upgrade() else { continue };
            if holder.take_used() {
                queue.push_back(weak);
            } else if let Some(held) = holder.let_go() {
                self.bytes.fetch_sub(held.bytes(), Ordering::Relaxed);
                gone.push(held);
            }
            holders.push(holder);
        }
        (gone, holders)
    }

    /// Whoever has it goes, and it goes along.
    pub(super) fn forget(&self, held: &dyn Held) {
        self.bytes.fetch_sub(held.bytes(), Ordering::Relaxed);
    }

    /// Drops the queue's entries of those that are gone.
    pub(super) fn sweep(&self) {
        self.queue.lock().retain(|holder| holder.strong_count() > 0);
    }

    /// How many entries the queue has.
    #[cfg(test)]
    pub(crate) fn queued(&self) -> usize {
        self.queue.lock().len()
    }

    #[cfg(test)]
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    #[cfg(test)]
    pub(crate) fn most_bytes(&self) -> u64 {
        self.most_bytes.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::key::{ByBytes, Key};

    #[test]
    fn guesses_lead_where_a_search_does() {
        let mut random = 1u64;
        let mut next = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % below
        };
        let even: Vec<u64> = (0..3000).map(|i| 1000 + i * 53 + i % 7).collect();
        let steep: Vec<u64> = (0..60).map(|i| 1 << i).collect();
        let flat: Vec<u64> = (0..500).map(|i| if i < 480 { 7 } else { u64::MAX - 500 + i }).collect();
        let ends: Vec<u64> = (0..100).chain((0..100).map(|i| u64::MAX - 99 + i)).collect();
        let mut any: Vec<u64> = (0..1000).map(|_| next(1 << 20) << next(40)).collect();
        any.sort_unstable();
        for ranks in [vec![], vec![5], vec![5; 100], even, steep, flat, ends, any] {
            let beside = ranks.iter().flat_map(|r| [r.saturating_sub(1), *r, r.saturating_add(1)]);
            for rank in beside.chain([0, u64::MAX, u64::MAX / 2]) {
                let wanted = ranks.partition_point(|r| *r < rank);
                assert_eq!(first_from(&ranks, rank), wanted, "{rank} among {ranks:?}");
                let of = |rank: u64| ByBytes::rank(&[b"a tenant".as_slice(), &rank.to_be_bytes()].concat());
                let alike: Vec<_> = ranks.iter().map(|r| of(*r)).collect();
                assert_eq!(first_from(&alike, of(rank)), wanted, "{rank} among {ranks:?}, behind what is alike");
            }
        }
    }
}
