// SPDX-License-Identifier: MIT OR Apache-2.0
//! `es_session`: transactions, statements, savepoints; `es_killer`.

use crate::engine::EsEngine;
use crate::guard::Guard;
use crate::status::{copy_text, report, EsError, Failure, Status, OK};
use crate::table::EsTable;
use crate::waits::Owners;
use crate::xid::EsXid;
use esker::{BeginOptions, Isolation, Killer, Savepoint, Session, WaitHooks};
use esker_base::counters::bind;
use esker_base::SessionCounters;
use esker_format::{Lsn, TxnId};
use std::cell::Cell;
use std::ffi::{c_char, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// `es_wait_hooks`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct EsWaitHooks {
    pub(crate) context: *mut c_void,
    pub(crate) before: Option<unsafe extern "C" fn(*mut c_void)>,
    pub(crate) after: Option<unsafe extern "C" fn(*mut c_void, u64)>,
    pub(crate) waits_for: Option<unsafe extern "C" fn(*mut c_void, *mut c_void)>,
}

struct Hooks {
    c: EsWaitHooks,
    since: Cell<Option<Instant>>,
    reports: Arc<AtomicBool>,
    owners: Arc<Owners>,
}
// SAFETY: called in the session's thread, as the header says.
unsafe impl Send for Hooks {}

impl WaitHooks for Hooks {
    fn before_wait(&self) {
        self.since.set(Some(Instant::now()));
        if let Some(before) = self.c.before {
            // SAFETY: see the crate.
            unsafe { before(self.c.context) }
        }
    }

    fn after_wait(&self) {
        let waited = self.since.take().map_or(0, |since| since.elapsed().as_micros());
        if let Some(after) = self.c.after {
            // SAFETY: see the crate.
            unsafe { after(self.c.context, u64::try_from(waited).unwrap_or(u64::MAX)) }
        }
    }

    fn waits_for(&self, txn: TxnId) {
        if let Some(waits_for) = self.c.waits_for.filter(|_| self.reports()) {
            // SAFETY: see the crate.
            self.owners.with(txn, |other| unsafe { waits_for(self.c.context, other) });
        }
    }

    fn reports(&self) -> bool {
        self.reports.load(Ordering::Relaxed)
    }
}

/// `es_stage`: room for rows that are inserted, filled by the front end without a call a row.
#[repr(C)]
pub struct EsStage {
    /// The table; null: there is no room.
    pub(crate) table: *const EsTable,
    pub(crate) next: *mut u8,
    pub(crate) end: *mut u8,
    pub(crate) row_id: u64,
}

impl EsStage {
    fn none() -> EsStage {
        let nowhere = std::ptr::null_mut();
        EsStage { table: std::ptr::null(), next: nowhere, end: nowhere, row_id: 0 }
    }
}

/// The engine's side of a stage.
struct Staging {
    /// Shared with the front end, which holds its address.
    shared: *mut EsStage,
    start: *mut u8,
    stride: usize,
}

impl Staging {
    fn new() -> Staging {
        Staging { shared: Box::into_raw(Box::new(EsStage::none())), start: std::ptr::null_mut(), stride: 1 }
    }

    /// Opens room behind a row that was just inserted, if there is some.
    #[cold]
    fn open(&mut self, session: &mut Session, table: &EsTable) {
        let Some(stage) = session.stage(&table.table) else { return };
        (self.start, self.stride) = (stage.images, stage.stride);
        // SAFETY: the stage's images have this room; the front end uses its side only between calls.
        unsafe {
            let end = stage.images.add(stage.rows * stage.stride);
            *self.shared = EsStage { table, next: stage.images, end, row_id: stage.first.0 };
        }
    }

    /// Takes the rows that were written. The stage is gone.
    #[cold]
    fn close(&mut self, session: &mut Session) -> esker::Result<()> {
        // SAFETY: `next` lies between `start` and `end`, and what is before it was written.
        unsafe {
            let stage = std::ptr::replace(self.shared, EsStage::none());
            session.unstage(stage.next.offset_from(self.start) as usize / self.stride)
        }
    }

    fn is_open(&self) -> bool {
        // SAFETY: as above.
        unsafe { !(*self.shared).table.is_null() }
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // SAFETY: made by `new`; the session is being closed.
        drop(unsafe { Box::from_raw(self.shared) });
    }
}

/// `es_session`.
pub struct EsSession {
    pub(crate) session: Session,
    counters: Arc<SessionCounters>,
    guard: Arc<Guard>,
    last: Failure,
    /// Numbered, in the order they were set; gone with their transaction.
    savepoints: Vec<(u64, Savepoint)>,
    next_savepoint: u64,
    /// What the hooks are called with.
    context: *mut c_void,
    reports: Arc<AtomicBool>,
    owners: Arc<Owners>,
    /// The transaction under which this session stands among the owners.
    owned: Option<TxnId>,
    staging: Staging,
}

impl EsSession {
    /// The transaction has ended, or goes its way without this session.
    fn disown(&mut self) {
        if let Some(txn) = self.owned.take() {
            self.owners.remove(txn);
        }
    }

    /// Work in a session: counted for it, guarded, its failure kept. First come the rows that were staged; if they are
    /// lost, that is the failure of a call that has none of its own.
    #[inline]
    pub(crate) fn run(&mut self, work: impl FnOnce(&mut Session) -> esker::Result<()>) -> Status {
        self.run_staged(|session, _| work(session))
    }

    #[inline]
    fn run_staged(&mut self, work: impl FnOnce(&mut Session, &mut Staging) -> esker::Result<()>) -> Status {
        let EsSession { session, counters, guard, staging, .. } = self;
        let result = guard.run(|| {
            let _bound = bind(&*counters);
            let staged = if staging.is_open() { staging.close(session) } else { Ok(()) };
            work(session, staging).and(staged).map_err(Failure::from)
        });
        self.keep(result)
    }

    /// The same for work that is allowed after a panic: it undoes things, lost rows too.
    fn clean_up(&mut self, work: impl FnOnce(&mut Session) -> esker::Result<()>) -> Status {
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
    pub(crate) unsafe fn insert(&mut self, table: &EsTable, image: *const u8, row_id: &mut u64) -> Status {
        self.run_staged(|session, staging| {
            // SAFETY: the caller's promise.
            *row_id = unsafe { session.insert_image(&table.table, image) }?.0;
            staging.open(session, table);
            Ok(())
        })
    }

    #[inline]
    fn keep(&mut self, result: Result<(), Failure>) -> Status {
        match result {
            Ok(()) => OK,
            Err(failure) => self.fail(failure),
        }
    }

    #[cold]
    fn fail(&mut self, failure: Failure) -> Status {
        let status = failure.status;
        self.last = failure;
        status
    }

    pub(crate) fn counters(&self) -> &SessionCounters {
        &self.counters
    }
}

/// A session for one connection.
#[no_mangle]
pub unsafe extern "C" fn es_session_open(
    engine: *mut EsEngine,
    hooks: *const EsWaitHooks,
    session: *mut *mut EsSession,
    error: *mut EsError,
) -> Status {
    // SAFETY: see the crate.
    let handle = unsafe { &*engine };
    let result = handle.guard.run(|| {
        let mut opened = handle.engine.session();
        let (reports, owners) = (Arc::new(AtomicBool::new(false)), handle.owners.clone());
        // SAFETY: see the crate.
        let hooks = unsafe { hooks.as_ref() };
        if let Some(c) = hooks {
            let (reports, owners) = (reports.clone(), owners.clone());
            opened.set_wait_hooks(Box::new(Hooks { c: *c, since: Cell::new(None), reports, owners }));
        }
        let opened = Box::new(EsSession {
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
        });
        // SAFETY: see the crate.
        unsafe { session.write(Box::into_raw(opened)) };
        Ok(())
    });
    // SAFETY: see the crate.
    unsafe { report(result, error) }
}

/// Rolls back what is open, leaves what is prepared.
#[no_mangle]
pub unsafe extern "C" fn es_session_close(session: *mut EsSession) {
    if session.is_null() {
        return;
    }
    // SAFETY: made by es_session_open, and not used again.
    let mut session = unsafe { Box::from_raw(session) };
    session.disown();
    let guard = session.guard.clone();
    let _ = guard.clean_up(|| {
        drop(session);
        Ok(())
    });
}

/// Where the session's stage is, for as long as the session is.
#[no_mangle]
pub unsafe extern "C" fn es_session_stage(session: *const EsSession) -> *mut EsStage {
    // SAFETY: see the crate.
    unsafe { (*session).staging.shared }
}

/// Takes the staged rows, before their table is closed.
#[no_mangle]
pub unsafe extern "C" fn es_unstage(session: *mut EsSession) -> Status {
    // SAFETY: see the crate.
    unsafe { &mut *session }.run(|_| Ok(()))
}

/// The last failure's code and words.
#[no_mangle]
pub unsafe extern "C" fn es_last_error(session: *const EsSession, text: *mut c_char, capacity: usize) -> Status {
    // SAFETY: see the crate.
    unsafe {
        let last = &(*session).last;
        copy_text(&last.text, text, capacity);
        last.status
    }
}

/// `es_killer`.
pub struct EsKiller(Killer);

/// What wakes a session from other threads.
#[no_mangle]
pub unsafe extern "C" fn es_killer_open(session: *const EsSession) -> *mut EsKiller {
    // SAFETY: see the crate.
    let session = unsafe { &*session };
    let killer = session.guard.run(|| Ok(Box::into_raw(Box::new(EsKiller(session.session.killer())))));
    killer.unwrap_or(std::ptr::null_mut())
}

/// Frees a killer.
#[no_mangle]
pub unsafe extern "C" fn es_killer_close(killer: *mut EsKiller) {
    if !killer.is_null() {
        // SAFETY: made by es_killer_open, and not used again.
        drop(unsafe { Box::from_raw(killer) });
    }
}

/// Ends the session's wait for a lock.
#[no_mangle]
pub unsafe extern "C" fn es_kill(killer: *const EsKiller) {
    let _ = crate::guard::catch(|| {
        // SAFETY: see the crate.
        unsafe { (*killer).0.kill() };
        Ok(())
    });
}

/// Begins a transaction unless one is open.
#[no_mangle]
pub unsafe extern "C" fn es_begin(session: *mut EsSession, isolation: i32, snapshot_isolation: i32) -> Status {
    // SAFETY: see the crate.
    let session = unsafe { &mut *session };
    if !session.session.in_transaction() {
        session.savepoints.clear();
    }
    let status = session.run(|s| {
        let isolation = if isolation == 0 { Isolation::ReadCommitted } else { Isolation::RepeatableRead };
        s.begin(isolation, BeginOptions { snapshot_isolation: snapshot_isolation != 0 });
        Ok(())
    });
    let txn = session.session.txn_id();
    if session.owned != txn && session.reports.load(Ordering::Relaxed) {
        session.disown();
        if let Some(txn) = txn {
            session.owners.add(txn, session.context);
            session.owned = Some(txn);
        }
    }
    status
}

/// Waits from here on are reported, of this session and for it.
#[no_mangle]
pub unsafe extern "C" fn es_report_waits(session: *mut EsSession, on: i32) {
    // SAFETY: see the crate.
    unsafe { &*session }.reports.store(on != 0, Ordering::Relaxed);
}

/// Is a transaction open?
#[no_mangle]
pub unsafe extern "C" fn es_in_transaction(session: *const EsSession) -> i32 {
    // SAFETY: see the crate.
    i32::from(unsafe { (*session).session.in_transaction() })
}

/// Has the transaction locked or written rows?
#[no_mangle]
pub unsafe extern "C" fn es_holds_locks(session: *const EsSession) -> i32 {
    // SAFETY: see the crate.
    i32::from(unsafe { (*session).session.holds_locks() })
}

/// Whose session it is.
#[no_mangle]
pub unsafe extern "C" fn es_set_connection(session: *mut EsSession, connection: u64) {
    // SAFETY: see the crate.
    unsafe { &*session }.session.set_connection(connection);
}

/// Opens the view now.
#[no_mangle]
pub unsafe extern "C" fn es_take_view(session: *mut EsSession) -> Status {
    // SAFETY: see the crate.
    unsafe { &mut *session }.run(|s| {
        s.take_view();
        Ok(())
    })
}

/// How long locks are waited for.
#[no_mangle]
pub unsafe extern "C" fn es_set_lock_wait(session: *mut EsSession, timeout_us: u64) {
    // SAFETY: see the crate.
    unsafe { &mut *session }.session.set_lock_wait(Duration::from_micros(timeout_us), timeout_us == 0);
}

/// Begins a statement.
#[no_mangle]
pub unsafe extern "C" fn es_begin_statement(session: *mut EsSession) -> Status {
    // SAFETY: see the crate.
    unsafe { &mut *session }.run(|s| {
        s.clear_kill();
        s.begin_statement();
        Ok(())
    })
}

/// Ends a statement.
#[no_mangle]
pub unsafe extern "C" fn es_end_statement(session: *mut EsSession) -> Status {
    // SAFETY: see the crate.
    unsafe { &mut *session }.run(|s| {
        s.end_statement();
        Ok(())
    })
}

/// Undoes a statement.
#[no_mangle]
pub unsafe extern "C" fn es_rollback_statement(session: *mut EsSession) -> Status {
    // SAFETY: see the crate.
    unsafe { &mut *session }.clean_up(|s| {
        s.rollback_statement();
        s.end_statement();
        Ok(())
    })
}

/// Sets a savepoint.
#[no_mangle]
pub unsafe extern "C" fn es_savepoint(session: *mut EsSession, savepoint: *mut u64) -> Status {
    // SAFETY: see the crate.
    let session = unsafe { &mut *session };
    let mut set = None;
    let status = session.run(|s| {
        set = Some(s.savepoint());
        Ok(())
    });
    if let Some(point) = set {
        let number = session.next_savepoint;
        session.next_savepoint += 1;
        session.savepoints.push((number, point));
        // SAFETY: see the crate.
        unsafe { savepoint.write(number) };
    }
    status
}

/// Rolls back to a savepoint, which stays; later ones go.
#[no_mangle]
pub unsafe extern "C" fn es_rollback_to(session: *mut EsSession, savepoint: u64) -> Status {
    // SAFETY: see the crate.
    let session = unsafe { &mut *session };
    session.savepoints.retain(|(number, _)| *number <= savepoint);
    let Some((_, point)) = session.savepoints.last().filter(|(number, _)| *number == savepoint).cloned() else {
        return session.fail(Failure::invalid("no such savepoint"));
    };
    session.clean_up(|s| {
        s.rollback_to(&point);
        Ok(())
    })
}

/// Forgets this savepoint alone: a front end lets the old one go when it sets a name again, and later ones live on.
/// Those that it forgets without a word go with the transaction.
#[no_mangle]
pub unsafe extern "C" fn es_release_savepoint(session: *mut EsSession, savepoint: u64) -> Status {
    // SAFETY: see the crate.
    unsafe { &mut *session }.savepoints.retain(|(number, _)| *number != savepoint);
    OK
}

/// First phase of a commit.
#[no_mangle]
pub unsafe extern "C" fn es_prepare(session: *mut EsSession, xid: *const EsXid) -> Status {
    // SAFETY: see the crate.
    let bytes = match unsafe { &*xid }.to_bytes() {
        Ok(bytes) => bytes,
        // SAFETY: see the crate.
        Err(failure) => return unsafe { &mut *session }.fail(failure),
    };
    // SAFETY: see the crate.
    unsafe { &mut *session }.run(|s| s.prepare(&bytes))
}

/// The decision, visible at once.
#[no_mangle]
pub unsafe extern "C" fn es_commit_ordered(session: *mut EsSession) -> Status {
    // SAFETY: see the crate.
    unsafe { &mut *session }.run(|s| {
        s.commit_ordered();
        Ok(())
    })
}

/// Commits.
#[no_mangle]
pub unsafe extern "C" fn es_commit(session: *mut EsSession) -> Status {
    // SAFETY: see the crate.
    let session = unsafe { &mut *session };
    let status = session.run(Session::commit);
    if !session.session.in_transaction() {
        session.disown();
    }
    status
}

/// Commits, visible at once; durable when the log is up to `end`.
#[no_mangle]
pub unsafe extern "C" fn es_commit_unsynced(session: *mut EsSession, end: *mut u64) -> Status {
    // SAFETY: see the crate.
    let session = unsafe { &mut *session };
    let status = session.run(|s| {
        let upto = s.commit_unsynced()?;
        // SAFETY: see the crate.
        unsafe { end.write(upto.0) };
        Ok(())
    });
    if !session.session.in_transaction() {
        session.disown();
    }
    status
}

/// Waits for the log.
#[no_mangle]
pub unsafe extern "C" fn es_await_log(session: *mut EsSession, end: u64) -> Status {
    // SAFETY: see the crate.
    unsafe { &mut *session }.run(|s| s.await_log(Lsn(end)))
}

/// Rolls back.
#[no_mangle]
pub unsafe extern "C" fn es_rollback(session: *mut EsSession) -> Status {
    // SAFETY: see the crate.
    let session = unsafe { &mut *session };
    session.disown();
    session.clean_up(Session::rollback)
}
