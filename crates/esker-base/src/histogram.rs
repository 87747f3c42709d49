//! Histograms of durations with power-of-two buckets: one relaxed add per value and field, no lock; those that many threads
//! add to are a few, which share no cache line.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Bucket `i` counts values whose highest set bit is `i - 1`: 0, 1, 2..=3, 4..=7, and so on. The last bucket takes all
/// that is above (some nine minutes, in nanoseconds).
pub const BUCKETS: usize = 41;

/// Count, sum and distribution of nanoseconds.
#[repr(align(128))]
#[derive(Debug)]
pub struct Histogram {
    sum: AtomicU64,
    buckets: [AtomicU64; BUCKETS],
}

impl Histogram {
    /// An empty one.
    pub const fn new() -> Self {
        Histogram { sum: AtomicU64::new(0), buckets: [const { AtomicU64::new(0) }; BUCKETS] }
    }

    /// Adds one value, in nanoseconds.
    pub fn record(&self, ns: u64) {
        self.record_among(ns, ns);
    }

    /// Adds one value to the sum that is among the values like `place`.
    fn record_among(&self, place: u64, ns: u64) {
        self.buckets[bucket(place)].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(ns, Ordering::Relaxed);
    }

    /// What it holds now. Values added meanwhile may be in or out.
    pub fn snapshot(&self) -> HistogramSnapshot {
        let buckets: [u64; BUCKETS] = std::array::from_fn(|i| self.buckets[i].load(Ordering::Relaxed));
        HistogramSnapshot { count: buckets.iter().sum(), sum_ns: self.sum.load(Ordering::Relaxed), buckets }
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

/// So many histograms are one that many threads add to.
const SHARDS: usize = 8;

/// A histogram that several threads add to at once: each to one of a few, and whoever reads it sums them.
#[derive(Debug)]
pub struct SharedHistogram([Histogram; SHARDS]);

thread_local! {
    /// Which of them is this thread's; none yet: `SHARDS`.
    static SHARD: Cell<usize> = const { Cell::new(SHARDS) };
}

/// Threads get them by turns.
#[cold]
fn take_shard() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let shard = NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS;
    SHARD.set(shard);
    shard
}

impl SharedHistogram {
    /// An empty one.
    pub const fn new() -> Self {
        SharedHistogram([const { Histogram::new() }; SHARDS])
    }

    /// Adds one value, in nanoseconds.
    #[inline]
    pub fn record(&self, ns: u64) {
        self.record_among(ns, ns);
    }

    /// Adds one value to the sum that is among the values like `place`, as where buckets are of another unit.
    #[inline]
    pub fn record_among(&self, place: u64, ns: u64) {
        let shard = SHARD.get();
        let shard = if shard < SHARDS { shard } else { take_shard() };
        self.0[shard].record_among(place, ns);
    }

    /// What it holds now, all that threads have added before whatever told of it; what they add meanwhile may be in or out.
    pub fn snapshot(&self) -> HistogramSnapshot {
        let [first, others @ ..] = &self.0;
        others.iter().fold(first.snapshot(), |sum, shard| sum.plus(&shard.snapshot()))
    }
}

impl Default for SharedHistogram {
    fn default() -> Self {
        Self::new()
    }
}

fn bucket(ns: u64) -> usize {
    ((u64::BITS - ns.leading_zeros()) as usize).min(BUCKETS - 1)
}

/// The bounds of a bucket in nanoseconds: the least value in it, and the least above it; `None` for the last bucket,
/// which has no end. Whoever prints buckets prints these.
#[must_use]
pub fn bounds(bucket: usize) -> (u64, Option<u64>) {
    let from = if bucket == 0 { 0 } else { 1u64 << (bucket - 1) };
    (from, (bucket + 1 < BUCKETS).then(|| 1u64 << bucket))
}

/// A histogram's contents at one time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistogramSnapshot {
    /// Number of values.
    pub count: u64,
    /// Their sum in nanoseconds.
    pub sum_ns: u64,
    /// Values per bucket, see [`BUCKETS`].
    pub buckets: [u64; BUCKETS],
}

impl HistogramSnapshot {
    /// Mean in nanoseconds, 0 when empty.
    pub fn mean_ns(&self) -> u64 {
        self.sum_ns.checked_div(self.count).unwrap_or(0)
    }

    /// Upper bound in nanoseconds of the bucket that holds the value at `quantile` (0.0 to 1.0); 0 when empty.
    pub fn quantile_ns(&self, quantile: f64) -> u64 {
        let rank = ((self.count as f64 * quantile).ceil() as u64).clamp(1, self.count.max(1));
        let mut seen = 0;
        for (i, n) in self.buckets.iter().enumerate() {
            seen += n;
            if seen >= rank {
                return (1u64 << i) - 1;
            }
        }
        0
    }

    /// The buckets with values in them, from the least on: their bounds (see [`bounds`]) and how many values.
    pub fn filled(&self) -> impl Iterator<Item = (u64, Option<u64>, u64)> + '_ {
        self.buckets.iter().enumerate().filter(|(_, n)| **n > 0).map(|(i, n)| {
            let (from, to) = bounds(i);
            (from, to, *n)
        })
    }

    /// The values of both.
    #[must_use]
    pub fn plus(&self, other: &HistogramSnapshot) -> HistogramSnapshot {
        HistogramSnapshot {
            count: self.count + other.count,
            sum_ns: self.sum_ns.wrapping_add(other.sum_ns),
            buckets: std::array::from_fn(|i| self.buckets[i] + other.buckets[i]),
        }
    }

    /// What came since `earlier`, a snapshot of the same histogram.
    pub fn since(&self, earlier: &HistogramSnapshot) -> HistogramSnapshot {
        HistogramSnapshot {
            count: self.count.saturating_sub(earlier.count),
            sum_ns: self.sum_ns.saturating_sub(earlier.sum_ns),
            buckets: std::array::from_fn(|i| self.buckets[i].saturating_sub(earlier.buckets[i])),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_powers_of_two() {
        assert_eq!([0, 1, 2, 3, 4, 7, 8].map(bucket), [0, 1, 2, 2, 3, 3, 4]);
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn every_value_lies_within_its_bucket() {
        for ns in [0, 1, 2, 3, 4, 1023, 1024, 1 << 38, (1 << 39) - 1, 1 << 39, u64::MAX] {
            let (from, to) = bounds(bucket(ns));
            assert!(from <= ns && to.is_none_or(|to| ns < to), "{ns}: {from}, {to:?}");
        }
        let histogram = Histogram::new();
        [0, 5, 6, u64::MAX].into_iter().for_each(|ns| histogram.record(ns));
        let one = histogram.snapshot();
        assert_eq!(one.filled().collect::<Vec<_>>(), [(0, Some(1), 1), (4, Some(8), 2), (1 << 39, None, 1)]);
        assert_eq!(one.plus(&one).filled().map(|b| b.2).collect::<Vec<_>>(), [2, 4, 2]);
    }

    #[test]
    fn what_many_threads_add_at_once_is_all_there() {
        const THREADS: u64 = 2 * SHARDS as u64 + 1;
        const TIMES: u64 = 20_000;
        let shared = SharedHistogram::new();
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let shared = &shared;
                scope.spawn(move || (0..TIMES).for_each(|n| shared.record((1 << thread) + n % 2)));
            }
        });
        // More threads than shards: each shard had some, and some had two at once.
        assert!(shared.0.iter().all(|shard| shard.snapshot().count >= TIMES));
        let all = shared.snapshot();
        let odd = THREADS * TIMES / 2;
        assert_eq!((all.count, all.sum_ns), (THREADS * TIMES, ((1 << THREADS) - 1) * TIMES + odd));
        // 1 and 2 of the first thread, 2 and 3 of the second; of the others all in a bucket of their own.
        assert_eq!(all.buckets[1..4], [TIMES / 2, TIMES / 2 + TIMES, TIMES]);
        assert!(all.buckets[3..=THREADS as usize].iter().all(|n| *n == TIMES));
    }

    #[test]
    fn quantiles_and_mean() {
        let histogram = Histogram::new();
        assert_eq!(histogram.snapshot().quantile_ns(0.5), 0);
        for ns in [1, 1, 1, 1000] {
            histogram.record(ns);
        }
        let earlier = histogram.snapshot();
        assert_eq!((earlier.count, earlier.sum_ns, earlier.mean_ns()), (4, 1003, 250));
        assert_eq!((earlier.quantile_ns(0.5), earlier.quantile_ns(1.0)), (1, 1023));
        histogram.record(5);
        let since = histogram.snapshot().since(&earlier);
        assert_eq!((since.count, since.sum_ns, since.quantile_ns(0.5)), (1, 5, 7));
    }
}
