//! What a command found: rows with all their samples, as JSON (docs/LAB.md describes the schema) and as a table.
//!
//! Invariant: a row is never left out; one that was not measured says why.

use crate::compare::{family, Comparison, Contrast, Decision, LEAST_ROUNDS};
use crate::details::Details;
use crate::error::Verdict;
use crate::experiment::{interrupted, AGAIN};
use crate::lists::distinct;
use crate::noise::Noise;
use crate::quiet::QuietWait;
use crate::readback::Figure;
use crate::sizes;
use crate::stats::{summary, Summary};
use crate::table::table;
use crate::times::{Times, PERCENTILES};
use serde_json::{json, Map, Value};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::OnceLock;

/// Version of the JSON schema: raised when a reader of older reports would go wrong.
pub const SCHEMA_VERSION: u32 = 2;

/// The commit that this was built from, where the command was told it.
static COMMIT: OnceLock<&str> = OnceLock::new();

/// Says which commit this was built from, once.
pub fn built_from(commit: Option<&'static str>) {
    if let Some(commit) = commit {
        let _ = COMMIT.set(commit);
    }
}

/// The commit, for a report.
#[must_use]
pub fn commit() -> Option<&'static str> {
    COMMIT.get().copied()
}

/// A moment in UTC, as RFC 3339 writes it. Days to dates: Howard Hinnant, chrono-compatible low-level date algorithms.
#[must_use]
pub fn date_text(unix_seconds: u64) -> String {
    let (days, second) = (unix_seconds / 86_400 + 719_468, unix_seconds % 86_400);
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    // Years begin in March: what is irregular comes last.
    let march = (5 * of_year + 2) / 153;
    let (day, month) = (of_year - (153 * march + 2) / 5 + 1, if march < 10 { march + 3 } else { march - 9 });
    let year = year + 400 * era + u64::from(month <= 2);
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{:02}Z", second % 60)
}

/// Samples of one figure.
#[derive(Debug, Clone, Default)]
pub struct Metric {
    /// "ns", "s", "bytes", "".
    pub unit: &'static str,
    /// In the order of the runs.
    pub samples: Vec<f64>,
}

/// How a row ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Status {
    /// Measured, and right.
    Good,
    /// Measured, and what came out was wrong: the figures count for nothing.
    Void(String),
    /// Kernel, file system or container refuse it.
    Unsupported(String),
    /// It failed.
    Failed(String),
    /// Not, or not fully, measured: Ctrl-C or the end of the time.
    Stopped,
}

impl Status {
    fn name(&self) -> &'static str {
        match self {
            Status::Good => "good",
            Status::Void(_) => "void",
            Status::Unsupported(_) => "unsupported",
            Status::Failed(_) => "failed",
            Status::Stopped => "stopped",
        }
    }

    fn why(&self) -> &str {
        match self {
            Status::Void(why) | Status::Unsupported(why) | Status::Failed(why) => why,
            Status::Good | Status::Stopped => "",
        }
    }
}

/// One thing that was measured.
#[derive(Debug, Clone)]
pub struct Row {
    /// What it is: the values of the report's parameters, in their order.
    pub params: Vec<String>,
    /// Figures with a spread.
    pub metrics: BTreeMap<&'static str, Metric>,
    /// Figures without one: all runs agreed on them.
    pub counts: BTreeMap<&'static str, u64>,
    /// The row that is 100 percent for this one.
    pub base: Option<usize>,
    /// The worst of all runs.
    pub noise: Noise,
    /// How it ended.
    pub status: Status,
    /// Histograms and stacks.
    pub details: Details,
}

impl Row {
    /// A row of what has no figures, with its reason.
    #[must_use]
    pub fn without_figures(params: Vec<String>, status: Status) -> Row {
        let (metrics, counts) = (BTreeMap::new(), BTreeMap::new());
        Row { params, metrics, counts, base: None, noise: Noise::default(), status, details: Details::default() }
    }

    /// Median and interval of a figure.
    #[must_use]
    pub fn summary(&self, metric: &str) -> Option<Summary> {
        self.metrics.get(metric).and_then(|m| summary(&m.samples))
    }
}

/// Adds the rows of another run of cases.
pub fn join(rows: &mut Vec<Row>, more: Vec<Row>) {
    let first = rows.len();
    rows.extend(more.into_iter().map(|row| Row { base: row.base.map(|b| b + first), ..row }));
}

/// The largest difference between a row and the same again: 0.02 is 2 percent.
#[must_use]
pub fn null_difference(rows: &[Row], metric: &str) -> Option<f64> {
    rows.iter().filter_map(|twin| twin_difference(rows, twin, metric)).reduce(f64::max)
}

/// Of a row that was measured a second time, from what it was the first time.
fn twin_difference(rows: &[Row], twin: &Row, metric: &str) -> Option<f64> {
    twin.params.last().filter(|p| p.ends_with(AGAIN))?;
    let (a, b) = (twin.summary(metric)?.median, rows.get(twin.base?)?.summary(metric)?.median);
    (a > 0.0 && b > 0.0).then(|| (a / b).max(b / a) - 1.0)
}

/// A command's result.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// The command.
    pub command: &'static str,
    /// What it was asked for.
    pub options: Value,
    /// What it ran on.
    pub machine: Value,
    /// Names of the rows' parameters.
    pub params: Vec<&'static str>,
    /// Figures to print, in order: name and heading.
    pub shown: Vec<(&'static str, &'static str)>,
    /// Counts to print, in order: name and heading.
    pub shown_counts: Vec<(&'static str, &'static str)>,
    /// The figure that rows are compared by.
    pub relative: Option<&'static str>,
    /// By how much the same thing, measured twice, differed: 0.02 is 2 percent.
    pub null_difference: Option<f64>,
    /// The rows.
    pub rows: Vec<Row>,
    /// How long it was waited for the machine to be quiet, if that was asked for.
    pub waited: Option<QuietWait>,
    /// What was found of all rows together, as JSON by its name.
    pub found: Map<String, Value>,
    /// For people.
    pub notes: Vec<String>,
}

impl Report {
    /// The exit code's reason.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        let void = self.rows.iter().any(|r| matches!(r.status, Status::Void(_)));
        let good = self.rows.iter().any(|r| r.status == Status::Good);
        let refused = self.rows.iter().any(|r| matches!(r.status, Status::Unsupported(_)));
        if void {
            Verdict::Void
        } else if interrupted() {
            Verdict::Interrupted
        } else if self.rows.iter().any(|r| matches!(r.status, Status::Failed(_))) {
            Verdict::Failed
        } else if !good && refused {
            Verdict::Unsupported
        } else if self.rows.iter().any(|r| r.status == Status::Good && r.noise.is_too_much()) {
            Verdict::Noisy
        } else {
            Verdict::Good
        }
    }

    /// Notes, and why the machine was too noisy, if it was: what, how much, and in which row the most.
    fn all_notes(&self) -> Vec<String> {
        let mut notes: Vec<String> =
            self.waited.iter().map(QuietWait::words).chain(self.notes.iter().cloned()).collect();
        let noisy = || self.rows.iter().filter(|r| r.status == Status::Good && r.noise.is_too_much());
        let worst = noisy().max_by(|a, b| a.noise.excess().total_cmp(&b.noise.excess()));
        if let Some((row, why)) = worst.and_then(|row| Some((row, row.noise.why_too_much()?))) {
            let name = row.params.join(" ");
            let place = match noisy().count() {
                1 => format!("in row '{name}'"),
                // They were measured as one.
                n if n == self.rows.len() && noisy().all(|other| other.noise == row.noise) => "in all rows".into(),
                n => format!("in row '{name}', the worst of {n} such rows"),
            };
            notes.push(format!("Too noisy (exit code 3): {place}, {why}."));
        }
        notes
    }

    /// Each row held against the one that is 100 percent for it, all together; `None` where there is none, or it is the row
    /// itself.
    fn comparisons(&self) -> Vec<Option<Comparison>> {
        // What is wrong, or was not done, says nothing.
        let counts = |row: &&Row| !matches!(row.status, Status::Void(_) | Status::Failed(_));
        let samples = |row: &Row| Some(Some(row).filter(counts)?.metrics.get(self.relative?)?.samples.clone());
        let contrast = |(i, row): (usize, &Row)| {
            let base = row.base.filter(|b| *b != i)?;
            Contrast::of_rounds(&samples(row)?, &samples(self.rows.get(base)?)?)
        };
        family(&self.rows.iter().enumerate().map(contrast).collect::<Vec<_>>())
    }

    /// The row that is 100 percent for others is that for itself too.
    fn is_base(&self, i: usize) -> bool {
        self.rows[i].base == Some(i) && self.relative.is_some_and(|m| self.rows[i].summary(m).is_some())
    }

    /// By how much the same differed in the row's group; of a command without groups, in the whole.
    fn null_of(&self, row: &Row) -> Option<f64> {
        let twin = self.rows.iter().find(|r| r.base == row.base && r.params.last().is_some_and(|p| p.ends_with(AGAIN)));
        twin.map_or(self.null_difference, |twin| twin_difference(&self.rows, twin, self.relative?))
    }

    /// Distributions of all times, for people.
    fn times_text(&self) -> String {
        let timed = || self.rows.iter().filter_map(|r| Some((r, r.details.times.as_ref()?)));
        let mut out = String::new();
        // What the rows timed need not be the same thing: a write without a barrier is none.
        for of in distinct(timed().map(|(_, times)| times.of.as_str())) {
            let rows = timed().filter(|(_, times)| times.of == of);
            let _ = write!(out, "\nEach {of}, all runs, in us:\n{}\n", self.times_table(rows));
        }
        if !out.is_empty() {
            let _ = writeln!(out, "{CLOSED_LOOP}");
        }
        out
    }

    fn times_table<'a>(&self, rows: impl Iterator<Item = (&'a Row, &'a Times)>) -> String {
        let mut head: Vec<String> = self.params.iter().map(|p| (*p).to_owned()).collect();
        head.push("count".into());
        head.extend(PERCENTILES.iter().map(|p| p.0.to_owned()));
        head.push("longest".into());
        let lines = rows.map(|(row, times)| row.params.iter().cloned().chain(times.cells()).collect());
        table(head, lines, self.params.len()..)
    }

    /// As the schema says.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let compared = self.comparisons();
        let rows: Vec<Value> = (0..self.rows.len()).map(|i| self.row_json(i, compared[i].as_ref())).collect();
        let mut report = json!({
            "schema": "esker-lab",
            "schema_version": SCHEMA_VERSION,
            "esker_version": env!("CARGO_PKG_VERSION"),
            "commit": commit(),
            "date": date_text(crate::probe::host::unix_seconds()),
            "command": self.command,
            "options": self.options,
            "machine": self.machine,
            "null_difference": self.null_difference,
            "relative": self.relative,
            "params": self.params,
            "shown": headed(&self.shown),
            "shown_counts": headed(&self.shown_counts),
            "rows": rows,
            "notes": self.all_notes(),
            "exit_code": self.verdict().exit_code(),
        });
        if let Some(fields) = report.as_object_mut() {
            fields.extend(self.waited.iter().map(|waited| ("waited".to_owned(), json!(waited))));
            fields.extend(self.found.clone());
        }
        report
    }

    fn row_json(&self, i: usize, compared: Option<&Comparison>) -> Value {
        let row = &self.rows[i];
        let percent = compared.map(|c| 100.0 * c.ratio).or_else(|| self.is_base(i).then_some(100.0));
        let interval = compared.and_then(|c| c.interval);
        let params: BTreeMap<_, _> = self.params.iter().zip(&row.params).collect();
        let metrics: BTreeMap<_, _> = row.metrics.iter().filter_map(|(name, m)| Some((name, Figure::of(m)?))).collect();
        let mut value = json!({
            "params": params,
            "metrics": metrics,
            "counts": row.counts,
            "noise": row.noise,
            "status": row.status.name(),
            "why": row.status.why(),
            "base": row.base,
            "percent": percent,
            "percent_low": interval.map(|i| 100.0 * i.0),
            "percent_high": interval.map(|i| 100.0 * i.1),
            "told": compared.map(|c| c.decision),
            "null_difference": self.null_of(row),
        });
        if let Some(fields) = value.as_object_mut() {
            row.details.add_to(fields);
        }
        value
    }

    /// For people.
    #[must_use]
    pub fn to_text(&self) -> String {
        let noise_known = self.rows.iter().any(|r| r.noise != Noise::default());
        let comparisons = self.comparisons();
        let mut out = self.rows_table(&comparisons, noise_known) + "\n";
        if let Some(null) = self.null_difference {
            let _ = writeln!(out, "\nThe same, measured twice, differed by at most {:.1} percent.", 100.0 * null);
        }
        if comparisons.iter().any(Option::is_some) {
            let _ = writeln!(out, "{}", decision_words(comparisons.iter().flatten().all(|c| c.interval.is_none())));
        }
        out.push_str(&self.times_text());
        out.push_str(&sizes::text(&self.params, &self.rows));
        self.rows.iter().for_each(|row| out.push_str(&row.details.to_text()));
        if noise_known {
            let _ = writeln!(out, "{NOISE_WORDS}");
        }
        let disturbed = self.rows.iter().any(|r| r.status == Status::Good && r.noise.is_disturbed());
        if disturbed && self.waited.is_none() {
            let _ = writeln!(out, "{OFFER}");
        }
        for note in self.all_notes() {
            let _ = writeln!(out, "{note}");
        }
        out
    }

    /// A line for each row: parameters, figures, percent, counts, noise, and why it is not good.
    fn rows_table(&self, comparisons: &[Option<Comparison>], noise_known: bool) -> String {
        let mut head: Vec<String> = self.params.iter().map(|p| (*p).to_owned()).collect();
        head.extend(self.shown.iter().map(|s| s.1.to_owned()));
        head.extend(self.relative.map(|_| "percent".to_owned()));
        head.extend(self.shown_counts.iter().map(|s| s.1.to_owned()));
        let figures = self.params.len()..head.len();
        head.extend(noise_known.then(|| "noise".to_owned()));
        let line = |(i, row): (usize, &Row)| {
            let mut line = row.params.clone();
            if row.status == Status::Good || !row.metrics.is_empty() {
                line.extend(self.shown.iter().map(|(name, _)| figure(row, name)));
                line.extend(self.relative.map(|_| match &comparisons[i] {
                    Some(comparison) => percent_text(comparison),
                    None if self.is_base(i) => "100.0".into(),
                    None => String::new(),
                }));
                line.extend(self.shown_counts.iter().map(|(n, _)| row.counts.get(n).map_or("".into(), group)));
            }
            line.resize(figures.end, String::new());
            if noise_known {
                line.push(if row.metrics.is_empty() { String::new() } else { row.noise.words() });
            }
            if row.status != Status::Good {
                line.push(format!("{}: {}", row.status.name(), row.status.why()).trim_end_matches(": ").to_owned());
            }
            line
        };
        table(head, self.rows.iter().enumerate().map(line), figures.clone())
    }
}

/// What stands in the column of noise.
pub(crate) const NOISE_WORDS: &str =
    "Noise is the worst of all runs, or of a quarter of a second where they are shorter: what the host took and other processes ran, of all processors' \
    time; how long the device was busy for others; how long some task waited for a processor or storage, those of the lab too.";

/// Where others were at work.
const OFFER: &str =
    "Others were at work meanwhile: with --wait-for-quiet 60s it begins when they are not, or after a minute.";

/// What percentiles of a closed loop are not.
pub const CLOSED_LOOP: &str =
    "A closed loop: each thread begins the next one when the last is done, so what a stall keeps from \
    beginning is not in the percentiles. A percentile has at least 10 times above it.";

/// Percent of the row that is 100 percent, or that it is the same, or that this is not known.
#[must_use]
pub fn percent_text(compared: &Comparison) -> String {
    match compared.decision {
        Decision::Same => "same".into(),
        Decision::Different => format!("{:.1}", 100.0 * compared.ratio),
        Decision::Undecided => format!("{:.1} undecided", 100.0 * compared.ratio),
    }
}

/// What the verdicts mean; `few`: there are too few rounds for any.
#[must_use]
pub fn decision_words(few: bool) -> String {
    if few {
        return format!("With fewer than {LEAST_ROUNDS} rounds (--runs) nothing is told apart: all is undecided.");
    }
    "A percentage alone is a difference: at most one report in twenty of equal rows shows any. 'same': less than 10 percent \
     apart, if at all. 'undecided': too noisy, or too few rounds."
        .into()
}

/// Names and headings.
fn headed(columns: &[(&'static str, &'static str)]) -> Value {
    columns.iter().map(|(name, heading)| json!({ "name": name, "heading": heading })).collect()
}

/// Median and half the width of its interval.
fn figure(row: &Row, name: &str) -> String {
    let Some(Summary { median, low, high }) = row.summary(name) else { return String::new() };
    let digits = match median.abs() {
        m if m >= 1000.0 => 0,
        m if m >= 10.0 => 1,
        _ => 3,
    };
    match (high - low) / 2.0 {
        0.0 => format!("{median:.digits$}"),
        half => format!("{median:.digits$} ±{half:.digits$}"),
    }
}

/// A count with its digits in groups.
fn group(n: &u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i) % 3 == 0 {
            out.push(',');
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests;
