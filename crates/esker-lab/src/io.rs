//! `esker lab io`: six ways to write and read records of a file, compared.

use crate::buffer::record_bytes;
use crate::error::{LabError, Result};
use crate::measure;
use crate::probe::raw::{Barrier, RawFile, RawOptions};
use crate::probe::MemoryGroup;
use crate::records::{Part, Records, Shape};
use crate::report::{join, null_difference, Report, Row, Status};
use crate::session::{count, ignored, size, size_text, Case, Common, Needs, Session, Work};
use crate::writers::{self, Target, Way, DIRECT_UNIT, WINDOW_BYTES};
use crate::{doctor, flow, readers};
use clap::Args;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// What the source began with, and doubled to.
const FIRST: u64 = 10_000_000;
const LAST: u64 = 1_280_000_000;
/// The default number of records is one that fits this time, in seconds.
const FITS_SECONDS: f64 = 120.0;

/// Options of the command.
#[derive(Debug, Clone, Args)]
pub struct Options {
    #[command(flatten)]
    common: Common,
    /// How many records; several, with commas [default: as many as fit in two minutes, 10000000 at most]
    #[arg(long, value_name = "N", value_delimiter = ',', conflicts_with = "full", value_parser = count)]
    records: Vec<u64>,
    /// From 10 million records, doubling, to 1280 million, as far as there is space: takes hours
    #[arg(long)]
    full: bool,
    /// Bytes of a record
    #[arg(long, value_name = "BYTES", default_value_t = 103, value_parser = record_bytes)]
    record_bytes: usize,
    /// Bytes of a buffer
    #[arg(long, value_name = "SIZE", default_value = "128K", value_parser = size)]
    buffer: u64,
    /// Buffers that 'direct' has under way at once [default: 4]
    #[arg(long, value_name = "N")]
    depth: Option<usize>,
    /// Only these ways; several, with commas
    #[arg(long, value_enum, value_name = "WAY", value_delimiter = ',')]
    ways: Vec<Way>,
    /// Writes over a file that is there, instead of a new one
    #[arg(long)]
    existing: bool,
    /// So many at once, each on a file of its own
    #[arg(long, value_name = "N", default_value_t = 1)]
    clients: usize,
    /// All clients on one file, each in its part of it
    #[arg(long)]
    one_file: bool,
    /// Lets the command have only so much memory, page cache included (a memory control group)
    #[arg(long, value_name = "SIZE", value_parser = size)]
    ram: Option<u64>,
}

impl Options {
    pub(crate) fn common(&self) -> &Common {
        &self.common
    }

    fn check(&self) -> Result<()> {
        if self.buffer == 0 || self.buffer > 1 << 30 {
            return Err(LabError::Invalid("--buffer must be between 1 byte and 1G".into()));
        }
        if self.clients == 0 || self.clients > 512 || !(1..=1024).contains(&self.depth()) {
            return Err(LabError::Invalid("--clients must be between 1 and 512, --depth between 1 and 1024".into()));
        }
        if self.depth.is_some() && !self.ways().contains(&Way::Direct) {
            return Err(ignored("--depth", "it is of the way 'direct'"));
        }
        if self.one_file && self.clients == 1 {
            return Err(ignored("--one-file", "there is one client (--clients)"));
        }
        if self.ram.is_some_and(|ram| ram < 64 << 20) {
            return Err(LabError::Invalid("--ram must be at least 64M: the lab itself lives in it".into()));
        }
        Ok(())
    }

    fn depth(&self) -> usize {
        self.depth.unwrap_or(4)
    }

    /// Bytes of memory that the clients take at once at the most, with so many records: buffers, as far as there is something
    /// to fill them, and what records are cut from.
    fn memory_bytes(&self, most_records: u64) -> u64 {
        let bytes = most_records.saturating_mul(self.record_bytes as u64).div_ceil(self.clients as u64);
        let of = |way: &Way| {
            let buffers = match way {
                Way::Plain => 0,
                Way::Cached => 1,
                Way::Background => 2,
                Way::Direct => 2 * self.depth() as u64 + 1,
                Way::Mapped => return 0,
                Way::Esker => writers::engine::DEPTH as u64 + 2,
            };
            let buffer = self.buffer.next_multiple_of(DIRECT_UNIT as u64);
            buffers.saturating_mul(buffer).min(bytes.saturating_add(2 * buffer))
        };
        let all = self.ways().iter().map(of).max().unwrap_or(0).saturating_mul(self.clients as u64);
        all.saturating_add((4 << 20) + 2 * self.record_bytes as u64)
    }

    /// What is 100 percent, then the others.
    fn ways(&self) -> Vec<Way> {
        Way::ALL.into_iter().filter(|w| self.ways.is_empty() || self.ways.contains(w)).collect()
    }

    fn target(&self, path: &Path) -> Target {
        Target { depth: self.depth(), existing: self.existing, ..Target::new(path, self.buffer as usize) }
    }

    fn records(&self, count: u64) -> Records {
        Records::new(Shape::Static, self.record_bytes, count, self.common.seed)
    }
}

/// Measures.
///
/// # Errors
/// Wrong options, no space, no folder, no memory group.
pub fn run(options: &Options) -> Result<Report> {
    options.check()?;
    let mut session = Session::begin(&options.common, "io")?;
    let group = options.ram.map(MemoryGroup::enter).transpose();
    let _group = group.map_err(|e| LabError::Unsupported(format!("--ram: {e}")))?;
    let sizes = sizes(options, &session)?;
    let (ways, states) = (options.ways(), options.common.cache().states());
    let groups = 1 + states.len();
    let bytes = |n: &u64| n.saturating_mul(options.record_bytes as u64);
    let most = sizes.iter().map(bytes).max().unwrap_or(0);
    let all: u64 = sizes.iter().map(bytes).fold(0, u64::saturating_add);
    let per_run = all.saturating_mul(ways.len() as u64 + 1);
    let runs = session.rounds() as u64;
    let rows = (ways.len() + 1) * groups * sizes.len();
    let times = measure::memory_of_times(rows, sizes.iter().max().copied().unwrap_or(0), options.clients);
    session.plan(
        ways.len() * groups * sizes.len(),
        Needs {
            written_bytes: per_run.saturating_mul(runs),
            space_bytes: most.saturating_mul(2).saturating_add((WINDOW_BYTES * options.clients) as u64),
            calls: sizes.iter().fold(0u64, |all, n| all.saturating_add(*n)).saturating_mul(2 * groups as u64 * runs),
            barriers: (ways.len() * sizes.len()) as u64 * runs,
            memory_bytes: options.memory_bytes(sizes.iter().max().copied().unwrap_or(0)).saturating_add(times),
            less: "--records",
            ..Needs::default()
        },
    )?;
    let mut rows = Vec::new();
    let probe = session.folder().join("probe");
    let probe = Arc::new(RawFile::open(&probe, RawOptions { create: true, ..RawOptions::default() })?);
    let who = flow::who(&probe);
    for &count in &sizes {
        match of_size(options, &session, &ways, count) {
            Ok(more) => join(&mut rows, more),
            Err(e) if rows.is_empty() => return Err(e),
            // What was measured before stays.
            Err(e) => {
                let params = vec![count.to_string(), "all".into(), "all".into()];
                rows.push(Row::without_figures(params, Status::Failed(e.to_string())));
                break;
            }
        }
    }
    let mut notes = vec![
        format!(
            "Records of {} bytes, buffers of {}. Percent is of '{}'.",
            options.record_bytes,
            size_text(options.buffer),
            ways.first().map_or("", |w| w.name()),
        ),
        format!("'background' and 'direct' (depth {}): by {}.", options.depth(), who),
        "'esker' is the engine's own writer and file layer as a server sets them; it ends with its own fsync, which is in \
         'accepted' too.".into(),
        "'accepted' ends when the kernel has taken everything, 'durable' when fdatasync has returned.".into(),
    ];
    if let Some(most) = sizes.last().filter(|n| options.full && **n < LAST) {
        notes.push(format!("For {} records and more there is no space: not measured.", most * 2));
    }
    if options.clients > 1 {
        let files = if options.one_file { "one file, each in its part" } else { "files of their own" };
        notes.push(format!("{} clients at once on {files}; times are of all records together.", options.clients));
    }
    notes.extend(measure::too_short(&rows));
    notes.extend(options.ram.map(|ram| format!("Within {} of memory, page cache included.", size_text(ram))));
    Ok(Report {
        command: "io",
        options: session.options(json!({
            "cache": options.common.cache().name(), "records": sizes, "record_bytes": options.record_bytes, "buffer_bytes": options.buffer,
            "depth": options.depth(), "existing": options.existing, "clients": options.clients,
            "one_file": options.one_file, "ram_bytes": options.ram,
            "ways": ways.iter().map(|w| w.name()).collect::<Vec<_>>(),
        })),
        machine: doctor::machine(&options.common.dir),
        params: vec!["records", "do", "way"],
        shown: vec![
            ("ns", "ns a record"),
            ("real_s", "s accepted"),
            ("durable_s", "s durable"),
            ("user_ns", "user"),
            ("system_ns", "system"),
            ("device_mib", "MiB at device"),
        ],
        shown_counts: vec![("calls", "reads, writes")],
        relative: Some("ns"),
        null_difference: null_difference(&rows, "ns"),
        notes,
        rows,
    })
}

/// How many records: what was asked for, or what fits time and space.
fn sizes(options: &Options, session: &Session) -> Result<Vec<u64>> {
    if !options.records.is_empty() {
        return Ok(options.records.clone());
    }
    let space = options.common.max_space.unwrap_or(u64::MAX).min(session.free_bytes()? / 2);
    let fits = |n: &u64| n * 2 * options.record_bytes as u64 + (WINDOW_BYTES as u64) < space;
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
    let runs = session.rounds() as f64;
    let second = probe(options, session)? * runs * (1 + options.common.cache().states().len()) as f64;
    // Half of it: what is out of memory takes longer than the probe.
    let most = (time / 2.0 / second) as u64;
    Ok(vec![doubling(least, FIRST).filter(|n| fits(n) && *n <= most).last().unwrap_or(least)])
}

/// Seconds that all ways together take to write a record, by a short look.
fn probe(options: &Options, session: &Session) -> Result<f64> {
    let records = options.records(20_000);
    let path = session.folder().join("written");
    let target = Target { existing: false, end: records.total_bytes(), ..options.target(&path) };
    let began = Instant::now();
    for way in options.ways() {
        let writer = match writers::open(way, &target) {
            Err(LabError::Unsupported(_)) => continue,
            writer => writer?,
        };
        measure::write(session, &records, vec![(records.all(), writer)])?;
    }
    Ok(began.elapsed().as_secs_f64() / records.count as f64)
}

/// All ways with so many records.
fn of_size(options: &Options, session: &Session, ways: &[Way], count: u64) -> Result<Vec<Row>> {
    let records = options.records(count);
    // In one file each part begins where O_DIRECT and mappings may: at a multiple of 4096 bytes.
    let aligned = DIRECT_UNIT as u64 >> options.record_bytes.trailing_zeros().min(DIRECT_UNIT.trailing_zeros());
    let parts = records.parts(options.clients as u64, if options.one_file { aligned } else { 1 });
    if parts.iter().any(|p| p.count == 0) && count > 0 {
        let clients = options.clients;
        return Err(LabError::Invalid(format!(
            "{count} records are too few for {clients} clients: some would have none"
        )));
    }
    let sources = files(options, session, "read", &parts);
    let prepare = |(part, target): (&Part, &Target)| measure::prepare(session, &target.path, &records, *part).map(drop);
    let prepared = match options.one_file {
        true => prepare((&records.all(), &sources[0])),
        false => parts.iter().zip(&sources).try_for_each(prepare),
    };
    match prepared {
        Err(LabError::Stopped) => {}
        prepared => prepared?,
    }
    let sums: Vec<u64> = parts.iter().map(|p| records.sum(*p)).collect();
    let mut cases = Vec::new();
    for state in std::iter::once("").chain(options.common.cache().states().iter().copied()) {
        let base = cases.len();
        for &way in ways {
            let what = if state.is_empty() { "write".to_owned() } else { format!("read {state}") };
            let job = Job { records: &records, parts: &parts, way, options };
            let work: Work<'_> = match state {
                "" => job.writing(files(options, session, "written", &parts)),
                state => job.reading(sources.clone(), &sums, state),
            };
            cases.push(Case { params: vec![count.to_string(), what, way.name().into()], base: Some(base), work });
        }
    }
    let rows = session.run(&mut cases);
    session.clear()?;
    Ok(rows)
}

/// A file for each part, or one for all.
fn files(options: &Options, session: &Session, name: &str, parts: &[Part]) -> Vec<Target> {
    let of = |(n, part): (usize, &Part)| match options.one_file {
        true => Target {
            start: part.first * options.record_bytes as u64,
            end: part.range().end * options.record_bytes as u64,
            existing: true,
            shared: true,
            ..options.target(&session.folder().join(name))
        },
        false => Target {
            end: part.count * options.record_bytes as u64,
            ..options.target(&session.folder().join(if n == 0 { name.to_owned() } else { format!("{name}-{n}") }))
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
        Box::new(move |session| {
            self.before(session, &targets)?;
            let open = |(part, target): (&Part, &Target)| Ok((*part, writers::open(self.way, target)?));
            let writers = self.parts.iter().zip(&targets).map(open).collect::<Result<Vec<_>>>()?;
            let mut written = measure::write(session, self.records, writers)?;
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
    fn before(&self, session: &Session, targets: &[Target]) -> Result<()> {
        let options = self.options;
        if options.existing {
            // Other records of the same lengths.
            let other = Records::new(Shape::Static, options.record_bytes, self.records.count, !options.common.seed);
            let parts = if options.one_file { vec![other.all()] } else { self.parts.to_vec() };
            for (part, target) in parts.iter().zip(targets) {
                measure::prepare(session, &target.path, &other, *part)?.sync(Barrier::Fsync)?;
            }
        }
        if options.one_file {
            let made = RawOptions { create: !options.existing, write: true, ..RawOptions::default() };
            let file = RawFile::open(&targets[0].path, made)?;
            if self.way == Way::Mapped {
                // Everyone's last window reaches beyond its part.
                writers::lengthen(&file, self.records.total_bytes() + WINDOW_BYTES as u64)?;
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
        Box::new(move |session| {
            let mut paths: Vec<&PathBuf> = targets.iter().map(|t| &t.path).collect();
            paths.dedup();
            paths.into_iter().try_for_each(|path| measure::set_cache(path, state))?;
            let cached = self.cached_percent(&targets)?;
            let open =
                |((part, target), sum): ((&Part, &Target), &u64)| Ok((*part, *sum, readers::open(self.way, target)?));
            let readers = self.parts.iter().zip(&targets).zip(&sums).map(open).collect::<Result<Vec<_>>>()?;
            let mut sample = measure::read(session, self.records, readers)?;
            sample.metrics.push(("cached_before", "percent", cached));
            for (part, target) in self.parts.iter().zip(&targets).filter(|_| !verified) {
                let mut reader = readers::open(self.way, target)?;
                sample.wrong = sample.wrong.or(measure::compare(&mut *reader, self.records, *part)?);
            }
            verified = true;
            Ok(sample)
        })
    }

    /// How much of the files is in the page cache, in percent: with less memory than they take, warm is not all of it.
    fn cached_percent(&self, targets: &[Target]) -> Result<f64> {
        let files = if self.options.one_file { &targets[..1] } else { targets };
        let share = |t: &Target| Ok(RawFile::open(&t.path, RawOptions::default())?.cached_share()?);
        let shares = files.iter().map(share).collect::<Result<Vec<f64>>>()?;
        Ok(100.0 * shares.iter().sum::<f64>() / shares.len() as f64)
    }
}
