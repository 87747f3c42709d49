//! Good rows of reports, and comparing them: only rows of one report that differ in nothing but what is looked at.

use crate::compare::{family, Comparison, Contrast, Decision};
use crate::noise::Noise;
use crate::readback::{figure, heading, label, number, params, rows, text, Figure};
use serde::Deserialize;
use serde_json::Value;
use std::cell::RefCell;
use std::collections::BTreeMap;

/// A good row, and its report.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fact<'a> {
    pub(super) report: &'a Value,
    pub(super) row: &'a Value,
}

/// A figure that rows are compared by.
#[derive(Debug, Clone, Copy)]
pub(super) struct Criterion {
    pub(super) metric: &'static str,
    pub(super) more_is_better: bool,
}

impl Criterion {
    pub(super) const fn least(metric: &'static str) -> Criterion {
        Criterion { metric, more_is_better: false }
    }

    pub(super) const fn most(metric: &'static str) -> Criterion {
        Criterion { metric, more_is_better: true }
    }
}

impl<'a> Fact<'a> {
    pub(super) fn param(&self, name: &str) -> &'a str {
        self.row["params"][name].as_str().unwrap_or_default()
    }

    /// The figure, turned so that less is better.
    pub(super) fn cost(&self, by: Criterion) -> Option<Figure> {
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
    pub(super) fn best(&self, by: Criterion, among: impl Fn(&Fact<'a>) -> bool) -> Option<&Fact<'a>> {
        let costs = self.facts.iter().filter(|f| among(f)).filter_map(|f| Some((f, f.cost(by)?.median)));
        costs.min_by(|a, b| a.1.total_cmp(&b.1)).map(|f| f.0)
    }
}

/// Two rows, by where they are, and the figure they are compared by.
type Pair = (*const Value, *const Value, &'static str);

/// The good rows of all reports. Everything that any rule holds against another row is judged at once: the rules are asked
/// first what they will hold, then what follows.
pub(super) struct Facts<'a> {
    reports: &'a [&'a Value],
    /// Connections that a server is to have at once.
    pub(super) max_connections: u64,
    held: RefCell<BTreeMap<Pair, Option<Contrast>>>,
    comparisons: BTreeMap<Pair, Option<Comparison>>,
}

impl<'a> Facts<'a> {
    pub(super) fn new(reports: &'a [&'a Value], max_connections: u64) -> Facts<'a> {
        Facts { reports, max_connections, held: RefCell::default(), comparisons: BTreeMap::new() }
    }

    /// Rows of each group that a rule may compare.
    pub(super) fn hold(&self, groups: &[Group<'a>], by: Criterion, among: impl Fn(&Fact<'a>, &Fact<'a>) -> bool) {
        let mut held = self.held.borrow_mut();
        for facts in groups.iter().map(|g| &g.facts) {
            for (i, a) in facts.iter().enumerate() {
                for b in facts[i + 1..].iter().filter(|b| among(a, b)) {
                    let of = || Contrast::of_rounds(&a.cost(by)?.samples, &b.cost(by)?.samples);
                    held.entry(pair(a, b, by)).or_insert_with(of);
                }
            }
        }
    }

    /// Judges all that is held.
    pub(super) fn judge(&mut self) {
        let held = self.held.take();
        let comparisons = family(&held.values().cloned().collect::<Vec<_>>());
        self.comparisons = held.into_keys().zip(comparisons).collect();
    }

    /// The cost of `a` over that of `b`, and what can be told of it.
    fn decision(&self, a: &Fact<'_>, b: &Fact<'_>, by: Criterion) -> Option<(f64, Decision)> {
        let find = |a, b| self.comparisons.get(&pair(a, b, by)).copied().flatten();
        let turned = || find(b, a).map(|c| (1.0 / c.ratio, c.decision));
        find(a, b).map(|c| (c.ratio, c.decision)).or_else(turned)
    }

    /// Can `a` be told to be better than `b`? Only of what is held.
    pub(super) fn is_better(&self, a: &Fact<'_>, b: &Fact<'_>, by: Criterion) -> bool {
        self.decision(a, b, by).is_some_and(|(ratio, decision)| decision == Decision::Different && ratio < 1.0)
    }

    /// The cost of `a` in percent of that of `b`, by pairs of rounds as the verdict is. Only of what is held.
    pub(super) fn percent(&self, a: &Fact<'_>, b: &Fact<'_>, by: Criterion) -> f64 {
        self.decision(a, b, by).map_or(f64::NAN, |(ratio, _)| 100.0 * ratio)
    }

    /// Is it known whether they differ?
    pub(super) fn is_decided(&self, a: &Fact<'_>, b: &Fact<'_>, by: Criterion) -> bool {
        self.decision(a, b, by).is_some_and(|(_, decision)| decision != Decision::Undecided)
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
                Some(group) => group.facts.push(fact),
                None => groups.push(Group { facts: vec![fact], agreed }),
            }
        }
        groups
    }

    /// The machine's memory in bytes, or the control group's limit where that is less.
    pub(super) fn memory_bytes(&self) -> Option<u64> {
        let names = ["memory_bytes", "memory_limit_bytes"];
        let machine = self.reports.iter().flat_map(|r| names.map(|n| r["machine"][n].as_u64())).flatten();
        let limits = self.of("doctor").into_iter().filter(|f| f.param("what") == "memory limit");
        let bytes =
            |f: Fact<'_>| figure(f.row, "bytes").map_or_else(|| bytes_of(f.param("found")), |b| Some(b.median as u64));
        machine.chain(limits.filter_map(bytes)).filter(|b| *b > 0).min()
    }
}

/// A size as people read it: "268435456", "256M", "1.5G".
fn bytes_of(text: &str) -> Option<u64> {
    let (digits, shift) = match text.char_indices().last().and_then(|(at, c)| Some((at, "KMGT".find(c)?))) {
        Some((at, unit)) => (&text[..at], 10 * (unit as i32 + 1)),
        None => (text, 0),
    };
    digits.parse::<f64>().ok().filter(|v| *v > 0.0).map(|v| (v * 2f64.powi(shift)) as u64)
}

fn pair(a: &Fact<'_>, b: &Fact<'_>, by: Criterion) -> Pair {
    (a.row, b.row, by.metric)
}

impl Fact<'_> {
    fn is_good(&self) -> bool {
        self.row["status"] == "good"
    }
}
