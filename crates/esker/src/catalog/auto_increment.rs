//! AUTO_INCREMENT: the next value of a table's counter.
//!
//! Invariants: no value is given out twice while the process lives; a committed transaction's values are below the counter
//! after a crash, too, since its frame in the log says how far the counter had come. What a transaction took that did not
//! commit may come again after a crash, as nobody has it.
//!
//! Who counts alone holds the lock of the counter until its statement ends; it is a row lock, on a row that no table has, so
//! that waits for it have a limit, can be killed, and are seen where they would close a circle.

use crate::catalog::table::Table;
use crate::lock::{LockMode, LockOutcome, COUNTER};
use crate::session::{Session, SessionParts};
use crate::Result;
use esker_base::lock::{order, Mutex};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

/// How a statement gets its AUTO_INCREMENT values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counting {
    /// Whoever comes gets the next ones: values of several statements may alternate.
    Interleaved,
    /// All at once, or what is asked for; waits for who counts alone.
    AtOnce,
    /// Nobody else gets values until the statement ends.
    Alone,
}

/// Some of the values that are an offset and a multiple of an increment, up to the greatest that a row can have.
#[derive(Clone, Copy)]
struct Wanted {
    offset: u64,
    increment: u64,
    values: u64,
    greatest: u64,
}

/// A table's counter.
pub(crate) struct AutoIncrement {
    state: Mutex<State>,
    /// Rows may have brought values below here themselves: those are not given back. Grows, under the mutex.
    brought: AtomicU64,
}

struct State {
    /// Values from here on are free; 0: none was given out.
    next: u64,
    /// Somebody counts alone: others take the lock first.
    alone: bool,
}

impl Default for AutoIncrement {
    fn default() -> Self {
        AutoIncrement::new(0)
    }
}

impl AutoIncrement {
    pub(crate) fn new(next: u64) -> Self {
        let state = Mutex::new(&order::AUTO_INCREMENT, State { next, alone: false });
        AutoIncrement { state, brought: AtomicU64::new(next) }
    }

    pub(crate) fn next(&self) -> u64 {
        self.state.lock().next
    }

    /// A row may have any value below `next`. Were they free?
    pub(crate) fn raise(&self, next: u64) -> bool {
        if self.brought.load(Ordering::Relaxed) >= next {
            return false;
        }
        let mut state = self.state.lock();
        self.brought.fetch_max(next, Ordering::Relaxed);
        let free = state.next < next;
        state.next = state.next.max(next);
        free
    }

    /// Takes values that nobody else gets, from the first to before the next; none, from where it stands, if none is left.
    fn take(&self, wanted: Wanted) -> Range<u64> {
        self.state.lock().take(wanted)
    }

    /// The same, unless somebody counts alone.
    fn take_unless_alone(&self, wanted: Wanted) -> Option<Range<u64>> {
        let mut state = self.state.lock();
        (!state.alone).then(|| state.take(wanted))
    }

    /// Called with the lock held.
    fn set_alone(&self, alone: bool) {
        self.state.lock().alone = alone;
    }

    /// The last ones of what was taken are free again, unless somebody took others since; the next value then.
    fn give_back(&self, unused: Range<u64>) -> Option<u64> {
        let mut state = self.state.lock();
        let next = unused.start.max(self.brought.load(Ordering::Relaxed));
        if state.next != unused.end || next >= unused.end {
            return None;
        }
        state.next = next;
        Some(next)
    }
}

impl State {
    /// Fewer than are wanted where the counter would go past its own end, which is never given out: it is the end of a range.
    fn take(&mut self, Wanted { offset, increment, values, greatest }: Wanted) -> Range<u64> {
        let (from, greatest) = (self.next.max(1), greatest.min(u64::MAX - 1));
        // Past the last value it stays, however many are asked for.
        if from > greatest {
            return from..from;
        }
        let first = first_of(from, offset, increment);
        if first > greatest {
            self.next = first;
            return from..from;
        }
        let values = values.min(((u64::MAX - first) / increment).max(1));
        self.next = first.saturating_add(increment * values);
        first..self.next
    }
}

/// The least value from `from` on that is `offset` and a multiple of `increment`; the greatest number if there is none.
fn first_of(from: u64, offset: u64, increment: u64) -> u64 {
    match from.checked_sub(offset) {
        None => offset,
        Some(behind) => offset.saturating_add(behind.div_ceil(increment).saturating_mul(increment)),
    }
}

impl Table {
    /// AUTO_INCREMENT values below this one may have been given out.
    pub fn next_auto_increment(&self) -> u64 {
        self.trees().auto_increment.next().max(1)
    }
}

impl Session {
    /// Takes `values` AUTO_INCREMENT values, or as many as are left, of those that are `offset` and a multiple of `increment`,
    /// both from 1 on: from the first to before the next one. If none is left up to `greatest`, which a row can have, they are
    /// none, from where the counter stood.
    ///
    /// # Errors
    /// Those of writing in the table. Where somebody counts alone, or this one does: those of locks.
    pub fn take_auto_increment(
        &mut self,
        table: &Arc<Table>,
        offset: u64,
        increment: u64,
        values: u64,
        greatest: u64,
        counting: Counting,
    ) -> Result<Range<u64>> {
        let SessionParts { core, txn, .. } = self.parts()?;
        let at = txn.table_of(core, table)?;
        let wanted = Wanted { offset: offset.max(1), increment: increment.max(1), values: values.max(1), greatest };
        let counter = table.trees().auto_increment.clone();
        let taken = match counting {
            Counting::Interleaved => counter.take(wanted),
            Counting::AtOnce => match counter.take_unless_alone(wanted) {
                Some(taken) => taken,
                None => self.take_behind(table, &counter, wanted)?,
            },
            Counting::Alone => {
                self.count_alone(table, &counter)?;
                counter.take(wanted)
            }
        };
        let mark = &mut self.txn_mut()?.tables[at].auto_increment;
        *mark = taken.end.max(*mark);
        table.mark_to_save();
        Ok(taken)
    }

    /// Waits for who counts alone. He may be of this session, further out.
    fn take_behind(&mut self, table: &Table, counter: &AutoIncrement, wanted: Wanted) -> Result<Range<u64>> {
        let outcome = self.lock_row(table.tree_id(), COUNTER, LockMode::Exclusive, self.wait)?;
        let taken = counter.take(wanted);
        if outcome == LockOutcome::Granted {
            self.unlock_counter(table, counter);
        }
        Ok(taken)
    }

    /// Until the statement ends.
    fn count_alone(&mut self, table: &Arc<Table>, counter: &Arc<AutoIncrement>) -> Result<()> {
        if self.lock_row(table.tree_id(), COUNTER, LockMode::Exclusive, self.wait)? == LockOutcome::Granted {
            self.counts_alone.push((table.clone(), counter.clone()));
            counter.set_alone(true);
        }
        Ok(())
    }

    fn unlock_counter(&self, table: &Table, counter: &AutoIncrement) {
        counter.set_alone(false);
        if let Some(state) = self.current.state() {
            self.core.locks.unlock_row(&state.locks, table.tree_id(), COUNTER);
        }
    }

    /// The statement gets no more values: it no longer counts alone. Of what it took last these were not used: they are free
    /// again, unless somebody took others since.
    pub fn end_auto_increment(&mut self, table: &Arc<Table>, unused: Range<u64>) {
        let counter = table.trees().auto_increment.clone();
        if let Some(next) = counter.give_back(unused.clone()) {
            table.mark_to_save();
            let txn = self.current.open_mut();
            let in_table = txn.and_then(|txn| txn.place_of(table).map(|at| &mut txn.tables[at]));
            // What it took before, or brought, is below.
            if let Some(t) = in_table.filter(|t| t.auto_increment == unused.end) {
                t.auto_increment = next;
            }
        }
        if let Some(at) = self.counts_alone.iter().position(|(t, _)| Arc::ptr_eq(t, table)) {
            self.counts_alone.swap_remove(at);
            self.unlock_counter(table, &counter);
        }
    }

    /// The statement is over, however it ended.
    pub(crate) fn unlock_counters(&mut self) {
        for (table, counter) in std::mem::take(&mut self.counts_alone) {
            self.unlock_counter(&table, &counter);
        }
    }

    /// A row gets this value by itself: those that are given out from now on are greater. To be told of each such row, also where
    /// another one has brought a greater value: that one's transaction may be rolled back, or be lost in a crash, and this one's
    /// not.
    ///
    /// # Errors
    /// Those of writing in the table.
    pub fn auto_increment_used(&mut self, table: &Arc<Table>, value: u64) -> Result<()> {
        let SessionParts { core, txn, .. } = self.parts()?;
        let at = txn.table_of(core, table)?;
        let next = value.saturating_add(1);
        if table.trees().auto_increment.raise(next) {
            table.mark_to_save();
        }
        let mark = &mut txn.tables[at].auto_increment;
        *mark = next.max(*mark);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WANTED: Wanted = Wanted { offset: 1, increment: 1, values: 1, greatest: u64::MAX };

    fn first(counter: &AutoIncrement, offset: u64, increment: u64, values: u64) -> u64 {
        counter.take(Wanted { offset, increment, values, ..WANTED }).start
    }

    #[test]
    fn values_are_an_offset_and_a_multiple() {
        let counter = AutoIncrement::default();
        assert_eq!([first(&counter, 1, 1, 1), first(&counter, 1, 1, 3), first(&counter, 1, 1, 1)], [1, 2, 5]);
        // Three of 4, 14, 24, ...: from 6 on.
        assert_eq!([first(&counter, 4, 10, 3), first(&counter, 4, 10, 1)], [14, 44]);
        assert_eq!(first(&counter, 100, 10, 1), 100);
        assert!(!counter.raise(7));
        assert_eq!(counter.next(), 110);
    }

    /// What is taken from where, and where the counter stands then.
    fn taken(next: u64, wanted: Wanted) -> (Range<u64>, u64) {
        let counter = AutoIncrement::new(next);
        (counter.take(wanted), counter.next())
    }

    #[test]
    fn a_counter_stays_behind_the_greatest_value() {
        let byte = Wanted { greatest: 127, ..WANTED };
        assert_eq!(taken(127, byte), (127..128, 128));
        // The row that gets no value is refused one.
        assert_eq!(taken(126, Wanted { values: 3, ..byte }), (126..129, 129));
        let (three, seven) = (Wanted { values: 3, ..byte }, Wanted { offset: 3, increment: 7, ..byte });
        for wanted in [byte, three, seven, Wanted { values: 3, ..seven }] {
            assert_eq!(taken(128, wanted), (128..128, 128));
            assert_eq!(taken(1000, wanted), (1000..1000, 1000));
        }
        // 122 is the last, and what is left is not wanted.
        assert_eq!(taken(122, seven), (122..129, 129));
        assert_eq!(taken(123, seven), (123..123, 129));
        assert_eq!(taken(127, seven), (127..127, 129));
    }

    #[test]
    fn a_counter_ends_at_its_own_end() {
        const END: u64 = u64::MAX;
        let seven = Wanted { offset: 3, increment: 7, ..WANTED };
        assert_eq!(taken(END, WANTED), (END..END, END));
        assert_eq!(taken(END - 1, Wanted { values: 2, ..WANTED }), (END - 1..END, END));
        assert_eq!(taken(END - 3, Wanted { values: 2, ..WANTED }), (END - 3..END - 1, END - 1));
        assert_eq!(taken(END - 3, Wanted { values: END, ..WANTED }), (END - 3..END, END));
        // The last one that is 3 and a multiple of 7 is the fifth before the end.
        assert_eq!(taken(END - 4, seven), (END - 4..END - 4, END));
        assert_eq!(taken(END - 5, seven), (END - 5..END, END));
        let last = (END - 3) / 7 * 7 + 3;
        assert_eq!(last, END - 5);
        assert_eq!(taken(last - 8, Wanted { values: 3, ..seven }), (last - 7..last, last));
        // The end itself is one of those that are wanted.
        assert_eq!(taken(END - 4, Wanted { increment: 5, offset: 5, ..WANTED }), (END - 4..END - 4, END));
    }

    #[test]
    fn unused_values_come_again_unless_somebody_has_or_passed_them() {
        let counter = AutoIncrement::new(1);
        let ten = Wanted { values: 10, ..WANTED };
        assert_eq!(counter.take(ten), 1..11);
        assert_eq!(counter.give_back(4..11), Some(4));
        assert_eq!(counter.take(ten), 4..14);
        // All were used.
        assert_eq!(counter.give_back(14..14), None);
        // Others were taken since.
        assert_eq!(counter.take(ten), 14..24);
        assert_eq!(counter.give_back(10..14), None);
        // A row brought one of them itself.
        assert!(!counter.raise(18));
        assert_eq!(counter.give_back(15..24), Some(18));
        // It did so with the last of them.
        assert_eq!(counter.take(ten), 18..28);
        assert!(!counter.raise(28));
        assert_eq!(counter.give_back(19..28), None);
        assert_eq!(counter.next(), 28);
    }
}
