//! `esker lab trace`: reads of a file one by one, each with its time, as Oracle's extended SQL trace (event 10046) prints
//! them, and what the times say about where the bytes came from.
//!
//! Whether a block was in the page cache is looked up before it is read; what served the others inside the device is
//! only inferred from their times, and says so. Reads of several blocks in one call stand beside reads of single ones,
//! and a second pass over the same blocks beside the first.

mod modes;
mod words;

use crate::doctor;
use crate::error::{LabError, Result};
use crate::experiment::Experiment;
use crate::needs::{product, Needs};
use crate::noise::{Noise, Stretches};
use crate::options::{Cache, CommonOptions};
use crate::probe::host::Usage;
use crate::probe::raw::{Barrier, RawFile, RawOptions};
use crate::report::Report;
use crate::units::{count, size, size_text};
use crate::writers::{region, DIRECT_UNIT};
use clap::{Args, ValueEnum};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// A file is cold when at most this share of it is in the page cache.
const MOST_CACHED: f64 = 0.01;
/// Name of the pass over blocks that were not read before.
const FIRST: &str = "first";

/// Why the kernel's word on the page cache is not taken.
const NOT_ASKED: &str = "the kernel tells that only to the file's owner and to who may write it (Linux 5.2 and later)";

/// Options of the command.
#[derive(Debug, Clone, Args)]
pub struct Options {
    #[command(flatten)]
    common: CommonOptions,
    /// The file to read; it is only read, and its pages leave the page cache only with --cache cold [default: one of
    /// 256M that is made]
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Bytes of a block
    #[arg(long, value_name = "SIZE", default_value = "8K", value_parser = size)]
    block: u64,
    /// Blocks of a read; several, with commas
    #[arg(long, value_name = "N", default_value = "1,8", value_delimiter = ',')]
    blocks: Vec<u64>,
    /// How many reads in a pass
    #[arg(long, value_name = "N", default_value = "1000", value_parser = count)]
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
    pub(crate) fn common(&self) -> &CommonOptions {
        &self.common
    }

    fn check(&self) -> Result<()> {
        let fits = |n: &u64| self.block.checked_mul(*n).is_some_and(|b| b > 0 && b <= 1 << 30);
        if !self.blocks.iter().all(fits) {
            return Err(LabError::Invalid("a read has between 1 byte and 1G: see --block and --blocks".into()));
        }
        if self.reads == 0 {
            return Err(LabError::Invalid("--reads must be at least 1".into()));
        }
        if self.direct && self.block % DIRECT_UNIT as u64 != 0 {
            return Err(LabError::Invalid(format!("with --direct, --block must be a multiple of {DIRECT_UNIT}")));
        }
        Ok(())
    }

    /// The passes that are reported; a warm one comes after one that is not.
    fn passes(&self) -> &'static [&'static str] {
        match self.common.cache() {
            Cache::Cold => &[FIRST],
            Cache::Warm => &["again"],
            Cache::Both => &[FIRST, "again"],
        }
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

/// The reads of one pass of one run.
#[derive(Debug)]
struct Pass {
    blocks: u64,
    name: &'static str,
    reads: Vec<Read>,
    noise: Noise,
    /// Bytes that the storage gave, as the kernel counts them.
    device_bytes: u64,
    /// Share of the file in the page cache before, 0 to 1.
    cached_share: f64,
    /// Why it was not, or not fully, read.
    ended: Option<LabError>,
}

impl Pass {
    /// Were these blocks read before?
    fn is_again(&self) -> bool {
        self.name != FIRST
    }
}

/// Reads and tells.
///
/// # Errors
/// Wrong options, no such file, no space.
pub fn run(options: &Options) -> Result<Report> {
    options.check()?;
    let mut experiment = Experiment::begin(&options.common, "trace")?;
    let steps = options.blocks.len() * options.passes().len();
    let memory_bytes = memory_bytes(options, steps * experiment.rounds())?;
    let path = match &options.file {
        Some(path) => {
            experiment.plan(steps, Needs { memory_bytes, ..Needs::default() })?;
            path.clone()
        }
        None => made(&mut experiment, steps, memory_bytes)?,
    };
    let source = Source::open(options, &path)?;
    let passes = all_passes(options, &experiment, &source)?;
    let name = path.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
    let (mut rows, mut notes) = words::rows(&passes, options.order == Order::Sequential);
    if !source.asks && !options.direct {
        words::without_residency(&mut rows);
        notes.push(format!("Nothing is known of the page cache: {NOT_ASKED}."));
    }
    if options.lines {
        notes.extend(words::lines(&passes, &name, options.direct));
    }
    Ok(Report {
        command: "trace",
        options: experiment.options(json!({
            "cache": options.common.cache().name(),
            "file": options.file.as_ref().map(|_| name), "block_bytes": options.block, "blocks": options.blocks,
            "reads": options.reads, "order": format!("{:?}", options.order).to_lowercase(), "direct": options.direct,
        })),
        machine: doctor::machine(&options.common.dir),
        params: vec!["blocks", "pass", "from"],
        shown: vec![
            ("us", "median us"),
            ("us_block", "us a block"),
            ("p99_us", "99% below"),
            ("longest_us", "longest us"),
        ],
        shown_counts: vec![("reads", "reads")],
        relative: None,
        null_difference: None,
        rows,
        notes,
        waited: experiment.waited(),
        ..Report::default()
    })
}

/// What a read takes: itself, once more among those of its row, its two figures, and these as JSON.
const READ_BYTES: u64 = 2 * size_of::<Read>() as u64 + 2 * 64;
/// And its line, which is printed at last.
const LINE_BYTES: u64 = 512;

/// A buffer, and all reads of so many passes, which are kept.
fn memory_bytes(options: &Options, passes: usize) -> Result<u64> {
    let buffer = options.blocks.iter().max().map_or(0, |n| n * options.block) + (2 << 20);
    let each = if options.lines { READ_BYTES + LINE_BYTES } else { READ_BYTES };
    Ok(buffer + product(&[options.reads, passes as u64, each])?)
}

/// A file to read, out of memory.
fn made(experiment: &mut Experiment, steps: usize, memory_bytes: u64) -> Result<PathBuf> {
    const BYTES: u64 = 256 << 20;
    experiment.plan(steps, Needs { written_bytes: BYTES, space_bytes: BYTES, memory_bytes, ..Needs::default() })?;
    let path = experiment.folder().join("data");
    let file = RawFile::open(&path, RawOptions { create: true, ..RawOptions::default() })?;
    let mut block = vec![0; 1 << 20];
    fastrand::Rng::with_seed(experiment.common().seed).fill(&mut block);
    for at in (0..BYTES).step_by(block.len()) {
        experiment.check()?;
        file.write_at(&block, at)?;
    }
    file.sync(Barrier::Fsync)?;
    Ok(path)
}

/// What is read.
struct Source {
    /// For looking at the page cache.
    plain: RawFile,
    file: RawFile,
    bytes: u64,
    /// May it be asked which pages lie in the page cache? Who neither owns a file nor may write it is told that all do.
    asks: bool,
    /// May its pages be dropped from the page cache?
    droppable: bool,
}

impl Source {
    fn open(options: &Options, path: &Path) -> Result<Source> {
        let plain = RawFile::open(path, RawOptions::default())?;
        let opened = RawFile::open(path, RawOptions { direct: options.direct, ..RawOptions::default() });
        let file = match opened {
            Err(e) if options.direct => return Err(LabError::Unsupported(format!("O_DIRECT: {e}"))),
            other => other?,
        };
        let bytes = plain.size_bytes()?;
        let most = options.blocks.iter().max().map_or(0, |n| n * options.block);
        if bytes < most {
            return Err(LabError::Invalid(format!("the file is shorter than a read of {}", size_text(most))));
        }
        let droppable = options.file.is_none() || options.common.cache() == Cache::Cold;
        let asks = plain.tells_residency();
        Ok(Source { plain, file, bytes, asks, droppable })
    }

    /// Out of memory, as far as that may be done and the kernel does it.
    fn drop_cache(&self) -> Result<()> {
        if self.droppable {
            self.plain.sync(Barrier::Fsync)?;
            self.plain.drop_cache();
        }
        Ok(())
    }
}

/// All passes of all runs; every other run takes the numbers of blocks backwards.
fn all_passes(options: &Options, experiment: &Experiment, source: &Source) -> Result<Vec<Pass>> {
    let began = Instant::now();
    let (mut passes, mut order) = (Vec::new(), options.blocks.clone());
    let all = experiment.rounds() * options.blocks.len() * options.passes().len();
    let mut stretches = Stretches::begin(experiment.device(), all);
    for run in 0..experiment.rounds() as u64 {
        for &blocks in &order {
            let places = Places::new(options, source.bytes / (blocks * options.block), run);
            source.drop_cache()?;
            if options.common.cache() == Cache::Warm {
                one_pass(options, experiment, source, (blocks, FIRST), &places, began)?;
            }
            for &name in options.passes() {
                experiment.step(&format!("{blocks} blocks, {name}"));
                passes.push(one_pass(options, experiment, source, (blocks, name), &places, began)?);
                stretches.did(passes.len() - 1);
            }
        }
        order.reverse();
    }
    passes
        .iter_mut()
        .zip(stretches.end(experiment.is_over()))
        .for_each(|(pass, noise): (&mut Pass, Noise)| pass.noise = noise);
    Ok(passes)
}

fn one_pass(
    options: &Options,
    experiment: &Experiment,
    source: &Source,
    (blocks, name): (u64, &'static str),
    places: &Places,
    began: Instant,
) -> Result<Pass> {
    let cached_share = if source.asks { source.plain.cached_share()? } else { 1.0 };
    let mut pass =
        Pass { blocks, name, reads: Vec::new(), noise: Noise::default(), device_bytes: 0, cached_share, ended: None };
    if options.common.cache() == Cache::Cold && !options.direct && cached_share > MOST_CACHED {
        let share = 100.0 * cached_share;
        pass.ended = Some(LabError::Unsupported(match source.asks {
            true => format!("{share:.0} percent of the file stay in memory"),
            false => format!("whether it is in memory cannot be known: {NOT_ASKED}"),
        }));
        return Ok(pass);
    }
    let bytes = blocks * options.block;
    let mut buffer = region(bytes as usize)?;
    let usage = Usage::now();
    for n in 0..options.reads {
        if experiment.is_over() {
            pass.ended = Some(LabError::Stopped);
            break;
        }
        let place = places.at(n);
        let cached = !options.direct && source.asks && source.plain.is_cached(place * bytes, bytes as usize)?;
        let start = Instant::now();
        source.file.read_at(&mut buffer, place * bytes)?;
        let ns = start.elapsed().as_nanos() as u64;
        pass.reads.push(Read { block: place * blocks, cached, ns, at_us: began.elapsed().as_micros() as u64 });
    }
    pass.device_bytes = Usage::now().since(&usage).device_read_bytes;
    Ok(pass)
}

/// Which places a pass reads: the same ones in the same order every time it is asked, others in another run.
struct Places {
    order: Order,
    count: u64,
    /// Without a common divisor with `count`: its multiples visit every place once.
    step: u64,
    /// Reads of the runs before.
    before: u64,
    seed: u64,
}

impl Places {
    fn new(options: &Options, count: u64, run: u64) -> Places {
        let step = (count as f64 * 0.618) as u64 | 1;
        let step = (step..).find(|s| divisor(*s, count) == 1).unwrap_or(1);
        let seed = options.common.seed.wrapping_add(run);
        Places {
            order: options.order,
            count,
            step,
            before: run.wrapping_mul(options.reads).wrapping_add(options.common.seed),
            seed,
        }
    }

    fn at(&self, n: u64) -> u64 {
        let n = n.wrapping_add(self.before);
        match self.order {
            Order::Sequential => n % self.count,
            Order::Random => (u128::from(n) * u128::from(self.step) % u128::from(self.count)) as u64,
            Order::Again => {
                fastrand::Rng::with_seed(self.seed ^ n.wrapping_mul(0x9E37)).u64(..(self.count / 100).max(1))
            }
        }
    }
}

fn divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}
