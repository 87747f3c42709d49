// SPDX-License-Identifier: MIT OR Apache-2.0
//! AUTO_INCREMENT values.

use crate::boundary::{exclusive, out, shared, FromC, Unchecked};
use crate::session::EsSession;
use crate::status::{report, EsError, EsStatus};
use crate::table::EsTable;
use esker::Counting;

/// How a statement gets its AUTO_INCREMENT values.
#[repr(i32)]
#[derive(Debug, Clone, Copy)]
pub enum EsCounting {
    /// Whoever comes gets the next ones: values of several statements may alternate.
    Interleaved = 0,
    /// All at once, or what is asked for; waits for who counts alone.
    AtOnce = 1,
    /// Nobody else gets values until the statement ends.
    Alone = 2,
}

// SAFETY: all members.
unsafe impl FromC for EsCounting {
    const NAME: &'static str = "way of counting";
    const ALL: &'static [EsCounting] = &[EsCounting::Interleaved, EsCounting::AtOnce, EsCounting::Alone];
}

/// Takes `values` AUTO_INCREMENT values that nobody else gets, or as many as are left, of those that are `offset` and a multiple
/// of `increment`, both from 1 on. `*first`: the first of them; `*end`: no value from here on was taken. Both are where the
/// counter stood if none is left up to `greatest`, which the column can have.
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
    greatest: u64,
    counting: Unchecked<EsCounting>,
    first: *mut u64,
    end: *mut u64,
) -> EsStatus {
    // SAFETY: the caller's promise.
    let (session, table) = unsafe { (exclusive(session), shared(table)) };
    // SAFETY: the caller's promise.
    let (first, end) = unsafe { (out(first), out(end)) };
    session.run_checked(|s| {
        let counting = match counting.checked()? {
            EsCounting::Interleaved => Counting::Interleaved,
            EsCounting::AtOnce => Counting::AtOnce,
            EsCounting::Alone => Counting::Alone,
        };
        let taken = s.take_auto_increment(&table.table, offset, increment, values, greatest, counting)?;
        first.write(taken.start);
        end.write(taken.end);
        Ok(())
    })
}

/// The statement gets no more values: it does not count alone any more. Those from `unused` to before `end`, where its last ones
/// ended, it has not used: they are free again, unless somebody took others since.
///
/// # Safety
/// `session` and `table` are open.
#[no_mangle]
pub unsafe extern "C" fn es_end_auto_increment(
    session: *mut EsSession,
    table: *const EsTable,
    unused: u64,
    end: u64,
) -> EsStatus {
    // SAFETY: the caller's promise.
    let (session, table) = unsafe { (exclusive(session), shared(table)) };
    session.clean_up(|s| {
        s.end_auto_increment(&table.table, unused..end);
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

/// Values below `counts_from` are not given out any more: durable on return. `error` says what went wrong.
///
/// # Safety
/// `table` is open.
#[no_mangle]
pub unsafe extern "C" fn es_count_from(table: *const EsTable, counts_from: u64, error: *mut EsError) -> EsStatus {
    // SAFETY: the caller's promise.
    let handle = unsafe { shared(table) };
    let result = handle.guard.run(|| Ok(handle.engine.count_from(&handle.table, counts_from)?));
    // SAFETY: the caller's promise.
    unsafe { report(result, error) }
}
