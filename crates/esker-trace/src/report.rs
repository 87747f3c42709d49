//! The report, as `--json` prints it: all times are in ns. Text and page are made of it.

use crate::calls::{Step, Table};
use crate::early;
use crate::gather::{self, TraceSummary};
use crate::modes::{modes, sources};
use crate::plan;
use crate::statement::{Figures, Lock, LockHolders, Slow, Statement};
use crate::times::{Sum, Times};
use crate::waits::{label, Kind, Waits};
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

fn ns(v: i128) -> i64 {
    i64::try_from(v).unwrap_or(if v < 0 { i64::MIN } else { i64::MAX })
}

fn share(what: &str, sum: Sum) -> Share {
    Share { what: what.to_owned(), count: sum.count, sum_ns: sum.sum_ns, max_ns: sum.max_ns }
}

fn shares(all: &[(String, Sum)]) -> Vec<Share> {
    let mut shares: Vec<Share> = all.iter().map(|(what, sum)| share(what, *sum)).collect();
    shares.sort_by_key(|p| std::cmp::Reverse(p.sum_ns));
    shares
}

fn lock_waits(all: &[(Lock, LockHolders, Sum)]) -> Vec<LockWait> {
    let wait = |(of, holders, sum): &(Lock, LockHolders, Sum)| LockWait {
        what: of.name.clone(),
        object: of.object.clone(),
        lock: of.kind.clone(),
        key: of.key.clone(),
        by: of.by,
        with: holders.with.clone(),
        most_with: holders.most_with,
        then: holders.then.clone(),
        most_then: holders.most_then,
        count: sum.count,
        sum_ns: sum.sum_ns,
        max_ns: sum.max_ns,
    };
    let mut waits: Vec<LockWait> = all.iter().map(wait).collect();
    waits.sort_by_key(|w| std::cmp::Reverse(w.sum_ns));
    waits
}

impl Row {
    fn wait(kind: &Kind, wall: i128) -> Row {
        let all = kind.times.all;
        Row {
            name: Some(kind.name.clone()),
            class: kind.class.clone(),
            from: kind.from.clone(),
            count: Some(all.count),
            mean_ns: all.sum_ns.checked_div(all.count),
            p50_ns: kind.times.percentile(0.5),
            p99_ns: kind.times.percentile(0.99),
            max_ns: Some(all.max_ns),
            cpu_ns: Some(kind.cpu_ns),
            ready_ns: Some(kind.ready_ns),
            bytes: Some(kind.bytes),
            powers: powers(&kind.times),
            objects: shares(&kind.objects),
            nested: shares(&kind.nested),
            ..Row::of(label(&kind.name, kind.from.as_deref()), "wait", i128::from(all.sum_ns), wall)
        }
    }

    fn of(what: String, kind: &'static str, sum: i128, wall: i128) -> Row {
        Row {
            what,
            kind,
            name: None,
            class: None,
            from: None,
            sum_ns: ns(sum),
            share: (wall > 0).then(|| sum as f64 / wall as f64),
            count: None,
            mean_ns: None,
            p50_ns: None,
            p99_ns: None,
            max_ns: None,
            cpu_ns: None,
            ready_ns: None,
            bytes: None,
            powers: Vec::new(),
            objects: Vec::new(),
            nested: Vec::new(),
        }
    }
}

/// The waits that lie in others, or those that do not; the longest first.
fn wait_rows(waits: &Waits, within: bool, wall: i128) -> Vec<Row> {
    let mut rows: Vec<Row> = waits.kinds.iter().filter(|k| k.within == within).map(|k| Row::wait(k, wall)).collect();
    rows.sort_by_key(|r| std::cmp::Reverse(r.sum_ns));
    rows
}

/// `knows`: the processor's time, the engine's part in it, and the time ready but not run are known.
fn account(figures: Figures, waits: &Waits, knows: (bool, bool, bool)) -> Account {
    let wall = figures.wall;
    let mut rows = wait_rows(waits, false, wall);
    let (cpu, engine, ready) = knows;
    let mut row = |what: &str, kind, sum| rows.push(Row::of(what.into(), kind, sum, wall));
    match (cpu, engine) {
        (true, true) => {
            row("processor, server", "processor", figures.server());
            row("processor, engine", "processor", figures.engine);
        }
        (true, false) => row("processor", "processor", figures.processor()),
        _ => {}
    }
    if ready {
        row("ready, not run", "ready", figures.not_run());
    }
    rows.sort_by_key(|r| std::cmp::Reverse(r.sum_ns));
    rows.push(Row::of("unaccounted".into(), "unaccounted", figures.unaccounted(), wall));
    let within = wait_rows(waits, true, wall);
    Account { wall_ns: ns(wall), rows, within, unaccounted_ns: Some(ns(figures.unaccounted())) }
}

fn powers(times: &Times) -> Vec<Bucket> {
    times.powers().into_iter().map(|(from_ns, to_ns, count)| Bucket { from_ns, to_ns, count }).collect()
}

fn distribution(times: &Times, sequential: bool) -> Distribution {
    let found = modes(&times.each());
    let inferred = sources(found.len(), sequential);
    let share = |count: u64| count as f64 / times.all.count.max(1) as f64;
    let of = |(i, m): (usize, &crate::modes::Mode)| ModeReport {
        from_ns: m.from,
        median_ns: m.median,
        to_ns: m.to,
        count: m.count,
        share: share(m.count),
        inferred: inferred.get(i).copied(),
    };
    Distribution { count: times.all.count, modes: found.iter().enumerate().map(of).collect(), powers: powers(times) }
}

fn slow(wait: &Slow, begin: u64) -> SlowWait {
    SlowWait {
        what: wait.what.clone(),
        ns: wait.ns,
        at_ns: wait.tim.saturating_sub(begin),
        query: wait.q,
        object: wait.object.clone(),
        file: wait.file,
        path: wait.path.clone(),
        block: wait.block,
        blocks: wait.blocks,
    }
}

fn table_calls(table: &Table) -> TableCalls {
    let step = |s: &Step| CallStep {
        function: s.function.clone(),
        times: s.times,
        buffers_full: s.full,
        past_buffer: s.past,
        buffers_last: s.last,
    };
    let steps = |all: &[Step]| all.iter().map(step).collect();
    TableCalls { table: table.name.clone(), steps: steps(&table.steps), rest: steps(&table.rest) }
}

fn statement(s: &Statement) -> StatementReport {
    let end = s.end.as_ref();
    let stats = s.all_waits();
    let waits = &stats.waits;
    let account = if let Some(end) = end {
        let knows = (end.cpu.is_some(), end.engine.is_some(), end.ready.is_some());
        account(Figures::new(end, waits), waits, knows)
    } else {
        let wall = i128::from(s.last.saturating_sub(s.tim));
        let (rows, within) = (wait_rows(waits, false, wall), wait_rows(waits, true, wall));
        Account { wall_ns: ns(wall), rows, within, unaccounted_ns: None }
    };
    let spilled = |e: &crate::format::End<'_>| {
        let known = e.merge_passes.or(e.tmp_disk_tables).or(e.tmp_disk_bytes).is_some();
        let of = |n: Option<u64>| n.unwrap_or(0);
        known.then(|| Spill {
            merge_passes: of(e.merge_passes),
            tmp_disk_tables: of(e.tmp_disk_tables),
            tmp_disk_bytes: of(e.tmp_disk_bytes),
        })
    };
    StatementReport {
        conn: s.conn,
        query: s.key.q,
        number: s.key.s,
        at_ns: s.tim,
        db: s.db.clone(),
        text: s.text.clone(),
        ended: end.is_some(),
        begun: s.begun,
        gap: s.gap,
        statements_within: s.inner.as_ref().filter(|_| end.is_some()).map_or(0, |i| i.count),
        rows_sent: end.and_then(|e| e.rows),
        rows_changed: end.and_then(|e| e.changed),
        first_row_ns: end.and_then(|e| e.first_row),
        error: end.and_then(|e| e.err).filter(|e| *e != 0),
        killed: end.is_some_and(|e| e.killed),
        account,
        worker_ns: end.and_then(|e| e.worker),
        blocks_cached: end.and_then(|e| e.blocks_cached),
        blocks_missed: end.and_then(|e| e.blocks_missed),
        blocks_ahead: end.and_then(|e| e.blocks_ahead),
        spill: end.and_then(spilled),
        device: distribution(&waits.device(), 2 * stats.in_sequence > stats.device_reads),
        slowest: stats.slowest.values().map(|w| slow(w, s.tim)).collect(),
        no_plan: s.no_plan,
        plan: plan::lines(&s.plan, early::why(s.text.as_deref(), end)),
        calls: s.calls.tables.iter().map(table_calls).collect(),
        calls_dropped: s.calls.dropped,
        locks: lock_waits(&stats.locks),
        commit: end.and_then(|e| e.commit.as_deref()).map(str::to_owned),
        events_written: end.and_then(|e| e.events),
        events_dropped: end.and_then(|e| e.dropped),
        overhead_ns: end.and_then(|e| e.overhead),
    }
}

fn trace_start(of: &gather::TraceStart) -> TraceStart {
    let part = &of.trace;
    let text = |t: &Option<crate::format::Str<'_>>| t.as_deref().map(str::to_owned);
    TraceStart {
        conn: of.conn,
        user: text(&part.user),
        server: text(&part.server),
        esker: text(&part.esker),
        pid: part.pid,
        began: text(&part.began),
        level: text(&part.level),
        at_ns: part.tim,
    }
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

    pub(crate) fn new(name: &str, all: &TraceSummary) -> File {
        let mut device = all.total_waits.device();
        device.merge(&all.outside.device());
        let listed = |l: &crate::gather::SlowStatement| SlowStatement {
            query: l.q,
            at_ns: l.tim,
            wall_ns: l.wall,
            text: l.text.clone(),
        };
        let lost = |l: &crate::format::Lost<'_>| Lost { at_ns: l.tim, why: l.why.as_deref().map(str::to_owned) };
        File {
            name: name.to_owned(),
            parts: all.parts.iter().map(trace_start).collect(),
            lines: all.lines,
            warnings: all.warnings.iter().map(|(line, text)| Warning { line: *line, text: text.clone() }).collect(),
            warnings_in_all: all.warnings_in_all,
            lost: all.lost.iter().map(lost).collect(),
            statements_ended: all.ended,
            statements_unfinished: all.unfinished_in_all,
            total: account(all.total, &all.total_waits, all.knows),
            events_written: all.events,
            events_dropped: all.dropped,
            overhead_ns: all.overhead,
            worker_ns: all.worker,
            outside: wait_rows(&all.outside, false, 0),
            device: distribution(&device, 2 * all.in_sequence > all.device_reads),
            slowest_reads: all.slow_reads.values().map(|w| slow(w, 0)).collect(),
            slowest_statements: all.listed.values().map(listed).collect(),
            statements: all.shown.values().chain(&all.unfinished).map(statement).collect(),
        }
    }
}
