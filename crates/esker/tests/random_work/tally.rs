//! What was reached: seeds in which nothing was spilled say nothing about spills.

use esker::base::counters::global_totals;
use esker::base::Counter;
use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! tally {
    ($($name:ident),+ $(,)?) => {
        /// What the threads did, and what a crash met. None may be zero over all seeds.
        #[derive(Debug, Default)]
        pub struct Tally { $(pub $name: AtomicU64,)+ }

        impl Tally {
            fn all(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name.load(Ordering::Relaxed)),)+]
            }
        }
    };
}

tally! {
    commits, rollbacks, savepoints, statements_undone, transactions_undone_in_part, duplicates, conflicts,
    scans_compared, ranges_compared, counts_compared, locking_reads, locking_reads_refused, whole_keys_locked, gathers,
    locking_reads_beside_gathers, locking_reads_beside_spills, views_held, old_views_compared, old_views_refused,
    prepared, detached, decided_by_xid, tables_emptied, tables_renamed, tables_replaced, indexes_altered,
    tables_checked, tables_optimized, checkpoints_asked,
    power_cuts, kills, quiet_ends, ends_of_unknown_outcome, prepared_over_a_crash, decided_over_a_crash,
}

/// Of the engine's own counters those that may not stand still.
const MUST: &[Counter] = &[
    Counter::LargeSpills,
    Counter::Flushes,
    Counter::KeyFlushes,
    Counter::RunsMoved,
    Counter::VersionsCarried,
    Counter::Merges,
    Counter::KeyMerges,
    Counter::BlocksCopied,
    Counter::RunsNarrowed,
    Counter::VersionsSettled,
    Counter::RowsPurged,
    Counter::RunsAttached,
    Counter::KeyRunsAttached,
    Counter::RowIdsKept,
    Counter::EntriesTogether,
    Counter::Checkpoints,
    Counter::WalSegmentsRecycled,
    Counter::RecoveryRecords,
    Counter::Deadlocks,
    Counter::LockWaits,
    Counter::LockTimeouts,
    Counter::StatementRollbacks,
    Counter::DecisionsByOthers,
    Counter::IndexesBuilt,
];

impl Tally {
    pub fn add(to: &AtomicU64, n: u64) {
        to.fetch_add(n, Ordering::Relaxed);
    }
}

/// The engine's counters when the seeds begin.
pub struct Before([u64; Counter::COUNT]);

impl Before {
    pub fn now() -> Before {
        Before(global_totals())
    }

    /// All that must be reached, and how often it was.
    pub fn figures(&self, tally: &Tally) -> Vec<(&'static str, u64)> {
        let now = global_totals();
        let counted = MUST.iter().map(|c| (c.name(), now[*c as usize] - self.0[*c as usize]));
        tally.all().into_iter().chain(counted).collect()
    }
}
