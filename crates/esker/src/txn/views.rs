//! Read views: who sees how far, and what purge must therefore keep.
//!
//! Owns `visible_seq`, the newest commit sequence below which every status word is stored, and one slot a session with
//! the oldest sequence that session may still ask for. Invariant: `horizon()` never exceeds a sequence that a
//! registered view uses. The reader's store and the horizon's scan order each other by sequentially consistent
//! accesses (Dekker): a reader publishes its slot, then checks that no horizon has passed it.

use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{order, Mutex};
use esker_format::CommitSeq;
use std::sync::Arc;

const NONE: u64 = u64::MAX;

/// One session's oldest view.
pub(crate) struct ViewSlot(AtomicU64);

impl ViewSlot {
    /// The oldest view that it keeps, if any.
    pub(crate) fn oldest(&self) -> Option<CommitSeq> {
        Some(CommitSeq(self.0.load(Ordering::Relaxed))).filter(|seq| seq.0 != NONE)
    }

    /// Lets go of the session's views.
    pub(crate) fn clear(&self) {
        self.0.store(NONE, Ordering::Release);
    }
}

/// All sessions' views.
pub(crate) struct Views {
    visible: AtomicU64,
    horizon: AtomicU64,
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
            horizon: AtomicU64::new(0),
            slots: Mutex::new(&order::VIEWS_SLOTS, Vec::new()),
            #[cfg(test)]
            scans: std::sync::atomic::AtomicU64::new(0),
        }
    }

    pub(crate) fn register(&self) -> Arc<ViewSlot> {
        let slot = Arc::new(ViewSlot(AtomicU64::new(NONE)));
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

    /// Opens a view in `slot`, which keeps the older of what it has and this.
    pub(crate) fn open(&self, slot: &ViewSlot) -> CommitSeq {
        loop {
            let seq = self.visible.load(Ordering::SeqCst);
            let kept = slot.0.load(Ordering::Relaxed).min(seq);
            slot.0.store(kept, Ordering::SeqCst);
            if self.horizon.load(Ordering::SeqCst) <= seq {
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
        let oldest = || slots.iter().map(|s| s.0.load(Ordering::SeqCst)).min().unwrap_or(NONE);
        let candidate = self.visible.load(Ordering::SeqCst).min(oldest());
        self.horizon.fetch_max(candidate, Ordering::SeqCst);
        // A view that was opening at the same time either shows here or sees the horizon and takes a newer sequence.
        CommitSeq(candidate.min(oldest()))
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
