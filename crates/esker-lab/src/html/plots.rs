//! Which plots reports give: one for each figure to look at first, as lines where a parameter is a size or a count with
//! enough values, else as bars; many lines are parted into several plots. And one for each kind of histogram.

use super::colours::LineColours;
use super::distributions::{distribution, over_time};
use super::draw::{bars, escape, heat, lines, values, Axes, Point, Series, COLOURS};
use super::layout::{Layout, GAP};
use super::NamedReport;
use crate::lists::distinct;
use crate::readback::{all_rows, figure, heading, params, text, Figure};
use serde_json::Value;
use std::fmt::Write;

/// The rows that are drawn here: what is a plot of its own is not.
pub(super) fn rows(report: &Value) -> impl Iterator<Item = &Value> {
    crate::readback::rows(report).filter(|row| !super::rates::is_rate(row))
}

/// What is drawn of times.
const TIMES: &str = "how often it took how long";

/// All plots.
pub(super) fn plots(out: &mut String, reports: &[NamedReport<'_>], line_colours: &LineColours) {
    let Some((_, first)) = reports.first() else { return };
    let layout = Layout { line_colours: Some(line_colours), ..Layout::of(first) };
    out.push_str("<div class=plots>\n");
    if first["relative"].is_string() {
        let base = rows(first).find_map(|r| all_rows(first).nth(r["base"].as_u64()? as usize));
        // What all that are 100 percent have in common, as a rule the way: the last parameter.
        let last = params(first).last().copied().unwrap_or_default();
        let base = base.map_or_else(String::new, |r| format!("percent of '{}'", text(&r["params"][last])));
        figure_plots(out, reports, &layout, &base, &percent);
    }
    // Those have plots of their own.
    let of_their_own = [super::rates::METRIC, super::law::SPEED];
    for metric in metrics(first).into_iter().filter(|m| !of_their_own.contains(&m.as_str())) {
        let title = heading(first, &metric).unwrap_or_else(|| metric.clone());
        figure_plots(out, reports, &layout, &title, &|row: &Value| figure(row, &metric));
    }
    super::rates::plot(out, reports);
    super::law::plots(out, reports);
    super::processor::over_time(out, reports, &layout);
    for name in histograms(first) {
        distribution(out, reports, &layout, &name, TIMES, &|row| &row["histograms"][&name]);
    }
    for name in names_in(first, "groups") {
        let title = format!("sizes of groups: {name}");
        distribution(out, reports, &layout, &title, "how often it was how large", &|row| &row["groups"][&name]);
    }
    for of in distinct(rows(first).filter_map(|r| r["times"]["of"].as_str())) {
        distribution(out, reports, &layout, &format!("each {of}"), TIMES, &|row| match row["times"]["of"] == of {
            true => &row["times"],
            false => &Value::Null,
        });
        over_time(out, reports, &layout, of);
    }
    out.push_str("</div>\n");
}

/// How a row stands to the one that is 100 percent.
fn percent(row: &Value) -> Option<Figure> {
    let median = row["percent"].as_f64()?;
    let end = |name: &str| row[name].as_f64().unwrap_or(median);
    let (low, high) = (end("percent_low"), end("percent_high"));
    Some(Figure { median, low, high, samples: Vec::new(), unit: "percent".into() })
}

/// The plots of a figure: one for each part, all on one scale.
fn figure_plots(
    out: &mut String,
    reports: &[NamedReport<'_>],
    layout: &Layout<'_>,
    title: &str,
    figure: &dyn Fn(&Value) -> Option<Figure>,
) {
    let parts: Vec<(String, Vec<Series>)> = layout
        .parts(reports[0].1)
        .into_iter()
        .map(|(part, rows_of)| (part, layout.series(reports, &rows_of, figure)))
        .collect();
    let all: Vec<f64> = parts.iter().flat_map(|(_, series)| values(series)).collect();
    for (part, series) in &parts {
        match layout.is_table && reports.len() == 1 {
            true => table(out, layout, series, title, part, &all),
            false => one(out, layout, series, title, part, &all),
        }
    }
}

/// Two parameters, each a side of a table in colours.
fn table(out: &mut String, layout: &Layout<'_>, series: &[Series], title: &str, part: &str, all: &[f64]) {
    let points = || series.iter().flat_map(|s| &s.points);
    if points().all(|p| p.y.high <= 0.0) {
        return;
    }
    let side = |n: usize| distinct(points().filter_map(|p| p.label.split(GAP).nth(n)));
    let of = |row: &str, column: &str| points().find(|p| p.label == format!("{row}{GAP}{column}")).map(|p| p.y.clone());
    let y = with_unit(title, points().next().map_or("", |p| &p.y.unit));
    let svg = heat(&side(0), &side(1), &of, &Axes { x: String::new(), y: y.clone() }, all);
    framed(out, &titled(&y, part), &layout.names.join(" and "), &svg, &[]);
}

/// A figure's name with its unit, unless it says that itself.
pub(crate) fn with_unit(title: &str, unit: &str) -> String {
    let told = unit.is_empty() || unit == "1/s" || title.split(' ').any(|word| word == unit);
    if told {
        title.to_owned()
    } else {
        format!("{title}, in {unit}")
    }
}

/// And of which part of the rows.
pub(super) fn titled(title: &str, part: &str) -> String {
    if part.is_empty() {
        title.to_owned()
    } else {
        format!("{title}: {part}")
    }
}

/// Names of the figures to look at first; of reports that do not tell, all.
pub(crate) fn metrics(report: &Value) -> Vec<String> {
    if let Some(shown) = report["shown"].as_array() {
        return shown.iter().map(|s| text(&s["name"])).collect();
    }
    all_metrics(report)
}

/// Names of all figures that some row has.
pub(super) fn all_metrics(report: &Value) -> Vec<String> {
    names_in(report, "metrics")
}

/// Names of all histograms that some row has.
fn histograms(report: &Value) -> Vec<String> {
    names_in(report, "histograms")
}

/// The names in a part of the rows, each once.
fn names_in(report: &Value, part: &str) -> Vec<String> {
    let names = rows(report).filter_map(|r| r[part].as_object()).flat_map(|m| m.keys().cloned());
    names.collect::<std::collections::BTreeSet<_>>().into_iter().collect()
}

/// A figure's plot.
fn one(out: &mut String, layout: &Layout<'_>, series: &[Series], title: &str, part: &str, all: &[f64]) {
    let points = || series.iter().flat_map(|s| &s.points);
    if points().all(|p| p.y.high <= 0.0) {
        return;
    }
    let unit = points().next().map_or("", |p| p.y.unit.as_str());
    let better = match unit {
        "ns" | "us" | "s" => "less is better",
        "1/s" => "more is better",
        _ => "",
    };
    let y = with_unit(title, unit);
    let named = titled(&y, part);
    let mut places: Vec<f64> = points().map(|p| p.x).collect();
    places.sort_by(f64::total_cmp);
    places.dedup();
    let mut beside: &[Series] = &[];
    let svg = match layout.axis {
        Some(axis) if places.len() > 1 => {
            if !layout.line_colours.is_some_and(LineColours::is_told) {
                beside = series;
            }
            let bytes = points().any(|p| p.label.ends_with(['K', 'M', 'G', 'T']));
            let unit = if bytes { " in bytes" } else { "" };
            lines(series, &Axes { x: format!("{axis}{unit}, logarithmic"), y }, all)
        }
        // A single place: the lines are bars.
        Some(_) => bars(&turned(series), &Axes { x: String::new(), y }, all),
        None => bars(series, &Axes { x: String::new(), y }, all),
    };
    framed(out, &named, better, &svg, beside);
}

/// A plot with its title, a remark, and a legend of its lines.
pub(super) fn framed(out: &mut String, title: &str, remark: &str, svg: &str, lines: &[Series]) {
    let (title, remark) = (escape(title), escape(remark));
    let _ = writeln!(out, "<figure><figcaption><b>{title}</b> <small>{remark}</small></figcaption>\n{svg}");
    legend(out, lines);
    out.push_str("</figure>\n");
}

/// Series of a point each as one series a report, named by their names.
fn turned(series: &[Series]) -> Vec<Series> {
    let mut reports: Vec<Series> = Vec::new();
    for s in series {
        let points = s.points.iter().map(|p| Point { label: s.name.clone(), ..p.clone() });
        match reports.iter_mut().find(|r| r.report == s.report) {
            Some(report) => report.points.extend(points),
            None => {
                let (report, colour) = (s.report, s.report % COLOURS);
                reports.push(Series { name: String::new(), colour, report, points: points.collect() });
            }
        }
    }
    reports
}

fn legend(out: &mut String, series: &[Series]) {
    let first: Vec<&Series> = series.iter().filter(|s| s.report == 0).collect();
    if first.len() < 2 {
        return;
    }
    out.push_str("<ul class=legend>");
    for s in first {
        let _ = write!(out, "<li><i class=c{}></i>{}</li>", s.colour, escape(&s.name));
    }
    out.push_str("</ul>\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::html::colours::colours;
    use serde_json::json;

    #[test]
    fn lines_without_a_colour_of_their_own_are_told_beside_their_plot() {
        let legends = |lines: usize| {
            let figure = |v: f64| json!({ "unit": "s", "median": v, "low": v, "high": v, "samples": [v] });
            let row = |n: usize| {
                let (on, way, threads) = (n % 2, n / 8, 1 << (n / 2 % 4));
                json!({
                    "params": { "on": format!("fs {on}"), "way": format!("way {way}"), "threads": threads.to_string() },
                    "metrics": { "time": figure(n as f64 + 1.0) }, "status": "good",
                })
            };
            let rows: Vec<Value> = (0..8 * lines).map(row).collect();
            let report = json!({ "params": ["on", "way", "threads"], "rows": rows });
            let reports = vec![("x", &report)];
            let line_colours = colours(&[("c".to_owned(), reports.clone())]);
            let mut out = String::new();
            plots(&mut out, &reports, &line_colours[0]);
            assert_eq!(out.matches("<polyline").count(), 2 * lines);
            (line_colours[0].is_told(), out.matches("<ul class=legend>").count())
        };
        assert_eq!((legends(COLOURS), legends(COLOURS + 1)), ((true, 0), (false, 2)));
    }
}
