//! A run in its tree: whose it is, how a view sees it, and which of its keys count.

use crate::tree::key::ByRow;
use crate::tree::run::index::Index;
use crate::tree::run::Run;
use crate::tree::stored::Stored;
use crate::txn::state::TxnState;
use crate::version::{order_if_visible, OrdinalRanges, VersionOrder, View};
use esker_format::{CommitSeq, TxnId};
use std::ops::Deref;
use std::sync::atomic::Ordering;
use std::sync::Arc;

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

/// Ordinals that the transaction of a run has undone.
pub(crate) enum Aborted<'a> {
    SoFar(Arc<OrdinalRanges>),
    AtItsEnd(&'a OrdinalRanges),
}

impl Deref for Aborted<'_> {
    type Target = OrdinalRanges;

    #[inline]
    fn deref(&self) -> &OrdinalRanges {
        match self {
            Aborted::SoFar(ranges) => ranges,
            Aborted::AtItsEnd(ranges) => ranges,
        }
    }
}

impl<K: Stored> RunHandle<K> {
    /// Of a whole run whose transaction has not ended.
    pub(crate) fn private(run: Arc<Run<K>>, owner: Arc<TxnState>) -> Self {
        owner.joins_a_tree();
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
        if K::cmp(first, own_first).is_eq() && K::cmp(last, own_last).is_eq() && self.is_whole() {
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

    /// Does it cover all of its run? Of a run that was opened after merges had taken keys of it only the index tells, while that is in memory; and
    /// but for less than a block at its ends.
    pub(crate) fn is_whole(&self) -> bool {
        let (first, last) = (K::lend(&self.first), K::lend(&self.last));
        let ends_there = |index: &Index<K>| index.entries().last().is_none_or(|e| K::cmp(K::first(e), last).is_le());
        (&self.first, &self.last) == (&self.run.bounds.0, &self.run.bounds.1)
            && self.run.index_in_memory().is_none_or(|i| i.block_at_or_after(first) == 0 && ends_there(&i))
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
    pub(super) fn age(&self) -> CommitSeq {
        match &self.owner {
            Some(_) => VersionOrder::OWN,
            None => self.seq.max(self.run.stats.max_seq),
        }
    }

    /// What was undone of it, for a look at it now: of a committed run nothing is counted, as many look at one.
    #[inline]
    pub(crate) fn aborted(&self) -> Aborted<'_> {
        match &self.owner {
            Some(owner) => Aborted::SoFar(owner.aborted()),
            None => Aborted::AtItsEnd(&self.aborted),
        }
    }

    /// The same for longer.
    pub(crate) fn keep_aborted(&self) -> Arc<OrdinalRanges> {
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
