//! The lock file: an advisory lock that the kernel drops with its process, so that a crash leaves nothing behind.

use crate::{IoError, IoKind, LockGuard, Result};
use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::path::Path;

/// Closing the file unlocks it.
struct FileLock {
    _file: File,
}

impl LockGuard for FileLock {}

/// Locks `path`, made if need be, and writes the process id into it for people to read.
pub(super) fn acquire(path: &Path) -> Result<Box<dyn LockGuard>> {
    let os = |error: io::Error| IoError::from_os("lock", path, None, &error);
    let mut options = fs::OpenOptions::new();
    let mut file = options.read(true).write(true).create(true).truncate(false).open(path).map_err(os)?;
    // SAFETY: the descriptor is open.
    while unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } != 0 {
        let error = io::Error::last_os_error();
        match error.kind() {
            io::ErrorKind::Interrupted => continue,
            io::ErrorKind::WouldBlock => return Err(held_by_other(path, file)),
            _ => return Err(os(error)),
        }
    }
    // The text is for people: that it cannot be written (a full disk) does not make the lock worse.
    let _ = file.set_len(0).and_then(|()| file.rewind());
    let _ = writeln!(file, "{}", std::process::id());
    Ok(Box::new(FileLock { _file: file }))
}

fn held_by_other(path: &Path, mut file: File) -> IoError {
    let mut text = String::new();
    let _ = Read::by_ref(&mut file).take(32).read_to_string(&mut text);
    let message = match text.trim().parse::<u32>() {
        Ok(pid) => format!("in use by process {pid}"),
        Err(_) => "in use by another process".to_owned(),
    };
    IoError { operation: "lock", path: path.to_owned(), offset: None, kind: IoKind::Locked, message }
}
