//! For tests, with the feature `sim`: regions that are asked for have numbers, and those that a test names are refused, as a system
//! without memory refuses them. Of the whole process: tests that refuse something have one for themselves.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

static ASKED: AtomicU64 = AtomicU64::new(0);
static FIRST: AtomicU64 = AtomicU64::new(u64::MAX);
static END: AtomicU64 = AtomicU64::new(u64::MAX);

/// Of the regions that are asked for from now on those with these numbers, from 0 on, are refused.
pub fn refuse(numbers: Range<u64>) {
    let now = ASKED.load(Ordering::SeqCst);
    END.store(now.saturating_add(numbers.end), Ordering::SeqCst);
    FIRST.store(now.saturating_add(numbers.start), Ordering::SeqCst);
}

/// None is refused any more; was one?
pub fn have_enough() -> bool {
    let first = FIRST.swap(u64::MAX, Ordering::SeqCst);
    END.swap(u64::MAX, Ordering::SeqCst) > first && ASKED.load(Ordering::SeqCst) > first
}

pub(crate) fn is_refused() -> bool {
    let number = ASKED.fetch_add(1, Ordering::SeqCst);
    (FIRST.load(Ordering::SeqCst)..END.load(Ordering::SeqCst)).contains(&number)
}
