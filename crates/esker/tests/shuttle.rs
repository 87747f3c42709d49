//! The engine's lock-free parts under thousands of orders of threads, chosen by shuttle: the memtable, read views against
//! the purge horizon, and freeze against commit, in one phase and in two.
//!
//! `arena.rs`, `memtable.rs` with `node.rs`, `search.rs` and `together.rs`, `decisions.rs`, `state.rs`, `version.rs` and `views.rs` are taken in as they are, over shuttle's atomics and locks. A tree's
//! state, the log and the commit lock are models here, each with the name of what it mirrors; whoever changes that order
//! in `write.rs`, `commit.rs` or `flush.rs` changes it here. Shuttle's threads see each other's writes at once: what
//! depends on weak memory it does not show. A failure prints how to replay it.

#![allow(dead_code, unused_imports, missing_docs, clippy::unwrap_used)]

#[path = "../src/tree/arena.rs"]
mod arena;
#[path = "../src/txn/decisions.rs"]
mod decisions;
#[path = "../src/tree/fences.rs"]
mod fences;
#[path = "../src/tree/key.rs"]
mod key;
#[path = "model/log.rs"]
mod log;
#[path = "../src/tree/memtable.rs"]
mod memtable;
#[path = "../src/tree/node.rs"]
mod node;
#[path = "../src/tree/search.rs"]
mod search;
#[path = "../src/txn/state.rs"]
mod state;
#[path = "model/sync.rs"]
mod sync;
#[path = "../src/tally.rs"]
mod tally;
#[path = "../src/tree/together.rs"]
mod together;
#[path = "../src/version.rs"]
mod version;
#[path = "../src/txn/views.rs"]
mod views;

/// The engine's rooms, as far as these sources use them.
mod txn {
    pub(crate) use crate::{state, views};
}

mod tree {
    pub(crate) use crate::{arena, fences, key, memtable, node, search, together};

    /// What flushes move to runs plays no part here.
    pub(crate) mod run {
        pub(crate) struct MovedRun;
    }
}

/// Nor do locks.
mod lock {
    pub(crate) struct LockOwner;
    impl LockOwner {
        pub(crate) fn new(_txn: esker_format::TxnId) -> std::sync::Arc<Self> {
            std::sync::Arc::new(LockOwner)
        }
        pub(crate) fn begins_anew(&mut self, _txn: esker_format::TxnId) {}
    }
}

pub(crate) use esker::{Error, Result};

use decisions::{Decision, Decisions};
use esker_format::{CommitSeq, Lsn, RowId, TxnId};
use log::{Log, Manifest, Record};
use memtable::{Change, Memtable};
use shuttle::thread;
use state::TxnState;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use sync::atomic::{AtomicBool, AtomicU64, Ordering};
use sync::{order, Mutex, RwLock};
use version::{View, ABORTED, ACTIVE};
use views::Views;

fn main() {
    let rounds = |standard: usize| match std::env::var("ESKER_SHUTTLE_ROUNDS").map(|n| n.parse::<usize>()) {
        Ok(Ok(rounds)) => rounds,
        _ => standard,
    };
    let all: [(&str, fn(), usize); 5] = [
        ("memtable: inserts from several threads, and a reader", memtable_inserts, 1500),
        ("views: no horizon passes an open view", views_and_horizon, 6000),
        ("freeze and commit: every commit is in the run or behind the boundary", freeze_and_commit, 3000),
        (
            "freeze and commit_ordered: a restart finds what was decided, and who was not",
            freeze_and_commit_ordered,
            3000,
        ),
        ("rollback to a savepoint while the memtable changes", savepoint_and_freeze, 1500),
    ];
    for (name, what, standard) in all {
        let rounds = rounds(standard);
        println!("{name}: {rounds} orders by chance, {rounds} by priority");
        shuttle::check_random(what, rounds);
        shuttle::check_pct(what, rounds, 3);
    }
}

fn packed(row: u64, ordinal: u64) -> Vec<u8> {
    format!("row {row}, change {ordinal}").into_bytes()
}

/// Puts a version as the transaction `state`.
fn put(mem: &Arc<Memtable>, state: &TxnState, row: u64, ordinal: u64) {
    let slot = state.slot_in(mem).unwrap();
    // SAFETY: the slot is of this memtable, and nobody else writes the row under this ordinal.
    unsafe { mem.put(RowId(row), slot, Change::of_row(ordinal, Some(&packed(row, ordinal)), false)).unwrap() };
}

/// Puts versions of rows, with ordinals from 1 on.
type Put = fn(&Arc<Memtable>, &TxnState, &[u64]);

fn put_alone(mem: &Arc<Memtable>, state: &TxnState, rows: &[u64]) {
    rows.iter().zip(1..).for_each(|(row, ordinal)| put(mem, state, *row, ordinal));
}

/// The same, each from the place of the one before.
fn put_behind(mem: &Arc<Memtable>, state: &TxnState, rows: &[u64]) {
    let (slot, mut last) = (state.slot_in(mem).unwrap(), [std::ptr::null(); 2]);
    for (row, ordinal) in rows.iter().zip(1..) {
        let packed = packed(*row, ordinal);
        // SAFETY: as for `put`, and the place is of this memtable.
        unsafe {
            mem.put_behind(&mut last, RowId(*row), slot, Change::of_row(ordinal, Some(&packed), false)).unwrap();
        }
    }
}

/// The same, all at once.
fn put_together(mem: &Arc<Memtable>, state: &TxnState, rows: &[u64]) {
    let slot = state.slot_in(mem).unwrap();
    let packed: Vec<_> =
        rows.iter().zip(1..).map(|(row, ordinal)| (RowId(*row), ordinal, packed(*row, ordinal))).collect();
    let wanted: Vec<_> =
        packed.iter().map(|(row, n, packed)| (*row, Change::of_row(*n, Some(packed), false))).collect();
    // SAFETY: as for `put`.
    unsafe { mem.put_each(slot, &wanted).unwrap() };
}

/// All that is linked, checked: rows rise, and each version has its bytes.
fn contents(mem: &Memtable) -> BTreeMap<u64, Vec<(u64, u64)>> {
    let mut found = BTreeMap::new();
    let mut node = mem.first();
    let mut last = 0;
    while let Some(n) = node {
        assert!(n.key().0 > last, "row {} stands behind row {last}", n.key());
        last = n.key().0;
        let mut versions = Vec::new();
        for v in n.versions() {
            assert_eq!(v.value(), packed(last, v.ordinal), "a version was linked before it was whole");
            versions.push((v.slot().txn.0, v.ordinal));
        }
        found.insert(last, versions);
        node = mem.after(n);
    }
    found
}

fn memtable_inserts() {
    let mem = Memtable::<key::ByRow>::new(Lsn(1)).unwrap();
    // Towers of several heights, and rows that two threads write.
    let rows: [&[u64]; 3] = [&[2, 9, 4, 12], &[3, 9, 1, 12], &[12, 5, 4, 7]];
    let ways: [Put; 3] = [put_alone, put_behind, put_together];
    let writers: Vec<_> = (0..3)
        .map(|t| {
            let mem = mem.clone();
            thread::spawn(move || {
                let state = TxnState::new(TxnId(t as u64 + 1));
                ways[t](&mem, &state, rows[t]);
                state
            })
        })
        .collect();
    let reader = {
        let mem = mem.clone();
        thread::spawn(move || {
            let mut before: BTreeMap<u64, Vec<(u64, u64)>> = BTreeMap::new();
            for _ in 0..3 {
                let now = contents(&mem);
                find_together(&mem, now.keys().copied());
                for (row, versions) in before {
                    // What was seen once stays, in its order, below what is newer.
                    assert!(now[&row].ends_with(&versions), "row {row}: {versions:?}, then {:?}", now[&row]);
                }
                before = now;
            }
        })
    };
    let _states: Vec<_> = writers.into_iter().map(|w| w.join().unwrap()).collect();
    reader.join().unwrap();
    let found = contents(&mem);
    let mut versions: Vec<(u64, u64, u64)> = Vec::new();
    for (t, rows) in rows.iter().enumerate() {
        versions.extend(rows.iter().enumerate().map(|(i, row)| (*row, t as u64 + 1, i as u64 + 1)));
    }
    for (row, txn, ordinal) in &versions {
        assert!(found[row].contains(&(*txn, *ordinal)), "row {row} lost a version");
        assert_eq!(mem.seek(RowId(*row)).map(|n| n.key().0), Some(*row), "not found by its tower");
    }
    find_together(&mem, found.keys().copied());
    assert_eq!(found.values().map(Vec::len).sum::<usize>(), versions.len());
}

/// Rows that are there are found, whatever comes meanwhile.
fn find_together(mem: &Memtable, rows: impl Iterator<Item = u64>) {
    let wanted: Vec<_> = rows.map(|row| (mem, RowId(row))).collect();
    search::seek_each(&wanted, |i, spot| {
        // SAFETY: null, or a node of the memtable.
        assert_eq!(unsafe { spot.next.as_ref() }.map(|node| node.key()), Some(wanted[i].1), "not found with others");
    });
}

fn views_and_horizon() {
    let views = Arc::new(Views::new(CommitSeq(10)));
    // The greatest horizon that a purge has worked with, and the sequences of which it took what nobody sees: bits.
    let purged = Arc::new(AtomicU64::new(0));
    let gone = Arc::new(AtomicU64::new(0));
    let committer = {
        let views = views.clone();
        thread::spawn(move || [20, 30].into_iter().for_each(|seq| views.publish(CommitSeq(seq), seq)))
    };
    let purger = {
        let (views, purged, gone) = (views.clone(), purged.clone(), gone.clone());
        thread::spawn(move || {
            for between in [false, true, true] {
                if !between {
                    purged.fetch_max(views.horizon().0, Ordering::SeqCst);
                    continue;
                }
                let kept = views.kept();
                purged.fetch_max(kept.horizon.0, Ordering::SeqCst);
                for (seq, newer) in [(10, 20), (20, 30)] {
                    let is_gone = !kept.is_seen(CommitSeq(seq), CommitSeq(newer));
                    gone.fetch_or(u64::from(is_gone) << seq, Ordering::SeqCst);
                }
            }
        })
    };
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let (views, purged, gone) = (views.clone(), purged.clone(), gone.clone());
            thread::spawn(move || {
                let slot = views.register();
                let seq = views.open(&slot);
                let look = |later: CommitSeq| {
                    assert!(purged.load(Ordering::SeqCst) <= seq.0, "purged beyond the open view {seq}");
                    let gone = gone.load(Ordering::SeqCst);
                    assert!(
                        [seq, later].iter().all(|seq| gone >> seq.0 & 1 == 0),
                        "what {seq} or {later} sees is gone"
                    );
                };
                look(seq);
                // A later view of the same session keeps the first.
                let later = views.open(&slot);
                assert!(later >= seq);
                look(later);
                look(later);
                slot.clear();
                assert!(views.open(&slot).0 >= purged.load(Ordering::SeqCst).min(10), "it goes on after clear");
                slot.clear();
            })
        })
        .collect();
    for t in readers.into_iter().chain([committer, purger]) {
        t.join().unwrap();
    }
    assert_eq!(views.horizon(), CommitSeq(30), "closed views keep nothing");
}

/// As `TreeState`: of runs only what matters here, which commit of which row they hold.
#[derive(Clone)]
struct State {
    active: Arc<Memtable>,
    frozen: Option<Arc<Memtable>>,
    run: BTreeMap<u64, u64>,
    flushed_to: u64,
}

/// A transaction and its rows.
type Prepared = (Arc<TxnState>, Vec<u64>);

/// As `Core` and one `Tree`.
struct Model {
    state: RwLock<Arc<State>>,
    commit_lock: Mutex<()>,
    decisions: Decisions<TxnId>,
    log: Log,
    views: Views,
    writers: Mutex<HashMap<TxnId, Arc<TxnState>>>,
    /// Transactions between prepare and decision, with their rows.
    prepared: Mutex<BTreeMap<u64, Prepared>>,
    /// What checkpoints have said, all of them: any of them may be the last that is durable.
    manifests: Mutex<Vec<Manifest>>,
    /// What was committed: row and commit sequence.
    committed: shuttle::sync::Mutex<BTreeMap<u64, u64>>,
}

impl Model {
    fn new() -> Arc<Model> {
        let active = Memtable::<key::ByRow>::new(Lsn(100)).unwrap();
        let state = State { active, frozen: None, run: BTreeMap::new(), flushed_to: 100 };
        Arc::new(Model {
            state: RwLock::new(&order::TREE_STATE, Arc::new(state)),
            commit_lock: Mutex::new(&order::COMMIT, ()),
            decisions: Decisions::new(),
            log: Log::new(),
            views: Views::new(CommitSeq(99)),
            writers: Mutex::new(&order::WRITERS, HashMap::new()),
            prepared: Mutex::new(&order::PREPARED, BTreeMap::new()),
            manifests: Mutex::new(
                &order::MANIFEST,
                vec![Manifest { replay_from: log::FIRST, flushed_to: log::FIRST, ..Manifest::default() }],
            ),
            committed: shuttle::sync::Mutex::new(BTreeMap::new()),
        })
    }

    fn begin(&self, txn: u64) -> Arc<TxnState> {
        let state = TxnState::new(TxnId(txn));
        self.writers.lock().insert(state.id, state.clone());
        state
    }

    /// As `TreeTxn::put_shared`.
    fn put_shared(&self, txn: &TxnState, row: u64, ordinal: u64) {
        let guard = self.state.read();
        put(&guard.active, txn, row, ordinal);
    }

    /// As `Session::commit` from the commit lock on.
    fn commit(&self, txn: &Arc<TxnState>, rows: &[u64]) -> u64 {
        let seq = {
            let _commit = self.commit_lock.lock();
            let seq = self.log.append(vec![Record::Commit(rows.to_vec())]);
            self.show(txn, rows, seq);
            seq
        };
        self.writers.lock().remove(&txn.id);
        seq
    }

    /// Under the commit lock.
    fn show(&self, txn: &TxnState, rows: &[u64], seq: u64) {
        // First, so that whoever finds it visible finds it here.
        self.committed.lock().unwrap().extend(rows.iter().map(|row| (*row, seq)));
        txn.end(seq);
        self.views.publish(CommitSeq(seq), txn.status());
    }

    /// As `Txn::prepare`.
    fn prepare(&self, txn: &Arc<TxnState>, rows: &[u64]) {
        let _commit = self.commit_lock.lock();
        let at = self.log.append(vec![Record::Prepare(txn.id, rows.to_vec())]);
        txn.set_logged_at(Lsn(at));
        self.prepared.lock().insert(txn.id.0, (txn.clone(), rows.to_vec()));
    }

    /// As `Session::commit_ordered`.
    fn commit_ordered(&self, txn: TxnId) {
        self.decisions.make(Decision::new(txn));
    }

    /// Every view that is opened after a decision has what it decided.
    fn assert_decided(&self, rows: &[u64]) {
        let slot = self.views.register();
        let seq = self.open_view(&slot);
        let committed = self.committed.lock().unwrap();
        let shows = |row: &u64| committed.get(row).is_some_and(|at| *at <= seq.0);
        assert!(rows.iter().all(shows), "a view opened after a decision does not see it");
        slot.clear();
    }

    /// As `Session::commit` after it.
    fn commit_decided(&self, txn: TxnId) {
        self.carry_out();
        let state = self.writers.lock().remove(&txn).unwrap();
        assert_ne!(state.status(), ACTIVE, "answered before it is committed");
    }

    /// As `prepared::open_view`.
    fn open_view(&self, slot: &views::ViewSlot) -> CommitSeq {
        self.carry_out();
        self.views.open(slot)
    }

    /// As `prepared::carry_out`.
    fn carry_out(&self) {
        if self.decisions.any_open() {
            let _commit = self.commit_lock.lock();
            self.decisions.carry_out(|txn| self.decide(*txn));
        }
    }

    /// As `prepared::decide`.
    fn decide(&self, txn: TxnId) {
        let (state, rows) = self.prepared.lock().remove(&txn.0).unwrap();
        let seq = self.log.append(vec![Record::Decide(txn)]);
        self.show(&state, &rows, seq);
    }

    /// As `prepared::rollback`.
    fn roll_back_prepared(&self, txn: TxnId) {
        let (state, _) = self.prepared.lock().remove(&txn.0).unwrap();
        self.log.append(vec![Record::Rollback(txn)]);
        state.end(ABORTED);
        self.writers.lock().remove(&txn);
    }

    /// As `checkpoint::write` with `relog_prepared`: what it says is durable, as is the log up to then.
    fn checkpoint(&self) {
        let mut manifests = self.manifests.lock();
        let before = manifests.last().unwrap().replay_from;
        let half = Lsn(before.midpoint(self.log.end()));
        let is_old = |(state, _): &&Prepared| state.logged_at() < half;
        let old: Vec<u64> = self.prepared.lock().values().filter(is_old).map(|p| p.0.id.0).collect();
        let (position, needed) = {
            let _commit = self.commit_lock.lock();
            let position = self.log.end();
            let prepared = self.prepared.lock();
            for (state, rows) in old.iter().filter_map(|txn| prepared.get(txn)) {
                let again = vec![Record::Rollback(state.id), Record::Prepare(state.id, rows.clone())];
                state.set_logged_at(Lsn(self.log.append(again)));
            }
            let needed = prepared.values().map(|p| p.0.logged_at()).min().unwrap_or(Lsn(position));
            (position, needed.min(Lsn(position)))
        };
        let now = self.state.read().clone();
        let in_memory = std::iter::once(&now.active).chain(&now.frozen);
        let replay_from = in_memory.map(|mem| mem.needs_at_checkpoint(Lsn(position))).fold(needed, Lsn::min).0;
        assert!(
            replay_from >= before,
            "the place from which the log is needed went back from {before} to {replay_from}"
        );
        let now = self.state.read().clone();
        let (run, flushed_to, behind) = (now.run.clone(), now.flushed_to, self.log.frames());
        manifests.push(Manifest { replay_from, run, flushed_to, behind });
    }

    /// As `Core::freeze`.
    fn freeze(&self) {
        let mut guard = self.state.write();
        if !guard.active.wants_flush() {
            return;
        }
        let mut state = State::clone(&guard);
        let fresh = Memtable::<key::ByRow>::new(Lsn(self.log.end())).unwrap();
        state.frozen = Some(std::mem::replace(&mut state.active, fresh));
        *guard = Arc::new(state);
    }

    /// As `Core::flush_oldest`, `write_run`, `exchange`, `carry` and `place_in`; few versions, so none is moved.
    fn flush_oldest(&self) {
        let state = self.state.read().clone();
        let Some(mem) = &state.frozen else { return };
        let boundary = state.active.first_lsn.0;
        drop(self.commit_lock.lock());
        let (mut run, mut unfinished) = (BTreeMap::new(), Vec::new());
        let mut node = mem.first();
        while let Some(n) = node {
            for v in n.versions() {
                match v.slot().status() {
                    seq if seq == ACTIVE || seq >= boundary => unfinished.push((n.key(), v)),
                    seq if mem.is_live(v) => drop(run.insert(n.key().0, seq)),
                    _ => {}
                }
            }
            node = mem.after(n);
        }
        let to = &state.active;
        if !unfinished.is_empty() {
            to.also_needs(to.first_lsn);
        }
        for (row, version) in unfinished {
            let slot = version.slot();
            let writer = self.writers.lock().get(&slot.txn).cloned();
            let at = match writer {
                Some(writer) => writer.slot_in(to).unwrap(),
                None => {
                    let status = slot.status();
                    assert!(status >= boundary, "a commit below a flush's boundary was not seen");
                    let at = to.new_slot(slot.txn).unwrap();
                    to.also_needs(slot.redo_at());
                    // SAFETY: just made.
                    unsafe {
                        (*at).set_redo_at(slot.redo_at());
                        (*at).end(status);
                    }
                    at
                }
            };
            // After its place was made: what is rolled back later is rolled back there, too.
            if !mem.is_live(version) {
                continue;
            }
            // SAFETY: the slot is of `to`; only one flush goes on at a time.
            unsafe { to.carry(row, at, version.change()).unwrap() };
        }
        self.log.append(vec![Record::Edit(run.clone(), boundary)]);
        let mut guard = self.state.write();
        let mut next = State::clone(&guard);
        next.frozen = None;
        next.run.extend(run);
        next.flushed_to = boundary;
        *guard = Arc::new(next);
    }

    /// As a reader does: view, then state. It sees every commit up to its view, and none beyond.
    fn read(&self) {
        let slot = self.views.register();
        let seq = self.open_view(&slot);
        let state = self.state.read().clone();
        let committed = self.committed.lock().unwrap().clone();
        let view = View { seq, me: TxnId::ZERO };
        for row in 1..=6 {
            let mems = std::iter::once(&state.active).chain(&state.frozen);
            let in_memory = mems.filter_map(|mem| {
                let node = mem.seek(RowId(row)).filter(|n| n.key().0 == row)?;
                mem.visible(node, view).map(|(order, _)| order.seq.0)
            });
            let seen = in_memory.chain(state.run.get(&row).copied().filter(|at| *at <= seq.0)).max();
            let expected = committed.get(&row).copied().filter(|at| *at <= seq.0);
            assert_eq!(seen, expected, "row {row} under view {seq}");
        }
        slot.clear();
    }
}

fn freeze_and_commit() {
    let model = Model::new();
    let writers = (0..2).map(|t| {
        let model = model.clone();
        thread::spawn(move || {
            for turn in 0..2 {
                let row = 1 + 2 * t + turn;
                let txn = model.begin(row);
                model.put_shared(&txn, row, 1);
                model.commit(&txn, &[row]);
            }
        })
    });
    let writers: Vec<_> = writers.collect();
    let flusher = {
        let model = model.clone();
        thread::spawn(move || {
            for _ in 0..2 {
                model.freeze();
                model.flush_oldest();
            }
        })
    };
    let reader = {
        let model = model.clone();
        thread::spawn(move || (0..2).for_each(|_| model.read()))
    };
    for t in writers.into_iter().chain([flusher, reader]) {
        t.join().unwrap();
    }
    model.read();
    model.log.assert_recovers(&model.manifests.lock());
    // A crash now: what lies behind the boundary comes back from the log, what lies before it must be in the run.
    let state = model.state.read().clone();
    for (row, seq) in &*model.committed.lock().unwrap() {
        assert_eq!(state.run.contains_key(row), *seq < state.flushed_to, "row {row}, committed at {seq}");
    }
}

/// Transactions are prepared and decided while the memtable is flushed and checkpoints let go of the log: wherever a decision
/// falls, its redo is kept until a run has what it made.
fn freeze_and_commit_ordered() {
    let model = Model::new();
    let begin = |txn: u64, rows: &[u64]| {
        let state = model.begin(txn);
        (1..).zip(rows).for_each(|(ordinal, row)| model.put_shared(&state, *row, ordinal));
        model.prepare(&state, rows);
        state.id
    };
    // One that was prepared long ago, and one that is decided in the order of the binlog behind it.
    let (first, second) = (begin(1, &[1, 5]), begin(2, &[2]));
    let binlog = {
        let model = model.clone();
        thread::spawn(move || {
            model.commit_ordered(second);
            model.commit_ordered(first);
            model.assert_decided(&[1, 2, 5]);
            model.commit_decided(second);
            model.commit_decided(first);
            let committed = model.committed.lock().unwrap();
            assert!(committed[&1] > committed[&2], "decided out of order");
        })
    };
    let writer = {
        let model = model.clone();
        thread::spawn(move || {
            for (row, commits) in [(3, true), (4, false)] {
                let txn = model.begin(row);
                model.put_shared(&txn, row, 1);
                model.prepare(&txn, &[row]);
                match commits {
                    true => {
                        model.commit_ordered(txn.id);
                        model.assert_decided(&[row]);
                        model.commit_decided(txn.id);
                    }
                    false => model.roll_back_prepared(txn.id),
                }
            }
            // In one phase: no preparation keeps its redo.
            let txn = model.begin(6);
            model.put_shared(&txn, 6, 1);
            model.commit(&txn, &[6]);
        })
    };
    let flusher = {
        let model = model.clone();
        thread::spawn(move || {
            for _ in 0..2 {
                model.freeze();
                model.flush_oldest();
            }
        })
    };
    let checkpointer = {
        let model = model.clone();
        thread::spawn(move || (0..2).for_each(|_| model.checkpoint()))
    };
    let reader = {
        let model = model.clone();
        thread::spawn(move || model.read())
    };
    for t in [binlog, writer, flusher, checkpointer, reader] {
        t.join().unwrap();
    }
    model.read();
    model.checkpoint();
    model.log.assert_recovers(&model.manifests.lock());
}

/// What is rolled back to a savepoint is seen by nobody, into whichever memtable its versions went.
fn savepoint_and_freeze() {
    let model = Model::new();
    let writer = {
        let model = model.clone();
        thread::spawn(move || {
            let txn = model.begin(1);
            model.put_shared(&txn, 1, 1);
            model.put_shared(&txn, 2, 2);
            txn.abort_ordinals(2, 3);
            model.put_shared(&txn, 3, 3);
            model.commit(&txn, &[1, 3]);
        })
    };
    let flusher = {
        let model = model.clone();
        thread::spawn(move || {
            model.freeze();
            model.flush_oldest();
        })
    };
    let reader = {
        let model = model.clone();
        thread::spawn(move || model.read())
    };
    for t in [writer, flusher, reader] {
        t.join().unwrap();
    }
    model.read();
}
