//! What the reads of a trace say: rows by where the bytes came from, and lines.

use super::{modes, Pass, Read};
use crate::details::Details;
use crate::error::LabError;
use crate::noise::Noise;
use crate::report::{Metric, Row, Status};
use crate::times::is_told;
use crate::units::size_text;
use esker_base::histogram::Histogram;
use std::collections::BTreeMap;

/// A read that took so many times the median of its row is named.
const OUTLIER: f64 = 10.0;
/// Outliers that are named, of each row.
const NAMED: usize = 5;

/// Rows, and notes on them. Modes are told from all reads of the same number of blocks; `sequential`: blocks were read
/// one after the other, so that a device can fetch ahead.
pub(super) fn rows(passes: &[Pass], sequential: bool) -> (Vec<Row>, Vec<String>) {
    let (mut rows, mut notes) = (Vec::new(), Vec::new());
    let kinds: std::collections::BTreeSet<(u64, bool)> = passes.iter().map(|p| (p.blocks, p.is_again())).collect();
    for &(blocks, again) in &kinds {
        let cuts = cuts_of(passes, blocks);
        let mine: Vec<&Pass> = passes.iter().filter(|p| (p.blocks, p.is_again()) == (blocks, again)).collect();
        let name = mine.first().map_or("", |p| p.name);
        // The page cache comes before the device and its modes.
        let mut groups: BTreeMap<(bool, usize), Vec<Read>> = BTreeMap::new();
        for read in mine.iter().flat_map(|p| &p.reads) {
            let mode = if read.cached { 0 } else { cuts.iter().filter(|c| us(read) >= **c).count() };
            groups.entry((!read.cached, mode)).or_default().push(*read);
        }
        notes.push(evidence(&mine));
        let status = status_of(&mine);
        if groups.is_empty() {
            rows.push(empty(blocks, name, &mine, status));
            continue;
        }
        for ((device, mode), reads) in groups {
            let from = if device { source(mode, cuts.len(), sequential) } else { "page cache" };
            let row = one(blocks, name, from, &reads, &mine, status.clone());
            notes.extend(outliers(&row, &reads));
            rows.push(row);
        }
    }
    let inferred = "What is inferred is so from the times alone: see docs/LAB.md.";
    notes.extend(rows.iter().any(|r| r.params[2].contains("inferred")).then(|| inferred.to_owned()));
    (rows, notes)
}

/// Takes back what the rows say of where bytes came from: only their times are known.
pub(super) fn without_residency(rows: &mut [Row]) {
    for row in rows {
        if let Some(place) = row.params[2].strip_prefix("device") {
            row.params[2] =
                format!("page cache or device{}", place.replace(": array cache", ": fast").replace(": disk", ": slow"));
        }
    }
}

fn us(read: &Read) -> f64 {
    read.ns as f64 / 1000.0
}

/// Where the modes of the device's reads of so many blocks begin, in microseconds.
fn cuts_of(passes: &[Pass], blocks: u64) -> Vec<f64> {
    let device = passes.iter().filter(|p| p.blocks == blocks).flat_map(|p| &p.reads).filter(|r| !r.cached);
    let mut times: Vec<f64> = device.map(us).collect();
    times.sort_by(f64::total_cmp);
    modes::cuts(&times)
}

/// What served the reads of a mode, the fastest being 0, where there are `cuts` + 1 modes.
fn source(mode: usize, cuts: usize, sequential: bool) -> &'static str {
    match (mode, cuts) {
        (_, 0) => "device",
        (0, 1) if sequential => "device: prefetched (inferred)",
        (0, _) => "device: array cache (inferred)",
        (1, 2) => "device: prefetched (inferred)",
        _ => "device: disk (inferred)",
    }
}

fn status_of(passes: &[&Pass]) -> Status {
    match passes.iter().find_map(|p| p.ended.as_ref()) {
        None => Status::Good,
        Some(LabError::Unsupported(why)) => Status::Unsupported(why.clone()),
        Some(_) => Status::Stopped,
    }
}

fn noise_of(passes: &[&Pass]) -> Noise {
    passes.iter().fold(Noise::default(), |worst, p| worst.worse(p.noise))
}

fn empty(blocks: u64, name: &str, passes: &[&Pass], status: Status) -> Row {
    Row {
        params: vec![blocks.to_string(), name.into(), String::new()],
        metrics: BTreeMap::new(),
        counts: BTreeMap::from([("reads", 0)]),
        base: None,
        noise: noise_of(passes),
        status,
        details: Details::default(),
    }
}

fn one(blocks: u64, name: &str, from: &str, reads: &[Read], passes: &[&Pass], status: Status) -> Row {
    let histogram = Histogram::new();
    reads.iter().for_each(|r| histogram.record(r.ns));
    let mut details = Details { title: Some(format!("{blocks} blocks, {name}, {from}")), ..Details::default() };
    details.add("reads", histogram.snapshot());
    let samples: Vec<f64> = reads.iter().map(us).collect();
    let mut sorted = samples.clone();
    sorted.sort_by(f64::total_cmp);
    let at = |share: f64| sorted[((sorted.len() - 1) as f64 * share) as usize];
    let metric = |samples: Vec<f64>| Metric { unit: "us", samples };
    let block = samples.iter().map(|us| us / blocks as f64).collect();
    let mut row = Row {
        params: vec![blocks.to_string(), name.into(), from.into()],
        metrics: BTreeMap::from([
            ("longest_us", metric(vec![at(1.0)])),
            ("us_block", metric(block)),
            ("us", metric(samples)),
        ]),
        counts: BTreeMap::from([("reads", reads.len() as u64)]),
        base: None,
        noise: noise_of(passes),
        status,
        details,
    };
    if is_told(reads.len() as u64, 0.99) {
        row.metrics.insert("p99_us", Metric { unit: "us", samples: vec![at(0.99)] });
    }
    row
}

/// What is known beside the times.
fn evidence(passes: &[&Pass]) -> String {
    let Some(first) = passes.first() else { return String::new() };
    let share = passes.iter().map(|p| p.cached_share).fold(0.0, f64::max);
    let bytes: u64 = passes.iter().map(|p| p.device_bytes).sum();
    let seen = passes.iter().flat_map(|p| &p.reads).filter(|r| r.cached).count();
    format!(
        "{} blocks, {}: at most {:.1} percent of the file lay in the page cache before; {seen} reads were seen to be \
         in it; the kernel counts {} from the device, read ahead included.",
        first.blocks,
        first.name,
        100.0 * share,
        size_text(bytes)
    )
}

/// Reads that took far longer than their row's median.
fn outliers(row: &Row, reads: &[Read]) -> Vec<String> {
    let Some(summary) = row.summary("us") else { return Vec::new() };
    let mut far: Vec<&Read> = reads.iter().filter(|r| us(r) > OUTLIER * summary.median).collect();
    far.sort_by_key(|r| std::cmp::Reverse(r.ns));
    let what = row.params.join(", ");
    let name = |r: &&Read| {
        let times = us(r) / summary.median;
        format!("outlier: {what}: block {} took {:.0} us, {times:.0} medians, at {} us.", r.block, us(r), r.at_us)
    };
    let mut named: Vec<String> = far.iter().take(NAMED).map(name).collect();
    if far.len() > NAMED {
        named.push(format!("outlier: {what}: and {} more.", far.len() - NAMED));
    }
    named
}

/// A line a read, as Oracle prints the waits of a session that reads.
pub(super) fn lines(passes: &[Pass], file: &str, direct: bool) -> Vec<String> {
    let mut lines = vec![format!("*** file#=1 is {file}; ela and tim in microseconds")];
    for pass in passes {
        lines.push(format!("*** {} blocks, {}", pass.blocks, pass.name));
        lines.extend(pass.reads.iter().map(|r| line(r, pass.blocks, direct)));
    }
    lines
}

fn line(read: &Read, blocks: u64, direct: bool) -> String {
    let (ela, block, tim) = (read.ns / 1000, read.block, read.at_us);
    if direct {
        return format!(
            "WAIT #1: nam='direct path read' ela= {ela} file number=1 first dba={block} block cnt={blocks} tim={tim}"
        );
    }
    let event = if blocks == 1 { "db file sequential read" } else { "db file scattered read" };
    format!("WAIT #1: nam='{event}' ela= {ela} file#=1 block#={block} blocks={blocks} tim={tim}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(us: u64, cached: bool) -> Read {
        Read { block: 7, cached, ns: us * 1000, at_us: 99 }
    }

    fn pass(blocks: u64, reads: Vec<Read>, ended: Option<LabError>) -> Pass {
        let noise = Noise { steal: 0.5, ..Noise::default() };
        Pass { blocks, name: "first", reads, noise, device_bytes: 8192, cached_share: 0.0, ended }
    }

    #[test]
    fn reads_are_told_by_evidence_first_and_by_time_then() {
        let mut reads: Vec<Read> = (0..100).map(|n| read(10 + n % 3, false)).collect();
        reads.extend((0..100).map(|n| read(5000 + n, false)));
        // However long they take.
        reads.extend((0..10).map(|n| read(if n < 5 { 12 } else { 6000 }, true)));
        reads.push(read(90_000, false));
        let (rows, notes) = rows(&[pass(1, reads, None)], false);
        let found: Vec<(&str, u64)> = rows.iter().map(|r| (r.params[2].as_str(), r.counts["reads"])).collect();
        let expected = [("page cache", 10), ("device: array cache (inferred)", 100), ("device: disk (inferred)", 101)];
        assert_eq!(found, expected);
        assert!(rows.iter().all(|r| r.noise.steal == 0.5 && r.status == Status::Good));
        assert_eq!(notes.iter().filter(|n| n.starts_with("outlier: ") && n.contains("90000 us")).count(), 1);
    }

    #[test]
    fn of_what_may_not_be_asked_only_times_are_told() {
        let reads = (0..200).map(|n| read(if n < 100 { 10 } else { 5000 }, n % 2 == 0 && n < 20)).collect();
        let mut rows = rows(&[pass(1, reads, None)], false).0;
        without_residency(&mut rows);
        let found: Vec<&str> = rows.iter().map(|r| r.params[2].as_str()).collect();
        let [seen, fast, slow] = found[..] else { panic!("{found:?}") };
        assert_eq!(seen, "page cache");
        assert!(fast.starts_with("page cache or device: fast"), "{fast}");
        assert!(slow.starts_with("page cache or device: slow"), "{slow}");
    }

    #[test]
    fn a_pass_that_was_stopped_says_so() {
        let (rows, _) = rows(
            &[pass(1, vec![read(10, true)], Some(LabError::Stopped)), pass(8, vec![], Some(LabError::Stopped))],
            true,
        );
        assert!(rows.len() == 2 && rows.iter().all(|r| r.status == Status::Stopped), "{rows:?}");
    }

    #[test]
    fn lines_are_those_of_the_event() {
        let single = pass(1, vec![read(253, false)], None);
        let several = pass(25, vec![read(9, false)], None);
        let of = |pass: Pass, direct| lines(&[pass], "data", direct).pop().unwrap_or_default();
        assert_eq!(
            of(single, false),
            "WAIT #1: nam='db file sequential read' ela= 253 file#=1 block#=7 blocks=1 tim=99"
        );
        assert_eq!(
            of(several, true),
            "WAIT #1: nam='direct path read' ela= 9 file number=1 first dba=7 block cnt=25 tim=99"
        );
        let several = pass(8, vec![read(9, false)], None);
        assert!(of(several, false).contains("scattered read"));
    }
}
