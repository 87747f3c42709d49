//! What an error of background work means, by its kind, and what the answer to a checkpoint request promises.

use super::*;
use crate::host::{Machine, SimHost};
use crate::tests::support::{
    begin, count, fill, fixed, image, insert, insert_wide, make, open, open_with, options, small, wide, Slow,
};
use crate::upkeep::next_flush::REST;
use crate::{Engine, FlushMode, Options, Session, Table};
use esker_format::{FormatError, RowId};
use esker_io::{IoError, IoKind, SimDisk};
use std::path::Path;
use std::sync::atomic::AtomicUsize;

fn judged(error: Error, disk: &SimDisk) -> bool {
    let e = open(disk).unwrap();
    judge(&e.core, Err(error), &mut 0, 0);
    e.core.writable.is_poisoned()
}

#[test]
fn errors_stop_writing_by_their_kind() {
    let file = |kind| IoError::new("write", Path::new("/db/runs/1.run"), None, kind, "planted");
    let passing = [
        Error::from(file(IoKind::Failed)),
        Error::from(file(IoKind::DiskFull)),
        Error::from(file(IoKind::Resources)),
        Error::OutOfMemory("a memtable".into()),
        Error::NoSuchTable("t".into()),
        Error::Interrupted,
        Error::NewerFormat { file: "/db/runs/1.run".into(), found: 9, supported: 2 },
        Error::OlderFormat { file: "/db/runs/1.run".into(), found: 1, needed: 2 },
        Error::damage("/db/runs/1.run".as_ref(), 0, FormatError::Unknown { what: "block feature", found: 31 }),
    ];
    for (n, error) in passing.into_iter().enumerate() {
        let words = error.to_string();
        assert!(!judged(error, &SimDisk::new(n as u64)), "'{words}' ends, or concerns one table only");
    }
    for error in [Error::InvalidArgument("broken logic".into()), Error::Poisoned("elsewhere".into())] {
        let words = error.to_string();
        assert!(judged(error, &SimDisk::new(9)), "'{words}' must stop writing");
    }
}

/// With threads, and without: nobody waits for a commit's sync, the answer promises one.
#[test]
fn answered_requests_are_durable() {
    for background in [Background::Inline, Background::Threads] {
        let disk = SimDisk::new(3);
        let e = open_with(&disk, Options { background, ..options() }).unwrap();
        e.set_flush_mode(FlushMode::Lazy);
        e.create_table("t", &wide()).unwrap();
        let t = e.open_table("t").unwrap();
        let mut s = e.session();
        let (answer, answers) = std::sync::mpsc::channel();
        for n in 1..=5 {
            begin(&mut s);
            insert_wide(&mut s, &t, n, 10);
            s.commit().unwrap();
            let answer = answer.clone();
            e.request_checkpoint(Box::new(move |result| answer.send(result).unwrap()));
            answers.recv_timeout(Duration::from_secs(60)).unwrap().unwrap();
            let after = open(&disk.after_power_cut(n)).unwrap();
            assert_eq!(count(&after, "t"), n, "{background:?}: answered, and lost to a power cut");
        }
    }
}

/// Nobody waits for a commit's sync: a second later it is durable, and so is what was decided and whose session has not come back.
#[test]
fn what_is_decided_is_durable_after_a_second() {
    for (mode, synced) in [(FlushMode::Lazy, 2), (FlushMode::WriteOnly, 2), (FlushMode::EveryCommit, 1)] {
        let (disk, time) = (SimDisk::new(4), SimHost::new());
        let e = open_with(&disk, Options { host: time.clone(), ..options() }).unwrap();
        let t = make(&e, "t", &fixed(100));
        let mut s = e.session();
        begin(&mut s);
        insert(&mut s, &t, 1).unwrap();
        s.commit().unwrap();
        e.set_flush_mode(mode);
        begin(&mut s);
        insert(&mut s, &t, 2).unwrap();
        s.prepare(b"x").unwrap();
        s.commit_ordered();
        time.pass(SECOND);
        one_round(&e.core).unwrap();
        // With every commit synced it is the session's own that the next sync is for.
        assert_eq!(e.core.decisions.any_open(), mode == FlushMode::EveryCommit);
        let after = open(&disk.after_power_cut(1)).unwrap();
        assert_eq!(count(&after, "t"), synced, "{mode:?}: a second later the decision is in no log");
    }
}

/// A commit that nobody waited for, by which time the mode has changed, writing has stopped, or nothing can be flushed.
#[test]
fn what_no_sync_was_waited_for_is_durable_in_the_end() {
    for what in ["the mode changes", "writing stops", "writing stops, and it is closed", "it is closed on a full disk"]
    {
        let (disk, time) = (SimDisk::new(4), SimHost::new());
        let e = open_with(&disk, Options { host: time.clone(), ..options() }).unwrap();
        let t = make(&e, "t", &fixed(100));
        e.set_flush_mode(FlushMode::Lazy);
        let mut s = e.session();
        begin(&mut s);
        insert(&mut s, &t, 1).unwrap();
        s.commit().unwrap();
        assert!(e.core.wal.durable_lsn() < e.core.wal.end_lsn());
        drop((s, t));
        match what {
            "the mode changes" => {
                e.set_flush_mode(FlushMode::EveryCommit);
                time.pass(SECOND);
                one_round(&e.core).unwrap();
            }
            "it is closed on a full disk" => {
                disk.capacity(Some(disk.used_bytes()));
                let closed = e.close();
                assert!(matches!(closed, Err(Error::DiskFull(_))), "{closed:?}");
                disk.capacity(None);
            }
            _ => {
                e.core.writable.poison("a fault that is not the log's");
                match what == "writing stops" {
                    true => log_round(&e.core, &mut 0),
                    false => e.close().unwrap(),
                }
            }
        }
        let after = open(&disk.after_power_cut(1)).unwrap();
        assert_eq!(count(&after, "t"), 1, "{what}");
    }
}

/// A background merge waits for an OPTIMIZE of one table, and all others with it.
#[test]
fn merging_waits_for_no_table() {
    let disk = SimDisk::new(1);
    let e = open_with(&disk, small()).unwrap();
    let (a, b) = (make(&e, "a", &fixed(100)), make(&e, "b", &fixed(100)));
    let mut s = e.session();
    for t in [&a, &b] {
        for n in 0..12 {
            begin(&mut s);
            insert(&mut s, t, n).unwrap();
            s.commit().unwrap();
            flush::tree(&e.core, t, &t.tree()).unwrap();
        }
    }
    let tree = a.tree();
    let held = tree.merging.lock(); // somebody's OPTIMIZE
    let core = e.core.clone();
    let (tx, rx) = std::sync::mpsc::channel();
    std::thread::spawn(move || tx.send(merge_somewhere(&core).unwrap()));
    let merged = rx.recv_timeout(std::time::Duration::from_secs(60));
    drop(held);
    assert_eq!(merged, Ok(true), "nothing is merged while one table is");
}

/// What holds the memory cannot be flushed, and other trees have nothing: the work ends, with the error.
#[test]
fn trees_with_nothing_to_flush_are_not_flushed_for_ever() {
    let disk = SimDisk::new(5);
    let e = open_with(&disk, Options { bulk_threshold_bytes: 64 << 20, ..small() }).unwrap();
    let t = make(&e, "t", &fixed(1000));
    make(&e, "empty", &fixed(1000));
    let mut s = e.session();
    begin(&mut s);
    fill(&mut s, &t, 0..1500);
    disk.cut_power();
    let (done, answer) = std::sync::mpsc::channel();
    let core = e.core.clone();
    std::thread::spawn(move || done.send(flush_what_is_due(&core)));
    let flushed = answer.recv_timeout(Duration::from_secs(60)).expect("flushing never ends");
    assert!(matches!(flushed, Err(Error::Io(_))), "{flushed:?}");
}

/// In simulated time; 32 KiB of a tree are worth a flush when it is at rest.
fn restful(time: &Arc<SimHost>) -> Options {
    Options { host: time.clone(), run_bytes: 1 << 20, ..small() }
}

#[test]
fn what_nobody_writes_to_any_more_is_flushed() {
    let time = SimHost::new();
    let e = open_with(&SimDisk::new(6), restful(&time)).unwrap();
    let tables =
        [make(&e, "rests", &fixed(1000)), make(&e, "is_small", &fixed(1000)), make(&e, "is_busy", &fixed(1000))];
    let [rests, is_small, is_busy] = &tables;
    let mut s = e.session();
    let mut write = |t, n: std::ops::Range<u64>| {
        begin(&mut s);
        fill(&mut s, t, n);
        s.commit().unwrap();
    };
    write(rests, 0..100);
    write(is_small, 0..10);
    write(is_busy, 0..100);
    let runs = || tables.each_ref().map(|t| t.tree().snapshot().runs.len());
    for n in 1..4 {
        time.pass(REST / 3);
        assert_eq!(runs(), [0, 0, 0]);
        // Also a round of background work.
        write(is_busy, n * 1000..n * 1000 + 1);
    }
    assert_eq!(runs(), [0, 0, 0]);
    time.pass(REST / 10);
    write(is_busy, 4000..4001);
    assert_eq!(runs(), [1, 0, 0]);
    assert_eq!(rests.tree().snapshot().in_memory().flushable_bytes, 0);
    drop(s);
    assert_eq!(count(&e, "rests"), 100);
}

/// What an open transaction has is carried on by a flush, and is as much afterwards.
#[test]
fn what_a_flush_at_rest_carries_on_is_not_flushed_at_once_again() {
    let time = SimHost::new();
    // What chunks of memory have besides is already worth a flush.
    let e = open_with(&SimDisk::new(7), Options { run_bytes: 32 << 10, ..restful(&time) }).unwrap();
    let t = make(&e, "t", &fixed(1000));
    let mut s = e.session();
    begin(&mut s);
    fill(&mut s, &t, 0..50);
    let freezes = || t.tree().snapshot().active.first_lsn;
    let first = freezes();
    flush_what_is_due(&e.core).unwrap();
    assert_eq!(freezes(), first);
    begin(&mut e.session());
    for _ in 0..2 {
        time.pass(REST);
        let (done, answer) = std::sync::mpsc::channel();
        let core = e.core.clone();
        std::thread::spawn(move || done.send(flush_what_is_due(&core)));
        answer.recv_timeout(Duration::from_secs(60)).expect("flushing never ends").unwrap();
        assert_ne!(freezes(), first, "nothing was flushed");
    }
    s.commit().unwrap();
    assert_eq!(count(&e, "t"), 50);
}

fn update(s: &mut Session, t: &Arc<Table>, numbers: impl Iterator<Item = u64>) {
    begin(s);
    for n in numbers {
        // SAFETY: an image of this table's layout.
        unsafe { s.update_image(t, RowId(n + 1), image(t, n + 1000).as_ptr()) }.unwrap();
    }
    s.commit().unwrap();
}

/// A table with a run of 1,000 rows, and one with newer versions of a tenth of them.
fn changed(e: &Engine, name: &str) -> Arc<Table> {
    let t = make(e, name, &fixed(1000));
    let mut s = e.session();
    begin(&mut s);
    fill(&mut s, &t, 0..1000);
    s.commit().unwrap();
    flush::tree(&e.core, &t, &t.tree()).unwrap();
    while merge_somewhere(&e.core).unwrap() {}
    update(&mut s, &t, (0..1000).step_by(10));
    flush::tree(&e.core, &t, &t.tree()).unwrap();
    t
}

/// Newer versions of a tenth of the rows stay beside them as long as somebody writes, and go into their run when nobody does.
#[test]
fn what_nobody_writes_to_any_more_is_merged() {
    let time = SimHost::new();
    let e = open_with(&SimDisk::new(8), restful(&time)).unwrap();
    let (t, mut s) = (changed(&e, "t"), e.session());
    for n in 0..4 {
        assert!(!merge_somewhere(&e.core).unwrap(), "{n}: somebody writes");
        time.pass(REST / 10 * 9);
        update(&mut s, &t, std::iter::once(n));
    }
    let rows_in_runs = || t.tree().snapshot().runs.iter().map(|h| h.run.stats.rows).sum::<u64>();
    assert_eq!(rows_in_runs(), 1100);
    assert!(!merge_somewhere(&e.core).unwrap());
    time.pass(REST);
    assert!(merge_somewhere(&e.core).unwrap(), "nobody writes any more");
    while merge_somewhere(&e.core).unwrap() {}
    assert_eq!(rows_in_runs(), 1000);
    assert_eq!(count(&e, "t"), 1000);
}

/// Trees that wait until nobody writes to them are looked at each time. Here a look at one takes 20 ms or more.
#[test]
fn looks_for_merges_that_take_long_are_rare() {
    let time = SimHost::new();
    let host = Arc::new(Slow(time.clone()));
    let e = open_with(&SimDisk::new(9), Options { host, ..restful(&time) }).unwrap();
    let (tables, mut s) = ([changed(&e, "a"), changed(&e, "b")], e.session());
    let looks = || e.core.due.looks.load(Ordering::Relaxed);
    let (since, rounds, mut looked) = (time.now(), 10, 0);
    for n in 0..rounds {
        tables.iter().for_each(|t| update(&mut s, t, std::iter::once(n)));
        let before = looks();
        merge_round(&e.core, &mut 0);
        looked += looks() - before;
    }
    assert_eq!(looked, rounds * 2, "each waits, and is looked at");
    let took = time.now() - since;
    assert!(took > Duration::from_secs(2 * rounds), "{rounds} rounds in {took:?}");
}

/// A machine that gives out so many threads, and knows how many of them run.
#[derive(Debug, Default)]
struct FewThreads {
    left: AtomicUsize,
    running: Arc<AtomicUsize>,
}

impl Host for FewThreads {
    fn now(&self) -> Duration {
        Machine.now()
    }

    fn unix(&self) -> Duration {
        Machine.unix()
    }

    fn sleep(&self, time: Duration) {
        Machine.sleep(time);
    }

    fn spawn(&self, name: &str, work: Box<dyn FnOnce() + Send>) -> std::io::Result<JoinHandle<()>> {
        let taken = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        taken.map_err(|_| std::io::Error::other("no thread is left"))?;
        let running = self.running.clone();
        running.fetch_add(1, Ordering::SeqCst);
        Machine.spawn(
            name,
            Box::new(move || {
                work();
                running.fetch_sub(1, Ordering::SeqCst);
            }),
        )
    }
}

/// Where one thread cannot be had none goes on, and none has the folder.
#[test]
fn an_opening_without_all_of_its_threads_leaves_none() {
    let disk = SimDisk::new(7);
    let mut failed = 0;
    for left in 0.. {
        let host = Arc::new(FewThreads { left: AtomicUsize::new(left), ..FewThreads::default() });
        let o = Options { background: Background::Threads, host: host.clone(), ..small() };
        match open_with(&disk, o) {
            Ok(e) => {
                assert!(host.running.load(Ordering::SeqCst) > 4);
                e.close().unwrap();
                break;
            }
            Err(e) => {
                assert!(matches!(e, Error::OutOfMemory(_)), "{e}");
                assert_eq!(host.running.load(Ordering::SeqCst), 0, "with {left} threads");
                failed += 1;
            }
        }
    }
    assert!(failed > 4, "{failed} openings failed");
}

/// Who is answered may close the engine: the thread that answers writes nothing behind that.
#[test]
fn who_is_answered_may_close_the_engine() {
    let disk = SimDisk::new(1);
    let e = open(&disk).unwrap();
    let (closed_at, engine, seen) = (Arc::new(AtomicU64::new(0)), e.clone(), disk.clone());
    let at = closed_at.clone();
    let close = move |_: Result<()>| {
        engine.close().unwrap();
        at.store(seen.op_count(), Ordering::SeqCst);
    };
    e.core.signals.request(Box::new(close));
    // Else it would make the reserve for the next opening now.
    log_round(&e.core, &mut 0);
    assert_eq!(disk.op_count(), closed_at.load(Ordering::SeqCst));
}
