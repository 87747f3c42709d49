//! A write and the sync of its file by one call: io_uring takes both, and the sync begins when the write is done.
//!
//! Owns one ring for a disk's files, made when it is first asked for, and the buffer that the kernel reads. Invariants: the
//! kernel reads that buffer and no other; nobody touches it before both completions are seen; a sync that failed is told and
//! never tried again, what was not even begun is left to the ordinary way.

use crate::ring::{self, Action, Request, Ring};
use esker_base::lock::{order, Mutex};
use esker_memory::{Account, Region};
use std::fs;
use std::io;
use std::os::fd::AsRawFd;

/// What is longer goes the ordinary way: a second call is nothing beside so many bytes.
pub(super) const MOST_BYTES: usize = 64 << 10;

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Linked {
    /// Written whole, and durable.
    Done,
    /// The kernel did not take it, or not all of it: to be written and synced in the ordinary way, from the beginning.
    Left,
}

enum State {
    Untried,
    Ready(Box<dyn Ring>, Region),
    /// The kernel does not tell what became of requests that it has.
    Lost,
}

/// See the module.
pub(super) struct LinkedWriter(Mutex<State>);

impl std::fmt::Debug for LinkedWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LinkedWriter").finish_non_exhaustive()
    }
}

impl Default for LinkedWriter {
    fn default() -> Self {
        Self::with(State::Untried)
    }
}

const WRITE: u64 = 0;
const SYNC: u64 = 1;

impl LinkedWriter {
    fn with(state: State) -> Self {
        LinkedWriter(Mutex::new(&order::IO_LINKED, state))
    }

    #[cfg(test)]
    pub(super) fn on(ring: Box<dyn Ring>) -> io::Result<Self> {
        Ok(Self::with(State::Ready(ring, buffer()?)))
    }

    /// Writes at most [`MOST_BYTES`] and syncs. An error of the first call may be that the kernel has no io_uring.
    pub(super) fn write_and_sync(&self, file: &fs::File, bytes: &[u8], offset: u64) -> io::Result<Linked> {
        let mut state = self.0.lock();
        if matches!(*state, State::Untried) {
            *state = State::Ready(ring::of_the_kernel(2)?, buffer()?);
        }
        let State::Ready(ring, buffer) = &mut *state else { return Ok(Linked::Left) };
        let Ok(length) = u32::try_from(bytes.len()) else { return Ok(Linked::Left) };
        let Some(room) = buffer.get_mut(..bytes.len()) else { return Ok(Linked::Left) };
        room.copy_from_slice(bytes);
        let request = |action, number| Request { fd: file.as_raw_fd(), action, number };
        let write = request(Action::Write { data: room.as_ptr(), bytes: length, offset }, WRITE);
        // SAFETY: the buffer lives in the state, which is locked until both completions are seen, or for ever.
        if !unsafe { ring.push_linked(&write, &request(Action::Sync { data_only: true }, SYNC)) } {
            return Ok(Linked::Left);
        }
        match both(&mut **ring) {
            Ok(results) => judge(results, length),
            Err(error) => {
                std::mem::forget(std::mem::replace(&mut *state, State::Lost));
                Err(error)
            }
        }
    }
}

fn buffer() -> io::Result<Region> {
    Region::zeroed(Account::Wal, MOST_BYTES).map_err(|error| io::Error::other(error.to_string()))
}

/// Waits for both results.
fn both(ring: &mut dyn Ring) -> io::Result<[i32; 2]> {
    let mut results = [None; 2];
    loop {
        while let Some((number, result)) = ring.completion() {
            if let Some(place) = results.get_mut(number as usize) {
                *place = Some(result);
            }
        }
        if let [Some(write), Some(sync)] = results {
            return Ok([write, sync]);
        }
        match ring.submit_and_wait_for(results.iter().filter(|result| result.is_none()).count()) {
            Err(error) if !ring::passes(&error) => return Err(error),
            _ => {}
        }
    }
}

fn judge([write, sync]: [i32; 2], length: u32) -> io::Result<Linked> {
    let failed = |result: i32| Some(io::Error::from_raw_os_error(-result)).filter(|error| !ring::passes(error));
    match (u32::try_from(write), u32::try_from(sync)) {
        (Ok(written), Ok(_)) if written == length => Ok(Linked::Done),
        (Err(_), _) => failed(write).map_or(Ok(Linked::Left), Err),
        // Whatever was written: of a sync that was tried nobody knows what it has lost.
        (Ok(_), Err(_)) => failed(sync).map_or(Ok(Linked::Left), Err),
        (Ok(_), Ok(_)) => Ok(Linked::Left),
    }
}
