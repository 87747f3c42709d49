//! What the log can fail with.

use esker_format::{FormatError, Lsn};
use esker_io::{IoError, IoKind};
use esker_memory::OutOfMemory;
use std::path::PathBuf;

/// Result of a call to the log.
pub type Result<T> = std::result::Result<T, WalError>;

/// A call to the log that failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum WalError {
    /// A file operation failed while the log was opened or recycled, or a segment was made. Of kind
    /// [`IoKind::Resources`] it is passing: no handle or kernel memory was left.
    #[error("{0}")]
    Io(#[source] IoError),
    /// No space for another segment. Nothing was appended; the caller may try again once there is space.
    #[error("disk full: {0}")]
    DiskFull(#[source] IoError),
    /// What was durable once is not what is there now.
    #[error("damaged log {} at byte {offset}: {reason}", file.display())]
    Damage {
        /// The segment.
        file: PathBuf,
        /// Where in it the damaged frame or header begins.
        offset: u64,
        /// What does not fit.
        #[source]
        reason: FormatError,
    },
    /// The segment that should hold this position is not there.
    #[error("the log in {} has no segment for position {lsn}", folder.display())]
    Missing {
        /// The log's folder.
        folder: PathBuf,
        /// The position.
        lsn: Lsn,
    },
    /// A write or sync failed earlier: nothing more is acknowledged, opening the log again recovers.
    #[error("the log stopped after: {0}")]
    Poisoned(String),
    /// The payload is longer than a frame can be.
    #[error("a log frame of {bytes} bytes is too long, the limit is {max} bytes")]
    TooLong {
        /// Length of the payload.
        bytes: u64,
        /// The longest allowed.
        max: u64,
    },
    /// No memory for the log's buffer. Nothing was appended.
    #[error("{0}")]
    OutOfMemory(#[source] OutOfMemory),
}

impl WalError {
    /// Will it pass? Then nothing was changed, the log goes on, and the same may be tried again once there is space,
    /// memory or a handle. All else that befalls a log in use poisons it.
    pub fn is_passing(&self) -> bool {
        match self {
            WalError::DiskFull(_) | WalError::OutOfMemory(_) => true,
            WalError::Io(e) => e.kind == IoKind::Resources,
            _ => false,
        }
    }
}

impl From<IoError> for WalError {
    fn from(e: IoError) -> Self {
        match e.kind {
            IoKind::DiskFull => WalError::DiskFull(e),
            _ => WalError::Io(e),
        }
    }
}

impl From<OutOfMemory> for WalError {
    fn from(e: OutOfMemory) -> Self {
        WalError::OutOfMemory(e)
    }
}
