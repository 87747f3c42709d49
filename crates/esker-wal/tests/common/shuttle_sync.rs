//! The locks and atomics of the crate's `sync.rs`, on shuttle's.

pub(crate) use esker_base::lock::order;
use esker_base::lock::Site;
pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::ops::{Deref, DerefMut};
use std::sync::PoisonError;

pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

/// Empty only while a condition is waited for.
pub(crate) struct MutexGuard<'a, T>(Option<shuttle::sync::MutexGuard<'a, T>>);

impl<T> Mutex<T> {
    pub(crate) fn new(_: &'static Site, value: T) -> Self {
        Mutex(shuttle::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard(Some(self.0.lock().unwrap_or_else(PoisonError::into_inner)))
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

    pub(crate) fn notify_all(&self) -> usize {
        self.0.notify_all();
        0
    }
}
