//! What was done to each file that there is, as far as this process did it: counts, bytes, times and its size, in memory, so that
//! telling them touches no file.
//!
//! A file has figures from its first opening until it is removed; they go with its name, and stay when its handles close. An
//! operation pays a few relaxed adds to its file's figures, nothing beside the system call.

use crate::AccessHint;
use esker_base::lock::{order, Mutex};
use esker_memory::{Account, Charge};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

/// What was done to a file, see [`Disk::figures`](crate::Disk::figures). Reads and writes are those that the engine asked for:
/// one may take the kernel several steps, and the page cache may answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FileFigures {
    /// Its size, as it was opened or made, and as writes have moved its end since; preallocated space counts.
    pub size_bytes: u64,
    /// Reads.
    pub reads: u64,
    /// Bytes that they asked for.
    pub read_bytes: u64,
    /// How long they took, in nanoseconds.
    pub read_ns: u64,
    /// Writes, those included that are durable by the same call, whose time is that of a sync.
    pub writes: u64,
    /// Bytes of them.
    pub write_bytes: u64,
    /// How long they took, in nanoseconds; of those that were queued, how long somebody waited for them.
    pub write_ns: u64,
    /// Syncs, and writes that are one.
    pub syncs: u64,
    /// How long they took, in nanoseconds.
    pub sync_ns: u64,
}

/// A file that was opened and is still there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownFile {
    /// Where it lies.
    pub path: PathBuf,
    /// What it was first opened for.
    pub hint: AccessHint,
    /// What was done to it.
    pub figures: FileFigures,
}

/// A file's, while they are counted.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    size_bytes: AtomicU64,
    reads: [AtomicU64; 3],
    writes: [AtomicU64; 3],
    syncs: [AtomicU64; 2],
}

fn add<const N: usize>(to: &[AtomicU64; N], what: [u64; N]) {
    for (to, n) in to.iter().zip(what) {
        to.fetch_add(n, Ordering::Relaxed);
    }
}

impl Figures {
    pub(crate) fn read(&self, bytes: usize, ns: u64) {
        add(&self.reads, [1, bytes as u64, ns]);
    }

    /// The time comes apart: see [`took`](Self::took).
    pub(crate) fn wrote(&self, bytes: usize, offset: u64) {
        add(&self.writes, [1, bytes as u64, 0]);
        self.size_bytes.fetch_max(offset.saturating_add(bytes as u64), Ordering::Relaxed);
    }

    /// Writing took so long.
    pub(crate) fn took(&self, ns: u64) {
        add(&self.writes, [0, 0, ns]);
    }

    pub(crate) fn synced(&self, ns: u64) {
        add(&self.syncs, [1, ns]);
    }

    pub(crate) fn set_size(&self, bytes: u64) {
        self.size_bytes.store(bytes, Ordering::Relaxed);
    }

    fn get(&self) -> FileFigures {
        let get = |n: &AtomicU64| n.load(Ordering::Relaxed);
        FileFigures {
            size_bytes: get(&self.size_bytes),
            reads: get(&self.reads[0]),
            read_bytes: get(&self.reads[1]),
            read_ns: get(&self.reads[2]),
            writes: get(&self.writes[0]),
            write_bytes: get(&self.writes[1]),
            write_ns: get(&self.writes[2]),
            syncs: get(&self.syncs[0]),
            sync_ns: get(&self.syncs[1]),
        }
    }
}

#[derive(Debug)]
struct Known {
    figures: Arc<Figures>,
    hint: AccessHint,
    _charge: Charge,
}

/// Those of all files of a disk, by their paths.
#[derive(Debug)]
pub(crate) struct AllFigures(Mutex<HashMap<PathBuf, Known>>);

impl Default for AllFigures {
    fn default() -> Self {
        AllFigures(Mutex::new(&order::IO_FIGURES, HashMap::new()))
    }
}

fn charge(path: &Path) -> Charge {
    let bytes = path.as_os_str().len() + size_of::<(PathBuf, Known)>() + size_of::<Figures>();
    Charge::new(Account::Other, bytes as u64)
}

impl AllFigures {
    /// A file's, which was opened, or made anew.
    pub(crate) fn of(&self, path: &Path, hint: AccessHint, is_new: bool) -> Arc<Figures> {
        let mut all = self.0.lock();
        if let Some(known) = all.get(path).filter(|_| !is_new) {
            return known.figures.clone();
        }
        let figures = Arc::<Figures>::default();
        all.insert(path.to_owned(), Known { figures: figures.clone(), hint, _charge: charge(path) });
        figures
    }

    pub(crate) fn renamed(&self, from: &Path, to: &Path) {
        let mut all = self.0.lock();
        if let Some(known) = all.remove(from) {
            all.insert(to.to_owned(), Known { _charge: charge(to), ..known });
        }
    }

    pub(crate) fn removed(&self, path: &Path) {
        self.0.lock().remove(path);
    }

    pub(crate) fn all(&self) -> Vec<KnownFile> {
        let known = |(path, known): (&PathBuf, &Known)| KnownFile {
            path: path.clone(),
            hint: known.hint,
            figures: known.figures.get(),
        };
        self.0.lock().iter().map(known).collect()
    }
}
