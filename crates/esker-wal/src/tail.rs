//! The log's growing end: where appended frames get their positions and wait to be written.
//!
//! Invariants, all under the owner's mutex: positions are given without gaps; `end + reserved` never passes `space_end`
//! even if every unsealed byte still needs its seal, so that whoever has appended, or holds a credit, will find prepared
//! space; the buffer has memory for every credit.

use crate::buffer::LogBuffer;
use crate::seal::{padding, Padding, SEAL_MAX_BYTES};
use crate::{frame_space, FRAME_ALIGN, SECTOR_BYTES};
use esker_format::frame::{frame_bytes, frame_header};
use esker_format::Lsn;
use esker_trace::{count, Counter, OutOfMemory, Region};
use std::collections::VecDeque;

/// Where a frame went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// Position of the frame.
    pub lsn: Lsn,
    /// Position after it: what to wait for.
    pub end: Lsn,
}

pub(crate) struct Tail {
    buffer: LogBuffer,
    /// Bytes at the buffer's start that are on their way to the file or there.
    taken: usize,
    /// Bytes appended after the log was poisoned: they have positions and nothing else.
    lost: u64,
    /// Where the prepared segments end.
    space_end: u64,
    /// What all credits may still need, in bytes of the stream.
    reserved: u64,
    /// First position and generation of the current segment and of those after it.
    segments: VecDeque<(u64, u32)>,
}

/// What an append must wait for.
pub(crate) enum Lacks {
    /// Segments up to this position.
    Space(u64),
    /// Room in the buffer.
    Room,
}

/// What a credit for a payload of this length sets aside.
pub(crate) fn credit_bytes(payload: usize) -> u64 {
    frame_space(payload) as u64 + SEAL_MAX_BYTES
}

/// What a frame takes, counted.
fn counted(payload: &[u8]) -> u64 {
    let bytes = frame_space(payload.len()) as u64;
    count(Counter::WalRecords, 1);
    count(Counter::WalBytes, bytes);
    bytes
}

impl Tail {
    pub(crate) fn new(region: Region, at: u64) -> Self {
        Tail {
            buffer: LogBuffer::new(region, at),
            taken: 0,
            lost: 0,
            space_end: at,
            reserved: 0,
            segments: VecDeque::new(),
        }
    }

    pub(crate) fn end(&self) -> u64 {
        self.buffer.end() + self.lost
    }

    pub(crate) fn space_end(&self) -> u64 {
        self.space_end
    }

    /// Bytes not yet taken for writing.
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.buffer.len() - self.taken
    }

    /// A segment is ready at the end of the space.
    pub(crate) fn add_segment(&mut self, first: u64, generation: u32, end: u64) {
        assert!(first == self.space_end || self.segments.is_empty(), "log segments must follow each other");
        self.segments.push_back((first, generation));
        self.space_end = end;
    }

    /// Is there space for `bytes` more, and room in a buffer of `buffer_bytes`?
    pub(crate) fn check(&self, bytes: u64, buffer_bytes: usize) -> Option<Lacks> {
        let need = self.end() + bytes + self.reserved;
        if need > self.space_end {
            return Some(Lacks::Space(need));
        }
        let waiting = self.waiting_bytes();
        // A frame longer than the whole buffer goes in when nothing else is there.
        (waiting > 0 && waiting as u64 + bytes > buffer_bytes as u64).then_some(Lacks::Room)
    }

    /// Memory for `bytes` more, and for all credits.
    pub(crate) fn grow(&mut self, bytes: u64) -> Result<(), OutOfMemory> {
        self.buffer.grow((bytes + self.reserved + SEAL_MAX_BYTES) as usize)
    }

    /// Sets credit aside; the caller has checked and grown.
    pub(crate) fn reserve(&mut self, bytes: u64) {
        self.reserved += bytes;
    }

    pub(crate) fn unreserve(&mut self, bytes: u64) {
        self.reserved = self.reserved.saturating_sub(bytes);
    }

    fn generation(&mut self) -> u32 {
        let end = self.buffer.end();
        while self.segments.get(1).is_some_and(|next| next.0 <= end) {
            self.segments.pop_front();
        }
        self.segments.front().map_or(0, |s| s.1)
    }

    /// Appends a frame; the caller has checked and grown.
    pub(crate) fn put(&mut self, payload: &[u8]) -> Appended {
        let lsn = Lsn(self.end());
        let bytes = counted(payload);
        let generation = self.generation();
        self.buffer.push(&frame_header(lsn, generation, payload));
        self.buffer.push(payload);
        self.buffer.push(&[0; FRAME_ALIGN][..bytes as usize - frame_bytes(payload.len())]);
        Appended { lsn, end: Lsn(self.end()) }
    }

    /// Gives a frame a position and forgets it: the log is poisoned, and nothing will be taken any more.
    pub(crate) fn lose(&mut self, payload: &[u8]) -> Appended {
        let lsn = Lsn(self.end());
        self.lost += counted(payload);
        Appended { lsn, end: Lsn(self.end()) }
    }

    /// Takes what is to be written, if anything. `seal`: it will be synced, so it ends at a sector's end. `fresh` gives
    /// the memory that replaces the buffer's.
    pub(crate) fn take(
        &mut self,
        seal: bool,
        durable: u64,
        fresh: impl FnOnce(usize) -> Result<Region, OutOfMemory>,
    ) -> Result<Option<LogBuffer>, OutOfMemory> {
        let nothing = if seal { self.buffer.end() == durable } else { self.waiting_bytes() == 0 };
        if nothing {
            return Ok(None);
        }
        let fresh = fresh((self.reserved + SEAL_MAX_BYTES + SECTOR_BYTES) as usize)?;
        if seal {
            let generation = self.generation();
            self.buffer.grow(SEAL_MAX_BYTES as usize)?;
            self.buffer.push(&padding(Lsn(self.buffer.end()), generation, Padding::Seal(Lsn(durable))));
            assert!(self.buffer.end() <= self.space_end, "a seal found no prepared space");
        }
        let taken = self.buffer.replace(fresh);
        self.taken = self.buffer.len();
        Ok(Some(taken))
    }
}
