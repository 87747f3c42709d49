//! The log's growing end: where appended frames get their positions and wait to be written.
//!
//! Invariants, all under the owner's mutex: positions are given without gaps; `end`, the frames of all credits, a seal
//! for each of them and one for what is not sealed yet never pass `space_end`, so that whoever has appended, or holds a
//! credit, will find prepared space however the syncs fall; the buffer has memory for every credit's frame and one seal, and so has
//! the next one, since each seal begins a new buffer: to take what is to be written asks for no memory.

use crate::buffer::{region, LogBuffer, FIRST_BUFFER_BYTES};
use crate::seal::{padding, Padding, SEAL_MAX_BYTES};
use crate::{frame_space, FRAME_ALIGN, SECTOR_BYTES};
use esker_base::{count, Counter};
use esker_format::frame::{frame_bytes, frame_header};
use esker_format::Lsn;
use esker_memory::{OutOfMemory, Region};
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
    /// Memory of the next buffer. None while what was taken last is being written, if its memory, of so many bytes, will do.
    next: Option<Region>,
    out_bytes: usize,
    /// Bytes at the buffer's start that are on their way to the file or there.
    taken: usize,
    /// Bytes appended after the log was poisoned: they have positions and nothing else.
    lost: u64,
    /// Where the prepared segments end.
    space_end: u64,
    /// Credits that are out, and what their frames take.
    credits: u64,
    reserved: u64,
    /// First position and tag of the current segment and of those after it.
    segments: VecDeque<(u64, u32)>,
}

/// What the next buffer needs for the frames of all credits, a seal, and the last sector of the one before.
fn next_bytes(reserved: u64) -> usize {
    (reserved + SEAL_MAX_BYTES + SECTOR_BYTES) as usize
}

/// What a frame takes, counted.
fn counted(payload: &[u8]) -> u64 {
    let bytes = frame_space(payload.len()) as u64;
    count(Counter::WalRecords, 1);
    count(Counter::WalBytes, bytes);
    bytes
}

impl Tail {
    /// With memory for its first two buffers, some sectors at least.
    pub(crate) fn new(first: Region, next: Region, at: u64) -> Self {
        Tail {
            buffer: LogBuffer::new(first, at),
            next: Some(next),
            out_bytes: 0,
            taken: 0,
            lost: 0,
            space_end: at,
            credits: 0,
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
    pub(crate) fn add_segment(&mut self, first: u64, tag: u32, end: u64) {
        assert!(first == self.space_end || self.segments.is_empty(), "log segments must follow each other");
        self.segments.push_back((first, tag));
        self.space_end = end;
    }

    /// What credits may still take of the stream: each may be synced alone.
    pub(crate) fn reserved_space(&self) -> u64 {
        self.reserved + self.credits * SEAL_MAX_BYTES
    }

    /// Up to where segments are needed for `bytes` more, if they are not there.
    pub(crate) fn lacks_space(&self, bytes: u64) -> Option<u64> {
        let need = self.end() + bytes + SEAL_MAX_BYTES + self.reserved_space();
        (need > self.space_end).then_some(need)
    }

    /// Is there room for `bytes` more in a buffer of `buffer_bytes`? A frame longer than the whole has it when nothing else
    /// is there.
    pub(crate) fn has_room(&self, bytes: u64, buffer_bytes: usize) -> bool {
        let waiting = self.waiting_bytes() as u64;
        waiting == 0 || waiting + bytes <= buffer_bytes as u64
    }

    /// Memory for `bytes` more, and for the frames of all credits; so much that it will do for the next buffer, too.
    pub(crate) fn grow(&mut self, bytes: u64) -> Result<(), OutOfMemory> {
        self.buffer.grow(next_bytes(self.reserved + bytes))
    }

    /// Sets a credit for a frame of `bytes` bytes aside; the caller has checked, for a seal of its own too, and grown.
    pub(crate) fn reserve(&mut self, bytes: u64) -> Result<(), OutOfMemory> {
        let (need, has) = (next_bytes(self.reserved + bytes), self.next.as_ref().map_or(self.out_bytes, |r| r.len()));
        if has < need {
            self.next = Some(region(need.max(2 * has))?);
        }
        self.credits += 1;
        self.reserved += bytes;
        Ok(())
    }

    pub(crate) fn unreserve(&mut self, bytes: u64) {
        assert!(self.credits > 0 && self.reserved >= bytes, "a credit was given back twice");
        self.credits -= 1;
        self.reserved -= bytes;
    }

    fn tag(&mut self) -> u32 {
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
        let tag = self.tag();
        self.buffer.push(&frame_header(lsn, tag, payload));
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

    /// Takes what is to be written, if anything. `seal`: it will be synced, so it ends at a sector's end. Its memory is to
    /// [come back](Self::give_back) before more is taken.
    pub(crate) fn take(&mut self, seal: bool, durable: u64) -> Option<LogBuffer> {
        let nothing = if seal { self.buffer.end() == durable } else { self.waiting_bytes() == 0 };
        if nothing {
            return None;
        }
        let Some(next) = self.next.take() else { unreachable!("what was taken last has not come back") };
        if seal {
            let tag = self.tag();
            self.buffer.push(&padding(Lsn(self.buffer.end()), tag, Padding::Seal(Lsn(durable))));
            assert!(self.buffer.end() <= self.space_end, "a seal found no prepared space");
        }
        let taken = self.buffer.replace(next);
        self.taken = self.buffer.len();
        self.out_bytes = taken.room();
        Some(taken)
    }

    /// What was taken is written. Its memory is the next buffer's, or is given back: there is some, or it is more than `most` bytes
    /// and less can be had.
    pub(crate) fn give_back(&mut self, written: Region, most: usize) -> Option<Region> {
        self.out_bytes = 0;
        if self.next.is_some() {
            return Some(written);
        }
        let is_long = written.len() > most;
        let less = is_long.then(|| region(next_bytes(self.reserved).max(FIRST_BUFFER_BYTES)).ok()).flatten();
        match less {
            Some(less) => {
                self.next = Some(less);
                Some(written)
            }
            None => {
                self.next = Some(written);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::region;

    /// A tail with space for so many bytes.
    fn tail(space: u64) -> Tail {
        let mut tail = Tail::new(region(4096).unwrap(), region(4096).unwrap(), 0);
        tail.add_segment(0, 1, space);
        tail
    }

    /// Takes, and gives back what was written; was there anything?
    fn take(tail: &mut Tail, seal: bool, durable: &mut u64) -> bool {
        let Some(taken) = tail.take(seal, *durable) else { return false };
        if seal {
            *durable = taken.end();
        }
        tail.give_back(taken.into_region(), 64 << 10);
        true
    }

    #[test]
    fn credits_cost_the_bytes_of_their_frames() {
        let mut tail = tail(1 << 30);
        let bytes = frame_space(50) as u64;
        const CREDITS: u64 = 10_000;
        for _ in 0..CREDITS {
            assert!(tail.lacks_space(bytes + SEAL_MAX_BYTES).is_none());
            tail.grow(bytes).unwrap();
            tail.reserve(bytes).unwrap();
        }
        let frames = CREDITS * bytes;
        let next = tail.next.as_ref().unwrap().len();
        for room in [tail.buffer.room(), next] {
            assert!((frames..3 * frames).contains(&(room as u64)), "{room}");
        }
        tail.put(&[1; 50]);
        tail.unreserve(bytes);
        assert!(take(&mut tail, true, &mut 0));
        assert_eq!(tail.buffer.room(), next);
        // On disk each may be synced alone.
        assert!(tail.reserved_space() >= (CREDITS - 1) * (bytes + SEAL_MAX_BYTES));
    }

    /// Whatever is appended, promised and synced, in the least space that is granted: no seal lacks space, no credit
    /// memory.
    #[test]
    fn what_was_granted_fits() {
        for seed in 0..300u64 {
            let mut tail = tail(0);
            let (mut random, mut durable, mut credits) = (seed, 0, Vec::new());
            let mut next = |below: u64| {
                random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (random >> 33) % below
            };
            for _ in 0..60 {
                let payload = if next(3) == 0 { next(9000) } else { next(100) + 4000 } as usize;
                let bytes = frame_space(payload) as u64;
                let kind = next(6);
                let granted = if kind < 2 { bytes } else { bytes + SEAL_MAX_BYTES };
                match kind {
                    0..=3 => {
                        if let Some(upto) = tail.lacks_space(granted) {
                            // As little as a segment can end.
                            tail.space_end = crate::sector_up(upto);
                        }
                        tail.grow(bytes).unwrap();
                        match kind {
                            0..=1 => drop(tail.put(&vec![1; payload])),
                            _ => {
                                tail.reserve(bytes).unwrap();
                                credits.push(payload);
                            }
                        }
                    }
                    4 => _ = take(&mut tail, next(3) > 0, &mut durable),
                    _ => {
                        for payload in credits.drain(..) {
                            tail.put(&vec![2; payload]);
                            tail.unreserve(frame_space(payload) as u64);
                            if next(2) == 0 {
                                take(&mut tail, true, &mut durable);
                            }
                        }
                    }
                }
            }
        }
    }
}
