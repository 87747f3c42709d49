//! The locks that the engine uses everywhere: parking_lot's, with a name.
//!
//! Owns the registry of sites (places in the code that make a lock; all locks of one name share one site). Contention
//! is always counted: a lock is first tried, and only when that fails one relaxed add tells. Waiting, holding and
//! unlocking (what the releasing thread itself pays, as when it wakes another) are timed only while [`profile`] is on;
//! otherwise they cost one relaxed load per acquisition. Stacks are sampled only while profiling, and only when asked for
//! with [`sample_stacks`].

#[cfg(debug_assertions)]
mod order;
mod stacks;

pub use stacks::{sample_stacks, stacks, Role, Stack, Stacks, MOST_STACKS};

use crate::histogram::{Histogram, HistogramSnapshot};
use crate::wait::elapsed_ns;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

static PROFILING: AtomicBool = AtomicBool::new(false);
static SITES: parking_lot::Mutex<Vec<&'static Site>> = parking_lot::Mutex::new(Vec::new());

/// Switches timing on or off for the whole process. Figures stay when it is switched off.
pub fn profile(on: bool) {
    PROFILING.store(on, Ordering::Relaxed);
}

fn profiling_start() -> Option<Instant> {
    PROFILING.load(Ordering::Relaxed).then(Instant::now)
}

/// Figures of all locks that bear one name.
#[repr(align(128))]
struct Site {
    name: &'static str,
    /// In the order of their making.
    #[cfg(debug_assertions)]
    number: usize,
    contended: AtomicU64,
    acquired: AtomicU64,
    wait: Histogram,
    hold: Histogram,
    unlock: Histogram,
    samples: stacks::Samples,
}

impl Site {
    /// The site of this name; made on first use and kept for good.
    fn named(name: &'static str) -> &'static Site {
        let mut sites = SITES.lock();
        match sites.binary_search_by(|site| site.name.cmp(name)) {
            Ok(at) => sites[at],
            Err(at) => {
                let site = Box::leak(Box::new(Site {
                    name,
                    #[cfg(debug_assertions)]
                    number: sites.len(),
                    contended: AtomicU64::new(0),
                    acquired: AtomicU64::new(0),
                    wait: Histogram::new(),
                    hold: Histogram::new(),
                    unlock: Histogram::new(),
                    samples: stacks::Samples::new(),
                }));
                sites.insert(at, site);
                site
            }
        }
    }

    /// Acquires the lock at address `lock` by `attempt` if that succeeds at once, else by `block`, and tells since when
    /// it is held if profiling.
    fn acquire<G>(
        &self,
        lock: usize,
        attempt: impl FnOnce() -> Option<G>,
        block: impl FnOnce() -> G,
    ) -> (G, Option<Instant>) {
        self.before_wait();
        let guard = match attempt() {
            Some(guard) => guard,
            None => self.wait(lock, block),
        };
        (guard, self.held_since())
    }

    /// Asserts the order of locks, where assertions are compiled.
    #[inline]
    fn before_wait(&self) {
        #[cfg(debug_assertions)]
        order::before_wait(self.number, name_of);
    }

    #[inline]
    fn taken(&self) {
        #[cfg(debug_assertions)]
        order::taken(self.number);
    }

    #[inline]
    fn released(&self) {
        #[cfg(debug_assertions)]
        order::released(self.number);
    }

    #[cold]
    fn wait<G>(&self, lock: usize, block: impl FnOnce() -> G) -> G {
        self.contended.fetch_add(1, Ordering::Relaxed);
        if !PROFILING.load(Ordering::Relaxed) {
            return block();
        }
        let asked = self.samples.before_wait(lock);
        let start = Instant::now();
        let guard = block();
        self.wait.record(elapsed_ns(start));
        if asked {
            self.samples.after_wait(lock);
        }
        guard
    }

    fn held_since(&self) -> Option<Instant> {
        let since = profiling_start();
        if since.is_some() {
            self.acquired.fetch_add(1, Ordering::Relaxed);
        }
        since
    }

    /// Runs `release` of the lock at address `lock`, and records hold and unlock time if the acquisition was profiled.
    fn release(&self, lock: usize, since: Option<Instant>, release: impl FnOnce()) {
        let Some(since) = since else { return release() };
        let held = elapsed_ns(since);
        let asked = self.samples.asked_for(lock);
        let start = Instant::now();
        release();
        self.unlock.record(elapsed_ns(start));
        self.hold.record(held);
        if asked {
            self.samples.record(Role::Holder);
        }
    }
}

#[cfg(debug_assertions)]
fn name_of(number: usize) -> &'static str {
    SITES.lock().iter().find(|site| site.number == number).map_or("?", |site| site.name)
}

/// What is known about the locks of one name.
#[derive(Debug, Clone)]
pub struct SiteReport {
    /// The name given when the lock was made.
    pub name: &'static str,
    /// Acquisitions that found the lock taken, since the start of the process.
    pub contended: u64,
    /// Acquisitions while profiling was on.
    pub acquired: u64,
    /// Nanoseconds waited by contended acquisitions, while profiling.
    pub wait: HistogramSnapshot,
    /// Nanoseconds that it was held, while profiling.
    pub hold: HistogramSnapshot,
    /// Nanoseconds that the releasing thread spent on releasing, while profiling.
    pub unlock: HistogramSnapshot,
}

/// Figures of every site, by name.
pub fn report() -> Vec<SiteReport> {
    let sites = SITES.lock().clone();
    let report = |site: &&'static Site| SiteReport {
        name: site.name,
        contended: site.contended.load(Ordering::Relaxed),
        acquired: site.acquired.load(Ordering::Relaxed),
        wait: site.wait.snapshot(),
        hold: site.hold.snapshot(),
        unlock: site.unlock.snapshot(),
    };
    sites.iter().map(report).collect()
}

/// A lock's address: what its waiters and its holder know it by.
fn address<T: ?Sized>(lock: &T) -> usize {
    std::ptr::from_ref(lock).cast::<()>() as usize
}

macro_rules! guard {
    ($(#[$doc:meta])* $guard:ident, $inner:ident, $lock:ident) => {
        $(#[$doc])*
        #[must_use = "the lock is held only while this lives"]
        pub struct $guard<'a, T: ?Sized> {
            inner: ManuallyDrop<parking_lot::$inner<'a, T>>,
            site: &'static Site,
            since: Option<Instant>,
        }

        impl<'a, T: ?Sized> $guard<'a, T> {
            fn new(
                site: &'static Site,
                (inner, since): (parking_lot::$inner<'a, T>, Option<Instant>),
            ) -> Self {
                site.taken();
                $guard { inner: ManuallyDrop::new(inner), site, since }
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
                let lock = address(parking_lot::$inner::$lock(&self.inner));
                let inner = &mut self.inner;
                self.site.released();
                // SAFETY: the inner guard is dropped here and nowhere else, and not used afterwards.
                self.site.release(lock, self.since, || unsafe { ManuallyDrop::drop(inner) });
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
    MutexGuard, MutexGuard, mutex
}
guard! {
    /// Holds a [`RwLock`] for reading.
    RwLockReadGuard, RwLockReadGuard, rwlock
}
guard! {
    /// Holds a [`RwLock`] for writing.
    RwLockWriteGuard, RwLockWriteGuard, rwlock
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
    /// A new lock of the site `name`, such as `"wal.ring"`.
    pub fn new(name: &'static str, value: T) -> Self {
        Mutex { site: Site::named(name), inner: parking_lot::Mutex::new(value) }
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
        MutexGuard::new(
            self.site,
            self.site.acquire(address(&self.inner), || self.inner.try_lock(), || self.inner.lock()),
        )
    }

    /// As [`lock`](Mutex::lock), for one who has other locks of this name and takes them in an order of his own, which
    /// everybody keeps who takes several.
    pub fn lock_in_turn(&self) -> MutexGuard<'_, T> {
        #[cfg(debug_assertions)]
        let others = order::set_aside(self.site.number);
        let guard = self.lock();
        #[cfg(debug_assertions)]
        (0..others).for_each(|_| order::taken(self.site.number));
        guard
    }

    /// Takes the lock if it is free. A failure counts as contention.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.inner.try_lock() {
            Some(inner) => Some(MutexGuard::new(self.site, (inner, self.site.held_since()))),
            None => {
                self.site.contended.fetch_add(1, Ordering::Relaxed);
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
    /// A new lock of the site `name`.
    pub fn new(name: &'static str, value: T) -> Self {
        RwLock { site: Site::named(name), inner: parking_lot::RwLock::new(value) }
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
        RwLockReadGuard::new(
            self.site,
            self.site.acquire(address(&self.inner), || self.inner.try_read(), || self.inner.read()),
        )
    }

    /// Waits for sole access.
    #[inline]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        RwLockWriteGuard::new(
            self.site,
            self.site.acquire(address(&self.inner), || self.inner.try_write(), || self.inner.write()),
        )
    }

    /// Takes sole access if nobody has any. A failure counts as contention.
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        match self.inner.try_write() {
            Some(inner) => Some(RwLockWriteGuard::new(self.site, (inner, self.site.held_since()))),
            None => {
                self.site.contended.fetch_add(1, Ordering::Relaxed);
                None
            }
        }
    }

    /// Takes shared access if no writer has it. A failure counts as contention.
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        match self.inner.try_read() {
            Some(inner) => Some(RwLockReadGuard::new(self.site, (inner, self.site.held_since()))),
            None => {
                self.site.contended.fetch_add(1, Ordering::Relaxed);
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

    /// Sleeps until notified or until `deadline`; true if it has passed. May wake without cause.
    pub fn wait_until<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>, deadline: Instant) -> bool {
        Self::pause(guard, |inner| self.inner.wait_until(inner, deadline).timed_out())
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
        guard.site.released();
        let result = sleep(&mut guard.inner);
        // While it slept it took the lock again, whatever else this thread holds.
        guard.site.before_wait();
        guard.site.taken();
        guard.since = guard.site.held_since();
        result
    }
}

#[cfg(test)]
mod tests;
