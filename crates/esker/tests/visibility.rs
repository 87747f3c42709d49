//! What a running engine tells of its files, its memory and its waits: by numbers, and while its disk answers nothing. A process
//! of its own, since accounts and counters are the process's.

#![allow(clippy::unwrap_used)]

use esker::base::counters::{bind, SessionCounters};
use esker::base::{global_total, Counter, WaitEvent};
use esker::io::{AccessHint, DirEntry, Disk, File, KnownFile, LockGuard, OpenMode};
use esker::memory::{charged, peak, Account};
use esker::{
    Background, Engine, Error, FileInfo, MemoryInfo, MemoryOwner, Options, PosixDisk, Schema, Session, Table, TableDef,
    Type,
};
use std::path::{Path, PathBuf};
use std::sync::{mpsc, Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Tests of this process take turns: what they count is the process's.
static TURN: Mutex<()> = Mutex::new(());

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let folder = Folder(std::env::temp_dir().join(format!("esker-visibility-{name}-{}", std::process::id())));
        let _ = std::fs::remove_dir_all(&folder.0);
        folder
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn open(disk: Arc<dyn Disk>, folder: &Folder, background: Background) -> Engine {
    let options = Options { background, ..Options::default() };
    Engine::open(disk, &folder.0, options, Arc::new(|_, _| {})).unwrap()
}

fn table(engine: &Engine, name: &str, temporary: bool) -> Arc<Table> {
    let schema = Schema::new().column("id", Type::U64).column("what", Type::Text(200));
    let def = TableDef { temporary, ..TableDef::of(&schema).unwrap().unique("by_id", &["id"]).unwrap() };
    engine.create_table(name, &def).unwrap();
    engine.open_table(name).unwrap()
}

fn insert(s: &mut Session, t: &Arc<Table>, ids: std::ops::Range<u64>) {
    for id in ids {
        // Nothing that could be compressed away.
        let what: String =
            (0..10u64).map(|i| format!("{:016x}", (id * 10 + i).wrapping_mul(0x9e37_79b9_7f4a_7c15))).collect();
        s.insert(t, &[id.into(), what.as_str().into()]).unwrap();
    }
}

fn count(s: &mut Session, t: &Arc<Table>) -> u64 {
    let (mut rows, mut sum) = (s.rows(t).unwrap(), 0);
    while let Some(row) = rows.next().unwrap() {
        sum += u64::from(!row.get::<String>("what").unwrap().is_empty());
    }
    drop(rows);
    s.commit().unwrap();
    sum
}

/// Files of a kind: how many, and their reads, bytes read, writes and bytes written.
fn sum<'a>(files: impl IntoIterator<Item = &'a FileInfo>) -> [u64; 6] {
    files.into_iter().fold([0; 6], |sum, f| {
        let f = &f.figures;
        let one = [1, f.reads, f.read_bytes, f.writes, f.write_bytes, f.syncs];
        std::array::from_fn(|i| sum[i] + one[i])
    })
}

#[test]
fn files_tell_what_was_done_to_them() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = Folder::new("files");
    let totals = |what: [Counter; 5]| what.map(global_total);
    let of_runs =
        [Counter::ReadsRun, Counter::BytesReadRun, Counter::WritesRun, Counter::BytesWrittenRun, Counter::SyncsRun];
    let of_log =
        [Counter::ReadsWal, Counter::BytesReadWal, Counter::WritesWal, Counter::BytesWrittenWal, Counter::SyncsWal];
    // Others of this process may have had their turn before.
    let began = totals(of_runs);
    let engine = open(Arc::new(PosixDisk::new()), &folder, Background::Inline);
    let (t, u) = (table(&engine, "db/t", false), table(&engine, "db/u", true));
    let mut s = engine.session();
    insert(&mut s, &t, 0..3000);
    insert(&mut s, &u, 0..10);
    s.commit().unwrap();
    engine.checkpoint().unwrap();
    let files = engine.files();
    let of = |files: &[FileInfo], kind: &str, table: &str| -> Vec<FileInfo> {
        files.iter().filter(|f| f.kind == kind && f.table.as_deref() == Some(table)).cloned().collect()
    };
    // Rows and entries, each in a run of its own, or both in one file.
    let runs = of(&files, "run", "db/t");
    assert!((1..=2).contains(&runs.len()), "{files:#?}");
    for run in &runs {
        assert_eq!(std::fs::metadata(&run.path).unwrap().len(), run.figures.size_bytes);
        // The last write is whole sectors, which are cut off again.
        let padding = run.figures.write_bytes - run.figures.size_bytes;
        assert!(padding < 4096, "{run:?}");
        assert!(run.figures.syncs == 1 && run.figures.writes > 0, "{run:?}");
    }
    let all_runs: Vec<_> = files.iter().filter(|f| matches!(f.kind, "run" | "temp" | "private")).collect();
    let done: Vec<_> = totals(of_runs).iter().zip(began).map(|(now, then)| now - then).collect();
    assert_eq!(sum(all_runs)[1..], done);
    let segments: Vec<_> = files.iter().filter(|f| f.kind == "log").collect();
    assert!(!segments.is_empty() && files.iter().any(|f| f.kind == "manifest"), "{files:#?}");
    // Of a segment that was made and thrown away nothing is told any more.
    assert!(sum(segments)[1..].iter().zip(totals(of_log)).all(|(told, all)| *told <= all));
    // What nobody has committed yet.
    insert(&mut s, &t, 10_000..100_000);
    let private = engine.files().into_iter().filter(|f| f.kind == "private").count();
    assert!(private > 0, "{:#?}", engine.files());
    s.rollback().unwrap();
    drop((s, t, u));
    engine.close().unwrap();
    drop(engine);

    // Nothing is read of a run until somebody wants its rows; then what is read is that file's.
    let engine = open(Arc::new(PosixDisk::new()), &folder, Background::Inline);
    let runs = of(&engine.files(), "run", "db/t");
    assert_eq!(sum(&runs)[1..], [0; 5]);
    assert!(runs.iter().all(|f| f.figures.size_bytes > 0), "{runs:#?}");
    let t = engine.open_table("db/t").unwrap();
    let before = totals(of_runs);
    assert_eq!(count(&mut engine.session(), &t), 3000);
    let read = of(&engine.files(), "run", "db/t");
    let (told, all) = (sum(&read), totals(of_runs));
    assert_eq!(told[1..3], [all[0] - before[0], all[1] - before[1]]);
    assert!(told[1] > 1 && read.iter().all(|f| f.figures.reads == 0 || f.figures.read_ns > 0));
    assert_eq!(of(&engine.files(), "temp", "db/u"), []);
    engine.drop_table("db/t").unwrap();
    drop(t);
    engine.checkpoint().unwrap();
    assert_eq!(of(&engine.files(), "run", "db/t"), []);
    assert!(engine.files().iter().all(|f| f.path.exists()), "{:#?}", engine.files());
    engine.close().unwrap();
}

fn of<'a>(list: &'a [MemoryInfo], owner: &MemoryOwner, kind: &str) -> Option<&'a MemoryInfo> {
    list.iter().find(|m| m.owner == *owner && m.kind == kind)
}

#[test]
fn memory_tells_whose_it_is() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = Folder::new("memory");
    let engine = open(Arc::new(PosixDisk::new()), &folder, Background::Inline);
    let (t, u) = (table(&engine, "db/t", false), table(&engine, "db/u", false));
    let mut s = engine.session();
    s.set_connection(7);
    s.begin_statement();
    insert(&mut s, &t, 0..100);
    s.end_statement();
    let list = engine.memory();
    for account in Account::ALL {
        let told = of(&list, &MemoryOwner::Engine, account.name()).unwrap();
        assert_eq!(told.bytes, charged(account), "{told:?}");
        assert!(told.peak_bytes == Some(peak(account)) && peak(account) >= told.bytes, "{told:?}");
        assert!(told.bytes == 0 || told.objects > 0, "{told:?}");
    }
    let redo = of(&list, &MemoryOwner::Session(7), "redo").unwrap().clone();
    // 100 rows of 160 bytes and more.
    assert!((16_000..40_000).contains(&redo.bytes) && redo.peak_bytes == Some(redo.bytes), "{redo:?}");
    let memtable = of(&list, &MemoryOwner::Table("db/t".into()), "memtable").unwrap();
    assert!(memtable.objects == 2 && memtable.bytes > 16_000, "rows and entries: {memtable:?}");
    assert_eq!(of(&list, &MemoryOwner::Table("db/u".into()), "memtable"), None);
    s.commit().unwrap();
    engine.checkpoint().unwrap();
    assert_eq!(count(&mut s, &t), 100);
    let list = engine.memory();
    let after = of(&list, &MemoryOwner::Session(7), "redo").unwrap();
    assert_eq!((after.bytes, after.objects, after.peak_bytes), (0, 0, redo.peak_bytes));
    assert_eq!(of(&list, &MemoryOwner::Table("db/t".into()), "memtable"), None);
    let [blocks, index] =
        ["block_cache", "block_index"].map(|kind| of(&list, &MemoryOwner::Table("db/t".into()), kind).cloned());
    let blocks = blocks.unwrap();
    assert_eq!(blocks.objects, 2, "one of rows, which the flush or the scan kept, and one of entries: {blocks:?}");
    assert!(blocks.bytes <= charged(Account::BlockCache), "{blocks:?}");
    assert_eq!(index.map(|i| i.objects), Some(2));
    drop((s, u));
    assert_eq!(of(&engine.memory(), &MemoryOwner::Session(7), "redo"), None);
    // A session's own figures are on an account for as long as it is there.
    let before = charged(Account::Other);
    let sessions: Vec<_> = std::iter::repeat_with(|| engine.session()).take(50).collect();
    assert_eq!(charged(Account::Other) - before, 50 * SessionCounters::BYTES);
    drop(sessions);
    assert_eq!(charged(Account::Other), before);
}

/// Of a session, or of all: how often, and how long in all and at most, in nanoseconds.
fn waited(engine: &Engine, connection: Option<u64>, event: WaitEvent) -> (u64, u64, u64) {
    let all = engine.waits();
    let found = all.iter().find(|w| w.connection == connection && w.event == event);
    found.map_or((0, 0, 0), |w| (w.count, w.sum_ns, w.max_ns))
}

#[test]
fn waits_tell_who_waited_for_what() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = Folder::new("waits");
    let engine = open(Arc::new(PosixDisk::new()), &folder, Background::Inline);
    let t = table(&engine, "db/t", false);
    let (mut a, mut b) = (engine.session(), engine.session());
    a.set_connection(1);
    b.set_connection(2);
    let (of_a, of_b) = (a.counters(), b.counters());
    engine.forget_waits();
    let bound = bind(&of_a);
    for id in 0..5 {
        insert(&mut a, &t, id..id + 1);
        a.commit().unwrap();
    }
    // Its own, and with each group's sync the process's.
    let own = waited(&engine, Some(1), WaitEvent::WalDurable);
    assert!(own.0 == 5 && own.1 >= own.2 && own.2 > 0, "{own:?}");
    assert_eq!(waited(&engine, None, WaitEvent::WalDurable), own);
    insert(&mut a, &t, 5..6);
    drop(bound);
    // A unique key that another one has and has not committed; a row that it has changed.
    let bound = bind(&of_b);
    let wait = Duration::from_millis(2);
    b.set_lock_wait(wait, false);
    assert!(matches!(b.insert(&t, &[5u64.into(), "x".into()]), Err(Error::LockTimeout)));
    b.rollback().unwrap();
    drop(bound);
    a.commit().unwrap();
    let row = {
        let mut rows = a.rows(&t).unwrap();
        rows.next().unwrap().unwrap().id()
    };
    a.commit().unwrap();
    a.delete(&t, row).unwrap();
    let bound = bind(&of_b);
    for _ in 0..3 {
        assert!(matches!(b.delete(&t, row), Err(Error::LockTimeout)));
        b.rollback().unwrap();
    }
    drop(bound);
    a.rollback().unwrap();
    for (event, count) in [(WaitEvent::KeyLock, 1), (WaitEvent::RowLock, 3), (WaitEvent::CounterLock, 0)] {
        let own = waited(&engine, Some(2), event);
        assert!(own.0 == count && own.1 >= count * wait.as_nanos() as u64, "{event:?} {own:?}");
        assert_eq!(waited(&engine, None, event), own);
        assert_eq!(waited(&engine, Some(1), event), (0, 0, 0));
    }
    let buckets: Vec<_> = engine.wait_buckets().into_iter().filter(|b| b.event == WaitEvent::RowLock).collect();
    assert_eq!(buckets.iter().map(|b| b.count).sum::<u64>(), 3);
    assert!(buckets.iter().all(|b| b.to_ns.is_none_or(|to| to > 2_000_000 && b.from_ns < to)), "{buckets:?}");
    let all = engine.waits().into_iter().find(|w| w.connection.is_none() && w.event == WaitEvent::RowLock).unwrap();
    assert!(all.p50_p99_ns.is_some_and(|(half, most)| half >= 2_000_000 && most >= half), "{all:?}");
    // From zero again, for all, and no total falls.
    let total = esker::base::wait::snapshot(WaitEvent::RowLock).count;
    engine.forget_waits();
    assert!(engine.waits().iter().all(|w| w.connection.is_none() && (w.count, w.sum_ns, w.max_ns) == (0, 0, 0)));
    assert_eq!(engine.wait_buckets(), []);
    assert_eq!(esker::base::wait::snapshot(WaitEvent::RowLock).count, total);
    drop(b);
    let bound = bind(&of_a);
    a.delete(&t, row).unwrap();
    a.commit().unwrap();
    drop(bound);
    assert_eq!(waited(&engine, Some(1), WaitEvent::WalDurable).0, 1);
}

/// A disk whose every answer can be held back.
struct Stuck {
    disk: PosixDisk,
    state: Arc<(Mutex<(bool, usize)>, Condvar)>,
}

impl Stuck {
    fn new() -> Arc<Stuck> {
        Arc::new(Stuck { disk: PosixDisk::new(), state: Arc::default() })
    }

    fn stick(&self, on: bool) {
        self.state.0.lock().unwrap().0 = on;
        self.state.1.notify_all();
    }

    /// Until so many wait for it.
    fn until_waiting(&self, count: usize) {
        let _all = self.state.1.wait_while(self.state.0.lock().unwrap(), |s| s.1 < count).unwrap();
    }
}

fn pass(state: &(Mutex<(bool, usize)>, Condvar)) {
    let mut now = state.0.lock().unwrap();
    now.1 += 1;
    state.1.notify_all();
    now = state.1.wait_while(now, |s| s.0).unwrap();
    now.1 -= 1;
}

struct StuckFile(Arc<dyn File>, Arc<(Mutex<(bool, usize)>, Condvar)>);

impl File for StuckFile {
    fn path(&self) -> &Path {
        self.0.path()
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> esker::io::Result<()> {
        pass(&self.1);
        self.0.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> esker::io::Result<()> {
        pass(&self.1);
        self.0.write_at(buf, offset)
    }
    fn sync_data(&self) -> esker::io::Result<()> {
        pass(&self.1);
        self.0.sync_data()
    }
    fn sync_all(&self) -> esker::io::Result<()> {
        pass(&self.1);
        self.0.sync_all()
    }
    fn size_bytes(&self) -> esker::io::Result<u64> {
        pass(&self.1);
        self.0.size_bytes()
    }
    fn set_size(&self, size_bytes: u64) -> esker::io::Result<()> {
        pass(&self.1);
        self.0.set_size(size_bytes)
    }
    fn reserve(&self, offset: u64, size_bytes: u64) -> esker::io::Result<()> {
        pass(&self.1);
        self.0.reserve(offset, size_bytes)
    }
}

impl Disk for Stuck {
    fn open(&self, path: &Path, mode: OpenMode, hint: AccessHint) -> esker::io::Result<Arc<dyn File>> {
        pass(&self.state);
        Ok(Arc::new(StuckFile(self.disk.open(path, mode, hint)?, self.state.clone())))
    }
    fn create_dir(&self, path: &Path) -> esker::io::Result<()> {
        pass(&self.state);
        self.disk.create_dir(path)
    }
    fn list(&self, path: &Path) -> esker::io::Result<Vec<DirEntry>> {
        pass(&self.state);
        self.disk.list(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> esker::io::Result<()> {
        pass(&self.state);
        self.disk.rename(from, to)
    }
    fn link(&self, from: &Path, to: &Path) -> esker::io::Result<()> {
        pass(&self.state);
        self.disk.link(from, to)
    }
    fn remove(&self, path: &Path) -> esker::io::Result<()> {
        pass(&self.state);
        self.disk.remove(path)
    }
    fn remove_dir(&self, path: &Path) -> esker::io::Result<()> {
        pass(&self.state);
        self.disk.remove_dir(path)
    }
    fn sync_dir(&self, path: &Path) -> esker::io::Result<()> {
        pass(&self.state);
        self.disk.sync_dir(path)
    }
    fn exists(&self, path: &Path) -> esker::io::Result<bool> {
        pass(&self.state);
        self.disk.exists(path)
    }
    fn lock(&self, path: &Path) -> esker::io::Result<Box<dyn LockGuard>> {
        self.disk.lock(path)
    }
    fn free_bytes(&self, path: &Path) -> esker::io::Result<u64> {
        pass(&self.state);
        self.disk.free_bytes(path)
    }
    fn figures(&self) -> Vec<KnownFile> {
        self.disk.figures()
    }
}

/// A disk that answers nothing holds up a commit, a CREATE TABLE, a flush and a reader, and nobody who asks what they do.
#[test]
fn a_disk_that_answers_nothing_is_told_of_all_the_same() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = Folder::new("stuck");
    let disk = Stuck::new();
    let engine = open(disk.clone(), &folder, Background::Threads);
    let t = table(&engine, "db/t", false);
    insert(&mut engine.session(), &t, 0..1);
    let mut s = engine.session();
    insert(&mut s, &t, 1..3000);
    s.commit().unwrap();
    engine.checkpoint().unwrap();
    engine.set_memory_limit(1 << 20);
    disk.stick(true);
    let (asked, answer) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| drop(table(&engine, "db/created", false)));
        scope.spawn(|| {
            let mut s = engine.session();
            insert(&mut s, &t, 5000..5001);
            s.commit().unwrap();
        });
        scope.spawn(|| engine.checkpoint().unwrap());
        disk.until_waiting(1);
        scope.spawn(|| {
            // Twice: whatever was under way at the first may have come to its wait by the second.
            for _ in 0..2 {
                let files = engine.files();
                assert!(files.iter().any(|f| f.table.as_deref() == Some("db/t")), "{files:#?}");
                assert!(engine.memory().iter().any(|m| m.owner == MemoryOwner::Engine));
                assert!(engine.status().tables >= 1 && engine.status_text().contains("db/t"));
                assert!(engine.transactions().len() <= 3);
                let _ = (engine.lock_waits(), engine.locks(), engine.wait_buckets());
                assert!(engine.waits().len() >= WaitEvent::COUNT);
                std::thread::sleep(Duration::from_millis(50));
            }
            asked.send(()).unwrap();
        });
        let answered = answer.recv_timeout(Duration::from_secs(60));
        disk.stick(false);
        answered.expect("whoever asks waits for the disk");
    });
    drop(s);
    engine.close().unwrap();
}
