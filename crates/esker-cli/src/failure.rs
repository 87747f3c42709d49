//! What ends a command early, and the exit code that goes with it.

use esker::io::IoKind;
use esker::Error;
use std::io;
use std::path::PathBuf;

const OTHER: u8 = 1;
const DAMAGE: u8 = 2;

/// Why a command did not end well.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The engine, the log or the disk says so.
    #[error("{0}")]
    Engine(Error),
    /// A server, or another such command, works with the folder.
    #[error("{} is in use: stop the server first, or look at a copy that was made while it was stopped, or at a snapshot of the file system", .0.display())]
    InUse(PathBuf),
    /// No folder of this name.
    #[error("there is no folder {}", .0.display())]
    NoFolder(PathBuf),
    /// Damage was found, and has been reported.
    #[error("damage was found")]
    Damaged,
    /// The lab's report is out, and says what is wrong with it.
    #[error("see the report")]
    Lab(esker_lab::Verdict),
    /// Nothing was measured.
    #[error("{0}")]
    Unmeasured(#[from] esker_lab::LabError),
    /// A session's trace cannot be told.
    #[error("{0}")]
    Trace(String),
    /// The output cannot be written.
    #[error("cannot write the output: {0}")]
    Output(#[from] io::Error),
}

impl From<Error> for Failure {
    fn from(e: Error) -> Self {
        match e {
            Error::Locked(path) => Failure::InUse(path.parent().map_or_else(|| path.clone(), PathBuf::from)),
            e => Failure::Engine(e),
        }
    }
}

impl Failure {
    /// What the process ends with.
    pub fn exit_code(&self) -> u8 {
        match self {
            Failure::Damaged => DAMAGE,
            Failure::Lab(verdict) => verdict.exit_code(),
            Failure::Unmeasured(esker_lab::LabError::Stopped) if esker_lab::experiment::interrupted() => {
                esker_lab::Verdict::Interrupted.exit_code()
            }
            Failure::Unmeasured(esker_lab::LabError::Unsupported(_)) => esker_lab::Verdict::Unsupported.exit_code(),
            Failure::Engine(e) if is_damage(e) => DAMAGE,
            Failure::Output(e) if e.kind() == io::ErrorKind::BrokenPipe => 0,
            _ => OTHER,
        }
    }

    /// Must it still be told?
    pub fn is_news(&self) -> bool {
        match self {
            Failure::Damaged | Failure::Lab(_) => false,
            // Whoever read our output has had enough of it.
            Failure::Output(e) => e.kind() != io::ErrorKind::BrokenPipe,
            _ => true,
        }
    }
}

/// Is the folder not what was written? So it is when a file that must be there is gone or too short.
pub fn is_damage(e: &Error) -> bool {
    match e {
        Error::Damage { .. } | Error::LogMissing { .. } | Error::ManifestMissing { .. } => true,
        Error::Io(e) => matches!(e.kind, IoKind::NotFound | IoKind::ShortRead),
        _ => false,
    }
}

/// Where the damage is: file and byte offset, as far as they are known.
pub fn place(e: &Error) -> (PathBuf, Option<u64>) {
    match e {
        Error::Damage { file, offset, .. } => (file.clone(), Some(*offset)),
        Error::Io(e) => (e.path.clone(), e.offset),
        Error::LogMissing { folder, .. } => (folder.clone(), None),
        Error::ManifestMissing { file, .. } => (file.clone(), None),
        _ => (PathBuf::new(), None),
    }
}
