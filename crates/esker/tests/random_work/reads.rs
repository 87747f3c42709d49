//! Reads, held against the model: plain ones against a view, locking ones against what is newest.
//!
//! Two things are known of a locking read while others write: each row that it gives is the newest version, of nobody who still
//! holds it; and each row in its range is among them that was there before it began and is there, unchanged, when it ends: if it
//! is of somebody who has not ended, the read has to wait for him.

use crate::client::{Client, Place};
use crate::model::{difference, Row, KINDS};
use crate::table::{read, Span};
use crate::tally::Tally;
use crate::world::Halt;
use esker::base::counters::global_total;
use esker::base::Counter;
use esker::format::RowId;
use esker::{Direction, Error, LockMode, ScanOptions};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::SeqCst;

/// How often they look whether a spill has begun.
const MOST_LOOKS: u32 = 100_000;
/// How often they turn round before they look into indexes, as powers of two.
const WAITS: std::ops::Range<u32> = 7..17;

impl Client<'_> {
    /// What the transaction should see of a table, under the view that it has from now on.
    fn seen(&mut self, place: &Place<'_>) -> Result<BTreeMap<u64, Row>, Halt> {
        let view = match self.view {
            Some(view) => view,
            None => {
                let _ends = self.world.ends.write().unwrap();
                // Any reading opens it.
                self.session.count(&place.table).map_err(|e| self.world.halt("count", &e))?;
                self.world.clock()
            }
        };
        self.view = Some(view);
        Ok(place.slot.rows.lock().unwrap().seen(Some(self.txn.id), view))
    }

    pub fn compare_scan(&mut self, place: &Place<'_>) -> Result<(), Halt> {
        let wanted = self.seen(place)?;
        let found = read(self.session.rows(&place.table), usize::MAX).map_err(|e| self.world.halt("scan", &e))?;
        Tally::add(&self.tally().scans_compared, 1);
        self.compare(place, "a scan", &wanted, found)
    }

    pub fn compare_count(&mut self, place: &Place<'_>) -> Result<(), Halt> {
        let wanted = self.seen(place)?.len() as u64;
        let counted = self.session.count(&place.table).map_err(|e| self.world.halt("count", &e))?;
        let rows = self.session.count_rows(&place.table).map_err(|e| self.world.halt("count of rows", &e))?;
        Tally::add(&self.tally().counts_compared, 1);
        match (counted, rows) == (wanted, wanted) {
            true => Ok(()),
            false => Err(Halt::Wrong(format!("table {} has {counted} rows, {rows} by a scan, not {wanted}", place.at))),
        }
    }

    pub fn compare_range(&mut self, place: &Place<'_>) -> Result<(), Halt> {
        let mut wanted = self.seen(place)?;
        let span = self.some_span(place);
        if !KINDS[span.kind].is_unique_in(wanted.values()) {
            // Another row's old version, beside an own one of the same key: by a secondary index the view shows either.
            return Ok(());
        }
        wanted.retain(|_, row| span.holds(row));
        let found = span.with(|index, range| read(self.session.rows_by(&place.table, index, range), usize::MAX));
        let found = found.map_err(|e| self.world.halt("range", &e))?;
        if !span.is_order_of(&found) {
            return Err(Halt::Wrong(format!("not the order of {span:?}: {found:?}")));
        }
        Tally::add(&self.tally().ranges_compared, 1);
        self.compare(place, &format!("{span:?}"), &wanted, found)
    }

    fn compare(
        &self,
        place: &Place<'_>,
        what: &str,
        wanted: &BTreeMap<u64, Row>,
        found: Vec<(RowId, Row)>,
    ) -> Result<(), Halt> {
        let many = found.len();
        let found: BTreeMap<u64, Row> = found.into_iter().map(|(rid, row)| (rid.0, row)).collect();
        let told = match found.len() == many {
            true => difference(wanted, &found),
            false => Err(format!("{many} rows, of which {} are different ones", found.len())),
        };
        let wrong =
            |why| Halt::Wrong(format!("table {} by {what}, {} at {:?}: {why}", place.at, self.txn.id, self.view));
        told.map_err(wrong)
    }

    /// Part of an index, mostly about keys that there are.
    fn some_span(&mut self, place: &Place<'_>) -> Span {
        let kind = place.kinds[self.rng.usize(..place.kinds.len())];
        let mut row = || {
            let id = self.rng.u64(..self.world.ids);
            let standing = place.slot.rows.lock().unwrap().any(self.rng.u64(..));
            match standing.filter(|_| self.rng.u8(..10) < 8) {
                Some(row) => row,
                None => self.new_row(id, 4 * self.world.ids),
            }
        };
        let (a, b) = (row(), row());
        Span::some(&mut self.rng, kind, a, b)
    }

    /// Locks rows of some range, and gives them.
    pub fn lock_some(&mut self, place: &Place<'_>) -> Result<Vec<(RowId, Row)>, Halt> {
        let span = self.some_span(place);
        let most = if self.chance(30) { 1 + self.rng.usize(..4) } else { usize::MAX };
        self.lock(place, &span, most)
    }

    pub fn lock(&mut self, place: &Place<'_>, span: &Span, most: usize) -> Result<Vec<(RowId, Row)>, Halt> {
        let wanted = self.before_locking(place, |row| span.holds(row));
        let found = span.with(|index, range| read(self.session.rows_by_for_update(&place.table, index, range), most));
        let found = self.locked(place, &format!("{span:?}"), found)?;
        if !span.is_order_of(&found) {
            return Err(Halt::Wrong(format!("locked in another order than {span:?}: {found:?}")));
        }
        let is_whole = found.len() < most;
        self.check_met(place, &format!("{span:?}"), wanted.into_iter().filter(|_| is_whole), &found)?;
        Ok(found)
    }

    /// Locks the row of an id, which is looked up by its whole key; mostly one that there is, whoever wrote it.
    pub fn lock_whole_key(&mut self, place: &Place<'_>) -> Result<(), Halt> {
        let standing = place.slot.rows.lock().unwrap().any(self.rng.u64(..));
        let id = standing.map_or(0, |row| row.id);
        let what = format!("the whole key {id}");
        let wanted = self.before_locking(place, |row| row.id == id);
        let found = self.rows_of_key(place, id).map_err(|e| self.refused(&what, &e))?;
        let row = |rid: RowId| self.note_lock(place, rid.0).map(|row| (rid, row));
        let found: Result<Vec<_>, _> = found.into_iter().map(row).collect();
        let found = found.map_err(|why| Halt::Wrong(format!("{what} of table {}: {why}", place.at)))?;
        Tally::add(&self.tally().whole_keys_locked, 1);
        self.check_met(place, &what, wanted, &found)
    }

    fn rows_of_key(&mut self, place: &Place<'_>, id: u64) -> Result<Vec<RowId>, Error> {
        let options = ScanOptions { lock: Some(LockMode::Exclusive), ..ScanOptions::default() };
        let mut cursor = self.session.open_index_cursor(&place.table, 0, options)?;
        cursor.seek_key(&mut self.session, &id.to_be_bytes(), Direction::Forward)?;
        Ok(cursor.next_batch(&mut self.session)?.ids.to_vec())
    }

    pub fn lock_by_scan(&mut self, place: &Place<'_>) -> Result<Vec<(RowId, Row)>, Halt> {
        let wanted = self.before_locking(place, |_| true);
        let found = read(self.session.rows_for_update(&place.table), usize::MAX);
        let found = self.locked(place, "a scan", found)?;
        self.check_met(place, "a scan", wanted, &found)?;
        Ok(found)
    }

    /// Waits until somebody spills what he has gathered, as memory is short or at his end, and a while, and looks into each index
    /// where it has nothing: what others have gathered there is sorted for that.
    pub fn lock_beside_a_spill(&mut self, place: &Place<'_>) -> Result<(), Halt> {
        let gathers = || place.slot.gathering.load(SeqCst) > 0;
        if !gathers() || self.chance(20) {
            return self.lock_whole_key(place);
        }
        let before = global_total(Counter::LargeSpills);
        let mut looks = (0..MOST_LOOKS).take_while(|_| gathers() && global_total(Counter::LargeSpills) == before);
        looks.by_ref().for_each(|_| std::thread::yield_now());
        // On machines of any speed some of these come in the middle of it.
        for _ in 0..1 << self.rng.u32(WAITS) {
            std::hint::spin_loop();
        }
        let mut kinds = place.kinds.clone();
        self.rng.shuffle(&mut kinds);
        for kind in kinds {
            let nothing = Span::nothing(kind);
            let found =
                nothing.with(|index, range| read(self.session.rows_by_for_update(&place.table, index, range), 1));
            let found = found.map_err(|e| self.world.halt("nothing", &e))?;
            if let Some(row) = found.first() {
                return Err(Halt::Wrong(format!("{nothing:?} of table {} gives {row:?}", place.at)));
            }
        }
        Tally::add(&self.tally().locking_reads_beside_spills, 1);
        Ok(())
    }

    /// The rows that a locking read has to meet, unless they are changed before it ends.
    fn before_locking(&self, place: &Place<'_>, wanted: impl Fn(&Row) -> bool) -> Vec<(u64, u64)> {
        if place.slot.gathering.load(SeqCst) > 0 {
            Tally::add(&self.tally().locking_reads_beside_gathers, 1);
        }
        place.slot.rows.lock().unwrap().standing(self.txn.id, wanted)
    }

    fn locked(
        &mut self,
        place: &Place<'_>,
        what: &str,
        found: Result<Vec<(RowId, Row)>, Error>,
    ) -> Result<Vec<(RowId, Row)>, Halt> {
        let found = found.map_err(|e| self.refused(what, &e))?;
        Tally::add(&self.tally().locking_reads, 1);
        for (rid, row) in &found {
            let newest = self
                .note_lock(place, rid.0)
                .map_err(|why| Halt::Wrong(format!("{what} of table {}: {why}", place.at)))?;
            if newest != *row {
                return Err(Halt::Wrong(format!(
                    "{what} of table {}, {rid}: {row:?} is locked, not {newest:?}",
                    place.at
                )));
            }
        }
        Ok(found)
    }

    fn refused(&self, what: &str, error: &Error) -> Halt {
        let halt = self.world.halt(what, error);
        Tally::add(&self.tally().locking_reads_refused, u64::from(matches!(halt, Halt::Refused)));
        halt
    }

    /// The newest version of a row that was just locked; it must not change any more.
    fn note_lock(&mut self, place: &Place<'_>, rid: u64) -> Result<Row, String> {
        let rows = place.slot.rows.lock().unwrap();
        let row = rows.under_lock(rid, self.txn.id)?.clone();
        if !rows.is_written_by(rid, self.txn.id) {
            self.locked.push((place.at, rid, row.stamp));
        }
        Ok(row)
    }

    fn check_met(
        &self,
        place: &Place<'_>,
        what: &str,
        wanted: impl IntoIterator<Item = (u64, u64)>,
        found: &[(RowId, Row)],
    ) -> Result<(), Halt> {
        let rows = place.slot.rows.lock().unwrap();
        let is_missed =
            |(rid, stamp): &(u64, u64)| rows.stands(*rid, *stamp) && !found.iter().any(|(id, _)| id.0 == *rid);
        match wanted.into_iter().find(is_missed) {
            Some((rid, stamp)) => {
                Err(Halt::Wrong(format!("{what} of table {} did not meet row {rid}, {stamp}", place.at)))
            }
            None => Ok(()),
        }
    }
}
