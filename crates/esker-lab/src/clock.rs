//! Threads that begin together, and how fast they were while all of them were at work.
//!
//! Invariant: nothing but the work lies between the clock's start and its end: threads are there before, and what they
//! need is open; what they leave behind is taken apart after.

use crate::error::{LabError, Result};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Something that a thread did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// When it began, after the clock's start.
    pub start_ns: u64,
    /// How long it took.
    pub took_ns: u64,
}

impl Event {
    fn end_ns(&self) -> u64 {
        self.start_ns + self.took_ns
    }
}

/// A thread's events.
#[derive(Debug)]
pub struct Watch {
    zero: Instant,
    events: Vec<Event>,
}

impl Watch {
    /// Counts from `zero`.
    #[must_use]
    pub fn new(zero: Instant) -> Watch {
        Watch { zero, events: Vec::new() }
    }

    /// Does something and times it.
    ///
    /// # Errors
    /// What it fails with.
    pub fn time<T>(&mut self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let start = self.zero.elapsed();
        let done = work()?;
        let took_ns = (self.zero.elapsed() - start).as_nanos() as u64;
        self.events.push(Event { start_ns: start.as_nanos() as u64, took_ns });
        Ok(done)
    }

    /// What was timed, in its order.
    #[must_use]
    pub fn events(self) -> Vec<Event> {
        self.events
    }
}

/// Where threads wait for each other.
#[derive(Default)]
struct Gate {
    state: Mutex<State>,
    arrived: Condvar,
    opened: Condvar,
}

#[derive(Default)]
struct State {
    waiting: usize,
    /// Nobody will open it.
    given_up: bool,
    zero: Option<Instant>,
}

impl Gate {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until it is opened; when that was. `None`: it will not be.
    fn pass(&self) -> Option<Instant> {
        let mut state = self.lock();
        state.waiting += 1;
        self.arrived.notify_one();
        while state.zero.is_none() && !state.given_up {
            state = self.opened.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.zero
    }

    /// Opens it once so many wait. Where `go` fails it stays closed.
    fn open(&self, threads: usize, go: impl FnOnce()) -> Result<()> {
        let mut state = self.lock();
        while state.waiting < threads {
            state = self.arrived.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        caught(|| {
            go();
            Ok(())
        })?;
        state.zero = Some(Instant::now());
        self.opened.notify_all();
        Ok(())
    }

    fn give_up(&self) {
        self.lock().given_up = true;
        self.opened.notify_all();
    }
}

/// What it gives. A panic becomes an error, so that nobody waits for who is gone.
pub(crate) fn caught<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let words = panic.downcast_ref::<&str>().copied();
        let words = words.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("a panic");
        Err(LabError::Failed(format!("the lab itself failed: {words}")))
    })
}

/// Does all jobs at once, a thread each, the only one in this thread: what they gave, and how long the last one took. `go`
/// is called when all threads are there, right before the clock starts; jobs are told when that was, and are dropped when
/// all are done.
///
/// # Errors
/// What the jobs fail with, a panic too; when there is no thread for one, none is begun.
pub fn together<J: Send, T: Send>(
    mut jobs: Vec<J>,
    go: impl FnOnce(),
    work: &(impl Fn(&mut J, Instant) -> Result<T> + Sync),
) -> Result<(Vec<T>, Duration)> {
    // The job goes back with what it gave: taking it apart is no part of the work.
    let timed = |mut job: J, zero: Instant| {
        let value = caught(|| work(&mut job, zero))?;
        Ok((value, zero.elapsed(), job))
    };
    let results: Vec<Result<(T, Duration, J)>> = if jobs.len() == 1 {
        caught(|| {
            go();
            Ok(())
        })?;
        jobs.pop().into_iter().map(|job| timed(job, Instant::now())).collect()
    } else {
        at_once(jobs, go, &timed)?
    };
    let mut longest = Duration::ZERO;
    let mut of = |(value, took, _): (T, Duration, J)| {
        longest = longest.max(took);
        value
    };
    let values = results.into_iter().map(|r| r.map(&mut of)).collect::<Result<Vec<T>>>()?;
    Ok((values, longest))
}

fn at_once<J: Send, T: Send>(
    jobs: Vec<J>,
    go: impl FnOnce(),
    work: &(impl Fn(J, Instant) -> Result<T> + Sync),
) -> Result<Vec<Result<T>>> {
    let gate = Gate::default();
    let ended = |t: std::thread::ScopedJoinHandle<'_, Result<T>>| {
        t.join().unwrap_or_else(|_| Err(LabError::Failed("a thread ended early".into())))
    };
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for job in jobs {
            let gate = &gate;
            let begin = move || gate.pass().map_or(Err(LabError::Stopped), |zero| work(job, zero));
            match std::thread::Builder::new().spawn_scoped(scope, begin) {
                Ok(thread) => threads.push(thread),
                Err(e) => {
                    gate.give_up();
                    let n = threads.len();
                    return Err(LabError::Failed(format!("there is no thread beside {n} others: {e}")));
                }
            }
        }
        if let Err(e) = gate.open(threads.len(), go) {
            gate.give_up();
            return Err(e);
        }
        Ok(threads.into_iter().map(ended).collect())
    })
}

/// Events a second in the time in which all threads were at work: from the beginning of the last one's first event to the
/// end of the first one's last. What lies in it only in part counts in part. Threads that had nothing to do do not count;
/// where there is no such time, it is the whole.
#[must_use]
pub fn steady_rate(threads: &[Vec<Event>]) -> f64 {
    let firsts = || threads.iter().filter_map(|t| t.first()).map(|e| e.start_ns);
    let lasts = || threads.iter().filter_map(|t| t.last()).map(Event::end_ns);
    let whole = (firsts().min().unwrap_or(0), lasts().max().unwrap_or(0));
    let all = (firsts().max().unwrap_or(0), lasts().min().unwrap_or(0));
    let (from, to) = if all.1 > all.0 { all } else { whole };
    let within = |e: &Event| {
        let shared = e.end_ns().min(to).saturating_sub(e.start_ns.max(from));
        if e.took_ns > 0 {
            shared as f64 / e.took_ns as f64
        } else {
            1.0
        }
    };
    threads.iter().flatten().map(within).sum::<f64>() * 1e9 / (to - from).max(1) as f64
}

/// How often a case does what it does in a run: as often as is asked for, or more, so that it takes long enough. Found at
/// the first run, kept for all others.
#[derive(Debug)]
pub struct Repetitions {
    least: Duration,
    most: u64,
    count: u64,
    known: bool,
}

impl Repetitions {
    /// From `count` times on, at most `most`, for at least `least`.
    #[must_use]
    pub fn new(count: u64, most: u64, least: Duration) -> Repetitions {
        Repetitions { least, most: most.max(count), count, known: false }
    }

    /// Runs it so often; runs that were too short do not count.
    ///
    /// # Errors
    /// What it fails with.
    pub fn run<T>(&mut self, mut once: impl FnMut(u64) -> Result<(T, Duration)>) -> Result<T> {
        loop {
            let (found, took) = once(self.count)?;
            if self.known || took >= self.least || self.count >= self.most {
                self.known = true;
                return Ok(found);
            }
            let times = 1.2 * self.least.as_secs_f64() / took.as_secs_f64().max(1e-6);
            self.count = ((self.count as f64 * times.clamp(1.5, 100.0)).ceil() as u64).min(self.most);
        }
    }
}

/// A time that may be none at all.
///
/// # Errors
/// When it is no time.
pub fn least_time(text: &str) -> std::result::Result<Duration, String> {
    match text {
        "0" | "0s" => Ok(Duration::ZERO),
        text => crate::units::time(text),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn events(times: &[(u64, u64)]) -> Vec<Event> {
        times.iter().map(|(start_ns, took_ns)| Event { start_ns: *start_ns, took_ns: *took_ns }).collect()
    }

    #[test]
    fn nobody_begins_before_all_are_there_and_the_clock_is_read() {
        let (begun, seen) = (AtomicUsize::new(0), AtomicUsize::new(usize::MAX));
        let go = || seen.store(begun.load(Ordering::SeqCst), Ordering::SeqCst);
        let work = |n: &mut usize, zero: Instant| {
            begun.fetch_add(1, Ordering::SeqCst);
            Ok((*n, zero))
        };
        let (done, took) = together((0..50).collect(), go, &work).unwrap();
        assert_eq!((seen.into_inner(), begun.into_inner()), (0, 50));
        assert!(done.iter().enumerate().all(|(i, d)| d.0 == i && d.1 == done[0].1) && took > Duration::ZERO);
        let failed = together(vec![1, 2], || {}, &|n: &mut i32, _| match n {
            1 => Ok(()),
            _ => Err(LabError::Stopped),
        });
        assert!(matches!(failed, Err(LabError::Stopped)));
    }

    /// Remembers how many were done when it was dropped.
    struct Left<'a> {
        done: &'a AtomicUsize,
        least: &'a AtomicUsize,
    }

    impl Drop for Left<'_> {
        fn drop(&mut self) {
            self.least.fetch_min(self.done.load(Ordering::SeqCst), Ordering::SeqCst);
        }
    }

    #[test]
    fn nothing_is_taken_apart_before_all_are_done() {
        let (done, least) = (AtomicUsize::new(0), AtomicUsize::new(usize::MAX));
        let jobs = (0..20).map(|_| Left { done: &done, least: &least }).collect();
        together(jobs, || {}, &|_: &mut Left<'_>, _| {
            done.fetch_add(1, Ordering::SeqCst);
            Ok(())
        })
        .unwrap();
        assert_eq!(least.into_inner(), 20);
    }

    #[test]
    fn a_panic_ends_all_with_an_error() {
        // Whoever waits for what never comes hangs here.
        for threads in [1, 5] {
            let words = |r: Result<(Vec<()>, Duration)>| r.unwrap_err().to_string();
            let before = together(vec![(); threads], || panic!("before"), &|(), _| Ok(()));
            assert!(words(before).contains("before"), "{threads}");
            let within = together(vec![(); threads], || {}, &|(), _| panic!("within"));
            assert!(words(within).contains("within"), "{threads}");
        }
    }

    #[test]
    fn a_rate_is_of_the_time_in_which_all_were_at_work() {
        // One thread: by its own times.
        assert_eq!(steady_rate(&[events(&[(50, 8_000_000)])]), 125.0);
        // The first thread worked alone for a while, the second one for another: 10 events in 10 ns of both.
        let first: Vec<(u64, u64)> = (0..30).map(|n| (n * 2, 2)).collect();
        let second: Vec<(u64, u64)> = (25..50).map(|n| (n * 2, 2)).collect();
        assert_eq!(steady_rate(&[events(&first), events(&second)]), 1e9);
        // What lies across the edge counts in part; a thread without events does not count.
        let rate = steady_rate(&[events(&[(0, 100)]), events(&[(50, 25), (75, 75)]), vec![]]);
        assert!((rate - 1e9 * (0.5 + 1.0 + 1.0 / 3.0) / 50.0).abs() < 1.0, "{rate}");
        // Never at work together.
        assert_eq!(steady_rate(&[events(&[(0, 10)]), events(&[(10, 10)])]), 1e8);
        assert_eq!(steady_rate(&[]), 0.0);
    }

    #[test]
    fn a_case_is_repeated_until_it_takes_long_enough() {
        let mut asked = Vec::new();
        let mut repetitions = Repetitions::new(10, 10_000, Duration::from_millis(100));
        for _ in 0..3 {
            let once = |n| {
                asked.push(n);
                Ok(((), Duration::from_micros(100 * n)))
            };
            repetitions.run(once).unwrap();
        }
        // However short a later one is.
        repetitions.run(|n| Ok((asked.push(n), Duration::ZERO))).unwrap();
        assert_eq!(asked, [10, 1000, 1000, 1000, 1000]);
        let mut last = 0;
        let mut bounded = Repetitions::new(10, 20, Duration::from_secs(1));
        bounded.run(|n| Ok((last = n, Duration::ZERO))).unwrap();
        assert_eq!(last, 20);
        assert_eq!((least_time("0"), least_time("2s")), (Ok(Duration::ZERO), Ok(Duration::from_secs(2))));
    }
}
