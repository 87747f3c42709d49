//! Reads, writes and barriers of a raw file that go on while the caller does something else, by io_uring.
//!
//! Owns the ring, the file and the buffers under way. Invariant: a buffer that the kernel may still use is owned by its
//! `Flight` and by nobody else, until its completion has been seen. Flights come back in the order in which they left.

use super::RawFile;
use esker_io::ring::{self, Action, Request, Ring};
use esker_io::{IoError, IoKind, Result};
use esker_memory::Region;
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
    ring: Box<dyn Ring>,
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
        let made = ring::of_the_kernel(depth);
        let ring = made.map_err(|e| IoError::from_os("make an io_uring for", file.path(), None, &e))?;
        Ok(RawQueue::with(ring, file, depth))
    }

    fn with(ring: Box<dyn Ring>, file: Arc<RawFile>, depth: usize) -> RawQueue {
        RawQueue { ring, file, flights: VecDeque::new(), depth, next: 0 }
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
        let length = u32::try_from(bytes.min(buffer.len())).unwrap_or(u32::MAX);
        if self.unfinished() >= self.depth || (length as usize) < bytes {
            return Err(self.refused(offset, "more than the queue takes"));
        }
        let number = self.next;
        let action = match write {
            true => Action::Write { data: buffer.as_ptr(), bytes: length, offset },
            false => Action::Read { data: buffer.as_mut_ptr(), bytes: length, offset },
        };
        // The buffer's bytes stay where they are when the region is moved into its flight, which outlives the operation.
        self.push(action, number, offset)?;
        self.next += 1;
        let calls = if write { &self.file.writes } else { &self.file.reads };
        calls.fetch_add(1, Ordering::Relaxed);
        self.flights.push_back(Flight { number, buffer, bytes, offset, write, result: None });
        // If this fails, the entry stays queued and the next wait submits it.
        let _ = self.ring.submit();
        Ok(())
    }

    fn push(&mut self, action: Action, number: u64, offset: u64) -> Result<()> {
        let request = Request { fd: self.file.file.as_raw_fd(), action, number };
        // SAFETY: its buffer, if it has one, is kept in `flights` until its completion has been seen.
        if !unsafe { self.ring.push(&request) } {
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
                Some(_) => drop(self.wait()?),
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

    /// Waits for an answer and takes in those that are there; what a barrier answered.
    fn wait(&mut self) -> Result<Option<i32>> {
        if let Err(e) = self.ring.submit_and_wait() {
            if !matches!(e.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)) {
                return Err(IoError::from_os("wait for", self.file.path(), None, &e));
            }
        }
        Ok(self.reap())
    }

    /// Takes in the answers that are there; what a barrier answered.
    fn reap(&mut self) -> Option<i32> {
        let mut barrier = None;
        while let Some((number, result)) = self.ring.completion() {
            if number == BARRIER {
                barrier = Some(result);
            } else if let Some(flight) = self.flights.iter_mut().find(|f| f.number == number) {
                flight.result = Some(result);
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
        self.push(Action::Sync { data_only }, BARRIER, 0)?;
        loop {
            match self.wait()? {
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
    use esker_io::ring::scripted::{Answer, Scripted, Wait};
    use esker_memory::Account;
    use std::path::PathBuf;

    /// A file of its own, removed at the end.
    struct TempFile(PathBuf, Arc<RawFile>);

    impl TempFile {
        fn new(name: &str) -> TempFile {
            let path = std::env::temp_dir().join(format!("esker-raw-queue-{name}-{}", std::process::id()));
            let file = RawFile::open(&path, RawOptions { create: true, ..RawOptions::default() }).unwrap();
            TempFile(path, Arc::new(file))
        }
    }

    impl Drop for TempFile {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    fn region(bytes: usize, fill: u8) -> Region {
        let mut region = Region::zeroed(Account::Other, bytes).unwrap();
        region.fill(fill);
        region
    }

    /// Whatever the queue is made of.
    fn come_back_in_order(mut queue: RawQueue) {
        let file = queue.file.clone();
        for n in 0..3u8 {
            queue.write(region(8192, n), 5000, u64::from(n) * 5000).unwrap();
        }
        for n in 0..3u8 {
            let (buffer, done) = queue.oldest().unwrap();
            assert_eq!((buffer[0], done), (n, 5000));
        }
        queue.barrier(true).unwrap();
        // The last one reaches over the end.
        for n in 0..2u64 {
            queue.read(region(10_000, 9), 10_000, n * 10_000).unwrap();
        }
        assert!(queue.barrier(true).is_err());
        let (first, done) = queue.oldest().unwrap();
        assert_eq!((first[4999], first[5000], done), (0, 1, 10_000));
        let (last, done) = queue.oldest().unwrap();
        assert_eq!((last[0], done), (2, 5000));
        assert_eq!((file.writes(), file.size_bytes().unwrap()), (3, 15_000));
    }

    #[test]
    fn flights_come_back_in_order() {
        let file = TempFile::new("order");
        come_back_in_order(RawQueue::with(Box::new(Scripted::new(&[])), file.1.clone(), 3));
        let file = TempFile::new("order-kernel");
        match RawQueue::new(file.1.clone(), 3) {
            Ok(queue) => come_back_in_order(queue),
            Err(_) => eprintln!("no io_uring here: tested without"),
        }
    }

    /// What the kernel has answered is not unfinished any more, even if nobody has asked for it.
    #[test]
    fn no_more_than_depth_are_unfinished() {
        let file = TempFile::new("depth");
        let ring = Scripted::new(&[]);
        let script = ring.script.clone();
        let mut queue = RawQueue::with(Box::new(ring), file.1.clone(), 3);
        for n in 0..3 {
            assert_eq!(queue.unfinished(), n);
            queue.write(region(4096, 1), 10, 0).unwrap();
        }
        assert_eq!(queue.write(region(4096, 1), 10, 0).unwrap_err().kind, IoKind::Failed);
        assert_eq!((script.lock().unwrap().pushed, queue.under_way()), (3, 3));
        queue.wait().unwrap();
        assert_eq!((queue.unfinished(), queue.under_way()), (2, 3));
        queue.write(region(4096, 1), 10, 0).unwrap();
        assert!(queue.write(region(4096, 1), 10, 0).is_err());
        while queue.under_way() > 0 {
            queue.oldest().unwrap();
        }
    }

    #[test]
    fn what_the_kernel_leaves_undone_is_done() {
        let file = TempFile::new("undone");
        let answers = [
            Answer::Short(1000),
            Answer::Error(libc::EAGAIN),
            Answer::Error(libc::EINTR),
            Answer::Error(libc::ECANCELED),
            Answer::Error(libc::EIO),
            Answer::Error(libc::ENOMEM),
        ];
        let ring = Scripted::new(&answers);
        ring.script.lock().unwrap().waits.extend([libc::EINTR, libc::EAGAIN, libc::EBUSY].map(Wait::Error));
        let mut queue = RawQueue::with(Box::new(ring.clone()), file.1.clone(), 8);
        for n in 1..=6u8 {
            queue.write(region(4096, n), 4096, u64::from(n - 1) * 4096).unwrap();
        }
        for n in 1..=4u8 {
            let (buffer, done) = queue.oldest().unwrap();
            assert_eq!((buffer[0], done), (n, 4096));
        }
        for kind in [IoKind::Failed, IoKind::Resources] {
            assert_eq!(queue.oldest().unwrap_err().kind, kind);
        }
        ring.script.lock().unwrap().answers.extend([Answer::Short(10), Answer::Done, Answer::Error(libc::EIO)]);
        queue.read(region(4 * 4096, 0), 4 * 4096, 0).unwrap();
        let (buffer, done) = queue.oldest().unwrap();
        assert_eq!(done, 4 * 4096);
        assert!(buffer.iter().enumerate().all(|(at, byte)| usize::from(*byte) == at / 4096 + 1));
        ring.script.lock().unwrap().waits.extend([libc::EINTR, libc::EBUSY].map(Wait::Error));
        queue.barrier(false).unwrap();
        assert_eq!(queue.barrier(false).unwrap_err().kind, IoKind::Failed);
    }
}
