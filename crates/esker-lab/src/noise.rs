//! How quiet the machine was while something was measured: time stolen by the host, processor time of other processes, and
//! time that tasks waited.

use crate::probe::host::read_text;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::Instant;

/// A reading of the kernel's figures.
#[derive(Debug, Clone, Copy)]
pub struct Reading {
    at: Instant,
    /// Clock ticks of all processors: all of them, and those stolen.
    ticks: u64,
    stolen: u64,
    /// Those in which a processor worked for a process or the kernel, and this process's own, with its ended children's.
    busy: u64,
    own: u64,
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
    /// Share of all processors' time that other processes and the kernel's own threads took.
    pub others_cpu: f64,
    /// Share of the time in which a task was kept waiting for a processor.
    pub cpu_pressure: f64,
    /// Share of the time in which a task waited for storage; the measured one too.
    pub io_pressure: f64,
}

/// Above this share of stolen time, figures mean little.
const MOST_STEAL: f64 = 0.10;
/// Shares below this are not worth a word.
const WORTH_A_WORD: f64 = 0.05;

impl Reading {
    /// Now. What the kernel does not tell is zero.
    #[must_use]
    pub fn now() -> Reading {
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
            ticks: ticks.iter().take(8).sum(),
            stolen: ticks.get(7).copied().unwrap_or(0),
            busy: [0, 1, 2, 5, 6].iter().filter_map(|i| ticks.get(*i)).sum(),
            own: own_ticks(&text("/proc/self/stat")),
            cpu_us: pressure("cpu"),
            io_us: pressure("io"),
        }
    }

    /// What came since.
    #[must_use]
    pub fn noise(&self) -> Noise {
        let now = Reading::now();
        let share = |part: u64, whole: f64| if whole > 0.0 { (part as f64 / whole).min(1.0) } else { 0.0 };
        let us = now.at.duration_since(self.at).as_micros() as f64;
        let ticks = now.ticks.saturating_sub(self.ticks) as f64;
        let (busy, own) = (now.busy.saturating_sub(self.busy), now.own.saturating_sub(self.own));
        Noise {
            steal: share(now.stolen.saturating_sub(self.stolen), ticks),
            others_cpu: share(busy.saturating_sub(own), ticks),
            cpu_pressure: share(now.cpu_us.saturating_sub(self.cpu_us), us),
            io_pressure: share(now.io_us.saturating_sub(self.io_us), us),
        }
    }
}

/// Ticks of a process and of its children that ended, from /proc/PID/stat: user and system time. The name may hold spaces
/// and brackets.
fn own_ticks(stat: &str) -> u64 {
    let after = stat.rsplit(')').next().unwrap_or("");
    after.split_whitespace().skip(11).take(4).filter_map(|n| n.parse::<u64>().ok()).sum()
}

impl Noise {
    /// In few words; "quiet" where nothing is worth one.
    #[must_use]
    pub fn words(self) -> String {
        let parts = [
            ("host took", self.steal),
            ("others ran", self.others_cpu),
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

    /// Why it is too much, if it is.
    #[must_use]
    pub fn why_too_much(self) -> Option<String> {
        self.is_too_much().then(|| {
            let (steal, most) = (100.0 * self.steal, 100.0 * MOST_STEAL);
            format!("the host took {steal:.0} percent of the processors' time, and more than {most:.0} is too much")
        })
    }

    /// The worse of both in each respect.
    #[must_use]
    pub fn worse(self, other: Noise) -> Noise {
        Noise {
            steal: self.steal.max(other.steal),
            others_cpu: self.others_cpu.max(other.others_cpu),
            cpu_pressure: self.cpu_pressure.max(other.cpu_pressure),
            io_pressure: self.io_pressure.max(other.io_pressure),
        }
    }

    /// Too much for the figures to mean much?
    #[must_use]
    pub fn is_too_much(self) -> bool {
        self.steal > MOST_STEAL
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_tell_what_is_worth_one() {
        assert_eq!(Noise { steal: 0.05, ..Noise::default() }.words(), "quiet");
        let noise = Noise { steal: 0.12, others_cpu: 0.31, cpu_pressure: 0.06, io_pressure: 0.8 };
        assert_eq!(noise.words(), "host took 12%, others ran 31%, processor waits 6%, storage waits 80%");
        assert!(noise.why_too_much().is_some_and(|why| why.starts_with("the host took 12 percent")));
        assert_eq!(Noise { others_cpu: 1.0, ..Noise::default() }.why_too_much(), None);
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
        assert_eq!((noise.steal, noise.others_cpu, noise.cpu_pressure), (0.5, 0.0, 0.25));
    }
}
