//! A transactional storage engine: tables that load and scan as fast as flat files, never lose or corrupt a row, never
//! make a reader wait and recover at once.
//!
//! [`Engine`] owns a folder; a [`Session`] is one caller's transactions; a [`Cursor`] reads rows as row images, laid out
//! as the table's `Layout` says, and [`Rows`] gives out values. See `docs/ARCHITECTURE.md` for the map and the
//! invariants.
//!
//! ```
//! use esker::format::row::{pack_values, Value};
//! use esker::format::{Column, ColumnKind, Compression, Layout, NullBit, RowFormat};
//! use esker::{BeginOptions, Engine, Isolation, Options, PosixDisk, TableDef};
//! use std::sync::Arc;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let dir = std::env::temp_dir().join(format!("esker-example-{}", std::process::id()));
//! let log: esker::Notify = Arc::new(|message, _level| eprintln!("{message}"));
//! let engine = Engine::open(Arc::new(PosixDisk::new()), &dir, Options::default(), log)?;
//!
//! // A row image of a table (id BIGINT NOT NULL, name VARCHAR(100)): null bits, id, length and bytes of the name.
//! let id = Column { kind: ColumnKind::Fixed { width: 8 }, offset: 1, null: None };
//! let null = Some(NullBit { byte: 0, mask: 1 });
//! let name = Column { kind: ColumnKind::Var { len_bytes: 1, max: 100 }, offset: 9, null };
//! let layout = Layout { image_bytes: 110, head_bytes: 1, columns: vec![id, name] };
//! let (format, compression) = (RowFormat::Dynamic, Compression::Lz4);
//! let def = TableDef { layout, format, compression, temporary: false, extra: Vec::new() };
//! engine.create_table("people", &def)?;
//! let people = engine.open_table("people")?;
//!
//! let mut session = engine.session();
//! session.begin(Isolation::RepeatableRead, BeginOptions::default());
//! let mut packed = Vec::new();
//! for (id, name) in [(1u64, Some("Ada")), (2, Some("Grace")), (3, None)] {
//!     let name = name.map_or(Value::Null, |n| Value::Bytes(n.as_bytes()));
//!     packed.clear();
//!     pack_values(people.layout(), &[Value::Bytes(&id.to_le_bytes()), name], &mut packed)?;
//!     session.insert_row(&people, &packed)?;
//! }
//! session.commit()?; // durable, and visible to views opened from now on
//!
//! let mut rows = session.rows(&people)?;
//! let mut names = Vec::new();
//! while let Some(row) = rows.next(&mut session)? {
//!     if let Value::Bytes(name) = row.values()?[1] {
//!         names.push(String::from_utf8_lossy(name).into_owned());
//!     }
//! }
//! assert_eq!(names, ["Ada", "Grace"]);
//! session.commit()?;
//! drop((rows, session));
//! engine.close()?;
//! # std::fs::remove_dir_all(&dir)?; // deps-ok: an example
//! # Ok(())
//! # }
//! ```

mod catalog;
mod core;
mod engine;
mod error;
mod lock;
mod options;
mod read;
mod recovery;
mod session;
#[cfg(any(test, feature = "sim"))]
pub mod sim_hooks;
mod status;
mod sync;
#[cfg(test)]
mod tests;
mod tree;
mod txn;
mod upkeep;
mod version;
mod write;

pub use catalog::table::{Table, TableDef, TableStats};
pub use engine::Engine;
pub use error::{Error, Result};
pub use esker_base as base;
pub use esker_format as format;
pub use esker_io as io;
pub use esker_io::PosixDisk;
pub use esker_memory as memory;
pub use esker_wal as wal;
pub use esker_wal::FlushMode;
pub use lock::{LockMode, WaitHooks};
pub use options::{Background, Level, Notify, Options};
pub use read::cursor::{Batch, Cursor, ScanOptions};
pub use read::rows::{Row, Rows};
pub use session::{Killer, Session};
pub use status::Status;
pub use txn::activity::{LockWaitInfo, TxnInfo};
pub use txn::open::{BeginOptions, Isolation, Savepoint};
pub use upkeep::check::{CheckReport, CheckScope};
pub use upkeep::pressure::REPLAY_BYTES_PER_SECOND;
pub use write::Stage;
