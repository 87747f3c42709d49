//! A run: one immutable sorted part of a file. Owns what is known of it and of its health, and its block index while that
//! is in memory (`index.rs`).
//!
//! Invariants: every block is checksummed before it is used; a run's bytes never change; it is let go only by whoever made
//! its removal durable first (`remove_when_unused`); the file goes with its last part (`file.rs`).

mod ahead;
mod bytes;
pub(crate) mod cache;
pub(crate) mod file;
pub(crate) mod files;
pub(crate) mod filters;
pub(crate) mod folder;
pub(crate) mod health;
pub(crate) mod index;
mod row_ids;
pub(crate) mod writer;

pub(crate) use ahead::Ahead;
pub(crate) use bytes::Bytes;

use crate::tree::key::{ByBytes, ByRow};
use crate::tree::run::cache::AnyRun;
use crate::tree::run::file::{End, RunFile};
use crate::tree::run::filters::Filters;
use crate::tree::run::health::{Health, State};
use crate::tree::run::index::{Held, Holder, Index, IndexRef};
use crate::tree::run::writer::RunRecipe;
use crate::tree::stored::{agrees, blocks_of, Stored};
use crate::{Error, Result};
use arc_swap::{ArcSwapOption, Guard};
use esker_base::counters::{count, Counter};
use esker_base::trace::Source;
use esker_format::run::{block_context, section_kind, Part, PartPlace, RunStats, Section};
use esker_format::{zeros, CommitSeq, FileId, FolderId, FormatError, LeafEntry, TreeId};
use esker_io::{File, IoError, IoKind};
use esker_memory::{Account, Region};
use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;

/// A block of rows in memory.
pub(crate) type Block = <ByRow as Stored>::Block;

/// A run that a flush moved to its open transaction.
pub(crate) enum MovedRun {
    Rows(Arc<Run>),
    Keys(Arc<Run<ByBytes>>),
}

/// A block was not in the block cache, and was read: who had it.
fn count_source(source: Option<Source>) {
    match source {
        Some(Source::PageCache) => count(Counter::BlocksPagecache, 1),
        Some(Source::Device) => count(Counter::BlocksDevice, 1),
        None => {}
    }
}

/// A run. Its file is opened when it is read, and its block index is read when it is first needed; what fails is tried
/// again by the next who wants it.
pub(crate) struct Run<K: Stored = ByRow> {
    pub(crate) file_id: FileId,
    pub(crate) file: Arc<RunFile>,
    /// Which part of its file it is.
    pub(crate) part: u32,
    pub(crate) stats: RunStats,
    /// Its least and its greatest key; of a run of which only parts were in use when it was opened, theirs.
    pub(crate) bounds: (K::Own, K::Own),
    index: ArcSwapOption<Index<K>>,
    /// Bytes of the file that are its own; those of its blocks until the index was read once.
    size_bytes: AtomicU64,
    folder: FolderId,
    pub(crate) tree: TreeId,
    shape: K::Shape,
    /// It was let go.
    gone: AtomicBool,
    merged_at: AtomicU64,
    /// Who wrote it knows by its [filters](crate::tree::own_keys) which keys are not here.
    pub(crate) noted: AtomicBool,
    /// A check of every block found them sound.
    pub(crate) checked: AtomicBool,
    health: Health,
}

/// Parts of a run that can fail, for [`Health`]: blocks by their places in the file, the contents of blocks whose checksum was
/// right beyond them, and header, footer and index as one.
const CONTENTS: u64 = 1 << 63;
const FRAME: u64 = u64::MAX;

/// The path of a run's file.
pub(crate) fn run_path(dir: &Path, file: FileId) -> PathBuf {
    dir.join(format!("{:016x}.run", file.0))
}

impl<K: Stored> Run<K> {
    /// A run that was just written, with its part of the file's length.
    pub(crate) fn written(
        recipe: &RunRecipe<K>,
        file: &Arc<RunFile>,
        part: u32,
        size_bytes: u64,
        (entries, filters): (Vec<K::Entry>, Option<Filters>),
        stats: RunStats,
        bounds: (K::Own, K::Own),
    ) -> Arc<Self> {
        let run = Run::new(recipe, file, part, stats, bounds, size_bytes);
        file.cache.indexes.keep(&run, &run.index, Index::new(entries, filters, &file.cache));
        run
    }

    /// A run of which log or manifest tell. Nothing is read: see [`index`](Self::index).
    pub(crate) fn open(
        recipe: &RunRecipe<K>,
        file: &Arc<RunFile>,
        part: u32,
        stats: &RunStats,
        bounds: (K::Own, K::Own),
    ) -> Arc<Self> {
        Run::new(recipe, file, part, *stats, bounds, stats.stored_bytes)
    }

    fn new(
        recipe: &RunRecipe<K>,
        file: &Arc<RunFile>,
        part: u32,
        stats: RunStats,
        bounds: (K::Own, K::Own),
        size_bytes: u64,
    ) -> Arc<Self> {
        file.keep();
        Arc::new(Run {
            file_id: file.id,
            file: file.clone(),
            part,
            stats,
            bounds,
            index: ArcSwapOption::empty(),
            size_bytes: AtomicU64::new(size_bytes),
            folder: recipe.folder,
            tree: recipe.tree,
            shape: recipe.shape.clone(),
            gone: AtomicBool::new(false),
            merged_at: AtomicU64::new(0),
            noted: AtomicBool::new(false),
            checked: AtomicBool::new(false),
            health: Health::default(),
        })
    }

    /// The block index, read if it is not in memory. Fails for a file that is missing, cannot be read or is not the one
    /// that was written; the next call tries again.
    #[inline]
    pub(crate) fn index(self: &Arc<Self>) -> Result<IndexRef<K>> {
        match IndexRef::of(self.index.load()) {
            Some(index) => {
                index.touch();
                Ok(index)
            }
            None => self.load_index(),
        }
    }

    #[cold]
    fn load_index(self: &Arc<Self>) -> Result<IndexRef<K>> {
        let (entries, filters, size_bytes) = self.note(FRAME, self.read_index())?;
        self.size_bytes.store(size_bytes, Ordering::Relaxed);
        let index = Index::new(entries, filters, &self.file.cache);
        let index = self.file.cache.indexes.keep(self, &self.index, index);
        match IndexRef::of(Guard::from_inner(Some(index))) {
            Some(index) => Ok(index),
            None => unreachable!("it is there"),
        }
    }

    /// The folder has no such file: told now, not when somebody first reads it.
    pub(crate) fn tell_missing(&self) {
        let missing = IoError::new("open", &self.path(), None, IoKind::NotFound, "there is no such file");
        self.failed(FRAME, &missing.into());
    }

    /// The block index, if it is in memory; counts as no use of it.
    pub(crate) fn index_in_memory(&self) -> Option<IndexRef<K>> {
        IndexRef::of(self.index.load())
    }

    /// Bytes of the file that are its own; those of its blocks until the index was read once.
    pub(crate) fn size_bytes(&self) -> u64 {
        self.size_bytes.load(Ordering::Relaxed)
    }

    /// Where its file lies.
    pub(crate) fn path(&self) -> PathBuf {
        self.file.path()
    }

    /// How the run is doing.
    pub(crate) fn state(&self) -> State {
        self.health.state()
    }

    /// It failed not long ago, and nothing was read well since: work that nobody waits for leaves it alone.
    pub(crate) fn is_set_aside(&self) -> bool {
        self.health.left_alone(self.file.cache.files.host.now())
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
        let is_damaged = matches!(e, Error::Damage { .. });
        let state = if is_damaged { State::Damaged } else { State::SetAside };
        // Once, however often it is met; of a block that could not be read whoever wanted it says so.
        let before = self.health.state();
        if (is_damaged && before != State::Damaged) || (part == FRAME && before == State::Sound) {
            count(Counter::BlocksDamaged, u64::from(is_damaged));
            self.file.cache.unread.lock().push((self.tree, e.clone()));
        }
        self.health.failed(part, state, self.file.cache.files.host.now());
        self.checked.store(false, Ordering::Relaxed);
        self.file.close();
    }

    /// Block `at` of an index of this run, from memory or from disk.
    pub(crate) fn block(&self, index: &Arc<Index<K>>, at: usize) -> Result<Arc<K::Block>> {
        if let Some(block) = index.slot(at).get() {
            K::prefetch_head(&block);
            count(Counter::BlocksCached, 1);
            return Ok(block);
        }
        count(Counter::BlocksMissed, 1);
        let entry = &index.entries()[at];
        let read = |file: &dyn File, buf: &mut [u8], offset| file.read_at_from(buf, offset).map(count_source);
        let block = Arc::new(self.note(entry.block().offset, self.read_entry(entry, read))?);
        self.file.cache.insert(index, at, &block);
        Ok(block)
    }

    /// Block `at` of an index of this run from disk, past the cache: for what is read once.
    pub(crate) fn read_block_of(&self, index: &Index<K>, at: usize) -> Result<K::Block> {
        let entry = &index.entries()[at];
        self.note(entry.block().offset, self.read_entry(entry, |file, buf, offset| file.read_at(buf, offset)))
    }

    /// The same for who reads one block after the other.
    pub(crate) fn read_in_order(&self, index: &Index<K>, at: usize) -> Result<K::Block> {
        self.tell_in_order(index, at);
        self.read_block_of(index, at)
    }

    /// The same for whoever does not stand in the run.
    #[cfg(test)]
    pub(crate) fn read_block(self: &Arc<Self>, at: usize) -> Result<K::Block> {
        let index = self.index()?;
        self.read_block_of(&index, at)
    }

    /// The bytes of a block as they are stored, from disk and unchecked, with the context that seals them; for who reads one block after
    /// the other.
    pub(crate) fn stored_block(&self, index: &Index<K>, at: usize) -> Result<(Vec<u8>, u64)> {
        self.tell_in_order(index, at);
        let entry = index.entry(at);
        let read = || {
            let file = self.file.open()?;
            let mut bytes = zeros(entry.stored_bytes as usize).map_err(Error::in_memory)?;
            file.read_at(&mut bytes, entry.offset)?;
            Ok(bytes)
        };
        match read() {
            // Not yet known to be what was written: no fault is forgotten for it.
            Ok(bytes) => Ok((bytes, block_context(self.file_id, entry.offset))),
            Err(e) => self.note(entry.offset, Err(e)),
        }
    }

    fn read_entry(
        &self,
        whole: &K::Entry,
        read: impl FnOnce(&dyn File, &mut [u8], u64) -> esker_io::Result<()>,
    ) -> Result<K::Block> {
        let entry = whole.block();
        let file = self.file.open()?;
        let bytes = entry.stored_bytes as usize;
        let mut region = Region::new(Account::BlockCache, bytes)
            .map_err(|_| Error::OutOfMemory(format!("{bytes} bytes for a block")))?;
        read(&*file, &mut region[..bytes], entry.offset)?;
        self.open_entry(whole, Bytes::new(region, bytes)).map_err(|e| Error::damage(&self.path(), entry.offset, e))
    }

    /// Checks and opens what was read of an entry's block.
    fn open_entry(&self, whole: &K::Entry, bytes: Bytes) -> std::result::Result<K::Block, FormatError> {
        let context = block_context(self.file_id, whole.block().offset);
        let block = K::open(bytes, &self.shape, context)?;
        // What is decided by an entry alone must be true of its block.
        agrees::<K>(whole, &block)?;
        Ok(block)
    }

    /// Damage found while using the block at `offset` of the file after it was opened; or there was no memory for it, of which
    /// nothing is held against the run.
    pub(crate) fn damage(&self, offset: u64, reason: FormatError) -> Error {
        let e = Error::damage(&self.path(), offset, reason);
        if !e.is_want_of_resources() {
            self.failed(CONTENTS | offset, &e);
        }
        e
    }

    /// The first block that holds `key` or a greater one. Reads blocks where the index does not tell, few of however many.
    #[inline]
    pub(crate) fn seek(&self, index: &Arc<Index<K>>, key: K::Ref<'_>) -> Result<usize> {
        let first = index.block_at_or_after(key);
        match index.entries().get(first) {
            Some(entry) if !K::is_last_known(entry) => self.seek_from(index, first, key),
            _ => Ok(first),
        }
    }

    /// The same, and what it reads does not come into the cache: a merge's blocks go with the merge.
    pub(crate) fn seek_beside_cache(&self, index: &Index<K>, key: K::Ref<'_>) -> Result<usize> {
        let last = |at: usize| Ok(K::cmp(K::last_key(&self.read_block_of(index, at)?), key).is_ge());
        Self::search(index, index.block_at_or_after(key), key, last)
    }

    /// The first block that may hold `key`, for who looks for it alone; true: if that one does not, none does. It is searched
    /// where the index tells the beginnings of keys alone, and filters would have to be asked of many blocks.
    #[inline]
    pub(crate) fn seek_key(&self, index: &Arc<Index<K>>, key: K::Ref<'_>) -> Result<(usize, bool)> {
        const FEW: usize = 4;
        let first = index.block_at_or_after(key);
        index.fetch(first);
        let may_begin_before = |at: usize| index.entries().get(at).is_some_and(|e| K::cmp(K::first(e), key).is_le());
        let is_known = index.entries().get(first).is_none_or(K::is_last_known);
        if is_known || (index.filters().is_some() && !may_begin_before(first + FEW)) {
            return Ok((first, is_known));
        }
        Ok((self.seek_from(index, first, key)?, true))
    }

    /// The same from a block on that may be the one.
    fn seek_from(&self, index: &Arc<Index<K>>, first: usize, key: K::Ref<'_>) -> Result<usize> {
        Self::search(index, first, key, |at| Ok(K::cmp(K::last_key(&*self.block(index, at)?), key).is_ge()))
    }

    /// The same; `reaches` reads a block of which the index does not tell whether it holds the key or a greater one.
    fn search(
        index: &Index<K>,
        first: usize,
        key: K::Ref<'_>,
        reaches: impl Fn(usize) -> Result<bool>,
    ) -> Result<usize> {
        let entries = index.entries();
        // Whatever begins behind the key, as far as the index tells, holds greater ones.
        let mut end = entries.partition_point(|e| K::cmp(K::first(e), key).is_le()).max(first);
        let mut from = first;
        while from < end {
            let at = from + (end - from) / 2;
            let holds = match K::is_last_known(&entries[at]) {
                true => K::cmp(K::last(&entries[at]), key).is_ge(),
                false => reaches(at)?,
            };
            (from, end) = if holds { (from, at) } else { (at + 1, end) };
        }
        Ok(from)
    }

    /// The greatest key before `key`, if there is one. Reads few blocks where the index does not tell, past the cache.
    pub(crate) fn key_before(&self, index: &Index<K>, key: K::Ref<'_>) -> Result<Option<K::Own>> {
        let first = self.seek_beside_cache(index, key)?;
        if index.entries().get(first).is_some_and(|e| K::cmp(K::first(e), key).is_lt()) {
            let block = self.read_block_of(index, first)?;
            if let Some(last) = K::lower_bound(&block, key).checked_sub(1) {
                return Ok(Some(K::own(K::key(&block, last))));
            }
        }
        let Some(before) = first.checked_sub(1).map(|before| &index.entries()[before]) else { return Ok(None) };
        if K::is_last_known(before) {
            return Ok(Some(K::own(K::last(before))));
        }
        let block = self.read_block_of(index, first - 1)?;
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

    /// Reads and checks what the file says of its parts, and the part's footer, which tells where all else lies.
    fn open_part(&self) -> Result<Opened> {
        let file = self.file.open()?;
        let (directory, end) = self.file.directory(&*file, self.folder)?;
        let places = directory.places();
        let Some(place) = places.get(self.part as usize) else {
            let found = places.len() as u64;
            return Err(self.invalid(directory.footer_at(), "parts of a run", found));
        };
        // Of a part of usual size its end holds all that follows the blocks.
        let begin = self.part.checked_sub(1).map_or(0, |before| places[before as usize].end());
        let end = match end.filter(|end| end.has(place.offset)) {
            Some(end) => end,
            None => End::read(&*file, begin, place.end())?,
        };
        let footer = end.part(&*file, place.offset, place.bytes.into())?;
        let damage = |e| Error::damage(&self.path(), place.offset, e);
        let part = Part::decode(self.file_id, self.part, places, &footer).map_err(damage)?;
        drop(footer);
        let identity = |what, expected: u64, found: u64| match expected == found {
            true => Ok(()),
            false => Err(self.invalid(place.offset, what, found)),
        };
        identity("run's tree", self.tree.0, part.tree.0)?;
        identity("run's layout", K::fingerprint(&self.shape), part.fingerprint)?;
        identity("kind of a run's blocks", blocks_of::<K>() as u64, part.blocks as u64)?;
        let own_bytes = own_bytes(places, self.part, directory.file_bytes());
        Ok(Opened { file, end, part, place: *place, own_bytes })
    }

    fn invalid(&self, offset: u64, what: &'static str, found: u64) -> Error {
        Error::damage(&self.path(), offset, FormatError::Invalid { what, found })
    }

    /// Reads and checks the part's index; what the index says of each block, where their filters lie, and the part's own bytes.
    fn read_index(&self) -> Result<(Vec<K::Entry>, Option<Filters>, u64)> {
        let opened = self.open_part()?;
        let part = &opened.part;
        let at = |offset: u64| move |e| Error::damage(&self.path(), offset, e);
        let section = |kind| -> Result<(u64, Cow<'_, [u8]>)> {
            let section = part.section(kind).map_err(at(opened.place.offset))?;
            Ok((section.offset, opened.read(section)?))
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
            return Err(self.invalid(stats_at, "run's figures against the log's", written.rows));
        }
        let filters = match part.section(blocks_of::<K>().filters()) {
            Err(_) => None,
            Ok(section) => {
                let filters = Filters::new(&entries, section.offset);
                if filters.stored_bytes() != section.bytes {
                    return Err(self.invalid(section.offset, "length of a run's filters", section.bytes));
                }
                Some(filters)
            }
        };
        Ok((entries, filters, opened.own_bytes))
    }
}

/// A part whose footer was read and checked.
struct Opened {
    file: Arc<dyn File>,
    /// Of the file, before the part's end.
    end: End,
    part: Part,
    /// Where its footer is.
    place: PartPlace,
    /// Bytes of the file that are the part's own.
    own_bytes: u64,
}

impl Opened {
    /// The bytes of a section, unchecked; they lie in the file, before the part's footer.
    fn read(&self, section: &Section) -> Result<Cow<'_, [u8]>> {
        self.end.part(&*self.file, section.offset, section.bytes)
    }
}

/// What a part takes of a file that is `size` bytes long: from the end of the one before, the last with all that follows.
fn own_bytes(places: &[PartPlace], part: u32, size: u64) -> u64 {
    let end = |at: usize| if at + 1 < places.len() { places[at].end() } else { size };
    let part = part as usize;
    end(part) - part.checked_sub(1).map_or(0, end)
}

impl<K: Stored> AnyRun for Run<K> {
    fn remove_when_unused(&self) {
        if !self.gone.swap(true, Ordering::Relaxed) {
            self.file.let_go();
        }
    }
}

impl<K: Stored> Holder for Run<K> {
    fn take_used(&self) -> bool {
        self.index.load().as_ref().is_some_and(|index| index.take_used())
    }

    fn let_go(&self) -> Option<Arc<dyn Held>> {
        self.index.swap(None).map(|index| index as _)
    }
}

impl<K: Stored> Drop for Run<K> {
    fn drop(&mut self) {
        if let Some(index) = self.index.load_full() {
            self.file.cache.indexes.forget(&*index);
        }
    }
}

#[cfg(test)]
pub(crate) mod many;
#[cfg(test)]
mod parts;
#[cfg(test)]
mod tests;
