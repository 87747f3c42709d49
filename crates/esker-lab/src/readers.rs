//! Ways of reading records from a file, the counterparts of the writers. The caller says how long the next record is.

use crate::error::{LabError, Result};
use crate::writers::{region, Way, DIRECT_UNIT};
use esker_io::raw::{Mapped, RawFile, RawOptions};
use esker_trace::Region;
use std::path::Path;
use std::sync::mpsc::{sync_channel, Receiver, SyncSender};
use std::thread::JoinHandle;

/// Bytes of a mapped window.
const WINDOW_BYTES: usize = 64 << 20;

/// Gives records.
pub trait Reader {
    /// The next `length` bytes of the file, copied into `record`, which is so long.
    ///
    /// # Errors
    /// What the operating system says; `Invalid` when the file ends before.
    fn take(&mut self, record: &mut [u8]) -> Result<()>;

    /// Read calls so far.
    fn calls(&self) -> u64;
}

/// A reader of `path`.
///
/// # Errors
/// What the operating system says; `Unsupported` where O_DIRECT is refused.
pub fn open(way: Way, path: &Path, buffer_bytes: usize) -> Result<Box<dyn Reader>> {
    let direct = way == Way::Direct;
    let opened = RawFile::open(path, RawOptions { direct, ..RawOptions::default() });
    let file = match opened {
        Err(e) if direct => return Err(LabError::Unsupported(format!("O_DIRECT: {e}"))),
        opened => opened?,
    };
    Ok(match way {
        Way::Plain => Box::new(Plain { file, position: 0 }),
        Way::Mapped => Box::new(Windows { size: file.size_bytes()?, file, window: None, position: 0 }),
        Way::Background => Box::new(Ahead::start(file, buffer_bytes)?),
        Way::Cached => Box::new(Buffered::new(file, buffer_bytes)?),
        Way::Direct => Box::new(Buffered::new(file, buffer_bytes.next_multiple_of(DIRECT_UNIT))?),
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

struct Plain {
    file: RawFile,
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

struct Buffered {
    file: RawFile,
    buffer: Region,
    /// What is in the buffer, and how much of it was given out.
    filled: usize,
    given: usize,
    position: u64,
}

impl Buffered {
    fn new(file: RawFile, buffer_bytes: usize) -> Result<Buffered> {
        Ok(Buffered { file, buffer: region(buffer_bytes)?, filled: 0, given: 0, position: 0 })
    }

    #[cold]
    fn refill(&mut self) -> Result<()> {
        self.filled = self.file.read_at(&mut self.buffer, self.position)?;
        self.given = 0;
        self.position += self.filled as u64;
        if self.filled == 0 {
            return Err(too_short());
        }
        Ok(())
    }
}

impl Reader for Buffered {
    fn take(&mut self, record: &mut [u8]) -> Result<()> {
        let mut done = 0;
        while !give(&self.buffer[..self.filled], &mut self.given, record, &mut done) {
            self.refill()?;
        }
        Ok(())
    }

    fn calls(&self) -> u64 {
        self.file.reads()
    }
}

struct Windows {
    file: RawFile,
    size: u64,
    window: Option<Mapped>,
    position: u64,
}

impl Reader for Windows {
    fn take(&mut self, record: &mut [u8]) -> Result<()> {
        let mut done = 0;
        while done < record.len() {
            let at = (self.position % WINDOW_BYTES as u64) as usize;
            let window = match &self.window {
                Some(window) if at > 0 => window,
                _ => {
                    self.window = None;
                    let length = (self.size - self.position).min(WINDOW_BYTES as u64) as usize;
                    if length == 0 {
                        return Err(too_short());
                    }
                    self.window.insert(self.file.map(self.position, length, false)?)
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

struct Ahead {
    current: Region,
    filled: usize,
    given: usize,
    full: Receiver<(Region, usize, u64)>,
    give_back: Option<SyncSender<Region>>,
    worker: Option<JoinHandle<Result<()>>>,
    calls: u64,
}

impl Ahead {
    fn start(file: RawFile, buffer_bytes: usize) -> Result<Ahead> {
        let (send, full) = sync_channel::<(Region, usize, u64)>(1);
        let (give_back, empty) = sync_channel::<Region>(2);
        let _ = give_back.send(region(buffer_bytes)?);
        let work = move || {
            let mut position = 0;
            for mut buffer in empty {
                let n = file.read_at(&mut buffer, position)?;
                position += n as u64;
                if send.send((buffer, n, file.reads())).is_err() || n == 0 {
                    break;
                }
            }
            Ok(())
        };
        let thread = std::thread::Builder::new().name("lab-reader".into()).spawn(work);
        let worker = thread.map_err(|e| LabError::Unsupported(format!("no thread: {e}")))?;
        let current = region(buffer_bytes)?;
        Ok(Ahead { current, filled: 0, given: 0, full, give_back: Some(give_back), worker: Some(worker), calls: 0 })
    }

    #[cold]
    fn refill(&mut self) -> Result<()> {
        let Ok((next, filled, calls)) = self.full.recv() else {
            // The worker says why.
            self.give_back = None;
            return match self.worker.take().map(JoinHandle::join) {
                Some(Ok(Err(e))) => Err(e),
                _ => Err(too_short()),
            };
        };
        if filled == 0 {
            return Err(too_short());
        }
        let used = std::mem::replace(&mut self.current, next);
        if let Some(give_back) = &self.give_back {
            let _ = give_back.send(used);
        }
        (self.filled, self.given, self.calls) = (filled, 0, calls);
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

impl Drop for Ahead {
    fn drop(&mut self) {
        // Without anywhere to read to, the worker ends.
        self.give_back = None;
        while self.full.recv().is_ok() {}
        if let Some(worker) = self.worker.take() {
            let _ = worker.join();
        }
    }
}
