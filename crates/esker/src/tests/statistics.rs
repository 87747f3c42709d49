//! What ANALYZE TABLE found out stays as long as it says something: over restarts, crashes, other indexes. Counters tell whether
//! an index was looked into.

use crate::tests::formats::kill;
use crate::tests::indexes::{def, image, Row};
use crate::tests::tables::{open, options};
use crate::upkeep::checkpoint;
use crate::*;
use esker_base::counters::{bind, Counter, SessionCounters};
use esker_format::{IndexStatistics, RowId};
use esker_io::{IoKind, SimDisk};
use std::ops::Range;
use std::sync::Arc;

/// The places of the indexes: unique over the number, plain over a text and what is NULL everywhere, unique over that.
const A: usize = 0;
const TEXT: usize = 1;
const C: usize = 2;

fn small() -> Options {
    Options { block_bytes: 1 << 10, ..options() }
}

/// Puts rows of which so many have the same text; the last.
fn put(e: &Engine, t: &Arc<Table>, numbers: Range<u32>, alike: u32) -> RowId {
    let mut s = e.session();
    let put = |n| {
        let row = Row { a: n, c: None, text: format!("text {:09}", n / alike).into() };
        // SAFETY: an image of this table's layout.
        unsafe { s.insert_image(t, image(&row).as_ptr()).unwrap() }
    };
    let last = numbers.map(put).last().unwrap();
    s.commit().unwrap();
    last
}

/// A table of a thousand rows, five of a text.
fn filled(disk: &SimDisk) -> (Engine, Arc<Table>) {
    let e = open(disk, small());
    e.create_table("t", &def()).unwrap();
    let t = e.open_table("t").unwrap();
    put(&e, &t, 0..1000, 5);
    (e, t)
}

fn analyze(e: &Engine, t: &Arc<Table>) {
    let own = SessionCounters::new();
    let _bound = bind(&own);
    e.analyze(t, &mut |_, _| true).unwrap();
    assert_eq!(own.get(Counter::IndexesSampled), t.trees().kept_indexes().count() as u64);
}

/// What is said of an index, and whether it was looked into for that.
fn told(e: &Engine, t: &Arc<Table>, index: usize) -> (Vec<f64>, bool) {
    let own = SessionCounters::new();
    let _bound = bind(&own);
    let alike = e.rows_alike(t, index).unwrap();
    (alike, own.get(Counter::IndexesSampled) > 0)
}

/// That of each index of `t`.
fn told_of_all(e: &Engine) -> Vec<(Vec<f64>, bool)> {
    let t = e.open_table("t").unwrap();
    (0..t.trees().keys.len()).map(|index| told(e, &t, index)).collect()
}

fn are_known(told: &[(Vec<f64>, bool)]) -> bool {
    !told.iter().any(|(_, looked)| *looked)
}

fn reopened(e: Engine, disk: &SimDisk) -> (SimDisk, Engine) {
    let disk = kill(e, disk);
    let e = open(&disk, small());
    (disk, e)
}

#[test]
fn what_was_found_is_kept() {
    let mut disk = SimDisk::new(1);
    let (mut e, t) = filled(&disk);
    // Guesses are the process's.
    assert!(!are_known(&told_of_all(&e)) && are_known(&told_of_all(&e)));
    drop(t);
    (disk, e) = reopened(e, &disk);
    assert!(told_of_all(&e).iter().all(|(_, looked)| *looked));
    let t = e.open_table("t").unwrap();
    assert_eq!(t.statistics(), []);
    analyze(&e, &t);
    drop(t);
    let found = told_of_all(&e);
    assert!(are_known(&found));
    let text = &found[TEXT].0;
    assert!((text[0] - 5.0).abs() < 0.1 && (text[1] - 5.0).abs() < 0.1, "{text:?}");
    // By the log, twice, then by the manifest, whose base and edits say it.
    for by_manifest in [false, false, true, true] {
        if by_manifest {
            e.checkpoint().unwrap();
        }
        (disk, e) = reopened(e, &disk);
        assert_eq!(told_of_all(&e), found);
    }
    e.close().unwrap();
    let e = open(&disk, small());
    assert_eq!(told_of_all(&e), found);
    let shown: Vec<_> = e.open_table("t").unwrap().statistics();
    let by_name: Vec<_> = shown.iter().map(|(name, s)| (&**name, s.rows, s.groups.len())).collect();
    assert_eq!(by_name, [("a", 1000, 1), ("text", 1000, 2), ("c", 1000, 1)]);
    e.rename_table("t", "u").unwrap();
    e.rename_table("u", "t").unwrap();
    let (_disk, e) = reopened(e, &disk);
    assert_eq!(told_of_all(&e), found);
}

/// Entries of rows that are gone lie there for a while: they count neither as rows nor as groups.
#[test]
fn counted_groups_are_not_fewer_for_what_is_deleted() {
    let disk = SimDisk::new(1);
    let e = open(&disk, small());
    e.create_table("t", &def()).unwrap();
    let t = e.open_table("t").unwrap();
    put(&e, &t, 0..1000, 50);
    let mut s = e.session();
    for n in (0..1000).filter(|n| n % 10 > 0) {
        s.delete(&t, RowId(n + 1)).unwrap();
    }
    s.commit().unwrap();
    analyze(&e, &t);
    let (alike, looked) = told(&e, &t, TEXT);
    assert!(!looked && alike[0] == 5.0, "100 rows of 20 texts: {alike:?}");
}

/// A later one takes the place of what was found before.
#[test]
fn the_last_one_counts() {
    let mut disk = SimDisk::new(1);
    let (mut e, t) = filled(&disk);
    analyze(&e, &t);
    put(&e, &t, 1000..2000, 1);
    assert!(!are_known(&told_of_all(&e)));
    analyze(&e, &t);
    drop(t);
    let found = told_of_all(&e);
    assert!(found[TEXT].0[0] < 2.5, "{found:?}");
    for _ in 0..2 {
        (disk, e) = reopened(e, &disk);
        assert_eq!(told_of_all(&e), found);
        e.checkpoint().unwrap();
    }
}

#[test]
fn it_counts_until_the_table_is_another_tenth_larger_or_smaller() {
    let mut disk = SimDisk::new(1);
    let (mut e, mut t) = filled(&disk);
    let mut s = e.session();
    // Half of it is alike: what is guessed of more rows is another figure.
    (1..=500).for_each(|row| s.delete(&t, RowId(row)).unwrap());
    s.commit().unwrap();
    put(&e, &t, 0..500, 1);
    drop(s);
    analyze(&e, &t);
    let found = told(&e, &t, TEXT);
    put(&e, &t, 1000..1100, 1);
    assert_eq!(told(&e, &t, TEXT), found);
    let last = put(&e, &t, 1100..1101, 1);
    for _ in 0..2 {
        let (alike, looked) = told(&e, &t, TEXT);
        assert!(looked && alike != found.0);
        assert_eq!(told(&e, &t, TEXT), (alike, false), "it is guessed once");
        drop(t);
        e.checkpoint().unwrap();
        (disk, e) = reopened(e, &disk);
        t = e.open_table("t").unwrap();
    }
    // As large as it was.
    let mut s = e.session();
    s.delete(&t, last).unwrap();
    s.commit().unwrap();
    assert_eq!(told(&e, &t, TEXT), found);
}

#[test]
fn nothing_is_known_of_what_was_emptied_or_made_anew() {
    for dropped in [false, true] {
        for saved in 0..3 {
            let mut disk = SimDisk::new(1);
            let (mut e, t) = filled(&disk);
            analyze(&e, &t);
            drop(t);
            if saved == 1 {
                checkpoint::write(&e.core).unwrap();
            }
            if dropped {
                e.drop_table("t").unwrap();
                e.create_table("t", &def()).unwrap();
            } else {
                e.truncate_table("t").unwrap();
            }
            // As many rows, and all of one text.
            put(&e, &e.open_table("t").unwrap(), 0..1000, 1000);
            if saved == 2 {
                checkpoint::write(&e.core).unwrap();
            }
            for _ in 0..2 {
                assert_eq!(e.open_table("t").unwrap().statistics(), []);
                let found = told_of_all(&e);
                assert!(found[TEXT].1 && found[TEXT].0[0] > 900.0, "{found:?}");
                (disk, e) = reopened(e, &disk);
            }
        }
    }
}

#[test]
fn an_empty_table_has_no_entries() {
    let disk = SimDisk::new(1);
    let e = open(&disk, small());
    e.create_table("t", &def()).unwrap();
    analyze(&e, &e.open_table("t").unwrap());
    let (_disk, e) = reopened(e, &disk);
    assert_eq!(told_of_all(&e), vec![(Vec::new(), false); 3]);
    put(&e, &e.open_table("t").unwrap(), 0..1, 1);
    assert_eq!(told(&e, &e.open_table("t").unwrap(), A), (vec![1.0], true));
    e.create_table("bare", &TableDef { indexes: vec![], ..def() }).unwrap();
    let before = e.core.wal.end_lsn();
    e.analyze(&e.open_table("bare").unwrap(), &mut |_, _| panic!("there is nothing to look at")).unwrap();
    assert_eq!(e.core.wal.end_lsn(), before);
}

/// Others keep theirs, whatever their names and places are; a new one is looked into.
#[test]
fn indexes_come_and_go() {
    for saved in [false, true] {
        let mut disk = SimDisk::new(1);
        let (mut e, t) = filled(&disk);
        // Rows in memory keep the log from before all of it: it is replayed over what the manifest says.
        analyze(&e, &t);
        let before = told_of_all(&e);
        let new = IndexDef { name: "new".into(), ..def().indexes[TEXT].clone() };
        let keep = |index, name: &str| IndexPlan::Keep { index, name: name.into() };
        let plan = [IndexPlan::Add(new), keep(TEXT, "other"), keep(A, "a")];
        e.alter_indexes(vec![e.build_indexes(&t, &plan, &mut |_, _| true).unwrap()]).unwrap();
        drop(t);
        if saved {
            checkpoint::write(&e.core).unwrap();
        }
        for _ in 0..2 {
            let found = told_of_all(&e);
            assert!(found[0].1, "it was looked into");
            assert_eq!(found[1..], [before[TEXT].clone(), before[A].clone()]);
            let t = e.open_table("t").unwrap();
            let names: Vec<_> = t.statistics().into_iter().map(|(name, _)| name).collect();
            assert_eq!(names, ["other", "a"]);
            drop(t);
            (disk, e) = reopened(e, &disk);
        }
        analyze(&e, &e.open_table("t").unwrap());
        let (_disk, e) = reopened(e, &disk);
        assert!(are_known(&told_of_all(&e)));
    }
}

#[test]
fn a_power_cut_leaves_it_or_nothing() {
    let disk = SimDisk::new(1);
    let (e, t) = filled(&disk);
    drop(t);
    let disk = kill(e, &disk);
    let (mut old, mut new) = (0, 0);
    for cut in 1.. {
        let disk = disk.snapshot();
        let e = open(&disk, small());
        let t = e.open_table("t").unwrap();
        disk.power_cut_at(disk.op_count() + cut);
        let done = e.analyze(&t, &mut |_, _| true);
        let saved = done.is_ok() && checkpoint::write(&e.core).is_ok();
        if saved && !disk.is_power_cut() {
            break;
        }
        drop((t, e));
        for seed in 8 * cut..8 * cut + 8 {
            let e = open(&disk.after_power_cut(seed), small());
            let known = are_known(&told_of_all(&e));
            assert!(known || done.is_err(), "lost, cut at {cut}");
            *(if known { &mut new } else { &mut old }) += 1;
            let t = e.open_table("t").unwrap();
            assert_eq!(t.statistics().len(), if known { 3 } else { 0 });
            assert_eq!(t.stats().rows, 1000);
        }
    }
    assert!(old > 2 && new > 8, "{old} {new}");
}

#[test]
fn what_is_not_durable_is_not_known() {
    let disk = SimDisk::new(1);
    let (e, t) = filled(&disk);
    disk.fail_from(disk.op_count() + 1, IoKind::Failed);
    assert!(e.analyze(&t, &mut |_, _| true).is_err());
    assert_eq!(t.statistics(), []);
}

#[test]
fn who_stops_it_keeps_what_was_known() {
    let (e, t) = filled(&SimDisk::new(1));
    let mut asked = 0;
    e.analyze(&t, &mut |done, total| {
        assert!(done < total && total == 3);
        asked += 1;
        true
    })
    .unwrap();
    let before = t.statistics();
    assert!(asked > 200, "{asked}");
    put(&e, &t, 1000..1050, 1);
    for stop in [1, 2, 3, 100, asked / 2] {
        let mut left = stop;
        let stopped = e.analyze(&t, &mut |_, _| {
            left -= 1;
            left > 0
        });
        assert!(matches!(stopped, Err(Error::Interrupted)), "{stop}");
    }
    assert_eq!(t.statistics(), before);
}

/// What was found of trees that went meanwhile says nothing.
#[test]
fn a_table_that_changes_meanwhile() {
    let (e, t) = filled(&SimDisk::new(1));
    let mut once = Some(());
    e.analyze(&t, &mut |_, _| once.take().is_none_or(|()| e.truncate_table("t").is_ok())).unwrap();
    assert_eq!(t.statistics(), []);
    put(&e, &t, 0..10, 1);
    let dropped = e.analyze(&t, &mut |_, _| e.drop_table("t").is_ok() || t.is_dropped());
    assert!(matches!(dropped, Err(Error::NoSuchTable(name)) if name == "t"));
}

#[test]
fn of_a_temporary_table() {
    let disk = SimDisk::new(1);
    let e = open(&disk, small());
    e.create_table("t", &TableDef { temporary: true, ..def() }).unwrap();
    put(&e, &e.open_table("t").unwrap(), 0..100, 2);
    analyze(&e, &e.open_table("t").unwrap());
    assert!(are_known(&told_of_all(&e)));
    let (_disk, e) = reopened(e, &disk);
    assert_eq!(e.tables(), [""; 0]);
}

/// Whatever part of the log is replayed over whatever manifest.
#[test]
fn what_is_replayed_comes_to_the_same() {
    let sorted = |e: &Engine| {
        let mut all: Vec<(String, IndexStatistics)> = e.open_table("t").unwrap().statistics();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    };
    let mut most = 0;
    for seed in 0..60 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut disk = SimDisk::new(seed);
        let (mut e, t) = filled(&disk);
        drop(t);
        let mut next = 1000;
        for step in 0..25 {
            let t = e.open_table("t").unwrap();
            match random.u8(0..9) {
                0 | 1 => {
                    put(&e, &t, next..next + 20, 3);
                    next += 20;
                }
                2 => e.sim_flush(&t).unwrap(),
                3 => checkpoint::write(&e.core).unwrap(),
                4 | 5 => e.analyze(&t, &mut |_, _| true).unwrap(),
                6 if random.bool() => e.truncate_table("t").unwrap(),
                7 => {
                    let names: Vec<_> = t.trees().kept_indexes().map(|(_, i)| i.entry.name.clone()).collect();
                    let mut plan: Vec<_> =
                        (0..).zip(names).map(|(index, name)| IndexPlan::Keep { index, name }).collect();
                    plan.pop();
                    let new = IndexDef { name: format!("new {step}"), ..def().indexes[C].clone() };
                    plan.insert(0, IndexPlan::Add(new));
                    e.alter_indexes(vec![e.build_indexes(&t, &plan, &mut |_, _| true).unwrap()]).unwrap();
                }
                _ => {
                    drop(t);
                    let before = sorted(&e);
                    (disk, e) = reopened(e, &disk);
                    assert_eq!(sorted(&e), before, "seed {seed}, step {step}");
                    most = most.max(before.len());
                }
            }
        }
    }
    assert_eq!(most, 3);
}
