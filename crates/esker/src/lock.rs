//! Row locks: which transaction may write, or insists on reading, which row.
//!
//! A lock is a bit in a set of row ids per (tree, row id >> 16, transaction), so that a statement over millions of rows
//! costs about a bit a row and its end touches containers, not rows. A range lock covers all rows of a tree below a
//! row id; it is noted in every shard, so that the way of a row lock stays within its own shard.
//!
//! Invariants: an exclusive lock excludes every other owner's lock on that row; an owner with a lock is listed in its
//! `Held` with the container or tree, so that [`LockTable::release_all`] finds it; locks are only added by the session
//! that runs the transaction. Range locks take shards in rising order, so two of them never wait for each other in a
//! circle. What a part of the table holds is in `lock/shard.rs`, waiting in `lock/wait.rs` and `lock/graph.rs`.

mod graph;
mod held;
mod restore;
mod set;
mod shard;
#[cfg(test)]
mod tests;
mod wait;

use crate::host::Host;
use esker_base::lock::{order, Mutex, MutexGuard};
use esker_base::{count, Counter, WaitEvent};
use esker_format::{RowId, TreeId, TxnId};
use shard::{recharge, split, Attempt, Holder, Shard, Spread};
use std::collections::hash_map::Entry;
use std::hash::Hasher;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use wait::{Blocker, Held, Released, Wait, Waits};

pub(crate) use held::Locked;
pub use wait::LockMode;
pub(crate) use wait::{LockOwner, Parker, WaitKey, Waiter};

const SHARDS: usize = 64;

/// The row of a row tree whose lock is that of the table's AUTO_INCREMENT counter. No table has such a row.
pub(crate) const COUNTER: RowId = RowId(u64::MAX - 1);

/// A lock was granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LockOutcome {
    /// Not held in this mode before.
    Granted,
    /// The transaction had it already.
    AlreadyHeld,
}

/// A lock was not granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LockError {
    /// The wait took longer than allowed.
    Timeout,
    /// The wait was part of a circle, and the transaction has done least of those in it.
    Deadlock,
    /// The session was killed while waiting.
    Interrupted,
    /// Somebody holds it, and the policy is not to wait.
    WouldBlock,
}

/// How long to wait.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WaitPolicy {
    /// Longest wait; zero does not wait.
    pub(crate) timeout: Duration,
    /// Do not wait at all.
    pub(crate) nowait: bool,
}

/// What a front end does around a wait. Called without any lock of the table held.
pub trait WaitHooks {
    /// The session is about to sleep. Once per wait, paired with [`WaitHooks::after_wait`].
    fn before_wait(&self) {}
    /// The wait is over, however it ended.
    fn after_wait(&self) {}
    /// How long the session waits at most, from now on, if that is not what it was [told](crate::Session::set_lock_wait) before;
    /// zero: not at all. Asked with locks held: it waits for nobody.
    fn longest_wait(&self) -> Option<Duration> {
        None
    }
    /// The session waits for this transaction. May be repeated.
    fn waits_for(&self, _txn: TxnId) {}
    /// Must this transaction end before that one, which therefore goes first if one has to be refused? Asked of those whose
    /// sessions report, with the lock of all waits held: it must wait for nobody.
    fn goes_before(&self, _txn: TxnId, _other: TxnId) -> bool {
        false
    }
    /// True if [`WaitHooks::waits_for`] matters: every change of whom it waits for is then reported.
    fn reports(&self) -> bool {
        false
    }
    /// What a connection runs, for people: asked when a deadlock is told of.
    fn statement(&self, _connection: u64) -> Option<String> {
        None
    }
}

/// Knows in words what is waited for.
pub(crate) trait Words: Send + Sync {
    /// Asked by who is about to sleep in a traced statement, with no lock held; `connection`: the first blocker's.
    fn of_wait(&self, wait: &Waiter, connection: u64) -> Option<esker_base::trace::Wanted>;
}

/// No front end.
pub(crate) struct NoHooks;
impl WaitHooks for NoHooks {}

#[cfg(test)]
/// What the table holds now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct LockStats {
    /// Sets of locks: one per transaction and container.
    pub(crate) containers: u64,
    /// Rows locked one by one.
    pub(crate) rows: u64,
    /// Range locks.
    pub(crate) ranges: u64,
    /// Memory of all containers, in bytes.
    pub(crate) size_bytes: u64,
    /// Sessions that wait now.
    pub(crate) waiting: u64,
}

/// All row locks of an engine.
pub(crate) struct LockTable {
    shards: Vec<Mutex<Shard>>,
    waits: Waits,
    /// Whose clock ends waits.
    host: Arc<dyn Host>,
    words: OnceLock<Weak<dyn Words>>,
}

/// Who is waited for, and why.
struct Behind<'a> {
    of: &'a Arc<LockOwner>,
    key: WaitKey,
    row: Option<RowId>,
}

impl LockTable {
    pub(crate) fn new(host: Arc<dyn Host>) -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::new(&order::LOCK_SHARD, Shard::new())).collect();
        LockTable { shards, waits: Waits::new(), host, words: OnceLock::new() }
    }

    /// From now on traces tell what is waited for; the first one stays.
    pub(crate) fn told_by(&self, words: Weak<dyn Words>) {
        let _ = self.words.set(words);
    }

    /// The trace of a wait that begins says what it is for, while others still have that.
    fn trace(&self, wait: &Wait<'_>, since: Duration, blockers: &[Blocker]) {
        esker_base::trace::wants(|| {
            let connection = blockers.first()?.owner.activity.connection();
            let blockers = blockers.iter().map(|b| b.owner.txn).collect();
            let Wait { key, row, mode, .. } = *wait;
            let waiter = Waiter { txn: wait.owner.txn, key, row, mode, since, blockers };
            self.words.get()?.upgrade()?.of_wait(&waiter, connection)
        });
    }

    fn shard(&self, tree: TreeId, high: u64) -> MutexGuard<'_, Shard> {
        let mut spread = Spread::default();
        spread.write_u64(tree.0);
        spread.write_u64(high);
        self.shards[(spread.finish() >> 40) as usize % SHARDS].lock()
    }

    /// Locks a row, or turns a shared lock into an exclusive one. Waits as `policy` says.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn lock(
        &self,
        owner: &Arc<LockOwner>,
        parker: &Arc<Parker>,
        tree: TreeId,
        row: RowId,
        mode: LockMode,
        policy: WaitPolicy,
        hooks: &dyn WaitHooks,
    ) -> Result<LockOutcome, LockError> {
        let event = if row == COUNTER { WaitEvent::CounterLock } else { WaitEvent::RowLock };
        self.lock_one(owner, parker, (tree, row, event), mode, policy, hooks)
    }

    /// Reserves a place of a key tree, as [`lock`](Self::lock) locks a row.
    pub(crate) fn lock_key(
        &self,
        owner: &Arc<LockOwner>,
        parker: &Arc<Parker>,
        (tree, place): (TreeId, RowId),
        policy: WaitPolicy,
        hooks: &dyn WaitHooks,
    ) -> Result<LockOutcome, LockError> {
        self.lock_one(owner, parker, (tree, place, WaitEvent::KeyLock), LockMode::Exclusive, policy, hooks)
    }

    fn lock_one(
        &self,
        owner: &Arc<LockOwner>,
        parker: &Arc<Parker>,
        (tree, row, event): (TreeId, RowId, WaitEvent),
        mode: LockMode,
        policy: WaitPolicy,
        hooks: &dyn WaitHooks,
    ) -> Result<LockOutcome, LockError> {
        let key = WaitKey::Row(tree, row);
        let wait = Wait { owner, parker, key, row: Some(row), mode, event, hooks };
        let outcome = self.wait_for(&wait, policy, &mut None, || {
            let mut shard = self.shard(tree, row.0 >> 16);
            let attempt = shard.try_lock(owner, tree, row, mode);
            (shard, attempt)
        })?;
        if outcome == LockOutcome::Granted {
            count(Counter::RowLocks, 1);
        }
        Ok(outcome)
    }

    /// Locks every row of `tree` below `up_to` exclusively, those that do not exist too. What is already covered stays
    /// so while the rest is waited for; if the wait fails, nothing of this call stays.
    pub(crate) fn lock_range(
        &self,
        owner: &Arc<LockOwner>,
        parker: &Arc<Parker>,
        tree: TreeId,
        up_to: RowId,
        policy: WaitPolicy,
        hooks: &dyn WaitHooks,
    ) -> Result<LockOutcome, LockError> {
        let key = WaitKey::Range(tree);
        let (mode, event) = (LockMode::Exclusive, WaitEvent::RangeLock);
        let wait = Wait { owner, parker, key, row: None, mode, event, hooks };
        let find = |s: &Shard| s.ranges.iter().position(|r| r.tree == tree && r.owner.txn == owner.txn);
        // Between calls an owner's range is the same in all shards.
        let before = {
            let shard = self.shards[0].lock();
            find(&shard).map(|i| shard.ranges[i].up_to)
        };
        if before.is_none() {
            owner.held.lock().ranges.push(tree);
        }
        let mut limit = None;
        let mut outcome = LockOutcome::AlreadyHeld;
        for i in 0..SHARDS {
            let one = self.wait_for(&wait, policy, &mut limit, || {
                let mut shard = self.shards[i].lock();
                let attempt = shard.try_range(owner, tree, up_to);
                (shard, attempt)
            });
            match one {
                Ok(LockOutcome::AlreadyHeld) => {}
                Ok(LockOutcome::Granted) => outcome = LockOutcome::Granted,
                Err(error) => {
                    for shard in &self.shards[..i] {
                        let mut shard = shard.lock();
                        match (find(&shard), before) {
                            (Some(r), Some(before)) => shard.ranges[r].up_to = before,
                            (Some(r), None) => drop(shard.ranges.swap_remove(r)),
                            (None, _) => {}
                        }
                    }
                    if before.is_none() {
                        owner.held.lock().ranges.retain(|t| *t != tree);
                    }
                    self.waits.released(owner, Released::Tree(tree));
                    return Err(error);
                }
            }
        }
        Ok(outcome)
    }

    /// Waits until `of`, if it inserts into `tree`, has ended.
    pub(crate) fn wait_for_end(
        &self,
        owner: &Arc<LockOwner>,
        parker: &Arc<Parker>,
        of: &Arc<LockOwner>,
        tree: TreeId,
        policy: WaitPolicy,
        hooks: &dyn WaitHooks,
    ) -> Result<(), LockError> {
        let wait = Behind { of, key: WaitKey::End(of.txn, tree), row: None };
        self.wait_behind(owner, parker, wait, policy, hooks, |held| held.inserts.iter().any(|i| i.0 == tree))
    }

    /// Waits until `of` has ended, or has rolled back what it did in `tree` (to an entry of `row`, for who asks), as `stands` tells: looked at under a lock that
    /// [`rolled_back`](Self::rolled_back) and the end take afterwards.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn wait_for_change(
        &self,
        owner: &Arc<LockOwner>,
        parker: &Arc<Parker>,
        of: &Arc<LockOwner>,
        (tree, row): (TreeId, RowId),
        policy: WaitPolicy,
        hooks: &dyn WaitHooks,
        stands: impl Fn() -> bool,
    ) -> Result<(), LockError> {
        let wait = Behind { of, key: WaitKey::Change(of.txn, tree), row: Some(row) };
        self.wait_behind(owner, parker, wait, policy, hooks, |_| stands())
    }

    /// The transaction has rolled back to a point of it: who waits for what it undid looks again.
    pub(crate) fn rolled_back(&self, owner: &LockOwner) {
        drop(owner.held.lock());
        self.waits.released(owner, Released::Changes);
    }

    fn wait_behind(
        &self,
        owner: &Arc<LockOwner>,
        parker: &Arc<Parker>,
        Behind { of, key, row }: Behind<'_>,
        policy: WaitPolicy,
        hooks: &dyn WaitHooks,
        stands: impl Fn(&Held) -> bool,
    ) -> Result<(), LockError> {
        // Shared: all who wait for one end wake together.
        let event = if matches!(key, WaitKey::End(..)) { WaitEvent::EndLock } else { WaitEvent::KeyLock };
        let wait = Wait { owner, parker, key, row, mode: LockMode::Shared, event, hooks };
        self.wait_for(&wait, policy, &mut None, || {
            let held = of.held.lock();
            let attempt = match stands(&held) {
                true => Attempt::Blocked(vec![Blocker { owner: of.clone(), exclusive: true }]),
                false => Attempt::Done(LockOutcome::AlreadyHeld),
            };
            (held, attempt)
        })
        .map(|_| ())
    }

    /// Repeats `attempt` until it succeeds, the limit passes, the session is killed, or is the victim of a circle. The limit
    /// is set by the first wait: a lock that is free looks at no clock.
    fn wait_for<Guard>(
        &self,
        wait: &Wait<'_>,
        policy: WaitPolicy,
        limit: &mut Option<Duration>,
        mut attempt: impl FnMut() -> (Guard, Attempt),
    ) -> Result<LockOutcome, LockError> {
        let mut since = None;
        let mut result = loop {
            // The guard keeps the blockers what they are until the wait has been entered.
            let (guard, attempt) = attempt();
            let blockers = match attempt {
                Attempt::Done(outcome) => break Ok(outcome),
                Attempt::Blocked(blockers) => blockers,
            };
            let now = self.host.now();
            let Some(until) = limit.or_else(|| policy.limit_from(now, wait.hooks)) else {
                break Err(LockError::WouldBlock);
            };
            *limit = Some(until);
            if wait.parker.is_killed() {
                break Err(LockError::Interrupted);
            }
            if now >= until {
                break Err(LockError::Timeout);
            }
            if since.is_some() {
                // Entering may end it.
                esker_base::trace::held_by(|| self.waits.holders_met(wait.owner.txn));
            }
            let entered = self.waits.enter(wait, since.unwrap_or(now), &blockers);
            drop(guard);
            if !entered {
                break Err(LockError::Deadlock);
            }
            if since.is_none() {
                since = Some(now);
                esker_base::wait::begin_traced();
                self.trace(wait, now, &blockers);
                wait.hooks.before_wait();
            }
            for b in &blockers {
                wait.hooks.waits_for(b.owner.txn);
            }
            let _told = esker_base::wait::tell(wait.event);
            wait.parker.park(&*self.host, until);
        };
        if let Some(since) = since {
            esker_base::trace::held_by(|| self.waits.holders_met(wait.owner.txn));
            let refused = self.waits.finish(wait.owner, wait.key, result.is_ok());
            // Whatever else ended the wait at that moment: others count on its being rolled back.
            if refused && result.is_err() {
                result = Err(LockError::Deadlock);
            }
            let waited = self.host.now() - since;
            count(Counter::LockWaits, 1);
            count(Counter::LockWaitUs, waited.as_micros() as u64);
            esker_base::wait::record_traced(wait.event, waited.as_nanos() as u64);
            wait.hooks.after_wait();
        }
        match result {
            Err(LockError::Timeout) => count(Counter::LockTimeouts, 1),
            Err(LockError::Deadlock) => count(Counter::Deadlocks, 1),
            _ => {}
        }
        result
    }

    /// Lets go of one row, in whatever mode it is held alone (a range stays), and wakes who waits for it.
    pub(crate) fn unlock_row(&self, owner: &LockOwner, tree: TreeId, row: RowId) {
        let (high, low) = split(row);
        let (removed, gone) = {
            let shard = &mut *self.shard(tree, high);
            // An emptied container stays until the transaction ends: its next row is likely a neighbour.
            let holders = shard.containers.get_mut(&(tree, high));
            let mine = holders.and_then(|holders| holders.iter_mut().find(|h| h.owner.txn == owner.txn));
            mine.map_or((false, false), |h| {
                let before = h.heap_bytes();
                let removed = h.exclusive.remove(low) || h.shared.remove(low);
                let after = h.heap_bytes();
                recharge(&mut shard.charge, before, after);
                (removed, !h.shared.contains(low))
            })
        };
        if removed {
            owner.rows.fetch_sub(u64::from(gone), Ordering::Relaxed);
            self.waits.released(owner, Released::Row(tree, row));
        }
    }

    #[cfg(test)]
    /// Has `owner` a lock on the row that is at least as strong as `mode`?
    pub(crate) fn holds(&self, owner: &LockOwner, tree: TreeId, row: RowId, mode: LockMode) -> bool {
        let (high, low) = split(row);
        let shard = self.shard(tree, high);
        shard.ranges.iter().any(|r| r.tree == tree && r.owner.txn == owner.txn && row < r.up_to)
            || shard.containers.get(&(tree, high)).is_some_and(|holders| {
                holders.iter().any(|h| {
                    h.owner.txn == owner.txn
                        && (h.exclusive.contains(low) || mode == LockMode::Shared && h.shared.contains(low))
                })
            })
    }

    /// Ends all locks of a transaction and wakes who waits for them. Touches each of its containers once.
    pub(crate) fn release_all(&self, owner: &LockOwner) {
        let held = std::mem::take(&mut *owner.held.lock());
        for (tree, high) in held.containers {
            let mut shard = self.shard(tree, high);
            if let Entry::Occupied(mut entry) = shard.containers.entry((tree, high)) {
                let holders = entry.get_mut();
                let gone = holders.iter().position(|h| h.owner.txn == owner.txn).map(|i| holders.swap_remove(i));
                let gone = if holders.is_empty() { (gone, Some(entry.remove())) } else { (gone, None) };
                recharge(&mut shard.charge, gone.0.as_ref().map_or(0, Holder::heap_bytes), 0);
                drop(shard);
                // Memory goes back outside the shard.
                drop(gone);
            }
        }
        if !held.ranges.is_empty() {
            for shard in &self.shards {
                shard.lock().ranges.retain(|r| r.owner.txn != owner.txn);
            }
        }
        owner.rows.store(0, Ordering::Relaxed);
        self.waits.released(owner, Released::All);
    }

    /// Who waits for whom in the circle that `victim` was refused for, each for the next; none, if somebody has met another
    /// since.
    pub(crate) fn closed_by(&self, victim: TxnId) -> Vec<Waiter> {
        self.waits.closed_by(victim)
    }

    /// Who waits now, and for whom. Stops all who begin or end a wait meanwhile: for people.
    pub(crate) fn waits(&self) -> Vec<Waiter> {
        self.waits.list()
    }

    #[cfg(test)]
    /// What is locked now. Looks at every container: for people, not for the hot path.
    pub(crate) fn stats(&self) -> LockStats {
        let mut stats = LockStats { waiting: self.waits.waiting() as u64, ..LockStats::default() };
        for (i, shard) in self.shards.iter().enumerate() {
            let shard = shard.lock();
            if i == 0 {
                stats.ranges = shard.ranges.len() as u64;
            }
            for holder in shard.containers.values().flatten() {
                stats.containers += 1;
                stats.rows += holder.shared.len() + holder.exclusive.len();
                stats.size_bytes += std::mem::size_of::<Holder>() as u64;
                stats.size_bytes += holder.heap_bytes();
            }
        }
        stats
    }
}

impl WaitPolicy {
    /// The moment to give up, of somebody who has to wait from now on; none: do not wait.
    fn limit_from(self, now: Duration, hooks: &dyn WaitHooks) -> Option<Duration> {
        if self.nowait {
            return None;
        }
        let timeout = hooks.longest_wait().unwrap_or(self.timeout);
        if timeout.is_zero() {
            return None;
        }
        // "For ever" is ten years.
        Some(now + timeout.min(Duration::from_secs(10 * 365 * 86400)))
    }
}
