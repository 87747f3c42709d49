// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reading by an index.

use crate::boundary::{exclusive, out, out_slice, shared, slice, take};
use crate::cursor::{EsBatch, EsScanOptions};
use crate::guard::Guard;
use crate::session::EsSession;
use crate::status::EsStatus;
use crate::table::EsTable;
use esker::{Direction, IndexBatch, IndexCursor, KeyRange, ScanOptions, Session, Table};
use esker_format::key_bytes::pass_prefix;
use esker_format::RowId;
use std::mem::MaybeUninit;
use std::sync::Arc;

/// Where a range of keys begins or ends: before all keys whose first `parts` parts are like those of a row image, or behind
/// them.
#[repr(C)]
pub struct EsKeyBound {
    /// NULL: there is no bound on this side.
    pub(crate) image: *const u8,
    pub(crate) parts: u32,
    pub(crate) behind: bool,
}

/// Keys of an index.
#[repr(C)]
pub struct EsKeyRange {
    pub(crate) from: EsKeyBound,
    pub(crate) to: EsKeyBound,
}

/// An open cursor over an index. Belongs to its session.
pub struct EsIndexCursor {
    cursor: IndexCursor,
    table: Arc<Table>,
    index: usize,
    options: ScanOptions,
    direction: Direction,
    guard: Arc<Guard>,
    /// Who reads chooses from batches.
    choosing: bool,
    /// Rows of the batch that was given last.
    rows: usize,
    /// The key of the row given last in the batches before; none if there was no row since the seek.
    passed: Option<Vec<u8>>,
    /// Nothing was given at last, and in this direction.
    ended: Option<Direction>,
    /// The range that is read is nothing, and lies behind the last keys.
    behind_all: bool,
}

/// The key bytes at a bound, and whether there are any: behind the last keys there are none.
///
/// # Safety
/// As for [`es_index_seek`].
unsafe fn bound(table: &Table, index: usize, bound: &EsKeyBound) -> esker::Result<Option<Vec<u8>>> {
    if bound.image.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise; es_table_open compared layouts.
    let (mut key, _) = unsafe { table.key_prefix(index, bound.image, bound.parts as usize) }?;
    Ok((!bound.behind || pass_prefix(&mut key)).then_some(key))
}

/// The bytes with which all keys of a range begin, if it is just the keys that begin with some, and whether one row can have
/// such a key at most.
///
/// # Safety
/// As for [`es_index_seek`].
unsafe fn prefix(table: &Table, index: usize, given: &EsKeyRange) -> esker::Result<Option<(Vec<u8>, bool)>> {
    let EsKeyRange { from, to } = given;
    let is_prefix = from.image == to.image && from.parts == to.parts && !from.behind && to.behind;
    if from.image.is_null() || !is_prefix {
        return Ok(None);
    }
    // SAFETY: the caller's promise; es_table_open compared layouts.
    unsafe { table.key_prefix(index, from.image, from.parts as usize) }.map(Some)
}

/// The range, and is it nothing, behind the last keys?
///
/// # Safety
/// As for [`es_index_seek`].
unsafe fn range(table: &Table, index: usize, given: &EsKeyRange) -> esker::Result<(KeyRange, bool)> {
    // SAFETY: the caller's promise.
    let (from, to) = unsafe { (bound(table, index, &given.from)?, bound(table, index, &given.to)?) };
    let range = match from {
        Some(from) => KeyRange { from, to },
        None if given.from.image.is_null() => KeyRange { from: Vec::new(), to },
        None => return Ok((nothing(), true)),
    };
    Ok((range, false))
}

/// No keys at all.
fn nothing() -> KeyRange {
    KeyRange { from: Vec::new(), to: Some(Vec::new()) }
}

fn batch_of(given: &IndexBatch<'_>) -> EsBatch {
    EsBatch { images: given.images, stride: given.stride, row_ids: given.ids.as_ptr().cast(), count: given.ids.len() }
}

fn direction(backward: bool) -> Direction {
    match backward {
        false => Direction::Forward,
        true => Direction::Backward,
    }
}

impl EsIndexCursor {
    fn give(&mut self, session: &mut Session, batch: &mut MaybeUninit<EsBatch>) -> esker::Result<()> {
        // On an error there is nothing to go on from but what came before.
        self.pass();
        let given = self.cursor.next_batch(session)?;
        self.rows = given.ids.len();
        self.ended = given.ids.is_empty().then_some(self.direction);
        batch.write(batch_of(&given));
        Ok(())
    }

    /// What lies in this direction of where the cursor stands: behind or before a row; at an end, from which it comes back with
    /// all that lies there now; or where there was nothing. And is that nothing, behind the last keys?
    fn rest(&self, direction: Direction) -> (KeyRange, bool) {
        let has_ended = self.ended == Some(direction);
        let comes_back = self.ended.is_some() && !has_ended;
        let range = self.cursor.range();
        let from = |from: Vec<u8>| (KeyRange { from, to: None }, false);
        let until = |to: Option<Vec<u8>>| (KeyRange { from: Vec::new(), to }, false);
        match (&self.passed, direction) {
            (Some(key), _) if !comes_back => (KeyRange::default().rest(key, direction), false),
            // An empty range without a beginning lies before all keys, unless it is said to lie behind them.
            (None, Direction::Forward) if self.behind_all => (range.clone(), true),
            (None, Direction::Backward) if self.behind_all => until(None),
            // What came to the range since is passed over.
            (None, Direction::Forward) if has_ended => match &range.to {
                Some(to) => from(to.clone()),
                None => (nothing(), true),
            },
            (None, Direction::Backward) if has_ended => until(Some(range.from.clone())),
            (_, Direction::Forward) => from(range.from.clone()),
            (_, Direction::Backward) => until(range.to.clone()),
        }
    }

    /// The batch that was given last is over.
    fn pass(&mut self) {
        if self.rows > 0 {
            let key = self.passed.get_or_insert_with(Vec::new);
            key.clear();
            key.extend_from_slice(self.cursor.key(self.rows - 1));
            self.rows = 0;
        }
    }
}

/// A cursor over the index at this place of the table's. `*cursor` is written only if it succeeds.
///
/// # Safety
/// As for `es_scan_open`.
#[no_mangle]
pub unsafe extern "C" fn es_index_open(
    session: *mut EsSession,
    table: *const EsTable,
    index: u32,
    options: *const EsScanOptions,
    cursor: *mut *mut EsIndexCursor,
) -> EsStatus {
    // SAFETY: the caller's promise.
    let (session, table, options, cursor) =
        unsafe { (exclusive(session), shared(table), shared(options), out(cursor)) };
    let (index, guard) = (index as usize, table.guard.clone());
    session.run_checked(|s| {
        // SAFETY: the caller's promise.
        let wanted = unsafe { options.checked(&table.table) }?;
        let opened = EsIndexCursor {
            cursor: s.open_index_cursor(&table.table, index, wanted.clone())?,
            table: table.table.clone(),
            index,
            options: wanted,
            direction: Direction::Forward,
            guard,
            choosing: false,
            rows: 0,
            passed: None,
            ended: None,
            behind_all: false,
        };
        cursor.write(Box::into_raw(Box::new(opened)));
        Ok(())
    })
}

/// Frees a cursor, the rows that it gave and what it pins.
///
/// # Safety
/// `cursor` may be NULL; neither it nor its rows are used again.
#[no_mangle]
pub unsafe extern "C" fn es_index_close(cursor: *mut EsIndexCursor) {
    // SAFETY: made by es_index_open; the caller's promise.
    let Some(cursor) = (unsafe { take(cursor) }) else { return };
    let guard = cursor.guard.clone();
    let _ = guard.clean_up(|| {
        drop(cursor);
        Ok(())
    });
}

/// The first rows of a range of keys, or with `backward` the last. A cursor that locks gives one at a time. With `choosing`
/// each batch, from here to the next seek, is one to choose from by `es_index_choose`: its images tell the columns that
/// stand wholly in the key, and its row ids the rows. `*batch` is written only if it succeeds.
///
/// # Safety
/// `session` is the one that the cursor was opened with. The images of the range's bounds lie as the table's do; in them only
/// the columns of the parts count, and blobs' pointers are valid for their lengths. What the cursor gave before is not used
/// again.
#[no_mangle]
pub unsafe extern "C" fn es_index_seek(
    cursor: *mut EsIndexCursor,
    session: *mut EsSession,
    keys: *const EsKeyRange,
    backward: bool,
    choosing: bool,
    batch: *mut EsBatch,
) -> EsStatus {
    // SAFETY: the caller's promise.
    let (cursor, session, keys, batch) = unsafe { (exclusive(cursor), exclusive(session), shared(keys), out(batch)) };
    session.run(|s| {
        cursor.choosing = choosing;
        cursor.cursor.set_choosing(choosing);
        cursor.rows = 0;
        cursor.passed = None;
        cursor.behind_all = false;
        cursor.direction = direction(backward);
        // SAFETY: the caller's promise.
        match unsafe { prefix(&cursor.table, cursor.index, keys) }? {
            Some((key, true)) => cursor.cursor.seek_key(s, &key, cursor.direction)?,
            Some((prefix, false)) => cursor.cursor.seek(s, KeyRange::of_prefix(&prefix), cursor.direction)?,
            None => {
                // SAFETY: the caller's promise.
                let (keys, behind_all) = unsafe { range(&cursor.table, cursor.index, keys) }?;
                cursor.behind_all = behind_all;
                cursor.cursor.seek(s, keys, cursor.direction)?;
            }
        }
        cursor.give(s, batch)
    })
}

/// The next rows in the direction of the seek. `*batch` is written only if it succeeds.
///
/// # Safety
/// `session` is the one that the cursor was opened with. What the cursor gave before is not used again.
#[no_mangle]
pub unsafe extern "C" fn es_index_next_batch(
    cursor: *mut EsIndexCursor,
    session: *mut EsSession,
    batch: *mut EsBatch,
) -> EsStatus {
    // SAFETY: the caller's promise.
    let (cursor, session, batch) = unsafe { (exclusive(cursor), exclusive(session), out(batch)) };
    session.run(|s| cursor.give(s, batch))
}

/// Of the batch that was given last the rows at `count` places, which rise, with all their columns; where these take much memory only
/// the first of them, and the next batch begins behind those. Rows are left out that the
/// session's own transaction has changed since. `*batch` is written only if it succeeds.
///
/// # Safety
/// As for `es_index_next_batch`; `places` are `count` numbers.
#[no_mangle]
pub unsafe extern "C" fn es_index_choose(
    cursor: *mut EsIndexCursor,
    session: *mut EsSession,
    places: *const u32,
    count: usize,
    batch: *mut EsBatch,
) -> EsStatus {
    // SAFETY: the caller's promise.
    let (cursor, session, batch) = unsafe { (exclusive(cursor), exclusive(session), out(batch)) };
    // SAFETY: the caller's promise.
    let places = unsafe { slice(places, count) };
    session.run(|s| {
        // After an error there is no batch to count on from.
        cursor.rows = 0;
        let given = cursor.cursor.choose(s, places)?;
        cursor.rows = given.ids.len();
        batch.write(batch_of(&given));
        Ok(())
    })
}

/// The rows behind a row, or with `backward` before it, whatever the range was that was sought. `taken`: how many rows the
/// caller took of the batch that was given last; it is the last of them, or if that is none, the row given before. Where
/// nothing was found it is the range that was sought; and who turns at an end meets the last row again. `anew`: the statement
/// of the session in which the cursor was opened is over, and the cursor goes on in this one.
///
/// # Safety
/// As for `es_index_next_batch`.
#[no_mangle]
pub unsafe extern "C" fn es_index_turn(
    cursor: *mut EsIndexCursor,
    session: *mut EsSession,
    taken: usize,
    backward: bool,
    anew: bool,
    batch: *mut EsBatch,
) -> EsStatus {
    // SAFETY: the caller's promise.
    let (cursor, session, batch) = unsafe { (exclusive(cursor), exclusive(session), out(batch)) };
    session.run(|s| {
        cursor.rows = cursor.rows.min(taken);
        cursor.pass();
        let (rest, behind_all) = cursor.rest(direction(backward));
        if anew {
            cursor.cursor = s.open_index_cursor(&cursor.table, cursor.index, cursor.options.clone())?;
            cursor.cursor.set_choosing(cursor.choosing);
        }
        cursor.direction = direction(backward);
        cursor.behind_all = behind_all;
        cursor.cursor.seek(s, rest, cursor.direction)?;
        cursor.give(s, batch)
    })
}

/// Was the last row read without the lock that another holds, in its last committed version?
///
/// # Safety
/// `cursor` is open.
#[no_mangle]
pub unsafe extern "C" fn es_index_was_semi_consistent(cursor: *const EsIndexCursor) -> bool {
    // SAFETY: the caller's promise.
    unsafe { shared(cursor) }.cursor.was_semi_consistent()
}

/// The last row once more, now with its lock; if it is not there any more, the next one.
///
/// # Safety
/// As for `es_index_next_batch`. The last row was read without the lock that another holds.
#[no_mangle]
pub unsafe extern "C" fn es_index_read_again(
    cursor: *mut EsIndexCursor,
    session: *mut EsSession,
    batch: *mut EsBatch,
) -> EsStatus {
    // SAFETY: the caller's promise.
    let (cursor, session, batch) = unsafe { (exclusive(cursor), exclusive(session), out(batch)) };
    session.run(|s| {
        cursor.pass();
        cursor.cursor.step_back();
        cursor.cursor.set_semi_consistent(false);
        let result = cursor.give(s, batch);
        cursor.cursor.set_semi_consistent(true);
        result
    })
}

/// About how many rows there are in a range of keys.
///
/// # Safety
/// The images of the range's bounds: as for `es_index_seek`.
#[no_mangle]
pub unsafe extern "C" fn es_estimate_rows(
    session: *mut EsSession,
    table: *const EsTable,
    index: u32,
    keys: *const EsKeyRange,
    rows: *mut u64,
) -> EsStatus {
    // SAFETY: the caller's promise.
    let (session, table, keys, rows) = unsafe { (exclusive(session), shared(table), shared(keys), out(rows)) };
    let index = index as usize;
    session.run(|s| {
        // SAFETY: the caller's promise.
        let (keys, _) = unsafe { range(&table.table, index, keys) }?;
        rows.write(s.estimate_rows(&table.table, index, &keys)?);
        Ok(())
    })
}

/// About how many rows are alike in the first part of the index's key, in the first two, and so on, of `parts`, which is not
/// more than it has. False: nothing is known, and nothing was written; there may be no rows.
///
/// # Safety
/// `rows` is room for `parts` numbers.
#[no_mangle]
pub unsafe extern "C" fn es_rows_alike(table: *const EsTable, index: u32, rows: *mut f64, parts: u32) -> bool {
    // SAFETY: the caller's promise.
    let (table, rows) = unsafe { (shared(table), out_slice(rows, parts as usize)) };
    let found = table.guard.run(|| Ok(table.engine.rows_alike(&table.table, index as usize)?));
    let found = found.ok().filter(|found| found.len() >= rows.len() && !rows.is_empty());
    rows.iter_mut().zip(found.iter().flatten()).for_each(|(to, alike)| {
        to.write(*alike);
    });
    found.is_some()
}

/// Row ids go out as the numbers that they are.
const _: () = assert!(size_of::<RowId>() == size_of::<u64>() && align_of::<RowId>() == align_of::<u64>());
