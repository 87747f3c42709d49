//! How often each thread has acquired locks of each name.
//!
//! A lock's acquisitions could be counted beside it, by whoever has it; but readers of a lock are many at once, and a name's
//! locks come and go. So each thread counts for itself, a word for each name in cache lines that nobody else writes, by a
//! plain load and store: that is exact for readers too, has the locks that are gone in it, and costs no line but the
//! thread's own. What a name has been acquired in all is the sum over all threads there were: their words are never freed,
//! and go on with the next thread.

use super::order::PLACES;
use parking_lot::Mutex;
use std::cell::Cell;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// Counts of one thread at a time.
#[repr(align(128))]
struct Tally {
    acquired: [AtomicU64; PLACES],
    next: AtomicPtr<Tally>,
}

/// Of threads that have none any more, as they end; the head of the list of all.
static SHARED: Tally = Tally::new();
/// Those of threads that have ended. Taken when threads begin and end.
static IDLE: Mutex<Vec<&'static Tally>> = Mutex::new(Vec::new());

thread_local! {
    static OWN: Cell<Option<&'static Tally>> = const { Cell::new(None) };
    /// Gives it back when the thread ends.
    static LENT: Lent = const { Lent };
}

struct Lent;

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(own) = OWN.take() {
            IDLE.lock().push(own);
        }
    }
}

impl Tally {
    const fn new() -> Tally {
        Tally { acquired: [const { AtomicU64::new(0) }; PLACES], next: AtomicPtr::new(std::ptr::null_mut()) }
    }

    fn take() -> &'static Tally {
        let mut idle = IDLE.lock();
        if let Some(tally) = idle.pop() {
            return tally;
        }
        // Still under the lock, so that nobody else links one at the same time.
        let tally = Box::leak(Box::new(Tally::new()));
        *tally.next.get_mut() = SHARED.next.load(Ordering::Relaxed);
        SHARED.next.store(tally, Ordering::Release);
        tally
    }
}

/// This thread has acquired a lock of the name at this place; how often it, or one before it, had done so already.
#[inline]
pub(super) fn count(place: usize) -> u64 {
    let Some(own) = OWN.get() else { return count_first(place) };
    let counter = &own.acquired[place];
    let before = counter.load(Ordering::Relaxed);
    counter.store(before + 1, Ordering::Relaxed);
    before
}

#[cold]
fn count_first(place: usize) -> u64 {
    if LENT.try_with(|_| ()).is_err() {
        return SHARED.acquired[place].fetch_add(1, Ordering::Relaxed);
    }
    OWN.set(Some(Tally::take()));
    count(place)
}

/// By all threads there were.
pub(super) fn total(place: usize) -> u64 {
    let mut tally = Some(&SHARED);
    let all = std::iter::from_fn(|| {
        let this = tally?;
        // SAFETY: null, or leaked, published with release order.
        tally = unsafe { this.next.load(Ordering::Acquire).as_ref() };
        Some(this.acquired[place].load(Ordering::Relaxed))
    });
    all.sum()
}
