//! Writes one run: blocks in rising order of row ids, then index and footer. Synced when finished; its name is durable
//! only after the caller has synced the folder. A crash before that leaves an orphan that the next start removes; a
//! writer that is dropped unfinished removes its file.

use crate::tree::run::cache::BlockCache;
use crate::tree::run::{run_path, Run};
use crate::Result;
use esker_base::counters::{count, Counter};
use esker_format::run::{block_context, encode_end, BlockKind, Part, RunHeader, RunStats, RUN_HEADER_BYTES};
use esker_format::{
    block::reseal, BlockEntry, CommitSeq, Compression, FileId, Layout, RowBlockBuilder, RowFormat, RowId, TreeId,
    VersionTag,
};
use esker_io::{Disk, SequentialWriter};
use esker_memory::Account;
use std::path::PathBuf;
use std::sync::Arc;

/// A block is closed at this many times its size even in the middle of a row's versions.
const MOST_BLOCKS: usize = 16;
/// ... or at this many row versions.
const MOST_ROWS: usize = 1 << 16;

/// What a run of a tree is written with.
#[derive(Clone)]
pub(crate) struct RunRecipe {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) dir: PathBuf,
    pub(crate) cache: Arc<BlockCache>,
    pub(crate) tree: TreeId,
    pub(crate) layout: Arc<Layout>,
    pub(crate) format: RowFormat,
    pub(crate) compression: Compression,
    pub(crate) zstd_level: i32,
    pub(crate) block_bytes: usize,
    pub(crate) write_bytes: usize,
}

impl RunRecipe {
    pub(crate) fn builder(&self) -> RowBlockBuilder {
        RowBlockBuilder::new(self.layout.clone(), self.format)
    }
}

/// A run that is being written.
pub(crate) struct RunWriter {
    recipe: RunRecipe,
    file_id: FileId,
    writer: SequentialWriter,
    entries: Vec<BlockEntry>,
    stats: RunStats,
    scratch: Vec<u8>,
    builder: Option<RowBlockBuilder>,
    unfinished: Unfinished,
}

/// Removes the file of a run that is not finished.
struct Unfinished {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    finished: bool,
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.finished {
            // What stays behind is an orphan: the next start removes it.
            let _ = self.disk.remove(&self.path);
        }
    }
}

impl RunWriter {
    pub(crate) fn create(recipe: &RunRecipe, file_id: FileId) -> Result<Self> {
        let path = run_path(&recipe.dir, file_id);
        let unfinished = Unfinished { disk: recipe.disk.clone(), path: path.clone(), finished: false };
        let mut writer = SequentialWriter::create(&recipe.disk, &path, recipe.write_bytes, Account::BulkBuffer)?;
        let mut header = Vec::with_capacity(RUN_HEADER_BYTES);
        RunHeader { file: file_id, folder: [0; 16], created_unix_s: crate::catalog::table::unix_s() }
            .encode(&mut header);
        writer.append(&header)?;
        Ok(RunWriter {
            recipe: recipe.clone(),
            file_id,
            writer,
            entries: Vec::new(),
            stats: RunStats::default(),
            scratch: Vec::new(),
            builder: None,
            unfinished,
        })
    }

    /// As [`create`](Self::create), for the thread of a session.
    pub(crate) fn of_session(recipe: &RunRecipe, file_id: FileId) -> Result<Self> {
        let mut writer = RunWriter::create(recipe, file_id)?;
        writer.writer.write_at_once();
        Ok(writer)
    }

    /// Encodes what `builder` holds as the next block and empties it.
    pub(crate) fn write_block(&mut self, builder: &mut RowBlockBuilder) -> Result<()> {
        let offset = self.writer.position();
        let context = block_context(self.file_id, offset);
        self.scratch.clear();
        let mut entry = builder.finish(self.recipe.compression, self.recipe.zstd_level, context, &mut self.scratch);
        entry.offset = offset;
        self.writer.append(&self.scratch)?;
        self.stats.add(&entry);
        count(Counter::BlocksWritten, 1);
        self.entries.push(entry);
        Ok(())
    }

    /// Would a block that is copied now leave one of good size before it?
    pub(crate) fn can_copy(&self) -> bool {
        self.builder.as_ref().is_none_or(|b| b.is_empty() || b.raw_bytes() >= self.recipe.block_bytes / 2)
    }

    /// Adds a block as another run has it, sealed with `from`; rows get `seq` if they have no sequence of their own. Its
    /// rows come behind all that were added. False, and nothing is added, if the block is not what it should be.
    pub(crate) fn copy_block(
        &mut self,
        block: &mut [u8],
        from: u64,
        entry: &BlockEntry,
        seq: Option<CommitSeq>,
    ) -> Result<bool> {
        self.close_block()?;
        let offset = self.writer.position();
        let to = block_context(self.file_id, offset);
        let (Ok(()), Ok(entry)) = (reseal(block, from, to, seq), entry.moved(offset, seq)) else { return Ok(false) };
        self.writer.append(block)?;
        self.stats.add(&entry);
        count(Counter::BlocksCopied, 1);
        self.entries.push(entry);
        Ok(true)
    }

    /// Adds one version; versions of a row come newest first, rows in rising order.
    pub(crate) fn push(&mut self, row: RowId, tag: VersionTag, packed: &[u8]) -> Result<()> {
        let mut builder = self.builder.take().unwrap_or_else(|| self.recipe.builder());
        // Versions of one row stay in one block, unless they are very many.
        let full = builder.raw_bytes() >= self.recipe.block_bytes;
        let overfull = builder.raw_bytes() >= MOST_BLOCKS * self.recipe.block_bytes || builder.rows() >= MOST_ROWS;
        if overfull || (full && builder.last_id() != Some(row)) {
            self.write_block(&mut builder)?;
        }
        let pushed = builder.push_packed(row, tag, packed);
        self.builder = Some(builder);
        pushed.map_err(|e| crate::Error::damage(&run_path(&self.recipe.dir, self.file_id), 0, e))
    }

    /// Adds the only version of a row, an inserted one; rows come in rising order.
    ///
    /// # Safety
    /// As for [`RowBlockBuilder::push_image`].
    pub(crate) unsafe fn push_image(&mut self, row: RowId, ordinal: u64, image: *const u8) -> Result<()> {
        let full = |b: &RowBlockBuilder| b.raw_bytes() >= self.recipe.block_bytes || b.rows() >= MOST_ROWS;
        if self.builder.as_ref().is_some_and(full) {
            self.close_block()?;
        }
        let builder = self.builder.get_or_insert_with(|| self.recipe.builder());
        // SAFETY: the caller's promise.
        unsafe { builder.push_image(row, ordinal, image) };
        Ok(())
    }

    /// Writes the gathered block and keeps its builder.
    #[cold]
    fn close_block(&mut self) -> Result<()> {
        let Some(mut builder) = self.builder.take() else { return Ok(()) };
        if !builder.is_empty() {
            self.write_block(&mut builder)?;
        }
        self.builder = Some(builder);
        Ok(())
    }

    /// Bytes of blocks written so far.
    pub(crate) fn size_bytes(&self) -> u64 {
        self.writer.position()
    }

    /// Writes what follows the blocks, and syncs the file.
    pub(crate) fn finish(mut self) -> Result<Arc<Run>> {
        if let Some(mut builder) = self.builder.take() {
            if !builder.is_empty() {
                self.write_block(&mut builder)?;
            }
        }
        // Whoever ends a run waits for it.
        self.writer.write_at_once();
        let tail = encode_tail(&self.recipe, self.file_id, &self.entries, &self.stats, self.writer.position());
        self.writer.append(&tail)?;
        let (_, size) = self.writer.finish()?;
        self.unfinished.finished = true;
        Ok(Run::written(&self.recipe, self.file_id, size, self.entries, self.stats))
    }
}

/// What follows the blocks in a file whose only part they are, from `base` on.
pub(crate) fn encode_tail(
    recipe: &RunRecipe,
    file: FileId,
    entries: &[BlockEntry],
    stats: &RunStats,
    base: u64,
) -> Vec<u8> {
    let mut tail = Vec::new();
    let part = Part {
        number: 0,
        tree: recipe.tree,
        fingerprint: recipe.layout.fingerprint(),
        blocks: BlockKind::Rows,
        first_block: RUN_HEADER_BYTES as u64,
        sections: Vec::new(),
    };
    let place = part.encode_with(file, (entries, stats), base, &mut tail);
    encode_end(file, &[place], base, &mut tail);
    tail
}
