//! Temporary tables that are emptied or dropped by a transaction that has written to them.

use crate::tests::support::*;
use crate::tests::tables::run_files;
use crate::upkeep::checkpoint;
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

/// The same of one that was emptied, whose rows become a run only then, with another table's.
#[test]
fn rows_of_an_emptied_temporary_table_leave_no_file() {
    let disk = SimDisk::new(1);
    let e = open_with(&disk, Options { bulk_threshold_bytes: 4 << 10, min_run_bytes: 256 << 10, ..roomy() }).unwrap();
    let t = make(&e, "temp", &TableDef { temporary: true, ..fixed(100) });
    let keep = make(&e, "keep", &fixed(100));
    let mut s = e.session();
    begin(&mut s);
    fill(&mut s, &t, 0..2000);
    e.truncate_table("temp").unwrap();
    assert_eq!(run_files(&disk), Vec::<String>::new());
    fill(&mut s, &keep, 0..1000);
    s.current.open_mut().unwrap().seal_gathered(&e.core, false).unwrap();
    assert!(!run_files(&disk).is_empty(), "no row was written to a run");
    insert(&mut s, &t, 1).unwrap();
    s.commit().unwrap();
    assert_eq!(s.count_rows(&t).unwrap(), 1);
    e.drop_table("keep").unwrap();
    drop((s, t, keep));
    assert_eq!(run_files(&disk), Vec::<String>::new());
}

/// Nothing is logged where temporary tables go with the process: the replay after the next crash meets them again, and their names are
/// others' by then.
#[test]
fn the_name_of_a_temporary_table_that_went_with_its_process_is_free() {
    let (disk, o) = (SimDisk::new(1), Options { bulk_threshold_bytes: 4 << 10, min_run_bytes: 8 << 10, ..roomy() });
    let e = open_with(&disk, o.clone()).unwrap();
    let temp = make(&e, "t", &TableDef { temporary: true, ..fixed(100) });
    let mut s = e.session();
    begin(&mut s);
    fill(&mut s, &temp, 0..1000);
    s.commit().unwrap();
    assert!(!run_files(&disk).is_empty(), "no row was written to a run");
    drop((s, temp, e));
    disk.crash();
    let e = open_with(&disk, o.clone()).unwrap();
    assert_eq!((e.tables().len(), run_files(&disk)), (0, Vec::new()));
    let t = make(&e, "t", &fixed(8));
    let mut s = e.session();
    begin(&mut s);
    fill(&mut s, &t, 0..10);
    s.commit().unwrap();
    drop((s, t, e));
    for checkpoints in [false, true, false] {
        disk.crash();
        let e = open_with(&disk, o.clone()).unwrap();
        assert_eq!((count(&e, "t"), e.tables().len()), (10, 1));
        if checkpoints {
            checkpoint::write(&e.core).unwrap();
        }
    }
}

/// A connection goes after it has prepared: its temporary table goes with it, whatever becomes of what is prepared. So does another table
/// for who says that it cannot stay.
#[test]
fn a_table_of_what_is_prepared_goes_at_once() {
    [true, false].iter().for_each(|temporary| goes_at_once(*temporary));
}

fn goes_at_once(temporary: bool) {
    #[derive(Clone, Copy, PartialEq, Debug)]
    enum End {
        Commit,
        Rollback,
        CommitAfterRestart,
    }
    for (end, checkpoints) in
        [End::Commit, End::Rollback, End::CommitAfterRestart].map(|e| [(e, false), (e, true)]).concat()
    {
        let disk = SimDisk::new(1);
        let o = Options { bulk_threshold_bytes: 4 << 10, min_run_bytes: 8 << 10, ..roomy() };
        let mut e = open_with(&disk, o.clone()).unwrap();
        let temp = make(&e, "temp", &TableDef { temporary, ..fixed(100) });
        let keep = make(&e, "keep", &fixed(100));
        let mut s = e.session();
        begin(&mut s);
        fill(&mut s, &temp, 0..1000);
        fill(&mut s, &keep, 0..10);
        s.prepare(b"x").unwrap();
        assert!(!run_files(&disk).is_empty(), "no row was written to a run");
        s.detach_prepared();
        if checkpoints {
            checkpoint::write(&e.core).unwrap();
        }
        if temporary {
            e.drop_table("temp").unwrap();
        } else {
            assert!(matches!(e.drop_table("temp"), Err(Error::LockTimeout)));
            e.drop_table_of_prepared("temp").unwrap();
        }
        drop((s, temp));
        if checkpoints {
            checkpoint::write(&e.core).unwrap();
        }
        if end == End::CommitAfterRestart {
            drop((keep, e));
            disk.crash();
            e = open_with(&disk, o.clone()).unwrap();
        }
        match end {
            End::Rollback => assert!(e.rollback_xid(b"x").unwrap()),
            _ => assert!(e.commit_xid(b"x").unwrap()),
        }
        let kept = if end == End::Rollback { 0 } else { 10 };
        let at = format!("{end:?}, {checkpoints}, temporary: {temporary}");
        assert_eq!((count(&e, "keep"), e.tables().len(), run_files(&disk)), (kept, 1, Vec::<String>::new()), "{at}");
        drop(e);
        disk.crash();
        let e = open_with(&disk, o).unwrap();
        assert_eq!((count(&e, "keep"), e.tables().len()), (kept, 1), "{at}");
    }
}
