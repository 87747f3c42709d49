//! What a transaction has written in one tree: versions in the shared memtable with their redo, versions in a memtable of its
//! own, and private runs.
//!
//! Invariants: a private run stands in its tree under the transaction's status word for as long as it is here; what the
//! private memtable takes is a share of the budget of large writes.

use crate::core::Core;
use crate::tree::memtable::{Change, Memtable, TxnSlot};
use crate::tree::own_keys::OwnKeys;
use crate::tree::private::{Private, ShownPrivate};
use crate::tree::run::writer::RunWriter;
use crate::tree::run::Run;
use crate::tree::search::Before;
use crate::tree::stored::Stored;
use crate::tree::{RunHandle, Tree};
use crate::txn::redo::{Redo, RedoPoint};
use crate::txn::state::TxnState;
use crate::upkeep::discard;
use crate::upkeep::flush::run_entry;
use crate::version::OrdinalRanges;
use crate::write::large::{Budget, Share};
use crate::{Error, Result};
use esker_base::counters::{count, Counter};
use esker_format::{grow, CommitSeq, RunRef};
use std::sync::atomic::Ordering;
use std::sync::Arc;

/// See the module.
pub(crate) struct TreeWrites<K: Stored> {
    pub(crate) tree: Arc<Tree<K>>,
    /// Memtable (by id) and the transaction's place in it.
    slot: (u64, *const TxnSlot),
    /// Behind the key that it put last there.
    last: Before<K>,
    pub(crate) runs: Vec<Arc<Run<K>>>,
    /// Versions that were ever put, here or there.
    puts: usize,
    pub(crate) redo: Redo,
    /// Its large writes, but for rows that it inserts, before they become runs; others find it in the tree's state.
    private: Option<PrivateWrites<K>>,
    /// What that takes of the budget of large writes.
    share: Share,
    /// Of unique keys: what of them is in runs.
    own_keys: OwnKeys,
}

/// What a transaction has gathered in a tree, where others find it for as long.
struct PrivateWrites<K: Stored> {
    private: Arc<Private<K>>,
    /// Behind the key that was put last there, if it goes to its place at once.
    last: Before<K>,
    _shown: Option<ShownPrivate<K>>,
}

/// What is gathered for a tree becomes a run at this size, in bytes.
const PRIVATE_BYTES: usize = 16 << 20;

/// About what a version takes of the redo, in bytes; keys are not long.
pub(crate) fn logged_bytes(change: &Change<'_>) -> usize {
    64 + change.value.len()
}

/// How what is gathered for a tree has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fill {
    Same,
    /// It took more memory.
    Grown,
    /// It is to become a run.
    Full,
}

impl<K: Stored> TreeWrites<K> {
    /// Nothing yet.
    pub(crate) fn new(tree: Arc<Tree<K>>, budget: &Arc<Budget>) -> Self {
        let (slot, last, share) = ((0, std::ptr::null()), [std::ptr::null(); 2], Share::new(budget));
        let (redo, own_keys) = (Redo::default(), OwnKeys::default());
        TreeWrites { tree, slot, last, runs: Vec::new(), puts: 0, redo, private: None, share, own_keys }
    }

    /// Puts a version into the shared memtable, and tells which that is. The key is fresh, or the caller has the lock of
    /// the row.
    pub(crate) fn put(&mut self, state: &TxnState, key: K::Ref<'_>, change: Change<'_>) -> Result<u64> {
        self.put_one(state, key, change, 0)
    }

    /// As [`put`](Self::put), and [`put_by`](Self::put_by).
    fn put_one(&mut self, state: &TxnState, key: K::Ref<'_>, change: Change<'_>, redo_bytes: usize) -> Result<u64> {
        // SAFETY: the slot is of this memtable; the caller's promise.
        self.put_by(state, 1, redo_bytes, |mem, slot, last| unsafe { mem.put_behind(last, key, slot, change) })
    }

    /// Puts versions, so many, into the shared memtable by `put`, which gets the transaction's slot there. First makes room for
    /// `redo_bytes`: a version that is there must have its redo.
    fn put_by(
        &mut self,
        state: &TxnState,
        versions: usize,
        redo_bytes: usize,
        put: impl FnOnce(&Memtable<K>, *const TxnSlot, &mut Before<K>) -> Result<()>,
    ) -> Result<u64> {
        // Held while writing: freezing waits for it.
        let guard = self.tree.state.read();
        let mem = &guard.active;
        // First: after an error some of those that are put together may be there.
        self.tree.mark_in_memory(mem);
        if self.slot.0 != mem.id {
            self.slot = (mem.id, state.slot_in(mem)?);
            self.last = [std::ptr::null(); 2];
        }
        if redo_bytes > 0 {
            grow(self.redo.of(mem.id), redo_bytes).map_err(Error::in_memory)?;
        }
        put(mem, self.slot.1, &mut self.last)?;
        self.puts += versions;
        Ok(mem.id)
    }

    /// Puts a version into the shared memtable, and its redo beside.
    pub(crate) fn put_shared(&mut self, state: &TxnState, key: K::Ref<'_>, change: Change<'_>) -> Result<()> {
        let mem = self.put_one(state, key, change, logged_bytes(&change))?;
        K::log(state.id, self.tree.id, key, change, self.redo.of(mem));
        Ok(())
    }

    /// Puts versions of different keys, given in the order of their ordinals, into the shared memtable together, and their redo
    /// beside. As for [`put`](Self::put).
    pub(crate) fn put_each_shared(&mut self, state: &TxnState, wanted: &[(K::Ref<'_>, Change<'_>)]) -> Result<()> {
        let mut sorted = wanted.to_vec();
        sorted.sort_unstable_by(|(a, _), (b, _)| K::cmp(*a, *b));
        // SAFETY: the slot is of this memtable; the caller's promise, as for `put`.
        let put = |mem: &Memtable<K>, slot, _: &mut _| unsafe { mem.put_each(slot, &sorted) };
        let redo_bytes = wanted.iter().map(|(_, change)| logged_bytes(change)).sum();
        let mem = self.put_by(state, wanted.len(), redo_bytes, put)?;
        for (key, change) in wanted {
            K::log(state.id, self.tree.id, *key, *change, self.redo.of(mem));
        }
        Ok(())
    }

    /// Gathers a version for a run of its own. As for [`put`](Self::put); `unique`: see [`Private::put`].
    pub(crate) fn put_private(
        &mut self,
        state: &TxnState,
        key: K::Ref<'_>,
        change: Change<'_>,
        unique: bool,
    ) -> Result<Fill> {
        let gathered = match &mut self.private {
            Some(gathered) => gathered,
            None => {
                let private = Private::new(state)?;
                let _shown = ShownPrivate::new(&self.tree, &private);
                self.private.insert(PrivateWrites { private, last: [std::ptr::null(); 2], _shown })
            }
        };
        let used = gathered.private.put(&mut gathered.last, key, change, unique)?;
        self.puts += 1;
        if used as u64 == self.share.bytes() {
            return Ok(Fill::Same);
        }
        self.share.resize(used as u64);
        Ok(if used > PRIVATE_BYTES { Fill::Full } else { Fill::Grown })
    }

    /// Is the key not in the shared memtable, as it would be the next one behind what was put last there?
    pub(crate) fn is_not_in(&self, active: &Memtable<K>, key: K::Ref<'_>) -> bool {
        // SAFETY: the place is of the memtable with that id.
        self.slot.0 == active.id && unsafe { active.is_right_behind(&self.last, key) }
    }

    /// How many versions it has put so far, as the tree's [stamp](crate::tree::TreeState::stamp) counts them.
    pub(crate) fn puts(&self) -> usize {
        self.puts
    }

    /// Is anything gathered?
    pub(crate) fn has_private(&self) -> bool {
        self.private.is_some()
    }

    /// What is gathered, as a memtable.
    pub(crate) fn private(&self) -> Result<Option<&Arc<Memtable<K>>>> {
        self.private.as_ref().map(|gathered| gathered.private.sorted()).transpose()
    }

    /// Memory of what is gathered, in bytes.
    pub(crate) fn private_bytes(&self) -> u64 {
        self.share.bytes()
    }

    /// See [`Private::content_bytes`].
    pub(crate) fn private_content_bytes(&self, enough: usize) -> usize {
        self.private.as_ref().map_or(0, |gathered| gathered.private.content_bytes(enough))
    }

    /// Writes what is gathered, and notes which keys that are, if there is room for them; tells whether there was.
    pub(crate) fn write_noted(&mut self, writer: &mut RunWriter<K>, budget: &Arc<Budget>) -> Result<bool> {
        let Some(PrivateWrites { private, .. }) = &self.private else { return Ok(false) };
        if !self.own_keys.make_room(private.versions(), budget) {
            return private.write(writer).map(|()| false);
        }
        private.each(|key, change| {
            self.own_keys.add(K::filter_hash(K::short(key)));
            writer.push(key, change.tag(), change.value)
        })?;
        Ok(true)
    }

    /// Writes what is gathered.
    pub(crate) fn write_private(&self, writer: &mut RunWriter<K>) -> Result<()> {
        self.private.as_ref().map_or(Ok(()), |gathered| gathered.private.write(writer))
    }

    /// May one of the runs that were noted have the key?
    pub(crate) fn is_in_noted(&self, key: K::Ref<'_>) -> bool {
        !self.own_keys.is_empty() && self.own_keys.may_hold(K::filter_hash(key))
    }

    /// What is gathered and too small for a run goes to the shared memtable and to redo.
    pub(crate) fn keep_private(&mut self, state: &TxnState) -> Result<()> {
        let Some(mem) = self.private()?.cloned() else { return Ok(()) };
        for n in mem.walk() {
            let mut versions: Vec<_> = n.versions().filter(|v| mem.is_live(v)).collect();
            // Oldest first: each goes on top.
            versions.reverse();
            versions.into_iter().try_for_each(|v| self.put_shared(state, n.key(), v.change()))?;
        }
        self.drop_private();
        Ok(())
    }

    /// What was gathered is in a run, or not wanted.
    pub(crate) fn drop_private(&mut self) {
        self.private = None;
        self.share.resize(0);
    }

    /// Lets a sealed private run join the tree under the transaction's status word.
    pub(crate) fn join(&mut self, state: &Arc<TxnState>, run: Arc<Run<K>>) {
        let handle = RunHandle::private(run.clone(), state.clone());
        self.tree.edit(|state| state.add_run(handle));
        self.runs.push(run);
        count(Counter::RunsAttached, 1);
        count(Counter::KeyRunsAttached, K::OF_INDEX);
    }

    /// Takes over what a flush moved from a memtable to a private run, which is in the tree already.
    pub(crate) fn adopt(&mut self, mem: u64, run: Arc<Run<K>>) {
        self.redo.forget(mem);
        self.runs.push(run);
    }

    /// Undoes everything since `point`, at which `ordinal` was the next one; `aborted`: all that was rolled back.
    pub(crate) fn rollback_to(&mut self, core: &Core, point: RedoPoint, ordinal: u64, aborted: &OrdinalRanges) {
        self.redo.truncate(point, ordinal);
        let is_gone = |r: &Arc<Run<K>>| aborted.covers(r.stats.min_ordinal, r.stats.max_ordinal + 1);
        let (gone, left): (Vec<_>, Vec<_>) = std::mem::take(&mut self.runs).into_iter().partition(is_gone);
        self.runs = left;
        if !self.runs.iter().any(|run| run.noted.load(Ordering::Relaxed)) {
            self.own_keys = OwnKeys::default();
        }
        if !gone.is_empty() {
            discard::private_runs(core, &self.tree, gone);
        }
    }

    /// The tree is gone: what is gathered for it goes to no file.
    pub(crate) fn let_go(&mut self, core: &Core) {
        self.drop_private();
        discard::runs(core, std::mem::take(&mut self.runs));
    }

    /// The transaction was rolled back: what it has here goes, range marks too if it has any.
    pub(crate) fn give_up(&mut self, core: &Core, has_marks: bool) {
        self.drop_private();
        let runs = std::mem::take(&mut self.runs);
        if !runs.is_empty() || has_marks {
            discard::private_runs(core, &self.tree, runs);
        }
    }

    /// The runs that join the tree for good when the transaction commits.
    pub(crate) fn attach(&self) -> impl Iterator<Item = RunRef> + '_ {
        let entry = |run: &Arc<Run<K>>| run_entry(&RunHandle::committed(run.clone()), CommitSeq::ZERO);
        self.runs.iter().map(move |run| RunRef { tree: self.tree.id, run: entry(run) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::SessionParts;
    use crate::tests::support::{begin, fixed, make, open_with, options};
    use crate::tree::memtable::Node;
    use crate::tree::together::behind;
    use esker_format::RowId;
    use esker_io::SimDisk;

    /// Of versions that are put together the first stay when memory does not suffice for all: whoever flushes knows of them.
    #[test]
    fn what_was_put_before_an_error_is_known_of() {
        let e = open_with(&SimDisk::new(1), options()).unwrap();
        let t = make(&e, "t", &fixed(8));
        let mut s = e.session();
        begin(&mut s);
        let SessionParts { core, txn, .. } = s.parts().unwrap();
        let at = txn.table_of(core, &t).unwrap();
        assert_eq!(core.due.in_memory().len(), 0);
        let state = txn.state.clone();
        let put = txn.tables[at].rows.put_by(&state, 2, 0, |mem, slot, _| {
            // SAFETY: nobody else knows the row.
            unsafe { mem.put(RowId(1), slot, Change::of_row(1, Some(b"first"), false))? };
            Err(Error::OutOfMemory("for the second".into()))
        });
        put.unwrap_err();
        assert_eq!(core.due.in_memory().len(), 1);
    }

    /// Rows that a large transaction changes in their order need no search, in each memtable that it gathers them in.
    #[test]
    fn rising_rows_are_gathered_behind_each_other() {
        let e = open_with(&SimDisk::new(1), options()).unwrap();
        let t = make(&e, "t", &fixed(8));
        let mut s = e.session();
        begin(&mut s);
        let SessionParts { core, txn, .. } = s.parts().unwrap();
        let at = txn.table_of(core, &t).unwrap();
        let state = txn.state.clone();
        let rows = &mut txn.tables[at].rows;
        behind::take();
        for part in 0..3u64 {
            let wanted: Vec<_> = (100..200).chain(part * 10..50 + part * 10).chain([199, 200]).map(RowId).collect();
            for (ordinal, row) in wanted.iter().enumerate() {
                let change = Change::of_row(ordinal as u64, Some(b"value"), false);
                rows.put_private(&state, *row, change, false).unwrap();
            }
            // But for the first of both stretches, and one that is there.
            assert_eq!(behind::take(), wanted.len() - 3, "part {part}");
            let mem = rows.private().unwrap().unwrap();
            let mut sorted: Vec<_> = wanted[..wanted.len() - 2].to_vec();
            sorted.push(RowId(200));
            sorted.sort_unstable();
            assert!(mem.walk().map(Node::key).eq(sorted), "part {part}");
            rows.drop_private();
        }
    }
}
