//! Entries first: who knows by the columns of the key, or by row ids, which rows are wanted gets a batch of what the entries
//! tell, says which of them pass, and gets the rows of these at once.
//!
//! A locking cursor gives its rows as ever, since what an entry tells counts only under the row's lock; so does one whose
//! entries tell all that is asked for. Invariants: images of entries have nothing but what entries tell of the
//! columns that are asked for; a row is looked up under the view of its entry, and left out if its own transaction has
//! changed the key since.

use super::{IndexBatch, IndexCursor};
use crate::read::buffer::Buffer;
use crate::session::Session;
use crate::work::Kind;
use crate::{Error, Result};

/// A cursor's batches of entries.
#[derive(Default)]
pub(super) struct Chosen {
    /// Does the reader choose?
    on: bool,
    /// Is the batch that stands in the cursor's buffer one of entries?
    has_entries: bool,
    /// The other buffer: of rows, while the cursor's own is of entries.
    buffer: Buffer,
}

impl IndexCursor {
    /// From the next batch on gives entries first, or no longer: each batch is one to [`choose`](Self::choose) from.
    pub fn set_choosing(&mut self, on: bool) {
        self.chosen.on = on;
    }

    /// Of the batch that was given last those at these places, which rise, now with all columns that are asked for. Where their rows
    /// keep too much of blocks in memory for one batch, the first of them: the next batch begins behind these.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if there is no such place in it, or for a session of another engine; those of reading.
    pub fn choose(&mut self, session: &mut Session, places: &[u32]) -> Result<IndexBatch<'_>> {
        session.core.check_own(&self.table)?;
        session.works_on(&self.definition.work, Kind::Read);
        let count = self.buffer.ids.len();
        let in_order = places.windows(2).all(|two| two[0] < two[1]);
        if !in_order || places.last().is_some_and(|last| *last as usize >= count) {
            return Err(Error::InvalidArgument(format!("places to choose that are none of {count}, or do not rise")));
        }
        if let Some(failed) = &self.failed {
            return Err(failed.clone());
        }
        if self.has_entries() {
            self.get_rows(session, places).inspect_err(|e| self.failed = Some(e.clone()))?;
            self.count_rows();
        } else if places.len() < count {
            self.buffer.keep(self.table.layout.image_bytes as usize, places);
            self.buffer.keys.keep(places);
        }
        Ok(self.batch())
    }

    /// Is the batch that was given last one of entries alone?
    pub(super) fn has_entries(&self) -> bool {
        self.chosen.has_entries
    }

    /// The next batch that is filled is of entries, if there is a choice.
    pub(super) fn begin_entries(&mut self) {
        self.set_has_entries(self.chosen.on && !self.covering);
    }

    fn set_has_entries(&mut self, on: bool) {
        if self.chosen.has_entries != on {
            self.chosen.has_entries = on;
            std::mem::swap(&mut self.buffer, &mut self.chosen.buffer);
        }
    }

    /// Puts the rows of these entries in their place.
    fn get_rows(&mut self, session: &mut Session, places: &[u32]) -> Result<()> {
        self.set_has_entries(false);
        self.buffer.clear();
        for place in places.iter().map(|place| *place as usize) {
            self.buffer.keys.push(self.chosen.buffer.keys.get(place));
            self.buffer.wanted.push(self.chosen.buffer.ids[place]);
        }
        let mut lookup = self.lookup(session, false)?;
        self.add_wanted(&mut lookup)?;
        self.keep(lookup);
        if self.full_at.is_some() {
            self.batch_rows = self.buffer.ids.len().max(1);
        }
        self.buffer.make_images(&self.table, &self.options.mask)
    }
}
