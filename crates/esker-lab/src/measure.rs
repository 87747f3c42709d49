//! The measured parts that several commands share: writing all records, reading them, and the cost of both.

use crate::error::{LabError, Result};
use crate::readers::{self, Reader};
use crate::records::{sum_of, Records};
use crate::session::{Sample, Session};
use crate::theory::Tally;
use crate::writers::{Way, Writer};
use esker_io::host::Usage;
use esker_io::raw::{Barrier, RawFile, RawOptions};
use std::path::Path;
use std::time::Instant;

/// Records between two looks at the clock.
const BETWEEN_CHECKS: u64 = 1 << 16;

/// Writes all records and makes them durable: the file, what was written, and figures a record.
///
/// # Errors
/// What the operating system says; `Stopped`.
pub fn write(session: &Session, records: &Records, mut writer: Box<dyn Writer>) -> Result<(RawFile, Tally, Sample)> {
    let before = Usage::now();
    let began = Instant::now();
    for i in 0..records.count {
        if i % BETWEEN_CHECKS == 0 {
            session.check()?;
        }
        writer.put(records.get(i))?;
    }
    let (file, tally) = writer.finish()?;
    let accepted = began.elapsed();
    let used = Usage::now().since(&before);
    file.sync(Barrier::Fdatasync)?;
    let durable = began.elapsed();
    let moved = Usage::now().since(&before);
    let mut sample = Sample::default();
    per_record(&mut sample, records, &used, accepted.as_nanos() as f64);
    sample.metrics.push(("durable_s", "s", durable.as_secs_f64()));
    sample.metrics.push(("device_bytes", "bytes", moved.device_write_bytes as f64));
    Ok((file, tally, sample))
}

/// Reads all records: figures a record.
///
/// # Errors
/// What the operating system says; `Stopped`.
pub fn read(session: &Session, records: &Records, expected_sum: u64, mut reader: Box<dyn Reader>) -> Result<Sample> {
    let mut record = vec![0; records.longest()];
    let before = Usage::now();
    let began = Instant::now();
    let mut sum = 0;
    for i in 0..records.count {
        if i % BETWEEN_CHECKS == 0 {
            session.check()?;
        }
        let record = &mut record[..records.length(i)];
        reader.take(record)?;
        sum = sum_of(sum, record);
    }
    let took = began.elapsed();
    let used = Usage::now().since(&before);
    let mut sample = Sample::default();
    per_record(&mut sample, records, &used, took.as_nanos() as f64);
    sample.metrics.push(("device_bytes", "bytes", used.device_read_bytes as f64));
    sample.counts.push(("calls", reader.calls()));
    if sum != expected_sum {
        sample.wrong = Some("the records read are not those written".into());
    }
    Ok(sample)
}

fn per_record(sample: &mut Sample, records: &Records, used: &Usage, real_ns: f64) {
    let n = records.count.max(1) as f64;
    sample.metrics.push(("ns", "ns", real_ns / n));
    sample.metrics.push(("user_ns", "ns", used.user.as_nanos() as f64 / n));
    sample.metrics.push(("system_ns", "ns", used.system.as_nanos() as f64 / n));
}

/// Is the file what the records make? The reason if not.
///
/// # Errors
/// What the operating system says.
pub fn verify(path: &Path, start: u64, records: &Records) -> Result<Option<String>> {
    let file = RawFile::open(path, RawOptions::default())?;
    let (size, want) = (file.size_bytes()?, start + records.total_bytes());
    if size != want {
        return Ok(Some(format!("the file has {size} bytes, not {want}")));
    }
    let mut reader = readers::open(Way::Cached, path, 1 << 20)?;
    let mut record = vec![0; records.longest().max(4096)];
    let mut skip = start;
    while skip > 0 {
        let n = skip.min(4096);
        reader.take(&mut record[..n as usize])?;
        skip -= n;
    }
    for i in 0..records.count {
        let record = &mut record[..records.length(i)];
        reader.take(record)?;
        if record != records.get(i) {
            return Ok(Some(format!("record {i} is not what was written")));
        }
    }
    Ok(None)
}

/// Brings a file into the state of the cache that its name says.
///
/// # Errors
/// `Unsupported` when the kernel keeps it in memory.
pub fn set_cache(path: &Path, state: &str) -> Result<()> {
    let file = RawFile::open(path, RawOptions { write: true, ..RawOptions::default() })?;
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
