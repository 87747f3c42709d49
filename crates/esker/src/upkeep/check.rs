//! CHECK TABLE: reads every block of a table past the cache and verifies it against its index entry and its neighbours.

use crate::catalog::table::{with_tree, AnyTree, Table, Trees};
use crate::read::verify::IndexReport;
use crate::session::Session;
use crate::tree::key::Key;
use crate::tree::merge_read::ASK_EVERY;
use crate::tree::run::index::Index;
use crate::tree::stored::Stored;
use crate::tree::{RunHandle, Tree};
use crate::version::VersionOrder;
use crate::{Error, Result};
use esker_base::counters::{count, Counter};
use esker_format::block::flags;
use esker_format::run::RowIdSet;
use esker_format::{BlockEntry, CommitSeq, FileId, FormatError};
use std::cmp::Ordering;
use std::collections::HashSet;
use std::sync::{atomic, Arc};

/// What a check found.
#[derive(Debug, Clone, Default)]
pub struct CheckReport {
    /// Blocks read.
    pub blocks: u64,
    /// Row versions in them, deleted ones included.
    pub rows: u64,
    /// Bytes read.
    pub bytes: u64,
    /// The caller stopped it.
    pub stopped: bool,
    /// What is wrong; empty if nothing is.
    pub damages: Vec<Error>,
    /// Of each index that was not held against the rows, since its keys cannot be made here (the front end's collations are not known,
    /// or weigh otherwise by now): why. Its blocks were checked as all others.
    pub unheld: Vec<Error>,
}

/// More findings than this are counted no further: the table is lost beyond listing.
const MOST_FINDINGS: usize = 100;

/// What of a table is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckScope {
    /// Every block; entries of indexes are held against the rows, and each is looked up by its key.
    Extended,
    /// Every block; entries of indexes are held against the rows.
    All,
    /// The blocks of runs that no check of this process has found sound.
    Unchecked,
    /// No block: only whether every run is open, with its index.
    Quick,
}

impl CheckScope {
    /// Is it about more than blocks?
    pub(crate) fn holds_rows(self) -> bool {
        matches!(self, CheckScope::Extended | CheckScope::All)
    }
}

/// What is read once more, and how far that is: all rows, and then each index.
#[derive(Default)]
pub(crate) struct Recheck {
    /// Blocks that were read before.
    before: u64,
    /// Of each part.
    blocks: Vec<u64>,
    /// How often who reads a part asks whether to go on; about.
    asks: u64,
}

impl Recheck {
    /// `blocks`: of the rows, and of each index.
    fn of(table: &Table, blocks: &[u64]) -> Recheck {
        let trees = table.trees();
        let of = |tree: usize| blocks.get(tree).copied().unwrap_or(0);
        let asks = trees.live.newest() / ASK_EVERY;
        // What is in memory takes time, too.
        let parts = std::iter::once(0).chain(trees.kept_indexes().map(|(at, _)| at + 1)).map(|tree| of(tree).max(asks));
        Recheck { before: blocks.iter().sum(), blocks: parts.collect(), asks }
    }

    fn total(&self) -> u64 {
        self.before + self.blocks.iter().sum::<u64>()
    }

    /// So much is done when who reads this part has asked so often.
    fn done(&self, part: usize, asked: u64) -> u64 {
        let earlier = self.blocks.iter().take(part).sum::<u64>();
        let blocks = self.blocks.get(part).copied().unwrap_or(0);
        let share = u128::from(asked.min(self.asks)) * u128::from(blocks) / u128::from(self.asks.max(1));
        self.before + earlier + share as u64
    }
}

/// Checks a table's blocks. `progress` gets blocks done and blocks there are, with those that [`rows`] will read once more; false
/// stops it.
pub(crate) fn table(
    table: &Table,
    scope: CheckScope,
    progress: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<(CheckReport, Recheck)> {
    let mut report = CheckReport::default();
    let trees: Vec<AnyTree> = table.trees().all().collect();
    let (mut blocks, mut unread) = (Vec::new(), HashSet::new());
    for tree in &trees {
        blocks.push(with_tree!(tree, tree => report.open(&wanted_runs(tree, scope), &mut unread))?);
    }
    let again = if scope.holds_rows() { Recheck::of(table, &blocks) } else { Recheck::default() };
    if scope == CheckScope::Quick {
        return Ok((report, again));
    }
    let total = again.total().max(blocks.iter().sum());
    for tree in &trees {
        let mut tell = |done| progress(done, total);
        if !with_tree!(tree, tree => report.read(&wanted_runs(tree, scope), &unread, &mut tell))? {
            break;
        }
    }
    Ok((report, again))
}

/// Holds every index of a table, and the number of its rows that is kept, against the rows, as `session` sees them; `by_key`, each
/// entry is looked up. `progress` goes on where [`table`] was.
pub(crate) fn rows(
    session: &mut Session,
    table: &Arc<Table>,
    report: &mut CheckReport,
    again: &Recheck,
    by_key: bool,
    progress: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<()> {
    let (mut read, trees) = (None, table.trees());
    let (mut places, mut parts) = (Vec::new(), vec![0]);
    for (part, (at, index)) in (1..).zip(trees.kept_indexes()) {
        match index.makes_keys() {
            Ok(()) => {
                places.push(at);
                parts.push(part);
            }
            Err(why) => report.unheld.push(why),
        }
    }
    let (mut now, mut asked) = (0, 0);
    let mut go_on = |part| {
        (now, asked) = (part, if part == now { asked + 1 } else { 1 });
        progress(again.done(part, asked), again.total())
    };
    if !places.is_empty() {
        match session.check_indexes(table, &places, by_key, &mut |n| go_on(parts[n])) {
            Ok(held) => read = report.take_held(table, &trees, places.into_iter().zip(held))?,
            Err(e) => report.found_or_stopped(Err(e))?,
        }
        if report.stopped {
            return Ok(());
        }
    }
    match session.check_count(table, read, &mut || go_on(0)) {
        Err(wrong @ Error::CountMismatch { .. }) => report.damages.push(wrong),
        checked => report.found_or_stopped(checked)?,
    }
    Ok(())
}

/// The runs of a tree that are to be checked. Each file once and wholly, though several parts of it may be in use.
fn wanted_runs<K: Stored>(tree: &Tree<K>, scope: CheckScope) -> Vec<RunHandle<K>> {
    let state = tree.snapshot();
    let mut seen = HashSet::new();
    let wanted = |r: &&RunHandle<K>| scope != CheckScope::Unchecked || !r.run.checked.load(atomic::Ordering::Relaxed);
    state.runs.iter().filter(|r| seen.insert(r.run.file_id)).filter(wanted).cloned().collect()
}

impl CheckReport {
    /// Reads the indexes of runs; how many blocks they have. Those that cannot be read go to `unread`.
    fn open<K: Stored>(&mut self, runs: &[RunHandle<K>], unread: &mut HashSet<FileId>) -> Result<u64> {
        let mut blocks = 0;
        for handle in runs {
            match handle.run.index() {
                Ok(index) => blocks += index.entries().len() as u64,
                Err(e) => {
                    self.found(Err(e))?;
                    unread.insert(handle.run.file_id);
                }
            }
        }
        Ok(blocks)
    }

    /// Reads all blocks of runs but of those whose index was `unread`, and tells how many were read; false if it was stopped, or there is no end of findings.
    fn read<K: Stored>(
        &mut self,
        runs: &[RunHandle<K>],
        unread: &HashSet<FileId>,
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<bool> {
        for handle in runs.iter().filter(|h| !unread.contains(&h.run.file_id)) {
            let found = self.damages.len();
            let (mut last, mut row_ids) = (None, Some(RowIdSet::default()));
            let blocks = match handle.run.index() {
                Ok(blocks) => blocks.keep(),
                Err(e) => {
                    self.found(Err(e))?;
                    continue;
                }
            };
            for index in 0..blocks.entries().len() {
                let checked = check_block(handle, &blocks, index, &mut last, &mut row_ids);
                if checked.is_err() {
                    // The order of the next ones is not known.
                    row_ids = None;
                }
                self.found(checked)?;
                let entry = blocks.entry(index);
                self.blocks += 1;
                self.rows += u64::from(entry.rows);
                self.bytes += u64::from(entry.stored_bytes);
                if self.damages.len() >= MOST_FINDINGS {
                    return Ok(false);
                }
                if !progress(self.blocks) {
                    self.stopped = true;
                    return Ok(false);
                }
            }
            if let Some(row_ids) = row_ids {
                self.found(handle.run.check_row_ids(row_ids))?;
            }
            let sound = self.damages.len() == found;
            handle.run.checked.store(sound, atomic::Ordering::Relaxed);
        }
        Ok(true)
    }

    /// Takes in what holding indexes, at their places, against a table's rows has come to; how many rows there are, if that is known.
    fn take_held(
        &mut self,
        table: &Table,
        trees: &Trees,
        held: impl Iterator<Item = (usize, Result<IndexReport>)>,
    ) -> Result<Option<u64>> {
        let mut rows = None;
        for (at, held) in held {
            match held {
                Ok(held) => {
                    let index = &trees.index(at)?.entry.name;
                    let of = |what| Error::IndexMismatch { table: table.name(), index: index.clone(), what };
                    self.damages.extend(held.wrong.into_iter().map(of));
                    rows = Some(held.rows);
                }
                Err(e) => self.found_or_stopped(Err(e))?,
            }
        }
        Ok(rows)
    }

    /// As [`found`](Self::found), of what the caller may have stopped.
    fn found_or_stopped(&mut self, result: Result<()>) -> Result<()> {
        self.stopped |= matches!(result, Err(Error::Interrupted));
        if self.stopped {
            return Ok(());
        }
        self.found(result)
    }

    /// Takes a finding in; any other error ends the check.
    fn found(&mut self, result: Result<()>) -> Result<()> {
        match result {
            Err(e) if e.is_want_of_resources() => Err(e),
            Err(
                e @ (Error::Damage { .. }
                | Error::Io(_)
                | Error::NewerFormat { .. }
                | Error::OlderFormat { .. }
                | Error::UnknownContent { .. }),
            ) => {
                count(Counter::BlocksDamaged, 1);
                self.damages.push(e);
                Ok(())
            }
            result => result,
        }
    }
}

/// A version's key, and its place among that key's versions.
type Place<K> = (<K as Key>::Own, VersionOrder);

/// Everything that a scan trusts: the block against itself, its index entry, the place it has in its run; `last` is the
/// version before it.
fn check_block<K: Stored>(
    handle: &RunHandle<K>,
    blocks: &Index<K>,
    index: usize,
    last: &mut Option<Place<K>>,
    row_ids: &mut Option<RowIdSet>,
) -> Result<()> {
    let run = &handle.run;
    let before = last.take();
    let block = run.read_in_order(blocks, index)?;
    let entry = blocks.entry(index);
    K::verify(&block).map_err(|e| run.damage(entry.offset, e))?;
    let bad = |what, found: u64| run.damage(entry.offset, FormatError::Invalid { what, found });
    run.check_filter(blocks, index, &block)?;
    let found = read_entry::<K>(&block);
    let pairs = [
        ("rows of a block against its index entry", u64::from(entry.rows), u64::from(found.rows)),
        ("first row of a block against its index entry", entry.first_id.0, found.first_id.0),
        ("last row of a block against its index entry", entry.last_id.0, found.last_id.0),
        ("least sequence of a block against its index entry", entry.min_seq.0, found.min_seq.0),
        ("greatest sequence of a block against its index entry", entry.max_seq.0, found.max_seq.0),
        ("least ordinal of a block against its index entry", entry.min_ordinal, found.min_ordinal),
        ("greatest ordinal of a block against its index entry", entry.max_ordinal, found.max_ordinal),
        ("tombstones of a block against its index entry", u64::from(entry.tombstones), u64::from(found.tombstones)),
        (
            "superseding versions of a block against its index entry",
            u64::from(entry.supersedes),
            u64::from(found.supersedes),
        ),
        ("flags of a block against its index entry", u64::from(entry.flags), u64::from(found.flags)),
    ];
    for (what, expected, found) in pairs {
        if expected != found {
            return Err(bad(what, found));
        }
    }
    // Rows of one transaction's run have its sequence; all others have their own.
    let own = handle.owner.is_none() && handle.seq == CommitSeq::ZERO;
    if (own && entry.min_seq == CommitSeq::ZERO) || (!own && entry.max_seq != CommitSeq::ZERO) {
        return Err(bad("sequences of a block in a run of this kind", entry.min_seq.0));
    }
    *last = check_order::<K>(&block, before).map_err(|at| bad("order of the versions of a key", at.into()))?;
    if let Some(row_ids) = row_ids.as_mut().filter(|_| K::OF_INDEX == 0) {
        (0..K::rows(&block)).for_each(|i| row_ids.add(K::row(&block, i)));
    }
    Ok(())
}

/// What a block's index entry must say of it.
fn read_entry<K: Stored>(block: &K::Block) -> BlockEntry {
    let rows = K::rows(block);
    let tags = || (0..rows).map(|i| K::tag(block, i));
    let ids = || (0..rows).map(|i| K::row(block, i));
    let seqs = (tags().map(|t| t.seq).min().unwrap_or_default(), tags().map(|t| t.seq).max().unwrap_or_default());
    let ordinals: Vec<u64> = tags().map(|t| t.ordinal).collect();
    let unique = (1..rows).all(|i| K::cmp(K::key(block, i - 1), K::key(block, i)).is_ne());
    let rises = ordinals.windows(2).all(|w| w[0].checked_add(1) == Some(w[1]));
    let flag = |on: bool, flag: u32| if on { flag } else { 0 };
    BlockEntry {
        rows,
        tombstones: tags().filter(|t| t.tombstone).count() as u32,
        supersedes: tags().filter(|t| t.supersedes).count() as u32,
        first_id: ids().min().unwrap_or_default(),
        last_id: ids().max().unwrap_or_default(),
        min_seq: seqs.0,
        max_seq: seqs.1,
        min_ordinal: ordinals.iter().copied().min().unwrap_or_default(),
        max_ordinal: ordinals.iter().copied().max().unwrap_or_default(),
        flags: flag(unique, flags::IDS_UNIQUE)
            | K::flags(block)
            | flag(seqs.0 == seqs.1, flags::SEQ_UNIFORM)
            | flag(seqs.1 == CommitSeq::ZERO, flags::SEQ_ZERO)
            | flag(rises, flags::ORDINALS_DENSE),
        ..BlockEntry::default()
    }
}

/// Keys rise, and the versions of a key come newest first; the last of them, or the one that is out of order.
fn check_order<K: Stored>(block: &K::Block, before: Option<Place<K>>) -> std::result::Result<Option<Place<K>>, u32> {
    let order = |i: u32| {
        let tag = K::tag(block, i);
        VersionOrder::new(tag.seq, tag.ordinal)
    };
    let follows = |at: u32, (key, before): (K::Ref<'_>, VersionOrder)| match K::cmp(K::key(block, at), key) {
        Ordering::Less => Err(at),
        Ordering::Equal if order(at) >= before => Err(at),
        _ => Ok(()),
    };
    if let Some((key, order)) = &before {
        follows(0, (K::lend(key), *order))?;
    }
    (1..K::rows(block)).try_for_each(|i| follows(i, (K::key(block, i - 1), order(i - 1))))?;
    let last = K::rows(block) - 1;
    Ok(Some((K::own(K::key(block, last)), order(last))))
}

#[cfg(test)]
mod tests;
