//! The lab: what does this machine's storage do for a database? The engine's file layer and raw calls, measured.
//!
//! Owns the commands below `esker lab`. A command makes a [`report::Report`] of rows; [`run`] prints it as a table or as
//! JSON. What the commands have in common is in [`options`], [`experiment`] (folder, plan, turns,
//! stopping), [`stats`], [`noise`] and [`report`]; the calls for files and the looks at the machine in [`probe`]; what is measured in [`writers`],
//! [`readers`], [`theory`] and the commands' own modules.

pub mod advise;
pub mod all;
pub mod buffer;
pub mod clock;
pub mod commit;
pub mod compare;
pub mod details;
pub mod doctor;
pub mod error;
pub mod experiment;
pub mod flow;
pub mod html;
pub mod io;
mod lists;
pub mod locks;
pub mod measure;
pub mod memory;
pub mod needs;
pub mod noise;
pub mod options;
pub mod probe;
pub mod processor;
pub mod quiet;
pub mod readback;
pub mod readers;
pub mod records;
pub mod recovery;
pub mod report;
mod sizes;
pub mod stats;
pub mod sync;
mod table;
pub mod theory;
pub mod times;
pub mod trace;
pub mod units;
pub mod versus;
pub mod writers;

pub use error::{LabError, Result, Verdict};

use crate::probe::host::{read_given, write_text};
use clap::Subcommand;
use std::io::Write;
use std::path::PathBuf;

/// Exit codes, for the help.
pub const EXIT_CODES: &str = "\
Exit codes:
  0  all is well
  1  it, or a part of it, could not be done: wrong arguments, no space, a folder that cannot be written
  2  what was written or read was not what it should be: the row says so and counts for nothing
  3  the machine was too noisy: the host took more than a tenth of the processors' time, or other processes more than a
     quarter of it, or of the device's; a note says what, how much, and in which row. --wait-for-quiet waits for better
  4  nothing of what was asked for is supported here
130  Ctrl-C: what was done is reported";

/// The commands of the lab.
#[derive(Debug, Clone, Subcommand)]
pub enum Lab {
    /// The machine as storage sees it: kernel, file system, device, abilities, noise, and a test of the lab itself
    #[command(after_help = EXIT_CODES)]
    Doctor(doctor::Options),
    /// Six ways to write and read records of a file: plain, cached, background, mapped, direct, and the engine's own
    #[command(after_help = EXIT_CODES)]
    Io(io::Options),
    /// Buffer sizes: time, and writes counted and held against what the buffer's rule demands
    #[command(after_help = EXIT_CODES)]
    Buffer(buffer::Options),
    /// What a barrier costs: fsync, fdatasync, O_DSYNC, RWF_DSYNC; files that grow, are reserved, are full of zeros
    #[command(after_help = EXIT_CODES)]
    Sync(sync::Options),
    /// Group commit: who syncs for whom, alone and with a coordinator's log, by threads
    #[command(after_help = EXIT_CODES)]
    Commit(commit::Options),
    /// Reads one by one with their times, and what the times say about where the bytes came from
    ///
    /// This reads a file itself, without a server. Another thing is 'esker trace', which tells where the time of a
    /// server's session went, from the files of its trace.
    #[command(after_help = EXIT_CODES)]
    Trace(trace::Options),
    /// The engine's lock under threads: contention, and the times of waiting, holding and letting go
    #[command(after_help = EXIT_CODES)]
    Locks(locks::Options),
    /// Time to open a folder after a crash, as the log grows
    #[command(after_help = EXIT_CODES)]
    Recovery(recovery::Options),
    /// Commits rows and crashes: what 'recovery' recovers from
    #[command(hide = true)]
    RecoveryLoad(recovery::Load),
    /// Does memory come back after rows are deleted, by allocator; and whose it is in a running server
    #[command(after_help = EXIT_CODES)]
    Memory(memory::Options),
    /// Loads and deletes rows: what 'memory' looks at
    #[command(hide = true)]
    MemoryLoad(memory::load::Load),
    /// All of the above
    #[command(after_help = EXIT_CODES)]
    All(all::Options),
    /// Makes one page of HTML of a report that --json printed, or of several, held against the first
    Report {
        /// What commands, or 'all', printed with --json
        #[arg(value_name = "JSON", required = true)]
        files: Vec<PathBuf>,
        /// Prints the comparison as text instead of a page
        #[arg(long)]
        text: bool,
    },
    /// Settings for this machine, each with the rows it rests on
    #[command(after_help = EXIT_CODES)]
    Advise(advise::Options),
}

impl Lab {
    /// Measures; the options that all commands have, and what was found. `None`: it is about reports, not machines.
    fn measure(&self) -> Option<(&options::CommonOptions, Result<report::Report>)> {
        Some(match self {
            Lab::Doctor(o) => (o.common(), doctor::run(o)),
            Lab::Io(o) => (o.common(), io::run(o)),
            Lab::Buffer(o) => (o.common(), buffer::run(o)),
            Lab::Sync(o) => (o.common(), sync::run(o)),
            Lab::Commit(o) => (o.common(), commit::run(o)),
            Lab::Trace(o) => (o.common(), trace::run(o)),
            Lab::Locks(o) => (o.common(), locks::run(o)),
            Lab::Recovery(o) => (o.common(), recovery::run(o)),
            Lab::Advise(o) => (o.common(), advise::run(o)),
            Lab::Memory(o) => (o.common(), memory::run(o)),
            Lab::All(_) | Lab::Report { .. } | Lab::RecoveryLoad(_) | Lab::MemoryLoad(_) => return None,
        })
    }
}

/// Reports in files, by the files' names; where two are called the same, by their paths.
fn read_reports(files: &[PathBuf]) -> Result<Vec<(String, serde_json::Value)>> {
    let stem = |path: &PathBuf| path.file_stem().map(|n| n.to_string_lossy().into_owned());
    let read = |path: &PathBuf| {
        let alone = files.iter().filter(|other| stem(other) == stem(path)).count() == 1;
        let name = stem(path).filter(|_| alone).unwrap_or_else(|| path.display().to_string());
        let report = readback::parse(&read_given(path)?, &path.display().to_string())?;
        Ok((name, report))
    };
    files.iter().map(read).collect()
}

/// Writes the page that was asked for; after printing, so that a page that cannot be written loses nothing.
fn write_page(common: &options::CommonOptions, report: &serde_json::Value) -> Result<()> {
    let Some(path) = &common.html else { return Ok(()) };
    Ok(write_text(path, &html::page(&[("this machine".into(), report.clone())])?)?)
}

/// Runs a command and prints its report; how it ended.
///
/// # Errors
/// When nothing could be measured.
pub fn run(lab: &Lab, out: &mut dyn Write) -> Result<Verdict> {
    // Whoever reads it may have enough of it: what was found decides how the command ends.
    let is_heard = !matches!(lab, Lab::RecoveryLoad(_) | Lab::MemoryLoad(_));
    let mut print = |text: &str| {
        // Reports, files and the kernel may tell of names that move a terminal's cursor, or more.
        let text = text.replace(|c: char| c.is_control() && c != '\n', " ");
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            Err(e) if is_heard && e.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
            written => written.map_err(|e| LabError::Output(e.to_string())),
        }
    };
    match lab {
        Lab::Report { files, text } => {
            let reports = read_reports(files)?;
            print(&if *text { versus::to_text(&reports)? } else { html::page(&reports)? })?;
        }
        Lab::RecoveryLoad(load) => recovery::load(load, |rows| print(&format!("{rows}\n")))?,
        Lab::MemoryLoad(load) => memory::load::run(load, &mut print)?,
        Lab::All(options) => return run_all(options, &mut print),
        _ => {}
    }
    let Some((common, report)) = lab.measure() else { return Ok(Verdict::Good) };
    let report = report?;
    match lab {
        _ if common.json => print(&format!("{:#}\n", report.to_json()))?,
        Lab::Advise(_) => print(&advise::to_text(&report))?,
        _ => print(&report.to_text())?,
    }
    write_page(common, &report.to_json())?;
    Ok(report.verdict())
}

/// Runs all commands and prints their reports.
fn run_all(options: &all::Options, print: &mut dyn FnMut(&str) -> Result<()>) -> Result<Verdict> {
    let (reports, notes) = all::run(options)?;
    let json = all::to_json(&reports, &notes);
    if options.common().json {
        print(&format!("{json:#}\n"))?;
    } else {
        for report in &reports {
            print(&format!("== {} ==\n{}\n", report.command, report.to_text()))?;
        }
        notes.iter().try_for_each(|note| print(&format!("{note}\n")))?;
    }
    write_page(options.common(), &json)?;
    Ok(all::verdict(&reports, &notes))
}
