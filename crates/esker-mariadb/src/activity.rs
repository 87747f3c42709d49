// SPDX-License-Identifier: MIT OR Apache-2.0
//! Open transactions and lock waits, one call each.

use crate::boundary::{needed, shared};
use crate::engine::EsEngine;
use crate::xid::EsXid;
use esker::LocalTime;
use std::ffi::{c_char, c_void, CStr, CString};

/// An open transaction.
#[repr(C)]
pub struct EsTransaction {
    pub(crate) id: u64,
    /// 0: none, as of a prepared one after a restart.
    pub(crate) connection: u64,
    pub(crate) started_unix_us: u64,
    pub(crate) age_us: u64,
    /// By its ended statements, as `redo_bytes`.
    pub(crate) rows_changed: u64,
    pub(crate) rows_locked: u64,
    pub(crate) redo_bytes: u64,
    /// The oldest view it keeps; 0: none.
    pub(crate) view_seq: u64,
    /// Static, as `isolation`.
    pub(crate) state: *const c_char,
    pub(crate) isolation: *const c_char,
    pub(crate) has_xid: bool,
    pub(crate) xid: EsXid,
}

/// A session that waits for another's transaction.
#[repr(C)]
pub struct EsLockWait {
    pub(crate) waiting_connection: u64,
    pub(crate) blocking_connection: u64,
    pub(crate) waited_us: u64,
    pub(crate) blocker_idle_us: u64,
    /// The connection at the end of the chain.
    pub(crate) root_blocker: u64,
    /// Static.
    pub(crate) kind: *const c_char,
    /// Valid for the call, as `key_text`, which is NULL where there is none.
    pub(crate) table: *const c_char,
    pub(crate) key_text: *const c_char,
}

/// A lock, neighbouring ones, or the wish for one.
#[repr(C)]
pub struct EsLock {
    pub(crate) txn: u64,
    /// 0: none, as of a prepared one after a restart.
    pub(crate) connection: u64,
    /// Static.
    pub(crate) kind: *const c_char,
    /// Static; NULL: another transaction's end is waited for, or it is of many.
    pub(crate) mode: *const c_char,
    /// Valid for the call, as the others; empty: of more than one.
    pub(crate) table: *const c_char,
    /// NULL: the text has no index's values.
    pub(crate) key_name: *const c_char,
    pub(crate) key_text: *const c_char,
    pub(crate) waiting: bool,
}

/// The engine's words with a NUL.
fn word(text: &str) -> &'static CStr {
    const WORDS: &[&CStr] = &[
        c"active",
        c"prepared",
        c"lock wait",
        c"READ COMMITTED",
        c"REPEATABLE READ",
        c"row",
        c"key",
        c"range",
        c"auto_increment",
        c"shared",
        c"exclusive",
        c"transaction end",
    ];
    WORDS.iter().find(|w| w.to_bytes() == text.as_bytes()).copied().unwrap_or(c"?")
}

/// A text with a NUL at its end, without others.
pub(crate) fn terminated(text: String) -> CString {
    CString::new(text.replace('\0', " ")).unwrap_or_default()
}

/// NULL where there is none.
pub(crate) fn pointer(text: Option<&CString>) -> *const c_char {
    text.map_or(std::ptr::null(), |text| text.as_ptr())
}

/// The local time of who reads, as a number of digits YYYYMMDDhhmmss, of a time in seconds since 1970.
pub type EsLocalTimeFn = Option<unsafe extern "C" fn(context: *mut c_void, unix_seconds: i64) -> u64>;

/// # Safety
/// It is called with `context` in this thread.
unsafe fn local_time(given: EsLocalTimeFn, context: *mut c_void) -> Option<Box<LocalTime>> {
    // SAFETY: the caller's promise.
    let given = given.map(|f| move |unix_seconds| unsafe { f(context, unix_seconds) })?;
    Some(Box::new(given))
}

/// Takes one, which is valid for the call; true: stop. None of the engine's locks is held.
pub type EsTransactionFn =
    Option<unsafe extern "C" fn(context: *mut c_void, transaction: *const EsTransaction) -> bool>;

/// Calls `each` with every open transaction.
///
/// # Safety
/// `each` is called with `context` in this thread.
#[no_mangle]
pub unsafe extern "C" fn es_transactions(engine: *const EsEngine, each: EsTransactionFn, context: *mut c_void) {
    // SAFETY: the caller's promise.
    let (handle, each) = unsafe { (shared(engine), needed(each)) };
    let list = handle.guard.clean_up(|| Ok(handle.engine.transactions())).unwrap_or_default();
    for t in list {
        let xid = t.xid.as_deref().and_then(EsXid::from_bytes);
        let row = EsTransaction {
            id: t.txn.0,
            connection: t.connection,
            started_unix_us: t.started_unix_us,
            age_us: t.age_us,
            rows_changed: t.rows_changed,
            rows_locked: t.rows_locked,
            redo_bytes: t.redo_bytes,
            view_seq: t.view_seq.map_or(0, |seq| seq.0),
            state: word(t.state).as_ptr(),
            isolation: word(t.isolation).as_ptr(),
            has_xid: xid.is_some(),
            xid: xid.unwrap_or_default(),
        };
        // SAFETY: the row is valid for the call.
        if unsafe { each(context, &row) } {
            break;
        }
    }
}

/// Takes one, which is valid for the call; true: stop. None of the engine's locks is held.
pub type EsLockWaitFn = Option<unsafe extern "C" fn(context: *mut c_void, wait: *const EsLockWait) -> bool>;

/// Calls `each` with every wait for a lock. Without `local`, which may be NULL, timestamps in keys are told in UTC.
///
/// # Safety
/// `each` and `local` are called with `context` in this thread.
#[no_mangle]
pub unsafe extern "C" fn es_lock_waits(
    engine: *const EsEngine,
    each: EsLockWaitFn,
    local: EsLocalTimeFn,
    context: *mut c_void,
) {
    // SAFETY: the caller's promise.
    let (handle, each, local) = unsafe { (shared(engine), needed(each), local_time(local, context)) };
    let list = handle.guard.clean_up(|| Ok(handle.engine.lock_waits_told(local.as_deref()))).unwrap_or_default();
    for w in list {
        let (table, key_text) = (terminated(w.table), w.key_text.map(terminated));
        let row = EsLockWait {
            waiting_connection: w.waiting_connection,
            blocking_connection: w.blocking_connection,
            waited_us: w.waited_us,
            blocker_idle_us: w.blocker_idle_us,
            root_blocker: w.root_blocker,
            kind: word(w.kind).as_ptr(),
            table: table.as_ptr(),
            key_text: pointer(key_text.as_ref()),
        };
        // SAFETY: the row and its texts are valid for the call.
        if unsafe { each(context, &row) } {
            break;
        }
    }
}

/// Takes one, which is valid for the call; true: stop. None of the engine's locks is held.
pub type EsLockFn = Option<unsafe extern "C" fn(context: *mut c_void, lock: *const EsLock) -> bool>;

/// Calls `each` with every lock and every wait for one; those of a transaction that has many are told in few. Without
/// `local`, which may be NULL, timestamps in keys are told in UTC.
///
/// # Safety
/// `each` and `local` are called with `context` in this thread.
#[no_mangle]
pub unsafe extern "C" fn es_locks(engine: *const EsEngine, each: EsLockFn, local: EsLocalTimeFn, context: *mut c_void) {
    // SAFETY: the caller's promise.
    let (handle, each, local) = unsafe { (shared(engine), needed(each), local_time(local, context)) };
    let list = handle.guard.clean_up(|| Ok(handle.engine.locks_told(local.as_deref()))).unwrap_or_default();
    for lock in list {
        let (table, key_text) = (terminated(lock.table), terminated(lock.key_text));
        let key_name = lock.key_name.map(terminated);
        let row = EsLock {
            txn: lock.txn.0,
            connection: lock.connection,
            kind: word(lock.kind).as_ptr(),
            mode: lock.mode.map_or(std::ptr::null(), |mode| word(mode).as_ptr()),
            table: table.as_ptr(),
            key_name: pointer(key_name.as_ref()),
            key_text: key_text.as_ptr(),
            waiting: lock.waiting,
        };
        // SAFETY: the row and its texts are valid for the call.
        if unsafe { each(context, &row) } {
            break;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_engines_words_are_known() {
        assert_eq!(word("lock wait"), c"lock wait");
        assert_eq!(word("no such word"), c"?");
    }
}
