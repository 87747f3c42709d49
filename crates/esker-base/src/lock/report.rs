//! What is known of the locks of each name.

use super::order::ALL;
use super::{acquired, Site};
use crate::histogram::HistogramSnapshot;
use parking_lot::Mutex;
use std::sync::atomic::Ordering;

/// What is known about the locks of one name, those that are gone included.
#[derive(Debug, Clone)]
pub struct SiteReport {
    /// The name given when the lock was made.
    pub name: &'static str,
    /// Its place in the lock order, the outermost being 0.
    pub rank: usize,
    /// Acquisitions, by readers too; who sleeps on what a lock guards acquires it again when he wakes.
    pub acquired: u64,
    /// Acquisitions that found the lock taken, those included that were only tried.
    pub contended: u64,
    /// How often those tried again before they had parking_lot wait, all of them.
    pub spins: u64,
    /// Nanoseconds waited by contended acquisitions.
    pub wait: HistogramSnapshot,
    /// The longest of these.
    pub wait_max_ns: u64,
    /// Nanoseconds that it was held, by acquisitions that were timed.
    pub hold: HistogramSnapshot,
    /// The longest of these.
    pub hold_max_ns: u64,
    /// Nanoseconds that the releasing thread spent on releasing, of the same ones.
    pub unlock: HistogramSnapshot,
    /// Nanoseconds from then, where somebody waited, until he had the lock.
    pub rewake: HistogramSnapshot,
}

impl SiteReport {
    fn of(site: &Site) -> Self {
        // First, so that no longest one is missing in a sum.
        let [wait_max_ns, hold_max_ns] = [&site.wait, &site.hold].map(|times| times.longest_ns.load(Ordering::Relaxed));
        SiteReport {
            name: site.name,
            rank: site.place,
            acquired: acquired::total(site.place),
            contended: site.contended.0.load(Ordering::Relaxed),
            spins: site.spins.load(Ordering::Relaxed),
            wait: site.wait.spread.snapshot(),
            wait_max_ns,
            hold: site.hold.spread.snapshot(),
            hold_max_ns,
            unlock: site.unlock.spread.snapshot(),
            rewake: site.rewake.spread.snapshot(),
        }
    }

    fn since(&self, earlier: &SiteReport) -> Self {
        SiteReport {
            acquired: self.acquired.saturating_sub(earlier.acquired),
            contended: self.contended.saturating_sub(earlier.contended),
            spins: self.spins.saturating_sub(earlier.spins),
            wait: self.wait.since(&earlier.wait),
            hold: self.hold.since(&earlier.hold),
            unlock: self.unlock.since(&earlier.unlock),
            rewake: self.rewake.since(&earlier.rewake),
            ..self.clone()
        }
    }

    /// Of so many acquisitions one was timed; none if none was.
    #[must_use]
    pub fn sampled_one_in(&self) -> Option<u64> {
        (self.acquired + self.hold.count / 2).checked_div(self.hold.count).map(|n| n.max(1))
    }
}

/// What there was when it was last forgotten, in the lock order.
static FORGOTTEN: Mutex<Vec<SiteReport>> = Mutex::new(Vec::new());

/// Figures of every site that has had a lock, by name, since the start of the process.
#[must_use]
pub fn report() -> Vec<SiteReport> {
    by_name(ALL.iter().copied().filter(|s| s.made.load(Ordering::Relaxed)).map(SiteReport::of))
}

/// The same since [`forget`].
#[must_use]
pub fn since_forgotten() -> Vec<SiteReport> {
    let forgotten = FORGOTTEN.lock();
    let since = |now: SiteReport| forgotten.get(now.rank).map_or_else(|| now.clone(), |then| now.since(then));
    by_name(report().into_iter().map(since))
}

/// From now on [`since_forgotten`] counts from zero; [`report`] goes on, but for the longest times.
pub fn forget() {
    let mut forgotten = FORGOTTEN.lock();
    *forgotten = ALL.iter().copied().map(SiteReport::of).collect();
    for site in ALL {
        [&site.wait, &site.hold, &site.unlock].into_iter().for_each(|t| t.longest_ns.store(0, Ordering::Relaxed));
    }
}

fn by_name(sites: impl Iterator<Item = SiteReport>) -> Vec<SiteReport> {
    let mut sites: Vec<_> = sites.collect();
    sites.sort_by_key(|s| s.name);
    sites
}
