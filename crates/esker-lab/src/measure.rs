//! The measured parts that several commands share: writing all records, reading them, and the cost of both.

use crate::clock::{together, Event, Watch};
use crate::details::Details;
use crate::error::{LabError, Result};
use crate::experiment::{Experiment, Sample};
use crate::probe::host::Usage;
use crate::probe::raw::{Barrier, RawFile, RawOptions};
use crate::processor::ProcessorSampler;
use crate::readers::{self, Reader};
use crate::records::{sum_of, Part, Records};
use crate::report::Row;
use crate::theory::Tally;
use crate::times::Times;
use crate::writers::{self, Target, Way, Writer};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

pub(crate) const MIB: f64 = 1_048_576.0;
/// Records between two looks at the clock.
const BETWEEN_CHECKS: u64 = 1 << 16;

/// Batches in which a thread's records are timed, about.
const BATCHES: u64 = 500;

/// Parts of a part, each of which is timed as a whole: to time a record would cost more than it does.
fn batches(part: Part, records_of_one: u64) -> impl Iterator<Item = std::ops::Range<u64>> {
    let end = part.range().end;
    part.range().step_by(records_of_one as usize).map(move |first| first..(first + records_of_one).min(end))
}

/// Records of a batch: of a size that all threads and runs share.
pub(crate) fn batch(parts: impl Iterator<Item = u64>) -> u64 {
    (parts.max().unwrap_or(0) / BATCHES).clamp(1, BETWEEN_CHECKS)
}

/// Bytes of memory that the times of so many rows take, of so many records by so many threads.
pub(crate) fn memory_of_times(rows: usize, records: u64, threads: usize) -> u64 {
    let each = records.div_ceil(threads.max(1) as u64);
    crate::times::memory_bytes(rows, each.div_ceil(batch(std::iter::once(each))).saturating_mul(threads as u64))
}

pub(crate) fn times(records_of_one: u64, threads: &[Vec<Event>]) -> Details {
    let of = if records_of_one == 1 { "record".to_owned() } else { format!("{records_of_one} records") };
    Details { times: Times::new(of, threads), ..Details::default() }
}

/// A writer's file, and what it wrote.
type Finished = (Arc<RawFile>, Tally);

/// A thread's records, read or written, and timed in batches of so many.
pub(crate) struct BatchTimer<'a> {
    pub(crate) experiment: &'a Experiment,
    pub(crate) records: &'a Records,
    /// Processor time along the run.
    pub(crate) sampler: &'a ProcessorSampler,
    pub(crate) of_one: u64,
}

impl BatchTimer<'_> {
    /// Reads a part; its sum, and the times. `record` has room for the longest.
    ///
    /// # Errors
    /// What the operating system says; `Stopped`.
    pub(crate) fn read(
        &self,
        part: Part,
        reader: &mut dyn Reader,
        record: &mut [u8],
        zero: Instant,
    ) -> Result<(u64, Vec<Event>)> {
        let mut sum = 0;
        let events = self.batches(part, zero, |i| {
            let record = &mut record[..self.records.length(i)];
            reader.take(record)?;
            sum = sum_of(sum, record);
            Ok(())
        })?;
        Ok((sum, events))
    }

    /// Writes a part: what the writer has in the end, and the times.
    ///
    /// # Errors
    /// What the operating system says; `Stopped`.
    pub(crate) fn write(&self, part: Part, writer: &mut dyn Writer, zero: Instant) -> Result<(Finished, Vec<Event>)> {
        let events = self.batches(part, zero, |i| writer.put(self.records.get(i)))?;
        Ok((writer.finish()?, events))
    }

    fn batches(&self, part: Part, zero: Instant, mut each: impl FnMut(u64) -> Result<()>) -> Result<Vec<Event>> {
        let mut watch = Watch::new(zero);
        for batch in batches(part, self.of_one) {
            self.experiment.check()?;
            self.sampler.sample(zero);
            watch.time(|| batch.into_iter().try_for_each(&mut each))?;
        }
        Ok(watch.events())
    }
}

/// Writes parts of the records at once, a thread for each writer, and makes them durable: the files, what was written,
/// and figures a record.
///
/// # Errors
/// What the operating system says; `Stopped`.
pub fn write(experiment: &Experiment, records: &Records, writers: Vec<(Part, Box<dyn Writer>)>) -> Result<WriteResult> {
    let count = writers.iter().map(|w| w.0.count).sum();
    let mut before = Usage::now();
    let of_one = batch(writers.iter().map(|w| w.0.count));
    let sampler = ProcessorSampler::default();
    let timed = BatchTimer { experiment, records, sampler: &sampler, of_one };
    let go = || {
        before = Usage::now();
        sampler.begin();
    };
    let job = |(part, writer): &mut (Part, Box<dyn Writer>), zero| timed.write(*part, &mut **writer, zero);
    let (done, accepted) = together(writers, go, &job)?;
    let (done, events): (Vec<_>, Vec<_>) = done.into_iter().unzip();
    let used = Usage::now().since(&before);
    let began = Instant::now();
    for (file, _) in &done {
        file.sync(Barrier::Fdatasync)?;
    }
    let durable = accepted + began.elapsed();
    let moved = Usage::now().since(&before);
    let mut sample = Sample { details: times(of_one, &events), ..Sample::default() };
    sample.details.processor = Some(sampler.end(accepted, (used.user, used.system)));
    per_record(&mut sample, count, &used, accepted.as_nanos() as f64);
    sample.metrics.push(("durable_s", "s", durable.as_secs_f64()));
    sample.metrics.push(("device_mib", "MiB", moved.device_write_bytes as f64 / MIB));
    let tallies = done.iter().map(|d| d.1);
    let tally = tallies.fold(Tally::default(), |a, b| a + b);
    Ok(WriteResult { files: done.into_iter().map(|d| d.0).collect(), tally, sample })
}

/// What [`write`] did.
pub struct WriteResult {
    /// The files, one for each writer.
    pub files: Vec<Arc<RawFile>>,
    /// Of all writers together.
    pub tally: Tally,
    /// The figures.
    pub sample: Sample,
}

/// Reads parts of the records at once, a thread for each reader: figures a record.
///
/// # Errors
/// What the operating system says; `Stopped`.
pub fn read(experiment: &Experiment, records: &Records, readers: Vec<(Part, u64, Box<dyn Reader>)>) -> Result<Sample> {
    let count = readers.iter().map(|r| r.0.count).sum();
    let mut before = Usage::now();
    let of_one = batch(readers.iter().map(|r| r.0.count));
    let with_room = |(part, expected, reader)| (part, expected, reader, vec![0; records.longest()]);
    let readers = readers.into_iter().map(with_room).collect();
    let sampler = ProcessorSampler::default();
    let timed = BatchTimer { experiment, records, sampler: &sampler, of_one };
    let go = || {
        before = Usage::now();
        sampler.begin();
    };
    let (done, took) = together(readers, go, &|(part, expected, reader, record), zero| {
        let (sum, events) = timed.read(*part, &mut **reader, record, zero)?;
        Ok(((reader.calls(), sum == *expected), events))
    })?;
    let (done, events): (Vec<_>, Vec<_>) = done.into_iter().unzip();
    let used = Usage::now().since(&before);
    let mut sample = Sample { details: times(of_one, &events), ..Sample::default() };
    sample.details.processor = Some(sampler.end(took, (used.user, used.system)));
    per_record(&mut sample, count, &used, took.as_nanos() as f64);
    sample.metrics.push(("device_mib", "MiB", used.device_read_bytes as f64 / MIB));
    sample.counts.push(("calls", done.iter().map(|d| d.0).sum()));
    if done.iter().any(|d| !d.1) {
        sample.wrong = Some("the records read are not those written".into());
    }
    Ok(sample)
}

pub(crate) fn per_record(sample: &mut Sample, count: u64, used: &Usage, real_ns: f64) {
    let n = count.max(1) as f64;
    sample.metrics.push(("ns", "ns", real_ns / n));
    sample.metrics.push(("user_ns", "ns", used.user.as_nanos() as f64 / n));
    sample.metrics.push(("system_ns", "ns", used.system.as_nanos() as f64 / n));
    sample.metrics.push(("real_s", "s", real_ns / 1e9));
}

/// A run that takes less than this is mostly its beginning and its end.
const SHORT_S: f64 = 0.01;

/// What to say of rows whose runs were short.
#[must_use]
pub fn too_short(rows: &[Row]) -> Option<String> {
    let short = rows.iter().filter(|r| r.summary("real_s").is_some_and(|m| m.median < SHORT_S)).count();
    (short > 0).then(|| format!("{short} rows took less than {:.0} ms: take more --records.", 1000.0 * SHORT_S))
}

/// Is the file, from `start` on, what these records make? The reason if not.
///
/// # Errors
/// What the operating system says.
pub fn verify(path: &Path, start: u64, records: &Records, part: Part) -> Result<Option<String>> {
    let file = RawFile::open(path, RawOptions::default())?;
    let (size, want) = (file.size_bytes()?, start + records.bytes_of(part));
    if size != want {
        return Ok(Some(format!("the file has {size} bytes, not {want}")));
    }
    let mut reader = readers::open(Way::Cached, &Target { start, ..Target::new(path, 1 << 20) })?;
    compare(&mut *reader, records, part)
}

/// Are the records that a reader gives the right ones, byte for byte? The reason if not.
///
/// # Errors
/// What the operating system says.
pub fn compare(reader: &mut dyn Reader, records: &Records, part: Part) -> Result<Option<String>> {
    let mut record = vec![0; records.longest()];
    for i in part.range() {
        let record = &mut record[..records.length(i)];
        reader.take(record)?;
        if record != records.get(i) {
            return Ok(Some(format!("record {i} is not what was written")));
        }
    }
    Ok(None)
}

/// Makes a file of these records, for readers.
///
/// # Errors
/// What the operating system says; `Stopped`.
pub fn prepare(experiment: &Experiment, path: &Path, records: &Records, part: Part) -> Result<Arc<RawFile>> {
    let mut writer = writers::open(Way::Cached, &Target::new(path, 1 << 20))?;
    for i in part.range() {
        if i % BETWEEN_CHECKS == 0 {
            experiment.check()?;
        }
        writer.put(records.get(i))?;
    }
    Ok(writer.finish()?.0)
}

/// Empties a file, durably: what the file system does with the space it gets back (discards, say) is not left for
/// whatever is measured next.
///
/// # Errors
/// What the operating system says.
pub fn empty(file: &RawFile) -> Result<()> {
    file.set_size(0)?;
    Ok(file.sync(Barrier::Fsync)?)
}

/// Brings a file into the state of the cache that its name says.
///
/// # Errors
/// `Unsupported` when the kernel keeps it in memory.
pub fn set_cache(path: &Path, state: &str) -> Result<()> {
    let file = RawFile::open(path, RawOptions::default())?;
    if state == "warm" {
        let mut buffer = vec![0; 1 << 20];
        let mut at = 0;
        loop {
            match file.read_at(&mut buffer, at)? {
                0 => return Ok(()),
                n => at += n as u64,
            }
        }
    }
    file.sync(Barrier::Fsync)?;
    // Pages that were just read or written may sit in lists of single processors: they come free a little later.
    for _ in 0..20 {
        file.drop_cache();
        let share = file.cached_share()?;
        if share < 0.01 {
            return Ok(());
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let share = 100.0 * file.cached_share()?;
    Err(LabError::Unsupported(format!("{share:.0} percent of the file stay in memory, so it cannot be read cold")))
}
