//! A table gets other indexes, and keeps its rows.
//!
//! New ones are built first, from what was committed, while everybody reads on (`write/build.rs`); then one record says which
//! trees the table has from there on, and what new ones begin with. Of tables that change together, as partitions do, all
//! records are in one frame of the log: a crash leaves all of them or none. Order: runs synced, their folder synced, then, under the
//! commit lock, the record into the log and the trees in memory changed, then the log synced, and only then the files of
//! those that are gone unlinked. A crash before the record is durable leaves orphans and the old indexes, after it the new
//! ones. Invariant: nobody has changed the rows between the reading of them and the record; a front end keeps writers away, one that
//! comes all the same makes the statement fail, or fails itself at its commit.

use crate::catalog::ddl::{check_name, refuse_prepared};
use crate::catalog::index::{Index, IndexDef};
use crate::catalog::table::{index_columns, key_shape, Table, Trees};
use crate::core::Core;
use crate::engine::Engine;
use crate::read::cursor::ScanOptions;
use crate::session::Session;
use crate::tree::key::ByBytes;
use crate::tree::memtable::Memtable;
use crate::tree::run::Run;
use crate::tree::{RunHandle, Tree};
use crate::txn::open::{BeginOptions, Isolation};
use crate::txn::prepared;
use crate::upkeep::discard;
use crate::upkeep::flush::run_entry;
use crate::write::build::{Building, Runs};
use crate::{Error, Result};
use esker_format::{ColumnMask, CommitSeq, Lsn, Record, RunRef, TreeEntry, TreeId, TreeKind};
use esker_io::LockGuard;
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::Ordering;
use std::sync::Arc;

/// One of the indexes that a table is to have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IndexPlan {
    /// The one that is at this place now, under this name.
    Keep {
        /// The place.
        index: usize,
        /// The name.
        name: String,
    },
    /// A new one.
    Add(IndexDef),
}

/// The indexes that a table is to have, built, for [`Engine::alter_indexes`]. Nothing stays of those that never get there; as long
/// as they are there the engine's folder stays locked, though it is closed.
pub struct BuiltIndexes {
    table: Arc<Table>,
    /// The table's, when its rows were read.
    before: Arc<Trees>,
    /// How often it had been changed by then.
    writes: u64,
    indexes: Vec<Planned>,
    /// The last: files go with those before it.
    _held: Arc<dyn LockGuard>,
}

/// An index that a table is to have.
enum Planned {
    Kept(Arc<Index>, Arc<Tree<ByBytes>>),
    New(Index, TreeId, Runs),
}

impl Planned {
    fn entry(&self) -> TreeEntry {
        let (id, index) = match self {
            Planned::Kept(index, tree) => (tree.id, &**index),
            Planned::New(index, id, _) => (*id, index),
        };
        TreeEntry { id, kind: TreeKind::Keys(index.entry.clone()) }
    }

    fn runs(&self) -> &[Arc<Run<ByBytes>>] {
        match self {
            Planned::Kept(..) => &[],
            Planned::New(_, _, runs) => runs.list(),
        }
    }
}

impl Engine {
    /// Builds those indexes of `plan` that a table does not have, in its order. Others may read the table meanwhile; who
    /// writes makes this fail, or [`alter_indexes`](Self::alter_indexes). `progress` gets how far it is, and of how much;
    /// false stops it.
    ///
    /// # Errors
    /// [`Error::DuplicateKey`] with the place in `plan` if two rows have the same unique key; [`Error::Interrupted`];
    /// [`Error::LockTimeout`] while a prepared transaction has written in the table; [`Error::InvalidArgument`] for a plan that keeps
    /// an index that is not there, or one twice, or gives two one name, and for a name as [`create_table`](Self::create_table) does not
    /// take it.
    pub fn build_indexes(
        &self,
        table: &Arc<Table>,
        plan: &[IndexPlan],
        progress: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<BuiltIndexes> {
        let _held = self.core.hold_folder()?;
        self.core.writable.check()?;
        build(&self.core, table, plan, progress)
    }

    /// Gives tables the indexes that were built for them, and no others, durably, all at once: views that are older cannot
    /// read by new ones.
    ///
    /// # Errors
    /// [`Error::TableChanged`] if somebody has written in one of the tables since, [`Error::NoSuchTable`] if one was dropped; all
    /// stay as they were. [`Error::TooLong`] if the definitions of all of them are longer than a record of the log can be.
    pub fn alter_indexes(&self, built: Vec<BuiltIndexes>) -> Result<()> {
        let _held = self.core.hold_folder()?;
        alter(&self.core, built)
    }

    /// Gives a table the order of `defs`, durably, if these are its indexes, whatever their names are, in another one: a front end
    /// that swaps tables of the same columns and keys (partitions) need not have made both in one order. False: they are not.
    ///
    /// Once writing has stopped the order is this engine's alone, and what is read has it: a restart finds that of before.
    ///
    /// # Errors
    /// As for [`build_indexes`](Self::build_indexes) and [`alter_indexes`](Self::alter_indexes).
    pub fn order_indexes(&self, table: &Arc<Table>, defs: &[IndexDef]) -> Result<bool> {
        loop {
            if table.has_indexes(defs) {
                return Ok(true);
            }
            let Some(plan) = in_order_of(&table.trees(), defs) else { return Ok(false) };
            let _held = self.core.hold_folder()?;
            let built = build(&self.core, table, &plan, &mut |_, _| true)?;
            let ordered = match self.poisoned() {
                true => alter_in_memory(&self.core, built),
                false => alter(&self.core, vec![built]),
            };
            match ordered {
                // Another one who opens it was first.
                Err(Error::TableChanged(_)) if !table.is_dropped() => {}
                done => return done.map(|()| true),
            }
        }
    }
}

/// The places of the table's indexes as `defs` are ordered, under their names; of those that are alike the one of the same name.
fn in_order_of(trees: &Trees, defs: &[IndexDef]) -> Option<Vec<IndexPlan>> {
    let mut left: Vec<_> = trees.kept_indexes().collect();
    if left.len() != defs.len() {
        return None;
    }
    let mut plan = Vec::new();
    for def in defs {
        let named = left.iter().position(|(_, index)| index.is_like(def) && index.entry.name == def.name);
        let at = named.or_else(|| left.iter().position(|(_, index)| index.is_like(def)))?;
        plan.push(IndexPlan::Keep { index: left.remove(at).0, name: def.name.clone() });
    }
    Some(plan)
}

fn build(
    core: &Arc<Core>,
    table: &Arc<Table>,
    plan: &[IndexPlan],
    progress: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<BuiltIndexes> {
    if table.temporary {
        return Err(Error::Unsupported("changing the indexes of a temporary table".into()));
    }
    core.check_usable(table)?;
    let _held = core.hold_folder()?;
    let (before, writes) = {
        let _commit = prepared::lock_commits(core);
        refuse_prepared(core, table)?;
        (table.trees(), table.writes.load(Ordering::Relaxed))
    };
    let layout = table.entry_with(&before).layout;
    check_names(table, &before, plan)?;
    let (mut new, mut kept) = (Vec::new(), BTreeSet::new());
    for (place, wanted) in plan.iter().enumerate() {
        match wanted {
            IndexPlan::Keep { index, .. } => {
                // No table has a tree twice: whoever opened the folder would refuse it.
                if !kept.insert(*index) {
                    let why = format!("table '{}' cannot have its index {index} twice", table.name());
                    return Err(Error::InvalidArgument(why));
                }
            }
            IndexPlan::Add(def) => {
                let tree = core.ids.new_tree();
                // Trees of a table come later than its first indexes, which count from 1 on: no id is used twice.
                let id = u32::try_from(tree.0).map_err(|_| Error::Unsupported("as many trees".into()))?;
                let index = Index::new(&def.entry(id, &*core.options.collations), &layout, &core.options.collations);
                index.check(&table.name())?;
                new.push(Building::new(core, table, place, index, tree)?);
            }
        }
    }
    if !new.is_empty() {
        read_rows(core, table, &mut new, progress)?;
    }
    let mut new = new.into_iter();
    let mut planned = Vec::new();
    let rows = table.stats().rows;
    for wanted in plan {
        planned.push(match wanted {
            IndexPlan::Keep { index, name } => {
                let (kept, tree) = (before.index(*index)?, &before.keys[*index]);
                let renamed = *name != kept.entry.name;
                let kept = if renamed { Arc::new(kept.named(name, &layout)) } else { kept.clone() };
                Planned::Kept(kept, tree.clone())
            }
            IndexPlan::Add(_) => {
                let Some(building) = new.next() else { unreachable!("one for each that is added") };
                let mut done = 0;
                let mut go_on = |entries| {
                    done += entries;
                    progress(rows + done.min(rows), 2 * rows)
                };
                let (index, tree, runs) = building.finish(&mut go_on)?;
                Planned::New(index, tree, runs)
            }
        });
    }
    // Those that nobody reads go on as they are.
    let apart = before.indexes.iter().zip(&before.keys).filter(|(index, _)| !index.is_kept());
    planned.extend(apart.map(|(index, tree)| Planned::Kept(index.clone(), tree.clone())));
    Ok(BuiltIndexes { table: table.clone(), before, writes, indexes: planned, _held })
}

/// Can the indexes be called so? What one has from before there were such rules it may keep.
fn check_names(table: &Table, before: &Trees, plan: &[IndexPlan]) -> Result<()> {
    let mut names = HashMap::new();
    for wanted in plan {
        let (name, is_new) = match wanted {
            IndexPlan::Keep { index, name } => (name, *name != before.index(*index)?.entry.name),
            IndexPlan::Add(def) => (&def.name, true),
        };
        if is_new {
            check_name("an index", name)?;
        }
        let other_is_new = names.insert(name, is_new);
        if other_is_new.is_some_and(|other_is_new| is_new || other_is_new) {
            let why = format!("table '{}': two indexes would have the name '{name}'", table.name());
            return Err(Error::InvalidArgument(why));
        }
    }
    Ok(())
}

/// Gives the new indexes the entries of all rows that are committed.
fn read_rows(
    core: &Arc<Core>,
    table: &Arc<Table>,
    new: &mut [Building],
    progress: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<()> {
    let mut mask = ColumnMask::none(table.layout.columns.len());
    for building in new.iter() {
        building.index.codec()?.columns().for_each(|column| mask.set(column));
    }
    let mut session = Session::new(core.clone(), None);
    session.begin(Isolation::RepeatableRead, BeginOptions::default());
    let mut cursor = session.scan(table, ScanOptions { mask, ..ScanOptions::default() })?;
    let (mut done, total) = (0, 2 * table.stats().rows);
    loop {
        let batch = cursor.next_batch(&mut session)?;
        if batch.ids.is_empty() {
            return Ok(());
        }
        for (at, row) in batch.ids.iter().enumerate() {
            // SAFETY: the batch has an image for each id.
            let image = unsafe { batch.images.add(at * batch.stride) };
            for building in new.iter_mut() {
                // SAFETY: the columns of all new indexes are filled in.
                unsafe { building.add(*row, image)? };
            }
        }
        done += batch.ids.len() as u64;
        if !progress(done.min(total / 2), total) {
            return Err(Error::Interrupted);
        }
    }
}

impl BuiltIndexes {
    /// The record that gives the table its trees.
    fn record(&self) -> Record<'static> {
        let keys: Vec<TreeEntry> = self.indexes.iter().map(Planned::entry).collect();
        let attach = |(planned, TreeEntry { id, .. }): (&Planned, &TreeEntry)| {
            let run = |run: &Arc<Run<ByBytes>>| run_entry(&RunHandle::committed(run.clone()), CommitSeq::ZERO);
            planned.runs().iter().map(|r| RunRef { tree: *id, run: run(r) }).collect::<Vec<_>>()
        };
        let attach = self.indexes.iter().zip(&keys).flat_map(attach).collect();
        let rows = TreeEntry { id: self.before.rows.id, kind: TreeKind::Rows };
        Record::AlterIndexes { table: self.table.id, trees: std::iter::once(rows).chain(keys).collect(), attach }
    }

    fn has_runs(&self) -> bool {
        self.indexes.iter().any(|planned| !planned.runs().is_empty())
    }

    /// Memtables for its new trees.
    fn memtables(&self) -> Result<Vec<Arc<Memtable<ByBytes>>>> {
        self.indexes.iter().filter(|i| matches!(i, Planned::New(..))).map(|_| Memtable::new(Lsn(0))).collect()
    }

    /// Fails if somebody has changed the table since its rows were read. Under the commit lock.
    fn check_unchanged(&self, core: &Core) -> Result<()> {
        refuse_prepared(core, &self.table)?;
        let writes = self.table.writes.load(Ordering::Relaxed);
        let is_same = Arc::ptr_eq(&self.table.trees(), &self.before) && writes == self.writes;
        if self.table.is_dropped() || !is_same {
            return Err(Error::TableChanged(self.table.name()));
        }
        Ok(())
    }
}

fn alter(core: &Core, built: Vec<BuiltIndexes>) -> Result<()> {
    if built.is_empty() {
        return Ok(());
    }
    // Of a table that is there twice the second list would be older than the first.
    let tables: BTreeSet<_> = built.iter().map(|b| b.table.id).collect();
    if tables.len() < built.len() {
        return Err(Error::InvalidArgument("a table whose indexes are altered twice at once".into()));
    }
    built.iter().try_for_each(|b| core.check_usable(&b.table))?;
    if built.iter().any(BuiltIndexes::has_runs) {
        core.runs.sync(&core.writable)?;
    }
    // What can fail comes before the record.
    let memtables = built.iter().map(BuiltIndexes::memtables).collect::<Result<Vec<_>>>()?;
    let mut records = Vec::new();
    built.iter().for_each(|b| b.record().encode(&mut records));
    core.writable.check()?;
    let tables = core.lock_catalog();
    let space = core.wal.reserve_commit(records.len())?;
    let mut altered = Vec::new();
    let end = {
        let _commit = prepared::lock_commits(core);
        built.iter().try_for_each(|b| b.check_unchanged(core))?;
        let appended = core.wal.append_reserved(space, &records);
        let seq = CommitSeq(appended.lsn.0);
        core.views.publish(seq, seq.0);
        // Here, so that no commit comes between that was made for the trees of before.
        for (BuiltIndexes { table, before, indexes, .. }, memtables) in built.into_iter().zip(memtables) {
            let trees = trees_with(core, &table, &before, indexes, memtables, appended.lsn);
            #[cfg(test)]
            crate::tests::hooks::reached("a table is about to have other trees");
            table.set_indexes(trees, seq);
            altered.push((table, before));
        }
        appended.end
    };
    altered.iter().for_each(|(table, _)| table.enlist());
    core.wal.wait_durable(end)?;
    // While nobody else alters them: what others took away may not be durable.
    let gone = |(table, before): (Arc<Table>, Arc<Trees>)| {
        let now = table.trees();
        let stays = move |tree: &Arc<Tree<ByBytes>>| now.keys.iter().any(|n| n.id == tree.id);
        before.keys.iter().filter(|tree| !stays(tree)).cloned().collect::<Vec<_>>()
    };
    let gone: Vec<_> = altered.into_iter().flat_map(gone).collect();
    drop(tables);
    gone.iter().for_each(|tree| discard::tree(core, tree));
    Ok(())
}

/// The same of one table that keeps all its indexes, where nothing will ever be written.
fn alter_in_memory(core: &Core, built: BuiltIndexes) -> Result<()> {
    let _tables = core.lock_catalog();
    let _commit = prepared::lock_commits(core);
    built.check_unchanged(core)?;
    let BuiltIndexes { table, before, indexes, .. } = built;
    // Not as it was: who has written in the table goes by that.
    let changed = CommitSeq(table.changed_seq().0 + 1);
    table.set_indexes(trees_with(core, &table, &before, indexes, Vec::new(), Lsn(changed.0)), changed);
    Ok(())
}

/// The trees of a table that has these indexes from `lsn` on.
fn trees_with(
    core: &Core,
    table: &Arc<Table>,
    before: &Trees,
    planned: Vec<Planned>,
    memtables: Vec<Arc<Memtable<ByBytes>>>,
    lsn: Lsn,
) -> Trees {
    let (mut keys, mut indexes, mut memtables) = (Vec::new(), Vec::new(), memtables.into_iter());
    for planned in planned {
        let (index, tree) = match planned {
            Planned::Kept(index, tree) => (index, tree),
            Planned::New(index, id, runs) => {
                let Some(memtable) = memtables.next() else { unreachable!("one for each that is new") };
                let tree = Tree::new(id, key_shape(&index.entry), memtable, lsn);
                let handle = |run| RunHandle { seq: CommitSeq(lsn.0), ..RunHandle::committed(run) };
                tree.edit(|state| runs.take().into_iter().map(handle).for_each(|run| state.add_run(run)));
                core.due.expect_tree(table, &tree);
                (Arc::new(index.usable_from(CommitSeq(lsn.0))), tree)
            }
        };
        keys.push(tree);
        indexes.push(index);
    }
    Trees {
        rows: before.rows.clone(),
        keys,
        index_columns: index_columns(&table.layout, &indexes),
        indexes,
        auto_increment: before.auto_increment.clone(),
        live: before.live.clone(),
    }
}
