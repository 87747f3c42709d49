//! Every place where the engine waits for something outside itself, counted and timed.
//!
//! Each event costs two clock readings, a few relaxed adds and, in a thread that works for a session, three stores to that
//! session's own account ([`SessionCounters::waited`](crate::SessionCounters::waited)), which is nothing beside the system
//! call or sleep that it measures. Waits for latches are the business of [`lock`](crate::lock).

use crate::counters::note_wait;
use crate::histogram::{HistogramSnapshot, SharedHistogram};
use crate::trace;
use crate::WITHOUT_FIGURES;
use parking_lot::Mutex;
use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::OnceLock;
use std::time::Instant;

macro_rules! events {
    ($($variant:ident $name:literal $class:literal $title:literal $help:literal,)+) => {
        /// What was waited for.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(usize)]
        pub enum WaitEvent {
            $(#[doc = $help] $variant,)+
        }

        impl WaitEvent {
            /// Every event, in the order of the enum.
            pub const ALL: &'static [WaitEvent] = &[$(WaitEvent::$variant,)+];
            /// How many there are.
            pub const COUNT: usize = Self::ALL.len();

            /// Name in snake_case.
            pub const fn name(self) -> &'static str {
                match self { $(WaitEvent::$variant => $name,)+ }
            }

            /// What kind of wait it is, in the words of those who know other databases.
            pub const fn class(self) -> &'static str {
                match self { $(WaitEvent::$variant => $class,)+ }
            }

            /// What people call it.
            pub const fn title(self) -> &'static str {
                match self { $(WaitEvent::$variant => $title,)+ }
            }

            /// One line for people.
            pub const fn help(self) -> &'static str {
                match self { $(WaitEvent::$variant => $help,)+ }
            }
        }
    };
}

events! {
    WalWrite "wal_write" "System I/O" "log file parallel write" "Writing to the log",
    WalSync "wal_sync" "System I/O" "log file device sync" "Syncing the log",
    WalRead "wal_read" "System I/O" "log file sequential read" "Reading the log",
    WalDurable "wal_durable" "Commit" "log file sync" "A committer, or a statement that defines, waiting until the log is durable",
    WalGather "wal_gather" "Commit" "log file sync gather" "The leader of a sync waiting for committers who are about to come",
    WalSpace "wal_space" "Configuration" "log buffer space" "Waiting for room in the log's buffer or segments",
    RunWrite "run_write" "User I/O" "direct path write" "Writing run files",
    RunWriteQueue "run_write_queue" "User I/O" "direct path write queue" "Waiting for queued writes of run files",
    RunSync "run_sync" "User I/O" "db file sync" "Syncing run files",
    RunRead "run_read" "User I/O" "db file sequential read" "Reading run files",
    ManifestWrite "manifest_write" "System I/O" "control file parallel write" "Writing the manifest and other metadata",
    ManifestSync "manifest_sync" "System I/O" "control file sync" "Syncing the manifest and other metadata",
    ManifestRead "manifest_read" "System I/O" "control file sequential read" "Reading the manifest and other metadata",
    DirSync "dir_sync" "System I/O" "directory sync" "Syncing folders",
    FileName "file_name" "User I/O" "Disk file operations I/O" "Opening, renaming, linking and removing files",
    RowLock "row_lock" "Application" "enq: TX - row lock contention" "Waiting for a row lock",
    KeyLock "key_lock" "Application" "enq: TX - unique key" "Waiting for another's change of a key: a unique one that is wanted, or an entry that is read with a lock",
    RangeLock "range_lock" "Application" "enq: TM - all rows" "Waiting for the lock on all rows of a table",
    EndLock "end_lock" "Application" "enq: TX - transaction end" "Waiting for the end of a transaction that inserts",
    CounterLock "counter_lock" "Application" "enq: SQ - auto_increment" "Waiting for a table's AUTO_INCREMENT counter",
    MemoryStall "memory_stall" "Configuration" "free buffer waits" "A writer waiting for memory",
    FlushStall "flush_stall" "Configuration" "slowed by flush" "A committer waiting for flushes and merges",
    BulkWorker "bulk_worker" "Other" "bulk writer" "A bulk statement waiting for its background writer",
    CommitLock "commit_lock" "Concurrency" "latch: commit" "Waiting for the commit lock",
    Definition "definition" "Concurrency" "library cache lock" "A statement that defines waiting for another one",
    Checkpoint "checkpoint" "Other" "checkpoint completed" "FLUSH LOGS, or a commit that the binary log does not decide after a crash, waiting until all of the log so far is durable; no manifest is written for it",
}

impl WaitEvent {
    /// Does the thread sleep in it for certain? A read may be answered at once, from memory.
    fn sleeps(self) -> bool {
        !matches!(self, WaitEvent::RunRead | WaitEvent::WalRead | WaitEvent::ManifestRead)
    }
}

static WAITS: [SharedHistogram; WaitEvent::COUNT] = [const { SharedHistogram::new() }; WaitEvent::COUNT];
/// The longest of each since [`forget`].
static LONGEST_NS: [AtomicU64; WaitEvent::COUNT] = [const { AtomicU64::new(0) }; WaitEvent::COUNT];
/// What they were at [`forget`], if there was one.
static FORGOTTEN: Mutex<Option<Box<[HistogramSnapshot; WaitEvent::COUNT]>>> = Mutex::new(None);

/// Runs `work` and records how long it took.
#[inline]
pub fn timed<T>(event: WaitEvent, work: impl FnOnce() -> T) -> T {
    measured(event, work).0
}

/// The same; with its result, how many nanoseconds that was.
#[inline]
pub fn measured<T>(event: WaitEvent, work: impl FnOnce() -> T) -> (T, u64) {
    if WITHOUT_FIGURES {
        return (work(), 0);
    }
    let _told = tell(event);
    trace::begin(event.sleeps());
    let start = Instant::now();
    let result = work();
    let ns = elapsed_ns(start);
    record(event, ns);
    trace::end(event);
    (result, ns)
}

/// A wait begins that somebody else measures; [`record_traced`] ends it.
#[inline]
pub fn begin_traced() {
    trace::begin(true);
}

/// As [`record`], of a wait that began with [`begin_traced`].
pub fn record_traced(event: WaitEvent, ns: u64) {
    record(event, ns);
    trace::end(event);
}

/// How often and how long something was waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Waited {
    /// How often.
    pub count: u64,
    /// How long in all, in nanoseconds.
    pub sum_ns: u64,
    /// The longest, in nanoseconds.
    pub max_ns: u64,
}

/// One event of one session: written by the thread that is bound to it, but for what it forgot.
struct OwnWait {
    count: AtomicU64,
    sum_ns: AtomicU64,
    max_ns: AtomicU64,
    forgot_count: AtomicU64,
    forgot_ns: AtomicU64,
}

/// The waits of one session.
pub(crate) struct OwnWaits([OwnWait; WaitEvent::COUNT]);

// What a session may take for them.
const _: () = assert!(size_of::<OwnWaits>() <= 2048);

impl OwnWaits {
    pub(crate) const fn new() -> Self {
        OwnWaits(
            [const {
                OwnWait {
                    count: AtomicU64::new(0),
                    sum_ns: AtomicU64::new(0),
                    max_ns: AtomicU64::new(0),
                    forgot_count: AtomicU64::new(0),
                    forgot_ns: AtomicU64::new(0),
                }
            }; WaitEvent::COUNT],
        )
    }

    /// In the thread that is bound to the session.
    pub(crate) fn note(&self, event: WaitEvent, ns: u64) {
        let wait = &self.0[event as usize];
        let add = |to: &AtomicU64, n: u64| to.store(to.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
        add(&wait.count, 1);
        add(&wait.sum_ns, ns);
        if ns > wait.max_ns.load(Ordering::Relaxed) {
            wait.max_ns.store(ns, Ordering::Relaxed);
        }
    }

    pub(crate) fn forget(&self) {
        for wait in &self.0 {
            wait.forgot_count.store(wait.count.load(Ordering::Relaxed), Ordering::Relaxed);
            wait.forgot_ns.store(wait.sum_ns.load(Ordering::Relaxed), Ordering::Relaxed);
            wait.max_ns.store(0, Ordering::Relaxed);
        }
    }

    pub(crate) fn get(&self, event: WaitEvent) -> Waited {
        let wait = &self.0[event as usize];
        let since = |now: &AtomicU64, then: &AtomicU64| {
            // What it forgets meanwhile may be in or out.
            now.load(Ordering::Relaxed).saturating_sub(then.load(Ordering::Relaxed))
        };
        Waited {
            count: since(&wait.count, &wait.forgot_count),
            sum_ns: since(&wait.sum_ns, &wait.forgot_ns),
            max_ns: wait.max_ns.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn sum_ns_ever(&self, event: WaitEvent) -> u64 {
        self.0[event as usize].sum_ns.load(Ordering::Relaxed)
    }
}

/// Is told, in the thread that waits, when a wait begins, and when it is over (none).
pub type Listener = fn(Option<WaitEvent>);

static LISTENER: OnceLock<Listener> = OnceLock::new();

thread_local! {
    static IS_TOLD: Cell<bool> = const { Cell::new(false) };
}

/// From now on, and for ever, this one is told of waits; of those within another none is. The first one stays.
pub fn listen(listener: Listener) {
    let _ = LISTENER.set(listener);
}

/// The listener knows of a wait for as long as this lives.
pub struct Told {
    listener: Option<Listener>,
    not_send: PhantomData<*const ()>,
}

/// Tells the listener, if there is one, that a wait begins; for those that [`timed`] does not.
#[inline]
pub fn tell(event: WaitEvent) -> Told {
    let listener = LISTENER.get().filter(|_| !IS_TOLD.replace(true)).copied();
    if let Some(listener) = listener {
        listener(Some(event));
    }
    Told { listener, not_send: PhantomData }
}

impl Drop for Told {
    fn drop(&mut self) {
        if let Some(listener) = self.listener {
            listener(None);
            IS_TOLD.set(false);
        }
    }
}

/// Records a wait that was measured elsewhere, in nanoseconds.
pub fn record(event: WaitEvent, ns: u64) {
    WAITS[event as usize].record(ns);
    let longest = &LONGEST_NS[event as usize];
    if ns > longest.load(Ordering::Relaxed) {
        longest.fetch_max(ns, Ordering::Relaxed);
    }
    note_wait(event, ns);
}

/// From now on [`since_forgotten`] counts from zero; [`snapshot`] goes on.
pub fn forget() {
    let mut forgotten = FORGOTTEN.lock();
    *forgotten = Some(Box::new(std::array::from_fn(|i| WAITS[i].snapshot())));
    LONGEST_NS.iter().for_each(|longest| longest.store(0, Ordering::Relaxed));
}

/// Count, sum and distribution of an event since [`forget`], with the longest in nanoseconds.
pub fn since_forgotten(event: WaitEvent) -> (HistogramSnapshot, u64) {
    let forgotten = FORGOTTEN.lock();
    let now = snapshot(event);
    let since = forgotten.as_ref().map_or(now.clone(), |then| now.since(&then[event as usize]));
    (since, LONGEST_NS[event as usize].load(Ordering::Relaxed))
}

/// Count, sum and distribution of an event since the start of the process.
pub fn snapshot(event: WaitEvent) -> HistogramSnapshot {
    WAITS[event as usize].snapshot()
}

/// All events that occurred, with their figures.
pub fn report() -> Vec<(WaitEvent, HistogramSnapshot)> {
    let all = WaitEvent::ALL.iter().map(|&event| (event, snapshot(event)));
    all.filter(|(_, figures)| figures.count != 0).collect()
}

/// Nanoseconds since `start`; what does not fit in 64 bits is cut.
pub(crate) fn elapsed_ns(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::{bind, SessionCounters};

    #[test]
    fn the_outermost_wait_is_told() {
        thread_local! {
            static HEARD: std::cell::RefCell<Vec<Option<WaitEvent>>> = const { std::cell::RefCell::new(Vec::new()) };
        }
        listen(|event| HEARD.with(|h| h.borrow_mut().push(event)));
        timed(WaitEvent::WalDurable, || timed(WaitEvent::WalSync, || ()));
        drop(tell(WaitEvent::RowLock));
        let heard = HEARD.take();
        assert_eq!(heard, [Some(WaitEvent::WalDurable), None, Some(WaitEvent::RowLock), None]);
    }

    #[test]
    fn a_session_has_its_own_waits_from_zero() {
        let event = WaitEvent::WalGather;
        let session = SessionCounters::new();
        record(event, 7);
        assert_eq!(session.waited(event), Waited::default());
        {
            let _bound = bind(&session);
            [5, 9, 6].into_iter().for_each(|ns| record(event, ns));
        }
        assert_eq!(session.waited(event), Waited { count: 3, sum_ns: 20, max_ns: 9 });
        let ever = session.waited_ns_ever(event);
        session.forget_waits();
        assert_eq!(session.waited(event), Waited::default());
        {
            let _bound = bind(&session);
            record(event, 4);
        }
        assert_eq!(session.waited(event), Waited { count: 1, sum_ns: 4, max_ns: 4 });
        assert_eq!(session.waited_ns_ever(event) - ever, 4);
        // Whoever gets its account finds it empty.
        drop(session);
        let others: Vec<_> = std::iter::repeat_with(SessionCounters::new).take(100).collect();
        assert!(others.iter().all(|s| s.waited(event) == Waited::default()));
    }

    #[test]
    fn what_is_forgotten_is_still_in_the_total() {
        let event = WaitEvent::EndLock;
        [1, 1000].into_iter().for_each(|ns| record(event, ns));
        let (before, longest) = since_forgotten(event);
        assert_eq!((before.count, before.sum_ns, longest), (2, 1001, 1000));
        forget();
        assert_eq!((since_forgotten(event).0.count, since_forgotten(event).1), (0, 0));
        record(event, 30);
        let (since, longest) = since_forgotten(event);
        assert_eq!((since.count, since.sum_ns, longest), (1, 30, 30));
        assert_eq!(snapshot(event).count, 3);
    }

    #[test]
    fn titles_are_of_one_event_each_and_short() {
        let titles: std::collections::HashSet<_> = WaitEvent::ALL.iter().map(|event| event.title()).collect();
        assert_eq!(titles.len(), WaitEvent::COUNT);
        assert!(WaitEvent::ALL.iter().all(|e| e.title().len() <= 64 && e.class().len() <= 16 && !e.name().is_empty()));
    }

    #[test]
    fn timed_counts_and_returns_the_result() {
        let before = snapshot(WaitEvent::Checkpoint);
        assert_eq!(timed(WaitEvent::Checkpoint, || 42), 42);
        record(WaitEvent::Checkpoint, 1000);
        let since = snapshot(WaitEvent::Checkpoint).since(&before);
        assert_eq!(since.count, 2);
        assert!(since.sum_ns >= 1000);
        assert!(report().iter().any(|(event, _)| *event == WaitEvent::Checkpoint));
    }
}
