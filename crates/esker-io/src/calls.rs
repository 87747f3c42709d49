//! Positioned reads and writes to their end: what the kernel does in part is continued, what a signal interrupted is
//! asked again. The calls themselves are a trait, so that a test can stand in for the kernel.

use esker_base::trace::{self, answered_by, will_sleep, Source};
use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};

/// One system call each.
pub(crate) trait Calls: Send + Sync {
    fn write_at(&self, file: &fs::File, bytes: &[u8], offset: u64) -> io::Result<usize> {
        file.write_at(bytes, offset)
    }
    /// As `write_at`; what is written is durable.
    fn write_durably_at(&self, file: &fs::File, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        let place = libc::off_t::try_from(offset).map_err(|_| io::Error::from_raw_os_error(libc::EFBIG))?;
        // SAFETY: one readable buffer of this length, of which the kernel only reads.
        let written = unsafe { libc::pwritev2(file.as_raw_fd(), &part, 1, place, libc::RWF_DSYNC) };
        usize::try_from(written).map_err(|_| io::Error::last_os_error())
    }
    fn read_at(&self, file: &fs::File, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        file.read_at(buf, offset)
    }
    /// As `read_at`, of what the kernel has in memory: nothing, or `WouldBlock`, where it would have to wait.
    fn read_at_once(&self, file: &fs::File, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let part = libc::iovec { iov_base: buf.as_mut_ptr().cast(), iov_len: buf.len() };
        let place = libc::off_t::try_from(offset).map_err(|_| io::Error::from_raw_os_error(libc::EFBIG))?;
        // SAFETY: one writable buffer of this length.
        let read = unsafe { libc::preadv2(file.as_raw_fd(), &part, 1, place, libc::RWF_NOWAIT) };
        usize::try_from(read).map_err(|_| io::Error::last_os_error())
    }
    /// Tells how bytes of the file will be read; a file system that does not care is no error.
    fn advise(&self, file: &fs::File, offset: u64, bytes: u64, advice: libc::c_int) {
        if let (Ok(offset), Ok(bytes)) = (libc::off_t::try_from(offset), libc::off_t::try_from(bytes)) {
            // SAFETY: the descriptor is open.
            unsafe { libc::posix_fadvise(file.as_raw_fd(), offset, bytes, advice) };
        }
    }
    /// Has dirty pages of these bytes written to the device; with `wait`, returns when they were. No metadata, nothing durable.
    fn write_back(&self, file: &fs::File, offset: u64, bytes: u64, wait: bool) -> io::Result<()> {
        let too_far = |_| io::Error::from_raw_os_error(libc::EFBIG);
        let (offset, bytes) = (offset.try_into().map_err(too_far)?, bytes.try_into().map_err(too_far)?);
        let waits = libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
        let flags = libc::SYNC_FILE_RANGE_WRITE | if wait { waits } else { 0 };
        // SAFETY: the descriptor is open.
        match unsafe { libc::sync_file_range(file.as_raw_fd(), offset, bytes, flags) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
    fn reserve(&self, file: &fs::File, offset: libc::off_t, bytes: libc::off_t) -> io::Result<()> {
        // SAFETY: the descriptor is open.
        match unsafe { libc::fallocate(file.as_raw_fd(), libc::FALLOC_FL_KEEP_SIZE, offset, bytes) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// The kernel's.
pub(crate) struct Kernel;

impl Calls for Kernel {}

/// Writes `bytes` at `offset`, as much as it can be in one call that is not interrupted: never nothing.
pub(crate) fn write_some(calls: &dyn Calls, file: &fs::File, bytes: &[u8], offset: u64) -> io::Result<usize> {
    some(|| calls.write_at(file, bytes, offset))
}

fn some(call: impl Fn() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match call() {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            written => return written,
        }
    }
}

/// Writes all of `bytes` at `offset`.
pub(crate) fn write_all(calls: &dyn Calls, file: &fs::File, bytes: &[u8], offset: u64) -> io::Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        done += write_some(calls, file, &bytes[done..], offset + done as u64)?;
    }
    Ok(())
}

/// As [`write_all`], each call durable.
pub(crate) fn write_all_durably(calls: &dyn Calls, file: &fs::File, bytes: &[u8], offset: u64) -> io::Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        done += some(|| calls.write_durably_at(file, &bytes[done..], offset + done as u64))?;
    }
    Ok(())
}

/// As [`read_all`]; from where the bytes came, where the file system tells. Of what the kernel does not have in memory the call that
/// is not answered begins the read, so that asking costs no more than itself; a device that has answered before that call looks again
/// passes for the page cache, which happens where processors are taken away now and then. `tells`: of this file it is known; turns
/// false once it does not, and nobody asks again.
pub(crate) fn read_all_from(
    calls: &dyn Calls,
    file: &fs::File,
    buf: &mut [u8],
    offset: u64,
    tells: &AtomicBool,
) -> io::Result<Option<Source>> {
    let (done, source) =
        if tells.load(Ordering::Relaxed) { at_once(calls, file, buf, offset, tells) } else { (0, None) };
    if trace::is_on() {
        source.into_iter().for_each(answered_by);
        if done < buf.len() {
            will_sleep();
        }
    }
    read_all(calls, file, &mut buf[done..], offset + done as u64)?;
    Ok(source)
}

/// How much of it the kernel has in memory, which is read.
fn at_once(
    calls: &dyn Calls,
    file: &fs::File,
    buf: &mut [u8],
    offset: u64,
    tells: &AtomicBool,
) -> (usize, Option<Source>) {
    match calls.read_at_once(file, buf, offset) {
        Ok(n) if n == buf.len() => (n, Some(Source::PageCache)),
        Ok(n) => (n, Some(Source::Device)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => (0, Some(Source::Device)),
        Err(error) => {
            if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOSYS | libc::EINVAL)) {
                tells.store(false, Ordering::Relaxed);
            }
            (0, None) // what else it may be the read itself finds
        }
    }
}

/// Fills `buf` from `offset`, or fails with `UnexpectedEof`.
pub(crate) fn read_all(calls: &dyn Calls, file: &fs::File, buf: &mut [u8], offset: u64) -> io::Result<()> {
    let mut done = 0;
    while done < buf.len() {
        match calls.read_at(file, &mut buf[done..], offset + done as u64) {
            Ok(0) => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file ends before")),
            Ok(n) => done += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
