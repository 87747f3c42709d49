//! How a kind of tree lies on disk: what its blocks are, what an index says of them, and what the value of a version is.
//!
//! Invariants: values of a row tree are packed rows; those of a key tree are [`entry_value`]s. A bound of an index entry
//! stands for all keys that begin with it (`esker_format::run::key_bound`), so what it says of keys is "may"; of row ids
//! it says what is.

mod entries;
mod rows;

pub(crate) use self::entries::{entry_value, split_value, KeyShape};
pub(crate) use self::rows::RowShape;
use crate::tree::key::Key;
use crate::tree::memtable::Change;
use crate::tree::run::{Bytes, MovedRun, Run};
use crate::tree::RunHandle;
use esker_format::{BlockEntry, CommitSeq, Compression, FormatError};
use esker_format::{BlockKind, KeyBounds, LeafEntry, RowId, RunStats, TreeId, TxnId, VersionTag};
use std::cmp::Ordering;
use std::sync::Arc;

/// A block's index entry, and its least and greatest key.
pub(crate) type Finished<K> = (<K as Stored>::Entry, <K as Key>::Own, <K as Key>::Own);

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
    /// A hint: something is looked for in the block.
    fn prefetch_head(block: &Self::Block);
    /// A hint: what was looked for may be the version `at`, and read at once.
    fn prefetch_found(block: &Self::Block, at: u32);
    /// What holds a block's memory.
    fn bytes(block: &Self::Block) -> &Bytes;
    /// The same block in less memory, where what was decompressed of it is kept beside what it was made of.
    fn unpacked(_: &Self::Block) -> Option<Self::Block> {
        None
    }
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
    /// Encodes what is gathered; the index entry, but for its place, and the least and greatest key. Fails for want of memory.
    fn finish(
        builder: &mut Self::Builder,
        press: (Compression, i32),
        context: u64,
        out: &mut Vec<u8>,
    ) -> Result<Finished<Self>, FormatError>;

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

/// Which part of the integers from 0 to `last` lies below `at`, or up to it with `behind`.
fn part_of(at: u64, behind: bool, last: u64) -> f64 {
    (at as f64 + f64::from(u8::from(behind))) / (last as f64 + 1.0)
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
