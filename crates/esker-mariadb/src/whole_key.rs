// SPDX-License-Identifier: MIT OR Apache-2.0
//! One row by a whole key of a unique index, in one call.

use crate::boundary::{exclusive, out, shared};
use crate::cursor::EsScanOptions;
use crate::session::EsSession;
use crate::status::EsStatus;
use crate::table::EsTable;
use esker::Error;

/// The row whose columns of the index's parts, all of them, are like those of a row image: its columns, as `options` says
/// which, to another one; what belongs to other columns is left as it is. `*row_id` is 0 if there is none. `options` locks
/// nothing.
///
/// # Safety
/// `session` is open and `table` of its engine. `key` and `image` lie as the table's images do; in `key` only the columns of
/// the index's parts count, and blobs' pointers are valid for their lengths. `options->columns` are `columns_bytes` bytes or
/// NULL. All are needed for the call only.
#[no_mangle]
pub unsafe extern "C" fn es_row_by_key(
    session: *mut EsSession,
    table: *const EsTable,
    index: u32,
    key: *const u8,
    parts: u32,
    options: *const EsScanOptions,
    image: *mut u8,
    row_id: *mut u64,
) -> EsStatus {
    // SAFETY: the caller's promise.
    let (session, table, options, row_id) =
        unsafe { (exclusive(session), shared(table), shared(options), out(row_id)) };
    session.run_checked(|s| {
        let (table, index) = (&table.table, index as usize);
        // SAFETY: the caller's promise.
        let wanted = unsafe { options.checked(table) }?;
        // SAFETY: the caller's promise; es_table_open compared layouts.
        let (key, is_whole) = unsafe { table.key_prefix(index, key, parts as usize) }?;
        if !is_whole || wanted.lock.is_some() {
            return Err(
                Error::InvalidArgument("a row is looked up by a whole unique key, without a lock".into()).into()
            );
        }
        // SAFETY: the caller's promise.
        let image = unsafe { std::slice::from_raw_parts_mut(image, table.layout().image_bytes as usize) };
        row_id.write(s.row_by_key(table, index, &key, &wanted.mask, image)?.map_or(0, |row| row.0));
        Ok(())
    })
}
