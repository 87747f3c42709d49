//! Appending to a file whose last page is not in memory: a write that begins within a page has the kernel read it first. MyISAM's
//! write cache shortens its first buffer for that, so that all others begin on a block (the source did not test it).

use super::{count_writes, Job, APPEND_START};
use crate::error::Result;
use crate::experiment::{Case, Experiment, Sample};
use crate::measure::{self, per_record, verify};
use crate::probe::host::Usage;
use crate::probe::raw::{RawFile, RawOptions};
use crate::records::{Part, Records};
use crate::theory::tally;
use crate::writers::{Cached, Writer};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// So many buffers are appended, as far as there are records: before each the file is synced and dropped.
const WRITES: u64 = 32;
/// Bytes of a page.
const PAGE: f64 = 4096.0;

/// How many of the records are appended.
pub(super) fn part(records: &Records, buffer: usize) -> Part {
    Part { first: 0, count: (WRITES * buffer as u64 / records.longest().max(1) as u64).clamp(1, records.count.max(1)) }
}

/// Time in which records were written, and what the kernel used and read meanwhile.
#[derive(Default)]
struct Cost {
    took: Duration,
    used: Usage,
}

impl Cost {
    /// Does it with the file out of memory, which is not part of the time.
    fn time<T>(&mut self, path: &Path, work: impl FnOnce() -> Result<T>) -> Result<T> {
        measure::set_cache(path, "cold")?;
        let (before, began) = (Usage::now(), Instant::now());
        let done = work()?;
        self.took += began.elapsed();
        let used = Usage::now().since(&before);
        self.used.user += used.user;
        self.used.system += used.system;
        self.used.device_read_bytes += used.device_read_bytes;
        Ok(done)
    }
}

impl<'a> Job<'a, '_> {
    /// Only what writes is timed; what is copied into the buffer in between is not.
    pub(super) fn appending(&self, what: &str) -> Case<'a> {
        let path = self.experiment.folder().join("written");
        let (records, rule, buffer) = (self.records, self.rule, self.buffer);
        let part = part(records, buffer);
        let lengths = move || part.range().map(|i| records.length(i));
        let demanded = tally(rule, buffer, APPEND_START, lengths());
        let work = move |experiment: &Experiment| {
            let made = RawFile::open(&path, RawOptions { create: true, ..RawOptions::default() })?;
            made.write_at(&vec![0xEE; APPEND_START as usize], 0)?;
            let file = Arc::new(RawFile::open(&path, RawOptions { write: true, ..RawOptions::default() })?);
            let mut writer = Box::new(Cached::new(file.clone(), APPEND_START, buffer, rule)?);
            let mut cost = Cost::default();
            let (mut position, mut filled) = (APPEND_START, 0);
            for i in part.range() {
                experiment.check()?;
                filled += records.length(i);
                let room = rule.room(buffer, position);
                if filled < room {
                    writer.put(records.get(i))?;
                    continue;
                }
                cost.time(&path, || writer.put(records.get(i)))?;
                while filled >= rule.room(buffer, position) {
                    let room = rule.room(buffer, position);
                    position += room as u64;
                    filled -= room;
                }
            }
            let (_, counted) = cost.time(&path, || writer.finish())?;
            let mut sample = Sample::default();
            per_record(&mut sample, part.count, &cost.used, cost.took.as_nanos() as f64);
            sample.metrics.push(("tail_reads", "", cost.used.device_read_bytes as f64 / PAGE));
            count_writes(&mut sample, counted, demanded, file.writes());
            sample.wrong = sample.wrong.or(verify(&path, APPEND_START, records, part)?);
            measure::empty(&file)?;
            Ok(sample)
        };
        self.case(what, Box::new(work))
    }
}
