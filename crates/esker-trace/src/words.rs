//! How times, sizes, statements and waits look to people; for the text and the page.

use crate::report::{
    Account, Bucket, CallStep, File, Row, SlowStatement, SlowWait, Spill, StatementReport, TableCalls, TraceStart,
};

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

/// Of the whole file, or of one of its parts: whose session, where, since when.
pub(crate) fn part(part: &TraceStart, is_first: bool) -> Vec<String> {
    let mut words = vec![part.conn.map_or_else(|| "conn ?".into(), |c| format!("conn {c}"))];
    words.extend(part.user.clone());
    words.extend(part.server.as_ref().map(|s| format!("server {s}")));
    words.extend(part.esker.as_ref().map(|e| format!("esker {e}")));
    words.extend(part.level.clone());
    words.extend(part.began.as_ref().map(|b| format!("began {b}")));
    words.extend(part.at_ns.filter(|_| !is_first).map(|ns| format!("on again at {}", at(ns))));
    words.iter().map(|w| flat(w)).collect()
}

/// What is wrong with a file.
pub(crate) fn warnings(file: &File) -> Vec<String> {
    let lost = file.lost.iter().map(|lost| {
        let at = lost.at_ns.map(|ns| format!(" at {}", at(ns))).unwrap_or_default();
        format!("tracing stopped by itself{at}: {}", flat(lost.why.as_deref().unwrap_or("not told why")))
    });
    let mut all: Vec<String> = lost.collect();
    all.extend(file.warnings.iter().map(|w| format!("warning: line {}: {}", w.line, w.text)));
    let more = file.warnings_in_all - file.warnings.len() as u64;
    all.extend((more > 0).then(|| format!("warning: and {more} more")));
    all
}

/// The heading of a whole file's account, and of what is not in it.
pub(crate) fn whole_file(file: &File) -> (String, Option<String>) {
    let unfinished = file.statements_unfinished;
    (
        format!("whole file: {} in {}", number(file.statements_ended, "statement"), wall(&file.total)),
        (unfinished > 0).then(|| format!("and {unfinished} without an end, which are in no sum but below")),
    )
}

fn wall(account: &Account) -> String {
    time(u64::try_from(account.wall_ns).unwrap_or(0))
}

/// A number that may not be known.
pub(crate) fn known(number: Option<u64>) -> String {
    number.map_or_else(|| "?".into(), |n| n.to_string())
}

/// A slow statement's time, query id and text.
pub(crate) fn listed(s: &SlowStatement, most: usize) -> [String; 3] {
    [time(s.wall_ns), known(s.query), short(&flat(s.text.as_deref().unwrap_or("")), most)]
}

/// Rows whose distribution is worth a look, with the bounds of each power of two.
pub(crate) fn powers(rows: &[Row], most: usize) -> impl Iterator<Item = &Row> {
    const COUNTED: u64 = 20;
    rows.iter().filter(|r| r.powers.len() > 1 && r.count.is_some_and(|n| n >= COUNTED)).take(most)
}

/// From one time up to below another.
pub(crate) fn bounds(power: &Bucket) -> [String; 2] {
    [us(power.from_ns), us(power.to_ns)]
}

/// What is not in a statement's account.
pub(crate) fn beside(s: &StatementReport) -> [String; 2] {
    let worker = s.worker_ns.filter(|ns| *ns > 0).map_or_else(|| "none".into(), time);
    [format!("by worker (not added): {worker}"), format!("server's spill: {}", spill(s.spill.as_ref()))]
}

pub(crate) fn blocks(s: &StatementReport) -> Option<String> {
    let ahead = s.blocks_ahead.filter(|n| *n > 0).map(|n| format!("; {n} were read along with others"));
    Some(format!(
        "blocks: {} in Esker's cache, {} not{}",
        s.blocks_cached?,
        s.blocks_missed?,
        ahead.unwrap_or_default()
    ))
}

/// How it was committed, and what of it was written down.
pub(crate) fn commit_and_events(s: &StatementReport) -> [String; 2] {
    let commit = flat(s.commit.as_deref().unwrap_or("not told"));
    let events = events(s.events_written, s.events_dropped, s.overhead_ns, s.account.wall_ns);
    [format!("commit: {commit}"), format!("events: {events}")]
}

/// Instead of a plan that is not there.
pub(crate) fn without_plan(s: &StatementReport) -> &'static str {
    if s.no_plan {
        "plan: none"
    } else {
        "plan: not in the trace"
    }
}

/// A table's calls in their order, the rest by function.
pub(crate) fn calls(table: &TableCalls) -> Vec<String> {
    let mut words: Vec<String> = table.steps.iter().map(step).collect();
    if !table.rest.is_empty() {
        let rest: Vec<String> = table.rest.iter().map(step).collect();
        words.push(format!("then in turns {}", rest.join(", ")));
    }
    words
}

/// How the statement ended.
pub(crate) fn outcome(s: &StatementReport) -> String {
    let wall = wall(&s.account);
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
    all.extend(
        (dropped > 0)
            .then(|| format!("{} in sums of a kind: longest and percentiles are of means", number(dropped, "event"))),
    );
    let within = s.statements_within;
    all.extend((within > 0).then(|| format!("with the waits of {} that ran within it", number(within, "statement"))));
    all
}

/// Place and time of a wait.
pub(crate) fn slow(wait: &SlowWait) -> String {
    let mut words = vec![format!("{} us", us(wait.ns)), flat(&wait.what)];
    words.extend(wait.file.map(|f| format!("file {f}")));
    words.extend(wait.block.map(|b| match wait.blocks {
        Some(n) if n > 1 => format!("blocks {b}-{}", b.saturating_add(n - 1)),
        _ => format!("block {b}"),
    }));
    let what = wait.object.as_deref().or(wait.path.as_deref());
    words.extend(what.map(|w| format!("({})", flat(w))));
    format!("{} at {}", words.join(" "), at(wait.at_ns))
}

fn spill(spill: Option<&Spill>) -> String {
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

fn step(step: &CallStep) -> String {
    let times = if step.times == 1 { String::new() } else { format!(" x{}", step.times) };
    let told = [(step.buffers_full, "full"), (step.past_buffer, "past the buffer"), (step.buffers_last, "last")];
    let told: Vec<String> = told.iter().filter_map(|(n, what)| Some(format!("{} {what}", (*n)?))).collect();
    let told = if told.is_empty() { String::new() } else { format!(" ({})", told.join(", ")) };
    format!("{}{times}{told}", flat(&step.function))
}

/// A row of the plan: what it is and how many rows, how far off that is, and the rest.
pub(crate) fn plan(line: &crate::plan::Line) -> (String, Option<String>, String) {
    const FIRST: [&str; 5] = ["id", "select_type", "table", "type", "key"];
    let named = |c: &str| Some(format!("{c} {}", flat(line.get(c)?).trim_end_matches(".00")));
    let mut words: Vec<String> = FIRST.iter().filter_map(|c| line.get(c)).map(flat).collect();
    words.extend(["rows", "r_rows"].into_iter().filter_map(named).map(|w| format!(" {w}")));
    let mut rest: Vec<String> = ["filtered", "r_filtered"].into_iter().filter_map(named).collect();
    rest.extend(line.get("Extra").map(flat));
    (words.join(" "), off(line).map(|off| format!("<- {off}")), rest.join("  "))
}

/// What is to be said of its estimate.
pub(crate) fn off(line: &crate::plan::Line) -> Option<String> {
    let cut = line.cut_short.map(|why| format!("fewer came, may have ended early: {why}"));
    line.times_off.map(|t| format!("{t:.0} times off: ANALYZE TABLE")).or(cut)
}

/// Waits for locks of rows and tables.
pub(crate) fn locks(locks: &[crate::report::LockWait]) -> Vec<String> {
    if locks.is_empty() {
        return vec!["none waited for".into()];
    }
    let each = |l: &crate::report::LockWait| {
        format!("{}: {}, {}, longest {}", lock(l), number(l.count, "time"), time(l.sum_ns), time(l.max_ns))
    };
    locks.iter().map(each).collect()
}

/// What was waited for, and whom.
fn lock(of: &crate::report::LockWait) -> String {
    let mut words = vec![format!("waited for {}", flat(&of.what))];
    words.extend(of.object.as_deref().map(|o| format!("on {}", flat(o))));
    let which: Vec<String> = [&of.lock, &of.key].into_iter().flatten().map(|w| flat(w)).collect();
    words.extend((!which.is_empty()).then(|| which.join(" ")));
    words.extend(of.by.map(|by| match by {
        0 => "behind a transaction without a connection".to_owned(),
        by => format!("behind connection {by}"),
    }));
    let mut all = words.join(" ");
    all.extend(connections(&of.with, of.most_with).map(|c| format!(", together with {c}")));
    all.extend(connections(&of.then, of.most_then).map(|c| format!(", then behind {c}")));
    all
}

/// `most`: so many there were at once, or one after the other; some may not be told by name.
fn connections(told: &[u64], most: u64) -> Option<String> {
    let name = |c: &u64| if *c == 0 { "one without a connection".to_owned() } else { c.to_string() };
    let mut names: Vec<String> = told.iter().map(name).collect();
    let rest = most.saturating_sub(told.len() as u64);
    names.extend((rest > 0).then(|| format!("{rest} more")));
    let last = names.pop()?;
    Some(if names.is_empty() { last } else { format!("{} and {last}", names.join(", ")) })
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
