// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waits as gauges, of each kind its count, its sum in microseconds, and how its times are spread, for those who read nothing but
//! SHOW GLOBAL STATUS. A bucket's name has the least and the longest time in it, in nanoseconds; each time is in one of them.

use crate::metrics::Metric;
use esker_base::{wait, WaitEvent};

/// The least time in each bucket, up to the next one's: some microsecond, four of them, and so on.
const FROM_NS: [u64; 12] =
    [0, 1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 26, 1 << 28, 1 << 30];

fn of(event: WaitEvent) -> impl Iterator<Item = Metric> {
    let metric = move |end: String, unit, meaning: String| {
        let name = format!("wait_{}_{end}", event.name());
        Metric { name, unit, per_session: false, meaning: format!("{meaning}: {}", event.help()) }
    };
    let longest = FROM_NS.iter().skip(1).map(|next| Some(next - 1)).chain([None]);
    let buckets = FROM_NS.iter().zip(longest).map(move |(from, longest)| match longest {
        Some(longest) => metric(format!("ns_{from}_{longest}"), "count", format!("Those of {from} to {longest} ns")),
        None => metric(format!("ns_{from}_up"), "count", format!("Those of {from} ns and more")),
    });
    let count = metric("count".to_owned(), "count", "How often".to_owned());
    let sum = metric("us".to_owned(), "microseconds", "How long in all".to_owned());
    [count, sum].into_iter().chain(buckets)
}

/// All, kind by kind.
pub(crate) fn waits() -> impl Iterator<Item = Metric> {
    WaitEvent::ALL.iter().flat_map(|event| of(*event))
}

/// Their figures since the start of the process, in the same order.
pub(crate) fn wait_figures() -> impl Iterator<Item = u64> {
    WaitEvent::ALL.iter().flat_map(|event| {
        let times = wait::snapshot(*event);
        let mut buckets = [0; FROM_NS.len()];
        for (from, _, count) in times.filled() {
            let place = FROM_NS.iter().rposition(|least| *least <= from).unwrap_or(0);
            buckets[place] += count;
        }
        [times.count, times.sum_ns / 1000].into_iter().chain(buckets)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_wait_is_in_the_bucket_that_has_it() {
        // No test of this process waits for it.
        let event = WaitEvent::CounterLock;
        [0, 1023, 1024, 4095, (1 << 30) - 1, 1 << 30, 1 << 38].into_iter().for_each(|ns| wait::record(event, ns));
        let wait_names = || waits().map(|wait| wait.name);
        let all: Vec<_> = wait_names().zip(wait_figures()).filter(|(name, _)| name.contains("counter_lock")).collect();
        assert_eq!(all.len(), 2 + FROM_NS.len());
        let of =
            |end: &str| all.iter().find(|(name, _)| name == &format!("wait_counter_lock_{end}")).map(|found| found.1);
        assert_eq!(of("count"), Some(7));
        assert_eq!(of("us"), Some((1023 + 1024 + 4095 + (1 << 30) - 1 + (1 << 30) + (1 << 38)) / 1000));
        let buckets = ["ns_0_1023", "ns_1024_4095", "ns_4096_16383", "ns_268435456_1073741823", "ns_1073741824_up"];
        assert_eq!(buckets.map(of), [2, 2, 0, 1, 2].map(Some));
        assert_eq!(wait_names().count(), wait_figures().count());
        // With the server's prefix no name is longer than a variable's may be.
        assert!(wait_names().all(|name| "Esker_".len() + name.len() <= 64));
    }
}
