//! A growing piece of the stream in memory, aligned for any way of writing it.
//!
//! Invariant: `base` is a multiple of the sector size; the bytes before `len` are the stream from `base` on.

use crate::{sector_up, SECTOR_BYTES};
use esker_memory::{Account, OutOfMemory, Region};

/// Buffers begin small and grow with what is written between two syncs.
pub(crate) const FIRST_BUFFER_BYTES: usize = 64 << 10;

pub(crate) struct LogBuffer {
    region: Region,
    base: u64,
    len: usize,
}

/// A region of at least `bytes` bytes, all of it usable.
pub(crate) fn region(bytes: usize) -> Result<Region, OutOfMemory> {
    let mut region = Region::new(Account::Wal, sector_up(bytes.max(1) as u64) as usize)?;
    let capacity = region.capacity() / SECTOR_BYTES as usize * SECTOR_BYTES as usize;
    region.set_len(capacity);
    Ok(region)
}

impl LogBuffer {
    /// Empty, the stream's position being `base`.
    pub(crate) fn new(region: Region, base: u64) -> Self {
        LogBuffer { region, base, len: 0 }
    }

    pub(crate) fn base(&self) -> u64 {
        self.base
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn end(&self) -> u64 {
        self.base + self.len as u64
    }

    /// Bytes that it has memory for.
    pub(crate) fn room(&self) -> usize {
        self.region.len()
    }

    /// Makes room for `more` bytes, whatever that takes.
    pub(crate) fn grow(&mut self, more: usize) -> Result<(), OutOfMemory> {
        let need = self.len + more;
        if need > self.region.len() {
            let mut larger = region(need.max(self.region.len() * 2))?;
            larger[..self.len].copy_from_slice(&self.region[..self.len]);
            self.region = larger;
        }
        Ok(())
    }

    /// Appends; there must be room.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.region[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    /// Takes everything out. What follows goes to `fresh`, into which an unfinished last sector is copied.
    pub(crate) fn replace(&mut self, fresh: Region) -> LogBuffer {
        let rest = self.len % SECTOR_BYTES as usize;
        let mut next = LogBuffer::new(fresh, self.end() - rest as u64);
        next.push(&self.region[self.len - rest..self.len]);
        std::mem::replace(self, next)
    }

    /// The contents in whole sectors, zeros at the end.
    pub(crate) fn sectors(&mut self) -> &[u8] {
        let end = sector_up(self.len as u64) as usize;
        self.region[self.len..end].fill(0);
        &self.region[..end]
    }

    pub(crate) fn into_region(self) -> Region {
        self.region
    }
}
