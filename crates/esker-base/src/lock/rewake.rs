//! How long it takes a waiter to have a lock after it was let go of.
//!
//! A waiter leaves the lock's address with the site; who lets go of that lock and is timed leaves the time there, once. One handover
//! of a name is looked at at a time: another waiter takes the place of the one before, whose handover is not told then.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::OnceLock;
use std::time::Instant;

/// What times count from: they are above 0.
static ORIGIN: OnceLock<Instant> = OnceLock::new();

fn since_origin_ns(at: Instant) -> u64 {
    let origin = *ORIGIN.get_or_init(Instant::now);
    u64::try_from(at.saturating_duration_since(origin).as_nanos()).unwrap_or(u64::MAX).max(1)
}

pub(super) struct Handover {
    /// The lock that somebody waits for; 0: none, or its holder has let go.
    waited_for: AtomicUsize,
    /// The waiter's number.
    turn: AtomicU64,
    /// When its holder let go, and of which waiter's turn that was; 0: he has not, or was not timed.
    let_go_ns: AtomicU64,
    let_go_turn: AtomicU64,
}

impl Handover {
    pub(super) const fn new() -> Handover {
        Handover {
            waited_for: AtomicUsize::new(0),
            turn: AtomicU64::new(0),
            let_go_ns: AtomicU64::new(0),
            let_go_turn: AtomicU64::new(0),
        }
    }

    /// This thread is about to wait for a lock; its turn.
    pub(super) fn before_wait(&self, lock: usize) -> u64 {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) + 1;
        self.waited_for.store(lock, Ordering::Release);
        turn
    }

    /// Its holder is about to let go, at this moment.
    pub(super) fn before_release(&self, lock: usize, at: Instant) {
        if self.waited_for.load(Ordering::Relaxed) != lock {
            return;
        }
        let turn = self.turn.load(Ordering::Relaxed);
        if self.waited_for.compare_exchange(lock, 0, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            self.let_go_ns.store(since_origin_ns(at), Ordering::Relaxed);
            self.let_go_turn.store(turn, Ordering::Release);
        }
    }

    /// The waiter of this turn has the lock: how long after it was let go of, if that is known.
    pub(super) fn after_wait(&self, lock: usize, turn: u64) -> Option<u64> {
        let now = Instant::now();
        let _ = self.waited_for.compare_exchange(lock, 0, Ordering::Relaxed, Ordering::Relaxed);
        if self.let_go_turn.load(Ordering::Acquire) != turn {
            return None;
        }
        let then_ns = self.let_go_ns.load(Ordering::Relaxed);
        // Another waiter's holder may have written meanwhile.
        let is_its = self.let_go_turn.load(Ordering::Acquire) == turn;
        is_its.then(|| since_origin_ns(now).saturating_sub(then_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn who_waited_knows_since_when_the_lock_was_free() {
        let handover = Handover::new();
        since_origin_ns(Instant::now());
        let at = |ms| Instant::now().checked_sub(Duration::from_millis(ms)).unwrap();
        // Nobody let go, or somebody did of another one, or before there was a waiter.
        handover.before_release(8, at(0));
        let turn = handover.before_wait(8);
        assert_eq!(handover.after_wait(8, turn), None);
        let turn = handover.before_wait(8);
        handover.before_release(16, at(0));
        assert_eq!(handover.after_wait(8, turn), None);
        // The first to let go is who has woken him.
        std::thread::sleep(Duration::from_millis(30));
        let turn = handover.before_wait(8);
        handover.before_release(8, at(20));
        handover.before_release(8, at(0));
        assert!(handover.after_wait(8, turn).is_some_and(|ns| ns >= 20_000_000));
        // Another waiter of the name has taken the place.
        let (first, second) = (handover.before_wait(8), handover.before_wait(16));
        handover.before_release(16, at(0));
        assert_eq!(handover.after_wait(8, first), None);
        assert!(handover.after_wait(16, second).is_some());
    }
}
