//! `esker lab buffer`: how large should a buffer be? Every size from small to large, with the writes that it makes
//! counted and held against what its rule demands.

use crate::error::{LabError, Result};
use crate::measure;
use crate::readers;
use crate::records::{Records, Shape};
use crate::report::Report;
use crate::session::{size, size_text, Case, Common, Session};
use crate::theory::{tally, Rule, Tally};
use crate::writers::{Cached, Way};
use clap::{Args, ValueEnum};
use esker_io::raw::{RawFile, RawOptions};
use serde_json::json;

/// The file that records are appended to ends here: off every boundary (the source's example).
const APPEND_START: u64 = 133_900;
const APPEND_BUFFER: usize = 128 << 10;

/// Options of the command.
#[derive(Debug, Clone, Args)]
pub struct Options {
    #[command(flatten)]
    common: Common,
    /// How many records
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    records: u64,
    /// Bytes of a record; dynamic ones are from a quarter of it up
    #[arg(long, value_name = "BYTES", default_value_t = 103, value_parser = record_bytes)]
    record_bytes: usize,
    /// Whose rule says when the buffer is written
    #[arg(long, value_enum, default_value_t = Model::Esker)]
    model: Model,
    /// IO_SIZE of the MyISAM model in bytes: 64 in the source's build, 4096 in today's
    #[arg(long, value_name = "BYTES", default_value = "64", value_parser = size)]
    io_size: u64,
    /// The smallest buffer
    #[arg(long, value_name = "SIZE", default_value = "128", value_parser = size)]
    from: u64,
    /// The largest buffer [default: the first that takes all records, at most 1G]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    to: Option<u64>,
}

impl Options {
    pub(crate) fn common(&self) -> &Common {
        &self.common
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Model {
    /// Filled to the last byte, then written
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
    let rule = match options.model {
        Model::Esker => Rule::Fill,
        Model::Myisam if options.io_size.is_power_of_two() && options.io_size <= 1 << 16 => {
            Rule::MyIsam(options.io_size as usize)
        }
        Model::Myisam => return Err(LabError::Invalid("--io-size must be a power of two, at most 64K".into())),
    };
    let longest = options.record_bytes as u64 * options.records;
    let to = options.to.unwrap_or_else(|| longest.next_power_of_two().clamp(options.from.max(1), 1 << 30));
    if options.from == 0 || to < options.from || to > 4 << 30 {
        return Err(LabError::Invalid("buffers go from at least 1 byte to at most 4G".into()));
    }
    let sizes: Vec<usize> = std::iter::successors(Some(options.from), |b| b.checked_mul(2))
        .take_while(|b| *b <= to)
        .map(|b| b as usize)
        .collect();
    let shapes = [Shape::Static, Shape::Dynamic]
        .map(|shape| (shape, Records::new(shape, options.record_bytes, options.records, options.common.seed)));
    let mut session = Session::begin(&options.common, "buffer")?;
    let per_run: u64 = shapes.iter().map(|(_, r)| r.total_bytes()).sum::<u64>() * (sizes.len() as u64 + 2);
    session.plan(sizes.len() * 4 + 4, per_run * options.common.runs as u64, 2 * longest + APPEND_START)?;
    let mut cases = Vec::new();
    for (shape, records) in &shapes {
        let sum = records.sum();
        for &buffer in &sizes {
            cases.push(writing(&session, "write", *shape, records, (rule, buffer), 0));
            cases.push(reading(&session, *shape, records, sum, buffer));
        }
        for rule in [Rule::Fill, Rule::Aligned(4096)] {
            let what = if rule == Rule::Fill { "append" } else { "append aligned" };
            cases.push(writing(&session, what, *shape, records, (rule, APPEND_BUFFER), APPEND_START));
        }
    }
    for (shape, records) in &shapes {
        // What the reads read.
        let path = session.folder().join(format!("read-{}", shape.name()));
        let mut writer = crate::writers::open(Way::Cached, &path, 1 << 20, false)?;
        for i in 0..records.count {
            writer.put(records.get(i))?;
        }
        writer.finish()?;
    }
    let rows = session.run(&mut cases);
    let mut notes = vec![format!(
        "Overflows, direct and last writes are counted and equal what the rule '{}' demands, or the row is void.",
        rule.name()
    )];
    notes.extend(
        shapes.iter().map(|(shape, r)| format!("{}: {} records, {} bytes", shape.name(), r.count, r.total_bytes())),
    );
    if rule != Rule::Fill {
        notes.push("Reading has no model of its own: the buffer is filled whenever it is empty.".into());
    }
    Ok(Report {
        command: "buffer",
        options: session.options(json!({
            "records": options.records, "record_bytes": options.record_bytes, "model": rule.name(),
            "io_size": options.io_size, "from": options.from, "to": to,
        })),
        machine: crate::doctor::machine(&options.common.dir),
        params: vec!["do", "records", "buffer"],
        shown: vec![
            ("ns", "ns a record"),
            ("user_ns", "user"),
            ("system_ns", "system"),
            ("durable_s", "s until durable"),
            ("process_writes", "process's writes"),
        ],
        shown_counts: vec![("overflows", "overflows"), ("direct", "direct"), ("last", "last"), ("calls", "calls")],
        relative: None,
        null_difference: None,
        rows,
        notes,
    })
}

fn writing<'a>(
    session: &Session,
    what: &'static str,
    shape: Shape,
    records: &'a Records,
    (rule, buffer): (Rule, usize),
    start: u64,
) -> Case<'a> {
    let path = session.folder().join("written");
    let mut verified = false;
    let work = move |session: &Session| {
        let file = RawFile::open(&path, RawOptions { create: true, ..RawOptions::default() })?;
        file.set_size(start)?;
        let writer = Cached::new(file, start, buffer, rule)?;
        let calls = esker_io::host::Usage::now();
        let (file, counted, mut sample) = measure::write(session, records, Box::new(writer))?;
        let calls = esker_io::host::Usage::now().since(&calls);
        let Tally { overflows, direct, last, .. } = counted;
        sample.counts = vec![("overflows", overflows), ("direct", direct), ("last", last), ("calls", file.writes())];
        // Not ours alone: whatever else the process writes is in it.
        sample.metrics.push(("process_writes", "", calls.write_calls as f64));
        let demanded = tally(rule, buffer, start, (0..records.count).map(|i| records.length(i)));
        if counted != demanded || file.writes() != demanded.writes() {
            sample.wrong = Some(format!("{counted:?} and {} calls, not {demanded:?}", file.writes()));
        }
        if !verified {
            sample.wrong = sample.wrong.or(measure::verify(&path, start, records)?);
            verified = true;
        }
        file.set_size(0)?;
        Ok(sample)
    };
    Case { params: vec![what.into(), shape.name().into(), size_text(buffer as u64)], base: None, work: Box::new(work) }
}

fn reading<'a>(session: &Session, shape: Shape, records: &'a Records, sum: u64, buffer: usize) -> Case<'a> {
    let path = session.folder().join(format!("read-{}", shape.name()));
    let work = move |session: &Session| {
        let reader = readers::open(Way::Cached, &path, buffer)?;
        let mut sample = measure::read(session, records, sum, reader)?;
        let total = records.total_bytes();
        // A buffer that the file does not fill takes a second call, which finds the end.
        let demanded = total / buffer as u64 + if total % buffer as u64 > 0 { 2 } else { 0 };
        let calls = sample.counts.iter().find(|c| c.0 == "calls").map_or(0, |c| c.1);
        if calls != demanded {
            sample.wrong = Some(format!("{calls} read calls, not {demanded}"));
        }
        Ok(sample)
    };
    Case {
        params: vec!["read".into(), shape.name().into(), size_text(buffer as u64)],
        base: None,
        work: Box::new(work),
    }
}
