//! What failed is left alone for a while, each time for longer, so that one bad file costs nobody else anything.
//!
//! Owns one thing's trouble and the clock it is measured with. Only work that nobody waits for asks
//! [`Health::left_alone`]; a statement always tries. Invariant: trouble is forgotten only when the part that failed was
//! read well again.

use esker_base::lock::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

/// What fails for the first time is left alone this long; each time after that for twice as long.
const FIRST_PAUSE_MS: u64 = 10_000;
/// The pause is doubled this often at most: to about three hours.
const MOST_DOUBLINGS: u32 = 10;

/// How something is doing, as the last tries said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// Nothing is known against it.
    Sound,
    /// It could not be read or written.
    SetAside,
    /// It could be read, and was not what had been written.
    Damaged,
}

#[derive(Clone, Copy)]
struct Trouble {
    part: u64,
    state: State,
    until_ms: u64,
    times: u32,
}

/// See the module.
pub(crate) struct Health {
    /// Is there any trouble? Spares those who read well the lock.
    troubled: AtomicBool,
    /// Boxed: very few of very many runs have any.
    trouble: Mutex<Option<Box<Trouble>>>,
}

impl Default for Health {
    fn default() -> Self {
        Health { troubled: AtomicBool::new(false), trouble: Mutex::new("health", None) }
    }
}

impl Health {
    /// `part` failed; `state` says how.
    pub(crate) fn failed(&self, part: u64, state: State, now_ms: u64) {
        let mut trouble = self.trouble.lock();
        let times = trouble.as_ref().map_or(0, |t| t.times);
        // Statements that meet it again while it rests do not make the rest longer.
        let again = trouble.as_ref().is_none_or(|t| t.until_ms <= now_ms);
        let until_ms = match &*trouble {
            Some(t) if !again => t.until_ms,
            _ => now_ms + (FIRST_PAUSE_MS << times.min(MOST_DOUBLINGS)),
        };
        *trouble = Some(Box::new(Trouble { part, state, until_ms, times: times + u32::from(again) }));
        self.troubled.store(true, Ordering::Release);
    }

    /// `part` is well.
    pub(crate) fn succeeded(&self, part: u64) {
        if self.troubled.load(Ordering::Acquire) {
            let mut trouble = self.trouble.lock();
            if trouble.as_ref().is_some_and(|t| t.part == part) {
                *trouble = None;
                self.troubled.store(false, Ordering::Release);
            }
        }
    }

    /// Is this no time to try it without need?
    pub(crate) fn left_alone(&self, now_ms: u64) -> bool {
        self.troubled.load(Ordering::Acquire) && self.trouble.lock().as_ref().is_some_and(|t| now_ms < t.until_ms)
    }

    pub(crate) fn state(&self) -> State {
        self.trouble.lock().as_ref().map_or(State::Sound, |t| t.state)
    }
}

/// Milliseconds since it was made. Stands still where a seed must replay exactly: there only a success ends a pause.
pub(crate) struct Clock {
    start: Option<Instant>,
    added_ms: AtomicU64,
}

impl Clock {
    pub(crate) fn new(runs: bool) -> Self {
        Clock { start: runs.then(Instant::now), added_ms: AtomicU64::new(0) }
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.start.map_or(0, |s| s.elapsed().as_millis() as u64) + self.added_ms.load(Ordering::Relaxed)
    }

    #[cfg(any(test, feature = "sim"))]
    pub(crate) fn pass(&self, ms: u64) {
        self.added_ms.fetch_add(ms, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_only_the_part_that_failed_ends_them() {
        let h = Health::default();
        assert!(h.state() == State::Sound && !h.left_alone(0));
        h.failed(3, State::SetAside, 0);
        assert!(h.left_alone(FIRST_PAUSE_MS - 1) && !h.left_alone(FIRST_PAUSE_MS));
        h.succeeded(4);
        assert_eq!(h.state(), State::SetAside);
        // Met again while it rests: no longer for that.
        h.failed(3, State::SetAside, 5);
        assert!(!h.left_alone(FIRST_PAUSE_MS));
        h.failed(3, State::Damaged, FIRST_PAUSE_MS);
        assert!(h.left_alone(3 * FIRST_PAUSE_MS - 1) && !h.left_alone(3 * FIRST_PAUSE_MS));
        h.succeeded(3);
        assert!(h.state() == State::Sound && !h.left_alone(FIRST_PAUSE_MS));
        (0..50).for_each(|n| h.failed(1, State::SetAside, n * (FIRST_PAUSE_MS << MOST_DOUBLINGS)));
        assert!(!h.left_alone(50 * (FIRST_PAUSE_MS << MOST_DOUBLINGS)), "a pause has an end");
    }
}
