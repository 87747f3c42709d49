//! A run file, shared by the runs that are its parts, and what it says of them.
//!
//! Invariants: the file is unlinked once nobody uses a run of it any more, and only if every part that somebody referred to
//! was let go before. A directory that hangs here is of this file: its header, footer and directory were checked, and none
//! of them changes.

use crate::tree::run::cache::BlockCache;
use crate::tree::run::index::{Held, Holder};
use crate::{Error, Result};
use arc_swap::ArcSwapOption;
use esker_base::counters::{count, Counter};
use esker_format::run::{PartPlace, RunFooter, RunHeader, RUN_FOOTER_BYTES, RUN_HEADER_BYTES};
use esker_format::{zeros, FileId, FolderId, FormatError};
use esker_io::File;
use esker_memory::{Account, Charge};
use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::Arc;

/// See the module.
pub(crate) struct RunFile {
    pub(crate) id: FileId,
    pub(super) cache: Arc<BlockCache>,
    /// How long it is; zero until that is known.
    size_bytes: AtomicU64,
    /// Parts that a tree or a transaction refers to.
    kept: AtomicU32,
    /// A part was let go: without that, nobody meant the file to go.
    let_go: AtomicBool,
    /// Kept where there are several parts, so that opening all of them reads it once.
    directory: ArcSwapOption<Directory>,
}

/// What a file says of its parts.
pub(super) struct Directory {
    places: Box<[PartPlace]>,
    file_bytes: u64,
    /// Was it used since it was last looked at?
    touched: AtomicBool,
    charge: Charge,
}

/// Bytes of a file before a place where something ends.
pub(super) struct End {
    begin: u64,
    bytes: Vec<u8>,
}

/// How much of an end is read at once.
const END_BYTES: u64 = 16 << 10;

impl Directory {
    fn new(places: Vec<PartPlace>, file_bytes: u64) -> Arc<Self> {
        let places = places.into_boxed_slice();
        let bytes = size_of::<Self>() + size_of_val(&*places);
        let charge = Charge::new(Account::Catalog, bytes as u64);
        Arc::new(Directory { places, file_bytes, touched: AtomicBool::new(false), charge })
    }

    /// Where the parts lie, in their order.
    pub(super) fn places(&self) -> &[PartPlace] {
        &self.places
    }

    /// How long the file is.
    pub(super) fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// Where its footer is.
    pub(super) fn footer_at(&self) -> u64 {
        self.file_bytes.saturating_sub(RUN_FOOTER_BYTES as u64)
    }
}

impl Held for Directory {
    fn bytes(&self) -> u64 {
        self.charge.bytes()
    }
}

impl End {
    /// Reads what lies before `end`, and not before `begin`.
    pub(super) fn read(file: &dyn File, begin: u64, end: u64) -> Result<End> {
        let begin = begin.max(end.saturating_sub(END_BYTES));
        let mut bytes = zeros(end.saturating_sub(begin) as usize).map_err(Error::in_memory)?;
        file.read_at(&mut bytes, begin)?;
        Ok(End { begin, bytes })
    }

    pub(super) fn has(&self, offset: u64) -> bool {
        offset >= self.begin
    }

    /// So many bytes of the file from `offset` on; read where they lie elsewhere. Whoever asks has bounded them by the
    /// file's length.
    pub(super) fn part(&self, file: &dyn File, offset: u64, bytes: u64) -> Result<Cow<'_, [u8]>> {
        let at = offset.checked_sub(self.begin).map(|at| at as usize);
        if let Some(part) = at.and_then(|at| self.bytes.get(at..at + bytes as usize)) {
            return Ok(Cow::Borrowed(part));
        }
        let mut part = zeros(bytes as usize).map_err(Error::in_memory)?;
        file.read_at(&mut part, offset)?;
        Ok(Cow::Owned(part))
    }
}

impl RunFile {
    /// The file is about to be, or is there and has this size.
    pub(crate) fn new(cache: &Arc<BlockCache>, id: FileId, size_bytes: u64) -> Arc<Self> {
        let (cache, size_bytes, directory) = (cache.clone(), AtomicU64::new(size_bytes), ArcSwapOption::empty());
        Arc::new(RunFile { id, cache, size_bytes, kept: AtomicU32::new(0), let_go: AtomicBool::new(false), directory })
    }

    /// How long it is; zero while it is written, or if it is not there.
    pub(crate) fn size_bytes(&self) -> u64 {
        self.size_bytes.load(Ordering::Relaxed)
    }

    /// It is written to its end.
    pub(super) fn is_finished(&self, size_bytes: u64) {
        self.size_bytes.store(size_bytes, Ordering::Relaxed);
    }

    /// Where it lies.
    pub(crate) fn path(&self) -> PathBuf {
        self.cache.files.path(self.id)
    }

    /// A handle for reading.
    pub(crate) fn open(&self) -> esker_io::Result<Arc<dyn File>> {
        self.cache.files.get(self.id)
    }

    /// The next one who reads gets a handle of its own.
    pub(crate) fn close(&self) {
        self.cache.files.close(self.id);
    }

    /// Its directory, read and checked with header and footer if it is not in memory: then the file's end too. `file` is a
    /// handle of it, `folder` the one that it must have been written in.
    pub(super) fn directory(
        self: &Arc<Self>,
        file: &dyn File,
        folder: FolderId,
    ) -> Result<(Arc<Directory>, Option<End>)> {
        if let Some(directory) = self.directory.load_full() {
            directory.touched.store(true, Ordering::Relaxed);
            return Ok((directory, None));
        }
        let (directory, end) = self.read_directory(file, folder)?;
        if directory.places.len() == 1 {
            // Whoever needs it has it.
            return Ok((directory, Some(end)));
        }
        Ok((self.cache.indexes.keep(self, &self.directory, directory), Some(end)))
    }

    fn read_directory(&self, file: &dyn File, folder: FolderId) -> Result<(Arc<Directory>, End)> {
        let size = file.size_bytes()?;
        let at = |offset: u64| move |e| Error::damage(&self.path(), offset, e);
        let end = End::read(file, 0, size)?;
        let header = end.part(file, 0, size.min(RUN_HEADER_BYTES as u64))?;
        let header = RunHeader::decode(&header).map_err(at(0))?;
        let footer_at = size.saturating_sub(RUN_FOOTER_BYTES as u64);
        let footer = RunFooter::decode(&end.bytes, size).map_err(at(footer_at))?;
        if header.folder != folder {
            let (found, expected) = (header.folder, folder);
            return Err(at(0)(FormatError::Foreign { what: "run", found, expected }));
        }
        let ids = [(0, "run's file id", header.file), (footer_at, "run footer's file id", footer.file)];
        for (offset, what, found) in ids {
            if found != self.id {
                return Err(at(offset)(FormatError::Invalid { what, found: found.0 }));
            }
        }
        // Bounded by the file's length.
        let places = end.part(file, footer.directory_offset, footer.directory_bytes())?;
        let places = footer.decode_directory(&places).map_err(at(footer.directory_offset))?;
        Ok((Directory::new(places, size), end))
    }

    /// One more part is referred to.
    pub(crate) fn keep(&self) {
        self.kept.fetch_add(1, Ordering::Relaxed);
    }

    /// Nothing refers to a part any more, durably.
    pub(crate) fn let_go(&self) {
        self.let_go.store(true, Ordering::Relaxed);
        self.kept.fetch_sub(1, Ordering::Release);
    }
}

impl Holder for RunFile {
    fn take_used(&self) -> bool {
        self.directory.load().as_ref().is_some_and(|d| d.touched.swap(false, Ordering::Relaxed))
    }

    fn let_go(&self) -> Option<Arc<dyn Held>> {
        self.directory.swap(None).map(|directory| directory as _)
    }
}

impl Drop for RunFile {
    fn drop(&mut self) {
        self.close();
        if let Some(directory) = self.directory.load_full() {
            self.cache.indexes.forget(&*directory);
        }
        if self.let_go.load(Ordering::Relaxed) && self.kept.load(Ordering::Acquire) == 0 {
            count(Counter::RunsRemoved, 1);
            self.cache.files.remove(self.id);
        }
    }
}

/// The files of an opening: runs of several trees and transactions find the one that they share.
pub(crate) struct OpenedFiles {
    cache: Arc<BlockCache>,
    /// Those that are there, and how long they are.
    sizes: HashMap<FileId, u64>,
    files: RefCell<HashMap<FileId, Arc<RunFile>>>,
}

impl OpenedFiles {
    pub(crate) fn new(cache: &Arc<BlockCache>, sizes: HashMap<FileId, u64>) -> Self {
        OpenedFiles { cache: cache.clone(), sizes, files: RefCell::default() }
    }

    /// Is it there?
    pub(crate) fn has(&self, id: FileId) -> bool {
        self.sizes.contains_key(&id)
    }

    /// The file, by whoever asked first.
    pub(crate) fn of(&self, id: FileId) -> Arc<RunFile> {
        let size_bytes = self.sizes.get(&id).copied().unwrap_or_default();
        self.files.borrow_mut().entry(id).or_insert_with(|| RunFile::new(&self.cache, id, size_bytes)).clone()
    }
}
