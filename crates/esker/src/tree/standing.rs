//! What stands at a key of an index, whoever wrote it: what a unique key is checked against.
//!
//! Invariant: who asks has the key reserved, so that nobody puts it meanwhile. It may still be deleted, by whoever has the
//! lock of its row, and a transaction that put or deleted it may end: what is told was so at some moment since the call.

use crate::tree::key::ByBytes;
use crate::tree::memtable::{Memtable, Node};
use crate::tree::private::Newest;
use crate::tree::stored::{split_value, Stored};
use crate::tree::{find, Found, RunHandle, TreeState};
use crate::txn::state::TxnState;
use crate::version::{VersionOrder, View, ACTIVE};
use crate::Result;
use esker_format::{RowId, TxnId};

/// See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// No row has the key.
    Free,
    /// A row has it, committed or by the asker's own doing.
    Taken(RowId, VersionOrder),
    /// A transaction that has not ended put it, or deleted what has it; of which row.
    Pending(TxnId, Ordinal, RowId),
}

/// Which change of its transaction's.
pub(crate) type Ordinal = u64;

/// What stands at `key`, as `me` finds it.
pub(crate) fn standing(state: &TreeState<ByBytes>, key: &[u8], me: TxnId) -> Result<Standing> {
    let mut own = None;
    for private in &state.privates {
        let is_own = private.owner() == me;
        // One that has ended has it in a run, or in the shared memtable, too.
        if !is_own && private.slot().status() != ACTIVE {
            continue;
        }
        match private.newest_unsorted(key) {
            Some(newest) if is_own => return Ok(own_standing(state, me, newest)),
            Some(newest) => return Ok(Standing::Pending(private.owner(), newest.ordinal, newest.row)),
            None if is_own => own = Some(private.memtable()),
            None => {}
        }
    }
    // Most keys that are asked for are nowhere.
    let mut is_somewhere = false;
    for mem in state.privates.iter().map(|p| p.memtable()).chain(state.memtables()) {
        let Some(node) = mem.get(key) else { continue };
        is_somewhere = true;
        if let Some((txn, ordinal, row)) = unended(mem, node, me) {
            return Ok(Standing::Pending(txn, ordinal, row));
        }
    }
    for handle in state.runs_at(key) {
        is_somewhere = true;
        let Some(owner) = handle.owner.as_ref().filter(|o| o.id != me && o.status() == ACTIVE) else { continue };
        if let Some((ordinal, row)) = newest_of(handle, owner, key)? {
            return Ok(Standing::Pending(owner.id, ordinal, row));
        }
    }
    if !is_somewhere {
        return Ok(Standing::Free);
    }
    let (row, order) = match find(state, own, key, View::newest(me))? {
        None | Some((_, Found::Tombstone)) => return Ok(Standing::Free),
        Some((order, Found::Mem(_, value))) => (split_value(value).0, order),
        Some((order, Found::Block(_, _, block, at))) => (ByBytes::row(&block, at), order),
    };
    let pending = state.marks.iter().find_map(|mark| {
        let owner = mark.owner.as_ref().filter(|o| o.id != me && o.status() == ACTIVE)?;
        let deletes = row < mark.up_to && order.seq <= mark.as_of && !owner.aborted().contains(mark.ordinal);
        deletes.then_some(Standing::Pending(owner.id, mark.ordinal, row))
    });
    Ok(pending.unwrap_or(Standing::Taken(row, order)))
}

/// What the asker's own newest version of a key means.
fn own_standing(state: &TreeState<ByBytes>, me: TxnId, newest: Newest) -> Standing {
    let Newest { ordinal, row, tombstone } = newest;
    let order = VersionOrder::new(VersionOrder::OWN, ordinal);
    let is_gone = tombstone || state.seen_marks(View::newest(me)).iter().any(|m| m.hides(row, order));
    if is_gone {
        Standing::Free
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

/// The newest version of the key in its owner's private run.
fn newest_of(handle: &RunHandle<ByBytes>, owner: &TxnState, key: &[u8]) -> Result<Option<(Ordinal, RowId)>> {
    let (blocks, aborted) = (handle.run.index()?, owner.aborted());
    let (mut newest, mut index) = (None, blocks.block_at_or_after(key));
    while blocks.entries().get(index).is_some_and(|e| ByBytes::first(e) <= key) {
        if !handle.run.may_hold(&blocks, index, ByBytes::filter_hash(key)) {
            index += 1;
            continue;
        }
        let block = handle.run.block(&blocks, index)?;
        let from = ByBytes::lower_bound(&block, key);
        let versions = (from..ByBytes::rows(&block)).take_while(|at| ByBytes::key(&block, *at) == key);
        let change = |at| (ByBytes::tag(&block, at).ordinal, ByBytes::row(&block, at));
        newest = newest.max(versions.map(change).filter(|(o, _)| !aborted.contains(*o)).max());
        index += 1;
    }
    Ok(newest)
}
