//! What noting a wait costs, by processor time: counted and timed as always, and in a traced statement.
//! `cargo run --release -p esker-base --example wait_cost`: medians of 31 trials, 1 and 2 threads.

use esker_base::trace::{self, thread_cpu_ns, Recorder, MOST_NOTED};
use esker_base::{timed, WaitEvent};
use std::hint::black_box;

const TRIALS: usize = 31;

/// Median nanoseconds for one of `times` runs of `work`, in each of `threads` threads at once.
fn median_ns(threads: usize, times: usize, traced: bool, work: fn()) -> f64 {
    let trial = move || {
        if traced {
            trace::begin_statement(Recorder::new(Box::new(|| None)));
        }
        let began = thread_cpu_ns();
        (0..times).for_each(|_| work());
        let took = thread_cpu_ns() - began;
        trace::end_statement();
        took as f64 / times as f64
    };
    let mut trials: Vec<f64> = (0..TRIALS)
        .flat_map(|_| {
            let running: Vec<_> = (0..threads).map(|_| std::thread::spawn(trial)).collect();
            running.into_iter().map(|thread| thread.join().unwrap_or(f64::NAN)).collect::<Vec<_>>()
        })
        .collect();
    trials.sort_by(f64::total_cmp);
    trials[trials.len() / 2]
}

fn main() {
    let wait = || timed(WaitEvent::RunRead, || black_box(()));
    let call = || {
        trace::begin_call();
        black_box(());
        trace::end_call();
    };
    println!("ns of processor time, median of {TRIALS}        1 thread  2 threads");
    for (what, traced, work) in [
        ("a wait", false, wait as fn()),
        ("a wait of a traced statement", true, wait as fn()),
        ("a call of the engine", false, call as fn()),
        ("a call of the engine, traced", true, call as fn()),
    ] {
        let [one, two] = [1, 2].map(|threads| median_ns(threads, MOST_NOTED, traced, work));
        println!("{what:40} {one:12.1} {two:10.1}");
    }
}
