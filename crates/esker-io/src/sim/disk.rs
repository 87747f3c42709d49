//! [`Disk`] for the simulated disk: names, folders, locks.

use super::file::SimFile;
use super::names::{normal, Entry};
use super::node::Node;
use super::{SimDisk, State, Way};
use crate::{accounting, AccessHint, DirEntry, Disk, File, IoError, IoKind, LockGuard, OpenMode, Result};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const NO_SIZES: (Option<u64>, Option<u64>) = (None, None);

fn error<T>(operation: &'static str, path: &Path, kind: IoKind, message: &'static str) -> Result<T> {
    Err(IoError::new(operation, path, None, kind, message))
}

struct SimLock {
    disk: SimDisk,
    path: PathBuf,
    process: u64,
}

impl LockGuard for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        let mut state = self.disk.state.lock();
        if state.process == self.process {
            state.locked.remove(&self.path);
        }
    }
}

impl State {
    /// A handle's worth of a file: its number, and the process that the handle belongs to.
    fn open_node(&mut self, id: u64) -> (u64, u64) {
        if let Some(node) = self.nodes.get_mut(&id) {
            node.handles += 1;
        }
        (id, self.process)
    }

    fn create(&mut self, path: &Path) -> Result<(u64, u64)> {
        self.check_handles("create", path)?;
        let name = normal(path);
        if self.names.get(&name).is_some() {
            return error("create", path, IoKind::AlreadyExists, "the name exists");
        }
        if !self.names.has_parent(&name) {
            return error("create", path, IoKind::NotFound, "no such folder");
        }
        let id = self.next_node;
        self.next_node += 1;
        self.nodes.insert(id, Node::default());
        self.names.add(&name, Entry::File(id));
        Ok(self.open_node(id))
    }

    fn create_folders(&mut self, path: &Path) -> Result<()> {
        let name = normal(path);
        let mut folders: Vec<_> = name.ancestors().collect();
        folders.reverse();
        for folder in folders {
            match self.names.get(folder) {
                Some(Entry::Folder) => {}
                Some(Entry::File(_)) => {
                    return error("create folder", path, IoKind::AlreadyExists, "a file is there");
                }
                None => self.names.add(folder, Entry::Folder),
            }
        }
        Ok(())
    }
}

impl Disk for SimDisk {
    fn open(&self, path: &Path, mode: OpenMode, hint: AccessHint) -> Result<Arc<dyn File>> {
        let (id, process) = accounting::open(|| match mode {
            OpenMode::Create => self.operate("create", path, NO_SIZES, None, |state, way| {
                match way {
                    Way::Well => state.create(path),
                    // The new name is under way, but there is no handle.
                    Way::Cut => state.create(path).map(|_| (0, 0)),
                    Way::Fail(_) => Ok((0, 0)),
                }
            }),
            OpenMode::Read | OpenMode::Write => self.look("open", path, None, |state| {
                let id = state.find(path, "open")?;
                state.check_handles("open", path)?;
                Ok(state.open_node(id))
            }),
        })?;
        Ok(Arc::new(SimFile::new(self.clone(), id, process, path, mode, hint)))
    }

    fn create_dir(&self, path: &Path) -> Result<()> {
        self.operate("create folder", path, NO_SIZES, None, |state, way| match way {
            Way::Well | Way::Cut => state.create_folders(path),
            Way::Fail(_) => Ok(()),
        })
    }

    fn list(&self, path: &Path) -> Result<Vec<DirEntry>> {
        self.look("list", path, None, |state| {
            let folder = normal(path);
            if state.names.get(&folder) != Some(Entry::Folder) {
                return error("list", path, IoKind::NotFound, "no such folder");
            }
            let entry = |(path, entry): (&Path, Entry)| DirEntry {
                name: path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
                size_bytes: match entry {
                    Entry::File(id) => state.nodes.get(&id).map_or(0, Node::size),
                    Entry::Folder => 0,
                },
                is_dir: entry == Entry::Folder,
            };
            let mut entries: Vec<_> = state.names.children(&folder).map(entry).collect();
            entries.sort_by(|a, b| a.name.cmp(&b.name));
            Ok(entries)
        })
    }

    /// Files only.
    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.operate("rename", from, NO_SIZES, None, |state, way| {
            let id = state.find(from, "rename")?;
            let (old, new) = (normal(from), normal(to));
            if state.names.get(&new) == Some(Entry::Folder) {
                return error("rename", to, IoKind::AlreadyExists, "a folder is there");
            }
            if !state.names.has_parent(&new) {
                return error("rename", to, IoKind::NotFound, "no such folder");
            }
            // Two names of one file: POSIX leaves both.
            let same = state.names.get(&new) == Some(Entry::File(id));
            if !same && !matches!(way, Way::Fail(_)) {
                state.names.rename(&old, &new, Entry::File(id));
                state.drop_unreachable();
            }
            Ok(())
        })
    }

    fn link(&self, from: &Path, to: &Path) -> Result<()> {
        self.operate("link", to, NO_SIZES, None, |state, way| {
            let id = state.find(from, "link")?;
            let new = normal(to);
            if state.names.get(&new).is_some() {
                return error("link", to, IoKind::AlreadyExists, "the name exists");
            }
            if !state.names.has_parent(&new) {
                return error("link", to, IoKind::NotFound, "no such folder");
            }
            if !matches!(way, Way::Fail(_)) {
                state.names.add(&new, Entry::File(id));
            }
            Ok(())
        })
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.operate("remove", path, NO_SIZES, None, |state, way| {
            state.find(path, "remove")?;
            if !matches!(way, Way::Fail(_)) {
                state.names.remove(&normal(path));
                state.drop_unreachable();
            }
            Ok(())
        })
    }

    fn remove_dir(&self, path: &Path) -> Result<()> {
        self.operate("remove folder", path, NO_SIZES, None, |state, way| {
            let folder = normal(path);
            if state.names.get(&folder) != Some(Entry::Folder) || folder.parent().is_none() {
                return error("remove folder", path, IoKind::NotFound, "no such folder");
            }
            if state.names.children(&folder).next().is_some() {
                return error("remove folder", path, IoKind::Failed, "it is not empty");
            }
            if !matches!(way, Way::Fail(_)) {
                state.names.remove(&folder);
            }
            Ok(())
        })
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        accounting::sync_dir(|| {
            self.operate("sync folder", path, NO_SIZES, None, |state, way| {
                let folder = normal(path);
                if state.names.get(&folder) != Some(Entry::Folder) {
                    return error("sync folder", path, IoKind::NotFound, "no such folder");
                }
                if way == Way::Well && !state.lies {
                    state.names.sync(&folder);
                    state.drop_unreachable();
                }
                Ok(())
            })
        })
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        self.look("look for", path, None, |state| Ok(state.names.get(&normal(path)).is_some()))
    }

    /// The lock file itself is not shown.
    fn lock(&self, path: &Path) -> Result<Box<dyn LockGuard>> {
        self.look("lock", path, None, |state| {
            let name = normal(path);
            if !state.names.has_parent(&name) {
                return error("lock", path, IoKind::NotFound, "no such folder");
            }
            if !state.locked.insert(name.clone()) {
                return error("lock", path, IoKind::Locked, "in use by another process");
            }
            let lock = SimLock { disk: self.clone(), path: name, process: state.process };
            Ok(Box::new(lock) as Box<dyn LockGuard>)
        })
    }

    /// The same each time, so that a seed gives the same bytes each time.
    fn fresh_id(&self) -> [u8; 16] {
        *b"simulated folder"
    }

    fn free_bytes(&self, path: &Path) -> Result<u64> {
        self.look("ask for free space", path, None, |state| Ok(state.free_bytes()))
    }
}
