//! The report made of what was gathered of a file.

use super::{
    Account, Bucket, CallStep, Distribution, File, LockWait, Lost, ModeReport, Row, Share, SlowStatement, SlowWait,
    Spill, StatementReport, TableCalls, TraceStart, Warning,
};
use crate::calls::{Step, Table};
use crate::gather::{self, TraceSummary};
use crate::modes::{modes, sources};
use crate::statement::{Figures, Lock, LockHolders, Slow, Statement};
use crate::times::{Sum, Times};
use crate::waits::{label, Kind, Waits};
use crate::{early, plan};

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
