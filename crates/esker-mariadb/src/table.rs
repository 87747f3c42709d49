// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tables: definitions, handles, figures, upkeep.

use crate::boundary::{out, shared, slice, take, FromC, Unchecked};
use crate::engine::EsEngine;
use crate::guard::Guard;
use crate::index::{indexes, EsIndex};
use crate::status::{report, str_of, EsError, EsStatus, Failure};
use esker::{CheckScope, Engine, Table, TableDef};
use esker_format::{Column, ColumnKind, ColumnTypes, Compression, Layout, NullBit, RowFormat};
use std::ffi::{c_char, c_void, CString};
use std::sync::Arc;

/// How a column's bytes lie in a row image.
#[repr(i32)]
#[derive(Debug, Clone, Copy)]
pub enum EsColumnKind {
    /// `width` bytes.
    Fixed = 0,
    /// `width` bytes, filled up at the end with `pad`.
    Padded = 1,
    /// The length, in `len_bytes` bytes (little-endian), then up to `width` bytes.
    Var = 2,
    /// The length, in `len_bytes` bytes (little-endian), then an 8-byte pointer.
    Blob = 3,
}

// SAFETY: all members.
unsafe impl FromC for EsColumnKind {
    const NAME: &'static str = "column kind";
    const ALL: &'static [EsColumnKind] =
        &[EsColumnKind::Fixed, EsColumnKind::Padded, EsColumnKind::Var, EsColumnKind::Blob];
}

/// How rows are stored.
#[repr(i32)]
#[derive(Debug, Clone, Copy, Default)]
pub enum EsRowFormat {
    /// Packed, a column at a time.
    #[default]
    Dynamic = 0,
    /// Whole images at full width; no blobs.
    Fixed = 1,
}

// SAFETY: all members.
unsafe impl FromC for EsRowFormat {
    const NAME: &'static str = "row format";
    const ALL: &'static [EsRowFormat] = &[EsRowFormat::Dynamic, EsRowFormat::Fixed];
}

/// How blocks are compressed.
#[repr(i32)]
#[derive(Debug, Clone, Copy, Default)]
pub enum EsCompression {
    /// Not at all.
    #[default]
    None = 0,
    /// Fast.
    Lz4 = 1,
    /// Small.
    Zstd = 2,
}

// SAFETY: all members.
unsafe impl FromC for EsCompression {
    const NAME: &'static str = "compression";
    const ALL: &'static [EsCompression] = &[EsCompression::None, EsCompression::Lz4, EsCompression::Zstd];
}

/// Which blocks a check reads, and what it does beyond.
#[repr(i32)]
#[derive(Debug, Clone, Copy)]
pub enum EsCheckScope {
    /// All; indexes are held against the rows.
    All = 0,
    /// Those written since a check that found nothing wrong, or the start.
    Unchecked = 1,
    /// None: only what is known already.
    Quick = 2,
    /// All; indexes are held against the rows, and every entry is looked up by its key.
    Extended = 3,
}

// SAFETY: all members.
unsafe impl FromC for EsCheckScope {
    const NAME: &'static str = "check scope";
    const ALL: &'static [EsCheckScope] =
        &[EsCheckScope::All, EsCheckScope::Unchecked, EsCheckScope::Quick, EsCheckScope::Extended];
}

/// How one column lies in a row image.
#[repr(C)]
pub struct EsColumn {
    pub(crate) kind: Unchecked<EsColumnKind>,
    pub(crate) offset: u32,
    /// Fixed, Padded: bytes; Var: greatest number of bytes.
    pub(crate) width: u32,
    /// The byte in which the NULL bit lies.
    pub(crate) null_byte: u32,
    /// The NULL bit; 0: NOT NULL.
    pub(crate) null_mask: u8,
    /// Var, Blob: bytes of the length.
    pub(crate) len_bytes: u8,
    /// Padded: the byte that fills up.
    pub(crate) pad: u8,
    /// What its values are to the caller. A table is opened by those numbers alone with which it was created.
    pub(crate) type_number: u32,
    /// The column may have been created with this number, too: by a caller of before, which told less of its type. 0: it cannot.
    pub(crate) earlier_type_number: u32,
}

/// How a table's row images lie.
#[repr(C)]
pub struct EsLayout {
    pub(crate) image_bytes: u32,
    /// Always stored: NULL bits and what else lies there.
    pub(crate) head_bytes: u32,
    pub(crate) column_count: u32,
    pub(crate) columns: *const EsColumn,
}

/// What a table is created with.
#[repr(C)]
pub struct EsTableDef {
    pub(crate) layout: EsLayout,
    pub(crate) row_format: Unchecked<EsRowFormat>,
    pub(crate) compression: Unchecked<EsCompression>,
    /// In the order of their numbers.
    pub(crate) indexes: *const EsIndex,
    pub(crate) index_count: u32,
    /// Gone at the next start.
    pub(crate) temporary: bool,
    /// AUTO_INCREMENT values are given out from here on; 0: from 1 on.
    pub(crate) auto_increment: u64,
}

/// A table's figures.
#[repr(C)]
#[derive(Default)]
pub struct EsTableStats {
    /// An estimate.
    pub(crate) rows: u64,
    pub(crate) data_bytes: u64,
    /// Of rows as they are before encoding and compression; about.
    pub(crate) row_bytes: u64,
    /// Held by versions that nobody can see any more.
    pub(crate) free_bytes: u64,
    pub(crate) runs: u64,
    /// Seconds since 1970; 0: unknown.
    pub(crate) create_time: u64,
    /// Seconds since 1970; 0: unknown.
    pub(crate) update_time: u64,
    pub(crate) row_format: EsRowFormat,
    pub(crate) compression: EsCompression,
}

/// Told how far it is; true: stop.
pub type EsProgressFn = Option<unsafe extern "C" fn(context: *mut c_void, done: u64, total: u64) -> bool>;

/// An open table. Used by any thread.
pub struct EsTable {
    pub(crate) table: Arc<Table>,
    pub(crate) guard: Arc<Guard>,
    pub(crate) engine: Engine,
}

fn column(c: &EsColumn) -> Result<Column, Failure> {
    let kind = match c.kind.checked()? {
        EsColumnKind::Fixed => ColumnKind::Fixed { width: c.width },
        EsColumnKind::Padded => ColumnKind::Padded { width: c.width, pad: c.pad },
        EsColumnKind::Var => ColumnKind::Var { len_bytes: c.len_bytes, max: c.width },
        EsColumnKind::Blob => ColumnKind::Blob { len_bytes: c.len_bytes },
    };
    let null = (c.null_mask != 0).then_some(NullBit { byte: c.null_byte, mask: c.null_mask });
    Ok(Column { kind, offset: c.offset, null })
}

fn layout(given: &EsLayout, columns: &[EsColumn]) -> Result<Layout, Failure> {
    Ok(Layout {
        image_bytes: given.image_bytes,
        head_bytes: given.head_bytes,
        columns: columns.iter().map(column).collect::<Result<_, _>>()?,
    })
}

fn types(columns: &[EsColumn]) -> ColumnTypes {
    ColumnTypes(columns.iter().map(|column| column.type_number).collect())
}

/// Were the columns of the table made with these types, or with what was told of them before? Tables from before types were stored
/// have columns of any.
fn check_types(name: &str, table: &Table, columns: &[EsColumn]) -> Result<(), Failure> {
    let made = ColumnTypes::decode(table.extra()).map_err(|e| Failure::column_types(name, &e))?;
    let differs_at = |made: ColumnTypes| {
        let mut wanted = types(columns);
        for ((wanted, column), made) in wanted.0.iter_mut().zip(columns).zip(&made.0) {
            if column.earlier_type_number != 0 && column.earlier_type_number == *made {
                *wanted = *made;
            }
        }
        made.differs_at(&wanted)
    };
    match made.and_then(differs_at) {
        Some(at) => Err(Failure::column_type(name, at)),
        None => Ok(()),
    }
}

fn row_format(given: Unchecked<EsRowFormat>) -> Result<RowFormat, Failure> {
    Ok(match given.checked()? {
        EsRowFormat::Dynamic => RowFormat::Dynamic,
        EsRowFormat::Fixed => RowFormat::Fixed,
    })
}

fn compression(given: Unchecked<EsCompression>) -> Result<Compression, Failure> {
    Ok(match given.checked()? {
        EsCompression::None => Compression::None,
        EsCompression::Lz4 => Compression::Lz4,
        EsCompression::Zstd => Compression::Zstd,
    })
}

/// Atomic, and durable on return.
///
/// # Safety
/// `def->layout.columns` are `column_count` columns, `def->indexes` are `index_count` indexes, and each has `part_count`
/// parts.
#[no_mangle]
pub unsafe extern "C" fn es_create_table(
    engine: *const EsEngine,
    name: *const c_char,
    def: *const EsTableDef,
    error: *mut EsError,
) -> EsStatus {
    // SAFETY: the caller's promise.
    let (handle, given) = unsafe { (shared(engine), shared(def)) };
    // SAFETY: the caller's promise.
    let columns = unsafe { slice(given.layout.columns, given.layout.column_count as usize) };
    // SAFETY: the caller's promise.
    let keys = unsafe { slice(given.indexes, given.index_count as usize) };
    let result = handle.guard.run(|| {
        // SAFETY: the caller's promise.
        let (name, indexes) = unsafe { (str_of(name)?, indexes(keys)?) };
        let def = TableDef {
            layout: layout(&given.layout, columns)?,
            format: row_format(given.row_format)?,
            compression: compression(given.compression)?,
            temporary: given.temporary,
            indexes,
            extra: types(columns).encode(),
        };
        Ok(handle.engine.create_counting_table(name, &def, given.auto_increment)?)
    });
    // SAFETY: the caller's promise.
    unsafe { report(result, error) }
}

/// Atomic, and durable on return; `of_prepared`: also where a prepared transaction has rows, which go.
///
/// # Safety
/// `engine` is open.
#[no_mangle]
pub unsafe extern "C" fn es_drop_table(
    engine: *const EsEngine,
    name: *const c_char,
    of_prepared: bool,
    error: *mut EsError,
) -> EsStatus {
    // SAFETY: the caller's promise.
    let handle = unsafe { shared(engine) };
    // SAFETY: the caller's promise.
    let result = handle.guard.run(|| Ok(drop_one(&handle.engine, unsafe { str_of(name) }?, of_prepared)?));
    // SAFETY: the caller's promise.
    unsafe { report(result, error) }
}

fn drop_one(engine: &Engine, name: &str, of_prepared: bool) -> esker::Result<()> {
    match of_prepared {
        true => engine.drop_table_of_prepared(name),
        false => engine.drop_table(name),
    }
}

/// Drops all tables whose names begin so, one after the other; no such table if there is none.
///
/// # Safety
/// `engine` is open.
#[no_mangle]
pub unsafe extern "C" fn es_drop_tables(
    engine: *const EsEngine,
    prefix: *const c_char,
    of_prepared: bool,
    error: *mut EsError,
) -> EsStatus {
    // SAFETY: the caller's promise.
    let handle = unsafe { shared(engine) };
    let result = handle.guard.run(|| {
        // SAFETY: the caller's promise.
        let prefix = unsafe { str_of(prefix) }?;
        let names = handle.engine.tables_that_begin(prefix);
        if names.is_empty() {
            return Err(esker::Error::NoSuchTable(prefix.to_owned()).into());
        }
        Ok(names.iter().try_for_each(|name| drop_one(&handle.engine, name, of_prepared))?)
    });
    // SAFETY: the caller's promise.
    unsafe { report(result, error) }
}

/// Gets the name of a table, valid for the call.
pub type EsNameFn = Option<unsafe extern "C" fn(context: *mut c_void, name: *const c_char)>;

/// Tells the names of all tables that begin so.
///
/// # Safety
/// `engine` is open; `each` may be called with `context`.
#[no_mangle]
pub unsafe extern "C" fn es_tables_that_begin(
    engine: *const EsEngine,
    prefix: *const c_char,
    each: EsNameFn,
    context: *mut c_void,
) {
    // SAFETY: the caller's promise.
    let handle = unsafe { shared(engine) };
    // SAFETY: the caller's promise.
    let names = || Ok(handle.engine.tables_that_begin(unsafe { str_of(prefix) }?));
    for name in handle.guard.clean_up(names).unwrap_or_default() {
        if let (Some(each), Ok(name)) = (each, CString::new(name)) {
            // SAFETY: the caller's promise.
            unsafe { each(context, name.as_ptr()) }
        }
    }
}

/// Is there a table of this name?
///
/// # Safety
/// `engine` is open.
#[no_mangle]
pub unsafe extern "C" fn es_has_table(engine: *const EsEngine, name: *const c_char) -> bool {
    // SAFETY: the caller's promise.
    let handle = unsafe { shared(engine) };
    // SAFETY: the caller's promise.
    let has = || Ok(handle.engine.open_table(unsafe { str_of(name) }?).is_ok());
    handle.guard.clean_up(has).unwrap_or(false)
}

/// Atomic, and durable on return. With `shows` nobody else has known the table so far: who has a view that is older than its
/// last commit is told that the table has changed.
///
/// # Safety
/// `engine` is open.
#[no_mangle]
pub unsafe extern "C" fn es_rename_table(
    engine: *const EsEngine,
    from: *const c_char,
    to: *const c_char,
    shows: bool,
    error: *mut EsError,
) -> EsStatus {
    // SAFETY: the caller's promise.
    let handle = unsafe { shared(engine) };
    let result = handle.guard.run(|| {
        // SAFETY: the caller's promise.
        let (from, to) = unsafe { (str_of(from)?, str_of(to)?) };
        match shows {
            true => handle.engine.show_table(from, to)?,
            false => handle.engine.rename_table(from, to)?,
        }
        Ok(())
    });
    // SAFETY: the caller's promise.
    unsafe { report(result, error) }
}

/// Atomic, and durable on return.
///
/// # Safety
/// `engine` is open.
#[no_mangle]
pub unsafe extern "C" fn es_truncate_table(
    engine: *const EsEngine,
    name: *const c_char,
    error: *mut EsError,
) -> EsStatus {
    // SAFETY: the caller's promise.
    let handle = unsafe { shared(engine) };
    // SAFETY: the caller's promise.
    let result = handle.guard.run(|| Ok(handle.engine.truncate_table(unsafe { str_of(name) }?)?));
    // SAFETY: the caller's promise.
    unsafe { report(result, error) }
}

/// `LockTimeout` while a prepared transaction has written in the table: it would be in no copy that takes the table's place.
///
/// # Safety
/// `table` is open.
#[no_mangle]
pub unsafe extern "C" fn es_check_copied(table: *const EsTable, error: *mut EsError) -> EsStatus {
    // SAFETY: the caller's promise.
    let handle = unsafe { shared(table) };
    let result = handle.guard.run(|| Ok(handle.engine.check_copied(&handle.table)?));
    // SAFETY: the caller's promise.
    unsafe { report(result, error) }
}

/// `Layout` when the table was created with another layout, other types, or other indexes but for their names. Where only their order
/// is another one the table gets that of `keys`, durably: nobody has it open by another. `*table` is written only if it succeeds.
///
/// # Safety
/// `expected->columns` are `column_count` columns, `keys` are `key_count` indexes, and each has `part_count` parts. From here
/// on every row image of the table lies as `expected` says.
#[no_mangle]
pub unsafe extern "C" fn es_table_open(
    engine: *const EsEngine,
    name: *const c_char,
    expected: *const EsLayout,
    keys: *const EsIndex,
    key_count: u32,
    table: *mut *mut EsTable,
    error: *mut EsError,
) -> EsStatus {
    // SAFETY: the caller's promise.
    let (handle, expected, table) = unsafe { (shared(engine), shared(expected), out(table)) };
    // SAFETY: the caller's promise.
    let columns = unsafe { slice(expected.columns, expected.column_count as usize) };
    // SAFETY: the caller's promise.
    let keys = unsafe { slice(keys, key_count as usize) };
    let result = handle.guard.run(|| {
        // SAFETY: the caller's promise.
        let (name, indexes) = unsafe { (str_of(name)?, indexes(keys)?) };
        let expected = layout(expected, columns)?;
        let opened = handle.engine.open_table(name)?;
        if **opened.layout() != expected || !handle.engine.order_indexes(&opened, &indexes)? {
            return Err(Failure::layout(name));
        }
        check_types(name, &opened, columns)?;
        let opened = EsTable { table: opened, engine: handle.engine.clone(), guard: handle.guard.clone() };
        table.write(Box::into_raw(Box::new(opened)));
        Ok(())
    });
    // SAFETY: the caller's promise.
    unsafe { report(result, error) }
}

/// Lets go of a table.
///
/// # Safety
/// Its cursors are closed, and no session's stage is open for it. `table` may be NULL; it is not used again.
#[no_mangle]
pub unsafe extern "C" fn es_table_close(table: *mut EsTable) {
    // SAFETY: made by es_table_open; the caller's promise.
    let Some(table) = (unsafe { take(table) }) else { return };
    let guard = table.guard.clone();
    let _ = guard.clean_up(|| {
        drop(table);
        Ok(())
    });
}

/// Figures; all 0 after a bug in Esker.
///
/// # Safety
/// `table` is open.
#[no_mangle]
pub unsafe extern "C" fn es_table_get_stats(table: *const EsTable, stats: *mut EsTableStats) {
    // SAFETY: the caller's promise.
    let (handle, stats) = unsafe { (shared(table), out(stats)) };
    let figures = handle.guard.clean_up(|| {
        let figures = handle.table.stats();
        Ok(EsTableStats {
            rows: figures.rows,
            data_bytes: figures.data_bytes,
            row_bytes: (figures.raw_bytes + figures.memtable_bytes)
                .max(figures.rows * fixed_bytes(handle.table.layout())),
            free_bytes: figures.dead_bytes,
            runs: figures.runs,
            create_time: figures.created_unix_s,
            update_time: figures.updated_unix_s,
            row_format: match handle.table.format() {
                RowFormat::Dynamic => EsRowFormat::Dynamic,
                RowFormat::Fixed => EsRowFormat::Fixed,
            },
            compression: match handle.table.compression() {
                Compression::None => EsCompression::None,
                Compression::Lz4 => EsCompression::Lz4,
                Compression::Zstd => EsCompression::Zstd,
            },
        })
    });
    stats.write(figures.unwrap_or_default());
}

/// Bytes of its indexes, in runs and in memory; 0 after a bug in Esker.
///
/// # Safety
/// `table` is open.
#[no_mangle]
pub unsafe extern "C" fn es_table_index_bytes(table: *const EsTable) -> u64 {
    // SAFETY: the caller's promise.
    let handle = unsafe { shared(table) };
    handle.guard.clean_up(|| Ok(handle.table.index_bytes())).unwrap_or_default()
}

/// Bytes of the columns that have the same length in every row.
fn fixed_bytes(layout: &Layout) -> u64 {
    let width = |column: &Column| match column.kind {
        ColumnKind::Fixed { width } | ColumnKind::Padded { width, .. } => u64::from(width),
        ColumnKind::Var { .. } | ColumnKind::Blob { .. } => 0,
    };
    layout.columns.iter().map(width).sum()
}

/// Tells how far it is; false: stop.
///
/// # Safety
/// `progress` may be called with `context`.
pub(crate) unsafe fn tell(progress: EsProgressFn, context: *mut c_void, done: u64, total: u64) -> bool {
    // SAFETY: the caller's promise.
    progress.is_none_or(|progress| !unsafe { progress(context, done, total) })
}

/// Reads and verifies blocks. `Damage`: the first damage found, in `error`; `*damaged` counts all, `*blocks` those read.
/// Both are written before a failure only if it is `Damage` or `Interrupted`, which is when `progress` stopped it.
///
/// # Safety
/// `progress` may be NULL; it is called in this thread.
#[no_mangle]
pub unsafe extern "C" fn es_table_check(
    table: *const EsTable,
    scope: Unchecked<EsCheckScope>,
    progress: EsProgressFn,
    context: *mut c_void,
    blocks: *mut u64,
    damaged: *mut u64,
    error: *mut EsError,
) -> EsStatus {
    // SAFETY: the caller's promise.
    let (handle, blocks, damaged) = unsafe { (shared(table), out(blocks), out(damaged)) };
    let result = handle.guard.run(|| {
        // SAFETY: the caller's promise.
        let mut go_on = |done, total| unsafe { tell(progress, context, done, total) };
        let scope = match scope.checked()? {
            EsCheckScope::All => CheckScope::All,
            EsCheckScope::Unchecked => CheckScope::Unchecked,
            EsCheckScope::Quick => CheckScope::Quick,
            EsCheckScope::Extended => CheckScope::Extended,
        };
        let report = handle.engine.check_part(&handle.table, scope, &mut go_on)?;
        blocks.write(report.blocks);
        damaged.write(report.damages.len() as u64);
        // Here all collations are known: an index whose keys cannot be made has to be built anew.
        match report.damages.into_iter().chain(report.unheld).next() {
            Some(first) => Err(first.into()),
            None if report.stopped => Err(Failure::interrupted()),
            None => Ok(()),
        }
    });
    // SAFETY: the caller's promise.
    unsafe { report(result, error) }
}

/// Merges what can be merged. `Interrupted` if `progress` stopped it: what was done by then stays.
///
/// # Safety
/// `progress` may be NULL; it is called in this thread.
#[no_mangle]
pub unsafe extern "C" fn es_table_optimize(
    table: *const EsTable,
    progress: EsProgressFn,
    context: *mut c_void,
    error: *mut EsError,
) -> EsStatus {
    // SAFETY: the caller's promise.
    let handle = unsafe { shared(table) };
    // SAFETY: the caller's promise.
    let mut go_on = |done, total| unsafe { tell(progress, context, done, total) };
    let result = handle.guard.run(|| Ok(handle.engine.optimize(&handle.table, &mut go_on)?));
    // SAFETY: the caller's promise.
    unsafe { report(result, error) }
}

/// Finds out how many rows are alike by each index, and keeps that durably. `Interrupted` if `progress` stopped it: then what
/// was known stays.
///
/// # Safety
/// As for `es_table_optimize`.
#[no_mangle]
pub unsafe extern "C" fn es_table_analyze(
    table: *const EsTable,
    progress: EsProgressFn,
    context: *mut c_void,
    error: *mut EsError,
) -> EsStatus {
    // SAFETY: the caller's promise.
    let handle = unsafe { shared(table) };
    // SAFETY: the caller's promise.
    let mut go_on = |done, total| unsafe { tell(progress, context, done, total) };
    let result = handle.guard.run(|| Ok(handle.engine.analyze(&handle.table, &mut go_on)?));
    // SAFETY: the caller's promise.
    unsafe { report(result, error) }
}
