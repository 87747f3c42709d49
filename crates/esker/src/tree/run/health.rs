//! What failed is left alone for a while, each time for longer, so that one bad file costs nobody else anything.
//!
//! Owns one thing's trouble. Only work that nobody waits for asks
//! [`Health::left_alone`]; a statement always tries. Invariant: trouble is forgotten only when the part that failed was
//! read well again, of several parts the one that is worst off, of those alike the first.

use esker_base::lock::{order, Mutex};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// What fails for the first time is left alone this long; each time after that for twice as long.
const FIRST_PAUSE: Duration = Duration::from_secs(10);
/// The pause is doubled this often at most: to about three hours.
const MOST_DOUBLINGS: u32 = 10;

/// How something is doing, as the last tries said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
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
    until: Duration,
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
        Health { troubled: AtomicBool::new(false), trouble: Mutex::new(&order::HEALTH, None) }
    }
}

impl Health {
    /// `part` failed; `state` says how.
    pub(crate) fn failed(&self, part: u64, state: State, now: Duration) {
        let mut trouble = self.trouble.lock();
        let times = trouble.as_ref().map_or(0, |t| t.times);
        // Statements that meet it again while it rests do not make the rest longer.
        let again = trouble.as_ref().is_none_or(|t| t.until <= now);
        let until = match &*trouble {
            Some(t) if !again => t.until,
            _ => now + FIRST_PAUSE * (1 << times.min(MOST_DOUBLINGS)),
        };
        let worst = trouble.as_ref().map(|t| (t.part, t.state)).filter(|(other, was)| *other != part && *was >= state);
        let (part, state) = worst.unwrap_or((part, state));
        *trouble = Some(Box::new(Trouble { part, state, until, times: times + u32::from(again) }));
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
    pub(crate) fn left_alone(&self, now: Duration) -> bool {
        self.troubled.load(Ordering::Acquire) && self.trouble.lock().as_ref().is_some_and(|t| now < t.until)
    }

    pub(crate) fn state(&self) -> State {
        if !self.troubled.load(Ordering::Acquire) {
            return State::Sound;
        }
        self.trouble.lock().as_ref().map_or(State::Sound, |t| t.state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_only_the_part_that_failed_ends_them() {
        let (h, tick) = (Health::default(), Duration::from_nanos(1));
        assert!(h.state() == State::Sound && !h.left_alone(Duration::ZERO));
        h.failed(3, State::SetAside, Duration::ZERO);
        assert!(h.left_alone(FIRST_PAUSE - tick) && !h.left_alone(FIRST_PAUSE));
        h.succeeded(4);
        assert_eq!(h.state(), State::SetAside);
        // Met again while it rests: no longer for that.
        h.failed(3, State::SetAside, 5 * tick);
        assert!(!h.left_alone(FIRST_PAUSE));
        h.failed(3, State::Damaged, FIRST_PAUSE);
        assert!(h.left_alone(3 * FIRST_PAUSE - tick) && !h.left_alone(3 * FIRST_PAUSE));
        h.succeeded(3);
        assert!(h.state() == State::Sound && !h.left_alone(FIRST_PAUSE));
        h.failed(1, State::Damaged, Duration::ZERO);
        h.failed(2, State::SetAside, Duration::ZERO);
        h.succeeded(2);
        assert_eq!(h.state(), State::Damaged, "another part that is well again says nothing of this one");
        h.failed(2, State::SetAside, Duration::ZERO);
        h.succeeded(1);
        let longest = FIRST_PAUSE * (1 << MOST_DOUBLINGS);
        (0..50).for_each(|n| h.failed(1, State::SetAside, n * longest));
        assert!(!h.left_alone(50 * longest), "a pause has an end");
    }
}
