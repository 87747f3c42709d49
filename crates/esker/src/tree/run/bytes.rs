//! The memory of a block that is read from a run: what is stored, and what is made of it. A group of filters has the first alone.
//!
//! Owns how it is accounted. Invariant: all that a block keeps but its small things (its directory, some lengths) lies in regions,
//! which go back to the operating system with it; all of it is on the account of the cache. What opening a key block decompresses
//! aside is on the heap until it is open.

use esker_format::BlockBytes;
use esker_memory::{Account, Charge, Region, Share, Shares};
use std::sync::OnceLock;

const ACCOUNT: Account = Account::BlockCache;

/// What was read of a run's file, in a region.
pub(crate) struct Bytes {
    region: Region,
    bytes: usize,
    /// How much the block's rooms take, once that is known.
    expected: usize,
    rooms: OnceLock<Shares>,
    others: Charge,
}

/// What something takes while it is cached.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct CachedBytes {
    /// Without its rooms.
    pub(crate) kept: u64,
    /// With all that its rooms will take, once they are asked for.
    pub(crate) most: u64,
}

impl std::iter::Sum for CachedBytes {
    fn sum<I: Iterator<Item = CachedBytes>>(all: I) -> CachedBytes {
        all.fold(CachedBytes::default(), |sum, one| CachedBytes {
            kept: sum.kept + one.kept,
            most: sum.most + one.most,
        })
    }
}

impl Bytes {
    /// The first `bytes` bytes of the region; what follows is room.
    pub(crate) fn new(region: Region, bytes: usize) -> Self {
        Bytes { region, bytes, expected: 0, rooms: OnceLock::new(), others: Charge::new(ACCOUNT, 0) }
    }

    /// Memory that it takes without its rooms.
    fn kept_bytes(&self) -> usize {
        self.region.capacity() + self.others.bytes() as usize
    }

    /// Memory that its rooms will take, if none has been asked for yet.
    pub(crate) fn awaited_bytes(&self) -> usize {
        match self.rooms.get() {
            None if self.expected > 0 => Region::capacity_of(self.expected),
            _ => 0,
        }
    }

    /// What it takes while it is cached, which is the same as long as it lives.
    pub(crate) fn takes(&self) -> CachedBytes {
        let kept = self.kept_bytes();
        let rooms = self.rooms.get().map_or_else(|| self.awaited_bytes(), Shares::capacity);
        CachedBytes { kept: kept as u64, most: (kept + rooms) as u64 }
    }

    /// Memory that all of it takes now.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.kept_bytes() + self.rooms.get().map_or(0, Shares::capacity)
    }
}

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        &self.region[..self.bytes]
    }
}

impl BlockBytes for Bytes {
    type Room = Share;

    fn note_memory(&mut self, rooms: usize, others: usize) {
        self.expected = rooms;
        self.others.resize(others as u64);
    }

    fn keep(&mut self, bytes: usize) {
        if Region::capacity_of(bytes) < self.region.capacity() {
            // Without memory for fewer all stay.
            if let Ok(mut fewer) = Region::new(ACCOUNT, bytes) {
                fewer[..bytes].copy_from_slice(&self.region[..bytes]);
                (self.region, self.bytes) = (fewer, bytes);
            }
        }
    }

    fn room(&self, bytes: usize) -> Option<Share> {
        let rooms = match self.rooms.get() {
            Some(rooms) => rooms,
            None => {
                let made = Shares::new(ACCOUNT, self.expected.max(bytes)).ok()?;
                self.rooms.get_or_init(|| made)
            }
        };
        // A damaged part that is tried again and again takes its share each time.
        rooms.take(bytes).or_else(|| Shares::new(ACCOUNT, bytes).ok()?.take(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_block_takes_is_counted_as_it_takes_it() {
        let region = Region::new(ACCOUNT, 5000).unwrap();
        let mut bytes = Bytes::new(region, 4999);
        assert_eq!((bytes.as_ref().len(), bytes.memory_bytes()), (4999, 8192));
        bytes.note_memory(9000, 70);
        assert_eq!((bytes.memory_bytes(), bytes.awaited_bytes()), (8192 + 70, 12288));
        let takes = CachedBytes { kept: 8192 + 70, most: 8192 + 12288 + 70 };
        assert_eq!(bytes.takes(), takes);
        let rooms = [4000, 5000].map(|n| bytes.room(n).unwrap());
        assert_eq!(bytes.takes(), takes);
        assert_eq!((bytes.memory_bytes(), bytes.awaited_bytes()), (8192 + 12288 + 70, 0));
        assert_eq!(bytes.kept_bytes(), 8192 + 70);
        assert_eq!(rooms[1].as_ptr() as usize, rooms[0].as_ptr() as usize + 4000);
        // More than was told: from elsewhere.
        assert_eq!(bytes.room(4000).unwrap().len(), 4000);
    }
}
