//! The policy on trees that are only numbers: what it costs at full size, and that it comes to an end.

use super::*;
use std::collections::BTreeSet;

/// Where versions are spread evenly.
fn evenly(pieces: &[Piece]) -> impl Fn(usize, u64, u64) -> f64 + '_ {
    |i, first, last| {
        let p = &pieces[i];
        let (first, last) = (first.max(p.first), last.min(p.last));
        if first > last {
            0.0
        } else {
            (last - first + 1) as f64 / (p.last - p.first + 1) as f64
        }
    }
}

fn next(pieces: &[Piece], horizon: u64, run_bytes: u64) -> Option<Chosen> {
    Policy::new(pieces, &evenly(pieces), Weights::ROWS, horizon, run_bytes).next()
}

#[test]
fn a_tree_at_rest_takes_in_sooner_what_is_no_debt() {
    let base = Piece { last: 999, bytes: 100_000, rows: 1000, most_keys: 1000, ..Piece::default() };
    let over = |rows: u64| Piece { bytes: rows * 100, rows, superseding: rows, seqs: (1, 1), ..base };
    for (rows, written_to, at_rest) in [(50, false, false), (80, false, true), (300, true, true)] {
        let pieces = [base, over(rows)];
        let share = evenly(&pieces);
        let policy = |weights| Policy::new(&pieces, &share, weights, 5, MIB);
        let merges = [Weights::ROWS, Weights::ROWS.at_rest()].map(|w| policy(w).next().is_some());
        assert_eq!(merges, [written_to, at_rest], "{rows} of 1000");
        let debts = [Weights::ROWS, Weights::ROWS.at_rest()].map(|w| policy(w).debt_bytes() > 0);
        assert_eq!(debts, [written_to; 2], "{rows} of 1000");
    }
}

/// What sticks out of the base at its ends goes with the rest if it is little, up to the next of the base.
#[test]
fn the_base_takes_in_the_ends_of_what_lies_over_it() {
    let piece = |(first, last): (u64, u64), bytes: u64| {
        let rows = last - first + 1;
        Piece { first, last, bytes: rows * bytes, rows, most_keys: rows, seqs: (1, 1), ..Piece::default() }
    };
    for (base, over, wanted) in [
        (vec![(10, 990)], vec![(5, 980), (20, 1000)], (5, 1000)),
        (vec![(10, 990)], vec![(10, 990), (12, 980)], (10, 990)),
        // Much of it, at one end.
        (vec![(10, 990)], vec![(5, 980), (20, 2900)], (5, 990)),
        (vec![(2010, 2990)], vec![(5, 2980), (2020, 3000)], (2010, 3000)),
        // Where others are of the base the gap ends.
        (vec![(0, 9), (12, 990), (1001, 1300)], vec![(5, 980), (20, 1010)], (10, 1000)),
    ] {
        let pieces: Vec<Piece> =
            base.iter().map(|b| piece(*b, 100)).chain(over.iter().map(|o| piece(*o, 30))).collect();
        let share = evenly(&pieces);
        let policy = Policy::new(&pieces, &share, Weights::KEYS.at_rest(), 5, 1 << 40);
        let chosen = policy.next().unwrap();
        assert_eq!((chosen.first, chosen.last), wanted, "{over:?} over {base:?}");
    }
}

/// Of a tree at rest: what is a small part of its file goes into one of its own, with its neighbours of which that is true, too.
#[test]
fn small_parts_of_files_move_out_at_rest() {
    const FILE: u64 = 100 << 20;
    let piece = |at: u64, bytes: u64, file_bytes: u64| {
        let (first, last) = (100 * at, 100 * at + 99);
        Piece { first, last, bytes, file_bytes, rows: 100, most_keys: 100, ..Piece::default() }
    };
    let whole = |at| piece(at, FILE, FILE);
    let part = |at, percent| piece(at, FILE / 100 * percent, FILE);
    let little = |at| piece(at, 100, 200 << 10);
    let over = |p: Piece| Piece {
        bytes: p.bytes / 100,
        file_bytes: p.bytes / 100,
        rows: 1,
        superseding: 1,
        seqs: (1, 1),
        ..p
    };
    for (pieces, wanted) in [
        (vec![whole(0), part(1, 80), little(2), piece(3, 100, 0)], None),
        (vec![whole(0), part(1, 20), whole(2)], Some(vec![1])),
        (vec![part(0, 20), part(1, 70), whole(2), part(3, 20)], Some(vec![0, 1])),
        // No more than a run's bytes.
        (vec![part(0, 20), part(1, 70), part(2, 30), part(3, 20)], Some(vec![0, 1])),
        // One with something over it by itself.
        (vec![part(0, 20), part(1, 70), over(part(1, 70))], Some(vec![0])),
        (vec![part(0, 20), over(part(0, 20)), part(1, 70)], Some(vec![0, 1])),
    ] {
        let share = evenly(&pieces);
        let next = |weights| Policy::new(&pieces, &share, weights, 5, FILE).next().map(|chosen| chosen.inputs);
        assert_eq!((next(Weights::KEYS), next(Weights::KEYS.at_rest())), (None, wanted), "{pieces:?}");
    }
}

/// Readers pay for what lies over their key, not for what lies elsewhere.
#[test]
fn readers_pay_for_what_lies_over_their_key() {
    let piece = |first, last, rows| Piece { first, last, bytes: rows * 100, rows, most_keys: rows, ..Piece::default() };
    let over = |first, last| Piece { superseding: 10, seqs: (1, 1), ..piece(first, last, 10) };
    // Two of the base, apart; over the first two overlays at its ends, over the gap two that are nobody's.
    let pieces =
        [piece(0, 100, 1000), over(0, 10), over(90, 100), over(110, 130), over(115, 135), piece(200, 300, 900)];
    let share = evenly(&pieces);
    let policy = Policy::new(&pieces, &share, Weights::ROWS, 5, MIB);
    let inputs = |from, to| policy.for_readers(from, to).map(|chosen| chosen.inputs);
    for (from, to, wanted) in [
        (5, 5, Some(vec![0, 1, 2])),
        (95, 96, Some(vec![0, 1, 2])),
        (50, 50, None),
        // Between two bounds.
        (100, 110, None),
        (112, 112, None),
        (120, 120, Some(vec![3, 4])),
        (135, 200, None),
        (250, 250, None),
    ] {
        assert_eq!(inputs(from, to), wanted, "{from} to {to}");
    }
}

/// A part of a piece.
fn part(p: &Piece, first: u64, last: u64) -> Option<Piece> {
    let (first, last) = (first.max(p.first), last.min(p.last));
    let share = |n: u64| (n as f64 * (last - first + 1) as f64 / (p.last - p.first + 1) as f64).ceil() as u64;
    (first <= last).then(|| Piece {
        first,
        last,
        bytes: share(p.bytes),
        rows: share(p.rows),
        superseding: share(p.superseding),
        most_keys: last - first + 1,
        ..*p
    })
}

const ROW: u64 = 100;
const MIB: u64 = 1 << 20;

/// Writes a table of so many memtables of 64 MiB once over with random updates, merged as the policy says: bytes that
/// merges write for each byte of updates, and the most runs that lay over a row.
fn random_updates(memtables: u64) -> (f64, usize) {
    let run_bytes = 128 * MIB;
    let memtable = 64 * MIB / ROW;
    let rows = memtables * memtable;
    let chunk = |i: u64| Piece {
        first: i * memtable,
        last: (i + 1) * memtable - 1,
        bytes: memtable * ROW,
        rows: memtable,
        most_keys: memtable,
        seqs: (i, i),
        ..Piece::default()
    };
    let mut pieces: Vec<Piece> = (0..memtables).map(chunk).collect();
    let (mut written, mut deepest_ever) = (0, 0);
    for round in 0..memtables {
        let seq = memtables + round;
        let (bytes, last) = (memtable * ROW, rows - 1);
        pieces.push(Piece {
            first: 0,
            last,
            bytes,
            rows: memtable,
            most_keys: last + 1,
            superseding: memtable,
            seqs: (seq, seq),
            ..Piece::default()
        });
        pieces.sort_by_key(|p| p.first);
        let mut steps = 0;
        while let Some(chosen) = next(&pieces, u64::MAX, run_bytes) {
            steps += 1;
            assert!(steps < 10_000, "no end");
            let inputs: Vec<Piece> = chosen.inputs.iter().map(|i| pieces[*i]).collect();
            let within = |p: &Piece| part(p, chosen.first, chosen.last);
            let taken: Vec<Piece> = inputs.iter().filter_map(within).collect();
            // First versions stay as many; updates of the same rows take each other's place.
            let firsts: u64 = taken.iter().map(|p| Weights::ROWS.firsts(p)).sum();
            let newer: u64 = taken.iter().map(|p| p.superseding).sum();
            let rows = if firsts > 0 { firsts } else { newer };
            let superseding = if firsts > 0 { 0 } else { newer };
            let mut index = 0;
            pieces.retain(|_| {
                index += 1;
                !chosen.inputs.contains(&(index - 1))
            });
            for input in &inputs {
                pieces.extend(chosen.first.checked_sub(1).and_then(|last| part(input, 0, last)));
                pieces.extend(part(input, chosen.last + 1, u64::MAX));
            }
            let (first, last) =
                (taken.iter().map(|p| p.first).min().unwrap(), taken.iter().map(|p| p.last).max().unwrap());
            let seqs = (taken.iter().map(|p| p.seqs.0).min().unwrap(), taken.iter().map(|p| p.seqs.1).max().unwrap());
            let most_keys = last - first + 1;
            let all = Piece { first, last, bytes: rows * ROW, rows, most_keys, superseding, seqs, ..Piece::default() };
            written += all.bytes;
            let runs = all.bytes.div_ceil(run_bytes).max(1);
            let span = (last - first).div_ceil(runs);
            pieces.extend((0..runs).filter_map(|i| part(&all, first + i * (span + 1), first + i * (span + 1) + span)));
            pieces.sort_by_key(|p| p.first);
        }
        deepest_ever = deepest_ever.max(deepest(&pieces, &(0..pieces.len()).collect::<Vec<_>>()).len());
    }
    (written as f64 / (rows * ROW) as f64, deepest_ever)
}

#[test]
fn random_updates_cost_what_they_should_at_full_size() {
    for (memtables, most) in [(20, 5.5), (200, 7.0), (600, 9.0)] {
        let (cost, sources) = random_updates(memtables);
        eprintln!("{memtables} memtables: {cost:.2} bytes a byte, at most {sources} runs over a row");
        assert!(
            cost <= most && sources <= MOST_SOURCES + 1,
            "{memtables} memtables: {cost} bytes a byte, {sources} runs"
        );
    }
}

/// Runs with their versions, for the random test: (row, sequence, tombstone), by row, newest first.
type Versions = Vec<(u64, u64, bool)>;

fn describe(runs: &[Versions], memory: &BTreeSet<u64>) -> Vec<Piece> {
    let describe = |run: &Versions| {
        let (first, last) = (run[0].0, run[run.len() - 1].0);
        let older = |row: u64, seq: u64| runs.iter().flatten().any(|v| v.0 == row && v.1 < seq);
        let tombstones = run.iter().filter(|v| v.2).count() as u64;
        Piece {
            first,
            last,
            bytes: run.len() as u64 * ROW,
            file_bytes: 0,
            rows: run.len() as u64,
            most_keys: last - first + 1,
            superseding: run.iter().filter(|v| v.2 || older(v.0, v.1)).count() as u64,
            tombstones,
            aborted: 0,
            seqs: (run.iter().map(|v| v.1).min().unwrap(), run.iter().map(|v| v.1).max().unwrap()),
            alone: tombstones > 0 && memory.range(first..=last).next().is_none(),
        }
    };
    runs.iter().map(describe).collect()
}

/// Merges as the engine does: runs of so many rows, two of them at most in a step.
fn merge(runs: &mut Vec<Versions>, chosen: &Chosen, horizon: u64, memory: &BTreeSet<u64>, run_rows: usize) {
    let within = |v: &(u64, u64, bool)| chosen.first <= v.0 && v.0 <= chosen.last;
    let rows: BTreeSet<u64> = chosen.inputs.iter().flat_map(|i| &runs[*i]).filter(|v| within(v)).map(|v| v.0).collect();
    let end = rows.iter().nth(2 * run_rows).map_or(chosen.last, |beyond| beyond - 1);
    let taken = |v: &(u64, u64, bool)| chosen.first <= v.0 && v.0 <= end;
    let mut output: Versions = chosen.inputs.iter().flat_map(|i| &runs[*i]).filter(|v| taken(v)).copied().collect();
    output.sort_by_key(|v| (v.0, std::cmp::Reverse(v.1)));
    let others: Vec<usize> = (0..runs.len()).filter(|i| !chosen.inputs.contains(i)).collect();
    let elsewhere = |row: u64| {
        let over = |run: &Versions| run[0].0 <= row && row <= run[run.len() - 1].0;
        others.iter().any(|i| over(&runs[*i])) || memory.contains(&row)
    };
    let (mut settled, mut kept) = (None, Vec::new());
    for v in output {
        if settled == Some(v.0) {
            continue;
        }
        if v.1 <= horizon {
            settled = Some(v.0);
            if v.2 && !elsewhere(v.0) {
                continue;
            }
        }
        kept.push(v);
    }
    let mut next: Vec<Versions> = others.iter().map(|i| runs[*i].clone()).collect();
    for i in &chosen.inputs {
        next.push(runs[*i].iter().filter(|v| v.0 < chosen.first).copied().collect());
        next.push(runs[*i].iter().filter(|v| v.0 > end).copied().collect());
    }
    next.extend(kept.chunk_by(|a, b| a.0 == b.0).collect::<Vec<_>>().chunks(run_rows).map(<[_]>::concat));
    next.retain(|run| !run.is_empty());
    next.sort_by_key(|run| run[0].0);
    *runs = next;
}

#[test]
fn merging_of_random_trees_comes_to_an_end_and_loses_nothing() {
    let mut most = 0;
    for seed in 1..400u64 {
        let mut random = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut below = |n: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % n
        };
        let (mut runs, mut seq): (Vec<Versions>, u64) = (Vec::new(), 0);
        let (table, sparse) = (20 + below(300), 1 + below(4));
        for _ in 0..1 + below(40) {
            let (first, span, step) = (below(table), 1 + below(table), 1 + below(8) * below(2));
            let rows = (first..(first + span).min(table)).step_by(step as usize).filter(|r| r % sparse == 0);
            seq += 1;
            let tombstones = below(4) == 0;
            let run: Versions = rows.map(|row| (row, seq, tombstones && row % 3 > 0)).collect();
            runs.extend((!run.is_empty()).then_some(run));
        }
        runs.sort_by_key(|run| run[0].0);
        let memory: BTreeSet<u64> = (0..below(3)).map(|_| below(table)).collect();
        let newest = |runs: &[Versions]| {
            let mut rows: BTreeMap<u64, (u64, bool)> = BTreeMap::new();
            for v in runs.iter().flatten() {
                let row = rows.entry(v.0).or_default();
                *row = (*row).max((v.1, v.2));
            }
            rows.retain(|_, v| !v.1);
            rows
        };
        let before = newest(&runs);
        let run_rows = 8 + below(200);
        let mut steps = 0;
        // The horizon rises now and then, as views end.
        for horizon in [below(seq + 1), seq] {
            let pieces = |runs: &[Versions]| describe(runs, &memory);
            while let Some(chosen) = next(&pieces(&runs), horizon, run_rows * ROW) {
                let versions = runs.clone();
                merge(&mut runs, &chosen, horizon, &memory, run_rows as usize);
                assert_ne!(versions, runs, "seed {seed}: a step that changes nothing: {chosen:?}");
                steps += 1;
                assert!(steps < 2000, "seed {seed}: no end after {steps} steps, {} runs", runs.len());
            }
            assert_eq!(newest(&runs), before, "seed {seed}");
        }
        most = most.max(steps);
    }
    assert!(most > 10, "at most {most} steps: the trees are too simple");
}

/// So many pieces, each of which begins ten keys behind the one before and goes over so many.
fn in_turn(pieces: u64, keys: u64, bytes: u64) -> Vec<Piece> {
    let piece =
        |i: u64| Piece { first: i * 10, last: i * 10 + keys - 1, bytes, rows: 10, most_keys: 80, ..Piece::default() };
    (0..pieces).map(piece).collect()
}

#[test]
fn a_run_that_overlaps_nothing_joins_unwritten() {
    assert_eq!(next(&in_turn(100, 10, 100 * MIB), u64::MAX, 128 * MIB), None);
}

#[test]
fn chunks_of_loads_beside_each_other_are_joined_many_at_once() {
    let chosen = next(&in_turn(200, 80, 4 * MIB), u64::MAX, 128 * MIB).unwrap();
    assert!((32..=MOST_AT_ONCE + FACTOR).contains(&chosen.inputs.len()), "{} of them", chosen.inputs.len());
}
