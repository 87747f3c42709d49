//! `esker lab buffer`: how large should a buffer be? Every size from small to large, with the writes that it makes
//! counted and held against what its rule demands.

mod append;

use crate::doctor;
use crate::error::{LabError, Result};
use crate::experiment::{Case, Experiment, Sample, Work};
use crate::measure;
use crate::needs::{product, Needs};
use crate::options::{ignored, Cache, CommonOptions};
use crate::probe::host::{DeviceWrites, Usage};
use crate::probe::raw::{RawFile, RawOptions};
use crate::readers::{self, Buffered, Reader};
use crate::records::{myisam, Records, Shape};
use crate::report::{null_difference, Report};
use crate::theory::{read_tally, tally, Rule, Tally};
use crate::units::{count, size, size_text};
use crate::writers::engine::UNIT;
use crate::writers::{self, Cached, Target, Way, Writer};
use clap::{Args, ValueEnum};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The file that records are appended to ends here: off every boundary (the source's example).
const APPEND_START: u64 = 133_900;
const APPEND_BUFFER: usize = 128 << 10;

/// Options of the command.
#[derive(Debug, Clone, Args)]
pub struct Options {
    #[command(flatten)]
    common: CommonOptions,
    /// How many records
    #[arg(long, value_name = "N", default_value = "1M", value_parser = count)]
    records: u64,
    /// Bytes of a record; dynamic ones are from 18 parts in 25 of it up, with --model myisam in blocks as MyISAM's
    #[arg(long, value_name = "BYTES", default_value_t = 103, value_parser = record_bytes)]
    record_bytes: usize,
    /// Whose rule says when the buffer is written
    #[arg(long, value_enum, default_value_t = Model::Esker)]
    model: Model,
    /// IO_SIZE of the MyISAM model in bytes: 64 in the source's build, 4096 in today's [default: 64]
    #[arg(long, value_name = "BYTES", value_parser = size)]
    io_size: Option<u64>,
    /// The smallest buffer
    #[arg(long, value_name = "SIZE", default_value = "128", value_parser = size)]
    from: u64,
    /// The largest buffer [default: the first that takes all records, at most 1G]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    to: Option<u64>,
}

impl Options {
    pub(crate) fn common(&self) -> &CommonOptions {
        &self.common
    }

    /// The dynamic rows of the model.
    fn dynamic(&self) -> Shape {
        match self.model {
            Model::Esker => Shape::Dynamic,
            Model::Myisam => Shape::Blocks,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Model {
    /// Filled to the last byte, then written; and the engine's own writer, with the sizes that it can have
    Esker,
    /// MyISAM's write cache
    Myisam,
}

/// Bytes of a record, 1 to 16 MiB.
///
/// # Errors
/// When it is none.
pub fn record_bytes(text: &str) -> std::result::Result<usize, String> {
    match size(text)? {
        n @ 1..=0x100_0000 => Ok(n as usize),
        _ => Err("a record has 1 byte to 16M".into()),
    }
}

/// Measures.
///
/// # Errors
/// Wrong options, no space, no folder.
pub fn run(options: &Options) -> Result<Report> {
    let (rule, io_size) = rule(options)?;
    let (sizes, to) = sizes(options)?;
    if options.model == Model::Myisam && options.record_bytes > myisam::LONGEST_ROW {
        return Err(LabError::Invalid(format!("MyISAM parts rows of more than {} bytes", myisam::LONGEST_ROW)));
    }
    let shapes = [Shape::Static, options.dynamic()]
        .map(|shape| (shape, Records::new(shape, options.record_bytes, options.records, options.common.seed)));
    let mut experiment = Experiment::begin(&options.common, "buffer")?;
    let ways = ways(options, &sizes);
    experiment.plan(ways.len() * 4 + 4, needs(options, experiment.rounds() as u64, &ways, &shapes))?;
    let mut cases = Vec::new();
    for (shape, records) in &shapes {
        add_cases(&mut cases, &experiment, (*shape, records), rule, &ways);
    }
    prepare_reads(&experiment, &shapes)?;
    let rows = experiment.run(&mut cases);
    let mut notes = notes(options, rule, &sizes);
    notes.extend(measure::too_short(&rows));
    notes.extend(shapes.iter().map(|(shape, records)| lengths_note(*shape, records)));
    Ok(Report {
        command: "buffer",
        options: experiment.options(json!({
            "cache": options.common.cache.unwrap_or(Cache::Warm).name(),
            "records": options.records, "record_bytes": options.record_bytes, "model": rule.name(),
            "io_size": io_size, "from": options.from, "to": to,
        })),
        machine: doctor::machine(&options.common.dir),
        params: vec!["do", "records", "way", "buffer"],
        shown: vec![
            ("ns", "ns a record"),
            ("user_ns", "user ns"),
            ("system_ns", "system ns"),
            ("durable_s", "s durable"),
            ("process_calls", "process's calls"),
            ("device_requests", "device's"),
            ("tail_reads", "tail pages read"),
        ],
        shown_counts: vec![
            ("overflows", "overflows"),
            ("direct", "direct"),
            ("last", "last"),
            ("calls", "calls"),
            ("expected", "by theory"),
        ],
        relative: Some("ns"),
        null_difference: null_difference(&rows, "ns"),
        rows,
        notes,
        waited: experiment.waited(),
        ..Report::default()
    })
}

/// The rule by which the buffer is written, and IO_SIZE.
fn rule(options: &Options) -> Result<(Rule, u64)> {
    if options.common.cache == Some(Cache::Both) {
        return Err(LabError::Invalid("buffer reads either cold or warm: --cache cold, or --cache warm".into()));
    }
    if options.model == Model::Esker && options.io_size.is_some() {
        return Err(ignored("--io-size", "it is of --model myisam"));
    }
    let io_size = options.io_size.unwrap_or(64);
    match options.model {
        Model::Esker => Ok((Rule::Fill, io_size)),
        Model::Myisam if io_size.is_power_of_two() && io_size <= 1 << 16 => {
            Ok((Rule::MyIsam(io_size as usize), io_size))
        }
        Model::Myisam => Err(LabError::Invalid("--io-size must be a power of two, at most 64K".into())),
    }
}

/// The buffers, each twice the one before, and what none is larger than.
fn sizes(options: &Options) -> Result<(Vec<usize>, u64)> {
    if options.records == 0 {
        return Err(LabError::Invalid("--records must be at least 1".into()));
    }
    let longest = product(&[options.record_bytes as u64, options.records])?;
    let enough = longest.checked_next_power_of_two().unwrap_or(u64::MAX).min(1 << 30);
    let to = options.to.unwrap_or(enough.max(options.from));
    if options.from == 0 || to < options.from || to > 4 << 30 {
        return Err(LabError::Invalid("buffers go from at least 1 byte to at most 4G".into()));
    }
    let doubled = std::iter::successors(Some(options.from), |b| b.checked_mul(2)).take_while(|b| *b <= to);
    Ok((doubled.map(|b| b as usize).collect(), to))
}

/// Can the engine's own writer have this buffer?
fn is_own(options: &Options, buffer: usize) -> bool {
    options.model == Model::Esker && buffer as u64 % UNIT == 0
}

/// Each buffer by each way that can have it.
fn ways(options: &Options, sizes: &[usize]) -> Vec<(Way, usize)> {
    let both = sizes.iter().flat_map(|&buffer| [(Way::Cached, buffer), (Way::Esker, buffer)]);
    both.filter(|(way, buffer)| *way == Way::Cached || is_own(options, *buffer)).collect()
}

/// Records of one shape, written and read with every buffer, and appended with one.
fn add_cases<'a>(
    cases: &mut Vec<Case<'a>>,
    experiment: &Experiment,
    (shape, records): (Shape, &'a Records),
    rule: Rule,
    ways: &[(Way, usize)],
) {
    let sum = records.sum(records.all());
    // 100 percent is the buffer that MyISAM has by default, where it is among them: of each way its own.
    let here = cases.len();
    let usual = |way| ways.iter().position(|c| *c == (way, APPEND_BUFFER)).map(|at| here + 2 * at);
    for &(way, buffer) in ways {
        let job = Job { experiment, shape, records, rule, way, buffer };
        cases.push(Case { base: usual(way), ..job.writing("write") });
        cases.push(Case { base: usual(way).map(|at| at + 1), ..job.reading(sum) });
    }
    let first = cases.len();
    for (rule, what) in [(Rule::Fill, "append"), (Rule::Aligned(4096), "append aligned")] {
        let job = Job { experiment, shape, records, rule, way: Way::Cached, buffer: APPEND_BUFFER };
        cases.push(Case { base: Some(first), ..job.appending(what) });
    }
}

/// Makes the files that are read.
fn prepare_reads(experiment: &Experiment, shapes: &[(Shape, Records)]) -> Result<()> {
    for (shape, records) in shapes {
        match measure::prepare(experiment, &read_path(experiment, *shape), records, records.all()) {
            // The rows say it.
            Ok(_) | Err(LabError::Stopped) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// What a reader of the table must know.
fn notes(options: &Options, rule: Rule, sizes: &[usize]) -> Vec<String> {
    let mut notes = vec![
        format!("Writes and reads are counted and equal what the rule '{}' demands, or the row is void.", rule.name()),
        format!(
            "Percent is of a buffer of {} of the same way. The device's requests are those of everybody.",
            size_text(APPEND_BUFFER as u64)
        ),
    ];
    let every = sizes.iter().all(|buffer| is_own(options, *buffer));
    notes.extend((options.model == Model::Esker).then(|| own_words(every)));
    notes
}

/// How long the records of a shape are.
fn lengths_note(shape: Shape, records: &Records) -> String {
    let (count, bytes) = (records.count, records.total_bytes());
    let mean = bytes as f64 / count.max(1) as f64;
    format!(
        "{}: {count} records, {bytes} bytes, {mean:.1} each: so many bytes over the buffer's are its overflows.",
        shape.name()
    )
}

/// What to say of the engine's own way, measured with every size or only with some.
fn own_words(every: bool) -> String {
    let words = "'esker' is the engine's own writer and file layer as a server sets them where memory is not short: through the \
                 page cache, each buffer on its way to the device at once; it ends with its own fsync, which is in 'ns a \
                 record' too: 's durable' is what compares the ways.";
    let piece = esker::Options::default().bulk_buffer_bytes / 4;
    match every {
        true => format!("{words} A server's buffer is {} by default.", size_text(piece as u64)),
        false => format!("{words} Its buffers are multiples of {}: with others it is not measured.", size_text(UNIT)),
    }
}

/// What all runs take.
fn needs(options: &Options, runs: u64, all: &[(Way, usize)], shapes: &[(Shape, Records)]) -> Needs {
    let bytes: u64 = shapes.iter().map(|(_, r)| r.total_bytes()).sum();
    let records: u64 =
        [Shape::Static, options.dynamic()].iter().map(|s| Records::memory_bytes(*s, options.record_bytes)).sum();
    let calls = |r: &Records| all.iter().map(|c| 2 * r.total_bytes() / c.1 as u64).sum::<u64>();
    Needs {
        written_bytes: bytes.saturating_mul((all.len() as u64 + 2) * runs),
        space_bytes: 2 * bytes + APPEND_START,
        calls: shapes.iter().map(|(_, r)| calls(r)).fold(0, u64::saturating_add).saturating_mul(runs),
        barriers: 2 * (all.len() as u64 + 2) * runs,
        // Buffers, what records are cut from, and a buffer to verify with.
        memory_bytes: all.iter().map(|case| case.1 as u64).max().unwrap_or(0)
            + (4 << 20)
            + records
            + measure::memory_of_times(5 * (all.len() + 2), options.records, 1),
        less: "--records",
        // A record is copied in some 20 ns, in and out.
        seconds: (shapes.len() * 2 * all.len()) as f64 * options.records as f64 * runs as f64 * 20e-9,
        ..Needs::default()
    }
}

fn read_path(experiment: &Experiment, shape: Shape) -> PathBuf {
    experiment.folder().join(format!("read-{}", shape.name()))
}

/// A writer of a new file.
fn writer(path: &Path, way: Way, buffer: usize, rule: Rule) -> Result<Box<dyn Writer>> {
    if way == Way::Esker {
        return writers::open(way, &Target::new(path, buffer));
    }
    let file = Arc::new(RawFile::open(path, RawOptions { create: true, ..RawOptions::default() })?);
    Ok(Box::new(Cached::new(file, 0, buffer, rule)?))
}

fn reader(path: &Path, way: Way, buffer: usize, rule: Rule) -> Result<Box<dyn Reader>> {
    if way == Way::Esker {
        return readers::open(way, &Target::new(path, buffer));
    }
    Ok(Box::new(Buffered::new(Arc::new(RawFile::open(path, RawOptions::default())?), 0, buffer, rule)?))
}

/// The writes that were counted, and the calls that were seen: both must be what the rule demands.
fn count_writes(sample: &mut Sample, counted: Tally, demanded: Tally, calls: u64) {
    let Tally { overflows, direct, last, .. } = counted;
    sample.counts = vec![
        ("overflows", overflows),
        ("direct", direct),
        ("last", last),
        ("calls", calls),
        ("expected", demanded.writes()),
    ];
    if counted != demanded || calls != demanded.writes() {
        sample.wrong = Some(format!("{counted:?} and {calls} calls, not {demanded:?}"));
    }
}

/// What a case is about.
struct Job<'a, 's> {
    experiment: &'s Experiment,
    shape: Shape,
    records: &'a Records,
    rule: Rule,
    way: Way,
    buffer: usize,
}

impl<'a> Job<'a, '_> {
    fn case(&self, what: &str, work: Work<'a>) -> Case<'a> {
        let (way, buffer) = (self.way.name().into(), size_text(self.buffer as u64));
        let params = vec![what.into(), self.shape.name().into(), way, buffer];
        Case { params, base: None, work }
    }

    fn writing(&self, what: &str) -> Case<'a> {
        let path = self.experiment.folder().join("written");
        let (records, rule, way, buffer) = (self.records, self.rule, self.way, self.buffer);
        let demanded = tally(rule, buffer, 0, (0..records.count).map(|i| records.length(i)));
        let mut verified = false;
        let work = move |experiment: &Experiment| {
            let writer = writer(&path, way, buffer, rule)?;
            let (calls, requests) = (Usage::now(), DeviceWrites::now(experiment.device()));
            let written = measure::write(experiment, records, vec![(records.all(), writer)])?;
            let (file, mut sample) = (&written.files[0], written.sample);
            let calls = Usage::now().since(&calls);
            // Not ours alone: whatever else the process writes is in it.
            sample.metrics.push(("process_calls", "", calls.write_calls as f64));
            if let (Some(before), Some(now)) = (requests, DeviceWrites::now(experiment.device())) {
                sample.metrics.push(("device_requests", "", now.requests.saturating_sub(before.requests) as f64));
            }
            count_writes(&mut sample, written.tally, demanded, file.writes());
            if !verified {
                sample.wrong = sample.wrong.or(measure::verify(&path, 0, records, records.all())?);
                verified = true;
            }
            measure::empty(file)?;
            Ok(sample)
        };
        self.case(what, Box::new(work))
    }

    fn reading(&self, sum: u64) -> Case<'a> {
        let path = read_path(self.experiment, self.shape);
        let (records, rule, way, buffer) = (self.records, self.rule, self.way, self.buffer);
        let state = if self.experiment.common().cache() == Cache::Cold { "cold" } else { "warm" };
        let demanded = match way {
            // A buffer a call, whatever records want.
            Way::Esker => records.total_bytes().div_ceil(buffer as u64),
            _ => {
                let lengths = (0..records.count).map(|i| records.length(i));
                let demanded = read_tally(rule, buffer, records.total_bytes(), lengths);
                demanded.fills + demanded.straight
            }
        };
        let work = move |experiment: &Experiment| {
            measure::set_cache(&path, state)?;
            let reader = reader(&path, way, buffer, rule)?;
            let calls = Usage::now();
            let mut sample = measure::read(experiment, records, vec![(records.all(), sum, reader)])?;
            let process = Usage::now().since(&calls).read_calls;
            sample.metrics.push(("process_calls", "", process as f64));
            let calls = sample.counts.iter().find(|c| c.0 == "calls").map_or(0, |c| c.1);
            sample.counts.push(("expected", demanded));
            if calls != demanded {
                sample.wrong = Some(format!("{calls} read calls, not {demanded}"));
            }
            Ok(sample)
        };
        self.case(&format!("read {state}"), Box::new(work))
    }
}
