//! About how many entries an index has in a range of keys, for whoever plans how to read.
//!
//! Invariant: zero is said only of a range that was looked at and is empty.
//!
//! Where a range has versions of which nobody knows what the view sees of them, entries are read and counted, up to a number: the
//! optimizer asks for nearly each range before it is read, and must know one row from a few, and none from some; who makes
//! statistics of an index asks seldom.

use super::KeyRange;
use crate::catalog::table::Table;
use crate::lock::Parker;
use crate::session::Session;
use crate::tree::key::ByBytes;
use crate::tree::memtable::Memtable;
use crate::tree::merge_read::{may_show, Extent, MergeRead, Span};
use crate::tree::run::index::Index;
use crate::tree::stored::Stored;
use crate::tree::{RunHandle, RunSeen, TreeState};
use crate::version::View;
use crate::work::Kind;
use crate::Result;
use esker_format::{LeafEntry, TxnId};
use std::sync::Arc;

/// Entries of a key tree.
type Block = <ByBytes as Stored>::Block;

/// So few entries are counted of a range that is about to be read,
const FEW: u64 = 16;
/// and of what statistics are made of.
pub(super) const FEW_OF_GROUP: u64 = 64;
/// Of more versions none are counted.
const MANY_VERSIONS: u64 = 256;
/// Blocks whose entries are added up; of more the average counts.
const MANY_BLOCKS: usize = 1000;

impl Session {
    /// About how many entries the index at this place of the table's has in a range: exact where they are few. Opens no view
    /// of the transaction's.
    pub fn estimate_rows(&mut self, table: &Arc<Table>, index: usize, range: &KeyRange) -> Result<u64> {
        let trees = table.trees();
        let usable_from = trees.index(index)?.entry.usable_from;
        self.works_on(&trees.indexes[index].work, Kind::Read);
        let tree = &trees.keys[index];
        if range.is_empty() {
            return Ok(0);
        }
        self.seal_for_read(table)?;
        let private = self.private_keys(table, index)?;
        // An index that is newer than the view is empty to it; who would read by it learns that it cannot.
        let view = self.view_now();
        let view = View { seq: view.seq.max(usable_from), ..view };
        Sources { state: table.readable(tree)?, private, view, parker: &self.parker }.entries_in(range, FEW)
    }

    /// The view that the transaction has, or what is visible now, of which nobody keeps anything.
    fn view_now(&self) -> View {
        let me = self.txn_id().unwrap_or(TxnId::ZERO);
        let kept = self.current.open().and_then(|txn| txn.view).or(self.statement_view);
        View { seq: kept.unwrap_or_else(|| self.core.views.visible_seq()), me }
    }
}

/// What is looked into.
pub(super) struct Sources<'a> {
    pub(super) state: Arc<TreeState<ByBytes>>,
    /// The reader's own memtable.
    pub(super) private: Option<Arc<Memtable<ByBytes>>>,
    pub(super) view: View,
    pub(super) parker: &'a Arc<Parker>,
}

impl Sources<'_> {
    /// About how many entries the view sees in a range: exact where they are `few` or fewer.
    pub(super) fn entries_in(&self, range: &KeyRange, few: u64) -> Result<u64> {
        let (from, to) = (&*range.from, range.to.as_deref());
        let mut found = in_state(&self.state, self.view, range)?;
        found.mixed += self.private.iter().map(|mem| mem.keys_between(from, to)).sum::<u64>();
        let versions = found.plain + found.mixed;
        // Each of the others takes one of the plain ones away at most.
        if found.mixed == 0 || found.plain.saturating_sub(found.mixed) > few || versions > MANY_VERSIONS {
            return Ok(versions);
        }
        let mut read = self.read(range)?;
        let mut entries = 0;
        while entries <= few {
            if let Some(found) = read.next_in_turn((few + 1 - entries) as usize)? {
                entries += found.len() as u64;
                continue;
            }
            match read.next()? {
                Span::End => return Ok(entries),
                Span::Rows(span) => entries += span.rows.len() as u64,
                Span::One(..) => entries += 1,
            }
        }
        Ok(entries.max(versions))
    }

    pub(super) fn read(&self, range: &KeyRange) -> Result<MergeRead<ByBytes>> {
        let to = range.to.as_deref().map(Into::into);
        let extent = Extent { from: &*range.from, to, watches: false };
        MergeRead::within(self.state.clone(), self.private.as_ref(), self.view, extent, self.parker)
    }
}

/// About how many versions there are that a view may see.
struct Versions {
    /// Those of runs that the view sees wholly and that have no tombstones: each is an entry, if no other one changes that.
    /// Exact where they are few.
    plain: u64,
    /// The others, of which nobody knows how many are seen or dead. Zero only if there are none.
    mixed: u64,
}

/// Versions in memtables and runs.
fn in_state(state: &TreeState<ByBytes>, view: View, range: &KeyRange) -> Result<Versions> {
    let (from, to) = (&*range.from, range.to.as_deref());
    let mut found = Versions { plain: 0, mixed: state.memtables().map(|mem| mem.keys_between(from, to)).sum() };
    let marks = state.seen_marks(view);
    // Those over the range's beginning, and those that begin in it.
    let before = state.runs.partition_point(|h| &*h.first < from);
    let begins = state.runs.partition_point(|h| to.is_none_or(|to| &*h.first < to));
    let over = state.runs_at(from).filter(|h| &*h.first < from);
    for handle in over.chain(&state.runs[before..begins]).filter(|h| may_show(h, view, &marks, false)) {
        let versions = in_run(handle, from, to)?;
        let is_seen = match handle.seen(view) {
            RunSeen::PerRow => handle.run.stats.max_seq <= view.seq,
            seen => seen != RunSeen::Hidden,
        };
        let tombstones = handle.run.stats.tombstones;
        match is_seen && marks.is_empty() && tombstones == 0 && handle.aborted().is_empty() {
            true => found.plain += versions,
            false => found.mixed += live(versions, tombstones, handle.run.stats.rows),
        }
    }
    Ok(found)
}

/// About how many of a run's versions are not dead: each tombstone takes another one along.
fn live(versions: u64, tombstones: u64, rows: u64) -> u64 {
    let dead = versions as f64 * tombstones as f64 / rows.max(1) as f64;
    ((versions as f64 - 2.0 * dead) as u64).max(versions.min(1))
}

/// Versions of a run in a range that it reaches into: those of the blocks between, and parts of the two at the ends.
fn in_run(handle: &RunHandle<ByBytes>, from: &[u8], to: Option<&[u8]>) -> Result<u64> {
    let stats = &handle.run.stats;
    let first = if from <= &*handle.first { &*handle.first } else { from };
    let to = to.filter(|to| *to <= &*handle.last);
    if to.is_none() && first == &*handle.run.bounds.0 && handle.last == handle.run.bounds.1 {
        return Ok(stats.rows);
    }
    let blocks = handle.run.index()?.keep();
    let (last, behind) = (to.unwrap_or(&handle.last), to.is_none());
    let (begin, block) = place(handle, &blocks, first, false)?;
    // A short range ends where it begins.
    if let Some(block) = block.filter(|block| block.key(block.rows() - 1) > last) {
        return Ok(in_block(&block, last, behind).saturating_sub(begin.1));
    }
    let (end, _) = place(handle, &blocks, last, behind)?;
    Ok(between(&blocks, begin, end, stats.rows))
}

/// Where in a run's blocks something is: in which of them, and where in that.
type Place = (usize, u64);

/// Where a key stands, or what comes behind it; and the block, unless that is behind all.
fn place(
    handle: &RunHandle<ByBytes>,
    blocks: &Arc<Index<ByBytes>>,
    key: &[u8],
    behind: bool,
) -> Result<(Place, Option<Arc<Block>>)> {
    let index = handle.run.seek(blocks, key)?;
    if index >= blocks.entries().len() {
        return Ok(((index, 0), None));
    }
    let block = handle.run.block(blocks, index)?;
    Ok(((index, in_block(&block, key, behind)), Some(block)))
}

/// Where in a block a key stands, or what comes behind it.
fn in_block(block: &Block, key: &[u8], behind: bool) -> u64 {
    let at = block.lower_bound(key);
    let has_it = behind && at < block.rows() && block.key(at) == key;
    u64::from(at) + u64::from(has_it)
}

/// Versions between two places.
fn between(blocks: &Index<ByBytes>, begin: Place, end: Place, rows: u64) -> u64 {
    let entries = blocks.entries();
    let passed = match end.0.saturating_sub(begin.0) {
        n if n <= MANY_BLOCKS => entries[begin.0..end.0.max(begin.0)].iter().map(|e| u64::from(e.block().rows)).sum(),
        n => (rows as f64 * n as f64 / entries.len() as f64) as u64,
    };
    (passed + end.1).saturating_sub(begin.1)
}
