//! Ways of writing records to a file. Each accepts a record at a time; [`Writer::finish`] hands everything to the
//! kernel and gives back the file. Nothing is synced here. Invariant: all leave the same bytes.

use crate::error::{LabError, Result};
use crate::theory::{Rule, Tally};
use esker_io::raw::{RawFile, RawOptions};
use esker_trace::{Account, Region};
use std::path::Path;
use std::sync::mpsc::{sync_channel, Receiver, SyncSender};
use std::thread::JoinHandle;

/// Bytes of a mapped window.
const WINDOW_BYTES: usize = 64 << 20;
/// What O_DIRECT wants buffers, offsets and lengths to be multiples of, at the most.
pub const DIRECT_UNIT: usize = 4096;

/// How records are written or read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// A system call a record.
    Plain,
    /// A buffer.
    Cached,
    /// Two buffers and a thread: one is written (or read ahead) while the other is filled (or used).
    Background,
    /// The file mapped into memory, window by window.
    Mapped,
    /// A buffer, past the page cache.
    Direct,
}

impl Way {
    /// All of them.
    pub const ALL: [Way; 5] = [Way::Plain, Way::Cached, Way::Background, Way::Mapped, Way::Direct];

    /// As it is printed.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Way::Plain => "plain",
            Way::Cached => "cached",
            Way::Background => "background",
            Way::Mapped => "mapped",
            Way::Direct => "direct",
        }
    }
}

/// Takes records.
pub trait Writer {
    /// Accepts a record.
    ///
    /// # Errors
    /// What the operating system says.
    fn put(&mut self, record: &[u8]) -> Result<()>;

    /// Hands what is left to the kernel. The file, and what was written.
    ///
    /// # Errors
    /// What the operating system says.
    fn finish(self: Box<Self>) -> Result<(RawFile, Tally)>;
}

/// A writer on the file `path`, which is made, or, with `existing`, written over from its start.
///
/// # Errors
/// What the operating system says; `Unsupported` where O_DIRECT is refused.
pub fn open(way: Way, path: &Path, buffer_bytes: usize, existing: bool) -> Result<Box<dyn Writer>> {
    let options = RawOptions { create: !existing, write: true, ..RawOptions::default() };
    if way == Way::Direct {
        return Ok(Box::new(Direct::open(path, options, buffer_bytes)?));
    }
    let file = RawFile::open(path, options)?;
    Ok(match way {
        Way::Plain => Box::new(Plain { file, tally: Tally::default() }),
        Way::Background => Box::new(Background::start(file, buffer_bytes)?),
        Way::Mapped => Box::new(Mapped { file, window: None, filled: 0, tally: Tally::default() }),
        _ => Box::new(Cached::new(file, 0, buffer_bytes, Rule::Fill)?),
    })
}

struct Plain {
    file: RawFile,
    tally: Tally,
}

impl Writer for Plain {
    fn put(&mut self, record: &[u8]) -> Result<()> {
        self.file.write_at(record, self.tally.bytes)?;
        self.tally.bytes += record.len() as u64;
        self.tally.direct += 1;
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<(RawFile, Tally)> {
        Ok((self.file, self.tally))
    }
}

/// A buffer, written by a [`Rule`].
pub struct Cached {
    file: RawFile,
    rule: Rule,
    buffer_bytes: usize,
    buffer: Region,
    /// What this buffer takes.
    room: usize,
    filled: usize,
    /// Where it begins in the file.
    position: u64,
    tally: Tally,
}

impl Cached {
    /// Appends to a file of `start` bytes.
    ///
    /// # Errors
    /// When there is no memory for the buffer.
    pub fn new(file: RawFile, start: u64, buffer_bytes: usize, rule: Rule) -> Result<Cached> {
        let bytes = buffer_bytes.max(rule.least_buffer());
        let buffer = region(bytes)?;
        let room = rule.room(buffer_bytes, start);
        Ok(Cached { file, rule, buffer_bytes, buffer, room, filled: 0, position: start, tally: Tally::default() })
    }

    #[cold]
    fn overflow(&mut self, mut record: &[u8]) -> Result<()> {
        loop {
            let fits = self.room - self.filled;
            let full = record.len() > fits || (record.len() == fits && !matches!(self.rule, Rule::MyIsam(_)));
            if !full || record.is_empty() {
                self.buffer[self.filled..][..record.len()].copy_from_slice(record);
                self.filled += record.len();
                return Ok(());
            }
            let (now, rest) = record.split_at(fits);
            self.buffer[self.filled..self.room].copy_from_slice(now);
            record = rest;
            self.file.write_at(&self.buffer[..self.room], self.position)?;
            self.position += self.room as u64;
            self.tally.overflows += 1;
            self.filled = 0;
            if let Rule::MyIsam(unit) = self.rule {
                let (whole, rest) = record.split_at(record.len() / unit * unit);
                record = rest;
                if !whole.is_empty() {
                    self.file.write_at(whole, self.position)?;
                    self.position += whole.len() as u64;
                    self.tally.direct += 1;
                }
            }
            self.room = self.rule.room(self.buffer_bytes, self.position);
        }
    }
}

impl Writer for Cached {
    #[inline]
    fn put(&mut self, record: &[u8]) -> Result<()> {
        self.tally.bytes += record.len() as u64;
        if record.len() < self.room - self.filled {
            self.buffer[self.filled..][..record.len()].copy_from_slice(record);
            self.filled += record.len();
            return Ok(());
        }
        self.overflow(record)
    }

    fn finish(mut self: Box<Self>) -> Result<(RawFile, Tally)> {
        if self.filled > 0 {
            self.file.write_at(&self.buffer[..self.filled], self.position)?;
            self.tally.last = 1;
        }
        Ok((self.file, self.tally))
    }
}

/// A full buffer and where it goes.
type Job = (Region, usize, u64);

struct Background {
    buffer: Region,
    filled: usize,
    position: u64,
    jobs: SyncSender<Job>,
    empty: Receiver<Region>,
    worker: JoinHandle<Result<RawFile>>,
    tally: Tally,
}

impl Background {
    fn start(file: RawFile, buffer_bytes: usize) -> Result<Background> {
        let (jobs, inbox) = sync_channel::<Job>(1);
        let (give_back, empty) = sync_channel::<Region>(2);
        let _ = give_back.send(region(buffer_bytes)?);
        let work = move || {
            for (buffer, bytes, offset) in inbox {
                file.write_at(&buffer[..bytes], offset)?;
                let _ = give_back.send(buffer);
            }
            Ok(file)
        };
        let thread = std::thread::Builder::new().name("lab-writer".into()).spawn(work);
        let worker = thread.map_err(|e| LabError::Unsupported(format!("no thread: {e}")))?;
        let (buffer, tally) = (region(buffer_bytes)?, Tally::default());
        Ok(Background { buffer, filled: 0, position: 0, jobs, empty, worker, tally })
    }

    fn hand_on(&mut self) -> Result<()> {
        // Whatever ends the worker shows when it is joined.
        let Ok(next) = self.empty.recv() else { return Ok(()) };
        let full = std::mem::replace(&mut self.buffer, next);
        let _ = self.jobs.send((full, self.filled, self.position));
        self.position += self.filled as u64;
        self.filled = 0;
        Ok(())
    }
}

impl Writer for Background {
    fn put(&mut self, mut record: &[u8]) -> Result<()> {
        self.tally.bytes += record.len() as u64;
        while fill(&mut self.buffer, &mut self.filled, &mut record) {
            self.hand_on()?;
            self.tally.overflows += 1;
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<(RawFile, Tally)> {
        if self.filled > 0 {
            self.hand_on()?;
            self.tally.last = 1;
        }
        let Background { jobs, worker, tally, .. } = *self;
        drop(jobs);
        let file = worker.join().map_err(|_| LabError::Unsupported("the writing thread ended".into()))??;
        Ok((file, tally))
    }
}

struct Mapped {
    file: RawFile,
    window: Option<esker_io::raw::Mapped>,
    filled: usize,
    tally: Tally,
}

impl Writer for Mapped {
    fn put(&mut self, mut record: &[u8]) -> Result<()> {
        while !record.is_empty() {
            let window = match &mut self.window {
                Some(window) if self.filled < WINDOW_BYTES => window,
                _ => {
                    self.window = None;
                    let start = self.tally.bytes;
                    if self.file.size_bytes()? < start + WINDOW_BYTES as u64 {
                        self.file.set_size(start + WINDOW_BYTES as u64)?;
                    }
                    self.filled = 0;
                    self.tally.overflows += u64::from(start > 0);
                    self.window.insert(self.file.map(start, WINDOW_BYTES, true)?)
                }
            };
            let n = record.len().min(WINDOW_BYTES - self.filled);
            window[self.filled..][..n].copy_from_slice(&record[..n]);
            self.filled += n;
            self.tally.bytes += n as u64;
            record = &record[n..];
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<(RawFile, Tally)> {
        self.window = None;
        self.file.set_size(self.tally.bytes)?;
        self.tally.last = u64::from(self.filled > 0);
        Ok((self.file, self.tally))
    }
}

struct Direct {
    file: RawFile,
    buffer: Region,
    filled: usize,
    position: u64,
    tally: Tally,
}

impl Direct {
    fn open(path: &Path, options: RawOptions, buffer_bytes: usize) -> Result<Direct> {
        let file = RawFile::open(path, RawOptions { direct: true, ..options })
            .map_err(|e| LabError::Unsupported(format!("O_DIRECT: {e}")))?;
        let buffer = region(buffer_bytes.next_multiple_of(DIRECT_UNIT))?;
        Ok(Direct { file, buffer, filled: 0, position: 0, tally: Tally::default() })
    }

    fn write(&mut self, bytes: usize) -> Result<()> {
        self.file.write_at(&self.buffer[..bytes], self.position)?;
        self.position += bytes as u64;
        self.filled = 0;
        Ok(())
    }
}

impl Writer for Direct {
    fn put(&mut self, mut record: &[u8]) -> Result<()> {
        self.tally.bytes += record.len() as u64;
        while fill(&mut self.buffer, &mut self.filled, &mut record) {
            self.write(self.buffer.len())?;
            self.tally.overflows += 1;
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<(RawFile, Tally)> {
        if self.filled > 0 {
            let padded = self.filled.next_multiple_of(DIRECT_UNIT);
            let filled = self.filled;
            self.buffer[filled..padded].fill(0);
            self.write(padded)?;
            self.file.set_size(self.tally.bytes)?;
            self.tally.last = 1;
        }
        Ok((self.file, self.tally))
    }
}

/// Moves as much of `record` as fits behind what the buffer holds; true: the buffer is full.
fn fill(buffer: &mut Region, filled: &mut usize, record: &mut &[u8]) -> bool {
    let (now, rest) = record.split_at(record.len().min(buffer.len() - *filled));
    buffer[*filled..][..now.len()].copy_from_slice(now);
    *filled += now.len();
    *record = rest;
    *filled == buffer.len()
}

/// A page-aligned buffer.
pub(crate) fn region(bytes: usize) -> Result<Region> {
    Ok(Region::zeroed(Account::Other, bytes.max(1)).map_err(esker_io::IoError::from)?)
}
