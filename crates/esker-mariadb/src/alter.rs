// SPDX-License-Identifier: MIT OR Apache-2.0
//! Indexes that a table gets and loses while its rows stay.

use crate::boundary::{out, shared, slice, take};
use crate::engine::EsEngine;
use crate::guard::Guard;
use crate::index::{index, EsIndex};
use crate::status::{report, str_of, EsError, EsStatus, Failure};
use crate::table::{tell, EsProgressFn, EsTable};
use esker::{BuiltIndexes, Engine, IndexPlan};
use std::ffi::{c_char, c_void};
use std::sync::Arc;

/// An index that the table does not have yet.
pub const ES_NEW_INDEX: u32 = !0;

/// One of the indexes that a table is to have.
#[repr(C)]
pub struct EsIndexPlan {
    /// Of one that is there only the name counts.
    pub(crate) index: EsIndex,
    /// Its place among the table's indexes now, or ES_NEW_INDEX.
    pub(crate) place: u32,
}

/// Indexes that a table is to have, built. Used by one thread at a time.
pub struct EsBuiltIndexes {
    built: BuiltIndexes,
    engine: Engine,
    guard: Arc<Guard>,
}

/// # Safety
/// As for [`index`].
unsafe fn plan(c: &EsIndexPlan) -> Result<IndexPlan, Failure> {
    // SAFETY: the caller's promise.
    let def = unsafe { index(&c.index)? };
    Ok(match c.place {
        ES_NEW_INDEX => IndexPlan::Add(def),
        place => IndexPlan::Keep { index: place as usize, name: def.name },
    })
}

/// Builds the indexes of the plan that are new, in its order, of all rows that are committed, while others read. Nothing of it
/// shows before `es_alter_indexes`. `DuplicateKey`: `*place` is the index's in the plan, `*row` a row that has another one's
/// key; both are written only then, `*built` only if it succeeds. `Interrupted` if `progress` stopped it.
///
/// # Safety
/// `plan` are `count` indexes, and each has `part_count` parts. `progress` may be NULL; it is called in this thread. Nobody
/// writes in the table until what was built is used or let go of.
#[no_mangle]
pub unsafe extern "C" fn es_build_indexes(
    table: *const EsTable,
    plan: *const EsIndexPlan,
    count: u32,
    progress: EsProgressFn,
    context: *mut c_void,
    built: *mut *mut EsBuiltIndexes,
    place: *mut u32,
    row: *mut u64,
    error: *mut EsError,
) -> EsStatus {
    // SAFETY: the caller's promise.
    let (handle, built) = unsafe { (shared(table), out(built)) };
    // SAFETY: the caller's promise.
    let (place, row, wanted) = unsafe { (out(place), out(row), slice(plan, count as usize)) };
    let result = handle.guard.run(|| {
        // SAFETY: the caller's promise.
        let wanted = wanted.iter().map(|c| unsafe { self::plan(c) }).collect::<Result<Vec<_>, _>>()?;
        // SAFETY: the caller's promise.
        let mut go_on = |done, total| unsafe { tell(progress, context, done, total) };
        let made = handle.engine.build_indexes(&handle.table, &wanted, &mut go_on)?;
        let made = EsBuiltIndexes { built: made, engine: handle.engine.clone(), guard: handle.guard.clone() };
        built.write(Box::into_raw(Box::new(made)));
        Ok(())
    });
    if let Some((index, of)) = result.as_ref().err().and_then(|failure| failure.duplicate) {
        place.write(index as u32);
        row.write(of.0);
    }
    // SAFETY: the caller's promise.
    unsafe { report(result, error) }
}

/// Gives tables the indexes that were built for them, and no others: `count` of them, each of another table. Atomic, and
/// durable on return.
///
/// # Safety
/// All were built in the same engine. None of them is used again, whatever comes of it.
#[no_mangle]
pub unsafe extern "C" fn es_alter_indexes(
    built: *const *mut EsBuiltIndexes,
    count: u32,
    error: *mut EsError,
) -> EsStatus {
    // SAFETY: made by es_build_indexes; the caller's promise.
    let made = unsafe { slice(built, count as usize) }.iter().filter_map(|b| unsafe { take(*b) });
    let made: Vec<EsBuiltIndexes> = made.map(|made| *made).collect();
    let Some((engine, guard)) = made.first().map(|made| (made.engine.clone(), made.guard.clone())) else {
        return EsStatus::Ok;
    };
    let built = made.into_iter().map(|made| made.built).collect();
    let result = guard.run(|| Ok(engine.alter_indexes(built)?));
    // SAFETY: the caller's promise.
    unsafe { report(result, error) }
}

/// Lets go of indexes that are not wanted.
///
/// # Safety
/// `built` may be NULL; it is not used again.
#[no_mangle]
pub unsafe extern "C" fn es_built_indexes_close(built: *mut EsBuiltIndexes) {
    // SAFETY: made by es_build_indexes; the caller's promise.
    let Some(made) = (unsafe { take(built) }) else { return };
    let guard = made.guard.clone();
    let _ = guard.clean_up(|| {
        drop(made);
        Ok(())
    });
}

/// A number that is another one after `es_alter_indexes`, also after a restart.
///
/// # Safety
/// `engine` is open.
#[no_mangle]
pub unsafe extern "C" fn es_table_version(
    engine: *const EsEngine,
    name: *const c_char,
    version: *mut u64,
    error: *mut EsError,
) -> EsStatus {
    // SAFETY: the caller's promise.
    let (handle, version) = unsafe { (shared(engine), out(version)) };
    let result = handle.guard.run(|| {
        // SAFETY: the caller's promise.
        let table = handle.engine.open_table(unsafe { str_of(name)? })?;
        version.write(table.version());
        Ok(())
    });
    // SAFETY: the caller's promise.
    unsafe { report(result, error) }
}
