//! Memory of one memtable: a bump allocator over mmap'd regions. Allocations live as long as the arena, are aligned
//! to 8 bytes and never move; dropping the arena gives all of it back to the operating system at once.

use crate::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use crate::sync::{order, Mutex};
use crate::{Error, Result};
use esker_memory::{Account, Region};
use std::ptr::NonNull;

const FIRST_CHUNK_BYTES: usize = 4 << 10;
const LARGEST_CHUNK_BYTES: usize = 1 << 20;

/// The region is never borrowed as a slice while allocations of it are written: start and size are taken once.
struct Chunk {
    start: NonNull<u8>,
    bytes: usize,
    _region: Region,
    used: AtomicUsize,
}

/// A box by its raw pointer: `current` stays valid whoever moves it.
struct OwnedChunk(NonNull<Chunk>);

// SAFETY: the pointers are to what the chunk owns alone; the chunk's own is only handed out.
unsafe impl Send for OwnedChunk {}

impl Drop for OwnedChunk {
    fn drop(&mut self) {
        // SAFETY: of a box, and dropped once.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

/// A bump allocator that any thread may allocate from.
pub(crate) struct Arena {
    current: AtomicPtr<Chunk>,
    chunks: Mutex<Vec<OwnedChunk>>,
    used_bytes: AtomicUsize,
}

impl Arena {
    pub(crate) fn new() -> Self {
        Arena {
            current: AtomicPtr::new(std::ptr::null_mut()),
            chunks: Mutex::new(&order::ARENA_CHUNKS, Vec::new()),
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
        let start = region.base();
        let chunk = Chunk { start, bytes: region.len(), _region: region, used: AtomicUsize::new(bytes) };
        let chunk = OwnedChunk(NonNull::from(Box::leak(Box::new(chunk))));
        if !own_chunk {
            self.current.store(chunk.0.as_ptr(), Ordering::Release);
        }
        chunks.push(chunk);
        Ok(start.as_ptr())
    }
}

fn take(chunk: &Chunk, bytes: usize) -> Option<*mut u8> {
    if chunk.used.load(Ordering::Relaxed) + bytes > chunk.bytes {
        return None;
    }
    let at = chunk.used.fetch_add(bytes, Ordering::Relaxed);
    if at + bytes > chunk.bytes {
        return None;
    }
    // SAFETY: within the region, whose pointer may write all of it; each allocation is its one owner's.
    Some(unsafe { chunk.start.add(at).as_ptr() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocations_are_aligned_and_apart() {
        let arena = Arena::new();
        let mut last = Vec::new();
        let most = if cfg!(miri) { 300 } else { 2000 };
        for i in 1..most {
            let p = arena.allocate(i).unwrap();
            assert_eq!(p as usize % 8, 0);
            unsafe { std::ptr::write_bytes(p, i as u8, i) };
            last.push((p, i));
        }
        for (p, i) in last {
            assert!((0..i).all(|k| unsafe { *p.add(k) } == i as u8));
        }
        assert!(arena.used_bytes() >= (most - 1) * most / 2);
    }
    /// Each thread writes what it was given while others are given more of the same chunk.
    #[test]
    fn threads_write_beside_each_other() {
        let arena = Arena::new();
        let rounds = if cfg!(miri) { 40 } else { 2000 };
        std::thread::scope(|s| {
            for t in 1..=3u8 {
                let arena = &arena;
                s.spawn(move || {
                    for i in 1..rounds {
                        let bytes = 1 + i % 50;
                        let p = arena.allocate(bytes).unwrap();
                        // SAFETY: just allocated, and this thread's alone.
                        unsafe {
                            std::ptr::write_bytes(p, t, bytes);
                            assert!((0..bytes).all(|k| *p.add(k) == t));
                        }
                    }
                });
            }
        });
    }
}
