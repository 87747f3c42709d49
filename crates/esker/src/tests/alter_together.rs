//! Indexes of several tables that change at once, as those of partitions do: all of them or none, whatever happens.

use crate::tests::alter::{add, built, files, filled_as, insert, is_sound_in, keep, names, referred, short, small};
use crate::tests::alter::{A, C, TEXT};
use crate::tests::hooks;
use crate::tests::indexes::def;
use crate::tests::tables::open;
use crate::upkeep::checkpoint;
use crate::*;
use esker_base::counters::{bind, Counter, SessionCounters};
use esker_io::{IoKind, SimDisk};
use std::sync::Arc;

/// Tables of different lengths, one of them empty.
const TABLES: [(&str, u32); 4] = [("p0", 300), ("p1", 0), ("p2", 120), ("p3", 210)];
const OLD: &[&str] = &["a", "text", "c"];
const NEW: &[&str] = &["c", "new", "more"];

fn filled(e: &Engine) -> Vec<(Arc<Table>, u64)> {
    TABLES.map(|(name, rows)| filled_as(e, name, rows)).into()
}

/// How many rows the tables have.
fn rows_of(filled: &[(Arc<Table>, u64)]) -> Vec<u64> {
    filled.iter().map(|(_, rows)| *rows).collect()
}

fn plan() -> Vec<IndexPlan> {
    vec![keep(2, "c"), add("new", false, &[TEXT, C]), add("more", true, &[A, TEXT])]
}

fn opened(e: &Engine) -> Vec<Arc<Table>> {
    TABLES.iter().map(|(name, _)| e.open_table(name).unwrap()).collect()
}

fn all_built(e: &Engine) -> Result<Vec<BuiltIndexes>> {
    opened(e).iter().map(|t| built(e, t, &plan())).collect()
}

fn alter_all(e: &Engine) -> Result<()> {
    e.alter_indexes(all_built(e)?)
}

fn alter_all_and_settle(e: &Engine) -> Result<()> {
    alter_all(e)?;
    checkpoint::write(&e.core)
}

fn are_sound(e: &Engine, wanted: &[&str], rows: &[u64]) {
    for ((name, _), rows) in TABLES.iter().zip(rows) {
        is_sound_in(e, name, wanted, *rows);
    }
}

/// All tables have the old indexes, or all the new ones: that.
fn are_new(e: &Engine, rows: &[u64]) -> bool {
    let is_new = names(&e.open_table(TABLES[0].0).unwrap()) == NEW;
    are_sound(e, if is_new { NEW } else { OLD }, rows);
    is_new
}

#[test]
fn tables_get_their_indexes_at_once() {
    let disk = SimDisk::new(1);
    let e = open(&disk, short());
    let rows = rows_of(&filled(&e));
    let own = SessionCounters::new();
    let bound = bind(&own);
    alter_all(&e).unwrap();
    assert_eq!(own.get(Counter::IndexesBuilt), 2 * TABLES.len() as u64);
    drop(bound);
    are_sound(&e, NEW, &rows);
    assert_eq!(files(&disk).len(), referred(&e));
    let mut s = e.session();
    let seqs: Vec<_> = opened(&e).iter().map(|t| t.changed_seq()).collect();
    assert!(seqs.iter().all(|seq| *seq == seqs[0]), "they changed one after the other");
    insert(&mut s, &e.open_table("p1").unwrap(), 7).unwrap();
    s.commit().unwrap();
    let rows: Vec<_> = rows.iter().zip([0, 1, 0, 0]).map(|(rows, more)| rows + more).collect();
    drop(s);
    disk.crash();
    drop(e);
    let e = open(&disk, short());
    are_sound(&e, NEW, &rows);
    checkpoint::write(&e.core).unwrap();
    disk.crash();
    drop(e);
    are_sound(&open(&disk, short()), NEW, &rows);
    // Of no table there is nothing to say.
    open(&SimDisk::new(2), short()).alter_indexes(Vec::new()).unwrap();
}

#[test]
fn what_goes_wrong_in_one_table_leaves_all_as_they_were() {
    let disk = SimDisk::new(1);
    let e = open(&disk, short());
    let mut rows = rows_of(&filled(&e));
    let before = files(&disk);
    let unchanged = |rows: &[u64]| {
        are_sound(&e, OLD, rows);
        assert_eq!(files(&disk), before);
    };
    // A duplicate in the third, when two are built.
    let tables = opened(&e);
    let mut done = vec![built(&e, &tables[0], &plan()).unwrap(), built(&e, &tables[1], &plan()).unwrap()];
    let unique = [add("new", false, &[TEXT, C]), add("more", true, &[TEXT])];
    let met = built(&e, &tables[2], &unique).map(drop);
    assert!(matches!(met, Err(Error::DuplicateKey { index: 1, .. })), "{met:?}");
    assert!(files(&disk).len() > before.len());
    done.clear();
    unchanged(&rows);
    // Somebody writes in the last one meanwhile.
    let all = all_built(&e).unwrap();
    let mut s = e.session();
    insert(&mut s, &tables[3], 9000).unwrap();
    s.commit().unwrap();
    rows[3] += 1;
    assert!(matches!(e.alter_indexes(all), Err(Error::TableChanged(name)) if name == "p3"));
    unchanged(&rows);
    // One of them is there twice.
    let mut all = all_built(&e).unwrap();
    all.push(built(&e, &tables[2], &plan()).unwrap());
    assert!(matches!(e.alter_indexes(all), Err(Error::InvalidArgument(_))));
    unchanged(&rows);
    // What somebody has written in one of them is prepared.
    let all = all_built(&e).unwrap();
    insert(&mut s, &tables[1], 9001).unwrap();
    s.prepare(b"x").unwrap();
    assert!(matches!(e.alter_indexes(all), Err(Error::LockTimeout)));
    s.rollback().unwrap();
    unchanged(&rows);
    // One that is gone.
    let all = all_built(&e).unwrap();
    e.drop_table("p2").unwrap();
    assert!(matches!(e.alter_indexes(all), Err(Error::NoSuchTable(name)) if name == "p2"));
    for (at, (name, _)) in TABLES.iter().enumerate().filter(|(at, _)| *at != 2) {
        is_sound_in(&e, name, OLD, rows[at]);
    }
    assert_eq!(files(&disk).len(), referred(&e));
}

/// Who wrote in any of them before does not commit afterwards.
#[test]
fn whoever_writes_in_one_of_them_fails() {
    let e = open(&SimDisk::new(1), small());
    let filled = filled(&e);
    for (table, _) in &filled {
        let mut s = e.session();
        insert(&mut s, table, 9000).unwrap();
        let all = filled.iter().map(|(t, _)| built(&e, t, &[keep(0, "a")])).collect::<Result<_>>();
        e.alter_indexes(all.unwrap()).unwrap();
        assert!(matches!(s.commit(), Err(Error::TableChanged(_))));
        s.rollback().unwrap();
    }
    are_sound(&e, &["a"], &rows_of(&filled));
}

#[test]
fn a_power_cut_leaves_all_tables_or_none() {
    let disk = SimDisk::new(1);
    let e = open(&disk, short());
    let rows = rows_of(&filled(&e));
    let start = disk.snapshot();
    drop(e);
    let (mut old, mut new) = (0, 0);
    for cut in 1.. {
        let disk = start.snapshot();
        let e = open(&disk, short());
        disk.power_cut_at(disk.op_count() + cut);
        let done = alter_all_and_settle(&e);
        if done.is_ok() && !disk.is_power_cut() {
            break;
        }
        drop(e);
        // Each seed has one fate for all that was not synced.
        for seed in 4 * cut..4 * cut + 4 {
            let disk = disk.after_power_cut(seed);
            let e = open(&disk, short());
            assert_eq!(files(&disk).len(), referred(&e), "files of nobody, cut at {cut}");
            match are_new(&e, &rows) {
                true => new += 1,
                false => {
                    old += 1;
                    alter_all(&e).unwrap();
                    are_sound(&e, NEW, &rows);
                }
            }
        }
    }
    assert!(old > 20 && new > 10, "{old} {new}");
}

#[test]
fn a_failed_write_leaves_all_tables_or_none() {
    let disk = SimDisk::new(1);
    let e = open(&disk, short());
    let rows = rows_of(&filled(&e));
    drop(e);
    let mut failed = 0;
    for kind in [IoKind::Failed, IoKind::DiskFull] {
        for at in 1.. {
            let disk = disk.snapshot();
            let e = open(&disk, short());
            disk.fail_once(disk.op_count() + at, kind);
            if alter_all_and_settle(&e).is_ok() {
                break;
            }
            failed += 1;
            disk.clear_plans();
            are_new(&e, &rows);
            drop(e);
            let disk = disk.after_kill();
            let e = open(&disk, short());
            assert_eq!(files(&disk).len(), referred(&e));
            are_new(&e, &rows);
        }
    }
    assert!(failed > 20, "{failed}");
}

/// The manifest has some of it, or nothing, and the log the record.
#[test]
fn a_checkpoint_meanwhile_has_all_tables_or_none() {
    for place in ["checkpoint has its position", "checkpoint has the tables"] {
        let disk = SimDisk::new(1);
        let e = open(&disk, small());
        let rows = rows_of(&filled(&e));
        let (engine, all) = (e.clone(), all_built(&e).unwrap());
        hooks::at(place, move || engine.alter_indexes(all).unwrap());
        checkpoint::write(&e.core).unwrap();
        assert!(hooks::all_done());
        are_sound(&e, NEW, &rows);
        disk.crash();
        drop(e);
        let disk = disk.after_power_cut(1);
        let e = open(&disk, small());
        are_sound(&e, NEW, &rows);
        assert_eq!(files(&disk).len(), referred(&e));
    }
}

/// The tables and what they must have by now.
struct Model {
    indexes: Vec<Vec<String>>,
    rows: Vec<u64>,
    next: u32,
}

impl Model {
    fn holds(&self, e: &Engine) {
        for (at, (name, _)) in TABLES.iter().enumerate() {
            let wanted: Vec<_> = self.indexes[at].iter().map(String::as_str).collect();
            is_sound_in(e, name, &wanted, self.rows[at]);
        }
    }

    /// Some of the tables get the same new indexes; each loses another one.
    fn alter(&mut self, e: &Engine, random: &mut fastrand::Rng, step: usize) {
        let columns = [&[A][..], &[TEXT, A], &[C]][random.usize(0..3)];
        let new = add(&format!("{step}"), random.bool(), columns);
        let (mut all, mut altered) = (Vec::new(), Vec::new());
        for (at, t) in opened(e).iter().enumerate().filter(|_| random.u8(0..3) > 0).collect::<Vec<_>>() {
            let mut plan: Vec<_> = self.indexes[at].iter().enumerate().map(|(at, name)| keep(at, name)).collect();
            if plan.len() > 2 || random.bool() && !plan.is_empty() {
                plan.remove(random.usize(0..plan.len()));
            }
            plan.insert(random.usize(0..=plan.len()), new.clone());
            all.push(built(e, t, &plan).unwrap());
            altered.push((at, t.clone()));
        }
        e.alter_indexes(all).unwrap();
        for (at, t) in altered {
            self.indexes[at] = names(&t);
        }
    }
}

/// What becomes of one table later is not undone by a record that it shares a frame with.
#[test]
fn what_is_replayed_of_some_tables_comes_to_the_same() {
    for seed in 0..40 {
        let mut random = fastrand::Rng::with_seed(seed);
        let disk = SimDisk::new(seed);
        let mut e = open(&disk, small());
        TABLES.iter().for_each(|(name, _)| e.create_table(name, &def()).unwrap());
        let old: Vec<String> = OLD.iter().map(ToString::to_string).collect();
        let mut model = Model { indexes: vec![old.clone(); TABLES.len()], rows: vec![0; TABLES.len()], next: 0 };
        for step in 0..30 {
            let at = random.usize(0..TABLES.len());
            let name = TABLES[at].0;
            let t = e.open_table(name).unwrap();
            match random.u8(0..12) {
                0..=2 => {
                    let mut s = e.session();
                    for _ in 0..random.u64(1..40) {
                        insert(&mut s, &t, model.next).unwrap();
                        model.next += 1;
                        model.rows[at] += 1;
                    }
                    s.commit().unwrap();
                }
                3 => e.sim_flush(&t).unwrap(),
                4 => drop(e.sim_merge(&t).unwrap()),
                5 => checkpoint::write(&e.core).unwrap(),
                6 => {
                    e.truncate_table(name).unwrap();
                    model.rows[at] = 0;
                }
                7 => {
                    e.drop_table(name).unwrap();
                    e.create_table(name, &def()).unwrap();
                    (model.rows[at], model.indexes[at]) = (0, old.clone());
                }
                8..=10 => model.alter(&e, &mut random, step),
                _ => {
                    drop(t);
                    disk.crash();
                    drop(e);
                    e = open(&disk, small());
                }
            }
            model.holds(&e);
        }
        disk.crash();
        drop(e);
        let e = open(&disk, small());
        model.holds(&e);
        assert_eq!(files(&disk).len(), referred(&e));
    }
}
