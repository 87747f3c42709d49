//! Random tables, read in all ways, against a model.

use super::*;
use crate::tests::support::{begin, begun};
use crate::tree::backward::pieces;
use crate::tree::merge_read::in_turn::counted;
use crate::upkeep::flush;
use esker_base::counters::{bind, Counter, SessionCounters};
use std::collections::BTreeMap;

pub(super) type Model = BTreeMap<RowId, Values>;

fn random_values(random: &mut fastrand::Rng, number: u64) -> Values {
    let few = (random.u8(0..5) > 0).then(|| random.i32(-3..3));
    let name = (random.u8(0..5) > 0).then(|| {
        // Some share more bytes than a block index keeps.
        let mut name = if random.bool() { vec![b'x'; random.usize(62..90)] } else { Vec::new() };
        name.extend((0..random.usize(0..4)).map(|_| *random.choice(b"abAB\0\xff").unwrap()));
        name
    });
    (number, few, name)
}

/// One change of the table and of the model.
pub(super) fn change(s: &mut Session, t: &Arc<Table>, model: &mut Model, random: &mut fastrand::Rng, number: &mut u64) {
    *number += 1;
    let values = random_values(random, *number);
    let some = (!model.is_empty()).then(|| random.usize(0..model.len()));
    let old = some.and_then(|at| model.iter().nth(at)).map(|(row, old)| (*row, old.clone()));
    match (random.u8(0..10), old) {
        (0..3, Some((row, old))) => {
            // Of some only what is in no key of one index.
            let values = if random.bool() { (old.0, values.1, old.2.clone()) } else { values };
            update(s, t, row, &values);
            model.insert(row, values);
        }
        (3..5, Some((row, _))) => {
            s.delete(t, row).unwrap();
            model.remove(&row);
        }
        _ => {
            let row = insert(s, t, &values);
            model.insert(row, values);
        }
    }
}

/// What an index must give, in its order.
pub(super) fn entries(t: &Table, index: usize, model: &Model, mask: &ColumnMask) -> Vec<Given> {
    let given = |(row, values): (&RowId, &Values)| (entry_of(t, index, *row, values).0, *row, masked(values, mask));
    let mut all: Vec<_> = model.iter().map(given).collect();
    all.sort();
    all
}

/// What of all entries a range has, in a direction.
fn within(all: &[Given], range: &KeyRange, direction: Direction) -> Vec<Given> {
    let is_in = |g: &&Given| g.0 >= range.from && range.to.as_ref().is_none_or(|to| g.0 < *to);
    let mut some: Vec<_> = all.iter().filter(is_in).cloned().collect();
    if direction == Direction::Backward {
        some.reverse();
    }
    some
}

/// A key that is there, or the beginning of one, or something else.
fn random_bound(all: &[Given], random: &mut fastrand::Rng) -> Vec<u8> {
    let mut key = match random.choice(all) {
        Some(given) => given.0.clone(),
        None => vec![random.u8(..)],
    };
    match random.u8(0..4) {
        0 => key.truncate(random.usize(0..=key.len())),
        1 => key.push(random.u8(..)),
        _ => {}
    }
    key
}

fn random_range(all: &[Given], random: &mut fastrand::Rng) -> KeyRange {
    let from = if random.u8(0..3) == 0 { Vec::new() } else { random_bound(all, random) };
    KeyRange { from, to: random.bool().then(|| random_bound(all, random)) }
}

#[derive(Default)]
struct Reached {
    covering: usize,
    looked_up: usize,
    chosen: usize,
    turned: usize,
    estimates: usize,
    long: usize,
    whole_keys: usize,
}

/// Chooses some of the entries of the batch that was given last; how many there are.
fn choose(
    s: &mut Session,
    c: &mut IndexCursor,
    random: &mut fastrand::Rng,
    expected: &[Given],
    (mask, told): (&ColumnMask, &ColumnMask),
) -> usize {
    let entries = given(&c.batch(), told);
    assert!(entries.len() <= expected.len());
    for (entry, row) in entries.iter().zip(expected) {
        assert_eq!((&entry.0, entry.1, masked(&entry.2, mask)), (&row.0, row.1, masked(&row.2, told)));
    }
    let some = random.u8(0..4);
    let places: Vec<u32> = (0..entries.len() as u32).filter(|_| random.u8(0..4) <= some).collect();
    let rows = given(&c.choose(s, &places).unwrap(), mask);
    assert_eq!(rows, places.iter().map(|at| expected[*at as usize].clone()).collect::<Vec<_>>());
    entries.len()
}

/// Looks up whole keys of the unique index: of rows that there are, and of some that were or never will be.
fn check_keys(s: &mut Session, t: &Arc<Table>, model: &Model, random: &mut fastrand::Rng, reached: &mut Reached) {
    let mask = &mask_of(&[NUMBER, FEW, NAME]);
    let all = entries(t, BY_NAME, model, mask);
    let mut c = s.open_index_cursor(t, BY_NAME, plain(mask)).unwrap();
    for _ in 0..12 {
        let some = (!model.is_empty()).then(|| random.usize(0..model.len()));
        let mut values = some.and_then(|at| model.values().nth(at).cloned()).unwrap_or((1, None, Some(b"a".to_vec())));
        values.0 += u64::from(random.u8(0..4) == 0);
        let prefix = |parts| unsafe { t.key_prefix(BY_NAME, image(&values).as_ptr(), parts) }.unwrap();
        assert!(!prefix(1).1);
        let (key, is_one) = prefix(2);
        assert_eq!(is_one, values.2.is_some());
        if !is_one {
            continue;
        }
        let direction = random.choice([Direction::Forward, Direction::Backward]).unwrap();
        let expected = within(&all, &KeyRange::of_prefix(&key), direction);
        assert!(expected.len() <= 1);
        c.set_choosing(false);
        c.seek_key(s, &key, direction).unwrap();
        assert_eq!(given(&c.next_batch(s).unwrap(), mask), expected);
        assert!(c.next_batch(s).unwrap().ids.is_empty());
        reached.whole_keys += expected.len();
        for mask in [mask, &mask_of(&[NAME, NUMBER])] {
            // What was in the image before does not show.
            let mut image = vec![0xff; (30 + TEXT) as usize];
            let found = s.row_by_key(t, BY_NAME, &key, mask, &mut image).unwrap();
            let found: Vec<_> = found.map(|row| (row, values_of(&image, mask))).into_iter().collect();
            assert_eq!(found, expected.iter().map(|(_, row, v)| (*row, masked(v, mask))).collect::<Vec<_>>());
        }
    }
}

/// Reads in all ways.
fn check(s: &mut Session, t: &Arc<Table>, model: &Model, random: &mut fastrand::Rng, reached: &mut Reached) {
    check_keys(s, t, model, random, reached);
    for index in [BY_FEW, BY_NAME] {
        let told: &[usize] = if index == BY_FEW { &[FEW] } else { &[NAME, NUMBER] };
        for covering in [true, false] {
            let mask = if covering { mask_of(told) } else { mask_of(&[NUMBER, FEW, NAME]) };
            let all = entries(t, index, model, &mask);
            let mut c = s.open_index_cursor(t, index, plain(&mask)).unwrap();
            for ranged in [false, true, true] {
                let range = if ranged { random_range(&all, random) } else { KeyRange::default() };
                let mut direction = random.choice([Direction::Forward, Direction::Backward]).unwrap();
                let choosing = random.bool();
                c.set_choosing(choosing);
                c.seek(s, range.clone(), direction).unwrap();
                let (mut expected, mut batches) = (within(&all, &range, direction), 0);
                loop {
                    let batch = c.next_batch(s).unwrap();
                    assert_eq!(batch.covering, covering);
                    let rows = if choosing {
                        let count = choose(s, &mut c, random, &expected, (&mask, &mask_of(told)));
                        reached.chosen += count;
                        expected[..count].to_vec()
                    } else {
                        given(&batch, &mask)
                    };
                    assert!(rows.len() <= expected.len() && rows == expected[..rows.len()], "{direction:?} {range:?}");
                    if covering {
                        reached.covering += rows.len();
                    } else {
                        reached.looked_up += rows.len();
                    }
                    let Some(last) = rows.last() else { break };
                    batches += 1;
                    if random.u8(0..6) > 0 {
                        expected.drain(..rows.len());
                        continue;
                    }
                    // Turns, or goes on, from one of them.
                    let key = if random.bool() { &last.0 } else { &random.choice(&rows).unwrap().0 };
                    direction = random.choice([Direction::Forward, Direction::Backward]).unwrap();
                    c.seek_from(s, key, direction).unwrap();
                    expected = within(&all, &range.rest(key, direction), direction);
                    reached.turned += 1;
                    if batches > 30 {
                        expected.clear();
                        break;
                    }
                }
                assert!(expected.is_empty(), "{} entries were not given", expected.len());
                reached.long += usize::from(batches > 3);
                let (estimate, count) =
                    (s.estimate_rows(t, index, &range).unwrap(), within(&all, &range, direction).len());
                if estimate <= 16 {
                    assert_eq!(estimate, count as u64);
                    reached.estimates += 1;
                }
            }
        }
    }
}

/// Rows and entries in memory, in private memtables and runs, in runs of several sizes, under old views and by who wrote them.
#[test]
fn reads_are_those_of_the_model() {
    let counters = SessionCounters::new();
    let _bound = bind(&counters);
    let (mut reached, mut most_runs, mut private, mut frozen) = (Reached::default(), 0, 0, 0);
    pieces::take();
    counted::take();
    for seed in 0..16 {
        let mut random = fastrand::Rng::with_seed(seed);
        let random = &mut random;
        let large = seed % 3 == 1;
        let (threshold, run) = if large { (1 << 10, 4 << 10) } else { (1 << 20, 1 << 20) };
        let o = Options { bulk_threshold_bytes: threshold, min_run_bytes: run, ..small_blocks() };
        let (_disk, e, t) = made(o);
        let (mut model, mut number) = (Model::new(), 0);
        let mut views: Vec<(Session, Model)> = Vec::new();
        for round in 0..12 {
            // Somebody else, of whom nobody sees anything.
            let mut other = begun(&e, false);
            let mut unseen = Model::new();
            (0..random.usize(0..20)).for_each(|_| change(&mut other, &t, &mut unseen, random, &mut number));
            let mut s = begun(&e, false);
            let mut own = model.clone();
            for _ in 0..random.usize(1..250) {
                if random.u8(0..60) == 0 {
                    let (point, mut lost) = (s.savepoint(), own.clone());
                    (0..5).for_each(|_| change(&mut s, &t, &mut lost, random, &mut number));
                    s.rollback_to(&point);
                }
                change(&mut s, &t, &mut own, random, &mut number);
            }
            let txn = s.current.open().and_then(|txn| txn.in_table(&t)).unwrap();
            private += usize::from(txn.keys[BY_NAME].has_private());
            check(&mut s, &t, &own, random, &mut reached);
            if random.u8(0..8) == 0 {
                s.rollback().unwrap();
            } else {
                s.commit().unwrap();
                model = own;
            }
            let mut fresh = begun(&e, false);
            fresh.read_view().unwrap();
            if random.bool() {
                flush::freeze(&e.core, &t.trees().keys[BY_NAME]).unwrap();
                frozen += usize::from(!t.trees().keys[BY_NAME].snapshot().frozen.is_empty());
                check(&mut fresh, &t, &model, random, &mut reached);
                e.sim_flush(&t).unwrap();
                check(&mut fresh, &t, &model, random, &mut reached);
            }
            most_runs = most_runs.max(t.trees().keys[BY_NAME].snapshot().runs.len());
            other.rollback().unwrap();
            views.push((fresh, model.clone()));
            let at = random.usize(0..views.len());
            let (view, old) = &mut views[at];
            check(view, &t, old, random, &mut reached);
            if views.len() > 3 {
                views.remove(0);
            }
            while round % 4 == 3 && e.sim_merge(&t).unwrap() {}
        }
        let mut s = e.session();
        begin(&mut s);
        check(&mut s, &t, &model, random, &mut reached);
    }
    let Reached { covering, looked_up, chosen, turned, estimates, long, whole_keys } = reached;
    assert!(
        covering > 50_000 && looked_up > 50_000 && turned > 1000 && estimates > 500 && long > 100,
        "{covering} covering, {looked_up} looked up, {turned} turned, {estimates} estimates, {long} long"
    );
    assert!(chosen > 50_000 && whole_keys > 1000, "{chosen} to choose from, {whole_keys} whole keys");
    assert!(
        most_runs >= 5 && private > 10 && frozen > 30,
        "{most_runs} runs, {private} private memtables, {frozen} frozen memtables"
    );
    let (of_mems, of_blocks) = counted::take();
    assert!(
        of_mems > 50_000 && of_blocks > 5_000,
        "{of_mems} keys of memtables and {of_blocks} of blocks were handed out in turn"
    );
    let (merges, pieces) = (counters.get(Counter::Merges), pieces::take());
    assert!(merges > 10 && pieces > 1000, "{merges} merges, {pieces} pieces");
}
