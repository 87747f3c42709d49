//! A run: one immutable sorted file, opened. Owns its handle, its block index and the slots of its cached blocks.
//!
//! Invariants: every block is checksummed before it is used; a run's bytes never change; the file is unlinked only by
//! whoever made its removal durable first ([`Run::remove_when_unused`] marks it, the last user's drop does it).

use crate::cache::{BlockCache, Slot};
use crate::run_writer::RunRecipe;
use crate::{Error, Result};
use esker_format::run::{block_context, RunFooter, RunHeader, RunStats, RUN_FOOTER_BYTES, RUN_HEADER_BYTES};
use esker_format::{BlockEntry, FormatError, Layout, RowBlock, RowFormat};
use esker_format::{CommitSeq, FileId, RowId};
use esker_io::{AccessHint, Disk, File, OpenMode};
use esker_trace::counters::{count, Counter};
use esker_trace::memory::{Account, Region};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;

/// A block in memory.
pub(crate) type Block = RowBlock<Bytes>;

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

/// An open run.
pub(crate) struct Run {
    pub(crate) file_id: FileId,
    pub(crate) entries: Vec<BlockEntry>,
    pub(crate) stats: RunStats,
    pub(crate) size_bytes: u64,
    layout: Arc<Layout>,
    format: RowFormat,
    path: PathBuf,
    /// The file, or why it cannot be read.
    file: Result<Arc<dyn File>>,
    slots: Box<[Slot]>,
    cache: Arc<BlockCache>,
    disk: Arc<dyn Disk>,
    remove: AtomicBool,
    merged_at: AtomicU64,
    damaged: AtomicBool,
    /// A check of every block found them sound.
    pub(crate) checked: AtomicBool,
}

/// The path of a run's file.
pub(crate) fn run_path(dir: &Path, file: FileId) -> PathBuf {
    dir.join(format!("{:016x}.run", file.0))
}

impl Run {
    /// Opens the file of a run that was just written.
    pub(crate) fn written(
        recipe: &RunRecipe,
        file_id: FileId,
        size_bytes: u64,
        entries: Vec<BlockEntry>,
        stats: RunStats,
    ) -> Result<Arc<Run>> {
        let path = run_path(&recipe.dir, file_id);
        let file = recipe.disk.open(&path, OpenMode::Read, AccessHint::Blocks)?;
        count(Counter::RunsCreated, 1);
        Ok(Run::new(recipe, file_id, size_bytes, entries, stats, Ok(file)))
    }

    /// Opens a run's file. One that is missing or damaged becomes a run whose rows cannot be read: whoever asks for
    /// them gets the error, everybody else goes on.
    pub(crate) fn open(recipe: &RunRecipe, file_id: FileId, stats: &RunStats) -> Arc<Run> {
        match Opened::read(recipe, file_id) {
            Ok(o) => Run::new(recipe, file_id, o.size_bytes, o.entries, o.stats, Ok(o.file)),
            Err(e) => {
                // One block stands for all of it.
                let entry = BlockEntry {
                    rows: u32::try_from(stats.rows).unwrap_or(u32::MAX),
                    tombstones: u32::try_from(stats.tombstones).unwrap_or(u32::MAX),
                    first_id: stats.min_id,
                    last_id: stats.max_id,
                    min_seq: stats.min_seq,
                    max_seq: stats.max_seq,
                    min_ordinal: stats.min_ordinal,
                    max_ordinal: stats.max_ordinal,
                    ..BlockEntry::default()
                };
                Run::new(recipe, file_id, 0, vec![entry], *stats, Err(e))
            }
        }
    }

    fn new(
        recipe: &RunRecipe,
        file_id: FileId,
        size_bytes: u64,
        entries: Vec<BlockEntry>,
        stats: RunStats,
        file: Result<Arc<dyn File>>,
    ) -> Arc<Run> {
        Arc::new(Run {
            file_id,
            slots: entries.iter().map(|_| Slot::default()).collect(),
            entries,
            stats,
            size_bytes,
            layout: recipe.layout.clone(),
            format: recipe.format,
            path: run_path(&recipe.dir, file_id),
            file,
            cache: recipe.cache.clone(),
            disk: recipe.disk.clone(),
            remove: AtomicBool::new(false),
            merged_at: AtomicU64::new(0),
            damaged: AtomicBool::new(false),
            checked: AtomicBool::new(false),
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// A block of it was found damaged.
    pub(crate) fn is_damaged(&self) -> bool {
        self.damaged.load(Ordering::Relaxed)
    }

    pub(crate) fn set_damaged(&self) {
        self.damaged.store(true, Ordering::Relaxed);
    }

    /// Why the run cannot be read, if it cannot.
    pub(crate) fn unreadable(&self) -> Option<&Error> {
        self.file.as_ref().err()
    }

    pub(crate) fn slot(&self, index: usize) -> &Slot {
        &self.slots[index]
    }

    /// Block `index`, from memory or from disk.
    pub(crate) fn block(self: &Arc<Self>, index: usize) -> Result<Arc<Block>> {
        if let Some(block) = self.slots[index].get() {
            count(Counter::BlocksCached, 1);
            return Ok(block);
        }
        count(Counter::BlocksMissed, 1);
        let block = Arc::new(self.read_block(index)?);
        self.cache.insert(self, index, &block);
        Ok(block)
    }

    /// Block `index` from disk, past the cache: for what is read once.
    pub(crate) fn read_block(&self, index: usize) -> Result<Block> {
        let file = self.file.as_ref().map_err(Error::clone)?;
        let entry = &self.entries[index];
        let bytes = entry.stored_bytes as usize;
        let mut region = Region::new(Account::BlockCache, bytes)
            .map_err(|_| Error::OutOfMemory(format!("{bytes} bytes for a block")))?;
        file.read_at(&mut region[..bytes], entry.offset)?;
        let context = block_context(self.file_id, entry.offset);
        RowBlock::open(Bytes { region, bytes }, &self.layout, self.format, context)
            .map_err(|e| Error::damage(&self.path, entry.offset, e))
    }

    /// Damage found while using block `index` after it was opened.
    pub(crate) fn damage(&self, index: usize, reason: FormatError) -> Error {
        Error::damage(&self.path, self.entries[index].offset, reason)
    }

    /// The first block that may hold `row`: the first whose last id is not below it.
    pub(crate) fn block_at_or_after(&self, row: RowId) -> usize {
        self.entries.partition_point(|e| e.last_id < row)
    }

    /// The horizon under which a merge made this run, if one did in this process: merging it again would change
    /// nothing until the horizon has passed what was kept.
    pub(crate) fn merged_at(&self) -> CommitSeq {
        CommitSeq(self.merged_at.load(Ordering::Relaxed))
    }

    pub(crate) fn set_merged_at(&self, horizon: CommitSeq) {
        self.merged_at.store(horizon.0, Ordering::Relaxed);
    }

    /// Unlinks the file once nobody uses it. The removal must be durable already.
    pub(crate) fn remove_when_unused(&self) {
        self.remove.store(true, Ordering::Release);
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.cache.forget(&self.slots);
        if self.remove.load(Ordering::Acquire) {
            count(Counter::RunsRemoved, 1);
            // A file that stays behind is an orphan: the next start removes it.
            let _ = self.disk.remove(&self.path);
        }
    }
}

/// What the file of a run says of itself.
struct Opened {
    file: Arc<dyn File>,
    size_bytes: u64,
    entries: Vec<BlockEntry>,
    stats: RunStats,
}

impl Opened {
    /// Reads and checks footer, header and index.
    fn read(recipe: &RunRecipe, file_id: FileId) -> Result<Opened> {
        let path = run_path(&recipe.dir, file_id);
        let file = recipe.disk.open(&path, OpenMode::Read, AccessHint::Blocks)?;
        let size = file.size_bytes()?;
        let at = |offset: u64| {
            let path = path.clone();
            move |e| Error::damage(&path, offset, e)
        };
        let footer_at = size.saturating_sub(RUN_FOOTER_BYTES as u64);
        let mut bytes = vec![0; RUN_FOOTER_BYTES.min(size as usize)];
        file.read_at(&mut bytes, footer_at)?;
        let footer = RunFooter::decode(&bytes, size).map_err(at(footer_at))?;
        let mut bytes = vec![0; RUN_HEADER_BYTES.min(size as usize)];
        file.read_at(&mut bytes, 0)?;
        let header = RunHeader::decode(&bytes).map_err(at(0))?;
        let identity = |what, expected: u64, found: u64| match expected == found {
            true => Ok(()),
            false => Err(Error::damage(&path, 0, FormatError::Invalid { what, found })),
        };
        identity("run's file id", file_id.0, header.file.0)?;
        identity("run footer's file id", file_id.0, footer.file.0)?;
        identity("run's tree", recipe.tree.0, header.tree.0)?;
        identity("run's layout", recipe.layout.fingerprint(), header.fingerprint)?;
        let mut bytes = vec![0; footer.index_bytes as usize];
        file.read_at(&mut bytes, footer.index_offset)?;
        let entries = esker_format::run::decode_index(file_id, &bytes).map_err(at(footer.index_offset))?;
        Ok(Opened { file, size_bytes: size, entries, stats: footer.stats })
    }
}
