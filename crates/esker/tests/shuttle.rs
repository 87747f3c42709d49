//! The engine's lock-free parts under thousands of orders of threads, chosen by shuttle: the memtable, read views against
//! the purge horizon, and freeze against commit.
//!
//! `arena.rs`, `memtable.rs` with `node.rs` and `search.rs`, `state.rs`, `version.rs` and `views.rs` are taken in as they are, over shuttle's atomics and locks. A tree's
//! state, the log and the commit lock are models here, each with the name of what it mirrors; whoever changes that order
//! in `write.rs`, `commit.rs` or `flush.rs` changes it here. Shuttle's threads see each other's writes at once: what
//! depends on weak memory it does not show. A failure prints how to replay it.

#![allow(dead_code, unused_imports, missing_docs, clippy::unwrap_used)]

#[path = "../src/tree/arena.rs"]
mod arena;
#[path = "../src/tree/fences.rs"]
mod fences;
#[path = "../src/tree/key.rs"]
mod key;
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
#[path = "../src/version.rs"]
mod version;
#[path = "../src/txn/views.rs"]
mod views;

/// The engine's rooms, as far as these sources use them.
mod txn {
    pub(crate) use crate::{state, views};
}

mod tree {
    pub(crate) use crate::{arena, fences, key, memtable, node, search};

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

use esker_format::{CommitSeq, Lsn, RowId, TxnId};
use memtable::{Change, Memtable};
use shuttle::thread;
use state::TxnState;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use sync::atomic::{AtomicBool, AtomicU64, Ordering};
use sync::{order, Mutex, RwLock};
use version::{View, ACTIVE};
use views::Views;

fn main() {
    let rounds = |standard: usize| match std::env::var("ESKER_SHUTTLE_ROUNDS").map(|n| n.parse::<usize>()) {
        Ok(Ok(rounds)) => rounds,
        _ => standard,
    };
    let all: [(&str, fn(), usize); 4] = [
        ("memtable: inserts from several threads, and a reader", memtable_inserts, 1500),
        ("views: no horizon passes an open view", views_and_horizon, 6000),
        ("freeze and commit: every commit is in the run or behind the boundary", freeze_and_commit, 3000),
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
    let writers: Vec<_> = (0..3)
        .map(|t| {
            let mem = mem.clone();
            thread::spawn(move || {
                let state = TxnState::new(TxnId(t as u64 + 1));
                for (i, row) in rows[t].iter().enumerate() {
                    put(&mem, &state, *row, i as u64 + 1);
                }
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
    search::seek_each(&wanted, |i, node| {
        // SAFETY: null, or a node of the memtable.
        assert_eq!(unsafe { node.as_ref() }.map(|node| node.key()), Some(wanted[i].1), "not found with others");
    });
}

fn views_and_horizon() {
    let views = Arc::new(Views::new(CommitSeq(10)));
    // The greatest horizon that a purge has worked with.
    let purged = Arc::new(AtomicU64::new(0));
    let committer = {
        let views = views.clone();
        thread::spawn(move || [20, 30].into_iter().for_each(|seq| views.publish(CommitSeq(seq), seq)))
    };
    let purger = {
        let (views, purged) = (views.clone(), purged.clone());
        thread::spawn(move || {
            for _ in 0..2 {
                let horizon = views.horizon();
                purged.fetch_max(horizon.0, Ordering::SeqCst);
            }
        })
    };
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let (views, purged) = (views.clone(), purged.clone());
            thread::spawn(move || {
                let slot = views.register();
                let seq = views.open(&slot);
                let look = || assert!(purged.load(Ordering::SeqCst) <= seq.0, "purged beyond the open view {seq}");
                look();
                // A later view of the same session keeps the first.
                assert!(views.open(&slot) >= seq);
                look();
                look();
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

/// As `Core` and one `Tree`.
struct Model {
    state: RwLock<Arc<State>>,
    commit_lock: Mutex<()>,
    /// The log's end.
    log: AtomicU64,
    views: Views,
    writers: Mutex<HashMap<TxnId, Arc<TxnState>>>,
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
            log: AtomicU64::new(100),
            views: Views::new(CommitSeq(99)),
            writers: Mutex::new(&order::WRITERS, HashMap::new()),
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
            let seq = self.log.fetch_add(10, Ordering::SeqCst);
            // First, so that whoever finds it visible finds it here.
            self.committed.lock().unwrap().extend(rows.iter().map(|row| (*row, seq)));
            txn.end(seq);
            self.views.publish(CommitSeq(seq), txn.status());
            seq
        };
        self.writers.lock().remove(&txn.id);
        seq
    }

    /// As `Core::freeze`.
    fn freeze(&self) {
        let mut guard = self.state.write();
        let mut state = State::clone(&guard);
        let fresh = Memtable::<key::ByRow>::new(Lsn(self.log.load(Ordering::SeqCst))).unwrap();
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
        for (row, version) in unfinished {
            let (to, slot) = (&state.active, version.slot());
            let writer = self.writers.lock().get(&slot.txn).cloned();
            let at = match writer {
                Some(writer) => writer.slot_in(to).unwrap(),
                None => {
                    let status = slot.status();
                    assert!(status >= boundary, "a commit below a flush's boundary was not seen");
                    let at = to.new_slot(slot.txn).unwrap();
                    // SAFETY: just made.
                    unsafe { (*at).end(status) };
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
        let seq = self.views.open(&slot);
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
    // A crash now: what lies behind the boundary comes back from the log, what lies before it must be in the run.
    let state = model.state.read().clone();
    for (row, seq) in &*model.committed.lock().unwrap() {
        assert_eq!(state.run.contains_key(row), *seq < state.flushed_to, "row {row}, committed at {seq}");
    }
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
