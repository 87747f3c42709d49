//! `esker lab io`: five ways to write and read records of a file, compared.

use crate::buffer::record_bytes;
use crate::error::{LabError, Result};
use crate::measure;
use crate::records::{Records, Shape};
use crate::report::{Report, Row};
use crate::session::{size, size_text, Case, Common, Session, Work};
use crate::writers::{self, Way};
use crate::{doctor, readers};
use clap::Args;
use serde_json::json;
use std::path::PathBuf;

/// Options of the command.
#[derive(Debug, Clone, Args)]
pub struct Options {
    #[command(flatten)]
    common: Common,
    /// How many records
    #[arg(long, value_name = "N", default_value_t = 2_000_000)]
    records: u64,
    /// Bytes of a record
    #[arg(long, value_name = "BYTES", default_value_t = 103, value_parser = record_bytes)]
    record_bytes: usize,
    /// Bytes of a buffer
    #[arg(long, value_name = "SIZE", default_value = "128K", value_parser = size)]
    buffer: u64,
    /// Writes over a file that is there, instead of a new one
    #[arg(long)]
    existing: bool,
}

impl Options {
    pub(crate) fn common(&self) -> &Common {
        &self.common
    }
}

/// Measures.
///
/// # Errors
/// Wrong options, no space, no folder.
pub fn run(options: &Options) -> Result<Report> {
    if options.buffer == 0 || options.buffer > 1 << 30 {
        return Err(LabError::Invalid("--buffer must be between 1 byte and 1G".into()));
    }
    let records = Records::new(Shape::Static, options.record_bytes, options.records, options.common.seed);
    let total = records.total_bytes();
    let mut session = Session::begin(&options.common, "io")?;
    let states = options.common.cache.states();
    let cases = (Way::ALL.len() + 1) * (1 + states.len());
    session.plan(cases, total * (Way::ALL.len() as u64 + 1) * options.common.runs as u64, 2 * total + (64 << 20))?;

    let sum = records.sum();
    let source = session.folder().join("read");
    let mut writer = writers::open(Way::Cached, &source, 1 << 20, false)?;
    for i in 0..records.count {
        writer.put(records.get(i))?;
    }
    writer.finish()?;

    // Each group begins with what is 100 percent in it, and the same again: the null test.
    let ways = || std::iter::once(("plain again", Way::Plain)).chain(Way::ALL[1..].iter().map(|w| (w.name(), *w)));
    let mut cases = Vec::new();
    let buffer = options.buffer as usize;
    for state in std::iter::once("").chain(states.iter().copied()) {
        let base = cases.len();
        for (name, way) in std::iter::once(("plain", Way::Plain)).chain(ways()) {
            let what = if state.is_empty() { "write".to_owned() } else { format!("read {state}") };
            let work: Work<'_> = match state {
                "" => writing(session.folder().join("written"), &records, (way, buffer), options.existing),
                state => reading(source.clone(), &records, sum, (way, buffer), state),
            };
            cases.push(Case { params: vec![what, name.into()], base: Some(base), work });
        }
    }
    let rows = session.run(&mut cases);
    drop(cases);
    Ok(Report {
        command: "io",
        options: session.options(json!({
            "records": options.records, "record_bytes": options.record_bytes, "buffer_bytes": options.buffer,
            "existing": options.existing,
        })),
        machine: doctor::machine(&options.common.dir),
        params: vec!["do", "way"],
        shown: vec![
            ("ns", "ns a record"),
            ("user_ns", "user"),
            ("system_ns", "system"),
            ("durable_s", "s until durable"),
        ],
        shown_counts: vec![("calls", "calls")],
        relative: Some("ns"),
        null_difference: null_difference(&rows, "ns"),
        notes: vec![format!(
            "{} records of {} bytes, buffers of {}. Percent is of 'plain', a system call a record.",
            options.records,
            options.record_bytes,
            size_text(options.buffer)
        )],
        rows,
    })
}

/// The largest difference between a row and the same again.
fn null_difference(rows: &[Row], metric: &str) -> Option<f64> {
    let twins = rows.iter().filter(|r| r.params.last().is_some_and(|p| p.ends_with(" again")));
    let differences = twins.filter_map(|twin| {
        let (a, b) = (twin.middle(metric)?.median, rows.get(twin.base?)?.middle(metric)?.median);
        (a > 0.0 && b > 0.0).then(|| (a / b).max(b / a) - 1.0)
    });
    differences.fold(None, |most, d| Some(most.map_or(d, |m: f64| m.max(d))))
}

fn writing(path: PathBuf, records: &Records, (way, buffer): (Way, usize), existing: bool) -> Work<'_> {
    let mut verified = false;
    Box::new(move |session| {
        if existing {
            let mut writer = writers::open(Way::Cached, &path, 1 << 20, false)?;
            for i in 0..records.count {
                writer.put(records.get(records.count - 1 - i))?;
            }
            writer.finish()?.0.sync(esker_io::raw::Barrier::Fsync)?;
        }
        let writer = writers::open(way, &path, buffer, existing)?;
        let (file, tally, mut sample) = measure::write(session, records, writer)?;
        sample.counts.push(("calls", if way == Way::Mapped { 0 } else { tally.writes() }));
        if !verified {
            sample.wrong = measure::verify(&path, 0, records)?;
            verified = true;
        }
        file.set_size(0)?;
        Ok(sample)
    })
}

fn reading<'a>(
    path: PathBuf,
    records: &'a Records,
    sum: u64,
    (way, buffer): (Way, usize),
    state: &'static str,
) -> Work<'a> {
    Box::new(move |session| {
        measure::set_cache(&path, state)?;
        let reader = readers::open(way, &path, buffer)?;
        measure::read(session, records, sum, reader)
    })
}
