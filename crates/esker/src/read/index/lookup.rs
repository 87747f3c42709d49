//! The rows of entries, looked up under one view: the first alone, those behind it from there.
//!
//! Rows lie in the order in which they came, entries in that of their keys: the next row is anywhere. Who knows which rows
//! are looked up next says so, and what these take comes from memory while others are looked up.

use crate::tree::fences::TOGETHER;
use crate::tree::key::ByRow;
use crate::tree::memtable::Memtable;
use crate::tree::near::{Beside, NearLookup};
use crate::tree::{find, Found, Place, TreeState};
use crate::version::{VersionOrder, View};
use crate::Result;
use esker_format::{ColumnMask, RowId};
use std::sync::Arc;

/// Rows are told of when so few are left that were.
const TOLD_AHEAD: usize = 12;
/// A row that is so many ids behind another one is at hand from there: [`NearLookup`] passes no more nodes one by one.
const AT_HAND_IDS: u64 = 8;

/// See the module.
pub(super) struct RowLookup {
    state: Arc<TreeState<ByRow>>,
    /// The transaction's own memtable beside it.
    private: Option<Arc<Memtable>>,
    view: View,
    is_first: bool,
    near: Option<NearLookup>,
    /// What is looked up next, and how many of these were told of, and asked for.
    coming: Vec<RowId>,
    told: usize,
    asked: usize,
    /// The last rows of the two stretches of rows at hand that were told of last: where [`NearLookup`] will have its two places.
    ends: [RowId; 2],
}

impl RowLookup {
    /// Of `state` under `view`; `private` is the looker's own memtable.
    pub(super) fn new(state: Arc<TreeState<ByRow>>, private: Option<Arc<Memtable>>, view: View) -> Self {
        RowLookup {
            state,
            private,
            view,
            is_first: true,
            near: None,
            coming: Vec::new(),
            told: 0,
            asked: 0,
            ends: [RowId::MAX; 2],
        }
    }

    /// Is it of this state, under this view, and of nobody's own memtable?
    pub(super) fn is_in(&self, state: &Arc<TreeState<ByRow>>, view: View) -> bool {
        Arc::ptr_eq(&self.state, state) && self.private.is_none() && self.view == view
    }

    /// As [`NearLookup::tell_looks`].
    pub(super) fn tell_looks(&mut self) {
        self.near.iter_mut().for_each(NearLookup::tell_looks);
    }

    /// As [`NearLookup::find`], for these columns.
    pub(super) fn find(&mut self, row: RowId, mask: &ColumnMask) -> Result<Option<(VersionOrder, Place<'_>)>> {
        self.asked += 1;
        if self.told < self.coming.len().min(self.asked + TOLD_AHEAD) {
            self.tell(mask)?;
        }
        if std::mem::take(&mut self.is_first) {
            let found = find(&self.state, self.private.as_ref(), row, self.view)?;
            let place = |(order, found)| (order, Place::Found(found));
            return Ok(found.filter(|(_, found)| !matches!(found, Found::Tombstone)).map(place));
        }
        self.near().find(row)
    }

    /// As [`NearLookup::beside`].
    pub(super) fn beside(&mut self, rows: &[RowId]) -> Option<Beside<'_>> {
        let beside = self.near.as_mut()?.beside(rows)?;
        self.asked += beside.places.len();
        if self.told < self.asked {
            // At hand, all of them.
            self.told = self.asked;
            self.ends[0] = rows[beside.places.len() - 1];
        }
        Some(beside)
    }

    /// These rows are looked up next, in this order, for these columns: what it takes comes from memory meanwhile.
    pub(super) fn expect(&mut self, rows: &[RowId], mask: &ColumnMask) -> Result<()> {
        self.coming.clear();
        (self.told, self.asked) = (0, 0);
        if let Some(near) = &mut self.near {
            near.forget_told();
        }
        if rows.len() < 2 {
            return Ok(());
        }
        self.coming.extend_from_slice(rows);
        self.is_first = false;
        self.tell(mask)
    }

    /// Tells of the next ones of them that are not at hand from those before: two stretches in turn are.
    fn tell(&mut self, mask: &ColumnMask) -> Result<()> {
        let (mut rows, mut told) = ([RowId::ZERO; TOGETHER], 0);
        while let Some(row) = self.coming.get(self.told).copied().filter(|_| told < TOGETHER) {
            let next_to = |(a, b): (&RowId, &RowId)| a.0.abs_diff(b.0) == 1;
            let rest = &self.coming[self.told..];
            // What lies beside it is at hand from there.
            let beside = rest.iter().zip(&rest[1..]).take_while(|pair| next_to(*pair)).count();
            self.told += 1 + beside;
            let is_at_hand = |end: RowId| match row.0.checked_sub(end.0) {
                Some(ids) => ids <= AT_HAND_IDS,
                // Who reads from the end goes back by one.
                None => end.0 - row.0 == 1,
            };
            if !is_at_hand(self.ends[0]) {
                self.ends.swap(0, 1);
                if !is_at_hand(self.ends[0]) {
                    rows[told] = row;
                    told += 1;
                }
            }
            self.ends[0] = rest[beside];
        }
        self.near().expect(&rows[..told], mask)
    }

    fn near(&mut self) -> &mut NearLookup {
        let near = || NearLookup::new(self.state.clone(), self.private.as_ref(), self.view);
        self.near.get_or_insert_with(near)
    }
}
