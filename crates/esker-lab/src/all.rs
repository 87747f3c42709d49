//! `esker lab all`: every measurement in turn, each as its own command would make it, with sizes that fit the time.

use crate::error::{LabError, Result, Verdict};
use crate::experiment::interrupted;
use crate::options::{Cache, CommonOptions};
use crate::report::{commit, date_text, Report, SCHEMA_VERSION};
use crate::Lab;
use clap::{Args, Parser};
use serde_json::{json, Value};

/// Options of the command.
#[derive(Debug, Clone, Args)]
pub struct Options {
    #[command(flatten)]
    common: CommonOptions,
    /// In two to three minutes
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// Large files and many threads: takes long
    #[arg(long)]
    full: bool,
}

impl Options {
    pub(crate) fn common(&self) -> &CommonOptions {
        &self.common
    }
}

const QUICK: [&[&str]; 9] = [
    &["doctor"],
    &["io", "--records", "100000"],
    &["buffer", "--records", "40000", "--from", "4K"],
    &["sync", "--count", "10", "--min-time", "0.02s"],
    &["commit", "--threads", "1,16", "--commits", "10", "--min-time", "0.02s"],
    &["trace", "--reads", "500"],
    &["memory", "--bytes", "32M", "--wait", "1s", "--churn", "5", "--runs", "2"],
    &["locks", "--threads", "1,4", "--count", "10000"],
    &["recovery", "--records", "10000,50000"],
];
const MIDDLE: [&[&str]; 9] = [
    &["doctor"],
    &["io"],
    &["buffer"],
    &["sync", "--threads", "1,8"],
    &["commit"],
    &["trace", "--reads", "5000"],
    &["memory"],
    &["locks"],
    &["recovery"],
];
const FULL: [&[&str]; 9] = [
    &["doctor"],
    &["io", "--full"],
    &["buffer", "--records", "10000000", "--to", "1G"],
    &["sync", "--threads", "1,2,4,8,16,32,64", "--sizes", "512,4K,16K,128K", "--count", "1000"],
    &["commit", "--threads", "1,2,4,8,16,32,64,128,256,512", "--commits", "100"],
    &["trace", "--reads", "20000"],
    &["memory", "--bytes", "1G", "--threads", "4"],
    &["locks", "--threads", "1,2,4,8,16,64,256"],
    &["recovery", "--records", "100000,1000000,10000000,100000000"],
];

/// Commands that read files, cold or warm.
const READING: [&str; 3] = ["io", "buffer", "trace"];

#[derive(Parser)]
struct Line {
    #[command(subcommand)]
    lab: Lab,
}

/// Runs them all; a command that cannot be run here is missing, and a note says why.
///
/// # Errors
/// When the folder cannot be used at all.
pub fn run(options: &Options) -> Result<(Vec<Report>, Vec<String>)> {
    let plan = match (options.quick, options.full) {
        (true, _) => &QUICK,
        (_, true) => &FULL,
        _ => &MIDDLE,
    };
    measure(&options.common, plan)
}

/// Runs some commands, each with what they have in common.
///
/// # Errors
/// When the folder cannot be used at all.
pub(crate) fn measure(c: &CommonOptions, plan: &[&[&str]]) -> Result<(Vec<Report>, Vec<String>)> {
    c.check()?;
    let mut common = vec!["--dir".to_owned(), c.dir.display().to_string(), "--seed".into(), c.seed.to_string()];
    if let Some(runs) = c.runs {
        common.extend(["--runs".into(), runs.to_string()]);
    }
    if let Some(memory) = c.max_memory {
        common.extend(["--max-memory".into(), memory.to_string()]);
    }
    if let Some(space) = c.max_space {
        common.extend(["--max-space".into(), space.to_string()]);
    }
    if let Some(limit) = c.wait_for_quiet {
        common.extend(["--wait-for-quiet".into(), limit.as_secs_f64().to_string()]);
    }
    let began = std::time::Instant::now();
    let (mut reports, mut notes) = (Vec::new(), Vec::new());
    for &command in plan {
        let mut words: Vec<String> = ["lab"].iter().chain(command).map(|w| (*w).to_owned()).collect();
        words.extend(common.iter().cloned());
        if let Some(cache) = c.cache.filter(|_| READING.contains(&command[0])) {
            // Of both, buffer reads the one that it reads anyway.
            if !(command[0] == "buffer" && cache == Cache::Both) {
                words.extend(["--cache".into(), format!("{cache:?}").to_lowercase()]);
            }
        }
        if let Some(most) = c.max_time {
            let left = most.saturating_sub(began.elapsed()).as_secs_f64();
            if left < 0.001 {
                notes.push(format!("'{}' {NOT_RUN}{}", command[0], stopped(interrupted())));
                continue;
            }
            words.extend(["--max-time".into(), format!("{left:.3}")]);
        }
        let line = Line::try_parse_from(&words).map_err(|e| LabError::Invalid(e.to_string()))?;
        let Some((_, report)) = line.lab.measure() else { continue };
        match report {
            Ok(report) => reports.push(report),
            Err(e @ LabError::Io(_)) if reports.is_empty() => return Err(e),
            Err(LabError::Stopped) => notes.push(format!("'{}' {NOT_RUN}{}", command[0], stopped(interrupted()))),
            Err(e) => notes.push(format!("'{}' {NOT_RUN}{e}", command[0])),
        }
    }
    Ok((reports, notes))
}

/// The worst of all; a command that was not run counts as failed.
#[must_use]
pub fn verdict(reports: &[Report], notes: &[String]) -> Verdict {
    let no_fault = |n: &&String| n.ends_with(stopped(true)) || n.ends_with(stopped(false));
    let missing = notes.iter().any(|n| n.contains(NOT_RUN) && !no_fault(&n));
    let none = if interrupted() { Verdict::Interrupted } else { Verdict::Failed };
    let worst = reports.iter().map(Report::verdict).max().unwrap_or(none);
    if missing {
        worst.max(Verdict::Failed)
    } else {
        worst
    }
}

/// In the note on a command that was not run, and at its end where nothing else was the reason.
const NOT_RUN: &str = "was not run: ";
fn stopped(by_hand: bool) -> &'static str {
    match by_hand {
        true => "Ctrl-C",
        false => "the time is over",
    }
}

/// All in one.
#[must_use]
pub fn to_json(reports: &[Report], notes: &[String]) -> Value {
    json!({
        "schema": "esker-lab",
        "schema_version": SCHEMA_VERSION,
        "esker_version": env!("CARGO_PKG_VERSION"),
        "commit": commit(),
        "date": date_text(crate::probe::host::unix_seconds()),
        "command": "all",
        "reports": reports.iter().map(Report::to_json).collect::<Vec<_>>(),
        "notes": notes,
        "exit_code": verdict(reports, notes).exit_code(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_stopped_says_by_what_and_is_no_failure() {
        assert_eq!([stopped(true), stopped(false)], ["Ctrl-C", "the time is over"]);
        let of = |why: &str| verdict(&[], &[format!("'io' {NOT_RUN}{why}")]);
        // Without any report there is nothing good.
        assert_eq!((of("no space"), of(stopped(true))), (Verdict::Failed, Verdict::Failed));
        let good = crate::report::Report {
            command: "locks",
            options: json!({}),
            machine: json!({}),
            params: vec![],
            shown: vec![],
            shown_counts: vec![],
            relative: None,
            null_difference: None,
            rows: vec![],
            ..crate::report::Report::default()
        };
        let of = |why: &str| verdict(std::slice::from_ref(&good), &[format!("'io' {NOT_RUN}{why}")]);
        assert_eq!(
            [of("no space"), of(stopped(true)), of(stopped(false))],
            [Verdict::Failed, Verdict::Good, Verdict::Good]
        );
    }
}
