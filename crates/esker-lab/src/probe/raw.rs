//! Files without the engine's ways: one call, one system call. For measuring what a machine's storage does, and for
//! nothing else. Owns the handle, and how many calls went through it.

mod queue;

pub use queue::RawQueue;

use esker_io::{IoError, IoKind, Result};
use std::fs::{self, OpenOptions};
use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// How a [`RawFile`] is opened.
#[derive(Debug, Clone, Copy, Default)]
pub struct RawOptions {
    /// Made if it is not there, emptied if it is.
    pub create: bool,
    /// Opened for writing too.
    pub write: bool,
    /// Past the page cache (O_DIRECT).
    pub direct: bool,
    /// Every write is a barrier of its own (O_DSYNC).
    pub data_sync: bool,
}

/// What makes written bytes durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Barrier {
    /// fsync: bytes and all metadata.
    Fsync,
    /// fdatasync: bytes, and the metadata that reading them needs.
    Fdatasync,
    /// sync_file_range over the whole file, waiting: no metadata, and no flush of the device's cache.
    SyncFileRange,
}

/// See the module. Positioned calls only: any number of threads may use it at once.
#[derive(Debug)]
pub struct RawFile {
    file: fs::File,
    path: PathBuf,
    writes: AtomicU64,
    reads: AtomicU64,
}

impl RawFile {
    /// Opens a file.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn open(path: &Path, options: RawOptions) -> Result<RawFile> {
        let flags = if options.direct { libc::O_DIRECT } else { 0 } | if options.data_sync { libc::O_DSYNC } else { 0 };
        let write = options.write || options.create;
        // Opening a pipe waits for who writes it, and a device has no end.
        if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
            return Err(IoError::from_os("open", path, None, &io::Error::other("it is no regular file")));
        }
        let opened = OpenOptions::new()
            .read(true)
            .write(write)
            .create(options.create)
            .truncate(options.create)
            .custom_flags(flags)
            .open(path);
        let operation = if options.create { "create" } else { "open" };
        let file = opened.map_err(|e| IoError::from_os(operation, path, None, &e))?;
        Ok(RawFile { file, path: path.to_owned(), writes: AtomicU64::new(0), reads: AtomicU64::new(0) })
    }

    fn failed(&self, operation: &'static str, offset: Option<u64>, error: &io::Error) -> IoError {
        IoError::from_os(operation, &self.path, offset, error)
    }

    /// The path it was opened with.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Write calls so far.
    pub fn writes(&self) -> u64 {
        self.writes.load(Ordering::Relaxed)
    }

    /// Counts writes that went to it by another way.
    pub fn add_writes(&self, writes: u64) {
        self.writes.fetch_add(writes, Ordering::Relaxed);
    }

    /// Read calls so far.
    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    /// Writes all of `bytes` at `offset`.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn write_at(&self, mut bytes: &[u8], mut offset: u64) -> Result<()> {
        while !bytes.is_empty() {
            self.writes.fetch_add(1, Ordering::Relaxed);
            match self.file.write_at(bytes, offset) {
                Ok(0) => {
                    return Err(IoError::new("write", &self.path, Some(offset), IoKind::Failed, "nothing was written"))
                }
                Ok(n) => {
                    bytes = &bytes[n..];
                    offset += n as u64;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(self.failed("write", Some(offset), &e)),
            }
        }
        Ok(())
    }

    /// Writes all of `bytes` at `offset` as a barrier of its own (RWF_DSYNC).
    ///
    /// # Errors
    /// What the operating system says.
    pub fn write_at_durably(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.writes.fetch_add(1, Ordering::Relaxed);
        let part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        // SAFETY: one readable buffer of this length.
        let n = unsafe { libc::pwritev2(self.file.as_raw_fd(), &part, 1, offset as libc::off_t, libc::RWF_DSYNC) };
        match usize::try_from(n) {
            Ok(n) if n == bytes.len() => Ok(()),
            // The rest says why, if it cannot be written.
            Ok(n) if n > 0 => self.write_at_durably(&bytes[n..], offset + n as u64),
            Ok(_) => Err(IoError::new("write", &self.path, Some(offset), IoKind::Failed, "nothing was written")),
            Err(_) => Err(self.failed("write", Some(offset), &io::Error::last_os_error())),
        }
    }

    /// Fills `buf` from `offset` as far as the file goes; the bytes read.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        let mut done = 0;
        while done < buf.len() {
            self.reads.fetch_add(1, Ordering::Relaxed);
            match self.file.read_at(&mut buf[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(self.failed("read", Some(offset), &e)),
            }
        }
        Ok(done)
    }

    /// Makes written bytes durable, as far as `barrier` does.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn sync(&self, barrier: Barrier) -> Result<()> {
        let fd = self.file.as_raw_fd();
        // SAFETY: calls on a file that is open.
        let result = unsafe {
            match barrier {
                Barrier::Fsync => libc::fsync(fd),
                Barrier::Fdatasync => libc::fdatasync(fd),
                Barrier::SyncFileRange => libc::sync_file_range(
                    fd,
                    0,
                    0,
                    libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER,
                ),
            }
        };
        if result != 0 {
            return Err(self.failed("sync", None, &io::Error::last_os_error()));
        }
        Ok(())
    }

    /// Cuts the file, or extends it with zeros.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn set_size(&self, bytes: u64) -> Result<()> {
        self.file.set_len(bytes).map_err(|e| self.failed("set the size of", None, &e))
    }

    /// Reserves space; with `keep_size`, beyond the end.
    ///
    /// # Errors
    /// What the operating system says, also that the file system cannot.
    pub fn allocate(&self, bytes: u64, keep_size: bool) -> Result<()> {
        let mode = if keep_size { libc::FALLOC_FL_KEEP_SIZE } else { 0 };
        // SAFETY: a call on a file that is open.
        if unsafe { libc::fallocate(self.file.as_raw_fd(), mode, 0, bytes as libc::off_t) } != 0 {
            return Err(self.failed("reserve space for", None, &io::Error::last_os_error()));
        }
        Ok(())
    }

    /// Size in bytes.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn size_bytes(&self) -> Result<u64> {
        Ok(self.file.metadata().map_err(|e| self.failed("look at", None, &e))?.len())
    }

    /// Asks the kernel to forget its copy of the file, which must be synced: dirty pages stay.
    pub fn drop_cache(&self) {
        // SAFETY: a call on a file that is open; it is only advice.
        unsafe { libc::posix_fadvise(self.file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    }

    /// Does the kernel tell this process which pages of the file are in memory? To others than the owner and those who may
    /// write it, it says that all are (since Linux 5.2).
    #[must_use]
    pub fn tells_residency(&self) -> bool {
        use std::os::unix::fs::MetadataExt;
        // SAFETY: a call without arguments.
        let me = unsafe { libc::geteuid() };
        let owner = self.file.metadata().is_ok_and(|m| m.uid() == me);
        owner || me == 0 || OpenOptions::new().write(true).open(&self.path).is_ok()
    }

    /// Share of the file that is in the page cache, 0 to 1: how cold it really is.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn cached_share(&self) -> Result<f64> {
        const WINDOW: u64 = 1 << 30;
        let size = self.size_bytes()?;
        let (mut resident, mut pages, mut at) = (0usize, 0usize, 0u64);
        while at < size {
            let length = WINDOW.min(size - at) as usize;
            let present = self.resident(&self.map(at, length, false)?, at)?;
            resident += present.iter().filter(|p| **p & 1 == 1).count();
            pages += present.len();
            at += length as u64;
        }
        Ok(if pages == 0 { 0.0 } else { resident as f64 / pages as f64 })
    }

    /// Is all of `length` bytes from `offset` on in the page cache?
    ///
    /// # Errors
    /// What the operating system says.
    pub fn is_cached(&self, offset: u64, length: usize) -> Result<bool> {
        Ok(self.resident(&self.map(offset, length, false)?, offset)?.iter().all(|p| p & 1 == 1))
    }

    /// A byte for each page that a mapping touches: its lowest bit says whether the page is in memory.
    fn resident(&self, map: &Mapped, offset: u64) -> Result<Vec<u8>> {
        let mut present = vec![0u8; map.pages_bytes().div_ceil(page_bytes() as usize)];
        // SAFETY: one byte a page of a mapping that lives.
        if unsafe { libc::mincore(map.start.cast(), map.pages_bytes(), present.as_mut_ptr()) } != 0 {
            return Err(self.failed("look at the cache of", Some(offset), &io::Error::last_os_error()));
        }
        Ok(present)
    }

    /// Maps `length` bytes from `offset` into memory, wherever in their pages they begin and end.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn map(&self, offset: u64, length: usize, write: bool) -> Result<Mapped> {
        let protection = libc::PROT_READ | if write { libc::PROT_WRITE } else { 0 };
        // The kernel maps from the beginning of a page.
        let before = offset % page_bytes();
        // SAFETY: a fresh mapping of a file that is open; the address is the kernel's choice.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                before as usize + length,
                protection,
                libc::MAP_SHARED,
                self.file.as_raw_fd(),
                (offset - before) as libc::off_t,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(self.failed("map", Some(offset), &io::Error::last_os_error()));
        }
        Ok(Mapped { start: start.cast(), before: before as usize, length, write })
    }
}

/// Bytes of a page of memory.
fn page_bytes() -> u64 {
    // SAFETY: a call that looks at nothing of ours.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).ok().filter(|n| *n > 0).unwrap_or(4096)
}

/// A part of a file in memory. The file must not be cut while it lives: touching what is gone ends the process.
#[derive(Debug)]
pub struct Mapped {
    /// Of the page in which it begins, and how far into that.
    start: *mut u8,
    before: usize,
    length: usize,
    write: bool,
}

// SAFETY: plain memory.
unsafe impl Send for Mapped {}

/// What the kernel is told of how a mapping will be used (madvise).
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Advice {
    /// From its start to its end: read ahead, and forget what is behind
    Sequential,
    /// Anywhere: nothing is read ahead
    Random,
    /// All of it soon: it is read at once
    Willneed,
    /// Large pages, where the file system has them
    Hugepage,
}

impl Mapped {
    /// Bytes from the beginning of its first page to its end.
    fn pages_bytes(&self) -> usize {
        self.before + self.length
    }

    /// Tells the kernel.
    ///
    /// # Errors
    /// What it says, also that it cannot.
    pub fn advise(&self, advice: Advice) -> io::Result<()> {
        let advice = match advice {
            Advice::Sequential => libc::MADV_SEQUENTIAL,
            Advice::Random => libc::MADV_RANDOM,
            Advice::Willneed => libc::MADV_WILLNEED,
            Advice::Hugepage => libc::MADV_HUGEPAGE,
        };
        // SAFETY: a mapping of this length, and advice that changes no bytes.
        match unsafe { libc::madvise(self.start.cast(), self.pages_bytes(), advice) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Deref for Mapped {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: so many bytes mapped behind `before`, readable.
        unsafe { std::slice::from_raw_parts(self.start.add(self.before), self.length) }
    }
}

impl DerefMut for Mapped {
    fn deref_mut(&mut self) -> &mut [u8] {
        assert!(self.write, "a read-only mapping");
        // SAFETY: so many bytes mapped behind `before`, writable, owned by this value.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(self.before), self.length) }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: mapped by `map`, once.
        unsafe { libc::munmap(self.start.cast(), self.pages_bytes()) };
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn every_way_writes_the_same_bytes() {
        let path = std::env::temp_dir().join(format!("esker-raw-{}", std::process::id()));
        let options = RawOptions { create: true, ..RawOptions::default() };
        let file = RawFile::open(&path, options).unwrap();
        file.write_at(b"hello", 0).unwrap();
        file.set_size(8192).unwrap();
        file.map(4096, 4096, true).unwrap()[..5].copy_from_slice(b"there");
        file.write_at_durably(b"!", 5).unwrap();
        for barrier in [Barrier::Fsync, Barrier::Fdatasync, Barrier::SyncFileRange] {
            file.sync(barrier).unwrap();
        }
        let mut buf = vec![0; 10_000];
        assert_eq!(file.read_at(&mut buf, 0).unwrap(), 8192);
        assert_eq!((&buf[..6], &buf[4096..4101]), (&b"hello!"[..], &b"there"[..]));
        assert_eq!(file.writes(), 2);
        assert!(file.cached_share().unwrap() > 0.0);
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn pages_are_in_memory_if_all_of_them_are() {
        let path = std::env::temp_dir().join(format!("esker-raw-cached-{}", std::process::id()));
        let file = RawFile::open(&path, RawOptions { create: true, ..RawOptions::default() }).unwrap();
        let page = page_bytes();
        // Holes are in no page cache.
        file.set_size(8 * page).unwrap();
        file.write_at(&vec![1; page as usize], page).unwrap();
        let cached = |from: u64, bytes: u64| file.is_cached(from, bytes as usize).unwrap();
        assert!(cached(page, page) && cached(page + 100, 100));
        assert!(!cached(0, page) && !cached(page, 2 * page) && !cached(page - 1, 2) && !cached(0, 8 * page));
        assert_eq!(file.cached_share().unwrap(), 0.125);
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_part_is_mapped_wherever_it_begins_and_ends() {
        let path = std::env::temp_dir().join(format!("esker-raw-part-{}", std::process::id()));
        let file = RawFile::open(&path, RawOptions { create: true, ..RawOptions::default() }).unwrap();
        let bytes: Vec<u8> = (0..50_000u32).map(|n| (n % 251) as u8).collect();
        file.write_at(&bytes, 0).unwrap();
        for (at, length) in [(0, 1), (0, 5000), (4095, 2), (4096, 4096), (8191, 40_000), (49_999, 1)] {
            let mut part = file.map(at as u64, length, true).unwrap();
            assert!(part[..] == bytes[at..][..length], "{length} from {at}");
            assert_eq!(part.pages_bytes() - length, at % page_bytes() as usize);
            let page = page_bytes() as usize;
            let pages = (at + length).div_ceil(page) - at / page;
            assert_eq!(file.resident(&part, at as u64).unwrap().len(), pages, "{length} from {at}");
            part.advise(Advice::Sequential).unwrap();
            part[length - 1] ^= 0xFF;
            drop(part);
            let mut last = [0];
            file.read_at(&mut last, (at + length) as u64 - 1).unwrap();
            assert_eq!(last[0], bytes[at + length - 1] ^ 0xFF);
            file.write_at(&[last[0] ^ 0xFF], (at + length) as u64 - 1).unwrap();
        }
        let mut all = vec![0; bytes.len()];
        assert!(file.read_at(&mut all, 0).unwrap() == bytes.len() && all == bytes);
        fs::remove_file(&path).unwrap();
    }
}
