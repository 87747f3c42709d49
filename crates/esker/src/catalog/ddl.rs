//! The catalog: tables come, go and change names.
//!
//! Each statement is one log record, durable before the call returns; the catalog in memory changes after the record
//! is durable. A crash before that leaves the old state, after it the new one; files of a dropped tree are orphans that
//! the next start removes. Every statement can be repeated.

use crate::catalog::table::{with_tree, Memtables, Table, TableDef, Trees};
use crate::core::Core;
use crate::tree::memtable::Memtable;
use crate::tree::stored::Stored;
use crate::tree::Tree;
use crate::{Error, Result};
use esker_format::{CommitSeq, IndexEntry, Record, RowFormat, TableId, TreeEntry, TreeId, TreeKind};
use std::sync::atomic::Ordering;
use std::sync::Arc;

/// Longest record of a DROP TABLE, in bytes.
const DROP_BYTES: usize = 32;

impl Core {
    pub(crate) fn create_table(&self, name: &str, def: &TableDef, indexes: &[IndexEntry]) -> Result<()> {
        def.layout.validate().map_err(|e| Error::InvalidArgument(format!("table '{name}': {e}")))?;
        if def.format == RowFormat::Fixed && def.layout.has_blobs() {
            return Err(Error::Unsupported("ROW_FORMAT=FIXED with BLOB columns".into()));
        }
        let mut tables = self.tables.lock();
        if tables.contains_key(name) {
            return Err(Error::TableExists(name.to_owned()));
        }
        let id = TableId(self.next_table.fetch_add(1, Ordering::Relaxed));
        let kinds = std::iter::once(TreeKind::Rows).chain(indexes.iter().cloned().map(TreeKind::Keys));
        let trees = kinds.map(|kind| TreeEntry { id: self.new_tree_id(), kind }).collect();
        let entry = Table::entry_for(id, trees, name, def, self.views.visible_seq());
        // Before the record: once that is durable, nothing may fail.
        let memtables = Memtables::new(&entry)?;
        let lsn = self.log_rebuild(&Record::CreateTable(entry.clone()), !def.temporary)?;
        let entry = esker_format::TableEntry { rebuilt_seq: CommitSeq(lsn.0), ..entry };
        let trees = Trees::new(&entry, memtables, lsn);
        let table = Table::new(&entry, trees);
        self.due.take_in(&table, &table.trees());
        tables.insert(name.to_owned(), table);
        Ok(())
    }

    pub(crate) fn drop_table(&self, name: &str) -> Result<()> {
        let mut tables = self.tables.lock();
        let table = find(&tables, name)?;
        self.refuse_prepared(&table)?;
        self.log_drop(&Record::DropTable { table: table.id }, !table.temporary)?;
        tables.remove(name);
        drop(tables);
        table.set_dropped();
        self.empty_all(&table.trees());
        Ok(())
    }

    pub(crate) fn rename_table(&self, from: &str, to: &str) -> Result<()> {
        let mut tables = self.tables.lock();
        let table = find(&tables, from)?;
        if tables.contains_key(to) {
            return Err(Error::TableExists(to.to_owned()));
        }
        self.refuse_prepared(&table)?;
        self.log(&Record::RenameTable { table: table.id, name: to }, !table.temporary)?;
        tables.remove(from);
        table.set_name(to);
        tables.insert(to.to_owned(), table);
        Ok(())
    }

    pub(crate) fn truncate_table(&self, name: &str) -> Result<()> {
        let tables = self.tables.lock();
        let table = find(&tables, name)?;
        self.refuse_prepared(&table)?;
        let old = table.trees();
        let mut entry = table.entry();
        let renew = |tree: &mut TreeEntry| {
            let new = self.new_tree_id();
            (std::mem::replace(&mut tree.id, new), new)
        };
        let trees = entry.trees.iter_mut().map(renew).collect();
        let memtables = Memtables::new(&entry)?;
        let lsn = self.log_rebuild(&Record::TruncateTable { table: table.id, trees }, !table.temporary)?;
        let trees = Trees::new(&entry, memtables, lsn);
        self.due.take_in(&table, &trees);
        table.set_trees(trees, CommitSeq(lsn.0));
        drop(tables);
        self.empty_all(&old);
        Ok(())
    }

    fn new_tree_id(&self) -> TreeId {
        TreeId(self.next_tree.fetch_add(1, Ordering::Relaxed))
    }

    /// Trees that nobody will open again give their disk and memory back.
    pub(crate) fn empty_all(&self, trees: &Trees) {
        trees.all().for_each(|tree| with_tree!(tree, tree => self.empty(&tree)));
    }

    /// As [`empty_all`](Self::empty_all), of one.
    pub(crate) fn empty<K: Stored>(&self, tree: &Tree<K>) {
        let first_lsn = self.wal.end_lsn();
        let Ok(fresh) = Memtable::new(first_lsn) else {
            return;
        };
        let runs = tree.edit(|state| {
            state.active = fresh;
            state.frozen.clear();
            state.marks.clear();
            std::mem::take(&mut state.runs)
        });
        let runs: Vec<_> = runs.into_iter().map(|h| h.run).collect();
        if runs.is_empty() {
            return;
        }
        self.discard(runs);
    }

    fn refuse_prepared(&self, table: &Table) -> Result<()> {
        match self.is_prepared_in(table) {
            Some(_) => Err(Error::LockTimeout),
            None => Ok(()),
        }
    }

    /// As [`log`](Self::log), for a record that makes a table anew: its position is a commit sequence of its own, so
    /// that every view is known to be older or newer than the table.
    fn log_rebuild(&self, record: &Record<'_>, lasting: bool) -> Result<esker_format::Lsn> {
        self.check_writable()?;
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        // Space first: nothing under the commit lock waits for a disk.
        let space = self.wal.reserve_commit(bytes.len())?;
        let appended = {
            let _commit = self.commit_lock.lock();
            let appended = self.wal.append_reserved(space, &bytes);
            // No transaction's: there is no status word to wait for.
            self.views.publish(CommitSeq(appended.lsn.0), appended.lsn.0);
            appended
        };
        if lasting {
            self.wal.wait_durable(appended.end)?;
        }
        Ok(appended.lsn)
    }

    /// As [`log`](Self::log), for a record that gives space back: on a full disk it takes the space that was set aside.
    fn log_drop(&self, record: &Record<'_>, lasting: bool) -> Result<()> {
        let full = match self.log(record, lasting) {
            Err(e @ Error::DiskFull(_)) => e,
            logged => return logged.map(drop),
        };
        let Some(space) = self.drop_space.lock().take() else { return Err(full) };
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        let appended = self.wal.append_reserved(space, &bytes);
        if lasting {
            self.wal.wait_durable(appended.end)?;
        }
        Ok(())
    }

    /// Keeps what a full disk must not prevent: an opening, and one DROP TABLE.
    pub(crate) fn keep_space_in_need(&self) -> Result<()> {
        // Space in a segment that is there needs none on the disk: no room for the reserve must not prevent it.
        let reserve = self.wal.keep_reserve();
        let mut space = self.drop_space.lock();
        if space.is_none() {
            *space = Some(self.wal.reserve_commit(DROP_BYTES)?);
        }
        Ok(reserve?)
    }

    /// Appends one record and, unless it is of a temporary table, waits until it is durable; where it begins.
    pub(crate) fn log(&self, record: &Record<'_>, lasting: bool) -> Result<esker_format::Lsn> {
        self.check_writable()?;
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        let appended = self.wal.append(&bytes)?;
        if lasting {
            self.wal.wait_durable(appended.end)?;
        }
        Ok(appended.lsn)
    }
}

fn find(tables: &std::collections::BTreeMap<String, Arc<Table>>, name: &str) -> Result<Arc<Table>> {
    tables.get(name).cloned().ok_or_else(|| Error::NoSuchTable(name.to_owned()))
}
