//! Unique keys, one case at a time: what others do just before and just after a key is reserved, wherever their entries lie by
//! then; and who waits for whom, with threads.

use crate::tests::hooks;
use crate::tests::indexes::{def, image, Row};
use crate::tests::tables::{open, options};
use crate::tree::levels::looked;
use crate::tree::standing::{standing, NotIn, Standing};
use crate::*;
use esker_format::RowId;
use esker_io::SimDisk;
use std::sync::mpsc::{channel, Sender};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

/// The key that all want.
const KEY: u32 = 7;
/// Nobody waits for so long, unless it was forgotten.
const LONG: Duration = Duration::from_secs(60);

fn small() -> Options {
    Options { bulk_threshold_bytes: 4 << 10, min_run_bytes: 1 << 10, block_bytes: 1 << 10, ..options() }
}

fn table(options: Options) -> (Engine, Arc<Table>) {
    let e = open(&SimDisk::new(1), options);
    e.create_table("t", &def()).unwrap();
    let t = e.open_table("t").unwrap();
    (e, t)
}

fn begin(e: &Engine) -> Session {
    let mut s = e.session();
    s.set_lock_wait(Duration::ZERO, true);
    s.begin(Isolation::ReadCommitted, BeginOptions::default());
    s.begin_statement();
    s
}

fn row(a: u32) -> Row {
    Row { a, c: None, text: vec![b'x'; 100] }
}

fn insert(s: &mut Session, t: &Arc<Table>, a: u32) -> Result<RowId> {
    // SAFETY: an image of this table's layout.
    unsafe { s.insert_image(t, image(&row(a)).as_ptr()) }
}

/// The first of the table's rows.
fn committed(e: &Engine, t: &Arc<Table>) -> RowId {
    let mut s = begin(e);
    let id = insert(&mut s, t, KEY).unwrap();
    s.commit().unwrap();
    id
}

fn is_sound(e: &Engine, t: &Arc<Table>, rows: u64) {
    let mut s = e.session();
    for index in 0..3 {
        let report = s.check_index(t, index).unwrap();
        assert_eq!((report.rows, report.entries, &report.wrong[..]), (rows, rows, &[][..]), "index {index}");
    }
}

/// How a transaction comes to have the key, not committed.
const WAYS: [&str; 4] = ["in the shared memtable", "moved by a flush", "in its own memtable", "in a run of its own"];

fn take(e: &Engine, t: &Arc<Table>, way: &str) -> (Session, u64) {
    let mut s = begin(e);
    let mut rows = 1;
    if way == WAYS[2] || way == WAYS[3] {
        // Large.
        rows += (0..60).map(|n| insert(&mut s, t, 1000 + n).unwrap()).count() as u64;
    }
    insert(&mut s, t, KEY).unwrap();
    if way == WAYS[1] {
        e.sim_flush(t).unwrap();
    }
    if way == WAYS[3] {
        s.prepare(b"spilled").unwrap();
    }
    (s, rows)
}

#[test]
fn keys_of_others_are_found_wherever_they_are() {
    for way in WAYS {
        let (e, t) = table(small());
        let (mut other, rows) = take(&e, &t, way);
        let mut s = begin(&e);
        assert!(matches!(insert(&mut s, &t, KEY), Err(Error::WouldBlock)), "{way}");
        other.commit().unwrap();
        assert!(matches!(insert(&mut s, &t, KEY), Err(Error::DuplicateKey { index: 0, .. })), "{way}");
        is_sound(&e, &t, rows);
    }
}

/// Of a key's versions in a run of their transaction all blocks count: those of the first may have been rolled back.
#[test]
fn a_key_of_another_is_found_behind_a_block_of_what_it_rolled_back() {
    let (e, t) = table(Options { bulk_threshold_bytes: 1 << 20, ..small() });
    let mut owner = begin(&e);
    let first = insert(&mut owner, &t, KEY).unwrap();
    let (point, mut row) = (owner.savepoint(), first);
    for _ in 0..3000 {
        owner.delete(&t, row).unwrap();
        row = insert(&mut owner, &t, KEY).unwrap();
    }
    e.sim_flush(&t).unwrap();
    owner.rollback_to(&point);
    let state = t.trees().keys[0].snapshot();
    let run = &state.runs[0];
    assert!(run.owner.is_some() && state.runs.len() == 1, "{} runs", state.runs.len());
    let blocks = run.run.index().unwrap().entries().len();
    assert!(blocks > 2, "{blocks} blocks of one key");
    let mut s = begin(&e);
    assert!(matches!(insert(&mut s, &t, KEY), Err(Error::WouldBlock)));
    owner.commit().unwrap();
    assert!(matches!(insert(&mut s, &t, KEY), Err(Error::DuplicateKey { index: 0, row }) if row == first));
    drop(s);
    is_sound(&e, &t, 1);
}

#[test]
fn what_is_put_before_a_key_is_reserved_is_found() {
    for (way, commits) in WAYS.into_iter().flat_map(|way| [(way, true), (way, false)]) {
        let (e, t) = table(small());
        let mut s = begin(&e);
        insert(&mut s, &t, 1).unwrap();
        let (sender, receiver) = channel();
        hooks::at("a key is about to be reserved", {
            let (e, t) = (e.clone(), t.clone());
            move || {
                // What was in memory is elsewhere now.
                e.sim_flush(&t).unwrap();
                let (mut other, _) = take(&e, &t, way);
                if commits {
                    other.commit().unwrap();
                }
                sender.send(other).unwrap();
            }
        });
        let met = insert(&mut s, &t, KEY);
        assert!(hooks::all_done());
        match commits {
            true => assert!(matches!(met, Err(Error::DuplicateKey { .. })), "{way}: {met:?}"),
            false => assert!(matches!(met, Err(Error::WouldBlock)), "{way}: {met:?}"),
        }
        drop(receiver.recv().unwrap());
    }
}

/// Whoever holds a state from before a large transaction left what it had gathered, and looks at it after its commit.
#[test]
fn a_state_from_before_a_commit_does_not_say_that_a_key_is_free() {
    for (sorted, commits) in [(false, true), (true, true), (false, false), (true, false)] {
        let (e, t) = table(small());
        let (mut other, _) = take(&e, &t, WAYS[2]);
        let (tree, me) = (t.trees().keys[0].clone(), begin(&e).txn_id().unwrap());
        let before = tree.snapshot();
        assert_eq!(before.privates.len(), 1);
        if sorted {
            before.privates_of_others(me).unwrap();
        }
        // SAFETY: an image of this table's layout.
        let (key, _) = unsafe { t.key_prefix(0, image(&row(KEY)).as_ptr(), usize::MAX) }.unwrap();
        match commits {
            true => other.commit().unwrap(),
            false => other.rollback().unwrap(),
        }
        let find = |state| standing(state, &key, me, None, NotIn::default()).unwrap();
        let (old, now) = (find(&before), find(&tree.snapshot()));
        match commits {
            true => assert!(matches!((old, now), (Standing::Pending(..), Standing::Taken(..))), "{old:?}, {now:?}"),
            false => assert_eq!((old, now), (Standing::FREE, Standing::FREE)),
        }
    }
}

/// The same of one that has an older version of the key, of the same commit, elsewhere.
#[test]
fn a_state_from_before_a_commit_tells_no_older_version_of_the_same_transaction() {
    for puts_again in [true, false] {
        let (e, t) = table(small());
        let id = committed(&e, &t);
        let mut other = begin(&e);
        other.delete(&t, id).unwrap();
        let first = (!puts_again).then(|| insert(&mut other, &t, KEY).unwrap());
        // Large from here on.
        for n in 0..60 {
            insert(&mut other, &t, 1000 + n).unwrap();
        }
        match first {
            None => insert(&mut other, &t, KEY).map(|_| ()),
            Some(id) => other.delete(&t, id),
        }
        .unwrap();
        let (tree, me) = (t.trees().keys[0].clone(), begin(&e).txn_id().unwrap());
        let before = tree.snapshot();
        assert_eq!(before.privates.len(), 1);
        other.commit().unwrap();
        // SAFETY: an image of this table's layout.
        let (key, _) = unsafe { t.key_prefix(0, image(&row(KEY)).as_ptr(), usize::MAX) }.unwrap();
        let find = |state| standing(state, &key, me, None, NotIn::default()).unwrap();
        let (old, now) = (find(&before), find(&tree.snapshot()));
        assert!(matches!(old, Standing::Pending(..)), "puts again {puts_again}: {old:?}, then {now:?}");
        assert_eq!(matches!(now, Standing::Taken(..)), puts_again, "{now:?}");
    }
}

/// A row that is deleted with all others is pending as long as that may be undone, and then gone: at no moment taken.
#[test]
fn a_key_whose_row_a_deletion_of_all_takes_meanwhile_is_not_taken() {
    let (e, t) = table(small());
    committed(&e, &t);
    let mut deleter = begin(&e);
    deleter.delete_all(&t).unwrap();
    let mut s = begin(&e);
    hooks::at("what stands at a key is found", move || deleter.commit().unwrap());
    insert(&mut s, &t, KEY).unwrap();
    assert!(hooks::all_done());
    s.commit().unwrap();
    is_sound(&e, &t, 1);
}

/// Deletes all rows, telling of each wait; how many there were.
fn all_deleted(e: &Engine, t: &Arc<Table>, tell: Sender<()>) -> Result<u64> {
    let mut s = begin(e);
    s.set_lock_wait(LONG, false);
    s.set_wait_hooks(Box::new(Tell(tell)));
    let rows = s.lock_all(t)?;
    s.delete_all(t)?;
    s.commit()?;
    Ok(rows)
}

/// Who deletes all rows waits for who has inserted some, and locks none of them before.
#[test]
fn a_deletion_of_all_rows_keeps_no_inserter_from_its_own_rows() {
    let (e, t) = threaded();
    committed(&e, &t);
    let mut inserter = begin(&e);
    let id = insert(&mut inserter, &t, 1).unwrap();
    let (tell, told) = channel();
    std::thread::scope(|scope| {
        let deletes = scope.spawn(|| all_deleted(&e, &t, tell));
        told.recv().unwrap();
        // SAFETY: an image of this table's layout.
        unsafe { inserter.update_image(&t, id, image(&row(2)).as_ptr()) }.unwrap();
        inserter.commit().unwrap();
        assert_eq!(deletes.join().unwrap().unwrap(), 2);
    });
    is_sound(&e, &t, 0);
}

/// Nor one who comes while it waits for others.
#[test]
fn a_deletion_of_all_rows_keeps_no_later_inserter_from_its_own_rows() {
    let (e, t) = threaded();
    committed(&e, &t);
    let (mut first, mut later) = (begin(&e), begin(&e));
    insert(&mut first, &t, 1).unwrap();
    let (tell, told) = channel();
    std::thread::scope(|scope| {
        let deletes = scope.spawn(|| all_deleted(&e, &t, tell));
        told.recv().unwrap();
        let id = insert(&mut later, &t, 2).unwrap();
        first.commit().unwrap();
        told.recv().unwrap();
        // SAFETY: an image of this table's layout.
        unsafe { later.update_image(&t, id, image(&row(3)).as_ptr()) }.unwrap();
        later.commit().unwrap();
        assert_eq!(deletes.join().unwrap().unwrap(), 3);
    });
    is_sound(&e, &t, 0);
}

/// After the key is reserved its other owner goes on: whatever it does, it is found, or has ended.
#[test]
fn what_moves_while_a_key_is_looked_for_is_found() {
    for (way, what) in WAYS.into_iter().flat_map(|way| ["flush", "commit", "rollback"].map(|what| (way, what))) {
        let (e, t) = table(small());
        let (mut other, _) = take(&e, &t, way);
        let (sender, receiver) = channel();
        hooks::at("a key is reserved", {
            let (e, t) = (e.clone(), t.clone());
            move || {
                match what {
                    "flush" => e.sim_flush(&t).unwrap(),
                    "commit" => other.commit().unwrap(),
                    _ => other.rollback().unwrap(),
                }
                sender.send(other).unwrap();
            }
        });
        let met = insert(&mut begin(&e), &t, KEY);
        assert!(hooks::all_done());
        match what {
            "flush" => assert!(matches!(met, Err(Error::WouldBlock)), "{way}: {met:?}"),
            "commit" => assert!(matches!(met, Err(Error::DuplicateKey { .. })), "{way}: {met:?}"),
            _ => assert!(met.is_ok(), "{way}: {met:?}"),
        }
        drop(receiver.recv().unwrap());
    }
}

#[test]
fn a_key_is_reserved_until_its_entry_is_there() {
    for place in ["a key is reserved", "keys were found free", "a row is there without its entries"] {
        let (e, t) = table(small());
        hooks::at(place, {
            let (e, t) = (e.clone(), t.clone());
            move || {
                e.sim_flush(&t).unwrap();
                assert!(matches!(insert(&mut begin(&e), &t, KEY), Err(Error::WouldBlock)), "{place}");
            }
        });
        let mut s = begin(&e);
        insert(&mut s, &t, KEY).unwrap();
        assert!(hooks::all_done());
        s.commit().unwrap();
        is_sound(&e, &t, 1);
    }
}

/// A key that stays is written again with a row whose newest version the writer's view does not see: that view would find
/// neither the old entry, which is not the row's any more, nor the new one.
#[test]
fn a_row_that_was_overtaken_keeps_its_keys_in_the_writers_view() {
    for back in [false, true] {
        let (e, t) = table(small());
        let id = committed(&e, &t);
        let mut s = e.session();
        s.begin(Isolation::RepeatableRead, BeginOptions::default());
        s.begin_statement();
        s.take_view();
        let mut other = begin(&e);
        let key = if back { KEY + 1 } else { KEY };
        let changed = Row { a: key, c: Some(3), text: vec![b'y'; 50] };
        // SAFETY: an image of this table's layout.
        unsafe { other.update_image(&t, id, image(&changed).as_ptr()) }.unwrap();
        other.commit().unwrap();
        // SAFETY: an image of this table's layout.
        unsafe { s.update_image(&t, id, image(&Row { text: vec![b'z'], ..changed }).as_ptr()) }.unwrap();
        for index in 0..3 {
            let report = s.check_index(&t, index).unwrap();
            assert_eq!((report.rows, report.entries, &report.wrong[..]), (1, 1, &[][..]), "index {index}");
        }
        s.commit().unwrap();
        is_sound(&e, &t, 1);
    }
}

fn threaded() -> (Engine, Arc<Table>) {
    table(Options { host: Arc::new(Machine), ..small() })
}

#[test]
fn of_two_inserters_of_a_key_one_succeeds() {
    let (e, t) = threaded();
    let mut rows = 0;
    for round in 0..300 {
        let start = Barrier::new(2);
        let inserter = |ends: bool| {
            let mut s = begin(&e);
            s.set_lock_wait(LONG, false);
            start.wait();
            let done = insert(&mut s, &t, round).map(drop);
            if ends {
                s.commit().unwrap();
            } else {
                s.rollback().unwrap();
            }
            done
        };
        let (first_ends, second_ends) = (round % 3 != 0, round % 5 != 0);
        let (one, two) = std::thread::scope(|scope| {
            let one = scope.spawn(|| inserter(first_ends));
            let two = scope.spawn(|| inserter(second_ends));
            (one.join().unwrap(), two.join().unwrap())
        });
        match (&one, &two) {
            (Ok(()), Err(Error::DuplicateKey { .. })) if first_ends => rows += 1,
            (Err(Error::DuplicateKey { .. }), Ok(())) if second_ends => rows += 1,
            // The one that came first rolled back.
            (Ok(()), Ok(())) if !(first_ends && second_ends) => rows += u64::from(first_ends || second_ends),
            both => panic!("{both:?}"),
        }
    }
    is_sound(&e, &t, rows);
}

/// Tells that its session waits.
struct Tell(Sender<()>);

impl WaitHooks for Tell {
    fn before_wait(&self) {
        self.0.send(()).unwrap();
    }
}

/// Inserts the key in a thread, which has to wait for what `end` does in this one.
fn insert_behind(e: &Engine, t: &Arc<Table>, end: impl FnOnce()) -> Result<RowId> {
    let (tell, told) = channel();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let mut s = begin(e);
            s.set_wait_hooks(Box::new(Tell(tell)));
            s.set_lock_wait(LONG, false);
            let done = insert(&mut s, t, KEY);
            s.commit().unwrap();
            done
        });
        told.recv().unwrap();
        let ended = Instant::now();
        end();
        let done = waits.join().unwrap();
        // Who gives up looks once more: success is no sign of having been woken.
        assert!(ended.elapsed() < LONG, "nobody woke it");
        done
    })
}

#[test]
fn an_insert_waits_for_an_uncommitted_delete() {
    for (all, commits) in [(false, true), (false, false), (true, true), (true, false)] {
        let (e, t) = threaded();
        let id = committed(&e, &t);
        let mut deleter = begin(&e);
        match all {
            true => deleter.delete_all(&t).unwrap(),
            false => deleter.delete(&t, id).unwrap(),
        }
        let end = || if commits { deleter.commit().unwrap() } else { deleter.rollback().unwrap() };
        match (insert_behind(&e, &t, end), commits) {
            (Ok(_), true) => {}
            (Err(Error::DuplicateKey { index: 0, row }), false) if row == id => {}
            (met, _) => panic!("all {all}, commits {commits}: {met:?}"),
        }
        is_sound(&e, &t, 1);
    }
}

#[test]
fn a_rollback_to_a_savepoint_wakes_who_waits_for_what_it_undoes() {
    for way in &WAYS[..3] {
        let (e, t) = threaded();
        let mut owner = begin(&e);
        insert(&mut owner, &t, 1).unwrap();
        let point = owner.savepoint();
        let many = if *way == WAYS[2] { 60 } else { 0 };
        for n in 0..many {
            insert(&mut owner, &t, 1000 + n).unwrap();
        }
        insert(&mut owner, &t, KEY).unwrap();
        if *way == WAYS[1] {
            e.sim_flush(&t).unwrap();
        }
        // Its transaction goes on.
        insert_behind(&e, &t, || owner.rollback_to(&point)).unwrap_or_else(|e| panic!("{way}: {e}"));
        assert!(matches!(insert(&mut owner, &t, KEY), Err(Error::DuplicateKey { .. })), "{way}");
        owner.commit().unwrap();
        is_sound(&e, &t, 2);
    }
}

#[test]
fn two_that_want_each_others_keys_are_a_deadlock() {
    let (e, t) = threaded();
    let (mut a, mut b) = (begin(&e), begin(&e));
    insert(&mut a, &t, 1).unwrap();
    insert(&mut b, &t, KEY).unwrap();
    a.set_lock_wait(LONG, false);
    b.set_lock_wait(LONG, false);
    let (tell, told) = channel();
    a.set_wait_hooks(Box::new(Tell(tell)));
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| insert(&mut a, &t, KEY).map(|_| a.commit()));
        told.recv().unwrap();
        assert!(matches!(insert(&mut b, &t, 1), Err(Error::Deadlock)));
        b.rollback().unwrap();
        waits.join().unwrap().unwrap().unwrap();
    });
    is_sound(&e, &t, 2);
}

/// A waiter with its key reserved would keep the key from the one that it waits for.
#[test]
fn nobody_sleeps_with_a_key_that_is_pending() {
    let (e, t) = threaded();
    let mut owner = begin(&e);
    let first = insert(&mut owner, &t, KEY).unwrap();
    let mut again = None;
    let met = insert_behind(&e, &t, || {
        owner.delete(&t, first).unwrap();
        again = Some(insert(&mut owner, &t, KEY));
        owner.commit().unwrap();
    });
    let second = again.unwrap().unwrap();
    assert!(matches!(met, Err(Error::DuplicateKey { index: 0, row }) if row == second), "{met:?}");
    is_sound(&e, &t, 1);
}

/// A large load looks for its keys in what it has itself written, not in each run of that.
#[test]
fn a_large_load_finds_its_own_keys_and_does_not_look_into_each_of_its_runs() {
    const ROWS: u32 = 60_000;
    let (e, t) = table(Options { memory_limit_bytes: 6 << 20, bulk_threshold_bytes: 1 << 20, ..small() });
    let key = |n: u32| 1000 + n.wrapping_mul(0x9E37_79B1) % (1 << 30);
    let mut s = begin(&e);
    let (mut looked_at, mut rows) = (0, Vec::new());
    // Of these a flush makes a run, of which no filter knows.
    const MOVED: u32 = 2500;
    (0..MOVED).for_each(|n| rows.push(insert(&mut s, &t, key(n)).unwrap()));
    e.sim_flush(&t).unwrap();
    let moved = t.trees().keys[0].snapshot().runs.len();
    assert_eq!(moved, 1, "it was not moved");
    for n in MOVED..ROWS {
        looked::take();
        rows.push(insert(&mut s, &t, key(n)).unwrap());
        looked_at += looked::take();
    }
    let runs = t.trees().keys[0].snapshot().runs.len();
    assert!(runs - moved >= 8, "{runs} runs of its own");
    // But for that which was moved: whether it reaches over the key, and what it has of it.
    let noted = looked_at - 2 * (ROWS - MOVED) as usize;
    assert!(noted < ROWS as usize / 10, "{noted} runs looked at for {ROWS} keys");
    let is_there = |s: &mut Session, n: u32| {
        let met = insert(s, &t, key(n));
        assert!(
            matches!(met, Err(Error::DuplicateKey { index: 0, row }) if row == rows[n as usize]),
            "key {n}: {met:?}"
        );
    };
    (0..MOVED).chain((0..ROWS).step_by(7)).for_each(|n| is_there(&mut s, n));
    // One that has left its row, and come back by another one.
    for n in (1..ROWS).step_by(70) {
        s.delete(&t, rows[n as usize]).unwrap();
        insert(&mut s, &t, key(n)).unwrap();
        assert!(matches!(insert(&mut s, &t, key(n)), Err(Error::DuplicateKey { .. })));
    }
    // What was rolled back is free again.
    let point = s.savepoint();
    let more: Vec<_> = (ROWS..2 * ROWS).map(|n| insert(&mut s, &t, key(n)).unwrap()).collect();
    s.rollback_to(&point);
    for (n, old) in (ROWS..2 * ROWS).zip(more).step_by(70) {
        assert_ne!(insert(&mut s, &t, key(n)).unwrap(), old);
    }
    (0..ROWS).step_by(70).for_each(|n| is_there(&mut s, n));
    s.commit().unwrap();
    // The check looks each row up.
    e.set_memory_limit(256 << 20);
    is_sound(&e, &t, u64::from(ROWS) + u64::from(ROWS).div_ceil(70));
    assert!(matches!(insert(&mut begin(&e), &t, key(0)), Err(Error::DuplicateKey { .. })));
    // Who has rolled all of it back keeps no filters for it.
    e.set_memory_limit(6 << 20);
    let mut s = begin(&e);
    let point = s.savepoint();
    for n in ROWS * 2..ROWS * 3 {
        insert(&mut s, &t, key(n)).unwrap();
    }
    assert!(e.core.large.filters() > 0);
    s.rollback_to(&point);
    assert_eq!(e.core.large.filters(), 0);
}
