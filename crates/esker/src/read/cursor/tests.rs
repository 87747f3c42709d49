use super::*;
use crate::tests::hooks;
use crate::tests::support::{
    begun, engine, fill_and_commit, insert_seven, locking, number, open_with, options, packed,
};
use crate::Engine;

/// What a locking scan gives.
fn locked(session: &mut Session, table: &Arc<Table>, options: ScanOptions) -> Result<Vec<u64>> {
    let cursor = session.scan(table, options)?;
    rows_of(cursor, session)
}

fn rows_of(mut cursor: Cursor, session: &mut Session) -> Result<Vec<u64>> {
    let mut rows = Vec::new();
    loop {
        match cursor.next_batch(session)?.ids {
            [] => return Ok(rows),
            ids => rows.extend(ids.iter().map(|id| id.0)),
        }
    }
}

#[test]
fn a_scan_begins_behind_a_row_there_or_not() {
    let (engine, table) = engine();
    fill_and_commit(&engine, &table, 5);
    let mut s = begun(&engine, false);
    s.delete(&table, RowId(3)).unwrap();
    for options in [ScanOptions { mask: table.all_columns(), ..ScanOptions::default() }, locking()] {
        let mut behind = |row| {
            let cursor = s.scan_behind(&table, RowId(row), options.clone()).unwrap();
            rows_of(cursor, &mut s).unwrap()
        };
        assert_eq!(behind(0), [1, 2, 4, 5]);
        assert_eq!(behind(2), [4, 5]);
        assert_eq!(behind(3), [4, 5], "behind one that is gone");
        assert_eq!(behind(5), [0u64; 0]);
        assert_eq!(behind(u64::MAX), [0u64; 0]);
    }
}

/// Who cannot lock a row comes to it again: no other is given, as if there were none between.
#[test]
fn a_scan_comes_again_to_a_row_that_it_could_not_lock() {
    let (engine, table) = engine();
    fill_and_commit(&engine, &table, 3);
    let mut other = begun(&engine, false);
    other.update_row(&table, RowId(2), &packed(&table, 9)).unwrap();
    let mut s = begun(&engine, false);
    s.set_lock_wait(std::time::Duration::ZERO, true);
    let mut cursor = s.scan(&table, locking()).unwrap();
    assert_eq!(cursor.next_batch(&mut s).unwrap().ids, [RowId(1)]);
    for _ in 0..2 {
        let answer = cursor.next_batch(&mut s).map(|batch| batch.ids.to_vec());
        assert!(matches!(answer, Err(Error::WouldBlock)), "{answer:?}");
    }
    let mut inserter = begun(&engine, false);
    assert_eq!(insert_seven(&mut inserter, &table), RowId(4));
    let mut behind = s.scan_behind(&table, RowId(2), locking()).unwrap();
    other.rollback().unwrap();
    assert_eq!(rows_up_to_an_error(&mut cursor, &mut s), [2, 3]);
    assert_eq!(rows_up_to_an_error(&mut behind, &mut s), [3]);
    for _ in 0..2 {
        assert!(matches!(behind.next_batch(&mut s), Err(Error::WouldBlock)), "a row is being inserted");
    }
    inserter.commit().unwrap();
    assert_eq!(rows_of(behind, &mut s).unwrap(), [4]);
}

fn rows_up_to_an_error(cursor: &mut Cursor, session: &mut Session) -> Vec<u64> {
    let mut rows = Vec::new();
    while let Ok(batch) = cursor.next_batch(session) {
        match batch.ids {
            [] => break,
            ids => rows.extend(ids.iter().map(|id| id.0)),
        }
    }
    rows
}

/// Behind a block that could not be read no row is given, though the next block can be.
#[test]
fn a_scan_that_could_not_read_gives_its_error_again() {
    let disk = esker_io::SimDisk::new(1);
    let small = || crate::Options { block_bytes: 1 << 10, ..options() };
    {
        let e = open_with(&disk, small()).unwrap();
        e.create_table("t", &number()).unwrap();
        fill_and_commit(&e, &e.open_table("t").unwrap(), 3000);
        e.checkpoint().unwrap();
        e.close().unwrap();
    }
    let plain = || ScanOptions { mask: ColumnMask::all(1), ..ScanOptions::default() };
    for options in [plain(), locking()] {
        let e = open_with(&disk, small()).unwrap();
        let table = e.open_table("t").unwrap();
        let mut s = begun(&e, false);
        let mut cursor = s.scan(&table, options).unwrap();
        assert!(!cursor.next_batch(&mut s).unwrap().ids.is_empty());
        disk.fail_read_once(disk.read_count() + 2, esker_io::IoKind::Failed);
        let mut given = 0;
        let first = loop {
            match cursor.next_batch(&mut s) {
                Ok(batch) if batch.ids.is_empty() => panic!("nothing failed"),
                Ok(batch) => given += batch.ids.len(),
                Err(e) => break e,
            }
        };
        assert!(given < 2900, "{given}");
        let again = cursor.next_batch(&mut s).map(|batch| batch.ids.len());
        assert!(matches!(&again, Err(e) if e.to_string() == first.to_string()), "{first}, then {again:?}");
        disk.clear_plans();
        drop((cursor, s, table));
        e.close().unwrap();
    }
}

/// What the own transaction has taken back while a row was waited for is not there, though it was read ahead.
#[test]
fn rows_that_were_read_ahead_and_taken_back_are_not_given() {
    let (engine, table) = engine();
    fill_and_commit(&engine, &table, 2);
    let mut other = begun(&engine, false);
    other.update_row(&table, RowId(2), &packed(&table, 9)).unwrap();
    let mut s = begun(&engine, false);
    s.set_lock_wait(std::time::Duration::ZERO, true);
    insert_seven(&mut s, &table);
    let mut cursor = s.scan(&table, locking()).unwrap();
    assert_eq!(rows_up_to_an_error(&mut cursor, &mut s), [1]);
    s.rollback_statement();
    other.rollback().unwrap();
    assert_eq!(rows_of(cursor, &mut s).unwrap(), [2]);
}

/// A transaction under snapshot isolation that has seen rows 1 to 5; then somebody else commits `change`.
fn after(change: impl Fn(&mut Session, &Arc<Table>)) -> (Engine, Arc<Table>, Session) {
    let (engine, table) = engine();
    assert_eq!(fill_and_commit(&engine, &table, 5), RowId(1));
    let mut s = begun(&engine, true);
    assert_eq!(s.count_rows(&table).unwrap(), 5);
    s.end_statement();
    let mut other = begun(&engine, false);
    change(&mut other, &table);
    other.commit().unwrap();
    s.begin_statement();
    (engine, table, s)
}

/// All ways to meet the newest version of a row of the own view.
fn all_see_the_change(row: u64, change: impl Fn(&mut Session, &Arc<Table>)) {
    let refused = |what: &str, by: &dyn Fn(&mut Session, &Arc<Table>) -> Result<()>| {
        for flushed in [false, true] {
            let (engine, table, mut s) = after(&change);
            if flushed {
                engine.checkpoint().unwrap();
            }
            let answer = by(&mut s, &table);
            assert!(matches!(answer, Err(Error::RecordChanged)), "{what}, flushed {flushed}: {answer:?}");
        }
    };
    refused("scan", &|s, t| locked(s, t, locking()).map(drop));
    refused("skipping scan", &|s, t| locked(s, t, ScanOptions { skip_locked: true, ..locking() }).map(drop));
    refused("semi-consistent scan", &|s, t| locked(s, t, ScanOptions { semi_consistent: true, ..locking() }).map(drop));
    refused("fetch", &|s, t| s.open_cursor(t, locking())?.fetch(s, RowId(row)).map(drop));
    refused("update", &|s, t| s.update_row(t, RowId(row), &packed(t, 8)));
    refused("delete", &|s, t| s.delete(t, RowId(row)));
    refused("lock_all", &|s, t| s.lock_all(t).map(drop));
}

#[test]
fn a_row_of_the_view_that_is_gone_has_changed() {
    all_see_the_change(3, |s, t| s.delete(t, RowId(3)).unwrap());
    all_see_the_change(5, |s, t| s.delete(t, RowId(5)).unwrap());
}

#[test]
fn rows_of_the_view_under_a_range_mark_have_changed() {
    all_see_the_change(1, |s, t| s.delete_all(t).unwrap());
    all_see_the_change(5, |s, t| {
        s.delete_all(t).unwrap();
        insert_seven(s, t);
    });
}

#[test]
fn an_updated_row_of_the_view_has_changed() {
    all_see_the_change(2, |s, t| s.update_row(t, RowId(2), &packed(t, 9)).unwrap());
}

#[test]
fn own_deletes_and_what_the_view_never_saw_are_no_change() {
    let (_engine, table, mut s) = after(|s, t| {
        let row = insert_seven(s, t);
        s.delete(t, row).unwrap();
    });
    s.delete(&table, RowId(2)).unwrap();
    assert_eq!(locked(&mut s, &table, locking()).unwrap(), [1, 3, 4, 5]);
    assert_eq!(s.lock_all(&table).unwrap(), 4);
    s.delete_all(&table).unwrap();
    assert_eq!(locked(&mut s, &table, locking()).unwrap(), [] as [u64; 0]);
}

/// Without snapshot isolation, or without an earlier view, the latest counts.
#[test]
fn the_latest_counts_otherwise() {
    let (engine, table) = engine();
    fill_and_commit(&engine, &table, 5);
    let (mut plain, mut unread) = (begun(&engine, false), begun(&engine, true));
    assert_eq!(plain.count_rows(&table).unwrap(), 5);
    let mut other = begun(&engine, false);
    other.delete(&table, RowId(3)).unwrap();
    other.commit().unwrap();
    assert_eq!(locked(&mut plain, &table, locking()).unwrap(), [1, 2, 4, 5]);
    plain.rollback().unwrap();
    assert_eq!(locked(&mut unread, &table, locking()).unwrap(), [1, 2, 4, 5]);
    assert_eq!(unread.lock_all(&table).unwrap(), 4);
}

/// A session that was killed before, or after a number of looks, ends at that look.
fn killed_at(looks: u64, table: &Arc<Table>, s: &mut Session, by: impl Fn(&mut Session, &Arc<Table>) -> Result<u64>) {
    s.parker.kill_after(looks);
    let answer = by(s, table);
    assert!(matches!(answer, Err(Error::Interrupted)), "{answer:?}");
    assert_eq!(s.parker.looks(), looks, "it went on after it was told");
    s.clear_kill();
}

#[test]
fn a_kill_reaches_whoever_reads_many_rows() {
    let (engine, table) = engine();
    fill_and_commit(&engine, &table, 3000);
    for flushed in [false, true] {
        let mut s = begun(&engine, false);
        // A run is counted a block at a time: one look, one block.
        for looks in if flushed { 0..1 } else { 0..3 } {
            killed_at(looks, &table, &mut s, |s, t| s.count_rows(t));
        }
        killed_at(0, &table, &mut s, |s, t| s.lock_all(t));
        killed_at(0, &table, &mut s, |s, t| Ok(locked(s, t, locking())?.len() as u64));
        killed_at(0, &table, &mut s, |s, t| Ok(s.scan(t, ScanOptions::default())?.next_batch(s)?.ids.len() as u64));
        assert_eq!(s.count_rows(&table).unwrap(), 3000);
        drop(s);
        engine.checkpoint().unwrap();
    }
}

/// Rows that give nothing out are passed over one by one: a look for each.
#[test]
fn a_kill_reaches_whoever_passes_over_rows() {
    let (engine, table) = engine();
    fill_and_commit(&engine, &table, 3000);
    let mut holder = begun(&engine, false);
    assert_eq!(locked(&mut holder, &table, locking()).unwrap().len(), 3000);
    let mut s = begun(&engine, false);
    let skipping = ScanOptions { skip_locked: true, ..locking() };
    assert_eq!(locked(&mut s, &table, skipping.clone()).unwrap(), [] as [u64; 0]);
    killed_at(2500, &table, &mut s, |s, t| Ok(locked(s, t, skipping.clone())?.len() as u64));
    s.rollback().unwrap();
    for row in 1..=3000 {
        holder.delete(&table, RowId(row)).unwrap();
    }
    holder.commit().unwrap();
    assert_eq!(s.count_rows(&table).unwrap(), 0);
    killed_at(2500, &table, &mut s, |s, t| s.count_rows(t));
    killed_at(2500, &table, &mut s, |s, t| Ok(s.scan(t, ScanOptions::default())?.next_batch(s)?.ids.len() as u64));
}

/// A locking scan of rows 1 to 5 by which `change` comes after the first row: which of them it gives, how many others, and
/// how often it read what came.
fn overtaken(
    options: &ScanOptions,
    before: usize,
    change: impl FnOnce(&mut Session, &Arc<Table>),
) -> (Vec<u64>, usize, usize) {
    let (engine, table) = engine();
    fill_and_commit(&engine, &table, 5);
    let (mut s, mut other) = (begun(&engine, false), begun(&engine, false));
    for _ in 0..before {
        insert_seven(&mut other, &table);
    }
    came::take();
    let mut cursor = s.scan(&table, options.clone()).unwrap();
    let mut rows = vec![cursor.next_batch(&mut s).unwrap().ids[0].0];
    change(&mut other, &table);
    if other.in_transaction() {
        other.commit().unwrap();
    }
    while let [row] = cursor.next_batch(&mut s).unwrap().ids {
        rows.push(row.0);
        if row.0 > 5 {
            s.update_row(&table, RowId(rows[rows.len() - 1]), &packed(&table, 1)).unwrap();
        }
    }
    let others = rows.iter().filter(|row| **row > 5).count();
    rows.truncate(rows.len() - others);
    (rows, others, came::take())
}

#[test]
fn a_locking_scan_meets_rows_that_came_in_place_of_others() {
    let semi = ScanOptions { semi_consistent: true, ..locking() };
    for options in [locking(), semi.clone()] {
        let by = |change: fn(&mut Session, &Arc<Table>)| overtaken(&options, 0, change);
        let replaced = by(|s, t| {
            s.delete(t, RowId(3)).unwrap();
            insert_seven(s, t);
        });
        assert_eq!(replaced, (vec![1, 2, 4, 5], 1, 1));
        let changed = by(|s, t| {
            s.update_row(t, RowId(3), &packed(t, 9)).unwrap();
            insert_seven(s, t);
            insert_seven(s, t);
        });
        assert_eq!(changed, (vec![1, 2, 3, 4, 5], 2, 1));
        // It met nothing that they had changed: they came after it.
        let inserted = by(|s, t| assert!(insert_seven(s, t) > RowId(5)));
        assert_eq!(inserted, (vec![1, 2, 3, 4, 5], 0, 0));
        // Nothing came.
        assert_eq!(by(|s, t| s.delete(t, RowId(3)).unwrap()), (vec![1, 2, 4, 5], 0, 0));
        let undone = by(|s, t| {
            s.delete(t, RowId(3)).unwrap();
            insert_seven(s, t);
            s.rollback().unwrap();
        });
        assert_eq!(undone, (vec![1, 2, 3, 4, 5], 0, 0));
    }
    // What was not committed when it began, and was passed over.
    let passed = overtaken(&semi, 2, |s, t| {
        s.delete(t, RowId(3)).unwrap();
        insert_seven(s, t);
    });
    assert_eq!(passed, (vec![1, 2, 4, 5], 3, 1));
    let skipping = ScanOptions { skip_locked: true, ..locking() };
    let skipped = overtaken(&skipping, 0, |s, t| {
        s.delete(t, RowId(3)).unwrap();
        insert_seven(s, t);
    });
    assert_eq!(skipped, (vec![1, 2, 4, 5], 0, 0));
}

#[test]
fn a_locking_scan_meets_no_row_twice() {
    let (engine, table) = engine();
    fill_and_commit(&engine, &table, 5);
    let (mut s, mut other, mut third) = (begun(&engine, false), begun(&engine, false), begun(&engine, false));
    let passed = insert_seven(&mut other, &table).0;
    let met = insert_seven(&mut third, &table).0;
    third.commit().unwrap();
    came::take();
    let mut cursor = s.scan(&table, ScanOptions { semi_consistent: true, ..locking() }).unwrap();
    let mut rows = Vec::new();
    while let [row] = *cursor.next_batch(&mut s).unwrap().ids {
        rows.push(row.0);
        s.update_row(&table, row, &packed(&table, 1)).unwrap();
        if rows.len() == 2 {
            other.delete(&table, RowId(3)).unwrap();
            other.commit().unwrap();
        }
    }
    assert_eq!((rows, came::take()), (vec![1, 2, 4, 5, met, passed], 1));
}

#[test]
fn a_semi_consistent_scan_meets_rows_that_came_in_place_of_locked_ones() {
    let (engine, table) = engine();
    fill_and_commit(&engine, &table, 3);
    let (mut s, mut other) = (begun(&engine, false), begun(&engine, false));
    other.delete(&table, RowId(2)).unwrap();
    came::take();
    let mut cursor = s.scan(&table, ScanOptions { semi_consistent: true, ..locking() }).unwrap();
    let mut rows = Vec::new();
    while let [row] = *cursor.next_batch(&mut s).unwrap().ids {
        rows.push(row);
        if cursor.was_semi_consistent() {
            let new = insert_seven(&mut other, &table);
            assert_eq!(row, RowId(2));
            other.commit().unwrap();
            // As the server asks for it again: by another cursor.
            assert!(s.open_cursor(&table, locking()).unwrap().fetch(&mut s, row).unwrap().is_none());
            rows.push(new);
        }
    }
    let new = rows.remove(2);
    assert_eq!((rows, came::take()), (vec![RowId(1), RowId(2), RowId(3), new], 1));
}

#[test]
fn all_rows_that_are_locked_are_deleted_and_no_other() {
    for comes_late in [false, true] {
        let (engine, table) = engine();
        fill_and_commit(&engine, &table, 5);
        let mut s = begun(&engine, false);
        let insert = || {
            let mut other = begun(&engine, false);
            insert_seven(&mut other, &table);
            other.commit().unwrap();
        };
        // SAFETY: the act is done before what it borrows goes: the scope below sees to it.
        let act: Box<dyn FnOnce() + '_> = Box::new(insert);
        let act = unsafe { std::mem::transmute::<Box<dyn FnOnce() + '_>, Box<dyn FnOnce() + 'static>>(act) };
        hooks::at("all rows are locked", act);
        assert_eq!(s.lock_all(&table).unwrap(), 6, "one came while the others were locked");
        assert!(hooks::all_done());
        if comes_late {
            insert();
        }
        s.delete_all(&table).unwrap();
        let left = u64::from(comes_late);
        assert_eq!((s.count_rows(&table).unwrap(), s.count(&table).unwrap()), (left, left), "came late {comes_late}");
        insert_seven(&mut s, &table);
        // What was written since is deleted too.
        s.lock_all(&table).unwrap();
        insert_seven(&mut s, &table);
        s.delete_all(&table).unwrap();
        assert_eq!((s.count_rows(&table).unwrap(), s.count(&table).unwrap()), (0, 0));
        s.commit().unwrap();
        assert_eq!(crate::tests::tables::rows_of(&engine, &table), 0);
    }
}

#[test]
fn what_one_transaction_has_locked_the_next_one_has_not() {
    let (engine, table) = engine();
    fill_and_commit(&engine, &table, 5);
    let mut s = begun(&engine, false);
    assert_eq!(s.lock_all(&table).unwrap(), 5);
    s.rollback().unwrap();
    fill_and_commit(&engine, &table, 1);
    s.begin(crate::Isolation::ReadCommitted, crate::BeginOptions::default());
    s.delete_all(&table).unwrap();
    assert_eq!((s.count_rows(&table).unwrap(), s.count(&table).unwrap()), (0, 0));
}

/// A session keeps its cursors' buffer: nothing of one cursor's rows is in the next one's.
#[test]
fn columns_that_are_not_read_are_zero_whoever_read_before() {
    let (engine, table) = engine();
    fill_and_commit(&engine, &table, 5);
    let mut s = begun(&engine, false);
    let mut images = |mask: ColumnMask| {
        let mut cursor = s.scan(&table, ScanOptions { mask, ..ScanOptions::default() }).unwrap();
        let batch = cursor.next_batch(&mut s).unwrap();
        // SAFETY: the batch's images.
        unsafe { std::slice::from_raw_parts(batch.images, batch.ids.len() * batch.stride) }.to_vec()
    };
    let columns = table.layout.columns.len();
    assert!(images(ColumnMask::all(columns)).iter().any(|byte| *byte != 0));
    assert!(images(ColumnMask::none(columns)).iter().all(|byte| *byte == 0));
}
