// SPDX-License-Identifier: MIT OR Apache-2.0
//! The engine's own locks, by name: as rows, and as a page for people.

use crate::activity::terminated;
use crate::boundary::needed;
use crate::guard::catch;
use esker_base::histogram::HistogramSnapshot;
use esker_base::lock::{self, SiteReport};
use esker_memory::{Account, Charge};
use std::ffi::{c_char, c_void};
use std::fmt::Write;
use std::sync::{Mutex, PoisonError};

/// Locks of one name, since the start or since `es_forget_mutexes`; those that are gone included.
#[repr(C)]
pub struct EsMutex {
    /// Valid for the call.
    pub(crate) name: *const c_char,
    /// In the lock order, the outermost is 0.
    pub(crate) rank: u64,
    /// By readers, too.
    pub(crate) acquired: u64,
    /// Found taken.
    pub(crate) contended: u64,
    /// Times that those tried again.
    pub(crate) spins: u64,
    pub(crate) wait_ns: u64,
    pub(crate) wait_max_ns: u64,
    /// Of acquisitions that were timed, as the next two.
    pub(crate) hold_ns: u64,
    pub(crate) hold_max_ns: u64,
    pub(crate) unlock_ns: u64,
    /// From letting go to a waiter's having it, where that is known.
    pub(crate) rewake_ns: u64,
    pub(crate) has_rewake: bool,
    /// One in so many was; 0: none.
    pub(crate) sampled_one_in: u64,
}

/// Takes one, which is valid for the call; true: stop. None of the engine's locks is held.
pub type EsMutexFn = Option<unsafe extern "C" fn(context: *mut c_void, mutex: *const EsMutex) -> bool>;

/// Calls `each` with the locks of every name, by their names.
///
/// # Safety
/// `each` is called with `context` in this thread.
#[no_mangle]
pub unsafe extern "C" fn es_mutexes(each: EsMutexFn, context: *mut c_void) {
    let each = needed(each);
    for site in catch(|| Ok(lock::since_forgotten())).unwrap_or_default() {
        let name = terminated(site.name.to_owned());
        let row = EsMutex {
            name: name.as_ptr(),
            rank: site.rank as u64,
            acquired: site.acquired,
            contended: site.contended,
            spins: site.spins,
            wait_ns: site.wait.sum_ns,
            wait_max_ns: site.wait_max_ns,
            hold_ns: site.hold.sum_ns,
            hold_max_ns: site.hold_max_ns,
            unlock_ns: site.unlock.sum_ns,
            rewake_ns: site.rewake.sum_ns,
            has_rewake: site.rewake.count > 0,
            sampled_one_in: site.sampled_one_in().unwrap_or(0),
        };
        // SAFETY: the row and its text are valid for the call.
        if unsafe { each(context, &row) } {
            break;
        }
    }
}

/// Locks are counted from zero again, for `es_mutexes` and `es_lock_report`.
#[no_mangle]
pub extern "C" fn es_forget_mutexes() {
    let _ = catch(|| {
        lock::forget();
        Ok(())
    });
}

/// A frame of a stack of code that waited for a lock, or held one that was waited for.
#[repr(C)]
pub struct EsMutexFrame {
    /// Of the lock. Valid for the call, as all texts.
    pub(crate) name: *const c_char,
    pub(crate) role: *const c_char,
    /// Of the lock's stacks.
    pub(crate) stack_id: u64,
    pub(crate) samples: u64,
    /// How long these waited, held or took to let go.
    pub(crate) sum_ns: u64,
    /// The innermost is 1.
    pub(crate) frame_no: u64,
    pub(crate) frame: *const c_char,
}

/// Takes one, which is valid for the call; true: stop. None of the engine's locks is held.
pub type EsMutexFrameFn = Option<unsafe extern "C" fn(context: *mut c_void, frame: *const EsMutexFrame) -> bool>;

/// Of a stack so many frames are told.
const FRAMES: usize = 32;

/// Calls `each` with the stacks of the locks of every name, by their names; looks up what the functions are called, which takes
/// long.
///
/// # Safety
/// `each` is called with `context` in this thread.
#[no_mangle]
pub unsafe extern "C" fn es_mutex_stacks(each: EsMutexFrameFn, context: *mut c_void) {
    let each = needed(each);
    for site in catch(|| Ok(lock::report())).unwrap_or_default() {
        let found = catch(|| Ok(lock::stacks(site.name))).unwrap_or_default();
        let name = terminated(site.name.to_owned());
        for stack in found.stacks {
            let role = terminated(stack.role.name().to_owned());
            for (at, frame) in stack.frames.into_iter().take(FRAMES).enumerate() {
                let frame = terminated(frame);
                let row = EsMutexFrame {
                    name: name.as_ptr(),
                    role: role.as_ptr(),
                    stack_id: stack.id as u64,
                    samples: stack.count,
                    sum_ns: stack.sum_ns,
                    frame_no: at as u64 + 1,
                    frame: frame.as_ptr(),
                };
                // SAFETY: the row and its texts are valid for the call.
                if unsafe { each(context, &row) } {
                    return;
                }
            }
        }
    }
}

/// Stacks that were sampled so far are gone.
#[no_mangle]
pub extern "C" fn es_forget_mutex_stacks() {
    let _ = catch(|| {
        lock::forget_stacks();
        charge_stacks();
        Ok(())
    });
}

/// While locks are profiled, one in so many waits has its stack sampled.
const STACKS_ONE_IN: u32 = 16;

/// Has holding and releasing of the engine's own locks timed always, and stacks sampled of those who wait; or times one in 64
/// acquisitions, and no stacks. Those that there are stay until they are sampled anew.
#[no_mangle]
pub extern "C" fn es_profile_locks(on: bool) {
    let _ = catch(|| {
        lock::profile(on);
        lock::sample_stacks(if on { STACKS_ONE_IN } else { 0 });
        charge_stacks();
        Ok(())
    });
}

/// The account has what the stacks take: from now on, as they are sampled where nobody may charge anything.
pub(crate) fn charge_stacks() {
    static CHARGE: Mutex<Option<Charge>> = Mutex::new(None);
    let mut charge = CHARGE.lock().unwrap_or_else(PoisonError::into_inner);
    match lock::stacks_bytes() {
        0 => *charge = None,
        bytes => charge.get_or_insert_with(|| Charge::new(Account::Other, 0)).resize(bytes),
    }
}

/// Width of a bar, in characters.
const BAR: usize = 24;

/// Times of one kind.
type Of = fn(&SiteReport) -> &HistogramSnapshot;

/// What plockstat prints of contention, holding and, which it does not know, releasing: a headline and a page each.
pub(crate) fn pages() -> Vec<(&'static str, String)> {
    let sites = lock::since_forgotten();
    let times: [(_, Of); 3] =
        [("Mutex block", |s| &s.wait), ("Mutex hold", |s| &s.hold), ("Mutex unlock", |s| &s.unlock)];
    times.into_iter().map(|(what, of)| (what, page(&sites, of))).collect()
}

/// Locks that have such times, those with most of it first: how many times, their mean, and how they are spread.
fn page(sites: &[SiteReport], of: Of) -> String {
    let mut with: Vec<_> = sites.iter().filter(|s| of(s).count > 0).collect();
    with.sort_by_key(|s| std::cmp::Reverse(of(s).sum_ns));
    let mut text = format!("\n{:>10} {:>10} {}\n{:-<62}\n", "Count", "nsec", "Lock", "");
    for site in with {
        let times = of(site);
        let _ = writeln!(text, "{:>10} {:>10} {}\n", times.count, times.mean_ns(), site.name);
        let _ = writeln!(text, "{:>21} ---- Time Distribution --- count", "nsec");
        for (from, _, count) in times.filled() {
            let bar = "@".repeat((count as usize * BAR).div_ceil(times.count as usize).min(BAR));
            let _ = writeln!(text, "{from:>21} |{bar:<BAR$}| {count}");
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use esker_base::lock::order;
    use esker_base::lock::Mutex;

    #[test]
    fn pages_are_as_plockstat_has_them() {
        lock::profile(true);
        let mutex = Mutex::new(&order::LAB, 0);
        *mutex.lock() += 1;
        lock::profile(false);
        let pages = pages();
        assert_eq!(
            pages.iter().map(|(what, _)| *what).collect::<Vec<_>>(),
            ["Mutex block", "Mutex hold", "Mutex unlock"]
        );
        let lines: Vec<_> = pages[1].1.lines().collect();
        assert_eq!(lines[1], format!("{:>10} {:>10} Lock", "Count", "nsec"));
        let at = lines.iter().position(|line| line.ends_with(" lab.lock")).unwrap();
        assert_eq!(lines[at].split_whitespace().next(), Some("1"));
        assert!(lines[at + 2].ends_with("---- Time Distribution --- count"), "{lines:#?}");
        assert!(lines[at + 3].ends_with(&format!("|{}| 1", "@".repeat(BAR))), "{lines:#?}");
    }
}
