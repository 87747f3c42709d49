//! File system, mount options with their barriers, and the device below.

use super::device::{self, Sys};
use super::{mount, queue, text_of, Findings, State};
use crate::probe::host::canonical;
use esker_io::{Disk, PosixDisk};
use std::path::Path;

/// The kernel's own.
struct Kernel;

impl Sys for Kernel {
    fn text(&self, path: &str) -> Option<String> {
        text_of(path)
    }

    fn names(&self, path: &str) -> Vec<String> {
        let found = PosixDisk::new().list(Path::new(path)).unwrap_or_default();
        found.into_iter().map(|entry| entry.name).collect()
    }

    fn link(&self, path: &str) -> Option<String> {
        Some(canonical(Path::new(path)).ok()?.file_name()?.to_string_lossy().into_owned())
    }
}

/// Is what was synced there after a power cut, as far as that can be told?
pub(super) fn durable(found: &mut Findings, dir: &Path, barriers: &str, us: f64) {
    let below = mount(dir).and_then(|m| device::device(&Kernel, &format!("/sys/dev/block/{}", m.device)));
    let (what, state, remark) = device::durable(below.as_ref(), barriers, us);
    found.add("durable", what, state, remark);
}

/// Looks; whether barriers are "on", "OFF", "none" or "unknown".
pub(super) fn look(found: &mut Findings, dir: &Path) -> &'static str {
    let Some(mount) = mount(dir) else {
        found.warn("file system", "unknown", "the mount of the folder is not in /proc/self/mountinfo");
        return "unknown";
    };
    let (state, remark) = kind_remark(&mount.kind);
    found.add("file system", mount.kind.clone(), state, remark);
    found.info("mount options", mount.options.clone(), mount.point.clone());
    let device = mount.source.rsplit('/').next().unwrap_or_default();
    let effective = text_of(&format!("/proc/fs/{}/{device}/options", mount.kind));
    let release = text_of("/proc/sys/kernel/osrelease").unwrap_or_default();
    let (barriers, state, remark) = barriers(&mount.kind, &mount.options, effective.as_deref(), &release);
    found.add("barriers", barriers, state, remark);
    the_device(found, &mount);
    barriers
}

/// Linux 4.19 and later, where xfs has no nobarrier.
fn is_from_4_19(release: &str) -> bool {
    let mut numbers = release.split(['.', '-']).map_while(|n| n.parse::<u32>().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (4, 19)
}

/// What it means for durability that a file system is of this kind.
fn kind_remark(kind: &str) -> (State, &'static str) {
    match kind {
        "tmpfs" | "ramfs" | "devtmpfs" => {
            (State::Warning, "a file system that forgets: in memory, gone at the next start; barriers do nothing")
        }
        "overlay" | "aufs" => (
            State::Warning,
            "a container's layers: forgotten with the container; measure on the volume that holds the data",
        ),
        "nfs" | "nfs4" | "cifs" | "smb3" | "9p" | "virtiofs" | "ceph" | "glusterfs" => {
            (State::Warning, "on another machine, or the host's: a barrier is worth what that one makes of it")
        }
        kind if kind.starts_with("fuse") => {
            (State::Warning, "a program's: a barrier is worth what that one makes of it")
        }
        _ => (State::Info, ""),
    }
}

/// Are barriers on? By the mount's options, by those that the file system says are in effect, and else by what it does
/// when nothing is said.
fn barriers(kind: &str, options: &str, effective: Option<&str>, release: &str) -> (&'static str, State, String) {
    let off = |o: &str| matches!(o, "nobarrier" | "barrier=0" | "fsync_mode=nobarrier");
    let on = |o: &str| matches!(o, "barrier" | "barrier=1");
    let effective = effective.unwrap_or_default();
    let mut all = options.split(',').chain(effective.split_whitespace());
    if all.clone().any(off) {
        return ("OFF", State::Warning, "a power cut loses acknowledged commits, and may ruin the file system".into());
    }
    if all.any(on) {
        let source = if effective.split_whitespace().any(on) { "the file system says so" } else { "by a mount option" };
        return ("on", State::Ok, source.into());
    }
    match kind {
        "xfs" if is_from_4_19(release) => {
            ("on", State::Ok, "xfs has no way to turn them off (since Linux 4.19)".into())
        }
        "xfs" | "ext3" | "ext4" | "btrfs" | "f2fs" => {
            ("on", State::Ok, format!("{kind}'s default; no option turns them off"))
        }
        "tmpfs" | "ramfs" | "devtmpfs" => ("none", State::Warning, "there is nothing to flush".into()),
        _ => ("unknown", State::Info, "this file system does not tell".into()),
    }
}

fn the_device(found: &mut Findings, mount: &crate::probe::host::Mount) {
    let device = queue(mount);
    if device.is_empty() {
        return found.info(
            "device",
            mount.source.clone(),
            "not a block device: its cache and flushes are not known here",
        );
    }
    let below = device::device(&Kernel, &format!("/sys/dev/block/{}", mount.device));
    found.info("device", mount.source.clone(), below.map_or_else(String::new, |d| d.words()));
    let cache = device.get("write_cache").map_or("unknown", String::as_str);
    let (state, meaning) = match cache {
        "write back" => (State::Ok, "a barrier flushes it"),
        "write through" => {
            (State::Info, "none, one that is safe, or a virtual device that passes no flush on: barriers cost little")
        }
        _ => (State::Info, ""),
    };
    found.add("write cache", cache, state, meaning);
    let fua = match device.get("fua").map(String::as_str) {
        Some("1") => "yes",
        Some(_) => "no",
        None => "unknown",
    };
    found.info("FUA", fua, "a write that is durable by itself");
    found.info("scheduler", device.get("scheduler").map_or("unknown", String::as_str), "");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn barriers_are_told_by_options_then_by_the_kind() {
        let told = |kind, options, effective| {
            let (found, state, _) = barriers(kind, options, effective, "6.1.0-18-amd64");
            (found, state)
        };
        assert_eq!(told("ext4", "rw,relatime", Some("rw\nbarrier\ndelalloc")), ("on", State::Ok));
        assert_eq!(told("ext4", "rw,relatime", Some("rw\nnobarrier\n")), ("OFF", State::Warning));
        assert_eq!(told("ext4", "rw,nobarrier", None), ("OFF", State::Warning));
        assert_eq!(told("ext4", "rw,barrier=0", None), ("OFF", State::Warning));
        assert_eq!(told("btrfs", "rw", None), ("on", State::Ok));
        assert_eq!(told("xfs", "rw", None), ("on", State::Ok));
        assert_eq!(told("f2fs", "rw,fsync_mode=nobarrier", None), ("OFF", State::Warning));
        assert_eq!(told("tmpfs", "rw", None), ("none", State::Warning));
        assert_eq!(told("zfs", "rw", None), ("unknown", State::Info));
        let xfs = |release| barriers("xfs", "rw", None, release).2;
        assert!(xfs("4.19.0").contains("no way to turn them off") && xfs("10.2").contains("no way"));
        assert!(xfs("4.18.3-el8").contains("default") && xfs("3.10").contains("default"));
    }

    #[test]
    fn file_systems_that_forget_are_a_warning() {
        assert!(["tmpfs", "overlay", "nfs4", "fuse.sshfs"].iter().all(|k| kind_remark(k).0 == State::Warning));
        assert!(["ext4", "xfs", "btrfs", "zfs"].iter().all(|k| kind_remark(k).0 == State::Info));
    }
}
