//! `esker lab doctor`: the machine as storage sees it, and whether the lab can be trusted on it.

use crate::error::Result;
use crate::measure;
use crate::noise::Reading;
use crate::records::{Records, Shape};
use crate::report::{Report, Row, Status};
use crate::session::{Common, Needs, Session};
use crate::stats::middle;
use crate::writers::{self, Target, Way};
use clap::Args;
use esker_io::host::{canonical, mount_of, read_text, Mount};
use esker_io::raw::{Barrier, RawFile, RawOptions};
use esker_io::{PosixDisk, UringStatus};
use serde_json::{json, Value};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

/// Faster than this no flash memory writes; whoever says so has a cache that is safe, or does not write.
pub const IMPLAUSIBLE_US: f64 = 15.0;

/// Options of the command.
#[derive(Debug, Clone, Args)]
pub struct Options {
    #[command(flatten)]
    common: Common,
}

impl Options {
    pub(crate) fn common(&self) -> &Common {
        &self.common
    }
}

fn line(path: &str) -> Option<String> {
    read_text(Path::new(path)).ok().map(|t| t.trim().to_owned()).filter(|t| !t.is_empty())
}

fn mount(dir: &Path) -> Option<Mount> {
    mount_of(&canonical(dir).ok()?, &read_text(Path::new("/proc/self/mountinfo")).ok()?)
}

/// The block device below a folder, as "major:minor"; empty where that is not known.
#[must_use]
pub fn device(dir: &Path) -> String {
    mount(dir).map_or_else(String::new, |m| m.device)
}

/// The kind of file system below a folder.
#[must_use]
pub fn file_system(dir: &Path) -> String {
    mount(dir).map_or_else(|| "unknown".to_owned(), |m| m.kind)
}

/// What every report says of the machine. Nothing that names it.
#[must_use]
pub fn machine(dir: &Path) -> Value {
    let mount = mount(dir).unwrap_or_default();
    let cpu = line("/proc/cpuinfo").unwrap_or_default();
    let model = cpu.lines().find_map(|l| l.strip_prefix("model name")?.split_once(": ")).map_or("", |m| m.1).to_owned();
    json!({
        "kernel": line("/proc/sys/kernel/osrelease"),
        "cpu": model,
        "cores": std::thread::available_parallelism().map_or(1, usize::from),
        "memory_bytes": memory_bytes(),
        "file_system": mount.kind,
        "mount_options": mount.options,
        "device": queue(&mount),
    })
}

fn memory_bytes() -> u64 {
    let text = line("/proc/meminfo").unwrap_or_default();
    let kib = text.lines().find_map(|l| l.strip_prefix("MemTotal:")?.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// What the block layer tells of the device; a partition has its disk's queue one level up.
fn queue(mount: &Mount) -> BTreeMap<&'static str, String> {
    let base = format!("/sys/dev/block/{}", mount.device);
    let figure =
        |name: &str| line(&format!("{base}/queue/{name}")).or_else(|| line(&format!("{base}/../queue/{name}")));
    ["rotational", "write_cache", "fua", "scheduler", "logical_block_size", "physical_block_size", "nr_requests"]
        .into_iter()
        .filter_map(|name| Some((name, figure(name)?)))
        .collect()
}

/// Lines of the report.
struct Findings(Vec<Row>);

impl Findings {
    fn add(&mut self, what: &str, found: impl Into<String>, remark: impl Into<String>) {
        self.0.push(Row {
            params: vec![what.into(), found.into(), remark.into()],
            metrics: BTreeMap::new(),
            counts: BTreeMap::new(),
            base: None,
            noise: crate::noise::Noise::default(),
            status: Status::Good,
            details: crate::details::Details::default(),
        });
    }
}

/// Looks.
///
/// # Errors
/// No folder to write in, no space.
pub fn run(options: &Options) -> Result<Report> {
    let common = &options.common;
    let mut session = Session::begin(common, "doctor")?;
    session.plan(1, Needs { written_bytes: 64 << 20, space_bytes: 64 << 20, ..Needs::default() })?;
    let mut found = Findings(Vec::new());
    let reading = Reading::now();
    the_kernel(&mut found);
    the_file_system(&mut found, &common.dir);
    abilities(&mut found, session.folder())?;
    limits(&mut found);
    found.add("timer", format!("{:.0} ns", timer_ns()), "what asking for the time costs");
    barrier(&mut found, session.folder())?;
    let null = null_test(&session)?;
    found.add("null test", format!("{:.1} percent", 100.0 * null), "the same, measured twice, differs by so much");
    let noise = reading.noise();
    let remark = if noise.is_too_much() { "too much: the host takes time away" } else { "quiet enough" };
    found.add("stolen time", format!("{:.1} percent", 100.0 * noise.steal), remark);
    found.add(
        "pressure",
        format!("cpu {:.0}, io {:.0} percent", 100.0 * noise.cpu_pressure, 100.0 * noise.io_pressure),
        "",
    );
    let mut rows = found.0;
    rows.iter_mut().for_each(|r| r.noise = noise);
    Ok(Report {
        command: "doctor",
        options: session.options(json!({})),
        machine: machine(&common.dir),
        params: vec!["what", "found", "remark"],
        shown: vec![],
        shown_counts: vec![],
        relative: None,
        null_difference: Some(null),
        rows,
        notes: vec![],
    })
}

fn the_kernel(found: &mut Findings) {
    found.add("kernel", line("/proc/sys/kernel/osrelease").unwrap_or_default(), "");
    found.add("processors", std::thread::available_parallelism().map_or(1, usize::from).to_string(), "");
    found.add("memory", crate::session::size_text(memory_bytes()), "");
}

fn the_file_system(found: &mut Findings, dir: &Path) {
    let Some(mount) = mount(dir) else {
        return found.add("file system", "unknown", "the mount of the folder is not in /proc/self/mountinfo");
    };
    let off = mount.options.split(',').any(|o| matches!(o, "nobarrier" | "barrier=0"));
    let barriers = if off { "BARRIERS ARE OFF: a power cut loses acknowledged commits" } else { "barriers are on" };
    found.add("file system", mount.kind.clone(), barriers);
    found.add("mount options", mount.options.clone(), "");
    let device = queue(&mount);
    if device.is_empty() {
        return found.add("device", mount.source, "not a block device: its cache and flushes are not known here");
    }
    let yes = |name: &str| device.get(name).is_some_and(|v| v == "1");
    found.add("device", mount.source, if yes("rotational") { "says that it rotates" } else { "says that it is flash" });
    let cache = device.get("write_cache").map_or("unknown", String::as_str);
    let meaning = match cache {
        "write back" => "a barrier flushes it",
        "write through" => "none, or one that is safe: barriers cost little",
        _ => "",
    };
    found.add("write cache", cache, meaning);
    found.add("FUA", if yes("fua") { "yes" } else { "no" }, "a write that is durable by itself");
    found.add("scheduler", device.get("scheduler").map_or("", String::as_str), "");
}

fn abilities(found: &mut Findings, folder: &Path) -> Result<()> {
    match PosixDisk::with_uring(2).uring_status() {
        UringStatus::Active { .. } => found.add("io_uring", "yes", ""),
        UringStatus::Refused(why) => found.add("io_uring", "no", why),
        _ => found.add("io_uring", "no", ""),
    }
    let path = folder.join("abilities");
    let file = RawFile::open(&path, RawOptions { create: true, ..RawOptions::default() })?;
    match RawFile::open(&path, RawOptions { direct: true, write: true, ..RawOptions::default() }) {
        Ok(_) => found.add("O_DIRECT", "yes", "bulk files go past the page cache"),
        Err(e) => found.add("O_DIRECT", "no", e.message),
    }
    match file.write_at_durably(&[0; 4096], 0) {
        Ok(()) => found.add("RWF_DSYNC", "yes", ""),
        Err(e) => found.add("RWF_DSYNC", "no", e.message),
    }
    match file.allocate(1 << 20, false) {
        Ok(()) => found.add("fallocate", "yes", "log segments get their space ahead"),
        Err(e) => found.add("fallocate", "no", e.message),
    }
    Ok(())
}

/// Limits of the control group, if it has any.
fn limits(found: &mut Findings) {
    let group = line("/proc/self/cgroup").and_then(|t| Some(t.lines().find_map(|l| l.strip_prefix("0::"))?.to_owned()));
    let group = group.unwrap_or_default();
    let mut any = false;
    for (file, what) in [("memory.max", "memory limit"), ("cpu.max", "processor limit"), ("io.max", "storage limit")] {
        let value = line(&format!("/sys/fs/cgroup{}/{file}", group.trim_end_matches('/')));
        if let Some(value) = value.filter(|v| !v.starts_with("max")) {
            found.add(what, value, "of the control group");
            any = true;
        }
    }
    if !any {
        found.add("limits", "none", "of a control group that can be seen from here");
    }
}

fn timer_ns() -> f64 {
    let (began, n) = (Instant::now(), 100_000);
    let mut last = began;
    for _ in 0..n {
        last = std::hint::black_box(Instant::now());
    }
    last.duration_since(began).as_nanos() as f64 / f64::from(n)
}

/// What making 4 KiB durable costs.
fn barrier(found: &mut Findings, folder: &Path) -> Result<()> {
    let path = folder.join("barrier");
    let file = RawFile::open(&path, RawOptions { create: true, ..RawOptions::default() })?;
    file.write_at(&[0; 65_536], 0)?;
    file.sync(Barrier::Fsync)?;
    let mut times = Vec::new();
    let limit = Instant::now() + Duration::from_secs(2);
    for n in 0..100u64 {
        let began = Instant::now();
        file.write_at(&[n as u8; 4096], n % 16 * 4096)?;
        file.sync(Barrier::Fdatasync)?;
        times.push(began.elapsed().as_nanos() as f64 / 1000.0);
        if Instant::now() > limit {
            break;
        }
    }
    let us = middle(&times).map_or(0.0, |m| m.median);
    let remark = if us < IMPLAUSIBLE_US {
        "faster than flash can write: the device answers from a cache; make sure that it survives a power cut"
    } else {
        "4 KiB written over and synced: the least that a commit costs"
    };
    found.add("barrier", format!("{us:.0} us"), remark);
    Ok(())
}

/// By how much two series of the same thing differ.
fn null_test(session: &Session) -> Result<f64> {
    let records = Records::new(Shape::Static, 103, 100_000, session.common().seed);
    let path = session.folder().join("null");
    let mut series = [Vec::new(), Vec::new()];
    for round in 0..2 * session.common().runs.max(5) {
        let writer = writers::open(Way::Cached, &Target::new(&path, 128 << 10))?;
        let sample = measure::write(session, &records, vec![(records.all(), writer)])?.sample;
        // ABBA.
        series[(round + round / 2) % 2].extend(sample.metrics.iter().filter(|m| m.0 == "ns").map(|m| m.2));
    }
    let [a, b] = series.map(|s| middle(&s).map_or(1.0, |m| m.median));
    Ok((a / b).max(b / a) - 1.0)
}
