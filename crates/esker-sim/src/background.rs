//! Background work as steps of the schedule: a flush of one table, a merge, a manifest, each alone and in any order, and
//! the rounds of the engine's own controllers; sessions go on in the middle of it.
//!
//! Invariant: in the middle of one piece of work only such others are begun as the engine's threads and callers could
//! do beside it.

use crate::meanwhile::Inside;
use crate::model::{IndexModel, Key};
use crate::sim::{Answer, Failure, Flow, Refusal, Sim};
use esker::{Engine, Table};
use std::sync::Arc;

/// A piece of background work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    Flush,
    Merge,
    Manifest,
    Optimize,
    Round,
    MergeRound,
    Everything,
}

impl Work {
    fn inside(self) -> Inside {
        match self {
            Work::Flush => Inside::Flush,
            Work::Merge | Work::MergeRound => Inside::Merge,
            Work::Manifest => Inside::Manifest,
            Work::Optimize | Work::Round | Work::Everything => Inside::Everything,
        }
    }

    fn run(self, engine: &Engine, table: &Arc<Table>) -> esker::Result<()> {
        match self {
            Work::Flush => engine.sim_flush(table),
            Work::Merge => engine.sim_merge(table).map(|_| ()),
            Work::Manifest => engine.sim_manifest(),
            Work::Optimize => engine.optimize(table, &mut |_, _| true),
            Work::Round => engine.sim_round(),
            Work::MergeRound => engine.sim_merge_round().map(|_| ()),
            Work::Everything => engine.checkpoint(),
        }
    }

    /// Is a manifest written in any case?
    fn ends_in_manifest(self) -> bool {
        matches!(self, Work::Manifest | Work::Everything)
    }
}

impl Sim {
    /// Some background work.
    pub(crate) fn some_background(&mut self, name: &str) -> Result<Flow, Failure> {
        let choices: &[Work] = match self.inside {
            None => &[
                Work::Flush,
                Work::Flush,
                Work::Flush,
                Work::Merge,
                Work::Merge,
                Work::Manifest,
                Work::Manifest,
                Work::Round,
                Work::Round,
                Work::MergeRound,
                Work::Optimize,
                Work::Everything,
            ],
            Some(Inside::Flush) => &[Work::Merge, Work::MergeRound, Work::Manifest],
            Some(Inside::Merge) => &[Work::Flush, Work::Manifest],
            Some(Inside::Manifest) => &[Work::Flush],
            Some(Inside::Seal(_) | Inside::Build(_)) => {
                &[Work::Flush, Work::Merge, Work::Manifest, Work::Round, Work::Everything]
            }
            Some(Inside::Everything) => return Ok(Flow::Go),
        };
        let work = *self.rng.pick(choices);
        self.background(name, work)
    }

    /// One piece of background work on one table, or on all.
    pub(crate) fn background(&mut self, name: &str, work: Work) -> Result<Flow, Failure> {
        self.note(|| format!("{work:?} of {name}"));
        let engine = self.engine()?.clone();
        let table = engine.open_table(name).map_err(|e| Failure::new(format!("open table {name}: {e}")))?;
        // What is committed in the middle of it is none of its business.
        let (events, tables) = (self.model.sure(), self.keys());
        let syncs = work == Work::Round && self.syncs_lazily();
        let keys_before = engine.sim_key_runs(&table);
        let answer = self.meanwhile(work.inside(), || work.run(&engine, &table))?;
        // The table was dropped in the middle of it, perhaps.
        let gone = self.keys() != tables;
        let expected: &[Refusal] = if gone { &[Refusal::NoSuchTable, Refusal::Interrupted] } else { &[] };
        let answer = self.judge(&format!("{work:?} of {name}"), answer, expected, false)?;
        if !self.disk.is_power_cut() {
            let runs = engine.sim_runs(&table);
            let merge = matches!(work, Work::Merge | Work::MergeRound | Work::Optimize);
            self.see_key_runs(&table, &keys_before, work == Work::Flush, merge)?;
            self.stats.tombstone_runs += runs.iter().filter(|r| r.tombstones > 0).count() as u64;
        }
        match answer {
            Answer::Ok(()) => {
                self.stats.lazy_syncs += u64::from(syncs);
                if syncs || work.ends_in_manifest() {
                    self.model.durable_to(events);
                }
                Ok(Flow::Go)
            }
            Answer::No(_) => Ok(Flow::Go),
            Answer::Fault => self.after_fault(),
        }
    }

    /// The tables and their indexes.
    fn keys(&self) -> Vec<(Key, Vec<IndexModel>)> {
        self.model.tables.values().map(|t| (t.key, t.indexes.clone())).collect()
    }

    /// All background work that there is.
    pub(crate) fn checkpoint(&mut self) -> Result<Flow, Failure> {
        self.note(|| "checkpoint".into());
        let answer = self.engine()?.checkpoint();
        match self.judge("checkpoint", answer, &[], false)? {
            Answer::Ok(()) => {
                self.model.all_durable();
                Ok(Flow::Go)
            }
            _ => self.after_fault(),
        }
    }
}
