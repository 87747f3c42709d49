//! A small random generator (SplitMix64): the same seed gives the same disk on every platform and in every release.

#[derive(Debug, Clone)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Random(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Even over `0..=most`.
    pub(super) fn up_to(&mut self, most: u64) -> u64 {
        match most.checked_add(1) {
            Some(bound) => self.next() % bound,
            None => self.next(),
        }
    }

    /// True `percent` times in a hundred.
    pub(super) fn chance(&mut self, percent: u64) -> bool {
        self.next() % 100 < percent
    }
}

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
    pub(super) fn choose(random: &mut Random) -> Fate {
        match random.up_to(7) {
            0 => Fate::Lost,
            1 => Fate::Kept,
            2 | 3 => Fate::Prefix,
            4 => Fate::Each(90),
            5 => Fate::Each(10),
            _ => Fate::Each(50),
        }
    }
}
