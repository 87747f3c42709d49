//! The law of recovery: what was measured, and the curve that was fitted to it; and how fast logs of each size were replayed.

use super::draw::{lines, values, Axes, Point, Series, COLOURS};
use super::plots::{framed, titled};
use super::NamedReport;
use crate::readback::{figure, number, rows, text, Figure};
use crate::recovery::LOG_TIME;
use serde_json::Value;

/// How fast a log was replayed.
pub(super) const SPEED: &str = "replay_mib_s";
/// Points of a curve.
const STEPS: u32 = 40;

/// A plot for each log that has a law, and one of speed.
pub(super) fn plots(out: &mut String, reports: &[NamedReport<'_>]) {
    let Some((_, first)) = reports.first() else { return };
    for law in laws(first) {
        let log = text(&law["log"]);
        let series: Vec<Series> =
            reports.iter().enumerate().flat_map(|(n, named)| of_log(named, &log, n, reports.len() > 1)).collect();
        let axes = Axes { x: "frames replayed, logarithmic".into(), y: "seconds to open".into() };
        let svg = lines(&series, &axes, &values(&series));
        // Points are one by one: in the legend the first is enough.
        let mut told: Vec<Series> = Vec::new();
        for s in &series {
            if !told.iter().any(|t| t.name == s.name) {
                told.push(Series { report: 0, ..s.clone() });
            }
        }
        framed(out, &titled("the law of recovery", &log), "less is better; dashed: the law", &svg, &told);
    }
    speed(out, reports);
}

fn laws(report: &Value) -> impl Iterator<Item = &Value> {
    report["laws"].as_array().into_iter().flatten()
}

/// The rows of a log: how much of it, and a figure.
fn measured<'a>(
    report: &'a Value,
    log: &'a str,
    over: &'a str,
    metric: &'a str,
) -> impl Iterator<Item = (f64, Figure)> + 'a {
    let of = move |row: &Value| Some((figure(row, over)?.median, figure(row, metric)?));
    rows(report)
        .filter(move |r| r["status"] == "good" && r["params"]["log"] == log)
        .filter_map(of)
        .filter(|p| p.0 > 0.0)
}

/// What was measured, each by itself, and the curve.
fn of_log((name, report): &NamedReport<'_>, log: &str, n: usize, several: bool) -> Vec<Series> {
    let of = |what: String| if several { format!("{name}: {what}") } else { what };
    let colour = 2 * n % COLOURS;
    let points: Vec<Point> =
        measured(report, log, "replayed", LOG_TIME).map(|(x, y)| Point { x, label: number(x), y }).collect();
    let ends = || points.iter().map(|p| p.x);
    let (Some(least), Some(most)) = (ends().reduce(f64::min), ends().reduce(f64::max)) else { return Vec::new() };
    let mut series: Vec<Series> = points
        .iter()
        .map(|p| Series { name: of("measured".into()), colour, report: 0, points: vec![p.clone()] })
        .collect();
    let law = laws(report)
        .find(|l| l["log"] == log)
        .and_then(|l| Some((l["a"].as_f64()?, l["b"].as_f64()?, l["k"].as_f64()?)));
    if let Some((a, b, k)) = law {
        let point = |step: u32| {
            let x = least * (most / least).powf(f64::from(step) / f64::from(STEPS));
            let median = a + b * x.powf(k);
            let y = Figure { median, low: median, high: median, samples: Vec::new(), unit: "s".into() };
            Point { x, label: String::new(), y }
        };
        let words = of(format!("{} s + {} s * frames^{k:.2}", number(a), number(b)));
        series.push(Series { name: words, colour: colour + 1, report: 1, points: (0..=STEPS).map(point).collect() });
    }
    series
}

/// How fast, by how much there was: of the log that only grows, as one that is kept short has few lengths.
fn speed(out: &mut String, reports: &[NamedReport<'_>]) {
    let logs: Vec<String> = laws(reports[0].1).map(|l| text(&l["log"])).collect();
    let mut series: Vec<Series> = Vec::new();
    for (line, log) in logs.iter().enumerate() {
        for (n, (_, report)) in reports.iter().enumerate() {
            let point = |(x, y): (f64, Figure)| Point { x, label: crate::units::size_text(x.round() as u64), y };
            let mut points: Vec<Point> = measured(report, log, "replayed_bytes", SPEED).map(point).collect();
            points.sort_by(|a, b| a.x.total_cmp(&b.x));
            series.push(Series { name: format!("log {log}"), colour: line % COLOURS, report: n, points });
        }
    }
    series.retain(|s| !s.points.is_empty());
    if series.is_empty() {
        return;
    }
    let axes = Axes { x: "bytes of log replayed, logarithmic".into(), y: "MiB/s replayed".into() };
    let svg = lines(&series, &axes, &values(&series));
    framed(out, "MiB/s replayed", "more is better", &svg, &series);
}
