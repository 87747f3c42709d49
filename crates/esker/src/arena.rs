//! Memory of one memtable: a bump allocator over mmap'd regions. Allocations live as long as the arena, are aligned
//! to 8 bytes and never move; dropping the arena gives all of it back to the operating system at once.

use crate::{Error, Result};
use esker_trace::lock::Mutex;
use esker_trace::memory::{Account, Region};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

const FIRST_CHUNK_BYTES: usize = 4 << 10;
const LARGEST_CHUNK_BYTES: usize = 1 << 20;

struct Chunk {
    region: Region,
    used: AtomicUsize,
}

/// A bump allocator that any thread may allocate from.
pub(crate) struct Arena {
    current: AtomicPtr<Chunk>,
    // Boxed, so that `current` stays valid while the vector grows.
    #[allow(clippy::vec_box)]
    chunks: Mutex<Vec<Box<Chunk>>>,
    used_bytes: AtomicUsize,
}

impl Arena {
    pub(crate) fn new() -> Self {
        Arena {
            current: AtomicPtr::new(std::ptr::null_mut()),
            chunks: Mutex::new("arena.chunks", Vec::new()),
            used_bytes: AtomicUsize::new(0),
        }
    }

    /// Bytes taken from the operating system.
    pub(crate) fn used_bytes(&self) -> usize {
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// `bytes` of zero or stale memory, aligned to 8.
    pub(crate) fn allocate(&self, bytes: usize) -> Result<*mut u8> {
        let bytes = (bytes + 7) & !7;
        let chunk = self.current.load(Ordering::Acquire);
        if !chunk.is_null() {
            // SAFETY: chunks are boxed and freed only with the arena.
            if let Some(p) = unsafe { take(&*chunk, bytes) } {
                return Ok(p);
            }
        }
        self.grow(bytes)
    }

    fn grow(&self, bytes: usize) -> Result<*mut u8> {
        let mut chunks = self.chunks.lock();
        let chunk = self.current.load(Ordering::Acquire);
        if !chunk.is_null() {
            // SAFETY: as above; another thread may have grown meanwhile.
            if let Some(p) = unsafe { take(&*chunk, bytes) } {
                return Ok(p);
            }
        }
        let own_chunk = bytes > LARGEST_CHUNK_BYTES / 4;
        let size = if own_chunk {
            bytes
        } else {
            (FIRST_CHUNK_BYTES << chunks.len().min(8)).clamp(bytes, LARGEST_CHUNK_BYTES)
        };
        let region = Region::new(Account::Memtable, size)
            .map_err(|_| Error::OutOfMemory(format!("{size} bytes for a memtable")))?;
        self.used_bytes.fetch_add(region.len(), Ordering::Relaxed);
        let chunk = Box::new(Chunk { region, used: AtomicUsize::new(bytes) });
        let start = chunk.region.as_ptr().cast_mut();
        if !own_chunk {
            self.current.store(std::ptr::from_ref(&*chunk).cast_mut(), Ordering::Release);
        }
        chunks.push(chunk);
        Ok(start)
    }
}

fn take(chunk: &Chunk, bytes: usize) -> Option<*mut u8> {
    if chunk.used.load(Ordering::Relaxed) + bytes > chunk.region.len() {
        return None;
    }
    let at = chunk.used.fetch_add(bytes, Ordering::Relaxed);
    if at + bytes > chunk.region.len() {
        return None;
    }
    // The region is written through raw pointers only, each allocation by its one owner.
    Some(unsafe { chunk.region.as_ptr().cast_mut().add(at) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocations_are_aligned_and_apart() {
        let arena = Arena::new();
        let mut last = Vec::new();
        for i in 1..2000usize {
            let p = arena.allocate(i).unwrap();
            assert_eq!(p as usize % 8, 0);
            unsafe { std::ptr::write_bytes(p, i as u8, i) };
            last.push((p, i));
        }
        for (p, i) in last {
            assert!((0..i).all(|k| unsafe { *p.add(k) } == i as u8));
        }
        assert!(arena.used_bytes() >= 1999 * 1000);
    }
}
