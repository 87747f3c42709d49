//! Waiting: where a session sleeps, what a transaction tells of its locks, and the one mutex over who waits for whom.
//!
//! The graph of waits (`lock/graph.rs`) is guarded by one mutex, which is taken only when somebody waits. Lock order: a
//! shard of the lock table, then this.
//!
//! No wake-up is lost: a waiter enters a line behind the holder while it holds the shard's mutex and sees the holder's
//! lock; the holder takes its lock out under the same mutex and looks at the lines behind it afterwards.
//!
//! No crowd is woken for one row: of those who wait for the same row behind an ending transaction, the first that wants
//! it exclusively (or all that share it) wake, and the others stand behind those who woke. Whoever gives up wakes the
//! first of those who stood behind it for this row.

use super::graph::Graph;
use super::WaitHooks;
use crate::host::{self, Host};
use crate::txn::activity::Activity;
use esker_base::lock::{order, Condvar, Mutex};
use esker_base::trace::Holders;
use esker_base::WaitEvent;
use esker_format::{RowId, TreeId, TxnId};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

/// Of a session that has said nothing; see [`Parker::read_blocks`].
const DEFAULT_READ_BLOCKS: u32 = 1;

/// How a row is locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockMode {
    /// Together with others that share.
    Shared,
    /// Alone.
    Exclusive,
}

/// Where a session sleeps, and where others wake or kill it, and how its readers read. One per session.
pub(crate) struct Parker {
    woken: Mutex<bool>,
    wake: Condvar,
    killed: AtomicBool,
    read_blocks: AtomicU32,
    #[cfg(test)]
    looks: AtomicU64,
    #[cfg(test)]
    dies_at: AtomicU64,
}

impl Parker {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Parker {
            woken: Mutex::new(&order::LOCK_PARKER, false),
            wake: Condvar::new(),
            killed: AtomicBool::new(false),
            read_blocks: AtomicU32::new(DEFAULT_READ_BLOCKS),
            #[cfg(test)]
            looks: AtomicU64::new(0),
            #[cfg(test)]
            dies_at: AtomicU64::new(u64::MAX),
        })
    }

    /// Wakes a waiting session with `Interrupted`; also the next wait, until [`Parker::clear_kill`].
    pub(crate) fn kill(&self) {
        self.killed.store(true, Ordering::SeqCst);
        self.unpark();
    }

    /// The session goes on with its next statement.
    pub(crate) fn clear_kill(&self) {
        self.killed.store(false, Ordering::SeqCst);
    }

    pub(crate) fn is_killed(&self) -> bool {
        #[cfg(test)]
        if self.looks.fetch_add(1, Ordering::SeqCst) == self.dies_at.load(Ordering::SeqCst) {
            self.kill();
        }
        self.killed.load(Ordering::SeqCst)
    }

    /// Who reads a run from block to block has so many read by one call, at most.
    pub(crate) fn read_blocks(&self) -> u32 {
        self.read_blocks.load(Ordering::Relaxed)
    }

    /// From the next run that is read on.
    pub(crate) fn set_read_blocks(&self, most: u32) {
        self.read_blocks.store(most, Ordering::Relaxed);
    }

    #[cfg(test)]
    /// From now on the session may look so many times whether it was killed; then it is.
    pub(crate) fn kill_after(&self, looks: u64) {
        self.looks.store(0, Ordering::SeqCst);
        self.dies_at.store(looks, Ordering::SeqCst);
    }

    #[cfg(test)]
    /// How often it has looked and lived.
    pub(crate) fn looks(&self) -> u64 {
        self.looks.load(Ordering::SeqCst) - 1
    }

    pub(super) fn unpark(&self) {
        *self.woken.lock() = true;
        self.wake.notify_one();
    }

    /// Sleeps until woken or `deadline`; may wake for nothing.
    pub(super) fn park(&self, host: &dyn Host, deadline: Duration) {
        let mut woken = self.woken.lock();
        while !*woken {
            let left = deadline.saturating_sub(host.now());
            if left.is_zero() {
                break;
            }
            host::wait_for(host, &self.wake, &mut woken, left);
        }
        *woken = false;
    }
}

/// One per transaction: its identity and what it holds.
pub(crate) struct LockOwner {
    /// The transaction.
    pub(crate) txn: TxnId,
    /// Set while a line stands behind the transaction: unlocking costs nothing when nobody waits.
    has_waiters: AtomicBool,
    pub(super) rows: AtomicU64,
    pub(super) held: Mutex<Held>,
    pub(crate) activity: Activity,
}

/// Where an owner's locks are.
#[derive(Default)]
pub(super) struct Held {
    pub(super) containers: Vec<(TreeId, u64)>,
    pub(super) ranges: Vec<TreeId>,
    /// Trees with rows of its own making, from which row id on. Those rows have no locks: who insists on them waits for
    /// the transaction's end.
    pub(super) inserts: Vec<(TreeId, RowId)>,
}

impl LockOwner {
    pub(crate) fn new(txn: TxnId) -> Arc<Self> {
        Arc::new(LockOwner {
            txn,
            has_waiters: AtomicBool::new(false),
            rows: AtomicU64::new(0),
            held: Mutex::new(&order::LOCK_OWNER, Held::default()),
            activity: Activity::new(),
        })
    }

    /// One that holds nothing, and that nobody else has, becomes another transaction's.
    pub(crate) fn begins_anew(&mut self, txn: TxnId) {
        debug_assert!(!self.holds_any());
        self.txn = txn;
        *self.has_waiters.get_mut() = false;
    }

    /// Has it locked any row or range?
    pub(crate) fn holds_any(&self) -> bool {
        self.locked_rows() != 0 || !self.held.lock().ranges.is_empty()
    }

    /// How much would be lost with it: rows that it has locked one by one, and what it has changed by its last lock.
    pub(super) fn work(&self) -> u64 {
        self.locked_rows() + self.activity.changes()
    }

    /// Rows locked one by one, not counting ranges.
    pub(crate) fn locked_rows(&self) -> u64 {
        self.rows.load(Ordering::Relaxed)
    }

    /// The transaction inserts into `tree`, rows from `first` on.
    pub(crate) fn inserts_into(&self, tree: TreeId, first: RowId) {
        let inserts = &mut self.held.lock().inserts;
        match inserts.iter_mut().find(|i| i.0 == tree) {
            Some(known) => known.1 = known.1.min(first),
            None => inserts.push((tree, first)),
        }
    }

    /// Its first row in `tree`, unless it has ended.
    pub(crate) fn first_insert(&self, tree: TreeId) -> Option<RowId> {
        self.held.lock().inserts.iter().find(|i| i.0 == tree).map(|i| i.1)
    }

    pub(super) fn has_waiters(&self) -> bool {
        self.has_waiters.load(Ordering::Acquire)
    }

    /// Changed under the graph's mutex only.
    pub(super) fn set_has_waiters(&self, on: bool) {
        self.has_waiters.store(on, Ordering::Release);
    }
}

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum WaitKey {
    Row(TreeId, RowId),
    Range(TreeId),
    /// The end of a transaction that inserts into the tree.
    End(TxnId, TreeId),
    /// The same, or that it rolls back what it did in the tree.
    Change(TxnId, TreeId),
}

impl WaitKey {
    pub(crate) fn tree(self) -> TreeId {
        match self {
            WaitKey::Row(tree, _) | WaitKey::Range(tree) | WaitKey::End(_, tree) | WaitKey::Change(_, tree) => tree,
        }
    }
}

/// A wait as others see it.
#[derive(Debug, Clone)]
pub(crate) struct Waiter {
    pub(crate) txn: TxnId,
    pub(crate) key: WaitKey,
    /// The row that it is about, if it is one.
    pub(crate) row: Option<RowId>,
    pub(crate) mode: LockMode,
    pub(crate) since: Duration,
    pub(crate) blockers: Vec<TxnId>,
}

/// Which waiters a release concerns.
#[derive(Clone, Copy)]
pub(super) enum Released {
    All,
    Tree(TreeId),
    Row(TreeId, RowId),
    /// Changes that were rolled back.
    Changes,
}

impl Released {
    pub(super) fn concerns(self, key: WaitKey) -> bool {
        match (self, key) {
            (Released::All, _) => true,
            (Released::Tree(t), WaitKey::Row(k, _) | WaitKey::Range(k)) => t == k,
            (Released::Row(t, _), WaitKey::Range(k)) => t == k,
            (Released::Row(t, r), WaitKey::Row(kt, kr)) => t == kt && r == kr,
            (Released::Changes, WaitKey::Change(..)) => true,
            (_, WaitKey::End(..) | WaitKey::Change(..)) | (Released::Changes, _) => false,
        }
    }
}

/// Somebody who holds what is wanted.
pub(super) struct Blocker {
    pub(super) owner: Arc<LockOwner>,
    pub(super) exclusive: bool,
}

/// A wait as its session describes it.
pub(super) struct Wait<'a> {
    pub(super) owner: &'a Arc<LockOwner>,
    pub(super) parker: &'a Arc<Parker>,
    pub(super) key: WaitKey,
    /// Which row it is about, for who asks.
    pub(super) row: Option<RowId>,
    pub(super) mode: LockMode,
    /// What it is counted as.
    pub(super) event: WaitEvent,
    /// Its session's.
    pub(super) hooks: &'a dyn WaitHooks,
}

/// All waits of a lock table.
pub(super) struct Waits {
    pub(super) graph: Mutex<Graph>,
}

impl Waits {
    pub(super) fn new() -> Self {
        Waits { graph: Mutex::new(&order::LOCK_WAITS, Graph::default()) }
    }

    /// Enters (again) a wait for `blockers`, which began `since`. The caller holds the shard's mutex, so that they still
    /// are. False: it is the victim of a circle; the wait is given up.
    pub(super) fn enter(&self, wait: &Wait<'_>, since: Duration, blockers: &[Blocker]) -> bool {
        self.graph.lock().enter(wait, since, blockers)
    }

    /// The circle that `victim` was refused for, if that was the last one.
    pub(super) fn closed_by(&self, victim: TxnId) -> Vec<Waiter> {
        let graph = self.graph.lock();
        graph.closed.iter().take_while(|_| graph.closed[0].txn == victim).cloned().collect()
    }

    /// Behind whom a traced wait has stood so far.
    pub(super) fn holders_met(&self, waiter: TxnId) -> Option<Holders> {
        self.graph.lock().holders_met(waiter)
    }

    /// Ends a wait: the lock was granted, or the session gives up. True: it was to be refused.
    pub(super) fn finish(&self, owner: &LockOwner, key: WaitKey, granted: bool) -> bool {
        let mut graph = self.graph.lock();
        match granted {
            true => graph.granted(owner.txn),
            false => graph.give_up(owner.txn, key),
        }
    }

    /// `owner` let go of something: called after the locks are out of their shards.
    pub(super) fn released(&self, owner: &LockOwner, released: Released) {
        if owner.has_waiters() {
            self.graph.lock().released(owner.txn, released);
        }
    }

    /// Who waits now, and for whom.
    pub(super) fn list(&self) -> Vec<Waiter> {
        self.graph.lock().list()
    }

    #[cfg(test)]
    /// Sessions that wait now.
    pub(super) fn waiting(&self) -> usize {
        self.graph.lock().waiting()
    }
}
