//! The one error of file operations: what was tried, on which file, and how it can be classified.

use std::path::{Path, PathBuf};

/// Result of a file operation.
pub type Result<T> = std::result::Result<T, IoError>;

/// How a failed file operation is to be treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum IoKind {
    /// No space left (ENOSPC, EDQUOT): the caller may go on once space is back.
    DiskFull,
    /// The file or folder does not exist.
    NotFound,
    /// The file or folder exists already.
    AlreadyExists,
    /// Permission denied or read-only file system.
    ReadOnly,
    /// Somebody else holds the lock file.
    Locked,
    /// The file ended before the bytes asked for.
    ShortRead,
    /// Out of file handles or kernel memory.
    Resources,
    /// Anything else: the medium failed.
    Failed,
}

/// " at byte n", if there is one.
struct At(Option<u64>);

impl std::fmt::Display for At {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(offset) => write!(f, " at byte {offset}"),
            None => Ok(()),
        }
    }
}

/// A file operation that failed.
#[derive(Debug, Clone, thiserror::Error)]
#[error("cannot {operation} {}{}: {message}", path.display(), At(*offset))]
pub struct IoError {
    /// What was tried, as a verb: "read", "sync".
    pub operation: &'static str,
    /// The file or folder.
    pub path: PathBuf,
    /// Byte offset, where there is one.
    pub offset: Option<u64>,
    /// How to treat it.
    pub kind: IoKind,
    /// The operating system's words.
    pub message: String,
}

impl IoError {
    /// An error that the operating system did not make.
    pub fn new(
        operation: &'static str,
        path: &Path,
        offset: Option<u64>,
        kind: IoKind,
        message: impl Into<String>,
    ) -> Self {
        IoError { operation, path: path.to_owned(), offset, kind, message: message.into() }
    }

    /// Classifies an operating system error.
    pub fn from_os(operation: &'static str, path: &Path, offset: Option<u64>, error: &std::io::Error) -> Self {
        use std::io::ErrorKind as K;
        let kind = match (error.raw_os_error(), error.kind()) {
            (Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG), _) => IoKind::DiskFull,
            (Some(libc::EROFS | libc::EACCES | libc::EPERM), _) => IoKind::ReadOnly,
            (Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::EAGAIN), _) => IoKind::Resources,
            (_, K::NotFound) => IoKind::NotFound,
            (_, K::AlreadyExists) => IoKind::AlreadyExists,
            (_, K::UnexpectedEof) => IoKind::ShortRead,
            _ => IoKind::Failed,
        };
        IoError { operation, path: path.to_owned(), offset, kind, message: error.to_string() }
    }
}

impl From<esker_memory::OutOfMemory> for IoError {
    fn from(error: esker_memory::OutOfMemory) -> Self {
        let (kind, message) = (IoKind::Resources, error.to_string());
        IoError::new("take a buffer for", Path::new("memory"), None, kind, message)
    }
}
