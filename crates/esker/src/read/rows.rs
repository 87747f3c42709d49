//! Rows for Rust programs: a scan that gives out values instead of row images, without `unsafe`.
//!
//! Invariant: the images of the current batch stay valid while its rows are given out, because nobody but
//! [`Rows::next`] moves the cursor.

use crate::catalog::table::Table;
use crate::read::cursor::{Cursor, ScanOptions};
use crate::session::Session;
use crate::{Error, Result};
use esker_format::row::{self, Value};
use esker_format::{Layout, RowId};
use std::sync::Arc;

/// A scan that gives out one row after the other; made by [`Session::rows`].
pub struct Rows {
    cursor: Cursor,
    layout: Arc<Layout>,
    images: *const u8,
    stride: usize,
    ids: Vec<RowId>,
    at: usize,
    packed: Vec<u8>,
}

/// A row that [`Rows::next`] gave out.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a> {
    id: RowId,
    layout: &'a Layout,
    packed: &'a [u8],
}

impl Session {
    /// Begins a plain scan of `table` that gives out whole rows.
    pub fn rows(&mut self, table: &Arc<Table>) -> Result<Rows> {
        let mask = table.all_columns();
        let cursor = self.scan(table, ScanOptions { mask, ..ScanOptions::default() })?;
        Ok(Rows {
            cursor,
            layout: table.layout.clone(),
            images: std::ptr::null(),
            stride: 0,
            ids: Vec::new(),
            at: 0,
            packed: Vec::new(),
        })
    }
}

impl Rows {
    /// The next row; `None` at the end. `session` is the one that began the scan.
    #[allow(clippy::should_implement_trait)] // an iterator could not lend the row
    pub fn next(&mut self, session: &mut Session) -> Result<Option<Row<'_>>> {
        if self.at == self.ids.len() {
            self.ids.clear();
            self.at = 0;
            let batch = self.cursor.next_batch(session)?;
            if batch.ids.is_empty() {
                return Ok(None);
            }
            (self.images, self.stride) = (batch.images, batch.stride);
            self.ids.extend_from_slice(batch.ids);
        }
        let at = self.at;
        self.at += 1;
        self.packed.clear();
        // SAFETY: the batch has an image for each id, with all columns decoded, and the cursor has not moved since.
        unsafe { row::pack(&self.layout, self.images.add(at * self.stride), &mut self.packed) };
        Ok(Some(Row { id: self.ids[at], layout: &self.layout, packed: &self.packed }))
    }
}

impl<'a> Row<'a> {
    /// Its id.
    pub fn id(&self) -> RowId {
        self.id
    }

    /// The packed row, as [`Session::update_row`] takes it.
    pub fn packed(&self) -> &'a [u8] {
        self.packed
    }

    /// Its values, a column each, as [`row::pack_values`] takes them.
    pub fn values(&self) -> Result<Vec<Value<'a>>> {
        row::values(self.layout, self.packed).map_err(|e| Error::InvalidArgument(e.to_string()))
    }
}
