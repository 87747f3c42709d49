//! AUTO_INCREMENT: the next value of a table's counter.
//!
//! Invariants: no value is given out twice while the process lives; a committed transaction's values are below the counter
//! after a crash, too, since its frame in the log says how far the counter had come. What a transaction took that did not
//! commit may come again after a crash, as nobody has it.

use crate::catalog::table::Table;
use crate::session::{Parts, Session};
use crate::Result;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

/// Values from here on are free; 0: none was given out.
#[derive(Default)]
pub(crate) struct AutoIncrement(AtomicU64);

impl AutoIncrement {
    pub(crate) fn new(next: u64) -> Self {
        AutoIncrement(AtomicU64::new(next))
    }

    pub(crate) fn next(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    pub(crate) fn raise(&self, next: u64) {
        self.0.fetch_max(next, Ordering::SeqCst);
    }

    /// Takes `values` values that nobody else gets, of those that are `offset` and a multiple of `increment`; the first.
    fn take(&self, offset: u64, increment: u64, values: u64) -> Option<u64> {
        let mut now = self.next();
        loop {
            let first = first_of(now.max(1), offset, increment)?;
            let next = increment.checked_mul(values)?.checked_add(first)?;
            match self.0.compare_exchange(now, next, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => return Some(first),
                Err(other) => now = other,
            }
        }
    }
}

/// The least value from `from` on that is `offset` and a multiple of `increment`.
fn first_of(from: u64, offset: u64, increment: u64) -> Option<u64> {
    match from.checked_sub(offset) {
        None => Some(offset),
        Some(behind) => offset.checked_add(behind.div_ceil(increment).checked_mul(increment)?),
    }
}

impl Table {
    /// AUTO_INCREMENT values below this one may have been given out.
    pub fn next_auto_increment(&self) -> u64 {
        self.trees().auto_increment.next().max(1)
    }

    fn raise_auto_increment(&self, next: u64) {
        let trees = self.trees();
        if trees.auto_increment.next() < next {
            trees.auto_increment.raise(next);
            self.is_to_be_saved();
        }
    }
}

impl Session {
    /// Takes `values` AUTO_INCREMENT values of those that are `offset` and a multiple of `increment`, both from 1 on; the
    /// first of them, or none if there are not so many left.
    pub fn take_auto_increment(
        &mut self,
        table: &Arc<Table>,
        offset: u64,
        increment: u64,
        values: u64,
    ) -> Result<Option<u64>> {
        let Parts { core, txn, .. } = self.parts()?;
        let at = txn.table_of(core, table)?;
        let trees = table.trees();
        let first = trees.auto_increment.take(offset.max(1), increment.max(1), values.max(1));
        txn.tables[at].auto_increment = trees.auto_increment.next();
        table.is_to_be_saved();
        Ok(first)
    }

    /// A row gets this value by itself: those that are given out from now on are greater.
    pub fn auto_increment_used(&mut self, table: &Arc<Table>, value: u64) -> Result<()> {
        let Parts { core, txn, .. } = self.parts()?;
        let at = txn.table_of(core, table)?;
        let next = value.saturating_add(1);
        table.raise_auto_increment(next);
        let mark = &mut txn.tables[at].auto_increment;
        *mark = next.max(*mark);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_an_offset_and_a_multiple() {
        let counter = AutoIncrement::default();
        assert_eq!([counter.take(1, 1, 1), counter.take(1, 1, 3), counter.take(1, 1, 1)], [Some(1), Some(2), Some(5)]);
        // Three of 4, 14, 24, ...: from 6 on.
        assert_eq!([counter.take(4, 10, 3), counter.take(4, 10, 1)], [Some(14), Some(44)]);
        assert_eq!(counter.take(100, 10, 1), Some(100));
        counter.raise(7);
        assert_eq!(counter.next(), 110);
        counter.raise(u64::MAX - 1);
        assert_eq!(
            [counter.take(1, 1, 2), counter.take(1, 1, 1), counter.take(1, 1, 1)],
            [None, Some(u64::MAX - 1), None]
        );
    }
}
