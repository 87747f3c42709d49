//! One merge: reads what some runs have between two keys, in order, and writes the versions that somebody may still see.
//!
//! Invariants: all versions that the inputs have of a key go to one run; a step ends between two keys, and what it has
//! come to until then is all that its inputs lose. Nothing of the tree changes here.

use super::*;
use crate::tree::run::index::Index;
use crate::tree::run::writer::RunWriter;
use crate::tree::stored::may_meet;
use crate::tree::RangeMark;
use crate::upkeep::choose::Step;
use esker_format::{FormatError, LeafEntry, VersionTag};

/// What a merge came to.
pub(super) struct Outcome<K: Stored> {
    pub(super) runs: Vec<Arc<Run<K>>>,
    /// What its inputs still hold.
    pub(super) left: Vec<RunHandle<K>>,
}

struct Input<K: Stored> {
    handle: RunHandle<K>,
    blocks: Arc<Index<K>>,
    index: usize,
    block: Option<Arc<K::Block>>,
    at: u32,
    /// The last key to be read.
    last: K::Own,
}

pub(super) struct Merge<'a, K: Stored> {
    core: &'a Core,
    table: &'a Table,
    tree: &'a Arc<Tree<K>>,
    state: &'a TreeState<K>,
    step: &'a Step<K>,
    inputs: Vec<Input<K>>,
    /// What the inputs hold besides, so far.
    left: Vec<RunHandle<K>>,
    horizon: CommitSeq,
    /// The marks that every view sees and that count.
    marks: &'a [RangeMark],
    writer: Option<RunWriter<K>>,
    done: Vec<Arc<Run<K>>>,
    /// An output run is closed at this size, in bytes, so that they become about equal.
    close_bytes: u64,
    /// Bytes of the output runs that are closed.
    done_bytes: u64,
    /// What it failed with is about its output.
    pub(super) cannot_write: bool,
    read: Read,
}

/// What was read of the inputs.
#[derive(Default)]
struct Read {
    blocks: u64,
    bytes: u64,
    /// How many blocks there are to be read.
    of_blocks: u64,
}

struct Candidate<K: Stored> {
    order: (u64, u64),
    input: usize,
    index: usize,
    block: Arc<K::Block>,
    at: u32,
    tombstone: bool,
    supersedes: bool,
}

impl<'a, K: Stored> Merge<'a, K> {
    pub(super) fn new(
        core: &'a Core,
        table: &'a Table,
        tree: &'a Arc<Tree<K>>,
        state: &'a TreeState<K>,
        step: &'a Step<K>,
    ) -> Result<Self> {
        let mut read = Read::default();
        let (mut inputs, mut left) = (Vec::new(), Vec::new());
        for handle in &step.inputs {
            let blocks = handle.run.index()?.keep();
            if !handle.overlaps(K::lend(&step.first), K::lend(&step.last)) {
                left.push(handle.clone());
                continue;
            }
            if handle.first < step.first {
                let before = handle.run.key_before(&blocks, K::lend(&step.first))?;
                left.extend(before.map(|key| handle.narrowed(handle.first.clone(), key)));
            }
            let first = (&step.first).max(&handle.first);
            let last = (&step.last).min(&handle.last).clone();
            let end = blocks.entries().partition_point(|e| K::cmp(K::first(e), K::lend(&last)).is_le());
            let input = Input::new(handle, blocks, K::lend(first), last, &mut read)?;
            read.of_blocks += end.saturating_sub(input.index) as u64;
            inputs.push(input);
        }
        let horizon = core.views.horizon();
        // Room is left in each for what later merges bring.
        let run_bytes = core.options.run_bytes;
        let runs = step.bytes.div_ceil((run_bytes - run_bytes / 8).max(1)).max(1);
        Ok(Merge {
            core,
            table,
            tree,
            state,
            step,
            inputs,
            left,
            horizon,
            marks: state.marks_at(horizon),
            writer: None,
            done: Vec::new(),
            close_bytes: if runs == 1 { run_bytes } else { (step.bytes / runs + run_bytes / 32).min(run_bytes) },
            done_bytes: 0,
            cannot_write: false,
            read,
        })
    }

    pub(super) fn run(&mut self, progress: &mut dyn FnMut(u64, u64) -> bool) -> Result<Outcome<K>> {
        let (mut versions, mut value) = (Vec::new(), Vec::new());
        let (mut told, mut begun) = (0, false);
        loop {
            if begun && self.is_enough() {
                break;
            }
            if self.read.blocks != told {
                told = self.read.blocks;
                if self.is_unwanted() || !progress(told.min(self.read.of_blocks), self.read.of_blocks) {
                    return Err(Error::Interrupted);
                }
            }
            if !self.copy_untouched()? {
                let Some(key) = self.least()? else { break };
                let key = K::lend(&key);
                self.collect(key, &mut versions)?;
                versions.sort_by_key(|v: &Candidate<K>| std::cmp::Reverse(v.order));
                versions.dedup_by_key(|v| v.order);
                self.keep(key, &versions, &mut value)?;
                versions.clear();
            }
            begun = true;
        }
        self.finish()?;
        for input in &mut self.inputs {
            self.left.extend(input.rest(&mut self.read)?);
        }
        Ok(Outcome { runs: std::mem::take(&mut self.done), left: std::mem::take(&mut self.left) })
    }

    /// The runs that were finished, for whoever gives them up.
    pub(super) fn take_done(&mut self) -> Vec<Arc<Run<K>>> {
        std::mem::take(&mut self.done)
    }

    /// Has it done as much as one step should?
    fn is_enough(&self) -> bool {
        let most = 2 * self.core.options.run_bytes;
        let written = self.done_bytes + self.writer.as_ref().map_or(0, RunWriter::size_bytes);
        self.step.bounded && (written >= most || self.read.bytes >= 2 * most)
    }

    /// Is the engine being closed, or the table dropped or emptied?
    fn is_unwanted(&self) -> bool {
        self.core.signals.stopping() || self.table.is_dropped() || !self.table.has_tree(self.tree.id)
    }

    /// Copies the block that comes next, if no other input has keys between its own, and all of it stays as it is.
    fn copy_untouched(&mut self) -> Result<bool> {
        let mut lead: Option<(usize, K::Ref<'_>)> = None;
        let mut bound: Option<K::Ref<'_>> = None;
        for (i, input) in self.inputs.iter().enumerate() {
            let Some(key) = input.peek() else { continue };
            if lead.is_none_or(|(_, least)| K::cmp(key, least).is_lt()) {
                (lead, bound) = (Some((i, key)), lead.map(|l| l.1));
            } else if bound.is_none_or(|b| K::cmp(key, b).is_lt()) {
                bound = Some(key);
            }
        }
        let Some((lead, _)) = lead else { return Ok(false) };
        let input = &self.inputs[lead];
        let Some(index) = input.unread_block() else { return Ok(false) };
        let entry = &input.blocks.entries()[index];
        if bound.is_some_and(|b| K::reaches(entry, b)) || !self.stays_as_it_is(input, index, entry) {
            return Ok(false);
        }
        let (handle, entry) = (input.handle.clone(), entry.clone());
        self.close_full()?;
        if self.writer.as_ref().is_some_and(|w| !w.can_copy()) {
            return Ok(false);
        }
        let seq = (handle.seq != CommitSeq::ZERO).then_some(handle.seq);
        let (mut bytes, context) = handle.run.stored_block(&self.inputs[lead].blocks, index)?;
        let bounds = (K::own(K::first(&entry)), K::own(K::last(&entry)));
        let copied = match &mut self.writer {
            Some(w) => w.copy_block(&mut bytes, context, &entry, bounds, seq),
            None => self
                .core
                .run_writer(self.table, self.tree)
                .and_then(|w| self.writer.insert(w).copy_block(&mut bytes, context, &entry, bounds, seq)),
        };
        match self.written(copied)? {
            None => {}
            // Whoever reads it again says what is wrong.
            Some(FormatError::Checksum { .. }) => return Ok(false),
            Some(reason) => return Err(handle.run.damage(index, reason)),
        }
        self.read.blocks += 1;
        self.read.bytes += u64::from(entry.block().stored_bytes);
        let input = &mut self.inputs[lead];
        (input.index, input.block, input.at) = (index + 1, None, 0);
        Ok(true)
    }

    /// Has nothing in the block to be dropped, as far as its entry tells, and would it be a block of good size?
    fn stays_as_it_is(&self, input: &Input<K>, index: usize, entry: &K::Entry) -> bool {
        let (handle, entries, block) = (&input.handle, input.blocks.entries(), entry.block());
        let own = handle.seq == CommitSeq::ZERO;
        let seqs = if own { (block.min_seq, block.max_seq) } else { (handle.seq, handle.seq) };
        let before = index.checked_sub(1).is_some_and(|i| may_meet::<K>(&entries[i], entry));
        let after = entries.get(index + 1).is_some_and(|e| may_meet::<K>(entry, e));
        block.ids_unique()
            && !before
            && !after
            && K::is_first_known(entry)
            && K::is_last_known(entry)
            && K::cmp(K::last(entry), K::lend(&input.last)).is_le()
            && block.tombstones == 0
            && own == (block.min_seq != CommitSeq::ZERO)
            && !handle.aborted.meets(block.min_ordinal, block.max_ordinal)
            && !self.marks.iter().any(|m| m.may_delete(block.first_id, seqs, block.min_ordinal))
            && block.raw_bytes as usize >= self.core.options.block_bytes / 2
    }

    /// Writes the versions of a key that somebody may still see.
    fn keep(&mut self, key: K::Ref<'_>, versions: &[Candidate<K>], value: &mut Vec<u8>) -> Result<()> {
        let (mut settled, mut last_seq) = (false, 0);
        // All versions of a key go to one run.
        self.close_full()?;
        for (i, v) in versions.iter().enumerate() {
            // Of one transaction's versions only the newest counts.
            let row = K::row(&v.block, v.at);
            if settled || v.order.0 == last_seq || self.marks.iter().any(|m| m.deletes(row, v.order)) {
                count(Counter::RowsPurged, 1);
                continue;
            }
            last_seq = v.order.0;
            settled = v.order.0 <= self.horizon.0;
            if settled && v.tombstone && !self.lies_elsewhere(key) {
                count(Counter::RowsPurged, 1);
                continue;
            }
            value.clear();
            // A row's tombstone has no value to be read.
            if !v.tombstone || K::TOMBSTONES_HAVE_VALUES {
                let run = &self.inputs[v.input].handle.run;
                K::value(&v.block, v.at, value).map_err(|e| run.damage(v.index, e))?;
            }
            // Whatever was older is purged with this merge, if it was all among its inputs.
            let is_last = settled && i + 1 < versions.len();
            let supersedes = v.supersedes && (v.tombstone || !is_last || self.lies_elsewhere(key));
            let tag = VersionTag { seq: CommitSeq(v.order.0), ordinal: v.order.1, tombstone: v.tombstone, supersedes };
            self.push(key, tag, value)?;
        }
        Ok(())
    }

    fn push(&mut self, key: K::Ref<'_>, tag: VersionTag, value: &[u8]) -> Result<()> {
        let pushed = match &mut self.writer {
            Some(w) => w.push(key, tag, value),
            None => {
                self.core.run_writer(self.table, self.tree).and_then(|w| self.writer.insert(w).push(key, tag, value))
            }
        };
        self.written(pushed)
    }

    /// An error of what is being written: it is given up, nothing needs it, and the message says so.
    fn written<T>(&mut self, result: Result<T>) -> Result<T> {
        self.cannot_write |= result.is_err();
        result.map_err(|e| match e {
            Error::Io(mut e) => {
                e.message.push_str("; what was merged is discarded, nothing is lost");
                Error::Io(e)
            }
            e => e,
        })
    }

    /// Ends the run that is written if it is full.
    fn close_full(&mut self) -> Result<()> {
        match self.writer.take_if(|w| w.size_bytes() >= self.close_bytes) {
            Some(full) => self.close(full),
            None => Ok(()),
        }
    }

    fn close(&mut self, writer: RunWriter<K>) -> Result<()> {
        let run = self.written(writer.finish())?;
        self.done_bytes += run.size_bytes();
        self.done.push(run);
        Ok(())
    }

    /// May an older version of `key` lie in a run that is not merged now?
    fn lies_elsewhere(&self, key: K::Ref<'_>) -> bool {
        self.state.runs_at(key).any(|h| !self.step.inputs.iter().any(|i| i.is(h)))
            || self.state.memtables().any(|m| m.get(key).is_some())
    }

    /// The least key that any input stands on.
    fn least(&mut self) -> Result<Option<K::Own>> {
        for input in &mut self.inputs {
            input.stand(&mut self.read)?;
        }
        let mut least = None;
        for key in self.inputs.iter().filter_map(Input::key) {
            if least.is_none_or(|l| K::cmp(key, l).is_lt()) {
                least = Some(key);
            }
        }
        Ok(least.map(K::own))
    }

    fn collect(&mut self, key: K::Ref<'_>, versions: &mut Vec<Candidate<K>>) -> Result<()> {
        for (i, input) in self.inputs.iter_mut().enumerate() {
            loop {
                input.stand(&mut self.read)?;
                let Some(block) = input.block.as_ref().filter(|b| K::cmp(K::key(b, input.at), key).is_eq()) else {
                    break;
                };
                let tag = K::tag(block, input.at);
                let seq = if input.handle.seq == CommitSeq::ZERO { tag.seq } else { input.handle.seq };
                if !input.handle.aborted.contains(tag.ordinal) {
                    versions.push(Candidate {
                        order: (seq.0, tag.ordinal),
                        input: i,
                        index: input.index,
                        block: block.clone(),
                        at: input.at,
                        tombstone: tag.tombstone,
                        supersedes: tag.supersedes,
                    });
                }
                input.at += 1;
            }
        }
        Ok(())
    }

    /// Closes the last run.
    fn finish(&mut self) -> Result<()> {
        if let Some(writer) = self.writer.take() {
            self.close(writer)?;
        }
        self.done.iter().for_each(|run| run.set_merged_at(self.horizon));
        Ok(())
    }
}

impl<K: Stored> Input<K> {
    /// Stands on the first of the handle's keys from `first` to `last`.
    fn new(
        handle: &RunHandle<K>,
        blocks: Arc<Index<K>>,
        first: K::Ref<'_>,
        last: K::Own,
        read: &mut Read,
    ) -> Result<Self> {
        let index = blocks.block_at_or_after(first);
        let mut input = Input { handle: handle.clone(), blocks, index, block: None, at: 0, last };
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
    fn peek(&self) -> Option<K::Ref<'_>> {
        let key = match &self.block {
            Some(block) if self.at < K::rows(block) => Some(K::key(block, self.at)),
            _ => self.blocks.entries().get(self.unread_block()?).map(K::first),
        };
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

    /// Reads its block, past the cache.
    fn open(&mut self, read: &mut Read) -> Result<Arc<K::Block>> {
        let block = Arc::new(self.handle.run.read_block_of(&self.blocks, self.index)?);
        read.blocks += 1;
        read.bytes += u64::from(self.blocks.entry(self.index).stored_bytes);
        self.block = Some(block.clone());
        Ok(block)
    }

    /// Makes it stand on its next version, in a block that is read, unless all that is to be read was.
    fn stand(&mut self, read: &mut Read) -> Result<()> {
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
    fn key(&self) -> Option<K::Ref<'_>> {
        let key = K::key(self.block.as_ref()?, self.at);
        K::cmp(key, K::lend(&self.last)).is_le().then_some(key)
    }

    /// What the handle holds from the place on where it stands.
    fn rest(&mut self, read: &mut Read) -> Result<Option<RunHandle<K>>> {
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
