//! Decisions that are made and not carried out yet: what `commit_ordered` leaves behind.
//!
//! Who decides puts its decision in here and does nothing else: no lock, no system call, no wait. It is carried out, in the order in
//! which it came, by whoever takes the commit lock next: to append something, or only for that. The latter is done by a session that
//! opens a view, so that every view opened after a decision has it; by who waits for another transaction, syncs the log for all (each
//! second where commits do not, or because its coordinator asks), or changes the catalog; and by the transaction's own session at the
//! latest, before it releases its locks and answers.
//!
//! Invariant: `open` counts a decision from before it can be found until it shows, so that whoever finds none open after one was
//! made finds that one visible.

use crate::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::ptr::null_mut;
use std::sync::Arc;

/// One decision.
pub(crate) struct Decision<T> {
    pub(crate) what: T,
    /// The one made before, as long as it is to be carried out; as an `Arc`'s pointer.
    earlier: AtomicPtr<Decision<T>>,
}

impl<T> Decision<T> {
    pub(crate) fn new(what: T) -> Arc<Self> {
        Arc::new(Decision { what, earlier: AtomicPtr::new(null_mut()) })
    }
}

/// Those that are to be carried out: a stack, which is only ever emptied as a whole.
pub(crate) struct Decisions<T> {
    newest: AtomicPtr<Decision<T>>,
    open: AtomicUsize,
}

impl<T> Decisions<T> {
    pub(crate) fn new() -> Self {
        Decisions { newest: AtomicPtr::new(null_mut()), open: AtomicUsize::new(0) }
    }

    /// Makes a decision, which nobody has made before.
    pub(crate) fn make(&self, decision: Arc<Decision<T>>) {
        self.open.fetch_add(1, Ordering::SeqCst);
        let new = Arc::into_raw(decision).cast_mut();
        let mut newest = self.newest.load(Ordering::Relaxed);
        loop {
            // SAFETY: an Arc's, given up to this stack, which nobody takes from before it is linked.
            unsafe { (*new).earlier.store(newest, Ordering::Relaxed) };
            match self.newest.compare_exchange_weak(newest, new, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => newest = now,
            }
        }
    }

    /// Is there one that may not show yet? No lock.
    pub(crate) fn any_open(&self) -> bool {
        self.open.load(Ordering::SeqCst) != 0
    }

    /// Carries all of them out, the oldest first. Called under the commit lock.
    pub(crate) fn carry_out(&self, mut each: impl FnMut(&T)) {
        let decisions = self.take();
        for decision in decisions.iter().rev() {
            each(&decision.what);
        }
        let count = decisions.len();
        // Before their sessions may end: who is the last to let go of one frees what it has.
        drop(decisions);
        self.open.fetch_sub(count, Ordering::SeqCst);
    }

    /// All of them, the newest first.
    fn take(&self) -> Vec<Arc<Decision<T>>> {
        let mut taken = Vec::new();
        let mut at = self.newest.swap(null_mut(), Ordering::AcqRel);
        while !at.is_null() {
            // SAFETY: given up by `make`, and taken once: the swap left no way to it.
            let decision = unsafe { Arc::from_raw(at.cast_const()) };
            at = decision.earlier.load(Ordering::Relaxed);
            taken.push(decision);
        }
        taken
    }
}

impl<T> Drop for Decisions<T> {
    fn drop(&mut self) {
        self.take();
    }
}
