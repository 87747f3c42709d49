//! Pages and texts that are made of reports: of one, of two, and of those from before.

#![allow(clippy::unwrap_used)]

mod lab;

use esker_lab::Verdict;
use lab::{command, rows, run, Folder};
use serde_json::{json, Value};

/// What a command prints that ends well.
fn good(words: &[&str]) -> String {
    let (verdict, text) = command(words).unwrap();
    assert_eq!(verdict, Verdict::Good);
    text
}

#[test]
fn a_page_is_made_of_one_report_or_two() {
    let folder = Folder::new("page");
    let outside = Folder::new("page-files");
    let file = |name: &str| outside.0.join(name).to_str().unwrap().to_owned();
    let (_, text) =
        run(&folder, &["io", "--records", "1000", "--runs", "1", "--json", "--html", &file("page.html")]).unwrap();
    std::fs::write(file("a.json"), text).unwrap();
    let page = std::fs::read_to_string(file("page.html")).unwrap();
    let rects = page.matches("<rect").count();
    assert!(rects > 10 && !page.contains("<script"));
    assert!(page.contains("over time: write plain") && page.contains("each 2 records"), "{page}");
    let both = good(&["report", &file("a.json"), &file("a.json")]);
    assert_eq!(both.matches("<rect").count(), 2 * rects);
    // With a longer one, and in words.
    let (_, text) = run(&folder, &["io", "--records", "3000", "--runs", "1", "--json"]).unwrap();
    std::fs::write(file("b.json"), text).unwrap();
    let text = good(&["report", "--text", &file("a.json"), &file("b.json")]);
    assert!(text.contains("1000 | 3000  write      plain") && !text.contains("Not matched"), "{text}");
    let date =
        |name: &str| text.lines().any(|l| l.starts_with(&format!("{name}: date 2")) && !l.contains("kernel unknown"));
    assert!(date("a") && date("b"), "{text}");
}

#[test]
fn no_text_of_a_report_moves_the_cursor() {
    let outside = Folder::new("odd-report");
    let odd = "a\u{1b}[2J\r\u{9b}1mb";
    let report = |rows: &[&str]| {
        let row = |way: &&str| json!({ "params": { odd: odd, "way": way }, "status": odd, "why": odd, "metrics": {} });
        json!({
            "schema": "esker-lab", "schema_version": 2, "command": odd, "params": [odd, "way"], "options": { odd: rows },
            "machine": { "kernel": odd }, "date": odd, "rows": rows.iter().map(row).collect::<Vec<_>>(), "notes": [odd],
        })
    };
    let files: Vec<String> = ["a.json", "b.json"].map(|n| outside.0.join(n).to_str().unwrap().to_owned()).into();
    std::fs::write(&files[0], report(&["x", "y"]).to_string()).unwrap();
    std::fs::write(&files[1], report(&["x"]).to_string()).unwrap();
    for how in [&[][..], &["--text"]] {
        let (_, text) = command(&[&["report", &files[0], &files[1]][..], how].concat()).unwrap();
        assert!(text.contains("a [2J  1mb"), "{text}");
        assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text:?}");
    }
}

#[test]
fn reports_of_buffer_from_before_it_had_ways_are_of_the_only_one() {
    let folder = Folder::new("old-buffer");
    let outside = Folder::new("old-buffer-files");
    let file = |name: &str| outside.0.join(name).to_str().unwrap().to_owned();
    let arguments = ["buffer", "--records", "3000", "--from", "64K", "--to", "256K", "--runs", "2", "--json"];
    let (_, text) = run(&folder, &arguments).unwrap();
    std::fs::write(file("new.json"), text).unwrap();
    let old = include_str!("fixtures/buffer_without_ways.json");
    std::fs::write(file("old.json"), old).unwrap();
    std::fs::write(
        file("all.json"),
        format!(r#"{{"schema":"esker-lab","schema_version":2,"command":"all","reports":[{old}]}}"#),
    )
    .unwrap();
    let written = |r: &&Value| r["params"].get("way").is_none();
    let rows_of = serde_json::from_str::<Value>(old).unwrap();
    assert_eq!(rows(&rows_of).iter().filter(written).count(), rows(&rows_of).len());
    for (a, b) in [("old.json", "new.json"), ("new.json", "old.json"), ("all.json", "new.json")] {
        let text = good(&["report", "--text", &file(a), &file(b)]);
        let line = |l: &&str| l.contains("write") && l.contains("static") && l.contains("cached") && l.contains("128K");
        assert!(text.lines().any(|l| line(&l)), "{a} {b}: {text}");
        // Nothing is left over but the way that there was not.
        let unmatched: Vec<&str> = text.lines().filter(|l| l.contains("only in the")).collect();
        assert!(
            !unmatched.is_empty() && unmatched.iter().all(|l| l.contains("esker") && !l.contains("cached")),
            "{text}"
        );
        assert!(good(&["report", &file(a), &file(b)]).contains("B in percent of A"));
    }
    let advice = good(&["advise", &file("old.json")]);
    assert!(
        advice.contains("esker_bulk_buffer_size") && advice.contains("No good row says anything of it"),
        "{advice}"
    );
}
