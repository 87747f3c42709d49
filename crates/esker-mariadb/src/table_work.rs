// SPDX-License-Identifier: MIT OR Apache-2.0
//! What was done to each table, and by each index.

use crate::activity::{pointer, terminated};
use crate::boundary::{needed, shared};
use crate::engine::EsEngine;
use std::ffi::{c_char, c_void};

/// What was done to a table's rows, or by an index of it, in statements that have ended.
#[repr(C)]
pub struct EsTableWork {
    /// Valid for the call, as `index`, which is NULL for the rows.
    pub(crate) table: *const c_char,
    pub(crate) index: *const c_char,
    pub(crate) rows_read: u64,
    pub(crate) rows_changed: u64,
    pub(crate) blocks_cached: u64,
    /// From the operating system's cache, or from the device.
    pub(crate) blocks_read: u64,
    /// Of the two that follow something is known.
    pub(crate) has_source: bool,
    pub(crate) blocks_pagecache: u64,
    pub(crate) blocks_device: u64,
    /// Those of them that were read to change rows.
    pub(crate) blocks_read_by_changes: u64,
    pub(crate) lock_waits: u64,
    pub(crate) lock_wait_us: u64,
}

/// Takes one, which is valid for the call; true: stop. None of the engine's locks is held.
pub type EsTableWorkFn = Option<unsafe extern "C" fn(context: *mut c_void, work: *const EsTableWork) -> bool>;

/// Calls `each` with what was done to every table's rows, and by every index. Waits for nobody who waits for a disk.
///
/// # Safety
/// `each` is called with `context` in this thread.
#[no_mangle]
pub unsafe extern "C" fn es_table_work(engine: *const EsEngine, each: EsTableWorkFn, context: *mut c_void) {
    // SAFETY: the caller's promise.
    let (handle, each) = unsafe { (shared(engine), needed(each)) };
    let list = handle.guard.clean_up(|| Ok(handle.engine.work())).unwrap_or_default();
    for work in list {
        let (table, index) = (terminated(work.table), work.index.map(terminated));
        let f = work.figures;
        let row = EsTableWork {
            table: table.as_ptr(),
            index: pointer(index.as_ref()),
            rows_read: f.rows_read,
            rows_changed: f.rows_changed,
            blocks_cached: f.blocks_cached,
            blocks_read: f.blocks_read,
            has_source: f.knows_source(),
            blocks_pagecache: f.blocks_pagecache,
            blocks_device: f.blocks_device,
            blocks_read_by_changes: f.blocks_read_by_changes,
            lock_waits: f.lock_waits,
            lock_wait_us: f.lock_wait_us,
        };
        // SAFETY: the row and its texts are valid for the call.
        if unsafe { each(context, &row) } {
            break;
        }
    }
}

/// Work is counted from zero again, for `es_table_work`.
///
/// # Safety
/// `engine` is open.
#[no_mangle]
pub unsafe extern "C" fn es_forget_table_work(engine: *const EsEngine) {
    // SAFETY: the caller's promise.
    let handle = unsafe { shared(engine) };
    let _ = handle.guard.clean_up(|| {
        handle.engine.forget_work();
        Ok(())
    });
}
