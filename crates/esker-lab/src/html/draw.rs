//! Drawing: scales, lines and bars as SVG. Colours are classes of the page's style, so that they follow light and dark.

use crate::lists::distinct;
use crate::readback::{number, Figure};
use std::fmt::Write;

/// Colours of the page's style.
pub(super) const COLOURS: usize = 16;
/// Pixels of a plot, and its margins.
const WIDTH: f64 = 520.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 66.0;
const RIGHT: f64 = 12.0;
const BOTTOM: f64 = 44.0;
const TOP: f64 = 12.0;
/// The longest bar ends here.
const BAR_END: f64 = 430.0;
/// About the width of a letter; the letters of a bar's label at most.
const LETTER: f64 = 7.6;
const LETTERS: usize = 40;
const BAR_STEP: f64 = 17.0;

/// A value at a place, which is a number, its text, or both.
#[derive(Debug, Clone)]
pub(super) struct Point {
    pub(super) x: f64,
    pub(super) label: String,
    pub(super) y: Figure,
}

/// Points that belong together.
#[derive(Debug, Clone)]
pub(super) struct Series {
    pub(super) name: String,
    /// Of the page's style, below [`COLOURS`].
    pub(super) colour: usize,
    /// Of which report, from 0.
    pub(super) report: usize,
    pub(super) points: Vec<Point>,
}

/// What stands at the axes.
#[derive(Debug, Clone)]
pub(super) struct Axes {
    pub(super) x: String,
    pub(super) y: String,
}

pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// All values of some series, for a scale.
pub(super) fn values(series: &[Series]) -> Vec<f64> {
    series.iter().flat_map(|s| &s.points).flat_map(|p| [p.y.median, p.y.low, p.y.high]).collect()
}

/// From values to pixels.
struct Scale {
    log: bool,
    least: f64,
    most: f64,
    start: f64,
    end: f64,
}

impl Scale {
    fn at(&self, v: f64) -> f64 {
        let of = |v: f64| if self.log { v.max(self.least).ln() } else { v };
        let (least, most) = (of(self.least), of(self.most));
        let share = (of(v) - least) / (most - least);
        // Of a report that somebody wrote by hand a value may be beyond all numbers: it must not spoil the picture.
        let share = if share.is_finite() { share } else { 0.5 };
        self.start + share * (self.end - self.start)
    }

    /// Round values within it.
    fn ticks(&self) -> Vec<f64> {
        if self.log {
            let (first, last) = (self.least.log10().floor() as i32, self.most.log10().ceil() as i32);
            let steps: &[f64] = if last - first > 3 { &[1.0] } else { &[1.0, 2.0, 5.0] };
            let all = (first..=last).flat_map(|d| steps.iter().map(move |s| s * 10f64.powi(d)));
            return all.filter(|v| *v >= 0.999 * self.least && *v <= 1.001 * self.most).collect();
        }
        let step = round_up((self.most - self.least) / 5.0);
        let n = (self.most / step + 0.001).floor() as i32;
        (0..=n.clamp(0, 20)).map(|i| f64::from(i) * step).collect()
    }

    /// For the axis of values: all of them, from zero unless they are far apart.
    fn of_values(values: &[f64], start: f64, end: f64) -> Scale {
        let most = values.iter().copied().fold(0.0, f64::max);
        let least = values.iter().copied().fold(f64::MAX, f64::min);
        if least > 0.0 && most / least > 50.0 {
            return Scale { log: true, least: least * 0.8, most: most * 1.25, start, end };
        }
        Scale { log: false, least: 0.0, most: if most > 0.0 { 1.05 * most } else { 1.0 }, start, end }
    }
}

/// The next of 1, 2, 5, 10, 20 ...
fn round_up(v: f64) -> f64 {
    let unit = 10f64.powf(v.max(1e-12).log10().floor());
    [1.0, 2.0, 5.0].into_iter().map(|s| s * unit).find(|s| *s >= 0.999 * v).unwrap_or(10.0 * unit)
}

/// A tick's number.
fn short(v: f64) -> String {
    let (v, unit) = match v.abs() {
        a if a >= 1e9 => (v / 1e9, "G"),
        a if a >= 1e6 => (v / 1e6, "M"),
        a if a >= 1e4 => (v / 1e3, "k"),
        _ => (v, ""),
    };
    // No more digits than it has.
    let text = format!("{v:.6}");
    format!("{}{unit}", text.trim_end_matches('0').trim_end_matches('.'))
}

fn open(out: &mut String, height: f64, name: &str) {
    let _ = writeln!(
        out,
        "<svg class=plot role=img aria-label=\"{}\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\">",
        escape(name)
    );
}

/// Lines over a logarithmic x axis, on a scale that takes `all` values.
pub(super) fn lines(series: &[Series], axes: &Axes, all: &[f64]) -> String {
    let points = || series.iter().flat_map(|s| &s.points);
    // What has no name is a part of a curve: no mark, no tick.
    let named = |p: &&Point| !p.label.is_empty();
    let mut places: Vec<(f64, &str)> = points().filter(named).map(|p| (p.x, p.label.as_str())).collect();
    places.sort_by(|a, b| a.0.total_cmp(&b.0));
    places.dedup_by(|a, b| a.0 == b.0);
    let (Some(first), Some(last)) = (places.first(), places.last()) else { return String::new() };
    // A time, or a part of it, is not a size.
    let is_linear = axes.x.starts_with("seconds") || axes.x.starts_with("percent");
    let x = Scale {
        log: first.0 > 0.0 && !is_linear,
        least: if is_linear { 0.0 } else { first.0 },
        most: if axes.x.starts_with("percent") { 100.0 } else { last.0 },
        start: LEFT + 8.0,
        end: WIDTH - RIGHT - 8.0,
    };
    let y = Scale::of_values(all, HEIGHT - BOTTOM, TOP);
    let mut out = String::new();
    open(&mut out, HEIGHT, &format!("{} over {}", axes.y, axes.x));
    let round: Vec<(f64, String)> = x.ticks().into_iter().filter(|_| is_linear).map(|t| (t, short(t))).collect();
    if is_linear {
        places = round.iter().map(|(t, label)| (*t, label.as_str())).collect();
    }
    grid(&mut out, &places, (&x, &y), axes);
    for s in series {
        let mut class = format!("c{}", s.colour);
        if s.report > 0 {
            class += &format!(" r{}", s.report.min(3));
        }
        let at: Vec<(f64, f64)> = s.points.iter().map(|p| (x.at(p.x), y.at(p.y.median))).collect();
        let path: Vec<String> = at.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let line = if path.len() > 1 { format!("<polyline points=\"{}\"/>", path.join(" ")) } else { String::new() };
        let _ = writeln!(out, "<g class=\"{class}\">{line}");
        for (p, (px, py)) in s.points.iter().zip(at).filter(|(p, _)| named(p)) {
            let (low, high) = (y.at(p.y.low), y.at(p.y.high));
            let words = format!("{}: {} at {}", s.name, interval(&p.y), p.label);
            let _ = writeln!(
                out,
                "<path d=\"M{px:.1} {low:.1}V{high:.1}\"/><circle cx=\"{px:.1}\" cy=\"{py:.1}\" r=\"3\"><title>{}</title></circle>",
                escape(&words)
            );
        }
        out.push_str("</g>\n");
    }
    out.push_str("</svg>\n");
    out
}

fn interval(y: &Figure) -> String {
    let [median, low, high] = [y.median, y.low, y.high].map(number);
    format!("{median} ({low} to {high})")
}

/// Axes with their ticks and names.
fn grid(out: &mut String, places: &[(f64, &str)], (x, y): (&Scale, &Scale), axes: &Axes) {
    for tick in y.ticks() {
        let (at, under) = (y.at(tick), y.at(tick) + 4.0);
        let (text, right, left) = (short(tick), WIDTH - RIGHT, LEFT - 6.0);
        let _ = writeln!(
            out,
            "<path class=grid d=\"M{LEFT} {at:.1}H{right}\"/><text x=\"{left}\" y=\"{under:.1}\" text-anchor=\"end\">{text}</text>"
        );
    }
    let width = |label: &str| LETTER * label.chars().count() as f64 + 8.0;
    let mut free = f64::MIN;
    for (v, label) in places {
        let (at, from, to, under) = (x.at(*v), HEIGHT - BOTTOM, HEIGHT - BOTTOM + 4.0, HEIGHT - BOTTOM + 17.0);
        // A long one would leave the picture.
        let half = width(label) / 2.0;
        let middle = at.min(WIDTH - half);
        // What would touch the one before is left out.
        if middle - half < free {
            continue;
        }
        free = middle + half;
        let _ = writeln!(
            out,
            "<path class=axis d=\"M{at:.1} {from}V{to}\"/><text x=\"{middle:.1}\" y=\"{under}\" text-anchor=\"middle\">{}</text>",
            escape(label)
        );
    }
    let (floor, right, middle) = (HEIGHT - BOTTOM, WIDTH - RIGHT, (LEFT + WIDTH - RIGHT) / 2.0);
    let (foot, half) = (HEIGHT - 8.0, (HEIGHT - BOTTOM + TOP) / 2.0);
    // Upright it has the picture's height, not its width.
    let log = if y.log { ", log" } else { "" };
    let name: String = axes.y.chars().take(LETTERS - log.len()).collect();
    let _ = writeln!(
        out,
        "<path class=axis d=\"M{LEFT} {floor}H{right}\"/><text class=name x=\"{middle}\" y=\"{foot}\" text-anchor=\"middle\">{}</text>\
         <text class=name x=\"12\" y=\"{half}\" text-anchor=\"middle\" transform=\"rotate(-90 12 {half})\">{}{log}</text>",
        escape(&axes.x),
        escape(&name)
    );
}

/// A bar for each point, with its interval, on a scale that takes `all` values; those of the same label lie below each other.
pub(super) fn bars(series: &[Series], axes: &Axes, all: &[f64]) -> String {
    let labels = distinct(series.iter().flat_map(|s| &s.points).map(|p| p.label.as_str()));
    let longest = labels.iter().map(|l| l.chars().count().min(LETTERS)).max().unwrap_or(0);
    let start = (LETTER * longest as f64 + 14.0).max(80.0);
    let x = Scale::of_values(all, start, BAR_END);
    let group = BAR_STEP * series.len() as f64 + 5.0;
    let floor = group * labels.len() as f64 + 4.0;
    let mut out = String::new();
    open(&mut out, floor + 40.0, &axes.y);
    ticks(&mut out, &x, floor);
    for (i, label) in labels.iter().enumerate() {
        let top = group * i as f64 + 4.0;
        let (left, middle) = (start - 8.0, top + (group - 5.0) / 2.0 + 4.0);
        let cut: String = label.chars().take(LETTERS - 1).chain(['…']).collect();
        let cut = if label.chars().count() > LETTERS { &cut } else { *label };
        let _ = writeln!(out, "<text x=\"{left:.1}\" y=\"{middle:.1}\" text-anchor=\"end\">{}</text>", escape(cut));
        for (n, s) in series.iter().enumerate() {
            let Some(point) = s.points.iter().find(|p| p.label == *label) else { continue };
            bar(&mut out, s, point, top + BAR_STEP * n as f64, &x);
        }
    }
    let (foot, log) = (floor + 34.0, if x.log { ", logarithmic" } else { "" });
    // It ends with the picture: labels may leave it less room than it needs.
    let end = WIDTH - 4.0;
    let _ = writeln!(
        out,
        "<text class=name x=\"{end}\" y=\"{foot:.1}\" text-anchor=\"end\">{}{log}</text></svg>",
        escape(&axes.y)
    );
    out
}

/// Upright lines with their values below.
fn ticks(out: &mut String, x: &Scale, floor: f64) {
    let mut free = f64::MIN;
    for tick in x.ticks() {
        let (at, text, under) = (x.at(tick), short(tick), floor + 15.0);
        let half = LETTER * text.len() as f64 / 2.0;
        let _ = writeln!(out, "<path class=grid d=\"M{at:.1} 2V{floor:.1}\"/>");
        // What would touch the one before is left out.
        if at - half > free {
            let _ = writeln!(out, "<text x=\"{at:.1}\" y=\"{under:.1}\" text-anchor=\"middle\">{text}</text>");
            free = at + half + 4.0;
        }
    }
}

fn bar(out: &mut String, s: &Series, point: &Point, top: f64, x: &Scale) {
    let start = x.start;
    let (length, middle) = ((x.at(point.y.median) - x.start).max(1.0), top + 7.0);
    let (low, high, beside, under) = (x.at(point.y.low), x.at(point.y.high), x.at(point.y.high) + 6.0, top + 11.0);
    let _ = writeln!(
        out,
        "<g class=c{}><rect x=\"{start:.1}\" y=\"{top:.1}\" width=\"{length:.1}\" height=\"14\"/></g>\
         <path class=whisker d=\"M{low:.1} {middle:.1}H{high:.1}\"/><text x=\"{beside:.1}\" y=\"{under:.1}\">{}</text>",
        s.colour,
        number(point.y.median)
    );
}

/// A table in colours: rows, columns, and of each pair its figure; the higher, the darker, on a scale of `all` values.
pub(super) fn heat(
    rows: &[&str],
    columns: &[&str],
    of: &dyn Fn(&str, &str) -> Option<Figure>,
    axes: &Axes,
    all: &[f64],
) -> String {
    let longest = rows.iter().map(|r| r.chars().count()).max().unwrap_or(0);
    let start = LETTER * longest as f64 + 14.0;
    let (wide, high, top) = ((WIDTH - RIGHT - start) / columns.len().max(1) as f64, 30.0, 64.0);
    let scale = Scale::of_values(all, 0.08, 0.75);
    let height = top + high * rows.len() as f64 + 26.0;
    let mut out = String::new();
    open(&mut out, height, &axes.y);
    for (c, column) in columns.iter().enumerate() {
        column_head(&mut out, column, start + wide * (c as f64 + 0.5), top - 8.0);
    }
    for (r, row) in rows.iter().enumerate() {
        let (y, middle) = (top + high * r as f64, top + high * (r as f64 + 0.5) + 4.0);
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{middle:.1}\" text-anchor=\"end\">{}</text>",
            start - 8.0,
            escape(row)
        );
        for (c, column) in columns.iter().enumerate() {
            let Some(figure) = of(row, column) else { continue };
            let (x, share) = (start + wide * c as f64, scale.at(figure.median));
            let words = format!("{row}, {column}: {}", interval(&figure));
            let _ = writeln!(
                out,
                "<g class=c0><rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\" stroke=\"none\" fill-opacity=\"{share:.2}\">\
                 <title>{}</title></rect></g><text class=small x=\"{:.1}\" y=\"{middle:.1}\" text-anchor=\"middle\">{}</text>",
                wide - 2.0,
                high - 2.0,
                escape(&words),
                x + wide / 2.0 - 1.0,
                number(figure.median)
            );
        }
    }
    let log = if scale.log { ", darker by logarithms" } else { ", the darker, the more" };
    let _ = writeln!(
        out,
        "<text class=name x=\"{start:.1}\" y=\"{:.1}\">{}{log}</text></svg>",
        height - 8.0,
        escape(&axes.y)
    );
    out
}

/// A column's name, its words below each other: a column is narrow.
fn column_head(out: &mut String, name: &str, x: f64, foot: f64) {
    let words: Vec<&str> = name.split([' ', '_']).collect();
    for (n, word) in words.iter().enumerate() {
        let y = foot - 14.0 * (words.len() - 1 - n) as f64;
        let _ =
            writeln!(out, "<text class=small x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{}</text>", escape(word));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_have_round_ticks() {
        let linear = Scale::of_values(&[10.0, 47.0], 0.0, 100.0);
        assert_eq!((linear.log, linear.ticks()), (false, vec![0.0, 10.0, 20.0, 30.0, 40.0]));
        let log = Scale::of_values(&[1.0, 3000.0], 0.0, 100.0);
        assert_eq!((log.log, log.ticks()), (true, vec![1.0, 10.0, 100.0, 1000.0]));
        // Zero is not on a logarithmic scale, and nothing but zeros is a scale too.
        assert!(!Scale::of_values(&[0.0, 1e9], 0.0, 1.0).log);
        assert_eq!(Scale::of_values(&[0.0], 0.0, 100.0).at(0.0), 0.0);
        for values in [[f64::MAX, 1.0], [f64::INFINITY, 1.0], [f64::MAX, f64::MIN], [f64::NAN, 0.0]] {
            let scale = Scale::of_values(&values, 0.0, 100.0);
            assert!(values.iter().all(|v| scale.at(*v).is_finite()), "{values:?}");
        }
        assert_eq!([0.3, 5000.0, 20_000.0, 1.5e6, 2e9].map(short), ["0.3", "5000", "20k", "1.5M", "2G"]);
    }
}
