//! The lock file: an advisory lock that the kernel drops with its process, so that a crash leaves nothing behind.

use crate::{IoError, IoKind, LockGuard, Result};
use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::path::Path;

/// Closing the files unlocks them.
struct FileLock {
    _file: File,
    /// Its folder is locked, too: people remove lock files that seem to be left over.
    _folder: Option<File>,
}

impl LockGuard for FileLock {}

/// Locks `path`, made if need be, and writes the process id into it for people to read.
pub(super) fn acquire(path: &Path) -> Result<Box<dyn LockGuard>> {
    let os = |error: io::Error| IoError::from_os("lock", path, None, &error);
    let mut options = fs::OpenOptions::new();
    let opened = options.read(true).write(true).create(true).truncate(false).open(path);
    let (mut file, writable) = match opened {
        Ok(file) => (file, true),
        // Whoever only looks needs no more: the lock is the same.
        Err(e) if is_read_only(&e) => (File::open(path).map_err(|_| os(e))?, false),
        Err(e) => return Err(os(e)),
    };
    if let Err(e) = lock(&file) {
        return Err(if e.kind() == io::ErrorKind::WouldBlock { held_by_other(path, file) } else { os(e) });
    }
    let folder = path.parent().and_then(|folder| File::open(folder).ok());
    let folder = match folder.map(|folder| lock(&folder).map(|()| folder)) {
        Some(Err(e)) if e.kind() == io::ErrorKind::WouldBlock => return Err(held_by_other(path, file)),
        // Not every file system locks folders: the file alone has to do.
        locked => locked.and_then(io::Result::ok),
    };
    // The text is for people: that it cannot be written (a full disk) does not make the lock worse.
    if writable {
        let _ = file.set_len(0).and_then(|()| file.rewind());
        let _ = writeln!(file, "{}", std::process::id());
    }
    Ok(Box::new(FileLock { _file: file, _folder: folder }))
}

fn lock(file: &File) -> io::Result<()> {
    // SAFETY: the descriptor is open.
    while unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } != 0 {
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    Ok(())
}

/// Nothing may be written there, by this process or by any.
fn is_read_only(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
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
