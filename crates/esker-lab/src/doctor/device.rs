//! What lies below a file system, layer by layer, and what that, its barriers and the time of one together tell of
//! durability. Source: the kernel's Documentation/ABI (sysfs-block, sysfs-block-dm, sysfs-block-loop) and
//! admin-guide/md.rst.

use super::{State, IMPLAUSIBLE_US};

/// No disk that turns makes anything durable in less: at 15000 turns a minute half a turn takes 2 ms.
const LEAST_TURN_US: f64 = 1000.0;
/// Layers that are looked through.
const DEEPEST: usize = 8;

/// A tree of the kernel's text files.
pub(super) trait Sys {
    /// A file without blanks around it; `None` without one.
    fn text(&self, path: &str) -> Option<String>;
    /// Names in a folder.
    fn names(&self, path: &str) -> Vec<String>;
    /// The last part of what a link leads to.
    fn link(&self, path: &str) -> Option<String>;
}

/// What a block device is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    /// A disk or flash, as far as the kernel sees.
    Disk,
    /// A hypervisor's, of this make.
    Virtual(String),
    /// The device mapper's: LVM, encryption and others.
    Mapped,
    /// Several as one (md).
    Raid(String),
    /// A file as a device.
    Loop(String),
    /// Memory.
    Memory,
}

/// A block device and those below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Device {
    pub(super) name: String,
    pub(super) kind: Kind,
    pub(super) rotates: Option<bool>,
    pub(super) write_cache: Option<String>,
    pub(super) below: Vec<Device>,
}

/// The device at a path such as `/sys/dev/block/8:1`; `None` where there is no such one.
pub(super) fn device(sys: &dyn Sys, path: &str) -> Option<Device> {
    below(sys, path, DEEPEST)
}

fn below(sys: &dyn Sys, path: &str, depth: usize) -> Option<Device> {
    let depth = depth.checked_sub(1)?;
    // A partition's disk is one level up.
    let whole = if sys.text(&format!("{path}/partition")).is_some() { format!("{path}/..") } else { path.to_owned() };
    let text = |name: &str| sys.text(&format!("{whole}/{name}"));
    let name = text("uevent")?.lines().find_map(|l| l.strip_prefix("DEVNAME=").map(str::to_owned))?;
    let driver = sys.link(&format!("{whole}/device/driver")).unwrap_or_default();
    let make = format!("{} {}", text("device/vendor").unwrap_or_default(), text("device/model").unwrap_or_default());
    let hosts = ["QEMU", "VMware", "Msft", "Google", "VBOX", "Amazon Elastic Block Store"];
    let kind = if text("dm/name").is_some() {
        Kind::Mapped
    } else if let Some(level) = text("md/level") {
        Kind::Raid(level)
    } else if let Some(file) = text("loop/backing_file") {
        Kind::Loop(file)
    } else if name.starts_with("zram") || name.starts_with("ram") || name.starts_with("pmem") {
        Kind::Memory
    } else if driver.starts_with("virtio") || matches!(driver.as_str(), "vbd" | "xen-blkfront" | "hv_storvsc") {
        Kind::Virtual(driver)
    } else if let Some(host) = hosts.iter().find(|h| make.contains(**h)) {
        Kind::Virtual((*host).to_owned())
    } else {
        Kind::Disk
    };
    let slaves = sys.names(&format!("{whole}/slaves"));
    let below = slaves.iter().filter_map(|s| below(sys, &format!("/sys/class/block/{s}"), depth)).collect();
    let rotates = text("queue/rotational").map(|r| r == "1");
    Some(Device { name, kind, rotates, write_cache: text("queue/write_cache"), below })
}

impl Device {
    /// Those at the bottom.
    fn leaves(&self) -> Vec<&Device> {
        match self.below.is_empty() {
            true => vec![self],
            false => self.below.iter().flat_map(Device::leaves).collect(),
        }
    }

    /// All layers, for people: "dm-0 (device mapper) on vda (virtual, virtio_blk)".
    pub(super) fn words(&self) -> String {
        let kind = match &self.kind {
            Kind::Disk if self.rotates == Some(true) => "says that it rotates".to_owned(),
            Kind::Disk if self.rotates == Some(false) => "says that it is flash".to_owned(),
            Kind::Disk => "does not say what it is".to_owned(),
            Kind::Virtual(make) => format!("virtual, {make}"),
            Kind::Mapped => "device mapper".to_owned(),
            Kind::Raid(level) => level.clone(),
            Kind::Loop(file) => format!("the file {file}"),
            Kind::Memory => "memory".to_owned(),
        };
        let below: Vec<String> = self.below.iter().map(Device::words).collect();
        let on = if below.is_empty() { String::new() } else { format!(" on {}", below.join(", ")) };
        format!("{} ({kind}){on}", self.name)
    }
}

/// Is what was synced there after a power cut? By the device (none: not a block device, or not known), whether barriers
/// are "on", "OFF", "none" or "unknown", and the microseconds that one takes. What is found, whether that is good, why.
pub(super) fn durable(device: Option<&Device>, barriers: &str, us: f64) -> (&'static str, State, String) {
    if matches!(barriers, "OFF" | "none") {
        return ("no", State::Warning, "the file system passes no barrier on".into());
    }
    let Some(device) = device else {
        return ("unknown", State::Info, "what is below the file system cannot be seen from here".into());
    };
    let leaves = device.leaves();
    if leaves.iter().any(|d| d.kind == Kind::Memory) {
        return ("no", State::Warning, "it is memory".into());
    }
    if let Some(Device { kind: Kind::Loop(file), .. }) = leaves.iter().find(|d| matches!(d.kind, Kind::Loop(_))) {
        return ("unknown", State::Info, format!("it is the file {file}: see the file system that this one is on"));
    }
    let host = leaves.iter().any(|d| matches!(d.kind, Kind::Virtual(_)));
    let turns = leaves.iter().any(|d| d.rotates == Some(true));
    let through = leaves.iter().any(|d| d.write_cache.as_deref() == Some("write through"));
    let took = format!("a barrier takes {us:.0} us");
    if us < IMPLAUSIBLE_US || turns && us < LEAST_TURN_US {
        let than =
            if us < IMPLAUSIBLE_US { "faster than flash can write" } else { "and the device says that it rotates" };
        let who = match (host, through) {
            (true, _) => "the host's flash or its cache answers; whether that survives a power cut only the host knows",
            (_, true) => "a controller's cache answers; make sure that it has a battery",
            _ => "a cache answers, or the device ignores flushes; make sure that it survives a power cut",
        };
        return ("doubtful", State::Warning, format!("{took}, {than}: {who}"));
    }
    if host {
        return ("unknown", State::Info, format!("{took}, as flash may; what the host does with it is not known here"));
    }
    if barriers != "on" || leaves.iter().any(|d| d.rotates.is_none()) {
        return ("unknown", State::Info, format!("{took}; file system or device do not tell enough"));
    }
    let cache = if through { "no cache that would need a flush, or a safe one" } else { "its cache is flushed" };
    ("plausible", State::Ok, format!("{took}, as such a device needs; {cache}. Only a power cut proves it"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Files by path; links have their target as text.
    struct FakeSys(BTreeMap<String, String>);

    impl Sys for FakeSys {
        fn text(&self, path: &str) -> Option<String> {
            self.0.get(path).cloned()
        }

        fn names(&self, path: &str) -> Vec<String> {
            let inside = |p: &String| Some(p.strip_prefix(path)?.strip_prefix('/')?.split('/').next()?.to_owned());
            self.0.keys().filter_map(inside).collect()
        }

        fn link(&self, path: &str) -> Option<String> {
            self.text(path)
        }
    }

    fn made(lines: &str) -> Device {
        let files = lines.lines().filter_map(|l| l.trim().split_once(' '));
        let files = files.map(|(path, text)| (format!("/sys/{path}"), text.to_owned()));
        device(&FakeSys(files.collect()), "/sys/dev/block/8:1").unwrap()
    }

    fn disk(place: &str, name: &str, rotates: u8, cache: &str) -> String {
        format!(
            "{place}/uevent DEVNAME={name}\n{place}/queue/rotational {rotates}\n{place}/queue/write_cache write {cache}\n"
        )
    }

    fn told(lines: &str, us: f64) -> (&'static str, State) {
        let (found, state, _) = durable(Some(&made(lines)), "on", us);
        (found, state)
    }

    const TOP: &str = "dev/block/8:1";

    #[test]
    fn time_and_device_are_weighed_together() {
        let plain = |rotates, cache| disk(TOP, "sda", rotates, cache);
        assert_eq!(told(&plain(1, "back"), 19.0), ("doubtful", State::Warning));
        assert_eq!(told(&plain(1, "back"), 8000.0), ("plausible", State::Ok));
        assert_eq!(told(&plain(0, "back"), 19.0), ("plausible", State::Ok));
        assert_eq!(told(&plain(0, "back"), 5.0), ("doubtful", State::Warning));
        let controller = durable(Some(&made(&plain(1, "through"))), "on", 90.0);
        assert!(controller.2.contains("battery"), "{controller:?}");
        assert_eq!(durable(Some(&made(&plain(0, "back"))), "OFF", 90.0).0, "no");
        assert_eq!(durable(Some(&made(&plain(0, "back"))), "unknown", 90.0).0, "unknown");
        assert_eq!(durable(None, "on", 90.0).0, "unknown");
    }

    #[test]
    fn a_host_is_not_looked_through() {
        let virtio = disk(TOP, "vda", 1, "back") + "dev/block/8:1/device/driver virtio_blk\n";
        assert_eq!(
            (told(&virtio, 19.0), told(&virtio, 4000.0)),
            (("doubtful", State::Warning), ("unknown", State::Info))
        );
        let scsi = disk(TOP, "sda", 0, "back") + "dev/block/8:1/device/vendor QEMU\n";
        assert_eq!(made(&scsi).words(), "sda (virtual, QEMU)");
    }

    #[test]
    fn layers_and_partitions_are_looked_through() {
        // LVM on a mirror of a partition of a disk that rotates, and flash.
        let mirror = "dev/block/8:1/uevent DEVNAME=dm-0\ndev/block/8:1/dm/name vg-data\ndev/block/8:1/slaves/md0 x\n\
                      dev/block/8:1/queue/rotational 0\nclass/block/md0/uevent DEVNAME=md0\nclass/block/md0/md/level raid1\n\
                      class/block/md0/slaves/sda1 x\nclass/block/md0/slaves/sdb x\nclass/block/sda1/partition 1\n";
        let lines = mirror.to_owned()
            + &disk("class/block/sda1/..", "sda", 1, "back")
            + &disk("class/block/sdb", "sdb", 0, "back");
        let found = made(&lines);
        let words = "dm-0 (device mapper) on md0 (raid1) on sda (says that it rotates), sdb (says that it is flash)";
        assert_eq!(found.words(), words);
        assert_eq!(
            (told(&lines, 100.0), told(&lines, 9000.0)),
            (("doubtful", State::Warning), ("plausible", State::Ok))
        );
    }

    #[test]
    fn files_and_memory_are_told() {
        let file = disk(TOP, "loop0", 0, "back") + "dev/block/8:1/loop/backing_file /srv/disk.img\n";
        assert_eq!((told(&file, 100.0).0, made(&file).words()), ("unknown", "loop0 (the file /srv/disk.img)".into()));
        assert_eq!(told(&disk(TOP, "zram0", 0, "through"), 100.0), ("no", State::Warning));
        // A layer that is below itself ends.
        let round = disk(TOP, "dm-0", 0, "back")
            + "dev/block/8:1/slaves/dm-1 x\nclass/block/dm-1/slaves/dm-1 x\n\
                     class/block/dm-1/uevent DEVNAME=dm-1\n";
        assert!(made(&round).words().starts_with("dm-0"));
    }
}
