//! Work of the engine with steps of sessions in the middle of it: what threads do in production, on one thread at a
//! time.
//!
//! The work runs on a thread of its own, which stops before some operations on run files and the manifest and lets the
//! simulator go on: it takes steps of sessions, whole pieces of other background work too, and hands back. Operations
//! of the log are let pass, and syncs of the runs' folder: whoever does them holds locks that every commit needs. Invariant: only one of the two
//! threads runs at any moment, and the seed decides where they change; so a seed replays.

use crate::model::Key;
use crate::sim::{Failure, Flow, Sim};
use crate::Rng;
use esker::sim_hooks::quietly;
use std::cell::RefCell;
use std::path::Path;
use std::sync::mpsc::{channel, Receiver, Sender};

/// A piece of work stops so many times at most.
const MOST_STOPS: u64 = 8;
/// Steps at one stop, at most.
const MOST_STEPS: u64 = 5;

/// What is going on while steps are taken in the middle of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Inside {
    /// A memtable is written out.
    Flush,
    /// Runs are joined.
    Merge,
    /// A manifest is written.
    Manifest,
    /// All of that, one after the other.
    Everything,
    /// This table's new indexes are built.
    Build(Key),
    /// This session's transaction is sealed: committed or prepared.
    Seal(usize),
}

struct Worker {
    chance: Rng,
    stops: u64,
    tell: Sender<String>,
    go: Receiver<()>,
}

thread_local! {
    static WORKER: RefCell<Option<Worker>> = const { RefCell::new(None) };
}

/// Lets go of the simulator, also by a panic.
struct Leave;

impl Drop for Leave {
    fn drop(&mut self) {
        WORKER.set(None);
    }
}

/// The disk is about to do this: a thread that works beside the simulator may stop here.
pub(crate) fn before_operation(operation: &'static str, path: &Path) {
    let within = |folder: &str| path.components().any(|c| c.as_os_str() == folder);
    let runs_synced = operation == "sync folder" && within("runs");
    if within("wal") || runs_synced || operation == "remove" {
        return;
    }
    WORKER.with_borrow_mut(|worker| {
        let Some(w) = worker.as_mut().filter(|w| w.stops > 0) else { return };
        // Blocks are read one by one, all the other operations are few.
        if !w.chance.chance(if operation == "read" { 5 } else { 45 }) {
            return;
        }
        w.stops -= 1;
        let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        if w.tell.send(format!("{operation} {name}")).is_ok() {
            // An error: the simulator is gone, by a panic.
            let _ = w.go.recv();
        }
    });
}

impl Sim {
    /// Runs `work`, in a workload often with steps of sessions in the middle of it.
    pub(crate) fn meanwhile<T: Send>(&mut self, inside: Inside, work: impl FnOnce() -> T + Send) -> Result<T, Failure> {
        if !self.in_workload || self.inside.is_some() || !self.rng.chance(self.config.meanwhile_percent) {
            return Ok(work());
        }
        let (tell, told) = channel();
        let (go, wait) = channel();
        let stops = 1 + self.rng.below(MOST_STOPS);
        let worker = Worker { chance: Rng::new(self.rng.number()), stops, tell, go: wait };
        self.inside = Some(inside);
        let mut failed = None;
        let result = std::thread::scope(|scope| {
            let thread = scope.spawn(move || {
                let _leave = Leave;
                WORKER.set(Some(worker));
                quietly(work)
            });
            // Ends when the work does.
            while let Ok(at) = told.recv() {
                if failed.is_none() && !self.stopped_inside {
                    self.note(|| format!("  in the middle of {inside:?}, before {at}:"));
                    failed = quietly(|| self.steps_inside()).err();
                }
                if go.send(()).is_err() {
                    break;
                }
            }
            thread.join()
        });
        self.inside = None;
        if let Some(failure) = failed {
            return Err(failure);
        }
        self.note(|| format!("  {inside:?} is over"));
        result.map_err(|panic| std::panic::resume_unwind(panic))
    }

    fn steps_inside(&mut self) -> Result<(), Failure> {
        for _ in 0..=self.rng.below(MOST_STEPS) {
            self.stats.steps_inside += 1;
            self.stats.steps_inside_builds += u64::from(matches!(self.inside, Some(Inside::Build(_))));
            if self.step()? == Flow::Stop {
                self.stopped_inside = true;
                return Ok(());
            }
        }
        Ok(())
    }
}
