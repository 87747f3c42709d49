//! How far behind the background may fall, in memtables, in the log and with merges, and how those who write wait for it.
//!
//! Two bounds: bytes of memtables, and bytes of the log that a recovery would read; and a brake, which what merges have
//! not come to yet (`policy.rs`) pulls the harder the more it is. What flushes aim at lies below them
//! (`background.rs`); a writer waits for memory before it writes, a committer for the log before it takes a lock on it.
//! Nobody waits in inline mode, for ever, or for a flush that meets trouble.

use crate::core::Core;
use crate::options::Background;
use crate::upkeep::background::MOST_WAIT_TICKS;
use crate::Result;
use esker_base::counters::{count, Counter};
use esker_base::wait::{timed, WaitEvent};
use esker_memory::{charged, Account};
use std::time::Duration;

/// Rate at which replay is assumed to go, in bytes a second; low for any disk of today.
pub const REPLAY_BYTES_PER_SECOND: u64 = 64 << 20;
/// Gathered rows of fewer bytes are not worth a file, however short memory is.
const SPILL_LEAST_BYTES: u64 = 64 << 10;
/// With so many runs' bytes beyond what should be left to merge, nobody is slowed yet.
const FREE_DEBT_RUNS: u64 = 2;
/// With twice that, commits are slowed to so many bytes of redo in a microsecond; to half of it with three times that.
const BRAKED_BYTES_PER_US: u64 = 64;
/// A commit is held up this long at most.
const MOST_BRAKE: Duration = Duration::from_millis(100);

/// Memtables beyond this are flushed, in bytes.
pub(crate) fn memtable_budget(core: &Core) -> u64 {
    (core.settings.memory_limit_bytes() / 4).clamp(1 << 20, 256 << 20)
}

/// What the recovery target allows of the log, in bytes.
fn target_bytes(core: &Core) -> u64 {
    let target = u64::from(core.options.recovery_target_seconds.max(1)) * REPLAY_BYTES_PER_SECOND;
    // With room for what is added to it.
    core.options.recovery_target_bytes.unwrap_or(target).min(u64::MAX / 4)
}

/// The longest tail of the log that there should be, in bytes: what the recovery target allows, and what prepared
/// transactions take in it whenever they are logged again.
pub(crate) fn most_tail_bytes(core: &Core) -> u64 {
    target_bytes(core) + 2 * core.prepared.lock().values().map(|p| p.redo.len() as u64).sum::<u64>()
}

/// The log is so nearly as long as it should be at most that who commits is held up.
fn long_tail_bytes(most: u64) -> u64 {
    most / 8 * 7
}

/// Is it as long as that?
pub(crate) fn log_is_long(core: &Core) -> bool {
    core.signals.tail_bytes() > long_tail_bytes(most_tail_bytes(core))
}

/// Bytes of memtables from which on writers wait.
fn most_memtable_bytes(core: &Core) -> u64 {
    memtable_budget(core) / 2 * 3
}

/// Would so many bytes of gathered rows more than fill the memtables? Then they had better become a run at once, if
/// they are worth a file.
pub(crate) fn outgrows_memtables(core: &Core, bytes: u64) -> bool {
    bytes >= SPILL_LEAST_BYTES && charged(Account::Memtable) + bytes > most_memtable_bytes(core)
}

/// A writer's share of the pressure on memory: beyond one and a half times the budget it waits until something was
/// flushed, a flush meets trouble (then that is the writer's error), or `gone` says that nobody wants the answer any
/// more. With the budget of large writes, the log's buffers and the least of the cache that makes the limit.
pub(crate) fn wait_for_memory(core: &Core, gone: impl Fn() -> bool) -> Result<()> {
    let most = most_memtable_bytes(core);
    let crowded = || charged(Account::Memtable) > most && core.flushes.flushable_bytes() > most;
    if !crowded() || core.options.background == Background::Inline {
        return Ok(());
    }
    count(Counter::MemoryStalls, 1);
    let since = core.host.now();
    let result = timed(WaitEvent::MemoryStall, || {
        core.signals
            .wait_for_flush(&*core.host, MOST_WAIT_TICKS, || !crowded() || core.writable.is_poisoned() || gone())
    });
    count(Counter::MemoryStallUs, (core.host.now() - since).as_micros() as u64);
    result
}

/// A committer's share of the pressure on the log: from seven eighths of the longest tail on it lets flushes get on
/// first, a tick for each further commit; past that tail until it is shorter, or flushing meets trouble.
pub(crate) fn wait_for_log(core: &Core, gone: impl Fn() -> bool) {
    // Cheap to look at: no tail that is short enough without prepared transactions is too long with them.
    if core.options.background == Background::Inline || core.signals.tail_bytes() <= long_tail_bytes(target_bytes(core))
    {
        return;
    }
    let most = most_tail_bytes(core);
    let short = |bytes| core.signals.tail_bytes() <= bytes || core.writable.is_poisoned() || gone();
    if short(long_tail_bytes(most)) {
        return;
    }
    count(Counter::LogStalls, 1);
    timed(WaitEvent::FlushStall, || {
        let ticks = if core.signals.tail_bytes() > most { MOST_WAIT_TICKS } else { 1 };
        // Trouble with flushing is no error of a commit: there is still room in the log, or its append will say so.
        let _ = core.signals.wait_for_flush(&*core.host, ticks, || short(most));
    });
}

/// A committer's share of the pressure of merges: in proportion to what it writes and to how far they are behind.
pub(crate) fn wait_for_merges(core: &Core, redo_bytes: usize) {
    let pause = braked(core.signals.merge_debt_bytes(), core.options.run_bytes, redo_bytes as u64);
    if pause.is_zero() || core.options.background == Background::Inline || core.writable.is_poisoned() {
        return;
    }
    timed(WaitEvent::FlushStall, || core.host.sleep(pause));
}

/// How long a commit of so many bytes waits.
fn braked(debt_bytes: u64, run_bytes: u64, redo_bytes: u64) -> Duration {
    let free = (FREE_DEBT_RUNS * run_bytes).max(1);
    let beyond = debt_bytes.saturating_sub(free);
    let us = u128::from(redo_bytes) * u128::from(beyond) / u128::from(free) / u128::from(BRAKED_BYTES_PER_US);
    Duration::from_micros(us.min(MOST_BRAKE.as_micros()) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_brake_grows_with_debt_and_bytes_and_has_an_end() {
        let run = 128 << 20;
        assert_eq!(braked(2 * run, run, 1 << 20), Duration::ZERO);
        assert_eq!(braked(4 * run, run, 64_000), Duration::from_micros(1000));
        assert_eq!(braked(6 * run, run, 64_000), Duration::from_micros(2000));
        assert_eq!(braked(4 * run, run, 0), Duration::ZERO);
        assert_eq!(braked(u64::MAX, run, u64::MAX), MOST_BRAKE);
    }
}
