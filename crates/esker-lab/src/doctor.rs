//! `esker lab doctor`: the machine as storage sees it, and whether the lab can be trusted on it.
//!
//! Each row is what was looked at, what was found, whether that is good, and a remark. What cannot be known is "unknown".

mod abilities;
mod device;
mod limits;
mod storage;

use crate::error::{LabError, Result};
use crate::experiment::Experiment;
use crate::measure;
use crate::needs::Needs;
use crate::noise::{Noise, Reading};
use crate::options::CommonOptions;
use crate::probe::host::{canonical, mount_of, read_text, Mount, OtherProcesses};
use crate::probe::raw::{Barrier, RawFile, RawOptions};
use crate::records::{Records, Shape};
use crate::report::{Metric, Report, Row, Status};
use crate::stats::summary;
use crate::writers::{self, Target, Way};
use clap::Args;
use serde_json::{json, Value};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

/// Faster than this no flash memory writes; whoever says so has a cache that is safe, or does not write.
pub const IMPLAUSIBLE_US: f64 = 15.0;

/// A clock that is slower than this is none that a program can read by itself.
const SLOW_TIMER_NS: f64 = 200.0;
/// A null test above this is worth a warning: 5 percent.
const MOST_NULL: f64 = 0.05;

/// Options of the command.
#[derive(Debug, Clone, Args)]
pub struct Options {
    #[command(flatten)]
    common: CommonOptions,
}

impl Options {
    pub(crate) fn common(&self) -> &CommonOptions {
        &self.common
    }
}

/// A text file of the kernel without blanks around it; `None` if it is empty or cannot be read.
fn text_of(path: &str) -> Option<String> {
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
    let cpu = text_of("/proc/cpuinfo").unwrap_or_default();
    let model = cpu.lines().find_map(|l| l.strip_prefix("model name")?.split_once(": ")).map_or("", |m| m.1).to_owned();
    json!({
        "kernel": text_of("/proc/sys/kernel/osrelease"),
        "cpu": model,
        "cores": std::thread::available_parallelism().map_or(1, usize::from),
        "memory_bytes": memory_bytes(),
        "memory_limit_bytes": limits::memory_limit(),
        "file_system": mount.kind,
        "mount_options": mount.options,
        "device": queue(&mount),
    })
}

fn memory_bytes() -> u64 {
    let text = text_of("/proc/meminfo").unwrap_or_default();
    let kib = text.lines().find_map(|l| l.strip_prefix("MemTotal:")?.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// Bytes of memory that can still be taken: of the machine, and within the limits of control groups; `None` where the kernel
/// does not tell.
#[must_use]
pub fn memory_left() -> Option<u64> {
    let text = text_of("/proc/meminfo").unwrap_or_default();
    let line =
        text.lines().find_map(|l| l.strip_prefix("MemAvailable:")?.split_whitespace().next()?.parse::<u64>().ok());
    line.map(|kib| kib << 10).into_iter().chain(limits::memory_left()).min()
}

/// What the block layer tells of the device; a partition has its disk's queue one level up.
fn queue(mount: &Mount) -> BTreeMap<&'static str, String> {
    let base = format!("/sys/dev/block/{}", mount.device);
    let figure =
        |name: &str| text_of(&format!("{base}/queue/{name}")).or_else(|| text_of(&format!("{base}/../queue/{name}")));
    ["rotational", "write_cache", "fua", "scheduler", "logical_block_size", "physical_block_size", "nr_requests"]
        .into_iter()
        .filter_map(|name| Some((name, figure(name)?)))
        .chain(model(&base).map(|model| ("model", model)))
        .collect()
}

/// What the device calls itself; one that does not, by its driver.
fn model(base: &str) -> Option<String> {
    let told = |at: &str| text_of(&format!("{at}/device/model")).filter(|m| !m.is_empty());
    let driver = |at: &str| crate::probe::host::link_name(&format!("{at}/device/driver"));
    let disk = format!("{base}/..");
    told(base).or_else(|| told(&disk)).or_else(|| driver(base)).or_else(|| driver(&disk))
}

/// Whether what was found is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// As it should be.
    Ok,
    /// Neither good nor bad.
    Info,
    /// Something to look at.
    Warning,
}

/// Lines of the report.
#[derive(Default)]
struct Findings(Vec<Row>);

impl Findings {
    fn add(&mut self, what: &str, found: impl Into<String>, state: State, remark: impl Into<String>) {
        let state = format!("{state:?}").to_lowercase();
        self.0.push(Row {
            params: vec![what.into(), found.into(), state, remark.into()],
            metrics: BTreeMap::new(),
            counts: BTreeMap::new(),
            base: None,
            noise: Noise::default(),
            status: Status::Good,
            details: crate::details::Details::default(),
        });
    }

    fn ok(&mut self, what: &str, found: impl Into<String>, remark: impl Into<String>) {
        self.add(what, found, State::Ok, remark);
    }

    fn info(&mut self, what: &str, found: impl Into<String>, remark: impl Into<String>) {
        self.add(what, found, State::Info, remark);
    }

    fn warn(&mut self, what: &str, found: impl Into<String>, remark: impl Into<String>) {
        self.add(what, found, State::Warning, remark);
    }

    /// The null test, unless it was stopped.
    fn null(&mut self, null: Option<f64>) {
        let Some(null) = null else { return self.info("null test", "stopped", "") };
        let (state, remark) = match null {
            n if n > MOST_NULL => (State::Warning, "the same, measured twice, differs by so much: take more --runs"),
            _ => (State::Ok, "the same, measured twice, differs by so much"),
        };
        self.add("null test", format!("{:.1} percent", 100.0 * null), state, remark);
        self.measured("null", "", vec![null]);
    }

    /// The samples behind the last line.
    fn measured(&mut self, name: &'static str, unit: &'static str, samples: Vec<f64>) {
        if let Some(row) = self.0.last_mut() {
            row.metrics.insert(name, Metric { unit, samples });
        }
    }
}

/// Looks.
///
/// # Errors
/// No folder to write in, no space.
pub fn run(options: &Options) -> Result<Report> {
    let common = &options.common;
    common.without_cache()?;
    let mut experiment = Experiment::begin(common, "doctor")?;
    experiment.plan(
        1,
        Needs { written_bytes: 64 << 20, space_bytes: 64 << 20, memory_bytes: 16 << 20, ..Needs::default() },
    )?;
    let mut found = Findings::default();
    let reading = Reading::now(experiment.device());
    the_machine(&mut found);
    let barriers = storage::look(&mut found, &common.dir);
    abilities::look(&mut found, experiment.folder())?;
    limits::look(&mut found);
    timer(&mut found);
    let us = barrier(&mut found, experiment.folder())?;
    storage::durable(&mut found, &common.dir, barriers, us);
    let null = match null_test(&experiment) {
        Err(LabError::Stopped) => None,
        null => Some(null?),
    };
    found.null(null);
    let noise = reading.noise();
    how_quiet(&mut found, noise);
    let mut rows = found.0;
    rows.iter_mut().for_each(|r| r.noise = noise);
    Ok(Report {
        command: "doctor",
        options: experiment.options(json!({})),
        machine: machine(&common.dir),
        params: vec!["what", "found", "state", "remark"],
        shown: vec![],
        shown_counts: vec![],
        relative: None,
        null_difference: null,
        rows,
        notes: vec![],
        waited: experiment.waited(),
        ..Report::default()
    })
}

fn the_machine(found: &mut Findings) {
    found.info("kernel", text_of("/proc/sys/kernel/osrelease").unwrap_or_else(|| "unknown".into()), "");
    found.info("processors", std::thread::available_parallelism().map_or(1, usize::from).to_string(), "");
    match memory_bytes() {
        0 => found.info("memory", "unknown", ""),
        bytes => {
            found.info("memory", crate::units::size_text(bytes), "");
            found.measured("bytes", "bytes", vec![bytes as f64]);
        }
    }
    let cpu = text_of("/proc/cpuinfo").unwrap_or_default();
    let flagged = cpu.lines().any(|l| l.starts_with("flags") && l.split_whitespace().any(|f| f == "hypervisor"));
    let vendor = text_of("/sys/hypervisor/type").or_else(|| text_of("/sys/class/dmi/id/sys_vendor"));
    let (is, remark) = match flagged {
        true => {
            ("yes", "another system stands between this one and the device: its cache and its neighbours count too")
        }
        false => ("no sign of it", "the processor does not say so"),
    };
    let vendor = vendor.map_or_else(String::new, |v| format!(" ({v})"));
    found.info("virtual machine", format!("{is}{vendor}"), remark);
    let container = ["/.dockerenv", "/run/.containerenv"].iter().any(|p| read_text(Path::new(p)).is_ok());
    found.info("container", if container { "yes" } else { "no sign of it" }, "");
}

/// Time stolen, and the kernel's pressure figures.
fn how_quiet(found: &mut Findings, noise: Noise) {
    let too_much = Noise { steal: noise.steal, ..Noise::default() }.is_too_much();
    let state = |too_much| if too_much { State::Warning } else { State::Ok };
    let remark = if too_much { "too much: the host takes time away" } else { "quiet enough" };
    found.add("stolen time", format!("{:.1} percent", 100.0 * noise.steal), state(too_much), remark);
    let io = noise.others_io.map_or_else(|| "unknown".into(), |share| format!("{:.0} percent", 100.0 * share));
    let too_much = Noise { steal: 0.0, ..noise }.is_too_much();
    let text = format!("processors {:.0} percent, device {io}", 100.0 * noise.others_cpu);
    found.add("other processes", text, state(too_much), others_words(OtherProcesses::now()));
    if text_of("/proc/pressure/cpu").is_none() {
        return found.info("pressure", "unknown", "the kernel has no /proc/pressure");
    }
    let text = format!("cpu {:.0}, io {:.0} percent", 100.0 * noise.cpu_pressure, 100.0 * noise.io_pressure);
    found.info("pressure", text, "time in which some task waited for a processor, for storage; the lab's own too");
}

/// Of whom their share of the device's time is known.
fn others_words(others: OtherProcesses) -> String {
    let what = "their time; the device's by their share of the bytes moved";
    match others.hidden {
        0 => what.into(),
        hidden => format!("{what}: {hidden} of {} do not tell theirs to this user", hidden + others.asked),
    }
}

/// What asking for the time costs, and where it comes from.
fn timer(found: &mut Findings) {
    let source = text_of("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    let ns = timer_ns();
    let (state, remark) = match ns {
        ns if ns > SLOW_TIMER_NS => (State::Warning, "slow: a system call; short times are measured too long"),
        _ => (State::Ok, "what asking for the time costs"),
    };
    found.add("timer", format!("{ns:.0} ns"), state, remark);
    found.measured("ns", "ns", vec![ns]);
    found.info("clock source", source.unwrap_or_else(|| "unknown".into()), "");
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
fn barrier(found: &mut Findings, folder: &Path) -> Result<f64> {
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
    let us = summary(&times).map_or(0.0, |m| m.median);
    found.info("barrier", format!("{us:.0} us"), "4 KiB written over and synced: the least that a commit costs");
    found.measured("us", "us", times);
    Ok(us)
}

/// By how much two series of the same thing differ.
fn null_test(experiment: &Experiment) -> Result<f64> {
    let records = Records::new(Shape::Static, 103, 100_000, experiment.common().seed);
    let path = experiment.folder().join("null");
    let mut series = [Vec::new(), Vec::new()];
    for round in 0..2 * experiment.rounds().max(5) {
        let writer = writers::open(Way::Cached, &Target::new(&path, 128 << 10))?;
        let sample = measure::write(experiment, &records, vec![(records.all(), writer)])?.sample;
        // ABBA.
        series[(round + round / 2) % 2].extend(sample.metrics.iter().filter(|m| m.0 == "ns").map(|m| m.2));
    }
    let [a, b] = series.map(|s| summary(&s).map_or(1.0, |m| m.median));
    Ok((a / b).max(b / a) - 1.0)
}
