//! Bytes: how rows, blocks, runs, log records and the manifest are laid out. Encodes and decodes; no I/O, no policy.
//! Every length read from bytes is bounded before it is used. `docs/FORMAT.md` describes every byte.
//!
//! Invariants of the whole crate: a decoder never panics and never reads outside its input, whatever the input; the
//! place and the rule of a checksum do not change between versions, so that it is checked first and the version next;
//! integers are little-endian.

pub mod block;
pub mod catalog;
mod codec;
pub mod column_types;
mod compress;
pub mod entry;
mod error;
pub mod frame;
mod ids;
mod image;
pub mod index;
pub mod key_block;
pub mod key_bytes;
mod layout;
pub mod manifest;
mod mask;
mod prefetch;
pub mod record;
pub mod row;
pub mod run;
pub mod run_entry;
pub mod schema;
mod statistics;
mod table_state;

pub use block::{BlockBytes, BlockEntry, RowBlock, RowBlockBuilder, VersionTag};
pub use catalog::{trees_version, ColumnEntry, LayoutVersion, TableEntry, TreeEntry, TreeKind};
pub use codec::{grow, zeros};
pub use column_types::ColumnTypes;
pub use compress::Compression;
pub use error::FormatError;
pub use frame::{Frame, SegmentHeader};
pub use ids::{CommitSeq, FileId, FolderId, Lsn, RowId, TableId, TreeId, TxnId};
pub use index::{weights_version, IndexEntry, IndexState, KeyPart};
pub use key_block::{KeyBlock, KeyBlockBuilder, KeyBlockEntry};
pub use key_bytes::{Collations, KeyCodec, LocalTime, NoCollations, Shown, Telling, TimeForm};
pub use layout::{Column, ColumnKind, Layout, NullBit, RowFormat, MAX_IMAGE_BYTES};
pub use manifest::{Manifest, ManifestFile, PreparedEntry};
pub use mask::ColumnMask;
pub use prefetch::{prefetch, prefetch_all};
pub use record::{Record, RecordReader};
pub use row::Value;
pub use run::{block_context, BlockKind, LeafEntry, RunFooter, RunHeader, RunStats};
pub use run_entry::{KeyBounds, RunEntry, RunOrigin, RunRef};
pub use schema::{Schema, SchemaColumn, Type};
pub use statistics::IndexStatistics;
pub use table_state::{RangeTombstone, TableState, TreeState};

/// The longest packed row, 64 MiB: what a front end must not exceed.
pub const MAX_ROW_BYTES: u32 = 64 << 20;
/// The longest block, stored or decompressed, 128 MiB: a block holds at least one row of any legal length.
pub const MAX_BLOCK_BYTES: u32 = 128 << 20;
