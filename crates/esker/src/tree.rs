//! A tree: memtables above runs, under one atomically replaced state.
//!
//! Invariants: a reader's state holds all versions committed up to any sequence that was visible when it was taken;
//! a writer puts versions only into the active memtable, while it holds the state's read guard, so that freezing (under
//! the write guard) knows that nothing more comes; a run with an owner is seen as its owner's status word says; runs and
//! marks change only in [`Tree::edit`], which keeps what is derived from them.

pub(crate) mod arena;
pub(crate) mod backward;
pub(crate) mod dead;
pub(crate) mod fences;
pub(crate) mod key;
pub(crate) mod levels;
pub(crate) mod looks;
pub(crate) mod marks;
pub(crate) mod memtable;
pub(crate) mod merge_read;
pub(crate) mod near;
pub(crate) mod node;
pub(crate) mod own_keys;
pub(crate) mod private;
pub(crate) mod run;
pub(crate) mod search;
pub(crate) mod standing;
pub(crate) mod stored;
pub(crate) mod undisputed;

use crate::tree::dead::Told;
use crate::tree::key::ByRow;
use crate::tree::levels::Levels;
pub(crate) use crate::tree::marks::{RangeMark, SeenMark};
use crate::tree::memtable::{Memtable, Version};
use crate::tree::private::Private;
use crate::tree::run::health::Health;
use crate::tree::run::Run;
use crate::tree::stored::Stored;
use crate::txn::state::TxnState;
use crate::upkeep::due::Places;
use crate::version::{order_if_visible, OrdinalRanges, VersionOrder, View};
use crate::Result;
use esker_base::counters::{count, Counter};
use esker_base::lock::{order, Mutex, RwLock};
use esker_format::{CommitSeq, Lsn, RowId, TreeId, TxnId};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// A run in its tree, or a part of one: whose it is, when it was committed, and which of its keys count.
///
/// Invariant: several handles of one run are apart; `first` and `last` are keys of the run.
pub(crate) struct RunHandle<K: Stored = ByRow> {
    pub(crate) run: Arc<Run<K>>,
    /// The transaction that wrote it, until it has ended.
    pub(crate) owner: Option<Arc<TxnState>>,
    /// Commit sequence of all versions; zero: each has its own.
    pub(crate) seq: CommitSeq,
    /// Ordinals that were rolled back before the commit.
    pub(crate) aborted: Arc<OrdinalRanges>,
    /// The least key of the run that counts: merges may have taken others.
    pub(crate) first: K::Own,
    /// The greatest one.
    pub(crate) last: K::Own,
}

impl<K: Stored> Clone for RunHandle<K> {
    fn clone(&self) -> Self {
        RunHandle {
            run: self.run.clone(),
            owner: self.owner.clone(),
            seq: self.seq,
            aborted: self.aborted.clone(),
            first: self.first.clone(),
            last: self.last.clone(),
        }
    }
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

impl<K: Stored> RunHandle<K> {
    /// Of a whole run whose transaction has not ended.
    pub(crate) fn private(run: Arc<Run<K>>, owner: Arc<TxnState>) -> Self {
        RunHandle { owner: Some(owner), ..Self::committed(run) }
    }

    /// The transaction that has noted it and not ended, see [`Run::noted`].
    pub(crate) fn noted_by(&self) -> Option<TxnId> {
        self.owner.as_ref().filter(|_| self.run.noted.load(Ordering::Relaxed)).map(|owner| owner.id)
    }

    /// Of a whole run of which each version has its own commit sequence.
    pub(crate) fn committed(run: Arc<Run<K>>) -> Self {
        let (first, last) = run.bounds.clone();
        RunHandle { run, owner: None, seq: CommitSeq::ZERO, aborted: Arc::default(), first, last }
    }

    /// The same with fewer keys, those from `first` to `last`.
    pub(crate) fn narrowed(&self, first: K::Own, last: K::Own) -> Self {
        debug_assert!(self.first <= first && first <= last && last <= self.last);
        RunHandle { first, last, ..self.clone() }
    }

    /// Is it the same part of the same run?
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.run, &other.run) && self.first == other.first
    }

    /// Does it hold keys from `first` to `last`, as far as its bounds tell?
    pub(crate) fn overlaps(&self, first: K::Ref<'_>, last: K::Ref<'_>) -> bool {
        K::cmp(K::lend(&self.first), last).is_le() && K::cmp(first, K::lend(&self.last)).is_le()
    }

    /// May keys of this block count?
    pub(crate) fn meets(&self, entry: &K::Entry) -> bool {
        K::cmp(K::first(entry), K::lend(&self.last)).is_le() && K::reaches(entry, K::lend(&self.first))
    }

    /// Which part of its run lies between `first` and `last`, about: by the blocks, or by the keys while its index is not in
    /// memory. So it may be another at another time, and nothing but figures and the choice of merges follows from it; of a
    /// whole run it is always 1, so that merging comes to an end.
    pub(crate) fn share(&self, first: K::Ref<'_>, last: K::Ref<'_>) -> f64 {
        let (own_first, own_last) = (K::lend(&self.first), K::lend(&self.last));
        let first = if K::cmp(first, own_first).is_lt() { K::short(own_first) } else { K::short(first) };
        let last = if K::cmp(last, own_last).is_gt() { K::short(own_last) } else { K::short(last) };
        let (least, greatest) = (K::lend(&self.run.bounds.0), K::lend(&self.run.bounds.1));
        if K::cmp(first, last).is_gt() {
            return 0.0;
        }
        if K::cmp(first, least).is_eq() && K::cmp(last, greatest).is_eq() {
            return 1.0;
        }
        let Some(index) = self.run.index_in_memory() else {
            return K::fraction(last, true, least, greatest) - K::fraction(first, false, least, greatest);
        };
        let entries = index.entries();
        // Blocks before this key, or up to it, with the part of the one that it stands in.
        let before = |key: K::Ref<'_>, behind: bool| {
            let at = index.block_at_or_after(key);
            let within = entries.get(at).filter(|e| K::cmp(K::first(e), key).is_le());
            at as f64 + within.map_or(0.0, |e| K::fraction(key, behind, K::first(e), K::last(e)))
        };
        (before(last, true) - before(first, false)) / entries.len().max(1) as f64
    }

    /// The part of its run that counts, see [`share`](Self::share).
    pub(crate) fn own_share(&self) -> f64 {
        self.share(K::lend(&self.first), K::lend(&self.last))
    }

    /// Its bytes, about.
    pub(crate) fn bytes(&self) -> u64 {
        (self.run.size_bytes() as f64 * self.own_share()) as u64
    }

    pub(crate) fn seen(&self, view: View) -> RunSeen {
        match &self.owner {
            Some(owner) => match order_if_visible(view, owner.id, owner.status(), 0) {
                None => RunSeen::Hidden,
                Some(order) if order.is_own() => RunSeen::Own,
                Some(order) => RunSeen::At(order.seq),
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

    /// Is all that is seen of it older than a version?
    #[inline]
    pub(crate) fn is_older(&self, seen: RunSeen, version: VersionOrder) -> bool {
        let newest = match seen {
            RunSeen::Hidden => return true,
            RunSeen::Own => VersionOrder::OWN,
            RunSeen::At(seq) => seq,
            RunSeen::PerRow => self.run.stats.max_seq,
        };
        version.seq > newest
    }

    /// About how new it is, for whoever looks into the newest runs first.
    fn age(&self) -> CommitSeq {
        match &self.owner {
            Some(_) => VersionOrder::OWN,
            None => self.seq.max(self.run.stats.max_seq),
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

/// See [`TreeState::stamp`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Stamp(u64, usize);

impl Stamp {
    /// After so many more versions were put, if nothing else happens.
    pub(crate) fn after(self, puts: usize) -> Stamp {
        Stamp(self.0, self.1 + puts)
    }
}

/// Since when nobody writes to a tree, as far as those have seen who looked.
#[derive(Default)]
pub(crate) struct Rest {
    /// What [`TreeState::written`] was at the last look.
    written: AtomicU64,
    /// By the host's clock, in microseconds.
    since_us: AtomicU64,
}

impl Rest {
    /// Has nobody written for so long? Looks at the tree's `state`.
    pub(crate) fn lasts<K: Stored>(&self, state: &TreeState<K>, time: Duration, now: Duration) -> bool {
        let (written, now_us) = (state.written(), now.as_micros() as u64);
        if self.written.swap(written, Ordering::Relaxed) != written {
            self.since_us.store(now_us, Ordering::Relaxed);
            return false;
        }
        now_us.saturating_sub(self.since_us.load(Ordering::Relaxed)) >= time.as_micros() as u64
    }
}

/// What the memtables of a tree take.
pub(crate) struct InMemory {
    /// What a flush would free.
    pub(crate) flushable_bytes: u64,
    /// What it would carry on.
    pub(crate) pinned_bytes: u64,
}

/// What the committed runs of a tree hold, as far as their parts in it count.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct InRuns {
    /// As it lies in files.
    pub(crate) stored_bytes: u64,
    /// Before compression.
    pub(crate) raw_bytes: u64,
    pub(crate) versions: u64,
}

/// What a tree consists of at one moment.
pub(crate) struct TreeState<K: Stored = ByRow> {
    pub(crate) active: Arc<Memtable<K>>,
    /// Newest first.
    pub(crate) frozen: Vec<Arc<Memtable<K>>>,
    /// What transactions have gathered for themselves, in key trees: others do not see it, but may have to wait for it.
    pub(crate) privates: Vec<Arc<Private<K>>>,
    /// By the first key of each.
    pub(crate) runs: Vec<RunHandle<K>>,
    /// Committed ones first, by their sequence.
    pub(crate) marks: Vec<RangeMark>,
    /// Commits before this LSN are in runs.
    pub(crate) flushed_to: Lsn,
    /// It was emptied for good.
    pub(crate) is_discarded: bool,
    /// Where readers tell of dead keys.
    told: Arc<Told<K>>,
    /// Rises with every edit.
    edits: u64,
    /// For each committed mark, from where on marks count for whoever sees it as the newest.
    first_mark: Arc<[u32]>,
    /// Made when first asked for.
    levels: OnceLock<Arc<Levels<K>>>,
    /// Made when first asked for.
    in_runs: OnceLock<InRuns>,
}

impl<K: Stored> Clone for TreeState<K> {
    fn clone(&self) -> Self {
        TreeState {
            active: self.active.clone(),
            frozen: self.frozen.clone(),
            privates: self.privates.clone(),
            runs: self.runs.clone(),
            marks: self.marks.clone(),
            flushed_to: self.flushed_to,
            is_discarded: self.is_discarded,
            told: self.told.clone(),
            edits: self.edits,
            first_mark: self.first_mark.clone(),
            levels: self.levels.clone(),
            in_runs: self.in_runs.clone(),
        }
    }
}

impl<K: Stored> TreeState<K> {
    pub(crate) fn new(active: Arc<Memtable<K>>, flushed_to: Lsn) -> Self {
        TreeState {
            active,
            frozen: Vec::new(),
            privates: Vec::new(),
            runs: Vec::new(),
            marks: Vec::new(),
            flushed_to,
            is_discarded: false,
            told: Arc::default(),
            edits: 0,
            first_mark: Arc::default(),
            levels: OnceLock::new(),
            in_runs: OnceLock::new(),
        }
    }

    pub(crate) fn memtables(&self) -> impl Iterator<Item = &Arc<Memtable<K>>> {
        std::iter::once(&self.active).chain(&self.frozen)
    }

    /// What other transactions than `me` have gathered for themselves, as memtables.
    pub(crate) fn privates_of_others(&self, me: TxnId) -> Result<Vec<&Arc<Memtable<K>>>> {
        self.privates.iter().filter(|p| p.owner() != me).map(|p| p.sorted()).collect()
    }

    /// Another one than before, if anything was written into the tree since.
    pub(crate) fn stamp(&self) -> Stamp {
        Stamp(self.edits, self.active.versions() + self.privates.iter().map(|p| p.versions()).sum::<usize>())
    }

    /// Another number than before, in all likelihood, if anything was written into the tree since; not by a merge.
    fn written(&self) -> u64 {
        let newest = self.runs.iter().filter_map(RunHandle::seq_bounds).map(|(_, greatest)| greatest.0).max();
        newest.unwrap_or(0) + self.memtables().map(|m| m.versions() as u64).sum::<u64>()
    }

    /// What its memtables take.
    pub(crate) fn in_memory(&self) -> InMemory {
        let sum = |bytes: fn(&Memtable<K>) -> usize| self.memtables().map(|m| bytes(m) as u64).sum();
        InMemory { flushable_bytes: sum(Memtable::flushable_bytes), pinned_bytes: sum(Memtable::pinned_bytes) }
    }

    /// From where memtables need the log; none if there is nothing to flush.
    pub(crate) fn needs_from(&self) -> Option<Lsn> {
        self.memtables().filter(|m| m.wants_flush()).map(|m| m.needs_from()).min()
    }

    pub(crate) fn add_run(&mut self, handle: RunHandle<K>) {
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

    /// The runs whose bounds hold `key`.
    pub(crate) fn runs_at<'a, 'k>(
        &'a self,
        key: K::Ref<'k>,
    ) -> impl Iterator<Item = &'a RunHandle<K>> + use<'a, 'k, K> {
        self.runs_at_but(key, None)
    }

    /// The same without those that this transaction has noted.
    fn runs_at_but<'a, 'k>(
        &'a self,
        key: K::Ref<'k>,
        noted_by: Option<TxnId>,
    ) -> impl Iterator<Item = &'a RunHandle<K>> + use<'a, 'k, K> {
        self.levels().at(key, noted_by).map(|at| &self.runs[at])
    }

    /// In which levels its runs lie.
    pub(crate) fn levels(&self) -> &Levels<K> {
        self.levels.get_or_init(|| Arc::new(Levels::new(&self.runs)))
    }

    /// What its committed runs hold, about.
    pub(crate) fn in_runs(&self) -> InRuns {
        *self.in_runs.get_or_init(|| {
            let mut all = InRuns::default();
            for handle in self.runs.iter().filter(|r| r.owner.is_none()) {
                let share = handle.own_share();
                all.stored_bytes += handle.bytes();
                all.raw_bytes += (handle.run.stats.raw_bytes as f64 * share) as u64;
                all.versions += (handle.run.stats.rows as f64 * share) as u64;
            }
            all
        })
    }

    /// Brings what is derived from runs and marks up to date with them.
    fn settle(&mut self) {
        self.edits += 1;
        self.first_mark = crate::tree::marks::sort(&mut self.marks);
        self.levels = OnceLock::new();
        self.in_runs = OnceLock::new();
    }
}

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

/// One tree.
pub(crate) struct Tree<K: Stored = ByRow> {
    pub(crate) id: TreeId,
    /// What its blocks are made and read with.
    pub(crate) shape: K::Shape,
    pub(crate) state: RwLock<Arc<TreeState<K>>>,
    next_row: AtomicU64,
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
    /// Since when nobody writes to it.
    pub(crate) rest: Rest,
    /// Where background rounds find it.
    pub(crate) places: Places,
}

impl<K: Stored> Tree<K> {
    /// An empty tree that begins at `lsn`, with a memtable that nobody else has.
    pub(crate) fn new(id: TreeId, shape: K::Shape, mut memtable: Arc<Memtable<K>>, lsn: Lsn) -> Arc<Self> {
        if let Some(memtable) = Arc::get_mut(&mut memtable) {
            memtable.begin_at(lsn);
        }
        Self::with_state(id, shape, RowId(1), TreeState::new(memtable, lsn))
    }

    pub(crate) fn with_state(id: TreeId, shape: K::Shape, next_row: RowId, mut state: TreeState<K>) -> Arc<Self> {
        state.settle();
        let told = state.told.clone();
        let tree = Arc::new(Tree {
            id,
            shape,
            state: RwLock::new(&order::TREE_STATE, Arc::new(state)),
            next_row: AtomicU64::new(next_row.0.max(1)),
            flushing: Mutex::new(&order::TREE_FLUSHING, ()),
            merging: Mutex::new(&order::TREE_MERGING, ()),
            merge_health: Health::default(),
            merge_debt_bytes: AtomicU64::new(0),
            nothing_to_merge: AtomicU64::new(0),
            rest: Rest::default(),
            places: Places::default(),
        });
        let _ = told.tree.set(Arc::downgrade(&tree));
        tree
    }

    pub(crate) fn snapshot(&self) -> Arc<TreeState<K>> {
        self.state.read().clone()
    }

    /// Replaces the state by what `change` makes of it.
    pub(crate) fn edit<R>(&self, change: impl FnOnce(&mut TreeState<K>) -> R) -> R {
        let mut guard = self.state.write();
        let mut state = TreeState::clone(&guard);
        let result = change(&mut state);
        state.settle();
        *guard = Arc::new(state);
        // Whoever sees this state finds it told.
        self.is_to_be_saved();
        drop(guard);
        self.has_changed();
        result
    }

    /// Is there nothing to merge until its state changes?
    pub(crate) fn is_settled(&self) -> bool {
        let state = self.snapshot();
        let nothing = state.runs.is_empty() && state.marks.is_empty();
        let at_rest = self.nothing_to_merge.load(Ordering::Relaxed) == state.edits();
        nothing || (at_rest && state.dead_in_runs().is_none() && !state.has_news_of_looks())
    }

    /// Takes `rows` row ids that nobody else gets.
    pub(crate) fn reserve_rows(&self, rows: u64) -> RowId {
        let first = self.next_row.fetch_add(rows, Ordering::SeqCst);
        self.is_to_be_saved();
        RowId(first)
    }

    pub(crate) fn next_row(&self) -> RowId {
        RowId(self.next_row.load(Ordering::SeqCst))
    }

    /// Row ids up to `row` are taken.
    pub(crate) fn row_seen(&self, row: RowId) {
        self.next_row.fetch_max(row.0.saturating_add(1), Ordering::SeqCst);
        self.is_to_be_saved();
    }
}

/// The newest version of `key` that `view` sees in `state`, with its order; `private` is the looker's own memtable.
pub(crate) fn find<K: Stored>(
    state: &TreeState<K>,
    private: Option<&Arc<Memtable<K>>>,
    key: K::Ref<'_>,
    view: View,
) -> Result<Option<(VersionOrder, Found<K>)>> {
    look::<K, true>(state, private, key, view, None)
}

/// The same where a transaction has the key in none of the runs that it has noted.
fn find_but<K: Stored>(
    state: &TreeState<K>,
    private: Option<&Arc<Memtable<K>>>,
    key: K::Ref<'_>,
    view: View,
    noted_by: Option<TxnId>,
) -> Result<Option<(VersionOrder, Found<K>)>> {
    look::<K, true>(state, private, key, view, noted_by)
}

/// The same of a row, from memory alone: none, too, where a block that would have to be looked at is not there.
pub(crate) fn find_in_memory(state: &TreeState, row: RowId, view: View) -> Option<Found> {
    look::<ByRow, false>(state, None, row, view, None).ok().flatten().map(|(_, found)| found)
}

#[inline]
fn look<K: Stored, const READS: bool>(
    state: &TreeState<K>,
    private: Option<&Arc<Memtable<K>>>,
    key: K::Ref<'_>,
    view: View,
    but_noted_by: Option<TxnId>,
) -> Result<Option<(VersionOrder, Found<K>)>> {
    let mut best: Option<Seen<K>> = None;
    for mem in private.into_iter().chain(state.memtables()) {
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
    for handle in state.runs_at_but(key, but_noted_by) {
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
        while at < K::rows(&block) && K::cmp(K::key(&block, at), key).is_eq() {
            if let Some(order) = order_in_block::<K>(&block, at, seen, view, &aborted) {
                if best.as_ref().is_none_or(|b| order > b.order) {
                    *best = Some(Seen::in_block(&handle.run, offset, &block, at, order));
                }
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
