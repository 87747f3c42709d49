//! Owns the block index of a part, in two levels: leaf pages of bounded size, and a top level with an entry for each, so
//! that a reader needs to hold the top level only. Invariants: a decoded index is in order of rows or keys, and of
//! offsets; blocks do not overlap; what the top says of a leaf is what the leaf holds. Key bounds are cut to 64 bytes: a
//! bound of that length stands for all keys that begin with it.

use super::filter::{filter_bytes, row_filter_bytes};
use super::{block_context, Section};
use crate::block::{flags, BlockEntry};
use crate::codec::{self, get_u32, get_u64, set_u32, set_u64};
use crate::error::FormatError;
use crate::ids::{CommitSeq, FileId, RowId};
use crate::key_block::KeyBlockEntry;
use crate::run::BlockKind;
use crate::MAX_BLOCK_BYTES;
use std::ops::Range;

/// The longest leaf page.
pub const LEAF_BYTES: usize = 4096;
/// Length of a leaf page before its entries.
pub const LEAF_HEADER_BYTES: usize = 24;
/// Length of an entry of a leaf page before its keys.
pub const INDEX_ENTRY_BYTES: usize = 88;
/// Length of an entry of the top level before its keys.
pub const TOP_ENTRY_BYTES: usize = 40;
/// The longest key bound.
pub const BOUND_BYTES: usize = 64;
/// "ESKRIX" and two zero bytes.
pub const INDEX_MAGIC: u64 = u64::from_le_bytes(*b"ESKRIX\0\0");

/// Offsets in a leaf page (checksum at 0, of all that follows).
pub mod leaf_at {
    #![allow(missing_docs)]
    pub const CHECKSUM: usize = 0;
    pub const MAGIC: usize = 8;
    pub const BLOCKS: usize = 16;
    pub const ZERO: usize = 20;
    pub const ENTRIES: usize = 24;
}

/// Offsets in an entry of a leaf page.
pub mod entry_at {
    #![allow(missing_docs)]
    pub const OFFSET: usize = 0;
    pub const STORED_BYTES: usize = 8;
    pub const ROWS: usize = 12;
    pub const FIRST_ID: usize = 16;
    pub const LAST_ID: usize = 24;
    pub const MIN_SEQ: usize = 32;
    pub const MAX_SEQ: usize = 40;
    pub const MIN_ORDINAL: usize = 48;
    pub const MAX_ORDINAL: usize = 56;
    pub const TOMBSTONES: usize = 64;
    pub const SUPERSEDES: usize = 68;
    pub const RAW_BYTES: usize = 72;
    pub const FLAGS: usize = 76;
    pub const FIRST_KEY_BYTES: usize = 80;
    pub const LAST_KEY_BYTES: usize = 81;
    pub const ZERO: usize = 82;
    pub const KEYS: usize = 88;
}

/// Offsets in an entry of the top level.
pub mod top_at {
    #![allow(missing_docs)]
    pub const OFFSET: usize = 0;
    pub const BYTES: usize = 8;
    pub const BLOCKS: usize = 12;
    pub const FIRST_ID: usize = 16;
    pub const LAST_ID: usize = 24;
    pub const FIRST_KEY_BYTES: usize = 32;
    pub const LAST_KEY_BYTES: usize = 33;
    pub const ZERO: usize = 34;
    pub const KEYS: usize = 40;
}

/// The bound that stands for a key: its first [`BOUND_BYTES`] bytes. A block may hold `key` when the bound of `key` is
/// not below its first and not above its last bound.
#[must_use]
pub fn key_bound(key: &[u8]) -> &[u8] {
    &key[..key.len().min(BOUND_BYTES)]
}

/// An entry of a block index: of row blocks or of key blocks.
pub trait LeafEntry: Sized {
    /// What blocks it is about.
    const BLOCKS: BlockKind;
    /// What it says of any block.
    fn block(&self) -> &BlockEntry;
    /// Its least and its greatest key; empty for row blocks.
    fn keys(&self) -> (&[u8], &[u8]);
    /// Length of the block's filter, where there are filters.
    fn filter_bytes(&self) -> usize;
    /// From an index, where keys are bounds.
    fn from_index(block: BlockEntry, first_key: &[u8], last_key: &[u8]) -> Self;
}

impl LeafEntry for BlockEntry {
    const BLOCKS: BlockKind = BlockKind::Rows;
    fn block(&self) -> &BlockEntry {
        self
    }
    fn keys(&self) -> (&[u8], &[u8]) {
        (&[], &[])
    }
    fn filter_bytes(&self) -> usize {
        row_filter_bytes(self)
    }
    fn from_index(block: BlockEntry, _: &[u8], _: &[u8]) -> Self {
        block
    }
}

impl LeafEntry for KeyBlockEntry {
    const BLOCKS: BlockKind = BlockKind::Keys;
    fn block(&self) -> &BlockEntry {
        &self.block
    }
    fn keys(&self) -> (&[u8], &[u8]) {
        (&self.first_key, &self.last_key)
    }
    fn filter_bytes(&self) -> usize {
        filter_bytes(self.block.rows)
    }
    fn from_index(block: BlockEntry, first_key: &[u8], last_key: &[u8]) -> Self {
        KeyBlockEntry { block, first_key: first_key.to_vec(), last_key: last_key.to_vec() }
    }
}

/// What the top level says of a leaf page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leaf {
    /// Where it begins in the file.
    pub offset: u64,
    /// How long it is.
    pub bytes: u32,
    /// How many blocks it is about.
    pub blocks: u32,
    /// Of row blocks, the least row id; of key blocks, that of the first block.
    pub first_id: RowId,
    /// Of row blocks, the greatest row id; of key blocks, that of the last block.
    pub last_id: RowId,
    /// Bound of the least key.
    pub first_key: Vec<u8>,
    /// Bound of the greatest key.
    pub last_key: Vec<u8>,
}

/// Appends two key bounds, whose lengths go to `lengths` of `entry`, which begins at `at` of `out`.
fn put_bounds(out: &mut Vec<u8>, lengths: usize, (first, last): (&[u8], &[u8])) {
    let (first, last) = (key_bound(first), key_bound(last));
    (out[lengths], out[lengths + 1]) = (first.len() as u8, last.len() as u8);
    out.extend_from_slice(first);
    out.extend_from_slice(last);
}

/// An entry as it is stored: the part of fixed length, and the two key bounds.
type Stored<'a> = (&'a [u8], &'a [u8], &'a [u8]);

/// Splits an entry of `fixed` bytes and its two key bounds, whose lengths lie at `lengths`, from the front of `rest`.
fn take_entry<'a>(
    rest: &mut &'a [u8],
    fixed: usize,
    lengths: usize,
    blocks: BlockKind,
) -> Result<Stored<'a>, FormatError> {
    codec::need("block index", rest, fixed)?;
    let (first, last) = (usize::from(rest[lengths]), usize::from(rest[lengths + 1]));
    let most = if blocks == BlockKind::Keys { BOUND_BYTES } else { 0 };
    if first.max(last) > most {
        let (found, max) = (first.max(last) as u64, most as u64);
        return Err(FormatError::TooLong { what: "key bound", found, max });
    }
    codec::need("block index", rest, fixed + first + last)?;
    let (entry, behind) = rest.split_at(fixed);
    let (first, behind) = behind.split_at(first);
    let (last, behind) = behind.split_at(last);
    *rest = behind;
    Ok((entry, first, last))
}

/// Appends the leaf pages, then the top level, which begins at the place returned. `base`: where `out` begins in the file.
pub(super) fn encode_index<E: LeafEntry>(file: FileId, entries: &[E], base: u64, out: &mut Vec<u8>) -> usize {
    let mut top = Vec::new();
    let mut rest = entries;
    while let [first, ..] = rest {
        let (start, offset) = (out.len(), base + out.len() as u64);
        out.resize(start + LEAF_HEADER_BYTES, 0);
        let mut blocks = 0;
        for e in rest {
            let (a, b) = e.keys();
            let bytes = INDEX_ENTRY_BYTES + key_bound(a).len() + key_bound(b).len();
            if out.len() - start + bytes > LEAF_BYTES {
                break;
            }
            put_entry(e, out);
            blocks += 1;
        }
        let last = &rest[blocks - 1];
        rest = &rest[blocks..];
        let leaf = &mut out[start..];
        set_u64(leaf, leaf_at::MAGIC, INDEX_MAGIC);
        set_u32(leaf, leaf_at::BLOCKS, blocks as u32);
        codec::seal(leaf, block_context(file, offset));
        let bytes = leaf.len() as u32;
        let at = top.len();
        top.resize(at + TOP_ENTRY_BYTES, 0);
        let entry = &mut top[at..];
        set_u64(entry, top_at::OFFSET, offset);
        set_u32(entry, top_at::BYTES, bytes);
        set_u32(entry, top_at::BLOCKS, blocks as u32);
        set_u64(entry, top_at::FIRST_ID, first.block().first_id.0);
        set_u64(entry, top_at::LAST_ID, last.block().last_id.0);
        put_bounds(&mut top, at + top_at::FIRST_KEY_BYTES, (first.keys().0, last.keys().1));
    }
    let at = out.len();
    out.extend_from_slice(&top);
    at
}

fn put_entry(entry: &impl LeafEntry, out: &mut Vec<u8>) {
    let (at, e) = (out.len(), entry.block());
    out.resize(at + INDEX_ENTRY_BYTES, 0);
    let b = &mut out[at..];
    set_u64(b, entry_at::OFFSET, e.offset);
    set_u32(b, entry_at::STORED_BYTES, e.stored_bytes);
    set_u32(b, entry_at::ROWS, e.rows);
    set_u64(b, entry_at::FIRST_ID, e.first_id.0);
    set_u64(b, entry_at::LAST_ID, e.last_id.0);
    set_u64(b, entry_at::MIN_SEQ, e.min_seq.0);
    set_u64(b, entry_at::MAX_SEQ, e.max_seq.0);
    set_u64(b, entry_at::MIN_ORDINAL, e.min_ordinal);
    set_u64(b, entry_at::MAX_ORDINAL, e.max_ordinal);
    set_u32(b, entry_at::TOMBSTONES, e.tombstones);
    set_u32(b, entry_at::SUPERSEDES, e.supersedes);
    set_u32(b, entry_at::RAW_BYTES, e.raw_bytes);
    set_u32(b, entry_at::FLAGS, e.flags);
    put_bounds(out, at + entry_at::FIRST_KEY_BYTES, entry.keys());
}

/// Reads the top level of an index, all of `bytes`, which are checked; its leaf pages fill the section `leaves`.
pub(super) fn decode_top(blocks: BlockKind, leaves: &Section, bytes: &[u8]) -> Result<Vec<Leaf>, FormatError> {
    let mut rest = bytes;
    let mut all: Vec<Leaf> = Vec::new();
    let mut at = leaves.offset;
    while !rest.is_empty() {
        let (entry, first_key, last_key) = take_entry(&mut rest, TOP_ENTRY_BYTES, top_at::FIRST_KEY_BYTES, blocks)?;
        let leaf = Leaf {
            offset: get_u64(entry, top_at::OFFSET),
            bytes: get_u32(entry, top_at::BYTES),
            blocks: get_u32(entry, top_at::BLOCKS),
            first_id: RowId(get_u64(entry, top_at::FIRST_ID)),
            last_id: RowId(get_u64(entry, top_at::LAST_ID)),
            first_key: first_key.to_vec(),
            last_key: last_key.to_vec(),
        };
        let long = leaf.bytes as usize > LEAF_BYTES;
        if leaf.offset != at || long || (leaf.bytes as usize) < LEAF_HEADER_BYTES + INDEX_ENTRY_BYTES {
            return Err(FormatError::Invalid { what: "place of an index page", found: leaf.offset });
        }
        at = at.saturating_add(leaf.bytes.into());
        let before = all.last().map(|l| (l.last_id, &l.last_key[..]));
        check_order(blocks, before, (leaf.first_id, first_key), (leaf.last_id, last_key))?;
        all.push(leaf);
    }
    if Some(at) != leaves.offset.checked_add(leaves.bytes) {
        return Err(FormatError::Invalid { what: "end of the index pages", found: at });
    }
    Ok(all)
}

/// As [`super::Part::decode_leaf`]; the blocks lie `within`.
pub(super) fn decode_leaf<E: LeafEntry>(
    file: FileId,
    leaf: &Leaf,
    within: Range<u64>,
    bytes: &[u8],
    out: &mut Vec<E>,
) -> Result<(), FormatError> {
    let invalid = |what, found: u64| Err(FormatError::Invalid { what, found });
    codec::need("block index", bytes, LEAF_HEADER_BYTES)?;
    let magic = get_u64(bytes, leaf_at::MAGIC);
    if magic != INDEX_MAGIC {
        return invalid("block index magic", magic);
    }
    codec::check_seal(bytes, block_context(file, leaf.offset))?;
    let blocks = get_u32(bytes, leaf_at::BLOCKS);
    if bytes.len() != leaf.bytes as usize || blocks != leaf.blocks || blocks == 0 {
        return invalid("block count", blocks.into());
    }
    let mut rest = &bytes[leaf_at::ENTRIES..];
    for i in 0..blocks {
        let (entry, first_key, last_key) =
            take_entry(&mut rest, INDEX_ENTRY_BYTES, entry_at::FIRST_KEY_BYTES, E::BLOCKS)?;
        let e = read_block(entry);
        let before = out.last().map(|e| (e.block(), e.keys().1));
        let from = before.map_or(within.start, |(b, _)| b.offset + u64::from(b.stored_bytes));
        let end = e.offset.checked_add(e.stored_bytes.into());
        if e.offset < from || end.is_none_or(|end| end > within.end) {
            return invalid("block offset", e.offset);
        }
        codec::check_bits("flags of a block", e.flags.into(), flags::KNOWN.into())?;
        if e.rows == 0 || e.tombstones > e.rows || e.supersedes > e.rows {
            return invalid("block rows", e.rows.into());
        }
        if e.stored_bytes > MAX_BLOCK_BYTES || e.raw_bytes > MAX_BLOCK_BYTES {
            let found = u64::from(e.stored_bytes.max(e.raw_bytes));
            return Err(FormatError::TooLong { what: "block", found, max: u64::from(MAX_BLOCK_BYTES) });
        }
        if e.last_id < e.first_id || e.max_seq < e.min_seq {
            return invalid("block row ids", e.first_id.0);
        }
        let before = before.map(|(b, key)| (b.last_id, key));
        check_order(E::BLOCKS, before, (e.first_id, first_key), (e.last_id, last_key))?;
        let first = i > 0 || (e.first_id == leaf.first_id && first_key == leaf.first_key);
        let last = i + 1 < blocks || (e.last_id == leaf.last_id && last_key == leaf.last_key);
        if !first || !last {
            return invalid("bounds of an index page", e.first_id.0);
        }
        out.push(E::from_index(e, first_key, last_key));
    }
    match rest {
        [] => Ok(()),
        rest => invalid("end of an index page", rest.len() as u64),
    }
}

/// Rows or keys do not fall from one entry to the next, nor from an entry's least to its greatest.
fn check_order(
    blocks: BlockKind,
    before: Option<(RowId, &[u8])>,
    first: (RowId, &[u8]),
    last: (RowId, &[u8]),
) -> Result<(), FormatError> {
    let falls = match blocks {
        BlockKind::Rows => before.is_some_and(|b| first.0 < b.0) || last.0 < first.0,
        BlockKind::Keys => before.is_some_and(|b| first.1 < b.1) || last.1 < first.1,
    };
    match falls {
        true => Err(FormatError::Invalid { what: "order of a block index", found: first.0 .0 }),
        false => Ok(()),
    }
}

fn read_block(entry: &[u8]) -> BlockEntry {
    BlockEntry {
        offset: get_u64(entry, entry_at::OFFSET),
        stored_bytes: get_u32(entry, entry_at::STORED_BYTES),
        rows: get_u32(entry, entry_at::ROWS),
        first_id: RowId(get_u64(entry, entry_at::FIRST_ID)),
        last_id: RowId(get_u64(entry, entry_at::LAST_ID)),
        min_seq: CommitSeq(get_u64(entry, entry_at::MIN_SEQ)),
        max_seq: CommitSeq(get_u64(entry, entry_at::MAX_SEQ)),
        min_ordinal: get_u64(entry, entry_at::MIN_ORDINAL),
        max_ordinal: get_u64(entry, entry_at::MAX_ORDINAL),
        tombstones: get_u32(entry, entry_at::TOMBSTONES),
        supersedes: get_u32(entry, entry_at::SUPERSEDES),
        raw_bytes: get_u32(entry, entry_at::RAW_BYTES),
        flags: get_u32(entry, entry_at::FLAGS),
    }
}
