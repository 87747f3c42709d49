//! The real disk: POSIX calls, with O_DIRECT for bulk files where the file system takes it and, if asked for, io_uring
//! for their writes.
//!
//! Owns every call to the operating system that names or opens a file. Short reads and writes are completed, EINTR is
//! retried, and what a kernel or file system cannot do (O_DIRECT, fallocate, io_uring) falls back to what it can.

mod file;
mod in_place;
mod linked;
mod lock;
mod own_space;
mod uring;

use crate::accounting;
use crate::figures::AllFigures;
use crate::{AccessHint, DirEntry, Disk, File, IoError, IoKind, KnownFile, LockGuard, OpenMode, Result};
use esker_base::{timed, WaitEvent};
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

/// Whether bulk writes are queued to the kernel while the next buffer is filled.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum UringStatus {
    /// It was not asked for.
    Off,
    /// It is: so many writes per file may be under way.
    Active {
        /// Writes per file.
        depth: usize,
    },
    /// The kernel refuses it, for the reason given; writes happen one after the other.
    Refused(String),
}

/// The files of this machine. Paths are taken as they are. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct PosixDisk {
    rings: Option<Arc<uring::RingPool>>,
    refusal: Option<String>,
    linked: Arc<linked::LinkedWriter>,
    figures: Arc<AllFigures>,
}

impl PosixDisk {
    /// Without io_uring.
    pub fn new() -> Self {
        Self::default()
    }

    /// With up to `depth` writes of bulk files under way at a time by io_uring, if the kernel lets us: see
    /// [`uring_status`](PosixDisk::uring_status). Never fails.
    pub fn with_uring(depth: usize) -> Self {
        match uring::RingPool::probe(depth.clamp(1, 64)) {
            Ok(pool) => PosixDisk { rings: Some(Arc::new(pool)), ..Self::default() },
            Err(error) => PosixDisk { refusal: Some(format!("io_uring refused: {error}")), ..Self::default() },
        }
    }

    /// Whether bulk writes go through io_uring, and why not.
    pub fn uring_status(&self) -> UringStatus {
        match (&self.rings, &self.refusal) {
            (Some(rings), _) => UringStatus::Active { depth: rings.depth() },
            (None, Some(why)) => UringStatus::Refused(why.clone()),
            (None, None) => UringStatus::Off,
        }
    }
}

/// How many files this process may have open at once; `None` where there is no bound, or none is known.
#[must_use]
pub fn open_files_limit() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: points to an rlimit.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } == 0;
    (known && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

fn wrap<T>(operation: &'static str, path: &Path, work: impl FnOnce() -> io::Result<T>) -> Result<T> {
    timed(WaitEvent::FileName, work).map_err(|error| IoError::from_os(operation, path, None, &error))
}

impl Disk for PosixDisk {
    fn open(&self, path: &Path, mode: OpenMode, hint: AccessHint) -> Result<Arc<dyn File>> {
        let operation = match mode {
            OpenMode::Create => "create",
            OpenMode::Read | OpenMode::Write => "open",
        };
        accounting::open(|| {
            let found = (mode != OpenMode::Create).then(|| fs::metadata(path)).transpose()?;
            if found.as_ref().is_some_and(|found| !found.is_file()) {
                // A pipe's open would wait for a writer for ever, and a device's reads may never end.
                return Err(io::Error::other("it is no regular file"));
            }
            let mut options = fs::OpenOptions::new();
            options.read(true).write(mode != OpenMode::Read).create_new(mode == OpenMode::Create);
            let plain = options.open(path)?;
            if (mode, hint) == (OpenMode::Create, AccessHint::Log) {
                in_place::keep_in_place(&plain);
            }
            let direct = match (mode, hint) {
                (OpenMode::Write | OpenMode::Create, AccessHint::Bulk) => {
                    // A second handle: reads and odd lengths still go through the page cache.
                    options.create_new(false).custom_flags(libc::O_DIRECT).open(path).ok()
                }
                _ => None,
            };
            let rings = direct.is_some().then(|| self.rings.clone()).flatten();
            let figures = self.figures.of(path, hint, mode == OpenMode::Create);
            figures.set_size(found.map_or(0, |found| found.len()));
            let file = file::PosixFile::new(path, plain, direct, hint, rings, self.linked.clone(), figures);
            Ok(Arc::new(file) as Arc<dyn File>)
        })
        .map_err(|error: io::Error| IoError::from_os(operation, path, None, &error))
    }

    fn create_dir(&self, path: &Path) -> Result<()> {
        wrap("create folder", path, || fs::create_dir_all(path))
    }

    fn list(&self, path: &Path) -> Result<Vec<DirEntry>> {
        let mut entries = wrap("list", path, || {
            let mut entries = Vec::new();
            for entry in fs::read_dir(path)? {
                let entry = entry?;
                let metadata = match entry.metadata() {
                    // Removed between the listing and the look.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                    metadata => metadata?,
                };
                let is_dir = metadata.is_dir();
                entries.push(DirEntry {
                    name: entry.file_name().to_string_lossy().into_owned(),
                    size_bytes: if is_dir { 0 } else { metadata.len() },
                    is_dir,
                });
            }
            Ok(entries)
        })?;
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        wrap("rename", from, || fs::rename(from, to))?;
        self.figures.renamed(from, to);
        Ok(())
    }

    fn link(&self, from: &Path, to: &Path) -> Result<()> {
        wrap("link", to, || fs::hard_link(from, to))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        wrap("remove", path, || fs::remove_file(path))?;
        self.figures.removed(path);
        Ok(())
    }

    fn remove_dir(&self, path: &Path) -> Result<()> {
        wrap("remove folder", path, || fs::remove_dir(path))
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        accounting::sync_dir(|| {
            let folder = fs::File::open(path).map_err(|error| IoError::from_os("open folder", path, None, &error))?;
            let failed =
                |error| IoError { kind: IoKind::Failed, ..IoError::from_os("sync folder", path, None, &error) };
            folder.sync_all().map_err(failed)
        })
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        wrap("look for", path, || fs::exists(path))
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn LockGuard>> {
        lock::acquire(path)
    }

    fn free_bytes(&self, path: &Path) -> Result<u64> {
        wrap("ask for free space", path, || {
            let name = CString::new(path.as_os_str().as_bytes())?;
            let mut figures = std::mem::MaybeUninit::<libc::statvfs>::uninit();
            // SAFETY: `name` is a C string and `figures` is large enough; it is read only after success.
            let figures = unsafe {
                if libc::statvfs(name.as_ptr(), figures.as_mut_ptr()) != 0 {
                    return Err(io::Error::last_os_error());
                }
                figures.assume_init()
            };
            // The types differ between platforms.
            #[allow(clippy::unnecessary_cast)]
            Ok((figures.f_bavail as u64).saturating_mul(figures.f_frsize as u64))
        })
    }

    fn figures(&self) -> Vec<KnownFile> {
        self.figures.all()
    }
}

#[cfg(test)]
mod kernel_tests;
#[cfg(test)]
mod tests;
