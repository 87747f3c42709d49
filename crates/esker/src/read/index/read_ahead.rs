//! Rows that a locking cursor reads ahead of their locks.
//!
//! What was read counts if it is the newest version under the row's lock: nothing was committed since, and this transaction,
//! which had no lock on the row, has not changed it either. So a range that nobody else writes in is read as by who does not
//! lock. Invariant: nothing of another commit is taken for the newest; whoever finds that something was committed reads the row
//! anew.

use super::lookup::RowLookup;
use super::{take_one, IndexCursor};
use crate::read::buffer::Buffer;
use crate::session::{FoundLocked, Session};
use crate::tally::tally;
use crate::tree::Found;
use crate::version::VersionOrder;
use crate::Result;
use esker_format::{CommitSeq, RowId};
use std::collections::VecDeque;

/// Rows that are read ahead at first, and at most. Whoever wants one row, or few, has none read for nothing.
const FIRST_AHEAD: usize = 8;
const MOST_AHEAD: usize = 128;
/// After so many rows one behind the other begins reading ahead.
const ROWS_ALONE: usize = if cfg!(test) { 2 } else { 4 };

/// See the module.
#[derive(Default)]
pub(super) struct ReadAhead {
    /// Their images.
    buffer: Buffer,
    /// They and their places in the buffer; none: the row is not there.
    rows: VecDeque<(RowId, Option<Ahead>)>,
    /// Up to here commits were seen.
    seen: CommitSeq,
    /// Rows that are read at once next time; none after an error, which is for who comes to its row.
    most: usize,
    /// Rows that were looked up alone.
    alone: usize,
}

/// A row's version.
pub(super) struct Ahead {
    at: usize,
    order: VersionOrder,
    found: Found,
}

impl ReadAhead {
    /// Gives up what was read, and begins anew.
    pub(super) fn clear(&mut self) {
        self.rows.clear();
        self.buffer.clear();
        (self.most, self.alone) = (FIRST_AHEAD, 0);
    }

    /// The row's version, if it was read ahead and nothing was committed since. The transaction's own may be rolled back by now.
    fn take(&mut self, row: RowId, newest: CommitSeq) -> Option<Ahead> {
        if self.seen == newest && self.rows.front().is_some_and(|(ahead, _)| *ahead == row) {
            return self.rows.pop_front()?.1.filter(|ahead| !ahead.order.is_own());
        }
        if !self.rows.is_empty() {
            // Somebody commits now and then: less is read in vain.
            self.rows.clear();
            self.most = self.most.min((self.most / 2).max(FIRST_AHEAD));
        }
        None
    }
}

impl IndexCursor {
    /// Bytes of blocks that what was read ahead keeps in memory.
    #[cfg(test)]
    pub(crate) fn ahead_pinned_bytes(&self) -> usize {
        self.read_ahead.buffer.pinned_bytes()
    }

    /// Gives a row that was just locked, for the first time by this transaction, if it was read ahead; reads on from it if
    /// that is worth it. False: it is to be looked up.
    pub(super) fn give_ahead(&mut self, session: &mut Session, key: &[u8], row: RowId) -> Result<bool> {
        let newest = session.core.views.visible_seq();
        let mut ahead = self.read_ahead.take(row, newest);
        if ahead.is_none() && self.begins_ahead() {
            if self.read_on(session, row).is_err() {
                self.read_ahead.clear();
                self.read_ahead.most = 0;
            }
            // What was committed up to here is under the lock, too.
            ahead = self.read_ahead.take(row, session.core.views.visible_seq());
        }
        let Some(Ahead { at, order, found }) = ahead else { return Ok(false) };
        let (stride, tree) = (self.table.layout.image_bytes as usize, self.table.tree_id());
        let images = &self.read_ahead.buffer;
        self.buffer.add_filled(stride, row, |image| {
            image.copy_from_slice(images.image(stride, at));
            Ok(())
        })?;
        self.buffer.keys.push(key);
        session.found_locked = Some(FoundLocked { tree, row, version: Some((order, found)) });
        #[cfg(test)]
        taken::count();
        Ok(true)
    }

    fn begins_ahead(&mut self) -> bool {
        let ahead = &mut self.read_ahead;
        ahead.alone += 1;
        ahead.alone > ROWS_ALONE && ahead.most > 0 && self.span.is_some()
    }

    /// Reads the row and those of the entries behind it.
    fn read_on(&mut self, session: &mut Session, row: RowId) -> Result<()> {
        let view = session.latest_view()?;
        if session.older_view(view).is_some() {
            return Ok(());
        }
        session.seal_for_read(&self.table)?;
        let (state, private) = (self.table.readable(&self.table.tree())?, session.private_of(&self.table)?);
        let mut lookup = RowLookup::new(state, private, view);
        let ahead = &mut self.read_ahead;
        let mut wanted = vec![row];
        if let Some((span, _)) = &self.span {
            let (mut left, direction) = (span.rows.clone(), self.direction);
            let left = std::iter::from_fn(|| take_one(&mut left, direction)).take(ahead.most - 1);
            wanted.extend(left.map(|at| span.block.row(at)));
        }
        let mask = &self.options.mask;
        lookup.expect(&wanted, mask)?;
        ahead.rows.clear();
        ahead.buffer.clear();
        for row in wanted {
            if ahead.buffer.is_full() {
                break;
            }
            let at = ahead.buffer.ids.len();
            let found = match lookup.find(row, mask)? {
                Some((order, place)) => {
                    let found = place.pinned();
                    ahead.buffer.add_place(&self.table, mask, row, place)?;
                    Some(Ahead { at, order, found })
                }
                None => None,
            };
            ahead.rows.push_back((row, found));
        }
        ahead.buffer.make_images(&self.table, mask)?;
        ahead.seen = view.seq;
        ahead.most = (2 * ahead.most).min(MOST_AHEAD);
        Ok(())
    }
}

tally! {
    /// Counts the rows that this thread has read ahead of their locks and given.
    taken
}
