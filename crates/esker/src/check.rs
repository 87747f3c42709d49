//! CHECK TABLE: reads every block of a table past the cache and verifies it against its index entry and its neighbours.

use crate::core::Core;
use crate::run::Run;
use crate::table::Table;
use crate::tree::RunHandle;
use crate::{Error, Result};
use esker_trace::counters::{count, Counter};
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
        if scope == CheckScope::Quick {
            report.damages.extend(state.runs.iter().filter_map(|r| r.run.load().err()));
            return Ok(report);
        }
        let wanted = |r: &&RunHandle| scope == CheckScope::All || !r.run.checked.load(Ordering::Relaxed);
        let runs: Vec<&RunHandle> = state.runs.iter().filter(wanted).collect();
        let total: u64 = runs.iter().map(|r| r.run.entries().len() as u64).sum();
        for handle in runs {
            let found = report.damages.len();
            for index in 0..handle.run.entries().len() {
                match check_block(&handle.run, index) {
                    Ok(()) => {}
                    Err(e @ (Error::Damage { .. } | Error::Io(_))) => {
                        count(Counter::BlocksDamaged, 1);
                        report.damages.push(e);
                    }
                    Err(e) => return Err(e),
                }
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
            handle.run.checked.store(report.damages.len() == found, Ordering::Relaxed);
        }
        Ok(report)
    }
}

fn check_block(run: &Run, index: usize) -> Result<()> {
    let block = run.read_block(index)?;
    block.verify().map_err(|e| run.damage(index, e))?;
    let entry = &run.entries()[index];
    let same = |what, expected: u64, found: u64| match expected == found {
        true => Ok(()),
        false => Err(run.damage(index, esker_format::FormatError::Invalid { what, found })),
    };
    same("rows of a block against its index entry", u64::from(entry.rows), u64::from(block.rows()))?;
    same("first row of a block against its index entry", entry.first_id.0, block.first_id().0)?;
    same("last row of a block against its index entry", entry.last_id.0, block.last_id().0)?;
    if index > 0 && run.entries()[index - 1].last_id > entry.first_id {
        same("first row of a block against the block before", run.entries()[index - 1].last_id.0, entry.first_id.0)?;
    }
    Ok(())
}
