//! Ways of writing records to a file. Each accepts a record at a time; [`Writer::finish`] hands everything to the
//! kernel and gives back the file. Nothing is synced here. Invariant: all leave the same bytes.

pub(crate) mod engine;

use crate::error::{LabError, Result};
use crate::flow::Flow;
use crate::probe::raw::{self, Advice, RawFile, RawOptions};
use crate::theory::{Rule, Tally};
use esker_io::IoKind;
use esker_memory::{Account, Region};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes of a mapped window.
pub(crate) const WINDOW_BYTES: usize = 64 << 20;
/// What O_DIRECT wants buffers, offsets and lengths to be multiples of, at the most.
pub const DIRECT_UNIT: usize = 4096;

/// How records are written or read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Way {
    /// A system call a record.
    Plain,
    /// A buffer.
    Cached,
    /// Two buffers: one is written (or read ahead) by io_uring or a thread while the other is filled (or used).
    Background,
    /// The file mapped into memory, window by window.
    Mapped,
    /// Past the page cache, some buffers under way at once.
    Direct,
    /// The engine's own writer and file layer, set as a server sets them.
    Esker,
}

impl Way {
    /// All of them.
    pub const ALL: [Way; 6] = [Way::Plain, Way::Cached, Way::Background, Way::Mapped, Way::Direct, Way::Esker];

    /// As it is printed.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Way::Plain => "plain",
            Way::Cached => "cached",
            Way::Background => "background",
            Way::Mapped => "mapped",
            Way::Direct => "direct",
            Way::Esker => "esker",
        }
    }
}

/// Where records go to or come from.
#[derive(Debug, Clone)]
pub struct Target {
    /// The file.
    pub path: PathBuf,
    /// Bytes of a buffer.
    pub buffer_bytes: usize,
    /// Buffers under way at once, with `direct`.
    pub depth: usize,
    /// Written over as it is; otherwise made, or emptied.
    pub existing: bool,
    /// Where in the file the records begin, in bytes: a multiple of [`DIRECT_UNIT`] for `direct`.
    pub start: u64,
    /// Where the records end, in bytes, if that is known: no reader need read on, no writer needs buffers for more.
    pub end: u64,
    /// Others write other parts of the file at the same time: who began them sees to its size.
    pub shared: bool,
    /// Bytes of a mapped window, and what the kernel is told of it.
    pub window_bytes: usize,
    /// See there.
    pub advice: Option<Advice>,
}

impl Target {
    /// A file of its own, from its start.
    #[must_use]
    pub fn new(path: &Path, buffer_bytes: usize) -> Target {
        Target {
            path: path.to_owned(),
            buffer_bytes,
            depth: 4,
            existing: false,
            start: 0,
            end: u64::MAX,
            shared: false,
            window_bytes: WINDOW_BYTES,
            advice: None,
        }
    }

    /// A window of the file at `position`, and the kernel told what there is to tell.
    ///
    /// # Errors
    /// What the operating system says; `Unsupported` where it does not take the advice.
    pub(crate) fn map(&self, file: &RawFile, position: u64, length: usize, write: bool) -> Result<raw::Mapped> {
        let window = file.map(position, length, write)?;
        if let Some(advice) = self.advice {
            let refused = |e| LabError::Unsupported(format!("madvise {advice:?}: {e}").to_lowercase());
            window.advise(advice).map_err(refused)?;
        }
        Ok(window)
    }

    /// Bytes of a buffer and how many of them are under way at once, for `direct` or `background`.
    pub(crate) fn queue(&self, direct: bool) -> (usize, usize) {
        match direct {
            true => (self.buffer_bytes.next_multiple_of(DIRECT_UNIT), self.depth.max(1)),
            false => (self.buffer_bytes, 1),
        }
    }
}

/// Takes records.
pub trait Writer: Send {
    /// Accepts a record.
    ///
    /// # Errors
    /// What the operating system says.
    fn put(&mut self, record: &[u8]) -> Result<()>;

    /// Hands what is left to the kernel, once, at the end. The file, and what was written. Buffers go with the writer.
    ///
    /// # Errors
    /// What the operating system says.
    fn finish(&mut self) -> Result<(Arc<RawFile>, Tally)>;
}

/// A writer.
///
/// # Errors
/// What the operating system says; `Unsupported` where O_DIRECT is refused.
pub fn open(way: Way, target: &Target) -> Result<Box<dyn Writer>> {
    if way == Way::Esker {
        return Ok(Box::new(engine::Engine::create(target)?));
    }
    let direct = way == Way::Direct;
    let options = RawOptions { create: !target.existing, write: true, direct, ..RawOptions::default() };
    let file = match RawFile::open(&target.path, options) {
        Err(e) if direct && e.kind == IoKind::Failed => return Err(LabError::Unsupported(format!("O_DIRECT: {e}"))),
        opened => Arc::new(opened?),
    };
    let (buffer_bytes, position) = (target.buffer_bytes, target.start);
    Ok(match way {
        Way::Plain => Box::new(Plain { file, position, tally: Tally::default() }),
        Way::Cached => Box::new(Cached::new(file, position, buffer_bytes, Rule::Fill)?),
        Way::Mapped => {
            let target = target.clone();
            Box::new(Mapped { file, target, position, window: None, filled: 0, tally: Tally::default() })
        }
        Way::Background | Way::Direct | Way::Esker => Box::new(Queued::start(file, target, direct)?),
    })
}

struct Plain {
    file: Arc<RawFile>,
    position: u64,
    tally: Tally,
}

impl Writer for Plain {
    fn put(&mut self, record: &[u8]) -> Result<()> {
        self.file.write_at(record, self.position)?;
        self.position += record.len() as u64;
        self.tally.bytes += record.len() as u64;
        self.tally.direct += 1;
        Ok(())
    }

    fn finish(&mut self) -> Result<(Arc<RawFile>, Tally)> {
        Ok((self.file.clone(), self.tally))
    }
}

/// A buffer, written by a [`Rule`].
pub struct Cached {
    file: Arc<RawFile>,
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
    pub fn new(file: Arc<RawFile>, start: u64, buffer_bytes: usize, rule: Rule) -> Result<Cached> {
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
            record = rest;
            if self.filled == 0 {
                // What fills an empty buffer by itself needs no copy.
                self.file.write_at(now, self.position)?;
            } else {
                self.buffer[self.filled..self.room].copy_from_slice(now);
                self.file.write_at(&self.buffer[..self.room], self.position)?;
            }
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

    fn finish(&mut self) -> Result<(Arc<RawFile>, Tally)> {
        if self.filled > 0 {
            self.file.write_at(&self.buffer[..self.filled], self.position)?;
            self.tally.last = 1;
        }
        Ok((self.file.clone(), self.tally))
    }
}

/// Fills a buffer while others are on their way to the file.
struct Queued {
    flow: Flow,
    file: Arc<RawFile>,
    direct: bool,
    shared: bool,
    buffer: Region,
    /// Buffers that have not been used yet: all are made before the first record comes.
    spare: Vec<Region>,
    filled: usize,
    position: u64,
    /// So long the file has been made ahead: a file system lets no others write while a direct write makes a file longer.
    ahead: u64,
    tally: Tally,
}

impl Queued {
    fn start(file: Arc<RawFile>, target: &Target, direct: bool) -> Result<Queued> {
        let (bytes, depth) = target.queue(direct);
        let (flow, buffer) = (Flow::start(&file, depth)?, region(bytes)?);
        let (shared, position) = (target.shared, target.start);
        let ahead = if direct && !shared { file.size_bytes()? } else { u64::MAX };
        // What there is nothing to fill with is not made.
        let parts = target.end.saturating_sub(position).div_ceil(bytes as u64).max(1);
        let spare = (0..parts.min(depth as u64)).map(|_| region(bytes)).collect::<Result<_>>()?;
        let tally = Tally::default();
        Ok(Queued { flow, file, direct, shared, buffer, spare, filled: 0, position, ahead, tally })
    }

    fn hand_on(&mut self, bytes: usize) -> Result<()> {
        let next = match self.spare.pop() {
            Some(unused) => unused,
            None => self.flow.oldest()?.0,
        };
        let full = std::mem::replace(&mut self.buffer, next);
        let end = self.position + bytes as u64;
        if end > self.ahead {
            self.ahead = end + WINDOW_BYTES as u64;
            self.file.set_size(self.ahead)?;
        }
        self.flow.write(full, bytes, self.position)?;
        self.position = end;
        self.filled = 0;
        Ok(())
    }
}

impl Writer for Queued {
    fn put(&mut self, mut record: &[u8]) -> Result<()> {
        self.tally.bytes += record.len() as u64;
        while fill(&mut self.buffer, &mut self.filled, &mut record) {
            self.hand_on(self.buffer.len())?;
            self.tally.overflows += 1;
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(Arc<RawFile>, Tally)> {
        let end = self.position + self.filled as u64;
        if self.filled > 0 {
            let unit = if self.direct { DIRECT_UNIT } else { 1 };
            let (filled, padded) = (self.filled, self.filled.next_multiple_of(unit));
            self.buffer[filled..padded].fill(0);
            self.hand_on(padded)?;
            self.tally.last = 1;
        }
        while self.flow.under_way() > 0 {
            self.flow.oldest()?;
        }
        if self.direct && !self.shared {
            self.file.set_size(end)?;
        }
        Ok((self.file.clone(), self.tally))
    }
}

struct Mapped {
    file: Arc<RawFile>,
    target: Target,
    position: u64,
    window: Option<raw::Mapped>,
    filled: usize,
    tally: Tally,
}

impl Writer for Mapped {
    fn put(&mut self, mut record: &[u8]) -> Result<()> {
        let bytes = self.target.window_bytes;
        while !record.is_empty() {
            let window = match &mut self.window {
                Some(window) if self.filled < bytes => window,
                _ => {
                    self.window = None;
                    let end = self.position + bytes as u64;
                    // Who shares the file must not make it shorter for others; it is long enough.
                    if !self.target.shared && self.file.size_bytes()? < end {
                        lengthen(&self.file, end)?;
                    }
                    self.filled = 0;
                    self.tally.overflows += u64::from(self.tally.bytes > 0);
                    self.window.insert(self.target.map(&self.file, self.position, bytes, true)?)
                }
            };
            let n = record.len().min(bytes - self.filled);
            window[self.filled..][..n].copy_from_slice(&record[..n]);
            self.filled += n;
            self.position += n as u64;
            self.tally.bytes += n as u64;
            record = &record[n..];
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(Arc<RawFile>, Tally)> {
        self.window = None;
        if !self.target.shared {
            self.file.set_size(self.position)?;
        }
        self.tally.last = u64::from(self.filled > 0);
        Ok((self.file.clone(), self.tally))
    }
}

/// Makes a file so long, with space for all of it: a mapping of what there is no space for ends the process.
pub(crate) fn lengthen(file: &RawFile, bytes: u64) -> Result<()> {
    match file.allocate(bytes, false) {
        Err(e) if e.kind == IoKind::DiskFull => Err(e.into()),
        // A file system that cannot reserve space.
        Err(_) => Ok(file.set_size(bytes)?),
        Ok(()) => Ok(()),
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use esker_io::{Disk, PosixDisk};

    #[test]
    fn all_buffers_are_there_before_the_first_record_and_no_more_than_it_takes() {
        let path = std::env::temp_dir().join(format!("esker-lab-queued-{}", std::process::id()));
        for (end, spare) in [(u64::MAX, 3), (100 * 4096, 3), (4097, 2), (4096, 1), (0, 1)] {
            let file = RawFile::open(&path, RawOptions { create: true, ..RawOptions::default() }).unwrap();
            let target = Target { depth: 3, end, ..Target::new(&path, 4096) };
            let mut queued = Queued::start(Arc::new(file), &target, true).unwrap();
            assert_eq!(queued.spare.len(), spare, "{end}");
            // However many come, they are the same ones.
            let mut places = std::collections::BTreeSet::new();
            for _ in 0..20 {
                places.insert(queued.buffer.base());
                queued.put(&[7; 4096]).unwrap();
            }
            assert_eq!(places.len(), spare + 1, "{end}");
            queued.finish().unwrap();
        }
        PosixDisk::new().remove(&path).unwrap();
    }
}
