//! A key with which nobody else has anything to do: who locks by it need not look for whom to wait.
//!
//! Invariant: what is told of a key is all that anybody had put there when the state was looked at, rolled back changes aside.

use crate::tree::key::ByBytes;
use crate::tree::memtable::Memtable;
use crate::tree::{find_in_run, Found, RunSeen, Seen, TreeState};
use crate::version::{order_if_visible, VersionOrder, View};
use crate::Result;
use std::sync::Arc;

/// A version of a key, if there is one, with its order.
pub(crate) type Version = Option<(VersionOrder, Found<ByBytes>)>;

/// What `view` sees of a key, if that is certainly all that is to be known of it: nobody else has put or deleted it, or may
/// have, without the view seeing it. Else `None`. `own`: what the looker has gathered.
pub(crate) fn undisputed(
    state: &TreeState<ByBytes>,
    own: Option<&Arc<Memtable<ByBytes>>>,
    key: &[u8],
    view: View,
) -> Result<Option<Version>> {
    if state.privates.iter().any(|p| p.owner() != view.me) || state.marks.iter().any(|m| m.order(view).is_none()) {
        return Ok(None);
    }
    let mut best: Option<Seen<ByBytes>> = None;
    for mem in own.into_iter().chain(state.memtables()) {
        let Some(node) = mem.get(key) else { continue };
        let Some(newest) = node.versions().find(|v| mem.is_live(v)) else { continue };
        let slot = newest.slot();
        let Some(order) = order_if_visible(view, slot.txn, slot.status(), newest.ordinal) else { return Ok(None) };
        if best.as_ref().is_none_or(|b| order > b.order) {
            best = Some(Seen::in_mem(mem, node.key(), order, newest));
        }
    }
    for handle in state.runs_at(key) {
        match handle.seen(view) {
            RunSeen::Hidden => return Ok(None),
            RunSeen::PerRow if handle.run.stats.max_seq > view.seq => return Ok(None),
            _ => find_in_run(handle, key, view, &mut best)?,
        }
    }
    let marks = state.seen_marks(view);
    let left = best.filter(|b| !marks.iter().any(|m| m.hides(b.row, b.order)));
    Ok(Some(left.map(|b| (b.order, b.found))))
}
