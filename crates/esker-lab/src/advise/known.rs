//! Advice on reports whose truth is known: all rows of a command are equal, or the default buffer is slower.

use super::*;
use crate::compare::known::{percent, samples, Noise, KINDS};
use crate::readback::Figure;

/// Made-up reports.
struct ReportMaker {
    noise: Noise,
    rounds: usize,
    random: fastrand::Rng,
}

impl ReportMaker {
    /// A report with these rows; the second one takes `times` as long as the others.
    fn report(&mut self, command: &str, options: &Value, metric: &str, params: &[Value], times: f64) -> Value {
        let row = |(params, samples): (&Value, Vec<f64>)| {
            let figure = Figure { median: 1.0, low: 0.9, high: 1.1, samples, unit: "s".into() };
            json!({ "params": params, "metrics": { metric: figure }, "status": "good" })
        };
        let samples = samples(self.noise, params.len(), self.rounds, self.random.u64(..), times);
        let rows: Vec<Value> = params.iter().zip(samples).map(row).collect();
        json!({ "command": command, "options": options, "machine": { "memory_bytes": 8u64 << 30 }, "rows": rows })
    }
}

/// Everything that the rules compare, with equal rows but for the default buffer.
fn everything(noise: Noise, seed: u64, rounds: usize, times: f64) -> Vec<Value> {
    let mut maker = ReportMaker { noise, rounds, random: fastrand::Rng::with_seed(seed) };
    let sizes = |way: &str, what: &[&str], from: u64, n: u32| -> Vec<Value> {
        let one =
            |what: &str, i: u32| json!({ "do": what, "records": "static", "way": way, "buffer": size_text(from << i) });
        what.iter().flat_map(|w| (0..n).map(move |i| one(w, i))).collect()
    };
    let mut of = |command: &str, options: Value, metric: &str, params: &[Value], times: f64| {
        maker.report(command, &options, metric, params, times)
    };
    // 1M, the default's, comes second.
    let mut bulk = sizes("esker", &["write"], 64 << 10, 7);
    bulk.swap(1, 4);
    let ways = ["plain", "cached", "background", "mapped", "direct", "esker"];
    let io = |what: &'static str| ways.map(|way| json!({ "do": what, "way": way }));
    let barrier = |file: &str, barrier: &str| json!({ "file": file, "barrier": barrier });
    let files = ["appended", "reserved", "zero-filled", "recycled"];
    let barriers: Vec<Value> =
        files.iter().flat_map(|f| ["fdatasync", "fsync", "O_DSYNC", "RWF_DSYNC"].map(|b| barrier(f, b))).collect();
    let commits = ["", ", one sync per commit", ", no sync", ", 2pc", ", 2pc, coordinator not synced"]
        .map(|how| json!({ "on": "ext4", "threads": "8", "commit": format!("engine's sessions{how}") }));
    vec![
        of("buffer", json!({ "model": "esker" }), "durable_s", &bulk, times),
        of("buffer", json!({ "model": "myisam" }), "ns", &sizes("cached", &["write", "read warm"], 16 << 10, 9), 1.0),
        of("io", json!({ "buffer_bytes": 1 << 20 }), "durable_s", &io("write"), 1.0),
        of("io", json!({}), "ns", &io("read cold"), 1.0),
        of("sync", json!({}), "median_us", &barriers, 1.0),
        of("commit", json!({}), "per_second", &commits, 1.0),
        of("locks", json!({}), "ns", &["off", "on"].map(|t| json!({ "threads": "4", "timing": t })), 1.0),
    ]
}

fn advice(reports: &[Value]) -> Vec<Advice> {
    let reports: Vec<&Value> = reports.iter().collect();
    let mut facts = Facts::new(&reports, 151);
    rules::all(&facts);
    facts.judge();
    rules::all(&facts)
}

fn calls_something_different(advice: &[Advice]) -> bool {
    advice.iter().any(|a| match a.outcome {
        Outcome::Change | Outcome::Keep | Outcome::Badly => true,
        Outcome::Durable => a.why.contains(" instead of "),
        _ => false,
    })
}

#[test]
fn equal_rows_change_nothing_and_a_slow_default_does() {
    for noise in KINDS {
        let wrong = percent(|seed| calls_something_different(&advice(&everything(noise, seed, 16, 1.0))));
        let found = percent(|seed| advice(&everything(noise, seed, 16, 1.10))[0].outcome == Outcome::Change);
        println!("{noise:?}: {wrong:.1} percent called different, {found:.1} percent found");
        assert!(wrong <= 5.0 && found >= 90.0, "{noise:?}: {wrong} percent called different, {found} percent found");
    }
}
