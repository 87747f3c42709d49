//! Owns the making of key blocks. Invariants: entries come in order of their keys; what [`KeyBlockBuilder::finish`]
//! writes, [`super::KeyBlock`] reads; a builder is empty and reusable after it.

use super::{KeyBlockEntry, MAX_KEY_BYTES, MAX_KEY_PAYLOAD_BYTES};
use crate::block::columns::ColumnBuffer;
use crate::block::head::{Encoder, Press};
use crate::block::ints::IntPlan;
use crate::block::tags::TagBuffer;
use crate::block::{flags, segment_kind, VersionTag};
use crate::block::{BLOCK_HEADER_BYTES, KEY_BLOCK_MAGIC, MAX_BLOCK_ROWS, SEGMENT_ENTRY_BYTES};
use crate::codec::grow;
use crate::compress::{Compression, Compressor};
use crate::error::FormatError;
use crate::ids::RowId;
use crate::layout::{Column, ColumnKind};
use crate::MAX_BLOCK_BYTES;

/// About the bytes of an entry besides key and payload: row id, tag and lengths.
const ENTRY_OVERHEAD: usize = 16;

/// All keys of a block at full length, as its reader has them, in bytes.
const MOST_KEY_BYTES: usize = MAX_BLOCK_BYTES as usize / 2;
/// The same as a writer keeps to it.
const WANTED_KEY_BYTES: usize = 4 << 20;

/// The ends of keys behind what they share.
pub(super) const RESTS: ColumnKind = ColumnKind::Var { len_bytes: 2, max: MAX_KEY_BYTES as u32 };
pub(super) const PAYLOADS: ColumnKind = ColumnKind::Blob { len_bytes: 2 };

/// Gathers entries and encodes them as a block.
pub struct KeyBlockBuilder {
    rows: Vec<u64>,
    tags: TagBuffer,
    /// How many bytes of its key each entry shares with the one before.
    shared: Vec<u64>,
    rests: ColumnBuffer,
    payloads: ColumnBuffer,
    first_key: Vec<u8>,
    last_key: Vec<u8>,
    /// No key was added twice.
    unique: bool,
    /// Bytes of all keys at full length.
    key_bytes: usize,
    raw_bytes: usize,
    compressor: Compressor,
    scratch: Vec<u8>,
}

impl Default for KeyBlockBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl KeyBlockBuilder {
    /// An empty builder.
    #[must_use]
    pub fn new() -> Self {
        let column = |kind| ColumnBuffer::new(Column { kind, offset: 0, null: None });
        KeyBlockBuilder {
            rows: Vec::new(),
            tags: TagBuffer::default(),
            shared: Vec::new(),
            rests: column(RESTS),
            payloads: column(PAYLOADS),
            first_key: Vec::new(),
            last_key: Vec::new(),
            unique: true,
            key_bytes: 0,
            raw_bytes: 0,
            compressor: Compressor::default(),
            scratch: Vec::new(),
        }
    }

    /// Adds an entry. On error nothing was added: the key is less than the last one, key or payload are longer than
    /// [`MAX_KEY_BYTES`] or [`MAX_KEY_PAYLOAD_BYTES`], or the block has no room ([`MAX_BLOCK_ROWS`],
    /// [`MAX_BLOCK_BYTES`]).
    pub fn push(&mut self, key: &[u8], row: RowId, tag: VersionTag, payload: &[u8]) -> Result<(), FormatError> {
        let bounds = [
            ("key", key.len(), MAX_KEY_BYTES),
            ("payload of a key", payload.len(), MAX_KEY_PAYLOAD_BYTES),
            ("entries of a key block", self.rows.len() + 1, MAX_BLOCK_ROWS as usize),
            ("keys of a key block", self.key_bytes + key.len(), MOST_KEY_BYTES),
            ("key block", self.raw_bytes + payload.len(), MAX_BLOCK_BYTES as usize / 2),
        ];
        for (what, found, max) in bounds {
            if found > max {
                return Err(FormatError::TooLong { what, found: found as u64, max: max as u64 });
            }
        }
        if key < self.last_key.as_slice() {
            return Err(FormatError::Invalid { what: "order of keys", found: self.rows.len() as u64 });
        }
        let shared = key.iter().zip(&self.last_key).take_while(|(a, b)| a == b).count();
        if self.is_empty() {
            self.first_key.extend_from_slice(key);
        }
        self.unique &= self.is_empty() || key != self.last_key;
        self.rows.push(row.0);
        self.tags.push(tag);
        self.shared.push(shared as u64);
        self.rests.push_value(Some(&key[shared..]));
        self.payloads.push_value(Some(payload));
        self.last_key.truncate(shared);
        self.last_key.extend_from_slice(&key[shared..]);
        self.key_bytes += key.len();
        self.raw_bytes += ENTRY_OVERHEAD + key.len() - shared + payload.len();
        Ok(())
    }

    /// How many entries are gathered.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows.len()
    }

    /// Is no entry gathered?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Has it room for `key`, as far as all keys at full length should be bounded: in memory they lie so, whatever little they differ by.
    /// An empty one has.
    #[must_use]
    pub fn has_room(&self, key: &[u8]) -> bool {
        self.is_empty() || self.key_bytes + key.len() <= WANTED_KEY_BYTES
    }

    /// About how long the block will be before compression.
    #[must_use]
    pub fn raw_bytes(&self) -> usize {
        self.raw_bytes
    }

    /// The greatest key gathered.
    #[must_use]
    pub fn last_key(&self) -> Option<&[u8]> {
        (!self.is_empty()).then_some(self.last_key.as_slice())
    }

    /// Forgets the entries and keeps the memory.
    pub fn clear(&mut self) {
        self.rows.clear();
        self.tags.clear();
        self.shared.clear();
        self.rests.clear();
        self.payloads.clear();
        self.first_key.clear();
        self.last_key.clear();
        self.unique = true;
        self.key_bytes = 0;
        self.raw_bytes = 0;
    }

    /// Appends the gathered entries to `out` as a block and forgets them. The block's checksum is good only with the same
    /// context (see [`crate::block_context`]). The entry's offset is left to the caller. Without memory for the block the entries
    /// stay, and what was appended is no block.
    ///
    /// # Panics
    /// When no entry is gathered.
    pub fn finish(
        &mut self,
        compression: Compression,
        zstd_level: i32,
        block_context: u64,
        out: &mut Vec<u8>,
    ) -> Result<KeyBlockEntry, FormatError> {
        let rows = self.rows.len();
        assert!(rows > 0, "an empty block");
        let (ids, tags, shared) = (IntPlan::of(&self.rows), self.tags.plan(), IntPlan::of(&self.shared));
        let segments = 4 + self.tags.segments(&tags);
        grow(out, self.raw_bytes + BLOCK_HEADER_BYTES + segments * SEGMENT_ENTRY_BYTES)?;
        let mut block = Encoder::new(out, segments);
        block.ints(segment_kind::IDS, &ids, &self.rows);
        self.tags.encode(&tags, &mut block);
        let mut press =
            Press { compressor: &mut self.compressor, compression, level: zstd_level, scratch: &mut self.scratch };
        block.ints(segment_kind::SHARED, &shared, &self.shared);
        block.column((segment_kind::KEYS, 0), &self.rests, rows, &mut press)?;
        block.column((segment_kind::PAYLOADS, 0), &self.payloads, rows, &mut press)?;
        let mut entry = self.tags.entry(&tags);
        (entry.first_id, entry.last_id) = (RowId(ids.min), RowId(ids.max));
        if ids.is_dense(rows) {
            entry.flags |= flags::IDS_DENSE;
        }
        if self.unique {
            entry.flags |= flags::IDS_UNIQUE;
        }
        let entry = block.finish(KEY_BLOCK_MAGIC, 0, entry, block_context);
        let entry = KeyBlockEntry { block: entry, first_key: self.first_key.clone(), last_key: self.last_key.clone() };
        self.clear();
        Ok(entry)
    }
}
