//! What the tests inside this crate share: a small table on a disk, its rows, its files.

use crate::host::SimHost;
pub(crate) use crate::tests::support::begin;
use crate::*;
use esker_format::{Column, ColumnKind, Compression, Layout, RowFormat, RowId};
use esker_io::{AccessHint, DirEntry, Disk, File, IoError, IoKind, LockGuard, OpenMode, SimDisk};
use esker_memory::Region;
use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

/// One number of eight bytes, and sixteen more.
pub(crate) fn def() -> TableDef {
    let column = |width, offset| Column { kind: ColumnKind::Fixed { width }, offset, null: None };
    let layout = Layout { image_bytes: 25, head_bytes: 1, columns: vec![column(8, 1), column(16, 9)] };
    TableDef {
        layout,
        format: RowFormat::Dynamic,
        compression: Compression::None,
        temporary: false,
        indexes: Vec::new(),
        extra: vec![],
    }
}

pub(crate) fn img(n: u64) -> Vec<u8> {
    let mut image = vec![0u8; 25];
    image[1..9].copy_from_slice(&n.to_le_bytes());
    image[9..17].copy_from_slice(&n.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes());
    image
}

/// Time stands still: what could not be read rests until a test says that it has.
pub(crate) fn options() -> Options {
    let host = SimHost::new();
    Options { background: Background::Inline, wal_segment_bytes: 1 << 20, host, ..Options::default() }
}

pub(crate) fn open_on(disk: Arc<dyn Disk>, options: Options) -> Engine {
    Engine::open(disk, Path::new("/db"), options, Arc::new(|m, _| eprintln!("{m}"))).unwrap()
}

pub(crate) fn open(disk: &SimDisk, options: Options) -> Engine {
    open_on(Arc::new(disk.clone()), options)
}

pub(crate) fn insert(s: &mut Session, t: &Arc<Table>, n: u64) -> RowId {
    // SAFETY: an image of this table's layout.
    unsafe { s.insert_image(t, img(n).as_ptr()).unwrap() }
}

/// Inserts `rows` rows and commits.
pub(crate) fn commit_rows(s: &mut Session, t: &Arc<Table>, rows: u64) -> Vec<RowId> {
    begin(s);
    let ids = (0..rows).map(|n| insert(s, t, n)).collect();
    s.commit().unwrap();
    ids
}

/// Counts the rows that a new session sees.
pub(crate) fn rows_of(e: &Engine, t: &Arc<Table>) -> u64 {
    let mut s = e.session();
    begin(&mut s);
    let rows = s.count_rows(t).unwrap();
    assert_eq!(s.count(t).unwrap(), rows, "the number that is kept");
    s.commit().unwrap();
    rows
}

/// The names of all run files.
pub(crate) fn run_files(disk: &SimDisk) -> Vec<String> {
    disk.list(Path::new("/db/runs")).unwrap().into_iter().map(|f| f.name).collect()
}
/// Small private runs: whatever passes 4 KiB is written as runs.
pub(crate) fn small_runs() -> Options {
    Options { bulk_threshold_bytes: 4 << 10, min_run_bytes: 8 << 10, ..options() }
}

/// Deletes rows and commits.
pub(crate) fn delete_rows(s: &mut Session, t: &Arc<Table>, ids: &[RowId]) {
    begin(s);
    ids.iter().for_each(|id| s.delete(t, *id).unwrap());
    s.commit().unwrap();
}

/// A disk that counts how many files of runs are open for reading, and fails as it is told.
#[derive(Clone)]
pub(crate) struct Watched(pub(crate) SimDisk, pub(crate) Arc<Watch>);

#[derive(Default)]
pub(crate) struct Watch {
    pub(crate) open: AtomicUsize,
    pub(crate) most_open: AtomicUsize,
    pub(crate) opened: AtomicUsize,
    /// With so many runs open, opening another fails for want of handles; zero: any number.
    pub(crate) most_handles: AtomicUsize,
    /// Opening a run fails so in any case.
    pub(crate) no_handles: std::sync::atomic::AtomicBool,
    /// Reads of these files fail, after so many that go well.
    bad: Injected<HashMap<String, (usize, IoKind)>>,
    /// Reads of these that failed.
    pub(crate) failed_reads: AtomicUsize,
    /// Done when the next run is synced.
    at_sync: Injected<Option<Box<dyn FnOnce() + Send>>>,
    /// How often a run was synced.
    pub(crate) run_syncs: AtomicUsize,
    /// Creating a run fails so.
    pub(crate) bad_writes: Injected<Option<IoKind>>,
    /// Reads of runs, and the bytes that they read.
    pub(crate) run_reads: AtomicUsize,
    pub(crate) run_read_bytes: AtomicUsize,
    /// What files were told last: may the kernel read along?
    pub(crate) read_along: Injected<HashMap<String, bool>>,
    /// Writes to runs that were queued.
    pub(crate) queued: AtomicUsize,
    /// How often a run's bytes were sent to the device from the page cache.
    pub(crate) sent: AtomicUsize,
    /// Bytes written to the log's segments (not while they are prepared), to runs, and to all other files.
    pub(crate) written: [AtomicUsize; 3],
    /// Writes to runs stand still.
    held: (Mutex<bool>, Condvar),
}

/// A lock with a default.
pub(crate) struct Injected<T>(Mutex<T>);

impl<T: Default> Default for Injected<T> {
    fn default() -> Self {
        Injected(Mutex::default())
    }
}

impl<T> Injected<T> {
    pub(crate) fn set(&self, value: T) {
        *self.0.lock().unwrap() = value;
    }
}

impl Watched {
    pub(crate) fn new() -> Self {
        Watched(SimDisk::new(1), Arc::default())
    }

    pub(crate) fn most_open(&self) -> usize {
        self.1.most_open.load(Ordering::Relaxed)
    }

    pub(crate) fn opened(&self) -> usize {
        self.1.opened.load(Ordering::Relaxed)
    }

    pub(crate) fn failed_reads(&self) -> usize {
        self.1.failed_reads.load(Ordering::Relaxed)
    }

    /// From now on reads of `run` fail, but for the first `well`.
    pub(crate) fn break_reads(&self, run: &str, well: usize, kind: IoKind) {
        self.1.bad.0.lock().unwrap().insert(run.to_owned(), (well, kind));
    }

    /// Does this once the next run is written, before it is synced.
    pub(crate) fn when_synced(&self, act: impl FnOnce() + Send + 'static) {
        self.1.at_sync.set(Some(Box::new(act)));
    }

    /// What files were told since the last call, and nobody after them: may the kernel read along?
    pub(crate) fn take_read_along(&self) -> Vec<(String, bool)> {
        let told = std::mem::take(&mut *self.1.read_along.0.lock().unwrap());
        let mut told: Vec<_> = told.into_iter().collect();
        told.sort();
        told
    }

    pub(crate) fn hold_run_writes(&self) -> HeldWrites {
        *self.1.held.0.lock().unwrap() = true;
        HeldWrites(self.1.clone())
    }

    pub(crate) fn mend_reads(&self) {
        self.1.bad.0.lock().unwrap().clear();
    }
}

/// While it lives, writes to runs stand still.
pub(crate) struct HeldWrites(Arc<Watch>);

impl Drop for HeldWrites {
    fn drop(&mut self) {
        *self.0.held.0.lock().unwrap() = false;
        self.0.held.1.notify_all();
    }
}

struct WatchedFile(Arc<dyn File>, Arc<Watch>, bool);

impl WatchedFile {
    fn before_write(&self, bytes: usize) {
        let at = match self.path().extension().and_then(|e| e.to_str()) {
            Some("wal") => 0,
            Some("spare") => return,
            Some("run") => 1,
            _ => 2,
        };
        self.1.written[at].fetch_add(bytes, Ordering::Relaxed);
        if at == 1 {
            let held = self.1.held.0.lock().unwrap();
            drop(self.1.held.1.wait_while(held, |held| *held).unwrap());
        }
    }

    fn before_sync(&self) {
        if self.path().extension().is_some_and(|e| e == "run") {
            self.1.run_syncs.fetch_add(1, Ordering::Relaxed);
            let act = self.1.at_sync.0.lock().unwrap().take();
            if let Some(act) = act {
                act();
            }
        }
    }
}

impl Drop for WatchedFile {
    fn drop(&mut self) {
        if self.2 {
            self.1.open.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Disk for Watched {
    fn open(&self, path: &Path, mode: OpenMode, hint: AccessHint) -> esker_io::Result<Arc<dyn File>> {
        let run = mode == OpenMode::Read && path.extension().is_some_and(|e| e == "run");
        let fail = |operation, kind| Err(IoError::new(operation, path, None, kind, "as planned"));
        let most = self.1.most_handles.load(Ordering::Relaxed);
        let too_many = most > 0 && self.1.open.load(Ordering::Relaxed) >= most;
        if run && (too_many || self.1.no_handles.load(Ordering::Relaxed)) {
            return fail("open", IoKind::Resources);
        }
        if matches!(hint, AccessHint::Bulk | AccessHint::Kept) {
            if let Some(kind) = *self.1.bad_writes.0.lock().unwrap() {
                return fail("create", kind);
            }
        }
        let file = self.0.open(path, mode, hint)?;
        if run {
            self.1.opened.fetch_add(1, Ordering::Relaxed);
            let open = self.1.open.fetch_add(1, Ordering::Relaxed) + 1;
            self.1.most_open.fetch_max(open, Ordering::Relaxed);
        }
        Ok(Arc::new(WatchedFile(file, self.1.clone(), run)))
    }
    fn create_dir(&self, path: &Path) -> esker_io::Result<()> {
        self.0.create_dir(path)
    }
    fn list(&self, path: &Path) -> esker_io::Result<Vec<DirEntry>> {
        self.0.list(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> esker_io::Result<()> {
        self.0.rename(from, to)
    }
    fn link(&self, from: &Path, to: &Path) -> esker_io::Result<()> {
        self.0.link(from, to)
    }
    fn remove(&self, path: &Path) -> esker_io::Result<()> {
        self.0.remove(path)
    }
    fn remove_dir(&self, path: &Path) -> esker_io::Result<()> {
        self.0.remove_dir(path)
    }
    fn sync_dir(&self, path: &Path) -> esker_io::Result<()> {
        self.0.sync_dir(path)
    }
    fn exists(&self, path: &Path) -> esker_io::Result<bool> {
        self.0.exists(path)
    }
    fn lock(&self, path: &Path) -> esker_io::Result<Box<dyn LockGuard>> {
        self.0.lock(path)
    }
    fn free_bytes(&self, path: &Path) -> esker_io::Result<u64> {
        self.0.free_bytes(path)
    }
}

impl File for WatchedFile {
    fn path(&self) -> &Path {
        self.0.path()
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> esker_io::Result<()> {
        let name = self.path().file_name().unwrap().to_string_lossy().into_owned();
        if let Some((well, kind)) = self.1.bad.0.lock().unwrap().get_mut(&name) {
            if *well == 0 {
                self.1.failed_reads.fetch_add(1, Ordering::Relaxed);
                return Err(IoError::new("read", self.path(), Some(offset), *kind, "as planned"));
            }
            *well -= 1;
        }
        if self.2 {
            self.1.run_reads.fetch_add(1, Ordering::Relaxed);
            self.1.run_read_bytes.fetch_add(buf.len(), Ordering::Relaxed);
        }
        self.0.read_at(buf, offset)
    }
    fn read_along(&self, may: bool) {
        let name = self.path().file_name().unwrap().to_string_lossy().into_owned();
        self.1.read_along.0.lock().unwrap().insert(name, may);
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> esker_io::Result<()> {
        self.before_write(buf.len());
        self.0.write_at(buf, offset)
    }
    fn sync_data(&self) -> esker_io::Result<()> {
        self.before_sync();
        self.0.sync_data()
    }
    fn sync_all(&self) -> esker_io::Result<()> {
        self.before_sync();
        self.0.sync_all()
    }
    fn size_bytes(&self) -> esker_io::Result<u64> {
        self.0.size_bytes()
    }
    fn set_size(&self, size_bytes: u64) -> esker_io::Result<()> {
        self.0.set_size(size_bytes)
    }
    fn reserve(&self, offset: u64, size_bytes: u64) -> esker_io::Result<()> {
        self.0.reserve(offset, size_bytes)
    }
    fn write_alignment(&self) -> usize {
        self.0.write_alignment()
    }
    fn submit_write(&self, data: Region, bytes: usize, offset: u64) -> esker_io::Result<Option<Region>> {
        self.before_write(bytes);
        if self.path().extension().is_some_and(|e| e == "run") {
            self.1.queued.fetch_add(1, Ordering::Relaxed);
        }
        self.0.submit_write(data, bytes, offset)
    }
    fn write_back(&self, offset: u64, bytes: u64, wait: bool) -> esker_io::Result<()> {
        self.1.sent.fetch_add(1, Ordering::Relaxed);
        self.0.write_back(offset, bytes, wait)
    }
    fn drain(&self) -> esker_io::Result<()> {
        self.0.drain()
    }
}
