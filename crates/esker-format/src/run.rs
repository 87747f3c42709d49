//! Owns run files: a header, parts, a directory of the parts, a footer. A part is a run: the blocks of one tree, then its
//! sections (filters, row ids, block index, statistics), then the part's footer with their table. One file can hold a part for each tree
//! of a transaction.
//!
//! Invariants: the file's identity and a thing's place in it are mixed into every checksum behind the header, so that a
//! thing of another file or another place is found; every length is bounded by the file's before it is used.

mod filter;
mod footer;
mod index;
mod part;
mod row_ids;
mod stats;

pub use filter::{
    add_key, filter_bytes, filter_hash, may_hold, open_group, row_filter_hash, Filters, GROUP_BLOCKS,
    GROUP_HEADER_BYTES,
};
pub use footer::{encode_end, footer_at, place_at, PartPlace, RunFooter};
pub use footer::{FOOTER_MAGIC, MAX_PARTS, PART_ENTRY_BYTES, RUN_FOOTER_BYTES};
pub use index::{entry_at, key_bound, leaf_at, top_at, Leaf, LeafEntry};
pub use index::{BOUND_BYTES, INDEX_ENTRY_BYTES, INDEX_MAGIC, LEAF_BYTES, LEAF_HEADER_BYTES, TOP_ENTRY_BYTES};
pub use part::{part_at, section_at, section_kind, BlockKind, MoreSections, Part, Section};
pub use part::{MAX_SECTIONS, PART_FOOTER_BYTES, PART_MAGIC, SECTION_ENTRY_BYTES, SECTION_VERSION};
pub use row_ids::{container_kind, Container, RowIdSet, RowIds, CONTAINER_BITS_BYTES};
pub use stats::RunStats;

use crate::codec::{self, get_u32, get_u64, set_u32, set_u64};
use crate::error::FormatError;
use crate::ids::{FileId, FolderId};
use xxhash_rust::xxh3::xxh3_64;

/// Format version of run files.
pub const RUN_VERSION: u32 = 2;
/// Length of the header; the first block follows it.
pub const RUN_HEADER_BYTES: usize = 4096;
/// "ESKRUN" and two zero bytes.
pub const RUN_MAGIC: u64 = u64::from_le_bytes(*b"ESKRUN\0\0");

/// Features that a run file may need of its reader: none yet.
const KNOWN_FEATURES: u32 = 0;

/// Offsets in the header (checksum at 8, of all that follows).
pub mod header_at {
    #![allow(missing_docs)]
    pub const MAGIC: usize = 0;
    pub const CHECKSUM: usize = 8;
    pub const VERSION: usize = 16;
    pub const REQUIRED: usize = 20;
    pub const FILE: usize = 24;
    pub const FOLDER: usize = 32;
    pub const CREATED: usize = 48;
    pub const KEY_ID: usize = 56;
    pub const KEY_VERSION: usize = 60;
}

/// What is mixed into the checksum of something at `offset` of a file, so that what was read from the wrong place is
/// found.
#[must_use]
pub fn block_context(file: FileId, offset: u64) -> u64 {
    let mut bytes = [0; 16];
    set_u64(&mut bytes, 0, file.0);
    set_u64(&mut bytes, 8, offset);
    xxh3_64(&bytes)
}

/// The start of a run file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunHeader {
    /// The file's identity.
    pub file: FileId,
    /// The folder that it was written in.
    pub folder: FolderId,
    /// When it was created, seconds since 1970.
    pub created_unix_s: u64,
}

impl RunHeader {
    /// Appends [`RUN_HEADER_BYTES`] bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.resize(start + RUN_HEADER_BYTES, 0);
        let b = &mut out[start..];
        set_u64(b, header_at::MAGIC, RUN_MAGIC);
        set_u32(b, header_at::VERSION, RUN_VERSION);
        set_u64(b, header_at::FILE, self.file.0);
        b[header_at::FOLDER..header_at::FOLDER + 16].copy_from_slice(&self.folder.0);
        set_u64(b, header_at::CREATED, self.created_unix_s);
        codec::seal(&mut b[header_at::CHECKSUM..], RUN_MAGIC);
    }

    /// Reads the first [`RUN_HEADER_BYTES`] bytes of a file.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        codec::need("run header", bytes, RUN_HEADER_BYTES)?;
        let b = &bytes[..RUN_HEADER_BYTES];
        let magic = get_u64(b, header_at::MAGIC);
        if magic != RUN_MAGIC {
            return Err(FormatError::Invalid { what: "run magic", found: magic });
        }
        codec::check_seal(&b[header_at::CHECKSUM..], RUN_MAGIC)?;
        codec::check_version("run", get_u32(b, header_at::VERSION), RUN_VERSION)?;
        codec::check_bits("feature of a run", get_u32(b, header_at::REQUIRED).into(), KNOWN_FEATURES.into())?;
        let key = get_u64(b, header_at::KEY_ID);
        if key != 0 {
            return Err(FormatError::Invalid { what: "run key", found: key });
        }
        let mut folder = FolderId::default();
        folder.0.copy_from_slice(&b[header_at::FOLDER..header_at::FOLDER + 16]);
        Ok(RunHeader {
            file: FileId(get_u64(b, header_at::FILE)),
            folder,
            created_unix_s: get_u64(b, header_at::CREATED),
        })
    }
}
