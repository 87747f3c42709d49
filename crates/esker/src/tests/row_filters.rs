//! Filters of rows: what was changed here and there lies over the table, and costs whoever looks for another row no block; nor
//! does what it lies over cost one who looks for a changed row.

use crate::tests::support::{begin, open_with, options};
use crate::tree::near::NearLookup;
use crate::tree::Place;
use crate::*;
use esker_base::counters::{bind, Counter, SessionCounters};
use esker_format::RowId;
use esker_io::SimDisk;
use std::collections::BTreeMap;
use std::sync::Arc;

const ROWS: u64 = 4000;
/// Of so many rows one is changed in each round.
const EACH: u64 = 40;
const ROUNDS: u64 = 4;

fn small() -> Options {
    Options { block_bytes: 1 << 10, memory_limit_bytes: 64 << 20, ..options() }
}

/// What each row has.
type Model = BTreeMap<u64, String>;

fn table(e: &Engine) -> (Arc<Table>, Model) {
    let schema = Schema::new().column("id", Type::U64).column("text", Type::Text(20));
    e.create_table("t", &TableDef::of(&schema).unwrap().unique("PRIMARY", &["id"]).unwrap()).unwrap();
    let t = e.open_table("t").unwrap();
    let mut s = e.session();
    for id in 0..ROWS {
        s.insert(&t, &[id.into(), "new".into()]).unwrap();
    }
    s.commit().unwrap();
    e.sim_flush(&t).unwrap();
    (t, (0..ROWS).map(|id| (id, "new".to_owned())).collect())
}

/// Runs of rows that were changed or deleted, all of which lie over all rows; half of the rounds are large writes.
fn change(e: &Engine, t: &Arc<Table>, model: &mut Model) {
    for round in 0..ROUNDS {
        let mut s = e.session();
        for id in (round..ROWS).step_by(EACH as usize) {
            let (row, _) = find(&mut s, t, id).unwrap();
            if id % 3 == 0 {
                s.delete(t, row).unwrap();
                model.remove(&id);
            } else {
                let text = format!("changed {round}");
                s.update(t, row, &[id.into(), text.as_str().into()]).unwrap();
                model.insert(id, text);
            }
        }
        s.commit().unwrap();
        e.sim_flush(t).unwrap();
    }
    let runs = t.trees().rows.snapshot().runs.len() as u64;
    assert!(runs > ROUNDS, "{runs} runs");
}

fn find(s: &mut Session, t: &Arc<Table>, id: u64) -> Option<(RowId, String)> {
    let key = [id.into()];
    let mut rows = s.rows_by(t, "PRIMARY", IndexRange::equal(&key)).unwrap();
    let row = rows.next().unwrap()?;
    Some((row.id(), row.get::<String>("text").unwrap()))
}

/// Reads all rows by their keys, in their order and in one in which no two neighbours follow each other; how many blocks of rows filters denied,
/// and how many were read.
fn read_all(e: &Engine, t: &Arc<Table>, model: &Model, what: &str) -> (u64, u64) {
    let counters = SessionCounters::new();
    let bound = bind(&counters);
    let mut s = e.session();
    let mut all = BTreeMap::new();
    let mut rows = s.rows_by(t, "PRIMARY", IndexRange::all()).unwrap();
    while let Some(row) = rows.next().unwrap() {
        all.insert(row.get::<u64>("id").unwrap(), row.get::<String>("text").unwrap());
    }
    drop(rows);
    assert_eq!(&all, model, "{what}: in the order of keys");
    for n in 0..ROWS {
        let id = n * 1237 % ROWS;
        assert_eq!(find(&mut s, t, id).map(|row| row.1), model.get(&id).cloned(), "{what}: {id}");
    }
    drop((s, bound));
    let mut all = BTreeMap::new();
    let mut s = e.session();
    let mut rows = s.rows(t).unwrap();
    while let Some(row) = rows.next().unwrap() {
        all.insert(row.get::<u64>("id").unwrap(), row.get::<String>("text").unwrap());
    }
    assert_eq!(&all, model, "{what}: a scan");
    (counters.get(Counter::FiltersDenied), counters.get(Counter::BlocksMissed))
}

fn reopened(e: Engine, disk: &SimDisk, t: Arc<Table>) -> (Engine, Arc<Table>) {
    drop(t);
    e.close().unwrap();
    let e = open_with(disk, small()).unwrap();
    let t = e.open_table("t").unwrap();
    (e, t)
}

#[test]
fn a_row_that_was_not_changed_costs_no_block_of_those_that_were() {
    let disk = SimDisk::new(1);
    let e = open_with(&disk, small()).unwrap();
    let (t, mut model) = table(&e);
    change(&e, &t, &mut model);
    let dense = t.trees().rows.snapshot().runs.iter().filter(|h| h.run.index().unwrap().filters().is_none()).count();
    assert_eq!(dense, 1, "only what was inserted has no filters");
    let (e, t) = reopened(e, &disk, t);
    let key_blocks: u64 = t.trees().keys[0].snapshot().runs.iter().map(|h| h.run.stats.blocks).sum();
    // Nothing is in memory: of the first row that is read each run of changes has its say by its filter.
    let counters = SessionCounters::new();
    let bound = bind(&counters);
    let untouched = ROUNDS + 7;
    assert_eq!(find(&mut e.session(), &t, untouched).unwrap().1, "new");
    drop(bound);
    assert!(counters.get(Counter::FiltersDenied) >= ROUNDS - 1, "{}", counters.get(Counter::FiltersDenied));
    let key_runs = t.trees().keys[0].snapshot().runs.len() as u64;
    let missed = counters.get(Counter::BlocksMissed);
    assert!(missed <= key_runs + 1, "{missed} blocks, the row's and of {key_runs} runs of keys");
    let (denied, missed) = read_all(&e, &t, &model, "opened again");
    let blocks: u64 = t.trees().rows.snapshot().runs.iter().map(|h| h.run.stats.blocks).sum();
    assert!(
        denied > ROUNDS && missed <= blocks + key_blocks,
        "{denied} denied, {missed} read of {blocks} and {key_blocks}"
    );
    let found = e.check(&t, &mut |_, _| true).unwrap();
    assert!(found.damages.is_empty() && found.blocks > 100, "{found:?}");
    // Merged, and opened once more.
    while e.sim_merge(&t).unwrap() {}
    read_all(&e, &t, &model, "merged");
    let (e, t) = reopened(e, &disk, t);
    read_all(&e, &t, &model, "merged and opened again");
    assert!(e.check(&t, &mut |_, _| true).unwrap().damages.is_empty());
}

/// Blocks that are read for a row when none is in memory: by its key, and by its id from place to place.
fn read_for(e: &Engine, t: &Arc<Table>, id: u64, text: &str) -> [u64; 2] {
    let mut s = e.session();
    begin(&mut s);
    let cold = || {
        e.core.cache.set_memory_limit(0);
        assert_eq!(e.core.cache.bytes(), 0);
        e.core.cache.set_memory_limit(small().memory_limit_bytes);
        SessionCounters::new()
    };
    let by_key = cold();
    let bound = bind(&by_key);
    let (row, found) = find(&mut s, t, id).unwrap();
    assert_eq!(found, text, "{id}");
    drop(bound);
    let by_id = cold();
    let _bound = bind(&by_id);
    let mut near = NearLookup::new(t.trees().rows.snapshot(), None, s.latest_view().unwrap());
    let (_, place) = near.find(row).unwrap().unwrap();
    let packed = match place {
        Place::Mem(_, packed) => packed.to_vec(),
        Place::Block(_, _, block, at) => {
            let mut packed = Vec::new();
            block.packed(at, &mut packed).unwrap();
            packed
        }
        Place::Found(_) => unreachable!("no row's versions are in two blocks"),
    };
    assert!(packed.windows(text.len()).any(|part| part == text.as_bytes()), "{id}: not {text}");
    [by_key, by_id].map(|counters| counters.get(Counter::BlocksMissed))
}

fn update(e: &Engine, t: &Arc<Table>, rows: impl Iterator<Item = u64>, text: &str) {
    let mut s = e.session();
    for id in rows {
        let (row, _) = find(&mut s, t, id).unwrap();
        s.update(t, row, &[id.into(), text.into()]).unwrap();
    }
    s.commit().unwrap();
}

/// Whoever finds a row in memory, or in a newer run, reads no block that has only older versions.
#[test]
fn what_is_older_than_the_version_found_is_not_read() {
    let e = open_with(&SimDisk::new(1), Options { bulk_threshold_bytes: 16 << 10, min_run_bytes: 4 << 10, ..small() })
        .unwrap();
    let (t, _) = table(&e);
    let runs = || t.trees().rows.snapshot().runs.len();
    while e.sim_merge(&t).unwrap() {}
    let base = runs();
    let each = |from| (from..ROWS).step_by(EACH as usize);
    update(&e, &t, each(1), "flushed");
    e.sim_flush(&t).unwrap();
    update(&e, &t, each(2), "in memory");
    assert_eq!(runs(), base + 1);
    let untouched = read_for(&e, &t, EACH + 3, "new");
    assert_eq!(
        read_for(&e, &t, EACH + 1, "flushed"),
        untouched,
        "a block of the newer run instead of one of the older"
    );
    assert_eq!(read_for(&e, &t, EACH + 2, "in memory"), untouched.map(|blocks| blocks - 1));
    // A large write's run is newer than what is in memory.
    update(&e, &t, (0..ROWS).filter(|id| id % EACH != 1), "large");
    assert!(runs() > base + 1, "{} runs", runs());
    assert_eq!(read_for(&e, &t, 60 * EACH + 2, "large"), untouched);
    // Its rows lie too close together for filters.
    assert_eq!(read_for(&e, &t, 60 * EACH + 1, "flushed"), untouched.map(|blocks| blocks + 1));
}
