//! How trees of entries lie on disk: blocks of keys, and in each value the row beside what the entry holds.

use super::{part_of, Stored};
use crate::tree::key::ByBytes;
use crate::tree::memtable::Change;
use crate::tree::run::{Bytes, MovedRun, Run};
use crate::tree::RunHandle;
use esker_format::block::flags;
use esker_format::run::{filter_hash, key_bound, BOUND_BYTES};
use esker_format::{BlockEntry, CommitSeq, Compression, FormatError, KeyBlock, KeyBlockBuilder, KeyBlockEntry};
use esker_format::{KeyBounds, Record, RowId, RunStats, TreeId, TxnId, VersionTag};
use std::cmp::Ordering;
use std::sync::Arc;

/// What is known of the keys of an index.
#[derive(Clone, Copy)]
pub(crate) struct KeyShape {
    /// Of the index's definition.
    pub(crate) fingerprint: u64,
    /// No two rows have one key.
    pub(crate) unique: bool,
}

/// Bytes of a row id at the front of an entry's value.
const ROW_BYTES: usize = 8;

/// The value of an entry of a key tree: the row, and what the entry holds beside its key. A tombstone has the row alone.
pub(crate) fn entry_value(row: RowId, payload: &[u8]) -> Vec<u8> {
    let mut value = Vec::with_capacity(ROW_BYTES + payload.len());
    value.extend_from_slice(&row.0.to_le_bytes());
    value.extend_from_slice(payload);
    value
}

/// The row and the payload of an entry's value.
pub(crate) fn split_value(value: &[u8]) -> (RowId, &[u8]) {
    match value.split_first_chunk() {
        Some((row, payload)) => (RowId(u64::from_le_bytes(*row)), payload),
        None => (RowId::ZERO, &[]),
    }
}

impl Stored for ByBytes {
    type Block = KeyBlock<Bytes>;
    type Entry = KeyBlockEntry;
    type Builder = KeyBlockBuilder;
    type Shape = KeyShape;
    const NEW_KEYS_COME_LAST: bool = false;
    const TOMBSTONES_HAVE_VALUES: bool = true;
    const OF_INDEX: u64 = 1;

    fn fingerprint(shape: &KeyShape) -> u64 {
        shape.fingerprint
    }

    fn has_filters(shape: &KeyShape) -> bool {
        shape.unique
    }

    fn filter_hash(key: &[u8]) -> u64 {
        filter_hash(key)
    }

    fn open(bytes: Bytes, _: &KeyShape, context: u64) -> Result<Self::Block, FormatError> {
        KeyBlock::open(bytes, context)
    }

    fn entry(block: &Self::Block) -> &BlockEntry {
        block.entry()
    }

    fn rows(block: &Self::Block) -> u32 {
        block.rows()
    }

    fn key(block: &Self::Block, at: u32) -> &[u8] {
        block.key(at)
    }

    fn last_key(block: &Self::Block) -> &[u8] {
        block.key(block.rows() - 1)
    }

    fn tag(block: &Self::Block, at: u32) -> VersionTag {
        block.tag(at)
    }

    fn row(block: &Self::Block, at: u32) -> RowId {
        block.row(at)
    }

    fn value(block: &Self::Block, at: u32, out: &mut Vec<u8>) -> Result<(), FormatError> {
        out.extend_from_slice(&block.row(at).0.to_le_bytes());
        out.extend_from_slice(block.payload(at));
        Ok(())
    }

    fn lower_bound(block: &Self::Block, key: &[u8]) -> u32 {
        block.lower_bound(key)
    }

    #[inline]
    fn plain_until(block: &Self::Block, at: u32) -> u32 {
        block.plain_until(at)
    }

    #[inline]
    fn prefetch_head(block: &Self::Block) {
        block.prefetch_head();
    }

    /// Looking for a key has asked for the entries beside it.
    fn prefetch_found(_: &Self::Block, _: u32) {}

    fn bytes(block: &Self::Block) -> &Bytes {
        block.bytes()
    }

    fn verify(_: &Self::Block) -> Result<(), FormatError> {
        Ok(())
    }

    fn flags(block: &Self::Block) -> u32 {
        let ids = || (0..block.rows()).map(|i| block.row(i).0);
        let dense = ids().zip(ids().skip(1)).all(|(a, b)| a.checked_add(1) == Some(b));
        if dense {
            flags::IDS_DENSE
        } else {
            0
        }
    }

    fn first(entry: &KeyBlockEntry) -> &[u8] {
        &entry.first_key
    }

    fn last(entry: &KeyBlockEntry) -> &[u8] {
        &entry.last_key
    }

    fn is_first_known(entry: &KeyBlockEntry) -> bool {
        entry.first_key.len() < BOUND_BYTES
    }

    fn is_last_known(entry: &KeyBlockEntry) -> bool {
        entry.last_key.len() < BOUND_BYTES
    }

    fn key_bytes(entry: &KeyBlockEntry) -> usize {
        entry.first_key.capacity() + entry.last_key.capacity()
    }

    fn reaches(entry: &KeyBlockEntry, key: &[u8]) -> bool {
        key_bound(key) <= entry.last_key.as_slice()
    }

    fn moved(entry: &KeyBlockEntry, offset: u64, seq: Option<CommitSeq>) -> Result<KeyBlockEntry, FormatError> {
        Ok(KeyBlockEntry { block: entry.block.moved(offset, seq)?, ..entry.clone() })
    }

    fn builder(_: &KeyShape) -> KeyBlockBuilder {
        KeyBlockBuilder::new()
    }

    fn push(b: &mut KeyBlockBuilder, key: &[u8], tag: VersionTag, value: &[u8]) -> Result<(), FormatError> {
        let (row, payload) = split_value(value);
        b.push(key, row, tag, payload)
    }

    fn gathered(builder: &KeyBlockBuilder) -> usize {
        builder.rows()
    }

    fn raw_bytes(builder: &KeyBlockBuilder) -> usize {
        builder.raw_bytes()
    }

    fn has_room(builder: &KeyBlockBuilder, key: &[u8]) -> bool {
        builder.has_room(key)
    }

    fn ends_with(builder: &KeyBlockBuilder, key: &[u8]) -> bool {
        builder.last_key() == Some(key)
    }

    fn finish(
        builder: &mut KeyBlockBuilder,
        (compression, level): (Compression, i32),
        context: u64,
        out: &mut Vec<u8>,
    ) -> Result<(KeyBlockEntry, Arc<[u8]>, Arc<[u8]>), FormatError> {
        let mut entry = builder.finish(compression, level, context, out)?;
        let (first, last) = (entry.first_key.as_slice().into(), entry.last_key.as_slice().into());
        // As a reader of the index has it.
        entry.first_key.truncate(BOUND_BYTES);
        entry.last_key.truncate(BOUND_BYTES);
        Ok((entry, first, last))
    }

    fn row_of(_: &[u8], value: &[u8]) -> RowId {
        split_value(value).0
    }

    fn row_span(handle: &RunHandle<ByBytes>) -> (RowId, RowId) {
        (handle.run.stats.min_id, handle.run.stats.max_id)
    }

    fn bounds(first: &[u8], last: &[u8]) -> KeyBounds {
        KeyBounds::Keys(first.to_vec(), last.to_vec())
    }

    fn whole(_: &RunStats) -> Option<(Arc<[u8]>, Arc<[u8]>)> {
        None
    }

    fn from_bounds(bounds: &KeyBounds) -> Option<(Arc<[u8]>, Arc<[u8]>)> {
        match bounds {
            KeyBounds::Keys(first, last) => Some((first.as_slice().into(), last.as_slice().into())),
            KeyBounds::Rows(..) => None,
        }
    }

    fn fraction(key: &[u8], behind: bool, first: &[u8], last: &[u8]) -> f64 {
        let shared = first.iter().zip(last).take_while(|(a, b)| a == b).count();
        let number = |key: &[u8]| {
            let mut eight = [0; 8];
            let rest = key.get(shared..).unwrap_or_default();
            let n = rest.len().min(8);
            eight[..n].copy_from_slice(&rest[..n]);
            u64::from_be_bytes(eight)
        };
        let (from, to) = (number(first), number(last));
        match (key.cmp(first), key.cmp(last)) {
            (Ordering::Less, _) => 0.0,
            (_, Ordering::Greater) => 1.0,
            _ => part_of(number(key).saturating_sub(from), behind, to.saturating_sub(from)),
        }
    }

    fn most_keys(_: &[u8], _: &[u8]) -> u64 {
        u64::MAX
    }

    fn moved_run(run: Arc<Run<ByBytes>>) -> MovedRun {
        MovedRun::Keys(run)
    }

    fn log(txn: TxnId, tree: TreeId, key: &[u8], change: Change<'_>, redo: &mut Vec<u8>) {
        let (ordinal, (row, payload)) = (change.ordinal, split_value(change.value));
        match change.tombstone {
            true => Record::KeyDelete { txn, ordinal, tree, row, key }.encode(redo),
            false => Record::KeyPut { txn, ordinal, tree, row, key, payload }.encode(redo),
        }
    }
}
