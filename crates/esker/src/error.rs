//! The engine's one error: what went wrong, where, and enough to map it once at a front end.

use esker_format::FormatError;
use esker_io::{IoError, IoKind};
use std::path::{Path, PathBuf};

/// Result of an engine call.
pub type Result<T> = std::result::Result<T, Error>;

/// Everything an engine call can fail with.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file operation failed.
    #[error("{0}")]
    Io(#[source] IoError),
    /// The disk is full; writing goes on once there is space.
    #[error("disk full: {0}")]
    DiskFull(#[source] IoError),
    /// Bytes on disk are not what was written: nothing from them is returned.
    #[error("damaged file {} at byte {offset}: {reason}", file.display())]
    Damage {
        /// The damaged file.
        file: PathBuf,
        /// Where the damaged unit begins, in bytes.
        offset: u64,
        /// What was expected and what was found.
        #[source]
        reason: FormatError,
    },
    /// A file of the log is gone.
    #[error("the log in {} has no file that holds position {lsn}", folder.display())]
    LogMissing {
        /// The log's folder.
        folder: PathBuf,
        /// The position.
        lsn: esker_format::Lsn,
    },
    /// The manifest is gone, and the folder holds data all the same.
    #[error(
        "{} is missing, but {} holds files: restore the file or the whole folder from a backup, or move the folder away to \
         begin with an empty one",
        file.display(), holds.display()
    )]
    ManifestMissing {
        /// Where it should be.
        file: PathBuf,
        /// The part of the folder that holds files.
        holds: PathBuf,
    },
    /// The folder was written by a newer version.
    #[error("{} has format version {found}; this version reads up to {supported}: upgrade Esker", file.display())]
    NewerFormat {
        /// The file that says so.
        file: PathBuf,
        /// Its version.
        found: u32,
        /// The newest version known here.
        supported: u32,
    },
    /// The folder was written by a version whose format is not read any more.
    #[error(
        "{} has format version {found}; this version needs {needed}: dump its tables with the version of Esker that wrote \
         them, and load them with this one",
        file.display()
    )]
    OlderFormat {
        /// The file that says so.
        file: PathBuf,
        /// Its version.
        found: u32,
        /// The version that is read here.
        needed: u32,
    },
    /// It holds something that only a newer version knows and that must not be skipped.
    #[error("{} was written by a newer version of Esker: {reason}; upgrade Esker", file.display())]
    UnknownContent {
        /// The file, or the folder of the log.
        file: PathBuf,
        /// What it holds.
        #[source]
        reason: FormatError,
    },
    /// Another process uses the folder, or another engine of this one.
    #[error("{0} is in use by another process, or by another engine of this one")]
    Locked(PathBuf),
    /// No table of this name.
    #[error("no Esker table '{0}'")]
    NoSuchTable(String),
    /// A table of this name exists.
    #[error("Esker table '{0}' exists already")]
    TableExists(String),
    /// The table was rebuilt after the read view was opened.
    #[error("table '{0}' was rebuilt after this transaction's read view was opened; begin a new transaction")]
    TableChanged(String),
    /// A row lock was not granted in time.
    #[error("lock wait timeout")]
    LockTimeout,
    /// The row is locked and the caller does not wait.
    #[error("row is locked")]
    WouldBlock,
    /// A circle of waiters, in which the transaction has done least: it is to be rolled back.
    #[error("deadlock")]
    Deadlock,
    /// The session was killed while it waited.
    #[error("interrupted")]
    Interrupted,
    /// A newer version of the row was committed after the read view was opened (snapshot isolation).
    #[error("record has changed since the read view was opened")]
    RecordChanged,
    /// Another row has the key of a unique index. Nothing was written.
    #[error("a row with this key in the unique index at place {index} exists")]
    DuplicateKey {
        /// The index's place in the table's definition.
        index: usize,
        /// The row that has it.
        row: esker_format::RowId,
    },
    /// The row is gone.
    #[error("row not found")]
    RowNotFound,
    /// An index has an entry of a row that is not there: the table is damaged. Nothing of it is returned.
    #[error("index '{index}' of table '{table}' has an entry of row {row}, which is not there")]
    EntryWithoutRow {
        /// The table.
        table: String,
        /// The index.
        index: String,
        /// The row.
        row: esker_format::RowId,
    },
    /// The row is longer than a block may be.
    #[error("row of {bytes} bytes is too long, the limit is {max} bytes")]
    RowTooLong {
        /// Packed size of the row in bytes.
        bytes: u64,
        /// The limit in bytes.
        max: u64,
    },
    /// A record of the log or the manifest that would be longer than a reader takes. Nothing of it was written.
    #[error("{what} of {bytes} bytes would be too long, the limit is {max} bytes")]
    TooLong {
        /// What was to be written.
        what: &'static str,
        /// How long it would be, in bytes.
        bytes: u64,
        /// The limit in bytes.
        max: u64,
    },
    /// It was opened read-only, or closed; or the system does not permit it.
    #[error("{0}")]
    ReadOnly(String),
    /// An earlier write or sync failed: nothing more is acknowledged, restart recovers.
    #[error("engine stopped accepting writes after: {0}; restart the server to recover")]
    Poisoned(String),
    /// The memory limit or the system's memory is exhausted.
    #[error("out of memory: {0}")]
    OutOfMemory(String),
    /// An index and its table's rows do not say the same: the table is damaged.
    #[error("index '{index}' of table '{table}': {what}")]
    IndexMismatch {
        /// The table.
        table: String,
        /// The index.
        index: String,
        /// What differs.
        what: String,
    },
    /// A table has not as many rows as were kept count of: that number was wrong.
    #[error("table '{table}' has {counted} rows, and {kept} by the number that is kept")]
    CountMismatch {
        /// The table.
        table: String,
        /// The number that was kept.
        kept: u64,
        /// The rows that were read.
        counted: u64,
    },
    /// Not supported.
    #[error("not supported: {0}")]
    Unsupported(String),
    /// An argument that makes no sense.
    #[error("{0}")]
    InvalidArgument(String),
}

impl From<IoError> for Error {
    fn from(e: IoError) -> Self {
        match e.kind {
            IoKind::DiskFull => Error::DiskFull(e),
            IoKind::Locked => Error::Locked(e.path),
            IoKind::ReadOnly => Error::ReadOnly(e.to_string()),
            _ => Error::Io(e),
        }
    }
}

impl Error {
    /// Does this error of background work end all writing? A log, manifest or folder that cannot be written poisons where
    /// it happens; what is left is a run that could not be written or read, or want of memory, space or file handles: that
    /// ends, or concerns one table only, and is tried again. Anything else is broken logic.
    pub(crate) fn stops_writing(&self) -> bool {
        let file = matches!(self, Error::DiskFull(_) | Error::ReadOnly(_) | Error::Damage { .. } | Error::Io(_));
        let of_another_version =
            matches!(self, Error::NewerFormat { .. } | Error::OlderFormat { .. } | Error::UnknownContent { .. });
        let long = matches!(self, Error::TooLong { .. });
        !(file
            || of_another_version
            || long
            || matches!(self, Error::OutOfMemory(_) | Error::Interrupted | Error::NoSuchTable(_)))
    }

    /// Did it fail for want of memory or handles, and not because of what it was about?
    pub(crate) fn is_want_of_resources(&self) -> bool {
        matches!(self, Error::OutOfMemory(_)) || matches!(self, Error::Io(e) if e.kind == IoKind::Resources)
    }

    /// Why something cannot be made in memory: a caller's row that is none, or no memory for it, or for a buffer.
    pub(crate) fn in_memory(reason: FormatError) -> Self {
        match reason {
            FormatError::OutOfMemory { .. } => Error::damage(Path::new(""), 0, reason),
            reason => Error::InvalidArgument(reason.to_string()),
        }
    }

    /// Damage found in `file` at `offset`, or why what is there cannot be read.
    pub fn damage(file: &Path, offset: u64, reason: FormatError) -> Self {
        match reason {
            FormatError::NewerVersion { found, supported, .. } => {
                Error::NewerFormat { file: file.to_owned(), found, supported }
            }
            FormatError::OlderVersion { found, needed, .. } => {
                Error::OlderFormat { file: file.to_owned(), found, needed }
            }
            FormatError::OutOfMemory { bytes } => Error::OutOfMemory(format!("{bytes} bytes for a row or a block")),
            reason @ FormatError::Unknown { .. } => Error::UnknownContent { file: file.to_owned(), reason },
            reason => Error::Damage { file: file.to_owned(), offset, reason },
        }
    }
}

impl From<esker_wal::WalError> for Error {
    fn from(e: esker_wal::WalError) -> Self {
        use esker_wal::WalError as W;
        match e {
            W::Io(e) => e.into(),
            W::DiskFull(e) => Error::DiskFull(e),
            W::Damage { file, offset, reason } => Error::damage(&file, offset, reason),
            W::Missing { folder, lsn } => Error::LogMissing { folder, lsn },
            W::Poisoned(why) => Error::Poisoned(why),
            W::TooLong { bytes, max } => Error::TooLong { what: "log record", bytes, max },
            W::OutOfMemory(e) => Error::OutOfMemory(e.to_string()),
            e => Error::InvalidArgument(e.to_string()),
        }
    }
}

impl From<crate::lock::LockError> for Error {
    fn from(e: crate::lock::LockError) -> Self {
        use crate::lock::LockError as L;
        match e {
            L::Timeout => Error::LockTimeout,
            L::Deadlock => Error::Deadlock,
            L::Interrupted => Error::Interrupted,
            L::WouldBlock => Error::WouldBlock,
        }
    }
}
