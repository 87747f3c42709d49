//! What `io` is asked for: its options, whether they go together, and what follows from them.

use super::clients::Clients;
use crate::buffer::record_bytes;
use crate::error::{LabError, Result};
use crate::options::{ignored, CommonOptions};
use crate::probe::raw::Advice;
use crate::records::{Records, Shape};
use crate::units::{count, size, size_text};
use crate::writers::{Target, Way, DIRECT_UNIT, WINDOW_BYTES};
use clap::{Args, ValueEnum};
use std::path::{Path, PathBuf};

/// A window is bounded by what a process can address of memory, whatever the file has.
const MOST_WINDOW: u64 = 1 << 40;

/// Options of the command.
#[derive(Debug, Clone, Args)]
pub struct Options {
    #[command(flatten)]
    pub(super) common: CommonOptions,
    /// How many records; several, with commas [default: as many as fit in two minutes, 10000000 at most]
    #[arg(long, value_name = "N", value_delimiter = ',', conflicts_with = "full", value_parser = count)]
    pub(super) records: Vec<u64>,
    /// From 10 million records, doubling, to 1280 million, as far as there is space: takes hours
    #[arg(long)]
    pub(super) full: bool,
    /// Bytes of a record
    #[arg(long, value_name = "BYTES", default_value_t = 103, value_parser = record_bytes)]
    pub(super) record_bytes: usize,
    /// Bytes of a buffer [default: 128K]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(super) buffer: Option<u64>,
    /// Buffers that 'direct' has under way at once [default: 4]
    #[arg(long, value_name = "N")]
    pub(super) depth: Option<usize>,
    /// Only these ways; several, with commas
    #[arg(long, value_enum, value_name = "WAY", value_delimiter = ',')]
    pub(super) ways: Vec<Way>,
    /// Writes over a file that is there, instead of a new one
    #[arg(long)]
    pub(super) existing: bool,
    /// Only writing, or only reading
    #[arg(long, value_enum)]
    pub(super) only: Option<Only>,
    /// Reads this file, in records of so many bytes, and writes nothing; it leaves the page cache only with --cache cold or both
    /// [default: files of its own]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["full", "existing"])]
    pub(super) file: Option<PathBuf>,
    /// Bytes that 'mapped' has in memory at once, any number [default: 64M]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(super) window: Option<u64>,
    /// What 'mapped' tells the kernel of its windows [default: nothing]
    #[arg(long, value_enum)]
    pub(super) madvise: Option<Advice>,
    /// So many at once, each on a file of its own; R:W has R read and W write at the same time
    #[arg(long, value_name = "N", default_value = "1")]
    pub(super) clients: Clients,
    /// All clients on one file, each in its part of it
    #[arg(long)]
    pub(super) one_file: bool,
    /// Lets the command have only so much memory, page cache included (a memory control group)
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(super) ram: Option<u64>,
}

/// Half of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Only {
    /// Writing
    Write,
    /// Reading
    Read,
}

impl Options {
    pub(crate) fn common(&self) -> &CommonOptions {
        &self.common
    }

    pub(super) fn check(&self) -> Result<()> {
        if self.records.contains(&0) {
            return Err(LabError::Invalid("--records must be at least 1".into()));
        }
        if self.buffer.is_some() && self.ways().iter().all(|way| matches!(way, Way::Plain | Way::Mapped)) {
            return Err(ignored("--buffer", "'plain' and 'mapped' have none"));
        }
        if self.buffer() == 0 || self.buffer() > 1 << 30 {
            return Err(LabError::Invalid("--buffer must be between 1 byte and 1G".into()));
        }
        if self.clients() == 0 || self.clients() > 512 || !(1..=1024).contains(&self.depth()) {
            return Err(LabError::Invalid("--clients must be between 1 and 512, --depth between 1 and 1024".into()));
        }
        if self.file.is_some() && (self.only == Some(Only::Write) || self.clients.mixed().is_some()) {
            return Err(LabError::Invalid("--file is only read: what is there already is never written".into()));
        }
        if self.clients.mixed().is_some() && (self.only.is_some() || self.one_file) {
            return Err(LabError::Invalid(
                "--clients R:W reads and writes, on files of their own: without --only, --one-file".into(),
            ));
        }
        if self.only == Some(Only::Read) && self.existing {
            return Err(ignored("--existing", "nothing is written (--only read)"));
        }
        if self.only == Some(Only::Write) && self.common.cache.is_some() {
            return Err(ignored("--cache", "nothing is read (--only write)"));
        }
        if !self.ways().contains(&Way::Mapped) && (self.window.is_some() || self.madvise.is_some()) {
            return Err(ignored("--window, --madvise", "they are of the way 'mapped'"));
        }
        if self.window_bytes() == 0 || self.window_bytes() as u64 > MOST_WINDOW {
            return Err(LabError::Invalid(format!("--window must be between 1 byte and {}", size_text(MOST_WINDOW))));
        }
        if self.depth.is_some() && !self.ways().contains(&Way::Direct) {
            return Err(ignored("--depth", "it is of the way 'direct'"));
        }
        if self.one_file && self.clients() == 1 {
            return Err(ignored("--one-file", "there is one client (--clients)"));
        }
        if self.ram.is_some_and(|ram| ram < 64 << 20) {
            return Err(LabError::Invalid("--ram must be at least 64M: the lab itself lives in it".into()));
        }
        Ok(())
    }

    /// All of them.
    pub(super) fn clients(&self) -> usize {
        self.clients.all()
    }

    pub(super) fn window_bytes(&self) -> usize {
        self.window.map_or(WINDOW_BYTES, |w| w as usize)
    }

    /// Are there files to be written?
    pub(super) fn writes(&self) -> bool {
        self.only != Some(Only::Read) && self.file.is_none()
    }

    /// In which states of the page cache files are read: of somebody's file, as it comes, unless it is asked for.
    pub(super) fn states(&self) -> &'static [&'static str] {
        match (self.only, self.common.cache) {
            (Some(Only::Write), _) => &[],
            (_, None) if self.file.is_some() => &["warm"],
            _ => self.common.cache().states(),
        }
    }

    /// All clients in one file, each in its part?
    pub(super) fn in_one(&self) -> bool {
        self.one_file || self.file.is_some()
    }

    /// Bytes beyond the records that the files take while they are mapped.
    pub(super) fn window_space(&self) -> u64 {
        let mapped = self.writes() && self.ways().contains(&Way::Mapped);
        if mapped {
            (self.window_bytes() as u64).saturating_mul(self.clients.writers() as u64)
        } else {
            0
        }
    }

    pub(super) fn buffer(&self) -> u64 {
        self.buffer.unwrap_or(128 << 10)
    }

    pub(super) fn depth(&self) -> usize {
        self.depth.unwrap_or(4)
    }

    /// Bytes of memory that the clients take at once at the most, with so many records: buffers, as far as there is something
    /// to fill them, and what records are cut from.
    pub(super) fn memory_bytes(&self, most_records: u64) -> u64 {
        let bytes = most_records.saturating_mul(self.record_bytes as u64).div_ceil(self.clients() as u64);
        let of = |way: &Way| {
            let buffers = match way {
                Way::Plain => 0,
                Way::Cached | Way::Esker => 1,
                Way::Background => 2,
                Way::Direct => 2 * self.depth() as u64 + 1,
                Way::Mapped => return 0,
            };
            let buffer = self.buffer().next_multiple_of(DIRECT_UNIT as u64);
            buffers.saturating_mul(buffer).min(bytes.saturating_add(2 * buffer))
        };
        let all = self.ways().iter().map(of).max().unwrap_or(0).saturating_mul(self.clients() as u64);
        all.saturating_add((4 << 20) + 2 * self.record_bytes as u64)
    }

    /// What is 100 percent, then the others.
    pub(super) fn ways(&self) -> Vec<Way> {
        Way::ALL.into_iter().filter(|w| self.ways.is_empty() || self.ways.contains(w)).collect()
    }

    pub(super) fn target(&self, path: &Path) -> Target {
        Target {
            depth: self.depth(),
            existing: self.existing,
            window_bytes: self.window_bytes(),
            advice: self.madvise,
            ..Target::new(path, self.buffer() as usize)
        }
    }

    pub(super) fn records(&self, count: u64) -> Records {
        Records::new(Shape::Static, self.record_bytes, count, self.common.seed)
    }
}
