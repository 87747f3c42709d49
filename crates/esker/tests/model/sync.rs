//! What `src/sync.rs` is to the engine: shuttle's atomics and locks.

pub(crate) use esker_base::lock::order;
use esker_base::lock::Site;
pub(crate) use shuttle::sync::atomic;
use shuttle::sync::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};

pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);
impl<T> Mutex<T> {
    pub(crate) fn new(_: &'static Site, value: T) -> Self {
        Mutex(shuttle::sync::Mutex::new(value))
    }
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap()
    }
}

#[derive(Debug)]
pub(crate) struct RwLock<T>(shuttle::sync::RwLock<T>);
impl<T> RwLock<T> {
    pub(crate) fn new(_: &'static Site, value: T) -> Self {
        RwLock(shuttle::sync::RwLock::new(value))
    }
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().unwrap()
    }
    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().unwrap()
    }
}
