//! Drawing as SVG whose boxes have widths in percent and whose letters have a size of their own: readable at any width.

use crate::report::{Account, Row};
use crate::words;
use std::fmt::Write;

/// Height of a row of boxes, in pixels.
const STEP: u32 = 26;
/// Percent of the width: below that a box is not drawn.
const LEAST: f64 = 0.05;

pub(super) fn escape(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;");
    text.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).collect()
}

/// A box from `left`, `width` wide (percent), in row `level`; letters that do not fit are cut.
fn block(out: &mut String, (left, width): (f64, f64), level: u32, class: &str, what: &str, ns: u64) {
    if width < LEAST {
        return;
    }
    let (top, height, label) = (level * STEP, STEP - 2, escape(&words::flat(what)));
    let _ = writeln!(
        out,
        "<svg x=\"{left:.3}%\" y=\"{top}\" width=\"{width:.3}%\" height=\"{height}\"><title>{label}: {}</title>\
         <rect class=\"{class}\" width=\"100%\" height=\"100%\"/><text x=\"4\" y=\"16\">{label}</text></svg>",
        words::time(ns)
    );
}

/// Where time went: the whole above its rows, and these above what they are of, or what lies within them.
pub(super) fn icicle(account: &Account, name: &str, colour: impl Fn(&Row, usize) -> usize) -> String {
    let positive = |row: &Row| u64::try_from(row.sum_ns).unwrap_or(0);
    let sum: u64 = account.rows.iter().map(positive).fold(0, u64::saturating_add);
    let wall = u64::try_from(account.wall_ns).unwrap_or(0);
    // Rows are more than the wall where what is unaccounted is below zero.
    let whole = sum.max(wall);
    if whole == 0 {
        return String::new();
    }
    let percent = |ns: u64| 100.0 * ns as f64 / whole as f64;
    let height = if account.rows.iter().any(|r| !parts(r).is_empty()) { 3 * STEP } else { 2 * STEP };
    let mut out =
        format!("<svg role=img aria-label=\"where the time of {} went\" height=\"{height}\">\n", escape(name));
    block(&mut out, (0.0, percent(wall)), 0, "c7", name, wall);
    let mut left = 0.0;
    for (i, row) in account.rows.iter().enumerate() {
        let (class, ns) = (format!("c{}", colour(row, i)), positive(row));
        block(&mut out, (left, percent(ns)), 1, &class, &row.what, ns);
        let mut under = left;
        for part in parts(row) {
            let width = percent(part.sum_ns);
            block(&mut out, (under, width), 2, &format!("{class} in"), &part.what, part.sum_ns);
            under += width;
        }
        left += percent(ns);
    }
    out.push_str("</svg>\n");
    out
}

/// What lies within a row's waits; else what they are of.
fn parts(row: &Row) -> &[crate::report::Share] {
    if row.nested.is_empty() {
        &row.objects
    } else {
        &row.nested
    }
}

/// A bar for each name, with its count and words beside it.
pub(super) fn bars(all: &[(String, u64, String)]) -> String {
    const ROW: usize = 20;
    let most = all.iter().map(|b| b.1).max().unwrap_or(0).max(1) as f64;
    let mut out = format!("<svg role=img aria-label=\"distribution\" height=\"{}\">\n", ROW * all.len());
    for (i, (name, count, words)) in all.iter().enumerate() {
        let (top, under, width) = (ROW * i + 2, ROW * i + 14, 25.0 * *count as f64 / most);
        let _ = writeln!(
            out,
            "<text class=out x=\"28%\" dx=\"-8\" y=\"{under}\" text-anchor=\"end\">{}</text>\
             <rect class=c0 x=\"28%\" y=\"{top}\" width=\"{:.2}%\" height=\"15\"/>\
             <text class=out x=\"{:.2}%\" dx=\"6\" y=\"{under}\">{}</text>",
            escape(name),
            width.max(0.3),
            28.0 + width.max(0.3),
            escape(words)
        );
    }
    out.push_str("</svg>\n");
    out
}
