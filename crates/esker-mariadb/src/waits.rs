// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which caller runs which transaction: parallel replication must be told who waits for whom.
//!
//! Invariant: a caller's context is used only while the map's mutex is held, and a session takes its own entry out
//! before it ends; so the context is alive whenever it is used.

use esker_format::TxnId;
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The contexts of the transactions that report their waits.
#[derive(Default)]
pub(crate) struct Owners(Mutex<HashMap<TxnId, usize>>);

impl Owners {
    fn map(&self) -> MutexGuard<'_, HashMap<TxnId, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, txn: TxnId, context: *mut c_void) {
        self.map().insert(txn, context as usize);
    }

    pub(crate) fn remove(&self, txn: TxnId) {
        self.map().remove(&txn);
    }

    /// Calls `work` with the context of a transaction, null if nobody reports for it.
    pub(crate) fn with(&self, txn: TxnId, work: impl FnOnce(*mut c_void)) {
        let map = self.map();
        work(map.get(&txn).map_or(std::ptr::null_mut(), |context| *context as *mut c_void));
    }

    /// What `work` says with the contexts of two transactions, if both report.
    pub(crate) fn with_both<T>(
        &self,
        one: TxnId,
        other: TxnId,
        work: impl FnOnce(*mut c_void, *mut c_void) -> T,
    ) -> Option<T> {
        let map = self.map();
        let context = |txn: TxnId| map.get(&txn).map(|context| *context as *mut c_void);
        Some(work(context(one)?, context(other)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_is_found_until_it_is_removed() {
        let (owners, mut place) = (Owners::default(), 0u8);
        let context = std::ptr::addr_of_mut!(place).cast::<c_void>();
        owners.add(TxnId(1), context);
        owners.with(TxnId(1), |c| assert_eq!(c, context));
        assert_eq!(owners.with_both(TxnId(1), TxnId(2), |_, _| ()), None);
        owners.add(TxnId(2), std::ptr::null_mut());
        assert_eq!(owners.with_both(TxnId(2), TxnId(1), |a, b| (a.is_null(), b == context)), Some((true, true)));
        owners.remove(TxnId(1));
        owners.with(TxnId(1), |c| assert!(c.is_null()));
    }
}
