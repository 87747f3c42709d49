//! A cursor over an index: rows in the order of its keys, or against it, of a range of keys; a batch at a time.
//!
//! Where the entries tell all columns that are asked for, the rows themselves are not looked at. Who locks gets one row a
//! call, see `locked.rs`; who chooses gets entries first, see `chosen.rs`. Invariants: all entries of a seek are read from one state of the tree under one view; a row that is
//! given is one of that view, or, locked, the newest; an entry whose row is not there is damage, unless the reader's own
//! transaction has taken both away since the seek.

pub(crate) mod alike;
mod chosen;
mod estimate;
mod locked;
#[cfg(test)]
mod tests;

use crate::catalog::table::Table;
use crate::read::buffer::{Buffer, BATCH_BYTES, FIRST_ROWS, MOST_ROWS};
use crate::read::cursor::ScanOptions;
use crate::session::Session;
use crate::tree::backward::BackwardRead;
use crate::tree::key::{ByBytes, ByRow};
use crate::tree::memtable::Memtable;
use crate::tree::merge_read::{BlockSpan, Extent, MergeRead, Span, Unseen};
use crate::tree::near::Near;
use crate::tree::stored::split_value;
use crate::tree::{find, Found, Stamp, TreeState};
use crate::txn::open::TableTxn;
use crate::version::View;
use crate::{Error, Result};
use chosen::Chosen;
use esker_base::counters::{count, Counter};
use esker_format::key_bytes::pass_prefix;
use esker_format::{FormatError, RowId};
use std::cell::Cell;
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

/// Keys one behind the other.
#[derive(Debug, Default)]
struct Keys {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Keys {
    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    fn push(&mut self, key: &[u8]) {
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len());
    }

    fn get(&self, at: usize) -> &[u8] {
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start..self.ends[at]]
    }
}

/// The merged reading of entries, in either direction.
enum Entries {
    Forward(MergeRead<ByBytes>),
    Backward(BackwardRead<ByBytes>),
}

impl Entries {
    fn next(&mut self) -> Result<Span<ByBytes>> {
        match self {
            Entries::Forward(read) => read.next(),
            Entries::Backward(read) => read.next(),
        }
    }

    fn is_own(&self) -> bool {
        match self {
            Entries::Forward(read) => read.is_own(),
            Entries::Backward(read) => read.is_own(),
        }
    }

    fn unseen(&self) -> Option<Unseen> {
        match self {
            Entries::Forward(read) => read.unseen(),
            Entries::Backward(read) => read.unseen(),
        }
    }
}

/// An entry, and where it was found.
struct Entry<'a> {
    key: &'a [u8],
    row: RowId,
    payload: &'a [u8],
    /// The reader's own transaction wrote it.
    own: bool,
    damage: &'a dyn Fn(FormatError) -> Error,
}

/// A state of the row tree, and the transaction's own memtable beside it.
type Rows = (Arc<TreeState<ByRow>>, Option<Arc<Memtable>>);

/// What rows are looked up in.
struct Lookup<'a> {
    session: &'a Session,
    table: Arc<Table>,
    /// What the session's transaction has in the table.
    txn: Option<&'a TableTxn>,
    rows: Option<Rows>,
    /// What lies about the rows that were looked up last.
    near: Cell<Option<Near>>,
    last: Cell<RowId>,
}

/// Rows this close to each other are looked up together.
const NEAR: u64 = 64;

impl Lookup<'_> {
    /// The row, or that there is none, if it is known from those before.
    fn known(&self, row: RowId) -> Option<Option<Found>> {
        let near = self.near.take()?;
        let known = near.knows(row).then(|| near.find(row));
        self.near.set(Some(near));
        known
    }

    /// A row was found, and is not the own transaction's. Where it lies near the one before, others will.
    fn look_about(&self, (state, private): &Rows, view: View, row: RowId, found: &Found) {
        let before = self.last.replace(row);
        if before.0.abs_diff(row.0) <= NEAR {
            self.near.set(Near::of(state, private.as_ref(), view, row, found));
        }
    }
}

/// A cursor over an index of a table.
pub struct IndexCursor {
    table: Arc<Table>,
    index: usize,
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
    buffer: Buffer,
    keys: Keys,
    chosen: Chosen,
    batch_rows: usize,
    semi_consistent: bool,
    /// Of the tree when reading began, for who locks.
    stamp: Stamp,
    /// The key that a locking cursor has come to since.
    last: Option<Vec<u8>>,
    /// Stands before the row given out last.
    again: bool,
}

impl Session {
    /// A cursor over the index at this place of the table's, under this session's view or, if it locks, of the newest
    /// versions. It gives nothing before a [`seek`](IndexCursor::seek).
    pub fn open_index_cursor(&mut self, table: &Arc<Table>, index: usize, options: ScanOptions) -> Result<IndexCursor> {
        let found = table.indexes.get(index).filter(|i| i.is_kept());
        let codec = found.ok_or_else(|| Error::InvalidArgument(format!("no index {index} to read by")))?.codec()?;
        let in_mask = (0..table.layout.columns.len()).filter(|place| options.mask.get(*place));
        let covering = options.lock.is_none() && in_mask.into_iter().all(|place| codec.covers(place));
        let view = if options.lock.is_some() { self.latest_view()? } else { self.read_view()? };
        self.check_rebuilt(table)?;
        count(Counter::Scans, 1);
        Ok(IndexCursor {
            table: table.clone(),
            index,
            options,
            covering,
            view,
            range: KeyRange::default(),
            direction: Direction::Forward,
            entries: None,
            span: None,
            ordinal: 0,
            buffer: Buffer::default(),
            keys: Keys::default(),
            chosen: Chosen::default(),
            batch_rows: FIRST_ROWS,
            semi_consistent: false,
            stamp: Stamp::default(),
            last: None,
            again: false,
        })
    }
}

impl IndexCursor {
    /// From now on gives the entries of a range, from its beginning or from its end.
    pub fn seek(&mut self, session: &mut Session, range: KeyRange, direction: Direction) -> Result<()> {
        self.range = range;
        self.batch_rows = FIRST_ROWS;
        self.again = false;
        self.read(session, &self.range.clone(), direction)
    }

    /// Goes on from an entry that was given, which is left out, in a direction, within the range that was sought. The key is a
    /// whole one.
    pub fn seek_from(&mut self, session: &mut Session, key: &[u8], direction: Direction) -> Result<()> {
        self.batch_rows = FIRST_ROWS;
        self.again = false;
        self.read(session, &self.range.rest(key, direction), direction)
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
        self.keys.get(at)
    }

    /// The next rows; empty at the end. A locking cursor gives one at a time.
    pub fn next_batch(&mut self, session: &mut Session) -> Result<IndexBatch<'_>> {
        match self.options.lock {
            Some(mode) => self.next_locked(session, mode)?,
            None => self.fill(session)?,
        }
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
        let (images, ids, keys) = (self.buffer.base(), &*self.buffer.ids, &self.keys);
        IndexBatch { images, stride, ids, covering: self.covering, keys }
    }

    /// Begins to read anew, under the cursor's view or, if it locks, the newest.
    fn read(&mut self, session: &mut Session, range: &KeyRange, direction: Direction) -> Result<()> {
        session.seal_for_read(&self.table)?;
        if self.options.lock.is_some() {
            self.view = session.latest_view()?;
        }
        let state = self.table.trees().keys[self.index].snapshot();
        let private = session.private_keys(&self.table, self.index)?;
        (self.stamp, self.last) = (state.stamp(), None);
        let extent = Extent {
            from: &*range.from,
            to: range.to.as_deref().map(Into::into),
            watches: self.options.lock.is_some(),
        };
        self.entries = match direction {
            _ if range.is_empty() => None,
            Direction::Forward => {
                Some(Entries::Forward(MergeRead::within(state, private.as_ref(), self.view, extent, &session.parker)?))
            }
            Direction::Backward => {
                let read = BackwardRead::new(state, private.as_ref(), self.view, extent, &session.parker);
                Some(Entries::Backward(read))
            }
        };
        self.ordinal = session.current.open().map_or(0, |txn| txn.next_ordinal);
        (self.direction, self.span) = (direction, None);
        self.forget();
        Ok(())
    }

    /// What was given is given up.
    fn forget(&mut self) {
        self.buffer.clear();
        self.keys.clear();
    }

    /// Fills the buffer with the next rows.
    fn fill(&mut self, session: &mut Session) -> Result<()> {
        let stride = self.table.layout.image_bytes as usize;
        let most = (BATCH_BYTES / stride.max(1)).clamp(1, MOST_ROWS);
        let rows = self.batch_rows.min(most);
        self.batch_rows = (rows * 8).min(most);
        self.begin_entries();
        self.forget();
        let lookup = self.lookup(session, self.has_entries())?;
        while self.buffer.ids.len() < rows {
            if let Some((mut span, own)) = self.span.take() {
                self.add_span(&lookup, &mut span, own, rows)?;
                self.span = Some((span, own)).filter(|(span, _)| !span.rows.is_empty());
                continue;
            }
            let Some(entries) = &mut self.entries else { break };
            let (span, own) = (entries.next()?, entries.is_own());
            match span {
                Span::End => self.entries = None,
                Span::Rows(span) => self.span = Some((span, own)),
                Span::One(key, found) => self.add_one(&lookup, &key, &found, own)?,
            }
        }
        if !self.buffer.ids.is_empty() {
            count(Counter::Batches, 1);
        }
        Ok(())
    }

    /// What is needed for rows, or `entries` alone.
    fn lookup<'a>(&self, session: &'a mut Session, entries: bool) -> Result<Lookup<'a>> {
        let mut rows = None;
        if !self.covering && !entries {
            session.seal_for_read(&self.table)?;
            rows = Some((self.table.tree().snapshot(), session.private_of(&self.table)?));
        }
        let session = &*session;
        let txn = session.current.open().and_then(|txn| txn.in_table(&self.table));
        let (near, last) = (Cell::default(), Cell::new(RowId::ZERO));
        Ok(Lookup { session, table: self.table.clone(), txn, rows, near, last })
    }

    /// Adds the rows of entries of a block until there are so many.
    fn add_span(&mut self, lookup: &Lookup<'_>, span: &mut BlockSpan<ByBytes>, own: bool, rows: usize) -> Result<()> {
        let (block, run, offset) = (span.block.clone(), span.run.clone(), span.offset);
        let damage = |e| run.damage(offset, e);
        while self.buffer.ids.len() < rows {
            let Some(at) = take_one(&mut span.rows, self.direction) else { break };
            let (key, row, payload) = (block.key(at), block.row(at), block.payload(at));
            self.add(lookup, &Entry { key, row, payload, own, damage: &damage })?;
        }
        Ok(())
    }

    fn add_one(&mut self, lookup: &Lookup<'_>, key: &[u8], found: &Found<ByBytes>, own: bool) -> Result<()> {
        match found {
            Found::Mem(_, value) => {
                let (row, payload) = split_value(value);
                let damage = |e| Error::InvalidArgument(format!("entry in memory: {e}"));
                self.add(lookup, &Entry { key, row, payload, own, damage: &damage })
            }
            Found::Block(run, offset, block, at) => {
                let damage = |e| run.damage(*offset, e);
                let (row, payload) = (block.row(*at), block.payload(*at));
                self.add(lookup, &Entry { key, row, payload, own, damage: &damage })
            }
            Found::Tombstone => Ok(()),
        }
    }

    /// Adds the row of an entry, if the entry counts.
    fn add(&mut self, lookup: &Lookup<'_>, entry: &Entry<'_>) -> Result<()> {
        if !entry.own && lookup.txn.is_some_and(|txn| txn.is_overtaken(entry.row)) {
            // The view does not see the row's newest version, on which the own one lies.
            return Ok(());
        }
        let table = &lookup.table;
        if let Some(rows) = &lookup.rows {
            return self.add_row(lookup, rows, entry.key, entry.row);
        }
        let codec = table.indexes[self.index].codec()?;
        self.buffer.add_filled(table.layout.image_bytes as usize, entry.row, |image| {
            codec.fill_image(entry.key, entry.payload, image).map_err(entry.damage)
        })?;
        self.keys.push(entry.key);
        Ok(())
    }

    /// Adds the row of an entry that counts.
    fn add_row(&mut self, lookup: &Lookup<'_>, rows: &Rows, key: &[u8], row: RowId) -> Result<()> {
        let found = match lookup.known(row) {
            Some(found) => found,
            None => match find(&rows.0, rows.1.as_ref(), row, self.view)? {
                Some((_, Found::Tombstone)) | None => None,
                Some((order, found)) if !order.is_own() => {
                    lookup.look_about(rows, self.view, row, &found);
                    Some(found)
                }
                Some((order, found)) => {
                    // What was written since the seek may have changed the key.
                    let is_later = order.ordinal >= self.ordinal;
                    (!is_later || self.is_entry_of(lookup.session, key, row, self.view)?).then_some(found)
                }
            },
        };
        match found {
            Some(found) => {
                self.buffer.add_found(&lookup.table, &self.options.mask, row, found)?;
                self.keys.push(key);
                Ok(())
            }
            None => self.check_gone(lookup.session, key, row, self.view),
        }
    }

    /// Is the newest version of a key that a view sees now an entry of this row?
    fn is_entry_of(&self, session: &Session, key: &[u8], row: RowId, view: View) -> Result<bool> {
        let state = self.table.trees().keys[self.index].snapshot();
        let found = find(&state, session.private_keys(&self.table, self.index)?.as_ref(), key, view)?;
        Ok(match found {
            Some((_, Found::Mem(_, value))) => split_value(value).0 == row,
            Some((_, Found::Block(_, _, block, at))) => block.row(at) == row,
            Some((_, Found::Tombstone)) | None => false,
        })
    }

    /// Fails if a row that was not found has its entry still.
    fn check_gone(&self, session: &Session, key: &[u8], row: RowId, view: View) -> Result<()> {
        if !self.is_entry_of(session, key, row, view)? {
            return Ok(());
        }
        let index = self.table.indexes[self.index].entry.name.clone();
        Err(Error::EntryWithoutRow { table: self.table.name(), index, row })
    }
}

/// Takes the place that comes first in this direction.
fn take_one(rows: &mut Range<u32>, direction: Direction) -> Option<u32> {
    match direction {
        Direction::Forward => rows.next(),
        Direction::Backward => rows.next_back(),
    }
}
