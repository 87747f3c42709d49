//! `esker lab memory --pid` on this process, and what is refused. What needs a process of its own is tested with the
//! command.

#![allow(clippy::unwrap_used)]

mod lab;

use clap::Parser;
use esker_lab::LabError;
use esker_memory::Region;
use esker_memory::{charged, charged_total, reserve, Account};
use lab::{command, schema, Command, Folder};
use serde_json::Value;

/// Runs in a folder of its own, which must be empty afterwards but for what the test put there.
fn memory(name: &str, files: &[(&str, &str)], arguments: &[&str]) -> Result<Value, LabError> {
    let folder = Folder::new(&format!("memory-{name}"));
    let dir = &folder.0;
    let mut words = vec!["memory".to_owned(), "--json".into(), "--dir".into()];
    words.push(dir.to_str().unwrap().into());
    words.extend(arguments.iter().map(|a| (*a).to_owned()));
    for (name, text) in files {
        std::fs::write(dir.join(name), text).unwrap();
        words.push(dir.join(name).to_str().unwrap().into());
    }
    let result = command(&words.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(std::fs::read_dir(dir).unwrap().count(), files.len(), "something was left behind");
    result.map(|(_, text)| serde_json::from_str(&text).unwrap())
}

/// What a server's client would print of this process.
fn accounts() -> String {
    let mut lines = vec!["Variable_name\tValue".to_owned()];
    lines.extend(Account::ALL.iter().map(|a| format!("Esker_memory_{}\t{}", a.name(), charged(*a))));
    let r = reserve();
    let others =
        [("total", charged_total()), ("regions", r.live_bytes), ("hot", r.hot_bytes), ("mapped", r.mapped_bytes)];
    lines.extend(others.map(|(name, bytes)| format!("Esker_memory_{name}\t{bytes}")));
    lines.join("\n")
}

fn row<'a>(report: &'a Value, what: &str) -> Option<&'a Value> {
    report["rows"].as_array().unwrap().iter().find(|r| r["params"]["what"] == what)
}

fn figure(report: &Value, what: &str, name: &str) -> f64 {
    row(report, what).map_or(0.0, |r| r["metrics"][name]["median"].as_f64().unwrap())
}

#[test]
fn regions_are_found_in_this_process() {
    const MIB: usize = 48;
    let pid = std::process::id().to_string();
    let before = memory("before", &[], &["--pid", &pid]).unwrap();
    let region = Region::zeroed(Account::BlockCache, MIB << 20).unwrap();
    let after = memory("after", &[("accounts", &accounts())], &["--pid", &pid, "--accounts"]).unwrap();
    drop(region);
    schema::check(&after);
    // A kernel that gives no names shows them as memory that claims no swap.
    let regions = |report: &Value| {
        ["Esker's regions", "anonymous, no swap claimed"]
            .map(|what| figure(report, what, "resident"))
            .iter()
            .sum::<f64>()
    };
    let grown = regions(&after) - regions(&before);
    assert!(grown >= MIB as f64, "{grown} MiB more: {after:#}");
    assert_eq!(figure(&after, "account block_cache", "accounted"), MIB as f64);
    let held = row(&after, "Esker's regions, against accounts").unwrap();
    match held["status"].as_str().unwrap() {
        "good" => assert!(held["metrics"]["rest"]["median"].as_f64().unwrap() <= 0.0, "{held:#}"),
        other => assert!(other == "unsupported" && held["why"].as_str().unwrap().contains("CONFIG_ANON_VMA_NAME")),
    }
    let all = "all of no file, against accounts";
    let (resident, accounted) = (figure(&after, all, "resident"), figure(&after, all, "accounted"));
    assert!(resident > accounted && accounted >= MIB as f64, "{resident} {accounted}");
    assert_eq!(figure(&after, all, "rest"), resident - accounted);
    // The groups make up the whole.
    let groups = after["rows"].as_array().unwrap().iter().take_while(|r| r["params"]["what"] != "all maps");
    let sum: f64 = groups.map(|r| r["metrics"]["maps"]["median"].as_f64().unwrap()).sum();
    assert_eq!(sum, figure(&after, "all maps", "maps"));
}

#[test]
fn what_cannot_be_is_refused() {
    let why = |arguments: &[&str]| memory("refused", &[], arguments).unwrap_err().to_string();
    assert!(why(&["--pid", "2147483647"]).contains("no process 2147483647"));
    assert!(why(&["--pid", "1", "--accounts", "/no/such/file"]).contains("/no/such/file"));
    assert!(why(&["--row-bytes", "0"]).contains("--row-bytes must be"));
    assert!(why(&["--threads", "0"]).contains("--threads must be"));
    assert!(why(&["--bytes", "0"]).contains("--bytes must be"));
    assert!(why(&["--bytes", "64T", "--row-bytes", "65536"]).contains("of memory"));
    let pid = std::process::id().to_string();
    // What it would not look at.
    for more in
        [["--bytes", "64M"], ["--threads", "2"], ["--allocators", "system"], ["--runs", "2"], ["--max-time", "5s"]]
    {
        let words = ["lab", "memory", "--pid", &pid].into_iter().chain(more);
        let error = Command::try_parse_from(words).err().unwrap().to_string();
        assert!(error.contains("cannot be used with") && error.contains(more[0]), "{error}");
    }
    let other = [("other", "Uptime\t5\n")];
    let error = memory("other", &other, &["--pid", &pid, "--accounts"]).unwrap_err();
    assert!(error.to_string().contains("0 of 8 accounts"), "{error}");
}
