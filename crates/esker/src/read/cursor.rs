//! A cursor: a scan of one table, a batch of row images at a time.
//!
//! A plain cursor decodes ahead. A locking cursor gives one row a call, locks it first and then makes sure that what it
//! gives is the newest version: it reads ahead too, but trusts what it read only while nothing was committed since. Where
//! it comes to rows that another transaction was inserting when the scan began, it waits for that one's end, as a replica
//! needs that applies a transaction while the one before it commits.
//!
//! Whoever changed a row that a locking scan came to may have inserted others, in its place too. So a scan that met such a
//! row reads, at its end, the rows that came since under a newer view, until it meets none: it sees all of a transaction
//! that it has waited for.
//! A plain scan goes from batch to batch on in the newest state of the tree, under its view.
//! Invariant: everything a batch points to (its buffer, blocks, memtables) is pinned until the next call.

#[cfg(test)]
mod tests;

use crate::catalog::table::Table;
use crate::lock::LockMode;
use crate::read::buffer::{Buffer, SpareBuffer, BATCH_BYTES, FIRST_ROWS, MOST_ROWS};
use crate::read::locked::Locked;
use crate::session::{FoundLocked, Session};
use crate::tally::tally;
use crate::tree::key::ByRow;
use crate::tree::merge_read::{BlockSpan, MergeRead, Span};
use crate::tree::stored::Stored;
use crate::tree::{find, Found, Place};
use crate::txn::open::TableTxn;
use crate::txn::writers::Inserter;
use crate::version::View;
use crate::work::Kind;
use crate::{Error, Result};
use esker_base::counters::{count, Counter};
use esker_format::{ColumnMask, CommitSeq, RowId, TxnId};
use std::ops::Range;
use std::sync::Arc;

/// How a scan reads.
#[derive(Debug, Clone)]
pub struct ScanOptions {
    /// The columns to decode.
    pub mask: ColumnMask,
    /// Lock each row that is given out.
    pub lock: Option<LockMode>,
    /// Pass over rows that others have locked.
    pub skip_locked: bool,
    /// Give out the last committed version of a row that is locked, without waiting, and pass over what nobody has committed; see
    /// [`Cursor::was_semi_consistent`]. By an index, a row that others move meanwhile, against the direction of reading, may be
    /// met at neither key.
    pub semi_consistent: bool,
    /// Under snapshot isolation, by an index: pass over what others have taken away since the transaction's view, which is else an
    /// error: for who asks whether a key is free.
    pub passes_gone: bool,
}

impl ScanOptions {
    /// Does the reader wait for rows that others hold?
    fn insists(&self) -> bool {
        self.lock.is_some() && !self.skip_locked && !self.semi_consistent
    }
}

impl Default for ScanOptions {
    fn default() -> Self {
        let mask = ColumnMask::none(0);
        ScanOptions { mask, lock: None, skip_locked: false, semi_consistent: false, passes_gone: false }
    }
}

/// Rows that a cursor gives out; valid until its next call.
#[derive(Debug, Clone, Copy)]
pub struct Batch<'a> {
    /// The first row image.
    pub images: *const u8,
    /// Bytes from one image to the next.
    pub stride: usize,
    /// The rows' ids, one an image.
    pub ids: &'a [RowId],
}

/// A scan of a table, or reads by row id.
pub struct Cursor {
    table: Arc<Table>,
    options: ScanOptions,
    view: View,
    read: Option<MergeRead>,
    /// For a locking scan of a transaction whose own view is older: that view's rows, each of which must still be there.
    expected: Option<Ids>,
    /// What is left of the span that was decoded from last; is it the own transaction's?
    span: Option<(BlockSpan, bool)>,
    buffer: Buffer,
    /// Where the buffer goes in the end.
    kept: Arc<SpareBuffer>,
    batch_rows: usize,
    /// The last row that a batch had since reading began.
    came_to: Option<RowId>,
    /// Position in the read-ahead of a locking cursor.
    ahead: usize,
    /// As [`Session::undone`], when reading began.
    undone: Option<(TxnId, u64)>,
    /// Who was inserting when a locking scan began; the next one last.
    inserters: Vec<Inserter>,
    /// From here on a locking scan may not have met rows that were inserted since it began to read.
    unmet_from: RowId,
    /// It met a row that somebody had changed since.
    overtaken: bool,
    /// It reads what came since it read under this view.
    before: Option<View>,
    semi_consistent: bool,
    /// Why there is no next batch.
    failed: Option<Error>,
}

impl Session {
    /// Begins a scan of `table`, under this session's view or, if it locks, of the newest versions.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a table of another engine, or in a prepared transaction; [`Error::NoSuchTable`] once the table is
    /// dropped, [`Error::TableChanged`] if it is not what it was for the view; those of reading.
    pub fn scan(&mut self, table: &Arc<Table>, options: ScanOptions) -> Result<Cursor> {
        self.scan_behind(table, RowId::ZERO, options)
    }

    /// The same of the rows behind this one, there or not: for who goes on with a scan under another view.
    ///
    /// # Errors
    /// As for [`scan`](Self::scan).
    pub fn scan_behind(&mut self, table: &Arc<Table>, row: RowId, options: ScanOptions) -> Result<Cursor> {
        self.works_on(&table.work, Kind::Read);
        self.seal_for_read(table)?;
        let view = if options.lock.is_some() { self.latest_view()? } else { self.read_view()? };
        self.check_rebuilt(table, view)?;
        count(Counter::Scans, 1);
        let mut cursor = Cursor::new(self, table, options, view);
        let from = RowId(row.0.saturating_add(1));
        match cursor.options.lock {
            Some(_) => cursor.read_newest(self, from)?,
            None => cursor.read_from(self, view, from)?,
        }
        Ok(cursor)
    }

    /// A cursor for reads by row id alone.
    ///
    /// # Errors
    /// As for [`scan`](Self::scan).
    pub fn open_cursor(&mut self, table: &Arc<Table>, options: ScanOptions) -> Result<Cursor> {
        let view = if options.lock.is_some() { self.latest_view()? } else { self.read_view()? };
        self.check_rebuilt(table, view)?;
        Ok(Cursor::new(self, table, options, view))
    }

    /// The view that a newer version must be held against, if `latest` is newer: under snapshot isolation the
    /// transaction's own.
    pub(crate) fn older_view(&self, latest: View) -> Option<View> {
        let txn = self.current.open().filter(|t| t.options.snapshot_isolation && t.view_by_read)?;
        txn.view.filter(|seq| *seq < latest.seq).map(|seq| View { seq, ..latest })
    }

    /// Fails if the transaction's own view has a row that is no longer there for `latest`.
    pub(crate) fn check_gone(&self, table: &Arc<Table>, row: RowId, latest: View) -> Result<()> {
        let Some(older) = self.older_view(latest) else { return Ok(()) };
        match find(&table.tree().snapshot(), self.private_of(table)?.as_ref(), row, older)? {
            None | Some((_, Found::Tombstone)) => Ok(()),
            Some(_) => Err(Error::RecordChanged),
        }
    }

    /// Fails if the table is not what it was for the transaction's view, or for this one, which something is read by.
    pub(crate) fn check_rebuilt(&mut self, table: &Arc<Table>, view: View) -> Result<()> {
        self.core.check_usable(table)?;
        let own = self.current.open().and_then(|t| t.view).map_or(view.seq, |own| own.min(view.seq));
        if !table.temporary && own < table.readable_from() {
            return Err(Error::TableChanged(table.name()));
        }
        Ok(())
    }
}

impl Session {
    /// The transaction, and how much of it was undone.
    fn undone(&self) -> Option<(TxnId, u64)> {
        self.current.open().map(|txn| (txn.state.id, txn.undone()))
    }
}

impl Drop for Cursor {
    fn drop(&mut self) {
        self.kept.put(std::mem::take(&mut self.buffer));
    }
}

impl Cursor {
    fn new(session: &Session, table: &Arc<Table>, options: ScanOptions, view: View) -> Cursor {
        let mut buffer = session.kept.take();
        buffer.reads_ahead = options.lock.is_some();
        Cursor {
            table: table.clone(),
            options,
            view,
            read: None,
            expected: None,
            span: None,
            buffer,
            kept: session.kept.clone(),
            batch_rows: FIRST_ROWS,
            came_to: None,
            ahead: 0,
            undone: None,
            inserters: Vec::new(),
            unmet_from: RowId::MAX,
            overtaken: false,
            before: None,
            semi_consistent: false,
            failed: None,
        }
    }

    /// A scan of all rows of a view.
    pub(crate) fn of_view(session: &Session, table: &Arc<Table>, options: ScanOptions, view: View) -> Result<Cursor> {
        let mut cursor = Cursor::new(session, table, options, view);
        cursor.read_from(session, view, RowId(1))?;
        Ok(cursor)
    }

    /// The next rows; empty at the end. A locking cursor gives one at a time.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a session of another engine; those of reading and, if it locks, of locks. Where a row could not
    /// be locked the next call tries that row again; an error of reading is given again, as rows may be missing behind it.
    pub fn next_batch(&mut self, session: &mut Session) -> Result<Batch<'_>> {
        session.core.check_own(&self.table)?;
        if let Some(failed) = &self.failed {
            return Err(failed.clone());
        }
        session.works_on(&self.table.work, Kind::Read);
        let rows = match self.options.lock {
            Some(mode) => self.next_locked(session, mode).inspect_err(|e| {
                if !is_of_waiting(e) {
                    self.failed = Some(e.clone());
                }
            })?,
            None => self.next_ahead(session).inspect_err(|e| self.failed = Some(e.clone()))?,
        };
        if !rows.is_empty() {
            self.buffer.gives();
        }
        self.give(rows.len());
        Ok(self.batch(rows))
    }

    /// Where the next rows stand in the buffer.
    fn next_ahead(&mut self, session: &mut Session) -> Result<Range<usize>> {
        self.follow(session)?;
        self.fill(session)?;
        Ok(0..self.buffer.ids.len())
    }

    /// Goes on in the newest state of the tree, under the same view: memtables and runs that only the state has which was read so far
    /// go then, however long the scan takes.
    fn follow(&mut self, session: &Session) -> Result<()> {
        let (Some(read), Some(row)) = (&self.read, self.came_to) else { return Ok(()) };
        // Without a lock: so it is nearly always.
        if read.state().is_newest_edit() {
            return Ok(());
        }
        if !session.can_follow(&self.table, &self.table.tree(), read.state(), self.view) {
            return Ok(());
        }
        // What was emptied meanwhile is read to its end.
        if self.table.rows_under(self.view).is_err() {
            return Ok(());
        }
        count(Counter::ReadsFollowed, 1);
        self.read_from(session, self.view, RowId(row.0.saturating_add(1)))
    }

    fn batch(&self, rows: Range<usize>) -> Batch<'_> {
        let stride = self.table.layout.image_bytes as usize;
        let base = self.buffer.base();
        // SAFETY: the buffer, or the block, holds an image for each id.
        let images = unsafe { base.add(rows.start * stride) };
        Batch { images, stride, ids: &self.buffer.ids[rows] }
    }

    /// The caller gets so many rows.
    fn give(&self, rows: usize) {
        count(Counter::RowsRead, rows as u64);
        count(Counter::RowBytesOut, rows as u64 * u64::from(self.table.layout.image_bytes));
    }

    /// Fills the buffer with the next rows of the merged reading.
    fn fill(&mut self, session: &Session) -> Result<()> {
        let stride = self.table.layout.image_bytes as usize;
        let most = (BATCH_BYTES / stride.max(1)).clamp(1, MOST_ROWS);
        let rows = self.batch_rows.min(most);
        self.batch_rows = (rows * 8).min(most);
        self.buffer.clear();
        let txn = self.overtaking(session);
        let view = self.view.seq;
        while self.buffer.ids.len() < rows && !self.buffer.is_full() {
            if let Some((span, own)) = &mut self.span {
                let part = take_part(span, rows - self.buffer.ids.len(), txn.filter(|_| !*own), view);
                if !part.is_empty() {
                    self.buffer.add_rows(&self.table, &self.options.mask, span, part)?;
                }
                if span.rows.is_empty() {
                    self.span = None;
                }
                if self.buffer.direct.is_some() {
                    break;
                }
                continue;
            }
            let Some(read) = &mut self.read else { break };
            if let Some(found) = read.next_in_turn(rows - self.buffer.ids.len())? {
                let passed = |row, own: bool| !own && txn.is_some_and(|t| t.is_overtaken(row, view));
                for (row, place, _) in found.iter().filter(|(row, _, own)| !passed(*row, *own)) {
                    let place = match place {
                        // Nobody decodes it later here.
                        Place::Block(..) => Place::Found(place.pinned()),
                        place => place,
                    };
                    self.buffer.add_place(&self.table, &self.options.mask, row, place)?;
                }
                continue;
            }
            match read.next()? {
                Span::End => {
                    self.read = None;
                    break;
                }
                Span::Rows(span) => self.span = Some((span, read.is_own())),
                Span::One(row, _) if !read.is_own() && txn.is_some_and(|t| t.is_overtaken(row, view)) => {}
                Span::One(row, found) => self.buffer.add_found(&self.table, &self.options.mask, row, found)?,
            }
        }
        if let Some(last) = self.buffer.ids.last() {
            self.came_to = Some(*last);
            count(Counter::Batches, 1);
        }
        Ok(())
    }

    /// The transaction, if it has overtaken rows, which a reader of its own view passes over unless their versions are its own.
    fn overtaking<'a>(&self, session: &'a Session) -> Option<&'a TableTxn> {
        let txn = session.current.open().filter(|_| self.options.lock.is_none())?.in_table(&self.table)?;
        (!txn.overtaken.is_empty()).then_some(txn)
    }

    fn next_locked(&mut self, session: &mut Session, mode: LockMode) -> Result<Range<usize>> {
        self.semi_consistent = false;
        loop {
            if self.ahead >= self.buffer.ids.len() {
                // At the end it leaves nothing.
                self.fill(session).inspect_err(|e| self.failed = Some(e.clone()))?;
                self.ahead = 0;
            }
            let at = self.ahead;
            let next = self.buffer.ids.get(at).copied();
            if self.pass_inserter(session, next.unwrap_or(RowId::MAX))? {
                continue;
            }
            if session.parker.is_killed() {
                return Err(Error::Interrupted);
            }
            self.pass_expected(next)?;
            let Some(row) = next else {
                if self.read_what_came(session)? {
                    continue;
                }
                return Ok(0..0);
            };
            if self.was_met(session, row)? {
                self.ahead += 1;
                continue;
            }
            // Who does not get it comes to it again.
            let locked = self.lock(session, row, mode)?;
            self.ahead += 1;
            match locked {
                Locked::Newly | Locked::Before => {}
                Locked::Skip => continue,
                Locked::SemiConsistent => {
                    if session.core.views.visible_seq() != self.view.seq {
                        // The last committed version, which may be newer than what was read ahead.
                        let table = self.table.clone();
                        let Some(found) = self.find_newest(session, row)? else { continue };
                        self.buffer.replace(&table, &self.options.mask, at, found)?;
                    }
                    self.semi_consistent = true;
                    // Whoever has locked it is about to change it, and the caller may wait for that by other ways.
                    self.overtaken = true;
                    return Ok(at..at + 1);
                }
            }
            // What was decoded ahead is the newest version as long as nothing was committed since, and this transaction,
            // which had no lock on the row, has neither changed it nor taken anything back.
            let is_same = session.core.views.visible_seq() == self.view.seq && self.undone == session.undone();
            let newest = is_same && locked == Locked::Newly;
            if newest && session.older_view(self.view).is_none() {
                session.found_locked = Some(FoundLocked::of(self.table.tree_id(), row));
                return Ok(at..at + 1);
            }
            let table = self.table.clone();
            match self.find_newest(session, row)? {
                Some(found) => {
                    self.buffer.replace(&table, &self.options.mask, at, found)?;
                    session.found_locked = Some(FoundLocked::of(table.tree_id(), row));
                    return Ok(at..at + 1);
                }
                None => session.unlock_row(&table, row),
            }
        }
    }

    /// If somebody was inserting rows before `next`: waits for its end and goes on from the first of them; true then.
    fn pass_inserter(&mut self, session: &mut Session, next: RowId) -> Result<bool> {
        if self.inserters.last().is_none_or(|i| i.first > next) || !self.options.insists() {
            return Ok(false);
        }
        let Some(inserter) = self.inserters.last() else {
            return Ok(false);
        };
        session.wait_for_inserter(self.table.tree_id(), inserter)?;
        let first = inserter.first;
        self.inserters.pop();
        let view = session.latest_view()?;
        self.read_from(session, view, first)?;
        Ok(true)
    }

    /// The newest version of a row that the scan came to.
    fn find_newest(&mut self, session: &mut Session, row: RowId) -> Result<Option<Found>> {
        let latest = session.latest_view()?;
        let found = session.find_version(&self.table, row, latest)?;
        let is_as_read = found.as_ref().is_some_and(|(order, _)| order.is_own() || order.seq <= self.view.seq);
        self.overtaken |= !is_as_read;
        Ok(found.map(|(_, found)| found))
    }

    /// At its end, if somebody overtook the scan: reads the rows that came since it began to read. False: there are none.
    fn read_what_came(&mut self, session: &mut Session) -> Result<bool> {
        let from = self.inserters.last().map_or(self.unmet_from, |i| self.unmet_from.min(i.first));
        if !std::mem::take(&mut self.overtaken) || self.options.skip_locked || from >= self.table.tree().next_row() {
            return Ok(false);
        }
        #[cfg(test)]
        came::count();
        self.before = Some(self.view);
        self.read_newest(session, from)?;
        Ok(true)
    }

    /// Did the scan meet this row when it read before? Its own changes are seen by any view.
    fn was_met(&self, session: &Session, row: RowId) -> Result<bool> {
        let Some(before) = self.before else { return Ok(false) };
        let state = self.table.rows_under(before)?;
        let found = find(&state, session.private_of(&self.table)?.as_ref(), row, before)?;
        Ok(found.is_some_and(|(_, found)| !matches!(found, Found::Tombstone)))
    }

    /// Begins to read the newest versions, at row `from`.
    fn read_newest(&mut self, session: &mut Session, from: RowId) -> Result<()> {
        let tree = self.table.tree();
        // In this order: who is not listed has ended, and is seen, or has only rows that are not met.
        self.unmet_from = tree.next_row();
        let me = session.txn_mut()?.state.id;
        let mut inserters = session.core.writers.inserters(tree.id, me);
        if !self.options.insists() {
            let first = inserters.last().map_or(RowId::MAX, |i| i.first);
            self.unmet_from = self.unmet_from.min(first);
            inserters.clear();
        }
        self.inserters = inserters;
        let view = session.latest_view()?;
        self.read_from(session, view, from)
    }

    /// See [`Buffer::pinned_blocks`].
    #[cfg(test)]
    pub(crate) fn pinned_blocks(&self) -> Vec<*const crate::tree::run::Block> {
        self.buffer.pinned_blocks()
    }

    /// See [`Buffer::pins`].
    #[cfg(test)]
    pub(crate) fn pins(&self) -> usize {
        self.buffer.pins()
    }

    /// Begins to read anew, at row `from`.
    fn read_from(&mut self, session: &Session, view: View, from: RowId) -> Result<()> {
        let state = self.table.rows_under(view)?;
        let private = session.private_of(&self.table)?;
        let read = |view| MergeRead::new(state.clone(), private.clone(), view, from, &session.parker);
        let older = session.older_view(view).filter(|_| self.options.lock.is_some());
        let expected = older.map(|view| read(view).map(Ids::new)).transpose()?;
        (self.read, self.expected, self.view) = (Some(read(view)?), expected, view);
        self.undone = session.undone();
        (self.span, self.came_to) = (None, None);
        self.buffer.clear();
        self.ahead = 0;
        Ok(())
    }

    /// The scan comes to `next`, or to its end: the own view must have no row before it that the scan did not meet.
    fn pass_expected(&mut self, next: Option<RowId>) -> Result<()> {
        let Some(expected) = &mut self.expected else { return Ok(()) };
        match (expected.peek()?, next) {
            (Some(row), next) if next.is_none_or(|next| row < next) => Err(Error::RecordChanged),
            (Some(row), Some(next)) if row == next => {
                expected.pass();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn lock(&mut self, session: &mut Session, row: RowId, mode: LockMode) -> Result<Locked> {
        let ScanOptions { skip_locked, semi_consistent, .. } = self.options;
        session.lock_to_read((self.table.tree_id(), row), mode, skip_locked, semi_consistent)
    }

    /// Was the row given out last a committed version of a row that another transaction has locked? If it matches, it
    /// must be read again by [`fetch`](Self::fetch), which waits.
    pub fn was_semi_consistent(&self) -> bool {
        self.semi_consistent
    }

    /// The image of one row, as the cursor's view sees it or, if the cursor locks, locked and newest.
    ///
    /// # Errors
    /// As for [`next_batch`](Self::next_batch).
    pub fn fetch(&mut self, session: &mut Session, row: RowId) -> Result<Option<*const u8>> {
        session.core.check_own(&self.table)?;
        session.works_on(&self.table.work, Kind::Read);
        let table = self.table.clone();
        let found = if let Some(mode) = self.options.lock {
            let (tree, wait) = (table.tree_id(), session.wait);
            session.lock_row(tree, row, mode, wait)?;
            let found = session.find_latest(&table, row)?;
            session.found_locked = found.as_ref().map(|_| FoundLocked::of(tree, row));
            found
        } else {
            session.check_kept(self.view)?;
            session.seal_for_read(&table)?;
            let private = session.private_of(&table)?;
            find(&*table.rows_under(self.view)?, private.as_ref(), row, self.view)?
                .filter(|(order, _)| order.is_own() || !session.is_overtaken(&table, row, self.view.seq))
                .map(|(_, found)| found)
                .filter(|f| !matches!(f, Found::Tombstone))
        };
        let Some(found) = found else { return Ok(None) };
        // The read-ahead of a scan on the same cursor is given up: positions and scans do not mix.
        self.buffer.clear();
        self.ahead = 0;
        self.buffer.add_found(&table, &self.options.mask, row, found)?;
        self.ahead = self.buffer.ids.len();
        self.buffer.gives();
        self.give(1);
        Ok(Some(self.buffer.base()))
    }

    /// Rows that are left, counted without decoding them.
    pub(crate) fn count_rest(&mut self, session: &Session) -> Result<u64> {
        let rows = self.read.as_mut().map_or(Ok(0), |read| read.count_rest(&mut || true))?;
        self.read = None;
        let mut passed = 0;
        if let Some(txn) = self.overtaking(session) {
            let (state, private) = (self.table.rows_under(self.view)?, session.private_of(&self.table)?);
            for row in txn.overtaken_of(.., self.view.seq) {
                let found = find(&state, private.as_ref(), row, self.view)?;
                passed += u64::from(found.is_some_and(|(order, f)| !order.is_own() && !matches!(f, Found::Tombstone)));
            }
        }
        Ok(rows - passed)
    }

    /// As [`count_rest`](Self::count_rest), for a transaction that has locked all of them.
    pub(crate) fn count_locked(&mut self, session: &mut Session) -> Result<u64> {
        if self.expected.is_none() {
            return self.count_rest(session);
        }
        // None may be newer than the transaction's own view, and none of that view's may be gone.
        let (table, view) = (self.table.clone(), self.view);
        let Some(mut ids) = self.read.take().map(Ids::new) else { return Ok(0) };
        let mut rows = 0;
        while let Some(row) = ids.peek()? {
            self.pass_expected(Some(row))?;
            session.find_for_write(&table, row, view)?;
            ids.pass();
            rows += 1;
        }
        self.pass_expected(None)?;
        Ok(rows)
    }
}

/// Is it why a row could not be waited for? The next call tries that again.
fn is_of_waiting(e: &Error) -> bool {
    matches!(e, Error::WouldBlock | Error::LockTimeout | Error::Deadlock | Error::Interrupted)
}

/// Takes the next of the span's rows, `most` at most, up to one that `txn` has overtaken: the span goes on behind that.
fn take_part(span: &mut BlockSpan, most: usize, txn: Option<&TableTxn>, view: CommitSeq) -> Range<u32> {
    let BlockSpan { block, rows, .. } = span;
    let (from, to) = (rows.start, rows.start + rows.len().min(most) as u32);
    let overtaken = txn.and_then(|txn| {
        let ids = block.row_id(from)..=block.row_id(to - 1);
        let place = |row| Some(ByRow::lower_bound(block, row).max(from)).filter(|at| block.row_id(*at) == row);
        txn.overtaken_of(ids, view).find_map(place)
    });
    rows.start = overtaken.map_or(to, |at| at + 1);
    from..overtaken.unwrap_or(to)
}

/// The rows of a merged reading by their ids alone.
struct Ids {
    read: MergeRead,
    span: Option<BlockSpan>,
    one: Option<RowId>,
}

impl Ids {
    fn new(read: MergeRead) -> Self {
        Ids { read, span: None, one: None }
    }

    /// The next row's id; `None` at the end.
    fn peek(&mut self) -> Result<Option<RowId>> {
        while self.one.is_none() {
            if let Some(span) = self.span.as_ref().filter(|s| !s.rows.is_empty()) {
                self.one = Some(span.block.row_id(span.rows.start));
                break;
            }
            match self.read.next()? {
                Span::End => return Ok(None),
                Span::Rows(span) => self.span = Some(span),
                Span::One(row, _) => (self.one, self.span) = (Some(row), None),
            }
        }
        Ok(self.one)
    }

    /// Goes past the row that [`peek`](Self::peek) gave.
    fn pass(&mut self) {
        self.one = None;
        if let Some(span) = &mut self.span {
            span.rows.start += 1;
        }
    }
}

tally! {
    /// Counts how often this thread's locking scans read what came since they began.
    came
}
