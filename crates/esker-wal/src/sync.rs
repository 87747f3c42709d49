//! The locks and atomics of this crate. Everything else in it takes them from here, so that `tests/schedules.rs` can build
//! the same sources on shuttle's, whose scheduler tries one interleaving after the other.

pub(crate) use esker_base::lock::{order, Condvar, Mutex};
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
