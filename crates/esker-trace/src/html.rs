//! The report as one page of HTML: no script, no network. Where a statement's time went is drawn as icicles.

mod draw;

use crate::report::{Account, Distribution, File, Row, SlowWait, StatementReport, TableCalls};
use crate::words;
use draw::{bars, escape, icicle};
use std::fmt::Write;

const STYLE: &str = include_str!("html/style.css");
/// Colours of the style; the last one is of what is not accounted for.
const COLOURS: usize = 8;
/// Distributions by powers of two.
const DISTRIBUTIONS: usize = 4;

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
        let _ = writeln!(out, "<p class=note>{}</p>", escape(&words::part(part, i == 0).join(", ")));
    }
    for warning in words::warnings(file) {
        let _ = writeln!(out, "<p class=bad>{}</p>", escape(&capital(&warning)));
    }
}

/// As a sentence begins.
fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect()
}

/// What the whole file says.
fn totals(out: &mut String, file: &File, number: usize) {
    let (heading, unfinished) = words::whole_file(file);
    let _ = writeln!(out, "<h2>{}</h2>", capital(&heading));
    if let Some(unfinished) = unfinished {
        let _ = writeln!(out, "<p class=bad>{}.</p>", capital(&unfinished));
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
        let [wall, query, text] = words::listed(s, 100);
        let query = match file.statements.iter().position(same) {
            Some(i) => format!("<a href=\"#s{number}-{i}\">{query}</a>"),
            None => query,
        };
        let (text, at) = (escape(&text), words::at(s.at_ns));
        let _ = writeln!(out, "<tr><td>{wall}<td>{at}<td class=p>{query}<td class=\"p t\">{text}</tr>");
    }
    out.push_str("</table></div>\n");
}

/// The distributions of the longest waits, by powers of two.
fn powers(out: &mut String, rows: &[Row]) {
    for row in words::powers(rows, DISTRIBUTIONS) {
        let power =
            |p: &crate::report::Bucket| (format!("{} us", words::bounds(p).join(" to ")), p.count, p.count.to_string());
        let all: Vec<_> = row.powers.iter().map(power).collect();
        let _ = writeln!(out, "<h3>{}, by time</h3>\n{}", escape(&row.what), bars(&all));
    }
}

fn one(out: &mut String, s: &StatementReport, id: &str) {
    let query = words::known(s.query);
    let _ = writeln!(out, "<h2 id=\"{id}\">Query {query}: {}</h2>", escape(&words::outcome(s)));
    let _ = writeln!(out, "<pre>{}</pre>", escape(s.text.as_deref().unwrap_or("(text not known)")));
    for caveat in words::caveats(s) {
        let _ = writeln!(out, "<p class=bad>{}.</p>", escape(&caveat));
    }
    account(out, &s.account, &format!("query {query}"));
    let mut notes: Vec<String> = words::beside(s).into();
    notes.extend(words::blocks(s));
    notes.extend(words::commit_and_events(s));
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
        let _ = writeln!(out, "<p class=note>{}</p>", words::without_plan(s));
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
        let class = if line.times_off.is_some() { "p bad" } else { "p" };
        let _ = writeln!(out, "<td class=\"{class}\">{}</tr>", words::off(line).unwrap_or_default());
    }
    out.push_str("</table></div>\n");
}

fn calls(out: &mut String, tables: &[TableCalls], dropped: u64) {
    for table in tables {
        let (name, steps) = (escape(&table.table), escape(&words::calls(table).join(", ")));
        let _ = writeln!(out, "<h3>Calls {name}</h3><p class=\"note t\">{steps}</p>");
    }
    if dropped > 0 {
        let _ = writeln!(out, "<p class=bad>{dropped} more lines of calls were not written.</p>");
    }
}
