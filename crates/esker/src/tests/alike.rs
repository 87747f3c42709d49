//! Keys that no one block holds: many that begin alike, so that an index cannot tell them apart, and one with so many
//! bytes of versions that they fill several blocks.

use crate::sim_hooks::Entry;
use crate::tests::keys::index;
use crate::tests::tables::{begin, def, open, options};
use crate::tree::key::ByBytes;
use crate::tree::run::writer::RunWriter;
use crate::tree::run::{Bytes, Run};
use crate::tree::stored::{entry_value, Stored};
use crate::*;
use esker_format::key_block::MAX_KEY_BYTES;
use esker_format::{CommitSeq, KeyBlock, RowId, VersionTag, MAX_BLOCK_BYTES};
use esker_io::SimDisk;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Payloads by the numbers of keys.
type Model = BTreeMap<u64, Vec<u8>>;

fn small() -> Options {
    Options { block_bytes: 1 << 10, ..options() }
}

fn table(e: &Engine) -> Arc<Table> {
    e.sim_create_table("t", &def(), &[index(1)]).unwrap();
    e.open_table("t").unwrap()
}

/// Of each `n` another, longer than what an index keeps, which is the same of all.
fn long(n: u64) -> Vec<u8> {
    [&[b'k'; 70][..], &n.to_be_bytes()].concat()
}

fn short(n: u64) -> Vec<u8> {
    n.to_be_bytes().to_vec()
}

fn put(s: &mut Session, t: &Arc<Table>, key: &[u8], n: u64, payload: Option<&[u8]>) {
    s.sim_write_entry(t, 0, Entry { key, row: RowId(n + 1), payload }).unwrap();
}

/// Reads all, from each fifth key on, and each key by itself.
fn check_in(s: &mut Session, t: &Arc<Table>, key: fn(u64) -> Vec<u8>, model: &Model) {
    let expected: Vec<_> = model.iter().map(|(n, payload)| (key(*n), RowId(n + 1), payload.clone())).collect();
    assert!(s.sim_entries(t, 0, &[]).unwrap() == expected, "the whole tree");
    for (at, entry) in expected.iter().enumerate() {
        assert_eq!(s.sim_entry(t, 0, &entry.0).unwrap().as_ref(), Some(entry));
        if at % 5 == 0 {
            assert!(s.sim_entries(t, 0, &entry.0).unwrap() == expected[at..], "from {:?} on", entry.0);
        }
    }
}

fn check(e: &Engine, t: &Arc<Table>, key: fn(u64) -> Vec<u8>, model: &Model) {
    let mut s = e.session();
    begin(&mut s);
    check_in(&mut s, t, key, model);
    s.commit().unwrap();
    assert!(e.check(t, &mut |_, _| true).unwrap().damages.is_empty());
}

fn runs(t: &Arc<Table>) -> Vec<Arc<Run<ByBytes>>> {
    t.trees().keys[0].snapshot().runs.iter().map(|h| h.run.clone()).collect()
}

/// Blocks of which the index knows what their first keys begin with, and no more.
fn blocks_alike(run: &Arc<Run<ByBytes>>) -> usize {
    run.index().unwrap().entries().iter().filter(|e| !ByBytes::is_first_known(e)).count()
}

#[test]
fn the_key_before_another_is_found_among_those_that_begin_alike() {
    let disk = SimDisk::new(1);
    let e = open(&disk, small());
    let t = table(&e);
    let mut s = e.session();
    begin(&mut s);
    // Some before them and some behind.
    let mut keys: Vec<Vec<u8>> = (0..600).map(|n| long(2 * n)).collect();
    keys.extend((0..90u8).flat_map(|n| [vec![b'a', n], vec![b'x', n]]));
    keys.sort();
    keys.iter().zip(0..).for_each(|(key, n)| put(&mut s, &t, key, n, Some(b"payload")));
    s.commit().unwrap();
    e.sim_flush(&t).unwrap();
    let run = runs(&t).remove(0);
    assert!(blocks_alike(&run) >= 10, "{} blocks whose keys begin alike", blocks_alike(&run));
    let blocks = run.index().unwrap();
    let between = (0..601).map(|n| [&long(2 * n)[..], &[0]].concat());
    for key in keys.iter().cloned().chain(between).chain([vec![], vec![b'b'], vec![b'z']]) {
        let before = keys.partition_point(|k| *k < key).checked_sub(1).map(|at| &keys[at][..]);
        assert_eq!(run.key_before(&blocks, &key).unwrap().as_deref(), before, "before {key:?}");
    }
}

/// Merges take a few of them from the middle of a run, and what is left of it on both sides is all that was there.
#[test]
fn merges_cut_runs_between_keys_that_begin_alike() {
    let disk = SimDisk::new(1);
    let mut e = open(&disk, Options { run_bytes: 24 << 10, ..small() });
    let mut t = table(&e);
    let (mut model, mut parts, mut alike) = (Model::new(), 0, 0);
    for round in 0..12u64 {
        let mut s = e.session();
        begin(&mut s);
        // All, then some of them here and there.
        for n in (0..4000).filter(|n| round == 0 || (n * 7 + round) % 11 == 0) {
            let payload = vec![round as u8; 20];
            put(&mut s, &t, &long(n), n, Some(&payload));
            model.insert(n, payload);
        }
        s.commit().unwrap();
        drop(s);
        e.sim_flush(&t).unwrap();
        let mut steps = 0;
        while e.sim_merge(&t).unwrap() {
            steps += 1;
            assert!(steps < 200, "no end after {steps} steps");
            check(&e, &t, long, &model);
            parts += e.sim_key_runs(&t).iter().filter(|run| run.narrowed).count();
        }
        alike += runs(&t).iter().map(blocks_alike).sum::<usize>();
        if round % 4 == 3 {
            drop((t, e));
            disk.crash();
            e = open(&disk, Options { run_bytes: 24 << 10, ..small() });
            t = e.open_table("t").unwrap();
            check(&e, &t, long, &model);
        }
    }
    assert!(parts >= 5 && alike >= 100, "{parts} parts of runs, {alike} blocks whose keys begin alike");
}

/// What a step must read to find where its inputs begin says nothing of what it has done: it ends when it has done much.
#[test]
fn merging_of_keys_that_begin_alike_comes_to_an_end() {
    const MOST_STEPS: usize = 200;
    let disk = SimDisk::new(1);
    let mut e = open(&disk, Options { run_bytes: 1 << 20, ..small() });
    let mut t = table(&e);
    let mut model = Model::new();
    let mut write = |e: &Engine, t: &Arc<Table>, numbers: &mut dyn Iterator<Item = u64>, payload: &[u8]| {
        let mut s = e.session();
        begin(&mut s);
        for n in numbers {
            put(&mut s, t, &long(n), n, Some(payload));
            model.insert(n, payload.to_vec());
        }
        s.commit().unwrap();
        e.sim_flush(t).unwrap();
        check(e, t, long, &model);
    };
    write(&e, &t, &mut (0..4000), b"one run of all of them");
    let base = runs(&t)[0].size_bytes();
    drop((t, e));
    disk.crash();
    let few = 8 << 10;
    assert!(base > 12 * few, "a run of {base} bytes");
    e = open(&disk, Options { run_bytes: few, ..small() });
    t = e.open_table("t").unwrap();
    let mut steps = 0;
    for round in 0..6 {
        write(&e, &t, &mut (0..4000).filter(|n| (n * 7 + round) % 5 == 0), &[round as u8; 30]);
        while e.sim_merge(&t).unwrap() {
            steps += 1;
            assert!(steps < MOST_STEPS, "{steps} steps, {} runs", runs(&t).len());
        }
    }
    assert!(steps > 10, "{steps} steps");
    check(&e, &t, long, &model);
}

/// Places in a run where a key's versions go on in the next block; and those of them where each of the two blocks has one
/// version of it, so that none has a key twice.
fn spread(run: &Arc<Run<ByBytes>>) -> (usize, usize) {
    let blocks: Vec<KeyBlock<Bytes>> =
        (0..run.index().unwrap().entries().len()).map(|at| run.read_block(at).unwrap()).collect();
    let meets = |pair: &&[_]| ByBytes::last_key(&pair[0]) == ByBytes::key(&pair[1], 0);
    let keys_differ = |block: &KeyBlock<Bytes>| (1..block.rows()).all(|at| block.key(at) != block.key(at - 1));
    let once = |pair: &&[KeyBlock<Bytes>]| pair.iter().all(keys_differ);
    let both = || blocks.windows(2).filter(meets);
    (both().count(), both().filter(once).count())
}

#[test]
fn a_key_whose_versions_fill_several_blocks_is_given_once() {
    const MUCH: usize = 20_000;
    for key in [short, long] {
        let disk = SimDisk::new(1);
        let mut e = open(&disk, small());
        let mut t = table(&e);
        let (mut model, mut s, mut views) = (Model::new(), e.session(), Vec::new());
        begin(&mut s);
        for n in (0..40).filter(|n| *n != 20) {
            put(&mut s, &t, &key(n), n, Some(b"beside"));
            model.insert(n, b"beside".to_vec());
        }
        s.commit().unwrap();
        // A version of more than sixteen blocks ends its own: the older ones are in the next.
        for (size, version) in [9, MUCH, MUCH, 30, 40, MUCH, 5, MUCH, MUCH].into_iter().zip(1u8..) {
            let mut view = e.session();
            begin(&mut view);
            view.take_view();
            views.push((view, model.clone()));
            begin(&mut s);
            put(&mut s, &t, &key(20), 20, Some(&vec![version; size]));
            model.insert(20, vec![version; size]);
            s.commit().unwrap();
            if version == 5 {
                e.sim_flush(&t).unwrap();
            }
        }
        let seen = |e: &Engine, t: &Arc<Table>, views: &mut Vec<(Session, Model)>, model: &Model| {
            views.iter_mut().for_each(|(view, model)| check_in(view, t, key, model));
            check(e, t, key, model);
        };
        e.sim_flush(&t).unwrap();
        seen(&e, &t, &mut views, &model);
        let (both, once) = runs(&t).iter().map(spread).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
        assert!(
            both >= 4 && once >= 2,
            "{both} blocks end with the key that the next begins with, {once} have it once"
        );
        // Joined, all of them are there as long as the views are.
        e.optimize(&t, &mut |_, _| true).unwrap();
        let (both, once) = spread(&runs(&t)[0]);
        assert!(runs(&t).len() == 1 && both >= 5 && once >= 2, "{both} and {once} of them after a merge");
        seen(&e, &t, &mut views, &model);
        views.drain(..).for_each(|(mut view, _)| view.commit().unwrap());
        drop((s, t, e));
        disk.crash();
        e = open(&disk, small());
        t = e.open_table("t").unwrap();
        check(&e, &t, key, &model);
        s = e.session();
        begin(&mut s);
        put(&mut s, &t, &key(40), 40, Some(b"last"));
        model.insert(40, b"last".to_vec());
        s.commit().unwrap();
        e.optimize(&t, &mut |_, _| true).unwrap();
        check(&e, &t, key, &model);
        assert_eq!(runs(&t)[0].stats.rows, model.len() as u64, "versions that nobody sees are left");
    }
}

/// Of the longest keys a block has no room for as many versions as of others.
#[test]
fn a_long_key_has_any_number_of_versions() {
    let disk = SimDisk::new(1);
    let e = open(&disk, options());
    let t = table(&e);
    let recipe = e.core.runs.recipe(&t, &t.trees().keys[0]);
    let mut writer = RunWriter::create(&recipe, e.core.ids.new_file()).unwrap();
    let (key, versions) = (vec![7; MAX_KEY_BYTES], u64::from(MAX_BLOCK_BYTES) / MAX_KEY_BYTES as u64);
    for n in (0..versions).rev() {
        let tag = VersionTag { seq: CommitSeq(n + 1), ordinal: n, ..VersionTag::default() };
        writer.push(&key, tag, &entry_value(RowId(1), b"")).unwrap();
    }
    let run = writer.finish().unwrap();
    let read = |at| ByBytes::rows(&run.read_block(at).unwrap());
    let blocks = run.stats.blocks as usize;
    assert_eq!((run.stats.rows, (0..blocks).map(read).map(u64::from).sum()), (versions, versions));
    assert!(blocks > 1 && spread(&run).0 == blocks - 1, "{blocks} blocks");
}
