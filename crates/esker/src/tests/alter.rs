//! Indexes that a table gets and loses while it has rows: what they hold, who may read by them, what a crash leaves.

use crate::tests::indexes::{def, image, Row};
use crate::tests::tables::{open, options, rows_of};
use crate::upkeep::checkpoint;
use crate::*;
use esker_base::counters::{bind, Counter, SessionCounters};
use esker_format::key_bytes::key_encoding;
use esker_format::{KeyPart, RowId};
use esker_io::{Disk, IoKind, SimDisk};
use std::path::Path;
use std::sync::Arc;

/// Columns of the table.
pub(super) const A: u32 = 0;
pub(super) const C: u32 = 1;
pub(super) const TEXT: u32 = 2;

pub(super) fn small() -> Options {
    Options { bulk_threshold_bytes: 4 << 10, min_run_bytes: 1 << 10, block_bytes: 1 << 10, ..options() }
}

/// With so little memory for large writes that an index of a thousand rows is built of several runs.
pub(super) fn short() -> Options {
    Options { memory_limit_bytes: 64 << 10, ..small() }
}

fn index(name: &str, unique: bool, columns: &[u32]) -> IndexDef {
    let encoding = |column| if column == TEXT { key_encoding::BYTES } else { key_encoding::UNSIGNED };
    let part = |column: &u32| KeyPart {
        column: *column,
        prefix_bytes: 0,
        descending: false,
        encoding: encoding(*column),
        collation: 0,
    };
    IndexDef { name: name.into(), unique, parts: columns.iter().map(part).collect() }
}

pub(super) fn keep(index: usize, name: &str) -> IndexPlan {
    IndexPlan::Keep { index, name: name.into() }
}

pub(super) fn add(name: &str, unique: bool, columns: &[u32]) -> IndexPlan {
    IndexPlan::Add(index(name, unique, columns))
}

fn row(n: u32) -> Row {
    Row { a: n, c: (!n.is_multiple_of(3)).then_some(n * 7 % 100_000), text: format!("text {:0100}", n % 50).into() }
}

pub(super) fn insert(s: &mut Session, t: &Arc<Table>, n: u32) -> Result<RowId> {
    // SAFETY: an image of this table's layout.
    unsafe { s.insert_image(t, image(&row(n)).as_ptr()) }
}

/// Rows in runs and in memory, some of them changed or deleted since; how many are left.
fn filled(e: &Engine, rows: u32) -> (Arc<Table>, u64) {
    filled_as(e, "t", rows)
}

pub(super) fn filled_as(e: &Engine, name: &str, rows: u32) -> (Arc<Table>, u64) {
    e.create_table(name, &def()).unwrap();
    let t = e.open_table(name).unwrap();
    let mut s = e.session();
    let mut ids: Vec<_> = (0..rows / 2).map(|n| insert(&mut s, &t, n).unwrap()).collect();
    s.commit().unwrap();
    e.sim_flush(&t).unwrap();
    for n in rows / 2..rows {
        ids.push(insert(&mut s, &t, n).unwrap());
        if n % 10 == 0 {
            s.commit().unwrap();
        }
    }
    for (n, id) in ids.iter().enumerate().filter(|(n, _)| n % 5 == 0) {
        match n % 2 {
            0 => s.delete(&t, *id).unwrap(),
            // SAFETY: an image of this table's layout.
            _ => unsafe { s.update_image(&t, *id, image(&row(1_000_000 + n as u32)).as_ptr()).unwrap() },
        }
    }
    s.commit().unwrap();
    (t, u64::from(rows) - u64::from(rows).div_ceil(10))
}

fn alter(e: &Engine, t: &Arc<Table>, plan: &[IndexPlan]) -> Result<()> {
    e.alter_indexes(vec![built(e, t, plan)?])
}

pub(super) fn built(e: &Engine, t: &Arc<Table>, plan: &[IndexPlan]) -> Result<BuiltIndexes> {
    e.build_indexes(t, plan, &mut |done, total| {
        assert!(done <= total);
        true
    })
}

pub(super) fn names(t: &Table) -> Vec<String> {
    t.trees().kept_indexes().map(|(_, index)| index.entry.name.clone()).collect()
}

/// The table has these indexes and so many rows, and each index has an entry of each row.
fn is_sound(e: &Engine, wanted: &[&str], rows: u64) {
    is_sound_in(e, "t", wanted, rows);
}

pub(super) fn is_sound_in(e: &Engine, name: &str, wanted: &[&str], rows: u64) {
    let t = e.open_table(name).unwrap();
    assert_eq!(names(&t), wanted);
    let report = e.check(&t, &mut |_, _| true).unwrap();
    assert!(report.damages.is_empty(), "{:?}", report.damages);
    let mut s = e.session();
    assert_eq!(s.count_rows(&t).unwrap(), rows);
    for index in 0..wanted.len() {
        assert_eq!(ids_by(&mut s, &t, index).unwrap().len() as u64, rows, "rows by index {index}");
    }
}

/// The rows that an index leads to.
fn ids_by(s: &mut Session, t: &Arc<Table>, index: usize) -> Result<Vec<RowId>> {
    let options = ScanOptions { mask: t.all_columns(), ..ScanOptions::default() };
    let mut cursor = s.open_index_cursor(t, index, options)?;
    cursor.seek(s, KeyRange::default(), Direction::Forward)?;
    let mut ids = Vec::new();
    loop {
        let batch = cursor.next_batch(s)?;
        if batch.ids.is_empty() {
            return Ok(ids);
        }
        ids.extend_from_slice(batch.ids);
    }
}

/// Names of run files.
pub(super) fn files(disk: &SimDisk) -> Vec<String> {
    let mut names: Vec<_> = disk.list(Path::new("/db/runs")).unwrap().into_iter().map(|f| f.name).collect();
    names.sort();
    names
}

/// Files that the table's trees refer to.
pub(super) fn referred(e: &Engine) -> usize {
    let files = |t: &Arc<Table>| {
        let runs = |any| {
            crate::catalog::table::with_tree!(any, tree => {
                tree.snapshot().runs.iter().map(|h| h.run.file_id).collect::<Vec<_>>()
            })
        };
        t.trees().all().flat_map(runs).collect::<Vec<_>>()
    };
    let mut all: Vec<_> = e.core.tables().iter().flat_map(files).collect();
    all.sort();
    all.dedup();
    all.len()
}

#[test]
fn indexes_come_and_go_with_the_rows_in_place() {
    for (options, is_short) in [(small(), false), (short(), true)] {
        let disk = SimDisk::new(1);
        let e = open(&disk, options.clone());
        let (t, rows) = filled(&e, 1000);
        let (own, version) = (SessionCounters::new(), t.version());
        let bound = bind(&own);
        // The plain one goes, the others change their places.
        let plan = [add("unique", true, &[C, TEXT]), keep(2, "c"), add("plain", false, &[TEXT]), keep(0, "first")];
        alter(&e, &t, &plan).unwrap();
        assert_eq!(own.get(Counter::IndexesBuilt), 2);
        assert_eq!(own.get(Counter::LargeSpills) > 1, is_short);
        drop(bound);
        assert_ne!(t.version(), version);
        let wanted = ["unique", "c", "plain", "first"];
        is_sound(&e, &wanted, rows);
        assert_eq!(files(&disk).len(), referred(&e), "what was spilled, and what the index of before had, is gone");
        // They are kept from now on, and hold.
        let mut s = e.session();
        insert(&mut s, &t, 5000).unwrap();
        assert!(matches!(insert(&mut s, &t, 5000), Err(Error::DuplicateKey { index: 0, .. })));
        s.commit().unwrap();
        is_sound(&e, &wanted, rows + 1);
        drop(s);
        let t2 = (t.version(), drop(t)).0;
        disk.crash();
        drop(e);
        let e = open(&disk, options.clone());
        is_sound(&e, &wanted, rows + 1);
        assert_eq!(e.open_table("t").unwrap().version(), t2);
        e.checkpoint().unwrap();
        drop(e);
        let e = open(&disk, options);
        is_sound(&e, &wanted, rows + 1);
        let t = e.open_table("t").unwrap();
        alter(&e, &t, &[]).unwrap();
        assert!(!t.is_indexed());
        is_sound(&e, &[], rows + 1);
        assert_eq!(files(&disk).len(), referred(&e));
    }
}

#[test]
fn who_has_the_same_indexes_in_another_order_gets_his_order() {
    let disk = SimDisk::new(1);
    let e = open(&disk, small());
    let (t, rows) = filled(&e, 1000);
    alter(&e, &t, &[keep(0, "a"), keep(1, "text"), keep(2, "c"), add("again", true, &[A])]).unwrap();
    let [a, text, c]: [IndexDef; 3] = def().indexes.try_into().unwrap();
    let again = IndexDef { name: "again".into(), ..a.clone() };
    // Neither another number of them nor others.
    let version = t.version();
    let plain = IndexDef { unique: false, ..c.clone() };
    for others in [vec![a.clone(), c.clone()], vec![again.clone(), a.clone(), text.clone(), plain]] {
        assert!(!e.order_indexes(&t, &others).unwrap(), "{others:?}");
    }
    let own = SessionCounters::new();
    let bound = bind(&own);
    assert!(e.order_indexes(&t, &[a.clone(), text.clone(), c.clone(), again.clone()]).unwrap());
    assert_eq!((t.version(), names(&t)), (version, ["a", "text", "c", "again"].map(String::from).to_vec()));
    // Of those that are alike each keeps its name; of one whose name is not there the definition alone counts.
    let named = IndexDef { name: "named".into(), ..text.clone() };
    let order = [c, again, named, a];
    let tree_of = |name: &str| {
        let trees = t.trees();
        trees.keys[names(&t).iter().position(|n| n == name).unwrap()].id
    };
    let trees = ["a", "again", "c"].map(tree_of);
    assert!(e.order_indexes(&t, &order).unwrap());
    assert_eq!(["a", "again", "c"].map(tree_of), trees, "what is told of an index by its name is another one's");
    assert!(t.has_indexes(&order), "only the names have other places");
    assert_ne!(t.version(), version);
    assert_eq!(own.get(Counter::IndexesBuilt), 0);
    drop(bound);
    let wanted = ["c", "again", "named", "a"];
    is_sound(&e, &wanted, rows);
    let mut s = e.session();
    let free = (0..1000).find(|n| n % 5 == 0 && n % 2 == 0 && n % 3 > 0).unwrap();
    insert(&mut s, &t, free).unwrap();
    assert!(matches!(insert(&mut s, &t, free), Err(Error::DuplicateKey { index: 0, .. })));
    s.commit().unwrap();
    drop((s, t));
    disk.crash();
    drop(e);
    is_sound(&open(&disk, small()), &wanted, rows + 1);
}

/// Tables of which the order was to be changed can be read, as all others can.
#[test]
fn who_wants_another_order_when_writing_has_stopped_gets_it_until_a_restart() {
    let disk = SimDisk::new(1);
    let e = open(&disk, small());
    let (t, rows) = filled(&e, 1000);
    let order: Vec<IndexDef> = def().indexes.into_iter().rev().collect();
    e.poison("a test");
    assert!(matches!(alter(&e, &t, &[keep(1, "text")]), Err(Error::Poisoned(_))));
    let others = [order[0].clone(), order[1].clone()];
    assert!(!e.order_indexes(&t, &others).unwrap());
    assert!(e.order_indexes(&t, &order).unwrap());
    is_sound(&e, &["c", "text", "a"], rows);
    assert!(matches!(insert(&mut e.session(), &t, 5000), Err(Error::Poisoned(_))));
    drop(t);
    drop(e);
    let e = open(&disk, small());
    is_sound(&e, &["a", "text", "c"], rows);
    assert!(e.order_indexes(&e.open_table("t").unwrap(), &order).unwrap());
    drop(e);
    is_sound(&open(&disk, small()), &["c", "text", "a"], rows);
}

#[test]
fn a_duplicate_leaves_the_table_as_it_was() {
    for options in [small(), short()] {
        let disk = SimDisk::new(1);
        let e = open(&disk, options);
        let (t, rows) = filled(&e, 1000);
        let (before, version) = (files(&disk), t.version());
        let plan = [keep(0, "a"), add("plain", false, &[C]), add("unique", true, &[TEXT])];
        match alter(&e, &t, &plan) {
            Err(Error::DuplicateKey { index: 2, row }) => {
                assert!(ids_by(&mut e.session(), &t, 0).unwrap().contains(&row));
            }
            other => panic!("{other:?}"),
        }
        assert_eq!((files(&disk), t.version()), (before, version));
        is_sound(&e, &["a", "text", "c"], rows);
        // NULLs are like nothing, themselves included.
        alter(&e, &t, &[keep(0, "a"), add("nulls", true, &[C])]).unwrap();
        is_sound(&e, &["a", "nulls"], rows);
    }
}

/// Two rows of one key that lie in runs which are joined.
#[test]
fn a_duplicate_is_found_however_far_apart_its_rows_are() {
    let e = open(&SimDisk::new(1), short());
    e.create_table("t", &TableDef { indexes: vec![], ..def() }).unwrap();
    let t = e.open_table("t").unwrap();
    let mut s = e.session();
    for n in 0..20_000 {
        insert(&mut s, &t, n).unwrap();
    }
    let last = insert(&mut s, &t, 7).unwrap();
    s.commit().unwrap();
    let own = SessionCounters::new();
    let _bound = bind(&own);
    let met = alter(&e, &t, &[add("a", true, &[A])]);
    assert!(matches!(met, Err(Error::DuplicateKey { index: 0, row }) if row == last || row == RowId(8)), "{met:?}");
    assert!(own.get(Counter::LargeSpills) > 4, "they lay in one run");
    s.delete(&t, last).unwrap();
    s.commit().unwrap();
    alter(&e, &t, &[add("a", true, &[A])]).unwrap();
    is_sound(&e, &["a"], 20_000);
}

#[test]
fn building_can_be_stopped() {
    let disk = SimDisk::new(1);
    let e = open(&disk, short());
    let (t, rows) = filled(&e, 3000);
    let before = files(&disk);
    let mut asked = 0;
    e.build_indexes(&t, &[add("x", false, &[TEXT])], &mut |_, _| {
        asked += 1;
        true
    })
    .map(drop)
    .unwrap();
    assert!(asked > 4);
    for stop in 1..=asked {
        let mut left = stop;
        let built = e.build_indexes(&t, &[add("x", false, &[TEXT])], &mut |_, _| {
            left -= 1;
            left > 0
        });
        assert!(matches!(built.map(drop), Err(Error::Interrupted)), "{stop}");
    }
    assert_eq!(files(&disk), before);
    is_sound(&e, &["a", "text", "c"], rows);
}

#[test]
fn older_views_read_rows_and_older_indexes_only() {
    let e = open(&SimDisk::new(1), small());
    let (t, rows) = filled(&e, 200);
    let mut old = e.session();
    old.begin(Isolation::RepeatableRead, BeginOptions::default());
    old.take_view();
    let mut cursor = old.open_index_cursor(&t, 1, ScanOptions::default()).unwrap();
    alter(&e, &t, &[add("new", false, &[C]), keep(0, "a")]).unwrap();
    let mut s = e.session();
    insert(&mut s, &t, 9000).unwrap();
    s.commit().unwrap();
    assert!(matches!(ids_by(&mut old, &t, 0), Err(Error::TableChanged(_))));
    assert!(matches!(old.check_index(&t, 0), Err(Error::TableChanged(_))));
    assert!(matches!(cursor.seek(&mut old, KeyRange::default(), Direction::Forward), Err(Error::TableChanged(_))));
    // None may be taken for certain.
    assert!(old.estimate_rows(&t, 0, &KeyRange::default()).unwrap() > 0);
    assert_eq!(ids_by(&mut old, &t, 1).unwrap().len() as u64, rows);
    assert_eq!(old.count(&t).unwrap(), rows);
    // Whoever locks reads the newest.
    let options = ScanOptions { mask: t.all_columns(), lock: Some(LockMode::Exclusive), ..ScanOptions::default() };
    let mut cursor = old.open_index_cursor(&t, 0, options).unwrap();
    cursor.seek(&mut old, KeyRange::default(), Direction::Forward).unwrap();
    assert_eq!(cursor.next_batch(&mut old).unwrap().ids.len(), 1);
    // It writes entries of both.
    insert(&mut old, &t, 9001).unwrap();
    old.commit().unwrap();
    is_sound(&e, &["new", "a"], rows + 2);
    let mut s = e.session();
    s.begin(Isolation::RepeatableRead, BeginOptions::default());
    assert_eq!(ids_by(&mut s, &t, 0).unwrap().len() as u64, rows + 2);
}

#[test]
fn whoever_writes_meanwhile_fails_or_makes_it_fail() {
    let e = open(&SimDisk::new(1), small());
    let (t, rows) = filled(&e, 200);
    let plan = [keep(0, "a"), add("new", false, &[C])];
    let go_on = &mut |_, _| true;
    // One that began before commits between.
    let mut s = e.session();
    insert(&mut s, &t, 9000).unwrap();
    let built = e.build_indexes(&t, &plan, go_on).unwrap();
    s.commit().unwrap();
    assert!(matches!(e.alter_indexes(vec![built]), Err(Error::TableChanged(_))));
    is_sound(&e, &["a", "text", "c"], rows + 1);
    // It commits afterwards.
    insert(&mut s, &t, 9001).unwrap();
    alter(&e, &t, &plan).unwrap();
    assert!(matches!(insert(&mut s, &t, 9002), Err(Error::TableChanged(_))));
    assert!(matches!(ids_by(&mut s, &t, 0), Err(Error::TableChanged(_))));
    assert!(matches!(s.commit(), Err(Error::TableChanged(_))));
    s.rollback().unwrap();
    is_sound(&e, &["a", "new"], rows + 1);
    // One that gathers rows of a table without indexes.
    alter(&e, &t, &[]).unwrap();
    for n in 0..1000 {
        insert(&mut s, &t, 10_000 + n).unwrap();
    }
    assert!(s.current.open().unwrap().large.is_some(), "it is no large one");
    alter(&e, &t, &[add("new", false, &[C])]).unwrap();
    assert!(s.commit().is_err());
    s.rollback().unwrap();
    is_sound(&e, &["new"], rows + 1);
    // One that is prepared stays for its coordinator.
    insert(&mut s, &t, 9003).unwrap();
    s.prepare(b"x").unwrap();
    assert!(matches!(alter(&e, &t, &plan[..1]), Err(Error::LockTimeout)));
    s.commit().unwrap();
    // Two at once: one of them.
    let (first, second) =
        (e.build_indexes(&t, &[], go_on).unwrap(), e.build_indexes(&t, &[keep(0, "x")], go_on).unwrap());
    e.alter_indexes(vec![first]).unwrap();
    assert!(matches!(e.alter_indexes(vec![second]), Err(Error::TableChanged(_))));
    is_sound(&e, &[], rows + 2);
    let built = e.build_indexes(&t, &[], go_on).unwrap();
    e.drop_table("t").unwrap();
    assert!(e.alter_indexes(vec![built]).is_err());
}

#[test]
fn temporary_tables_are_refused() {
    let e = open(&SimDisk::new(1), small());
    e.create_table("t", &TableDef { temporary: true, ..def() }).unwrap();
    assert!(matches!(alter(&e, &e.open_table("t").unwrap(), &[]), Err(Error::Unsupported(_))));
}

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
    let mut cursor = s.open_cursor(&t, options).unwrap();
    e.drop_table("t").unwrap();
    assert!(matches!(by_index.next_batch(&mut s).map(|b| b.ids.len()), Err(Error::NoSuchTable(_))));
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
