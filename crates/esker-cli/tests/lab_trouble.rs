//! `esker lab` where things go wrong: Ctrl-C, a full disk, a folder that cannot be written, io_uring refused; and sizes
//! that are odd. Mounts are made in a namespace of their own; where that is not allowed, the test
//! says so and is skipped.

#![allow(clippy::unwrap_used)]

mod common;

use common::Scratch;
use serde_json::Value;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

fn esker(dir: impl AsRef<Path>, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_esker"));
    command.arg("lab").args(arguments).args(["--json", "--dir"]).arg(dir.as_ref()).stdin(Stdio::null());
    command
}

/// A report: every figure is a number, and the process ended by itself and well, on a noisy machine too.
fn report(output: &Output, what: &[&str]) -> Value {
    assert!(matches!(output.status.code(), Some(0 | 3 | 130)), "{what:?}: {output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    for row in report["rows"].as_array().unwrap() {
        for (name, metric) in row["metrics"].as_object().unwrap() {
            let figures = ["median", "low", "high"].map(|f| metric[f].is_number());
            let samples = metric["samples"].as_array().unwrap();
            // What is no number (0/0) would be null.
            assert!(figures == [true; 3] && samples.iter().all(Value::is_number), "{what:?}: {name}: {row}");
        }
    }
    report
}

fn statuses(report: &Value) -> Vec<&str> {
    report["rows"].as_array().unwrap().iter().map(|r| r["status"].as_str().unwrap()).collect()
}

#[test]
fn odd_sizes_give_figures() {
    let folder = Scratch::named("odd");
    for arguments in [
        &["io", "--records", "3000", "--record-bytes", "1"][..],
        &["io", "--records", "3000", "--record-bytes", "7", "--buffer", "1"],
        &["io", "--records", "300", "--record-bytes", "4097", "--buffer", "100"],
        &["buffer", "--records", "3000", "--record-bytes", "1", "--to", "4K"],
        &["buffer", "--records", "300", "--record-bytes", "4097", "--to", "64K"],
        &["buffer", "--records", "3000", "--record-bytes", "7", "--to", "4K", "--model", "myisam"],
    ] {
        let output = esker(&folder, &[arguments, &["--runs", "1"]].concat()).output().unwrap();
        folder.assert_empty();
        let report = report(&output, arguments);
        // A file system without O_DIRECT, and a cache that cannot be dropped, are not ours.
        let right = |s: &&str| *s == "good" || *s == "unsupported";
        assert!(statuses(&report).iter().all(right) && !statuses(&report).is_empty(), "{arguments:?}: {report:#}");
    }
}

#[test]
fn who_has_read_enough_is_no_failure() {
    let folder = Scratch::named("pipe");
    for arguments in [
        &["locks", "--threads", "1", "--count", "10", "--runs", "1"][..],
        &["all", "--quick", "--runs", "1", "--max-time", "1s"],
    ] {
        let mut child = esker(&folder, arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // Before a byte of the report.
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        // As with a reader: a noisy machine, or commands that the time did not suffice for, are told by the code.
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!words.contains("cannot write the output") && !words.contains("panicked"), "{arguments:?}: {words}");
        assert!(matches!(output.status.code(), Some(0 | 1 | 3)), "{arguments:?}: {output:?}");
        folder.assert_empty();
    }
}

#[test]
fn ctrl_c_ends_every_command_with_what_is_done() {
    for arguments in [
        &["buffer", "--records", "1000000", "--runs", "100000", "--to", "4K"][..],
        &["trace", "--reads", "1000000", "--runs", "2"],
        &["locks", "--threads", "2", "--count", "1000000000"],
        &["recovery", "--records", "10000000", "--target", "5"],
    ] {
        let folder = Scratch::named(&format!("ctrl-c-{}", arguments[0]));
        let mut command = esker(&folder, arguments);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // The handler is set before the folder is made. Where there is no room for so much that is gone again before anybody looks.
        let began = Instant::now();
        while std::fs::read_dir(&folder).unwrap().next().is_none() && began.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(5));
        }
        std::thread::sleep(Duration::from_millis(300));
        let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
        assert!(killed.success());
        let output = child.wait_with_output().unwrap();
        folder.assert_empty();
        // Stopped before there was anything to report, or without room for so much: both say so.
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.code() == Some(1) && words.contains("use fewer records") {
            continue;
        }
        assert_eq!(output.status.code(), Some(130), "{arguments:?}: {words}");
        if output.stdout.is_empty() {
            assert!(words.contains("stopped"), "{arguments:?}: {words}");
            continue;
        }
        let report = report(&output, arguments);
        assert!(statuses(&report).contains(&"stopped"), "{arguments:?}: {report:#}");
    }
}

/// As `timeout esker lab ...` does it: a signal to the command, and another one to the group that it is in.
#[test]
fn two_signals_at_once_are_one_request() {
    let folder = Scratch::named("signals");
    let mut command = esker(&folder, &["io", "--records", "300000", "--runs", "100000"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Something is written: the handler is set, and there is much to clear away.
    let at_work = || {
        let inner = std::fs::read_dir(&folder).unwrap().next()?.ok()?.path();
        inner.join("written").exists().then_some(())
    };
    while at_work().is_none() {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it was stopped");
        std::thread::sleep(Duration::from_millis(5));
    }
    let pid = child.id();
    let killed = Command::new("sh").arg("-c").arg(format!("kill -INT {pid}; kill -TERM {pid}")).status().unwrap();
    assert!(killed.success());
    let output = child.wait_with_output().unwrap();
    folder.assert_empty();
    assert_eq!(output.status.code(), Some(130));
    assert_eq!(statuses(&report(&output, &[])).last(), Some(&"stopped"));
}

/// A shell in a mount namespace of its own, with a tmpfs of these options on `folder`; its output, or `None` where that
/// is not allowed. `$E` is esker, `$D` the folder, `$O` one outside of it.
fn mounted(folder: &Scratch, outside: &Scratch, options: &str, script: &str) -> Option<Output> {
    let script = format!("mount -t tmpfs -o {options} none \"$D\" || exit 99\n{script}");
    for unshare in [&["-m"][..], &["-r", "-m"]] {
        let output = Command::new("unshare")
            .args(unshare)
            .args(["sh", "-c", &script])
            .env("E", env!("CARGO_BIN_EXE_esker"))
            .env("D", folder.path())
            .env("O", outside.path())
            .stdin(Stdio::null())
            .output();
        match output {
            Ok(output) if !matches!(output.status.code(), Some(99)) && !refused(&output) => return Some(output),
            _ => {}
        }
    }
    eprintln!("skipped: no tmpfs can be mounted in a namespace of its own here (not root, or a container)");
    None
}

fn refused(output: &Output) -> bool {
    String::from_utf8_lossy(&output.stderr).starts_with("unshare: ")
}

fn read(folder: &Scratch, name: &str) -> String {
    std::fs::read_to_string(folder.path().join(name)).unwrap()
}

#[test]
fn a_disk_that_is_too_small_is_refused() {
    let (folder, outside) = (Scratch::named("small"), Scratch::named("small-out"));
    let script = "for c in io buffer doctor trace recovery; do\n\
                    \"$E\" lab $c --dir \"$D\" 2>>\"$O/words\"; echo $? >>\"$O/codes\"\n\
                  done; ls -A \"$D\" >\"$O/left\"";
    let Some(output) = mounted(&folder, &outside, "size=8m", script) else { return };
    assert!(output.status.success(), "{output:?}");
    assert_eq!(read(&outside, "codes"), "1\n".repeat(5), "{}", read(&outside, "words"));
    let words = read(&outside, "words");
    assert_eq!(words.matches("0 to spare").count(), 5, "{words}");
    // doctor and trace take none.
    assert_eq!(words.matches("use fewer or smaller --records").count(), 3, "{words}");
    assert_eq!(read(&outside, "left"), "");
}

#[test]
fn a_disk_that_fills_up_meanwhile_fails_rows_and_nothing_else() {
    for arguments in [
        "buffer --records 100000 --to 4K --runs 10",
        "sync --count 500 --threads 1 --sizes 64K --runs 30",
        "io --records 200000 --runs 40 --cache warm",
    ] {
        let (folder, outside) = (Scratch::named("fills"), Scratch::named("fills-out"));
        // What the lab gives up for a while is taken too. It has five minutes to end by itself: no test waits for ever.
        let script = format!(
            "timeout -k 5 300 \"$E\" lab {arguments} --json --dir \"$D\" >\"$O/json\" & pid=$!\n\
             while ! ls \"$D\"/esker-lab-*/* >/dev/null 2>&1; do kill -0 $pid || exit 98; sleep 0.02; done\n\
             (while :; do head -c 1G /dev/zero >>\"$D/filler\"; sleep 0.01; done) 2>/dev/null & filler=$!\n\
             wait $pid; code=$?; kill $filler; wait $filler; rm \"$D/filler\"; ls -A \"$D\" >\"$O/left\"; exit $code"
        );
        let Some(output) = mounted(&folder, &outside, "size=200m", &script) else { return };
        assert_eq!(output.status.code(), Some(1), "{arguments}: {output:?}");
        let report: Value = serde_json::from_str(&read(&outside, "json")).unwrap();
        let full = |r: &&Value| r["status"] == "failed" && r["why"].as_str().unwrap().contains("No space left");
        assert!(report["rows"].as_array().unwrap().iter().any(|r| full(&r)), "{arguments}: {report:#}");
        assert_eq!(read(&outside, "left"), "");
    }
}

#[test]
fn a_folder_that_cannot_be_written_is_refused() {
    let outside = Scratch::named("unwritable-out");
    let file = outside.path().join("file");
    std::fs::write(&file, "").unwrap();
    let below = file.join("folder");
    for command in ["doctor", "io", "buffer", "sync", "commit", "trace", "locks", "recovery"] {
        let output = esker(&below, &[command]).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{command}: {output:?}");
        let words = String::from_utf8_lossy(&output.stderr);
        assert!(words.contains("Not a directory") || words.contains("there is no folder"), "{command}: {output:?}");
    }
    let folder = Scratch::named("read-only");
    let script = "\"$E\" lab doctor --dir \"$D\"; code=$?; ls -A \"$D\" >\"$O/left\"; exit $code";
    let Some(output) = mounted(&folder, &outside, "ro,size=1m", script) else { return };
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("Read-only file system"), "{output:?}");
    assert_eq!(read(&outside, "left"), "");
}

/// A process that gets `error` for io_uring_setup, by a filter as container runtimes have one.
fn without_io_uring(mut command: Command, error: i32) -> Output {
    // The number of the call is the first word of what a filter sees; it is the same on all architectures.
    const IO_URING_SETUP: u32 = 425;
    let step = |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter { code: code as u16, jt, jf, k };
    let mut filter = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, IO_URING_SETUP),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | error as u32),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let install = move || {
        let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
        // SAFETY: two system calls with valid arguments; nothing is allocated between fork and exec.
        let failed = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
                || libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program) != 0
        };
        if failed {
            return Err(std::io::Error::last_os_error());
        }
        Ok(())
    };
    // SAFETY: see above.
    unsafe { command.pre_exec(install) };
    command.output().unwrap()
}

#[test]
fn io_uring_refused_has_its_reason_and_stops_nothing() {
    let folder = Scratch::named("uring");
    for error in [libc::EPERM, libc::ENOSYS] {
        let output = without_io_uring(esker(&folder, &["doctor", "--runs", "1"]), error);
        let doctor = report(&output, &["doctor"]);
        let row = |what: &str| {
            let rows = doctor["rows"].as_array().unwrap();
            rows.iter().find(|r| r["params"]["what"] == what).unwrap()["params"].clone()
        };
        let uring = row("io_uring");
        assert_eq!((uring["found"].as_str(), uring["state"].as_str()), (Some("no"), Some("warning")));
        let remark = uring["remark"].as_str().unwrap();
        // Where a sysctl forbids it as well, that is the reason given.
        assert!(remark.contains("seccomp") || remark.contains("io_uring_disabled"), "{remark}");
        assert_eq!(row("system call filter")["found"], "yes");
        let output = without_io_uring(esker(&folder, &["io", "--records", "5000", "--runs", "1"]), error);
        let io = report(&output, &["io"]);
        let background = |r: &&Value| r["params"]["way"].as_str().unwrap().starts_with("background");
        let rows: Vec<&Value> = io["rows"].as_array().unwrap().iter().filter(background).collect();
        // Cold rows may be refused where the cache cannot be dropped; writing is not.
        assert!(!rows.is_empty() && rows.iter().any(|r| r["status"] == "good"), "{io:#}");
        folder.assert_empty();
    }
}
