//! What the engine says about itself: figures for status variables, and a page for people.

mod files;
mod memory;
mod waits;

pub use files::FileInfo;
pub use memory::{MemoryInfo, MemoryOwner};
pub use waits::{WaitBucket, WaitInfo};

use crate::catalog::table::with_tree;
use crate::engine::Engine;
use crate::tree::stored::Stored;
use crate::tree::Tree;
use esker_base::counters::{global_total, Counter};
use esker_base::phase::{self, CommitPhase};
use esker_format::Lsn;
use esker_memory::{charged, Account};
use esker_wal::SyncMethod;
use std::collections::HashSet;
use std::fmt::Write;

/// Figures of an engine at a moment.
#[derive(Debug, Clone, Default)]
pub struct Status {
    /// Tables.
    pub tables: u64,
    /// Runs of all tables.
    pub runs: u64,
    /// Bytes of all run files.
    pub run_bytes: u64,
    /// How far merging is behind, in bytes: from a few runs' on commits are slowed.
    pub merge_debt_bytes: u64,
    /// Bytes of blocks in the cache, without what is decompressed beside them.
    pub cache_bytes: u64,
    /// End of the log.
    pub wal_end: Lsn,
    /// The log is durable up to here.
    pub wal_durable: Lsn,
    /// How it is made durable.
    pub sync_method: SyncMethod,
    /// Replay would begin here.
    pub replay_from: Lsn,
    /// The log ended here when it was opened.
    pub recovered_to: Lsn,
    /// Bytes of log that were replayed then.
    pub recovered_bytes: u64,
    /// The newest visible commit sequence.
    pub visible_seq: u64,
    /// The oldest sequence that a view may need.
    pub view_horizon: u64,
    /// Prepared transactions.
    pub prepared: u64,
    /// Bound of large memory, in bytes.
    pub memory_limit_bytes: u64,
}

impl Engine {
    /// Figures. Takes no lock that a row operation takes.
    pub fn status(&self) -> Status {
        let core = &self.core;
        let mut status = Status {
            merge_debt_bytes: core.signals.merge_debt_bytes(),
            cache_bytes: core.cache.bytes(),
            wal_end: core.wal.end_lsn(),
            wal_durable: core.wal.durable_lsn(),
            sync_method: core.wal.syncing().method,
            replay_from: core.signals.replay_from(),
            recovered_to: core.wal.replayed().end,
            recovered_bytes: core.wal.replayed().size_bytes,
            visible_seq: core.views.visible_seq().0,
            view_horizon: core.views.horizon().0,
            prepared: core.prepared.lock().len() as u64,
            memory_limit_bytes: core.settings.memory_limit_bytes(),
            ..Status::default()
        };
        let tables = core.shown_tables();
        status.tables = tables.len() as u64;
        for tree in tables.iter().flat_map(|table| table.trees().all().collect::<Vec<_>>()) {
            with_tree!(tree, tree => status.add_runs(&tree));
        }
        status
    }

    /// The page that SHOW ENGINE ESKER STATUS prints.
    pub fn status_text(&self) -> String {
        self.status_text_named(&str::to_owned)
    }

    /// The same with tables called as `name` calls them; none of the engine's locks is held then.
    pub fn status_text_named(&self, name: &dyn Fn(&str) -> String) -> String {
        let (s, mut out) = (self.status(), String::new());
        tell_log(&s, &mut out);
        self.tell_transactions(&s, name, &mut out);
        let _ = writeln!(out, "\nMEMORY\n------");
        for account in Account::ALL {
            let _ = writeln!(out, "{} {}", account.name(), charged(account));
        }
        let _ = writeln!(out, "limit {}", s.memory_limit_bytes);
        self.tell_tables(name, &mut out);
        tell_waits(&mut out);
        let _ = writeln!(out, "\nCOUNTERS\n--------");
        for counter in Counter::ALL {
            let _ = writeln!(out, "{} {}", counter.name(), global_total(*counter));
        }
        out
    }

    fn tell_transactions(&self, s: &Status, name: &dyn Fn(&str) -> String, out: &mut String) {
        let _ = writeln!(out, "\nTRANSACTIONS\n------------");
        for (txn, rows) in self.core.writers.locked_rows() {
            let _ = writeln!(out, "transaction {txn}: {rows} rows locked");
        }
        let _ = writeln!(out, "prepared {}", s.prepared);
        let deadlock = self.core.sessions.last_deadlock.lock().clone();
        if let Some(deadlock) = deadlock {
            let _ = writeln!(out, "\nLAST DEADLOCK\n-------------");
            deadlock.tell(&*self.core.host, name, out);
        }
    }

    fn tell_tables(&self, name: &dyn Fn(&str) -> String, out: &mut String) {
        let _ = writeln!(out, "\nTABLES\n------");
        let mut tables = self.core.shown_tables();
        tables.sort_by_key(|table| table.name());
        for table in tables {
            let (stats, tree) = (table.stats(), table.tree());
            let _ = writeln!(
                out,
                "{}: about {} rows, {} runs, {} bytes on disk and in memory, {} range deletes, next row {}",
                name(&table.name()),
                stats.rows,
                stats.runs,
                stats.data_bytes,
                tree.snapshot().marks.len(),
                tree.next_row()
            );
        }
    }
}

fn tell_log(s: &Status, out: &mut String) {
    let _ = writeln!(out, "LOG\n---");
    let _ = writeln!(
        out,
        "end {}, durable {} by {}, replay from {} ({} bytes)",
        s.wal_end,
        s.wal_durable,
        s.sync_method,
        s.replay_from,
        s.wal_end.0.saturating_sub(s.replay_from.0)
    );
    let _ = writeln!(out, "visible commit sequence {}, oldest view {}", s.visible_seq, s.view_horizon);
}

/// Waits, phases of commit, and locks for which somebody has waited.
fn tell_waits(out: &mut String) {
    let _ = writeln!(out, "\nWAITS\n-----");
    for (event, times) in esker_base::wait::report() {
        let _ = writeln!(
            out,
            "{}: {} times, {} us in all, mean {} ns, 99% below {} ns",
            event.name(),
            times.count,
            times.sum_ns / 1000,
            times.mean_ns(),
            times.quantile_ns(0.99)
        );
    }
    let _ = writeln!(out, "\nPHASES OF COMMIT\n----------------");
    for phase in CommitPhase::ALL {
        let found = phase::figures(*phase);
        let (name, count, us) = (phase.name(), found.count, found.sum_ns / 1000);
        let _ = writeln!(out, "{name}: {count} times, {us} us in all");
    }
    let _ = writeln!(out, "\nLOCKS (contended)\n-----");
    for site in esker_base::lock::report().iter().filter(|s| s.contended > 0) {
        let _ = writeln!(out, "{}: {} times", site.name, site.contended);
    }
}

impl Status {
    fn add_runs<K: Stored>(&mut self, tree: &Tree<K>) {
        // Each file once, though several parts of it may be in use.
        let mut seen = HashSet::new();
        for handle in tree.snapshot().runs.iter().filter(|h| seen.insert(h.run.file_id)) {
            self.runs += 1;
            self.run_bytes += handle.run.size_bytes();
        }
    }
}
