//! Readers and writers at the same time, each on a file of its own: what each of them takes while the others are at work.

use super::Job;
use crate::clock::{together, Event};
use crate::error::Result;
use crate::experiment::{Experiment, Sample, Work};
use crate::measure::{self, batch, per_record, times, BatchTimer, MIB};
use crate::probe::host::Usage;
use crate::probe::raw::{Barrier, RawFile};
use crate::processor::ProcessorSampler;
use crate::readers::{self, Reader};
use crate::records::{Part, Records};
use crate::theory::Tally;
use crate::writers::{self, Target, Way, Writer};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Somebody at work.
enum Client {
    Reader { part: Part, expected: u64, reader: Box<dyn Reader>, record: Vec<u8> },
    Writer { part: Part, writer: Box<dyn Writer> },
}

/// What came of it.
struct ClientResult {
    records: u64,
    took: Duration,
    events: Vec<Event>,
    outcome: Outcome,
}

enum Outcome {
    Reading { calls: u64, right: bool },
    Writing { file: Arc<RawFile>, tally: Tally },
}

/// A case: the readers with their files and what they must find, the writers with theirs.
pub(super) fn work<'a>(
    (reading, sources, sums): (Job<'a>, Vec<Target>, &[u64]),
    (writing, targets): (Job<'a>, Vec<Target>),
    state: &'static str,
) -> Work<'a> {
    let (sums, mut verified) = (sums.to_vec(), false);
    Box::new(move |experiment| {
        writing.before(experiment, &targets)?;
        sources.iter().try_for_each(|t| measure::set_cache(&t.path, state))?;
        let mut clients = Vec::new();
        for ((part, target), expected) in reading.parts.iter().zip(&sources).zip(&sums) {
            let (reader, record) = (readers::open(reading.way, target)?, vec![0; reading.records.longest()]);
            clients.push(Client::Reader { part: *part, expected: *expected, reader, record });
        }
        for (part, target) in writing.parts.iter().zip(&targets) {
            clients.push(Client::Writer { part: *part, writer: writers::open(writing.way, target)? });
        }
        let (mut sample, files) = run(experiment, reading.records, clients, writing.way)?;
        if !verified {
            for (part, target) in reading.parts.iter().zip(&sources) {
                sample.wrong = sample.wrong.or(reading.compare(*part, target)?);
            }
            sample.wrong = sample.wrong.or(writing.verify(&targets)?);
            verified = true;
        }
        files.iter().try_for_each(|file| measure::empty(file))?;
        Ok(sample)
    })
}

fn run(
    experiment: &Experiment,
    records: &Records,
    clients: Vec<Client>,
    way: Way,
) -> Result<(Sample, Vec<Arc<RawFile>>)> {
    let of_one = batch(clients.iter().map(|c| match c {
        Client::Reader { part, .. } | Client::Writer { part, .. } => part.count,
    }));
    let (mut before, sampler) = (Usage::now(), ProcessorSampler::default());
    let timed = BatchTimer { experiment, records, sampler: &sampler, of_one };
    let job = |client: &mut Client, zero| one(&timed, client, zero);
    let go = || {
        before = Usage::now();
        sampler.begin();
    };
    let (done, accepted) = together(clients, go, &job)?;
    let used = Usage::now().since(&before);
    let events: Vec<Vec<Event>> = done.iter().map(|d| d.events.clone()).collect();
    let mut sample = Sample { details: times(of_one, &events), ..Sample::default() };
    sample.details.processor = Some(sampler.end(accepted, (used.user, used.system)));
    per_record(&mut sample, done.iter().map(|d| d.records).sum(), &used, accepted.as_nanos() as f64);
    let began = Instant::now();
    let (mut files, mut calls) = (Vec::new(), 0);
    // Of readers, of writers: how long the slowest took, and how many records they had.
    let (mut read, mut written) = ((Duration::ZERO, 0), (Duration::ZERO, 0));
    for d in done {
        let side = match d.outcome {
            Outcome::Reading { calls: n, right } => {
                calls += n;
                if !right {
                    sample.wrong = Some("the records read are not those written".into());
                }
                &mut read
            }
            Outcome::Writing { file, tally } => {
                file.sync(Barrier::Fdatasync)?;
                let writes = if way == Way::Mapped { 0 } else { tally.writes() };
                if writes != file.writes() {
                    sample.wrong = Some(format!("{} writes of a file, {writes} of its writer", file.writes()));
                }
                calls += writes;
                files.push(file);
                &mut written
            }
        };
        *side = (side.0.max(d.took), side.1 + d.records);
    }
    let ns = |(took, records): (Duration, u64)| took.as_nanos() as f64 / records.max(1) as f64;
    let device = Usage::now().since(&before);
    sample.metrics.push(("read_ns", "ns", ns(read)));
    sample.metrics.push(("write_ns", "ns", ns(written)));
    sample.metrics.push(("durable_s", "s", (accepted + began.elapsed()).as_secs_f64()));
    sample.metrics.push(("device_mib", "MiB", (device.device_write_bytes + used.device_read_bytes) as f64 / MIB));
    sample.counts.push(("calls", calls));
    Ok((sample, files))
}

/// A client's work.
fn one(timed: &BatchTimer<'_>, client: &mut Client, zero: Instant) -> Result<ClientResult> {
    let (records, events, outcome) = match client {
        Client::Reader { part, expected, reader, record } => {
            let (sum, events) = timed.read(*part, &mut **reader, record, zero)?;
            (part.count, events, Outcome::Reading { calls: reader.calls(), right: sum == *expected })
        }
        Client::Writer { part, writer } => {
            let ((file, tally), events) = timed.write(*part, &mut **writer, zero)?;
            (part.count, events, Outcome::Writing { file, tally })
        }
    };
    Ok(ClientResult { records, took: zero.elapsed(), events, outcome })
}
