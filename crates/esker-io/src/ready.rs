//! For how long a thread could have run and did not: the second number of Linux's `/proc/thread-self/schedstat`, in nanoseconds
//! (Documentation/scheduler/sched-stats.rst).

use esker_base::trace::ReadyClock;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// The clock of the thread that calls this, to be asked in that thread; one that knows nothing where the system does not tell.
pub fn ready_clock() -> ReadyClock {
    let Ok(file) = File::open("/proc/thread-self/schedstat") else { return Box::new(|| None) };
    Box::new(move || {
        let mut text = [0; 128];
        let read = file.read_at(&mut text, 0).ok()?;
        second_number(&text[..read])
    })
}

fn second_number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_second_number() {
        assert_eq!(second_number(b"123 456 7\n"), Some(456));
        assert_eq!((second_number(b""), second_number(b"12"), second_number(b"1 x 2")), (None, None, None));
    }

    #[test]
    fn it_never_falls() {
        let mut clock = ready_clock();
        let first = clock();
        std::thread::yield_now();
        assert!(clock() >= first);
    }
}
