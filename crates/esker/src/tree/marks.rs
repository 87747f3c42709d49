//! Range marks: DELETE without WHERE as one version, and the rule by which a mark goes.
//!
//! A mark deletes versions that are older than itself, and never comes to delete others. So it can go
//!
//! - once a newer one deletes all that it deletes, and every view sees the newer one; or
//! - once every view sees it and nothing holds a version that it deletes: no run with such rows, and no memtable whose
//!   versions need the log from before the mark. A run may lose such rows to a merge, a memtable to a flush.
//!
//! Replay cannot bring back rows without the mark that deleted them. A row comes back from the log only if its commit is
//! not in a run yet: the log is replayed from a place before that commit, and the mark was committed later, so it comes
//! back too. What a flush or merge purged by a mark does not come back: that run's edit is in the log or the manifest, and
//! nothing before its `flushed_to` is replayed. That a mark comes back which had gone does no harm.
//!
//! Invariant of a tree's marks: committed ones come first, in the order of their commits ([`sort`]); marks that have
//! an owner last. So the newest mark that a view sees is found by search, and reading does not pay for the ones below.

use crate::tree::stored::Stored;
use crate::tree::{RunHandle, TreeState};
use crate::txn::state::TxnState;
use crate::version::{order_if_visible, VersionOrder, View};
use esker_format::{CommitSeq, LeafEntry, RowId, TxnId};
use std::sync::Arc;

/// All rows below `up_to` that were committed at `as_of` or before, or written earlier by the same transaction, are
/// deleted.
#[derive(Clone)]
pub(crate) struct RangeMark {
    pub(crate) owner: Option<Arc<TxnState>>,
    pub(crate) seq: CommitSeq,
    pub(crate) ordinal: u64,
    pub(crate) up_to: RowId,
    pub(crate) as_of: CommitSeq,
}

impl RangeMark {
    /// Of a transaction that has not ended.
    pub(crate) fn own(owner: Arc<TxnState>, ordinal: u64, up_to: RowId, as_of: CommitSeq) -> Self {
        owner.joins_a_tree();
        RangeMark { owner: Some(owner), seq: CommitSeq::ZERO, ordinal, up_to, as_of }
    }

    /// Does this mark, committed and seen by every view, delete this version of `row`?
    pub(crate) fn deletes(&self, row: RowId, order: VersionOrder) -> bool {
        row < self.up_to && (order.seq <= self.as_of || (order.seq == self.seq && order.ordinal < self.ordinal))
    }

    /// The mark's own place in the order of versions, if `view` sees it.
    pub(crate) fn order(&self, view: View) -> Option<VersionOrder> {
        match &self.owner {
            Some(owner) if owner.aborted().contains(self.ordinal) => None,
            Some(owner) => order_if_visible(view, owner.id, owner.status(), self.ordinal),
            None => order_if_visible(view, TxnId::ZERO, self.seq.0, self.ordinal),
        }
    }

    /// Does it delete all that `older` deletes? Both are committed.
    fn covers(&self, older: &RangeMark) -> bool {
        let of_its_own = older.seq == self.seq && older.ordinal < self.ordinal && older.as_of <= self.as_of;
        older.up_to <= self.up_to && (older.seq <= self.as_of || of_its_own)
    }

    /// Does it delete every row of the run?
    pub(crate) fn deletes_all_of<K: Stored>(&self, handle: &RunHandle<K>) -> bool {
        let Some((least, greatest)) = handle.seq_bounds() else { return false };
        let stats = &handle.run.stats;
        let of_its_own = least == self.seq && greatest == self.seq && stats.max_ordinal < self.ordinal;
        K::row_span(handle).1 < self.up_to && (greatest <= self.as_of || of_its_own)
    }

    /// May it delete some row of the run? Says no only if no block of it can hold one, as far as its index tells, which is
    /// read only `with_reading`.
    pub(crate) fn deletes_some_of<K: Stored>(&self, handle: &RunHandle<K>, with_reading: bool) -> bool {
        let Some((least, greatest)) = handle.seq_bounds() else { return false };
        let (stats, first) = (&handle.run.stats, K::row_span(handle).0);
        if !self.may_delete(first, (least, greatest), stats.min_ordinal) {
            return false;
        }
        let index = match with_reading && !handle.run.is_set_aside() {
            true => handle.run.index().ok(),
            false => handle.run.index_in_memory(),
        };
        let Some(index) = index else { return true };
        let bounds =
            |least, greatest| if handle.seq == CommitSeq::ZERO { (least, greatest) } else { (handle.seq, handle.seq) };
        let mut blocks = index.entries().iter().filter(|e| handle.meets(e)).map(LeafEntry::block);
        blocks.any(|e| self.may_delete(e.first_id.max(first), bounds(e.min_seq, e.max_seq), e.min_ordinal))
    }

    /// May it delete a row from `first` on, committed between these sequences, of this ordinal or a greater one?
    pub(crate) fn may_delete(&self, first: RowId, (least, greatest): (CommitSeq, CommitSeq), ordinal: u64) -> bool {
        let of_its_own = least <= self.seq && self.seq <= greatest && ordinal < self.ordinal;
        first < self.up_to && (least <= self.as_of || of_its_own)
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
        (least..=greatest).contains(&self.order.seq)
    }

    /// Does the mark delete this version of `row`?
    pub(crate) fn hides(&self, row: RowId, order: VersionOrder) -> bool {
        row < self.up_to
            && (order.seq <= self.as_of || (order.seq == self.order.seq && order.ordinal < self.order.ordinal))
    }
}

/// Puts marks in order, and tells for each committed one from where on marks count for whoever sees it as the newest:
/// those before are covered by it or by one between.
pub(crate) fn sort(marks: &mut [RangeMark]) -> Arc<[u32]> {
    let place = |m: &RangeMark| (m.owner.is_some(), m.seq, m.ordinal);
    if !marks.is_sorted_by_key(place) {
        marks.sort_by_key(place);
    }
    let committed = marks.iter().take_while(|m| m.owner.is_none());
    let (mut first, mut widest) = (0, RowId::ZERO);
    committed
        .enumerate()
        .map(|(i, m)| {
            // The one before has the greatest sequence of all before, or is of the same transaction and covers them.
            let before = i.checked_sub(1).map(|b| &marks[b]).filter(|b| m.up_to >= widest && m.covers(b));
            if before.is_some_and(|b| b.seq <= m.as_of || first as usize == i - 1) {
                first = i as u32;
            }
            widest = widest.max(m.up_to);
            first
        })
        .collect()
}

impl<K: Stored> TreeState<K> {
    /// The committed marks that count for whoever sees all commits up to `seq`.
    pub(crate) fn marks_at(&self, seq: CommitSeq) -> &[RangeMark] {
        let first = self.first_mark();
        let end = self.marks[..first.len()].partition_point(|m| m.seq <= seq);
        match end {
            0 => &[],
            n => &self.marks[first[n - 1] as usize..n],
        }
    }

    /// The marks that count for `view`.
    pub(crate) fn seen_marks(&self, view: View) -> Vec<SeenMark> {
        let owned = &self.marks[self.first_mark().len()..];
        let seen = |m: &RangeMark| Some(SeenMark { order: m.order(view)?, up_to: m.up_to, as_of: m.as_of });
        self.marks_at(view.seq).iter().chain(owned).filter_map(seen).collect()
    }

    /// Must this mark stay? `horizon` is what every view sees; see the module for the rule.
    fn keeps_mark(&self, at: usize, horizon: CommitSeq, with_reading: bool) -> bool {
        let mark = &self.marks[at];
        if mark.owner.is_some() || mark.seq > horizon {
            return true;
        }
        let count = self.marks_at(horizon);
        if !count.iter().any(|m| std::ptr::eq(m, mark)) {
            return false;
        }
        let in_memory = self.memtables().any(|m| !m.is_empty() && m.needs_from().0 <= mark.seq.0);
        // An owner may yet commit, or its transaction be the mark's own.
        in_memory || self.runs.iter().any(|h| h.owner.is_some() || mark.deletes_some_of(h, with_reading))
    }

    /// Is there a mark that can go? May read indexes of runs.
    pub(crate) fn has_needless_marks(&self, horizon: CommitSeq) -> bool {
        (0..self.marks.len()).any(|at| !self.keeps_mark(at, horizon, true))
    }

    /// Lets marks go that nobody needs. Reads nothing: it is called with the state locked.
    pub(crate) fn drop_needless_marks(&mut self, horizon: CommitSeq) {
        let keep: Vec<bool> = (0..self.marks.len()).map(|at| self.keeps_mark(at, horizon, false)).collect();
        let mut at = 0;
        self.marks.retain(|_| {
            at += 1;
            keep[at - 1]
        });
    }
}

#[cfg(test)]
mod tests;
