//! Owns what a block's reader asks of whoever holds the block's stored bytes: memory for what is made of them.

use crate::codec::zeros;
use crate::error::FormatError;
use std::ops::DerefMut;

/// The stored bytes of a block, with what follows it ignored, and memory for the content that they decode to.
pub trait BlockBytes: AsRef<[u8]> {
    /// Memory of its own, until it is dropped. Its bytes stay where they are and as they are when it is moved.
    type Room: DerefMut<Target = [u8]>;

    /// Told once, by a block that has been opened: its rooms, those that it has and those that it will ask for, have this many bytes
    /// together (more where what is damaged is tried again); what it has on the heap besides has at most `others` bytes.
    fn note_memory(&mut self, rooms: usize, others: usize);

    /// Of the stored bytes only the first `bytes` are needed from now on; the rest may go.
    fn keep(&mut self, _bytes: usize) {}

    /// A room of `bytes` bytes; what is in it is unspecified. `None` where there is no memory for it.
    fn room(&self, bytes: usize) -> Option<Self::Room>;
}

impl BlockBytes for &[u8] {
    type Room = Vec<u8>;

    fn note_memory(&mut self, _: usize, _: usize) {}

    fn room(&self, bytes: usize) -> Option<Vec<u8>> {
        zeros(bytes).ok()
    }
}

/// The room, or the error that there is none.
pub(crate) fn room<B: BlockBytes>(of: &B, bytes: usize) -> Result<B::Room, FormatError> {
    of.room(bytes).filter(|room| room.len() == bytes).ok_or(FormatError::OutOfMemory { bytes: bytes as u64 })
}
