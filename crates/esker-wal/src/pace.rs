//! Whether a sync is worth putting off: what a sync costs, and how many committers are about to come back.
//!
//! Who was acknowledged mostly commits again at once. Without this the committers fall into halves that take turns: while one
//! half's sync is under way the other comes, so that each sync serves half of them. If those who were acknowledged last are back in
//! less time than a sync takes, a leader that waits for them serves all by one. Where they need longer (processors are busy,
//! people think) nothing is put off.
//!
//! Those who have prepared come back once their coordinator has synced its own log and ended them. Who prepares meanwhile would only
//! stand in line behind them, and his sync would take the device from the coordinator's: so they are waited for, too. All
//! transactions then pay one sync of each log together, instead of each half of them one of each.
//!
//! Invariants: counts and times are guesses, no order of memory hangs on them; nothing is put off for longer than a sync takes,
//! counted from the last acknowledgement, or than twice what a coordinator takes, and returning, a few syncs at most: who has
//! prepared may be one who decides in an hour, or waits for just those who are put off. One who waits in vain makes the next wait
//! less likely.

use std::sync::atomic::{AtomicU64, Ordering};

/// A new figure weighs an eighth of what is known.
const WEIGHT: u64 = 8;
/// Who is not back after so many syncs does something else.
const GONE_AFTER_SYNCS: u64 = 32;

/// A coordinator is waited for as long as so many syncs take, or so many nanoseconds, whatever others took.
const MOST_SYNCS: u64 = 16;
const MOST_NS: u64 = 10_000_000;

/// Times in nanoseconds of one clock, which the caller reads (`now`). Zero: not known yet.
#[derive(Default)]
pub(crate) struct Pace {
    /// Acknowledged, and not back yet.
    away: AtomicU64,
    /// Prepared, and not ended yet.
    undecided: AtomicU64,
    /// When the last of them had prepared.
    prepared_ns: AtomicU64,
    /// From then until a coordinator has ended them.
    decide_ns: AtomicU64,
    /// When the last of them was acknowledged.
    acknowledged_ns: AtomicU64,
    /// What a sync takes.
    sync_ns: AtomicU64,
    /// From the last acknowledgement until all are back.
    return_ns: AtomicU64,
    /// Since all were back.
    syncs: AtomicU64,
}

/// What a leader does with its sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Advice {
    /// Nobody is away.
    AllAreThere,
    /// Some are away, and will be for longer than a sync takes.
    NotWorth,
    /// Wait for so many nanoseconds at most.
    Wait(u64),
}

impl Pace {
    /// So many committers go back to their work.
    pub(crate) fn acknowledged(&self, committers: u64, now: u64) {
        if committers > 0 {
            self.acknowledged_ns.store(now, Ordering::Relaxed);
            self.away.fetch_add(committers, Ordering::Relaxed);
        }
    }

    /// So many have prepared.
    pub(crate) fn prepared(&self, committers: u64, now: u64) {
        if committers > 0 {
            self.prepared_ns.store(now, Ordering::Relaxed);
            self.undecided.fetch_add(committers, Ordering::Relaxed);
        }
    }

    /// So many of those who have prepared go back to their work.
    pub(crate) fn ended_prepared(&self, committers: u64, now: u64) {
        let less = |undecided: u64| Some(undecided.saturating_sub(committers));
        let _ = self.undecided.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        learn(&self.decide_ns, since(&self.prepared_ns, now));
        self.acknowledged(committers, now);
    }

    /// A committer comes. Was it the last one that was away?
    pub(crate) fn arrived(&self, now: u64) -> bool {
        let one_less = |away: u64| away.checked_sub(1);
        let was = self.away.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less);
        if was == Ok(1) {
            learn(&self.return_ns, since(&self.acknowledged_ns, now));
            self.syncs.store(0, Ordering::Relaxed);
        }
        was == Ok(1)
    }

    /// A sync took so long.
    pub(crate) fn synced(&self, ns: u64) {
        learn(&self.sync_ns, ns);
    }

    /// What to do with a sync that could begin now.
    pub(crate) fn advise(&self, now: u64) -> Advice {
        let [away, undecided, sync, back, decide] =
            [&self.away, &self.undecided, &self.sync_ns, &self.return_ns, &self.decide_ns]
                .map(|figure| figure.load(Ordering::Relaxed));
        let left = match undecided > 0 {
            _ if away + undecided == 0 => return Advice::AllAreThere,
            true => {
                let most = MOST_SYNCS.saturating_mul(sync).max(MOST_NS);
                let ended = 2u64.saturating_mul(decide.saturating_add(back)).min(most);
                ended.saturating_sub(since(&self.prepared_ns, now))
            }
            false => sync.min(back.saturating_mul(2)).saturating_sub(since(&self.acknowledged_ns, now)),
        };
        match left {
            left if back < sync && left > 0 => Advice::Wait(left),
            _ => Advice::NotWorth,
        }
    }

    /// A sync begins. If it was put off, that was in vain for those who are still away.
    pub(crate) fn begins(&self, put_off: bool) {
        let away = self.away.load(Ordering::Relaxed) + self.undecided.load(Ordering::Relaxed) > 0;
        if put_off && away {
            let [sync, back] = [&self.sync_ns, &self.return_ns].map(|figure| figure.load(Ordering::Relaxed));
            self.return_ns.store(back.max(sync / 2).saturating_mul(2), Ordering::Relaxed);
        }
        if away && (put_off || self.syncs.fetch_add(1, Ordering::Relaxed) >= GONE_AFTER_SYNCS) {
            self.away.store(0, Ordering::Relaxed);
            self.undecided.store(0, Ordering::Relaxed);
            self.syncs.store(0, Ordering::Relaxed);
        }
    }
}

fn since(event: &AtomicU64, now: u64) -> u64 {
    now.saturating_sub(event.load(Ordering::Relaxed))
}

/// The first figure counts as it is.
fn learn(known: &AtomicU64, new: u64) {
    let old = known.load(Ordering::Relaxed);
    let next = if old == 0 { new } else { old - old / WEIGHT + new / WEIGHT };
    known.store(next.max(1), Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYNC: u64 = 1000;

    /// A sync takes `SYNC`; four who were acknowledged were back after `back`.
    fn learned(back: u64) -> Pace {
        let pace = Pace::default();
        pace.synced(SYNC);
        pace.acknowledged(4, 10_000);
        assert_eq!((0..4).map(|_| pace.arrived(10_000 + back)).collect::<Vec<_>>(), [false, false, false, true]);
        pace
    }

    fn come(pace: &Pace, committers: u64, at: u64) {
        for _ in 0..committers {
            pace.arrived(at);
        }
    }

    #[test]
    fn those_who_are_soon_back_are_waited_for() {
        let pace = learned(200);
        assert_eq!(pace.advise(11_000), Advice::AllAreThere);
        pace.acknowledged(4, 20_000);
        assert_eq!(pace.advise(20_000), Advice::Wait(400));
        pace.arrived(20_100);
        assert_eq!(pace.advise(20_100), Advice::Wait(300));
        come(&pace, 3, 20_200);
        assert_eq!(pace.advise(20_200), Advice::AllAreThere);
        pace.begins(true);
        pace.acknowledged(1, 30_000);
        assert_eq!(pace.advise(30_100), Advice::Wait(300));
    }

    /// A lone committer never waits, whatever is known.
    #[test]
    fn one_alone_is_expected_by_nobody() {
        let pace = learned(200);
        for at in [20_000, 30_000, 40_000] {
            assert_eq!(pace.advise(at), Advice::AllAreThere);
            pace.begins(false);
            pace.acknowledged(1, at + SYNC);
            pace.arrived(at + SYNC + 5000);
        }
    }

    #[test]
    fn those_who_need_longer_than_a_sync_are_not() {
        for unknown in [Pace::default(), learned(SYNC)] {
            unknown.acknowledged(4, 20_000);
            assert_eq!(unknown.advise(20_000), Advice::NotWorth);
        }
    }

    /// Those whose coordinator has them come back, too.
    #[test]
    fn those_who_have_prepared_are_waited_for() {
        let pace = learned(200);
        pace.prepared(3, 20_000);
        assert_eq!(pace.advise(20_000), Advice::Wait(400));
        pace.ended_prepared(3, 24_000);
        come(&pace, 3, 24_200);
        // Now it is known how long a coordinator takes.
        pace.prepared(3, 30_000);
        assert_eq!(pace.advise(31_000), Advice::Wait(2 * 4200 - 1000));
        pace.ended_prepared(3, 34_000);
        assert_eq!(pace.advise(34_000), Advice::Wait(400));
        come(&pace, 3, 34_200);
        assert_eq!(pace.advise(34_200), Advice::AllAreThere);
        // One that is never ended is waited for once.
        pace.prepared(1, 40_000);
        assert_eq!(pace.advise(49_000), Advice::NotWorth);
        pace.begins(true);
        assert_eq!(pace.advise(49_000), Advice::AllAreThere);
    }

    /// Somebody decided after an hour: what is learned of that holds up nobody.
    #[test]
    fn a_coordinator_is_not_waited_for_as_long_as_one_has_taken() {
        const HOUR: u64 = 3_600_000_000_000;
        let pace = learned(200);
        pace.prepared(1, 20_000);
        pace.ended_prepared(1, 20_000 + HOUR);
        pace.arrived(20_200 + HOUR);
        pace.prepared(1, 2 * HOUR);
        assert_eq!(pace.advise(2 * HOUR), Advice::Wait(MOST_NS));
        (0..200).for_each(|_| pace.synced(30_000_000));
        let Advice::Wait(most) = pace.advise(2 * HOUR) else { panic!("it is worth a sync") };
        assert!((15 * 30_000_000..=16 * 30_000_000).contains(&most), "{most}");
    }

    #[test]
    fn who_waits_in_vain_waits_less() {
        let pace = learned(300);
        pace.acknowledged(2, 20_000);
        assert_eq!(pace.advise(20_600), Advice::NotWorth);
        pace.begins(true);
        pace.acknowledged(2, 30_000);
        assert_eq!(pace.advise(30_000), Advice::NotWorth);
        come(&pace, 2, 30_100);
        // Those who come back teach it better.
        for round in 0..30 {
            let at = 40_000 + round * 10_000;
            pace.begins(false);
            pace.acknowledged(2, at);
            come(&pace, 2, at + 100);
        }
        pace.acknowledged(2, 400_000);
        assert!(matches!(pace.advise(400_000), Advice::Wait(_)));
    }

    /// Sessions that went to sleep are forgotten, so that those who work are known again.
    #[test]
    fn those_who_never_come_back_are_forgotten() {
        let pace = learned(300);
        pace.acknowledged(100, 20_000);
        for at in 0..=GONE_AFTER_SYNCS {
            assert_eq!(pace.advise(30_000 + at), Advice::NotWorth);
            pace.begins(false);
        }
        assert_eq!(pace.advise(40_000), Advice::AllAreThere);
    }
}
