//! Trace files made up so that every sum is known.

// Each test program uses a part of it.
#![allow(dead_code)]
#![allow(clippy::unwrap_used)]

use esker_trace::format::*;
use esker_trace::report::{self, Row};
use esker_trace::Options;
use std::fmt::Write;

/// Lines of a file.
#[derive(Default)]
pub struct Lines(pub String);

impl Lines {
    pub fn add<'a>(&mut self, line: impl Into<Line<'a>>) -> &mut Self {
        writeln!(self.0, "{}", line.into()).unwrap();
        self
    }

    pub fn read(&self) -> report::File {
        read(&self.0, 3)
    }
}

pub fn read(text: &str, top: usize) -> report::File {
    esker_trace::read("made up", &mut text.as_bytes(), &Options { query: None, top }).unwrap()
}

pub fn text(file: &report::File) -> String {
    let mut out = String::new();
    esker_trace::text::print(file, &mut out).unwrap();
    out
}

pub const US: u64 = 1000;
pub const SECOND: u64 = 1_000_000_000;

pub fn trace() -> Trace<'static> {
    Trace {
        version: VERSION,
        conn: 7,
        user: Some("app@localhost".into()),
        server: Some("10.11.18-MariaDB".into()),
        esker: Some("0.1.0".into()),
        pid: Some(12),
        began: Some("2026-11-27T02:30:00.123456Z".into()),
        level: Some("FULL".into()),
        tim: Some(0),
    }
}

pub fn wait(tim: u64, ela: u64, nam: &'static str) -> Wait<'static> {
    Wait { tim, ela, nam: nam.into(), q: Some(8841), s: Some(1), ..Wait::default() }
}

pub fn end(tim: u64, ela: u64) -> End<'static> {
    End { q: 8841, s: Some(1), tim, ela, ..End::default() }
}

/// A statement that reads: 80 reads of about 9 us, 1860 of about 253 us, 60 of about 1512 us from the device, 1200 from the
/// page cache; all over, the account of `docs/TRACE.md`.
pub fn example() -> Lines {
    let mut lines = Lines::default();
    lines.add(trace());
    let text = "SELECT SUM(v) FROM orders WHERE d > '2014-01-01'";
    let begin = 2 * SECOND;
    lines.add(Statement { q: 8841, s: Some(1), tim: begin, db: Some("shop".into()), text: Some(text.into()) });
    lines.add(File { file: 19, path: Some("#esker/00000019.run".into()), obj: Some("shop.orders/by_date".into()) });
    let call = |tim, function: &'static str, x| {
        let tab = Some("shop.orders".into());
        Call { tim: begin + tim, q: Some(8841), s: Some(1), tab, function: function.into(), x, ..Call::default() }
    };
    for (i, function) in ["external_lock", "index_init", "index_read_map"].into_iter().enumerate() {
        lines.add(call(i as u64 * US, function, None));
    }
    let tim = add_reads(&mut lines, begin + 10 * US);
    lines.add(call(tim - begin, "index_next", Some(498_132)));
    lines.add(call(tim - begin + US, "index_end", None)).add(call(tim - begin + 2 * US, "external_lock", None));
    for row in [
        "id\tselect_type\ttable\ttype\tpossible_keys\tkey\tkey_len\tref\trows\tr_rows\tfiltered\tr_filtered\tExtra",
        "1\tSIMPLE\torders\trange\tby_date\tby_date\t3\tNULL\t1200\t498133.00\t100.00\t100.00\tUsing where",
    ] {
        lines.add(Plan { q: Some(8841), s: Some(1), text: Some(row.into()), none: false });
    }
    lines.add(example_end(begin));
    lines
}

/// The example's reads, one behind the other from `tim` on; when they end.
fn add_reads(lines: &mut Lines, mut tim: u64) -> u64 {
    let reads = (0..80).map(|n| (8_500 + n * 12, "device"));
    let reads = reads.chain((0..1860).map(|n| (250_000 + n * 4, "device")));
    let reads = reads.chain((0..60).map(|n| (1_500_000 + n * 400, "device")));
    let reads = reads.chain((0..1200).map(|n| (8_000 + n, "pagecache")));
    for (n, (ela, from)) in reads.enumerate() {
        let n = n as u64;
        let read = wait(tim, ela, "db file sequential read");
        lines.add(Wait {
            class: Some("User I/O".into()),
            obj: Some("shop.orders/by_date".into()),
            file: Some(19),
            block: Some(934_517 + (n * 7919) % 5000 * 4),
            blocks: Some(4),
            bytes: Some(16_384),
            from: Some(from.into()),
            cpu: Some(1_000),
            ready: Some(500),
            ..read
        });
        tim += ela + 2 * US;
    }
    tim
}

fn example_end(begin: u64) -> End<'static> {
    End {
        cpu: Some(603_200 * US),
        engine: Some(200_000 * US),
        ready: Some(31_600 * US),
        waits_cpu: Some(3_200 * US),
        waits_ready: Some(1_600 * US),
        rows: Some(1),
        changed: Some(0),
        first_row: Some(1_239_000 * US),
        events: Some(3209),
        dropped: Some(0),
        overhead: Some(5_000 * US),
        blocks_cached: Some(17),
        blocks_missed: Some(3200),
        blocks_ahead: Some(2100),
        merge_passes: Some(0),
        tmp_disk_tables: Some(0),
        tmp_disk_bytes: Some(0),
        worker: Some(120_400 * US),
        commit: Some("read only".into()),
        ..end(begin + 1_240_000 * US, 1_240_000 * US)
    }
}

/// The sum of the example's reads, in ns, by where they came from.
pub fn example_sums() -> (i64, i64) {
    let sum = |n: i64, first: i64, step: i64| n * first + step * n * (n - 1) / 2;
    (sum(80, 8_500, 12) + sum(1860, 250_000, 4) + sum(60, 1_500_000, 400), sum(1200, 8_000, 1))
}

pub fn row<'a>(rows: &'a [Row], what: &str) -> &'a Row {
    rows.iter().find(|r| r.what == what).unwrap_or_else(|| panic!("no row {what} in {rows:#?}"))
}
