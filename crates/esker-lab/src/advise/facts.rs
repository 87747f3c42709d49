//! Good rows of reports, and comparing them: only rows of one report that differ in nothing but what is looked at.

use crate::noise::Noise;
use crate::readback::{figure, heading, label, null_of, number, params, rows, text, Figure};
use serde::Deserialize;
use serde_json::Value;

/// With fewer samples no two rows are told apart: of two rows with three each, one is wholly below the other by chance
/// once in ten times.
pub(super) const LEAST_SAMPLES: usize = 3;

/// A good row, and its report.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fact<'a> {
    pub(super) report: &'a Value,
    pub(super) row: &'a Value,
}

/// A figure that rows are compared by.
#[derive(Debug, Clone, Copy)]
pub(super) struct By {
    pub(super) metric: &'static str,
    pub(super) more_is_better: bool,
}

impl By {
    pub(super) const fn least(metric: &'static str) -> By {
        By { metric, more_is_better: false }
    }

    pub(super) const fn most(metric: &'static str) -> By {
        By { metric, more_is_better: true }
    }
}

impl<'a> Fact<'a> {
    pub(super) fn param(&self, name: &str) -> &'a str {
        self.row["params"][name].as_str().unwrap_or_default()
    }

    /// The figure, turned so that less is better.
    pub(super) fn cost(&self, by: By) -> Option<Figure> {
        let figure = figure(self.row, by.metric)?;
        Some(if by.more_is_better { figure.inverse() } else { figure })
    }

    pub(super) fn noise(&self) -> Noise {
        Noise::deserialize(&self.row["noise"]).unwrap_or_default()
    }

    /// Command, parameters and a figure.
    pub(super) fn words(&self, metric: &str) -> String {
        let row = label(self.row, &params(self.report), " ");
        let command = text(&self.report["command"]);
        let Some(Figure { median, low, high, samples, unit }) = figure(self.row, metric) else {
            return format!("{command} {row}");
        };
        let name = heading(self.report, metric).unwrap_or_else(|| format!("{metric} in {unit}"));
        let [median, low, high] = [median, low, high].map(number);
        format!("{command} {row}: {name}: {median} ({low} to {high}, {} runs)", samples.len())
    }
}

/// Rows of one report that differ only in some parameters.
#[derive(Debug)]
pub(super) struct Group<'a> {
    pub(super) facts: Vec<Fact<'a>>,
    /// By how much the same differs.
    null: f64,
    /// Names of the parameters in which they agree.
    agreed: Vec<&'a str>,
}

impl<'a> Group<'a> {
    /// What they have in common.
    pub(super) fn label(&self) -> String {
        self.facts.first().map_or_else(String::new, |f| label(f.row, &self.agreed, " "))
    }

    /// The first that has this value.
    pub(super) fn with(&self, param: &str, value: &str) -> Option<&Fact<'a>> {
        self.facts.iter().find(|f| f.param(param) == value)
    }

    /// The one with the least cost.
    pub(super) fn best(&self, by: By, among: impl Fn(&Fact<'a>) -> bool) -> Option<&Fact<'a>> {
        let costs = self.facts.iter().filter(|f| among(f)).filter_map(|f| Some((f, f.cost(by)?.median)));
        costs.min_by(|a, b| a.1.total_cmp(&b.1)).map(|f| f.0)
    }

    /// Can `a` be told to be better than `b`?
    pub(super) fn is_better(&self, a: &Fact<'_>, b: &Fact<'_>, by: By) -> bool {
        let (Some(a), Some(b)) = (a.cost(by), b.cost(by)) else { return false };
        a.samples.len().min(b.samples.len()) >= LEAST_SAMPLES && a.is_below(&b, self.null)
    }

    /// The cost of `a` in percent of `b`'s.
    pub(super) fn percent(a: &Fact<'_>, b: &Fact<'_>, by: By) -> f64 {
        let median = |f: &Fact<'_>| f.cost(by).map_or(f64::NAN, |f| f.median);
        100.0 * median(a) / median(b)
    }
}

/// The good rows of all reports.
pub(super) struct Facts<'a> {
    reports: &'a [&'a Value],
}

impl<'a> Facts<'a> {
    pub(super) fn new(reports: &'a [&'a Value]) -> Facts<'a> {
        Facts { reports }
    }

    /// Those of one command.
    pub(super) fn of(&self, command: &str) -> Vec<Fact<'a>> {
        let reports = self.reports.iter().copied().filter(|r| r["command"] == command);
        reports.flat_map(|report| rows(report).map(move |row| Fact { report, row })).filter(Fact::is_good).collect()
    }

    /// Those of one command for which `among` holds, as groups in which only the parameters `vary` differ.
    pub(super) fn groups(&self, command: &str, vary: &[&str], among: impl Fn(&Fact<'a>) -> bool) -> Vec<Group<'a>> {
        let mut groups: Vec<Group<'a>> = Vec::new();
        for fact in self.of(command).into_iter().filter(|f| among(f)) {
            let agreed: Vec<&str> = params(fact.report).into_iter().filter(|p| !vary.contains(p)).collect();
            let fits = |g: &&mut Group<'a>| {
                let first = g.facts[0];
                std::ptr::eq(first.report, fact.report) && agreed.iter().all(|p| first.param(p) == fact.param(p))
            };
            match groups.iter_mut().find(fits) {
                Some(group) => {
                    group.null = group.null.max(self.null(&fact));
                    group.facts.push(fact);
                }
                None => groups.push(Group { null: self.null(&fact), facts: vec![fact], agreed }),
            }
        }
        groups
    }

    /// By how much the same differs: its own test, else the doctor's, else nothing but intervals tell.
    fn null(&self, fact: &Fact<'_>) -> f64 {
        let own = null_of(fact.report, fact.row);
        let doctors = self.reports.iter().filter(|r| r["command"] == "doctor");
        own.or_else(|| doctors.filter_map(|r| r["null_difference"].as_f64()).reduce(f64::max)).unwrap_or(0.0)
    }

    /// The machine's memory in bytes, or the control group's limit where that is less.
    pub(super) fn memory_bytes(&self) -> Option<u64> {
        let machine = self.reports.iter().filter_map(|r| r["machine"]["memory_bytes"].as_u64());
        let limits = self.of("doctor").into_iter().filter(|f| f.param("what") == "memory limit");
        machine.chain(limits.filter_map(|f| f.param("found").parse().ok())).filter(|b| *b > 0).min()
    }
}

impl Fact<'_> {
    fn is_good(&self) -> bool {
        self.row["status"] == "good"
    }
}
