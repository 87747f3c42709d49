//! Group commit: one leads, the others wait for what it does, the next leader takes all who came meanwhile.
//!
//! Invariants: one leader at a time; `durable <= written`, both only rise; after poisoning nobody begins to lead; whoever
//! waits is told by the leader after its work, or becomes leader itself. Whether the log is poisoned is known here and
//! nowhere else.

use crate::sync::{order, AtomicBool, AtomicU64, Condvar, Mutex, Ordering};
use crate::{Result, WalError};

/// Called once something is durable.
pub(crate) type Callback = Box<dyn FnOnce() + Send>;

pub(crate) struct Group {
    state: Mutex<State>,
    changed: Condvar,
    durable: AtomicU64,
    written: AtomicU64,
    /// Set once, with the reason in `state`.
    poisoned: AtomicBool,
}

#[derive(Default)]
struct State {
    leading: bool,
    poisoned: Option<String>,
    callbacks: Vec<(u64, Callback)>,
}

/// Leadership, given back however the work ends.
struct Lead<'a>(&'a Group);

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.poison("a panic while the log was written");
        }
        self.0.state.lock().leading = false;
        self.0.changed.notify_all();
    }
}

impl Group {
    /// Everything before `at` is durable.
    pub(crate) fn new(at: u64) -> Self {
        Group {
            state: Mutex::new(&order::WAL_GROUP, State::default()),
            changed: Condvar::new(),
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

    /// Returns when `reached`; leads by `work` whenever nobody else does. `work` poisons before it fails.
    pub(crate) fn until(&self, reached: impl Fn(&Self) -> bool, work: impl Fn() -> Result<()>) -> Result<()> {
        let mut state = self.state.lock();
        loop {
            if reached(self) {
                return Ok(());
            }
            if let Some(reason) = &state.poisoned {
                return Err(WalError::Poisoned(reason.clone()));
            }
            if state.leading {
                self.changed.wait(&mut state);
                continue;
            }
            state.leading = true;
            drop(state);
            let lead = Lead(self);
            let done = work();
            drop(lead);
            self.call_back();
            done?;
            state = self.state.lock();
        }
    }

    /// Calls `callback` once `position` is durable: now if it is, else from the thread that leads then. Never, if the
    /// log is poisoned before.
    pub(crate) fn on_durable(&self, position: u64, callback: Callback) {
        let mut state = self.state.lock();
        if self.durable() < position {
            if state.poisoned.is_none() {
                state.callbacks.push((position, callback));
            }
            return;
        }
        drop(state);
        callback();
    }

    fn call_back(&self) {
        let durable = self.durable();
        let mut ready = Vec::new();
        {
            let mut state = self.state.lock();
            if state.callbacks.is_empty() {
                return;
            }
            let (now, later) = std::mem::take(&mut state.callbacks).into_iter().partition(|c| c.0 <= durable);
            ready.extend::<Vec<(u64, Callback)>>(now);
            state.callbacks = later;
        }
        for (_, callback) in ready {
            callback();
        }
    }

    /// Nothing more is acknowledged. The first reason stays.
    pub(crate) fn poison(&self, reason: &str) {
        let forgotten = {
            let mut state = self.state.lock();
            state.poisoned.get_or_insert_with(|| reason.to_owned());
            self.poisoned.store(true, Ordering::Release);
            self.changed.notify_all();
            std::mem::take(&mut state.callbacks)
        };
        drop(forgotten);
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
