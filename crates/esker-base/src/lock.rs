//! The locks that the engine uses everywhere: parking_lot's, with a name and a place in the lock order.
//!
//! Each lock is made with its site, which all locks of one name share: they are declared, in the lock order, in [`order`],
//! and builds with assertions panic at an acquisition that is against it.
//!
//! Acquisitions are counted always, by each thread for itself. A lock is first tried; who finds it taken counts and times its
//! waiting, which makes no difference to it any more: he tries a few times more, which is counted, before he asks parking_lot to
//! wait, whose own spinning cannot be seen. Holding and unlocking (what the releasing thread itself pays, as when it
//! wakes another) are timed of one in [`ONE_IN`] acquisitions, and of all while [`profile`] is on; if such a one is waited for,
//! the waiter tells how long it takes him to have the lock after it was let go of. Stacks are sampled only while
//! profiling, and only when asked for with [`sample_stacks`].

mod acquired;
pub mod order;
mod report;
mod rewake;
mod stacks;

pub use report::{forget, report, since_forgotten, SiteReport};

pub use stacks::{forget_stacks, sample_stacks, stacks, stacks_bytes, Role, Stack, Stacks, MOST_IN_ALL, MOST_STACKS};

use crate::draw::draw;
use crate::histogram::Histogram;
use crate::wait::{elapsed_ns, timed, WaitEvent};
use crate::WITHOUT_FIGURES;
use std::hint::black_box;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// One in so many acquisitions is timed, unless all are.
pub const ONE_IN: u64 = 64;
const SAMPLED: u64 = u64::MAX / ONE_IN;
const ALL: u64 = u64::MAX;
/// Who finds a lock taken tries it so often again before he has parking_lot wait.
const SPINS: u64 = 3;

/// What is drawn for an acquisition that is timed is no greater.
static TIMED_UP_TO: AtomicU64 = AtomicU64::new(SAMPLED);

/// Has all acquisitions of the process timed, or one in [`ONE_IN`]. Figures stay when it is switched off.
pub fn profile(on: bool) {
    TIMED_UP_TO.store(if on { ALL } else { SAMPLED }, Ordering::Relaxed);
}

fn is_profiling() -> bool {
    TIMED_UP_TO.load(Ordering::Relaxed) == ALL
}

/// Since when a lock is held that this thread has acquired so often before, if that is timed.
#[inline]
fn timed_since(before: u64) -> Option<Instant> {
    (draw(before) <= TIMED_UP_TO.load(Ordering::Relaxed)).then(Instant::now)
}

/// Times of one kind, with the longest.
struct Times {
    spread: Histogram,
    longest_ns: AtomicU64,
}

impl Times {
    const fn new() -> Times {
        Times { spread: Histogram::new(), longest_ns: AtomicU64::new(0) }
    }

    fn record(&self, ns: u64) {
        self.spread.record(ns);
        if ns > self.longest_ns.load(Ordering::Relaxed) {
            self.longest_ns.fetch_max(ns, Ordering::Relaxed);
        }
    }
}

/// In a cache line of its own: who finds no lock taken reads what lies beside it.
#[repr(align(128))]
struct Contended(AtomicU64);

/// The locks that bear one name: their place in the lock order, and their figures.
#[repr(align(128))]
pub struct Site {
    name: &'static str,
    /// In [`order`], the outermost first.
    place: usize,
    /// Is there, or was there, such a lock?
    made: AtomicBool,
    contended: Contended,
    /// Tries between the first and the waiting that parking_lot does.
    spins: AtomicU64,
    wait: Times,
    hold: Times,
    unlock: Times,
    rewake: Times,
    handover: rewake::Handover,
    samples: stacks::Samples,
}

impl Site {
    const fn new(name: &'static str, place: usize) -> Site {
        Site {
            name,
            place,
            made: AtomicBool::new(false),
            contended: Contended(AtomicU64::new(0)),
            spins: AtomicU64::new(0),
            wait: Times::new(),
            hold: Times::new(),
            unlock: Times::new(),
            rewake: Times::new(),
            handover: rewake::Handover::new(),
            samples: stacks::Samples::new(),
        }
    }

    /// What its locks are called.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// A lock of this site is made.
    fn made(&'static self) -> &'static Site {
        if !self.made.load(Ordering::Relaxed) {
            self.made.store(true, Ordering::Relaxed);
        }
        self
    }

    /// Acquires the lock at address `lock` by `attempt` if that succeeds at once, else by `block`, and tells since when
    /// it is held if that is timed.
    fn acquire<G>(
        &self,
        lock: usize,
        turn: u64,
        attempt: impl Fn() -> Option<G>,
        block: impl FnOnce() -> G,
    ) -> (G, Option<Instant>) {
        self.before_wait(turn);
        let guard = match attempt() {
            Some(guard) => guard,
            None => self.wait(lock, attempt, block),
        };
        (guard, self.held_since())
    }

    /// Asserts the lock order, where assertions are compiled.
    #[inline]
    fn before_wait(&self, turn: u64) {
        #[cfg(debug_assertions)]
        order::before_wait(self, turn);
        let _ = turn;
    }

    #[cold]
    fn wait<G>(&self, lock: usize, attempt: impl Fn() -> Option<G>, block: impl FnOnce() -> G) -> G {
        self.contended.0.fetch_add(1, Ordering::Relaxed);
        let stack = if is_profiling() { self.samples.before_wait(lock) } else { None };
        let handed = self.handover.before_wait(lock);
        let start = Instant::now();
        let guard = self.spin(attempt).unwrap_or_else(block);
        let waited_ns = elapsed_ns(start);
        if let Some(ns) = self.handover.after_wait(lock, handed) {
            self.rewake.record(ns);
        }
        self.wait.record(waited_ns);
        if let Some(stack) = stack {
            self.samples.after_wait(lock, &stack, waited_ns);
        }
        guard
    }

    /// Tries a few times, with longer pauses between.
    fn spin<G>(&self, attempt: impl Fn() -> Option<G>) -> Option<G> {
        for round in 1..=SPINS {
            (0..1 << round).for_each(|_| std::hint::spin_loop());
            if let Some(guard) = attempt() {
                self.spins.fetch_add(round, Ordering::Relaxed);
                return Some(guard);
            }
        }
        self.spins.fetch_add(SPINS, Ordering::Relaxed);
        None
    }

    /// It was acquired by this thread.
    #[inline]
    fn held_since(&self) -> Option<Instant> {
        if WITHOUT_FIGURES {
            return None;
        }
        timed_since(acquired::count(self.place))
    }

    /// Runs `release` of the lock at address `lock`, and records hold and unlock time if the acquisition is timed. `alone`: nobody
    /// else holds it.
    #[inline]
    fn release(&self, lock: usize, alone: bool, since: Option<Instant>, release: impl FnOnce()) {
        match since {
            None => release(),
            // Not the last thing that is done: the caller stays on the stack, which may be recorded.
            Some(since) => _ = black_box(self.release_timed(lock, alone, since, release)),
        }
    }

    #[cold]
    fn release_timed(&self, lock: usize, alone: bool, since: Instant, release: impl FnOnce()) -> bool {
        let held_ns = elapsed_ns(since);
        let asked = self.samples.asked_for(lock);
        let start = Instant::now();
        if alone {
            self.handover.before_release(lock, start);
        }
        release();
        let unlock_ns = elapsed_ns(start);
        self.unlock.record(unlock_ns);
        self.hold.record(held_ns);
        if asked {
            self.samples.let_go(held_ns, unlock_ns);
        }
        asked
    }
}

/// A lock's address: what its waiters and its holder know it by.
fn address<T: ?Sized>(lock: &T) -> usize {
    std::ptr::from_ref(lock).cast::<()>() as usize
}

macro_rules! guard {
    ($(#[$doc:meta])* $guard:ident, $inner:ident, $lock:ident, $alone:literal) => {
        $(#[$doc])*
        #[must_use = "the lock is held only while this lives"]
        pub struct $guard<'a, T: ?Sized> {
            inner: ManuallyDrop<parking_lot::$inner<'a, T>>,
            site: &'static Site,
            since: Option<Instant>,
            #[cfg(debug_assertions)]
            turn: u64,
        }

        impl<'a, T: ?Sized> $guard<'a, T> {
            fn new(
                site: &'static Site,
                turn: u64,
                (inner, since): (parking_lot::$inner<'a, T>, Option<Instant>),
            ) -> Self {
                let guard = $guard {
                    inner: ManuallyDrop::new(inner),
                    site,
                    since,
                    #[cfg(debug_assertions)]
                    turn,
                };
                guard.taken();
                let _ = turn;
                guard
            }

            #[inline]
            fn taken(&self) {
                #[cfg(debug_assertions)]
                order::taken(self.site, self.turn);
            }

            #[inline]
            fn released(&self) {
                #[cfg(debug_assertions)]
                order::released(self.site, self.turn);
            }
        }

        impl<T: ?Sized> Deref for $guard<'_, T> {
            type Target = T;
            fn deref(&self) -> &T {
                &self.inner
            }
        }

        impl<T: ?Sized> Drop for $guard<'_, T> {
            fn drop(&mut self) {
                self.released();
                let lock = address(parking_lot::$inner::$lock(&self.inner));
                let inner = &mut self.inner;
                // SAFETY: the inner guard is dropped here and nowhere else, and not used afterwards.
                self.site.release(lock, $alone, self.since, || unsafe { ManuallyDrop::drop(inner) });
            }
        }

        impl<T: ?Sized + std::fmt::Debug> std::fmt::Debug for $guard<'_, T> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                (**self).fmt(f)
            }
        }
    };
}

guard! {
    /// Holds a [`Mutex`].
    MutexGuard, MutexGuard, mutex, true
}
guard! {
    /// Holds a [`RwLock`] for reading.
    RwLockReadGuard, RwLockReadGuard, rwlock, false
}
guard! {
    /// Holds a [`RwLock`] for writing.
    RwLockWriteGuard, RwLockWriteGuard, rwlock, true
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T: ?Sized> DerefMut for RwLockWriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

/// Mutual exclusion. Not poisoned by panics, not reentrant.
pub struct Mutex<T: ?Sized> {
    site: &'static Site,
    inner: parking_lot::Mutex<T>,
}

impl<T> Mutex<T> {
    /// A new lock of this site, such as [`order::WAL_TAIL`].
    pub fn new(site: &'static Site, value: T) -> Self {
        Mutex { site: site.made(), inner: parking_lot::Mutex::new(value) }
    }

    /// Gives the value back.
    pub fn into_inner(self) -> T {
        self.inner.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits for the lock.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.lock_in_turn(0)
    }

    /// As [`lock`](Mutex::lock), for one who takes several locks of this site. All who do take them in the order of
    /// `turn`, which is not zero and a lock's own for as long as it lives.
    #[inline]
    pub fn lock_in_turn(&self, turn: u64) -> MutexGuard<'_, T> {
        let taken = self.site.acquire(address(&self.inner), turn, || self.inner.try_lock(), || self.inner.lock());
        MutexGuard::new(self.site, turn, taken)
    }

    /// As [`lock`](Mutex::lock); who has to wait is known to wait for `event`.
    #[inline]
    pub fn lock_told(&self, event: WaitEvent) -> MutexGuard<'_, T> {
        let wait = || timed(event, || self.inner.lock());
        let taken = self.site.acquire(address(&self.inner), 0, || self.inner.try_lock(), wait);
        MutexGuard::new(self.site, 0, taken)
    }

    /// Takes the lock if it is free. A failure counts as contention.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.inner.try_lock() {
            Some(inner) => Some(MutexGuard::new(self.site, 0, (inner, self.site.held_since()))),
            None => {
                self.site.contended.0.fetch_add(1, Ordering::Relaxed);
                None
            }
        }
    }

    /// The value, without locking: nobody else can have it.
    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut()
    }
}

impl<T: ?Sized> std::fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mutex").field("site", &self.site.name).finish_non_exhaustive()
    }
}

/// Many readers or one writer. Not poisoned by panics; a thread must not read twice at once.
pub struct RwLock<T: ?Sized> {
    site: &'static Site,
    inner: parking_lot::RwLock<T>,
}

impl<T> RwLock<T> {
    /// A new lock of this site.
    pub fn new(site: &'static Site, value: T) -> Self {
        RwLock { site: site.made(), inner: parking_lot::RwLock::new(value) }
    }

    /// Gives the value back.
    pub fn into_inner(self) -> T {
        self.inner.into_inner()
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Waits for shared access.
    #[inline]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        let taken = self.site.acquire(address(&self.inner), 0, || self.inner.try_read(), || self.inner.read());
        RwLockReadGuard::new(self.site, 0, taken)
    }

    /// Waits for sole access.
    #[inline]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        let taken = self.site.acquire(address(&self.inner), 0, || self.inner.try_write(), || self.inner.write());
        RwLockWriteGuard::new(self.site, 0, taken)
    }

    /// Takes sole access if nobody has any. A failure counts as contention.
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        match self.inner.try_write() {
            Some(inner) => Some(RwLockWriteGuard::new(self.site, 0, (inner, self.site.held_since()))),
            None => {
                self.site.contended.0.fetch_add(1, Ordering::Relaxed);
                None
            }
        }
    }

    /// Takes shared access if no writer has it. A failure counts as contention.
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        match self.inner.try_read() {
            Some(inner) => Some(RwLockReadGuard::new(self.site, 0, (inner, self.site.held_since()))),
            None => {
                self.site.contended.0.fetch_add(1, Ordering::Relaxed);
                None
            }
        }
    }

    /// The value, without locking: nobody else can have it.
    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut()
    }
}

impl<T: ?Sized> std::fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RwLock").field("site", &self.site.name).finish_non_exhaustive()
    }
}

/// Waits for a condition on what a [`Mutex`] guards. The time asleep is not hold time.
#[derive(Debug, Default)]
pub struct Condvar {
    inner: parking_lot::Condvar,
}

impl Condvar {
    /// A new one, with nobody waiting.
    pub const fn new() -> Self {
        Condvar { inner: parking_lot::Condvar::new() }
    }

    /// Sleeps until notified. May wake without cause: check the condition in a loop.
    pub fn wait<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>) {
        Self::pause(guard, |inner| self.inner.wait(inner));
    }

    /// Sleeps until notified or until `timeout` has passed; true if it has. May wake without cause.
    pub fn wait_for<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>, timeout: Duration) -> bool {
        Self::pause(guard, |inner| self.inner.wait_for(inner, timeout).timed_out())
    }

    /// Wakes one; true if somebody slept.
    pub fn notify_one(&self) -> bool {
        self.inner.notify_one()
    }

    /// Wakes all; tells how many slept.
    pub fn notify_all(&self) -> usize {
        self.inner.notify_all()
    }

    fn pause<'a, T: ?Sized, R>(
        guard: &mut MutexGuard<'a, T>,
        sleep: impl FnOnce(&mut parking_lot::MutexGuard<'a, T>) -> R,
    ) -> R {
        if let Some(since) = guard.since.take() {
            guard.site.hold.record(elapsed_ns(since));
        }
        // When it wakes it waits for the lock again, whatever else this thread holds.
        guard.released();
        guard.site.before_wait(0);
        let result = sleep(&mut guard.inner);
        guard.taken();
        guard.since = guard.site.held_since();
        result
    }
}

#[cfg(test)]
mod tests;
