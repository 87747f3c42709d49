//! What kernel and file system can do, and where they refuse, why.

use super::{text_of, Findings};
use crate::error::Result;
use crate::probe::raw::{RawFile, RawOptions};
use esker_io::{PosixDisk, UringStatus};
use std::path::Path;

/// Tries them.
pub(super) fn look(found: &mut Findings, folder: &Path) -> Result<()> {
    let seccomp = seccomp_mode();
    match PosixDisk::with_uring(2).uring_status() {
        UringStatus::Active { .. } => found.ok("io_uring", "yes", "bulk writes are queued to the kernel"),
        UringStatus::Refused(refusal) => {
            let disabled = text_of("/proc/sys/kernel/io_uring_disabled");
            let why = why_no_uring(&refusal, disabled.as_deref(), &seccomp);
            found.warn("io_uring", "no", format!("{why} ({refusal}); bulk files are written by a thread instead"));
        }
        _ => found.info("io_uring", "no", "it was not asked for"),
    }
    let filter = match seccomp.as_str() {
        "0" => "none",
        "1" | "2" => "yes",
        _ => "unknown",
    };
    found.info("system call filter", filter, "seccomp, as containers have; it may refuse calls that the kernel knows");
    let path = folder.join("abilities");
    let file = RawFile::open(&path, RawOptions { create: true, ..RawOptions::default() })?;
    match RawFile::open(&path, RawOptions { direct: true, write: true, ..RawOptions::default() }) {
        Ok(_) => found.ok("O_DIRECT", "yes", "where memory is short, bulk files go past the page cache"),
        Err(e) => found.warn("O_DIRECT", "no", e.message),
    }
    match file.write_at_durably(&[0; 4096], 0) {
        Ok(()) => found.ok("RWF_DSYNC", "yes", ""),
        Err(e) => found.info("RWF_DSYNC", "no", e.message),
    }
    match file.allocate(1 << 20, false) {
        Ok(()) => found.ok("fallocate", "yes", "log segments get their space ahead"),
        Err(e) => found.warn("fallocate", "no", e.message),
    }
    Ok(())
}

/// "0" without a filter, "1" strict, "2" with one; empty when the kernel does not tell.
fn seccomp_mode() -> String {
    let status = text_of("/proc/self/status").unwrap_or_default();
    status.lines().find_map(|l| l.strip_prefix("Seccomp:")).map_or_else(String::new, |m| m.trim().to_owned())
}

/// Why io_uring is refused: by what the call said, the sysctl kernel.io_uring_disabled (Linux 6.6 on), and the filter.
fn why_no_uring(refusal: &str, disabled: Option<&str>, seccomp: &str) -> String {
    let error = refusal.rsplit_once("(os error ").and_then(|(_, n)| n.strip_suffix(')')).unwrap_or("");
    let filtered = seccomp == "2";
    match (error, disabled) {
        (_, Some("2")) => "sysctl kernel.io_uring_disabled is 2: nobody may use it".into(),
        ("1", Some("1")) => {
            "sysctl kernel.io_uring_disabled is 1: only the group kernel.io_uring_group and CAP_SYS_ADMIN may use it"
                .into()
        }
        ("1" | "13", _) if filtered => "a system call filter (seccomp) refuses it, as container runtimes do".into(),
        ("1" | "13", _) => "it is not permitted: a security module, or a capability that is missing".into(),
        ("38", _) if filtered => {
            "a system call filter (seccomp) says that there is no such call, or the kernel has none".into()
        }
        ("38", _) => "the kernel has none: older than 5.1, or built without it".into(),
        ("12", _) => {
            "too little memory may be locked: raise RLIMIT_MEMLOCK (kernels before 5.12 count rings against it)".into()
        }
        _ => "the kernel refuses it".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_has_its_reason() {
        let refusal = |n: u32| format!("io_uring refused: words (os error {n})");
        for (error, disabled, seccomp, words) in [
            (1, Some("2"), "0", "io_uring_disabled is 2"),
            (1, Some("1"), "0", "io_uring_group"),
            (1, Some("0"), "2", "filter (seccomp) refuses it"),
            (1, Some("0"), "0", "not permitted"),
            (38, None, "0", "older than 5.1"),
            (38, None, "2", "seccomp"),
            (12, None, "0", "RLIMIT_MEMLOCK"),
            (99, None, "0", "the kernel refuses it"),
        ] {
            let why = why_no_uring(&refusal(error), disabled, seccomp);
            assert!(why.contains(words), "{error} {disabled:?} {seccomp}: {why}");
        }
    }
}
