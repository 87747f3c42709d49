//! Which trees background rounds and checkpoints look at: those with something in memory, those where there may be something
//! to merge, and those of which the manifest may say something else than is true. Any number of others costs nothing.
//!
//! A tree enters the first list with the first version that is put into its memtables, and leaves it under the lock of its
//! state, so that no writer is between. It enters the others with every change of its state, the last one also with what
//! else the manifest says of its table, and leaves them before it is looked at: a change meanwhile is not lost. Lists name
//! the table weakly; what was dropped or emptied goes at the next look.
//!
//! Invariants: what is to be saved is told before whoever sees the new state can be done with it: where it is under a lock, in
//! it or behind it; an atomic is changed, and the mark read, in one order for all (`SeqCst`). A tree that is not in the first
//! list when a checkpoint looks at it needs nothing of the log before the checkpoint's position, which is kept for its next
//! version. Where assertions are compiled, a checkpoint looks for what nobody told.

use crate::catalog::table::{with_tree, AnyTree, Table, Trees};
use crate::tree::memtable::Memtable;
use crate::tree::stored::Stored;
use crate::tree::{Tree, TreeState};
use esker_base::lock::{order, Mutex};
use esker_format::{Lsn, TableId, TreeId};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

type List = Mutex<BTreeMap<TreeId, TreeOfTable>>;

/// A tree's table.
#[derive(Clone)]
struct TreeOfTable {
    id: TableId,
    table: Weak<Table>,
}

/// See the module.
pub(crate) struct Due {
    /// Which engine of the process it is of: a table knows whose it is.
    pub(crate) engine: u64,
    in_memory: List,
    to_merge: List,
    to_save: List,
    /// The position of the last checkpoint that looked at those in memory. Read and written with their list.
    position: AtomicU64,
    /// Trees that were looked at.
    #[cfg(test)]
    pub(crate) looks: AtomicU64,
    /// Tables that checkpoints looked at.
    #[cfg(test)]
    pub(crate) saved: AtomicU64,
}

/// A tree's places in the lists.
#[derive(Default)]
pub(crate) struct Places {
    home: OnceLock<(TreeOfTable, Arc<Due>)>,
    in_memory: AtomicBool,
    to_merge: AtomicBool,
    to_save: AtomicBool,
}

/// Of which tables the manifest may say something else than is true.
pub(crate) struct ToSave {
    pub(crate) tables: BTreeMap<TableId, Arc<Table>>,
    /// They are there no more; perhaps the manifest never named them.
    pub(crate) gone: Vec<TableId>,
}

impl Due {
    pub(crate) fn new() -> Arc<Self> {
        static ENGINES: AtomicU64 = AtomicU64::new(1);
        Arc::new(Due {
            engine: ENGINES.fetch_add(1, Ordering::Relaxed),
            in_memory: Mutex::new(&order::DUE_IN_MEMORY, BTreeMap::new()),
            to_merge: Mutex::new(&order::DUE_TO_MERGE, BTreeMap::new()),
            to_save: Mutex::new(&order::DUE_TO_SAVE, BTreeMap::new()),
            position: AtomicU64::new(0),
            #[cfg(test)]
            looks: AtomicU64::new(0),
            #[cfg(test)]
            saved: AtomicU64::new(0),
        })
    }

    /// From now on the trees of a table, which nobody else knows yet, are looked at where there is cause.
    pub(crate) fn take_in(self: &Arc<Self>, table: &Arc<Table>) {
        self.expect(table, &table.trees());
        table.enlist();
    }

    /// The same, but for the lists, of trees that a table is about to get: [`Table::enlist`] once it has them. Who finds in a list what is none of
    /// its table's takes it for one of before, and the tree, which takes itself for listed, would be in no list ever again.
    pub(crate) fn expect(self: &Arc<Self>, table: &Arc<Table>, trees: &Trees) {
        table.set_engine(self.engine);
        for tree in trees.all() {
            with_tree!(tree, tree => self.expect_tree(table, &tree));
        }
    }

    /// The same of one tree.
    pub(crate) fn expect_tree<K: Stored>(self: &Arc<Self>, table: &Arc<Table>, tree: &Tree<K>) {
        let _ = tree.places.home.set((TreeOfTable { id: table.id, table: Arc::downgrade(table) }, self.clone()));
    }

    /// Trees with something in memory, with their tables; those that have become empty are listed no longer.
    pub(crate) fn in_memory(&self) -> Vec<(Arc<Table>, AnyTree)> {
        let mut listed = self.listed(&self.in_memory);
        listed.retain(|(_, tree)| !with_tree!(tree, tree => tree.leaves_if_empty(&self.in_memory)));
        listed
    }

    /// Trees where there may be something to merge, with their tables, by their ids.
    pub(crate) fn to_merge(&self) -> Vec<(Arc<Table>, AnyTree)> {
        self.listed(&self.to_merge)
    }

    /// Trees with something in memory, for a checkpoint with this position, which has been taken. No other tree needs
    /// anything before it.
    pub(crate) fn in_memory_at(&self, position: Lsn) -> Vec<(Arc<Table>, AnyTree)> {
        let list = self.in_memory.lock();
        self.position.store(position.0, Ordering::Relaxed);
        drop(list);
        self.listed(&self.in_memory)
    }

    /// What has changed since the last time this was asked. What changes from here on is for the next time, and what of it
    /// is not made durable now is lost to it: then all tables are to be looked at.
    pub(crate) fn take_to_save(&self) -> ToSave {
        let listed: Vec<_> = self.to_save.lock().iter().map(|(id, home)| (*id, home.clone())).collect();
        let mut tables = BTreeMap::new();
        for (id, home) in listed {
            let table = home.table.upgrade();
            match table.as_ref().and_then(|t| t.trees().all().find(|tree| tree.id() == id)) {
                Some(tree) => with_tree!(tree, tree => tree.leaves(&self.to_save, &tree.places.to_save)),
                // The table is gone, or has another tree, which says so.
                None => drop(self.to_save.lock().remove(&id)),
            }
            tables.insert(home.id, table);
        }
        // Only now: one that is dropped from here on tells it again.
        let is_there = |table: Option<Arc<Table>>| table.filter(|t| !t.is_dropped());
        let mut taken = ToSave { tables: BTreeMap::new(), gone: Vec::new() };
        for (id, table) in tables {
            match is_there(table) {
                Some(table) => drop(taken.tables.insert(id, table)),
                None => taken.gone.push(id),
            }
        }
        taken
    }

    fn listed(&self, list: &List) -> Vec<(Arc<Table>, AnyTree)> {
        let (mut found, mut gone) = (Vec::new(), Vec::new());
        let listed: Vec<_> = list.lock().iter().map(|(id, home)| (*id, home.table.upgrade())).collect();
        for (id, table) in listed {
            let table = table.filter(|t| !t.is_dropped());
            match table.and_then(|t| Some((t.trees().all().find(|tree| tree.id() == id)?, t))) {
                Some((tree, table)) => found.push((table, tree)),
                None => gone.push(id),
            }
        }
        #[cfg(test)]
        self.looks.fetch_add(found.len() as u64, Ordering::Relaxed);
        if !gone.is_empty() {
            let mut list = list.lock();
            gone.iter().for_each(|id| drop(list.remove(id)));
        }
        found
    }
}

fn is_empty<K: Stored>(state: &TreeState<K>) -> bool {
    state.frozen.is_empty() && !state.active.wants_flush() && state.active.pinned_bytes() == 0
}

impl<K: Stored> Tree<K> {
    /// Its table has it, and lists tell of it.
    pub(crate) fn enlist(&self) {
        self.mark_to_save();
        let state = self.snapshot();
        if !is_empty(&state) {
            self.mark_in_memory(&state.active);
        }
        if !state.runs.is_empty() || !state.marks.is_empty() {
            self.has_changed();
        }
    }

    /// A version was put into `active`, its memtable; said while its state is locked for reading.
    #[inline]
    pub(crate) fn mark_in_memory(&self, active: &Memtable<K>) {
        if !self.places.in_memory.load(Ordering::Relaxed) {
            self.add_to(
                &self.places.in_memory,
                |due| &due.in_memory,
                |due| {
                    active.begins_behind(Lsn(due.position.load(Ordering::Relaxed)));
                },
            );
        }
    }

    /// Its state is another, or it was looked at and there is more to be done.
    pub(crate) fn has_changed(&self) {
        if !self.places.to_merge.load(Ordering::SeqCst) {
            self.add_to(&self.places.to_merge, |due| &due.to_merge, |_| {});
        }
    }

    /// The manifest may say something else of it, or of its table, than is true.
    #[inline]
    pub(crate) fn mark_to_save(&self) {
        if !self.places.to_save.load(Ordering::SeqCst) {
            self.add_to(&self.places.to_save, |due| &due.to_save, |_| {});
        }
    }

    /// It is about to be looked at.
    pub(crate) fn leaves_to_be_looked_at(&self) {
        let Some((_, due)) = self.places.home.get() else { return };
        self.leaves(&due.to_merge, &self.places.to_merge);
    }

    fn leaves(&self, list: &List, is_in: &AtomicBool) {
        let mut list = list.lock();
        list.remove(&self.id);
        is_in.store(false, Ordering::SeqCst);
    }

    /// Puts it into a list; `first` is done by who does it.
    #[cold]
    fn add_to(&self, is_in: &AtomicBool, list: impl FnOnce(&Due) -> &List, first: impl FnOnce(&Due)) {
        let Some((home, due)) = self.places.home.get() else { return };
        let mut list = list(due).lock();
        if !is_in.load(Ordering::SeqCst) {
            first(due);
            list.insert(self.id, home.clone());
            is_in.store(true, Ordering::SeqCst);
        }
    }

    fn leaves_if_empty(&self, list: &List) -> bool {
        if !is_empty(&self.snapshot()) {
            return false;
        }
        // Nobody puts anything while the state is locked for writing.
        let state = self.state.write();
        let empty = is_empty(&state);
        if empty {
            list.lock().remove(&self.id);
            self.places.in_memory.store(false, Ordering::Relaxed);
        }
        empty
    }

    /// Asserts that it is listed if it has something in memory.
    #[cfg(debug_assertions)]
    fn assert_listed(&self) {
        // Between a version and its telling is nobody while the state is locked for writing.
        let state = self.state.write();
        let empty = state.frozen.is_empty() && state.active.is_empty();
        assert!(
            empty || self.places.in_memory.load(Ordering::Relaxed),
            "tree {} has versions, and nobody told",
            self.id
        );
    }
}

impl Table {
    /// It has its trees, and lists tell of them.
    pub(crate) fn enlist(&self) {
        self.trees().all().for_each(|tree| with_tree!(tree, tree => tree.enlist()));
    }
}

#[cfg(debug_assertions)]
impl Table {
    /// Asserts that what its trees have in memory was told.
    pub(crate) fn assert_listed(&self) {
        self.trees().all().for_each(|tree| with_tree!(tree, tree => tree.assert_listed()));
    }

    /// Is it told that the manifest may say something else of it? The list says so, not the trees' own marks, which may be wrong.
    pub(crate) fn will_be_saved(&self) -> bool {
        let is_told = |(_, due): &(TreeOfTable, Arc<Due>), id: TreeId| due.to_save.lock().contains_key(&id);
        self.trees()
            .all()
            .any(|tree| with_tree!(tree, tree => tree.places.home.get().is_some_and(|h| is_told(h, tree.id))))
    }
}

#[cfg(test)]
mod tests {
    use crate::core::Core;
    use crate::tests::tables::{commit_rows, def, open_on, options, Watched};
    use crate::upkeep::{background, flush};
    use std::sync::atomic::Ordering;
    use std::sync::Arc;

    /// Trees that a round of flushing and one of merging look at.
    fn looks(core: &Core) -> u64 {
        background::one_round(core).unwrap();
        let before = core.due.looks.load(Ordering::Relaxed);
        background::one_round(core).unwrap();
        while background::merge_somewhere(core).unwrap() {}
        core.due.looks.load(Ordering::Relaxed) - before
    }

    #[test]
    fn idle_tables_cost_a_round_nothing() {
        let disk = Watched::new();
        let e = open_on(Arc::new(disk.clone()), options());
        let tables = 300;
        let table = |n: u64| {
            e.create_table(&format!("t{n}"), &def()).unwrap();
            e.open_table(&format!("t{n}")).unwrap()
        };
        let tables: Vec<_> = (0..tables).map(table).collect();
        assert_eq!(looks(&e.core), 0);
        let mut s = e.session();
        tables.iter().for_each(|t| drop(commit_rows(&mut s, t, 2)));
        assert!(looks(&e.core) >= 300);
        tables.iter().for_each(|t| flush::tree(&e.core, t, &t.tree()).unwrap());
        looks(&e.core);
        assert_eq!(looks(&e.core), 0, "all of it is in runs, one in each table");
        // One that is written to, and one that a mark empties.
        commit_rows(&mut s, &tables[7], 2);
        assert!((1..9).contains(&looks(&e.core)));
        assert!(e.core.flushes.flushable_bytes() > 0);
        flush::tree(&e.core, &tables[7], &tables[7].tree()).unwrap();
        looks(&e.core);
        assert_eq!(looks(&e.core), 0);
        assert_eq!(e.core.flushes.flushable_bytes(), 0);
        // Runs that came since the last look are merged.
        for _ in 0..20 {
            commit_rows(&mut s, &tables[7], 2);
            flush::tree(&e.core, &tables[7], &tables[7].tree()).unwrap();
        }
        assert!(background::merge_somewhere(&e.core).unwrap());
        looks(&e.core);
        assert_eq!(looks(&e.core), 0);
        // What is dropped or emptied is looked at no more.
        commit_rows(&mut s, &tables[8], 2);
        commit_rows(&mut s, &tables[9], 2);
        e.drop_table("t8").unwrap();
        e.truncate_table("t9").unwrap();
        looks(&e.core);
        assert_eq!(looks(&e.core), 0);
        commit_rows(&mut s, &tables[9], 2);
        assert!(looks(&e.core) > 0, "its new tree is looked at");
        // After a restart each is looked at once.
        drop((tables, s, e));
        let e = open_on(Arc::new(disk.clone()), options());
        assert!(looks(&e.core) >= 298);
        flush::all(&e.core).unwrap();
        looks(&e.core);
        assert_eq!(looks(&e.core), 0);
    }
}
