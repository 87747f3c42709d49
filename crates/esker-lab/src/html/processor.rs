//! Processor time along the runs: a line for each way.

use super::draw::{lines, values, Axes, Point, Series};
use super::layout::Layout;
use super::plots::{framed, titled};
use super::NamedReport;
use crate::processor::{parts, PARTS};
use crate::readback::{rows, Figure};
use crate::stats::summary;
use serde_json::Value;

/// A plot of rows that differ in nothing but their line, all on one scale: solid the whole of it, dashed what the kernel
/// took. Of several reports the whole alone, each as its lines are drawn.
pub(super) fn over_time(out: &mut String, reports: &[NamedReport<'_>], layout: &Layout<'_>) {
    let Some((_, first)) = reports.first() else { return };
    let alone = reports.len() == 1;
    let of_group = |(group, rows_of): (String, Vec<&Value>)| {
        let mut series: Vec<Series> = Vec::new();
        for row in rows_of {
            for (n, (_, report)) in reports.iter().enumerate() {
                let same = rows(report).find(|r| r["params"] == row["params"] && r["status"] == "good");
                series.extend(same.into_iter().flat_map(|r| of_row(r, layout.line(row), n, alone)));
            }
        }
        (group, series)
    };
    let mut groups: Vec<(String, Vec<Series>)> = layout.beside(first).into_iter().map(of_group).collect();
    groups.retain(|(_, series)| !series.is_empty());
    let all: Vec<f64> = groups.iter().flat_map(|(_, series)| values(series)).collect();
    let remark = if alone { "median of the runs; dashed: of it, in the kernel" } else { "median of the runs" };
    for (group, series) in &groups {
        let axes = Axes { x: "percent of a run's time".into(), y: "percent of one processor".into() };
        framed(out, &titled("processor time", group), remark, &lines(series, &axes, &all), &[]);
    }
}

/// The lines of a row: all of its runs together, part by part.
fn of_row(row: &Value, (name, colour): (String, usize), report: usize, with_kernel: bool) -> Vec<Series> {
    let runs = row["processor"]["runs"].as_array().into_iter().flatten().filter_map(parts);
    let (runs, lengths): (Vec<Vec<[f64; 2]>>, Vec<f64>) = runs.unzip();
    let Some(length) = summary(&lengths).map(|m| m.median) else { return Vec::new() };
    let series = |dashes: usize, of: &dyn Fn(&[f64; 2]) -> f64| {
        let point = |n: usize| {
            let samples: Vec<f64> = runs.iter().map(|run| of(&run[n])).collect();
            let share = (n as f64 + 0.5) / PARTS as f64;
            // Their spread would be twelve upright lines a way.
            let median = summary(&samples)?.median;
            let y = Figure { median, low: median, high: median, samples: Vec::new(), unit: "percent".into() };
            // Ways of very different lengths lie above each other.
            Some(Point { x: 100.0 * share, label: format!("{:.3} s of {length:.3}", length * share), y })
        };
        Series { name: name.clone(), colour, report: dashes, points: (0..PARTS).filter_map(point).collect() }
    };
    let mut all = vec![series(report, &|[user, system]| user + system)];
    if with_kernel {
        all.push(Series { name: format!("{name}, kernel"), ..series(1, &|[_, system]| *system) });
    }
    all
}
