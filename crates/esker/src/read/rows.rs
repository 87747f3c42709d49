//! Rows for Rust programs: a scan that gives out values instead of row images, without `unsafe`.
//!
//! Invariant: the images of the current batch stay valid while its rows are given out, because nobody but
//! [`Rows::next`] moves the cursor.

use crate::catalog::table::Table;
use crate::read::cursor::{Cursor, ScanOptions};
use crate::session::Session;
use crate::value::{self, FromValue, Value};
use crate::{Error, Result};
use esker_format::row;
use esker_format::{RowId, Schema};
use std::sync::Arc;

/// A scan that gives out one row after the other; made by [`Session::rows`].
pub struct Rows<'s> {
    session: &'s mut Session,
    table: Arc<Table>,
    cursor: Cursor,
    images: *const u8,
    stride: usize,
    ids: Vec<RowId>,
    at: usize,
    packed: Vec<u8>,
}

/// A row that [`Rows::next`] gave out.
#[derive(Clone, Copy)]
pub struct Row<'a> {
    id: RowId,
    table: &'a Table,
    packed: &'a [u8],
}

impl Session {
    /// Begins a plain scan of `table` that gives out whole rows.
    pub fn rows(&mut self, table: &Arc<Table>) -> Result<Rows<'_>> {
        let mask = table.all_columns();
        let cursor = self.scan(table, ScanOptions { mask, ..ScanOptions::default() })?;
        Ok(Rows {
            session: self,
            table: table.clone(),
            cursor,
            images: std::ptr::null(),
            stride: 0,
            ids: Vec::new(),
            at: 0,
            packed: Vec::new(),
        })
    }
}

impl Rows<'_> {
    /// The next row; `None` at the end.
    #[allow(clippy::should_implement_trait)] // an iterator could not lend the row
    pub fn next(&mut self) -> Result<Option<Row<'_>>> {
        if self.at == self.ids.len() {
            self.ids.clear();
            self.at = 0;
            let batch = self.cursor.next_batch(self.session)?;
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
        unsafe { row::pack(&self.table.layout, self.images.add(at * self.stride), &mut self.packed) };
        Ok(Some(Row { id: self.ids[at], table: &self.table, packed: &self.packed }))
    }
}

impl<'a> Row<'a> {
    /// Its id, by which it is updated and deleted.
    pub fn id(&self) -> RowId {
        self.id
    }

    /// The value of the column of this name, as a Rust type; `Option` where it may be NULL.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if there is no such column, or its value is of another type.
    pub fn get<T: FromValue<'a>>(&self, name: &str) -> Result<T> {
        let schema = value::schema_of(self.table)?;
        let at = schema
            .position(name)
            .ok_or_else(|| Error::InvalidArgument(format!("table '{}' has no column '{name}'", self.table.name())))?;
        let stored = self.stored()?[at];
        value::take(&schema.columns()[at], self.load(schema, at, stored)?)
    }

    /// Its values, one for each column of the table's schema.
    pub fn values(&self) -> Result<Vec<Value<'a>>> {
        let schema = value::schema_of(self.table)?;
        self.stored()?.into_iter().enumerate().map(|(at, stored)| self.load(schema, at, stored)).collect()
    }

    /// Its values as they are stored, whether or not the table has a schema.
    pub fn stored(&self) -> Result<Vec<row::Value<'a>>> {
        row::values(&self.table.layout, self.packed).map_err(|e| Error::InvalidArgument(e.to_string()))
    }

    /// The packed row, as [`Session::update_row`] takes it.
    pub fn packed(&self) -> &'a [u8] {
        self.packed
    }

    fn load(&self, schema: &'a Schema, at: usize, stored: row::Value<'a>) -> Result<Value<'a>> {
        let column = &schema.columns()[at];
        value::loaded(column, stored).ok_or_else(|| {
            let why = format!("column '{}' of row {} is not {}", column.name, self.id, column.kind);
            Error::InvalidArgument(why)
        })
    }
}
