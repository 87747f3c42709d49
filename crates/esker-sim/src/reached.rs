//! What the seeds of a scenario must have reached: a scenario in which no memtable was ever flushed says nothing about
//! flushes.

use crate::sim::Stats;
use esker::base::counters::{global_total, Counter};

/// Figures that must not stay zero over the seeds of a scenario: names of the engine's counters and of the simulator's
/// figures ([`Stats::figures`]).
#[derive(Debug, Clone, Copy)]
pub struct Must(pub &'static [&'static str]);

/// What every workload reaches that goes on for a while.
pub const WORK: Must = Must(&[
    "reads_followed",
    "flushes",
    "merges",
    "merges_for_reads",
    "runs_narrowed",
    "versions_settled",
    "blocks_copied",
    "checkpoints",
    "manifest_edits",
    "runs_attached",
    "rows_purged",
    "prepares",
    "versions_carried",
    "runs_moved",
    "wal_segments_recycled",
    "steps_inside",
    "decided_inside",
    "tombstone_runs",
    "blocks_evicted",
    "blocks_unpacked",
    "blocks_read_ahead",
    "buffer_writes_kept",
    "reads_announced",
    "entries_together",
    "row_ids_kept",
    "keys_flushed",
    "keys_merged",
    "keys_narrowed",
    "keys_moved",
    "keys_alike_in_memory",
    "keys_alike_in_runs",
    "duplicates",
    "keys_pending",
    "keys_overtaken",
    "kept_checked_in_views",
    "counts_kept",
    "indexes_built",
    "indexes_added",
    "indexes_dropped",
    "indexes_renamed",
    "build_duplicates",
    "steps_inside_builds",
    "alters_overtaken",
    "alters_refused",
    "writers_refused",
    "views_refused",
]);

/// As [`WORK`], of one that is cut.
pub const CRASHES: Must = Must(&[
    "reads_followed",
    "flushes",
    "merges",
    "merges_for_reads",
    "runs_narrowed",
    "versions_settled",
    "blocks_copied",
    "checkpoints",
    "manifest_edits",
    "runs_attached",
    "rows_purged",
    "prepares",
    "versions_carried",
    "runs_moved",
    "wal_segments_recycled",
    "steps_inside",
    "decided_inside",
    "tombstone_runs",
    "crashes",
    "blocks_read_ahead",
    "buffer_writes_kept",
    "entries_together",
    "row_ids_kept",
    "kills_inside",
    "recovery_records",
    "keys_flushed",
    "keys_merged",
    "keys_narrowed",
    "keys_moved",
    "keys_alike_in_memory",
    "keys_alike_in_runs",
    "keys_from_log",
    "keys_from_runs",
    "keys_prepared",
    "duplicates",
    "keys_pending",
    "kept_checked_in_views",
    "rows_hidden",
    "counts_kept",
    "indexes_built",
    "indexes_added",
    "indexes_dropped",
    "steps_inside_builds",
    "alters_overtaken",
    "writers_refused",
    "builds_cut",
]);

/// As [`WORK`], of one that meets faults, some of which stop the engine.
pub const FAULTS: Must = Must(&[
    "flushes",
    "merges",
    "checkpoints",
    "manifest_edits",
    "runs_attached",
    "steps_inside",
    "recovery_records",
    "blocks_read_ahead",
    "buffer_writes_kept",
    "entries_together",
    "row_ids_kept",
    "faults",
    "poisoned",
    "counts_kept",
    "keys_flushed",
    "keys_merged",
    "keys_from_log",
    "keys_from_runs",
    "indexes_built",
    "indexes_added",
    "indexes_dropped",
    "writers_refused",
]);

/// All counters of the process, by name.
pub(crate) fn counted() -> Vec<(&'static str, u64)> {
    Counter::ALL.iter().map(|c| (c.name(), global_total(*c))).collect()
}

impl Must {
    /// What was not reached since the counters stood at `before`, by seeds that did `stats`.
    pub(crate) fn missing(self, before: &[(&'static str, u64)], stats: &Stats) -> Vec<&'static str> {
        let now = counted();
        let figures = stats.figures();
        let rose = |name: &str| now.iter().zip(before).any(|(now, then)| now.0 == name && now.1 > then.1);
        let seen = |name: &str| figures.iter().any(|(figure, n)| *figure == name && *n > 0);
        self.0.iter().copied().filter(|name| !rose(name) && !seen(name)).collect()
    }
}
