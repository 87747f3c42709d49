//! The rows of entries, looked up under one view: the first alone, those behind it from there.
//!
//! Rows lie in the order in which they came, entries in that of their keys: the next row is anywhere. Who knows which rows
//! are looked up next says so, and what these take comes from memory while others are looked up.

use crate::tree::key::ByRow;
use crate::tree::memtable::Memtable;
use crate::tree::near::{Near, Place};
use crate::tree::{find, Found, TreeState};
use crate::version::{VersionOrder, View};
use crate::Result;
use esker_format::{ColumnMask, RowId};
use std::sync::Arc;

/// So many rows before one is looked up it is told of.
const TOLD_AHEAD: usize = 16;

/// See the module.
pub(super) struct RowLookup {
    state: Arc<TreeState<ByRow>>,
    /// The transaction's own memtable beside it.
    private: Option<Arc<Memtable>>,
    view: View,
    is_first: bool,
    near: Option<Near>,
    /// What is looked up next, and how many of these were told of.
    coming: Vec<RowId>,
    told: usize,
}

impl RowLookup {
    /// Of `state` under `view`; `private` is the looker's own memtable.
    pub(super) fn new(state: Arc<TreeState<ByRow>>, private: Option<Arc<Memtable>>, view: View) -> Self {
        RowLookup { state, private, view, is_first: true, near: None, coming: Vec::new(), told: 0 }
    }

    /// As [`Near::find`], for these columns.
    pub(super) fn find(&mut self, row: RowId, mask: &ColumnMask) -> Result<Option<(VersionOrder, Place<'_>)>> {
        self.tell(mask)?;
        if std::mem::take(&mut self.is_first) {
            let found = find(&self.state, self.private.as_ref(), row, self.view)?;
            let place = |(order, found)| (order, Place::Found(found));
            return Ok(found.filter(|(_, found)| !matches!(found, Found::Tombstone)).map(place));
        }
        self.near().find(row)
    }

    /// These rows are looked up next, in this order, for these columns: what it takes comes from memory meanwhile.
    pub(super) fn expect(&mut self, rows: impl Iterator<Item = RowId>, mask: &ColumnMask) -> Result<()> {
        self.coming.clear();
        self.coming.extend(rows);
        self.told = 0;
        if self.coming.len() < 2 {
            return Ok(());
        }
        self.is_first = false;
        (0..TOLD_AHEAD).try_for_each(|_| self.tell(mask))
    }

    /// Tells of the next one of them. Those that lie one behind the other come by themselves.
    fn tell(&mut self, mask: &ColumnMask) -> Result<()> {
        let Some(row) = self.coming.get(self.told).copied() else { return Ok(()) };
        let is_next = self.told.checked_sub(1).is_some_and(|before| self.coming[before].0.abs_diff(row.0) <= 1);
        self.told += 1;
        match is_next {
            true => Ok(()),
            false => self.near().expect(row, mask),
        }
    }

    fn near(&mut self) -> &mut Near {
        let near = || Near::new(self.state.clone(), self.private.as_ref(), self.view);
        self.near.get_or_insert_with(near)
    }
}
