//! Who waits for whom: parkers, the queues behind each holder, and the search for circles.
//!
//! One mutex guards all of it and is taken only when somebody waits. Lock order: a shard of the lock table, then this.
//!
//! No wake-up is lost: a waiter enters the holder's queue while it holds the shard's mutex and sees the holder's lock;
//! the holder takes its lock out under the same mutex and looks at its queue afterwards.
//!
//! No crowd is woken for one row: of those who queue for the same row behind an ending transaction, the first that wants
//! it exclusively (or all that share it) wake, and the others move on to the queue of those who woke. Whoever gives up
//! wakes those who queued behind it for this row.

use crate::activity::Activity;
use esker_format::{RowId, TreeId, TxnId};
use esker_trace::lock::{Condvar, Mutex};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Instant;

/// How a row is locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockMode {
    /// Together with others that share.
    Shared,
    /// Alone.
    Exclusive,
}

/// Where a session sleeps, and where others wake or kill it. One per session.
pub(crate) struct Parker {
    woken: Mutex<bool>,
    wake: Condvar,
    killed: AtomicBool,
    #[cfg(test)]
    looks: AtomicU64,
    #[cfg(test)]
    dies_at: AtomicU64,
}

impl Parker {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Parker {
            woken: Mutex::new("lock.parker", false),
            wake: Condvar::new(),
            killed: AtomicBool::new(false),
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
    pub(super) fn park(&self, deadline: Instant) {
        let mut woken = self.woken.lock();
        while !*woken {
            if self.wake.wait_until(&mut woken, deadline) {
                break;
            }
        }
        *woken = false;
    }
}

/// One per transaction: its identity and what it holds.
pub(crate) struct LockOwner {
    /// The transaction.
    pub(crate) txn: TxnId,
    /// Set while the transaction's queue is not empty: unlocking costs nothing when nobody waits.
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
            held: Mutex::new("lock.owner", Held::default()),
            activity: Activity::new(),
        })
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
}

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum WaitKey {
    Row(TreeId, RowId),
    Range(TreeId),
    /// The end of a transaction that inserts into the tree.
    End(TxnId, TreeId),
}

impl WaitKey {
    pub(crate) fn tree(self) -> TreeId {
        match self {
            WaitKey::Row(tree, _) | WaitKey::Range(tree) | WaitKey::End(_, tree) => tree,
        }
    }
}

/// A wait as others see it.
pub(crate) struct Waiter {
    pub(crate) txn: TxnId,
    pub(crate) key: WaitKey,
    pub(crate) since: Instant,
    pub(crate) blockers: Vec<TxnId>,
}

/// Which waiters a release concerns.
#[derive(Clone, Copy)]
pub(super) enum Released {
    All,
    Tree(TreeId),
    Row(TreeId, RowId),
}

impl Released {
    fn concerns(self, key: WaitKey) -> bool {
        match (self, key) {
            (Released::All, _) => true,
            (Released::Tree(t), WaitKey::Row(k, _) | WaitKey::Range(k)) => t == k,
            (Released::Row(t, _), WaitKey::Range(k)) => t == k,
            (Released::Row(t, r), WaitKey::Row(kt, kr)) => t == kt && r == kr,
            (_, WaitKey::End(..)) => false,
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
    pub(super) mode: LockMode,
    /// The session must report each transaction it waits for, so it is woken instead of moved.
    pub(super) reports: bool,
}

struct Waiting {
    owner: Arc<LockOwner>,
    parker: Arc<Parker>,
    key: WaitKey,
    mode: LockMode,
    reports: bool,
    since: Instant,
    blockers: Vec<TxnId>,
}

#[derive(Default)]
struct Graph {
    waiting: HashMap<TxnId, Waiting>,
    /// Behind each holder: who waits for it, in order of arrival. Never empty.
    queues: HashMap<TxnId, Vec<TxnId>>,
}

impl Graph {
    /// `waiter` now waits for `holder`.
    fn enqueue(&mut self, waiter: TxnId, holder: &LockOwner) {
        let queue = self.queues.entry(holder.txn).or_default();
        if !queue.contains(&waiter) {
            queue.push(waiter);
            holder.has_waiters.store(true, Ordering::Release);
        }
        if let Some(w) = self.waiting.get_mut(&waiter) {
            if !w.blockers.contains(&holder.txn) {
                w.blockers.push(holder.txn);
            }
        }
    }

    /// Takes those whom a release concerns out of `holder`'s queue.
    fn dequeue(&mut self, holder: &LockOwner, released: Released) -> Vec<TxnId> {
        let Some(queue) = self.queues.remove(&holder.txn) else {
            return Vec::new();
        };
        let waiting = &mut self.waiting;
        let (out, rest): (Vec<_>, Vec<_>) =
            queue.into_iter().partition(|w| waiting.get(w).is_none_or(|w| released.concerns(w.key)));
        for w in &out {
            if let Some(w) = waiting.get_mut(w) {
                w.blockers.retain(|b| *b != holder.txn);
            }
        }
        if rest.is_empty() {
            holder.has_waiters.store(false, Ordering::Release);
        } else {
            self.queues.insert(holder.txn, rest);
        }
        out
    }

    /// Those of `owner`'s queue who want just what `key` says.
    fn dequeue_same(&mut self, owner: &LockOwner, key: WaitKey) -> Vec<TxnId> {
        if !owner.has_waiters() {
            return Vec::new();
        }
        let all = self.dequeue(
            owner,
            match key {
                WaitKey::Row(t, r) => Released::Row(t, r),
                WaitKey::Range(t) => Released::Tree(t),
                WaitKey::End(..) => Released::All,
            },
        );
        let waiting = &self.waiting;
        let (same, others): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|w| waiting.get(w).is_some_and(|w| w.key == key));
        for w in others {
            self.enqueue(w, owner);
        }
        same
    }

    fn wake(&self, waiter: TxnId) {
        if let Some(w) = self.waiting.get(&waiter) {
            w.parker.unpark();
        }
    }

    /// Does `from` wait, over any number of steps, for itself?
    fn in_circle(&self, from: TxnId) -> bool {
        let mut seen = vec![];
        let mut todo: Vec<TxnId> = self.waiting.get(&from).map(|w| w.blockers.clone()).unwrap_or_default();
        while let Some(txn) = todo.pop() {
            if txn == from {
                return true;
            }
            if !seen.contains(&txn) {
                seen.push(txn);
                todo.extend(self.waiting.get(&txn).iter().flat_map(|w| &w.blockers));
            }
        }
        false
    }

    fn leave(&mut self, owner: &LockOwner) {
        let Some(w) = self.waiting.remove(&owner.txn) else {
            return;
        };
        for b in w.blockers {
            if let Some(queue) = self.queues.get_mut(&b) {
                queue.retain(|q| *q != owner.txn);
                if queue.is_empty() {
                    // The holder's flag stays set: one look for nothing when it ends.
                    self.queues.remove(&b);
                }
            }
        }
    }
}

/// All waits of a lock table.
pub(super) struct Waits {
    graph: Mutex<Graph>,
}

impl Waits {
    pub(super) fn new() -> Self {
        Waits { graph: Mutex::new("lock.waits", Graph::default()) }
    }

    /// Enters (again) a wait for `blockers`, which began `since`. The caller holds the shard's mutex, so that they still are. False: waiting
    /// would close a circle; the wait is given up.
    pub(super) fn enter(&self, wait: &Wait<'_>, since: Instant, blockers: &[Blocker]) -> bool {
        let me = wait.owner.txn;
        let mut graph = self.graph.lock();
        let again = graph.waiting.contains_key(&me);
        let Wait { owner, parker, key, mode, reports } = *wait;
        if let Some(old) = graph.waiting.get(&me) {
            let gone: Vec<TxnId> =
                old.blockers.iter().copied().filter(|b| blockers.iter().all(|n| n.owner.txn != *b)).collect();
            for b in gone {
                if let Some(queue) = graph.queues.get_mut(&b) {
                    queue.retain(|q| *q != me);
                    if queue.is_empty() {
                        graph.queues.remove(&b);
                    }
                }
            }
        }
        graph.waiting.insert(
            me,
            Waiting { owner: owner.clone(), parker: parker.clone(), key, mode, reports, since, blockers: Vec::new() },
        );
        for b in blockers {
            graph.enqueue(me, &b.owner);
        }
        if graph.in_circle(me) {
            Self::give_up(&mut graph, owner, key);
            return false;
        }
        if again {
            Self::overtaken(&mut graph, owner, key, blockers);
        }
        true
    }

    /// Somebody took what `owner` was woken for: those who moved behind `owner` move on, or look for themselves.
    fn overtaken(graph: &mut Graph, owner: &LockOwner, key: WaitKey, blockers: &[Blocker]) {
        let alone = match blockers {
            [b] if b.exclusive => Some(&b.owner),
            _ => None,
        };
        for w in graph.dequeue_same(owner, key) {
            match alone {
                Some(holder) if w != holder.txn && graph.waiting.get(&w).is_some_and(|w| !w.reports) => {
                    graph.enqueue(w, holder);
                    if graph.in_circle(w) {
                        // It finds the circle itself when it enters again.
                        graph.wake(w);
                    }
                }
                _ => graph.wake(w),
            }
        }
    }

    fn give_up(graph: &mut Graph, owner: &LockOwner, key: WaitKey) {
        graph.leave(owner);
        for w in graph.dequeue_same(owner, key) {
            graph.wake(w);
        }
    }

    /// Ends a wait: the lock was granted, or the session gives up.
    pub(super) fn finish(&self, owner: &LockOwner, key: WaitKey, granted: bool) {
        let mut graph = self.graph.lock();
        if granted {
            graph.leave(owner);
        } else {
            Self::give_up(&mut graph, owner, key);
        }
    }

    /// `owner` let go of something: called after the locks are out of their shards.
    pub(super) fn released(&self, owner: &LockOwner, released: Released) {
        if !owner.has_waiters() {
            return;
        }
        let mut graph = self.graph.lock();
        let mut heads: HashMap<WaitKey, (LockMode, Vec<Arc<LockOwner>>)> = HashMap::new();
        for w in graph.dequeue(owner, released) {
            let Some(waiting) = graph.waiting.get(&w) else {
                continue;
            };
            let Some((mode, woken)) = heads.get_mut(&waiting.key) else {
                waiting.parker.unpark();
                heads.insert(waiting.key, (waiting.mode, vec![waiting.owner.clone()]));
                continue;
            };
            if *mode == LockMode::Shared && waiting.mode == LockMode::Shared {
                waiting.parker.unpark();
                woken.push(waiting.owner.clone());
            } else if waiting.reports {
                waiting.parker.unpark();
            } else {
                for head in woken.iter() {
                    graph.enqueue(w, head);
                }
            }
        }
    }

    /// Who waits now, and for whom.
    pub(super) fn list(&self) -> Vec<Waiter> {
        let graph = self.graph.lock();
        let waiter = |(txn, w): (&TxnId, &Waiting)| Waiter {
            txn: *txn,
            key: w.key,
            since: w.since,
            blockers: w.blockers.clone(),
        };
        graph.waiting.iter().map(waiter).collect()
    }

    #[cfg(test)]
    /// Sessions that wait now.
    pub(super) fn waiting(&self) -> usize {
        self.graph.lock().waiting.len()
    }
}
