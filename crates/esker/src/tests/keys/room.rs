//! What runs keep on disk besides what counts of them: files go though a few keys of theirs are still there.

use super::*;
use crate::sim_hooks::SimHost;
use crate::tree::key::ByBytes;
use crate::tree::RunHandle;
use crate::upkeep::next_flush::REST;
use std::collections::BTreeMap as Map;

fn handles(t: &Table, tree: usize) -> Vec<RunHandle<ByBytes>> {
    t.trees().keys[tree].snapshot().runs.clone()
}

/// Keys in no order: a few of each run come before or behind all of what is merged, or between two merged runs.
#[test]
fn no_run_stays_for_a_few_keys_at_its_ends() {
    for run_bytes in [24 << 10, 1 << 20] {
        let e = open(&SimDisk::new(1), Options { run_bytes, ..small() });
        e.sim_create_table("t", &def(), &[index(1)]).unwrap();
        let t = e.open_table("t").unwrap();
        let (mut model, mut s, mut stuck_out) = (Model::new(), e.session(), 0);
        for load in 0..16 {
            begin(&mut s);
            (load * 400..(load + 1) * 400).for_each(|n| put(&mut s, &t, &mut model, n, b"loaded"));
            s.commit().unwrap();
            e.sim_flush(&t).unwrap();
            let all = handles(&t, 0);
            let largest = all.iter().max_by_key(|h| h.bytes()).unwrap();
            stuck_out += all.iter().filter(|h| h.first < largest.first || h.last > largest.last).count();
            while e.sim_merge(&t).unwrap() {}
            let all = handles(&t, 0);
            // What nothing lies over, nor under, no merge takes.
            let apart = |h: &&RunHandle<ByBytes>| !all.iter().any(|o| !o.is(h) && o.overlaps(&h.first, &h.last));
            for h in all.iter().filter(apart) {
                assert!(h.own_share() > 0.2, "{} of {} bytes, load {load}", h.bytes(), h.run.size_bytes());
            }
        }
        assert!(stuck_out > 5, "{stuck_out} runs stuck out");
        check(&e, &t, &model);
    }
}

/// Bytes of all run files, and what counts of them.
fn room(t: &Table) -> (u64, u64) {
    let all = || (0..2).flat_map(|tree| handles(t, tree));
    let files: Map<_, _> = all().map(|h| (h.run.file_id, h.run.file.size_bytes())).collect();
    assert!(files.values().all(|bytes| *bytes > 0));
    (files.values().sum(), all().map(|h| h.bytes()).sum())
}

/// One of two trees gets its keys in their order, so that nothing is to be merged there; the files are of both.
#[test]
fn small_parts_leave_their_files_at_rest() {
    for restart in [false, true] {
        let (disk, time) = (SimDisk::new(1), SimHost::new());
        let options = || Options {
            host: time.clone(),
            run_bytes: 256 << 10,
            bulk_threshold_bytes: 1 << 10,
            min_run_bytes: 12 << 10,
            ..small()
        };
        let mut e = open(&disk, options());
        e.sim_create_table("t", &def(), &[index(1), index(2)]).unwrap();
        let mut t = e.open_table("t").unwrap();
        let mut s = e.session();
        for load in 0..5 {
            begin(&mut s);
            for n in load * 500..(load + 1) * 500 {
                let row = RowId(n + 1);
                s.sim_write_entry(&t, 0, Entry { key: &n.to_be_bytes(), row, payload: Some(&[7; 8]) }).unwrap();
                s.sim_write_entry(&t, 1, Entry { key: &key(n), row, payload: Some(&[7; 40]) }).unwrap();
            }
            s.commit().unwrap();
        }
        let shared = handles(&t, 0).iter().filter(|h| h.run.file.size_bytes() > 2 * h.run.size_bytes()).count();
        assert!((3..8).contains(&shared), "{shared} parts, too few to be joined as neighbours");
        if restart {
            checkpoint::write(&e.core).unwrap();
            drop((s, t, e));
            e = open(&disk, options());
            t = e.open_table("t").unwrap();
        }
        for _ in 0..2 {
            while e.sim_merge(&t).unwrap() {}
            time.pass(REST);
        }
        let (files, counts) = room(&t);
        assert!(files < counts * 5 / 4, "{counts} of {files} bytes count, restart: {restart}");
        let mut s = e.session();
        begin(&mut s);
        for tree in 0..2 {
            assert_eq!(s.sim_entries(&t, tree, &[]).unwrap().len(), 2500);
        }
        s.commit().unwrap();
    }
}

/// Of a key run that merges had taken keys of before a restart its index tells what is left.
#[test]
fn what_is_left_of_a_run_is_known_after_a_restart() {
    let disk = SimDisk::new(1);
    let mut e = open(&disk, small());
    e.sim_create_table("t", &def(), &[index(1)]).unwrap();
    let t = e.open_table("t").unwrap();
    let (mut model, mut s) = (Model::new(), e.session());
    begin(&mut s);
    (0..400).for_each(|n| put(&mut s, &t, &mut model, n, b"loaded"));
    s.commit().unwrap();
    e.sim_flush(&t).unwrap();
    let tree = t.trees().keys[0].clone();
    let whole = handles(&t, 0).remove(0);
    let last = model.keys().nth(20).unwrap().clone();
    tree.edit(|state| {
        state.runs.clear();
        state.add_run(whole.narrowed(whole.first.clone(), last.as_slice().into()));
    });
    checkpoint::write(&e.core).unwrap();
    drop((s, t, tree, whole, e));
    e = open(&disk, small());
    let t = e.open_table("t").unwrap();
    let left = handles(&t, 0).remove(0);
    left.run.index().unwrap();
    assert!(left.own_share() < 0.2 && !left.is_whole(), "{}", left.own_share());
    e.optimize(&t, &mut |_, _| true).unwrap();
    let left = handles(&t, 0).remove(0);
    assert!(left.own_share() == 1.0 && left.is_whole() && left.run.stats.rows == 21);
}

/// What is at rest and in order is not written again: not the two sides of a run from whose middle something was taken, nor, behind a
/// restart, one of which only the blocks' bytes are known, and not those of its filters.
#[test]
fn what_fills_its_file_stays_there() {
    let (disk, time) = (SimDisk::new(1), SimHost::new());
    let options = || Options { host: time.clone(), run_bytes: 1 << 20, block_bytes: 16 << 10, ..small() };
    let mut e = open(&disk, options());
    let part = KeyPart { column: 0, prefix_bytes: 0, descending: false, encoding: 1, collation: 0 };
    let indexes = vec![IndexDef { name: "u".into(), unique: true, parts: vec![part] }];
    e.create_table("t", &TableDef { indexes, compression: esker_format::Compression::Lz4, ..def() }).unwrap();
    let mut t = e.open_table("t").unwrap();
    let mut s = e.session();
    begin(&mut s);
    for n in 0..6000u64 {
        let mut image = [0u8; 25];
        image[1..9].copy_from_slice(&n.to_be_bytes());
        // SAFETY: an image of this table's layout.
        unsafe { s.insert_image(&t, image.as_ptr()).unwrap() };
    }
    s.commit().unwrap();
    e.sim_flush(&t).unwrap();
    checkpoint::write(&e.core).unwrap();
    drop((s, t, e));
    let counters = SessionCounters::new();
    let _bound = bind(&counters);
    e = open(&disk, options());
    t = e.open_table("t").unwrap();
    let rests = || {
        for _ in 0..2 {
            assert!(!e.sim_merge(&t).unwrap(), "{} bytes were merged", counters.get(Counter::MergedBytes));
            time.pass(REST);
        }
    };
    let whole = handles(&t, 0).remove(0);
    let unread = whole.run.size_bytes();
    rests();
    let index = whole.run.index().unwrap();
    assert!(whole.run.size_bytes() > unread + unread / 3, "{unread} of {} bytes are blocks", whole.run.size_bytes());
    rests();
    let block = |at: usize| index.entries()[at].first_key.as_slice();
    let middle = index.entries().len() / 2;
    t.trees().keys[0].edit(|state| {
        state.runs.clear();
        state.add_run(whole.narrowed(whole.first.clone(), block(middle).into()));
        state.add_run(whole.narrowed(block(middle + 1).into(), whole.last.clone()));
    });
    rests();
}
