//! How a kind of tree lies on disk: what its blocks are, what an index says of them, and what the value of a version is.
//!
//! Invariants: values of a row tree are packed rows; those of a key tree are [`entry_value`]s. A bound of an index entry
//! stands for all keys that begin with it (`esker_format::run::key_bound`), so what it says of keys is "may"; of row ids
//! it says what is.

use crate::tree::key::{ByBytes, ByRow, Key};
use crate::tree::memtable::Change;
use crate::tree::run::{Bytes, MovedRun, Run};
use crate::tree::RunHandle;
use esker_format::block::flags;
use esker_format::run::{filter_hash, key_bound, row_filter_hash, BOUND_BYTES};
use esker_format::{BlockEntry, CommitSeq, Compression, FormatError, KeyBlock, KeyBlockBuilder, KeyBlockEntry};
use esker_format::{
    BlockKind, KeyBounds, Layout, LeafEntry, Record, RowBlock, RowBlockBuilder, RowFormat, RowId, RunStats, TreeId,
    TxnId, VersionTag,
};
use std::cmp::Ordering;
use std::sync::Arc;

/// A kind of key whose trees have runs.
pub(crate) trait Stored: Key {
    /// A block in memory.
    type Block: Send + Sync;
    /// What a block index says of one.
    type Entry: LeafEntry + Clone + Send + Sync;
    /// Gathers the versions of a block.
    type Builder: Send;
    /// What blocks are made and read with.
    type Shape: Clone + Send + Sync;

    /// A key that was never there comes behind all that were.
    const NEW_KEYS_COME_LAST: bool;
    /// Does a tombstone say which row it is of?
    const TOMBSTONES_HAVE_VALUES: bool;
    /// 1 if its trees are those of indexes, else 0: what counters of their work count.
    const OF_INDEX: u64;

    /// What a run says of the shape of its blocks.
    fn fingerprint(shape: &Self::Shape) -> u64;
    /// Do runs have filters, as whole keys are asked for that are nowhere?
    fn has_filters(shape: &Self::Shape) -> bool;
    /// What a filter knows of a key.
    fn filter_hash(key: Self::Ref<'_>) -> u64;

    /// Checks and opens a block.
    fn open(bytes: Bytes, shape: &Self::Shape, context: u64) -> Result<Self::Block, FormatError>;
    /// What a block says of itself.
    fn entry(block: &Self::Block) -> &BlockEntry;
    /// How many versions a block holds.
    fn rows(block: &Self::Block) -> u32;
    /// The key of a version.
    fn key(block: &Self::Block, at: u32) -> Self::Ref<'_>;
    /// The key of the last version.
    fn last_key(block: &Self::Block) -> Self::Ref<'_>;
    /// Which version it is.
    fn tag(block: &Self::Block, at: u32) -> VersionTag;
    /// The row that a version is of.
    fn row(block: &Self::Block, at: u32) -> RowId;
    /// Appends the value of a version.
    fn value(block: &Self::Block, at: u32, out: &mut Vec<u8>) -> Result<(), FormatError>;
    /// The first version of `key` or a greater one.
    fn lower_bound(block: &Self::Block, key: Self::Ref<'_>) -> u32;
    /// Behind the versions from `at` on that stand together, are no tombstones, and each the only one of its key in the block:
    /// `at` itself if that is none.
    fn plain_until(block: &Self::Block, at: u32) -> u32;
    /// Memory that a block takes, in bytes.
    fn memory_bytes(block: &Self::Block) -> usize;
    /// Reads all of it that opening did not.
    fn verify(block: &Self::Block) -> Result<(), FormatError>;
    /// The flags that an entry must have for what is in the block, but for those that all kinds have.
    fn flags(block: &Self::Block) -> u32;

    /// Not above the least key of a block.
    fn first(entry: &Self::Entry) -> Self::Ref<'_>;
    /// The greatest key of a block, or what that begins with.
    fn last(entry: &Self::Entry) -> Self::Ref<'_>;
    /// Is [`first`](Self::first) the least key?
    fn is_first_known(entry: &Self::Entry) -> bool;
    /// Is [`last`](Self::last) the greatest key?
    fn is_last_known(entry: &Self::Entry) -> bool;
    /// Memory that the keys of an entry take beside it, in bytes.
    fn key_bytes(entry: &Self::Entry) -> usize;
    /// May the block hold `key` or a greater one?
    fn reaches(entry: &Self::Entry, key: Self::Ref<'_>) -> bool;
    /// That of a block that moves to `offset` of another file, see [`BlockEntry::moved`].
    fn moved(entry: &Self::Entry, offset: u64, seq: Option<CommitSeq>) -> Result<Self::Entry, FormatError>;

    /// A builder of blocks.
    fn builder(shape: &Self::Shape) -> Self::Builder;
    /// Adds a version; see the kinds' builders.
    fn push(b: &mut Self::Builder, key: Self::Ref<'_>, tag: VersionTag, value: &[u8]) -> Result<(), FormatError>;
    /// How many versions are gathered.
    fn gathered(builder: &Self::Builder) -> usize;
    /// About how long the block will be before compression.
    fn raw_bytes(builder: &Self::Builder) -> usize;
    /// Has it room for `key`, whatever else is to be said of it?
    fn has_room(builder: &Self::Builder, key: Self::Ref<'_>) -> bool;
    /// Is `key` the one that was added last?
    fn ends_with(builder: &Self::Builder, key: Self::Ref<'_>) -> bool;
    /// The row ids of what is gathered, rising; of keys nobody asks for them.
    fn row_ids(_: &Self::Builder) -> &[u64] {
        &[]
    }
    /// Encodes what is gathered; the index entry, but for its place, and the least and greatest key.
    fn finish(
        builder: &mut Self::Builder,
        press: (Compression, i32),
        context: u64,
        out: &mut Vec<u8>,
    ) -> (Self::Entry, Self::Own, Self::Own);

    /// The row that a version of `key` with this value is of.
    fn row_of(key: Self::Ref<'_>, value: &[u8]) -> RowId;
    /// The least and the greatest row that versions of a run's handle are of, or others beyond them.
    fn row_span(handle: &RunHandle<Self>) -> (RowId, RowId);
    /// Bounds as log and manifest say them.
    fn bounds(first: Self::Ref<'_>, last: Self::Ref<'_>) -> KeyBounds;
    /// All keys of a run, if its statistics tell.
    fn whole(stats: &RunStats) -> Option<(Self::Own, Self::Own)>;
    /// From what log and manifest say; `None` for bounds of the other kind.
    fn from_bounds(bounds: &KeyBounds) -> Option<(Self::Own, Self::Own)>;
    /// Which part of the keys between `first` and `last` lies below `key`, or up to it with `behind`; about.
    fn fraction(key: Self::Ref<'_>, behind: bool, first: Self::Ref<'_>, last: Self::Ref<'_>) -> f64;
    /// No more than so many different keys lie between these.
    fn most_keys(first: Self::Ref<'_>, last: Self::Ref<'_>) -> u64;
    /// For its transaction.
    fn moved_run(run: Arc<Run<Self>>) -> MovedRun;
    /// Appends what the log says of a version that a transaction wrote.
    fn log(txn: TxnId, tree: TreeId, key: Self::Ref<'_>, change: Change<'_>, redo: &mut Vec<u8>);
}

/// What blocks of rows are made and read with.
#[derive(Clone)]
pub(crate) struct RowShape {
    pub(crate) layout: Arc<Layout>,
    pub(crate) format: RowFormat,
}

/// What is known of the keys of an index.
#[derive(Clone, Copy)]
pub(crate) struct KeyShape {
    /// Of the index's definition.
    pub(crate) fingerprint: u64,
    /// No two rows have one key.
    pub(crate) unique: bool,
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

    fn memory_bytes(block: &Self::Block) -> usize {
        block.bytes().memory_bytes()
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
    ) -> (BlockEntry, RowId, RowId) {
        let entry = builder.finish(compression, level, context, out);
        (entry, entry.first_id, entry.last_id)
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

/// Which part of the integers from 0 to `last` lies below `at`, or up to it with `behind`.
fn part_of(at: u64, behind: bool, last: u64) -> f64 {
    (at as f64 + f64::from(u8::from(behind))) / (last as f64 + 1.0)
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

    fn memory_bytes(block: &Self::Block) -> usize {
        block.bytes().memory_bytes()
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
    ) -> (KeyBlockEntry, Arc<[u8]>, Arc<[u8]>) {
        let mut entry = builder.finish(compression, level, context, out);
        let (first, last) = (entry.first_key.as_slice().into(), entry.last_key.as_slice().into());
        // As a reader of the index has it.
        entry.first_key.truncate(BOUND_BYTES);
        entry.last_key.truncate(BOUND_BYTES);
        (entry, first, last)
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

/// Fails unless a block says of itself what its index entry says of it; ordinals and order are not looked at.
pub(crate) fn agrees<K: Stored>(entry: &K::Entry, block: &K::Block) -> Result<(), FormatError> {
    entry.block().agrees_with_head(K::entry(block))?;
    let (least, greatest) = (K::key(block, 0), K::last_key(block));
    let begins = match K::cmp(K::first(entry), least) {
        Ordering::Equal => true,
        order => order.is_lt() && !K::is_first_known(entry),
    };
    let ends = match K::is_last_known(entry) {
        true => K::cmp(K::last(entry), greatest).is_eq(),
        false => K::reaches(entry, greatest) && K::cmp(K::last(entry), greatest).is_le(),
    };
    match begins && ends {
        true => Ok(()),
        false => Err(FormatError::Invalid { what: "keys of a block against its index entry", found: 0 }),
    }
}

/// May the last key of one block be the first of the next?
pub(crate) fn may_meet<K: Stored>(entry: &K::Entry, next: &K::Entry) -> bool {
    K::cmp(K::last(entry), K::first(next)).is_eq()
}

/// What blocks a kind's runs have.
pub(crate) const fn blocks_of<K: Stored>() -> BlockKind {
    <K::Entry as LeafEntry>::BLOCKS
}
