//! Reading ahead: who comes to a run's blocks one after the other has those that lie beside each other read by one call.
//!
//! Owns how many: one at first, then twice as many each time, so that who wants little reads little; as many at most as the
//! session asked for, and as a small share of the cache holds, so that they are still there when their reader comes to them. And of
//! what the system is told beforehand, which reads nothing else along where memory is short.
//! Invariants: a block that was read along is checked as any other before it comes into the cache; what is wrong with it is
//! told to nobody but who comes to it, and reads it by itself.

use super::{count_source, Run};
use crate::tree::run::bytes::Bytes;
use crate::tree::run::index::Index;
use crate::tree::stored::Stored;
use crate::Result;
use esker_base::counters::{count, Counter};
use esker_base::trace::Source;
use esker_format::LeafEntry;
use esker_memory::{Account, Region};
use std::ops::Range;
use std::sync::Arc;

/// Bytes of one read at most.
const MOST_BYTES: u64 = 1 << 20;
/// Who has missed so many blocks one after the other goes through much of the run: the system is told of those that follow,
const MISSED: u32 = 4;
/// of so many at first, and twice as many each time, up to so many.
const TOLD: Range<usize> = 8..128;
/// Who reads blocks past the cache, one after the other, tells of so many more each time he has come so far.
const TOLD_IN_ORDER: usize = 32;
/// Bytes of which the system is told at a time at most, but for the last block.
const MOST_TOLD_BYTES: u64 = 4 << 20;
/// Of the cache one in so many at most: a new block is pushed out once a tenth of the cache has come after it.
const SHARE_OF_CACHE: u64 = 64;

/// How somebody reads a run from block to block.
pub(crate) struct Ahead {
    most: u32,
    /// By the last read.
    many: u32,
    /// Blocks before this one it has read along.
    end: usize,
    /// Who answered that read.
    source: Option<Source>,
    /// So many blocks have not been in memory, one after the other.
    missed: u32,
    /// The system was told of the blocks before this one, of so many the last time.
    told: usize,
    told_of: usize,
}

impl Ahead {
    /// So many blocks at most by one read.
    pub(crate) fn new(most: u32) -> Ahead {
        Ahead { most, many: 0, end: 0, source: None, missed: 0, told: 0, told_of: 0 }
    }

    /// Block `at` is not in memory: the blocks of which the system is to be told now.
    fn next_told(&mut self, at: usize) -> Option<Range<usize>> {
        self.missed += 1;
        // As long as half of what it was told of last lies ahead it is busy enough.
        if self.missed < MISSED || at + self.told_of / 2 < self.told {
            return None;
        }
        let from = self.told.max(at + 1);
        self.told_of = (self.told_of * 2).clamp(TOLD.start, TOLD.end);
        self.told = from + self.told_of;
        Some(from..self.told)
    }

    fn next(&mut self) -> usize {
        self.many = (self.many * 2).clamp(1, self.most.max(1));
        self.many as usize
    }
}

impl<K: Stored> Run<K> {
    /// As [`block`](Self::block), for who goes on to those behind it, before `end`.
    pub(crate) fn block_ahead(
        &self,
        index: &Arc<Index<K>>,
        at: usize,
        end: usize,
        ahead: &mut Ahead,
    ) -> Result<Arc<K::Block>> {
        if at < ahead.end {
            // It was not in memory before this reader came. To find it there is no use of it: a scan is not to sweep the cache.
            if let Some(block) = index.slot(at).look() {
                count(Counter::BlocksMissed, 1);
                count_source(ahead.source);
                return Ok(block);
            }
        }
        let is_here = index.slot(at).is_here();
        match is_here {
            true => ahead.missed = 0,
            false => self.tell(index, end, ahead.next_told(at)),
        }
        if ahead.most > 1 && !is_here {
            let many = ahead.next();
            let beside = self.beside(index, at..end.min(at + many));
            if beside.len() > 1 {
                if let Some((block, source)) = self.read_together(index, beside.clone()) {
                    (ahead.end, ahead.source) = (beside.end, source);
                    count(Counter::BlocksMissed, 1);
                    count_source(source);
                    return Ok(block);
                }
            }
        }
        self.block(index, at)
    }

    /// Somebody reads one block after the other past the cache, and comes to this one.
    pub(super) fn tell_in_order(&self, index: &Index<K>, at: usize) {
        if at % TOLD_IN_ORDER == 0 {
            self.tell(index, index.entries().len(), Some(at..at + 2 * TOLD_IN_ORDER));
        }
    }

    /// These blocks before `last` will be read soon: the system is told of those that lie beside each other.
    fn tell(&self, index: &Index<K>, last: usize, blocks: Option<Range<usize>>) {
        let last = last.min(index.entries().len());
        let Some(blocks) = blocks.map(|b| b.start..b.end.min(last)).filter(|b| b.start < b.end) else { return };
        let first = index.entry(blocks.start);
        let mut end = first.offset;
        for entry in index.entries()[blocks].iter().map(LeafEntry::block) {
            if entry.offset != end || end - first.offset >= MOST_TOLD_BYTES {
                break;
            }
            end += u64::from(entry.stored_bytes);
        }
        // Who then reads them finds out what is wrong.
        if let Ok(file) = self.file.open() {
            file.will_need(first.offset, end - first.offset);
            count(Counter::ReadsAnnounced, 1);
        }
    }

    /// Of these blocks the first ones that lie beside each other in the file, are not in memory, and are not too much.
    fn beside(&self, index: &Index<K>, blocks: Range<usize>) -> Range<usize> {
        let most = MOST_BYTES.min(self.file.cache.limit() / SHARE_OF_CACHE);
        let (first, mut raw) = (blocks.start, 0);
        let mut behind = index.entry(first).offset;
        let fits = |at: &usize| {
            let entry = index.entry(*at);
            raw += u64::from(entry.stored_bytes.max(entry.raw_bytes));
            let is_next = entry.offset == behind && (*at == first || (raw <= most && !index.slot(*at).is_here()));
            behind = entry.offset + u64::from(entry.stored_bytes);
            is_next
        };
        first..first + blocks.take_while(fits).count()
    }

    /// Reads blocks that lie beside each other into the cache; the first of them, and who answered. None: it is to be read by itself,
    /// and then tells why.
    fn read_together(&self, index: &Arc<Index<K>>, blocks: Range<usize>) -> Option<(Arc<K::Block>, Option<Source>)> {
        let (first, last) = (index.entry(blocks.start), index.entry(blocks.end - 1));
        let bytes = (last.offset + u64::from(last.stored_bytes) - first.offset) as usize;
        let mut all = Region::new(Account::BlockCache, bytes).ok()?;
        let source = self.file.open().ok()?.read_at_from(&mut all[..bytes], first.offset).ok()?;
        let mut wanted = None;
        for at in blocks.clone() {
            let entry = index.entry(at);
            let from = (entry.offset - first.offset) as usize;
            let stored = &all[from..from + entry.stored_bytes as usize];
            let Some(block) = self.open_copy(index, at, stored) else { break };
            let block = Arc::new(block);
            self.file.cache.insert(index, at, &block);
            if wanted.is_some() {
                count(Counter::BlocksReadAhead, 1);
            }
            wanted.get_or_insert(block);
        }
        wanted.map(|block| (block, source))
    }

    fn open_copy(&self, index: &Index<K>, at: usize, stored: &[u8]) -> Option<K::Block> {
        let mut region = Region::new(Account::BlockCache, stored.len()).ok()?;
        region[..stored.len()].copy_from_slice(stored);
        let whole = &index.entries()[at];
        let opened = self.open_entry(whole, Bytes::new(region, stored.len())).ok()?;
        self.note(whole.block().offset, Ok(opened)).ok()
    }
}

#[cfg(test)]
mod tests;
