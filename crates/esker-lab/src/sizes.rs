//! Distributions of sizes of groups: exact ones, and those that the engine counts by powers of two.

use crate::report::Row;
use crate::table::table;
use crate::times::{is_told, PERCENTILES};
use esker_base::histogram::HistogramSnapshot;
use serde_json::{json, Map, Value};
use std::collections::BTreeMap;

/// What groups are of.
const UNIT: &str = "transactions";

/// The least size and the least above it, `None` without end.
type Bounds = (u64, Option<u64>);

/// How often there was which size, over all runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sizes(BTreeMap<Bounds, u64>);

impl Sizes {
    /// Of groups whose sizes are known.
    #[must_use]
    pub fn exact(sizes: &[u32]) -> Sizes {
        let mut found = Sizes::default();
        sizes.iter().map(|s| u64::from(*s)).for_each(|s| *found.0.entry((s, Some(s + 1))).or_default() += 1);
        found
    }

    /// Of groups as the engine counts them: it records a size less one, so that buckets are 1, 2, 3 to 4, 5 to 8 and so on.
    #[must_use]
    pub fn of_groups(less_one: &HistogramSnapshot) -> Sizes {
        Sizes(less_one.filled().map(|(from, to, n)| ((from + 1, to.map(|t| t + 1)), n)).collect())
    }

    /// Adds those of another run.
    pub fn add(&mut self, later: &Sizes) {
        later.0.iter().for_each(|(size, n)| *self.0.entry(*size).or_default() += n);
    }

    /// How many groups.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.values().sum()
    }

    /// This share of the groups were at most so large; `None` with too few above it.
    #[must_use]
    pub fn percentile(&self, share: f64) -> Option<(u64, Option<u64>)> {
        let rank = (self.count() as f64 * share).ceil().max(1.0) as u64;
        let mut seen = 0;
        let at = self.0.iter().find(|(_, n)| {
            seen += **n;
            seen >= rank
        });
        at.map(|(size, _)| *size).filter(|_| is_told(self.count(), share))
    }

    /// The largest.
    #[must_use]
    pub fn largest(&self) -> Option<(u64, Option<u64>)> {
        self.0.keys().last().copied()
    }

    /// As the schema says.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let buckets: Vec<Value> = self.0.iter().map(|((from, to), n)| json!([from, to, n])).collect();
        let percentiles: Map<String, Value> =
            PERCENTILES.iter().map(|(name, share)| ((*name).to_owned(), json!(self.percentile(*share)))).collect();
        json!({
            "unit": UNIT, "count": self.count(), "percentiles": percentiles, "largest": self.largest(),
            "buckets": buckets,
        })
    }

    /// Count, percentiles and the largest, for people.
    fn cells(&self) -> Vec<String> {
        let cell = |size: Option<Bounds>| size.map_or_else(|| "-".into(), words);
        let mut cells = vec![self.count().to_string()];
        cells.extend(PERCENTILES.iter().map(|(_, share)| cell(self.percentile(*share))));
        cells.push(cell(self.largest()));
        cells
    }
}

/// "3", "3-4", "129 up".
fn words((from, to): Bounds) -> String {
    match to.map(|t| t - 1) {
        Some(most) if most <= from => from.to_string(),
        Some(most) => format!("{from}-{most}"),
        None => format!("{from} up"),
    }
}

/// The distributions of all rows, for people; nothing where no row has any.
#[must_use]
pub fn text(params: &[&str], rows: &[Row]) -> String {
    let percentiles = PERCENTILES.iter().map(|p| p.0);
    let head = params.iter().copied().chain(["groups of", "count"]).chain(percentiles).chain(["largest"]);
    let mut lines: Vec<Vec<String>> = Vec::new();
    for row in rows {
        for (name, sizes) in &row.details.sizes {
            let of = std::iter::once((*name).to_owned());
            lines.push(row.params.iter().cloned().chain(of).chain(sizes.cells()).collect());
        }
    }
    if lines.is_empty() {
        return String::new();
    }
    let table = table(head.map(str::to_owned).collect(), lines, params.len() + 1..);
    format!("\nSizes of groups, all runs, in {UNIT}:\n{table}\n")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use esker_base::histogram::Histogram;

    /// Groups of 1, of 2, of 3 and 4, and one of 70, as the engine records them.
    fn counted() -> Sizes {
        let histogram = Histogram::new();
        let record = |size: u64, times: u64| (0..times).for_each(|_| histogram.record(size - 1));
        record(1, 600);
        record(2, 200);
        record(3, 100);
        record(4, 99);
        record(70, 1);
        Sizes::of_groups(&histogram.snapshot())
    }

    #[test]
    fn sizes_are_told_as_exactly_as_they_were_counted() {
        let sizes = counted();
        assert_eq!(sizes.cells(), ["1000", "1", "3-4", "3-4", "-", "-", "65-128"]);
        let exact = Sizes::exact(&[vec![1; 50], vec![7; 50]].concat());
        assert_eq!(exact.cells(), ["100", "1", "7", "-", "-", "-", "7"]);
        assert_eq!(exact.percentile(0.5), Some((1, Some(2))));
        assert_eq!(words((129, None)), "129 up");
    }

    #[test]
    fn runs_add_up_and_the_json_has_all_of_them() {
        let mut sizes = counted();
        sizes.add(&counted());
        let json = sizes.to_json();
        assert_eq!(json["buckets"], json!([[1, 2, 1200], [2, 3, 400], [3, 5, 398], [65, 129, 2]]));
        assert_eq!((&json["count"], &json["largest"]), (&json!(2000), &json!([65, 129])));
        assert_eq!((&json["percentiles"]["p99"], &json["percentiles"]["p99.9"]), (&json!([3, 5]), &Value::Null));
        assert_eq!(Sizes::default().cells()[0], "0");
    }
}
