#![allow(clippy::unwrap_used)]

use super::*;
use serde_json::json;

/// A row: its parameters, and seconds in all.
type Made<'a> = (&'a [&'a str], f64);

fn report(command: &str, names: &[&str], made: &[Made<'_>]) -> Value {
    let figure = |unit: &str, v: f64| json!({ "unit": unit, "median": v, "low": v, "high": v, "samples": [v] });
    let row = |(values, s): &Made<'_>| {
        let params: serde_json::Map<String, Value> =
            names.iter().zip(*values).map(|(n, v)| ((*n).to_owned(), json!(v))).collect();
        let metrics = json!({ "ns": figure("ns", 10.0 * s), "real_s": figure("s", *s) });
        json!({ "params": params, "metrics": metrics, "counts": {}, "status": "good", "why": "" })
    };
    json!({
        "schema": "esker-lab", "schema_version": 2, "command": command, "params": names, "esker_version": "0.1.0",
        "date": "2026-11-27T02:00:00Z", "commit": "abc", "relative": "ns", "options": {}, "notes": [], "exit_code": 0,
        "machine": { "kernel": "6.1", "file_system": "ext4", "device": { "model": "840 PRO" } },
        "shown": [{ "name": "ns", "heading": "ns a record" }, { "name": "real_s", "heading": "s accepted" }],
        "rows": made.iter().map(row).collect::<Vec<_>>(),
    })
}

const IO: [&str; 3] = ["records", "do", "way"];

fn text_of(reports: &[(&str, &Value)]) -> Result<String> {
    to_text(&reports.iter().map(|(n, r)| ((*n).to_owned(), (*r).clone())).collect::<Vec<_>>())
}

fn line<'a>(text: &'a str, begin: &str) -> Vec<&'a str> {
    let found = text.lines().rfind(|l| l.starts_with(begin));
    found.unwrap_or_else(|| panic!("{begin} in {text}")).split_whitespace().collect()
}

#[test]
fn the_sources_table_comes_out_of_two_reports() {
    let of = |write, read| {
        report("io", &IO, &[(&["640000000", "write", "cached"], write), (&["640000000", "read cold", "cached"], read)])
    };
    let text = text_of(&[("SSD", &of(182.70, 126.53)), ("disk", &of(412.63, 499.47))]).unwrap();
    let accepted = text.split("s accepted").nth(1).unwrap();
    assert_eq!(line(accepted, "records"), ["records", "do", "way", "SSD", "disk", "disk/SSD"]);
    assert_eq!(
        line(accepted, "640000000  write"),
        ["640000000", "write", "cached", "183", "413", "225.9", "undecided"]
    );
    assert_eq!(
        line(accepted, "640000000  read"),
        ["640000000", "read", "cold", "cached", "127", "499", "394.7", "undecided"]
    );
    assert!(text.contains(
        "disk: date 2026-11-27T02:00:00Z, device 840 PRO, file system ext4, kernel 6.1, esker 0.1.0, commit abc"
    ));
}

#[test]
fn what_was_asked_for_otherwise_is_told() {
    let of = |options: Value| {
        let mut made = report("io", &IO, &[(&["1000", "write", "plain"], 1.0)]);
        made["options"] = options;
        made
    };
    let a = of(json!({ "record_bytes": 103, "madvise": null, "runs": 16, "dir": "a", "records": [1000], "depth": 4 }));
    let b =
        of(json!({ "record_bytes": 8192, "madvise": "random", "runs": 8, "dir": "b", "records": [10], "older": 1 }));
    let text = text_of(&[("a", &a), ("b", &b)]).unwrap();
    let told = "Asked for otherwise: madvise nothing in a, random in b; record bytes 103 in a, 8192 in b.\n";
    assert!(text.contains(told), "{text}");
    assert!(!text_of(&[("a", &a), ("c", &a)]).unwrap().contains("otherwise"));
}

#[test]
fn rows_match_whatever_there_was_of_them_and_on_what() {
    let a = report("io", &IO, &[(&["1000", "write", "plain"], 1.0), (&["1000", "write", "cached"], 0.5)]);
    let b = report("io", &IO, &[(&["9000", "write", "cached"], 4.5), (&["9000", "write", "plain"], 18.0)]);
    let text = text_of(&[("a", &a), ("b", &b)]).unwrap();
    assert_eq!(line(&text, "1000 | 9000  write  plain")[5..], ["10.0", "180", "1800.0", "undecided"]);
    // Seconds of nine times as much are no comparison.
    assert!(!text.contains("s accepted") && !text.contains("Not matched"), "{text}");
    let on = |name: &str| {
        let names = ["on", "threads", "commit"];
        report("commit", &names, &[(&[name, "1", "no sync"], 1.0), (&["tmpfs", "1", "no sync"], 1.0)])
    };
    let text = text_of(&[("a", &on("ext4")), ("b", &on("xfs"))]).unwrap();
    assert!(text.contains("ext4 | xfs") && !text.contains("Not matched"), "{text}");
    // Several sizes that are not the same ones go in their order; kinds of records are no sizes.
    let buffer = |kind: &str| report("buffer", &["do", "records", "buffer"], &[(&["write", kind, "4K"], 1.0)]);
    let text = text_of(&[("a", &buffer("static")), ("b", &buffer("dynamic"))]).unwrap();
    assert!(
        text.contains("only in the first: write static 4K") && text.contains("only in the second: write dynamic 4K")
    );
}

#[test]
fn what_does_not_match_is_said() {
    let a = report("io", &IO, &[(&["1000", "write", "plain"], 1.0), (&["1000", "write", "direct"], 1.0)]);
    let b = report("io", &IO, &[(&["1000", "write", "plain"], 2.0), (&["1000", "write", "esker"], 1.0)]);
    let text = text_of(&[("a", &a), ("b", &b)]).unwrap();
    assert!(text.contains("Not matched, a and b: only in the first: records 1000 write direct."), "{text}");
    assert!(text.contains("Not matched, a and b: only in the second: records 1000 write esker."), "{text}");
    let more = report("io", &IO, &[(&["2000", "write", "plain"], 1.0), (&["4000", "write", "plain"], 1.0)]);
    let text = text_of(&[("a", &a), ("b", &more)]).unwrap();
    assert!(text.contains("1 there, 2 here: records 1000 write plain and records 2000 write plain, records 4000"));
    let sync = report("sync", &["threads"], &[(&["1"], 1.0)]);
    let error = text_of(&[("a", &a), ("s", &sync)]).unwrap_err().to_string();
    assert!(error.contains("no two are of one command: a is of 'esker lab io', s is of 'esker lab sync'"), "{error}");
    assert!(text_of(&[("a", &a)]).is_err());
}

#[test]
fn three_reports_and_all_in_one_compare() {
    let io = |s| report("io", &IO, &[(&["1000", "write", "plain"], s)]);
    let sync = report("sync", &["threads"], &[(&["1"], 1.0)]);
    let all = json!({ "schema": "esker-lab", "schema_version": 2, "command": "all", "reports": [io(2.0), sync] });
    let text = text_of(&[("a", &io(1.0)), ("all", &all), ("c", &io(4.0))]).unwrap();
    assert_eq!(line(&text, "1000")[3..], ["1.00", "2.00", "4.00", "200.0", "undecided", "400.0", "undecided"]);
    assert!(
        text.contains("== sync ==\na has no report of this command.\nc has no report of this command.\n"),
        "{text}"
    );
}

/// A row that both have, and one of them has not measured, is not left out in silence.
#[test]
fn a_row_without_figures_is_told_of_with_the_reason() {
    let rows: [Made<'_>; 3] = [
        (&["10", "write", "cached"], 1.0),
        (&["10", "read cold", "cached"], 2.0),
        (&["10", "read cold", "mapped"], 3.0),
    ];
    let (first, mut other) = (report("io", &IO, &rows), report("io", &IO, &rows));
    for at in [1, 2] {
        other["rows"][at]["status"] = json!("unsupported");
        other["rows"][at]["why"] = json!("the file stays in memory");
    }
    let text = text_of(&[("disk", &first), ("memory", &other)]).unwrap();
    let words =
        "Not compared, as memory has no figures of it (the file stays in memory): read cold cached, read cold mapped.";
    assert!(text.contains(words), "{text}");
    assert!(!text_of(&[("disk", &first), ("again", &first)]).unwrap().contains("Not compared"));
}
