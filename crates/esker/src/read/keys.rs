//! Reading entries of key trees one by one, for tests and the simulator.

use crate::catalog::table::Table;
use crate::session::Session;
use crate::tree::key::ByBytes;
use crate::tree::merge_read::{MergeRead, Span};
use crate::tree::stored::{split_value, Stored};
use crate::tree::{find, Found};
use crate::Result;
use esker_format::RowId;
use std::sync::Arc;

/// An entry as a view sees it: its key, its row, its payload.
pub type SeenEntry = (Vec<u8>, RowId, Vec<u8>);

impl Session {
    /// All entries from `from` on of the key tree at place `index` of the table's, in the order of their keys.
    pub(crate) fn read_entries(&mut self, table: &Arc<Table>, index: usize, from: &[u8]) -> Result<Vec<SeenEntry>> {
        self.seal_for_read(table)?;
        let view = self.read_view()?;
        let state = table.trees().keys[index].snapshot();
        let mut read = MergeRead::<ByBytes>::new(state, self.private_keys(table, index)?, view, from, &self.parker)?;
        let mut all = Vec::new();
        loop {
            match read.next()? {
                Span::End => return Ok(all),
                Span::One(key, found) => all.extend(take(&key, &found)),
                Span::Rows(span) => all.extend(span.rows.map(|i| {
                    let block = &span.block;
                    (block.key(i).to_vec(), block.row(i), block.payload(i).to_vec())
                })),
            }
        }
    }

    /// The entry with the least key from `from` on.
    pub(crate) fn first_entry(&mut self, table: &Arc<Table>, index: usize, from: &[u8]) -> Result<Option<SeenEntry>> {
        self.seal_for_read(table)?;
        let view = self.read_view()?;
        let state = table.trees().keys[index].snapshot();
        match MergeRead::<ByBytes>::new(state, self.private_keys(table, index)?, view, from, &self.parker)?.next()? {
            Span::End => Ok(None),
            Span::One(key, found) => Ok(take(&key, &found)),
            Span::Rows(span) => Ok(take(
                span.block.key(span.rows.start),
                &Found::Block(span.run, span.offset, span.block.clone(), span.rows.start),
            )),
        }
    }

    /// The entry of one key.
    pub(crate) fn read_entry(&mut self, table: &Arc<Table>, index: usize, key: &[u8]) -> Result<Option<SeenEntry>> {
        self.seal_for_read(table)?;
        let view = self.read_view()?;
        let found = find(&table.trees().keys[index].snapshot(), self.private_keys(table, index)?.as_ref(), key, view)?;
        Ok(found.and_then(|(_, found)| take(key, &found)))
    }
}

fn take(key: &[u8], found: &Found<ByBytes>) -> Option<SeenEntry> {
    match found {
        Found::Mem(_, value) => {
            let (row, payload) = split_value(value);
            Some((key.to_vec(), row, payload.to_vec()))
        }
        Found::Block(_, _, block, at) => Some((key.to_vec(), ByBytes::row(block, *at), block.payload(*at).to_vec())),
        Found::Tombstone => None,
    }
}
