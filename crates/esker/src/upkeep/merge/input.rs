//! One of the runs that are merged: where it stands, and what comes next in it.
//!
//! Invariants: it goes from block to block in order, and reads a block when something of it is needed that the index does not
//! tell, past the cache; of the block it stands in only what lies before `end` is to be read.

use super::*;
use crate::tally::tally;
use crate::tree::run::index::Index;
use crate::tree::stored::may_meet;

pub(super) struct Input<K: Stored> {
    pub(super) handle: RunHandle<K>,
    pub(super) blocks: Arc<Index<K>>,
    pub(super) index: usize,
    pub(super) block: Option<Arc<K::Block>>,
    pub(super) at: u32,
    /// Of the block only what lies before is to be read.
    end: u32,
    /// The block behind it, where that had to be looked at.
    ahead: Option<(usize, Arc<K::Block>)>,
    /// The last key to be read.
    pub(super) last: K::Own,
    /// Some of it is in the output, or was dropped.
    pub(super) taken: bool,
}

/// What was read of the inputs.
#[derive(Default)]
pub(super) struct Read {
    pub(super) blocks: u64,
    /// Behind what some of the input was taken of: what was read to find where it begins is nothing done.
    pub(super) bytes: u64,
    /// How many blocks there are to be read.
    pub(super) of_blocks: u64,
}

impl<K: Stored> Input<K> {
    /// Stands on the first of the handle's keys from `first` to `last`.
    pub(super) fn new(
        handle: &RunHandle<K>,
        blocks: Arc<Index<K>>,
        first: K::Ref<'_>,
        last: K::Own,
        read: &mut Read,
    ) -> Result<Self> {
        let index = handle.run.seek_beside_cache(&blocks, first)?;
        let mut input = Input {
            handle: handle.clone(),
            blocks,
            index,
            block: None,
            at: 0,
            end: 0,
            ahead: None,
            last,
            taken: false,
        };
        while let Some(entry) = input.blocks.entries().get(input.index) {
            if K::is_first_known(entry) && K::cmp(K::first(entry), first).is_ge() {
                break;
            }
            let block = input.open(read)?;
            input.at = K::lower_bound(&block, first);
            if input.at < K::rows(&block) {
                break;
            }
            // All of it lies before, for all that the index knew.
            (input.block, input.at, input.index) = (None, 0, input.index + 1);
        }
        Ok(input)
    }

    /// The key it stands on, or what its next block begins with; nothing is read.
    pub(super) fn peek(&self) -> Option<K::Ref<'_>> {
        if self.is_open() {
            return self.key();
        }
        let key = self.blocks.entries().get(self.unread_block()?).map(K::first);
        key.filter(|key| K::cmp(*key, K::lend(&self.last)).is_le())
    }

    /// The block that it comes to next, if it stands before it and has read nothing of it.
    fn unread_block(&self) -> Option<usize> {
        let index = match &self.block {
            None => self.index,
            Some(block) if self.at >= K::rows(block) => self.index + 1,
            Some(_) => return None,
        };
        (index < self.blocks.entries().len()).then_some(index)
    }

    /// Does it stand in a block that is open?
    pub(super) fn is_open(&self) -> bool {
        self.block.as_ref().is_some_and(|block| self.at < K::rows(block))
    }

    /// Is it on its [key](Self::peek), or may that come later?
    pub(super) fn is_known(&self) -> bool {
        self.is_open() || self.unread_block().is_some_and(|i| K::is_first_known(&self.blocks.entries()[i]))
    }

    /// The block that it comes to next, if it has taken nothing of it.
    pub(super) fn next_block(&self) -> Option<usize> {
        match self.is_open() {
            true => (self.at == 0).then_some(self.index),
            false => self.unread_block(),
        }
    }

    /// Does the block behind this one begin with `last`, the greatest key of this?
    pub(super) fn goes_on_behind(&mut self, index: usize, last: K::Ref<'_>, read: &mut Read) -> Result<bool> {
        let entries = self.blocks.entries();
        let Some(next) = entries.get(index + 1).filter(|next| may_meet::<K>(&entries[index], next)) else {
            return Ok(false);
        };
        if K::is_first_known(next) {
            return Ok(K::cmp(K::first(next), last).is_eq());
        }
        let block = self.read(index + 1, read)?;
        let meet = K::cmp(K::key(&block, 0), last).is_eq();
        self.ahead = Some((index + 1, block));
        Ok(meet)
    }

    /// A block, past the cache.
    fn read(&mut self, index: usize, read: &mut Read) -> Result<Arc<K::Block>> {
        if let Some((_, block)) = self.ahead.take_if(|(ahead, _)| *ahead == index) {
            return Ok(block);
        }
        read.blocks += 1;
        if self.taken {
            read.bytes += u64::from(self.blocks.entry(index).stored_bytes);
        }
        Ok(Arc::new(self.handle.run.read_in_order(&self.blocks, index)?))
    }

    /// Opens its block.
    fn open(&mut self, read: &mut Read) -> Result<Arc<K::Block>> {
        let block = self.read(self.index, read)?;
        let (last, rows) = (K::lend(&self.last), K::rows(&block));
        self.end = rows;
        if K::cmp(K::last_key(&block), last).is_gt() {
            let from = K::lower_bound(&block, last);
            let alike = (from..rows).take_while(|at| K::cmp(K::key(&block, *at), last).is_eq());
            self.end = from + alike.count() as u32;
        }
        self.block = Some(block.clone());
        Ok(block)
    }

    /// Passes the version it stands on, which is in the output, or dropped.
    #[inline]
    pub(super) fn pass(&mut self, read: &mut Read) -> Result<()> {
        self.at += 1;
        self.taken = true;
        self.stand(read)
    }

    /// Passes a block that was taken as it is.
    pub(super) fn pass_block(&mut self, index: usize) {
        (self.index, self.block, self.at, self.taken) = (index + 1, None, 0, true);
    }

    /// Makes it stand on its next version, in a block that is read, unless all that is to be read was.
    pub(super) fn stand(&mut self, read: &mut Read) -> Result<()> {
        loop {
            match &self.block {
                Some(block) if self.at < K::rows(block) => return Ok(()),
                Some(_) => (self.block, self.at, self.index) = (None, 0, self.index + 1),
                None => match self.blocks.entries().get(self.index) {
                    Some(entry) if K::cmp(K::first(entry), K::lend(&self.last)).is_le() => drop(self.open(read)?),
                    _ => return Ok(()),
                },
            }
        }
    }

    /// The key that it [stands](Self::stand) on, if that is to be read.
    #[inline]
    pub(super) fn key(&self) -> Option<K::Ref<'_>> {
        #[cfg(test)]
        looked_at::count();
        let block = self.block.as_ref()?;
        (self.at < self.end).then(|| K::key(block, self.at))
    }

    /// What the handle holds from the place on where it stands.
    pub(super) fn rest(&mut self, read: &mut Read) -> Result<Option<RunHandle<K>>> {
        loop {
            match &self.block {
                Some(block) if self.at < K::rows(block) => break,
                Some(_) => (self.block, self.at, self.index) = (None, 0, self.index + 1),
                None => {
                    let Some(entry) = self.blocks.entries().get(self.index) else { return Ok(None) };
                    if K::is_first_known(entry) {
                        let first = K::own(K::first(entry));
                        let last = self.handle.last.clone();
                        return Ok((first <= last).then(|| self.handle.narrowed(first, last)));
                    }
                    drop(self.open(read)?);
                }
            }
        }
        let Some(block) = &self.block else { return Ok(None) };
        let (first, last) = (K::own(K::key(block, self.at)), self.handle.last.clone());
        Ok((first <= last).then(|| self.handle.narrowed(first, last)))
    }
}

tally! {
    /// Counts the keys that merges of this thread looked at where inputs stand.
    looked_at
}
