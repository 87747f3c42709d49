//! A tree: memtables above runs, under one atomically replaced state.
//!
//! Invariants: a reader's state holds all versions committed up to any sequence that was visible when it was taken;
//! a writer puts versions only into the active memtable, while it holds the state's read guard, so that freezing (under
//! the write guard) knows that nothing more comes; a run with an owner is seen as its owner's status word says; runs and
//! marks change only in [`Tree::edit`], which keeps what is derived from them.

pub(crate) mod arena;
pub(crate) mod key;
pub(crate) mod levels;
pub(crate) mod marks;
pub(crate) mod memtable;
pub(crate) mod merge_read;
pub(crate) mod run;

use crate::tree::levels::Levels;
pub(crate) use crate::tree::marks::{RangeMark, SeenMark};
use crate::tree::memtable::Memtable;
use crate::tree::run::health::Health;
use crate::tree::run::{Block, Run};
use crate::txn::state::TxnState;
use crate::version::{order_if_visible, OrdinalRanges, VersionOrder, View};
use crate::Result;
use esker_base::lock::{Mutex, RwLock};
use esker_format::{CommitSeq, Lsn, RowId, TreeId};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// A run in its tree, or a part of one: whose it is, when it was committed, and which of its rows count.
///
/// Invariant: several handles of one run are apart; `first` and `last` are rows of the run.
#[derive(Clone)]
pub(crate) struct RunHandle {
    pub(crate) run: Arc<Run>,
    /// The transaction that wrote it, until it has ended.
    pub(crate) owner: Option<Arc<TxnState>>,
    /// Commit sequence of all rows; zero: each row has its own.
    pub(crate) seq: CommitSeq,
    /// Ordinals that were rolled back before the commit.
    pub(crate) aborted: Arc<OrdinalRanges>,
    /// The least row of the run that counts: merges may have taken others.
    pub(crate) first: RowId,
    /// The greatest one.
    pub(crate) last: RowId,
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
    /// Of a whole run whose transaction has not ended.
    pub(crate) fn private(run: Arc<Run>, owner: Arc<TxnState>) -> Self {
        RunHandle { owner: Some(owner), ..Self::committed(run) }
    }

    /// Of a whole run of which each row has its own commit sequence.
    pub(crate) fn committed(run: Arc<Run>) -> Self {
        let (first, last) = (run.stats.min_id, run.stats.max_id);
        RunHandle { run, owner: None, seq: CommitSeq::ZERO, aborted: Arc::default(), first, last }
    }

    /// The same with fewer rows, those from `first` to `last`.
    pub(crate) fn narrowed(&self, first: RowId, last: RowId) -> Self {
        debug_assert!(self.first <= first && first <= last && last <= self.last);
        RunHandle { first, last, ..self.clone() }
    }

    /// Is it the same part of the same run?
    pub(crate) fn is(&self, other: &RunHandle) -> bool {
        Arc::ptr_eq(&self.run, &other.run) && self.first == other.first
    }

    /// Does it hold rows from `first` to `last`, as far as its bounds tell?
    pub(crate) fn overlaps(&self, first: RowId, last: RowId) -> bool {
        self.first <= last && first <= self.last
    }

    /// Which part of its run lies between `first` and `last`, about: by the blocks, or by row ids while nothing was read.
    pub(crate) fn share(&self, first: RowId, last: RowId) -> f64 {
        let (first, last) = (first.max(self.first), last.min(self.last));
        let entries = self.run.entries();
        let (least, greatest) = (self.run.stats.min_id, self.run.stats.max_id);
        if first > last {
            return 0.0;
        }
        if (first, last) == (least, greatest) {
            return 1.0;
        }
        let part = |row: u64, first: RowId, last: RowId| (row - first.0) as f64 / ((last.0 - first.0) as f64 + 1.0);
        // Blocks before this row, with the part of the one that it stands in.
        let before = |row: u64| {
            let at = self.run.block_at_or_after(RowId(row));
            let within = entries.get(at).filter(|e| e.first_id.0 < row);
            at as f64 + within.map_or(0.0, |e| part(row, e.first_id, e.last_id))
        };
        match entries.len() {
            0 => part(last.0 + 1, least, greatest) - part(first.0, least, greatest),
            n => (before(last.0 + 1) - before(first.0)) / n as f64,
        }
    }

    /// Its bytes, about.
    pub(crate) fn bytes(&self) -> u64 {
        (self.run.size_bytes() as f64 * self.share(self.first, self.last)) as u64
    }

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

/// What a tree consists of at one moment.
#[derive(Clone)]
pub(crate) struct TreeState {
    pub(crate) active: Arc<Memtable>,
    /// Newest first.
    pub(crate) frozen: Vec<Arc<Memtable>>,
    /// By the first row of each.
    pub(crate) runs: Vec<RunHandle>,
    /// Committed ones first, by their sequence.
    pub(crate) marks: Vec<RangeMark>,
    /// Commits before this LSN are in runs.
    pub(crate) flushed_to: Lsn,
    /// Rises with every edit.
    edits: u64,
    /// For each committed mark, from where on marks count for whoever sees it as the newest.
    first_mark: Arc<[u32]>,
    /// Made when first asked for.
    levels: OnceLock<Arc<Levels>>,
}

impl TreeState {
    pub(crate) fn new(active: Arc<Memtable>, flushed_to: Lsn) -> Self {
        TreeState {
            active,
            frozen: Vec::new(),
            runs: Vec::new(),
            marks: Vec::new(),
            flushed_to,
            edits: 0,
            first_mark: Arc::default(),
            levels: OnceLock::new(),
        }
    }

    pub(crate) fn memtables(&self) -> impl Iterator<Item = &Arc<Memtable>> {
        std::iter::once(&self.active).chain(&self.frozen)
    }

    pub(crate) fn add_run(&mut self, handle: RunHandle) {
        let at = self.runs.partition_point(|r| r.first <= handle.first);
        self.runs.insert(at, handle);
    }

    pub(crate) fn first_mark(&self) -> &[u32] {
        &self.first_mark
    }

    /// Which edit made this state.
    pub(crate) fn edits(&self) -> u64 {
        self.edits
    }

    /// The runs whose bounds hold `row`.
    pub(crate) fn runs_at(&self, row: RowId) -> impl Iterator<Item = &RunHandle> {
        let levels = self.levels.get_or_init(|| Arc::new(Levels::new(&self.runs)));
        levels.at(row).map(|at| &self.runs[at])
    }

    /// Brings what is derived from runs and marks up to date with them.
    fn settle(&mut self) {
        self.edits += 1;
        self.first_mark = crate::tree::marks::sort(&mut self.marks);
        self.levels = OnceLock::new();
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
    /// How merges get on with writing what they make.
    pub(crate) merge_health: Health,
    /// How far merging was behind at the last look, in bytes.
    pub(crate) merge_debt_bytes: AtomicU64,
    /// In the state that this edit made there is nothing to merge, whatever the horizon.
    pub(crate) nothing_to_merge: AtomicU64,
}

impl Tree {
    /// An empty tree that begins at `lsn`, with a memtable that nobody else has.
    pub(crate) fn new(id: TreeId, mut memtable: Arc<Memtable>, lsn: Lsn) -> Arc<Self> {
        if let Some(memtable) = Arc::get_mut(&mut memtable) {
            memtable.begin_at(lsn);
        }
        Self::with_state(id, RowId(1), 0, TreeState::new(memtable, lsn))
    }

    pub(crate) fn with_state(id: TreeId, next_row: RowId, live_rows: i64, mut state: TreeState) -> Arc<Self> {
        state.settle();
        Arc::new(Tree {
            id,
            state: RwLock::new("tree.state", Arc::new(state)),
            next_row: AtomicU64::new(next_row.0.max(1)),
            live_rows: AtomicI64::new(live_rows),
            flushing: Mutex::new("tree.flushing", ()),
            merging: Mutex::new("tree.merging", ()),
            merge_health: Health::default(),
            merge_debt_bytes: AtomicU64::new(0),
            nothing_to_merge: AtomicU64::new(0),
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
        state.settle();
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
        let Some(node) = mem.get(row) else {
            continue;
        };
        let Some((order, version)) = mem.visible(node, view) else {
            continue;
        };
        if best.as_ref().is_none_or(|b| order > b.0) {
            best = Some((order, found_in_mem(mem, version)));
        }
    }
    for handle in state.runs_at(row) {
        let stats = &handle.run.stats;
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
        handle.run.load()?;
        let aborted = handle.aborted();
        let mut index = handle.run.block_at_or_after(row);
        while handle.run.entries().get(index).is_some_and(|e| e.first_id <= row) {
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

pub(crate) fn found_in_mem(mem: &Arc<Memtable>, version: &crate::tree::memtable::Version) -> Found {
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
