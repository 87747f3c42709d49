//! `esker lab trace`: reads of a file one by one, each with its time, as Oracle's extended SQL trace (event 10046) prints
//! them, and what the times say about where the bytes came from.
//!
//! Whether a block was in the page cache is looked up before it is read; what served the others inside the device is
//! only inferred from their times, and says so.

use crate::doctor;
use crate::error::{LabError, Result};
use crate::records::split_mix;
use crate::report::{Metric, Report, Row, Status};
use crate::session::{size, size_text, Common, Needs, Session};
use crate::writers::{region, DIRECT_UNIT};
use clap::{Args, ValueEnum};
use esker_io::raw::{Barrier, RawFile, RawOptions};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

/// Options of the command.
#[derive(Debug, Clone, Args)]
pub struct Options {
    #[command(flatten)]
    common: Common,
    /// The file to read [default: one of 256M that is made]
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Bytes of a block
    #[arg(long, value_name = "SIZE", default_value = "8K", value_parser = size)]
    block: u64,
    /// Blocks of a read
    #[arg(long, value_name = "N", default_value_t = 1)]
    blocks: u64,
    /// How many reads
    #[arg(long, value_name = "N", default_value_t = 1000)]
    reads: u64,
    /// Which blocks
    #[arg(long, value_enum, default_value_t = Order::Random)]
    order: Order,
    /// Past the page cache (O_DIRECT)
    #[arg(long)]
    direct: bool,
    /// Prints a line a read
    #[arg(long)]
    lines: bool,
}

impl Options {
    pub(crate) fn common(&self) -> &Common {
        &self.common
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Order {
    /// One after the other
    Sequential,
    /// Anywhere, each place once before any comes again
    Random,
    /// Anywhere within a hundredth of the file: most are read again and again
    Again,
}

/// One read.
#[derive(Debug, Clone, Copy)]
struct Read {
    block: u64,
    /// All of it lay in the page cache before.
    cached: bool,
    ns: u64,
    /// Microseconds since the trace began.
    at_us: u64,
}

/// Reads and tells.
///
/// # Errors
/// Wrong options, no such file, no space.
pub fn run(options: &Options) -> Result<Report> {
    let read_bytes = options.block.checked_mul(options.blocks).filter(|b| *b > 0 && *b <= 1 << 30);
    let Some(read_bytes) = read_bytes else {
        return Err(LabError::Invalid("a read has between 1 byte and 1G: see --block and --blocks".into()));
    };
    if options.direct && options.block % DIRECT_UNIT as u64 != 0 {
        return Err(LabError::Invalid(format!("with --direct, --block must be a multiple of {DIRECT_UNIT}")));
    }
    let mut session = Session::begin(&options.common, "trace")?;
    let path = match &options.file {
        Some(path) => path.clone(),
        None => made(&mut session)?,
    };
    let reads = trace(options, &session, &path, read_bytes)?;
    let name = path.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
    let event = if options.blocks == 1 { "db file sequential read" } else { "db file scattered read" };
    let mut notes = Vec::new();
    if options.lines {
        notes.extend(reads.iter().map(|r| {
            let (us, blocks) = (r.ns / 1000, options.blocks);
            format!("WAIT #1: nam='{event}' ela= {us} file={name} block#={} blocks={blocks} tim={}", r.block, r.at_us)
        }));
    }
    let rows = histogram(&reads);
    notes.extend(words(&reads));
    Ok(Report {
        command: "trace",
        options: session.options(json!({
            "file": options.file.as_ref().map(|_| name.clone()), "block_bytes": options.block, "blocks": options.blocks,
            "reads": options.reads, "order": format!("{:?}", options.order).to_lowercase(), "direct": options.direct,
            "read": size_text(read_bytes),
        })),
        machine: doctor::machine(&options.common.dir),
        params: vec!["from", "at least us", "less than us"],
        shown: vec![("us", "median us")],
        shown_counts: vec![("reads", "reads")],
        relative: None,
        null_difference: None,
        rows,
        notes,
    })
}

/// A file to read, out of memory.
fn made(session: &mut Session) -> Result<PathBuf> {
    const BYTES: u64 = 256 << 20;
    session.plan(1, Needs { written_bytes: BYTES, space_bytes: BYTES, ..Needs::default() })?;
    let path = session.folder().join("data");
    let file = RawFile::open(&path, RawOptions { create: true, ..RawOptions::default() })?;
    let mut state = session.common().seed;
    let block: Vec<u8> = (0..1 << 17).flat_map(|_| split_mix(&mut state).to_le_bytes()).collect();
    for at in (0..BYTES).step_by(block.len()) {
        session.check()?;
        file.write_at(&block, at)?;
    }
    file.sync(Barrier::Fsync)?;
    file.drop_cache();
    Ok(path)
}

fn trace(options: &Options, session: &Session, path: &std::path::Path, read_bytes: u64) -> Result<Vec<Read>> {
    let plain = RawFile::open(path, RawOptions::default())?;
    let file = if options.direct {
        let opened = RawFile::open(path, RawOptions { direct: true, ..RawOptions::default() });
        opened.map_err(|e| LabError::Unsupported(format!("O_DIRECT: {e}")))?
    } else {
        RawFile::open(path, RawOptions::default())?
    };
    let places = file.size_bytes()? / read_bytes;
    if places == 0 {
        return Err(LabError::Invalid(format!("the file is shorter than a read of {}", size_text(read_bytes))));
    }
    let mut buffer = region(read_bytes as usize)?;
    let mut state = options.common.seed;
    let (began, mut reads) = (Instant::now(), Vec::new());
    // A step without a common divisor visits every place once.
    let step = (places as f64 * 0.618) as u64 | 1;
    let step = (step..).find(|s| divisor(*s, places) == 1).unwrap_or(1);
    for n in 0..options.reads {
        if session.is_over() {
            break;
        }
        let place = match options.order {
            Order::Sequential => n % places,
            Order::Random => n.wrapping_mul(step) % places,
            Order::Again => split_mix(&mut state) % (places / 100).max(1),
        };
        let offset = place * read_bytes;
        let cached = !options.direct && plain.is_cached(offset, read_bytes as usize)?;
        let start = Instant::now();
        file.read_at(&mut buffer, offset)?;
        let ns = start.elapsed().as_nanos() as u64;
        let at_us = began.elapsed().as_micros() as u64;
        reads.push(Read { block: place * options.blocks, cached, ns, at_us });
    }
    Ok(reads)
}

fn divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// A row for each power of two of nanoseconds that occurs.
fn histogram(reads: &[Read]) -> Vec<Row> {
    let mut buckets: BTreeMap<(bool, u32), Vec<f64>> = BTreeMap::new();
    for r in reads {
        buckets.entry((!r.cached, r.ns.max(1).ilog2())).or_default().push(r.ns as f64 / 1000.0);
    }
    let row = |((device, bits), samples): ((bool, u32), Vec<f64>)| {
        let us = |bits: u32| format!("{:.3}", (1u64 << bits) as f64 / 1000.0);
        let counts = BTreeMap::from([("reads", samples.len() as u64)]);
        let from = if device { "device" } else { "page cache" };
        Row {
            params: vec![from.into(), us(bits), us(bits + 1)],
            metrics: BTreeMap::from([("us", Metric { unit: "us", samples })]),
            counts,
            base: None,
            noise: crate::noise::Noise::default(),
            status: Status::Good,
            details: crate::details::Details::default(),
        }
    };
    buckets.into_iter().map(row).collect()
}

/// What the times say.
fn words(reads: &[Read]) -> Vec<String> {
    let mut words = Vec::new();
    let mut of = |cached: bool, name: &str| {
        let mut us: Vec<f64> = reads.iter().filter(|r| r.cached == cached).map(|r| r.ns as f64 / 1000.0).collect();
        if us.is_empty() {
            return us;
        }
        us.sort_by(f64::total_cmp);
        let at = |share: f64| us[((us.len() - 1) as f64 * share) as usize];
        words.push(format!(
            "{name}: {} reads, median {:.1} us, 99 percent below {:.1} us, longest {:.1} us.",
            us.len(),
            at(0.5),
            at(0.99),
            at(1.0)
        ));
        us
    };
    of(true, "page cache (seen before the read)");
    let device = of(false, "device");
    let modes = modes(&device);
    if modes.len() > 1 {
        for (n, (from, to, count)) in modes.iter().enumerate() {
            let what = if n == 0 { "a cache of the device, or read ahead" } else { "the medium" };
            words.push(format!("inferred from the times: {count} reads of {from:.0} to {to:.0} us, from {what}."));
        }
    }
    if let Some(median) = device.get(device.len() / 2) {
        let outliers: Vec<&Read> = reads.iter().filter(|r| !r.cached && r.ns as f64 / 1000.0 > 20.0 * median).collect();
        for r in outliers.iter().take(10) {
            words.push(format!("outlier: block {} took {} us, at {} us of the trace.", r.block, r.ns / 1000, r.at_us));
        }
        if outliers.len() > 10 {
            words.push(format!("... and {} more outliers.", outliers.len() - 10));
        }
    }
    words
}

/// Groups of sorted times with a gap between them: at least a factor of three without reads, each with at least two
/// percent of them. From, to, count.
fn modes(sorted: &[f64]) -> Vec<(f64, f64, usize)> {
    let mut groups: Vec<(f64, f64, usize)> = Vec::new();
    for &us in sorted {
        match groups.last_mut() {
            Some(g) if us <= 3.0 * g.1 => (g.1, g.2) = (us, g.2 + 1),
            _ => groups.push((us, us, 1)),
        }
    }
    groups.retain(|g| g.2 * 50 >= sorted.len());
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_told_by_their_gap() {
        let mut times: Vec<f64> = (0..50).map(|n| 80.0 + f64::from(n)).collect();
        times.extend((0..50).map(|n| 5000.0 + 100.0 * f64::from(n)));
        times.push(1e6);
        assert_eq!(modes(&times).iter().map(|m| m.2).collect::<Vec<_>>(), [50, 50]);
        assert!(modes(&[]).is_empty());
    }
}
