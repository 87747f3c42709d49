// SPDX-License-Identifier: MIT OR Apache-2.0
//! The stage: rows in bulk, written by the front end without a call each.
//!
//! Invariant: what is taken of a stage lies within the room that was given, and its bytes and its ids count the same
//! rows.

use crate::boundary::{exclusive, shared};
use crate::session::EsSession;
use crate::status::EsStatus;
use crate::table::EsTable;
use esker::Session;

/// Room for more rows of a table, to be filled without a call each. When `es_insert` has inserted a row in bulk, there
/// may be some: while `table` is the row's table and `next` is not `end`, copy the next row's image to `next`, take
/// `row_id` as its id, move `next` by the image size and `row_id` by one. The next call on the session, whatever it is,
/// takes what was written; if that fails, so does the call. Images must not point anywhere.
#[repr(C)]
pub struct EsStage {
    /// NULL: there is no room.
    pub(crate) table: *const EsTable,
    pub(crate) next: *mut u8,
    pub(crate) end: *mut u8,
    pub(crate) row_id: u64,
}

impl EsStage {
    fn none() -> EsStage {
        let nowhere = std::ptr::null_mut();
        EsStage { table: std::ptr::null(), next: nowhere, end: nowhere, row_id: 0 }
    }
}

/// The engine's side of a stage: what the front end's moved on from.
pub(crate) struct Staging {
    /// Shared with the front end, which holds its address.
    shared: *mut EsStage,
    start: usize,
    end: usize,
    stride: usize,
    first_id: u64,
}

impl Staging {
    pub(crate) fn new() -> Staging {
        let shared = Box::into_raw(Box::new(EsStage::none()));
        Staging { shared, start: 0, end: 0, stride: 1, first_id: 0 }
    }

    /// Opens room behind a row that was just inserted, if there is some.
    #[cold]
    pub(crate) fn open(&mut self, session: &mut Session, table: &EsTable) {
        let Some(stage) = session.stage(&table.table) else { return };
        // SAFETY: the stage's images have this room.
        let end = unsafe { stage.images.add(stage.rows * stage.stride) };
        (self.start, self.end, self.stride) = (stage.images as usize, end as usize, stage.stride);
        self.first_id = stage.first.0;
        // SAFETY: the front end uses its side only between calls.
        unsafe { *self.shared = EsStage { table, next: stage.images, end, row_id: stage.first.0 } };
    }

    /// Takes the rows that were written. The stage is gone.
    #[cold]
    pub(crate) fn close(&mut self, session: &mut Session) -> esker::Result<()> {
        // SAFETY: the front end uses its side only between calls.
        let stage = unsafe { std::ptr::replace(self.shared, EsStage::none()) };
        let rows = self.rows(&stage);
        // SAFETY: so many images were written.
        unsafe { session.unstage(rows) }
    }

    /// How many rows the front end says that it wrote: by their bytes and by their ids, which must agree.
    fn rows(&self, stage: &EsStage) -> usize {
        let next = stage.next as usize;
        assert!((self.start..=self.end).contains(&next), "the stage was written past its end");
        let (rows, rest) = ((next - self.start) / self.stride, (next - self.start) % self.stride);
        let ids = stage.row_id.wrapping_sub(self.first_id);
        assert!(rest == 0 && ids == rows as u64, "the stage has {rows} rows, {rest} bytes more, and {ids} ids");
        rows
    }

    pub(crate) fn is_open(&self) -> bool {
        // SAFETY: the front end uses its side only between calls.
        unsafe { !(*self.shared).table.is_null() }
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // SAFETY: made by `new`; the session is being closed.
        drop(unsafe { Box::from_raw(self.shared) });
    }
}

/// The session's stage: belongs to the session and stays where it is as long as that.
///
/// # Safety
/// `session` is open. The stage is used between calls on the session only, as `EsStage` says.
#[no_mangle]
pub unsafe extern "C" fn es_session_stage(session: *const EsSession) -> *mut EsStage {
    // SAFETY: the caller's promise.
    unsafe { shared(session) }.staging.shared
}

/// Takes the staged rows: needed before their table is closed.
///
/// # Safety
/// `session` is open.
#[no_mangle]
pub unsafe extern "C" fn es_unstage(session: *mut EsSession) -> EsStatus {
    // SAFETY: the caller's promise.
    unsafe { exclusive(session) }.run(|_| Ok(()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stage(next: usize, row_id: u64) -> EsStage {
        EsStage { next: next as *mut u8, row_id, ..EsStage::none() }
    }

    fn staging() -> Staging {
        let mut staging = Staging::new();
        (staging.start, staging.end, staging.stride, staging.first_id) = (1000, 1100, 10, 5);
        staging
    }

    #[test]
    fn bytes_and_ids_count_the_rows() {
        assert_eq!(staging().rows(&stage(1000, 5)), 0);
        assert_eq!(staging().rows(&stage(1100, 15)), 10);
    }

    #[test]
    #[should_panic(expected = "past its end")]
    fn more_than_the_room_is_refused() {
        staging().rows(&stage(1110, 16));
    }

    #[test]
    #[should_panic(expected = "2 rows, 3 bytes more")]
    fn a_part_of_a_row_is_refused() {
        staging().rows(&stage(1023, 7));
    }

    #[test]
    #[should_panic(expected = "2 rows, 0 bytes more, and 3 ids")]
    fn other_ids_are_refused() {
        staging().rows(&stage(1020, 8));
    }
}
