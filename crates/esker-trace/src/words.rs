//! How times, sizes, statements and waits look to people; for the text and the page.

use crate::report::{CallStep, Row, SlowWait, Spill, StatementReport};

/// A time with its unit.
pub(crate) fn time(ns: u64) -> String {
    match ns {
        1_000_000_000.. => format!("{:.3} s", ns as f64 / 1e9),
        1_000_000.. => format!("{:.3} ms", ns as f64 / 1e6),
        _ => format!("{} us", us(ns)),
    }
}

/// Microseconds, with a decimal below ten.
pub(crate) fn us(ns: u64) -> String {
    let us = ns as f64 / 1000.0;
    if us < 9.95 && ns % 1000 != 0 {
        format!("{us:.1}")
    } else {
        format!("{us:.0}")
    }
}

/// Seconds to the microsecond; below zero, too.
pub(crate) fn seconds(ns: i64) -> String {
    format!("{:.6}", ns as f64 / 1e9)
}

/// Since something began.
pub(crate) fn at(ns: u64) -> String {
    format!("+{:.6} s", ns as f64 / 1e9)
}

pub(crate) fn percent(share: Option<f64>) -> String {
    share.map_or_else(String::new, |s| format!("{:.1}", 100.0 * s))
}

pub(crate) fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} bytes");
    }
    let unit = (bytes.ilog2() / 10) as usize;
    format!("{:.1} {}", bytes as f64 / (1u64 << (10 * unit)) as f64, UNITS[unit - 1])
}

/// `1 row`, `2 rows`.
pub(crate) fn number(n: u64, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// A text in one line, without what would move the cursor.
pub(crate) fn flat(text: &str) -> String {
    let clean: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    clean.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// At most so many characters.
pub(crate) fn short(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

/// How the statement ended.
pub(crate) fn outcome(s: &StatementReport) -> String {
    let wall = time(u64::try_from(s.account.wall_ns).unwrap_or(0));
    if !s.ended {
        return format!("known for {wall}");
    }
    let mut words = vec![wall];
    words.extend(s.rows_sent.map(|n| number(n, "row")));
    words.extend(s.rows_changed.filter(|n| *n > 0).map(|n| format!("{n} changed")));
    words.extend(s.first_row_ns.map(|ns| format!("first row {}", time(ns))));
    words.extend(s.error.map(|e| format!("error {e}")));
    words.extend(s.killed.then(|| "killed".to_owned()));
    words.join(", ")
}

/// What a reader must know about a statement's figures.
pub(crate) fn caveats(s: &StatementReport) -> Vec<String> {
    let mut all = Vec::new();
    let mut say = |when: bool, what: &str| all.extend(when.then(|| what.to_owned()));
    say(!s.ended, "no end in the trace: the server was killed, the statement still runs, or tracing stopped");
    say(!s.begun, "its beginning is not in the trace");
    say(s.gap, "tracing was off for a part of it: what came then is unaccounted");
    say(
        s.ended && !s.account.rows.iter().any(|r| r.kind == "processor"),
        "processor time is not known: it is unaccounted",
    );
    say(
        s.ended && !s.account.rows.iter().any(|r| r.kind == "ready"),
        "time ready but not run is not known: it is unaccounted",
    );
    let dropped = s.events_dropped.unwrap_or(0);
    all.extend((dropped > 0).then(|| format!("{} not written: their time is unaccounted", number(dropped, "event"))));
    let within = s.statements_within;
    all.extend((within > 0).then(|| format!("with the waits of {} that ran within it", number(within, "statement"))));
    all
}

/// Place and time of a wait.
pub(crate) fn slow(wait: &SlowWait) -> String {
    let mut words = vec![format!("{} us", us(wait.ns)), wait.what.clone()];
    words.extend(wait.file.map(|f| format!("file {f}")));
    words.extend(wait.block.map(|b| match wait.blocks {
        Some(n) if n > 1 => format!("blocks {b}-{}", b.saturating_add(n - 1)),
        _ => format!("block {b}"),
    }));
    let what = wait.object.as_deref().or(wait.path.as_deref());
    words.extend(what.map(|w| format!("({w})")));
    format!("{} at {}", words.join(" "), at(wait.at_ns))
}

pub(crate) fn spill(spill: Option<&Spill>) -> String {
    let Some(spill) = spill else { return "not known".into() };
    let mut words = Vec::new();
    if spill.merge_passes > 0 {
        words.push(format!("{} merge passes of sorting", spill.merge_passes));
    }
    if spill.tmp_disk_tables > 0 || spill.tmp_disk_bytes > 0 {
        let tables = number(spill.tmp_disk_tables, "temporary table");
        words.push(format!("{tables} on disk, {}", bytes(spill.tmp_disk_bytes)));
    }
    if words.is_empty() {
        "none".into()
    } else {
        words.join(", ")
    }
}

pub(crate) fn step(step: &CallStep) -> String {
    let times = if step.times == 1 { String::new() } else { format!(" x{}", step.times) };
    let told = [(step.buffers_full, "full"), (step.past_buffer, "past the buffer"), (step.buffers_last, "last")];
    let told: Vec<String> = told.iter().filter_map(|(n, what)| Some(format!("{} {what}", (*n)?))).collect();
    let told = if told.is_empty() { String::new() } else { format!(" ({})", told.join(", ")) };
    format!("{}{times}{told}", step.function)
}

/// A row of the plan: what it is and how many rows, how far off that is, and the rest.
pub(crate) fn plan(line: &crate::plan::Line) -> (String, Option<String>, String) {
    const FIRST: [&str; 5] = ["id", "select_type", "table", "type", "key"];
    let named = |c: &str| Some(format!("{c} {}", flat(line.get(c)?).trim_end_matches(".00")));
    let mut words: Vec<String> = FIRST.iter().filter_map(|c| line.get(c)).map(flat).collect();
    words.extend(["rows", "r_rows"].into_iter().filter_map(named).map(|w| format!(" {w}")));
    let mut rest: Vec<String> = ["filtered", "r_filtered"].into_iter().filter_map(named).collect();
    rest.extend(line.get("Extra").map(flat));
    let off = line.times_off.map(|t| format!("<- {t:.0} times off: ANALYZE TABLE"));
    (words.join(" "), off, rest.join("  "))
}

/// Waits for locks of rows and tables.
pub(crate) fn locks(locks: &[crate::report::LockWait]) -> Vec<String> {
    if locks.is_empty() {
        return vec!["none waited for".into()];
    }
    let each = |l: &crate::report::LockWait| {
        format!("{}: {}, {}, longest {}", flat(&l.what), number(l.count, "time"), time(l.sum_ns), time(l.max_ns))
    };
    locks.iter().map(each).collect()
}

pub(crate) fn events(written: Option<u64>, dropped: Option<u64>, overhead_ns: Option<u64>, wall_ns: i64) -> String {
    let mut words = Vec::new();
    words.extend(written.map(|n| format!("{n} written")));
    words.extend(dropped.map(|n| format!("{n} dropped")));
    if let Some(ns) = overhead_ns.filter(|_| wall_ns > 0) {
        words.push(format!("overhead {:.1}%", 100.0 * ns as f64 / wall_ns as f64));
    }
    if words.is_empty() {
        "not known".into()
    } else {
        words.join(", ")
    }
}

/// The cells of a row of an account after its name and before anything else.
pub(crate) fn cells(row: &Row) -> [String; 6] {
    let of = |ns: Option<u64>| ns.map(us).unwrap_or_default();
    let count = row.count.map(|n| n.to_string()).unwrap_or_default();
    [seconds(row.sum_ns), percent(row.share), count, of(row.mean_ns), of(row.p99_ns), of(row.max_ns)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_sizes_have_units() {
        let times = [0, 400, 9_949, 9_951, 253_412, 1_500_000, 12_408_000_000].map(time);
        assert_eq!(times, ["0 us", "0.4 us", "9.9 us", "10 us", "253 us", "1.500 ms", "12.408 s"]);
        assert_eq!([0, 1536, 5 << 30, u64::MAX].map(bytes), ["0 bytes", "1.5 KiB", "5.0 GiB", "16.0 EiB"]);
        assert_eq!((seconds(-1000), at(3_201_000_000)), ("-0.000001".into(), "+3.201000 s".into()));
        assert_eq!((short("größer", 4), flat(" a\n\t b\u{7}c ")), ("grö…".into(), "a b c".into()));
    }
}
