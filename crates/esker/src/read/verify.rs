//! Holds an index against its table's rows, under one view: every row has its entry, and there are no others.
//!
//! Rows are read in their order and entries in that of their keys, once each: what one row's entry has to be is hashed, and the
//! sums of both must be the same, whatever the order. To look each row's key up instead would read a block for every row and run
//! where keys are many and memory is little. An entry is looked up by its key while its blocks are at hand, so that what finds
//! keys is held against what reads them. Only where the sums differ are rows and entries looked for one by one.

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
use xxhash_rust::xxh3::xxh3_128;

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
        self.core.check_usable(table)?;
        self.seal_for_read(table)?;
        let view = self.read_view()?;
        let trees = table.trees();
        if view.seq < trees.index(index)?.entry.usable_from {
            return Err(Error::TableChanged(table.name()));
        }
        let mut check = Check {
            session: self,
            table,
            trees,
            index,
            view,
            report: IndexReport::default(),
            go_on,
            hashed: Vec::new(),
        };
        let rows = check.rows(false)?;
        let entries = check.entries(false)?;
        if rows != entries || check.report.rows != check.report.entries {
            check.rows(true)?;
            if check.report.wrong.is_empty() {
                check.entries(true)?;
            }
            if check.report.wrong.is_empty() {
                check.wrong("the entries are not those of the rows".to_owned());
            }
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
    /// What is hashed.
    hashed: Vec<u8>,
}

impl Check<'_> {
    fn ask(&mut self, done: u64) -> Result<()> {
        match done % ASK_EVERY != 0 || (self.go_on)() {
            true => Ok(()),
            false => Err(Error::Interrupted),
        }
    }

    fn wrong(&mut self, what: String) {
        // What the entries have shown the rows show once more.
        if self.report.wrong.len() < MOST_FINDINGS && !self.report.wrong.contains(&what) {
            self.report.wrong.push(what);
        }
    }

    /// The sum of the entries that the rows should have; `by_key`, every row's key is looked up, and leads to the row.
    fn rows(&mut self, by_key: bool) -> Result<u128> {
        self.report.rows = 0;
        let mut sum = 0u128;
        let (state, private) = (self.table.readable(&self.table.tree())?, self.session.private_of(self.table)?);
        let mut read = MergeRead::<ByRow>::new(state, private, self.view, RowId(1), &self.session.parker)?;
        loop {
            match read.next()? {
                Span::End => return Ok(sum),
                Span::One(row, found) => sum = sum.wrapping_add(self.row(row, &found, read.is_own(), by_key)?),
                Span::Rows(span) => {
                    for at in span.rows.clone() {
                        let found = Found::Block(span.run.clone(), span.offset, span.block.clone(), at);
                        sum = sum.wrapping_add(self.row(span.block.row_id(at), &found, read.is_own(), by_key)?);
                    }
                }
            }
        }
    }

    fn row(&mut self, row: RowId, found: &Found, own: bool, by_key: bool) -> Result<u128> {
        if !own && self.session.is_overtaken(self.table, row, self.view.seq) {
            return Ok(0);
        }
        self.report.rows += 1;
        self.ask(self.report.rows)?;
        let (key, payload) = self.key_of(row, found)?;
        if by_key {
            self.look_up(row, &key, &payload)?;
        }
        Ok(self.hash(row, &key, &payload))
    }

    /// The key of a row leads to it.
    fn look_up(&mut self, row: RowId, key: &[u8], payload: &[u8]) -> Result<()> {
        let state = self.table.readable(&self.trees.keys[self.index])?;
        let private = self.session.private_keys(self.table, self.index)?;
        match find(&state, private.as_ref(), key, self.view)?.map(|(_, found)| told(&found)) {
            Some(Some((of, its))) if of == row && its == payload => {}
            Some(Some((of, _))) => self.wrong(format!("the key of row {row} leads to row {of}, or tells other values")),
            Some(None) | None => self.wrong(format!("no entry of row {row} is found by its key")),
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

    /// Of an entry. Sums of these are the same by accident about once in 2^128.
    fn hash(&mut self, row: RowId, key: &[u8], payload: &[u8]) -> u128 {
        self.hashed.clear();
        self.hashed.extend_from_slice(&row.0.to_le_bytes());
        self.hashed.extend_from_slice(&(key.len() as u64).to_le_bytes());
        self.hashed.extend_from_slice(key);
        self.hashed.extend_from_slice(payload);
        xxh3_128(&self.hashed)
    }

    /// The sum of the entries, each of which its key leads to; `by_row`, their rows are looked for.
    fn entries(&mut self, by_row: bool) -> Result<u128> {
        self.report.entries = 0;
        let mut sum = 0u128;
        let state = self.table.readable(&self.trees.keys[self.index])?;
        let private = self.session.private_keys(self.table, self.index)?;
        let mut read = MergeRead::<ByBytes>::new(state, private, self.view, &[], &self.session.parker)?;
        loop {
            match read.next()? {
                Span::End => return Ok(sum),
                Span::One(key, found) => {
                    if let Some((row, payload)) = told(&found) {
                        sum = sum.wrapping_add(self.entry(&key, row, &payload, by_row)?);
                    }
                }
                Span::Rows(span) => {
                    for at in span.rows.clone() {
                        let (key, payload) = (span.block.key(at), span.block.payload(at));
                        sum = sum.wrapping_add(self.entry(key, span.block.row(at), payload, by_row)?);
                    }
                }
            }
        }
    }

    fn entry(&mut self, key: &[u8], row: RowId, payload: &[u8], by_row: bool) -> Result<u128> {
        if !self.counts(key, row)? {
            return Ok(0);
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
        } else {
            self.look_up(row, key, payload)?;
        }
        Ok(self.hash(row, key, payload))
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
