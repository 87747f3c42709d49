//! What statements do: rows come, change and go, one by one or many at once; reads with and without locks.

use crate::client::{Client, Place};
use crate::model::Row;
use crate::table::{with_values, Span};
use crate::tally::Tally;
use crate::world::Halt;
use esker::format::RowId;
use esker::Error;

/// A table that has more rows than that loses many at once.
const MANY_ROWS: usize = 600;
/// Texts of so many kinds are of nobody else, mostly.
const WIDE: u64 = 1_000_000;

impl<'w> Client<'w> {
    /// One statement's work, if there is a table to work in.
    pub fn operation(&mut self) -> Result<(), Halt> {
        let Some(place) = self.enter() else { return Ok(()) };
        let id = self.rng.u64(..self.world.ids);
        match self.rng.u8(..100) {
            0..=79 if self.is_reader => self.lock_beside_a_spill(&place),
            0..=19 => self.insert(&place, id).map(drop),
            20..=34 => self.replace_id(&place, id),
            35..=49 => self.change_some(&place),
            50..=54 => self.lock_some(&place).map(drop),
            55..=59 => self.lock_whole_key(&place),
            60..=79 => self.gather(&place),
            80..=81 => self.delete_by_scan(&place),
            82..=84 => self.compare_scan(&place),
            85 => self.compare_count(&place),
            _ => self.compare_range(&place),
        }
    }

    /// False if another row has one of its keys.
    fn insert(&mut self, place: &Place<'_>, id: u64) -> Result<bool, Halt> {
        let row = self.new_row(id, 4 * self.world.ids);
        self.insert_row(place, row)
    }

    fn insert_row(&mut self, place: &Place<'_>, row: Row) -> Result<bool, Halt> {
        match with_values(&row, |values| self.session.insert(&place.table, values)) {
            Ok(rid) => self.has_written(place, rid, row).map(|()| true),
            Err(Error::DuplicateKey { index, .. }) => {
                self.tell(format!("table {}: {row:?} is a duplicate by {index}", place.at));
                Tally::add(&self.tally().duplicates, 1);
                Ok(false)
            }
            Err(e) => Err(self.world.halt("insert", &e)),
        }
    }

    fn update(&mut self, place: &Place<'_>, rid: RowId, row: Row) -> Result<(), Halt> {
        match with_values(&row, |values| self.session.update(&place.table, rid, values)) {
            Ok(()) => self.has_written(place, rid, row),
            Err(Error::DuplicateKey { index, .. }) => {
                self.tell(format!("table {}: row {rid} as {row:?} is a duplicate by {index}", place.at));
                Tally::add(&self.tally().duplicates, 1);
                Ok(())
            }
            Err(e) => Err(self.world.halt("update", &e)),
        }
    }

    fn delete(&mut self, place: &Place<'_>, rid: RowId) -> Result<(), Halt> {
        self.session.delete(&place.table, rid).map_err(|e| self.world.halt("delete", &e))?;
        self.put(place, rid.0, None);
        Ok(())
    }

    /// The engine took a row: nobody may have its unique keys.
    fn has_written(&mut self, place: &Place<'_>, rid: RowId, row: Row) -> Result<(), Halt> {
        let conflict = place.slot.rows.lock().unwrap().conflict(&place.kinds, rid.0, &row);
        self.put(place, rid.0, Some(row));
        match conflict {
            Some(conflict) => Err(Halt::Wrong(format!("row {rid} of table {} has {conflict}", place.at))),
            None => Ok(()),
        }
    }

    /// A row as another one with most of its keys.
    fn changed(&mut self, old: &Row, wide: u64) -> Row {
        let id = if self.chance(10) { self.rng.u64(..self.world.ids) } else { old.id };
        let mut row = self.new_row(id, wide);
        if self.chance(50) {
            (row.group, row.code) = (old.group, old.code.clone());
        }
        row
    }

    /// As REPLACE does it: the row of an id goes, if there is one, and another comes, mostly.
    fn replace_id(&mut self, place: &Place<'_>, id: u64) -> Result<(), Halt> {
        for (rid, _) in self.lock(place, &Span::id(id), usize::MAX)? {
            self.delete(place, rid)?;
        }
        if self.chance(60) {
            self.insert(place, id)?;
        }
        Ok(())
    }

    fn change_some(&mut self, place: &Place<'_>) -> Result<(), Halt> {
        for (rid, row) in self.lock_some(place)? {
            if self.chance(70) {
                let row = self.changed(&row, 4 * self.world.ids);
                self.update(place, rid, row)?;
            } else {
                self.delete(place, rid)?;
            }
        }
        Ok(())
    }

    /// So much at once that it is gathered, and spilled where memory is short.
    fn gather(&mut self, place: &Place<'w>) -> Result<(), Halt> {
        Tally::add(&self.tally().gathers, 1);
        self.gathers_in(place.slot);
        let rows = place.slot.rows.lock().unwrap().standing(self.txn.id, |_| true).len();
        match self.rng.u8(..10) {
            _ if rows > MANY_ROWS => self.delete_many(place),
            0..=1 => self.update_many(place),
            _ => self.insert_many(place),
        }
    }

    fn insert_many(&mut self, place: &Place<'_>) -> Result<(), Halt> {
        let first = self.world.ids + self.rng.u64(..3 * MANY_ROWS as u64);
        for id in first..first + self.rng.u64(200..600) {
            let row = self.new_row(id, WIDE);
            self.insert_row(place, row)?;
        }
        Ok(())
    }

    fn update_many(&mut self, place: &Place<'_>) -> Result<(), Halt> {
        let from = self.rng.u64(..2 * MANY_ROWS as u64);
        let span = Span::ids(from, from + MANY_ROWS as u64, self.rng.bool());
        for (rid, row) in self.lock(place, &span, usize::MAX)? {
            let row = self.changed(&row, WIDE);
            self.update(place, rid, row)?;
        }
        Ok(())
    }

    fn delete_many(&mut self, place: &Place<'_>) -> Result<(), Halt> {
        let from = self.rng.u64(..MANY_ROWS as u64);
        for (rid, _) in self.lock(place, &Span::ids(from, u64::MAX, false), MANY_ROWS)? {
            self.delete(place, rid)?;
        }
        Ok(())
    }

    /// Locks all rows by a scan, and deletes some.
    fn delete_by_scan(&mut self, place: &Place<'_>) -> Result<(), Halt> {
        for (rid, _) in self.lock_by_scan(place)? {
            if self.chance(20) {
                self.delete(place, rid)?;
            }
        }
        Ok(())
    }
}
