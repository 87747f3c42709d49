//! Entries of large transactions: gathered beside the rows, written with them, read as others are.

use crate::sim_hooks::Entry;
use crate::tests::keys::index;
use crate::tests::spilled::most_files;
use crate::tests::support::*;
use crate::tests::tables::{open_on, Watched};
use crate::*;
use esker_base::counters::{bind, Counter, SessionCounters};
use esker_format::RowId;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::Arc;

type Model = BTreeMap<Vec<u8>, (RowId, Vec<u8>)>;

/// Scattered, and of several lengths.
fn key(n: u64) -> Vec<u8> {
    let mut key = n.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes().to_vec();
    key.resize(8 + (n % 50) as usize, b'k');
    key
}

fn put(s: &mut Session, t: &Arc<Table>, tree: usize, n: u64, payload: &[u8]) {
    s.sim_write_entry(t, tree, Entry { key: &key(n), row: RowId(n + 1), payload: Some(payload) }).unwrap();
}

fn make_indexed(e: &Engine, name: &str, indexes: u32) -> Arc<Table> {
    e.sim_create_table(name, &fixed(100), &(1..=indexes).map(index).collect::<Vec<_>>()).unwrap();
    e.open_table(name).unwrap()
}

fn entries(s: &mut Session, t: &Arc<Table>, tree: usize) -> Model {
    s.sim_entries(t, tree, &[]).unwrap().into_iter().map(|(key, row, payload)| (key, (row, payload))).collect()
}

/// One statement writes rows and entries of a thousand trees, more than large writes may keep in memory.
#[test]
fn a_thousand_trees_of_rows_and_keys_make_few_files() {
    const TABLES: usize = 125;
    const ROWS: u64 = 100;
    let disk = Watched::new();
    let e = open_on(Arc::new(disk.clone()), Options { memory_limit_bytes: 32 << 20, ..options() });
    let tables: Vec<_> = (0..TABLES).map(|i| make_indexed(&e, &format!("t{i:04}"), 7)).collect();
    let own = SessionCounters::new();
    let _bound = bind(&own);
    let mut s = e.session();
    begin(&mut s);
    let mut bytes = 0;
    for n in 0..ROWS {
        for t in &tables {
            let row = insert(&mut s, t, n).unwrap();
            for tree in 0..7 {
                let key = key(n * 7 + tree as u64);
                let entry = Entry { key: &key, row, payload: Some(&[7; 60]) };
                s.sim_write_entry(t, tree, entry).unwrap();
                bytes += key.len() as u64 + 68;
            }
            bytes += 109;
        }
    }
    let redo = s.current.open().unwrap().redo_bytes();
    assert!(redo < 4 << 20, "{redo} bytes of redo wait for the commit of {bytes} bytes");
    s.commit().unwrap();
    let (files, runs) = (own.get(Counter::RunsCreated), own.get(Counter::RunsAttached));
    assert!(files > 0 && files <= most_files(bytes), "{files} files of {bytes} bytes");
    assert_eq!(files, disk.1.run_syncs.load(Ordering::Relaxed) as u64, "a file is synced once");
    assert!(runs >= TABLES as u64 * 8 * 4 / 5, "{runs} runs of {} trees", TABLES * 8);
    assert!(own.get(Counter::LargeSpills) > 0, "memory was never short");
    drop((s, tables, e));
    disk.0.crash();
    let e = open_on(Arc::new(disk.clone()), Options { memory_limit_bytes: 32 << 20, ..options() });
    for i in 0..TABLES {
        let t = e.open_table(&format!("t{i:04}")).unwrap();
        assert_eq!(count(&e, &format!("t{i:04}")), ROWS);
        let mut s = e.session();
        begin(&mut s);
        for tree in 0..7 {
            assert_eq!(entries(&mut s, &t, tree).len() as u64, ROWS, "entries of tree {tree} of table {i}");
        }
        assert!(e.check(&t, &mut |_, _| true).unwrap().damages.is_empty());
    }
}

/// A large transaction that reads, rolls back and writes keys again finds what it has written, in its own memtable, in its
/// runs and in what others share; so do others when it has committed, and a restart.
#[test]
fn entries_of_a_large_transaction_are_read_as_others_are() {
    let (mut private, mut runs, mut kept) = (0, 0, 0);
    for seed in 0..20 {
        let mut random = fastrand::Rng::with_seed(seed);
        let disk = esker_io::SimDisk::new(seed);
        let o = Options { bulk_threshold_bytes: 1 << 10, min_run_bytes: 6 << 10, block_bytes: 1 << 10, ..small() };
        let e = open_with(&disk, o.clone()).unwrap();
        let t = make_indexed(&e, "t", 2);
        let mut models = [Model::new(), Model::new()];
        for _ in 0..4 {
            let mut s = e.session();
            begin(&mut s);
            let mut saved = (s.savepoint(), models.clone());
            for step in 0..random.u32(20..400) {
                let (n, tree) = (random.u64(0..150), random.usize(0..2));
                let model = &mut models[tree];
                match random.u8(0..40) {
                    0 => saved = (s.savepoint(), models.clone()),
                    1 => {
                        s.rollback_to(&saved.0);
                        models = saved.1.clone();
                    }
                    2 => assert_eq!(entries(&mut s, &t, tree), *model, "seed {seed}, step {step}"),
                    3..12 if model.contains_key(&key(n)) => {
                        let entry = Entry { key: &key(n), row: RowId(n + 1), payload: None };
                        s.sim_write_entry(&t, tree, entry).unwrap();
                        model.remove(&key(n));
                    }
                    _ => {
                        let payload = vec![step as u8; random.usize(0..80)];
                        put(&mut s, &t, tree, n, &payload);
                        model.insert(key(n), (RowId(n + 1), payload));
                    }
                }
                let found = s.sim_entry(&t, tree, &key(n)).unwrap().map(|(_, row, payload)| (row, payload));
                assert_eq!(found.as_ref(), models[tree].get(&key(n)), "seed {seed}, step {step}, key {n}");
            }
            let own = s.current.open().and_then(|txn| txn.in_table(&t));
            private += own.map_or(0, |t| t.keys.iter().filter(|k| k.has_private()).count());
            let before = own.map_or(0, |t| t.keys.iter().map(|k| k.runs.len()).sum::<usize>());
            let was_private = own.is_some_and(|t| t.keys.iter().any(|k| k.has_private()));
            let attached = t.trees().keys.iter().map(|k| k.snapshot().runs.len()).sum::<usize>();
            s.commit().unwrap();
            let now = t.trees().keys.iter().map(|k| k.snapshot().runs.len()).sum::<usize>();
            (runs, kept) = (runs + now - attached + before, kept + u32::from(was_private && now == attached));
            if random.bool() {
                e.sim_flush(&t).unwrap();
            }
        }
        for crashed in [false, true] {
            let e = if crashed { None } else { Some(&e) };
            let again;
            let e = match e {
                Some(e) => e,
                None => {
                    disk.crash();
                    again = open_with(&disk.snapshot(), o.clone()).unwrap();
                    &again
                }
            };
            let t = e.open_table("t").unwrap();
            let mut s = e.session();
            begin(&mut s);
            for (tree, model) in models.iter().enumerate() {
                assert_eq!(entries(&mut s, &t, tree), *model, "seed {seed}, after a crash: {crashed}");
            }
            assert!(e.check(&t, &mut |_, _| true).unwrap().damages.is_empty());
        }
    }
    assert!(private > 25 && runs > 25 && kept > 2, "{private} private memtables, {runs} runs, {kept} kept in memory");
}

/// Its entries go with it.
#[test]
fn a_large_transaction_that_rolls_back_leaves_no_entry() {
    let disk = esker_io::SimDisk::new(1);
    let e = open_with(&disk, small()).unwrap();
    let t = make_indexed(&e, "t", 1);
    let mut s = e.session();
    begin(&mut s);
    (0..20_000).for_each(|n| put(&mut s, &t, 0, n, &[1; 50]));
    assert!(t.trees().keys[0].snapshot().runs.len() > 1, "no run was made of its entries");
    s.rollback().unwrap();
    e.sim_round().unwrap();
    begin(&mut s);
    assert!(entries(&mut s, &t, 0).is_empty());
    assert_eq!(crate::tests::tables::run_files(&disk).len(), 0);
    assert_eq!(e.core.large.used(), 0);
}
