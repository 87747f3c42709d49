//! Which tree is flushed next: the largest while memtables take too much, those that readers find dead, those that keep the log from
//! being shortened, those that nobody writes to any more.
//!
//! Each choice takes a look at all trees that have something in memory, which may be thousands. So several are chosen by one look,
//! which count for a while if memory or the log is short, as writers go on meanwhile and wait by what was seen; and where
//! neither is short, looks take a small share of the time, however many trees there are.
//!
//! Invariants: no tree is flushed by two threads; what is chosen is flushed or given up by whoever takes it, so that rounds end.

use crate::catalog::table::{AnyTree, Table};
use crate::core::Core;
use crate::options::Background;
use crate::tree::looks::READ_REST;
use crate::tree::InMemory;
use crate::upkeep::background::{MOST_PAUSE_TICKS, TICK};
use crate::upkeep::pressure;
use esker_base::counters::{count, Counter};
use esker_base::lock::{order, Mutex};
use esker_format::{Lsn, TreeId};
use esker_memory::{charged, Account};
use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

/// A tree to which nothing was written for so long is at rest.
pub(crate) const REST: Duration = Duration::from_secs(10);
/// Memtables of a tree at rest are flushed from this share of a run on: one in ...
const REST_SHARE: u64 = 32;
/// From so much less on, if readers have paid for it: one in ...
const PAID_SHARE: u64 = 16;
/// So many are chosen by one look, at most.
const MOST_CHOSEN: usize = 64;
/// Without need, looks take this share of a thread's time, as long as that is not more than a pause: one in ...
pub(super) const LOOK_SHARE: u32 = 50;
/// With need, this one.
const NEEDED_SHARE: u32 = 10;

/// A tree that has something in memory, and what it had when it was looked at.
#[derive(Clone)]
struct Seen {
    table: Arc<Table>,
    tree: AnyTree,
    memory: InMemory,
}

/// See the module.
pub(crate) struct Flushes {
    turns: Mutex<Turns>,
    /// Bytes of memtables that a flush would free, and that it would carry on, as far as is known.
    flushable_bytes: AtomicU64,
    pinned_bytes: AtomicU64,
}

#[derive(Default)]
struct Turns {
    /// Trees that a background thread flushes now.
    now: HashSet<TreeId>,
    next: VecDeque<Seen>,
    /// When that was chosen, and for how long it counts, needed or not, by the host's clock.
    chosen_at: Duration,
    counts_for: Duration,
    rests_for: Duration,
}

/// A tree that its caller flushes, and nobody else.
pub(crate) struct Turn<'a> {
    core: &'a Core,
    seen: Seen,
}

impl Flushes {
    pub(crate) fn new() -> Self {
        Flushes {
            turns: Mutex::new(&order::BACKGROUND_FLUSHING, Turns::default()),
            flushable_bytes: AtomicU64::new(0),
            pinned_bytes: AtomicU64::new(0),
        }
    }

    pub(crate) fn flushable_bytes(&self) -> u64 {
        self.flushable_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn pinned_bytes(&self) -> u64 {
        self.pinned_bytes.load(Ordering::Relaxed)
    }

    /// What was chosen is not flushed any more.
    pub(crate) fn forget(&self) {
        let chosen = std::mem::take(&mut self.turns.lock().next);
        drop(chosen);
    }
}

impl<'a> Turn<'a> {
    /// The next one, but for those that `failed` in this round.
    pub(crate) fn take(core: &'a Core, failed: &HashSet<TreeId>) -> Option<Self> {
        let mut turns = core.flushes.turns.lock();
        loop {
            turns.choose(core, failed);
            let seen = turns.next.pop_front()?;
            let id = seen.tree.id();
            if seen.is_there() && !failed.contains(&id) && turns.now.insert(id) {
                return Some(Turn { core, seen });
            }
        }
    }

    pub(crate) fn table(&self) -> &Arc<Table> {
        &self.seen.table
    }

    pub(crate) fn tree(&self) -> &AnyTree {
        &self.seen.tree
    }
}

impl Drop for Turn<'_> {
    /// Says what the tree has in memory now, and lets others flush it.
    fn drop(&mut self) {
        let (before, after) = (&self.seen.memory, self.seen.tree.in_memory());
        let flushes = &self.core.flushes;
        let change = |sum: &AtomicU64, before, after| {
            let changed = |bytes: u64| Some(bytes.saturating_sub(before).saturating_add(after));
            let _ = sum.fetch_update(Ordering::Relaxed, Ordering::Relaxed, changed);
        };
        change(&flushes.flushable_bytes, before.flushable_bytes, after.flushable_bytes);
        change(&flushes.pinned_bytes, before.pinned_bytes, after.pinned_bytes);
        flushes.turns.lock().now.remove(&self.seen.tree.id());
    }
}

impl Turns {
    /// Chooses those that come next, the most urgent first, of the first kind that there are any of; unless what was chosen
    /// still counts.
    fn choose(&mut self, core: &Core, failed: &HashSet<TreeId>) {
        let oldest = oldest_wanted(core);
        let began = core.host.now();
        let is_needed = oldest.is_some() || charged(Account::Memtable) > pressure::memtable_budget(core);
        let age = began.saturating_sub(self.chosen_at);
        let still_counts = match (self.next.is_empty(), is_needed) {
            (false, true) => age < self.counts_for,
            (false, false) => true,
            (true, true) => false,
            (true, false) => age < self.rests_for && core.options.background == Background::Threads,
        };
        if still_counts {
            return;
        }
        let trees = look_at_memory(core);
        let busy: u64 = trees.iter().filter(|t| self.now.contains(&t.tree.id())).map(Seen::bytes).sum();
        let total: u64 = trees.iter().map(Seen::bytes).sum();
        let mut idle = trees;
        idle.retain(|t| !self.now.contains(&t.tree.id()) && !failed.contains(&t.tree.id()));
        // Each time, also where something else comes first: it is noted since when they rest.
        let rested = at_rest(core, &idle);
        let mut chosen = largest(&idle, (total - busy).saturating_sub(pressure::memtable_budget(core)));
        if let (false, Some(oldest)) = (chosen.is_empty(), oldest.filter(|_| pressure::log_is_long(core))) {
            // Memory may be short for as long as there are writers, and the log is to become shorter all the same: in turn.
            let old = needed_before(oldest, &idle);
            chosen.retain(|t| old.iter().all(|o| o.tree.id() != t.tree.id()));
            let mut large = chosen.into_iter();
            chosen = old.into_iter().flat_map(|o| [Some(o), large.next()]).flatten().collect();
            chosen.extend(large);
        }
        if chosen.is_empty() {
            let horizon = core.views.horizon();
            chosen = idle.iter().filter(|t| t.tree.dead_wants_flush(horizon)).collect();
        }
        if let (true, Some(oldest)) = (chosen.is_empty(), oldest) {
            chosen = needed_before(oldest, &idle);
        }
        if chosen.is_empty() {
            chosen = rested;
            count(Counter::FlushesAtRest, chosen.len().min(MOST_CHOSEN) as u64);
        }
        self.next = chosen.into_iter().take(MOST_CHOSEN).cloned().collect();
        self.chosen_at = core.host.now();
        let took = self.chosen_at.saturating_sub(began);
        self.counts_for = (took * NEEDED_SHARE).max(TICK);
        self.rests_for = (took * LOOK_SHARE).min(TICK * MOST_PAUSE_TICKS);
    }
}

impl Seen {
    /// Neither dropped nor emptied since it was chosen?
    fn is_there(&self) -> bool {
        self.table.still_has(self.tree.id())
    }

    /// What a flush would free, in bytes.
    fn bytes(&self) -> u64 {
        self.memory.flushable_bytes
    }
}

/// The largest ones that have so many bytes together. Never one of nothing, which would be due for ever where those that hold the
/// memory cannot be flushed.
fn largest(idle: &[Seen], mut bytes: u64) -> Vec<&Seen> {
    let mut all: Vec<_> = idle.iter().filter(|t| bytes > 0 && t.bytes() > 0).collect();
    all.sort_by_key(|t| std::cmp::Reverse(t.bytes()));
    let mut found = Vec::new();
    for t in all {
        if bytes == 0 {
            break;
        }
        bytes = bytes.saturating_sub(t.bytes());
        found.push(t);
    }
    found
}

/// Those whose memtables need the log from before `oldest`, the oldest first.
fn needed_before(oldest: Lsn, idle: &[Seen]) -> Vec<&Seen> {
    let needed = |t: &'_ Seen| t.tree.needs_from().filter(|needed| *needed < oldest);
    let mut all: Vec<_> = idle.iter().filter_map(|t| Some((needed(t)?, t))).collect();
    all.sort_by_key(|(needed, _)| *needed);
    all.into_iter().map(|(_, t)| t).collect()
}

/// Those that nobody writes to any more and that are worth it.
fn at_rest<'s>(core: &Core, idle: &'s [Seen]) -> Vec<&'s Seen> {
    let (least, now) = ((core.options.run_bytes / REST_SHARE).max(1), core.host.now());
    let is_paid = |t: &Seen| t.bytes() >= (least / PAID_SHARE).max(1) && t.tree.flush_paid_by_looks() >= t.bytes();
    let rests = |t: &Seen| t.tree.rests(REST, now) && t.bytes() >= least;
    idle.iter().filter(|t| rests(t) || (t.tree.rests(READ_REST, now) && is_paid(t))).collect()
}

/// Trees with something in memory. What open cursors pin and what transactions have to themselves does not count.
fn look_at_memory(core: &Core) -> Vec<Seen> {
    let look = |(table, tree): (Arc<Table>, AnyTree)| Seen { memory: tree.in_memory(), table, tree };
    let seen: Vec<_> = core.due.in_memory().into_iter().map(look).collect();
    let sum = |bytes: fn(&InMemory) -> u64| seen.iter().map(|t| bytes(&t.memory)).sum();
    core.flushes.flushable_bytes.store(sum(|m| m.flushable_bytes), Ordering::Relaxed);
    core.flushes.pinned_bytes.store(sum(|m| m.pinned_bytes), Ordering::Relaxed);
    seen
}

/// Memtables that need the log from before this position are to be flushed, if any are.
pub(crate) fn oldest_wanted(core: &Core) -> Option<Lsn> {
    let most = pressure::most_tail_bytes(core);
    let end = core.wal.end_lsn();
    let tail = end.0.saturating_sub(core.signals.replay_from().0);
    (tail > most / 4 * 3).then_some(Lsn(end.0.saturating_sub(most / 2)))
}

#[cfg(test)]
mod tests;
