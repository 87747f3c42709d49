//! What of `stored.rs` is used of a tree of keys.

use crate::key::{ByBytes, Key};
use crate::tree::Block;
use esker_format::{RowId, VersionTag};
use std::sync::Arc;

pub(crate) trait Stored: Key {
    const NEW_KEYS_COME_LAST: bool;
    type Block;
    type Entry;
    fn row_of(key: Self::Ref<'_>, value: &[u8]) -> RowId;
    fn first(entry: &Self::Entry) -> Self::Ref<'_>;
    fn filter_hash(key: Self::Ref<'_>) -> u64;
    fn lower_bound(block: &Self::Block, key: Self::Ref<'_>) -> u32;
    fn rows(block: &Self::Block) -> u32;
    fn key(block: &Self::Block, at: u32) -> Self::Ref<'_>;
    fn tag(block: &Self::Block, at: u32) -> VersionTag;
    fn row(block: &Self::Block, at: u32) -> RowId;
}

impl Stored for ByBytes {
    const NEW_KEYS_COME_LAST: bool = false;
    type Block = Block;
    type Entry = Arc<[u8]>;
    fn row_of(_: &[u8], value: &[u8]) -> RowId {
        split_value(value).0
    }
    fn first(entry: &Arc<[u8]>) -> &[u8] {
        entry
    }
    fn filter_hash(_: &[u8]) -> u64 {
        0
    }
    fn lower_bound(block: &Block, key: &[u8]) -> u32 {
        block.partition_point(|v| &*v.0 < key) as u32
    }
    fn rows(block: &Block) -> u32 {
        block.len() as u32
    }
    fn key(block: &Block, at: u32) -> &[u8] {
        &block[at as usize].0
    }
    fn tag(block: &Block, at: u32) -> VersionTag {
        block[at as usize].1
    }
    fn row(block: &Block, at: u32) -> RowId {
        split_value(&block[at as usize].2).0
    }
}

pub(crate) fn entry_value(row: RowId, payload: &[u8]) -> Vec<u8> {
    [&row.0.to_le_bytes(), payload].concat()
}

pub(crate) fn split_value(value: &[u8]) -> (RowId, &[u8]) {
    let (row, rest) = value.split_first_chunk().unwrap();
    (RowId(u64::from_le_bytes(*row)), rest)
}
