//! What is asked of io_uring, and nothing more: the seam at which a test stands in for the kernel and answers late,
//! short, or with an error. The bulk files' write queue, the log's linked writes and the lab's queue stand on it.

use io_uring::{opcode, squeue, types, IoUring};
use std::io;
use std::os::fd::RawFd;

/// What the kernel is to do.
#[derive(Debug, Clone, Copy)]
pub enum Action {
    /// Write `bytes` bytes at `data` to the file at `offset`.
    Write {
        /// The first byte.
        data: *const u8,
        /// How many.
        bytes: u32,
        /// Where in the file.
        offset: u64,
    },
    /// Read `bytes` bytes of the file at `offset` to `data`.
    Read {
        /// Where the first byte goes.
        data: *mut u8,
        /// How many.
        bytes: u32,
        /// Where in the file.
        offset: u64,
    },
    /// Make what was written durable.
    Sync {
        /// fdatasync instead of fsync.
        data_only: bool,
    },
}

/// One thing to do, with the number that its completion will bear.
#[derive(Debug, Clone, Copy)]
pub struct Request {
    /// The file.
    pub fd: RawFd,
    /// What to do with it.
    pub action: Action,
    /// Comes back with the completion.
    pub number: u64,
}

/// A queue to the kernel and back.
pub trait Ring: Send {
    /// Queues a request; false if there is no room.
    ///
    /// # Safety
    /// The request's buffer stays where it is, unused by anybody else, until its completion has been seen.
    unsafe fn push(&mut self, request: &Request) -> bool;
    /// Queues two requests: the second begins when the first is done whole, and is cancelled if it is not. False if there is
    /// no room for both.
    ///
    /// # Safety
    /// As of [`push`](Ring::push).
    unsafe fn push_linked(&mut self, first: &Request, then: &Request) -> bool;
    /// Hands to the kernel what is queued.
    ///
    /// # Errors
    /// What the operating system says; what is queued stays queued.
    fn submit(&mut self) -> io::Result<()>;
    /// The same, and waits until a completion is there.
    ///
    /// # Errors
    /// What the operating system says; what is queued stays queued.
    fn submit_and_wait(&mut self) -> io::Result<()>;
    /// The same, and waits until so many completions are there: one call, unless it is interrupted.
    ///
    /// # Errors
    /// As of [`submit_and_wait`](Ring::submit_and_wait).
    fn submit_and_wait_for(&mut self, completions: usize) -> io::Result<()>;
    /// A completion that is there: the request's number, and bytes done or a negative error.
    fn completion(&mut self) -> Option<(u64, i32)>;
}

/// A ring of the kernel for so many requests.
///
/// # Errors
/// Why the kernel gives none.
pub fn of_the_kernel(entries: usize) -> io::Result<Box<dyn Ring>> {
    Ok(Box::new(IoUring::new(entries as u32)?))
}

/// Was nothing tried, so that it may be tried again?
pub(crate) fn passes(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY | libc::ECANCELED))
}

impl Ring for IoUring {
    unsafe fn push(&mut self, request: &Request) -> bool {
        let entry = entry(request).user_data(request.number);
        // SAFETY: as the caller promises.
        unsafe { self.submission().push(&entry) }.is_ok()
    }

    unsafe fn push_linked(&mut self, first: &Request, then: &Request) -> bool {
        let first_entry = entry(first).user_data(first.number).flags(squeue::Flags::IO_LINK);
        let then_entry = entry(then).user_data(then.number);
        // SAFETY: as the caller promises.
        unsafe { self.submission().push_multiple(&[first_entry, then_entry]) }.is_ok()
    }

    fn submit(&mut self) -> io::Result<()> {
        IoUring::submit(self).map(drop)
    }

    fn submit_and_wait(&mut self) -> io::Result<()> {
        IoUring::submit_and_wait(self, 1).map(drop)
    }

    fn submit_and_wait_for(&mut self, completions: usize) -> io::Result<()> {
        IoUring::submit_and_wait(self, completions).map(drop)
    }

    fn completion(&mut self) -> Option<(u64, i32)> {
        IoUring::completion(self).next().map(|c| (c.user_data(), c.result()))
    }
}

fn entry(request: &Request) -> squeue::Entry {
    let fd = types::Fd(request.fd);
    match request.action {
        Action::Write { data, bytes, offset } => opcode::Write::new(fd, data, bytes).offset(offset).build(),
        Action::Read { data, bytes, offset } => opcode::Read::new(fd, data, bytes).offset(offset).build(),
        Action::Sync { data_only } => {
            let flags = if data_only { types::FsyncFlags::DATASYNC } else { types::FsyncFlags::empty() };
            opcode::Fsync::new(fd).flags(flags).build()
        }
    }
}

#[cfg(any(test, feature = "sim"))]
pub mod scripted;
