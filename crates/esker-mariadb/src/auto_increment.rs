// SPDX-License-Identifier: MIT OR Apache-2.0
//! AUTO_INCREMENT values.

use crate::boundary::{exclusive, out, shared};
use crate::session::EsSession;
use crate::status::EsStatus;
use crate::table::EsTable;

/// Takes `values` AUTO_INCREMENT values that nobody else gets, of those that are `offset` and a multiple of `increment`, both
/// from 1 on. `*first`: the first of them; 0: there are not so many left.
///
/// # Safety
/// `session` and `table` are open.
#[no_mangle]
pub unsafe extern "C" fn es_take_auto_increment(
    session: *mut EsSession,
    table: *const EsTable,
    offset: u64,
    increment: u64,
    values: u64,
    first: *mut u64,
) -> EsStatus {
    // SAFETY: the caller's promise.
    let (session, table, first) = unsafe { (exclusive(session), shared(table), out(first)) };
    session.run(|s| {
        first.write(s.take_auto_increment(&table.table, offset, increment, values)?.unwrap_or(0));
        Ok(())
    })
}

/// A row has this value by itself: those that are given out from now on are greater.
///
/// # Safety
/// `session` and `table` are open.
#[no_mangle]
pub unsafe extern "C" fn es_auto_increment_used(
    session: *mut EsSession,
    table: *const EsTable,
    value: u64,
) -> EsStatus {
    // SAFETY: the caller's promise.
    let (session, table) = unsafe { (exclusive(session), shared(table)) };
    session.run(|s| s.auto_increment_used(&table.table, value))
}

/// AUTO_INCREMENT values below this one may have been given out.
///
/// # Safety
/// `table` is open.
#[no_mangle]
pub unsafe extern "C" fn es_next_auto_increment(table: *const EsTable) -> u64 {
    // SAFETY: the caller's promise.
    let handle = unsafe { shared(table) };
    handle.guard.clean_up(|| Ok(handle.table.next_auto_increment())).unwrap_or(0)
}
