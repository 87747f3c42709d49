//! The newest version of one key that a view sees.
//!
//! Invariant: of all versions in memtables and runs that the view sees the one with the greatest order is found, whatever it lies
//! in.

use crate::tree::key::ByRow;
use crate::tree::memtable::{Memtable, Version};
use crate::tree::run::Run;
use crate::tree::stored::Stored;
use crate::tree::{RunHandle, RunSeen, TreeState};
use crate::version::{OrdinalRanges, VersionOrder, View};
use crate::Result;
use esker_base::counters::{count, Counter};
use esker_format::{RowId, TxnId};
use std::sync::Arc;

/// A version that was found, pinned.
pub(crate) enum Found<K: Stored = ByRow> {
    /// In a memtable: its value.
    Mem(Arc<Memtable<K>>, &'static [u8]),
    /// In a run's block, which begins there in the file, at a position.
    Block(Arc<Run<K>>, u64, Arc<K::Block>, u32),
    /// The row or entry is deleted.
    Tombstone,
}

impl<K: Stored> Clone for Found<K> {
    fn clone(&self) -> Self {
        match self {
            Found::Mem(mem, value) => Found::Mem(mem.clone(), value),
            Found::Block(run, offset, block, at) => Found::Block(run.clone(), *offset, block.clone(), *at),
            Found::Tombstone => Found::Tombstone,
        }
    }
}

/// Where a version was found, as long as who has found it keeps it.
pub(crate) enum Place<'a, K: Stored = ByRow> {
    /// In a memtable: its value.
    Mem(&'a Arc<Memtable<K>>, &'a [u8]),
    /// In a run's block, which begins there in the file, at a position.
    Block(&'a Arc<Run<K>>, u64, &'a Arc<K::Block>, u32),
    /// Elsewhere.
    Found(Found<K>),
}

impl<K: Stored> Place<'_, K> {
    /// The same for longer.
    pub(crate) fn pinned(&self) -> Found<K> {
        match self {
            // SAFETY: the bytes live as long as the memtable, which is pinned.
            Place::Mem(mem, value) => {
                Found::Mem(Arc::clone(mem), unsafe { std::mem::transmute::<&[u8], &'static [u8]>(value) })
            }
            Place::Block(run, offset, block, at) => Found::Block(Arc::clone(run), *offset, Arc::clone(block), *at),
            Place::Found(found) => found.clone(),
        }
    }
}

/// The newest version of `key` that `view` sees in `state`, with its order; `private` is the looker's own memtable.
pub(crate) fn find<K: Stored>(
    state: &TreeState<K>,
    private: Option<&Arc<Memtable<K>>>,
    key: K::Ref<'_>,
    view: View,
) -> Result<Option<(VersionOrder, Found<K>)>> {
    look::<K, true>(state, private, key, view, LeftOut::default())
}

/// Where the key is known not to be.
#[derive(Clone, Copy, Default)]
pub(crate) struct LeftOut {
    /// In the runs that this transaction has noted.
    pub(crate) noted_by: Option<TxnId>,
    /// In any memtable.
    pub(crate) memtables: bool,
}

/// The same without what is left out.
pub(crate) fn find_but<K: Stored>(
    state: &TreeState<K>,
    private: Option<&Arc<Memtable<K>>>,
    key: K::Ref<'_>,
    view: View,
    left: LeftOut,
) -> Result<Option<(VersionOrder, Found<K>)>> {
    look::<K, true>(state, private, key, view, left)
}

/// The same of a row, from memory alone: none, too, where a block that would have to be looked at is not there.
pub(crate) fn find_in_memory(state: &TreeState, row: RowId, view: View) -> Option<Found> {
    look::<ByRow, false>(state, None, row, view, LeftOut::default()).ok().flatten().map(|(_, found)| found)
}

#[inline]
fn look<K: Stored, const READS: bool>(
    state: &TreeState<K>,
    private: Option<&Arc<Memtable<K>>>,
    key: K::Ref<'_>,
    view: View,
    left: LeftOut,
) -> Result<Option<(VersionOrder, Found<K>)>> {
    let mut best: Option<Seen<K>> = None;
    for mem in private.into_iter().chain(state.memtables()).filter(|_| !left.memtables) {
        let Some(node) = mem.get(key) else {
            continue;
        };
        let Some((order, version)) = mem.visible(node, view) else {
            continue;
        };
        if best.as_ref().is_none_or(|b| order > b.order) {
            best = Some(Seen::in_mem(mem, node.key(), order, version));
        }
    }
    for handle in state.runs_at_but(key, left.noted_by) {
        if !look_in_run::<K, READS>(handle, key, view, &mut best)? {
            return Ok(None);
        }
    }
    let Some(best) = best else { return Ok(None) };
    if state.seen_marks(view).iter().any(|m| m.hides(best.row, best.order)) {
        return Ok(None);
    }
    Ok(Some((best.order, best.found)))
}

/// As [`find`], in one of the runs, which reaches over `key`; `best`: what was found elsewhere, and the better one of both.
pub(crate) fn find_in_run<K: Stored>(
    handle: &RunHandle<K>,
    key: K::Ref<'_>,
    view: View,
    best: &mut Option<Seen<K>>,
) -> Result<()> {
    look_in_run::<K, true>(handle, key, view, best).map(drop)
}

/// False: what is not in memory would have to be looked at, and is not to be read.
#[inline]
fn look_in_run<K: Stored, const READS: bool>(
    handle: &RunHandle<K>,
    key: K::Ref<'_>,
    view: View,
    best: &mut Option<Seen<K>>,
) -> Result<bool> {
    let seen = handle.seen(view);
    if seen == RunSeen::Hidden || best.as_ref().is_some_and(|b| handle.is_older(seen, b.order)) {
        return Ok(true);
    }
    let blocks = match READS {
        true => Some(handle.run.index()?),
        false => handle.run.index_in_memory(),
    };
    let Some(blocks) = blocks else { return Ok(false) };
    let aborted = handle.aborted();
    let (mut index, is_alone) = match READS {
        true => handle.run.seek_key(&blocks, key)?,
        false => (blocks.block_at_or_after(key), false),
    };
    while blocks.entries().get(index).is_some_and(|e| K::cmp(K::first(e), key).is_le()) {
        // Filters are read, too.
        if READS && blocks.filters().is_some() && !handle.run.may_hold(&blocks, index, K::filter_hash(key)) {
            if is_alone {
                break;
            }
            index += 1;
            continue;
        }
        let block = match READS {
            true => Some(handle.run.block(&blocks, index)?),
            false => blocks.slot(index).get(),
        };
        let Some(block) = block else { return Ok(false) };
        let offset = blocks.entry(index).offset;
        let mut at = K::lower_bound(&block, key);
        if at < K::rows(&block) {
            K::prefetch_found(&block, at);
        }
        while at < K::rows(&block) && K::cmp(K::key(&block, at), key).is_eq() {
            if let Some(order) = order_in_block::<K>(&block, at, seen, view, &aborted) {
                if best.as_ref().is_none_or(|b| order > b.order) {
                    *best = Some(Seen::in_block(&handle.run, offset, &block, at, order));
                }
                // Those behind it are older.
                return Ok(true);
            }
            at += 1;
        }
        if at < K::rows(&block) {
            break;
        }
        index += 1;
    }
    Ok(true)
}

/// A version that a view sees.
pub(crate) struct Seen<K: Stored> {
    pub(crate) order: VersionOrder,
    /// The row that it is of.
    pub(crate) row: RowId,
    pub(crate) found: Found<K>,
}

impl<K: Stored> Seen<K> {
    pub(crate) fn in_mem(mem: &Arc<Memtable<K>>, key: K::Ref<'_>, order: VersionOrder, version: &Version) -> Self {
        let found = if version.tombstone {
            Found::Tombstone
        } else {
            // SAFETY: the bytes live as long as the memtable, which `Found` holds.
            Found::Mem(mem.clone(), unsafe { std::mem::transmute::<&[u8], &'static [u8]>(version.value()) })
        };
        Seen { order, row: K::row_of(key, version.value()), found }
    }

    pub(crate) fn in_block(
        run: &Arc<Run<K>>,
        offset: u64,
        block: &Arc<K::Block>,
        at: u32,
        order: VersionOrder,
    ) -> Self {
        let found = if K::tag(block, at).tombstone {
            Found::Tombstone
        } else {
            Found::Block(run.clone(), offset, block.clone(), at)
        };
        Seen { order, row: K::row(block, at), found }
    }
}

/// The order of a block's version under `view`, given how the run is seen.
#[inline]
pub(crate) fn order_in_block<K: Stored>(
    block: &K::Block,
    at: u32,
    seen: RunSeen,
    view: View,
    aborted: &OrdinalRanges,
) -> Option<VersionOrder> {
    let tag = K::tag(block, at);
    if !aborted.is_empty() && aborted.contains(tag.ordinal) {
        return None;
    }
    match seen {
        RunSeen::Hidden => None,
        RunSeen::Own => Some(VersionOrder::new(VersionOrder::OWN, tag.ordinal)),
        RunSeen::At(seq) => Some(VersionOrder::new(seq, tag.ordinal)),
        RunSeen::PerRow if tag.seq <= view.seq => Some(VersionOrder::new(tag.seq, tag.ordinal)),
        RunSeen::PerRow => {
            count(Counter::VersionsPassed, 1);
            None
        }
    }
}
