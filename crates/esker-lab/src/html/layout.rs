//! What each parameter of a report is for in its plots: an axis, what tells lines apart, or what parts a plot into several.

use super::colours::LineColours;
use super::draw::{Point, Series, COLOURS};
use super::plots::rows;
use super::NamedReport;
use crate::lists::{distinct, grouped};
use crate::readback::{label, params, text, Figure};
use serde_json::Value;

/// A parameter with fewer values is no axis.
const LEAST_PLACES: usize = 4;
/// More lines than these are parted into several plots.
const MOST_LINES: usize = 8;
/// And with fewer than these no side of a table.
const LEAST_SIDE: usize = 3;
/// Between the values of a bar's label.
pub(super) const GAP: &str = " · ";

/// What each parameter is for.
pub(super) struct Layout<'a> {
    pub(super) axis: Option<&'a str>,
    /// What tells lines apart, or bars.
    pub(super) names: Vec<&'a str>,
    /// The parameter that parts a plot into several.
    pub(super) part: Option<&'a str>,
    /// Two parameters are left, of several values each: a table in colours.
    pub(super) is_table: bool,
    /// The lines there can be.
    pub(super) lines: Vec<String>,
    pub(super) line_colours: Option<&'a LineColours>,
}

impl<'a> Layout<'a> {
    /// All parameters that differ.
    pub(super) fn all(&self) -> Vec<&'a str> {
        self.part.into_iter().chain(self.names.iter().copied()).chain(self.axis).collect()
    }

    pub(super) fn of(report: &'a Value) -> Layout<'a> {
        let mut varying = params(report);
        varying.retain(|p| different(report, p).len() > 1);
        if varying.is_empty() {
            varying = params(report);
        }
        let places = |p: &str| {
            let values = different(report, p);
            let numbers = values.iter().filter_map(|v| quantity(v)).filter(|v| *v > 0.0).count();
            (numbers == values.len() && numbers >= LEAST_PLACES).then_some(numbers)
        };
        let axis = varying.iter().copied().filter_map(|p| Some((p, places(p)?))).max_by_key(|(_, n)| *n).map(|p| p.0);
        let mut names: Vec<&str> = varying.into_iter().filter(|p| Some(*p) != axis).collect();
        let many = names.len() > 1 && labels(report, &names).len() > MOST_LINES;
        let several = |p: &str| different(report, p).len() >= LEAST_SIDE;
        let is_table = |names: &[&str]| axis.is_none() && names.len() == 2 && names.iter().all(|p| several(p));
        // Parts beside each other; but for what is a table of two sides by itself.
        let whole = report["command"] == "sync" && is_table(&names);
        let part = (many && !whole).then(|| names.remove(0));
        let (is_table, lines) = (report["command"] == "sync" && is_table(&names), labels(report, &names));
        Layout { axis, names, part, is_table, lines, line_colours: None }
    }

    /// A row's line, and its colour.
    pub(super) fn line(&self, row: &Value) -> (String, usize) {
        let line = label(row, &self.names, " ");
        let colour = self.line_colours.map_or(0, |p| p.of(&line));
        (line, colour)
    }

    /// Rows that differ in nothing but their line, by what they have in common.
    pub(super) fn beside<'r>(&self, report: &'r Value) -> Vec<(String, Vec<&'r Value>)> {
        let common: Vec<&str> = self.part.into_iter().chain(self.axis).collect();
        let name = |row: &Value| match self.axis {
            // A bare number says nothing.
            Some(axis) => {
                let part = self.part.map_or_else(String::new, |p| format!("{}, ", text(&row["params"][p])));
                format!("{part}{axis} {}", text(&row["params"][axis]))
            }
            None => label(row, &common, " "),
        };
        grouped(rows(report).filter(|r| r["status"] == "good").map(|row| (name(row), row)))
    }

    /// The rows of each plot, by its name.
    pub(super) fn parts<'r>(&self, report: &'r Value) -> Vec<(String, Vec<&'r Value>)> {
        let Some(part) = self.part else { return vec![(String::new(), rows(report).collect())] };
        grouped(rows(report).map(|row| (text(&row["params"][part]), row)))
    }

    /// One series for each name and report; those of later ones have the colour of the first. Only good rows count.
    pub(super) fn series(
        &self,
        reports: &[NamedReport<'_>],
        among: &[&Value],
        figure: &dyn Fn(&Value) -> Option<Figure>,
    ) -> Vec<Series> {
        let mut found: Vec<Series> = Vec::new();
        for (n, (report_name, report)) in reports.iter().enumerate() {
            for row in rows(report).filter(|r| among.iter().any(|a| a["params"] == r["params"])) {
                let (Some(y), true) = (figure(row), row["status"] == "good") else { continue };
                let (name, place, colour) = match self.axis {
                    Some(axis) => {
                        let (line, colour) = self.line(row);
                        (line, text(&row["params"][axis]), colour)
                    }
                    None => ((*report_name).to_owned(), label(row, &self.names, GAP), n % COLOURS),
                };
                let point = Point { x: quantity(&place).unwrap_or(0.0), label: place, y };
                match found.iter_mut().find(|s| s.name == name && s.report == n) {
                    Some(series) => series.points.push(point),
                    None => {
                        found.push(Series { name, colour: colour % COLOURS, report: n, points: vec![point] });
                    }
                }
            }
        }
        found.iter_mut().for_each(|s| s.points.sort_by(|a, b| a.x.total_cmp(&b.x)));
        found
    }
}

/// A number, or a size such as 128K.
fn quantity(text: &str) -> Option<f64> {
    let shift = text.chars().last().and_then(|c| "KMGT".find(c)).map_or(0, |i| 10 * (i as i32 + 1));
    let digits = if shift > 0 { &text[..text.len() - 1] } else { text };
    digits.parse::<f64>().ok().filter(|v| v.is_finite()).map(|v| v * 2f64.powi(shift))
}

fn different<'a>(report: &'a Value, param: &str) -> Vec<&'a str> {
    let mut values: Vec<&str> = rows(report).filter_map(|r| r["params"][param].as_str()).collect();
    values.sort_unstable();
    values.dedup();
    values
}

/// The rows' different values of some parameters, in their order.
fn labels(report: &Value, names: &[&str]) -> Vec<String> {
    distinct(rows(report).map(|r| label(r, names, " ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn sizes_and_counts_are_axes() {
        assert_eq!(
            ["8", "128K", "1.5M", "cold", ""].map(quantity),
            [Some(8.0), Some(131_072.0), Some(1_572_864.0), None, None]
        );
        let report = |values: &[&str]| {
            let row = |v: &&str| json!({ "params": { "do": "write", "way": "x", "buffer": v } });
            let mut rows: Vec<Value> = values.iter().map(row).collect();
            rows[0]["params"]["do"] = json!("read");
            json!({ "params": ["do", "way", "buffer"], "rows": rows })
        };
        let many = report(&["1K", "2K", "4K", "8K"]);
        let layout = Layout::of(&many);
        assert_eq!((layout.axis, layout.names, layout.part), (Some("buffer"), vec!["do"], None));
        assert_eq!(layout.lines, ["read", "write"]);
        let few = report(&["1K", "2K", "4K"]);
        assert_eq!(Layout::of(&few).axis, None);
    }
}
