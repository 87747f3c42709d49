//! What counting an event costs, in nanoseconds: of each family of figures that are always on, medians of 31 rounds in one thread and
//! in two at once. `cargo run --release -p esker-base --example event_cost [-- --json]`
//! `bench/cost.py` multiplies them with the events of a statement.

use esker_base::counters::{bind, count, Counter, SessionCounters};
use esker_base::lock::{order, Mutex};
use esker_base::{timed, WaitEvent};
use std::hint::black_box;
use std::sync::Barrier;
use std::time::Instant;

const ROUNDS: usize = 31;
const TIMES: u64 = 1_000_000;

/// Nanoseconds each, of the slowest of so many threads.
fn round(threads: usize, work: impl Fn(u64) + Sync) -> f64 {
    let begin = Barrier::new(threads);
    let each = || {
        let session = SessionCounters::new();
        let _bound = bind(&session);
        begin.wait();
        let start = Instant::now();
        (0..TIMES).for_each(&work);
        start.elapsed().as_nanos() as f64 / TIMES as f64
    };
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..threads).map(|_| scope.spawn(each)).collect();
        all.into_iter().map(|thread| thread.join().unwrap_or(f64::NAN)).fold(0.0, f64::max)
    })
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}

thread_local! {
    /// Locks of the thread's own: what is measured is the counting, not contention.
    static PLAIN: parking_lot::Mutex<u64> = const { parking_lot::Mutex::new(0) };
    static COUNTED: Mutex<u64> = Mutex::new(&order::LAB, 0);
}

fn main() {
    let nothing = |n| _ = black_box(n);
    let counter = |n| count(Counter::RowsRead, black_box(n));
    let wait = |n| _ = timed(WaitEvent::RunRead, || black_box(n));
    let plain = |n| PLAIN.with(|lock| *lock.lock() = black_box(n));
    let counted = |n| COUNTED.with(|lock| *lock.lock() = black_box(n));
    let mut found = Vec::new();
    for threads in [1, 2] {
        let mut of = [const { Vec::new() }; 3];
        for _ in 0..ROUNDS {
            // Beside each other, so that what disturbs disturbs both.
            let without = round(threads, nothing);
            of[0].push(round(threads, counter) - without);
            of[1].push(round(threads, wait) - without);
            let without = round(threads, plain);
            of[2].push(round(threads, counted) - without);
        }
        found.push(of.map(median));
    }
    let names = [
        ("counter", "a counter"),
        ("wait", "a wait, counted and timed"),
        ("lock", "a lock's taking, counted, timed of one in 64"),
    ];
    let rows = names.iter().enumerate().map(|(at, (key, name))| (key, name, found[0][at], found[1][at]));
    if std::env::args().any(|argument| argument == "--json") {
        let all: Vec<_> = rows.map(|(key, _, one, two)| format!("\"{key}\": [{one:.2}, {two:.2}]")).collect();
        println!("{{{}}}", all.join(", "));
        return;
    }
    println!("{:<48} {:>8} {:>9}   ns, median of {ROUNDS}", "", "1 thread", "2 threads");
    rows.for_each(|(_, name, one, two)| println!("{name:<48} {one:>8.2} {two:>9.2}"));
}
