//! Faults that a review found, kept from coming back. One test a fault, on the simulated disk, without threads.

use crate::tests::support::{
    begin, count, image, insert, insert_wide, make, number, open, open_with, options, wide, wide_image,
};
use crate::upkeep::{checkpoint, flush, merge};
use crate::*;
use esker_format::ColumnMask;
use esker_io::SimDisk;
use std::time::Duration;

#[test]
fn a_decision_after_a_flush_survives() {
    let disk = SimDisk::new(1);
    let e = open(&disk).unwrap();
    e.create_table("t", &wide()).unwrap();
    let t = e.open_table("t").unwrap();
    let mut s = e.session();
    begin(&mut s);
    insert_wide(&mut s, &t, 1, 5);
    s.prepare(b"x1").unwrap();
    flush::tree(&e.core, &t, &t.tree()).unwrap(); // background flush between prepare and decision
    s.commit().unwrap(); // acknowledged
    checkpoint::write(&e.core).unwrap(); // no flush of this tree in between, as in shorten_log
    assert_eq!(s.count_rows(&t).unwrap(), 1);
    s.commit().unwrap();
    drop((s, t, e));
    disk.crash();
    let e = open(&disk).unwrap();
    let t = e.open_table("t").unwrap();
    let mut s = e.session();
    assert_eq!(s.count_rows(&t).unwrap(), 1, "acknowledged row lost");
}

#[test]
fn a_prepared_rollback_is_durable_before_its_files_go() {
    let disk = SimDisk::new(1);
    let o = Options { bulk_threshold_bytes: 4 << 10, min_run_bytes: 32 << 10, ..options() };
    let e = open_with(&disk, o.clone()).unwrap();
    e.create_table("t", &wide()).unwrap();
    let t = e.open_table("t").unwrap();
    let mut s = e.session();
    begin(&mut s);
    for n in 0..200 {
        insert_wide(&mut s, &t, n, 1000);
    }
    s.prepare(b"x1").unwrap();
    let private = t.tree().snapshot().runs.iter().filter(|r| r.owner.is_some()).count();
    assert!(private > 0, "no run is the transaction's");
    e.set_flush_mode(FlushMode::Lazy); // widens the window from one sync to a second
    s.rollback().unwrap();
    disk.crash();
    drop((s, t, e));
    let e = open_with(&disk, o).unwrap();
    assert_eq!((count(&e, "t"), e.prepared().len()), (0, 0));
}

#[test]
fn a_hot_row_can_be_flushed() {
    let disk = SimDisk::new(1);
    let e = open(&disk).unwrap();
    e.create_table("t", &wide()).unwrap();
    let t = e.open_table("t").unwrap();
    let mut s = e.session();
    begin(&mut s);
    let id = insert_wide(&mut s, &t, 0, 1);
    s.commit().unwrap();
    let mut old = e.session();
    begin(&mut old);
    old.take_view();
    // More versions of one row than a block may have, which a session with an old view and a new one keeps.
    e.set_flush_mode(FlushMode::Lazy);
    let packed = {
        let mut p = Vec::new();
        unsafe { esker_format::row::pack(&t.layout, wide_image(1, 1).as_ptr(), &mut p) }.unwrap();
        p
    };
    crate::sim_hooks::quietly(|| {
        for _ in 0..70_000 {
            begin(&mut s);
            s.update_row(&t, id, &packed).unwrap();
            s.commit().unwrap();
        }
    });
    old.latest_view().unwrap();
    flush::tree(&e.core, &t, &t.tree()).unwrap();
    let rows: u64 = t.tree().snapshot().runs.iter().map(|h| h.run.stats.rows).sum();
    assert_eq!(rows, 70_001);
    assert_eq!(count(&e, "t"), 1);
}

#[test]
fn redo_is_bounded() {
    let disk = SimDisk::new(1);
    let o = Options { memory_limit_bytes: 4 << 30, ..options() };
    // What a statement gathers comes on top.
    let (bound, mut most) = (o.bulk_threshold_bytes + o.min_run_bytes + (1 << 20), 0);
    let e = open_with(&disk, o).unwrap();
    e.create_table("t", &wide()).unwrap();
    let t = e.open_table("t").unwrap();
    let mut s = e.session();
    begin(&mut s);
    for _ in 0..250 {
        for n in 0..11 {
            insert_wide(&mut s, &t, n, 60_000);
        }
        s.begin_statement();
        s.count_rows(&t).unwrap(); // any read of the table seals and starts anew
        s.end_statement();
        most = most.max(s.current.open().unwrap().redo_bytes());
    }
    assert!(most <= bound, "{most} bytes of redo, {bound} are the most");
    s.commit().unwrap();
    assert_eq!(count(&e, "t"), 250 * 11);
}

/// Rows that are gathered have none; it comes without any change once somebody reads them.
#[test]
fn redo_of_rows_that_were_gathered_is_told() {
    let e = open(&SimDisk::new(1)).unwrap();
    e.create_table("t", &wide()).unwrap();
    let t = e.open_table("t").unwrap();
    let mut s = e.session();
    begin(&mut s);
    s.begin_statement();
    for n in 0..11 {
        insert_wide(&mut s, &t, n, 60_000);
    }
    s.end_statement();
    let told = |e: &Engine| e.transactions()[0].redo_bytes;
    let before = told(&e);
    s.begin_statement();
    s.count_rows(&t).unwrap();
    s.end_statement();
    let redo = s.current.open().unwrap().redo_bytes() as u64;
    assert!(redo > before, "{redo} bytes of redo, {before} before");
    assert_eq!(told(&e), redo);
}

#[test]
fn unlocking_an_upgrade_keeps_the_shared_lock() {
    let disk = SimDisk::new(1);
    let e = open(&disk).unwrap();
    e.create_table("t", &wide()).unwrap();
    let t = e.open_table("t").unwrap();
    let mut s = e.session();
    begin(&mut s);
    let id = insert_wide(&mut s, &t, 0, 1);
    s.commit().unwrap();
    begin(&mut s);
    let lockwith = |m| ScanOptions { mask: ColumnMask::all(2), lock: Some(m), ..ScanOptions::default() };
    let mut c = s.scan(&t, lockwith(LockMode::Shared)).unwrap();
    assert_eq!(c.next_batch(&mut s).unwrap().ids.len(), 1); // matched: FOR SHARE
    s.end_statement();
    s.begin_statement();
    let mut c = s.scan(&t, lockwith(LockMode::Exclusive)).unwrap();
    assert_eq!(c.next_batch(&mut s).unwrap().ids.len(), 1); // UPDATE, does not match
    s.unlock_row(&t, id);
    let mut o = e.session();
    o.set_lock_wait(Duration::from_millis(0), true);
    begin(&mut o);
    assert!(o.delete(&t, id).is_err(), "the shared lock of the statement before is gone");
}

/// A server that reads several partitions, or joins, comes back to a row that it did not want after it has locked one of another.
#[test]
fn a_row_is_unlocked_though_one_of_another_table_was_locked_since() {
    let disk = SimDisk::new(1);
    let e = open(&disk).unwrap();
    let tables = ["a", "b"].map(|name| {
        e.create_table(name, &wide()).unwrap();
        e.open_table(name).unwrap()
    });
    let (mut s, mut o) = (e.session(), e.session());
    begin(&mut s);
    let ids = tables.each_ref().map(|t| [0, 1].map(|n| insert_wide(&mut s, t, n, 1)));
    s.commit().unwrap();
    begin(&mut s);
    s.begin_statement();
    let mask = ColumnMask::all(2);
    let locking = || ScanOptions { mask: mask.clone(), lock: Some(LockMode::Exclusive), ..ScanOptions::default() };
    let mut scans = tables.each_ref().map(|t| s.scan(t, locking()).unwrap());
    for _ in 0..2 {
        scans.iter_mut().for_each(|scan| assert_eq!(scan.next_batch(&mut s).unwrap().ids.len(), 1));
        for (t, ids) in tables.iter().zip(ids) {
            // Of each table the row that it locked last, and no other one.
            s.unlock_row(t, ids[0]);
        }
    }
    o.set_lock_wait(Duration::ZERO, true);
    begin(&mut o);
    for (t, ids) in tables.iter().zip(ids) {
        o.delete(t, ids[0]).unwrap();
        assert!(o.delete(t, ids[1]).is_err(), "what was wanted is unlocked");
    }
}

#[test]
fn an_xid_is_prepared_once() {
    let disk = SimDisk::new(1);
    let e = open(&disk).unwrap();
    e.create_table("t", &wide()).unwrap();
    let t = e.open_table("t").unwrap();
    let (mut a, mut b) = (e.session(), e.session());
    begin(&mut a);
    begin(&mut b);
    insert_wide(&mut a, &t, 1, 1);
    insert_wide(&mut b, &t, 2, 1);
    a.prepare(b"x").unwrap();
    let second = b.prepare(b"x");
    assert!(second.is_err(), "second prepare of one XID accepted");
}

#[test]
fn a_cursor_after_rollback_gives_no_rows_of_it() {
    let disk = SimDisk::new(1);
    let o = Options { bulk_threshold_bytes: 4 << 10, min_run_bytes: 32 << 10, ..options() };
    let e = open_with(&disk, o.clone()).unwrap();
    e.create_table("t", &wide()).unwrap();
    let t = e.open_table("t").unwrap();
    let mut s = e.session();
    begin(&mut s);
    for n in 0..2000 {
        insert_wide(&mut s, &t, n, 100);
    }
    s.commit().unwrap();
    begin(&mut s);
    for n in 5000..7000 {
        insert_wide(&mut s, &t, n, 100);
    }
    let mut c = s.scan(&t, ScanOptions { mask: ColumnMask::all(2), ..ScanOptions::default() }).unwrap();
    let mut rows = c.next_batch(&mut s).unwrap().ids.len();
    s.rollback().unwrap();
    loop {
        let n = c.next_batch(&mut s).unwrap().ids.len();
        if n == 0 {
            break;
        }
        rows += n;
    }
    assert_eq!(rows, 2000, "rows of a rolled back transaction given out");
}

#[test]
fn an_old_view_does_not_make_merges_go_round() {
    let disk = SimDisk::new(1);
    let e = open(&disk).unwrap();
    e.create_table("t", &wide()).unwrap();
    let t = e.open_table("t").unwrap();
    let mut s = e.session();
    begin(&mut s);
    let ids: Vec<_> = (0..1000).map(|n| insert_wide(&mut s, &t, n, 10)).collect();
    s.commit().unwrap();
    flush::tree(&e.core, &t, &t.tree()).unwrap();
    let mut old = e.session();
    begin(&mut old);
    old.take_view();
    begin(&mut s);
    for id in &ids[..400] {
        s.delete(&t, *id).unwrap();
    }
    s.commit().unwrap();
    flush::tree(&e.core, &t, &t.tree()).unwrap();
    let mut merges = 0;
    for i in 0..10 {
        while merge::once(&e.core, &t, &t.tree()).unwrap() {
            merges += 1;
        }
        begin(&mut s);
        s.delete(&t, ids[500 + i]).unwrap();
        s.commit().unwrap();
        flush::tree(&e.core, &t, &t.tree()).unwrap();
    }
    assert!(merges < 5, "{merges} rewrites of the table for 10 flushes of one row");
    // It is the view that holds them up.
    old.rollback().unwrap();
    assert!(merge::once(&e.core, &t, &t.tree()).unwrap(), "nothing is ever merged");
}

#[test]
fn rows_under_a_range_mark_are_purged() {
    let disk = SimDisk::new(1);
    let e = open(&disk).unwrap();
    e.create_table("t", &wide()).unwrap();
    let t = e.open_table("t").unwrap();
    let mut s = e.session();
    begin(&mut s);
    for n in 0..1000 {
        insert_wide(&mut s, &t, n, 10);
    }
    s.commit().unwrap();
    begin(&mut s);
    s.delete_all(&t).unwrap();
    s.commit().unwrap();
    begin(&mut s);
    for n in 0..10 {
        insert_wide(&mut s, &t, n, 10);
    }
    s.commit().unwrap();
    for _ in 0..5 {
        e.checkpoint().unwrap();
    }
    let st = t.tree().snapshot();
    let rows: u64 = st.runs.iter().map(|h| h.run.stats.rows).sum();
    assert!(rows == 10 && st.marks.is_empty(), "{rows} rows and {} marks are kept for 10 rows", st.marks.len());
}

#[test]
fn a_locking_cursor_sees_own_changes() {
    let disk = SimDisk::new(1);
    let e = open(&disk).unwrap();
    let t = make(&e, "t", &number());
    let mut s = e.session();
    begin(&mut s);
    let ids: Vec<_> = (0..100).map(|n| insert(&mut s, &t, n).unwrap()).collect();
    s.commit().unwrap();
    begin(&mut s);
    let mut c = s
        .scan(&t, ScanOptions { mask: ColumnMask::all(1), lock: Some(LockMode::Exclusive), ..ScanOptions::default() })
        .unwrap();
    let _ = c.next_batch(&mut s).unwrap().ids[0];
    unsafe { s.update_image(&t, ids[1], image(&t, 777).as_ptr()).unwrap() };
    s.delete(&t, ids[2]).unwrap();
    let b = c.next_batch(&mut s).unwrap();
    let n = unsafe { u64::from_le_bytes(std::slice::from_raw_parts(b.images.add(1), 8).try_into().unwrap()) };
    let third = c.next_batch(&mut s).unwrap().ids[0];
    assert!(n == 777 && third == ids[3], "locking cursor gave {n}, then row {third}");
}

/// No file handle is left at one operation of a flush, whichever: it is tried again, nothing is lost, writing goes on.
#[test]
fn a_flush_without_handles_is_tried_again() {
    let mut missed = 0;
    for operation in 1.. {
        let disk = SimDisk::new(1);
        let o = Options { wal_segment_bytes: 256 << 10, ..options() };
        let e = open_with(&disk, o.clone()).unwrap();
        e.create_table("t", &wide()).unwrap();
        let t = e.open_table("t").unwrap();
        let mut s = e.session();
        begin(&mut s);
        for n in 0..20 {
            insert_wide(&mut s, &t, n, 5);
        }
        s.commit().unwrap();
        let before = disk.op_count();
        disk.fail_once(before + operation, esker_io::IoKind::Resources);
        let flushed = flush::tree(&e.core, &t, &t.tree());
        if disk.op_count() < before + operation {
            break;
        }
        missed += u64::from(flushed.is_err());
        assert!(!e.core.writable.is_poisoned(), "operation {operation} of a flush: {flushed:?}");
        flush::tree(&e.core, &t, &t.tree()).unwrap();
        begin(&mut s);
        insert_wide(&mut s, &t, 20, 5);
        s.commit().unwrap();
        drop((s, t, e));
        disk.crash();
        let e = open_with(&disk, o).unwrap();
        let t = e.open_table("t").unwrap();
        assert_eq!(e.session().count_rows(&t).unwrap(), 21, "operation {operation}");
    }
    assert!(missed > 2, "no operation of the flush failed");
}
