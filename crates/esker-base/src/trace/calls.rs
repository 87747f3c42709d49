//! Owns how much of a statement's processor time its calls of the engine took.
//!
//! Invariant: of many calls few are timed, and which ones has nothing to do with calls that take turns.

use super::thread_cpu_ns;
use crate::draw::is_drawn;
use std::sync::LazyLock;

/// So many calls are timed one by one; of those that follow, one in [`SAMPLED`], which stands for all.
pub(super) const ALL_TIMED: u64 = 1024;
pub(super) const SAMPLED: u64 = 16;

/// A statement's calls of the engine.
#[derive(Debug, Default)]
pub(super) struct Calls {
    /// How many began.
    count: u64,
    /// When the last one did, if it is timed and not over.
    began_ns: Option<u64>,
    first: Timed,
    drawn: Timed,
}

/// Of calls that were timed.
#[derive(Debug, Default)]
struct Timed {
    count: u64,
    ns: u64,
}

impl Timed {
    /// Without what reading the clock took, which is in each of them once.
    fn ns_without(&self, clock_ns: u64) -> u64 {
        self.ns.saturating_sub(self.count.saturating_mul(clock_ns))
    }
}

impl Calls {
    /// Another one begins. Is it to be timed?
    pub(super) fn another(&mut self) -> bool {
        self.count += 1;
        self.began_ns = None;
        self.count <= ALL_TIMED || is_drawn(self.count, SAMPLED)
    }

    /// It is timed from here on, on the clock of the thread's work.
    pub(super) fn begin(&mut self, busy_ns: u64) {
        self.began_ns = Some(busy_ns);
    }

    /// Is it timed?
    pub(super) fn is_timed(&self) -> bool {
        self.began_ns.is_some()
    }

    /// It is over.
    pub(super) fn end(&mut self, busy_ns: u64) {
        let Some(began_ns) = self.began_ns.take() else { return };
        let timed = if self.count <= ALL_TIMED { &mut self.first } else { &mut self.drawn };
        timed.count += 1;
        timed.ns += busy_ns.saturating_sub(began_ns);
    }

    /// What all of them took, where reading the clock takes so long; at the most so much as there was.
    pub(super) fn ns(&self, clock_ns: u64, most_ns: u64) -> u64 {
        let others = u128::from(self.count.saturating_sub(ALL_TIMED));
        let drawn = u128::from(self.drawn.ns_without(clock_ns)) * others / u128::from(self.drawn.count.max(1));
        let all = u128::from(self.first.ns_without(clock_ns)) + drawn;
        u64::try_from(all).unwrap_or(u64::MAX).min(most_ns)
    }
}

/// What reading the thread's clock takes here: the median of some trials.
pub(super) static CLOCK_NS: LazyLock<u64> = LazyLock::new(|| {
    const READS: u64 = 32;
    let trial = |_| {
        let began = thread_cpu_ns();
        (1..READS).for_each(|_| _ = std::hint::black_box(thread_cpu_ns()));
        (thread_cpu_ns() - began) / READS
    };
    let mut trials: [u64; 9] = std::array::from_fn(trial);
    trials.sort_unstable();
    trials[trials.len() / 2]
});

#[cfg(test)]
mod tests {
    use super::*;

    /// So many calls of a kind each, by turns, of which one kind takes long.
    fn by_turns(calls: u64, kinds: u64, long: u64, ns: u64) -> u64 {
        let (mut all, mut now_ns) = (Calls::default(), 0);
        for n in 0..calls {
            if all.another() {
                all.begin(now_ns);
            }
            now_ns += if n % kinds == long { ns } else { 0 };
            all.end(now_ns);
        }
        all.ns(0, u64::MAX)
    }

    #[test]
    fn calls_that_take_turns_are_met_alike() {
        for kinds in [1, 2, 3, 4, 8, 16, 17, 32, 48] {
            for long in 0..kinds {
                let (took, calls) = (by_turns(480_000, kinds, long, 1000), 480_000 / kinds);
                assert!(took.abs_diff(calls * 1000) < calls * 50, "{long} of {kinds}: {took} ns for {calls} calls");
            }
        }
    }

    #[test]
    fn few_are_timed_and_those_that_are_not_count() {
        let mut calls = Calls::default();
        let timed = (0..ALL_TIMED + 160_000).filter(|_| calls.another()).count() as u64;
        assert!((ALL_TIMED + 9_990..=ALL_TIMED + 10_010).contains(&timed), "{timed}");
        assert_eq!((by_turns(700, 1, 0, 1000), by_turns(161_024, 1, 0, 1000)), (700_000, 161_024_000));
    }

    #[test]
    fn the_clock_is_left_out_and_no_more_is_told_than_there_was() {
        let mut calls = Calls::default();
        for _ in 0..ALL_TIMED + 1600 {
            let timed = calls.another();
            if timed {
                calls.begin(0);
            }
            calls.end(500);
            assert!(!calls.is_timed());
        }
        assert_eq!(calls.ns(400, u64::MAX), 100 * (ALL_TIMED + 1600));
        assert_eq!((calls.ns(600, u64::MAX), calls.ns(400, 7777)), (0, 7777));
        assert!(*CLOCK_NS > 0);
    }

    #[test]
    fn one_that_did_not_end_is_not_counted_with_the_next() {
        let mut calls = Calls::default();
        assert!(calls.another());
        calls.begin(1000);
        assert!(calls.another());
        calls.begin(5000);
        calls.end(5100);
        calls.end(9000);
        assert_eq!(calls.ns(0, u64::MAX), 100);
    }
}
