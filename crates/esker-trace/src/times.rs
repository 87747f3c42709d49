//! How long things of one kind took: few of them one by one, many as a distribution with three digits.

use hdrhistogram::Histogram;

/// So many are kept one by one: nearly all statements have fewer waits of a kind, and need no distribution.
const FEW: usize = 1024;
/// A percentile is told if so many times lie above it.
const ABOVE: f64 = 10.0;
/// Longer ones count as this in the distribution: three centuries.
const LONGEST: u64 = 1 << 63;

/// A number of times, their sum and the longest, in ns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Sum {
    pub(crate) count: u64,
    pub(crate) sum_ns: u64,
    pub(crate) max_ns: u64,
}

impl Sum {
    pub(crate) fn add(&mut self, ns: u64) {
        self.merge(Sum { count: 1, sum_ns: ns, max_ns: ns });
    }

    pub(crate) fn merge(&mut self, other: Sum) {
        self.count = self.count.saturating_add(other.count);
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }
}

/// See the module.
#[derive(Debug, Clone, Default)]
pub(crate) struct Times {
    pub(crate) all: Sum,
    few: Vec<u64>,
    many: Option<Box<Histogram<u64>>>,
}

impl Times {
    pub(crate) fn add(&mut self, ns: u64) {
        self.all.add(ns);
        self.keep(ns);
    }

    /// So many of which the sum is known alone: each counts as their mean.
    pub(crate) fn add_summed(&mut self, sum_ns: u64, count: u64) {
        let mean_ns = sum_ns / count.max(1);
        self.all.merge(Sum { count, sum_ns, max_ns: mean_ns });
        self.spread();
        if let Some(many) = &mut self.many {
            let _ = many.record_n(mean_ns.min(LONGEST), count);
        }
    }

    fn keep(&mut self, ns: u64) {
        if self.many.is_none() && self.few.len() < FEW {
            self.few.push(ns);
            return;
        }
        self.spread();
        if let Some(many) = &mut self.many {
            // It grows: no value is out of range.
            let _ = many.record(ns.min(LONGEST));
        }
    }

    /// From few to many.
    fn spread(&mut self) {
        if self.many.is_some() {
            return;
        }
        if let Ok(mut many) = Histogram::new(3) {
            for ns in std::mem::take(&mut self.few) {
                let _ = many.record(ns.min(LONGEST));
            }
            self.many = Some(Box::new(many));
        }
    }

    pub(crate) fn merge(&mut self, other: &Times) {
        self.all.merge(other.all);
        if let Some(theirs) = &other.many {
            self.spread();
            if let Some(mine) = &mut self.many {
                let _ = mine.add(&**theirs);
            }
        }
        other.few.iter().for_each(|ns| self.keep(*ns));
    }

    /// The time that a share of them does not exceed; `None` where fewer than ten are above it.
    pub(crate) fn percentile(&self, share: f64) -> Option<u64> {
        // What 1 - 0.99 lacks of a hundredth is not to cost a percentile.
        if (self.all.count as f64) * (1.0 - share) < ABOVE - 1e-6 {
            return None;
        }
        Some(self.quantile(share))
    }

    /// The same without asking how many are above it; 0 without any.
    pub(crate) fn quantile(&self, share: f64) -> u64 {
        if let Some(many) = &self.many {
            return many.value_at_quantile(share).min(self.all.max_ns);
        }
        let mut sorted = self.few.clone();
        sorted.sort_unstable();
        let rank = (share * sorted.len() as f64 - 1e-9).ceil().max(1.0) as usize;
        sorted.get(rank - 1).copied().unwrap_or(0)
    }

    /// Each time, or the middle of those that the distribution takes for one, with how often it came; from the least.
    pub(crate) fn each(&self) -> Vec<(u64, u64)> {
        match &self.many {
            Some(many) => many
                .iter_recorded()
                .map(|v| (many.median_equivalent(v.value_iterated_to()), v.count_at_value()))
                .collect(),
            None => {
                let mut sorted = self.few.clone();
                sorted.sort_unstable();
                sorted.into_iter().map(|ns| (ns, 1)).collect()
            }
        }
    }

    /// By powers of two of ns: from, to (below which they are) and how many; without empty ones.
    pub(crate) fn powers(&self) -> Vec<(u64, u64, u64)> {
        let mut powers: Vec<(u64, u64, u64)> = Vec::new();
        for (ns, count) in self.each() {
            let from = if ns == 0 { 0 } else { 1 << ns.ilog2() };
            match powers.last_mut() {
                Some(last) if last.0 == from => last.2 += count,
                _ => powers.push((from, from.saturating_mul(2).max(1), count)),
            }
        }
        powers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(values: impl Iterator<Item = u64>) -> Times {
        let mut times = Times::default();
        values.for_each(|ns| times.add(ns));
        times
    }

    #[test]
    fn a_percentile_needs_ten_above_it() {
        assert_eq!(times(1..=999).percentile(0.99), None);
        assert_eq!(times(1..=1000).percentile(0.99), Some(990));
        assert_eq!((times(1..=19).percentile(0.5), times(1..=20).percentile(0.5)), (None, Some(10)));
        let many = times((1..=5000).map(|n| n * 1000));
        let p99 = many.percentile(0.99).unwrap_or(0);
        assert!(p99.abs_diff(4_950_000) < 5000, "{p99}");
        assert_eq!(many.all, Sum { count: 5000, sum_ns: 12_502_500_000, max_ns: 5_000_000 });
    }

    #[test]
    fn parts_together_are_the_whole() {
        let whole = times((0..3000).chain(0..700).chain(0..40));
        for order in [[3000, 700, 40], [40, 700, 3000], [700, 3000, 40]] {
            let mut merged = Times::default();
            order.iter().for_each(|n| merged.merge(&times(0..*n)));
            assert_eq!((merged.all, merged.powers()), (whole.all, whole.powers()));
            assert_eq!(merged.percentile(0.99), whole.percentile(0.99));
        }
    }

    #[test]
    fn powers_of_two_are_exact() {
        let expected = vec![(0, 1, 1), (1, 2, 1), (1024, 2048, 2), (2048, 4096, 1)];
        assert_eq!(times([0, 1, 1024, 2047, 2048].into_iter()).powers(), expected);
        let many = times((0..2000).flat_map(|_| [1023, 1024, u64::MAX]));
        let counts: Vec<u64> = many.powers().iter().map(|p| p.2).collect();
        assert_eq!(counts, [2000, 2000, 2000]);
    }
}
