//! Buffers of a file that are written or read while the caller uses others: by io_uring, or by a thread where the kernel
//! gives none. Invariant: buffers come back in the order in which they left.

use crate::error::{LabError, Result};
use crate::probe::raw::{RawFile, RawQueue};
use esker_memory::Region;
use std::sync::mpsc::{sync_channel, Receiver, SyncSender};
use std::sync::Arc;
use std::thread::JoinHandle;

/// See the module.
pub enum Flow {
    /// The kernel does it.
    Ring(Box<RawQueue>),
    /// A thread does it, one after the other.
    Thread(Worker),
}

/// A buffer, how much of it, where in the file, and whether it is to be written.
struct Job {
    buffer: Region,
    bytes: usize,
    offset: u64,
    write: bool,
}

/// A thread that reads and writes.
pub struct Worker {
    jobs: Option<SyncSender<Job>>,
    done: Receiver<Result<(Region, usize)>>,
    under_way: usize,
    thread: Option<JoinHandle<()>>,
}

impl Flow {
    /// For at most `depth` unfinished buffers.
    ///
    /// # Errors
    /// When there is no thread either.
    pub fn start(file: &Arc<RawFile>, depth: usize) -> Result<Flow> {
        match RawQueue::new(file.clone(), depth) {
            Ok(queue) => Ok(Flow::Ring(Box::new(queue))),
            Err(_) => Ok(Flow::Thread(Worker::start(file.clone(), depth)?)),
        }
    }

    /// Buffers that are not yet read or written. A thread does not tell: those that have not come back.
    #[must_use]
    pub fn unfinished(&mut self) -> usize {
        match self {
            Flow::Ring(queue) => queue.unfinished(),
            Flow::Thread(worker) => worker.under_way,
        }
    }

    /// Buffers that have not come back.
    #[must_use]
    pub fn under_way(&self) -> usize {
        match self {
            Flow::Ring(queue) => queue.under_way(),
            Flow::Thread(worker) => worker.under_way,
        }
    }

    /// Begins to write the first `bytes` bytes of a buffer.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn write(&mut self, buffer: Region, bytes: usize, offset: u64) -> Result<()> {
        match self {
            Flow::Ring(queue) => Ok(queue.write(buffer, bytes, offset)?),
            Flow::Thread(worker) => worker.send(Job { buffer, bytes, offset, write: true }),
        }
    }

    /// Begins to read `bytes` bytes into a buffer.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn read(&mut self, buffer: Region, bytes: usize, offset: u64) -> Result<()> {
        match self {
            Flow::Ring(queue) => Ok(queue.read(buffer, bytes, offset)?),
            Flow::Thread(worker) => worker.send(Job { buffer, bytes, offset, write: false }),
        }
    }

    /// Waits for the buffer that left first; how many bytes were read or written.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn oldest(&mut self) -> Result<(Region, usize)> {
        match self {
            Flow::Ring(queue) => Ok(queue.oldest()?),
            Flow::Thread(worker) => worker.receive(),
        }
    }
}

/// Who would do it here, for a report: "io_uring", or "a thread" and why.
#[must_use]
pub fn who(file: &Arc<RawFile>) -> String {
    match RawQueue::new(file.clone(), 1) {
        Ok(_) => "io_uring".into(),
        Err(e) => format!("a thread, since io_uring is refused: {}", e.message),
    }
}

impl Worker {
    fn start(file: Arc<RawFile>, depth: usize) -> Result<Worker> {
        let (jobs, inbox) = sync_channel::<Job>(depth);
        let (send, done) = sync_channel(depth);
        let work = move || {
            for Job { mut buffer, bytes, offset, write } in inbox {
                let result = match write {
                    true => file.write_at(&buffer[..bytes], offset).map(|()| bytes),
                    false => file.read_at(&mut buffer[..bytes], offset),
                };
                if send.send(result.map(|n| (buffer, n)).map_err(LabError::from)).is_err() {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("lab-flow".into()).spawn(work);
        let thread = thread.map_err(|e| LabError::Unsupported(format!("no thread: {e}")))?;
        Ok(Worker { jobs: Some(jobs), done, under_way: 0, thread: Some(thread) })
    }

    fn send(&mut self, job: Job) -> Result<()> {
        let ended = || LabError::Failed("the thread that reads and writes ended".into());
        self.jobs.as_ref().ok_or_else(ended)?.send(job).map_err(|_| ended())?;
        self.under_way += 1;
        Ok(())
    }

    fn receive(&mut self) -> Result<(Region, usize)> {
        let ended = |_| LabError::Failed("the thread that reads and writes ended".into());
        let result = self.done.recv().map_err(ended)?;
        self.under_way -= 1;
        result
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Without jobs the thread ends.
        self.jobs = None;
        while self.done.recv().is_ok() {}
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
