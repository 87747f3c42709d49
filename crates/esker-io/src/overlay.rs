//! A disk for those who must not change anything: it reads from another disk and keeps all that is written to it in
//! memory, where only its own user sees it. So a folder can be recovered and looked at without touching it.
//!
//! Invariants: the disk below is never written to, but for its lock file; what this disk shows is what it would show had
//! every change been made; when it goes, the changes go. What is written takes memory, so it is for little writes.

mod layer;

use crate::{AccessHint, DirEntry, Disk, File, IoError, IoKind, KnownFile, LockGuard, OpenMode, Result};
use esker_base::lock::{order, Mutex};
use layer::Layer;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What became of a name.
enum Change {
    Gone,
    Folder,
    File(Arc<Layer>),
}

/// Another disk's files, and changes to them that stay in memory.
pub struct Overlay {
    base: Arc<dyn Disk>,
    changes: Mutex<BTreeMap<PathBuf, Change>>,
}

impl Overlay {
    /// A disk above `base`, so far without changes.
    pub fn new(base: Arc<dyn Disk>) -> Self {
        Overlay { base, changes: Mutex::new(&order::IO_OVERLAY, BTreeMap::new()) }
    }

    fn known(&self, changes: &BTreeMap<PathBuf, Change>, path: &Path) -> Result<bool> {
        match changes.get(path) {
            Some(change) => Ok(!matches!(change, Change::Gone)),
            None => self.base.exists(path),
        }
    }

    /// The file at `path`, ready for changes.
    fn layer(
        &self,
        changes: &BTreeMap<PathBuf, Change>,
        operation: &'static str,
        path: &Path,
        hint: AccessHint,
    ) -> Result<Arc<Layer>> {
        match changes.get(path) {
            Some(Change::File(layer)) => Ok(layer.clone()),
            Some(_) => Err(missing(operation, path)),
            None => Ok(Arc::new(Layer::above(self.base.open(path, OpenMode::Read, hint)?)?)),
        }
    }

    fn put(&self, operation: &'static str, from: &Path, to: &Path, stays: bool) -> Result<()> {
        let mut changes = self.changes.lock();
        let layer = self.layer(&changes, operation, from, AccessHint::Meta)?;
        if !stays {
            changes.insert(from.to_owned(), Change::Gone);
        }
        changes.insert(to.to_owned(), Change::File(layer));
        Ok(())
    }

    fn forget(&self, path: &Path) -> Result<()> {
        let mut changes = self.changes.lock();
        if !self.known(&changes, path)? {
            return Err(missing("remove", path));
        }
        changes.insert(path.to_owned(), Change::Gone);
        Ok(())
    }
}

fn missing(operation: &'static str, path: &Path) -> IoError {
    IoError::new(operation, path, None, IoKind::NotFound, "no such file or folder")
}

impl Disk for Overlay {
    fn open(&self, path: &Path, mode: OpenMode, hint: AccessHint) -> Result<Arc<dyn File>> {
        let mut changes = self.changes.lock();
        if mode == OpenMode::Read && !changes.contains_key(path) {
            return self.base.open(path, mode, hint);
        }
        let layer = if mode == OpenMode::Create {
            if self.known(&changes, path)? {
                return Err(IoError::new("create", path, None, IoKind::AlreadyExists, "it exists already"));
            }
            Arc::new(Layer::new(path))
        } else {
            self.layer(&changes, "open", path, hint)?
        };
        changes.insert(path.to_owned(), Change::File(layer.clone()));
        Ok(layer)
    }

    fn create_dir(&self, path: &Path) -> Result<()> {
        let mut changes = self.changes.lock();
        if !self.known(&changes, path)? {
            changes.insert(path.to_owned(), Change::Folder);
        }
        Ok(())
    }

    fn list(&self, path: &Path) -> Result<Vec<DirEntry>> {
        let changes = self.changes.lock();
        let mut entries = match changes.get(path) {
            Some(Change::Folder) if !self.base.exists(path)? => Vec::new(),
            Some(Change::Gone | Change::File(_)) => return Err(missing("list", path)),
            _ => self.base.list(path)?,
        };
        entries.retain(|e| !changes.contains_key(&path.join(&e.name)));
        for (name, change) in changes.iter().filter(|(name, _)| name.parent() == Some(path)) {
            let (size_bytes, is_dir) = match change {
                Change::Gone => continue,
                Change::Folder => (0, true),
                Change::File(layer) => (layer.size_bytes()?, false),
            };
            let name = name.file_name().unwrap_or_default().to_string_lossy().into_owned();
            entries.push(DirEntry { name, size_bytes, is_dir });
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.put("rename", from, to, false)
    }

    fn link(&self, from: &Path, to: &Path) -> Result<()> {
        self.put("link", from, to, true)
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.forget(path)
    }

    fn remove_dir(&self, path: &Path) -> Result<()> {
        self.forget(path)
    }

    fn sync_dir(&self, _path: &Path) -> Result<()> {
        Ok(())
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        self.known(&self.changes.lock(), path)
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn LockGuard>> {
        self.base.lock(path)
    }

    fn fresh_id(&self) -> [u8; 16] {
        self.base.fresh_id()
    }

    fn free_bytes(&self, path: &Path) -> Result<u64> {
        self.base.free_bytes(path)
    }

    fn figures(&self) -> Vec<KnownFile> {
        self.base.figures()
    }
}

#[cfg(test)]
mod tests;
