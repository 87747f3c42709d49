//! An open file of the real disk.
//!
//! A bulk file has two handles on the same inode: the direct one takes writes whose buffer, offset and length are
//! aligned, the plain one everything else. The kernel keeps both coherent: a direct write drops the cached pages that
//! it covers.

use super::linked::{self, Linked, LinkedWriter};
use super::own_space;
use super::uring::{RingPool, WriteQueue};
use crate::accounting::FileKind;
use crate::calls::{self, Calls};
use crate::figures::Figures;
use crate::{AccessHint, File, IoError, Result, SyncMethod};
use esker_base::lock::{order, Mutex};
use esker_base::phase::Moment;
use esker_base::trace::{self, Source};
use esker_base::Counter;
use esker_memory::Region;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

/// What O_DIRECT wants of buffers, offsets and lengths. The strictest devices in use have 4096-byte sectors.
const DIRECT_ALIGNMENT: usize = 4096;

pub(super) struct PosixFile {
    path: PathBuf,
    kind: FileKind,
    /// Writes under way. Declared first: it is drained before the handles close.
    queue: Option<Mutex<WriteQueue>>,
    plain: fs::File,
    direct: Option<fs::File>,
    /// Set when the file system took O_DIRECT at the opening and not at the writing.
    direct_refused: AtomicBool,
    /// False once the file system has not told whether it has something in memory.
    tells_source: AtomicBool,
    /// Shared with the disk's other files.
    linked: Arc<LinkedWriter>,
    calls: &'static dyn Calls,
    figures: Arc<Figures>,
}

impl PosixFile {
    pub(super) fn new(
        path: &Path,
        plain: fs::File,
        direct: Option<fs::File>,
        hint: AccessHint,
        rings: Option<Arc<RingPool>>,
        linked: Arc<LinkedWriter>,
        figures: Arc<Figures>,
    ) -> Self {
        PosixFile {
            path: path.to_owned(),
            kind: hint.into(),
            queue: rings.map(|pool| Mutex::new(&order::IO_WRITE_QUEUE, WriteQueue::new(pool))),
            plain,
            direct,
            direct_refused: AtomicBool::new(false),
            tells_source: AtomicBool::new(true),
            linked,
            calls: &calls::Kernel,
            figures,
        }
    }

    /// With somebody who stands in for the kernel.
    #[cfg(test)]
    pub(super) fn with_calls(mut self, calls: &'static dyn Calls) -> Self {
        self.calls = calls;
        self
    }

    fn error(&self, operation: &'static str, offset: Option<u64>, error: &io::Error) -> IoError {
        IoError::from_os(operation, &self.path, offset, error)
    }

    /// For whoever traces it, a sync is of the whole file.
    fn placed<T>(&self, sync: impl FnOnce() -> T) -> T {
        trace::place(&self.path, 0, 0);
        sync()
    }

    /// The direct handle, if this write may go through it.
    fn direct_for(&self, buf: &[u8], offset: u64) -> Option<&fs::File> {
        let mask = DIRECT_ALIGNMENT - 1;
        let bits = buf.as_ptr() as usize | buf.len() | offset as usize;
        let fits = bits & mask == 0 && !self.direct_refused.load(Ordering::Relaxed);
        self.direct.as_ref().filter(|_| fits)
    }

    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let mut done = 0;
        while done < buf.len() {
            // What is left after a short write may be unaligned.
            let (rest, at) = (&buf[done..], offset + done as u64);
            let Some(direct) = self.direct_for(rest, at) else {
                return calls::write_all(self.calls, &self.plain, rest, at);
            };
            match calls::write_some(self.calls, direct, rest, at) {
                Ok(n) => done += n,
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                    self.direct_refused.store(true, Ordering::Relaxed);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl File for PosixFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        if trace::is_on() {
            return self.read_at_from(buf, offset).map(drop);
        }
        let bytes = buf.len();
        let read = || calls::read_all(self.calls, &self.plain, buf, offset);
        self.kind.read(&self.figures, bytes, read).map_err(|error| self.error("read", Some(offset), &error))
    }

    fn read_at_from(&self, buf: &mut [u8], offset: u64) -> Result<Option<Source>> {
        let bytes = buf.len();
        let read = || {
            trace::place(&self.path, offset, bytes);
            calls::read_all_from(self.calls, &self.plain, buf, offset, &self.tells_source)
        };
        self.kind.read(&self.figures, bytes, read).map_err(|error| self.error("read", Some(offset), &error))
    }

    fn will_need(&self, offset: u64, bytes: u64) {
        self.calls.advise(&self.plain, offset, bytes, libc::POSIX_FADV_WILLNEED);
    }

    fn read_along(&self, may: bool) {
        let advice = if may { libc::POSIX_FADV_NORMAL } else { libc::POSIX_FADV_RANDOM };
        self.calls.advise(&self.plain, 0, 0, advice);
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.kind.wrote(&self.figures, buf.len(), offset);
        self.kind
            .timed_write(&self.figures, || {
                trace::place(&self.path, offset, buf.len());
                self.write_all_at(buf, offset)
            })
            .map_err(|error| self.error("write", Some(offset), &error))
    }

    fn sync_data(&self) -> Result<()> {
        self.drain()?;
        self.kind
            .sync(&self.figures, || self.placed(|| self.plain.sync_data()))
            .map_err(|error| self.error("sync", None, &error))
    }

    fn write_durably(&self, buf: &[u8], offset: u64, method: SyncMethod) -> Result<()> {
        let fail = |error: io::Error| self.error("write durably", Some(offset), &error);
        match method {
            SyncMethod::Dsync => {
                self.kind.wrote_durably(&self.figures, buf.len(), offset, method);
                let write = || {
                    trace::place(&self.path, offset, buf.len());
                    calls::write_all_durably(self.calls, &self.plain, buf, offset)
                };
                return self.kind.timed_sync(&self.figures, write).map_err(fail);
            }
            SyncMethod::Uring if buf.len() <= linked::MOST_BYTES => {
                self.drain()?;
                let write = || {
                    trace::place(&self.path, offset, buf.len());
                    self.linked.write_and_sync(&self.plain, buf, offset)
                };
                if self.kind.timed_sync(&self.figures, write).map_err(fail)? == Linked::Done {
                    self.kind.wrote_durably(&self.figures, buf.len(), offset, method);
                    return Ok(());
                }
            }
            SyncMethod::Fdatasync | SyncMethod::Uring => {}
        }
        self.write_at(buf, offset)?;
        self.sync_data()
    }

    fn sync_all(&self) -> Result<()> {
        self.drain()?;
        self.kind
            .sync(&self.figures, || self.placed(|| self.plain.sync_all()))
            .map_err(|error| self.error("sync", None, &error))
    }

    fn size_bytes(&self) -> Result<u64> {
        let metadata = self.plain.metadata();
        metadata.map(|m| m.len()).map_err(|error| self.error("ask for the size of", None, &error))
    }

    fn set_size(&self, size_bytes: u64) -> Result<()> {
        self.drain()?;
        self.plain.set_len(size_bytes).map_err(|error| self.error("set the size of", Some(size_bytes), &error))?;
        self.figures.set_size(size_bytes);
        Ok(())
    }

    fn reserve(&self, offset: u64, size_bytes: u64) -> Result<()> {
        let fail = |error| Err(self.error("reserve space for", Some(offset), &error));
        let (Ok(start), Ok(length)) = (libc::off_t::try_from(offset), libc::off_t::try_from(size_bytes)) else {
            return fail(io::Error::from_raw_os_error(libc::EFBIG));
        };
        if length == 0 {
            return Ok(());
        }
        loop {
            let Err(error) = self.calls.reserve(&self.plain, start, length) else { return Ok(()) };
            match error.raw_os_error() {
                Some(libc::EINTR) => {}
                Some(libc::EOPNOTSUPP | libc::ENOSYS) => return Ok(()),
                _ => return fail(error),
            }
        }
    }

    fn owns_space(&self) -> Result<bool> {
        let fail = |error| self.error("ask for the extents of", None, &error);
        own_space::is_its_own(&self.plain, self.size_bytes()?).map_err(fail)
    }

    fn write_alignment(&self) -> usize {
        if self.direct.is_some() {
            DIRECT_ALIGNMENT
        } else {
            1
        }
    }

    fn submit_write(&self, data: Region, bytes: usize, offset: u64) -> Result<Option<Region>> {
        let direct = self.direct_for(&data[..bytes], offset);
        let (Some(queue), Some(direct)) = (&self.queue, direct) else {
            self.write_at(&data[..bytes], offset)?;
            return Ok(Some(data));
        };
        self.kind.wrote(&self.figures, bytes, offset);
        esker_base::count(Counter::BufferWritesQueued, 1);
        let mut queue = queue.lock();
        let begun = Moment::now();
        let submitted = queue.submit(direct, data, bytes, offset, |rest, at| self.write_all_at(rest, at));
        self.figures.took(begun.elapsed_ns());
        submitted.map_err(|error| self.error("write", Some(error.offset), &error.error))
    }

    fn write_back(&self, offset: u64, bytes: u64, wait: bool) -> Result<()> {
        if self.direct.is_some() {
            return Ok(());
        }
        self.kind.timed_write(&self.figures, || {
            trace::place(&self.path, offset, bytes as usize);
            loop {
                let Err(error) = self.calls.write_back(&self.plain, offset, bytes, wait) else { return Ok(()) };
                match error.raw_os_error() {
                    Some(libc::EINTR) => {}
                    // A system that knows no such call writes them when it likes.
                    Some(libc::EINVAL | libc::ENOSYS | libc::EOPNOTSUPP) => return Ok(()),
                    // Whoever syncs afterwards may not be told any more.
                    _ => return Err(self.error("write", Some(offset), &error)),
                }
            }
        })
    }

    fn drain(&self) -> Result<()> {
        let Some(queue) = &self.queue else {
            return Ok(());
        };
        let mut queue = queue.lock();
        let begun = Moment::now();
        let drained = queue.drain(|rest, at| self.write_all_at(rest, at));
        self.figures.took(begun.elapsed_ns());
        drained.map_err(|error| self.error("write", Some(error.offset), &error.error))
    }
}
