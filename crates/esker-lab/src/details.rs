//! What a row has beyond its figures: histograms of nanoseconds, sizes of groups and sampled stacks, as JSON and for people.
//!
//! The buckets are those of [`esker_base::histogram`], which the engine's own figures of locks and waits are made from.

use crate::processor::ProcessorTime;
use crate::sizes::Sizes;
use crate::times::Times;
use esker_base::histogram::HistogramSnapshot;
use esker_base::lock::{Role, Stacks};
use serde_json::{json, Map, Value};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Characters of the longest bar.
const BAR: u64 = 50;
/// Stacks of waiters, and of holders, that are printed for people; the JSON has all.
const STACKS: usize = 5;
/// Frames of a stack that are printed for people.
const FRAMES: usize = 6;

/// Histograms and stacks of a row, or none.
#[derive(Debug, Clone, Default)]
pub struct Details {
    /// Printed for people under this title; without one they are in the JSON only.
    pub title: Option<String>,
    /// Distributions of nanoseconds over all runs, by name.
    pub histograms: BTreeMap<&'static str, HistogramSnapshot>,
    /// Sizes of groups over all runs, by what they are groups of.
    pub sizes: BTreeMap<&'static str, Sizes>,
    /// Every time of all runs.
    pub times: Option<Times>,
    /// Processor time along the runs.
    pub processor: Option<ProcessorTime>,
    /// Stacks, where they were sampled; those of the last run.
    pub stacks: Option<Stacks>,
}

impl Details {
    /// Adds the values of a run.
    pub fn add(&mut self, name: &'static str, of: HistogramSnapshot) {
        let sum = self.histograms.get(name).map_or_else(|| of.clone(), |known| known.plus(&of));
        self.histograms.insert(name, sum);
    }

    /// Adds what another run found; its stacks take the place of those known.
    pub fn merge(&mut self, other: Details) {
        other.histograms.into_iter().for_each(|(name, of)| self.add(name, of));
        other.sizes.iter().for_each(|(name, of)| self.sizes.entry(name).or_default().add(of));
        match (&mut self.times, other.times) {
            (Some(times), Some(later)) => times.add(&later),
            (times, later) => *times = times.take().or(later),
        }
        match (&mut self.processor, other.processor) {
            (Some(processor), Some(later)) => processor.add(later),
            (processor, later) => *processor = processor.take().or(later),
        }
        self.stacks = other.stacks.or(self.stacks.take());
    }

    /// Adds them to a row of JSON; nothing where there is nothing.
    pub fn add_to(&self, row: &mut Map<String, Value>) {
        if !self.histograms.is_empty() {
            let of = |h: &HistogramSnapshot| {
                let buckets: Vec<Value> = h.filled().map(|(from, to, n)| json!([from, to, n])).collect();
                json!({ "unit": "ns", "buckets": buckets })
            };
            let all: Map<String, Value> = self.histograms.iter().map(|(n, h)| ((*n).to_owned(), of(h))).collect();
            row.insert("histograms".into(), Value::Object(all));
        }
        if !self.sizes.is_empty() {
            let all: Map<String, Value> = self.sizes.iter().map(|(n, s)| ((*n).to_owned(), s.to_json())).collect();
            row.insert("groups".into(), Value::Object(all));
        }
        if let Some(times) = &self.times {
            row.insert("times".into(), times.to_json());
        }
        if let Some(processor) = &self.processor {
            row.insert("processor".into(), processor.to_json());
        }
        if let Some(found) = &self.stacks {
            let of =
                |s: &esker_base::lock::Stack| json!({ "role": role(s.role), "count": s.count, "frames": s.frames });
            let all: Vec<Value> = found.stacks.iter().map(of).collect();
            row.insert("stacks".into(), json!({ "stacks": all, "without_room": found.without_room }));
        }
    }

    /// For people, if there is a title.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        let Some(title) = &self.title else { return out };
        for (name, histogram) in &self.histograms {
            let _ = writeln!(out, "\n{name}: {title}");
            bars(&mut out, histogram);
        }
        for role in [Role::Waiter, Role::Holder] {
            if let Some(found) = &self.stacks {
                let _ = write!(out, "{}", stacks_text(found, role, title));
            }
        }
        out
    }
}

fn role(role: Role) -> &'static str {
    role.name()
}

/// A line a bucket, those between the first and the last with values included.
fn bars(out: &mut String, histogram: &HistogramSnapshot) {
    let filled = |n: &u64| *n > 0;
    let (Some(first), Some(last)) =
        (histogram.buckets.iter().position(filled), histogram.buckets.iter().rposition(filled))
    else {
        let _ = writeln!(out, "  nothing");
        return;
    };
    let most = histogram.buckets.iter().max().copied().unwrap_or(1);
    for (i, n) in histogram.buckets.iter().enumerate().take(last + 1).skip(first) {
        let (from, to) = esker_base::histogram::bounds(i);
        let to = to.map_or_else(|| "and more".into(), ns_text);
        // What was met at all has a mark.
        let marks = "#".repeat((n * BAR).div_ceil(most) as usize);
        let line = format!("  {:>8} .. {to:>8} {n:>9}  {marks}", ns_text(from));
        let _ = writeln!(out, "{}", line.trim_end());
    }
}

/// Nanoseconds for people.
fn ns_text(ns: u64) -> String {
    match ns {
        0..=9_999 => format!("{ns} ns"),
        10_000..=9_999_999 => format!("{} us", ns / 1000),
        10_000_000..=9_999_999_999 => format!("{} ms", ns / 1_000_000),
        _ => format!("{} s", ns / 1_000_000_000),
    }
}

fn stacks_text(found: &Stacks, of: Role, title: &str) -> String {
    let mine: Vec<_> = found.stacks.iter().filter(|s| s.role == of).collect();
    let total: u64 = mine.iter().map(|s| s.count).sum();
    let mut out = format!("\n{}s: {title}: {total} sampled, {} different stacks\n", role(of), mine.len());
    for stack in mine.iter().take(STACKS) {
        let _ = writeln!(out, "  {:>7}  {:.0} percent", stack.count, 100.0 * stack.count as f64 / total as f64);
        for frame in stack.frames.iter().take(FRAMES) {
            let _ = writeln!(out, "           {frame}");
        }
    }
    if mine.len() > STACKS {
        let _ = writeln!(out, "  ... and {} more, all in the JSON", mine.len() - STACKS);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use esker_base::histogram::Histogram;
    use esker_base::lock::Stack;

    fn details() -> Details {
        let histogram = Histogram::new();
        [5, 5, 5, 5, 40].into_iter().for_each(|ns| histogram.record(ns));
        let stack = |role, count| Stack { id: 1, sum_ns: 9, role, count, frames: vec!["work".into(), "main".into()] };
        let stacks = Stacks { stacks: vec![stack(Role::Waiter, 3), stack(Role::Holder, 1)], without_room: 2 };
        let mut details = Details { title: Some("4 threads".into()), stacks: Some(stacks), ..Details::default() };
        details.add("wait", histogram.snapshot());
        details.add("wait", histogram.snapshot());
        details
    }

    #[test]
    fn buckets_and_stacks_are_in_the_json() {
        let mut row = Map::new();
        Details::default().add_to(&mut row);
        assert!(row.is_empty());
        details().add_to(&mut row);
        assert_eq!(row["histograms"]["wait"], json!({ "unit": "ns", "buckets": [[4, 8, 8], [32, 64, 2]] }));
        assert_eq!(row["stacks"]["without_room"], 2);
        assert_eq!(row["stacks"]["stacks"][1], json!({ "role": "holder", "count": 1, "frames": ["work", "main"] }));
    }

    #[test]
    fn bars_are_as_long_as_their_counts_say() {
        let text = details().to_text();
        let marks = |line: usize| text.lines().nth(line).map(|l| l.matches('#').count());
        assert_eq!((marks(1), marks(2), marks(3), marks(4), marks(5)), (Some(0), Some(50), Some(0), Some(0), Some(13)));
        assert!(
            text.contains("waiters: 4 threads: 3 sampled, 1 different stacks") && text.contains("  work\n"),
            "{text}"
        );
        let silent = Details { title: None, ..details() };
        assert!(silent.to_text().is_empty());
    }

    #[test]
    fn no_values_no_bars() {
        let mut out = String::new();
        bars(&mut out, &Histogram::new().snapshot());
        assert_eq!(out, "  nothing\n");
    }
}
