//! What a traced session notes in the thread that works for it: each wait, what it was for, and how much of the time was the
//! processor's.
//!
//! A thread has a [`Recorder`] from a statement's begin to its end, or none: then a wait pays one look at a flag of the
//! thread's own. Nothing here writes a file or takes a lock; what does not fit is summed by its kind, so that no time is lost.
//! A wait within another is noted and marked, its time is part of the outer one's. A panic in here ends the recorder, and not the
//! work that it looks at.

mod calls;

use crate::wait::WaitEvent;
use calls::{Calls, CLOCK_NS};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Instant;

/// Waits that a recorder keeps until they are taken.
pub const MOST_NOTED: usize = 16 * 1024;
/// For so many there is room at first, then for twice as many each time.
const FIRST_NOTED: usize = 256;
/// Bytes of what was wanted of others that a recorder keeps until it is taken.
const MOST_WANTED_BYTES: usize = 64 * 1024;
/// Of those who had what a wait was for so many are told by name, at its begin, and so many afterwards.
pub const MOST_HOLDERS: usize = 16;

/// Who answered a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The kernel had the bytes in memory.
    PageCache,
    /// They had to come from below it.
    Device,
}

/// Bytes of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Its place in [`Recorder::paths`].
    pub file: usize,
    /// From here on.
    pub offset: u64,
    /// So many.
    pub bytes: u64,
}

/// What somebody waited for that another one had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// The table.
    pub table: String,
    /// Row, key or what else of it, in a word or two.
    pub kind: &'static str,
    /// Which, for people; none: it is the kind alone.
    pub key: Option<String>,
    /// The connection of who had it when the wait began; zero: a transaction without one.
    pub connection: u64,
    /// So many besides had it, too, or were before.
    pub others: u64,
    /// Their connections, at most [`MOST_HOLDERS`].
    pub with: Vec<u64>,
    /// So many came to have it while it was waited for.
    pub later: u64,
    /// Their connections in order, at most [`MOST_HOLDERS`].
    pub then: Vec<u64>,
}

/// Who had what was waited for, up to now.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Holders {
    /// The connections of those who had it when the wait began.
    pub first: Vec<u64>,
    /// As [`Wanted::later`].
    pub later: u64,
    /// As [`Wanted::then`].
    pub then: Vec<u64>,
}

impl Wanted {
    fn bytes(&self) -> usize {
        size_of::<Wanted>() + self.table.len() + self.key.as_ref().map_or(0, String::len) + self.bytes_of_holders()
    }

    fn bytes_of_holders(&self) -> usize {
        (self.with.len() + self.then.len()) * size_of::<u64>()
    }
}

/// In the name of a traced session another thread works: what it takes is told with the statement during which it is told.
#[derive(Debug, Clone)]
pub struct Helped(Arc<AtomicU64>);

impl Helped {
    /// Runs `work`, for the session.
    pub fn helps<T>(&self, work: impl FnOnce() -> T) -> T {
        let begin = Instant::now();
        let result = work();
        self.0.fetch_add(ns_between(begin, Instant::now()), Ordering::Relaxed);
        result
    }
}

/// Who works for the session that is traced in this thread says so by this; none: nobody asks.
pub fn helped() -> Option<Helped> {
    with_recorder(|r| Helped(r.helped_ns.clone()))
}

/// A wait that is over, or several that were summed. Times are in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Noted {
    /// What for; none: for the binary log, between a prepare and its commit.
    pub event: Option<WaitEvent>,
    /// When it began, since the recorder's origin.
    pub begin_ns: u64,
    /// How long it took.
    pub ns: u64,
    /// Of that, processor time: all of it where a read was answered at once; not measured of one within another.
    pub cpu_ns: u64,
    /// Of that, time in which the thread could have run and did not; as `cpu_ns`.
    pub ready_ns: u64,
    /// Which bytes.
    pub place: Option<Place>,
    /// Who answered.
    pub source: Option<Source>,
    /// It is part of another one, which ends later.
    pub nested: bool,
    /// How many they were.
    pub count: u64,
    /// What another one had, by its place in [`Recorder::take_wanted`].
    pub wanted: Option<usize>,
}

/// A statement's times, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// From its begin to its end.
    pub ns: u64,
    /// Processor time of the thread.
    pub cpu_ns: u64,
    /// Time in which the thread could have run and did not.
    pub ready_ns: u64,
    /// Of `cpu_ns` that within waits, those within others not counted twice.
    pub waits_cpu_ns: u64,
    /// Of `ready_ns` that within waits.
    pub waits_ready_ns: u64,
    /// Of `cpu_ns` that within calls of the engine and outside of waits; of many calls sampled.
    pub engine_ns: u64,
    /// What other threads told meanwhile that they took for the session: beside all this.
    pub helped_ns: u64,
}

/// Tells for how long this thread could have run and did not, in nanoseconds; none where the system does not tell.
pub type ReadyClock = Box<dyn FnMut() -> Option<u64> + Send>;

/// Is told how many bytes a recorder holds, whenever that changes; also within a wait.
pub type HeldBytes = Box<dyn FnMut(u64) + Send>;

struct Open {
    begin: Instant,
    /// None: it is within another, or a read that does not sleep so far; asking costs more than such a read.
    slept: Option<Slept>,
    place: Option<Place>,
    source: Option<Source>,
    wanted: Option<usize>,
}

/// A thread's clocks when a wait began in which it sleeps.
#[derive(Clone, Copy)]
struct Slept {
    cpu_ns: u64,
    ready_ns: Option<u64>,
}

/// A moment of a thread.
#[derive(Clone, Copy)]
struct Clocks {
    at: Instant,
    cpu_ns: u64,
    ready_ns: Option<u64>,
}

/// What one session's thread notes.
pub struct Recorder {
    /// Of all that there ever were.
    id: u64,
    origin: Instant,
    ready: ReadyClock,
    began: Clocks,
    open: Vec<Open>,
    noted: Vec<Noted>,
    /// Room for so many is with who took them.
    lent: usize,
    on_held: HeldBytes,
    /// Those that did not fit, by event; the last is the binary log's.
    summed: Vec<Noted>,
    paths: Vec<PathBuf>,
    known: HashMap<PathBuf, usize>,
    wanted: Vec<Wanted>,
    wanted_bytes: usize,
    helped_ns: Arc<AtomicU64>,
    totals: Totals,
    calls: Calls,
}

thread_local! {
    static ON: Cell<bool> = const { Cell::new(false) };
    static RECORDER: RefCell<Option<Box<Recorder>>> = const { RefCell::new(None) };
    /// The recorder that failed last.
    static FAILED: Cell<u64> = const { Cell::new(0) };
}

/// Processor time of this thread, in nanoseconds.
pub fn thread_cpu_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes into the struct that it is given.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}

fn ns_between(from: Instant, to: Instant) -> u64 {
    u64::try_from(to.saturating_duration_since(from).as_nanos()).unwrap_or(u64::MAX)
}

impl Recorder {
    /// Its times count from now. `ready` is asked in whatever thread the recorder works.
    pub fn new(ready: ReadyClock) -> Box<Recorder> {
        Recorder::since(Instant::now(), ready)
    }

    /// Its times count from `origin`.
    pub fn since(origin: Instant, ready: ReadyClock) -> Box<Recorder> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        // Tried out here, not in a statement.
        let _ = *CLOCK_NS;
        Box::new(Recorder {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            origin,
            ready,
            began: Clocks { at: origin, cpu_ns: 0, ready_ns: None },
            open: Vec::with_capacity(8),
            noted: Vec::new(),
            lent: 0,
            on_held: Box::new(|_| ()),
            summed: Vec::new(),
            paths: Vec::new(),
            known: HashMap::new(),
            wanted: Vec::new(),
            wanted_bytes: 0,
            helped_ns: Arc::default(),
            totals: Totals::default(),
            calls: Calls::default(),
        })
    }

    /// Another thread's clock, for a statement that is about to begin there.
    pub fn set_ready(&mut self, ready: ReadyClock) {
        self.ready = ready;
    }

    /// Who is told of its memory, from now on; and of what it is now.
    pub fn set_on_held(&mut self, on_held: HeldBytes) {
        self.on_held = on_held;
        self.tell_held();
    }

    /// Bytes of its memory, what others have of it included.
    pub fn held_bytes(&self) -> u64 {
        let waits = (self.noted.capacity() + self.lent) * size_of::<Noted>();
        (size_of::<Recorder>() + waits + self.wanted_bytes) as u64
    }

    fn tell_held(&mut self) {
        let bytes = self.held_bytes();
        (self.on_held)(bytes);
    }

    /// Its number; no other one has it.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// When its times are zero.
    pub fn origin(&self) -> Instant {
        self.origin
    }

    /// Nanoseconds since its origin.
    pub fn now_ns(&self) -> u64 {
        ns_between(self.origin, Instant::now())
    }

    /// Files that waits were for, in the order in which they were met.
    pub fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// What was noted so far, and is not any more; its memory comes back by [`give_back`](Self::give_back).
    pub fn take_noted(&mut self) -> Vec<Noted> {
        self.lent += self.noted.capacity();
        std::mem::take(&mut self.noted)
    }

    /// At a statement's end, what did not fit.
    pub fn take_summed(&mut self) -> Vec<Noted> {
        std::mem::take(&mut self.summed)
    }

    /// The memory of what [`take_noted`](Self::take_noted) gave last. Between statements little of it is kept.
    pub fn give_back(&mut self, mut noted: Vec<Noted>, at_end: bool) {
        self.lent = 0;
        noted.clear();
        if self.noted.is_empty() {
            self.noted = noted;
        }
        if at_end && self.noted.capacity() > FIRST_NOTED {
            self.noted = Vec::new();
        }
        self.tell_held();
    }

    /// What the waits that were taken with [`take_noted`](Self::take_noted) wanted of others; before another one begins.
    pub fn take_wanted(&mut self) -> Vec<Wanted> {
        self.wanted_bytes = 0;
        let wanted = std::mem::take(&mut self.wanted);
        self.tell_held();
        wanted
    }

    fn held(&mut self, by: Holders) {
        let Some(wanted) = self.open.last().and_then(|open| self.wanted.get_mut(open.wanted?)) else { return };
        wanted.later = by.later;
        let Holders { mut first, then, .. } = by;
        if let Some(at) = first.iter().position(|connection| *connection == wanted.connection) {
            first.remove(at);
        }
        let others = self.wanted_bytes - wanted.bytes_of_holders();
        let bytes = (first.len() + then.len()) * size_of::<u64>();
        if others + bytes <= MOST_WANTED_BYTES {
            self.wanted_bytes = others + bytes;
            (wanted.with, wanted.then) = (first, then);
            self.tell_held();
        }
    }

    fn want(&mut self, wanted: Wanted) {
        let bytes = wanted.bytes();
        let Some(open) = self.open.last_mut() else { return };
        if self.wanted_bytes + bytes <= MOST_WANTED_BYTES {
            self.wanted_bytes += bytes;
            open.wanted = Some(self.wanted.len());
            self.wanted.push(wanted);
            self.tell_held();
        }
    }

    fn clocks(&mut self) -> Clocks {
        Clocks { ready_ns: (self.ready)(), cpu_ns: thread_cpu_ns(), at: Instant::now() }
    }

    fn begin_statement(&mut self) {
        self.open.clear();
        self.totals = Totals::default();
        self.calls = Calls::default();
        self.began = self.clocks();
    }

    fn end_statement(&mut self) -> Totals {
        let (now, began) = (self.clocks(), self.began);
        let cpu_ns = now.cpu_ns.saturating_sub(began.cpu_ns);
        let ready_ns = now.ready_ns.zip(began.ready_ns).map_or(0, |(now, then)| now.saturating_sub(then));
        self.open.clear();
        // A read that did not sleep counts as the processor's for as long as it took. What is more than the processor gave was
        // the time of others there.
        let waits_cpu_ns = self.totals.waits_cpu_ns.min(cpu_ns);
        let waits_ready_ns = self.totals.waits_ready_ns + (self.totals.waits_cpu_ns - waits_cpu_ns);
        Totals {
            ns: ns_between(began.at, now.at),
            cpu_ns,
            ready_ns,
            waits_cpu_ns,
            waits_ready_ns: waits_ready_ns.min(ready_ns),
            engine_ns: self.calls.ns(*CLOCK_NS, cpu_ns - waits_cpu_ns),
            helped_ns: self.helped_ns.swap(0, Ordering::Relaxed),
        }
    }

    fn push(&mut self, sleeps: bool) {
        let slept = (sleeps && self.open.is_empty()).then(|| {
            let ready_ns = (self.ready)();
            Slept { cpu_ns: thread_cpu_ns(), ready_ns }
        });
        self.open.push(Open { begin: Instant::now(), slept, place: None, source: None, wanted: None });
    }

    fn pop(&mut self, event: Option<WaitEvent>) {
        let Some(open) = self.open.pop() else { return };
        let ns = ns_between(open.begin, Instant::now());
        let nested = !self.open.is_empty();
        let (mut cpu_ns, mut ready_ns) = (0, 0);
        if !nested {
            match open.slept {
                Some(then) => {
                    cpu_ns = thread_cpu_ns().saturating_sub(then.cpu_ns);
                    ready_ns = then.ready_ns.and_then(|then| Some((self.ready)()?.saturating_sub(then))).unwrap_or(0);
                }
                None => cpu_ns = ns, // all of it was the processor's
            }
            self.totals.waits_cpu_ns += cpu_ns;
            self.totals.waits_ready_ns += ready_ns;
        }
        let begin_ns = ns_between(self.origin, open.begin);
        let Open { place, source, wanted, .. } = open;
        self.note(Noted { event, begin_ns, ns, cpu_ns, ready_ns, place, source, nested, count: 1, wanted });
    }

    fn note(&mut self, wait: Noted) {
        if self.has_room() {
            self.noted.push(wait);
            return;
        }
        let alike = |s: &&mut Noted| s.event == wait.event && s.nested == wait.nested && s.source == wait.source;
        match self.summed.iter_mut().find(alike) {
            Some(sum) => {
                sum.ns += wait.ns;
                sum.cpu_ns += wait.cpu_ns;
                sum.ready_ns += wait.ready_ns;
                sum.count += 1;
            }
            None => self.summed.push(Noted { place: None, wanted: None, ..wait }),
        }
    }

    /// For one more; where the system gives no memory there is none.
    fn has_room(&mut self) -> bool {
        let (count, room) = (self.noted.len(), self.noted.capacity());
        if count < room.min(MOST_NOTED) {
            return true;
        }
        let more = (2 * room).clamp(FIRST_NOTED, MOST_NOTED).saturating_sub(count);
        if more == 0 || self.noted.try_reserve_exact(more).is_err() {
            return false;
        }
        self.tell_held();
        true
    }

    fn file(&mut self, path: &Path) -> usize {
        if let Some(&file) = self.known.get(path) {
            return file;
        }
        self.paths.push(path.to_owned());
        self.known.insert(path.to_owned(), self.paths.len() - 1);
        self.paths.len() - 1
    }

    /// Processor time outside of waits.
    fn busy_ns(&self) -> u64 {
        thread_cpu_ns().saturating_sub(self.totals.waits_cpu_ns)
    }
}

fn with<T>(work: impl FnOnce(&mut Recorder) -> T) -> Option<T> {
    let guarded = |recorder: &RefCell<Option<Box<Recorder>>>| {
        let mut place = recorder.try_borrow_mut().ok()?;
        let recorder = place.as_deref_mut()?;
        let id = recorder.id;
        if let Ok(result) = catch_unwind(AssertUnwindSafe(|| work(recorder))) {
            return Some(result);
        }
        failed(id);
        *place = None;
        None
    };
    RECORDER.try_with(guarded).ok().flatten()
}

#[cold]
fn failed(id: u64) {
    ON.set(false);
    FAILED.set(id);
}

/// Has this one panicked in this thread, and is gone?
pub fn has_failed(id: u64) -> bool {
    FAILED.get() == id
}

/// Does this thread work for a traced statement?
#[inline]
pub fn is_on() -> bool {
    ON.get()
}

/// A statement begins in this thread; its recorder is there until [`end_statement`]. One that was left behind is gone.
pub fn begin_statement(recorder: Box<Recorder>) {
    let _ = RECORDER.try_with(|r| r.replace(Some(recorder)));
    ON.set(with(Recorder::begin_statement).is_some());
}

/// The statement that began in this thread ends here; none if there is none.
pub fn end_statement() -> Option<(Box<Recorder>, Totals)> {
    let totals = with(Recorder::end_statement)?;
    ON.set(false);
    Some((RECORDER.try_with(RefCell::take).ok().flatten()?, totals))
}

/// As [`end_statement`], if the statement is this one: a pool's thread may have gone on to another session, and what it left
/// here is that one's.
pub fn end_statement_of(id: u64) -> Option<(Box<Recorder>, Totals)> {
    with(|r| r.id == id).filter(|&is_its| is_its).and_then(|_| end_statement())
}

/// Half of what a recorder keeps is there: now is a good time to take it.
pub fn is_filling() -> bool {
    is_on() && with(|r| r.noted.len() > MOST_NOTED / 2).unwrap_or(false)
}

/// The statement's recorder, between two calls of the engine.
pub fn with_recorder<T>(work: impl FnOnce(&mut Recorder) -> T) -> Option<T> {
    if is_on() {
        with(work)
    } else {
        None
    }
}

/// A wait begins; `sleeps`: whatever it is for, the thread does not run meanwhile. Reads tell later, by [`will_sleep`].
#[inline]
pub(crate) fn begin(sleeps: bool) {
    if is_on() {
        with(|r| r.push(sleeps));
    }
}

/// The wait that began last is over.
#[inline]
pub(crate) fn end(event: WaitEvent) {
    if is_on() {
        with(|r| r.pop(Some(event)));
    }
}

/// The wait that began last is for these bytes.
#[inline]
pub fn place(path: &Path, offset: u64, bytes: usize) {
    if is_on() {
        with(|r| {
            let file = r.file(path);
            if let Some(open) = r.open.last_mut() {
                open.place = Some(Place { file, offset, bytes: bytes as u64 });
            }
        });
    }
}

/// The wait that began last is for something that another one has; nothing if that is not known.
#[inline]
pub fn wants(what: impl FnOnce() -> Option<Wanted>) {
    if is_on() {
        with(|r| what().into_iter().for_each(|wanted| r.want(wanted)));
    }
}

/// The wait that began last was for something that these had, up to now; nothing if that is not known.
#[inline]
pub fn held_by(holders: impl FnOnce() -> Option<Holders>) {
    if is_on() {
        with(|r| holders().into_iter().for_each(|by| r.held(by)));
    }
}

/// The read that began last was answered so.
pub fn answered_by(source: Source) {
    with(|r| {
        if let Some(open) = r.open.last_mut() {
            open.source = Some(source);
        }
    });
}

/// The read that began last is not answered at once.
pub fn will_sleep() {
    with(|r| {
        if let [open @ Open { slept: None, .. }] = r.open.as_mut_slice() {
            let so_far_ns = ns_between(open.begin, Instant::now());
            let ready_ns = (r.ready)();
            open.slept = Some(Slept { cpu_ns: thread_cpu_ns().saturating_sub(so_far_ns), ready_ns });
        }
    });
}

/// The statement's transaction is prepared: from here to [`end_binlog`] others work on it.
pub fn begin_binlog() {
    begin(true);
}

/// Its own thread goes on with the commit; nothing if it has not prepared.
pub fn end_binlog() {
    if is_on() {
        with(|r| r.pop(None));
    }
}

/// A call of the engine begins; never one within another.
pub fn begin_call() {
    with_recorder(|r| {
        if r.calls.another() {
            r.calls.begin(r.busy_ns());
        }
    });
}

/// It is over.
pub fn end_call() {
    with_recorder(|r| {
        if r.calls.is_timed() {
            r.calls.end(r.busy_ns());
        }
    });
}

/// What noting one wait costs here, in nanoseconds of processor time: the least of several trials.
pub fn cost_ns() -> u64 {
    const WAITS: u64 = 200;
    let trial = |_| {
        let mut recorder = Recorder::new(Box::new(|| None));
        let began = thread_cpu_ns();
        for _ in 0..WAITS {
            recorder.push(false);
            recorder.pop(Some(WaitEvent::RunRead));
        }
        (thread_cpu_ns() - began) / WAITS
    };
    (0..5).map(trial).min().unwrap_or(0)
}

#[cfg(test)]
mod tests;
