//! The simulated names: which are durable, which are not yet, and what a power cut makes of them.
//!
//! A name is durable once its own folder was synced; a rename, once the folder of the new name was (it is atomic: the
//! old name goes in the same moment). Unsynced changes of different names may be kept or lost independently of each
//! other; changes of one name are kept in their order, so a later one never without the earlier ones. A name whose
//! folder is lost is lost.

use super::fate::Fate;
use fastrand::Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Entry {
    Folder,
    /// Number of the file's contents.
    File(u64),
}

#[derive(Debug, Clone)]
enum Change {
    Add { path: PathBuf, entry: Entry },
    Remove { path: PathBuf },
    Rename { from: PathBuf, to: PathBuf, entry: Entry },
}

impl Change {
    /// The folder whose sync makes it durable.
    fn folder(&self) -> Option<&Path> {
        match self {
            Change::Add { path, .. } | Change::Remove { path } => path.parent(),
            Change::Rename { to, .. } => to.parent(),
        }
    }

    fn names(&self) -> impl Iterator<Item = &Path> {
        let (a, b) = match self {
            Change::Add { path, .. } | Change::Remove { path } => (path, None),
            Change::Rename { from, to, .. } => (from, Some(to.as_path())),
        };
        std::iter::once(a.as_path()).chain(b)
    }

    /// Must `earlier` be durable for this one to be? So it is for the same name, and for names in a folder that goes.
    fn follows(&self, earlier: &Change) -> bool {
        self.names().any(|mine| earlier.names().any(|theirs| theirs.starts_with(mine)))
    }

    fn apply(&self, names: &mut BTreeMap<PathBuf, Entry>) {
        match self {
            Change::Add { path, entry } => {
                names.insert(path.clone(), *entry);
            }
            Change::Remove { path } => {
                names.remove(path);
            }
            Change::Rename { from, to, entry } => {
                names.remove(from);
                names.insert(to.clone(), *entry);
            }
        }
    }
}

#[derive(Debug, Clone, Default)]
pub(super) struct Names {
    now: BTreeMap<PathBuf, Entry>,
    durable: BTreeMap<PathBuf, Entry>,
    pending: Vec<Change>,
}

/// Without `.` and trailing slashes.
pub(super) fn normal(path: &Path) -> PathBuf {
    path.components().filter(|c| !matches!(c, std::path::Component::CurDir)).collect()
}

impl Names {
    /// What a name stands for. Roots are always there.
    pub(super) fn get(&self, path: &Path) -> Option<Entry> {
        match path.parent() {
            None => Some(Entry::Folder),
            Some(_) => self.now.get(path).copied(),
        }
    }

    /// Is there the folder that `path` lies in, or would?
    pub(super) fn has_parent(&self, path: &Path) -> bool {
        path.parent().and_then(|parent| self.get(parent)) == Some(Entry::Folder)
    }

    /// What lies directly in a folder, by name.
    pub(super) fn children<'a>(&'a self, folder: &'a Path) -> impl Iterator<Item = (&'a Path, Entry)> {
        self.now
            .iter()
            .filter(move |(path, _)| path.parent() == Some(folder))
            .map(|(path, entry)| (path.as_path(), *entry))
    }

    pub(super) fn add(&mut self, path: &Path, entry: Entry) {
        self.change(Change::Add { path: path.to_owned(), entry });
    }

    pub(super) fn remove(&mut self, path: &Path) {
        self.change(Change::Remove { path: path.to_owned() });
    }

    /// Lets a name be gone, also from what is durable and from what is on its way.
    pub(super) fn lose(&mut self, path: &Path) {
        self.now.remove(path);
        self.durable.remove(path);
        self.pending.retain(|change| change.names().all(|name| name != path));
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path, entry: Entry) {
        self.change(Change::Rename { from: from.to_owned(), to: to.to_owned(), entry });
    }

    fn change(&mut self, change: Change) {
        change.apply(&mut self.now);
        self.pending.push(change);
    }

    /// Makes a folder's names durable.
    pub(super) fn sync(&mut self, folder: &Path) {
        let keep = self.closed(|change| change.folder() == Some(folder));
        self.settle(&keep);
    }

    /// Which pending changes are meant, with those that must come before them.
    fn closed(&self, mut meant: impl FnMut(&Change) -> bool) -> Vec<bool> {
        let mut keep: Vec<bool> = self.pending.iter().map(&mut meant).collect();
        for later in (0..keep.len()).rev() {
            if keep[later] {
                for (keep, earlier) in keep.iter_mut().zip(&self.pending[..later]) {
                    *keep |= self.pending[later].follows(earlier);
                }
            }
        }
        keep
    }

    fn settle(&mut self, keep: &[bool]) {
        let mut rest = Vec::new();
        for (change, keep) in self.pending.drain(..).zip(keep) {
            if *keep {
                change.apply(&mut self.durable);
            } else {
                rest.push(change);
            }
        }
        self.pending = rest;
    }

    /// The names as a power cut leaves them.
    pub(super) fn after_power_cut(&self, random: &mut Rng) -> Names {
        let keep = match Fate::choose(random) {
            Fate::Lost => vec![false; self.pending.len()],
            Fate::Kept => vec![true; self.pending.len()],
            Fate::Prefix => {
                let edge = random.u64(..=self.pending.len() as u64) as usize;
                (0..self.pending.len()).map(|i| i < edge).collect()
            }
            Fate::Each(percent) => self.closed(|_| random.u64(..100) < percent),
        };
        let mut after = self.clone();
        after.settle(&keep);
        let mut now = BTreeMap::new();
        // Parents sort before their children.
        for (path, entry) in after.durable {
            let parent = path.parent().unwrap_or(Path::new(""));
            if parent.parent().is_none() || now.get(parent) == Some(&Entry::Folder) {
                now.insert(path, entry);
            }
        }
        Names { now: now.clone(), durable: now, pending: Vec::new() }
    }

    /// Files that readers can find.
    pub(super) fn files(&self) -> BTreeSet<u64> {
        self.now.values().filter_map(file).collect()
    }

    /// Files that readers can find, now or after some power cut.
    pub(super) fn reachable(&self) -> BTreeSet<u64> {
        let pending = self.pending.iter().filter_map(|change| match change {
            Change::Add { entry, .. } | Change::Rename { entry, .. } => file(entry),
            Change::Remove { .. } => None,
        });
        let named = self.now.values().chain(self.durable.values()).filter_map(file);
        named.chain(pending).collect()
    }
}

fn file(entry: &Entry) -> Option<u64> {
    match entry {
        Entry::File(id) => Some(*id),
        Entry::Folder => None,
    }
}
