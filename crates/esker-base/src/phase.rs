//! The phases of a commit: how often each was gone through, how long that took in all, and how the times are spread, since a
//! sum alone hides the tail.
//!
//! Those of a transaction are timed in the thread that goes through them, those of a group of transactions in the thread that
//! leads it. A phase costs two clock readings, or one where it begins as another ends, and three relaxed adds: no lock, no
//! system call.

use crate::histogram::SharedHistogram;
use crate::wait::elapsed_ns;
use crate::WITHOUT_FIGURES;
use std::time::Instant;

macro_rules! phases {
    ($($variant:ident $name:literal $help:literal,)+) => {
        /// What a commit goes through.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(usize)]
        pub enum CommitPhase {
            $(#[doc = $help] $variant,)+
        }

        impl CommitPhase {
            /// Every phase, in the order of the enum.
            pub const ALL: &'static [CommitPhase] = &[$(CommitPhase::$variant,)+];
            /// How many there are.
            pub const COUNT: usize = Self::ALL.len();

            /// Name in snake_case.
            pub const fn name(self) -> &'static str {
                match self { $(CommitPhase::$variant => $name,)+ }
            }

            /// One line for people.
            pub const fn help(self) -> &'static str {
                match self { $(CommitPhase::$variant => $help,)+ }
            }
        }
    };
}

phases! {
    Prepare "commit_prepare" "A prepare, all of it",
    PrepareWait "commit_prepare_wait" "Of that, waiting until the log is durable as configured",
    Gather "commit_gather" "A group's leader waiting for committers who are about to come",
    LogWrite "commit_log_write" "A group's write to the log, where that is not durable by itself",
    LogSync "commit_log_sync" "A group's sync of the log, or its write that is one",
    Ordered "commit_ordered" "A decision of what was prepared: its place in the order, no more",
    Visible "commit_visible" "A commit from waiting for its turn until it is visible; after a decision, until that is carried out",
    Settle "commit_settle" "What is left once a commit is visible: what it made is settled, its locks are released",
    Wait "commit_wait" "A commit without prepare, waiting until the log is durable as configured",
    Whole "commit_whole" "A commit from its beginning, or that of its prepare, until it is acknowledged",
}

/// How long a phase took, by powers of two of whole microseconds; the sum is of nanoseconds, and loses no fraction of them.
static TIMES: [SharedHistogram; CommitPhase::COUNT] = [const { SharedHistogram::new() }; CommitPhase::COUNT];

/// Bounds of the buckets that are shown, in whole microseconds: the least value in each, up to the next one's.
pub const FROM_US: [u64; 12] = [0, 1, 4, 16, 64, 256, 1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20];

/// What is known of a phase since the start of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PhaseFigures {
    /// How often it was gone through.
    pub count: u64,
    /// How long in all, in nanoseconds.
    pub sum_ns: u64,
    /// How often for so long: see [`FROM_US`].
    pub buckets: [u64; FROM_US.len()],
}

/// A reading of the clock.
#[derive(Debug, Clone, Copy)]
pub struct Moment(Instant);

impl Moment {
    /// Now.
    #[inline]
    #[must_use]
    pub fn now() -> Moment {
        Moment(Instant::now())
    }

    /// Nanoseconds since then.
    #[inline]
    #[must_use]
    pub fn elapsed_ns(self) -> u64 {
        elapsed_ns(self.0)
    }

    /// Records a phase that began then and ends now; when that is.
    #[inline]
    pub fn until_now(self, phase: CommitPhase) -> Moment {
        let now = Instant::now();
        record(phase, u64::try_from((now - self.0).as_nanos()).unwrap_or(u64::MAX));
        Moment(now)
    }
}

/// Runs `work` and records how long the phase took.
#[inline]
pub fn timed<T>(phase: CommitPhase, work: impl FnOnce() -> T) -> T {
    if WITHOUT_FIGURES {
        return work();
    }
    let begin = Instant::now();
    let result = work();
    record(phase, elapsed_ns(begin));
    result
}

fn record(phase: CommitPhase, ns: u64) {
    TIMES[phase as usize].record_among(ns / 1000, ns);
}

/// A phase's figures. What is added meanwhile may be in or out.
pub fn figures(phase: CommitPhase) -> PhaseFigures {
    let us = TIMES[phase as usize].snapshot();
    let mut buckets = [0; FROM_US.len()];
    for (from, _, values) in us.filled() {
        let place = FROM_US.iter().rposition(|least| *least <= from).unwrap_or(0);
        buckets[place] += values;
    }
    PhaseFigures { count: us.count, sum_ns: us.sum_ns, buckets }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_is_in_the_bucket_that_has_it() {
        // No test of this process commits.
        let phase = CommitPhase::Ordered;
        assert_eq!(figures(phase).count, 0);
        let times = [0, 999, 1000, 3999, 4000, 63_999, 64_000, 1_048_575_999, 1_048_576_000, u64::MAX / 4];
        times.iter().for_each(|ns| record(phase, *ns));
        let found = figures(phase);
        assert_eq!((found.count, found.sum_ns), (10, times.iter().sum()));
        assert_eq!(found.buckets, [2, 2, 1, 1, 1, 0, 0, 0, 0, 0, 1, 2]);
    }

    #[test]
    fn phases_follow_each_other() {
        let begin = Moment::now();
        begin.until_now(CommitPhase::Visible).until_now(CommitPhase::Settle);
        assert_eq!(timed(CommitPhase::Wait, || 5), 5);
        for phase in [CommitPhase::Visible, CommitPhase::Settle, CommitPhase::Wait] {
            let found = figures(phase);
            assert_eq!((found.count, found.buckets.iter().sum()), (1, 1u64));
        }
        assert_eq!(CommitPhase::ALL.len(), CommitPhase::COUNT);
        assert!(CommitPhase::ALL.iter().all(|phase| phase.name().starts_with("commit_") && !phase.help().is_empty()));
    }
}
