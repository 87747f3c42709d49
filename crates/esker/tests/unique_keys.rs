//! Unique keys under thousands of orders of threads, chosen by shuttle: who meets an uncommitted key waits for whoever has it,
//! wherever that key lies by then, and of all who want it one has it.
//!
//! `standing.rs`, which says what stands at a key, is taken in as it is, with `private.rs`, `memtable.rs` with `node.rs`,
//! `search.rs` and `walk.rs`, `arena.rs`, `state.rs` and `version.rs`, over shuttle's atomics and locks. The tree's state, its
//! runs, flushes, the lock table and the steps of an insert are models here, each with the name of what it mirrors; whoever
//! changes that order in `write/index.rs`, `flush.rs` or `lock.rs` changes it here. A failure prints how to replay it.

#![allow(dead_code, unused_imports, missing_docs, clippy::unwrap_used)]

#[path = "../src/tree/arena.rs"]
mod arena;
#[path = "../src/tree/fences.rs"]
mod fences;
#[path = "../src/tests/hooks.rs"]
mod hooks;
#[path = "../src/tree/key.rs"]
mod key;
#[path = "../src/tree/memtable.rs"]
mod memtable;
#[path = "../src/tree/node.rs"]
mod node;
#[path = "../src/tree/private.rs"]
mod private;
#[path = "../src/tree/search.rs"]
mod search;
#[path = "../src/tree/standing.rs"]
mod standing;
#[path = "../src/txn/state.rs"]
mod state;
#[path = "model/stored.rs"]
mod stored;
#[path = "model/sync.rs"]
mod sync;
#[path = "../src/tally.rs"]
mod tally;
#[path = "../src/tree/together.rs"]
mod together;
#[path = "model/key_tree.rs"]
mod tree;
#[path = "../src/version.rs"]
mod version;
#[path = "../src/tree/walk.rs"]
mod walk;

/// The engine's rooms, as far as these sources use them.
mod txn {
    pub(crate) use crate::state;
}

/// Where unit tests step in, as these sources name it.
mod tests {
    pub(crate) use crate::hooks;
}

/// Its table is a model, below.
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

use esker_format::{CommitSeq, Lsn, RowId, TxnId, VersionTag};
use key::{ByBytes, Key};
use memtable::{Change, Memtable};
use private::{Private, ShownPrivate};
use shuttle::rand::{thread_rng, Rng};
use shuttle::sync::{Condvar, Mutex};
use shuttle::thread;
use standing::{standing, NotIn, Standing};
use state::TxnState;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use sync::atomic::{AtomicU64, Ordering};
use sync::{order, RwLock};
use tree::run::writer::RunWriter;
use tree::{Run, RunHandle, Tree, TreeState};
use version::{ABORTED, ACTIVE};

/// The key that all want.
const KEY: &[u8] = b"key";

fn main() {
    let rounds = match std::env::var("ESKER_SHUTTLE_ROUNDS").map(|n| n.parse::<usize>()) {
        Ok(Ok(rounds)) => rounds,
        _ => 5000,
    };
    let all: [(&str, fn()); 4] = [
        ("two inserts of one key, while the memtable is flushed", two_inserts),
        ("an insert against an uncommitted delete, while the memtable is flushed", insert_against_delete),
        ("a rollback to a savepoint lets go of a key", savepoint),
        ("a key in what a large transaction gathers, sorts and seals", seal),
    ];
    let (waits, refused) = (&MET[0], &MET[1]);
    for (name, what) in all {
        println!("{name}: {rounds} orders by chance, {rounds} by priority");
        MET.iter().for_each(|met| met.store(0, std::sync::atomic::Ordering::SeqCst));
        shuttle::check_random(what, rounds);
        shuttle::check_pct(what, rounds, 3);
        let met = |n: &std::sync::atomic::AtomicU64| n.load(std::sync::atomic::Ordering::SeqCst);
        println!("    {} waits for another's end, {} times refused", met(waits), met(refused));
        assert!(met(waits) > 0 && met(refused) > 0, "too few orders");
    }
    let sorted = SORTED_MEANWHILE.load(std::sync::atomic::Ordering::SeqCst);
    println!("{sorted} times sorted while it was counted");
    assert!(sorted > 0, "too few orders");
}

/// How often somebody waited for an uncommitted key, and found a committed one.
static MET: [std::sync::atomic::AtomicU64; 2] = [const { std::sync::atomic::AtomicU64::new(0) }; 2];

/// How often another one sorted what a large transaction has gathered while that was counted.
static SORTED_MEANWHILE: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

fn met(what: usize) {
    MET[what].fetch_add(1, std::sync::atomic::Ordering::SeqCst);
}

/// A change of the key: commit sequence, ordinal, and the row that has it from then on.
type Event = (u64, u64, Option<u64>);

/// As `Core`, with one tree.
struct Model {
    tree: Arc<Tree<ByBytes>>,
    commit_lock: Mutex<()>,
    /// The log's end.
    log: AtomicU64,
    visible: AtomicU64,
    writers: Mutex<HashMap<TxnId, Arc<TxnState>>>,
    /// Who has the key reserved.
    reserved: Mutex<Option<TxnId>>,
    freed: Condvar,
    /// As the graph's mutex, and the waits behind ends and rollbacks.
    ends: Mutex<()>,
    ended: Condvar,
    /// What was committed.
    history: Mutex<Vec<Event>>,
}

/// With its place in the tree's state.
type Gathered = (Arc<Private<ByBytes>>, Option<ShownPrivate<ByBytes>>);

/// As `Txn`.
struct Txn {
    state: Arc<TxnState>,
    next_ordinal: u64,
    changes: Vec<(u64, Option<u64>)>,
    private: Option<Gathered>,
    /// It has the key in a run that it has noted.
    noted: bool,
}

impl Model {
    fn new() -> Arc<Model> {
        let active = Memtable::new(Lsn(100)).unwrap();
        let marks = Arc::new([]);
        let state = TreeState { active, frozen: Vec::new(), privates: Vec::new(), runs: Vec::new(), marks };
        Arc::new(Model {
            tree: Arc::new(Tree { state: RwLock::new(&order::TREE_STATE, Arc::new(state)) }),
            commit_lock: Mutex::new(()),
            log: AtomicU64::new(100),
            visible: AtomicU64::new(99),
            writers: Mutex::new(HashMap::new()),
            reserved: Mutex::new(None),
            freed: Condvar::new(),
            ends: Mutex::new(()),
            ended: Condvar::new(),
            history: Mutex::new(Vec::new()),
        })
    }

    fn begin(&self, txn: u64) -> Txn {
        let state = TxnState::new(TxnId(txn));
        self.writers.lock().unwrap().insert(state.id, state.clone());
        Txn { state, next_ordinal: 1, changes: Vec::new(), private: None, noted: false }
    }

    /// As `LockTable::lock` of a reserved key.
    fn reserve(&self, me: TxnId) {
        let mut reserved = self.reserved.lock().unwrap();
        while reserved.is_some() {
            reserved = self.freed.wait(reserved).unwrap();
        }
        *reserved = Some(me);
    }

    fn release(&self) {
        *self.reserved.lock().unwrap() = None;
        self.freed.notify_all();
    }

    /// As `LockTable::wait_for_change`.
    fn wait_for_change(&self, txn: TxnId, ordinal: u64) {
        let Some(of) = self.writers.lock().unwrap().get(&txn).cloned() else { return };
        let mut ends = self.ends.lock().unwrap();
        while of.status() == ACTIVE && !of.aborted().contains(ordinal) {
            met(0);
            ends = self.ended.wait(ends).unwrap();
        }
    }

    /// As `LockTable::rolled_back` and `release_all`.
    fn wake(&self) {
        drop(self.ends.lock().unwrap());
        self.ended.notify_all();
    }

    /// As `Session::reserve_all` and what follows it. False: a row has the key.
    fn insert(&self, txn: &mut Txn, row: u64) -> bool {
        loop {
            self.reserve(txn.state.id);
            match standing(&self.tree.snapshot(), KEY, txn.state.id, None, NotIn { active: false, noted: !txn.noted })
                .unwrap()
            {
                Standing::Free { .. } => break,
                Standing::Taken(_, order) => {
                    self.release();
                    if !order.is_own() && order.seq.0 > self.visible.load(Ordering::SeqCst) {
                        drop(self.commit_lock.lock().unwrap());
                        assert!(order.seq.0 <= self.visible.load(Ordering::SeqCst), "its commit shows by now");
                    }
                    met(1);
                    return false;
                }
                Standing::Pending(of, ordinal, _) => {
                    self.release();
                    self.wait_for_change(of, ordinal);
                    // An end is stored for each memtable in turn; until it is for all, this goes round.
                    thread::yield_now();
                }
            }
        }
        self.put(txn, Some(row));
        self.release();
        true
    }

    /// As `Txn::put_entry`; none: the key leaves its row, whose lock the caller has.
    fn put(&self, txn: &mut Txn, row: Option<u64>) {
        let ordinal = txn.next_ordinal;
        txn.next_ordinal += 1;
        txn.changes.push((ordinal, row));
        let value = row.unwrap_or(1).to_le_bytes();
        let change = Change::of_entry(ordinal, &value, row.is_none());
        if let Some((private, _)) = &txn.private {
            private.put(&mut [std::ptr::null(); 2], KEY, change, true).unwrap();
            return;
        }
        let guard = self.tree.state.read();
        let slot = txn.state.slot_in(&guard.active).unwrap();
        // SAFETY: the slot is of this memtable; the key is reserved, or the row locked.
        unsafe { guard.active.put(KEY, slot, change).unwrap() };
    }

    /// As `Txn::become_large`.
    fn become_large(&self, txn: &mut Txn) {
        let private = Private::new(&txn.state).unwrap();
        let shown = ShownPrivate::new(&self.tree, &private);
        txn.private = Some((private, shown));
    }

    /// As `Txn::spill`: the run is in the state before what it was made of leaves it, and its keys are noted before.
    fn seal(&self, txn: &mut Txn) {
        let Some((private, shown)) = txn.private.take() else { return };
        // As `Txn::write_parts`: what has nothing is left out.
        let was_sorted = !private.memtable().is_empty();
        let content = private.content_bytes(1);
        if !was_sorted && !private.memtable().is_empty() {
            SORTED_MEANWHILE.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        }
        if content == 0 {
            return;
        }
        let mut writer = RunWriter(Vec::new());
        private.write(&mut writer).unwrap();
        txn.noted |= !writer.0.is_empty();
        let handle = RunHandle { noted: true, ..RunHandle::new(writer.0, Some(txn.state.clone())) };
        self.tree.edit(|state| state.runs.push(handle));
        drop(shown);
    }

    /// As `Session::rollback_to`.
    fn rollback_to(&self, txn: &mut Txn, ordinal: u64) {
        txn.state.abort_ordinals(ordinal, txn.next_ordinal);
        txn.changes.retain(|(o, _)| *o < ordinal);
        self.wake();
    }

    /// As `Session::commit` from the commit lock on, or `Session::rollback`.
    fn end(&self, mut txn: Txn, commits: bool) {
        if commits {
            self.seal(&mut txn);
            let _commit = self.commit_lock.lock().unwrap();
            let seq = self.log.fetch_add(10, Ordering::SeqCst);
            let events = txn.changes.iter().map(|(ordinal, row)| (seq, *ordinal, *row));
            self.history.lock().unwrap().extend(events);
            txn.state.end(seq);
            self.visible.store(seq, Ordering::SeqCst);
        } else {
            txn.state.end(ABORTED);
            txn.private = None;
        }
        self.wake();
        self.writers.lock().unwrap().remove(&txn.state.id);
    }

    fn end_somehow(&self, txn: Txn) {
        let commits = thread_rng().gen_bool(0.5);
        self.end(txn, commits);
    }

    /// As `Core::freeze` and `flush_oldest`: few versions, so none is moved.
    fn flush(&self) {
        let frozen = self.tree.edit(|state| {
            let fresh = Memtable::new(Lsn(self.log.load(Ordering::SeqCst))).unwrap();
            let frozen = std::mem::replace(&mut state.active, fresh);
            state.frozen.insert(0, frozen.clone());
            frozen
        });
        let state = self.tree.snapshot();
        let boundary = state.active.first_lsn.0;
        drop(self.commit_lock.lock().unwrap());
        let (mut run, mut unfinished) = (Vec::new(), Vec::new());
        let mut node = frozen.first();
        while let Some(n) = node {
            for v in n.versions() {
                match v.slot().status() {
                    seq if seq == ACTIVE || seq >= boundary => unfinished.push((n.key(), v)),
                    seq if frozen.is_live(v) => {
                        run.push((ByBytes::own(n.key()), v.tag(CommitSeq(seq)), v.value().to_vec()));
                    }
                    _ => {}
                }
            }
            node = frozen.after(n);
        }
        for (key, version) in unfinished {
            let (to, slot) = (&state.active, version.slot());
            let writer = self.writers.lock().unwrap().get(&slot.txn).cloned();
            let at = match writer {
                Some(writer) => writer.slot_in(to).unwrap(),
                None => {
                    let (at, status) = (to.new_slot(slot.txn).unwrap(), slot.status());
                    // SAFETY: just made.
                    unsafe { (*at).end(status) };
                    at
                }
            };
            // After its place was made: what is rolled back later is rolled back there, too.
            if !frozen.is_live(version) {
                continue;
            }
            // SAFETY: the slot is of `to`; only one flush goes on at a time.
            unsafe { to.carry(key, at, version.change()).unwrap() };
        }
        self.tree.edit(|state| {
            state.frozen.pop();
            state.runs.push(RunHandle::new(run, None));
        });
    }

    /// In the order of commits the key has one row after the other, never two.
    fn check(&self) {
        let mut history = self.history.lock().unwrap().clone();
        history.sort_unstable();
        let mut has = None;
        for (_, _, row) in &history {
            assert!(has.is_some() != row.is_some(), "the key has two rows, or left none: {history:?}");
            has = *row;
        }
        let now = standing(&self.tree.snapshot(), KEY, TxnId(99), None, NotIn { active: false, noted: true }).unwrap();
        let found = match now {
            Standing::Taken(row, _) => Some(row.0),
            Standing::Free { .. } => None,
            Standing::Pending(..) => panic!("all have ended: {now:?}"),
        };
        assert_eq!(found, has, "what stands at the key, and what was committed: {history:?}");
    }
}

/// What a thread does.
type Work = Box<dyn FnOnce(&Model) + Send>;

/// Runs each in a thread, then looks at the outcome.
fn play(model: &Arc<Model>, threads: Vec<Work>) {
    let start = |work: Work| {
        let model = model.clone();
        thread::spawn(move || work(&model))
    };
    let running: Vec<_> = threads.into_iter().map(start).collect();
    running.into_iter().for_each(|t| t.join().unwrap());
    model.check();
}

/// Inserts a row, if it can, and ends.
fn inserter(txn: u64) -> Work {
    Box::new(move |model| {
        let mut t = model.begin(txn);
        model.insert(&mut t, txn);
        model.end_somehow(t);
    })
}

fn flusher() -> Work {
    Box::new(|model| model.flush())
}

fn two_inserts() {
    play(&Model::new(), vec![inserter(2), inserter(3), flusher()]);
}

fn insert_against_delete() {
    let model = Model::new();
    let mut first = model.begin(1);
    assert!(model.insert(&mut first, 1));
    model.end(first, true);
    let deleter = |model: &Model| {
        let mut t = model.begin(2);
        model.put(&mut t, None);
        model.end_somehow(t);
    };
    play(&model, vec![Box::new(deleter), inserter(3), flusher()]);
}

fn savepoint() {
    let undoes = |model: &Model| {
        let mut t = model.begin(2);
        if model.insert(&mut t, 2) {
            model.rollback_to(&mut t, 1);
            // Somebody else may have it by now.
            model.insert(&mut t, 4);
        }
        model.end_somehow(t);
    };
    play(&Model::new(), vec![Box::new(undoes), inserter(3), flusher()]);
}

fn seal() {
    let large = |model: &Model| {
        let mut t = model.begin(2);
        model.become_large(&mut t);
        if model.insert(&mut t, 2) && thread_rng().gen_bool(0.5) {
            model.rollback_to(&mut t, 1);
            model.insert(&mut t, 4);
        }
        model.seal(&mut t);
        if thread_rng().gen_bool(0.5) {
            // It has the key in its run, has rolled it back there, or another one has it.
            model.become_large(&mut t);
            model.insert(&mut t, 5);
        }
        model.end_somehow(t);
    };
    // A locking read of another wants them in their order.
    let sorter = |model: &Model| model.tree.snapshot().privates.iter().for_each(|p| assert!(p.sorted().is_ok()));
    play(&Model::new(), vec![Box::new(large), inserter(3), Box::new(sorter)]);
}
