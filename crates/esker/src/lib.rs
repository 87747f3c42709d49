//! A transactional storage engine: tables that load and scan as fast as flat files, never lose or corrupt a row, never
//! make a reader wait and recover at once.
//!
//! [`Engine`] owns a folder; a [`Session`] is one caller's transactions; [`Rows`] gives out values. Front ends that have
//! row images of their own read by [`Cursor`]. See `docs/ARCHITECTURE.md` for the map and the invariants.
//!
//! Who changes rows by what he reads of them reads them by [`Session::rows_for_update`] or [`Session::rows_by_for_update`].
//!
//! ```
//! use esker::{Engine, Schema, Type};
//!
//! # fn main() -> esker::Result<()> {
//! # let dir = std::env::temp_dir().join(format!("esker-example-{}", std::process::id()));
//! let engine = Engine::open_dir(&dir)?;
//! let schema = Schema::new().column("id", Type::U64).nullable("name", Type::Text(100));
//! let people = engine.create("people", &schema)?;
//!
//! let mut session = engine.session();
//! for (id, name) in [(1u64, Some("Ada")), (2, Some("Grace")), (3, None)] {
//!     session.insert(&people, &[id.into(), name.into()])?;
//! }
//! session.commit()?; // durable, and visible to views opened from now on
//!
//! let mut names = Vec::new();
//! let mut rows = session.rows(&people)?;
//! while let Some(row) = rows.next()? {
//!     names.extend(row.get::<Option<String>>("name")?);
//! }
//! assert_eq!(names, ["Ada", "Grace"]);
//! session.commit()?;
//! drop(session);
//! engine.close()?;
//! # let _ = std::fs::remove_dir_all(&dir); // deps-ok: an example
//! # Ok(())
//! # }
//! ```
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod catalog;
mod core;
mod engine;
mod error;
mod host;
mod lock;
mod options;
mod read;
mod recovery;
mod session;
#[cfg(any(test, feature = "sim"))]
pub mod sim_hooks;
mod status;
mod sync;
mod tally;
#[cfg(test)]
mod tests;
mod tree;
mod txn;
mod upkeep;
mod value;
mod version;
mod work;
mod writable;
mod write;

pub use catalog::alter::{BuiltIndexes, IndexPlan};
pub use catalog::auto_increment::Counting;
pub use catalog::index::IndexDef;
pub use catalog::table::{Table, TableDef, TableStats};
pub use engine::Engine;
pub use error::{Error, Result};
pub use esker_base as base;
pub use esker_format as format;
pub use esker_format::{Collations, KeyPart, LocalTime, NoCollations, Schema, SchemaColumn, Shown, TimeForm, Type};
pub use esker_io as io;
pub use esker_io::PosixDisk;
pub use esker_memory as memory;
pub use esker_wal as wal;
pub use esker_wal::{FlushMode, SyncMethod};
pub use host::{Host, Machine};
pub use lock::{LockMode, WaitHooks};
pub use options::{Background, Level, Notify, Options};
pub use read::cursor::{Batch, Cursor, ScanOptions};
pub use read::index::{Direction, IndexBatch, IndexCursor, KeyRange};
pub use read::rows::{IndexRange, Row, Rows};
pub use read::verify::IndexReport;
pub use session::{Killer, Session};
pub use status::{FileInfo, MemoryInfo, MemoryOwner, Status, WaitBucket, WaitInfo};
pub use txn::activity::{LockInfo, LockWaitInfo, TxnInfo};
pub use txn::open::{BeginOptions, Isolation, Savepoint};
pub use upkeep::check::{CheckReport, CheckScope};
pub use upkeep::pressure::REPLAY_BYTES_PER_SECOND;
pub use value::{FromValue, Value};
pub use work::{WorkFigures, WorkInfo};
pub use write::Stage;
