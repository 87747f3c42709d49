//! Files and only files. Owns every call to the operating system that touches a file: the [`Disk`] and [`File`] traits,
//! their backends, and the buffered writers and readers above them. Everything above this crate reaches storage through
//! these two traits, so that a test can put `SimDisk` underneath and lose power at any step.

mod accounting;
mod append;
mod calls;
mod error;
mod figures;
mod overlay;
mod posix;
mod ready;
pub mod ring;
#[cfg(any(test, feature = "sim"))]
pub mod sim;
mod sync_method;
mod traits;
mod writer;

pub use append::AppendFile;
pub use error::{IoError, IoKind, Result};
pub use figures::{FileFigures, KnownFile};
pub use overlay::Overlay;
pub use posix::{open_files_limit, PosixDisk, UringStatus};
pub use ready::ready_clock;
#[cfg(any(test, feature = "sim"))]
pub use sim::SimDisk;
pub use sync_method::SyncMethod;
pub use traits::{AccessHint, DirEntry, Disk, File, LockGuard, OpenMode};
pub use writer::SequentialWriter;
