//! The other log of a two-phase commit, with a queue as the server's binlog has it: whoever leads the queue writes the log
//! for all in it, has it synced, and decides them in that order.

use super::work::Counts;
use crate::clock::caught;
use crate::error::{LabError, Result};
use crate::probe::raw::{Barrier, RawFile, RawOptions};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// What a leader does for its group, besides the coordinator's log.
pub(super) trait Participant<T> {
    /// Before that log is written.
    ///
    /// # Errors
    /// Whatever fails.
    fn before(&self, _group: &[T]) -> Result<()> {
        Ok(())
    }

    /// After it: all of them, in their order. What it returns all of them get.
    ///
    /// # Errors
    /// Whatever fails.
    fn decide(&self, group: &[T]) -> Result<u64>;
}

/// See the module. `T` is what a prepared transaction is known by.
pub(super) struct Coordinator<'a, T> {
    file: RawFile,
    /// Bytes of an entry.
    entry: usize,
    synced: bool,
    counts: &'a Counts,
    queue: Mutex<Queue<T>>,
    done: Condvar,
}

struct Queue<T> {
    /// Transactions that wait.
    waiting: Vec<T>,
    /// So many have entered, and so many are done.
    entered: u64,
    finished: u64,
    leading: bool,
    position: u64,
    /// What the last finished group's deciding returned.
    decided: u64,
    failure: Option<LabError>,
}

impl<'a, T> Coordinator<'a, T> {
    /// With a new file and entries of so many bytes.
    ///
    /// # Errors
    /// What the operating system says.
    pub(super) fn open(path: &Path, entry: usize, synced: bool, counts: &'a Counts) -> Result<Coordinator<'a, T>> {
        let file = RawFile::open(path, RawOptions { create: true, ..RawOptions::default() })?;
        let queue = Queue {
            waiting: Vec::new(),
            entered: 0,
            finished: 0,
            leading: false,
            position: 0,
            decided: 0,
            failure: None,
        };
        Ok(Coordinator { file, entry, synced, counts, queue: Mutex::new(queue), done: Condvar::new() })
    }

    fn lock(&self) -> MutexGuard<'_, Queue<T>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Decides a prepared transaction, alone or with others; what deciding them returned.
    ///
    /// # Errors
    /// What the file or `decides` say, then for all that come later too.
    pub(super) fn commit(&self, prepared: T, participant: &impl Participant<T>) -> Result<u64> {
        let mut queue = self.lock();
        queue.waiting.push(prepared);
        queue.entered += 1;
        let mine = queue.entered;
        loop {
            if let Some(failure) = &queue.failure {
                return Err(failure.clone());
            }
            if queue.finished >= mine {
                return Ok(queue.decided);
            }
            if queue.leading {
                queue = self.done.wait(queue).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            queue.leading = true;
            let group = std::mem::take(&mut queue.waiting);
            let position = queue.position;
            drop(queue);
            // The others wait: whatever becomes of the leader, they must hear of it.
            let result = caught(|| self.lead(participant, &group, position));
            queue = self.lock();
            queue.leading = false;
            queue.finished += group.len() as u64;
            match result {
                Ok((position, decided)) => (queue.position, queue.decided) = (position, decided),
                Err(e) => queue.failure = Some(e),
            }
            self.done.notify_all();
        }
    }

    fn lead(&self, participant: &impl Participant<T>, group: &[T], position: u64) -> Result<(u64, u64)> {
        participant.before(group)?;
        let entries = vec![0xB1; group.len() * self.entry];
        self.file.write_at(&entries, position)?;
        self.counts.grouped(group.len());
        if self.synced {
            self.file.sync(Barrier::Fdatasync)?;
            self.counts.coordinator_syncs.fetch_add(1, Ordering::Relaxed);
        }
        Ok((position + entries.len() as u64, participant.decide(group)?))
    }

    /// Bytes that its log has.
    ///
    /// # Errors
    /// What the operating system says.
    pub(super) fn written(&self) -> Result<u64> {
        Ok(self.file.size_bytes()?)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::experiment::remove_all;
    use esker_io::{Disk, PosixDisk};

    /// Writes down who was decided.
    #[derive(Default)]
    struct Order(Mutex<Vec<u64>>);

    impl Participant<u64> for Order {
        fn decide(&self, group: &[u64]) -> Result<u64> {
            self.0.lock().unwrap().extend(group);
            Ok(group.len() as u64)
        }
    }

    fn with<T>(name: &str, entry: usize, work: impl FnOnce(&Coordinator<'_, u64>, &Counts) -> T) -> T {
        let folder = std::env::temp_dir().join(format!("esker-lab-{name}-{}", std::process::id()));
        PosixDisk::new().create_dir(&folder).unwrap();
        let counts = Counts::default();
        let done = work(&Coordinator::open(&folder.join("coordinator"), entry, true, &counts).unwrap(), &counts);
        remove_all(&folder);
        done
    }

    #[test]
    fn everybody_is_decided_once_with_a_sync_for_each_group() {
        with("decided", 10, |coordinator, counts| {
            let order = Order::default();
            std::thread::scope(|scope| {
                for thread in 0..4 {
                    let (coordinator, order) = (&coordinator, &order);
                    scope.spawn(move || {
                        for n in 0..100 {
                            coordinator.commit(1000 * thread + n, order).unwrap();
                        }
                    });
                }
            });
            let decided = order.0.into_inner().unwrap();
            for thread in 0..4 {
                // Each thread's in its order, none lost, none twice.
                let mine: Vec<u64> = decided.iter().copied().filter(|d| d / 1000 == thread).collect();
                assert_eq!(mine, (0..100).map(|n| 1000 * thread + n).collect::<Vec<_>>());
            }
            let groups = counts.groups();
            assert_eq!(groups.iter().map(|g| u64::from(*g)).sum::<u64>(), 400);
            assert_eq!(counts.coordinator_syncs.load(Ordering::Relaxed), groups.len() as u64);
            assert_eq!(coordinator.written().unwrap(), 4000);
        });
    }

    struct Panics;

    impl Participant<u64> for Panics {
        fn decide(&self, _: &[u64]) -> Result<u64> {
            panic!("undecided")
        }
    }

    #[test]
    fn who_leads_and_panics_takes_the_others_along() {
        with("leader", 10, |coordinator, _| {
            std::thread::scope(|scope| {
                let threads: Vec<_> = (0..3).map(|n| scope.spawn(move || coordinator.commit(n, &Panics))).collect();
                // Who is not told waits here for ever.
                for thread in threads {
                    assert!(thread.join().unwrap().unwrap_err().to_string().contains("undecided"));
                }
            });
        });
    }
}
