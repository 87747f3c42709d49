//! How quiet the machine was while something was measured: time stolen by the host, and time that others' tasks waited.

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
    /// Microseconds that some task waited for a processor, and for storage.
    cpu_us: u64,
    io_us: u64,
}

/// What came between two readings, each 0 to 1.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Noise {
    /// Share of all processors' time that the host took.
    pub steal: f64,
    /// Share of the time in which a task was kept waiting for a processor.
    pub cpu_pressure: f64,
    /// Share of the time in which a task waited for storage; the measured one too.
    pub io_pressure: f64,
}

/// Above this share of stolen time, figures mean little.
const MOST_STEAL: f64 = 0.10;

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
        Noise {
            steal: share(now.stolen.saturating_sub(self.stolen), now.ticks.saturating_sub(self.ticks) as f64),
            cpu_pressure: share(now.cpu_us.saturating_sub(self.cpu_us), us),
            io_pressure: share(now.io_us.saturating_sub(self.io_us), us),
        }
    }
}

impl Noise {
    /// The worse of both in each respect.
    #[must_use]
    pub fn worse(self, other: Noise) -> Noise {
        Noise {
            steal: self.steal.max(other.steal),
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
