//! Writes that go on while the caller fills the next buffer, by io_uring.
//!
//! Owns the rings. A ring serves one file at a time and goes back to the pool when the file is drained. Invariant: a
//! buffer that the kernel may still read is owned by its `Flight` and by nobody else; flights end only by their
//! completion. What the kernel does not finish (short, cancelled because the submitting thread ended, busy) is written
//! again in the ordinary way.

use crate::ring::{self, Action, Request, Ring};
use esker_base::lock::{order, Mutex};
use esker_base::{timed, WaitEvent};
use esker_memory::Region;
use io_uring::{opcode, IoUring, Probe};
use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;

/// Rings that no file uses at the moment.
pub(super) struct RingPool {
    depth: usize,
    idle: Mutex<Vec<Box<dyn Ring>>>,
}

impl std::fmt::Debug for RingPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RingPool").field("depth", &self.depth).finish_non_exhaustive()
    }
}

impl RingPool {
    /// A pool of rings for `depth` writes each, or the reason why the kernel gives none.
    pub(super) fn probe(depth: usize) -> io::Result<RingPool> {
        let mut ring = IoUring::new(depth as u32)?;
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        if !probe.is_supported(opcode::Write::CODE) {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "it cannot write"));
        }
        // Some sandboxes let rings be made and not used.
        // SAFETY: a no-op has no buffers.
        unsafe { ring.submission().push(&opcode::Nop::new().build()) }.map_err(full)?;
        ring.submit_and_wait(1)?;
        if ring.completion().next().is_none() {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "it does not answer"));
        }
        Ok(RingPool::with(depth, Box::new(ring)))
    }

    pub(super) fn with(depth: usize, ring: Box<dyn Ring>) -> RingPool {
        RingPool { depth, idle: Mutex::new(&order::IO_RING_POOL, vec![ring]) }
    }

    pub(super) fn depth(&self) -> usize {
        self.depth
    }

    fn take(&self) -> io::Result<Box<dyn Ring>> {
        let idle = self.idle.lock().pop();
        idle.map_or_else(|| ring::of_the_kernel(self.depth), Ok)
    }

    fn give_back(&self, ring: Box<dyn Ring>) {
        let mut idle = self.idle.lock();
        // A burst of files needs no rings for ever.
        if idle.len() < 8 {
            idle.push(ring);
        }
    }
}

fn full(_: io_uring::squeue::PushError) -> io::Error {
    io::Error::other("the submission queue is full")
}

/// A write that the kernel has and that is not known to be done.
struct Flight {
    data: Region,
    bytes: usize,
    offset: u64,
}

/// A queued write that failed.
pub(super) struct QueueError {
    pub(super) offset: u64,
    pub(super) error: io::Error,
}

impl QueueError {
    fn again(&self) -> QueueError {
        let error = match self.error.raw_os_error() {
            Some(code) => io::Error::from_raw_os_error(code),
            None => io::Error::new(self.error.kind(), self.error.to_string()),
        };
        QueueError { offset: self.offset, error }
    }
}

/// The writes of one file that are under way.
pub(super) struct WriteQueue {
    pool: Arc<RingPool>,
    ring: Option<Box<dyn Ring>>,
    flights: Vec<Option<Flight>>,
    /// Buffers whose writes are done.
    spare: Vec<Region>,
    failure: Option<QueueError>,
}

impl WriteQueue {
    pub(super) fn new(pool: Arc<RingPool>) -> Self {
        WriteQueue { pool, ring: None, flights: Vec::new(), spare: Vec::new(), failure: None }
    }

    /// Hands a write to the kernel, waiting for an earlier one if `depth` are under way. `write` is the ordinary way.
    pub(super) fn submit(
        &mut self,
        file: &fs::File,
        data: Region,
        bytes: usize,
        offset: u64,
        write: impl Fn(&[u8], u64) -> io::Result<()>,
    ) -> Result<Option<Region>, QueueError> {
        self.check()?;
        self.reap(&write);
        while self.under_way() == self.pool.depth {
            let waited = timed(WaitEvent::RunWriteQueue, || self.wait_for_one(&write));
            // What was to be written now never will be.
            waited.map_err(|error| self.failed(QueueError { offset, ..error }))?;
        }
        self.check()?;
        let flight = Flight { data, bytes, offset };
        if let Err(flight) = self.launch(file, flight) {
            let written = timed(WaitEvent::RunWrite, || write(&flight.data[..bytes], offset));
            self.spare.push(flight.data);
            written.map_err(|error| self.failed(QueueError { offset, error }))?;
        }
        Ok(self.spare.pop())
    }

    /// Waits until nothing is under way.
    pub(super) fn drain(&mut self, write: impl Fn(&[u8], u64) -> io::Result<()>) -> Result<(), QueueError> {
        while self.under_way() > 0 {
            timed(WaitEvent::RunWriteQueue, || self.wait_for_one(&write))?;
        }
        self.spare.clear();
        if let Some(ring) = self.ring.take() {
            self.pool.give_back(ring);
        }
        self.check()
    }

    fn under_way(&self) -> usize {
        self.flights.iter().flatten().count()
    }

    fn check(&self) -> Result<(), QueueError> {
        self.failure.as_ref().map_or(Ok(()), |failure| Err(failure.again()))
    }

    /// A write will never be done: told now, and whenever anybody asks. The first failure stays.
    fn failed(&mut self, failure: QueueError) -> QueueError {
        let told = failure.again();
        self.failure.get_or_insert(failure);
        told
    }

    /// Submits a flight, or gives it back if the kernel does not take it.
    fn launch(&mut self, file: &fs::File, flight: Flight) -> Result<(), Flight> {
        if self.ring.is_none() {
            self.ring = self.pool.take().ok();
        }
        let (Some(ring), Ok(length)) = (&mut self.ring, u32::try_from(flight.bytes)) else {
            return Err(flight);
        };
        let slot = match self.flights.iter().position(Option::is_none) {
            Some(slot) => slot,
            None => {
                self.flights.push(None);
                self.flights.len() - 1
            }
        };
        let action = Action::Write { data: flight.data.as_ptr(), bytes: length, offset: flight.offset };
        let request = Request { fd: file.as_raw_fd(), action, number: slot as u64 };
        // SAFETY: the buffer lives in `flights` until the completion of this request has been seen.
        if !unsafe { ring.push(&request) } {
            return Err(flight);
        }
        self.flights[slot] = Some(flight);
        // If this fails (the kernel is busy), the entry stays queued and the next wait submits it.
        let _ = ring.submit();
        Ok(())
    }

    fn wait_for_one(&mut self, write: &impl Fn(&[u8], u64) -> io::Result<()>) -> Result<(), QueueError> {
        let Some(ring) = &mut self.ring else {
            return Ok(());
        };
        match ring.submit_and_wait() {
            Ok(()) => {}
            Err(error) if ring::passes(&error) => {}
            Err(error) => return Err(QueueError { offset: 0, error }),
        }
        self.reap(write);
        Ok(())
    }

    /// Takes in what is done.
    fn reap(&mut self, write: &impl Fn(&[u8], u64) -> io::Result<()>) {
        let Some(ring) = &mut self.ring else { return };
        while let Some((number, result)) = ring.completion() {
            let slot = usize::try_from(number).ok();
            let Some(flight) = slot.and_then(|slot| self.flights.get_mut(slot)?.take()) else {
                continue;
            };
            let written = match usize::try_from(result) {
                Ok(written) => written.min(flight.bytes),
                Err(_) => {
                    let error = io::Error::from_raw_os_error(-result);
                    if !ring::passes(&error) && error.raw_os_error() != Some(libc::EINVAL) {
                        self.failure.get_or_insert(QueueError { offset: flight.offset, error });
                        self.spare.push(flight.data);
                        continue;
                    }
                    0
                }
            };
            if written < flight.bytes {
                let at = flight.offset + written as u64;
                if let Err(error) = write(&flight.data[written..flight.bytes], at) {
                    self.failure.get_or_insert(QueueError { offset: at, error });
                }
            }
            self.spare.push(flight.data);
        }
    }
}

impl Drop for WriteQueue {
    fn drop(&mut self) {
        // Nobody will ask how it ended: only the buffers matter.
        while self.under_way() > 0 {
            if self.wait_for_one(&|_, _| Ok(())).is_err() {
                // The kernel may still read them, and will not tell when it has done so.
                std::mem::take(&mut self.flights).into_iter().for_each(std::mem::forget);
                self.ring = None;
            }
        }
        if let Some(ring) = self.ring.take() {
            self.pool.give_back(ring);
        }
    }
}
