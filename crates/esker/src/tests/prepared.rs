//! Prepared transactions: decisions in the middle of checkpoints, and what is known of their rows after a restart.

use crate::tests::hooks;
use crate::tests::support::*;
use crate::txn::commit;
use crate::upkeep::{checkpoint, flush};
use crate::*;
use esker_format::{Record, RowId};
use esker_io::{IoKind, SimDisk};
use std::sync::Arc;

/// What a decision looks like in its middle, to a checkpoint that has its position already: see checkpoint.rs and
/// txn/prepared.rs `decide`. The commit lock is not asked for between the position and the look at what is prepared.
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
    fill(&mut x, &u, 0..100);
    x.commit().unwrap();
    let mut s = e.session();
    begin(&mut s);
    fill(&mut s, &t, 0..1000);
    s.prepare(b"x").unwrap();
    flush::tree(&e.core, &u, &u.tree()).unwrap();
    // What it has in the memtable is carried.
    flush::tree(&e.core, &t, &t.tree()).unwrap();
    let core = e.core.clone();
    hooks::at("checkpoint has its position", move || {
        // `decide`, up to where it has taken the transaction away.
        let p = core.prepared.lock().remove(&b"x"[..]).unwrap();
        hooks::at("checkpoint has the tables", {
            let core = core.clone();
            move || {
                let mut record = Vec::new();
                Record::CommitPrepared { txn: p.state.id }.encode(&mut record);
                let appended = core.wal.append_reserved(p.credit, &record);
                p.state.end(appended.lsn.0);
                core.views.publish(esker_format::CommitSeq(appended.lsn.0), p.state.status());
                commit::make_durable(&core, esker_wal::Committer::No, appended.end).unwrap();
            }
        });
    });
    checkpoint::write(&e.core).unwrap();
    assert!(hooks::all_done(), "the decision did not fall into the checkpoint");
    assert_eq!(count(&e, "t"), 1000);
    drop((s, x, t, u, e));
    disk.crash();
    let e = open_with(&disk, o).unwrap();
    assert_eq!(count(&e, "t"), 1000, "an acknowledged transaction is lost");
}

/// Others decide a session's transaction, and another one is prepared under its XID: that is not the session's to decide.
#[test]
fn a_session_decides_none_but_its_own_transaction() {
    for (commits, ends) in [(true, 0), (true, 1), (false, 0), (false, 1), (false, 2)] {
        let (_disk, e, t) = one_table(options());
        let (mut one, mut other) = (e.session(), e.session());
        begin(&mut one);
        insert(&mut one, &t, 1).unwrap();
        one.prepare(b"x").unwrap();
        assert!(e.rollback_xid(b"x").unwrap());
        begin(&mut other);
        insert(&mut other, &t, 2).unwrap();
        other.prepare(b"x").unwrap();
        match ends {
            0 => assert!(one.commit().is_err()),
            1 => one.rollback().unwrap(),
            _ => one.detach_prepared(),
        }
        assert_eq!(count(&e, "t"), 0);
        match commits {
            true => other.commit().unwrap(),
            false => other.rollback().unwrap(),
        }
        assert_eq!(count(&e, "t"), u64::from(commits));
    }
}

/// Under another name a table may be opened by indexes in another order, and one that is emptied has other trees.
#[test]
fn a_table_of_what_is_prepared_stays_as_it_is_until_that_is_decided() {
    let (disk, e, t) = one_table(options());
    let mut s = e.session();
    begin(&mut s);
    insert(&mut s, &t, 1).unwrap();
    s.prepare(b"x").unwrap();
    let refused = |e: &Engine| {
        let copied = e.check_copied(&e.open_table("t").unwrap());
        for result in
            [e.rename_table("t", "u"), e.show_table("t", "u"), e.truncate_table("t"), e.drop_table("t"), copied]
        {
            assert!(matches!(result, Err(Error::LockTimeout)), "{result:?}");
        }
    };
    refused(&e);
    drop((s, t, e));
    disk.crash();
    let e = open_with(&disk, options()).unwrap();
    refused(&e);
    assert!(e.commit_xid(b"x").unwrap());
    e.check_copied(&e.open_table("t").unwrap()).unwrap();
    e.rename_table("t", "u").unwrap();
    assert_eq!(count(&e, "u"), 1);
}

/// The coordinator forgets a transaction when the engine has answered: what it has decided must be in the log then, carried out or
/// not.
#[test]
fn a_checkpoint_request_has_what_is_decided() {
    let (disk, e, t) = one_table(options());
    let mut s = e.session();
    begin(&mut s);
    insert(&mut s, &t, 1).unwrap();
    s.prepare(b"x").unwrap();
    s.commit_ordered();
    assert!(e.core.decisions.any_open(), "carried out before anybody needs it");
    let (told, answer) = std::sync::mpsc::channel();
    e.request_checkpoint(Box::new(move |result| told.send(result).unwrap()));
    answer.try_recv().unwrap().unwrap();
    assert!(!e.core.decisions.any_open());
    drop((s, t, e));
    disk.crash();
    let e = open_with(&disk, options()).unwrap();
    assert_eq!((e.prepared().len(), count(&e, "t")), (0, 1));
}

/// Whoever has no log that says what was decided has it in the engine's, as configured, once it has waited for that.
#[test]
fn what_is_decided_is_in_the_log_for_who_waits_for_it() {
    let (disk, e, t) = one_table(options());
    let mut s = e.session();
    for (id, mode) in [(1, FlushMode::WriteOnly), (2, FlushMode::EveryCommit)] {
        e.set_flush_mode(mode);
        begin(&mut s);
        insert(&mut s, &t, id).unwrap();
        s.prepare(&[id as u8]).unwrap();
        s.commit_ordered();
        s.commit().unwrap();
        let before = e.core.wal.stats();
        assert!(before.written < before.end, "{mode:?}: the decision is nowhere but in memory");
        s.await_whole_log().unwrap();
        let after = e.core.wal.stats();
        let reached = if mode == FlushMode::WriteOnly { after.written } else { after.durable };
        assert!(reached >= before.end, "{mode:?}: {after:?}");
    }
    drop((s, t, e));
    disk.crash();
    let e = open_with(&disk, options()).unwrap();
    assert_eq!((e.prepared().len(), count(&e, "t")), (0, 2));
}

/// Decided and never committed by its session: whoever looks, wants the XID or the row, or decides by the XID finds it committed.
#[test]
fn who_comes_after_a_decision_carries_it_out() {
    let (disk, e, t) = one_table(options());
    let decide = |id: u64, xid: &[u8]| {
        let mut s = e.session();
        begin(&mut s);
        insert(&mut s, &t, id).unwrap();
        s.prepare(xid).unwrap();
        s.commit_ordered();
        s.commit_ordered();
        s
    };
    let (first, mut second) = (decide(1, b"x"), decide(2, b"y"));
    // The XID is free again, though nobody has opened a view.
    let third = decide(3, b"x");
    assert!(!e.rollback_xid(b"x").unwrap() && !e.commit_xid(b"y").unwrap());
    assert_eq!(count(&e, "t"), 3);
    second.rollback().unwrap();
    drop((first, third));
    assert_eq!((count(&e, "t"), e.core.locks.stats().rows), (3, 0));
    // What a checkpoint makes durable has all that was decided.
    let fourth = decide(4, b"w");
    e.checkpoint().unwrap();
    let fifth = decide(5, b"x");
    assert!(e.core.decisions.any_open());
    drop((fourth, fifth, second, t, e));
    disk.crash();
    let e = open_with(&disk, options()).unwrap();
    assert_eq!((e.prepared(), count(&e, "t")), (vec![b"x".to_vec()], 4), "in memory only, it is prepared still");
    assert!(e.commit_xid(b"x").unwrap());
    assert_eq!(count(&e, "t"), 5);
}

/// Its coordinator has taken it back, and another has its XID: its decision is nobody's.
#[test]
fn a_decision_is_of_its_own_transaction() {
    let (_, e, t) = one_table(options());
    let prepare = |id: u64| {
        let mut s = e.session();
        begin(&mut s);
        insert(&mut s, &t, id).unwrap();
        s.prepare(b"x").unwrap();
        s
    };
    let mut first = prepare(1);
    assert!(e.rollback_xid(b"x").unwrap());
    let mut second = prepare(2);
    first.commit_ordered();
    assert_eq!(count(&e, "t"), 0);
    assert!(first.commit().is_err());
    second.commit().unwrap();
    assert_eq!(count(&e, "t"), 1);
}

/// A session that has inserted a row, prepared, and decided.
fn decided(e: &Engine, t: &Arc<Table>) -> Session {
    let mut s = e.session();
    begin(&mut s);
    insert(&mut s, t, 1).unwrap();
    s.prepare(b"x").unwrap();
    s.commit_ordered();
    s
}

/// Decisions that a panic has lost are answered by nothing: the next start finds their transactions prepared.
#[test]
fn a_panic_while_decisions_are_carried_out_stops_writing() {
    let (disk, e, t) = one_table(options());
    let mut s = decided(&e, &t);
    hooks::at("a decision is carried out", || panic!("on purpose"));
    let looks = std::panic::AssertUnwindSafe(|| e.session().take_view());
    assert!(std::panic::catch_unwind(looks).is_err());
    assert!(e.core.writable.is_poisoned());
    let (told, answer) = std::sync::mpsc::channel();
    e.request_checkpoint(Box::new(move |result| told.send(result).unwrap()));
    assert!(answer.try_recv().unwrap().is_err(), "a request is answered without the decision");
    assert!(s.commit().is_err());
    drop((s, t, e));
    disk.crash();
    let e = open_with(&disk, options()).unwrap();
    assert_eq!(e.prepared(), [b"x"]);
    assert!(e.commit_xid(b"x").unwrap());
    assert_eq!(count(&e, "t"), 1);
}

/// The panic comes where a request is to be answered: that is answered, too.
#[test]
fn a_panic_while_a_request_is_answered_is_its_answer() {
    let (_, e, t) = one_table(options());
    let _s = decided(&e, &t);
    hooks::at("a decision is carried out", || panic!("on purpose"));
    let (told, answer) = std::sync::mpsc::channel();
    e.request_checkpoint(Box::new(move |result| told.send(result).unwrap()));
    assert!(matches!(answer.try_recv(), Ok(Err(Error::Poisoned(_)))));
    assert!(hooks::all_done());
}

/// A program panics elsewhere, and its session, which has decided, goes with it: that is no fault of the engine's.
#[test]
fn a_session_that_goes_with_a_panic_stops_nothing() {
    let (_, e, t) = one_table(options());
    let goes = std::panic::AssertUnwindSafe(|| {
        let _s = decided(&e, &t);
        panic!("on purpose");
    });
    assert!(std::panic::catch_unwind(goes).is_err());
    assert!(!e.core.writable.is_poisoned() && !e.core.decisions.any_open());
    assert_eq!(count(&e, "t"), 1);
}

/// The same XID again, while a checkpoint waits for space for the first one's redo.
#[test]
fn relog_of_a_reused_xid() {
    let (disk, e, t) = one_table(options());
    let mut s = e.session();
    begin(&mut s);
    insert(&mut s, &t, 1).unwrap();
    s.prepare(b"x").unwrap();
    let mut x = e.session();
    begin(&mut x);
    fill(&mut x, &t, 0..2000);
    x.commit().unwrap();
    let (e2, t2) = (e.clone(), t.clone());
    hooks::at("checkpoint has space for what is prepared", move || {
        s.commit().unwrap();
        begin(&mut s);
        insert(&mut s, &t2, 2).unwrap();
        s.prepare(b"x").unwrap();
        s.detach_prepared();
        drop(e2);
    });
    checkpoint::write(&e.core).unwrap();
    assert!(hooks::all_done(), "the XID was not used again within the checkpoint");
    assert!(e.commit_xid(b"x").unwrap());
    assert_eq!(count(&e, "t"), 2002);
    drop((x, t, e));
    disk.crash();
    let e = open_with(&disk, options()).unwrap();
    assert_eq!(e.prepared().len(), 0, "a decided transaction is prepared again");
    assert_eq!(count(&e, "t"), 2002);
}

/// Moved to a run while they were still wanted, then rolled back to a savepoint: only what PREPARE says of them keeps them
/// away after a crash.
#[test]
fn rows_rolled_back_in_a_run_stay_away_from_a_prepared_transaction() {
    let (disk, e, t) = one_table(roomy());
    let mut s = e.session();
    begin(&mut s);
    fill(&mut s, &t, 0..300);
    s.end_statement();
    let point = s.savepoint();
    s.begin_statement();
    fill(&mut s, &t, 300..1200);
    flush::tree(&e.core, &t, &t.tree()).unwrap();
    assert!(!s.current.open().unwrap().state.moves.lock().list.is_empty(), "nothing was moved to a run");
    s.rollback_to(&point);
    s.prepare(b"x").unwrap();
    s.detach_prepared();
    drop((s, t, e));
    for decided in [false, true] {
        disk.crash();
        let e = open_with(&disk, roomy()).unwrap();
        if !decided {
            assert_eq!(count(&e, "t"), 0);
            assert!(e.commit_xid(b"x").unwrap());
        }
        assert_eq!(count(&e, "t"), 300, "decided before the crash: {decided}");
    }
}

/// A few hundred rows are written to a run.
fn soon_runs() -> Options {
    Options { bulk_threshold_bytes: 32 << 10, min_run_bytes: 32 << 10, ..roomy() }
}

/// A table with so many rows, which are committed.
fn with_rows(rows: u64) -> (SimDisk, Engine, Arc<Table>, Session, Vec<RowId>) {
    let (disk, e, t) = one_table(soon_runs());
    let mut s = e.session();
    begin(&mut s);
    let ids = (0..rows).map(|n| insert(&mut s, &t, n).unwrap()).collect();
    s.commit().unwrap();
    (disk, e, t, s, ids)
}

/// Changes these rows and prepares.
fn prepare_changes<'a>(s: &mut Session, t: &Arc<Table>, ids: impl Iterator<Item = &'a RowId>, xid: &[u8]) {
    begin(s);
    ids.for_each(|id| unsafe { s.update_image(t, *id, image(t, 7).as_ptr()) }.unwrap());
    s.prepare(xid).unwrap();
    s.detach_prepared();
}

/// Nobody can write these rows.
fn assert_kept<'a>(e: &Engine, ids: impl Iterator<Item = &'a RowId>, when: &str) {
    let (t, mut s) = (e.open_table("t").unwrap(), e.session());
    s.set_lock_wait(std::time::Duration::ZERO, true);
    for id in ids {
        begin(&mut s);
        let locked = s.delete(&t, *id);
        assert!(matches!(locked, Err(Error::WouldBlock)), "row {id}, {when}: {locked:?}");
        s.rollback().unwrap();
    }
}

/// Private runs in the table.
fn private(t: &Arc<Table>) -> usize {
    t.tree().snapshot().runs.iter().filter(|r| r.owner.is_some()).count()
}

/// Rows of a prepared transaction that could not be read when the folder was opened, and can be later: nobody writes them.
#[test]
fn a_prepared_transaction_keeps_its_locks_whatever_could_not_be_read() {
    let (disk, e, t, mut s, ids) = with_rows(1500);
    prepare_changes(&mut s, &t, ids.iter(), b"x");
    assert!(private(&t) > 0, "nothing was written to runs");
    drop((s, t, e));
    let mut unread = 0;
    for after in 1.. {
        disk.crash();
        let opening = disk.snapshot();
        let (before, read) = (opening.read_count(), opening.read_count() + after);
        opening.fail_read_once(read, IoKind::Failed);
        let opened = open_with(&opening, soon_runs());
        if opening.read_count() < read {
            assert!(after > 5, "an opening of {} reads", opening.read_count() - before);
            break;
        }
        let Ok(e) = opened else { continue };
        unread += 1;
        assert_kept(&e, ids.iter().step_by(31), &format!("read {after} failed"));
    }
    assert!(unread > 2, "{unread} openings met the failed read and went on");
}

/// Neither of two prepared transactions' runs could be read: what one of them lets go of is still kept for the other.
#[test]
fn rows_that_two_prepared_transactions_may_have_are_kept_for_both() {
    let (disk, e, t, mut s, ids) = with_rows(3000);
    for (xid, first) in [(b"a", 0), (b"b", 1)] {
        prepare_changes(&mut s, &t, ids.iter().skip(first).step_by(2), xid);
    }
    assert!(private(&t) >= 2, "{} runs of prepared transactions", private(&t));
    drop((s, t, e));
    disk.crash();
    let whole = disk.snapshot();
    let before = whole.read_count();
    drop(open_with(&whole, soon_runs()).unwrap());
    let reads = whole.read_count() - before;
    let mut opened = 0;
    // All of the last reads, so that neither can be read; and one alone, so that the other one's rows are known.
    for (last, many) in (1..=reads.min(30)).flat_map(|last| [(last, last + 50), (last, 1)]) {
        let disk = disk.snapshot();
        let first = disk.read_count() + reads - last + 1;
        (first..first + many).for_each(|read| disk.fail_read_once(read, IoKind::Failed));
        let Ok(e) = open_with(&disk, soon_runs()) else { continue };
        disk.clear_plans();
        opened += 1;
        assert!(e.rollback_xid(b"a").unwrap());
        let when = format!("{many} reads from the last but {last} on failed");
        assert_kept(&e, ids.iter().skip(1).step_by(2 * 37), &when);
    }
    assert!(opened > 3, "{opened} openings met failed reads and went on");
}

/// Who prepares while a table is about to be emptied is before that, and the table stays as it is.
#[test]
fn a_table_is_not_emptied_over_what_was_prepared_a_moment_ago() {
    let (disk, e, t) = one_table(options());
    let mut s = e.session();
    begin(&mut s);
    insert(&mut s, &t, 1).unwrap();
    hooks::at("a table is about to be made anew", move || {
        // In a thread of its own: the statement holds the catalog.
        std::thread::spawn(move || s.prepare(b"x").unwrap()).join().unwrap();
    });
    let emptied = e.truncate_table("t");
    assert!(hooks::all_done() && e.commit_xid(b"x").unwrap());
    assert_eq!(count(&e, "t"), 1);
    assert!(matches!(emptied, Err(Error::LockTimeout)), "{emptied:?}");
    drop((t, e));
    disk.crash();
    let e = open_with(&disk, options()).unwrap();
    assert_eq!(count(&e, "t"), 1);
    // Nothing keeps it from being emptied now.
    e.truncate_table("t").unwrap();
    assert_eq!(count(&e, "t"), 0);
}

/// Ids that were handed out and never used lie below what a deletion of all rows locks: no new row gets one of them.
#[test]
fn new_rows_are_not_among_those_that_a_prepared_deletion_of_all_has_locked() {
    let (disk, e, t, mut s, _) = with_rows(10);
    begin(&mut s);
    for n in 0..1000 {
        insert(&mut s, &t, n).unwrap();
    }
    s.rollback().unwrap();
    begin(&mut s);
    s.delete_all(&t).unwrap();
    s.prepare(b"all").unwrap();
    drop((t, s, e));
    let e = open_with(&disk.after_kill(), soon_runs()).unwrap();
    let (t, mut s) = (e.open_table("t").unwrap(), e.session());
    s.set_lock_wait(std::time::Duration::ZERO, true);
    begin(&mut s);
    let id = insert(&mut s, &t, 1).unwrap();
    // SAFETY: an image of this table.
    unsafe { s.update_image(&t, id, image(&t, 2).as_ptr()) }.unwrap();
    s.commit().unwrap();
    assert!(e.commit_xid(b"all").unwrap());
    assert_eq!(s.count_rows(&t).unwrap(), 1);
}
