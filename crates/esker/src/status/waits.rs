//! What was waited for, by the whole process and by each session. Told from memory alone.

use crate::engine::Engine;
use esker_base::wait::{forget, since_forgotten};
use esker_base::WaitEvent;

/// Waits of one kind, since the start or since [`Engine::forget_waits`]. A wait that another one is part of is counted with both:
/// of a group of committers one syncs the log, and waits for the group as the others do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitInfo {
    /// The session's connection; none: of the whole process, background threads included.
    pub connection: Option<u64>,
    /// What was waited for.
    pub event: WaitEvent,
    /// How often.
    pub count: u64,
    /// How long in all, in nanoseconds.
    pub sum_ns: u64,
    /// The longest, in nanoseconds.
    pub max_ns: u64,
    /// How long half of them, and 99 of 100, took at most, in nanoseconds: the end of a power of two that they are in. Not known
    /// of sessions.
    pub p50_p99_ns: Option<(u64, u64)>,
}

/// How many waits of the whole process took so long, see [`WaitInfo`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitBucket {
    /// What was waited for.
    pub event: WaitEvent,
    /// Nanoseconds at least.
    pub from_ns: u64,
    /// And less than so many; none: no end.
    pub to_ns: Option<u64>,
    /// How many.
    pub count: u64,
}

impl Engine {
    /// Every kind of wait of the process, those that never came to be, too; then those of each session that did.
    pub fn waits(&self) -> Vec<WaitInfo> {
        let of_all = |event: &WaitEvent| {
            let (times, max_ns) = since_forgotten(*event);
            let p50_p99_ns = Some((times.quantile_ns(0.5), times.quantile_ns(0.99)));
            let (count, sum_ns) = (times.count, times.sum_ns);
            WaitInfo { connection: None, event: *event, count, sum_ns, max_ns, p50_p99_ns }
        };
        let mut list: Vec<_> = WaitEvent::ALL.iter().map(of_all).collect();
        for session in self.core.sessions.all() {
            let connection = Some(session.connection());
            let of_session = |event: &WaitEvent| {
                let own = session.counters.waited(*event);
                let (count, sum_ns, max_ns) = (own.count, own.sum_ns, own.max_ns);
                WaitInfo { connection, event: *event, count, sum_ns, max_ns, p50_p99_ns: None }
            };
            list.extend(WaitEvent::ALL.iter().map(of_session).filter(|wait| wait.count > 0));
        }
        list
    }

    /// How the times of each kind are spread: what is empty is not there.
    pub fn wait_buckets(&self) -> Vec<WaitBucket> {
        let of = |event: &WaitEvent| {
            let filled: Vec<_> = since_forgotten(*event).0.filled().collect();
            let event = *event;
            filled.into_iter().map(move |(from_ns, to_ns, count)| WaitBucket { event, from_ns, to_ns, count })
        };
        WaitEvent::ALL.iter().flat_map(of).collect()
    }

    /// Counts from zero again: for the process and for all sessions. Totals that never fall are elsewhere.
    pub fn forget_waits(&self) {
        forget();
        self.core.sessions.all().iter().for_each(|session| session.counters.forget_waits());
    }
}
