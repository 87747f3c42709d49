//! Background work: flush, merge, checkpoint, the log's housekeeping, files to remove, memory to give back.
//!
//! Few threads: one for the log (segments, the sync of commits that did not wait for one, checkpoint requests), which waits
//! for no flush; two that flush beside each other and write manifests; one that merges; and the workers of large writes
//! (`large.rs`). In inline mode the writers do it at fixed points. What an error means is decided in one place,
//! [`judge`], by its kind: a log, manifest or folder that cannot be written stops writing where it happens
//! (`Writable::poison_by`); everything else is tried again, ever more slowly, and meanwhile told to writers that need
//! memory. A panic stops writing.

use crate::catalog::ddl;
use crate::catalog::table::with_tree;
use crate::core::Core;
use crate::host::{wait_for, Host};
use crate::options::{Background, Level};
use crate::tree::run::cache::AnyRun;
use crate::txn::prepared;
use crate::upkeep::next_flush::{oldest_wanted, Turn, LOOK_SHARE};
use crate::upkeep::{checkpoint, flush, merge, pressure};
use crate::{Error, Result};
use esker_base::lock::{order, Condvar, Mutex, Site};
use esker_format::{Lsn, TreeId};
use esker_memory::{charged, Account};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread::{JoinHandle, ThreadId};
use std::time::Duration;

pub(super) const TICK: Duration = Duration::from_millis(100);
/// A writer waits for memory, or for the log to become shorter, this long at most, in ticks; then it goes on.
pub(crate) const MOST_WAIT_TICKS: u32 = 100;
/// Time between syncs of what commits did not wait for, and between looks at memory that nobody needs.
const SECOND: Duration = Duration::from_secs(1);
/// Longest pause after errors, in ticks.
pub(super) const MOST_PAUSE_TICKS: u32 = 100;
/// Threads that flush.
const FLUSHERS: usize = 2;

/// Somebody who wants to know when everything committed is durable, or why it will not be.
pub(crate) type Request = Box<dyn FnOnce(Result<()>) + Send>;

/// A thread's alarm clock.
struct Alarm {
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Alarm {
    fn new(site: &'static Site) -> Alarm {
        Alarm { rung: Mutex::new(site, false), changed: Condvar::new() }
    }

    fn ring(&self) {
        *self.rung.lock() = true;
        self.changed.notify_one();
    }

    /// Sleeps until rung, a tick at most.
    fn wait(&self, host: &dyn Host) {
        let mut rung = self.rung.lock();
        if !*rung {
            wait_for(host, &self.changed, &mut rung, TICK);
        }
        *rung = false;
    }
}

/// When something was done last, by the host's clock.
struct LastTime(AtomicU64);

impl LastTime {
    fn at(now: Duration) -> Self {
        LastTime(AtomicU64::new(now.as_micros() as u64))
    }

    /// Is it as long ago as that? Then it is done now.
    fn is_over(&self, time: Duration, now: Duration) -> bool {
        let now_us = now.as_micros() as u64;
        let over = now_us.saturating_sub(self.0.load(Ordering::Relaxed)) >= time.as_micros() as u64;
        if over {
            self.0.store(now_us, Ordering::Relaxed);
        }
        over
    }
}

/// What sessions tell the background threads, and what they tell them.
pub(crate) struct Signals {
    flush_wanted: Alarm,
    log_wanted: Alarm,
    /// Why flushing does not get on, for those who wait for it, and whose trouble it is: one thread's success says nothing
    /// of another's tree.
    trouble: Mutex<Option<(ThreadId, Error)>>,
    flush_done: Condvar,
    trash: Mutex<Vec<Arc<dyn AnyRun>>>,
    requests: Mutex<Vec<Request>>,
    /// How far merging is behind in all trees, as of its last round, in bytes.
    merge_debt_bytes: AtomicU64,
    /// The tree that was merged last: the next round begins behind it.
    merged: Mutex<TreeId>,
    /// Inline work is going on: what it calls does none of its own.
    inline: AtomicBool,
    stop: AtomicBool,
    replay_from: AtomicU64,
    /// End of the log as of the last commit.
    log_end: AtomicU64,
    threads: Mutex<Vec<JoinHandle<()>>>,
    synced: LastTime,
    /// That the disk is full, and no checkpoint helps.
    told_full: AtomicBool,
    swept: LastTime,
}

impl Signals {
    pub(crate) fn new(now: Duration) -> Self {
        Signals {
            flush_wanted: Alarm::new(&order::BACKGROUND_FLUSH_WANTED),
            log_wanted: Alarm::new(&order::BACKGROUND_LOG_WANTED),
            trouble: Mutex::new(&order::BACKGROUND_TROUBLE, None),
            flush_done: Condvar::new(),
            trash: Mutex::new(&order::BACKGROUND_TRASH, Vec::new()),
            requests: Mutex::new(&order::BACKGROUND_REQUESTS, Vec::new()),
            merge_debt_bytes: AtomicU64::new(0),
            merged: Mutex::new(&order::BACKGROUND_MERGED, TreeId::default()),
            inline: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            replay_from: AtomicU64::new(0),
            log_end: AtomicU64::new(0),
            threads: Mutex::new(&order::BACKGROUND_THREADS, Vec::new()),
            synced: LastTime::at(now),
            told_full: AtomicBool::new(false),
            swept: LastTime::at(now),
        }
    }

    /// Something may be worth flushing.
    pub(crate) fn wake(&self) {
        self.flush_wanted.ring();
    }

    /// Lets these runs' files be removed by somebody who has time; now, if nobody will have.
    pub(crate) fn discard(&self, runs: Vec<Arc<dyn AnyRun>>) {
        self.trash.lock().extend(runs);
        match self.stopping() {
            true => self.empty_trash(),
            false => self.wake(),
        }
    }

    fn empty_trash(&self) {
        let trash = std::mem::take(&mut *self.trash.lock());
        drop(trash);
    }

    /// How this thread's round of flushing ended.
    fn tell_trouble(&self, error: Option<Error>) {
        let me = std::thread::current().id();
        let mut trouble = self.trouble.lock();
        match error {
            Some(e) => *trouble = Some((me, e)),
            None => drop(trouble.take_if(|(whose, _)| *whose == me)),
        }
    }

    /// Waits until `enough` says so, a flush meets trouble, or the time of so many ticks has passed: flushes, of which each wakes who
    /// waits, may be many in that.
    pub(crate) fn wait_for_flush(&self, host: &dyn Host, ticks: u32, enough: impl Fn() -> bool) -> Result<()> {
        self.wake();
        let until = host.now() + TICK * ticks;
        let mut trouble = self.trouble.lock();
        while !enough() && host.now() < until {
            if let Some((_, e)) = &*trouble {
                return Err(e.clone());
            }
            wait_for(host, &self.flush_done, &mut trouble, TICK);
        }
        Ok(())
    }

    pub(crate) fn merge_debt_bytes(&self) -> u64 {
        self.merge_debt_bytes.load(Ordering::Relaxed)
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

    /// A commit's record ends here.
    pub(crate) fn logged_to(&self, end: Lsn) {
        self.log_end.fetch_max(end.0, Ordering::Relaxed);
    }

    pub(crate) fn tail_bytes(&self) -> u64 {
        self.log_end.load(Ordering::Relaxed).saturating_sub(self.replay_from().0)
    }

    pub(crate) fn request(&self, done: Request) {
        self.requests.lock().push(done);
        self.log_wanted.ring();
    }
}

/// Starts the background threads.
pub(crate) fn start(core: &Arc<Core>) -> Result<()> {
    if core.options.background == Background::Inline {
        return Ok(());
    }
    // Those that began are known when another one does not.
    let keep = |thread| core.signals.threads.lock().push(thread);
    core.pool.start(&*core.host, &keep)?;
    let begin = |name: &str, work: fn(&Core, &mut u32)| -> Result<()> {
        let weak = Arc::downgrade(core);
        let spawned = core.host.spawn(name, Box::new(move || run(&weak, work)));
        spawned.map(keep).map_err(|e| Error::OutOfMemory(format!("background thread: {e}")))
    };
    begin("esker-log", log_round)?;
    for n in 1..=FLUSHERS {
        begin(&format!("esker-flush-{n}"), flush_round)?;
    }
    begin("esker-merge", merge_round)
}

/// Tells the background threads to end.
fn let_end(core: &Core) {
    core.signals.stop.store(true, Ordering::Release);
    core.signals.flush_wanted.ring();
    core.signals.log_wanted.ring();
    core.pool.stop();
}

/// Ends the background threads, and waits for them unless it is one of them that asks.
pub(crate) fn end(core: &Core) {
    let_end(core);
    let mut threads = std::mem::take(&mut *core.signals.threads.lock());
    threads.retain(|thread| thread.thread().id() != std::thread::current().id());
    for thread in threads {
        let _ = thread.join();
    }
}

/// The same, and what they would have answered is answered.
pub(crate) fn stop(core: &Core) {
    end(core);
    core.signals.empty_trash();
    core.flushes.forget();
    answer_requests(core);
}

/// Rounds of `work` until the engine is closed or gone. A panic stops writing, not the process.
fn run(core: &Weak<Core>, work: fn(&Core, &mut u32)) {
    let mut errors = 0;
    loop {
        let Some(core) = core.upgrade() else { return };
        if core.signals.stopping() {
            return;
        }
        let round = std::panic::AssertUnwindSafe(|| work(&core, &mut errors));
        if std::panic::catch_unwind(round).is_err() {
            core.writable.poison("a panic in a background thread");
        }
    }
}

/// One round of the log's housekeeping. `errors`, here and below: rounds in a row that ended with an error.
fn log_round(core: &Core, errors: &mut u32) {
    core.signals.log_wanted.wait(&*core.host);
    answer_requests(core);
    // Who is answered may have closed the engine.
    if core.signals.stopping() {
        return;
    }
    if core.writable.is_poisoned() {
        // By something else, perhaps.
        let _ = sync_what_is_owed(core);
        return;
    }
    // No pause: commits wait for the next sync.
    judge(core, keep_log(core), errors, 0);
}

/// Segments and space for the log, and the sync of commits that did not wait for one.
fn keep_log(core: &Core) -> Result<()> {
    let segments = core.wal.prepare_segments().map_err(Error::from);
    match segments {
        Err(Error::DiskFull(_)) => free_space(core),
        _ => core.signals.told_full.store(false, Ordering::Relaxed),
    }
    // Where there is no room for another segment there may be some in the last one.
    let result = segments.and(ddl::keep_space_in_need(core));
    match core.settings.owes_sync() && core.signals.synced.is_over(SECOND, core.host.now()) {
        true => {
            core.settings.pays_sync();
            sync_all(core).and(result)
        }
        false => result,
    }
}

/// Makes durable what was committed and is in the log's memory or file alone, where writing has stopped and the log itself is sound.
pub(crate) fn sync_what_is_owed(core: &Core) -> Result<()> {
    match core.settings.owes_sync() && core.wal.poisoned().is_none() {
        true => core.wal.sync_all().map_err(Error::from),
        false => Ok(()),
    }
}

/// One round of flushing, and of what else there is to do.
fn flush_round(core: &Core, errors: &mut u32) {
    core.signals.flush_wanted.wait(&*core.host);
    tell_unread(core);
    let trash = std::mem::take(&mut *core.signals.trash.lock());
    let had_trash = !trash.is_empty();
    drop(trash);
    if core.signals.swept.is_over(SECOND, core.host.now()) || had_trash {
        core.cache.sweep();
        esker_memory::trim();
    }
    core.cache.shrink();
    if core.writable.is_poisoned() {
        return;
    }
    let result = flush_what_is_due(core);
    core.signals.tell_trouble(result.as_ref().err().cloned());
    judge(core, result, errors, MOST_PAUSE_TICKS);
    core.signals.flush_done.notify_all();
}

/// One round of merging: one merge, or a pause. Looks take a small share of the time, however many trees wait for their time to come.
fn merge_round(core: &Core, errors: &mut u32) {
    let began = core.host.now();
    let result = if core.writable.is_poisoned() { Ok(false) } else { merge_somewhere(core) };
    let took = core.host.now().saturating_sub(began);
    let more = matches!(result, Ok(true));
    judge(core, result.map(|_| ()), errors, MOST_PAUSE_TICKS);
    if !more {
        let ticks = (took * LOOK_SHARE).as_micros() / TICK.as_micros();
        pause(core, ticks.clamp(1, MOST_PAUSE_TICKS.into()) as u32);
    }
}

/// Sleeps for so many ticks, but for an engine that is being closed.
fn pause(core: &Core, ticks: u32) {
    for _ in 0..ticks {
        if core.signals.stopping() {
            return;
        }
        core.host.sleep(TICK);
    }
}

/// What an error of background work means, by its kind. The thread pauses, the longer the more errors came in a row, for
/// so many ticks at most.
fn judge(core: &Core, result: Result<()>, errors: &mut u32, most_ticks: u32) {
    if let Some(why) = core.wal.poisoned() {
        core.writable.poison(&why);
    }
    let e = match result {
        Ok(()) => {
            *errors = 0;
            return;
        }
        Err(Error::Interrupted) => return,
        Err(e) => e,
    };
    if e.stops_writing() {
        return core.writable.poison(&e.to_string());
    }
    if *errors == 0 {
        (core.notify)(&format!("background work: {e}; it is tried again"), Level::Warning);
    }
    *errors += 1;
    let ticks = 1 << (*errors).min(7);
    pause(core, ticks.min(most_ticks) / 2);
}

/// Does one merge that is worth it, beginning behind the tree that was merged last; false if there is none. A tree
/// that cannot be merged keeps no other from it: its error is told when nothing else is left.
pub(crate) fn merge_somewhere(core: &Core) -> Result<bool> {
    let mut trees = core.due.to_merge();
    let last = *core.signals.merged.lock();
    let first = trees.partition_point(|(_, tree)| tree.id() <= last);
    trees.rotate_left(first);
    let horizon = core.views.horizon();
    let debt_bytes = trees.iter().map(|(_, tree)| tree.merge_debt_bytes()).sum();
    core.signals.merge_debt_bytes.store(debt_bytes, Ordering::Relaxed);
    let mut error = None;
    for (table, tree) in trees {
        let merged = with_tree!(&tree, tree => {
            tree.leaves_to_be_looked_at();
            let wants = merge::wanted(core, tree, horizon);
            if wants || !tree.is_settled() {
                tree.has_changed();
            }
            match wants {
                true => merge::once_unless_busy(core, &table, tree),
                false => Ok(false),
            }
        });
        match merged {
            Ok(false) => {}
            Ok(true) => {
                *core.signals.merged.lock() = tree.id();
                return Ok(true);
            }
            Err(e) if e.stops_writing() => return Err(e),
            Err(e) => error = Some(e),
        }
    }
    error.map_or(Ok(false), Err)
}

/// Tells of runs, and of damage in them, that somebody met since the last time. Not where it happens: a reader there may hold locks.
pub(crate) fn tell_unread(core: &Core) {
    let unread = std::mem::take(&mut *core.cache.unread.lock());
    for (tree, e) in unread {
        // One that was dropped or emptied has nothing to lose.
        let Some(table) = core.tables().into_iter().find(|t| t.has_tree(tree)) else { continue };
        let text = format!("table '{}': {e}; what it has there cannot be read", table.name());
        (core.notify)(&text, Level::Error);
    }
}

/// Makes all durable that was committed so far, decisions that no session has carried out yet too.
pub(crate) fn sync_all(core: &Core) -> Result<()> {
    prepared::carry_out(core);
    core.wal.sync_all().map_err(Error::from)
}

/// Syncs the log for those who asked to be told, and tells them; or why it cannot be.
pub(crate) fn answer_requests(core: &Core) {
    let requests = std::mem::take(&mut *core.signals.requests.lock());
    if requests.is_empty() {
        return;
    }
    let sync = || core.writable.check().and_then(|()| sync_all(core));
    // A panic stops writing, and whoever asked is told all the same: the binlog waits for an answer.
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(sync)).unwrap_or_else(|_| {
        core.writable.poison("a panic where commits were made durable");
        core.writable.check()
    });
    let mut panicked = None;
    for request in requests {
        // It is whoever asked that is told. That his code panics is no reason to stop, nor to leave others without an answer.
        let answer = std::panic::AssertUnwindSafe(|| request(result.clone()));
        panicked = std::panic::catch_unwind(answer).err().or(panicked);
    }
    match panicked {
        // In the thread of who asked, so to say.
        Some(panic) if core.options.background == Background::Inline => std::panic::resume_unwind(panic),
        Some(_) => (core.notify)("what asked for a checkpoint panicked when it was answered", Level::Error),
        None => {}
    }
}

/// The disk is full: gives back what nobody needs, and lets the log be shortened.
fn free_space(core: &Core) {
    core.signals.empty_trash();
    let shortened = checkpoint::write(core);
    // Once, until there is room again.
    if let Some(e) = shortened.err().filter(|_| !core.signals.told_full.swap(true, Ordering::Relaxed)) {
        (core.notify)(&format!("no checkpoint on the full disk: {e}"), Level::Warning);
    }
    core.signals.wake();
}

/// Flushes what memory and the log's length ask for, then writes a manifest if the log asks for one.
///
/// A tree that cannot be flushed keeps no other from it: its error comes at the end.
fn flush_what_is_due(core: &Core) -> Result<()> {
    tell_unread(core);
    let (mut failed, mut error) = (HashSet::new(), None);
    let mut cared = core.host.now();
    while let Some(turn) = Turn::take(core, &failed) {
        match with_tree!(turn.tree(), tree => flush::tree(core, turn.table(), tree)) {
            Ok(()) => {}
            Err(e) if e.stops_writing() => return Err(e),
            Err(e) => {
                failed.insert(turn.tree().id());
                error = Some(e);
            }
        }
        drop(turn);
        core.signals.flush_done.notify_all();
        if core.signals.stopping() {
            return Ok(());
        }
        // Who writes as fast as this flushes keeps the round from ending.
        let now = core.host.now();
        if now.saturating_sub(cared) >= SECOND {
            cared = now;
            core.signals.empty_trash();
            core.cache.shrink();
            if error.is_none() {
                core.signals.tell_trouble(None);
            }
            // What else fails in it fails no flush, and is told when the round ends.
            if let Some(e) = shorten_log(core).err().filter(Error::stops_writing) {
                return Err(e);
            }
        }
    }
    shorten_log(core)?;
    error.map_or(Ok(()), Err)
}

/// Writes a manifest if that makes the log's tail shorter and it has become long; true if it did.
fn shorten_log(core: &Core) -> Result<bool> {
    let Some(oldest) = oldest_wanted(core) else { return Ok(false) };
    let needed = core.due.in_memory().iter().filter_map(|(_, tree)| tree.needs_from()).min().unwrap_or(oldest);
    // A manifest each tick for a few bytes would help nobody.
    if needed.min(oldest).0 <= core.signals.replay_from().0 + pressure::most_tail_bytes(core) / 16 {
        return Ok(false);
    }
    checkpoint::write(core)?;
    Ok(true)
}

/// A writer's part of background work in inline mode.
pub(crate) fn after_write(core: &Core) {
    #[cfg(any(test, feature = "sim"))]
    if crate::sim_hooks::is_quiet() {
        return;
    }
    if core.options.background == Background::Threads {
        if charged(Account::Memtable) > pressure::memtable_budget(core) {
            core.signals.wake();
        }
        return;
    }
    if core.signals.inline.swap(true, Ordering::AcqRel) {
        return;
    }
    let segments = core.wal.prepare_segments().map_err(Error::from);
    if matches!(segments, Err(Error::DiskFull(_))) {
        free_space(core);
    }
    let work = flush_what_is_due(core).and(segments);
    if let Err(e) = work {
        if e.stops_writing() {
            core.writable.poison(&e.to_string());
        }
    }
    core.signals.inline.store(false, Ordering::Release);
}

/// Something has become worth merging, perhaps.
pub(crate) fn maintenance_wanted(core: &Core) {
    if core.options.background == Background::Threads {
        core.signals.wake();
    }
}

/// All background work that there is, now.
pub(crate) fn settle_all(core: &Core) -> Result<()> {
    for (table, tree) in core.trees() {
        with_tree!(tree, tree => {
            flush::tree(core, &table, &tree)?;
            loop {
                match merge::once(core, &table, &tree) {
                    Ok(true) => {}
                    Ok(false) => break,
                    // Dropped or emptied meanwhile.
                    Err(Error::Interrupted) if !table.still_has(tree.id) => break,
                    Err(e) => return Err(e),
                }
            }
        });
    }
    checkpoint::write(core)
}

/// A round of the log's thread and one of a thread that flushes, without their pauses; for simulation.
#[cfg(any(test, feature = "sim"))]
pub(crate) fn one_round(core: &Core) -> Result<()> {
    answer_requests(core);
    let log = keep_log(core);
    flush_what_is_due(core).and(log)
}

#[cfg(test)]
mod tests;
