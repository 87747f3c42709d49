//! The batches of a cursor that locks nothing: so many entries are gathered, then their rows are looked up, so that all of them are
//! known beforehand, whatever sources have the entries in turn.
//!
//! Invariant: while rows are wanted, the last keys of the buffer are theirs, in their order; else it has as many keys as images.

use super::lookup::RowLookup;
use super::{in_memory, take_one, IndexCursor};
use crate::catalog::table::Table;
use crate::read::buffer::{Keys, BATCH_BYTES, MOST_ROWS};
use crate::session::Session;
use crate::tree::key::ByBytes;
use crate::tree::merge_read::{BlockSpan, Span};
use crate::tree::run::{Bytes, Run};
use crate::tree::stored::split_value;
use crate::tree::{Found, Place};
use crate::txn::open::TableTxn;
use crate::{Error, Result};
use esker_base::counters::{count, Counter};
use esker_format::{FormatError, KeyBlock, RowId};
use std::sync::Arc;

/// An entry, and where it was found.
struct Entry<'a> {
    key: &'a [u8],
    row: RowId,
    payload: &'a [u8],
    /// The reader's own transaction wrote it.
    own: bool,
    damage: &'a dyn Fn(FormatError) -> Error,
}

/// What rows are looked up in.
pub(super) struct Lookup<'a> {
    session: &'a Session,
    table: Arc<Table>,
    /// What the session's transaction has in the table.
    txn: Option<&'a TableTxn>,
    /// `None`: entries are all that is asked for.
    rows: Option<RowLookup>,
}

impl IndexCursor {
    /// Fills the buffer with the next rows.
    pub(super) fn fill(&mut self, session: &mut Session) -> Result<()> {
        let stride = self.table.layout.image_bytes as usize;
        let most = (BATCH_BYTES / stride.max(1)).clamp(1, MOST_ROWS);
        let rows = self.batch_rows.min(most);
        if let Some(key) = self.full_at.clone().or_else(|| self.behind_newer(session)) {
            self.read(session, &self.range.rest(&key, self.direction), self.direction)?;
        }
        self.begin_entries();
        self.buffer.clear();
        if self.span.is_none() && self.entries.is_none() {
            return Ok(());
        }
        let mut lookup = self.lookup(session, self.has_entries())?;
        while self.buffer.ids.len() < rows && !self.buffer.is_full() && self.gather(&mut lookup, rows)? {
            self.add_wanted(&mut lookup)?;
        }
        // Rows so long that a batch keeps too much of blocks in memory: fewer of them.
        self.batch_rows = if self.buffer.is_full() { (rows / 8).max(1) } else { (rows * 8).min(most) };
        self.keep(lookup);
        let goes_on = self.entries.as_ref().is_some_and(|entries| entries.state().is_some());
        if let Some(at) = self.buffer.keys.len().checked_sub(1).filter(|_| goes_on) {
            let last = self.last.get_or_insert_default();
            last.clear();
            last.extend_from_slice(self.buffer.keys.get(at));
        }
        self.buffer.make_images(&self.table, &self.options.mask)?;
        if !self.buffer.ids.is_empty() {
            count(Counter::Batches, 1);
        }
        Ok(())
    }

    /// The key behind which the reading goes on in the newest state of the tree, if there is one that is newer than what is read: as
    /// [`Cursor::follow`](crate::Cursor).
    fn behind_newer(&self, session: &Session) -> Option<Vec<u8>> {
        let (last, read) = (self.last.as_ref()?, self.entries.as_ref()?.state()?);
        if read.is_newest_edit() {
            return None;
        }
        let tree = self.tree().ok()?;
        if !session.can_follow(&self.table, &tree, read, self.view) {
            return None;
        }
        self.table.readable(&*tree).ok()?;
        count(Counter::ReadsFollowed, 1);
        Some(last.clone())
    }

    /// Adds entries until there are so many, or no more; tells whether there was one. Their rows, if these are asked for, are
    /// wanted from then on.
    fn gather(&mut self, lookup: &mut Lookup<'_>, rows: usize) -> Result<bool> {
        let before = self.buffer.keys.len();
        while self.buffer.keys.len() < rows && !self.buffer.is_full() {
            let most = rows - self.buffer.keys.len();
            if let Some((mut span, own)) = self.span.take() {
                self.add_span(lookup, &mut span, own, most)?;
                self.span = Some((span, own)).filter(|(span, _)| !span.rows.is_empty());
                continue;
            }
            let Some(entries) = &mut self.entries else { break };
            if let Some(found) = entries.next_in_turn(most)? {
                found.iter().try_for_each(|(key, place, own)| self.add_one(lookup, key, &place, own))?;
                continue;
            }
            let (span, own) = (entries.next()?, entries.is_own());
            match span {
                Span::End => self.entries = None,
                Span::Rows(span) => self.span = Some((span, own)),
                Span::One(key, found) => self.add_one(lookup, &key, &Place::Found(found), own)?,
            }
        }
        Ok(self.buffer.keys.len() > before)
    }

    /// Adds the rows that are wanted, those for which there is room; keys of which there is none go.
    pub(super) fn add_wanted(&mut self, lookup: &mut Lookup<'_>) -> Result<()> {
        let (wanted, mut keys) = (std::mem::take(&mut self.buffer.wanted), std::mem::take(&mut self.buffer.keys));
        let first = keys.len() - wanted.len();
        let added = self.add_rows_of(lookup, &wanted, &keys);
        if let Ok((done, missing)) = &added {
            if *done < wanted.len() {
                self.full_at = Some(keys.get(first + done - 1).to_vec());
                keys.truncate(first + done);
            }
            keys.forget(missing);
        }
        (self.buffer.wanted, self.buffer.keys) = (wanted, keys);
        self.buffer.wanted.clear();
        added.map(drop)
    }

    /// Adds the rows of the last keys, as long as there is room; tells of how many, and which of these keys have none.
    fn add_rows_of(&mut self, lookup: &mut Lookup<'_>, wanted: &[RowId], keys: &Keys) -> Result<(usize, Vec<usize>)> {
        let Some(rows) = &mut lookup.rows else { return Ok((wanted.len(), Vec::new())) };
        rows.expect(wanted, &self.options.mask)?;
        let (mut missing, first) = (Vec::new(), keys.len() - wanted.len());
        let mut at = 0;
        while let Some(row) = wanted.get(at).filter(|_| !self.buffer.is_full()) {
            if !self.add_row(lookup, keys.get(first + at), *row)? {
                missing.push(first + at);
            }
            at += 1;
            if let Some(beside) = lookup.rows.as_mut().and_then(|rows| rows.beside(&wanted[at..])) {
                let end = at + beside.places.len();
                self.buffer.add_beside(&wanted[at..end], &beside);
                at = end;
            }
        }
        Ok((at, missing))
    }

    /// What is needed for rows, or `entries` alone.
    pub(super) fn lookup<'a>(&mut self, session: &'a mut Session, entries: bool) -> Result<Lookup<'a>> {
        let kept = self.rows.take();
        let looks_up = !self.covering && !entries;
        if looks_up {
            session.check_kept(self.view)?;
            session.seal_for_read(&self.table)?;
        }
        let session = &*session;
        let txn = session.current.open().and_then(|txn| txn.in_table(&self.table));
        let mut rows = None;
        if looks_up {
            let state = self.table.rows_under(self.view)?;
            // Who has written here finds each time what it has.
            rows = kept.filter(|kept| txn.is_none() && kept.is_in(&state, self.view));
            if rows.is_none() {
                rows = Some(RowLookup::new(state, session.private_of(&self.table)?, self.view));
            }
        }
        Ok(Lookup { session, table: self.table.clone(), txn, rows })
    }

    /// Keeps what rows were looked up in, if the transaction has written none: for the next batch, and for the next seek, whose
    /// rows often lie behind those of this one. Of this one's looks it is told now, however long more seeks come.
    pub(super) fn keep(&mut self, lookup: Lookup<'_>) {
        self.rows = lookup.rows.filter(|_| lookup.txn.is_none());
        self.rows.iter_mut().for_each(RowLookup::tell_looks);
    }

    /// Adds entries of a block, so many at most.
    fn add_span(
        &mut self,
        lookup: &mut Lookup<'_>,
        span: &mut BlockSpan<ByBytes>,
        own: bool,
        most: usize,
    ) -> Result<()> {
        let BlockSpan { run, offset, block, rows: left } = span;
        for _ in 0..most {
            let Some(at) = take_one(left, self.direction) else { break };
            self.add_of_block(lookup, block.key(at), (run, *offset, block, at), own)?;
        }
        Ok(())
    }

    /// Adds the entry that was found there, if there is one.
    fn add_one(&mut self, lookup: &mut Lookup<'_>, key: &[u8], place: &Place<'_, ByBytes>, own: bool) -> Result<()> {
        match place {
            Place::Mem(_, value) | Place::Found(Found::Mem(_, value)) => {
                let (row, payload) = split_value(value);
                self.add(lookup, &Entry { key, row, payload, own, damage: &in_memory })
            }
            Place::Block(run, offset, block, at) => self.add_of_block(lookup, key, (run, *offset, block, *at), own),
            Place::Found(Found::Block(run, offset, block, at)) => {
                self.add_of_block(lookup, key, (run, *offset, block, *at), own)
            }
            Place::Found(Found::Tombstone) => Ok(()),
        }
    }

    fn add_of_block(
        &mut self,
        lookup: &mut Lookup<'_>,
        key: &[u8],
        (run, offset, block, at): (&Run<ByBytes>, u64, &KeyBlock<Bytes>, u32),
        own: bool,
    ) -> Result<()> {
        let damage = |e| run.damage(offset, e);
        let (row, payload) = (block.row(at), block.payload(at));
        self.add(lookup, &Entry { key, row, payload, own, damage: &damage })
    }

    /// Adds an entry, if it counts.
    fn add(&mut self, lookup: &mut Lookup<'_>, entry: &Entry<'_>) -> Result<()> {
        if !entry.own && lookup.txn.is_some_and(|txn| txn.is_overtaken(entry.row, self.view.seq)) {
            return Ok(());
        }
        if lookup.rows.is_some() {
            self.buffer.wanted.push(entry.row);
            self.buffer.keys.push(entry.key);
            return Ok(());
        }
        let table = &lookup.table;
        let codec = self.definition.codec()?;
        self.buffer.add_filled(table.layout.image_bytes as usize, entry.row, |image| {
            let (mask, scratch) = (&self.options.mask, &mut self.scratch);
            codec.fill_image(entry.key, entry.payload, mask, image, scratch).map_err(entry.damage)
        })?;
        self.buffer.keys.push(entry.key);
        Ok(())
    }

    /// Adds the row of an entry that counts; false if the entry has become another row's, or nobody's.
    fn add_row(&mut self, lookup: &mut Lookup<'_>, key: &[u8], row: RowId) -> Result<bool> {
        let Some(rows) = &mut lookup.rows else { return Ok(false) };
        let Some((order, place)) = rows.find(row, &self.options.mask)? else {
            return self.check_gone(lookup.session, key, row, self.view).map(|()| false);
        };
        // What was written since the seek may have changed the key.
        let is_later = order.is_own() && order.ordinal >= self.ordinal;
        if is_later && !self.is_entry_of(lookup.session, key, row, self.view)? {
            return self.check_gone(lookup.session, key, row, self.view).map(|()| false);
        }
        self.buffer.add_place(&lookup.table, &self.options.mask, row, place)?;
        Ok(true)
    }
}
