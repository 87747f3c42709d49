//! A cursor over an index: rows in the order of its keys, or against it, of a range of keys; a batch at a time.
//!
//! Where the entries tell all columns that are asked for, the rows themselves are not looked at. Who locks gets one row a
//! call, see `locked.rs`; who chooses gets entries first, see `chosen.rs`. Invariants: the entries of a batch are read from one
//! state of the tree, all of a seek under one view; a row that is given is one of that view, or, locked, the newest; an entry whose row is not
//! there is damage, unless the reader's own transaction has taken both away since the seek.

pub(crate) mod alike;
mod batch;
mod chosen;
mod estimate;
mod expected;
mod locked;
mod lookup;
mod read_ahead;
#[cfg(test)]
mod tests;
mod whole_key;

use crate::catalog::index::Index;
use crate::catalog::table::Table;
use crate::lock::Parker;
use crate::read::buffer::{Buffer, Keys, SpareBuffer, FIRST_ROWS};
use crate::read::cursor::ScanOptions;
use crate::session::Session;
use crate::tree::backward::BackwardRead;
use crate::tree::key::{ByBytes, Key};
use crate::tree::memtable::Memtable;
use crate::tree::merge_read::in_turn::InTurn;
use crate::tree::merge_read::{BlockSpan, Extent, MergeRead, Span, Unseen};
use crate::tree::undisputed::undisputed;
use crate::tree::{find, Found, Stamp, Tree, TreeState};
use crate::version::View;
use crate::work::Kind;
use crate::{Error, Result};
use chosen::Chosen;
use esker_base::counters::{count, Counter};
use esker_format::key_bytes::pass_prefix;
use esker_format::{FormatError, RowId};
use expected::{row_of, Expected};
use lookup::RowLookup;
use read_ahead::ReadAhead;
use std::ops::Range;
use std::sync::Arc;

/// In which order entries are given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Of rising keys.
    Forward,
    /// Of falling keys.
    Backward,
}

/// Rows of the first batch of a range with two ends: who gives both reads it to the second, as a rule.
const FIRST_WITHIN: usize = 16;

/// Keys of an index, by their bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyRange {
    /// The first.
    pub from: Vec<u8>,
    /// Behind the last; `None`: to the end.
    pub to: Option<Vec<u8>>,
}

impl KeyRange {
    /// All keys that begin with these bytes.
    #[must_use]
    pub fn of_prefix(prefix: &[u8]) -> Self {
        let mut to = prefix.to_vec();
        KeyRange { from: prefix.to_vec(), to: pass_prefix(&mut to).then_some(to) }
    }

    /// What is left of the range for who goes on in this direction from an entry's key, which is left out.
    #[must_use]
    pub fn rest(&self, key: &[u8], direction: Direction) -> Self {
        match direction {
            Direction::Forward => KeyRange { from: self.from.clone().max(behind(key)), to: self.to.clone() },
            Direction::Backward => self.until(key.to_vec()),
        }
    }

    /// The same with the key.
    #[must_use]
    pub fn rest_with(&self, key: &[u8], direction: Direction) -> Self {
        match direction {
            Direction::Forward => KeyRange { from: self.from.clone().max(key.to_vec()), to: self.to.clone() },
            Direction::Backward => self.until(behind(key)),
        }
    }

    fn until(&self, to: Vec<u8>) -> Self {
        let to = match &self.to {
            Some(own) => to.min(own.clone()),
            None => to,
        };
        KeyRange { from: self.from.clone(), to: Some(to) }
    }

    fn is_empty(&self) -> bool {
        self.to.as_ref().is_some_and(|to| *to <= self.from)
    }
}

/// The least bytes behind a key.
fn behind(key: &[u8]) -> Vec<u8> {
    let mut key = key.to_vec();
    key.push(0);
    key
}

/// Rows that an index cursor gives out; valid until its next call.
#[derive(Debug, Clone, Copy)]
pub struct IndexBatch<'a> {
    /// The first row image.
    pub images: *const u8,
    /// Bytes from one image to the next.
    pub stride: usize,
    /// The rows' ids, one an image.
    pub ids: &'a [RowId],
    /// The images were made of the entries alone.
    pub covering: bool,
    keys: &'a Keys,
}

impl<'a> IndexBatch<'a> {
    /// The whole key of the entry of a row.
    ///
    /// # Panics
    /// There is no such row in the batch.
    #[must_use]
    pub fn key(&self, at: usize) -> &'a [u8] {
        self.keys.get(at)
    }
}

/// Where entries come from.
enum Entries {
    /// The merged reading, in either direction.
    Forward(MergeRead<ByBytes>),
    Backward(BackwardRead<ByBytes>),
    /// One that was found, until it is given; is it the own transaction's?
    Found(Option<(<ByBytes as Key>::Own, Found<ByBytes>)>, bool),
}

impl Entries {
    /// The merged reading of an extent, which is not empty, in a direction.
    fn over(
        state: Arc<TreeState<ByBytes>>,
        private: Option<&Arc<Memtable<ByBytes>>>,
        view: View,
        extent: Extent<'_, ByBytes>,
        (direction, parker): (Direction, &Arc<Parker>),
    ) -> Result<Self> {
        Ok(match direction {
            Direction::Forward => Entries::Forward(MergeRead::within(state, private, view, extent, parker)?),
            Direction::Backward => Entries::Backward(BackwardRead::new(state, private, view, extent, parker)),
        })
    }

    /// As [`MergeRead::next_in_turn`].
    fn next_in_turn(&mut self, most: usize) -> Result<Option<InTurn<ByBytes>>> {
        match self {
            Entries::Forward(read) => read.next_in_turn(most),
            Entries::Backward(read) => read.next_in_turn(most),
            Entries::Found(..) => Ok(None),
        }
    }

    fn next(&mut self) -> Result<Span<ByBytes>> {
        match self {
            Entries::Forward(read) => read.next(),
            Entries::Backward(read) => read.next(),
            Entries::Found(one, _) => Ok(one.take().map_or(Span::End, |(key, found)| Span::One(key, found))),
        }
    }

    /// The state of the tree that is read, if one is.
    fn state(&self) -> Option<&Arc<TreeState<ByBytes>>> {
        match self {
            Entries::Forward(read) => Some(read.state()),
            Entries::Backward(read) => Some(read.state()),
            Entries::Found(..) => None,
        }
    }

    fn is_own(&self) -> bool {
        match self {
            Entries::Forward(read) => read.is_own(),
            Entries::Backward(read) => read.is_own(),
            Entries::Found(_, own) => *own,
        }
    }

    fn unseen(&self) -> Option<Unseen> {
        match self {
            Entries::Forward(read) => read.unseen(),
            Entries::Backward(read) => read.unseen(),
            Entries::Found(..) => None,
        }
    }
}

/// A cursor over an index of a table.
pub struct IndexCursor {
    table: Arc<Table>,
    index: usize,
    definition: Arc<Index>,
    options: ScanOptions,
    /// The entries tell all that is asked for.
    covering: bool,
    view: View,
    /// What was sought.
    range: KeyRange,
    direction: Direction,
    entries: Option<Entries>,
    /// What is left of the span that was taken from last; is it the own transaction's?
    span: Option<(BlockSpan<ByBytes>, bool)>,
    /// The transaction's next ordinal when it was sought.
    ordinal: u64,
    /// What the rows of the last batch were looked up in, for those of the next.
    rows: Option<RowLookup>,
    buffer: Buffer,
    /// Where the buffer goes in the end.
    kept: Arc<SpareBuffer>,
    /// For the values of entries.
    scratch: Vec<u8>,
    chosen: Chosen,
    batch_rows: usize,
    /// A batch had no room for the rows of all its entries: those behind this key come with the next one.
    full_at: Option<Vec<u8>>,
    semi_consistent: bool,
    /// One key is sought that one row can have: it is waited for, semi-consistent or not.
    is_whole_key: bool,
    /// Of the tree when reading began, for who locks, and how many versions the transaction itself had put there.
    stamp: Stamp,
    own_puts: usize,
    /// The key that was come to since.
    last: Option<Vec<u8>>,
    /// What it must come to, under snapshot isolation.
    expected: Option<Expected>,
    /// Rows that a locking cursor comes to next.
    read_ahead: ReadAhead,
    /// Stands before the row given out last.
    again: bool,
    /// Why there is no next batch, before it is sought again.
    failed: Option<Error>,
}

impl Session {
    /// A cursor over the index at this place of the table's, under this session's view or, if it locks, of the newest
    /// versions. It gives nothing before a [`seek`](IndexCursor::seek).
    pub fn open_index_cursor(&mut self, table: &Arc<Table>, index: usize, options: ScanOptions) -> Result<IndexCursor> {
        let definition = table.trees().index(index)?.clone();
        let codec = definition.codec()?;
        let in_mask = (0..table.layout.columns.len()).filter(|place| options.mask.get(*place));
        let covering = options.lock.is_none() && in_mask.into_iter().all(|place| codec.covers(place));
        let view = if options.lock.is_some() { self.latest_view()? } else { self.read_view()? };
        self.check_index_view(table, &definition, view)?;
        count(Counter::Scans, 1);
        Ok(IndexCursor {
            table: table.clone(),
            index,
            definition,
            options,
            covering,
            view,
            range: KeyRange::default(),
            direction: Direction::Forward,
            entries: None,
            span: None,
            ordinal: 0,
            rows: None,
            buffer: self.kept.take(),
            kept: self.kept.clone(),
            scratch: Vec::new(),
            chosen: Chosen::default(),
            batch_rows: FIRST_ROWS,
            full_at: None,
            semi_consistent: false,
            is_whole_key: false,
            stamp: Stamp::default(),
            own_puts: 0,
            last: None,
            expected: None,
            read_ahead: ReadAhead::default(),
            again: false,
            failed: None,
        })
    }
}

impl Session {
    /// Fails if an index tells nothing of what a view sees, since it is newer.
    fn check_index_view(&mut self, table: &Arc<Table>, definition: &Index, view: View) -> Result<()> {
        self.check_rebuilt(table, view)?;
        if view.seq < definition.entry.usable_from {
            return Err(Error::TableChanged(table.name()));
        }
        Ok(())
    }
}

impl Drop for IndexCursor {
    fn drop(&mut self) {
        self.kept.put(std::mem::take(&mut self.buffer));
    }
}

impl IndexCursor {
    /// From now on gives the entries of a range, from its beginning or from its end.
    pub fn seek(&mut self, session: &mut Session, range: KeyRange, direction: Direction) -> Result<()> {
        let is_bounded = !range.from.is_empty() && range.to.is_some();
        self.batch_rows = if is_bounded { FIRST_WITHIN } else { FIRST_ROWS };
        (self.again, self.is_whole_key) = (false, false);
        self.read_ahead.clear();
        let read = self.read(session, &range, direction);
        self.range = range;
        self.failed = read.as_ref().err().cloned();
        read
    }

    /// The same for a key that one entry can have at most: it is looked up.
    pub fn seek_key(&mut self, session: &mut Session, key: &[u8], direction: Direction) -> Result<()> {
        let sought = self.look_up(session, key, direction);
        self.failed = sought.as_ref().err().cloned();
        sought
    }

    fn look_up(&mut self, session: &mut Session, key: &[u8], direction: Direction) -> Result<()> {
        session.core.check_own(&self.table)?;
        session.works_on(&self.definition.work, Kind::Read);
        session.seal_for_read(&self.table)?;
        match self.options.lock {
            None => session.check_kept(self.view)?,
            Some(_) => self.view = session.latest_view()?,
        }
        let state = self.table.readable(&*self.tree()?)?;
        // Before it is looked at: others go on writing.
        let stamp = state.stamp();
        let private = session.private_keys(&self.table, self.index)?;
        let found = match self.options.lock {
            None => find(&state, private.as_ref(), key, self.view)?,
            Some(_) => match undisputed(&state, private.as_ref(), key, self.view)? {
                Some(found) => found,
                // Somebody is to be waited for, or may be.
                None => {
                    self.seek(session, KeyRange::of_prefix(key), direction)?;
                    self.is_whole_key = true;
                    return Ok(());
                }
            },
        };
        #[cfg(test)]
        crate::tests::hooks::reached("a whole key was looked up");
        count(Counter::KeysLookedUp, 1);
        self.read_ahead.clear();
        self.is_whole_key = true;
        self.range = KeyRange::of_prefix(key);
        (self.again, self.batch_rows) = (false, FIRST_ROWS);
        (self.stamp, self.own_puts, self.last) = (stamp, self.own_puts(session), None);
        self.entries = None;
        self.begin(session, direction);
        self.meet_key(session, key, found.as_ref().and_then(|(_, found)| row_of(found)), None)?;
        self.entries = found.map(|(order, found)| Entries::Found(Some((key.into(), found)), order.is_own()));
        Ok(())
    }

    /// Goes on from an entry that was given, which is left out, in a direction, within the range that was sought. The key is a
    /// whole one.
    pub fn seek_from(&mut self, session: &mut Session, key: &[u8], direction: Direction) -> Result<()> {
        self.batch_rows = FIRST_ROWS;
        self.again = false;
        let read = self.read(session, &self.range.rest(key, direction), direction);
        self.failed = read.as_ref().err().cloned();
        read
    }

    /// What was sought last.
    #[must_use]
    pub fn range(&self) -> &KeyRange {
        &self.range
    }

    /// The whole key of the entry of a row of the batch that was given last.
    ///
    /// # Panics
    /// There is no such row in it.
    #[must_use]
    pub fn key(&self, at: usize) -> &[u8] {
        self.buffer.keys.get(at)
    }

    /// The next rows; empty at the end. A locking cursor gives one at a time.
    ///
    /// # Errors
    /// Those of [`Cursor::next_batch`](crate::Cursor::next_batch). Whatever it was is given again until the cursor is sought anew.
    pub fn next_batch(&mut self, session: &mut Session) -> Result<IndexBatch<'_>> {
        session.core.check_own(&self.table)?;
        if let Some(failed) = &self.failed {
            return Err(failed.clone());
        }
        session.works_on(&self.definition.work, Kind::Read);
        let next = match self.options.lock {
            Some(mode) => self.next_locked(session, mode),
            None => self.fill(session),
        };
        next.inspect_err(|e| self.failed = Some(e.clone()))?;
        if !self.has_entries() {
            self.count_rows();
        }
        Ok(self.batch())
    }

    fn count_rows(&self) {
        let rows = self.buffer.ids.len() as u64;
        count(Counter::RowsRead, rows);
        count(Counter::RowBytesOut, rows * u64::from(self.table.layout.image_bytes));
    }

    /// What stands in the buffer.
    fn batch(&self) -> IndexBatch<'_> {
        let stride = self.table.layout.image_bytes as usize;
        let (images, ids, keys) = (self.buffer.base(), &*self.buffer.ids, &self.buffer.keys);
        IndexBatch { images, stride, ids, covering: self.covering, keys }
    }

    /// Begins to read anew, under the cursor's view or, if it locks, the newest.
    fn read(&mut self, session: &mut Session, range: &KeyRange, direction: Direction) -> Result<()> {
        session.core.check_own(&self.table)?;
        session.works_on(&self.definition.work, Kind::Read);
        session.seal_for_read(&self.table)?;
        match self.options.lock {
            None => session.check_kept(self.view)?,
            Some(_) => self.view = session.latest_view()?,
        }
        let state = self.table.readable(&*self.tree()?)?;
        let private = session.private_keys(&self.table, self.index)?;
        (self.stamp, self.own_puts, self.last) = (state.stamp(), self.own_puts(session), None);
        let extent = Extent {
            from: &*range.from,
            to: range.to.as_deref().map(Into::into),
            watches: self.options.lock.is_some(),
        };
        let way = (direction, &session.parker);
        let read = || Entries::over(state, private.as_ref(), self.view, extent, way);
        self.entries = (!range.is_empty()).then(read).transpose()?;
        self.begin(session, direction);
        if !range.is_empty() {
            let expected = self.expect(session, &range.from, range.to.as_deref());
            // Nothing is given of what cannot be held against it.
            self.expected = expected.inspect_err(|_| self.entries = None)?;
        }
        Ok(())
    }

    /// See [`Buffer::pins`](crate::read::buffer::Buffer::pins).
    #[cfg(test)]
    pub(crate) fn pins(&self) -> usize {
        self.buffer.pins()
    }

    /// Nothing was given of what was sought.
    fn begin(&mut self, session: &Session, direction: Direction) {
        self.ordinal = session.current.open().map_or(0, |txn| txn.next_ordinal);
        (self.direction, self.span, self.full_at, self.expected) = (direction, None, None, None);
        self.buffer.clear();
    }

    /// The tree that has the entries now. Fails once the table has other indexes, or was emptied since the view was opened.
    fn tree(&self) -> Result<Arc<Tree<ByBytes>>> {
        let trees = self.table.trees();
        self.table.check_view(self.view)?;
        match trees.indexes.get(self.index) {
            Some(index) if index.entry.id == self.definition.entry.id => Ok(trees.keys[self.index].clone()),
            _ => Err(Error::TableChanged(self.table.name())),
        }
    }

    /// Is the newest version of a key that a view sees now an entry of this row?
    fn is_entry_of(&self, session: &Session, key: &[u8], row: RowId, view: View) -> Result<bool> {
        let state = self.table.readable(&*self.tree()?)?;
        let found = find(&state, session.private_keys(&self.table, self.index)?.as_ref(), key, view)?;
        Ok(found.and_then(|(_, found)| row_of(&found)) == Some(row))
    }

    /// Fails if a row that was not found has its entry still.
    fn check_gone(&self, session: &Session, key: &[u8], row: RowId, view: View) -> Result<()> {
        if !self.is_entry_of(session, key, row, view)? {
            return Ok(());
        }
        let index = self.definition.entry.name.clone();
        Err(Error::EntryWithoutRow { table: self.table.name(), index, row })
    }
}

/// What is wrong with an entry of a memtable.
fn in_memory(e: FormatError) -> Error {
    Error::InvalidArgument(format!("entry in memory: {e}"))
}

/// Takes the place that comes first in this direction.
fn take_one(rows: &mut Range<u32>, direction: Direction) -> Option<u32> {
    match direction {
        Direction::Forward => rows.next(),
        Direction::Backward => rows.next_back(),
    }
}
