//! The locks and atomics of what `tests/shuttle.rs` runs in many orders of threads: there a module of this name gives
//! them those of the scheduler.

pub(crate) use esker_base::lock::{order, Mutex, RwLock};
pub(crate) use std::sync::atomic;
