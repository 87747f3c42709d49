//! Key trees: entries with their versions through memtables, runs, merges, crashes and recovery, against a model.

use crate::sim_hooks::Entry;
use crate::tests::tables::{begin, def, options};
use crate::upkeep::{background, checkpoint};
use crate::*;
use esker_base::counters::{bind, Counter, SessionCounters};
use esker_format::{CommitSeq, IndexEntry, IndexState, KeyPart, RowId};
use esker_io::SimDisk;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// What is in a key tree: rows and payloads by their keys.
type Model = BTreeMap<Vec<u8>, (RowId, Vec<u8>)>;

/// An index over the first column, that nobody keeps but the test.
pub(crate) fn index(id: u32) -> IndexEntry {
    let part = KeyPart { column: 0, prefix_bytes: 0, descending: false, encoding: 1, collation: 0 };
    let (name, state, usable_from) = (format!("k{id}"), IndexState::Leaving, CommitSeq::ZERO);
    IndexEntry { id, name, unique: false, parts: vec![part], state, usable_from, weights: 0 }
}

fn small() -> Options {
    Options { run_bytes: 24 << 10, block_bytes: 1 << 10, ..options() }
}

fn open(disk: &SimDisk, options: Options) -> Engine {
    crate::tests::tables::open(disk, options)
}

/// A key of several lengths: many share their first 64 bytes and more, some are empty but for their number.
fn key(n: u64) -> Vec<u8> {
    let mut key = match n % 4 {
        0 => Vec::new(),
        1 => vec![b'a'; 63],
        2 => vec![b'b'; 70 + (n % 3) as usize],
        _ => vec![(n >> 3) as u8; (n % 17) as usize],
    };
    key.extend_from_slice(&(n.wrapping_mul(0x9E37_79B9_7F4A_7C15)).to_be_bytes());
    key
}

fn put(s: &mut Session, t: &Arc<Table>, model: &mut Model, n: u64, payload: &[u8]) {
    let (key, row) = (key(n), RowId(n + 1));
    s.sim_write_entry(t, 0, Entry { key: &key, row, payload: Some(payload) }).unwrap();
    model.insert(key, (row, payload.to_vec()));
}

fn remove(s: &mut Session, t: &Arc<Table>, model: &mut Model, n: u64) {
    let key = key(n);
    s.sim_write_entry(t, 0, Entry { key: &key, row: RowId(n + 1), payload: None }).unwrap();
    model.remove(&key);
}

/// Reads all in order, from the middle on, and some keys by themselves.
fn check_in(s: &mut Session, t: &Arc<Table>, model: &Model) {
    let expected = |from: &[u8]| -> Vec<_> {
        model.range(from.to_vec()..).map(|(k, (row, payload))| (k.clone(), *row, payload.clone())).collect()
    };
    assert!(s.sim_entries(t, 0, &[]).unwrap() == expected(&[]), "the whole tree");
    for from in [key(1), key(2), key(700), vec![b'b'; 64], vec![b'b'; 71]] {
        assert!(s.sim_entries(t, 0, &from).unwrap() == expected(&from), "from {from:?} on");
    }
    for n in (0..2000).step_by(13) {
        let key = key(n);
        let found = s.sim_entry(t, 0, &key).unwrap();
        assert_eq!(found, model.get(&key).map(|(row, payload)| (key.clone(), *row, payload.clone())), "entry {n}");
    }
}

fn check(e: &Engine, t: &Arc<Table>, model: &Model) {
    let mut s = e.session();
    begin(&mut s);
    check_in(&mut s, t, model);
    s.commit().unwrap();
    let found = e.check(t, &mut |_, _| true).unwrap().damages;
    assert!(found.is_empty(), "{found:?}");
}

fn runs(t: &Arc<Table>) -> usize {
    t.trees().keys[0].snapshot().runs.len()
}

#[test]
fn entries_live_through_flushes_merges_and_crashes() {
    let counters = SessionCounters::new();
    let _bound = bind(&counters);
    let disk = SimDisk::new(1);
    let mut e = open(&disk, small());
    e.sim_create_table("t", &def(), &[index(1), index(2)]).unwrap();
    let mut t = e.open_table("t").unwrap();
    let mut model = Model::new();
    let (mut random, mut most_runs, mut parts) = (fastrand::Rng::with_seed(7), 0, 0);
    for round in 0..60u64 {
        let before = model.clone();
        let mut view = e.session();
        begin(&mut view);
        view.take_view();
        let mut s = e.session();
        begin(&mut s);
        for _ in 0..100 {
            let n = random.u64(0..2000);
            match random.u8(0..4) {
                0 if model.contains_key(&key(n)) => remove(&mut s, &t, &mut model, n),
                _ => put(&mut s, &t, &mut model, n, &vec![round as u8; random.usize(0..40)]),
            }
        }
        // What is rolled back is in no tree.
        let point = s.savepoint();
        for n in [1, 2, 3, 4001] {
            put(&mut s, &t, &mut model.clone(), n, b"rolled back");
        }
        s.rollback_to(&point);
        check_in(&mut s, &t, &model);
        s.commit().unwrap();
        if round % 3 != 2 {
            e.sim_flush(&t).unwrap();
        }
        check_in(&mut view, &t, &before);
        most_runs = most_runs.max(runs(&t));
        while round % 2 == 0 && e.sim_merge(&t).unwrap() {
            check_in(&mut view, &t, &before);
            let state = t.trees().keys[0].snapshot();
            parts += state.runs.iter().filter(|h| (&h.first, &h.last) != (&h.run.bounds.0, &h.run.bounds.1)).count();
        }
        view.commit().unwrap();
        check(&e, &t, &model);
        if round % 5 == 4 {
            if round % 10 == 4 {
                checkpoint::write(&e.core).unwrap();
            }
            drop((s, view, t, e));
            disk.crash();
            e = open(&disk, small());
            t = e.open_table("t").unwrap();
            check(&e, &t, &model);
        }
    }
    assert!(most_runs >= 8 && parts > 0, "{most_runs} runs, {parts} parts of runs");
    assert!(counters.get(Counter::Merges) >= 10, "{} merges", counters.get(Counter::Merges));
    e.optimize(&t, &mut |_, _| true).unwrap();
    check(&e, &t, &model);
    let left: u64 = t.trees().keys[0].snapshot().runs.iter().map(|h| h.run.stats.rows).sum();
    assert_eq!(left, model.len() as u64, "nothing that nobody sees is left");
    assert_eq!(t.trees().keys[1].snapshot().runs.len(), 0, "the other index is empty");
}

#[test]
fn prepared_entries_come_back_undecided() {
    let disk = SimDisk::new(1);
    for commit in [true, false] {
        let name = format!("t{commit}");
        let mut e = open(&disk, small());
        e.sim_create_table(&name, &def(), &[index(1)]).unwrap();
        let mut t = e.open_table(&name).unwrap();
        let mut model = Model::new();
        let mut s = e.session();
        begin(&mut s);
        (0..300).for_each(|n| put(&mut s, &t, &mut model, n, b"first"));
        s.commit().unwrap();
        e.sim_flush(&t).unwrap();
        let mut after = model.clone();
        begin(&mut s);
        (0..100).for_each(|n| put(&mut s, &t, &mut after, n, b"second"));
        (100..150).for_each(|n| remove(&mut s, &t, &mut after, n));
        s.prepare(b"x").unwrap();
        for flush in [false, true] {
            if flush {
                e.sim_flush(&t).unwrap();
                checkpoint::write(&e.core).unwrap();
            }
            check(&e, &t, &model);
            drop((s, t, e));
            disk.crash();
            e = open(&disk, small());
            (t, s) = (e.open_table(&name).unwrap(), e.session());
            check(&e, &t, &model);
        }
        let decided = if commit { e.commit_xid(b"x") } else { e.rollback_xid(b"x") };
        assert!(decided.unwrap());
        check(&e, &t, if commit { &after } else { &model });
        e.sim_flush(&t).unwrap();
        check(&e, &t, if commit { &after } else { &model });
    }
}

#[test]
fn versions_of_an_open_transaction_move_with_their_keys() {
    let counters = SessionCounters::new();
    let _bound = bind(&counters);
    let disk = SimDisk::new(1);
    for commit in [true, false] {
        let name = format!("t{commit}");
        let mut e = open(&disk, Options { bulk_threshold_bytes: 64 << 20, ..small() });
        e.sim_create_table(&name, &def(), &[index(1)]).unwrap();
        let t = e.open_table(&name).unwrap();
        let (mut model, mut s) = (Model::new(), e.session());
        begin(&mut s);
        // More than a flush carries on.
        (0..2000).for_each(|n| put(&mut s, &t, &mut model, n, &[7; 100]));
        e.sim_flush(&t).unwrap();
        check(&e, &t, &Model::new());
        check_in(&mut s, &t, &model);
        (0..2000).step_by(5).for_each(|n| remove(&mut s, &t, &mut model, n));
        check_in(&mut s, &t, &model);
        if commit {
            s.commit().unwrap();
        } else {
            s.rollback().unwrap();
            model.clear();
        }
        check(&e, &t, &model);
        // They went with their transaction: what is left of it is like any other's, and stays without the log.
        let owned = t.trees().keys[0].snapshot().runs.iter().filter(|h| h.owner.is_some()).count();
        assert_eq!((owned, runs(&t) > 0), (0, commit));
        checkpoint::write(&e.core).unwrap();
        drop((s, t, e));
        disk.crash();
        e = open(&disk, small());
        check(&e, &e.open_table(&name).unwrap(), &model);
    }
    assert!(counters.get(Counter::RunsMoved) >= 2, "nothing was moved");
}

#[test]
fn deleting_or_emptying_all_takes_the_entries_too() {
    let disk = SimDisk::new(1);
    let mut e = open(&disk, small());
    e.sim_create_table("t", &def(), &[index(1)]).unwrap();
    let mut t = e.open_table("t").unwrap();
    for emptied in [false, true, false] {
        let (mut model, mut s) = (Model::new(), e.session());
        begin(&mut s);
        // Rows of the table, so that a range mark reaches over their ids.
        for n in 0..500 {
            // SAFETY: an image of this table's layout.
            let row = unsafe { s.insert_image(&t, crate::tests::tables::img(n).as_ptr()).unwrap() };
            let key = key(n);
            s.sim_write_entry(&t, 0, Entry { key: &key, row, payload: Some(b"p") }).unwrap();
            model.insert(key, (row, b"p".to_vec()));
        }
        s.commit().unwrap();
        e.sim_flush(&t).unwrap();
        check(&e, &t, &model);
        let mut view = e.session();
        begin(&mut view);
        view.take_view();
        if emptied {
            e.truncate_table("t").unwrap();
        } else {
            begin(&mut s);
            s.delete_all(&t).unwrap();
            assert_eq!(s.sim_entries(&t, 0, &[]).unwrap(), []);
            check_in(&mut view, &t, &model);
            s.commit().unwrap();
            check_in(&mut view, &t, &model);
        }
        view.commit().unwrap();
        check(&e, &t, &Model::new());
        drop((s, view, t, e));
        disk.crash();
        e = open(&disk, small());
        t = e.open_table("t").unwrap();
        check(&e, &t, &Model::new());
        e.sim_flush(&t).unwrap();
        while e.sim_merge(&t).unwrap() {}
        check(&e, &t, &Model::new());
        assert_eq!(runs(&t), 0, "runs of which nothing is seen are left");
    }
}

/// Done once, when a session is about to wait.
struct Meanwhile(RefCell<Option<Box<dyn FnOnce() + Send>>>);

impl WaitHooks for Meanwhile {
    fn before_wait(&self) {
        self.0.take().into_iter().for_each(|act| act());
    }
}

/// Who deletes all waits for a row; rows that come meanwhile go, too, and those that come before it commits stay.
#[test]
fn entries_of_rows_that_come_while_a_delete_waits_stay() {
    let disk = SimDisk::new(1);
    let mut e = open(&disk, small());
    e.sim_create_table("t", &def(), &[index(1)]).unwrap();
    let t = e.open_table("t").unwrap();
    let add = |s: &mut Session, n: u64| {
        let row = crate::tests::tables::insert(s, &t, n);
        s.sim_write_entry(&t, 0, Entry { key: &key(n), row, payload: Some(b"p") }).unwrap();
        row
    };
    let (mut holder, mut emptier, mut late, mut later) = (e.session(), e.session(), e.session(), e.session());
    begin(&mut holder);
    let first = (0..50).map(|n| add(&mut holder, n)).last().unwrap();
    holder.commit().unwrap();
    begin(&mut holder);
    holder.delete(&t, first).unwrap();
    holder.sim_write_entry(&t, 0, Entry { key: &key(49), row: first, payload: None }).unwrap();
    begin(&mut emptier);
    let came = Arc::new(Mutex::new(0));
    let act = {
        let (t, came) = (t.clone(), came.clone());
        move || {
            begin(&mut late);
            let row = crate::tests::tables::insert(&mut late, &t, 100);
            late.sim_write_entry(&t, 0, Entry { key: &key(100), row, payload: Some(b"late") }).unwrap();
            late.commit().unwrap();
            *came.lock().unwrap() += 1;
            holder.commit().unwrap();
        }
    };
    emptier.set_wait_hooks(Box::new(Meanwhile(RefCell::new(Some(Box::new(act))))));
    emptier.delete_all(&t).unwrap();
    assert_eq!(*came.lock().unwrap(), 1, "nobody came meanwhile");
    begin(&mut later);
    let row = add(&mut later, 101);
    later.commit().unwrap();
    emptier.commit().unwrap();
    let model = Model::from([(key(101), (row, b"p".to_vec()))]);
    assert_eq!(crate::tests::tables::rows_of(&e, &t), 1);
    check(&e, &t, &model);
    e.sim_flush(&t).unwrap();
    check(&e, &t, &model);
    e.optimize(&t, &mut |_, _| true).unwrap();
    check(&e, &t, &model);
    drop((emptier, later, t, e));
    disk.crash();
    e = open(&disk, small());
    check(&e, &e.open_table("t").unwrap(), &model);
}

/// Keys that begin with the same bytes, more than a block index keeps of them: their blocks are copied all the same, where
/// nothing lies between their entries.
#[test]
fn blocks_of_long_keys_are_copied() {
    let counters = SessionCounters::new();
    let _bound = bind(&counters);
    let disk = SimDisk::new(1);
    let mut e = open(&disk, small());
    e.sim_create_table("t", &def(), &[index(1)]).unwrap();
    let mut t = e.open_table("t").unwrap();
    let (mut model, mut s) = (Model::new(), e.session());
    let put = |s: &mut Session, t: &Arc<Table>, model: &mut Model, n: u64, payload: &[u8]| {
        let (key, row) = ([&[b'k'; 90][..], &n.to_be_bytes()].concat(), RowId(n + 1));
        s.sim_write_entry(t, 0, Entry { key: &key, row, payload: Some(payload) }).unwrap();
        model.insert(key, (row, payload.to_vec()));
    };
    // Every second number, those of a stretch in the middle again, and some between two of them.
    let numbers: [(Vec<u64>, &[u8]); 3] = [
        ((0..6000).step_by(2).collect(), b"first"),
        ((2000..2400).step_by(2).collect(), b"again"),
        (vec![301, 303, 5001], b"between"),
    ];
    for (numbers, payload) in numbers {
        begin(&mut s);
        numbers.iter().for_each(|n| put(&mut s, &t, &mut model, *n, payload));
        s.commit().unwrap();
        e.sim_flush(&t).unwrap();
    }
    let [copied, written] = [Counter::BlocksCopied, Counter::BlocksWritten].map(|c| counters.get(c));
    e.optimize(&t, &mut |_, _| true).unwrap();
    let [copied, written] =
        [counters.get(Counter::BlocksCopied) - copied, counters.get(Counter::BlocksWritten) - written];
    assert!(copied > 5 * written && written >= 3, "{copied} blocks were copied, {written} written");
    for _ in 0..2 {
        check(&e, &t, &model);
        checkpoint::write(&e.core).unwrap();
        drop((s, t, e));
        disk.crash();
        e = open(&disk, small());
        (t, s) = (e.open_table("t").unwrap(), e.session());
    }
    drop(s);
}

/// A key whose versions lie in two blocks, the first of which holds no key twice: it is not copied by itself, so that what
/// nobody sees goes.
#[test]
fn versions_of_a_key_in_two_blocks_are_merged_as_one() {
    let disk = SimDisk::new(1);
    let e = open(&disk, small());
    for prefix in [3, 90] {
        let name = format!("t{prefix}");
        e.sim_create_table(&name, &def(), &[index(1)]).unwrap();
        let t = e.open_table(&name).unwrap();
        let (mut s, mut view) = (e.session(), e.session());
        let write = |s: &mut Session, n: u64, payload: &[u8]| {
            begin(s);
            let key = [&vec![b'k'; prefix][..], &n.to_be_bytes()].concat();
            s.sim_write_entry(&t, 0, Entry { key: &key, row: RowId(n + 1), payload: Some(payload) }).unwrap();
            s.commit().unwrap();
        };
        write(&mut s, 7, &[1; 100]);
        begin(&mut view);
        view.take_view();
        write(&mut s, 6, &[2; 600]);
        write(&mut s, 7, &[3; 17 << 10]);
        write(&mut s, 8, &[4; 100]);
        e.sim_flush(&t).unwrap();
        view.commit().unwrap();
        // One that begins behind has the sweep go over all.
        write(&mut s, 9, &[5; 100]);
        write(&mut s, 8, &[6; 100]);
        e.sim_flush(&t).unwrap();
        let entries = |t: &Arc<Table>| t.trees().keys[0].snapshot().runs.iter().map(|h| h.run.stats.rows).sum::<u64>();
        assert_eq!(entries(&t), 6);
        e.optimize(&t, &mut |_, _| true).unwrap();
        assert_eq!(entries(&t), 4, "keys that begin with {prefix} bytes that are the same");
    }
}

/// Dead entries that readers pass.
mod dead;
/// Sources that they look into beside others.
mod looks;
mod room;
