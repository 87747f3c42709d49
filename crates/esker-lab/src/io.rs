//! `esker lab io`: six ways to write and read records of a file, compared.

mod clients;
mod mixed;
mod options;

use crate::error::{LabError, Result};
use crate::experiment::{Case, Experiment, Work};
use crate::measure;
use crate::needs::Needs;
use crate::probe::raw::{Barrier, RawFile, RawOptions};
use crate::probe::MemoryGroup;
use crate::records::{sum_of, Part, Records, Shape};
use crate::report::{join, null_difference, Report, Row, Status};
use crate::units::size_text;
use crate::writers::{self, Target, Way, DIRECT_UNIT};
use crate::{doctor, flow, readers};
pub use options::Options;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// What the source began with, and doubled to.
const FIRST: u64 = 10_000_000;
const LAST: u64 = 1_280_000_000;
/// The default number of records is one that fits this time, in seconds.
const FITS_SECONDS: f64 = 120.0;

/// Measures.
///
/// # Errors
/// Wrong options, no space, no folder, no memory group.
pub fn run(options: &Options) -> Result<Report> {
    options.check()?;
    let mut experiment = Experiment::begin(&options.common, "io")?;
    let group = options.ram.map(MemoryGroup::enter).transpose();
    let _group = group.map_err(|e| LabError::Unsupported(format!("--ram: {e}")))?;
    let sizes = sizes(options, &experiment)?;
    let ways = options.ways();
    let sides = options.states().len() + usize::from(options.writes() && options.clients.mixed().is_none());
    let needs = needs(options, &sizes, sides as u64, experiment.rounds() as u64);
    experiment.plan(ways.len() * sides * sizes.len(), needs)?;
    let probe =
        RawFile::open(&experiment.folder().join("probe"), RawOptions { create: true, ..RawOptions::default() })?;
    let queue = flow::who(&Arc::new(probe));
    let rows = of_sizes(options, &experiment, &ways, &sizes)?;
    let mut notes = notes(options, &ways, &sizes, &queue);
    notes.extend(measure::too_short(&rows));
    notes.extend(options.ram.map(|ram| format!("Within {} of memory, page cache included.", size_text(ram))));
    Ok(Report {
        command: "io",
        options: experiment.options(json!({
            "cache": options.common.cache().name(),
            "records": sizes, "record_bytes": options.record_bytes, "buffer_bytes": options.buffer(),
            "depth": options.depth(), "existing": options.existing, "clients": options.clients(),
            "readers": options.clients.mixed().map(|m| m.0), "writers": options.clients.mixed().map(|m| m.1),
            "only": options.only.map(|o| format!("{o:?}").to_lowercase()), "file": options.file.as_ref().map(|_| true),
            "window_bytes": options.window_bytes(), "madvise": options.madvise.map(|a| format!("{a:?}").to_lowercase()),
            "one_file": options.one_file, "ram_bytes": options.ram,
            "ways": ways.iter().map(|w| w.name()).collect::<Vec<_>>(),
        })),
        machine: doctor::machine(&options.common.dir),
        params: vec!["records", "do", "way"],
        shown: shown(options),
        shown_counts: vec![("calls", "reads, writes")],
        relative: Some("ns"),
        null_difference: null_difference(&rows, "ns"),
        notes,
        rows,
        waited: experiment.waited(),
        ..Report::default()
    })
}

/// What all runs take; `sides`: writing, and reading in each state of the cache.
fn needs(options: &Options, sizes: &[u64], sides: u64, runs: u64) -> Needs {
    let ways = options.ways().len() as u64;
    let states = options.states().len() as u64;
    let bytes = |n: &u64| n.saturating_mul(options.record_bytes as u64);
    let (most, all) =
        (sizes.iter().map(bytes).max().unwrap_or(0), sizes.iter().map(bytes).fold(0, u64::saturating_add));
    let written = match options.writes() {
        true => ways * if options.clients.mixed().is_some() { states } else { 1 },
        false => 0,
    };
    let files = u64::from(options.writes()) + u64::from(options.file.is_none() && states > 0);
    let largest = sizes.iter().max().copied().unwrap_or(0);
    let rows = (ways + 1) * sides * sizes.len() as u64;
    let times = measure::memory_of_times(rows as usize, largest, options.clients());
    Needs {
        // The file that is read is written, too.
        written_bytes: all.saturating_mul(written + 1).saturating_mul(runs),
        space_bytes: most.saturating_mul(files).saturating_add(options.window_space()),
        calls: sizes.iter().copied().fold(0, u64::saturating_add).saturating_mul(2 * sides * runs),
        barriers: ways * sizes.len() as u64 * runs,
        memory_bytes: options.memory_bytes(largest).saturating_add(times),
        less: "--records, --clients or --window",
        ..Needs::default()
    }
}

/// All ways with every number of records. What was measured before something failed stays.
fn of_sizes(options: &Options, experiment: &Experiment, ways: &[Way], sizes: &[u64]) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for &count in sizes {
        match of_size(options, experiment, ways, count) {
            Ok(more) => join(&mut rows, more),
            Err(e) if rows.is_empty() => return Err(e),
            Err(e) => {
                let params = vec![count.to_string(), "all".into(), "all".into()];
                rows.push(Row::without_figures(params, Status::Failed(e.to_string())));
                break;
            }
        }
    }
    Ok(rows)
}

/// What a reader of the table must know; `queue`: who does what is asked for in the background.
fn notes(options: &Options, ways: &[Way], sizes: &[u64], queue: &str) -> Vec<String> {
    let mut notes = vec![
        format!(
            "Records of {} bytes, buffers of {}. Percent is of '{}'.",
            options.record_bytes,
            size_text(options.buffer()),
            ways.first().map_or("", |w| w.name()),
        ),
        format!("'background' and 'direct' (depth {}): by {queue}.", options.depth()),
        "'esker' is the engine's own writer and file layer as a server sets them; it ends with its own fsync, which is in \
         'accepted' too.".into(),
        "'accepted' ends when the kernel has taken everything, 'durable' when fdatasync has returned.".into(),
    ];
    if let Some(most) = sizes.last().filter(|n| options.full && **n < LAST) {
        notes.push(format!("For {} records and more there is no space: not measured.", most * 2));
    }
    if let Some((readers, writers)) = options.clients.mixed() {
        notes.push(format!(
            "{readers} read and {writers} write at once, files of their own; 'percent' is of both together."
        ));
    } else if options.clients() > 1 {
        let files = if options.in_one() { "one file, each in its part" } else { "files of their own" };
        notes.push(format!("{} clients at once on {files}; times are of all records together.", options.clients()));
    }
    notes
}

/// Figures to look at first.
fn shown(options: &Options) -> Vec<(&'static str, &'static str)> {
    let mut shown = vec![("ns", "ns a record"), ("real_s", "s accepted")];
    if options.clients.mixed().is_some() {
        shown.extend([("read_ns", "ns a record read"), ("write_ns", "ns a record written")]);
    }
    if options.writes() {
        shown.push(("durable_s", "s durable"));
    }
    shown.extend([("user_ns", "user ns"), ("system_ns", "system ns"), ("device_mib", "MiB at device")]);
    shown
}

/// Records that a file has.
fn in_file(path: &Path, options: &Options) -> Result<u64> {
    let bytes = RawFile::open(path, RawOptions::default())?.size_bytes()?;
    match bytes / options.record_bytes as u64 {
        0 => Err(LabError::Invalid(format!("{} has not one record of {} bytes", path.display(), options.record_bytes))),
        records => Ok(records),
    }
}

/// How many records: what was asked for, or what fits time and space.
fn sizes(options: &Options, experiment: &Experiment) -> Result<Vec<u64>> {
    if let Some(path) = &options.file {
        let there = in_file(path, options)?;
        if let Some(more) = options.records.iter().find(|n| **n > there) {
            return Err(LabError::Invalid(format!(
                "--records {more}: {} has {there} of {} bytes",
                path.display(),
                options.record_bytes
            )));
        }
        return Ok(if options.records.is_empty() { vec![there] } else { options.records.clone() });
    }
    if !options.records.is_empty() {
        return Ok(options.records.clone());
    }
    let space = options.common.max_space.unwrap_or(u64::MAX).min(experiment.free_bytes()? / 2);
    let fits = |n: &u64| n * 2 * options.record_bytes as u64 + options.window_space() < space;
    let doubling =
        |first: u64, last: u64| std::iter::successors(Some(first), |n| Some(n * 2)).take_while(move |n| *n <= last);
    if options.full {
        let sizes: Vec<u64> = doubling(FIRST, LAST).filter(fits).collect();
        return match sizes.is_empty() {
            true => Err(LabError::Space("there is no space for 10 million records, twice".into())),
            false => Ok(sizes),
        };
    }
    let least = FIRST >> 10;
    if !fits(&least) {
        // The plan says so.
        return Ok(vec![least]);
    }
    let time = options.common.max_time.map_or(FITS_SECONDS, |most| most.as_secs_f64().min(FITS_SECONDS));
    let runs = experiment.rounds() as f64;
    let second = probe(options, experiment)? * runs * (1 + options.states().len()) as f64;
    // Half of it: what is out of memory takes longer than the probe.
    let most = (time / 2.0 / second) as u64;
    Ok(vec![doubling(least, FIRST).filter(|n| fits(n) && *n <= most).last().unwrap_or(least)])
}

/// Seconds that all ways together take to write a record, by a short look.
fn probe(options: &Options, experiment: &Experiment) -> Result<f64> {
    let records = options.records(20_000);
    let path = experiment.folder().join("written");
    let target = Target { existing: false, end: records.total_bytes(), ..options.target(&path) };
    let began = Instant::now();
    for way in options.ways() {
        let writer = match writers::open(way, &target) {
            Err(LabError::Unsupported(_)) => continue,
            writer => writer?,
        };
        measure::write(experiment, &records, vec![(records.all(), writer)])?;
    }
    Ok(began.elapsed().as_secs_f64() / records.count as f64)
}

/// All ways with so many records.
fn of_size(options: &Options, experiment: &Experiment, ways: &[Way], count: u64) -> Result<Vec<Row>> {
    let records = options.records(count);
    let readers = parts(options, &records, options.clients.readers())?;
    let writers = parts(options, &records, options.clients.writers())?;
    let sources = files(options, experiment, "read", &readers);
    let sums = match &options.file {
        Some(_) => sums_of(experiment, &records, &readers, &sources)?,
        None => readers.iter().map(|p| records.sum(*p)).collect(),
    };
    if options.file.is_none() && !options.states().is_empty() {
        let prepare =
            |(part, target): (&Part, &Target)| measure::prepare(experiment, &target.path, &records, *part).map(drop);
        let prepared = match options.one_file {
            true => prepare((&records.all(), &sources[0])),
            false => readers.iter().zip(&sources).try_for_each(prepare),
        };
        match prepared {
            Err(LabError::Stopped) => {}
            prepared => prepared?,
        }
    }
    let mut cases = Vec::new();
    let mixed = options.clients.mixed().is_some();
    let write = std::iter::once("").filter(|_| options.writes() && !mixed);
    for state in write.chain(options.states().iter().copied()) {
        let base = cases.len();
        for &way in ways {
            let what = match (state, mixed) {
                ("", _) => "write".to_owned(),
                (_, true) => format!("mixed {state}"),
                _ => format!("read {state}"),
            };
            let written = || files(options, experiment, "written", &writers);
            let reading = Job { records: &records, parts: &readers, way, options };
            let writing = Job { parts: &writers, ..reading };
            let work: Work<'_> = match (state, mixed) {
                ("", _) => writing.writing(written()),
                (state, true) => mixed::work((reading, sources.clone(), &sums), (writing, written()), state),
                (state, false) => reading.reading(sources.clone(), &sums, state),
            };
            cases.push(Case { params: vec![count.to_string(), what, way.name().into()], base: Some(base), work });
        }
    }
    let rows = experiment.run(&mut cases);
    experiment.clear();
    Ok(rows)
}

/// The records of each of so many clients. In one file each part begins where O_DIRECT may: at a multiple of 4096 bytes.
fn parts(options: &Options, records: &Records, clients: usize) -> Result<Vec<Part>> {
    let aligned = DIRECT_UNIT as u64 >> options.record_bytes.trailing_zeros().min(DIRECT_UNIT.trailing_zeros());
    let parts = records.parts(clients as u64, if options.in_one() { aligned } else { 1 });
    if parts.iter().any(|p| p.count == 0) && records.count > 0 {
        return Err(LabError::Invalid(format!(
            "{} records are too few for {clients} clients: some would have none",
            records.count
        )));
    }
    Ok(parts)
}

/// The sum of each part of a file that somebody else made.
fn sums_of(experiment: &Experiment, records: &Records, parts: &[Part], sources: &[Target]) -> Result<Vec<u64>> {
    let mut record = vec![0; records.longest()];
    let mut sum = |(part, target): (&Part, &Target)| {
        let mut reader = readers::open(Way::Cached, &Target { buffer_bytes: 1 << 20, ..target.clone() })?;
        part.range().try_fold(0, |sum, i| {
            if i % CHECKED == 0 {
                experiment.check()?;
            }
            reader.take(&mut record)?;
            Ok(sum_of(sum, &record))
        })
    };
    parts.iter().zip(sources).map(&mut sum).collect()
}

/// Records between two looks at the clock.
const CHECKED: u64 = 1 << 16;

/// A file for each part, or one for all.
fn files(options: &Options, experiment: &Experiment, name: &str, parts: &[Part]) -> Vec<Target> {
    let path = options.file.clone().unwrap_or_else(|| experiment.folder().join(name));
    let of = |(n, part): (usize, &Part)| match options.in_one() {
        true => Target {
            start: part.first * options.record_bytes as u64,
            end: part.range().end * options.record_bytes as u64,
            existing: true,
            shared: true,
            ..options.target(&path)
        },
        false => Target {
            end: part.count * options.record_bytes as u64,
            ..options.target(&experiment.folder().join(if n == 0 { name.to_owned() } else { format!("{name}-{n}") }))
        },
    };
    parts.iter().enumerate().map(of).collect()
}

/// One way, for all clients.
#[derive(Clone, Copy)]
struct Job<'a> {
    records: &'a Records,
    parts: &'a [Part],
    way: Way,
    options: &'a Options,
}

impl<'a> Job<'a> {
    fn writing(self, targets: Vec<Target>) -> Work<'a> {
        let mut verified = false;
        Box::new(move |experiment| {
            self.before(experiment, &targets)?;
            let open = |(part, target): (&Part, &Target)| Ok((*part, writers::open(self.way, target)?));
            let writers = self.parts.iter().zip(&targets).map(open).collect::<Result<Vec<_>>>()?;
            let mut written = measure::write(experiment, self.records, writers)?;
            if self.options.one_file {
                written.files[0].set_size(self.records.total_bytes())?;
            }
            let calls = if self.way == Way::Mapped { 0 } else { written.tally.writes() };
            let seen: u64 = written.files.iter().map(|f| f.writes()).sum();
            if calls != seen {
                written.sample.wrong = Some(format!("{seen} writes of the files, {calls} of the writers"));
            }
            written.sample.counts.push(("calls", calls));
            if !verified {
                written.sample.wrong = written.sample.wrong.or(self.verify(&targets)?);
                verified = true;
            }
            written.files.iter().try_for_each(|file| measure::empty(file))?;
            Ok(written.sample)
        })
    }

    /// Brings the files into the state that is asked for.
    fn before(&self, experiment: &Experiment, targets: &[Target]) -> Result<()> {
        let options = self.options;
        if options.existing {
            // Other records of the same lengths.
            let other = Records::new(Shape::Static, options.record_bytes, self.records.count, !options.common.seed);
            let parts = if options.one_file { vec![other.all()] } else { self.parts.to_vec() };
            for (part, target) in parts.iter().zip(targets) {
                measure::prepare(experiment, &target.path, &other, *part)?.sync(Barrier::Fsync)?;
            }
        }
        if options.one_file {
            let made = RawOptions { create: !options.existing, write: true, ..RawOptions::default() };
            let file = RawFile::open(&targets[0].path, made)?;
            if self.way == Way::Mapped {
                // Everyone's last window reaches beyond its part.
                writers::lengthen(&file, self.records.total_bytes() + self.options.window_bytes() as u64)?;
            }
        }
        Ok(())
    }

    fn verify(&self, targets: &[Target]) -> Result<Option<String>> {
        if self.options.one_file {
            return measure::verify(&targets[0].path, 0, self.records, self.records.all());
        }
        for (part, target) in self.parts.iter().zip(targets) {
            if let Some(wrong) = measure::verify(&target.path, 0, self.records, *part)? {
                return Ok(Some(wrong));
            }
        }
        Ok(None)
    }

    fn reading(self, targets: Vec<Target>, sums: &[u64], state: &'static str) -> Work<'a> {
        let (sums, mut verified) = (sums.to_vec(), false);
        Box::new(move |experiment| {
            let mut paths: Vec<&PathBuf> = targets.iter().map(|t| &t.path).collect();
            paths.dedup();
            paths.into_iter().try_for_each(|path| measure::set_cache(path, state))?;
            let cached = self.cached_percent(&targets)?;
            let open =
                |((part, target), sum): ((&Part, &Target), &u64)| Ok((*part, *sum, readers::open(self.way, target)?));
            let readers = self.parts.iter().zip(&targets).zip(&sums).map(open).collect::<Result<Vec<_>>>()?;
            let mut sample = measure::read(experiment, self.records, readers)?;
            sample.metrics.push(("cached_before", "percent", cached));
            for (part, target) in self.parts.iter().zip(&targets).filter(|_| !verified) {
                sample.wrong = sample.wrong.or(self.compare(*part, target)?);
            }
            verified = true;
            Ok(sample)
        })
    }

    /// What a reader gives, byte for byte: against what was written, or, of somebody's file, against what another reader gives.
    fn compare(&self, part: Part, target: &Target) -> Result<Option<String>> {
        let mut reader = readers::open(self.way, target)?;
        if self.options.file.is_none() {
            return measure::compare(&mut *reader, self.records, part);
        }
        let other = if self.way == Way::Plain { Way::Cached } else { Way::Plain };
        let mut other = readers::open(other, target)?;
        let (mut a, mut b) = (vec![0; self.records.longest()], vec![0; self.records.longest()]);
        for i in part.range() {
            reader.take(&mut a)?;
            other.take(&mut b)?;
            if a != b {
                return Ok(Some(format!("record {i} is not what another way reads")));
            }
        }
        Ok(None)
    }

    /// How much of the files is in the page cache, in percent: with less memory than they take, warm is not all of it.
    fn cached_percent(&self, targets: &[Target]) -> Result<f64> {
        let files = if self.options.in_one() { &targets[..1] } else { targets };
        let share = |t: &Target| Ok(RawFile::open(&t.path, RawOptions::default())?.cached_share()?);
        let shares = files.iter().map(share).collect::<Result<Vec<f64>>>()?;
        Ok(100.0 * shares.iter().sum::<f64>() / shares.len() as f64)
    }
}
