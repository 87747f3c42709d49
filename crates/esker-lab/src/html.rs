//! Reports as one page of HTML with its plots in it: no script, no network. Two reports of one command are compared.

use crate::error::{LabError, Result};
use crate::readback::{parts, rows, text};
use serde_json::Value;
use std::fmt::Write;

/// Bars of a plot are at most so long, in pixels.
const BAR: f64 = 420.0;
const COLOURS: [&str; 2] = ["#1f6f8b", "#e07a3f"];

/// The page.
///
/// # Errors
/// When two reports are not of one command.
pub fn page(reports: &[(String, Value)]) -> Result<String> {
    let Some((_, first)) = reports.first() else {
        return Err(LabError::Invalid("no report".into()));
    };
    if let Some((name, other)) = reports.iter().find(|(_, r)| r["command"] != first["command"]) {
        let (a, b) = (text(&first["command"]), text(&other["command"]));
        return Err(LabError::Invalid(format!("{name} is of 'esker lab {b}', the other of 'esker lab {a}'")));
    }
    let title = format!("esker lab {}", text(&first["command"]));
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{0}</title>\n<style>{STYLE}</style></head>\n\
         <body><h1>{0}</h1>\n",
        escape(&title)
    );
    if first["command"] == "all" {
        for part in parts(first) {
            let same = |(name, all): &(String, Value)| {
                let fits = parts(all).into_iter().find(|p| p["command"] == part["command"])?;
                Some((name.clone(), fits.clone()))
            };
            let _ = writeln!(out, "<h1>{}</h1>", escape(&text(&part["command"])));
            one(&mut out, &reports.iter().filter_map(same).collect::<Vec<_>>());
        }
    } else {
        one(&mut out, reports);
    }
    out.push_str("</body></html>\n");
    Ok(out)
}

/// One command's reports.
fn one(out: &mut String, reports: &[(String, Value)]) {
    for (n, (name, report)) in reports.iter().enumerate() {
        machine(out, n, name, report);
    }
    for metric in reports.first().map_or_else(Vec::new, |r| metrics(&r.1)) {
        plot(out, reports, &metric);
    }
    for (name, report) in reports {
        table(out, name, report);
    }
}

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:1100px;color:#1d2733}\
table{border-collapse:collapse;font-size:13px}td,th{padding:.15em .7em;text-align:right;border-bottom:1px solid #dde}\
td.p,th.p{text-align:left}svg text{font:12px system-ui,sans-serif}.bad{color:#a22}dl{display:grid;grid-template-columns:\
max-content auto;gap:0 1em}dt{color:#667}dd{margin:0}";

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn machine(out: &mut String, n: usize, name: &str, report: &Value) {
    let _ = writeln!(out, "<h2 style=\"color:{}\">{}</h2><dl>", COLOURS[n % 2], escape(name));
    for part in ["machine", "options"] {
        for (key, value) in report[part].as_object().into_iter().flatten() {
            let value = escape(&text(value));
            let _ = writeln!(out, "<dt>{}</dt><dd>{value}</dd>", escape(key));
        }
    }
    let exit = &report["exit_code"];
    if exit != 0 {
        let _ = writeln!(out, "<dt class=bad>exit code</dt><dd class=bad>{exit}</dd>");
    }
    out.push_str("</dl>\n");
    for note in report["notes"].as_array().into_iter().flatten().take(50) {
        let _ = writeln!(out, "<p>{}</p>", escape(&text(note)));
    }
}

/// Names of the figures that some row has.
fn metrics(report: &Value) -> Vec<String> {
    let names = rows(report).filter_map(|r| r["metrics"].as_object()).flat_map(|m| m.keys().cloned());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names.dedup();
    names
}

fn label(row: &Value) -> String {
    let values: Vec<String> = row["params"].as_object().into_iter().flatten().map(|(_, v)| text(v)).collect();
    values.join(" · ")
}

/// A bar for each row, with its interval as a line; two reports lie below each other.
fn plot(out: &mut String, reports: &[(String, Value)], metric: &str) {
    let figure = |row: &Value, what: &str| row["metrics"][metric][what].as_f64();
    let highs = reports.iter().flat_map(|(_, r)| rows(r)).filter_map(|r| figure(r, "high"));
    let most = highs.fold(0.0, f64::max);
    if most <= 0.0 {
        return;
    }
    let labels: Vec<String> = rows(&reports[0].1).filter(|r| figure(r, "median").is_some()).map(label).collect();
    let unit = rows(&reports[0].1).find_map(|r| r["metrics"][metric]["unit"].as_str()).unwrap_or("");
    let step = 20 * reports.len() + 6;
    let (width, height) = (BAR as usize + 480, labels.len() * step + 10);
    let _ = writeln!(
        out,
        "<h3>{} ({})</h3>\n<svg class=plot role=img width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\">",
        escape(metric),
        escape(unit)
    );
    for (i, name) in labels.iter().enumerate() {
        let top = i * step + 4;
        let _ = writeln!(out, "<text x=\"310\" y=\"{}\" text-anchor=\"end\">{}</text>", top + 14, escape(name));
        for (n, (_, report)) in reports.iter().enumerate() {
            let Some(row) = rows(report).find(|r| label(r) == *name) else { continue };
            let (Some(median), Some(low), Some(high)) =
                (figure(row, "median"), figure(row, "low"), figure(row, "high"))
            else {
                continue;
            };
            let (y, at) = (top + 20 * n, |v: f64| 320.0 + v / most * BAR);
            let (middle, under, colour) = (y + 8, y + 13, COLOURS[n % 2]);
            let (length, from, to) = ((at(median) - 320.0).max(1.0), at(low), at(high));
            let beside = to + 6.0;
            let _ = writeln!(
                out,
                "<rect x=\"320\" y=\"{y}\" width=\"{length:.1}\" height=\"16\" fill=\"{colour}\"/><line x1=\"{from:.1}\" \
                 x2=\"{to:.1}\" y1=\"{middle}\" y2=\"{middle}\" stroke=\"#111\"/><text x=\"{beside:.1}\" \
                 y=\"{under}\">{median:.3}</text>"
            );
        }
    }
    out.push_str("</svg>\n");
}

fn table(out: &mut String, name: &str, report: &Value) {
    let names = metrics(report);
    let first = rows(report).next();
    let params: Vec<&String> = first.and_then(|r| r["params"].as_object()).into_iter().flat_map(|p| p.keys()).collect();
    let _ = writeln!(out, "<h3>{}: all rows</h3><table><tr>", escape(name));
    for p in &params {
        let _ = write!(out, "<th class=p>{}</th>", escape(p));
    }
    for m in &names {
        let _ = write!(out, "<th>{}</th>", escape(m));
    }
    out.push_str("<th class=p>counts</th><th class=p>status</th></tr>\n");
    for row in rows(report) {
        out.push_str("<tr>");
        for p in &params {
            let _ = write!(out, "<td class=p>{}</td>", escape(&text(&row["params"][p.as_str()])));
        }
        for m in &names {
            let median = row["metrics"][m]["median"].as_f64().map_or_else(String::new, |v| format!("{v:.3}"));
            let _ = write!(out, "<td>{median}</td>");
        }
        let counts: Vec<String> =
            row["counts"].as_object().into_iter().flatten().map(|(k, v)| format!("{k} {v}")).collect();
        let status = format!("{} {}", text(&row["status"]), text(&row["why"]));
        let _ =
            writeln!(out, "<td class=p>{}</td><td class=p>{}</td></tr>", escape(&counts.join(", ")), escape(&status));
    }
    out.push_str("</table>\n");
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use serde_json::json;

    fn report(median: f64) -> Value {
        json!({
            "schema": "esker-lab", "schema_version": 1, "command": "io", "machine": {"cpu": "<&>"}, "options": {},
            "notes": [], "exit_code": 0,
            "rows": [{
                "params": {"way": "plain"}, "counts": {"calls": 3}, "status": "good", "why": "",
                "metrics": {"ns": {"unit": "ns", "median": median, "low": median, "high": median, "samples": [median]}},
            }],
        })
    }

    #[test]
    fn two_reports_lie_side_by_side() {
        let page = page(&[("a".into(), report(1.0)), ("b".into(), report(2.0))]).unwrap();
        assert_eq!(page.matches("<rect").count(), 2);
        assert!(page.contains("&lt;&amp;&gt;") && !page.contains("<script") && !page.contains("http"));
        assert!(page.contains("width=\"420.0\"") && page.contains("width=\"210.0\""));
    }

    #[test]
    fn reports_of_two_commands_are_refused() {
        let mut other = report(1.0);
        other["command"] = json!("sync");
        assert!(page(&[("a".into(), report(1.0)), ("b".into(), other)]).is_err());
    }
}
