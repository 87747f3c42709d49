//! File system, mount options with their barriers, and the device below.

use super::{mount, queue, text_of, Findings, State};
use std::path::Path;

/// Looks.
pub(super) fn look(found: &mut Findings, dir: &Path) {
    let Some(mount) = mount(dir) else {
        return found.warn("file system", "unknown", "the mount of the folder is not in /proc/self/mountinfo");
    };
    let (state, remark) = kind_remark(&mount.kind);
    found.add("file system", mount.kind.clone(), state, remark);
    found.info("mount options", mount.options.clone(), mount.point.clone());
    let device = mount.source.rsplit('/').next().unwrap_or_default();
    let effective = text_of(&format!("/proc/fs/{}/{device}/options", mount.kind));
    let (barriers, state, remark) = barriers(&mount.kind, &mount.options, effective.as_deref());
    found.add("barriers", barriers, state, remark);
    the_device(found, &mount);
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
fn barriers(kind: &str, options: &str, effective: Option<&str>) -> (&'static str, State, String) {
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
        "xfs" => ("on", State::Ok, "xfs has no way to turn them off (since Linux 4.19)".into()),
        "ext3" | "ext4" | "btrfs" | "f2fs" => ("on", State::Ok, format!("{kind}'s default; no option turns them off")),
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
    let kind = match device.get("rotational").map(String::as_str) {
        Some("1") => "says that it rotates",
        Some("0") => "says that it is flash",
        _ => "does not say what it is",
    };
    found.info("device", mount.source.clone(), kind);
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
            let (found, state, _) = barriers(kind, options, effective);
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
    }

    #[test]
    fn file_systems_that_forget_are_a_warning() {
        assert!(["tmpfs", "overlay", "nfs4", "fuse.sshfs"].iter().all(|k| kind_remark(k).0 == State::Warning));
        assert!(["ext4", "xfs", "btrfs", "zfs"].iter().all(|k| kind_remark(k).0 == State::Info));
    }
}
