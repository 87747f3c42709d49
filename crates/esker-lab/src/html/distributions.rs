//! Plots of times and of sizes: how often it was how much, and how long it took as time went on.

use super::colours::LineColours;
use super::draw::{lines, values, Axes, Point, Series, COLOURS};
use super::layout::Layout;
use super::plots::{framed, rows, titled};
use super::NamedReport;
use crate::lists::distinct;
use crate::readback::{label, number, Figure};
use serde_json::Value;

/// How often how long, or how large: a line for each row.
pub(super) fn distribution(
    out: &mut String,
    reports: &[NamedReport<'_>],
    layout: &Layout<'_>,
    name: &str,
    what: &str,
    of: &dyn Fn(&Value) -> &Value,
) {
    let unit = rows(reports[0].1).find_map(|r| of(r)["unit"].as_str()).unwrap_or("ns");
    let unit = if unit == "ns" { "time" } else { unit };
    for (group, rows_of) in layout.beside(reports[0].1) {
        let mut series: Vec<Series> = Vec::new();
        for row in rows_of.into_iter().filter(|r| of(r).is_object()) {
            let (line, colour) = layout.line(row);
            for (n, (_, report)) in reports.iter().enumerate() {
                let Some(row) = rows(report).find(|r| r["params"] == row["params"] && r["status"] == "good") else {
                    continue;
                };
                series.push(Series { name: line.clone(), colour, report: n, points: shares(of(row)) });
            }
        }
        series.retain(|s| !s.points.is_empty());
        let told = layout.line_colours.is_some_and(LineColours::is_told);
        for part in series.chunks(if told { series.len().max(1) } else { COLOURS * reports.len() }) {
            let mut part = part.to_vec();
            if !told {
                let names = distinct(part.iter().map(|s| s.name.clone()));
                for s in &mut part {
                    s.colour = names.iter().position(|n| *n == s.name).unwrap_or(0) % COLOURS;
                }
            }
            let axes = Axes { x: format!("{unit}, logarithmic"), y: "percent of all".into() };
            let svg = lines(&part, &axes, &values(&part));
            framed(out, &titled(name, &group), what, &svg, if told { &[] } else { &part });
        }
    }
}

/// How long each took, run after run: a plot for each row, with the median of each part of a run and the longest above it.
pub(super) fn over_time(out: &mut String, reports: &[NamedReport<'_>], layout: &Layout<'_>, of: &str) {
    let names = layout.all();
    let timed = |r: &&Value| r["status"] == "good" && r["times"]["of"] == of;
    for row in rows(reports[0].1).filter(timed).take(MOST_OVER_TIME) {
        let name = label(row, &names, " ");
        let mut series: Vec<Series> = Vec::new();
        for (n, (_, report)) in reports.iter().enumerate() {
            let Some(row) = rows(report).find(|r| r["params"] == row["params"]) else { continue };
            let points: Vec<Point> = windows(row).collect();
            series.push(Series { name: name.clone(), colour: n % COLOURS, report: n, points });
        }
        if series.iter().all(|s| s.points.is_empty()) {
            continue;
        }
        let axes = Axes { x: "seconds of all runs".into(), y: format!("us, each {of}") };
        framed(
            out,
            &format!("over time: {name}"),
            "median of a moment, and its longest",
            &lines(&series, &axes, &values(&series)),
            &[],
        );
    }
}

/// Rows that are drawn over time.
const MOST_OVER_TIME: usize = 40;

fn windows(row: &Value) -> impl Iterator<Item = Point> + '_ {
    row["times"]["over_time"].as_array().into_iter().flatten().filter_map(|w| {
        let (at, median, longest) = (w[0].as_f64()?, w[2].as_f64()? / 1000.0, w[3].as_f64()? / 1000.0);
        let y = Figure { median, low: median, high: longest, samples: Vec::new(), unit: "us".into() };
        Some(Point { x: at, label: format!("{at:.2}"), y })
    })
}

/// A histogram's buckets in percent of all, those without values too.
fn shares(histogram: &Value) -> Vec<Point> {
    let buckets = histogram["buckets"].as_array().into_iter().flatten();
    let filled: Vec<(f64, f64, f64)> = buckets
        .filter_map(|b| {
            let from = b[0].as_f64()?.max(0.5);
            Some((from, b[1].as_f64().unwrap_or(2.0 * from), b[2].as_f64()?))
        })
        .collect();
    let total: f64 = filled.iter().map(|b| b.2).sum();
    let point = |x: f64, share: f64| {
        let y = Figure { median: share, low: share, high: share, samples: Vec::new(), unit: "percent".into() };
        Point { x, label: if histogram["unit"] == "ns" { duration(x) } else { number(x) }, y }
    };
    let mut points: Vec<Point> = Vec::new();
    let mut end = filled.first().map_or(0.0, |b| b.0);
    for (from, to, n) in filled {
        while end > 0.0 && end < 0.99 * from {
            points.push(point(end, 0.0));
            end *= 2.0;
        }
        points.push(point(from, 100.0 * n / total));
        end = to;
    }
    points
}

/// Nanoseconds for an axis.
fn duration(ns: f64) -> String {
    match ns {
        v if v >= 1e9 => format!("{:.1}s", v / 1e9),
        v if v >= 1e6 => format!("{:.0}ms", v / 1e6),
        v if v >= 1e3 => format!("{:.0}us", v / 1e3),
        v => format!("{v:.0}ns"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn empty_buckets_are_drawn_too() {
        let points = shares(&json!({ "unit": "ns", "buckets": [[1024, 2048, 3], [8192, null, 1]] }));
        let found: Vec<(f64, f64)> = points.iter().map(|p| (p.x, p.y.median)).collect();
        assert_eq!(found, [(1024.0, 75.0), (2048.0, 0.0), (4096.0, 0.0), (8192.0, 25.0)]);
    }
}
