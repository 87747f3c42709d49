//! What a command needs of storage, memory and time, told before it begins.

use crate::error::{LabError, Result};
use crate::options::CommonOptions;
use crate::probe::raw::{Barrier, RawFile, RawOptions};
use crate::units::size_text;
use esker_io::{Disk, PosixDisk};
use std::path::Path;
use std::time::Instant;

/// What a command is about to do, all runs together.
#[derive(Debug, Clone, Copy, Default)]
pub struct Needs {
    /// Bytes that are written.
    pub written_bytes: u64,
    /// Or so many, where a run goes on until it has taken long enough.
    pub written_at_most: u64,
    /// Bytes on the file system at the most.
    pub space_bytes: u64,
    /// Calls of the kernel for small pieces.
    pub calls: u64,
    /// Barriers.
    pub barriers: u64,
    /// Bytes of memory at the most: buffers, and what they are filled from.
    pub memory_bytes: u64,
    /// What takes time without the storage, in seconds.
    pub seconds: f64,
    /// The options that make it less, for who has not enough space.
    pub less: &'static str,
}

/// So much of so much: what options ask for, multiplied.
///
/// # Errors
/// `Invalid` where that is more than any machine has.
pub(crate) fn product(factors: &[u64]) -> Result<u64> {
    let all = factors.iter().try_fold(1u64, |all, n| all.checked_mul(*n)).filter(|n| *n <= 1 << 60);
    all.ok_or_else(|| {
        let all: Vec<String> = factors.iter().map(u64::to_string).collect();
        LabError::Invalid(format!("{} is more than any machine has: use smaller numbers", all.join(" times ")))
    })
}

impl Needs {
    pub(crate) fn hint(&self) -> String {
        if self.less.is_empty() {
            return String::new();
        }
        format!("; use fewer or smaller {}", self.less)
    }

    /// Bytes written, for people.
    pub(crate) fn written(&self) -> String {
        let least = size_text(self.written_bytes);
        if self.written_at_most > self.written_bytes {
            format!("{least} to {}", size_text(self.written_at_most))
        } else {
            least
        }
    }
}

/// What the storage takes, looked at for a moment: enough to say how long a command will be at it.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    byte_s: f64,
    call_s: f64,
    barrier_s: f64,
}

impl Pace {
    /// Writes some MiB and a few barriers into the folder.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn measure(folder: &Path) -> Result<Pace> {
        const CALLS: u64 = 1000;
        const BYTES: usize = 8 << 20;
        let path = folder.join("pace");
        let file = RawFile::open(&path, RawOptions { create: true, ..RawOptions::default() })?;
        let took = |work: &dyn Fn() -> Result<()>| {
            let began = Instant::now();
            work()?;
            Ok::<f64, LabError>(began.elapsed().as_secs_f64())
        };
        let bytes = took(&|| {
            file.write_at(&vec![1; BYTES], 0)?;
            Ok(file.sync(Barrier::Fdatasync)?)
        })?;
        let calls = took(&|| (0..CALLS).try_for_each(|n| Ok(file.write_at(&[2; 100], 100 * n)?)))?;
        let barrier = took(&|| {
            file.write_at(&[3; 4096], 0)?;
            Ok(file.sync(Barrier::Fdatasync)?)
        })?;
        PosixDisk::new().remove(&path)?;
        Ok(Pace { byte_s: bytes / BYTES as f64, call_s: calls / CALLS as f64, barrier_s: barrier })
    }

    /// About how long it will take, in seconds.
    #[must_use]
    pub fn seconds(&self, needs: &Needs) -> f64 {
        let storage = needs.written_bytes as f64 * self.byte_s + needs.barriers as f64 * self.barrier_s;
        storage + needs.calls as f64 * self.call_s + needs.seconds
    }
}

/// Refuses what needs more memory than it may have.
///
/// # Errors
/// `Space`.
pub(crate) fn enough_memory(common: &CommonOptions, need: u64) -> Result<()> {
    let refuse = |has: String| Err(LabError::Space(format!("it takes {} of memory, {has}", size_text(need))));
    if let Some(most) = common.max_memory.filter(|most| need > *most) {
        return refuse(format!("--max-memory allows {}", size_text(most)));
    }
    match crate::doctor::memory_left() {
        Some(left) if need > left => refuse(format!("{} is available; use less or smaller buffers", size_text(left))),
        _ => Ok(()),
    }
}

/// Bytes of memory that it may have, if that is known: what is allowed, and what is there.
pub(crate) fn most_memory(common: &CommonOptions) -> Option<u64> {
    common.max_memory.into_iter().chain(crate::doctor::memory_left()).min()
}
