//! Entries of rows that a statement inserts, gathered and put together: one search in a memtable waits for memory at each of
//! its steps, many wait beside each other.
//!
//! Those of a statement's first row are put at once: mostly it is the only one. Only entries whose keys end with their row's id are gathered, of rows that nobody knew before: no other entry has such a key,
//! and nobody need be kept away from it. A locking read of another session that comes meanwhile comes before the rows that are
//! still being inserted. Invariants: within a statement, whatever reads of the transaction's own finds none gathered
//! ([`Txn::seal_for_read`]); between statements, at a savepoint and at the transaction's end there is none; what is gathered was
//! written after the last savepoint, so that a rollback to any forgets all of it.

use crate::core::Core;
use crate::lock::Parker;
use crate::tree::memtable::Change;
use crate::tree::stored::entry_value;
use crate::txn::open::Txn;
use crate::upkeep::pressure;
use crate::write::keys::Entry;
use crate::write::VERSION_BYTES;
use crate::Result;
use esker_base::counters::{count, Counter};
use std::ops::Range;

/// So many are put at the latest, or so many bytes of them. Few in tests, so that it happens in the middle of a statement.
const MOST_ENTRIES: usize = if cfg!(test) { 40 } else { 1024 };
const MOST_BYTES: usize = 128 << 10;

/// See the module.
#[derive(Default)]
pub(crate) struct Deferred {
    /// In the order of their ordinals.
    entries: Vec<DeferredEntry>,
    /// Their keys, each with its value behind it.
    bytes: Vec<u8>,
}

struct DeferredEntry {
    /// The table's place in the transaction, and the index's in the table.
    tree: (usize, usize),
    ordinal: u64,
    key: Range<usize>,
    value_end: usize,
}

impl Deferred {
    fn add(&mut self, tree: (usize, usize), ordinal: u64, key: &[u8], value: &[u8]) {
        let from = self.bytes.len();
        self.bytes.extend_from_slice(key);
        let key = from..self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.entries.push(DeferredEntry { tree, ordinal, key, value_end: self.bytes.len() });
    }

    fn is_full(&self) -> bool {
        self.entries.len() >= MOST_ENTRIES || self.bytes.len() >= MOST_BYTES
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// None is wanted any more.
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.bytes.clear();
    }

    /// Those of the table at this place are not wanted any more.
    pub(crate) fn forget_table(&mut self, at: usize) {
        self.entries.retain(|e| e.tree.0 != at);
    }
}

impl Txn {
    /// Gathers the entry of a row that this statement inserts; false if it is to be written at once, as it is one of a large
    /// transaction.
    pub(crate) fn defer_entry(
        &mut self,
        core: &Core,
        parker: &Parker,
        tree: (usize, usize),
        entry: Entry<'_>,
    ) -> Result<bool> {
        let value = entry_value(entry.row, entry.payload.unwrap_or_default());
        let bytes = entry.key.len() + value.len();
        if !self.is_small(core, bytes) {
            return Ok(false);
        }
        let ordinal = self.take_ordinal();
        self.deferred.add(tree, ordinal, entry.key, &value);
        self.small_bytes += bytes + VERSION_BYTES;
        if self.deferred.is_full() {
            pressure::wait_for_memory(core, || parker.is_killed())?;
            self.put_deferred()?;
        }
        Ok(true)
    }

    /// Puts what is gathered: into the shared memtables, and redo. If that fails the transaction can only be rolled back.
    pub(crate) fn put_deferred(&mut self) -> Result<()> {
        let Some(first_ordinal) = self.deferred.entries.first().map(|e| e.ordinal) else { return Ok(()) };
        let mut deferred = std::mem::take(&mut self.deferred);
        let put = self.put_gathered(&mut deferred);
        deferred.clear();
        self.deferred = deferred;
        put.inspect_err(|why| self.lose(first_ordinal, why))
    }

    fn put_gathered(&mut self, Deferred { entries, bytes }: &mut Deferred) -> Result<()> {
        count(Counter::EntriesTogether, entries.len() as u64);
        entries.sort_unstable_by_key(|e| (e.tree, e.ordinal));
        let mut wanted = Vec::with_capacity(entries.len());
        for of_tree in entries.chunk_by(|a, b| a.tree == b.tree) {
            let (table, index) = of_tree[0].tree;
            wanted.clear();
            wanted.extend(of_tree.iter().map(|e| {
                let change = Change::of_entry(e.ordinal, &bytes[e.key.end..e.value_end], false);
                (&bytes[e.key.clone()], change)
            }));
            self.tables[table].keys[index].put_each_shared(&self.state, &wanted)?;
        }
        Ok(())
    }
}
