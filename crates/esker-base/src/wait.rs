//! Every place where the engine waits for something outside itself, counted and timed.
//!
//! Each event costs two clock readings and two relaxed adds, which is nothing beside the system call or sleep that it
//! measures. Waits for latches are the business of [`lock`](crate::lock).

use crate::histogram::{Histogram, HistogramSnapshot};
use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::OnceLock;
use std::time::Instant;

macro_rules! events {
    ($($variant:ident $name:literal $help:literal,)+) => {
        /// What was waited for.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(usize)]
        pub enum WaitEvent {
            $(#[doc = $help] $variant,)+
        }

        impl WaitEvent {
            /// Every event, in the order of the enum.
            pub const ALL: &'static [WaitEvent] = &[$(WaitEvent::$variant,)+];
            /// How many there are.
            pub const COUNT: usize = Self::ALL.len();

            /// Name in snake_case.
            pub const fn name(self) -> &'static str {
                match self { $(WaitEvent::$variant => $name,)+ }
            }

            /// One line for people.
            pub const fn help(self) -> &'static str {
                match self { $(WaitEvent::$variant => $help,)+ }
            }
        }
    };
}

events! {
    WalWrite "wal_write" "Writing to the log",
    WalSync "wal_sync" "Syncing the log",
    WalRead "wal_read" "Reading the log",
    WalDurable "wal_durable" "A committer waiting until the log is durable",
    WalGather "wal_gather" "The leader of a sync waiting for committers who are about to come",
    WalSpace "wal_space" "Waiting for room in the log's buffer or segments",
    RunWrite "run_write" "Writing run files",
    RunWriteQueue "run_write_queue" "Waiting for queued writes of run files",
    RunSync "run_sync" "Syncing run files",
    RunRead "run_read" "Reading run files",
    ManifestWrite "manifest_write" "Writing the manifest and other metadata",
    ManifestSync "manifest_sync" "Syncing the manifest and other metadata",
    ManifestRead "manifest_read" "Reading the manifest and other metadata",
    DirSync "dir_sync" "Syncing folders",
    FileName "file_name" "Opening, renaming, linking and removing files",
    RowLock "row_lock" "Waiting for a row lock",
    MemoryStall "memory_stall" "A writer waiting for memory",
    FlushStall "flush_stall" "A committer waiting for flushes and merges",
    BulkWorker "bulk_worker" "A bulk statement waiting for its background writer",
    CommitLock "commit_lock" "Waiting for the commit lock",
    CommitOrder "commit_order" "Waiting until earlier commits are visible",
    Checkpoint "checkpoint" "Waiting for a checkpoint",
}

static WAITS: [Histogram; WaitEvent::COUNT] = [const { Histogram::new() }; WaitEvent::COUNT];

/// Runs `work` and records how long it took.
#[inline]
pub fn timed<T>(event: WaitEvent, work: impl FnOnce() -> T) -> T {
    let _told = tell(event);
    let start = Instant::now();
    let result = work();
    record(event, elapsed_ns(start));
    result
}

/// Is told, in the thread that waits, when a wait begins, and when it is over (none).
pub type Listener = fn(Option<WaitEvent>);

static LISTENER: OnceLock<Listener> = OnceLock::new();

thread_local! {
    static IS_TOLD: Cell<bool> = const { Cell::new(false) };
}

/// From now on, and for ever, this one is told of waits; of those within another none is. The first one stays.
pub fn listen(listener: Listener) {
    let _ = LISTENER.set(listener);
}

/// The listener knows of a wait for as long as this lives.
pub struct Told {
    listener: Option<Listener>,
    not_send: PhantomData<*const ()>,
}

/// Tells the listener, if there is one, that a wait begins; for those that [`timed`] does not.
#[inline]
pub fn tell(event: WaitEvent) -> Told {
    let listener = LISTENER.get().filter(|_| !IS_TOLD.replace(true)).copied();
    if let Some(listener) = listener {
        listener(Some(event));
    }
    Told { listener, not_send: PhantomData }
}

impl Drop for Told {
    fn drop(&mut self) {
        if let Some(listener) = self.listener {
            listener(None);
            IS_TOLD.set(false);
        }
    }
}

/// Records a wait that was measured elsewhere, in nanoseconds.
pub fn record(event: WaitEvent, ns: u64) {
    WAITS[event as usize].record(ns);
}

/// Count, sum and distribution of an event since the start of the process.
pub fn snapshot(event: WaitEvent) -> HistogramSnapshot {
    WAITS[event as usize].snapshot()
}

/// All events that occurred, with their figures.
pub fn report() -> Vec<(WaitEvent, HistogramSnapshot)> {
    let all = WaitEvent::ALL.iter().map(|&event| (event, snapshot(event)));
    all.filter(|(_, figures)| figures.count != 0).collect()
}

/// Nanoseconds since `start`; what does not fit in 64 bits is cut.
pub(crate) fn elapsed_ns(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_outermost_wait_is_told() {
        thread_local! {
            static HEARD: std::cell::RefCell<Vec<Option<WaitEvent>>> = const { std::cell::RefCell::new(Vec::new()) };
        }
        listen(|event| HEARD.with(|h| h.borrow_mut().push(event)));
        timed(WaitEvent::WalDurable, || timed(WaitEvent::WalSync, || ()));
        drop(tell(WaitEvent::RowLock));
        let heard = HEARD.take();
        assert_eq!(heard, [Some(WaitEvent::WalDurable), None, Some(WaitEvent::RowLock), None]);
    }

    #[test]
    fn timed_counts_and_returns_the_result() {
        let before = snapshot(WaitEvent::Checkpoint);
        assert_eq!(timed(WaitEvent::Checkpoint, || 42), 42);
        record(WaitEvent::Checkpoint, 1000);
        let since = snapshot(WaitEvent::Checkpoint).since(&before);
        assert_eq!(since.count, 2);
        assert!(since.sum_ns >= 1000);
        assert!(report().iter().any(|(event, _)| *event == WaitEvent::Checkpoint));
    }
}
