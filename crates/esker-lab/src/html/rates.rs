//! How many bytes a second are durable, by how many a barrier is asked for: the large writes of `sync`.

use super::draw::{lines, values, Axes, Point, Series, COLOURS};
use super::plots::framed;
use super::NamedReport;
use crate::readback::{figure, rows, text};
use crate::sync::{NO_BARRIER, STREAM};
use serde_json::Value;

/// The figure.
pub(super) const METRIC: &str = "mb_per_second";

/// Is the row one of large writes?
pub(super) fn is_rate(row: &Value) -> bool {
    row["params"]["file"] == STREAM
}

/// A line with barriers and one without, of each report.
pub(super) fn plot(out: &mut String, reports: &[NamedReport<'_>]) {
    let mut series: Vec<Series> = Vec::new();
    for (n, (_, report)) in reports.iter().enumerate() {
        for row in rows(report).filter(|r| is_rate(r) && r["status"] == "good") {
            let (Some(y), barrier) = (figure(row, METRIC), text(&row["params"]["barrier"])) else { continue };
            let label = text(&row["params"]["bytes"]);
            let name = if barrier == NO_BARRIER { "no barrier: not durable" } else { barrier.as_str() };
            let point = Point { x: crate::units::size(&label).unwrap_or(0) as f64, label, y };
            match series.iter_mut().find(|s| s.name == name && s.report == n) {
                Some(known) => known.points.push(point),
                None => {
                    let colour = series.iter().filter(|s| s.report == n).count() % COLOURS;
                    series.push(Series { name: name.to_owned(), colour, report: n, points: vec![point] });
                }
            }
        }
    }
    series.iter_mut().for_each(|s| s.points.sort_by(|a, b| a.x.total_cmp(&b.x)));
    if series.is_empty() {
        return;
    }
    let axes = Axes { x: "bytes of each write, logarithmic".into(), y: "MB/s".into() };
    let svg = lines(&series, &axes, &values(&series));
    framed(out, "MB/s, with a barrier after each write", "more is better", &svg, &series);
}
