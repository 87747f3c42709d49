//! `esker trace` as a process: exit codes, standard input, and what it refuses to overwrite.

#![allow(clippy::unwrap_used)]

mod common;

use common::Scratch;
use std::io::Write;
use std::process::{Command, Output, Stdio};

const TRACE: &str = "\
TRACE version=1 conn=7
STATEMENT q=8841 s=1 tim=0 text='SELECT 1'
WAIT tim=10 q=8841 s=1 nam='log file sync' ela=253.412
END q=8841 s=1 tim=1000 ela=1000 cpu=100 ready=0
STATEMENT q=8842 s=2 tim=2000 text='SELECT 2'
WAIT tim=2010 q=8842 s=2 nam='log fi";

/// Runs it with something to read; exit code, output, errors.
fn esker(arguments: &[&str], input: &str) -> (i32, String, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_esker"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
    (status.code().unwrap(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

#[test]
fn a_file_and_standard_input_tell_the_same() {
    let folder = Scratch::named("trace-same");
    let path = folder.file("a.trace", TRACE);
    let (code, text, errors) = esker(&["trace", &path], "");
    assert_eq!((code, errors.as_str()), (0, ""));
    assert!(text.contains("warning: line 6: the file ends within this line"), "{text}");
    assert!(text.contains("log file sync                        0.000253  25.3        1"), "{text}");
    let (code, piped, _) = esker(&["trace", "-"], TRACE);
    assert_eq!((code, piped.replace("standard input", &path)), (0, text));
    let (code, json, _) = esker(&["trace", "--json", "--query", "8841", &path, "-"], TRACE);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((code, json["files"].as_array().unwrap().len()), (0, 2));
    let shown = &json["files"][1]["statements"];
    assert_eq!((shown.as_array().unwrap().len(), &shown[0]["account"]["unaccounted_ns"]), (1, &646_588.into()));
}

#[test]
fn a_file_without_its_first_line_is_read() {
    let (code, text, errors) = esker(&["trace", "-"], &TRACE.replacen("TRACE version=1", "TR\u{1}CE ver", 1));
    assert_eq!((code, errors.as_str()), (0, ""));
    assert!(
        text.contains("warning: line 1: byte 1: ") && text.contains("warning: line 2: no TRACE line before it"),
        "{text}"
    );
    assert!(text.contains("conn ?  query 8841  SELECT 1"), "{text}");
}

#[test]
fn what_cannot_be_told_is_one() {
    let folder = Scratch::named("trace-one");
    let path = folder.file("a.trace", TRACE);
    let missing = folder.path().join("missing").to_str().unwrap().to_owned();
    let other = folder.file("other", "to whom it may concern\n");
    let cases: [(&[&str], &str); 8] = [
        // What would never come to an end.
        (&["trace", "/dev/zero"], "cannot read /dev/zero: it is a device"),
        (&["trace", "/dev/null"], "it is a device"),
        (&["trace", "--html", "/nowhere/page.html", &path], "cannot write /nowhere/page.html"),
        (&["trace", &missing], "cannot read"),
        (&["trace", &other], "is no session trace"),
        (&["trace", "--query", "1", &path], "no statement has the query id 1"),
        (&["trace"], "required"),
        (&["trace", "--json", "--html", &other, &path], "cannot be used with"),
    ];
    for (arguments, said) in cases {
        let (code, text, errors) = esker(arguments, "");
        assert!(code == 1 && text.is_empty() && errors.contains(said), "{arguments:?}: {code} {text} {errors}");
    }
}

#[test]
fn a_page_is_written_over_a_page_alone() {
    let folder = Scratch::named("trace-page");
    let path = folder.file("a.trace", TRACE);
    let page = folder.path().join("page.html").to_str().unwrap().to_owned();
    for _ in 0..2 {
        assert_eq!(esker(&["trace", "--html", &page, &path], ""), (0, String::new(), String::new()));
        assert!(std::fs::read_to_string(&page).unwrap().ends_with("</body></html>\n"));
    }
    // Its own input, or another trace that was meant to be read.
    let (code, _, errors) = esker(&["trace", "--html", &path, &path], "");
    assert!(code == 1 && errors.contains("is no page of HTML"), "{code} {errors}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), TRACE);
}

#[test]
fn the_two_commands_of_one_name_tell_themselves_apart() {
    let (_, of_sessions, _) = esker(&["trace", "--help"], "");
    let (_, of_files, _) = esker(&["lab", "trace", "--help"], "");
    assert!(of_sessions.contains("esker lab trace"), "{of_sessions}");
    assert!(of_files.contains("'esker trace'"), "{of_files}");
}
