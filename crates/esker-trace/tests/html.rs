//! The page: whole, of itself alone, and with boxes as wide as the times are long.

#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use esker_trace::format::*;
use esker_trace::html::page;

/// The boxes of a row of the icicle that is drawn of a statement: left and width in percent, and what is in it.
fn boxes(page: &str, of: &str, level: u32) -> Vec<(f64, f64, String)> {
    let from = page.find(&format!("where the time of {of} went")).unwrap();
    let svg = &page[from..from + page[from..].find("\n</svg>").unwrap()];
    let value = |line: &str, key: &str| {
        let at = line.find(&format!("{key}=\"")).unwrap() + key.len() + 2;
        line[at..].split(['"', '%']).next().unwrap().to_owned()
    };
    let of_level = |line: &&str| line.starts_with("<svg x=") && value(line, " y") == (26 * level).to_string();
    let parsed = |line: &str| {
        let title = line.split("<title>").nth(1).unwrap().split(": ").next().unwrap().to_owned();
        (value(line, "<svg x").parse().unwrap(), value(line, " width").parse().unwrap(), title)
    };
    svg.lines().filter(of_level).map(parsed).collect()
}

#[test]
fn boxes_are_as_wide_as_times_are_long() {
    let file = example().read();
    let account = &file.statements[0].account;
    let page = page(std::slice::from_ref(&file));
    let drawn = boxes(&page, "query 8841", 1);
    assert_eq!(drawn.len(), account.rows.len());
    let mut left = 0.0;
    for ((x, width, what), row) in drawn.iter().zip(&account.rows) {
        assert_eq!(*what, row.what);
        assert!((x - left).abs() < 0.01, "{what}: {x}, not {left}");
        assert!((width - 100.0 * row.share.unwrap()).abs() < 0.01, "{what}: {width}");
        left += width;
    }
    assert!((left - 100.0).abs() < 0.01, "{left}");
    assert_eq!(boxes(&page, "query 8841", 2).len(), 2);
}

#[test]
fn more_than_the_wall_still_fits() {
    let mut lines = Lines::default();
    lines.add(trace()).add(Statement { q: 8841, s: Some(1), ..Statement::default() });
    lines.add(wait(0, 900 * US, "log file sync"));
    lines.add(End { cpu: Some(600 * US), ready: Some(0), ..end(1000 * US, 1000 * US) });
    let page = page(&[lines.read()]);
    let drawn = boxes(&page, "query 8841", 1);
    let sum: f64 = drawn.iter().map(|b| b.1).sum();
    assert!(drawn.len() == 2 && (sum - 100.0).abs() < 0.01, "{drawn:?}");
}

#[test]
fn a_page_is_whole_and_of_itself_alone() {
    let mut lines = Lines::default();
    let text = "SELECT '<script>alert(1)</script>' & \"x\"\u{7}";
    lines.add(trace()).add(Statement { q: 8841, s: Some(1), tim: 0, db: None, text: Some(text.into()) });
    lines.add(Wait { obj: Some("<b>\"".into()), ..wait(0, US, "<i>") });
    lines.add(Wait { obj: Some("c".into()), ..wait(0, US, "<i>") });
    lines.add(Call { tab: Some("<u>".into()), function: "f".into(), q: Some(8841), ..Call::default() });
    lines.add(Lost { tim: None, why: Some("<s>".into()) });
    lines.add(end(1000 * US, 1000 * US));
    let page = page(&[lines.read(), example().read()]);
    for forbidden in ["<script", "http:", "https:", "<b>\"", "<i>", "<u>", "<s>", "\u{7}", "src=", "url("] {
        assert!(!page.contains(forbidden), "{forbidden}");
    }
    assert!(page.contains("SELECT '&lt;script&gt;alert(1)&lt;/script&gt;' &amp; &quot;x&quot;</pre>"));
    for tag in ["svg", "table", "h2", "h3", "p", "ul", "div", "pre"] {
        let opened = page.matches(&format!("<{tag} ")).count() + page.matches(&format!("<{tag}>")).count();
        assert_eq!(opened, page.matches(&format!("</{tag}>")).count(), "{tag}");
    }
}
