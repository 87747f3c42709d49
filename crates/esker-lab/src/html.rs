//! Reports as one page of HTML with its plots in it: no script, no network. Several of one command are held against the
//! first of them.

mod colours;
mod distributions;
mod draw;
mod law;
mod layout;
mod plots;
mod processor;
mod rates;

use crate::compare::{Comparison, Decision};
use crate::error::{LabError, Result};
use crate::noise::Noise;
use crate::readback::{all_rows, compared, figure, heading, number, params, parts, rows, text, Figure};
use crate::report::{decision_words, percent_text, NOISE_WORDS};
use crate::versus::{
    align, by_command, missing, origin, something_in_common, versus, Aligned, ComparisonTable, NamedReport,
};
use crate::Lab;
use clap::Subcommand;
use colours::{colours, LineColours};
use draw::{escape, COLOURS};
use plots::{all_metrics, plots};
pub(crate) use plots::{metrics, with_unit};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::fmt::Write;

/// The page.
///
/// # Errors
/// When no two of several reports are of one command.
pub fn page(reports: &[(String, Value)]) -> Result<String> {
    let Some((_, first)) = reports.first() else {
        return Err(LabError::Invalid("no report".into()));
    };
    something_in_common(reports)?;
    let title = escape(&format!("esker lab {}", text(&first["command"])));
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"color-scheme\" content=\"light dark\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>{title}</title>\n<style>{STYLE}</style></head>\n\
         <body><h1>{title}</h1>\n"
    );
    let whole =
        |(name, report): &'_ (String, Value)| (name.clone(), parts(report).first().copied().unwrap_or(report).clone());
    machines(&mut out, &reports.iter().map(whole).collect::<Vec<_>>());
    let commands = by_command(reports);
    let line_colours = colours(&commands);
    legend(&mut out, &line_colours);
    for ((command, of), line_colours) in commands.iter().zip(&line_colours) {
        one(&mut out, command, of, &missing(of, reports), line_colours);
    }
    out.push_str("</body></html>\n");
    Ok(out)
}

/// One command's reports.
fn one(out: &mut String, command: &str, reports: &[NamedReport<'_>], missing: &[String], line_colours: &LineColours) {
    let Some((first, others)) = reports.split_first() else { return };
    let lab = Lab::augment_subcommands(clap::Command::new("lab"));
    let about = lab.find_subcommand(command).and_then(clap::Command::get_about).map(ToString::to_string);
    let _ = writeln!(out, "<h2>{}</h2>\n<p>{}.</p>", escape(command), escape(&about.unwrap_or_default()));
    missing.iter().for_each(|m| *out += &format!("<p class=bad>{}</p>\n", escape(m)));
    reading(out, reports);
    let others: Vec<(&str, Aligned)> = others.iter().map(|(name, other)| (*name, align(first.1, other))).collect();
    let drawn: Vec<NamedReport<'_>> =
        std::iter::once(*first).chain(others.iter().map(|(n, o)| (*n, &o.report))).collect();
    plots(out, &drawn, line_colours);
    if !others.is_empty() {
        comparison(out, &versus(first, &others));
    }
    for (name, report) in reports {
        notes(out, report);
        table(out, name, report);
    }
}

/// The only legend of a page: what is called the same has one colour in all plots of all commands.
fn legend(out: &mut String, line_colours: &[LineColours]) {
    let told: Vec<&LineColours> = line_colours.iter().filter(|p| p.is_told()).collect();
    if told.is_empty() {
        return;
    }
    out.push_str("<div class=legend id=legend>");
    for of in &told {
        out.push_str("<ul>");
        if told.len() > 1 {
            let _ = write!(out, "<li><b>{}</b></li>", escape(&of.command));
        }
        for (name, colour) in &of.lines {
            let _ = write!(out, "<li><i class=c{colour}></i>{}</li>", escape(name));
        }
        out.push_str("</ul>");
    }
    out.push_str("</div>\n");
}

const STYLE: &str = include_str!("html/style.css");

/// What a stranger must know to read the plots.
fn reading(out: &mut String, reports: &[NamedReport<'_>]) {
    if !reports.iter().any(|(_, r)| rows(r).any(|row| row["metrics"].as_object().is_some_and(|m| !m.is_empty()))) {
        return;
    }
    out.push_str(
        "<p class=how>Points and bars are medians, the thin lines their intervals (95 percent; the whole range with fewer \
         than six runs). Rows that are not good are in the table only.",
    );
    if let Some(null) = reports.iter().filter_map(|(_, r)| r["null_difference"].as_f64()).reduce(f64::max) {
        let _ = write!(out, " The same, measured twice, differed by at most {:.1} percent.", 100.0 * null);
    }
    if reports.len() > 1 {
        for (n, (name, _)) in reports.iter().enumerate() {
            let (letter, lines, colour) = (letter(n), LINES[n.min(LINES.len() - 1)], n % COLOURS);
            let _ = write!(
                out,
                " <b>{letter}</b> is {}: {lines} lines, <i class=\"key c{colour}\"></i> bars.",
                escape(name)
            );
        }
    }
    out.push_str("</p>\n");
}

/// How the lines of the reports are drawn, in their order.
const LINES: [&str; 4] = ["solid", "dashed", "dotted", "dash-dotted"];

/// A, B, C ...
fn letter(n: usize) -> char {
    char::from(b'A' + (n % 26) as u8)
}

/// Where and when each was made, beside each other.
fn machines(out: &mut String, reports: &[(String, Value)]) {
    let Some((_, first)) = reports.first() else { return };
    out.push_str("<div class=wide><table class=machine><tr><th></th>");
    cells(out, "th", reports.iter().map(|r| r.0.clone()));
    let mut line = |name: &str, of: &dyn Fn(&Value) -> String| {
        out.push_str("</tr>\n<tr>");
        cells(out, "th", std::iter::once(name.to_owned()));
        cells(out, "td", reports.iter().map(|(_, r)| of(r)));
    };
    for (n, (name, _)) in origin(first).into_iter().enumerate() {
        line(name, &|r| origin(r)[n].1.clone());
    }
    let told = ["kernel", "file_system"];
    let keys = first["machine"].as_object().into_iter().flatten().map(|(key, _)| key.as_str());
    keys.filter(|k| !told.contains(k)).for_each(|key| line(&key.replace('_', " "), &|r| plain(&r["machine"][key])));
    out.push_str("</tr></table></div>\n");
}

/// Cells of text.
fn cells(out: &mut String, tag: &str, values: impl Iterator<Item = String>) {
    values.for_each(|v| *out += &format!("<{tag} class=p>{}</{tag}>", escape(&v)));
}

/// A value without JSON's signs.
fn plain(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::Array(all) => all.iter().map(plain).collect::<Vec<_>>().join(", "),
        Value::Object(all) => {
            let known = all.iter().map(|(k, v)| (k, plain(v))).filter(|(_, v)| !v.is_empty());
            known.map(|(k, v)| format!("{k} {v}")).collect::<Vec<_>>().join(", ")
        }
        other => text(other),
    }
}

fn notes(out: &mut String, report: &Value) {
    let _ = writeln!(out, "<p class=note>Asked for: {}.</p>", escape(&plain(&report["options"])));
    let exit = &report["exit_code"];
    if exit != 0 {
        let _ = writeln!(out, "<p class=bad>Exit code {}: see 'esker lab --help'.</p>", escape(&text(exit)));
    }
    for note in report["notes"].as_array().into_iter().flatten().take(50) {
        let _ = writeln!(out, "<p class=note>{}</p>", escape(&text(note)));
    }
}

/// The figures of reports beside each other, each in percent of the first.
fn comparison(out: &mut String, versus: &ComparisonTable) {
    let reports = versus.lines.first().and_then(|l| l.cells.first()).map_or(2, Vec::len);
    let others: String = (1..reports).map(letter).map(String::from).collect::<Vec<_>>().join(", ");
    let _ = write!(out, "<h3>{others} in percent of A</h3><div class=wide><table><tr>");
    cells(out, "th", versus.params.iter().cloned());
    for (_, title) in &versus.metrics {
        let _ = write!(out, "<th>{}: A</th>", escape(title));
        (1..reports).for_each(|n| *out += &format!("<th>{}</th><th>percent</th>", letter(n)));
    }
    out.push_str("</tr>\n");
    for line in &versus.lines {
        out.push_str("<tr>");
        cells(out, "td", line.params.iter().cloned());
        for (n, (figure, told)) in line.cells.iter().flat_map(|c| c.iter().enumerate()) {
            let _ = write!(out, "<td>{}</td>", figure.as_ref().map_or_else(String::new, |f| number(f.median)));
            if n > 0 {
                out.push_str(&percent(told.as_ref()));
            }
        }
        out.push_str("</tr>\n");
    }
    let _ = writeln!(out, "</table></div>\n<p>{}</p>", escape(&decision_words(versus.undecided())));
    versus.unmatched.iter().for_each(|u| *out += &format!("<p class=bad>{}</p>\n", escape(u)));
}

/// Is there nothing but rows with too few rounds?
fn undecided(told: &[Option<Comparison>]) -> bool {
    told.iter().flatten().all(|c| c.interval.is_none())
}

/// A cell with a percentage and its interval, or that it is the same, or not known.
fn percent(compared: Option<&Comparison>) -> String {
    let Some(compared) = compared else { return "<td></td>".into() };
    let of = |v: f64| format!("{:.1}", 100.0 * v);
    let interval = compared.interval.map(|(low, high)| format!(" <small>({} to {})</small>", of(low), of(high)));
    let text = percent_text(compared);
    let text = if compared.decision == Decision::Different { format!("<b>{text}</b>") } else { text };
    format!("<td>{text}{}</td>", interval.unwrap_or_default())
}

/// All rows with all figures.
fn table(out: &mut String, name: &str, report: &Value) {
    let (names, metrics) = (params(report), all_metrics(report));
    let _ = writeln!(out, "<h3>{}: all rows</h3><div class=wide><table><tr>", escape(name));
    cells(out, "th", names.iter().map(|p| (*p).to_owned()));
    let told = compared(report);
    let compares = told.iter().any(Option::is_some);
    if compares {
        let of = text(&report["relative"]);
        let _ = write!(out, "<th>percent <small>{}</small></th>", escape(&heading(report, &of).unwrap_or(of)));
    }
    for metric in &metrics {
        let unit = rows(report).find_map(|r| r["metrics"][metric]["unit"].as_str()).unwrap_or("");
        let title = heading(report, metric).unwrap_or_else(|| metric.clone());
        let _ = write!(out, "<th>{} <small>{}</small></th>", escape(&title), escape(unit));
    }
    let noise_known =
        rows(report).any(|r| !r["metrics"].as_object().is_none_or(Map::is_empty) && r["noise"].is_object());
    out.push_str("<th class=p>counts</th>");
    out.push_str(if noise_known { "<th class=p>noise</th>" } else { "" });
    out.push_str("<th class=p>status</th></tr>\n");
    for (i, row) in all_rows(report).enumerate() {
        out.push_str("<tr>");
        cells(out, "td", names.iter().map(|p| plain(&row["params"][p])));
        if compares {
            let base = row["base"] == i;
            out.push_str(&if base { "<td>100.0</td>".into() } else { percent(told[i].as_ref()) });
        }
        for metric in &metrics {
            let _ = write!(out, "<td>{}</td>", figure(row, metric).map_or_else(String::new, |f| with_interval(&f)));
        }
        let counts: Vec<String> =
            row["counts"].as_object().into_iter().flatten().map(|(k, v)| format!("{k} {v}")).collect();
        let status = format!("{} {}", text(&row["status"]), text(&row["why"]));
        let bad = if row["status"] == "good" { "" } else { " bad" };
        cells(out, "td", std::iter::once(counts.join(", ")));
        if noise_known {
            let _ = write!(out, "<td class=\"p n\">{}</td>", escape(&noise_words(row)));
        }
        let _ = writeln!(out, "<td class=\"p{bad}\">{}</td></tr>", escape(&status));
    }
    out.push_str("</table></div>\n");
    if noise_known {
        let _ = writeln!(out, "<p class=note>{NOISE_WORDS}</p>");
    }
    if compares {
        let _ = writeln!(out, "<p class=note>{}</p>", escape(&decision_words(undecided(&told))));
    }
}

/// A row's noise, where it measured something.
fn noise_words(row: &Value) -> String {
    let measured = row["metrics"].as_object().is_some_and(|m| !m.is_empty());
    Noise::deserialize(&row["noise"]).ok().filter(|_| measured).map_or_else(String::new, Noise::words)
}

fn with_interval(f: &Figure) -> String {
    match (f.high - f.low) / 2.0 {
        0.0 => number(f.median),
        half => format!("{} <small>±{}</small>", number(f.median), number(half)),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use serde_json::json;

    fn figure(median: f64) -> Value {
        let samples: Vec<f64> = (0..16).map(|n| median * (1.0 + 0.0003 * f64::from(n * 7 % 16))).collect();
        json!({"unit": "ns", "median": median, "low": 0.99 * median, "high": median, "samples": samples})
    }

    /// A row for each value of a parameter.
    fn report(param: &str, rows: &[(&str, f64)]) -> Value {
        let row = |(value, median): &(&str, f64)| {
            json!({
                "params": {param: value}, "counts": {"calls": 3}, "status": "good", "why": "",
                "metrics": {"ns": figure(*median), "other": figure(1.0)},
            })
        };
        json!({
            "schema": "esker-lab", "schema_version": 1, "command": "io", "machine": {"cpu": "<&>"}, "options": {},
            "null_difference": 0.1, "notes": [], "exit_code": 0, "params": [param],
            "shown": [{"name": "ns", "heading": "ns a record"}], "rows": rows.iter().map(row).collect::<Vec<_>>(),
        })
    }

    fn page_of(a: &Value, b: &Value) -> String {
        page(&[("a".into(), a.clone()), ("b".into(), b.clone())]).unwrap()
    }

    #[test]
    fn two_reports_lie_side_by_side() {
        let page = page_of(&report("way", &[("x", 1.0)]), &report("way", &[("x", 2.0)]));
        // One plot of the figure that is shown; the other is in the tables.
        assert_eq!((page.matches("<svg").count(), page.matches("<rect").count()), (1, 2));
        assert!(page.contains("&lt;&amp;&gt;") && !page.contains("<script") && !page.contains("http"));
        assert!(page.contains("width=\"333.3\"") && page.contains("width=\"166.7\""));
        assert!(page.contains("<td><b>200.0</b> <small>(199.9 to 200.1)</small></td>"), "{page}");
    }

    #[test]
    fn no_name_and_no_text_of_a_report_is_taken_for_html() {
        let histogram = json!({ "unit": "ns<x>", "buckets": [[1024, 2048, 3], [4096, null, 1]] });
        let run = json!([[0.1, 0.05, 0.0], [0.2, 0.1, 0.0], [0.3, 0.15, 0.0], [0.4, 0.2, 0.1]]);
        let full = |mut report: Value| {
            for row in report["rows"].as_array_mut().unwrap() {
                row["metrics"] = json!({ "<x>": figure(1.0) });
                row["metrics"]["<x>"]["unit"] = json!("<x>");
                (row["base"], row["counts"]) = (json!(0), json!({ "<x>": "<x>" }));
                (row["histograms"], row["groups"]) = (json!({ "<x>": histogram }), json!({ "<x>": histogram }));
                row["times"] = json!({ "of": "<x>", "buckets": histogram["buckets"], "over_time": [[0.1, 2, 3, 4], [0.2, 2, 3, 4]] });
                row["processor"] = json!({ "unit": "<x>", "runs": [run] });
            }
            let last = report["rows"].as_array().unwrap().len() - 1;
            (report["rows"][last]["status"], report["rows"][last]["why"]) = (json!("<x>"), json!("<x>"));
            (report["notes"], report["exit_code"], report["relative"]) = (json!(["<x>"]), json!("<x>"), json!("<x>"));
            (report["options"], report["machine"]) =
                (json!({ "<x>": "<x>" }), json!({ "<x>": "<x>", "kernel": "<x>" }));
            report["shown"] = json!([{ "name": "<x>", "heading": "<x>" }]);
            (report["date"], report["laws"]) = (json!("<x>"), json!([{ "log": "<x>" }]));
            report
        };
        let bars = full(report("<x>", &[("<x>a", 1.0), ("<x>b", 2.0), ("<x>c", 2.0)]));
        let lines = full(report("<x>", &[("1K", 9.0), ("2K", 4.0), ("4K", 2.0), ("8K", 2.0), ("16K", 1.0)]));
        let mut sides = bars.clone();
        (sides["command"], sides["params"]) = (json!("sync"), json!(["<x>", "y"]));
        let row = |n: usize| {
            json!({
                "params": { "<x>": format!("<x>{}", n % 3), "y": format!("<x>{}", n / 3) }, "status": "good",
                "metrics": { "<x>": figure(1.0) }, "base": 0, "percent": 50.0 + n as f64,
            })
        };
        sides["rows"] = (0..9).map(row).collect();
        let mut other = bars.clone();
        other["command"] = json!("<x>");
        for report in [bars, lines, sides, other] {
            let all = [("<x>a".to_owned(), report.clone()), ("<x>b".to_owned(), report)];
            for reports in [&all[..1], &all] {
                let page = page(reports).unwrap();
                let around = page.split_once("<x>").map(|(before, _)| &before[before.len() - 100..]);
                assert_eq!((around, page.contains("&lt;x&gt;")), (None, true));
            }
        }
    }

    #[test]
    fn sizes_make_lines() {
        let a = report("buffer", &[("1K", 9.0), ("2K", 4.0), ("4K", 2.0), ("8K", 2.0)]);
        let b = report("buffer", &[("1K", 9.0), ("2K", 1.0), ("4K", 2.0), ("8K", 2.0)]);
        let page = page_of(&a, &b);
        assert_eq!((page.matches("<polyline").count(), page.matches("<circle").count()), (2, 8));
        assert_eq!(page.matches("class=\"c0 r1\"").count(), 1);
        assert_eq!((page.matches("<td>same ").count(), page.matches("<b>25.0</b>").count()), (3, 1));
        assert!(page.contains("ns a record") && page.contains("buffer in bytes, logarithmic"));
    }

    #[test]
    fn rows_are_held_against_what_is_100_percent() {
        let mut rows = report("way", &[("x", 1.0), ("y", 2.0), ("z", 3.0)]);
        rows["relative"] = json!("ns");
        (0..3).for_each(|n| rows["rows"][n]["base"] = json!(0));
        let samples = rows["rows"][2]["metrics"]["ns"]["samples"].as_array_mut().unwrap();
        samples.truncate(14);
        let page = page(&[("a".into(), rows)]).unwrap();
        assert!(page.contains("<td>100.0</td>") && page.contains("<td><b>200.0</b> <small>("), "{page}");
        assert!(page.contains("<td>300.0 undecided</td>"), "{page}");
    }

    #[test]
    fn processor_time_is_drawn_along_a_run() {
        let mut report = report("way", &[("x", 1.0), ("y", 2.0)]);
        let run = json!([[0.1, 0.05, 0.0], [0.2, 0.1, 0.0], [0.3, 0.15, 0.0], [0.4, 0.2, 0.1]]);
        report["rows"][0]["processor"] = json!({ "unit": "s", "runs": [run, run] });
        report["rows"][1]["processor"] = json!({ "unit": "s", "runs": [run[0]] });
        let page = page(&[("a".into(), report.clone())]).unwrap();
        // The whole and the kernel's of one way; the other was too short.
        assert_eq!((page.matches("<polyline").count(), page.matches("class=\"c0 r1\"").count()), (2, 1), "{page}");
        assert!(page.contains("x: 150 (150 to 150) at 0.383 s of 0.400"), "{page}");
        assert_eq!(page.matches("<div class=legend").count(), 1);
        // Of two reports the whole of each.
        let both = page_of(&report, &report);
        assert_eq!((both.matches("<polyline").count(), both.matches("class=\"c0 r1\"").count()), (2, 1));
    }

    #[test]
    fn noise_stands_in_words_beside_each_row() {
        let mut report = report("way", &[("x", 1.0), ("y", 2.0), ("z", 3.0)]);
        let page_of_one = |report: &Value| page(&[("a".into(), report.clone())]).unwrap();
        assert!(!page_of_one(&report).contains("noise"), "a report of before it was known");
        report["rows"][0]["noise"] =
            json!({ "steal": 0.0, "others_cpu": 0.0, "cpu_pressure": 0.0, "io_pressure": 0.0 });
        report["rows"][1]["noise"] =
            json!({ "steal": 0.12, "others_io": 0.3, "cpu_pressure": 0.0, "io_pressure": 0.0 });
        report["rows"][2]["noise"] = json!({ "steal": 0.5, "cpu_pressure": 0.0, "io_pressure": 0.0 });
        report["rows"][2]["metrics"] = json!({});
        let page = page_of_one(&report);
        assert!(page.contains("<th class=p>noise</th>") && page.contains("Noise is the worst of all runs"), "{page}");
        let cell = |words: &str| page.matches(&format!("<td class=\"p n\">{words}</td>")).count();
        assert_eq!((cell("quiet"), cell("host took 12%, others' I/O 30%"), cell("host took 50%")), (1, 1, 0), "{page}");
    }

    #[test]
    fn the_law_of_recovery_is_drawn_with_what_was_measured() {
        let row = |(frames, seconds): (f64, f64)| {
            let bytes = json!({ "unit": "bytes", "median": 100.0 * frames, "low": 1.0, "high": 1.0, "samples": [] });
            let frames_of = json!({ "unit": "", "median": frames, "low": frames, "high": frames, "samples": [] });
            json!({
                "params": { "commits": number(frames), "log": "only grows" }, "counts": {}, "status": "good", "why": "",
                "metrics": { "log_s": figure(seconds), "replayed": frames_of, "replayed_bytes": bytes, "replay_mib_s": figure(50.0) },
            })
        };
        let law = json!({ "log": "only grows", "a": 0.1, "b": 1e-6, "k": 1.0, "k_low": 0.9, "k_high": 1.05, "k_most": 1.1, "fault": false });
        let report = |with: bool| {
            let rows: Vec<Value> = [(1e4, 0.11), (1e5, 0.2), (1e6, 1.1), (4e6, 4.1)].into_iter().map(row).collect();
            let mut report = report("commits", &[]);
            (report["command"], report["params"]) = (json!("recovery"), json!(["commits", "log"]));
            (report["rows"], report["shown"]) = (json!(rows), json!([]));
            report["laws"] = if with { json!([law]) } else { json!([]) };
            report
        };
        let one = page(&[("a".into(), report(true))]).unwrap();
        // The curve, and the line of speeds; the marks of both, and none on the curve.
        assert_eq!((one.matches("<polyline").count(), one.matches("<circle").count()), (2, 8), "{one}");
        assert!(
            one.contains("0.100 s + 1.00e-6 s * frames^1.00") && one.contains("<b>the law of recovery: only grows</b>")
        );
        let curve = one.lines().find(|l| l.contains("r1") && l.contains("<polyline")).unwrap();
        assert_eq!(curve.matches(',').count(), 41, "{curve}");
        let two = page_of(&report(true), &report(true));
        assert_eq!((two.matches("<polyline").count(), two.matches("<circle").count()), (4, 16), "{two}");
        assert!(two.contains("b: measured"));
        assert!(!page(&[("a".into(), report(false))]).unwrap().contains("the law of"));
    }

    #[test]
    fn what_is_not_good_is_not_drawn() {
        let mut void = report("way", &[("x", 1.0), ("y", 2.0)]);
        void["rows"][1]["status"] = json!("void");
        let page = page(&[("a".into(), void)]).unwrap();
        assert_eq!(page.matches("<rect").count(), 1);
        assert!(page.contains("void"));
    }

    #[test]
    fn histograms_are_drawn() {
        let mut report = report("threads", &[("1", 1.0), ("4", 2.0)]);
        for n in [0, 1] {
            report["rows"][n]["histograms"] =
                json!({"wait": {"unit": "ns", "buckets": [[1024, 2048, 3], [4096, null, 1]]}});
        }
        let page = page(&[("a".into(), report)]).unwrap();
        assert_eq!((page.matches("<polyline").count(), page.matches("<circle").count()), (2, 6));
    }

    #[test]
    fn reports_of_two_commands_are_refused() {
        let first = report("way", &[("x", 1.0)]);
        let mut other = first.clone();
        other["command"] = json!("sync");
        assert!(page(&[("a".into(), first), ("b".into(), other)]).is_err());
    }
}
