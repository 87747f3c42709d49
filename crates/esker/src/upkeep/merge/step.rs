//! One merge: reads what some runs have between two keys, in order, and writes the versions that somebody may still see.
//!
//! Invariants: all versions that the inputs have of a key go to one run; a step ends between two keys, and what it has
//! come to until then is all that its inputs lose. Nothing of the tree changes here.

use super::input::{Input, Read};
use super::*;
use crate::tree::key::Key;
use crate::tree::memtable::{Memtable, Node};
use crate::tree::run::writer::RunWriter;
use crate::tree::RangeMark;
use crate::upkeep::choose::{Step, Sweep};
use crate::upkeep::new_run;
use crate::version::VersionOrder;
use esker_format::{FormatError, LeafEntry, VersionTag};

/// What a merge came to.
pub(super) struct Outcome<K: Stored> {
    pub(super) runs: Vec<Arc<Run<K>>>,
    /// What its inputs still hold.
    pub(super) left: Vec<RunHandle<K>>,
    /// How many versions were written as committed long ago.
    pub(super) settled: u64,
    /// The least key that they hold behind what was taken.
    pub(super) reached: Sweep<K::Own>,
}

pub(super) struct Merge<'a, K: Stored> {
    core: &'a Core,
    table: &'a Table,
    tree: &'a Arc<Tree<K>>,
    state: &'a TreeState<K>,
    step: &'a Step<K>,
    inputs: Vec<Input<K>>,
    /// Those that stand on a key that is to be read, by these keys; unless blocks were passed since.
    order: Option<Vec<usize>>,
    /// What the inputs hold besides, so far.
    left: Vec<RunHandle<K>>,
    /// Room for [`seen`].
    stay: Vec<usize>,
    kept: SeenByViews,
    /// The marks that every view sees and that count.
    marks: &'a [RangeMark],
    /// What every view sees, and nothing older of it lies elsewhere, is as if it were committed there: see [`settled_at`].
    settled_at: Option<CommitSeq>,
    /// So many were.
    settled: u64,
    /// The memtables, and where they come next.
    memtables: Vec<(&'a Memtable<K>, Option<&'a Node<K>>)>,
    writer: Option<RunWriter<K>>,
    done: Vec<Arc<Run<K>>>,
    /// About the size of a block that is written.
    block_bytes: usize,
    /// An output run is closed at this size, in bytes, so that they become about equal.
    close_bytes: u64,
    /// Bytes of the output runs that are closed.
    done_bytes: u64,
    /// What it failed with is about its output.
    pub(super) cannot_write: bool,
    read: Read,
}

/// An input by its place, and the least and the greatest key of the block that it comes to.
type Whole<K> = (usize, (<K as Key>::Own, <K as Key>::Own));

struct Candidate<K: Stored> {
    order: VersionOrder,
    input: usize,
    /// Where the block begins in the file.
    offset: u64,
    block: Arc<K::Block>,
    at: u32,
    tombstone: bool,
    supersedes: bool,
}

impl<K: Stored> Candidate<K> {
    /// The version on which an input stands, which is the one at this place; `None` if it was rolled back.
    #[inline]
    fn of(input: &Input<K>, place: usize) -> Option<Self> {
        let block = input.block.as_ref()?;
        let tag = K::tag(block, input.at);
        let seq = if input.handle.seq == CommitSeq::ZERO { tag.seq } else { input.handle.seq };
        (!input.handle.aborted.contains(tag.ordinal)).then(|| Candidate {
            order: VersionOrder::new(seq, tag.ordinal),
            input: place,
            offset: input.blocks.entry(input.index).offset,
            block: block.clone(),
            at: input.at,
            tombstone: tag.tombstone,
            supersedes: tag.supersedes,
        })
    }
}

/// The places of those versions of a key, the newest first, that a view may see.
fn seen<K: Stored>(versions: &[Candidate<K>], kept: &SeenByViews, marks: &[RangeMark], stay: &mut Vec<usize>) {
    stay.clear();
    let mut newer = None;
    for (i, v) in versions.iter().enumerate() {
        let (seq, row) = (v.order.seq, K::row(&v.block, v.at));
        // Of one transaction's versions only the newest counts.
        let is_hidden = newer.is_some_and(|newer| newer == seq || !kept.is_seen(seq, newer));
        if !is_hidden && !marks.iter().any(|m| m.deletes(row, v.order)) {
            newer = Some(seq);
            stay.push(i);
        }
    }
}

/// The sequence that all versions may have which every view sees, where their own, and their ordinals, take room for nothing.
///
/// None if another run has keys between the step's: an older version there would come before one that looks older than it is.
fn settled_at<K: Stored>(state: &TreeState<K>, step: &Step<K>) -> Option<CommitSeq> {
    let is_input = |h: &RunHandle<K>| step.inputs.iter().any(|input| input.is(h));
    let meets = |h: &RunHandle<K>| h.overlaps(K::lend(&step.first), K::lend(&step.last));
    if state.runs.iter().any(|h| meets(h) && !is_input(h)) {
        return None;
    }
    step.inputs
        .iter()
        .map(|h| h.seq_bounds().map(|bounds| bounds.0))
        .min()
        .flatten()
        .filter(|seq| *seq > CommitSeq::ZERO)
}

/// Has the tree no mark, nor one that may come back when the log is replayed? Asked behind the horizon: a mark that is written later
/// deletes whatever every view saw then, as its session keeps its own view until the mark is there. One that was there leaves what was
/// committed behind it. What an opening has read of a manifest may not be durable, and the one before it may name a mark.
fn stays_unmarked<K: Stored>(core: &Core, tree: &Tree<K>) -> bool {
    !tree.snapshot().was_marked && core.manifest.lock().tail.is_some()
}

impl<'a, K: Stored> Merge<'a, K> {
    pub(super) fn new(
        merging: &Merging<'a, K>,
        state: &'a TreeState<K>,
        step: &'a Step<K>,
        kept: SeenByViews,
    ) -> Result<Self> {
        let Merging { core, table, tree, .. } = *merging;
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
        #[cfg(test)]
        super::tests::behind_the_horizon();
        let settled_at = settled_at(state, step).filter(|_| stays_unmarked(core, tree));
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
            order: None,
            left,
            stay: Vec::new(),
            marks: state.marks_at(kept.horizon),
            kept,
            settled_at,
            settled: 0,
            memtables: state.memtables().map(|mem| (&**mem, mem.seek(K::lend(&step.first)))).collect(),
            writer: None,
            done: Vec::new(),
            block_bytes: core.runs.block_bytes::<K>(table.is_indexed()),
            close_bytes: if runs == 1 { run_bytes } else { (step.bytes / runs + run_bytes / 32).min(run_bytes) },
            done_bytes: 0,
            cannot_write: false,
            read,
        })
    }

    pub(super) fn run(&mut self, progress: &mut dyn FnMut(u64, u64) -> bool) -> Result<Outcome<K>> {
        let (mut versions, mut value, mut room) = (Vec::new(), Vec::new(), K::Room::default());
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
                if !self.least(&mut room)? {
                    break;
                }
                let key = K::in_room(&room);
                self.collect(key, &mut versions)?;
                versions.sort_by_key(|v: &Candidate<K>| std::cmp::Reverse(v.order));
                versions.dedup_by_key(|v| v.order);
                self.keep(key, &versions, &mut value)?;
                versions.clear();
            }
            begun = true;
        }
        self.finish()?;
        let mut reached = Sweep::End;
        for input in &mut self.inputs {
            if let Some(rest) = input.rest(&mut self.read)? {
                reached = reached.min(Sweep::From(rest.first.clone()));
                self.left.push(rest);
            }
        }
        let (runs, left) = (std::mem::take(&mut self.done), std::mem::take(&mut self.left));
        Ok(Outcome { runs, left, settled: self.settled, reached })
    }

    /// The runs that were finished, for whoever gives them up.
    pub(super) fn take_done(&mut self) -> Vec<Arc<Run<K>>> {
        std::mem::take(&mut self.done)
    }

    /// Has it done as much as one step should?
    fn is_enough(&self) -> bool {
        let most = 2 * self.core.options.run_bytes;
        let open = self.writer.as_ref().map_or(0, RunWriter::size_bytes);
        let written = self.done_bytes + open;
        // Of several that follow each other each ends with a full run.
        let one_more = written + self.close_bytes <= most || written == 0 || (1..self.close_bytes).contains(&open);
        written >= most || self.read.bytes >= 2 * most || (self.step.bytes > most && !one_more)
    }

    /// Is the engine being closed, or the table dropped or emptied?
    fn is_unwanted(&self) -> bool {
        self.core.signals.stopping() || !self.table.still_has(self.tree.id)
    }

    /// Copies the block that comes next, if no other input has keys between its own, and all of it stays as it is.
    fn copy_untouched(&mut self) -> Result<bool> {
        // The one that comes next would have to be among these.
        if self.order.as_ref().is_some_and(|order| order.iter().all(|i| self.inputs[*i].next_block().is_none())) {
            return Ok(false);
        }
        let Some((lead, bounds)) = self.whole_block()? else { return Ok(false) };
        self.close_full()?;
        if let Some(writer) = self.writer.as_mut().filter(|w| !w.can_copy()) {
            writer.stretch();
            return Ok(false);
        }
        let input = &self.inputs[lead];
        let Some(index) = input.next_block() else { return Ok(false) };
        let (handle, entry) = (input.handle.clone(), input.blocks.entries()[index].clone());
        let seq = (handle.seq != CommitSeq::ZERO).then_some(handle.seq);
        let (mut bytes, context) = handle.run.stored_block(&input.blocks, index)?;
        let blocks = input.blocks.clone();
        let copied = handle.run.with_filter(&blocks, index, |filter| {
            self.writer().and_then(|w| w.copy_block((&mut bytes, filter), context, &entry, bounds, seq))
        });
        match self.written(copied)? {
            None => {}
            // Whoever reads it again says what is wrong.
            Some(FormatError::Checksum { .. }) => return Ok(false),
            Some(reason) => return Err(handle.run.damage(entry.block().offset, reason)),
        }
        let input = &mut self.inputs[lead];
        self.read.blocks += u64::from(!input.is_open());
        self.read.bytes += u64::from(entry.block().stored_bytes);
        input.pass_block(index);
        self.order = None;
        Ok(true)
    }

    /// The input that comes next, if that stands before a block that is to be taken as it is, and whose keys all come before
    /// those of the other inputs; and the block's least and greatest key. Where an index does not tell, blocks are opened,
    /// of those that come next anyway.
    fn whole_block(&mut self) -> Result<Option<Whole<K>>> {
        loop {
            let Some((lead, bound)) = self.two_least() else { return Ok(None) };
            let input = &self.inputs[lead];
            let Some(index) = input.next_block().filter(|index| self.stays_as_it_is(input, *index)) else {
                return Ok(None);
            };
            let entry = &input.blocks.entries()[index];
            let last = match &input.block {
                Some(block) if input.is_open() => K::last_key(block),
                _ if K::is_first_known(entry) && K::is_last_known(entry) => K::last(entry),
                _ => {
                    self.inputs[lead].stand(&mut self.read)?;
                    continue;
                }
            };
            if K::cmp(last, K::lend(&input.last)).is_gt() {
                return Ok(None);
            }
            if let Some(other) = bound.filter(|i| self.inputs[*i].peek().is_some_and(|key| K::cmp(key, last).is_le())) {
                // It begins there or behind.
                if self.inputs[other].is_known() {
                    return Ok(None);
                }
                self.inputs[other].stand(&mut self.read)?;
                continue;
            }
            let Some(first) = input.peek() else { return Ok(None) };
            let bounds = (K::own(first), K::own(last));
            let goes_on = self.inputs[lead].goes_on_behind(index, K::lend(&bounds.1), &mut self.read)?;
            return Ok((!goes_on).then_some((lead, bounds)));
        }
    }

    /// The input with the least key, as far as is known without reading, and the one that comes after it.
    fn two_least(&self) -> Option<(usize, Option<usize>)> {
        let mut lead: Option<(usize, K::Ref<'_>)> = None;
        let mut next: Option<(usize, K::Ref<'_>)> = None;
        for (i, input) in self.inputs.iter().enumerate() {
            let Some(key) = input.peek() else { continue };
            if lead.is_none_or(|(_, least)| K::cmp(key, least).is_lt()) {
                (lead, next) = (Some((i, key)), lead);
            } else if next.is_none_or(|(_, least)| K::cmp(key, least).is_lt()) {
                next = Some((i, key));
            }
        }
        Some((lead?.0, next.map(|n| n.0)))
    }

    /// Has the block nothing to be dropped, as far as its entry tells, and would it be one of good size?
    fn stays_as_it_is(&self, input: &Input<K>, index: usize) -> bool {
        let (handle, block) = (&input.handle, input.blocks.entry(index));
        let own = handle.seq == CommitSeq::ZERO;
        let seqs = if own { (block.min_seq, block.max_seq) } else { (handle.seq, handle.seq) };
        block.ids_unique()
            && block.tombstones == 0
            && own == (block.min_seq != CommitSeq::ZERO)
            && !handle.aborted.meets(block.min_ordinal, block.max_ordinal)
            && !self.marks.iter().any(|m| m.may_delete(block.first_id, seqs, block.min_ordinal))
            // About as a builder counts, which does not know yet how well numbers can be packed.
            && (block.raw_bytes + 16 * block.rows) as usize >= self.block_bytes / 2
    }

    /// Writes the versions of a key that somebody may still see.
    fn keep(&mut self, key: K::Ref<'_>, versions: &[Candidate<K>], value: &mut Vec<u8>) -> Result<()> {
        // All versions of a key go to one run.
        self.close_full()?;
        let mut stay = std::mem::take(&mut self.stay);
        seen(versions, &self.kept, self.marks, &mut stay);
        // Below a deletion nothing is left to be deleted.
        while stay.last().is_some_and(|last| versions[*last].tombstone) && !self.lies_elsewhere(key) {
            stay.pop();
        }
        count(Counter::RowsPurged, (versions.len() - stay.len()) as u64);
        for (i, at) in stay.iter().enumerate() {
            let v = &versions[*at];
            value.clear();
            // A row's tombstone has no value to be read.
            if !v.tombstone || K::TOMBSTONES_HAVE_VALUES {
                let run = &self.inputs[v.input].handle.run;
                K::value(&v.block, v.at, value).map_err(|e| run.damage(v.offset, e))?;
            }
            let settled = v.order.seq <= self.kept.horizon;
            // Whatever was older is purged with this merge, if it was all among its inputs.
            let is_last = i + 1 == stay.len() && at + 1 < versions.len();
            let supersedes = v.supersedes && (v.tombstone || !is_last || self.lies_elsewhere(key));
            let place = self.settled_at.filter(|_| settled && !v.tombstone && !self.comes_in_memory(key));
            self.settled += u64::from(place.is_some());
            let VersionOrder { seq, ordinal } = place.map_or(v.order, |seq| VersionOrder::new(seq, 0));
            let tag = VersionTag { seq, ordinal, tombstone: v.tombstone, supersedes };
            self.push(key, tag, value)?;
        }
        self.stay = stay;
        Ok(())
    }

    /// Has a memtable the key? Asked of keys in their order.
    fn comes_in_memory(&mut self, key: K::Ref<'_>) -> bool {
        self.memtables.iter_mut().any(|(mem, next)| {
            while let Some(node) = next.filter(|node| K::cmp(node.key(), key).is_lt()) {
                *next = mem.after(node);
            }
            next.is_some_and(|node| K::cmp(node.key(), key).is_eq())
        })
    }

    fn push(&mut self, key: K::Ref<'_>, tag: VersionTag, value: &[u8]) -> Result<()> {
        let pushed = self.writer().and_then(|w| w.push(key, tag, value));
        self.written(pushed)
    }

    /// The run that is written, begun if there is none.
    #[inline]
    fn writer(&mut self) -> Result<&mut RunWriter<K>> {
        Ok(match &mut self.writer {
            Some(writer) => writer,
            none => none.insert(new_run(self.core, self.table, self.tree)?),
        })
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

    /// Puts the least key that any input stands on into `room`; false if there is none.
    fn least(&mut self, room: &mut K::Room) -> Result<bool> {
        if self.order.is_none() {
            self.inputs.iter_mut().try_for_each(|input| input.stand(&mut self.read))?;
            let mut order: Vec<usize> = (0..self.inputs.len()).filter(|i| self.inputs[*i].key().is_some()).collect();
            order.sort_by(|a, b| self.which_first(*a, *b));
            self.order = Some(order);
        }
        let first = self.order.iter().flatten().next();
        Ok(first.and_then(|i| self.inputs[*i].key()).map(|key| K::put(room, key)).is_some())
    }

    /// Which of two inputs that stand on a key comes first?
    #[inline]
    fn which_first(&self, a: usize, b: usize) -> std::cmp::Ordering {
        match (self.inputs[a].key(), self.inputs[b].key()) {
            (Some(one), Some(other)) => K::cmp(one, other).then(a.cmp(&b)),
            _ => a.cmp(&b),
        }
    }

    /// Takes what the inputs have of the least key.
    fn collect(&mut self, key: K::Ref<'_>, versions: &mut Vec<Candidate<K>>) -> Result<()> {
        let Some(mut order) = self.order.take() else { return Ok(()) };
        let is_at = |input: &Input<K>| input.key().is_some_and(|k| K::cmp(k, key).is_eq());
        while let Some(i) = order.first().copied().filter(|i| is_at(&self.inputs[*i])) {
            let input = &mut self.inputs[i];
            loop {
                versions.extend(Candidate::of(input, i));
                input.pass(&mut self.read)?;
                if !is_at(input) {
                    break;
                }
            }
            if input.key().is_none() {
                order.remove(0);
                continue;
            }
            let before = 1 + order[1..].partition_point(|other| self.which_first(*other, i).is_lt());
            order[..before].rotate_left(1);
        }
        self.order = Some(order);
        Ok(())
    }

    /// Closes the last run.
    fn finish(&mut self) -> Result<()> {
        if let Some(writer) = self.writer.take() {
            self.close(writer)?;
        }
        self.done.iter().for_each(|run| run.set_merged_at(self.kept.horizon));
        Ok(())
    }
}
