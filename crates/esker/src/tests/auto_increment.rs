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
    // Values that rows bring with them, and one that a statement begins at.
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
    e.begin_auto_increment(&e.open_table("t").unwrap(), 1000).unwrap();
    (disk, e) = reopened(e, &disk);
    assert_eq!(next(&e), 1000);
    // Prepared, and decided after a crash.
    let t = e.open_table("t").unwrap();
    let mut s = e.session();
    begin(&mut s);
    assert_eq!(s.take_auto_increment(&t, 5, 10, 2).unwrap(), Some(1005));
    insert(&mut s, &t, 1005).unwrap();
    s.prepare(b"x").unwrap();
    s.detach_prepared();
    drop((s, t));
    (disk, e) = reopened(e, &disk);
    assert_eq!(next(&e), 1025);
    assert!(e.commit_xid(b"x").unwrap());
    e.truncate_table("t").unwrap();
    assert_eq!(next(&e), 1);
    (_, e) = reopened(e, &disk);
    assert_eq!(next(&e), 1);
}

fn reopened(e: Engine, disk: &SimDisk) -> (SimDisk, Engine) {
    let left = kill(e, disk);
    let e = open(&left).unwrap();
    (left, e)
}
