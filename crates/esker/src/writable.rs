//! Whether anything may still be written.
//!
//! Invariant: once writing has stopped it does not begin again: what failed says nothing of what is durable, and a restart
//! finds out.

use crate::options::{Level, Notify};
use crate::{Error, Result};
use esker_io::IoError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::OnceLock;

/// The engine was closed: the folder may be another's.
pub(crate) fn closed() -> Error {
    Error::ReadOnly("engine is read-only: it was closed".into())
}

/// See the module.
pub(crate) struct Writable {
    /// Why writing stopped.
    poison: OnceLock<String>,
    /// Recovery is over and nothing may change.
    read_only: AtomicBool,
    /// The folder is let go: it may be another's.
    closed: AtomicBool,
    notify: Notify,
}

impl Writable {
    /// Everything may be written.
    pub(crate) fn new(notify: &Notify) -> Self {
        Writable {
            poison: OnceLock::new(),
            read_only: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            notify: notify.clone(),
        }
    }

    /// Fails if nothing may be written any more.
    pub(crate) fn check(&self) -> Result<()> {
        self.check_open()?;
        match self.poison.get() {
            Some(why) => Err(Error::Poisoned(why.clone())),
            None => Ok(()),
        }
    }

    /// From now on nothing may be written.
    pub(crate) fn set_read_only(&self) {
        self.read_only.store(true, Ordering::Release);
    }

    /// From now on nothing may be written, and nobody says that it failed. Who closes looks for sessions afterwards, and the last of
    /// these for this, in one order for all (`SeqCst`): one of them lets the folder go.
    pub(crate) fn set_closed(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Fails if it was opened read-only, or was closed: for what may be decided in memory when writing has stopped.
    pub(crate) fn check_open(&self) -> Result<()> {
        match (self.is_read_only(), self.is_closed()) {
            (true, _) => Err(Error::ReadOnly("engine is read-only: it was opened read-only".into())),
            (_, true) => Err(closed()),
            _ => Ok(()),
        }
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.read_only.load(Ordering::Acquire)
    }

    pub(crate) fn is_poisoned(&self) -> bool {
        self.poison.get().is_some()
    }

    /// Stops all writing: what was acknowledged stays, nothing more is.
    pub(crate) fn poison(&self, why: &str) {
        if self.poison.set(why.to_owned()).is_ok() {
            (self.notify)(
                &format!("writing stopped after: {why}. Reads go on; restart the server to recover."),
                Level::Error,
            );
        }
    }

    /// A failed write or sync of something that cannot be tried again.
    pub(crate) fn poison_by(&self, e: IoError) -> Error {
        self.poison(&e.to_string());
        e.into()
    }
}
