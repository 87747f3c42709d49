//! What a power cut leaves of what was not synced.

use fastrand::Rng;

/// How a power cut treats what was not synced. The extremes come up often, since they find other faults than a mixture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// Nothing is kept.
    Lost,
    /// Everything is kept.
    Kept,
    /// What came first is kept, the change at the edge perhaps in part.
    Prefix,
    /// Each change is kept for itself so many times in a hundred: reordered and torn.
    Each(u64),
}

impl Fate {
    pub(super) fn choose(random: &mut Rng) -> Fate {
        match random.u64(..8) {
            0 => Fate::Lost,
            1 => Fate::Kept,
            2 | 3 => Fate::Prefix,
            4 => Fate::Each(90),
            5 => Fate::Each(10),
            _ => Fate::Each(50),
        }
    }
}
