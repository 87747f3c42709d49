//! What taking a free lock and letting go of it costs, in nanoseconds: the median of 31 rounds, beside parking_lot's own.
//!
//! Each thread has locks of its own, of one name: what is measured is the lock, not its contention.

use esker_base::lock::{order, Mutex, RwLock};
use std::hint::black_box;
use std::sync::Barrier;
use std::time::Instant;

const ROUNDS: usize = 31;
const TIMES: u64 = 2_000_000;

/// Nanoseconds each, in threads at once: of the slowest one.
fn cost<L: Sync>(locks: &[L], take: impl Fn(&L) + Sync) -> f64 {
    let begin = Barrier::new(locks.len());
    let each = |lock: &L| {
        begin.wait();
        let start = Instant::now();
        (0..TIMES).for_each(|_| take(black_box(lock)));
        start.elapsed().as_nanos() as f64 / TIMES as f64
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = locks.iter().map(|lock| scope.spawn(|| each(lock))).collect();
        threads.into_iter().map(|t| t.join().unwrap_or(f64::NAN)).fold(0.0, f64::max)
    })
}

fn median(mut of: Vec<f64>) -> (f64, f64, f64) {
    of.sort_by(f64::total_cmp);
    (of[of.len() / 2], of[of.len() / 4], of[3 * of.len() / 4])
}

/// In cache lines of their own.
#[repr(align(256))]
struct Apart<L>(L);

fn main() {
    println!("{:<12} {:>7} {:>9} {:>9} {:>9}   ns, median of {ROUNDS}, and quartiles", "lock", "threads", "", "", "");
    for threads in [1, 2] {
        let all = || 0..threads;
        let plain: Vec<_> = all().map(|n| Apart(parking_lot::Mutex::new(n as u64))).collect();
        let mutexes: Vec<_> = all().map(|n| Apart(Mutex::new(&order::LAB, n as u64))).collect();
        let rwlocks: Vec<_> = all().map(|n| Apart(RwLock::new(&order::LAB, n as u64))).collect();
        let mut found = [const { Vec::new() }; 4];
        // In turn, so that what disturbs disturbs all.
        for _ in 0..ROUNDS {
            found[0].push(cost(&plain, |l| *l.0.lock() += 1));
            found[1].push(cost(&mutexes, |l| *l.0.lock() += 1));
            found[2].push(cost(&rwlocks, |l| *l.0.write() += 1));
            found[3].push(cost(&rwlocks, |l| _ = black_box(*l.0.read())));
        }
        for (name, of) in ["parking_lot", "mutex", "write", "read"].into_iter().zip(found) {
            let (middle, low, high) = median(of);
            println!("{name:<12} {threads:>7} {middle:>9.2} {low:>9.2} {high:>9.2}");
        }
    }
}
