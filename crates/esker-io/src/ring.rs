//! What is asked of io_uring, and nothing more: the seam at which a test stands in for the kernel and answers late,
//! short, or with an error.

use io_uring::{opcode, squeue, types, IoUring};
use std::io;
use std::os::fd::RawFd;

/// What the kernel is to do.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Action {
    Write { data: *const u8, bytes: u32, offset: u64 },
    Read { data: *mut u8, bytes: u32, offset: u64 },
    Sync { data_only: bool },
}

/// One thing to do, with the number that its completion will bear.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request {
    pub(crate) fd: RawFd,
    pub(crate) action: Action,
    pub(crate) number: u64,
}

/// A queue to the kernel and back.
pub(crate) trait Ring: Send {
    /// Queues a request; false if there is no room.
    ///
    /// # Safety
    /// The request's buffer stays where it is, unused by anybody else, until its completion has been seen.
    unsafe fn push(&mut self, request: &Request) -> bool;
    /// Hands to the kernel what is queued.
    fn submit(&mut self) -> io::Result<()>;
    /// The same, and waits until a completion is there.
    fn submit_and_wait(&mut self) -> io::Result<()>;
    /// A completion that is there: the request's number, and bytes done or a negative error.
    fn completion(&mut self) -> Option<(u64, i32)>;
}

/// A ring of the kernel for so many requests.
pub(crate) fn of_the_kernel(entries: usize) -> io::Result<Box<dyn Ring>> {
    Ok(Box::new(IoUring::new(entries as u32)?))
}

impl Ring for IoUring {
    unsafe fn push(&mut self, request: &Request) -> bool {
        let entry = entry(request).user_data(request.number);
        // SAFETY: as the caller promises.
        unsafe { self.submission().push(&entry) }.is_ok()
    }

    fn submit(&mut self) -> io::Result<()> {
        IoUring::submit(self).map(drop)
    }

    fn submit_and_wait(&mut self) -> io::Result<()> {
        IoUring::submit_and_wait(self, 1).map(drop)
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

#[cfg(test)]
pub(crate) mod scripted;
