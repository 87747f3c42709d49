//! All times of a row: their distribution, and how they came over time.

use crate::clock::Event;
use crate::readback::number;
use hdrhistogram::Histogram;
use serde_json::{json, Value};

/// Percentiles of a report: name, and the share below.
pub const PERCENTILES: [(&str, f64); 5] =
    [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999), ("p99.99", 0.9999)];
/// A percentile is told if so many times lie above it.
const ABOVE: f64 = 10.0;
/// Parts of a run, over time.
const WINDOWS: u64 = 20;
/// Times that are kept one by one; of more, every second one, every fourth one and so on.
const KEPT: usize = 1000;

/// May the percentile be told, of so many times?
#[must_use]
pub fn is_told(count: u64, share: f64) -> bool {
    // What 1 - 0.99 lacks of a hundredth is not to cost a percentile.
    count as f64 * (1.0 - share) >= ABOVE - 1e-6
}

/// A row's histogram, its windows and what it keeps: three digits of times of up to a minute.
const ROW_BYTES: u64 = 512 << 10;
/// What is remembered of a time until the run's are counted: by its thread, in order of time, in order of length.
const EVENT_BYTES: u64 = 64;

/// Bytes of memory that the times of so many rows take, of at most so many in a run.
#[must_use]
pub fn memory_bytes(rows: usize, most: u64) -> u64 {
    (rows as u64 * ROW_BYTES).saturating_add(most.saturating_mul(EVENT_BYTES))
}

/// A part of a run: what came in it.
#[derive(Debug, Clone, PartialEq)]
struct Window {
    /// Its middle, after the beginning of the row's first run.
    at_s: f64,
    count: u64,
    median_ns: u64,
    longest_ns: u64,
}

/// See the module.
#[derive(Debug, Clone)]
pub struct Times {
    /// What each is of: "barrier", or "4096 records".
    pub of: String,
    histogram: Histogram<u64>,
    /// Not rounded to three digits, as the histogram's is.
    longest_ns: u64,
    windows: Vec<Window>,
    /// Seconds of the runs so far.
    length_s: f64,
    /// Every so many-th one, as seconds and nanoseconds.
    kept: Vec<(f64, u64)>,
    every: usize,
    seen: usize,
}

impl Times {
    /// Of a run's threads.
    ///
    /// `None` without any.
    #[must_use]
    pub fn new(of: impl Into<String>, threads: &[Vec<Event>]) -> Option<Times> {
        let mut events: Vec<Event> = threads.iter().flatten().copied().collect();
        events.sort_by_key(|e| e.start_ns);
        let end = events.iter().map(|e| e.start_ns + e.took_ns).max()?.max(1);
        // Three digits; a histogram that grows takes every value.
        let mut histogram = Histogram::new(3).ok()?;
        // Not `saturating_record`: it does not let it grow.
        events.iter().try_for_each(|e| histogram.record(e.took_ns.max(1))).ok()?;
        let (length_s, kept) = (end as f64 / 1e9, Vec::new());
        let longest_ns = events.iter().map(|e| e.took_ns).max()?;
        let windows = windows(&events, end);
        let mut times = Times { of: of.into(), histogram, longest_ns, windows, length_s, kept, every: 1, seen: 0 };
        events.iter().for_each(|e| times.keep(e.start_ns as f64 / 1e9, e.took_ns));
        Some(times)
    }

    fn keep(&mut self, at_s: f64, took_ns: u64) {
        if self.seen % self.every == 0 {
            self.kept.push((at_s, took_ns));
        }
        self.seen += 1;
        self.thin(KEPT, 1);
    }

    /// Keeps every second one until there are no more than that, and one in so many at most is kept.
    fn thin(&mut self, most: usize, every: usize) {
        while self.kept.len() > most || self.every < every {
            let mut n = 0;
            self.kept.retain(|_| {
                n += 1;
                n % 2 == 1
            });
            self.every *= 2;
        }
    }

    /// Adds the times of a later run.
    pub fn add(&mut self, later: &Times) {
        // Both grow: nothing is out of range.
        let _ = self.histogram.add(&later.histogram);
        self.longest_ns = self.longest_ns.max(later.longest_ns);
        let before = self.length_s;
        self.windows.extend(later.windows.iter().map(|w| Window { at_s: w.at_s + before, ..w.clone() }));
        // Both are thinned alike, so that each run has its share; a run begins with one that is kept.
        self.thin(KEPT, later.every);
        let one_in = (self.every / later.every).max(1);
        self.kept.extend(later.kept.iter().step_by(one_in).map(|(at_s, took_ns)| (at_s + before, *took_ns)));
        self.seen += later.seen;
        self.thin(KEPT, self.every);
        self.length_s += later.length_s;
    }

    /// How many.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The longest.
    #[must_use]
    pub fn longest_ns(&self) -> u64 {
        self.longest_ns
    }

    /// So long took this share of them at the most; `None` with too few above it.
    #[must_use]
    pub fn percentile_ns(&self, share: f64) -> Option<u64> {
        is_told(self.count(), share).then(|| self.histogram.value_at_quantile(share).min(self.longest_ns))
    }

    /// As the schema says.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let percentiles: serde_json::Map<String, Value> =
            PERCENTILES.iter().map(|(name, share)| ((*name).to_owned(), json!(self.percentile_ns(*share)))).collect();
        // Quarters of octaves: as fine as a picture needs.
        let mut from = 0;
        let mut buckets = Vec::new();
        for step in self.histogram.iter_log(1, 2f64.powf(0.25)) {
            let to = step.value_iterated_to() + 1;
            if step.count_since_last_iteration() > 0 {
                buckets.push(json!([from, to, step.count_since_last_iteration()]));
            }
            from = to;
        }
        let window = |w: &Window| json!([w.at_s, w.count, w.median_ns, w.longest_ns]);
        json!({
            "of": self.of, "unit": "ns", "count": self.count(), "least": self.histogram.min(),
            "longest": self.longest_ns(), "mean": self.histogram.mean(), "percentiles": percentiles,
            "buckets": buckets, "over_time": self.windows.iter().map(window).collect::<Vec<_>>(),
            "samples": { "every": self.every, "of": self.kept.iter().map(|k| json!([k.0, k.1])).collect::<Vec<_>>() },
        })
    }

    /// Count, percentiles and the longest, in microseconds, for people.
    #[must_use]
    pub fn cells(&self) -> Vec<String> {
        let us = |ns: u64| number(ns as f64 / 1000.0);
        let told = |(_, share): &(&str, f64)| self.percentile_ns(*share).map_or_else(|| "-".to_owned(), us);
        let mut cells = vec![self.count().to_string()];
        cells.extend(PERCENTILES.iter().map(told));
        cells.push(us(self.longest_ns()));
        cells
    }
}

/// Parts of a run of `end` nanoseconds, those in which something came. Events by their beginning.
fn windows(events: &[Event], end: u64) -> Vec<Window> {
    let of = |n: u64| {
        let (from, to) = (end * n / WINDOWS, end * (n + 1) / WINDOWS);
        let first = events.partition_point(|e| e.start_ns < from);
        let mut mine: Vec<u64> = events[first..].iter().take_while(|e| e.start_ns < to).map(|e| e.took_ns).collect();
        mine.sort_unstable();
        let at_s = (from + to) as f64 / 2e9;
        let (count, longest_ns) = (mine.len() as u64, *mine.last()?);
        Some(Window { at_s, count, median_ns: mine[mine.len() / 2], longest_ns })
    };
    (0..WINDOWS).filter_map(of).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn run(count: u64, took: impl Fn(u64) -> u64) -> Times {
        let events = (0..count).map(|n| Event { start_ns: n * 1000, took_ns: took(n) }).collect();
        Times::new("barrier", &[events]).unwrap()
    }

    #[test]
    fn a_percentile_is_told_with_ten_times_above_it() {
        for (share, least) in [(0.5, 20), (0.9, 100), (0.99, 1000), (0.999, 10_000), (0.9999, 100_000)] {
            assert!(is_told(least, share) && !is_told(least - 1, share), "{share}");
        }
        let times = run(1000, |n| 1000 * (n + 1));
        let cells = times.cells();
        assert_eq!(cells, ["1000", "500", "900", "990", "-", "-", "1000"]);
        assert!(Times::new("nothing", &[vec![]]).is_none());
    }

    #[test]
    fn the_longest_of_all_runs_is_the_true_one() {
        let mut times = run(300, |_| 100);
        times.add(&run(100_000, |n| if n == 77_777 { 123_456_789 } else { 200 }));
        assert_eq!(times.count(), 100_300);
        assert_eq!(times.longest_ns(), 123_456_789);
        let json = times.to_json();
        assert_eq!(json["percentiles"]["p99.99"], 200);
        let counted: u64 = json["buckets"].as_array().unwrap().iter().map(|b| b[2].as_u64().unwrap()).sum();
        assert_eq!(counted, 100_300);
        // The window in which it lay shows it, after the first run's.
        let windows = json["over_time"].as_array().unwrap();
        let late = windows.iter().filter(|w| w[3].as_u64().unwrap() > 1000).collect::<Vec<_>>();
        assert_eq!((windows.len() <= 40, late.len()), (true, 1));
        assert!(windows.windows(2).all(|w| w[0][0].as_f64() < w[1][0].as_f64()), "{windows:?}");
        let kept = json["samples"]["of"].as_array().unwrap();
        assert!((KEPT / 4..=KEPT).contains(&kept.len()), "{}", kept.len());
    }
    /// However many each run has, and however far it was thinned out before.
    #[test]
    fn every_run_has_its_share_of_what_is_kept() {
        for each in [7, 500, 1347, 2001, 4099, 60_001] {
            let mut times = run(each, |_| 0);
            for r in 1..16 {
                times.add(&run(each, |_| r));
            }
            let of = |r: u64| times.kept.iter().filter(|k| k.1 == r).count();
            let (least, most) = ((0..16).map(of).min().unwrap(), (0..16).map(of).max().unwrap());
            assert!(least > 0 && most - least <= 2, "{each}: {least} to {most}");
            assert!(times.kept.len() <= KEPT && times.kept.windows(2).all(|w| w[0].0 <= w[1].0));
        }
    }
}
