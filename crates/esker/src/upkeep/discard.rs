//! What nobody needs any more gives its disk and memory back: runs, private runs of what was rolled back, whole trees.
//!
//! Invariant: whoever discards a run has made durable before that nothing refers to it. Where writing has stopped no file goes any
//! more: what took the run out of memory, a statement that emptied its table, say, may be what could not be made durable.

use crate::catalog::table::{with_tree, Trees};
use crate::core::Core;
use crate::options::Background;
use crate::tree::memtable::Memtable;
use crate::tree::run::cache::AnyRun;
use crate::tree::run::Run;
use crate::tree::stored::Stored;
use crate::tree::Tree;
use crate::version::ABORTED;
use std::collections::HashSet;
use std::sync::Arc;

/// Removes the files of runs that nothing refers to any more, in the background.
pub(crate) fn runs<K: Stored>(core: &Core, runs: Vec<Arc<Run<K>>>) {
    if core.is_poisoned() {
        // The next start removes what nothing refers to.
        return;
    }
    let runs = runs.into_iter().map(|run| run as Arc<dyn AnyRun>);
    let runs: Vec<_> = runs.inspect(|run| run.remove_when_unused()).collect();
    if core.options.background == Background::Threads {
        core.signals.discard(runs);
    }
}

/// Takes private runs of an ended or undone part of a transaction out of their tree, with the marks of those that were
/// rolled back.
pub(crate) fn private_runs<K: Stored>(core: &Core, tree: &Tree<K>, gone: Vec<Arc<Run<K>>>) {
    let those: HashSet<_> = gone.iter().map(Arc::as_ptr).collect();
    tree.edit(|state| {
        state.runs.retain(|h| !those.contains(&Arc::as_ptr(&h.run)));
        state.marks.retain(|m| m.owner.as_ref().is_none_or(|o| o.status() != ABORTED));
    });
    runs(core, gone);
}

/// Empties trees that nobody will open again.
pub(crate) fn trees(core: &Core, trees: &Trees) {
    trees.all().for_each(|any| with_tree!(any, gone => tree(core, &gone)));
}

/// After an edit that gave a tree something: one that was emptied before it has not met that. One that its table has given up
/// and that is not emptied yet keeps all until it is: that it is given up may not be durable.
pub(crate) fn what_came_late<K: Stored>(core: &Core, gone: &Tree<K>) {
    if gone.snapshot().is_discarded {
        tree(core, gone);
    }
}

/// As [`trees`], of one.
pub(crate) fn tree<K: Stored>(core: &Core, tree: &Tree<K>) {
    let first_lsn = core.wal.end_lsn();
    // Without memory for it the old one goes with the tree.
    let fresh = Memtable::new(first_lsn).ok();
    let gone = tree.edit(|state| {
        state.active = fresh.unwrap_or_else(|| state.active.clone());
        state.frozen.clear();
        state.marks.clear();
        state.is_discarded = true;
        std::mem::take(&mut state.runs)
    });
    let gone: Vec<_> = gone.into_iter().map(|h| h.run).collect();
    if !gone.is_empty() {
        runs(core, gone);
    }
}
