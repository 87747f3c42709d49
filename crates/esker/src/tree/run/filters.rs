//! Filters of a run's blocks in memory: which keys, or rows, a block does not hold, known without reading it.
//!
//! Owns where the filters of an index's blocks lie, and those that are cached: a group of them is read when it is first asked
//! for, and goes like a block (`cache.rs`). Invariant: a filter that cannot be read says of every key that it may be there, so
//! that nothing depends on one.

use crate::tree::run::bytes::CachedBytes;
use crate::tree::run::cache::Slot;
use crate::tree::run::index::Index;
use crate::tree::run::{Bytes, Run};
use crate::tree::stored::Stored;
use crate::{Error, Result};
use esker_base::counters::{count, Counter};
use esker_format::run::{may_hold, open_group, GROUP_BLOCKS, GROUP_HEADER_BYTES};
use esker_format::{FormatError, LeafEntry};
use esker_memory::{Account, Region};
use std::sync::Arc;

/// The place of a group among the cached things of an index, which are blocks otherwise.
pub(super) const GROUP: usize = 1 << 31;

/// Where filters lie.
pub(crate) struct Filters {
    groups: Box<[Group]>,
    /// Of each block: where its filter begins in its group.
    starts: Box<[u32]>,
}

struct Group {
    /// Where it begins in the file.
    offset: u64,
    bytes: u32,
    slot: Slot<Bytes>,
}

impl Filters {
    /// Of blocks with these entries; they begin at `offset` of the file.
    pub(super) fn new<E: LeafEntry>(entries: &[E], offset: u64) -> Self {
        let (mut groups, mut starts, mut at) = (Vec::new(), Vec::with_capacity(entries.len()), offset);
        for blocks in entries.chunks(GROUP_BLOCKS) {
            let mut bytes = GROUP_HEADER_BYTES;
            for entry in blocks {
                starts.push(bytes as u32);
                bytes += entry.filter_bytes();
            }
            groups.push(Group { offset: at, bytes: bytes as u32, slot: Slot::default() });
            at += bytes as u64;
        }
        Filters { groups: groups.into(), starts: starts.into() }
    }

    /// Where they begin in the file.
    #[cfg(test)]
    pub(crate) fn first_offset(&self) -> u64 {
        self.groups[0].offset
    }

    /// What they take in the file, in bytes.
    pub(super) fn stored_bytes(&self) -> u64 {
        self.groups.iter().map(|group| u64::from(group.bytes)).sum()
    }

    /// Memory that they take, but for what is cached, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.groups) + size_of_val(&*self.starts)
    }

    pub(super) fn slot(&self, group: usize) -> &Slot<Bytes> {
        &self.groups[group].slot
    }

    /// Takes all that is cached out of memory, and tells what that took.
    pub(super) fn take_all(&self) -> impl Iterator<Item = CachedBytes> + '_ {
        self.groups.iter().filter_map(|group| group.slot.take()).map(|bytes| bytes.takes())
    }
}

impl<K: Stored> Run<K> {
    /// May block `at` of an index of this run hold the key of this hash, see [`Stored::filter_hash`]?
    pub(crate) fn may_hold(&self, index: &Arc<Index<K>>, at: usize, hash: u64) -> bool {
        if index.entries()[at].filter_bytes() == 0 {
            return true;
        }
        let Some(group) = self.group(index, at) else { return true };
        let found = self.filter_in(index, &group, at).is_none_or(|filter| may_hold(filter, hash));
        count(if found { Counter::FiltersPassed } else { Counter::FiltersDenied }, 1);
        found
    }

    /// Calls `with` with the filter of block `at` of an index of this run; `None` if there is none.
    pub(crate) fn with_filter<R>(&self, index: &Arc<Index<K>>, at: usize, with: impl FnOnce(Option<&[u8]>) -> R) -> R {
        let group = self.group(index, at);
        with(group.as_ref().and_then(|group| self.filter_in(index, group, at)))
    }

    fn filter_in<'a>(&self, index: &Index<K>, group: &'a Bytes, at: usize) -> Option<&'a [u8]> {
        let start = *index.filters()?.starts.get(at)? as usize;
        group.as_ref().get(start..start + index.entries()[at].filter_bytes())
    }

    /// The group that has the filter of block `at`.
    fn group(&self, index: &Arc<Index<K>>, at: usize) -> Option<Arc<Bytes>> {
        let number = at / GROUP_BLOCKS;
        let group = index.filters()?.groups.get(number)?;
        if let Some(bytes) = group.slot.get() {
            return Some(bytes);
        }
        let bytes = Arc::new(self.note(group.offset, self.read_group(group)).ok()?);
        self.file.cache.insert_filters(index, number, &bytes);
        Some(bytes)
    }

    fn read_group(&self, group: &Group) -> Result<Bytes> {
        let file = self.file.open()?;
        let bytes = group.bytes as usize;
        let mut region = Region::new(Account::BlockCache, bytes)
            .map_err(|_| Error::OutOfMemory(format!("{bytes} bytes for filters")))?;
        file.read_at(&mut region[..bytes], group.offset)?;
        open_group(self.file_id, group.offset, &region[..bytes])
            .map_err(|e| Error::damage(&self.path(), group.offset, e))?;
        Ok(Bytes::new(region, bytes))
    }

    /// Fails if the filter of block `at`, if it has one, cannot be read or denies one of its keys.
    pub(crate) fn check_filter(&self, index: &Index<K>, at: usize, block: &K::Block) -> Result<()> {
        let Some(filters) = index.filters() else { return Ok(()) };
        let group = &filters.groups[at / GROUP_BLOCKS];
        let bytes = self.note(group.offset, self.read_group(group))?;
        let Some(filter) = self.filter_in(index, &bytes, at) else { return Ok(()) };
        match (0..K::rows(block)).find(|i| !may_hold(filter, K::filter_hash(K::key(block, *i)))) {
            None => Ok(()),
            Some(row) => {
                let reason = FormatError::Invalid { what: "key of a block that its filter denies", found: row.into() };
                Err(self.damage(index.entry(at).offset, reason))
            }
        }
    }
}
