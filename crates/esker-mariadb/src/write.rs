// SPDX-License-Identifier: MIT OR Apache-2.0
//! Changing rows, and what else works on a table in a session.

use crate::session::EsSession;
use crate::status::Status;
use crate::table::EsTable;
use esker_format::RowId;

/// Inserts a row image.
#[no_mangle]
pub unsafe extern "C" fn es_insert(
    session: *mut EsSession,
    table: *mut EsTable,
    image: *const u8,
    row_id: *mut u64,
) -> Status {
    // SAFETY: see the crate.
    let (session, table) = unsafe { (&mut *session, &*table) };
    // SAFETY: the image lies as the table's layout says, which es_table_open compared.
    unsafe { session.insert(table, image, &mut *row_id) }
}

/// Gives a row a new version.
#[no_mangle]
pub unsafe extern "C" fn es_update(
    session: *mut EsSession,
    table: *mut EsTable,
    row_id: u64,
    image: *const u8,
) -> Status {
    // SAFETY: see the crate.
    let (session, table) = unsafe { (&mut *session, &*table) };
    // SAFETY: as in es_insert.
    session.run(|s| unsafe { s.update_image(&table.table, RowId(row_id), image) })
}

/// Deletes a row.
#[no_mangle]
pub unsafe extern "C" fn es_delete(session: *mut EsSession, table: *mut EsTable, row_id: u64) -> Status {
    // SAFETY: see the crate.
    let (session, table) = unsafe { (&mut *session, &*table) };
    session.run(|s| s.delete(&table.table, RowId(row_id)))
}

/// Locks and counts all rows.
#[no_mangle]
pub unsafe extern "C" fn es_lock_all(session: *mut EsSession, table: *mut EsTable, rows: *mut u64) -> Status {
    // SAFETY: see the crate.
    let (session, table) = unsafe { (&mut *session, &*table) };
    session.run(|s| {
        let n = s.lock_all(&table.table)?;
        // SAFETY: see the crate.
        unsafe { rows.write(n) };
        Ok(())
    })
}

/// Deletes all rows.
#[no_mangle]
pub unsafe extern "C" fn es_delete_all(session: *mut EsSession, table: *mut EsTable) -> Status {
    // SAFETY: see the crate.
    let (session, table) = unsafe { (&mut *session, &*table) };
    session.run(|s| s.delete_all(&table.table))
}

/// Counts the rows of the session's view.
#[no_mangle]
pub unsafe extern "C" fn es_count_rows(session: *mut EsSession, table: *mut EsTable, rows: *mut u64) -> Status {
    // SAFETY: see the crate.
    let (session, table) = unsafe { (&mut *session, &*table) };
    session.run(|s| {
        let n = s.count_rows(&table.table)?;
        // SAFETY: see the crate.
        unsafe { rows.write(n) };
        Ok(())
    })
}

/// Gives a row's lock back.
#[no_mangle]
pub unsafe extern "C" fn es_unlock_row(session: *mut EsSession, table: *mut EsTable, row_id: u64) {
    // SAFETY: see the crate.
    let (session, table) = unsafe { (&mut *session, &*table) };
    session.run(|s| {
        s.unlock_row(&table.table, RowId(row_id));
        Ok(())
    });
}
