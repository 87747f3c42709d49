//! A disk that watches the log's writes, and short ways of opening a log.
#![allow(dead_code, clippy::unwrap_used)]

use esker_format::{FolderId, Lsn};
use esker_io::{AccessHint, DirEntry, Disk, File, IoError, IoKind, LockGuard, OpenMode, Result, SimDisk, SyncMethod};
use esker_wal::{replay, Wal, WalError, WalOptions, SECTOR_BYTES};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub const DIR: &str = "/data/wal";

/// What happened to one file under one name: sectors written since the last sync, and those a sync covers.
#[derive(Default)]
struct Sectors {
    written: BTreeSet<u64>,
    synced: BTreeSet<u64>,
}

pub type Pause = Arc<dyn Fn() + Send + Sync>;

#[derive(Default)]
pub struct Seen {
    files: BTreeMap<PathBuf, Sectors>,
    pub writes: u64,
    /// Syncs, and writes that were synced by the same call.
    pub syncs: u64,
    /// Writes that were made durable by their own call.
    pub durable_writes: u64,
    pub bytes: u64,
    /// Changes of sizes and names while the commit path ran.
    pub metadata: u64,
}

/// Passes everything on, and panics when a sector of a segment that a sync covered is written again.
#[derive(Clone)]
pub struct Watch {
    pub disk: SimDisk,
    pub seen: Arc<Mutex<Seen>>,
    /// Called before and after each write and sync of a file.
    pub pause: Pause,
    /// Methods that the system does not have.
    pub refuses: Vec<SyncMethod>,
    /// Files say that they share their blocks with others.
    pub shares: Arc<AtomicBool>,
    /// Nobody can tell whether they do.
    pub is_blind: Arc<AtomicBool>,
}

struct Watched {
    file: Arc<dyn File>,
    seen: Arc<Mutex<Seen>>,
    pause: Pause,
    refuses: Vec<SyncMethod>,
    shares: Arc<AtomicBool>,
    is_blind: Arc<AtomicBool>,
}

impl Watch {
    pub fn new(disk: SimDisk) -> Self {
        let (shares, is_blind) = Default::default();
        Watch { disk, seen: Arc::default(), pause: Arc::new(|| {}), refuses: Vec::new(), shares, is_blind }
    }
    pub fn counts(&self) -> (u64, u64, u64) {
        let seen = self.seen.lock().unwrap();
        (seen.writes, seen.syncs, seen.metadata)
    }
    fn metadata(&self) {
        self.seen.lock().unwrap().metadata += 1;
    }
}

fn is_segment(path: &Path) -> bool {
    path.extension().is_some_and(|e| e == "wal")
}

impl Disk for Watch {
    fn open(&self, path: &Path, mode: OpenMode, hint: AccessHint) -> Result<Arc<dyn File>> {
        assert_eq!(hint, AccessHint::Log);
        let file = self.disk.open(path, mode, hint)?;
        Ok(Arc::new(Watched {
            file,
            seen: self.seen.clone(),
            pause: self.pause.clone(),
            refuses: self.refuses.clone(),
            shares: self.shares.clone(),
            is_blind: self.is_blind.clone(),
        }))
    }
    fn create_dir(&self, path: &Path) -> Result<()> {
        self.disk.create_dir(path)
    }
    fn fresh_id(&self) -> [u8; 16] {
        self.disk.fresh_id()
    }
    fn list(&self, path: &Path) -> Result<Vec<DirEntry>> {
        self.disk.list(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.metadata();
        let mut seen = self.seen.lock().unwrap();
        seen.files.remove(from);
        drop(seen);
        self.disk.rename(from, to)
    }
    fn link(&self, from: &Path, to: &Path) -> Result<()> {
        self.disk.link(from, to)
    }
    fn remove(&self, path: &Path) -> Result<()> {
        self.metadata();
        self.seen.lock().unwrap().files.remove(path);
        self.disk.remove(path)
    }
    fn remove_dir(&self, path: &Path) -> Result<()> {
        self.disk.remove_dir(path)
    }
    fn sync_dir(&self, path: &Path) -> Result<()> {
        self.metadata();
        self.disk.sync_dir(path)
    }
    fn exists(&self, path: &Path) -> Result<bool> {
        self.disk.exists(path)
    }
    fn lock(&self, path: &Path) -> Result<Box<dyn LockGuard>> {
        self.disk.lock(path)
    }
    fn free_bytes(&self, path: &Path) -> Result<u64> {
        self.disk.free_bytes(path)
    }
}

impl File for Watched {
    fn path(&self) -> &Path {
        self.file.path()
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.file.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.note_write(buf, offset);
        (self.pause)();
        let result = self.file.write_at(buf, offset);
        (self.pause)();
        result
    }
    fn write_durably(&self, buf: &[u8], offset: u64, method: SyncMethod) -> Result<()> {
        if self.refuses.contains(&method) {
            return Err(IoError::new("write durably", self.path(), Some(offset), IoKind::Failed, "not supported"));
        }
        if method == SyncMethod::Fdatasync {
            self.write_at(buf, offset)?;
            return self.sync_data();
        }
        self.note_write(buf, offset);
        (self.pause)();
        let result = self.file.write_durably(buf, offset, method);
        if is_segment(self.path()) {
            let mut seen = self.seen.lock().unwrap();
            seen.syncs += 1;
            seen.durable_writes += 1;
            let Sectors { written, synced } = seen.files.entry(self.path().to_owned()).or_default();
            let covered = offset / SECTOR_BYTES..(offset + buf.len() as u64) / SECTOR_BYTES;
            let (now, later) = std::mem::take(written)
                .into_iter()
                .partition(|sector| method.covers_earlier() || covered.contains(sector));
            synced.extend::<BTreeSet<_>>(now);
            *written = later;
        }
        (self.pause)();
        result
    }
    fn sync_data(&self) -> Result<()> {
        (self.pause)();
        let result = self.file.sync_data();
        if is_segment(self.path()) {
            let mut seen = self.seen.lock().unwrap();
            seen.syncs += 1;
            let sectors = seen.files.entry(self.path().to_owned()).or_default();
            let written = std::mem::take(&mut sectors.written);
            sectors.synced.extend(written);
        }
        (self.pause)();
        result
    }
    fn sync_all(&self) -> Result<()> {
        self.seen.lock().unwrap().metadata += 1;
        self.file.sync_all()
    }
    fn size_bytes(&self) -> Result<u64> {
        self.file.size_bytes()
    }
    fn set_size(&self, size_bytes: u64) -> Result<()> {
        self.seen.lock().unwrap().metadata += 1;
        self.file.set_size(size_bytes)
    }
    fn reserve(&self, offset: u64, size_bytes: u64) -> Result<()> {
        self.file.reserve(offset, size_bytes)
    }
    fn owns_space(&self) -> Result<bool> {
        match self.is_blind.load(Ordering::Relaxed) {
            true => Err(IoError::new("ask for the extents of", self.path(), None, IoKind::Failed, "planned")),
            false => Ok(!self.shares.load(Ordering::Relaxed)),
        }
    }
}

impl Watched {
    /// Before a write: counts it, and looks at what it goes over.
    fn note_write(&self, buf: &[u8], offset: u64) {
        assert_eq!(
            (offset % SECTOR_BYTES, buf.len() as u64 % SECTOR_BYTES, buf.as_ptr() as u64 % SECTOR_BYTES),
            (0, 0, 0)
        );
        if is_segment(self.path()) {
            assert!(offset > 0, "a header was written under a segment's name");
            let mut seen = self.seen.lock().unwrap();
            seen.writes += 1;
            seen.bytes += buf.len() as u64;
            let sectors = seen.files.entry(self.path().to_owned()).or_default();
            for sector in offset / SECTOR_BYTES..(offset + buf.len() as u64) / SECTOR_BYTES {
                // Only as it is: an opening makes sure of the last frames.
                let at = (sector * SECTOR_BYTES - offset) as usize;
                let mut old = vec![0; SECTOR_BYTES as usize];
                let same = self.file.read_at(&mut old, sector * SECTOR_BYTES).is_ok() && old == buf[at..at + old.len()];
                let synced = sectors.synced.contains(&sector);
                assert!(!synced || same, "sector {sector} of {:?} was written again", self.path());
                sectors.written.insert(sector);
            }
        }
    }
}

pub type Frames = Vec<(Lsn, Vec<u8>)>;

/// [`small`], its groups made durable by the method that the seed has.
pub fn small_by(seed: u64) -> WalOptions {
    WalOptions { sync_method: Some(SyncMethod::ALL[(seed % 3) as usize]), ..small() }
}

pub fn small() -> WalOptions {
    WalOptions { segment_bytes: 5 * SECTOR_BYTES, buffer_bytes: 16 << 10, ..WalOptions::default() }
}

/// A fresh disk with the log's folder.
pub fn disk(seed: u64) -> SimDisk {
    let disk = SimDisk::new(seed);
    disk.create_dir(Path::new(DIR)).unwrap();
    for dir in ["/", "/data"] {
        disk.sync_dir(Path::new(dir)).unwrap();
    }
    disk
}

/// Opens and collects what is replayed.
pub fn open(disk: &Watch, options: WalOptions, from: Lsn) -> std::result::Result<(Wal, Frames), WalError> {
    let mut frames = Frames::new();
    let wal = Wal::open(
        Arc::new(disk.clone()),
        Path::new(DIR),
        options,
        from,
        &mut |lsn, payload| {
            frames.push((lsn, payload.to_vec()));
            Ok::<_, WalError>(())
        },
        &mut |_, _| {},
    )?;
    Ok((wal, frames))
}

/// What a replay sees without opening the log.
pub fn frames(disk: &SimDisk, from: Lsn) -> std::result::Result<Frames, WalError> {
    let mut frames = Frames::new();
    replay(
        disk,
        Path::new(DIR),
        FolderId::default(),
        from,
        &mut |lsn, payload| {
            frames.push((lsn, payload.to_vec()));
            Ok::<_, WalError>(())
        },
        &mut |_, _| {},
    )?;
    Ok(frames)
}

/// Runs a test that may wait for ever if what it tests is broken: then it fails, a long time after any that is well.
pub fn within_two_minutes(test: impl FnOnce() + Send + 'static) {
    let (done, finished) = std::sync::mpsc::channel();
    let runs = std::thread::spawn(move || {
        // Told however it ends.
        let _done: std::sync::mpsc::Sender<()> = done;
        test();
    });
    if let Err(std::sync::mpsc::RecvTimeoutError::Timeout) = finished.recv_timeout(Duration::from_secs(120)) {
        panic!("it hangs");
    }
    if let Err(panic) = runs.join() {
        std::panic::resume_unwind(panic);
    }
}

/// Sets a flag when it goes, so that who waits for it does not wait for a thread that panicked.
pub struct SetWhenDropped<'a>(pub &'a AtomicBool);

impl Drop for SetWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// The seed's next number.
pub fn random(seed: &mut u64, below: u64) -> u64 {
    *seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
    (*seed >> 33) % below
}
