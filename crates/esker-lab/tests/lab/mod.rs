//! Runs a command of the lab in a folder of its own, and looks at what it prints; for its tests.

#![allow(dead_code)]

#[path = "../schema/mod.rs"]
pub mod schema;

use clap::Parser;
use esker_lab::{Lab, LabError, Verdict};
use serde_json::Value;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

#[derive(Parser)]
pub struct Command {
    #[command(subcommand)]
    pub lab: Lab,
}

/// Held by tests that look at counters of the whole process.
pub static COUNTING: std::sync::Mutex<()> = std::sync::Mutex::new(());

static NUMBER: AtomicU32 = AtomicU32::new(0);

/// A folder that goes with its test.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(name: &str) -> Folder {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("esker-lab-{name}-{}-{number}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// How a command ends, and what it prints.
pub fn command(arguments: &[&str]) -> Result<(Verdict, String), LabError> {
    let command = Command::try_parse_from([&["lab"], arguments].concat()).unwrap();
    let mut out = Vec::new();
    let verdict = esker_lab::run(&command.lab, &mut out)?;
    Ok((verdict, String::from_utf8(out).unwrap()))
}

/// The same in a folder, in which it leaves nothing.
pub fn run(folder: &Folder, arguments: &[&str]) -> Result<(Verdict, String), LabError> {
    let done = command(&[arguments, &["--dir", folder.0.to_str().unwrap()]].concat())?;
    let left = std::fs::read_dir(&folder.0).unwrap().count();
    assert_eq!(left, 0, "something was left behind");
    Ok(done)
}

/// A report that is as the schema says. A noisy machine is no fault of the code.
pub fn report(folder: &Folder, arguments: &[&str]) -> Value {
    let report = report_of_any_verdict(folder, arguments);
    let odd: Vec<&Value> =
        rows(&report).iter().filter(|r| r["status"] != "good" && r["status"] != "unsupported").collect();
    assert!(report["exit_code"] == 0 || report["exit_code"] == 3, "{odd:#?}");
    report
}

pub fn report_of_any_verdict(folder: &Folder, arguments: &[&str]) -> Value {
    let arguments: Vec<&str> = arguments.iter().copied().chain(["--json"]).collect();
    let (verdict, text) = run(folder, &arguments).unwrap();
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(report["exit_code"], verdict.exit_code());
    schema::check(&report);
    report
}

pub fn rows(report: &Value) -> &Vec<Value> {
    report["rows"].as_array().unwrap()
}

pub fn statuses(report: &Value) -> Vec<(String, String)> {
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    rows(report).iter().map(|r| (text(&r["status"]), text(&r["why"]))).collect()
}

/// The values of a parameter, each once.
pub fn values(report: &Value, param: &str) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for value in rows(report).iter().map(|r| r["params"][param].as_str().unwrap().trim_end_matches(" again").to_owned())
    {
        if !all.contains(&value) {
            all.push(value);
        }
    }
    all
}
