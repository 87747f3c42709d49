//! Writing rows: small writes go to the shared memtable at once and gather redo; large ones are gathered by the
//! transaction for itself (`private.rs`).
//!
//! Small or large is decided by the transaction, over all its trees, before a row is written. Invariants: a row other than a
//! fresh one is written only under its exclusive lock; every change takes the next ordinal; what is in no private run is in
//! the redo.

pub(crate) mod build;
pub(crate) mod bulk;
pub(crate) mod deferred;
pub(crate) mod index;
pub(crate) mod keys;
pub(crate) mod large;
pub(crate) mod private;
mod values;

use crate::catalog::table::{with_tree, Table};
use crate::core::Core;
use crate::lock::{LockMode, LockOutcome, Parker};
use crate::read::cursor::Cursor;
use crate::session::{Session, SessionParts};
use crate::tree::memtable::Change;
use crate::tree::merge_read::{MergeRead, Span};
use crate::tree::{find, Found, RangeMark};
use crate::txn::open::{TableTxn, Txn};
use crate::txn::state::TxnState;
use crate::txn::written::Fill;
use crate::upkeep::pressure;
use crate::version::{VersionOrder, View};
use crate::work::Kind;
use crate::write::bulk::{BulkPlan, BulkWriter};
use crate::write::large::LargeWriter;
use crate::write::private::Place;
use crate::{Error, Result};
use esker_base::counters::{count, Counter};
use esker_format::{CommitSeq, Record, RowId, TreeId, TxnId, MAX_ROW_BYTES};
use std::sync::Arc;

/// Largest range of row ids that a writer reserves at once.
const MOST_RESERVED: u64 = 1 << 16;
/// What a small version costs beyond its bytes.
pub(crate) const VERSION_BYTES: usize = 32;

/// Room for rows that are inserted; see [`Session::stage`].
#[derive(Debug)]
pub struct Stage {
    /// Where the first image goes.
    pub images: *mut u8,
    /// Bytes from one image to the next.
    pub stride: usize,
    /// So many images have room.
    pub rows: usize,
    /// The first row's id; the others follow.
    pub first: RowId,
}

impl Session {
    /// Inserts a row given as a row image.
    ///
    /// # Errors
    /// [`Error::RowTooLong`], [`Error::DuplicateKey`]; [`Error::InvalidArgument`] for a table of another engine, a row that is none, or in a
    /// prepared transaction; [`Error::NoSuchTable`] and [`Error::TableChanged`] if the table was dropped or emptied since; those of locks, where
    /// somebody else has a key that is to be unique; those of writing.
    ///
    /// # Safety
    /// `image` points to `layout.image_bytes` readable bytes; its blob slots point to readable bytes.
    pub unsafe fn insert_image(&mut self, table: &Arc<Table>, image: *const u8) -> Result<RowId> {
        self.works_on(&table.work, Kind::Change);
        // SAFETY: the caller's promise.
        unsafe {
            match self.writes_entries(table)? {
                true => self.insert_indexed(table, image),
                false => self.insert_plain(table, image),
            }
        }
    }

    /// The same, of the row alone.
    ///
    /// # Safety
    /// As for [`insert_image`](Self::insert_image).
    unsafe fn insert_plain(&mut self, table: &Arc<Table>, image: *const u8) -> Result<RowId> {
        let SessionParts { core, parker, scratch, txn, .. } = self.parts()?;
        let at = txn.table_of(core, table)?;
        // SAFETY: the caller's promise.
        let bytes = unsafe { checked_length(table, image) }?;
        if txn.is_small_insert(core, at, bytes) {
            let insert = |packed: &[u8]| match txn.is_small_insert(core, at, packed.len()) {
                true => txn.insert_small(core, parker, at, packed).map(Some),
                false => Ok(None),
            };
            // SAFETY: the caller's promise.
            if let Some(row) = unsafe { with_packed(table, image, scratch, insert) }? {
                return Ok(row);
            }
        }
        // SAFETY: the caller's promise.
        unsafe { txn.insert_large(core, parker, at, image) }
    }

    /// Inserts a row in the place of `row`, if the transaction has deleted that: rows that lie beside each other in the order
    /// of their primary key go on doing so. False: it has not, and the row gets an id of its own.
    ///
    /// # Safety
    /// As for [`insert_image`](Self::insert_image).
    unsafe fn insert_again(&mut self, table: &Arc<Table>, row: RowId, image: *const u8) -> Result<bool> {
        let view = View::newest(self.txn_mut()?.state.id);
        self.seal_for_read(table)?;
        let private = self.private_of(table)?;
        let newest = find(&*table.readable(&table.tree())?, private.as_ref(), row, view)?;
        if !newest.is_some_and(|(order, found)| order.is_own() && matches!(found, Found::Tombstone)) {
            return Ok(false);
        }
        // It has it since it deleted the row.
        let wait = self.wait;
        self.lock_row(table.tree_id(), row, LockMode::Exclusive, wait)?;
        let SessionParts { core, parker, scratch, txn, .. } = self.parts()?;
        let at = txn.table_of(core, table)?;
        // SAFETY: the caller's promise.
        let bytes = unsafe { esker_format::row::packed_len(&table.layout, image) };
        check_length(bytes as u64)?;
        if !txn.is_small_insert(core, at, bytes) {
            return Ok(false);
        }
        let put = |packed: &[u8]| txn.put_small(core, parker, at, row, Some(packed), true);
        // SAFETY: the caller's promise.
        unsafe { with_packed(table, image, scratch, put) }?;
        count(Counter::RowsInserted, 1);
        count(Counter::RowIdsKept, 1);
        txn.tables[at].own.wrote(1);
        Ok(true)
    }

    /// Where the next rows of an insert may be written as images, if the transaction inserts in bulk into `table` and its
    /// rows are short and without blobs. Every other call on the session must be preceded by
    /// [`unstage`](Self::unstage), which says how many were written.
    pub fn stage(&mut self, table: &Arc<Table>) -> Option<Stage> {
        if self.writes_entries(table).ok()? {
            return None;
        }
        let SessionParts { core, txn, .. } = self.parts().ok()?;
        let at = txn.table_of(core, table).ok()?;
        let tree = &mut txn.tables[at];
        let (images, room) = tree.bulk.as_mut()?.room();
        let rows = room.min((tree.ids.end - tree.ids.start) as usize);
        let first = RowId(tree.ids.start);
        self.staged = (rows > 0).then_some(at);
        let stride = table.layout.image_bytes as usize;
        (rows > 0).then_some(Stage { images, stride, rows, first })
    }

    /// Takes the first `rows` images of the [`stage`](Self::stage) as inserted rows. If one of them is lost to an error,
    /// then also to every later one, until what was inserted is rolled back.
    ///
    /// # Errors
    /// Those of writing.
    ///
    /// # Safety
    /// So many images lie there, as [`insert_image`](Self::insert_image) wants them, and no other call came in between.
    pub unsafe fn unstage(&mut self, rows: usize) -> Result<()> {
        let Some(at) = self.staged.take().filter(|_| rows > 0) else { return Ok(()) };
        let SessionParts { core, parker, txn, .. } = self.parts()?;
        let (tree, ordinal) = (&mut txn.tables[at], txn.next_ordinal);
        let first = RowId(tree.ids.start);
        tree.ids.start += rows as u64;
        tree.own.wrote(rows as i64);
        txn.next_ordinal += rows as u64;
        count(Counter::RowsInserted, rows as u64);
        let Some(bulk) = &mut tree.bulk else {
            unreachable!("a stage lies in a bulk writer, and no call came between")
        };
        // SAFETY: the caller's promise.
        if unsafe { bulk.wrote_images(first, ordinal, rows, &|| core.ids.new_file()) }? {
            txn.relieve_large(core, parker)?;
        }
        Ok(())
    }

    /// Inserts a packed row (see `esker_format::row`).
    ///
    /// # Errors
    /// As for [`insert_image`](Self::insert_image).
    pub fn insert_row(&mut self, table: &Arc<Table>, packed: &[u8]) -> Result<RowId> {
        check_row(table, packed)?;
        check_length(packed.len() as u64)?;
        self.works_on(&table.work, Kind::Change);
        if self.writes_entries(table)? {
            let image = unpacked(table, packed)?;
            // SAFETY: `unpacked` filled the image; its blob slots point into `packed`.
            return unsafe { self.insert_indexed(table, image.as_ptr()) };
        }
        let SessionParts { core, parker, txn, .. } = self.parts()?;
        let at = txn.table_of(core, table)?;
        if txn.is_small_insert(core, at, packed.len()) {
            return txn.insert_small(core, parker, at, packed);
        }
        let image = unpacked(table, packed)?;
        // SAFETY: `unpacked` filled the image; its blob slots point into `packed`.
        unsafe { txn.insert_large(core, parker, at, image.as_ptr()) }
    }

    /// Gives a row a new version, from a row image.
    ///
    /// # Errors
    /// As for [`insert_image`](Self::insert_image); those of the row's lock; [`Error::RowNotFound`] if it is gone, and under snapshot isolation
    /// [`Error::RecordChanged`] if somebody has changed it since the view.
    ///
    /// # Safety
    /// As for [`insert_image`](Self::insert_image).
    pub unsafe fn update_image(&mut self, table: &Arc<Table>, row: RowId, image: *const u8) -> Result<()> {
        self.works_on(&table.work, Kind::Change);
        // SAFETY: the caller's promise.
        unsafe { checked_length(table, image) }?;
        let mut scratch = std::mem::take(&mut self.scratch);
        let update = |packed: &[u8]| match self.writes_entries(table)? {
            // SAFETY: the caller's promise.
            true => unsafe { self.write_indexed(table, row, Some((image, packed))) },
            false => self.write_row(table, row, Some(packed)),
        };
        // SAFETY: the caller's promise.
        let updated = unsafe { with_packed(table, image, &mut scratch, update) };
        self.scratch = scratch;
        updated
    }

    /// Gives a row a new version, from a packed row.
    ///
    /// # Errors
    /// As for [`update_image`](Self::update_image).
    pub fn update_row(&mut self, table: &Arc<Table>, row: RowId, packed: &[u8]) -> Result<()> {
        check_row(table, packed)?;
        self.works_on(&table.work, Kind::Change);
        if self.writes_entries(table)? {
            let image = unpacked(table, packed)?;
            // SAFETY: `unpacked` filled the image; its blob slots point into `packed`.
            return unsafe { self.write_indexed(table, row, Some((image.as_ptr(), packed))) };
        }
        self.write_row(table, row, Some(packed))
    }

    /// Deletes a row.
    ///
    /// # Errors
    /// As for [`update_image`](Self::update_image), but for what may be wrong with a row.
    pub fn delete(&mut self, table: &Arc<Table>, row: RowId) -> Result<()> {
        self.works_on(&table.work, Kind::Change);
        if self.writes_entries(table)? {
            // SAFETY: there is no image.
            return unsafe { self.write_indexed(table, row, None) };
        }
        self.write_row(table, row, None)
    }

    /// A version of the row alone.
    fn write_row(&mut self, table: &Arc<Table>, row: RowId, packed: Option<&[u8]>) -> Result<()> {
        check_length(packed.map_or(0, |p| p.len() as u64))?;
        let SessionParts { core, txn, .. } = self.parts()?;
        txn.table_of(core, table)?;
        let (tree, wait) = (table.tree_id(), self.wait);
        let was_read = self.found_locked.take().is_some_and(|found| found.is(tree, row));
        let held = self.lock_row(tree, row, LockMode::Exclusive, wait)? != LockOutcome::Granted;
        if was_read && held && !self.has_older_view() {
            // Versions of a row reach the memtable in the order of their ordinals, gathered ones too.
            self.seal_for_read(table)?;
            return self.write_found(table, row, packed, None);
        }
        // Is it there, under this lock?
        let view = self.latest_view()?;
        let Some((order, _)) = self.find_version(table, row, view)? else { return Err(Error::RowNotFound) };
        self.write_found(table, row, packed, Some(order))
    }

    /// A version of a row that is there, under its lock; `newest` is that of the version before, unless no view of the
    /// transaction is older.
    fn write_found(
        &mut self,
        table: &Arc<Table>,
        row: RowId,
        packed: Option<&[u8]>,
        newest: Option<VersionOrder>,
    ) -> Result<()> {
        let unseen = match newest {
            Some(newest) => self.own_view_without(table, row, newest)?,
            None => None,
        };
        let SessionParts { core, parker, txn, .. } = self.parts()?;
        let at = txn.table_of(core, table)?;
        let fill = if txn.is_small(core, packed.map_or(0, <[u8]>::len)) {
            txn.put_small(core, parker, at, row, packed, true)?;
            Fill::Same
        } else {
            txn.put_private(core, at, row, packed)?
        };
        let own = &mut txn.tables[at].own;
        own.wrote(if packed.is_some() { 0 } else { -1 });
        unseen.into_iter().for_each(|view| own.wrote_unseen(view));
        count(if packed.is_some() { Counter::RowsUpdated } else { Counter::RowsDeleted }, 1);
        txn.relieve(core, Place { table: at, tree: 0 }, fill)
    }

    /// The transaction's own view, if the row is not there for it, but `newest`, which somebody committed since.
    fn own_view_without(&self, table: &Arc<Table>, row: RowId, newest: VersionOrder) -> Result<Option<CommitSeq>> {
        let Some(seq) = self.own_view().filter(|_| self.is_beyond_view(newest)) else { return Ok(None) };
        if self.is_overtaken(table, row, seq) {
            return Ok(Some(seq));
        }
        let view = View { seq, me: TxnId::ZERO };
        let found = find(&table.tree().snapshot(), None, row, view)?;
        Ok(found.is_none_or(|(_, found)| matches!(found, Found::Tombstone)).then_some(seq))
    }

    /// Do only its own versions of the row count for this view of the transaction's?
    pub(crate) fn is_overtaken(&self, table: &Arc<Table>, row: RowId, view: CommitSeq) -> bool {
        let txn = self.current.open().and_then(|txn| txn.in_table(table));
        txn.is_some_and(|txn| txn.is_overtaken(row, view))
    }

    /// The view that the transaction, or its statement, reads by, if it has read.
    fn own_view(&self) -> Option<CommitSeq> {
        self.current.open().and_then(|t| t.view).or(self.statement_view)
    }

    /// May there be versions that this view does not see?
    fn has_older_view(&self) -> bool {
        self.own_view().is_some_and(|seq| seq < self.core.views.visible_seq())
    }

    /// Is a version newer than that view, and not the transaction's own? Who writes over it has a row of which that view sees
    /// another version, or none.
    fn is_beyond_view(&self, order: VersionOrder) -> bool {
        self.own_view().is_some_and(|seq| !order.is_own() && order.seq > seq)
    }

    /// The newest committed or own version of a row, checked against snapshot isolation.
    pub(crate) fn find_latest(&mut self, table: &Arc<Table>, row: RowId) -> Result<Option<Found>> {
        let view = self.latest_view()?;
        self.find_for_write(table, row, view)
    }

    pub(crate) fn find_for_write(&mut self, table: &Arc<Table>, row: RowId, view: View) -> Result<Option<Found>> {
        Ok(self.find_version(table, row, view)?.map(|(_, found)| found))
    }

    /// The same with its order.
    pub(crate) fn find_version(
        &mut self,
        table: &Arc<Table>,
        row: RowId,
        view: View,
    ) -> Result<Option<(VersionOrder, Found)>> {
        self.seal_for_read(table)?;
        let private = self.private_of(table)?;
        let found = find(&*table.readable(&table.tree())?, private.as_ref(), row, view)?;
        let Some((order, found)) = found else {
            // No version, or a range mark over it.
            self.check_gone(table, row, view)?;
            return Ok(None);
        };
        if let Some(txn) = self.current.open() {
            let newer = txn.view.is_some_and(|v| !order.is_own() && order.seq > v);
            if newer && txn.options.snapshot_isolation && txn.view_by_read {
                return Err(Error::RecordChanged);
            }
        }
        Ok(Some((order, found)).filter(|(_, f)| !matches!(f, Found::Tombstone)))
    }

    /// Locks all rows that there are, those that others are inserting too, and counts them: what
    /// [`delete_all`](Self::delete_all) is about to delete, if nothing is written in between.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a table of another engine, [`Error::NoSuchTable`], [`Error::TableChanged`]; those of locks and of reading;
    /// under snapshot isolation [`Error::RecordChanged`].
    pub fn lock_all(&mut self, table: &Arc<Table>) -> Result<u64> {
        self.core.check_usable(table)?;
        self.works_on(&table.work, Kind::Change);
        let all = self.lock_newest(table, Inserters::Once)?;
        let view = View { seq: all.as_of, me: self.txn_mut()?.state.id };
        self.check_rebuilt(table, view)?;
        let rows = if self.older_view(view).is_some() {
            let mask = esker_format::ColumnMask::none(table.layout.columns.len());
            // Counting asks for no locks of rows.
            let options = crate::ScanOptions { mask, lock: Some(LockMode::Exclusive), ..Default::default() };
            Cursor::of_view(self, table, options, view)?.count_locked(self)?
        } else {
            self.rows_below(table, all.up_to, all.as_of)?.1
        };
        self.all_locked = Some(all);
        Ok(rows)
    }

    /// Locks all rows of the newest view. Whoever is waited for, or commits meanwhile, may have put rows behind those that are
    /// locked: so it goes on until the newest view has none there. Some may have been there and be gone: what is locked, and a mark
    /// deletes, reaches over all that the view could know, since of a key that several rows had a mark deletes all versions or none.
    fn lock_newest(&mut self, table: &Arc<Table>, waits_for: Inserters) -> Result<AllLocked> {
        let (changed, tree) = (table.changed_seq(), table.tree());
        let me = self.txn_mut()?.state.id;
        let mut locked = tree.next_row();
        if waits_for == Inserters::Once {
            // First without the lock: who changes a row that he has just inserted would wait for it, and none would go on. Who comes
            // meanwhile has his rows behind.
            self.wait_for_inserters(tree.id, me)?;
        }
        #[cfg(test)]
        crate::tests::hooks::reached("all rows are about to be locked");
        self.lock_range(&tree, locked)?;
        #[cfg(test)]
        crate::tests::hooks::reached("all rows are locked");
        if waits_for == Inserters::Once {
            self.wait_for_inserters(tree.id, me)?;
        }
        loop {
            let view = self.latest_view()?;
            let mut behind = MergeRead::new(tree.snapshot(), None, view, locked, &self.parker)?;
            let has_more = !matches!(behind.next()?, Span::End);
            if has_more || tree.next_row() > locked {
                locked = tree.next_row();
                self.lock_range(&tree, locked)?;
            }
            if !has_more {
                let ordinal = self.txn_mut()?.next_ordinal;
                return Ok(AllLocked { txn: me, tree: tree.id, changed, up_to: locked, as_of: view.seq, ordinal });
            }
        }
    }

    fn wait_for_inserters(&mut self, tree: TreeId, me: TxnId) -> Result<()> {
        let inserters = self.core.writers.inserters(tree, me);
        inserters.iter().try_for_each(|inserter| self.wait_for_inserter(tree, inserter))
    }

    /// Locks every row below this one.
    fn lock_range(&mut self, tree: &crate::tree::Tree, up_to: RowId) -> Result<()> {
        let owner = self.locker()?;
        let locked = self.core.locks.lock_range(&owner, &self.parker, tree.id, up_to, self.wait, &*self.hooks);
        locked.map(drop).map_err(|e| self.lock_failed(e))
    }

    /// Deletes all rows as one version: those that [`lock_all`](Self::lock_all) has counted, if nothing was written since; else it
    /// locks all that are committed by then.
    ///
    /// # Errors
    /// As for [`lock_all`](Self::lock_all); those of writing.
    pub fn delete_all(&mut self, table: &Arc<Table>) -> Result<()> {
        self.works_on(&table.work, Kind::Change);
        let SessionParts { core, txn, .. } = self.parts()?;
        let at = txn.table_of(core, table)?;
        self.seal_for_read(table)?;
        let txn = self.txn_mut()?;
        // An index that was added since has entries that are newer than what was locked.
        let now = (txn.state.id, table.tree_id(), txn.tables[at].changed, txn.next_ordinal);
        // Nor may anything that was committed later have come to look older, as what every view sees may.
        let kept = self.view_slot.oldest();
        let is_still = |all: &AllLocked| {
            (all.txn, all.tree, all.changed, all.ordinal) == now && kept.is_some_and(|seq| seq <= all.as_of)
        };
        let AllLocked { up_to, as_of, .. } = match self.all_locked.take().filter(is_still) {
            Some(all) => all,
            None => self.lock_newest(table, Inserters::Never)?,
        };
        self.found_locked = None;
        let (committed, rows) = self.rows_below(table, up_to, as_of)?;
        let SessionParts { txn, .. } = self.parts()?;
        let ordinal = txn.take_ordinal();
        Record::RangeDelete { txn: txn.state.id, ordinal, table: table.id, up_to, as_of }.encode(&mut txn.marks_redo);
        let mark = RangeMark::own(txn.state.clone(), ordinal, up_to, as_of);
        let tree_txn = &mut txn.tables[at];
        // Those that it ends in, whatever the table has by now.
        for tree in tree_txn.trees.all() {
            with_tree!(tree, tree => tree.edit(|state| state.marks.push(mark.clone())));
        }
        tree_txn.marks += 1;
        txn.deleted_at_once += rows.saturating_sub(1);
        count(Counter::RowsDeleted, rows);
        tree_txn.own.emptied(as_of, committed);
        Ok(())
    }

    /// The rows below `up_to`, all of which are locked, that were committed up to `as_of`, and how many there are with the own
    /// changes.
    fn rows_below(&mut self, table: &Arc<Table>, up_to: RowId, as_of: CommitSeq) -> Result<(i64, u64)> {
        let committed = self.committed_below(table, up_to, as_of)?;
        Ok((committed, (committed + self.own_rows(table)).max(0) as u64))
    }

    fn committed_below(&self, table: &Table, up_to: RowId, as_of: CommitSeq) -> Result<i64> {
        let (trees, view) = (table.trees(), View { seq: as_of, me: TxnId::ZERO });
        let from = |row| MergeRead::new(trees.rows.snapshot(), None, view, row, &self.parker)?.count_rest(&mut || true);
        let all = match trees.live.count(as_of) {
            Some(rows) => rows,
            None => from(RowId(1))? as i64,
        };
        // What others have inserted while the lock was waited for lies above.
        Ok(all - from(up_to)? as i64)
    }
}

/// Does who locks all rows wait for those who are inserting others, until each has ended?
#[derive(Clone, Copy, PartialEq, Eq)]
enum Inserters {
    /// Once, for those that there are by then.
    Once,
    Never,
}

/// All rows of a tree that a view sees, locked: those below a row id.
pub(crate) struct AllLocked {
    /// Who has locked them, until it ends.
    txn: TxnId,
    tree: TreeId,
    /// The table's then, see [`TableTxn::changed`](crate::txn::open::TableTxn::changed).
    changed: CommitSeq,
    up_to: RowId,
    as_of: CommitSeq,
    /// The transaction's next one: what it writes from there on is not among them.
    ordinal: u64,
}

impl Txn {
    /// Is a change of so many bytes a small write? Once a transaction has become large, nothing is.
    #[inline]
    pub(crate) fn is_small(&self, core: &Core, bytes: usize) -> bool {
        self.large.is_none() && self.small_bytes + bytes + VERSION_BYTES <= core.options.bulk_threshold_bytes
    }

    #[inline]
    fn is_small_insert(&self, core: &Core, at: usize, bytes: usize) -> bool {
        self.tables[at].bulk.is_none() && self.is_small(core, bytes)
    }

    fn insert_small(&mut self, core: &Core, parker: &Parker, at: usize, packed: &[u8]) -> Result<RowId> {
        let row = self.tables[at].take_row(&self.state);
        self.put_small(core, parker, at, row, Some(packed), false)?;
        count(Counter::RowsInserted, 1);
        self.tables[at].own.wrote(1);
        Ok(row)
    }

    /// # Safety
    /// As for [`Session::insert_image`].
    unsafe fn insert_large(&mut self, core: &Core, parker: &Arc<Parker>, at: usize, image: *const u8) -> Result<RowId> {
        let ordinal = self.take_ordinal();
        let tree = &mut self.tables[at];
        let row = tree.take_row(&self.state);
        let bulk = match &mut tree.bulk {
            Some(bulk) => bulk,
            none => {
                let writer = self.large.get_or_insert_with(|| LargeWriter::new(&core.large));
                none.insert(BulkWriter::new(BulkPlan::new(core, parker, &tree.table, &tree.rows.tree, writer)))
            }
        };
        // SAFETY: the caller's promise.
        let pushed = unsafe { bulk.push_image(row, ordinal, image, &|| core.ids.new_file()) }?;
        tree.own.wrote(1);
        count(Counter::RowsInserted, 1);
        if pushed {
            self.relieve_large(core, parker)?;
        }
        Ok(row)
    }

    /// A version into the shared memtable, its redo into the buffer.
    fn put_small(
        &mut self,
        core: &Core,
        parker: &Parker,
        at: usize,
        row: RowId,
        packed: Option<&[u8]>,
        supersedes: bool,
    ) -> Result<()> {
        pressure::wait_for_memory(core, || parker.is_killed())?;
        let change = Change::of_row(self.next_ordinal, packed, supersedes);
        self.tables[at].rows.put_shared(&self.state, row, change)?;
        self.next_ordinal += 1;
        self.small_bytes += packed.map_or(0, <[u8]>::len) + VERSION_BYTES;
        Ok(())
    }

    /// From now on this transaction writes large.
    pub(crate) fn become_large(&mut self, core: &Core) {
        self.large.get_or_insert_with(|| LargeWriter::new(&core.large));
    }
}

impl TableTxn {
    /// The next row id of this writer's range; ranges double, so that a large statement's rows lie together.
    #[inline]
    pub(crate) fn take_row(&mut self, state: &TxnState) -> RowId {
        if self.ids.start == self.ids.end {
            let tree = &self.rows.tree;
            if self.reserve == 1 {
                // Before it has any: who knows the next row id, and then who inserts, knows of all rows below.
                state.locks.inserts_into(tree.id, tree.next_row());
            }
            let first = tree.reserve_rows(self.reserve).0;
            self.ids = first..first + self.reserve;
            self.reserve = (self.reserve * 2).min(MOST_RESERVED);
        }
        self.ids.start += 1;
        RowId(self.ids.start - 1)
    }
}

/// The image of a packed row.
fn unpacked(table: &Table, packed: &[u8]) -> Result<Vec<u8>> {
    let mut image = vec![0u8; table.layout.image_bytes as usize];
    esker_format::row::unpack(&table.layout, packed, &table.all_columns(), &mut image)
        .map_err(|e| Error::InvalidArgument(e.to_string()))?;
    Ok(image)
}

/// How long the row of an image is once it is packed, if the table has blobs, which can make it too long; else 0.
///
/// # Safety
/// As for [`Session::insert_image`].
#[inline]
unsafe fn checked_length(table: &Table, image: *const u8) -> Result<usize> {
    if !table.has_blobs {
        return Ok(0);
    }
    // SAFETY: the caller's promise.
    let bytes = unsafe { esker_format::row::packed_len(&table.layout, image) };
    check_length(bytes as u64)?;
    Ok(bytes)
}

/// Does something with the packed row of an image, which lies in `scratch` as long as that takes.
///
/// # Safety
/// As for [`Session::insert_image`].
#[inline]
unsafe fn with_packed<T>(
    table: &Table,
    image: *const u8,
    scratch: &mut Vec<u8>,
    work: impl FnOnce(&[u8]) -> Result<T>,
) -> Result<T> {
    scratch.clear();
    // SAFETY: the caller's promise.
    let packed = unsafe { esker_format::row::pack(&table.layout, image, scratch) }.map_err(Error::in_memory);
    let done = packed.and_then(|()| work(scratch));
    trim(scratch);
    done
}

/// A buffer that is kept for the next row keeps no more than this.
fn trim(scratch: &mut Vec<u8>) {
    if scratch.capacity() > 1 << 20 {
        *scratch = Vec::new();
    }
}

fn check_length(bytes: u64) -> Result<()> {
    if bytes > u64::from(MAX_ROW_BYTES) {
        return Err(Error::RowTooLong { bytes, max: u64::from(MAX_ROW_BYTES) });
    }
    Ok(())
}

fn check_row(table: &Table, packed: &[u8]) -> Result<()> {
    esker_format::row::check(&table.layout, packed).map_err(|e| Error::InvalidArgument(format!("packed row: {e}")))
}
