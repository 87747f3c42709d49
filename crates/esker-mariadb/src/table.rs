// SPDX-License-Identifier: MIT OR Apache-2.0
//! `es_table`: definitions and figures.

use crate::engine::EsEngine;
use crate::guard::Guard;
use crate::status::{report, str_of, EsError, Failure, Status};
use esker::{CheckScope, Engine, Table, TableDef};
use esker_format::{Column, ColumnKind, Compression, Layout, NullBit, RowFormat};
use std::ffi::{c_char, c_void};
use std::sync::Arc;

/// `es_column`.
#[repr(C)]
pub struct EsColumn {
    pub(crate) kind: u32,
    pub(crate) offset: u32,
    pub(crate) width: u32,
    pub(crate) len_bytes: u32,
    pub(crate) pad: u32,
    pub(crate) null_byte: u32,
    pub(crate) null_mask: u32,
}

/// `es_layout`.
#[repr(C)]
pub struct EsLayout {
    pub(crate) image_bytes: u32,
    pub(crate) head_bytes: u32,
    pub(crate) column_count: u32,
    pub(crate) columns: *const EsColumn,
}

/// `es_table_def`.
#[repr(C)]
pub struct EsTableDef {
    pub(crate) layout: EsLayout,
    pub(crate) row_format: i32,
    pub(crate) compression: i32,
    pub(crate) temporary: i32,
}

/// `es_table_stats`.
#[repr(C)]
pub struct EsTableStats {
    pub(crate) rows: u64,
    pub(crate) data_bytes: u64,
    pub(crate) free_bytes: u64,
    pub(crate) runs: u64,
    pub(crate) create_time: u64,
    pub(crate) update_time: u64,
    pub(crate) row_format: i32,
    pub(crate) compression: i32,
}

/// `es_progress_fn`.
pub type ProgressFn = unsafe extern "C" fn(*mut c_void, u64, u64) -> i32;

/// `es_table`.
pub struct EsTable {
    pub(crate) table: Arc<Table>,
    engine: Engine,
    guard: Arc<Guard>,
}

fn byte(value: u32, what: &str) -> Result<u8, Failure> {
    u8::try_from(value).map_err(|_| Failure::invalid(format!("{what} {value} is too large")))
}

fn column(c: &EsColumn) -> Result<Column, Failure> {
    let kind = match c.kind {
        0 => ColumnKind::Fixed { width: c.width },
        1 => ColumnKind::Padded { width: c.width, pad: byte(c.pad, "pad")? },
        2 => ColumnKind::Var { len_bytes: byte(c.len_bytes, "length of length")?, max: c.width },
        3 => ColumnKind::Blob { len_bytes: byte(c.len_bytes, "length of length")? },
        other => return Err(Failure::invalid(format!("column kind {other}"))),
    };
    let null = match byte(c.null_mask, "null mask")? {
        0 => None,
        mask => Some(NullBit { byte: c.null_byte, mask }),
    };
    Ok(Column { kind, offset: c.offset, null })
}

/// # Safety
/// `columns` points to `column_count` columns.
unsafe fn layout(given: &EsLayout) -> Result<Layout, Failure> {
    let columns = if given.column_count == 0 {
        &[]
    } else {
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts(given.columns, given.column_count as usize) }
    };
    Ok(Layout {
        image_bytes: given.image_bytes,
        head_bytes: given.head_bytes,
        columns: columns.iter().map(column).collect::<Result<_, _>>()?,
    })
}

fn bad_number(what: &str, n: i32) -> Failure {
    Failure::invalid(format!("{what} {n}"))
}

fn row_format(n: i32) -> Result<RowFormat, Failure> {
    let format = u8::try_from(n).ok().and_then(|n| RowFormat::from_u8(n).ok());
    format.ok_or_else(|| bad_number("row format", n))
}

fn compression(n: i32) -> Result<Compression, Failure> {
    let compression = u8::try_from(n).ok().and_then(|n| Compression::from_u8(n).ok());
    compression.ok_or_else(|| bad_number("compression", n))
}

/// Creates a table.
#[no_mangle]
pub unsafe extern "C" fn es_create_table(
    engine: *mut EsEngine,
    name: *const c_char,
    def: *const EsTableDef,
    error: *mut EsError,
) -> Status {
    // SAFETY: see the crate.
    let (handle, def) = unsafe { (&*engine, &*def) };
    let result = handle.guard.run(|| {
        // SAFETY: see the crate.
        let (name, layout) = unsafe { (str_of(name)?, layout(&def.layout)?) };
        let def = TableDef {
            layout,
            format: row_format(def.row_format)?,
            compression: compression(def.compression)?,
            temporary: def.temporary != 0,
            extra: Vec::new(),
        };
        Ok(handle.engine.create_table(name, &def)?)
    });
    // SAFETY: see the crate.
    unsafe { report(result, error) }
}

/// Drops a table.
#[no_mangle]
pub unsafe extern "C" fn es_drop_table(engine: *mut EsEngine, name: *const c_char, error: *mut EsError) -> Status {
    // SAFETY: see the crate.
    let handle = unsafe { &*engine };
    // SAFETY: see the crate.
    let result = handle.guard.run(|| Ok(handle.engine.drop_table(unsafe { str_of(name) }?)?));
    // SAFETY: see the crate.
    unsafe { report(result, error) }
}

/// Gives a table another name.
#[no_mangle]
pub unsafe extern "C" fn es_rename_table(
    engine: *mut EsEngine,
    from: *const c_char,
    to: *const c_char,
    error: *mut EsError,
) -> Status {
    // SAFETY: see the crate.
    let handle = unsafe { &*engine };
    let result = handle.guard.run(|| {
        // SAFETY: see the crate.
        let (from, to) = unsafe { (str_of(from)?, str_of(to)?) };
        Ok(handle.engine.rename_table(from, to)?)
    });
    // SAFETY: see the crate.
    unsafe { report(result, error) }
}

/// Empties a table.
#[no_mangle]
pub unsafe extern "C" fn es_truncate_table(engine: *mut EsEngine, name: *const c_char, error: *mut EsError) -> Status {
    // SAFETY: see the crate.
    let handle = unsafe { &*engine };
    // SAFETY: see the crate.
    let result = handle.guard.run(|| Ok(handle.engine.truncate_table(unsafe { str_of(name) }?)?));
    // SAFETY: see the crate.
    unsafe { report(result, error) }
}

/// Opens a table that lies as the caller says.
#[no_mangle]
pub unsafe extern "C" fn es_table_open(
    engine: *mut EsEngine,
    name: *const c_char,
    expected: *const EsLayout,
    table: *mut *mut EsTable,
    error: *mut EsError,
) -> Status {
    // SAFETY: see the crate.
    let (handle, expected) = unsafe { (&*engine, &*expected) };
    let result = handle.guard.run(|| {
        // SAFETY: see the crate.
        let (name, expected) = unsafe { (str_of(name)?, layout(expected)?) };
        let opened = handle.engine.open_table(name)?;
        if **opened.layout() != expected {
            return Err(Failure::layout(name));
        }
        let opened = Box::new(EsTable { table: opened, engine: handle.engine.clone(), guard: handle.guard.clone() });
        // SAFETY: see the crate.
        unsafe { table.write(Box::into_raw(opened)) };
        Ok(())
    });
    // SAFETY: see the crate.
    unsafe { report(result, error) }
}

/// Lets go of a table.
#[no_mangle]
pub unsafe extern "C" fn es_table_close(table: *mut EsTable) {
    if table.is_null() {
        return;
    }
    // SAFETY: made by es_table_open, and not used again.
    let table = unsafe { Box::from_raw(table) };
    let guard = table.guard.clone();
    let _ = guard.clean_up(|| {
        drop(table);
        Ok(())
    });
}

/// Figures.
#[no_mangle]
pub unsafe extern "C" fn es_table_get_stats(table: *mut EsTable, stats: *mut EsTableStats) {
    // SAFETY: see the crate.
    let handle = unsafe { &*table };
    let figures = handle.guard.clean_up(|| {
        let figures = handle.table.stats();
        Ok(EsTableStats {
            rows: figures.rows,
            data_bytes: figures.data_bytes,
            free_bytes: figures.dead_bytes,
            runs: figures.runs,
            create_time: figures.created_unix_s,
            update_time: figures.updated_unix_s,
            row_format: handle.table.format() as i32,
            compression: handle.table.compression() as i32,
        })
    });
    let none = |_| EsTableStats {
        rows: 0,
        data_bytes: 0,
        free_bytes: 0,
        runs: 0,
        create_time: 0,
        update_time: 0,
        row_format: 0,
        compression: 0,
    };
    // SAFETY: see the crate.
    unsafe { stats.write(figures.unwrap_or_else(none)) };
}

/// Tells how far it is; false: stop.
///
/// # Safety
/// `progress` may be called with `context`.
unsafe fn tell(progress: Option<ProgressFn>, context: *mut c_void, done: u64, total: u64) -> bool {
    // SAFETY: the caller's promise.
    progress.is_none_or(|progress| unsafe { progress(context, done, total) } == 0)
}

/// Verifies blocks.
#[no_mangle]
pub unsafe extern "C" fn es_table_check(
    table: *mut EsTable,
    scope: i32,
    progress: Option<ProgressFn>,
    context: *mut c_void,
    blocks: *mut u64,
    damaged: *mut u64,
    error: *mut EsError,
) -> Status {
    // SAFETY: see the crate.
    let handle = unsafe { &*table };
    let result = handle.guard.run(|| {
        // SAFETY: the caller's promise.
        let mut go_on = |done, total| unsafe { tell(progress, context, done, total) };
        let scope = match scope {
            1 => CheckScope::Unchecked,
            2 => CheckScope::Quick,
            _ => CheckScope::All,
        };
        let report = handle.engine.check_part(&handle.table, scope, &mut go_on)?;
        // SAFETY: see the crate.
        unsafe {
            blocks.write(report.blocks);
            damaged.write(report.damages.len() as u64);
        }
        match report.damages.into_iter().next() {
            Some(first) => Err(first.into()),
            None if report.stopped => Err(Failure::interrupted()),
            None => Ok(()),
        }
    });
    // SAFETY: see the crate.
    unsafe { report(result, error) }
}

/// Merges what can be merged.
#[no_mangle]
pub unsafe extern "C" fn es_table_optimize(
    table: *mut EsTable,
    progress: Option<ProgressFn>,
    context: *mut c_void,
    error: *mut EsError,
) -> Status {
    // SAFETY: see the crate.
    let handle = unsafe { &*table };
    // SAFETY: the caller's promise.
    let mut go_on = |done, total| unsafe { tell(progress, context, done, total) };
    let result = handle.guard.run(|| Ok(handle.engine.optimize(&handle.table, &mut go_on)?));
    // SAFETY: see the crate.
    unsafe { report(result, error) }
}
