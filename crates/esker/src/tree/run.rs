//! A run: one immutable sorted file. Owns its block index, the slots of its cached blocks, and what is known of its
//! health.
//!
//! Invariants: every block is checksummed before it is used; a run's bytes never change; the file is unlinked only by
//! whoever made its removal durable first ([`Run::remove_when_unused`] marks it, the last user's drop does it).

pub(crate) mod cache;
pub(crate) mod files;
pub(crate) mod health;
pub(crate) mod writer;

use crate::tree::key::{ByBytes, ByRow};
use crate::tree::run::cache::{AnyRun, BlockCache, Slot};
use crate::tree::run::health::{Health, State};
use crate::tree::run::writer::RunRecipe;
use crate::tree::stored::{agrees, blocks_of, Stored};
use crate::{Error, Result};
use esker_base::counters::{count, Counter};
use esker_format::run::{block_context, section_kind, Part, RunFooter, RunHeader, RunStats};
use esker_format::run::{RUN_FOOTER_BYTES, RUN_HEADER_BYTES};
use esker_format::{BlockEntry, CommitSeq, FileId, FolderId, FormatError, LeafEntry, TreeId};
use esker_io::Disk;
use esker_memory::{Account, Region};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// A block of rows in memory.
pub(crate) type Block = <ByRow as Stored>::Block;

/// A region cut to the length of what was read into it.
pub(crate) struct Bytes {
    region: Region,
    bytes: usize,
}

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        &self.region[..self.bytes]
    }
}

/// A run that a flush moved to its open transaction.
pub(crate) enum MovedRun {
    Rows(Arc<Run>),
    Keys(Arc<Run<ByBytes>>),
}

/// A run. Its file is opened when it is read, and its block index is read when it is first needed; what fails is tried
/// again by the next who wants it.
pub(crate) struct Run<K: Stored = ByRow> {
    pub(crate) file_id: FileId,
    /// Which part of its file it is.
    part: u32,
    pub(crate) stats: RunStats,
    /// Its least and its greatest key; of a run of which only parts were in use when it was opened, theirs.
    pub(crate) bounds: (K::Own, K::Own),
    index: OnceLock<Index<K>>,
    folder: FolderId,
    tree: TreeId,
    shape: K::Shape,
    pub(crate) path: PathBuf,
    cache: Arc<BlockCache>,
    disk: Arc<dyn Disk>,
    remove: AtomicBool,
    merged_at: AtomicU64,
    /// A check of every block found them sound.
    pub(crate) checked: AtomicBool,
    health: Health,
}

/// Where a run's blocks lie, and those in memory.
struct Index<K: Stored> {
    entries: Vec<K::Entry>,
    slots: Box<[Slot<K::Block>]>,
    size_bytes: u64,
}

impl<K: Stored> Index<K> {
    fn new(entries: Vec<K::Entry>, size_bytes: u64) -> Self {
        Index { slots: entries.iter().map(|_| Slot::default()).collect(), entries, size_bytes }
    }
}

/// Parts of a run that can fail, for [`Health`]: blocks by their number, the contents of blocks whose checksum was right
/// beyond them, and header, footer and index as one.
const CONTENTS: u64 = 1 << 32;
const FRAME: u64 = u64::MAX;

/// How much of a file's end is read at once.
const END_BYTES: u64 = 16 << 10;

/// The path of a run's file.
pub(crate) fn run_path(dir: &Path, file: FileId) -> PathBuf {
    dir.join(format!("{:016x}.run", file.0))
}

impl<K: Stored> Run<K> {
    /// A run that was just written.
    pub(crate) fn written(
        recipe: &RunRecipe<K>,
        file_id: FileId,
        size_bytes: u64,
        entries: Vec<K::Entry>,
        stats: RunStats,
        bounds: (K::Own, K::Own),
    ) -> Arc<Self> {
        count(Counter::RunsCreated, 1);
        Run::new(recipe, file_id, stats, bounds, OnceLock::from(Index::new(entries, size_bytes)))
    }

    /// A run of which log or manifest tell. Nothing is read: see [`load`](Self::load).
    pub(crate) fn open(
        recipe: &RunRecipe<K>,
        file_id: FileId,
        stats: &RunStats,
        bounds: (K::Own, K::Own),
    ) -> Arc<Self> {
        Run::new(recipe, file_id, *stats, bounds, OnceLock::new())
    }

    fn new(
        recipe: &RunRecipe<K>,
        file_id: FileId,
        stats: RunStats,
        bounds: (K::Own, K::Own),
        index: OnceLock<Index<K>>,
    ) -> Arc<Self> {
        Arc::new(Run {
            file_id,
            part: 0,
            stats,
            bounds,
            index,
            folder: recipe.folder,
            tree: recipe.tree,
            shape: recipe.shape.clone(),
            path: run_path(&recipe.dir, file_id),
            cache: recipe.cache.clone(),
            disk: recipe.disk.clone(),
            remove: AtomicBool::new(false),
            merged_at: AtomicU64::new(0),
            checked: AtomicBool::new(false),
            health: Health::default(),
        })
    }

    /// Reads the block index, if it is not in memory. Fails for a file that is missing, cannot be read or is not the one
    /// that was written; the next call tries again.
    #[inline]
    pub(crate) fn load(&self) -> Result<()> {
        if self.index.get().is_none() {
            let index = self.note(FRAME, self.read_index())?;
            // Somebody else may have been faster, with the same.
            let _ = self.index.set(index);
        }
        Ok(())
    }

    /// The block index; empty until [`load`](Self::load) has succeeded once.
    #[inline]
    pub(crate) fn entries(&self) -> &[K::Entry] {
        self.index.get().map_or(&[], |i| &i.entries)
    }

    /// Length of the file, in bytes; that of its blocks until the index is in memory.
    pub(crate) fn size_bytes(&self) -> u64 {
        self.index.get().map_or(self.stats.stored_bytes, |i| i.size_bytes)
    }

    /// How the run is doing.
    pub(crate) fn state(&self) -> State {
        self.health.state()
    }

    /// It failed not long ago, and nothing was read well since: work that nobody waits for leaves it alone.
    pub(crate) fn is_set_aside(&self) -> bool {
        self.health.left_alone(self.cache.files.clock.now_ms())
    }

    /// Remembers how a read of `part` went. Want of memory or handles is no fault of the run.
    fn note<T>(&self, part: u64, result: Result<T>) -> Result<T> {
        match &result {
            Ok(_) => self.health.succeeded(part),
            Err(e) if e.is_want_of_resources() => {}
            Err(e) => self.failed(part, e),
        }
        result
    }

    #[cold]
    fn failed(&self, part: u64, e: &Error) {
        let state = if matches!(e, Error::Damage { .. }) { State::Damaged } else { State::SetAside };
        self.health.failed(part, state, self.cache.files.clock.now_ms());
        self.checked.store(false, Ordering::Relaxed);
        // The next one gets a handle of its own.
        self.cache.files.close(self.file_id);
    }

    pub(crate) fn slot(&self, index: usize) -> Option<&Slot<K::Block>> {
        self.index.get()?.slots.get(index)
    }

    /// Block `index`, from memory or from disk.
    pub(crate) fn block(self: &Arc<Self>, index: usize) -> Result<Arc<K::Block>> {
        if let Some(block) = self.slot(index).and_then(Slot::get) {
            count(Counter::BlocksCached, 1);
            return Ok(block);
        }
        count(Counter::BlocksMissed, 1);
        let block = Arc::new(self.read_block(index)?);
        self.cache.insert(self, index, &block);
        Ok(block)
    }

    /// Block `index` from disk, past the cache: for what is read once.
    pub(crate) fn read_block(&self, index: usize) -> Result<K::Block> {
        self.load()?;
        self.note(index as u64, self.read_entry(&self.entries()[index]))
    }

    /// The bytes of block `index` as they are stored, from disk and unchecked, with the context that seals them.
    pub(crate) fn stored_block(&self, index: usize) -> Result<(Vec<u8>, u64)> {
        self.load()?;
        let entry = self.entry(index);
        let read = || {
            let file = self.cache.files.get(&self.disk, self.file_id, &self.path)?;
            let mut bytes = vec![0; entry.stored_bytes as usize];
            file.read_at(&mut bytes, entry.offset)?;
            Ok(bytes)
        };
        match read() {
            // Not yet known to be what was written: no fault is forgotten for it.
            Ok(bytes) => Ok((bytes, block_context(self.file_id, entry.offset))),
            Err(e) => self.note(index as u64, Err(e)),
        }
    }

    /// What the block index, which is in memory, says of a block.
    pub(crate) fn entry(&self, index: usize) -> &BlockEntry {
        self.entries()[index].block()
    }

    fn read_entry(&self, whole: &K::Entry) -> Result<K::Block> {
        let entry = whole.block();
        let file = self.cache.files.get(&self.disk, self.file_id, &self.path)?;
        let bytes = entry.stored_bytes as usize;
        let mut region = Region::new(Account::BlockCache, bytes)
            .map_err(|_| Error::OutOfMemory(format!("{bytes} bytes for a block")))?;
        file.read_at(&mut region[..bytes], entry.offset)?;
        let context = block_context(self.file_id, entry.offset);
        K::open(Bytes { region, bytes }, &self.shape, context)
            // What is decided by an entry alone must be true of its block.
            .and_then(|block| agrees::<K>(whole, &block).map(|()| block))
            .map_err(|e| Error::damage(&self.path, entry.offset, e))
    }

    /// Damage found while using block `index` after it was opened.
    pub(crate) fn damage(&self, index: usize, reason: FormatError) -> Error {
        let e = Error::damage(&self.path, self.entry(index).offset, reason);
        self.failed(CONTENTS | index as u64, &e);
        e
    }

    /// The first block that may hold `key` or a greater one.
    #[inline]
    pub(crate) fn block_at_or_after(&self, key: K::Ref<'_>) -> usize {
        self.entries().partition_point(|e| !K::reaches(e, key))
    }

    /// The greatest key before `key`, if there is one. Reads a block, past the cache, where the index does not tell.
    pub(crate) fn key_before(&self, key: K::Ref<'_>) -> Result<Option<K::Own>> {
        self.load()?;
        let first = self.block_at_or_after(key);
        let (mut at, mut found) = (first, None);
        while self.entries().get(at).is_some_and(|e| K::cmp(K::first(e), key).is_lt()) {
            let block = self.read_block(at)?;
            let behind = K::lower_bound(&block, key);
            found = behind.checked_sub(1).map(|i| K::own(K::key(&block, i))).or(found);
            if behind < K::rows(&block) {
                break;
            }
            // All of it lies before, for all that the index knew.
            at += 1;
        }
        if found.is_some() {
            return Ok(found);
        }
        let Some(before) = first.checked_sub(1).map(|before| &self.entries()[before]) else { return Ok(None) };
        if K::is_last_known(before) {
            return Ok(Some(K::own(K::last(before))));
        }
        let block = self.read_block(first - 1)?;
        Ok(K::rows(&block).checked_sub(1).map(|last| K::own(K::key(&block, last))))
    }

    /// The horizon under which a merge made this run, if one did in this process: merging it again would change
    /// nothing until the horizon has passed what was kept.
    pub(crate) fn merged_at(&self) -> CommitSeq {
        CommitSeq(self.merged_at.load(Ordering::Relaxed))
    }

    pub(crate) fn set_merged_at(&self, horizon: CommitSeq) {
        self.merged_at.store(horizon.0, Ordering::Relaxed);
    }

    /// Reads and checks header, footer, the part and its index.
    fn read_index(&self) -> Result<Index<K>> {
        let file = self.cache.files.get(&self.disk, self.file_id, &self.path)?;
        let size = file.size_bytes()?;
        let at = |offset: u64| move |e| Error::damage(&self.path, offset, e);
        // Of a file of usual size the end holds all that follows the blocks.
        let end_at = size.saturating_sub(END_BYTES);
        let mut end = vec![0; (size - end_at) as usize];
        file.read_at(&mut end, end_at)?;
        // Places are bounded by the file's length before they are read.
        let read = |offset: u64, bytes: u64| -> Result<Vec<u8>> {
            if offset >= end_at {
                let from = (offset - end_at) as usize;
                return Ok(end[from..from + bytes as usize].to_vec());
            }
            let mut some = vec![0; bytes as usize];
            file.read_at(&mut some, offset)?;
            Ok(some)
        };
        let header = RunHeader::decode(&read(0, size.min(RUN_HEADER_BYTES as u64))?).map_err(at(0))?;
        let footer_at = size.saturating_sub(RUN_FOOTER_BYTES as u64);
        let footer = RunFooter::decode(&end, size).map_err(at(footer_at))?;
        let identity = |offset, what, expected: u64, found: u64| match expected == found {
            true => Ok(()),
            false => Err(at(offset)(FormatError::Invalid { what, found })),
        };
        if header.folder != self.folder {
            let (found, expected) = (header.folder, self.folder);
            return Err(at(0)(FormatError::Foreign { what: "run", found, expected }));
        }
        identity(0, "run's file id", self.file_id.0, header.file.0)?;
        identity(footer_at, "run footer's file id", self.file_id.0, footer.file.0)?;
        let places = footer
            .decode_directory(&read(footer.directory_offset, footer.directory_bytes())?)
            .map_err(at(footer.directory_offset))?;
        let Some(place) = places.get(self.part as usize) else {
            return Err(at(footer_at)(FormatError::Invalid { what: "parts of a run", found: footer.parts.into() }));
        };
        let part = read(place.offset, place.bytes.into())?;
        let part = Part::decode(self.file_id, self.part, &places, &part).map_err(at(place.offset))?;
        identity(place.offset, "run's tree", self.tree.0, part.tree.0)?;
        identity(place.offset, "run's layout", K::fingerprint(&self.shape), part.fingerprint)?;
        identity(place.offset, "kind of a run's blocks", blocks_of::<K>() as u64, part.blocks as u64)?;
        let section = |kind| -> Result<(u64, Vec<u8>)> {
            let section = part.section(kind).map_err(at(place.offset))?;
            Ok((section.offset, read(section.offset, section.bytes)?))
        };
        let (top_at, top) = section(section_kind::INDEX_TOP)?;
        let (leaves_at, leaves) = section(section_kind::INDEX_LEAVES)?;
        let (stats_at, stats) = section(section_kind::STATISTICS)?;
        let mut entries: Vec<K::Entry> = Vec::new();
        for leaf in part.decode_top(self.file_id, &top).map_err(at(top_at))? {
            // The top level was checked: its leaves fill their section.
            let from = (leaf.offset - leaves_at) as usize;
            let page = &leaves[from..from + leaf.bytes as usize];
            part.decode_leaf(self.file_id, &leaf, page, &mut entries).map_err(at(leaf.offset))?;
        }
        let written = part.decode_stats(self.file_id, &stats).map_err(at(stats_at))?;
        let mut stats = RunStats::default();
        entries.iter().for_each(|e| stats.add(e.block()));
        if written != self.stats || stats != self.stats {
            let found = written.rows;
            return Err(at(stats_at)(FormatError::Invalid { what: "run's figures against the log's", found }));
        }
        Ok(Index::new(entries, size))
    }
}

impl<K: Stored> AnyRun for Run<K> {
    fn remove_when_unused(&self) {
        self.remove.store(true, Ordering::Release);
    }

    fn take_touched(&self, index: usize) -> bool {
        self.slot(index).is_some_and(Slot::take_touched)
    }

    fn evict(&self, index: usize) -> bool {
        self.slot(index).is_some_and(|s| s.take().is_some())
    }
}

impl<K: Stored> Drop for Run<K> {
    fn drop(&mut self) {
        if let Some(index) = self.index.get() {
            let gone = index.slots.iter().filter_map(Slot::take).map(|b| K::memory_bytes(&b) as u64).sum();
            self.cache.forget(gone);
        }
        self.cache.files.close(self.file_id);
        if self.remove.load(Ordering::Acquire) {
            count(Counter::RunsRemoved, 1);
            // A file that stays behind is an orphan: the next start removes it.
            let _ = self.disk.remove(&self.path);
        }
    }
}

#[cfg(test)]
mod tests;
