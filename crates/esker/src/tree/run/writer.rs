//! Writes a run file: one part after the other, of each the blocks in rising order of keys, then index and footer; and what
//! ends the file. Synced once, when it is finished; its name is durable only after the caller has synced the folder. A crash
//! before that leaves an orphan that the next start removes; a writer that is dropped unfinished removes its file.

use crate::tree::key::ByRow;
use crate::tree::run::cache::BlockCache;
use crate::tree::run::file::RunFile;
use crate::tree::run::filters;
use crate::tree::run::{own_bytes, Run};
use crate::tree::stored::{blocks_of, Stored};
use crate::Result;
use esker_base::counters::{count, Counter};
use esker_format::run::{
    block_context, encode_end, Filters, MoreSections, Part, PartPlace, RowIdSet, RunHeader, RunStats, RUN_HEADER_BYTES,
};
use esker_format::{
    block::reseal, CommitSeq, Compression, FileId, FolderId, FormatError, LeafEntry, RowId, TreeId, VersionTag,
    MAX_BLOCK_BYTES, MAX_IMAGE_BYTES, MAX_ROW_BYTES,
};
use esker_io::{AccessHint, Disk, SequentialWriter};
use esker_memory::{Account, Charge};
use std::path::PathBuf;
use std::sync::Arc;

/// A block is closed at this many times its size even in the middle of a row's versions.
const MOST_BLOCKS: usize = 16;
/// ... or at this many row versions, or when their keys are too long for more.
const MOST_ROWS: usize = 1 << 16;
/// ... or when one more row, whose NULLs may take room too, and what else there is of each (ids, tags, lengths) might make it
/// longer than a reader takes.
const MOST_RAW_BYTES: usize = (MAX_BLOCK_BYTES - MAX_ROW_BYTES - MAX_IMAGE_BYTES) as usize - MOST_ROWS * 64;

/// What a run of a tree is written with.
pub(crate) struct RunRecipe<K: Stored = ByRow> {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) cache: Arc<BlockCache>,
    /// Which folder's runs they are, as their files say.
    pub(crate) folder: FolderId,
    pub(crate) tree: TreeId,
    pub(crate) shape: K::Shape,
    pub(crate) compression: Compression,
    pub(crate) zstd_level: i32,
    pub(crate) block_bytes: usize,
    pub(crate) write_bytes: usize,
    /// Does a run of rows say which those are?
    pub(crate) has_row_ids: bool,
}

impl<K: Stored> Clone for RunRecipe<K> {
    fn clone(&self) -> Self {
        RunRecipe { disk: self.disk.clone(), cache: self.cache.clone(), shape: self.shape.clone(), ..*self }
    }
}

impl<K: Stored> RunRecipe<K> {
    pub(crate) fn builder(&self) -> K::Builder {
        K::builder(&self.shape)
    }

    /// Of runs of a transaction that has not ended: it may be prepared, and a restart then locks their rows without reading
    /// them. Whatever else is written holds nothing that a restart would lock.
    pub(crate) fn of_open_transaction(self) -> Self {
        RunRecipe { has_row_ids: true, ..self }
    }
}

/// A run file that is being written, between two parts.
pub(crate) struct FileWriter {
    file: Arc<RunFile>,
    writer: SequentialWriter,
    parts: Vec<PartPlace>,
    unfinished: Unfinished,
}

/// A run that is being written: the next part of its file.
pub(crate) struct RunWriter<K: Stored = ByRow> {
    recipe: RunRecipe<K>,
    out: FileWriter,
    entries: Vec<K::Entry>,
    stats: RunStats,
    /// Of the blocks that are written, if the tree's runs have filters.
    filters: Option<Filters>,
    /// Of the rows in the blocks that are written, if the run says which those are.
    row_ids: Option<RowIdSet>,
    /// The memory of filters and row ids.
    charge: Charge,
    /// Of the keys of the block that is gathered, if there are filters.
    hashes: Vec<u64>,
    /// The least and the greatest key of the blocks that are written.
    bounds: Option<(K::Own, K::Own)>,
    scratch: Vec<u8>,
    builder: Option<K::Builder>,
    /// The block that is gathered takes half as much again.
    stretched: bool,
}

/// A part that is written: a run, once its file is finished.
pub(crate) struct WrittenPart<K: Stored = ByRow> {
    recipe: RunRecipe<K>,
    number: u32,
    entries: Vec<K::Entry>,
    filters: Option<filters::Filters>,
    stats: RunStats,
    bounds: (K::Own, K::Own),
}

/// A file with all its parts, synced.
pub(crate) struct WrittenFile {
    file: Arc<RunFile>,
    size_bytes: u64,
    parts: Vec<PartPlace>,
}

/// Removes a file that is not finished.
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

impl FileWriter {
    /// Creates the file; of `recipe` counts what is the same for all trees.
    pub(crate) fn create<K: Stored>(recipe: &RunRecipe<K>, file_id: FileId) -> Result<Self> {
        let file = RunFile::new(&recipe.cache, file_id, 0);
        let path = file.path();
        let unfinished = Unfinished { disk: recipe.disk.clone(), path: path.clone(), finished: false };
        // Most of what is new is read soon. Where memory is short its pages would push out what others use.
        let hint = if recipe.cache.files.is_short() { AccessHint::Bulk } else { AccessHint::Kept };
        let mut writer = SequentialWriter::create(&recipe.disk, &path, hint, recipe.write_bytes, Account::BulkBuffer)?;
        let mut header = Vec::with_capacity(RUN_HEADER_BYTES);
        let created_unix_s = recipe.cache.files.host.unix().as_secs();
        RunHeader { file: file_id, folder: recipe.folder, created_unix_s }.encode(&mut header);
        writer.append(&header)?;
        Ok(FileWriter { file, writer, parts: Vec::new(), unfinished })
    }

    /// As [`create`](Self::create), for the thread of a session.
    pub(crate) fn of_session<K: Stored>(recipe: &RunRecipe<K>, file_id: FileId) -> Result<Self> {
        let mut out = FileWriter::create(recipe, file_id)?;
        out.writer.write_at_once();
        Ok(out)
    }

    /// Where the next part may begin.
    fn next_part(&self) -> u64 {
        self.parts.last().map_or(RUN_HEADER_BYTES as u64, PartPlace::end)
    }

    /// Writes what follows the parts, of which there is one at least, and syncs the file.
    pub(crate) fn finish(mut self) -> Result<WrittenFile> {
        // Whoever ends a file waits for it.
        self.writer.write_at_once();
        let mut end = Vec::new();
        encode_end(self.file.id, &self.parts, self.writer.position(), &mut end);
        self.writer.append(&end)?;
        let (_, size_bytes) = self.writer.finish()?;
        self.unfinished.finished = true;
        self.file.is_finished(size_bytes);
        count(Counter::RunsCreated, 1);
        Ok(WrittenFile { file: self.file, size_bytes, parts: self.parts })
    }
}

impl<K: Stored> WrittenPart<K> {
    /// The run that the part is.
    pub(crate) fn run(self, file: &WrittenFile) -> Arc<Run<K>> {
        let own_bytes = own_bytes(&file.parts, self.number, file.size_bytes);
        Run::written(
            &self.recipe,
            &file.file,
            self.number,
            own_bytes,
            (self.entries, self.filters),
            self.stats,
            self.bounds,
        )
    }
}

impl<K: Stored> RunWriter<K> {
    /// A run that has a file for itself.
    pub(crate) fn create(recipe: &RunRecipe<K>, file_id: FileId) -> Result<Self> {
        Ok(RunWriter::next(recipe.clone(), FileWriter::create(recipe, file_id)?))
    }

    /// The next part of a file, of which `recipe` is.
    pub(crate) fn next(recipe: RunRecipe<K>, out: FileWriter) -> Self {
        RunWriter {
            filters: K::has_filters(&recipe.shape).then(Filters::default),
            row_ids: recipe.has_row_ids.then(RowIdSet::default),
            charge: Charge::new(Account::BulkBuffer, 0),
            hashes: Vec::new(),
            recipe,
            out,
            entries: Vec::new(),
            stats: RunStats::default(),
            bounds: None,
            scratch: Vec::new(),
            builder: None,
            stretched: false,
        }
    }

    /// Encodes what `builder` holds as the next block and empties it.
    pub(crate) fn write_block(&mut self, builder: &mut K::Builder) -> Result<()> {
        let offset = self.out.writer.position();
        let context = block_context(self.out.file.id, offset);
        self.scratch.clear();
        self.stretched = false;
        if let Some(row_ids) = &mut self.row_ids {
            K::row_ids(builder).iter().for_each(|id| row_ids.add(RowId(*id)));
        }
        let press = (self.recipe.compression, self.recipe.zstd_level);
        let finished = K::finish(builder, press, context, &mut self.scratch);
        let (entry, first, last) = finished.map_err(|e| self.damage(e))?;
        let entry = K::moved(&entry, offset, None).map_err(|e| self.damage(e))?;
        self.out.writer.append(&self.scratch)?;
        count(Counter::BlocksWritten, 1);
        if let Some(filters) = &mut self.filters {
            // Not of what was pushed as images, whose ids follow each other.
            let all = self.hashes.len() == entry.block().rows as usize;
            filters.add(entry.filter_bytes(), all.then_some(&self.hashes));
            self.hashes.clear();
        }
        self.note(entry, first, last);
        Ok(())
    }

    /// A block has been written.
    fn note(&mut self, entry: K::Entry, first: K::Own, last: K::Own) {
        self.stats.add(entry.block());
        self.entries.push(entry);
        let filters = self.filters.as_ref().map_or(0, Filters::memory_bytes);
        let row_ids = self.row_ids.as_ref().map_or(0, RowIdSet::memory_bytes);
        if filters + row_ids > 0 {
            self.charge.resize((filters + row_ids) as u64);
        }
        match &mut self.bounds {
            Some((_, greatest)) => *greatest = last,
            None => self.bounds = Some((first, last)),
        }
    }

    fn damage(&self, e: FormatError) -> crate::Error {
        crate::Error::damage(&self.out.file.path(), self.out.writer.position(), e)
    }

    /// Would a block that is copied now leave one of good size before it?
    pub(crate) fn can_copy(&self) -> bool {
        self.builder.as_ref().is_none_or(|b| {
            let raw_bytes = K::raw_bytes(b);
            K::gathered(b) == 0 || raw_bytes >= self.recipe.block_bytes / 2
        })
    }

    /// What cannot be [copied](Self::can_copy) yet is added to the block that is gathered, whole: so that the next one can
    /// be, where all are about as large.
    pub(crate) fn stretch(&mut self) {
        self.stretched = true;
    }

    /// Adds a block as another run has it, from key to key of `bounds`, sealed with `from`; versions get `seq` if they have
    /// no sequence of their own. Its keys come behind all that were added. Nothing is added if the block is not what
    /// `entry` says: why not. `filter`: of the block, if it has one.
    pub(crate) fn copy_block(
        &mut self,
        (block, filter): (&mut [u8], Option<&[u8]>),
        from: u64,
        entry: &K::Entry,
        (first, last): (K::Own, K::Own),
        seq: Option<CommitSeq>,
    ) -> Result<Option<FormatError>> {
        self.close_block()?;
        debug_assert!(self.row_ids.is_none(), "a block is copied only for a tree");
        let offset = self.out.writer.position();
        let to = block_context(self.out.file.id, offset);
        let sealed = reseal(block, from, to, seq).and_then(|found| entry.block().agrees_with(&found));
        let entry = match sealed.and_then(|()| K::moved(entry, offset, seq)) {
            Ok(entry) => entry,
            Err(reason) => return Ok(Some(reason)),
        };
        self.out.writer.append(block)?;
        count(Counter::BlocksCopied, 1);
        if let Some(filters) = &mut self.filters {
            match filter {
                Some(filter) => filters.copy(entry.filter_bytes(), filter),
                None => filters.add(entry.filter_bytes(), None),
            }
        }
        self.note(entry, first, last);
        Ok(None)
    }

    /// Adds one version; versions of a key come newest first, keys in rising order.
    pub(crate) fn push(&mut self, key: K::Ref<'_>, tag: VersionTag, value: &[u8]) -> Result<()> {
        let mut builder = self.builder.take().unwrap_or_else(|| self.recipe.builder());
        // Versions of one key stay in one block, unless they are very many.
        let (raw_bytes, gathered) = (K::raw_bytes(&builder), K::gathered(&builder));
        let stretch = if self.stretched { self.recipe.block_bytes / 2 * 3 } else { self.recipe.block_bytes };
        let most_bytes = (MOST_BLOCKS * self.recipe.block_bytes).min(MOST_RAW_BYTES);
        let most = raw_bytes >= most_bytes || gathered >= MOST_ROWS;
        let overfull = most || !K::has_room(&builder, K::short(key));
        if overfull || (raw_bytes >= stretch && !K::ends_with(&builder, key)) {
            self.write_block(&mut builder)?;
        }
        if self.filters.is_some() {
            self.hashes.push(K::filter_hash(K::short(key)));
        }
        let pushed = K::push(&mut builder, key, tag, value);
        self.builder = Some(builder);
        pushed.map_err(|e| self.damage(e))
    }

    /// Writes the gathered block and keeps its builder.
    #[cold]
    fn close_block(&mut self) -> Result<()> {
        let Some(mut builder) = self.builder.take() else { return Ok(()) };
        if K::gathered(&builder) > 0 {
            self.write_block(&mut builder)?;
        }
        self.builder = Some(builder);
        Ok(())
    }

    /// Bytes of the file so far.
    pub(crate) fn size_bytes(&self) -> u64 {
        self.out.writer.position()
    }

    /// Writes what follows the blocks of the file's only part, and syncs the file.
    pub(crate) fn finish(self) -> Result<Arc<Run<K>>> {
        let (out, part) = self.end_part()?;
        Ok(part.run(&out.finish()?))
    }

    /// Writes what follows the blocks in the part, which holds a version at least; the file, for the next one.
    pub(crate) fn end_part(mut self) -> Result<(FileWriter, WrittenPart<K>)> {
        if let Some(mut builder) = self.builder.take() {
            if K::gathered(&builder) > 0 {
                self.write_block(&mut builder)?;
            }
        }
        let Some(bounds) = self.bounds else { unreachable!("a run holds a version") };
        let mut out = self.out;
        let number = out.parts.len() as u32;
        let (place, first_block) = ((number, out.writer.position()), out.next_part());
        let row_ids = self.row_ids.map(RowIdSet::finish).unwrap_or_default();
        let filters = self.filters.as_ref().filter(|filters| !filters.is_empty());
        let blocks = (self.entries.as_slice(), &self.stats, MoreSections { filters, row_ids: &row_ids });
        // They come first of what follows the blocks.
        let filters = filters.map(|_| filters::Filters::new(&self.entries, place.1));
        let mut end = Vec::new();
        out.parts.push(encode_part(&self.recipe, out.file.id, blocks, place, first_block, &mut end));
        out.writer.append(&end)?;
        let (recipe, entries, stats) = (self.recipe, self.entries, self.stats);
        Ok((out, WrittenPart { recipe, number, entries, filters, stats, bounds }))
    }
}

impl RunWriter {
    /// Adds the only version of a row, an inserted one; rows come in rising order.
    ///
    /// # Safety
    /// As for [`RowBlockBuilder::push_image`].
    pub(crate) unsafe fn push_image(&mut self, row: RowId, ordinal: u64, image: *const u8) -> Result<()> {
        let full = |b: &<ByRow as Stored>::Builder| b.raw_bytes() >= self.recipe.block_bytes || b.rows() >= MOST_ROWS;
        if self.builder.as_ref().is_some_and(full) {
            self.close_block()?;
        }
        let builder = self.builder.get_or_insert_with(|| self.recipe.builder());
        // SAFETY: the caller's promise.
        unsafe { builder.push_image(row, ordinal, image) };
        Ok(())
    }
}

/// Appends what follows the blocks of part `number`, which begin at `first_block`; `out` begins at `base` of the file.
fn encode_part<K: Stored>(
    recipe: &RunRecipe<K>,
    file: FileId,
    blocks: (&[K::Entry], &RunStats, MoreSections<'_>),
    (number, base): (u32, u64),
    first_block: u64,
    out: &mut Vec<u8>,
) -> PartPlace {
    let part = Part {
        number,
        tree: recipe.tree,
        fingerprint: K::fingerprint(&recipe.shape),
        blocks: blocks_of::<K>(),
        first_block,
        sections: Vec::new(),
    };
    part.encode_with(file, blocks, base, out)
}

/// What follows the blocks in a file whose only part they are, from `base` on.
#[cfg(test)]
pub(crate) fn encode_tail<K: Stored>(
    recipe: &RunRecipe<K>,
    file: FileId,
    entries: &[K::Entry],
    stats: &RunStats,
    base: u64,
) -> Vec<u8> {
    let mut tail = Vec::new();
    let blocks = (entries, stats, MoreSections::default());
    let place = encode_part(recipe, file, blocks, (0, base), RUN_HEADER_BYTES as u64, &mut tail);
    encode_end(file, &[place], base, &mut tail);
    tail
}
