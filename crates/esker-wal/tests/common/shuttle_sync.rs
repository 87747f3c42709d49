//! The locks and atomics of the crate's `sync.rs`, on shuttle's.

pub(crate) use esker_base::lock::order;
use esker_base::lock::Site;
use shuttle::rand::{thread_rng, Rng};
pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::sync::PoisonError;
use std::time::Duration;

thread_local! {
    // All threads of a schedule run in one.
    static CLOCK: Cell<u64> = const { Cell::new(0) };
}

/// A clock that goes on by leaps: what hangs on it is only what is worth waiting for.
pub(crate) fn now_ns() -> u64 {
    let now = CLOCK.get() + (1 << thread_rng().gen_range(0..20));
    CLOCK.set(now);
    now
}

pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

/// Empty only while a condition is waited for.
pub(crate) struct MutexGuard<'a, T>(Option<shuttle::sync::MutexGuard<'a, T>>, &'a Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(_: &'static Site, value: T) -> Self {
        Mutex(shuttle::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard(Some(self.0.lock().unwrap_or_else(PoisonError::into_inner)), self)
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.0.as_ref().unwrap()
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().unwrap()
    }
}

pub(crate) struct Condvar(shuttle::sync::Condvar);

impl Condvar {
    pub(crate) fn new() -> Self {
        Condvar(shuttle::sync::Condvar::new())
    }

    pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let inner = guard.0.take().unwrap();
        guard.0 = Some(self.0.wait(inner).unwrap_or_else(PoisonError::into_inner));
    }

    /// Sleeps until others have run: it may be notified, or its time be over.
    pub(crate) fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _: Duration) -> bool {
        drop(guard.0.take());
        shuttle::thread::yield_now();
        guard.0 = guard.1.lock().0;
        thread_rng().gen()
    }

    pub(crate) fn notify_all(&self) -> usize {
        self.0.notify_all();
        0
    }
}
