//! What stands at a key of an index, whoever wrote it: what a unique key is checked against.
//!
//! Invariant: who asks has the key reserved, so that nobody puts it meanwhile. It may still be deleted, by whoever has the
//! lock of its row, and a transaction that put or deleted it may end: what is told was so at some moment since the call, or is
//! [`Standing::Pending`] behind one that has ended, where the state is older than what it left.

use crate::tree::key::ByBytes;
use crate::tree::memtable::{Memtable, Node};
use crate::tree::private::{Newest, Private};
use crate::tree::stored::{split_value, Stored};
use crate::tree::{find_but, Found, LeftOut, RangeMark, RunHandle, TreeState};
use crate::txn::state::TxnState;
use crate::version::{VersionOrder, View, ABORTED, ACTIVE};
use crate::Result;
use esker_format::{CommitSeq, RowId, TxnId};
use std::sync::Arc;

/// See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// No row has the key.
    Free {
        /// For the asker's own view this one has it, which others have taken it from since.
        seen: Option<RowId>,
        /// From this one the asker itself has taken it, as far as memtables tell.
        was_of: Option<RowId>,
    },
    /// A row has it, committed or by the asker's own doing.
    Taken(RowId, VersionOrder),
    /// A transaction that has not ended put it, or deleted what has it; of which row.
    Pending(TxnId, Ordinal, RowId),
}

impl Standing {
    /// Nobody has it, nor had it.
    pub(crate) const FREE: Standing = Standing::Free { seen: None, was_of: None };
}

/// Which change of its transaction's.
pub(crate) type Ordinal = u64;

/// Where the asker knows that a key is not.
#[derive(Clone, Copy, Default)]
pub(crate) struct NotIn {
    /// In the state's active memtable.
    pub(crate) active: bool,
    /// In the runs that it has noted.
    pub(crate) noted: bool,
}

/// What transactions have gathered for themselves at a key.
struct InPrivates<'a> {
    /// The asker's own memtable, to be searched with the others.
    own: Option<&'a Arc<Memtable<ByBytes>>>,
    /// The newest change of one that has committed: in a run, or in the shared memtable, too, but in a state from after that.
    missed: Option<(VersionOrder, Standing)>,
}

/// What stands at `key`, as `me` finds it, whose own `view` is told for a key that no two rows have in any view. `not_in`: it
/// is not there.
pub(crate) fn standing(
    state: &TreeState<ByBytes>,
    key: &[u8],
    me: TxnId,
    view: Option<CommitSeq>,
    not_in: NotIn,
) -> Result<Standing> {
    let InPrivates { own, missed } = match in_privates(state, key, me) {
        Ok(gathered) => gathered,
        Err(told) => return Ok(told),
    };
    // Most keys that are asked for are nowhere.
    let mut is_somewhere = missed.is_some();
    let active = not_in.active.then_some(state.active.id);
    for mem in own.into_iter().chain(state.memtables()).filter(|mem| Some(mem.id) != active) {
        let Some(node) = mem.get(key) else { continue };
        is_somewhere = true;
        if let Some((txn, ordinal, row)) = unended(mem, node, me) {
            return Ok(Standing::Pending(txn, ordinal, row));
        }
    }
    let noted_by = not_in.noted.then_some(me);
    // Whatever is put from now on is another's deletion, and may as well come later.
    let left = LeftOut { noted_by, memtables: !is_somewhere };
    for handle in state.runs_at_but(key, noted_by) {
        is_somewhere = true;
        let Some(owner) = handle.owner.as_ref().filter(|o| o.id != me && o.status() == ACTIVE) else { continue };
        if let Some((ordinal, row)) = newest_of(handle, owner, key)? {
            return Ok(Standing::Pending(owner.id, ordinal, row));
        }
    }
    if !is_somewhere {
        return Ok(Standing::FREE);
    }
    // Before it is looked for what they delete: who has committed by then has deleted it.
    let deletes = |m: &&RangeMark| m.owner.as_ref().is_some_and(|o| o.id != me && o.status() == ACTIVE);
    let deleting: Vec<_> = state.marks.iter().filter(deletes).collect();
    let found = find_but(state, own, key, View::newest(me), left)?;
    #[cfg(test)]
    crate::tests::hooks::reached("what stands at a key is found");
    match missed {
        // Who waits for it looks at a newer state at once. Of the same transaction there may be an older version where it is found.
        Some((newest, pending)) if found.as_ref().is_none_or(|(order, _)| *order < newest) => Ok(pending),
        _ => what_is_found((state, &deleting), key, (me, view), left, found),
    }
}

/// What transactions have gathered at the key, or, where that tells it all, what stands there.
fn in_privates<'a>(
    state: &'a TreeState<ByBytes>,
    key: &[u8],
    me: TxnId,
) -> std::result::Result<InPrivates<'a>, Standing> {
    let (mut own, mut missed) = (None, None);
    for private in &state.privates {
        if private.owner() == me {
            match private.newest_unsorted(key) {
                Some(newest) => return Err(own_standing(state, me, newest)),
                None => own = Some(private.memtable()),
            }
            continue;
        }
        let status = private.slot().status();
        let Some((ordinal, row)) = gathered(private, key).filter(|_| status != ABORTED) else { continue };
        let pending = Standing::Pending(private.owner(), ordinal, row);
        if status == ACTIVE {
            return Err(pending);
        }
        let order = VersionOrder::new(CommitSeq(status), ordinal);
        missed = missed.into_iter().chain([(order, pending)]).max_by_key(|(order, _)| *order);
    }
    Ok(InPrivates { own, missed })
}

/// What the newest version of the key means that has ended, or is the asker's own. `deleting`: marks of others that had not ended.
fn what_is_found(
    (state, deleting): (&TreeState<ByBytes>, &[&RangeMark]),
    key: &[u8],
    (me, view): (TxnId, Option<CommitSeq>),
    left: LeftOut,
    found: Option<(VersionOrder, Found<ByBytes>)>,
) -> Result<Standing> {
    let (row, order) = match found {
        Some((order, Found::Tombstone)) if order.is_own() => {
            let was_of = state.memtables().find_map(|mem| taken_from(mem, key, me));
            return Ok(Standing::Free { seen: None, was_of });
        }
        None | Some((_, Found::Tombstone)) => {
            let is_newer = |view: &CommitSeq| found.as_ref().is_none_or(|(order, _)| order.seq > *view);
            let seen = view.filter(is_newer).map_or(Ok(None), |seq| seen_of(state, key, View { seq, me }, left));
            return seen.map(|seen| Standing::Free { seen, was_of: None });
        }
        Some((order, Found::Mem(_, value))) => (split_value(value).0, order),
        Some((order, Found::Block(_, _, block, at))) => (ByBytes::row(&block, at), order),
    };
    let pending = deleting.iter().find_map(|mark| {
        let owner = mark.owner.as_ref()?;
        let deletes = row < mark.up_to && order.seq <= mark.as_of && !owner.aborted().contains(mark.ordinal);
        deletes.then_some(Standing::Pending(owner.id, mark.ordinal, row))
    });
    Ok(pending.unwrap_or(Standing::Taken(row, order)))
}

/// The row that a view sees at a key at which its owner has gathered nothing, if others have put it there.
pub(crate) fn seen_at(state: &TreeState<ByBytes>, key: &[u8], view: View) -> Result<Option<RowId>> {
    seen_of(state, key, view, LeftOut::default())
}

/// The same without what is left out.
fn seen_of(state: &TreeState<ByBytes>, key: &[u8], view: View, left: LeftOut) -> Result<Option<RowId>> {
    Ok(match find_but(state, None, key, view, left)?.filter(|(order, _)| !order.is_own()) {
        None | Some((_, Found::Tombstone)) => None,
        Some((_, Found::Mem(_, value))) => Some(split_value(value).0),
        Some((_, Found::Block(_, _, block, at))) => Some(ByBytes::row(&block, at)),
    })
}

/// The newest version of a key that another transaction has gathered.
fn gathered(private: &Private<ByBytes>, key: &[u8]) -> Option<(Ordinal, RowId)> {
    if let Some(newest) = private.newest_unsorted(key) {
        return Some((newest.ordinal, newest.row));
    }
    let mem = private.memtable();
    let newest = mem.get(key)?.versions().find(|v| mem.is_live(v))?;
    Some((newest.ordinal, ByBytes::row_of(key, newest.value())))
}

/// What the asker's own newest version of a key means.
fn own_standing(state: &TreeState<ByBytes>, me: TxnId, newest: Newest) -> Standing {
    let Newest { ordinal, row, tombstone } = newest;
    let order = VersionOrder::new(VersionOrder::OWN, ordinal);
    let is_gone = tombstone || state.seen_marks(View::newest(me)).iter().any(|m| m.hides(row, order));
    if is_gone {
        Standing::FREE
    } else {
        Standing::Taken(row, order)
    }
}

/// Whose newest version of a key is, if that is another transaction's that has not ended.
fn unended(mem: &Memtable<ByBytes>, node: &Node<ByBytes>, me: TxnId) -> Option<(TxnId, Ordinal, RowId)> {
    let newest = node.versions().find(|v| mem.is_live(v))?;
    let slot = newest.slot();
    let row = || ByBytes::row_of(node.key(), newest.value());
    (slot.status() == ACTIVE && slot.txn != me).then(|| (slot.txn, newest.ordinal, row()))
}

/// Whose the key was, if the newest version in this memtable is that it was taken from a row by `me`.
fn taken_from(mem: &Memtable<ByBytes>, key: &[u8], me: TxnId) -> Option<RowId> {
    let node = mem.get(key)?;
    let newest = node.versions().find(|v| mem.is_live(v))?;
    (newest.slot().txn == me && newest.tombstone).then(|| ByBytes::row_of(node.key(), newest.value()))
}

/// The newest version of the key in its owner's private run.
fn newest_of(handle: &RunHandle<ByBytes>, owner: &TxnState, key: &[u8]) -> Result<Option<(Ordinal, RowId)>> {
    let (blocks, aborted) = (handle.run.index()?, owner.aborted());
    let (mut newest, (mut index, is_alone)) = (None, handle.run.seek_key(&blocks, key)?);
    while blocks.entries().get(index).is_some_and(|e| ByBytes::first(e) <= key) {
        if !handle.run.may_hold(&blocks, index, ByBytes::filter_hash(key)) {
            if is_alone {
                break;
            }
            index += 1;
            continue;
        }
        let block = handle.run.block(&blocks, index)?;
        let from = ByBytes::lower_bound(&block, key);
        let is_of_key = |at: &u32| ByBytes::key(&block, *at) == key;
        let end = (from..ByBytes::rows(&block)).find(|at| !is_of_key(at));
        let versions = from..end.unwrap_or(ByBytes::rows(&block));
        let change = |at| (ByBytes::tag(&block, at).ordinal, ByBytes::row(&block, at));
        newest = newest.max(versions.map(change).filter(|(o, _)| !aborted.contains(*o)).max());
        if end.is_some() {
            break;
        }
        index += 1;
    }
    Ok(newest)
}
