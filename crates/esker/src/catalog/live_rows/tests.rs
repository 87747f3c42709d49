use super::*;
use crate::txn::views::ViewSlot;
use esker_format::TxnId;

/// A table's number beside what it must be, one row a sequence.
struct Model {
    views: Views,
    live: Arc<LiveRows>,
    /// The number after each commit.
    rows: Vec<i64>,
    entered: usize,
}

impl Model {
    fn new() -> Self {
        Model {
            views: Views::new(CommitSeq(1)),
            live: LiveRows::new(0, CommitSeq(1), true),
            rows: vec![0, 0],
            entered: 0,
        }
    }

    fn newest(&self) -> CommitSeq {
        CommitSeq(self.rows.len() as u64 - 1)
    }

    fn enter(&mut self, rows: i64) -> Arc<TxnState> {
        self.entered += 1;
        let state = TxnState::new(TxnId(self.entered as u64));
        self.live.enter(&self.views, &state, Some(rows));
        state
    }

    fn end(&mut self, state: &TxnState, rows: i64) {
        self.rows.push(self.rows[self.rows.len() - 1] + rows);
        let seq = self.newest();
        state.end(seq.0);
        self.views.publish(seq, state.status());
    }

    fn commit(&mut self, rows: i64) {
        let state = self.enter(rows);
        self.end(&state, rows);
    }

    fn view(&self) -> (Arc<ViewSlot>, CommitSeq) {
        let slot = self.views.register();
        let seq = self.views.open(&slot);
        (slot, seq)
    }

    #[track_caller]
    fn assert_sees(&self, view: CommitSeq) {
        assert_eq!(self.live.count(view), Some(self.rows[view.0 as usize]), "view {view}");
    }

    fn sums(&self) -> usize {
        self.live.0.lock().sums.len()
    }
}

#[test]
fn every_open_view_has_its_own_number_however_much_is_folded() {
    let mut m = Model::new();
    let mut views = Vec::new();
    for n in 1..2000i64 {
        if n % 150 == 0 {
            views.push(m.view());
        }
        m.commit(n % 7 - 2);
        views.iter().for_each(|(_, seq)| m.assert_sees(*seq));
        m.assert_sees(m.newest());
        assert!(m.sums() <= views.len() + 1 + UNFOLDED, "{} sums for {} views", m.sums(), views.len());
    }
    assert!(m.live.0.lock().base_seq <= views[0].1);
    // Between two views what nobody sees alone is one.
    assert!(m.sums() > views.len());
    let firsts: Vec<u64> = m.live.0.lock().sums.iter().map(|s| s.last.0 - s.first.0).collect();
    assert!(firsts.iter().filter(|wide| **wide > 100).count() >= views.len() - 1, "{firsts:?}");
    // They go, and with them all that was kept for them.
    views.clear();
    (0..=UNFOLDED as i64).for_each(|n| m.commit(n));
    m.assert_sees(m.newest());
    assert!(m.sums() <= UNFOLDED);
}

/// One that nobody told of, as it is opened while others fold.
#[test]
fn a_view_within_a_sum_knows_nothing() {
    let mut m = Model::new();
    let (_slot, old) = m.view();
    (0..200).for_each(|_| m.commit(1));
    m.assert_sees(old);
    assert_eq!(m.live.count(CommitSeq(50)), None);
    m.assert_sees(m.newest());
}

#[test]
fn what_has_not_ended_counts_for_nobody_and_keeps_nothing_back() {
    let mut m = Model::new();
    let (open, undone) = (m.enter(1000), m.enter(500));
    for _ in 0..300 {
        m.commit(1);
    }
    m.assert_sees(m.newest());
    assert!(m.sums() <= UNFOLDED);
    undone.end(ABORTED);
    m.commit(1);
    assert_eq!(m.live.0.lock().open.len(), 2, "the open one, and the last commit");
    m.end(&open, 1000);
    m.assert_sees(m.newest());
    m.assert_sees(CommitSeq(m.newest().0 - 1));
    assert_eq!(m.live.newest(), 1301);
}

/// Its status word is stored, and a commit before it is not visible yet: neither may be said to be counted.
#[test]
fn what_is_saved_ends_where_all_is_visible() {
    let mut m = Model::new();
    let (first, second) = (m.enter(1), m.enter(10));
    second.end(3);
    let saved = m.live.saved(CommitSeq(1));
    assert_eq!((saved.rows, saved.counted_at, saved.has_open), (0, CommitSeq(1), true));
    first.end(2);
    let saved = m.live.saved(CommitSeq(3));
    assert_eq!((saved.rows, saved.counted_at, saved.has_open), (11, CommitSeq(3), false));
    m.rows.extend([1, 11]);
    m.assert_sees(CommitSeq(2));
    m.assert_sees(CommitSeq(3));
}

#[test]
fn what_entered_twice_counts_once() {
    let mut m = Model::new();
    let state = m.enter(5);
    m.live.enter(&m.views, &state, Some(0));
    m.end(&state, 0);
    m.assert_sees(m.newest());
}

#[test]
fn nothing_is_known_from_a_commit_that_does_not_tell_until_somebody_counts() {
    let m = Model::new();
    let live = LiveRows::new(40, CommitSeq(1), false);
    assert_eq!((live.count(CommitSeq(1)), live.newest()), (None, 40));
    assert_eq!(live.saved(CommitSeq(1)).counted_at, CommitSeq::ZERO);
    live.counted(CommitSeq(1), 33);
    assert_eq!(live.count(CommitSeq(1)), Some(33));
    let state = TxnState::new(TxnId(1));
    live.enter(&m.views, &state, None);
    assert_eq!(live.count(CommitSeq(1)), Some(33), "it has not ended");
    state.end(5);
    assert_eq!(live.count(CommitSeq(7)), None);
    // An older view's count says nothing of it.
    live.counted(CommitSeq(4), 33);
    assert_eq!(live.count(CommitSeq(7)), None);
    live.counted(CommitSeq(7), 30);
    assert_eq!((live.count(CommitSeq(7)), live.saved(CommitSeq(7)).counted_at), (Some(30), CommitSeq(5)));
}
