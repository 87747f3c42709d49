// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cursors: rows in batches, and single rows by id.

use crate::boundary::{exclusive, out, shared, slice, take, FromC, Unchecked};
use crate::guard::Guard;
use crate::session::EsSession;
use crate::status::{EsStatus, Failure};
use crate::table::EsTable;
use esker::{Cursor, Error, LockMode, ScanOptions, Session, Table};
use esker_format::{ColumnMask, RowId};
use std::sync::Arc;

/// How rows that are read are locked.
#[repr(i32)]
#[derive(Debug, Clone, Copy)]
pub enum EsLockMode {
    /// Not at all.
    None = 0,
    /// Together with others that share.
    Shared = 1,
    /// Alone.
    Exclusive = 2,
}

// SAFETY: all members.
unsafe impl FromC for EsLockMode {
    const NAME: &'static str = "lock mode";
    const ALL: &'static [EsLockMode] = &[EsLockMode::None, EsLockMode::Shared, EsLockMode::Exclusive];
}

/// How a cursor reads.
#[repr(C)]
pub struct EsScanOptions {
    /// The layout's columns to fill in, a bit each, least significant bit first; NULL: all.
    pub(crate) columns: *const u8,
    /// Bytes of `columns`, not fewer than the layout's columns need.
    pub(crate) columns_bytes: usize,
    pub(crate) lock: Unchecked<EsLockMode>,
    /// Leave locked rows out.
    pub(crate) skip_locked: bool,
    /// Give a locked row's last committed version rather than wait.
    pub(crate) semi_consistent: bool,
    /// By an index: whether a key is free is asked, and no row of the view is looked for.
    pub(crate) passes_gone: bool,
}

/// Rows decoded ahead: `count` images, `stride` bytes apart, and their ids. They belong to the cursor and are valid
/// until its next call; what their blob slots point to, until a call gives other rows.
#[repr(C)]
pub struct EsBatch {
    pub(crate) images: *const u8,
    pub(crate) stride: usize,
    pub(crate) row_ids: *const u64,
    /// 0: the end.
    pub(crate) count: usize,
}

/// An open cursor. Belongs to its session.
pub struct EsCursor {
    cursor: Cursor,
    guard: Arc<Guard>,
}

impl EsScanOptions {
    /// How the engine is told.
    ///
    /// # Safety
    /// `columns` are `columns_bytes` bytes or null.
    pub(crate) unsafe fn checked(&self, table: &Table) -> Result<ScanOptions, Failure> {
        Ok(ScanOptions {
            // SAFETY: the caller's promise.
            mask: unsafe { mask(self, table) }?,
            lock: match self.lock.checked()? {
                EsLockMode::None => None,
                EsLockMode::Shared => Some(LockMode::Shared),
                EsLockMode::Exclusive => Some(LockMode::Exclusive),
            },
            skip_locked: self.skip_locked,
            passes_gone: self.passes_gone,
            semi_consistent: self.semi_consistent,
        })
    }
}

/// The columns whose bits are set; null: all.
///
/// # Safety
/// `options.columns` are `columns_bytes` bytes or null.
unsafe fn mask(options: &EsScanOptions, table: &Table) -> esker::Result<ColumnMask> {
    if options.columns.is_null() {
        return Ok(table.all_columns());
    }
    // SAFETY: the caller's promise.
    let bits = unsafe { slice(options.columns, options.columns_bytes) };
    let columns = table.layout().columns.len();
    if bits.len() < columns.div_ceil(8) {
        return Err(Error::InvalidArgument(format!("{} bytes of bits for {columns} columns", bits.len())));
    }
    let mut mask = ColumnMask::none(columns);
    for i in (0..columns).filter(|i| bits[i / 8] >> (i % 8) & 1 != 0) {
        mask.set(i);
    }
    Ok(mask)
}

/// Opens a cursor by `how`.
///
/// # Safety
/// As for [`es_scan_open`].
unsafe fn open(
    session: *mut EsSession,
    table: *const EsTable,
    options: *const EsScanOptions,
    cursor: *mut *mut EsCursor,
    how: impl FnOnce(&mut Session, &Arc<Table>, ScanOptions) -> esker::Result<Cursor>,
) -> EsStatus {
    // SAFETY: the caller's promise.
    let (session, table, options, cursor) =
        unsafe { (exclusive(session), shared(table), shared(options), out(cursor)) };
    session.run_checked(|s| {
        // SAFETY: the caller's promise.
        let wanted = unsafe { options.checked(&table.table) }?;
        let opened = how(s, &table.table, wanted)?;
        cursor.write(Box::into_raw(Box::new(EsCursor { cursor: opened, guard: table.guard.clone() })));
        Ok(())
    })
}

/// Begins a scan, for `es_cursor_next_batch`, of the rows behind one; 0: of all. `*cursor` is written only if it succeeds.
///
/// # Safety
/// `options->columns` are `columns_bytes` bytes or NULL; needed for the call only.
#[no_mangle]
pub unsafe extern "C" fn es_scan_open(
    session: *mut EsSession,
    table: *const EsTable,
    behind: u64,
    options: *const EsScanOptions,
    cursor: *mut *mut EsCursor,
) -> EsStatus {
    // SAFETY: the caller's promise.
    unsafe { open(session, table, options, cursor, |s, table, options| s.scan_behind(table, RowId(behind), options)) }
}

/// A cursor for `es_cursor_fetch` alone. `*cursor` is written only if it succeeds.
///
/// # Safety
/// As for `es_scan_open`.
#[no_mangle]
pub unsafe extern "C" fn es_fetch_open(
    session: *mut EsSession,
    table: *const EsTable,
    options: *const EsScanOptions,
    cursor: *mut *mut EsCursor,
) -> EsStatus {
    // SAFETY: the caller's promise.
    unsafe { open(session, table, options, cursor, Session::open_cursor) }
}

/// Frees a cursor, the rows that it gave and what it pins.
///
/// # Safety
/// `cursor` may be NULL; neither it nor its rows are used again.
#[no_mangle]
pub unsafe extern "C" fn es_cursor_close(cursor: *mut EsCursor) {
    // SAFETY: made by es_scan_open or es_fetch_open; the caller's promise.
    let Some(cursor) = (unsafe { take(cursor) }) else { return };
    let guard = cursor.guard.clone();
    let _ = guard.clean_up(|| {
        drop(cursor);
        Ok(())
    });
}

/// The next rows. `*batch` is written only if it succeeds.
///
/// # Safety
/// `session` is the one that the cursor was opened with. What the cursor gave before is not used again.
#[no_mangle]
pub unsafe extern "C" fn es_cursor_next_batch(
    cursor: *mut EsCursor,
    session: *mut EsSession,
    batch: *mut EsBatch,
) -> EsStatus {
    // SAFETY: the caller's promise.
    let (cursor, session, batch) = unsafe { (exclusive(cursor), exclusive(session), out(batch)) };
    // Row ids go out as the numbers that they are.
    const { assert!(size_of::<RowId>() == size_of::<u64>() && align_of::<RowId>() == align_of::<u64>()) };
    session.run(|s| {
        let rows = cursor.cursor.next_batch(s)?;
        batch.write(EsBatch {
            images: rows.images,
            stride: rows.stride,
            row_ids: rows.ids.as_ptr().cast(),
            count: rows.ids.len(),
        });
        Ok(())
    })
}

/// One row by id. `*image` belongs to the cursor and is valid until its next call, its blobs until one gives a row; NULL: no such row for this session.
///
/// # Safety
/// As for `es_cursor_next_batch`.
#[no_mangle]
pub unsafe extern "C" fn es_cursor_fetch(
    cursor: *mut EsCursor,
    session: *mut EsSession,
    row_id: u64,
    image: *mut *const u8,
) -> EsStatus {
    // SAFETY: the caller's promise.
    let (cursor, session, image) = unsafe { (exclusive(cursor), exclusive(session), out(image)) };
    session.run(|s| {
        image.write(cursor.cursor.fetch(s, RowId(row_id))?.unwrap_or(std::ptr::null()));
        Ok(())
    })
}

/// Was the last row read without the lock that another holds, in its last committed version?
///
/// # Safety
/// `cursor` is open.
#[no_mangle]
pub unsafe extern "C" fn es_cursor_was_semi_consistent(cursor: *const EsCursor) -> bool {
    // SAFETY: the caller's promise.
    unsafe { shared(cursor) }.cursor.was_semi_consistent()
}
