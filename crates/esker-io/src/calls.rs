//! Positioned reads and writes to their end: what the kernel does in part is continued, what a signal interrupted is
//! asked again. The calls themselves are a trait, so that a test can stand in for the kernel.

use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

/// One system call each.
pub(crate) trait Calls: Send + Sync {
    fn write_at(&self, file: &fs::File, bytes: &[u8], offset: u64) -> io::Result<usize> {
        file.write_at(bytes, offset)
    }
    fn read_at(&self, file: &fs::File, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        file.read_at(buf, offset)
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
    loop {
        match calls.write_at(file, bytes, offset) {
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
