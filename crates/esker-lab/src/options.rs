//! Options that all commands of the lab have.

use crate::compare::LEAST_ROUNDS;
use crate::error::{LabError, Result};
use crate::probe::host::may_be_page;
use crate::units::{size, time};
use clap::{Args, ValueEnum};
use esker_io::{Disk, PosixDisk};
use serde_json::{json, Value};
use std::path::PathBuf;
use std::time::Duration;

/// What all commands of the lab understand.
#[derive(Debug, Clone, Args)]
pub struct CommonOptions {
    /// The folder to measure in: what is written goes to a folder of its own below it
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub dir: PathBuf,
    /// Prints JSON with all samples
    #[arg(long)]
    pub json: bool,
    /// Writes a page with plots; of files that are there only a page is overwritten
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// How often each thing is measured: once, or an even number of rounds there and back (an odd one is made even); rows
    /// are compared from 16 on [default: 16; 4 for doctor, trace, memory and recovery]
    #[arg(long, value_name = "N", overrides_with = "runs")]
    pub runs: Option<usize>,
    /// Gives the order of runs and the contents of records
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Reads of files that are in memory, that are not, or both [io, trace: both; buffer: warm]
    #[arg(long, value_enum)]
    pub cache: Option<Cache>,
    /// Stops after this time and reports what is done: seconds, or 90s, 5m, 2h
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub max_time: Option<Duration>,
    /// Refuses to take more space than this: bytes, or 500M, 2G
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub max_space: Option<u64>,
    /// Refuses to take more memory than this [default: what is available, within the control group's limit]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub max_memory: Option<u64>,
    /// Begins when the machine is quiet: no stolen time, no other process at work, nobody waiting for a processor or storage;
    /// or when this time is over
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub wait_for_quiet: Option<Duration>,
}

/// Rounds of commands that compare rows, if nothing else is asked for.
pub const COMPARED: usize = LEAST_ROUNDS;
/// Rounds of commands whose rows stand for themselves.
pub const LOOKED: usize = 4;

impl CommonOptions {
    /// Refuses what no command can do anything with.
    pub(crate) fn check(&self) -> Result<()> {
        if self.runs == Some(0) {
            return Err(LabError::Invalid("--runs must be at least 1".into()));
        }
        if !PosixDisk::new().exists(&self.dir)? {
            let dir = self.dir.display();
            return Err(LabError::Invalid(format!("there is no folder {dir}: --dir takes one that is there")));
        }
        match &self.html {
            Some(page) => Ok(may_be_page(page)?),
            None => Ok(()),
        }
    }

    /// The same with a number of rounds: what was asked for, or `usual`. A round needs its way back, unless it is the only
    /// one.
    #[must_use]
    pub fn with_rounds(&self, usual: usize) -> CommonOptions {
        let asked = self.runs.unwrap_or(usual);
        let rounds = if asked == 1 { 1 } else { asked.next_multiple_of(2) };
        CommonOptions { runs: Some(rounds), ..self.clone() }
    }

    /// In which state of the page cache files are read, where nothing is said of it.
    #[must_use]
    pub fn cache(&self) -> Cache {
        self.cache.unwrap_or(Cache::Both)
    }

    /// Refuses --cache, for a command that reads no files.
    ///
    /// # Errors
    /// `Invalid`.
    pub fn without_cache(&self) -> Result<()> {
        match self.cache {
            None => Ok(()),
            Some(_) => Err(ignored("--cache", "it reads no files: io, buffer and trace do")),
        }
    }

    /// Rounds.
    #[must_use]
    pub fn rounds(&self) -> usize {
        self.runs.unwrap_or(COMPARED)
    }

    /// These options, and a command's own, for its report.
    #[must_use]
    pub fn options(&self, more: Value) -> Value {
        let mut options = json!({
            "dir": self.dir.display().to_string(),
            "runs": self.rounds(),
            "seed": self.seed,
            "cache": self.cache.map(Cache::name),
            "max_time_s": self.max_time.map(|t| t.as_secs_f64()),
            "max_space_bytes": self.max_space,
            "max_memory_bytes": self.max_memory,
            "wait_for_quiet_s": self.wait_for_quiet.map(|t| t.as_secs_f64()),
        });
        if let (Some(all), Value::Object(more)) = (options.as_object_mut(), more) {
            all.extend(more);
        }
        options
    }
}

/// In which state of the page cache files are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Cache {
    /// Synced, dropped, and seen to be out of memory.
    Cold,
    /// Read before.
    Warm,
    /// One after the other.
    Both,
}

impl Cache {
    /// As it is asked for.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Cache::Cold => "cold",
            Cache::Warm => "warm",
            Cache::Both => "both",
        }
    }

    /// The states that are meant.
    #[must_use]
    pub fn states(self) -> &'static [&'static str] {
        match self {
            Cache::Cold => &["cold"],
            Cache::Warm => &["warm"],
            Cache::Both => &["cold", "warm"],
        }
    }
}

/// An option that the command would take and do nothing with.
pub(crate) fn ignored(option: &str, why: &str) -> LabError {
    LabError::Invalid(format!("{option} does nothing here: {why}"))
}
