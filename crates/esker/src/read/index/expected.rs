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

    /// The reading comes to this key, or to its end: none may be left before it.
    fn pass_before(&self, key: Option<&[u8]>) -> Result<()> {
        let Some((next, _)) = &self.next else { return Ok(()) };
        let is_before = key.is_none_or(|key| match self.direction {
            Direction::Forward => next[..] < *key,
            Direction::Backward => next[..] > *key,
        });
        if is_before {
            return Err(Error::RecordChanged);
        }
        Ok(())
    }

    /// The newest version of this key is of that row, or of none.
    fn pass(&mut self, key: &[u8], row: Option<RowId>) -> Result<()> {
        match &self.next {
            Some((next, of)) if next == key && row == Some(*of) => self.go_on(),
            Some((next, _)) if next == key => Err(Error::RecordChanged),
            _ => Ok(()),
        }
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
    /// What is to be met in this extent, if the own view is older than the one that is read under.
    pub(super) fn expect(&self, session: &Session, from: &[u8], to: Option<&[u8]>) -> Result<Option<Expected>> {
        let Some(older) = self.options.lock.and_then(|_| session.older_view(self.view)) else { return Ok(None) };
        let state = self.table.readable(&*self.tree()?)?;
        let private = session.private_keys(&self.table, self.index)?;
        let extent = Extent { from, to: to.map(Into::into), watches: false };
        let entries = Entries::over(state, private.as_ref(), older, extent, (self.direction, &session.parker))?;
        Expected::new(entries, self.direction).map(Some)
    }

    /// The reading has come to a key, whoever has something there, or to its end.
    pub(super) fn pass_expected(&self, key: Option<&[u8]>) -> Result<()> {
        self.expected.as_ref().map_or(Ok(()), |expected| expected.pass_before(key))
    }

    /// Nobody is waited for at this key, and its newest version is of this row, or of none.
    pub(super) fn meet_expected(&mut self, key: &[u8], row: Option<RowId>) -> Result<()> {
        self.expected.as_mut().map_or(Ok(()), |expected| expected.pass(key, row))
    }

    /// The same for a key that was looked up.
    pub(super) fn meet_key(&self, session: &Session, key: &[u8], row: Option<RowId>) -> Result<()> {
        let Some(older) = self.options.lock.and_then(|_| session.older_view(self.view)) else { return Ok(()) };
        let state = self.table.readable(&*self.tree()?)?;
        let expected = find(&state, session.private_keys(&self.table, self.index)?.as_ref(), key, older)?;
        match expected.and_then(|(_, found)| row_of(&found)) {
            Some(of) if row != Some(of) => Err(Error::RecordChanged),
            _ => Ok(()),
        }
    }
}
