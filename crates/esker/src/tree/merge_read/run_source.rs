//! A run that is read: where it stands, and what of its block is given out as it stands.

use super::Unseen;
use crate::tree::run::index::Index;
use crate::tree::run::Ahead;
use crate::tree::stored::{may_meet, Stored};
use crate::tree::{order_in_block, RunHandle, RunSeen, Seen, SeenMark};
use crate::version::{OrdinalRanges, VersionOrder, View, ABORTED, ACTIVE};
use crate::Result;
use esker_base::counters::{count, Counter};
use esker_format::{BlockEntry, CommitSeq, LeafEntry};
use std::ops::Range;
use std::sync::Arc;

pub(super) struct RunSource<K: Stored> {
    pub(super) handle: RunHandle<K>,
    /// Where its blocks lie.
    pub(super) blocks: Arc<Index<K>>,
    pub(super) seen: RunSeen,
    aborted: Arc<OrdinalRanges>,
    pub(super) index: usize,
    /// Beyond its last block, or more while it stands before that.
    pub(super) end: usize,
    pub(super) block: Option<Arc<K::Block>>,
    pub(super) at: u32,
    /// Versions of the block that count: the handle may end before it.
    rows: u32,
    /// Where in the block every version is seen, but for tombstones and keys that have several versions in the block.
    clean: Range<u32>,
    /// Behind the key that was examined.
    past: Option<u32>,
    ahead: Ahead,
}

/// What a run has of a key.
pub(super) struct Examined<K: Stored> {
    /// Where in the block its newest version is that the view sees, if that is newer than what was known.
    pub(super) found: Option<(VersionOrder, u32)>,
    /// The same, pinned: the key goes on in the next block.
    pub(super) kept: Option<Seen<K>>,
    /// For who watches, one of the live versions that the view does not see.
    pub(super) unseen: Option<Unseen>,
}

/// The least and the greatest commit sequence of a block's versions.
fn sequences(entry: &BlockEntry, seen: RunSeen) -> (CommitSeq, CommitSeq) {
    match seen {
        RunSeen::At(seq) => (seq, seq),
        _ => (entry.min_seq, entry.max_seq),
    }
}

/// Does the view see every version of a block, of a run that is seen so, that is no tombstone, older ones of their keys left
/// aside?
pub(crate) fn sees_all(
    entry: &BlockEntry,
    seen: RunSeen,
    aborted: &OrdinalRanges,
    view: View,
    marks: &[SeenMark],
) -> bool {
    let (least, greatest) = sequences(entry, seen);
    let own = matches!(seen, RunSeen::Own | RunSeen::Hidden);
    seen != RunSeen::Hidden
        && !aborted.meets(entry.min_ordinal, entry.max_ordinal)
        && (seen != RunSeen::PerRow || greatest <= view.seq)
        && !marks.iter().any(|m| entry.first_id < m.up_to && (own || least <= m.as_of || m.same_seq(least, greatest)))
}

impl<K: Stored> RunSource<K> {
    /// Stands on the first key at or after `from`, which is in the handle's bounds.
    pub(super) fn new(
        handle: &RunHandle<K>,
        view: View,
        marks: &[SeenMark],
        from: K::Ref<'_>,
        ahead: Ahead,
    ) -> Result<Self> {
        let blocks = handle.run.index()?.keep();
        #[cfg(test)]
        crate::tree::levels::looked::count();
        let (seen, aborted) = (handle.seen(view), handle.keep_aborted());
        let index = handle.run.seek(&blocks, from)?;
        let (handle, end) = (handle.clone(), blocks.entries().len());
        let mut source = RunSource {
            handle,
            blocks,
            seen,
            aborted,
            index,
            end,
            block: None,
            at: 0,
            rows: 0,
            clean: 0..0,
            past: None,
            ahead,
        };
        source.find_end();
        // More than one where the index does not tell.
        while source.block.is_none() && source.index < source.end {
            let entry = &source.blocks.entries()[source.index];
            if K::is_first_known(entry) && K::cmp(K::first(entry), from).is_ge() {
                break;
            }
            let block = source.block_at_index()?;
            source.at = K::lower_bound(&block, from);
            source.stand_in(block, view, marks);
            if source.at >= source.rows {
                source.advance_block();
            }
        }
        Ok(source)
    }

    /// What its next block begins with, as far as the index tells, or what the handle does.
    pub(super) fn first_of_block(&self) -> K::Ref<'_> {
        K::first(&self.blocks.entries()[self.index])
    }

    /// Where the block that it stands in begins in the file.
    pub(super) fn offset(&self) -> u64 {
        self.blocks.entry(self.index).offset
    }

    /// Behind the versions of the block that are given out as they stand from here on: here, if this one is not.
    pub(super) fn plain_end(&self) -> u32 {
        match &self.block {
            Some(block) if self.clean.contains(&self.at) => K::plain_until(block, self.at).min(self.clean.end),
            _ => self.at,
        }
    }

    /// How many versions of a block count.
    fn rows_of(&self, block: &K::Block) -> u32 {
        let last = K::lend(&self.handle.last);
        if K::cmp(K::last_key(block), last).is_le() {
            return K::rows(block);
        }
        // Behind the versions of the last key.
        let mut at = K::lower_bound(block, last);
        while K::cmp(K::key(block, at), last).is_eq() {
            at += 1;
        }
        at
    }

    /// Brings the block in and judges it; a block that is deleted as a whole is skipped without being read.
    pub(super) fn load(&mut self, view: View, marks: &[SeenMark]) -> Result<()> {
        if self.block.is_some() {
            return Ok(());
        }
        let entries = self.blocks.entries();
        let entry = entries[self.index].block();
        let (_, greatest) = sequences(entry, self.seen);
        // No mark that is seen deletes what is not committed.
        let own = matches!(self.seen, RunSeen::Own | RunSeen::Hidden);
        if !own && marks.iter().any(|m| entry.last_id < m.up_to && greatest <= m.as_of) {
            count(Counter::BlocksSkipped, 1);
            self.advance_block();
            return Ok(());
        }
        let block = self.block_at_index()?;
        self.stand_in(block, view, marks);
        if self.rows == 0 {
            // Only where the index did not tell that the handle ends before it.
            self.advance_block();
        }
        Ok(())
    }

    fn block_at_index(&mut self) -> Result<Arc<K::Block>> {
        self.handle.run.block_ahead(&self.blocks, self.index, self.end, &mut self.ahead)
    }

    /// Judges a block that was got.
    fn stand_in(&mut self, block: Arc<K::Block>, view: View, marks: &[SeenMark]) {
        self.rows = self.rows_of(&block);
        self.clean = if self.sees_all(view, marks) { self.apart(&block) } else { 0..0 };
        self.block = Some(block);
    }

    fn sees_all(&self, view: View, marks: &[SeenMark]) -> bool {
        sees_all(self.blocks.entry(self.index), self.seen, &self.aborted, view, marks)
    }

    /// The versions of the block whose keys have none in the blocks beside it.
    fn apart(&self, block: &K::Block) -> Range<u32> {
        let entries = self.blocks.entries();
        let before = self.index.checked_sub(1).is_some_and(|i| may_meet::<K>(&entries[i], &entries[self.index]));
        let after = entries.get(self.index + 1).is_some_and(|e| may_meet::<K>(&entries[self.index], e));
        let behind = if after { self.rows.min(K::rows(block) - 1) } else { self.rows };
        u32::from(before)..behind
    }

    /// Looks at all versions of the key that it stands on, for one that is newer than what was found elsewhere; stays there,
    /// and in the block if it can. For who `watches`, one of its live versions that the view does not see.
    pub(super) fn examine(
        &mut self,
        key: K::Ref<'_>,
        view: View,
        marks: &[SeenMark],
        mut newest: Option<VersionOrder>,
        watches: bool,
    ) -> Result<Examined<K>> {
        let mut examined = Examined { found: None, kept: None, unseen: None };
        while self.index < self.end {
            self.load(view, marks)?;
            let Some(block) = &self.block else {
                if self.index >= self.end || K::cmp(self.first_of_block(), key).is_gt() {
                    break;
                }
                continue;
            };
            let mut at = self.at;
            while at < self.rows && K::cmp(K::key(block, at), key).is_eq() {
                if let Some(order) = order_in_block::<K>(block, at, self.seen, view, &self.aborted) {
                    if newest.is_none_or(|newest| order > newest) {
                        newest = Some(order);
                        (examined.found, examined.kept) = (Some((order, at)), None);
                    }
                } else if watches {
                    examined.unseen = examined.unseen.or_else(|| self.unseen(block, at));
                }
                at += 1;
            }
            let entries = self.blocks.entries();
            let goes_on = |next: &K::Entry| may_meet::<K>(&entries[self.index], next);
            if at < self.rows || !entries.get(self.index + 1).is_some_and(goes_on) {
                self.past = Some(at);
                break;
            }
            // It leaves the block.
            if let Some((order, at)) = examined.found.take() {
                examined.kept = self.seen_at(at, order);
            }
            self.advance_to(at);
        }
        Ok(examined)
    }

    /// The version there in the block that it stands in.
    pub(super) fn seen_at(&self, at: u32, order: VersionOrder) -> Option<Seen<K>> {
        let block = self.block.as_ref()?;
        Some(Seen::in_block(&self.handle.run, self.offset(), block, at, order))
    }

    /// Goes past the key that was examined last.
    pub(super) fn go_past(&mut self) {
        if let Some(at) = self.past.take() {
            self.advance_to(at);
        }
    }

    /// A version that the view does not see, if it is live.
    fn unseen(&self, block: &K::Block, at: u32) -> Option<Unseen> {
        let tag = K::tag(block, at);
        let status = self.handle.owner.as_ref().map(|o| (o.id, o.status()));
        if self.aborted.contains(tag.ordinal) || status.is_some_and(|(_, status)| status == ABORTED) {
            return None;
        }
        let owner = status.filter(|(_, status)| *status == ACTIVE).map(|(id, _)| id);
        Some(Unseen { owner, ordinal: tag.ordinal, tombstone: tag.tombstone, row: K::row(block, at) })
    }

    pub(super) fn advance_to(&mut self, at: u32) {
        self.at = at;
        if self.block.is_some() && at >= self.rows {
            self.advance_block();
        }
    }

    fn advance_block(&mut self) {
        (self.block, self.at, self.clean) = (None, 0, 0..0);
        self.index += 1;
        self.find_end();
    }

    /// Of a block that begins behind the handle's last key nothing counts, nor of those behind it.
    fn find_end(&mut self) {
        let is_behind = |e: &K::Entry| K::cmp(K::first(e), K::lend(&self.handle.last)).is_gt();
        if self.blocks.entries().get(self.index).is_some_and(is_behind) {
            self.end = self.index;
        }
    }
}
