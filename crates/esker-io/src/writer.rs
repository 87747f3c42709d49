//! Writes a file once, from start to end, in large aligned pieces: past the page cache, or through it, where it is read soon.
//!
//! Owns the buffer and the position, nothing of the contents. Every write but the last is a whole buffer at a multiple
//! of the buffer's size, so that the page cache can be bypassed; the last is padded as the file asks for and the padding
//! cut off again. Space is reserved ahead so that the file lies in few pieces. After an error the writer only repeats
//! that error; the file is the caller's to remove.

use crate::{AccessHint, Disk, File, IoError, IoKind, OpenMode, Result};
use esker_base::{count, Counter};
use esker_memory::{Account, Region};
use std::path::Path;
use std::sync::Arc;

/// Most bytes reserved ahead of the writing.
const RESERVE_AHEAD_BYTES: u64 = 64 << 20;
/// Of a file that the page cache keeps so many buffers may be on their way to the device: the sync at the end has little to
/// wait for, and nobody else's waits behind all of the file.
const MOST_BUFFERS_SENT: u64 = 8;
/// Buffers are multiples of this, whatever the file asks for.
const BUFFER_ALIGNMENT: usize = 4096;

/// See the module.
pub struct SequentialWriter {
    file: Arc<dyn File>,
    account: Account,
    buffer_bytes: usize,
    /// Taken when the first byte comes, and handed to the file with each write.
    buffer: Option<Region>,
    filled: usize,
    /// Bytes of the file before the buffer.
    written: u64,
    /// Does the page cache keep the file?
    keeps: bool,
    /// If so: bytes of it that the device has.
    arrived: u64,
    /// End of what was reserved; none when the disk has no more to reserve.
    reserved: Option<u64>,
    failure: Option<IoError>,
    /// Are writes queued to the kernel, where the disk can?
    queued: bool,
}

impl SequentialWriter {
    /// Creates the file `path` (an error if it exists) with a buffer of `buffer_bytes` bytes, rounded up to a multiple
    /// of 4096, on `account`. `hint`: [`AccessHint::Bulk`], whose queued writes take some buffers more, or [`AccessHint::Kept`].
    pub fn create(
        disk: &Arc<dyn Disk>,
        path: &Path,
        hint: AccessHint,
        buffer_bytes: usize,
        account: Account,
    ) -> Result<Self> {
        let file = disk.open(path, OpenMode::Create, hint)?;
        let alignment = file.write_alignment().max(BUFFER_ALIGNMENT);
        Ok(SequentialWriter {
            file,
            account,
            buffer_bytes: buffer_bytes.max(1).next_multiple_of(alignment),
            buffer: None,
            filled: 0,
            written: 0,
            arrived: 0,
            keeps: hint == AccessHint::Kept,
            reserved: Some(0),
            failure: None,
            queued: true,
        })
    }

    /// From now on each write is done when the call returns. For what has nothing to do meanwhile, and for threads that
    /// are not the engine's own: the kernel gives a thread that queues writes workers of its own, which stay a while.
    pub fn write_at_once(&mut self) {
        self.queued = false;
    }

    /// Adds bytes at the end, and tells the offset at which they begin.
    pub fn append(&mut self, mut bytes: &[u8]) -> Result<u64> {
        let start = self.position();
        self.check()?;
        while !bytes.is_empty() {
            let room = self.room()?;
            let n = room.len().min(bytes.len());
            room[..n].copy_from_slice(&bytes[..n]);
            bytes = &bytes[n..];
            self.advance(n)?;
        }
        Ok(start)
    }

    /// Bytes appended so far.
    pub fn position(&self) -> u64 {
        self.written + self.filled as u64
    }

    /// The file that is written.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Writes what is left, cuts the file to its exact size, makes bytes and size durable, and gives the file (open for
    /// reading too) with its size in bytes. Its name is durable only after the caller's `sync_dir`.
    pub fn finish(mut self) -> Result<(Arc<dyn File>, u64)> {
        self.check()?;
        self.write_at_once();
        let size_bytes = self.position();
        if self.filled > 0 {
            let padded = self.filled.next_multiple_of(self.file.write_alignment());
            let filled = self.filled;
            self.room()?[..padded - filled].fill(0);
            self.filled = padded;
            self.write_buffer()?;
        }
        self.buffer = None;
        self.file.drain()?;
        if self.written != size_bytes || self.reserved != Some(size_bytes) {
            // Also gives back what was reserved beyond the end.
            self.file.set_size(size_bytes)?;
        }
        self.file.sync_all()?;
        Ok((self.file.clone(), size_bytes))
    }

    fn check(&self) -> Result<()> {
        self.failure.clone().map_or(Ok(()), Err)
    }

    /// The rest of the buffer, never empty.
    fn room(&mut self) -> Result<&mut [u8]> {
        let buffer = match self.buffer.take() {
            Some(buffer) => buffer,
            None => Region::new(self.account, self.buffer_bytes)?,
        };
        Ok(&mut self.buffer.insert(buffer)[self.filled..])
    }

    fn advance(&mut self, bytes: usize) -> Result<()> {
        self.filled += bytes;
        if self.filled == self.buffer_bytes {
            self.write_buffer()?;
        }
        Ok(())
    }

    fn write_buffer(&mut self) -> Result<()> {
        let result = self.try_write_buffer();
        if let Err(error) = &result {
            self.failure = Some(error.clone());
        }
        result
    }

    fn try_write_buffer(&mut self) -> Result<()> {
        let Some(buffer) = self.buffer.take() else {
            return Ok(());
        };
        self.reserve()?;
        count(Counter::BufferWrites, 1);
        self.buffer = if self.queued {
            self.file.submit_write(buffer, self.filled, self.written)?
        } else {
            self.file.write_at(&buffer[..self.filled], self.written)?;
            Some(buffer)
        };
        let sent = std::mem::take(&mut self.filled) as u64;
        self.written += sent;
        if self.keeps {
            self.send(sent)?;
        }
        Ok(())
    }

    /// Sends the last bytes that were written to the device, and waits for what was sent some time ago.
    fn send(&mut self, bytes: u64) -> Result<()> {
        count(Counter::BufferWritesKept, 1);
        self.file.write_back(self.written - bytes, bytes, false)?;
        let arrived = self.written.saturating_sub(MOST_BUFFERS_SENT * self.buffer_bytes as u64);
        if arrived > self.arrived {
            self.file.write_back(self.arrived, arrived - self.arrived, true)?;
            self.arrived = arrived;
        }
        Ok(())
    }

    /// Reserves ahead as much as was written already, so that small files reserve little.
    fn reserve(&mut self) -> Result<()> {
        let Some(reserved) = self.reserved else {
            return Ok(());
        };
        let end = self.position();
        // A file of one write gets its space by that write.
        if end <= reserved || self.written == 0 {
            return Ok(());
        }
        let start = reserved.max(self.written);
        let step = self.written.clamp(4 * self.buffer_bytes as u64, RESERVE_AHEAD_BYTES);
        let target = (start + step).max(end);
        match self.file.reserve(start, target - start) {
            Ok(()) => self.reserved = Some(target),
            // What is really needed may still fit: the write will tell.
            Err(error) if error.kind == IoKind::DiskFull => self.reserved = None,
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
