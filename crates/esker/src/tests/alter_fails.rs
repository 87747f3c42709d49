//! Changes of indexes that a crash, a failed read or write ends, and what is replayed of them.

use crate::tests::alter::{
    add, alter, files, filled, filled_as, insert, is_sound, keep, names, referred, short, small,
};
use crate::tests::alter::{A, C, TEXT};
use crate::tests::indexes::def;
use crate::tests::tables::{open, rows_of};
use crate::upkeep::checkpoint;
use crate::*;
use esker_base::counters::{bind, Counter, SessionCounters};
use esker_format::RowId;
use esker_io::{IoKind, SimDisk};

/// Adds and drops at once, and what is said of it to the log and the manifest.
fn alter_and_settle(e: &Engine) -> Result<()> {
    let t = e.open_table("t")?;
    alter(e, &t, &[keep(2, "c"), add("new", false, &[TEXT, C])])?;
    checkpoint::write(&e.core)
}

fn is_either(e: &Engine, rows: u64) -> bool {
    let is_new = names(&e.open_table("t").unwrap()).len() == 2;
    is_sound(e, if is_new { &["c", "new"] } else { &["a", "text", "c"] }, rows);
    is_new
}

#[test]
fn a_power_cut_leaves_all_of_it_or_nothing() {
    let disk = SimDisk::new(1);
    let e = open(&disk, short());
    let (_, rows) = filled(&e, 1000);
    let start = disk.snapshot();
    drop(e);
    let (mut old, mut new) = (0, 0);
    for cut in 1.. {
        let disk = start.snapshot();
        let e = open(&disk, short());
        disk.power_cut_at(disk.op_count() + cut);
        let done = alter_and_settle(&e);
        if done.is_ok() && !disk.is_power_cut() {
            break;
        }
        drop(e);
        // Each seed has one fate for all that was not synced.
        for seed in 4 * cut..4 * cut + 4 {
            let disk = disk.after_power_cut(seed);
            let e = open(&disk, short());
            assert_eq!(files(&disk).len(), referred(&e), "files of nobody, cut at {cut}");
            match is_either(&e, rows) {
                true => new += 1,
                false => old += 1,
            }
            // It can be done again.
            if names(&e.open_table("t").unwrap()).len() == 3 {
                alter_and_settle(&e).unwrap();
            }
            is_either(&e, rows);
        }
    }
    assert!(old > 20 && new > 10, "{old} {new}");
}

#[test]
fn a_failed_write_leaves_all_of_it_or_nothing() {
    let disk = SimDisk::new(1);
    let e = open(&disk, short());
    let (_, rows) = filled(&e, 1200);
    drop(e);
    let mut failed = 0;
    for kind in [IoKind::Failed, IoKind::DiskFull] {
        for at in 1.. {
            let disk = disk.snapshot();
            let e = open(&disk, short());
            disk.fail_once(disk.op_count() + at, kind);
            if alter_and_settle(&e).is_ok() {
                break;
            }
            failed += 1;
            disk.clear_plans();
            is_either(&e, rows);
            drop(e);
            let disk = disk.after_kill();
            let e = open(&disk, short());
            assert_eq!(files(&disk).len(), referred(&e));
            is_either(&e, rows);
        }
    }
    assert!(failed > 20, "{failed}");
}

#[test]
fn a_failed_read_leaves_the_table_as_it_was() {
    let disk = SimDisk::new(1);
    let e = open(&disk, short());
    let (t, rows) = filled(&e, 6000);
    let before = names(&t).iter().map(ToString::to_string).collect::<Vec<_>>();
    let kept: Vec<IndexPlan> = before.iter().zip(0..).map(|(name, at)| keep(at, name)).collect();
    let own = SessionCounters::new();
    let _bound = bind(&own);
    let mut failed = 0;
    // Those of blocks that are joined are the last ones.
    for after in (1..).step_by(3) {
        let read = disk.read_count() + after;
        disk.fail_read_once(read, IoKind::Failed);
        let plan: Vec<_> = kept.iter().cloned().chain([add("new", true, &[A, C])]).collect();
        let met = alter(&e, &t, &plan);
        let came_to_it = disk.read_count() >= read;
        disk.clear_plans();
        if !came_to_it {
            met.unwrap();
            break;
        }
        assert!(matches!(met, Err(Error::Io(_) | Error::Damage { .. })), "{met:?}");
        failed += 1;
        assert_eq!(names(&t), before);
    }
    assert!(
        failed > 20 && own.get(Counter::LargeSpills) > failed,
        "{failed} failed, {} spills",
        own.get(Counter::LargeSpills)
    );
    let all: Vec<_> = before.iter().map(String::as_str).chain(["new"]).collect();
    is_sound(&e, &all, rows);
}

/// A tree that is discarded under who reads it is no empty one.
#[test]
fn who_reads_what_was_dropped_is_told() {
    let e = open(&SimDisk::new(1), short());
    let (t, _) = filled(&e, 6000);
    let mut s = e.session();
    s.begin(Isolation::RepeatableRead, BeginOptions::default());
    let trees = t.trees();
    let options = ScanOptions { mask: t.all_columns(), ..ScanOptions::default() };
    let mut by_index = s.open_index_cursor(&t, 0, options.clone()).unwrap();
    by_index.seek(&mut s, KeyRange::default(), Direction::Forward).unwrap();
    let report = s.check_indexes(&t, &[0], true, &mut |_| {
        if t.trees().keys.len() == trees.keys.len() {
            alter(&e, &t, &[]).unwrap();
        }
        true
    });
    assert!(matches!(report.as_deref(), Ok([Err(Error::TableChanged(_))])), "{report:?}");
    assert!(matches!(t.readable(&trees.keys[0]), Err(Error::TableChanged(_))));
    // Its entries were there when it was sought, and the rows are there still.
    assert!(!by_index.next_batch(&mut s).unwrap().ids.is_empty());
    assert!(matches!(by_index.seek(&mut s, KeyRange::default(), Direction::Forward), Err(Error::TableChanged(_))));
    assert!(matches!(by_index.next_batch(&mut s).map(|b| b.ids.len()), Err(Error::TableChanged(_))));
    let mut cursor = s.open_cursor(&t, options).unwrap();
    e.drop_table("t").unwrap();
    assert!(matches!(cursor.fetch(&mut s, RowId(1)), Err(Error::NoSuchTable(_))));
}

/// A table whose rows are in memory only keeps the log from before everything that follows.
fn keep_log(e: &Engine) {
    e.create_table("u", &def()).unwrap();
    let mut s = e.session();
    insert(&mut s, &e.open_table("u").unwrap(), 1).unwrap();
    s.commit().unwrap();
}

/// The record says what a new index began with: files that merges have removed by then.
#[test]
fn what_became_of_a_new_index_is_not_undone_by_its_record() {
    let disk = SimDisk::new(1);
    let e = open(&disk, small());
    let (t, mut rows) = filled(&e, 400);
    keep_log(&e);
    alter(&e, &t, &[keep(0, "a"), add("new", false, &[TEXT, C])]).unwrap();
    let began_with = files(&disk);
    let mut s = e.session();
    for n in 0..400 {
        insert(&mut s, &t, 5000 + n).unwrap();
        rows += 1;
    }
    s.commit().unwrap();
    e.sim_flush(&t).unwrap();
    e.optimize(&t, &mut |_, _| true).unwrap();
    let after = files(&disk);
    assert!(began_with.iter().filter(|f| !after.contains(f)).count() > 1, "nothing was merged");
    checkpoint::write(&e.core).unwrap();
    drop((s, t));
    disk.crash();
    drop(e);
    let e = open(&disk, small());
    is_sound(&e, &["a", "new"], rows);
    assert_eq!(files(&disk), after);
}

#[test]
fn what_was_emptied_is_not_filled_again_by_an_older_record() {
    let disk = SimDisk::new(1);
    let e = open(&disk, small());
    let (t, _) = filled(&e, 100);
    keep_log(&e);
    alter(&e, &t, &[keep(0, "a"), add("new", false, &[TEXT, C])]).unwrap();
    e.truncate_table("t").unwrap();
    let mut s = e.session();
    for n in 0..50 {
        insert(&mut s, &t, n).unwrap();
    }
    s.commit().unwrap();
    e.sim_flush(&t).unwrap();
    checkpoint::write(&e.core).unwrap();
    drop((s, t));
    disk.crash();
    drop(e);
    is_sound(&open(&disk, small()), &["a", "new"], 50);
}

/// Rows, indexes, TRUNCATE and manifests in any order, then what is left is replayed: from wherever the log is needed.
#[test]
fn what_is_replayed_comes_to_the_same() {
    for seed in 0..60 {
        let mut random = fastrand::Rng::with_seed(seed);
        let disk = SimDisk::new(seed);
        let mut e = open(&disk, small());
        e.create_table("t", &def()).unwrap();
        let (mut wanted, mut rows, mut next) = (vec!["a".to_owned(), "text".into(), "c".into()], 0, 0);
        for step in 0..40 {
            let t = e.open_table("t").unwrap();
            match random.u8(0..12) {
                0..=3 => {
                    let mut s = e.session();
                    for _ in 0..random.u64(1..40) {
                        insert(&mut s, &t, next).unwrap();
                        next += 1;
                        rows += 1;
                    }
                    s.commit().unwrap();
                }
                4 => e.sim_flush(&t).unwrap(),
                5 => drop(e.sim_merge(&t).unwrap()),
                6 => checkpoint::write(&e.core).unwrap(),
                7 => {
                    e.truncate_table("t").unwrap();
                    rows = 0;
                }
                8..=10 => {
                    let mut plan: Vec<_> = wanted.iter().enumerate().map(|(at, name)| keep(at, name)).collect();
                    if !plan.is_empty() {
                        plan.remove(random.usize(0..plan.len()));
                    }
                    for n in 0..random.usize(0..3) {
                        if plan.len() < 4 {
                            let columns = [&[A][..], &[TEXT, A], &[C]][random.usize(0..3)];
                            plan.insert(
                                random.usize(0..=plan.len()),
                                add(&format!("{step} {n}"), random.bool(), columns),
                            );
                        }
                    }
                    alter(&e, &t, &plan).unwrap();
                    wanted = names(&t);
                }
                _ => {
                    drop(t);
                    disk.crash();
                    drop(e);
                    e = open(&disk, small());
                }
            }
            let wanted: Vec<_> = wanted.iter().map(String::as_str).collect();
            is_sound(&e, &wanted, rows);
        }
        disk.crash();
        drop(e);
        let e = open(&disk, small());
        let wanted: Vec<_> = wanted.iter().map(String::as_str).collect();
        is_sound(&e, &wanted, rows);
        assert_eq!(files(&disk).len(), referred(&e));
    }
}

#[test]
fn a_view_from_while_a_table_was_filled_is_told_so_once_it_is_shown() {
    let disk = SimDisk::new(1);
    let e = open(&disk, small());
    for renames in [0, 1] {
        let (filling, name) = (format!("filling{renames}"), format!("t{renames}"));
        e.create_table(&filling, &def()).unwrap();
        let t = e.open_table(&filling).unwrap();
        let viewing = || {
            let mut s = e.session();
            s.begin(Isolation::RepeatableRead, BeginOptions::default());
            s.read_view().unwrap();
            s
        };
        let mut early = viewing();
        let mut filler = e.session();
        for n in 0..100 {
            insert(&mut filler, &t, n).unwrap();
        }
        let mut during = viewing();
        filler.commit().unwrap();
        let mut after = viewing();
        // What comes to other tables before the name changes is no reason.
        let (other, _) = filled_as(&e, &format!("other{renames}"), 10);
        match renames {
            0 => e.rename_table(&filling, &name).unwrap(),
            _ => e.show_table(&filling, &name).unwrap(),
        }
        assert_eq!(after.count(&t).unwrap(), 100);
        for s in [&mut early, &mut during] {
            let plain = || ScanOptions { mask: t.all_columns(), ..ScanOptions::default() };
            let answers = [
                s.count(&t).err(),
                s.scan(&t, plain()).err(),
                s.open_index_cursor(&t, 0, plain()).err(),
                s.lock_all(&t).err(),
            ];
            let told = answers.iter().filter(|e| matches!(e, Some(Error::TableChanged(of)) if *of == name)).count();
            assert_eq!(told, if renames == 0 { 0 } else { 4 }, "{answers:?}");
            s.rollback().unwrap();
        }
        assert_eq!(rows_of(&e, &t), 100);
        drop(other);
    }
}
