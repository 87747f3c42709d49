// SPDX-License-Identifier: MIT OR Apache-2.0
//! Open transactions and lock waits, one call each.

use crate::engine::EsEngine;
use crate::xid::EsXid;
use std::ffi::{c_char, c_void, CStr, CString};

/// `es_transaction`.
#[repr(C)]
pub struct EsTransaction {
    pub(crate) id: u64,
    pub(crate) connection: u64,
    pub(crate) started_unix_us: u64,
    pub(crate) age_us: u64,
    pub(crate) rows_changed: u64,
    pub(crate) rows_locked: u64,
    pub(crate) redo_bytes: u64,
    pub(crate) view_seq: u64,
    pub(crate) state: *const c_char,
    pub(crate) isolation: *const c_char,
    pub(crate) has_xid: i32,
    pub(crate) xid: EsXid,
}

/// `es_lock_wait`.
#[repr(C)]
pub struct EsLockWait {
    pub(crate) waiting_connection: u64,
    pub(crate) blocking_connection: u64,
    pub(crate) waited_us: u64,
    pub(crate) blocker_idle_us: u64,
    pub(crate) root_blocker: u64,
    pub(crate) row_id: u64,
    pub(crate) kind: *const c_char,
    pub(crate) table: *const c_char,
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
        c"range",
        c"transaction end",
    ];
    WORDS.iter().find(|w| w.to_bytes() == text.as_bytes()).copied().unwrap_or(c"?")
}

/// `es_transaction_fn`.
pub type TransactionFn = unsafe extern "C" fn(*mut c_void, *const EsTransaction) -> i32;

/// Every open transaction.
#[no_mangle]
pub unsafe extern "C" fn es_transactions(engine: *mut EsEngine, each: TransactionFn, context: *mut c_void) {
    // SAFETY: see the crate.
    let handle = unsafe { &*engine };
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
            has_xid: i32::from(xid.is_some()),
            xid: xid.unwrap_or_default(),
        };
        // SAFETY: the row is valid for the call.
        if unsafe { each(context, &row) } != 0 {
            break;
        }
    }
}

/// `es_lock_wait_fn`.
pub type LockWaitFn = unsafe extern "C" fn(*mut c_void, *const EsLockWait) -> i32;

/// Every wait for a lock.
#[no_mangle]
pub unsafe extern "C" fn es_lock_waits(engine: *mut EsEngine, each: LockWaitFn, context: *mut c_void) {
    // SAFETY: see the crate.
    let handle = unsafe { &*engine };
    let list = handle.guard.clean_up(|| Ok(handle.engine.lock_waits())).unwrap_or_default();
    for w in list {
        let table = CString::new(w.table).unwrap_or_default();
        let row = EsLockWait {
            waiting_connection: w.waiting_connection,
            blocking_connection: w.blocking_connection,
            waited_us: w.waited_us,
            blocker_idle_us: w.blocker_idle_us,
            root_blocker: w.root_blocker,
            row_id: w.row.map_or(0, |row| row.0),
            kind: word(w.kind).as_ptr(),
            table: table.as_ptr(),
        };
        // SAFETY: the row and its table's name are valid for the call.
        if unsafe { each(context, &row) } != 0 {
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
