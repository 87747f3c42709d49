//! `esker lab advise`: settings for this machine, and whether the engine's own choices are good here, each with the rows
//! it rests on.
//!
//! Invariants: only good rows count; what cannot be told apart leaves the default alone; durability is never advised
//! away, only its price is told.

mod facts;
#[cfg(test)]
mod known;
mod rules;

use crate::compare::LEAST_ROUNDS;
use crate::error::{LabError, Result};
use crate::noise::Noise;
use crate::options::{ignored, CommonOptions};
use crate::probe::host::{read_given, write_text};
use crate::readback::{figure, parse, parts, text};
use crate::report::{Report, Row, Status};
use crate::units::size_text;
use crate::{all, doctor};
use clap::Args;
use esker_io::{Disk, PosixDisk};
use facts::{Fact, Facts};
use serde_json::{json, Value};
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Options of the command.
#[derive(Debug, Clone, Args)]
pub struct Options {
    #[command(flatten)]
    common: CommonOptions,
    /// Reports of this machine that --json printed, of single commands or of 'all' [default: measures what it needs]
    #[arg(value_name = "JSON", conflicts_with_all = ["dir", "seed"])]
    reports: Vec<PathBuf>,
    /// Writes the settings as a configuration file of MariaDB
    #[arg(long, value_name = "FILE")]
    cnf: Option<PathBuf>,
    /// Connections that the server is to have at once, as its max_connections: buffers of all of them are memory
    #[arg(long, value_name = "N", default_value_t = 151, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    max_connections: u64,
    /// Writes over that file if it is there
    #[arg(long, requires = "cnf")]
    force: bool,
}

impl Options {
    pub(crate) fn common(&self) -> &CommonOptions {
        &self.common
    }
}

/// What is measured when no report is given.
const PLAN: [&[&str]; 8] = [
    &["doctor"],
    &["io", "--records", "100000", "--buffer", "1M"],
    &["buffer", "--records", "50000", "--from", "16K", "--to", "4M"],
    &["buffer", "--records", "50000", "--from", "16K", "--to", "4M", "--model", "myisam"],
    &["sync", "--count", "20", "--min-time", "0.02s"],
    &["commit", "--threads", "1,16", "--commits", "20", "--beside", "none", "--min-time", "0.02s"],
    &["locks", "--threads", "1,4", "--count", "10000"],
    &["recovery", "--records", "10000,200000"],
];

/// What comes out for a setting, or for a choice of the engine's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// Another value is better.
    Change,
    /// It stays as it is: something was measurably worse.
    Keep,
    /// Nothing differs by as much as a tenth.
    Same,
    /// Nothing can be told apart: too few rounds, or too noisy.
    Undecided,
    /// It stays, or becomes, durable; the rows tell the price.
    Durable,
    /// No good row says anything of it.
    NotMeasured,
    /// The engine's own choice loses here.
    Badly,
}

impl Outcome {
    fn name(self) -> &'static str {
        match self {
            Outcome::Change => "change",
            Outcome::Keep => "keep",
            Outcome::Same => "no measurable difference",
            Outcome::Undecided => "undecided",
            Outcome::Durable => "durable",
            Outcome::NotMeasured => "not measured",
            Outcome::Badly => "the engine chose badly here",
        }
    }
}

/// Advice on one setting; on a choice that no setting changes, its name begins with [`ENGINE`].
#[derive(Debug, Clone)]
struct Advice {
    setting: &'static str,
    default: String,
    advised: String,
    outcome: Outcome,
    why: String,
    /// The rows, with their figures.
    rests: Vec<String>,
    noise: Noise,
    /// Some of the rows have too few samples.
    few: bool,
}

const ENGINE: &str = "engine: ";

impl Advice {
    fn new(setting: &'static str, default: impl Into<String>) -> Advice {
        let default = default.into();
        Advice {
            setting,
            advised: default.clone(),
            default,
            outcome: Outcome::NotMeasured,
            why: String::new(),
            rests: Vec::new(),
            noise: Noise::default(),
            few: false,
        }
    }

    /// There is nothing to go by.
    fn missing(mut self, command: &str) -> Advice {
        self.why = format!("No good row says anything of it: run 'esker lab {command} --json'.");
        self
    }

    fn is(mut self, outcome: Outcome, why: impl Into<String>) -> Advice {
        (self.outcome, self.why) = (outcome, why.into());
        self
    }

    fn rest_on(&mut self, fact: &Fact<'_>, metric: &str) {
        let words = fact.words(metric);
        if !self.rests.contains(&words) {
            self.rests.push(words);
        }
        self.noise = self.noise.worse(fact.noise());
        self.few |= figure(fact.row, metric).is_some_and(|f| f.samples.len() < LEAST_ROUNDS);
    }

    /// Its reason, and what makes it doubtful.
    fn words(&self) -> String {
        let mut words = self.why.clone();
        if self.outcome == Outcome::Undecided {
            let few = format!(" Fewer than {LEAST_ROUNDS} rounds (--runs) decide nothing.");
            words += if self.few { &few } else { " The rows are too noisy to tell: take more rounds (--runs)." };
        }
        if let Some(why) = self.noise.why_too_much() {
            let _ = write!(words, " Noisy: meanwhile {why}; measure again, with --wait-for-quiet.");
        }
        words
    }

    fn row(&self) -> Row {
        let outcome = self.outcome.name().to_owned();
        let (why, rests) = (self.words(), self.rests.join("; "));
        let params = vec![self.setting.into(), self.default.clone(), self.advised.clone(), outcome, why, rests];
        Row { noise: self.noise, ..Row::without_figures(params, Status::Good) }
    }

    /// Its lines of the configuration file.
    fn cnf(&self) -> Vec<String> {
        let mut lines = vec![String::new(), format!("# {}: {}. {}", self.setting, self.outcome.name(), self.words())];
        lines.extend(self.rests.iter().map(|row| format!("#   {row}")));
        if !self.setting.starts_with(ENGINE) {
            // Without the plugin the server would not start on a name that it does not know.
            let loose = if self.setting.starts_with("esker_") { "loose_" } else { "" };
            let comment = if self.advised == self.default { "# " } else { "" };
            lines.push(format!("{comment}{loose}{} = {}", self.setting, self.advised));
        }
        lines
    }
}

/// Advises.
///
/// # Errors
/// Files that are no reports, or of several machines; a configuration file that is there already; what measuring fails
/// with.
pub fn run(options: &Options) -> Result<Report> {
    if let Some(path) = options.cnf.as_ref().filter(|_| !options.force) {
        if PosixDisk::new().exists(path)? {
            return Err(LabError::Invalid(format!("{} is there already: --force writes over it", path.display())));
        }
    }
    let c = &options.common;
    let given = [
        ("--runs", c.runs.is_some()),
        ("--cache", c.cache.is_some()),
        ("--max-time", c.max_time.is_some()),
        ("--max-space", c.max_space.is_some()),
        ("--max-memory", c.max_memory.is_some()),
        ("--wait-for-quiet", c.wait_for_quiet.is_some()),
    ];
    if let Some((option, _)) = given.into_iter().find(|(_, given)| *given && !options.reports.is_empty()) {
        return Err(ignored(option, "with reports nothing is measured"));
    }
    let (reports, mut notes) = match options.reports.is_empty() {
        true => measured(&options.common)?,
        false => (read(&options.reports)?, Vec::new()),
    };
    let reports: Vec<&Value> = reports.iter().flat_map(parts).collect();
    let machine = same_machine(&reports)?;
    let mut facts = Facts::new(&reports, options.max_connections);
    rules::all(&facts);
    facts.judge();
    let advice = rules::all(&facts);
    if let Some(path) = &options.cnf {
        write_text(path, &cnf(&advice, &machine))?;
        notes.push(format!("Written: {}. A line that is no comment differs from the default.", path.display()));
    }
    notes.push(rules::UNKNOWN.into());
    let names: Vec<String> = options.reports.iter().map(|p| file_name(p)).collect();
    Ok(Report {
        command: "advise",
        options: options.common.options(json!({ "reports": names, "max_connections": options.max_connections })),
        machine,
        params: vec!["setting", "default", "advised", "outcome", "why", "rests on"],
        shown: vec![],
        shown_counts: vec![],
        relative: None,
        null_difference: None,
        rows: advice.iter().map(Advice::row).collect(),
        notes,
        ..Report::default()
    })
}

fn file_name(path: &Path) -> String {
    path.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned())
}

fn measured(common: &CommonOptions) -> Result<(Vec<Value>, Vec<String>)> {
    let (reports, notes) = all::measure(common, &PLAN)?;
    Ok((reports.iter().map(Report::to_json).collect(), notes))
}

fn read(files: &[PathBuf]) -> Result<Vec<Value>> {
    let read = |path: &PathBuf| {
        let name = path.display().to_string();
        let report = parse(&read_given(path)?, &name)?;
        match report["command"] == "advise" {
            true => Err(LabError::Invalid(format!("{name} is advice: give the reports that it rests on"))),
            false => Ok(report),
        }
    };
    files.iter().map(read).collect()
}

/// The machine that all reports are of.
fn same_machine(reports: &[&Value]) -> Result<Value> {
    let Some(first) = reports.first().map(|r| &r["machine"]) else {
        return Ok(doctor::machine(Path::new(".")));
    };
    let differs = |name: &&&str| reports.iter().any(|r| r["machine"][**name] != first[**name]);
    if let Some(name) = ["cpu", "cores", "memory_bytes"].iter().find(differs) {
        return Err(LabError::Invalid(format!("the reports are of several machines: '{name}' differs")));
    }
    Ok(first.clone())
}

/// The configuration file.
fn cnf(advice: &[Advice], machine: &Value) -> String {
    let made = format!(
        "# Made by 'esker lab advise' {} for: {}, {} processors, {} of memory, {}.",
        env!("CARGO_PKG_VERSION"),
        text(&machine["cpu"]),
        machine["cores"],
        size_text(machine["memory_bytes"].as_u64().unwrap_or(0)),
        text(&machine["file_system"]),
    );
    let about =
        "# Each setting is followed by the rows it rests on. A line that is no comment differs from the default.";
    let mut lines = vec![made, about.into(), "[mariadb]".into()];
    lines.extend(advice.iter().flat_map(Advice::cnf));
    // What a report says stays in its line: behind its end a setting would begin.
    lines.iter().map(|line| line.replace(char::is_control, " ") + "\n").collect()
}

/// For people: a paragraph each, since reasons do not fit a table.
#[must_use]
pub fn to_text(report: &Report) -> String {
    let mut out = String::new();
    for row in &report.rows {
        let [setting, default, advised, outcome, why, rests] = &row.params[..] else { continue };
        let was = if default == advised { String::new() } else { format!(" (default {default})") };
        let _ = writeln!(out, "{setting} = {advised}{was}: {outcome}\n    {why}");
        for row in rests.split("; ").filter(|r| !r.is_empty()) {
            let _ = writeln!(out, "      {row}");
        }
        out.push('\n');
    }
    for note in &report.notes {
        let _ = writeln!(out, "{note}");
    }
    out
}
