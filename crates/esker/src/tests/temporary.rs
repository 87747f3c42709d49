//! Temporary tables that are emptied or dropped by a transaction that has written to them.

use crate::tests::support::*;
use crate::tests::tables::run_files;
use crate::*;
use esker_io::SimDisk;

#[test]
fn a_temporary_table_emptied_within_a_transaction_takes_further_rows() {
    let disk = SimDisk::new(1);
    let e = open_with(&disk, options()).unwrap();
    let t = make(&e, "t", &TableDef { temporary: true, ..fixed(8) });
    let mut s = e.session();
    begin(&mut s);
    insert(&mut s, &t, 1).unwrap();
    e.truncate_table("t").unwrap();
    insert(&mut s, &t, 2).unwrap();
    insert(&mut s, &t, 3).unwrap();
    s.commit().unwrap();
    assert_eq!(s.count_rows(&t).unwrap(), 2);
}

/// A savepoint's place in the redo of a temporary table that was emptied since.
#[test]
fn savepoint_over_a_truncated_temporary_table() {
    let disk = SimDisk::new(1);
    let e = open_with(&disk, options()).unwrap();
    let t = make(&e, "temp", &TableDef { temporary: true, ..wide() });
    let keep = make(&e, "keep", &fixed(8));
    let mut s = e.session();
    begin(&mut s);
    insert_wide(&mut s, &t, 1, 50);
    insert(&mut s, &keep, 1).unwrap();
    let point = s.savepoint();
    e.truncate_table("temp").unwrap();
    insert_wide(&mut s, &t, 2, 1000);
    s.rollback_to(&point);
    s.commit().unwrap();
    drop((s, t, keep, e));
    disk.crash();
    match open_with(&disk, options()) {
        Ok(e) => assert_eq!(count(&e, "keep"), 1),
        Err(err) => panic!("cannot open: {err}"),
    }
}

/// A temporary table dropped by the transaction that has rows of it gathered.
#[test]
fn rows_of_a_dropped_temporary_table_leave_no_file() {
    let disk = SimDisk::new(1);
    let e = open_with(&disk, Options { bulk_threshold_bytes: 4 << 10, min_run_bytes: 8 << 10, ..roomy() }).unwrap();
    let t = make(&e, "temp", &TableDef { temporary: true, ..fixed(100) });
    let mut s = e.session();
    begin(&mut s);
    for n in 0..1000 {
        insert(&mut s, &t, n).unwrap();
    }
    assert!(!run_files(&disk).is_empty(), "no row was written to a run");
    e.drop_table("temp").unwrap();
    s.commit().unwrap();
    drop((s, t));
    assert_eq!(run_files(&disk), Vec::<String>::new());
}
