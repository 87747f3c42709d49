//! Rows that are looked up near each other, which are looked for once: what is newer, deleted, another's or the own
//! transaction's lies among them.

use crate::read::index::lookup::RowLookup;
use crate::tests::support::{open_with, options};
use crate::tree::looks::LOOK_BYTES;
use crate::tree::near::{alone, edges, searched, stretches, told, NearLookup};
use crate::tree::{self, find};
use crate::version::VersionOrder;
use crate::*;
use esker_base::counters::{bind, Counter, SessionCounters};
use esker_format::RowId;
use esker_io::SimDisk;
use std::collections::BTreeMap;
use std::sync::Arc;

const ROWS: u64 = 3000;

type Found = Vec<(u64, u64)>;

fn by_key(s: &mut Session, t: &Arc<Table>, descending: bool) -> Found {
    let range = if descending { IndexRange::all().descending() } else { IndexRange::all() };
    let (mut rows, mut found) = (s.rows_by(t, "PRIMARY", range).unwrap(), Vec::new());
    while let Some(row) = rows.next().unwrap() {
        found.push((row.get::<u64>("id").unwrap(), row.get::<u64>("n").unwrap()));
    }
    found
}

fn begin(e: &Engine) -> Session {
    let mut s = e.session();
    s.begin(Isolation::RepeatableRead, BeginOptions::default());
    s.begin_statement();
    s
}

/// What a session does to the rows at every `step`th place.
fn change(s: &mut Session, t: &Arc<Table>, ids: &[RowId], step: usize, n: Option<u64>, model: &mut BTreeMap<u64, u64>) {
    for at in (step..ids.len()).step_by(step) {
        let id = at as u64;
        if !model.contains_key(&id) {
            continue;
        }
        match n {
            Some(n) => {
                s.update(t, ids[at], &[id.into(), n.into()]).unwrap();
                model.insert(id, n);
            }
            None => {
                s.delete(t, ids[at]).unwrap();
                model.remove(&id);
            }
        }
    }
}

/// A table with rows in a run, and their ids.
fn filled(options: Options) -> (Engine, Arc<Table>, Vec<RowId>) {
    let e = open_with(&SimDisk::new(1), options).unwrap();
    let schema = Schema::new().column("id", Type::U64).column("n", Type::U64);
    e.create_table("t", &TableDef::of(&schema).unwrap().unique("PRIMARY", &["id"]).unwrap()).unwrap();
    let t = e.open_table("t").unwrap();
    let mut s = begin(&e);
    let ids = (0..ROWS).map(|id| s.insert(&t, &[id.into(), 1u64.into()]).unwrap()).collect();
    s.commit().unwrap();
    e.sim_flush(&t).unwrap();
    (e, t, ids)
}

#[test]
fn rows_are_as_they_are_whatever_lies_among_them() {
    let small = Options {
        bulk_threshold_bytes: 16 << 10,
        min_run_bytes: 4 << 10,
        block_bytes: 4 << 10,
        memory_limit_bytes: 64 << 20,
        ..options()
    };
    let (e, t, ids) = filled(small);
    let (mut model, mut s) = ((0..ROWS).map(|id| (id, 1)).collect::<BTreeMap<_, _>>(), begin(&e));
    let is = |s: &mut Session, model: &BTreeMap<u64, u64>, what: &str| {
        let mut wanted: Found = model.iter().map(|(id, n)| (*id, *n)).collect();
        alone::take();
        assert_eq!(by_key(s, &t, false), wanted, "{what}");
        let are_alone = |what: &str| {
            let (looked, taken) = (alone::take(), stretches::take());
            assert!(looked > ROWS as usize / 2, "{what}: {looked} rows were looked for in one block alone");
            assert!(taken > 0, "{what}: no rows were found beside others");
        };
        are_alone(what);
        wanted.reverse();
        assert_eq!(by_key(s, &t, true), wanted, "{what}, from the end");
        are_alone(&format!("{what}, from the end"));
    };
    let counters = SessionCounters::new();
    let bound = bind(&counters);
    is(&mut begin(&e), &model, "loaded");
    let blocks = counters.get(Counter::BlocksCached) + counters.get(Counter::BlocksMissed);
    assert!(blocks < ROWS / 4, "{blocks} blocks were looked at for {ROWS} rows, in both directions");
    drop(bound);

    let (mut old, was) = (begin(&e), model.clone());
    is(&mut old, &was, "before");
    // In runs that lie over the first, in memory, not committed, by itself.
    change(&mut s, &t, &ids, 97, Some(2), &mut model);
    change(&mut s, &t, &ids, 53, None, &mut model);
    s.commit().unwrap();
    e.sim_flush(&t).unwrap();
    is(&mut begin(&e), &model, "flushed");
    change(&mut s, &t, &ids, 89, Some(3), &mut model);
    change(&mut s, &t, &ids, 61, None, &mut model);
    s.commit().unwrap();
    is(&mut begin(&e), &model, "in memory");
    let mut other = begin(&e);
    change(&mut other, &t, &ids, 41, Some(4), &mut model.clone());
    is(&mut begin(&e), &model, "another's are not seen");
    let mut own = begin(&e);
    let mut of_own = model.clone();
    other.rollback().unwrap();
    change(&mut own, &t, &ids, 31, Some(5), &mut of_own);
    change(&mut own, &t, &ids, 37, None, &mut of_own);
    is(&mut own, &of_own, "its own");
    is(&mut begin(&e), &model, "nobody else's");
    own.commit().unwrap();
    is(&mut begin(&e), &of_own, "committed");
    is(&mut old, &was, "an old view");
}

/// Rows that are asked for one behind the other, with others in between.
#[test]
fn rows_beside_each_other_are_found_whatever_is_asked_for_between() {
    let small = Options { block_bytes: 1 << 10, memory_limit_bytes: 64 << 20, ..options() };
    let (e, t, ids) = filled(small);
    let (mut model, mut s) = ((0..ROWS).map(|id| (id, 1)).collect::<BTreeMap<_, _>>(), begin(&e));
    change(&mut s, &t, &ids, 701, Some(2), &mut model);
    change(&mut s, &t, &ids, 503, None, &mut model);
    s.commit().unwrap();
    e.sim_flush(&t).unwrap();
    change(&mut s, &t, &ids, 911, Some(3), &mut model);
    change(&mut s, &t, &ids, 301, None, &mut model);
    s.commit().unwrap();
    let view = s.latest_view().unwrap();
    let state = t.tree().snapshot();
    let mut asked: Vec<usize> = Vec::new();
    for at in 0..ids.len() {
        asked.push(at);
        if at % 7 == 5 {
            // Far away, then on where it was; or back a little.
            asked.push((at * 1009) % ids.len());
        }
        if at % 11 == 3 {
            asked.push(at - 2);
        }
    }
    // Nothing is told of; all is; or not all, and some that is not asked for, up to which all is searched.
    for told_of in [0, 1, 3] {
        alone::take();
        told::take();
        let mut near = NearLookup::new(state.clone(), None, view);
        for (n, some) in asked.chunks(40).enumerate() {
            if n % 3 == 0 {
                near.forget_told();
            }
            let wanted = some.iter().enumerate().filter(|(at, _)| at % (told_of + 1) < told_of.min(2));
            let wanted: Vec<_> = wanted.map(|(_, row)| ids[(row + n % 5 * (told_of / 3)) % ids.len()]).collect();
            near.expect(&wanted, &t.all_columns()).unwrap();
            for at in some.iter().copied() {
                let order = |found: Option<VersionOrder>| found.map(|order| (order.seq, order.ordinal));
                let found = order(near.find(ids[at]).unwrap().map(|(order, _)| order));
                let wanted = find(&state, None, ids[at], view).unwrap();
                let is_there = |found: &tree::Found| !matches!(found, tree::Found::Tombstone);
                let wanted = wanted.filter(|(_, found)| is_there(found)).map(|(order, _)| order);
                assert_eq!(found, order(wanted), "row {at}");
                assert_eq!(found.is_some(), model.contains_key(&(at as u64)), "row {at}");
            }
        }
        let (told, looked) = (told::take(), alone::take());
        assert!((told_of..=told_of * ids.len()).contains(&told), "{told} places were told");
        assert!((ids.len() / 5..ids.len()).contains(&looked), "{looked} rows were looked for in one block alone");
    }
}

/// Rows that are far from each other are looked for in each run there; those at hand are not, nor what is another one's to end.
#[test]
fn looks_into_several_runs_are_told_but_for_what_is_at_hand() {
    let small = Options {
        bulk_threshold_bytes: 16 << 10,
        min_run_bytes: 4 << 10,
        block_bytes: 1 << 10,
        memory_limit_bytes: 64 << 20,
        ..options()
    };
    let (e, t, ids) = filled(small);
    let model = || (0..ROWS).map(|id| (id, 1)).collect();
    let mut s = begin(&e);
    change(&mut s, &t, &ids, 10, Some(2), &mut model());
    s.commit().unwrap();
    let told = |view, rows: &mut dyn Iterator<Item = RowId>| {
        let state = t.tree().snapshot();
        state.forget_looks_in_runs();
        state.forget_looks_in_memory();
        let mut near = NearLookup::new(state.clone(), None, view);
        rows.for_each(|row| drop(near.find(row).unwrap()));
        drop(near);
        (state.merge_paid_by_looks(true).map_or(0, |paid| paid.0), state.flush_paid_by_looks())
    };
    let newest = || begin(&e).latest_view().unwrap();
    let far = || (0..1024).map(|n| ids[n * 997 % ids.len()]);
    let runs = || t.tree().snapshot().runs.len();
    let base = runs();
    let (merge, flush) = told(newest(), &mut far());
    assert!(merge == 0 && flush >= 512 * LOOK_BYTES, "{merge} and {flush} paid beside one run");
    e.sim_flush(&t).unwrap();
    assert_eq!(runs(), base + 1);
    // All blocks in memory: else filters deny some of the looks, some time.
    told(newest(), &mut ids.iter().copied());
    let (merge, flush) = told(newest(), &mut far());
    assert!(merge >= 512 * LOOK_BYTES && flush == 0, "{merge} paid for two runs, {flush} for an empty memtable");
    let (at_hand, _) = told(newest(), &mut ids.iter().copied().step_by(2).take(1024));
    assert!(at_hand < merge / 4, "{at_hand} paid for what is at hand");
    // What an open transaction has in a run, no merge takes; of what it has changed itself it looks for nothing older.
    let others = || (0..1024).map(|n| n * 997 % ids.len()).filter(|at| at % 3 != 0).map(|at| ids[at]);
    let merge = told(newest(), &mut others()).0;
    let mut own = begin(&e);
    change(&mut own, &t, &ids, 3, Some(3), &mut model());
    let view = own.latest_view().unwrap();
    own.prepare(b"own").unwrap();
    assert_eq!(runs(), base + 2);
    assert_eq!(told(view, &mut others()).0, merge);
    let changed = (1..1024).map(|n| ids[n * 3 % ids.len() / 3 * 3]);
    assert!(told(view, &mut changed.filter(|row| *row != ids[0])).0 < merge / 4);
    own.rollback().unwrap();
}

/// A row with so many versions, each of which some view needs, that they are in several blocks of a run.
#[test]
fn a_row_of_several_blocks_is_found_under_every_view() {
    let small = Options { block_bytes: 1 << 10, memory_limit_bytes: 64 << 20, ..options() };
    let e = open_with(&SimDisk::new(1), small).unwrap();
    let schema = Schema::new().column("id", Type::U64).column("text", Type::Text(1000));
    e.create_table("t", &TableDef::of(&schema).unwrap().unique("PRIMARY", &["id"]).unwrap()).unwrap();
    let t = e.open_table("t").unwrap();
    let mut s = begin(&e);
    let first = "0".repeat(900);
    let ids: Vec<_> = (0..20u64).map(|id| s.insert(&t, &[id.into(), first.as_str().into()]).unwrap()).collect();
    s.commit().unwrap();
    let mut views = Vec::new();
    for n in 1..40u64 {
        let text = n.to_string().repeat(450);
        s.update(&t, ids[10], &[10u64.into(), text.as_str().into()]).unwrap();
        s.commit().unwrap();
        let mut view = begin(&e);
        view.read_view().unwrap();
        views.push((view, text));
    }
    e.sim_flush(&t).unwrap();
    edges::take();
    for (view, text) in &mut views {
        let mut rows = view.rows_by(&t, "PRIMARY", IndexRange::all()).unwrap();
        let mut id = 0;
        while let Some(row) = rows.next().unwrap() {
            let wanted = if id == 10 { text.as_str() } else { first.as_str() };
            assert_eq!((row.get::<u64>("id").unwrap(), row.get::<&str>("text").unwrap()), (id, wanted));
            id += 1;
        }
        assert_eq!(id, 20);
    }
    assert!(edges::take() >= views.len(), "its versions are not in several blocks");
}

/// What a range mark hides lies in memory as before: nobody who sees the mark is given it.
#[test]
fn what_a_mark_hides_in_memory_is_not_given() {
    let e = open_with(&SimDisk::new(1), options()).unwrap();
    let schema = Schema::new().column("id", Type::U64).column("n", Type::U64);
    e.create_table("t", &TableDef::of(&schema).unwrap().unique("PRIMARY", &["id"]).unwrap()).unwrap();
    let t = e.open_table("t").unwrap();
    let mut s = begin(&e);
    let insert = |s: &mut Session, ids: std::ops::Range<u64>| {
        ids.for_each(|id| assert!(s.insert(&t, &[id.into(), 1u64.into()]).is_ok()));
    };
    insert(&mut s, 0..100);
    s.commit().unwrap();
    let mut old = begin(&e);
    assert_eq!(by_key(&mut old, &t, false).len(), 100);
    s.delete_all(&t).unwrap();
    insert(&mut s, 40..45);
    let wanted: Found = (40..45).map(|id| (id, 1)).collect();
    assert_eq!(by_key(&mut s, &t, false), wanted, "its own");
    s.commit().unwrap();
    let state = t.trees().keys[0].snapshot();
    assert!(state.runs.is_empty() && !state.marks.is_empty());
    assert_eq!(by_key(&mut begin(&e), &t, false), wanted);
    assert_eq!(begin(&e).rows(&t).unwrap().next().unwrap().map(|row| row.get::<u64>("id").unwrap()), Some(40));
    assert_eq!(by_key(&mut old, &t, false).len(), 100, "an old view");
}

/// Rows that were deleted and inserted again lie behind all others: who reads by the key goes there and back, and searches
/// neither place again, whether or not it tells what comes.
#[test]
fn rows_that_lie_elsewhere_do_not_lead_away_from_the_others() {
    let e = open_with(&SimDisk::new(1), Options { memory_limit_bytes: 64 << 20, ..options() }).unwrap();
    let schema = Schema::new().column("id", Type::U64).column("n", Type::U64);
    e.create_table("t", &TableDef::of(&schema).unwrap().unique("PRIMARY", &["id"]).unwrap()).unwrap();
    let t = e.open_table("t").unwrap();
    let mut s = begin(&e);
    let mut ids: Vec<_> = (0..ROWS).map(|id| s.insert(&t, &[id.into(), 1u64.into()]).unwrap()).collect();
    s.commit().unwrap();
    for id in (0..ROWS).step_by(10) {
        s.delete(&t, ids[id as usize]).unwrap();
        ids[id as usize] = s.insert(&t, &[id.into(), 2u64.into()]).unwrap();
    }
    s.commit().unwrap();
    let wanted: Found = (0..ROWS).map(|id| (id, if id % 10 == 0 { 2 } else { 1 })).collect();
    for place in ["in memory", "in a run"] {
        searched::take();
        told::take();
        assert_eq!(by_key(&mut begin(&e), &t, false), wanted, "{place}");
        let (searches, batches) = (searched::take() + told::take(), ROWS as usize / 100);
        assert!((1..3 * batches).contains(&searches), "{searches} searches {place}");
        e.sim_flush(&t).unwrap();
    }
}

/// Rows of two stretches in turn, of which one goes on and the other lies anywhere: what is fetched ahead for these is not thrown away
/// for the others.
#[test]
fn what_is_fetched_ahead_is_there_when_it_is_come_to() {
    let small = Options { block_bytes: 1 << 10, memory_limit_bytes: 64 << 20, ..options() };
    let (e, t, ids) = filled(small);
    let (half, view) = (ids.len() / 2, begin(&e).latest_view().unwrap());
    let in_turn = |at: usize| [ids[at], ids[half + at * 1009 % half]];
    let rows: Vec<_> = (0..half).flat_map(in_turn).collect();
    let mut lookup = RowLookup::new(t.tree().snapshot(), None, view);
    searched::take();
    for rows in rows.chunks(100) {
        lookup.expect(rows, &t.all_columns()).unwrap();
        for row in rows {
            assert!(lookup.find(*row, &t.all_columns()).unwrap().is_some());
        }
    }
    let searches = searched::take();
    assert!((half..half * 6 / 5).contains(&searches), "{searches} searches for {half} rows anywhere");
}

/// Rows of two commits in one block: under a view between them those of the first are taken, and not with any of the second.
#[test]
fn rows_beside_are_taken_as_they_stand_only_where_all_is_seen() {
    // As many as the ranges of row ids have that a small transaction takes: the next one's lie beside them.
    const SOME: u64 = 15;
    let (e, t, _) = filled(options());
    let mut s = begin(&e);
    let mut ids = Vec::new();
    let mut add = |s: &mut Session, from: u64| {
        ids.extend((from..from + SOME).map(|id| s.insert(&t, &[id.into(), 1u64.into()]).unwrap()));
        s.commit().unwrap();
    };
    add(&mut s, ROWS);
    let mut between = begin(&e);
    let view = between.read_view().unwrap();
    add(&mut s, ROWS + SOME);
    e.sim_flush(&t).unwrap();
    assert_eq!(ids[29].0 - ids[0].0, 29, "they lie together");
    let newest = begin(&e).latest_view().unwrap();
    let beside = |view, rows: [RowId; 2], next: &[RowId]| {
        let mut near = NearLookup::new(t.tree().snapshot(), None, view);
        rows.into_iter().for_each(|row| assert!(near.find(row).unwrap().is_some()));
        near.beside(next).map_or(0, |beside| beside.places.len())
    };
    let falling: Vec<_> = ids[..28].iter().rev().copied().collect();
    assert_eq!(beside(newest, [ids[0], ids[1]], &ids[2..]), 28);
    assert_eq!(beside(newest, [ids[29], ids[28]], &falling), 28);
    assert_eq!(beside(newest, [ids[0], ids[1]], &ids[3..]), 0, "one was left out");
    assert_eq!(beside(view, [ids[13], ids[14]], &ids[15..]), 0, "of the second commit");
}
