//! What goes on: every open transaction, and who waits for whose locks.
//!
//! Owns the registry of sessions and what each transaction tells of itself. A row operation pays next to nothing for it: a
//! session stores its figures in its own transaction's [`Activity`] when a statement begins or ends, what it has changed before
//! each lock, too, so that those who wait can be compared, and enters its transaction in its own [`Presence`] when that
//! begins; who asks goes over all of them. Invariant: a transaction that is open in a session stands in that session's
//! presence, one without a session (prepared) among the engine's prepared.

mod deadlock;
mod locks;
#[cfg(test)]
mod tests;
mod traced;

pub use locks::LockInfo;

use self::deadlock::Deadlock;
use self::locks::Trees;
use crate::core::Core;
use crate::host::Host;
use crate::lock::LockOwner;
use crate::session::Session;
use crate::txn::open::Isolation;
use crate::txn::views::ViewSlot;
use crate::{Engine, Result};
use esker_base::lock::{order, Mutex};
use esker_base::SessionCounters;
use esker_format::{CommitSeq, LocalTime, RowId, TxnId};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, AtomicU8, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Of those whom somebody waits for so many are listed.
const MOST_BLOCKERS: usize = 16;

/// An open transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TxnInfo {
    /// Its identity.
    pub txn: TxnId,
    /// Its session's connection, see [`Session::set_connection`]; zero: none.
    pub connection: u64,
    /// "active", "lock wait" or "prepared".
    pub state: &'static str,
    /// When it began, in microseconds since 1970; a recovered one when it was recovered.
    pub started_unix_us: u64,
    /// How long ago that is.
    pub age_us: u64,
    /// "READ COMMITTED" or "REPEATABLE READ".
    pub isolation: &'static str,
    /// Rows, and entries of indexes, inserted, updated and deleted by its ended statements, and by the current one up to its last
    /// lock; those counted that were undone.
    pub rows_changed: u64,
    /// Rows locked one by one.
    pub rows_locked: u64,
    /// Bytes of redo that its ended statements have gathered.
    pub redo_bytes: u64,
    /// The oldest view that its session keeps, if it keeps one: what purge waits for.
    pub view_seq: Option<CommitSeq>,
    /// What it was prepared as.
    pub xid: Option<Vec<u8>>,
}

/// A session that waits for another transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockWaitInfo {
    /// Who waits.
    pub waiting_txn: TxnId,
    /// Its connection.
    pub waiting_connection: u64,
    /// Who has what is wanted, or stands before it in the queue.
    pub blocking_txn: TxnId,
    /// Its connection; zero: none, as for a prepared transaction after a restart.
    pub blocking_connection: u64,
    /// How long it has waited.
    pub waited_us: u64,
    /// The table.
    pub table: String,
    /// "row", "key" (of an index), "range" (all rows of the table), "auto_increment" (its counter) or "transaction end".
    pub kind: &'static str,
    /// The row, if it is one, or the one that has the key.
    pub row: Option<RowId>,
    /// What is waited for, for people.
    pub key_text: Option<String>,
    /// For how long the blocking session has run no statement; zero: it runs one.
    pub blocker_idle_us: u64,
    /// The connection at the end of the chain, which waits for nobody.
    pub root_blocker: u64,
}

/// Microseconds by the host's clock, never zero.
fn now_us(host: &dyn Host) -> u64 {
    host.now().as_micros() as u64 + 1
}

/// What a transaction tells of itself. Written by its session alone.
pub(crate) struct Activity {
    /// Its session's; zero: it has none.
    connection: AtomicU64,
    began_us: AtomicU64,
    /// When its last statement ended; zero while one runs.
    idle_since_us: AtomicU64,
    isolation: AtomicU8,
    rows_changed: AtomicU64,
    redo_bytes: AtomicU64,
}

impl Activity {
    pub(crate) fn new() -> Self {
        Activity {
            connection: AtomicU64::new(0),
            began_us: AtomicU64::new(0),
            idle_since_us: AtomicU64::new(0),
            isolation: AtomicU8::new(Isolation::ReadCommitted as u8),
            rows_changed: AtomicU64::new(0),
            redo_bytes: AtomicU64::new(0),
        }
    }

    /// The transaction begins, or was found.
    pub(crate) fn begins(&self, host: &dyn Host) {
        self.began_us.store(now_us(host), Ordering::Relaxed);
        self.idle_since_us.store(0, Ordering::Relaxed);
    }

    /// As [`TxnInfo::connection`].
    pub(crate) fn connection(&self) -> u64 {
        self.connection.load(Ordering::Relaxed)
    }

    /// The transaction has changed so much by now.
    pub(crate) fn set_changes(&self, changes: u64) {
        self.rows_changed.store(changes, Ordering::Relaxed);
    }

    /// What it has told last.
    pub(crate) fn changes(&self) -> u64 {
        self.rows_changed.load(Ordering::Relaxed)
    }

    fn idle_us(&self, host: &dyn Host) -> u64 {
        match self.idle_since_us.load(Ordering::Relaxed) {
            0 => 0,
            since => now_us(host).saturating_sub(since),
        }
    }
}

/// A session as others see it.
pub(crate) struct Presence {
    connection: AtomicU64,
    view: Arc<ViewSlot>,
    pub(crate) counters: Arc<SessionCounters>,
    open: Mutex<Option<Arc<LockOwner>>>,
    /// What it has in memory, as it told at the last end of a statement, or of its transaction.
    pub(crate) redo: OwnBytes,
    pub(crate) gathered: OwnBytes,
}

/// Bytes of a kind that a session has, and the most of them. Written by the session alone.
#[derive(Default)]
pub(crate) struct OwnBytes {
    now: AtomicU64,
    peak: AtomicU64,
}

impl OwnBytes {
    fn are(&self, bytes: u64) {
        self.now.store(bytes, Ordering::Relaxed);
        if bytes > self.peak.load(Ordering::Relaxed) {
            self.peak.store(bytes, Ordering::Relaxed);
        }
    }

    pub(crate) fn get(&self) -> (u64, u64) {
        (self.now.load(Ordering::Relaxed), self.peak.load(Ordering::Relaxed))
    }
}

impl Presence {
    /// The session has begun a transaction.
    pub(crate) fn began(&self, owner: &Arc<LockOwner>, isolation: Isolation, host: &dyn Host) {
        owner.activity.begins(host);
        owner.activity.connection.store(self.connection(), Ordering::Relaxed);
        owner.activity.isolation.store(isolation as u8, Ordering::Relaxed);
        *self.open.lock() = Some(owner.clone());
    }

    /// The session has no transaction any more; one that is prepared goes on without it.
    pub(crate) fn ended(&self) {
        let owner = self.open.lock().take();
        owner.into_iter().for_each(|owner| owner.activity.connection.store(0, Ordering::Relaxed));
        self.redo.are(0);
        self.gathered.are(0);
    }

    /// Whose it is; zero: nobody has said.
    pub(crate) fn connection(&self) -> u64 {
        self.connection.load(Ordering::Relaxed)
    }
}

/// All sessions of an engine.
pub(crate) struct Sessions {
    all: Mutex<Vec<Weak<Presence>>>,
    /// How many have not ended.
    there: AtomicU64,
    pub(crate) last_deadlock: Mutex<Option<Deadlock>>,
    /// Since 1970, when the host's clock stood at zero: both read once together.
    clock_zero: Duration,
}

impl Sessions {
    pub(crate) fn new(host: &dyn Host) -> Self {
        let clock_zero = host.unix().saturating_sub(host.now());
        let last_deadlock = Mutex::new(&order::LAST_DEADLOCK, None);
        let all = Mutex::new(&order::SESSIONS, Vec::new());
        Sessions { all, there: AtomicU64::new(0), last_deadlock, clock_zero }
    }

    pub(crate) fn register(&self, view: &Arc<ViewSlot>, counters: &Arc<SessionCounters>) -> Arc<Presence> {
        let (connection, open) = (AtomicU64::new(0), Mutex::new(&order::SESSION_PRESENCE, None));
        let (redo, gathered) = (OwnBytes::default(), OwnBytes::default());
        let presence =
            Arc::new(Presence { connection, view: view.clone(), counters: counters.clone(), open, redo, gathered });
        let mut all = self.all.lock();
        if all.len() == all.capacity() {
            // Before it would grow: a look at each, for as many sessions as there are places.
            all.retain(|p| p.strong_count() > 0);
        }
        all.push(Arc::downgrade(&presence));
        self.there.fetch_add(1, Ordering::SeqCst);
        presence
    }

    /// Every session.
    pub(crate) fn all(&self) -> Vec<Arc<Presence>> {
        self.all.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// Is there none? Those who look at the others do not count as such.
    pub(crate) fn is_empty(&self) -> bool {
        self.there.load(Ordering::SeqCst) == 0
    }

    /// One has ended.
    pub(crate) fn leave(&self) {
        self.there.fetch_sub(1, Ordering::SeqCst);
    }

    /// Every session with an open transaction.
    fn open(&self) -> Vec<(Arc<Presence>, Arc<LockOwner>)> {
        let open = |p: Arc<Presence>| {
            let owner = p.open.lock().clone()?;
            Some((p, owner))
        };
        self.all().into_iter().filter_map(open).collect()
    }
}

impl Session {
    /// Says whose session this is: what [`Engine::transactions`] and [`Engine::lock_waits`] call it.
    pub fn set_connection(&self, connection: u64) {
        self.presence.connection.store(connection, Ordering::Relaxed);
        if let Some(state) = self.current.state() {
            state.locks.activity.connection.store(connection, Ordering::Relaxed);
        }
    }

    /// The transaction for a lock that it wants, having told what it has changed by now: it may have to wait.
    pub(crate) fn locker(&mut self) -> Result<Arc<LockOwner>> {
        let txn = self.txn_mut()?;
        txn.state.locks.activity.set_changes(txn.changes());
        Ok(txn.state.locks.clone())
    }

    /// Tells what the transaction has done by now: at the ends of a statement.
    pub(crate) fn tell_activity(&self, in_statement: bool) {
        let Some(txn) = self.current.open() else { return };
        let activity = &txn.state.locks.activity;
        activity.set_changes(txn.changes());
        activity.idle_since_us.store(if in_statement { 0 } else { now_us(&*self.core.host) }, Ordering::Relaxed);
        self.presence.gathered.are(if txn.large.is_some() { txn.gathered_bytes() } else { 0 });
    }

    /// Tells how much redo the transaction has by now: all its tables are looked at.
    pub(crate) fn tell_redo(&self) {
        let Some(txn) = self.current.open() else { return };
        let redo_bytes = txn.redo_bytes() as u64;
        txn.state.locks.activity.redo_bytes.store(redo_bytes, Ordering::Relaxed);
        self.presence.redo.are(redo_bytes);
    }
}

impl Engine {
    /// Every open transaction, the oldest first; those that only read, too. Takes no lock that a row operation takes,
    /// but those of waiting and of the prepared.
    pub fn transactions(&self) -> Vec<TxnInfo> {
        let core = &self.core;
        let waiting: HashSet<TxnId> = core.locks.waits().into_iter().map(|w| w.txn).collect();
        let mut prepared: HashMap<TxnId, (Vec<u8>, usize, Arc<LockOwner>)> = HashMap::new();
        for (xid, p) in core.prepared.lock().iter() {
            prepared.insert(p.state.id, (xid.clone(), p.redo.len(), p.state.locks.clone()));
        }
        let mut list = Vec::new();
        for (session, owner) in core.sessions.open() {
            let connection = session.connection.load(Ordering::Relaxed);
            let mut info = TxnInfo { connection, view_seq: session.view.oldest(), ..describe(core, &owner) };
            if waiting.contains(&owner.txn) {
                info.state = "lock wait";
            }
            if let Some((xid, redo_bytes, _)) = prepared.remove(&owner.txn) {
                info = TxnInfo { state: "prepared", redo_bytes: redo_bytes as u64, xid: Some(xid), ..info };
            }
            list.push(info);
        }
        list.extend(prepared.into_values().map(|(xid, redo_bytes, owner)| TxnInfo {
            state: "prepared",
            redo_bytes: redo_bytes as u64,
            xid: Some(xid),
            ..describe(core, &owner)
        }));
        list.sort_by_key(|t| (t.started_unix_us, t.txn));
        list
    }

    /// Every session that waits for another transaction, once for each such transaction, sixteen at most; the longest wait first. Timestamps
    /// in keys are told in UTC.
    pub fn lock_waits(&self) -> Vec<LockWaitInfo> {
        self.lock_waits_told(None)
    }

    /// The same for a reader whose local time this is.
    pub fn lock_waits_told(&self, local_time: Option<&LocalTime>) -> Vec<LockWaitInfo> {
        let core = &self.core;
        let waits = core.locks.waits();
        let sessions: HashMap<TxnId, (u64, u64)> = core
            .sessions
            .open()
            .into_iter()
            .map(|(p, owner)| (owner.txn, (p.connection.load(Ordering::Relaxed), owner.activity.idle_us(&*core.host))))
            .collect();
        let of = |txn: TxnId| sessions.get(&txn).copied().unwrap_or_default();
        let blockers: HashMap<TxnId, &[TxnId]> = waits.iter().map(|w| (w.txn, &w.blockers[..])).collect();
        let now = core.host.now();
        let trees = Trees::of(core, waits.iter().map(|w| w.key.tree()).collect(), local_time);
        let mut list = Vec::new();
        for wait in &waits {
            let what = trees.wanted(wait);
            for blocker in wait.blockers.iter().take(MOST_BLOCKERS) {
                let (blocking_connection, blocker_idle_us) = of(*blocker);
                list.push(LockWaitInfo {
                    waiting_txn: wait.txn,
                    waiting_connection: of(wait.txn).0,
                    blocking_txn: *blocker,
                    blocking_connection,
                    waited_us: now.saturating_sub(wait.since).as_micros() as u64,
                    table: what.table.clone(),
                    kind: what.kind,
                    row: what.row,
                    key_text: what.named_text(),
                    blocker_idle_us,
                    root_blocker: of(root(*blocker, &blockers)).0,
                });
            }
        }
        list.sort_by_key(|w| (std::cmp::Reverse(w.waited_us), w.waiting_txn, w.blocking_txn));
        list
    }
}

/// Who waits for nobody, going from `txn` to the first whom it waits for, and so on.
fn root(mut txn: TxnId, blockers: &HashMap<TxnId, &[TxnId]>) -> TxnId {
    // Waits form no circle; one that is being found may show for an instant.
    for _ in 0..blockers.len() {
        match blockers.get(&txn).and_then(|b| b.first()) {
            Some(next) => txn = *next,
            None => break,
        }
    }
    txn
}

/// What a transaction tells of itself.
fn describe(core: &Core, owner: &LockOwner) -> TxnInfo {
    let activity = &owner.activity;
    let began_us = activity.began_us.load(Ordering::Relaxed);
    TxnInfo {
        txn: owner.txn,
        connection: 0,
        state: "active",
        started_unix_us: core.sessions.clock_zero.as_micros() as u64 + began_us,
        age_us: now_us(&*core.host).saturating_sub(began_us),
        isolation: match activity.isolation.load(Ordering::Relaxed) {
            i if i == Isolation::RepeatableRead as u8 => "REPEATABLE READ",
            _ => "READ COMMITTED",
        },
        rows_changed: activity.changes(),
        rows_locked: owner.locked_rows(),
        redo_bytes: activity.redo_bytes.load(Ordering::Relaxed),
        view_seq: None,
        xid: None,
    }
}
