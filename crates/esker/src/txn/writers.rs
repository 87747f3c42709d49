//! The transactions that have written and not ended: who inserts into a tree, whose versions a flush meets.

use crate::lock::LockOwner;
use crate::txn::state::TxnState;
use esker_base::lock::{order, Mutex};
use esker_format::{RowId, TreeId, TxnId};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

/// A transaction that inserts into a tree.
pub(crate) struct Inserter {
    /// The first of its rows there.
    pub(crate) first: RowId,
    pub(crate) owner: Arc<LockOwner>,
}

/// See the module.
pub(crate) struct Writers(Mutex<HashMap<TxnId, Arc<TxnState>>>);

impl Writers {
    pub(crate) fn new() -> Self {
        Writers(Mutex::new(&order::WRITERS, HashMap::new()))
    }

    /// The transaction is about to write.
    pub(crate) fn add(&self, state: &Arc<TxnState>) {
        self.0.lock().insert(state.id, state.clone());
    }

    /// The transaction has ended; its status words are stored.
    pub(crate) fn remove(&self, state: &Arc<TxnState>) {
        self.0.lock().remove(&state.id);
    }

    pub(crate) fn get(&self, txn: TxnId) -> Option<Arc<TxnState>> {
        self.0.lock().get(&txn).cloned()
    }

    /// Those other than `me` that insert into `tree`; the one with the least row comes last.
    pub(crate) fn inserters(&self, tree: TreeId, me: TxnId) -> Vec<Inserter> {
        let writers: Vec<_> = self.0.lock().values().filter(|w| w.id != me).map(|w| w.locks.clone()).collect();
        let inserter = |owner: Arc<LockOwner>| Some(Inserter { first: owner.first_insert(tree)?, owner });
        let mut list: Vec<_> = writers.into_iter().filter_map(inserter).collect();
        list.sort_by_key(|i| Reverse(i.first));
        list
    }

    /// All of them, with the number of rows that each has locked.
    pub(crate) fn locked_rows(&self) -> Vec<(TxnId, u64)> {
        let mut list: Vec<_> = self.0.lock().values().map(|w| (w.id, w.locks.locked_rows())).collect();
        list.sort();
        list
    }
}
