//! No view sees two rows of one primary key: whose key its transaction has written since, as another row's, is hidden from it,
//! by every way of reading, until that is rolled back.

use crate::tests::support::{open_with, options, small};
use crate::write::index::hidden;
use crate::*;
use esker_format::{ColumnMask, RowId};
use esker_io::SimDisk;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The values of a row: id, other (unique), number.
type Values = (u64, u64, u64);

/// The key that is taken twice, and the rows of the beginning: it has neighbours.
const KEY: u64 = 15;
const ROWS: u64 = 30;

fn start(options: Options) -> (Engine, Arc<Table>, Vec<RowId>) {
    let e = open_with(&SimDisk::new(1), options).unwrap();
    let schema = Schema::new().column("id", Type::U64).column("other", Type::U64).column("number", Type::U64);
    let def = TableDef::of(&schema).unwrap();
    let def = def.unique("PRIMARY", &["id"]).unwrap().unique("other", &["other"]).unwrap();
    e.create_table("t", &def.index("number", &["number", "id"]).unwrap()).unwrap();
    let t = e.open_table("t").unwrap();
    let mut s = e.session();
    let ids = (0..ROWS).map(|n| put(&mut s, &t, first(n))).collect();
    s.commit().unwrap();
    (e, t, ids)
}

fn first(n: u64) -> Values {
    (n, n, n % 7)
}

fn put(s: &mut Session, t: &Arc<Table>, (id, other, number): Values) -> RowId {
    s.insert(t, &[id.into(), other.into(), number.into()]).unwrap()
}

fn change(s: &mut Session, t: &Arc<Table>, row: RowId, (id, other, number): Values) {
    s.update(t, row, &[id.into(), other.into(), number.into()]).unwrap();
}

fn begun(e: &Engine, isolation: Isolation) -> Session {
    let mut s = e.session();
    s.begin(isolation, BeginOptions::default());
    s.begin_statement();
    s
}

/// What all ways of reading tell, which must be the same.
#[track_caller]
fn seen(s: &mut Session, t: &Arc<Table>) -> BTreeSet<Values> {
    let values =
        |row: &read::rows::Row<'_>| (row.get("id").unwrap(), row.get("other").unwrap(), row.get("number").unwrap());
    let read = |rows: &mut read::rows::Rows<'_>| {
        let mut all = Vec::new();
        while let Some(row) = rows.next().unwrap() {
            all.push((row.id(), values(&row)));
        }
        all
    };
    let scanned = read(&mut s.rows(t).unwrap());
    let all: BTreeSet<Values> = scanned.iter().map(|(_, v)| *v).collect();
    assert_eq!(all.len(), scanned.len());
    for range in [IndexRange::all(), IndexRange::all().descending()] {
        for index in ["PRIMARY", "other", "number"] {
            let found = read(&mut s.rows_by(t, index, range).unwrap());
            assert_eq!((found.len(), found.iter().map(|(_, v)| *v).collect()), (all.len(), all.clone()), "by {index}");
        }
    }
    let (rows, every, mut image) = (all.len() as u64, t.all_columns(), vec![0; t.layout().image_bytes as usize]);
    assert_eq!((s.count(t).unwrap(), s.count_rows(t).unwrap()), (rows, rows));
    for (index, place) in [(0, 0), (1, 1)] {
        let mut entries = ColumnMask::none(3);
        entries.set(place);
        for n in [KEY - 1, KEY, KEY + 1, ROWS + 1, 2 * ROWS, 3 * ROWS - 1] {
            let key = n.to_be_bytes();
            let want = scanned.iter().find(|(_, v)| n == if index == 0 { v.0 } else { v.1 }).map(|(id, _)| *id);
            for mask in [&every, &entries] {
                assert_eq!(s.row_by_key(t, index, &key, mask, &mut image).unwrap(), want, "index {index}, key {n}");
            }
        }
    }
    let mut cursor = s.open_cursor(t, ScanOptions { mask: every, ..Default::default() }).unwrap();
    let ids: BTreeSet<RowId> = scanned.iter().map(|(id, _)| *id).collect();
    for id in (0..4 * ROWS).map(RowId) {
        assert_eq!(cursor.fetch(s, id).unwrap().is_some(), ids.contains(&id), "row {id}");
    }
    for index in 0..3 {
        let report = s.check_index(t, index).unwrap();
        assert_eq!((report.rows, report.entries, &report.wrong[..]), (rows, rows, &[][..]), "index {index}");
    }
    all
}

/// What another one does with the row of the key.
const SINCE: [&str; 6] =
    ["deleted", "moved", "replaced", "all deleted", "replaced and moved", "deleted, and its other key taken"];
/// How the key is written then, or another one of it is.
const BY: [&str; 3] = ["insert", "update of another row", "what stands there"];

/// One case: who has a view from before comes to have written the key. True if that could be.
fn case(options: Options, since: &str, by: &str, lies: &str, isolation: Isolation) -> bool {
    let what = format!("{since}, {by}, {lies}, {isolation:?}");
    let (e, t, ids) = start(options);
    if lies == "in runs" {
        e.sim_flush(&t).unwrap();
    }
    let (mut s, mut newer, row) = (begun(&e, isolation), None, ids[KEY as usize]);
    assert_eq!(seen(&mut s, &t).len() as u64, ROWS);
    let mut other = begun(&e, Isolation::ReadCommitted);
    match since {
        "moved" => change(&mut other, &t, row, (2 * ROWS, KEY, 1)),
        "all deleted" => other.delete_all(&t).unwrap(),
        _ => other.delete(&t, row).unwrap(),
    }
    if since.starts_with("replaced") {
        // By another row: within one transaction it would be the same again.
        other.commit().unwrap();
        other = begun(&e, Isolation::ReadCommitted);
        newer = Some(put(&mut other, &t, (KEY, 2 * ROWS, 2)));
    }
    if since.ends_with("taken") {
        put(&mut other, &t, (2 * ROWS, KEY, 4));
    }
    other.commit().unwrap();
    if let Some(newer) = newer.filter(|_| since.ends_with("moved")) {
        let mut third = begun(&e, Isolation::ReadCommitted);
        change(&mut third, &t, newer, (3 * ROWS - 1, 2 * ROWS, 2));
        third.commit().unwrap();
        e.sim_flush(&t).unwrap();
    }
    if lies == "in runs" {
        e.sim_flush(&t).unwrap();
    }
    let before = seen(&mut s, &t);
    assert_eq!(before, (0..ROWS).map(first).collect(), "{what}");
    if lies == "written at large" {
        (0..100).for_each(|n| _ = put(&mut s, &t, (3 * ROWS + n, 3 * ROWS + n, n)));
    }
    let (point, before) = (s.savepoint(), seen(&mut s, &t));
    hidden::take();
    let is_there = since == "replaced";
    let own = (KEY, ROWS + 1, 3);
    match by {
        "insert" if !is_there => _ = put(&mut s, &t, own),
        "update of another row" if !is_there && since != "all deleted" => {
            change(&mut s, &t, ids[KEY as usize + 1], own)
        }
        "what stands there" if is_there => change(&mut s, &t, newer.unwrap(), own),
        _ => return false,
    }
    assert_eq!(hidden::take(), 1, "{what}");
    let gone = |values: &Values| values.0 == KEY || by == "update of another row" && values.0 == KEY + 1;
    let mut wanted: BTreeSet<Values> = before.iter().copied().filter(|v| !gone(v)).chain([own]).collect();
    assert_eq!(seen(&mut s, &t), wanted, "{what}");
    // Its own end of it brings the hidden one back no more.
    let later = s.savepoint();
    let mine = s.rows_by(&t, "PRIMARY", IndexRange::equal(&[KEY.into()])).unwrap().next().unwrap().unwrap().id();
    s.delete(&t, mine).unwrap();
    wanted.remove(&own);
    assert_eq!(seen(&mut s, &t), wanted, "{what}, deleted again");
    put(&mut s, &t, own);
    wanted.insert(own);
    if since == "moved" {
        // It comes to be seen by what the transaction itself writes there.
        change(&mut s, &t, row, (2 * ROWS, KEY, 5));
        wanted.insert((2 * ROWS, KEY, 5));
    }
    assert_eq!(seen(&mut s, &t), wanted, "{what}, and again");
    s.rollback_to(&later);
    wanted.retain(|v| v.0 != 2 * ROWS);
    wanted.insert(own);
    assert_eq!(seen(&mut s, &t), wanted, "{what}, rolled back");
    s.rollback_to(&point);
    assert_eq!(seen(&mut s, &t), before, "{what}, rolled back to before");
    match by {
        "insert" => _ = put(&mut s, &t, own),
        "update of another row" => change(&mut s, &t, ids[KEY as usize + 1], own),
        _ => s.delete(&t, newer.unwrap()).unwrap(),
    }
    wanted.retain(|v| *v != own || by != "what stands there");
    assert_eq!(seen(&mut s, &t), wanted, "{what}, once more");
    assert_eq!(hidden::take(), 1, "{what}, once more");
    s.commit().unwrap();
    let newest = seen(&mut begun(&e, isolation), &t);
    assert_eq!(newest.iter().filter(|v| v.0 == KEY).count(), usize::from(by != "what stands there"), "{what}");
    assert_eq!(newest.contains(&(2 * ROWS, KEY, 1)), since == "moved", "{what}");
    true
}

#[test]
fn no_view_sees_two_rows_of_one_primary_key() {
    let mut cases = 0;
    for (since, by) in SINCE.into_iter().flat_map(|since| BY.map(|by| (since, by))) {
        for lies in ["in memory", "in runs", "written at large"] {
            for isolation in [Isolation::RepeatableRead, Isolation::ReadCommitted] {
                let large = Options { bulk_threshold_bytes: 4 << 10, min_run_bytes: 1 << 10, ..small() };
                let options = if lies == "written at large" { large } else { options() };
                cases += u64::from(case(options, since, by, lies, isolation));
            }
        }
    }
    assert_eq!(cases, 6 * (5 + 4 + 1));
}

/// What the next statement's view sees at READ COMMITTED is hidden no more.
#[test]
fn a_newer_view_sees_what_an_older_one_did_not() {
    let (e, t, ids) = start(options());
    let mut s = begun(&e, Isolation::ReadCommitted);
    seen(&mut s, &t);
    let mut other = begun(&e, Isolation::ReadCommitted);
    change(&mut other, &t, ids[KEY as usize], (2 * ROWS, KEY, 1));
    other.commit().unwrap();
    hidden::take();
    put(&mut s, &t, (KEY, ROWS + 1, 3));
    assert_eq!((hidden::take(), seen(&mut s, &t).len() as u64), (1, ROWS));
    s.end_statement();
    s.begin_statement();
    assert_eq!(seen(&mut s, &t).len() as u64, ROWS + 1);
}

/// A key that is not the primary one hides nobody: two rows of a view may have it, as in InnoDB.
#[test]
fn other_unique_keys_hide_nothing() {
    let (e, t, ids) = start(options());
    let mut s = begun(&e, Isolation::RepeatableRead);
    seen(&mut s, &t);
    let mut other = begun(&e, Isolation::ReadCommitted);
    other.delete(&t, ids[KEY as usize]).unwrap();
    other.commit().unwrap();
    hidden::take();
    put(&mut s, &t, (2 * ROWS, KEY, 3));
    assert_eq!((hidden::take(), s.count(&t).unwrap(), s.count_rows(&t).unwrap()), (0, ROWS + 1, ROWS + 1));
}

/// A row that comes back to the key that the view has it by is no other one.
#[test]
fn a_row_that_gets_its_key_back_hides_nobody() {
    let (e, t, ids) = start(options());
    let mut s = begun(&e, Isolation::RepeatableRead);
    let mut wanted = seen(&mut s, &t);
    let mut other = begun(&e, Isolation::ReadCommitted);
    change(&mut other, &t, ids[KEY as usize], (2 * ROWS, KEY, 1));
    other.commit().unwrap();
    hidden::take();
    change(&mut s, &t, ids[KEY as usize], (KEY, KEY, 6));
    wanted.remove(&first(KEY));
    wanted.insert((KEY, KEY, 6));
    assert_eq!((hidden::take(), seen(&mut s, &t)), (0, wanted));
}
