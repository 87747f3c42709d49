//! What the leader writes, and how it becomes durable.
//!
//! **The rule.** A group is one write in each segment that it touches. That write may itself be the durable one
//! ([`SyncMethod::Dsync`], [`SyncMethod::Uring`]) if nothing else in the segment awaits a sync, or if the method covers what was
//! written to the file before; else it is followed by a sync of the file. Only writes without a sync
//! ([`Wal::write_out`](crate::Wal::write_out)) leave something behind that awaits one.
//!
//! Invariants: `unsynced` is the segment with bytes that nothing covers yet, of which there is one at most: before the first
//! byte goes into another segment, all of the one before is durable. A group costs one device flush a segment, whatever the
//! method.

use crate::chain::Chain;
use crate::segment::Segment;
use crate::Result;
use esker_io::SyncMethod;
use std::sync::Arc;

/// What only the leader touches.
pub(crate) struct Writer {
    method: SyncMethod,
    unsynced: Option<Arc<Segment>>,
}

impl Writer {
    pub(crate) fn new(method: SyncMethod) -> Self {
        Writer { method, unsynced: None }
    }

    /// Writes whole sectors, which are the stream from `at` on; `durably`: they are to be synced before anybody is told. What
    /// still needs a sync then, [`sync`](Self::sync) gives.
    pub(crate) fn write(&mut self, chain: &Chain, mut bytes: &[u8], mut at: u64, durably: bool) -> Result<()> {
        while !bytes.is_empty() {
            let segment = chain.find(at)?;
            if let Some(before) = self.unsynced.take_if(|s| s.generation != segment.generation) {
                // Whatever is found in a segment proves that those before it were durable. The durable position stays:
                // it lies between frames, which a segment's end does not.
                before.file.sync_data()?;
            }
            let length = (segment.end - at).min(bytes.len() as u64) as usize;
            let (piece, offset) = (&bytes[..length], segment.offset(at));
            if durably && self.is_durable_at_once() {
                segment.file.write_durably(piece, offset, self.method)?;
                self.unsynced = None;
            } else {
                segment.file.write_at(piece, offset)?;
                self.unsynced = Some(segment);
            }
            at += length as u64;
            bytes = &bytes[length..];
        }
        Ok(())
    }

    /// May the next write be the durable one? It goes to the segment that awaits a sync, if there is one.
    fn is_durable_at_once(&self) -> bool {
        match self.method {
            SyncMethod::Fdatasync => false,
            method => method.covers_earlier() || self.unsynced.is_none(),
        }
    }

    /// Is there something that needs a sync?
    pub(crate) fn awaits_sync(&self) -> bool {
        self.unsynced.is_some()
    }

    /// Makes durable what was written and is not yet.
    pub(crate) fn sync(&mut self) -> Result<()> {
        match self.unsynced.take() {
            Some(segment) => Ok(segment.file.sync_data()?),
            None => Ok(()),
        }
    }
}
