//! What the simulator needs of the engine and nobody else: background work piece by piece, calls that do none on the
//! side, and a look at what lies in a table.
//!
//! Invariant: nothing here does what the engine's own threads or callers could not do at that moment.

use crate::catalog::table::Table;
use crate::engine::Engine;
use crate::Result;
use std::cell::Cell;

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work`; commits in this thread do no background work behind themselves meanwhile. Somebody else is in the
/// middle of it, and has its locks.
pub fn quietly<T>(work: impl FnOnce() -> T) -> T {
    struct Before(bool);
    impl Drop for Before {
        fn drop(&mut self) {
            QUIET.set(self.0);
        }
    }
    let _before = Before(QUIET.replace(true));
    work()
}

pub(crate) fn is_quiet() -> bool {
    QUIET.get()
}

/// A run of a table, as the simulator sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunFigures {
    /// Versions in it.
    pub rows: u64,
    /// Those of them that are tombstones.
    pub tombstones: u64,
    /// Its transaction has not ended, as far as the tree knows.
    pub private: bool,
}

impl Engine {
    /// Writes one table's memtable out.
    pub fn sim_flush(&self, table: &Table) -> Result<()> {
        self.core.flush(table, &table.tree())
    }

    /// One merge of one table; false if nothing there wants merging.
    pub fn sim_merge(&self, table: &Table) -> Result<bool> {
        self.core.merge_once(table, &table.tree(), false)
    }

    /// A manifest, nothing flushed before.
    pub fn sim_manifest(&self) -> Result<()> {
        self.core.checkpoint()
    }

    /// One round of the background threads that look after log and memory, with what they make of an error.
    pub fn sim_round(&self) -> Result<()> {
        self.judged(self.core.one_round())
    }

    /// One round of the background thread that merges; false if nothing wants merging.
    pub fn sim_merge_round(&self) -> Result<bool> {
        self.judged(self.core.merge_somewhere())
    }

    fn judged<T>(&self, result: Result<T>) -> Result<T> {
        match &result {
            Err(e) if e.stops_writing() => self.core.poison(&e.to_string()),
            _ => {}
        }
        result
    }

    /// Time passes, in milliseconds: in inline mode it stands still otherwise. What failed may be tried again.
    pub fn sim_pass(&self, ms: u64) {
        self.core.cache.files.clock.pass(ms);
    }

    /// The runs of a table.
    pub fn sim_runs(&self, table: &Table) -> Vec<RunFigures> {
        let state = table.tree().snapshot();
        let figures = |h: &crate::tree::RunHandle| {
            let stats = &h.run.stats;
            RunFigures { rows: stats.rows, tombstones: stats.tombstones, private: h.owner.is_some() }
        };
        state.runs.iter().map(figures).collect()
    }
}
