//! Holds an index against its table's rows, under one view: every row has its entry, and there are no others.

use crate::catalog::table::{Table, Trees};
use crate::read::buffer::decode;
use crate::session::Session;
use crate::tree::key::{ByBytes, ByRow};
use crate::tree::merge_read::{MergeRead, Span, ASK_EVERY};
use crate::tree::stored::{split_value, Stored};
use crate::tree::{find, Found};
use crate::version::View;
use crate::{Error, Result};
use esker_format::key_bytes::append_row;
use esker_format::RowId;
use std::sync::Arc;

/// What holding an index against its table has shown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IndexReport {
    /// Rows that the view sees.
    pub rows: u64,
    /// Entries that it sees.
    pub entries: u64,
    /// What is wrong, the first findings of it; empty if nothing is.
    pub wrong: Vec<String>,
}

/// More findings are not listed.
const MOST_FINDINGS: usize = 20;

impl Session {
    /// Holds the index at place `index` of the table's against its rows, as this session's view sees both: the rows of its
    /// own changes, too.
    ///
    /// # Errors
    /// Those of reading; [`Error::InvalidArgument`] if there is no such index, or none that this version can read.
    pub fn check_index(&mut self, table: &Arc<Table>, index: usize) -> Result<IndexReport> {
        self.check_index_while(table, index, &mut || true)
    }

    /// The same for as long as `go_on`, which is asked now and then, says so.
    ///
    /// # Errors
    /// [`Error::Interrupted`] once it says no.
    pub(crate) fn check_index_while(
        &mut self,
        table: &Arc<Table>,
        index: usize,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<IndexReport> {
        self.seal_for_read(table)?;
        let view = self.read_view()?;
        let trees = table.trees();
        if view.seq < trees.index(index)?.entry.usable_from {
            return Err(Error::TableChanged(table.name()));
        }
        let mut check = Check { session: self, table, trees, index, view, report: IndexReport::default(), go_on };
        check.rows()?;
        check.entries(false)?;
        if check.report.entries != check.report.rows && check.report.wrong.is_empty() {
            check.entries(true)?;
        }
        Ok(check.report)
    }
}

struct Check<'a> {
    session: &'a Session,
    table: &'a Arc<Table>,
    trees: Arc<Trees>,
    index: usize,
    view: View,
    report: IndexReport,
    go_on: &'a mut dyn FnMut() -> bool,
}

impl Check<'_> {
    fn ask(&mut self, done: u64) -> Result<()> {
        match done % ASK_EVERY != 0 || (self.go_on)() {
            true => Ok(()),
            false => Err(Error::Interrupted),
        }
    }

    fn wrong(&mut self, what: String) {
        if self.report.wrong.len() < MOST_FINDINGS {
            self.report.wrong.push(what);
        }
    }

    /// Every row's key leads to the row.
    fn rows(&mut self) -> Result<()> {
        let (state, private) = (self.table.readable(&self.table.tree())?, self.session.private_of(self.table)?);
        let mut read = MergeRead::<ByRow>::new(state, private, self.view, RowId(1), &self.session.parker)?;
        loop {
            match read.next()? {
                Span::End => return Ok(()),
                Span::One(row, found) => self.row(row, &found, read.is_own())?,
                Span::Rows(span) => {
                    for at in span.rows.clone() {
                        let found = Found::Block(span.run.clone(), span.offset, span.block.clone(), at);
                        self.row(span.block.row_id(at), &found, read.is_own())?;
                    }
                }
            }
        }
    }

    fn row(&mut self, row: RowId, found: &Found, own: bool) -> Result<()> {
        if !own && self.session.is_overtaken(self.table, row, self.view.seq) {
            return Ok(());
        }
        self.report.rows += 1;
        self.ask(self.report.rows)?;
        let (key, payload) = self.key_of(row, found)?;
        let state = self.table.readable(&self.trees.keys[self.index])?;
        let private = self.session.private_keys(self.table, self.index)?;
        match find(&state, private.as_ref(), &key, self.view)?.map(|(_, found)| told(&found)) {
            Some(Some((of, its))) if of == row && its == payload => {}
            Some(Some((of, _))) => self.wrong(format!("the key of row {row} leads to row {of}, or tells other values")),
            Some(None) | None => self.wrong(format!("row {row} has no entry")),
        }
        Ok(())
    }

    /// The key and the payload that a row should have.
    fn key_of(&self, row: RowId, found: &Found) -> Result<(Vec<u8>, Vec<u8>)> {
        let index = self.trees.index(self.index)?;
        let codec = index.codec()?;
        let mut image = vec![0; self.table.layout.image_bytes as usize];
        decode(self.table, &self.trees.index_columns, found, &mut image)?;
        let (mut key, mut payload) = (Vec::new(), Vec::new());
        // SAFETY: the columns of all indexes were decoded, and what their slots point to is pinned by `found`.
        let has_null = unsafe {
            codec.payload_of_image(image.as_ptr(), &mut payload);
            codec.key_of_image(image.as_ptr(), &*index.collations, &mut key)
        };
        if has_null.map_err(|e| index.error(&e))? || !index.entry.unique {
            append_row(&mut key, row);
        }
        Ok((key, payload))
    }

    /// Counts the entries, or, `by_row`, looks for their rows.
    fn entries(&mut self, by_row: bool) -> Result<()> {
        self.report.entries = 0;
        let state = self.table.readable(&self.trees.keys[self.index])?;
        let private = self.session.private_keys(self.table, self.index)?;
        let mut read = MergeRead::<ByBytes>::new(state, private, self.view, &[], &self.session.parker)?;
        loop {
            match read.next()? {
                Span::End => return Ok(()),
                Span::One(key, found) => {
                    if let Some((row, _)) = told(&found) {
                        self.entry(&key, row, by_row)?;
                    }
                }
                Span::Rows(span) => {
                    for at in span.rows.clone() {
                        self.entry(span.block.key(at), span.block.row(at), by_row)?;
                    }
                }
            }
        }
    }

    fn entry(&mut self, key: &[u8], row: RowId, by_row: bool) -> Result<()> {
        if !self.counts(key, row)? {
            return Ok(());
        }
        self.report.entries += 1;
        self.ask(self.report.entries)?;
        if by_row {
            let private = self.session.private_of(self.table)?;
            match find(&*self.table.readable(&self.table.tree())?, private.as_ref(), row, self.view)? {
                None | Some((_, Found::Tombstone)) => self.wrong(format!("an entry leads to row {row}, which is gone")),
                Some((_, found)) if self.key_of(row, &found)?.0 != key => {
                    self.wrong(format!("an entry leads to row {row}, which has another key"));
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// Of a row that was overtaken only the transaction's own entries count.
    fn counts(&self, key: &[u8], row: RowId) -> Result<bool> {
        if !self.session.is_overtaken(self.table, row, self.view.seq) {
            return Ok(true);
        }
        let state = self.table.readable(&self.trees.keys[self.index])?;
        let private = self.session.private_keys(self.table, self.index)?;
        Ok(find(&state, private.as_ref(), key, self.view)?.is_some_and(|(order, _)| order.is_own()))
    }
}

/// The row and the payload of an entry.
fn told(found: &Found<ByBytes>) -> Option<(RowId, Vec<u8>)> {
    match found {
        Found::Mem(_, value) => {
            let (row, payload) = split_value(value);
            Some((row, payload.to_vec()))
        }
        Found::Block(_, _, block, at) => Some((ByBytes::row(block, *at), block.payload(*at).to_vec())),
        Found::Tombstone => None,
    }
}
