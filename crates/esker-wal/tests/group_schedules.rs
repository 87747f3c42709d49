//! Group commit alone under shuttle: who waits for what others do, who leads next, and what all are told when the log
//! stops. `group.rs` is taken in as it is; the log is a number here, so that many more orders are tried than with files.

#![allow(clippy::unwrap_used, dead_code, missing_docs)]

#[path = "../src/error.rs"]
mod error;
#[path = "../src/group.rs"]
mod group;
#[path = "../src/measure.rs"]
mod measure;
#[path = "../src/options.rs"]
mod options;
#[path = "../src/pace.rs"]
mod pace;
#[path = "common/shuttle_sync.rs"]
mod sync;

pub(crate) use error::{Result, WalError};
pub(crate) use measure::{sector_up, SECTOR_BYTES};
pub(crate) use options::Committer;

use group::{Goal, Group};
use shuttle::rand::{thread_rng, Rng};
use shuttle::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use shuttle::thread::{self, JoinHandle};
use std::sync::Arc;

const SCHEDULES: usize = 3000;

fn schedules(test: impl Fn() + Send + Sync + Clone + 'static) {
    shuttle::check_random(test.clone(), SCHEDULES);
    // Few switches, at unlikely places.
    shuttle::check_pct(test, SCHEDULES, 3);
}

/// Whom a leader expects, and whether he gathers, is anybody's guess here.
fn any_committer() -> Committer {
    match thread_rng().gen_range(0..3) {
        0 => Committer::No,
        1 => Committer::Prepares,
        _ => Committer::Commits,
    }
}

/// How the leader's work ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Works {
    Well,
    /// The second piece of work fails.
    FailsOnce,
    /// It panics.
    PanicsOnce,
}

/// A log of which only positions are left.
struct Log {
    group: Group,
    appended: AtomicU64,
    /// So far it is on the disk, whatever the group says: written, and synced.
    written: AtomicU64,
    synced: AtomicU64,
    leads: AtomicBool,
    pieces: AtomicUsize,
    works: Works,
    /// `poison` has returned. Not of shuttle's: no other thread has its turn when this is looked at.
    stopped: std::sync::atomic::AtomicBool,
}

impl Log {
    fn new(works: Works) -> Arc<Log> {
        let [appended, written, synced] = [0; 3].map(AtomicU64::new);
        let (leads, stopped) = (AtomicBool::new(false), std::sync::atomic::AtomicBool::new(false));
        let (group, pieces) = (Group::new(0), AtomicUsize::new(0));
        Arc::new(Log { group, appended, written, synced, leads, pieces, works, stopped })
    }

    fn append(&self) -> u64 {
        self.appended.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// As `Shared::flush`: takes all that was appended, writes it, and syncs it or not.
    fn work(&self, sync: bool) -> Result<()> {
        assert!(!self.leads.swap(true, Ordering::SeqCst), "two lead");
        let taken = self.appended.load(Ordering::SeqCst);
        thread::yield_now();
        let strikes = self.pieces.fetch_add(1, Ordering::SeqCst) == 1;
        if strikes && self.works == Works::PanicsOnce {
            // Without the hook, which would tell of a failure.
            std::panic::resume_unwind(Box::new(()));
        }
        let failed = strikes && self.works == Works::FailsOnce;
        if failed {
            self.group.poison("failed");
            self.stopped.store(true, Ordering::SeqCst);
        } else {
            self.written.fetch_max(taken, Ordering::SeqCst);
            self.group.set_written(taken);
            if sync {
                thread::yield_now();
                self.synced.fetch_max(taken, Ordering::SeqCst);
                self.group.set_durable(taken);
            }
        }
        self.leads.store(false, Ordering::SeqCst);
        match failed {
            true => Err(WalError::Poisoned("failed".into())),
            false => Ok(()),
        }
    }

    /// Waits as a commit does; whether it was acknowledged, which it is only for what is there.
    fn wait(&self, goal: Goal) -> bool {
        let done = self.group.until(goal, any_committer(), || {
            // First, before another thread has its turn.
            assert!(!self.stopped.load(Ordering::SeqCst), "a log that has stopped is written");
            let (is_reached, sync) = match goal {
                Goal::Durable(at) => (self.group.durable() >= at, true),
                Goal::Written(at) => (self.group.written() >= at, false),
            };
            assert!(!is_reached, "work is done for nobody");
            self.work(sync)
        });
        match (done, goal) {
            (Ok(()), Goal::Durable(at)) => assert!(self.synced.load(Ordering::SeqCst) >= at, "{at} is not durable"),
            (Ok(()), Goal::Written(at)) => assert!(self.written.load(Ordering::SeqCst) >= at, "{at} is not written"),
            (Err(e), _) => {
                assert!(matches!(e, WalError::Poisoned(_)), "{e}");
                assert!(self.group.is_poisoned(), "an error, and the log goes on");
                return false;
            }
        }
        true
    }
}

fn join<T>(threads: Vec<JoinHandle<T>>) -> Vec<T> {
    threads.into_iter().map(|t| t.join().unwrap()).collect()
}

/// Whoever is not reached by a leader's work leads, or is reached by the next one's: nobody sleeps on, nobody is told too early,
/// and no more pieces of work are done than there are waits.
#[test]
fn leadership_is_handed_on() {
    schedules(|| {
        let log = Log::new(Works::Well);
        let commit = |log: Arc<Log>, written: bool| {
            thread::spawn(move || {
                for _ in 0..2 {
                    let at = log.append();
                    assert!(log.wait(if written { Goal::Written(at) } else { Goal::Durable(at) }));
                }
            })
        };
        // Who wants it written only leads, too, and leaves the others where they were.
        join((0..4).map(|n| commit(log.clone(), n == 0)).collect());
        assert!(log.pieces.load(Ordering::SeqCst) <= 8, "work was done for nobody");
        assert!(log.wait(Goal::Durable(8)));
        assert_eq!((log.group.durable(), log.synced.load(Ordering::SeqCst)), (8, 8));
    });
}

/// A leader's work fails while others wait for it, come, or have been reached by the one before.
#[test]
fn a_failed_leader_tells_all() {
    schedules(|| {
        let log = Log::new(Works::FailsOnce);
        let commits = (0..4).map(|n| {
            let log = log.clone();
            thread::spawn(move || {
                let at = log.append();
                log.wait(if n == 3 { Goal::Written(at) } else { Goal::Durable(at) });
            })
        });
        join(commits.collect());
        if log.group.is_poisoned() {
            let before = log.pieces.load(Ordering::SeqCst);
            assert!(!log.wait(Goal::Durable(log.append())) && log.group.check().is_err());
            assert_eq!(log.pieces.load(Ordering::SeqCst), before);
        }
    });
}

/// Somebody stops the log while one leads and others wait, whom the leader's work may reach or not.
#[test]
fn poison_wakes_who_waits() {
    schedules(|| {
        let log = Log::new(Works::Well);
        let commits = (0..3).map(|_| {
            let log = log.clone();
            thread::spawn(move || {
                (0..2).all(|_| {
                    let at = log.append();
                    log.wait(Goal::Durable(at))
                })
            })
        });
        let commits = commits.collect();
        let stopper = thread::spawn({
            let log = log.clone();
            move || {
                (0..thread_rng().gen_range(0..6)).for_each(|_| thread::yield_now());
                log.group.poison("stopped");
                log.group.poison("once more");
                log.stopped.store(true, Ordering::SeqCst);
            }
        });
        stopper.join().unwrap();
        join(commits);
        assert_eq!(log.group.poisoned().as_deref(), Some("stopped"));
        let reached = log.group.durable();
        assert!(reached <= log.synced.load(Ordering::SeqCst));
        // What is durable is acknowledged all the same, nothing else is.
        assert!(log.wait(Goal::Durable(reached)) && !log.wait(Goal::Durable(log.append())));
    });
}

/// A leader panics in its work, and takes nobody with it.
#[test]
fn a_panicking_leader_tells_all() {
    schedules(|| {
        let log = Log::new(Works::PanicsOnce);
        let commits = (0..3).map(|_| {
            let log = log.clone();
            thread::spawn(move || {
                let at = log.append();
                let waits = std::panic::AssertUnwindSafe(|| log.wait(Goal::Durable(at)));
                std::panic::catch_unwind(waits).ok()
            })
        });
        let told = join(commits.collect());
        let panicked = told.iter().filter(|done| done.is_none()).count();
        assert!(panicked <= 1 && log.group.is_poisoned() == (panicked == 1), "{told:?}");
    });
}
