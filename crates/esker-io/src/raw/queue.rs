//! Reads, writes and barriers of a raw file that go on while the caller does something else, by io_uring.
//!
//! Owns the ring, the file and the buffers under way. Invariant: a buffer that the kernel may still use is owned by its
//! `Flight` and by nobody else, until its completion has been seen. Flights come back in the order in which they left.

use super::RawFile;
use crate::{IoError, IoKind, Result};
use esker_trace::Region;
use io_uring::{opcode, squeue, types, IoUring};
use std::collections::VecDeque;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;
use std::sync::Arc;

/// A read or a write that was handed to the kernel.
struct Flight {
    number: u64,
    buffer: Region,
    bytes: usize,
    offset: u64,
    write: bool,
    /// What the kernel answered.
    result: Option<i32>,
}

/// See the module.
pub struct RawQueue {
    ring: IoUring,
    file: Arc<RawFile>,
    flights: VecDeque<Flight>,
    depth: usize,
    next: u64,
}

impl std::fmt::Debug for RawQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RawQueue").field("file", &self.file).field("depth", &self.depth).finish_non_exhaustive()
    }
}

/// The number of a barrier's completion, which no flight has.
const BARRIER: u64 = u64::MAX;

impl RawQueue {
    /// A queue for at most `depth` unfinished operations.
    ///
    /// # Errors
    /// Why the kernel gives no ring.
    pub fn new(file: Arc<RawFile>, depth: usize) -> Result<RawQueue> {
        let depth = depth.clamp(1, 4096);
        let ring =
            IoUring::new(depth as u32).map_err(|e| IoError::from_os("make an io_uring for", file.path(), None, &e))?;
        Ok(RawQueue { ring, file, flights: VecDeque::new(), depth, next: 0 })
    }

    /// Operations whose buffers have not come back.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.flights.len()
    }

    /// Operations that the kernel has not finished: at most `depth`.
    #[must_use]
    pub fn unfinished(&mut self) -> usize {
        self.reap();
        self.flights.iter().filter(|f| f.result.is_none()).count()
    }

    /// Hands a write of the first `bytes` bytes of `buffer` to the kernel.
    ///
    /// # Errors
    /// What the operating system says; `Failed` when `depth` are unfinished.
    pub fn write(&mut self, buffer: Region, bytes: usize, offset: u64) -> Result<()> {
        self.launch(buffer, bytes, offset, true)
    }

    /// Hands a read of `bytes` bytes into `buffer` to the kernel.
    ///
    /// # Errors
    /// What the operating system says; `Failed` when `depth` are unfinished.
    pub fn read(&mut self, buffer: Region, bytes: usize, offset: u64) -> Result<()> {
        self.launch(buffer, bytes, offset, false)
    }

    fn launch(&mut self, mut buffer: Region, bytes: usize, offset: u64, write: bool) -> Result<()> {
        let fd = types::Fd(self.file.file.as_raw_fd());
        let length = u32::try_from(bytes.min(buffer.len())).unwrap_or(u32::MAX);
        if self.unfinished() >= self.depth || (length as usize) < bytes {
            return Err(self.refused(offset, "more than the queue takes"));
        }
        let number = self.next;
        let entry = match write {
            true => opcode::Write::new(fd, buffer.as_ptr(), length).offset(offset).build(),
            false => opcode::Read::new(fd, buffer.as_mut_ptr(), length).offset(offset).build(),
        };
        // The buffer's bytes stay where they are when the region is moved into its flight, which outlives the operation.
        self.push(&entry.user_data(number), offset)?;
        self.next += 1;
        let calls = if write { &self.file.writes } else { &self.file.reads };
        calls.fetch_add(1, Ordering::Relaxed);
        self.flights.push_back(Flight { number, buffer, bytes, offset, write, result: None });
        // If this fails, the entry stays queued and the next wait submits it.
        let _ = self.ring.submit();
        Ok(())
    }

    fn push(&mut self, entry: &squeue::Entry, offset: u64) -> Result<()> {
        // SAFETY: its buffer, if it has one, is kept in `flights` until its completion has been seen.
        if unsafe { self.ring.submission().push(entry) }.is_err() {
            return Err(self.refused(offset, "the submission queue is full"));
        }
        Ok(())
    }

    fn refused(&self, offset: u64, why: &str) -> IoError {
        IoError::new("queue for", self.file.path(), Some(offset), IoKind::Failed, why)
    }

    /// Waits for the operation that was begun first: its buffer, and how many bytes were read or written. What the
    /// kernel left undone is done in the ordinary way.
    ///
    /// # Errors
    /// What the operating system says; `Failed` when nothing is under way.
    pub fn oldest(&mut self) -> Result<(Region, usize)> {
        loop {
            match self.flights.front() {
                None => return Err(self.refused(0, "nothing is under way")),
                Some(first) if first.result.is_some() => break,
                Some(_) => self.wait()?,
            }
        }
        let Some(flight) = self.flights.pop_front() else { return Err(self.refused(0, "nothing is under way")) };
        self.land(flight)
    }

    fn land(&self, mut flight: Flight) -> Result<(Region, usize)> {
        let operation = if flight.write { "write" } else { "read" };
        let done = match usize::try_from(flight.result.unwrap_or(-libc::EAGAIN)) {
            Ok(done) => done.min(flight.bytes),
            Err(_) => {
                let error = io::Error::from_raw_os_error(-flight.result.unwrap_or(0));
                if !matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EINTR | libc::ECANCELED)) {
                    return Err(IoError::from_os(operation, self.file.path(), Some(flight.offset), &error));
                }
                0
            }
        };
        if done == flight.bytes {
            return Ok((flight.buffer, done));
        }
        let (rest, at) = (&mut flight.buffer[done..flight.bytes], flight.offset + done as u64);
        let more = if flight.write {
            self.file.write_at(rest, at)?;
            rest.len()
        } else {
            self.file.read_at(rest, at)?
        };
        Ok((flight.buffer, done + more))
    }

    /// Takes in at least one answer.
    fn wait(&mut self) -> Result<()> {
        if let Err(e) = self.ring.submit_and_wait(1) {
            if !matches!(e.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)) {
                return Err(IoError::from_os("wait for", self.file.path(), None, &e));
            }
        }
        self.reap();
        Ok(())
    }

    /// Takes in the answers that are there; what a barrier answered.
    fn reap(&mut self) -> Option<i32> {
        let mut barrier = None;
        for completion in self.ring.completion() {
            let number = completion.user_data();
            if number == BARRIER {
                barrier = Some(completion.result());
            } else if let Some(flight) = self.flights.iter_mut().find(|f| f.number == number) {
                flight.result = Some(completion.result());
            }
        }
        barrier
    }

    /// fsync, or fdatasync with `data_only`, through the ring; nothing may be under way.
    ///
    /// # Errors
    /// What the operating system says; `Failed` when something is under way.
    pub fn barrier(&mut self, data_only: bool) -> Result<()> {
        if self.under_way() > 0 {
            return Err(self.refused(0, "a barrier waits for nothing that is under way"));
        }
        let flags = if data_only { types::FsyncFlags::DATASYNC } else { types::FsyncFlags::empty() };
        let entry = opcode::Fsync::new(types::Fd(self.file.file.as_raw_fd())).flags(flags).build();
        self.push(&entry.user_data(BARRIER), 0)?;
        loop {
            if let Err(e) = self.ring.submit_and_wait(1) {
                if e.raw_os_error() != Some(libc::EINTR) {
                    return Err(IoError::from_os("sync", self.file.path(), None, &e));
                }
            }
            match self.reap() {
                None => {}
                Some(0) => return Ok(()),
                Some(code) => {
                    let error = io::Error::from_raw_os_error(-code);
                    return Err(IoError::from_os("sync", self.file.path(), None, &error));
                }
            }
        }
    }
}

impl Drop for RawQueue {
    fn drop(&mut self) {
        // Nobody will ask how they ended: only the buffers matter.
        while self.flights.iter().any(|f| f.result.is_none()) {
            if self.wait().is_err() {
                // The kernel may still use them, and will not tell when it has done so.
                std::mem::take(&mut self.flights).into_iter().for_each(std::mem::forget);
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::RawOptions;
    use super::*;
    use esker_trace::Account;

    #[test]
    fn flights_come_back_in_order() {
        let path = std::env::temp_dir().join(format!("esker-raw-queue-{}", std::process::id()));
        let file = RawFile::open(&path, RawOptions { create: true, ..RawOptions::default() }).unwrap();
        let file = Arc::new(file);
        let Ok(mut queue) = RawQueue::new(file.clone(), 3) else {
            eprintln!("no io_uring here: not tested");
            return;
        };
        for n in 0..3u8 {
            let mut buffer = Region::zeroed(Account::Other, 8192).unwrap();
            buffer.fill(n);
            queue.write(buffer, 5000, u64::from(n) * 5000).unwrap();
        }
        let fourth = Region::zeroed(Account::Other, 4096).unwrap();
        assert!(queue.write(fourth, 10, 0).is_err());
        for n in 0..3u8 {
            let (buffer, done) = queue.oldest().unwrap();
            assert_eq!((buffer[0], done), (n, 5000));
        }
        queue.barrier(true).unwrap();
        // The last one reaches over the end.
        for n in 0..2u64 {
            queue.read(Region::zeroed(Account::Other, 10_000).unwrap(), 10_000, n * 10_000).unwrap();
        }
        let (first, done) = queue.oldest().unwrap();
        assert_eq!((first[4999], first[5000], done), (0, 1, 10_000));
        let (last, done) = queue.oldest().unwrap();
        assert_eq!((last[0], done), (2, 5000));
        assert_eq!((file.writes(), file.size_bytes().unwrap()), (3, 15_000));
        std::fs::remove_file(&path).unwrap();
    }
}
