//! Keeping indexes: the entries of a row are written with it.
//!
//! A unique key is reserved in the lock table by a hash of it, then looked for among all that anybody wrote, then written;
//! from then on its uncommitted entry keeps others away, so that a load of any size holds no locks of keys. All keys of a row
//! are checked before anything of it is written: a duplicate undoes nothing.
//!
//! Invariants: whoever writes an entry of a row has the row's lock, or is the only one to know the row; a key of a unique
//! index in which no part is NULL has no row id behind it and is put only by who has it reserved; nobody sleeps with a key
//! reserved, but to reserve another one of the same row, in the order of the indexes.

use crate::catalog::index::Index;
use crate::catalog::table::{Table, Trees};
use crate::lock::{LockMode, LockOutcome};
use crate::read::buffer::decode;
use crate::session::{Session, SessionParts};
use crate::tally::tally;
use crate::tree::key::{ByBytes, Key};
use crate::tree::search::seek_each;
use crate::tree::standing::{seen_at, standing, NotIn, Standing};
use crate::txn::prepared;
use crate::version::View;
use crate::write::keys::Entry;
use crate::{Error, Result};
use esker_format::key_block::{MAX_KEY_BYTES, MAX_KEY_PAYLOAD_BYTES};
use esker_format::key_bytes::append_row;
use esker_format::{RowId, TreeId};
use std::sync::Arc;

/// Reserved keys are told apart by so many bits of their hash: two keys that share them wait for each other for a moment.
const RESERVED_BITS: u32 = 24;

/// A memtable of so many versions is more than a processor has at hand.
const WORTH_FETCHING: usize = if cfg!(test) { 1 } else { 4096 };

/// What an index holds of a row.
pub(crate) struct RowKey {
    /// The index's place.
    index: usize,
    pub(crate) key: Vec<u8>,
    pub(crate) payload: Vec<u8>,
    /// The row's id goes behind it.
    wants_row: bool,
    /// No row may have it yet.
    is_new: bool,
}

impl RowKey {
    /// Of a row image.
    ///
    /// # Safety
    /// As for [`Session::insert_image`].
    pub(crate) unsafe fn of(at: usize, index: &Index, image: *const u8) -> Result<RowKey> {
        let codec = index.codec()?;
        let (mut key, mut payload) = (Vec::new(), Vec::new());
        // SAFETY: the caller's promise.
        let has_null =
            unsafe { codec.key_of_image(image, &*index.collations, &mut key) }.map_err(|e| index.error(&e))?;
        // SAFETY: the caller's promise.
        unsafe { codec.payload_of_image(image, &mut payload) };
        let bounds = [
            ("key of an index", key.len(), MAX_KEY_BYTES - size_of::<RowId>()),
            ("payload of a key", payload.len(), MAX_KEY_PAYLOAD_BYTES),
        ];
        for (what, bytes, max) in bounds {
            if bytes > max {
                return Err(Error::TooLong { what, bytes: bytes as u64, max: max as u64 });
            }
        }
        let wants_row = !index.entry.unique || has_null;
        Ok(RowKey { index: at, key, payload, wants_row, is_new: !wants_row })
    }

    /// The key as it stands in the tree, now that the row is known.
    pub(crate) fn finish(&mut self, row: RowId) {
        if self.wants_row {
            append_row(&mut self.key, row);
        }
    }

    fn entry(&self, row: RowId) -> Entry<'_> {
        Entry { key: &self.key, row, payload: Some(&self.payload) }
    }

    fn tombstone(&self, row: RowId) -> Entry<'_> {
        Entry { key: &self.key, row, payload: None }
    }
}

/// What becomes of a row's entries.
#[derive(Default)]
struct Changes {
    gone: Vec<RowKey>,
    new: Vec<RowKey>,
    /// Rows that the own view sees at these primary keys, which others have taken from them since.
    hidden: Vec<RowId>,
    /// The row is new, and its entries may be put with those of others.
    may_defer: bool,
    /// The transaction has taken the new row's primary key from this one.
    key_was_of: Option<RowId>,
}

impl Session {
    /// Inserts a row into a table with indexes.
    ///
    /// # Safety
    /// As for [`insert_image`](Self::insert_image).
    pub(crate) unsafe fn insert_indexed(&mut self, table: &Arc<Table>, image: *const u8) -> Result<RowId> {
        let trees = self.begin_write(table)?;
        // SAFETY: the caller's promise.
        let of = |(at, index): (usize, &Arc<Index>)| unsafe { RowKey::of(at, index, image) };
        let new = trees.kept_indexes().map(of).collect::<Result<_>>()?;
        let mut changes = Changes { new, may_defer: self.may_defer(), ..Changes::default() };
        self.write_reserved(table, &trees, &mut changes, |session, changes| {
            if let Some(row) = changes.key_was_of {
                // SAFETY: the caller's promise.
                if unsafe { session.insert_again(table, row, image) }? {
                    changes.may_defer = false;
                    return Ok(row);
                }
            }
            // SAFETY: the caller's promise.
            unsafe { session.insert_plain(table, image) }
        })
    }

    /// Writes a new version of a row of a table with indexes; without one, deletes it.
    ///
    /// # Safety
    /// As for [`insert_image`](Self::insert_image), if there is an image.
    pub(crate) unsafe fn write_indexed(
        &mut self,
        table: &Arc<Table>,
        row: RowId,
        new: Option<(*const u8, &[u8])>,
    ) -> Result<()> {
        let trees = self.begin_write(table)?;
        let (tree, wait) = (table.tree_id(), self.wait);
        let was_read = self.found_locked.take().filter(|found| found.is(tree, row));
        let held = self.lock_row(tree, row, LockMode::Exclusive, wait)? != LockOutcome::Granted;
        let version = match was_read.filter(|_| held).and_then(|found| found.version) {
            Some(version) => {
                self.seal_for_read(table)?;
                Some(version)
            }
            None => {
                let view = self.latest_view()?;
                self.find_version(table, row, view)?
            }
        };
        let Some((order, found)) = version else { return Err(Error::RowNotFound) };
        let mut old = std::mem::take(&mut self.old_image);
        old.resize(table.layout.image_bytes as usize, 0);
        let overtaken = self.is_beyond_view(order);
        let changes = decode(table, &trees.index_columns, &found, &mut old).and_then(|()| {
            // SAFETY: the columns of all indexes were decoded, and what their slots point to is pinned by `found`; the
            // caller's promise.
            unsafe { Changes::of_row(&trees, row, old.as_ptr(), new.map(|n| n.0), overtaken) }
        });
        self.old_image = old;
        let mut changes = changes?;
        if overtaken {
            // Whose key was this row's when the view was opened?
            self.hide_at(&trees, &mut changes)?;
        }
        self.write_reserved(table, &trees, &mut changes, |session, _| {
            session.write_found(table, row, new.map(|n| n.1), Some(order))?;
            Ok(row)
        })?;
        if overtaken {
            self.overtake(table, row)?;
        }
        Ok(())
    }

    /// The table is the transaction's before anything of a row is looked at, as it is without indexes: one that may not
    /// write, or whose table was emptied since, learns it now, and waits for nobody.
    fn begin_write(&mut self, table: &Arc<Table>) -> Result<Arc<Trees>> {
        let SessionParts { core, txn, .. } = self.parts()?;
        let at = txn.table_of(core, table)?;
        Ok(txn.tables[at].trees.clone())
    }

    /// Is a row written with its entries? The table is the transaction's from here on: what it learns of the table's indexes
    /// stays true, or writing fails.
    #[inline]
    pub(crate) fn writes_entries(&mut self, table: &Arc<Table>) -> Result<bool> {
        let SessionParts { core, txn, .. } = self.parts()?;
        txn.table_of(core, table)?;
        Ok(table.is_indexed())
    }

    /// Writes a row by `write`, and its entries, once its unique keys are found to be free.
    fn write_reserved(
        &mut self,
        table: &Arc<Table>,
        trees: &Trees,
        changes: &mut Changes,
        write: impl FnOnce(&mut Session, &mut Changes) -> Result<RowId>,
    ) -> Result<RowId> {
        if self.txn_mut()?.large.is_none() {
            changes.fetch_places(trees);
        }
        let mut reserved = Vec::new();
        let result = self.reserve_all(table, trees, changes, &mut reserved).and_then(|()| {
            let first_ordinal = self.txn_mut()?.next_ordinal;
            #[cfg(test)]
            crate::tests::hooks::reached("keys were found free");
            let row = write(self, changes)?;
            #[cfg(test)]
            crate::tests::hooks::reached("a row is there without its entries");
            self.put_entries(table, row, changes).inspect_err(|why| self.lose(first_ordinal, why))?;
            changes.hidden.retain(|seen| *seen != row);
            self.hide(table, &changes.hidden, first_ordinal)?;
            Ok(row)
        });
        self.release(&mut reserved);
        result
    }

    fn put_entries(&mut self, table: &Arc<Table>, row: RowId, changes: &mut Changes) -> Result<()> {
        for gone in &changes.gone {
            self.write_entry(table, gone.index, gone.tombstone(row))?;
        }
        for new in &mut changes.new {
            new.finish(row);
            if !(changes.may_defer && new.wants_row && self.defer_entry(table, new.index, new.entry(row))?) {
                self.write_entry(table, new.index, new.entry(row))?;
            }
        }
        Ok(())
    }

    /// A row was written from this ordinal on, and not all of its entries: the transaction cannot go on with it.
    fn lose(&mut self, first_ordinal: u64, why: &Error) {
        if let Some(txn) = self.current.open_mut() {
            txn.lose(first_ordinal, why);
        }
    }

    /// Reserves those keys that are unique, and finds that nobody has them. On an error nothing stays reserved.
    fn reserve_all(
        &mut self,
        table: &Arc<Table>,
        trees: &Trees,
        changes: &mut Changes,
        reserved: &mut Vec<(TreeId, RowId)>,
    ) -> Result<()> {
        let Changes { new, hidden, key_was_of, .. } = changes;
        if new.iter().all(|k| !k.is_new) {
            return Ok(());
        }
        let view = self.own_view();
        let primary = trees.primary();
        let seen_primary = primary.filter(|at| view.is_some_and(|view| trees.tells(*at, view)));
        let others = hidden.len();
        'anew: loop {
            hidden.truncate(others);
            for key in new.iter().filter(|k| k.is_new) {
                let tree = &trees.keys[key.index];
                #[cfg(test)]
                crate::tests::hooks::reached("a key is about to be reserved");
                self.reserve(tree.id, &key.key, reserved)?;
                #[cfg(test)]
                crate::tests::hooks::reached("a key is reserved");
                // Not before: what was put while somebody else had it reserved must be in the state.
                let txn = self.txn_mut()?;
                let me = txn.state.id;
                let (state, written) = (tree.snapshot(), txn.in_table(table).map(|t| &t.keys[key.index]));
                let not_in = written.map_or(NotIn::default(), |written| NotIn {
                    active: written.is_not_in(&state.active, &key.key),
                    noted: !written.is_in_noted(&key.key),
                });
                let view = view.filter(|_| seen_primary == Some(key.index));
                let work = &trees.indexes[key.index].work;
                match self.looks_into(work, || standing(&state, &key.key, me, view, not_in))? {
                    Standing::Free { seen, was_of } => {
                        hidden.extend(seen);
                        if primary == Some(key.index) {
                            *key_was_of = was_of;
                        }
                    }
                    Standing::Taken(row, order) => {
                        self.release(reserved);
                        if !order.is_own() && order.seq > self.core.views.visible_seq() {
                            // Its commit is just about to show.
                            drop(prepared::lock_commits(&self.core));
                        }
                        return Err(Error::DuplicateKey { index: key.index, row });
                    }
                    Standing::Pending(txn, ordinal, row) => {
                        self.release(reserved);
                        self.wait_for_change((tree.id, row), txn, ordinal)?;
                        continue 'anew;
                    }
                }
            }
            return Ok(());
        }
    }

    fn reserve(&mut self, tree: TreeId, key: &[u8], reserved: &mut Vec<(TreeId, RowId)>) -> Result<()> {
        // Spread, since its upper bits alone are weak.
        let hash = ByBytes::hash(key).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let place = RowId(hash >> (u64::BITS - RESERVED_BITS));
        let owner = self.locker()?;
        let granted = self.core.locks.lock_key(&owner, &self.parker, (tree, place), self.wait, &*self.hooks);
        match granted {
            Ok(_) => {
                reserved.push((tree, place));
                Ok(())
            }
            Err(e) => {
                self.release(reserved);
                Err(self.lock_failed(e))
            }
        }
    }

    fn release(&mut self, reserved: &mut Vec<(TreeId, RowId)>) {
        let Some(state) = self.current.state() else { return };
        for (tree, place) in reserved.drain(..) {
            self.core.locks.unlock_row(&state.locks, tree, place);
        }
    }

    fn overtake(&mut self, table: &Arc<Table>, row: RowId) -> Result<()> {
        let view = self.own_view();
        let (Some(txn), Some(view)) = (self.current.open_mut(), view) else { return Ok(()) };
        let at = txn.table_of(&self.core, table)?;
        let ordinal = txn.next_ordinal - 1;
        txn.tables[at].overtake(row, ordinal, view);
        Ok(())
    }

    /// Whom the own view sees at the primary keys of a row that is about to be overtaken.
    fn hide_at(&self, trees: &Trees, changes: &mut Changes) -> Result<()> {
        let (Some(seq), Some(me)) = (self.own_view(), self.txn_id()) else { return Ok(()) };
        let Some(primary) = trees.primary_of(seq) else { return Ok(()) };
        // Of a key that is new to the row it is told when that is reserved.
        let known = changes.gone.iter().chain(changes.new.iter().filter(|k| !k.is_new));
        for key in known.filter(|k| k.index == primary) {
            changes.hidden.extend(seen_at(&trees.keys[primary].snapshot(), &key.key, View { seq, me })?);
        }
        Ok(())
    }

    /// The transaction has written from this ordinal on at the primary keys of these rows of its own view.
    fn hide(&mut self, table: &Arc<Table>, rows: &[RowId], ordinal: u64) -> Result<()> {
        let view = self.own_view();
        let (Some(txn), Some(view)) = (self.current.open_mut(), view.filter(|_| !rows.is_empty())) else {
            return Ok(());
        };
        let at = txn.table_of(&self.core, table)?;
        let txn = &mut txn.tables[at];
        for row in rows {
            if !txn.is_overtaken(*row, view) {
                #[cfg(test)]
                hidden::count();
                txn.hide(*row, ordinal, view);
            }
        }
        Ok(())
    }
}

impl Changes {
    /// A hint: all entries are put soon, one after the other, into shared memtables. What searching their places takes comes from
    /// memory for all at once, unless it is at hand as it is little.
    fn fetch_places(&self, trees: &Trees) {
        let keys = || self.gone.iter().chain(self.new.iter().filter(|key| !(self.may_defer && key.wants_row)));
        if keys().nth(1).is_none() {
            return;
        }
        let states: Vec<_> = keys().map(|key| trees.keys[key.index].snapshot()).collect();
        let all = states.iter().zip(keys()).map(|(state, key)| (&*state.active, &*key.key));
        let wanted: Vec<_> = all.filter(|(mem, _)| mem.versions() >= WORTH_FETCHING).collect();
        if wanted.len() > 1 {
            #[cfg(test)]
            fetched::count();
            seek_each(&wanted, |_, _| {});
        }
    }

    /// What an update from one image to another means, or a deletion. A key that stays is written again if the row is
    /// `overtaken`: the transaction's own view does not see the entry that is there.
    ///
    /// # Safety
    /// As for [`Session::insert_image`], for both images; of the old one only columns of indexes count.
    unsafe fn of_row(
        trees: &Trees,
        row: RowId,
        old: *const u8,
        new: Option<*const u8>,
        overtaken: bool,
    ) -> Result<Changes> {
        let mut changes = Changes::default();
        for (at, index) in trees.kept_indexes() {
            // SAFETY: the caller's promise.
            unsafe {
                if let Some(new) = new {
                    if !overtaken && index.codec()?.has_same_values(old, new) {
                        continue;
                    }
                }
                let mut before = RowKey::of(at, index, old)?;
                let Some(new) = new else {
                    before.finish(row);
                    changes.gone.push(before);
                    continue;
                };
                let mut after = RowKey::of(at, index, new)?;
                if before.key != after.key {
                    before.finish(row);
                    changes.gone.push(before);
                } else if !overtaken && before.payload == after.payload {
                    continue;
                } else {
                    // The row's own.
                    after.is_new = false;
                }
                changes.new.push(after);
            }
        }
        Ok(changes)
    }
}

tally! {
    /// Counts the rows that this thread's transactions have hidden from their views.
    hidden
}

tally! {
    /// Counts the rows for whose entries this thread fetched the places together.
    fetched
}
