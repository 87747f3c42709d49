//! Processor time along a run: the program's and the kernel's, of all threads of the process, moment by moment.
//!
//! Whoever is at work looks between two batches, where a moment is over: no thread is added, and a look takes about a
//! microsecond. Moments begin with a millisecond and double as the run goes on, so that there are never more than twenty.

use crate::probe::host::processor_time;
use serde_json::{json, Value};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The first moments are so long.
const FIRST: Duration = Duration::from_millis(1);
/// As soon as there are so many, two and two become one.
const MOST: usize = 20;
/// Parts of a run, for people to look at.
pub(crate) const PARTS: usize = 12;

/// What was used since the run began, at a moment's end.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Moment {
    end_s: f64,
    user_s: f64,
    system_s: f64,
}

/// Samples of the processor time of one run.
#[derive(Debug)]
pub(crate) struct ProcessorSampler {
    /// When the next sample is due, ns after the beginning.
    due_ns: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    before: (Duration, Duration),
    every: Duration,
    moments: Vec<Moment>,
}

impl Default for ProcessorSampler {
    fn default() -> ProcessorSampler {
        let state = State { before: processor_time(), every: FIRST, moments: Vec::new() };
        ProcessorSampler { due_ns: AtomicU64::new(FIRST.as_nanos() as u64), state: Mutex::new(state) }
    }
}

impl ProcessorSampler {
    /// The run begins.
    pub(crate) fn begin(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).before = processor_time();
    }

    /// Takes a sample, if it is time and nobody else does; `zero` is when the run began.
    pub(crate) fn sample(&self, zero: Instant) {
        let after = zero.elapsed();
        if (after.as_nanos() as u64) < self.due_ns.load(Ordering::Relaxed) {
            return;
        }
        if let Ok(mut state) = self.state.try_lock() {
            state.note(after, processor_time());
            self.due_ns.store((after + state.every).as_nanos() as u64, Ordering::Relaxed);
        }
    }

    /// The run has ended so long after it began, and had used so much.
    pub(crate) fn end(self, after: Duration, used: (Duration, Duration)) -> ProcessorTime {
        let mut state = self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        let before = state.before;
        state.note(after, (before.0 + used.0, before.1 + used.1));
        ProcessorTime { runs: vec![state.moments] }
    }
}

impl State {
    fn note(&mut self, after: Duration, now: (Duration, Duration)) {
        let since = |now: Duration, before: Duration| now.saturating_sub(before).as_secs_f64();
        self.moments.push(Moment {
            end_s: after.as_secs_f64(),
            user_s: since(now.0, self.before.0),
            system_s: since(now.1, self.before.1),
        });
        if self.moments.len() >= MOST {
            let mut n = 0;
            self.moments.retain(|_| {
                n += 1;
                n % 2 == 0
            });
            self.every *= 2;
        }
    }
}

/// Of a row, run after run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ProcessorTime {
    runs: Vec<Vec<Moment>>,
}

impl ProcessorTime {
    /// Adds later runs.
    pub fn add(&mut self, later: ProcessorTime) {
        self.runs.extend(later.runs);
    }

    /// As the schema says: seconds, to the microsecond.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let us = |s: f64| (s * 1e6).round() / 1e6;
        let moment = |m: &Moment| json!([us(m.end_s), us(m.user_s), us(m.system_s)]);
        let runs: Vec<Vec<Value>> = self.runs.iter().map(|run| run.iter().map(moment).collect()).collect();
        json!({ "unit": "s", "runs": runs })
    }
}

/// A run in equal parts, from its moments as the schema has them: of each part the processor time of the program and of the
/// kernel, in percent of one processor; and how long the run was. `None` of a run with fewer than four moments.
pub(crate) fn parts(run: &Value) -> Option<(Vec<[f64; 2]>, f64)> {
    let moment = |m: &Value| Some([m[0].as_f64()?, m[1].as_f64()?, m[2].as_f64()?]);
    let moments: Vec<[f64; 3]> = run.as_array()?.iter().map(moment).collect::<Option<_>>()?;
    let length = moments.last().filter(|m| moments.len() >= 4 && m[0] > 0.0)?[0];
    // What was used until then, evenly within a moment.
    let used = |at: f64, of: usize| {
        let next = moments.iter().position(|m| m[0] >= at).unwrap_or(moments.len() - 1);
        let before = if next == 0 { [0.0; 3] } else { moments[next - 1] };
        let (took, share) = (moments[next][0] - before[0], at - before[0]);
        before[of] + (moments[next][of] - before[of]) * if took > 0.0 { (share / took).min(1.0) } else { 1.0 }
    };
    let part = length / PARTS as f64;
    let percent = |n: usize, of: usize| 100.0 * (used((n + 1) as f64 * part, of) - used(n as f64 * part, of)) / part;
    Some(((0..PARTS).map(|n| [percent(n, 1), percent(n, 2)]).collect(), length))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    #[test]
    fn moments_stay_few_and_end_with_the_run() {
        let sampler = ProcessorSampler::default();
        sampler.begin();
        if let Ok(mut state) = sampler.state.lock() {
            state.before = (of(5.0), of(1.0));
            let mut due = FIRST;
            for n in 1..=1000u32 {
                let s = 0.001 * f64::from(n);
                if of(s) >= due {
                    state.note(of(s), (of(5.0 + 0.75 * s), of(1.0 + 0.25 * s)));
                    due = of(s) + state.every;
                }
                assert!(state.moments.len() < MOST);
            }
            assert!(state.every > FIRST && state.moments.len() >= MOST / 4, "{state:?}");
        }
        let mut processor = sampler.end(of(1.5), (of(1.0), of(0.5)));
        let run = processor.runs[0].clone();
        assert!(run.windows(2).all(|w| w[0].end_s < w[1].end_s && w[0].user_s <= w[1].user_s), "{run:?}");
        assert_eq!(run.last(), Some(&Moment { end_s: 1.5, user_s: 1.0, system_s: 0.5 }));
        processor.add(processor.clone());
        let json = processor.to_json();
        assert_eq!((json["runs"].as_array().map(Vec::len), &json["runs"][1][0]), (Some(2), &json["runs"][0][0]));
    }

    #[test]
    fn a_run_in_parts_uses_what_the_whole_does() {
        // A second of both halves of a processor, one in which the kernel works alone, and one of nothing; uneven moments.
        let run = json!([[0.5, 0.25, 0.25], [1.0, 0.5, 0.5], [1.25, 0.5, 0.75], [2.0, 0.5, 1.5], [3.0, 0.5, 1.5]]);
        let (parts, length) = parts(&run).unwrap_or_default();
        let expected = [[50.0, 50.0], [0.0, 100.0], [0.0, 0.0]];
        assert_eq!((parts.len(), length), (PARTS, 3.0));
        for (n, part) in parts.iter().enumerate() {
            let expected = expected[n * 3 / PARTS];
            assert!((part[0] - expected[0]).abs() < 1e-6 && (part[1] - expected[1]).abs() < 1e-6, "{n}: {part:?}");
        }
        assert_eq!(super::parts(&json!([[0.5, 0.1, 0.1]])), None);
        assert_eq!(super::parts(&json!([[0.0, 0, 0], [0.0, 0, 0], [0.0, 0, 0], [0.0, 0, 0]])), None);
        assert_eq!(super::parts(&json!(null)), None);
    }
}
