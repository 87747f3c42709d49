//! What the engine asks of storage, and nothing more. Semantics are POSIX's with the gaps closed: short writes are
//! completed or reported, reads are exact, names are durable only after [`Disk::sync_dir`], bytes only after a sync.

use crate::{KnownFile, Result, SyncMethod};
use esker_base::trace::Source;
use esker_memory::Region;
use std::hash::BuildHasher;
use std::path::Path;
use std::sync::Arc;

/// How a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenMode {
    /// Existing, read only.
    Read,
    /// Existing, read and write.
    Write,
    /// New (error if it exists), read and write.
    Create,
}

/// What the file will be used for; chooses the backend's way of doing it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessHint {
    /// The log: positioned writes into preallocated space, each group made durable.
    Log,
    /// Written once from start to end in large pieces past the page cache where possible (O_DIRECT).
    Bulk,
    /// The same for what is read soon: through the page cache, which keeps it, see [`File::write_back`].
    Kept,
    /// Immutable, read in blocks at random or in order.
    Blocks,
    /// Small metadata, whole-file reads and writes.
    Meta,
}

/// One entry of a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirEntry {
    /// Name without the folder.
    pub name: String,
    /// Size in bytes (0 for folders).
    pub size_bytes: u64,
    /// Is it a folder?
    pub is_dir: bool,
}

/// Held while a folder is in use; dropping it lets go.
pub trait LockGuard: Send + Sync {}

/// A tree of files.
pub trait Disk: Send + Sync {
    /// Opens or creates a file.
    fn open(&self, path: &Path, mode: OpenMode, hint: AccessHint) -> Result<Arc<dyn File>>;
    /// Creates a folder and its parents; existing is fine.
    fn create_dir(&self, path: &Path) -> Result<()>;
    /// Lists a folder, sorted by name.
    fn list(&self, path: &Path) -> Result<Vec<DirEntry>>;
    /// Renames, replacing what is there.
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;
    /// Hard-links `from` as `to`.
    fn link(&self, from: &Path, to: &Path) -> Result<()>;
    /// Removes a file. Open handles stay usable.
    fn remove(&self, path: &Path) -> Result<()>;
    /// Removes an empty folder.
    fn remove_dir(&self, path: &Path) -> Result<()>;
    /// Makes the names in a folder durable. An error of kind [`Resources`](crate::IoKind::Resources) says that nothing was
    /// tried; after any other nobody knows which names are durable, and another sync may not tell.
    fn sync_dir(&self, path: &Path) -> Result<()>;
    /// Is there a file or folder of this name?
    fn exists(&self, path: &Path) -> Result<bool>;
    /// Takes the lock file `path` for this process, or fails with [`IoKind::Locked`](crate::IoKind::Locked).
    fn lock(&self, path: &Path) -> Result<Box<dyn LockGuard>>;
    /// 16 bytes that nobody has had before, for the identity of what is made here: random ones.
    fn fresh_id(&self) -> [u8; 16] {
        // The standard library seeds these from the operating system.
        let half = |salt: u8| std::hash::RandomState::new().hash_one(salt);
        (u128::from(half(0)) << 64 | u128::from(half(1))).to_le_bytes()
    }
    /// Bytes that can still be written, as the file system tells.
    fn free_bytes(&self, path: &Path) -> Result<u64>;
    /// What was done to each file that was opened and is still there; told from memory, whatever the files' device does. None from
    /// a disk that keeps none.
    fn figures(&self) -> Vec<KnownFile> {
        Vec::new()
    }
}

/// An open file. Positioned operations only: any number of threads may use it at once.
pub trait File: Send + Sync {
    /// The path it was opened with.
    fn path(&self) -> &Path;
    /// Fills `buf` from `offset`, or fails with `ShortRead`.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()>;
    /// The same, and who answered: the page cache, if it had all of it; none where the backend does not know.
    fn read_at_from(&self, buf: &mut [u8], offset: u64) -> Result<Option<Source>> {
        self.read_at(buf, offset)?;
        Ok(None)
    }
    /// A hint: these bytes will be read soon, and the system may have them ready by then. Nothing is waited for, and nobody is told of
    /// what goes wrong.
    fn will_need(&self, _offset: u64, _bytes: u64) {}
    /// A hint: may the system read along what nobody asked for, or announced by [`will_need`](Self::will_need)? It may in the beginning.
    fn read_along(&self, _may: bool) {}
    /// Writes all of `buf` at `offset`.
    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()>;
    /// Makes written bytes, and the size they need, durable.
    fn sync_data(&self) -> Result<()>;
    /// Writes all of `buf` at `offset`; on return these bytes are durable, and what was written to the file before as far as
    /// [`SyncMethod::covers_earlier`] says. A backend that has no ways of its own writes and syncs. After an error nobody
    /// knows what is durable of what this would have covered.
    fn write_durably(&self, buf: &[u8], offset: u64, _method: SyncMethod) -> Result<()> {
        self.write_at(buf, offset)?;
        self.sync_data()
    }
    /// Makes bytes and all metadata durable.
    fn sync_all(&self) -> Result<()>;
    /// Size in bytes.
    fn size_bytes(&self) -> Result<u64>;
    /// Truncates or extends with zeros.
    fn set_size(&self, size_bytes: u64) -> Result<()>;
    /// Reserves space without changing the size; a file system that cannot is no error.
    fn reserve(&self, offset: u64, size_bytes: u64) -> Result<()>;
    /// Can all of it be written over without more space? Not if it has holes, or shares blocks with a copy or a snapshot.
    fn owns_space(&self) -> Result<bool> {
        Ok(true)
    }
    /// Buffers, offsets and lengths of writes must be multiples of this (1 when it does not matter).
    fn write_alignment(&self) -> usize {
        1
    }
    /// Writes the first `bytes` bytes of `data` at `offset`, perhaps only after it returns: the backend may queue the
    /// write and keep the buffer. Gives back a buffer of an earlier write that is done (or this one), if there is one;
    /// its length is that of the region handed in then. Only [`drain`](File::drain), a sync or `set_size` tells that
    /// all writes are done; until then a read of the same bytes may see the old ones. A failed write is reported once
    /// here and by every later `submit_write`, `drain` and sync. Panics if `data` is shorter than `bytes`.
    fn submit_write(&self, data: Region, bytes: usize, offset: u64) -> Result<Option<Region>> {
        self.write_at(&data[..bytes], offset)?;
        Ok(Some(data))
    }
    /// Has the system write these bytes, which were written before, from its page cache to the device; with `wait` it returns when
    /// they are there. Nothing is durable by that. Fails as a write does. Does nothing where they are not in the page cache.
    fn write_back(&self, _offset: u64, _bytes: u64, _wait: bool) -> Result<()> {
        Ok(())
    }
    /// Waits for all queued writes; fails if any of them has failed since the file was opened.
    fn drain(&self) -> Result<()> {
        Ok(())
    }
}
