//! What a second reading of the new core found: each case once, and random work of one writer against a model.
use crate::tests::boundary::open_meanwhile;
use crate::tests::large::{count, fixed, image, insert, make};
use crate::tests::regression::{begin, open_with, options};
use crate::*;
use esker_format::{Record, RowId};
use esker_io::{Disk, IoKind, SimDisk};

/// As in `large_tests`, with room for more small writes.
fn small() -> Options {
    Options { bulk_threshold_bytes: 512 << 10, ..crate::tests::large::small() }
}

/// Carried by one flush, moved by the next: the redo of the first memtable stays, though the run has the rows.
#[test]
fn rows_carried_then_moved_stay_deleted() {
    let disk = SimDisk::new(1);
    let e = open_with(&disk, small()).unwrap();
    let t = make(&e, "t", &fixed(100));
    let mut s = e.session();
    begin(&mut s);
    let few: Vec<_> = (0..150).map(|n| insert(&mut s, &t, n).unwrap()).collect();
    e.core.flush(&t, &t.tree()).unwrap(); // carried
    few.iter().for_each(|id| s.delete(&t, *id).unwrap());
    for n in 0..300 {
        insert(&mut s, &t, 1000 + n).unwrap();
    }
    e.core.flush(&t, &t.tree()).unwrap(); // moved
    s.current.open_mut().unwrap().adopt_moved(false);
    let txn = s.current.open().unwrap();
    assert_eq!(txn.tables[0].rows.runs.len(), 1);
    eprintln!("redo left: {}", txn.redo_bytes());
    s.commit().unwrap();
    assert_eq!(count(&e, "t"), 300);
    while e.core.merge_once(&t, &t.tree(), false).unwrap() {}
    assert_eq!(count(&e, "t"), 300);
    drop((s, t, e));
    disk.crash();
    let e = open_with(&disk, small()).unwrap();
    assert_eq!(count(&e, "t"), 300, "deleted rows are back");
}

/// A savepoint's place in the redo of a temporary table that was emptied since.
#[test]
fn savepoint_over_a_truncated_temporary_table() {
    let disk = SimDisk::new(1);
    let e = open_with(&disk, options()).unwrap();
    let t = make(&e, "temp", &TableDef { temporary: true, ..crate::tests::regression::def() });
    let keep = make(&e, "keep", &fixed(8));
    let ins = crate::tests::regression::ins;
    let mut s = e.session();
    begin(&mut s);
    ins(&mut s, &t, 1, 50);
    insert(&mut s, &keep, 1).unwrap();
    let point = s.savepoint();
    e.truncate_table("temp").unwrap();
    ins(&mut s, &t, 2, 1000);
    s.rollback_to(&point);
    s.commit().unwrap();
    drop((s, t, keep, e));
    disk.crash();
    match open_with(&disk, options()) {
        Ok(e) => assert_eq!(count(&e, "keep"), 1),
        Err(err) => panic!("cannot open: {err}"),
    }
}
/// Rows lost to an error in one tree, then in another, later: rolling the later back forgets the first.
#[test]
fn rows_lost_earlier_are_remembered() {
    let disk = SimDisk::new(1);
    let e = open_with(&disk, Options { bulk_threshold_bytes: 4 << 10, ..small() }).unwrap();
    let (a, b) = (make(&e, "a", &fixed(100)), make(&e, "b", &fixed(100)));
    let mut s = e.session();
    begin(&mut s);
    for n in 0..3000 {
        insert(&mut s, &a, n).unwrap();
    }
    s.end_statement();
    let point = s.savepoint();
    s.begin_statement();
    for n in 0..3000 {
        insert(&mut s, &b, n).unwrap();
    }
    // Memory is short and the disk full.
    e.core.large.set_memory_limit(0);
    disk.capacity(Some(disk.used_bytes()));
    s.end_statement();
    disk.capacity(None);
    eprintln!("broken: {:?}", s.current.open().unwrap().broken.as_ref().map(|b| b.0));
    s.rollback_to(&point);
    let committed = s.commit();
    assert!(
        committed.is_err() || count(&e, "a") == 3000,
        "{} rows of 3000 after an acknowledged commit",
        count(&e, "a")
    );
}

/// What a decision looks like in its middle, to a checkpoint that has its position already: see checkpoint.rs and
/// commit.rs `decide`. The commit lock is not asked for between the position and the look at what is prepared.
#[test]
fn a_checkpoint_in_the_middle_of_a_decision() {
    let disk = SimDisk::new(1);
    let o = Options { bulk_threshold_bytes: 4 << 10, min_run_bytes: 8 << 10, ..options() };
    let e = open_with(&disk, o.clone()).unwrap();
    let t = make(&e, "t", &fixed(100));
    // So that the newer half of the log has the PREPARE.
    let u = make(&e, "u", &fixed(100));
    let mut x = e.session();
    begin(&mut x);
    for n in 0..100 {
        insert(&mut x, &u, n).unwrap();
    }
    x.commit().unwrap();
    let mut s = e.session();
    begin(&mut s);
    for n in 0..1000 {
        insert(&mut s, &t, n).unwrap();
    }
    s.prepare(b"x").unwrap();
    e.core.flush(&u, &u.tree()).unwrap();
    // What it has in the memtable is carried.
    e.core.flush(&t, &t.tree()).unwrap();
    let core = e.core.clone();
    crate::tests::hooks::at("checkpoint has its position", move || {
        // `decide`, up to where it has taken the transaction away.
        let p = core.prepared.lock().remove(&b"x"[..]).unwrap();
        crate::tests::hooks::at("checkpoint has the tables", {
            let core = core.clone();
            move || {
                let mut record = Vec::new();
                Record::CommitPrepared { txn: p.state.id }.encode(&mut record);
                let appended = core.wal.append_reserved(p.credit, &record);
                p.state.end(appended.lsn.0);
                core.views.publish(esker_format::CommitSeq(appended.lsn.0), p.state.status());
                core.make_durable(appended.end).unwrap();
            }
        });
    });
    e.core.checkpoint().unwrap();
    assert!(crate::tests::hooks::all_done(), "the decision did not fall into the checkpoint");
    assert_eq!(count(&e, "t"), 1000);
    drop((s, x, t, u, e));
    disk.crash();
    let e = open_with(&disk, o).unwrap();
    assert_eq!(count(&e, "t"), 1000, "an acknowledged transaction is lost");
}

/// The same XID again, while a checkpoint waits for space for the first one's redo.
#[test]
fn relog_of_a_reused_xid() {
    let disk = SimDisk::new(1);
    let e = open_with(&disk, options()).unwrap();
    let t = make(&e, "t", &fixed(100));
    let mut s = e.session();
    begin(&mut s);
    insert(&mut s, &t, 1).unwrap();
    s.prepare(b"x").unwrap();
    let mut x = e.session();
    begin(&mut x);
    for n in 0..2000 {
        insert(&mut x, &t, n).unwrap();
    }
    x.commit().unwrap();
    let (e2, t2) = (e.clone(), t.clone());
    crate::tests::hooks::at("checkpoint has space for what is prepared", move || {
        s.commit().unwrap();
        begin(&mut s);
        insert(&mut s, &t2, 2).unwrap();
        s.prepare(b"x").unwrap();
        s.detach_prepared();
        drop(e2);
    });
    e.core.checkpoint().unwrap();
    assert!(crate::tests::hooks::all_done(), "the XID was not used again within the checkpoint");
    assert!(e.commit_xid(b"x").unwrap());
    assert_eq!(count(&e, "t"), 2002);
    drop((x, t, e));
    disk.crash();
    let e = open_with(&disk, options()).unwrap();
    assert_eq!(e.prepared().len(), 0, "a decided transaction is prepared again");
    assert_eq!(count(&e, "t"), 2002);
}

/// Small runs are off: every gathered row a run.
#[test]
fn every_gathered_row_may_be_a_run() {
    let disk = SimDisk::new(1);
    let e = open_with(&disk, Options { bulk_threshold_bytes: 4 << 10, min_run_bytes: 0, ..small() }).unwrap();
    let t = make(&e, "t", &fixed(100));
    let mut s = e.session();
    begin(&mut s);
    for n in 0..3000 {
        insert(&mut s, &t, n).unwrap();
    }
    s.commit().unwrap();
    assert_eq!(count(&e, "t"), 3000);
}

/// An engine that is dropped without `close`: its threads end.
#[test]
fn workers_end_with_the_engine() {
    let disk = SimDisk::new(1);
    let e = open_with(&disk, Options { background: Background::Threads, ..small() }).unwrap();
    let pool = e.core.pool.watched();
    assert!(pool() > 1, "nobody but the engine has it: there are no workers");
    drop(e);
    crate::tests::support::until(|| pool() == 0);
}

/// The log cannot take the edit: each try carries what is open once more.
#[test]
fn tries_of_a_flush_do_not_add_up() {
    let disk = SimDisk::new(1);
    let e = open_with(&disk, Options { wal_segment_bytes: 64 << 10, ..small() }).unwrap();
    let t = make(&e, "t", &fixed(100));
    let mut s = e.session();
    begin(&mut s);
    for n in 0..200 {
        insert(&mut s, &t, n).unwrap();
    }
    // Fill the log's prepared space, then the disk.
    disk.capacity(Some(disk.used_bytes()));
    let mut filler = Vec::new();
    Record::RowIdMark { tree: t.tree().id, next: RowId(1) }.encode(&mut filler);
    while e.core.wal.append(&filler).is_ok() {}
    let mut used = Vec::new();
    for _ in 0..50 {
        e.core.flush(&t, &t.tree()).unwrap_err();
        used.push(t.tree().snapshot().active.used_bytes());
    }
    assert!(*used.last().unwrap() < 3 * used[0].max(4096), "memory grows with every try");
}

/// A background merge waits for an OPTIMIZE of one table, and all others with it.
#[test]
fn merging_waits_for_no_table() {
    let disk = SimDisk::new(1);
    let (e, _) = open_meanwhile(&disk, small());
    let (a, b) = (make(&e, "a", &fixed(100)), make(&e, "b", &fixed(100)));
    let mut s = e.session();
    for t in [&a, &b] {
        for n in 0..12 {
            begin(&mut s);
            insert(&mut s, t, n).unwrap();
            s.commit().unwrap();
            e.core.flush(t, &t.tree()).unwrap();
        }
    }
    let tree = a.tree();
    let held = tree.merging.lock(); // somebody's OPTIMIZE
    let core = e.core.clone();
    let (tx, rx) = std::sync::mpsc::channel();
    std::thread::spawn(move || tx.send(core.merge_somewhere().is_ok()));
    let merged = rx.recv_timeout(std::time::Duration::from_secs(60));
    drop(held);
    assert!(merged.is_ok(), "nothing is merged while one table is");
}

/// A temporary table dropped by the transaction that has rows of it gathered.
#[test]
fn rows_of_a_dropped_temporary_table_leave_no_file() {
    let disk = SimDisk::new(1);
    let e = open_with(&disk, Options { bulk_threshold_bytes: 4 << 10, min_run_bytes: 8 << 10, ..small() }).unwrap();
    let t = make(&e, "temp", &TableDef { temporary: true, ..fixed(100) });
    let mut s = e.session();
    begin(&mut s);
    for n in 0..1000 {
        insert(&mut s, &t, n).unwrap();
    }
    e.drop_table("temp").unwrap();
    s.commit().unwrap();
    drop((s, t));
    assert_eq!(crate::tests::tables::run_files(&disk), Vec::<String>::new());
}

/// One writer's random work, with flushes (some fail), merges, savepoints, crashes, against a model.
#[test]
fn random_work_of_one_writer_equals_a_model() {
    use std::collections::BTreeMap;
    let first = u64::from(std::process::id());
    for seed in first..first + 8 {
        eprintln!("seed {seed}");
        let mut x = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut rnd = move |n: u64| {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            (x >> 11) % n
        };
        let disk = SimDisk::new(seed);
        let o =
            Options { bulk_threshold_bytes: 48 << 10, min_run_bytes: 16 << 10, memory_limit_bytes: 2 << 20, ..small() };
        let mut e = open_with(&disk, o.clone()).unwrap();
        make(&e, "t", &fixed(100));
        let mut durable: BTreeMap<RowId, ()> = BTreeMap::new();
        for _ in 0..4 {
            let t = e.open_table("t").unwrap();
            let mut s = e.session();
            for _ in 0..3 {
                let mut now = durable.clone();
                let mut points: Vec<(Savepoint, BTreeMap<RowId, ()>)> = Vec::new();
                begin(&mut s);
                for _ in 0..rnd(30) {
                    s.begin_statement();
                    match rnd(12) {
                        0..=3 => {
                            let most = if rnd(3) == 0 { 900 } else { 60 };
                            for n in 0..rnd(most) {
                                now.insert(insert(&mut s, &t, n).unwrap(), ());
                            }
                        }
                        4 | 5 => {
                            let most = rnd(300) as usize;
                            let ids: Vec<_> = now.keys().copied().filter(|_| rnd(3) == 0).take(most).collect();
                            for id in ids {
                                s.delete(&t, id).unwrap();
                                now.remove(&id);
                            }
                        }
                        6 => {
                            let most = rnd(300) as usize;
                            let ids: Vec<_> = now.keys().copied().filter(|_| rnd(3) == 0).take(most).collect();
                            let mut im = [0x5a; 109];
                            im[0] = 0;
                            for id in ids {
                                unsafe { s.update_image(&t, id, im.as_ptr()).unwrap() };
                            }
                        }
                        7 => points.push((s.savepoint(), now.clone())),
                        8 => {
                            if !points.is_empty() {
                                let at = rnd(points.len() as u64) as usize;
                                points.truncate(at + 1);
                                s.rollback_to(&points[at].0);
                                now = points[at].1.clone();
                            }
                        }
                        9 => {
                            if rnd(3) == 0 {
                                disk.fail_once(disk.op_count() + 1 + rnd(4), esker_io::IoKind::Resources);
                            }
                            let _ = e.core.flush(&t, &t.tree());
                            disk.clear_plans();
                        }
                        10 => {
                            let _ = e.core.merge_once(&t, &t.tree(), rnd(2) == 0);
                        }
                        _ => {
                            e.core.checkpoint().unwrap();
                        }
                    }
                    s.end_statement();
                    if rnd(4) == 0 {
                        assert_eq!(s.count_rows(&t).unwrap(), now.len() as u64, "seed {seed}");
                    }
                }
                match rnd(6) {
                    0 => s.rollback().unwrap(),
                    1 => {
                        s.prepare(b"x").unwrap();
                        if rnd(2) == 0 {
                            e.core.flush(&t, &t.tree()).unwrap();
                        }
                        s.commit().unwrap();
                        durable = now;
                    }
                    _ => {
                        s.commit().unwrap();
                        durable = now;
                    }
                }
                assert_eq!(count(&e, "t"), durable.len() as u64, "seed {seed}");
                if rnd(2) == 0 {
                    while e.core.merge_once(&t, &t.tree(), rnd(2) == 0).unwrap() {
                        if rnd(20) == 0 {
                            break;
                        }
                    }
                }
            }
            drop((s, t, e));
            disk.crash();
            e = open_with(&disk, o.clone()).unwrap();
            assert_eq!(count(&e, "t"), durable.len() as u64, "seed {seed} after a crash");
        }
    }
}

/// A disk without a byte left: what is there opens, after a kill and after another one, and a table can be dropped.
#[test]
fn a_killed_engine_opens_on_a_disk_without_any_room() {
    let options = || Options { wal_segment_bytes: 256 << 10, ..small() };
    let mut disk = SimDisk::new(1);
    let e = open_with(&disk, options()).unwrap();
    let (t, other) = (make(&e, "t", &fixed(100)), make(&e, "other", &fixed(100)));
    let mut s = e.session();
    for (table, rows) in [(&t, 2000), (&other, 20_000)] {
        begin(&mut s);
        for n in 0..rows {
            insert(&mut s, table, n).unwrap();
        }
        s.commit().unwrap();
        e.core.flush(table, &table.tree()).unwrap();
    }
    begin(&mut s);
    insert(&mut s, &t, 2000).unwrap();
    s.commit().unwrap();
    e.core.one_round().unwrap();
    drop((s, t, other));
    std::mem::forget(e);
    for life in 0..3 {
        disk = disk.after_kill();
        for spare in disk
            .list("/db/wal".as_ref())
            .unwrap()
            .into_iter()
            .filter(|f| f.name.starts_with("00") && f.name.ends_with(".spare"))
        {
            disk.remove(&std::path::Path::new("/db/wal").join(spare.name)).unwrap();
        }
        disk.capacity(Some(disk.used_bytes()));
        let e = open_with(&disk, options()).unwrap_or_else(|e| panic!("life {life}: {e}"));
        assert_eq!((count(&e, "t"), count(&e, "other")), (2001, 20_000), "life {life}");
        std::mem::forget(e);
    }
    disk = disk.after_kill();
    disk.capacity(Some(disk.used_bytes()));
    let e = open_with(&disk, options()).unwrap();
    e.drop_table("other").unwrap();
    disk.capacity(None);
    e.core.one_round().unwrap();
    let t = e.open_table("t").unwrap();
    let mut s = e.session();
    begin(&mut s);
    insert(&mut s, &t, 2001).unwrap();
    s.commit().unwrap();
    assert_eq!(count(&e, "t"), 2002, "writing goes on once there is space");
}

/// The files of a load that a kill cut short are the space in which a full disk's log goes on.
#[test]
fn files_of_nobody_make_room_for_the_log() {
    let disk = SimDisk::new(1);
    let e = open_with(&disk, small()).unwrap();
    let t = make(&e, "t", &fixed(100));
    let mut s = e.session();
    begin(&mut s);
    for n in 0..20_000 {
        insert(&mut s, &t, n).unwrap();
    }
    std::mem::forget((s, t, e));
    let disk = disk.after_kill();
    for file in disk.list("/db/wal".as_ref()).unwrap().into_iter().filter(|f| f.name.ends_with(".spare")) {
        disk.remove(&std::path::Path::new("/db/wal").join(file.name)).unwrap();
    }
    assert!(!crate::tests::tables::run_files(&disk).is_empty(), "no load was cut short");
    disk.capacity(Some(disk.used_bytes()));
    let e = open_with(&disk, small()).unwrap();
    assert_eq!(count(&e, "t"), 0);
    assert_eq!(crate::tests::tables::run_files(&disk), Vec::<String>::new());
}

/// No room for the reserve of an opening: the space of one DROP TABLE, which needs none of the disk, is there all the same.
#[test]
fn a_disk_too_full_for_the_reserve_lets_tables_be_dropped() {
    let disk = SimDisk::new(1);
    let e = open_with(&disk, small()).unwrap();
    let t = make(&e, "t", &fixed(100));
    drop((t, e));
    disk.crash();
    let reserve = std::path::Path::new("/db/wal/reserve.spare");
    if disk.exists(reserve).unwrap() {
        disk.remove(reserve).unwrap();
    }
    let e = open_with(&disk, small()).unwrap();
    disk.capacity(Some(disk.used_bytes()));
    let kept = e.core.keep_space_in_need();
    assert!(matches!(kept, Err(Error::DiskFull(_))), "{kept:?}");
    assert!(e.core.drop_space.lock().is_some(), "no space was set aside");
    e.drop_table("t").unwrap();
}

/// Moved to a run while they were still wanted, then rolled back to a savepoint: only what PREPARE says of them keeps them
/// away after a crash.
#[test]
fn rows_rolled_back_in_a_run_stay_away_from_a_prepared_transaction() {
    let disk = SimDisk::new(1);
    let e = open_with(&disk, small()).unwrap();
    let t = make(&e, "t", &fixed(100));
    let mut s = e.session();
    begin(&mut s);
    for n in 0..300 {
        insert(&mut s, &t, n).unwrap();
    }
    s.end_statement();
    let point = s.savepoint();
    s.begin_statement();
    for n in 300..1200 {
        insert(&mut s, &t, n).unwrap();
    }
    e.core.flush(&t, &t.tree()).unwrap();
    assert!(!s.current.open().unwrap().state.moves.lock().list.is_empty(), "nothing was moved to a run");
    s.rollback_to(&point);
    s.prepare(b"x").unwrap();
    s.detach_prepared();
    drop((s, t, e));
    for decided in [false, true] {
        disk.crash();
        let e = open_with(&disk, small()).unwrap();
        if !decided {
            assert_eq!(count(&e, "t"), 0);
            assert!(e.commit_xid(b"x").unwrap());
        }
        assert_eq!(count(&e, "t"), 300, "decided before the crash: {decided}");
    }
}

/// Rows of a prepared transaction that could not be read when the folder was opened, and can be later: nobody writes them.
#[test]
fn a_prepared_transaction_keeps_its_locks_whatever_could_not_be_read() {
    let o = || Options { bulk_threshold_bytes: 32 << 10, min_run_bytes: 32 << 10, ..small() };
    let disk = SimDisk::new(1);
    let e = open_with(&disk, o()).unwrap();
    let t = make(&e, "t", &fixed(100));
    let mut s = e.session();
    begin(&mut s);
    let ids: Vec<_> = (0..1500).map(|n| insert(&mut s, &t, n).unwrap()).collect();
    s.commit().unwrap();
    begin(&mut s);
    ids.iter().for_each(|id| unsafe { s.update_image(&t, *id, image(&t, 7).as_ptr()) }.unwrap());
    s.prepare(b"x").unwrap();
    assert!(t.tree().snapshot().runs.iter().any(|r| r.owner.is_some()), "nothing was written to runs");
    s.detach_prepared();
    drop((s, t, e));
    let mut unread = 0;
    for after in 1.. {
        disk.crash();
        let opening = disk.snapshot();
        let (before, read) = (opening.read_count(), opening.read_count() + after);
        opening.fail_read_once(read, IoKind::Failed);
        let opened = open_with(&opening, o());
        if opening.read_count() < read {
            assert!(after > 5, "an opening of {} reads", opening.read_count() - before);
            break;
        }
        let Ok(e) = opened else { continue };
        unread += 1;
        let t = e.open_table("t").unwrap();
        let mut s = e.session();
        s.set_lock_wait(std::time::Duration::ZERO, true);
        for id in ids.iter().step_by(31) {
            begin(&mut s);
            let locked = s.delete(&t, *id);
            assert!(matches!(locked, Err(Error::WouldBlock)), "row {id} after failed read {after}: {locked:?}");
            s.rollback().unwrap();
        }
    }
    assert!(unread > 2, "{unread} openings met the failed read and went on");
}

/// Neither of two prepared transactions' runs could be read: what one of them lets go of is still kept for the other.
#[test]
fn rows_that_two_prepared_transactions_may_have_are_kept_for_both() {
    let o = || Options { bulk_threshold_bytes: 32 << 10, min_run_bytes: 32 << 10, ..small() };
    let disk = SimDisk::new(1);
    let e = open_with(&disk, o()).unwrap();
    let t = make(&e, "t", &fixed(100));
    let mut s = e.session();
    begin(&mut s);
    let ids: Vec<_> = (0..3000).map(|n| insert(&mut s, &t, n).unwrap()).collect();
    s.commit().unwrap();
    for (xid, first) in [(b"a", 0), (b"b", 1)] {
        begin(&mut s);
        let mine = ids.iter().skip(first).step_by(2);
        mine.for_each(|id| unsafe { s.update_image(&t, *id, image(&t, 7).as_ptr()) }.unwrap());
        s.prepare(xid).unwrap();
        s.detach_prepared();
    }
    let private = t.tree().snapshot().runs.iter().filter(|r| r.owner.is_some()).count();
    assert!(private >= 2, "{private} runs of prepared transactions");
    drop((s, t, e));
    disk.crash();
    let whole = disk.snapshot();
    let before = whole.read_count();
    drop(open_with(&whole, o()).unwrap());
    let reads = whole.read_count() - before;
    let mut opened = 0;
    // All of the last reads, so that neither can be read; and one alone, so that the other one's rows are known.
    for (last, many) in (1..=reads.min(30)).flat_map(|last| [(last, last + 50), (last, 1)]) {
        let disk = disk.snapshot();
        let first = disk.read_count() + reads - last + 1;
        (first..first + many).for_each(|read| disk.fail_read_once(read, IoKind::Failed));
        let Ok(e) = open_with(&disk, o()) else { continue };
        disk.clear_plans();
        opened += 1;
        assert!(e.rollback_xid(b"a").unwrap());
        let t = e.open_table("t").unwrap();
        let mut s = e.session();
        s.set_lock_wait(std::time::Duration::ZERO, true);
        for id in ids.iter().skip(1).step_by(2 * 37) {
            begin(&mut s);
            let locked = s.delete(&t, *id);
            let reads = format!("{many} from the last but {last} on failed");
            assert!(matches!(locked, Err(Error::WouldBlock)), "row {id}, of the reads {reads}: {locked:?}");
            s.rollback().unwrap();
        }
    }
    assert!(opened > 3, "{opened} openings met failed reads and went on");
}
