//! The block cache: which decoded blocks, and groups of filters, stay in memory. Besides them, the handles of the files they are read from.
//!
//! A block hangs in its own slot of its run's index, so a hit is one lock-free load and no two readers share a lock. This file owns
//! only the eviction order: two FIFO queues in the manner of S3-FIFO (Yang et al., SOSP 2023). A new block enters
//! `small`; one that is touched there again moves to `main`; so a scan passes through `small` and does not sweep what
//! others use. Invariants: `bytes` and `most` are the sums of what all blocks in slots take ([`CachedBytes`]); what is decompressed
//! aside counts as what others have, and so is in the limit, too. What the cache may have whatever others need is meant of all that its
//! blocks take: where compression makes little of much, most of it is not among `bytes`.

use crate::options::Options;
use crate::tally::tally;
use crate::tree::run::bytes::CachedBytes;
use crate::tree::run::files::RunFiles;
use crate::tree::run::filters::GROUP;
use crate::tree::run::index::{AnyIndex, Index, Indexes};
use crate::tree::run::Bytes;
use crate::tree::stored::Stored;
use crate::Error;
use arc_swap::ArcSwapOption;
use esker_base::counters::{count, Counter};
use esker_base::lock::{order, Mutex};
use esker_format::TreeId;
use esker_io::Disk;
use esker_memory::{charged, charged_total, Account};
use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

const SMALL_PERCENT: u64 = 10;
/// The queues are looked through once one entry in so many is of an index that is gone.
const GONE_SHARE: usize = 4;
const LEAST_BYTES: u64 = 8 << 20;
/// Memory is no longer short when one part in so many of the limit is free.
const AMPLE: u64 = 4;

/// One block's place in its run.
pub(crate) struct Slot<B> {
    block: ArcSwapOption<B>,
    touched: AtomicBool,
}

impl<B> Default for Slot<B> {
    fn default() -> Self {
        Slot { block: ArcSwapOption::empty(), touched: AtomicBool::new(false) }
    }
}

impl<B> Slot<B> {
    /// The block, if it is in memory.
    #[inline]
    pub(crate) fn get(&self) -> Option<Arc<B>> {
        let block = self.block.load_full()?;
        if !self.touched.load(Ordering::Relaxed) {
            self.touched.store(true, Ordering::Relaxed);
        }
        Some(block)
    }

    /// The same of somebody who only tells of it: that is no use of it.
    pub(crate) fn look(&self) -> Option<Arc<B>> {
        self.block.load_full()
    }

    /// The same of somebody who only looks at it at once.
    #[inline]
    pub(crate) fn glance(&self, at: impl FnOnce(&B)) {
        if let Some(block) = &*self.block.load() {
            at(block);
        }
    }

    /// Is it in memory?
    #[inline]
    pub(crate) fn is_here(&self) -> bool {
        self.block.load().is_some()
    }

    /// Was it got since the last time this was asked?
    pub(crate) fn take_touched(&self) -> bool {
        self.touched.swap(false, Ordering::Relaxed)
    }

    /// The same block in another form, unless it has left meanwhile.
    pub(crate) fn replace(&self, block: &Arc<B>, by: B) -> bool {
        let was = self.block.compare_and_swap(Arc::as_ptr(block), Some(Arc::new(by)));
        was.as_ref().is_some_and(|was| Arc::ptr_eq(was, block))
    }

    /// The block, which is in memory here no longer.
    pub(crate) fn take(&self) -> Option<Arc<B>> {
        self.block.swap(None)
    }
}

/// A run of any kind of tree.
pub(crate) trait AnyRun: Send + Sync {
    /// Lets the part of its file go, and the file with its last part once nobody uses it. The removal must be durable
    /// already.
    fn remove_when_unused(&self);
}

struct Resident {
    of: Weak<dyn AnyIndex>,
    index: u32,
    bytes: u64,
}

#[derive(Default)]
struct Queues {
    small: VecDeque<Resident>,
    main: VecDeque<Resident>,
    small_bytes: u64,
}

/// What an eviction did.
#[derive(Default)]
struct Evicted {
    any: bool,
    /// Those that had their turn and stay.
    stayed: Vec<(Arc<dyn AnyIndex>, usize)>,
}

/// Eviction order and size of all cached blocks.
pub(crate) struct BlockCache {
    queues: Mutex<Queues>,
    bytes: AtomicU64,
    most: AtomicU64,
    /// About so many entries of the queues are of indexes that are gone.
    gone: AtomicUsize,
    memory_limit_bytes: AtomicU64,
    pub(crate) files: RunFiles,
    pub(crate) indexes: Indexes,
    /// Runs that could not be read, by their trees, which nobody has been told of yet.
    pub(crate) unread: Mutex<Vec<(TreeId, Error)>>,
}

impl BlockCache {
    /// For the runs in `dir`.
    pub(crate) fn new(disk: &Arc<dyn Disk>, dir: &Path, options: &Options) -> Arc<Self> {
        Arc::new(BlockCache {
            queues: Mutex::new(&order::CACHE_QUEUES, Queues::default()),
            bytes: AtomicU64::new(0),
            most: AtomicU64::new(0),
            gone: AtomicUsize::new(0),
            memory_limit_bytes: AtomicU64::new(options.memory_limit_bytes),
            files: RunFiles::new(disk, dir, options),
            indexes: Indexes::new(options.memory_limit_bytes),
            unread: Mutex::new(&order::CACHE_UNREAD, Vec::new()),
        })
    }

    /// How many entries the queues have.
    #[cfg(test)]
    pub(crate) fn queued(&self) -> usize {
        let queues = self.queues.lock();
        queues.main.len() + queues.small.len()
    }

    pub(crate) fn set_memory_limit(&self, bytes: u64) {
        self.memory_limit_bytes.store(bytes, Ordering::Relaxed);
        self.indexes.set_memory_limit(bytes);
        self.shrink();
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// What the rest of the engine leaves of the limit, and blocks that somebody reads that are not here, or no longer; something in
    /// any case.
    pub(super) fn limit(&self) -> u64 {
        self.room().max(self.least())
    }

    /// The same, or nothing.
    fn room(&self) -> u64 {
        let others = charged_total().saturating_sub(self.bytes());
        self.memory_limit_bytes.load(Ordering::Relaxed).saturating_sub(others)
    }

    /// What blocks take besides what is kept of those that are here.
    fn beside(&self) -> u64 {
        charged(Account::BlockCache).saturating_sub(self.bytes())
    }

    /// What blocks may take here whatever others need.
    fn least(&self) -> u64 {
        LEAST_BYTES.min(self.memory_limit_bytes.load(Ordering::Relaxed) / 4)
    }

    /// Is there too much if `coming` bytes come besides, of a block that is here?
    fn is_over(&self, coming: u64) -> bool {
        self.bytes() > self.room().saturating_sub(coming) && self.most.load(Ordering::Relaxed) > self.least()
    }

    fn add(&self, takes: CachedBytes) {
        self.bytes.fetch_add(takes.kept, Ordering::Relaxed);
        self.most.fetch_add(takes.most, Ordering::Relaxed);
    }

    fn subtract(&self, takes: CachedBytes) {
        self.bytes.fetch_sub(takes.kept, Ordering::Relaxed);
        self.most.fetch_sub(takes.most, Ordering::Relaxed);
    }

    /// Keeps a block that was just read.
    pub(crate) fn insert<K: Stored>(&self, of: &Arc<Index<K>>, index: usize, block: &Arc<K::Block>) {
        self.keep(Arc::downgrade(of) as _, index, of.slot(index), block, K::bytes(block));
    }

    /// The same of a group of filters.
    pub(super) fn insert_filters<K: Stored>(&self, of: &Arc<Index<K>>, group: usize, filters: &Arc<Bytes>) {
        if let Some(all) = of.filters() {
            self.keep(Arc::downgrade(of) as _, GROUP + group, all.slot(group), filters, filters);
        }
    }

    fn keep<T>(&self, of: Weak<dyn AnyIndex>, index: usize, slot: &Slot<T>, what: &Arc<T>, held: &Bytes) {
        let takes = held.takes();
        let mut queues = self.queues.lock();
        if slot.is_here() || cfg!(feature = "strict-memory") {
            return;
        }
        slot.touched.store(false, Ordering::Relaxed);
        slot.block.store(Some(what.clone()));
        self.add(takes);
        queues.small_bytes += takes.kept;
        queues.small.push_back(Resident { of, index: index as u32, bytes: takes.kept });
        // Who read it is about to use it.
        let evicted = self.evict(&mut queues, held.awaited_bytes() as u64);
        drop(queues);
        self.after(&evicted);
    }

    /// Lets go what is too much if `coming` bytes come besides.
    fn evict(&self, queues: &mut Queues, coming: u64) -> Evicted {
        let mut evicted = Evicted::default();
        // With a block goes what was decompressed of it, so the limit rises.
        while self.is_over(coming) {
            let limit = self.limit().saturating_sub(coming);
            let from_small = queues.main.is_empty() || queues.small_bytes > limit / 100 * SMALL_PERCENT;
            let resident = if from_small { queues.small.pop_front() } else { queues.main.pop_front() };
            let Some(resident) = resident.or_else(|| queues.main.pop_front()) else { break };
            if from_small {
                queues.small_bytes = queues.small_bytes.saturating_sub(resident.bytes);
            }
            // An index that is gone has taken its blocks along (see `forget`).
            let Some(of) = resident.of.upgrade() else {
                continue;
            };
            if of.take_touched(resident.index as usize) {
                evicted.stayed.push((of, resident.index as usize));
                queues.main.push_back(resident);
            } else if let Some(took) = of.evict(resident.index as usize) {
                self.subtract(took);
                count(Counter::BlocksEvicted, 1);
                evicted.any = true;
            }
        }
        evicted
    }

    /// Where memory is short, a block in use is not kept both as it is stored and as it is read, and nothing is read along.
    fn after(&self, evicted: &Evicted) {
        if evicted.any && !self.files.is_short() {
            self.files.set_short(true);
        }
        for (of, index) in &evicted.stayed {
            if let Some((was, is)) = of.unpack(*index) {
                self.add(is);
                self.subtract(was);
                count(Counter::BlocksUnpacked, 1);
            }
        }
    }

    /// Gives back what others have come to need since the last insert.
    pub(crate) fn shrink(&self) {
        if self.is_over(0) {
            let evicted = self.evict(&mut self.queues.lock(), 0);
            self.after(&evicted);
        } else if self.files.is_short()
            && self.room().saturating_sub(self.bytes()) > (self.room() + self.beside()) / AMPLE
        {
            self.files.set_short(false);
        }
    }

    /// An index goes, and so many blocks and groups of filters, which took so much, have left memory with it.
    pub(crate) fn forget(&self, took: CachedBytes, entries: usize) {
        self.subtract(took);
        self.gone.fetch_add(entries, Ordering::Relaxed);
    }

    /// Drops the queue entries of runs and indexes that are gone; of blocks, which are many, once much of the queues is gone: each entry
    /// is looked at, and all who bring blocks wait.
    pub(crate) fn sweep(&self) {
        self.indexes.sweep();
        let mut queues = self.queues.lock();
        if self.gone.load(Ordering::Relaxed) * GONE_SHARE <= queues.main.len() + queues.small.len() {
            return;
        }
        self.gone.store(0, Ordering::Relaxed);
        #[cfg(test)]
        swept::count();
        queues.main.retain(|r| r.of.strong_count() > 0);
        queues.small.retain(|r| r.of.strong_count() > 0);
        queues.small_bytes = queues.small.iter().map(|r| r.bytes).sum();
    }
}

tally! {
    /// Counts how often this thread looked through the queues.
    swept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_short_once_something_had_to_go_until_much_is_free() {
        let disk: Arc<dyn Disk> = Arc::new(esker_io::SimDisk::new(1));
        // So large that what other tests have in memory meanwhile makes no difference.
        let options = Options { memory_limit_bytes: 1 << 40, ..Options::default() };
        let cache = BlockCache::new(&disk, Path::new("/db"), &options);
        assert!(!cache.files.is_short());
        cache.after(&Evicted::default());
        assert!(!cache.files.is_short(), "nothing had to go");
        cache.after(&Evicted { any: true, ..Evicted::default() });
        assert!(cache.files.is_short());
        // Nearly full, and then with room.
        cache.bytes.store(cache.limit() / 10 * 9, Ordering::Relaxed);
        cache.shrink();
        assert!(cache.files.is_short());
        cache.bytes.store(1, Ordering::Relaxed);
        cache.shrink();
        assert!(!cache.files.is_short());
    }

    #[test]
    fn another_form_takes_no_place_but_its_own_block_s() {
        let slot = Slot::default();
        let (block, other) = (Arc::new(1), Arc::new(7));
        slot.block.store(Some(block.clone()));
        assert!(slot.replace(&block, 2) && slot.look().as_deref() == Some(&2));
        assert!(!slot.replace(&block, 3) && slot.look().as_deref() == Some(&2), "it was replaced already");
        slot.take();
        assert!(!slot.replace(&block, 3) && slot.look().is_none(), "it has left meanwhile");
        slot.block.store(Some(other));
        assert!(!slot.replace(&block, 3) && slot.look().as_deref() == Some(&7), "another one has come");
    }
}
