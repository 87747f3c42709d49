//! Background work: flush, merge, checkpoint, log segments, files to remove, memory to give back.
//!
//! One thread merges, another does all the rest, so that a long merge holds nothing up; in inline mode the writers do it
//! at fixed points. An error of a full disk is tried again, and meanwhile told to writers that need memory; any other
//! stops writing, and so does a panic.

use crate::core::Core;
use crate::options::{Background, Level};
use crate::run::Run;
use crate::tree::Tree;
use crate::{Error, Result};
use esker_format::Lsn;
use esker_trace::lock::{Condvar, Mutex};
use esker_trace::memory::{charged, Account};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Rate at which replay is assumed to go, in bytes a second; low for any disk of today.
pub const REPLAY_BYTES_PER_SECOND: u64 = 64 << 20;
const TICK: Duration = Duration::from_millis(100);
/// A writer waits for memory this long at most, in ticks; then it goes on, and the limit is passed.
const MOST_WAIT_TICKS: u32 = 100;
/// Time between syncs of what commits did not wait for.
const LAZY_SYNC: Duration = Duration::from_secs(1);

/// What sessions tell the background thread, and what it tells them.
pub(crate) struct Signals {
    wanted: Mutex<bool>,
    wake: Condvar,
    /// Why flushing does not get on, for those who wait for it.
    trouble: Mutex<Option<Error>>,
    flush_done: Condvar,
    /// Bytes of memtables that a flush would free, as of the last tick.
    flushable_bytes: AtomicU64,
    trash: Mutex<Vec<Arc<Run>>>,
    requests: Mutex<Vec<Box<dyn FnOnce() + Send>>>,
    stop: AtomicBool,
    replay_from: AtomicU64,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Signals {
    pub(crate) fn new() -> Self {
        Signals {
            wanted: Mutex::new("background.wanted", false),
            wake: Condvar::new(),
            trouble: Mutex::new("background.trouble", None),
            flush_done: Condvar::new(),
            flushable_bytes: AtomicU64::new(0),
            trash: Mutex::new("background.trash", Vec::new()),
            requests: Mutex::new("background.requests", Vec::new()),
            stop: AtomicBool::new(false),
            replay_from: AtomicU64::new(0),
            threads: Mutex::new("background.threads", Vec::new()),
        }
    }

    pub(crate) fn wake(&self) {
        *self.wanted.lock() = true;
        self.wake.notify_one();
    }

    /// Lets these runs' files be removed by somebody who has time.
    pub(crate) fn discard(&self, runs: Vec<Arc<Run>>) {
        self.trash.lock().extend(runs);
        self.wake();
    }

    /// Waits until `enough` says so, a flush meets trouble, or the wait has become long.
    pub(crate) fn wait_for_flush(&self, enough: impl Fn() -> bool) -> Result<()> {
        self.wake();
        let mut trouble = self.trouble.lock();
        for _ in 0..MOST_WAIT_TICKS {
            if enough() {
                break;
            }
            if let Some(e) = &*trouble {
                return Err(e.clone());
            }
            self.flush_done.wait_for(&mut trouble, TICK);
        }
        Ok(())
    }

    pub(crate) fn flushable_bytes(&self) -> u64 {
        self.flushable_bytes.load(Ordering::Relaxed)
    }

    /// Is the engine being closed?
    pub(crate) fn stopping(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    pub(crate) fn set_replay_from(&self, lsn: Lsn) {
        self.replay_from.store(lsn.0, Ordering::Relaxed);
    }

    pub(crate) fn replay_from(&self) -> Lsn {
        Lsn(self.replay_from.load(Ordering::Relaxed))
    }

    pub(crate) fn request(&self, done: Box<dyn FnOnce() + Send>) {
        self.requests.lock().push(done);
        self.wake();
    }
}

/// Starts the background thread.
pub(crate) fn start(core: &Arc<Core>) -> Result<()> {
    if core.options.background == Background::Inline {
        return Ok(());
    }
    for (name, work) in [("esker-flush", keep_house as fn(&Core, &mut Rhythm)), ("esker-merge", merge)] {
        let weak = Arc::downgrade(core);
        let thread = std::thread::Builder::new()
            .name(name.into())
            .spawn(move || run(&weak, work))
            .map_err(|e| Error::OutOfMemory(format!("background thread: {e}")))?;
        core.signals.threads.lock().push(thread);
    }
    Ok(())
}

/// Ends the background threads and waits for them.
pub(crate) fn stop(core: &Core) {
    core.signals.stop.store(true, Ordering::Release);
    core.signals.wake();
    let threads = std::mem::take(&mut *core.signals.threads.lock());
    for thread in threads {
        let _ = thread.join();
    }
    core.signals.trash.lock().clear();
}

/// What a background thread remembers from one round to the next.
struct Rhythm {
    complained: bool,
    swept: Instant,
    synced: Instant,
}

/// Rounds of `work` until the engine is closed or gone. A panic stops writing, not the process.
fn run(core: &Weak<Core>, work: fn(&Core, &mut Rhythm)) {
    let now = Instant::now();
    let mut rhythm = Rhythm { complained: false, swept: now, synced: now };
    loop {
        let Some(core) = core.upgrade() else { return };
        if core.signals.stopping() {
            return;
        }
        let round = std::panic::AssertUnwindSafe(|| work(&core, &mut rhythm));
        if std::panic::catch_unwind(round).is_err() {
            core.poison("a panic in a background thread");
        }
    }
}

/// One round of everything but merging.
fn keep_house(core: &Core, rhythm: &mut Rhythm) {
    {
        let mut wanted = core.signals.wanted.lock();
        if !*wanted {
            core.signals.wake.wait_for(&mut wanted, TICK);
        }
        *wanted = false;
    }
    let trash = std::mem::take(&mut *core.signals.trash.lock());
    let had_trash = !trash.is_empty();
    drop(trash);
    if had_trash || rhythm.swept.elapsed() >= LAZY_SYNC {
        rhythm.swept = Instant::now();
        core.cache.sweep();
        esker_trace::memory::trim();
    }
    if core.is_poisoned() {
        // What they ask about will not become durable: they are let go unanswered.
        core.signals.requests.lock().clear();
        return;
    }
    let result = core.tick(rhythm);
    *core.signals.trouble.lock() = result.as_ref().err().cloned();
    core.judge(result, rhythm);
    core.signals.flush_done.notify_all();
}

/// One round of merging: one merge, or a pause.
fn merge(core: &Core, rhythm: &mut Rhythm) {
    let result = if core.is_poisoned() { Ok(false) } else { core.merge_somewhere() };
    let more = matches!(result, Ok(true));
    core.judge(result.map(|_| ()), rhythm);
    if !more {
        std::thread::sleep(TICK);
    }
}

impl Core {
    /// What an error of background work means.
    fn judge(&self, result: Result<()>, rhythm: &mut Rhythm) {
        match result {
            Ok(()) => rhythm.complained = false,
            Err(Error::Interrupted) => {}
            Err(Error::Poisoned(why)) => self.poison(&why),
            // A merge that met a damaged block leaves its run alone.
            Err(e) if e.can_be_tried_again() => {
                if !rhythm.complained {
                    (self.notify)(&format!("background work: {e}"), Level::Warning);
                }
                rhythm.complained = true;
                std::thread::sleep(TICK);
            }
            Err(e) => self.poison(&e.to_string()),
        }
    }

    fn tick(&self, rhythm: &mut Rhythm) -> Result<()> {
        self.answer_requests()?;
        self.wal.prepare_segments()?;
        if self.flush_mode() != crate::FlushMode::EveryCommit && rhythm.synced.elapsed() >= LAZY_SYNC {
            rhythm.synced = Instant::now();
            self.wal.sync_all()?;
        }
        self.relieve_memory()?;
        self.shorten_log()?;
        Ok(())
    }

    /// Does one merge that is worth it; false if there is none.
    fn merge_somewhere(&self) -> Result<bool> {
        for (table, tree) in self.trees() {
            if self.wants_merge(&tree) && self.merge_once(&table, &tree, false)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Syncs the log for those who asked to be told, and tells them.
    fn answer_requests(&self) -> Result<()> {
        let requests = std::mem::take(&mut *self.signals.requests.lock());
        if requests.is_empty() {
            return Ok(());
        }
        // On failure nobody is told: what they ask about is not durable.
        self.wal.sync_all()?;
        for request in requests {
            request();
        }
        Ok(())
    }

    /// Flushes the largest memtables until they fit the budget; true if anything was done. What open cursors pin and
    /// what transactions have to themselves does not count: no flush frees it.
    fn relieve_memory(&self) -> Result<bool> {
        let mut done = false;
        loop {
            let trees = self.trees();
            let sizes = trees.iter().map(|(_, tree)| memtable_bytes(tree));
            let total: usize = sizes.clone().sum();
            self.signals.flushable_bytes.store(total as u64, Ordering::Relaxed);
            if total as u64 <= self.memtable_budget() {
                return Ok(done);
            }
            let Some((at, before)) = sizes.enumerate().max_by_key(|(_, bytes)| *bytes) else { return Ok(done) };
            let (table, tree) = &trees[at];
            self.flush(table, tree)?;
            self.signals.flush_done.notify_all();
            done = true;
            if memtable_bytes(tree) >= before {
                return Ok(done);
            }
        }
    }

    /// Keeps the log's tail as short as the recovery target asks; true if anything was done.
    fn shorten_log(&self) -> Result<bool> {
        let limit = u64::from(self.options.recovery_target_seconds.max(1)) * REPLAY_BYTES_PER_SECOND;
        let end = self.wal.end_lsn();
        if end.0.saturating_sub(self.signals.replay_from().0) <= limit {
            return Ok(false);
        }
        let oldest_wanted = end.0.saturating_sub(limit / 2);
        for (table, tree) in self.trees() {
            let oldest = tree.snapshot().memtables().filter(|m| !m.is_empty()).map(|m| m.needs_from().0).min();
            if oldest.is_some_and(|o| o < oldest_wanted) {
                self.flush(&table, &tree)?;
            }
        }
        self.checkpoint()?;
        Ok(true)
    }

    /// A writer's part of background work in inline mode.
    pub(crate) fn after_write(&self) {
        if self.options.background == Background::Threads {
            if charged(Account::Memtable) > self.memtable_budget() {
                self.signals.wake();
            }
            return;
        }
        let work = self
            .wal
            .prepare_segments()
            .map_err(Error::from)
            .and_then(|()| self.relieve_memory())
            .and_then(|_| self.shorten_log());
        match work {
            Ok(_) | Err(Error::Poisoned(_)) => {}
            Err(e) if e.can_be_tried_again() => {}
            Err(e) => self.poison(&e.to_string()),
        }
    }

    /// Something has become worth merging, perhaps.
    pub(crate) fn maintenance_wanted(&self) {
        if self.options.background == Background::Threads {
            self.signals.wake();
        }
    }

    /// All background work that there is, now.
    pub(crate) fn settle_all(&self) -> Result<()> {
        for (table, tree) in self.trees() {
            self.flush(&table, &tree)?;
            while self.merge_once(&table, &tree, false)? {}
        }
        self.checkpoint()
    }
}

fn memtable_bytes(tree: &Tree) -> usize {
    tree.snapshot().memtables().filter(|m| !m.is_empty()).map(|m| m.used_bytes()).sum()
}
