//! A kernel that does as it is told: each request is answered by the next line of a script, when somebody waits. For tests.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use super::{Action, Request, Ring};
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex};

/// What happens to a request.
#[derive(Debug, Clone, Copy)]
pub enum Answer {
    /// All of it is done.
    Done,
    /// No more than so many bytes of it are done.
    Short(u32),
    /// It fails with this error, nothing done.
    Error(i32),
}

/// What happens to a wait.
#[derive(Debug, Clone, Copy)]
pub enum Wait {
    /// It returns with one answer.
    One,
    /// It fails with this error; nothing is lost.
    Error(i32),
}

/// What such a kernel will do, and what it was asked for.
#[derive(Debug, Default)]
pub struct Script {
    /// For requests in the order in which they come; `Done` when there are no more.
    pub answers: VecDeque<Answer>,
    /// For waits; `One` when there are no more.
    pub waits: VecDeque<Wait>,
    /// Requests that were pushed.
    pub pushed: usize,
    /// Is there room in the queue?
    pub full: bool,
}

/// A ring whose kernel is a script.
#[derive(Debug, Clone, Default)]
pub struct Scripted {
    /// May be changed while the ring is used: clones share it.
    pub script: Arc<Mutex<Script>>,
    /// Answers that nobody has waited for.
    later: VecDeque<(u64, i32)>,
    ready: VecDeque<(u64, i32)>,
}

impl Scripted {
    /// With a script of these answers, and waits that are none of them an error.
    pub fn new(answers: &[Answer]) -> Self {
        let ring = Scripted::default();
        ring.script.lock().unwrap().answers.extend(answers);
        ring
    }
}

/// Does the first `most` bytes of a request, really.
fn perform(request: &Request, most: u32) -> i32 {
    let place = |offset: u64| libc::off_t::try_from(offset).unwrap();
    // SAFETY: the buffers live and have these lengths, as whoever pushed has promised; the file is open.
    let done = unsafe {
        match request.action {
            Action::Write { data, bytes, offset } => {
                libc::pwrite(request.fd, data.cast(), bytes.min(most) as usize, place(offset))
            }
            Action::Read { data, bytes, offset } => {
                libc::pread(request.fd, data.cast(), bytes.min(most) as usize, place(offset))
            }
            Action::Sync { .. } => 0,
        }
    };
    assert!(done >= 0, "{}", io::Error::last_os_error());
    i32::try_from(done).unwrap()
}

impl Ring for Scripted {
    unsafe fn push(&mut self, request: &Request) -> bool {
        let mut script = self.script.lock().unwrap();
        if script.full {
            return false;
        }
        script.pushed += 1;
        let result = match script.answers.pop_front().unwrap_or(Answer::Done) {
            Answer::Done => perform(request, u32::MAX),
            Answer::Short(most) => perform(request, most),
            Answer::Error(code) => -code,
        };
        self.later.push_back((request.number, result));
        true
    }

    unsafe fn push_linked(&mut self, first: &Request, then: &Request) -> bool {
        // SAFETY: as the caller promises.
        if !unsafe { self.push(first) } {
            return false;
        }
        let whole = matches!(first.action, Action::Write { bytes, .. } if self.later.back().is_some_and(|l| l.1 == bytes as i32));
        match whole {
            // SAFETY: as the caller promises.
            true => unsafe { self.push(then) },
            false => {
                self.later.push_back((then.number, -libc::ECANCELED));
                true
            }
        }
    }

    fn submit(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn submit_and_wait(&mut self) -> io::Result<()> {
        match self.script.lock().unwrap().waits.pop_front().unwrap_or(Wait::One) {
            Wait::One => self.ready.push_back(self.later.pop_front().expect("a wait that nothing ends")),
            Wait::Error(code) => return Err(io::Error::from_raw_os_error(code)),
        }
        Ok(())
    }

    fn submit_and_wait_for(&mut self, completions: usize) -> io::Result<()> {
        (0..completions).try_for_each(|_| self.submit_and_wait())
    }

    fn completion(&mut self) -> Option<(u64, i32)> {
        self.ready.pop_front()
    }
}
