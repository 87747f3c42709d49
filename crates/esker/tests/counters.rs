//! Every counter that is shown moves in some workload: none is a promise that nobody keeps. A process of its own, since
//! counters are the process's.

#![allow(clippy::unwrap_used)]

use esker::base::phase::{figures, CommitPhase};
use esker::base::trace::Source;
use esker::base::{global_total, Counter};
use esker::format::{Column, ColumnKind, ColumnMask, Compression, Layout, RowFormat, RowId};
use esker::io::{AccessHint, DirEntry, Disk, File, LockGuard, OpenMode};
use esker::{
    Background, BeginOptions, Direction, Engine, Error, Host, IndexDef, IndexPlan, Isolation, KeyPart, LockMode,
    Options, PosixDisk, ScanOptions, Session, SyncMethod, Table, TableDef,
};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

const IMAGE_BYTES: usize = 513;

struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn fresh_folder(name: &str) -> Folder {
    let folder = Folder(std::env::temp_dir().join(format!("esker-counters-{name}-{}", std::process::id())));
    let _ = std::fs::remove_dir_all(&folder.0);
    folder
}

/// What a crash at this moment would leave.
fn copy_files(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(|e| e.unwrap().path()) {
        let target = to.join(entry.file_name().unwrap());
        match entry.is_dir() {
            true => copy_files(&entry, &target),
            false => drop(std::fs::copy(&entry, &target).unwrap()),
        }
    }
}

/// A disk on which new runs come to be only while `open`: who needs memory or a shorter log has to wait.
struct Gate {
    disk: PosixDisk,
    open: AtomicBool,
    /// Files of the log that are opened from now on have slow syncs.
    slow: AtomicBool,
}

const SLOW: Duration = Duration::from_millis(10);

struct SlowSync(Arc<dyn File>);

impl File for SlowSync {
    fn path(&self) -> &Path {
        self.0.path()
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> esker::io::Result<()> {
        self.0.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> esker::io::Result<()> {
        self.0.write_at(buf, offset)
    }
    fn sync_data(&self) -> esker::io::Result<()> {
        std::thread::sleep(SLOW);
        self.0.sync_data()
    }
    fn sync_all(&self) -> esker::io::Result<()> {
        self.0.sync_all()
    }
    fn size_bytes(&self) -> esker::io::Result<u64> {
        self.0.size_bytes()
    }
    fn set_size(&self, size_bytes: u64) -> esker::io::Result<()> {
        self.0.set_size(size_bytes)
    }
    fn reserve(&self, offset: u64, size_bytes: u64) -> esker::io::Result<()> {
        self.0.reserve(offset, size_bytes)
    }
}

/// Where the file system does not tell who answers reads, it is made up: both of them by turns.
struct Answering(Arc<dyn File>, AtomicU64);

impl File for Answering {
    fn path(&self) -> &Path {
        self.0.path()
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> esker::io::Result<()> {
        self.0.read_at(buf, offset)
    }
    fn read_at_from(&self, buf: &mut [u8], offset: u64) -> esker::io::Result<Option<Source>> {
        let made_up = match self.1.fetch_add(1, Ordering::Relaxed) % 2 {
            0 => Source::Device,
            _ => Source::PageCache,
        };
        Ok(self.0.read_at_from(buf, offset)?.or(Some(made_up)))
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> esker::io::Result<()> {
        self.0.write_at(buf, offset)
    }
    fn sync_data(&self) -> esker::io::Result<()> {
        self.0.sync_data()
    }
    fn sync_all(&self) -> esker::io::Result<()> {
        self.0.sync_all()
    }
    fn size_bytes(&self) -> esker::io::Result<u64> {
        self.0.size_bytes()
    }
    fn set_size(&self, size_bytes: u64) -> esker::io::Result<()> {
        self.0.set_size(size_bytes)
    }
    fn reserve(&self, offset: u64, size_bytes: u64) -> esker::io::Result<()> {
        self.0.reserve(offset, size_bytes)
    }
}

impl Disk for Gate {
    fn open(&self, path: &Path, mode: OpenMode, hint: AccessHint) -> esker::io::Result<Arc<dyn File>> {
        while mode == OpenMode::Create
            && path.extension().is_some_and(|e| e == "run")
            && !self.open.load(Ordering::Acquire)
        {
            std::thread::sleep(Duration::from_millis(1));
        }
        let file = self.disk.open(path, mode, hint)?;
        let slow = self.slow.load(Ordering::Acquire) && hint == AccessHint::Log;
        Ok(match (slow, mode) {
            (true, _) => Arc::new(SlowSync(file)),
            (false, OpenMode::Read) => Arc::new(Answering(file, AtomicU64::new(0))),
            (false, _) => file,
        })
    }
    fn create_dir(&self, path: &Path) -> esker::io::Result<()> {
        self.disk.create_dir(path)
    }
    fn list(&self, path: &Path) -> esker::io::Result<Vec<DirEntry>> {
        self.disk.list(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> esker::io::Result<()> {
        self.disk.rename(from, to)
    }
    fn link(&self, from: &Path, to: &Path) -> esker::io::Result<()> {
        self.disk.link(from, to)
    }
    fn remove(&self, path: &Path) -> esker::io::Result<()> {
        self.disk.remove(path)
    }
    fn remove_dir(&self, path: &Path) -> esker::io::Result<()> {
        self.disk.remove_dir(path)
    }
    fn sync_dir(&self, path: &Path) -> esker::io::Result<()> {
        self.disk.sync_dir(path)
    }
    fn exists(&self, path: &Path) -> esker::io::Result<bool> {
        self.disk.exists(path)
    }
    fn lock(&self, path: &Path) -> esker::io::Result<Box<dyn LockGuard>> {
        self.disk.lock(path)
    }
    fn free_bytes(&self, path: &Path) -> esker::io::Result<u64> {
        self.disk.free_bytes(path)
    }
}

fn open(gate: &Arc<Gate>, folder: &Folder, longest_log: u64, background: Background) -> Engine {
    let options = Options {
        memory_limit_bytes: 8 << 20,
        bulk_threshold_bytes: 16 << 10,
        bulk_buffer_bytes: 256 << 10,
        min_run_bytes: 64 << 10,
        block_bytes: 8 << 10,
        wal_segment_bytes: 1 << 20,
        recovery_target_bytes: Some(longest_log),
        background,
        ..Options::default()
    };
    Engine::open(gate.clone(), &folder.0, options, Arc::new(|_, _| {})).unwrap()
}

fn table(engine: &Engine, name: &str) -> Arc<Table> {
    table_with(engine, name, Vec::new())
}

fn table_with(engine: &Engine, name: &str, indexes: Vec<IndexDef>) -> Arc<Table> {
    compressed_table(engine, name, indexes, Compression::None)
}

fn compressed_table(engine: &Engine, name: &str, indexes: Vec<IndexDef>, compression: Compression) -> Arc<Table> {
    let column = |offset, width| Column { kind: ColumnKind::Fixed { width }, offset, null: None };
    let layout = Layout {
        image_bytes: IMAGE_BYTES as u32,
        head_bytes: 1,
        columns: vec![column(1, 8), column(9, IMAGE_BYTES as u32 - 9)],
    };
    let format = RowFormat::Dynamic;
    engine
        .create_table(name, &TableDef { layout, format, compression, temporary: false, indexes, extra: vec![] })
        .unwrap();
    engine.open_table(name).unwrap()
}

fn image(n: u64) -> [u8; IMAGE_BYTES] {
    let mut image = [0; IMAGE_BYTES];
    let mut random = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for byte in &mut image[9..] {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        *byte = (random >> 56) as u8;
    }
    image[1..9].copy_from_slice(&n.to_le_bytes());
    image
}

fn begin(s: &mut Session) {
    s.set_lock_wait(Duration::from_secs(20), false);
    s.begin(Isolation::ReadCommitted, BeginOptions::default());
    s.begin_statement();
}

fn insert(s: &mut Session, t: &Arc<Table>, rows: u64) -> Vec<RowId> {
    begin(s);
    let ids = (0..rows).map(|n| unsafe { s.insert_image(t, image(n).as_ptr()) }.unwrap()).collect();
    s.commit().unwrap();
    ids
}

fn scan(s: &mut Session, t: &Arc<Table>) -> u64 {
    let mut cursor = s.scan(t, ScanOptions { mask: ColumnMask::all(2), ..ScanOptions::default() }).unwrap();
    let mut rows = 0;
    loop {
        match cursor.next_batch(s).unwrap().ids.len() {
            0 => return rows,
            n => rows += n as u64,
        }
    }
}

/// Statements and transactions of every kind and end.
fn transactions(e: &Engine) {
    let (t, mut s) = (table(e, "small"), e.session());
    let ids = insert(&mut s, &t, 10);
    begin(&mut s);
    unsafe { s.update_image(&t, ids[0], image(100).as_ptr()) }.unwrap();
    s.rollback_statement();
    s.delete(&t, ids[1]).unwrap();
    s.rollback().unwrap();
    begin(&mut s);
    unsafe { s.update_image(&t, ids[0], image(101).as_ptr()) }.unwrap();
    s.delete(&t, ids[1]).unwrap();
    s.prepare(b"xid").unwrap();
    s.commit_ordered();
    // Another one's view carries the decision out.
    let mut other = e.session();
    begin(&mut other);
    scan(&mut other, &t);
    s.commit().unwrap();
    other.commit().unwrap();
    begin(&mut s);
    assert_eq!((scan(&mut s, &t), s.count(&t).unwrap()), (9, 9));
    s.commit().unwrap();
    passed(e);
}

/// What an older view passes over, in memory and, once it was flushed beside what the view sees, in a run.
fn passed(e: &Engine) {
    let (t, mut s, mut old) = (table(e, "passed"), e.session(), e.session());
    let ids = insert(&mut s, &t, 4);
    old.begin(Isolation::RepeatableRead, BeginOptions::default());
    assert_eq!(scan(&mut old, &t), 4);
    begin(&mut s);
    for id in &ids[..2] {
        unsafe { s.update_image(&t, *id, image(7).as_ptr()) }.unwrap();
    }
    s.commit().unwrap();
    let passed = |s: &mut Session| {
        let counters = s.counters();
        let before = counters.get(Counter::VersionsPassed);
        let _bound = esker::base::counters::bind(&counters);
        assert_eq!(scan(s, &t), 4);
        counters.get(Counter::VersionsPassed) - before
    };
    assert_eq!((passed(&mut old), passed(&mut s)), (2, 0));
    e.checkpoint().unwrap();
    assert_eq!((passed(&mut old), passed(&mut s)), (2, 0));
    old.rollback().unwrap();
}

/// A wait that ends by timeout, and a circle.
fn locks(e: &Engine) {
    let (t, mut a, mut b) = (table(e, "locked"), e.session(), e.session());
    let ids = insert(&mut a, &t, 2);
    let lock = |s: &mut Session, row| {
        let options =
            ScanOptions { mask: ColumnMask::all(2), lock: Some(LockMode::Exclusive), ..ScanOptions::default() };
        s.open_cursor(&t, options).and_then(|mut c| c.fetch(s, row).map(|_| ()))
    };
    begin(&mut a);
    lock(&mut a, ids[0]).unwrap();
    begin(&mut b);
    b.set_lock_wait(Duration::from_millis(2), false);
    assert!(matches!(lock(&mut b, ids[0]), Err(Error::LockTimeout)));
    b.set_lock_wait(Duration::from_secs(20), false);
    lock(&mut b, ids[1]).unwrap();
    let refused = std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let refused = lock(&mut a, ids[1]).is_err();
            a.rollback().unwrap();
            refused
        });
        let refused = lock(&mut b, ids[0]).is_err();
        b.rollback().unwrap();
        refused || other.join().unwrap()
    });
    assert!(refused, "two sessions that wait for each other");
}

/// Loads, large deletes, merges, a cache that is too small, a mark over whole blocks; an index with them.
fn large(e: &Engine) {
    let encoding = esker::format::key_bytes::key_encoding::UNSIGNED;
    let part = KeyPart { column: 0, prefix_bytes: 0, descending: false, encoding, collation: 0 };
    let index = IndexDef { name: "n".into(), unique: true, parts: vec![part] };
    let (t, mut s) = (table_with(e, "large", vec![index]), e.session());
    let ids = insert(&mut s, &t, 40_000);
    for read_blocks in [1, 1, 8] {
        begin(&mut s);
        s.set_read_blocks(read_blocks);
        assert_eq!(scan(&mut s, &t), 40_000);
        s.commit().unwrap();
    }
    begin(&mut s);
    let mut by_n =
        s.open_index_cursor(&t, 0, ScanOptions { mask: ColumnMask::all(2), ..ScanOptions::default() }).unwrap();
    // SAFETY: an image of the table.
    let (key, is_one) = unsafe { t.key_prefix(0, image(7).as_ptr(), 1) }.unwrap();
    assert!(is_one);
    by_n.seek_key(&mut s, &key, Direction::Forward).unwrap();
    assert_eq!(by_n.next_batch(&mut s).unwrap().ids.len(), 1);
    s.commit().unwrap();
    begin(&mut s);
    for id in ids.iter().step_by(3) {
        s.delete(&t, *id).unwrap();
    }
    s.commit().unwrap();
    s.end_statement();
    e.checkpoint().unwrap();
    e.optimize(&t, &mut |_, _| true).unwrap();
    // A key that is gone, and one that is there.
    let again = |s: &mut Session, n| unsafe { s.insert_image(&t, image(n).as_ptr()) };
    begin(&mut s);
    again(&mut s, 30_000).unwrap();
    assert!(matches!(again(&mut s, 30_001), Err(Error::DuplicateKey { .. })));
    s.rollback().unwrap();
    // Deleted, it comes again where it was, unless its deletion went into a run meanwhile.
    until_moved(Counter::RowIdsKept, || {
        begin(&mut s);
        s.delete(&t, ids[30_001]).unwrap();
        again(&mut s, 30_001).unwrap();
        s.rollback().unwrap();
    });
    let another = IndexDef { name: "m".into(), unique: false, parts: vec![part] };
    let built = e.build_indexes(&t, &[IndexPlan::Add(another)], &mut |_, _| true).unwrap();
    e.alter_indexes(vec![built]).unwrap();
    // An entry that no other row can have waits for others.
    begin(&mut s);
    again(&mut s, 40_000).unwrap();
    s.rollback_statement();
    again(&mut s, 40_000).unwrap();
    s.commit().unwrap();
    e.analyze(&t, &mut |_, _| true).unwrap();
}

/// Rows looked up again and again, that compress well and take more than there is memory.
fn hot(e: &Engine) {
    let (t, mut s) = (compressed_table(e, "hot", Vec::new(), Compression::Lz4), e.session());
    let ids = insert(&mut s, &t, 40_000);
    begin(&mut s);
    let mut cursor = s.scan(&t, ScanOptions { mask: ColumnMask::all(2), ..ScanOptions::default() }).unwrap();
    until_moved(Counter::BlocksUnpacked, || {
        ids.iter().step_by(5).for_each(|id| assert!(cursor.fetch(&mut s, *id).unwrap().is_some()));
    });
    drop(cursor);
    s.commit().unwrap();
}

/// Rows deleted in most of one of two runs, and a few in the other: merged into the first, left beside the second.
fn narrowed(e: &Engine) {
    let (t, mut s) = (table(e, "narrowed"), e.session());
    let (first, second) = (insert(&mut s, &t, 2_000), insert(&mut s, &t, 2_000));
    e.checkpoint().unwrap();
    begin(&mut s);
    for id in first.iter().take(1_500).step_by(3).chain(second.iter().step_by(500)) {
        s.delete(&t, *id).unwrap();
    }
    s.commit().unwrap();
    e.checkpoint().unwrap();
    until_done(Counter::RunsNarrowed, || std::thread::sleep(Duration::from_millis(1)));
}

/// A few rows of a run that somebody changed, read until readers have paid for a merge.
fn read(e: &Engine) {
    let (t, mut s) = (table(e, "read"), e.session());
    let ids = insert(&mut s, &t, 300);
    e.checkpoint().unwrap();
    begin(&mut s);
    for id in ids.iter().step_by(30) {
        unsafe { s.update_image(&t, *id, image(7).as_ptr()) }.unwrap();
    }
    s.commit().unwrap();
    e.checkpoint().unwrap();
    // The merge is another thread's.
    until_done(Counter::MergesForReads, || {
        begin(&mut s);
        assert_eq!(scan(&mut s, &t), 300);
        s.commit().unwrap();
    });
}

/// A run of deleted rows that an old view keeps and of newer ones, merged: its deleted blocks are not read.
fn mark(e: &Engine) {
    let (t, mut old, mut s) = (table(e, "marked"), e.session(), e.session());
    insert(&mut s, &t, 2_000);
    old.begin(Isolation::RepeatableRead, BeginOptions::default());
    assert_eq!(scan(&mut old, &t), 2_000);
    begin(&mut s);
    s.delete_all(&t).unwrap();
    s.commit().unwrap();
    insert(&mut s, &t, 2_000);
    e.optimize(&t, &mut |_, _| true).unwrap();
    begin(&mut s);
    assert_eq!(scan(&mut s, &t), 2_000);
    s.commit().unwrap();
    assert_eq!(scan(&mut old, &t), 2_000);
    old.rollback().unwrap();
    // A reader behind whose back memtables become runs.
    begin(&mut s);
    let mut cursor = s.scan(&t, ScanOptions { mask: ColumnMask::all(2), ..ScanOptions::default() }).unwrap();
    assert!(!cursor.next_batch(&mut s).unwrap().ids.is_empty());
    insert(&mut old, &t, 1);
    e.checkpoint().unwrap();
    assert!(!cursor.next_batch(&mut s).unwrap().ids.is_empty());
    drop(cursor);
    s.commit().unwrap();
}

/// A load into many tables at once, and what open transactions have when a flush comes.
fn unended(e: &Engine) {
    let tables: Vec<_> = (0..100).map(|i| table(e, &format!("part {i}"))).collect();
    let mut s = e.session();
    begin(&mut s);
    for n in 0..20_000 {
        unsafe { s.insert_image(&tables[n as usize % 100], image(n).as_ptr()) }.unwrap();
    }
    s.commit().unwrap();
    for (rows, sessions) in [(1, 1), (24, 60)] {
        let mut open: Vec<_> = (0..sessions).map(|_| e.session()).collect();
        for s in &mut open {
            begin(s);
            for n in 0..rows {
                unsafe { s.insert_image(&tables[0], image(n).as_ptr()) }.unwrap();
            }
        }
        e.checkpoint().unwrap();
        open.iter_mut().for_each(|s| s.commit().unwrap());
    }
}

/// A writer that outruns the flush, until it has to wait.
fn stall(e: &Engine, gate: &Gate, name: &str, stalls: Counter) {
    let t = table(e, name);
    gate.open.store(false, Ordering::Release);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut s = e.session();
            // Far more than there is room for: fails rather than goes on for ever.
            (0..20_000).take_while(|_| global_total(stalls) == 0).for_each(|_| drop(insert(&mut s, &t, 8)));
        });
        while !writer.is_finished() && global_total(stalls) == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        gate.open.store(true, Ordering::Release);
        writer.join().unwrap();
    });
}

/// One flipped bit.
fn damage(e: &Engine, folder: &Folder) {
    let (t, mut s) = (table(e, "damaged"), e.session());
    let before = runs(folder);
    insert(&mut s, &t, 2_000);
    let fresh: Vec<_> = runs(folder).into_iter().filter(|r| !before.contains(r)).collect();
    for run in fresh {
        let mut bytes = std::fs::read(&run).unwrap();
        bytes[10_000] ^= 1;
        std::fs::write(&run, bytes).unwrap();
    }
    assert!(!e.check(&t, &mut |_, _| true).unwrap().damages.is_empty());
}

/// A clock that goes on by a minute whenever somebody looks at it.
#[derive(Debug, Default)]
struct Hurried(AtomicU64);

impl Host for Hurried {
    fn now(&self) -> Duration {
        Duration::from_secs(60 * self.0.fetch_add(1, Ordering::Relaxed))
    }
    fn unix(&self) -> Duration {
        self.now()
    }
    fn sleep(&self, _: Duration) {}
}

/// A tree to which nothing is written any more.
fn at_rest(folder: &Folder) {
    let host = Arc::new(Hurried::default());
    let options = Options { background: Background::Inline, run_bytes: 1 << 20, host, ..Options::default() };
    let disk = Arc::new(PosixDisk::with_uring(2));
    let e = Engine::open(disk, &folder.0, options, Arc::new(|m, _| eprintln!("{m}"))).unwrap();
    for (name, rows) in [("rests", 500), ("another", 1), ("yet another", 1)] {
        insert(&mut e.session(), &table(&e, name), rows);
    }
    e.close().unwrap();
}

fn runs(folder: &Folder) -> Vec<PathBuf> {
    std::fs::read_dir(folder.0.join("runs")).unwrap().map(|f| f.unwrap().path()).collect()
}

/// Committers who come back at once, who do not come back, and who come back late.
fn groups(e: &Engine) {
    let t = table(e, "groups");
    let together = |pause: fn(usize)| {
        std::thread::scope(|scope| {
            for n in 0..4 {
                let t = &t;
                scope.spawn(move || {
                    let mut s = e.session();
                    for _ in 0..12 {
                        insert(&mut s, t, 1);
                        pause(n);
                    }
                });
            }
        });
    };
    until_moved(Counter::GroupClosedByAll, || together(|_| {}));
    until_moved(Counter::GroupClosedByTime, || {
        together(|_| {});
        insert(&mut e.session(), &t, 1);
    });
    until_moved(Counter::GroupClosedByCost, || together(|n| std::thread::sleep(SLOW * 3 * n as u32)));
}

/// Does it until threads in the background have done what is counted, however busy they and the machine are.
fn until_done(counter: Counter, mut meanwhile: impl FnMut()) {
    let began = Instant::now();
    while global_total(counter) == 0 && began.elapsed() < Duration::from_secs(60) {
        meanwhile();
    }
}

fn until_moved(counter: Counter, mut work: impl FnMut()) {
    for _ in 0..100 {
        work();
        if global_total(counter) > 0 {
            return;
        }
    }
}

/// Commits by each way to make a log durable.
fn sync_methods(folder: &Folder) {
    for method in [SyncMethod::Dsync, SyncMethod::Uring] {
        let options = Options { sync_method: Some(method), ..Options::default() };
        let e =
            Engine::open(Arc::new(PosixDisk::new()), &folder.0, options, Arc::new(|m, _| eprintln!("{m}"))).unwrap();
        insert(&mut e.session(), &table(&e, method.name()), 1);
        e.close().unwrap();
    }
}

#[test]
fn every_counter_moves() {
    let folder = fresh_folder("first");
    let gate = Gate { disk: PosixDisk::with_uring(2), open: AtomicBool::new(true), slow: AtomicBool::new(false) };
    let gate = Arc::new(gate);
    let e = open(&gate, &folder, 1 << 20, Background::Threads);
    transactions(&e);
    locks(&e);
    large(&e);
    hot(&e);
    narrowed(&e);
    read(&e);
    mark(&e);
    unended(&e);
    stall(&e, &gate, "long log", Counter::LogStalls);
    e.close().unwrap();
    let e = open(&gate, &folder, 1 << 30, Background::Threads);
    stall(&e, &gate, "crowded", Counter::MemoryStalls);
    e.checkpoint().unwrap();
    e.close().unwrap();
    // From here on no thread changes files while they are copied or damaged.
    let e = open(&gate, &folder, 1 << 30, Background::Inline);
    // What the log alone has is replayed.
    insert(&mut e.session(), &e.open_table("small").unwrap(), 5);
    let copy = fresh_folder("copy");
    copy_files(&folder.0, &copy.0);
    e.close().unwrap();
    let e = open(&gate, &copy, 1 << 30, Background::Inline);
    damage(&e, &copy);
    at_rest(&fresh_folder("rest"));
    sync_methods(&fresh_folder("sync methods"));
    gate.slow.store(true, Ordering::Release);
    groups(&open(&gate, &fresh_folder("groups"), 1 << 30, Background::Inline));
    let still: Vec<_> = Counter::ALL.iter().filter(|c| global_total(**c) == 0).map(|c| c.name()).collect();
    assert!(still.is_empty(), "counters that never moved: {still:?}");
    let unseen: Vec<_> = CommitPhase::ALL.iter().filter(|p| figures(**p).count == 0).map(|p| p.name()).collect();
    assert!(unseen.is_empty(), "phases of commit that nothing went through: {unseen:?}");
}
