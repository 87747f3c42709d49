//! Writing entries of key trees.
//!
//! An entry is a key, the row that it is of, and a payload. Who writes one has the lock of its row, and no other row
//! has that key.

use crate::catalog::table::Table;
use crate::core::Core;
use crate::lock::Parker;
use crate::session::{Session, SessionParts};
use crate::tree::memtable::Change;
use crate::tree::stored::entry_value;
use crate::txn::open::Txn;
use crate::upkeep::pressure;
use crate::write::private::Place;
use crate::write::VERSION_BYTES;
use crate::{Error, Result};
use esker_format::key_block::{MAX_KEY_BYTES, MAX_KEY_PAYLOAD_BYTES};
use esker_format::RowId;
use std::sync::Arc;

/// A key of a row, as it is written.
#[derive(Debug, Clone, Copy)]
pub struct Entry<'a> {
    /// The key's bytes.
    pub key: &'a [u8],
    /// The row.
    pub row: RowId,
    /// What the entry holds besides; `None`: the key leaves the row.
    pub payload: Option<&'a [u8]>,
}

impl Session {
    /// Writes an entry into the key tree at place `index` of the table's.
    pub(crate) fn write_entry(&mut self, table: &Arc<Table>, index: usize, entry: Entry<'_>) -> Result<()> {
        let (parts, at) = self.parts_for(table, index, entry)?;
        parts.txn.put_entry(parts.core, parts.parker, at, index, entry)
    }

    /// See [`Txn::defer_entry`].
    pub(crate) fn defer_entry(&mut self, table: &Arc<Table>, index: usize, entry: Entry<'_>) -> Result<bool> {
        let (parts, at) = self.parts_for(table, index, entry)?;
        parts.txn.defer_entry(parts.core, parts.parker, (at, index), entry)
    }

    /// What an entry is written with, if it can be, and the table's place in the transaction.
    fn parts_for(&mut self, table: &Arc<Table>, index: usize, entry: Entry<'_>) -> Result<(SessionParts<'_>, usize)> {
        let too_long =
            entry.key.len() > MAX_KEY_BYTES || entry.payload.is_some_and(|p| p.len() > MAX_KEY_PAYLOAD_BYTES);
        let parts = self.parts()?;
        let at = parts.txn.table_of(parts.core, table)?;
        if too_long || index >= parts.txn.tables[at].keys.len() {
            return Err(Error::InvalidArgument(format!("entry of {} bytes for index {index}", entry.key.len())));
        }
        Ok((parts, at))
    }
}

impl Txn {
    /// An entry into the key tree at place `index` of the table at `at`: to the shared memtable and redo, or, once the
    /// transaction is large, to its own memtable.
    fn put_entry(&mut self, core: &Core, parker: &Parker, at: usize, index: usize, entry: Entry<'_>) -> Result<()> {
        let Entry { key, row, payload } = entry;
        let value = entry_value(row, payload.unwrap_or_default());
        let change = Change::of_entry(self.next_ordinal, &value, payload.is_none());
        let bytes = key.len() + value.len();
        if self.is_small(core, bytes) {
            pressure::wait_for_memory(core, || parker.is_killed())?;
            self.tables[at].keys[index].put_shared(&self.state, key, change)?;
            self.next_ordinal += 1;
            self.small_bytes += bytes + VERSION_BYTES;
            return Ok(());
        }
        self.become_large(core);
        let table = &mut self.tables[at];
        let unique = table.trees.is_unique(index);
        let fill = table.keys[index].put_private(&self.state, key, change, unique)?;
        self.next_ordinal += 1;
        self.relieve(core, Place { table: at, tree: 1 + index }, fill)
    }
}
