//! A memory control group for this process: so that a file which is small for the machine is large for the process.
//!
//! Owns a group below the process's own; it is left and removed when the value goes. Sources: the kernel's
//! admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst.

use super::host::{read_text, write_text};
use esker_io::{IoError, IoKind, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// The process is in the group for as long as this lives.
#[derive(Debug)]
pub struct MemoryGroup {
    folder: PathBuf,
    /// Where it came from.
    home: PathBuf,
}

/// Where the process's memory group lies, and the name of the limit's file, from the texts of `/proc/self/cgroup` and
/// `/proc/self/mountinfo`.
fn own_group(groups: &str, mounts: &str) -> Option<(PathBuf, &'static str)> {
    // Where a path of a group lies: the mount may show only what is below a root of its own.
    let place = |kind: &str, option: &str, path: &str| {
        let fits = |line: &&str| {
            let Some((_, right)) = line.split_once(" - ") else { return false };
            right.starts_with(kind) && right.rsplit(' ').next().is_some_and(|o| o.split(',').any(|o| o == option))
        };
        let mut fields = mounts.lines().find(fits)?.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        let below = path.strip_prefix(root.trim_end_matches('/')).unwrap_or("");
        Some(PathBuf::from(point).join(below.trim_start_matches('/')))
    };
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        if controllers.split(',').any(|c| c == "memory") {
            return Some((place("cgroup ", "memory", path)?, "memory.limit_in_bytes"));
        }
    }
    let path = groups.lines().find_map(|l| l.strip_prefix("0::"))?;
    Some((place("cgroup2 ", "rw", path)?, "memory.max"))
}

/// Where a group can be made that has a memory limit. In version 2 a group with processes in it gives its children none:
/// the nearest one above that does.
fn parent_of_groups(home: &Path, limit: &str) -> PathBuf {
    let gives = |group: &&Path| {
        let controllers = read_text(&group.join("cgroup.subtree_control")).unwrap_or_default();
        controllers.split_whitespace().any(|c| c == "memory")
    };
    let above = home.ancestors().find(gives).filter(|_| limit == "memory.max");
    above.unwrap_or(home).to_owned()
}

impl MemoryGroup {
    /// Puts the process into a new group that may use `bytes` of memory, its part of the page cache included, and no swap.
    ///
    /// # Errors
    /// The reason, where this is not allowed.
    pub fn enter(bytes: u64) -> Result<MemoryGroup> {
        let groups = read_text(Path::new("/proc/self/cgroup"))?;
        let mounts = read_text(Path::new("/proc/self/mountinfo"))?;
        let refused =
            |path: &Path, why: &str| IoError::new("make a memory group in", path, None, IoKind::Failed, why.to_owned());
        let Some((home, limit)) = own_group(&groups, &mounts) else {
            return Err(refused(Path::new("/sys/fs/cgroup"), "this process has no memory control group"));
        };
        let folder = parent_of_groups(&home, limit).join(format!("esker-lab-{}", std::process::id()));
        fs::create_dir(&folder).map_err(|e| refused(&home, &e.to_string()))?;
        let group = MemoryGroup { folder, home };
        let set = |name: &str, value: String| {
            write_text(&group.folder.join(name), &value).map_err(|e| refused(&group.folder, &e.message))
        };
        set(limit, bytes.to_string())?;
        // Not every kernel counts swap.
        let _ = match limit {
            "memory.max" => set("memory.swap.max", "0".into()),
            _ => set("memory.swappiness", "0".into()),
        };
        set("cgroup.procs", std::process::id().to_string())?;
        Ok(group)
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        let _ = write_text(&self.home.join("cgroup.procs"), &std::process::id().to_string());
        // What the page cache still holds goes to the group above.
        let _ = fs::remove_dir(&self.folder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_group_is_found() {
        let mounts = "30 1 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                      31 1 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let at = |groups: &str| own_group(groups, mounts).map(|(p, l)| (p.display().to_string(), l));
        let first = Some(("/sys/fs/cgroup/memory/a".to_owned(), "memory.limit_in_bytes"));
        assert_eq!(at("5:cpu:/x\n4:memory:/a\n0::/b\n"), first);
        assert_eq!(at("0::/b\n"), Some(("/sys/fs/cgroup/unified/b".to_owned(), "memory.max")));
        // A container that sees only its own part of the tree.
        let mounts = "30 1 0:26 /docker/x /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
        let own = own_group("4:memory:/docker/x/y\n", mounts).map(|o| o.0);
        assert_eq!(own, Some(PathBuf::from("/sys/fs/cgroup/memory/y")));
        assert_eq!(own_group("0::/\n", ""), None);
    }
}
