//! What is said of how many entries are alike.

use super::*;
use crate::tests::support::{begin, begun};
use esker_base::counters::{bind, Counter, SessionCounters};

/// Puts rows so that `alike` of them have the same name, numbers as they come, in several layers; as many names as `few` has
/// numbers.
fn filled(rows: u64, alike: u64, layers: u64) -> (SimDisk, Engine, Arc<Table>) {
    let (disk, e, t) = made(Options { bulk_threshold_bytes: 64 << 20, ..small_blocks() });
    for layer in 0..layers {
        let mut s = begun(&e, false);
        for n in (0..rows).filter(|n| n % layers == layer) {
            let group = n / alike;
            insert(&mut s, &t, &(n, Some(group as i32), Some(format!("name {group:06}").into_bytes())));
        }
        s.commit().unwrap();
        if layer + 1 < layers {
            e.sim_flush(&t).unwrap();
        }
    }
    (disk, e, t)
}

fn is_about(found: f64, expected: u64, share: f64) -> bool {
    (found - expected as f64).abs() <= expected as f64 * share
}

#[test]
fn entries_that_are_alike_are_estimated() {
    for layers in [1, 3] {
        for alike in [1, 3, 50, 900, 3000, 9000] {
            let (_disk, e, t) = filled(9000, alike, layers);
            let few = e.rows_alike(&t, BY_FEW).unwrap();
            assert_eq!(few.len(), 1);
            assert!(is_about(few[0], alike, 0.3), "{layers} layers: {few:?} of {alike}");
            let name = e.rows_alike(&t, BY_NAME).unwrap();
            assert_eq!(name.len(), 2);
            assert!(
                is_about(name[0], alike, 0.3) && is_about(name[1], 1, 0.05),
                "{layers} layers: {name:?} of {alike}"
            );
        }
    }
}

/// Nine groups are one more than are stepped over; most places lie in the middle of one.
#[test]
fn groups_are_counted_from_their_beginning() {
    let (_disk, e, t) = filled(9000, 1000, 1);
    e.sim_flush(&t).unwrap();
    let (few, name) = (e.rows_alike(&t, BY_FEW).unwrap(), e.rows_alike(&t, BY_NAME).unwrap());
    assert!(is_about(few[0], 1000, 0.08) && is_about(name[0], 1000, 0.08), "{few:?}, {name:?}");
}

/// Half of the rows have a name each, half have one of a few.
#[test]
fn groups_may_be_of_all_sizes() {
    let (_disk, e, t) = made(small_blocks());
    let mut s = begun(&e, false);
    for n in 0..8000u64 {
        let name = if n < 4000 { format!("a{n:06}") } else { format!("z{}", n / 400) };
        insert(&mut s, &t, &(n, None, Some(name.into_bytes())));
    }
    s.commit().unwrap();
    e.sim_flush(&t).unwrap();
    let name = e.rows_alike(&t, BY_NAME).unwrap();
    assert!(name[0] > 1.4 && name[0] < 2.9, "{name:?}");
    // All are NULL: alike.
    let few = e.rows_alike(&t, BY_FEW).unwrap();
    assert!(is_about(few[0], 8000, 0.1), "{few:?}");
}

#[test]
fn what_is_known_is_kept_until_the_table_grows() {
    let (_disk, e, t) = made(small_blocks());
    assert_eq!(e.rows_alike(&t, BY_FEW).unwrap(), [0.0; 0]);
    let counters = SessionCounters::new();
    let _bound = bind(&counters);
    let mut s = e.session();
    let mut put = |numbers: std::ops::Range<u64>, few: i32| {
        begin(&mut s);
        for n in numbers {
            insert(&mut s, &t, &(n, Some(few), None));
        }
        s.commit().unwrap();
    };
    put(0..1000, 1);
    let known = e.rows_alike(&t, BY_FEW).unwrap();
    assert!(is_about(known[0], 1000, 0.2), "{known:?}");
    let before = counters.get(Counter::RowsExamined);
    put(1000..1050, 2);
    assert_eq!(e.rows_alike(&t, BY_FEW).unwrap(), known);
    assert_eq!(counters.get(Counter::RowsExamined), before);
    put(1050..1300, 2);
    assert!(is_about(e.rows_alike(&t, BY_FEW).unwrap()[0], 650, 0.2));
    e.truncate_table("t").unwrap();
    assert_eq!(e.rows_alike(&t, BY_FEW).unwrap(), [0.0; 0]);
}

/// Of an index in which stretches of small groups and of large ones lie beside each other.
#[test]
fn who_looks_at_more_places_is_nearer() {
    let (mut guessed, mut analyzed) = (0.0, 0.0);
    for seed in 0..8u64 {
        let mut random = fastrand::Rng::with_seed(seed);
        let (_disk, e, t) = made(small_blocks());
        let mut s = begun(&e, false);
        let (mut rows, mut names) = (0, 0);
        while rows < 6000u64 {
            names += 1;
            let alike = if rows / 300 % 2 == 0 { random.u64(1..4) } else { random.u64(20..90) };
            for n in rows..rows + alike {
                insert(&mut s, &t, &(n, None, Some(format!("{names:06}").into_bytes())));
            }
            rows += alike;
        }
        s.commit().unwrap();
        e.sim_flush(&t).unwrap();
        let truth = rows as f64 / f64::from(names);
        guessed += (e.rows_alike(&t, BY_NAME).unwrap()[0] / truth).ln().abs();
        e.analyze(&t, &mut |_, _| true).unwrap();
        analyzed += (e.rows_alike(&t, BY_NAME).unwrap()[0] / truth).ln().abs();
    }
    assert!(analyzed < guessed / 2.0 && analyzed / 8.0 < 0.15, "off by {analyzed} and {guessed}");
}

/// However large the index is.
#[test]
fn few_blocks_are_read() {
    for alike in [1, 40, 900] {
        let (_disk, e, t) = filled(30_000, alike, 1);
        e.sim_flush(&t).unwrap();
        let blocks: u64 = t.trees().keys[BY_NAME].snapshot().runs.iter().map(|h| h.run.stats.blocks).sum();
        assert!(blocks > 800, "{blocks} blocks");
        let counters = SessionCounters::new();
        let _bound = bind(&counters);
        e.rows_alike(&t, BY_NAME).unwrap();
        let missed = counters.get(Counter::BlocksMissed);
        assert!(missed > 5 && missed < 250, "{missed} of {blocks} blocks");
        let mut asked = 0;
        e.analyze(&t, &mut |_, _| {
            asked += 1;
            true
        })
        .unwrap();
        let missed = counters.get(Counter::BlocksMissed);
        let looks = missed + counters.get(Counter::BlocksCached);
        assert!((257..=2 * 257).contains(&asked), "{asked} places");
        assert!(missed < 3 * 512 && looks < 6 * 3 * 256, "{missed} and {looks} of {blocks} blocks");
    }
}
