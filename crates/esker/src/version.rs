//! Which versions there are and who sees them: status words, the order of versions, views, ranges of rolled-back ordinals.
//!
//! Invariant: a version whose ordinal lies in an aborted range is never visible to anyone, its owner included.

use crate::sync::{order, RwLock};
use esker_format::{CommitSeq, TxnId};
use std::ops::Range;
use std::sync::Arc;

/// Status word: not ended.
pub(crate) const ACTIVE: u64 = 0;
/// Status word: rolled back.
pub(crate) const ABORTED: u64 = u64::MAX;

/// Who looks, and how far: everything committed up to `seq`, and what `me` wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct View {
    pub(crate) seq: CommitSeq,
    pub(crate) me: TxnId,
}

impl View {
    /// Everything that was committed by now, and what `me` wrote.
    pub(crate) fn newest(me: TxnId) -> Self {
        View { seq: CommitSeq(u64::MAX - 1), me }
    }
}

/// A version's place among those of its row: the greater one is the newer. The order of the fields is that order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct VersionOrder {
    /// When it was committed, or [`OWN`](Self::OWN).
    pub(crate) seq: CommitSeq,
    pub(crate) ordinal: u64,
}

// It goes about in two registers.
const _: () = assert!(size_of::<VersionOrder>() == 16);

impl VersionOrder {
    /// What the looker itself wrote and has not committed is newer than anything else.
    pub(crate) const OWN: CommitSeq = CommitSeq::MAX;

    #[inline]
    pub(crate) const fn new(seq: CommitSeq, ordinal: u64) -> Self {
        VersionOrder { seq, ordinal }
    }

    #[inline]
    pub(crate) fn is_own(self) -> bool {
        self.seq == Self::OWN
    }
}

/// Order of a version under `view` if it can be seen, given its transaction's status word.
pub(crate) fn order_if_visible(view: View, txn: TxnId, status: u64, ordinal: u64) -> Option<VersionOrder> {
    match status {
        ABORTED => None,
        ACTIVE if txn == view.me && view.me != TxnId::ZERO => Some(VersionOrder::new(VersionOrder::OWN, ordinal)),
        ACTIVE => None,
        // An own transaction that committed is no longer "me"; compare by sequence.
        seq if seq <= view.seq.0 => Some(VersionOrder::new(CommitSeq(seq), ordinal)),
        _ => None,
    }
}

/// Ranges of ordinals, sorted, disjoint.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct OrdinalRanges(pub(crate) Vec<Range<u64>>);

impl OrdinalRanges {
    /// None.
    pub(crate) const NONE: &'static OrdinalRanges = &OrdinalRanges(Vec::new());

    /// Adds `[from, to)`; ranges come with rising ends, a later one may swallow earlier ones.
    pub(crate) fn add(&mut self, from: u64, to: u64) {
        if from >= to {
            return;
        }
        while self.0.last().is_some_and(|l| l.start >= from) {
            self.0.pop();
        }
        match self.0.last_mut() {
            Some(l) if l.end >= from => l.end = to,
            _ => self.0.push(from..to),
        }
    }

    pub(crate) fn contains(&self, ordinal: u64) -> bool {
        let i = self.0.partition_point(|r| r.end <= ordinal);
        self.0.get(i).is_some_and(|r| r.start <= ordinal)
    }

    /// Is any ordinal from `least` to `greatest` aborted?
    pub(crate) fn meets(&self, least: u64, greatest: u64) -> bool {
        let i = self.0.partition_point(|r| r.end <= least);
        self.0.get(i).is_some_and(|r| r.start <= greatest)
    }

    /// Those that [`meets`](Self::meets) finds.
    pub(crate) fn meeting(&self, least: u64, greatest: u64) -> &[Range<u64>] {
        let from = self.0.partition_point(|r| r.end <= least);
        let some = &self.0[from..];
        &some[..some.partition_point(|r| r.start <= greatest)]
    }

    /// Is all of `[from, to)` aborted?
    pub(crate) fn covers(&self, from: u64, to: u64) -> bool {
        let i = self.0.partition_point(|r| r.end < to);
        self.0.get(i).is_some_and(|r| r.start <= from)
    }

    /// How many there are from `least` to `greatest`.
    pub(crate) fn count_within(&self, least: u64, greatest: u64) -> u64 {
        self.meeting(least, greatest).iter().map(|r| r.end.min(greatest + 1) - r.start.max(least)).sum()
    }

    /// How many there are from `from` on. Few ranges are looked at where these are the last ones.
    pub(crate) fn count_from(&self, from: u64) -> u64 {
        self.0.iter().rev().take_while(|r| r.end > from).map(|r| r.end - r.start.max(from)).sum()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The ordinals that a transaction has rolled back: one set, which the transaction and its places in memtables share.
#[derive(Debug)]
pub(crate) struct Aborted(RwLock<Arc<OrdinalRanges>>);

impl Aborted {
    pub(crate) fn new() -> Arc<Aborted> {
        Arc::new(Aborted(RwLock::new(&order::TXN_ABORTED, Arc::default())))
    }

    #[cfg(test)]
    pub(crate) fn of(from: u64, to: u64) -> Arc<Aborted> {
        let aborted = Aborted::new();
        aborted.add(from, to);
        aborted
    }

    pub(crate) fn contains(&self, ordinal: u64) -> bool {
        self.0.read().contains(ordinal)
    }

    /// In place, unless somebody holds what [`ranges`](Self::ranges) gave.
    pub(crate) fn add(&self, from: u64, to: u64) {
        Arc::make_mut(&mut self.0.write()).add(from, to);
    }

    pub(crate) fn ranges(&self) -> Arc<OrdinalRanges> {
        self.0.read().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_merge_and_swallow() {
        let mut r = OrdinalRanges::default();
        r.add(5, 8);
        r.add(10, 12);
        r.add(11, 15);
        assert_eq!(r.0, vec![5..8, 10..15]);
        let counts = [(0, 8), (5, 8), (6, 7), (8, 5), (9, 5), (12, 3), (15, 0), (99, 0)];
        assert!(counts.iter().all(|(from, count)| r.count_from(*from) == *count));
        assert!(r.contains(7) && !r.contains(8) && r.contains(14) && !r.contains(15));
        assert!(r.meets(1, 5) && r.meets(7, 7) && r.meets(8, 10) && r.meets(1, 99));
        assert!(!r.meets(1, 4) && !r.meets(8, 9) && !r.meets(15, 99));
        assert_eq!((r.meeting(1, 5), r.meeting(7, 10)), (&r.0[..1], &r.0[..]));
        assert_eq!(r.meeting(14, 99), &r.0[1..]);
        assert!(r.meeting(1, 4).is_empty() && r.meeting(8, 9).is_empty());
        assert!(r.meeting(15, 99).is_empty() && r.meeting(0, u64::MAX) == r.0);
        r.add(3, 20);
        assert!(r.0.len() == 1 && r.0[0] == (3..20));
        assert!(r.covers(4, 20) && !r.covers(2, 5));
    }

    #[test]
    fn visibility_follows_status() {
        let view = View { seq: CommitSeq(10), me: TxnId(7) };
        let order = |seq| Some(VersionOrder::new(seq, 3));
        assert_eq!(order_if_visible(view, TxnId(7), ACTIVE, 3), order(VersionOrder::OWN));
        assert_eq!(order_if_visible(view, TxnId(8), ACTIVE, 3), None);
        assert_eq!(order_if_visible(view, TxnId(8), 10, 3), order(CommitSeq(10)));
        assert_eq!(order_if_visible(view, TxnId(8), 11, 3), None);
        assert_eq!(order_if_visible(view, TxnId(8), ABORTED, 3), None);
    }
}
