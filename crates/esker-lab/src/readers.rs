//! Ways of reading records from a file, the counterparts of the writers. The caller says how long the next record is.

use crate::error::{LabError, Result};
use crate::flow::Flow;
use crate::probe::raw::{Mapped, RawFile, RawOptions};
use crate::theory::Rule;
use crate::writers::engine::DEPTH;
use crate::writers::{region, Target, Way};
use esker_io::{AccessHint, Disk, File, IoKind, OpenMode, PosixDisk};
use esker_memory::Region;
use std::sync::Arc;

/// Gives records.
pub trait Reader: Send {
    /// The next `length` bytes of the file, copied into `record`, which is so long.
    ///
    /// # Errors
    /// What the operating system says; `Invalid` when the file ends before.
    fn take(&mut self, record: &mut [u8]) -> Result<()>;

    /// Read calls so far.
    fn calls(&self) -> u64;
}

/// A reader.
///
/// # Errors
/// What the operating system says; `Unsupported` where O_DIRECT is refused.
pub fn open(way: Way, target: &Target) -> Result<Box<dyn Reader>> {
    if way == Way::Esker {
        return Ok(Box::new(Engine::open(target)?));
    }
    let direct = way == Way::Direct;
    let file = match RawFile::open(&target.path, RawOptions { direct, ..RawOptions::default() }) {
        Err(e) if direct && e.kind == IoKind::Failed => return Err(LabError::Unsupported(format!("O_DIRECT: {e}"))),
        opened => Arc::new(opened?),
    };
    let position = target.start;
    Ok(match way {
        Way::Plain => Box::new(Plain { file, position }),
        Way::Cached => Box::new(Buffered::new(file, position, target.buffer_bytes, Rule::Fill)?),
        Way::Mapped => {
            let (size, target) = (file.size_bytes()?, target.clone());
            Box::new(Windows { size, file, target, window: None, position })
        }
        Way::Background | Way::Direct | Way::Esker => Box::new(Ahead::start(&file, target, direct)?),
    })
}

/// Moves as much of what the buffer has left as `record` still wants; true: it has all.
fn give(filled: &[u8], given: &mut usize, record: &mut [u8], done: &mut usize) -> bool {
    let n = (record.len() - *done).min(filled.len() - *given);
    record[*done..*done + n].copy_from_slice(&filled[*given..][..n]);
    (*done, *given) = (*done + n, *given + n);
    *done == record.len()
}

fn too_short() -> LabError {
    LabError::Invalid("the file is shorter than its records".into())
}

/// The engine's file layer, as it reads its runs, a buffer a call.
struct Engine {
    file: Arc<dyn File>,
    buffer: Region,
    filled: usize,
    given: usize,
    position: u64,
    size: u64,
    calls: u64,
}

impl Engine {
    fn open(target: &Target) -> Result<Engine> {
        let file = PosixDisk::with_uring(DEPTH).open(&target.path, OpenMode::Read, AccessHint::Blocks)?;
        let (size, position) = (file.size_bytes()?.min(target.end), target.start);
        Ok(Engine { file, buffer: region(target.buffer_bytes)?, filled: 0, given: 0, position, size, calls: 0 })
    }
}

impl Reader for Engine {
    fn take(&mut self, record: &mut [u8]) -> Result<()> {
        let mut done = 0;
        while !give(&self.buffer[..self.filled], &mut self.given, record, &mut done) {
            let bytes = self.size.saturating_sub(self.position).min(self.buffer.len() as u64) as usize;
            if bytes == 0 {
                return Err(too_short());
            }
            self.file.read_at(&mut self.buffer[..bytes], self.position)?;
            (self.filled, self.given) = (bytes, 0);
            self.position += bytes as u64;
            self.calls += 1;
        }
        Ok(())
    }

    fn calls(&self) -> u64 {
        self.calls
    }
}

struct Plain {
    file: Arc<RawFile>,
    position: u64,
}

impl Reader for Plain {
    fn take(&mut self, record: &mut [u8]) -> Result<()> {
        if self.file.read_at(record, self.position)? < record.len() {
            return Err(too_short());
        }
        self.position += record.len() as u64;
        Ok(())
    }

    fn calls(&self) -> u64 {
        self.file.reads()
    }
}

/// A buffer, filled by a [`Rule`].
pub struct Buffered {
    file: Arc<RawFile>,
    rule: Rule,
    buffer_bytes: usize,
    buffer: Region,
    /// What is in the buffer, and how much of it was given out.
    filled: usize,
    given: usize,
    /// Where the next read begins, and where the file ends.
    position: u64,
    size: u64,
}

impl Buffered {
    /// Reads the file from `position` on.
    ///
    /// # Errors
    /// What the operating system says; no memory for the buffer.
    pub fn new(file: Arc<RawFile>, position: u64, buffer_bytes: usize, rule: Rule) -> Result<Buffered> {
        let (size, buffer) = (file.size_bytes()?, region(buffer_bytes.max(rule.least_buffer()))?);
        Ok(Buffered { file, rule, buffer_bytes, buffer, filled: 0, given: 0, position, size })
    }

    /// What `done` bytes of the record do not yet have: straight from the file, or by filling the buffer.
    #[cold]
    fn refill(&mut self, record: &mut [u8], done: &mut usize) -> Result<()> {
        let straight = self.rule.straight(self.buffer_bytes, self.position, record.len() - *done);
        let room = self.rule.room(self.buffer_bytes, self.position) as u64;
        let wanted = if straight > 0 { straight } else { room.min(self.size.saturating_sub(self.position)) as usize };
        let into = if straight > 0 { &mut record[*done..][..wanted] } else { &mut self.buffer[..wanted] };
        let n = self.file.read_at(into, self.position)?;
        if n < wanted || n == 0 {
            return Err(too_short());
        }
        self.position += n as u64;
        if straight > 0 {
            *done += n;
        } else {
            (self.filled, self.given) = (n, 0);
        }
        Ok(())
    }
}

impl Reader for Buffered {
    fn take(&mut self, record: &mut [u8]) -> Result<()> {
        let mut done = 0;
        while !give(&self.buffer[..self.filled], &mut self.given, record, &mut done) {
            self.refill(record, &mut done)?;
        }
        Ok(())
    }

    fn calls(&self) -> u64 {
        self.file.reads()
    }
}

struct Windows {
    file: Arc<RawFile>,
    size: u64,
    /// Where its first window begins, and how windows are.
    target: Target,
    window: Option<Mapped>,
    position: u64,
}

impl Reader for Windows {
    fn take(&mut self, record: &mut [u8]) -> Result<()> {
        let (mut done, bytes) = (0, self.target.window_bytes as u64);
        while done < record.len() {
            let at = ((self.position - self.target.start) % bytes) as usize;
            let window = match &self.window {
                Some(window) if at > 0 => window,
                _ => {
                    self.window = None;
                    let length = (self.size - self.position).min(bytes) as usize;
                    if length == 0 {
                        return Err(too_short());
                    }
                    self.window.insert(self.target.map(&self.file, self.position, length, false)?)
                }
            };
            let n = (record.len() - done).min(window.len() - at);
            if n == 0 {
                return Err(too_short());
            }
            record[done..done + n].copy_from_slice(&window[at..at + n]);
            done += n;
            self.position += n as u64;
        }
        Ok(())
    }

    fn calls(&self) -> u64 {
        0
    }
}

/// Uses a buffer while the next ones are on their way.
struct Ahead {
    flow: Flow,
    depth: usize,
    /// Twice as many buffers as may be unfinished: when several are read at once, the device gets as many to do at once.
    spare: Vec<Region>,
    current: Region,
    filled: usize,
    given: usize,
    /// Where the next read begins, and where it is enough.
    position: u64,
    size: u64,
    calls: u64,
}

impl Ahead {
    fn start(file: &Arc<RawFile>, target: &Target, direct: bool) -> Result<Ahead> {
        let (bytes, depth) = target.queue(direct);
        let (flow, size, position) = (Flow::start(file, depth)?, file.size_bytes()?.min(target.end), target.start);
        // What there is nothing to fill with is not made.
        let parts = size.saturating_sub(position).div_ceil(bytes as u64).max(1);
        let buffers = if direct { 2 * depth } else { depth }.min(parts as usize);
        let spare = (0..buffers).map(|_| region(bytes)).collect::<Result<_>>()?;
        let current = region(bytes)?;
        // The first read is sent when the first record is wanted: none is under way before the clock starts.
        Ok(Ahead { flow, depth, spare, current, filled: 0, given: 0, position, size, calls: 0 })
    }

    /// Has the next parts of the file read, if there are any.
    fn send(&mut self) -> Result<()> {
        while self.position < self.size && self.flow.unfinished() < self.depth {
            let Some(buffer) = self.spare.pop() else { break };
            let bytes = buffer.len();
            self.flow.read(buffer, bytes, self.position)?;
            self.position += bytes as u64;
            self.calls += 1;
        }
        Ok(())
    }

    #[cold]
    fn refill(&mut self) -> Result<()> {
        if self.flow.under_way() == 0 {
            self.send()?;
        }
        if self.flow.under_way() == 0 {
            return Err(too_short());
        }
        let (next, filled) = self.flow.oldest()?;
        self.spare.push(std::mem::replace(&mut self.current, next));
        self.send()?;
        (self.filled, self.given) = (filled, 0);
        if filled == 0 {
            return Err(too_short());
        }
        Ok(())
    }
}

impl Reader for Ahead {
    fn take(&mut self, record: &mut [u8]) -> Result<()> {
        let mut done = 0;
        while !give(&self.current[..self.filled], &mut self.given, record, &mut done) {
            self.refill()?;
        }
        Ok(())
    }

    fn calls(&self) -> u64 {
        self.calls
    }
}
