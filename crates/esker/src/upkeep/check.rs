//! CHECK TABLE: reads every block of a table past the cache and verifies it against its index entry and its neighbours.

use crate::catalog::table::Table;
use crate::core::Core;
use crate::tree::run::Block;
use crate::tree::RunHandle;
use crate::version::VersionOrder;
use crate::{Error, Result};
use esker_base::counters::{count, Counter};
use esker_format::block::flags;
use esker_format::{BlockEntry, CommitSeq, FormatError, RowId};
use std::collections::HashSet;
use std::sync::atomic::Ordering;

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
}

/// More findings than this are counted no further: the table is lost beyond listing.
const MOST_FINDINGS: usize = 100;

/// What of a table is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckScope {
    /// Every block.
    All,
    /// The blocks of runs that no check of this process has found sound.
    Unchecked,
    /// No block: only whether every run is open, with its index.
    Quick,
}

impl Core {
    pub(crate) fn check(
        &self,
        table: &Table,
        scope: CheckScope,
        progress: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<CheckReport> {
        let state = table.tree().snapshot();
        let mut report = CheckReport::default();
        let wanted = |r: &&RunHandle| scope != CheckScope::Unchecked || !r.run.checked.load(Ordering::Relaxed);
        // Each file once and wholly, though several parts of it may be in use.
        let mut seen = HashSet::new();
        let runs: Vec<&RunHandle> = state.runs.iter().filter(|r| seen.insert(r.run.file_id)).filter(wanted).collect();
        for handle in &runs {
            report.found(handle.run.load())?;
        }
        if scope == CheckScope::Quick {
            return Ok(report);
        }
        let total: u64 = runs.iter().map(|r| r.run.entries().len() as u64).sum();
        for handle in runs {
            let found = report.damages.len();
            let mut last = None;
            for index in 0..handle.run.entries().len() {
                report.found(check_block(handle, index, &mut last))?;
                let entry = &handle.run.entries()[index];
                report.blocks += 1;
                report.rows += u64::from(entry.rows);
                report.bytes += u64::from(entry.stored_bytes);
                if report.damages.len() >= MOST_FINDINGS {
                    return Ok(report);
                }
                if !progress(report.blocks, total) {
                    report.stopped = true;
                    return Ok(report);
                }
            }
            let sound = report.damages.len() == found && handle.run.load().is_ok();
            handle.run.checked.store(sound, Ordering::Relaxed);
        }
        Ok(report)
    }
}

impl CheckReport {
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

/// A version's row, and its place among that row's versions.
type Place = (RowId, VersionOrder);

/// Everything that a scan trusts: the block against itself, its index entry, the place it has in its run; `last` is the
/// version before it.
fn check_block(handle: &RunHandle, index: usize, last: &mut Option<Place>) -> Result<()> {
    let run = &handle.run;
    let before = last.take();
    let block = run.read_block(index)?;
    block.verify().map_err(|e| run.damage(index, e))?;
    let bad = |what, found: u64| run.damage(index, FormatError::Invalid { what, found });
    let (entry, found) = (&run.entries()[index], read_entry(&block));
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
    *last = check_order(&block, before).map_err(|row| bad("order of the versions of a row", row.0))?;
    Ok(())
}

/// What a block's index entry must say of it.
fn read_entry(block: &Block) -> BlockEntry {
    let tags = || (0..block.rows()).map(|i| block.tag(i));
    let seqs = (tags().map(|t| t.seq).min().unwrap_or_default(), tags().map(|t| t.seq).max().unwrap_or_default());
    let ordinals: Vec<u64> = tags().map(|t| t.ordinal).collect();
    let unique = (1..block.rows()).all(|i| block.row_id(i - 1) != block.row_id(i));
    let rises = ordinals.windows(2).all(|w| w[0].checked_add(1) == Some(w[1]));
    let flag = |on: bool, flag: u32| if on { flag } else { 0 };
    BlockEntry {
        rows: block.rows(),
        tombstones: tags().filter(|t| t.tombstone).count() as u32,
        supersedes: tags().filter(|t| t.supersedes).count() as u32,
        first_id: block.row_id(0),
        last_id: block.row_id(block.rows() - 1),
        min_seq: seqs.0,
        max_seq: seqs.1,
        min_ordinal: ordinals.iter().copied().min().unwrap_or_default(),
        max_ordinal: ordinals.iter().copied().max().unwrap_or_default(),
        flags: flag(unique, flags::IDS_UNIQUE)
            | flag(block.ids_dense(), flags::IDS_DENSE)
            | flag(seqs.0 == seqs.1, flags::SEQ_UNIFORM)
            | flag(seqs.1 == CommitSeq::ZERO, flags::SEQ_ZERO)
            | flag(rises, flags::ORDINALS_DENSE),
        ..BlockEntry::default()
    }
}

/// Rows rise, and the versions of a row come newest first; the last of them, or the row that is out of order.
fn check_order(block: &Block, before: Option<Place>) -> std::result::Result<Option<Place>, RowId> {
    let mut last = before;
    for i in 0..block.rows() {
        let (row, tag) = (block.row_id(i), block.tag(i));
        let order = (tag.seq.0, tag.ordinal);
        if last.is_some_and(|(r, o)| row < r || (row == r && order >= o)) {
            return Err(row);
        }
        last = Some((row, order));
    }
    Ok(last)
}

#[cfg(test)]
mod tests;
