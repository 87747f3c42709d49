//! What was done to each table, and by which of its indexes.
//!
//! A session's counters are its own; what they moved by while a call worked on a table is that table's part. The session
//! gathers such parts for itself and adds them to the table's figures when the statement, or the transaction, ends: nothing
//! that sessions share is touched for a row. A thread that is not bound to the session's counters (see
//! `esker_base::counters::bind`) counts for no table.

use crate::catalog::table::Table;
use crate::engine::Engine;
use crate::session::Session;
use esker_base::counters::{Counter, SessionCounters};
use esker_base::WITHOUT_FIGURES;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::Arc;

/// What a session counts of a table's part.
const COUNTED: [Counter; 10] = [
    Counter::RowsRead,
    Counter::BlocksCached,
    Counter::BlocksMissed,
    Counter::LockWaits,
    Counter::LockWaitUs,
    Counter::RowsInserted,
    Counter::RowsUpdated,
    Counter::RowsDeleted,
    Counter::BlocksPagecache,
    Counter::BlocksDevice,
];
/// Where in that list the blocks are.
const BLOCKS: [usize; 4] = [1, 2, 8, 9];

/// A session has gathered parts of so many tables and indexes: it adds them before it goes on.
const MOST_GATHERED: usize = 64;

/// What was done to a table, or by an index of it, since the start or since [`Engine::forget_work`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WorkFigures {
    /// Rows that were handed out.
    pub rows_read: u64,
    /// Rows inserted, updated and deleted, those of transactions that were rolled back, too. Of a table, not of an index.
    pub rows_changed: u64,
    /// Blocks found in the cache.
    pub blocks_cached: u64,
    /// Blocks that were not, and were read: from the operating system's cache, or from the device.
    pub blocks_read: u64,
    /// Those of them that the operating system's cache had.
    pub blocks_pagecache: u64,
    /// Those of them that came from the device. Neither, if the file system does not tell.
    pub blocks_device: u64,
    /// Those of them that were read to change rows.
    pub blocks_read_by_changes: u64,
    /// Lock requests that had to wait.
    pub lock_waits: u64,
    /// For how long, in microseconds.
    pub lock_wait_us: u64,
}

/// Those of so many it still has at hand when it has added them, so that the next statement need not count itself among their holders.
const MOST_KEPT: usize = 8;
/// Figures are in so many parts: sessions that work on one table at once seldom meet in one.
const PARTS: usize = 4;

/// Figures of a table, or of an index.
#[derive(Default)]
pub(crate) struct Work([Part; PARTS]);

#[derive(Default)]
#[repr(align(128))]
struct Part([AtomicU64; 9]);

impl WorkFigures {
    fn as_list(&mut self) -> [&mut u64; 9] {
        let WorkFigures {
            rows_read,
            rows_changed,
            blocks_cached,
            blocks_read,
            blocks_pagecache,
            blocks_device,
            blocks_read_by_changes,
            lock_waits,
            lock_wait_us,
        } = self;
        [
            rows_read,
            rows_changed,
            blocks_cached,
            blocks_read,
            blocks_pagecache,
            blocks_device,
            blocks_read_by_changes,
            lock_waits,
            lock_wait_us,
        ]
    }

    /// Is it known where the blocks that were read came from?
    pub fn knows_source(&self) -> bool {
        self.blocks_read == 0 || self.blocks_pagecache + self.blocks_device > 0
    }

    fn add(&mut self, more: [u64; COUNTED.len()], kind: Kind) {
        let [read, cached, missed, waits, wait_us, inserted, updated, deleted, pagecache, device] = more;
        self.rows_read += read;
        self.rows_changed += inserted + updated + deleted;
        self.blocks_cached += cached;
        self.blocks_read += missed;
        self.blocks_pagecache += pagecache;
        self.blocks_device += device;
        self.blocks_read_by_changes += if kind == Kind::Change { missed } else { 0 };
        self.lock_waits += waits;
        self.lock_wait_us += wait_us;
    }
}

impl Work {
    fn add(&self, part: usize, mut more: WorkFigures) {
        for (figure, more) in self.0[part].0.iter().zip(more.as_list()).filter(|(_, more)| **more > 0) {
            figure.fetch_add(*more, Ordering::Relaxed);
        }
    }

    fn get(&self) -> WorkFigures {
        let mut figures = WorkFigures::default();
        for part in &self.0 {
            figures.as_list().into_iter().zip(&part.0).for_each(|(to, from)| *to += from.load(Ordering::Relaxed));
        }
        figures
    }

    fn forget(&self) {
        self.0.iter().flat_map(|part| &part.0).for_each(|figure| figure.store(0, Ordering::Relaxed));
    }
}

/// What for a table is worked on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Change,
}

/// What a session is at, and what it has done since it added that to the tables' figures. An update turns from reading to
/// changing and back with each row, a join from table to table: that touches nothing but the session's own.
pub(crate) struct Working {
    /// Which part of the figures it adds to.
    part: usize,
    /// Its place in `gathered`.
    at: Option<(usize, Kind)>,
    /// The session's counters when it turned to that.
    since: [u64; COUNTED.len()],
    gathered: Vec<(Arc<Work>, WorkFigures)>,
}

impl Default for Working {
    fn default() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let part = NEXT.fetch_add(1, Ordering::Relaxed) % PARTS;
        Working { part, at: None, since: Default::default(), gathered: Vec::new() }
    }
}

fn now(counters: &SessionCounters) -> [u64; COUNTED.len()] {
    COUNTED.map(|counter| counters.get(counter))
}

impl Working {
    #[inline]
    fn is_at(&self, work: &Arc<Work>, kind: Kind) -> bool {
        self.at.is_some_and(|(at, of)| of == kind && Arc::ptr_eq(&self.gathered[at].0, work))
    }

    /// What was counted until now is of what it was at.
    fn turn_to(&mut self, counters: &SessionCounters, next: Option<(&Arc<Work>, Kind)>) {
        let now = now(counters);
        if let Some((at, kind)) = self.at.take() {
            self.gathered[at].1.add(std::array::from_fn(|i| now[i].wrapping_sub(self.since[i])), kind);
        }
        self.since = now;
        self.at = next.map(|(work, kind)| (self.place_of(work), kind));
    }

    fn place_of(&mut self, work: &Arc<Work>) -> usize {
        if let Some(place) = self.gathered.iter().position(|(of, _)| Arc::ptr_eq(of, work)) {
            return place;
        }
        if self.gathered.len() >= MOST_GATHERED {
            let at = self.at.take().map(|(at, kind)| (self.gathered[at].0.clone(), kind));
            self.tell();
            if let Some((work, kind)) = at {
                self.gathered.push((work, WorkFigures::default()));
                self.at = Some((0, kind));
            }
        }
        self.gathered.push((work.clone(), WorkFigures::default()));
        self.gathered.len() - 1
    }

    fn tell(&mut self) {
        for (work, figures) in &mut self.gathered {
            work.add(self.part, std::mem::take(figures));
        }
        if self.gathered.len() > MOST_KEPT {
            self.gathered.clear();
        }
    }

    /// Blocks that the session has had until now.
    #[inline]
    fn blocks(counters: &SessionCounters) -> [u64; BLOCKS.len()] {
        BLOCKS.map(|at| counters.get(COUNTED[at]))
    }

    /// The blocks since `before` are of another one: a change has looked into that index.
    #[cold]
    fn of_another(&mut self, before: [u64; BLOCKS.len()], after: [u64; BLOCKS.len()], another: &Arc<Work>) {
        let mut more = [0; COUNTED.len()];
        for (i, at) in BLOCKS.into_iter().enumerate() {
            more[at] = after[i].wrapping_sub(before[i]);
            self.since[at] = self.since[at].wrapping_add(more[at]);
        }
        let place = self.place_of(another);
        self.gathered[place].1.add(more, Kind::Change);
    }
}

impl Session {
    /// From here on it works on a table, or by an index.
    #[inline]
    pub(crate) fn works_on(&mut self, work: &Arc<Work>, kind: Kind) {
        if !WITHOUT_FIGURES && !self.working.is_at(work, kind) {
            self.working.turn_to(&self.own_counters, Some((work, kind)));
        }
    }

    /// The blocks that `look` comes to, while a row is changed, are of an index.
    #[inline]
    pub(crate) fn looks_into<T>(&mut self, index: &Arc<Work>, look: impl FnOnce() -> T) -> T {
        let before = Working::blocks(&self.own_counters);
        let found = look();
        let after = Working::blocks(&self.own_counters);
        if before != after {
            self.working.of_another(before, after, index);
        }
        found
    }

    /// What it did is added to the figures of tables.
    pub(crate) fn tell_work(&mut self) {
        if self.working.at.is_some() {
            self.working.turn_to(&self.own_counters, None);
        }
        self.working.tell();
    }
}

impl Table {
    /// Takes over the figures of the table in whose place it comes.
    pub(crate) fn take_work_of(&self, before: &Table) {
        self.work.add(0, before.work.get());
        let (own, others) = (self.trees(), before.trees());
        for (_, index) in own.kept_indexes() {
            let same = others.kept_indexes().find(|(_, other)| other.entry.name == index.entry.name);
            if let Some((_, other)) = same {
                index.work.add(0, other.work.get());
            }
        }
    }
}

/// What was done to a table, or by an index of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkInfo {
    /// The table's name.
    pub table: String,
    /// The index; none: the table's rows, whoever came to them by no index or by their ids.
    pub index: Option<String>,
    /// What was done.
    pub figures: WorkFigures,
}

impl Engine {
    /// What sessions did to each table, and by each of its indexes, in statements that have ended: by their names. Calls whose
    /// thread was not bound to the session's counters, and threads in the background, are not in it.
    pub fn work(&self) -> Vec<WorkInfo> {
        let mut list = Vec::new();
        for table in self.core.shown_tables() {
            let of = |index, work: &Work| WorkInfo { table: table.name(), index, figures: work.get() };
            list.push(of(None, &table.work));
            let trees = table.trees();
            list.extend(trees.kept_indexes().map(|(_, i)| of(Some(i.entry.name.clone()), &i.work)));
        }
        list.sort_by(|a, b| (&a.table, &a.index).cmp(&(&b.table, &b.index)));
        list
    }

    /// Counts from zero again, for all tables. What statements that go on now have done comes at their end.
    pub fn forget_work(&self) {
        for table in self.core.shown_tables() {
            table.work.forget();
            table.trees().kept_indexes().for_each(|(_, index)| index.work.forget());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use esker_base::counters::{bind, count};

    #[test]
    fn more_tables_than_are_gathered_have_all_that_was_done() {
        let counters = SessionCounters::new();
        let _bound = bind(&counters);
        let tables: Vec<Arc<Work>> = (0..2 * MOST_GATHERED + 3).map(|_| Arc::default()).collect();
        let mut working = Working::default();
        for round in 0..2 {
            for (i, table) in tables.iter().enumerate() {
                working.turn_to(&counters, Some((table, Kind::Read)));
                assert!(working.is_at(table, Kind::Read) && !working.is_at(table, Kind::Change));
                count(Counter::RowsRead, 1);
                // A change looks into another one meanwhile, which may be one too many.
                let before = Working::blocks(&counters);
                count(Counter::BlocksMissed, 1);
                working.of_another(before, Working::blocks(&counters), &tables[(i + 7) % tables.len()]);
                count(Counter::RowsRead, round);
            }
        }
        working.turn_to(&counters, None);
        assert!(working.gathered.len() <= MOST_GATHERED && working.gathered.capacity() <= 2 * MOST_GATHERED);
        working.tell();
        for table in &tables {
            let figures = table.get();
            assert_eq!((figures.rows_read, figures.blocks_read, figures.blocks_read_by_changes), (3, 2, 2));
        }
    }
}
