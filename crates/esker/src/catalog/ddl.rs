//! The catalog: tables come, go and change names.
//!
//! Each statement is one log record, durable before the call returns; the catalog in memory changes after the record
//! is durable, but for the trees of a table that is emptied, which change with the record, under the commit lock: whoever
//! commits or prepares is before both or behind both. A crash before the record is durable leaves the old state, after it the
//! new one; files of a dropped tree, which go only then, are orphans that the next start removes. Every statement can be repeated.

use crate::catalog::index::Index;
use crate::catalog::table::{indexes_of, Memtables, Table, TableDef, Trees};
use crate::core::Core;
use crate::txn::prepared;
use crate::upkeep::discard;
use crate::{Error, Result};
use esker_format::{
    CommitSeq, IndexEntry, IndexStatistics, LayoutVersion, Lsn, Record, RowFormat, Schema, TableId, TreeEntry, TreeKind,
};
use esker_wal::Credit;
use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

/// Longest record of a DROP TABLE, in bytes.
const DROP_BYTES: usize = 32;

/// The longest name of a table or an index, in bytes: MariaDB's are paths with a partition's name, of 512 at most.
pub(crate) const MAX_NAME_BYTES: usize = 4096;

/// Can this be the name of a table or an index? Names stand in the manifest, and in what people read.
pub(crate) fn check_name(of: &str, name: &str) -> Result<()> {
    match name.len() {
        1..=MAX_NAME_BYTES => Ok(()),
        0 => Err(Error::InvalidArgument(format!("the name of {of} is empty"))),
        bytes => {
            let begin: String = name.chars().take(40).collect();
            Err(Error::InvalidArgument(format!(
                "the name of {of} has {bytes} bytes, the limit is {MAX_NAME_BYTES}: '{begin}...'"
            )))
        }
    }
}

/// The longest bytes of a front end: the longest schema has 4.3 MB.
const MAX_EXTRA_BYTES: usize = 8 << 20;

/// Can a table be made as this says?
fn check_def(name: &str, def: &TableDef) -> Result<()> {
    check_name("a table", name)?;
    let bad = |why: String| Error::InvalidArgument(format!("table '{name}': {why}"));
    let mut names = HashSet::new();
    for index in &def.indexes {
        check_name("an index", &index.name)?;
        if !names.insert(&index.name) {
            return Err(bad(format!("two indexes have the name '{}'", index.name)));
        }
    }
    if def.extra.len() > MAX_EXTRA_BYTES {
        return Err(bad(format!("its extra bytes are {}, the limit is {MAX_EXTRA_BYTES}", def.extra.len())));
    }
    // Bytes of another front end are no schema.
    let schema = Schema::decode(&def.extra).ok().flatten();
    if schema.is_some_and(|schema| schema.layout().as_ref() != Ok(&def.layout)) {
        return Err(bad("its schema is of other columns than its layout".into()));
    }
    def.layout.validate().map_err(|e| bad(e.to_string()))?;
    if def.format == RowFormat::Fixed && def.layout.has_blobs() {
        return Err(Error::Unsupported("ROW_FORMAT=FIXED with BLOB columns".into()));
    }
    Ok(())
}

/// Makes a table whose AUTO_INCREMENT values below `counts_from` are not given out; `apart`: key trees that nobody but the
/// caller writes to.
pub(crate) fn create_table(
    core: &Core,
    name: &str,
    def: &TableDef,
    counts_from: u64,
    apart: &[IndexEntry],
) -> Result<()> {
    check_def(name, def)?;
    let layout = LayoutVersion::first(Arc::new(def.layout.clone()));
    let collations = &core.options.collations;
    let mut indexes: Vec<IndexEntry> =
        (1..).zip(&def.indexes).map(|(id, index)| index.entry(id, &**collations)).collect();
    indexes.iter().try_for_each(|index| Index::new(index, &layout, collations).check(name))?;
    indexes.extend_from_slice(apart);
    let mut tables = core.lock_catalog();
    if tables.contains_key(name) {
        return Err(Error::TableExists(name.to_owned()));
    }
    let id = core.ids.new_table();
    let kinds = std::iter::once(TreeKind::Rows).chain(indexes.into_iter().map(TreeKind::Keys));
    let trees = kinds.map(|kind| TreeEntry { id: core.ids.new_tree(), kind }).collect();
    let entry = Table::entry_for(id, trees, name, def, core.views.visible_seq(), core.host.unix().as_secs());
    // Before the record: once that is durable, nothing may fail.
    let memtables = Memtables::new(&entry)?;
    let records = [Record::CreateTable(entry.clone()), Record::AutoIncrementMark { table: id, next: counts_from }];
    let records = if counts_from > 1 { &records[..] } else { &records[..1] };
    let lsn = log_rebuild(core, records, !def.temporary, || Ok(()), |lsn| lsn)?;
    let entry = esker_format::TableEntry { rebuilt_seq: CommitSeq(lsn.0), ..entry };
    let trees = Trees::new(&entry, indexes_of(&entry, collations).into_iter().map(Arc::new).collect(), memtables, lsn);
    trees.auto_increment.raise(counts_from);
    let table = Table::new(&entry, trees);
    core.due.take_in(&table);
    core.shown.lock().insert(table.id, table.clone());
    tables.insert(name.to_owned(), table);
    Ok(())
}

/// Beside whom a table is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Beside {
    /// Transactions that have not ended: who is prepared keeps it.
    Others,
    /// Prepared ones, too.
    Prepared,
}

pub(crate) fn drop_table(core: &Core, name: &str, beside: Beside) -> Result<()> {
    prepared::carry_out(core);
    let mut tables = core.lock_catalog();
    let table = find(&tables, name)?;
    // A temporary one goes with its connection, which asks once, and nobody sees what is prepared for it.
    if !table.temporary && beside == Beside::Others {
        refuse_prepared(core, &table)?;
    }
    log_drop(core, &Record::DropTable { table: table.id }, !table.temporary)?;
    tables.remove(name);
    core.shown.lock().remove(&table.id);
    core.ways_back.lock().retain(|way| way.table != table.id);
    table.set_dropped();
    drop(tables);
    discard::trees(core, &table.trees());
    Ok(())
}

/// Space in the log by which a table that was renamed gets its name back: of several that one statement renames the last one may
/// meet a full disk, and who then renames the others back must not.
pub(crate) struct WayBack {
    table: TableId,
    name: String,
    space: Credit,
}

/// So many of the last renamings can be taken back on a full disk.
const WAYS_BACK: usize = 256;

/// What becomes of a table by its new name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Renamed {
    Known,
    /// Others learn of it only now.
    Shown,
}

pub(crate) fn rename_table(core: &Core, from: &str, to: &str, renamed: Renamed) -> Result<()> {
    check_name("a table", to)?;
    prepared::carry_out(core);
    let mut tables = core.lock_catalog();
    let table = find(&tables, from)?;
    if tables.contains_key(to) {
        return Err(Error::TableExists(to.to_owned()));
    }
    // Under another name it may be opened by other indexes, or by another order of them: see `order_indexes`.
    refuse_prepared(core, &table)?;
    log_rename(core, &table, from, to)?;
    if renamed == Renamed::Shown {
        table.show(core.views.visible_seq());
        // It was filled to take the place of the one that has left this name.
        let before = tables.values().filter_map(|other| Some((other.left(to)?, other))).max_by_key(|(when, _)| *when);
        before.into_iter().for_each(|(_, before)| table.take_work_of(before));
    }
    tables.remove(from);
    static RENAMED: AtomicU64 = AtomicU64::new(0);
    *table.former.lock() = (RENAMED.fetch_add(1, Ordering::Relaxed) + 1, from.to_owned());
    table.set_name(to);
    tables.insert(to.to_owned(), table);
    Ok(())
}

pub(crate) fn truncate_table(core: &Core, name: &str) -> Result<()> {
    prepared::carry_out(core);
    let tables = core.lock_catalog();
    let table = find(&tables, name)?;
    let old = table.trees();
    let mut entry = table.entry();
    let renew = |tree: &mut TreeEntry| {
        let new = core.ids.new_tree();
        (std::mem::replace(&mut tree.id, new), new)
    };
    let trees = entry.trees.iter_mut().map(renew).collect();
    let memtables = Memtables::new(&entry)?;
    let record = Record::TruncateTable { table: table.id, trees };
    // Of how many entries are alike nothing is known any more.
    let indexes = indexes_of(&entry, &core.options.collations).into_iter().map(|i| i.instead_of(&old.indexes));
    let indexes = indexes.map(Arc::new).collect();
    let emptied = |lsn: Lsn| {
        let trees = Trees::new(&entry, indexes, memtables, lsn);
        core.due.expect(&table, &trees);
        #[cfg(test)]
        crate::tests::hooks::reached("a table is about to have other trees");
        table.set_trees(trees, CommitSeq(lsn.0));
        table.enlist();
    };
    log_rebuild(core, &[record], !table.temporary, || refuse_prepared(core, &table), emptied)?;
    drop(tables);
    discard::trees(core, &old);
    Ok(())
}

pub(crate) fn refuse_prepared(core: &Core, table: &Table) -> Result<()> {
    match prepared::is_in(core, table) {
        true => Err(Error::LockTimeout),
        false => Ok(()),
    }
}

/// May its rows be copied, by whoever puts the copy in its place and keeps writers away meanwhile?
pub(crate) fn check_copied(core: &Core, table: &Table) -> Result<()> {
    prepared::carry_out(core);
    refuse_prepared(core, table)
}

/// As [`log`], for records that make a table anew, all in one frame: its position is a commit sequence of its own, so
/// that every view is known to be older or newer than the table. Under the commit lock it is asked whether they `may` be
/// logged, and `then` what is in memory changes, which cannot fail: a commit in between would be for what was there before
/// and stand behind the record, and what is prepared in between would be lost.
fn log_rebuild<T>(
    core: &Core,
    records: &[Record<'_>],
    lasting: bool,
    may: impl FnOnce() -> Result<()>,
    then: impl FnOnce(Lsn) -> T,
) -> Result<T> {
    core.writable.check()?;
    let mut bytes = Vec::new();
    records.iter().for_each(|r| r.encode(&mut bytes));
    // Space first: nothing under the commit lock waits for a disk.
    let space = core.wal.reserve_commit(bytes.len())?;
    #[cfg(test)]
    crate::tests::hooks::reached("a table is about to be made anew");
    let (changed, end) = {
        let _commit = prepared::lock_commits(core);
        may()?;
        let appended = core.wal.append_reserved(space, &bytes);
        // First: a view that is opened at this position never finds what was there before.
        let changed = then(appended.lsn);
        // No transaction's: there is no status word to wait for.
        core.views.publish(CommitSeq(appended.lsn.0), appended.lsn.0);
        (changed, appended.end)
    };
    #[cfg(test)]
    crate::tests::hooks::reached("a table is made anew, and not durably so");
    if lasting {
        core.wal.wait_durable(end)?;
    }
    Ok(changed)
}

/// As [`log`], for a record that gives space back: on a full disk it takes the space that was set aside.
fn log_drop(core: &Core, record: &Record<'_>, lasting: bool) -> Result<()> {
    let full = match log(core, record, lasting) {
        Err(e @ Error::DiskFull(_)) => e,
        logged => return logged.map(drop),
    };
    let Some(space) = core.drop_space.lock().take() else { return Err(full) };
    let appended = core.wal.append_reserved(space, &encoded(record));
    if lasting {
        core.wal.wait_durable(appended.end)?;
    }
    Ok(())
}

/// As [`log`], with space for the way back; who goes that way takes it.
fn log_rename(core: &Core, table: &Table, from: &str, to: &str) -> Result<()> {
    let record = |name| Record::RenameTable { table: table.id, name };
    if table.temporary {
        return log(core, &record(to), false).map(drop);
    }
    core.writable.check()?;
    let taken = take_way_back(core, table.id, to);
    let back = core.wal.reserve_commit(encoded(&record(from)).len());
    let appended = match taken {
        // Whoever goes back has no need of a way forth again.
        Some(space) => core.wal.append_reserved(space, &encoded(&record(to))),
        None if back.is_ok() => core.wal.append(&encoded(&record(to)))?,
        None => return back.map(drop).map_err(Error::from),
    };
    if let Ok(space) = back {
        let mut ways = core.ways_back.lock();
        if ways.len() == WAYS_BACK {
            ways.pop_front();
        }
        ways.push_back(WayBack { table: table.id, name: from.to_owned(), space });
    }
    Ok(core.wal.wait_durable(appended.end)?)
}

fn take_way_back(core: &Core, table: TableId, name: &str) -> Option<Credit> {
    let mut ways = core.ways_back.lock();
    let at = ways.iter().rposition(|way| way.table == table && way.name == name)?;
    ways.remove(at).map(|way| way.space)
}

fn encoded(record: &Record<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    record.encode(&mut bytes);
    bytes
}

/// Keeps what a full disk must not prevent: an opening, and one DROP TABLE.
pub(crate) fn keep_space_in_need(core: &Core) -> Result<()> {
    // Space in a segment that is there needs none on the disk: no room for the reserve must not prevent it.
    let reserve = core.wal.keep_reserve();
    let mut space = core.drop_space.lock();
    if space.is_none() {
        *space = Some(core.wal.reserve_commit(DROP_BYTES)?);
    }
    Ok(reserve?)
}

/// Keeps what was found out about a table's indexes.
pub(crate) fn keep_statistics(core: &Core, table: &Table, statistics: Vec<IndexStatistics>) -> Result<()> {
    let _tables = core.lock_catalog();
    if table.is_dropped() {
        return Err(Error::NoSuchTable(table.name()));
    }
    let record = Record::IndexStatistics { table: table.id, statistics: statistics.clone() };
    log(core, &record, !table.temporary)?;
    table.trees().learn(statistics);
    table.mark_to_save();
    Ok(())
}

/// AUTO_INCREMENT values below `counts_from` are not given out any more.
pub(crate) fn count_from(core: &Core, table: &Table, counts_from: u64) -> Result<()> {
    let _tables = core.lock_catalog();
    if table.is_dropped() {
        return Err(Error::NoSuchTable(table.name()));
    }
    log(core, &Record::AutoIncrementMark { table: table.id, next: counts_from }, !table.temporary)?;
    if table.trees().auto_increment.raise(counts_from) {
        table.mark_to_save();
    }
    Ok(())
}

/// Appends one record and, unless it is of a temporary table, waits until it is durable; where it begins.
fn log(core: &Core, record: &Record<'_>, lasting: bool) -> Result<Lsn> {
    core.writable.check()?;
    let appended = core.wal.append(&encoded(record))?;
    if lasting {
        core.wal.wait_durable(appended.end)?;
    }
    Ok(appended.lsn)
}

fn find(tables: &std::collections::BTreeMap<String, Arc<Table>>, name: &str) -> Result<Arc<Table>> {
    tables.get(name).cloned().ok_or_else(|| Error::NoSuchTable(name.to_owned()))
}
