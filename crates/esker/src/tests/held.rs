//! The folder stays locked as long as somebody writes in it, though the engine is closed meanwhile.

use crate::tests::alter::{add, files, filled, insert, is_sound_in, keep, small};
use crate::tests::indexes::def;
use crate::tests::tables::open;
use crate::*;
use esker_io::{Disk, SimDisk};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;

const LOCK: &str = "/db/LOCK";

/// An engine with a table, "t", that has something to merge and to flush, and another one in which a transaction is prepared, "x"; the
/// log has something that is not durable.
fn busy() -> (SimDisk, Engine, Arc<Table>) {
    let disk = SimDisk::new(1);
    let e = open(&disk, small());
    let (t, _) = filled(&e, 300);
    e.create_table("p", &def()).unwrap();
    let p = e.open_table("p").unwrap();
    let mut s = e.session();
    insert(&mut s, &p, 1).unwrap();
    s.prepare(b"x").unwrap();
    s.detach_prepared();
    e.set_flush_mode(FlushMode::Lazy);
    insert(&mut s, &t, 1000).unwrap();
    s.commit().unwrap();
    drop(s);
    (disk, e, t)
}

#[test]
fn the_last_session_lets_the_folder_go() {
    let (disk, e, _t) = busy();
    let (s, other) = (e.session(), e.session());
    let is_free = || disk.lock(LOCK.as_ref()).is_ok();
    drop(e.session());
    assert!(!is_free());
    e.close().unwrap();
    assert!(!is_free());
    drop(s);
    assert!(!is_free());
    drop(other);
    assert!(is_free(), "the engine is there, and has nothing to write");
}

fn is_held(name: &str, work: impl FnOnce(&Engine, &Arc<Table>)) {
    is_held_after(name, |_, _| {}, |e, t, ()| work(e, t));
}

/// Does `work`, in the middle of which, at each operation of the disk, the engine is closed: the folder is locked until it is done.
fn is_held_after<T>(
    name: &str,
    before: impl FnOnce(&Engine, &Arc<Table>) -> T,
    work: impl FnOnce(&Engine, &Arc<Table>, T),
) {
    let (disk, e, t) = busy();
    let given = before(&e, &t);
    let (seen, free) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let at_operation = {
        let (is_looking, e, disk, seen, free) =
            (AtomicBool::new(false), e.clone(), disk.clone(), seen.clone(), free.clone());
        move |_: &str, _: &Path| {
            if is_looking.swap(true, Ordering::SeqCst) {
                return;
            }
            let (core, disk) = (e.core.clone(), disk.clone());
            let look = move || {
                core.let_go_of_folder();
                disk.lock(LOCK.as_ref()).is_ok()
            };
            // In a thread of its own: whoever works has locks.
            let is_free = std::thread::spawn(look).join().unwrap();
            seen.fetch_add(1, Ordering::SeqCst);
            free.fetch_add(u64::from(is_free), Ordering::SeqCst);
            is_looking.store(false, Ordering::SeqCst);
        }
    };
    disk.watch(Some(Arc::new(at_operation)));
    work(&e, &t, given);
    disk.watch(None);
    assert!(seen.load(Ordering::SeqCst) > 0, "{name} came by no operation");
    assert_eq!(free.load(Ordering::SeqCst), 0, "{name}: another one could open the folder in its middle");
    e.core.let_go_of_folder();
    assert!(disk.lock(LOCK.as_ref()).is_ok(), "{name} is done, and has the folder still");
    drop(t);
    let left = disk.after_kill();
    drop(e);
    let e = open(&left, small());
    for name in e.tables() {
        let table = e.open_table(&name).unwrap();
        assert!(e.check(&table, &mut |_, _| true).unwrap().damages.is_empty(), "{name}");
    }
}

#[test]
fn who_writes_without_a_session_keeps_the_folder() {
    is_held("create_table", |e, _| drop(e.create_table("u", &def())));
    is_held("create_counting_table", |e, _| drop(e.create_counting_table("u", &def(), 10)));
    is_held("count_from", |e, t| drop(e.count_from(t, 10)));
    is_held("drop_table", |e, _| drop(e.drop_table("t")));
    is_held("rename_table", |e, _| drop(e.rename_table("t", "u")));
    is_held("show_table", |e, _| drop(e.show_table("t", "u")));
    is_held("truncate_table", |e, _| drop(e.truncate_table("t")));
    is_held("commit_xid", |e, _| {
        e.set_flush_mode(FlushMode::EveryCommit);
        assert!(e.commit_xid(b"x").is_ok_and(|is_there| is_there));
    });
    is_held("rollback_xid", |e, _| drop(e.rollback_xid(b"x")));
    is_held("request_checkpoint", |e, _| e.request_checkpoint(Box::new(drop)));
    is_held("checkpoint", |e, _| drop(e.checkpoint()));
    is_held("optimize", |e, t| drop(e.optimize(t, &mut |_, _| true)));
    is_held("check", |e, t| drop(e.check(t, &mut |_, _| true)));
    is_held("analyze", |e, t| drop(e.analyze(t, &mut |_, _| true)));
    is_held("build_indexes", |e, t| drop(e.build_indexes(t, &[add("new", false, &[0])], &mut |_, _| true)));
    let plan = [keep(2, "c"), keep(0, "a")];
    let build = |e: &Engine, t: &Arc<Table>| e.build_indexes(t, &plan, &mut |_, _| true).unwrap();
    is_held_after("alter_indexes", build, |e, _, built| drop(e.alter_indexes(vec![built])));
    let reversed = |e: &Engine, t: &Table| e.sim_indexes(t).into_iter().rev().collect::<Vec<_>>();
    is_held("order_indexes", |e, t| drop(e.order_indexes(t, &reversed(e, t))));
}

/// Files of indexes that nobody gets go with what was built, before the folder does.
#[test]
fn what_is_built_keeps_the_folder() {
    let disk = SimDisk::new(1);
    // A thread removes files that are discarded, and has ended by then.
    let options = Options { background: Background::Threads, host: Options::default().host, ..small() };
    let e = open(&disk, options);
    let (t, rows) = filled(&e, 300);
    // What is flushed and merged is so now.
    e.checkpoint().unwrap();
    let before = files(&disk);
    let built = e.build_indexes(&t, &[keep(0, "x"), add("new", false, &[0])], &mut |_, _| true).unwrap();
    let mut new = files(&disk);
    new.retain(|file| !before.contains(file));
    assert!(!new.is_empty());
    e.close().unwrap();
    assert!(disk.lock(LOCK.as_ref()).is_err(), "its files are there");
    drop(built);
    let left = files(&disk);
    assert!(!new.iter().any(|file| left.contains(file)), "{new:?} are in {left:?}");
    assert!(disk.lock(LOCK.as_ref()).is_ok());
    drop((t, e));
    is_sound_in(&open(&disk, small()), "t", &["a", "text", "c"], rows);
}

/// A cursor may outlive its session, its engine, and what it reads; numbers of files may be given anew by then.
#[test]
fn a_cursor_that_is_left_removes_no_file_of_another_engine() {
    let disk = SimDisk::new(1);
    let e = open(&disk, small());
    let (t, _) = filled(&e, 300);
    e.checkpoint().unwrap();
    let before = files(&disk);
    let (mut writer, mut reader) = (e.session(), e.session());
    for n in 1000..2000 {
        insert(&mut writer, &t, n).unwrap();
    }
    writer.seal_for_read(&t).unwrap();
    let cursor = reader.scan(&t, ScanOptions::default()).unwrap();
    writer.rollback().unwrap();
    let rolled_back: Vec<_> = files(&disk).into_iter().filter(|file| !before.contains(file)).collect();
    assert!(!rolled_back.is_empty(), "the cursor keeps no run of what was rolled back");
    // No manifest says which numbers were given.
    e.poison("a test");
    drop((reader, writer, t));
    e.close().unwrap();
    // One that is opened sees the file, and removes it; the one behind it does not.
    let between = open(&disk, small());
    between.poison("a test");
    between.close().unwrap();
    let e = open(&disk, small());
    let (t, mut s) = (e.open_table("t").unwrap(), e.session());
    let is_given = || files(&disk).iter().any(|file| rolled_back.contains(file));
    for n in 3000..4000 {
        insert(&mut s, &t, n).unwrap();
        s.commit().unwrap();
        e.sim_flush(&t).unwrap();
        if is_given() {
            break;
        }
    }
    assert!(is_given(), "none of {rolled_back:?} was given anew");
    let there = files(&disk);
    drop(cursor);
    assert_eq!(files(&disk), there);
}
