// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sessions: open and close, work that is guarded and counted for them, wait hooks, killers.

use crate::boundary::{exclusive, out, shared, take};
use crate::engine::EsEngine;
use crate::guard::Guard;
use crate::stage::Staging;
use crate::status::{report, EsError, EsStatus, Failure};
use crate::table::EsTable;
use crate::waits::Owners;
use esker::{Error, Killer, LockMode, Savepoint, ScanOptions, Session, WaitHooks};
use esker_base::counters::bind;
use esker_base::SessionCounters;
use esker_format::{ColumnMask, RowId, TxnId};
use std::cell::Cell;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Called around waits for row locks, in the session's thread. They must not call back into the engine, except for
/// `es_kill`. Each may be NULL.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct EsWaitHooks {
    /// Whose session it is: what the hooks are called with.
    pub(crate) context: *mut c_void,
    pub(crate) before: Option<unsafe extern "C" fn(context: *mut c_void)>,
    /// How long it may take at most, in microseconds; 0: not at all. Asked before; NULL: 50 seconds.
    pub(crate) longest: Option<unsafe extern "C" fn(context: *mut c_void) -> u64>,
    /// The wait took `waited_us`.
    pub(crate) after: Option<unsafe extern "C" fn(context: *mut c_void, waited_us: u64)>,
    /// The transaction that is waited for is that of the session opened with the context `other` (NULL: unknown); only after
    /// `es_report_waits`.
    pub(crate) waits_for: Option<unsafe extern "C" fn(context: *mut c_void, other: *mut c_void)>,
    /// Does the transaction of the session opened with the context `one` have to end before that of `other`? Asked when a wait
    /// has made a deadlock, of sessions that report their waits; in any thread, with locks held: it waits for nothing.
    pub(crate) goes_before: Option<unsafe extern "C" fn(one: *mut c_void, other: *mut c_void) -> bool>,
    /// Writes the statement that a connection runs, in UTF-8, at most `room` bytes of it; returns how many. Asked, for each of
    /// them, when a wait would have made a deadlock.
    pub(crate) statement: Option<unsafe extern "C" fn(connection: u64, text: *mut u8, room: usize) -> usize>,
}

/// Of a statement as much is told.
const STATEMENT_BYTES: usize = 1024;

/// What `es_report_waits` said.
#[derive(Default)]
struct Reports {
    waits: AtomicBool,
    changes: AtomicBool,
}

struct Hooks {
    c: EsWaitHooks,
    since: Cell<Option<Instant>>,
    reports: Arc<Reports>,
    owners: Arc<Owners>,
}
// SAFETY: used in the thread that uses the session, of which there is one at a time.
unsafe impl Send for Hooks {}

impl WaitHooks for Hooks {
    fn before_wait(&self) {
        self.since.set(Some(Instant::now()));
        if let Some(before) = self.c.before {
            // SAFETY: see es_session_open.
            unsafe { before(self.c.context) }
        }
    }

    fn after_wait(&self) {
        let waited = self.since.take().map_or(0, |since| since.elapsed().as_micros());
        if let Some(after) = self.c.after {
            // SAFETY: see es_session_open.
            unsafe { after(self.c.context, u64::try_from(waited).unwrap_or(u64::MAX)) }
        }
    }

    fn longest_wait(&self) -> Option<Duration> {
        // SAFETY: see es_session_open.
        self.c.longest.map(|longest| Duration::from_micros(unsafe { longest(self.c.context) }))
    }

    fn waits_for(&self, txn: TxnId) {
        if let Some(waits_for) = self.c.waits_for.filter(|_| self.reports.waits.load(Ordering::Relaxed)) {
            // SAFETY: see es_session_open.
            self.owners.with(txn, |other| unsafe { waits_for(self.c.context, other) });
        }
    }

    fn goes_before(&self, txn: TxnId, other: TxnId) -> bool {
        let Some(goes_before) = self.c.goes_before else { return false };
        // SAFETY: see es_session_open.
        self.owners.with_both(txn, other, |one, other| unsafe { goes_before(one, other) }).unwrap_or(false)
    }

    fn reports(&self) -> bool {
        self.reports.changes.load(Ordering::Relaxed)
    }

    fn statement(&self, connection: u64) -> Option<String> {
        let (statement, mut text) = (self.c.statement?, vec![0; STATEMENT_BYTES]);
        // SAFETY: so much room there is; for the rest see es_session_open.
        let bytes = unsafe { statement(connection, text.as_mut_ptr(), text.len()) };
        let text = String::from_utf8_lossy(&text[..bytes.min(STATEMENT_BYTES)]).into_owned();
        (!text.is_empty()).then_some(text)
    }
}

/// A connection's session. Belongs to one thread at a time.
pub struct EsSession {
    pub(crate) session: Session,
    counters: Arc<SessionCounters>,
    guard: Arc<Guard>,
    last: Failure,
    /// Numbered, in the order they were set; gone with their transaction.
    pub(crate) savepoints: Vec<(u64, Savepoint)>,
    pub(crate) next_savepoint: u64,
    /// What the hooks are called with.
    context: *mut c_void,
    reports: Arc<Reports>,
    owners: Arc<Owners>,
    /// The transaction under which this session stands among the owners.
    owned: Option<TxnId>,
    pub(crate) staging: Staging,
}

// SAFETY: the stage is the session's own, and whoever uses the session uses its stage; the context is only handed on.
unsafe impl Send for EsSession {}

impl EsSession {
    /// The session stands for its open transaction among the owners, if it reports.
    pub(crate) fn own(&mut self) {
        let txn = self.session.txn_id();
        if self.owned != txn && self.reports.waits.load(Ordering::Relaxed) {
            self.disown();
            if let Some(txn) = txn {
                self.owners.add(txn, self.context);
                self.owned = Some(txn);
            }
        }
    }

    /// From the next transaction on.
    pub(crate) fn set_reports(&mut self, waits: bool, changes: bool) {
        self.reports.waits.store(waits, Ordering::Relaxed);
        self.reports.changes.store(waits && changes, Ordering::Relaxed);
    }

    /// The transaction has ended, or goes its way without this session.
    pub(crate) fn disown(&mut self) {
        if let Some(txn) = self.owned.take() {
            self.owners.remove(txn);
        }
    }

    /// Work in a session: counted for it, guarded, its failure kept. First come the rows that were staged; if they are
    /// lost, that is the failure of a call that has none of its own.
    #[inline]
    pub(crate) fn run(&mut self, work: impl FnOnce(&mut Session) -> esker::Result<()>) -> EsStatus {
        self.run_staged(|session, _| Ok(work(session)?))
    }

    /// The same for work that checks its arguments.
    #[inline]
    pub(crate) fn run_checked(&mut self, work: impl FnOnce(&mut Session) -> Result<(), Failure>) -> EsStatus {
        self.run_staged(|session, _| work(session))
    }

    #[inline]
    fn run_staged(&mut self, work: impl FnOnce(&mut Session, &mut Staging) -> Result<(), Failure>) -> EsStatus {
        let EsSession { session, counters, guard, staging, .. } = self;
        let result = guard.run(|| {
            let _bound = bind(&*counters);
            let staged = if staging.is_open() { staging.close(session) } else { Ok(()) };
            work(session, staging).and(staged.map_err(Failure::from))
        });
        self.keep(result)
    }

    /// The same for work that is allowed after a panic: it undoes things, lost rows too.
    pub(crate) fn clean_up(&mut self, work: impl FnOnce(&mut Session) -> esker::Result<()>) -> EsStatus {
        let EsSession { session, counters, guard, staging, .. } = self;
        let result = guard.clean_up(|| {
            let _bound = bind(&*counters);
            if staging.is_open() {
                // A row that cannot be written is noted in the session, which undoes it.
                let _ = staging.close(session);
            }
            work(session).map_err(Failure::from)
        });
        self.keep(result)
    }

    /// Inserts a row image of the table's layout, and makes room for more without a call if rows come in bulk.
    ///
    /// # Safety
    /// As for [`Session::insert_image`].
    pub(crate) unsafe fn insert(
        &mut self,
        table: &EsTable,
        image: *const u8,
        lock_duplicate: bool,
        row_id: &mut MaybeUninit<u64>,
    ) -> EsStatus {
        self.run_staged(|session, staging| {
            // SAFETY: the caller's promise.
            let mut inserted = unsafe { session.insert_image(&table.table, image) };
            let mut locked = None;
            while let (true, Err(Error::DuplicateKey { row, .. })) = (lock_duplicate, &inserted) {
                if locked == Some(*row) {
                    break;
                }
                // Until that was locked it may have gone, or got another key.
                locked = Some(*row);
                lock_row(session, table, *row)?;
                // SAFETY: the caller's promise.
                inserted = unsafe { session.insert_image(&table.table, image) };
            }
            row_id.write(inserted?.0);
            staging.open(session, table);
            Ok(())
        })
    }

    /// The row that has the key for which another one was refused, with the index's place.
    pub(crate) fn duplicate(&self) -> Option<(usize, RowId)> {
        self.last.duplicate
    }

    #[inline]
    fn keep(&mut self, result: Result<(), Failure>) -> EsStatus {
        match result {
            Ok(()) => EsStatus::Ok,
            Err(failure) => self.fail(failure),
        }
    }

    #[cold]
    pub(crate) fn fail(&mut self, failure: Failure) -> EsStatus {
        let status = failure.status;
        self.last = failure;
        status
    }

    pub(crate) fn counters(&self) -> &SessionCounters {
        &self.counters
    }
}

/// Locks a row, if it is there, and waits for that.
fn lock_row(session: &mut Session, table: &EsTable, row: RowId) -> esker::Result<()> {
    let mask = ColumnMask::none(table.table.layout().columns.len());
    let options = ScanOptions { mask, lock: Some(LockMode::Exclusive), ..ScanOptions::default() };
    session.open_cursor(&table.table, options)?.fetch(session, row)?;
    Ok(())
}

/// A session for one connection. `*session` is written only if it succeeds.
///
/// # Safety
/// `hooks` may be NULL and is needed for the call only; its functions are called with its context until the session is
/// closed.
#[no_mangle]
pub unsafe extern "C" fn es_session_open(
    engine: *const EsEngine,
    hooks: *const EsWaitHooks,
    session: *mut *mut EsSession,
    error: *mut EsError,
) -> EsStatus {
    // SAFETY: the caller's promise.
    let (handle, hooks, session) = unsafe { (shared(engine), hooks.as_ref(), out(session)) };
    let result = handle.guard.run(|| {
        let mut opened = handle.engine.session();
        let (reports, owners) = (Arc::<Reports>::default(), handle.owners.clone());
        if let Some(c) = hooks {
            let (reports, owners) = (reports.clone(), owners.clone());
            opened.set_wait_hooks(Box::new(Hooks { c: *c, since: Cell::new(None), reports, owners }));
        }
        session.write(Box::into_raw(Box::new(EsSession {
            counters: opened.counters(),
            session: opened,
            guard: handle.guard.clone(),
            last: Failure::default(),
            savepoints: Vec::new(),
            next_savepoint: 1,
            context: hooks.map_or(std::ptr::null_mut(), |c| c.context),
            reports,
            owners,
            owned: None,
            staging: Staging::new(),
        })));
        Ok(())
    });
    // SAFETY: the caller's promise.
    unsafe { report(result, error) }
}

/// Rolls back what is open; a prepared transaction stays prepared, for `es_commit_xid` or `es_rollback_xid`.
///
/// # Safety
/// Its cursors are closed. `session` may be NULL; neither it nor its stage is used again.
#[no_mangle]
pub unsafe extern "C" fn es_session_close(session: *mut EsSession) {
    // SAFETY: made by es_session_open; the caller's promise.
    let Some(mut session) = (unsafe { take(session) }) else { return };
    session.disown();
    let guard = session.guard.clone();
    let _ = guard.clean_up(|| {
        drop(session);
        Ok(())
    });
}

/// How the session's last call that failed ended, and its words; `Ok` and none if none has failed yet.
///
/// # Safety
/// `session` is open.
#[no_mangle]
pub unsafe extern "C" fn es_last_error(session: *const EsSession, error: *mut EsError) -> EsStatus {
    // SAFETY: the caller's promise.
    let (session, error) = unsafe { (shared(session), out(error)) };
    error.write(EsError::new(&session.last.text));
    session.last.status
}

/// What wakes a session. Used by any thread.
pub struct EsKiller {
    killer: Killer,
    guard: Arc<Guard>,
}

impl EsKiller {
    /// After a panic too: whoever waits must be able to end.
    pub(crate) fn use_it(&self, work: impl FnOnce(&Killer)) {
        let _ = self.guard.clean_up(|| {
            work(&self.killer);
            Ok(())
        });
    }
}

/// What wakes this session from other threads. `*killer` is written only if it succeeds; it may outlive the session.
///
/// # Safety
/// `session` is open.
#[no_mangle]
pub unsafe extern "C" fn es_killer_open(session: *mut EsSession, killer: *mut *mut EsKiller) -> EsStatus {
    // SAFETY: the caller's promise.
    let (session, killer) = unsafe { (exclusive(session), out(killer)) };
    let guard = session.guard.clone();
    session.run(|s| {
        killer.write(Box::into_raw(Box::new(EsKiller { killer: s.killer(), guard })));
        Ok(())
    })
}

/// Frees a killer.
///
/// # Safety
/// `killer` may be NULL; it is not used again, by no thread.
#[no_mangle]
pub unsafe extern "C" fn es_killer_close(killer: *mut EsKiller) {
    // SAFETY: made by es_killer_open; the caller's promise.
    let Some(killer) = (unsafe { take(killer) }) else { return };
    let guard = killer.guard.clone();
    let _ = guard.clean_up(|| {
        drop(killer);
        Ok(())
    });
}

/// Wakes the session from a wait for a row lock, now or its next one in this statement.
///
/// # Safety
/// `killer` is open.
#[no_mangle]
pub unsafe extern "C" fn es_kill(killer: *const EsKiller) {
    // SAFETY: the caller's promise.
    unsafe { shared(killer) }.use_it(Killer::kill);
}

/// Whose session it is, for `es_transactions` and `es_lock_waits`.
///
/// # Safety
/// `session` is open.
#[no_mangle]
pub unsafe extern "C" fn es_set_connection(session: *mut EsSession, connection: u64) {
    // SAFETY: the caller's promise.
    unsafe { exclusive(session) }.session.set_connection(connection);
}
