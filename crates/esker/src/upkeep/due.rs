//! Which trees background rounds look at: those with something in memory, and those where there may be something to
//! merge. Any number of others costs a round nothing.
//!
//! A tree enters the first list with the first version that is put into its memtables, and leaves it under the lock of its
//! state, so that no writer is between. It enters the second with every change of its state, and leaves it before it is
//! looked at: a change meanwhile is not lost. Lists name the table weakly; what was dropped or emptied goes at the next look.

use crate::catalog::table::{with_tree, AnyTree, Table, Trees};
use crate::tree::stored::Stored;
use crate::tree::{Tree, TreeState};
use esker_base::lock::Mutex;
use esker_format::TreeId;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

type List = Mutex<BTreeMap<TreeId, Weak<Table>>>;

/// See the module.
pub(crate) struct Due {
    in_memory: List,
    to_merge: List,
    /// Trees that were looked at.
    #[cfg(test)]
    pub(crate) looks: std::sync::atomic::AtomicU64,
}

/// A tree's places in the lists.
#[derive(Default)]
pub(crate) struct Places {
    home: OnceLock<(Weak<Table>, Arc<Due>)>,
    in_memory: AtomicBool,
    to_merge: AtomicBool,
}

impl Due {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Due {
            in_memory: Mutex::new("due.in_memory", BTreeMap::new()),
            to_merge: Mutex::new("due.to_merge", BTreeMap::new()),
            #[cfg(test)]
            looks: std::sync::atomic::AtomicU64::new(0),
        })
    }

    /// From now on these trees of a table, which nobody else writes to yet, are looked at where there is cause.
    pub(crate) fn take_in(self: &Arc<Self>, table: &Arc<Table>, trees: &Trees) {
        for tree in trees.all() {
            with_tree!(tree, tree => {
                let _ = tree.places.home.set((Arc::downgrade(table), self.clone()));
                let state = tree.snapshot();
                if !is_empty(&state) {
                    tree.has_something();
                }
                if !state.runs.is_empty() || !state.marks.is_empty() {
                    tree.has_changed();
                }
            });
        }
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

    fn listed(&self, list: &List) -> Vec<(Arc<Table>, AnyTree)> {
        let (mut found, mut gone) = (Vec::new(), Vec::new());
        let listed: Vec<_> = list.lock().iter().map(|(id, table)| (*id, table.upgrade())).collect();
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
    /// A version was put into its memtables; said while its state is locked for reading.
    #[inline]
    pub(crate) fn has_something(&self) {
        if !self.places.in_memory.load(Ordering::Relaxed) {
            self.enlist(&self.places.in_memory, |due| &due.in_memory);
        }
    }

    /// Its state is another, or it was looked at and there is more to be done.
    pub(crate) fn has_changed(&self) {
        if !self.places.to_merge.load(Ordering::SeqCst) {
            self.enlist(&self.places.to_merge, |due| &due.to_merge);
        }
    }

    /// It is about to be looked at.
    pub(crate) fn leaves_to_be_looked_at(&self) {
        let Some((_, due)) = self.places.home.get() else { return };
        let mut list = due.to_merge.lock();
        list.remove(&self.id);
        self.places.to_merge.store(false, Ordering::SeqCst);
    }

    #[cold]
    fn enlist(&self, is_in: &AtomicBool, list: impl FnOnce(&Due) -> &List) {
        let Some((table, due)) = self.places.home.get() else { return };
        let mut list = list(due).lock();
        list.insert(self.id, table.clone());
        is_in.store(true, Ordering::SeqCst);
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
}

#[cfg(test)]
mod tests {
    use crate::core::Core;
    use crate::tests::tables::{commit_rows, def, open_on, options, Watched};
    use std::sync::atomic::Ordering;
    use std::sync::Arc;

    /// Trees that a round of flushing and one of merging look at.
    fn looks(core: &Core) -> u64 {
        core.one_round().unwrap();
        let before = core.due.looks.load(Ordering::Relaxed);
        core.one_round().unwrap();
        while core.merge_somewhere().unwrap() {}
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
        tables.iter().for_each(|t| e.core.flush(t, &t.tree()).unwrap());
        looks(&e.core);
        assert_eq!(looks(&e.core), 0, "all of it is in runs, one in each table");
        // One that is written to, and one that a mark empties.
        commit_rows(&mut s, &tables[7], 2);
        assert!((1..9).contains(&looks(&e.core)));
        assert!(e.core.signals.flushable_bytes() > 0);
        e.core.flush(&tables[7], &tables[7].tree()).unwrap();
        looks(&e.core);
        assert_eq!(looks(&e.core), 0);
        assert_eq!(e.core.signals.flushable_bytes(), 0);
        // Runs that came since the last look are merged.
        for _ in 0..20 {
            commit_rows(&mut s, &tables[7], 2);
            e.core.flush(&tables[7], &tables[7].tree()).unwrap();
        }
        assert!(e.core.merge_somewhere().unwrap());
        looks(&e.core);
        assert_eq!(looks(&e.core), 0);
        // What is dropped or emptied is looked at no more.
        commit_rows(&mut s, &tables[8], 2);
        commit_rows(&mut s, &tables[9], 2);
        e.drop_table("t8").unwrap();
        e.core.truncate_table("t9").unwrap();
        looks(&e.core);
        assert_eq!(looks(&e.core), 0);
        commit_rows(&mut s, &tables[9], 2);
        assert!(looks(&e.core) > 0, "its new tree is looked at");
        // After a restart each is looked at once.
        drop((tables, s, e));
        let e = open_on(Arc::new(disk.clone()), options());
        assert!(looks(&e.core) >= 298);
        e.core.flush_all().unwrap();
        looks(&e.core);
        assert_eq!(looks(&e.core), 0);
    }
}
