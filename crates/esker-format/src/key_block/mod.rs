//! Owns the key block: some KiB of entries of an index in order of their keys, each a key, a row id, a version tag and a
//! payload. It is a block like a row block (`block/head.rs`, `block/tags.rs`), with other segments: row ids, version
//! tags, how much of its key an entry shares with the one before, the rest of it, payloads. Invariant: keys never fall;
//! the versions of one key come newest first.

mod builder;
mod heads;
mod reader;
mod strings;

pub use builder::KeyBlockBuilder;
pub use reader::KeyBlock;

use crate::block::BlockEntry;

/// The longest key: what 3072 declared bytes weigh may be many times longer.
pub const MAX_KEY_BYTES: usize = (64 << 10) - 1;
/// The longest payload of an entry.
pub const MAX_KEY_PAYLOAD_BYTES: usize = (64 << 10) - 1;

/// What a block index says about a key block.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KeyBlockEntry {
    /// As of a row block; row ids are the least and the greatest of its entries.
    pub block: BlockEntry,
    /// Its least key.
    pub first_key: Vec<u8>,
    /// Its greatest key.
    pub last_key: Vec<u8>,
}
