//! Indexes that a table gets and loses while it has rows: what they hold, who may read by them.

use crate::tests::indexes::{def, image, Row};
use crate::tests::tables::{open, options};
use crate::*;
use esker_base::counters::{bind, Counter, SessionCounters};
use esker_format::key_bytes::key_encoding;
use esker_format::{KeyPart, RowId};
use esker_io::{Disk, SimDisk};
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
pub(super) fn filled(e: &Engine, rows: u32) -> (Arc<Table>, u64) {
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

pub(super) fn alter(e: &Engine, t: &Arc<Table>, plan: &[IndexPlan]) -> Result<()> {
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
pub(super) fn is_sound(e: &Engine, wanted: &[&str], rows: u64) {
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

/// Lists are looked through just as an index is about to be its table's: it is in them afterwards.
#[test]
fn an_index_that_comes_while_lists_are_looked_through_is_listed() {
    let e = open(&SimDisk::new(1), small());
    let (t, _) = filled(&e, 100);
    let built = built(&e, &t, &[keep(0, "x"), add("new", false, &[TEXT])]).unwrap();
    let due = e.core.due.clone();
    crate::tests::hooks::at("a table is about to have other trees", move || drop((due.to_merge(), due.take_to_save())));
    e.alter_indexes(vec![built]).unwrap();
    assert!(crate::tests::hooks::all_done());
    let new = t.trees().keys[1].id;
    assert!(e.core.due.to_merge().iter().any(|(_, tree)| tree.id() == new));
    e.core.due.take_to_save();
    e.sim_flush(&t).unwrap();
    let mut s = e.session();
    insert(&mut s, &t, 1000).unwrap();
    s.commit().unwrap();
    e.core.due.take_to_save();
    crate::upkeep::flush::tree(&e.core, &t, &t.trees().keys[1]).unwrap();
    assert!(e.core.due.take_to_save().tables.contains_key(&t.id), "its flush tells nobody");
    // For the checkpoint that comes.
    t.mark_to_save();
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

/// Entries of an index that comes between are newer than all that was locked: the rows that a mark deletes are those of by then.
#[test]
fn all_rows_that_were_locked_before_an_index_came_are_deleted_with_their_entries() {
    let disk = SimDisk::new(1);
    let e = open(&disk, small());
    let (t, rows) = filled(&e, 200);
    let mut s = e.session();
    s.begin(Isolation::ReadCommitted, BeginOptions::default());
    assert_eq!(s.lock_all(&t).unwrap(), rows);
    alter(&e, &t, &[keep(0, "by_a"), add("by_text", false, &[TEXT])]).unwrap();
    s.delete_all(&t).unwrap();
    s.commit().unwrap();
    assert_eq!(t.stats().rows, 0);
    assert!(e.check(&t, &mut |_, _| true).unwrap().damages.is_empty());
    drop((t, s, e));
    let e = open(&disk.after_kill(), small());
    assert!(e.check(&e.open_table("t").unwrap(), &mut |_, _| true).unwrap().damages.is_empty());
}

#[test]
fn a_deletion_of_all_rows_marks_no_index_that_comes_meanwhile() {
    let e = open(&SimDisk::new(1), small());
    let (t, rows) = filled(&e, 200);
    let mut s = e.session();
    s.begin(Isolation::ReadCommitted, BeginOptions::default());
    let (other, table) = (e.clone(), t.clone());
    crate::tests::hooks::at("all rows are locked", move || {
        alter(&other, &table, &[keep(0, "by_a"), add("by_text", false, &[TEXT])]).unwrap();
    });
    s.delete_all(&t).unwrap();
    assert!(crate::tests::hooks::all_done());
    assert!(matches!(s.commit(), Err(Error::TableChanged(_))));
    s.rollback().unwrap();
    assert!(t
        .trees()
        .all()
        .all(|tree| crate::catalog::table::with_tree!(tree, tree => tree.snapshot().marks.is_empty())));
    is_sound(&e, &["by_a", "by_text"], rows);
}
