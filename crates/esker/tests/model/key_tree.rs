//! A tree of keys: of a run what matters here, its versions in one block that is always in memory.

use crate::memtable::Memtable;
use crate::private::Private;
use crate::state::TxnState;
use crate::stored::Stored;
use crate::sync::{order, RwLock};
use crate::version::{order_if_visible, OrdinalRanges, VersionOrder, View};
use crate::Result;
pub(crate) use crate::{arena, fences, key, memtable, node, private, search, standing, stored};
use esker_format::{CommitSeq, RowId, TxnId, VersionTag};
use key::ByBytes;
use std::marker::PhantomData;
use std::sync::Arc;

pub(crate) mod run {
    pub(crate) struct MovedRun;

    pub(crate) mod writer {
        use crate::key::Key;
        use crate::Result;
        use esker_format::VersionTag;

        /// By key, of each the newest first.
        pub(crate) struct RunWriter<K: Key>(pub(crate) Vec<(K::Own, VersionTag, Vec<u8>)>);

        impl<K: Key> RunWriter<K> {
            pub(crate) fn push(&mut self, key: K::Ref<'_>, tag: VersionTag, value: &[u8]) -> Result<()> {
                self.0.push((K::own(key), tag, value.to_vec()));
                Ok(())
            }
        }
    }
}

pub(crate) type Block = Vec<(Arc<[u8]>, VersionTag, Vec<u8>)>;

/// Also its own index, of one block.
#[derive(Clone)]
pub(crate) struct Run {
    pub(crate) block: Arc<Block>,
    first: Vec<Arc<[u8]>>,
}

impl Run {
    pub(crate) fn new(block: Block) -> Run {
        let first = block.iter().take(1).map(|v| v.0.clone()).collect();
        Run { block: Arc::new(block), first }
    }
    pub(crate) fn index(&self) -> Result<Run> {
        Ok(self.clone())
    }
    pub(crate) fn entries(&self) -> &[Arc<[u8]>] {
        &self.first
    }
    pub(crate) fn seek_key(&self, _: &Run, key: &[u8]) -> Result<(usize, bool)> {
        Ok((usize::from(self.block.last().is_none_or(|v| &*v.0 < key)), true))
    }
    pub(crate) fn may_hold(&self, _: &Run, _: usize, _: u64) -> bool {
        true
    }
    pub(crate) fn block(&self, _: &Run, _: usize) -> Result<Arc<Block>> {
        Ok(self.block.clone())
    }
}

pub(crate) struct RunHandle<K: Stored = ByBytes> {
    pub(crate) run: Run,
    pub(crate) owner: Option<Arc<TxnState>>,
    pub(crate) noted: bool,
    pub(crate) kind: PhantomData<fn() -> K>,
}

impl<K: Stored> Clone for RunHandle<K> {
    fn clone(&self) -> Self {
        RunHandle { run: self.run.clone(), owner: self.owner.clone(), noted: self.noted, kind: PhantomData }
    }
}

impl<K: Stored> RunHandle<K> {
    pub(crate) fn new(block: Block, owner: Option<Arc<TxnState>>) -> Self {
        RunHandle { run: Run::new(block), owner, noted: false, kind: PhantomData }
    }
    pub(crate) fn aborted(&self) -> Arc<OrdinalRanges> {
        self.owner.as_ref().map_or_else(Arc::default, |o| o.aborted())
    }
}

/// There are none here.
pub(crate) struct RangeMark {
    pub(crate) owner: Option<Arc<TxnState>>,
    pub(crate) ordinal: u64,
    pub(crate) up_to: RowId,
    pub(crate) as_of: CommitSeq,
}

impl RangeMark {
    pub(crate) fn hides(&self, _: RowId, _: VersionOrder) -> bool {
        false
    }
}

pub(crate) struct TreeState<K: Stored> {
    pub(crate) active: Arc<Memtable<K>>,
    pub(crate) frozen: Vec<Arc<Memtable<K>>>,
    pub(crate) privates: Vec<Arc<Private<K>>>,
    pub(crate) runs: Vec<RunHandle<K>>,
    pub(crate) marks: Arc<[RangeMark]>,
}

impl<K: Stored> Clone for TreeState<K> {
    fn clone(&self) -> Self {
        let (active, frozen, privates) = (self.active.clone(), self.frozen.clone(), self.privates.clone());
        TreeState { active, frozen, privates, runs: self.runs.clone(), marks: self.marks.clone() }
    }
}

impl<K: Stored> TreeState<K> {
    pub(crate) fn memtables(&self) -> impl Iterator<Item = &Arc<Memtable<K>>> {
        std::iter::once(&self.active).chain(&self.frozen)
    }
    pub(crate) fn runs_at_but(&self, _: K::Ref<'_>, but: Option<TxnId>) -> impl Iterator<Item = &RunHandle<K>> {
        let noted_by = |h: &RunHandle<K>| h.owner.as_ref().filter(|_| h.noted).map(|owner| owner.id);
        self.runs.iter().filter(move |h| but.is_none() || noted_by(h) != but)
    }
    pub(crate) fn seen_marks(&self, _: View) -> &[RangeMark] {
        &self.marks
    }
}

pub(crate) struct Tree<K: Stored> {
    pub(crate) state: RwLock<Arc<TreeState<K>>>,
}

impl<K: Stored> Tree<K> {
    pub(crate) fn snapshot(&self) -> Arc<TreeState<K>> {
        self.state.read().clone()
    }
    pub(crate) fn edit<R>(&self, change: impl FnOnce(&mut TreeState<K>) -> R) -> R {
        let mut guard = self.state.write();
        let mut state = TreeState::clone(&guard);
        let result = change(&mut state);
        *guard = Arc::new(state);
        result
    }
}

pub(crate) enum Found<K: Stored = ByBytes> {
    Mem(Arc<Memtable<K>>, &'static [u8]),
    Block(Run, u64, Arc<Block>, u32),
    Tombstone,
}

/// As the engine's.
#[derive(Clone, Copy, Default)]
pub(crate) struct LeftOut {
    pub(crate) noted_by: Option<TxnId>,
    pub(crate) memtables: bool,
}

/// As the engine's.
pub(crate) fn find_but(
    state: &TreeState<ByBytes>,
    private: Option<&Arc<Memtable<ByBytes>>>,
    key: &[u8],
    view: View,
    left: LeftOut,
) -> Result<Option<(VersionOrder, Found)>> {
    let mut best: Option<(VersionOrder, Found)> = None;
    let mut better = |order: VersionOrder, found: Found| {
        if best.as_ref().is_none_or(|b| order > b.0) {
            best = Some((order, found));
        }
    };
    for mem in private.into_iter().chain(state.memtables()).filter(|_| !left.memtables) {
        if let Some((order, v)) = mem.get(key).and_then(|node| mem.visible(node, view)) {
            // SAFETY: the bytes live as long as the memtable, which `Found` holds.
            let value = unsafe { std::mem::transmute::<&[u8], &'static [u8]>(v.value()) };
            better(order, if v.tombstone { Found::Tombstone } else { Found::Mem(mem.clone(), value) });
        }
    }
    for handle in state.runs_at_but(key, left.noted_by) {
        let aborted = handle.aborted();
        for (at, (_, tag, _)) in handle.run.block.iter().enumerate().filter(|(_, v)| &*v.0 == key) {
            let order = match &handle.owner {
                _ if aborted.contains(tag.ordinal) => None,
                Some(owner) => order_if_visible(view, owner.id, owner.status(), tag.ordinal),
                None => (tag.seq <= view.seq).then_some(VersionOrder::new(tag.seq, tag.ordinal)),
            };
            if let Some(order) = order {
                let value = || Found::Block(handle.run.clone(), 0, handle.run.block.clone(), at as u32);
                better(order, if tag.tombstone { Found::Tombstone } else { value() });
            }
        }
    }
    Ok(best)
}
