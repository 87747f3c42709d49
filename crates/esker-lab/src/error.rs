//! What ends a lab command early, and its exit code.

use esker_io::IoError;

/// Result of a lab operation.
pub type Result<T> = std::result::Result<T, LabError>;

/// Why something was not measured.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// Kernel, file system or container refuse it.
    #[error("not supported here: {0}")]
    Unsupported(String),
    /// A file operation failed.
    #[error("{0}")]
    Io(#[from] IoError),
    /// Something other than a file failed.
    #[error("{0}")]
    Failed(String),
    /// The arguments make no sense.
    #[error("{0}")]
    Invalid(String),
    /// Not enough space, or more than allowed.
    #[error("{0}")]
    Space(String),
    /// Ctrl-C, or the time is over.
    #[error("stopped")]
    Stopped,
    /// The output cannot be written.
    #[error("cannot write the output: {0}")]
    Output(String),
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// All rows are good.
    Good,
    /// Nothing of what was asked for works here.
    Unsupported,
    /// The machine was too noisy for the figures to mean much.
    Noisy,
    /// Something could not be done: a full disk, say.
    Failed,
    /// Ctrl-C: what is done is reported.
    Interrupted,
    /// What was written or read was not what it should be.
    Void,
}

impl Verdict {
    /// The process's exit code.
    #[must_use]
    pub fn exit_code(self) -> u8 {
        match self {
            Verdict::Good => 0,
            Verdict::Failed => 1,
            Verdict::Void => 2,
            Verdict::Noisy => 3,
            Verdict::Unsupported => 4,
            Verdict::Interrupted => 130,
        }
    }
}
