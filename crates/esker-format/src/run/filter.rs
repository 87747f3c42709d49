//! Owns the filters of blocks: which keys, or rows, a block does not hold, without reading it. Each block has one, a split block
//! Bloom filter as in Apache Parquet's specification (after Putze, Sanders and Singler, "Cache-, Hash- and Space-Efficient
//! Bloom Filters", 2007); those of consecutive blocks lie together in a group, which is read and checked as one.
//! Invariant: how long a filter is follows from what the index says of its block ([`LeafEntry::filter_bytes`]), so no table says
//! where filters lie. One without bytes denies nothing.
//!
//! [`LeafEntry::filter_bytes`]: super::LeafEntry::filter_bytes

use super::block_context;
use crate::block::BlockEntry;
use crate::codec::{get_u32, get_u64};
use crate::error::FormatError;
use crate::ids::{FileId, RowId};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// Blocks of a group.
pub const GROUP_BLOCKS: usize = 32;
/// What a group has before its filters: their checksum.
pub const GROUP_HEADER_BYTES: usize = 8;
/// A filter is made of so many bytes at a time, of which a key concerns those of one place.
const LANE_BYTES: usize = 32;
/// At ten bits a key about one in a hundred keys that are not there may be, for all that a filter says.
const BITS_A_KEY: usize = 10;
/// Odd numbers, one for each word of a lane: those of the specification.
const SALTS: [u32; LANE_BYTES / 4] =
    [0x47b6_137b, 0x4497_4d91, 0x8824_ad5b, 0xa2b7_289d, 0x7054_95c7, 0x2df1_424b, 0x9efc_4947, 0x5c6b_fb31];

/// Length of the filter of a row block: none where more than half of the ids from its first to its last are there, since it
/// would deny little.
pub(super) fn row_filter_bytes(block: &BlockEntry) -> usize {
    match block.last_id.0 - block.first_id.0 >= 2 * u64::from(block.rows) {
        true => filter_bytes(block.rows),
        false => 0,
    }
}

/// Length of the filter of a block with so many versions of keys.
#[must_use]
pub fn filter_bytes(versions: u32) -> usize {
    (versions as usize * BITS_A_KEY).div_ceil(8 * LANE_BYTES).max(1) * LANE_BYTES
}

/// What filters know of a key.
#[must_use]
pub fn filter_hash(key: &[u8]) -> u64 {
    xxh3_64(key)
}

/// What filters know of a row.
#[must_use]
pub fn row_filter_hash(row: RowId) -> u64 {
    xxh3_64(&row.0.to_le_bytes())
}

/// Which lane of so many a key concerns, and which bit of each of its words.
fn place(hash: u64, lanes: usize) -> (usize, impl Iterator<Item = u32>) {
    let lane = ((hash >> 32) * lanes as u64) >> 32;
    let low = hash as u32;
    (lane as usize, SALTS.iter().map(move |salt| 1 << (low.wrapping_mul(*salt) >> 27)))
}

/// May a block whose filter this is hold a key with this hash?
#[must_use]
pub fn may_hold(filter: &[u8], hash: u64) -> bool {
    let (lane, bits) = place(hash, filter.len() / LANE_BYTES);
    let words = filter.chunks_exact(4).skip(lane * SALTS.len());
    words.zip(bits).all(|(word, bit)| get_u32(word, 0) & bit != 0)
}

/// Adds the key with this hash to a filter, of a multiple of 32 bytes.
pub fn add_key(filter: &mut [u8], hash: u64) {
    let (lane, bits) = place(hash, filter.len() / LANE_BYTES);
    for (word, bit) in filter[lane * LANE_BYTES..].chunks_exact_mut(4).zip(bits) {
        let with = get_u32(word, 0) | bit;
        word.copy_from_slice(&with.to_le_bytes());
    }
}

/// The filters of a part's blocks, as they are gathered.
#[derive(Debug, Default)]
pub struct Filters {
    /// In their order, without headers.
    bytes: Vec<u8>,
    blocks: usize,
    /// Where each group but the first begins.
    groups: Vec<usize>,
}

impl Filters {
    /// Adds the filter of the next block, `bytes` long; without hashes of all its keys one that says of each key that it may be
    /// there.
    pub fn add(&mut self, bytes: usize, hashes: Option<&[u64]>) {
        let filter = self.next(bytes);
        let Some(hashes) = hashes.filter(|_| bytes > 0) else { return filter.fill(0xff) };
        hashes.iter().for_each(|hash| add_key(filter, *hash));
    }

    /// Adds the filter of a block that is copied, `bytes` long. One of another length is none.
    pub fn copy(&mut self, bytes: usize, filter: &[u8]) {
        let to = self.next(bytes);
        match to.len() == filter.len() {
            true => to.copy_from_slice(filter),
            false => to.fill(0xff),
        }
    }

    /// Do they deny nothing, none of them?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    fn next(&mut self, bytes: usize) -> &mut [u8] {
        let start = self.bytes.len();
        if self.blocks > 0 && self.blocks % GROUP_BLOCKS == 0 {
            self.groups.push(start);
        }
        self.blocks += 1;
        self.bytes.resize(start + bytes, 0);
        &mut self.bytes[start..]
    }

    /// Appends the section. `base`: where `out` begins in the file.
    pub(super) fn encode(&self, file: FileId, base: u64, out: &mut Vec<u8>) {
        let begins = (self.blocks > 0).then_some(0).into_iter().chain(self.groups.iter().copied());
        let ends = self.groups.iter().copied().chain([self.bytes.len()]);
        for group in begins.zip(ends).map(|(from, to)| &self.bytes[from..to]) {
            let checksum = checksum(file, base + out.len() as u64, group);
            out.extend_from_slice(&checksum.to_le_bytes());
            out.extend_from_slice(group);
        }
    }

    /// Memory that they take, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity()
    }
}

fn checksum(file: FileId, offset: u64, filters: &[u8]) -> u64 {
    xxh3_64_with_seed(filters, block_context(file, offset))
}

/// The filters of a group, all of whose `bytes` begin at `offset` of the file.
pub fn open_group(file: FileId, offset: u64, bytes: &[u8]) -> Result<&[u8], FormatError> {
    crate::codec::need("group of filters", bytes, GROUP_HEADER_BYTES)?;
    let (header, filters) = bytes.split_at(GROUP_HEADER_BYTES);
    let (expected, found) = (get_u64(header, 0), checksum(file, offset, filters));
    match expected == found {
        true => Ok(filters),
        false => Err(FormatError::Checksum { expected, found }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hashes(from: u32, keys: u32) -> Vec<u64> {
        (from..from + keys).map(|n| filter_hash(&n.to_be_bytes())).collect()
    }

    #[test]
    fn no_key_is_missed_and_few_are_taken_for_it() {
        for keys in [1, 2, 25, 26, 700, 5000] {
            let mut filters = Filters::default();
            filters.add(filter_bytes(keys), Some(&hashes(0, keys)));
            assert_eq!(filters.bytes.len(), filter_bytes(keys));
            assert!(hashes(0, keys).iter().all(|hash| may_hold(&filters.bytes, *hash)));
            let others = hashes(1 << 20, 20_000).iter().filter(|hash| may_hold(&filters.bytes, **hash)).count();
            assert!(others < 20_000 / 40, "{others} of 20000 others with {keys} keys");
        }
    }

    #[test]
    fn groups_are_read_alone_and_at_their_place_only() {
        let (mut filters, file) = (Filters::default(), FileId(7));
        let blocks = GROUP_BLOCKS as u32 + 3;
        (0..blocks).for_each(|block| filters.add(filter_bytes(100 + block), Some(&hashes(1000 * block, 100))));
        filters.copy(32, &[0; 32]);
        filters.copy(32, &[0; 64]);
        filters.add(32, None);
        let (base, mut out) = (4096, vec![0; 10]);
        filters.encode(file, base, &mut out);
        let first: usize = (0..GROUP_BLOCKS as u32).map(|block| filter_bytes(100 + block)).sum();
        let (one, two) = (10..10 + 8 + first, 10 + 8 + first..out.len());
        let offset = |at: usize| base + at as u64;
        assert_eq!(open_group(file, offset(one.start), &out[one.clone()]).unwrap().len(), first);
        let last = open_group(file, offset(two.start), &out[two.clone()]).unwrap();
        let behind = last.len() - 3 * LANE_BYTES;
        assert!(may_hold(&last[..filter_bytes(100 + GROUP_BLOCKS as u32)], hashes(1000 * GROUP_BLOCKS as u32, 1)[0]));
        assert!(!may_hold(&last[behind..behind + 32], 1), "copied");
        assert!(may_hold(&last[behind + 32..behind + 64], 1) && may_hold(&last[behind + 64..], 1), "unknown");
        assert!(open_group(file, offset(two.start), &out[one.clone()]).is_err(), "another place");
        assert!(open_group(FileId(8), offset(one.start), &out[one.clone()]).is_err(), "another file");
        out[one.start + 100] ^= 1;
        assert!(open_group(file, offset(one.start), &out[one]).is_err(), "a bit");
        assert!(open_group(file, base, &[0; 7]).is_err());
    }

    #[test]
    fn rows_that_lie_close_together_have_none() {
        let block = |first: u64, last: u64, rows| BlockEntry {
            first_id: RowId(first),
            last_id: RowId(last),
            rows,
            ..BlockEntry::default()
        };
        assert_eq!(row_filter_bytes(&block(10, 109, 100)), 0);
        assert_eq!(row_filter_bytes(&block(10, 209, 100)), 0);
        assert_eq!(row_filter_bytes(&block(10, 210, 100)), filter_bytes(100));
        assert_eq!(row_filter_bytes(&block(0, u64::MAX, u32::MAX)), filter_bytes(u32::MAX));
        assert!(may_hold(&[], row_filter_hash(RowId(7))), "without bytes");
    }

    /// Of a group none of whose blocks has a filter there is the header, so that the next is found.
    #[test]
    fn a_group_without_filters_has_its_place() {
        let (mut filters, file, mut out) = (Filters::default(), FileId(7), Vec::new());
        filters.encode(file, 0, &mut out);
        assert!(out.is_empty() && filters.is_empty());
        (0..GROUP_BLOCKS).for_each(|_| filters.add(0, Some(&[])));
        assert!(filters.is_empty());
        filters.add(32, Some(&[row_filter_hash(RowId(1))]));
        filters.encode(file, 64, &mut out);
        assert_eq!(open_group(file, 64, &out[..8]), Ok(&[][..]));
        let last = open_group(file, 72, &out[8..]).unwrap();
        assert!(may_hold(last, row_filter_hash(RowId(1))) && !may_hold(last, row_filter_hash(RowId(2))));
    }
}
