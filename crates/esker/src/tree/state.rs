//! What a tree consists of at one moment, and what is derived from that.
//!
//! Invariant: what is derived from runs and marks is made anew by every edit, or when it is first asked for after one.

use crate::tree::dead::DeadKeys;
use crate::tree::key::ByRow;
use crate::tree::levels::Levels;
use crate::tree::memtable::Memtable;
use crate::tree::private::Private;
use crate::tree::stored::Stored;
use crate::tree::{RangeMark, RunHandle};
use crate::Result;
use esker_format::{Lsn, TxnId};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

/// What the memtables of a tree take.
#[derive(Debug, Clone, Copy)]
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
    /// It has, or had since it was opened, a mark.
    pub(crate) was_marked: bool,
    /// Commits before this LSN are in runs.
    pub(crate) flushed_to: Lsn,
    /// It was emptied for good.
    pub(crate) is_discarded: bool,
    /// Where readers tell of dead keys.
    pub(super) told: Arc<DeadKeys<K>>,
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
            was_marked: self.was_marked,
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
            was_marked: false,
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
        let privates = self.privates.iter().map(|p| p.versions()).sum::<usize>();
        Stamp { edits: self.edits, active: self.active.id, versions: self.active.versions() + privates }
    }

    /// Another number than before, in all likelihood, if anything was written into the tree since, or merged.
    pub(super) fn written(&self) -> u64 {
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

    /// Has the tree not been edited since? Takes no lock.
    pub(crate) fn is_newest_edit(&self) -> bool {
        self.told.newest_edit.load(Ordering::Relaxed) == self.edits
    }

    /// The runs whose bounds hold `key`.
    pub(crate) fn runs_at<'a, 'k>(
        &'a self,
        key: K::Ref<'k>,
    ) -> impl Iterator<Item = &'a RunHandle<K>> + use<'a, 'k, K> {
        self.runs_at_but(key, None)
    }

    /// The same without those that this transaction has noted.
    pub(super) fn runs_at_but<'a, 'k>(
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

    /// Bytes of memory in its memtables.
    pub(crate) fn memtable_bytes(&self) -> u64 {
        self.memtables().filter(|m| !m.is_empty()).map(|m| m.used_bytes() as u64).sum()
    }

    /// Brings what is derived from runs and marks up to date with them.
    pub(super) fn settle(&mut self) {
        self.edits += 1;
        self.told.newest_edit.store(self.edits, Ordering::Relaxed);
        self.first_mark = crate::tree::marks::sort(&mut self.marks);
        self.was_marked |= !self.marks.is_empty();
        self.levels = OnceLock::new();
        self.in_runs = OnceLock::new();
    }
}

/// See [`TreeState::stamp`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Stamp {
    edits: u64,
    /// The memtable by its id: a new one, which a flush puts in place without an edit, counts its versions from none on.
    active: u64,
    versions: usize,
}

impl Stamp {
    /// After so many more versions were put, if nothing else happens.
    pub(crate) fn after(self, puts: usize) -> Stamp {
        Stamp { versions: self.versions + puts, ..self }
    }
}
