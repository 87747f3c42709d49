//! How quiet the machine was while something was measured: time stolen by the host, processor time of other processes, the
//! device's time for them, and time that tasks waited.
//!
//! What is others' alone decides whether figures mean something: the kernel's pressure figures count the lab's own waits
//! too, so they are told, and decide only while the lab does nothing (`quiet`).

mod stretches;

pub use stretches::Stretches;

use crate::probe::host::{read_text, OtherProcesses};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::Instant;

/// A reading of the kernel's figures.
#[derive(Debug, Clone)]
pub struct Reading {
    at: Instant,
    /// The block device whose time counts, as "major:minor".
    device: String,
    /// Clock ticks of all processors: all of them, and those stolen.
    ticks: u64,
    stolen: u64,
    /// Those in which a processor worked for a process, and this process's own, with its ended children's.
    busy: u64,
    own: u64,
    /// Milliseconds in which the device had something to do, where the kernel tells.
    device_ms: Option<u64>,
    /// Bytes to and from storage: this process's, with its ended children's.
    own_bytes: u64,
    /// What other processes and the kernel's threads had.
    others: OtherProcesses,
    /// Microseconds that some task waited for a processor, and for storage.
    cpu_us: u64,
    io_us: u64,
}

/// What came between two readings, each 0 to 1.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Noise {
    /// Share of all processors' time that the host took.
    pub steal: f64,
    /// Share of all processors' time that other processes took; the kernel's own threads too where they cannot be seen.
    pub others_cpu: f64,
    /// Share of the time in which the device was busy for other processes: by their share of the bytes that were moved
    /// meanwhile. None where the kernel does not tell of the device.
    pub others_io: Option<f64>,
    /// Share of the time in which a task was kept waiting for a processor; the lab's own too.
    pub cpu_pressure: f64,
    /// Share of the time in which a task waited for storage; the lab's own too.
    pub io_pressure: f64,
}

/// Above this share of stolen time, figures mean little.
const MOST_STEAL: f64 = 0.10;
/// And above these of what others took: a quarter of what there is.
const MOST_OTHERS_CPU: f64 = 0.25;
const MOST_OTHERS_IO: f64 = 0.25;
/// Shares below this are not worth a word.
const WORTH_A_WORD: f64 = 0.05;

impl Reading {
    /// Now, with the time of a block device ("major:minor"; empty: of none). What the kernel does not tell is zero.
    #[must_use]
    pub fn now(device: &str) -> Reading {
        let text = |path: &str| read_text(Path::new(path)).unwrap_or_default();
        let stat = text("/proc/stat");
        let ticks: Vec<u64> =
            stat.lines().next().unwrap_or("").split_whitespace().skip(1).filter_map(|n| n.parse().ok()).collect();
        let pressure = |what: &str| {
            let text = text(&format!("/proc/pressure/{what}"));
            let some = text.lines().find(|l| l.starts_with("some")).unwrap_or("");
            some.rsplit("total=").next().and_then(|n| n.parse().ok()).unwrap_or(0)
        };
        Reading {
            at: Instant::now(),
            device: device.to_owned(),
            ticks: ticks.iter().take(8).sum(),
            stolen: ticks.get(7).copied().unwrap_or(0),
            // Of a program, of one that gives way, of the kernel for one: interrupts are nobody's.
            busy: [0, 1, 2].iter().filter_map(|i| ticks.get(*i)).sum(),
            own: own_ticks(&text("/proc/self/stat")),
            device_ms: device_ms(device),
            own_bytes: own_bytes(),
            others: OtherProcesses::now(),
            cpu_us: pressure("cpu"),
            io_us: pressure("io"),
        }
    }

    /// What came since.
    #[must_use]
    pub fn noise(&self) -> Noise {
        self.until(&Reading::now(&self.device))
    }

    /// What came until a later reading.
    fn until(&self, now: &Reading) -> Noise {
        let share = |part: u64, whole: f64| if whole > 0.0 { (part as f64 / whole).min(1.0) } else { 0.0 };
        let us = now.at.duration_since(self.at).as_micros() as f64;
        let ticks = now.ticks.saturating_sub(self.ticks) as f64;
        let (busy, own) = (now.busy.saturating_sub(self.busy), now.own.saturating_sub(self.own));
        let kernel = now.others.kernel_ticks.saturating_sub(self.others.kernel_ticks);
        let bytes =
            [(now.own_bytes, self.own_bytes), (now.others.bytes, self.others.bytes)].map(|(n, s)| n.saturating_sub(s));
        let busy_ms = now.device_ms.zip(self.device_ms).map(|(now, then)| now.saturating_sub(then));
        Noise {
            steal: share(now.stolen.saturating_sub(self.stolen), ticks),
            others_cpu: share(busy.saturating_sub(own).saturating_sub(kernel), ticks),
            others_io: busy_ms.map(|ms| share(1000 * ms, us) * part_of_others(bytes)),
            cpu_pressure: share(now.cpu_us.saturating_sub(self.cpu_us), us),
            io_pressure: share(now.io_us.saturating_sub(self.io_us), us),
        }
    }
}

/// How much of the device's work was others', of bytes of its own and of others: all of it while the lab moves nothing.
fn part_of_others([own, others]: [u64; 2]) -> f64 {
    match own {
        0 => 1.0,
        own => others as f64 / (own as f64 + others as f64),
    }
}

/// Milliseconds in which a device had something to do (Documentation/block/stat.rst).
fn device_ms(device: &str) -> Option<u64> {
    let path = format!("/sys/dev/block/{device}/stat");
    Some(device)
        .filter(|d| !d.is_empty())
        .and_then(|_| read_text(Path::new(&path)).ok())?
        .split_whitespace()
        .nth(9)?
        .parse()
        .ok()
}

/// Bytes that this process had from storage and gave it.
fn own_bytes() -> u64 {
    let usage = crate::probe::host::Usage::now();
    usage.device_read_bytes.saturating_add(usage.device_write_bytes)
}

/// Ticks of a process and of its children that ended, from /proc/PID/stat: user and system time. The name may hold spaces
/// and brackets.
fn own_ticks(stat: &str) -> u64 {
    let after = stat.rsplit(')').next().unwrap_or("");
    after.split_whitespace().skip(11).take(4).filter_map(|n| n.parse::<u64>().ok()).sum()
}

impl Noise {
    /// What is others' alone: words, share, and the most of it that figures bear.
    fn of_others(self) -> [(&'static str, f64, f64); 3] {
        [
            ("the host took {} percent of the processors' time", self.steal, MOST_STEAL),
            ("other processes took {} percent of the processors' time", self.others_cpu, MOST_OTHERS_CPU),
            (
                "the device was busy for other processes {} percent of the time",
                self.others_io.unwrap_or(0.0),
                MOST_OTHERS_IO,
            ),
        ]
    }

    /// In few words; "quiet" where nothing is worth one.
    #[must_use]
    pub fn words(self) -> String {
        let parts = [
            ("host took", self.steal),
            ("others ran", self.others_cpu),
            ("others' I/O", self.others_io.unwrap_or(0.0)),
            ("processor waits", self.cpu_pressure),
            ("storage waits", self.io_pressure),
        ];
        let told = parts.iter().filter(|p| p.1 > WORTH_A_WORD);
        let told: Vec<String> = told.map(|(what, share)| format!("{what} {:.0}%", 100.0 * share)).collect();
        if told.is_empty() {
            "quiet".into()
        } else {
            told.join(", ")
        }
    }

    /// Is nothing worth a word?
    #[must_use]
    pub fn is_quiet(self) -> bool {
        self.words() == "quiet"
    }

    /// Did others do anything worth a word? The lab's own waits are no reason to wait for others.
    #[must_use]
    pub fn is_disturbed(self) -> bool {
        self.of_others().iter().any(|of| of.1 > WORTH_A_WORD)
    }

    /// Why it is too much, if it is: all that is.
    #[must_use]
    pub fn why_too_much(self) -> Option<String> {
        let too_much = self.of_others().into_iter().filter(|(_, share, most)| share > most);
        let words = too_much.map(|(words, share, most)| {
            let words = words.replace("{}", &format!("{:.0}", 100.0 * share));
            format!("{words}, and more than {:.0} is too much", 100.0 * most)
        });
        Some(words.collect::<Vec<_>>().join("; ")).filter(|words| !words.is_empty())
    }

    /// How far beyond what figures bear, in the worst respect: more than 1 is too much.
    #[must_use]
    pub fn excess(self) -> f64 {
        self.of_others().iter().map(|(_, share, most)| share / most).fold(0.0, f64::max)
    }

    /// The worse of both in each respect.
    #[must_use]
    pub fn worse(self, other: Noise) -> Noise {
        Noise {
            steal: self.steal.max(other.steal),
            others_cpu: self.others_cpu.max(other.others_cpu),
            others_io: self.others_io.into_iter().chain(other.others_io).reduce(f64::max),
            cpu_pressure: self.cpu_pressure.max(other.cpu_pressure),
            io_pressure: self.io_pressure.max(other.io_pressure),
        }
    }

    /// Too much for the figures to mean much?
    #[must_use]
    pub fn is_too_much(self) -> bool {
        self.excess() > 1.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_tell_what_is_worth_one() {
        let quiet = Noise { steal: 0.05, others_io: Some(0.05), ..Noise::default() };
        assert_eq!((quiet.words(), quiet.is_quiet(), quiet.is_disturbed()), ("quiet".into(), true, false));
        let noise = Noise { steal: 0.12, others_cpu: 0.31, others_io: Some(0.5), cpu_pressure: 0.06, io_pressure: 0.8 };
        let words = "host took 12%, others ran 31%, others' I/O 50%, processor waits 6%, storage waits 80%";
        assert_eq!((noise.words().as_str(), noise.is_quiet()), (words, false));
    }

    #[test]
    fn every_kind_of_noise_that_is_others_can_be_too_much_and_says_why() {
        let none = Noise::default();
        let io = |share| Noise { others_io: Some(share), ..none };
        let kinds = [
            (
                Noise { steal: 0.12, ..none },
                "the host took 12 percent of the processors' time, and more than 10 is too much",
            ),
            (
                Noise { others_cpu: 0.5, ..none },
                "other processes took 50 percent of the processors' time, and more than 25 is too much",
            ),
            (io(0.3), "the device was busy for other processes 30 percent of the time, and more than 25 is too much"),
        ];
        for (noise, why) in kinds {
            assert_eq!(
                (noise.why_too_much().as_deref(), noise.is_too_much(), noise.is_disturbed()),
                (Some(why), true, true)
            );
        }
        let all = kinds.iter().fold(none, |all, kind| all.worse(kind.0));
        assert_eq!(all.why_too_much().map(|why| why.matches("; ").count()), Some(2));
        assert!((all.excess() - 2.0).abs() < 1e-9, "{all:?}");
        // What may be the lab's own waits decides nothing.
        let pressure = Noise { cpu_pressure: 1.0, io_pressure: 1.0, others_cpu: 0.2, others_io: Some(0.2), steal: 0.1 };
        assert_eq!((pressure.why_too_much(), pressure.is_too_much()), (None, false));
        assert!(!Noise { cpu_pressure: 1.0, ..none }.is_disturbed());
        assert_eq!((none.worse(io(0.1)).others_io, io(0.2).worse(io(0.1)).others_io), (Some(0.1), Some(0.2)));
    }

    #[test]
    fn of_the_processors_time_others_is_what_is_neither_own_nor_the_kernels_threads() {
        let then = Reading::now("");
        let after = |own, kernel| {
            let mut now = then.clone();
            (now.ticks, now.busy, now.own) = (then.ticks + 100, then.busy + 60, then.own + own);
            now.others.kernel_ticks += kernel;
            then.until(&now).others_cpu
        };
        assert_eq!([after(0, 0), after(20, 0), after(20, 10), after(50, 10), after(70, 0)], [0.6, 0.4, 0.3, 0.0, 0.0]);
    }

    #[test]
    fn the_devices_time_is_shared_by_bytes() {
        assert_eq!([[0, 0], [0, 7], [1, 0], [30, 10]].map(part_of_others), [1.0, 1.0, 0.0, 0.25]);
        assert_eq!((device_ms(""), device_ms("999:999")), (None, None));
    }

    #[test]
    fn what_another_process_does_is_others_and_what_this_one_does_is_not() {
        let reading = Reading::now("");
        let spin = "n=0; while [ $n -lt 300000 ]; do n=$((n+1)); done; echo done; read line";
        let mut child = std::process::Command::new("sh")
            .args(["-c", spin])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut word = [0; 4];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut word).unwrap();
        // It lives: what it took is another's.
        let theirs = reading.noise();
        drop(child.stdin.take());
        child.wait().unwrap();
        // It has ended: what it took is this one's.
        let now = Reading::now("");
        assert!(theirs.others_cpu > 0.0 && now.own > reading.own, "{theirs:?}");
        assert_eq!(theirs.others_io, None);
    }

    #[test]
    fn a_devices_time_for_another_process_is_others_io() {
        let place = std::env::temp_dir().join(format!("esker-lab-noise-{}", std::process::id()));
        let device = crate::doctor::device(&std::env::temp_dir());
        if device_ms(&device).is_none() {
            eprintln!("skipped: nothing is told of the device below {}", place.display());
            return;
        }
        let (reading, before) = (Reading::now(&device), own_bytes());
        let write = "dd if=/dev/zero of=\"$0\" bs=1M count=32 conv=fsync 2>/dev/null; rm \"$0\"; echo done; read line";
        let mut child = std::process::Command::new("sh")
            .args(["-c", write])
            .arg(&place)
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut word = [0; 4];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut word).unwrap();
        // While it lives, its bytes are another's; then they are this process's, as it was its child.
        let (noise, others) = (reading.noise(), OtherProcesses::now().bytes.saturating_sub(reading.others.bytes));
        drop(child.stdin.take());
        child.wait().unwrap();
        let own = own_bytes().saturating_sub(before);
        println!("{:?}, {others} bytes of others, {own} own", noise.others_io);
        assert!(noise.others_io.is_some_and(|share| share > 0.0), "{noise:?}");
        assert!(others >= 32 << 20 && own >= 32 << 20, "{others} bytes of others, {own} own");
    }

    #[test]
    fn a_process_is_read_with_its_children() {
        let stat = "7 (a) b (c)) R 1 7 7 0 -1 4194304 100 0 0 0 21 22 23 24 20 0 1 0 5 6 7";
        assert_eq!((own_ticks(stat), own_ticks("")), (90, 0));
    }

    #[test]
    fn older_reports_are_read() {
        let older = serde_json::json!({ "steal": 0.5, "cpu_pressure": 0.25, "io_pressure": 0.0 });
        let noise = Noise::deserialize(&older).unwrap();
        assert_eq!((noise.steal, noise.others_cpu, noise.others_io, noise.cpu_pressure), (0.5, 0.0, None, 0.25));
    }
}
