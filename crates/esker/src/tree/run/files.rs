//! Handles of run files: opened when a block is read from disk, and closed again, the least recently used first.
//!
//! Owns at most `most` handles, whatever the number of runs; besides these, one that was closed here while a reader was
//! at it lives until that reader is done. Cached blocks need no handle, so nothing here is on their path.

use crate::host::Host;
use crate::options::Options;
use crate::tree::run::run_path;
use esker_base::lock::{order, Mutex};
use esker_format::FileId;
use esker_io::{AccessHint, Disk, File, IoKind, LockGuard, OpenMode, Result};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

/// Of the handles that the process may have, runs take one in ... at most: a server needs most of them itself.
const SHARE: u64 = 4;

/// See the module.
pub(crate) struct RunFiles {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    most: usize,
    open: Mutex<Open>,
    /// Memory is short: what is read along would push out what somebody uses.
    is_short: AtomicBool,
    /// What holds the folder for its engine: nothing is removed there once it is gone. Without one, anything is.
    folder: OnceLock<Weak<dyn LockGuard>>,
    /// Whose clock says when runs that failed may be tried again.
    pub(crate) host: Arc<dyn Host>,
}

#[derive(Default)]
struct Open {
    files: HashMap<FileId, (u64, Arc<dyn File>)>,
    /// Files by the time of their last use.
    by_use: BTreeMap<u64, FileId>,
    uses: u64,
    /// Places taken by those who are opening a file.
    opening: usize,
}

impl RunFiles {
    /// Of the runs in `dir`.
    pub(crate) fn new(disk: &Arc<dyn Disk>, dir: &Path, options: &Options) -> Self {
        let share = esker_io::open_files_limit().map_or(usize::MAX, |n| (n / SHARE) as usize);
        RunFiles {
            disk: disk.clone(),
            dir: dir.to_owned(),
            most: options.max_open_runs.min(share).max(1),
            open: Mutex::new(&order::RUN_FILES, Open::default()),
            is_short: AtomicBool::new(false),
            folder: OnceLock::new(),
            host: options.host.clone(),
        }
    }

    #[cfg(test)]
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// The file of a run, opened if it is not open.
    pub(crate) fn get(&self, id: FileId) -> Result<Arc<dyn File>> {
        match self.get_once(id) {
            Err(e) if e.kind == IoKind::Resources => {
                // Others have what is left of them: half of ours go, and one is for this reader.
                let closed = self.open.lock().shrink_by_half();
                drop(closed);
                self.get_once(id)
            }
            result => result,
        }
    }

    fn get_once(&self, id: FileId) -> Result<Arc<dyn File>> {
        let closed = {
            let mut open = self.open.lock();
            if let Some(file) = open.used(id) {
                return Ok(file);
            }
            let others = open.opening;
            open.opening += 1;
            open.shrink_to(self.most.saturating_sub(others + 1))
        };
        // Closing and opening are the system's work: nobody waits for them here.
        drop(closed);
        let file = self.disk.open(&self.path(id), OpenMode::Read, AccessHint::Blocks);
        let mut open = self.open.lock();
        open.opening -= 1;
        let file = file?;
        if self.is_short() {
            file.read_along(false);
        }
        let replaced = open.keep(id, &file);
        drop(open);
        drop(replaced);
        Ok(file)
    }

    /// Is memory short, as far as is known here?
    #[inline]
    pub(crate) fn is_short(&self) -> bool {
        self.is_short.load(Ordering::Relaxed)
    }

    /// Memory is short from now on, or no longer.
    #[cold]
    pub(crate) fn set_short(&self, is_short: bool) {
        let open = self.open.lock();
        if self.is_short.swap(is_short, Ordering::Relaxed) != is_short {
            open.files.values().for_each(|(_, file)| file.read_along(!is_short));
        }
    }

    /// Where a run's file lies.
    pub(crate) fn path(&self, id: FileId) -> PathBuf {
        run_path(&self.dir, id)
    }

    /// This holds the folder.
    pub(crate) fn held_by(&self, folder: &Arc<dyn LockGuard>) {
        let _ = self.folder.set(Arc::downgrade(folder));
    }

    /// Removes a run's file, which nobody needs any more; not where the folder may be another engine's by now, which may have
    /// given the number anew: a cursor may outlive everything.
    pub(crate) fn remove(&self, id: FileId) {
        let held = self.folder.get().map(Weak::upgrade);
        if matches!(held, Some(None)) {
            return;
        }
        // A file that stays behind is an orphan: the next start removes it.
        let _ = self.disk.remove(&self.path(id));
    }

    /// Lets a run's file go: it failed, or is about to be removed.
    pub(crate) fn close(&self, id: FileId) {
        let closed = self.open.lock().remove(id);
        drop(closed);
    }
}

impl Open {
    fn used(&mut self, id: FileId) -> Option<Arc<dyn File>> {
        let (at, file) = self.files.get_mut(&id)?;
        self.by_use.remove(at);
        self.uses += 1;
        *at = self.uses;
        self.by_use.insert(self.uses, id);
        Some(file.clone())
    }

    /// Keeps a file; gives back another handle of it that somebody else opened meanwhile.
    fn keep(&mut self, id: FileId, file: &Arc<dyn File>) -> Option<Arc<dyn File>> {
        let before = self.remove(id);
        self.uses += 1;
        self.by_use.insert(self.uses, id);
        self.files.insert(id, (self.uses, file.clone()));
        before
    }

    fn remove(&mut self, id: FileId) -> Option<Arc<dyn File>> {
        let (at, file) = self.files.remove(&id)?;
        self.by_use.remove(&at);
        Some(file)
    }

    fn shrink_by_half(&mut self) -> Vec<Arc<dyn File>> {
        self.shrink_to(self.files.len() / 2)
    }

    /// Takes out what was not used for longest until no more than `most` are left.
    fn shrink_to(&mut self, most: usize) -> Vec<Arc<dyn File>> {
        let mut closed = Vec::new();
        while self.files.len() > most {
            let Some((_, id)) = self.by_use.pop_first() else { break };
            closed.extend(self.files.remove(&id).map(|(_, file)| file));
        }
        closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::support::{begin, fill, fixed, make, options};
    use crate::tests::tables::{open_on, Watched};
    use crate::upkeep::flush;

    #[test]
    fn open_handles_are_told_when_memory_gets_short_and_later_ones_too() {
        let disk = Watched::new();
        disk.create_dir(Path::new("/db")).unwrap();
        let ids = [1, 2, 3].map(FileId);
        for id in ids {
            disk.open(&run_path(Path::new("/db"), id), OpenMode::Create, AccessHint::Bulk).unwrap();
        }
        let watched: Arc<dyn Disk> = Arc::new(disk.clone());
        let files = RunFiles::new(&watched, Path::new("/db"), &Options::default());
        let name = |id: FileId| run_path(Path::new("/db"), id).file_name().unwrap().to_string_lossy().into_owned();
        let told = |ids: &[FileId], may| ids.iter().map(|id| (name(*id), may)).collect::<Vec<_>>();
        let _first = [ids[0], ids[1]].map(|id| files.get(id).unwrap());
        assert_eq!(disk.take_read_along(), []);
        files.set_short(true);
        assert_eq!(disk.take_read_along(), told(&ids[..2], false));
        files.set_short(true);
        assert_eq!(disk.take_read_along(), [], "they know");
        let _third = files.get(ids[2]).unwrap();
        assert_eq!(disk.take_read_along(), told(&ids[2..], false));
        files.set_short(false);
        assert_eq!(disk.take_read_along(), told(&ids, true));
    }

    #[test]
    fn new_runs_go_past_the_page_cache_where_memory_is_short() {
        let disk = Watched::new();
        let e = open_on(Arc::new(disk.clone()), options());
        let t = make(&e, "t", &fixed(100));
        let mut s = e.session();
        let sent = || disk.1.sent.load(Ordering::Relaxed);
        for (n, is_short) in [(0, false), (1, true), (2, false)] {
            begin(&mut s);
            fill(&mut s, &t, n * 100..n * 100 + 100);
            s.commit().unwrap();
            e.core.cache.files.set_short(is_short);
            let before = sent();
            flush::tree(&e.core, &t, &t.tree()).unwrap();
            assert_eq!((t.tree().snapshot().runs.len(), sent() > before), (n as usize + 1, !is_short));
        }
    }
}
