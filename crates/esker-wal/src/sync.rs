//! The locks and atomics of this crate. Everything else in it takes them from here, so that `tests/schedules.rs` can build
//! the same sources on shuttle's, whose scheduler tries one interleaving after the other.

pub(crate) use esker_base::lock::{order, Condvar, Mutex};
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Nanoseconds of a clock that never goes back.
#[cfg(not(test))]
pub(crate) fn now_ns() -> u64 {
    static BEGAN: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    BEGAN.get_or_init(std::time::Instant::now).elapsed().as_nanos() as u64
}

/// It stands still in this crate's own tests: what they count does not hang on a machine's speed.
#[cfg(test)]
pub(crate) fn now_ns() -> u64 {
    0
}
