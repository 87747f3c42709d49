//! Which plots reports give: one for each figure to look at first, as lines where a parameter is a size or a count with
//! enough values, else as bars; many lines are parted into several plots. And one for each kind of histogram.

use super::draw::{bars, escape, heat, lines, values, Axes, Point, Series, COLOURS};
use super::NamedReport;
use crate::lists::{distinct, grouped};
use crate::readback::{all_rows, figure, heading, label, number, params, text, Figure};
use serde_json::Value;
use std::fmt::Write;

/// The rows that are drawn here: what is a plot of its own is not.
fn rows(report: &Value) -> impl Iterator<Item = &Value> {
    crate::readback::rows(report).filter(|row| !super::rates::is_rate(row))
}

/// A parameter with fewer values is no axis.
const LEAST_PLACES: usize = 4;
/// More lines than these are parted into several plots.
const MOST_LINES: usize = 8;
/// And with fewer than these no side of a table.
const LEAST_SIDE: usize = 3;

/// What is drawn of times.
const TIMES: &str = "how often it took how long";

/// A command's lines and their colours, which are the same in all of its plots.
#[derive(Debug)]
pub(super) struct LineColours {
    pub(super) command: String,
    pub(super) lines: Vec<(String, usize)>,
    /// Something is drawn in them.
    drawn: bool,
}

impl LineColours {
    /// Does the page's legend tell them? More than there are colours have one beside their plot.
    pub(super) fn is_told(&self) -> bool {
        self.drawn && self.lines.len() > 1 && self.lines.len() <= COLOURS
    }

    fn of(&self, line: &str) -> usize {
        self.lines.iter().find(|l| l.0 == line).map_or(0, |l| l.1)
    }
}

/// The colours of each command's lines: a name that another command has, too, has the same one, if it is free.
pub(super) fn colours(commands: &[(String, Vec<NamedReport<'_>>)]) -> Vec<LineColours> {
    let mut known: Vec<(String, usize)> = Vec::new();
    let mut paint = |(command, reports): &(String, Vec<NamedReport<'_>>)| {
        let Some((_, first)) = reports.first() else {
            return LineColours { command: command.clone(), lines: Vec::new(), drawn: false };
        };
        let layout = Layout::of(first);
        let mut taken = Vec::new();
        let of = |name: &String| known.iter().find(|k| k.0 == *name).map(|k| k.1);
        taken.extend(layout.lines.iter().filter_map(of));
        let mut lines: Vec<(String, usize)> = Vec::new();
        for (n, name) in layout.lines.iter().enumerate() {
            let mine = of(name).filter(|c| !lines.iter().any(|l| l.1 == *c));
            let free = || (0..COLOURS).find(|c| !taken.contains(c) && !lines.iter().any(|l| l.1 == *c));
            lines.push((name.clone(), mine.or_else(free).unwrap_or(n % COLOURS)));
        }
        known.extend(lines.iter().filter(|l| of(&l.0).is_none()).cloned().collect::<Vec<_>>());
        let parts = ["times", "histograms", "groups", "processor"];
        let drawn = layout.axis.is_some() || rows(first).any(|r| parts.iter().any(|p| r[*p].is_object()));
        LineColours { command: command.clone(), lines, drawn }
    };
    commands.iter().map(&mut paint).collect()
}

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

/// Between the values of a bar's label.
const GAP: &str = " · ";

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

/// What each parameter is for.
pub(super) struct Layout<'a> {
    axis: Option<&'a str>,
    /// What tells lines apart, or bars.
    names: Vec<&'a str>,
    /// The parameter that parts a plot into several.
    part: Option<&'a str>,
    /// Two parameters are left, of several values each: a table in colours.
    is_table: bool,
    /// The lines there can be.
    lines: Vec<String>,
    line_colours: Option<&'a LineColours>,
}

impl<'a> Layout<'a> {
    /// All parameters that differ.
    fn all(&self) -> Vec<&'a str> {
        self.part.into_iter().chain(self.names.iter().copied()).chain(self.axis).collect()
    }

    fn of(report: &'a Value) -> Layout<'a> {
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
    fn parts<'r>(&self, report: &'r Value) -> Vec<(String, Vec<&'r Value>)> {
        let Some(part) = self.part else { return vec![(String::new(), rows(report).collect())] };
        grouped(rows(report).map(|row| (text(&row["params"][part]), row)))
    }

    /// One series for each name and report; those of later ones have the colour of the first. Only good rows count.
    fn series(
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

/// How often how long, or how large: a line for each row.
fn distribution(
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
fn over_time(out: &mut String, reports: &[NamedReport<'_>], layout: &Layout<'_>, of: &str) {
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

    #[test]
    fn a_name_has_one_colour_in_all_commands() {
        let report = |names: &[&str]| {
            let row = |way: &&str| json!({ "params": { "way": way }, "times": {}, "status": "good" });
            json!({ "params": ["way"], "rows": names.iter().map(row).collect::<Vec<_>>() })
        };
        let many: Vec<String> = (0..=COLOURS).map(|n| format!("way {n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let all = [report(&["a", "b"]), report(&["c", "b", "d"]), report(&["a"]), report(&many)];
        let commands: Vec<(String, Vec<NamedReport<'_>>)> =
            all.iter().enumerate().map(|(n, r)| (n.to_string(), vec![("x", r)])).collect();
        let line_colours = colours(&commands);
        let of = |n: usize| line_colours[n].lines.iter().map(|l| l.1).collect::<Vec<_>>();
        // c is not given b's, which comes after it.
        assert_eq!((of(0), of(1), of(2)), (vec![0, 1], vec![0, 1, 2], vec![0]));
        assert_eq!(line_colours.iter().map(LineColours::is_told).collect::<Vec<_>>(), [true, true, false, false]);
    }

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

    #[test]
    fn empty_buckets_are_drawn_too() {
        let points = shares(&json!({ "unit": "ns", "buckets": [[1024, 2048, 3], [8192, null, 1]] }));
        let found: Vec<(f64, f64)> = points.iter().map(|p| (p.x, p.y.median)).collect();
        assert_eq!(found, [(1024.0, 75.0), (2048.0, 0.0), (4096.0, 0.0), (8192.0, 25.0)]);
    }
}
