//! Limits: of the control group (version 2 or 1) and those above it, and of the process.

use super::{text_of, Findings};
use crate::units::size_text;
use std::path::Path;

/// Open files below which an engine with many tables comes to its end.
const FEW_FILES: u64 = 1024;

/// Looks.
pub(super) fn look(found: &mut Findings) {
    let (own, mounts) = groups();
    for limit in &LIMITS {
        match of_groups(limit, &own, &mounts) {
            Some((value, file)) => {
                found.info(limit.what, (limit.text)(&value), format!("{file} of the control group"));
                // As exactly as it was said.
                if let Some(bytes) = value.parse::<u64>().ok().filter(|_| limit.controller == "memory") {
                    found.measured("bytes", "bytes", vec![bytes as f64]);
                }
            }
            None => found.info(limit.what, "none", "of a control group that can be seen from here"),
        }
    }
    of_process(found, &text_of("/proc/self/limits").unwrap_or_default());
}

/// The process's groups, and where groups are mounted.
fn groups() -> (String, String) {
    let text = |path| text_of(path).unwrap_or_default();
    (text("/proc/self/cgroup"), text("/proc/self/mountinfo"))
}

/// Bytes of memory that the control group's limits allow, and those above it; `None` without a limit.
pub(super) fn memory_limit() -> Option<u64> {
    let (own, mounts) = groups();
    let memory = LIMITS.iter().find(|l| l.controller == "memory")?;
    of_groups(memory, &own, &mounts)?.0.parse().ok()
}

/// Bytes of memory that the control group's limits, and those above it, leave; page cache that can be given back counts as
/// left. `None` without a limit.
pub(super) fn memory_left() -> Option<u64> {
    let (own, mounts) = groups();
    let number = |path: &Path| text_of(&path.to_string_lossy()).filter(|v| !is_none(v))?.parse::<u64>().ok();
    let versions = [
        (group_folder(&own, &mounts, ""), "memory.max", "memory.current", ""),
        (group_folder(&own, &mounts, "memory"), "memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
    ];
    let left = |(folder, limit, used, below): (Option<(String, String)>, &str, &str, &str)| {
        let (mount, group) = folder?;
        let of = |place: &Path| {
            let folder = Path::new(&mount).join(place.strip_prefix("/").unwrap_or(place));
            let stat = text_of(&folder.join("memory.stat").to_string_lossy()).unwrap_or_default();
            let used = number(&folder.join(used))?.saturating_sub(page_cache(&stat, below));
            Some(number(&folder.join(limit))?.saturating_sub(used))
        };
        Path::new(&group).ancestors().filter_map(of).min()
    };
    versions.into_iter().filter_map(left).min()
}

/// Bytes of files in memory, by the text of `memory.stat`: used twice or once, the kernel takes both back. `below` goes
/// before the names where they count the groups below too.
fn page_cache(stat: &str, below: &str) -> u64 {
    let of = |name: &str| {
        let value = |l: &str| l.strip_prefix(below)?.strip_prefix(name)?.strip_prefix(' ')?.trim().parse::<u64>().ok();
        stat.lines().find_map(value).unwrap_or(0)
    };
    of("active_file") + of("inactive_file")
}

/// A limit of control groups.
struct Limit {
    what: &'static str,
    /// Files of version 2.
    unified: &'static [&'static str],
    /// Controller and files of version 1.
    controller: &'static str,
    own: &'static [&'static str],
    text: fn(&str) -> String,
}

const LIMITS: [Limit; 4] = [
    Limit {
        what: "memory limit",
        unified: &["memory.max", "memory.high"],
        controller: "memory",
        own: &["memory.limit_in_bytes"],
        text: bytes_text,
    },
    Limit {
        what: "processor limit",
        unified: &["cpu.max"],
        controller: "cpu",
        own: &["cpu.cfs_quota_us"],
        text: str::to_owned,
    },
    Limit {
        what: "storage limit",
        unified: &["io.max"],
        controller: "blkio",
        own: &[
            "blkio.throttle.write_bps_device",
            "blkio.throttle.read_bps_device",
            "blkio.throttle.write_iops_device",
            "blkio.throttle.read_iops_device",
        ],
        text: str::to_owned,
    },
    Limit {
        what: "process limit",
        unified: &["pids.max"],
        controller: "pids",
        own: &["pids.max"],
        text: str::to_owned,
    },
];

fn bytes_text(value: &str) -> String {
    value.parse().map_or_else(|_| value.to_owned(), size_text)
}

/// A value that is no limit: "max", -1, and version 1's largest number of pages.
fn is_none(value: &str) -> bool {
    value.is_empty() || value.starts_with("max") || value == "-1" || value.parse::<u64>().is_ok_and(|n| n >= 1 << 62)
}

/// The least limit of the process's group and those above it, and the file that says so; as text where it is no number.
fn of_groups(limit: &Limit, own: &str, mounts: &str) -> Option<(String, String)> {
    let mut found: Option<(String, String)> = None;
    for (folder, files) in
        [(group_folder(own, mounts, ""), limit.unified), (group_folder(own, mounts, limit.controller), limit.own)]
    {
        let Some((mount, group)) = folder else { continue };
        for (place, file) in Path::new(&group).ancestors().flat_map(|a| files.iter().map(move |f| (a, f))) {
            let path = Path::new(&mount).join(place.strip_prefix("/").unwrap_or(place)).join(file);
            let value = text_of(&path.to_string_lossy()).filter(|v| !is_none(v));
            let number = |v: &str| v.split_whitespace().next().and_then(|n| n.parse::<u64>().ok()).unwrap_or(u64::MAX);
            if let Some(value) = value.filter(|v| found.as_ref().is_none_or(|f| number(v) < number(&f.0))) {
                found = Some((value.replace('\n', "; "), (*file).to_owned()));
            }
        }
    }
    found
}

/// Where a hierarchy is mounted, and the process's group in it; `controller` is empty for version 2.
fn group_folder(own: &str, mounts: &str, controller: &str) -> Option<(String, String)> {
    let group = own.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (number, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let fits = if controller.is_empty() { number == "0" } else { controllers.split(',').any(|c| c == controller) };
        fits.then(|| path.to_owned())
    })?;
    let mount = mounts.lines().find_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        let (kind, options) = (right.split(' ').next()?, right.rsplit(' ').next()?);
        let fits = match controller {
            "" => kind == "cgroup2",
            name => kind == "cgroup" && options.split(',').any(|o| o == name),
        };
        let point = left.split(' ').nth(4).filter(|_| fits)?;
        Some(point.to_owned())
    })?;
    Some((mount, group))
}

/// The process's own limits: soft ones, which are those that refuse.
fn of_process(found: &mut Findings, limits: &str) {
    let soft =
        |name: &str| limits.lines().find_map(|l| l.strip_prefix(name)?.split_whitespace().next().map(str::to_owned));
    let size = |name: &str| soft(name).map_or_else(|| "unknown".into(), |v| bytes_text(&v));
    let files = soft("Max open files").unwrap_or_else(|| "unknown".into());
    match files.parse::<u64>() {
        Ok(n) if n < FEW_FILES => found.warn("open files", files, "RLIMIT_NOFILE is low: each run is a file"),
        _ => found.info("open files", files, "RLIMIT_NOFILE: each run is a file"),
    }
    found.info(
        "locked memory",
        size("Max locked memory"),
        "RLIMIT_MEMLOCK: kernels before 5.12 count io_uring's rings",
    );
    found.info("file size", size("Max file size"), "RLIMIT_FSIZE");
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &str = "4:memory:/a/b\n2:cpu,cpuacct:/c\n0::/unified/group\n";
    const MOUNTS: &str = "35 31 0:31 / /cg/memory rw shared:1 - cgroup cgroup rw,memory\n\
                          36 31 0:32 / /cg/cpu rw - cgroup cgroup rw,cpu,cpuacct\n\
                          41 31 0:38 / /cg/unified rw - cgroup2 cgroup2 rw\n";

    #[test]
    fn groups_of_both_versions_are_found() {
        let of = |controller: &str| group_folder(OWN, MOUNTS, controller);
        assert_eq!(of("memory"), Some(("/cg/memory".into(), "/a/b".into())));
        assert_eq!(of("cpu"), Some(("/cg/cpu".into(), "/c".into())));
        assert_eq!(of(""), Some(("/cg/unified".into(), "/unified/group".into())));
        assert_eq!((of("blkio"), group_folder("", MOUNTS, "")), (None, None));
    }

    #[test]
    fn page_cache_is_what_was_used_twice_too() {
        let stat = "anon 5\nfile 900\nshmem 7\ninactive_file 100\nactive_file 20\ntotal_inactive_file 3000\n\
                    total_active_file 40000\n";
        assert_eq!((page_cache(stat, ""), page_cache(stat, "total_"), page_cache("", "")), (120, 43_000, 0));
    }

    #[test]
    fn what_is_no_limit_is_none() {
        assert!(["", "max", "max 100000", "-1", "9223372036854771712"].iter().all(|v| is_none(v)));
        assert!(["1073741824", "50000 100000", "8:0 wbps=1048576", "0"].iter().all(|v| !is_none(v)));
        assert_eq!((bytes_text("1073741824"), bytes_text("unlimited")), ("1G".into(), "unlimited".into()));
    }

    #[test]
    fn few_open_files_are_a_warning() {
        let state = |limits: &str| {
            let mut found = Findings::default();
            of_process(&mut found, limits);
            found.0.iter().map(|r| (r.params[1].clone(), r.params[2].clone())).next()
        };
        assert_eq!(state("Max open files            256  4096  files\n"), Some(("256".into(), "warning".into())));
        assert_eq!(state("Max open files            20000  20000  files\n"), Some(("20000".into(), "info".into())));
        assert_eq!(state(""), Some(("unknown".into(), "info".into())));
    }
}
