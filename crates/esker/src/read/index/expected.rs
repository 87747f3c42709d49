//! Under snapshot isolation, what a locking read by an index must meet: each entry of the transaction's own view.
//!
//! Its keys are held against those that the locking reading comes to. One that it does not come to, or that is another row's by then,
//! was changed by somebody who has committed since: error 1020, as where the row itself was changed (`Session::find_version`). What the
//! transaction has taken away itself its own view does not have.

use super::{take_one, Entries, IndexCursor};
use crate::session::Session;
use crate::tree::find;
use crate::tree::key::ByBytes;
use crate::tree::merge_read::{BlockSpan, Extent, Span};
use crate::tree::stored::{split_value, Stored};
use crate::tree::Found;
use crate::version::View;
use crate::{Direction, Error, Result};
use esker_format::RowId;

/// The entries of the own view that the reading has not come to.
pub(super) struct Expected {
    entries: Entries,
    span: Option<BlockSpan<ByBytes>>,
    direction: Direction,
    next: Option<(Vec<u8>, RowId)>,
}

impl Expected {
    fn new(entries: Entries, direction: Direction) -> Result<Self> {
        let mut expected = Expected { entries, span: None, direction, next: None };
        expected.go_on()?;
        Ok(expected)
    }

    /// Comes to the next one.
    fn go_on(&mut self) -> Result<()> {
        self.next = loop {
            if let Some(span) = &mut self.span {
                if let Some(at) = take_one(&mut span.rows, self.direction) {
                    break Some((span.block.key(at).to_vec(), span.block.row(at)));
                }
                self.span = None;
            }
            match self.entries.next()? {
                Span::End => break None,
                Span::Rows(span) => self.span = Some(span),
                Span::One(key, found) => {
                    if let Some(row) = row_of(&found) {
                        break Some((key.to_vec(), row));
                    }
                }
            }
        };
        Ok(())
    }

    /// Whose the next one is, if it is one that the reading, which has come to this key or to its end, has left behind.
    fn left_before(&self, key: Option<&[u8]>) -> Option<&(Vec<u8>, RowId)> {
        self.next.as_ref().filter(|(next, _)| {
            key.is_none_or(|key| match self.direction {
                Direction::Forward => next[..] < *key,
                Direction::Backward => next[..] > *key,
            })
        })
    }
}

/// Whose an entry is; nobody's that was taken away.
pub(super) fn row_of(found: &Found<ByBytes>) -> Option<RowId> {
    match found {
        Found::Mem(_, value) => Some(split_value(value).0),
        Found::Block(_, _, block, at) => Some(ByBytes::row(block, *at)),
        Found::Tombstone => None,
    }
}

impl IndexCursor {
    /// The own view, if it is older than what is read under and its rows are to be met.
    fn view_to_meet(&self, session: &Session) -> Result<Option<View>> {
        let locks = self.options.lock.is_some() && !self.options.passes_gone;
        let older = locks.then(|| session.older_view(self.view)).flatten();
        if older.is_some_and(|older| older.seq < self.definition.entry.usable_from) {
            // It was made since, of what there was then.
            return Err(Error::TableChanged(self.table.name()));
        }
        Ok(older)
    }

    /// What is to be met in this extent, if the own view is older than the one that is read under.
    pub(super) fn expect(&self, session: &Session, from: &[u8], to: Option<&[u8]>) -> Result<Option<Expected>> {
        let Some(older) = self.view_to_meet(session)? else { return Ok(None) };
        let state = self.table.readable(&*self.tree()?)?;
        let private = session.private_keys(&self.table, self.index)?;
        let extent = Extent { from, to: to.map(Into::into), watches: false };
        let entries = Entries::over(state, private.as_ref(), older, extent, (self.direction, &session.parker))?;
        Expected::new(entries, self.direction).map(Some)
    }

    /// The reading has come to a key, whoever has something there, or to its end: none may be left before it.
    pub(super) fn pass_expected(&mut self, session: &mut Session, key: Option<&[u8]>) -> Result<()> {
        while let Some((left, row)) = self.expected.as_ref().and_then(|e| e.left_before(key)).cloned() {
            self.pass_one(session, &left, row)?;
        }
        Ok(())
    }

    /// Nobody is waited for at this key, and its newest version is of this row, or of none.
    pub(super) fn meet_expected(&mut self, session: &mut Session, key: &[u8], row: Option<RowId>) -> Result<()> {
        match self.expected.as_mut().and_then(|e| e.next.clone().map(|next| (e, next))) {
            Some((expected, (next, of))) if next == key && row == Some(of) => expected.go_on(),
            Some((_, (next, of))) if next == key => self.pass_one(session, &next, of),
            _ => Ok(()),
        }
    }

    /// Goes on behind an expected entry that was not met: it was read before the transaction took it away itself, or has changed.
    fn pass_one(&mut self, session: &mut Session, key: &[u8], row: RowId) -> Result<()> {
        session.seal_for_read(&self.table)?;
        self.meet_key(session, key, None, Some(row))?;
        self.expected.as_mut().map_or(Ok(()), Expected::go_on)
    }

    /// Fails if the own view has a key for another row than the newest version, which is of `row`, or of none; with `of`, only if
    /// it has it for that row.
    pub(super) fn meet_key(&self, session: &Session, key: &[u8], row: Option<RowId>, of: Option<RowId>) -> Result<()> {
        let Some(older) = self.view_to_meet(session)? else { return Ok(()) };
        let state = self.table.readable(&*self.tree()?)?;
        let expected = find(&state, session.private_keys(&self.table, self.index)?.as_ref(), key, older)?;
        match expected.and_then(|(_, found)| row_of(&found)) {
            Some(own) if row != Some(own) && of.is_none_or(|of| of == own) => Err(Error::RecordChanged),
            _ => Ok(()),
        }
    }
}
