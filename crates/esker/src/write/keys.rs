//! Writing entries of key trees. SQL has no keys yet: tests and the simulator are the callers.
//!
//! An entry is a key, the row that it is of, and a payload. Who writes one has the lock of its row, and nobody else's row
//! has that key.

use crate::catalog::table::Table;
use crate::core::Core;
use crate::lock::Parker;
use crate::session::Session;
use crate::tree::memtable::Change;
use crate::tree::stored::entry_value;
use crate::txn::open::Txn;
use crate::write::VERSION_BYTES;
use crate::{Error, Result};
use esker_format::key_block::{MAX_KEY_BYTES, MAX_KEY_PAYLOAD_BYTES};
use esker_format::{Record, RowId};
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
        let too_long =
            entry.key.len() > MAX_KEY_BYTES || entry.payload.is_some_and(|p| p.len() > MAX_KEY_PAYLOAD_BYTES);
        if too_long || index >= table.trees().keys.len() {
            return Err(Error::InvalidArgument(format!("entry of {} bytes for index {index}", entry.key.len())));
        }
        let parts = self.parts()?;
        let at = parts.txn.table_of(parts.core, table)?;
        parts.txn.put_entry(parts.core, parts.parker, (at, index), entry)
    }
}

impl Txn {
    /// An entry into the shared memtable of the key tree at place `.1` of the table at `.0`, its redo beside.
    fn put_entry(&mut self, core: &Core, parker: &Parker, at: (usize, usize), entry: Entry<'_>) -> Result<()> {
        core.wait_for_memory(|| parker.is_killed())?;
        let Entry { key, row, payload } = entry;
        let value = entry_value(row, payload.unwrap_or_default());
        let (txn, ordinal) = (self.state.id, self.next_ordinal);
        let keys = &mut self.tables[at.0].keys[at.1];
        let mem = keys.put(&self.state, key, Change::of_entry(ordinal, &value, payload.is_none()))?;
        let (redo, tree) = (keys.redo.of(mem), keys.tree.id);
        match payload {
            Some(payload) => Record::KeyPut { txn, ordinal, tree, row, key, payload }.encode(redo),
            None => Record::KeyDelete { txn, ordinal, tree, row, key }.encode(redo),
        }
        self.next_ordinal += 1;
        self.small_bytes += key.len() + value.len() + VERSION_BYTES;
        Ok(())
    }
}
