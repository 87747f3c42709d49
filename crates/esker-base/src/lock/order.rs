//! In builds with assertions: the order in which locks are taken, learned from every acquisition and asserted.
//!
//! Owns the graph "was held when that one was waited for" over the names of locks, and each thread's list of what it
//! holds. Invariant: the graph has no circle. An acquisition that would close one panics before it waits, though nobody
//! may be waiting at that moment: two threads that took the same locks in the two orders met on the way there, or will.
//! (The method is that of Linux' lockdep.) Locks that are only tried wait for nobody; they count as held. Two locks of
//! one name have no order, so nobody may wait for one while he has another, unless he says that he has an order for them.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};

/// Names beyond so many are not looked at.
const MOST: usize = 128;
const WORDS: usize = MOST / 64;

/// After which locks a lock has been waited for: a bit for each, found without a lock of its own.
static AFTER: [[AtomicU64; WORDS]; MOST] = [const { [const { AtomicU64::new(0) }; WORDS] }; MOST];
/// Taken to add to [`AFTER`].
static LEARNING: parking_lot::Mutex<()> = parking_lot::Mutex::new(());

thread_local! {
    static HELD: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

fn follows(before: usize, after: usize) -> bool {
    AFTER[before][after / 64].load(Ordering::Relaxed) & 1 << (after % 64) != 0
}

/// A way from one lock to another along the order, if there is one.
fn way(from: usize, to: usize, seen: &mut [bool; MOST]) -> Option<Vec<usize>> {
    if from == to {
        return Some(vec![to]);
    }
    seen[from] = true;
    (0..MOST).find_map(|next| {
        let rest = (follows(from, next) && !seen[next]).then(|| way(next, to, seen)).flatten()?;
        Some([vec![from], rest].concat())
    })
}

/// This thread is about to wait for the lock number `lock`.
///
/// # Panics
/// If it holds one that is taken after that.
pub(super) fn before_wait(lock: usize, name: impl Fn(usize) -> &'static str) {
    if lock >= MOST {
        return;
    }
    // A thread that ends has no list any more.
    let _ = HELD.try_with(|held| held.borrow().iter().for_each(|before| learn(*before, lock, &name)));
}

fn learn(before: usize, after: usize, name: &impl Fn(usize) -> &'static str) {
    if before >= MOST || follows(before, after) {
        return;
    }
    let learning = LEARNING.lock();
    if let Some(way) = way(after, before, &mut [false; MOST]) {
        drop(learning);
        let way: Vec<_> = way.into_iter().map(name).collect();
        panic!("'{}' is held and '{}' wanted; the order is {}", name(before), name(after), way.join(", "));
    }
    AFTER[before][after / 64].fetch_or(1 << (after % 64), Ordering::Relaxed);
}

/// This thread has the lock.
pub(super) fn taken(lock: usize) {
    let _ = HELD.try_with(|held| held.borrow_mut().push(lock));
}

/// This thread lets go of the lock.
pub(super) fn released(lock: usize) {
    let _ = HELD.try_with(|held| {
        let mut held = held.borrow_mut();
        let at = held.iter().rposition(|h| *h == lock);
        at.map(|at| held.remove(at));
    });
}

/// Forgets, for a moment, which locks of this number the thread has; how many they were.
pub(super) fn set_aside(lock: usize) -> usize {
    let forget = |held: &RefCell<Vec<usize>>| {
        let mut held = held.borrow_mut();
        let before = held.len();
        held.retain(|h| *h != lock);
        before - held.len()
    };
    HELD.try_with(forget).unwrap_or(0)
}
