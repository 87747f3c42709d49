//! AUTO_INCREMENT values: none comes twice, whatever happened to the process.

use crate::tests::formats::{kill, open};
use crate::tests::support::{begin, begun, engine, insert, make, number, until};
use crate::{Counting, Engine, Error, Session, Table};
use esker_io::SimDisk;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

fn next(e: &Engine) -> u64 {
    e.open_table("t").unwrap().next_auto_increment()
}

fn take(e: &Engine, t: &Arc<Table>, values: u64, commit: bool) -> u64 {
    let mut s = e.session();
    begin(&mut s);
    let first = s.take_auto_increment(t, 1, 1, values, u64::MAX, Counting::Interleaved).unwrap().start;
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
    assert_eq!(s.take_auto_increment(&t, 5, 10, 2, u64::MAX, Counting::Interleaved).unwrap(), 105..125);
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

/// A table counts from further on once it is told to, wherever the power is cut, with and without checkpoints; never from before.
#[test]
fn a_counter_is_raised_for_good() {
    let whole = SimDisk::new(1);
    let e = open(&whole).unwrap();
    e.create_table("t", &number()).unwrap();
    drop(e);
    let (mut old, mut new) = (0, 0);
    for checkpoint in [false, true] {
        for at in 1.. {
            let disk = whole.snapshot();
            let e = open(&disk).unwrap();
            let t = e.open_table("t").unwrap();
            take(&e, &t, 1, true);
            // Whoever saves it from here on does so for what it is told.
            e.checkpoint().unwrap();
            disk.power_cut_at(disk.op_count() + at);
            let raised = e.count_from(&t, 1000).is_ok();
            let lower = e.count_from(&t, 500).is_ok();
            let checked = checkpoint && e.checkpoint().is_ok();
            let done = !disk.is_power_cut();
            assert!(!done || (raised && lower && checked == checkpoint));
            assert_eq!(next(&e), if raised { 1000 } else { 2 }, "a statement that failed changes nothing");
            drop((t, e));
            // What was written and not synced is there or not.
            for seed in 0..8 {
                let after = if done { disk.after_kill() } else { disk.after_power_cut(seed) };
                let e = open(&after).unwrap();
                match next(&e) {
                    1000 => new += 1,
                    500 => unreachable!("the lower of the two alone"),
                    before => {
                        assert_eq!((before, raised), (2, false), "after step {at}");
                        old += 1;
                    }
                }
            }
            if done {
                break;
            }
        }
    }
    assert!(old > 0 && new > 1, "{old} times as before, {new} times raised");
    let e = open(&whole).unwrap();
    let t = e.open_table("t").unwrap();
    e.drop_table("t").unwrap();
    assert!(matches!(e.count_from(&t, 9), Err(Error::NoSuchTable(_))));
}

fn taken(s: &mut Session, t: &Arc<Table>, values: u64, counting: Counting) -> crate::Result<Range<u64>> {
    s.take_auto_increment(t, 1, 1, values, u64::MAX, counting)
}

/// What is held and wanted of counters.
fn counters(e: &Engine) -> Vec<(u64, bool)> {
    let locks = e.locks().into_iter().filter(|l| l.kind == "auto_increment");
    locks.map(|l| (l.connection, l.waiting)).collect()
}

fn connected(e: &Engine, connection: u64) -> Session {
    let s = begun(e, false);
    s.set_connection(connection);
    s
}

#[test]
fn who_counts_alone_gets_values_that_follow_each_other() {
    let (e, t) = engine();
    let mut alone = connected(&e, 1);
    assert_eq!(taken(&mut alone, &t, 1, Counting::Alone).unwrap(), 1..2);
    std::thread::scope(|scope| {
        for (connection, counting) in [(2, Counting::AtOnce), (3, Counting::Alone)] {
            let (e, t) = (&e, &t);
            scope.spawn(move || {
                let mut other = connected(e, connection);
                let values = taken(&mut other, t, 2, counting).unwrap();
                assert!(values == (4..6) || values == (6..8), "{values:?}");
            });
        }
        until(|| counters(&e).len() == 3);
        assert_eq!(counters(&e)[0], (1, false));
        let waits = e.lock_waits();
        assert!(
            waits.iter().all(|w| w.kind == "auto_increment" && w.table == "t" && w.key_text.is_none()),
            "{waits:?}"
        );
        // It goes on, and does not wait for itself.
        assert_eq!(taken(&mut alone, &t, 4, Counting::Alone).unwrap(), 2..6);
        alone.end_auto_increment(&t, 4..6);
    });
    // Its transaction is still open. Nobody counts alone: no lock is taken.
    assert_eq!(counters(&e), []);
    assert_eq!(taken(&mut alone, &t, 1, Counting::AtOnce).unwrap(), 8..9);
    assert_eq!(counters(&e), []);
    // Who may be among others does not ask for the lock.
    assert_eq!(taken(&mut alone, &t, 1, Counting::Alone).unwrap(), 9..10);
    assert_eq!(taken(&mut connected(&e, 2), &t, 1, Counting::Interleaved).unwrap(), 10..11);
    assert_eq!(taken(&mut alone, &t, 1, Counting::AtOnce).unwrap(), 11..12, "it is its own");
    assert_eq!(counters(&e), [(1, false)]);
}

#[test]
fn the_end_of_a_statement_lets_others_count() {
    let (e, t) = engine();
    let ends: [fn(&mut Session); 5] = [
        |s| s.end_statement(),
        |s| s.rollback_statement(),
        |s| s.commit().unwrap(),
        |s| s.rollback().unwrap(),
        |s| s.prepare(b"x").unwrap(),
    ];
    let mut other = connected(&e, 2);
    other.set_lock_wait(Duration::ZERO, true);
    for (at, end) in ends.into_iter().enumerate() {
        let mut s = connected(&e, 1);
        taken(&mut s, &t, 1, Counting::Alone).unwrap();
        let refused = taken(&mut other, &t, 1, Counting::AtOnce);
        assert!(matches!(refused, Err(Error::WouldBlock)), "{at}: {refused:?}");
        end(&mut s);
        assert_eq!(counters(&e), [], "{at}");
        taken(&mut other, &t, 1, Counting::AtOnce).unwrap();
        let _ = s.rollback();
    }
    let mut s = connected(&e, 1);
    taken(&mut s, &t, 1, Counting::Alone).unwrap();
    drop(s);
    taken(&mut other, &t, 1, Counting::Alone).unwrap();
}

#[test]
fn waiting_for_a_counter_can_be_killed_and_closes_no_circle() {
    let (e, t) = engine();
    let u = make(&e, "u", &number());
    let mut a = connected(&e, 1);
    taken(&mut a, &t, 1, Counting::Alone).unwrap();
    std::thread::scope(|scope| {
        let mut b = connected(&e, 2);
        let killer = b.killer();
        let (t, u) = (&t, &u);
        let waiter = scope.spawn(move || {
            taken(&mut b, u, 1, Counting::Alone).unwrap();
            assert!(matches!(taken(&mut b, t, 1, Counting::AtOnce), Err(Error::Interrupted)));
            b
        });
        until(|| counters(&e).contains(&(2, true)));
        assert!(matches!(taken(&mut a, u, 1, Counting::AtOnce), Err(Error::Deadlock)));
        killer.kill();
        let mut b = waiter.join().unwrap();
        b.rollback().unwrap();
        // Nothing is left of any wait.
        a.rollback().unwrap();
        assert_eq!(taken(&mut a, u, 1, Counting::AtOnce).unwrap(), 2..3);
        assert_eq!(counters(&e), []);
    });
}

/// Values that were given back come again after a restart, those of rows do not.
#[test]
fn what_was_given_back_is_free_after_a_restart() {
    let mut disk = SimDisk::new(1);
    let mut e = open(&disk).unwrap();
    let t = make(&e, "t", &number());
    let mut s = e.session();
    begin(&mut s);
    assert_eq!(taken(&mut s, &t, 8, Counting::AtOnce).unwrap(), 1..9);
    insert(&mut s, &t, 1).unwrap();
    s.end_auto_increment(&t, 2..9);
    s.commit().unwrap();
    assert_eq!(next(&e), 2);
    // A row of another brings one that it has been given.
    begin(&mut s);
    assert_eq!(taken(&mut s, &t, 8, Counting::AtOnce).unwrap(), 2..10);
    let mut other = e.session();
    begin(&mut other);
    other.auto_increment_used(&t, 5).unwrap();
    insert(&mut other, &t, 5).unwrap();
    insert(&mut s, &t, 2).unwrap();
    s.end_auto_increment(&t, 3..10);
    s.commit().unwrap();
    other.commit().unwrap();
    assert_eq!(next(&e), 6);
    drop((s, other, t));
    (disk, e) = reopened(e, &disk);
    assert_eq!(next(&e), 6);
    e.checkpoint().unwrap();
    (_, e) = reopened(e, &disk);
    assert_eq!(next(&e), 6);
}

fn reopened(e: Engine, disk: &SimDisk) -> (SimDisk, Engine) {
    let left = kill(e, disk);
    let e = open(&left).unwrap();
    (left, e)
}

/// Who brings a greater value and does not commit tells the log nothing: whoever commits says how far he has come.
#[test]
fn a_value_below_one_that_was_rolled_back_does_not_come_again() {
    let mut disk = SimDisk::new(1);
    let mut e = open(&disk).unwrap();
    let t = make(&e, "t", &number());
    let (mut s, mut open) = (e.session(), e.session());
    let bring = |session: &mut Session, value| {
        begin(session);
        session.auto_increment_used(&t, value).unwrap();
        insert(session, &t, value).unwrap();
    };
    bring(&mut s, 1000);
    s.rollback().unwrap();
    bring(&mut open, 2000);
    bring(&mut s, 1);
    s.commit().unwrap();
    assert_eq!(next(&e), 2001);
    drop((s, open, t));
    (disk, e) = reopened(e, &disk);
    assert_eq!(next(&e), 2);
    drop(disk);
}

/// What was logged of a counter before its table was emptied is of the rows that are gone, whatever keeps the log from there on.
#[test]
fn a_table_that_was_emptied_counts_from_the_beginning() {
    let disk = SimDisk::new(1);
    let e = open(&disk).unwrap();
    let other = make(&e, "other", &number());
    let t = make(&e, "t", &number());
    let mut s = e.session();
    begin(&mut s);
    insert(&mut s, &other, 1).unwrap();
    s.commit().unwrap();
    assert_eq!(take(&e, &t, 127, true), 1);
    e.truncate_table("t").unwrap();
    assert_eq!(next(&e), 1);
    crate::upkeep::checkpoint::write(&e.core).unwrap();
    drop((s, other, t));
    let (disk, e) = reopened(e, &disk);
    assert_eq!(next(&e), 1);
    let t = e.open_table("t").unwrap();
    assert_eq!(take(&e, &t, 3, true), 1);
    drop(t);
    let (_, e) = reopened(e, &disk);
    assert_eq!(next(&e), 4);
}
