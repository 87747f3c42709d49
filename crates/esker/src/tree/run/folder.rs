//! The folder that run files lie in: what all of them are written and read with, and when their names are durable.
//!
//! Invariant: no sync of the folder is trusted after one that failed.

use crate::catalog::table::Table;
use crate::options::{Options, Settings};
use crate::tree::run::cache::BlockCache;
use crate::tree::run::writer::RunRecipe;
use crate::tree::stored::Stored;
use crate::tree::Tree;
use crate::writable::Writable;
use crate::Result;
use esker_base::lock::{order, Mutex};
use esker_format::{Compression, FolderId, TreeId};
use esker_io::{Disk, IoKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A run is written in pieces of so many bytes at least.
const LEAST_WRITE_BYTES: usize = 64 << 10;
/// And of so many at most.
const MOST_WRITE_BYTES: usize = 4 << 20;

/// See the module.
pub(crate) struct RunFolder {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    /// Whose runs they are, as their files say.
    folder: FolderId,
    cache: Arc<BlockCache>,
    settings: Arc<Settings>,
    zstd_level: i32,
    block_bytes: usize,
    lookup_block_bytes: usize,
    syncing: Mutex<()>,
}

impl RunFolder {
    pub(crate) fn new(
        disk: &Arc<dyn Disk>,
        path: &Path,
        folder: FolderId,
        cache: &Arc<BlockCache>,
        options: &Options,
        settings: &Arc<Settings>,
    ) -> Self {
        RunFolder {
            disk: disk.clone(),
            path: path.to_owned(),
            folder,
            cache: cache.clone(),
            settings: settings.clone(),
            zstd_level: options.zstd_level,
            block_bytes: options.block_bytes,
            lookup_block_bytes: options.lookup_block_bytes.min(options.block_bytes),
            syncing: Mutex::new(&order::RUNS_SYNC, ()),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// What runs of a tree are written with.
    pub(crate) fn recipe<K: Stored>(&self, table: &Table, tree: &Tree<K>) -> RunRecipe<K> {
        self.recipe_of(tree.id, tree.shape.clone(), table.compression, table.is_indexed())
    }

    /// The same, of a tree that is not there yet. `is_indexed`: its table has keys.
    pub(crate) fn recipe_of<K: Stored>(
        &self,
        tree: TreeId,
        shape: K::Shape,
        compression: Compression,
        is_indexed: bool,
    ) -> RunRecipe<K> {
        RunRecipe {
            disk: self.disk.clone(),
            cache: self.cache.clone(),
            folder: self.folder,
            tree,
            shape,
            compression,
            zstd_level: self.zstd_level,
            block_bytes: self.block_bytes::<K>(is_indexed),
            write_bytes: (self.settings.bulk_buffer_bytes() / 4).clamp(LEAST_WRITE_BYTES, MOST_WRITE_BYTES),
            has_row_ids: false,
        }
    }

    /// Size of a block of a tree whose table has keys, or has none.
    pub(crate) fn block_bytes<K: Stored>(&self, is_indexed: bool) -> usize {
        match is_indexed || K::OF_INDEX == 1 {
            true => self.lookup_block_bytes,
            false => self.block_bytes,
        }
    }

    /// Makes the names of run files durable. One at a time, and none after one that failed: names that it lost would not
    /// come back with a later sync that succeeds.
    pub(crate) fn sync(&self, writable: &Writable) -> Result<()> {
        let _one = self.syncing.lock();
        writable.check()?;
        self.disk.sync_dir(&self.path).map_err(|e| match e.kind {
            // It was not begun.
            IoKind::Resources => e.into(),
            _ => writable.poison_by(e),
        })
    }
}
