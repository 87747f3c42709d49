// SPDX-License-Identifier: MIT OR Apache-2.0
//! The panic guard around every call from C.
//!
//! A panic is a bug. It is caught, told to the error log, the engine is poisoned, and from then on its handles refuse
//! work: nobody knows in what state the panic left things. Files on disk are as safe as after a crash; restart recovers.

use crate::status::Failure;
use esker::{Level, Notify};
use std::any::Any;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};

/// Stops the engine, for this reason.
type Poison = Box<dyn Fn(&str) + Send + Sync>;

/// Has something panicked? And whom to tell.
pub(crate) struct Guard {
    tripped: AtomicBool,
    log: Notify,
    poison: Poison,
}

impl Guard {
    pub(crate) fn new(log: Notify, poison: Poison) -> Guard {
        Guard { tripped: AtomicBool::new(false), log, poison }
    }

    /// Runs work that must not go on after a panic anywhere.
    #[inline]
    pub(crate) fn run<T>(&self, work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
        if self.tripped.load(Ordering::Relaxed) {
            return Err(refused());
        }
        self.clean_up(work)
    }

    /// Runs work that is allowed after a panic too: it ends things.
    #[inline]
    pub(crate) fn clean_up<T>(&self, work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
        match catch_unwind(AssertUnwindSafe(work)) {
            Ok(result) => result,
            Err(payload) => Err(self.trip(&*payload)),
        }
    }

    #[cold]
    fn trip(&self, payload: &(dyn Any + Send)) -> Failure {
        self.tripped.store(true, Ordering::Relaxed);
        let text = format!("a bug in Esker: {}; restart the server", words(payload));
        (self.log)(&text, Level::Error);
        (self.poison)(&text);
        Failure::panic(text)
    }
}

#[cold]
fn refused() -> Failure {
    Failure::panic("stopped after a bug in Esker, see the error log; restart the server".into())
}

fn words(payload: &(dyn Any + Send)) -> &str {
    payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("panic")
}

/// Runs work where no engine is at hand.
pub(crate) fn catch<T>(work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|payload| Err(Failure::panic(format!("a bug in Esker: {}", words(&*payload)))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[test]
    fn a_panic_becomes_a_status_and_stops_work() {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let sink = lines.clone();
        let log: Notify = Arc::new(move |text: &str, _| {
            if let Ok(mut lines) = sink.lock() {
                lines.push(text.to_owned());
            }
        });
        let poisoned = Arc::new(AtomicBool::new(false));
        let flag = poisoned.clone();
        let guard = Guard::new(log, Box::new(move |_| flag.store(true, Ordering::Relaxed)));
        assert!(guard.run(|| Ok(1)).is_ok());
        let failed = guard.run(|| -> Result<(), Failure> { panic!("so {}", "what") });
        assert!(failed.is_err_and(|f| f.text.contains("so what")));
        assert!(poisoned.load(Ordering::Relaxed));
        assert!(guard.run(|| Ok(1)).is_err());
        assert!(guard.clean_up(|| Ok(1)).is_ok());
        assert_eq!(lines.lock().map(|l| l.len()).unwrap_or(0), 1);
    }
}
