//! How trees of rows lie on disk: blocks of rows by their ids, packed rows as values.

use super::{part_of, Stored};
use crate::tree::key::ByRow;
use crate::tree::memtable::Change;
use crate::tree::run::{Bytes, MovedRun, Run};
use crate::tree::RunHandle;
use esker_format::block::flags;
use esker_format::run::row_filter_hash;
use esker_format::{BlockEntry, CommitSeq, Compression, FormatError};
use esker_format::{
    KeyBounds, Layout, Record, RowBlock, RowBlockBuilder, RowFormat, RowId, RunStats, TreeId, TxnId, VersionTag,
};
use esker_memory::{Account, Region};
use std::sync::Arc;

/// What blocks of rows are made and read with.
#[derive(Clone)]
pub(crate) struct RowShape {
    pub(crate) layout: Arc<Layout>,
    pub(crate) format: RowFormat,
}

impl Stored for ByRow {
    type Block = RowBlock<Bytes>;
    type Entry = BlockEntry;
    type Builder = RowBlockBuilder;
    type Shape = RowShape;
    const NEW_KEYS_COME_LAST: bool = true;
    const TOMBSTONES_HAVE_VALUES: bool = false;
    const OF_INDEX: u64 = 0;

    fn fingerprint(shape: &RowShape) -> u64 {
        shape.layout.fingerprint()
    }

    fn has_filters(_: &RowShape) -> bool {
        true
    }

    fn filter_hash(key: RowId) -> u64 {
        row_filter_hash(key)
    }

    fn open(bytes: Bytes, shape: &RowShape, context: u64) -> Result<Self::Block, FormatError> {
        RowBlock::open(bytes, &shape.layout, shape.format, context)
    }

    fn entry(block: &Self::Block) -> &BlockEntry {
        block.entry()
    }

    #[inline]
    fn rows(block: &Self::Block) -> u32 {
        block.rows()
    }

    #[inline]
    fn key(block: &Self::Block, at: u32) -> RowId {
        block.row_id(at)
    }

    #[inline]
    fn last_key(block: &Self::Block) -> RowId {
        block.last_id()
    }

    #[inline]
    fn tag(block: &Self::Block, at: u32) -> VersionTag {
        block.tag(at)
    }

    #[inline]
    fn row(block: &Self::Block, at: u32) -> RowId {
        block.row_id(at)
    }

    fn value(block: &Self::Block, at: u32, out: &mut Vec<u8>) -> Result<(), FormatError> {
        block.packed(at, out)
    }

    #[inline]
    fn lower_bound(block: &Self::Block, key: RowId) -> u32 {
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

    #[inline]
    fn prefetch_found(block: &Self::Block, at: u32) {
        block.prefetch_found(at);
    }

    fn bytes(block: &Self::Block) -> &Bytes {
        block.bytes()
    }

    fn unpacked(block: &Self::Block) -> Option<Self::Block> {
        let mut made = Vec::new();
        if !block.unpack(&mut made) {
            return None;
        }
        let mut region = Region::new(Account::BlockCache, made.len()).ok()?;
        region[..made.len()].copy_from_slice(&made);
        let unpacked = block.open_unpacked(Bytes::new(region, made.len())).ok()?;
        (unpacked.bytes().memory_bytes() < block.bytes().memory_bytes()).then_some(unpacked)
    }

    fn verify(block: &Self::Block) -> Result<(), FormatError> {
        block.verify()
    }

    fn flags(block: &Self::Block) -> u32 {
        if block.ids_dense() {
            flags::IDS_DENSE
        } else {
            0
        }
    }

    #[inline]
    fn first(entry: &BlockEntry) -> RowId {
        entry.first_id
    }

    #[inline]
    fn last(entry: &BlockEntry) -> RowId {
        entry.last_id
    }

    #[inline]
    fn is_first_known(_: &BlockEntry) -> bool {
        true
    }

    #[inline]
    fn is_last_known(_: &BlockEntry) -> bool {
        true
    }

    fn key_bytes(_: &BlockEntry) -> usize {
        0
    }

    #[inline]
    fn reaches(entry: &BlockEntry, key: RowId) -> bool {
        key <= entry.last_id
    }

    fn moved(entry: &BlockEntry, offset: u64, seq: Option<CommitSeq>) -> Result<BlockEntry, FormatError> {
        entry.moved(offset, seq)
    }

    fn builder(shape: &RowShape) -> RowBlockBuilder {
        RowBlockBuilder::new(shape.layout.clone(), shape.format)
    }

    fn push(b: &mut RowBlockBuilder, key: RowId, tag: VersionTag, value: &[u8]) -> Result<(), FormatError> {
        b.push_packed(key, tag, value)
    }

    #[inline]
    fn gathered(builder: &RowBlockBuilder) -> usize {
        builder.rows()
    }

    #[inline]
    fn raw_bytes(builder: &RowBlockBuilder) -> usize {
        builder.raw_bytes()
    }

    #[inline]
    fn has_room(_: &RowBlockBuilder, _: RowId) -> bool {
        true
    }

    fn ends_with(builder: &RowBlockBuilder, key: RowId) -> bool {
        builder.last_id() == Some(key)
    }

    fn row_ids(builder: &RowBlockBuilder) -> &[u64] {
        builder.ids()
    }

    fn finish(
        builder: &mut RowBlockBuilder,
        (compression, level): (Compression, i32),
        context: u64,
        out: &mut Vec<u8>,
    ) -> Result<(BlockEntry, RowId, RowId), FormatError> {
        let entry = builder.finish(compression, level, context, out)?;
        Ok((entry, entry.first_id, entry.last_id))
    }

    #[inline]
    fn row_of(key: RowId, _: &[u8]) -> RowId {
        key
    }

    #[inline]
    fn row_span(handle: &RunHandle<ByRow>) -> (RowId, RowId) {
        (handle.first, handle.last)
    }

    fn bounds(first: RowId, last: RowId) -> KeyBounds {
        KeyBounds::Rows(first, last)
    }

    fn whole(stats: &RunStats) -> Option<(RowId, RowId)> {
        Some((stats.min_id, stats.max_id))
    }

    fn from_bounds(bounds: &KeyBounds) -> Option<(RowId, RowId)> {
        match bounds {
            KeyBounds::Rows(first, last) => Some((*first, *last)),
            KeyBounds::Keys(..) => None,
        }
    }

    fn fraction(key: RowId, behind: bool, first: RowId, last: RowId) -> f64 {
        part_of(key.0 - first.0, behind, last.0 - first.0)
    }

    fn most_keys(first: RowId, last: RowId) -> u64 {
        (last.0 - first.0).saturating_add(1)
    }

    fn moved_run(run: Arc<Run>) -> MovedRun {
        MovedRun::Rows(run)
    }

    fn log(txn: TxnId, tree: TreeId, row: RowId, change: Change<'_>, redo: &mut Vec<u8>) {
        let Change { ordinal, value: bytes, tombstone, supersedes } = change;
        match tombstone {
            true => Record::RowDelete { txn, ordinal, tree, row }.encode(redo),
            false => Record::RowPut { txn, ordinal, tree, row, supersedes, layout: 0, bytes }.encode(redo),
        }
    }
}
