//! What a flush's boundary and a checkpoint's position promise (see `flush.rs`, `checkpoint.rs`): commits, decisions and
//! first rows that fall between their steps are there after a crash, once, and the log that they need is too.

use crate::tests::support::{begin, count, insert_wide, open, open_with, options, wide};
use crate::tests::tables::Watched;
use crate::upkeep::{checkpoint, flush, merge};
use crate::*;
use esker_io::{AccessHint, Disk, File, IoKind, LockGuard, OpenMode, SimDisk};
use std::path::Path;
use std::sync::{Arc, Mutex};

type Act = Box<dyn FnOnce() + Send>;

/// A disk that does something of the test's when a run's file is opened in a certain mode.
struct Meanwhile {
    disk: SimDisk,
    at: Mutex<Option<(OpenMode, Act)>>,
}

impl Meanwhile {
    fn when(&self, mode: OpenMode, act: impl FnOnce() + Send + 'static) {
        *self.at.lock().unwrap() = Some((mode, Box::new(act)));
    }

    fn done(&self) -> bool {
        self.at.lock().unwrap().is_none()
    }
}

impl Disk for Meanwhile {
    fn open(&self, path: &Path, mode: OpenMode, hint: AccessHint) -> esker_io::Result<Arc<dyn File>> {
        if path.extension().is_some_and(|e| e == "run") {
            let act = self.at.lock().unwrap().take_if(|(wanted, _)| *wanted == mode);
            if let Some((_, act)) = act {
                act();
            }
        }
        self.disk.open(path, mode, hint)
    }
    fn create_dir(&self, path: &Path) -> esker_io::Result<()> {
        self.disk.create_dir(path)
    }
    fn list(&self, path: &Path) -> esker_io::Result<Vec<esker_io::DirEntry>> {
        self.disk.list(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> esker_io::Result<()> {
        self.disk.rename(from, to)
    }
    fn link(&self, from: &Path, to: &Path) -> esker_io::Result<()> {
        self.disk.link(from, to)
    }
    fn remove(&self, path: &Path) -> esker_io::Result<()> {
        self.disk.remove(path)
    }
    fn remove_dir(&self, path: &Path) -> esker_io::Result<()> {
        self.disk.remove_dir(path)
    }
    fn sync_dir(&self, path: &Path) -> esker_io::Result<()> {
        self.disk.sync_dir(path)
    }
    fn exists(&self, path: &Path) -> esker_io::Result<bool> {
        self.disk.exists(path)
    }
    fn lock(&self, path: &Path) -> esker_io::Result<Box<dyn LockGuard>> {
        self.disk.lock(path)
    }
    fn free_bytes(&self, path: &Path) -> esker_io::Result<u64> {
        self.disk.free_bytes(path)
    }
}

fn open_meanwhile(disk: &SimDisk, o: Options) -> (Engine, Arc<Meanwhile>) {
    let meanwhile = Arc::new(Meanwhile { disk: disk.clone(), at: Mutex::default() });
    let e = Engine::open(meanwhile.clone(), Path::new("/db"), o, Arc::new(|m, _| eprintln!("{m}"))).unwrap();
    (e, meanwhile)
}

fn tombstones_in_runs() -> Options {
    Options { bulk_threshold_bytes: 4 << 10, min_run_bytes: 1 << 10, ..options() }
}

/// A table with one row, and a transaction that has inserted 200 rows (in the shared memtable) and deleted them again (in
/// a private run).
fn inserted_and_deleted(e: &Engine) -> (Arc<Table>, Session) {
    e.create_table("t", &wide()).unwrap();
    let t = e.open_table("t").unwrap();
    let mut s = e.session();
    begin(&mut s);
    insert_wide(&mut s, &t, 0, 1);
    s.commit().unwrap();
    let mut w = e.session();
    begin(&mut w);
    let ids: Vec<_> = (1..=200).map(|n| insert_wide(&mut w, &t, n, 0)).collect();
    w.begin_statement();
    for id in &ids {
        w.delete(&t, *id).unwrap();
    }
    w.end_statement();
    (t, w)
}

#[test]
fn rows_committed_between_two_tries_of_a_flush_stay_deleted() {
    let disk = SimDisk::new(1);
    let e = open_with(&disk, tombstones_in_runs()).unwrap();
    let (t, mut w) = inserted_and_deleted(&e);
    // Frozen, and not further: a full disk.
    disk.fail_once(disk.op_count() + 1, IoKind::DiskFull);
    flush::tree(&e.core, &t, &t.tree()).unwrap_err();
    w.commit().unwrap();
    flush::tree(&e.core, &t, &t.tree()).unwrap();
    while merge::once(&e.core, &t, &t.tree()).unwrap() {}
    assert_eq!(count(&e, "t"), 1);
    drop((w, t, e));
    disk.crash();
    let e = open_with(&disk, tombstones_in_runs()).unwrap();
    assert_eq!(count(&e, "t"), 1, "deleted rows are back");
}

#[test]
fn rows_committed_while_their_run_is_written_stay_deleted() {
    for two_phases in [false, true] {
        let disk = SimDisk::new(1);
        let (e, meanwhile) = open_meanwhile(&disk, tombstones_in_runs());
        let (t, mut w) = inserted_and_deleted(&e);
        if two_phases {
            w.prepare(b"x").unwrap();
        }
        meanwhile.when(OpenMode::Create, move || w.commit().unwrap());
        flush::tree(&e.core, &t, &t.tree()).unwrap();
        assert!(meanwhile.done(), "no commit fell into the flush");
        while merge::once(&e.core, &t, &t.tree()).unwrap() {}
        assert_eq!(count(&e, "t"), 1);
        drop((t, e));
        disk.crash();
        let e = open_with(&disk, tombstones_in_runs()).unwrap();
        assert_eq!(count(&e, "t"), 1, "deleted rows are back");
    }
}

/// Prepared before the freeze, decided when the flush has read the memtable: the versions move on, and so does the need for the log
/// that has their redo.
#[test]
fn a_decision_during_a_flush_survives() {
    let disk = SimDisk::new(1);
    let watched = Watched(disk.clone(), Arc::default());
    let e = crate::tests::tables::open_on(Arc::new(watched.clone()), options());
    e.create_table("t", &wide()).unwrap();
    let t = e.open_table("t").unwrap();
    let mut s = e.session();
    begin(&mut s);
    insert_wide(&mut s, &t, 0, 1);
    s.commit().unwrap();
    let mut w = e.session();
    begin(&mut w);
    insert_wide(&mut w, &t, 1, 1);
    w.prepare(b"x").unwrap();
    watched.when_synced(move || w.commit().unwrap());
    flush::tree(&e.core, &t, &t.tree()).unwrap();
    assert_eq!(count(&e, "t"), 2, "no decision fell into the flush");
    checkpoint::write(&e.core).unwrap();
    drop((s, t, e));
    disk.crash();
    let e = open(&disk).unwrap();
    assert_eq!(count(&e, "t"), 2, "an acknowledged row is lost");
}

/// A checkpoint passes an empty memtable; the first row that it then gets must not call the log back, which is gone.
#[test]
fn the_first_row_of_an_idle_table_does_not_bring_the_log_back() {
    let disk = SimDisk::new(1);
    let o = Options { wal_segment_bytes: 64 << 10, ..options() };
    let e = open_with(&disk, o.clone()).unwrap();
    e.create_table("idle", &wide()).unwrap();
    e.create_table("busy", &wide()).unwrap();
    let (idle, busy) = (e.open_table("idle").unwrap(), e.open_table("busy").unwrap());
    let begun = e.core.wal.stats().first;
    let mut s = e.session();
    for n in 0..40 {
        begin(&mut s);
        insert_wide(&mut s, &busy, n, 10_000);
        s.commit().unwrap();
    }
    flush::tree(&e.core, &busy, &busy.tree()).unwrap();
    checkpoint::write(&e.core).unwrap();
    let (from, first) = (e.status().replay_from, e.core.wal.stats().first);
    assert!(first > begun, "no segment was recycled");
    begin(&mut s);
    insert_wide(&mut s, &idle, 1, 5);
    s.commit().unwrap();
    checkpoint::write(&e.core).unwrap();
    assert!(e.status().replay_from >= from, "replay would begin before the checkpoint");
    drop((s, idle, busy, e));
    disk.crash();
    let e = open_with(&disk, o).unwrap();
    assert_eq!((count(&e, "idle"), count(&e, "busy")), (1, 40));
}

/// An unended version is carried while a checkpoint that found its new memtable empty is under way: its commit's record must
/// not be recycled by the next one.
#[test]
fn what_a_flush_carries_keeps_the_log_from_its_boundary() {
    let disk = SimDisk::new(1);
    let o = Options { wal_segment_bytes: 64 << 10, ..options() };
    let e = open_with(&disk, o.clone()).unwrap();
    e.create_table("t", &wide()).unwrap();
    let t = e.open_table("t").unwrap();
    let mut w = e.session();
    begin(&mut w);
    insert_wide(&mut w, &t, 1, 1);
    let boundary = e.core.wal.end_lsn();
    flush::tree(&e.core, &t, &t.tree()).unwrap();
    assert!(t.tree().snapshot().active.needs_from() <= boundary);
    w.commit().unwrap();
    checkpoint::write(&e.core).unwrap();
    checkpoint::write(&e.core).unwrap();
    assert!(e.status().replay_from <= boundary);
    drop((w, t, e));
    disk.crash();
    let e = open_with(&disk, o).unwrap();
    assert_eq!(count(&e, "t"), 1);
}

/// What a flush would carry was rolled back, and its transaction stays open: the log goes on being shortened, and nobody
/// waits for it.
#[test]
fn rolled_back_versions_of_an_open_transaction_pin_no_log() {
    const TARGET: u64 = 64 << 10;
    let disk = SimDisk::new(1);
    let o = Options { recovery_target_bytes: Some(TARGET), wal_segment_bytes: 64 << 10, ..options() };
    let e = open_with(&disk, o).unwrap();
    for name in ["t", "u"] {
        e.create_table(name, &wide()).unwrap();
    }
    let (t, u) = (e.open_table("t").unwrap(), e.open_table("u").unwrap());
    let mut open = e.session();
    begin(&mut open);
    insert_wide(&mut open, &u, 1, 10);
    open.end_statement();
    let point = open.savepoint();
    open.begin_statement();
    insert_wide(&mut open, &t, 2, 10);
    open.rollback_to(&point);
    flush::tree(&e.core, &t, &t.tree()).unwrap();
    let mut s = e.session();
    let mut longest = 0;
    for n in 0..1000 {
        begin(&mut s);
        insert_wide(&mut s, &u, n, 500);
        s.commit().unwrap();
        longest = longest.max(e.core.wal.end_lsn().0 - e.core.signals.replay_from().0);
    }
    assert!(e.core.wal.end_lsn().0 > 10 * TARGET, "too little log for its length to say anything");
    assert!(longest < 2 * TARGET, "a log of {longest} bytes is needed");
}

/// A commit whose record lies below a flush's boundary, and whose status word comes after the freeze: the flush waits for
/// it, for nothing replays the record once the tree is flushed that far.
#[test]
fn a_flush_waits_for_the_status_of_commits_below_its_boundary() {
    let disk = SimDisk::new(1);
    let e = open(&disk).unwrap();
    e.create_table("t", &wide()).unwrap();
    let t = e.open_table("t").unwrap();
    let mut s = e.session();
    begin(&mut s);
    insert_wide(&mut s, &t, 1, 10);
    let flusher = Arc::new(Mutex::new(None));
    let (core, table, started) = (e.core.clone(), t.clone(), flusher.clone());
    crate::tests::hooks::at("commit has its record", move || {
        let tree = table.tree();
        let flushed_before = tree.snapshot().flushed_to;
        let (frozen, done) = (tree.clone(), tree.clone());
        let flush = std::thread::spawn(move || flush::tree(&core, &table, &tree));
        crate::tests::support::until(|| {
            !frozen.snapshot().frozen.is_empty() || frozen.snapshot().flushed_to > flushed_before
        });
        // One that does not wait is over by then.
        (0..200).take_while(|_| done.snapshot().flushed_to == flushed_before).for_each(|_| {
            std::thread::sleep(std::time::Duration::from_millis(1));
        });
        *started.lock().unwrap() = Some(flush);
    });
    s.commit().unwrap();
    let flush = flusher.lock().unwrap().take().expect("the commit did not come by");
    flush.join().unwrap().unwrap();
    drop((s, t, e));
    disk.crash();
    let e = open(&disk).unwrap();
    let t = e.open_table("t").unwrap();
    assert_eq!(e.session().count_rows(&t).unwrap(), 1, "committed, and gone after a crash");
}
