//! AUTO_INCREMENT values: none comes twice, whatever happened to the process.

use crate::tests::formats::{kill, open};
use crate::tests::support::{begin, insert, make, number};
use crate::{Engine, Table};
use esker_io::SimDisk;
use std::sync::Arc;

fn next(e: &Engine) -> u64 {
    e.open_table("t").unwrap().next_auto_increment()
}

fn take(e: &Engine, t: &Arc<Table>, values: u64, commit: bool) -> u64 {
    let mut s = e.session();
    begin(&mut s);
    let first = s.take_auto_increment(t, 1, 1, values).unwrap().unwrap();
    insert(&mut s, t, first).unwrap();
    match commit {
        true => s.commit().unwrap(),
        false => s.rollback().unwrap(),
    }
    first
}

#[test]
fn committed_values_do_not_come_again() {
    let mut disk = SimDisk::new(1);
    let mut e = open(&disk).unwrap();
    let t = make(&e, "t", &number());
    assert_eq!([take(&e, &t, 3, true), take(&e, &t, 2, true), take(&e, &t, 1, false)], [1, 4, 6]);
    assert_eq!(next(&e), 7);
    // What was rolled back was in no log.
    (disk, e) = reopened(e, &disk);
    assert_eq!(next(&e), 6);
    // By the manifest.
    let t = e.open_table("t").unwrap();
    assert_eq!(take(&e, &t, 10, true), 6);
    drop(t);
    e.checkpoint().unwrap();
    (disk, e) = reopened(e, &disk);
    assert_eq!(next(&e), 16);
    // Values that rows bring with them.
    let t = e.open_table("t").unwrap();
    let mut s = e.session();
    begin(&mut s);
    s.auto_increment_used(&t, 100).unwrap();
    s.auto_increment_used(&t, 50).unwrap();
    insert(&mut s, &t, 100).unwrap();
    s.commit().unwrap();
    drop((s, t));
    (disk, e) = reopened(e, &disk);
    assert_eq!(next(&e), 101);
    // Prepared, and decided after a crash.
    let t = e.open_table("t").unwrap();
    let mut s = e.session();
    begin(&mut s);
    assert_eq!(s.take_auto_increment(&t, 5, 10, 2).unwrap(), Some(105));
    insert(&mut s, &t, 105).unwrap();
    s.prepare(b"x").unwrap();
    s.detach_prepared();
    drop((s, t));
    (disk, e) = reopened(e, &disk);
    assert_eq!(next(&e), 125);
    assert!(e.commit_xid(b"x").unwrap());
    e.truncate_table("t").unwrap();
    assert_eq!(next(&e), 1);
    (_, e) = reopened(e, &disk);
    assert_eq!(next(&e), 1);
}

/// A table that counts from somewhere does so from the first, wherever the power is cut.
#[test]
fn a_table_and_where_it_counts_from_are_one() {
    let whole = SimDisk::new(1);
    drop(open(&whole).unwrap());
    whole.crash();
    let (mut there, mut missing) = (0, 0);
    for at in 1.. {
        let disk = whole.snapshot();
        let e = open(&disk).unwrap();
        disk.power_cut_at(disk.op_count() + at);
        let created = e.create_counting_table("t", &number(), 1000).is_ok();
        let done = !disk.is_power_cut();
        assert!(!created || next(&e) == 1000);
        drop(e);
        let after = if done { disk.after_kill() } else { disk.after_power_cut(at) };
        let e = open(&after).unwrap();
        match e.open_table("t") {
            Ok(table) => {
                there += 1;
                assert_eq!(table.next_auto_increment(), 1000, "after step {at}");
            }
            Err(_) => {
                missing += 1;
                assert!(!created, "after step {at}");
            }
        }
        if done {
            break;
        }
    }
    assert!(there > 0 && missing > 0, "{there} times there, {missing} times not");
}

fn reopened(e: Engine, disk: &SimDisk) -> (SimDisk, Engine) {
    let left = kill(e, disk);
    let e = open(&left).unwrap();
    (left, e)
}
