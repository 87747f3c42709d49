// SPDX-License-Identifier: MIT OR Apache-2.0
//! `es_cursor`: rows in batches, and single rows by id.

use crate::guard::catch;
use crate::session::EsSession;
use crate::status::Status;
use crate::table::EsTable;
use esker::{Cursor, LockMode, ScanOptions, Session, Table};
use esker_format::{ColumnMask, RowId};
use std::sync::Arc;

/// `es_scan_options`.
#[repr(C)]
pub struct EsScanOptions {
    pub(crate) columns: *const u8,
    pub(crate) lock: i32,
    pub(crate) skip_locked: i32,
    pub(crate) semi_consistent: i32,
}

/// `es_batch`.
#[repr(C)]
pub struct EsBatch {
    pub(crate) images: *const u8,
    pub(crate) stride: usize,
    pub(crate) row_ids: *const RowId,
    pub(crate) count: usize,
}

/// `es_cursor`.
pub struct EsCursor {
    cursor: Cursor,
}

/// # Safety
/// `columns` is null or points to a bit for each of the table's columns.
unsafe fn mask(columns: *const u8, table: &EsTable) -> ColumnMask {
    let all = table.table.all_columns();
    if columns.is_null() {
        return all;
    }
    let mut mask = ColumnMask::none(all.columns());
    for i in 0..all.columns() {
        // SAFETY: the caller's promise.
        if unsafe { *columns.add(i / 8) } >> (i % 8) & 1 != 0 {
            mask.set(i);
        }
    }
    mask
}

/// # Safety
/// As for [`mask`].
unsafe fn scan_options(options: &EsScanOptions, table: &EsTable) -> ScanOptions {
    ScanOptions {
        // SAFETY: the caller's promise.
        mask: unsafe { mask(options.columns, table) },
        lock: match options.lock {
            1 => Some(LockMode::Shared),
            2 => Some(LockMode::Exclusive),
            _ => None,
        },
        skip_locked: options.skip_locked != 0,
        semi_consistent: options.semi_consistent != 0,
    }
}

/// Opens a cursor by `how`.
///
/// # Safety
/// As for the calls below.
unsafe fn open(
    session: *mut EsSession,
    table: *mut EsTable,
    options: *const EsScanOptions,
    cursor: *mut *mut EsCursor,
    how: fn(&mut Session, &Arc<Table>, ScanOptions) -> esker::Result<Cursor>,
) -> Status {
    // SAFETY: see the crate.
    let (session, table, options) = unsafe { (&mut *session, &*table, &*options) };
    session.run(|s| {
        // SAFETY: see the crate.
        let opened = how(s, &table.table, unsafe { scan_options(options, table) })?;
        // SAFETY: see the crate.
        unsafe { cursor.write(Box::into_raw(Box::new(EsCursor { cursor: opened }))) };
        Ok(())
    })
}

/// Begins a scan.
#[no_mangle]
pub unsafe extern "C" fn es_scan_open(
    session: *mut EsSession,
    table: *mut EsTable,
    options: *const EsScanOptions,
    cursor: *mut *mut EsCursor,
) -> Status {
    // SAFETY: see the crate.
    unsafe { open(session, table, options, cursor, Session::scan) }
}

/// A cursor for reads by row id.
#[no_mangle]
pub unsafe extern "C" fn es_fetch_open(
    session: *mut EsSession,
    table: *mut EsTable,
    options: *const EsScanOptions,
    cursor: *mut *mut EsCursor,
) -> Status {
    // SAFETY: see the crate.
    unsafe { open(session, table, options, cursor, Session::open_cursor) }
}

/// Frees a cursor and what it pins.
#[no_mangle]
pub unsafe extern "C" fn es_cursor_close(cursor: *mut EsCursor) {
    if cursor.is_null() {
        return;
    }
    let _ = catch(|| {
        // SAFETY: made by es_scan_open or es_fetch_open, and not used again.
        drop(unsafe { Box::from_raw(cursor) });
        Ok(())
    });
}

/// The next rows.
#[no_mangle]
pub unsafe extern "C" fn es_cursor_next_batch(
    cursor: *mut EsCursor,
    session: *mut EsSession,
    batch: *mut EsBatch,
) -> Status {
    // SAFETY: see the crate.
    let (cursor, session) = unsafe { (&mut *cursor, &mut *session) };
    session.run(|s| {
        let rows = cursor.cursor.next_batch(s)?;
        let given =
            EsBatch { images: rows.images, stride: rows.stride, row_ids: rows.ids.as_ptr(), count: rows.ids.len() };
        // SAFETY: see the crate.
        unsafe { batch.write(given) };
        Ok(())
    })
}

/// One row by its id.
#[no_mangle]
pub unsafe extern "C" fn es_cursor_fetch(
    cursor: *mut EsCursor,
    session: *mut EsSession,
    row_id: u64,
    image: *mut *const u8,
) -> Status {
    // SAFETY: see the crate.
    let (cursor, session) = unsafe { (&mut *cursor, &mut *session) };
    session.run(|s| {
        let found = cursor.cursor.fetch(s, RowId(row_id))?;
        // SAFETY: see the crate.
        unsafe { image.write(found.unwrap_or(std::ptr::null())) };
        Ok(())
    })
}

/// Was the last row given out without its lock?
#[no_mangle]
pub unsafe extern "C" fn es_cursor_was_semi_consistent(cursor: *const EsCursor) -> i32 {
    // SAFETY: see the crate.
    i32::from(unsafe { (*cursor).cursor.was_semi_consistent() })
}
