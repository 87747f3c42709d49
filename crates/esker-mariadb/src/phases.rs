// SPDX-License-Identifier: MIT OR Apache-2.0
//! The phases of a commit as gauges: of each its count, its sum in microseconds, and how its times are spread. A bucket's name has
//! the least and the longest time in it, in whole microseconds, as a group's has its sizes; each time is in one of them.

use crate::metrics::Metric;
use esker_base::phase::{figures, CommitPhase, FROM_US};

fn of(phase: CommitPhase) -> impl Iterator<Item = Metric> {
    let metric = move |end: String, unit, meaning: String| {
        let name = format!("{}{end}", phase.name());
        Metric { name, unit, per_session: false, meaning: format!("{meaning}: {}", phase.help()) }
    };
    let longest = FROM_US.iter().skip(1).map(|next| Some(next - 1)).chain([None]);
    let buckets = FROM_US.iter().zip(longest).map(move |(from, longest)| match longest {
        Some(longest) if longest == *from => metric(format!("_us_{from}"), "count", format!("Those of {from} us")),
        Some(longest) => metric(format!("_us_{from}_{longest}"), "count", format!("Those of {from} to {longest} us")),
        None => metric(format!("_us_{from}_up"), "count", format!("Those of {from} us and more")),
    });
    let count = metric("_count".to_owned(), "count", "How often".to_owned());
    let sum = metric("_us".to_owned(), "microseconds", "How long in all".to_owned());
    [count, sum].into_iter().chain(buckets)
}

/// All, phase by phase.
pub(crate) fn phases() -> impl Iterator<Item = Metric> {
    CommitPhase::ALL.iter().flat_map(|phase| of(*phase))
}

/// Their figures, in the same order.
pub(crate) fn phase_figures() -> impl Iterator<Item = u64> {
    CommitPhase::ALL.iter().flat_map(|phase| {
        let found = figures(*phase);
        [found.count, found.sum_ns / 1000].into_iter().chain(found.buckets)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_what_is_in_a_bucket() {
        let names: Vec<_> = of(CommitPhase::Prepare).map(|metric| metric.name).collect();
        assert_eq!(
            names[..5],
            ["_count", "_us", "_us_0", "_us_1_3", "_us_4_15"].map(|end| format!("commit_prepare{end}"))
        );
        assert_eq!(names.last().map(String::as_str), Some("commit_prepare_us_1048576_up"));
        assert_eq!(phases().count(), phase_figures().count());
    }
}
