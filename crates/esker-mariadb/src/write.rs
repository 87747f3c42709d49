// SPDX-License-Identifier: MIT OR Apache-2.0
//! Changing rows, and what else works on a table in a session.

use crate::boundary::{exclusive, out, shared};
use crate::session::EsSession;
use crate::status::EsStatus;
use crate::table::EsTable;
use esker_format::RowId;

/// Inserts a row, and may open the session's stage. `DuplicateKey`: nothing was written, and `es_duplicate` tells of the row
/// that is there already; with `lock_duplicate` it is locked, and has the key as long as that.
///
/// # Safety
/// `image` is a row image of the table's layout; its blobs' pointers are valid for their lengths.
#[no_mangle]
pub unsafe extern "C" fn es_insert(
    session: *mut EsSession,
    table: *const EsTable,
    image: *const u8,
    lock_duplicate: bool,
    row_id: *mut u64,
) -> EsStatus {
    // SAFETY: the caller's promise.
    let (session, table, _, row_id) = unsafe { (exclusive(session), shared(table), shared(image), out(row_id)) };
    // SAFETY: the caller's promise; es_table_open compared layouts.
    unsafe { session.insert(table, image, lock_duplicate, row_id) }
}

/// Which row has the key that another one was refused for, if that is how the session's last call that failed ended: the
/// place of the index among the table's, and the row.
///
/// # Safety
/// `session` is open.
#[no_mangle]
pub unsafe extern "C" fn es_duplicate(session: *const EsSession, index: *mut u32, row_id: *mut u64) -> bool {
    // SAFETY: the caller's promise.
    let (session, index, row_id) = unsafe { (shared(session), out(index), out(row_id)) };
    let Some((place, row)) = session.duplicate() else { return false };
    index.write(place as u32);
    row_id.write(row.0);
    true
}

/// Gives a row a new version. `DuplicateKey` as for `es_insert`.
///
/// # Safety
/// As for `es_insert`.
#[no_mangle]
pub unsafe extern "C" fn es_update(
    session: *mut EsSession,
    table: *const EsTable,
    row_id: u64,
    image: *const u8,
) -> EsStatus {
    // SAFETY: the caller's promise.
    let (session, table, _) = unsafe { (exclusive(session), shared(table), shared(image)) };
    // SAFETY: the caller's promise; es_table_open compared layouts.
    session.run(|s| unsafe { s.update_image(&table.table, RowId(row_id), image) })
}

/// Deletes a row.
///
/// # Safety
/// `session` and `table` are open.
#[no_mangle]
pub unsafe extern "C" fn es_delete(session: *mut EsSession, table: *const EsTable, row_id: u64) -> EsStatus {
    // SAFETY: the caller's promise.
    let (session, table) = unsafe { (exclusive(session), shared(table)) };
    session.run(|s| s.delete(&table.table, RowId(row_id)))
}

/// Locks all rows that there are and counts them: those that `es_delete_all` is about to delete.
///
/// # Safety
/// `session` and `table` are open.
#[no_mangle]
pub unsafe extern "C" fn es_lock_all(session: *mut EsSession, table: *const EsTable, rows: *mut u64) -> EsStatus {
    // SAFETY: the caller's promise.
    let (session, table, rows) = unsafe { (exclusive(session), shared(table), out(rows)) };
    session.run(|s| {
        rows.write(s.lock_all(&table.table)?);
        Ok(())
    })
}

/// Deletes all rows.
///
/// # Safety
/// `session` and `table` are open.
#[no_mangle]
pub unsafe extern "C" fn es_delete_all(session: *mut EsSession, table: *const EsTable) -> EsStatus {
    // SAFETY: the caller's promise.
    let (session, table) = unsafe { (exclusive(session), shared(table)) };
    session.run(|s| s.delete_all(&table.table))
}

/// The number of rows that the session's view sees, at once where it is known.
///
/// # Safety
/// `session` and `table` are open.
#[no_mangle]
pub unsafe extern "C" fn es_count_rows(session: *mut EsSession, table: *const EsTable, rows: *mut u64) -> EsStatus {
    // SAFETY: the caller's promise.
    let (session, table, rows) = unsafe { (exclusive(session), shared(table), out(rows)) };
    session.run(|s| {
        rows.write(s.count(&table.table)?);
        Ok(())
    })
}

/// By how many rows the open transaction changes the table, fewer than none: has deleted. 0 if none is open.
///
/// # Safety
/// `session` and `table` are open.
#[no_mangle]
pub unsafe extern "C" fn es_own_rows(session: *const EsSession, table: *const EsTable) -> i64 {
    // SAFETY: the caller's promise.
    let (session, table) = unsafe { (shared(session), shared(table)) };
    session.session.own_rows(&table.table)
}

/// Gives back the lock of a row that was read and is not wanted.
///
/// # Safety
/// `session` and `table` are open.
#[no_mangle]
pub unsafe extern "C" fn es_unlock_row(session: *mut EsSession, table: *const EsTable, row_id: u64) {
    // SAFETY: the caller's promise.
    let (session, table) = unsafe { (exclusive(session), shared(table)) };
    // Staged rows that are lost here fail the calls to come, too.
    let _ = session.run(|s| {
        s.unlock_row(&table.table, RowId(row_id));
        Ok(())
    });
}
