//! A run file, shared by the runs that are its parts.
//!
//! Invariant: the file is unlinked once nobody uses a run of it any more, and only if every part that somebody referred to
//! was let go before.

use crate::tree::run::cache::BlockCache;
use esker_base::counters::{count, Counter};
use esker_format::FileId;
use esker_io::{File, Result};
use std::cell::RefCell;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::Arc;

/// See the module.
pub(crate) struct RunFile {
    pub(crate) id: FileId,
    pub(super) cache: Arc<BlockCache>,
    /// Parts that a tree or a transaction refers to.
    kept: AtomicU32,
    /// A part was let go: without that, nobody meant the file to go.
    let_go: AtomicBool,
}

impl RunFile {
    /// The file is there, or is about to be.
    pub(crate) fn new(cache: &Arc<BlockCache>, id: FileId) -> Arc<Self> {
        Arc::new(RunFile { id, cache: cache.clone(), kept: AtomicU32::new(0), let_go: AtomicBool::new(false) })
    }

    /// Where it lies.
    pub(crate) fn path(&self) -> PathBuf {
        self.cache.files.path(self.id)
    }

    /// A handle for reading.
    pub(crate) fn open(&self) -> Result<Arc<dyn File>> {
        self.cache.files.get(self.id)
    }

    /// The next one who reads gets a handle of its own.
    pub(crate) fn close(&self) {
        self.cache.files.close(self.id);
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

impl Drop for RunFile {
    fn drop(&mut self) {
        self.close();
        if self.let_go.load(Ordering::Relaxed) && self.kept.load(Ordering::Acquire) == 0 {
            count(Counter::RunsRemoved, 1);
            self.cache.files.remove(self.id);
        }
    }
}

/// The files of an opening: runs of several trees and transactions find the one that they share.
pub(crate) struct OpenedFiles {
    cache: Arc<BlockCache>,
    files: RefCell<HashMap<FileId, Arc<RunFile>>>,
}

impl OpenedFiles {
    pub(crate) fn new(cache: &Arc<BlockCache>) -> Self {
        OpenedFiles { cache: cache.clone(), files: RefCell::default() }
    }

    /// The file, by whoever asked first.
    pub(crate) fn of(&self, id: FileId) -> Arc<RunFile> {
        self.files.borrow_mut().entry(id).or_insert_with(|| RunFile::new(&self.cache, id)).clone()
    }
}
