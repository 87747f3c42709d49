//! A tree: memtables above runs, under one atomically replaced state.
//!
//! Invariants: a reader's state holds all versions committed up to any sequence that was visible when it was taken;
//! a writer puts versions only into the active memtable, while it holds the state's read guard, so that freezing (under
//! the write guard) knows that nothing more comes; a run with an owner is seen as its owner's status word says.

use crate::memtable::Memtable;
use crate::run::{Block, Run};
use crate::txn::{order_if_visible, OrdinalRanges, TxnState, VersionOrder, View};
use crate::Result;
use esker_format::{CommitSeq, Lsn, RowId, TreeId, TxnId};
use esker_trace::lock::{Mutex, RwLock};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::Arc;

/// A run in its tree: whose it is, and when it was committed.
#[derive(Clone)]
pub(crate) struct RunHandle {
    pub(crate) run: Arc<Run>,
    /// The transaction that wrote it, until it has ended.
    pub(crate) owner: Option<Arc<TxnState>>,
    /// Commit sequence of all rows; zero: each row has its own.
    pub(crate) seq: CommitSeq,
    /// Ordinals that were rolled back before the commit.
    pub(crate) aborted: Arc<OrdinalRanges>,
}

/// How a view sees the rows of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunSeen {
    /// Not at all.
    Hidden,
    /// As its own, uncommitted.
    Own,
    /// As committed at this sequence.
    At(CommitSeq),
    /// Each row by its own sequence.
    PerRow,
}

impl RunHandle {
    pub(crate) fn seen(&self, view: View) -> RunSeen {
        match &self.owner {
            Some(owner) => match order_if_visible(view, owner.id, owner.status(), 0) {
                None => RunSeen::Hidden,
                Some((u64::MAX, _)) => RunSeen::Own,
                Some((seq, _)) => RunSeen::At(CommitSeq(seq)),
            },
            None if self.seq == CommitSeq::ZERO => {
                if self.run.stats.min_seq > view.seq {
                    RunSeen::Hidden
                } else {
                    RunSeen::PerRow
                }
            }
            None if self.seq <= view.seq => RunSeen::At(self.seq),
            None => RunSeen::Hidden,
        }
    }

    pub(crate) fn aborted(&self) -> Arc<OrdinalRanges> {
        match &self.owner {
            Some(owner) => owner.aborted(),
            None => self.aborted.clone(),
        }
    }

    /// Least and greatest commit sequence of its rows; `None` while its owner is active.
    pub(crate) fn seq_bounds(&self) -> Option<(CommitSeq, CommitSeq)> {
        match (&self.owner, self.seq) {
            (Some(_), _) => None,
            (None, CommitSeq::ZERO) => Some((self.run.stats.min_seq, self.run.stats.max_seq)),
            (None, seq) => Some((seq, seq)),
        }
    }
}

/// All rows below `up_to` that were committed at `as_of` or before, or written earlier by the same transaction, are
/// deleted: DELETE without WHERE as one version.
#[derive(Clone)]
pub(crate) struct RangeMark {
    pub(crate) owner: Option<Arc<TxnState>>,
    pub(crate) seq: CommitSeq,
    pub(crate) ordinal: u64,
    pub(crate) up_to: RowId,
    pub(crate) as_of: CommitSeq,
}

impl RangeMark {
    /// Does this mark, committed and seen by every view, delete this version of `row`?
    pub(crate) fn deletes(&self, row: RowId, order: VersionOrder) -> bool {
        row < self.up_to && (order.0 <= self.as_of.0 || (order.0 == self.seq.0 && order.1 < self.ordinal))
    }

    /// The mark's own place in the order of versions, if `view` sees it.
    pub(crate) fn order(&self, view: View) -> Option<VersionOrder> {
        match &self.owner {
            Some(owner) if owner.aborted().contains(self.ordinal) => None,
            Some(owner) => order_if_visible(view, owner.id, owner.status(), self.ordinal),
            None => order_if_visible(view, TxnId::ZERO, self.seq.0, self.ordinal),
        }
    }
}

/// A mark that a view sees.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SeenMark {
    order: VersionOrder,
    pub(crate) up_to: RowId,
    pub(crate) as_of: CommitSeq,
}

impl SeenMark {
    /// May versions between these sequences be of the mark's own transaction?
    pub(crate) fn same_seq(&self, least: CommitSeq, greatest: CommitSeq) -> bool {
        (least.0..=greatest.0).contains(&self.order.0)
    }

    /// Does the mark delete this version of `row`?
    pub(crate) fn hides(&self, row: RowId, order: VersionOrder) -> bool {
        row < self.up_to && (order.0 <= self.as_of.0 || (order.0 == self.order.0 && order.1 < self.order.1))
    }
}

/// What a tree consists of at one moment.
#[derive(Clone)]
pub(crate) struct TreeState {
    pub(crate) active: Arc<Memtable>,
    /// Newest first.
    pub(crate) frozen: Vec<Arc<Memtable>>,
    /// By least row id.
    pub(crate) runs: Vec<RunHandle>,
    pub(crate) marks: Vec<RangeMark>,
    /// Commits before this LSN are in runs.
    pub(crate) flushed_to: Lsn,
}

impl TreeState {
    pub(crate) fn memtables(&self) -> impl Iterator<Item = &Arc<Memtable>> {
        std::iter::once(&self.active).chain(&self.frozen)
    }

    pub(crate) fn add_run(&mut self, handle: RunHandle) {
        let at = self.runs.partition_point(|r| r.run.stats.min_id <= handle.run.stats.min_id);
        self.runs.insert(at, handle);
    }

    pub(crate) fn seen_marks(&self, view: View) -> Vec<SeenMark> {
        self.marks
            .iter()
            .filter_map(|m| Some(SeenMark { order: m.order(view)?, up_to: m.up_to, as_of: m.as_of }))
            .collect()
    }
}

/// A version that was found, pinned.
pub(crate) enum Found {
    /// In a memtable: the packed row.
    Mem(Arc<Memtable>, &'static [u8]),
    /// In a run's block, at a row position.
    Block(Arc<Run>, usize, Arc<Block>, u32),
    /// The row is deleted.
    Tombstone,
}

/// One tree.
pub(crate) struct Tree {
    pub(crate) id: TreeId,
    pub(crate) state: RwLock<Arc<TreeState>>,
    next_row: AtomicU64,
    /// Rows, as far as is known without reading them.
    pub(crate) live_rows: AtomicI64,
    /// Held by whoever flushes this tree.
    pub(crate) flushing: Mutex<()>,
    /// Held by whoever merges this tree's runs.
    pub(crate) merging: Mutex<()>,
}

impl Tree {
    /// An empty tree that begins at `lsn`.
    pub(crate) fn new(id: TreeId, lsn: Lsn) -> Result<Arc<Self>> {
        let state = TreeState {
            active: Memtable::new(lsn)?,
            frozen: Vec::new(),
            runs: Vec::new(),
            marks: Vec::new(),
            flushed_to: lsn,
        };
        Ok(Self::with_state(id, RowId(1), 0, state))
    }

    pub(crate) fn with_state(id: TreeId, next_row: RowId, live_rows: i64, state: TreeState) -> Arc<Self> {
        Arc::new(Tree {
            id,
            state: RwLock::new("tree.state", Arc::new(state)),
            next_row: AtomicU64::new(next_row.0.max(1)),
            live_rows: AtomicI64::new(live_rows),
            flushing: Mutex::new("tree.flushing", ()),
            merging: Mutex::new("tree.merging", ()),
        })
    }

    pub(crate) fn snapshot(&self) -> Arc<TreeState> {
        self.state.read().clone()
    }

    /// Replaces the state by what `change` makes of it.
    pub(crate) fn edit<R>(&self, change: impl FnOnce(&mut TreeState) -> R) -> R {
        let mut guard = self.state.write();
        let mut state = TreeState::clone(&guard);
        let result = change(&mut state);
        *guard = Arc::new(state);
        result
    }

    /// Takes `rows` row ids that nobody else gets.
    pub(crate) fn reserve_rows(&self, rows: u64) -> RowId {
        RowId(self.next_row.fetch_add(rows, Ordering::Relaxed))
    }

    pub(crate) fn next_row(&self) -> RowId {
        RowId(self.next_row.load(Ordering::Relaxed))
    }

    /// Row ids up to `row` are taken.
    pub(crate) fn row_seen(&self, row: RowId) {
        self.next_row.fetch_max(row.0.saturating_add(1), Ordering::Relaxed);
    }
}

/// The newest version of `row` that `view` sees in `state`, with its order; `private` is the looker's own memtable.
pub(crate) fn find(
    state: &TreeState,
    private: Option<&Arc<Memtable>>,
    row: RowId,
    view: View,
) -> Result<Option<(VersionOrder, Found)>> {
    let mut best: Option<(VersionOrder, Found)> = None;
    for mem in private.into_iter().chain(state.memtables()) {
        let Some(node) = mem.seek(row).filter(|n| n.row == row) else {
            continue;
        };
        let Some((order, version)) = mem.visible(node, view) else {
            continue;
        };
        if best.as_ref().is_none_or(|b| order > b.0) {
            best = Some((order, found_in_mem(mem, version)));
        }
    }
    for handle in &state.runs {
        let stats = &handle.run.stats;
        if row < stats.min_id {
            break;
        }
        if row > stats.max_id {
            continue;
        }
        let seen = handle.seen(view);
        let newest = match seen {
            RunSeen::Hidden => continue,
            RunSeen::Own => u64::MAX,
            RunSeen::At(seq) => seq.0,
            RunSeen::PerRow => stats.max_seq.0,
        };
        if best.as_ref().is_some_and(|b| b.0 .0 > newest) {
            continue;
        }
        let aborted = handle.aborted();
        let mut index = handle.run.block_at_or_after(row);
        while index < handle.run.entries.len() && handle.run.entries[index].first_id <= row {
            let block = handle.run.block(index)?;
            let mut at = block.lower_bound(row);
            while at < block.rows() && block.row_id(at) == row {
                if let Some(order) = order_in_block(&block, at, seen, view, &aborted) {
                    if best.as_ref().is_none_or(|b| order > b.0) {
                        best = Some((order, found_in_block(&handle.run, index, &block, at)));
                    }
                }
                at += 1;
            }
            index += 1;
        }
    }
    if let Some((order, _)) = &best {
        if state.seen_marks(view).iter().any(|m| m.hides(row, *order)) {
            return Ok(None);
        }
    }
    Ok(best)
}

pub(crate) fn found_in_mem(mem: &Arc<Memtable>, version: &crate::memtable::Version) -> Found {
    if version.tombstone {
        return Found::Tombstone;
    }
    // SAFETY: the bytes live as long as the memtable, which `Found` holds.
    Found::Mem(mem.clone(), unsafe { std::mem::transmute::<&[u8], &'static [u8]>(version.packed()) })
}

pub(crate) fn found_in_block(run: &Arc<Run>, index: usize, block: &Arc<Block>, at: u32) -> Found {
    if block.tag(at).tombstone {
        Found::Tombstone
    } else {
        Found::Block(run.clone(), index, block.clone(), at)
    }
}

/// The order of a block's row under `view`, given how the run is seen.
pub(crate) fn order_in_block(
    block: &Block,
    at: u32,
    seen: RunSeen,
    view: View,
    aborted: &OrdinalRanges,
) -> Option<VersionOrder> {
    let tag = block.tag(at);
    if !aborted.is_empty() && aborted.contains(tag.ordinal) {
        return None;
    }
    match seen {
        RunSeen::Hidden => None,
        RunSeen::Own => Some((u64::MAX, tag.ordinal)),
        RunSeen::At(seq) => Some((seq.0, tag.ordinal)),
        RunSeen::PerRow => (tag.seq <= view.seq).then_some((tag.seq.0, tag.ordinal)),
    }
}
