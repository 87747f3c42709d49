//! Filters of unique indexes: a key that is nowhere costs no block, whatever was flushed, merged, opened again or damaged.

use crate::tests::support::{open_with, options};
use crate::upkeep::background;
use crate::*;
use esker_base::counters::{bind, Counter, SessionCounters};
use esker_io::{AccessHint, Disk, OpenMode, SimDisk};
use std::sync::Arc;

const KEYS: u64 = 6000;
/// New keys that are asked for.
const NEW: u64 = 500;

fn small() -> Options {
    Options {
        bulk_threshold_bytes: 16 << 10,
        min_run_bytes: 4 << 10,
        block_bytes: 1 << 10,
        memory_limit_bytes: 64 << 20,
        ..options()
    }
}

fn table(e: &Engine) -> Arc<Table> {
    let schema = Schema::new().column("id", Type::U64).column("text", Type::Text(20));
    e.create_table("t", &TableDef::of(&schema).unwrap().unique("PRIMARY", &["id"]).unwrap()).unwrap();
    e.open_table("t").unwrap()
}

/// In no order; those of odd numbers are never there.
fn id(n: u64) -> u64 {
    n.wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

fn insert(s: &mut Session, t: &Arc<Table>, n: u64) -> Result<()> {
    s.insert(t, &[id(n).into(), "a text".into()]).map(drop)
}

/// Several runs with the even numbers, all of which lie over all keys.
fn load(e: &Engine, t: &Arc<Table>) {
    for part in 0..3 {
        let mut s = e.session();
        for n in (0..KEYS).filter(|n| n % 3 == part) {
            insert(&mut s, t, 2 * n).unwrap();
        }
        s.commit().unwrap();
    }
    e.sim_flush(t).unwrap();
    let runs = t.trees().keys[0].snapshot().runs.len();
    assert!(runs >= 3, "{runs} runs");
}

/// Asks for keys that are nowhere and for some that are there. How many blocks filters denied, and how many were looked at.
fn ask(e: &Engine, t: &Arc<Table>) -> (u64, u64) {
    let counters = SessionCounters::new();
    let _bound = bind(&counters);
    let mut s = e.session();
    for n in 0..NEW {
        insert(&mut s, t, 2 * n + 1).unwrap();
    }
    let blocks = [Counter::BlocksCached, Counter::BlocksMissed].map(|c| counters.get(c)).iter().sum();
    let denied = counters.get(Counter::FiltersDenied);
    for n in (0..KEYS).step_by(11) {
        let met = insert(&mut s, t, 2 * n);
        assert!(matches!(met, Err(Error::DuplicateKey { index: 0, .. })), "{n}: {met:?}");
    }
    s.rollback().unwrap();
    (denied, blocks)
}

fn filters_tell(e: &Engine, t: &Arc<Table>, what: &str) {
    let (denied, blocks) = ask(e, t);
    assert!(denied >= NEW * 9 / 10, "{what}: filters denied {denied} blocks of {NEW} keys");
    assert!(blocks <= denied / 20, "{what}: {blocks} blocks were looked at, {denied} denied");
}

#[test]
fn a_key_that_is_nowhere_costs_no_block() {
    let disk = SimDisk::new(1);
    let e = open_with(&disk, small()).unwrap();
    let t = table(&e);
    load(&e, &t);
    filters_tell(&e, &t, "loaded");
    drop(t);
    e.close().unwrap();
    let e = open_with(&disk, small()).unwrap();
    let t = e.open_table("t").unwrap();
    filters_tell(&e, &t, "opened again");
    let counters = SessionCounters::new();
    let bound = bind(&counters);
    while e.sim_merge(&t).unwrap() {}
    assert!(counters.get(Counter::Merges) > 0);
    drop(bound);
    filters_tell(&e, &t, "merged");
    let found = e.check(&t, &mut |_, _| true).unwrap();
    assert!(found.damages.is_empty() && found.blocks > 100, "{found:?}");
}

#[test]
fn a_block_that_is_copied_keeps_its_filter() {
    let e = open_with(&SimDisk::new(1), small()).unwrap();
    let t = table(&e);
    // One run with keys at both ends, many that lie between: of it most blocks are copied.
    let mut s = e.session();
    for n in 0..KEYS {
        s.insert(&t, &[(2 * n).into(), "a text".into()]).unwrap();
    }
    s.commit().unwrap();
    while e.sim_merge(&t).unwrap() {}
    let counters = SessionCounters::new();
    let bound = bind(&counters);
    for from in [0u64, 100, 200, 300] {
        let mut s = e.session();
        for n in from..from + 60 {
            s.insert(&t, &[(2 * n + 1).into(), "a text".into()]).unwrap();
        }
        s.commit().unwrap();
        e.sim_flush(&t).unwrap();
    }
    e.optimize(&t, &mut |_, _| true).unwrap();
    assert!(counters.get(Counter::BlocksCopied) > 50, "{} blocks copied", counters.get(Counter::BlocksCopied));
    drop(bound);
    let (mut s, counters) = (e.session(), SessionCounters::new());
    let _bound = bind(&counters);
    for n in (400..KEYS).step_by(7) {
        s.insert(&t, &[(2 * n + 1).into(), "a text".into()]).unwrap();
        let met = s.insert(&t, &[(2 * n).into(), "a text".into()]);
        assert!(matches!(met, Err(Error::DuplicateKey { index: 0, .. })), "{n}: {met:?}");
    }
    let asked = (KEYS - 400) / 7;
    assert!(counters.get(Counter::FiltersDenied) >= asked * 9 / 10);
    let found = e.check(&t, &mut |_, _| true).unwrap();
    assert!(found.damages.is_empty(), "{found:?}");
}

/// Whoever asks looks into the blocks then; CHECK TABLE tells.
#[test]
fn a_damaged_filter_costs_time_and_nothing_else() {
    let disk = SimDisk::new(1);
    let e = open_with(&disk, small()).unwrap();
    let t = table(&e);
    load(&e, &t);
    drop(t);
    e.close().unwrap();
    let e = open_with(&disk, small()).unwrap();
    let t = e.open_table("t").unwrap();
    for handle in &t.trees().keys[0].snapshot().runs {
        let index = handle.run.index().unwrap().keep();
        let offset = index.filters().unwrap().first_offset() + 100;
        let file = disk.open(&handle.run.path(), OpenMode::Write, AccessHint::Meta).unwrap();
        let mut byte = [0];
        file.read_at(&mut byte, offset).unwrap();
        file.write_at(&[!byte[0]], offset).unwrap();
    }
    let (_, blocks) = ask(&e, &t);
    assert!(blocks > NEW / 10, "{blocks} blocks were looked at");
    let damages = e.check(&t, &mut |_, _| true).unwrap().damages;
    assert!(!damages.is_empty() && damages.iter().all(|d| matches!(d, Error::Damage { .. })), "{damages:?}");
}

/// With a hundredth of the memory that all filters take, and `ESKER_MANY_KEYS=100000000` with 256 MiB.
#[test]
fn far_more_keys_than_memory_for_their_filters() {
    let many: Option<u64> = std::env::var("ESKER_MANY_KEYS").ok().map(|n| n.parse().unwrap());
    let keys = many.unwrap_or(60_000);
    let limit = if many.is_some() { 256 << 20 } else { 1 << 20 };
    let own = Options { memory_limit_bytes: limit, block_bytes: 4 << 10, ..small() };
    let folder = many.map(|_| std::env::temp_dir().join(format!("esker-many-keys-{}", std::process::id())));
    let e = match &folder {
        Some(folder) => {
            Engine::open(Arc::new(PosixDisk::new()), folder, Options::default(), Arc::new(|_, _| {})).unwrap()
        }
        None => open_with(&SimDisk::new(1), own).unwrap(),
    };
    e.set_memory_limit(limit);
    let t = table(&e);
    let mut s = e.session();
    for n in 0..keys {
        insert(&mut s, &t, 2 * n).unwrap();
        if n % (keys / 20) == 0 {
            s.commit().unwrap();
            let cached = e.core.cache.bytes();
            assert!(cached <= limit, "{cached} bytes of blocks and filters are cached after {n} keys");
        }
    }
    s.commit().unwrap();
    if folder.is_none() {
        e.sim_flush(&t).unwrap();
    }
    let counters = SessionCounters::new();
    let _bound = bind(&counters);
    let step = (keys / 20_000).max(1) as usize;
    for n in (0..keys).step_by(step) {
        insert(&mut s, &t, 2 * n + 1).unwrap();
    }
    let asked = keys / step as u64;
    s.rollback().unwrap();
    assert!(counters.get(Counter::FiltersDenied) >= asked * 9 / 10);
    for n in (0..keys).step_by(step * 10) {
        let met = insert(&mut s, &t, 2 * n);
        assert!(matches!(met, Err(Error::DuplicateKey { index: 0, .. })), "{n}: {met:?}");
        s.rollback().unwrap();
    }
    let cached = e.core.cache.bytes();
    assert!(cached <= limit, "{cached} bytes of blocks and filters are cached");
    assert!(counters.get(Counter::BlocksEvicted) > 0, "memory was never short");
    drop((s, t));
    e.close().unwrap();
    if let Some(folder) = folder {
        std::fs::remove_dir_all(folder).unwrap();
    }
}

/// Index and filters, which a start does not read, are no waste in the file: behind a restart nothing is written again.
#[test]
fn what_was_in_order_stays_so_behind_a_restart() {
    let disk = SimDisk::new(1);
    let mut kept = None;
    for start in ["first", "second"] {
        let e = open_with(&disk, Options { run_bytes: 8 << 20, ..small() }).unwrap();
        let t = if start == "first" { table(&e) } else { e.open_table("t").unwrap() };
        if start == "first" {
            let mut s = e.session();
            for n in 0..8 * KEYS {
                s.insert(&t, &[n.into(), "".into()]).unwrap();
            }
            s.commit().unwrap();
            e.sim_flush(&t).unwrap();
            while background::merge_somewhere(&e.core).unwrap() {}
            let runs = &t.trees().keys[0].snapshot().runs;
            let beside = |h: &crate::tree::RunHandle<_>| h.run.size_bytes() - h.run.stats.stored_bytes;
            assert!(runs.iter().all(|h| 3 * beside(h) > h.run.stats.stored_bytes), "filters take little");
        }
        let files = |state: &crate::tree::TreeState<crate::tree::key::ByBytes>| {
            state.runs.iter().map(|h| h.run.file_id).collect::<Vec<_>>()
        };
        let tree = &t.trees().keys[0];
        let before = files(&tree.snapshot());
        assert!(!background::merge_somewhere(&e.core).unwrap(), "{start} start");
        assert!(tree.is_settled(), "{start} start: once it rests there is something to merge");
        assert_eq!(*kept.get_or_insert(before.clone()), before);
        drop(t);
        e.close().unwrap();
    }
}
