//! Holds indexes against their table's rows, under one view: every row has its entry in each, and there are no others.
//!
//! Rows are read in their order, once for all indexes, and entries in that of their keys, once each: what one row's entry has to be
//! is hashed, and the sums of both must be the same, whatever the order. To look each row's key up instead would read a block for
//! every row and run where keys are many and memory is little. An entry is looked up by its key, if that is asked for, while its
//! blocks are at hand, so that what finds keys is held against what reads them. Only where the sums differ are rows and entries
//! looked for one by one.

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
use esker_format::{ColumnMask, RowId};
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
    /// own changes, too. Every entry is looked up by its key.
    ///
    /// # Errors
    /// Those of reading; [`Error::InvalidArgument`] if there is no such index, or none that this version can read.
    pub fn check_index(&mut self, table: &Arc<Table>, index: usize) -> Result<IndexReport> {
        self.check_indexes(table, &[index], true, &mut |_| true)?.pop().unwrap_or_else(|| Ok(IndexReport::default()))
    }

    /// The same of several, for as long as `go_on` says so: it is asked now and then, with 0 while rows are read, and with 1 and so on
    /// for the entries of each, which are looked up only `by_key`. What holding one of them has come to is by itself; the last one may
    /// be [`Error::Interrupted`].
    ///
    /// # Errors
    /// Those of reading the rows; [`Error::Interrupted`] once `go_on` says no to that.
    pub(crate) fn check_indexes(
        &mut self,
        table: &Arc<Table>,
        indexes: &[usize],
        by_key: bool,
        go_on: &mut dyn FnMut(usize) -> bool,
    ) -> Result<Vec<Result<IndexReport>>> {
        self.core.check_usable(table)?;
        self.seal_for_read(table)?;
        let view = self.read_view()?;
        let trees = table.trees();
        let mut columns = ColumnMask::none(table.layout.columns.len());
        for index in indexes {
            let index = trees.index(*index)?;
            if view.seq < index.entry.usable_from {
                return Err(Error::TableChanged(table.name()));
            }
            index.codec()?.columns().for_each(|column| columns.set(column));
        }
        let report = IndexReport::default();
        let mut check =
            Check { session: self, table, trees, columns, view, by_key, report, go_on, part: 0, hashed: vec![] };
        let sums = check.rows(indexes, false)?;
        let rows = check.report.rows;
        let mut reports = Vec::with_capacity(indexes.len());
        for (at, index) in indexes.iter().enumerate() {
            check.part = at + 1;
            check.report = IndexReport { rows, ..IndexReport::default() };
            let held = check.hold(*index, sums[at]).map(|()| std::mem::take(&mut check.report));
            let stopped = matches!(held, Err(Error::Interrupted));
            reports.push(held);
            if stopped {
                break;
            }
        }
        Ok(reports)
    }
}

struct Check<'a> {
    session: &'a Session,
    table: &'a Arc<Table>,
    trees: Arc<Trees>,
    /// What the keys are made of.
    columns: ColumnMask,
    view: View,
    /// Is every entry looked up?
    by_key: bool,
    /// Of the index that is held, and the rows.
    report: IndexReport,
    go_on: &'a mut dyn FnMut(usize) -> bool,
    /// What `go_on` is asked with.
    part: usize,
    /// What is hashed.
    hashed: Vec<u8>,
}

/// Of a row, one after the other.
struct Made {
    image: Vec<u8>,
    key: Vec<u8>,
    payload: Vec<u8>,
}

impl Made {
    fn of(table: &Table) -> Made {
        Made { image: vec![0; table.layout.image_bytes as usize], key: Vec::new(), payload: Vec::new() }
    }
}

impl Check<'_> {
    /// Holds an index against the sum that its rows have come to.
    fn hold(&mut self, index: usize, of_rows: u128) -> Result<()> {
        let of_entries = self.entries(index, false)?;
        if of_rows == of_entries && self.report.rows == self.report.entries {
            return Ok(());
        }
        self.rows(&[index], true)?;
        if self.report.wrong.is_empty() {
            self.entries(index, true)?;
        }
        if self.report.wrong.is_empty() {
            self.wrong("the entries are not those of the rows".to_owned());
        }
        Ok(())
    }

    fn ask(&mut self, done: u64) -> Result<()> {
        match done % ASK_EVERY != 0 || (self.go_on)(self.part) {
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

    /// The sums of the entries that the rows should have in each index; `by_key`, every row's key is looked up, and leads to the row.
    fn rows(&mut self, indexes: &[usize], by_key: bool) -> Result<Vec<u128>> {
        self.report.rows = 0;
        let (mut sums, mut made) = (vec![0u128; indexes.len()], Made::of(self.table));
        let (state, private) = (self.table.rows_under(self.view)?, self.session.private_of(self.table)?);
        let mut read = MergeRead::<ByRow>::new(state, private, self.view, RowId(1), &self.session.parker)?;
        loop {
            match read.next()? {
                Span::End => return Ok(sums),
                Span::One(row, found) => {
                    self.row(row, &found, read.is_own(), (indexes, &mut sums, &mut made), by_key)?
                }
                Span::Rows(span) => {
                    for at in span.rows.clone() {
                        let found = Found::Block(span.run.clone(), span.offset, span.block.clone(), at);
                        self.row(
                            span.block.row_id(at),
                            &found,
                            read.is_own(),
                            (indexes, &mut sums, &mut made),
                            by_key,
                        )?;
                    }
                }
            }
        }
    }

    /// Adds a row to the sum of each index.
    fn row(
        &mut self,
        row: RowId,
        found: &Found,
        own: bool,
        (indexes, sums, made): (&[usize], &mut [u128], &mut Made),
        by_key: bool,
    ) -> Result<()> {
        if !own && self.session.is_overtaken(self.table, row, self.view.seq) {
            return Ok(());
        }
        self.report.rows += 1;
        self.ask(self.report.rows)?;
        decode(self.table, &self.columns, found, &mut made.image)?;
        for (index, sum) in indexes.iter().zip(sums) {
            // SAFETY: its columns were decoded, and what their slots point to is pinned by `found`.
            unsafe { self.make_key(*index, row, made)? };
            if by_key {
                self.look_up(*index, row, &made.key, &made.payload)?;
            }
            *sum = sum.wrapping_add(self.hash(row, &made.key, &made.payload));
        }
        Ok(())
    }

    /// The key of a row leads to it.
    fn look_up(&mut self, index: usize, row: RowId, key: &[u8], payload: &[u8]) -> Result<()> {
        let state = self.table.readable(&self.trees.keys[index])?;
        let private = self.session.private_keys(self.table, index)?;
        match find(&state, private.as_ref(), key, self.view)?.as_ref().map(|(_, found)| told(found)) {
            Some(Some((of, its))) if of == row && its == payload => {}
            Some(Some((of, _))) => self.wrong(format!("the key of row {row} leads to row {of}, or tells other values")),
            Some(None) | None => self.wrong(format!("no entry of row {row} is found by its key")),
        }
        Ok(())
    }

    /// The key and the payload that a row should have in an index, of its image.
    ///
    /// # Safety
    /// The index's columns are there, and what their slots point to.
    unsafe fn make_key(&self, index: usize, row: RowId, made: &mut Made) -> Result<()> {
        let index = self.trees.index(index)?;
        let codec = index.codec()?;
        made.key.clear();
        made.payload.clear();
        // SAFETY: the caller's promise.
        let has_null = unsafe {
            codec.payload_of_image(made.image.as_ptr(), &mut made.payload);
            codec.key_of_image(made.image.as_ptr(), &*index.collations, &mut made.key)
        };
        if has_null.map_err(|e| index.error(&e))? || !index.entry.unique {
            append_row(&mut made.key, row);
        }
        Ok(())
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

    /// The sum of an index's entries; `by_row`, their rows are looked for.
    fn entries(&mut self, index: usize, by_row: bool) -> Result<u128> {
        self.report.entries = 0;
        let (mut sum, mut made) = (0u128, by_row.then(|| Made::of(self.table)));
        let state = self.table.readable(&self.trees.keys[index])?;
        let private = self.session.private_keys(self.table, index)?;
        let mut read = MergeRead::<ByBytes>::new(state, private, self.view, &[], &self.session.parker)?;
        loop {
            match read.next()? {
                Span::End => return Ok(sum),
                Span::One(key, found) => {
                    if let Some((row, payload)) = told(&found) {
                        sum = sum.wrapping_add(self.entry(index, &key, (row, payload), made.as_mut())?);
                    }
                }
                Span::Rows(span) => {
                    for at in span.rows.clone() {
                        let told = (span.block.row(at), span.block.payload(at));
                        sum = sum.wrapping_add(self.entry(index, span.block.key(at), told, made.as_mut())?);
                    }
                }
            }
        }
    }

    fn entry(
        &mut self,
        index: usize,
        key: &[u8],
        (row, payload): (RowId, &[u8]),
        made: Option<&mut Made>,
    ) -> Result<u128> {
        if !self.counts(index, key, row)? {
            return Ok(0);
        }
        self.report.entries += 1;
        self.ask(self.report.entries)?;
        match made {
            Some(made) => self.look_for_row(index, key, row, made)?,
            None if self.by_key => self.look_up(index, row, key, payload)?,
            None => {}
        }
        Ok(self.hash(row, key, payload))
    }

    /// An entry leads to a row that has its key.
    fn look_for_row(&mut self, index: usize, key: &[u8], row: RowId, made: &mut Made) -> Result<()> {
        let private = self.session.private_of(self.table)?;
        let found = find(&*self.table.rows_under(self.view)?, private.as_ref(), row, self.view)?;
        let Some((_, found)) = found.filter(|(_, found)| !matches!(found, Found::Tombstone)) else {
            self.wrong(format!("an entry leads to row {row}, which is gone"));
            return Ok(());
        };
        decode(self.table, &self.columns, &found, &mut made.image)?;
        // SAFETY: as for `row`.
        unsafe { self.make_key(index, row, made)? };
        if made.key != key {
            self.wrong(format!("an entry leads to row {row}, which has another key"));
        }
        Ok(())
    }

    /// Of a row that was overtaken only the transaction's own entries count.
    fn counts(&self, index: usize, key: &[u8], row: RowId) -> Result<bool> {
        if !self.session.is_overtaken(self.table, row, self.view.seq) {
            return Ok(true);
        }
        let state = self.table.readable(&self.trees.keys[index])?;
        let private = self.session.private_keys(self.table, index)?;
        Ok(find(&state, private.as_ref(), key, self.view)?.is_some_and(|(order, _)| order.is_own()))
    }
}

/// The row and the payload of an entry.
fn told(found: &Found<ByBytes>) -> Option<(RowId, &[u8])> {
    match found {
        Found::Mem(_, value) => Some(split_value(value)),
        Found::Block(_, _, block, at) => Some((ByBytes::row(block, *at), block.payload(*at))),
        Found::Tombstone => None,
    }
}
