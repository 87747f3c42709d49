//! Stacks of those who wait for a lock and of those who let them wait, sampled.
//!
//! One in N contended acquisitions records its stack before it blocks, and leaves the lock's address with the site; who
//! lets go of that lock next records its own, after unlocking, so that no hold becomes longer. A stack is thus one of
//! the code that let go, which is the code that held, save for guards that were handed on. Bounded: at most
//! [`MOST_STACKS`] different stacks for each role of a site; what comes beyond them is only counted.

use super::order::ALL;
use std::backtrace::Backtrace;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Different stacks that are kept for each role of a site.
pub const MOST_STACKS: usize = 64;

/// Two stacks that agree in so many frames are one.
const DEPTH: usize = 48;

/// One in so many contended acquisitions is sampled; 0: none.
static EVERY: AtomicU32 = AtomicU32::new(0);

/// Samples the stacks of one in `every` contended acquisitions of each site, and of who held the lock, while
/// [`super::profile`] is on; 0 ends that. Stacks sampled before are forgotten unless `every` is 0.
pub fn sample_stacks(every: u32) {
    EVERY.store(0, Ordering::Relaxed);
    if every > 0 {
        ALL.iter().for_each(|site| site.samples.forget());
    }
    EVERY.store(every, Ordering::Relaxed);
}

/// What a thread had to do with a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// It found the lock taken.
    Waiter,
    /// It held the lock while a waiter that was sampled came.
    Holder,
}

/// A stack, and how often it was met.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stack {
    /// Whose it is.
    pub role: Role,
    /// Samples with this stack.
    pub count: u64,
    /// Names of functions, the innermost first; those of the lock itself and of the thread's start are left out.
    pub frames: Vec<String>,
}

/// The stacks sampled at a site.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stacks {
    /// Waiters, then holders, the most frequent first.
    pub stacks: Vec<Stack>,
    /// Samples for which there was no room.
    pub without_room: u64,
}

/// The stacks sampled at the site `name` since [`sample_stacks`]. Names are looked up here, which takes long: not for
/// use on a hot path.
#[must_use]
pub fn stacks(name: &str) -> Stacks {
    let site = ALL.iter().find(|site| site.name == name);
    site.map_or_else(Stacks::default, |site| site.samples.named())
}

/// A stack as it was taken: addresses that tell it from others, and what names can be had from.
struct Taken {
    role: Role,
    addresses: Vec<usize>,
    trace: Backtrace,
    count: u64,
}

/// What a site keeps.
pub(super) struct Samples {
    /// Contended acquisitions while sampling.
    turns: AtomicU32,
    /// Address of the lock whose holder is to record its stack; 0: none.
    wanted: AtomicUsize,
    without_room: AtomicU64,
    taken: parking_lot::Mutex<Vec<Taken>>,
}

impl Samples {
    pub(super) const fn new() -> Samples {
        Samples {
            turns: AtomicU32::new(0),
            wanted: AtomicUsize::new(0),
            without_room: AtomicU64::new(0),
            taken: parking_lot::Mutex::new(Vec::new()),
        }
    }

    /// Samples a waiter if it is its turn; was it?
    pub(super) fn before_wait(&self, lock: usize) -> bool {
        let every = EVERY.load(Ordering::Relaxed);
        if every == 0 || self.turns.fetch_add(1, Ordering::Relaxed) % every != 0 {
            return false;
        }
        self.wanted.store(lock, Ordering::Relaxed);
        self.record(Role::Waiter);
        true
    }

    /// The lock is had: a holder that had let go before it was asked is not to be taken for the next one.
    pub(super) fn after_wait(&self, lock: usize) {
        let _ = self.wanted.compare_exchange(lock, 0, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Is the holder of this lock to record its stack? Only one is.
    pub(super) fn asked_for(&self, lock: usize) -> bool {
        self.wanted.load(Ordering::Relaxed) == lock
            && self.wanted.compare_exchange(lock, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Records the stack of this thread.
    #[cold]
    pub(super) fn record(&self, role: Role) {
        let addresses = addresses();
        let mut taken = self.taken.lock();
        if let Some(known) = taken.iter_mut().find(|t| t.role == role && t.addresses == addresses) {
            known.count += 1;
        } else if taken.iter().filter(|t| t.role == role).count() < MOST_STACKS {
            taken.push(Taken { role, addresses, trace: Backtrace::force_capture(), count: 1 });
        } else {
            self.without_room.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn forget(&self) {
        self.taken.lock().clear();
        self.without_room.store(0, Ordering::Relaxed);
        self.turns.store(0, Ordering::Relaxed);
    }

    /// Stacks that differ only in addresses of the same functions are one.
    fn named(&self) -> Stacks {
        let mut stacks: Vec<Stack> = Vec::new();
        for t in self.taken.lock().iter() {
            let frames = frames(&t.trace.to_string());
            match stacks.iter_mut().find(|s| s.role == t.role && s.frames == frames) {
                Some(same) => same.count += t.count,
                None => stacks.push(Stack { role: t.role, count: t.count, frames }),
            }
        }
        stacks.sort_by(|a, b| a.role.cmp(&b.role).then(b.count.cmp(&a.count)));
        Stacks { stacks, without_room: self.without_room.load(Ordering::Relaxed) }
    }
}

/// Return addresses of the callers, the innermost first: cheap to compare, where names are not.
fn addresses() -> Vec<usize> {
    let mut found = [std::ptr::null_mut::<c_void>(); DEPTH];
    // SAFETY: there is room for DEPTH addresses.
    let n = unsafe { libc::backtrace(found.as_mut_ptr(), DEPTH as libc::c_int) };
    found.iter().take(usize::try_from(n).unwrap_or(0)).map(|a| *a as usize).collect()
}

/// Functions in a printed backtrace ("  3: name", then perhaps "at file:line"), without what every stack has: the
/// capture and the lock at its top, the start of a thread or process at its end.
fn frames(printed: &str) -> Vec<String> {
    let mut all: Vec<(String, &str)> = Vec::new();
    for line in printed.lines().map(str::trim_start) {
        if let (Some(file), Some(last)) = (line.strip_prefix("at "), all.last_mut()) {
            last.1 = file;
        } else if let Some((_, name)) = line.split_once(": ").filter(|(n, _)| n.parse::<u32>().is_ok()) {
            all.push((name.to_owned(), ""));
        }
    }
    let begin = all.iter().take_while(|(name, file)| is_of_the_lock(name, file)).count();
    let ends = |(name, _): &(String, &str)| name.contains("__rust_begin_short_backtrace");
    let end = all.iter().position(ends).unwrap_or(all.len());
    all.into_iter().take(end).skip(begin).map(|(name, _)| name).collect()
}

/// Names have no paths in builds with line tables only: then the file tells.
fn is_of_the_lock(name: &str, file: &str) -> bool {
    let of = |path: &str| name.starts_with(path) || name.starts_with(&format!("<{path}"));
    let tests = name.starts_with("esker_base::lock::tests") || file.contains("lock/tests.rs");
    let named = of("esker_base::lock::") || of("std::backtrace") || of("core::") || of("<unknown>");
    // The last one is what a path looks like in this crate's own tests.
    let own =
        file.contains("esker-base/src/lock") || ["./src/lock/", "./src/lock.rs"].iter().any(|f| file.starts_with(f));
    !tests && (named || own || file.contains("library/std/") || file.contains("library/core/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_those_between_the_lock_and_the_start_of_the_thread() {
        let printed = "   0: std::backtrace::Backtrace::create\n   1: esker_base::lock::stacks::Samples::record\n\
                       \x20            at ./src/lock/stacks.rs:1:2\n   2: <esker_base::lock::Mutex<T>>::lock\n\
                       \x20  3: app::work::{{closure}}\n             at ./x.rs:1:5\n   4: app::main\n\
                       \x20  5: std::sys::backtrace::__rust_begin_short_backtrace\n   6: clone\n";
        assert_eq!(frames(printed), ["app::work::{{closure}}", "app::main"]);
        let short = "   0: record\n             at ./crates/esker-base/src/lock/stacks.rs:1:2\n   1: drop_in_place<G>\n\
                     \x20            at /rustc/abc/library/core/src/ptr/mod.rs:1:1\n   2: short_work\n             at ./l.rs:1:1\n";
        assert_eq!(frames(short), ["short_work"]);
        assert!(frames("").is_empty());
    }

    #[test]
    fn the_table_has_an_end() {
        let samples = Samples::new();
        for n in 0..2 * MOST_STACKS {
            let trace = Backtrace::disabled();
            samples.taken.lock().push(Taken { role: Role::Waiter, addresses: vec![n], trace, count: 1 });
        }
        samples.record(Role::Waiter);
        samples.record(Role::Holder);
        assert_eq!(samples.taken.lock().len(), 2 * MOST_STACKS + 1);
        assert_eq!(samples.named().without_room, 1);
        samples.forget();
        assert_eq!(samples.named(), Stacks::default());
    }
}
