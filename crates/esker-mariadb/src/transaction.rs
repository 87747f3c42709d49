// SPDX-License-Identifier: MIT OR Apache-2.0
//! A session's transactions: begin, statements, savepoints, the phases of a commit.

use crate::boundary::{exclusive, out, shared, FromC, Unchecked};
use crate::session::EsSession;
use crate::status::{EsStatus, Failure};
use crate::xid::EsXid;
use esker::{BeginOptions, Isolation, Session};
use esker_format::Lsn;

/// What a transaction sees of others.
#[repr(i32)]
#[derive(Debug, Clone, Copy)]
pub enum EsIsolation {
    /// A view per statement.
    ReadCommitted = 0,
    /// A view per transaction.
    RepeatableRead = 1,
}

// SAFETY: all members.
unsafe impl FromC for EsIsolation {
    const NAME: &'static str = "isolation level";
    const ALL: &'static [EsIsolation] = &[EsIsolation::ReadCommitted, EsIsolation::RepeatableRead];
}

/// Are waits of this session's transactions reported, and others' waits for them? From the next `es_begin` on. `changes`: whenever
/// whom it waits for is another one, too, for which it is woken; and its order counts in deadlocks.
///
/// # Safety
/// `session` is open.
#[no_mangle]
pub unsafe extern "C" fn es_report_waits(session: *mut EsSession, waits: bool, changes: bool) {
    // SAFETY: the caller's promise.
    unsafe { exclusive(session) }.set_reports(waits, changes);
}

/// Begins a transaction unless one is open. `snapshot_isolation`: a row that was changed after the view was opened is an
/// error to a writer.
///
/// # Safety
/// `session` is open.
#[no_mangle]
pub unsafe extern "C" fn es_begin(
    session: *mut EsSession,
    isolation: Unchecked<EsIsolation>,
    snapshot_isolation: bool,
) -> EsStatus {
    // SAFETY: the caller's promise.
    let session = unsafe { exclusive(session) };
    if !session.session.in_transaction() {
        session.savepoints.clear();
    }
    let status = session.run_checked(|s| {
        let isolation = match isolation.checked()? {
            EsIsolation::ReadCommitted => Isolation::ReadCommitted,
            EsIsolation::RepeatableRead => Isolation::RepeatableRead,
        };
        s.begin(isolation, BeginOptions { snapshot_isolation });
        Ok(())
    });
    session.own();
    status
}

/// Is a transaction open?
///
/// # Safety
/// `session` is open.
#[no_mangle]
pub unsafe extern "C" fn es_in_transaction(session: *const EsSession) -> bool {
    // SAFETY: the caller's promise.
    unsafe { shared(session) }.session.in_transaction()
}

/// Has the open transaction locked or written rows, those rolled back to a savepoint included?
///
/// # Safety
/// `session` is open.
#[no_mangle]
pub unsafe extern "C" fn es_holds_locks(session: *const EsSession) -> bool {
    // SAFETY: the caller's promise.
    unsafe { shared(session) }.session.holds_locks()
}

/// Opens the transaction's view now.
///
/// # Safety
/// `session` is open.
#[no_mangle]
pub unsafe extern "C" fn es_take_view(session: *mut EsSession) -> EsStatus {
    // SAFETY: the caller's promise.
    unsafe { exclusive(session) }.run(|s| {
        s.take_view();
        Ok(())
    })
}

/// From here on: who reads a table or an index from block to block has so many blocks read by one call, at most.
///
/// # Safety
/// `session` is open.
#[no_mangle]
pub unsafe extern "C" fn es_set_read_blocks(session: *mut EsSession, most: u32) {
    // SAFETY: the caller's promise.
    unsafe { exclusive(session) }.session.set_read_blocks(most);
}

/// Begins a statement, and forgets an `es_kill` that nothing waited for.
///
/// # Safety
/// `session` is open.
#[no_mangle]
pub unsafe extern "C" fn es_begin_statement(session: *mut EsSession) -> EsStatus {
    // SAFETY: the caller's promise.
    unsafe { exclusive(session) }.run(|s| {
        s.clear_kill();
        s.begin_statement();
        Ok(())
    })
}

/// Ends a statement.
///
/// # Safety
/// `session` is open.
#[no_mangle]
pub unsafe extern "C" fn es_end_statement(session: *mut EsSession) -> EsStatus {
    // SAFETY: the caller's promise.
    unsafe { exclusive(session) }.run(|s| {
        s.end_statement();
        Ok(())
    })
}

/// Undoes a statement and ends it.
///
/// # Safety
/// `session` is open.
#[no_mangle]
pub unsafe extern "C" fn es_rollback_statement(session: *mut EsSession) -> EsStatus {
    // SAFETY: the caller's promise.
    unsafe { exclusive(session) }.clean_up(|s| {
        s.rollback_statement();
        s.end_statement();
        Ok(())
    })
}

/// Sets a savepoint. It lives until the transaction ends, one before it is rolled back to, or it is released, by itself.
///
/// # Safety
/// `session` is open.
#[no_mangle]
pub unsafe extern "C" fn es_savepoint(session: *mut EsSession, savepoint: *mut u64) -> EsStatus {
    // SAFETY: the caller's promise.
    let (session, savepoint) = unsafe { (exclusive(session), out(savepoint)) };
    let mut set = None;
    let status = session.run(|s| {
        set = Some(s.savepoint());
        Ok(())
    });
    if let Some(point) = set {
        let number = session.next_savepoint;
        session.next_savepoint += 1;
        session.savepoints.push((number, point));
        savepoint.write(number);
    }
    status
}

/// Rolls back to a savepoint, which stays; later ones go.
///
/// # Safety
/// `session` is open.
#[no_mangle]
pub unsafe extern "C" fn es_rollback_to(session: *mut EsSession, savepoint: u64) -> EsStatus {
    // SAFETY: the caller's promise.
    let session = unsafe { exclusive(session) };
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
///
/// # Safety
/// `session` is open.
#[no_mangle]
pub unsafe extern "C" fn es_release_savepoint(session: *mut EsSession, savepoint: u64) {
    // SAFETY: the caller's promise.
    unsafe { exclusive(session) }.savepoints.retain(|(number, _)| *number != savepoint);
}

/// First phase of a commit: durable, not yet visible. `in_turn`: its end waits for others or for people, so that nobody puts
/// a sync off for it.
///
/// # Safety
/// `session` is open.
#[no_mangle]
pub unsafe extern "C" fn es_prepare(session: *mut EsSession, xid: *const EsXid, in_turn: bool) -> EsStatus {
    // SAFETY: the caller's promise.
    let (session, xid) = unsafe { (exclusive(session), shared(xid)) };
    session.run_checked(|s| match in_turn {
        true => Ok(s.prepare_in_turn(&xid.to_bytes()?)?),
        false => Ok(s.prepare(&xid.to_bytes()?)?),
    })
}

/// Gives the prepared transaction its place in the order, and in every view opened from then on; neither waits nor fails, except by
/// a bug. Calls come one at a time.
///
/// # Safety
/// `session` is open. Another thread may call while the session's own waits for it.
#[no_mangle]
pub unsafe extern "C" fn es_commit_ordered(session: *mut EsSession) -> EsStatus {
    // SAFETY: the caller's promise.
    unsafe { exclusive(session) }.run(|s| {
        s.commit_ordered();
        Ok(())
    })
}

/// Commits: visible and, as far as is configured, durable on return.
///
/// # Safety
/// `session` is open.
#[no_mangle]
pub unsafe extern "C" fn es_commit(session: *mut EsSession) -> EsStatus {
    // SAFETY: the caller's promise.
    let session = unsafe { exclusive(session) };
    let status = session.run(Session::commit);
    if !session.session.in_transaction() {
        session.disown();
    }
    status
}

/// As `es_commit` without its wait: durable, as far as is configured, once `es_await_log` of any session returned for
/// `*end`, which is written only if it succeeds.
///
/// # Safety
/// `session` is open.
#[no_mangle]
pub unsafe extern "C" fn es_commit_unsynced(session: *mut EsSession, end: *mut u64) -> EsStatus {
    // SAFETY: the caller's promise.
    let (session, end) = unsafe { (exclusive(session), out(end)) };
    let status = session.run(|s| {
        end.write(s.commit_unsynced()?.0);
        Ok(())
    });
    if !session.session.in_transaction() {
        session.disown();
    }
    status
}

/// Waits for the log.
///
/// # Safety
/// `session` is open.
#[no_mangle]
pub unsafe extern "C" fn es_await_log(session: *mut EsSession, end: u64) -> EsStatus {
    // SAFETY: the caller's promise.
    unsafe { exclusive(session) }.run(|s| s.await_log(Lsn(end)))
}

/// Waits for the log, for all that was committed so far, and as far as the configuration asks for it: what was decided in
/// `es_commit_ordered` is durable then by itself.
///
/// # Safety
/// `session` is open.
#[no_mangle]
pub unsafe extern "C" fn es_await_whole_log(session: *mut EsSession) -> EsStatus {
    // SAFETY: the caller's promise.
    unsafe { exclusive(session) }.run(|s| s.await_whole_log())
}

/// Rolls back.
///
/// # Safety
/// `session` is open.
#[no_mangle]
pub unsafe extern "C" fn es_rollback(session: *mut EsSession) -> EsStatus {
    // SAFETY: the caller's promise.
    let session = unsafe { exclusive(session) };
    session.disown();
    session.clean_up(Session::rollback)
}
