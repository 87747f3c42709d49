//! What the engine has of the machine besides files: time and threads.
//!
//! Everything that depends on time (how long a lock is waited for, when something is tried again, how long a pause is,
//! when commits that did not wait are synced) and every thread goes through one [`Host`], so that a simulation owns
//! them. Invariant: nothing else in this crate looks at a clock, sleeps or starts a thread (`clippy.toml` has the list).
//! What is only measured (histograms of waits and of locks, in `esker_base`) is timed by the machine's own clock.
#![allow(clippy::disallowed_methods)]

use esker_base::lock::{Condvar, MutexGuard};
use std::fmt::Debug;
use std::sync::LazyLock;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Time and threads.
pub trait Host: Debug + Send + Sync {
    /// Time since some moment, the same for as long as the host lives. Never goes back.
    fn now(&self) -> Duration;

    /// Time since 1970. Only ever shown to people.
    fn unix(&self) -> Duration;

    /// Returns when so much time has passed.
    fn sleep(&self, time: Duration);

    /// As [`sleep`](Self::sleep), and may return before: `asleep` sleeps for as long as it is told, or until it is woken.
    fn wait(&self, time: Duration, asleep: &mut dyn FnMut(Duration)) {
        asleep(time);
    }

    /// An engine is being opened, so much of it (0 to 1) is done, and it goes on: told as the replay of the log begins and once
    /// a second from then on, for whoever stops what takes too long to start.
    fn opening(&self, done: f64) {
        let _ = done;
    }

    /// Runs `work` in a thread of this name.
    ///
    /// # Errors
    /// The machine has no more threads.
    fn spawn(&self, name: &str, work: Box<dyn FnOnce() + Send>) -> std::io::Result<JoinHandle<()>> {
        std::thread::Builder::new().name(name.to_owned()).spawn(work)
    }
}

/// The machine that this process runs on.
#[derive(Debug, Clone, Copy, Default)]
pub struct Machine;

impl Host for Machine {
    fn now(&self) -> Duration {
        static START: LazyLock<Instant> = LazyLock::new(Instant::now);
        START.elapsed()
    }

    fn unix(&self) -> Duration {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO)
    }

    fn sleep(&self, time: Duration) {
        std::thread::sleep(time);
    }
}

/// Sleeps until `condvar` is notified or `time` has passed. May wake without cause: look at the condition, and the clock.
pub(crate) fn wait_for<T>(host: &dyn Host, condvar: &Condvar, guard: &mut MutexGuard<'_, T>, time: Duration) {
    host.wait(time, &mut |time| {
        condvar.wait_for(guard, time);
    });
}

#[cfg(any(test, feature = "sim"))]
pub use sim::SimHost;

#[cfg(any(test, feature = "sim"))]
mod sim {
    use super::{Duration, Host, JoinHandle};
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::Arc;

    /// Time that passes when a test says so, and where somebody waits for it: whoever sleeps, or waits to be woken, finds
    /// at once that so much time has passed. For work in one thread, which nobody else could wake.
    #[derive(Debug, Default)]
    pub struct SimHost {
        now_us: AtomicU64,
        waited_us: AtomicU64,
    }

    impl SimHost {
        /// Its clock begins at zero.
        pub fn new() -> Arc<Self> {
            Arc::default()
        }

        /// So much time passes.
        pub fn pass(&self, time: Duration) {
            self.now_us.fetch_add(time.as_micros() as u64, Ordering::Relaxed);
        }

        /// For how long somebody waited to be woken.
        pub fn waited(&self) -> Duration {
            Duration::from_micros(self.waited_us.load(Ordering::Relaxed))
        }
    }

    impl Host for SimHost {
        fn now(&self) -> Duration {
            Duration::from_micros(self.now_us.load(Ordering::Relaxed))
        }

        fn unix(&self) -> Duration {
            Duration::from_secs(1_700_000_000) + self.now()
        }

        fn sleep(&self, time: Duration) {
            self.pass(time);
        }

        fn wait(&self, time: Duration, _: &mut dyn FnMut(Duration)) {
            self.waited_us.fetch_add(time.as_micros() as u64, Ordering::Relaxed);
            self.pass(time);
        }

        fn spawn(&self, name: &str, _: Box<dyn FnOnce() + Send>) -> std::io::Result<JoinHandle<()>> {
            Err(std::io::Error::other(format!("no thread '{name}' in simulated time")))
        }
    }
}
