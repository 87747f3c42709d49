//! The report as one page of HTML: no script, no network. Where a statement's time went is drawn as icicles.

mod draw;

use crate::report::{Account, Distribution, File, Row, SlowWait, StatementReport, TableCalls};
use crate::words;
use draw::{bars, escape, icicle};
use std::fmt::Write;

const STYLE: &str = include_str!("html/style.css");
/// Colours of the style; the last one is of what is not accounted for.
const COLOURS: usize = 8;

/// The page, of one or several files.
#[must_use]
pub fn page(files: &[File]) -> String {
    let title = match files {
        [file] => format!("esker trace {}", file.name),
        _ => "esker trace".into(),
    };
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <meta name=\"color-scheme\" content=\"light dark\"><title>{0}</title>\n<style>{STYLE}</style></head>\n<body><h1>{0}</h1>\n",
        escape(&title)
    );
    for (number, file) in files.iter().enumerate() {
        if files.len() > 1 {
            let _ = writeln!(out, "<h2>{}</h2>", escape(&file.name));
        }
        head(&mut out, file);
        if !file.is_one() {
            totals(&mut out, file, number);
        }
        for (i, statement) in file.statements.iter().enumerate() {
            one(&mut out, statement, &format!("s{number}-{i}"));
        }
        if file.is_one() {
            powers(&mut out, &file.total.rows);
        }
    }
    out.push_str("</body></html>\n");
    out
}

fn head(out: &mut String, file: &File) {
    for (i, part) in file.parts.iter().enumerate() {
        let mut words = vec![format!("connection {}", part.conn)];
        words.extend(part.user.clone());
        words.extend(part.server.as_ref().map(|s| format!("server {s}")));
        words.extend(part.esker.as_ref().map(|e| format!("esker {e}")));
        words.extend(part.level.clone());
        words.extend(part.began.as_ref().map(|b| format!("began {b}")));
        words.extend(part.at_ns.filter(|_| i > 0).map(|ns| format!("on again at {}", words::at(ns))));
        let _ = writeln!(out, "<p class=note>{}</p>", escape(&words.join(", ")));
    }
    for lost in &file.lost {
        let at = lost.at_ns.map(|ns| format!(" at {}", words::at(ns))).unwrap_or_default();
        let why = escape(lost.why.as_deref().unwrap_or("not told why"));
        let _ = writeln!(out, "<p class=bad>Tracing stopped by itself{at}: {why}.</p>");
    }
    for warning in &file.warnings {
        let _ = writeln!(out, "<p class=bad>Line {}: {}.</p>", warning.line, escape(&warning.text));
    }
    let more = file.warnings_in_all - file.warnings.len() as u64;
    if more > 0 {
        let _ = writeln!(out, "<p class=bad>And {more} more lines.</p>");
    }
}

/// What the whole file says.
fn totals(out: &mut String, file: &File, number: usize) {
    let wall = words::time(u64::try_from(file.total.wall_ns).unwrap_or(0));
    let _ = writeln!(out, "<h2>Whole file: {} in {wall}</h2>", words::number(file.statements_ended, "statement"));
    if file.statements_unfinished > 0 {
        let unfinished = file.statements_unfinished;
        let _ = writeln!(out, "<p class=bad>And {unfinished} without an end, which are in no sum.</p>");
    }
    account(out, &file.total, "all statements");
    if !file.outside.is_empty() {
        out.push_str("<h3>Waits in no statement that ended</h3>\n");
        rows(out, &file.outside, |_| COLOURS - 1);
    }
    distribution(out, &file.device);
    powers(out, &file.total.rows);
    slow(out, "Slowest reads", &file.slowest_reads, true);
    out.push_str(
        "<h3>Slowest statements</h3><div class=wide><table><tr><th>wall<th>at<th class=p>query<th class=p>text</tr>\n",
    );
    for s in &file.slowest_statements {
        let same = |r: &StatementReport| r.ended && r.query == s.query && r.at_ns == s.at_ns;
        let query = s.query.map_or_else(|| "?".into(), |q| q.to_string());
        let query = match file.statements.iter().position(same) {
            Some(i) => format!("<a href=\"#s{number}-{i}\">{query}</a>"),
            None => query,
        };
        let text = escape(&words::short(&words::flat(s.text.as_deref().unwrap_or("")), 100));
        let (wall, at) = (words::time(s.wall_ns), words::at(s.at_ns));
        let _ = writeln!(out, "<tr><td>{wall}<td>{at}<td class=p>{query}<td class=\"p t\">{text}</tr>");
    }
    out.push_str("</table></div>\n");
}

/// The distributions of the longest waits, by powers of two.
fn powers(out: &mut String, rows: &[Row]) {
    let counted = |r: &&Row| r.powers.len() > 1 && r.count.is_some_and(|n| n >= 20);
    for row in rows.iter().filter(counted).take(4) {
        let power = |p: &crate::report::Power| {
            (format!("{} to {} us", words::us(p.from_ns), words::us(p.to_ns)), p.count, p.count.to_string())
        };
        let all: Vec<_> = row.powers.iter().map(power).collect();
        let _ = writeln!(out, "<h3>{}, by time</h3>\n{}", escape(&row.what), bars(&all));
    }
}

fn one(out: &mut String, s: &StatementReport, id: &str) {
    let query = s.query.map_or_else(|| "?".into(), |q| q.to_string());
    let _ = writeln!(out, "<h2 id=\"{id}\">Query {query}: {}</h2>", escape(&words::outcome(s)));
    let _ = writeln!(out, "<pre>{}</pre>", escape(s.text.as_deref().unwrap_or("(text not known)")));
    for caveat in words::caveats(s) {
        let _ = writeln!(out, "<p class=bad>{}.</p>", escape(&caveat));
    }
    account(out, &s.account, &format!("query {query}"));
    let worker = s.worker_ns.filter(|ns| *ns > 0).map_or_else(|| "none".into(), words::time);
    let mut notes = vec![format!("by worker (not added): {worker}")];
    notes.push(format!("server's spill: {}", words::spill(s.spill.as_ref())));
    if let (Some(cached), Some(missed)) = (s.blocks_cached, s.blocks_missed) {
        notes.push(format!("blocks: {cached} in Esker's cache, {missed} not"));
    }
    notes.push(format!("commit: {}", s.commit.as_deref().unwrap_or("not told")));
    let events = words::events(s.events_written, s.events_dropped, s.overhead_ns, s.account.wall_ns);
    notes.push(format!("events: {events}"));
    notes.extend(words::locks(&s.locks).iter().map(|l| format!("locks: {l}")));
    let _ = writeln!(out, "<p class=note>{}</p>", notes.iter().map(|n| escape(n)).collect::<Vec<_>>().join("<br>\n"));
    distribution(out, &s.device);
    slow(out, "Slowest waits", &s.slowest, false);
    plan(out, s);
    calls(out, &s.calls, s.calls_dropped);
}

/// The colour of a row: the last one is for what is not accounted for.
fn colour(row: &Row, place: usize) -> usize {
    if row.kind == "unaccounted" {
        COLOURS - 1
    } else {
        place % (COLOURS - 1)
    }
}

fn account(out: &mut String, account: &Account, name: &str) {
    out.push_str(&icicle(account, name, colour));
    rows(out, &account.rows, |i| colour(&account.rows[i], i));
    if !account.within.is_empty() {
        out.push_str("<h3>Within others, not added</h3>\n");
        rows(out, &account.within, |_| COLOURS - 1);
    }
}

fn rows(out: &mut String, rows: &[Row], colour: impl Fn(usize) -> usize) {
    out.push_str("<div class=wide><table><tr><th class=p><th>seconds<th>%<th>count<th class=opt>mean us<th class=opt>p99 us<th>max us</tr>\n");
    for (i, row) in rows.iter().enumerate() {
        let [seconds, percent, count, mean, p99, max] = words::cells(row);
        let _ = writeln!(
            out,
            "<tr><td class=p><i class=\"key c{}\"></i>{}<td>{seconds}<td>{percent}<td>{count}<td class=opt>{mean}<td class=opt>{p99}<td>{max}</tr>",
            colour(i),
            escape(&row.what)
        );
    }
    out.push_str("</table></div>\n");
}

fn distribution(out: &mut String, d: &Distribution) {
    if d.modes.is_empty() {
        return;
    }
    let mode = |m: &crate::report::ModeReport| {
        let inferred = m.inferred.map(|i| format!(" inferred: {i}")).unwrap_or_default();
        (format!("{} us", words::us(m.median_ns)), m.count, format!("{:.1}%{inferred}", 100.0 * m.share))
    };
    let all: Vec<_> = d.modes.iter().map(mode).collect();
    let _ = writeln!(out, "<h3>Device latency, median of each mode</h3>\n{}", bars(&all));
}

fn slow(out: &mut String, title: &str, waits: &[SlowWait], with_query: bool) {
    if waits.is_empty() {
        return;
    }
    let _ = writeln!(out, "<h3>{title}</h3><ul class=note>");
    for wait in waits {
        let query = wait.query.filter(|_| with_query).map(|q| format!(", query {q}")).unwrap_or_default();
        let _ = writeln!(out, "<li>{}{query}</li>", escape(&words::slow(wait)));
    }
    out.push_str("</ul>\n");
}

fn plan(out: &mut String, s: &StatementReport) {
    let Some(first) = s.plan.first() else {
        let _ = writeln!(out, "<p class=note>plan: {}</p>", if s.no_plan { "none" } else { "not in the trace" });
        return;
    };
    out.push_str("<h3>Plan</h3><div class=wide><table><tr>");
    for (name, _) in &first.columns {
        let _ = write!(out, "<th class=p>{}", escape(name));
    }
    out.push_str("<th></tr>\n");
    for line in &s.plan {
        out.push_str("<tr>");
        for (_, value) in &line.columns {
            let _ = write!(out, "<td class=p>{}", escape(value));
        }
        let off = line.times_off.map(|t| format!("{t:.0} times off: ANALYZE TABLE")).unwrap_or_default();
        let _ = writeln!(out, "<td class=\"p bad\">{off}</tr>");
    }
    out.push_str("</table></div>\n");
}

fn calls(out: &mut String, tables: &[TableCalls], dropped: u64) {
    for table in tables {
        let steps: Vec<String> = table.steps.iter().map(words::step).collect();
        let rest: Vec<String> = table.rest.iter().map(words::step).collect();
        let rest = if rest.is_empty() { String::new() } else { format!(", then in turns {}", rest.join(", ")) };
        let _ = writeln!(
            out,
            "<h3>Calls {}</h3><p class=\"note t\">{}</p>",
            escape(&table.table),
            escape(&(steps.join(", ") + &rest))
        );
    }
    if dropped > 0 {
        let _ = writeln!(out, "<p class=bad>{dropped} more lines of calls were not written.</p>");
    }
}
