//! Read views: who sees how far, and what purge must therefore keep.
//!
//! Owns `visible_seq`, the newest commit sequence below which every status word is stored, and one slot a session with
//! the oldest and the newest sequence that this session may still ask for, and perhaps any between. Invariant: neither
//! `horizon()` nor what [`SeenByViews`] says to be seen by nobody comes to a sequence that a registered view uses, or will. The
//! reader's stores and the purger's scan order each other by sequentially consistent accesses (Dekker): a reader publishes its
//! slot, then checks that no purge has passed it.

use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{order, Mutex};
use esker_format::CommitSeq;
use std::sync::Arc;

const NONE: u64 = u64::MAX;

/// One session's views.
pub(crate) struct ViewSlot {
    oldest: AtomicU64,
    /// Of a view that the session has or had: none that it opens later is older.
    newest: AtomicU64,
}

impl ViewSlot {
    /// The oldest view that it keeps, if any.
    pub(crate) fn oldest(&self) -> Option<CommitSeq> {
        Some(CommitSeq(self.oldest.load(Ordering::Relaxed))).filter(|seq| seq.0 != NONE)
    }

    /// Lets go of the session's views.
    pub(crate) fn clear(&self) {
        self.oldest.store(NONE, Ordering::Release);
    }

    /// Its oldest view and its newest one, or a later one.
    fn span(&self) -> Option<(u64, u64)> {
        let oldest = self.oldest.load(Ordering::SeqCst);
        (oldest != NONE).then(|| (oldest, self.newest.load(Ordering::SeqCst).max(oldest)))
    }
}

/// What views see, those that are open and those that will be.
pub(crate) struct SeenByViews {
    /// As [`Views::horizon`].
    pub(crate) horizon: CommitSeq,
    /// From sessions' oldest views to their newest, in their order, apart from each other.
    spans: Vec<(u64, u64)>,
    /// No view that opens is older.
    visible: u64,
}

impl SeenByViews {
    fn new(mut spans: Vec<(u64, u64)>, visible: u64) -> Self {
        spans.sort_unstable();
        spans.dedup_by(|next, before| {
            let meets = next.0 <= before.1;
            before.1 = if meets { before.1.max(next.1) } else { before.1 };
            meets
        });
        let horizon = CommitSeq(spans.first().map_or(visible, |(oldest, _)| visible.min(*oldest)));
        SeenByViews { horizon, spans, visible }
    }

    /// May a view see a version of this sequence, over which its key has one of a `newer` sequence?
    pub(crate) fn is_seen(&self, seq: CommitSeq, newer: CommitSeq) -> bool {
        let next = self.spans.partition_point(|(_, newest)| *newest < seq.0);
        newer.0 > self.visible || self.spans.get(next).is_some_and(|(oldest, _)| *oldest < newer.0)
    }
}

/// All sessions' views.
pub(crate) struct Views {
    visible: AtomicU64,
    /// No view opens that is older.
    passed: AtomicU64,
    slots: Mutex<Vec<Arc<ViewSlot>>>,
    /// How often all slots were looked at.
    #[cfg(test)]
    pub(crate) scans: std::sync::atomic::AtomicU64,
}

/// Has the slot a session still?
fn in_use(slot: &Arc<ViewSlot>) -> bool {
    Arc::strong_count(slot) > 1
}

impl Views {
    pub(crate) fn new(visible: CommitSeq) -> Self {
        Views {
            visible: AtomicU64::new(visible.0),
            passed: AtomicU64::new(0),
            slots: Mutex::new(&order::VIEWS_SLOTS, Vec::new()),
            #[cfg(test)]
            scans: std::sync::atomic::AtomicU64::new(0),
        }
    }

    pub(crate) fn register(&self) -> Arc<ViewSlot> {
        let slot = Arc::new(ViewSlot { oldest: AtomicU64::new(NONE), newest: AtomicU64::new(0) });
        let mut slots = self.slots.lock();
        if slots.len() == slots.capacity() {
            // Before it would grow: a look at each, for as many sessions as there are places.
            slots.retain(in_use);
        }
        slots.push(slot.clone());
        slot
    }

    /// The newest sequence that a view may use.
    pub(crate) fn visible_seq(&self) -> CommitSeq {
        CommitSeq(self.visible.load(Ordering::SeqCst))
    }

    /// Makes everything up to `seq` visible. Called under the commit lock, with rising sequences; `status` is the status
    /// word of the transaction that committed at `seq`, stored by now.
    pub(crate) fn publish(&self, seq: CommitSeq, status: u64) {
        assert_eq!(status, seq.0, "a commit must have its status word before it is visible");
        let old = self.visible.swap(seq.0, Ordering::SeqCst);
        assert!(old <= seq.0, "visible_seq went back from {old} to {seq}");
    }

    /// Opens a view in `slot`, which keeps what it has and this.
    pub(crate) fn open(&self, slot: &ViewSlot) -> CommitSeq {
        loop {
            let seq = self.visible.load(Ordering::SeqCst);
            let oldest = slot.oldest.load(Ordering::Relaxed).min(seq);
            // First: who sees the one must see the other.
            slot.newest.store(seq, Ordering::SeqCst);
            slot.oldest.store(oldest, Ordering::SeqCst);
            if self.passed.load(Ordering::SeqCst) <= seq {
                return CommitSeq(seq);
            }
            // A purge has passed this sequence meanwhile: what is visible now has moved on too.
        }
    }

    /// The oldest view of each session that has any, the oldest first.
    pub(crate) fn open_seqs(&self) -> Vec<CommitSeq> {
        let mut seqs: Vec<_> = self.slots.lock().iter().filter_map(|s| s.oldest()).collect();
        seqs.sort_unstable();
        seqs
    }

    /// The oldest sequence that any view uses or will use: for a row, every version older than the newest one at or
    /// before it is dead. It looks at every session, twice: whoever asks for many tables asks once and passes it on.
    ///
    /// That is safe for as long as one likes: no open view is older, and none that opens will be, since whoever finds the
    /// horizon beyond its sequence takes a newer one. A horizon of before only keeps more.
    pub(crate) fn horizon(&self) -> CommitSeq {
        #[cfg(test)]
        self.scans.fetch_add(1, Ordering::Relaxed);
        let mut slots = self.slots.lock();
        slots.retain(in_use);
        let oldest = || slots.iter().map(|s| s.oldest.load(Ordering::SeqCst)).min().unwrap_or(NONE);
        let candidate = self.visible.load(Ordering::SeqCst).min(oldest());
        self.passed.fetch_max(candidate, Ordering::SeqCst);
        // A view that was opening at the same time either shows here or sees that it was passed and takes a newer sequence.
        CommitSeq(candidate.min(oldest()))
    }

    /// What purge must keep, between open views, too. Safe for as long as the horizon is: views that open take what is visible.
    pub(crate) fn kept(&self) -> SeenByViews {
        let mut slots = self.slots.lock();
        slots.retain(in_use);
        let visible = self.visible.load(Ordering::SeqCst);
        self.passed.fetch_max(visible, Ordering::SeqCst);
        // As above.
        SeenByViews::new(slots.iter().filter_map(|slot| slot.span()).collect(), visible)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn horizon_waits_for_the_oldest_view() {
        let v = Views::new(CommitSeq(5));
        let (a, b) = (v.register(), v.register());
        assert_eq!(v.open(&a), CommitSeq(5));
        v.publish(CommitSeq(9), 9);
        assert_eq!(v.open(&b), CommitSeq(9));
        assert_eq!(v.horizon(), CommitSeq(5));
        a.clear();
        assert_eq!(v.horizon(), CommitSeq(9));
        drop(b);
        v.publish(CommitSeq(12), 12);
        assert_eq!(v.horizon(), CommitSeq(12));
    }
    /// Sessions that are gone keep nothing back, and leave no slot.
    #[test]
    fn slots_go_with_their_sessions() {
        let v = Views::new(CommitSeq(5));
        for _ in 0..1000 {
            let slot = v.register();
            v.open(&slot);
            slot.clear();
        }
        assert!(v.slots.lock().len() < 10);
        v.publish(CommitSeq(6), 6);
        assert_eq!(v.horizon(), CommitSeq(6));
        assert!(v.slots.lock().is_empty());
    }

    /// A round over many tables looks at the sessions once, and once more for each merge it does.
    #[test]
    fn a_round_of_merging_asks_once() {
        let (engine, table) = crate::tests::support::engine();
        let def = crate::TableDef {
            layout: esker_format::Layout::clone(table.layout()),
            format: esker_format::RowFormat::Dynamic,
            compression: esker_format::Compression::None,
            temporary: false,
            indexes: vec![],
            extra: vec![],
        };
        for n in 0..40 {
            engine.create_table(&format!("t{n}"), &def).unwrap();
            crate::tests::support::fill_and_commit(&engine, &engine.open_table(&format!("t{n}")).unwrap(), 2);
        }
        engine.checkpoint().unwrap();
        let scans = |engine: &crate::Engine| engine.core.views.scans.load(Ordering::Relaxed);
        let before = scans(&engine);
        assert!(!crate::upkeep::background::merge_somewhere(&engine.core).unwrap());
        assert_eq!(scans(&engine) - before, 1);
    }
}
