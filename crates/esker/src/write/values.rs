//! Writing plain values, for Rust programs: a row is what its table's schema says, checked and packed here.

use crate::catalog::table::Table;
use crate::session::Session;
use crate::value::{self, Value};
use crate::{Error, Result};
use esker_format::row;
use esker_format::RowId;
use std::sync::Arc;

impl Session {
    /// Inserts a row, a value for each column of the table's schema.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] names the column whose value does not fit; the row is not inserted then. After an error of the disk
    /// nothing is committed until the transaction was rolled back to before the row.
    pub fn insert(&mut self, table: &Arc<Table>, values: &[Value<'_>]) -> Result<RowId> {
        self.insert_row(table, &pack(table, values)?)
    }

    /// Gives a row new values, one for each column. Where they depend on what was read of it, that was read by
    /// [`rows_for_update`](Self::rows_for_update) or in a transaction with
    /// [`snapshot_isolation`](crate::BeginOptions::snapshot_isolation): else another's change meanwhile is written over.
    ///
    /// # Errors
    /// As for [`insert`](Self::insert); [`Error::RowNotFound`] if it is gone.
    pub fn update(&mut self, table: &Arc<Table>, row: RowId, values: &[Value<'_>]) -> Result<()> {
        self.update_row(table, row, &pack(table, values)?)
    }
}

fn pack(table: &Table, values: &[Value<'_>]) -> Result<Vec<u8>> {
    let columns = value::schema_of(table)?.columns();
    if columns.len() != values.len() {
        let why = format!("table '{}' has {} columns, not {}", table.name(), columns.len(), values.len());
        return Err(Error::InvalidArgument(why));
    }
    let numbers: Vec<_> = values.iter().map(value::number).collect();
    let stored = columns.iter().zip(values).zip(&numbers).map(|((c, v), n)| value::stored(c, v, n));
    let mut packed = Vec::new();
    row::pack_values(table.layout(), &stored.collect::<Result<Vec<_>>>()?, &mut packed).map_err(Error::in_memory)?;
    Ok(packed)
}
