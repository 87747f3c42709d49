//! How many rows a table has, exactly, for every view, without reading one.
//!
//! A transaction enters by how many rows it changes the table before its status word is stored; whether it was committed,
//! and when, that word says, so that a commit itself touches nothing here. A view sees the base, which has all commits up
//! to `base_seq`, and what those behind it changed that are not beyond the view. Who enters folds, now and then, what no view
//! can tell apart.
//!
//! Invariants: the base has no commit beyond the purge horizon; sums rise, and have no commit beyond `visible_seq`; a commit
//! that changed the number of rows is in the base, in one sum or among those that are open.

use crate::sync::{order, Mutex};
use crate::txn::state::TxnState;
use crate::txn::views::Views;
use crate::version::{ABORTED, ACTIVE};
use esker_format::CommitSeq;
use std::sync::Arc;

/// So many sums come before they are folded again.
const UNFOLDED: usize = 64;

/// See the module.
pub(crate) struct LiveRows(Mutex<State>);

struct State {
    base: i64,
    base_seq: CommitSeq,
    /// The newest commit of which nobody knows by how much it changed the number: from there on it is an estimate.
    unknown: Option<CommitSeq>,
    sums: Vec<Sum>,
    /// Those that had not ended when they were looked at last.
    open: Vec<Entered>,
    /// Sums that the last folding left.
    left: usize,
}

/// What the commits from one to another have changed; views do not lie between.
struct Sum {
    first: CommitSeq,
    last: CommitSeq,
    rows: i64,
}

struct Entered {
    state: Arc<TxnState>,
    /// Not known of one that an earlier version has prepared.
    rows: Option<i64>,
}

/// What the manifest says.
pub(crate) struct Saved {
    pub(crate) rows: u64,
    /// Of the newest commit that is in them; zero: they are an estimate.
    pub(crate) counted_at: CommitSeq,
    /// The end of a transaction may change it.
    pub(crate) has_open: bool,
}

impl LiveRows {
    /// So many after the commits up to `seq`, if that is `known`.
    pub(crate) fn new(rows: i64, seq: CommitSeq, known: bool) -> Arc<Self> {
        let unknown = (!known).then_some(seq);
        let state = State { base: rows, base_seq: seq, unknown, sums: Vec::new(), open: Vec::new(), left: 0 };
        Arc::new(LiveRows(Mutex::new(&order::LIVE_ROWS, state)))
    }

    /// A transaction that has not ended is about to change the number by `rows`, or by nobody knows how much. Another time
    /// replaces what it said before.
    pub(crate) fn enter(&self, views: &Views, state: &Arc<TxnState>, rows: Option<i64>) {
        let mut now = self.0.lock();
        match now.open.iter_mut().find(|e| Arc::ptr_eq(&e.state, state)) {
            Some(entered) => entered.rows = rows,
            None if rows == Some(0) => {}
            None => {
                now.settle(views.visible_seq());
                now.open.push(Entered { state: state.clone(), rows });
                if now.sums.len() >= now.left + UNFOLDED {
                    now.fold(views.horizon(), &views.open_seqs());
                }
            }
        }
    }

    /// As a registered view sees it; `None` where that is not known.
    pub(crate) fn count(&self, view: CommitSeq) -> Option<i64> {
        let mut now = self.0.lock();
        now.settle(view);
        match now.unknown {
            None => now.rows_at(view),
            Some(_) => None,
        }
    }

    /// A registered view has so many rows, as counting them has shown.
    pub(crate) fn counted(&self, view: CommitSeq, rows: i64) {
        let mut now = self.0.lock();
        now.settle(view);
        if let Some(known) = now.rows_at(view).filter(|_| now.unknown.is_none_or(|seq| seq <= view)) {
            now.base += rows - known;
            now.unknown = None;
        }
    }

    /// After all commits, as far as is known.
    pub(crate) fn newest(&self) -> u64 {
        let now = self.0.lock();
        let ended = now.open.iter().filter(|e| ![ACTIVE, ABORTED].contains(&e.state.status()));
        (now.all() + ended.filter_map(|e| e.rows).sum::<i64>()).max(0) as u64
    }

    /// After commits up to `visible` at least.
    pub(crate) fn saved(&self, visible: CommitSeq) -> Saved {
        let mut now = self.0.lock();
        now.settle(visible);
        let newest = now.sums.last().map_or(now.base_seq, |s| s.last);
        let counted_at = now.unknown.map_or(newest, |_| CommitSeq::ZERO);
        Saved { rows: now.all().max(0) as u64, counted_at, has_open: !now.open.is_empty() }
    }
}

impl State {
    /// Takes in how those have ended that are not beyond `visible`: the status words up to there are all stored.
    fn settle(&mut self, visible: CommitSeq) {
        let mut at = 0;
        while let Some(entered) = self.open.get(at) {
            match entered.state.status() {
                ACTIVE => at += 1,
                ABORTED => drop(self.open.swap_remove(at)),
                seq if seq > visible.0 => at += 1,
                seq => {
                    let rows = self.open.swap_remove(at).rows;
                    self.add(CommitSeq(seq), rows);
                }
            }
        }
    }

    fn add(&mut self, seq: CommitSeq, rows: Option<i64>) {
        if rows.is_none() {
            self.unknown = self.unknown.max(Some(seq));
        }
        let at = self.sums.partition_point(|s| s.last < seq);
        self.sums.insert(at, Sum { first: seq, last: seq, rows: rows.unwrap_or(0) });
    }

    /// What no view sees without seeing the rest becomes one: up to `horizon`, and between two of those that are `open`,
    /// the oldest first. A view of which neither tells lies within a sum, and nothing is known for it.
    fn fold(&mut self, horizon: CommitSeq, open: &[CommitSeq]) {
        let seen = self.sums.partition_point(|s| s.last <= horizon);
        for sum in self.sums.drain(..seen) {
            self.base += sum.rows;
            self.base_seq = sum.last;
        }
        self.sums.dedup_by(|next, sum| {
            let view = open.get(open.partition_point(|view| *view < sum.last));
            let one = view.is_none_or(|view| *view >= next.last);
            if one {
                sum.last = next.last;
                sum.rows += next.rows;
            }
            one
        });
        self.left = self.sums.len();
    }

    fn rows_at(&self, view: CommitSeq) -> Option<i64> {
        let seen = self.sums.partition_point(|s| s.last <= view);
        let is_within = self.sums.get(seen).is_some_and(|s| s.first <= view);
        (!is_within).then(|| self.base + rows_of(&self.sums[..seen]))
    }

    fn all(&self) -> i64 {
        self.base + rows_of(&self.sums)
    }
}

fn rows_of(sums: &[Sum]) -> i64 {
    sums.iter().map(|s| s.rows).sum()
}

#[cfg(test)]
mod tests;
