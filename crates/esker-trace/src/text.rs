//! The report as text of at most 100 columns.

use crate::report::{Account, Distribution, File, Row, StatementReport, TableCalls};
use crate::words;
use std::fmt::{self, Write};

const WIDTH: usize = 100;
/// Of an account's names.
const NAME: usize = 32;
/// Signs of the longest bar.
const BAR: f64 = 24.0;
/// Lines of a statement's text.
const TEXT_LINES: usize = 6;
/// Distributions by powers of two.
const DISTRIBUTIONS: usize = 3;
/// Objects and waits within that are named below a row.
const PARTS: usize = 3;

/// Prints it.
///
/// # Errors
/// When `out` cannot take it.
pub fn print(file: &File, out: &mut dyn Write) -> fmt::Result {
    head(file, out)?;
    if !file.is_one() {
        totals(file, out)?;
    }
    for statement in &file.statements {
        writeln!(out)?;
        one(statement, out)?;
    }
    if file.is_one() {
        powers(&file.total.rows, out)
    } else {
        Ok(())
    }
}

fn head(file: &File, out: &mut dyn Write) -> fmt::Result {
    writeln!(out, "{}", words::flat(&file.name))?;
    for (i, part) in file.parts.iter().enumerate() {
        wrapped(out, "", &words::part(part, i == 0), ", ")?;
    }
    words::warnings(file).iter().try_for_each(|warning| writeln!(out, "{warning}"))
}

/// What the whole file says.
fn totals(file: &File, out: &mut dyn Write) -> fmt::Result {
    let (heading, unfinished) = words::whole_file(file);
    writeln!(out, "\n{heading}")?;
    unfinished.iter().try_for_each(|u| writeln!(out, "  {u}"))?;
    account(&file.total, out)?;
    rows("in no statement that ended", &file.outside, out)?;
    distribution("device latency", &file.device, out)?;
    powers(&file.total.rows, out)?;
    let (events, dropped, overhead) = (Some(file.events_written), Some(file.events_dropped), Some(file.overhead_ns));
    let events = words::events(events, dropped, overhead, file.total.wall_ns);
    writeln!(out, "  by worker (not added): {}     events: {events}", words::time(file.worker_ns))?;
    for (i, wait) in file.slowest_reads.iter().enumerate() {
        let query = wait.query.map(|q| format!("  query {q}")).unwrap_or_default();
        let heading = if i == 0 { "  slowest reads:\n" } else { "" };
        writeln!(out, "{heading}    {}", words::short(&(words::slow(wait) + &query), WIDTH - 4))?;
    }
    for (i, s) in file.slowest_statements.iter().enumerate() {
        let label = if i == 0 { "slowest:" } else { "" };
        let [wall, query, text] = words::listed(s, 52);
        writeln!(out, "  {label:<8} {wall:>11}  query {query:<8} {text}")?;
    }
    Ok(())
}

fn one(s: &StatementReport, out: &mut dyn Write) -> fmt::Result {
    let (conn, query, outcome) = (words::known(s.conn), words::known(s.query), words::outcome(s));
    let mut head = format!("conn {conn}  query {query}");
    let text = words::flat(s.text.as_deref().unwrap_or("(text not known)"));
    let length = |t: &str| t.chars().count();
    if length(&head) + length(&text) + length(&outcome) + 6 <= WIDTH {
        writeln!(out, "{head}  {text}    {outcome}")?;
    } else {
        let _ = write!(head, "    {outcome}");
        writeln!(out, "{head}")?;
        let words = pieces(&text);
        let mut lines = String::new();
        wrapped(&mut lines, "  ", &words, " ")?;
        for (i, line) in lines.lines().take(TEXT_LINES).enumerate() {
            let more = if i + 1 == TEXT_LINES && lines.lines().count() > TEXT_LINES { " …" } else { "" };
            writeln!(out, "{line}{more}")?;
        }
    }
    for caveat in words::caveats(s) {
        writeln!(out, "  ! {caveat}")?;
    }
    account(&s.account, out)?;
    if s.ended {
        writeln!(out, "  {}", words::beside(s).join("     "))?;
    }
    words::blocks(s).iter().try_for_each(|b| writeln!(out, "  {b}"))?;
    distribution("device latency", &s.device, out)?;
    for (i, wait) in s.slowest.iter().enumerate() {
        let label = if i == 0 { "slowest: " } else { "         " };
        writeln!(out, "  {label}{}", words::short(&words::slow(wait), WIDTH - 11))?;
    }
    plan(s, out)?;
    s.calls.iter().try_for_each(|table| calls(table, s.calls.len() > 1, out))?;
    if s.calls_dropped > 0 {
        writeln!(out, "  calls: {} more lines were not written", s.calls_dropped)?;
    }
    foot(s, out)
}

fn plan(s: &StatementReport, out: &mut dyn Write) -> fmt::Result {
    if s.plan.is_empty() {
        return writeln!(out, "  {}", words::without_plan(s));
    }
    for (i, line) in s.plan.iter().enumerate() {
        let (words, off, rest) = words::plan(line);
        let label = if i == 0 { "plan: " } else { "      " };
        let off = off.map(|off| format!("   {off}")).unwrap_or_default();
        let room = (WIDTH - 8).saturating_sub(off.chars().count());
        writeln!(out, "  {label}{}{off}", words::short(&words, room))?;
        if !rest.is_empty() {
            writeln!(out, "          {}", words::short(&rest, WIDTH - 10))?;
        }
    }
    Ok(())
}

fn calls(table: &TableCalls, several: bool, out: &mut dyn Write) -> fmt::Result {
    let of = if several && !table.table.is_empty() { format!(" {}", words::flat(&table.table)) } else { String::new() };
    let mut words = words::calls(table);
    if let Some(first) = words.first_mut() {
        *first = format!("calls{of}: {first}");
    }
    wrapped(out, "  ", &words, ", ")
}

fn foot(s: &StatementReport, out: &mut dyn Write) -> fmt::Result {
    let locks = words::locks(&s.locks);
    let line = |out: &mut dyn Write, wait: &str| wrapped(out, "  ", &pieces(&format!("locks: {wait}")), " ");
    if !s.ended {
        return locks.iter().try_for_each(|l| line(out, l));
    }
    let rest = words::commit_and_events(s).join("     ");
    if let ([only], true) = (&locks[..], s.locks.is_empty()) {
        return writeln!(out, "  locks: {only}     {rest}");
    }
    locks.iter().try_for_each(|l| line(out, l))?;
    writeln!(out, "  {rest}")
}

/// Rows that add up, and those within them.
fn account(account: &Account, out: &mut dyn Write) -> fmt::Result {
    rows("where the time went", &account.rows, out)?;
    rows("within others, not added", &account.within, out)
}

fn rows(title: &str, rows: &[Row], out: &mut dyn Write) -> fmt::Result {
    if rows.is_empty() {
        return Ok(());
    }
    let line = |out: &mut dyn Write, name: &str, [seconds, percent, count, mean, p99, max]: [&str; 6]| {
        let text = format!("  {name:<NAME$} {seconds:>12} {percent:>5} {count:>8} {mean:>8} {p99:>8} {max:>8}");
        writeln!(out, "{}", text.trim_end())
    };
    line(out, title, ["seconds", "%", "count", "mean us", "p99 us", "max us"])?;
    for row in rows {
        let cells = words::cells(row);
        line(out, &words::short(&words::flat(&row.what), NAME), [0, 1, 2, 3, 4, 5].map(|i| cells[i].as_str()))?;
    }
    for row in rows.iter().filter(|r| r.objects.len() > 1) {
        let parts = row.objects.iter().take(PARTS);
        let mut words: Vec<String> =
            parts.map(|p| format!("{} {}", words::flat(&p.what), words::time(p.sum_ns))).collect();
        let more = row.objects.len() - words.len();
        words.extend((more > 0).then(|| format!("and {more} more")));
        words[0] = format!("{}: {}", words::flat(&row.what), words[0]);
        wrapped(out, "    ", &words, ", ")?;
    }
    Ok(())
}

/// The modes of a distribution, as bars.
fn distribution(title: &str, d: &Distribution, out: &mut dyn Write) -> fmt::Result {
    for (i, mode) in d.modes.iter().enumerate() {
        let title = if i == 0 { format!("{title}:") } else { String::new() };
        let inferred = mode.inferred.map(|i| format!("  inferred: {i}")).unwrap_or_default();
        let (us, percent) = (words::us(mode.median_ns), 100.0 * mode.share);
        writeln!(out, "  {title:<15} {us:>8} us |{:<24} {percent:>5.1}%{inferred}", bar(mode.share))?;
    }
    Ok(())
}

fn bar(share: f64) -> String {
    "@".repeat(((BAR * share).round() as usize).max(1))
}

/// The distributions of the longest waits, by powers of two.
fn powers(rows: &[Row], out: &mut dyn Write) -> fmt::Result {
    for row in words::powers(rows, DISTRIBUTIONS) {
        writeln!(out, "  {}, by time", words::flat(&row.what))?;
        let most = row.powers.iter().map(|p| p.count).max().unwrap_or(1).max(1) as f64;
        for power in &row.powers {
            let [from, to] = words::bounds(power);
            let bar = bar(power.count as f64 / most);
            writeln!(out, "  {from:>10} to {to:>10} us |{bar:<24} {:>8}", power.count)?;
        }
    }
    Ok(())
}

/// The words of a text, each of a line's length at most.
fn pieces(text: &str) -> Vec<String> {
    text.split(' ').map(|w| words::short(w, WIDTH - 4)).collect()
}

/// Words in lines; those after the first one stand two columns further in.
fn wrapped(out: &mut dyn Write, indent: &str, words: &[String], between: &str) -> fmt::Result {
    let mut line = indent.to_owned();
    for (i, word) in words.iter().enumerate() {
        let end = if i + 1 < words.len() { between } else { "" };
        let length = line.chars().count() + word.chars().count() + end.trim_end().len();
        if length > WIDTH && line.trim() != "" {
            writeln!(out, "{}", line.trim_end())?;
            line = format!("{indent}  ");
        }
        line += word;
        line += end;
    }
    if line.trim().is_empty() {
        Ok(())
    } else {
        writeln!(out, "{}", line.trim_end())
    }
}
