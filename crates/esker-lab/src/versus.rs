//! Reports held against the first of them: rows are matched by what they are for, whatever it was measured on, and how much
//! of it. Invariant: a row that has no counterpart is told of, with the reason.

use crate::compare::{family, Comparison, Contrast};
use crate::error::{LabError, Result};
use crate::lists::{distinct, grouped};
use crate::readback::{figure, heading, label, number, params, parts, rows, text, Figure};
use crate::report::{decision_words, percent_text};
use crate::table::table;
use serde_json::Value;
use std::fmt::Write;

/// A report and its name.
pub(crate) type NamedReport<'a> = (&'a str, &'a Value);

/// Parameters that do not say what a row is for, but how much there was, on what, or what came out.
const LOOSE: [&str; 12] = [
    "records", "commits", "on", "from", "found", "state", "remark", "default", "advised", "outcome", "why", "rests on",
];
/// Of those, how much there was: figures of the whole then do not compare.
const AMOUNTS: [&str; 2] = ["records", "commits"];
/// Units of figures that grow with the amount.
const OF_THE_WHOLE: [&str; 4] = ["s", "MiB", "bytes", ""];

/// The reports of each command, in the order in which commands are met.
pub(crate) fn by_command<'r>(reports: &'r [(String, Value)]) -> Vec<(String, Vec<NamedReport<'r>>)> {
    let all =
        reports.iter().flat_map(|(name, report)| parts(report).into_iter().map(move |part| (name.as_str(), part)));
    grouped(all.map(|(name, part)| (text(&part["command"]), (name, part))))
}

/// Refuses reports of which no two are of one command.
///
/// # Errors
/// `Invalid`.
pub(crate) fn something_in_common(reports: &[(String, Value)]) -> Result<()> {
    if reports.len() < 2 || by_command(reports).iter().any(|c| c.1.len() > 1) {
        return Ok(());
    }
    let of = |(name, report): &(String, Value)| format!("{name} is of 'esker lab {}'", text(&report["command"]));
    let all = reports.iter().map(of).collect::<Vec<_>>().join(", ");
    Err(LabError::Invalid(format!("nothing to compare, as no two are of one command: {all}")))
}

/// A report with its rows called as those of the first that they are held against.
pub(crate) struct Aligned {
    /// Only what has a counterpart.
    pub(crate) report: Value,
    /// What has none, there and here.
    pub(crate) unmatched: Vec<String>,
}

/// What a row is for: its parameters but for the loose ones.
fn role(row: &Value, names: &[&str]) -> Vec<String> {
    names.iter().filter(|n| !is_loose(row, n)).map(|n| text(&row["params"][n])).collect()
}

/// 'records' are a number, or the kind of records.
fn is_loose(row: &Value, name: &str) -> bool {
    let number = || row["params"][name].as_str().is_some_and(|v| v.parse::<f64>().is_ok());
    LOOSE.contains(&name) && (!AMOUNTS.contains(&name) || number())
}

/// Matches rows: first those that are called the same; then, of each role, what is left, in its order, if it is as many.
pub(crate) fn align(first: &Value, other: &Value) -> Aligned {
    let names = params(first);
    let mut left: Vec<&Value> = rows(first).collect();
    let mut mine: Vec<&Value> = rows(other).collect();
    let mut pairs: Vec<(&Value, &Value)> = Vec::new();
    mine.retain(|row| match left.iter().position(|l| l["params"] == row["params"]) {
        Some(at) => {
            pairs.push((left.remove(at), row));
            false
        }
        None => true,
    });
    let mut unmatched = Vec::new();
    while let Some(role_of) = left.first().or(mine.first()).map(|row| role(row, &names)) {
        let (there, here) = (take(&mut left, &names, &role_of), take(&mut mine, &names, &role_of));
        if there.len() == here.len() {
            pairs.extend(there.into_iter().zip(here));
        } else {
            let all = |rows: &[&Value]| rows.iter().map(|r| label(r, &names, " ")).collect::<Vec<_>>().join(", ");
            unmatched.push(match (there.is_empty(), here.is_empty()) {
                (true, _) => format!("only in the second: {}", all(&here)),
                (_, true) => format!("only in the first: {}", all(&there)),
                _ => format!("{} there, {} here: {} and {}", there.len(), here.len(), all(&there), all(&here)),
            });
        }
    }
    let mut report = other.clone();
    // In the first one's order.
    let place = |row: &Value| rows(first).position(|r| std::ptr::eq(r, row));
    pairs.sort_by_key(|(there, _)| place(there));
    report["rows"] = pairs.iter().map(|(there, here)| renamed(there, here, &names)).collect();
    report["params"] = names.iter().copied().collect();
    Aligned { report, unmatched }
}

/// Takes the rows of a role out of some.
fn take<'r>(rows: &mut Vec<&'r Value>, names: &[&str], of: &[String]) -> Vec<&'r Value> {
    let (these, others) = rows.iter().copied().partition(|row| role(row, names) == of);
    *rows = others;
    these
}

/// A row under the other's name, without the figures that the amount makes different.
fn renamed(there: &Value, here: &Value, names: &[&str]) -> Value {
    let mut row = here.clone();
    let other_amount = names.iter().any(|n| AMOUNTS.contains(n) && there["params"][n] != here["params"][n]);
    if let Some(metrics) = row["metrics"].as_object_mut().filter(|_| other_amount) {
        metrics.retain(|_, m| !m["unit"].as_str().is_some_and(|unit| OF_THE_WHOLE.contains(&unit)));
    }
    row["called"] = here["params"].clone();
    row["params"] = there["params"].clone();
    // Indexes of rows are no longer true.
    row["base"] = Value::Null;
    row
}

/// What was compared: a line for each row of the first, with the figures of all.
pub(crate) struct ComparisonTable {
    /// Names of the parameters.
    pub(crate) params: Vec<String>,
    /// Names and headings of the figures.
    pub(crate) metrics: Vec<(String, String)>,
    /// The rows.
    pub(crate) lines: Vec<Line>,
    /// What did not match, report by report.
    pub(crate) unmatched: Vec<String>,
}

/// A row of the first report.
pub(crate) struct Line {
    /// Values of its parameters; where a report's differ, those too.
    pub(crate) params: Vec<String>,
    /// For each figure: of each report the figure, and how it stands to the first one's.
    pub(crate) cells: Vec<Vec<(Option<Figure>, Option<Comparison>)>>,
}

impl Line {
    fn has(&self, metric: usize) -> bool {
        self.cells[metric].iter().filter(|c| c.0.is_some()).count() > 1
    }
}

/// Compares all reports of a command with the first. `others` are aligned.
pub(crate) fn versus(first: &NamedReport<'_>, others: &[(&str, Aligned)]) -> ComparisonTable {
    let names = params(first.1);
    let mut metrics: Vec<(String, String)> = Vec::new();
    for metric in crate::html::metrics(first.1) {
        metrics.push((metric.clone(), heading(first.1, &metric).unwrap_or(metric)));
    }
    let good = |row: &Value, metric: &str| figure(row, metric).filter(|_| row["status"] == "good");
    let mut lines: Vec<Line> = Vec::new();
    for row in rows(first.1) {
        let same: Vec<Option<&Value>> =
            others.iter().map(|o| rows(&o.1.report).find(|r| r["params"] == row["params"])).collect();
        if same.iter().all(Option::is_none) {
            continue;
        }
        let of = |name: &&str| {
            let others = same.iter().flatten().map(|r| text(&r["called"][name]));
            distinct(std::iter::once(text(&row["params"][name])).chain(others)).join(" | ")
        };
        let cells = metrics.iter().map(|(metric, _)| {
            let rest = same.iter().map(|r| (r.and_then(|r| good(r, metric)), None));
            std::iter::once((good(row, metric), None)).chain(rest).collect()
        });
        lines.push(Line { params: names.iter().map(of).collect(), cells: cells.collect() });
    }
    tell(&mut lines);
    let said = |(name, o): &(&str, Aligned)| {
        o.unmatched.iter().map(|u| format!("Not matched, {} and {name}: {u}.", first.0)).collect::<Vec<_>>()
    };
    let mut unmatched: Vec<String> = others.iter().flat_map(|o| asked_otherwise(first, o, &names)).collect();
    unmatched.extend(others.iter().flat_map(said));
    unmatched.extend(others.iter().flat_map(|o| without_figures(first, o, &names)));
    ComparisonTable { params: names.into_iter().map(str::to_owned).collect(), metrics, lines, unmatched }
}

/// Options that change nothing of what a row is, or that rows tell themselves.
const TOLD: [&str; 22] = [
    "dir",
    "beside",
    "runs",
    "seed",
    "cache",
    "max_time_s",
    "max_space_bytes",
    "max_memory_bytes",
    "wait_for_quiet_s",
    "min_time_s",
    "sizes",
    "from",
    "to",
    "rates",
    "ways",
    "only",
    "count",
    "records",
    "commits",
    "reads",
    "threads",
    "reports",
];

/// Options in which two reports differ, so that the same row is not the same thing.
fn asked_otherwise(first: &NamedReport<'_>, other: &(&str, Aligned), names: &[&str]) -> Option<String> {
    let (there, here) = (first.1["options"].as_object()?, other.1.report["options"].as_object()?);
    let matters = |name: &str| !TOLD.contains(&name) && !names.contains(&name);
    let said = |value: &Value| if value.is_null() { "nothing".to_owned() } else { text(value) };
    let differ =
        there.iter().filter_map(|(name, a)| Some((name, a, here.get(name)?))).filter(|(n, a, b)| matters(n) && a != b);
    let words: Vec<String> = differ
        .map(|(name, a, b)| {
            format!("{} {} in {}, {} in {}", name.replace('_', " "), said(a), first.0, said(b), other.0)
        })
        .collect();
    (!words.is_empty()).then(|| format!("Asked for otherwise: {}.", words.join("; ")))
}

/// Rows that were not measured in one of two reports, though both have them: by what is said of them there.
fn without_figures(first: &NamedReport<'_>, other: &(&str, Aligned), names: &[&str]) -> Vec<String> {
    let called_by: Vec<&str> = names.iter().copied().filter(|n| !AMOUNTS.contains(n)).collect();
    let mut said = Vec::new();
    for here in rows(&other.1.report) {
        let Some(there) = rows(first.1).find(|r| r["params"] == here["params"]) else { continue };
        for (name, row) in [(first.0, there), (other.0, here)].into_iter().filter(|(_, row)| row["status"] != "good") {
            let why = match text(&row["why"]) {
                why if why.is_empty() => text(&row["status"]),
                why => why,
            };
            said.push(((name, why), label(row, &called_by, " ")));
        }
    }
    let words = |((name, why), all): ((&str, String), Vec<String>)| {
        format!("Not compared, as {name} has no figures of it ({why}): {}.", all.join(", "))
    };
    grouped(said).into_iter().map(words).collect()
}

/// All that is said is said at once.
fn tell(lines: &mut [Line]) {
    let mut contrasts: Vec<Option<Contrast>> = Vec::new();
    for cell in lines.iter().flat_map(|l| &l.cells) {
        for (figure, _) in &cell[1..] {
            let of = |f: &Option<Figure>| f.as_ref().map(|f| f.samples.clone());
            contrasts.push(of(figure).zip(of(&cell[0].0)).and_then(|(b, a)| Contrast::of_reports(&b, &a)));
        }
    }
    let mut told = family(&contrasts).into_iter();
    for cell in lines.iter_mut().flat_map(|l| &mut l.cells) {
        cell[1..].iter_mut().for_each(|c| c.1 = told.next().flatten());
    }
}

impl ComparisonTable {
    /// Is there nothing but rows with too few rounds?
    pub(crate) fn undecided(&self) -> bool {
        let cells = self.lines.iter().flat_map(|l| &l.cells).flatten();
        cells.filter_map(|c| c.1).all(|c| c.interval.is_none())
    }

    /// A table for each figure that two have.
    fn to_text(&self, reports: &[&str]) -> String {
        let mut out = String::new();
        for (m, (_, heading)) in self.metrics.iter().enumerate() {
            let lines: Vec<&Line> = self.lines.iter().filter(|l| l.has(m)).collect();
            if lines.is_empty() {
                continue;
            }
            let mut head = self.params.clone();
            head.extend(reports.iter().map(|r| (*r).to_owned()));
            head.extend(reports[1..].iter().map(|r| format!("{r}/{}", reports[0])));
            let cells = |line: &&Line| {
                let figure = |c: &(Option<Figure>, _)| c.0.as_ref().map_or_else(|| "-".into(), |f| number(f.median));
                let percent = |c: &(_, Option<Comparison>)| c.1.as_ref().map_or_else(|| "-".into(), percent_text);
                let figures = line.cells[m].iter().map(figure).chain(line.cells[m][1..].iter().map(percent));
                line.params.iter().cloned().chain(figures).collect()
            };
            let table = table(head, lines.iter().map(cells), self.params.len()..);
            let unit = lines.iter().flat_map(|l| &l.cells[m]).find_map(|c| c.0.as_ref()).map_or("", |f| &f.unit);
            let heading = crate::html::with_unit(heading, unit);
            let _ = writeln!(out, "\n{heading}, then percent:\n{table}");
        }
        let _ = writeln!(out, "\n{}", decision_words(self.undecided()));
        self.unmatched.iter().for_each(|u| out += &format!("{u}\n"));
        out
    }
}

/// What a report was measured on, and by what: name and value, those that are known.
pub(crate) fn origin(report: &Value) -> Vec<(&'static str, String)> {
    let device = &report["machine"]["device"];
    let all = [
        ("date", &report["date"]),
        ("device", &device["model"]),
        ("file system", &report["machine"]["file_system"]),
        ("kernel", &report["machine"]["kernel"]),
        ("esker", &report["esker_version"]),
        ("commit", &report["commit"]),
    ];
    let told = |(name, value): (&'static str, &Value)| {
        (name, value.as_str().filter(|v| !v.is_empty()).unwrap_or("unknown").to_owned())
    };
    all.into_iter().map(told).collect()
}

/// Reports for people: of one its figures are told elsewhere; of several, held against the first.
///
/// # Errors
/// When no two are of one command.
pub fn to_text(reports: &[(String, Value)]) -> Result<String> {
    if reports.len() < 2 {
        return Err(LabError::Invalid("--text compares two reports or more".into()));
    }
    something_in_common(reports)?;
    let mut out = String::new();
    for (name, report) in reports {
        let origin = origin(parts(report).first().copied().unwrap_or(report));
        let origin: Vec<String> = origin.into_iter().map(|(n, v)| format!("{n} {v}")).collect();
        let _ = writeln!(out, "{name}: {}", origin.join(", "));
    }
    for (command, of) in by_command(reports) {
        let _ = writeln!(out, "\n== {command} ==");
        missing(&of, reports).iter().for_each(|m| out += &format!("{m}\n"));
        if let Some((first, others)) = of.split_first().filter(|(_, others)| !others.is_empty()) {
            let others: Vec<(&str, Aligned)> = others.iter().map(|(n, r)| (*n, align(first.1, r))).collect();
            let names: Vec<&str> = of.iter().map(|o| o.0).collect();
            out += &versus(first, &others).to_text(&names);
        }
    }
    Ok(out)
}

/// What to say of reports that a command has no part in.
pub(crate) fn missing(of: &[NamedReport<'_>], reports: &[(String, Value)]) -> Vec<String> {
    let without = reports.iter().filter(|(name, _)| !of.iter().any(|o| std::ptr::eq(o.0, name.as_str())));
    without.map(|(name, _)| format!("{name} has no report of this command.")).collect()
}

#[cfg(test)]
#[path = "versus/tests.rs"]
mod tests;
