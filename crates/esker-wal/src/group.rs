//! Group commit: one leads, the others wait for what it does, the next leader takes all who came meanwhile.
//!
//! Each who waits sleeps by itself: a leader that is done names the next one among those whom its work did not reach, wakes it
//! first, then those whom it did reach, who take no common lock any more. The others sleep on. Before it syncs, a leader may
//! gather those who are about to come ([`Pace`]).
//!
//! Invariants: one leader at a time; `durable <= written`, both only rise; after poisoning nobody begins to work; whoever
//! waits is told by the leader after its work, by who poisons, or becomes leader itself; nobody waits while nobody leads.
//! Whether the log is poisoned is known here and nowhere else.

use crate::pace::{Advice, Pace};
use crate::sync::{now_ns, order, AtomicBool, AtomicU64, Condvar, Mutex, Ordering};
use crate::{Committer, Result, WalError};
use esker_base::histogram::Histogram;
use esker_base::phase::{self, CommitPhase};
use esker_base::{count, timed, Counter, WaitEvent};
use std::sync::Arc;
use std::time::Duration;

/// How far the log has to be, for who waits.
#[derive(Clone, Copy)]
pub(crate) enum Goal {
    /// Written so far.
    Written(u64),
    /// Durable so far.
    Durable(u64),
}

pub(crate) struct Group {
    state: Mutex<State>,
    pub(crate) pace: Pace,
    /// A leader gathers; it sleeps on `gathered`, with `state`.
    gathering: AtomicBool,
    gathered: Condvar,
    durable: AtomicU64,
    written: AtomicU64,
    /// Set once, with the reason in `state`.
    poisoned: AtomicBool,
}

#[derive(Default)]
struct State {
    leading: bool,
    poisoned: Option<String>,
    /// In the order in which they came.
    waiting: Vec<Waiting>,
}

struct Waiting {
    goal: Goal,
    who: Committer,
    waiter: Arc<Waiter>,
}

/// How many committers a sync served, less one: what waited for it in order to commit, and in order to prepare. The buckets
/// of sizes are thus 1, 2, 3 to 4, 5 to 8, and so on.
pub static COMMIT_GROUPS: Histogram = Histogram::new();
/// As [`COMMIT_GROUPS`], of transactions that prepare.
pub static PREPARE_GROUPS: Histogram = Histogram::new();

/// Committers whom a leader has served.
#[derive(Default)]
struct Served {
    commits: u64,
    prepares: u64,
}

impl Served {
    fn add(&mut self, who: Committer) {
        match who {
            Committer::Commits => self.commits += 1,
            Committer::Prepares => self.prepares += 1,
            Committer::No => {}
        }
    }

    fn record(&self) {
        for (groups, size) in [(&COMMIT_GROUPS, self.commits), (&PREPARE_GROUPS, self.prepares)] {
            if let Some(less_one) = size.checked_sub(1) {
                groups.record(less_one);
            }
        }
    }
}

/// What a waiter is told.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Told {
    /// Its goal is reached, or the log is poisoned.
    Over,
    /// It leads.
    Lead,
}

/// Somebody who sleeps until it is told something, once.
struct Waiter {
    told: Mutex<Option<Told>>,
    changed: Condvar,
}

impl Waiter {
    fn new() -> Arc<Self> {
        Arc::new(Waiter { told: Mutex::new(&order::WAL_WAITER, None), changed: Condvar::new() })
    }

    fn tell(&self, what: Told) {
        *self.told.lock() = Some(what);
        self.changed.notify_all();
    }

    fn wait(&self) -> Told {
        let mut told = self.told.lock();
        loop {
            match *told {
                Some(what) => return what,
                None => self.changed.wait(&mut told),
            }
        }
    }
}

/// Leadership, handed on however the work ends.
struct Lead<'a>(&'a Group, Committer);

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.poison("a panic while the log was written");
        }
        self.0.hand_on(self.1);
    }
}

impl Group {
    /// Everything before `at` is durable.
    pub(crate) fn new(at: u64) -> Self {
        Group {
            state: Mutex::new(&order::WAL_GROUP, State::default()),
            pace: Pace::default(),
            gathering: AtomicBool::new(false),
            gathered: Condvar::new(),
            durable: AtomicU64::new(at),
            written: AtomicU64::new(at),
            poisoned: AtomicBool::new(false),
        }
    }

    pub(crate) fn durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    pub(crate) fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    /// For the leader: a write is done.
    pub(crate) fn set_written(&self, position: u64) {
        self.written.fetch_max(position, Ordering::AcqRel);
    }

    /// For the leader: a sync is done.
    pub(crate) fn set_durable(&self, position: u64) {
        self.set_written(position);
        self.durable.fetch_max(position, Ordering::AcqRel);
    }

    fn has_reached(&self, goal: Goal) -> bool {
        match goal {
            Goal::Written(position) => self.written() >= position,
            Goal::Durable(position) => self.durable() >= position,
        }
    }

    /// Returns when `goal` is reached; leads by `work`, which reaches it or poisons before it fails, if nobody else does.
    pub(crate) fn until(&self, goal: Goal, who: Committer, work: impl FnOnce() -> Result<()>) -> Result<()> {
        let waiter = {
            let mut state = self.state.lock();
            if self.has_reached(goal) {
                drop(state);
                self.passed(who);
                return Ok(());
            }
            if who != Committer::No && self.pace.arrived(now_ns()) {
                self.gathered.notify_all();
            }
            if let Some(reason) = &state.poisoned {
                return Err(WalError::Poisoned(reason.clone()));
            }
            match std::mem::replace(&mut state.leading, true) {
                false => None,
                true => {
                    let waiter = Waiter::new();
                    state.waiting.push(Waiting { goal, who, waiter: waiter.clone() });
                    Some(waiter)
                }
            }
        };
        match waiter.map_or(Told::Lead, |waiter| waiter.wait()) {
            Told::Lead => self.lead(goal, who, work),
            Told::Over => {
                if !self.has_reached(goal) {
                    self.check()?; // Poisoned.
                    assert!(self.has_reached(goal), "told that the log is where it is not yet");
                }
                Ok(())
            }
        }
    }

    fn lead(&self, goal: Goal, who: Committer, work: impl FnOnce() -> Result<()>) -> Result<()> {
        let lead = Lead(self, who);
        let done = match self.has_reached(goal) {
            true => Ok(()),
            false => match goal {
                Goal::Written(_) => self.check().and_then(|()| work()),
                Goal::Durable(_) => self.sync(who, work),
            },
        };
        drop(lead);
        done
    }

    /// The leader's sync, once those have come for whom it is worth waiting.
    fn sync(&self, who: Committer, work: impl FnOnce() -> Result<()>) -> Result<()> {
        if who != Committer::No {
            self.gather();
        }
        let began = now_ns();
        let done = self.check().and_then(|()| work());
        self.pace.synced(now_ns().saturating_sub(began));
        done
    }

    /// Waits for those who are about to come, if that is worth it.
    fn gather(&self) {
        let closed = match self.pace.advise(now_ns()) {
            Advice::AllAreThere => Counter::GroupClosedAtOnce,
            Advice::NotWorth => Counter::GroupClosedByCost,
            Advice::Wait(_) => {
                timed(WaitEvent::WalGather, || phase::timed(CommitPhase::Gather, || self.wait_for_those_away()))
            }
        };
        self.pace.begins(closed == Counter::GroupClosedByTime);
        count(closed, 1);
    }

    fn wait_for_those_away(&self) -> Counter {
        let mut state = self.state.lock();
        self.gathering.store(true, Ordering::Relaxed);
        let closed = loop {
            match self.pace.advise(now_ns()) {
                Advice::Wait(ns) if state.poisoned.is_none() => {
                    self.gathered.wait_for(&mut state, Duration::from_nanos(ns));
                }
                Advice::AllAreThere => break Counter::GroupClosedByAll,
                Advice::Wait(_) | Advice::NotWorth => break Counter::GroupClosedByTime,
            }
        };
        self.gathering.store(false, Ordering::Relaxed);
        closed
    }

    /// One comes who commits, and finds its work done.
    pub(crate) fn passed(&self, who: Committer) {
        if who == Committer::No {
            return;
        }
        let now = now_ns();
        if self.pace.arrived(now) && self.gathering.load(Ordering::Relaxed) {
            let _state = self.state.lock();
            self.gathered.notify_all();
        }
        match who {
            Committer::Commits => self.pace.acknowledged(1, now),
            _ => self.pace.prepared(1, now),
        }
    }

    /// So many of those who have prepared have ended.
    pub(crate) fn ended_prepared(&self, committers: u64) {
        self.pace.ended_prepared(committers, now_ns());
    }

    /// The leader, one of `own`, is done: tells the next one, then all whom it has reached.
    fn hand_on(&self, own: Committer) {
        let (mut over, mut served) = (Vec::new(), Served::default());
        let next = {
            let mut state = self.state.lock();
            let is_poisoned = state.poisoned.is_some();
            served.add(own);
            state.waiting.retain(|waiting| {
                let is_over = is_poisoned || self.has_reached(waiting.goal);
                if is_over {
                    served.add(waiting.who);
                    over.push(waiting.waiter.clone());
                }
                !is_over
            });
            if is_poisoned {
                // Told, and served by nothing.
                served = Served::default();
            }
            state.leading = !state.waiting.is_empty();
            state.leading.then(|| state.waiting.remove(0).waiter)
        };
        let now = now_ns();
        self.pace.acknowledged(served.commits, now);
        self.pace.prepared(served.prepares, now);
        if let Some(next) = next {
            next.tell(Told::Lead);
        }
        over.iter().for_each(|waiter| waiter.tell(Told::Over));
        served.record();
    }

    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.state.lock().waiting.len()
    }

    /// Nothing more is acknowledged. The first reason stays.
    pub(crate) fn poison(&self, reason: &str) {
        let waiting = {
            let mut state = self.state.lock();
            state.poisoned.get_or_insert_with(|| reason.to_owned());
            self.poisoned.store(true, Ordering::Release);
            std::mem::take(&mut state.waiting)
        };
        self.gathered.notify_all();
        waiting.iter().for_each(|waiting| waiting.waiter.tell(Told::Over));
    }

    /// Is it? Takes no lock.
    pub(crate) fn is_poisoned(&self) -> bool {
        self.poisoned.load(Ordering::Acquire)
    }

    pub(crate) fn poisoned(&self) -> Option<String> {
        self.state.lock().poisoned.clone()
    }

    /// Fails if the log is poisoned.
    pub(crate) fn check(&self) -> Result<()> {
        match self.is_poisoned() {
            false => Ok(()),
            true => Err(WalError::Poisoned(self.poisoned().unwrap_or_default())),
        }
    }
}
