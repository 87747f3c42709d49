//! What cannot be measured, or would be ignored, is refused before anything is written.

#![allow(clippy::unwrap_used)]

mod lab;

use esker_lab::LabError;
use lab::{command, run, Folder};

/// A number that no machine has.
const HUGE: &str = "18446744073709551615";

/// Why a command is refused.
fn refused(arguments: &[&str]) -> String {
    match run(&Folder::new("refused"), arguments) {
        Err(e) => e.to_string(),
        Ok((_, text)) => panic!("{arguments:?} was not refused: {text}"),
    }
}

#[test]
fn nothing_is_measured_of_nothing() {
    let folder = Folder::new("nothing");
    let nothing: [(&[&str], &str); 5] = [
        (&["io", "--records", "0"], "--records"),
        (&["io", "--records", "1000,0"], "--records"),
        (&["buffer", "--records", "0"], "--records"),
        (&["recovery", "--records", "0"], "--records"),
        (&["trace", "--reads", "0"], "--reads"),
    ];
    for (arguments, option) in nothing {
        let said = run(&folder, arguments).unwrap_err();
        assert!(matches!(said, LabError::Invalid(_)), "{said:?}");
        assert_eq!(said.to_string(), format!("{option} must be at least 1"));
        assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 0);
    }
}

#[test]
fn a_page_that_cannot_be_is_refused_before_anything_is_measured() {
    let (folder, outside) = (Folder::new("no-page"), Folder::new("no-page-files"));
    let file = |name: &str| outside.0.join(name).to_str().unwrap().to_owned();
    std::fs::write(file("report.json"), "{}").unwrap();
    for (page, why) in [
        (file("missing/page.html"), "No such file"),
        (file(""), "Is a directory"),
        (file("report.json"), "no page of HTML"),
    ] {
        // What is refused later has another reason.
        for command in [&["sync", "--max-space", "0"][..], &["all", "--full", "--max-space", "0", "--max-time", "1s"]] {
            let said = run(&folder, &[command, &["--html", &page]].concat()).unwrap_err().to_string();
            assert!(said.starts_with(&format!("cannot write {page}")) && said.contains(why), "{said}");
            assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 0, "{command:?}");
        }
    }
    assert_eq!(std::fs::read_to_string(file("report.json")).unwrap(), "{}");
    // Whoever looks leaves nothing, and a page is written over.
    let page = file("page.html");
    let few = ["sync", "--count", "1", "--rates", "0", "--runs", "1", "--min-time", "0", "--html", &page];
    for _ in 0..2 {
        run(&folder, &few).unwrap();
        assert!(std::fs::read_to_string(&page).unwrap().ends_with("</html>\n"));
    }
    assert!(run(&folder, &["sync", "--count", "0", "--html", &file("other.html")]).is_err());
    assert_eq!(std::fs::read_dir(&outside.0).unwrap().count(), 2);
}

#[test]
fn a_folder_that_is_there_is_somebody_elses() {
    let folder = Folder::new("others");
    let name = format!("esker-lab-io-{}", std::process::id());
    let theirs = folder.0.join(&name);
    std::fs::create_dir(&theirs).unwrap();
    std::fs::write(theirs.join("file"), "somebody's").unwrap();
    std::os::unix::fs::symlink(&theirs, folder.0.join(format!("{name}-2"))).unwrap();
    let dir = folder.0.to_str().unwrap();
    command(&["io", "--records", "1000", "--ways", "plain", "--runs", "1", "--dir", dir]).unwrap();
    assert_eq!(std::fs::read_to_string(theirs.join("file")).unwrap(), "somebody's");
    assert_eq!((std::fs::read_dir(&theirs).unwrap().count(), std::fs::read_dir(&folder.0).unwrap().count()), (1, 2));
}

#[test]
fn what_cannot_be_is_refused() {
    assert!(refused(&["io", "--max-space", "1M"]).contains("--max-space allows 1M"));
    assert!(refused(&["io", "--records", "99999999999999"]).contains("to spare; use fewer or smaller --records"));
    assert!(refused(&["io", "--buffer", "0"]).contains("--buffer must be"));
    assert!(refused(&["io", "--runs", "0"]).contains("--runs must be"));
    assert!(refused(&["io", "--records", "3", "--clients", "4"]).contains("too few for 4 clients"));
    assert!(refused(&["buffer", "--from", "2G", "--to", "1G"]).contains("buffers go from"));
    assert!(refused(&["buffer", "--io-size", "100", "--model", "myisam"]).contains("power of two"));
    assert!(refused(&["sync", "--threads", "65"]).contains("between 1 and 64"));
    for window in ["0", "1025G"] {
        assert!(refused(&["io", "--window", window]).contains("--window must be between 1 byte and 1T"));
    }
    assert!(refused(&["io", "--clients", "2:0"]).contains("--clients must be"));
    assert!(refused(&["io", "--clients", "2:1", "--only", "read"]).contains("without --only"));
    assert!(refused(&["sync", "--count", HUGE]).contains("more than any machine has"));
    assert!(refused(&["commit", "--commits", HUGE]).contains("more than any machine has"));
    assert!(refused(&["buffer", "--records", HUGE]).contains("more than any machine has"));
    assert!(refused(&["io", "--records", &format!("{HUGE},2")]).contains("to spare"));
    assert!(refused(&["locks", "--count", HUGE]).contains("more than any machine has"));
    // The hint names what there is.
    assert!(refused(&["sync", "--count", "100M"]).contains("smaller --count, --sizes or --threads"));
    assert!(refused(&["commit", "--commits", "1000M", "--beside", "none"]).contains("smaller --commits or --bytes"));
}

#[test]
fn what_would_be_taken_and_ignored_is_refused() {
    assert!(refused(&["sync", "--cache", "warm"]).contains("--cache does nothing here"));
    assert!(refused(&["memory", "--cache", "warm"]).contains("--cache does nothing here"));
    assert!(refused(&["buffer", "--cache", "both"]).contains("either cold or warm"));
    assert!(refused(&["buffer", "--io-size", "4096"]).contains("it is of --model myisam"));
    assert!(refused(&["io", "--depth", "3", "--ways", "plain,cached"]).contains("--depth does nothing here"));
    assert!(refused(&["io", "--buffer", "4K", "--ways", "mapped,plain"]).contains("--buffer does nothing here"));
    assert!(refused(&["io", "--one-file"]).contains("--one-file does nothing here"));
    assert!(refused(&["io", "--only", "write", "--cache", "cold"]).contains("--cache does nothing here"));
    assert!(refused(&["io", "--only", "read", "--existing"]).contains("--existing does nothing here"));
    assert!(refused(&["io", "--ways", "plain", "--window", "4K"]).contains("--window, --madvise does nothing here"));
}

#[test]
fn memory_is_part_of_the_plan() {
    let large = ["--records", "1K", "--buffer", "1G", "--depth", "64"];
    assert!(refused(&[&["io", "--max-memory", "500M"], &large[..]].concat()).contains("--max-memory allows 500M"));
    let clients =
        ["io", "--records", "1K", "--buffer", "1G", "--depth", "1000", "--clients", "100", "--ways", "direct"];
    let words = refused(&clients);
    assert!(words.contains("is available; use less or smaller buffers"), "{words}");
    assert!(refused(&["buffer", "--max-memory", "1M"]).contains("--max-memory allows 1M"));
    assert!(refused(&["trace", "--blocks", "1000", "--block", "1M", "--max-memory", "1M"]).contains("of memory"));
    // All times are memory too.
    let times = ["sync", "--count", "10K", "--sizes", "1", "--min-time", "0", "--threads", "64", "--max-memory", "40M"];
    assert!(refused(&times).contains("--max-memory allows 40M"));
    // Every read is kept.
    assert!(refused(&["trace", "--reads", "1G", "--max-memory", "64M"]).contains("--max-memory allows 64M"));
    assert!(refused(&["trace", "--reads", HUGE]).contains("more than any machine has"));
    let reads = ["trace", "--reads", "20K", "--blocks", "1", "--runs", "4", "--max-memory", "40M"];
    assert!(refused(&[&reads[..], &["--lines"]].concat()).contains("--max-memory allows 40M"));
}

#[test]
fn folders_and_files_that_are_none_are_refused() {
    let folder = Folder::new("no-folder");
    let typo = folder.0.join("no-such-folder");
    // Those that measure several things, too: not a report in which nothing was measured.
    for name in ["doctor", "all", "advise"] {
        let error = command(&[name, "--dir", typo.to_str().unwrap()]).unwrap_err().to_string();
        assert!(error.contains("there is no folder") && !typo.exists(), "{error}");
    }
    // A pipe would be waited for, and a device has no end.
    for arguments in [&["trace"][..], &["io", "--only", "read"]] {
        let words = refused(&[arguments, &["--file", "/dev/zero"]].concat());
        assert!(words.contains("no regular file"), "{words}");
    }
    let file = folder.0.join("file");
    std::fs::write(&file, "").unwrap();
    let error = command(&["io", "--dir", file.to_str().unwrap()]).unwrap_err().to_string();
    assert!(error.contains("cannot create folder"), "{error}");
    std::fs::remove_file(file).unwrap();
}
