//! Stacks of those who wait for a lock and of those who let them wait, sampled.
//!
//! One in N contended acquisitions takes its stack before it blocks, and leaves the lock's address with the site; who
//! lets go of that lock next takes his own, after unlocking, so that no hold becomes longer. His stack is thus one of
//! the code that let go, which is the code that held, save for guards that were handed on; it stands for how long he held the
//! lock, and for how long letting go took him. What is kept are addresses; names are looked up by who reads them. Bounded: at
//! most [`MOST_STACKS`] different stacks for each role of a site, [`MOST_IN_ALL`] of all; what comes beyond them is only counted.

use super::order::ALL;
use crate::draw::is_drawn;
use std::ffi::{c_void, CStr};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Different stacks that are kept for each role of a site.
pub const MOST_STACKS: usize = 64;
/// Different stacks that are kept in all.
pub const MOST_IN_ALL: usize = 512;

/// Two stacks that agree in so many frames are one.
const DEPTH: usize = 48;

/// One in so many contended acquisitions is sampled; 0: none.
static EVERY: AtomicU32 = AtomicU32::new(0);
/// Stacks that are kept, and their bytes.
static KEPT: AtomicUsize = AtomicUsize::new(0);
static KEPT_BYTES: AtomicU64 = AtomicU64::new(0);

/// Samples the stacks of one in `every` contended acquisitions of each site, and of who held the lock, while
/// [`super::profile`] is on; 0 ends that. Stacks sampled before are forgotten unless `every` is 0.
pub fn sample_stacks(every: u32) {
    EVERY.store(0, Ordering::Relaxed);
    if every > 0 {
        forget_stacks();
    }
    EVERY.store(every, Ordering::Relaxed);
}

/// Those that were sampled so far are gone.
pub fn forget_stacks() {
    ALL.iter().for_each(|site| site.samples.forget());
}

/// Memory of the stacks that are kept.
pub fn stacks_bytes() -> u64 {
    KEPT_BYTES.load(Ordering::Relaxed)
}

/// What a thread had to do with a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// It found the lock taken.
    Waiter,
    /// It held the lock while a waiter that was sampled came.
    Holder,
    /// The same one, of its letting go.
    Unlocker,
}

impl Role {
    /// In one word.
    pub const fn name(self) -> &'static str {
        match self {
            Role::Waiter => "waiter",
            Role::Holder => "holder",
            Role::Unlocker => "unlocker",
        }
    }
}

/// A stack, and how often it was met.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stack {
    /// Its number at the site, from 1; stays until stacks are forgotten.
    pub id: usize,
    /// Whose it is.
    pub role: Role,
    /// Samples with this stack.
    pub count: u64,
    /// Nanoseconds that these waited, held, or took to let go, all of them.
    pub sum_ns: u64,
    /// Names of functions, the innermost first, or a module and an offset in it where there is none; those of the lock itself
    /// and of the thread's start are left out.
    pub frames: Vec<String>,
}

/// The stacks sampled at a site.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stacks {
    /// Waiters, holders, unlockers; of each the most frequent first.
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

/// A stack as it was taken.
#[derive(Clone)]
struct Taken {
    role: Role,
    addresses: Box<[usize]>,
    count: u64,
    sum_ns: u64,
}

/// Return addresses of callers, the innermost first.
pub(super) struct Addresses {
    all: [*mut c_void; DEPTH],
    count: usize,
}

impl Addresses {
    /// Of this thread.
    #[cold]
    pub(super) fn take() -> Addresses {
        let mut all = [std::ptr::null_mut(); DEPTH];
        // SAFETY: there is room for DEPTH addresses.
        let count = unsafe { libc::backtrace(all.as_mut_ptr(), DEPTH as libc::c_int) };
        Addresses { all, count: usize::try_from(count).unwrap_or(0).min(DEPTH) }
    }

    fn list(&self) -> impl Iterator<Item = usize> + '_ {
        self.all[..self.count].iter().map(|address| *address as usize)
    }
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

    /// Takes a waiter's stack if it is its turn.
    pub(super) fn before_wait(&self, lock: usize) -> Option<Addresses> {
        let every = EVERY.load(Ordering::Relaxed);
        if every == 0 || !is_drawn(self.turns.fetch_add(1, Ordering::Relaxed).into(), every.into()) {
            return None;
        }
        let addresses = Addresses::take();
        self.record(Role::Waiter, &addresses, 1, 0);
        self.wanted.store(lock, Ordering::Relaxed);
        Some(addresses)
    }

    /// The lock is had: a holder that had let go before it was asked is not to be taken for the next one.
    pub(super) fn after_wait(&self, lock: usize, addresses: &Addresses, ns: u64) {
        let _ = self.wanted.compare_exchange(lock, 0, Ordering::Relaxed, Ordering::Relaxed);
        self.record(Role::Waiter, addresses, 0, ns);
    }

    /// Is the holder of this lock to record its stack? Only one is.
    pub(super) fn asked_for(&self, lock: usize) -> bool {
        self.wanted.load(Ordering::Relaxed) == lock
            && self.wanted.compare_exchange(lock, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// This thread has held the lock for so long, and has let go of it in so long.
    #[cold]
    pub(super) fn let_go(&self, held_ns: u64, unlock_ns: u64) {
        let addresses = Addresses::take();
        self.record(Role::Holder, &addresses, 1, held_ns);
        self.record(Role::Unlocker, &addresses, 1, unlock_ns);
    }

    /// Adds `count` samples and their time to this stack's.
    fn record(&self, role: Role, addresses: &Addresses, count: u64, ns: u64) {
        let mut taken = self.taken.lock();
        let is_it = |t: &&mut Taken| t.role == role && t.addresses.iter().copied().eq(addresses.list());
        if let Some(known) = taken.iter_mut().find(is_it) {
            known.count += count;
            known.sum_ns += ns;
        } else if count == 0 {
            // There was no room for it, or it is forgotten.
        } else if taken.iter().filter(|t| t.role == role).count() < MOST_STACKS && keep_one_more() {
            let new = Taken { role, addresses: addresses.list().collect(), count, sum_ns: ns };
            KEPT_BYTES.fetch_add(new.bytes(), Ordering::Relaxed);
            taken.push(new);
        } else {
            self.without_room.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn forget(&self) {
        let mut taken = self.taken.lock();
        KEPT.fetch_sub(taken.len(), Ordering::Relaxed);
        KEPT_BYTES.fetch_sub(taken.iter().map(Taken::bytes).sum(), Ordering::Relaxed);
        *taken = Vec::new();
        self.without_room.store(0, Ordering::Relaxed);
        self.turns.store(0, Ordering::Relaxed);
    }

    /// Stacks that differ only in addresses of the same functions are one.
    fn named(&self) -> Stacks {
        let taken = self.taken.lock().clone(); // names take long
        let mut stacks: Vec<Stack> = Vec::new();
        for (at, t) in taken.iter().enumerate() {
            let frames = frames(t.addresses.iter().flat_map(|address| symbols(*address)));
            match stacks.iter_mut().find(|s| s.role == t.role && s.frames == frames) {
                Some(same) => {
                    same.count += t.count;
                    same.sum_ns += t.sum_ns;
                }
                None => stacks.push(Stack { id: at + 1, role: t.role, count: t.count, sum_ns: t.sum_ns, frames }),
            }
        }
        stacks.sort_by(|a, b| a.role.cmp(&b.role).then(b.count.cmp(&a.count)));
        Stacks { stacks, without_room: self.without_room.load(Ordering::Relaxed) }
    }
}

impl Taken {
    fn bytes(&self) -> u64 {
        // The vector that it lies in has room for twice as many at most.
        (2 * size_of::<Taken>() + size_of_val::<[usize]>(&self.addresses)) as u64
    }
}

fn keep_one_more() -> bool {
    let kept = KEPT.fetch_add(1, Ordering::Relaxed);
    if kept >= MOST_IN_ALL {
        KEPT.fetch_sub(1, Ordering::Relaxed);
    }
    kept < MOST_IN_ALL
}

/// A function, and the file that it is in, if that is known.
type Symbol = (String, String);

/// The functions at a return address, those that are inlined there first.
fn symbols(address: usize) -> Vec<Symbol> {
    let mut found = Vec::new();
    // The call lies before the address that it returns to.
    backtrace::resolve(address.wrapping_sub(1) as *mut c_void, |symbol| {
        if let Some(name) = symbol.name() {
            let file = symbol.filename().map(|f| f.to_string_lossy().into_owned());
            found.push((format!("{name:#}"), file.unwrap_or_default()));
        }
    });
    if found.is_empty() {
        found.push((in_module(address), String::new()));
    }
    found
}

/// "libc.so.6+0x8f1a2".
fn in_module(address: usize) -> String {
    // SAFETY: plain data, which the call fills in.
    let mut of: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: any address may be asked for; the names are valid while the module is loaded.
    let path = unsafe {
        let known = libc::dladdr(address as *const c_void, &raw mut of) != 0 && !of.dli_fname.is_null();
        if known {
            CStr::from_ptr(of.dli_fname)
        } else {
            c""
        }
    };
    let path = path.to_string_lossy();
    format!("{}+{:#x}", path.rsplit('/').next().unwrap_or_default(), address.wrapping_sub(of.dli_fbase as usize))
}

/// Functions without what every stack has: the sampling and the lock at its top, the start of a thread or process at its end.
fn frames(symbols: impl Iterator<Item = Symbol>) -> Vec<String> {
    let of_the_lock = |(name, file): &Symbol| is_of_the_lock(name, file);
    let begins = |(name, _): &Symbol| name.contains("__rust_begin_short_backtrace") || name == "start_thread";
    symbols.skip_while(of_the_lock).take_while(|symbol| !begins(symbol)).map(|(name, _)| name).collect()
}

/// Names have no paths in builds with line tables only: then the file tells.
fn is_of_the_lock(name: &str, file: &str) -> bool {
    let of = |path: &str| name.starts_with(path) || name.starts_with(&format!("<{path}"));
    let tests = name.starts_with("esker_base::lock::tests") || file.contains("lock/tests.rs");
    let named = of("esker_base::lock::") || of("std::backtrace") || of("core::") || of("parking_lot::");
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
        let of = |all: &[(&str, &str)]| frames(all.iter().map(|(name, file)| (name.to_string(), file.to_string())));
        let named = [
            ("esker_base::lock::stacks::Samples::record", "./src/lock/stacks.rs"),
            ("<esker_base::lock::Mutex<T>>::lock", ""),
            ("app::work::{{closure}}", "./x.rs"),
            ("app::main", ""),
            ("std::sys::backtrace::__rust_begin_short_backtrace", ""),
            ("clone", ""),
        ];
        assert_eq!(of(&named), ["app::work::{{closure}}", "app::main"]);
        let short = [
            ("record", "./crates/esker-base/src/lock/stacks.rs"),
            ("drop_in_place<G>", "/rustc/abc/library/core/src/ptr/mod.rs"),
            ("short_work", "./l.rs"),
        ];
        assert_eq!(of(&short), ["short_work"]);
        assert!(of(&[]).is_empty());
    }

    #[test]
    fn what_has_no_name_is_told_by_its_module() {
        let found = in_module(libc::getpid as *const () as usize);
        assert!(found.starts_with("libc.so") && found.contains("+0x"), "{found}");
        assert_eq!(in_module(16), "+0x10");
    }

    #[test]
    fn the_table_has_an_end() {
        let samples = Samples::new();
        let bytes = stacks_bytes();
        let of = |n: usize| Addresses { all: [n as *mut c_void; DEPTH], count: 3 };
        for n in 0..2 * MOST_STACKS {
            samples.record(Role::Waiter, &of(n), 1, 5);
        }
        samples.record(Role::Waiter, &of(7), 0, 6);
        samples.record(Role::Holder, &of(7), 1, 6);
        let taken = samples.taken.lock().clone();
        assert_eq!((taken.len(), taken[7].count, taken[7].sum_ns), (MOST_STACKS + 1, 1, 11));
        assert_eq!(samples.without_room.load(Ordering::Relaxed), MOST_STACKS as u64);
        assert!(stacks_bytes() >= bytes + (MOST_STACKS * 3 * size_of::<usize>()) as u64);
        // The sites' own may come and go beside this.
        samples.forget();
        assert_eq!(samples.named(), Stacks::default());
    }
}
