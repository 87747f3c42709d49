//! The report, as `--json` prints it: all times are in ns. Text and page are made of it.

mod build;

use crate::plan;
use serde::Serialize;

/// Version of the report's names.
pub const SCHEMA_VERSION: u32 = 1;

/// A file's report.
#[derive(Debug, Serialize)]
#[allow(missing_docs)] // the names say it; docs/TRACE.md has them with their meanings
pub struct File {
    pub name: String,
    pub parts: Vec<TraceStart>,
    pub lines: u64,
    pub warnings: Vec<Warning>,
    pub warnings_in_all: u64,
    pub lost: Vec<Lost>,
    pub statements_ended: u64,
    pub statements_unfinished: u64,
    /// Of all statements that ended.
    pub total: Account,
    pub events_written: u64,
    pub events_dropped: u64,
    pub overhead_ns: u64,
    pub worker_ns: u64,
    /// Waits of the whole file that are in no statement that ended.
    pub outside: Vec<Row>,
    pub device: Distribution,
    pub slowest_reads: Vec<SlowWait>,
    pub slowest_statements: Vec<SlowStatement>,
    pub statements: Vec<StatementReport>,
}

/// Where time went.
#[derive(Debug, Serialize)]
#[allow(missing_docs)]
pub struct Account {
    pub wall_ns: i64,
    /// They add up to `wall_ns`; the last one is what is not accounted for.
    pub rows: Vec<Row>,
    /// Within the rows, not to be added.
    pub within: Vec<Row>,
    /// Not known of a statement without an end.
    pub unaccounted_ns: Option<i64>,
}

/// A row of an account.
#[derive(Debug, Clone, Serialize, PartialEq)]
#[allow(missing_docs)]
pub struct Row {
    pub what: String,
    /// `wait`, `processor`, `ready` or `unaccounted`.
    pub kind: &'static str,
    pub name: Option<String>,
    pub class: Option<String>,
    pub from: Option<String>,
    pub sum_ns: i64,
    /// Of the whole, 1 being all of it.
    pub share: Option<f64>,
    pub count: Option<u64>,
    pub mean_ns: Option<u64>,
    pub p50_ns: Option<u64>,
    pub p99_ns: Option<u64>,
    pub max_ns: Option<u64>,
    pub cpu_ns: Option<u64>,
    pub ready_ns: Option<u64>,
    pub bytes: Option<u64>,
    /// The distribution.
    pub powers: Vec<Bucket>,
    pub objects: Vec<Share>,
    pub nested: Vec<Share>,
}

/// A part of a row, of one object or of waits within it.
#[derive(Debug, Clone, Serialize, PartialEq)]
#[allow(missing_docs)]
pub struct Share {
    pub what: String,
    pub count: u64,
    pub sum_ns: u64,
    pub max_ns: u64,
}

/// How long reads from a device took.
#[derive(Debug, Clone, Default, Serialize)]
#[allow(missing_docs)]
pub struct Distribution {
    pub count: u64,
    pub modes: Vec<ModeReport>,
    pub powers: Vec<Bucket>,
}

/// A mode of a distribution.
#[derive(Debug, Clone, Serialize)]
#[allow(missing_docs)]
pub struct ModeReport {
    pub from_ns: u64,
    pub median_ns: u64,
    pub to_ns: u64,
    pub count: u64,
    pub share: f64,
    /// From the times alone.
    pub inferred: Option<&'static str>,
}

/// How many times lie from one time up to below another.
#[derive(Debug, Clone, Serialize, PartialEq)]
#[allow(missing_docs)]
pub struct Bucket {
    pub from_ns: u64,
    pub to_ns: u64,
    pub count: u64,
}

/// A wait that is told by itself.
#[derive(Debug, Clone, Serialize)]
#[allow(missing_docs)]
pub struct SlowWait {
    pub what: String,
    pub ns: u64,
    /// Since the statement began; for the file's, since the file began.
    pub at_ns: u64,
    pub query: Option<u64>,
    pub object: Option<String>,
    pub file: Option<u64>,
    pub path: Option<String>,
    /// In units of 4096 bytes, as `blocks`.
    pub block: Option<u64>,
    pub blocks: Option<u64>,
}

/// A line of the slowest statements.
#[derive(Debug, Clone, Serialize)]
#[allow(missing_docs)]
pub struct SlowStatement {
    pub query: Option<u64>,
    pub at_ns: u64,
    pub wall_ns: u64,
    pub text: Option<String>,
}

/// Tracing began, or went on.
#[derive(Debug, Clone, Serialize)]
#[allow(missing_docs)]
pub struct TraceStart {
    /// Not known where the line is damaged.
    pub conn: Option<u64>,
    pub user: Option<String>,
    pub server: Option<String>,
    pub esker: Option<String>,
    pub pid: Option<u64>,
    pub began: Option<String>,
    pub level: Option<String>,
    pub at_ns: Option<u64>,
}

/// What is wrong with a line.
#[derive(Debug, Clone, Serialize)]
#[allow(missing_docs)]
pub struct Warning {
    pub line: u64,
    pub text: String,
}

/// Tracing stopped by itself.
#[derive(Debug, Clone, Serialize)]
#[allow(missing_docs)]
pub struct Lost {
    pub at_ns: Option<u64>,
    pub why: Option<String>,
}

/// A call, or equal neighbours.
#[derive(Debug, Clone, Serialize)]
#[allow(missing_docs)]
pub struct CallStep {
    pub function: String,
    pub times: u64,
    pub buffers_full: Option<u64>,
    pub past_buffer: Option<u64>,
    pub buffers_last: Option<u64>,
}

/// A table's calls.
#[derive(Debug, Clone, Serialize)]
#[allow(missing_docs)]
pub struct TableCalls {
    pub table: String,
    pub steps: Vec<CallStep>,
    /// After those, by function.
    pub rest: Vec<CallStep>,
}

/// Waits for a lock.
#[derive(Debug, Clone, Serialize, PartialEq)]
#[allow(missing_docs)]
pub struct LockWait {
    pub what: String,
    pub object: Option<String>,
    /// What of it: `row`, `key` and the like.
    pub lock: Option<String>,
    /// Which.
    pub key: Option<String>,
    /// The connection that had it; 0: a transaction without one.
    pub by: Option<u64>,
    /// Connections that had it together with that one when a wait began; the first of them, each once.
    pub with: Vec<u64>,
    /// How many had, in the wait with most of them.
    pub most_with: u64,
    /// Connections that came to have it while it was waited for; the first of them, each once.
    pub then: Vec<u64>,
    /// How many did, in the wait with most of them.
    pub most_then: u64,
    pub count: u64,
    pub sum_ns: u64,
    pub max_ns: u64,
}

/// A statement in full.
#[derive(Debug, Serialize)]
#[allow(missing_docs)]
pub struct StatementReport {
    pub conn: Option<u64>,
    pub query: Option<u64>,
    pub number: Option<u64>,
    pub at_ns: u64,
    pub db: Option<String>,
    pub text: Option<String>,
    /// Its END is there; without it, it is told as far as it is known.
    pub ended: bool,
    /// Its STATEMENT is there.
    pub begun: bool,
    /// Tracing was off for a part of it.
    pub gap: bool,
    /// Statements that ran within it and are part of it.
    pub statements_within: u64,
    pub rows_sent: Option<u64>,
    pub rows_changed: Option<u64>,
    pub first_row_ns: Option<u64>,
    pub error: Option<u64>,
    pub killed: bool,
    pub account: Account,
    pub worker_ns: Option<u64>,
    pub blocks_cached: Option<u64>,
    pub blocks_missed: Option<u64>,
    pub blocks_ahead: Option<u64>,
    pub spill: Option<Spill>,
    pub device: Distribution,
    pub slowest: Vec<SlowWait>,
    pub no_plan: bool,
    pub plan: Vec<plan::Line>,
    pub calls: Vec<TableCalls>,
    pub calls_dropped: u64,
    pub locks: Vec<LockWait>,
    pub commit: Option<String>,
    pub events_written: Option<u64>,
    pub events_dropped: Option<u64>,
    pub overhead_ns: Option<u64>,
}

/// What the server itself put on disk.
#[derive(Debug, Clone, Serialize)]
#[allow(missing_docs)]
pub struct Spill {
    pub merge_passes: u64,
    pub tmp_disk_tables: u64,
    pub tmp_disk_bytes: u64,
}

impl File {
    /// Is nothing of a trace in it?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let statements = self.statements_ended + self.statements_unfinished;
        self.parts.is_empty() && statements == 0 && self.outside.is_empty()
    }

    /// Is it of one statement, which is shown, and nothing else?
    pub(crate) fn is_one(&self) -> bool {
        self.statements_ended == 1 && self.statements.len() == 1 && self.outside.is_empty() && self.statements[0].ended
    }
}
